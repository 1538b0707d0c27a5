"""Spark asks once: one request for the metadata when a frame is created, and one query for each scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.functions import expr

import delta_sharing_client as ds
from delta_sharing_client.spark import to_spark
from tests.spark.streams import FEED
from tests.tables import TableWriter

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
NAME = "share.schema.t"


@pytest.fixture
def table(lake: Any) -> TableWriter:
    writer = TableWriter(lake.root / "t", SCHEMA, properties=FEED)
    for number in range(3):
        writer.insert([{"id": number, "v": f"v{number}"}])
    return writer


def requests(lake: Any, run: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """Return the result of ``run``, and its requests of the server, without those for data."""
    lake.server.reset_stats()
    result = run()
    return result, {name: count for name, count in lake.server.stats()["requests"].items() if name != "data"}


@pytest.fixture
def attached(spark: Any, lake: Any) -> Any:
    ds.attach(spark, lake.server.profile_path, name="counted")
    yield spark
    spark.conf.unset("spark.sql.catalog.counted")


READS: dict[str, Callable[[Any, Any], Any]] = {
    "loader": lambda spark, url: ds.load_as_spark(url, spark=spark),
    "loader, version": lambda spark, url: ds.load_as_spark(url, version=3, spark=spark),
    "loader, filter": lambda spark, url: ds.load_as_spark(url, filter="id >= 0", spark=spark),
    "format": lambda spark, url: spark.read.format("deltaSharing").load(url),
    "format, filter": lambda spark, url: spark.read.format("deltaSharing").option("filter", "id >= 0").load(url),
    "catalog": lambda spark, url: spark.table(f"counted.{NAME}"),
    "catalog, version": lambda spark, url: spark.sql(f"SELECT * FROM counted.{NAME} VERSION AS OF 3"),
    "catalog, option": lambda spark, url: spark.read.option("filter", "id >= 0").table(f"counted.{NAME}"),
}


@pytest.mark.parametrize("read", READS)
def test_filtered_scan_sends_one_metadata_and_one_query(
    attached: Any, lake: Any, table: TableWriter, read: str
) -> None:
    def run() -> list[int]:
        return sorted(row.id for row in READS[read](attached, lake.url("t")).where("id > 0").collect())

    assert requests(lake, run) == ([1, 2], {"metadata": 1, "query": 1})


def test_change_feed_sends_one_request_of_each_kind(attached: Any, lake: Any, table: TableWriter) -> None:
    def run() -> int:
        feed = ds.load_table_changes_as_spark(lake.url("t"), starting_version=0, spark=attached)
        return int(feed.where("id > 0").count())

    assert requests(lake, run) == (2, {"metadata": 1, "changes": 1})


def test_planned_frame_sends_one_request_of_each_kind(
    spark: Any, lake: Any, table: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_spark, "HAS_DATA_SOURCES", False)

    def run() -> int:
        return int(ds.load_as_spark(lake.url("t"), filter="id > 0", spark=spark).count())

    assert requests(lake, run) == (2, {"metadata": 1, "query": 1})


def test_each_scan_of_a_query_sends_one_query(attached: Any, lake: Any, table: TableWriter) -> None:
    frame, found = requests(lake, lambda: ds.load_as_spark(lake.url("t"), spark=attached))
    assert found == {"metadata": 1}
    joined = frame.where("id = 1").alias("a").join(frame.where("id = 2").alias("b"), on=expr("a.id < b.id"))
    assert requests(lake, joined.count) == (1, {"query": 2})
    assert requests(lake, joined.count) == (1, {})  # the frame keeps its plans
    both = f"SELECT count(*) FROM counted.{NAME} a JOIN counted.{NAME} b ON a.id + 1 = b.id WHERE a.id = 1 AND b.id = 2"
    count, found = requests(lake, lambda: attached.sql(both).first()[0])
    assert (count, found["metadata"]) == (1, 1)


def test_two_queries_share_nothing_so_that_they_are_fresh(attached: Any, lake: Any, table: TableWriter) -> None:
    def count() -> int:
        return int(attached.table(f"counted.{NAME}").where("id >= 0").count())

    assert requests(lake, count) == (3, {"metadata": 1, "query": 1})
    table.insert([{"id": 3, "v": "later"}])
    assert requests(lake, count) == (4, {"metadata": 1, "query": 1})


def test_hints_for_a_changed_table_are_not_used(attached: Any, lake: Any, table: TableWriter) -> None:
    """The table has other columns when the scan is planned, so the query is sent again without hints."""
    frame = ds.load_as_spark(lake.url("t"), spark=attached).where("id > 0")
    table.schema = pa.schema([*SCHEMA, ("w", pa.int64())])
    table.commit(metadata=True)
    table.insert([{"id": 4, "v": "later"}])
    assert sorted(row.id for row in frame.collect()) == [1, 2]
