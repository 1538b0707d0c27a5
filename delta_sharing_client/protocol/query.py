"""Queries of a shared table and their responses (protocol, "Query Table Metadata", "Read Data from a Table", "Read
Change Data Feed from a Table")."""

from __future__ import annotations

import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, TypeVar, Union

from delta_sharing_client.delta.actions import TableAction
from delta_sharing_client.delta.features import Operation, reader_features
from delta_sharing_client.errors import NotFoundError, ProtocolError, RequestError, UsageError
from delta_sharing_client.http.request_limits import Interrupt
from delta_sharing_client.http.retry import NOT_IMPLEMENTED
from delta_sharing_client.options import ResponseFormat, choice
from delta_sharing_client.protocol.deviations import Deviations
from delta_sharing_client.protocol.line_order import ResponseRules, TableHead
from delta_sharing_client.protocol.messages import (
    ASYNCHRONOUS,
    CHANGES_OF_VIEWS,
    END_STREAM_ACTION,
    capabilities,
    file_id_hash,
)
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.response_stream import ResponseStream, ask_once
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.transport import Request, Transport

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_FORMAT_REFUSED = frozenset({"UNSUPPORTED_OPERATION", "NOT_IMPLEMENTED"})

_Formats = tuple[ResponseFormat, ...]
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """The common fields of queries: a range of versions, and whether to request the protocol changes in it (in delta
    format)."""

    starting_version: int | None = None
    ending_version: int | None = None
    include_historical_protocol: bool = True

    def __post_init__(self) -> None:
        for name in ("version", "starting_version", "ending_version"):
            check_version(name, getattr(self, name))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest(_Query):
    """A query of a snapshot, or of the data changes in a range of versions. ``UsageError`` for an invalid version.

    At most one of ``version``, ``timestamp`` (in the protocol's format), ``starting_version`` and ``refresh_token``
    (of the snapshot whose URLs are renewed) may be given. Files after ``ending_version`` are dropped, if the server
    sends them. The server may omit files that ``json_predicate_hints`` exclude ("JSON predicates for Filtering"),
    or that are not needed for ``limit_hint`` rows. A refresh token is requested where the protocol allows it: for
    the latest snapshot. An ``asynchronous`` query, for slow tables, is computed by the server while the client
    polls.
    """

    json_predicate_hints: str | None = None
    limit_hint: int | None = None
    version: int | None = None
    timestamp: str | None = None
    refresh_token: str | None = dataclasses.field(default=None, repr=False)
    asynchronous: bool = False
    of_view: ClassVar[bool] = False

    @property
    def is_latest(self) -> bool:
        """Whether the query is for the latest snapshot, so that the server may return a refresh token."""
        return self.version is None and self.timestamp is None and self.starting_version is None

    @property
    def operation(self) -> Operation:
        """``SNAPSHOT``, or ``STREAMING`` for a range of versions."""
        return Operation.SNAPSHOT if self.starting_version is None else Operation.STREAMING

    def body(self, page_token: str | None, formats: tuple[ResponseFormat, ...]) -> dict[str, object]:
        """Return the JSON body of the request for a page: all have the same fields, but only the first has those about
        the refresh token."""
        historical = self.starting_version is not None and ResponseFormat.DELTA in formats
        first = page_token is None
        fields = {
            "jsonPredicateHints": self.json_predicate_hints,
            "limitHint": self.limit_hint if (self.limit_hint or 0) <= _MAX_INT32 else None,
            "version": self.version,
            "timestamp": self.timestamp,
            "startingVersion": self.starting_version,
            "endingVersion": self.ending_version,
            "includeHistoricalProtocol": True if historical and self.include_historical_protocol else None,
            "pageToken": page_token,
            "includeRefreshToken": True if first and self.is_latest else None,
            "refreshToken": self.refresh_token if first else None,
        }
        return _given(fields)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangesQuery(_Query):
    """A query of the change data feed. ``UsageError`` for an invalid version.

    It has one start and at most one end, both inclusive: versions, or timestamps in the protocol's format. ``of_view``
    also accepts the changes of a view, which have no versions.
    """

    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    of_view: bool = False
    version: ClassVar[None] = None
    asynchronous: ClassVar[bool] = False
    operation: ClassVar[Operation] = Operation.CHANGES

    def params(self, page_token: str | None, formats: tuple[ResponseFormat, ...]) -> dict[str, str]:
        """Return the parameters in the URL of the request for a page."""
        historical = self.include_historical_protocol and ResponseFormat.DELTA in formats
        fields = {
            "startingVersion": self.starting_version,
            "startingTimestamp": self.starting_timestamp,
            "endingVersion": self.ending_version,
            "endingTimestamp": self.ending_timestamp,
            "includeHistoricalMetadata": "true",
            "includeHistoricalProtocol": "true" if historical else None,
            "pageToken": page_token,
        }
        return {key: str(value) for key, value in _given(fields).items()}


