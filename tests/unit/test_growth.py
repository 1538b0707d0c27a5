"""Work grows linearly: twice the columns, files or pages take about twice the steps, not four times.

Steps are executed instructions of this package's Python code, which are the same on every machine. Steps that wait
for the engine or the network are counted separately, because their number depends on the machine.
"""

from __future__ import annotations

import contextlib
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.predicates.tree import Expression, all_of, col
from delta_sharing_client.run import loop
from tests.unit.decode.eager import make_eager
from tests.unit.storages import Table, metadata, running_storage
from tests.vectors import encode_inline

PACKAGE = str(pathlib.Path(delta_sharing_client.__file__).parent)
WAITING = tuple(f"{PACKAGE}/{room}/" for room in ("run", "fetch"))
# Linear work doubles with the input; differences remove the constant part.
MOST = 2.3
# Differences of quadratic work grow fourfold.
MOST_OF_WHAT_WAITS = 3.2


class Steps:
    def __init__(self) -> None:
        self.count = 0
        self.waiting = 0

    def of(self, frame: FrameType, event: str, _: object) -> Any:
        """Trace the functions of the package on every thread."""
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self._step_of_what_waits if name.startswith(WAITING) else self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Any:
        self.count += event == "opcode"
        return self._step

    def _step_of_what_waits(self, frame: FrameType, event: str, _: object) -> Any:
        self.waiting += event == "opcode"
        return self._step_of_what_waits


@contextlib.contextmanager
def counted() -> Iterator[Steps]:
    steps, before, running = Steps(), sys.gettrace(), loop.current()
    threading.settrace(steps.of)
    # Threads that already run are not traced.
    kept, running.decoders = running.decoders, loop.Decoders(running.loop)
    running.loop.call_soon_threadsafe(sys.settrace, steps.of)
    sys.settrace(steps.of)
    try:
        yield steps
    finally:
        running.decoders._executor.shutdown()
        running.decoders = kept
        running.loop.call_soon_threadsafe(sys.settrace, None)
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]


Make = Callable[[Table, int], dict[str, Any]]
LONG = pa.int64()


def numbers(count: int, rows: int = 2) -> pa.Table:
    return pa.table({f"column_{at}": pa.array([7] * rows, LONG) for at in range(count)})


def with_schema(table: Table, schema: pa.Schema, partitions: tuple[str, ...] = ()) -> None:
    table.metadata = metadata(schema, partitions)


def all_positive(names: list[Any]) -> Expression:
    return all_of(col(name) > 0 for name in names)


def columns(table: Table, count: int) -> dict[str, Any]:
    rows = numbers(count)
    with_schema(table, rows.schema)
    bounds = dict.fromkeys(rows.column_names, 7)
    stats = {"numRecords": 2, "minValues": bounds, "maxValues": bounds}
    table.add(rows, stats=stats, write={"write_page_index": True})
    return {}


def columns_by_name(table: Table, count: int) -> dict[str, Any]:
    columns(table, count)
    return {"columns": [f"column_{at}" for at in range(count)]}


def columns_in_a_filter(table: Table, count: int) -> dict[str, Any]:
    columns(table, count)
    return {"filter": all_positive([f"column_{at}" for at in range(count)])}


def fields_of_a_struct(table: Table, count: int) -> dict[str, Any]:
    names = [f"field_{at}" for at in range(count)]
    kind = pa.struct([pa.field(name, LONG) for name in names])
    schema = pa.schema([pa.field("s", kind)])
    with_schema(table, schema)
    table.add(pa.table({"s": pa.array([dict.fromkeys(names, 7)] * 2, kind)}, schema=schema))
    return {"columns": [f"s.{name}" for name in names], "filter": all_positive([("s", name) for name in names[:count]])}


def levels_of_nesting(table: Table, count: int) -> dict[str, Any]:
    kind: pa.DataType = LONG
    value: Any = 7
    for _ in range(count):
        kind, value = pa.struct([pa.field("s", kind)]), {"s": value}
    schema = pa.schema([pa.field("s", kind)])
    with_schema(table, schema)
    table.add(pa.table({"s": pa.array([value, value], kind)}, schema=schema))
    return {}


def partition_columns(table: Table, count: int) -> dict[str, Any]:
    names = tuple(f"p{at}" for at in range(count))
    with_schema(table, pa.schema([*(pa.field(name, LONG) for name in names), pa.field("a", LONG)]), names)
    for part in range(2):
        rows = pa.table({"a": pa.array([1, 2], LONG)})
        table.add(rows, name=f"{part}.parquet", partition_values=dict.fromkeys(names, str(part + 1)))
    return {"filter": all_positive(list(names))}


def files(table: Table, count: int) -> dict[str, Any]:
    gone = encode_inline(DeletionVector.from_positions([1]))
    for at in range(count):
        table.add(numbers(2), name=f"{at}.parquet", stats={"numRecords": 2}, deletion_vector=gone)
    return {"filter": col("column_0") > 0}


def row_groups(table: Table, count: int) -> dict[str, Any]:
    table.add(numbers(2, count * 5), write={"row_group_size": 5})
    return {"filter": col("column_0") > 0}


def pages(table: Table, count: int) -> dict[str, Any]:
    rows = pa.table({name: pa.array(range(count * 10), LONG) for name in ("column_0", "column_1")})
    paged = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 10, "use_dictionary": False}
    table.add(rows, write=paged)
    return {"filter": (col("column_0") > 20) & (col("column_0") < count * 10 - 20)}


def columns_in_pages(table: Table, count: int) -> dict[str, Any]:
    rows = pa.table({f"column_{at}": pa.array(range(200), LONG) for at in range(count)})
    with_schema(table, rows.schema)
    paged = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 20, "use_dictionary": False}
    table.add(rows, write=paged)
    return {"filter": col("column_0") < 15}


# The functions that make the input, and the first size, which is then doubled.
CASES: list[tuple[Make, int]] = [
    (columns, 100),
    (columns_by_name, 100),
    (columns_in_a_filter, 40),
    (columns_in_pages, 20),
    (fields_of_a_struct, 40),
    (levels_of_nesting, 10),
    (partition_columns, 40),
    (files, 10),
    (row_groups, 20),
    (pages, 40),
]


@pytest.mark.alone
def test_work_grows_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)
    work = {make.__name__: work_of(make, first) for make, first in CASES}

    grown = {}
    for name, found in work.items():
        (once, waited), (twice, waited_twice), (four_times, waited_four_times) = found
        assert twice > once, f"no steps of {name} were counted"
        assert waited, f"no waiting steps of {name} were counted"
        if four_times - twice > MOST * (twice - once):
            grown[name] = found
        # Growth that is small compared with the first count is ignored.
        if waited_four_times - waited_twice > MOST_OF_WHAT_WAITS * max(waited_twice - waited, waited / 4):
            grown[f"what waits for {name}"] = found
    assert not grown


def work_of(make: Make, first: int) -> list[tuple[int, int]]:
    """Return the steps of reads of once, twice and four times the input, and their waiting steps."""
    work: list[tuple[int, int]] = []
    with counted() as steps:
        # This first read imports and compiles modules, and is not counted.
        for count in (first, first, 2 * first, 4 * first):
            with running_storage() as storage:
                table = Table(storage, metadata(numbers(2).schema))
                request = make(table, count)
                before, waited = steps.count, steps.waiting
                result = table.read(**request)
            assert result.num_rows
            work.append((steps.count - before, steps.waiting - waited))
    return work[1:]
