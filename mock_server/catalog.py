"""The shared objects (shares, schemas, tables and other assets), and their locations.

A catalog comes from a directory of tables, which may be added and removed while the server runs, or from the reference
server's YAML file, which is read only once. Names are case-insensitive, as in the protocol.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from delta_sharing_client.local_paths import expanded

from . import iceberg_metadata
from .errors import ConfigError, not_found, shown

DEFAULT_NAME = "default"
_LOOK_AGAIN_SECONDS = 1.0
URL_ACCESS, DIRECTORY_ACCESS = "url", "dir"
_DELTA_LOG = "_delta_log"
READY = "READY"
"""The status of a version of a model that can be read (OpenSharing, "ModelVersion Object")."""
_NAMESPACE = uuid.UUID("6f1d9a0e-3f0b-4c86-9a4d-0f6f2f0b7f11")


_Item = TypeVar("_Item", "TableEntry", "AssetEntry")


class TableFormat(enum.Enum):
    """A format of a table's metadata; its value is the one that ``format`` has in "Get Table"."""

    DELTA = "delta"
    ICEBERG = "iceberg"


@dataclasses.dataclass(frozen=True, slots=True)
class TableEntry:
    """One shared table.

    ``history_shared`` allows time travel and the change feed; versions before ``start_version`` are not shared.
    ``location`` is the location of its log on this machine. ``storage`` is the location for clients with directory
    access, and ``auxiliary`` are the locations of further files; ``modes`` are the allowed access modes, ``None`` for
    all that are possible. ``formats`` are the formats found at the location.
    """

    share: str
    schema: str
    name: str
    location: Path
    id: str
    history_shared: bool = True
    start_version: int = 0
    storage: str | None = None
    auxiliary: tuple[str, ...] = ()
    modes: tuple[str, ...] | None = None
    display_name: str | None = None
    formats: tuple[TableFormat, ...] = (TableFormat.DELTA,)

    @property
    def access_modes(self) -> tuple[str, ...]:
        """The offered access modes, ``url`` and ``dir``; directory access includes the history."""
        whole = self.storage is not None and self.history_shared and self.start_version == 0
        possible = (URL_ACCESS, DIRECTORY_ACCESS) if whole else (URL_ACCESS,)
        return possible if self.modes is None else tuple(mode for mode in possible if mode in self.modes)

    @property
    def full_name(self) -> str:
        """``share.schema.table``."""
        return f"{self.share}.{self.schema}.{self.name}"

    @property
    def share_id(self) -> str:
        """The stable id of the share."""
        return share_id(self.share)


class AssetKind(enum.Enum):
    """A kind of asset besides tables; its value is the segment in the paths of its APIs."""

    VOLUME = "volumes"
    SKILL = "skills"
    MODEL = "models"

    @property
    def noun(self) -> str:
        """The name of the kind in messages."""
        return self.value[:-1]


@dataclasses.dataclass(frozen=True, slots=True)
class VersionEntry:
    """A version of a shared model: the URL of its directory, and other fields of the protocol's object."""

    version: int
    storage: str
    status: str = READY
    about: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True, slots=True)
class AssetEntry:
    """A shared volume, skill or model.

    ``storage`` is the URL of its directory; a model may have none, because its files belong to ``versions``, which
    ``aliases`` name. ``about`` has the other fields of the protocol's object.
    """

    kind: AssetKind
    share: str
    schema: str
    name: str
    storage: str | None
    id: str
    about: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)
    versions: tuple[VersionEntry, ...] = ()
    aliases: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def full_name(self) -> str:
        """``share.schema.name``."""
        return f"{self.share}.{self.schema}.{self.name}"

    @property
    def locations(self) -> tuple[str, ...]:
        """The URLs of all directories of the asset."""
        return tuple(filter(None, (self.storage, *(version.storage for version in self.versions))))

    def version(self, text: str) -> VersionEntry:
        """Return the version with this number; 404 if it does not exist."""
        for version in self.versions:
            if str(version.version) == text:
                return version
        raise not_found(f"Version {shown(text)} of the model '{self.full_name}' not found.")

    def aliased(self, alias: str) -> VersionEntry:
        """Return the version that an alias names, ignoring case; 404 if there is none."""
        for name, version in self.aliases.items():
            if name.lower() == alias.lower():
                return self.version(str(version))
        raise not_found(f"Alias {shown(alias)} of the model '{self.full_name}' not found.")


