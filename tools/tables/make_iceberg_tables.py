"""Write ``tests/tables_iceberg`` with Iceberg's Spark runtime, and the rows that Spark reads from them.

    python tools/tables/make_iceberg_tables.py [NAME ...]

needs a JDK, PySpark 4.0, boto3, moto[server] and Maven Central (``PACKAGES``). Files are stored in
``s3://lake/<name>/``, so that the absolute locations in metadata, manifests and position deletes name no machine: a
test uploads the directory to moto.

Each table becomes

- ``<name>/table/``: ``data/`` and ``metadata/``, as the runtime wrote them,
- ``<name>/rows-<n>.parquet``: the rows of the n-th snapshot as Spark reads them; for a table of format version 3 with
  ``_row_id`` and ``_last_updated_sequence_number`` as the last two columns,
- ``<name>/expected.json``: the metadata file, the snapshots with their ids and times, branches and tags with the rows that
  they have, and ``filters``: conditions, and the sorted ``id`` values for which Spark finds each true.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

VERSION = "1.10.1"
PACKAGES = (
    f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{VERSION}",
    f"org.apache.iceberg:iceberg-aws-bundle:{VERSION}",
    "org.xerial:sqlite-jdbc:3.46.1.3",
)
TABLES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "tables_iceberg"
BUCKET = "lake"
MAKERS: dict[str, Callable[[Table], None]] = {}


class Table:
    """A table under construction: execute SQL, in which ``{t}`` stands for the table, and write the directory and its
    expected rows."""

    def __init__(self, spark: SparkSession, name: str, store: Any) -> None:
        self.spark = spark
        self.name = name
        self.store = store
        self.full_name = f"lake.made.`{name}`"
        self.filters: list[str] = []
        # Spark cannot read the row lineage of snapshots from before an upgrade to version 3.
        self.lineage = False

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("{t}", self.full_name).replace("{n}", f"'made.`{self.name}`'"))

    def create(self, columns: str, version: int = 2, tail: str = "", **properties: str) -> None:
        listed = {
            "format-version": str(version),
            "write.parquet.compression-codec": "snappy",
            **{key.replace("__", "-").replace("_", "."): value for key, value in properties.items()},
        }
        text = ", ".join(f"'{key}' = '{value}'" for key, value in listed.items())
        self.lineage = version >= 3
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING iceberg {tail} LOCATION 's3://{BUCKET}/{self.name}' TBLPROPERTIES ({text})"
        )

    def java(self) -> Any:
        """Return the ``org.apache.iceberg.Table``, for changes that Spark SQL does not support."""
        jvm = self.spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self.spark._jsparkSession, self.full_name)

    def map_names(self) -> None:
        """Give the table a name mapping of its current schema, as ``add_files`` and ``migrate`` do."""
        jvm, table = self.spark._jvm.org.apache.iceberg, self.java()
        mapping = jvm.mapping.NameMappingParser.toJson(jvm.mapping.MappingUtil.create(table.schema()))
        table.updateProperties().set("schema.name-mapping.default", mapping).commit()

    def add_file(self, rows: pa.Table, partition: str | None = None) -> None:
        """Commit a Parquet file of another writer, as ``add_files`` does; its columns have field ids only if ``rows``
        has them."""
        jvm, table = self.spark._jvm.org.apache.iceberg, self.java()
        self.files = getattr(self, "files", 0) + 1
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        data = sink.getvalue().to_pybytes()
        key = f"{self.name}/data/{f'{partition}/' if partition else ''}other-{self.files}.parquet"
        self.store.put_object(Bucket=BUCKET, Key=key, Body=data)
        text = table.properties().get("schema.name-mapping.default")
        metrics = jvm.parquet.ParquetUtil.fileMetrics(
            table.io().newInputFile(f"s3://{BUCKET}/{key}"),
            jvm.MetricsConfig.forTable(table),
            jvm.mapping.NameMappingParser.fromJson(text) if text else None,
        )
        file = jvm.DataFiles.builder(table.spec()).withPath(f"s3://{BUCKET}/{key}").withFormat("parquet")
        file = file.withFileSizeInBytes(len(data)).withMetrics(metrics)
        table.newAppend().appendFile((file.withPartitionPath(partition) if partition else file).build()).commit()


def maker(function: Callable[[Table], None]) -> Callable[[Table], None]:
    MAKERS[function.__name__.replace("_", "-")] = function
    return function


MERGE_ON_READ = {
    "write_delete_mode": "merge-on-read",
    "write_update_mode": "merge-on-read",
    "write_merge_mode": "merge-on-read",
}

# --- one feature each ---


@maker
def plain(t: Table) -> None:
    t.create("id BIGINT NOT NULL, name STRING, flag BOOLEAN")
    t.sql(
        "INSERT INTO {t} VALUES (1, 'a', true), (2, NULL, false)",
        "INSERT INTO {t} VALUES (3, '', NULL)",
        "UPDATE {t} SET name = 'z' WHERE id = 1",
        "DELETE FROM {t} WHERE id = 2",
        "CALL lake.system.rewrite_data_files(table => {n}, options => map('rewrite-all', 'true'))",
    )


@maker
def version_1(t: Table) -> None:
    t.create("id BIGINT, name STRING, part STRING", 1, "PARTITIONED BY (part)")
    t.sql(
        "INSERT INTO {t} VALUES (1, 'a', 'x'), (2, NULL, 'y'), (3, 'c', NULL)",
        "DELETE FROM {t} WHERE id = 2",
        "INSERT OVERWRITE {t} VALUES (4, 'd', 'x')",
    )


TYPES = (
    "id BIGINT, c INT, e FLOAT, f DOUBLE, g DECIMAL(5,2), g2 DECIMAL(15,3), h DECIMAL(38,18), i STRING, j BINARY, k BOOLEAN, l DATE, "
    "m TIMESTAMP, n TIMESTAMP_NTZ, q ARRAY<INT>, r MAP<STRING, BIGINT>, s STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>, "
    "u ARRAY<MAP<INT, ARRAY<DATE>>>"
)
TYPE_ROWS = (
    "(1, 3, 1.5, 2.5, 123.45, 123456789012.345, 12345678901234567890.123456789012345678, 'ü', X'00FF', true, DATE'2024-02-29', "
    "TIMESTAMP'2024-02-29 12:34:56.789012 UTC', TIMESTAMP_NTZ'2024-02-29 12:34:56.789012', array(1, NULL), "
    "map('k', 1L, 'n', NULL), named_struct('x', 1, 'y', array(named_struct('z', 'q'), NULL)), "
    "array(map(1, array(DATE'1999-12-31')), NULL))",
    "(2, -2147483648, float('nan'), double('-infinity'), -999.99, -0.001, -0.000000000000000001, '', X'', false, DATE'0001-01-01', "
    "TIMESTAMP'1900-01-01 00:00:00 UTC', TIMESTAMP_NTZ'0001-01-01 00:00:00', array(), map(), "
    "named_struct('x', NULL, 'y', NULL), array())",
    "(3, " + ", ".join(["NULL"] * 16) + ")",
    "(4, 2147483647, float('infinity'), -0.0D, 0, 0, 1, 'x', X'61', true, DATE'9999-12-31', "
    "TIMESTAMP'9999-12-31 23:59:59.999999 UTC', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', array(1, 2), map('', 0), "
    "named_struct('x', 5, 'y', array()), array(map()))",
)


@maker
def all_types(t: Table) -> None:
    t.create(TYPES)
    t.sql(*(f"INSERT INTO {{t}} VALUES {row}" for row in TYPE_ROWS))


UUID_ROWS = (
    "SELECT id, if(id % 9 = 8, NULL, regexp_replace(md5(CAST(id AS STRING)), '(.{{8}})(.{{4}})(.{{4}})(.{{4}})(.*)', '$1-$2-$3-$4-$5')), "
    "element_at(array('00000000-0000-0000-0000-000000000001', '7fffffff-ffff-ffff-8000-000000000000', "
    "'80000000-0000-0000-0000-000000000000', NULL), CAST(id % 4 + 1 AS INT)) FROM range({low}, {high})"
)


@maker
def uuids(t: Table) -> None:
    """Spark has no UUID type: the column is created with Iceberg's API, and Spark writes UUIDs as strings."""
    jvm = t.spark._jvm.org.apache.iceberg
    optional, kind = jvm.types.Types.NestedField.optional, jvm.types.Types.UUIDType.get()
    columns = [optional(1, "id", jvm.types.Types.LongType.get()), optional(2, "u", kind), optional(3, "k", kind)]
    schema = jvm.Schema(columns)
    spec = jvm.PartitionSpec.builderFor(schema).identity("k").bucket("u", 3).build()
    catalog = jvm.spark.Spark3Util.loadIcebergCatalog(t.spark._jsparkSession, "lake")
    properties = {"format-version": "2", "write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}
    properties |= {"write.delete.mode": "merge-on-read", "write.parquet.compression-codec": "snappy"}
    name = jvm.catalog.TableIdentifier.parse(f"made.{t.name}")
    catalog.createTable(name, schema, spec, f"s3://{BUCKET}/{t.name}", properties)
    t.sql(*("INSERT INTO {t} " + UUID_ROWS.format(low=low, high=low + 20) for low in (0, 20)))
    t.sql("DELETE FROM {t} WHERE id % 7 = 3")
    # Delete the row 1, whatever its bucket is.
    gone = t.spark._jvm.java.util.UUID.fromString("c4ca4238-a0b9-2382-0dcc-509a6f75849b")
    for bucket in range(3):
        equality_delete(t, ["u"], [{"u": gone}], f"k=7fffffff-ffff-ffff-8000-000000000000/u_bucket={bucket}")
    known = [f"{prefix}{middle}" for prefix in ("0", "4", "7f", "8", "c") for middle in ("", "9")]
    t.filters = [
        *(f"{column} {op} '{text}'" for column in "uk" for op in ("<", ">=") for text in known),
        *(f"u = '{row.u}'" for row in t.spark.sql(UUID_ROWS.format(low=0, high=6)).toDF("id", "u", "k").collect()),
        "k = '80000000-0000-0000-0000-000000000000'", "k IN ('00000000-0000-0000-0000-000000000001', 'x')",
        "k <> '80000000-0000-0000-0000-000000000000'", "u IS NULL", "k IS NULL AND id > 10", "k = '8'",
    ]  # fmt: skip


@maker
def variant(t: Table) -> None:
    t.create("id BIGINT, v VARIANT", 3)
    t.sql(
        'INSERT INTO {t} SELECT 1, parse_json(\'{"a": [1, "x", null], "b": {"c": 1.25}}\')',
        "INSERT INTO {t} SELECT 2, NULL",
        "INSERT INTO {t} SELECT 3, parse_json('null')",
    )


@maker
def evolved(t: Table) -> None:
    t.create(
        "id BIGINT, `odd name, (x)` STRING, n INT, x FLOAT, d DECIMAL(5,2), s STRUCT<a: INT, b: STRUCT<c: STRING, d: INT>>, "
        "l ARRAY<STRUCT<e: INT>>, m MAP<STRING, STRUCT<f: INT>>"
    )
    row = "({i}, 'x{i}', {i}, {i}.5, {i}.25, named_struct('a', {i}, 'b', named_struct('c', 'c{i}', 'd', {i})), "
    row += "array(named_struct('e', {i})), map('k', named_struct('f', {i})))"
    t.sql(
        "INSERT INTO {t} VALUES " + row.replace("{i}", "1") + ", " + row.replace("{i}", "2"),
        "ALTER TABLE {t} RENAME COLUMN `odd name, (x)` TO renamed",
        "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN x TYPE DOUBLE",
        "ALTER TABLE {t} ALTER COLUMN d TYPE DECIMAL(12,2)",
        "ALTER TABLE {t} RENAME COLUMN s.b.c TO cc",
        "ALTER TABLE {t} RENAME COLUMN l.element.e TO ee",
        "ALTER TABLE {t} RENAME COLUMN m.value.f TO ff",
        "INSERT INTO {t} VALUES " + row.replace("{i}", "3"),
        "ALTER TABLE {t} DROP COLUMN renamed",
        "ALTER TABLE {t} DROP COLUMN s.b.d",
        # New columns reuse the names of old ones: a reader that matches columns by name returns the old values.
        "ALTER TABLE {t} ADD COLUMN renamed INT",
        "ALTER TABLE {t} ADD COLUMN s.b.d STRING",
        "ALTER TABLE {t} ALTER COLUMN renamed FIRST",
        "INSERT INTO {t} (renamed, id, n, x, d, s, l, m) VALUES (44, 4, NULL, NULL, NULL, "
        "named_struct('a', 4, 'b', named_struct('cc', 'c4', 'd', 'new')), NULL, NULL)",
        "UPDATE {t} SET renamed = 11 WHERE id = 1",
    )


@maker
def swapped_names(t: Table) -> None:
    t.create("id BIGINT, a STRING, b STRING")
    t.sql(
        "INSERT INTO {t} VALUES (1, 'a1', 'b1')",
        "ALTER TABLE {t} RENAME COLUMN a TO tmp",
        "ALTER TABLE {t} RENAME COLUMN b TO a",
        "ALTER TABLE {t} RENAME COLUMN tmp TO b",
        "INSERT INTO {t} VALUES (2, 'was b', 'was a')",
    )


# --- files of other writers ---


def _imported(first: int, names: str = "a s x y l e m f", **more: list[Any]) -> pa.Table:
    """Return two rows without field ids, whose columns and nested fields have these names."""
    a, s, x, y, l, e, m, f = names.split()  # noqa: E741
    numbers = [first, first + 1]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            m: pa.array([[(f"k{n}", {f: n})] for n in numbers], pa.map_(pa.string(), pa.struct([(f, pa.int32())]))),
            a: [f"{a}{n}" for n in numbers],
            s: pa.array([{y: f"y{n}", x: n} for n in numbers], pa.struct([(y, pa.string()), (x, pa.int32())])),
            l: pa.array([[{e: n}, None] for n in numbers], pa.list_(pa.struct([(e, pa.int32())]))),
            **more,
        }
    )


