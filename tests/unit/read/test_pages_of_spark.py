"""Pages that Spark wrote, in both versions of data pages, through predicates on every type of column."""

from __future__ import annotations

import datetime
import decimal
import pathlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.predicates.tree import col
from tests.unit.read.test_pages import make_eager, order, rows_as_text
from tests.unit.storages import Table

MakeTable = Callable[..., Table]
UTC = datetime.timezone.utc
FILES = pathlib.Path(__file__).parent / "spark_pages"
# Texts here are alike up to where Spark cuts their bounds off, and every page of doubles has a NaN: no bounds at all.
SKIPPED = ("n", "integer", "float", "binary", "date", "instant", "ntz", "decimal", "small", "gaps", "pair.x")


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)


def content(name: str) -> tuple[bytes, pa.Table]:
    data = (FILES / f"{name}.parquet").read_bytes()
    rows = pq.read_table(pa.BufferReader(data)).replace_schema_metadata()
    instants = rows.schema.get_field_index("instant")
    return data, rows.set_column(
        instants,
        rows.schema.field(instants).with_type(pa.timestamp("us", "UTC")),
        rows["instant"].cast(pa.timestamp("us", "UTC")),
    )


@pytest.mark.parametrize("name", ["v1", "v2", "required"])
def test_rows_within_two_values_of_a_column(make_table: MakeTable, name: str) -> None:
    data, rows = content(name)
    table = make_table(rows.schema)
    table.add(data)
    skipping = []
    for column in [*rows.column_names[:-2], "pair.x", "pair.y"]:
        values = rows["pair"].combine_chunks().field(column[-1]) if "." in column else rows[column]
        values = values.to_pylist()
        lower, upper = values[451], values[457]
        expected = [
            row
            for row, value in enumerate(values)
            if value is not None and order(lower) <= order(value) <= order(upper)
        ]
        report = ScanReport()
        found = table.read(report, filter=(col(column) >= lower) & (col(column) <= upper))
        assert rows_as_text(found) == rows_as_text(rows.take(pa.array(expected, pa.int64()))), column
        if report.pages_skipped:
            skipping.append(column)
    assert set(SKIPPED) <= set(skipping)
    assert not {"text", "double"} & set(skipping)


@pytest.mark.parametrize("name", ["v1", "v2", "required"])
@pytest.mark.parametrize(
    ("column", "value", "row"),
    [
        ("float", 77.0, 308),
        ("instant", datetime.datetime(2020, 9, 13, 12, 30, 0, 200, UTC), 200),
        ("decimal", decimal.Decimal("7.700"), 770),
    ],
)
def test_the_row_of_one_value(make_table: MakeTable, name: str, column: str, value: Any, row: int) -> None:
    data, rows = content(name)
    table = make_table(rows.schema)
    table.add(data)
    report = ScanReport()
    found = table.read(report, columns=["n", "text", column], filter=col(column) == value)
    assert found.to_pylist() == rows.select(["n", "text", column]).slice(row, 1).to_pylist()
    assert report.pages_skipped >= 2 * 20


@pytest.mark.parametrize("name", ["v1", "v2", "required"])
def test_nulls_are_those_of_the_file(make_table: MakeTable, name: str) -> None:
    data, rows = content(name)
    table = make_table(rows.schema)
    table.add(data)
    gaps = rows["gaps"].to_pylist()
    report = ScanReport()
    few = table.read(report, filter=col("gaps").is_null() & (col("n") < 100))
    assert few["n"].to_pylist() == [row for row in range(100) if gaps[row] is None]
    assert report.pages_skipped > 100
    many = table.read(columns=["n"], filter=col("gaps").is_null() | (col("date") == datetime.date(2020, 1, 2)))
    assert many["n"].to_pylist() == [row for row in range(1200) if gaps[row] is None or row == 1]
    report = ScanReport()
    # Two pages hold nothing but nulls.
    assert table.read(report, columns=["gaps"], filter=col("gaps") >= 0).num_rows == len(gaps) - gaps.count(None)
    assert report.pages_skipped == 2
