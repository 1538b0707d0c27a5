"""Volumes whose server gives URLs of files are read like other volumes, and URLs that are not allowed are refused."""

from __future__ import annotations

import json
import pathlib
import pickle
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

import delta_sharing_client as ds
from delta_sharing_client.fetch.place import DataRequest, Refused, Span, Version
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.protocol.asset_kinds import VOLUME, AssetRef
from delta_sharing_client.protocol.messages import VolumeFileItem
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.storage import server_urls
from delta_sharing_client.storage.server_urls import ServerUrls
from tests.http_server import Exchange, HttpServer
from tests.integration.test_downloads import content
from tests.places import Sent, get, pages

FILES = {"a/report.csv": b"id\n1\n2\n", "b.txt": b"text", "empty": b"", "large.bin": bytes(range(256)) * 1000}
BASE = "/api/shares/s/schemas/d/volumes/v"


class Server(HttpServer):
    """A sharing server that lists two files per page, and the storage that its URLs point to."""

    def __init__(self) -> None:
        super().__init__(self._serve)
        self.asked: list[str] = []
        self.has_files = True
        self.signature = 0
        self.ignores_ranges = False
        self.items: list[Any] | None = None
        self.target: str | None = None

    def _serve(self, exchange: Exchange) -> None:
        path, _, query = exchange.path.partition("?")
        if path.startswith("/data/"):
            self._data(exchange, path.removeprefix("/data/"), query)
            return
        answer: dict[str, Any] | None = None
        if path == BASE:
            answer = {"name": "v", "schema": "d", "share": "s", "storageLocation": "s3://bucket/volumes/"}
        elif path == f"{BASE}/files" and self.has_files:
            start = int(query.partition("=")[2] or 0)
            items = self.items or [{"file_path": name, "size": len(data)} for name, data in FILES.items()]
            answer = {"items": items[start : start + 2]}
            if start + 2 < len(items):
                answer["nextPageToken"] = str(start + 2)
        elif path == f"{BASE}/files/download" and self.has_files:
            name = json.loads(exchange.content)["file_path"]
            if name in FILES:
                url = f"{self.url}/data/{name}?X-Amz-Signature=planted{self.signature}"
                answer = {"download_url": self.target or url}
            else:
                answer = {"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "No such file."}
        status = 200
        if answer is None or "errorCode" in answer:
            status, answer = 404, answer or {"errorCode": "NOT_FOUND", "message": "No such endpoint."}
        exchange.reply(status, json.dumps(answer).encode())

    def _data(self, exchange: Exchange, name: str, query: str) -> None:
        self.asked.append(name)
        if query != f"X-Amz-Signature=planted{self.signature}":
            exchange.reply(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        data, headers = FILES[name], {"ETag": f'"{len(FILES[name])}"', "Last-Modified": "Wed, 21 Oct 2026 07:28:00 GMT"}
        range_header = exchange.headers.get("Range")
        if range_header is None or self.ignores_ranges:
            exchange.reply(200, data, headers)
            return
        first, _, last = range_header.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last) + 1, len(data))
        if start >= len(data):
            exchange.reply(416, b"", headers)
            return
        exchange.reply(206, data[start:stop], {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server_:
        yield server_


@pytest.fixture
def volume(server: Server) -> Iterator[ds.Volume]:
    profile = {"shareCredentialsVersion": 1, "endpoint": f"{server.url}/api", "bearerToken": "planted"}
    options = ds.ReadOptions(max_attempts=2, max_retry_seconds=1, progress=False)
    with ds.SharingClient(profile, options=options) as client:
        yield client.volume("s.d.v")


def test_files_behind_urls_are_listed_and_read(volume: ds.Volume, server: Server, tmp_path: pathlib.Path) -> None:
    assert {file.path: file.size for file in volume.files()} == {path: len(data) for path, data in FILES.items()}
    assert [file.path for file in volume.files(recursive=False)] == ["b.txt", "empty", "large.bin"]
    assert {path: volume.read_bytes(path) for path in FILES} == FILES
    with volume.open("large.bin") as stream:
        stream.seek(-10, 2)
        assert stream.read() == FILES["large.bin"][-10:]
    assert volume.filesystem().cat_file("b.txt", 1, 3) == b"ex"
    assert volume.stat("b.txt").modified.year == 2026  # type: ignore[union-attr]
    assert (volume.stat("empty").size, volume.filesystem().isdir("a")) == (0, True)
    assert isinstance(volume._directory.place, ServerUrls)
    with pytest.raises(ds.UnsupportedFeatureError, match="by URL, so they have no store"):
        volume.store()
    with pytest.raises(ds.NotFoundError):
        volume.read_bytes("none")


def test_unchanged_files_are_not_downloaded_again(volume: ds.Volume, server: Server, tmp_path: pathlib.Path) -> None:
    volume.download(tmp_path / "here")
    assert content(tmp_path / "here") == FILES
    server.asked.clear()
    assert volume.download(tmp_path / "here").downloaded == ()
    # Only the ETag of each file was requested.
    assert set(server.asked) == set(FILES)


def test_expired_url_is_renewed(volume: ds.Volume, server: Server) -> None:
    assert volume.read_bytes("b.txt") == b"text"
    server.signature += 1

    assert volume.read_bytes("b.txt") == b"text"


def test_storage_without_ranges_is_read(volume: ds.Volume, server: Server) -> None:
    server.ignores_ranges = True
    with volume.open("large.bin") as stream:
        stream.seek(1000)
        assert stream.read(500) == FILES["large.bin"][1000:1500]
    assert volume.stat("large.bin").size == len(FILES["large.bin"])


def test_url_with_a_forbidden_scheme_is_refused(volume: ds.Volume, server: Server) -> None:
    server.target = "file:///etc/passwd?planted"
    with pytest.raises(ds.ProtocolError, match="scheme 'file'") as caught:
        volume.read_bytes("b.txt")
    assert "planted" not in f"{caught.value}"


def test_server_without_credentials_and_urls_is_an_error(volume: ds.Volume, server: Server) -> None:
    server.has_files = False
    with pytest.raises(ds.RequestError, match=r"storage credentials of volume s\.d\.v"):
        list(volume.files())


@pytest.mark.parametrize("items", [[{"file_path": "a"}], [{"size": 1}], [{"file_path": "a", "size": "x"}]])
def test_malformed_listing_of_files_is_an_error(volume: ds.Volume, server: Server, items: list[Any]) -> None:
    volume.read_bytes("b.txt")
    server.items = items
    with pytest.raises(ds.ProtocolError):
        list(volume.files())


def test_names_with_parent_directories_are_not_downloaded(
    volume: ds.Volume, server: Server, tmp_path: pathlib.Path
) -> None:
    server.items = [{"file_path": "../../evil", "size": 4}]

    with pytest.raises(ds.UsageError, match="leads out of the directory"):
        volume.download(tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_pickled_directory_contains_no_urls(volume: ds.Volume) -> None:
    volume.read_bytes("b.txt")
    data = pickle.dumps(volume)

    assert b"X-Amz-Signature" not in data
    assert pickle.loads(data).read_bytes("b.txt") == b"text"


# --- with replaced clients instead of a server ---


class Signing:
    """Replaces the clients of the sharing server and the storage. It returns ``answers`` in order."""

    allowed_data = Allowed()

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.signed = 0
        self.requests: list[DataRequest] = []
        self.pages: list[list[VolumeFileItem]] = []

    def volume_file_url(self, volume: object, path: str) -> str:
        self.signed += 1
        return f"https://h/{path}?{self.signed}"

    def volume_files_page(self, volume: object, token: str | None) -> tuple[list[VolumeFileItem], str | None]:
        number = int(token or 0)
        following = str(number + 1) if number + 1 < len(self.pages) else None
        return self.pages[number], following

    async def get(self, request: DataRequest, take: Callable[[Any], Awaitable[None]]) -> None:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        await take(answer)

    def place(self) -> ServerUrls:
        place = ServerUrls(cast("Any", self), AssetRef(VOLUME, AssetName("s", "d", "v")), "s3://b/v/", ds.ReadOptions())
        place._http = cast("Any", self)
        return place


def sent() -> Sent:
    return Sent(Span(0, 1, 1), b"a", Version('"1"', "", 1))


def test_url_is_reused_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(server_urls.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(server_urls, "_MOST_URLS", 3)
    signing = Signing([])
    place = signing.place()

    def signed(path: str) -> int:
        before = signing.signed
        signing.answers = [sent()]
        get(place, path)
        return signing.signed - before

    assert [signed("a"), signed("a"), signed("b"), signed("c")] == [1, 0, 1, 1]
    now[0] += 59.9
    assert [signed("a"), signed("b")] == [0, 0]
    now[0] += 0.1
    assert [signed("a"), signed("a")] == [1, 0]
    # No more than three URLs are kept.
    assert [signed(name) for name in "dabaeaa"] == [1, 0, 1, 0, 1, 1, 0]


def test_refused_url_is_renewed_once() -> None:
    for status, tries in ((403, 2), (400, 2), (401, 2), (410, 2), (404, 1), (416, 1), (500, 1)):
        signing = Signing([Refused(status, None), Refused(status, None)])
        with pytest.raises(Refused):
            get(signing.place(), "f")
        assert signing.signed == len(signing.requests) == tries


def test_directories_are_derived_from_listed_files() -> None:
    signing = Signing([])
    assert signing.place().location == "s3://b/v/"
    names = [["a/b/c", "a/b/d", "x"], ["a/e", "ab", "a/b/f", "a/g/h"]]
    signing.pages = [[VolumeFileItem(name, len(name)) for name in page] for page in names]

    def listed(**how: Any) -> list[tuple[list[str], list[str]]]:
        return [([file.path for file in page.files], page.folders) for page in pages(signing.place(), **how)]

    assert listed() == [(page, []) for page in names]
    assert listed(folder="a") == [(["a/b/c", "a/b/d"], []), (["a/e", "a/b/f", "a/g/h"], [])]
    assert listed(recursive=False) == [(["x"], ["a"]), (["ab"], [])]
    assert listed(folder="a", recursive=False) == [([], ["a/b"]), (["a/e"], ["a/g"])]
    assert listed(folder="a/b", recursive=False) == [(["a/b/c", "a/b/d"], []), (["a/b/f"], [])]
    # Pages without files of the folder are no sign of a listing that never ends.
    signing.pages = [[VolumeFileItem(f"a/{number}", 1)] for number in range(1500)]
    assert listed(folder="b") == [([], [])] * 1500