@maker
def name_mapping(t: Table) -> None:
    t.create(
        "id BIGINT, a STRING, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<e: INT>>, m MAP<STRING, STRUCT<f: INT>>, n INT"
    )
    t.map_names()
    t.add_file(_imported(1))
    t.sql("INSERT INTO {t} VALUES (3, 'own', named_struct('x', 3, 'y', 'own'), NULL, NULL, 3)")
    # The mapping keeps the old names.
    t.sql(
        "ALTER TABLE {t} RENAME COLUMN a TO b",
        "ALTER TABLE {t} RENAME COLUMN s.x TO xx",
        "ALTER TABLE {t} RENAME COLUMN l.element.e TO ee",
        "ALTER TABLE {t} RENAME COLUMN m.value.f TO ff",
    )
    t.add_file(_imported(4, "b s xx y l ee m ff"))
    t.add_file(_imported(6, n=pa.array([6, None], pa.int32()), other=["not", "mapped"]))
    # The new column has a name that the mapping gives to the old column.
    t.sql("ALTER TABLE {t} ADD COLUMN a STRING")
    t.add_file(_imported(8, "b s xx y l ee m ff", a=["new", "new"]))
    t.filters += ["id > 4", "b = 'a6'", "b IS NULL", "a = 'new'", "s.xx < 6", "s.xx IS NULL", "n IS NULL", "n = 6"]


