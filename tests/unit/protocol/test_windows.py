"""Long change feeds are read in windows of versions and have the same rows as a feed that is listed at once."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import pickle
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_sharing_client as ds
import mock_server
from benchmarks.long_listing import FIRST_COMMIT, ROWS
from delta_sharing_client.delta.actions import AddCdcFile, AddFile
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.plan.tasks import ScanStream
from delta_sharing_client.protocol import windows
from delta_sharing_client.protocol.query import ChangesQuery
from delta_sharing_client.protocol.rest import RestClient
from mock_server.wire import Change
from tests.quota import meets, met
from tests.regressions.hand_made import COMMIT_GAP_MS, FIRST_COMMIT_MS, HandMadeTable
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.storages import (
    ERROR,
    failing_consumer,
    hold,
    listing_threads,
    nothing_is_left,
    numbers,
    wait_for,
)

FORMS = [pytest.param({"delta": True}, id="delta"), pytest.param({"delta": False}, id="parquet")]
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def set_few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set ``FEW``: a feed with at most that many actions is not split into windows."""
    return lambda count: monkeypatch.setattr(windows, "FEW", count)


@pytest.fixture
def listed_at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], pa.Table]], pa.Table]:
    """Return a function that makes a read list its feed at once instead of in windows."""

    def call(read: Callable[[], pa.Table]) -> pa.Table:
        with monkeypatch.context() as patch:
            patch.setattr("delta_sharing_client.read_base.SHORTCUTS.streamed_listing", False)
            return read()

    return call


# === While the server lists ===


@pytest.mark.parametrize("form", FORMS)
def test_first_rows_are_returned_during_the_listing(
    listed: Any, set_few: Callable[[int], None], form: dict[str, Any]
) -> None:
    set_few(20)
    server, table = listed(files_a_version=5, **form)
    released = hold(server, 50)
    with table(100).changes(0).to_batches() as batches:
        first = [next(batches) for _ in range(15)]
        assert server.answers
        released.set()
        batches_read = [*first, *batches]
    assert [number for batch in batches_read for number in numbers(batch)] == [
        n for n in range(100) for _ in range(ROWS)
    ]
    rows = pa.Table.from_batches(batches_read)
    assert rows["_commit_version"].to_pylist() == [n // 5 for n in range(100) for _ in range(ROWS)]
    timestamps = rows["_commit_timestamp"].cast(pa.int64()).to_pylist()
    assert timestamps == [FIRST_COMMIT + version for version in rows["_commit_version"].to_pylist()]
    assert set(rows["_change_type"].to_pylist()) == {"insert"}
    assert server.data == 100


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        (100, {}),
        (100, {"ending_version": 12}),
        (100, {"filter": "_commit_version > 6 AND id < 3"}),
        (100, {"filter": "number IN (3, 77)"}),
        (100, {"limit": 305}),
        (100, {"columns": ["_commit_version"], "limit": 305}),
        (300, {"limit": 0}),
        (21, {}),
        (20, {}),
        (1, {}),
    ],
    ids=str,
)
def test_windows_return_the_same_rows_as_one_listing(
    listed: Any,
    set_few: Callable[[int], None],
    listed_at_once: Callable[[Callable[[], pa.Table]], pa.Table],
    form: dict[str, Any],
    files: int,
    arguments: dict[str, Any],
) -> None:
    set_few(20)
    _, table = listed(files_a_version=5, **form)
    changes = table(files).changes(0, **arguments)
    assert changes.to_arrow().equals(listed_at_once(changes.to_arrow))


def test_feed_of_few_files_is_listed_by_one_request(listed: Any, set_few: Callable[[int], None]) -> None:
    set_few(30)
    server, table = listed(files_a_version=5)
    assert table(29).changes(0).to_arrow().num_rows == 29 * ROWS
    assert len(server.feeds) == 1


