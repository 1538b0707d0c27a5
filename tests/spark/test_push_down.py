"""``where``, ``select`` and ``limit`` of a query are pushed down to the scan: less is fetched, and the rows are the
same."""

from __future__ import annotations

import datetime
import functools
import os
import pathlib
import pickle
import threading
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.columns import Names
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.spark import push_down, self_check
from delta_sharing_client.spark.pushed import Pushed
from tests.effort import ALL, sample
from tests.integration import spark_rows
from tests.spark.conditions import NOT_TEXT, SCHEMA, WITHIN, conditions, rows
from tests.tables import ODD_PARTITIONS, ODD_TEXTS, TableWriter, rows_of, write_odd

pytestmark = pytest.mark.spark

NUMBER = int(os.environ.get("CONDITIONS", 3000 if ALL else 150))
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("v", pa.string()),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("p", pa.string()),
    ]
)


@pytest.fixture
def url(lake: Any) -> str:
    """Four files of three rows, two files in each partition."""
    writer = TableWriter(lake.root / "t", WIDE, partition_by=["p"])
    for i in range(4):
        writer.insert(
            [{"id": i * 10 + j, "v": f"v{j}", "s": {"x": j, "y": "y" * 100}, "p": f"p{i % 2}"} for j in range(3)]
        )
    return lake.url("t")


@pytest.mark.parametrize(
    "condition",
    [
        "`名` IN ('größe', '名前', '')",
        f"`名` = '{ODD_TEXTS[2]}' OR `名` = '{ODD_TEXTS[3]}'",
        "`größe.in cm` BETWEEN 20 AND 60 AND o.`a.b` > 3",
        "o.`名` = 'it\\'s' OR length(`名`) = 300",
        f"`страна` = '{ODD_PARTITIONS[0]}' AND `名` <> 'größe'",
    ],
)
def test_conditions_on_special_names_and_texts_find_their_rows(spark: Any, lake: Any, condition: str) -> None:
    write_odd(lake.root / "odd")
    far = spark.read.format("deltaSharing").load(lake.url("odd"))
    found = ds.load_as_arrow(lake.url("odd"))
    near = spark.createDataFrame(found.to_pylist(), far.schema)

    expected = sorted(near.where(condition).collect())
    assert sorted(far.where(condition).collect()) == expected != []
    assert far.where(condition).select("o", "страна").count() == len(expected)


def scans(frame: Any) -> Iterator[Any]:
    """Yield the scans of the optimized plan of ``frame``."""
    leaves = frame._jdf.queryExecution().optimizedPlan().collectLeaves()
    for number in range(leaves.size()):
        if leaves.apply(number).getClass().getSimpleName() == "DataSourceV2ScanRelation":
            yield leaves.apply(number).scan()


def pushed(frame: Any) -> Pushed | None:
    """Return what was pushed down to the only scan of ``frame``; ``None`` if Spark found that there is nothing to
    read."""
    scan = next(scans(frame), None)
    return None if scan is None else pushed_by(scan)


def pushed_by(scan: Any) -> Pushed:
    """Return what was pushed down to ``scan``."""
    method = scan.getClass().getDeclaredMethod("pushed", None)
    method.setAccessible(True)
    return Pushed.parse("pushed", method.invoke(scan, None))


# --- conditions ---


