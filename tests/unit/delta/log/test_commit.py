from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Transaction,
)
from delta_sharing_client.delta.log.commit import Commit, CommitTimes, Enablement, change_actions
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LocalDirectory, LogListing
from delta_sharing_client.errors import DataError, ProtocolError, UsageError
from delta_sharing_client.instants import format_millis
from tests.unit.delta.log_builder import PROTOCOL, LogBuilder, add, metadata

ADD, REMOVE, CDC = AddFile("a", size=1), RemoveFile("r"), AddCdcFile("c", size=1)
NOTHING = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": 0}


def test_change_files_replace_the_adds_and_removes_of_a_commit() -> None:
    assert change_actions(Commit.from_actions(1, 5, [ADD, CDC, REMOVE])) == [CDC]


def test_changes_without_change_files_are_adds_and_removes() -> None:
    moved = [AddFile("m", size=1, data_change=False), RemoveFile("n", data_change=False)]
    assert change_actions(Commit.from_actions(1, 5, [REMOVE, *moved, ADD])) == [ADD, REMOVE]


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (CommitInfo(operation="MERGE", operation_metrics=NOTHING), []),
        (CommitInfo(operation="MERGE", operation_metrics={**NOTHING, "numTargetRowsDeleted": "1"}), [ADD]),
        (CommitInfo(operation="MERGE", operation_metrics={"numTargetRowsInserted": "0"}), [ADD]),
        (CommitInfo(operation="MERGE"), [ADD]),
        (CommitInfo(operation="WRITE", operation_metrics=NOTHING), [ADD]),
    ],
)
def test_merge_that_changed_no_row_has_no_changes(info: CommitInfo, expected: list[AddFile]) -> None:
    assert change_actions(Commit.from_actions(1, 5, [info, ADD])) == expected


def test_commit_groups_its_actions_by_kind() -> None:
    metadata, txn, domain = Metadata(id="t", schema_string="{}"), Transaction("a", 1), DomainMetadata("d", "{}")
    info = CommitInfo(timestamp=3)
    expected = Commit(4, 9, Protocol(1), metadata, (ADD,), (REMOVE,), (CDC,), (txn,), (domain,), info)
    assert Commit.from_actions(4, 9, [ADD, Protocol(1), metadata, REMOVE, CDC, txn, domain, info]) == expected


# === Commit timestamps ===

START = 1_540_415_658_000
MINUTE = 60_000
TIMED: dict[str, Any] = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
}


def _info(timestamp: int) -> dict[str, Any]:
    return {"commitInfo": {"inCommitTimestamp": timestamp, "operation": "WRITE"}}


def _log(root: Path, *times: int) -> DeltaLog:
    builder = LogBuilder(root / "table")
    for version, time in enumerate(times):
        head = [PROTOCOL, metadata()] if version == 0 else []
        builder.commit(version, *head, add(f"f{version}"), mtime_ms=time)
    return DeltaLog.open(builder.root)


@pytest.mark.parametrize(
    ("offset", "version"), [(0, 0), (10 * MINUTE, 0), (20 * MINUTE - 1, 0), (20 * MINUTE, 1), (99 * MINUTE, 1)]
)
def test_version_at_a_time_is_the_newest_at_or_before_it(tmp_path: Path, offset: int, version: int) -> None:
    assert _log(tmp_path, START, START + 20 * MINUTE).version_at(START + offset) == version


def test_error_of_an_early_time_names_the_first_version(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"can be rebuilt, 0, which was committed at {format_millis(START)}"):
        _log(tmp_path, START, START + MINUTE).version_at(START - 1)


@pytest.mark.parametrize(("offset", "version"), [(-(10**9), 0), (0, 0), (1, 1), (20 * MINUTE, 1)])
def test_version_from_a_time_is_the_earliest_at_or_after_it(tmp_path: Path, offset: int, version: int) -> None:
    assert _log(tmp_path, START, START + 20 * MINUTE).version_from(START + offset) == version