@maker
def hive_files(t: Table) -> None:
    t.create("id BIGINT, p STRING, d DATE, n INT", tail="PARTITIONED BY (p, d)")
    t.map_names()
    for number, partition in enumerate(
        ["p=a/d=2024-01-01", "p=b c/d=1969-12-31", "p=__HIVE_DEFAULT_PARTITION__/d=__HIVE_DEFAULT_PARTITION__"]
    ):
        t.add_file(pa.table({"id": pa.array([2 * number, 2 * number + 1], pa.int64())}), partition)
    t.sql("ALTER TABLE {t} ADD PARTITION FIELD n", "INSERT INTO {t} VALUES (10, 'a', DATE'2024-01-01', 1)")
    t.add_file(pa.table({"id": pa.array([11], pa.int64())}), "p=a/d=2024-01-01/n=7")
    t.sql("ALTER TABLE {t} DROP PARTITION FIELD p", "ALTER TABLE {t} RENAME COLUMN p TO q")
    t.add_file(pa.table({"id": pa.array([12], pa.int64()), "q": ["z"]}), "d=2024-02-01/n=8")
    t.filters += [
        "q = 'a'",
        "q IS NULL",
        "q <> 'a'",
        "d > DATE'2024-01-01'",
        "d IS NULL",
        "n = 7",
        "n IS NULL",
        "id > 4",
    ]


