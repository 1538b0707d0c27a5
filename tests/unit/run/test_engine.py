from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import functools
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from delta_sharing_client.decode import decoder
from delta_sharing_client.decode.file_read import Shared
from delta_sharing_client.decode.pace import Pace
from delta_sharing_client.decode.rows import FileRows, nothing
from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError, TransportError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run import engine
from delta_sharing_client.run.batches import Batches
from tests.memory import arrow_bytes
from tests.unit.storages import Table, fast_options, parquet_bytes, rows_of, wait_for
from tests.vectors import encode_inline
from tests.versions import VERIFIES_PAGES

MakeTable = Callable[..., Table]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def numbered(start: int, stop: int) -> pa.Table:
    ids = list(range(start, stop))
    return pa.table({"id": ids, "name": [f"row {i}" for i in ids]}, schema=SCHEMA)


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    result = make_table(SCHEMA)
    for part in range(5):
        result.add(numbered(part * 100, part * 100 + 100), stats={"numRecords": 100})
    return result


def test_small_files_need_one_request_each_and_keep_their_order(table: Table) -> None:
    report = ScanReport()
    assert table.read(report).equals(numbered(0, 500))
    assert len(table.storage.requests) == 5 == report.requests
    assert not any("Authorization" in request.headers for request in table.storage.requests)
    assert report.bytes == sum(len(data) for data in table.storage.files.values())
    assert (report.files, report.rows, report.retries) == (5, 500, 0)
    assert set(report.seconds) >= {"plan", "fetch", "decode", "total"}


def test_columns_are_returned_in_the_requested_order(table: Table) -> None:
    assert table.read(columns=["name", "id"]).column_names == ["name", "id"]


def test_unselected_filter_column_is_read_and_dropped(table: Table) -> None:
    rows = table.read(columns=["name"], filter=(col("id") >= 150) & (col("id") < 152))
    assert rows.to_pydict() == {"name": ["row 150", "row 151"]}


def test_file_decoded_in_pieces_has_all_rows(make_table: MakeTable) -> None:
    rows = pa.table({"id": range(800_000), "other": range(800_000, 1_600_000)})
    table = make_table(rows.schema)
    table.add(rows, write={"row_group_size": 40_000, "compression": "none", "use_dictionary": False})
    assert table.storage.bytes_of("part-0.parquet") > 12 * 1024 * 1024
    assert table.read().equals(rows)


def test_decoded_size_is_first_estimated_as_twice_the_file_size(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[int] = []

    def shared(**values: Any) -> Shared:
        first.append(values["ratio"].expected(100))
        return Shared(**values)

    monkeypatch.setattr(engine, "Shared", shared)
    table.read()
    assert first == [200]


def test_read_of_an_empty_table_has_the_schema(make_table: MakeTable) -> None:
    result = make_table(SCHEMA).read()
    assert result.num_rows == 0
    assert result.schema == SCHEMA


def test_files_without_rows_give_no_batches(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 0))
    table.add(numbered(0, 3))
    assert [batch.num_rows for batch in Batches(table.plan())] == [3]


def test_batches_are_at_most_as_long_as_requested(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 1000))
    sizes = [batch.num_rows for batch in Batches(table.plan(options=fast_options(batch_rows=300)))]
    assert max(sizes) <= 300
    assert sum(sizes) == 1000


def test_long_run_lengths_are_not_unpacked_at_once(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    # A test table of Delta with 2^31 rows has 8 MB; unpacked at once it took 12 GB.
    monkeypatch.setattr("delta_sharing_client.decode.file_read._LARGE", 1_000_000)
    rows = 4_000_000
    table = make_table(pa.schema([("id", pa.int32())]))
    table.add(pa.table({"id": pa.repeat(pa.scalar(7, pa.int32()), rows)}))
    before = arrow_bytes()
    batches = Batches(table.plan())
    assert next(batches).num_rows < rows // 10
    assert arrow_bytes() - before < rows
    assert sum(batch.num_rows for batch in batches) > rows * 9 // 10


def test_counting_rows_by_statistics_downloads_nothing(table: Table) -> None:
    result = sum(batch.num_rows for batch in Batches(table.plan(columns=[])))
    assert result == 500
    assert table.storage.requests == []


def test_rows_without_columns_are_generated_lazily(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("id", pa.int64()), ("day", pa.string())]), ["day"])
    table.add(pa.table({"id": [1]}), stats={"numRecords": 10**12}, partition_values={"day": "monday"})
    before = arrow_bytes()
    with Batches(table.plan(columns=["day"])) as batches:
        rows = sum(next(batches).num_rows for _ in range(20))
        assert rows > 1_000_000
        assert arrow_bytes() - before < 32_000_000


