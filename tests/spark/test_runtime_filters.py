"""Queries skip partitions by values that are known only while they run: keys of a join, results of subqueries."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import random
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import delta_sharing_client as ds
import mock_server
from mock_server import catalog
from tests.effort import ALL
from tests.spark.test_push_down import cost, scans
from tests.tables import ODD_PARTITIONS, TableWriter, write_odd

pytestmark = pytest.mark.spark

FACT = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.int32()), ("q", pa.string())])
UTC = datetime.timezone.utc
# Spark 4.0 and 4.1 pass keys of joins to a source, but not the results of scalar subqueries.
HAS_SUBQUERIES = not pyspark.__version__.startswith(("4.0.", "4.1."))
AQE, ANSI = "spark.sql.adaptive.enabled", "spark.sql.ansi.enabled"
PRUNING = "spark.sql.optimizer.dynamicPartitionPruning"
SETTINGS = [{AQE: aqe, ANSI: ansi} for aqe, ansi in ("tt", "ff", *(("tf", "ft") if ALL else ()))]


@contextlib.contextmanager
def settings(spark: Any, given: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in given}
    try:
        for name, value in given.items():
            spark.conf.set(name, {"t": "true", "f": "false"}.get(value, value))
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def fact_rows() -> list[list[dict[str, Any]]]:
    """Return the rows of six files: two of each of the partitions 0 and 1, one of 2, and one whose values are null.

    The files are larger than those of the dimension, so that Spark broadcasts the dimension.
    """
    texts = [random.Random(row).randbytes(2000).hex() for row in range(3)]
    places = [(0, "a"), (1, "b"), (2, "it's"), (None, None), (0, "a"), (1, "b")]
    return [
        [{"id": number * 10 + row, "v": texts[row], "p": p, "q": q} for row in range(3)]
        for number, (p, q) in enumerate(places)
    ]


@pytest.fixture
def fact(spark: Any, lake: Any, tmp_path: Any) -> Iterator[Any]:
    """The views ``far`` (shared), ``near`` (the same rows), ``dim`` (the partitions) and ``far_dim`` (shared)."""
    writer = TableWriter(lake.root / "t", FACT, partition_by=["p", "q"])
    for rows in fact_rows():
        writer.insert(rows)
    keys = [{"k": number, "name": f"n{number}", "part": number % 2} for number in range(5)]
    other = TableWriter(
        lake.root / "u",
        pa.schema([("k", pa.int32()), ("name", pa.string()), ("part", pa.int32())]),
        partition_by=["part"],
    )
    for part in (0, 1):
        other.insert([row for row in keys if row["part"] == part])
    frame = ds.load_as_spark(lake.url("t"), spark=spark)
    every = [tuple(row.values()) for rows in fact_rows() for row in rows]
    spark.createDataFrame(keys, "k int, name string, part int").coalesce(1).write.parquet(str(tmp_path / "dim"))
    views = {
        "far": frame,
        "near": spark.createDataFrame(every, from_arrow_schema(FACT)),
        "dim": spark.read.parquet(str(tmp_path / "dim")),
        "far_dim": ds.load_as_spark(lake.url("u"), spark=spark),
    }
    for name, view in views.items():
        view.createOrReplaceTempView(name)
    yield frame
    for name in views:
        spark.catalog.dropTempView(name)


def rows_of(spark: Any, query: str) -> list[str]:
    return sorted(map(repr, spark.sql(query).collect()))


QUERIES = {
    "join": ("SELECT id, name FROM {f} JOIN dim ON p = k WHERE name = 'n1'", 2),
    "join of a shared dimension": ("SELECT id, name FROM {f} JOIN {d} ON p = k WHERE name = 'n2'", 1 + 2),
    "no value": ("SELECT id, name FROM {f} JOIN dim ON p = k WHERE name = 'none'", 0),
    "no file of the dimension": ("SELECT id, name FROM {f} JOIN {d} ON p = k WHERE part = 7", 0),
    "no partition": ("SELECT id, name FROM {f} JOIN dim ON p = k WHERE name = 'n4'", 0),
    "left join": ("SELECT id, name FROM {f} LEFT JOIN dim ON p = k AND name = 'n1'", 6),
    "right join": ("SELECT id, name FROM dim RIGHT JOIN {f} ON p = k AND name = 'n1'", 6),
    "outer join of the dimension": ("SELECT id, k FROM {f} RIGHT JOIN (SELECT * FROM dim WHERE k > 1) ON p = k", None),
    "null-safe join": ("SELECT id FROM {f} JOIN (SELECT * FROM dim WHERE k = 1) ON p <=> k", None),
    "in": ("SELECT id FROM {f} WHERE p IN (SELECT k FROM dim WHERE name IN ('n0', 'n2'))", 3),
    "not in": ("SELECT id FROM {f} WHERE p NOT IN (SELECT k FROM dim WHERE name = 'n0')", None),
    "exists": ("SELECT id FROM {f} WHERE EXISTS (SELECT 1 FROM dim WHERE k = p AND name = 'n0') AND id > 1", 2),
    "not exists": ("SELECT id FROM {f} WHERE NOT EXISTS (SELECT 1 FROM dim WHERE k = p AND name = 'n0')", 6),
    "with another condition": ("SELECT id FROM {f} JOIN dim ON p = k WHERE name = 'n0' AND id > 30 AND q = 'a'", 2),
    "two keys": ("SELECT id FROM {f} JOIN dim ON p = k AND q = substring('ab', k + 1, 1) WHERE name >= 'n1'", None),
    "cast": ("SELECT id FROM {f} JOIN (SELECT k + 0L AS k FROM dim WHERE name = 'n1') ON p = k", None),
    "two scans": (
        "SELECT a.id, b.id FROM {f} a JOIN dim x ON a.p = x.k JOIN {f} b ON b.v = a.v JOIN dim y ON b.p = y.k "
        "WHERE x.name = 'n0' AND y.name = 'n2'",
        3,
    ),
    "union": (
        "SELECT id FROM {f} JOIN dim ON p = k WHERE name = 'n2' UNION ALL "
        "SELECT id FROM {f} JOIN dim ON p = k WHERE name = 'n1' UNION ALL SELECT id FROM {f}",
        9,
    ),
    "twice the same": (
        "WITH one AS (SELECT id, v FROM {f} JOIN dim ON p = k WHERE name = 'n2') "
        "SELECT a.id, b.id FROM one a JOIN one b ON a.v = b.v JOIN {f} c ON a.id = c.id",
        None,
    ),
    "snowflake": (
        "SELECT f.id, y.name FROM {f} f JOIN (SELECT x.* FROM {d} x JOIN dim z ON x.part = z.k WHERE z.name = 'n0') y "
        "ON f.p = y.k WHERE y.name < 'n2'",
        None,
    ),
    "limit": ("SELECT id FROM (SELECT * FROM {f} ORDER BY id LIMIT 4) JOIN dim ON p = k WHERE name = 'n1'", None),
    "scalar": ("SELECT id FROM {f} WHERE p = (SELECT max(k) FROM dim WHERE name < 'n2')", 2),
    "scalar without a row": ("SELECT id FROM {f} WHERE p = (SELECT k FROM dim WHERE name = 'none')", 0),
    "scalar, null": ("SELECT id FROM {f} WHERE p <=> (SELECT k FROM dim WHERE name = 'none')", 1),
    "scalar, range": ("SELECT id FROM {f} WHERE p > (SELECT min(k) FROM dim WHERE name < 'n2')", 3),
    "scalar, negated": ("SELECT id FROM {f} WHERE NOT p = (SELECT min(k) FROM dim WHERE name < 'n2')", 3),
    "scalar, computed": ("SELECT id FROM {f} WHERE p % 2 = (SELECT max(k) FROM dim WHERE name < 'n2')", None),
    "scalar, another column": ("SELECT id FROM {f} WHERE p = 1 OR id = (SELECT max(k) FROM dim)", None),
}
"""Queries of the table ``{f}`` and the dimension ``{d}``, and the number of files that they need; ``None`` if that
depends on Spark's plan."""


