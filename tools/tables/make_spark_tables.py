"""Write ``tests/tables_spark``, and the rows that Spark reads from them, with Delta Lake for Spark.

    python tools/tables/make_spark_tables.py [NAME ...]

needs a JDK, PySpark 4.2 and Maven Central (``PACKAGES``). With PySpark 3.5 it writes the tables of ``OLD_MAKERS``
with an old Delta Lake instead, which wrote other statistics. Each table becomes ``<name>/delta`` and
``<name>/expected.json`` (and ``expected_cdf.json``) in the form of the conformance tables that
``tests/golden/corpus.py`` reads; ``version_rows`` holds the rows of every version and ``row_lineage`` those of the
latest one with row id and row commit version. The expected rows are read back by Delta Lake for Spark, so the client
is compared with another engine.

The names: ``<feature>`` shows one feature in all its forms, ``pair-<a>-<b>`` runs one workload with two features on.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import itertools
import json
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence

import pyspark
from pyspark.sql import DataFrame, SparkSession

IS_OLD = pyspark.__version__.startswith("3.5.")
PACKAGES = "io.delta:delta-spark_2.12:3.2.1" if IS_OLD else "io.delta:delta-spark_4.2_2.13:4.4.0"
# Packages that Spark ships in its own versions.
EXCLUDED = [
    "com.fasterxml.jackson.core",
    "com.fasterxml.jackson.datatype",
    "com.github.luben",
    "com.google.code.findbugs",
    "commons-logging",
    "commons-pool",
    "io.airlift",
    "javax.annotation",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.locationtech.jts",
    "org.roaringbitmap",
    "org.slf4j",
    "org.xerial.snappy",
]
TABLES = pathlib.Path(__file__).resolve().parents[2] / "tests" / "tables_spark"
MAKERS: dict[str, Callable[[Table], None]] = {}
OLD_MAKERS: dict[str, Callable[[Table], None]] = {}

PROPERTIES = {
    "mapname": {"delta.columnMapping.mode": "name"},
    "mapid": {"delta.columnMapping.mode": "id"},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "widening": {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "tracking": {"delta.enableRowTracking": "true"},
    "ntz": {},
    "variant": {},
    "checkpointv2": {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"},
    "committime": {"delta.enableInCommitTimestamps": "true"},
    "partition": {},
    "clustering": {},
}


class Table:
    """A table under construction: execute SQL, in which ``{t}`` stands for the table, and write the directory and its
    expected rows."""

    def __init__(self, spark: SparkSession, name: str, root: pathlib.Path) -> None:
        self.spark = spark
        self.name = name
        self.path = root / name
        self.lineage = False
        self.feed_from: int | None = None

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))

    def create(self, columns: str, properties: dict[str, str] | None = None, tail: str = "") -> None:
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in (properties or {}).items())
        self.sql(
            f"CREATE TABLE {{t}} ({columns}) USING delta {tail}" + (f" TBLPROPERTIES ({listed})" if listed else "")
        )


def maker(function: Callable[[Table], None]) -> Callable[[Table], None]:
    MAKERS[function.__name__.replace("_", "-")] = function
    return function


def old_maker(function: Callable[[Table], None]) -> Callable[[Table], None]:
    OLD_MAKERS[function.__name__.replace("_", "-")] = function
    return function


# --- one feature each ---


@maker
def plain(t: Table) -> None:
    t.create("id LONG NOT NULL, name STRING, flag BOOLEAN")
    t.sql(
        "INSERT INTO {t} VALUES (1, 'a', true), (2, NULL, false)",
        "INSERT INTO {t} VALUES (3, '', NULL)",
        "UPDATE {t} SET name = 'z' WHERE id = 1",
        "DELETE FROM {t} WHERE id = 2",
        "OPTIMIZE {t}",
    )


@maker
def all_types(t: Table) -> None:
    t.create(
        "a TINYINT, b SMALLINT, c INT, d LONG, e FLOAT, f DOUBLE, g DECIMAL(5,2), h DECIMAL(38,18), i STRING, j BINARY, "
        "k BOOLEAN, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, o CHAR(4), p VARCHAR(7), q ARRAY<INT>, r MAP<STRING, LONG>, "
        "s STRUCT<x: INT, y: ARRAY<STRUCT<z: STRING>>>, u ARRAY<MAP<INT, ARRAY<DATE>>>"
    )
    t.sql(
        "INSERT INTO {t} VALUES (1, 2, 3, 4, 1.5, 2.5, 123.45, 12345678901234567890.123456789012345678, 'ü', X'00FF', true, "
        "DATE'2024-02-29', TIMESTAMP'2024-02-29 12:34:56.789012 UTC', TIMESTAMP_NTZ'2024-02-29 12:34:56.789012', 'ab', 'cd', "
        "array(1, NULL), map('k', 1L, 'n', NULL), named_struct('x', 1, 'y', array(named_struct('z', 'q'), NULL)), "
        "array(map(1, array(DATE'1999-12-31')), NULL))",
        "INSERT INTO {t} VALUES (-128, -32768, -2147483648, -9223372036854775808, float('nan'), double('-infinity'), -999.99, "
        "-0.000000000000000001, '', X'', false, DATE'0001-01-01', TIMESTAMP'1900-01-01 00:00:00 UTC', "
        "TIMESTAMP_NTZ'0001-01-01 00:00:00', '', '', array(), map(), named_struct('x', NULL, 'y', NULL), array())",
        "INSERT INTO {t} SELECT " + ", ".join(["NULL"] * 20),
        "INSERT INTO {t} VALUES (127, 32767, 2147483647, 9223372036854775807, float('infinity'), -0.0D, 0, 1, 'x', X'61', true, "
        "DATE'9999-12-31', TIMESTAMP'9999-12-31 23:59:59.999999 UTC', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', 'abcd', "
        "'abcdefg', array(1, 2), map('', 0), named_struct('x', 5, 'y', array()), array(map()))",
    )


@maker
def partition_all_types(t: Table) -> None:
    t.create(
        "v INT, a TINYINT, b SMALLINT, c INT, d LONG, e FLOAT, f DOUBLE, g DECIMAL(10,3), h STRING, i BOOLEAN, j DATE, "
        "k TIMESTAMP, l BINARY, n TIMESTAMP_NTZ, o CHAR(3), p VARCHAR(5)",
        tail="PARTITIONED BY (a, b, c, d, e, f, g, h, i, j, k, l, n, o, p)",
    )
    t.sql(
        "INSERT INTO {t} VALUES (1, 1, 2, 3, 4, 1.5, 2.5, 1.250, 'a=b/c %41+é', true, DATE'2024-02-29', "
        "TIMESTAMP'2024-02-29 12:34:56.789012 UTC', X'4142', TIMESTAMP_NTZ'2024-02-29 00:00:00', 'ab', 'cde')",
        "INSERT INTO {t} VALUES (2, " + ", ".join(["NULL"] * 15) + ")",
        "INSERT INTO {t} VALUES (3, -1, -2, -3, -4, float('nan'), double('-infinity'), -0.001, '', false, DATE'1969-12-31', "
        "TIMESTAMP'1969-12-31 23:59:59.5 UTC', X'', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999', '', '')",
        "DELETE FROM {t} WHERE v = 1",
        "INSERT INTO {t} VALUES (4, 1, 2, 3, 4, -0.0, double('infinity'), 1.250, ' sp ace ', true, DATE'2024-02-29', "
        "TIMESTAMP'2024-03-10 02:30:00 UTC', X'7F', TIMESTAMP_NTZ'2024-03-10 02:30:00', 'abc', 'x')",
    )


@maker
def mapping_name(t: Table) -> None:
    _mapping(t, "name")


@maker
def mapping_id(t: Table) -> None:
    _mapping(t, "id")


def _mapping(t: Table, mode: str) -> None:
    t.create(
        "id LONG, `odd name, (x)` STRING, s STRUCT<a: INT, b: STRUCT<c: STRING, d: INT>>, l ARRAY<STRUCT<e: INT>>, "
        "m MAP<STRING, STRUCT<f: INT>>, part STRING",
        {"delta.columnMapping.mode": mode},
        "PARTITIONED BY (part)",
    )
    row = "({i}, 'x{i}', named_struct('a', {i}, 'b', named_struct('c', 'c{i}', 'd', {i})), array(named_struct('e', {i})), "
    row += "map('k', named_struct('f', {i})), 'p{i}')"
    t.sql(
        "INSERT INTO {t} VALUES " + row.replace("{i}", "1") + ", " + row.replace("{i}", "2"),
        "ALTER TABLE {t} RENAME COLUMN `odd name, (x)` TO renamed",
        "ALTER TABLE {t} RENAME COLUMN s.b.c TO cc",
        "ALTER TABLE {t} RENAME COLUMN l.element.e TO ee",
        "ALTER TABLE {t} RENAME COLUMN m.value.f TO ff",
        "ALTER TABLE {t} RENAME COLUMN part TO section",
        "INSERT INTO {t} VALUES " + row.replace("{i}", "3"),
        "ALTER TABLE {t} DROP COLUMN renamed",
        "ALTER TABLE {t} DROP COLUMN s.b.d",
        "ALTER TABLE {t} ADD COLUMN renamed INT",
        "ALTER TABLE {t} ADD COLUMN s.b.d STRING",
        "INSERT INTO {t} (id, s, section, renamed) VALUES (4, named_struct('a', 4, 'b', named_struct('cc', 'c4', 'd', 'new')), "
        "'p4', 44)",
        "UPDATE {t} SET renamed = 11 WHERE id = 1",
    )


@maker
def mapping_upgraded(t: Table) -> None:
    t.create("id LONG, a STRING, b STRING")
    t.sql(
        "INSERT INTO {t} VALUES (1, 'a1', 'b1')",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
        "'delta.minWriterVersion' = '5')",
        # the names are swapped: a reader that matches columns by name would confuse them
        "ALTER TABLE {t} RENAME COLUMN a TO tmp",
        "ALTER TABLE {t} RENAME COLUMN b TO a",
        "ALTER TABLE {t} RENAME COLUMN tmp TO b",
        "INSERT INTO {t} VALUES (2, 'was b', 'was a')",
    )


@maker
def deletion_vectors(t: Table) -> None:
    t.create("id LONG, v STRING", PROPERTIES["vectors"])
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(0, 50)",
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(50, 60)",
        "DELETE FROM {t} WHERE id % 7 = 0",
        "UPDATE {t} SET v = 'u' WHERE id IN (3, 55)",
        "MERGE INTO {t} USING (SELECT id * 10 AS id FROM range(0, 8)) s ON {t}.id = s.id "
        "WHEN MATCHED AND s.id > 30 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'm' "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'i')".replace("{t}.id", "tt.id").replace(
            "INTO {t}", "INTO {t} tt"
        ),
        "DELETE FROM {t} WHERE id >= 50 AND id < 60",
        "RESTORE TABLE {t} TO VERSION AS OF 4",
    )


@maker
def type_widening(t: Table) -> None:
    names = [
        "b_s",
        "b_i",
        "b_l",
        "b_f",
        "b_d",
        "b_dec",
        "s_i",
        "s_l",
        "s_f",
        "s_d",
        "s_dec",
        "i_l",
        "i_d",
        "i_dec",
        "l_dec",
        "f_d",
        "dec_dec",
        "d_n",
    ]
    changes = {
        "b_s": ("TINYINT", "SMALLINT"), "b_i": ("TINYINT", "INT"), "b_l": ("TINYINT", "LONG"), "b_f": ("TINYINT", "FLOAT"),
        "b_d": ("TINYINT", "DOUBLE"), "b_dec": ("TINYINT", "DECIMAL(10,0)"), "s_i": ("SMALLINT", "INT"),
        "s_l": ("SMALLINT", "LONG"), "s_f": ("SMALLINT", "FLOAT"), "s_d": ("SMALLINT", "DOUBLE"),
        "s_dec": ("SMALLINT", "DECIMAL(12,2)"), "i_l": ("INT", "LONG"), "i_d": ("INT", "DOUBLE"),
        "i_dec": ("INT", "DECIMAL(11,1)"), "l_dec": ("LONG", "DECIMAL(22,2)"), "f_d": ("FLOAT", "DOUBLE"),
        "dec_dec": ("DECIMAL(5,2)", "DECIMAL(12,4)"), "d_n": ("DATE", "TIMESTAMP_NTZ"),
    }  # fmt: skip
    # Delta Lake widens BYTE and SHORT to DOUBLE, but not to FLOAT.
    changes = {name: changes[name] for name in names if name not in ("b_f", "s_f")}
    t.create(
        "id INT, "
        + ", ".join(f"{name} {old}" for name, (old, _) in changes.items())
        + ", s STRUCT<x: INT>, l ARRAY<SMALLINT>, "
        "m MAP<TINYINT, FLOAT>",
        PROPERTIES["widening"],
    )
    low = {"TINYINT": "-128", "SMALLINT": "-32768", "INT": "-2147483648", "LONG": "-9223372036854775808", "FLOAT": "0.1",
           "DECIMAL(5,2)": "-999.99", "DATE": "DATE'1969-12-31'"}  # fmt: skip
    t.sql(
        "INSERT INTO {t} VALUES (1, " + ", ".join(low[old] for old, _ in changes.values())
        + ", named_struct('x', -2147483648), array(32767, NULL), map(-128, float(0.1)))",
        "INSERT INTO {t} SELECT 2, " + ", ".join(["NULL"] * (len(changes) + 3)),
    )  # fmt: skip
    for name, (_, new) in changes.items():
        t.sql(f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {new}")
    t.sql(
        "ALTER TABLE {t} ALTER COLUMN s.x TYPE LONG",
        "ALTER TABLE {t} ALTER COLUMN l.element TYPE LONG",
        "ALTER TABLE {t} ALTER COLUMN m.key TYPE INT",
        "ALTER TABLE {t} ALTER COLUMN m.value TYPE DOUBLE",
    )
    high = {"SMALLINT": "32767", "INT": "2147483647", "LONG": "9223372036854775807", "DOUBLE": "0.1D",
            "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'2024-02-29 12:00:00.000001'"}  # fmt: skip
    t.sql(
        "INSERT INTO {t} VALUES (3, " + ", ".join(high.get(new, "12345678.9" if "4)" in new else "987654321") for _, new in changes.values())
        + ", named_struct('x', 9223372036854775807), array(9223372036854775807), map(2147483647, 0.1D))",
    )  # fmt: skip


@maker
def widening_partition(t: Table) -> None:
    t.create("v INT, p TINYINT, q DATE, r DECIMAL(4,1), f FLOAT", PROPERTIES["widening"], "PARTITIONED BY (p, q, r, f)")
    t.sql(
        "INSERT INTO {t} VALUES (1, 1, DATE'2020-01-01', 1.5, 0.1), (2, NULL, NULL, NULL, NULL)",
        "ALTER TABLE {t} ALTER COLUMN p TYPE LONG",
        "ALTER TABLE {t} ALTER COLUMN q TYPE TIMESTAMP_NTZ",
        "ALTER TABLE {t} ALTER COLUMN r TYPE DECIMAL(10,3)",
        "INSERT INTO {t} VALUES (3, 9223372036854775807, TIMESTAMP_NTZ'2020-01-01 01:02:03.4', 123456.789, 0.5)",
        "DELETE FROM {t} WHERE v = 2",
    )


@maker
def change_feed(t: Table) -> None:
    _feed(t, PROPERTIES["feed"])


@maker
def change_feed_vectors(t: Table) -> None:
    _feed(t, {**PROPERTIES["feed"], **PROPERTIES["vectors"]})


@maker
def change_feed_null_partitions(t: Table) -> None:
    _null_partitions(t, PROPERTIES["feed"])


@maker
def change_feed_null_partitions_mapped(t: Table) -> None:
    _null_partitions(t, {**PROPERTIES["feed"], **PROPERTIES["mapname"]})


def _null_partitions(t: Table, properties: dict[str, str]) -> None:
    """Whole files are removed: their tombstones omit partition values that are null. With column mapping, the data
    files contain the partition columns."""
    t.feed_from = 0
    t.create("id LONG, p INT, q DATE", properties, "PARTITIONED BY (p, q)")
    t.sql(
        "INSERT INTO {t} VALUES (1, NULL, NULL), (2, 1, NULL), (3, NULL, DATE'2024-01-01'), (4, 1, DATE'2024-01-01')",
        "DELETE FROM {t} WHERE p IS NULL",
        "INSERT OVERWRITE {t} VALUES (5, NULL, NULL), (6, 2, NULL)",
        "INSERT OVERWRITE {t} VALUES (7, 3, DATE'2024-01-01')",
    )


def _feed(t: Table, properties: dict[str, str]) -> None:
    t.feed_from = 0
    t.create("id LONG, v STRING, p INT", properties, "PARTITIONED BY (p)")
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id), int(id % 2) FROM range(0, 10)",
        "UPDATE {t} SET v = 'u' WHERE id = 3",
        "UPDATE {t} SET p = 1 WHERE id = 4",
        "DELETE FROM {t} WHERE id IN (5, 6)",
        "MERGE INTO {t} tt USING (SELECT * FROM VALUES (7L, 'm', 1), (8L, NULL, 0), (20L, 'n', 0) AS s(id, v, p)) s ON tt.id = s.id "
        "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (s.id, s.v, s.p)",
        "MERGE INTO {t} tt USING (SELECT 999L AS id) s ON tt.id = s.id WHEN MATCHED THEN DELETE",
        "OPTIMIZE {t}",
        "DELETE FROM {t} WHERE p = 1",
        "INSERT OVERWRITE {t} VALUES (100, 'o', 5)",
        "RESTORE TABLE {t} TO VERSION AS OF 3",
        "ALTER TABLE {t} ADD COLUMN extra INT",
        "INSERT INTO {t} VALUES (200, 'e', 0, 7)",
        "DELETE FROM {t}",
    )


@maker
def row_tracking(t: Table) -> None:
    _tracking(t, PROPERTIES["tracking"])


@maker
def row_tracking_vectors(t: Table) -> None:
    _tracking(t, {**PROPERTIES["tracking"], **PROPERTIES["vectors"], "delta.columnMapping.mode": "name"})


def _tracking(t: Table, properties: dict[str, str]) -> None:
    t.lineage = True
    t.create("id LONG, v STRING", properties)
    t.sql(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id, concat('v', id) FROM range(0, 10)",
        "INSERT INTO {t} VALUES (10, 'b'), (11, 'c')",
        "UPDATE {t} SET v = 'u' WHERE id = 3",
        "DELETE FROM {t} WHERE id = 5",
        "OPTIMIZE {t}",
        "MERGE INTO {t} tt USING (SELECT * FROM VALUES (7L), (20L) AS s(id)) s ON tt.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 'm' WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 'n')",
    )


@maker
def row_tracking_backfilled(t: Table) -> None:
    t.lineage = True
    t.create("id LONG")
    t.sql(
        "INSERT INTO {t} VALUES (1), (2)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "INSERT INTO {t} VALUES (3)",
    )


@maker
def timestamp_ntz(t: Table) -> None:
    t.create("id INT, n TIMESTAMP_NTZ, z TIMESTAMP, l ARRAY<TIMESTAMP_NTZ>, p TIMESTAMP_NTZ", tail="PARTITIONED BY (p)")
    t.sql(
        "INSERT INTO {t} VALUES (1, TIMESTAMP_NTZ'2024-03-10 02:30:00', TIMESTAMP'2024-03-10 02:30:00 UTC', "
        "array(TIMESTAMP_NTZ'1500-01-01 00:00:00', NULL), TIMESTAMP_NTZ'2024-01-01 00:00:00.000001')",
        "INSERT INTO {t} VALUES (2, NULL, NULL, NULL, NULL)",
    )


@maker
def variant(t: Table) -> None:
    t.create("id INT, v VARIANT, l ARRAY<VARIANT>, s STRUCT<x: VARIANT>, m MAP<STRING, VARIANT>")
    _variants(t)


@maker
def variant_shredded(t: Table) -> None:
    t.create("id INT, v VARIANT", {"delta.enableVariantShredding": "true"})
    settings = {
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.variant.allowReadingShredded": "true",
        "spark.sql.variant.forceShreddingSchemaForTest": "a int, b string, c struct<d: double>, e array<int>",
    }
    values = (
        """{"a": 1, "b": "x", "c": {"d": 1.5}, "e": [1, 2]}""",
        """{"a": "text", "c": 7, "e": [1, "z"], "f": null}""",
        "null",
        "[1]",
        "{}",
    )
    rows = ", ".join(f"({i}, parse_json('{value}'))" for i, value in enumerate(values))
    _with_conf(
        t, settings, lambda: t.sql(f"INSERT INTO {{t}} VALUES {rows}, (9, NULL)", "DELETE FROM {t} WHERE id = 4")
    )


@maker
def geospatial(t: Table) -> None:
    point = "0101000000000000000000{x}000000000000{y}"  # with the coordinates 1 and 2, or 5 and 6
    first, second = point.format(x="F03F", y="0040"), point.format(x="1440", y="1840")
    line = "010200000002000000" + first[10:] + second[10:]

    # The feature is disabled by default while its protocol is a proposal; reads need the setting as well.
    t.spark.conf.set("spark.databricks.delta.geo.preview.enabled", "true")
    t.feed_from = 0
    t.create(
        "id INT, place GEOMETRY(3857), plain GEOMETRY(0), globe GEOGRAPHY(4326), s STRUCT<g: GEOMETRY(4326)>, "
        "l ARRAY<GEOGRAPHY(4326)>",
        {**PROPERTIES["feed"], **PROPERTIES["vectors"]},
    )
    for start, shape in ((1, first), (11, second), (21, line)):
        flat, curved = f"ST_GeomFromWKB(X'{shape}', {{srid}})", f"ST_GeogFromWKB(X'{shape}')"
        values = (
            f"{flat.format(srid=3857)}, {flat.format(srid=0)}, {curved}, "
            f"named_struct('g', {flat.format(srid=4326)}), array({curved}, NULL)"
        )
        t.sql(f"INSERT INTO {{t}} VALUES ({start}, {values}), ({start + 1}, {values}), ({start + 2}{', NULL' * 5})")
    t.sql(
        "DELETE FROM {t} WHERE id IN (2, 13)",
        f"UPDATE {{t}} SET place = {flat.format(srid=3857)}, globe = NULL WHERE id = 11",
    )


def _variants(t: Table) -> None:
    p = "parse_json"
    t.sql(
        f"""INSERT INTO {{t}} SELECT 1, {p}('{{"a": 1, "b": "x", "c": {{"d": 1.5}}}}'), array({p}('1'), {p}('null'), NULL),
        named_struct('x', {p}('[1, "two", null, {{"three": 3.25}}]')), map('k', {p}('"text"'))""",
        f"""INSERT INTO {{t}} SELECT 2, {p}('{{"a": "not an int", "z": [true, false]}}'), array(), named_struct('x', NULL), map()""",
        f"""INSERT INTO {{t}} SELECT 3, NULL, NULL, NULL, NULL UNION ALL SELECT 4, {p}('{{}}'), NULL, NULL, NULL
        UNION ALL SELECT 5, {p}('12345678901234567890'), NULL, NULL, NULL UNION ALL SELECT 6, {p}('"é\\\\u0000"'), NULL, NULL, NULL
        UNION ALL SELECT 7, {p}('null'), NULL, NULL, NULL UNION ALL SELECT 8, {p}('1e300'), NULL, NULL, NULL""",
        "DELETE FROM {t} WHERE id = 2",
    )


@maker
def checkpoint_v2(t: Table) -> None:
    t.create("id LONG", PROPERTIES["checkpointv2"])
    for i in range(7):
        t.sql(f"INSERT INTO {{t}} VALUES ({i})")
    t.sql("DELETE FROM {t} WHERE id = 3")


@maker
def checkpoint_v2_json(t: Table) -> None:
    _with_conf(t, {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"}, lambda: checkpoint_v2(t))


@maker
def checkpoint_multipart(t: Table) -> None:
    def fill() -> None:
        t.create("id LONG, p INT", {"delta.checkpointInterval": "4"}, "PARTITIONED BY (p)")
        for i in range(4):
            t.sql(f"INSERT INTO {{t}} VALUES ({i}, {i}), ({i + 10}, {i + 1})")
        t.sql("DELETE FROM {t} WHERE id = 1", "INSERT INTO {t} VALUES (99, NULL)")

    _with_conf(t, {"spark.databricks.delta.checkpoint.partSize": "3"}, fill)


@maker
def checkpoint_struct_stats(t: Table) -> None:
    t.create(
        "id LONG, d DATE, p INT",
        {
            "delta.checkpoint.writeStatsAsJson": "false",
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpointInterval": "2",
        },
        "PARTITIONED BY (p)",
    )
    for i in range(5):
        t.sql(f"INSERT INTO {{t}} VALUES ({i}, DATE'2024-01-0{i + 1}', {i % 2})")


@maker
def log_compacted(t: Table) -> None:
    t.create("id LONG")
    for i in range(6):
        t.sql(f"INSERT INTO {{t}} VALUES ({i})")
    t.sql("DELETE FROM {t} WHERE id = 2")
    # Delta Lake reads compacted commits but has no command that writes them: write one as in "Log Compaction Files"
    # of the Delta protocol.
    log = t.path / "_delta_log"
    files: dict[str, str] = {}
    for version in range(2, 8):
        for line in (log / f"{version:020d}.json").read_text().splitlines():
            action = json.loads(line)
            for kind in ("add", "remove"):
                if kind in action:
                    files[action[kind]["path"]] = line
    (log / f"{2:020d}.{7:020d}.compacted.json").write_text("\n".join(files.values()) + "\n")
    t.sql("INSERT INTO {t} VALUES (100)")


@maker
def vacuumed(t: Table) -> None:
    t.feed_from = 4
    t.create("id LONG", {**PROPERTIES["feed"], "delta.feature.vacuumProtocolCheck": "supported"})
    t.sql(
        "INSERT INTO {t} VALUES (1), (2), (3)",
        "UPDATE {t} SET id = 20 WHERE id = 2",
        "DELETE FROM {t} WHERE id = 3",
    )
    _with_conf(
        t,
        {"spark.databricks.delta.retentionDurationCheck.enabled": "false"},
        lambda: t.sql("VACUUM {t} RETAIN 0 HOURS"),
    )
    t.sql("INSERT INTO {t} VALUES (4)")


@maker
def in_commit_timestamp(t: Table) -> None:
    t.create("id LONG")
    t.sql(
        "INSERT INTO {t} VALUES (1)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO {t} VALUES (2)",
        "INSERT INTO {t} VALUES (3)",
    )


@maker
def char_varchar(t: Table) -> None:
    t.create("a CHAR(5), b VARCHAR(5), s STRUCT<c: CHAR(2)>, p CHAR(3)", tail="PARTITIONED BY (p)")
    t.sql(
        "INSERT INTO {t} VALUES ('ab', 'ab', named_struct('c', 'x'), 'p'), ('', '', NULL, ''), (NULL, NULL, NULL, NULL)"
    )


@maker
def void_columns(t: Table) -> None:
    t.spark.sql("SELECT 1 AS id, NULL AS v, named_struct('x', 1, 'y', NULL) AS s").write.format("delta").save(
        str(t.path)
    )
    t.sql("INSERT INTO {t} SELECT 2, NULL, named_struct('x', 2, 'y', NULL)")


@maker
def clustered(t: Table) -> None:
    t.create("id LONG, k STRING", tail="CLUSTER BY (k)")
    t.sql(
        "INSERT INTO {t} SELECT id, concat('k', id % 3) FROM range(0, 9)",
        "OPTIMIZE {t}",
        "INSERT INTO {t} VALUES (100, 'x')",
    )


@maker
def identity(t: Table) -> None:
    t.create("id LONG GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5), v STRING")
    t.sql("INSERT INTO {t} (v) VALUES ('a'), ('b')", "INSERT INTO {t} (v) VALUES ('c')")


@maker
def generated(t: Table) -> None:
    t.create("ts TIMESTAMP, d DATE GENERATED ALWAYS AS (CAST(ts AS DATE)), v INT", tail="PARTITIONED BY (d)")
    t.sql(
        "INSERT INTO {t} (ts, v) VALUES (TIMESTAMP'2024-01-01 23:00:00 UTC', 1), (TIMESTAMP'2024-01-02 01:00:00 UTC', 2), (NULL, 3)"
    )


@maker
def defaults_and_constraints(t: Table) -> None:
    t.create("id LONG NOT NULL, v STRING DEFAULT 'dflt'", {"delta.feature.allowColumnDefaults": "supported"})
    t.sql(
        "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",
        "INSERT INTO {t} (id) VALUES (1)",
        "INSERT INTO {t} VALUES (2, NULL)",
    )


@maker
def collated(t: Table) -> None:
    def fill() -> None:
        t.create("id INT, c STRING COLLATE UNICODE_CI, n STRING")
        t.sql("INSERT INTO {t} VALUES (1, 'A', 'A'), (2, 'a', 'a'), (3, NULL, 'é')")

    _with_conf(t, {"spark.databricks.delta.schema.typeCheck.enabled": "false"}, fill)


@maker
def special_names(t: Table) -> None:
    t.create(
        "`a.b` INT, `c``d` STRING, `e f` INT, `Ünï` STRING, `p q=%` STRING",
        PROPERTIES["mapname"],
        "PARTITIONED BY (`p q=%`)",
    )
    t.sql("INSERT INTO {t} VALUES (1, 'x', 2, 'y', 'a/b=c %20 ü+&'), (2, NULL, NULL, NULL, NULL)")


@maker
def schema_evolved(t: Table) -> None:
    t.create("a INT, s STRUCT<x: INT>")
    t.sql(
        "INSERT INTO {t} VALUES (1, named_struct('x', 1))",
        "ALTER TABLE {t} ADD COLUMNS (b STRING FIRST, s.y STRING, c ARRAY<INT> AFTER a)",
        "INSERT INTO {t} VALUES ('b', 2, array(1), named_struct('x', 2, 'y', 'z'))",
        "ALTER TABLE {t} ALTER COLUMN b AFTER s",
        "INSERT INTO {t} VALUES (3, NULL, NULL, 'moved')",
    )


@maker
def overwritten_schema(t: Table) -> None:
    t.create("a INT, b STRING")
    t.sql("INSERT INTO {t} VALUES (1, 'x')")
    frame = t.spark.sql("SELECT 'text' AS a, 5L AS c")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(str(t.path))


@maker
def empty(t: Table) -> None:
    t.create("a INT, s STRUCT<x: ARRAY<INT>>, v VARIANT, p STRING", tail="PARTITIONED BY (p)")


# --- with Delta Lake 3.2 ---


@old_maker
def old_statistics(t: Table) -> None:
    # Delta Lake 3.2 writes bounds with offsets without seconds, and truncated maxima that end in U+FFFD.
    zones = {
        "Europe/Stockholm": 1850, "America/New_York": 1850, "Asia/Kolkata": 1850, "Africa/Monrovia": 1971, "UTC": 1850,
        "Europe/Amsterdam": 1936, "Asia/Riyadh": 1946, "Australia/Sydney": 1890,
    }  # fmt: skip
    corrected = {f"spark.sql.parquet.{kind}RebaseModeInWrite": "CORRECTED" for kind in ("datetime", "int96")}
    t.create("zone STRING, at TIMESTAMP, s STRUCT<at: TIMESTAMP>, cut STRING")
    for zone, year in zones.items():
        moment = f"make_timestamp({year}, 12, 31, 1, 1, 1.234567)"
        settings = {
            **corrected,
            "spark.sql.session.timeZone": zone,
            "spark.databricks.io.skipping.stringPrefixLength": "8",
        }
        _with_conf(
            t, settings, lambda zone=zone, moment=moment: t.sql(
                f"INSERT INTO {{t}} VALUES ('{zone}', {moment}, named_struct('at', {moment}), 'abcdefg\U0001f33c {zone}')",
            )
        )  # fmt: skip


# --- every pair of features, one workload ---


def _pair(first: str, second: str) -> Callable[[Table], None]:
    on = {first, second}

    def make(t: Table) -> None:
        properties = {**PROPERTIES[first], **PROPERTIES[second]}
        columns = ["id LONG", "v STRING", "n SMALLINT", "s STRUCT<x: INT, y: STRING>"]
        extra = "", ""
        if "ntz" in on:
            columns.append("w TIMESTAMP_NTZ")
            extra = ", TIMESTAMP_NTZ'2024-03-10 02:30:00'", ", TIMESTAMP_NTZ'1900-01-01 00:00:00.000001'"
        if "variant" in on:
            columns.append("z VARIANT")
            extra = extra[0] + ", parse_json('{\"a\": [1]}')", extra[1] + ", NULL"
        tail = ""
        if "partition" in on:
            columns.append("p STRING" if "widening" not in on else "p SMALLINT")
            tail = "PARTITIONED BY (p)"
            extra = extra[0] + (", 'a b'" if "widening" not in on else ", 1"), extra[1] + ", NULL"
        if "clustering" in on:
            tail = "CLUSTER BY (id)"
        t.lineage = "tracking" in on
        t.feed_from = 0 if "feed" in on else None
        t.create(", ".join(columns), properties, tail)
        t.sql(
            f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id, concat('v', id), int(id), named_struct('x', int(id), 'y', 'q'){extra[0]} "
            "FROM range(0, 6)",
            f"INSERT INTO {{t}} VALUES (6, NULL, NULL, NULL{extra[1]}), (7, '', 7, named_struct('x', NULL, 'y', NULL){extra[0]})",
        )
        if on & {"mapname", "mapid"}:
            t.sql("ALTER TABLE {t} RENAME COLUMN s.x TO xx")
            if t.feed_from is not None:
                t.feed_from = 3  # Spark refuses to read a feed across a rename
        if "widening" in on:
            t.sql("ALTER TABLE {t} ALTER COLUMN n TYPE LONG")
            if t.feed_from is not None:
                t.feed_from = 3  # and across a type change
            if "partition" in on:
                t.sql("ALTER TABLE {t} ALTER COLUMN p TYPE LONG")
        t.sql("DELETE FROM {t} WHERE id = 2", "UPDATE {t} SET v = 'u' WHERE id IN (3, 6)")
        if on & {"mapname", "mapid"} and t.feed_from is None:
            t.sql("ALTER TABLE {t} DROP COLUMN v", "ALTER TABLE {t} ADD COLUMN v INT")
        t.sql("OPTIMIZE {t}")

    return make


for _first, _second in itertools.combinations(PROPERTIES, 2):
    if {_first, _second} not in ({"mapname", "mapid"}, {"partition", "clustering"}):
        MAKERS[f"pair-{_first}-{_second}"] = _pair(_first, _second)


# --- what Spark reads back ---


def export(t: Table, target: pathlib.Path) -> None:
    """Copy the table to ``target`` and write the rows that Spark reads."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(t.path, target / "delta", ignore=shutil.ignore_patterns("*.crc", "_SUCCESS"))
    history = t.spark.sql(f"DESCRIBE HISTORY delta.`{t.path}`").select("version").collect()
    latest = max(row.version for row in history)
    frame = t.spark.read.format("delta").load(str(t.path))
    detail = t.spark.sql(f"DESCRIBE DETAIL delta.`{t.path}`").collect()[0]
    schema = json.loads(frame.schema.json())["fields"]
    version_rows: dict[str, object] = {}
    versions: dict[str, object] = {}
    for version in range(latest + 1):
        try:
            snapshot = t.spark.read.format("delta").option("versionAsOf", version).load(str(t.path))
            result = rows(snapshot)
        except Exception as error:
            if not any(
                part in str(error) for part in ("FAILED_READ_FILE", "FileNotFound", "does not exist", "FILE_NOT_EXIST")
            ):
                raise
            versions[str(version)] = {"refuse": "its files were vacuumed"}
            continue
        versions[str(version)] = {"rows": len(result), "columns": snapshot.columns}
        version_rows[str(version)] = result
    expected: dict[str, object] = {
        "table": t.name,
        "source": f"make_spark_tables.py with {PACKAGES}",
        "outcome": "read",
        "latest_version": latest,
        "protocol": {
            "minReaderVersion": detail.minReaderVersion,
            "minWriterVersion": detail.minWriterVersion,
            "tableFeatures": detail.tableFeatures,
        },
        "partition_columns": detail.partitionColumns,
        "schema": schema,
        "num_files": detail.numFiles,
        "row_count": len(version_rows[str(latest)]),
        "columns": frame.columns,
        "rows": version_rows[str(latest)],
        "versions": versions,
        "version_rows": version_rows,
    }
    if t.lineage:
        tracked = frame.selectExpr(
            *[f"`{name}`" for name in frame.columns], "_metadata.row_id", "_metadata.row_commit_version"
        )
        expected["row_lineage"] = rows(tracked)
    _dump(target / "expected.json", expected)
    if t.feed_from is not None:
        changes = (
            t.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", t.feed_from)
            .option("endingVersion", latest).load(str(t.path)).drop("_commit_timestamp")
        )  # fmt: skip
        query = {
            "start_version": t.feed_from,
            "end_version": latest,
            "columns": changes.columns,
            "rows": rows(changes),
        }
        _dump(target / "expected_cdf.json", {"table": t.name, "queries": [query]})


