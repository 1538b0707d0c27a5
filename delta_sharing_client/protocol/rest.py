"""The endpoints of a sharing server, one method each (protocol, "REST APIs")."""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from delta_sharing_client.errors import (
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
    about_table,
)
from delta_sharing_client.protocol.body import html_page
from delta_sharing_client.protocol.loose import MALFORMED, Loosened, decode, problem_of
from delta_sharing_client.protocol.messages import (
    VERSION_HEADER,
    ItemsPage,
    SchemaItem,
    ShareAnswer,
    ShareItem,
    TableItem,
    TemporaryCredentials,
    TemporaryCredentialsAnswer,
    version_header,
)
from delta_sharing_client.protocol.names import Schema, Share, Table, TableName, check_name
from delta_sharing_client.protocol.transport import Request, Transport

_MAX_EMPTY_PAGES = 1000
_UNKNOWN_ENDPOINT = frozenset({404, 405, 501})

_log = logging.getLogger(__name__)

T = TypeVar("T")


class RestClient(Transport):
    """The REST API of one profile's server.

    Every method raises ``AuthError``, ``NotFoundError``, ``RequestError``, ``TransportError``, ``ProtocolError``, and
    ``ProfileError`` for an expired token.
    """

    def __repr__(self) -> str:
        return f"RestClient({self.profile.endpoint!r})"

    @property
    def allows_http_data(self) -> bool:
        """Whether files may be downloaded over ``http:`` from any host, because the endpoint itself is ``http:``."""
        return urlsplit(self.profile.endpoint).scheme == "http"

    @contextlib.contextmanager
    def about(self, table: TableName) -> Iterator[None]:
        """Add ``table`` to the errors of a block; if it does not exist, also the nearest name that does."""
        with self._advised(lambda: self._near_table(table)), about_table(str(table), self.query_id):
            yield

    @contextlib.contextmanager
    def _advised(self, advice: Callable[[], str | None]) -> Iterator[None]:
        """Add ``advice``, once, to the error for a name that was not found; ``None`` if the name is shared."""
        try:
            yield
        except NotFoundError as error:
            if not error.advised:
                with contextlib.suppress(DeltaSharingError):
                    if (sentence := advice()) is not None:
                        error.add(sentence)
            error.advised = True
            raise

    def _near_table(self, table: TableName) -> str | None:
        shares = [share.name for share in self.list_shares()]
        if not shares:
            return "Nothing is shared with this profile."
        near = difflib.get_close_matches(table.share.lower(), [name.lower() for name in shares], cutoff=0.0)
        share = next(name for name in shares if name.lower() == near[0])
        names = [str(item.full_name) for item in self.list_all_tables(share)]
        return _nearest(str(table), names, "'list_all_tables()' lists what is shared.")

    def _near_schema(self, share: str, schema: str | None = None) -> str | None:
        given, names = share, [item.name for item in self.list_shares()]
        if schema is not None and share.lower() in (name.lower() for name in names):
            given, names = f"{share}.{schema}", [f"{share}.{item.name}" for item in self.list_schemas(share)]
        return _nearest(given, names, f"There are: {', '.join(names)}." if names else "Nothing is shared with you.")

    def list_shares(self) -> list[Share]:
        """List Shares: all pages."""
        return [_share(item) for item in self._list(("shares",), ShareItem, "Listing the shares")]

    def get_share(self, share: str) -> Share:
        """Get Share."""
        doing = f"Looking up share {share}"
        request = Request(method="GET", path=("shares", check_name(share, "share")), doing=doing)
        with self._advised(lambda: self._near_schema(share)):
            return _share(self._json(request, ShareAnswer).share)

    def list_schemas(self, share: str) -> list[Schema]:
        """List Schemas in a Share: all pages."""
        path = ("shares", check_name(share, "share"), "schemas")
        with self._advised(lambda: self._near_schema(share)):
            items = self._list(path, SchemaItem, f"Listing the schemas of share {share}")
        return [Schema(item.name, item.share or share, item.id, item.display_name) for item in items]

    def list_tables(self, share: str, schema: str) -> list[Table]:
        """List Tables in a Schema: all pages."""
        path = ("shares", check_name(share, "share"), "schemas", check_name(schema, "schema"), "tables")
        with self._advised(lambda: self._near_schema(share, schema)):
            items = self._list(path, TableItem, f"Listing the tables of schema {share}.{schema}")
        return [_table(item, share, schema) for item in items]

    def list_all_tables(self, share: str) -> list[Table]:
        """List all Tables in a Share: all pages; schema by schema if the server lacks this endpoint."""
        path = ("shares", check_name(share, "share"), "all-tables")
        doing = f"Listing all tables of share {share}"
        try:
            items = self._list(path, TableItem, doing, negotiates=True)
        except RequestError as error:
            if error.status not in _UNKNOWN_ENDPOINT:
                raise
            # A 404 may also mean that there is no such share: then listing its schemas says so.
            return [t for schema in self.list_schemas(share) for t in self.list_tables(share, schema.name)]
        for item in items:
            if not item.schema:
                _log.warning("%s: table %r is left out, because the server names no schema for it.", doing, item.name)
        return [_table(item, share, item.schema) for item in items if item.schema]

    def table_version(self, table: TableName, starting_timestamp: str | None = None) -> int:
        """Query Table Version: the current version, or the earliest at or after ``starting_timestamp`` (ISO 8601).

        Servers without the ``/version`` endpoint get a ``HEAD`` request, which has no timestamp.
        """
        doing = f"Asking for the version of {table}"
        params = {} if starting_timestamp is None else {"startingTimestamp": starting_timestamp}
        has_other_way = starting_timestamp is None
        request = _table_request("GET", table, ("version",), doing, params=params, negotiates=has_other_way)
        try:
            response, _ = self.fetch(request)
        except RequestError as error:
            if error.status not in _UNKNOWN_ENDPOINT or not has_other_way:
                raise
            # A 404 may mean the endpoint or the table, whatever its code; HEAD shows which.
            try:
                response, _ = self.fetch(_table_request("HEAD", table, (), doing))
            except RequestError:
                raise error from None
        version = version_header(response.headers, doing, str(table), self.secrets())
        if version is None:
            raise ProtocolError(f"{doing}: the response has no {VERSION_HEADER} header.", table=str(table))
        return version

    def temporary_table_credentials(
        self, table: TableName, location: str | None = None, *, negotiates: bool = False
    ) -> TemporaryCredentials:
        """Generate Temporary Table Credential, for the table's main location or an auxiliary ``location``;
        ``negotiates`` as in ``retry.is_retried``."""
        doing = f"Asking for storage credentials of {table}"
        body = None if location is None else {"location": location}
        path = ("temporary-table-credentials",)
        request = _table_request("POST", table, path, doing, body=body, negotiates=negotiates)
        credentials = self._json(request, TemporaryCredentialsAnswer).credentials
        given = (credentials.aws_temp_credentials, credentials.azure_user_delegation_sas, credentials.gcp_oauth_token)
        count = sum(one is not None for one in given)
        # A directory of this machine needs no keys.
        expected = 0 if credentials.location.startswith("file:") else 1
        if count < expected:
            raise UnsupportedFeatureError(
                f"{doing}: expected credentials for AWS, Azure or Google Cloud, found those of another kind, for a "
                f"location in '{urlsplit(credentials.location).scheme}:'. Read the table by URL.",
                feature="temporary credentials",
                table=str(table),
            )
        if count > expected:
            raise ProtocolError(
                f"{doing}: expected credentials of exactly one cloud, found those of {count}.", table=str(table)
            )
        return credentials

    def _json(self, request: Request, answer: type[T]) -> T:
        _, body = self.fetch(request)
        loosened = Loosened(request.doing)
        try:
            return decode(body, answer, loosened)
        except MALFORMED as error:
            page = html_page(body, self.secrets())
            found = f"({problem_of(error)})" if body.strip() else "(an empty body)"
            problem = f"the response is not the JSON that the protocol defines {found}"
            if page is not None:
                problem = (
                    f"expected JSON, found {page}; check the endpoint of the profile, and "
                    "whether a proxy or a login page answers in its place"
                )
            raise ProtocolError(f"{request.doing}: {problem}.", table=request.table) from None
        finally:
            loosened.tell()

    def _list(self, path: tuple[str, ...], kind: type[T], doing: str, *, negotiates: bool = False) -> list[T]:
        items: list[T] = []
        tokens = PageTokens(doing)
        within = self.operation()
        token = None
        while True:
            params: dict[str, str] = {} if token is None else {"pageToken": token}
            request = Request(method="GET", path=path, doing=doing, params=params, negotiates=negotiates and not params)
            answer = within._json(request, ItemsPage)
            items.extend(_items(answer.items or [], kind, doing))
            token = tokens.next(answer.next_page_token, is_empty=not answer.items)
            if token is None:
                return items

    # --- streamed responses, for protocol.query ---

    def metadata_request(
        self, table: TableName, headers: Mapping[str, str], version: int | None, timestamp: str | None
    ) -> Request:
        """Query Table Metadata, of the latest version or as of ``version`` or ``timestamp``."""
        params = {k: str(v) for k, v in (("version", version), ("timestamp", timestamp)) if v is not None}
        doing = f"Reading the metadata of {table}"
        return _table_request("GET", table, ("metadata",), doing, params=params, headers=headers)

    def query_request(self, table: TableName, headers: Mapping[str, str], body: Mapping[str, object]) -> Request:
        """Read Data from a Table."""
        return _table_request("POST", table, ("query",), f"Querying {table}", headers=headers, body=body)

    def query_status_request(
        self, table: TableName, headers: Mapping[str, str], query_id: str, body: Mapping[str, object]
    ) -> Request:
        """Get the result of an asynchronous query."""
        doing = f"Waiting for the query of {table}"
        return _table_request("POST", table, ("queries", query_id), doing, headers=headers, body=body)

    def changes_request(self, table: TableName, headers: Mapping[str, str], params: Mapping[str, str]) -> Request:
        """Read Change Data Feed from a Table."""
        doing = f"Reading the changes of {table}"
        return _table_request("GET", table, ("changes",), doing, params=params, headers=headers)