@maker
def partition_values(t: Table) -> None:
    """Data files contain the partition columns with wrong values; readers must use the partition values."""
    t.create("id BIGINT, p STRING, n INT", tail="PARTITIONED BY (p)")
    t.map_names()
    t.add_file(
        pa.table({"id": pa.array([1, 2], pa.int64()), "p": ["x", "y"], "n": pa.array([1, 2], pa.int32())}), "p=a"
    )
    t.filters += ["p = 'a'", "p = 'x'", "p IS NULL"]


# --- deletes ---


def _deletes(t: Table, version: int, tail: str = "") -> None:
    t.create("id BIGINT, v STRING, p INT", version, tail, **MERGE_ON_READ)
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id), id % 3 FROM range(0, 50)",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id), id % 3 FROM range(50, 60)",
        "DELETE FROM {t} WHERE id % 7 = 0",
        "UPDATE {t} SET v = 'u' WHERE id IN (3, 55)",
        "MERGE INTO {t} tt USING (SELECT id * 10 AS id FROM range(0, 8)) s ON tt.id = s.id "
        "WHEN MATCHED AND s.id > 30 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, 'i', 1)",
        "DELETE FROM {t} WHERE id >= 50 AND id < 60",
    )


@maker
def position_deletes(t: Table) -> None:
    _deletes(t, 2)


@maker
def position_deletes_partitioned(t: Table) -> None:
    _deletes(t, 2, "PARTITIONED BY (p)")
    t.sql("CALL lake.system.rewrite_position_delete_files(table => {n}, options => map('rewrite-all', 'true'))")


@maker
def position_deletes_by_partition(t: Table) -> None:
    t.create(
        "id BIGINT, v STRING, p INT", 2, "PARTITIONED BY (p)", write_delete_granularity="partition", **MERGE_ON_READ
    )
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id), id % 2 FROM range(0, 20)",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id), id % 2 FROM range(20, 40)",
        "DELETE FROM {t} WHERE id % 5 = 0",
    )


@maker
def deletion_vectors(t: Table) -> None:
    _deletes(t, 3)


@maker
def deletion_vectors_partitioned(t: Table) -> None:
    _deletes(t, 3, "PARTITIONED BY (p)")
    t.sql("CALL lake.system.rewrite_data_files(table => {n}, options => map('rewrite-all', 'true'))")


@maker
def copy_on_write(t: Table) -> None:
    t.create("id BIGINT, v STRING", 3)
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(0, 20)",
        "UPDATE {t} SET v = 'u' WHERE id IN (3, 15)",
        "MERGE INTO {t} tt USING (SELECT id * 5 AS id FROM range(0, 8)) s ON tt.id = s.id "
        "WHEN MATCHED AND s.id > 10 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'i')",
        "INSERT INTO {t} VALUES (100, 'late')",
        "CALL lake.system.rewrite_data_files(table => {n}, options => map('rewrite-all', 'true'))",
    )


@maker
def upgraded_deletes(t: Table) -> None:
    """Position deletes written in version 2, then deletion vectors in version 3; rows without row lineage get it."""
    _deletes(t, 2)
    t.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')",
        "DELETE FROM {t} WHERE id = 11",
        "INSERT INTO {t} VALUES (200, 'new', 1)",
        "UPDATE {t} SET v = 'after' WHERE id IN (12, 200)",
        "CALL lake.system.rewrite_data_files(table => {n}, options => map('rewrite-all', 'true'))",
    )
    t.lineage = True


@maker
def equality_deletes(t: Table) -> None:
    t.create("id INT, v STRING, p INT, big BIGINT")
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ CAST(id AS INT), if(id % 4 = 0, NULL, concat('v', id)), CAST(id % 3 AS INT), "
        "id + 3000000000 FROM range(0, 20)"
    )
    equality_delete(t, ["id"], [{"id": 3}, {"id": 5}])
    # A row inserted after the delete stays.
    t.sql("INSERT INTO {t} VALUES (3, 'again', 0, 1)")
    equality_delete(t, ["v"], [{"v": None}])
    equality_delete(t, ["v", "p"], [{"v": "v7", "p": 1}, {"v": "v10", "p": 99}])
    # The long is larger than an Integer, because py4j would pass a smaller number as an Integer.
    equality_delete(t, ["big"], [{"big": 3000000009}])
    t.sql("INSERT INTO {t} VALUES (21, NULL, NULL, NULL)", "DELETE FROM {t} WHERE id = 1")


@maker
def equality_deletes_partitioned(t: Table) -> None:
    t.create("id INT, v STRING, p INT", 2, "PARTITIONED BY (p)")
    t.sql("INSERT INTO {t} SELECT CAST(id AS INT), concat('v', id % 5), CAST(id % 3 AS INT) FROM range(0, 20)")
    # Each delete file belongs to one partition.
    equality_delete(t, ["v"], [{"v": "v1"}], partition="p=1")
    equality_delete(t, ["v"], [{"v": "v2"}], partition="p=0")
    t.sql("INSERT INTO {t} VALUES (30, 'v1', 1)")