@dataclasses.dataclass(frozen=True, slots=True)
class Catalog:
    """All shared tables and other assets, in the order of listings, with their shares and schemas.

    ``schemas`` includes schemas without assets, because a share or a schema may be empty. ``about_shares`` has other
    fields of a share: ``displayName``, ``comment`` and ``properties``.
    """

    tables: tuple[TableEntry, ...]
    schemas: tuple[tuple[str, tuple[str, ...]], ...] = ()
    about_shares: Mapping[str, Mapping[str, object]] = dataclasses.field(default_factory=dict)
    assets: tuple[AssetEntry, ...] = ()

    def shares(self) -> list[str]:
        """Return the names of all shares."""
        return _unique([*(share for share, _ in self.schemas), *(item.share for item in self._items)])

    def share(self, name: str) -> str:
        """Return the share's own spelling of ``name``; 404 if it does not exist."""
        for share in self.shares():
            if share.lower() == name.lower():
                return share
        raise not_found(f"Share {shown(name)} not found.")

    def schemas_of(self, share: str) -> list[str]:
        """Return the names of the schemas of ``share``; 404 if it does not exist."""
        found = self.share(share)
        declared = [schema for name, schemas in self.schemas if name == found for schema in schemas]
        return _unique([*declared, *(item.schema for item in self._items if item.share == found)])

    def schema(self, share: str, name: str) -> tuple[str, str]:
        """Return the share and the schema in their own spelling; 404 if they do not exist."""
        for schema in self.schemas_of(share):
            if schema.lower() == name.lower():
                return self.share(share), schema
        raise not_found(f"Schema {shown(f'{share}/{name}')} not found.")

    def tables_of(self, share: str, schema: str | None = None) -> list[TableEntry]:
        """Return the tables of a share, or of one of its schemas; 404 if the share or schema does not exist."""
        return self._inside(self.tables, share, schema)

    def table(self, share: str, schema: str, name: str) -> TableEntry:
        """Return one table; 404 if it, its schema or its share does not exist."""
        for table in self.tables_of(share, schema):
            if table.name.lower() == name.lower():
                return table
        raise not_found(f"Table {shown(f'{share}/{schema}/{name}')} not found.")

    def assets_of(self, kind: AssetKind, share: str, schema: str | None = None) -> list[AssetEntry]:
        """Return the assets of a share, or of one of its schemas; 404 if the share or schema does not exist."""
        return [asset for asset in self._inside(self.assets, share, schema) if asset.kind is kind]

    def asset(self, kind: AssetKind, share: str, schema: str, name: str) -> AssetEntry:
        """Return one asset; 404 if it, its schema or its share does not exist."""
        for asset in self.assets_of(kind, share, schema):
            if asset.name.lower() == name.lower():
                return asset
        raise not_found(f"{kind.noun.capitalize()} {shown(f'{share}/{schema}/{name}')} not found.")

    @property
    def _items(self) -> tuple[TableEntry | AssetEntry, ...]:
        return (*self.tables, *self.assets)

    def _inside(self, items: Iterable[_Item], share: str, schema: str | None) -> list[_Item]:
        if schema is None:
            found = self.share(share)
            return [item for item in items if item.share == found]
        pair = self.schema(share, schema)
        return [item for item in items if (item.share, item.schema) == pair]

    def require_locations(self) -> None:
        """Raise `ConfigError`, which names the first, if there are tables without metadata at their location."""
        for table in self.tables:
            if TableFormat.DELTA in table.formats and not (table.location / _DELTA_LOG).is_dir():
                raise ConfigError(
                    f"The table '{table.full_name}' was expected at '{table.location}', but there is neither a "
                    f"{_DELTA_LOG} nor Iceberg's metadata."
                )


class LiveCatalog:
    """The current catalog. The catalog of a directory is read again on demand, at most once per second.

    ``prepare`` prepares a catalog for serving. Thread-safe.
    """

    def __init__(self, start: Catalog, directory: Path | None, prepare: Callable[[Catalog], Catalog]) -> None:
        self._directory = directory
        self._prepare = prepare
        self._lock = threading.Lock()
        self._plain = start
        self._looked_at = time.monotonic()
        self.last = prepare(start)

    def now(self) -> Catalog:
        """Return the catalog, with tables that were added and without those that were removed."""
        if self._directory is not None and time.monotonic() - self._looked_at > _LOOK_AGAIN_SECONDS:
            with self._lock, contextlib.suppress(ConfigError, OSError):
                self._looked_at = time.monotonic()
                found = dataclasses.replace(from_directory(self._directory), assets=self._plain.assets)
                if found != self._plain:
                    self._plain, self.last = found, self._prepare(found)
        return self.last


def share_id(share: str) -> str:
    """Return the id of a share, which is the same after every start of the server."""
    return str(uuid.uuid5(_NAMESPACE, share.lower()))


def table_id(share: str, schema: str, name: str) -> str:
    """Return an id for a table that has none of its own. It is the same after every start of the server."""
    return _id(share, schema, name)


def asset_id(kind: AssetKind, share: str, schema: str, name: str) -> str:
    """Return an id for another asset that has none of its own. It is the same after every start of the server."""
    return _id(kind.value, share, schema, name)


def _id(*names: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, "\0".join(names).lower()))


def formats_of(location: Path) -> tuple[TableFormat, ...]:
    """Return the formats of the table in a directory: both if it has a Delta log and Iceberg metadata."""
    found = {
        TableFormat.DELTA: (location / _DELTA_LOG).is_dir(),
        TableFormat.ICEBERG: iceberg_metadata.is_iceberg(location),
    }
    return tuple(one for one, there in found.items() if there) or (TableFormat.DELTA,)


