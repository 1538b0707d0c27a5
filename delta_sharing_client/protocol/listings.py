"""The endpoints that list assets or describe one (protocol, "REST APIs"), and advice for names that do not exist."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from delta_sharing_client.errors import (
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    RequestError,
    UsageError,
    about_table,
    add_advice,
)
from delta_sharing_client.http.error_responses import html_page
from delta_sharing_client.protocol.asset_kinds import (
    KINDS,
    MODEL,
    MODEL_VERSION,
    TABLE,
    AssetEntry,
    AssetKind,
    AssetRef,
    ItemT,
)
from delta_sharing_client.protocol.deviations import MALFORMED, Deviations, decode, problem_of
from delta_sharing_client.protocol.messages import (
    ItemsPage,
    ModelVersionItem,
    SchemaItem,
    ShareItem,
    ShareResponse,
    TableItem,
    VolumeFilesPage,
)
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table, check_name
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import safe_url, scrub

_MAX_EMPTY_PAGES = 1000
UNKNOWN_ENDPOINT = frozenset({404, 405, 501})
"""The statuses of a server that does not have an endpoint; a 404 may also have other reasons."""

_log = logging.getLogger(__name__)

T = TypeVar("T")
PageT = TypeVar("PageT", ItemsPage, VolumeFilesPage)


class Listings(Transport):
    """The endpoints that list assets or describe one. They raise the errors of ``RestClient``."""

    @contextlib.contextmanager
    def about(self, table: AssetName) -> Iterator[None]:
        """Add ``table`` to errors in the ``with`` block, and the nearest existing name if the table does not exist."""
        with self.about_asset(AssetRef(TABLE, table)), about_table(str(table), self.query_id):
            yield

    @contextlib.contextmanager
    def about_asset(self, asset: AssetRef) -> Iterator[None]:
        """Add the nearest existing name, once, to a ``NotFoundError`` in the ``with`` block, if there is no such
        ``asset``."""
        with self._advised(lambda: self._near_asset(asset)):
            yield

    @contextlib.contextmanager
    def _advised(self, advice: Callable[[], str | None]) -> Iterator[None]:
        """Add ``advice()``, once, to a ``NotFoundError`` in the ``with`` block, unless it is ``None``."""
        try:
            yield
        except NotFoundError as error:
            if not error._advised:
                with contextlib.suppress(DeltaSharingError):
                    if (sentence := advice()) is not None:
                        add_advice(error, sentence)
            error._advised = True
            raise

    def _near_asset(self, asset: AssetRef) -> str | None:
        try:
            shares = [share.name for share in self.list_shares()]
        except NotFoundError:
            return self._no_server_there()
        if not shares:
            return "Nothing is shared with this profile."
        near = difflib.get_close_matches(asset.name.share.lower(), [name.lower() for name in shares], cutoff=0.0)
        share = next(name for name in shares if name.lower() == near[0])
        kind = MODEL if asset.kind is MODEL_VERSION else asset.kind
        names = [str(name) for name in self._names_of(kind, share)]
        listing = f"'list_all_{kind.plural}()' or 'delta-sharing {kind.plural}'"
        advice = _nearest(str(asset.name), names, f"Use {listing} to list what is shared.")
        if advice is None:
            return None if asset.version is None else self._near_version(asset.name)
        for other in KINDS:
            if other is not kind and self.is_shared(AssetRef(other, asset.name)):
                ways = f"'client.{other.noun}()' or 'delta-sharing {other.command}'"
                return f"There is a {other.noun} with this name: see {ways}."
        return advice

    def _names_of(self, kind: AssetKind[Any], share: str) -> list[AssetName]:
        if kind is TABLE:
            return [table.full_name for table in self.list_all_tables(share)]
        return [AssetName(item.share, item.schema, item.name) for item in self.list_all_assets(kind, share)]

    def _near_version(self, model: AssetName) -> str | None:
        versions = ", ".join(str(item.version) for item in self.list_model_versions(model))
        return f"Its versions are {versions}." if versions else "None of its versions is ready."

    def is_shared(self, asset: AssetRef) -> bool:
        """Return whether there is such an asset; always false for a table if the server lacks "Get Table"."""
        request = Request(method="GET", path=asset.path, doing=f"Looking up {asset}")
        try:
            self.json(request, asset.kind.item)
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
            return False
        return True

    def _near_schema(self, share: str, schema: str | None = None) -> str | None:
        try:
            requested, names = share, [item.name for item in self.list_shares()]
        except NotFoundError:
            return self._no_server_there()
        if schema is not None and share.lower() in (name.lower() for name in names):
            requested, names = f"{share}.{schema}", [f"{share}.{item.name}" for item in self.list_schemas(share)]
        advice = f"These exist: {', '.join(names)}." if names else "Nothing is shared with this profile."
        return _nearest(requested, names, advice)

    def _no_server_there(self) -> str:
        """Return advice for an endpoint that does not list shares, as every sharing server does."""
        endpoint = self.profile.endpoint
        has_path = urlsplit(endpoint).path.strip("/")
        path = "" if has_path else " The endpoint has no path, but most have one, such as '/delta-sharing'."
        return (
            f"There is no list of shares at the endpoint '{safe_url(endpoint)}'.{path} Compare it with the endpoint in "
            "the profile that the data provider sent."
        )

    def near_names(self, part: str, kinds: Sequence[AssetKind[Any]] = (TABLE,)) -> str:
        """Return a sentence with up to three shared assets whose names resemble the last name in ``part``; an empty
        string if there are none, or if the server does not respond in time."""
        quick = dataclasses.replace(
            self.options, max_attempts=1, connect_timeout=5.0, read_timeout=10.0, total_timeout=20.0
        )
        rest = self.for_read(quick)
        try:
            shares = [share.name for share in rest.list_shares()]
            names = [name for share in shares for kind in kinds for name in rest._names_of(kind, share)]
        except DeltaSharingError:
            return ""
        last = part.lower().rpartition(".")[2].strip("` ")
        near = difflib.get_close_matches(last, {name.name.lower() for name in names}, n=3)
        nearest = sorted({f"'{name}'" for name in names if name.name.lower() in near})[:3]
        return f"Did you mean {' or '.join(nearest)}?" if nearest else ""

    def list_shares(self) -> list[Share]:
        """Return all shares ("List Shares")."""
        doing = "Listing the shares"
        with self._advised(self._no_server_there):
            items = self._list(("shares",), ShareItem, doing)
        return [_share(item) for item in _named(items, doing, lambda item: check_name(item.name, "share"))]

    def get_share(self, share: str) -> Share:
        """Return one share ("Get Share"). Raises ``NotFoundError`` if there is no such share."""
        doing = f"Looking up share {share}"
        request = Request(method="GET", path=("shares", check_name(share, "share")), doing=doing)
        with self._advised(lambda: self._near_schema(share)):
            return _share(self.json(request, ShareResponse).share)

    def list_schemas(self, share: str) -> list[Schema]:
        """Return all schemas of a share ("List Schemas in a Share")."""
        path, doing = ("shares", check_name(share, "share"), "schemas"), f"Listing the schemas of share {share}"
        with self._advised(lambda: self._near_schema(share)):
            items = self._list(path, SchemaItem, doing)
        items = _named(items, doing, lambda item: check_name(item.name, "schema"))
        return [Schema(item.name, item.share or share, item.id, item.display_name) for item in items]

    def list_tables(self, share: str, schema: str) -> list[Table]:
        """Return all tables of a schema ("List Tables in a Schema")."""
        path = ("shares", check_name(share, "share"), "schemas", check_name(schema, "schema"), "tables")
        doing = f"Listing the tables of schema {share}.{schema}"
        with self._advised(lambda: self._near_schema(share, schema)):
            items = self._list(path, TableItem, doing)
        return _named([_table(item, share, schema) for item in items], doing, lambda table: table.full_name)

    def list_all_tables(self, share: str) -> list[Table]:
        """Return all tables of a share ("List all Tables in a Share"); requested schema by schema if the server lacks
        this endpoint."""
        path = ("shares", check_name(share, "share"), "all-tables")
        doing = f"Listing all tables of share {share}"
        try:
            items = self._list(path, TableItem, doing)
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
            # A 404 may also mean that there is no such share; in that case, listing its schemas fails as well.
            return [t for schema in self.list_schemas(share) for t in self.list_tables(share, schema.name)]
        for item in items:
            if not item.schema:
                _log.warning("%s: table %r is left out, because the server names no schema for it.", doing, item.name)
        tables = [_table(item, share, item.schema) for item in items if item.schema]
        return _named(tables, doing, lambda table: table.full_name)

    def get_table(self, table: AssetName) -> Table:
        """Return one table, with its formats ("Get Table"); if the server lacks this endpoint, the table as listed.

        Raises ``NotFoundError`` if there is no such table.
        """
        with self.about(table):
            try:
                return self.stated_table(table)
            except RequestError as error:
                if error.status not in UNKNOWN_ENDPOINT:
                    raise
                listed = self.list_tables(table.share, table.schema)
                entry = next((one for one in listed if one.full_name == table), None)
                if entry is None:
                    raise _not_found(error) from None
                return entry

    def stated_table(self, table: AssetName) -> Table:
        """Return one table ("Get Table"). Raises ``RequestError`` if there is no such table, or if the server lacks
        this endpoint."""
        asset = AssetRef(TABLE, table)
        request = Request(method="GET", path=asset.path, doing=f"Looking up {asset}", table=str(table))
        return _table(self.json(request, TableItem), table.share, table.schema)

    # --- other assets ---

    def list_assets(self, kind: AssetKind[ItemT], share: str, schema: str) -> list[ItemT]:
        """Return all assets of a ``kind`` in a schema ("List Volumes in a Schema" and its counterparts).

        The list is empty if the server does not have this kind of asset.

        Raises ``NotFoundError`` if there is no such schema.
        """
        try:
            return self._list_in_schema(kind, share, schema)
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
            # The error may also mean that there is no such schema.
            with self._advised(lambda: self._near_schema(share, schema)):
                names = {item.name.lower() for item in self.list_schemas(share)}
                if schema.lower() not in names:
                    raise _not_found(error) from None
            return []

    def list_all_assets(self, kind: AssetKind[ItemT], share: str, schemas: Sequence[str] | None = None) -> list[ItemT]:
        """Return all assets of a ``kind`` in a share ("List All Volumes in a Share" and its counterparts).

        They are requested schema by schema if the server lacks this endpoint; ``schemas`` has the share's schemas, if
        known. The list is empty if the server does not have this kind of asset.
        """
        path = ("shares", check_name(share, "share"), f"all-{kind.plural}")
        doing = f"Listing all {kind.plural} of share {share}"
        try:
            return _placed(self._list(path, kind.item, doing), doing, share=share)
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
        # A 404 may also mean that there is no such share; in that case, listing its schemas fails as well.
        all_schemas = [item.name for item in self.list_schemas(share)] if schemas is None else schemas
        return self._listed_by_schema(kind, share, all_schemas)

    def _listed_by_schema(self, kind: AssetKind[ItemT], share: str, schemas: Sequence[str]) -> list[ItemT]:
        items: list[ItemT] = []
        for schema in schemas:
            try:
                items += self._list_in_schema(kind, share, schema)
            except RequestError as error:
                if error.status not in UNKNOWN_ENDPOINT:
                    raise
                # The schema exists, so the server has no assets of this kind.
                return items
        return items

    def list_everything(
        self, share: str, schema: str | None, tables: Sequence[Table]
    ) -> tuple[list[str], list[AssetEntry]]:
        """Return the names of the schemas of ``share``, or only ``schema``, and the assets of all kinds in them.

        The assets are the given ``tables``, and then those of the other kinds. Raises ``NotFoundError`` if the share or
        the schema does not exist.
        """
        schemas = [item.name for item in self.list_schemas(share)] if schema is None else [schema]
        entries = [AssetEntry(TABLE, table.schema, table.name, table.display_name) for table in tables]
        for kind in KINDS:
            if kind is TABLE:
                continue
            ask = self.list_all_assets if schema is None else self._listed_by_schema
            items: list[Any] = ask(kind, share, schemas)
            # A model has a comment, a skill a description.
            told = [getattr(item, "comment", None) or getattr(item, "description", None) for item in items]
            entries += [AssetEntry(kind, item.schema, item.name, text) for item, text in zip(items, told, strict=True)]
        if schema is not None and entries:
            # Take the server's spelling.
            schemas = list(dict.fromkeys(entry.schema for entry in entries))
        # A schema that contains only Iceberg tables may be missing, because only their catalog lists it.
        lowered = {name.lower() for name in schemas}
        schemas += dict.fromkeys(entry.schema for entry in entries if entry.schema.lower() not in lowered)
        return schemas, entries

    def _list_in_schema(self, kind: AssetKind[ItemT], share: str, schema: str) -> list[ItemT]:
        path = ("shares", check_name(share, "share"), "schemas", check_name(schema, "schema"), kind.plural)
        doing = f"Listing the {kind.plural} of schema {share}.{schema}"
        return _placed(self._list(path, kind.item, doing), doing, share=share, schema=schema)

    def get_asset(self, kind: AssetKind[ItemT], name: AssetName) -> ItemT:
        """Return one volume, model or skill ("Get Volume" and its counterparts).

        Raises ``NotFoundError``, with the nearest existing name, if there is no such asset.
        """
        asset = AssetRef(kind, name)
        with self.about_asset(asset):
            return self._looked_up(asset, asset.path, f"Looking up {asset}", share=name.share, schema=name.schema)

    def list_model_versions(self, model: AssetName) -> list[ModelVersionItem]:
        """Return the versions of a model ("List Model Versions"); by the protocol, only those that are ready.

        Raises ``NotFoundError`` if there is no such model.
        """
        asset = AssetRef(MODEL, model)
        doing = f"Listing the versions of {asset}"
        with self.about_asset(asset):
            items = self._list((*asset.path, MODEL_VERSION.plural), ModelVersionItem, doing)
        return _placed(items, doing, share=model.share, schema=model.schema, model_name=model.name)

    def get_model_version(self, model: AssetName, version: int) -> ModelVersionItem:
        """Return one version of a model ("Get Model Version"). Raises ``NotFoundError``, with the versions that exist,
        if there is no such version."""
        asset = AssetRef(MODEL_VERSION, model, version)
        with self.about_asset(asset):
            item = self._model_version(asset, asset.path, f"Looking up {asset}")
        if item.version != version:
            raise ProtocolError(f"Looking up {asset}: the response describes version {item.version} instead.")
        return item

    def get_model_alias(self, model: AssetName, alias: str) -> ModelVersionItem:
        """Return the version to which ``alias`` points now ("Get Model Version by Alias"). Raises ``NotFoundError`` if
        there is no such alias."""
        asset = AssetRef(MODEL, model)
        path = (*asset.path, "aliases", check_name(alias, "alias"))
        with self.about_asset(asset):
            return self._model_version(asset, path, f"Looking up alias '{alias}' of {asset}")

    def _model_version(self, asset: AssetRef, path: tuple[str, ...], doing: str) -> ModelVersionItem:
        name = asset.name
        version = AssetRef(MODEL_VERSION, name, asset.version)
        return self._looked_up(version, path, doing, share=name.share, schema=name.schema, model_name=name.name)

    def _looked_up(self, asset: AssetRef, path: tuple[str, ...], doing: str, **names: str) -> Any:
        request = Request(method="GET", path=path, doing=doing)
        try:
            item = self.json(request, asset.kind.item)
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
            raise _not_found(error) from None
        return _placed([item], doing, **names)[0]

    # --- responses ---

    def json(self, request: Request, response: type[T]) -> T:
        """Send ``request``, and return its response, which must be one JSON value of the type ``response``; raise
        ``ProtocolError`` otherwise."""
        _, body = self.fetch(request)
        deviations = Deviations(request.doing)
        try:
            return decode(body, response, deviations)
        except MALFORMED as error:
            page = html_page(body, self.secrets())
            described = f"({problem_of(error)})" if body.strip() else "(an empty body)"
            problem = f"the response is not the JSON that the protocol defines {described}"
            if page is not None:
                problem = (
                    f"expected JSON, found {page}; check the endpoint of the profile, and "
                    "whether a proxy or a login page responds instead"
                )
            raise ProtocolError(f"{request.doing}: {problem}.", table=request.table) from None
        finally:
            deviations.tell()

    def _list(self, path: tuple[str, ...], kind: type[T], doing: str) -> list[T]:
        return [item for page in self.pages(path, ItemsPage, doing) for item in _items(page.items or [], kind, doing)]

    def pages(self, path: tuple[str, ...], kind: type[PageT], doing: str) -> Iterator[PageT]:
        """Yield the pages of a listing; each is requested when it is needed."""
        tokens = PageTokens(doing)
        within = self.operation()
        token = None
        while True:
            params: dict[str, str] = {} if token is None else {"pageToken": token}
            page = within.json(Request(method="GET", path=path, doing=doing, params=params), kind)
            yield page
            token = tokens.next(page.next_page_token, is_empty=not page.items)
            if token is None:
                return


class PageTokens:
    """The tokens of a response's pages; detects pages that never end."""

    def __init__(self, doing: str, table: str | None = None) -> None:
        self._doing, self._table = doing, table
        self._seen: set[str] = set()
        self._empty = 0

    def next(self, token: str | None, *, is_empty: bool) -> str | None:
        """Return ``token``, the ``nextPageToken`` of a page, or ``None`` if it is empty, so that this is the last page.

        ``is_empty`` means that the page has no items. Raises ``ProtocolError`` if the pages would never end: a token is
        repeated, or many pages in a row are empty.
        """
        if not token:
            return None
        self._empty = self._empty + 1 if is_empty else 0
        if token in self._seen or self._empty > _MAX_EMPTY_PAGES:
            reason = "the same nextPageToken twice" if token in self._seen else f"{self._empty} empty pages in a row"
            raise ProtocolError(
                f"{self._doing} failed: the server sent {reason}; its pages would never end.", table=self._table
            )
        self._seen.add(token)
        return token