TableQuery = Union[QueryRequest, ChangesQuery]


class TableResponse:
    """A response whose ``head`` has been read, and whose actions are streamed: one by one (``actions``), or in lists as
    they arrive (``blocks``).

    The actions are the files of all pages, and for a range of versions also ``VersionedMetadata`` and
    ``VersionedProtocol``. They can be consumed once. Both iterators raise if the response is incomplete, malformed or
    reports an error, so a response is complete only when its iterator is exhausted.
    """

    def __init__(self, pages: ResponseStream) -> None:
        self.head = pages.head
        self._pages = pages
        self.blocks = pages.actions()
        self.actions: Iterator[TableAction] = itertools.chain.from_iterable(self.blocks)

    @property
    def refresh_token(self) -> str | None:
        """The token that renews the URLs, if the server sent one; ``None`` until the end of the page that has it."""
        return self._pages.refresh_token

    @property
    def first_renewal(self) -> int | None:
        """When the first of the URLs should be replaced (``SharedFile.renew_at``); known once ``actions`` is
        exhausted."""
        return self._pages.first_renewal

    def close(self) -> None:
        """Close the response without reading the rest."""
        self._pages.close()
        self.blocks.close()

    def break_off(self) -> None:
        """From another thread: make ``actions`` raise ``CancelledError`` or a connection error, and close."""
        self._pages.break_off()

    def __enter__(self) -> TableResponse:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def table_metadata(
    rest: RestClient,
    table: AssetName,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    response_format: ResponseFormat = ResponseFormat.AUTO,
    operation: Operation = Operation.SNAPSHOT,
    as_queries: bool = False,
) -> TableHead:
    """Request the protocol and metadata of the latest version, or as of ``version`` or ``timestamp``.

    With ``AUTO``, the server chooses the format; with ``as_queries``, it is the format that ``query_table`` would use.
    This matters because in parquet format the schema lacks the metadata of columns. A table without URL access is
    described as well (``access_modes``). Raises the errors of ``RestClient`` and ``UnsupportedFeatureError``.
    """
    check_version("version", version)
    features = reader_features(operation)

    def ask(formats: _Formats) -> TableHead:
        request = rest.metadata_request(table, capabilities(formats, features), version, timestamp)
        rules = ResponseRules(
            table=table, operation=Operation.SNAPSHOT, formats=formats, version=version, lists_files=False
        )
        within = rest.operation()
        return within.repeat(lambda: _head(within, request, rules))

    if as_queries:
        return _negotiated(ask, response_format)
    return _negotiated(ask, response_format, (ResponseFormat.DELTA, ResponseFormat.PARQUET))


def _head(transport: Transport, request: Request, rules: ResponseRules) -> TableHead:
    deviations = Deviations(request.doing)
    response = ask_once(transport, request, rules, deviations)
    try:
        if response.status is not None or next(response.actions(), None) is not None:
            raise ProtocolError(
                f"{request.doing}: expected only a protocol and a metaData line, found another line.",
                table=request.table,
            )
        return response.head
    finally:
        response.close()
        deviations.tell()


