"""The command line, run as a process, and its error messages."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from typer.testing import CliRunner

import mock_server
from delta_sharing_client.redact import Secret
from mock_server.command import app
from mock_server.faults import FAULTS, parse_fault
from mock_server.running import bind

RUNNER = CliRunner()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    profile = tmp_path / "demo.share"
    command = [sys.executable, "-m", "mock_server", "--demo", "--stats", "--token", "planted-secret"]
    child = subprocess.Popen([*command, "--profile-out", str(profile)], stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not profile.exists():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield child, profile
    finally:
        child.kill()
        child.wait()


def test_demo_writes_a_profile_and_prints_examples(demo: tuple[subprocess.Popen[str], Path]) -> None:
    child, path = demo
    profile = json.loads(path.read_text())
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert profile["bearerToken"] == "planted-secret"
    headers = {"Authorization": "Bearer planted-secret"}
    tables = requests.get(profile["endpoint"] + "shares/demo/all-tables", headers=headers).json()["items"]
    assert {table["name"] for table in tables} == {"orders", "products", "readings", "refunds"}
    child.send_signal(signal.SIGTERM)
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 0
    assert not path.exists()
    assert str(path) in output
    assert "demo.shop.orders" in output
    assert "load_as_pandas" in output
    assert json.loads(output[output.index("{") :])["requests"] == {"all-tables": 1}
    assert "planted-secret" not in output


def test_server_in_its_own_process_can_be_controlled(tables: Path) -> None:
    faults = [parse_fault("503-first")]
    with mock_server.running(tables, process=True, url_ttl=100, faults=faults, token=Secret("planted")) as server:
        headers = {"Authorization": "Bearer planted"}
        answers = [requests.get(server.endpoint + "shares", headers=headers).status_code for _ in range(2)]
        assert answers == [503, 200]
        assert server.stats()["requests"] == {"shares": 2}
        server.set_fault("500-first")
        assert requests.get(server.endpoint + "shares", headers=headers).status_code == 500
        server.clear_faults()
        server.expire_urls()
        server.reset_stats()
        assert server.stats()["total_requests"] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "one of --demo, --tables DIR and --config FILE"),
        (["--demo", "--tables", "x"], "one of --demo"),
        (["--tables", "no-such-folder"], "not a directory"),
        (["--config", "none.yaml"], "cannot be read"),
        (["--demo", "--fault", "nope"], "no fault"),
        (["--demo", "--url-ttl", "0"], "more than 0"),
        (["--demo", "--profile-out", "no/such/folder/p.share"], "not a directory"),
        (["--demo", "--port", "99999"], "from 0 to 65535"),
        (["--demo", "--profile-out", "/"], "'/' is a directory"),
        (["--demo", "--profile-out", "x" * 300], "The profile cannot be written to 'xxx"),
        (["--demo", "--host", "not-an-address.invalid"], "cannot listen"),
    ],
)
def test_invalid_arguments_are_reported_in_one_sentence(arguments: list[str], words: str) -> None:
    result = RUNNER.invoke(app, arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert re.fullmatch(r"(building .*\n)?serve: .*\n", result.output)


def test_port_in_use_is_reported_in_one_sentence(tables: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        result = RUNNER.invoke(app, ["--tables", str(tables), "--port", port])
    assert result.exit_code == 2
    assert "cannot listen on 127.0.0.1 port" in result.output


def test_invalid_port_is_refused_before_tables_are_built() -> None:
    result = RUNNER.invoke(app, ["--demo", "--port", "80000"])
    assert result.exit_code == 2
    assert "The port must be a number from 0 to 65535, not 80000." in result.output
    assert "building" not in result.output


def test_list_faults_option_lists_all_faults() -> None:
    output = RUNNER.invoke(app, ["--list-faults"]).output
    assert [line.split()[0] for line in output.splitlines()] == [kind.name for kind in FAULTS]


@pytest.mark.parametrize(("stream", "sign"), [("stderr", "starlette"), ("stdout", "building")])
def test_ctrl_c_during_the_start_prints_no_traceback(stream: str, sign: str) -> None:
    command = [sys.executable, *(["-X", "importtime"] if stream == "stderr" else []), "-m", "mock_server", "--demo"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child:
        # the process is importing modules or building tables by then
        assert any(sign in line for line in getattr(child, stream))
        child.send_signal(signal.SIGINT)
        output, complaint = child.communicate(timeout=120)
    assert "Traceback" not in output + complaint
    assert child.returncode == 130


def test_ctrl_c_while_building_tables_removes_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(root: Path) -> None:
        assert root.is_relative_to(tmp_path)
        raise KeyboardInterrupt

    monkeypatch.setattr("mock_server.demo.build", interrupted)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = RUNNER.invoke(app, ["--demo"])
    assert (result.exit_code, result.output.splitlines()[-1]) == (130, "serve: interrupted")
    assert list(tmp_path.iterdir()) == []