@pytest.mark.parametrize("zone", sample(["America/New_York", "UTC"], 2))
def test_conditions_keep_every_row_that_spark_keeps(spark: Any, zone: str, tmp_path: pathlib.Path) -> None:
    asked = conditions(NUMBER)
    batch = pa.RecordBatch.from_pylist(rows(), schema=SCHEMA)
    schema = from_arrow_schema(SCHEMA)
    told = exact = 0
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        with push_down.classes(spark) as reader:
            frame = reader.schema(schema).option("loadedVersion", "0").load("nowhere")
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / "rows.parquet")
        local = spark.read.schema(schema).option("datetimeRebaseMode", "CORRECTED").parquet(str(tmp_path)).cache()
        for some in (asked[start : start + 50] for start in range(0, len(asked), 50)):
            kept = local.selectExpr(*(f"({condition}) AS c{n}" for n, condition in enumerate(some))).collect()
            for number, condition in enumerate(some):
                asking = pushed(frame.where(condition))
                if asking is None:
                    assert not any(row[number] for row in kept), condition
                    continue
                found = asking.filter(schema, SCHEMA)
                if found is None:
                    continue
                told += 1
                passing = mask(bind(found, SCHEMA), batch).to_pylist()
                lost = [i for i, row in enumerate(kept) if row[number] and not passing[i]]
                assert lost == [], (condition, str(found), [batch.slice(i, 1).to_pylist() for i in lost])
                exact += [bool(row[number]) for row in kept] == passing
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert sum(any(text in condition for text in NOT_TEXT) for condition in asked) > NUMBER * 0.05
    assert sum(any(form.partition("{")[0] in condition for form in WITHIN[:5]) for condition in asked) > NUMBER * 0.1
    assert told > NUMBER * 0.6, told
    assert exact > told * 0.55, (exact, told)


def test_conditions_find_rows_outside_the_bounds_of_delta_3_2(spark: Any) -> None:
    """``tests/integration/test_tables_spark.py`` explains why these bounds are wrong."""
    table = spark_rows.SparkTable("old-statistics")
    with mock_server.running(tables={"s.d.t": table.path}) as server:
        frame = ds.load_as_spark(f"{server.profile_path}#s.d.t", spark=spark)
        asked = [(zone, f"at = TIMESTAMP '{at}'") for zone, at, *_ in table.rows(table.latest)]
        asked += [(zone, f"cut = '{cut}'") for zone, *_, cut in table.rows(table.latest)]
        for zone, condition in asked:
            found = frame.where(condition)
            asking = pushed(found)
            assert asking is not None
            assert asking.predicates, condition
            assert [row.zone for row in found.collect()] == [zone], condition


NUMBERS = pa.schema([("i", pa.int16()), ("f", pa.float32()), ("n", pa.int32())])


def test_spark_evaluates_conditions_it_cannot_translate(spark: Any, lake: Any) -> None:
    """Spark's optimizer turns ``i > 99999`` into ``isnull(i) AND null``, and cannot translate that inside a
    function."""
    found = [{"i": 1, "f": 0.5, "n": 1}, {"i": None, "f": None, "n": 2}, {"i": 7, "f": 2.0, "n": None}]
    TableWriter(lake.root / "t", NUMBERS).insert(found)
    far, near = ds.load_as_spark(lake.url("t"), spark=spark), spark.createDataFrame(found, from_arrow_schema(NUMBERS))
    asked = [form.format(test).replace("flag", "(n < 2)") for form in WITHIN for test in ("i > 99999", "f = 0.1")]
    asked += ["(f > 1 AND n = 1) OR coalesce(f = 0.1, false)", "coalesce(f = 0.5, false)"]
    kept = list(near.selectExpr(*(f"count_if({condition}) AS c{i}" for i, condition in enumerate(asked))).first())
    parts = [far.where(condition).selectExpr(f"{i} AS condition") for i, condition in enumerate(asked)]
    counted = Counter(row.condition for row in functools.reduce(DataFrame.unionAll, parts).collect())
    assert [counted[i] for i in range(len(asked))] == kept
    assert len({*kept}) > 2
    told = pushed(far.where("coalesce(i > 99999, false) AND n >= 2"))
    assert told is not None
    assert {predicate["name"] for predicate in told.predicates} == {">=", "IS_NOT_NULL"}


TEXTS = pa.schema([("s", pa.string()), ("o", pa.struct([("x", pa.string())]))])


