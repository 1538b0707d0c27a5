"""A table's own log to the files that must be read: what ``planning`` does with a server's answer, without one."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    CommitInfo,
    FileAction,
    Metadata,
    RemoveFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.log.commit import Commit, change_actions
from delta_sharing_client.delta.log.table import DeltaLog
from delta_sharing_client.delta.paths import canonical_path
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import DataError, UnsupportedFeatureError, UsageError
from delta_sharing_client.instants import format_millis, parse_instant
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.scan.plan import plan_snapshot
from delta_sharing_client.scan.plan_changes import ChangeAction, plan_changes
from delta_sharing_client.scan.request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.scan.tasks import ScanPlan
from delta_sharing_client.storage.table import TableFiles

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_FEED_PROPERTY = "delta.enableChangeDataFeed"


class CommitFacts(NamedTuple):
    """What a log says of one commit besides its files; ``has_feed``: the changes of its rows were recorded."""

    version: int
    timestamp_ms: int
    info: CommitInfo
    has_feed: bool


def plan_table(rest: RestClient, table: TableName, request: ScanRequest, options: ReadOptions) -> ScanPlan:
    """Read the log of ``table`` and return the files that ``request`` needs.

    Raises
    ------
    UsageError
        A column or filter does not fit the schema, the version does not exist, or ``obstore`` is not installed.
    UnsupportedFeatureError
        The table needs a feature, or lies in a store, that we refuse by name.
    DataError, ProtocolError
        The log cannot be read, or breaks the protocol.
    RequestError, AuthError, TransportError
        From the server, or the storage.
    """
    snapshot, plan = plan_whole(rest, table, request, options)
    del snapshot
    return plan


def plan_whole(
    rest: RestClient, table: TableName, request: ScanRequest, options: ReadOptions
) -> tuple[Snapshot, ScanPlan]:
    """As ``plan_table``, with the whole snapshot, whose files have addresses in place of paths."""
    files = TableFiles(rest, table, options)
    with files.log() as log:
        version = request.version
        if request.timestamp is not None:
            version = _version_at(log, _milliseconds(request.timestamp), files.table)
        snapshot = log.snapshot(version)
        snapshot = dataclasses.replace(snapshot, files=[files.placed(add) for add in snapshot.files])
    plan = plan_snapshot(_state(rest, files, snapshot), snapshot.files, request, options)
    return snapshot, _reading(plan, files)


def plan_change_feed(rest: RestClient, table: TableName, request: ChangesRequest, options: ReadOptions) -> ScanPlan:
    """Read the commits of ``table`` and return the files that hold the changes of ``request``.

    Errors are those of ``plan_table``, and ``UnsupportedFeatureError`` where the table did not record its changes.
    """
    files = TableFiles(rest, table, options)
    with files.log() as log:
        start, end = _range(log, request, files.table)
        first = log.snapshot(start)
        actions = list(_changes(log, files, log.commits(start, end), first))
    plan = plan_changes(_state(rest, files, first), actions, request, options)
    return _reading(plan, files)


def read_commits(
    rest: RestClient, table: TableName, start: int, end: int | None, options: ReadOptions
) -> list[CommitFacts]:
    """Return what the log of ``table`` says of its commits from ``start`` on, as far back as it still has them.

    Errors are those of ``plan_table``.
    """
    files = TableFiles(rest, table, options)
    with files.log() as log:
        latest = log.latest_version()
        start = max(start, log.version_from(0))
        last = latest if end is None else min(end, latest)
        try:
            metadata: Metadata | None = log.snapshot(start).metadata
        except DataError:
            # Commits outlive what they stand on. The next metadata says whether changes are recorded.
            metadata = None
        facts = []
        for commit in log.commits(start, last):
            metadata = commit.metadata or metadata
            recorded = metadata is not None and _has_feed(metadata)
            info = commit.commit_info or CommitInfo()
            facts.append(CommitFacts(commit.version, commit.timestamp_ms or 0, info, recorded))
        return facts


def _has_feed(metadata: Metadata) -> bool:
    return metadata.properties.get(_FEED_PROPERTY, "").lower() == "true"


def _changes(log: DeltaLog, files: TableFiles, commits: Iterable[Commit], first: Snapshot) -> Iterator[ChangeAction]:
    metadata = first.metadata
    for commit in commits:
        if commit.version > first.version:
            if commit.protocol is not None:
                yield VersionedProtocol(commit.version, commit.protocol)
            if commit.metadata is not None:
                metadata = commit.metadata
                yield VersionedMetadata(commit.version, metadata)
        if not _has_feed(metadata):
            raise UnsupportedFeatureError(
                f"The changes of version {commit.version} were not recorded: the table has no change data feed there. "
                f"Ask the provider to set '{_FEED_PROPERTY}', or for the version from which on it is set.",
                feature="changeDataFeed",
                table=files.table,
                version=commit.version,
            )
        for action in change_actions(commit):
            whole: FileAction = action
            if isinstance(action, RemoveFile) and action.partition_values is None and metadata.partition_columns:
                whole = _completed(log, action, commit.version, files.table)
            placed = files.placed(whole)
            placed.shared_version, placed.shared_timestamp = commit.version, commit.timestamp_ms
            yield placed


def _completed(log: DeltaLog, remove: RemoveFile, version: int, table: str) -> RemoveFile:
    """Return a tombstone with its partition values, which are optional in a log."""
    path = canonical_path(remove.path)
    files = log.snapshot(version - 1).files if version else ()
    add = next((item for item in files if canonical_path(item.path) == path), None)
    if add is None:
        raise DataError(
            f"A file that version {version} removes has no partition values, nor is it in the version before.",
            table=table,
            version=version,
        )
    return replace(remove, partition_values=add.partition_values, size=add.size)


def _range(log: DeltaLog, request: ChangesRequest, table: str) -> tuple[int, int]:
    latest = log.latest_version()
    if request.starting_timestamp is not None:
        start = log.version_from(_milliseconds(request.starting_timestamp))
    else:
        start = request.starting_version or 0
    if start > latest:
        raise UsageError(f"The changes must start at version {latest} at the latest, found {start}.", table=table)
    end = latest if request.ending_version is None else min(request.ending_version, latest)
    if request.ending_timestamp is not None:
        moment = _milliseconds(request.ending_timestamp)
        end = latest if moment >= log.commit_timestamp(latest) else log.version_at(moment)
    if end < start:
        raise UsageError(f"The changes start at version {start} and end at version {end}, before it.", table=table)
    return start, end


def _version_at(log: DeltaLog, moment: int, table: str) -> int:
    latest = log.latest_version()
    newest = log.commit_timestamp(latest)
    if moment > newest:
        raise UsageError(
            f"The timestamp {format_millis(moment)} lies after the latest version {latest}, which is of "
            f"{format_millis(newest)}.",
            table=table,
        )
    return log.version_at(moment)


def _milliseconds(text: str) -> int:
    return (parse_instant(text) - _EPOCH) // datetime.timedelta(milliseconds=1)


def _state(rest: RestClient, files: TableFiles, snapshot: Snapshot) -> TableState:
    return TableState(
        name=files.table,
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        allow_http=rest.allows_http_data,
        query_id=rest.query_id,
    )


def _reading(plan: ScanPlan, files: TableFiles) -> ScanPlan:
    context = dataclasses.replace(plan.context, files=files)
    return dataclasses.replace(plan, context=context, access=f"the table's directory, {files.location}")
