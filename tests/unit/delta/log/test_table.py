from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from delta_sharing_client.delta.actions import Transaction
from delta_sharing_client.delta.log.table import DeltaLog
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.errors import DataError, ProtocolError, UnsupportedFeatureError, UsageError
from tests.unit.delta.log_builder import PROTOCOL, LogBuilder, add, earliest_version, metadata, remove, vector


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path / "table")


def _paths(log: DeltaLog, version: int | None = None) -> list[str]:
    return [file.path for file in log.snapshot(version).files]


def test_each_version_shows_its_own_files(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b"), {"txn": {"appId": "x", "version": 5}})
    builder.commit(2, remove("a"), add("c"))
    log = DeltaLog.open(builder.root)
    assert [_paths(log, version) for version in (0, 1, 2, None)] == [["a"], ["a", "b"], ["b", "c"], ["b", "c"]]
    assert (earliest_version(log), log.latest_version()) == (0, 2)
    assert log.snapshot().transactions == {"x": Transaction("x", 5)}


def test_a_log_that_grows_is_seen_by_the_next_call(builder: LogBuilder) -> None:
    builder.start(add("a"))
    log = DeltaLog.open(builder.root)
    before = log.snapshot()
    builder.commit(1, add("b"))
    assert log.latest_version() == 1
    assert len(before.files) == 1


@pytest.mark.parametrize("make", ["nothing", "file", "empty"])
def test_a_directory_without_a_log_is_no_table(tmp_path: Path, make: str) -> None:
    if make == "file":
        (tmp_path / "_delta_log").touch()
    elif make == "empty":
        (tmp_path / "_delta_log").mkdir()
    with pytest.raises(DataError, match="_delta_log"):
        DeltaLog.open(tmp_path)


def test_a_gap_is_named_and_the_versions_before_it_can_be_read(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b")).commit(3, add("d")).commit(4, add("e"))
    log = DeltaLog.open(builder.root)
    with pytest.raises(DataError, match=r"commit 2 is missing, so version 4 .* nearest version that can is 1"):
        log.snapshot()
    assert _paths(log, 1) == ["a", "b"]
    with pytest.raises(DataError, match="Commit 2 is not in the log"):
        log.commits(1, 3)


@pytest.mark.parametrize("version", [-1, 3, 10**30])
def test_a_version_that_does_not_exist_is_a_usage_error_naming_the_range(builder: LogBuilder, version: int) -> None:
    builder.start().commit(1).commit(2)
    with pytest.raises(UsageError, match="between 0 and 2"):
        DeltaLog.open(builder.root).snapshot(version)


def test_a_log_that_starts_late_without_a_checkpoint_is_refused(builder: LogBuilder) -> None:
    builder.commit(5, PROTOCOL, metadata()).commit(6, add("a"))
    with pytest.raises(DataError, match="commits start at 5"):
        DeltaLog.open(builder.root).snapshot()


def test_one_data_file_with_changing_vectors_stays_one_file(builder: LogBuilder) -> None:
    builder.start(add("a"))
    builder.commit(1, add("a", deletionVector=vector("x")), remove("a"))
    builder.commit(2, remove("a", deletionVector=vector("x")), add("a", deletionVector=vector("x", 99)))
    log = DeltaLog.open(builder.root)
    assert [len(log.snapshot(version).files) for version in range(3)] == [1, 1, 1]
    assert log.snapshot().files[0].deletion_vector is not None
    assert log.snapshot().files[0].deletion_vector.offset == 99


def test_a_reconciled_compaction_file_stands_for_its_commits(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b")).commit(2, remove("a")).commit(3, add("d"))
    builder.write(f"{1:020}.{2:020}.compacted.json", remove("a"), add("b"))
    # Gone commits show that the compacted file was read.
    for version in (1, 2):
        (builder.directory / f"{version:020}.json").unlink()
    log = DeltaLog.open(builder.root)
    assert _paths(log) == ["b", "d"]
    assert _paths(log, 2) == ["b"]
    with pytest.raises(DataError, match="commit 1 is missing"):
        log.snapshot(1)


def test_a_compaction_file_reaching_past_the_asked_version_is_not_used(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b")).commit(2, remove("a"))
    builder.write(f"{0:020}.{2:020}.compacted.json", PROTOCOL, metadata(), remove("a"), add("b"))
    log = DeltaLog.open(builder.root)
    assert _paths(log, 1) == ["a", "b"]
    assert _paths(log, 2) == ["b"]


def test_an_unreconciled_compaction_file_gives_way_to_the_commits(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, remove("a")).commit(2, add("b"))
    # Newest first and not reconciled: read in order it would bring the removed file back.
    builder.write(f"{0:020}.{1:020}.compacted.json", remove("a"), PROTOCOL, metadata(), add("a"))
    log = DeltaLog.open(builder.root)
    assert _paths(log) == ["b"]
    (builder.directory / f"{1:020}.json").unlink()
    with pytest.raises(ProtocolError, match="compacted"):
        log.snapshot()


def test_other_files_in_the_log_directory_mean_nothing(builder: LogBuilder) -> None:
    builder.start(add("a"))
    names = [".00000000000000000001.json.crc", "00000000000000000009.crc", "0.crc", "1.json", "_staged_commits/x.json"]
    names += ["00000000000000000009.json.tmp", f"{5:020}.{3:020}.compacted.json", f"{7:020}.checkpoint.parquet.bak"]
    for name in names:
        builder.write(name)
    assert DeltaLog.open(builder.root).latest_version() == 0


@pytest.mark.parametrize(
    ("actions", "missing"), [([PROTOCOL, add("a")], "metaData"), ([metadata(), add("a")], "protocol")]
)
def test_a_log_without_protocol_or_metadata_is_refused_by_name(
    builder: LogBuilder, actions: list[dict[str, object]], missing: str
) -> None:
    builder.commit(0, *actions)
    with pytest.raises(ProtocolError, match=missing):
        DeltaLog.open(builder.root).snapshot()


def test_a_metadata_without_a_schema_is_refused_by_name(builder: LogBuilder) -> None:
    broken = metadata()
    del broken["metaData"]["schemaString"]
    builder.commit(0, PROTOCOL, broken)
    with pytest.raises(ProtocolError, match="schemaString") as caught:
        DeltaLog.open(builder.root).snapshot()
    assert (caught.value.table, caught.value.version) == ("table", 0)


def test_a_table_with_an_unknown_reader_feature_is_refused_but_its_past_is_not(builder: LogBuilder) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["new"], "writerFeatures": ["new"]}
    builder.start(add("a")).commit(1, {"protocol": features})
    log = DeltaLog.open(builder.root)
    assert _paths(log, 0) == ["a"]
    with pytest.raises(UnsupportedFeatureError, match="new"):
        log.snapshot()
    with pytest.raises(UnsupportedFeatureError, match="new"):
        list(log.commits(0, 1))


def test_commits_are_given_one_by_one_with_their_time(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b"), mtime_ms=5_000_000_000_000).commit(2)
    log = DeltaLog.open(builder.root)
    commits = list(log.commits(1, 2))
    assert [(c.version, [f.path for f in c.adds]) for c in commits] == [(1, ["b"]), (2, [])]
    assert [c.timestamp_ms for c in commits] == [5_000_000_000_000, 5_000_000_000_001]
    assert [log.commit_timestamp(v) for v in (1, 2)] == [c.timestamp_ms for c in commits]


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (1, 0), (0, 3), (3, 3)])
def test_a_range_outside_the_log_is_a_usage_error(builder: LogBuilder, start: int, end: int) -> None:
    builder.start().commit(1).commit(2)
    with pytest.raises(UsageError, match="found"):
        DeltaLog.open(builder.root).commits(start, end)


def test_statistics_can_be_left_out(builder: LogBuilder) -> None:
    builder.start(add("a", stats='{"numRecords":1}'))
    log = DeltaLog.open(builder.root)
    assert log.snapshot().files[0].stats == '{"numRecords":1}'
    assert log.snapshot(want=Want.NOTHING).files[0].stats is None


def test_a_damaged_hint_does_not_keep_the_table_from_being_read(builder: LogBuilder) -> None:
    builder.start(add("a"))
    (builder.directory / "_last_checkpoint").write_bytes(b"\xff\xfe{")
    log = DeltaLog.open(builder.root)
    with pytest.warns(UserWarning, match="_last_checkpoint of table table is ignored"):
        assert _paths(log) == ["a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _paths(log, 0) == ["a"]


def test_a_commit_cut_short_is_refused(builder: LogBuilder) -> None:
    builder.start(add("a"), add("b"))
    path = builder.directory / f"{0:020}.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ProtocolError, match="Line 4"):
        DeltaLog.open(builder.root).snapshot()
