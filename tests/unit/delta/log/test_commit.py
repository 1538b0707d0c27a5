from __future__ import annotations

import pytest

from delta_sharing_client.delta.actions import AddCdcFile, AddFile, CommitInfo, Metadata, Protocol, RemoveFile
from delta_sharing_client.delta.log.commit import Commit, change_actions

ADD, REMOVE, CDC = AddFile("a", size=1), RemoveFile("r"), AddCdcFile("c", size=1)
NOTHING = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": 0}


def test_change_files_alone_count_where_there_are_any() -> None:
    assert change_actions(Commit.from_actions(1, 5, [ADD, CDC, REMOVE])) == [CDC]


def test_otherwise_added_and_removed_files_that_change_data_count() -> None:
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
def test_a_merge_that_changed_no_row_gives_no_changes(info: CommitInfo, expected: list[AddFile]) -> None:
    assert change_actions(Commit.from_actions(1, 5, [info, ADD])) == expected


def test_a_commit_sorts_its_actions_by_kind() -> None:
    metadata = Metadata(id="t", schema_string="{}")
    commit = Commit.from_actions(4, 9, [ADD, Protocol(1), metadata, REMOVE, CDC, CommitInfo(timestamp=3)])
    assert (commit.version, commit.timestamp_ms, commit.protocol, commit.metadata) == (4, 9, Protocol(1), metadata)
    assert (commit.adds, commit.removes, commit.cdcs) == ((ADD,), (REMOVE,), (CDC,))
    assert commit.commit_info == CommitInfo(timestamp=3)
