"""What Spark sends to executors in broadcasts, which it writes to disk if memory is short, has no secret: neither the
functions that read nor Spark's RDDs. Only the tasks have them."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.spark import to_spark
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES
from tests.spark.streams import FEED, ID
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark

HEADER = "planted-header-4821"
SIGNED = re.compile(rb"X-Amz-Signature=\w")
needs_format = pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no Python data sources")


def java_bytes(spark: Any, value: Any) -> bytes:
    """Return ``value`` as Java serializes it, which is how Spark sends RDDs and tasks."""
    buffer = spark.sparkContext._jvm.java.io.ByteArrayOutputStream()
    spark.sparkContext._jvm.java.io.ObjectOutputStream(buffer).writeObject(value)
    return bytes(buffer.toByteArray())


def sent(spark: Any, frame: Any) -> tuple[bytes, bytes]:
    """Return what all tasks of ``frame`` share, as Spark broadcasts it, and what each task has of its own."""
    rdd = frame._jdf.queryExecution().toRdd()
    return java_bytes(spark, rdd), java_bytes(spark, rdd.partitions())


def check_secrets_are_in_tasks_only(parts: tuple[bytes, bytes], secrets: tuple[str, ...]) -> None:
    shared, own = parts
    for secret in map(str.encode, secrets):
        assert secret in own
        assert secret not in shared
    assert SIGNED.search(own)
    assert not SIGNED.search(shared)
    assert b"delta_sharing_client" in shared  # the function that reads


@pytest.fixture
def table(lake: Any) -> Any:
    writer = TableWriter(lake.root / "t", ID, properties=FEED)
    for number in range(3):
        writer.insert(rows_of([number]))
    return ds.SharingClient(lake.server.profile).table("share.schema.t")


def by_format(spark: Any, profile: Any, options: dict[str, str] | None = None) -> Any:
    fields = {name: str(value) for name, value in profile.items()}
    return spark.read.format("deltaSharing").options(**fields, **(options or {})).load("share.schema.t")


@needs_format
@pytest.mark.parametrize("kind", ["batch", "stream"])
@pytest.mark.parametrize("name", ["deltaSharing", "delta_sharing"])
def test_pickles_of_readers_and_their_sources_have_no_secret(lake: Any, table: Any, name: str, kind: str) -> None:
    """These are the objects that PySpark's function for reading contains."""
    from pyspark import cloudpickle

    import pyspark_delta_sharing
    import pyspark_delta_sharing_alias

    classes = (pyspark_delta_sharing.DefaultSource, pyspark_delta_sharing_alias.DefaultSource)
    fields = {field: str(value) for field, value in lake.server.profile.items()}
    source = {one.name(): one for one in classes}[name]({**fields, "path": "share.schema.t"})
    token = lake.server.profile["bearerToken"].encode()
    schema: Any = source.schema()
    assert token in cloudpickle.dumps(source)  # Spark's planner needs it
    reader = source.reader(schema) if kind == "batch" else source.streamReader(schema)
    pickled = cloudpickle.dumps((reader, source))
    assert token not in pickled
    sent_reader, sent_source = cloudpickle.loads(pickled)
    assert sent_source.name() == name
    if kind == "batch":
        parts = reader.partitions()
    else:
        offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        parts = reader.partitions(reader.initialOffset(), offset)
    rows = [row["id"] for part in parts for batch in sent_reader.read(part) for row in batch.to_pylist()]
    assert sorted(rows) == [0, 1, 2]


@needs_format
@pytest.mark.parametrize(
    "frame_of",
    [
        lambda spark, table, profile: by_format(spark, profile),
        lambda spark, table, profile: by_format(spark, profile).where("id < 2").select("id"),
        lambda spark, table, profile: by_format(spark, profile, {"readChangeFeed": "true", "startingVersion": "0"}),
        lambda spark, table, profile: table.scan().to_spark(spark),
        lambda spark, table, profile: table.scan().to_spark(spark).where("id < 2"),
        lambda spark, table, profile: table.changes(starting_version=0).to_spark(spark),
    ],
    ids=["format", "narrowed-format", "format-feed", "scan", "pushed-scan", "changes"],
)
def test_shared_part_of_format_reads_has_no_secret(
    spark: Any, lake: Any, table: Any, frame_of: Callable[[Any, Any, Any], Any]
) -> None:
    frame = frame_of(spark, table, lake.server.profile)
    check_secrets_are_in_tasks_only(sent(spark, frame), (lake.server.profile["bearerToken"],))


@needs_format
def test_shared_part_of_micro_batches_has_no_secret(spark: Any, lake: Any, table: Any, tmp_path: pathlib.Path) -> None:
    fields = {name: str(value) for name, value in lake.server.profile.items()}
    stream = spark.readStream.format("deltaSharing").options(**fields).load("share.schema.t")
    found: list[tuple[bytes, bytes]] = []
    writer = stream.writeStream.foreachBatch(lambda batch, _: found.append(sent(spark, batch)))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert found
    for parts in found:
        check_secrets_are_in_tasks_only(parts, (lake.server.profile["bearerToken"],))


@pytest.mark.parametrize("kind", ["scan", "changes"])
def test_shared_part_of_planned_frames_has_no_secret(
    spark: Any, lake: Any, table: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_spark, "HAS_DATA_SOURCES", False)
    options = ds.ReadOptions(headers={"x-own": HEADER})
    with ds.SharingClient(lake.server.profile, options=options) as client:
        shared_table = client.table("share.schema.t")
        read = shared_table.scan() if kind == "scan" else shared_table.changes(starting_version=0)
        frame = read.to_spark(spark)
        check_secrets_are_in_tasks_only(sent(spark, frame), (lake.server.profile["bearerToken"], HEADER))
        assert sorted(row.id for row in frame.collect()) == [0, 1, 2]


def test_planned_frame_has_a_task_for_each_part(spark: Any, lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_spark, "HAS_DATA_SOURCES", False)
    writer = TableWriter(lake.root / "t", ID)
    for number in range(5):
        writer.insert(rows_of([number]))
    frame = ds.load_as_spark(lake.url("t"), spark=spark)
    with ds.SharingClient(lake.server.profile) as client:
        cores = spark.sparkContext.defaultParallelism
        parts = client.table("share.schema.t").scan().partitions(cores)
    assert frame.rdd.getNumPartitions() <= max(cores, len(parts))
    assert sorted(row.id for row in frame.collect()) == [0, 1, 2, 3, 4]
