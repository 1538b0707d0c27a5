"""Tables written by Delta Lake for Spark have, through server and client, exactly the rows that Spark reads.

Every version is read, in both response formats, and so are change feeds and row lineage.
``tools/tables/make_spark_tables.py`` created the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta import features
from delta_sharing_client.delta.log import delta_table as log
from delta_sharing_client.errors import DeltaSharingError, UnsupportedFeatureError
from mock_server import hints
from mock_server.parameters import QueryRequest
from tests.effort import with_last
from tests.integration import spark_rows
from tests.integration.spark_rows import SparkTable
from tests.versions import PYARROW

TABLES = spark_rows.tables()
FORMATS = ("delta", "parquet")

# Old versions of pyarrow refuse files with Parquet types that they do not know; tests/golden tests that.
NEEDED = {"variant": 22, "geospatial": 21}
READ = [table for table in TABLES if all(least <= PYARROW for part, least in NEEDED.items() if part in table.name)]
by_table = pytest.mark.parametrize("table", READ, ids=lambda table: table.name)
by_feed = pytest.mark.parametrize("table", [t for t in READ if t.change_queries], ids=lambda table: table.name)
by_format = pytest.mark.parametrize("wire", FORMATS)


@pytest.fixture(scope="module")
def client() -> Iterator[ds.SharingClient]:
    served = {f"spark.tables.{table.name}": table.path for table in TABLES}
    with mock_server.running(tables=served) as server, ds.SharingClient(server.profile) as client:
        yield client


def shared(client: ds.SharingClient, table: SparkTable) -> ds.SharedTable:
    return client.table(f"spark.tables.{table.name}")


def test_tables_with_single_and_paired_features_exist() -> None:
    names = {table.name for table in TABLES}

    assert len(TABLES) > 80
    assert {"deletion-vectors", "mapping-id", "type-widening", "variant-shredded", "row-tracking-vectors"} <= names
    assert {"pair-mapid-vectors", "pair-vectors-feed", "pair-widening-partition", "pair-vectors-tracking"} <= names


@by_format
@by_table
def test_every_version_has_the_rows_that_spark_reads(client: ds.SharingClient, table: SparkTable, wire: str) -> None:
    for version in with_last(list(table.versions), 3):
        scan = shared(client, table).scan(version=version, response_format=wire)
        if table.is_gone(version):
            with pytest.raises(DeltaSharingError):
                scan.to_arrow()
        elif wire == "parquet" and refused_in_parquet(table, version):
            with pytest.raises(DeltaSharingError, match=r"(?i)delta"):
                scan.to_arrow()
        else:
            assert_rows(scan.to_arrow(), table.fields(version), table.rows(version), f"version {version}")


@by_table
def test_columns_of_the_latest_version_equal_those_of_spark(client: ds.SharingClient, table: SparkTable) -> None:
    schema = shared(client, table).scan().schema

    assert schema.names == table.expected["columns"]
    assert schema.types == [spark_rows.arrow_type(field["type"]) for field in table.expected["schema"]]


@by_format
@by_feed
def test_change_feed_has_the_rows_that_spark_reads(client: ds.SharingClient, table: SparkTable, wire: str) -> None:
    for query in table.change_queries:
        start, end = query["start_version"], query["end_version"]
        feed = shared(client, table).changes(start, end, response_format=wire)
        if wire == "parquet" and any(refused_in_parquet(table, version) for version in range(start, end + 1)):
            with pytest.raises(DeltaSharingError, match=r"(?i)delta"):
                feed.to_arrow()
            continue
        assert_changes(feed.to_arrow(), table.fields(end), query["columns"], query["rows"], f"{start} to {end}")
        for version in range(start, end + 1):
            # Spark's rows have the schema at the end of the range, so single versions are only compared if they have
            # this schema.
            if table.fields(version) != table.fields(end) or version == 0:
                continue
            one = shared(client, table).changes(version, version, response_format=wire).to_arrow()
            rows = [row for row in query["rows"] if row[-1] == version]
            assert_changes(one, table.fields(end), query["columns"], rows, f"version {version}")


@pytest.mark.parametrize(
    "table", [table for table in READ if "row_lineage" in table.expected], ids=lambda table: table.name
)
def test_row_lineage_equals_what_spark_reads(client: ds.SharingClient, table: SparkTable) -> None:
    lineage = [{"name": name, "type": "long"} for name in ("_row_id", "_row_commit_version")]
    rows = shared(client, table).scan(row_lineage=True, response_format="delta").to_arrow()

    assert_rows(rows, [*table.fields(table.latest), *lineage], table.expected["row_lineage"], "row lineage")


@by_table
def test_row_lineage_without_row_tracking_is_refused(client: ds.SharingClient, table: SparkTable) -> None:
    if "row_lineage" in table.expected:
        assert "rowTracking" in table.expected["protocol"]["tableFeatures"]
        return
    with pytest.raises(UnsupportedFeatureError, match="provider to enable") as refusal:
        shared(client, table).scan(row_lineage=True).to_arrow()
    assert refusal.value.feature == "rowTracking"


def refused_in_parquet(table: SparkTable, version: int) -> bool:
    snapshot = log.DeltaLog.open(table.path).snapshot(version)
    return bool(features.parquet_format_refusals(snapshot.protocol, snapshot.metadata))


def assert_rows(
    table: pa.Table, fields: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[object]], what: str
) -> None:
    kinds = [field["type"] for field in fields]

    assert table.schema.names == [field["name"] for field in fields], what
    assert table.schema.types == [spark_rows.arrow_type(kind) for kind in kinds], what
    ours, sparks = spark_rows.found_rows(table, kinds), spark_rows.expected_rows(rows, kinds)
    # both differences must be empty; comparing them keeps the failure message short
    assert ours - sparks == sparks - ours, what
    assert table.num_rows == len(rows), what


def assert_changes(
    table: pa.Table,
    fields: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    what: str,
) -> None:
    change = [{"name": "_change_type", "type": "string"}, {"name": "_commit_version", "type": "long"}]

    assert table.schema.names == [*columns, "_commit_timestamp"], what
    assert table.schema.field("_commit_timestamp").type == pa.timestamp("ms", tz="UTC"), what
    assert table["_commit_timestamp"].null_count == 0, what
    assert_rows(table.drop_columns(["_commit_timestamp"]), [*fields, *change], rows, what)


# --- statistics written by Delta Lake 3.2 ---

OLD = spark_rows.SparkTable("old-statistics")


def conditions_for(row: Sequence[Any]) -> list[str]:
    """Return conditions that match only this row; a wrongly used bound would exclude it."""
    zone, at, _, cut = row
    moment = f"TIMESTAMP '{at}'"
    return [
        f"at = {moment}",
        f"at <= {moment} AND zone = '{zone}'",
        f"at >= {moment} AND zone = '{zone}'",
        f"at IN ({moment}, TIMESTAMP '2024-01-01 00:00:00Z')",
        f"s.at = {moment}",
        f"cut = '{cut}'",
        f"zone = '{zone}' AND cut > 'abcdefg~'",
    ]


@by_format
def test_filters_find_rows_outside_the_bounds_of_delta_3_2(client: ds.SharingClient, wire: str) -> None:
    rows = OLD.rows(OLD.latest)
    assert len(rows) == 8
    for row in rows:
        for condition in conditions_for(row):
            scan = shared(client, OLD).scan(filter=condition, response_format=wire)
            assert scan.to_arrow()["zone"].to_pylist() == [row[0]], condition
            assert scan.count() == 1, condition


def test_bounds_of_delta_3_2_still_skip_files(client: ds.SharingClient) -> None:
    for condition in (
        "at < TIMESTAMP '1850-01-01 00:00:00Z'",
        "at > TIMESTAMP '1972-01-01 00:00:00Z'",
        "cut < 'abc'",
        "cut > 'abd'",
    ):
        assert not shared(client, OLD).scan(filter=condition).plan().tasks, condition


def test_hints_keep_files_outside_the_bounds_of_delta_3_2() -> None:
    snapshot = log.DeltaLog.open(OLD.path).snapshot()
    files = list(snapshot.files)
    for zone, at, _, cut in OLD.rows(OLD.latest):
        texts = [f"at = '{at}'", f"at <= '{at}'", f"at >= '{at}'", f"cut = '{cut}'", f"zone = '{zone}'"]
        request = QueryRequest(predicate_hints=texts)
        kept = hints.select(files, snapshot, request, sql=True, json_=True, with_stats=True)
        assert len(kept) == 1, zone
    request = QueryRequest(predicate_hints=["at < '1850-01-01T00:00:00Z'"])
    assert not hints.select(files, snapshot, request, sql=True, json_=True, with_stats=True)
