"""Batch reads with a real session: rows, options, pruning, packing, fresh URLs, secrets."""

from __future__ import annotations

import dataclasses
import json
import signal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.outputs import streams
from mock_server import catalog
from tests.effort import sample
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])


OLD = [i * 10 + j for i in range(4) for j in range(3)]


@pytest.fixture
def table(lake: Any) -> TableWriter:
    """Four versions of three rows each, in two partitions: ids 0-2, 10-12, 20-22, 30-32."""
    writer = TableWriter(lake.root / "t", SCHEMA, partition_by=["p"])
    for i in range(4):
        writer.insert([{"id": i * 10 + j, "v": f"v{j}", "p": f"p{i % 2}"} for j in range(3)])
    return writer


def load(spark: Any, lake: Any, table: str = "t", **options: object) -> Any:
    reader = spark.read.format("deltaSharing")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(lake.url(table))


def load_url(spark: Any, url: str) -> Any:
    return spark.read.format("deltaSharing").load(url)


def ids(frame: Any) -> list[int]:
    return sorted(frame.select("id").toArrow()["id"].to_pylist())


def test_source_needs_no_registration_and_reads_all_rows(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake)
    assert frame.schema.simpleString() == "struct<id:bigint,v:string,p:string>"
    assert ids(frame) == [i * 10 + j for i in range(4) for j in range(3)]
    assert {tuple(row) for row in frame.where("id = 31").collect()} == {(31, "v1", "p1")}


def test_alias_of_the_format_reads_the_same_rows(spark: Any, lake: Any, table: TableWriter) -> None:
    assert spark.read.format("delta_sharing").load(lake.url("t")).count() == 12


