"""Lack of memory is an error of its own, in every place that decodes data; it is never called damaged data."""

from __future__ import annotations

import ast
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client import errors, queries, testing
from delta_sharing_client.decode import decoder
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.writer import add_checkpoint
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.errors import DataError, OutOfMemoryError, UsageError, lack_of_memory, limit_reached
from delta_sharing_client.iceberg import avro, positions
from delta_sharing_client.parquet import footer
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from mock_server.iceberg_avro import avro_file, manifest_schema
from tests.tables import TableWriter, rows_of
from tests.unit.storages import Table, fast_options, parquet_bytes

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "delta_sharing_client"
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = pa.table({"id": range(100), "text": [f"row {i}" for i in range(100)]})
ERRORS = [
    pa.ArrowMemoryError("realloc of size 14745600 failed"),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    MemoryError(),
    MemoryError("Unable to allocate 1.00 GiB for an array with shape (134217728,) and data type int64"),
]
by_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__ + str(error)[:20])


def fails_with(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ERRORS[0], "refused 14,745,600 bytes of memory"),
        (ERRORS[1], "refused 64 bytes of memory"),
        (ERRORS[2], "refused memory to"),
        (ERRORS[3], "refused 1,073,741,824 bytes of memory"),
        (MemoryError("Unable to allocate 512. KiB for an array"), "refused 524,288 bytes of memory"),
        (MemoryError("Unable to allocate 800 bytes for an array"), "refused 800 bytes of memory"),
    ],
)
def test_message_says_how_much_was_asked_for(error: MemoryError, words: str) -> None:
    found = lack_of_memory(error)

    assert found is not None
    assert words in str(found)
    assert all(option in str(found) for option in ("max_bytes_in_flight", "batch_rows", "spark.executor"))
    assert isinstance(found, MemoryError)
    assert lack_of_memory(found) is found
    assert limit_reached(error) is not None


def test_texts_of_the_libraries_are_understood() -> None:
    """Each library really refuses to allocate an amount of memory that no data needs."""
    asked = []
    for allocate in (lambda: pa.allocate_buffer(1 << 60), lambda: np.empty(1 << 57)):
        with pytest.raises(MemoryError) as caught:
            allocate()
        asked.append(errors._asked_bytes(caught.value))
        assert lack_of_memory(caught.value) is None
    assert asked == [1 << 60, 1 << 60]
    assert lack_of_memory(ValueError("malloc of size 64 failed")) is None


