"""Filters on each type of column, in files whose pages Spark wrote in both versions of data pages."""

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
from tests.unit.decode.test_pages import make_eager, order, rows_as_text
from tests.unit.storages import Table

MakeTable = Callable[..., Table]
UTC = datetime.timezone.utc
FILES = pathlib.Path(__file__).parent / "spark_pages"
# The strings begin alike, so Spark truncates their bounds to the same prefix; pages of doubles have no bounds because
# of NaN.
SKIPPED = ("n", "integer", "float", "binary", "date", "instant", "ntz", "decimal", "small", "gaps", "pair.x")


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)


@pytest.fixture(params=["v1", "v2", "required"])
def spark_file(request: pytest.FixtureRequest, make_table: MakeTable) -> tuple[Table, pa.Table]:
    """Return a table with one file of Spark, and its rows as pyarrow reads them."""
    data = (FILES / f"{request.param}.parquet").read_bytes()
    rows = pq.read_table(pa.BufferReader(data)).replace_schema_metadata()
    instants, utc = rows.schema.get_field_index("instant"), pa.timestamp("us", "UTC")
    rows = rows.set_column(instants, rows.schema.field(instants).with_type(utc), rows["instant"].cast(utc))
    table = make_table(rows.schema)
    table.add(data)
    return table, rows


def test_range_filter_on_each_column_finds_its_rows(spark_file: tuple[Table, pa.Table]) -> None:
    table, rows = spark_file
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
        matching = table.read(report, filter=(col(column) >= lower) & (col(column) <= upper))
        assert rows_as_text(matching) == rows_as_text(rows.take(pa.array(expected, pa.int64()))), column
        if report.pages_skipped:
            skipping.append(column)
    assert set(SKIPPED) <= set(skipping)
    assert not {"text", "double"} & set(skipping)


@pytest.mark.parametrize(
    ("column", "value", "row"),
    [
        ("float", 77.0, 308),
        ("instant", datetime.datetime(2020, 9, 13, 12, 30, 0, 200, UTC), 200),
        ("decimal", decimal.Decimal("7.700"), 770),
    ],
)
def test_equality_filter_finds_its_row(spark_file: tuple[Table, pa.Table], column: str, value: Any, row: int) -> None:
    table, rows = spark_file
    report = ScanReport()
    matching = table.read(report, columns=["n", "text", column], filter=col(column) == value)
    assert matching.to_pylist() == rows.select(["n", "text", column]).slice(row, 1).to_pylist()
    assert report.pages_skipped >= 2 * 20


def test_null_rows_are_found(spark_file: tuple[Table, pa.Table]) -> None:
    table, rows = spark_file
    gaps = rows["gaps"].to_pylist()
    report = ScanReport()
    few = table.read(report, filter=col("gaps").is_null() & (col("n") < 100))
    assert few["n"].to_pylist() == [row for row in range(100) if gaps[row] is None]
    assert report.pages_skipped > 100
    many = table.read(columns=["n"], filter=col("gaps").is_null() | (col("date") == datetime.date(2020, 1, 2)))
    assert many["n"].to_pylist() == [row for row in range(1200) if gaps[row] is None or row == 1]
    report = ScanReport()
    # Two pages have only nulls.
    assert table.read(report, columns=["gaps"], filter=col("gaps") >= 0).num_rows == len(gaps) - gaps.count(None)
    assert report.pages_skipped == 2
