"""Shared Iceberg tables in Spark have the rows that Iceberg's own Spark runtime reads."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import UsageError
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import iceberg_server
from tests.iceberg_corpus import BUCKET, IcebergTable, store, upload
from tests.s3 import s3_bucket

pytestmark = pytest.mark.spark

NAMES = [
    *("branches", "deletion-vectors", "empty", "equality-deletes", "evolved", "identity-partitions", "lineage"),
    *("plain", "position-deletes"),
]
LINEAGE = ["_row_id", "_last_updated_sequence_number"]


@pytest.fixture(scope="module")
def shared(spark: Any) -> Iterator[Any]:
    """A server with the tables of ``NAMES``, which are also in the Spark catalog ``ice``."""
    import mock_server

    tables = [IcebergTable(name) for name in NAMES]
    with s3_bucket(BUCKET) as bucket:
        upload(tables, bucket)
        locations = {f"demo.made.{table.name}": table.location for table in tables}
        with mock_server.running(locations, s3=store(bucket)) as server:
            ds.attach(spark, server.profile_path, name="ice")
            yield server
            spark.conf.unset("spark.sql.catalog.ice")


def rows_of(frame: Any) -> list[str]:
    return sorted(str(tuple(row)) for row in frame.collect())


def expected(spark: Any, name: str, which: str = "current") -> Any:
    """Return the rows that Iceberg's runtime read, from a file that this Spark reads."""
    from tests.iceberg_corpus import FOLDER

    return spark.read.parquet(str(FOLDER / name / f"rows-{which}.parquet"))


def url(shared: Any, name: str) -> str:
    return f"{shared.profile_path}#demo.made.{name}"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "empty"])
def test_rows_equal_those_of_the_iceberg_runtime(spark: Any, shared: Any, name: str) -> None:
    wanted = expected(spark, name)
    wanted = wanted.drop(*LINEAGE)

    found = ds.load_as_spark(url(shared, name))
    assert found.columns == wanted.columns
    assert rows_of(found) == rows_of(wanted)
    assert found.count() == wanted.count()


def test_format_and_catalog_read_iceberg_tables(spark: Any, shared: Any) -> None:
    wanted = rows_of(expected(spark, "lineage").drop(*LINEAGE))

    assert rows_of(spark.read.format("deltaSharing").load(url(shared, "lineage"))) == wanted
    assert rows_of(spark.table("ice.demo.made.lineage")) == wanted
    assert {row.tableName for row in spark.sql("SHOW TABLES IN ice.demo.made").collect()} == set(NAMES)
    kept = spark.sql("SELECT id FROM ice.demo.made.lineage WHERE p = 1 AND id > 10")
    assert "PushedFilters: [id > 10" in kept._jdf.queryExecution().toString()
    assert sorted(row.id for row in kept.collect()) == [13, 17, 21, 25, 29]


def test_empty_iceberg_table_has_columns(spark: Any, shared: Any) -> None:
    for frame in (ds.load_as_spark(url(shared, "empty")), spark.table("ice.demo.made.empty")):
        assert frame.columns
        assert frame.collect() == []


def test_snapshots_branches_and_tags_are_read(spark: Any, shared: Any) -> None:
    address = url(shared, "branches")
    [first, *_] = IcebergTable("branches").expected["snapshots"]
    audit, tagged = (rows_of(expected(spark, "branches", which)) for which in ("branch-audit", "tag-first"))

    assert rows_of(ds.load_as_spark(address, version="audit")) == audit
    assert rows_of(spark.read.format("deltaSharing").option("versionAsOf", "audit").load(address)) == audit
    assert rows_of(spark.sql("SELECT * FROM ice.demo.made.branches VERSION AS OF 'first'")) == tagged
    assert rows_of(spark.sql(f"SELECT * FROM ice.demo.made.branches VERSION AS OF {first['id']}")) == tagged
    with pytest.raises(UsageError, match=r"a branch or tag, found 'none'.*'audit', 'first', 'main'"):
        ds.load_as_spark(address, version="none")