@pytest.fixture(scope="module")
def texts(spark: Any, serve: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Two frames of the same strings: a shared table with one file for each string, and a local Spark DataFrame."""
    root = tmp_path_factory.mktemp("texts")
    values = ["", "a", "a\ufffd", "\ufffc", "\ufffd", "\ufffdz", "\uffff", "\U0001f600x", None]
    found = [{"s": value, "o": {"x": value}} for value in values]
    writer = TableWriter(root / "t", TEXTS)
    for row in found:
        writer.insert([row])
    server = serve(tables={"share.schema.t": root / "t"})
    far = ds.load_as_spark(f"{server.profile_path}#share.schema.t", spark=spark)
    return far, spark.createDataFrame(found, from_arrow_schema(TEXTS)).cache()


@pytest.mark.parametrize(
    ("number", "condition"),
    enumerate(
        [
            "s < {}",
            "s <> {}",
            "{} <= s",
            "NOT (s <=> {})",
            "s > 'a' AND s <= {}",
            "s NOT IN ({}, 'q')",
            "s IN ({}, 'a')",
            "NOT startswith(s, {})",
            "NOT endswith(s, {})",
            "NOT contains(s, {})",
            "o.x > {} OR s = 'a'",
            "NOT (o.x = {} AND s = 'a')",
        ]
    ),
)
def test_invalid_utf8_is_not_pushed_down(texts: tuple[Any, Any], number: int, condition: str) -> None:
    constants = [*NOT_TEXT, "CAST(X'F4908080' AS STRING)", "CAST(X'C080' AS STRING)"]
    # Each test uses some of the constants; all tests together use each constant several times.
    asked = [condition.format(constant) for constant in sample(constants, 3, number % 3)]
    found = []
    for frame in texts:
        parts = [frame.where(one).selectExpr(f"{number} AS number", "s") for number, one in enumerate(asked)]
        found.append(sorted(functools.reduce(DataFrame.union, parts).collect(), key=str))
    assert found[0] == found[1] != []
    for one in asked:
        told = pushed(texts[0].where(one))
        assert told is None or "\ufffd" not in str(told.predicates)


def test_replacement_character_is_pushed_down(texts: tuple[Any, Any]) -> None:
    far, near = texts
    for asked, number in (("s = '\ufffd'", 1), ("startswith(s, '\ufffd')", 2), ("s IN ('\ufffd', 'a')", 2)):
        told = pushed(far.where(asked))
        assert told is not None
        assert "\ufffd" in str(told.predicates)
        assert far.where(asked).count() == near.where(asked).count() == number


def test_column_names_are_indexed_once_for_all_predicates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Binding 200 predicates to a table of 5,000 columns took seconds when each one scanned the whole schema."""
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(50)] + [("s", pa.struct([("x", pa.int64())]))])
    named = [["s", "x"], *([f"c{number}"] for number in range(50))]
    told = [{"name": ">", "children": [{"column": path}, {"type": "bigint", "value": "3"}]} for path in named]
    made: list[object] = []
    make = Names.__init__
    monkeypatch.setattr(Names, "__init__", lambda self, *given: (made.append(self), make(self, *given))[1])

    found = Pushed(tuple(told)).filter(from_arrow_schema(schema), schema)

    assert len(made) == 1
    assert str(found) == " AND ".join(f"{'.'.join(path)} > 3" for path in named)


# --- fetched bytes ---


def ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


def cost(lake: Any, query: Any) -> tuple[Any, int, int]:
    """Return the result of ``query``, the bytes that it fetched, and the number of its data requests."""
    before = lake.server.stats()
    found = query()
    after = lake.server.stats()
    data = [stats[kind].get("data", 0) for kind in ("bytes", "requests") for stats in (before, after)]
    return found, data[1] - data[0], data[3] - data[2]


def test_query_fetches_as_many_bytes_as_read_options(spark: Any, lake: Any, url: str) -> None:
    frame = ds.load_as_spark(url, spark=spark)
    query = frame.where("id > 11 AND p = 'p1'").select("id", "s.x")
    narrow = "struct<id:bigint,s:struct<x:bigint>,p:string>"
    assert [scan.readSchema().simpleString() for scan in scans(query)] == [narrow]
    found, fetched, _ = cost(lake, lambda: sorted(map(tuple, query.collect())))
    assert found == [(12, 2), (30, 0), (31, 1), (32, 2)]
    asked = ds.load_as_spark(url, columns=["id", "s.x", "p"], filter="id > 11 AND p = 'p1'", spark=spark)
    assert (asked.count(), fetched) == (4, cost(lake, asked.collect)[1])
    assert cost(lake, frame.collect)[1] > 1.9 * fetched
    text = query._jdf.queryExecution().toString()
    assert f"{narrow} PushedFilters: [id > 11, id IS NOT NULL, p = 'p1', p IS NOT NULL]" in text
    assert lake.server.profile["bearerToken"] not in text


