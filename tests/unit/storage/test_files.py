"""Files of tables and directories, read from scripted stores: requests, retries and returned bytes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
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
    AuthError,
    DataError,
    DeltaSharingError,
    ProtocolError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.fetch.place import DataRequest, Page, Refused, Span, StoredFile, Version
from delta_sharing_client.http.logins import BearerToken
from delta_sharing_client.http.retry import Deadline, Transient
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.plan.read_request import ChangesRequest
from delta_sharing_client.protocol.asset_kinds import TABLE, VOLUME, AssetRef
from delta_sharing_client.protocol.messages import TemporaryCredentials
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret
from delta_sharing_client.sources import log_source
from delta_sharing_client.sources.stored_log import StoredLog
from delta_sharing_client.storage import local
from delta_sharing_client.storage import opening as places
from delta_sharing_client.storage.local import LocalPlace
from delta_sharing_client.storage.opening import open_place
from tests import places as places_
from tests.places import Scripted, Sent

NAME = AssetName.parse("s.d.t")
DATA = bytes(range(100))
V1, V2 = Version('"1"', "", 100), Version('"2"', "", 100)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_sharing_client.http.retry.time.sleep", lambda seconds: None)


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
    sent: bytes | None = None,
) -> Sent:
    data = DATA[start:stop] if sent is None else sent
    error = Transient(TransportError("broken")) if broken else None
    return Sent(Span(start, stop, total), data, version, error=error)


# --- files of a table ---


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(f"file://{tmp_path}/t")


@pytest.fixture
def stored_log(server: Server) -> StoredLog:
    return StoredLog(server, NAME, OPTIONS)


def stored(stored_log: StoredLog, *answers: Any) -> Scripted:
    store: Any = Scripted([*answers], table="s.d.t")
    stored_log.files._places[stored_log.location] = stored_log.location, store
    stored_log._main = store
    return cast("Scripted", store)


def test_log_file_is_read_completely_or_an_error_is_raised(stored_log: StoredLog, tmp_path: Path) -> None:
    assert stored_log.location == f"file://{tmp_path}/t"

    def read() -> bytes:
        return bytes(stored_log.open("a%20b").read())

    store = stored(stored_log, body(), body(0, 0, 0))
    assert [read(), read()] == [DATA, b""]
    assert store.asked == [("_delta_log/a b", None, Version())] * 2
    store = stored(stored_log, body(sent=DATA[:99]), Transient(TransportError("x")), body(99))
    assert read() == DATA
    assert store.asked[1:] == [("_delta_log/a b", ByteRange(99, 100), V1)] * 2
    for answers, kind, words in (
        ([body(sent=b"")] * 3, TransportError, "Cannot read a file of the table's log: the connection ended early"),
        ([403], AuthError, r"refused to return a file of the log \(HTTP status 403\)"),
        ([404], FileNotFoundError, "it does not exist"),
        (
            [body(0, 100, None)],
            DataError,
            "Cannot read a file of the table's log: the storage states neither its length nor",
        ),
    ):
        stored(stored_log, *answers)
        with pytest.raises(kind, match=words) as caught:
            read()
        assert getattr(caught.value, "table", "s.d.t") == "s.d.t"


def test_log_is_listed_or_reported_missing(stored_log: StoredLog) -> None:
    moment = datetime(2026, 1, 1, 0, 0, 0, 1600, tzinfo=timezone.utc)
    first = Page([StoredFile("_delta_log/0.json", 3, moment)], [], next="1")
    second = Page([StoredFile("_delta_log/1.json", 4)], ["_delta_log/x"])
    store = stored(stored_log, Transient(TransportError("x")), first, second)
    assert stored_log.entries() == [LogEntry("0.json", 3, round(moment.timestamp() * 1000)), LogEntry("1.json", 4, 0)]
    assert store.asked == [("_delta_log", mark, False) for mark in (None, None, "1")]
    for answer in (404, Page([], ["_delta_log/x"])):
        stored(stored_log, answer)
        with pytest.raises(FileNotFoundError):
            stored_log.entries()
    for refused, kind in ((Refused(403, None), AuthError), (Refused(404, None, "NoSuchBucket"), TransportError)):
        stored(stored_log, refused)
        with pytest.raises(kind, match="refused to list the log") as caught:
            stored_log.entries()
        assert caught.value.table == "s.d.t"


def test_data_file_is_read_from_the_store_by_range(stored_log: StoredLog) -> None:
    store = stored(stored_log, body(3, 9))
    address = f"{stored_log.location}/a%20"
    assert places_.get(stored_log.files, address, ByteRange(3, 9), V1) == (DATA[3:9], Span(3, 9, 100), V1)
    assert store.asked == [("a%20", ByteRange(3, 9), V1)]


def test_file_gets_its_location_version_and_timestamp(stored_log: StoredLog) -> None:
    top = stored_log.location
    add = AddFile(path="a%20b", partition_values={}, size=1, modification_time=1, data_change=True)
    result = stored_log.placed(add)
    assert (result.action.path, result.file_id, result.version, result.timestamp) == (f"{top}/a b", "a b", None, None)
    commit = Commit(version=7, timestamp_ms=8)
    result = stored_log.placed(add, commit)
    assert (result.action.path, result.version, result.timestamp) == (f"{top}/a b", 7, 8)
    with pytest.raises(DataError, match="Expected a size") as caught:
        stored_log.placed(AddFile(path="a", partition_values={}, size=-1, modification_time=1, data_change=True))
    assert (caught.value.table, caught.value.file_id) == ("s.d.t", "a")
    assert stored_log.placed(RemoveFile(path="a", data_change=True)).action.path == f"{top}/a"
    assert stored_log.placed(replace(add, size=0)).action.size == 0

    def vector(kind: Any, path: str) -> Any:
        one = DeletionVectorDescriptor(kind, path, 36, 2, 4)
        action = AddFile(
            path="a", partition_values={}, size=1, modification_time=1, data_change=True, deletion_vector=one
        )
        placed: Any = stored_log.placed(action).action.deletion_vector
        assert (placed.size_in_bytes, placed.cardinality, placed.offset) == (36, 2, 4)
        return placed.storage_type, placed.path_or_inline_dv

    assert vector("i", "abc") == ("i", "abc")
    name = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector("u", "ab^-aqEH.-t@S}K{vb[*k^") == ("p", f"{top}/{name}")
    for path in (f"{top}/dv", top.removeprefix("file://") + "/dv", top.replace("file://", "file:") + "/dv"):
        assert vector("p", path) == ("p", f"{top}/dv")


def test_paths_stay_inside_the_allowed_location(
    stored_log: StoredLog, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("", "a/../b", "..", "%2e%2e/x", "a%00b", "\0"):
        with pytest.raises(DataError, match="must stay inside the table") as caught:
            stored_log._address(wrong)
        assert caught.value.table == "s.d.t"
    assert stored_log._address("a/..b") == f"{stored_log.location}/a/..b"
    aside = stored_log.location + "2"
    monkeypatch.setattr(stored_log.files, "_more", lambda: [aside])
    with pytest.raises(UnsupportedFeatureError, match=r"outside of the locations .* Read the table by URL") as refused:
        stored_log._address(f"{stored_log.location}3/x/y.parquet")
    assert (refused.value.table, refused.value.file_id) == ("s.d.t", f"{stored_log.location}3/x/y.parquet")
    assert server.asked == [(AssetRef(TABLE, NAME), None)]
    for _ in range(2):
        assert stored_log._address(f"{aside}/x") == f"{aside}/x"
    assert server.asked[1:] == [(AssetRef(TABLE, NAME), aside)]
    assert stored_log._address(f"{aside}/x%20y") == f"{aside}/x y"
    # Credentials for a location other than the requested one are ignored.
    monkeypatch.setattr(stored_log.files, "_more", lambda: [stored_log.location + "4"])
    monkeypatch.setattr(Server, "credentials", lambda *_: TemporaryCredentials(location=aside))
    with pytest.raises(UnsupportedFeatureError):
        stored_log._address(f"{stored_log.location}4/x")


def test_log_files_are_prefetched(stored_log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    async def read(address: str) -> memoryview:
        begun.append(address.removeprefix(f"{stored_log.location}/_delta_log/"))
        return memoryview(address.encode())

    monkeypatch.setattr(stored_log._ahead, "_make", read)
    with stored_log.opened() as log:
        directory: Any = log.directory
        names = [f"{number}" for number in range(20)]
        directory.expect(names)
        assert directory.open("0").read() == f"{stored_log.location}/_delta_log/0".encode()
        # One more than at a time, because the first was taken.
        assert set(begun) <= set(names[:17])
        assert directory.open("x").read() == f"{stored_log.location}/_delta_log/x".encode()
        assert directory.open("0").read() == f"{stored_log.location}/_delta_log/0".encode()
        assert [directory.open(name).read() for name in names[1:]] == [
            f"{stored_log.location}/_delta_log/{name}".encode() for name in names[1:]
        ]
        assert sorted(begun) == sorted([*names, "x", "0"])
        directory.open(f"{stored_log.location}/aside")
        assert begun[-1] == f"{stored_log.location}/aside"


# --- local directories ---


def test_local_directory_is_listed(tmp_path: Path) -> None:
    for name in ("b", "a/x", "a/c/y", "d/z"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12")
    here = LocalPlace(tmp_path, OPTIONS)

    def listed(**how: Any) -> list[tuple[list[str], list[str]]]:
        return [([file.path for file in page.files], page.folders) for page in places_.pages(here, **how)]

    assert listed() == [(["b"], []), (["a/x"], []), (["a/c/y"], []), (["d/z"], [])]
    assert listed(recursive=False) == [(["b"], ["a", "d"])]
    assert listed(folder="a", recursive=False) == [(["a/x"], ["a/c"])]
    (result,) = places_.pages(here)[0].files
    facts = os.stat(tmp_path / "b")
    assert (result.size, result.etag) == (2, f'"{facts.st_mtime_ns}-2"')
    assert result.modified == datetime.fromtimestamp(facts.st_mtime, timezone.utc)
    assert here.location == f"file://{tmp_path}"
    for folder in ("none", "b"):
        with pytest.raises(Refused) as refused:
            listed(folder=folder)
        assert refused.value.status == 404
    for name in ("none", "a", "b/x", "a\0", "\udcff" * 3000, "../b", "/etc/passwd", "a/../b"):
        with pytest.raises(Refused) as refused:
            places_.get(here, name)
        assert refused.value.status in ((404,) if len(name) < 99 else (403, 404))
    (tmp_path / "a" / "link").symlink_to(tmp_path / "d")
    with pytest.raises(DataError, match="'a/link' is neither"):
        listed()


def test_ranges_of_a_local_file_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_CHUNK", 7)
    (tmp_path / "f").write_bytes(DATA)
    here = LocalPlace(tmp_path, OPTIONS)
    etag = places_.get(here, "f")[2].etag
    for requested, start, stop in (
        (None, 0, 100),
        (ByteRange(3, 20), 3, 20),
        (ByteRange(90, 200), 90, 100),
        (10, 90, 100),
        (1000, 0, 100),
    ):
        data, span, version = places_.get(here, "f", requested, Version(etag, "other", 5))
        assert (data, span, version) == (DATA[start:stop], Span(start, stop, 100), Version(etag, "", 100))
    assert places_.get(here, "f", None, Version("", "x", 1))[0] == DATA
    for requested, version, status in ((None, Version('"other"', "", 100), 412), (ByteRange(150, 200), None, 416)):
        with pytest.raises(Refused) as refused:
            places_.get(here, "f", requested, version)
        assert refused.value.status == status


def test_missing_local_directory_is_not_an_empty_one(tmp_path: Path) -> None:
    """A copy of an empty listing would remove all files."""
    place = LocalPlace(tmp_path / "not-mounted", ReadOptions())
    for ask in (lambda: places_.paths(place), lambda: places_.get(place, "a")):
        with pytest.raises(Refused, match="the directory of the files does not exist") as caught:
            ask()
        assert caught.value.status == 404


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_pipe_is_not_read(tmp_path: Path) -> None:
    """It would wait for a program that writes into it."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused) as caught:
        places_.get(LocalPlace(tmp_path, ReadOptions()), "pipe")
    assert caught.value.status == 404


