"""A long change feed is read in windows of versions: the same rows as of one list, in whatever order a server lists."""

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

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_sharing_client as ds
import mock_server
from benchmarks.long_listing import FIRST_COMMIT, ROWS
from delta_sharing_client import planning
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
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set how many actions are few."""
    return lambda count: monkeypatch.setattr(windows, "FEW", count)


@pytest.fixture
def listed_at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], pa.Table]], pa.Table]:
    """Call something without the streaming of listings."""

    def call(read: Callable[[], pa.Table]) -> pa.Table:
        with monkeypatch.context() as patch:
            patch.setattr("delta_sharing_client.reads.SHORTCUTS.streamed_listing", False)
            return read()

    return call


# === While the server lists ===


@pytest.mark.parametrize("form", FORMS)
def test_the_first_rows_come_while_later_versions_are_listed(
    listed: Any, few: Callable[[int], None], form: dict[str, Any]
) -> None:
    few(20)
    server, table = listed(files_a_version=5, **form)
    released = hold(server, 50)
    with table(100).changes(0).to_batches() as batches:
        first = [next(batches) for _ in range(15)]
        assert server.answers
        released.set()
        found = [*first, *batches]
    assert [number for batch in found for number in numbers(batch)] == [n for n in range(100) for _ in range(ROWS)]
    rows = pa.Table.from_batches(found)
    assert rows["_commit_version"].to_pylist() == [n // 5 for n in range(100) for _ in range(ROWS)]
    moments = rows["_commit_timestamp"].cast(pa.int64()).to_pylist()
    assert moments == [FIRST_COMMIT + version for version in rows["_commit_version"].to_pylist()]
    assert set(rows["_change_type"].to_pylist()) == {"insert"}
    assert server.data == 100


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("files", "request_"),
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
def test_the_rows_are_those_of_one_list(
    listed: Any,
    few: Callable[[int], None],
    listed_at_once: Callable[[Callable[[], pa.Table]], pa.Table],
    form: dict[str, Any],
    files: int,
    request_: dict[str, Any],
) -> None:
    few(20)
    _, table = listed(files_a_version=5, **form)
    changes = table(files).changes(0, **request_)
    assert changes.to_arrow().equals(listed_at_once(changes.to_arrow))


def test_a_feed_of_few_files_is_one_request(listed: Any, few: Callable[[int], None]) -> None:
    few(30)
    server, table = listed(files_a_version=5)
    assert table(29).changes(0).to_arrow().num_rows == 29 * ROWS
    assert len(server.feeds) == 1


def test_windows_have_about_the_wanted_number_of_actions(
    listed: Any, few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few(50)
    server, table = listed(files_a_version=7)
    sizes, take = [], windows.FeedWindows.windows

    def taking(self: windows.FeedWindows) -> Iterator[windows.FeedWindow]:
        for window in take(self):
            sizes.append(len(window.actions))
            yield window

    monkeypatch.setattr(windows.FeedWindows, "windows", taking)
    shared = table(6_000).changes(0, columns=["number"])
    stream = planning.stream_table(shared.rest, shared.table, shared.request, shared.options)
    assert isinstance(stream, ScanStream)
    assert sum(task.num_records or 0 for task in stream.files) == 6_000 * ROWS
    assert sum(sizes) == 6_000
    assert max(sizes) <= 400
    # The feed, its end, and the windows.
    assert 30 < len(sizes) < 36
    assert len(server.feeds) == 2 + len(sizes)


@meets(halved=10, split=10)
@given(
    counts=st.lists(st.sampled_from([0, 1, 2, 5, 40]), min_size=2, max_size=60),
    start=st.integers(0, 20),
    seen=st.integers(1, 60),
)
def test_windows_hold_every_version_once_and_few_actions(counts: list[int], start: int, seen: int) -> None:
    """However the files are spread over the versions, and whichever of these the server listed first."""
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
    # Only a single version, and what begins the feed, may have more than eight times the few.
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
    ids=["limit", "pandas", "limit of a filter", "dataset"],
)
def test_a_limit_lists_no_more_than_it_needs(listed: Any, read: Callable[[ds.SharedTable], int]) -> None:
    server, table = listed()
    assert read(table(1_000_000)) == 10
    nothing_is_left(server)
    # Bytes in socket buffers were sent, too. A dataset asks for its schema first.
    assert server.lines < 200_000
    assert len(server.feeds) <= 8
    assert server.data < 100


@pytest.mark.parametrize("form", FORMS)
def test_schema_comes_from_the_beginning_and_the_end(listed: Any, form: dict[str, Any]) -> None:
    server, table = listed(**form)
    assert table(1_000_000).changes(0, columns=["number", "_change_type"]).schema == pa.schema(
        [("number", pa.int64()), ("_change_type", pa.string())]
    )
    assert len(server.feeds) == 2
    assert server.lines < 200_000
    with pytest.raises(ds.UsageError, match="nobody"):
        _ = table(5).changes(0, columns=["nobody"]).schema


# === Errors ===


def ending(server: Any, monkeypatch: pytest.MonkeyPatch, how: str, files: int) -> None:
    """Have the listing of the last file, wherever it begins but with it, end badly."""
    chunks = server.chunks

    def badly(stop: int, first: int, *, is_feed: bool = False) -> Iterator[bytes]:
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

    monkeypatch.setattr(server, "chunks", badly)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["error", "none", "cut"])
def test_an_error_in_the_last_window_fails_every_read(
    listed: Any,
    few: Callable[[int], None],
    form: dict[str, Any],
    how: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few(20)
    server, table = listed(files_a_version=5, **form)
    ending(server, monkeypatch, how, 50)
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
        # Through the C interface there are no classes.
        with pytest.raises((expected, OSError, pa.ArrowException)):
            output()
    assert list(tmp_path.iterdir()) == []


def test_cut_window_resumes_and_gives_each_file_once(listed: Any, few: Callable[[int], None]) -> None:
    few(20)
    server, table = listed(files_a_version=5)
    due = {33, 61}
    server.stops = set(due)

    def cut(number: int) -> None:
        if number in due and len(server.feeds) > 2:
            due.remove(number)
            raise ConnectionResetError

    server.before = cut
    found = numbers(table(100).changes(0).to_arrow())
    assert found == [number for number in range(100) for _ in range(ROWS)]
    assert not due


# === Where there are no windows ===


@pytest.mark.parametrize("why", ["the end is an instant", "no version is told", "the end is not told", "one version"])
def test_indivisible_range_is_listed_at_once(
    listed: Any, few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    few(20)
    server, table = listed(files_a_version=1000 if why == "one version" else 5)
    asked = {"ending_timestamp": "2099-01-01T00:00:00Z"} if why == "the end is an instant" else {}

    def refused(*_: object, **__: object) -> Any:
        raise ds.RequestError("The server does not know that.", status=400)

    if why == "no version is told":
        monkeypatch.setattr(RestClient, "table_version", refused)
    if why == "the end is not told":
        monkeypatch.setattr(windows, "query_table", refused)
    assert numbers(table(100).changes(0, **asked).to_arrow()) == [n for n in range(100) for _ in range(ROWS)]
    assert len(server.feeds) == 1


# === The end of a read in the middle of a listing ===


def wait(released: threading.Event) -> None:
    released.wait(30)


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_closing_ends_a_window_that_waits_for_its_server(
    listed: Any, few: Callable[[int], None], has_head: bool, waits: bool
) -> None:
    few(20)
    server, table = listed(files_a_version=5)
    released = hold(server, 50)
    if not has_head:
        # The first answer and the end's come in one piece, and of a window not a line.
        server.stops.clear()
        server.before = lambda number: None if number != 50 or len(server.feeds) < 3 else wait(released)
    batches = table(100).changes(0).to_batches()
    next(batches)
    found = failing_consumer(batches) if waits else None
    time.sleep(0.05)
    clock = Stopwatch()
    batches.close()
    assert clock.within(SOON)
    wait_for(lambda: not listing_threads())
    if found is not None:
        assert "it was closed" in str(found.result(HANGS))
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
    assert not server.seen


@pytest.mark.parametrize(("most", "found"), [(2, None), (3, 3), (4, 3), (None, 3)])
def test_window_has_all_its_actions_or_does_not_exist(
    server: Any, rest: RestClient, table: Any, wire: Any, most: int | None, found: int | None
) -> None:
    files = [wire.delta_file(str(number), "add", {"version": 1}) for number in range(3)]
    server.on("GET", "/shares/s/schemas/d/tables/t/changes", wire.ndjson(*wire.delta_head(), *files))
    end: Any = SimpleNamespace(response_format=ResponseFormat.DELTA)
    feed = windows.FeedWindows(rest, table, ChangesQuery(starting_version=0), end, 5, [0])
    window = feed._list(1, 1, most)
    assert (None if window is None else len(window.actions)) == found


def test_window_with_too_many_actions_is_not_read_further(monkeypatch: pytest.MonkeyPatch) -> None:
    form = SimpleNamespace(response_format=ResponseFormat.DELTA)
    actions = iter(range(10))
    answer = contextlib.nullcontext(SimpleNamespace(head=form, actions=actions))
    monkeypatch.setattr(windows, "query_table", lambda *_, **__: answer)
    nobody: Any = None
    query, end = ChangesQuery(starting_version=0), cast("Any", form)
    assert windows.FeedWindows(nobody, nobody, query, end, 5, [0])._list(1, 1, 2) is None
    assert list(actions) == [3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("form", [ResponseFormat.DELTA, ResponseFormat.PARQUET])
def test_window_is_requested_in_the_format_of_the_feed(
    server: Any, rest: RestClient, table: Any, wire: Any, form: ResponseFormat
) -> None:
    head = wire.delta_head() if form is ResponseFormat.DELTA else wire.parquet_head()
    server.on("GET", "/shares/s/schemas/d/tables/t/changes", wire.ndjson(*head))
    end: Any = SimpleNamespace(response_format=form)
    windows.FeedWindows(rest, table, ChangesQuery(starting_version=0), end, 5, [0])._list(1, 1, None)
    assert [seen.headers["delta-sharing-capabilities"].split(";")[0] for seen in server.seen] == [
        f"responseformat={form.value}"
    ]


@pytest.mark.parametrize("begun", [False, True])
def test_dropping_the_iterator_ends_the_windows(listed: Any, begun: bool) -> None:
    server, table = listed()
    batches = table(1_000_000).changes(0, columns=["number"]).to_batches()
    if begun:
        next(batches)
    del batches
    nothing_is_left(server)


# === URLs ===


def test_urls_are_renewed_by_the_window_of_their_file(listed: Any, few: Callable[[int], None]) -> None:
    few(20)
    server, table = listed(files_a_version=5)
    changes = table(200).changes(0)
    stream = planning.stream_table(changes.rest, changes.table, changes.request, changes.options)
    assert isinstance(stream, ScanStream)
    tasks = list(stream.files)
    asked = len(server.feeds)
    for urls in (stream.context.urls, pickle.loads(pickle.dumps(stream.context.urls))):
        assert urls is not None
        for number in (0, 199, 3, 60, 120, 61, 1, 199):
            assert f"part-{number:08d}" in urls.url_for(tasks[number].key, tasks[number].url + "x")
    repeated = server.feeds[asked:]
    assert all(int(feed["endingVersion"]) - int(feed["startingVersion"]) < 20 for feed in repeated)
    # The window of the last file was forgotten for others in between, and no other was.
    assert len(repeated) == 2 * 5


# === Whatever a server lists, in whatever order ===

START = pa.schema([("id", pa.int64()), ("p", pa.string())])
WIDER = pa.schema([("id", pa.int64()), ("p", pa.string()), ("added", pa.string())])


def eventful(root: pathlib.Path, seed: int) -> HandMadeTable:
    """Return a table to which everything happened: change files, deletion vectors, rearranged files, another schema."""
    rng = random.Random(seed)
    properties = FEED | {"delta.enableDeletionVectors": "true"}
    table = HandMadeTable(root).create(START, partition_by=["p"], properties=properties, features=["deletionVectors"])
    schema, live = START, [table.file(rows(START, 0), {"p": "a"})]
    table.commit(live[0])
    for number in range(1, 25):
        kind = rng.choice(["add", "add", "many", "remove", "vector", "cdc", "rearranged", "described", "empty"])
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
            told = rows(schema, number).append_column("_change_type", pa.array(["update_postimage"] * 5))
            change = table.file(told, {"p": "d"})["add"]
            kept = {key: change[key] for key in ("path", "partitionValues", "size")}
            table.commit(table.removal(old), new, {"cdc": {**kept, "dataChange": False}})
        elif kind == "rearranged":
            old, same = live.pop(), table.file(rows(schema, number), {"p": "e"})
            gone = table.removal(old)
            live.append(same)
            gone["remove"]["dataChange"] = False
            table.commit(gone, {"add": {**same["add"], "dataChange": False}})
        elif kind == "described":
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
    """The order of the reference server's first versions: what describes, change files, added files, removed ones."""

    def kind(item: Any) -> int:
        if not isinstance(item, Change):
            return 0
        return 1 if isinstance(item.action, AddCdcFile) else 2 if isinstance(item.action, AddFile) else 3

    return sorted(items, key=kind)