def test_count_reads_no_file_and_limit_reads_few(spark: Any, lake: Any, url: str) -> None:
    frame = ds.load_as_spark(url, spark=spark)
    # PySpark 4.0 does not accept batches without columns.
    assert cost(lake, frame.count) == (12, 0, 0) or pyspark.__version__.startswith("4.0.")
    found, _, requests = cost(lake, frame.limit(4).collect)
    assert (len(found), requests) == (4, 2)
    assert "PushedLimit: 4" in frame.limit(4)._jdf.queryExecution().toString()
    assert frame.limit(100).count() == 12
    # The option limits the read, before the query's conditions are applied.
    first = ds.load_as_spark(url, limit=2, spark=spark)
    assert (first.where("id >= 0").count(), first.where("id > 2").count(), first.count()) == (2, 0, 2)


def test_queries_of_one_frame_are_independent(spark: Any, lake: Any, url: str) -> None:
    frame = ds.load_as_spark(url, spark=spark)
    frame.createOrReplaceTempView("pushing")
    assert frame.where("id = 1").count() == 1
    assert frame.count() == 12
    assert ids(frame.where("id < 2").union(frame.where("id = 30")).union(frame.limit(0))) == [0, 1, 30]
    assert frame.where("p = 'p0'").join(frame.select("id", "v").where("v = 'v2'"), "id").count() == 2
    below = "SELECT count(*) FROM pushing WHERE v = 'v1' AND id > (SELECT min(id) + 1 FROM pushing)"
    assert spark.sql(below).first()[0] == 3
    found: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: ids(frame.where(f"id >= {n}"))})) for n in (0, 12, 31)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [i * 10 + j for i in range(4) for j in range(3)]
    assert found == {n: [id_ for id_ in everything if id_ >= n] for n in (0, 12, 31)}
    cached = frame.where("id > 5").cache()
    assert (cached.count(), cached.where("id > 20").count(), frame.count()) == (9, 5, 12)
    cached.unpersist()


def test_second_query_of_a_frame_only_renews_urls(spark: Any, lake: Any, url: str) -> None:
    frame = ds.load_as_spark(url, spark=spark)
    assert ids(frame.where("id > 20 AND v = 'v2'")) == [22, 32]
    before = lake.server.stats()["requests"]["query"]
    lake.server.expire_urls()
    assert ids(frame.where("v = 'v2'").where("id > 20")) == [22, 32]
    assert lake.server.stats()["requests"]["query"] - before <= 2, "one renewal of URLs for each worker"


def test_change_feed_queries_are_pushed_down(spark: Any, lake: Any) -> None:
    writer = TableWriter(lake.root / "feed", WIDE, properties={"delta.enableChangeDataFeed": "true"})
    for number in (1, 2, 3):
        writer.insert(rows_of([number], v="a", s=None, p="p"))
    frame = ds.load_table_changes_as_spark(lake.url("feed"), starting_version=0, spark=spark)
    writer.insert(rows_of([4], v="a", s=None, p="p"))
    found, _, requests = cost(lake, lambda: ids(frame.where("_commit_version = 2 AND _change_type = 'insert'")))
    assert (found, requests) == ([2], 1)
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    assert frame.where(frame._commit_timestamp > moment).count() == 3


# --- sizes ---


def test_filtered_table_is_small_enough_to_be_broadcast(spark: Any, lake: Any, url: str) -> None:
    frame = ds.load_as_spark(url, spark=spark)
    joined = spark.range(1000).join(frame.where("id > 20"), "id")
    assert "BroadcastHashJoin" in joined._jdf.queryExecution().executedPlan().toString()
    whole, part = (next(scans(one)).estimateStatistics() for one in (frame, frame.where("p = 'p1'").select("id")))
    assert 0 < part.sizeInBytes().getAsLong() < whole.sizeInBytes().getAsLong() < 100_000
    assert (whole.numRows().getAsLong(), part.numRows().isPresent()) == (12, False)
    assert joined.count() == 5


