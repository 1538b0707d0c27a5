"""``ls``, ``cat`` and ``get`` read volumes, skills and models, for people and for scripts."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mock_server
from delta_sharing_client import testing
from delta_sharing_client.cli import main
from tests.integration.test_asset_files import s3_settings
from tests.integration.test_downloads import content
from tests.s3 import s3_bucket

FILES = {
    "a.csv": "id\n1\n",
    "deep/er/b.txt": "Gr\u00fc\u00dfe\n",
    "deep/c#1": b"\x00\x1b[31m\xff",
    "deep/d": "x\x1b[31m\ty\n",
}
SKILL = "---\nname: tidy\ndescription: Tidies.\n---\nDo it.\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with testing.running(
        volumes={"s.1.d.docs": FILES, "s.1.d.same": {"MLmodel": "of the volume"}},
        skills={"s.1.d.tidy": {"SKILL.md": SKILL}},
        models={
            "s.1.d.churn": {1: {"MLmodel": "one"}, 2: {"MLmodel": "two"}},
            "s.1.d.same": {1: {"MLmodel": "of the model"}},
        },
        aliases={"s.1.d.churn": {"champion": 2}, "s.1.d.same": {"first": 1}},
    ) as running:
        yield running


@pytest.fixture
def run(
    server: Any, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run a command; return its exit code and output."""
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(server.profile_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        sys.stdout.flush()
        printed = capfdbinary.readouterr()
        return code, printed.out.decode("utf-8", "surrogateescape"), printed.err.decode()

    return run


def test_ls_lists_directories(run: Callable[..., tuple[int, str, str]]) -> None:
    for where in ("s.1.d.docs", "s.1.d.docs/"):
        code, out, _ = run("ls", where, "--json")
        assert (code, [item["path"] for item in json.loads(out)]) == (0, ["deep/", "a.csv"])
    code, out, _ = run("ls", "s.1.d.docs/deep")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["deep/er/"], ["deep/c#1", "7"], ["deep/d", "9"]]
    assert json.loads(run("ls", "s.1.d.docs/deep/c#1", "--json")[1])[0]["size"] == 7
    code, out, _ = run("ls", "s.1.d.docs", "-R")
    lines = [re.fullmatch(r" +(\d+)  (\d{4}-\d\d-\d\dT\S+Z) +(\S+)", line) for line in sorted(out.splitlines())]
    assert {line.groups()[::2] for line in lines if line} == {
        ("8", "deep/er/b.txt"), ("5", "a.csv"), ("7", "deep/c#1"), ("9", "deep/d")
    }  # fmt: skip
    assert [item["path"] for item in json.loads(run("ls", "s.1.d.churn/", "--version", "1", "--json")[1])] == [
        "MLmodel"
    ]
    assert [item["path"] for item in json.loads(run("ls", "s.1.d.tidy/", "--json")[1])] == ["SKILL.md"]


def test_cat_writes_a_file_unchanged(run: Callable[..., tuple[int, str, str]], server: Any) -> None:
    assert run("cat", "s.1.d.docs/deep/er/b.txt") == (0, FILES["deep/er/b.txt"], "")
    code, out, _ = run("cat", f"{server.profile_path}#s.1.d.docs/deep/c#1")
    assert (code, out.encode("utf-8", "surrogateescape")) == (0, FILES["deep/c#1"])
    assert run("cat", "s.1.d.tidy/SKILL.md")[1] == SKILL
    assert run("cat", "s.1.d.churn/MLmodel", "--alias", "champion")[1] == "two"
    assert run("cat", "s.1.d.churn/MLmodel", "--version", "1")[1] == "one"


