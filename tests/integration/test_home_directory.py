"""``~`` at the start of a path is the home directory, wherever a user gives a path."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client import compat, local_paths, testing
from delta_sharing_client.cli import main
from delta_sharing_client.http.network import Network
from mock_server.config import from_yaml
from tests.test_architecture import ROOT

TABLE = "demo.shop.products"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve_demo: Any) -> Path:
    """A home directory with the profile ``demo.share``; the working directory is a different one and stays empty."""
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "demo.share").write_text(json.dumps(serve_demo.profile))
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.chdir(elsewhere)
    return folder


def scan(**options: Any) -> ds.Scan:
    return ds.SharingClient("~/demo.share").table(TABLE).scan(options=ds.ReadOptions(**options))


def follow_once(path: str) -> None:
    for step in ds.SharingClient("~/demo.share").table(TABLE).follow(path, trigger="available-now"):
        step.commit()


# Each function takes a path and creates a file or directory there.
WRITERS: dict[str, Callable[[Any], object]] = {
    "ReadOutputs.to_parquet": lambda path: scan().to_parquet(path),
    "ReadOutputs.to_csv": lambda path: scan().to_csv(path),
    "ReadOutputs.to_ipc": lambda path: scan().to_ipc(path),
    "ReadOutputs.to_excel": lambda path: scan().to_excel(path),
    "ReadOutputs.to_jsonl": lambda path: scan().to_jsonl(path),
    "SharedTable.replicate": lambda path: ds.SharingClient("~/demo.share").table(TABLE).replicate(path),
    "SharedTable.follow": follow_once,
    "FileAsset.download": lambda path: ds.SharingClient("~/demo.share").volume("demo.shop.documents").download(path),
    "FileAsset.download_async": lambda path: asyncio.run(
        ds.SharingClient("~/demo.share").volume("demo.shop.documents").download_async(path)
    ),
    "read --to=": lambda path: main(["-p", "~/demo.share", "read", TABLE, f"--to={path}", "--format=csv"]),
    "sql --to=": lambda path: main(["-p", "~/demo.share", "sql", "SELECT 1", f"--to={path}", "--format=csv"]),
    "replicate command": lambda path: main(["-p", "~/demo.share", "replicate", TABLE, str(path)]),
    "follow --to=": lambda path: main(
        ["-p", "~/demo.share", "follow", TABLE, "--cursor=~/c", f"--to={path}", "--available-now"]
    ),
    "follow --cursor=": lambda path: main(
        ["-p", "~/demo.share", "follow", TABLE, f"--cursor={path}", "--available-now"]
    ),
}


@pytest.mark.parametrize("form", [str, Path])
@pytest.mark.parametrize("call", WRITERS.values(), ids=WRITERS)
def test_files_are_written_to_the_home_directory(home: Path, call: Callable[[Any], object], form: Any) -> None:
    call(form("~/made here"))

    assert (home / "made here").exists()
    assert os.listdir(".") == []


READERS: dict[str, Callable[[], object]] = {
    "a profile": lambda: ds.SharingClient("~/demo.share").list_shares(),
    "a profile as a Path": lambda: ds.SharingClient(Path("~/demo.share")).list_shares(),
    "a table's URL": lambda: ds.load_as_arrow(f"~/demo.share#{TABLE}"),
    "compat": lambda: compat.load_as_pandas(f"~/demo.share#{TABLE}"),
    "compat, a profile": lambda: compat.DeltaSharingProfile.read_from_file("~/demo.share"),
    "the command line": lambda: main(["--profile=~/demo.share", "ls"]) and pytest.fail("it failed"),
}


@pytest.mark.parametrize("call", READERS.values(), ids=READERS)
def test_profiles_are_read_from_the_home_directory(home: Path, call: Callable[[], object]) -> None:
    call()


def test_profile_path_of_the_environment_is_expanded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "~/demo.share")

    assert list(ds.SharingClient()) == ["demo"]


@pytest.mark.parametrize("form", [str, Path])
def test_certificates_are_read_from_the_home_directory(home: Path, monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    for name in ("ca.pem", "own.pem", "key.pem"):
        (home / name).touch()
    ca, own, key = (form(f"~/{name}") for name in ("ca.pem", "own.pem", "key.pem"))
    certificates = str(home / "ca.pem"), (str(home / "own.pem"), str(home / "key.pem"))

    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    given = Network.of(ds.ReadOptions(ca_bundle=ca, client_certificate=(own, key)))
    assert (given.trusted, given.certificate) == certificates
    assert Network.of(ds.ReadOptions(client_certificate=own)).certificate == certificates[1][:1]
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, "~/ca.pem")
            patch.setenv("DELTA_SHARING_CLIENT_CERTIFICATE", "~/own.pem")
            given = Network.of(ds.ReadOptions())
            assert (given.trusted, given.certificate) == (certificates[0], certificates[1][:1])


def test_server_serves_tables_from_the_home_directory(home: Path, tmp_path: Path) -> None:
    copy = scan().to_arrow().num_rows
    ds.SharingClient("~/demo.share").table(TABLE).replicate(home / "tables" / "products")
    (tmp_path / "server.yaml").write_text(
        "version: 1\nshares: [{name: s, schemas: [{name: d, tables: [{name: t, location: '~/tables/products'}]}]}]\n"
        "ssl: {certificateFile: ~/own.pem, certificateKeyFile: ~/key.pem}\n"
    )
    (home / "server.yaml").write_bytes((tmp_path / "server.yaml").read_bytes())

    for path in (tmp_path / "server.yaml", "~/server.yaml"):
        config = from_yaml(path)
        assert [table.location for table in config.catalog.tables] == [(home / "tables" / "products").resolve()]
        assert config.tls is not None
        assert (config.tls.certificate, config.tls.key) == (home / "own.pem", home / "key.pem")
    for tables in ("~/tables", {"default.default.products": "~/tables/products"}):
        with testing.running(tables) as server:
            assert ds.load_as_arrow(f"{server.profile_path}#default.default.products").num_rows == copy


def test_server_writes_its_profile_to_the_home_directory(home: Path) -> None:
    ds.SharingClient("~/demo.share").table(TABLE).replicate(home / "tables" / "products")
    command = [sys.executable, "-m", "mock_server", "--tables=~/tables", "--profile-out=~/new.share"]
    with subprocess.Popen([*command], stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        lines = [server.stdout.readline() for _ in range(3)]
        assert lines[2] == f"profile: {(home / 'new.share').resolve()}\n"
        assert list(ds.SharingClient(home / "new.share")) == ["default"]
        server.terminate()


@pytest.mark.parametrize("path", [None, 5, b"a.csv", ["a.csv"]], ids=repr)
def test_values_of_the_wrong_type_are_refused_as_paths(home: Path, path: Any) -> None:
    message = f"Expected a path as a string or a pathlib.Path, found {type(path).__name__}."
    calls: list[Callable[[], object]] = [
        lambda: scan().to_csv(path),
        lambda: ds.SharingClient("~/demo.share").table(TABLE).replicate(path),
        lambda: ds.SharingClient("~/demo.share").table(TABLE).follow(path),
        *([lambda: ds.ReadOptions(ca_bundle=path)] if path is not None else []),
    ]
    for call in calls:
        with pytest.raises(ds.UsageError, match=re.escape(message)):
            call()
    with pytest.raises(ds.UsageError, match="must be one file, or a certificate and its key, found 3 files"):
        ds.ReadOptions(client_certificate=("a", "b", "c"))  # type: ignore[arg-type]


def test_every_path_of_the_public_api_is_tested_here() -> None:
    tried = {name for name in WRITERS if "." in name} | {"ReadOptions.__init__"}
    with_paths = set()
    for name in ds.__all__:
        thing = getattr(ds, name)
        members = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else [("", thing)]
        for member, function in members:
            if (member.startswith("_") and member != "__init__") or not callable(function):
                continue
            kinds = " ".join(map(str, getattr(function, "__annotations__", {}).values()))
            if "PathLike" in kinds or "LocalPath" in kinds:
                with_paths.add(function.__qualname__)

    # tests/spark/test_jar.py tests the paths of Spark, tests/unit/protocol/test_activation.py and
    # tests/unit/assets/test_model.py those that need a provider's link or MLflow.
    elsewhere = {"write_spark_jar", "add_spark_jar", "activate", "ModelVersion.load_model"}
    assert with_paths == tried | elsewhere


def test_only_local_paths_expands_the_home_directory() -> None:
    sources = [path for folder in ("delta_sharing_client", "mock_server") for path in (ROOT / folder).rglob("*.py")]

    assert [path for path in sources if "expanduser" in path.read_text()] == [Path(local_paths.__file__)]
