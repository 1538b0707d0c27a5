"""No Python code runs for each row: the number of calls depends only on files and row groups."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable

import pyarrow as pa
import pytest

from benchmarks.profiler import profiled
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.outputs import pandas as frames
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from tests.unit.storages import Table
from tests.vectors import encode_inline

MakeTable = Callable[..., Table]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("price", pa.decimal128(18, 2)),
        ("items", pa.list_(pa.int64())),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)


def part(start: int, rows: int) -> pa.Table:
    """Return rows; every tenth is null in all columns but the first."""
    when = datetime.datetime(2026, 11, 20)
    rows_as_dicts: list[dict[str, object]] = [
        {"id": start + number}
        if number % 10 == 0
        else {
            "id": start + number,
            "small": number % 100,
            "ratio": number / 7,
            "flag": number % 3 == 0,
            "day": when.date() + datetime.timedelta(days=number % 900),
            "at": when.replace(tzinfo=datetime.timezone.utc),
            "local": when,
            "text": f"text {number}",
            "blob": b"%d" % number,
            "price": decimal.Decimal(number),
            "items": [number, None],
            "pair": {"a": number, "b": None},
        }
        for number in range(rows)
    ]
    return pa.Table.from_pylist(rows_as_dicts, schema=SCHEMA)


@pytest.mark.parametrize("backend", ["numpy", "numpy_nullable", "pyarrow"])
@pytest.mark.parametrize("filtered", [False, True], ids=["all rows", "filtered"])
def test_number_of_python_calls_does_not_grow_with_rows(make_table: MakeTable, backend: str, filtered: bool) -> None:
    calls: list[int] = []
    for rows in (400, 8000):
        table = make_table(SCHEMA)
        gone = encode_inline(DeletionVector.from_positions(range(0, rows, 7)))
        for number in range(3):
            table.add(part(number * rows, rows), deletion_vector=gone, stats={"numRecords": rows})

        def read(table: Table = table) -> int:
            plan = table.plan(filter=(col("small") < 50) & (col("id") >= 0)) if filtered else table.plan()
            return len(
                frames.to_pandas(
                    plan.output_schema, Batches(plan), frames.check_dtype_backend(backend), plan.known_rows
                )
            )

        read()  # calls that happen once per process are not counted
        with profiled() as profile:
            assert read() > rows
        calls.append(profile.calls)

    assert calls[0] > 100
    assert calls[1] < 1.3 * calls[0], calls
