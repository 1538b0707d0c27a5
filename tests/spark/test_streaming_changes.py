"""Streams of the change data feed: rows, batch sizes, pre- and postimages in one batch, deletion vectors,
restarts."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.streams import (
    FEED,
    ID,
    VECTORS,
    Loaded,
    Sink,
    feed_table,
    follow,
    forget,
    limited,
    offsets,
    stream,
)
from tests.tables import TableWriter, rows_of

pytestmark = pytest.mark.spark

CHANGES = {"readChangeFeed": "true", "startingVersion": 0}


@pytest.fixture
def checkpoint(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "checkpoint"


def kinds(rows: list[Any]) -> list[tuple[int, str, int]]:
    return sorted((row.id, row._change_type, row._commit_version) for row in rows)


@pytest.mark.parametrize("wire", ["delta", "parquet"])
def test_every_change_has_its_type_and_version(spark: Any, lake: Any, checkpoint: pathlib.Path, wire: str) -> None:
    feed_table(lake.root / "t")
    sink = follow(stream(spark, lake, **CHANGES, responseFormat=wire), checkpoint)
    assert kinds(sink.rows) == sorted(
        [(i, "insert", 1) for i in (1, 2)]
        + [(i, "insert", 2) for i in (3, 4, 5)]
        + [(i, "update_preimage", 3) for i in (1, 2, 3, 4)]
        + [(i + 100, "update_postimage", 3) for i in (1, 2, 3, 4)]
        + [(i, "delete", 4) for i in (10, 11, 12, 13)]
    )
    last = json.loads(offsets(checkpoint)[-1])
    assert (last["tableVersion"], last["index"], last["changeFeed"]) == (5, -1, True)


@limited
@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"maxFilesPerTrigger": 1}, [2, 3, 8, 2, 2]),
        ({"maxFilesPerTrigger": 2}, [5, 8, 4]),
        ({"maxFilesPerTrigger": 3}, [13, 4]),
        ({"maxFilesPerTrigger": 6}, [13, 4]),
        ({"maxFilesPerTrigger": 7}, [15, 2]),
        ({"maxFilesPerTrigger": 8}, [17]),
        ({"maxBytesPerTrigger": "700b"}, [2, 3, 8, 2, 2]),
        ({"maxBytesPerTrigger": "800b"}, [5, 8, 2, 2]),
        ({"maxBytesPerTrigger": "1600b"}, [13, 4]),
        ({"maxBytesPerTrigger": "7000b"}, [15, 2]),
        ({"maxBytesPerTrigger": "9000b"}, [17]),
        ({"maxVersionsPerRpc": 1}, [2, 3, 8, 4]),
        ({"maxVersionsPerRpc": 2}, [2, 11, 4]),
        ({"maxVersionsPerRpc": 3}, [5, 12]),
        ({"maxVersionsPerRpc": 4}, [13, 4]),
        ({"maxVersionsPerRpc": 5}, [17]),
    ],
)
def test_limits_determine_batch_sizes(
    lake: Any, checkpoint: pathlib.Path, limit: dict[str, object], expected: list[int]
) -> None:
    feed_table(lake.root / "t")
    assert follow(Loaded(lake, **CHANGES, **limit), checkpoint).sizes == expected


@limited
def test_restart_replays_the_last_three_batches(lake: Any, checkpoint: pathlib.Path) -> None:
    feed_table(lake.root / "t")
    whole = follow(Loaded(lake, **CHANGES, maxFilesPerTrigger=1), checkpoint)
    forget(checkpoint, 3)
    again = follow(Loaded(lake, **CHANGES, maxFilesPerTrigger=1), checkpoint)
    assert again.sizes == [8, 2, 2]
    assert kinds(again.rows) == kinds(whole.rows[5:])


def test_feed_columns_match_delta_lake_or_the_jvm_connector(spark: Any, lake: Any, tmp_path: pathlib.Path) -> None:
    feed_table(lake.root / "t")
    frame = stream(spark, lake, **CHANGES)
    assert frame.schema.simpleString() == (
        "struct<id:bigint,_change_type:string,_commit_version:bigint,_commit_timestamp:timestamp>"
    )
    legacy = stream(spark, lake, **CHANGES, changeFeedColumns="parquet")
    assert legacy.schema.simpleString() == (
        "struct<id:bigint,_commit_version:bigint,_commit_timestamp:bigint,_change_type:string>"
    )
    rows = follow(legacy.select("_change_type", "id", "_commit_timestamp"), tmp_path / "c").rows
    assert len(rows) == 17
    assert all(row._commit_timestamp > 1_500_000_000_000 for row in rows)


@pytest.mark.parametrize(("start", "expected"), [(3, 12), (4, 4), ("latest", 0)])
def test_feed_starts_at_the_requested_version(
    lake: Any, checkpoint: pathlib.Path, start: object, expected: int
) -> None:
    feed_table(lake.root / "t")
    assert len(follow(Loaded(lake, readChangeFeed="true", startingVersion=start), checkpoint).rows) == expected


@pytest.mark.parametrize("wire", ["delta", "parquet"])
def test_initial_snapshot_consists_of_inserts(lake: Any, checkpoint: pathlib.Path, wire: str) -> None:
    table = feed_table(lake.root / "t")
    sink = follow(Loaded(lake, readChangeFeed="true", responseFormat=wire), checkpoint)
    assert kinds(sink.rows) == [(i, "insert", 4) for i in (1, 2, 3, 4, 5)]
    assert all(row._commit_timestamp is not None for row in sink.rows)
    table.commit(change=[table.change_file([{"id": 1, "_change_type": "delete"}])])
    assert kinds(follow(Loaded(lake, readChangeFeed="true"), checkpoint).rows) == [(1, "delete", 5)]


def test_filter_on_change_columns_prunes_and_is_exact(spark: Any, lake: Any, tmp_path: pathlib.Path) -> None:
    feed_table(lake.root / "t")
    sink = follow(
        stream(spark, lake, **CHANGES, filter="_change_type = 'update_postimage' AND id > 102"), tmp_path / "a"
    )
    assert sink.ids == [103, 104]
    after = follow(stream(spark, lake, **CHANGES).where("_change_type LIKE 'delete'").select("id"), tmp_path / "b")
    assert after.ids == [10, 11, 12, 13]


@limited
def test_changes_by_deletion_vectors_are_not_split(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, protocol=VECTORS["protocol"], properties={**VECTORS["properties"], **FEED})
    first, second = table.file(rows_of([0, 1, 2, 3])), table.file(rows_of([10, 11]))
    table.insert(first, second)
    table.commit(add=[first.deleting(0, 1), second.deleting(0)], remove=[first, second])
    table.commit(add=[first.deleting(1, 2)], remove=[first.deleting(0, 1)])
    table.commit(add=[first], remove=[first.deleting(1, 2)])
    table.commit(remove=[second.deleting(0)])
    sink = follow(Loaded(lake, **CHANGES, maxFilesPerTrigger=1), checkpoint)
    assert kinds(sink.rows) == sorted(
        [(i, "insert", 1) for i in (0, 1, 2, 3, 10, 11)]
        + [(0, "delete", 2), (1, "delete", 2), (10, "delete", 2)]
        + [(0, "insert", 3), (2, "delete", 3)]
        + [(1, "insert", 4), (2, "insert", 4)]
        + [(11, "delete", 5)]
    )
    by_version = {row._commit_version: set() for row in sink.rows}
    for batch, rows in sink.batches.items():
        for row in rows:
            by_version[row._commit_version].add(batch)
    assert all(len(by_version[version]) == 1 for version in (2, 3, 4))


def test_merge_without_effect_and_optimize_give_no_rows(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    file, rewritten = table.file(rows_of([1, 2])), table.file(rows_of([1, 2]))
    table.insert(file)
    metrics = {f"numTargetRows{kind}": "0" for kind in ("Inserted", "Updated", "Deleted")}
    table.commit(add=[rewritten], remove=[file], info={"operation": "MERGE", "operationMetrics": metrics})
    table.commit(add=[table.file(rows_of([1, 2]))], remove=[rewritten], data_change=False)
    sink = follow(Loaded(lake, **CHANGES), checkpoint)
    assert kinds(sink.rows) == [(1, "insert", 1), (2, "insert", 1)]


def test_feed_disabled_within_the_range_is_refused(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    table.properties = dict(FEED)
    version = table.commit(metadata=True)
    table.insert(rows_of([2]))
    with pytest.raises(Exception, match=r"(?i)change data"):
        follow(Loaded(lake, **CHANGES), checkpoint)
    later = Loaded(lake, readChangeFeed="true", startingVersion=version)
    assert kinds(follow(later, checkpoint.with_name("later")).rows) == [(2, "insert", 3)]


@limited
def test_restart_of_a_feed_after_an_added_column_continues(lake: Any, checkpoint: pathlib.Path) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    table.insert(rows_of([1]))
    frame = Loaded(lake, **CHANGES)
    table.schema = pa.schema([("id", pa.int64()), ("extra", pa.string())])
    table.commit(metadata=True)
    table.insert([{"id": 2, "extra": "x"}])
    sink = Sink()
    with pytest.raises(Exception, match=r"Detected incompatible schema change in version 2.*restart"):
        follow(frame, checkpoint, sink)
    assert sink.ids == [1]
    rows = follow(Loaded(lake, **CHANGES), checkpoint).rows
    assert [(row.id, row.extra, row._change_type) for row in rows] == [(2, "x", "insert")]