@maker
def equality_deletes_evolved(t: Table) -> None:
    t.create("id INT, n INT, x DOUBLE, d DATE, g DECIMAL(9,2), s STRUCT<a: INT>")
    t.sql(
        "INSERT INTO {t} SELECT CAST(id AS INT), CAST(id AS INT), id / 2, date_add(DATE'2024-01-01', CAST(id AS INT)), "
        "id, named_struct('a', CAST(id AS INT)) FROM range(0, 10)"
    )
    equality_delete(t, ["n"], [{"n": 1}])
    t.sql(
        "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        "ALTER TABLE {t} RENAME COLUMN n TO renamed",
        "INSERT INTO {t} VALUES (20, 1, 1.0, NULL, NULL, NULL), (21, 3000000000, 3.5, NULL, NULL, NULL)",
    )
    equality_delete(t, ["x"], [{"x": 3.5}])
    equality_delete(t, ["renamed"], [{"renamed": 3000000000}])
    t.sql("ALTER TABLE {t} ADD COLUMN added STRING", "INSERT INTO {t} VALUES (30, NULL, NULL, NULL, NULL, NULL, 'x')")
    # Rows written before the column was added count as null.
    equality_delete(t, ["added", "id"], [{"added": None, "id": 4}, {"added": "x", "id": 5}])


def equality_delete(
    t: Table, columns: Sequence[str], rows: Sequence[dict[str, Any]], partition: str | None = None
) -> None:
    """Commit an equality delete file, with Iceberg's own writers: Spark's SQL writes none."""
    # Only the gateway can create an int[]; PySpark has no public function for it.
    gateway = t.spark.sparkContext._gateway
    jvm = gateway.jvm
    table = t.java()
    schema = table.schema()
    ids = gateway.new_array(jvm.int, len(columns))
    for place, column in enumerate(columns):
        ids[place] = schema.findField(column).fieldId()
    delete_schema = schema.select(list(columns))
    factory = jvm.org.apache.iceberg.data.GenericAppenderFactory(schema, table.spec(), ids, delete_schema, None)
    location = table.locationProvider().newDataLocation(f"equality-{jvm.java.util.UUID.randomUUID()}.parquet")
    file = jvm.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(location))
    key = jvm.org.apache.iceberg.DataFiles.data(table.spec(), partition) if partition else None
    writer = factory.newEqDeleteWriter(file, jvm.org.apache.iceberg.FileFormat.PARQUET, key)
    record = jvm.org.apache.iceberg.data.GenericRecord.create(delete_schema)
    for row in rows:
        copy = record.copy()
        for column, value in row.items():
            copy.setField(column, value)
        writer.write(copy)
    writer.close()
    delta = table.newRowDelta()
    delta.addDeletes(writer.toDeleteFile())
    delta.commit()
    t.spark.sql(f"REFRESH TABLE {t.full_name}")


def _widened_deletes(t: Table, version: int) -> None:
    """Write the table of deletes whose partition values have wider types than those of older data files."""
    # Position deletes belong to a partition, not to a data file.
    t.create(
        "id INT, g DECIMAL(9,2), n INT, x FLOAT, v STRING", version, "PARTITIONED BY (g, n, x)",
        **MERGE_ON_READ, write_delete_granularity="partition",
    )  # fmt: skip
    rows = (
        "SELECT /*+ COALESCE(1) */ CAST(id AS INT) + {first}, element_at(array(1.50, -2.25, NULL), CAST(id % 3 AS INT) + 1), "
        "element_at(array(1, -7), CAST(id % 2 AS INT) + 1), "
        "element_at(array(0.5f, CAST('-0.0' AS FLOAT), 0.0f, CAST('NaN' AS FLOAT)), CAST(id % 4 AS INT) + 1), "
        "concat('v', CAST(id / 12 AS INT)) FROM range(0, 48)"
    )
    t.sql("INSERT INTO {t} " + rows.replace("{first}", "0"))
    t.sql(*(f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE {kind}"
            for column, kind in (("g", "DECIMAL(18,2)"), ("n", "BIGINT"), ("x", "DOUBLE"))))  # fmt: skip
    t.sql("DELETE FROM {t} WHERE id % 7 = 0")
    for partition, gone in (
        ("g=1.50/n=1/x=0.5", "v0"), ("g=-2.25/n=-7/x=-0.0", "v3"), ("g=1.50/n=-7/x=NaN", "v1"),
        ("g=__HIVE_DEFAULT_PARTITION__/n=1/x=0.0", "v2"),
    ):  # fmt: skip
        equality_delete(t, ["v"], [{"v": gone}], partition)
    t.sql("INSERT INTO {t} " + rows.replace("{first}", "100"), "DELETE FROM {t} WHERE id % 9 = 1")
    # Spark cannot read the snapshot of the narrower types any more.
    table = t.java()
    first = min(table.snapshots(), key=lambda one: one.sequenceNumber())
    table.expireSnapshots().expireSnapshotId(first.snapshotId()).cleanExpiredFiles(False).commit()
    t.sql("REFRESH TABLE {t}")
    t.filters = [
        "g = 1.50", "g = -2.25", "g > 1.5", "g >= 1.5", "g < 0", "g IS NULL", "n = 1", "n < 0", "n > 3000000000", "x = 0.5",
        "x > 0 AND x < 1", "g = 1.50 AND n = 1 AND x = 0.5", "g IN (1.50, 3) AND v = 'v0'", "id < 10 AND g IS NOT NULL",
    ]  # fmt: skip