def backwards(items: list[Any]) -> list[Any]:
    return items[::-1]


def by_chance(items: list[Any]) -> list[Any]:
    return random.Random(len(items)).sample(items, len(items))


@pytest.mark.parametrize(("order", "seed"), [(by_version, 1), (by_kind, 2), (backwards, 3), (by_chance, 4)])
def test_order_of_lines_does_not_matter(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, order: Callable[[list[Any]], list[Any]], seed: int
) -> None:
    root = eventful(tmp_path / "t", seed).root
    with mock_server.running(tables={"s.s.t": root}) as server, ds.SharingClient(server.profile) as client:
        table = client.table("s.s.t")
        moment = instant(FIRST_COMMIT_MS + 3 * COMMIT_GAP_MS)
        asked: list[dict[str, Any]] = [
            {"starting_version": 0},
            {"starting_version": 2, "ending_version": 17},
            {"starting_timestamp": moment},
            {"starting_version": 0, "filter": "id < 700 AND _commit_version <> 4"},
            {"starting_version": 1, "columns": ["_commit_version", "_change_type"]},
        ]
        reads = [table.changes(**each) for each in asked]
        expected = [read.to_arrow() for read in reads]
        patched = mock_server.answers.change_feed
        monkeypatch.setattr(
            "mock_server.answers.change_feed",
            lambda *given: dataclasses.replace(found := patched(*given), items=order(found.items)),
        )
        for count in (1, 4):
            monkeypatch.setattr(windows, "FEW", count)
            for read, whole in zip(reads, expected, strict=True):
                found = read.to_arrow()
                # Within a version files come as they are listed.
                assert in_versions(found).equals(in_versions(whole))
                assert found["_commit_version"].to_pylist() == whole["_commit_version"].to_pylist()


