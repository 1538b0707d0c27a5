"""Downloads, workbooks, the page in the browser and the server for assistants work on this system."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.cli import main

FILES = {"a/größe 1.txt": b"one", "a/b/two.bin": bytes(range(256)) * 5000, "three.csv": b"id\r\n1\r\n"}
TOOL = [sys.executable, "-m", "delta_sharing_client"]


@pytest.fixture(scope="module")
def shared() -> Iterator[testing.Server]:
    with testing.running({"s.d.t": pa.table({"id": [1, 2]})}, volumes={"s.d.docs": FILES}) as server:
        yield server


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if not name.startswith(".delta-sharing")}


def test_volume_is_downloaded_and_updated(shared: testing.Server, tmp_path: Path) -> None:
    volume = ds.SharingClient(shared.profile).volume("s.d.docs")
    for _ in range(2):
        volume.download(tmp_path / "here")
        assert contents(tmp_path / "here") == FILES
    (tmp_path / "here" / "three.csv").unlink()
    volume.download(tmp_path / "here")
    assert contents(tmp_path / "here") == FILES
    assert volume.read_bytes("a/größe 1.txt") == b"one"


def test_download_replaces_a_changed_file(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for text in ("first", "second one"):
        (source / "a.txt").write_text(text)
        with testing.running(volumes={"s.d.docs": source}) as server:
            ds.SharingClient(server.profile).volume("s.d.docs").download(tmp_path / "here")
        assert contents(tmp_path / "here") == {"a.txt": text.encode()}


def link(path: Path, target: Path) -> None:
    """Make a link to a directory; on Windows a junction, which everyone may make."""
    path.parent.mkdir(exist_ok=True)
    if sys.platform == "win32":
        import _winapi

        _winapi.CreateJunction(str(target), str(path))
    else:
        path.symlink_to(target)


def test_links_and_junctions_lead_nothing_elsewhere(shared: testing.Server, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    client = ds.SharingClient(shared.profile)
    link(tmp_path / "here" / "a", elsewhere)
    with pytest.raises(ds.UsageError, match="found a link"):
        client.volume("s.d.docs").download(tmp_path / "here")
    link(tmp_path / "copy" / "data", elsewhere)
    with pytest.raises(ds.UsageError, match="is a link"):
        client.table("s.d.t").replicate(tmp_path / "copy")
    assert list(elsewhere.iterdir()) == []
    link(tmp_path / "source" / "loop", tmp_path / "source")
    with testing.running(volumes={"s.d.docs": tmp_path / "source"}) as server:
        volume = ds.SharingClient(server.profile).volume("s.d.docs")
        with pytest.raises(ds.DataError, match="may be a link to a directory"):
            volume.download(tmp_path / "there")


def test_workbook_is_written_and_replaced(shared: testing.Server, tmp_path: Path) -> None:
    target = tmp_path / "größe.xlsx"
    for _ in range(2):
        assert main(["-p", str(shared.profile_path), "read", "s.d.t", "--to", str(target)]) == 0
        assert "xl/worksheets/sheet1.xml" in zipfile.ZipFile(target).namelist()
    assert [path.name for path in tmp_path.iterdir()] == ["größe.xlsx"]


def test_page_in_the_browser_is_served(shared: testing.Server) -> None:
    words = ["-p", str(shared.profile_path), "--json", "browse", "--no-open"]
    with subprocess.Popen([*TOOL, *words], stdout=subprocess.PIPE) as page:
        assert page.stdout is not None
        try:
            address = json.loads(page.stdout.readline())["address"]
            with urllib.request.urlopen(address, timeout=30) as response:
                assert (response.status, b"<title>" in response.read()) == (200, True)
        finally:
            page.kill()


def test_assistants_server_answers_on_stdout(shared: testing.Server) -> None:
    hello: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    client = {"name": "test", "version": "1"}
    hello["params"] = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    with subprocess.Popen(
        [*TOOL, "-p", str(shared.profile_path), "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            server.stdin.write(json.dumps(hello).encode() + b"\n")
            server.stdin.flush()
            answer = json.loads(server.stdout.readline())
        finally:
            server.kill()
    assert (answer["id"], answer["result"]["serverInfo"]["name"]) == (1, "delta-sharing")
