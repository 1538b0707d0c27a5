"""A shared table as the data source asks for it: its description, its plans, and windows of its versions."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import platform
import uuid
from collections.abc import Sequence

import msgspec
import pyspark

from delta_sharing_client import __version__
from delta_sharing_client.delta.actions import (
    Action,
    AddFile,
    FileAction,
    Metadata,
    Protocol,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.schema_changes import Kind, first_difference
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    ProtocolError,
    RequestError,
    SchemaChangeError,
    UsageError,
)
from delta_sharing_client.fetch.source import UrlSource
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.plan.changes import plan_changes
from delta_sharing_client.plan.request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.plan.snapshot import plan_snapshot
from delta_sharing_client.plan.tasks import ScanPlan, ScanStream
from delta_sharing_client.planning import live_files, plan_change_feed, stream_table
from delta_sharing_client.predicates.tree import known_of_all
from delta_sharing_client.protocol.answers import TableHead
from delta_sharing_client.protocol.query import (
    ChangesQuery,
    QueryRequest,
    TableAnswer,
    query_changes,
    query_table,
    table_metadata,
)
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.urls import RefreshingUrls
from delta_sharing_client.spark.admission import VersionFiles, appended_files, change_files, file_order, units
from delta_sharing_client.spark.offsets import ADVICE
from delta_sharing_client.spark.options import SparkOptions
from delta_sharing_client.spark.types import Columns


@dataclasses.dataclass(frozen=True)
class Window:
    """The versions ``first`` to ``last`` as one answer of the server holds them; of a snapshot, one version."""

    first: int
    last: int
    versions: tuple[VersionFiles, ...]
    response_format: ResponseFormat
    protocol: Protocol
    urls: UrlSource
    is_snapshot: bool
    plan_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)


class ServedTable:
    """A table behind a server, with the options of one relation. Pickles."""

    def __init__(self, options: SparkOptions, operation: Operation) -> None:
        self.options = options
        self.name = str(options.table)
        self._operation = operation
        self.read_options = options.read_options()
        agent = user_agent(operation, options.caller_org)
        # One query id for all that a stream asks; a batch read takes one of its own.
        self._rest = RestClient(options.profile, self.read_options, user_agent=agent).for_read(self.read_options)
        # Asks again and again anyway, and must not keep a query that is stopped.
        polling = options.read_options(waiting=False)
        self._polling = self._rest.for_read(polling, self._rest.query_id)

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()

    def describe(self, version: int | None = None, timestamp: str | None = None) -> TableHead:
        """Return protocol and metadata, of the latest version by default, checked to be readable."""
        response_format = self.options.read.response_format
        try:
            head = table_metadata(
                self._rest,
                self.options.table,
                version=version,
                timestamp=timestamp,
                response_format=response_format,
                operation=self._operation,
            )
        except (RequestError, ProtocolError) as error:
            if version is None:
                raise
            # Not every server tells the metadata of a version by itself; a snapshot begins with it everywhere.
            query = QueryRequest(version=version, limit_hint=1)
            try:
                with query_table(self._rest, self.options.table, query, response_format=response_format) as answer:
                    head = answer.head
            except DeltaSharingError:
                raise error from None
        check_readable(head.protocol, head.metadata, operation=self._operation, table=self.name)
        return head

    def metadata_at(self, version: int) -> Metadata | None:
        """Return the metadata as of ``version``, ``None`` where the server cannot say."""
        try:
            return self.describe(version).metadata
        except RequestError:
            return None

    def current_version(self) -> int:
        """Return the latest version of the table."""
        version = self._polling.table_version(self.options.table)
        if version < 0:
            raise ProtocolError(
                f"Expected a table version of zero or more, found {version}; ask the provider about the server.",
                table=self.name,
            )
        return version

    def version_from(self, timestamp: str) -> int:
        """Return the first version at or after ``timestamp``."""
        return self._rest.table_version(self.options.table, timestamp)

    def describe_loaded(self, version: int | None) -> TableHead:
        """As ``describe``: as of ``version``, if that is not the latest any more and the server tells."""
        head = self.describe()
        if version is None or head.version == version:
            return head
        try:
            return self.describe(version)
        except (RequestError, ProtocolError):
            return head

    def plan_batch(self, columns: Columns, version: int) -> ScanStream:
        """Plan a batch read of the snapshot or change feed that the options ask for.

        Where they do not say which, the snapshot is that of ``version``, and the feed ends there.

        Raises
        ------
        SchemaChangeError
            The table has moved on from ``version``, and the server does not give its past.
        """
        options = self.options
        asked = (options.read.limit, None if options.pushed is None else options.pushed.limit)
        limit = min((rows for rows in asked if rows is not None), default=None)
        condition = known_of_all((options.read.filter, columns.condition))
        if options.read_change_feed:
            changes = dataclasses.replace(options.changes(columns.paths), filter=condition, limit=limit)
            is_open = changes.ending_version is None and changes.ending_timestamp is None
            if is_open and (changes.starting_version or 0) <= version:
                until = dataclasses.replace(changes, ending_version=version)
                try:
                    return streamed(plan_change_feed(self._rest, options.table, until, self.read_options))
                except UsageError:
                    if changes.starting_version is not None:
                        raise  # else it may be a view, whose changes have no versions
            return streamed(plan_change_feed(self._rest, options.table, changes, self.read_options))
        read = dataclasses.replace(options.read, columns=columns.paths, filter=condition, limit=limit)
        if read.version is not None or read.timestamp is not None:
            return streamed(stream_table(self._rest, options.table, read, self.read_options))
        return self._plan_snapshot(read, version)

    def _plan_snapshot(self, read: ScanRequest, version: int) -> ScanStream:
        # Without shared history no version can be asked for, only compared with, so the latest is asked for first.
        latest: int | None = None
        try:
            found = streamed(stream_table(self._rest, self.options.table, read, self.read_options))
        except UsageError:  # what was asked fitted the schema of ``version``
            pass
        else:
            latest = found.context.version
            if latest == version:
                return found
            found.close()
        pinned = dataclasses.replace(read, version=version)
        try:
            return streamed(stream_table(self._rest, self.options.table, pinned, self.read_options))
        except RequestError as error:
            if error.status is None or error.status >= 500:
                raise
            raise SchemaChangeError(
                f"The table has moved on from version {version}, of which the DataFrame was made, to "
                f"{'another one' if latest is None else latest}, and its provider does not share its history: "
                f"{error.message.rstrip('.')}. Load it again.",
                table=self.name,
                version=latest,
            ) from None

    # === Streams ===

    def snapshot_window(self, version: int, stream: TableHead, response_format: ResponseFormat) -> Window:
        """Return the files of the snapshot at ``version``, in order of file id.

        Raises
        ------
        SchemaChangeError
            The table's description at ``version`` does not fit ``stream``: it changed after the stream was loaded.
        """
        query = QueryRequest(version=version, include_refresh_token=False)
        answer = query_table(self._rest, self.options.table, query, response_format=response_format)
        problem = self._problem(version, answer.head.protocol, answer.head.metadata, stream)
        if problem is not None:
            answer.close()
            raise problem
        head: tuple[Action, ...] = (answer.head.protocol, answer.head.metadata)
        listed = live_files(answer, self.options.table)
        snapshot = Snapshot.from_actions(version, itertools.chain(head, listed), table=self.name)
        files = tuple(sorted(snapshot.files, key=file_order))
        return self._window(query, answer, [VersionFiles(version, files, tuple(range(len(files))))])

    def tail_window(self, first: int, last: int, stream: TableHead, response_format: ResponseFormat) -> Window:
        """Return what happened in the versions ``first`` to ``last``, as a stream described by ``stream`` sees it.

        A version that the stream cannot read has a ``problem`` instead of files; nothing is raised for it here,
        because the versions before it can be read.

        Raises
        ------
        DataError
            The server does not serve ``first`` any more.
        """
        query: QueryRequest | ChangesQuery
        try:
            if self.options.read_change_feed:
                query = ChangesQuery(starting_version=first, ending_version=last)
                answer = query_changes(self._rest, self.options.table, query, response_format=response_format)
            else:
                query = QueryRequest(starting_version=first, ending_version=last)
                answer = query_table(self._rest, self.options.table, query, response_format=response_format)
            actions = list(answer.actions)
        except RequestError as error:
            raise self._history_gone(error, first, last) from None
        versions = self._versions(first, last, answer, actions, stream)
        return self._window(query, answer, versions)

    def _window(self, query: QueryRequest | ChangesQuery, answer: TableAnswer, versions: list[VersionFiles]) -> Window:
        return Window(
            first=versions[0].version,
            last=versions[-1].version,
            versions=tuple(versions),
            response_format=answer.head.response_format,
            protocol=answer.head.protocol,
            urls=RefreshingUrls(self._rest, self.options.table, query, answer),
            is_snapshot=isinstance(query, QueryRequest) and query.version is not None,
        )

    def plan_window(self, window: Window, files: Sequence[FileAction], stream: Metadata, columns: Columns) -> ScanPlan:
        """Plan the reading of ``files`` of ``window`` in the columns of the stream."""
        table = TableState(
            name=self.name,
            version=window.last,
            protocol=window.protocol,
            metadata=stream,
            urls=window.urls,
            allow_http=self._rest.allows_http_data,
            query_id=self._rest.query_id,
        )
        if self.options.read_change_feed:
            if window.is_snapshot:
                files = [_as_insert(file, window.first) for file in files]
            changes = ChangesRequest(
                starting_version=window.first,
                ending_version=window.last,
                columns=columns.paths,
                filter=self.options.read.filter,
            )
            return plan_changes(table, files, changes, self.read_options)
        adds = (file for file in files if isinstance(file, AddFile))
        request = ScanRequest(columns=columns.paths, filter=self.options.read.filter)
        return plan_snapshot(table, adds, request, self.read_options)

    def schema_change(
        self, version: int, seen: Metadata, stream: TableHead, unread_from: int | None = None
    ) -> SchemaChangeError:
        """Return the error for rows of ``version`` written under ``seen``, for which ``stream`` has no place.

        It tells what changed, in which version, and the way out, which depends on which of the two came later.
        ``unread_from`` is the first version that the stream has not read, ``version`` by default.
        """
        first = version if unread_from is None else unread_from
        if version > stream.version or self._is_newer(version, stream):
            changed_in, found = version, difference(stream.metadata, seen)
        else:
            changed_in = self._version_that_changed(seen, version, stream.version)
            found = difference(seen, stream.metadata)
        what = f"Detected incompatible schema change in version {changed_in}"
        if found is None:
            message = f"{what}: columns were added; restart the query, and it goes on with the new schema."
        else:
            left = ""
            if changed_in == first + 1:
                left = f"; version {first}, not read yet, is left out then"
            elif changed_in > first:
                left = f"; the versions {first} to {changed_in - 1}, not read yet, are left out then"
            message = (
                f"{what}: {found}. A restart alone does not help: start the query with a new checkpoint, and with "
                f"option 'startingVersion' {changed_in} to go on from there{left}."
            )
        return SchemaChangeError(message, table=self.name, version=changed_in)

    def _is_newer(self, version: int, stream: TableHead) -> bool:
        """Whether what an answer about ``version`` began with is newer than ``stream``: some servers send the "
        "latest."""
        then = self.metadata_at(version)
        return then is not None and difference(then, stream.metadata) is None

    def _version_that_changed(self, seen: Metadata, low: int, high: int) -> int:
        """Return a version after ``low`` that changed ``seen`` so that its rows have no place any more.

        ``high``, at which that is so, where the server does not tell.
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
        self, first: int, last: int, answer: TableAnswer, actions: Sequence[object], stream: TableHead
    ) -> list[VersionFiles]:
        by_version: dict[int, list[FileAction]] = {}
        problems: dict[int, DeltaSharingError] = {}

        def check(version: int | None, protocol: Protocol | None, metadata: Metadata | None) -> None:
            at = first if version is None else max(first, version)
            problem = self._problem(at, protocol, metadata, stream)
            if problem is not None:
                problems.setdefault(at, problem)

        check(answer.head.metadata_version, answer.head.protocol, answer.head.metadata)
        for action in actions:
            if isinstance(action, VersionedMetadata):
                check(action.version, None, action.metadata)
            elif isinstance(action, VersionedProtocol):
                check(action.version, action.protocol, None)
            else:
                version = action.shared_version  # type: ignore[attr-defined]
                if version is None:
                    raise ProtocolError(
                        "The server sent a file of a range of versions without its version; a stream cannot place it. "
                        "Ask the provider to upgrade the server.",
                        table=self.name,
                    )
                if first <= version <= last:
                    by_version.setdefault(version, []).append(action)  # type: ignore[arg-type]
        result = []
        for version in range(first, last + 1):
            files: Sequence[FileAction] = ()
            problem = problems.get(version)
            if problem is None:
                try:
                    files = self._files(by_version.get(version, []), version)
                except DataError as error:
                    error.table = self.name
                    problem = error
            # Only the changes of a commit belong together: the images of an update.
            together = units(files) if self.options.read_change_feed else tuple(range(len(files)))
            result.append(VersionFiles(version, tuple(files), together, problem))
        return result

    def _files(self, actions: list[FileAction], version: int) -> Sequence[FileAction]:
        if self.options.read_change_feed:
            return change_files(actions)
        return appended_files(actions, version, self.options.on_change)

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
                    f"The table was deleted and created anew: it had the id '{stream.metadata.id}' and has "
                    f"'{metadata.id}' from version {version} on. To read the new table, {ADVICE}.",
                    table=self.name,
                    version=version,
                )
            return (
                None if difference(metadata, stream.metadata) is None else self.schema_change(version, metadata, stream)
            )
        except DeltaSharingError as error:
            return error

    def _history_gone(self, error: RequestError, first: int, last: int) -> DeltaSharingError:
        if error.status not in (400, 404, 410):
            return error
        return DataError(
            f"The stream needs the versions {first} to {last}, and the server refuses them. It says: {error.message} "
            f"If the provider has removed that history, rows are lost to this stream; to go on without them, {ADVICE}, "
            "with option 'startingVersion' or without it (the whole table, then its changes).",
            table=self.name,
            version=first,
        )


def streamed(found: ScanPlan | ScanStream) -> ScanStream:
    """Return ``found`` as what its files are taken from."""
    if isinstance(found, ScanStream):
        return found
    files = (task for task in found.tasks)
    return ScanStream(context=found.context, files=files, skipped=lambda: found.skipped, limit=found.limit)


def user_agent(operation: Operation, caller: str | None) -> str:
    """Return how the data source names itself to servers."""
    product = "SparkStructuredStreaming" if operation is Operation.STREAMING else "Spark"
    parts = [
        f"delta-sharing-client-{product}/{__version__}",
        f"PySpark/{pyspark.__version__}",
        f"Python/{platform.python_version()}",
    ]
    return " ".join([*parts, f"callerOrg-{caller}"] if caller else parts)


def _as_insert(file: FileAction, version: int) -> FileAction:
    # A file that OPTIMIZE wrote is a file of the snapshot like any other.
    return msgspec.structs.replace(
        file, data_change=True, shared_version=version, shared_timestamp=file.shared_timestamp or 0
    )


# === Whether files written under one schema can be read in a stream with another one ===

# What was *seen* in the log must exist in the stream's schema, spelled the same and of equal type. Columns that the
# stream has in addition are null in older files. Whether a column may hold nulls makes no difference: the columns of a
# stream always may (the JVM connector refuses a column that became NOT NULL).
_BREAKS_A_STREAM = frozenset(
    set(Kind) - {Kind.ADDED, Kind.ADDED_NOT_NULL, Kind.NOT_NULL, Kind.ELEMENTS_NOT_NULL, Kind.VALUES_NOT_NULL}
)


def difference(seen: Metadata, read: Metadata) -> str | None:
    """Return what keeps a stream with the table description ``read`` from reading what was written under ``seen``.

    ``None`` where nothing does.
    """
    found = first_difference(seen, read, _BREAKS_A_STREAM)
    return None if found is None else str(found)


def fingerprint(metadata: Metadata) -> str:
    """Return a short hash of what ``difference`` looks at; equal for equal descriptions."""
    content = [json.loads(metadata.schema_string), metadata.partition_columns, mapping_mode(metadata).value]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