def test_table_is_read_through_directory_access(spark: Any, tmp_path: Any) -> None:
    writer = TableWriter(tmp_path / "t", SCHEMA, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    for i in range(3):
        writer.insert([{"id": i * 10 + j, "v": f"v{j}", "p": f"p{i % 2}"} for j in range(3)])
    shared = catalog.from_mapping({"s.d.t": writer.path})
    # With directory access only, no URL could have provided the rows.
    only = catalog.build([dataclasses.replace(entry, modes=("dir",)) for entry in shared.tables])
    with mock_server.running(tables=only, local_directories=True) as server:
        reader = spark.read.format("deltaSharing").option("parallelism", 3)
        for mode in ("auto", "dir"):
            frame = reader.option("accessMode", mode).load(f"{server.profile_path}#s.d.t")
            assert ids(frame) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        feed = reader.option("readChangeFeed", "true").option("startingVersion", 2).load(f"{server.profile_path}#s.d.t")
        assert ids(feed) == [10, 11, 12, 20, 21, 22]


def test_columns_option_selects_and_orders_columns(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake, columns="p, ID")
    assert frame.columns == ["p", "id"]
    assert frame.where("id = 10").collect() == [("p1", 10)]


def test_filter_option_is_exact_and_skips_files(spark: Any, lake: Any, table: TableWriter) -> None:
    before = lake.server.stats()["requests"].get("data", 0)
    assert ids(load(spark, lake, filter="p = 'p1' AND id > 11")) == [12, 30, 31, 32]
    assert lake.server.stats()["requests"]["data"] - before <= 2


def test_narrower_schema_prunes_columns(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = spark.read.format("deltaSharing").schema("v string").load(lake.url("t"))
    assert frame.columns == ["v"]
    assert frame.count() == 12
    assert {row.v for row in frame.collect()} == {"v0", "v1", "v2"}


def test_narrower_schema_prunes_nested_fields(spark: Any, lake: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    writer = TableWriter(lake.root / "nested", schema)
    writer.insert([{"id": 1, "s": {"x": 2, "y": "z"}}, {"id": 2, "s": None}])
    frame = spark.read.format("deltaSharing").schema("s struct<y: string>, id bigint").load(lake.url("nested"))
    assert sorted(frame.collect(), key=lambda row: row.id) == [((("z",)), 1), (None, 2)]
    assert load(spark, lake, "nested", columns="s.x").collect()[0].s.asDict() == {"x": 2}


@pytest.mark.parametrize(
    ("schema", "fragment"),
    [("nope int", "does not have"), ("id int", "type in the table is 'bigint'"), ("id bigint not null", "NOT NULL")],
)
def test_schema_that_does_not_match_the_table_is_refused(
    spark: Any, lake: Any, table: TableWriter, schema: str, fragment: str
) -> None:
    with pytest.raises(Exception, match=fragment):
        spark.read.format("deltaSharing").schema(schema).load(lake.url("t")).collect()


def test_change_feed_has_rows_types_and_versions(spark: Any, lake: Any) -> None:
    feed = {"delta.enableChangeDataFeed": "true"}
    writer = TableWriter(lake.root / "feed", SCHEMA, properties=feed, timestamp_ms=1_600_000_000_000)
    first = writer.file(rows_of([1, 2], v="a", p="p"))
    writer.commit(add=[first], timestamp_ms=1_700_000_000_123)
    images = [{"id": 2, "v": v, "p": "p", "_change_type": f"update_{k}image"} for v, k in (("a", "pre"), ("b", "post"))]
    second = writer.file([{"id": 1, "v": "a", "p": "p"}, {"id": 2, "v": "b", "p": "p"}])
    writer.commit(add=[second], remove=[first], change=[writer.change_file(images)])
    writer.commit(remove=[second])
    frame = load(spark, lake, "feed", readChangeFeed="true", startingVersion=0)
    assert frame.columns == ["id", "v", "p", "_change_type", "_commit_version", "_commit_timestamp"]
    assert dict(frame.dtypes)["_commit_timestamp"] == "timestamp"
    found = {tuple(row) for row in frame.select("id", "v", "_change_type", "_commit_version").collect()}
    assert found == {
        (1, "a", "insert", 1),
        (2, "a", "insert", 1),
        (2, "a", "update_preimage", 2),
        (2, "b", "update_postimage", 2),
        (1, "a", "delete", 3),
        (2, "b", "delete", 3),
    }
    moment = frame.where("_commit_version = 1").select("_commit_timestamp").first()[0]
    assert moment.microsecond == 123_000
    legacy = load(
        spark, lake, "feed", readChangeData="true", startingVersion=1, endingVersion=1, changeFeedColumns="parquet"
    )
    assert legacy.columns[3:] == ["_commit_version", "_commit_timestamp", "_change_type"]
    assert legacy.select("_commit_timestamp").first()[0] == 1_700_000_000_123
    assert (
        load(
            spark,
            lake,
            "feed",
            readChangeFeed="true",
            startingVersion=3,
            endingVersion=3,
            filter="_change_type = 'delete' AND id = 1",
        ).count()
        == 1
    )


@pytest.mark.parametrize(
    ("options", "fragment"),
    sample(
        [
            ({"versionAsOf": "x"}, "versionAsOf"),
            ({"maxFilePerTrigger": "1"}, "Did you mean 'maxFilesPerTrigger'"),
            ({"startingVersion": "1", "startingTimestamp": "2022"}, "Please either provide"),
            ({"columns": "idd"}, "Did you mean 'id'"),
            ({"versionAsOf": "99"}, "99"),
        ],
        2,
    ),
)
def test_invalid_options_fail_at_load(
    spark: Any, lake: Any, table: TableWriter, options: dict[str, str], fragment: str
) -> None:
    with pytest.raises(Exception, match=fragment) as error:
        load(spark, lake, **options)
    assert type(error.value).__name__ == "AnalysisException"


def test_tables_without_matching_files_are_empty(spark: Any, lake: Any, table: TableWriter) -> None:
    TableWriter(lake.root / "none", SCHEMA)
    assert load(spark, lake, "none").collect() == []
    assert load(spark, lake, filter="p = 'nothing'").collect() == []
    assert load(spark, lake, "none").columns == ["id", "v", "p"]


def test_count_select_join_and_union_agree(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake)
    assert frame.count() == 12
    assert frame.where("id < 3").count() == 3
    assert frame.count() == 12
    assert frame.where("id = 1").union(frame.where("id = 2")).count() == 2
    assert frame.join(frame.withColumnRenamed("v", "w"), "id").count() == 12


def test_temporary_view_can_be_queried(spark: Any, lake: Any, table: TableWriter) -> None:
    load(spark, lake).createOrReplaceTempView("shared_t")
    assert spark.sql("SELECT p, count(*) AS n FROM shared_t GROUP BY p ORDER BY p").collect() == [("p0", 6), ("p1", 6)]
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW shared_v USING deltaSharing OPTIONS (path '{lake.url('t')}', versionAsOf "
        "'1')"
    )
    assert spark.sql("SELECT count(*) FROM shared_v").first()[0] == 3


def test_order_of_rows_within_a_file_is_kept(spark: Any, lake: Any) -> None:
    writer = TableWriter(lake.root / "long", SCHEMA)
    writer.insert(writer.file(rows_of(range(5000), v="x" * 50, p="p"), row_group_size=500))
    found = load(spark, lake, "long").toArrow()["id"].to_pylist()
    assert found == list(range(5000))


def test_several_tasks_read_a_large_file_without_duplicates(spark: Any, lake: Any) -> None:
    import random

    writer = TableWriter(lake.root / "large", SCHEMA)
    noise = random.Random(1)
    rows = [{"id": i, "v": f"{noise.getrandbits(8000):x}", "p": "p"} for i in range(9000)]
    file = writer.file(rows, row_group_size=500)
    assert file.size > 8_000_000
    writer.insert(file)
    frame = load(spark, lake, "large", parallelism=4)
    assert frame.rdd.getNumPartitions() >= 2
    assert frame.select("id").toArrow()["id"].to_pylist() == list(range(9000))


def test_many_small_files_share_a_task(spark: Any, lake: Any) -> None:
    writer = TableWriter(lake.root / "small", SCHEMA)
    writer.insert(*[rows_of([i], v="x", p="p") for i in range(60)])
    frame = load(spark, lake, "small")
    assert frame.rdd.getNumPartitions() <= 60 * 2 // 4 + 2
    assert ids(frame) == list(range(60))


def test_deletion_vectors_are_applied_on_executors(spark: Any, lake: Any) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    writer = TableWriter(
        lake.root / "dv", SCHEMA, protocol=protocol, properties={"delta.enableDeletionVectors": "true"}
    )
    file = writer.file(rows_of(range(10), v="x", p="p"))
    writer.insert(file)
    writer.commit(add=[file.deleting(0, 3, 9)], remove=[file])
    assert ids(load(spark, lake, "dv")) == [1, 2, 4, 5, 6, 7, 8]


# --- a plan outlives its URLs ---


def test_planned_frame_renews_expired_urls_with_few_requests(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake)
    assert frame.count() == 12
    for i in range(20):
        table.insert([{"id": 100 + i, "v": "new", "p": "p0"}])
    lake.server.expire_urls()
    before = lake.server.stats()["requests"]
    assert ids(frame) == OLD
    asked = lake.server.stats()["requests"]["query"] - before["query"]
    assert 1 <= asked <= 4, "at most one refresh for each Python worker, and a fallback"
    assert load(spark, lake).count() == 32


def test_frame_returns_its_version_after_the_table_changed(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake, columns="id")
    assert frame.count() == 12
    old = sorted((table.path).glob("part-*.parquet"))
    replacement = table.file([{"id": 1000, "v": "x", "p": "p0"}])
    from tests.tables import DataFile

    log = [
        json.loads(line)
        for i in range(1, 5)
        for line in (table.path / "_delta_log" / f"{i:020d}.json").read_text().splitlines()
    ]
    files = [
        DataFile(entry["add"]["path"], entry["add"]["size"], entry["add"]["partitionValues"], 3)
        for entry in log
        if "add" in entry
    ]
    table.commit(add=[replacement], remove=files)
    lake.server.expire_urls()
    assert len(old) == 4
    assert ids(frame) == OLD


# --- one frame, one version ---


@pytest.mark.parametrize("door", ["format", "loader"])
def test_frame_reads_the_version_at_its_creation(spark: Any, lake: Any, table: TableWriter, door: str) -> None:
    frame = load(spark, lake) if door == "format" else ds.load_as_spark(lake.url("t"), spark=spark)
    table.schema = pa.schema([("id", pa.string()), ("v", pa.string()), ("p", pa.string()), ("extra", pa.int64())])
    table.commit(metadata=True)
    table.insert([{"id": "x", "v": "v", "p": "p0", "extra": 1}])
    assert frame.where("id > 20").count() == 5
    assert ids(frame) == OLD
    assert frame.where("p = 'p0'").join(frame.where("p = 'p1'"), "v").count() == 12


@pytest.mark.parametrize("door", ["format", "loader"])
def test_changed_table_without_history_is_refused(spark: Any, tmp_path: Any, door: str) -> None:
    writer = TableWriter(tmp_path / "t", SCHEMA)
    writer.insert(rows_of([1, 2], v="a", p="p"))
    shared = catalog.from_mapping({"s.d.t": writer.path})
    tables = catalog.build([dataclasses.replace(entry, history_shared=False) for entry in shared.tables])
    with mock_server.running(tables=tables) as server:
        url = f"{server.profile_path}#s.d.t"

        def loaded() -> Any:
            return ds.load_as_spark(url, spark=spark) if door == "loader" else load_url(spark, url)

        frame = loaded()
        assert (frame.count(), frame.where("id = 1").count()) == (2, 1)
        frame = loaded()
        writer.insert(rows_of([3], v="a", p="p"))
        with pytest.raises(Exception, match=r"changed from version 1.*to 2.*Load the table again"):
            frame.where("id = 3").count()
        assert loaded().count() == 3
        frame = loaded()
        writer.schema = pa.schema([("id", pa.string()), ("v", pa.string()), ("p", pa.string())])
        writer.commit(metadata=True)
        with pytest.raises(Exception, match=r"SchemaChangeError.*Load the table again"):
            frame.collect()


def test_names_of_files_are_not_known_to_spark(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake)
    assert {row[0] for row in frame.selectExpr("input_file_name()").collect()} == {""}
    with pytest.raises(Exception, match=r"_metadata"):
        frame.selectExpr("_metadata.file_path").collect()


def test_missing_file_error_names_table_and_file(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake)
    next(iter(table.path.glob("part-*.parquet"))).unlink()
    with pytest.raises(Exception, match=r"share\.schema\.t"):
        frame.collect()


# --- secrets ---


def test_plans_and_errors_show_no_secrets(spark: Any, lake: Any, table: TableWriter, capsys: Any) -> None:
    token = lake.server.profile["bearerToken"]
    reader = spark.read.format("deltaSharing")
    for name in ("endpoint", "bearerToken", "shareCredentialsVersion"):
        reader = reader.option(name, lake.server.profile[name])
    frame = reader.load("share.schema.t")
    frame.explain(True)
    frame.explain("formatted")
    shown = [capsys.readouterr().out, repr(frame), str(frame.schema)]
    shown.append(frame._jdf.queryExecution().toString())
    shown.append(str(frame.rdd.toDebugString()))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW hidden USING deltaSharing OPTIONS ("
        + ", ".join(
            ["path 'share.schema.t'", *[f"{n} '{lake.server.profile[n]}'" for n in ("endpoint", "bearerToken")]]
        )
        + ")"
    )
    shown += [str(row) for row in spark.sql("DESCRIBE EXTENDED hidden").collect()]
    assert frame.count() == 12
    for path in table.path.glob("part-*.parquet"):
        path.unlink()
    lake.server.expire_urls()
    for bad in (
        lambda: frame.collect(),
        lambda: reader.option("versionAsOf", 50).load("share.schema.t"),
        lambda: reader.option("bearerTokenn", token).load("x"),
    ):
        with pytest.raises(Exception, match=r"(?i)share\.schema\.t|bearertokenn") as error:
            bad()
        shown.append(str(error.value))
    text = "\n".join(shown)
    assert token not in text
    assert "X-Amz-Signature=" not in text.replace("X-Amz-Signature=***", "")


# --- one-line functions ---


def test_load_as_spark_reads_a_table(spark: Any, lake: Any, table: TableWriter) -> None:
    assert ids(ds.load_as_spark(lake.url("t"), spark=spark)) == [i * 10 + j for i in range(4) for j in range(3)]
    assert ids(ds.load_as_spark(lake.url("t"), version=1, columns=["id"], filter="id > 0", spark=spark)) == [1, 2]
    assert ds.load_as_spark(lake.url("t"), limit=2).count() == 2


def test_load_table_changes_as_spark_reads_changes(spark: Any, lake: Any) -> None:
    writer = TableWriter(lake.root / "feed", SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
    writer.insert(rows_of([1, 2], v="a", p="p"))
    frame = ds.load_table_changes_as_spark(lake.url("feed"), starting_version=0, spark=spark)
    assert sorted(row.id for row in frame.collect()) == [1, 2]
    assert {row._change_type for row in frame.collect()} == {"insert"}


def test_to_spark_accepts_in_memory_profile_and_special_names(spark: Any, lake: Any) -> None:
    schema = pa.schema(
        [("a.b", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])), ("q'`", pa.string())]
    )
    writer = TableWriter(lake.root / "odd", schema)
    writer.insert([{"a.b": 1, "s": {"x": 2, "y": "it's"}, "q'`": "x"}, {"a.b": 2, "s": None, "q'`": None}])
    with ds.SharingClient(lake.server.profile) as client:
        scan = client.table("share.schema.odd").scan(
            columns=["q'`", ("s", "y"), "a.b"], filter=ds.col(("s", "y")) == "it's"
        )
        frame = scan.to_spark(spark)
        assert frame.columns == ["q'`", "s", "a.b"]
        assert [tuple(row) for row in frame.collect()] == [("x", ("it's",), 1)]


# --- PySpark's filter push-down ---


@pytest.mark.skipif(not hasattr(DataSourceReader, "pushFilters"), reason="PySpark before 4.1 has no push-down")
def test_pushed_filters_still_leak_into_later_scans_in_pyspark(spark: Any) -> None:
    """Fails when PySpark is fixed: ``pushFilters`` can be used then, and docs/decisions.md must be changed."""
    from pyspark.sql.datasource import DataSource, EqualTo, InputPartition

    class Reader(DataSourceReader):
        wanted: Any = None

        def pushFilters(self, filters: Any) -> Any:
            for item in filters:
                if isinstance(item, EqualTo):
                    self.wanted = item.value
                else:
                    yield item

        def partitions(self) -> Any:
            return [InputPartition(0)]

        def read(self, partition: Any) -> Any:
            yield from ((i,) for i in range(4) if self.wanted in (None, i))

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "pushing"

        def schema(self) -> str:
            return "i int"

        def reader(self, schema: Any) -> Reader:
            return Reader()

    spark.dataSource.register(Source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("pushing").load()
        assert frame.where("i = 1").count() == 1
        assert frame.count() == 1, "PySpark returns all 4 rows now: its push-down bug is fixed"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_reader_is_correct_with_pysparks_push_down_enabled(spark: Any, lake: Any, table: TableWriter) -> None:
    from delta_sharing_client.spark.datasource import BatchReader

    assert getattr(BatchReader, "pushFilters", None) is getattr(DataSourceReader, "pushFilters", None)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, lake)
        assert frame.where("id = 1").count() == 1
        assert frame.count() == 12
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# --- errors ---


def test_error_is_one_sentence_without_a_traceback(spark: Any, lake: Any, table: TableWriter) -> None:
    frame = load(spark, lake)
    pushing = ds.load_as_spark(lake.url("t"), spark=spark)
    for path in table.path.glob("part-*.parquet"):
        path.unlink()
    for ask, sentence in (
        (lambda: load(spark, lake, columns="idd"), "UsageError: "),
        (lambda: spark.read.format("deltaSharing").schema("nope int").load(lake.url("t")).collect(), "UsageError: "),
        (frame.collect, "DataError: "),
        (pushing.where("id > 3").collect, "DataError: "),
        (
            lambda: frame.write.format("deltaSharing").mode("append").save("x"),
            "is read-only, because only the provider",
        ),
    ):
        with pytest.raises(Exception, match=sentence) as caught:
            ask()
        text = str(caught.value)
        assert "Traceback" not in text
        assert "delta_sharing_client/" not in text
        assert text.index("delta_sharing_client.errors.") < 200


def test_sparks_interrupt_handler_counts_as_ending_calls(spark: Any) -> None:
    handler = signal.getsignal(signal.SIGINT)
    assert handler is not signal.default_int_handler
    assert streams._ends_the_call(handler)


def test_load_as_spark_raises_our_errors_for_bad_requests(
    spark: Any, lake: Any, table: TableWriter, tmp_path: Any
) -> None:
    wrong = tmp_path / "wrong.share"
    wrong.write_text(json.dumps({**lake.server.profile, "bearerToken": "wrong"}))
    with pytest.raises(ds.AuthError):
        ds.load_as_spark(f"{wrong}#share.schema.t", spark=spark)
    for arguments in ({"filter": "idd = 1"}, {"columns": ["idd"]}, {"version": 99}, {"filter": "id ="}):
        with pytest.raises(ds.DeltaSharingError):
            ds.load_as_spark(lake.url("t"), spark=spark, **arguments)
    with pytest.raises(ds.DeltaSharingError):
        ds.load_as_spark(lake.url("none"), spark=spark)