def test_sizes_of_windows_are_limited(
    listed: Any, set_few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_few(50)
    server, table = listed(files_a_version=7)
    sizes, take = [], windows.FeedWindows.windows

    def recorded_windows(self: windows.FeedWindows) -> Iterator[windows.FeedWindow]:
        for window in take(self):
            sizes.append(len(window.actions))
            yield window

    monkeypatch.setattr(windows.FeedWindows, "windows", recorded_windows)
    shared = table(6_000).changes(0, columns=["number"])
    stream = shared._stream()
    assert isinstance(stream, ScanStream)
    assert sum(task.num_records or 0 for task in stream.every_file()) == 6_000 * ROWS
    assert sum(sizes) == 6_000
    assert max(sizes) <= 400
    # One request for the feed, one for its end, and one for each window.
    assert 30 < len(sizes) < 36
    assert len(server.feeds) == 2 + len(sizes)


@meets(halved=10, split=10)
@given(
    counts=st.lists(st.sampled_from([0, 1, 2, 5, 40]), min_size=2, max_size=60),
    start=st.integers(0, 20),
    seen=st.integers(1, 60),
)
def test_windows_hold_every_version_once_and_few_actions(counts: list[int], start: int, seen: int) -> None:
    """Files are spread over the versions at random, and the server lists any of the versions first."""
    last = start + len(counts) - 1
    asked: list[int | None] = []

    def listing(first: int | None, end: int, most: int | None) -> windows.FeedWindow | None:
        asked.append(first)
        begin = start if first is None else first
        actions = [version for version in range(begin, end + 1) for _ in range(counts[version - start])]
        if most is not None and len(actions) > most:
            return None
        return windows.FeedWindow(first, mock.Mock(version=begin), actions)  # type: ignore[arg-type]

    feed = windows.FeedWindows(None, None, None, None, last, range(start, start + min(seen, len(counts))))  # type: ignore[arg-type]
    feed._list = listing  # type: ignore[method-assign]
    with mock.patch.object(windows, "FEW", 2):
        found = list(feed.windows())
    assert [version for window in found for version in window.actions] == [
        start + index for index, count in enumerate(counts) for _ in range(count)
    ]
    # Only a single version and the first window may have more than eight times ``FEW`` actions.
    assert all(len(window.actions) <= 16 or len(set(window.actions)) == 1 or window.first is None for window in found)
    met("halved", asked.count(None) > 1)
    met("split", len(asked) - asked.count(None) > len(found) - 1)


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.changes(0, limit=10).to_arrow().num_rows,
        lambda table: len(table.changes(0, limit=10).to_pandas()),
        lambda table: len(table.changes(0, filter="id >= 8", limit=10).to_pandas()),
        lambda table: table.changes(0).to_dataset().head(10).num_rows,
    ],
    ids=["limit", "pandas", "filter and limit", "dataset"],
)
def test_listing_stops_at_the_limit(listed: Any, read: Callable[[ds.SharedTable], int]) -> None:
    server, table = listed()
    assert read(table(1_000_000)) == 10
    nothing_is_left(server)
    # The server counts lines in socket buffers, too, and a dataset requests its schema first.
    assert server.lines < 200_000
    assert len(server.feeds) <= 8
    assert server.data < 100


@pytest.mark.parametrize("form", FORMS)
def test_schema_needs_only_the_first_and_the_last_version(listed: Any, form: dict[str, Any]) -> None:
    server, table = listed(**form)
    assert table(1_000_000).changes(0, columns=["number", "_change_type"]).schema == pa.schema(
        [("number", pa.int64()), ("_change_type", pa.string())]
    )
    assert len(server.feeds) == 2
    assert server.lines < 200_000
    with pytest.raises(ds.UsageError, match="nobody"):
        _ = table(5).changes(0, columns=["nobody"]).schema


# === Errors ===


def break_listing(server: Any, monkeypatch: pytest.MonkeyPatch, how: str, files: int) -> None:
    """Make each listing that contains the last file fail, except the full listing and the last version's."""
    chunks = server.chunks

    def broken_chunks(stop: int, first: int, *, is_feed: bool = False) -> Iterator[bytes]:
        body = b"".join(chunks(stop, first, is_feed=is_feed))
        if stop < files or first in (0, files - 5):
            yield body
            return
        lines = body.splitlines(keepends=True)
        yield b"".join(lines[: -1 if how != "cut" else -3])
        if how == "error":
            yield json.dumps(ERROR).encode() + b"\n"
        elif how == "cut":
            raise ConnectionResetError

    monkeypatch.setattr(server, "chunks", broken_chunks)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["error", "none", "cut"])
