"""Reads that begin during the listing: files in order, memory bounded, and results complete or an error."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from benchmarks.long_listing import ROWS
from delta_sharing_client.decode.budget import MemoryBudget
from delta_sharing_client.delta.actions import DeletionVectorDescriptor, SharedFile
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.http import retry
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.plan.snapshot_files import stream_snapshot
from delta_sharing_client.plan.tasks import FileTask, ScanStream
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run import engine
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.sources import server_source
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.storages import (
    ERROR,
    Table,
    failing_consumer,
    fast_options,
    hold,
    interrupting,
    listing_threads,
    nothing_is_left,
    numbers,
    table_state,
    wait_for,
)

FORMS = [
    pytest.param({"delta": delta, "page": page}, id=f"{'delta' if delta else 'parquet'}-{'pages' if page else 'whole'}")
    for delta, page in itertools.product((True, False), (None, 7))
]


# --- first rows ---


@pytest.mark.parametrize("form", FORMS)
def test_first_rows_are_returned_during_the_listing(listed: Any, form: dict[str, Any]) -> None:
    server, table = listed(**form)
    released = hold(server, 10)
    with table(40).scan().to_batches() as batches:
        first = [next(batches) for _ in range(10)]
        assert server.listed == (1 if form["page"] else 0)
        assert server.answers == 1
        released.set()
        results = [*first, *batches]
    assert [number for batch in results for number in numbers(batch)] == [n for n in range(40) for _ in range(ROWS)]
    assert server.data == 40


def test_listed_files_are_requested_while_one_is_delayed(
    make_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, going = make_table(pa.schema([("id", pa.int64())])), threading.Event()
    for number in range(8):
        table.add(pa.table({"id": [number]}))
    waiting = threading.Event()
    table.storage.faults["part-0.parquet"] = [lambda handler, data: bool(waiting.set()) or not going.wait(HANGS)]

    def slowly() -> Iterator[SharedFile]:
        for number, add in enumerate(table.adds):
            if number == 1:
                waiting.wait(HANGS)
            yield add

    rows: Future[int] = Future()
    plan = streamed(table, slowly())
    threading.Thread(target=lambda: rows.set_result(sum(batch.num_rows for batch in Batches(plan)))).start()
    # The response for the first file is delayed, and all others are requested.
    wait_for(lambda: len({request.name for request in table.storage.requests}) == 8)
    assert not rows.done()
    going.set()
    assert rows.result(HANGS) == 8


def streamed(table: Table, adds: Iterator[SharedFile], **request: Any) -> ScanStream:
    state = table_state(table.metadata, version=3)
    return stream_snapshot(state, ([add] for add in adds), ScanRequest(**request), fast_options())


@pytest.mark.parametrize("limit", [3, 4])
def test_listing_error_after_a_reached_limit_is_ignored(make_table: Callable[..., Table], limit: int) -> None:
    table = make_table(pa.schema([("id", pa.int64())]))
    for number in range(3):
        table.add(pa.table({"id": [number]}))
    # The last file is still being fetched when the listing fails.
    table.storage.faults["part-2.parquet"] = [lambda handler, data: bool(time.sleep(0.3))]

    def broken() -> Iterator[SharedFile]:
        yield from table.adds
        raise ds.ProtocolError("The listing broke.")

    results: list[int] = []
    with pytest.raises(ds.ProtocolError) if limit == 4 else contextlib.nullcontext():
        for batch in Batches(streamed(table, broken(), limit=limit, filter=col("id") >= 0)):
            results += batch["id"].to_pylist()
    assert results == [0, 1, 2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("files", "limit"), [(1, None), (3, None), (300, None), (20, 35), (0, None), (3, 0)])
def test_streamed_listing_gives_the_rows_of_a_complete_one(
    listed: Any, form: dict[str, Any], files: int, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, table = listed(**form)
    scan = table(files).scan(limit=limit, filter="id < 7 AND number <> 2")
    streamed = scan.to_arrow()
    monkeypatch.setattr("delta_sharing_client.read_base.SHORTCUTS.streamed_listing", False)
    monkeypatch.setattr("delta_sharing_client.protocol.lines.SHORTCUTS.lines_at_once", False)
    whole = scan.to_arrow()
    assert streamed.equals(whole)
    assert streamed.num_rows == whole.num_rows == min(7 * (files - (files > 2)), 10**9 if limit is None else limit)


def test_report_counts_files_skipped_in_a_stream(listed: Any) -> None:
    _, table = listed()
    scan = table(50).scan(filter="number >= 45")
    assert scan.to_arrow().num_rows == 5 * ROWS
    assert scan.report is not None
    assert (scan.report.files, scan.report.files_skipped) == (5, 45)
    assert scan.report.seconds["plan"] > 0


# --- reads that need only a part of the listing ---


@pytest.mark.parametrize("form", [{"delta": True}, {"delta": False, "page": 5000}])
@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.scan(limit=10).to_arrow().num_rows,
        lambda table: len(table.scan(limit=10).to_pandas()),
        lambda table: len(table.head(10)),
        lambda table: len(table.head(10, filter="id >= 8")),
        lambda table: table.scan(filter="id >= 8", limit=10).to_arrow().num_rows,
        lambda table: table.scan(columns=["number"], filter="number > 20", limit=10).to_polars().height,
        lambda table: table.scan().to_dataset().head(10).num_rows,
    ],
    ids=["limit", "pandas", "head", "head of a filter", "limit of a filter", "no data at all", "dataset"],
)
def test_a_limit_reads_no_more_of_the_listing_than_it_needs(
    listed: Any, form: dict[str, Any], read: Callable[[ds.SharedTable], int]
) -> None:
    server, table = listed(**form)
    assert read(table(1_000_000)) == 10
    wait_for(lambda: not server.answers)
    # Bytes in socket buffers count as sent.
    assert server.lines < 100_000
    assert server.data < 100


def test_limit_in_the_first_file_ends_the_listing(listed: Any) -> None:
    server, table = listed()
    released = hold(server, 3)
    assert table(100).scan(limit=10).to_arrow().num_rows == 10
    released.set()
    nothing_is_left(server)
    assert server.data == 1


@pytest.mark.parametrize("form", FORMS)
def test_schema_needs_no_file_list(listed: Any, form: dict[str, Any]) -> None:
    server, table = listed(**form)
    scan = table(1_000_000).scan(columns=["number"], filter="id > 3")
    assert scan.schema == pa.schema([("number", pa.int64())])
    assert (server.metadata, server.queries) == (1, [])
    # Not every server returns the metadata of a past version.
    assert scan.at_version(3).schema == pa.schema([("number", pa.int64())])
    assert len(server.queries) == 1
    wait_for(lambda: not server.answers)
    assert server.lines < 100_000
    with pytest.raises(ds.UsageError, match="nobody"):
        _ = table(5).scan(columns=["nobody"]).schema


# --- an error at the end ---


def cut_connection(number: int) -> None:
    if number == 30:
        raise ConnectionResetError


@pytest.mark.parametrize(("end", "delta"), [("error", True), ("none", False), ("cut", True)])
def test_error_at_the_end_of_the_listing_fails_every_read(
    listed: Any, end: str, delta: bool, tmp_path: pathlib.Path
) -> None:
    server, table = listed(delta=delta, page=None if delta else 7)
    if end == "cut":
        server.before, expected = cut_connection, ds.TransportError
    else:
        server.end = ERROR if end == "error" else None
        expected = ds.RequestError if end == "error" else ds.TransportError
    scan = table(30).scan()
    rows = 0
    with pytest.raises(expected) as caught:  # noqa: PT012
        for batch in scan.to_batches():
            rows += batch.num_rows
    assert caught.value.table == "s.s.files-30"
    assert rows <= 30 * ROWS
    outputs: list[Callable[[], object]] = [
        scan.to_arrow,
        scan.to_pandas,
        scan.where("id >= 0").to_pandas,
        scan.to_polars,
        scan.count,
        lambda: scan.to_parquet(tmp_path / "rows.parquet"),
        lambda: scan.to_csv(tmp_path / "rows.csv"),
        lambda: pa.table(scan),
        lambda: scan.limit(10_000).to_pandas(),
    ]
    for output in outputs:
        # Arrow's C stream interface does not transport exception classes.
        with pytest.raises((expected, OSError, pa.ArrowException)):
            output()
    assert list(tmp_path.iterdir()) == []


def test_listing_without_end_action_is_whole_if_none_is_promised(listed: Any) -> None:
    server, table = listed(promises_end=False)
    server.end = None
    assert table(30).scan().to_arrow().num_rows == 30 * ROWS


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at_once", [0, 5000, 10**6])
def test_interrupted_listing_resumes_with_each_file_once(
    listed: Any, form: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_sharing_client.http.body._AT_ONCE", at_once)
    server, table = listed(**form)
    cuts = iter((12, 25))
    due = [next(cuts)]

    def cut(number: int) -> None:
        if due and number == due[0]:
            due[:] = [at] if (at := next(cuts, None)) else []
            raise ConnectionResetError

    server.before = cut
    server.stops = {12, 25}
    rows = numbers(table(40).scan().to_arrow())
    assert rows == [number for number in range(40) for _ in range(ROWS)]
    assert due == []


@pytest.mark.parametrize(("every", "is_whole"), [(1100, True), (50, False)])
def test_progress_between_interruptions_resets_the_retries(listed: Any, every: int, is_whole: bool) -> None:
    server, table = listed()
    due = list(range(every, 8 * every, every))
    server.stops = set(due)

    def cut(number: int) -> None:
        if due and number == due[0]:
            due.pop(0)
            raise ConnectionResetError

    server.before = cut
    scan = table(8 * every).scan(columns=["number"])
    if is_whole:
        assert scan.to_arrow().num_rows == 8 * every * ROWS
        assert due == []
    else:
        with pytest.raises(ds.TransportError, match="Tried 3 times"):
            scan.to_arrow()


@pytest.mark.parametrize("held", [100_000, 2, 0])
@pytest.mark.parametrize("far", [5, 3000])
@pytest.mark.parametrize("other", ["", "vector", "path", "size"])
def test_file_listed_twice_is_read_once_or_refused(
    monkeypatch: pytest.MonkeyPatch, listed: Any, far: int, other: str, held: int
) -> None:
    monkeypatch.setattr(server_source, "HELD_NAMES", held)
    server, table = listed()
    line = server.line

    def again(number: int, version: int | None = None, *, signed: bool = False) -> bytes:
        result = line(0 if number == far else number, version, signed=signed)
        vector = b'{"storageType":"i","pathOrInlineDv":"x","offset":0,"sizeInBytes":4,"cardinality":1}'
        if number == far and other == "vector":
            return result.replace(b'"add":{', b'"add":{"deletionVector":' + vector + b",")
        if number == far and other == "path":
            return result.replace(b"?", b"x?")
        return result.replace(b'"size":', b'"size":1') if number == far and other == "size" else result

    monkeypatch.setattr(server, "line", again)
    scan = table(far + 1).scan(columns=["number"])
    if not other:
        rows = numbers(scan.to_arrow())
        assert rows == [number for number in range(far) for _ in range(ROWS)]
        assert len(scan.plan().tasks) == far
    else:
        for read in (scan.to_arrow, scan.plan):
            with pytest.raises(ds.ProtocolError, match="two files with this id"):
                read()


# --- deletion vectors ---


def test_vectors_of_files_listed_together_share_a_request(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(pa.schema([("id", pa.int64())]))
    blob, descriptors = encode_file([DeletionVector.from_positions([number]) for number in range(12)], "placeholder")
    url = table.storage.put("dv.bin", blob)
    for number, descriptor in enumerate(descriptors):
        vector = DeletionVectorDescriptor("p", url, descriptor.size_in_bytes, descriptor.cardinality, descriptor.offset)
        table.add(pa.table({"id": [100 * number + row for row in range(20)]}), deletion_vector=vector, removed=[number])
    given = threading.Event()

    def slowly() -> Iterator[SharedFile]:
        for number, add in enumerate(table.adds):
            if number == 6:
                given.wait(HANGS)
            yield add

    rows: list[int] = []
    with Batches(streamed(table, slowly())) as batches:
        for batch in batches:
            rows += batch["id"].to_pylist()
            if len(rows) == 6 * 19:
                given.set()
    assert rows == [100 * n + row for n in range(12) for row in range(20) if row != n]
    assert 2 <= len(table.storage.requested("dv.bin")) <= 7


# --- URLs ---


def test_urls_are_renewed_by_refresh_token_after_the_listing(listed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, table = listed()
    server.end = {"endStreamAction": {"refreshToken": "the-token"}}
    released = hold(server, 20)
    shared = table(40)
    stream = shared.scan()._stream()
    assert isinstance(stream, ScanStream)
    files = stream.every_file()
    tasks = [next(files) for _ in range(20)]
    assert stream.context.place.urls is not None
    server.before = lambda number: None
    assert "part-00000003" in stream.context.place.urls.url_for(tasks[3].key, tasks[3].url + "x")
    assert server.queries[1].get("version") == 3
    assert "refreshToken" not in server.queries[1]
    released.set()
    tasks += list(files)
    stream.close()
    fresh = shared.scan()._stream()
    assert isinstance(fresh, ScanStream)
    plan = fresh.whole()
    assert plan.context.place.urls is not None
    plan.context.place.urls.url_for(plan.tasks[39].key, plan.tasks[39].url + "x")
    assert server.queries[-1]["refreshToken"] == "the-token"


# --- the end of a read during a listing ---


def test_close_ends_a_listing_that_waits_for_its_server(listed: Any) -> None:
    server, table = listed()
    hold(server, 5)
    batches = table(100).scan().to_batches()
    for _ in range(3):
        next(batches)
    clock = Stopwatch()
    batches.close()
    assert clock.within(SOON)
    wait_for(lambda: not listing_threads())
    with pytest.raises(ds.UsageError, match="it was closed"):
        next(batches)


@pytest.mark.parametrize("page", [None, 5])
def test_close_from_another_thread_wakes_the_listing(listed: Any, page: int | None) -> None:
    server, table = listed(page=page)
    hold(server, 5)
    batches = table(100).scan().to_batches()
    result = failing_consumer(batches)
    wait_for(lambda: server.data >= 5)
    time.sleep(0.05)
    batches.close()
    assert "it was closed" in str(result.result(HANGS))
    wait_for(lambda: not listing_threads())


def test_close_ends_a_listing_that_waits_for_a_retry(listed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, table = listed(retry_seconds=60.0)
    waited = threading.Event()
    monkeypatch.setattr(retry, "wait_before", lambda *_: waited.set() or 30.0)
    server.stops = {5}
    server.before = lambda number: cut_connection(30 if number == 5 else 0)
    batches = table(100).scan().to_batches()
    for _ in range(5):
        next(batches)
    assert waited.wait(HANGS)
    batches.close()
    wait_for(lambda: not listing_threads())
    assert len(server.queries) == 1


@pytest.mark.parametrize("files", [100, 1_000_000])
@pytest.mark.parametrize("begun", [False, True])
def test_dropping_the_iterator_returns_the_listings_connection(listed: Any, files: int, begun: bool) -> None:
    server, table = listed()
    batches = table(files).scan().to_batches()
    if begun:
        next(batches)
    del batches
    nothing_is_left(server)


def test_read_that_waits_for_room_can_be_closed(listed: Any) -> None:
    server, table = listed()
    batches = table(1_000_000).scan(columns=["number"]).to_batches()
    next(batches)
    lines = -1
    while server.lines != lines:  # wait until the server is blocked because the client reads no lines
        lines = server.lines
        time.sleep(0.1)
    assert lines < 200_000
    batches.close()
    nothing_is_left(server)


@pytest.mark.alone
def test_ctrl_c_ends_a_read_that_waits_for_the_listing(listed: Any) -> None:
    server, table = listed()
    hold(server, 2)
    batches = table(100).scan().to_batches()
    next(batches)
    next(batches)
    interrupted = interrupting(Batches._wait)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    interrupted.join()
    wait_for(lambda: not listing_threads())


@pytest.mark.parametrize("end", ["closed", "whole", "error", "limit"])
def test_memory_of_a_read_is_freed_without_garbage_collection(listed: Any, end: str) -> None:
    server, table = listed()
    server.end = ERROR if end == "error" else server.end
    gc.collect()
    gc.disable()
    try:
        before = {id(each) for each in gc.get_objects() if type(each) is MemoryBudget}
        batches = table(2000).scan(columns=["number"], limit=5000 if end == "limit" else None).to_batches()
        next(batches)
        (held,) = [
            weakref.ref(each) for each in gc.get_objects() if type(each) is MemoryBudget and id(each) not in before
        ]
        if end == "closed":
            batches.close()
        else:
            with pytest.raises(ds.RequestError) if end == "error" else contextlib.nullcontext():
                collections.deque(batches, maxlen=0)
        wait_for(lambda: held() is None)
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.alone
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_during_a_listing_leaves_it_to_the_parent(listed: Any) -> None:
    server, table = listed()
    released = hold(server, 50)
    batches = table(100).scan().to_batches()
    rows = next(batches).num_rows
    child = os.fork()
    if not child:
        code = 1
        try:
            try:
                next(batches)
            except ds.UsageError as error:
                code = 0 if "another process" in str(error) else 2
            batches.close()
            del batches
        finally:
            os._exit(code)
    deadline = time.monotonic() + HANGS
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    released.set()
    assert rows + sum(batch.num_rows for batch in batches) == 100 * ROWS


def test_interpreter_exits_during_a_listing(listed: Any) -> None:
    server, _ = listed()
    hold(server, 50)
    script = textwrap.dedent("""
        import json, sys
        import delta_sharing_client as ds
        batches = ds.SharingClient(json.loads(sys.argv[1])).table("s.s.files-100").scan().to_batches()
        next(batches)
        print("read")
    """)
    command = [sys.executable, "-c", script, json.dumps(server.profile)]
    done = subprocess.run(command, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"read\n", b"")


# --- memory ---


def test_memory_does_not_grow_with_the_listing(listed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing has forty thousand lines. The files are not read, because a finished file leaves nothing in
    memory."""
    server, table = listed()
    most = [0]

    async def nothing(shared: object, number: int, rows: object, **_: object) -> None:
        pass

    monkeypatch.setattr(engine, "read_file", nothing)
    batches = table(40_000).scan().to_batches()
    listing = batches._read.listing
    next_file = listing.next

    async def taking() -> FileTask | None:
        most[0] = max(most[0], len(listing._listed))
        return await next_file()

    monkeypatch.setattr(listing, "next", taking)
    assert next(batches, None) is None
    assert server.lines == 40_000
    assert listing.files == 40_000
    # The last block may exceed the limit.
    assert 0 < most[0] <= 16_384 + 1_000
