"""Streams with checkpoints on disk: the scenarios for appends in the JVM connector's suites.

Those that need nothing of Spark read with ``Loaded``, which takes a tenth of the time of a query.
"""

from __future__ import annotations

import json
import logging
import pathlib
import pickle
import re
import time
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.effort import sample
from tests.spark.streams import (
    ID,
    VECTORS,
    Loaded,
    Sink,
    changed_table,
    follow,
    forget,
    limited,
    offsets,
    stream,
)
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark

ALL = {"startingVersion": 0, "ignoreDeletes": "true", "ignoreChanges": "true"}


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "checkpoint"


# --- start ---


def test_stream_reads_the_snapshot_and_then_new_versions(spark: Any, lake: Any, checkpoint: pathlib.Path) -> None:
    table = changed_table(lake.root / "t")
    frame = stream(spark, lake)
    assert frame.isStreaming
    assert frame.schema.simpleString() == "struct<id:bigint>"
    sink = follow(frame, checkpoint)
    assert sink.ids == [1, 30]
    last = json.loads(offsets(checkpoint)[-1])
    assert (last["tableVersion"], last["index"], last["isStartingVersion"], last["sourceVersion"]) == (6, -1, False, 1)
    assert last["tableId"] == table.table_id
    table.insert(rows_of([40]))
    table.insert(rows_of([41]), rows_of([42]))
    assert follow(stream(spark, lake), checkpoint).ids == [40, 41, 42]
    assert follow(stream(spark, lake), checkpoint).rows == []


@pytest.mark.parametrize(("start", "expected"), [(0, [1, 2, 3, 30]), (1, [1, 2, 3, 30]), (2, [30]), (3, [30]), (4, [])])
def test_starting_version_selects_the_first_rows(
    lake: Any, checkpoint: pathlib.Path, start: int, expected: list[int]
) -> None:
    changed_table(lake.root / "t")
    assert follow(Loaded(lake, **{**ALL, "startingVersion": start}), checkpoint).ids == expected


@pytest.mark.parametrize("wire", sample(["delta", "parquet"], 2))
def test_starting_version_latest_is_fixed_before_a_crash(
    spark: Any, lake: Any, checkpoint: pathlib.Path, wire: str
) -> None:
    table = changed_table(lake.root / "t")
    frame = stream(spark, lake, startingVersion="latest", responseFormat=wire)
    assert follow(frame, checkpoint).rows == []
    forget(checkpoint, 1, commits_only=True)
    table.insert(rows_of([50]))
    again = stream(spark, lake, startingVersion="latest", responseFormat=wire)
    # On PySpark before 4.2 a run with available-now ends after the replayed batch.
    assert follow(again, checkpoint).ids + follow(again, checkpoint).ids == [50]


def test_starting_timestamp_selects_the_first_rows(lake: Any, tmp_path: pathlib.Path) -> None:
    start = 1_600_000_000_000
    table = TableWriter(lake.root / "t", ID, timestamp_ms=start)
    for i in range(1, 4):
        table.commit(add=[table.file(rows_of([i]))], timestamp_ms=start + i * 60_000)
    for moment, expected in (("2010-01-01", [1, 2, 3]), ("2020-09-13 12:28:00", [2, 3])):
        found = follow(Loaded(lake, startingTimestamp=moment), tmp_path / f"c{len(expected)}")
        assert found.ids == expected
    with pytest.raises(Exception, match=r"(?i)timestamp"):
        follow(Loaded(lake, startingTimestamp="9999-01-01"), tmp_path / "late")