def test_error_of_a_late_start_names_the_newest_version(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"newest version, 1, which was committed at {format_millis(START + MINUTE)}"):
        _log(tmp_path, START, START + MINUTE).version_from(START + MINUTE + 1)


def test_file_times_that_do_not_increase_are_adjusted(tmp_path: Path) -> None:
    log = _log(tmp_path, START, START - MINUTE, START - MINUTE, START + 10)
    assert [log.commit_timestamp(v) - START for v in range(4)] == [0, 1, 2, 10]
    assert log.version_at(START + 1) == 1
    assert log.snapshot(2).timestamp_ms == START + 2


def test_version_at_a_time_can_be_rebuilt(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "table")
    builder.commit(0, PROTOCOL, metadata(), mtime_ms=START).commit(2, mtime_ms=START + MINUTE)
    assert DeltaLog.open(builder.root).version_at(START + 2 * MINUTE) == 0


def test_in_commit_timestamps_replace_file_times(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "table")
    properties = {"delta.enableInCommitTimestamps": "true"}
    builder.commit(0, _info(START), TIMED, metadata(configuration=properties), mtime_ms=1)
    builder.commit(1, _info(START + MINUTE), mtime_ms=2)
    log = DeltaLog.open(builder.root)
    assert [log.commit_timestamp(v) for v in (0, 1)] == [START, START + MINUTE]
    assert log.snapshot().timestamp_ms == START + MINUTE
    assert (log.version_at(START + 1), log.version_from(START + 1)) == (0, 1)
    assert [c.timestamp_ms for c in log.commits(0, 1)] == [START, START + MINUTE]


def _enabled_at_two(tmp_path: Path) -> DeltaLog:
    properties = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(START),
    }
    builder = LogBuilder(tmp_path / "table")
    builder.commit(0, PROTOCOL, metadata(), mtime_ms=START - 2 * MINUTE)
    # The file of version 1 was touched after version 2 was written.
    builder.commit(1, mtime_ms=START + 5 * MINUTE)
    builder.commit(2, _info(START), TIMED, metadata(configuration=properties), mtime_ms=START + 9 * MINUTE)
    builder.commit(3, _info(START + MINUTE), mtime_ms=1)
    return DeltaLog.open(builder.root)


@pytest.mark.parametrize(
    ("time", "version"),
    [(START - 2 * MINUTE, 0), (START - 1, 0), (START, 2), (START + MINUTE - 1, 2), (START + 5 * MINUTE, 3)],
)
def test_in_commit_timestamps_apply_from_their_enablement_on(tmp_path: Path, time: int, version: int) -> None:
    log = _enabled_at_two(tmp_path)
    assert log.version_at(time) == version
    assert log.commit_timestamp(1) == START + 5 * MINUTE
    assert log.commit_timestamp(2) == START


def test_enablement_version_is_found_only_if_available(tmp_path: Path) -> None:
    _enabled_at_two(tmp_path)
    listing = LogListing.read(LocalDirectory(tmp_path / "table" / "_delta_log"), "t")
    times = CommitTimes(listing, Enablement(2, START))
    assert times.newest_at_or_before(START, [2, 3]) == 2
    # Version 2 can no longer be rebuilt, and version 3 is later.
    assert times.newest_at_or_before(START, [3]) is None
    assert times.newest_at_or_before(START, [0, 3]) == 0


def test_later_file_times_do_not_hide_an_in_commit_timestamp(tmp_path: Path) -> None:
    properties = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "3",
        "delta.inCommitTimestampEnablementTimestamp": str(START),
    }
    builder = LogBuilder(tmp_path / "table")
    builder.commit(0, PROTOCOL, metadata(), mtime_ms=START + 5 * MINUTE)
    builder.commit(1, mtime_ms=START + 6 * MINUTE).commit(2, mtime_ms=START + 7 * MINUTE)
    builder.commit(3, _info(START), TIMED, metadata(configuration=properties))
    assert DeltaLog.open(builder.root).version_at(START + MINUTE) == 3


