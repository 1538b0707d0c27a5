"""Queries of a shared table and their answers (protocol, "Query Table Metadata", "Read Data from a Table", "Read Change
Data Feed from a Table")."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.features import Operation, reader_features
from delta_sharing_client.errors import ProtocolError, RequestError
from delta_sharing_client.instants import to_instant
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.answer import AnswerKind, TableAction, TableHead
from delta_sharing_client.protocol.capabilities import HEADER, capabilities_header
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.page import FILE_ID_HASH_HEADER, AnswerRules, Page
from delta_sharing_client.protocol.pages import Pages
from delta_sharing_client.protocol.requests import ChangesQuery, QueryRequest, check_number, check_one_of
from delta_sharing_client.protocol.rest import RestClient

T = TypeVar("T")


class TableAnswer:
    """An answer whose head is read and whose actions stream.

    Attributes
    ----------
    head:
        The first lines and headers; its fields are attributes of the answer as well.
    actions:
        The file actions with ``file_id`` and the ``shared_*`` fields set, and ``VersionedMetadata`` and
        ``VersionedProtocol`` where a range of versions holds them. All pages; consumed once. Raises where the answer
        is incomplete, malformed or reports an error, so only an exhausted iterator is a whole answer.
    """

    def __init__(self, head: TableHead, pages: Pages) -> None:
        self.head = head
        self._pages = pages
        self.actions: Iterator[TableAction] = pages.actions()

    @property
    def version(self) -> int:
        """The snapshot's version; of changes, the first version of the range."""
        return self.head.version

    @property
    def response_format(self) -> ResponseFormat:
        """The format that the answer has."""
        return self.head.response_format

    @property
    def protocol(self) -> Protocol:
        """The protocol action."""
        return self.head.protocol

    @property
    def metadata(self) -> Metadata:
        """The metadata action."""
        return self.head.metadata

    @property
    def metadata_version(self) -> int | None:
        """The version that the server states for ``metadata``."""
        return self.head.metadata_version

    @property
    def table_size(self) -> int | None:
        """Bytes of the table, where the server tells."""
        return self.head.table_size

    @property
    def num_files(self) -> int | None:
        """Files of the table, where the server tells."""
        return self.head.num_files

    @property
    def refresh_token(self) -> str | None:
        """The token that renews the URLs; known once ``actions`` is exhausted."""
        return self._pages.refresh_token

    @property
    def min_url_expiration(self) -> int | None:
        """When the first URL expires, in epoch milliseconds; known once ``actions`` is exhausted."""
        return self._pages.min_url_expiration

    @property
    def complete(self) -> bool:
        """Whether ``actions`` is exhausted, and so the answer known to be whole."""
        return self._pages.complete

    def close(self) -> None:
        """Give up what has not been read."""
        self._pages.close()

    def __enter__(self) -> TableAnswer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def table_metadata(
    rest: RestClient,
    table: TableName,
    *,
    version: int | None = None,
    timestamp: str | None = None,
    response_format: ResponseFormat = ResponseFormat.AUTO,
    operation: Operation = Operation.SNAPSHOT,
) -> TableHead:
    """Ask for protocol and metadata, of the latest version or as of ``version`` or ``timestamp`` (ISO 8601).

    With ``AUTO`` the server chooses the format. A table without URL access is described as well
    (``access_modes``). Raises the errors of ``RestClient`` and ``UnsupportedFeatureError``.
    """
    check_number("version", version, least=0)
    check_one_of(version=version, timestamp=timestamp)
    timestamp = None if timestamp is None else to_instant(timestamp, "timestamp")
    formats = (
        (ResponseFormat.DELTA, ResponseFormat.PARQUET) if response_format is ResponseFormat.AUTO else (response_format,)
    )
    headers = {HEADER: capabilities_header(formats, reader_features(operation))}
    request = rest.metadata_request(table, headers, version, timestamp)
    rules = AnswerRules(
        table=table,
        kind=AnswerKind.SNAPSHOT,
        formats=_understood(formats),
        version=version,
        needs_url_access=False,
    )

    def attempt() -> TableHead:
        page = Page(rest.transport, request, rest.transport.attempt(request), rules)
        try:
            if page.status is not None or next(page.actions(), None) is not None:
                raise ProtocolError(
                    f"{request.doing}: expected a protocol and a metaData line, found more.", table=str(table)
                )
            return page.head
        finally:
            page.close()

    return rest.transport.policy.call(attempt)


