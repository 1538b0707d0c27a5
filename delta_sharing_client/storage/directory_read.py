"""Reads a table in its own storage: plans from the table's log, as ``planning`` does from a server's response, and
provides the bytes of files by their addresses."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    CommitInfo,
    DeletionVectorDescriptor,
    FileAction,
    Metadata,
    RemoveFile,
    SharedFile,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.deletion_vectors import relative_path
from delta_sharing_client.delta.log.commit import Commit, change_actions
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LOG_DIRECTORY, LogEntry
from delta_sharing_client.delta.paths import canonical_path, is_absolute
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import DataError, TransportError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.place import DataRequest, Page, Place, Refused, StoredFile, Take
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.instants import EPOCH, format_millis, parse_instant
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.changes import plan_changes
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.plan.snapshot_files import plan_snapshot
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import table_metadata
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.run.objects import Ahead, pages, read_object
from delta_sharing_client.storage.locations import Location
from delta_sharing_client.storage.opening import OpenedPlace, found, place_of

_FEED_PROPERTY = "delta.enableChangeDataFeed"


class TableFiles:
    """The files of a table by address, as a ``Place``. Picklable.

    An address is ``<location>/<path>``; the path is percent-encoded once, as in a log.
    """

    urls = None
    lists_in_order = False

    def __init__(self, rest: RestClient, table: AssetName, options: ReadOptions) -> None:
        self._rest = rest
        self._name = table
        self.options = options
        main = place_of(rest, AssetRef(TABLE, table), None, options)
        self.location = main.location
        self._places: dict[str, OpenedPlace] = {self.location: main}

    def __repr__(self) -> str:
        return f"TableFiles({self.table!r}, {self.location!r})"

    @property
    def table(self) -> str:
        """The table's name, for errors."""
        return str(self._name)

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``, for the address of a file."""
        place, key = await found(self._find, self._known, request.address)
        await place.get(request._replace(address=key), take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Like ``Place.page``, for a folder of the table's main location."""
        return await self._places[self.location].page(folder, mark, deadline, recursive=recursive)

    @contextlib.contextmanager
    def log(self) -> Iterator[DeltaLog]:
        """Yield the table's log for a ``with`` block; files of the log are downloaded in advance."""
        files = _Log(self)
        try:
            yield DeltaLog(files, self.table)
        finally:
            files.close()

    def placed(self, action: FileAction, commit: Commit | None = None) -> SharedFile:
        """Return the file of an ``action`` with addresses instead of paths, and the version and time of ``commit``.

        Raises ``UnsupportedFeatureError`` if the file is outside the locations that the server shares, and
        ``DataError`` if its path or size is invalid.
        """
        file_id = canonical_path(action.path)
        if not isinstance(action, RemoveFile) and action.size < 0:
            raise DataError("Expected a size for each file in the log, found none.", table=self.table, file_id=file_id)
        placed: FileAction = replace(action, path=self._address(action.path))
        if placed.deletion_vector is not None:
            placed = replace(placed, deletion_vector=self._placed_vector(placed.deletion_vector))
        if commit is None:
            return SharedFile(placed, file_id)
        return SharedFile(placed, file_id, version=commit.version, timestamp=commit.timestamp_ms)

    async def read(self, address: str) -> memoryview:
        """Return the whole content of a file. Raises ``FileNotFoundError`` if it is missing, and ``TransportError`` if
        the storage refuses it or does not send it."""
        return await read_object(self, address, name="a file of the table's log", refusal=self._refusal)

    def list_log(self) -> list[LogEntry]:
        """Return the files of the log; ``FileNotFoundError`` if there are none."""
        try:
            listed = pages(self, LOG_DIRECTORY, recursive=False, subject=f"table {self.table}")
            found = [_log_entry(file) for page in listed for file in page.files]
        except Refused as refused:
            if refused.status == 404 and not refused.reason:
                raise FileNotFoundError(LOG_DIRECTORY) from None
            raise TransportError(
                f"The table's storage refused to list the log ({refused}). Ask the provider whether the credentials "
                "may list the table's directory.",
                table=self.table,
            ) from None
        if not found:
            raise FileNotFoundError(LOG_DIRECTORY)
        return found

    def _refusal(self, refused: Refused) -> Exception:
        if refused.status == 404:
            return FileNotFoundError(2, "it does not exist")
        return TransportError(
            f"The table's storage refused to return a file of the log ({refused}). Ask the provider whether the "
            "credentials may read the table's directory.",
            table=self.table,
        )

    def _placed_vector(self, vector: DeletionVectorDescriptor) -> DeletionVectorDescriptor:
        if vector.storage_type == "i":
            return vector
        path = relative_path(vector) if vector.storage_type == "u" else vector.path_or_inline_dv
        return replace(vector, storage_type="p", path_or_inline_dv=self._address(path))

    def _address(self, path: str) -> str:
        """Return the address of a path in the log."""
        if is_absolute(path):
            address = _normalized(path)
        elif not path or "\0" in unquote(path) or ".." in unquote(path).split("/"):
            raise DataError(
                f"A relative path in the log must stay inside the table's directory, found {path[:200]!r}.",
                table=self.table,
            )
        else:
            address = f"{self.location}/{path}"
        self._find(address)
        return address

    def _known(self, address: str) -> tuple[Place, str] | None:
        location = _around(address, self._places)
        return None if location is None else (self._places[location], unquote(address.removeprefix(f"{location}/")))

    def _find(self, address: str) -> tuple[Place, str]:
        location = _around(address, self._places) or self._opened(address)
        return self._places[location], unquote(address.removeprefix(f"{location}/"))

    def _opened(self, address: str) -> str:
        """Open the auxiliary location that contains ``address``, and return the location."""
        location = _around(address, self._auxiliary)
        if location is not None:
            place = place_of(self._rest, AssetRef(TABLE, self._name), location, self.options)
            if place.location == location:
                self._places[location] = place
                return location
        raise UnsupportedFeatureError(
            "A file of the table is outside the table's location and auxiliary locations, so it cannot be read "
            "directly. Read the table by URL.",
            feature="auxiliaryLocations",
            table=self.table,
            file_id=address.rpartition("/")[2],
        )

    @lazy
    def _auxiliary(self) -> tuple[str, ...]:
        head = table_metadata(self._rest, self._name)
        return tuple(str(Location.parse(location)) for location in head.auxiliary_locations)


