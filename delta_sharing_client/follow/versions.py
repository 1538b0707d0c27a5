"""Requests of a follower: the latest version of a table, its metadata, and windows of its versions."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Callable, Sequence

import msgspec

from delta_sharing_client.delta.actions import (
    AddFile,
    Metadata,
    Protocol,
    SharedFile,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.listed_files import kept
from delta_sharing_client.delta.schema_changes import SchemaChangeKind, first_difference
from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    ProtocolError,
    RequestError,
    SchemaChangeError,
)
from delta_sharing_client.follow.admission import VersionFiles, appended_files, change_files, file_order, units
from delta_sharing_client.follow.follow_request import FollowRequest
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.plan.changes import plan_changes
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.plan.snapshot_files import plan_snapshot
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.table_source import HeadRequest, TableSource, Window


@dataclasses.dataclass(frozen=True)
class VersionWindow:
    """The versions ``first`` to ``last`` in one response; for a snapshot, one version."""

    first: int
    last: int
    versions: tuple[VersionFiles, ...]
    response_format: ResponseFormat
    state_with: Callable[[ReadOptions], TableState]
    is_snapshot: bool
    plan_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)

    def files_of(self, version: int) -> Sequence[SharedFile]:
        """Return the files of one of the versions, in order."""
        return self.versions[version - self.first].files


class FollowedTable:
    """A shared table to follow. ``options`` are for requests for its rows, ``polling`` for requests for its latest
    version."""

    def __init__(
        self,
        rest: RestClient,
        request: FollowRequest,
        options: ReadOptions,
        polling: ReadOptions,
        operation: Operation = Operation.STREAMING,
    ) -> None:
        self.request = request
        self.name = str(request.table)
        self.read_options = options
        self._operation = operation
        # One query id for all requests of a follower.
        self._rest = rest.for_read(options)
        # These requests are repeated anyway, and must not delay the end of a query.
        self._polling = self._rest.for_read(polling, self._rest.query_id)

    @property
    def _source(self) -> TableSource:
        return source_of(self._rest, self.request.table, self.read_options)

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def describe(self, version: int | str | None = None, timestamp: str | None = None) -> TableHead:
        """Return the protocol and the metadata, by default of the latest version. Raises ``UnsupportedFeatureError`` if
        this client does not support them."""
        request = HeadRequest(
            version=version,
            timestamp=timestamp,
            operation=self._operation,
            response_format=self.request.read.response_format,
            # In this format, the schema is the one in the response to the query, so it can be used to plan it.
            as_queries=self._operation is not Operation.STREAMING,
            row_lineage=self.request.read.row_lineage,
        )
        source = self._source
        with source.about():
            head = source.head(request)
            check_readable(head.protocol, head.metadata, operation=self._operation, table=self.name)
            if not head.metadata.id and self._operation is not Operation.SNAPSHOT:
                raise ProtocolError(
                    f"The metadata of '{self.name}' must have an id (metaData.id), by which the "
                    f"{self.request.words.place} recognizes a table that was recreated, but it has none. Tell the "
                    "data provider.",
                    table=self.name,
                )
            return head

    def metadata_at(self, version: int) -> Metadata | None:
        """Return the metadata at ``version``, ``None`` if the server does not have it."""
        try:
            return self.describe(version).metadata
        except RequestError:
            return None

    def current_version(self) -> int:
        """Return the latest version of the table."""
        polling = source_of(self._polling, self.request.table, self.read_options)
        version = polling.version(operation=Operation.STREAMING)
        if version < 0:
            raise ProtocolError(
                f"Expected a table version of 0 or more, found {version}. Tell the data provider.",
                table=self.name,
            )
        return version

    def version_from(self, timestamp: str) -> int:
        """Return the first version at or after ``timestamp``."""
        return self._source.version(timestamp, operation=Operation.STREAMING)

    # === Windows ===

    def snapshot_window(self, version: int, stream: TableHead, response_format: ResponseFormat) -> VersionWindow:
        """Return the files of the snapshot at ``version``, in order of file id.

        Raises ``SchemaChangeError`` if the metadata at ``version`` does not fit ``stream``: it changed after the stream
        was loaded.
        """
        window = self._source.window(version, None, feed=False, response_format=response_format)
        problem = self._problem(version, window.head.protocol, window.head.metadata, stream)
        if problem is not None:
            window.close()
            raise problem
        listed = [file for block in window.blocks for file in block if isinstance(file, SharedFile)]
        files = tuple(sorted(kept([listed]), key=file_order))
        return self._window(window, [VersionFiles(version, files, tuple(range(len(files))))], is_snapshot=True)

    def tail_window(self, first: int, last: int, stream: TableHead, response_format: ResponseFormat) -> VersionWindow:
        """Return the files of the versions ``first`` to ``last`` for a stream with the metadata ``stream``.

        A version that the stream cannot read has a ``problem`` instead of files. It is not raised here, because the
        versions before it can be read. Raises ``DataError`` if the server no longer has ``first``.
        """
        feed = self.request.read_change_feed
        try:
            window = self._source.window(first, last, feed=feed, response_format=response_format)
            actions = [action for block in window.blocks for action in block]
        except RequestError as error:
            raise self._history_gone(error, first, last) from None
        versions = self._versions(first, last, window.head, actions, stream)
        return self._window(window, versions, is_snapshot=False)

    @staticmethod
    def _window(window: Window, versions: list[VersionFiles], *, is_snapshot: bool) -> VersionWindow:
        return VersionWindow(
            first=versions[0].version,
            last=versions[-1].version,
            versions=tuple(versions),
            response_format=window.head.response_format,
            state_with=window.state_with,
            is_snapshot=is_snapshot,
        )

    def plan_window(
        self,
        window: VersionWindow,
        files: Sequence[SharedFile],
        stream: Metadata,
        asked: ScanRequest | ChangesRequest,
        options: ReadOptions | None = None,
    ) -> ScanPlan:
        """Plan the read of ``files`` of ``window`` with the metadata ``stream``, and the columns, filter and limit of
        ``asked``."""
        options = options or self.read_options
        table = dataclasses.replace(window.state_with(options), version=window.last, metadata=stream)
        if self.request.read_change_feed:
            if window.is_snapshot:
                files = [_as_insert(file, window.first) for file in files]
            changes = ChangesRequest(
                starting_version=window.first,
                ending_version=window.last,
                columns=asked.columns,
                filter=asked.filter,
                limit=asked.limit,
            )
            return plan_changes(table, files, changes, options)
        adds = [file for file in files if isinstance(file.action, AddFile)]
        request = ScanRequest(columns=asked.columns, filter=asked.filter, limit=asked.limit)
        return plan_snapshot(table, adds, request, options)

    def schema_change(
        self, version: int, seen: Metadata, stream: TableHead, unread_from: int | None = None
    ) -> SchemaChangeError:
        """Return the error for rows of ``version`` with the metadata ``seen``, which do not fit ``stream``.

        Its message has the change, the version, and advice, which depends on which of the two is newer.
        ``unread_from`` is the first version that the stream has not read, by default ``version``.
        """
        first = version if unread_from is None else unread_from
        if version > stream.version or self._is_newer(version, stream):
            changed_in, change = version, difference(stream.metadata, seen)
        else:
            changed_in = self._version_that_changed(seen, version, stream.version)
            change = difference(seen, stream.metadata)
        words = self.request.words
        what = f"Detected incompatible schema change in version {changed_in}"
        if change is None:
            widened = first_difference(stream.metadata, seen, {SchemaChangeKind.WIDENED})
            added = "columns were added" if widened is None else str(widened)
            message = f"{what}: {added}; {words.again}, and it goes on with the new schema."
        else:
            left = ""
            if changed_in == first + 1:
                left = f"; version {first}, which is not read yet, is then left out"
            elif changed_in > first:
                left = f"; the versions {first} to {changed_in - 1}, which are not read yet, are then left out"
            message = (
                f"{what}: {change}. A restart alone does not help: {words.anew}, with {words.starting_version} "
                f"{changed_in} to go on from there{left}."
            )
        return SchemaChangeError(message, table=self.name, version=changed_in)

    def _is_newer(self, version: int, stream: TableHead) -> bool:
        """Return whether the metadata sent for ``version`` is newer than ``stream``: some servers send the latest."""
        then = self.metadata_at(version)
        return then is not None and difference(then, stream.metadata) is None

    def _version_that_changed(self, seen: Metadata, low: int, high: int) -> int:
        """Return a version after ``low`` that changed ``seen`` incompatibly.

        It is ``high``, which is incompatible, if the server does not have the metadata in between.
        """
        while high - low > 1:
            middle = (low + high) // 2
            then = self.metadata_at(middle)
            if then is None:
                break
            if difference(seen, then) is None:
                low = middle
            else:
                high = middle
        return high

    def _versions(
        self, first: int, last: int, head: TableHead, actions: Sequence[TableAction], stream: TableHead
    ) -> list[VersionFiles]:
        by_version: dict[int, list[SharedFile]] = {}
        problems: dict[int, DeltaSharingError] = {}

        def check(version: int | None, protocol: Protocol | None, metadata: Metadata | None) -> None:
            at = first if version is None else max(first, version)
            problem = self._problem(at, protocol, metadata, stream)
            if problem is not None:
                problems.setdefault(at, problem)

        check(head.metadata_version, head.protocol, head.metadata)
        for action in actions:
            if isinstance(action, VersionedMetadata):
                check(action.version, None, action.metadata)
            elif isinstance(action, VersionedProtocol):
                check(action.version, action.protocol, None)
            else:
                version = action.version
                if version is None:
                    raise ProtocolError(
                        "Each file in a range of versions must have its version, but the server sent a file without "
                        "it. Ask the provider to upgrade the server.",
                        table=self.name,
                    )
                if first <= version <= last:
                    by_version.setdefault(version, []).append(action)
        result = []
        for version in range(first, last + 1):
            files: Sequence[SharedFile] = ()
            problem = problems.get(version)
            if problem is None:
                try:
                    files = self._files(by_version.get(version, []), version)
                except DataError as error:
                    error.table = self.name
                    problem = error
            # Only the changes of one commit belong together, because of an update's pre-image and post-image.
            together = units(files) if self.request.read_change_feed else tuple(range(len(files)))
            if self.request.whole_versions:
                together = (0,) * len(files)
            result.append(VersionFiles(version, tuple(files), together, problem))
        return result

    def _files(self, actions: list[SharedFile], version: int) -> Sequence[SharedFile]:
        if self.request.read_change_feed:
            return change_files(actions)
        return appended_files(actions, version, self.request.on_change)

    def _problem(
        self, version: int, protocol: Protocol | None, metadata: Metadata | None, stream: TableHead
    ) -> DeltaSharingError | None:
        try:
            if protocol is not None:
                check_readable(protocol, metadata, operation=self._operation, table=self.name)
            if metadata is None:
                return None
            if metadata.id != stream.metadata.id:
                return SchemaChangeError(
                    f"The table was deleted and recreated: it had the id '{stream.metadata.id}' and has "
                    f"'{metadata.id}' from version {version} on. To read the new table, {self.request.words.anew}.",
                    table=self.name,
                    version=version,
                )
            if difference(metadata, stream.metadata) is not None:
                return self.schema_change(version, metadata, stream)
            return None
        except DeltaSharingError as error:
            return error

    def _history_gone(self, error: RequestError, first: int, last: int) -> DeltaSharingError:
        if error.status not in (400, 404, 410):
            return error
        words = self.request.words
        return DataError(
            f"The stream needs the versions {first} to {last}, but the server refuses them. It says: {error.message} "
            f"If the provider has removed these versions, rows are lost to this stream; to go on without them, "
            f"{words.anew}, with {words.starting_version} or without it (the whole table, then its changes).",
            table=self.name,
            version=first,
        )


def _as_insert(file: SharedFile, version: int) -> SharedFile:
    # In a snapshot, files that OPTIMIZE wrote, without a change of data, must be read too.
    action = msgspec.structs.replace(file.action, data_change=True)
    return msgspec.structs.replace(file, action=action, version=version, timestamp=file.timestamp or 0)


# === Whether a stream can read files that were written with an earlier schema ===

# Each column in the log must be in the stream's schema, with the same spelling and the same type or a narrower one.
# Additional columns of the stream are null in older files. Nullability does not matter, because all columns of a stream
# are nullable (the JVM connector refuses a column that became NOT NULL).
_BREAKS_A_STREAM = frozenset(
    set(SchemaChangeKind)
    - {
        SchemaChangeKind.ADDED,
        SchemaChangeKind.ADDED_NOT_NULL,
        SchemaChangeKind.NOT_NULL,
        SchemaChangeKind.ELEMENTS_NOT_NULL,
        SchemaChangeKind.VALUES_NOT_NULL,
        SchemaChangeKind.WIDENED,
    }
)


def difference(seen: Metadata, read: Metadata) -> str | None:
    """Return why a stream with the metadata ``read`` cannot read rows written with ``seen``, or ``None``."""
    first = first_difference(seen, read, _BREAKS_A_STREAM)
    return None if first is None else str(first)


def fingerprint(metadata: Metadata) -> str:
    """Return a short hash of the properties that ``difference`` compares."""
    content = [json.loads(metadata.schema_string), metadata.partition_columns, mapping_mode(metadata).value]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
