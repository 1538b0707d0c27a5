"""Turns a table name and a request into a ``ScanPlan``: sends the query, checks the response, plans the files.

Only this module uses the protocol, the log and the scan engine together; every output starts here, including
Spark's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn, TypeVar, Union

import pyarrow as pa

from delta_sharing_client.delta.actions import AddFile, Metadata, SharedFile, TableAction
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.listed_files import HELD_NAMES, ListedFiles, kept
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import (
    AuthError,
    DeltaSharingError,
    IncompleteReadWarning,
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.formats import by_format
from delta_sharing_client.http.retry import RETRIED_STATUSES
from delta_sharing_client.options import AccessMode, ReadOptions
from delta_sharing_client.plan.changes import FeedPart, plan_changes, stream_changes
from delta_sharing_client.plan.read_columns import unbounded_paths
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.plan.snapshot_files import plan_snapshot, scan_context, stream_snapshot
from delta_sharing_client.plan.tasks import FileTask, ScanPlan, ScanStream
from delta_sharing_client.predicates.hints import to_json_hints
from delta_sharing_client.predicates.tree import And, all_of, columns
from delta_sharing_client.protocol import windows
from delta_sharing_client.protocol.fresh_urls import RefreshingUrls
from delta_sharing_client.protocol.line_order import TableHead, unreadable
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import (
    ChangesQuery,
    QueryRequest,
    TableResponse,
    query_table,
    table_metadata,
)
from delta_sharing_client.protocol.rest import RestClient

if TYPE_CHECKING:
    from delta_sharing_client.fetch.place import Place
    from delta_sharing_client.storage.directory_read import CommitFacts

_log = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")
PlanT = TypeVar("PlanT", ScanPlan, ScanStream, Union[ScanPlan, ScanStream])


def _as_one_read(
    plan: Callable[[RestClient, AssetName, RequestT, ReadOptions], ResultT],
) -> Callable[[RestClient, AssetName, RequestT, ReadOptions], ResultT]:
    @functools.wraps(plan)
    def named(rest: RestClient, table: AssetName, request: RequestT, options: ReadOptions) -> ResultT:
        read = rest.for_read(options)
        with read.about(table):
            return plan(read, table, request, options)

    return named


@_as_one_read
def plan_table(
    rest: RestClient, table: AssetName, request: ScanRequest | ChangesRequest, options: ReadOptions
) -> ScanPlan:
    """Query ``table``, or read its log (``options.access_mode``), and return the files that ``request`` needs.

    Changes are read in the schema at the end of their range.

    Raises
    ------
    UsageError
        A column or filter does not fit the schema.
    UnsupportedFeatureError
        The table needs a reader feature that is not supported; checked before any data is requested.
    SchemaChangeError
        One schema cannot span the range of changes.
    RequestError, ProtocolError, TransportError, AuthError
        The server or the network; see ``errors``.
    """

    def by_url() -> ScanPlan:
        if isinstance(request, ChangesRequest):
            return _Feed.ask(rest, table, request, options).planned()
        # A plan with all files holds their names in any case. With a filter, most files may be skipped, so the names
        # are limited.
        most = HELD_NAMES if request.skipping is not None else sys.maxsize
        return _stream_by_url(rest, table, request, options, most).whole()

    def as_delta() -> ScanPlan:
        return _noted(*_by_access_mode(rest, table, options, by_url, lambda: _from_log(rest, table, request, options)))

    def as_iceberg(iceberg: ModuleType) -> ScanPlan:
        plan: ScanPlan = iceberg.stream_table(rest, table, request, options).whole()
        return plan

    return by_format(rest, table, options, as_delta, as_iceberg, prefers_iceberg=_is_of_reference(request))


@_as_one_read
def stream_table(
    rest: RestClient, table: AssetName, request: ScanRequest | ChangesRequest, options: ReadOptions
) -> ScanPlan | ScanStream:
    """Like ``plan_table``, but return once the response has begun, so that files can be read while others are listed.

    A log and a short change feed are read completely first. Raises the errors of ``plan_table``; the stream raises the
    errors of the rest of the response.
    """

    def by_url() -> ScanPlan | ScanStream:
        if isinstance(request, ChangesRequest):
            return _Feed.ask(rest, table, request, options).streamed()
        return _stream_by_url(rest, table, request, options, HELD_NAMES)

    def as_delta() -> ScanPlan | ScanStream:
        return _noted(*_by_access_mode(rest, table, options, by_url, lambda: _from_log(rest, table, request, options)))

    def as_iceberg(iceberg: ModuleType) -> ScanStream:
        stream: ScanStream = iceberg.stream_table(rest, table, request, options)
        return dataclasses.replace(stream, files=_named(rest, table, stream.files))

    return by_format(rest, table, options, as_delta, as_iceberg, prefers_iceberg=_is_of_reference(request))


def _is_of_reference(request: ScanRequest | ChangesRequest) -> bool:
    return isinstance(request, ScanRequest) and request.is_of_reference


def _from_log(
    rest: RestClient, table: AssetName, request: ScanRequest | ChangesRequest, options: ReadOptions
) -> ScanPlan:
    if isinstance(request, ChangesRequest):
        return _storage().plan_change_feed(rest, table, request, options)
    return _storage().plan_table(rest, table, request, options)[-1]


@_as_one_read
def table_schema(
    rest: RestClient, table: AssetName, request: ScanRequest | ChangesRequest, options: ReadOptions
) -> pa.Schema:
    """Return the schema of the rows of ``request``. This lists no files, or only the beginning of a change feed.

    Raises the errors of ``plan_table``, except those of the files.
    """

    def as_iceberg(iceberg: ModuleType) -> pa.Schema:
        if isinstance(request, ChangesRequest):
            return iceberg.stream_table(rest, table, request, options)
        return iceberg.read_schema(rest, table, request, options)

    def as_delta() -> pa.Schema:
        return _delta_schema(rest, table, request, options)

    return by_format(rest, table, options, as_delta, as_iceberg, prefers_iceberg=_is_of_reference(request))


def _delta_schema(
    rest: RestClient, table: AssetName, request: ScanRequest | ChangesRequest, options: ReadOptions
) -> pa.Schema:
    if isinstance(request, ScanRequest):
        if request.version is None and request.timestamp is None and not request.row_lineage:
            described = table_metadata(rest, table, response_format=request.response_format)
            check_readable(described.protocol, described.metadata, operation=Operation.SNAPSHOT, table=str(table))
            state = _state(rest, table, described)
            return scan_context(state, request.bound(state.schema), options).output_schema
        # Older servers refuse the metadata of an old version, or return the current one, and only the delta format has
        # row tracking. So the first lines of a query are used, as in a read.
        request = dataclasses.replace(request, limit=1)
    plan = stream_table(rest, table, request, options)
    if isinstance(plan, ScanStream):
        plan.close()
    return plan.output_schema


def _stream_by_url(
    rest: RestClient, table: AssetName, request: ScanRequest, options: ReadOptions, most: int
) -> ScanStream:
    response, state, is_whole = _ask(rest, table, request, options)
    notes: list[str] = []
    blocks = _checked_files(response, table, most, options, notes) if is_whole else live_files(response, table, most)
    with _closed_by_errors(response):
        stream = stream_snapshot(state, blocks, request, options)
        notes += stream.notes
    return dataclasses.replace(
        stream,
        files=_named(rest, table, stream.files),
        table_files=response.head.num_files,
        notes=notes,
        release=response.close,
        break_off=response.break_off,
    )


@contextlib.contextmanager
def _closed_by_errors(response: TableResponse) -> Iterator[None]:
    try:
        yield
    except BaseException:
        response.close()
        raise


def _ask(
    rest: RestClient, table: AssetName, request: ScanRequest, options: ReadOptions
) -> tuple[TableResponse, TableState, bool]:
    """Return the response for a readable snapshot, the table's description in it, and whether all of its files were
    requested."""
    hints, hinted = (None, None) if request.skipping is None else _typed_hints(rest, table, request, options)
    query = QueryRequest(
        json_predicate_hints=hints,
        # A server counts rows before our filter, so a limit is a valid hint only without a filter.
        limit_hint=request.limit if request.skipping is None else None,
        version=request.number,
        timestamp=request.timestamp,
        asynchronous=options.async_query,
    )
    response = query_table(rest, table, query, response_format=request.response_format)
    if hints is not None and hinted != _columns_of(response.head.metadata):
        # The table changed between the two requests, so hints for the old columns could hide rows of the new columns.
        response.close()
        query = dataclasses.replace(query, json_predicate_hints=None)
        response = query_table(rest, table, query, response_format=request.response_format)
    with _closed_by_errors(response):
        check_readable(response.head.protocol, response.head.metadata, operation=Operation.SNAPSHOT, table=str(table))
    # The refresh token comes at the end of the response; until then, URLs are renewed by requesting the version.
    urls = RefreshingUrls(rest, table, query, response)
    is_whole = query.json_predicate_hints is None and query.limit_hint is None
    place = SignedUrls(options, rest.allowed_data, str(table), urls)
    return response, _state(rest, table, response.head, place), is_whole


def _named(
    rest: RestClient, table: AssetName, files: Generator[FileTask, None, None]
) -> Generator[FileTask, None, None]:
    """Yield ``files``, and add the table to their errors, which can occur long after the query."""
    try:
        with contextlib.closing(files):
            yield from files
    except DeltaSharingError:
        # This does not enclose the whole generator, because the garbage collector may close it in a different context.
        with rest.about(table):
            raise


def query_snapshot(
    rest: RestClient, table: AssetName, request: ScanRequest, options: ReadOptions
) -> tuple[Snapshot, list[SharedFile], ScanPlan]:
    """Query ``table`` and return the whole snapshot, its files, and the plan that reads all of it.

    The plan has one task per file, in order; ``request`` must ask for all rows and columns. Raises the errors of
    ``plan_table``.
    """
    rest = rest.for_read(options)

    def as_delta() -> tuple[Snapshot, list[SharedFile], ScanPlan]:
        (snapshot, files, plan), access = _by_access_mode(
            rest,
            table,
            options,
            lambda: _query_snapshot(rest, table, request, options),
            lambda: _storage().plan_table(rest, table, request, options),
        )
        return snapshot, files, _noted(plan, access)

    def as_iceberg(iceberg: ModuleType) -> NoReturn:
        raise iceberg.without(
            table, "local copy as a Delta table", "Write its rows to a file: scan().to_parquet('rows.parquet')."
        )

    return by_format(rest, table, options, as_delta, as_iceberg)


def _query_snapshot(
    rest: RestClient, table: AssetName, request: ScanRequest, options: ReadOptions
) -> tuple[Snapshot, list[SharedFile], ScanPlan]:
    response, state, _ = _ask(rest, table, request, options)
    files = kept(_checked_files(response, table, sys.maxsize, options, []))
    # There is nothing left to reconcile, because each logical file is listed once.
    snapshot = Snapshot(
        version=response.head.version,
        timestamp_ms=None,
        protocol=response.head.protocol,
        metadata=response.head.metadata,
        files=[file.action for file in files if isinstance(file.action, AddFile)],
        table=str(table),
    )
    return snapshot, files, plan_snapshot(state, files, request, options)


@dataclasses.dataclass(frozen=True, slots=True)
class _Feed:
    """A requested change feed."""

    rest: RestClient
    table: AssetName
    request: ChangesRequest
    options: ReadOptions
    query: ChangesQuery
    response: TableResponse

    @classmethod
    def ask(cls, rest: RestClient, table: AssetName, request: ChangesRequest, options: ReadOptions) -> _Feed:
        query = ChangesQuery(
            starting_version=request.starting_version,
            ending_version=request.ending_version,
            starting_timestamp=request.starting_timestamp,
            ending_timestamp=request.ending_timestamp,
            of_view=request.starting_version is None and request.ending_version is None,
        )
        response = query_table(rest, table, query, response_format=request.response_format)
        feed = cls(rest, table, request, options, query, response)
        with _closed_by_errors(response):
            feed.check(response.head)
        return feed

    def check(self, head: TableHead) -> None:
        check_readable(head.protocol, head.metadata, operation=Operation.CHANGES, table=str(self.table))

    def planned(self) -> ScanPlan:
        """Return the plan of the whole feed."""
        return self._whole(self.response.actions)

    def streamed(self) -> ScanPlan | ScanStream:
        """Like ``planned``, but a long feed is planned while it is read, if possible."""
        beginning = list(itertools.islice(self.response.actions, windows.FEW))
        stream = self._in_windows(beginning) if len(beginning) == windows.FEW else None
        if stream is None:
            return self._whole(itertools.chain(beginning, self.response.actions))
        self.response.close()
        return stream

    def _whole(self, actions: Iterable[TableAction]) -> ScanPlan:
        urls = RefreshingUrls(self.rest, self.table, self.query, self.response)
        place = SignedUrls(self.options, self.rest.allowed_data, str(self.table), urls)
        state = _state(self.rest, self.table, self.response.head, place)
        request = dataclasses.replace(self.request, of_view=self.response.head.is_view)
        with self.response:
            return plan_changes(state, actions, request, self.options)

    def _in_windows(self, beginning: Sequence[TableAction]) -> ScanStream | None:
        feed = windows.feed_windows(self.rest, self.table, self.query, self.response, beginning)
        if feed is None:
            return None
        try:
            self.check(feed.end)
            place = SignedUrls(self.options, self.rest.allowed_data, str(self.table), feed.urls)
            state = dataclasses.replace(_state(self.rest, self.table, feed.end, place), version=feed.last)
            stream = stream_changes(state, self._parts(feed), self.request, self.options)
        except DeltaSharingError:
            # The request may not fit the end of the range because the schema changes within the range. The complete
            # plan then reports the change.
            return None
        files = _named(self.rest, self.table, stream.files)
        return dataclasses.replace(stream, files=files, break_off=feed.break_off)

    def _parts(self, feed: windows.FeedWindows) -> Generator[FeedPart, None, None]:
        for window in feed.windows():
            self.check(window.head)
            yield FeedPart(window.first, window.head.metadata, window.actions)


@_as_one_read
def read_commits(
    rest: RestClient, table: AssetName, versions: tuple[int, int | None], options: ReadOptions
) -> list[CommitFacts] | None:
    """Return the log's facts about the commits of ``versions`` (first and last, inclusive; ``None`` for the latest), or
    ``None`` if the table is read by URL, and so without its log. Raises the errors of ``plan_table``."""
    mode = options.access_mode
    if mode is AccessMode.URL or (mode is AccessMode.AUTO and not _offers_directory_only(rest, table)):
        return None
    try:
        commits: list[CommitFacts] = _storage().read_commits(rest, table, *versions, options)
    except (RequestError, AuthError, UnsupportedFeatureError, UsageError) as error:
        if mode is AccessMode.AUTO or _is_nobody(error):
            raise
        return None
    return commits


def _by_access_mode(
    rest: RestClient,
    table: AssetName,
    options: ReadOptions,
    by_url: Callable[[], ResultT],
    by_directory: Callable[[], ResultT],
) -> tuple[ResultT, str | None]:
    """Return the result in the access mode ``options.access_mode``. If a different mode was used, also return this mode
    and the reason."""
    if options.access_mode is AccessMode.DIR:
        try:
            return by_directory(), None
        except (RequestError, AuthError, UnsupportedFeatureError, UsageError) as error:
            # A UsageError may be due to a missing package; if the request itself is invalid, it also fails by URL.
            if _is_nobody(error):
                raise
            failure = error
        try:
            plan = by_url()
        except DeltaSharingError as error:
            # If only other access modes are offered (such as 'volume'), the error of the read by URL is clearer.
            is_no_table = isinstance(error, UnsupportedFeatureError) and str(error.feature).startswith("accessModes")
            if not is_no_table and _may_be_of_mode(error):
                _modes_of_refused(rest, table)
            raise (error if is_no_table else failure) from None
        _log.warning("Table %s is read by URL, because its directory cannot be read: %s", table, failure)
        return plan, f"by URL, because the table's directory cannot be read: {failure}"
    try:
        return by_url(), None
    except DeltaSharingError as error:
        if not _may_be_of_mode(error):
            raise error from None
        modes = _modes_of_refused(rest, table)
        if options.access_mode is AccessMode.URL or "dir" not in modes or "url" in modes:
            raise error from None
    return by_directory(), None


def _is_nobody(error: DeltaSharingError) -> bool:
    """Return whether the credentials are invalid for every access mode; a refusal with 403 may apply to one mode
    only."""
    return isinstance(error, AuthError) and error.status != 403


def _may_be_of_mode(error: DeltaSharingError) -> bool:
    """Return whether a read by URL may have been refused because of its access mode."""
    # The response of a busy or broken server says nothing about access modes, and it was already retried.
    is_busy = isinstance(error, RequestError) and error.status in RETRIED_STATUSES
    refused = isinstance(error, (RequestError, AuthError, UnsupportedFeatureError))
    return refused and not is_busy and not _is_nobody(error)


def _modes_of_refused(rest: RestClient, table: AssetName) -> set[str]:
    """Return the access modes of a table whose query was refused; empty if its metadata is refused as well. Raises
    ``UnsupportedFeatureError`` if the table has only modes other than URLs and directories."""
    try:
        modes = {mode.lower() for mode in table_metadata(rest, table).access_modes}
    except DeltaSharingError:
        return set()
    if modes and not modes & {"url", "dir"}:
        raise unreadable(f"Reading {table}", str(table), modes) from None
    return modes


def _offers_directory_only(rest: RestClient, table: AssetName) -> bool:
    modes = {mode.lower() for mode in table_metadata(rest, table).access_modes}
    return "dir" in modes and "url" not in modes


def _noted(plan: PlanT, access: str | None) -> PlanT:
    return plan if access is None else dataclasses.replace(plan, access=access)


def _storage() -> ModuleType:
    # Imported here, because a read by URL does not need it.
    from delta_sharing_client.storage import directory_read

    return directory_read


_Columns = tuple[str, list[str]]
"""The schema and the partition columns, on which hints depend: some are made only for partition columns."""


def _columns_of(metadata: Metadata) -> _Columns:
    return metadata.schema_string, metadata.partition_columns


def _typed_hints(
    rest: RestClient, table: AssetName, request: ScanRequest, options: ReadOptions
) -> tuple[str | None, _Columns | None]:
    """Return the hints for the filters of ``request``, and the columns for which they were made.

    Unless the schema is known, this first requests it. The extra request is worth it, because hints reduce the number
    of files.
    """
    is_of_past = request.version is not None or request.timestamp is not None
    try:
        described = request.described or _described(rest, table, request)
        schema_string, partition_columns = described
        schema = parse_schema(schema_string)
        bound = dataclasses.replace(request, columns=None).bound(schema).skipping
    except (RequestError, ProtocolError, UsageError):
        if not is_of_past:
            raise
        # Older servers refuse the metadata of an old version, or return the current one; hints are optional.
        return None, None
    assert bound is not None
    # Hints must not name columns that the read adds, because servers do not know them, nor columns with a collation,
    # because filters compare without it.
    unsaid = {field.name for field in request.added_fields}
    unsaid |= {field.name for field in schema.fields if field.collation is not None}
    # Nor may hints name columns whose text may be replaced (``invalid_text``), because a server's statistics describe
    # the original text.
    unsaid |= {path[0] for path in unbounded_paths(bound, options)} - set(partition_columns)
    parts = bound.children if isinstance(bound, And) else (bound,)
    said = all_of(part for part in parts if not unsaid & {path[0] for path in columns(part)})
    return to_json_hints(said, partition_columns), described


def _described(rest: RestClient, table: AssetName, request: ScanRequest) -> _Columns:
    head = table_metadata(
        rest,
        table,
        version=request.number,
        timestamp=request.timestamp,
        response_format=request.response_format,
        as_queries=True,
    )
    return _columns_of(head.metadata)


def _state(rest: RestClient, table: AssetName, head: TableHead, place: Place | None = None) -> TableState:
    return TableState(
        name=str(table),
        version=head.version,
        protocol=head.protocol,
        metadata=head.metadata,
        place=place,
        query_id=rest.query_id,
    )


def live_files(
    response: TableResponse, table: AssetName, most: int = sys.maxsize
) -> Generator[list[SharedFile], None, ListedFiles]:
    """Yield the files of a snapshot in blocks as they arrive, each logical file (path and deletion vector) once.

    ``most`` is passed to the ``ListedFiles`` that the generator returns. Raises the errors of the response, and
    ``ProtocolError`` for two files with one id.
    """
    listed = ListedFiles(str(table), response.head.version, most)
    for actions in response.blocks:
        yield listed.new(actions)
    return listed


def _checked_files(
    response: TableResponse, table: AssetName, most: int, options: ReadOptions, notes: list[str]
) -> Generator[list[SharedFile], None, None]:
    """Like ``live_files``, for a response without hints. Warn or raise an error if the server states different
    numbers."""
    listed = yield from live_files(response, table, most)
    stated = response.head.num_files, response.head.table_size
    counted = listed.files, listed.bytes
    if all(one is None or other is None or one == other for one, other in zip(stated, counted, strict=True)):
        return
    message = (
        f"The server reports that '{table}' has {_counts(*stated)} at version {response.head.version}, but it listed "
        f"{_counts(*counted)}. Either rows are missing, or the share contains a part of the table: ask the provider."
    )
    if options.require_whole_table:
        raise ProtocolError(
            f"{message} Without 'require_whole_table', the table is read as listed.",
            table=str(table),
            version=response.head.version,
        )
    notes.append(message)
    warnings.warn(message, IncompleteReadWarning, stacklevel=2)


def _counts(files: int | None, size: int | None) -> str:
    return " and ".join(f"{count} {unit}" for count, unit in ((files, "files"), (size, "bytes")) if count is not None)