def test_error_in_the_last_window_fails_every_kind_of_read(
    listed: Any,
    set_few: Callable[[int], None],
    form: dict[str, Any],
    how: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_few(20)
    server, table = listed(files_a_version=5, **form)
    break_listing(server, monkeypatch, how, 50)
    changes = table(50).changes(0)
    expected = ds.RequestError if how == "error" else ds.TransportError
    rows = 0
    with pytest.raises(expected) as caught:  # noqa: PT012
        for batch in changes.to_batches():
            rows += batch.num_rows
    assert caught.value.table == "s.s.files-50"
    assert rows < 50 * ROWS
    outputs: list[Callable[[], object]] = [
        changes.to_arrow,
        changes.where("id >= 0").to_pandas,
        changes.to_polars,
        changes.limit(10_000).to_pandas,
        lambda: changes.to_parquet(tmp_path / "rows.parquet"),
        lambda: changes.to_csv(tmp_path / "rows.csv"),
        lambda: pa.table(changes),
    ]
    for output in outputs:
        # The Arrow C interface does not keep exception classes.
        with pytest.raises((expected, OSError, pa.ArrowException)):
            output()
    assert list(tmp_path.iterdir()) == []


def test_broken_window_resumes_with_each_file_once(listed: Any, set_few: Callable[[int], None]) -> None:
    set_few(20)
    server, table = listed(files_a_version=5)
    pending = {33, 61}
    server.stops = set(pending)

    def cut(number: int) -> None:
        if number in pending and len(server.feeds) > 2:
            pending.remove(number)
            raise ConnectionResetError

    server.before = cut
    read_numbers = numbers(table(100).changes(0).to_arrow())
    assert read_numbers == [number for number in range(100) for _ in range(ROWS)]
    assert not pending


# === Ranges without windows ===


@pytest.mark.parametrize("why", ["ending timestamp", "version is refused", "last version is refused", "one version"])
def test_feed_that_cannot_be_split_is_listed_at_once(
    listed: Any, set_few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    set_few(20)
    server, table = listed(files_a_version=1000 if why == "one version" else 5)
    end = {"ending_timestamp": "2099-01-01T00:00:00Z"} if why == "ending timestamp" else {}

    def refused(*_: object, **__: object) -> Any:
        raise ds.RequestError("The server does not know that.", status=400)

    if why == "version is refused":
        monkeypatch.setattr(RestClient, "table_version", refused)
    if why == "last version is refused":
        monkeypatch.setattr(windows, "query_table", refused)
    assert numbers(table(100).changes(0, **end).to_arrow()) == [n for n in range(100) for _ in range(ROWS)]
    assert len(server.feeds) == 1


# === Reads that end during a listing ===


def wait(released: threading.Event) -> None:
    released.wait(30)


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_close_ends_a_window_that_waits_for_the_server(
    listed: Any, set_few: Callable[[int], None], has_head: bool, waits: bool
) -> None:
    set_few(20)
    server, table = listed(files_a_version=5)
    released = hold(server, 50)
    if not has_head:
        # Hold only the response to a window, before its first line, but not those for the feed and the last version.
        server.stops.clear()
        server.before = lambda number: None if number != 50 or len(server.feeds) < 3 else wait(released)
    batches = table(100).changes(0).to_batches()
    next(batches)
    failure = failing_consumer(batches) if waits else None
    time.sleep(0.05)
    clock = Stopwatch()
    batches.close()
    assert clock.within(SOON)
    wait_for(lambda: not listing_threads())
    if failure is not None:
        assert "it was closed" in str(failure.result(HANGS))
    with pytest.raises(ds.UsageError, match="it was closed"):
        next(batches)
    released.set()
    nothing_is_left(server)


def test_cancelled_windows_send_no_more_requests(server: Any, rest: RestClient, table: Any) -> None:
    end: Any = SimpleNamespace(response_format=ResponseFormat.DELTA)
    feed = windows.FeedWindows(rest, table, ChangesQuery(starting_version=0), end, 5, [0])
    feed.break_off()
    with pytest.raises(CancelledError):
        next(feed.windows())
    assert not server.requests


def test_listing_of_a_window_stops_after_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    head = SimpleNamespace(response_format=ResponseFormat.DELTA)
    actions = iter(range(10))
    response = contextlib.nullcontext(SimpleNamespace(head=head, actions=actions))
    monkeypatch.setattr(windows, "query_table", lambda *_, **__: response)
    unused: Any = None
    query, end = ChangesQuery(starting_version=0), cast("Any", head)
    assert windows.FeedWindows(unused, unused, query, end, 5, [0])._list(1, 1, 2) is None
    assert list(actions) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("is_started", [False, True])
def test_deleted_iterator_ends_the_windows(listed: Any, is_started: bool) -> None:
    server, table = listed()
    batches = table(1_000_000).changes(0, columns=["number"]).to_batches()
    if is_started:
        next(batches)
    del batches
    nothing_is_left(server)


# === URLs ===


def test_url_is_renewed_by_listing_only_the_files_window(listed: Any, set_few: Callable[[int], None]) -> None:
    set_few(20)
    server, table = listed(files_a_version=5)
    changes = table(200).changes(0)
    stream = changes._stream()
    assert isinstance(stream, ScanStream)
    tasks = list(stream.every_file())
    earlier = len(server.feeds)
    for place in (stream.context.place, pickle.loads(pickle.dumps(stream.context.place))):
        urls = place.urls
        for number in (0, 199, 3, 60, 120, 61, 1, 199):
            assert f"part-{number:08d}" in urls.url_for(tasks[number].key, tasks[number].url + "x")
    repeated = server.feeds[earlier:]
    assert all(int(feed["endingVersion"]) - int(feed["startingVersion"]) < 20 for feed in repeated)
    # Only the window of the last file was dropped from the cache and listed again.
    assert len(repeated) == 2 * 5


# === Order of lines ===

START = pa.schema([("id", pa.int64()), ("p", pa.string())])
WIDER = pa.schema([("id", pa.int64()), ("p", pa.string()), ("added", pa.string())])


def table_with_all_events(root: pathlib.Path, seed: int) -> HandMadeTable:
    """Return a table with change files, deletion vectors, rearranged files and a schema change."""
    rng = random.Random(seed)
    properties = FEED | {"delta.enableDeletionVectors": "true"}
    table = HandMadeTable(root).create(START, partition_by=["p"], properties=properties, features=["deletionVectors"])
    schema, live = START, [table.file(rows(START, 0), {"p": "a"})]
    table.commit(live[0])
    for number in range(1, 25):
        kind = rng.choice(["add", "add", "many", "remove", "vector", "cdc", "rearranged", "metadata", "empty"])
        if kind == "add" or not live:
            live.append(table.file(rows(schema, number), {"p": "b"}))
            table.commit(live[-1])
        elif kind == "many":
            added = [table.file(rows(schema, 100 * number + i), {"p": "c"}) for i in range(rng.randrange(2, 9))]
            live += added
            table.commit(*added)
        elif kind == "remove":
            table.commit(table.removal(live.pop(rng.randrange(len(live)))))
        elif kind == "vector":
            old = live.pop(rng.randrange(len(live)))
            bare = {"add": {key: value for key, value in old["add"].items() if key != "deletionVector"}}
            live.append(bare if bare != old else table.without(old, rng.sample(range(5), rng.randrange(1, 4))))
            table.commit(table.removal(old), live[-1])
        elif kind == "cdc":
            old, new = live.pop(), table.file(rows(schema, number), {"p": "d"})
            live.append(new)
            changed_rows = rows(schema, number).append_column("_change_type", pa.array(["update_postimage"] * 5))
            change = table.file(changed_rows, {"p": "d"})["add"]
            cdc_fields = {key: change[key] for key in ("path", "partitionValues", "size")}
            table.commit(table.removal(old), new, {"cdc": {**cdc_fields, "dataChange": False}})
        elif kind == "rearranged":
            old, same = live.pop(), table.file(rows(schema, number), {"p": "e"})
            removal = table.removal(old)
            live.append(same)
            removal["remove"]["dataChange"] = False
            table.commit(removal, {"add": {**same["add"], "dataChange": False}})
        elif kind == "metadata":
            schema = WIDER
            table.commit(table.metadata(schema, ["p"], properties))
        else:
            table.commit()
    return table


def rows(schema: pa.Schema, number: int) -> pa.Table:
    columns = {"id": pa.array(range(10 * number, 10 * number + 5), pa.int64())}
    if len(schema) == len(WIDER):
        columns["added"] = pa.array([f"text {number}"] * 5)
    return pa.table(columns)


def by_version(items: list[Any]) -> list[Any]:
    return items


def by_kind(items: list[Any]) -> list[Any]:
    """Sort as old reference servers do: metadata and protocols, change files, added files, removed files."""

    def rank(item: Any) -> int:
        if not isinstance(item, Change):
            return 0
        return 1 if isinstance(item.action, AddCdcFile) else 2 if isinstance(item.action, AddFile) else 3

    return sorted(items, key=rank)


def reversed_order(items: list[Any]) -> list[Any]:
    return items[::-1]


def random_order(items: list[Any]) -> list[Any]:
    return random.Random(len(items)).sample(items, len(items))


@pytest.mark.parametrize(("order", "seed"), [(by_version, 1), (by_kind, 2), (reversed_order, 3), (random_order, 4)])
def test_order_of_the_lines_of_a_feed_is_irrelevant(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, order: Callable[[list[Any]], list[Any]], seed: int
) -> None:
    root = table_with_all_events(tmp_path / "t", seed).root
    with mock_server.running(tables={"s.s.t": root}) as server, ds.SharingClient(server.profile) as client:
        table = client.table("s.s.t")
        timestamp = iso_time(FIRST_COMMIT_MS + 3 * COMMIT_GAP_MS)
        requests: list[dict[str, Any]] = [
            {"starting_version": 0},
            {"starting_version": 2, "ending_version": 17},
            {"starting_timestamp": timestamp},
            {"starting_version": 0, "filter": "id < 700 AND _commit_version <> 4"},
            {"starting_version": 1, "columns": ["_commit_version", "_change_type"]},
        ]
        reads = [table.changes(**each) for each in requests]
        expected = [read.to_arrow() for read in reads]
        change_feed = mock_server.table_apis.change_feed
        monkeypatch.setattr(
            "mock_server.table_apis.change_feed",
            lambda *args: dataclasses.replace(feed := change_feed(*args), items=order(feed.items)),
        )
        for count in (1, 4):
            monkeypatch.setattr(windows, "FEW", count)
            for read, table_at_once in zip(reads, expected, strict=True):
                windowed = read.to_arrow()
                # Within a version, the files are in the order of the listing.
                assert sorted_rows(windowed).equals(sorted_rows(table_at_once))
                assert windowed["_commit_version"].to_pylist() == table_at_once["_commit_version"].to_pylist()


def iso_time(milliseconds: int) -> str:
    return str(pa.scalar(milliseconds, pa.timestamp("ms", tz="UTC")).as_py().isoformat())


def sorted_rows(rows: pa.Table) -> pa.Table:
    keys = [name for name in ("_commit_version", "_change_type", "id") if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in keys]).combine_chunks()


# === Schemas ===


@pytest.fixture
def growing_table(tmp_path: pathlib.Path) -> Iterator[tuple[HandMadeTable, ds.SharedTable]]:
    table = HandMadeTable(tmp_path / "t").create(WIDER, properties=FEED)
    for number in range(6):
        table.commit(table.file(rows(WIDER, number)))
    with mock_server.running(tables={"s.s.t": table.root}) as server, ds.SharingClient(server.profile) as client:
        yield table, client.table("s.s.t")


@pytest.mark.parametrize("arguments", [{}, {"columns": ["added"]}, {"filter": "added = 'text 1'"}], ids=str)
def test_windows_raise_the_same_schema_error_as_one_listing(
    growing_table: tuple[HandMadeTable, ds.SharedTable],
    set_few: Callable[[int], None],
    listed_at_once: Callable[[Callable[[], pa.Table]], pa.Table],
    arguments: dict[str, Any],
) -> None:
    set_few(2)
    writer, table = growing_table
    changes = table.changes(0, **arguments)
    assert changes.to_arrow()["_commit_version"].to_pylist() if not arguments else True
    narrow = pa.schema([("id", pa.int64()), ("p", pa.string())])
    writer.commit(writer.metadata(narrow, [], FEED), writer.file(rows(narrow, 9)))
    writer.commit(writer.file(rows(narrow, 10)))
    errors = []
    for read in (lambda: listed_at_once(changes.to_arrow), changes.to_arrow, lambda: list(changes.to_batches())):
        with pytest.raises(ds.SchemaChangeError) as caught:
            read()
        errors.append((str(caught.value).split(" (query")[0], caught.value.version))
    assert errors[0][1] == 7
    assert {each[1] for each in errors} == {7}
    assert len({each[0][:120] for each in errors}) == 1


def test_changes_before_a_schema_change_are_read(
    growing_table: tuple[HandMadeTable, ds.SharedTable], set_few: Callable[[int], None]
) -> None:
    set_few(2)
    writer, table = growing_table
    writer.commit(writer.metadata(pa.schema([("id", pa.int64())]), [], FEED), writer.file(rows(START, 9)))
    versions = table.changes(0, columns=["_commit_version"]).to_arrow()["_commit_version"].to_pylist()
    assert versions == [version for version in range(1, 8) for _ in range(5)]


def test_feed_whose_end_contradicts_the_metadata_fails(
    growing_table: tuple[HandMadeTable, ds.SharedTable], set_few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_few(2)
    writer, table = growing_table
    feed_windows, schema = windows.feed_windows, pa.schema([*WIDER, ("more", pa.int64())])
    text = writer.metadata(schema, [], FEED)["metaData"]["schemaString"]

    def with_other_schema(*args: Any) -> Any:
        feed = feed_windows(*args)
        assert feed is not None
        metadata = msgspec.structs.replace(feed.end.metadata, schema_string=text)
        feed.end = dataclasses.replace(feed.end, metadata=metadata)
        return feed

    monkeypatch.setattr(windows, "feed_windows", with_other_schema)
    with pytest.raises(ds.ProtocolError, match="must end with the schema"):
        table.changes(0).to_arrow()
    assert table.changes(0, columns=["_commit_version"]).to_arrow().num_rows == 30