def test_version_or_alias_means_the_model_of_a_name(run: Callable[..., tuple[int, str, str]]) -> None:
    path = "s.1.d.same/MLmodel"
    assert run("cat", path)[1] == "of the volume"
    for choice in (("--version", "1"), ("--alias", "first")):
        assert run("cat", path, *choice)[1] == "of the model"
        assert json.loads(run("ls", "s.1.d.same", *choice, "--json")[1])[0]["size"] == len("of the model")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_cat_escapes_control_characters_on_a_terminal(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    assert main(["cat", "s.1.d.docs/deep/d"]) == 0
    assert shown.getvalue() == "x\\x1b[31m  y\n"
    assert main(["cat", "s.1.d.docs/deep/c#1"]) == 2
    assert "\x1b" not in shown.getvalue()


def test_get_downloads_files(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    here = tmp_path / "here"
    code, out, _ = run("get", "s.1.d.docs", str(here), "--dry-run", "--pattern", "*.csv")
    assert (code, out) == (0, f"a.csv\nwould download 1 files, 5 bytes, into {here}; 0 unchanged\n")
    assert not here.exists()
    code, out, _ = run("get", "s.1.d.docs/deep", str(here))
    assert (code, out) == (0, f"downloaded 3 files, 24 bytes, into {here}; 0 unchanged\n")
    code, out, _ = run("get", "s.1.d.docs", str(here), "--json")
    summary = {
        "directory": str(here),
        "downloaded": ["a.csv"],
        "removed": [],
        "unchanged": 3,
        "bytes": 5,
        "dryRun": False,
    }
    assert (code, json.loads(out)) == (0, summary)
    assert content(here)["a.csv"] == b"id\n1\n"
    code, out, _ = run("get", "s.1.d.tidy", str(tmp_path / "skills"))
    assert content(tmp_path / "skills/tidy") == {"SKILL.md": SKILL.encode()}
    run("get", "s.1.d.churn", str(tmp_path / "model"), "--alias", "champion")
    assert content(tmp_path / "model") == {"MLmodel": b"two"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["cat", "s.1.d.docs/none"], 3, "no file or directory 'none' in volume s.1.d.docs"),
        (["cat", "s.1.d.docs"], 2, "Expected the path of a file"),
        (["cat", "s.1.d.churn/MLmodel"], 2, "Its versions: 1, 2."),
        (["cat", "s.1.d.churn/MLmodel", "--version", "1", "--alias", "champion"], 2, "found both"),
        (["cat", "s.1.d.churn/MLmodel", "--alias", "none"], 3, "none"),
        (["cat", "s.1.d.dcs/a.csv"], 3, "Did you mean 's.1.d.docs'?"),
        (["ls", "s.1.d.none"], 3, "s.1.d.none"),
        (["ls", "s.1.d.docs/none"], 3, "'none'"),
        (["get", "s.1.d.docs/../x", "here"], 2, "Expected a path in volume s.1.d.docs"),
        (["cat", "s.1.d.docs/a.csv", "--storage-option", "planted"], 2, "NAME=VALUE"),
        (["cat", "p#s.1.d.docs/a.csv", "--profile", "q"], 2, "Two profiles"),
    ],
)  # fmt: skip
def test_errors_are_reported_in_one_line(
    run: Callable[..., tuple[int, str, str]], arguments: list[str], code: int, message: str
) -> None:
    code_, out, error = run(*arguments)

    assert (code_, out) == (code, "")
    assert message in error
    assert error.count("\n") == 1


def test_store_settings_come_from_options_or_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        s3_bucket("cli") as bucket,
        mock_server.running(volumes={"s.d.v": f"s3://{bucket.name}/v"}, s3=s3_settings(bucket)) as server,
    ):
        bucket.put("v/x", b"stored")
        settings = [
            text for name, value in bucket.storage_options.items() for text in ("--storage-option", f"{name}={value}")
        ]
        monkeypatch.setenv("DELTA_SHARING_PROFILE", str(server.profile_path))

        assert main(["ls", "s.d.v/", *settings, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["path"] == "x"
        monkeypatch.setenv("DELTA_SHARING_STORAGE_OPTIONS", json.dumps(bucket.storage_options))
        assert main(["ls", "s.d.v/"]) == 0


def test_closed_pipe_ends_cat(server: Any, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "DELTA_SHARING_PROFILE": str(server.profile_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "delta_sharing_client.cli", "cat", "s.1.d.docs/deep/er/b.txt"]
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, check=False, timeout=60)
    os.close(writing)

    assert (run.returncode, run.stderr) == (141, b"")