def _items(listed: list[msgspec.Raw], kind: type[T], doing: str) -> list[T]:
    """Return the items that can be decoded, and log a warning for the others; ``ProtocolError`` if none can be."""
    items: list[T] = []
    deviations = Deviations(doing)
    broken = ""
    for number, raw in enumerate(listed, 1):
        try:
            items.append(decode(raw, kind, deviations))
        except MALFORMED as error:
            broken = f"item {number} of the response cannot be read: {problem_of(error)}"
            _log.warning("%s: %s. It is left out.", doing, broken)
    deviations.tell()
    if broken and not items:
        raise ProtocolError(f"{doing}: {broken}. No other item can be read; ask the data provider.")
    return items


def _placed(items: list[ItemT], doing: str, **names: str) -> list[ItemT]:
    """Return the items, with the request's ``names`` where the server omits them. Items with invalid names are left
    out."""

    def place(item: ItemT) -> ItemT:
        missing = {name: value for name, value in names.items() if not getattr(item, name)}
        return msgspec.structs.replace(item, **missing)  # type: ignore[type-var]

    def name(item: Any) -> AssetName:
        last: Any = item.model_name if isinstance(item, ModelVersionItem) else item.name
        return AssetName(item.share, item.schema, last)

    return _named(list(map(place, items)), doing, name)