def query_table(
    rest: RestClient,
    table: TableName,
    request: QueryRequest | None = None,
    *,
    response_format: ResponseFormat = ResponseFormat.AUTO,
) -> TableAnswer:
    """Query the files of a snapshot, or the data changes of a range of versions.

    Parameters
    ----------
    request:
        What to ask; the latest snapshot by default.
    response_format:
        ``AUTO`` asks for delta, which can carry every table, and takes a parquet answer from servers that do not
        know it. (Two formats in one query are in the protocol, but common servers refuse that.)

    Raises
    ------
    The errors of ``RestClient``; ``UnsupportedFeatureError`` for a table without URL access or an answer of a newer
    protocol. The iterator ``actions`` raises them, too.
    """
    wanted = request or QueryRequest()
    operation = Operation.SNAPSHOT if wanted.kind is AnswerKind.SNAPSHOT else Operation.STREAMING
    idempotency_key = uuid.uuid4().hex if wanted.asynchronous else None

    def ask(formats: tuple[ResponseFormat, ...], key_name: str = "idempotencyKey") -> TableAnswer:
        headers = _headers(formats, operation, wanted.file_id_hash, asynchronous=wanted.asynchronous)
        rules = AnswerRules(
            table=table,
            kind=wanted.kind,
            formats=_understood(formats),
            version=wanted.version,
            starting_version=wanted.starting_version,
            ending_version=wanted.ending_version,
            fallback_version=wanted.version if wanted.starting_version is None else wanted.starting_version,
            file_id_hash=wanted.file_id_hash,
            poll_seconds=wanted.poll_seconds,
        )
        key = {} if idempotency_key is None else {key_name: idempotency_key}

        def status_body(token: str | None) -> dict[str, object]:
            fields = {"maxFiles": wanted.max_files, "pageToken": token}
            return {name: value for name, value in fields.items() if value is not None}

        pages = Pages(
            rest.transport,
            rules,
            lambda token: rest.query_request(table, headers, {**wanted.body(token, formats), **key}),
            lambda query_id, token: rest.query_status_request(table, headers, query_id, status_body(token)),
        )
        return TableAnswer(pages.head, pages)

    def ask_either_key(formats: tuple[ResponseFormat, ...]) -> TableAnswer:
        try:
            return ask(formats)
        except RequestError as error:
            # The specification says idempotencyKey, the reference server's messages say idempotency_key.
            if idempotency_key is None or error.status != 400 or "idempotency_key" not in error.message:
                raise
            return ask(formats, "idempotency_key")

    return _negotiated(ask_either_key, response_format)


def query_changes(
    rest: RestClient,
    table: TableName,
    request: ChangesQuery,
    *,
    response_format: ResponseFormat = ResponseFormat.AUTO,
) -> TableAnswer:
    """Query the change data feed; parameters and errors as in ``query_table``."""

    def ask(formats: tuple[ResponseFormat, ...]) -> TableAnswer:
        headers = _headers(formats, Operation.CHANGES, request.file_id_hash)
        rules = AnswerRules(
            table=table,
            kind=AnswerKind.CHANGES,
            formats=_understood(formats),
            starting_version=request.starting_version,
            ending_version=request.ending_version,
            fallback_version=request.starting_version,
            file_id_hash=request.file_id_hash,
        )
        pages = Pages(
            rest.transport,
            rules,
            lambda token: rest.changes_request(table, headers, request.params(token, formats)),
            lambda query_id, token: rest.query_status_request(table, headers, query_id, {}),
        )
        return TableAnswer(pages.head, pages)

    return _negotiated(ask, response_format)


def _negotiated(ask: Callable[[tuple[ResponseFormat, ...]], T], response_format: ResponseFormat) -> T:
    if response_format is not ResponseFormat.AUTO:
        return ask((response_format,))
    try:
        return ask((ResponseFormat.DELTA,))
    except RequestError as refused:
        if refused.status != 501 and refused.error_code not in {"UNSUPPORTED_OPERATION", "NOT_IMPLEMENTED"}:
            raise
        try:
            return ask((ResponseFormat.PARQUET,))  # a server that only speaks parquet and says so
        except RequestError:
            raise refused from None


def _headers(
    formats: tuple[ResponseFormat, ...], operation: Operation, file_id_hash: str | None, *, asynchronous: bool = False
) -> dict[str, str]:
    features = reader_features(operation)
    value = capabilities_header(formats, features, end_stream_action=True, asynchronous=asynchronous)
    return {HEADER: value} | ({} if file_id_hash is None else {FILE_ID_HASH_HEADER: file_id_hash})


def _understood(formats: tuple[ResponseFormat, ...]) -> frozenset[ResponseFormat]:
    # Servers that do not know the header answer in parquet, and the protocol wants clients to take that.
    return frozenset({*formats, ResponseFormat.PARQUET})


__all__ = [
    "ChangesQuery",
    "QueryRequest",
    "TableAction",
    "TableAnswer",
    "TableHead",
    "query_changes",
    "query_table",
    "table_metadata",
]
