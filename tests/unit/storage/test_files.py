"""Files of tables and directories, read from scripted stores: requests, retries and returned bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    AddFile,
    CommitInfo,
    DeletionVectorDescriptor,
    Metadata,
    Protocol,
    RemoveFile,
    SharedFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.log_files import LogEntry
from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    ProtocolError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.fetch.source import DataRequest, Refused, Span, Version
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.plan.read_request import ChangesRequest
from delta_sharing_client.protocol.asset_kinds import TABLE, VOLUME, AssetRef
from delta_sharing_client.protocol.messages import TemporaryCredentials
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import BearerToken, Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret
from delta_sharing_client.retry import Deadline, Transient
from delta_sharing_client.storage import directory_read as module
from delta_sharing_client.storage import place as places
from delta_sharing_client.storage.directory_read import TableFiles
from delta_sharing_client.storage.place import LocalPlace, Page, StoredBody, StoredFile, open_place
from delta_sharing_client.storage.reading import Reading

NAME = AssetName.parse("s.d.t")
DATA = bytes(range(100))
V1, V2 = Version('"1"', "", 100), Version('"2"', "", 100)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_sharing_client.retry.time.sleep", lambda seconds: None)


class Server(RestClient):
    """Replaces the client of a local sharing server. It returns a location for each asset and records the requests."""

    def __init__(self, location: str) -> None:
        super().__init__(Profile("http://127.0.0.1:1/p", BearerToken(Secret("planted")), 1))
        self.location = location
        self.asked: list[tuple[AssetRef, str | None]] = []

    def credentials(self, asset: AssetRef, location: str | None = None) -> TemporaryCredentials:
        self.asked.append((asset, location))
        return TemporaryCredentials(location=location or self.location)


OPTIONS = ReadOptions(max_attempts=3)


def body(
    start: int = 0,
    stop: int = 100,
    total: int | None = 100,
    *,
    version: Version = V1,
    broken: bool = False,
    piece: int = 30,
    sent: bytes | None = None,
    closes: Callable[[], None] = lambda: None,
) -> StoredBody:
    data = DATA[start:stop] if sent is None else sent

    def chunks() -> Iterator[bytes]:
        yield from (data[at : at + piece] for at in range(0, len(data), piece))
        if broken:
            raise Transient(TransportError("broken"))

    return StoredBody(Span(start, stop, total), version, None, chunks(), closes)


class Store:
    """A directory with scripted responses."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.asked: list[tuple[str, Any, Version | None]] = []
        self.location = "file:///there"

    def get(self, path: str, wanted: Any = None, version: Version | None = None) -> StoredBody:
        self.asked.append((path, wanted, version))
        return cast("StoredBody", self._next())

    def pages(self, folder: str = "", *, recursive: bool = True) -> Any:
        self.asked.append((folder, recursive, None))
        return iter(self._next())

    def _next(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


# --- reading ---


def reading(store: Store, **how: Any) -> Reading:
    return Reading(cast("Any", store), "p", OPTIONS, **how)


def read(store: Store, **how: Any) -> bytes:
    return b"".join(map(bytes, reading(store, **how)))


def test_requested_range_is_read() -> None:
    far = 1 << 62
    for how, requested, sent in (
        ({}, None, (0, 100)),
        ({"size": 100}, None, (0, 100)),
        ({"size": 100, "stop": 100}, None, (0, 100)),
        ({"start": 10}, ByteRange(10, far), (10, 100)),
        ({"start": 10, "size": 100}, ByteRange(10, 100), (10, 100)),
        ({"stop": 40}, ByteRange(0, 40), (0, 40)),
        ({"start": 10, "stop": 40}, ByteRange(10, 40), (10, 40)),
        ({"stop": 400}, ByteRange(0, 400), (0, 100)),
    ):
        start, stop = how.get("start", 0), min(how.get("stop", 100), 100)
        for answer in (body(*sent), body()):  # a store may ignore the range
            for piece in (1, 30, 1000):
                answer = body(answer.span.start, cast("int", answer.span.stop), piece=piece)
                store = Store(answer)
                result = reading(store, **how)
                assert b"".join(map(bytes, result)) == DATA[start:stop]
                assert store.asked == [("p", requested, None)]
                assert (result.at, result.stop, result.size, result.version) == (stop, stop, 100, V1)
    assert read(Store(), start=5, stop=5, version=V1) == b""
    # Without a known version, one is requested even if there is nothing to read.
    result = reading(Store(body(5, 5)), start=5, stop=5)
    assert list(result) == []
    assert result.version == V1


def test_interrupted_transfer_resumes() -> None:
    closed: list[bool] = []
    store = Store(
        body(0, 40, broken=True, closes=lambda: closed.append(True)),
        Refused(503, "0"),
        body(40, 60),
        body(60),
    )
    assert read(store) == DATA
    assert store.asked == [("p", None, None), *(("p", ByteRange(at, 100), V1) for at in (40, 40, 60))]
    assert closed == [True]
    with pytest.raises(TransportError, match=r"away.*Tried 3 times"):
        read(Store(*[Transient(TransportError("away"))] * 3))
    with pytest.raises(TransportError, match="The store responded with HTTP status 503"):
        read(Store(*[Refused(503, None)] * 3))
    with pytest.raises(TransportError, match="asks to wait 9999 s"):
        read(Store(Refused(503, "9999")))
    with pytest.raises(TransportError, match="response for the file 'p' ended early"):
        read(Store(*[body(0, 40, sent=b"")] * 3))
    # Only attempts without progress count as failed.
    assert read(Store(*(body(at, at + 10, broken=True) for at in range(0, 100, 10)), body(100, 100))) == DATA
    for status in (404, 403, 412):
        with pytest.raises(Refused) as refused:
            read(Store(Refused(status, None)))
        assert refused.value.status == status
    slept: list[float] = []
    read(Store(Refused(503, None), body()), sleep=slept.append)
    assert len(slept) == 1
    with pytest.raises(TransportError, match="Reading p failed: it took longer"):
        read(Store(), deadline=Deadline(0))


def test_response_that_does_not_match_the_request_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        read(Store(body()), version=V2)
    assert refused.value.status == 412
    with pytest.raises(Refused):
        read(Store(body(0, 40, broken=True), body(40, version=V2)))
    with pytest.raises(DataError, match="Expected 99 bytes in the file 'p', but the store has 100"):
        read(Store(body()), size=99)
    with pytest.raises(
        DataError, match="Expected the bytes of the file 'p' from 3 on, but the store sent bytes from 4"
    ):
        read(Store(body(4)), start=3)
    with pytest.raises(DataError, match="does not state the length of the file 'p'"):
        read(Store(body(0, 100, None)))
    assert read(Store(body(0, 100, None)), size=100) == DATA


# --- files of a table ---


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    return TableFiles(Server(f"file://{tmp_path}/t"), NAME, OPTIONS)


def stored(files: TableFiles, *answers: Any) -> Store:
    store = Store(*answers)
    files._places[files.location] = cast("Any", store)
    return store


def test_log_file_is_read_completely_or_an_error_is_raised(files: TableFiles, tmp_path: Path) -> None:
    address = f"{files.location}/a%20b"
    assert address == f"file://{tmp_path}/t/a%20b"
    closed: list[bool] = []
    store = stored(files, body(closes=lambda: closed.append(True)), body(0, 0, 0))
    assert [files.read(address), files.read(address)] == [DATA, b""]
    assert store.asked == [("a b", None, None)] * 2
    assert closed == [True]
    stored(files, body(sent=DATA[:99]), Transient(TransportError("x")), body())
    assert files.read(address) == DATA
    for answers, kind, words in (
        ([body(sent=DATA[:99])] * 3, TransportError, "A response of the table's storage ended early"),
        ([Refused(403, None)], TransportError, r"refused to return a file of the log \(HTTP status 403\)"),
        ([Refused(404, None)], FileNotFoundError, "it does not exist"),
    ):
        stored(files, *answers)
        with pytest.raises(kind, match=words) as caught:
            files.read(address)
        assert getattr(caught.value, "table", "s.d.t") == "s.d.t"


def test_log_is_listed_or_reported_missing(files: TableFiles) -> None:
    moment = datetime(2026, 1, 1, 0, 0, 0, 1600, tzinfo=timezone.utc)
    pages = [Page([StoredFile("_delta_log/0.json", 3, moment)], ["x"]), Page([StoredFile("_delta_log/1.json", 4)], [])]
    store = stored(files, Transient(TransportError("x")), pages)
    assert files.list_log() == [LogEntry("0.json", 3, round(moment.timestamp() * 1000)), LogEntry("1.json", 4, 0)]
    assert store.asked == [("_delta_log", False, None)] * 2
    for answer in (Refused(404, None), [Page([], ["x"])]):
        stored(files, answer)
        with pytest.raises(FileNotFoundError):
            files.list_log()
    for refused in (Refused(403, None), Refused(404, None, "NoSuchBucket")):
        stored(files, refused)
        with pytest.raises(TransportError, match="refused to list the log") as caught:
            files.list_log()
        assert caught.value.table == "s.d.t"


def test_data_file_is_read_from_the_store_by_range(files: TableFiles) -> None:
    closed: list[bool] = []
    received: list[Any] = []

    async def take(sent: Any) -> None:
        received.append((sent.span, sent.version))
        while data := await sent.read():
            received.append(bytes(data))

    async def fail(sent: Any) -> None:
        raise ZeroDivisionError

    def asked(deadline: float | None, taken: Any) -> None:
        request = DataRequest(f"{files.location}/a%2520", ByteRange(3, 9), Deadline(deadline), V1)
        asyncio.run(files.get(request, taken))

    store = stored(files, *(body(3, 9, closes=lambda: closed.append(True)) for _ in range(2)))
    asked(None, take)
    assert received == [(Span(3, 9, 100), V1), DATA[3:9]]
    assert store.asked == [("a%20", ByteRange(3, 9), V1)]
    with pytest.raises(ZeroDivisionError):
        asked(None, fail)
    assert closed == [True, True]
    with pytest.raises(TransportError, match=r"Reading the files of s\.d\.t failed") as caught:
        asked(0, take)
    assert caught.value.table == "s.d.t"


def test_file_gets_its_location_version_and_timestamp(files: TableFiles) -> None:
    top = files.location
    add = AddFile(path="a%20b", partition_values={}, size=1, modification_time=1, data_change=True)
    result = files.placed(add)
    assert (result.action.path, result.file_id, result.version, result.timestamp) == (f"{top}/a%20b", "a b", None, None)
    commit = Commit(version=7, timestamp_ms=8)
    result = files.placed(add, commit)
    assert (result.action.path, result.version, result.timestamp) == (f"{top}/a%20b", 7, 8)
    with pytest.raises(DataError, match="Expected a size") as caught:
        files.placed(AddFile(path="a", partition_values={}, size=-1, modification_time=1, data_change=True))
    assert (caught.value.table, caught.value.file_id) == ("s.d.t", "a")
    assert files.placed(RemoveFile(path="a", data_change=True)).action.path == f"{top}/a"
    assert files.placed(replace(add, size=0)).action.size == 0

    def vector(kind: Any, path: str) -> Any:
        one = DeletionVectorDescriptor(kind, path, 36, 2, 4)
        action = AddFile(
            path="a", partition_values={}, size=1, modification_time=1, data_change=True, deletion_vector=one
        )
        placed: Any = files.placed(action).action.deletion_vector
        assert (placed.size_in_bytes, placed.cardinality, placed.offset) == (36, 2, 4)
        return placed.storage_type, placed.path_or_inline_dv

    assert vector("i", "abc") == ("i", "abc")
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector("u", "ab^-aqEH.-t@S}K{vb[*k^") == ("p", f"{top}/{name}")
    for path in (f"{top}/dv", top.removeprefix("file://") + "/dv", top.replace("file://", "file:") + "/dv"):
        assert vector("p", path) == ("p", f"{top}/dv")


def test_paths_stay_inside_the_allowed_location(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("", "a/../b", "..", "%2e%2e/x", "a%00b", "\0"):
        with pytest.raises(DataError, match="must stay inside the table") as caught:
            files._address(wrong)
        assert caught.value.table == "s.d.t"
    assert files._address("a/..b") == f"{files.location}/a/..b"
    aside = files.location + "2"
    monkeypatch.setattr(TableFiles, "_auxiliary", (aside,))
    with pytest.raises(UnsupportedFeatureError, match="outside the table's location") as refused:
        files._address(f"{files.location}3/x/y.parquet")
    assert (refused.value.table, refused.value.file_id) == ("s.d.t", "y.parquet")
    server = cast("Server", files._rest)
    assert server.asked == [(AssetRef(TABLE, NAME), None)]
    for _ in range(2):
        assert files._address(f"{aside}/x") == f"{aside}/x"
    assert server.asked[1:] == [(AssetRef(TABLE, NAME), aside)]
    assert files._find(f"{aside}/x%20y")[1] == "x y"
    # Credentials for a location other than the requested one are ignored.
    monkeypatch.setattr(TableFiles, "_auxiliary", (files.location + "4",))
    monkeypatch.setattr(Server, "credentials", lambda *_: TemporaryCredentials(location=aside))
    with pytest.raises(UnsupportedFeatureError):
        files._address(f"{files.location}4/x")


def test_log_files_are_prefetched(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AHEAD", 2)
    begun: list[str] = []
    direct: list[str] = []

    class Pool:
        def submit(self, call: Callable[[str], bytes], path: str) -> Future[bytes]:
            begun.append(path)
            future: Future[bytes] = Future()
            future.set_result(f"ahead {path}".encode())
            return future

    log = module._Log(files, cast("Any", Pool()))
    monkeypatch.setattr(files, "read", lambda address: (direct.append(address), b"now")[1])
    log.expect(["a", "b", "c", "d"])
    assert begun == ["a", "b"]
    assert log.open("a").read() == b"ahead a"
    assert begun == ["a", "b", "c"]
    # Files that were not announced, or whose prefetched bytes were already taken, are read now.
    assert log.open("x").read() == b"now"
    assert log.open("a").read() == b"now"
    assert begun == ["a", "b", "c"]
    log.expect(["b", "e", "f"])
    assert [log.open(path).read() for path in "bc"] == [b"ahead b", b"ahead c"]
    assert begun == ["a", "b", "c", "e", "f"]
    assert direct == [f"{files.location}/_delta_log/{path}" for path in "xa"]
    log.open(f"{files.location}/aside")
    assert direct[2:] == [f"{files.location}/aside"]


# --- local directories ---


def test_local_directory_is_listed(tmp_path: Path) -> None:
    for name in ("b", "a/x", "a/c/y", "d/z"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12")
    here = LocalPlace(tmp_path)

    def listed(**how: Any) -> list[tuple[list[str], list[str]]]:
        return [([file.path for file in page.files], page.folders) for page in here.pages(**how)]

    assert listed() == [(["b"], []), (["a/x"], []), (["a/c/y"], []), (["d/z"], [])]
    assert listed(recursive=False) == [(["b"], ["a", "d"])]
    assert listed(folder="a", recursive=False) == [(["a/x"], ["a/c"])]
    (result,) = next(iter(here.pages())).files
    facts = os.stat(tmp_path / "b")
    assert result == here.head("b")
    assert (result.size, result.etag) == (2, f'"{facts.st_mtime_ns}-2"')
    assert result.modified == datetime.fromtimestamp(facts.st_mtime, timezone.utc)
    assert here.location == f"file://{tmp_path}"
    for folder in ("none", "b"):
        with pytest.raises(Refused) as refused:
            listed(folder=folder)
        assert refused.value.status == 404
    for name in ("none", "a", "b/x", "a\0", "\udcff" * 3000):
        for call in (here.head, here.get):
            with pytest.raises(Refused) as refused:
                call(name)
            assert refused.value.status in ((404,) if len(name) < 99 else (403, 404))
    (tmp_path / "a" / "link").symlink_to(tmp_path / "d")
    with pytest.raises(DataError, match="'a/link' is neither"):
        listed()


def test_ranges_of_a_local_file_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_CHUNK", 7)
    (tmp_path / "f").write_bytes(DATA)
    here = LocalPlace(tmp_path)
    etag = here.head("f").etag
    for requested, start, stop in (
        (None, 0, 100),
        (ByteRange(3, 20), 3, 20),
        (ByteRange(90, 200), 90, 100),
        (ByteRange(150, 200), 100, 100),
        (10, 90, 100),
        (1000, 0, 100),
    ):
        result = here.get("f", requested, Version(etag or "", "other", 5))
        assert (result.span, result.version) == (Span(start, stop, 100), Version(etag or "", "", 100))
        pieces = list(result.chunks)
        assert (b"".join(map(bytes, pieces)), result.read()) == (DATA[start:stop], b"")
        assert max(map(len, pieces), default=0) <= 7
        result.close()
    result = here.get("f", None, Version("", "x", 1))
    assert result.read() == DATA[:7]
    result.close()
    with pytest.raises(Refused) as refused:
        here.get("f", None, Version('"other"', "", 100))
    assert refused.value.status == 412


def test_only_a_local_server_may_name_local_directories() -> None:
    def opened(location: str, **how: Any) -> Any:
        return open_place(location, cast("Any", None), OPTIONS, subject="volume v", **how)

    local, remote = (
        Server("").allowed_data,
        RestClient(Profile("https://h/p", BearerToken(Secret("t")), 1)).allowed_data,
    )
    for location in ("file:///x", "file://localhost/x"):
        assert opened(location, allowed=local).location == "file:///x"
    for location, allowed in (("file:///x", remote), ("file://other/x", local)):
        with pytest.raises(ProtocolError, match="location of volume v is a local directory") as caught:
            opened(location, allowed=allowed, table="s.d.t")
        assert caught.value.table == "s.d.t"
    with pytest.raises(UnsupportedFeatureError, match="has the scheme 'hdfs'") as refused:
        opened("hdfs://h/x", allowed=local, table="s.d.t")
    assert (refused.value.table, refused.value.feature) == ("s.d.t", "storage in hdfs")


def test_asset_is_opened_at_its_location_or_refused(tmp_path: Path) -> None:
    server = Server("hdfs://h/x")
    for asset, is_table in ((AssetRef(TABLE, NAME), True), (AssetRef(VOLUME, NAME), False)):
        with pytest.raises(DeltaSharingError) as caught:
            places.place_of(server, asset, None, OPTIONS)
        assert ("Read the table by URL." in str(caught.value)) is is_table
        assert caught.value.table == ("s.d.t" if is_table else None)
    assert (
        places.place_of(server, AssetRef(VOLUME, NAME), f"file://{tmp_path}", OPTIONS).location == f"file://{tmp_path}"
    )
    assert server.asked[-1] == (AssetRef(VOLUME, NAME), f"file://{tmp_path}")


def test_transfer_is_read_whole_from_pieces_and_retries() -> None:
    assert bytes(reading(Store(body(piece=1000))).read()) == DATA
    assert bytes(reading(Store(body(0, 40, broken=True), body(40))).read()) == DATA
    assert bytes(reading(Store(body(0, 0, 0))).read()) == b""


def test_closed_log_stops_prefetching(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[dict[str, bool]] = []

    class Pool:
        def __init__(self, most: int, name: str) -> None:
            assert (most, name) == (16, "delta-log")

        def shutdown(self, **how: bool) -> None:
            ends.append(how)

    monkeypatch.setattr(module, "Threads", Pool)
    with files.log() as log:
        assert ends == []
        assert log is not None
    assert ends == [{"cancel_futures": True}]


def test_changes_need_the_feed_enabled_in_every_version(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    completed: list[int] = []

    def complete(log: object, action: RemoveFile, version: int, table: str) -> RemoveFile:
        completed.append(version)
        return replace(action, partition_values={"p": "x"}, size=9)

    monkeypatch.setattr(module, "_completed", complete)
    feed = Metadata(
        id="i", schema_string="{}", configuration={"delta.enableChangeDataFeed": "True"}, partition_columns=["p"]
    )
    plain, none = replace(feed, partition_columns=[]), replace(feed, configuration={})
    known = RemoveFile(path="known", data_change=True, partition_values={"p": "y"})
    bare = RemoveFile(path="bare", data_change=True)
    add = AddFile(path="a", partition_values={}, size=1, modification_time=1, data_change=True)
    first = cast("Any", SimpleNamespace(version=3, metadata=feed))

    def changes(*commits: Commit) -> list[Any]:
        completed.clear()
        return list(module._changes(cast("Any", None), files, commits, first))

    protocol = Protocol(1, 2)
    result = changes(
        Commit(3, 30, protocol=protocol, metadata=feed, removes=(known, bare)),
        Commit(4, 40, protocol=protocol, metadata=plain, removes=(bare,), adds=(add,)),
    )
    top = files.location
    assert completed == [3]
    kinds = [type(one).__name__ for one in result]
    assert kinds == ["SharedFile"] * 2 + ["VersionedProtocol", "VersionedMetadata"] + ["SharedFile"] * 2
    placed = {(one.version, one.timestamp, one.action.path, getattr(one.action, "size", None))
              for one in result if isinstance(one, SharedFile)}  # fmt: skip
    assert placed == {
        (3, 30, f"{top}/known", None), (3, 30, f"{top}/bare", 9), (4, 40, f"{top}/bare", None), (4, 40, f"{top}/a", 1)
    }  # fmt: skip
    assert result[2] == VersionedProtocol(4, protocol)
    assert result[3] == VersionedMetadata(4, plain)
    with pytest.raises(UnsupportedFeatureError, match="changes of version 5 were not recorded") as refused:
        changes(Commit(4, 40), Commit(5, 50, metadata=none))
    assert (refused.value.table, refused.value.version) == ("s.d.t", 5)


def test_tombstone_is_completed_from_the_previous_version(files: TableFiles) -> None:
    asked: list[int] = []
    add = AddFile(path="a%20b", partition_values={"p": "x"}, size=7, modification_time=1, data_change=True)

    class Log:
        def snapshot(self, version: int) -> Any:
            asked.append(version)
            return SimpleNamespace(files=[replace(add, path="other"), add])

    log: Any = Log()
    result = module._completed(log, RemoveFile(path="a%20b", data_change=True), 4, "s.d.t")
    assert (result.partition_values, result.size, asked) == ({"p": "x"}, 7, [3])
    for path, version in (("none", 4), ("a%20b", 0)):
        with pytest.raises(DataError, match="has no partition values") as caught:
            module._completed(log, RemoveFile(path=path, data_change=True), version, "s.d.t")
        assert (caught.value.table, caught.value.version) == ("s.d.t", version)
    assert asked == [3, 3]


def test_range_of_a_feed_must_be_within_the_log() -> None:
    class Log:
        def latest_version(self) -> int:
            return 9

        def version_from(self, moment: int) -> int:
            return {0: 2, 1000: 5}[moment]

        def version_at(self, moment: int) -> int:
            return {1000: 5, 500: 4}[moment]

        def commit_timestamp(self, version: int) -> int:
            return {9: 2000}[version]

    log: Any = Log()

    def found(**asked: Any) -> tuple[int, int]:
        return module._range(log, ChangesRequest(**asked), "s.d.t")

    time = "1970-01-01T00:00:0{}Z".format
    assert found(starting_version=3) == (3, 9)
    assert found(starting_version=9, ending_version=9) == (9, 9)
    assert found(starting_version=3, ending_version=99) == (3, 9)
    assert found(starting_version=0, ending_version=3) == (0, 3)
    assert found(starting_timestamp=time(1)) == (5, 9)
    assert found(starting_version=3, ending_timestamp=time(1)) == (3, 5)
    assert found(starting_version=3, ending_timestamp=time(2)) == (3, 9)
    assert found(starting_version=3, ending_timestamp=time(3)) == (3, 9)
    for asked, words in (
        ({"starting_version": 10}, "must start at version 9 at the latest, found 10"),
        (
            {"starting_version": 5, "ending_timestamp": "1970-01-01T00:00:00.5Z"},
            "start at version 5, but end at an earlier v",
        ),
    ):
        with pytest.raises(UsageError, match=words) as refused:
            found(**asked)
        assert refused.value.table == "s.d.t"
    assert module._version_at(log, 1000, "s.d.t") == 5
    with pytest.raises(
        UsageError, match="after the latest version, 9, which was committed at 1970-01-01 00:00:02 UTC"
    ) as late:
        module._version_at(log, 2001, "s.d.t")
    assert late.value.table == "s.d.t"


def test_commits_are_read_back_to_the_start_of_the_log(files: TableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Metadata(id="i", schema_string="{}", configuration={"delta.enableChangeDataFeed": "true"})
    info = CommitInfo()
    commits = [
        Commit(4, 40, commit_info=info),
        Commit(5, None, metadata=replace(feed, configuration={})),
        Commit(6, 60),
    ]
    asked: list[Any] = []

    class Log:
        is_whole = True

        def latest_version(self) -> int:
            return 6

        def version_from(self, moment: int) -> int:
            asked.append(moment)
            return 4

        def snapshot(self, version: int) -> Any:
            asked.append(version)
            if not self.is_whole:
                raise DataError("gone")
            return SimpleNamespace(metadata=feed)

        def commits(self, start: int, stop: int) -> list[Commit]:
            asked.append((start, stop))
            return commits

    @contextlib.contextmanager
    def opened(_: object) -> Iterator[Log]:
        yield log

    log = Log()
    monkeypatch.setattr(TableFiles, "log", opened)

    def facts(start: int, end: int | None) -> list[tuple[int, int, bool]]:
        asked.clear()
        result = module.read_commits(cast("Any", files._rest), NAME, start, end, OPTIONS)
        assert result[0].info is info
        return [(one.version, one.timestamp_ms, one.has_feed) for one in result]

    assert facts(0, None) == [(4, 40, True), (5, 0, False), (6, 60, False)]
    assert asked == [0, 4, (4, 6)]
    facts(5, 99)
    assert asked == [0, 5, (5, 6)]
    facts(4, 5)
    assert asked == [0, 4, (4, 5)]
    log.is_whole = False
    assert facts(0, None) == [(4, 40, False), (5, 0, False), (6, 60, False)]