def test_sessions_max_partition_bytes_limits_partitions(spark: Any, lake: Any, url: str) -> None:
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "3m")  # opening a file counts as 2 MiB
    try:
        frame = ds.load_as_spark(url, spark=spark)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    assert frame.rdd.getNumPartitions() == 3
    assert ds.load_as_spark(url, spark=spark).rdd.getNumPartitions() == 2


# --- without push-down ---


def test_push_down_can_be_disabled(spark: Any, lake: Any, url: str) -> None:
    spark.conf.set(push_down.SWITCH, "false")
    try:
        frame = ds.load_as_spark(url, spark=spark).where("id > 11")
    finally:
        spark.conf.unset(push_down.SWITCH)
    assert "PushedFilters" not in frame._jdf.queryExecution().toString()
    assert frame.count() == 7


@pytest.mark.parametrize("fault", ["it does not compile", "a row too few"])
def test_frames_work_without_push_down_and_warn_once(
    spark: Any, lake: Any, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    monkeypatch.setattr(push_down, "_checked", {})
    push_down._warn.cache_clear()
    if fault == "it does not compile":
        monkeypatch.setattr(push_down, "_loaders", {})
        monkeypatch.setattr(push_down, "_SOURCE", "pushed.py")
    else:
        monkeypatch.setattr(self_check, "CONDITION", "`a.b` = 'it\\'s' AND s.y < 4")
    for _ in range(2):
        assert ds.load_as_spark(url, spark=spark).where("id > 11").count() == 7
        push_down._checked.clear()  # as in another session
    said = [record.getMessage() for record in caplog.records if "push-down" in record.getMessage()]
    assert len(said) == 1, said
    assert "'columns' and 'filter'" in said[0]
    reason = "CompileException" if fault == "it does not compile" else "A query with known rows returned"
    assert reason in said[0]
    assert len(said[0]) < 500
    push_down._warn.cache_clear()


@pytest.mark.parametrize(
    ("text", "java", "reason"),
    [
        ("A query with known rows returned [].", None, "A query with known rows returned []."),
        ("", None, "ValueError"),
        (
            "An error occurred while calling o1.cook.",
            "org.codehaus.commons.compiler.CompileException: Line 3",
            "org.codehaus.commons.compiler.CompileException: Line 3",
        ),
        (
            "\n  An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "a.py", line 1, in f\n    raise ValueError\nValueError: Spark did not push.\n\n\tat org.A',
            None,
            "ValueError: Spark did not push.",
        ),
    ],
)
def test_reason_of_a_failed_self_check_is_one_line(text: str, java: str | None, reason: str) -> None:
    error = ValueError(text)
    if java is not None:
        error.java_exception = SimpleNamespace(toString=lambda: java)  # type: ignore[attr-defined]
    assert push_down._reason(error) == reason


# --- very many files ---


def test_partitions_of_many_files_are_packed_and_complete(lake: Any, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from delta_sharing_client.plan import packed
    from delta_sharing_client.spark.datasource import DeltaSharingSource
    from delta_sharing_client.spark.types import target_schema

    monkeypatch.setattr(packed, "MANY_FILES", 3)
    source = DeltaSharingSource({"path": url, "parallelism": "2", "maxPartitionBytes": "4m"})
    schema = source.schema()
    parts = [pickle.loads(cloudpickle.dumps(part)) for part in source.reader(schema).partitions()]
    assert len(parts) == 3
    assert all("PackedTasks" in repr(part.part._tasks) for part in parts)
    found = pa.Table.from_batches(batch for part in parts for batch in part.read(target_schema(schema)))
    assert sorted(found["id"].to_pylist()) == [i * 10 + j for i in range(4) for j in range(3)]
    source = DeltaSharingSource({"path": url, "parallelism": "2", "maxPartitionBytes": "4m", "limit": "11"})
    parts = list(source.reader(schema).partitions())
    assert sum(batch.num_rows for part in parts for batch in part.read(target_schema(schema))) == 11