def _around(address: str, locations: Iterable[str]) -> str | None:
    return next((location for location in locations if address.startswith(f"{location}/")), None)


def _normalized(path: str) -> str:
    """Return the address of an absolute path in a log."""
    return str(Location.parse(path if "://" in path else f"file://{path.removeprefix('file:')}"))


def _log_entry(file: StoredFile) -> LogEntry:
    modified_ms = 0 if file.modified is None else round(file.modified.timestamp() * 1000)
    return LogEntry(file.path.rpartition("/")[2], file.size, modified_ms)


class _Log:
    """The log of ``TableFiles``, as a ``delta.log.log_files.LogDirectory``."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._ahead = Ahead(self._read)

    def entries(self) -> list[LogEntry]:
        return self._files.list_log()

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._ahead.get(path))

    def expect(self, paths: Sequence[str]) -> None:
        self._ahead.expect(paths)

    def close(self) -> None:
        self._ahead.close()

    async def _read(self, path: str) -> memoryview:
        # A path is absolute, or relative to the directory of the log.
        address = _normalized(path) if is_absolute(path) else f"{self._files.location}/{LOG_DIRECTORY}/{path}"
        return await self._files.read(address)


# === From the log to a plan ===


class CommitFacts(NamedTuple):
    """The facts about a commit in the log, except its files; ``has_feed`` means that it recorded row changes."""

    version: int
    timestamp_ms: int
    info: CommitInfo
    has_feed: bool


def plan_table(
    rest: RestClient, table: AssetName, request: ScanRequest, options: ReadOptions
) -> tuple[Snapshot, list[SharedFile], ScanPlan]:
    """Read the log of ``table``; return the snapshot, all its files with addresses as paths, and the plan of
    ``request``.

    Raises ``UsageError`` if a column or filter does not match the schema, or the version does not exist;
    ``UnsupportedFeatureError`` for a feature or store that is not supported; ``DataError`` or
    ``ProtocolError`` for an invalid log; and the errors of the server and the storage.
    """
    files = TableFiles(rest, table, options)
    with files.log() as log:
        version = request.number
        if request.timestamp is not None:
            version = _version_at(log, _milliseconds(request.timestamp), files.table)
        snapshot = log.snapshot(version)
        placed = [files.placed(add) for add in snapshot.files]
    plan = plan_snapshot(_state(rest, files, snapshot), placed, request, options)
    return snapshot, placed, _reading(plan, files)


def plan_change_feed(rest: RestClient, table: AssetName, request: ChangesRequest, options: ReadOptions) -> ScanPlan:
    """Read the commits of ``table``, and return the plan to read the changes of ``request``.

    Raises the errors of ``plan_table``, and ``UnsupportedFeatureError`` if the table did not record its changes.
    """
    files = TableFiles(rest, table, options)
    with files.log() as log:
        start, end = _range(log, request, files.table)
        first = log.snapshot(start)
        actions = list(_changes(log, files, log.commits(start, end), first))
    plan = plan_changes(_state(rest, files, first), actions, request, options)
    return _reading(plan, files)


def read_commits(
    rest: RestClient, table: AssetName, start: int, end: int | None, options: ReadOptions
) -> list[CommitFacts]:
    """Return the facts about the commits of ``table`` from version ``start`` to ``end``, as far as the log has them.
    Raises the errors of ``plan_table``."""
    files = TableFiles(rest, table, options)
    with files.log() as log:
        latest = log.latest_version()
        start = max(start, log.version_from(0))
        last = latest if end is None else min(end, latest)
        metadata: Metadata | None = None
        # The checkpoint before these commits may be missing. Then only the next metadata in them states whether changes
        # are recorded.
        with contextlib.suppress(DataError):
            metadata = log.snapshot(start).metadata
        facts = []
        for commit in log.commits(start, last):
            metadata = commit.metadata or metadata
            recorded = metadata is not None and _has_feed(metadata)
            info = commit.commit_info or CommitInfo()
            facts.append(CommitFacts(commit.version, commit.timestamp_ms or 0, info, recorded))
        return facts


def _has_feed(metadata: Metadata) -> bool:
    return metadata.properties.get(_FEED_PROPERTY, "").lower() == "true"


def _changes(log: DeltaLog, files: TableFiles, commits: Iterable[Commit], first: Snapshot) -> Iterator[TableAction]:
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
                table=files.table,
                version=commit.version,
            )
        for action in change_actions(commit):
            whole: FileAction = action
            if isinstance(action, RemoveFile) and action.partition_values is None and metadata.partition_columns:
                whole = _completed(log, action, commit.version, files.table)
            yield files.placed(whole, commit)


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


def _state(rest: RestClient, files: TableFiles, snapshot: Snapshot) -> TableState:
    return TableState(
        name=files.table,
        version=snapshot.version,
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        place=files,
        query_id=rest.query_id,
    )


def _reading(plan: ScanPlan, files: TableFiles) -> ScanPlan:
    return dataclasses.replace(plan, access=f"the table's directory, {files.location}")