@maker
def widened_deletes(t: Table) -> None:
    _widened_deletes(t, 2)


@maker
def widened_vectors(t: Table) -> None:
    _widened_deletes(t, 3)


# --- partitions ---

PARTITION_COLUMNS = (
    "id BIGINT, s STRING, n INT, big BIGINT, d DATE, m TIMESTAMP, z TIMESTAMP_NTZ, g DECIMAL(9,2), b BINARY"
)
PARTITION_ROWS = (
    "SELECT id, if(id % 11 = 0, NULL, concat(chr(CAST(97 + id % 7 AS INT)), 'text', id)), CAST(id * 37 % 101 - 50 AS INT), "
    "id * 1000000007 % 997 - 400, if(id % 13 = 0, NULL, date_add(DATE'1969-11-20', CAST(id * 17 % 800 AS INT))), "
    "TIMESTAMP'1969-12-30 22:00:00 UTC' + make_interval(0, 0, 0, 0, CAST(id * 7 AS INT)), "
    "TIMESTAMP_NTZ'1969-12-31 12:00:00' + make_interval(0, 0, 0, CAST(id % 5 AS INT), CAST(id AS INT)), "
    "CAST(id * 3.33 - 100 AS DECIMAL(9,2)), encode(concat('b', id % 9), 'UTF-8') FROM range({low}, {high})"
)


def _partitioned(t: Table, spec: str, *then: str) -> None:
    t.create(PARTITION_COLUMNS, 2, f"PARTITIONED BY ({spec})", write_distribution__mode="hash")
    t.sql("INSERT INTO {t} " + PARTITION_ROWS.format(low=0, high=60))
    t.sql(*then)
    t.sql("INSERT INTO {t} " + PARTITION_ROWS.format(low=60, high=90))
    t.filters = random_filters(t.name, 50)


@maker
def identity_partitions(t: Table) -> None:
    _partitioned(t, "b")


@maker
def bucket_partitions(t: Table) -> None:
    _partitioned(t, "bucket(4, s), bucket(3, big)")


@maker
def bucket_moment_partitions(t: Table) -> None:
    _partitioned(t, "bucket(4, m), bucket(3, g)")


@maker
def truncate_partitions(t: Table) -> None:
    _partitioned(t, "truncate(2, s), truncate(20, n)")


@maker
def truncate_decimal_partitions(t: Table) -> None:
    _partitioned(t, "truncate(5000, g), truncate(300, big)")


@maker
def time_partitions(t: Table) -> None:
    _partitioned(t, "months(d), days(m)")


@maker
def year_hour_partitions(t: Table) -> None:
    _partitioned(t, "years(d), years(z)")


@maker
def hour_partitions(t: Table) -> None:
    _partitioned(t, "hours(z)")


@maker
def evolved_partitions(t: Table) -> None:
    _partitioned(
        t,
        "days(m)",
        "ALTER TABLE {t} DROP PARTITION FIELD days(m)",
        "ALTER TABLE {t} ADD PARTITION FIELD bucket(2, s)",
        "INSERT INTO {t} " + PARTITION_ROWS.format(low=100, high=120),
        "ALTER TABLE {t} REPLACE PARTITION FIELD s_bucket_2 WITH truncate(s, 1) AS first",
    )


@maker
def no_partitions(t: Table) -> None:
    t.create(PARTITION_COLUMNS)
    for low in range(0, 90, 15):
        t.sql("INSERT INTO {t} " + PARTITION_ROWS.format(low=low, high=low + 15))
    t.filters = random_filters(t.name, 100)


def random_filters(seed: str, count: int) -> list[str]:
    """Return conditions over ``PARTITION_COLUMNS`` in SQL that both Spark and this package accept."""
    draw = random.Random(seed)
    constants: dict[str, Callable[[], str]] = {
        "id": lambda: str(draw.randrange(-2, 95)),
        "s": lambda: repr(draw.choice("abcdefgh") + draw.choice(["", "text", f"text{draw.randrange(90)}"])),
        "n": lambda: str(draw.randrange(-55, 60)),
        "big": lambda: str(draw.randrange(-420, 620)),
        "d": lambda: f"DATE '{1969 + draw.randrange(4)}-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}'",
        "m": lambda: (
            f"TIMESTAMP '19{draw.choice(['69-12-3', '70-01-1'])}{draw.randrange(2)} {draw.randrange(24):02d}:00:00Z'"
        ),
        "g": lambda: f"{draw.randrange(-110, 250)}.{draw.randrange(100):02d}",
    }

    def one() -> str:
        column = draw.choice(list(constants))
        constant = constants[column]
        kind = draw.randrange(8)
        if kind < 4:
            return f"{column} {draw.choice(['=', '<', '<=', '>', '>=', '<>'])} {constant()}"
        if kind == 4:
            return f"{column} IN ({', '.join(constant() for _ in range(draw.randrange(1, 4)))})"
        if kind == 5:
            return f"{column} IS {draw.choice(['', 'NOT '])}NULL"
        if kind == 6:
            return f"{column} BETWEEN {constant()} AND {constant()}"
        return f"s LIKE '{draw.choice('abcdefg')}{draw.choice(['', 't', 'text1'])}%'"

    def tree(depth: int) -> str:
        if depth == 0 or draw.random() < 0.4:
            return one()
        if draw.random() < 0.2:
            return f"NOT ({tree(depth - 1)})"
        return f"({tree(depth - 1)}) {draw.choice(['AND', 'OR'])} ({tree(depth - 1)})"

    return [tree(2) for _ in range(count)]


