"""A table by its Delta log, with files in the table's own storage."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Generator, Iterable, Iterator, Sequence

from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    CommitInfo,
    FileAction,
    Metadata,
    RemoveFile,
    SharedFile,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.log.commit import Commit as LogCommit
from delta_sharing_client.delta.log.commit import change_actions
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.paths import canonical_path
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import DataError, UnsupportedFeatureError, UsageError
from delta_sharing_client.instants import EPOCH, format_millis, parse_instant
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.sources.server_source import is_latest
from delta_sharing_client.sources.stored_log import StoredLog
from delta_sharing_client.sources.table_source import Commit, Feed, Files, HeadRequest, Purpose, TableSource, Window

_FEED_PROPERTY = "delta.enableChangeDataFeed"


class LogSource(TableSource):
    """A table whose log is read in its storage. Its ``server`` knows its head and its latest version without the log,
    and gives the credentials.

    Lists raise ``UsageError`` if the version does not exist, ``UnsupportedFeatureError`` for a feature or store that is
    not supported, and ``DataError`` or ``ProtocolError`` for an invalid log.
    """

    def __init__(self, server: TableSource) -> None:
        super().__init__(server.rest, server.name, server.options)
        self._server = server

    def head(self, request: HeadRequest) -> TableHead:
        return self._server.head(request)

    def version(self, since: str | None = None, *, operation: Operation = Operation.SNAPSHOT) -> int:
        return self._server.version(since, operation=operation)

    def state(self, request: ScanRequest) -> TableState:
        return self._server.state(request) if is_latest(request) else self.files(request, Purpose.PLAN).state

    def files(self, request: ScanRequest, purpose: Purpose) -> Files:
        """Read the log, and return the files with addresses as paths."""
        stored = StoredLog(self.rest, self.name, self.options)
        with stored.opened() as log:
            version = request.number
            if request.timestamp is not None:
                version = _version_at(log, _milliseconds(request.timestamp), stored.table)
            snapshot = log.snapshot(version)
            placed = [stored.placed(add) for add in snapshot.files]
        return Files(state=self._state(stored, snapshot), blocks=_one_block(placed), access=_access(stored))

    def changes(self, request: ChangesRequest, purpose: Purpose) -> Feed:
        """Read the commits. Raises ``UnsupportedFeatureError`` if the table did not record its changes."""
        stored = StoredLog(self.rest, self.name, self.options)
        with stored.opened() as log:
            start, end = _range(log, request, stored.table)
            first = log.snapshot(start)
            actions = list(_changes(log, stored, log.commits(start, end), first))
        return Feed(state=self._state(stored, first), actions=actions, access=_access(stored))

    def window(self, first: int, last: int | None, *, feed: bool, response_format: ResponseFormat) -> Window:
        return self._server.window(first, last, feed=feed, response_format=response_format)

    def commits(self, first: int, last: int | None) -> Sequence[Commit]:
        """Return the commits as far as the log has them."""
        stored = StoredLog(self.rest, self.name, self.options)
        with stored.opened() as log:
            latest = log.latest_version()
            first = max(first, log.version_from(0))
            metadata: Metadata | None = None
            # The checkpoint before these commits may be missing. Then only the next metadata in them states whether
            # changes are recorded.
            with contextlib.suppress(DataError):
                metadata = log.snapshot(first).metadata
            commits = []
            for commit in log.commits(first, latest if last is None else min(last, latest)):
                metadata = commit.metadata or metadata
                recorded = metadata is not None and _has_feed(metadata)
                info = commit.commit_info or CommitInfo()
                commits.append(Commit(commit.version, commit.timestamp_ms or 0, info, recorded))
            return commits

    def _state(self, stored: StoredLog, snapshot: Snapshot) -> TableState:
        return TableState(
            name=stored.table,
            version=snapshot.version,
            protocol=snapshot.protocol,
            metadata=snapshot.metadata,
            place=stored.files,
            query_id=self.rest.query_id,
        )


def _one_block(files: Sequence[SharedFile]) -> Generator[Sequence[SharedFile], None, None]:
    yield files


def _access(stored: StoredLog) -> str:
    return f"the table's directory, {stored.location}"


def _has_feed(metadata: Metadata) -> bool:
    return metadata.properties.get(_FEED_PROPERTY, "").lower() == "true"


def _changes(log: DeltaLog, stored: StoredLog, commits: Iterable[LogCommit], first: Snapshot) -> Iterator[TableAction]:
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
                f"The changes of version {commit.version} were not recorded, because the table had no change data feed "
                f"then. Ask the provider to set '{_FEED_PROPERTY}', or since which version it has been set.",
                feature="changeDataFeed",
                table=stored.table,
                version=commit.version,
            )
        for action in change_actions(commit):
            whole: FileAction = action
            if isinstance(action, RemoveFile) and action.partition_values is None and metadata.partition_columns:
                whole = _completed(log, action, commit.version, stored.table)
            yield stored.placed(whole, commit)


def _completed(log: DeltaLog, remove: RemoveFile, version: int, table: str) -> RemoveFile:
    """Return ``remove`` with the partition values, which are optional in a log, and the size of the removed file."""
    path = canonical_path(remove.path)
    files = log.snapshot(version - 1).files if version else ()
    add = next((item for item in files if canonical_path(item.path) == path), None)
    if add is None:
        raise DataError(
            f"A file that version {version} removes has no partition values, and is not in the previous version.",
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
        raise UsageError(f"The changes start at version {start}, but end at an earlier version, {end}.", table=table)
    return start, end


def _version_at(log: DeltaLog, moment: int, table: str) -> int:
    latest = log.latest_version()
    newest = log.commit_timestamp(latest)
    if moment > newest:
        raise UsageError(
            f"The timestamp {format_millis(moment)} is after the latest version, {latest}, which was committed at "
            f"{format_millis(newest)}.",
            table=table,
        )
    return log.version_at(moment)


def _milliseconds(text: str) -> int:
    return (parse_instant(text) - EPOCH) // datetime.timedelta(milliseconds=1)