def test_counting_rows_without_statistics_reads_only_footers(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 100_000))
    report = ScanReport()
    assert sum(batch.num_rows for batch in Batches(table.plan(columns=[]), report)) == 100_000
    assert report.bytes < 10_000
    assert len(table.storage.requests) == 1


# --- limit ---


def test_a_limit_opens_no_more_files_than_it_needs(table: Table) -> None:
    report = ScanReport()
    assert table.read(report, limit=110).equals(numbered(0, 110))
    assert report.files_skipped == 3
    assert len(table.storage.requests) == 2


def test_a_limit_without_row_counts_opens_few_files(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    for part in range(64):
        table.add(numbered(part * 100, part * 100 + 100))
    assert table.read(limit=10).equals(numbered(0, 10))
    assert len(table.storage.requests) <= 4


def test_a_limit_counts_rows_after_the_filter(table: Table) -> None:
    assert table.read(filter=col("id") >= 399, limit=2)["id"].to_pylist() == [399, 400]


def test_a_limit_of_zero_reads_nothing(table: Table) -> None:
    assert table.read(limit=0).num_rows == 0
    assert table.storage.requests == []


def test_a_negative_limit_is_refused(table: Table) -> None:
    with pytest.raises(UsageError, match="limit"):
        table.plan(limit=-1)


# --- bounds and cancellation ---


def test_no_more_requests_are_in_flight_than_allowed(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    for part in range(12):
        table.add(numbered(part * 10, part * 10 + 10))
    table.storage.latency = 0.02
    result = rows_of(table.plan(options=fast_options(max_concurrent_requests=3)))
    assert result.num_rows == 120
    assert 1 < table.storage.most_in_flight <= 3


def test_connections_are_kept_alive(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    for part in range(12):
        table.add(numbered(part * 10, part * 10 + 10))
    rows_of(table.plan(options=fast_options(max_concurrent_requests=2)))
    rows_of(table.plan(options=fast_options(max_concurrent_requests=2)))
    assert len(table.storage.requests) == 24
    assert table.storage.server.connections <= 2


def test_slow_consumer_limits_downloads(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    for part in range(20):
        table.add(numbered(part * 1000, part * 1000 + 1000))
    batches = Batches(table.plan(options=fast_options(max_bytes_in_flight=1)))
    first = next(batches).num_rows
    time.sleep(0.2)
    # The file being consumed, and at most one that was admitted when the first file was done.
    assert len(table.storage.requests) <= 2
    assert first + sum(batch.num_rows for batch in batches) == 20_000


def test_error_names_table_and_file_and_hides_the_signature(table: Table) -> None:
    del table.storage.files["part-2.parquet"]
    with pytest.raises(DataError) as caught:
        table.read()
    text = str(caught.value)
    assert "share.schema.t" in text
    assert "id-part-2.parquet" in text
    assert "vacuumed" in text
    assert "signature" not in text


def test_missing_file_beyond_the_limit_is_ignored(table: Table) -> None:
    del table.storage.files["part-4.parquet"]
    assert table.read(limit=50).num_rows == 50


def test_an_unreadable_file_is_an_error(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(b"this is no Parquet file, but it is long enough to be one " * 3)
    with pytest.raises(DataError, match="PAR1"):
        table.read()


@pytest.mark.skipif(not VERIFIES_PAGES, reason="this pyarrow does not verify the checksums of pages")
def test_a_damaged_page_is_an_error(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    blob = bytearray(parquet_bytes(numbered(0, 1000), write_page_checksum=True, compression="NONE"))
    blob[200] ^= 0xFF
    table.add(bytes(blob))
    with pytest.raises(DataError, match="id-part-0"):
        table.read()


def test_row_counts_that_contradict_the_log_are_an_error(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 10), stats={"numRecords": 11})
    with pytest.raises(DataError, match="11 rows"):
        table.read()


# --- tasks read without their plan ---


def test_task_reads_the_same_rows_in_another_process(table: Table, tmp_path: Path) -> None:
    plan = table.plan(filter=col("id") >= 150)
    path = tmp_path / "task.pickle"
    part = dataclasses.replace(plan, tasks=plan.tasks[1:2])
    path.write_bytes(pickle.dumps(part))
    program = (
        "import pickle, sys; from delta_sharing_client.run.batches import Batches\n"
        "print(sum(batch.num_rows for batch in Batches(pickle.load(open(sys.argv[1], 'rb')))))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert int(done.stdout) == sum(batch.num_rows for batch in Batches(part)) == 50


def test_some_tasks_of_a_plan_are_read_in_order(table: Table) -> None:
    plan = table.plan()
    rows = pa.Table.from_batches(Batches(dataclasses.replace(plan, tasks=plan.tasks[3:])))
    assert rows.equals(numbered(300, 500))


def test_row_groups_of_a_task_can_be_chosen(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 100), write={"row_group_size": 10})
    plan = table.plan()
    task = type(plan.tasks[0])(**{**_fields(plan.tasks[0]), "row_groups": (2, 5)})
    rows = pa.Table.from_batches(Batches(dataclasses.replace(plan, tasks=[task])))
    assert rows["id"].to_pylist() == [*range(20, 30), *range(50, 60)]


def _fields(task: object) -> dict[str, object]:
    return {name: getattr(task, name) for name in task.__struct_fields__}  # type: ignore[attr-defined]


def test_repr_of_plan_and_tasks_shows_no_signature(table: Table) -> None:
    plan = table.plan()
    assert "signature" not in repr(plan.tasks)
    assert "signature" not in repr(plan)


def test_url_that_is_not_http_is_refused(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 10))
    table.move("file:///etc/passwd")
    with pytest.raises(Exception, match="https"):
        table.read()


def test_unreachable_server_is_a_transport_error(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(numbered(0, 10))
    table.move("http://127.0.0.1:1/part?X-Amz-Signature=secret-signature")
    with pytest.raises(TransportError) as caught:
        rows_of(table.plan(options=fast_options(max_attempts=2)))
    assert "signature" not in str(caught.value)


def test_progress_is_reported_after_each_file(table: Table) -> None:
    seen = []
    report = ScanReport(on_progress=seen.append)
    table.read(report)
    assert [progress.files_done for progress in seen] == [1, 2, 3, 4, 5]
    assert seen[-1].bytes_done == seen[-1].bytes_total == sum(map(len, table.storage.files.values()))


def ahead_of_the_first(make_table: MakeTable, parts: int, wanted: int, seconds: float) -> list[int]:
    """Read ``parts`` files, two at a time. Delay the response for the first file until ``seconds`` after request
    number ``wanted``, and return the number of requests received by then."""
    table = make_table(SCHEMA)
    for part in range(parts):
        table.add(numbered(part * 10, part * 10 + 10))
    asked: list[int] = []

    def waits(*_: object) -> bool:
        with contextlib.suppress(AssertionError):
            wait_for(lambda: len(table.storage.requests) >= wanted)
        time.sleep(seconds)
        asked.append(len(table.storage.requests))
        return False

    table.storage.faults["part-0.parquet"] = [waits]
    assert rows_of(table.plan(options=fast_options(max_concurrent_requests=2))).equals(numbered(0, 10 * parts))
    return asked


def test_delayed_file_does_not_delay_the_others(make_table: MakeTable) -> None:
    # With two files at a time, four are read ahead, but more are read while the first one is delayed.
    assert ahead_of_the_first(make_table, 8, wanted=8, seconds=0.0) == [8]


def test_read_ahead_of_a_delayed_file_is_bounded(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_sharing_client.run.engine._MOST_AHEAD", 2)
    # The reader looks for delayed files a few times a second.
    assert ahead_of_the_first(make_table, 16, wanted=8, seconds=0.6) == [8]


def test_dropped_rows_are_released_and_not_awaited() -> None:
    async def check() -> None:
        slot = FileRows((FileTask(key="k", url="https://h/f"),), Pace(whole=True), nothing, nothing)
        released: list[int] = []
        for number in range(3):
            slot.send([], functools.partial(released.append, number))
        assert slot.drop()
        assert released == [0, 1, 2]
        await asyncio.wait_for(slot.taken(0), 1)

    asyncio.run(check())


@pytest.mark.parametrize("kind", ["i", "p"])
def test_deletion_vector_error_names_table_and_file(make_table: MakeTable, kind: str) -> None:
    table = make_table(pa.schema([("n", pa.int64())]))
    place = table.storage.put("dv.bin", bytes(100)) if kind == "p" else "!"
    descriptor = DeletionVectorDescriptor(kind, place, 40, 2, 1)
    added = table.add(pa.table({"n": [1, 2, 3]}), removed=[], deletion_vector=descriptor)
    with pytest.raises(DataError) as caught:
        table.read()
    assert (caught.value.table, caught.value.file_id) == ("share.schema.t", added.file_id)


# --- files whose rows are known without a request ---


@pytest.fixture
def days(make_table: MakeTable) -> Table:
    """Create 40 files, one for each day; file number N has N rows. Every tenth has a deletion vector, every seventh
    has no row count, and the last has a partition value that is not a date."""
    content = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    result = make_table(content, partition_columns=["day"])
    for number in range(40):
        rows = pa.table({"id": pa.array(range(number), pa.int64())})
        vector = encode_inline(DeletionVector.from_positions([0])) if number and number % 10 == 0 else None
        result.add(
            rows,
            stats=None if number % 7 == 3 else {"numRecords": number},
            partition_values={"day": f"2024-01-{1 + number % 28:02d}"},
            **({"deletion_vector": vector} if vector is not None else {}),
        )
    return result


def expected_days() -> list[datetime.date]:
    counts = [number - (1 if number and number % 10 == 0 else 0) for number in range(40)]
    return [datetime.date(2024, 1, 1 + number % 28) for number, count in enumerate(counts) for _ in range(count)]


@pytest.mark.parametrize("batch_rows", [1, 7, 100, 10_000])
def test_rows_of_constant_files_are_batched_in_order(days: Table, batch_rows: int) -> None:
    report = ScanReport()
    options = fast_options(batch_rows=batch_rows)
    batches = list(Batches(days.plan(columns=["day"], options=options), report))
    rows = pa.Table.from_batches(batches)
    assert rows["day"].to_pylist() == expected_days()
    assert (report.files, report.rows) == (40, len(expected_days()))
    assert max(batch.num_rows for batch in batches) <= batch_rows
    if batch_rows == 10_000:
        # One batch for each file that needs a request, and one for the files between them.
        assert len(batches) <= 2 * (4 + 6) + 1
    assert {request.name for request in days.storage.requests} == {
        f"part-{number}.parquet" for number in range(40) if number % 7 == 3
    }


def test_constant_files_without_columns_are_counted(days: Table) -> None:
    assert sum(batch.num_rows for batch in Batches(days.plan(columns=[]))) == len(expected_days())


@pytest.mark.parametrize("limit", [0, 1, 5, 36, 300, 10_000])
def test_limit_may_end_within_constant_files(days: Table, limit: int) -> None:
    assert days.read(columns=["day"], limit=limit)["day"].to_pylist() == expected_days()[:limit]


def test_a_filter_is_evaluated_for_each_constant_file(days: Table) -> None:
    first = datetime.date(2024, 1, 9)
    rows = days.read(columns=["day"], filter=col("day") >= first)
    assert rows["day"].to_pylist() == [day for day in expected_days() if day >= first]


def test_filter_is_evaluated_jointly_for_constant_files(days: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[int] = []
    mask = decoder.predicate_mask

    def counted(predicate: Any, batch: pa.RecordBatch) -> Any:
        evaluated.append(batch.num_rows)
        return mask(predicate, batch)

    monkeypatch.setattr(decoder, "predicate_mask", counted)
    days.read(columns=["day"], filter=col("day") >= datetime.date(2024, 1, 2))
    assert max(evaluated) > 4  # one batch has rows of several files
    assert sum(evaluated) <= 40


def test_failing_filter_names_the_constant_file(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("id", pa.int64()), ("n", pa.int64())]), partition_columns=["n"])
    for number in range(50):
        value = str((1 << 63) - 1 if number == 30 else number)
        table.add(pa.table({"id": [number]}), stats={"numRecords": 1}, partition_values={"n": value})
    batches = Batches(table.plan(columns=["n"], filter=parse_filter("n + 1 > 10")))
    with pytest.raises(DataError, match="overflow") as caught:
        pa.Table.from_batches(batches)
    assert caught.value.file_id == "id-part-30.parquet"
    kept = table.read(columns=["n"], filter=parse_filter("n < 100 and n + 1 > 10"))
    assert kept["n"].to_pylist() == [number for number in range(10, 50) if number != 30]


@pytest.mark.parametrize("columns", [["p"], ["id", "p"]], ids=["constants", "file"])
def test_long_partition_value_gives_small_batches(make_table: MakeTable, columns: list[str]) -> None:
    table = make_table(pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_columns=["p"])
    texts = ["x" * 40_000, "é" * 20_000, "z", "\U0001f600" * 10_000]
    for text in texts:
        table.add(pa.table({"id": range(1_000)}), stats={"numRecords": 1_000}, partition_values={"p": text})
    options = fast_options(max_bytes_in_flight=16_000_000, batch_rows=100_000)
    lengths: list[int] = []
    for batch in Batches(table.plan(columns=columns, options=options)):
        batch.validate(full=True)
        assert batch.nbytes <= 4_100_000
        lengths += pc.binary_length(batch["p"]).to_pylist()
    assert lengths == [length for length in (40_000, 40_000, 1, 40_000) for _ in range(1_000)]


@pytest.mark.parametrize(("files", "is_elsewhere"), [(20, False), (21, True)])
def test_many_constant_files_are_generated_off_the_event_loop(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, files: int, is_elsewhere: bool
) -> None:
    table = make_table(pa.schema([("id", pa.int64()), ("n", pa.int64())]), partition_columns=["n"])
    for number in range(files):
        table.add(pa.table({"id": [number]}), stats={"numRecords": 1}, partition_values={"n": str(number)})
    threads: set[str] = set()
    make = decoder._constant_batch

    def noted(*arguments: Any) -> pa.RecordBatch:
        threads.add(threading.current_thread().name.rpartition("_")[0] or threading.current_thread().name)
        return make(*arguments)

    monkeypatch.setattr(decoder, "_constant_batch", noted)
    assert table.read(columns=["n"])["n"].to_pylist() == list(range(files))
    assert threads == {"delta-sharing-decode" if is_elsewhere else "delta-sharing-loop"}


def test_invalid_partition_value_error_names_the_file(days: Table) -> None:
    file = days.adds[19]
    days.adds[19] = replace(file, action=replace(file.action, partition_values={"day": "no day"}))
    with pytest.raises(DataError, match="no day") as caught:
        days.read(columns=["day"])
    assert (caught.value.table, caught.value.file_id) == ("share.schema.t", "id-part-19.parquet")


def test_progress_counts_every_constant_file(days: Table) -> None:
    seen = []
    report = ScanReport()
    report.on_progress = lambda progress: seen.append(progress.files_done)
    for _ in Batches(days.plan(columns=["day"]), report):
        pass
    assert seen[-1] == 40
    assert seen == sorted(seen)