class PageTokens:
    """The tokens of a response's pages; detects pages that never end."""

    def __init__(self, doing: str, table: str | None = None) -> None:
        self._doing, self._table = doing, table
        self._seen: set[str] = set()
        self._empty = 0

    def next(self, token: str | None, *, is_empty: bool) -> str | None:
        """Return the token of the page after the one with ``token``, ``None`` if that was the last.

        Raises ``ProtocolError`` if the pages would never end: a token is repeated, or many pages in a row are empty.
        """
        if not token:
            return None
        self._empty = self._empty + 1 if is_empty else 0
        if token in self._seen or self._empty > _MAX_EMPTY_PAGES:
            reason = "the same nextPageToken twice" if token in self._seen else f"{self._empty} empty pages in a row"
            raise ProtocolError(
                f"{self._doing} failed: the server gave {reason}; its pages would never end.", table=self._table
            )
        self._seen.add(token)
        return token


def _table_request(
    method: str,
    table: TableName,
    path: tuple[str, ...],
    doing: str,
    *,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Mapping[str, object] | None = None,
    negotiates: bool = False,
) -> Request:
    base = ("shares", table.share, "schemas", table.schema, "tables", table.table)
    return Request(
        method=method,
        path=base + path,
        doing=doing,
        table=str(table),
        params=params or {},
        headers=headers or {},
        body=None if body is None else msgspec.json.encode(body),
        negotiates=negotiates,
    )


