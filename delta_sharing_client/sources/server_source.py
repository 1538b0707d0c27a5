"""A table by the responses of its sharing server, with files by URL."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence

from delta_sharing_client.delta.actions import Metadata, SharedFile, TableAction
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.listed_files import HELD_NAMES, ListedFiles
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteReadWarning,
    ProtocolError,
    RequestError,
    UsageError,
)
from delta_sharing_client.fetch.place import UrlSource
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.plan.changes import FeedPart
from delta_sharing_client.plan.read_columns import unbounded_paths
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState, version_number
from delta_sharing_client.predicates.hints import to_json_hints
from delta_sharing_client.predicates.tree import And, all_of, columns
from delta_sharing_client.protocol import windows
from delta_sharing_client.protocol.fresh_urls import RefreshingUrls
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import (
    ChangesQuery,
    QueryRequest,
    TableResponse,
    query_table,
    table_metadata,
)
from delta_sharing_client.sources.table_source import (
    Commit,
    Feed,
    FeedWindows,
    Files,
    HeadRequest,
    Purpose,
    TableSource,
    Window,
)


class ServerSource(TableSource):
    """A table as its server describes and lists it."""

    def head(self, request: HeadRequest) -> TableHead:
        version = version_number(request.version)
        try:
            return table_metadata(
                self.rest,
                self.name,
                version=version,
                timestamp=request.timestamp,
                response_format=request.response_format,
                operation=request.operation,
                as_queries=request.as_queries,
            )
        except (RequestError, ProtocolError) as error:
            if version is None:
                raise
            # Not every server returns the metadata of a version, but every snapshot starts with its metadata.
            query = QueryRequest(version=version, limit_hint=1)
            try:
                with query_table(self.rest, self.name, query, response_format=request.response_format) as response:
                    return response.head
            except DeltaSharingError:
                raise error from None

    def version(self, since: str | None = None, *, operation: Operation = Operation.SNAPSHOT) -> int:
        return self.rest.table_version(self.name, since)

    def state(self, request: ScanRequest) -> TableState:
        if is_latest(request):
            head = self.head(HeadRequest(response_format=request.response_format))
            self._check(head, Operation.SNAPSHOT)
            return self._state(head)
        # Older servers refuse the metadata of an old version, or return the current one, and only the delta format has
        # row tracking. So the first lines of a query are used, as in a read.
        files = self.files(dataclasses.replace(request, limit=1), Purpose.READ)
        files.close()
        return files.state

    def files(self, request: ScanRequest, purpose: Purpose) -> Files:
        response, query = self._ask(request)
        # The refresh token comes at the end of the response; until then, URLs are renewed by requesting the version.
        state = self._state(response.head, RefreshingUrls(self.rest, self.name, query, response))
        # A plan with all files holds their names in any case. With a filter, most files may be skipped, so the names
        # are limited.
        most = HELD_NAMES if purpose is Purpose.READ or request.skipping is not None else sys.maxsize
        notes: list[str] = []
        blocks: Generator[list[SharedFile], None, object]
        if query.json_predicate_hints is None and query.limit_hint is None:
            blocks = checked_files(response, self.name, most, self.options, notes)
        else:
            blocks = live_files(response, self.name, most)
        return Files(
            state=state,
            blocks=blocks,
            table_files=response.head.num_files,
            notes=notes,
            release=response.close,
            break_off=response.break_off,
        )

    def _ask(self, request: ScanRequest) -> tuple[TableResponse, QueryRequest]:
        """Return the response for a readable snapshot, and the query."""
        hints, hinted = (None, None) if request.skipping is None else self._typed_hints(request)
        query = QueryRequest(
            json_predicate_hints=hints,
            # A server counts rows before our filter, so a limit is a valid hint only without a filter.
            limit_hint=request.limit if request.skipping is None else None,
            version=request.number,
            timestamp=request.timestamp,
            asynchronous=self.options.async_query,
        )
        response = query_table(self.rest, self.name, query, response_format=request.response_format)
        if hints is not None and hinted != _columns_of(response.head.metadata):
            # The table changed between the two requests, so hints for the old columns could hide rows of the new
            # columns.
            response.close()
            query = dataclasses.replace(query, json_predicate_hints=None)
            response = query_table(self.rest, self.name, query, response_format=request.response_format)
        with closed_by_errors(response.close):
            self._check(response.head, Operation.SNAPSHOT)
        return response, query

    def _typed_hints(self, request: ScanRequest) -> tuple[str | None, _Columns | None]:
        """Return the hints for the filters of ``request``, and the columns for which they were made.

        Unless the schema is known, this first requests it. The extra request is worth it, because hints reduce the
        number of files.
        """
        is_of_past = request.version is not None or request.timestamp is not None
        try:
            described = request.described or self._described(request)
            schema_string, partition_columns = described
            schema = parse_schema(schema_string)
            bound = dataclasses.replace(request, columns=None).bound(schema).skipping
        except (RequestError, ProtocolError, UsageError):
            if not is_of_past:
                raise
            # Older servers refuse the metadata of an old version, or return the current one; hints are optional.
            return None, None
        assert bound is not None
        # Hints must not name columns that the read adds, because servers do not know them, nor columns with a
        # collation, because filters compare without it.
        unsaid = {field.name for field in request.added_fields}
        unsaid |= {field.name for field in schema.fields if field.collation is not None}
        # The same is true of columns whose text may be replaced (``invalid_text``), because a server's statistics
        # describe the original text.
        unsaid |= {path[0] for path in unbounded_paths(bound, self.options)} - set(partition_columns)
        parts = bound.children if isinstance(bound, And) else (bound,)
        said = all_of(part for part in parts if not unsaid & {path[0] for path in columns(part)})
        return to_json_hints(said, partition_columns), described

    def _described(self, request: ScanRequest) -> _Columns:
        head = table_metadata(
            self.rest,
            self.name,
            version=request.number,
            timestamp=request.timestamp,
            response_format=request.response_format,
            as_queries=True,
        )
        return _columns_of(head.metadata)

    def changes(self, request: ChangesRequest, purpose: Purpose) -> Feed:
        query = ChangesQuery(
            starting_version=request.starting_version,
            ending_version=request.ending_version,
            starting_timestamp=request.starting_timestamp,
            ending_timestamp=request.ending_timestamp,
            of_view=request.starting_version is None and request.ending_version is None,
        )
        response = query_table(self.rest, self.name, query, response_format=request.response_format)
        with closed_by_errors(response.close):
            self._check(response.head, Operation.CHANGES)
            most = windows.FEW if purpose is Purpose.READ else 0
            beginning = list(itertools.islice(response.actions, most))
            in_windows = self._windows(query, response, beginning) if most and len(beginning) == most else None
        return Feed(
            state=self._state(response.head, RefreshingUrls(self.rest, self.name, query, response)),
            actions=itertools.chain(beginning, response.actions),
            windows=in_windows,
            is_view=response.head.is_view,
            release=response.close,
        )

    def _windows(
        self, query: ChangesQuery, response: TableResponse, beginning: Sequence[TableAction]
    ) -> FeedWindows | None:
        """Return the windows of a long feed, ``None`` if one response must list it."""
        feed = windows.feed_windows(self.rest, self.name, query, response, beginning)
        if feed is None:
            return None
        try:
            self._check(feed.end, Operation.CHANGES)
        except DeltaSharingError:
            # The complete feed reports since which version it cannot be read.
            return None
        state = dataclasses.replace(self._state(feed.end, feed.urls), version=feed.last)
        return FeedWindows(state=state, parts=self._parts(feed), break_off=feed.break_off)

    def _parts(self, feed: windows.FeedWindows) -> Generator[FeedPart, None, None]:
        for window in feed.windows():
            self._check(window.head, Operation.CHANGES)
            yield FeedPart(window.first, window.head.metadata, window.actions)

    def window(self, first: int, last: int | None, *, feed: bool, response_format: ResponseFormat) -> Window:
        query: QueryRequest | ChangesQuery
        if last is None:
            query = QueryRequest(version=first)
        else:
            query = (ChangesQuery if feed else QueryRequest)(starting_version=first, ending_version=last)
        response = query_table(self.rest, self.name, query, response_format=response_format)
        urls = RefreshingUrls(self.rest, self.name, query, response)
        return Window(
            head=response.head,
            blocks=live_files(response, self.name) if last is None else response.blocks,
            close=response.close,
            state_with=lambda options: self._state(response.head, urls, options),
        )

    def commits(self, first: int, last: int | None) -> Sequence[Commit] | None:
        return None

    def _check(self, head: TableHead, operation: Operation) -> None:
        check_readable(head.protocol, head.metadata, operation=operation, table=str(self.name))

    def _state(self, head: TableHead, urls: UrlSource | None = None, options: ReadOptions | None = None) -> TableState:
        name, options = str(self.name), options or self.options
        return TableState(
            name=name,
            version=head.version,
            protocol=head.protocol,
            metadata=head.metadata,
            place=None if urls is None else SignedUrls(options, self.rest.allowed_data, name, urls),
            query_id=self.rest.query_id,
        )


def is_latest(request: ScanRequest) -> bool:
    """Return whether the description of the latest version is enough for the schema of ``request``."""
    return request.version is None and request.timestamp is None and not request.row_lineage


@contextlib.contextmanager
def closed_by_errors(close: Callable[[], None]) -> Iterator[None]:
    """Call ``close`` if the ``with`` block raises."""
    try:
        yield
    except BaseException:
        close()
        raise


_Columns = tuple[str, list[str]]
"""The schema and the partition columns, on which hints depend: some are made only for partition columns."""


def _columns_of(metadata: Metadata) -> _Columns:
    return metadata.schema_string, metadata.partition_columns


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


def checked_files(
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