@pytest.mark.parametrize("name", QUERIES)
def test_runtime_filters_skip_partitions_and_no_row(spark: Any, lake: Any, fact: Any, name: str) -> None:
    query, files = QUERIES[name]
    for given in SETTINGS:
        with settings(spark, given):
            expected = rows_of(spark, query.format(f="near", d="dim"))
            found, _, requests = cost(lake, lambda: rows_of(spark, query.format(f="far", d="far_dim")))
        assert found == expected, given
        if files is not None and (HAS_SUBQUERIES or "scalar" not in name):
            assert requests <= files, given


@pytest.mark.parametrize("name", [name for name, (_, files) in QUERIES.items() if files is None])
def test_subqueries_of_runtime_filters_lose_no_row(spark: Any, fact: Any, name: str) -> None:
    """Spark may run the dimension's query for the filter alone, with the same scans as the query itself."""
    query, _ = QUERIES[name]
    for aqe in "tf":
        given = {AQE: aqe, f"{PRUNING}.reuseBroadcastOnly": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}
        with settings(spark, {**given, f"{PRUNING}.fallbackFilterRatio": "1000"}):
            found = rows_of(spark, query.format(f="far", d="far_dim"))
        assert found == rows_of(spark, query.format(f="near", d="dim")), aqe


def test_join_downloads_as_much_as_a_constant(spark: Any, lake: Any, fact: Any) -> None:
    asked = "SELECT sum(id), max(v) FROM far JOIN dim ON p = k WHERE name = 'n1'"
    found, fetched, _ = cost(lake, lambda: rows_of(spark, asked))
    constant, least, _ = cost(lake, lambda: rows_of(spark, "SELECT sum(id), max(v) FROM far WHERE p = 1"))
    assert (found, fetched) == (constant, least)
    with settings(spark, {f"{PRUNING}.enabled": "f"}):
        assert cost(lake, lambda: rows_of(spark, asked))[1] > 2 * least
    before = lake.server.stats()["requests"]["query"]
    assert rows_of(spark, asked) == found
    assert lake.server.stats()["requests"]["query"] == before, "the frame keeps its plans"


