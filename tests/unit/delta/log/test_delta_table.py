from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from delta_sharing_client.delta.actions import Transaction
from delta_sharing_client.delta.log.delta_table import DeltaLog, VersionChecksumWarning
from delta_sharing_client.delta.log.log_files import LocalDirectory
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.errors import DataError, ProtocolError, UnsupportedFeatureError, UsageError
from tests.unit.delta.log_builder import PROTOCOL, LogBuilder, add, earliest_version, metadata, remove, vector


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path / "table")


def _paths(log: DeltaLog, version: int | None = None) -> list[str]:
    return [file.path for file in log.snapshot(version).files]


def test_each_version_has_its_own_files(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b"), {"txn": {"appId": "x", "version": 5}})
    builder.commit(2, remove("a"), add("c"))
    log = DeltaLog.open(builder.root)
    assert [_paths(log, version) for version in (0, 1, 2, None)] == [["a"], ["a", "b"], ["b", "c"], ["b", "c"]]
    assert (earliest_version(log), log.latest_version()) == (0, 2)
    assert log.snapshot().transactions == {"x": Transaction("x", 5)}


def test_new_commits_are_seen_by_the_next_call(builder: LogBuilder) -> None:
    builder.start(add("a"))
    log = DeltaLog.open(builder.root)
    before = log.snapshot()
    builder.commit(1, add("b"))
    assert log.latest_version() == 1
    assert len(before.files) == 1


@pytest.mark.parametrize("make", ["nothing", "file", "empty"])
def test_directory_without_a_log_is_not_a_table(tmp_path: Path, make: str) -> None:
    if make == "file":
        (tmp_path / "_delta_log").touch()
    elif make == "empty":
        (tmp_path / "_delta_log").mkdir()
    with pytest.raises(DataError, match="_delta_log"):
        DeltaLog.open(tmp_path)


def test_versions_before_a_missing_commit_are_read(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b")).commit(3, add("d")).commit(4, add("e"))
    log = DeltaLog.open(builder.root)
    with pytest.raises(DataError, match=r"commit 2 is missing, so version 4 .* version that can be rebuilt is 1"):
        log.snapshot()
    assert _paths(log, 1) == ["a", "b"]
    with pytest.raises(DataError, match="Commit 2 is no longer in the log"):
        log.commits(1, 3)


@pytest.mark.parametrize("version", [-1, 3, 10**30])
def test_missing_version_is_a_usage_error_naming_the_range(builder: LogBuilder, version: int) -> None:
    builder.start().commit(1).commit(2)
    with pytest.raises(UsageError, match="between 0 and 2"):
        DeltaLog.open(builder.root).snapshot(version)


def test_log_without_first_commit_and_checkpoint_is_refused(builder: LogBuilder) -> None:
    builder.commit(5, PROTOCOL, metadata()).commit(6, add("a"))
    with pytest.raises(DataError, match="commits start at 5"):
        DeltaLog.open(builder.root).snapshot()


def test_file_with_changing_deletion_vectors_is_listed_once(builder: LogBuilder) -> None:
    builder.start(add("a"))
    builder.commit(1, add("a", deletionVector=vector("x")), remove("a"))
    builder.commit(2, remove("a", deletionVector=vector("x")), add("a", deletionVector=vector("x", 99)))
    log = DeltaLog.open(builder.root)
    assert [len(log.snapshot(version).files) for version in range(3)] == [1, 1, 1]
    assert log.snapshot().files[0].deletion_vector is not None
    assert log.snapshot().files[0].deletion_vector.offset == 99


def test_reconciled_compaction_file_replaces_its_commits(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b")).commit(2, remove("a")).commit(3, add("d"))
    builder.write(f"{1:020}.{2:020}.compacted.json", remove("a"), add("b"))
    # Without the commits, only the compacted file can be read.
    for version in (1, 2):
        (builder.directory / f"{version:020}.json").unlink()
    log = DeltaLog.open(builder.root)
    assert _paths(log) == ["b", "d"]
    assert _paths(log, 2) == ["b"]
    with pytest.raises(DataError, match="commit 1 is missing"):
        log.snapshot(1)


def test_compaction_file_past_the_requested_version_is_not_used(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b")).commit(2, remove("a"))
    builder.write(f"{0:020}.{2:020}.compacted.json", PROTOCOL, metadata(), remove("a"), add("b"))
    log = DeltaLog.open(builder.root)
    assert _paths(log, 1) == ["a", "b"]
    assert _paths(log, 2) == ["b"]


def test_commits_are_preferred_to_an_unreconciled_compaction(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, remove("a")).commit(2, add("b"))
    # Its actions are not reconciled, and the newest comes first. Replayed in this order, the removed file reappears.
    builder.write(f"{0:020}.{1:020}.compacted.json", remove("a"), PROTOCOL, metadata(), add("a"))
    log = DeltaLog.open(builder.root)
    assert _paths(log) == ["b"]
    (builder.directory / f"{1:020}.json").unlink()
    with pytest.raises(ProtocolError, match="compacted"):
        log.snapshot()


def test_unreconciled_compaction_of_all_commits_is_ignored(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, remove("a"))
    builder.write(f"{0:020}.{1:020}.compacted.json", remove("a"), PROTOCOL, metadata(), add("a"))
    assert _paths(DeltaLog.open(builder.root)) == []


def test_other_files_in_the_log_directory_are_ignored(builder: LogBuilder) -> None:
    builder.start(add("a"))
    names = [".00000000000000000001.json.crc", "00000000000000000009.crc", "0.crc", "1.json", "_staged_commits/x.json"]
    names += ["00000000000000000009.json.tmp", f"{5:020}.{3:020}.compacted.json", f"{7:020}.checkpoint.parquet.bak"]
    for name in names:
        builder.write(name)
    assert DeltaLog.open(builder.root).latest_version() == 0


def test_error_of_metadata_without_a_schema_names_the_table(builder: LogBuilder) -> None:
    broken = metadata()
    del broken["metaData"]["schemaString"]
    builder.commit(0, PROTOCOL, broken)
    with pytest.raises(ProtocolError, match="schemaString") as caught:
        DeltaLog.open(builder.root).snapshot()
    assert (caught.value.table, caught.value.version) == ("table", 0)


def test_versions_before_an_unknown_reader_feature_are_read(builder: LogBuilder) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["new"], "writerFeatures": ["new"]}
    builder.start(add("a")).commit(1, {"protocol": features})
    log = DeltaLog.open(builder.root)
    assert _paths(log, 0) == ["a"]
    with pytest.raises(UnsupportedFeatureError, match="new"):
        log.snapshot()
    with pytest.raises(UnsupportedFeatureError, match="new"):
        list(log.commits(0, 1))


def test_commits_have_their_actions_and_timestamps(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1, add("b"), mtime_ms=5_000_000_000_000).commit(2)
    log = DeltaLog.open(builder.root)
    commits = list(log.commits(1, 2))
    assert [(c.version, [f.path for f in c.adds]) for c in commits] == [(1, ["b"]), (2, [])]
    assert [c.timestamp_ms for c in commits] == [5_000_000_000_000, 5_000_000_000_001]
    assert [log.commit_timestamp(v) for v in (1, 2)] == [c.timestamp_ms for c in commits]


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (1, 0), (0, 3), (3, 3)])
def test_range_outside_the_log_is_a_usage_error(builder: LogBuilder, start: int, end: int) -> None:
    builder.start().commit(1).commit(2)
    with pytest.raises(UsageError, match="found"):
        DeltaLog.open(builder.root).commits(start, end)


def test_statistics_are_read_on_request(builder: LogBuilder) -> None:
    builder.start(add("a", stats='{"numRecords":1}'))
    log = DeltaLog.open(builder.root)
    assert log.snapshot().files[0].stats == '{"numRecords":1}'
    assert log.snapshot(want=Want.NOTHING).files[0].stats is None


def test_damaged_last_checkpoint_is_ignored(builder: LogBuilder) -> None:
    builder.start(add("a"))
    (builder.directory / "_last_checkpoint").write_bytes(b"\xff\xfe{")
    log = DeltaLog.open(builder.root)
    with pytest.warns(UserWarning, match="of the table .table. is ignored"):
        assert _paths(log) == ["a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _paths(log, 0) == ["a"]


def test_truncated_commit_is_refused(builder: LogBuilder) -> None:
    builder.start(add("a"), add("b"))
    path = builder.directory / f"{0:020}.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ProtocolError, match="Line 4"):
        DeltaLog.open(builder.root).snapshot()


class Remote(LocalDirectory):
    """A log directory that records which files are announced to it and which are opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.expected: list[str] = []
        self.opened: list[str] = []

    def expect(self, paths: Sequence[str]) -> None:
        self.expected += paths

    def open(self, path: str) -> BinaryIO:
        self.opened.append(path.rpartition("/")[2])
        return super().open(path)


def test_log_announces_files_before_it_opens_them(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1).commit(2)
    builder.write(f"{2:020}.crc", checksum(numFiles=1, tableSizeBytes=10, **NO_VECTORS))
    sidecar = {"sidecar": {"path": "x.json", "sizeInBytes": 1, "modificationTime": 1}}
    builder.write(f"{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", PROTOCOL, metadata(), sidecar)
    directory = Remote(builder.directory)
    log = DeltaLog(directory, "table")
    with pytest.raises(DataError, match=r"'x\.json' cannot be read"):
        log.snapshot()
    checkpoint = f"{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    assert directory.expected == [checkpoint, "_sidecars/x.json"]

    (builder.directory / checkpoint).unlink()
    directory.expected.clear()
    log.snapshot()
    commits = [f"{version:020}.json" for version in range(3)]
    assert directory.expected == [*commits, f"{2:020}.crc"]

    directory.expected.clear()
    list(log.commits(1, 2))
    assert directory.expected == commits[1:]


def test_files_covered_by_a_checkpoint_are_not_opened(builder: LogBuilder) -> None:
    builder.start(add("a")).commit(1).commit(2)
    builder.write(f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json", PROTOCOL, metadata())
    directory = Remote(builder.directory)
    DeltaLog(directory, "table").commit_timestamp(2)
    assert directory.opened == [f"{2:020}.json", f"{1:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"]


# === Version checksums ===

NO_VECTORS = {"numDeletedRecordsOpt": 0, "numDeletionVectorsOpt": 0}


def checksum(**fields: Any) -> dict[str, Any]:
    base = {"tableSizeBytes": 20, "numFiles": 2, "numMetadata": 1, "numProtocol": 1}
    deleted = {"numDeletedRecordsOpt": 2, "numDeletionVectorsOpt": 1}
    return {**base, **deleted, "metadata": metadata()["metaData"], "protocol": PROTOCOL["protocol"], **fields}


def table_with(builder: LogBuilder, *lines: dict[str, Any]) -> DeltaLog:
    builder.start(add("a"), add("b", deletionVector=vector("x")))
    builder.write(f"{0:020}.crc", *lines)
    return DeltaLog.open(builder.root)


def warnings_of(log: DeltaLog, version: int | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(log.snapshot(version).files) == 2
    assert all(item.category is VersionChecksumWarning for item in caught)
    return [str(item.message) for item in caught]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"txnId": "x", "fileSizeHistogram": {"fileCounts": [2]}, "allFiles": [], "setTransactions": []},
        {"numDeletedRecordsOpt": None, "numDeletionVectorsOpt": None},
        # Additional fields of newer writers.
        {"metadata": {**metadata()["metaData"], "createdTime": 5, "new": True}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": [], "writerFeatures": []}},
    ],
)
def test_matching_checksum_gives_no_warning(builder: LogBuilder, fields: dict[str, Any]) -> None:
    assert warnings_of(table_with(builder, checksum(**fields))) == []


def test_missing_checksum_fields_are_not_compared(builder: LogBuilder) -> None:
    assert warnings_of(table_with(builder, {"numFiles": 2})) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"numFiles": 3}, "'numFiles' must be 3, found 2."),
        ({"tableSizeBytes": 19}, "'tableSizeBytes' must be 19, found 20."),
        ({"numMetadata": 2}, "'numMetadata' must be 2, found 1."),
        ({"numProtocol": 0}, "'numProtocol' must be 0, found 1."),
        ({"numDeletedRecordsOpt": 0}, "'numDeletedRecordsOpt' must be 0, found 2."),
        ({"numDeletionVectorsOpt": 0}, "'numDeletionVectorsOpt' must be 0, found 1."),
        ({"metadata": metadata(id="u")["metaData"]}, "'metadata.id' must be 'u', found 't'."),
        (
            {"metadata": metadata(partitionColumns=["a"])["metaData"]},
            "'metadata.partitionColumns' must be ['a'], found []",
        ),
        (
            {"metadata": metadata(configuration={"k": "v"})["metaData"]},
            "'metadata.configuration' must be {'k': 'v'}, f",
        ),
        (
            {"metadata": metadata(json.dumps({"type": "struct", "fields": []}))["metaData"]},
            "'metadata.schemaString' must",
        ),
        (
            {
                "protocol": {
                    "minReaderVersion": 3,
                    "minWriterVersion": 7,
                    "readerFeatures": ["x"],
                    "writerFeatures": ["x"],
                }
            },
            "'protocol' must be reader 3, writer 7, features ['x'], found reader 1, writer 2, features []",
        ),
        (
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "readerFeatures": ["x"]}},
            "'protocol' must be reader 1, writer 2, features ['x'], found reader 1, writer 2, features []",
        ),
        ({"numFiles": 3, "tableSizeBytes": 19}, "'tableSizeBytes' must be 19, found 20; 'numFiles' must be 3, found 2"),
    ],
)
def test_checksum_mismatch_shows_both_values(builder: LogBuilder, fields: dict[str, Any], message: str) -> None:
    (warning,) = warnings_of(table_with(builder, checksum(**fields)))

    assert warning.startswith("The table 'table' does not match its version checksum '00000000000000000000.crc': ")
    assert message in warning
    assert "the log of version 0" in warning
    assert len(warning) < 1200


@pytest.mark.parametrize(("length", "shown"), [(298, f"'{'u' * 298}',"), (299, f"'{'u' * 299}...,")])
def test_long_value_is_truncated_in_the_warning(builder: LogBuilder, length: int, shown: str) -> None:
    (warning,) = warnings_of(table_with(builder, checksum(metadata=metadata(id="u" * length)["metaData"])))
    assert f"'metadata.id' must be {shown} found 't'" in warning


@pytest.mark.parametrize("text", ["{", "[]", '{"numFiles": "2"}', '{"numFiles": -1}', "\xff", '{"a":' * 100_000])
def test_damaged_checksum_is_ignored_with_a_warning(builder: LogBuilder, text: str) -> None:
    log = table_with(builder)
    (builder.directory / f"{0:020}.crc").write_bytes(text.encode("latin-1"))

    (warning,) = warnings_of(log)

    assert (
        "The version checksum '00000000000000000000.crc' of the table 'table' is ignored, as it cannot be read: "
        in warning
    )


def test_only_the_checksum_of_the_read_version_is_compared(builder: LogBuilder) -> None:
    log = table_with(builder, checksum(numFiles=3))
    builder.commit(1)
    builder.write(f".{1:020}.crc.crc", checksum(numFiles=5))
    builder.write(f".{1:020}.json.crc", checksum(numFiles=5))

    assert warnings_of(log, 1) == []
    assert len(warnings_of(log, 0)) == 1


def test_checksum_warning_can_be_turned_into_an_error(builder: LogBuilder) -> None:
    log = table_with(builder, checksum(numFiles=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(VersionChecksumWarning, match="'numFiles' must be 3, found 2"):
            log.snapshot()


def test_error_names_an_unreadable_commit(builder: LogBuilder) -> None:
    builder.start(add("a"))
    (builder.directory / f"{1:020}.json").mkdir()
    log = DeltaLog.open(builder.root)
    with pytest.raises(DataError, match=r"The log file '0+1\.json' cannot be read: Is a directory"):
        log.snapshot()
    assert [file.path for file in log.snapshot(0).files] == ["a"]