# --- branches, statistics, row lineage ---


@maker
def branches(t: Table) -> None:
    t.create("id BIGINT, v STRING", 3)
    t.sql(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE {t} CREATE TAG first",
        "ALTER TABLE {t} CREATE BRANCH audit",
        "INSERT INTO {t} VALUES (3, 'main')",
        "INSERT INTO {t}.branch_audit VALUES (4, 'audit')",
        "ALTER TABLE {t} ADD COLUMN later INT",
        "INSERT INTO {t} VALUES (5, 'main', 5)",
    )


@maker
def rolled_back(t: Table) -> None:
    t.create("id BIGINT, v STRING")
    t.sql("INSERT INTO {t} VALUES (1, 'a')", "INSERT INTO {t} VALUES (2, 'b')")
    first = t.spark.sql(f"SELECT snapshot_id FROM {t.full_name}.snapshots ORDER BY committed_at").first()[0]
    t.sql(
        f"CALL lake.system.rollback_to_snapshot(table => {{n}}, snapshot_id => {first}L)",
        "INSERT INTO {t} VALUES (3, 'c')",
    )


@maker
def long_text(t: Table) -> None:
    """String bounds are truncated to 16 characters, and the upper one is then increased; one column has no
    statistics."""
    t.create(
        "id BIGINT, s STRING, b BINARY, unknown STRING, counted STRING",
        write_metadata_metrics_column_unknown="none",
        write_metadata_metrics_column_counted="counts",
    )
    t.sql(
        "INSERT INTO {t} VALUES (1, repeat('a', 40), X'00112233445566778899AABBCCDDEEFF0011', 'x', 'y')",
        "INSERT INTO {t} VALUES (2, concat(repeat('z', 16), 'tail'), unhex(repeat('FF', 20)), NULL, NULL)",
        "INSERT INTO {t} VALUES (3, repeat(chr(233), 20), NULL, 'x', 'z')",
        "INSERT INTO {t} VALUES (4, concat(repeat('a', 15), '\\uD83D\\uDE00', 'b'), X'', 'w', 'y')",
    )
    t.filters = [
        "s > 'aaaaaaaaaaaaaaaaa'", "s = '" + "a" * 40 + "'", "s >= 'zzzzzzzzzzzzzzzzta'", "s < 'b'", "s LIKE 'zzzz%'", "unknown = 'x'",
        "unknown IS NULL", "counted IS NOT NULL", "counted = 'y'", "s > 'é'", "s = 'éééééééééééééééééééé'", "s > 'zzzzzzzzzzzzzzzz'",
    ]  # fmt: skip


@maker
def not_a_number(t: Table) -> None:
    t.create("id BIGINT, f FLOAT, d DOUBLE")
    t.sql(
        "INSERT INTO {t} VALUES (1, float('nan'), double('nan'))",
        "INSERT INTO {t} VALUES (2, float('nan'), 1.0), (3, -0.0, 0.0)",
        "INSERT INTO {t} VALUES (4, float('infinity'), double('-infinity')), (5, NULL, NULL)",
    )
    t.filters = [
        "f > 1", "f < 1", "f = 0", "d = 0", "d >= 0", "d < 0", "f IS NULL", "f IS NOT NULL", "NOT (f > 1)", "NOT (d <= 1)",
    ]  # fmt: skip


@maker
def empty(t: Table) -> None:
    t.create("id BIGINT, v STRING")


@maker
def emptied(t: Table) -> None:
    t.create("id BIGINT, v STRING")
    t.sql("INSERT INTO {t} VALUES (1, 'a')", "DELETE FROM {t}")


@maker
def lineage(t: Table) -> None:
    """Row ids after a commit with several manifests, deletes, updates of both kinds, and compaction."""
    t.create("id BIGINT, v STRING, p INT", 3, "PARTITIONED BY (p)", **MERGE_ON_READ)
    t.sql(
        "INSERT INTO {t} SELECT id, concat('v', id), id % 4 FROM range(0, 20)",
        "UPDATE {t} SET v = 'u1' WHERE id % 5 = 0",
        "INSERT INTO {t} SELECT id, concat('w', id), id % 4 FROM range(20, 30)",
        "CALL lake.system.rewrite_manifests({n})",
        "DELETE FROM {t} WHERE id % 6 = 0",
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'copy-on-write')",
        "UPDATE {t} SET v = 'u2' WHERE id % 7 = 1",
        "CALL lake.system.rewrite_data_files(table => {n}, options => map('rewrite-all', 'true'))",
        "INSERT INTO {t} VALUES (40, 'last', 0)",
    )