def test_limited_read_has_no_runtime_filters(spark: Any, lake: Any, fact: Any) -> None:
    first = ds.load_as_spark(lake.url("t"), limit=4, spark=spark)
    assert sorted(row.id for row in first.collect()) == [0, 1, 2, 10]
    dim = spark.table("dim").where("name = 'n1'")
    assert [row.id for row in first.join(dim, first.p == dim.k).collect()] == [10]


def test_many_values_are_no_runtime_filter(spark: Any, lake: Any, fact: Any, tmp_path: Any) -> None:
    spark.range(1, 10_001 + 1).selectExpr("CAST(id AS int) AS k", "'x' AS name").write.parquet(str(tmp_path / "many"))
    many = spark.read.parquet(str(tmp_path / "many")).where("name = 'x'")
    found, _, requests = cost(lake, lambda: fact.join(many, fact.p == many.k).selectExpr("sum(id)").first()[0])
    assert (found, requests) == (10 + 11 + 12 + 20 + 21 + 22 + 50 + 51 + 52, 5)


def test_runtime_filters_of_a_change_feed(spark: Any, lake: Any, fact: Any) -> None:
    writer = TableWriter(
        lake.root / "feed", FACT, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"}
    )
    for rows in fact_rows():
        writer.insert(rows)
    feed = ds.load_table_changes_as_spark(lake.url("feed"), starting_version=0, spark=spark)
    dim = spark.table("dim").where("name = 'n1'")
    found, _, requests = cost(lake, lambda: feed.join(dim, feed.p == dim.k).collect())
    assert sorted((row.id, row._commit_version) for row in found) == [
        (id_, version) for version in (2, 6) for id_ in range(version * 10 - 10, version * 10 - 7)
    ]
    assert requests == 2


def test_runtime_filters_are_optional_without_history(spark: Any, fact: Any, tmp_path: Any) -> None:
    """The server does not list an older version again, but the files that are listed already have all rows."""
    writer = TableWriter(tmp_path / "t", FACT, partition_by=["p", "q"])
    for rows in fact_rows():
        writer.insert(rows)
    shared = catalog.from_mapping({"s.d.t": writer.path})
    tables = catalog.build([dataclasses.replace(entry, history_shared=False) for entry in shared.tables])
    with mock_server.running(tables=tables) as server:
        frame = ds.load_as_spark(f"{server.profile_path}#s.d.t", spark=spark)
        dim = spark.table("dim").where("name = 'n1'")
        joined = frame.join(dim, frame.p == dim.k)
        assert next(scans(joined)).estimateStatistics().numRows().isPresent() is False  # lists the files
        writer.insert(fact_rows()[1])
        assert sorted(row.id for row in joined.collect()) == [10, 11, 12, 50, 51, 52]
        assert server.stats()["requests"]["data"] == 5


# --- values of all types, and names ---