def _items(listed: list[msgspec.Raw], kind: type[T], doing: str) -> list[T]:
    """Return the readable items and log the others; ``ProtocolError`` if all of them are broken."""
    items: list[T] = []
    loosened = Loosened(doing)
    broken = ""
    for number, raw in enumerate(listed, 1):
        try:
            items.append(decode(raw, kind, loosened))
        except MALFORMED as error:
            broken = f"item {number} of the response cannot be read: {problem_of(error)}"
            _log.warning("%s: %s. It is left out.", doing, broken)
    loosened.tell()
    if broken and not items:
        raise ProtocolError(f"{doing}: {broken}, nor can any other; ask the data provider.")
    return items


def _nearest(given: str, names: list[str], otherwise: str) -> str | None:
    """Return advice for a name that is none of ``names``; ``None`` if it is one."""
    spelled = {name.lower(): name for name in names}
    if given.lower() in spelled:
        return None
    close = difflib.get_close_matches(given.lower(), list(spelled))
    return f"Did you mean '{spelled[close[0]]}'?" if close else otherwise


def _share(item: ShareItem) -> Share:
    return Share(item.name, item.id, item.display_name, item.comment, item.properties or {})


def _table(item: TableItem, share: str, schema: str) -> Table:
    return Table(
        name=item.name,
        share=item.share or share,
        schema=item.schema or schema,
        id=item.id,
        share_id=item.share_id,
        display_name=item.display_name,
        location=item.location,
        auxiliary_locations=tuple(item.auxiliary_locations or ()),
        access_modes=tuple(item.access_modes or ()),
    )
