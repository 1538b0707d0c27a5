"""The read-only Iceberg REST catalog of a sharing server (OpenSharing protocol, "Iceberg tables").

A share is a warehouse, a schema is a namespace. If a namespace has several levels, the schema's name has dots between
their names. Requests, time limits, retries and sign-in work as in the sharing protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar, Union
from urllib.parse import unquote

import msgspec

from delta_sharing_client.errors import NotFoundError, ProtocolError
from delta_sharing_client.protocol.deviations import MALFORMED, problem_of
from delta_sharing_client.protocol.listings import PageTokens
from delta_sharing_client.protocol.names import AssetName, check_name
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.transport import Request

if TYPE_CHECKING:
    from delta_sharing_client.iceberg.metadata import LoadedTable

T = TypeVar("T")
PageT = TypeVar("PageT", bound="_Page")

_DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}
_PREFIX, _SEPARATOR = "prefix", "namespace-separator"
_USUAL_SEPARATOR = "\x1f"


class _Config(msgspec.Struct):
    overrides: Union[dict[str, str], None] = None
    defaults: Union[dict[str, str], None] = None


class _Configuration(NamedTuple):
    """The prefix of a share's paths, and what separates the levels of a namespace in them."""

    prefix: str
    separator: str


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
        # Catalogs list the first level unless they are asked for one namespace's children.
        return [".".join(namespace) for namespace in names if namespace]

    def tables(self, share: str, schema: str) -> list[str]:
        """Return the names of the Iceberg tables of a schema."""
        doing = f"Listing the Iceberg tables of schema {share}.{schema}"

        def listed(namespace: str) -> list[_Identifier]:
            path = (*self._path(share), "namespaces", namespace, "tables")
            return self._pages(path, _Tables, doing, lambda page: page.identifiers or [])

        return [item.name for item in self._of_namespace(share, check_name(schema, "schema"), listed)]

    def load(self, table: AssetName) -> LoadedTable:
        """Return a table's metadata, and credentials for its files."""
        # Imported here, because it needs Arrow, whose import takes longer than a listing.
        from delta_sharing_client.iceberg.metadata import LoadedTable

        def loaded(namespace: str) -> LoadedTable:
            request = Request(
                method="GET",
                path=(*self._path(table.share), "namespaces", namespace, "tables", table.name),
                doing=f"Loading the Iceberg table {table}",
                table=str(table),
                headers=_DELEGATION,
                to_catalog=True,
            )
            return self._response(request, LoadedTable)

        return self._of_namespace(table.share, table.schema, loaded)

    def _of_namespace(self, share: str, schema: str, request: Callable[[str], T]) -> T:
        """Return the response of ``request`` for the namespace of a schema, in the form for a path.

        A name with a dot is that of a namespace with one level or, if there is none, with several.
        """
        try:
            return request(schema)
        except NotFoundError:
            if "." not in schema:
                raise
            try:
                return request(schema.replace(".", self._configuration(share).separator))
            except NotFoundError:
                pass
            raise

    def _path(self, share: str) -> tuple[str, ...]:
        """Return the path of a share's endpoints."""
        return ("v1", *_segments(self._configuration(share).prefix, share))

    def _configuration(self, share: str) -> _Configuration:
        """Return the catalog's configuration of a share, which is requested once per share."""
        known: _Configuration | None = self._rest.server_facts.get(("catalog", share))
        if known is None:
            request = Request(
                method="GET",
                path=("v1", "config"),
                doing=f"Requesting the configuration of share {share} from the Iceberg catalog",
                params={"warehouse": check_name(share, "share")},
                to_catalog=True,
            )
            config = self._response(request, _Config)
            prefix, separator = (
                (config.overrides or {}).get(name) or (config.defaults or {}).get(name) or ""
                for name in (_PREFIX, _SEPARATOR)
            )
            known = _Configuration(prefix, unquote(separator) or _USUAL_SEPARATOR)
            self._rest.server_facts["catalog", share] = known
        return known

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