def entry(share: str, schema: str, name: str, location: str | os.PathLike[str]) -> TableEntry:
    """Return an entry for a table in a local directory or at an S3 address, which is shared with its whole history."""
    address = expanded(location)
    if "://" in address:
        return TableEntry(share, schema, name, Path(), table_id(share, schema, name), storage=address.rstrip("/"))
    path = Path(address).resolve()
    return TableEntry(share, schema, name, path, table_id(share, schema, name), formats=formats_of(path))


def build(
    tables: Iterable[TableEntry],
    schemas: Iterable[tuple[str, tuple[str, ...]]] = (),
    about_shares: Mapping[str, Mapping[str, object]] | None = None,
    assets: Iterable[AssetEntry] = (),
) -> Catalog:
    """Return a catalog of ``tables`` and ``assets``. Raises `ConfigError` if two of one kind have the same name."""
    result = tuple(tables)
    seen: dict[str, TableEntry] = {}
    for table in result:
        other = seen.setdefault(table.full_name.lower(), table)
        if other is not table:
            raise ConfigError(
                f"Two tables are called '{table.full_name}': {other.location} and {table.location}. Rename one of them."
            )
    return Catalog(result, tuple(schemas), about_shares or {}, unique_assets(assets))


def unique_assets(assets: Iterable[AssetEntry]) -> tuple[AssetEntry, ...]:
    """Return ``assets``. Raises `ConfigError` if two of one kind have the same name."""
    result = tuple(assets)
    seen: set[tuple[AssetKind, str]] = set()
    for asset in result:
        if (asset.kind, asset.full_name.lower()) in seen:
            raise ConfigError(f"Two {asset.kind.value} are called '{asset.full_name}'. Rename one of them.")
        seen.add((asset.kind, asset.full_name.lower()))
    return result


def from_mapping(tables: Mapping[str, str | os.PathLike[str]]) -> Catalog:
    """Return a catalog of ``{"share.schema.table" or "table": directory}``."""
    return build(entry(*split_name(name, "table"), location) for name, location in tables.items())


def from_directory(root: str | os.PathLike[str]) -> Catalog:
    """Return the tables under ``root``: every folder with a ``_delta_log``, or with Iceberg's ``metadata``.

    ``<root>/<share>/<schema>/<table>`` contains all three names; ``<root>/<table>`` is in share "default", schema
    "default". A table may lie deeper: ``<root>/<table>/data`` is still called ``<table>`` if it is the only table in
    that folder; if there are several tables ``<root>/<folder>/...``, the folder is a schema of share "default".
    """
    base = Path(expanded(root))
    if not base.is_dir():
        raise ConfigError(f"A directory of tables was expected, but '{base}' is not a directory.")
    if _is_table(base):
        return build([entry(DEFAULT_NAME, DEFAULT_NAME, base.resolve().name, base)])
    found = sorted(_table_folders(base))
    if not found:
        raise ConfigError(
            f"There is no table under '{base}': expected a folder '<table>/{_DELTA_LOG}', or Iceberg's "
            f"'<table>/{iceberg_metadata.FOLDER}', somewhere in it."
        )
    return build(entry(*_names(parts, found), base.joinpath(*parts)) for parts in found)


def _is_table(folder: Path) -> bool:
    return (folder / _DELTA_LOG).is_dir() or iceberg_metadata.is_iceberg(folder)


def _table_folders(base: Path, above: frozenset[str] = frozenset()) -> Iterator[tuple[str, ...]]:
    """Yield the names on the way to each table at or below ``base``. Links are followed, but not back to one of the
    directories ``above``."""
    if _is_table(base):
        yield ()
        return
    real = os.path.realpath(base)
    if real in above:
        return
    _, folders, _ = next(os.walk(base), ("", (), ()))
    for name in folders:
        if not name.startswith("."):
            for parts in _table_folders(base / name, above | {real}):
                yield (name, *parts)


def _names(parts: tuple[str, ...], found: Sequence[tuple[str, ...]]) -> tuple[str, str, str]:
    depth = len(parts)
    if depth == 1:
        return DEFAULT_NAME, DEFAULT_NAME, parts[0]
    if depth == 2:
        alone = sum(other[0] == parts[0] for other in found) == 1
        return (DEFAULT_NAME, DEFAULT_NAME, parts[0]) if alone else (DEFAULT_NAME, parts[0], parts[1])
    alone = sum(other[:3] == parts[:3] for other in found) == 1
    return parts[0], parts[1], parts[2] if alone else ".".join(parts[2:])


def split_name(name: str, noun: str) -> tuple[str, str, str]:
    """Return the three parts of ``share.schema.name``, or of a ``name`` in the share and schema "default"."""
    parts = name.rsplit(".", 2)
    if len(parts) == 3:
        return parts[0], parts[1], parts[2]
    if len(parts) == 1:
        return DEFAULT_NAME, DEFAULT_NAME, name
    raise ConfigError(f"The name of a {noun} must be 'share.schema.{noun}' or '{noun}', not {shown(name)}.")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
