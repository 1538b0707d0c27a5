"""A follower's batches between two offsets: positions within a version, response formats, decreasing versions, and
waits."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import delta_sharing_client as ds
from delta_sharing_client.follow.admission import BatchLimits
from delta_sharing_client.follow.follow_request import FollowRequest
from delta_sharing_client.follow.follower import Follower
from delta_sharing_client.follow.offsets import BEGINNING, Offset
from delta_sharing_client.follow.versions import FollowedTable, VersionWindow
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.protocol.names import AssetName
from tests.tables import TableWriter, rows_of

ID = pa.schema([("id", pa.int64())])
NAME = AssetName("share", "schema", "t")
ONE = BatchLimits(1)
FORMATS = (ResponseFormat.DELTA, ResponseFormat.PARQUET)


@pytest.fixture
def table(lake: Any) -> TableWriter:
    """A table whose versions 1 and 2 add three files each."""
    writer = TableWriter(lake.root / "t", ID)
    for version in (0, 1):
        writer.insert(*(rows_of([10 * version + number]) for number in range(3)))
    return writer


def follower(lake: Any, wire: ResponseFormat = ResponseFormat.AUTO, **asked: Any) -> Follower:
    request = FollowRequest(table=NAME, read=ScanRequest(response_format=wire), **asked)
    followed = FollowedTable(ds.SharingClient(lake.server.profile)._rest, request, ReadOptions(), ReadOptions())
    return Follower(followed, followed.describe())


def next_of(follower: Follower, start: Any) -> Offset:
    result = follower.next_offset(start, ONE)
    assert isinstance(result, Offset)
    return result


def paths(follower: Follower, start: Any, end: Offset) -> list[str | None]:
    return [file.file_id for selected in follower.files(start, end) for file in selected.files]


@pytest.mark.parametrize("start", [{}, {"starting_version": 1}], ids=["snapshot", "tail"])
@pytest.mark.parametrize("edge", ["start", "end"])
@pytest.mark.parametrize("change", [{"last_file": "another"}, {"place": 3}, {"place": 2**40}], ids=repr)
@pytest.mark.usefixtures("table")
def test_position_that_does_not_match_the_files_is_refused(
    lake: Any, start: dict[str, Any], edge: str, change: dict[str, Any]
) -> None:
    follows = follower(lake, **start)
    first = next_of(follows, BEGINNING)
    second = next_of(follows, first)
    assert len(paths(follows, first, second)) == 1
    if edge == "end":
        second = replace(second, **change)
    else:
        # The end offset is valid and after all files, so only the start is wrong.
        first, second = (
            replace(first, **change),
            replace(second, version=3, place=-1, in_snapshot=False, last_file=None),
        )
    with pytest.raises(ds.DataError, match="cannot find its position"):
        paths(follower(lake, **start), first, second)


@pytest.mark.parametrize("start", [{}, {"starting_version": 1}], ids=["snapshot", "tail"])
@pytest.mark.usefixtures("table")
def test_batch_is_read_in_the_format_of_its_offset(lake: Any, start: dict[str, Any]) -> None:
    """Positions count files in order of ids, which differ between formats, so a cached response in another format
    cannot be used."""
    both = follower(lake, **start)
    for wire in FORMATS * 2:
        own = follower(lake, wire, **start)
        offset, seen = BEGINNING, []
        for _ in range(3):
            after = next_of(own, offset)
            assert after.response_format is wire
            (path,) = paths(both, offset, after)
            seen.append(path)
            offset = after
        assert len(set(seen)) == 3


@pytest.mark.parametrize("start", [{}, {"starting_version": 1}], ids=["snapshot", "tail"])
@pytest.mark.usefixtures("table")
def test_response_in_a_different_format_is_refused(
    lake: Any, monkeypatch: pytest.MonkeyPatch, start: dict[str, Any]
) -> None:
    follows = follower(lake, **start)
    first = next_of(follows, BEGINNING)
    second = next_of(follows, first)
    for name in ("snapshot_window", "tail_window"):
        window = getattr(FollowedTable, name)

        def in_parquet(*arguments: Any, window: Any = window) -> VersionWindow:
            return dataclasses.replace(window(*arguments), response_format=ResponseFormat.PARQUET)

        monkeypatch.setattr(FollowedTable, name, in_parquet)
    with pytest.raises(ds.DataError, match="counts files in delta format, but the server responds in parquet"):
        paths(follower(lake, **start), first, second)


@pytest.mark.parametrize(("ahead", "is_refused"), [(1, False), (2, True)])
@pytest.mark.usefixtures("table")
def test_a_stream_ahead_of_its_table_is_refused(lake: Any, ahead: int, is_refused: bool) -> None:
    follows = follower(lake, starting_version=1)
    offset = follows.next_offset(BEGINNING, None)
    assert isinstance(offset, Offset)
    assert (offset.version, offset.place) == (3, -1)
    ahead_of_it = replace(offset, version=2 + ahead)
    if is_refused:
        with pytest.raises(ds.DataError, match="is at version 4 of the table, whose latest version is 2"):
            follows.next_offset(ahead_of_it, None)
    else:
        assert follows.next_offset(ahead_of_it, None) == ahead_of_it


def test_schema_of_an_offset_is_requested_once(lake: Any, table: TableWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    before = next_of(follower(lake, starting_version=1), BEGINNING)
    table.schema = pa.schema([("id", pa.int64()), ("extra", pa.string())])
    table.commit(metadata=True)
    versions: list[int] = []
    metadata_at = FollowedTable.metadata_at
    monkeypatch.setattr(
        FollowedTable, "metadata_at", lambda self, version: (versions.append(version), metadata_at(self, version))[1]
    )
    follows = follower(lake)
    for _ in range(3):
        follows.check(before)
    assert versions == [1]


@pytest.mark.parametrize(("outage", "own", "waits"), [(600.0, 5.0, 600.0), (600.0, 900.0, 900.0), (0.0, 5.0, 5.0)])
def test_max_outage_extends_retries_except_for_polling(outage: float, own: float, waits: float) -> None:
    request, options = FollowRequest(table=NAME, max_outage=outage), ReadOptions(max_retry_seconds=own, max_attempts=7)
    assert request.waiting(options).max_retry_seconds == waits
    assert (request.waiting(options).max_attempts > 7) == (outage > 0)
    polling = request.polling(options)
    assert (polling.max_attempts, polling.max_retry_seconds) == ((3, 10.0) if outage else (7, own))