@pytest.mark.parametrize("change", ["written over", "longer", "shorter"])
def test_local_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr(local, "_CHUNK", 10)
    path = tmp_path / "a"
    path.write_bytes(DATA)
    place = LocalPlace(tmp_path, ReadOptions())

    async def take(body: Any) -> None:
        assert await body.read() == DATA[:10]
        path.write_bytes({"written over": DATA[::-1], "longer": DATA + DATA, "shorter": DATA[:50]}[change])
        os.utime(path, (1, 1))
        while await body.read():
            pass

    request = DataRequest("a", None, Deadline(None))
    with pytest.raises(Transient, match="The file 'a' was changed while it was read"):
        asyncio.run(place.get(request, take))


@pytest.mark.parametrize("call", ["open", "read", "list"])
def test_deadline_ends_the_wait_for_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (tmp_path / "a").write_bytes(DATA)
    monkeypatch.setattr(local, "_CHUNK", 10)
    place, hangs = LocalPlace(tmp_path, ReadOptions()), threading.Event()
    read = local._LocalBody._read

    def late(body: Any) -> bytes:
        if body._left < len(DATA):
            hangs.wait()
        return read(body)

    if call == "read":
        monkeypatch.setattr(local._LocalBody, "_read", late)
    else:
        monkeypatch.setattr(LocalPlace, {"open": "_open", "list": "_listed"}[call], lambda *_: hangs.wait())

    async def ask() -> None:
        deadline = Deadline(0.05)
        try:
            if call == "list":
                await place.page("", None, deadline, recursive=True)
            else:
                await place.get(DataRequest("a", None, deadline), drain)
        finally:
            # The loop waits for its threads when it ends.
            hangs.set()

    async def drain(body: Any) -> None:
        while await body.read():
            pass

    with pytest.raises(TransportError, match=r"longer than the 0\.05 seconds of 'total_timeout'"):
        asyncio.run(ask())


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


