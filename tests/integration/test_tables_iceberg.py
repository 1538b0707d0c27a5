"""Tables written by Iceberg's Spark runtime: snapshots and filters have the rows that Spark reads."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.predicates.parse import parse_filter
from tests.effort import sample
from tests.iceberg import lake
from tests.iceberg.warehouse import rows_of

LINEAGE = ["_row_id", "_last_updated_sequence_number"]
# Tables with filters on partition columns.
BY_PARTITION = [
    *("bucket-partitions", "evolved-partitions", "time-partitions", "truncate-decimal-partitions"),
    *("truncate-partitions", "year-hour-partitions"),
]
WITH_FILTERS = [name for name in lake.NAMES if lake.expected(name)["filters"]]


def _plain(table: pa.Table) -> pa.Table:
    """Return the rows without the columns of row lineage."""
    return table.drop_columns([name for name in LINEAGE if name in table.column_names])


def _check(table: pa.Table, rows: pa.Table) -> None:
    assert table.column_names == rows.column_names
    assert rows_of(table) == rows_of(rows)


@pytest.mark.parametrize("name", lake.NAMES)
def test_every_snapshot_has_the_rows_that_spark_reads(name: str) -> None:
    for number, snapshot in lake.snapshots(name):
        _check(lake.read(name, ScanRequest(version=snapshot["id"])), _plain(lake.rows(name, str(number))))
    for ref in lake.expected(name)["refs"]:
        _check(lake.read(name, ScanRequest(version=ref["name"])), lake.rows(name, f"{ref['type']}-{ref['name']}"))


@pytest.mark.parametrize("name", [name for name in lake.NAMES if lake.expected(name)["snapshots"]])
def test_current_rows_equal_those_that_spark_reads(name: str) -> None:
    _check(lake.read(name), _plain(lake.rows(name, "current")))


@pytest.mark.parametrize("name", [name for name in WITH_FILTERS if name != "not-a-number"])
def test_filters_select_the_rows_that_spark_selects(name: str) -> None:
    filters = lake.expected(name)["filters"]

    # Tables with "partitions" in their names have many random filters, of which a sample is enough; the other filters
    # were chosen by hand.
    for one in sample(filters, 3, WITH_FILTERS.index(name) % 3) if "partitions" in name else filters:
        rows = lake.read(name, ScanRequest(columns=["id"], filter=parse_filter(one["sql"])))
        assert sorted(rows["id"].to_pylist()) == one["ids"], one["sql"]


def test_nan_is_greater_than_every_number() -> None:
    # This is also true in Spark, but Iceberg's runtime skips files by bounds that ignore NaN, and so loses rows with
    # NaN.
    lost = 0
    rows = {row["id"]: row for row in lake.rows("not-a-number", "current").to_pylist()}

    for one in lake.expected("not-a-number")["filters"]:
        returned = lake.read("not-a-number", ScanRequest(columns=["id"], filter=parse_filter(one["sql"])))
        ids = set(returned["id"].to_pylist())
        assert ids >= set(one["ids"]), one["sql"]
        more = [rows[number] for number in ids - set(one["ids"])]
        assert all(math.isnan(row["f"]) or math.isnan(row["d"]) for row in more), one["sql"]
        lost += len(more)

    assert lost
    greater = lake.read("not-a-number", ScanRequest(columns=["id"], filter=parse_filter("f > 1")))
    assert sorted(greater["id"].to_pylist()) == [1, 2, 4]


@pytest.mark.parametrize("name", [name for name in WITH_FILTERS if "partitions" in name])
def test_filters_skip_files_by_statistics_and_partition(name: str) -> None:
    options = ReadOptions()
    skipped = [
        lake.planned(lake.load(name), ScanRequest(filter=parse_filter(one["sql"])), options).skipped
        for one in lake.expected(name)["filters"]
    ]

    assert sum(one.by_statistics for one in skipped) > 5
    if name in BY_PARTITION:
        assert sum(one.by_partition for one in skipped) > 5


@pytest.mark.parametrize("text", ["m = TIMESTAMP '1970-01-11 13:00:00Z'", "g = 10.12", "g IN (-89.9, -90.01, 3)"])
def test_buckets_of_timestamps_and_decimals_skip_files(text: str) -> None:
    name = "bucket-moment-partitions"
    whole = lake.read(name).to_pylist()
    request = ScanRequest(columns=["m", "g"], filter=parse_filter(text))

    rows = lake.read(name, request).to_pylist()
    skipped = lake.planned(lake.load(name), request, ReadOptions()).skipped

    assert skipped.by_partition >= 8
    decimals = {Decimal("10.12")} if "=" in text else {Decimal("-89.9"), Decimal("-90.01"), Decimal(3)}
    column = text[0]
    values = decimals if column == "g" else {datetime.datetime(1970, 1, 11, 13, tzinfo=datetime.timezone.utc)}
    assert len(rows) == sum(row[column] in values for row in whole)


def test_corpus_has_many_tables_filters_and_lineages() -> None:
    assert len(lake.NAMES) >= 39
    assert sum(len(lake.expected(name)["filters"]) for name in lake.NAMES) >= 543
    assert sum(one["lineage"] for name in lake.NAMES for _, one in lake.snapshots(name)) >= 30
