"""The access modes of a table: by URLs of its files, or with credentials for its directory (protocol, "Access
Modes")."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from .catalog import DIRECTORY_ACCESS, URL_ACCESS, Catalog, TableEntry, TableFormat
from .errors import ConfigError, invalid, unsupported
from .faults import FaultSet
from .s3 import S3Tables, is_s3

Vendor = Callable[[str, float], Mapping[str, object]]
"""Creates credentials for an address and a lifetime in seconds, such as ``{"azureUserDelegationSas": ...}``."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def access_of(entry: TableEntry) -> dict[str, Any]:
    """Return the fields that describe a table's access modes in listings and metadata."""
    content: dict[str, Any] = {"accessModes": list(entry.access_modes)}
    if DIRECTORY_ACCESS in entry.access_modes:
        content["location"] = entry.storage
        if entry.auxiliary:
            content["auxiliaryLocations"] = list(entry.auxiliary)
    return content


def require_loopback(host: str) -> None:
    """Raise `ConfigError` if other machines can reach the server: directories of this machine must not be shared with
    them."""
    if host not in _LOOPBACK:
        raise ConfigError(f"Directories of this machine can be shared only with its own users, not on '{host}'.")


def with_local_directories(catalog: Catalog, host: str) -> Catalog:
    """Return the catalog with ``file:`` locations for the tables of this machine, which only its own users can read.

    Raises `ConfigError` if other machines can reach the server.
    """
    require_loopback(host)
    return dataclasses.replace(
        catalog,
        tables=tuple(
            dataclasses.replace(entry, storage=entry.location.as_uri()) if entry.storage is None else entry
            for entry in catalog.tables
        ),
    )


def with_readable_formats(catalog: Catalog, host: str) -> Catalog:
    """Return the catalog without the Iceberg format of tables whose files a client on another machine could not open.

    Raises `ConfigError` if such a table has no other format.
    """
    if host in _LOOPBACK:
        return catalog
    tables = []
    for entry in catalog.tables:
        if entry.storage is None and TableFormat.ICEBERG in entry.formats:
            if TableFormat.DELTA not in entry.formats:
                require_loopback(host)
            entry = dataclasses.replace(entry, formats=(TableFormat.DELTA,))
        tables.append(entry)
    return dataclasses.replace(catalog, tables=tuple(tables))


def require_url_access(entry: TableEntry) -> None:
    """Raise `ApiError` for a query of a table that has only directory access."""
    if URL_ACCESS not in entry.access_modes:
        raise unsupported(f"The table '{entry.full_name}' is shared by directory access only, not by URL.")


def temporary_credentials(entry: TableEntry, location: str | None, vending: Vending) -> dict[str, Any]:
    """Return the response of "Generate Temporary Table Credential" for ``location``, by default the table's main one.

    Locations below it or below an auxiliary location get their own credentials. A local directory needs no keys, so its
    response has only the location and the expiration time.
    """
    if DIRECTORY_ACCESS not in entry.access_modes:
        raise unsupported(
            f"Temporary credentials are not supported for table '{entry.full_name}': it is shared by URL only."
        )
    assert entry.storage is not None
    wanted = entry.storage if location is None else location.rstrip("/")
    if not any(_lies_in(wanted, place) for place in (entry.storage, *entry.auxiliary)):
        raise invalid(
            "'location' must be the table's location, one of its auxiliary locations, or lie below one of them."
        )
    return {"credentials": {"location": wanted, **vending.credentials(wanted)}}


@dataclasses.dataclass(frozen=True, slots=True)
class Vending:
    """Creates temporary credentials for locations, valid for ``lifetime`` seconds.

    ``vendors`` create those for other stores than S3, by scheme. With the fault ``expired-credentials`` they have
    already expired.
    """

    s3: S3Tables
    vendors: Mapping[str, Vendor]
    lifetime: float
    faults: FaultSet

    def credentials(self, location: str) -> dict[str, Any]:
        """Return credentials for ``location``, and their expiration time; a local directory needs no keys."""
        content: dict[str, Any] = {}
        if (vendor := self.vendors.get(location.partition(":")[0])) is not None:
            content.update(vendor(location, self.lifetime))
        elif is_s3(location):
            content["awsTempCredentials"] = self.s3.credentials(location, self.lifetime)
        left = -60 if self.faults.take("expired-credentials") else self.lifetime
        content["expirationTime"] = int((time.time() + left) * 1000)
        return content


def _lies_in(address: str, place: str) -> bool:
    below = address.removeprefix(f"{place}/")
    return address == place or (below != address and not {"", ".", ".."} & set(unquote(below).split("/")))