def instant(milliseconds: int) -> str:
    return str(pa.scalar(milliseconds, pa.timestamp("ms", tz="UTC")).as_py().isoformat())


def in_versions(rows: pa.Table) -> pa.Table:
    first = [name for name in ("_commit_version", "_change_type", "id") if name in rows.column_names]
    return rows.sort_by([(name, "ascending") for name in first]).combine_chunks()


# === Schemas ===


@pytest.fixture
def changing(tmp_path: pathlib.Path) -> Iterator[tuple[HandMadeTable, ds.SharedTable]]:
    made = HandMadeTable(tmp_path / "t").create(WIDER, properties=FEED)
    for number in range(6):
        made.commit(made.file(rows(WIDER, number)))
    with mock_server.running(tables={"s.s.t": made.root}) as server, ds.SharingClient(server.profile) as client:
        yield made, client.table("s.s.t")


@pytest.mark.parametrize("asked", [{}, {"columns": ["added"]}, {"filter": "added = 'text 1'"}], ids=str)
def test_schema_error_across_windows_equals_that_of_one_list(
    changing: tuple[HandMadeTable, ds.SharedTable],
    few: Callable[[int], None],
    listed_at_once: Callable[[Callable[[], pa.Table]], pa.Table],
    asked: dict[str, Any],
) -> None:
    few(2)
    made, table = changing
    changes = table.changes(0, **asked)
    assert changes.to_arrow()["_commit_version"].to_pylist() if not asked else True
    narrow = pa.schema([("id", pa.int64()), ("p", pa.string())])
    made.commit(made.metadata(narrow, [], FEED), made.file(rows(narrow, 9)))
    made.commit(made.file(rows(narrow, 10)))
    told = []
    for read in (lambda: listed_at_once(changes.to_arrow), changes.to_arrow, lambda: list(changes.to_batches())):
        with pytest.raises(ds.SchemaChangeError) as caught:
            read()
        told.append((str(caught.value).split(" (query")[0], caught.value.version))
    assert told[0][1] == 7
    assert {each[1] for each in told} == {7}
    assert len({each[0][:120] for each in told}) == 1


