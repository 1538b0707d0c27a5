"""The server's configuration as one frozen value, and the parser of the reference server's YAML file."""

from __future__ import annotations

import dataclasses
import difflib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from delta_sharing_client.delta.paths import local_path
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.redact import Secret

from . import asset_files, catalog
from .access import Vendor
from .catalog import DIRECTORY_ACCESS, READY, URL_ACCESS, AssetEntry, AssetKind, Catalog, TableEntry, TableFormat
from .errors import ConfigError
from .faults import Fault
from .s3 import S3Settings, is_s3
from .tls import Tls

# Keys of the reference server that have no effect here.
_WITHOUT_EFFECT = frozenset({"deltaTableCacheSize", "stalenessAcceptable", "requestTimeoutSeconds"})


def _new_token() -> Secret:
    return Secret(secrets.token_urlsafe(24))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The configuration of the server.

    Parameters
    ----------
    catalog:
        The shared tables and other assets.
    token:
        The bearer token for every request.
    check_token:
        Whether the token is checked; with a YAML file without ``authorization``, it is not.
    prefix:
        Path prefix of the REST API.
    iceberg_prefix:
        Path prefix of the Iceberg catalog.
    url_ttl:
        Minimum seconds for which a data URL is valid.
    latency:
        Seconds by which every response is delayed.
    bandwidth:
        Bytes per second for all responses together; ``None`` for no limit.
    faults:
        Simulated faults (``mock_server.faults``).
    sql_hints, json_hints, json_hints_v2:
        Whether the server uses ``predicateHints``, ``jsonPredicateHints`` on partition columns, and
        ``jsonPredicateHints`` on file statistics.
    page_size_limit:
        Maximum number of files on a page, for queries that request pages.
    page_token_ttl, refresh_token_ttl:
        Seconds for which page tokens and refresh tokens are valid.
    async_polls:
        How many polls of an asynchronous query return ``pending`` first.
    directory:
        The directory from which the catalog was read; later changes in it are served.
    local_directories:
        Whether local tables offer directory access to users of this machine.
    credentials_ttl:
        Seconds after which temporary credentials expire.
    tls:
        The certificate for HTTPS; ``None`` for HTTP.
    s3:
        Settings for tables in S3.
    vendors:
        Creates temporary credentials for the locations of other stores, by scheme (``abfss``, ``gs``).
    """

    catalog: Catalog
    token: Secret = dataclasses.field(default_factory=_new_token)
    check_token: bool = True
    host: str = "127.0.0.1"
    port: int = 0
    prefix: str = "/delta-sharing"
    iceberg_prefix: str = "/iceberg"
    url_ttl: float = 3600.0
    latency: float = 0.0
    bandwidth: float | None = None
    faults: tuple[Fault, ...] = ()
    sql_hints: bool = True
    json_hints: bool = True
    json_hints_v2: bool = True
    page_size_limit: int = 10_000
    page_token_ttl: float = 259_200.0
    refresh_token_ttl: float = 3600.0
    async_polls: int = 1
    directory: Path | None = None
    local_directories: bool = False
    credentials_ttl: float = 3600.0
    tls: Tls | None = None
    s3: S3Settings = dataclasses.field(default_factory=S3Settings)
    vendors: Mapping[str, Vendor] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"The port must be a number from 0 to 65535, not {self.port}.")
        if self.url_ttl <= 0:
            raise ConfigError(f"The URL lifetime must be more than 0 seconds, not {self.url_ttl}.")
        if self.latency < 0:
            raise ConfigError(f"The latency must be 0 or more seconds, not {self.latency}.")
        if self.bandwidth is not None and self.bandwidth <= 0:
            raise ConfigError(f"The bandwidth must be more than 0 bytes per second, not {self.bandwidth}.")
        if not self.prefix.startswith("/") or self.prefix.rstrip("/") == "":
            raise ConfigError(f"The endpoint must be a path such as '/delta-sharing', not '{self.prefix}'.")
        if f"{self.iceberg_prefix}/".startswith(f"{self.prefix}/") or f"{self.prefix}/".startswith(
            f"{self.iceberg_prefix}/"
        ):
            raise ConfigError(
                f"The endpoint '{self.prefix}' must not overlap '{self.iceberg_prefix}', the Iceberg catalog's path."
            )


def from_yaml(path: str | os.PathLike[str]) -> ServerConfig:
    """Read the reference server's configuration file.

    Supported are ``shares`` with ``schemas`` and ``tables`` (``name``, ``location``: a local directory, relative to the
    file, a ``file:`` URI or an ``s3://`` address, ``id``, ``historyShared``, ``startVersion``),
    ``authorization.bearerToken``, ``ssl``, ``host``, ``port``, ``endpoint``, ``preSignedUrlTimeoutSeconds``, the
    ``evaluate...Hints`` switches, ``queryTablePageSizeLimit``, ``queryTablePageTokenTtlMs`` and ``refreshTokenTtlMs``.
    The reference server's other keys (``deltaTableCacheSize`` ...) have no effect. Additional keys are the shares'
    ``displayName``, ``comment`` and ``properties``, the tables' ``accessModes``, ``auxiliaryLocations`` and
    ``displayName``, the schemas' ``volumes``, ``skills`` and ``models`` (docs/server.md), ``s3`` with ``endpoint``,
    ``region``, ``accessKeyId`` and ``secretAccessKey``, ``localDirectories`` and
    ``temporaryCredentialsTimeoutSeconds``. Raises `ConfigError` with one sentence for any other key, and for a file
    that cannot be used.
    """
    source = Path(expanded(path))
    if source.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"The name of a configuration file must end in .yaml or .yml, but '{source.name}' does not.")
    try:
        content = yaml.safe_load(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"The configuration file '{source}' cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{source.name}' is not YAML: {' '.join(str(error).split())}.") from error
    top = _Node(source.name, content)
    version = top.integer("version", 1)
    if version != 1:
        raise ConfigError(f"{source.name}: version must be 1, not {version}.")
    authorization = top.child("authorization")
    token = authorization.text("bearerToken", None) if authorization else None
    s3, ssl = top.child("s3"), top.child("ssl")
    shared = _catalog(top, source.parent)
    config = ServerConfig(
        catalog=shared,
        token=Secret(token) if token else _new_token(),
        check_token=token is not None,
        host=top.text("host", "127.0.0.1") or "127.0.0.1",
        port=top.integer("port", 80),
        prefix="/" + (top.text("endpoint", "/delta-sharing") or "").strip("/"),
        url_ttl=float(top.integer("preSignedUrlTimeoutSeconds", 3600)),
        sql_hints=top.flag("evaluatePredicateHints", False),
        json_hints=top.flag("evaluateJsonPredicateHints", True),
        json_hints_v2=top.flag("evaluateJsonPredicateHintsV2", True),
        page_size_limit=top.integer("queryTablePageSizeLimit", 10_000),
        page_token_ttl=top.integer("queryTablePageTokenTtlMs", 259_200_000) / 1000,
        refresh_token_ttl=top.integer("refreshTokenTtlMs", 3_600_000) / 1000,
        local_directories=top.flag("localDirectories", False),
        credentials_ttl=float(top.integer("temporaryCredentialsTimeoutSeconds", 3600)),
        tls=_tls(ssl, source.parent) if ssl else None,
        s3=_s3_settings(s3) if s3 else S3Settings(),
    )
    for node in (top, *(node for node in (authorization, s3, ssl) if node)):
        node.refuse_unknown()
    return config


def _s3_settings(node: _Node) -> S3Settings:
    secret = node.text("secretAccessKey", None)
    return S3Settings(
        endpoint=node.text("endpoint", None),
        region=node.text("region", None),
        access_key_id=node.text("accessKeyId", None),
        secret_access_key=None if secret is None else Secret(secret),
    )


def _tls(node: _Node, base: Path) -> Tls:
    if node.flag("selfSigned", False):
        return Tls()
    certificate, key = node.text("certificateFile", None), node.text("certificateKeyFile", None)
    password = node.text("certificatePasswordFile", None)
    if certificate is None or key is None:
        raise ConfigError(f"{node.where}: certificateFile and certificateKeyFile, or selfSigned, must be given.")
    try:
        secret = None if password is None else Secret((base / expanded(password)).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{node.where}: certificatePasswordFile cannot be read: {type(error).__name__}.") from error
    return Tls(certificate=base / expanded(certificate), key=base / expanded(key), password=secret)


def _catalog(top: _Node, base: Path) -> Catalog:
    tables: list[TableEntry] = []
    assets: list[AssetEntry] = []
    schemas: list[tuple[str, tuple[str, ...]]] = []
    about: dict[str, dict[str, object]] = {}
    for share in _named(top.children("shares")):
        inner = _named(share.children("schemas"))
        properties = share.child("properties")
        told = {
            "displayName": share.text("displayName", None),
            "comment": share.text("comment", None),
            "properties": None if properties is None else properties.all_texts(),
        }
        _check_lengths(share, told)
        about[share.name] = {name: value for name, value in told.items() if value is not None}
        share.refuse_unknown()
        schemas.append((share.name, tuple(schema.name for schema in inner)))
        for schema in inner:
            tables.extend(_table(share.name, schema.name, table, base) for table in _named(schema.children("tables")))
            for kind, read in _ASSETS.items():
                names = share.name, schema.name
                assets.extend(read((*names, node.name), node, base) for node in _named(schema.children(kind.value)))
            schema.refuse_unknown()
    return catalog.build(tables, schemas, about, assets)


def _volume(names: tuple[str, str, str], node: _Node, base: Path) -> AssetEntry:
    entry = asset_files.volume(names, _asset_location(node, base), {"id": node.text("id", None)})
    node.refuse_unknown()
    return entry


def _skill(names: tuple[str, str, str], node: _Node, base: Path) -> AssetEntry:
    keys = ("id", "description", "license", "compatibility", "allowedTools")
    told: dict[str, object] = {key: value for key in keys if (value := node.text(key, None)) is not None}
    if (metadata := node.child("metadata")) is not None:
        told["metadata"] = metadata.all_texts()
    entry = asset_files.skill(names, _asset_location(node, base), told)
    node.refuse_unknown()
    return entry


def _model(names: tuple[str, str, str], node: _Node, base: Path) -> AssetEntry:
    versions = []
    for one in node.children("versions"):
        about = {key: one.text(key, None) for key in ("id", "source", "runId", "comment")}
        number, status = one.integer("version", 0), one.text("status", READY) or READY
        versions.append(asset_files.version(names, number, _asset_location(one, base), status, about))
        one.refuse_unknown()
    aliases = node.child("aliases")
    entry = asset_files.model(
        names,
        None if versions and node.text("location", None) is None else _asset_location(node, base),
        {"id": node.text("id", None), "comment": node.text("comment", None)},
        versions=tuple(versions),
        aliases=None if aliases is None else aliases.all_integers(),
    )
    node.refuse_unknown()
    return entry


_ASSETS: dict[AssetKind, Callable[[tuple[str, str, str], _Node, Path], AssetEntry]] = {
    AssetKind.VOLUME: _volume,
    AssetKind.SKILL: _skill,
    AssetKind.MODEL: _model,
}


def _asset_location(node: _Node, base: Path) -> str:
    location = node.text("location", None)
    if not location:
        raise ConfigError(f"{node.where}: location is missing. Give a directory or the address of a store.")
    return location if "://" in location or location.startswith("file:") else str(base / location)


def _check_lengths(share: _Node, told: Mapping[str, object]) -> None:
    """Raise `ConfigError` if a field is longer than the protocol allows (protocol, "List Shares")."""
    properties = told["properties"] if isinstance(told["properties"], dict) else {}
    lengths = [("displayName", told["displayName"], 255), ("comment", told["comment"], 65_536)]
    lengths += [(f"the key {key[:20]!r} of properties", key, 255) for key in properties]
    lengths += [(f"{key!r} of properties", value, 1000) for key, value in properties.items()]
    for name, value, most in lengths:
        if isinstance(value, str) and len(value) > most:
            raise ConfigError(f"{share.where}: {name} must have at most {most} characters, found {len(value)}.")
    if len(properties) > 50:
        raise ConfigError(f"{share.where}: there must be at most 50 properties, found {len(properties)}.")


def _table(share: str, schema: str, node: _Node, base: Path) -> TableEntry:
    location = node.text("location", None)
    if not location:
        raise ConfigError(f"{node.where}: location is missing. Give the directory of the Delta table.")
    storage: str | None = None
    if location.startswith("file:"):
        location = str(local_path("/" + location[len("file:") :].lstrip("/")))
    elif is_s3(location):
        storage, location = location.rstrip("/"), ""
    elif "://" in location:
        raise ConfigError(
            f"{node.where}: location must be a local directory or an s3:// address, not '{location.split(':')[0]}:'."
        )
    modes = node.texts("accessModes")
    if modes is not None and (not modes or not {URL_ACCESS, DIRECTORY_ACCESS}.issuperset(modes)):
        raise ConfigError(f"{node.where}: accessModes must be a list of 'url' and 'dir', found {modes}.")
    start = node.integer("startVersion", 0)
    if start < 0:
        raise ConfigError(f"{node.where}: startVersion must be 0 or more, not {start}.")
    entry = TableEntry(
        share=share,
        schema=schema,
        name=node.name,
        location=(base / expanded(location)).resolve(),
        id=node.text("id", None) or catalog.table_id(share, schema, node.name),
        history_shared=node.flag("historyShared", node.flag("cdfEnabled", False)),
        start_version=start,
        storage=storage,
        auxiliary=tuple(address.rstrip("/") for address in node.texts("auxiliaryLocations") or ()),
        modes=None if modes is None else tuple(modes),
        display_name=node.text("displayName", None),
        formats=catalog.formats_of((base / expanded(location)).resolve()) if storage is None else (TableFormat.DELTA,),
    )
    if modes is not None and DIRECTORY_ACCESS in modes and storage is not None and not entry.history_shared:
        raise ConfigError(f"{node.where}: directory access shares the history, so historyShared must be true.")
    node.refuse_unknown()
    return entry


def _named(nodes: list[_Node]) -> list[_Node]:
    seen: set[str] = set()
    for node in nodes:
        if node.name.lower() in seen:
            raise ConfigError(f"{node.where}: the name '{node.name}' is used twice.")
        seen.add(node.name.lower())
    return nodes


class _Node:
    """A mapping in the file, with its place for error messages."""

    def __init__(self, where: str, content: object) -> None:
        if not isinstance(content, dict):
            raise ConfigError(f"{where}: expected keys and values, found {_kind(content)}.")
        self.where = where
        self._content: dict[str, Any] = content
        self._known = set(_WITHOUT_EFFECT)

    @property
    def name(self) -> str:
        name = self.text("name", None)
        if not name:
            raise ConfigError(f"{self.where}: name is missing.")
        return name

    def refuse_unknown(self) -> None:
        """Refuse unused keys, because a misspelled one would silently have no effect."""
        for key in self._content:
            if key not in self._known:
                near = difflib.get_close_matches(str(key), self._known, 1)
                hint = f" Did you mean '{near[0]}'?" if near else f" The keys are: {', '.join(sorted(self._known))}."
                raise ConfigError(f"{self.where}: there is no key '{key}'.{hint}")

    def child(self, key: str) -> _Node | None:
        value = self._get(key)
        return None if value is None else _Node(f"{self.where}, {key}", value)

    def children(self, key: str) -> list[_Node]:
        value = self._get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ConfigError(f"{self.where}: {key} must be a list, found {_kind(value)}.")
        return [_Node(f"{self.where}, {key}[{index}]", item) for index, item in enumerate(value)]

    def text(self, key: str, default: str | None) -> str | None:
        value = self._get(key, default)
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{self.where}: {key} must be a string, found {_kind(value)}.")
        return value

    def integer(self, key: str, default: int) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{self.where}: {key} must be a whole number, found {_kind(value)}.")
        return value

    def texts(self, key: str) -> list[str] | None:
        value = self._get(key)
        if value is not None and (not isinstance(value, list) or not all(isinstance(item, str) for item in value)):
            raise ConfigError(f"{self.where}: {key} must be a list of strings, found {_kind(value)}.")
        return value

    def all_texts(self) -> dict[str, str]:
        """Return all pairs of a mapping with arbitrary keys and string values."""
        for key in self._content:
            self.text(key, None)
        return dict(self._content)

    def all_integers(self) -> dict[str, int]:
        """Return all pairs of a mapping with arbitrary keys and integer values."""
        return {str(key): self.integer(key, 0) for key in self._content}

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}: {key} must be true or false, found {_kind(value)}.")
        return value

    def _get(self, key: str, default: object = None) -> Any:
        self._known.add(key)
        return self._content.get(key, default)


def _kind(value: object) -> str:
    names = {dict: "keys and values", list: "a list", str: "a string", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)