def test_start_beyond_the_latest_version_waits_for_it(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    assert follow(Loaded(lake, startingVersion=2), checkpoint).rows == []
    table.insert(rows_of([1]))
    table.insert(rows_of([2]))
    assert follow(Loaded(lake, startingVersion=2), checkpoint).ids == [2]


@pytest.mark.parametrize("wire", ["delta", "parquet"])
def test_table_with_only_version_0_is_streamed(lake: Any, checkpoint: pathlib.Path, wire: str) -> None:
    table = TableWriter(lake.root / "t", ID)
    assert follow(Loaded(lake, responseFormat=wire), checkpoint).rows == []
    table.insert(rows_of([1]))
    assert follow(Loaded(lake, responseFormat=wire), checkpoint).ids == [1]


@pytest.mark.parametrize(
    ("options", "fragment"),
    # `test_options.py` tests all options; only a few are tested here, because each refusal starts a Python worker.
    sample(
        [
            ({"versionAsOf": "1"}, "Cannot time travel streams"),
            ({"startingVersion": "-1"}, "greater than or equal to zero"),
            ({"startingVersion": "x"}, "greater than or equal to zero"),
            ({"startingTimestamp": ""}, "is not a timestamp"),
            ({"startingVersion": "0", "startingTimestamp": "2022"}, "Please either provide"),
            ({"queryTableVersionIntervalSeconds": "9"}, "must not be less than 10 seconds"),
            ({"maxFilesPerTrigger": "0"}, "must be a positive integer"),
            ({"maxBytesPerTrigger": "x"}, "must be a size configuration"),
        ],
        4,
    ),
)
def test_invalid_options_are_refused(
    spark: Any, lake: Any, checkpoint: pathlib.Path, options: dict[str, str], fragment: str
) -> None:
    changed_table(lake.root / "t")
    with pytest.raises(Exception, match=fragment):
        follow(stream(spark, lake, **options), checkpoint)


# --- batch sizes ---


@limited
@pytest.mark.parametrize(
    ("limits", "expected"),
    # `test_admission.py` tests all of these without Spark; a sample of them is tested through Spark.
    sample(
        [
            ({"maxFilesPerTrigger": 1}, [1, 1, 1, 1]),
            ({"maxFilesPerTrigger": 2}, [2, 2]),
            ({"maxFilesPerTrigger": 3}, [3, 1]),
            ({"maxFilesPerTrigger": 4}, [4]),
            ({"maxBytesPerTrigger": "1b"}, [1, 1, 1, 1]),
            ({"maxBytesPerTrigger": "1000b"}, [1, 1, 1, 1]),
            ({"maxBytesPerTrigger": "2000b"}, [2, 2]),
            ({"maxBytesPerTrigger": "3000b"}, [3, 1]),
            ({"maxBytesPerTrigger": "5000b"}, [4]),
            ({"maxVersionsPerRpc": 1}, [3, 1]),
            ({"maxVersionsPerRpc": 2}, [3, 1]),
            ({"maxVersionsPerRpc": 4}, [4]),
            ({"maxFilesPerTrigger": 1, "maxBytesPerTrigger": "1g"}, [1, 1, 1, 1]),
            ({"maxFilesPerTrigger": 9, "maxBytesPerTrigger": "1b"}, [1, 1, 1, 1]),
        ],
        4,
        1,
    ),
)
def test_limits_determine_batch_sizes(
    spark: Any, lake: Any, checkpoint: pathlib.Path, limits: dict[str, object], expected: list[int]
) -> None:
    changed_table(lake.root / "t")
    assert follow(stream(spark, lake, **ALL, **limits), checkpoint).sizes == expected


@limited
@pytest.mark.parametrize("limits", sample([{"maxFilesPerTrigger": 1}, {"maxBytesPerTrigger": "1b"}], 2))
def test_trigger_once_reads_everything_in_one_batch(
    spark: Any, lake: Any, checkpoint: pathlib.Path, limits: dict[str, object]
) -> None:
    changed_table(lake.root / "t")
    sink = follow(stream(spark, lake, **ALL, **limits, maxVersionsPerRpc=1), checkpoint, once=True)
    assert sink.sizes == [4]


@limited
def test_limited_snapshot_resumes_in_its_middle(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(*[rows_of([i]) for i in range(5)])
    sink = follow(Loaded(lake, maxFilesPerTrigger=2), checkpoint)
    assert sink.sizes == [2, 2, 1]
    forget(checkpoint, 2)
    table.insert(rows_of([9]))
    again = follow(Loaded(lake, maxFilesPerTrigger=2), checkpoint, Sink())
    assert again.sizes == [2, 1, 1]
    assert sorted([row.id for row in sink.batches[0]] + again.ids) == [0, 1, 2, 3, 4, 9]


@limited
def test_available_now_ends_at_the_version_it_started_with(spark: Any, lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]), rows_of([2]))
    sink = Sink()

    def write(frame: Any, batch: int) -> None:
        sink(frame, batch)
        table.insert(rows_of([100 + batch]))

    query = (
        stream(spark, lake, startingVersion=0, maxFilesPerTrigger=1)
        .writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert sink.ids == [1, 2]
    assert follow(stream(spark, lake), checkpoint).ids == [100, 101]


@limited
def test_running_query_keeps_its_limits_and_polling_interval(spark: Any, lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(*[rows_of([i]) for i in range(1, 5)])
    sink = Sink()
    frame = stream(spark, lake, startingVersion=0, maxFilesPerTrigger=1, queryTableVersionIntervalSeconds=10)
    query = (
        frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="50 milliseconds").start()
    )  # fmt: skip
    try:
        began, deadline = time.monotonic(), time.monotonic() + 120
        while len(sink.rows) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sink.sizes == [1, 1, 1, 1]
        asked = lake.server.stats()["requests"]["version"]
        table.insert(rows_of([5]))
        while len(sink.rows) < 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sink.ids == [1, 2, 3, 4, 5]
        assert lake.server.stats()["requests"]["version"] > asked
        assert lake.server.stats()["requests"]["version"] <= (time.monotonic() - began) / 10 + 2
        assert query.isActive
    finally:
        query.stop()
    assert query.exception() is None


# --- sinks, filters, columns ---


@limited
def test_parquet_and_memory_sinks_have_every_row_once(spark: Any, lake: Any, tmp_path: pathlib.Path) -> None:
    changed_table(lake.root / "t")
    frame = stream(spark, lake, **ALL, maxFilesPerTrigger=1)
    out = tmp_path / "out"
    for _ in range(2):
        query = (
            frame.writeStream.format("parquet").option("path", str(out))
            .option("checkpointLocation", str(tmp_path / "c1")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
    assert sorted(row.id for row in spark.read.parquet(str(out)).collect()) == [1, 2, 3, 30]
    query = (
        frame.where("id < 30").writeStream.format("memory").queryName("remembered")
        .option("checkpointLocation", str(tmp_path / "c2")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert sorted(row.id for row in spark.table("remembered").collect()) == [1, 2, 3]


def test_filter_columns_option_and_schema_apply_to_streams(spark: Any, lake: Any, tmp_path: pathlib.Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("p", pa.string())])
    table = TableWriter(lake.root / "t", schema, partition_by=["p"])
    table.insert([{"id": 1, "v": "a", "p": "x"}], [{"id": 2, "v": "b", "p": "y"}])
    table.insert([{"id": 3, "v": "c", "p": "x"}])
    sink = follow(stream(spark, lake, startingVersion=0, filter="p = 'x'", columns="v,id"), tmp_path / "a")
    assert sorted(map(tuple, sink.rows)) == [("a", 1), ("c", 3)]
    narrow = spark.readStream.format("deltaSharing").schema("v string").load(lake.url("t"))
    assert sorted(row.v for row in follow(narrow, tmp_path / "b").rows) == ["a", "b", "c"]


def test_union_of_two_streams_of_one_table_has_all_rows(spark: Any, lake: Any, checkpoint: pathlib.Path) -> None:
    changed_table(lake.root / "t")
    both = stream(spark, lake, **ALL).union(stream(spark, lake))
    assert follow(both, checkpoint).ids == [1, 1, 2, 3, 30, 30]


# --- deletes and updates ---


@limited
def test_deletes_and_updates_fail_by_default_naming_the_option(lake: Any, tmp_path: pathlib.Path) -> None:
    changed_table(lake.root / "t")
    sink = Sink()
    with pytest.raises(Exception, match=r"Detected deleted data in version 2.*'ignoreDeletes'"):
        follow(Loaded(lake, startingVersion=0), tmp_path / "c", sink)
    assert sink.ids == [1, 2, 3], "versions before the delete are delivered first"
    with pytest.raises(Exception, match=r"Detected a data update in version 3.*'skipChangeCommits'"):
        follow(Loaded(lake, startingVersion=0, ignoreDeletes="true"), tmp_path / "c", sink)
    assert follow(Loaded(lake, startingVersion=0, skipChangeCommits="true"), tmp_path / "c").rows == []
    skipped = follow(Loaded(lake, startingVersion=0, skipChangeCommits="true"), tmp_path / "d")
    assert skipped.ids == [1, 2, 3]


def test_deletion_vector_counts_as_an_update(lake: Any, tmp_path: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, **VECTORS)
    file = table.file(rows_of([1, 2, 3, 4]))
    table.insert(file)
    table.commit(add=[file.deleting(1)], remove=[file])
    table.insert(rows_of([9]))
    for options in ({}, {"ignoreDeletes": "true"}):
        with pytest.raises(Exception, match="Detected a data update in version 2"):
            follow(Loaded(lake, startingVersion=0, **options), tmp_path / f"c{len(options)}")
    again = follow(Loaded(lake, startingVersion=0, ignoreChanges="true"), tmp_path / "d")
    assert again.ids == [1, 1, 2, 3, 3, 4, 4, 9]
    assert follow(Loaded(lake, startingVersion=0, skipChangeCommits="true"), tmp_path / "e").ids == [
        *range(1, 5),
        9,
    ]
    assert follow(Loaded(lake), tmp_path / "f").ids == [1, 3, 4, 9]


def test_optimize_and_settings_move_the_offset_without_rows(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    files = [table.file(rows_of([i])) for i in (1, 2)]
    table.insert(*files)
    assert follow(Loaded(lake, startingVersion=0), checkpoint).ids == [1, 2]
    table.commit(add=[table.file(rows_of([1, 2]))], remove=files, data_change=False)
    table.commit(metadata=True)
    table.commit()
    assert follow(Loaded(lake), checkpoint).rows == []
    assert json.loads(offsets(checkpoint)[-1])["tableVersion"] == 5
    assert follow(Loaded(lake), checkpoint).rows == []
    table.insert(rows_of([3]))
    assert follow(Loaded(lake), checkpoint).ids == [3]


# --- restart ---


@limited
def test_restart_replays_exactly_the_uncommitted_batches(spark: Any, lake: Any, checkpoint: pathlib.Path) -> None:
    changed_table(lake.root / "t")
    frame = stream(spark, lake, **ALL, maxFilesPerTrigger=1)
    whole = follow(frame, checkpoint)
    assert whole.sizes == [1, 1, 1, 1]
    for folder in ("offsets", "commits"):
        assert sorted(path.name for path in (checkpoint / folder).glob("[0-9]*")) == ["0", "1", "2", "3"]
    assert follow(frame, checkpoint).rows == []
    forget(checkpoint, 2)
    again = follow(stream(spark, lake, **ALL, maxFilesPerTrigger=1), checkpoint)
    assert [row.id for row in again.rows] == [row.id for row in whole.rows[-2:]]
    forget(checkpoint, 1, commits_only=True)
    last = follow(stream(spark, lake, **ALL, maxFilesPerTrigger=1), checkpoint)
    assert [row.id for row in last.rows] == [whole.rows[-1].id]


def test_starting_options_are_ignored_after_a_checkpoint(lake: Any, checkpoint: pathlib.Path) -> None:
    table = changed_table(lake.root / "t")
    follow(Loaded(lake), checkpoint)
    table.insert(rows_of([70]))
    assert follow(Loaded(lake, **ALL), checkpoint).ids == [70]


def test_checkpoint_of_another_table_is_refused(lake: Any, checkpoint: pathlib.Path) -> None:
    changed_table(lake.root / "t")
    other = changed_table(lake.root / "u")
    follow(Loaded(lake), checkpoint)
    with pytest.raises(Exception, match=rf"(?s)belongs to the table with id .*{other.table_id}.*delete the checkpoint"):
        follow(Loaded(lake, "u"), checkpoint)


def test_change_feed_checkpoint_is_refused_by_an_append_stream(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties={"delta.enableChangeDataFeed": "true"})
    table.insert(rows_of([1]))
    follow(Loaded(lake, readChangeFeed="true"), checkpoint)
    with pytest.raises(Exception, match="readChangeFeed"):
        follow(Loaded(lake), checkpoint)


def test_table_older_than_the_checkpoint_is_refused(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    for i in range(4):
        table.insert(rows_of([i]))
    follow(Loaded(lake), checkpoint)
    for version in (3, 4):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(Exception, match=r"checkpoint is at version 5 .*latest version is 2"):
        follow(Loaded(lake), checkpoint)


def test_missing_history_is_refused(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([0]))
    follow(Loaded(lake), checkpoint)
    for i in range(1, 4):
        table.insert(rows_of([i]))
    deltalake.DeltaTable(str(table.path)).create_checkpoint()
    for version in range(3):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(Exception, match=r"(?s)needs the versions 2 to 4.*choose a new one"):
        follow(Loaded(lake), checkpoint)
    with pytest.raises(Exception, match="needs the versions 1 to 4"):
        follow(Loaded(lake, startingVersion=1), checkpoint.with_name("old"))
    assert follow(Loaded(lake, startingVersion=4), checkpoint.with_name("late")).ids == [3]
    assert follow(Loaded(lake), checkpoint.with_name("new")).ids == [0, 1, 2, 3]


@limited
def test_table_recreated_while_running_is_refused(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    frame = Loaded(lake, startingVersion=0)
    table.table_id = "another"
    table.commit(metadata=True)
    sink = Sink()
    with pytest.raises(Exception, match=r"recreated.*another"):
        follow(frame, checkpoint, sink)
    assert sink.ids == [1]


def test_missing_data_file_fails_the_query_and_loses_nothing(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    file = table.file(rows_of([1]))
    table.insert(file)
    content = (table.path / file.path).read_bytes()
    (table.path / file.path).unlink()
    with pytest.raises(Exception, match=r"share\.schema\.t"):
        follow(Loaded(lake, startingVersion=0), checkpoint)
    (table.path / file.path).write_bytes(content)
    assert follow(Loaded(lake), checkpoint).ids == [1]


# --- schema ---


@limited
def test_restart_after_an_added_column_continues(spark: Any, lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    frame = stream(spark, lake, startingVersion=0)
    table.insert(rows_of([2]))
    table.schema = pa.schema([("id", pa.int64()), ("extra", pa.string())])
    table.commit(metadata=True)
    table.insert([{"id": 3, "extra": "x"}])
    sink = Sink()
    with pytest.raises(Exception, match=r"Detected incompatible schema change in version 3.*restart"):
        follow(frame, checkpoint, sink)
    assert sink.ids == [1, 2]
    after = follow(stream(spark, lake), checkpoint)
    assert [tuple(row) for row in after.rows] == [(3, "x")]


@pytest.mark.parametrize(
    ("columns", "partition_by", "fragment"),
    [
        ([("id", pa.int64()), ("v", pa.string())], ["v"], "partition columns"),
        ([("renamed", pa.int64())], [], "'id' was dropped or renamed"),
        ([("id", pa.string())], [], "'id' changed its type from long to string"),
    ],
)
def test_breaking_change_stops_the_stream_and_its_restart(
    lake: Any, tmp_path: pathlib.Path, columns: Any, partition_by: list[str], fragment: str
) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())]) if partition_by else ID
    table = TableWriter(lake.root / "t", schema)
    table.insert([{"id": 1, "v": "a"}])
    frame = Loaded(lake)
    follow(frame, tmp_path / "c")
    table.schema, table.partition_by = pa.schema(columns), partition_by
    version = table.commit(metadata=True)
    table.insert([{"renamed": 2, "id": "2" if columns[0] == ("id", pa.string()) else 2, "v": "b"}])
    with pytest.raises(Exception, match=r"Detected incompatible schema change in version 2"):
        follow(frame, tmp_path / "c")
    with pytest.raises(
        Exception, match=rf"(?s)Detected incompatible schema change in version 2.*{fragment}.*'startingVersion' 2"
    ):
        follow(Loaded(lake), tmp_path / "c")
    assert len(follow(Loaded(lake, startingVersion=version), tmp_path / "new").rows) == 1


def test_changed_nullability_is_ignored(lake: Any, tmp_path: pathlib.Path) -> None:
    for name, before, after in (("t", True, False), ("u", False, True)):
        table = TableWriter(lake.root / name, pa.schema([pa.field("id", pa.int64(), nullable=before)]))
        table.insert(rows_of([1]))
        table.schema = pa.schema([pa.field("id", pa.int64(), nullable=after)])
        table.commit(metadata=True)
        table.insert(rows_of([2]))
        assert follow(Loaded(lake, name, startingVersion=0), tmp_path / name).ids == [1, 2]


def test_new_reader_feature_is_checked_before_reading_its_files(lake: Any, checkpoint: pathlib.Path) -> None:
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": []}
    table = TableWriter(lake.root / "t", ID, protocol=protocol)
    table.insert(rows_of([1]))
    frame = Loaded(lake, startingVersion=0)
    table.commit(protocol={**protocol, "readerFeatures": ["fromTheFuture"], "writerFeatures": ["fromTheFuture"]})
    table.insert(rows_of([2]))
    sink = Sink()
    with pytest.raises(Exception, match="fromTheFuture"):
        follow(frame, checkpoint, sink)
    assert sink.ids in ([1], [])


# --- the server ---


def test_running_stream_ignores_a_lower_table_version(spark: Any, lake: Any) -> None:
    from delta_sharing_client.delta.features import Operation
    from delta_sharing_client.spark.datasource import StreamReader
    from delta_sharing_client.spark.served_table import ServedTable
    from delta_sharing_client.spark.source_options import SparkOptions
    from delta_sharing_client.spark.types import relation_columns

    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    served = ServedTable(SparkOptions.parse({"path": lake.url("t")}), Operation.STREAMING)
    described = served.describe()
    reader = StreamReader(served, relation_columns(described.metadata.schema_string, served.options), described)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    (table.path / "_delta_log" / f"{1:020d}.json").unlink()
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first


def test_stream_has_one_query_id(lake: Any, caplog: pytest.LogCaptureFixture) -> None:
    from delta_sharing_client.delta.features import Operation
    from delta_sharing_client.spark.served_table import ServedTable
    from delta_sharing_client.spark.source_options import SparkOptions

    TableWriter(lake.root / "t", ID).insert(rows_of([1]))
    served = ServedTable(SparkOptions.parse({"path": lake.url("t")}), Operation.STREAMING)
    with caplog.at_level(logging.DEBUG, "delta_sharing_client"):
        served.describe()
        pickle.loads(pickle.dumps(served)).current_version()
    assert len(set(re.findall(r"query id (\w+)", caplog.text))) == 1


def test_response_error_fails_the_query_and_a_restart_continues(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]), rows_of([2]))
    frame = Loaded(lake, startingVersion=0, maxAttempts=2)
    lake.server.set_fault("error-in-stream")
    with pytest.raises(Exception, match=r"share\.schema\.t"):
        follow(frame, checkpoint)
    lake.server.clear_faults()
    assert follow(frame, checkpoint).ids == [1, 2]


@limited
def test_urls_expired_since_planning_are_renewed(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(*[rows_of([i]) for i in range(4)])
    table.insert(rows_of([4]))
    lake.server.set_fault("expire-urls-now:2")
    try:
        assert follow(Loaded(lake, maxFilesPerTrigger=3), checkpoint).ids == [0, 1, 2, 3, 4]
    finally:
        lake.server.clear_faults()