def test_changes_need_the_feed_enabled_in_every_version(stored_log: StoredLog, monkeypatch: pytest.MonkeyPatch) -> None:
    completed: list[int] = []

    def complete(log: object, action: RemoveFile, version: int, table: str) -> RemoveFile:
        completed.append(version)
        return replace(action, partition_values={"p": "x"}, size=9)

    monkeypatch.setattr(log_source, "_completed", complete)
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
        return list(log_source._changes(cast("Any", None), stored_log, commits, first))

    protocol = Protocol(1, 2)
    result = changes(
        Commit(3, 30, protocol=protocol, metadata=feed, removes=(known, bare)),
        Commit(4, 40, protocol=protocol, metadata=plain, removes=(bare,), adds=(add,)),
    )
    top = stored_log.location
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


def test_tombstone_is_completed_from_the_previous_version(stored_log: StoredLog) -> None:
    asked: list[int] = []
    add = AddFile(path="a%20b", partition_values={"p": "x"}, size=7, modification_time=1, data_change=True)

    class Log:
        def snapshot(self, version: int) -> Any:
            asked.append(version)
            return SimpleNamespace(files=[replace(add, path="other"), add])

    log: Any = Log()
    result = log_source._completed(log, RemoveFile(path="a%20b", data_change=True), 4, "s.d.t")
    assert (result.partition_values, result.size, asked) == ({"p": "x"}, 7, [3])
    for path, version in (("none", 4), ("a%20b", 0)):
        with pytest.raises(DataError, match="has no partition values") as caught:
            log_source._completed(log, RemoveFile(path=path, data_change=True), version, "s.d.t")
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
        return log_source._range(log, ChangesRequest(**asked), "s.d.t")

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
    assert log_source._version_at(log, 1000, "s.d.t") == 5
    with pytest.raises(
        UsageError, match="after the latest version, 9, which was committed at 1970-01-01 00:00:02 UTC"
    ) as late:
        log_source._version_at(log, 2001, "s.d.t")
    assert late.value.table == "s.d.t"


def test_commits_are_read_back_to_the_start_of_the_log(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(StoredLog, "opened", opened)

    def facts(start: int, end: int | None) -> list[tuple[int, int, bool]]:
        asked.clear()
        source = SimpleNamespace(rest=server, name=NAME, options=OPTIONS)
        result = log_source.LogSource(cast("Any", source)).commits(start, end)
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