def _named(items: list[T], doing: str, name: Callable[[T], object]) -> list[T]:
    """Return the items for which ``name`` raises no ``UsageError``; log a warning for the others.

    The others cannot be requested: a slash in a name is forbidden (protocol, "Names"), and servers take "%2F" for a
    slash. Raises ``ProtocolError`` if all items are left out.
    """
    named: list[T] = []
    problem = ""
    for item in items:
        try:
            name(item)
        except UsageError as error:
            problem = scrub(error.message)
            _log.warning("%s: an item is left out. %s", doing, problem)
        else:
            named.append(item)
    if items and not named:
        raise ProtocolError(f"{doing}: expected items with valid names, found none. {problem}")
    return named


def _not_found(error: RequestError) -> NotFoundError:
    """Return ``error`` as a ``NotFoundError``, whatever its status."""
    if isinstance(error, NotFoundError):
        return error
    return NotFoundError(
        error.message,
        status=error.status,
        error_code=error.error_code,
        server_message=error.server_message,
        table=error.table,
    )


def _nearest(requested: str, names: list[str], otherwise: str) -> str | None:
    """Return advice for ``requested`` (the nearest of ``names``, or ``otherwise``); ``None`` if ``names`` has it."""
    spelled = {name.lower(): name for name in names}
    if requested.lower() in spelled:
        return None
    close = difflib.get_close_matches(requested.lower(), list(spelled))
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
        formats=tuple(filter(None, (part.strip().lower() for part in (item.format or "").split(",")))),
    )