@maker
def lineage_upgraded(t: Table) -> None:
    t.create("id BIGINT, v STRING")
    t.sql("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "INSERT INTO {t} VALUES (3, 'c')")
    t.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')", "INSERT INTO {t} VALUES (4, 'd')")
    t.sql("UPDATE {t} SET v = 'z' WHERE id = 2")
    t.lineage = True


@maker
def many_manifests(t: Table) -> None:
    t.create("id BIGINT, v STRING", 3, commit_manifest__merge_enabled="false")
    for step in range(5):
        t.sql(f"INSERT INTO {{t}} VALUES ({step}, 'v{step}')")
    t.sql(
        "DELETE FROM {t} WHERE id = 2",
        "CALL lake.system.expire_snapshots(table => {n}, older_than => now(), retain_last => 2)",
    )


# --- what Spark reads ---


def export(t: Table, target: pathlib.Path, store: Any) -> None:
    """Copy the files of the table from ``store``, and write the rows that Spark reads from each snapshot."""
    table = t.java()
    metadata = table.operations().current().metadataFileLocation()
    shutil.rmtree(target, ignore_errors=True)
    for page in store.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{t.name}/"):
        for item in page.get("Contents", ()):
            # A reader needs only the current metadata file.
            if item["Key"].endswith(".metadata.json") and not metadata.endswith(item["Key"]):
                continue
            path = target / "table" / item["Key"].removeprefix(f"{t.name}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            store.download_file(BUCKET, item["Key"], str(path))
    snapshots = t.spark.sql(
        f"SELECT snapshot_id, CAST(CAST(committed_at AS DOUBLE) * 1000 AS BIGINT), operation FROM {t.full_name}.snapshots "
        "ORDER BY committed_at"
    ).collect()
    current = t.spark.sql(f"SELECT snapshot_id FROM {t.full_name}.refs WHERE name = 'main'").first()
    lineage_from = _lineage_from(table)
    listed = []
    for number, (snapshot, moment, operation) in enumerate(snapshots):
        with_lineage = t.lineage and snapshot in lineage_from
        _write_rows(t, f"VERSION AS OF {snapshot}", target / f"rows-{number}.parquet", with_lineage)
        listed.append({"id": snapshot, "timestamp_ms": moment, "operation": operation, "lineage": with_lineage})
    if current:
        _write_rows(t, "", target / "rows-current.parquet", t.lineage and current[0] in lineage_from)
    refs = t.spark.sql(f"SELECT name, type, snapshot_id FROM {t.full_name}.refs ORDER BY name").collect()
    for name, kind, _ in refs:
        _write_rows(t, f"VERSION AS OF '{name}'", target / f"rows-{kind.lower()}-{name}.parquet", False)
    expected = {
        "table": t.name,
        "source": f"make_iceberg_tables.py with iceberg-spark-runtime {VERSION}",
        "location": f"s3://{BUCKET}/{t.name}",
        "metadata": metadata,
        "current_snapshot": current[0] if current else None,
        "snapshots": listed,
        "refs": [{"name": name, "type": kind.lower(), "snapshot": snapshot} for name, kind, snapshot in refs],
        "filters": _matches(t),
    }
    (target / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _lineage_from(table: Any) -> set[int]:
    """Return the snapshots that have a first row id, i.e. those made since the table has format version 3."""
    results = set()
    for snapshot in table.snapshots():
        if snapshot.firstRowId() is not None:
            results.add(snapshot.snapshotId())
    return results


def _write_rows(t: Table, version: str, path: pathlib.Path, lineage: bool) -> None:
    more = ", _row_id, _last_updated_sequence_number" if lineage else ""
    frame = t.spark.sql(f"SELECT *{more} FROM {t.full_name} {version}")
    columns = [
        f"to_json(`{field.name}`) AS `{field.name}`" if field.dataType.typeName() == "variant" else f"`{field.name}`"
        for field in frame.schema.fields
    ]
    with tempfile.TemporaryDirectory() as folder:
        frame.selectExpr(*columns).coalesce(1).write.parquet(f"{folder}/rows")
        (part,) = pathlib.Path(folder, "rows").glob("part-*.parquet")
        shutil.copy(part, path)


def _matches(t: Table) -> list[dict[str, Any]]:
    # The rows are cached, so that Spark evaluates the filter: Iceberg's push-down of LIKE fails on null in truncate
    # partitions.
    rows = t.spark.table(t.full_name).cache()
    return [{"sql": sql, "ids": sorted(row.id for row in rows.where(sql).select("id").collect())} for sql in t.filters]


def session(endpoint: str, work: str) -> SparkSession:
    """Return a Spark session in UTC with a catalog ``lake`` whose files are in the object store at ``endpoint``."""
    os.environ["TZ"] = "UTC"
    catalog = "spark.sql.catalog.lake"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", ",".join(PACKAGES))
        .config("spark.jars.excludes", "org.slf4j:*")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "jdbc")
        .config(f"{catalog}.uri", f"jdbc:sqlite:file:{work}/catalog.db")
        .config(f"{catalog}.jdbc.schema-version", "V1")
        .config(f"{catalog}.warehouse", f"s3://{BUCKET}")
        .config(f"{catalog}.io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
        .config(f"{catalog}.s3.endpoint", endpoint)
        .config(f"{catalog}.s3.path-style-access", "true")
        .config(f"{catalog}.s3.access-key-id", "test")
        .config(f"{catalog}.s3.secret-access-key", "test")
        .config(f"{catalog}.client.region", "us-east-1")
        .config(f"{catalog}.cache-enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", f"{work}/warehouse")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.made")
    return spark


def main(names: Sequence[str]) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    store = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    store.create_bucket(Bucket=BUCKET)
    failed = []
    with tempfile.TemporaryDirectory() as work:
        spark = session(endpoint, work)
        for name in names or MAKERS:
            table = Table(spark, name, store)
            try:
                MAKERS[name](table)
                export(table, TABLES / name, store)
            except Exception as error:
                failed.append(name)
                print(f"{name}: {str(error)[:900]}", flush=True)
                shutil.rmtree(TABLES / name, ignore_errors=True)
            else:
                print(f"{name}: done", flush=True)
        spark.stop()
    server.stop()
    if failed:
        raise SystemExit(f"not written: {', '.join(failed)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *MAKERS], help="only these tables")
    main(parser.parse_args().names)