def test_missing_in_commit_timestamp_is_refused(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "table")
    properties = {"delta.enableInCommitTimestamps": "true"}
    builder.commit(0, _info(START), TIMED, metadata(configuration=properties))
    builder.commit(1, {"commitInfo": {"timestamp": START}})
    log = DeltaLog.open(builder.root)
    with pytest.raises(ProtocolError, match="commit 1"):
        log.commit_timestamp(1)


@pytest.mark.parametrize("value", ["", "-1", "2.0", "two", "9" * 20, "9" * 30])
def test_non_numeric_enablement_version_is_refused(tmp_path: Path, value: str) -> None:
    properties = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": value}
    builder = LogBuilder(tmp_path / "table")
    builder.commit(0, _info(START), TIMED, metadata(configuration=properties))
    with pytest.raises(ProtocolError, match="EnablementVersion"):
        DeltaLog.open(builder.root).commit_timestamp(0)


def test_timestamp_property_without_the_feature_is_ignored(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path / "table")
    properties = {"delta.enableInCommitTimestamps": "true"}
    builder.commit(0, _info(START), PROTOCOL, metadata(configuration=properties), mtime_ms=START + 5)
    assert DeltaLog.open(builder.root).commit_timestamp(0) == START + 5


@pytest.mark.parametrize("repeated", ["protocol", "metadata"])
def test_newest_protocol_and_metadata_decide_which_times_apply(tmp_path: Path, repeated: str) -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    before = {"protocol": TIMED, "metadata": metadata(configuration=properties)}
    after = {"protocol": PROTOCOL, "metadata": metadata()}
    builder = LogBuilder(tmp_path / "table")
    # Commits 1 and 2 contain one of the two actions again. Only commit 0 contains the other.
    builder.commit(0, _info(START), *before.values(), mtime_ms=START + 5)
    builder.commit(1, _info(START + 1), before[repeated], mtime_ms=START + 6)
    builder.commit(2, _info(START + 2), after[repeated], mtime_ms=START + 7)
    builder.commit(3, _info(START + 3), add("a"), mtime_ms=START + 8)
    log = DeltaLog.open(builder.root)
    assert [log.commit_timestamp(version) - START for version in range(4)] == [5, 6, 7, 8]


def test_error_names_a_commit_whose_timestamp_is_unreadable(tmp_path: Path) -> None:
    _enabled_at_two(tmp_path)
    log = tmp_path / "table" / "_delta_log"
    # Commit 3 has protocol and metadata, so commit 2 is opened only for its timestamp.
    (log / f"{3:020}.json").write_bytes((log / f"{2:020}.json").read_bytes())
    (log / f"{2:020}.json").unlink()
    (log / f"{2:020}.json").mkdir()
    with pytest.raises(DataError, match="Commit 2 cannot be read: Is a directory"):
        DeltaLog.open(tmp_path / "table").commit_timestamp(2)


def test_checkpoint_may_enable_in_commit_timestamps(tmp_path: Path) -> None:
    _enabled_at_two(tmp_path)
    builder = LogBuilder.__new__(LogBuilder)
    builder.root, builder.directory = tmp_path / "table", tmp_path / "table" / "_delta_log"
    commit = (builder.directory / f"{2:020}.json").read_text()
    name = f"{3:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (builder.directory / name).write_text(commit.partition("\n")[2])
    for version in range(3):
        (builder.directory / f"{version:020}.json").unlink()
    builder.commit(4, _info(START + 2 * MINUTE), mtime_ms=2)
    log = DeltaLog.open(builder.root)
    assert [log.commit_timestamp(version) for version in (3, 4)] == [START + MINUTE, START + 2 * MINUTE]
