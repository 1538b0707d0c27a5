"""The read-only Iceberg REST catalog of a sharing server (OpenSharing protocol, "Iceberg tables").

A share is a warehouse, a schema is a namespace of one level. Requests, time limits, retries and sign-in work as in the
sharing protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, Union
from urllib.parse import unquote

import msgspec

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.protocol.listings import PageTokens
from delta_sharing_client.protocol.loose import MALFORMED, problem_of
from delta_sharing_client.protocol.names import AssetName, check_name
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.transport import Request

if TYPE_CHECKING:
    from delta_sharing_client.iceberg.metadata import LoadedTable

T = TypeVar("T")
PageT = TypeVar("PageT", bound="_Page")

_DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}
_PREFIX = "prefix"


class _Config(msgspec.Struct):
    overrides: Union[dict[str, str], None] = None
    defaults: Union[dict[str, str], None] = None


class _Page(msgspec.Struct, rename="kebab"):
    next_page_token: Union[str, None] = None


class _Namespaces(_Page):
    namespaces: Union[list[list[str]], None] = None


class _Identifier(msgspec.Struct):
    namespace: list[str]
    name: str


class _Tables(_Page):
    identifiers: Union[list[_Identifier], None] = None


class Catalog:
    """The catalog at the Iceberg endpoint of a profile.

    Every method may raise ``AuthError``, ``NotFoundError``, ``RequestError``, ``TransportError`` or ``ProtocolError``,
    and raises ``UsageError`` if the profile has no Iceberg endpoint.
    """

    def __init__(self, rest: RestClient) -> None:
        self._rest = rest

    def namespaces(self, share: str) -> list[str]:
        """Return the schemas of a share that may have Iceberg tables."""
        doing = f"Listing the Iceberg namespaces of share {share}"
        path = (*self._path(share), "namespaces")
        names = self._pages(path, _Namespaces, doing, lambda page: page.namespaces or [])
        # A share has no deeper namespaces.
        return [namespace[0] for namespace in names if len(namespace) == 1]

    def tables(self, share: str, schema: str) -> list[str]:
        """Return the names of the Iceberg tables of a schema."""
        doing = f"Listing the Iceberg tables of schema {share}.{schema}"
        path = (*self._path(share), "namespaces", check_name(schema, "schema"), "tables")
        identifiers = self._pages(path, _Tables, doing, lambda page: page.identifiers or [])
        return [item.name for item in identifiers]

    def load(self, table: AssetName) -> LoadedTable:
        """Return a table's metadata, and credentials for its files."""
        # Imported here, because it needs Arrow, whose import takes longer than a listing.
        from delta_sharing_client.iceberg.metadata import LoadedTable

        doing = f"Loading the Iceberg table {table}"
        path = (*self._path(table.share), "namespaces", table.schema, "tables", table.name)
        request = Request(
            method="GET",
            path=path,
            doing=doing,
            table=str(table),
            headers=_DELEGATION,
            to_catalog=True,
        )
        return self._response(request, LoadedTable)

    def _path(self, share: str) -> tuple[str, ...]:
        """Return the path of a share's endpoints. Its prefix is requested once per share."""
        prefix: str | None = self._rest.known.get(("prefix", share))
        if prefix is None:
            request = Request(
                method="GET",
                path=("v1", "config"),
                doing=f"Requesting the configuration of share {share} from the Iceberg catalog",
                params={"warehouse": check_name(share, "share")},
                to_catalog=True,
            )
            config = self._response(request, _Config)
            prefix = (config.overrides or {}).get(_PREFIX) or (config.defaults or {}).get(_PREFIX) or ""
            self._rest.known["prefix", share] = prefix
        return ("v1", *_segments(prefix, share))

    def _pages(
        self,
        path: tuple[str, ...],
        kind: type[PageT],
        doing: str,
        items_of: Callable[[PageT], list[T]],
    ) -> list[T]:
        items: list[T] = []
        tokens = PageTokens(doing)
        # The first request has no page token, so that the catalog returns everything at once, or pages if it cannot.
        params: Mapping[str, str] = {}
        while True:
            page = self._response(Request(method="GET", path=path, doing=doing, params=params, to_catalog=True), kind)
            items += (page_items := items_of(page))
            token = tokens.next(page.next_page_token, is_empty=not page_items)
            if token is None:
                return items
            params = {"pageToken": token}

    def _response(self, request: Request, kind: type[T]) -> T:
        _, body = self._rest.fetch(request)
        try:
            return msgspec.json.decode(body, type=kind)
        except MALFORMED as error:
            raise ProtocolError(
                f"{request.doing}: the response does not have the form of an Iceberg REST catalog's "
                f"({problem_of(error)}).",
                table=request.table,
            ) from None


def _segments(prefix: str, share: str) -> tuple[str, ...]:
    """Return the segments of a catalog's prefix. As Iceberg's library for Java puts it into the path unchanged, a
    catalog may have percent-encoded it."""
    try:
        segments = tuple(unquote(segment, errors="strict") for segment in prefix.split("/") if segment)
    except UnicodeDecodeError:
        segments = ("..",)
    if any(segment in (".", "..") for segment in segments):
        raise ProtocolError(
            f"The Iceberg catalog's prefix of share {share} must be a path without '.' and '..', in UTF-8."
        )
    return segments