NAN, INF = float("nan"), float("inf")
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, 0, 127, None]),
    "i64": (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    "flag": (pa.bool_(), [True, False, True, None]),
    "f32": (pa.float32(), [NAN, 0.10000000149011612, -INF, None]),
    "f64": (pa.float64(), [NAN, -0.0, 0.1, None]),
    "dec": (pa.decimal128(12, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("1234567890.10"), None]),
    "day": (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(1, 1, 1), None]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            datetime.datetime(1969, 12, 31, 23, 59, 59, 1),
            datetime.datetime(2024, 11, 3, 1, 30),
            datetime.datetime(2024, 1, 1),
            None,
        ],
    ),
    "ntz": (
        pa.timestamp("us"),
        [
            datetime.datetime(1960, 1, 1, 0, 0, 0, 7),
            datetime.datetime(2024, 3, 10, 2, 30),
            datetime.datetime(2024, 1, 1),
            None,
        ],
    ),
    "text": (pa.string(), ["a=b%20 #?/", "it's \\ 名\"", "\U0001f600\ufffd", None]),
    "odd.na`me": (pa.string(), ["x", "X", " x ", None]),
}


@pytest.fixture(scope="module")
def typed(spark: Any, serve: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A table with a partition column of each type and four files, its rows in Spark, and one dimension."""
    root = tmp_path_factory.mktemp("typed")
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in TYPES.items())])
    rows = [{"id": n, **{name: values[n] for name, (_, values) in TYPES.items()}} for n in range(4)]
    writer = TableWriter(root / "t", schema, partition_by=list(TYPES))
    for row in rows:
        writer.insert([row])
    near = pa.Table.from_pylist(
        [{**row, "at": row["at"] and row["at"].replace(tzinfo=UTC)} for row in rows], schema=schema
    )
    pq.write_table(near, root / "near.parquet")
    server = serve(tables={"share.schema.t": root / "t"})
    far = ds.load_as_spark(f"{server.profile_path}#share.schema.t", spark=spark)
    return server, far, spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(root / "near.parquet"))


@pytest.mark.parametrize("name", TYPES)
def test_partition_values_of_each_type(spark: Any, typed: Any, name: str) -> None:
    server, far, near = typed
    assert sorted(map(str, far.collect())) == sorted(map(str, near.collect()))
    quoted = "`" + name.replace("`", "``") + "`"
    for chosen in ("id < 1", "id IN (1, 3)", "id = 2", "id = 3"):
        dim = near.where(chosen).selectExpr(f"{quoted} AS k")
        found = []
        for table in (far, near):
            before = server.stats()["requests"].get("data", 0)
            kept = table.select("id", quoted).join(dim, table[quoted] == dim.k).selectExpr("id")
            found.append(sorted(row.id for row in kept.collect()))
            downloaded = server.stats()["requests"].get("data", 0) - before
            # Spark normalizes floating-point keys, and passes only keys that are columns.
            if table is far and name not in ("f32", "f64"):
                assert downloaded == len(found[0]), chosen
        assert found[0] == found[1], chosen


def test_partition_columns_with_special_and_mapped_names(spark: Any, lake: Any, fact: Any) -> None:
    write_odd(lake.root / "odd")
    odd = ds.load_as_spark(lake.url("odd"), spark=spark)
    near = spark.createDataFrame([(ODD_PARTITIONS[1], "n1")], "k string, name string")
    near.write.parquet(str(lake.root / "odd_dim"))
    dim = spark.read.parquet(str(lake.root / "odd_dim")).where("name = 'n1'")
    found, _, requests = cost(lake, lambda: odd.join(dim, odd["страна"] == dim.k).collect())
    assert ({row["страна"] for row in found}, len(found), requests) == ({ODD_PARTITIONS[1]}, 6, 1)

    physical = [pa.field(f"col-{number}", field.type) for number, field in enumerate(FACT)]
    writer = TableWriter(
        lake.root / "small",
        pa.schema(physical),
        partition_by=["col-2"],
        properties={"delta.columnMapping.mode": "name"},
        protocol={"minReaderVersion": 2, "minWriterVersion": 5},
    )
    for rows in fact_rows():
        writer.insert([dict(zip((field.name for field in physical), row.values(), strict=True)) for row in rows])
    _rename(writer, [field.name for field in FACT], partition="p")
    mapped = ds.load_as_spark(lake.url("small"), spark=spark)
    dim = spark.table("dim").where("name = 'n1'")
    found, _, requests = cost(lake, lambda: mapped.join(dim, mapped.p == dim.k).collect())
    assert (sorted(row.id for row in found), requests) == ([10, 11, 12, 50, 51, 52], 2)


def _rename(table: TableWriter, names: list[str], partition: str) -> None:
    """Give the columns of ``table`` other names; the files keep theirs."""
    log = table.path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": field["name"]}
        field["name"] = names[number]
    metadata.update(schemaString=json.dumps(schema), partitionColumns=[partition])
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