def rows(frame: DataFrame) -> list[list[object]]:
    """Return the rows of ``frame`` as JSON values, sorted by their text."""
    types = [field.dataType for field in frame.schema.fields]
    returned = [[jsonable(value, kind) for value, kind in zip(row, types, strict=True)] for row in frame.collect()]
    return sorted(returned, key=lambda row: json.dumps(row, sort_keys=True))


def jsonable(value: object, kind: object) -> object:
    """Return a Spark value in the JSON form of the corpus."""
    name = kind.typeName()  # type: ignore[attr-defined]
    if value is None:
        return None
    if name == "variant":
        return json.loads(value.toJson())  # type: ignore[attr-defined]
    if name == "struct":
        return {field.name: jsonable(value[field.name], field.dataType) for field in kind.fields}  # type: ignore[attr-defined,index]
    if name == "array":
        return [jsonable(item, kind.elementType) for item in value]  # type: ignore[attr-defined]
    if name == "map":
        pairs = [[jsonable(k, kind.keyType), jsonable(v, kind.valueType)] for k, v in value.items()]  # type: ignore[attr-defined]
        return sorted(pairs, key=json.dumps)
    if name in ("geometry", "geography"):
        return value.getBytes().hex()  # type: ignore[attr-defined]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds") + ("Z" if name == "timestamp" else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def session() -> SparkSession:
    """Return a Spark session with Delta Lake, in UTC."""
    os.environ["TZ"] = "UTC"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", PACKAGES)
        .config("spark.jars.excludes", ",".join(f"{group}:*" for group in EXCLUDED))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", tempfile.mkdtemp())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(names: Sequence[str]) -> None:
    makers = OLD_MAKERS if IS_OLD else MAKERS
    spark = session()
    failed = []
    with tempfile.TemporaryDirectory() as work:
        for name in names or makers:
            table = Table(spark, name, pathlib.Path(work))
            try:
                makers[name](table)
                export(table, TABLES / name)
            except Exception as error:
                failed.append(name)
                print(f"{name}: {str(error)[:600]}", flush=True)
                shutil.rmtree(TABLES / name, ignore_errors=True)
            else:
                print(f"{name}: done", flush=True)
    if failed:
        raise SystemExit(f"not written: {', '.join(failed)}")


def _with_conf(t: Table, settings: dict[str, str], body: Callable[[], None]) -> None:
    for key, value in settings.items():
        t.spark.conf.set(key, value)
    try:
        body()
    finally:
        for key in settings:
            t.spark.conf.unset(key)


def _dump(path: pathlib.Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[[], *(OLD_MAKERS if IS_OLD else MAKERS)], help="only these tables"
    )
    main(parser.parse_args().names)
