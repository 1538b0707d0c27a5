"""Shares, schemas, tables and other assets as the protocol's objects, single and in pages (protocol, "List Shares" to
"List all Tables in a Share"; OpenSharing, "Volume Object" and so on)."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from .access import access_of
from .catalog import READY, AssetEntry, AssetKind, Catalog, TableEntry, VersionEntry, share_id
from .errors import invalid
from .faults import FaultSet
from .parameters import parse_listing


class Listings:
    """The listings of a catalog, as JSON objects for responses."""

    def __init__(self, catalog: Callable[[], Catalog], faults: FaultSet) -> None:
        self._catalog = catalog
        self._faults = faults

    def shares(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return all shares."""
        return self._page("shares", [self._share(name) for name in self._catalog().shares()], query)

    def share(self, name: str) -> dict[str, Any]:
        """Return one share."""
        return {"share": self._share(self._catalog().share(name))}

    def schemas(self, share: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the schemas of a share."""
        found = self._catalog().share(share)
        items = [{"name": name, "share": found} for name in self._catalog().schemas_of(found)]
        return self._page(f"schemas of {found}", items, query)

    def tables(self, share: str, schema: str | None, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the tables of a schema, or of all schemas of a share."""
        tables = self._catalog().tables_of(share, schema)
        scope = f"tables of {share}/{schema or ''}".lower()
        return self._page(scope, [_table(table) for table in tables], query)

    def table(self, entry: TableEntry) -> dict[str, Any]:
        """Return one table (OpenSharing, "Get Table")."""
        names = {"name": entry.name, "schema": entry.schema, "share": entry.share, "shareId": entry.share_id}
        return {**names, "id": entry.id, "format": ",".join(one.value for one in entry.formats)}

    def assets(self, kind: AssetKind, share: str, schema: str | None, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the assets of one kind in a schema, or in all schemas of a share."""
        assets = self._catalog().assets_of(kind, share, schema)
        scope = f"{kind.value} of {share}/{schema or ''}".lower()
        return self._page(scope, [asset_object(asset) for asset in assets], query)

    def versions(self, model: AssetEntry, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the versions of a model that are ready."""
        ready = [version_object(model, version) for version in model.versions if version.status == READY]
        return self._page(f"versions of {model.full_name}".lower(), ready, query)

    def _share(self, name: str) -> dict[str, Any]:
        return {"name": name, "id": share_id(name), **self._catalog().about_shares.get(name, {})}

    def _page(self, listing: str, items: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
        size, token = parse_listing(query)
        if token is not None:
            _offset(listing, token, len(items))
        forced = self._faults.take("page-size")
        if forced is not None:
            size = min(size, max(1, int(forced.value)))
        if self._faults.take("repeat-page-token"):
            return {"items": items[:size], "nextPageToken": _token(listing, 0)}
        if self._faults.take("endless-pages"):
            return {"items": items[:size], "nextPageToken": _token(f"{listing}\n{uuid.uuid4()}", 0)}
        empty = self._faults.take("empty-items") is not None
        if empty and token is None:
            return {"nextPageToken": _token(listing, 0)}
        inside, following = next_page(listing, items, size, token)
        page: dict[str, Any] = {"items": inside}
        if following is not None:
            page["nextPageToken"] = following
        elif empty:
            page["nextPageToken"] = ""
        return page


def asset_object(asset: AssetEntry) -> dict[str, Any]:
    """Return a volume, a skill or a model as the protocol's object."""
    content: dict[str, Any] = {
        "name": asset.name,
        "schema": asset.schema,
        "share": asset.share,
        "shareId": share_id(asset.share),
        "id": asset.id,
        "storageLocation": asset.storage,
        **asset.about,
    }
    return {name: value for name, value in content.items() if value is not None}


def version_object(model: AssetEntry, version: VersionEntry) -> dict[str, Any]:
    """Return a version of a model as the protocol's object."""
    return {
        "modelName": model.name,
        "schema": model.schema,
        "share": model.share,
        "version": version.version,
        "status": version.status,
        "storageLocation": version.storage,
        **version.about,
    }


def _table(table: TableEntry) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": table.name,
        "schema": table.schema,
        "share": table.share,
        "shareId": table.share_id,
        "id": table.id,
        "displayName": table.display_name,
        **access_of(table),
    }
    return {name: value for name, value in content.items() if value is not None}


def next_page(listing: str, items: list[Any], size: int, token: str | None) -> tuple[list[Any], str | None]:
    """Return ``size`` items from the position of ``token``, and the token of the next page; 400 if the token is
    invalid."""
    start = 0 if token is None else _offset(listing, token, len(items))
    stop = min(len(items), start + size)
    return items[start:stop], _token(listing, stop) if stop < len(items) else None


def _token(listing: str, offset: int) -> str:
    return base64.urlsafe_b64encode(f"{offset} {listing}".encode()).decode()


def _offset(listing: str, token: str, count: int) -> int:
    try:
        offset, _, of = base64.urlsafe_b64decode(token.encode("ascii")).decode().partition(" ")
        if of.partition("\n")[0] == listing and 0 <= int(offset) <= count:
            return int(offset)
    except (ValueError, binascii.Error):
        pass
    raise invalid(f"Invalid 'nextPageToken' specified for the {listing}.")