def test_row_lineage_equals_that_of_the_iceberg_runtime(spark: Any, shared: Any) -> None:
    wanted = expected(spark, "lineage")
    address = url(shared, "lineage")

    found = spark.read.format("deltaSharing").option("rowLineage", "true").load(address)
    assert found.columns == wanted.columns == ["id", "v", "p", *LINEAGE]
    assert rows_of(found) == rows_of(wanted)
    assert rows_of(found.where("_row_id > 50").select("id")) == rows_of(wanted.where("_row_id > 50").select("id"))
    frame = ds.SharingClient(shared.profile_path).table("demo.made.lineage").scan(row_lineage=True).to_spark(spark)
    assert rows_of(frame) == rows_of(wanted)
    with pytest.raises(Exception, match="row lineage needs version 3"):
        ds.load_as_spark(url(shared, "plain"), row_lineage=True)


def test_unsupported_operations_on_iceberg_tables_are_refused(spark: Any, shared: Any, tmp_path: Any) -> None:
    reader = spark.read.format("deltaSharing").option("readChangeFeed", "true").option("startingVersion", "0")
    with pytest.raises(Exception, match="An Iceberg table has no change data feed"):
        reader.load(url(shared, "plain")).collect()
    stream = spark.readStream.format("deltaSharing").load(url(shared, "plain"))
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="An Iceberg table has no change data feed"):
        query.awaitTermination(60)


def test_times_and_uuids_have_spark_types(spark: Any, tmp_path: Any) -> None:
    from pyspark.sql import types

    kinds = {"id": "long", "t": "time", "u": "uuid"}
    columns = [{"id": at, "name": n, "required": False, "type": kind} for at, (n, kind) in enumerate(kinds.items(), 1)]
    made = HandMade(tmp_path / "t", columns)
    clocks, keys = [datetime.time.max, None, datetime.time(8)], [b"\xff" * 16, bytes(16), None]
    made.commit([made.manifest([made.data_file(pa.table(
        {"id": [1, 2, 3], "t": pa.array(clocks, pa.time64("us")), "u": pa.array(keys, pa.binary(16))}
    ))])])  # fmt: skip
    texts = ["ffffffff-ffff-ffff-ffff-ffffffffffff", "00000000-0000-0000-0000-000000000000", None]
    profile = tmp_path / "own.share"
    with iceberg_server() as server:
        profile.write_text(json.dumps(server.profile))
        server.share("t", made.metadata)
        read = spark.read.format("deltaSharing").option("tableFormat", "iceberg")
        known = read.option("columns", "id, u").load(f"{profile}#ice.n.t")
        assert [row.u for row in known.orderBy("id").collect()] == texts
        assert [row.id for row in known.where(f"u = '{texts[0]}'").collect()] == [1]
        if not hasattr(types, "TimeType"):
            with pytest.raises(Exception, match="Column 't' has the type 'time', which this PySpark cannot take"):
                spark.read.format("deltaSharing").load(f"{profile}#ice.n.t")
            return
        found = spark.read.format("deltaSharing").load(f"{profile}#ice.n.t")
        assert [row.t for row in found.orderBy("id").collect()] == clocks
        spark.conf.set("spark.sql.timeType.enabled", "true")
        kept = ds.load_as_spark(f"{profile}#ice.n.t").where("t > TIME '08:00'")
        assert "PushedFilters: [t > 28800000000000" in kept._jdf.queryExecution().toString()
        assert [row.id for row in kept.collect()] == [1]
        spark.conf.unset("spark.sql.timeType.enabled")


def test_commit_after_load_is_not_read(spark: Any, tmp_path: Any) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    from mock_server import running

    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    catalog = SqlCatalog("own", uri="sqlite:///:memory:", warehouse=tmp_path.as_uri())
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema, location=(tmp_path / "s" / "n" / "t").as_uri())
    with running(tmp_path) as server:
        empty = ds.load_as_spark(f"{server.profile_path}#s.n.t")
        assert empty.count() == 0
        table.append(rows)
        frame = ds.load_as_spark(f"{server.profile_path}#s.n.t")
        assert (frame.count(), empty.count(), empty.collect()) == (2, 0, [])
        table.append(rows)
        assert frame.count() == 2
        assert ds.load_as_spark(f"{server.profile_path}#s.n.t").count() == 4
