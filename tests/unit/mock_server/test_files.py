"""Data URLs: which files they give access to and for how long, and responses with whole files and ranges."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
import requests
from msgspec.structs import replace

import delta_sharing_client as ds
from delta_sharing_client import testing
from mock_server import files
from mock_server.table_writer import TableWriter
from tests.unit.mock_server.helpers import Api, Protocol, at, rows, table


@pytest.fixture
def url(api: Api) -> str:
    return api.query("plain").urls[0]


@pytest.fixture
def content(url: str, tables: Path) -> bytes:
    return (tables / "plain" / "/".join(urlsplit(url).path.split("/")[3:])).read_bytes()


def test_url_gives_access_only_to_its_file(api: Api) -> None:
    first, second = api.query("plain").urls
    mixed = second.split("?")[0] + "?" + first.split("?")[1]
    response = api.fetch(mixed)
    assert response.status_code == 403
    assert b"<Code>SignatureDoesNotMatch</Code>" in response.content
    assert api.fetch(first.split("?")[0]).status_code == 403


def test_expiration_of_a_url_cannot_be_changed(api: Api, url: str) -> None:
    for name in ("X-Amz-Expires=3", "X-Amz-Security-Token="):
        assert api.fetch(url.replace(name, name + "9")).status_code == 403


def test_expired_urls_are_refused(start: Callable[..., Api]) -> None:
    own = start(faults=["expire-urls-now:1"])
    response = own.fetch(own.query("plain").urls[0])
    assert response.status_code == 403
    assert b"Request has expired" in response.content
    fresh = own.query("plain").urls[0]
    assert own.fetch(fresh).status_code == 200
    own.server.expire_urls()
    assert own.fetch(fresh).status_code == 403
    assert own.fetch(own.query("plain").urls[0]).status_code == 200


def test_file_outside_the_table_is_served_if_the_log_names_it(start: Callable[..., Api], tmp_path: Path) -> None:
    source = TableWriter(tmp_path / "source")
    add = source.add(rows(1, 2), time=at(0))
    clone = TableWriter(tmp_path / "clones" / "t")
    add = replace(add, path=f"file:{tmp_path}/source/{add.path}")
    clone.commit([Protocol(1, 2), table("t"), add], "CLONE", at(0))
    own = start(tmp_path / "clones")
    (url,) = own.query("t").urls
    assert urlsplit(url).path.startswith("/absolute/")
    assert len(own.fetch(url).content) == add.size


def test_connection_serves_many_requests(api: Api, url: str, content: bytes) -> None:
    with requests.Session() as session:
        for start in range(50):
            response = session.get(url, headers={"Range": f"bytes={start}-{start + 9}"})
            assert response.content == content[start : start + 10]
        pools = session.get_adapter(url).poolmanager.pools  # type: ignore[attr-defined]
        (pool,) = (pools[key] for key in pools.keys())  # noqa: SIM118
        assert pool.num_connections == 1


def test_server_keeps_serving_after_a_client_disconnects(start: Callable[..., Api], tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "t")
    add = writer.add(rows(1), time=at(0))
    path = tmp_path / "t" / add.path
    path.write_bytes(bytes(64 << 20))
    add = replace(add, size=path.stat().st_size)
    writer.commit([Protocol(1, 2), table("t"), add], "WRITE", at(0))
    own = start(tmp_path)
    (url,) = own.query("t").urls
    for _ in range(5):
        with requests.get(url, stream=True) as response:
            assert len(response.raw.read(1000)) == 1000
    assert len(own.fetch(url).content) == add.size
    assert own.server.stats()["most_concurrent"] >= 1


class _Windows:
    """The module ``os`` without the functions that Windows lacks."""

    def __getattr__(self, name: str) -> Any:
        if name in ("O_CLOEXEC", "pread", "sendfile"):
            raise AttributeError(name)
        return getattr(os, name)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("bandwidth", [None, 1_000_000])
def test_files_are_served_without_functions_of_posix(
    tls: bool, bandwidth: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("connection", "delivery", "files"):
        monkeypatch.setattr(importlib.import_module(f"mock_server.{name}"), "os", _Windows(), raising=False)
    options = {} if bandwidth is None else {"bandwidth": bandwidth}
    with testing.running({"s.d.t": pa.table({"id": range(10_000)})}, tls=tls, **options) as server:
        trusted = {"ca_bundle": str(server.profile_path.with_suffix(".pem"))} if tls else {}
        client = ds.SharingClient(server.profile, ds.ReadOptions(**trusted))
        assert client.table("s.d.t").to_arrow()["id"].to_pylist() == list(range(10_000))


def test_absolute_path_of_windows_keeps_its_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "Path", PureWindowsPath)
    server = files.FileServer(lambda: None, None, None)  # type: ignore[arg-type, return-value]
    assert server._locate(b"/absolute/t/C:/data/a%20b") == PureWindowsPath(r"C:\data\a b")
    monkeypatch.undo()
    assert server._locate(b"/absolute/t/data/a%20b") == Path("/data/a b")