@by_error
def test_read_without_memory_is_no_error_of_the_data(
    make_table: Callable[..., Table], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(SCHEMA)
    table.add(ROWS, write={"row_group_size": 20})
    for request in ({}, {"filter": col("id") > 50}):
        with monkeypatch.context() as patch:
            patch.setattr(footer, "open_reader", fails_with(error))
            with pytest.raises(OutOfMemoryError) as caught:
                list(Batches(table.plan(options=fast_options(), **request)))
        assert caught.value.table is not None
        assert caught.value.file_id is not None
    assert sum(batch.num_rows for batch in Batches(table.plan(options=fast_options()))) == 100


@by_error
def test_step_of_a_read_without_memory_names_the_table(
    make_table: Callable[..., Table], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no error of data is expected: in the calls that align and filter rows, and in the engine."""
    table = make_table(SCHEMA)
    table.add(ROWS)
    for owner, name in ((decoder.FileDecoder, "_batch"), (decoder.FileDecoder, "batches")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails_with(error))
            with pytest.raises(OutOfMemoryError) as caught:
                list(Batches(table.plan(options=fast_options())))
        assert caught.value.table is not None


@by_error
def test_metadata_without_memory_is_no_error_of_the_data(
    tmp_path: pathlib.Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = avro_file(manifest_schema(), [], {"content": "data"}, codec="deflate")
    assert list(avro.read_avro(manifest, "m.avro").records) == []
    monkeypatch.setattr(avro, "_open", fails_with(error))
    with pytest.raises(MemoryError):
        avro.read_avro(manifest, "m.avro")
    monkeypatch.setattr(positions, "open_reader", fails_with(error))
    with pytest.raises(MemoryError):
        positions.read_positions(position_deletes(), 1, "deletes.parquet")

    log = with_checkpoint(tmp_path)
    assert DeltaLog.open(log).snapshot().version == 1
    for name in ("iter_batches", "schema_arrow"):
        with monkeypatch.context() as patch:
            fail = fails_with(error)
            patch.setattr(pq.ParquetFile, name, property(fail) if name == "schema_arrow" else fail)
            with pytest.raises(MemoryError):
                DeltaLog.open(log).snapshot()


def position_deletes() -> bytes:
    ids = [{b"PARQUET:field_id": b"2147483546"}, {b"PARQUET:field_id": b"2147483545"}]
    fields = [pa.field("file_path", pa.string(), False, ids[0]), pa.field("pos", pa.int64(), False, ids[1])]
    return parquet_bytes(pa.table([["f"], [0]], schema=pa.schema(fields)))


def with_checkpoint(folder: pathlib.Path) -> pathlib.Path:
    writer = TableWriter(folder / "t", pa.schema([("id", pa.int64())]))
    writer.insert(rows_of([1, 2]))
    add_checkpoint(writer.path, DeltaLog.open(writer.path).snapshot(want=Want.STATS | Want.TOMBSTONES))
    for commit in sorted((writer.path / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    return writer.path


def test_damaged_size_that_no_memory_suffices_for_is_damage(
    make_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(SCHEMA)
    table.add(ROWS)

    def ask(*_: Any) -> Iterator[Any]:
        raise pa.ArrowMemoryError(f"malloc of size {1 << 40} failed")
        yield

    monkeypatch.setattr(decoder.FileDecoder, "_raw", ask)
    with pytest.raises(DataError, match="cannot be decoded: malloc of size 1099511627776 failed"):
        list(Batches(table.plan(options=fast_options())))


def test_thread_that_cannot_be_started_is_no_damage(
    make_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(SCHEMA)
    table.add(ROWS)
    error = pa.lib.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable")
    monkeypatch.setattr(footer, "open_reader", fails_with(error))
    with pytest.raises(UsageError, match="No thread can be started to decode data"):
        list(Batches(table.plan(options=fast_options())))


def test_lack_of_memory_in_duckdb_is_no_mistake_in_the_sql() -> None:
    connection = duckdb.connect(config={"memory_limit": "1MB", "max_temp_directory_size": "0KB", "threads": 1})
    client: Any = None
    lack = r"DuckDB has too little memory.*'SET memory_limit'\."
    with pytest.raises(OutOfMemoryError, match=lack), queries.errors_of(client):
        connection.sql("SELECT list(range) FROM range(10000000)").fetchall()
    with pytest.raises(UsageError, match="DuckDB cannot run the SQL"), queries.errors_of(client):
        connection.sql("SELECT nonsense")


# --- every place ---

# Handlers that need not ask whether memory was lacking, by file and line of code.
EXEMPT = {("parquet/reader.py", "_jemalloc")}


def test_handlers_of_decoding_errors_ask_for_lack_of_memory() -> None:
    """Arrow's errors include its error for lack of memory, so a handler that calls the data damaged must ask first."""
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        tuples = {"ARROW_ERRORS"} | {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign) and "ArrowException" in ast.unparse(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for function in (node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
            for handler in (node for node in ast.walk(function) if isinstance(node, ast.ExceptHandler)):
                kinds = "" if handler.type is None else ast.unparse(handler.type)
                names = {node.id for node in ast.walk(handler.type or ast.Pass()) if isinstance(node, ast.Name)}
                if "ArrowException" not in kinds and not names & tuples:
                    continue
                if (path.relative_to(PACKAGE).as_posix(), function.name) in EXEMPT:
                    continue
                found += 1
                first = ast.unparse(handler.body[0])
                assert first == f"check_memory({handler.name})", f"{path}:{handler.lineno} must call check_memory first"
    assert found >= 18


CHILD = """
import resource, sys
import delta_sharing_client as ds
import delta_sharing_client.run.engine
with ds.SharingClient(sys.argv[1]) as client:
    scan = client.table("s.d.t").scan()
    scan.schema
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[2]) * 2**20,) * 2)
    try:
        print(sum(batch.num_rows for batch in scan.to_batches()))
    except BaseException as error:
        print(type(error).__name__, isinstance(error, MemoryError), str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS limits memory on Linux")
def test_read_in_a_process_with_little_memory_says_so(tmp_path: pathlib.Path) -> None:
    rows = pa.table({"id": range(30_000), "text": [f"x{i}" * 2400 for i in range(30_000)]})
    outcomes = []
    with testing.running({"s.d.t": rows}) as server:
        for more in (100, 250, 400):
            arguments = [sys.executable, "-c", CHILD, str(server.profile_path), str(more)]
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=100, cwd=ROOT)
            outcomes.append(done.stdout.strip())
    assert not [one for one in outcomes if one.startswith("DataError")]
    assert any(one.startswith("OutOfMemoryError True") for one in outcomes), outcomes