def test_past_changes_keep_their_schema(
    changing: tuple[HandMadeTable, ds.SharedTable], few: Callable[[int], None]
) -> None:
    few(2)
    made, table = changing
    made.commit(made.metadata(pa.schema([("id", pa.int64())]), [], FEED), made.file(rows(START, 9)))
    versions = table.changes(0, columns=["_commit_version"]).to_arrow()["_commit_version"].to_pylist()
    assert versions == [version for version in range(1, 8) for _ in range(5)]


def test_feed_whose_end_contradicts_the_metadata_fails(
    changing: tuple[HandMadeTable, ds.SharedTable], few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few(2)
    made, table = changing
    tell, schema = planning.windows.feed_windows, pa.schema([*WIDER, ("more", pa.int64())])
    text = made.metadata(schema, [], FEED)["metaData"]["schemaString"]

    def lied(*given: Any) -> Any:
        found = tell(*given)
        assert found is not None
        found.end = dataclasses.replace(found.end, metadata=with_text(found.end.metadata, text))
        return found

    monkeypatch.setattr(planning.windows, "feed_windows", lied)
    with pytest.raises(ds.ProtocolError, match="must end with the schema"):
        table.changes(0).to_arrow()
    assert table.changes(0, columns=["_commit_version"]).to_arrow().num_rows == 30


def with_text(metadata: Any, text: str) -> Any:
    import msgspec

    return msgspec.structs.replace(metadata, schema_string=text)
