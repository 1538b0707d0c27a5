"""The Iceberg catalog of a share: its raw responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from delta_sharing_client.checks.check import Failed, NotOffered, NotTestable
from delta_sharing_client.checks.checked_server import ABSENT, MOST_PAGES, Answer, Server

_MOST_SHARES = 5
_MOST_NAMESPACES = 20
_MOST_TABLES = 10
# Namespaces have one level, but catalogs may have several.
_SEPARATOR = "\x1f"


class SharedCatalog:
    """The catalog of one share, which is a warehouse."""

    def __init__(self, server: Server, share: str) -> None:
        self.server = server
        self.share = share

    def config(self) -> Answer:
        """Return the response of "getConfig"."""
        return self.server.get("v1", "config", params={"warehouse": self.share}, catalog=True)

    def get(self, *path: str, params: Mapping[str, object] | None = None, **more: Any) -> Answer:
        """Send a GET request to a path below the prefix of the share."""
        return self.server.get(*self.prefix, *path, params=params, catalog=True, **more)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The first segments of all paths. A catalog may have no prefix."""
        document = self.config().require().document()
        prefix = (document.get("overrides") or {}).get("prefix") or (document.get("defaults") or {}).get("prefix") or ""
        if not isinstance(prefix, str):
            raise Failed(f"Expected text as the 'prefix' of the configuration, found {prefix!r}.", self.config())
        return ("v1", *(unquote(segment) for segment in prefix.split("/") if segment))

    def pages(self, *path: str, size: int | None = None) -> Iterator[Answer]:
        """Yield the pages of a listing; a catalog may return everything at once, whatever ``size`` is."""
        sized = {} if size is None else {"pageSize": size}
        params: dict[str, object] = {} if size is None else {**sized, "pageToken": ""}
        for _ in range(MOST_PAGES):
            answer = self.get(*path, params=params).require()
            yield answer
            token = answer.document().get("next-page-token")
            if not isinstance(token, str) or not token:
                return
            params = {**sized, "pageToken": token}
        raise Failed(f"Expected a last page after {MOST_PAGES} pages, found one more next-page-token.")

    def namespaces(self, size: int | None = None) -> list[str]:
        """Return the namespaces, in the form for a path."""
        pages = self.pages("namespaces", size=size)
        return [_SEPARATOR.join(each) for page in pages for each in page.document().get("namespaces") or []]

    def tables(self) -> list[tuple[str, str]]:
        """Return namespace and name of the listed tables, at most ``_MOST_TABLES``."""
        found: list[tuple[str, str]] = []
        for namespace in self.namespaces()[:_MOST_NAMESPACES]:
            for page in self.pages("namespaces", namespace, "tables"):
                found += ((namespace, each["name"]) for each in page.document().get("identifiers") or [])
            if len(found) >= _MOST_TABLES:
                break
        return found[:_MOST_TABLES]

    def load(self, namespace: str, name: str) -> Answer:
        """Return the response of "loadTable"."""
        return self.get("namespaces", namespace, "tables", name)

    def loaded(self) -> tuple[str, str, Answer]:
        """Return namespace and name of a table that can be loaded, and the response."""
        for namespace, name in self.tables():
            if (answer := self.load(namespace, name)).status == 200:
                return namespace, name, answer
        raise NotTestable("The share would need an Iceberg table.")


def catalog(server: Server) -> SharedCatalog:
    """Return the catalog of a share, of one with a table if there is any; ``NotOffered`` without a catalog."""
    if server.profile.iceberg_endpoint is None:
        raise NotOffered("The profile has no icebergEndpoint.")
    return server.found("catalog", lambda: _found(server))


def _found(server: Server) -> SharedCatalog:
    catalogs = [SharedCatalog(server, share) for share in server.shares()[:_MOST_SHARES]]
    offered = [each for each in catalogs if each.config().status not in ABSENT]
    if not offered:
        raise NotOffered(f"{catalogs[0].config().asked} has status {catalogs[0].config().status}.")
    for each in offered:
        if each.config().status == 200 and each.tables():
            return each
    return offered[0]