def query_table(
    rest: RestClient,
    table: AssetName,
    query: TableQuery | None = None,
    *,
    response_format: ResponseFormat = ResponseFormat.AUTO,
    interrupt: Interrupt | None = None,
) -> TableResponse:
    """Query a snapshot (by default the latest), the data changes of a range of versions, or the change data feed.

    The ``response_format`` ``AUTO`` requests delta, which can represent every table, and accepts a parquet response
    from servers that do not know delta. (The protocol allows two formats in one query, but common servers refuse that.)
    ``interrupt`` ends the response, like ``break_off``. This function and ``actions`` raise the errors of
    ``RestClient``, and ``UnsupportedFeatureError`` for a table without URL access or a response of a newer protocol.
    """
    asked = query or QueryRequest()
    key = {"idempotencyKey": uuid.uuid4().hex} if asked.asynchronous else {}
    return _negotiated(lambda formats: _asked(rest, table, asked, formats, key, interrupt), response_format)


def _asked(
    rest: RestClient,
    table: AssetName,
    query: TableQuery,
    formats: _Formats,
    key: dict[str, str],
    interrupt: Interrupt | None,
) -> TableResponse:
    """Send ``query``; if the server refuses a field, send it again without the field, or with another name for it.

    Hints do not change which rows are read, and a server may fail on them: the reference server responds with a 500 to
    a hint for a partition whose timestamp it cannot parse.
    """
    try:
        return _query(rest, table, query, formats, key, interrupt)
    except RequestError as error:
        by_hints = error.status in (400, 500) and error.error_code not in _FORMAT_REFUSED
        if by_hints and isinstance(query, QueryRequest) and query.json_predicate_hints is not None:
            query = dataclasses.replace(query, json_predicate_hints=None)
        elif error.status != 400:
            raise
        elif query.include_historical_protocol and "includehistoricalprotocol" in (error.server_message or "").lower():
            query = dataclasses.replace(query, include_historical_protocol=False)
        elif "idempotencyKey" in key and "idempotency_key" in error.message:
            # The field is idempotencyKey in the specification, but idempotency_key in the reference server's messages.
            key = {"idempotency_key": key["idempotencyKey"]}
        else:
            raise
    return _asked(rest, table, query, formats, key, interrupt)


def _query(
    rest: RestClient,
    table: AssetName,
    query: TableQuery,
    formats: _Formats,
    key: dict[str, str],
    interrupt: Interrupt | None,
) -> TableResponse:
    flags = {ASYNCHRONOUS: query.asynchronous, END_STREAM_ACTION: True, CHANGES_OF_VIEWS: query.of_view}
    headers = capabilities(formats, reader_features(query.operation), flags)
    asked = rest.options.file_id_hash
    ids = file_id_hash(None if asked is None else choice(asked))
    rules = ResponseRules(
        table=table,
        operation=query.operation,
        formats=formats,
        version=query.version,
        starting_version=query.starting_version,
        ending_version=query.ending_version,
        may_be_view=query.of_view,
    )

    requests = itertools.count()

    def make_request(token: str | None, query_id: str | None) -> Request:
        if query_id is not None:
            return rest.query_status_request(table, headers, query_id, _given({"pageToken": token}))
        if isinstance(query, ChangesQuery):
            return rest.changes_request(table, headers | ids, query.params(token, formats))
        request = rest.query_request(table, headers | ids, query.body(token, formats) | key)
        may_fail = query.json_predicate_hints is not None and next(requests) == 0
        return dataclasses.replace(request, has_alternative=may_fail)

    return TableResponse(ResponseStream(rest, rules, make_request, interrupt))


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _negotiated(
    ask: Callable[[_Formats], T], response_format: ResponseFormat, first: _Formats = (ResponseFormat.DELTA,)
) -> T:
    """Return the result of ``ask`` for ``response_format``. With ``AUTO``, ask for the formats ``first``, and if the
    server does not support them, for parquet."""
    if response_format is not ResponseFormat.AUTO:
        return ask((response_format,))
    try:
        return ask(first)
    except RequestError as error:
        if error.status != NOT_IMPLEMENTED and error.error_code not in _FORMAT_REFUSED:
            raise
        refused = error
    try:
        return ask((ResponseFormat.PARQUET,))
    except NotFoundError:
        raise
    except (RequestError, ProtocolError):
        # Parquet fails as well, so the format was not the problem; the first error is more helpful.
        raise refused from None


def check_version(name: str, value: object) -> None:
    """Raise ``UsageError`` unless ``value`` is ``None`` or a valid version number (not a bool)."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_INT64):
        raise UsageError(f"'{name}' must be a whole number from 0 to {_MAX_INT64}, found {value!r}.")
