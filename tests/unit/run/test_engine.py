"""Small files that one thread reads one after another: the same rows, reports and errors as each by itself."""

from __future__ import annotations

import gc
import http.server
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError, TransportError
from delta_sharing_client.fetch.memory import Window
from delta_sharing_client.fetch.queue import Downloads
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.read.file import FileRead, Resources
from delta_sharing_client.run.engine import Engine, Run
from delta_sharing_client.run.scan import Batches, execute
from delta_sharing_client.shortcuts import SHORTCUTS
from tests.memory import arrow_bytes
from tests.unit.storages import (
    Table,
    cut,
    failing_consumer,
    fast_options,
    listing_threads,
    rows_of,
    status,
    wait_for,
)
from tests.vectors import encode_inline

MakeTable = Callable[..., Table]

ROWS, FILES = 50, 24
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
# The first run has the files 0 to 7; the third of them is where something happens.
BAD = "part-3.parquet"


def numbered(start: int, stop: int) -> pa.Table:
    ids = list(range(start, stop))
    return pa.table({"id": ids, "name": [f"row {i}" for i in ids]}, schema=SCHEMA)


EVERYTHING = numbered(0, FILES * ROWS)


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    found = make_table(SCHEMA)
    for part in range(FILES):
        found.add(numbered(part * ROWS, (part + 1) * ROWS))
    return found


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each run has, from the first file on: as if it were known that answers come at once."""
    lengths: list[int] = []
    begin = Run.__init__

    def made(self: Run, resources: Resources, files: Sequence[FileRead]) -> None:
        lengths.append(len(files))
        begin(self, resources, files)

    monkeypatch.setattr(Run, "__init__", made)
    monkeypatch.setattr(Downloads, "takes_runs", lambda self: True)
    monkeypatch.setattr(Downloads, "stays", lambda self: True)
    return lengths


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    found: list[Engine] = []
    begin = Engine.__init__

    def made(self: Engine, *args: Any) -> None:
        found.append(self)
        begin(self, *args)

    monkeypatch.setattr(Engine, "__init__", made)
    return found


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def waits_for(event: threading.Event) -> Callable[..., bool]:
    def fault(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> bool:
        event.wait(20)
        return False

    return fault


def requested(table: Table) -> set[str]:
    return {request.name for request in table.storage.requests}


def first(batches: Batches, count: int) -> list[int]:
    return [next(batches)["id"][0].as_py() // ROWS for _ in range(count)]


def counted(report: ScanReport) -> dict[str, int]:
    names = ("requests", "bytes", "retries", "files", "row_groups", "row_groups_skipped", "rows", "rows_deleted")
    return {name: getattr(report, name) for name in names}


# === The same ===


@pytest.mark.parametrize("request_", [{}, {"filter": col("id") >= 130}, {"columns": ["name"]}], ids=str)
def test_rows_and_report_are_those_of_each_file_by_itself(
    table: Table, runs: list[int], monkeypatch: pytest.MonkeyPatch, request_: dict[str, Any]
) -> None:
    together, alone = ScanReport(), ScanReport()
    found = table.read(together, **request_)
    assert runs == [8, 8, 8]
    monkeypatch.setattr(SHORTCUTS, "small_files_in_runs", False)
    assert table.read(alone, **request_).equals(found)
    assert len(runs) == 3
    assert counted(together) == counted(alone)
    assert together.requests == FILES


def test_files_of_any_form_are_read_in_runs(make_table: MakeTable, runs: list[int]) -> None:
    """Another schema, several row groups, no rows; a deletion vector or a size that is not known end a run."""
    table = make_table(SCHEMA)
    rows = numbered(0, ROWS)
    narrow = pa.schema([("name", pa.string()), ("id", pa.int32())])
    table.add(rows)
    table.add(rows.select(["name", "id"]).cast(narrow))
    table.add(rows, write={"row_group_size": 7})
    table.add(rows.slice(0, 0))
    table.add(rows.append_column("more", pa.array([True] * ROWS)))
    table.add(rows, deletion_vector=encode_inline(DeletionVector.from_positions([0, 1])))
    table.add(rows)
    table.add(rows.drop_columns(["name"]))
    found = table.read()
    assert runs == [5, 2]
    ids = list(range(ROWS))
    assert found["id"].to_pylist() == [*ids * 4, *ids[2:], *ids * 2]
    assert found["name"].null_count == ROWS


def test_only_what_is_small_and_plain_is_read_in_runs(
    table: Table, runs: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.read(limit=FILES * ROWS).equals(EVERYTHING)
    assert rows_of(table.plan(options=fast_options(cache_directory=str(tmp_path)))).equals(EVERYTHING)
    # A run takes no more than a small part of the memory; few requests at a time leave each a thread of its own.
    assert rows_of(table.plan(options=fast_options(max_bytes_in_flight=1000))).equals(EVERYTHING)
    assert rows_of(table.plan(options=fast_options(max_concurrent_requests=4))).equals(EVERYTHING)
    assert runs == []
    size = max(map(len, table.storage.files.values()))
    assert rows_of(table.plan(options=fast_options(max_bytes_in_flight=64 * 3 * size))).equals(EVERYTHING)
    assert set(runs) == {3}
    runs.clear()
    # Where answers take their time, as many as ever are asked for side by side.
    monkeypatch.undo()
    monkeypatch.setattr(Run, "__init__", lambda *_: pytest.fail("a run"))
    table.storage.latency = 0.02
    assert table.read().equals(EVERYTHING)
    assert table.storage.most_in_flight > 8


# === Something happens in the middle ===


@pytest.mark.parametrize("kind", ["damaged", "gone", "of another length", "refused"])
def test_an_error_names_its_file(table: Table, runs: list[int], kind: str) -> None:
    if kind == "damaged":
        table.storage.files[BAD] = b"PAR1" + bytes(table.storage.bytes_of(BAD) - 8) + b"PAR1"
    elif kind == "of another length":
        table.storage.files[BAD] += b"x"
    else:
        table.storage.faults[BAD] = [status(404 if kind == "gone" else 403)]
    with pytest.raises(TransportError if kind == "refused" else DataError) as caught:
        table.read()
    assert runs[0] == 8
    assert (caught.value.file_id, caught.value.table) == (f"id-{BAD}", "share.schema.t")
    wait_for(lambda: not listing_threads())


@pytest.mark.parametrize(
    "faults", [[status(503)], [cut(100)], [status(429, {"Retry-After": "1"})], [cut(10), status(500), cut(50)]]
)
def test_what_is_tried_again_holds_nobody_up(table: Table, runs: list[int], faults: list[Any]) -> None:
    report = ScanReport()
    tries = len(faults)
    table.storage.faults[BAD] = faults
    with execute(table.plan(), report) as batches:
        # Those before it are given out, and those after it asked for, by the time it is asked for again.
        assert first(batches, 3) == [0, 1, 2]
        wait_for(lambda: len(requested(table)) == FILES)
        assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(3 * ROWS, FILES * ROWS))
    assert runs == [8, 8, 8]
    assert (report.retries, report.requests, report.files) == (tries, FILES + tries, FILES)


def test_a_url_that_has_expired_is_renewed_and_others_go_on(
    table: Table, runs: list[int], released: threading.Event
) -> None:
    asked: list[str] = []

    class Urls:
        def url_for(self, key: str, rejected: str | None = None) -> str:
            asked.append(key)
            assert released.wait(20)
            return table.storage.url(BAD, "fresh")

    table.storage.faults[BAD] = [status(403)]
    report = ScanReport()
    with execute(table.plan(urls=Urls()), report) as batches:
        assert first(batches, 3) == [0, 1, 2]
        wait_for(lambda: len(requested(table)) == FILES)
        released.set()
        assert sum(batch.num_rows for batch in batches) == (FILES - 3) * ROWS
    assert len(asked) == 1
    assert runs == [8, 8, 8]
    assert (report.retries, report.requests) == (1, FILES + 1)


def test_a_file_that_was_replaced_meanwhile_is_read_anew(table: Table, runs: list[int]) -> None:
    def old(handler: http.server.BaseHTTPRequestHandler, data: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("ETag", '"old"')
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:50])
        handler.close_connection = True
        return True

    table.storage.headers[BAD] = {"ETag": '"new"'}
    table.storage.faults[BAD] = [old]
    assert table.read().equals(EVERYTHING)
    assert runs == [8, 8, 8]
    assert len(table.storage.requested(BAD)) == 3


@pytest.mark.parametrize("number", [3, 7])
def test_a_file_that_takes_long_holds_up_only_those_after_it(
    table: Table, runs: list[int], released: threading.Event, number: int
) -> None:
    table.storage.faults[f"part-{number}.parquet"] = [waits_for(released)]
    with execute(table.plan()) as batches:
        began = time.monotonic()
        assert first(batches, number) == list(range(number))
        assert time.monotonic() - began < 5
        wait_for(lambda: len(requested(table)) == FILES)
        released.set()
        assert sum(batch.num_rows for batch in batches) == (FILES - number) * ROWS
    assert runs == [8, 8, 8]


@pytest.mark.parametrize("given", [0, 3])
def test_the_end_in_the_middle_of_a_run_is_at_once(
    table: Table, runs: list[int], released: threading.Event, given: int
) -> None:
    table.storage.faults[BAD] = [waits_for(released)]
    batches = execute(table.plan())
    if given:
        first(batches, given)
    else:
        failing_consumer(batches)
        wait_for(lambda: BAD in requested(table))
    began = time.monotonic()
    batches.close()
    assert time.monotonic() - began < 2
    wait_for(lambda: not listing_threads())


# === Memory ===


@pytest.mark.parametrize("faults", [[], [503], [404]])
def test_all_memory_is_given_back_and_no_cycle_keeps_any(
    table: Table, runs: list[int], engines: list[Engine], faults: list[int]
) -> None:
    table.storage.faults[BAD] = [status(code) for code in faults]

    def read() -> None:
        # Several row groups are decoded apart.
        for batch in execute(table.plan()):
            assert batch.num_rows

    table.add(numbered(0, 3_000), name="large.parquet", write={"row_group_size": 1_000})
    table.adds.insert(1, table.adds.pop())
    gc.collect()
    gc.disable()
    try:
        before = arrow_bytes()
        try:
            read()
        except DataError:
            assert faults == [404]
        else:
            r = engines[0]._resources
            assert (r.fetched._in_use, r.fetched._granted, r.decoded._in_use, r.decoded._granted) == (0, {}, 0, {})
        engines.clear()
        wait_for(lambda: not listing_threads())
        assert arrow_bytes() - before < 10_000
    finally:
        gc.enable()


def test_a_grant_is_divided_and_others_wait_as_before() -> None:
    window = Window(100)
    assert window.acquire((0, 0), 90).done()
    waiting = window.acquire((9, 0), 60)
    window.divide((0, 0), {(0, 0): 50, (1, 0): 40})
    assert not waiting.done()
    window.release((0, 0))
    assert waiting.done()
    window.release((1, 0))
    window.release((9, 0))
    assert (window._in_use, window._granted) == (0, {})
