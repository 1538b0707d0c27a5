"""Opens the location of an asset, whatever lies there: a store, a directory of this machine, or URLs of a server."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol
from urllib.request import url2pathname

from delta_sharing_client.errors import (
    DeltaSharingError,
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
    add_advice,
)
from delta_sharing_client.fetch.place import Place
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import TABLE, VOLUME, AssetRef
from delta_sharing_client.protocol.listings import UNKNOWN_ENDPOINT
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.storage.credentials import Provider, Renewal, StorageCredentials, from_protocol
from delta_sharing_client.storage.local import LocalPlace
from delta_sharing_client.storage.locations import SCHEMES, Location, StoreSettings
from delta_sharing_client.storage.server_urls import ServerUrls
from delta_sharing_client.storage.store_place import StorePlace


class OpenedPlace(Place, Protocol):
    """A place that knows the address of its location."""

    @property
    def location(self) -> str:
        """The address, such as ``s3://bucket/path``."""


def open_place(
    location: str,
    provider: Provider,
    options: ReadOptions,
    *,
    subject: str,
    allowed: Allowed,
    table: str | None = None,
    given: StorageCredentials | None = None,
) -> OpenedPlace:
    """Return the place of a location, without sending a request.

    Parameters
    ----------
    location:
        The address, such as ``s3://bucket/path``.
    provider:
        Requests new credentials (with ``storage.credentials.from_protocol`` or ``from_iceberg``). It is called before
        the first request unless credentials are ``given``, before the credentials expire, and if the store refuses
        them. It must be picklable. It is not called for a local directory.
    options:
        Time limits, retries, and the settings of the store (``storage_options``).
    subject, table:
        The owner of the location in messages ("volume a.b.c"), and its name in errors if it is a table.
    allowed:
        What the server that named the location may make its recipients request (``RestClient.allowed_data``): a local
        directory only if the server is on this machine, and an ``http:`` endpoint of a store only if the server's own
        endpoint is ``http:``.

    Raises ``UnsupportedFeatureError`` for a store that is not supported, and ``ProtocolError`` for a local directory
    that is not allowed.
    """
    where = Location.parse(location)
    if where.scheme == "file":
        # A remote server must not make a recipient read its own files.
        if not allowed.loopback or where.bucket not in ("", "localhost"):
            raise ProtocolError(
                f"The location of {subject} is a local directory, which only a server on this machine may share; ask "
                "the data provider.",
                table=table,
            )
        return LocalPlace(Path(url2pathname(where.prefix)), options, table)
    if where.scheme not in SCHEMES:
        raise UnsupportedFeatureError(
            f"The storage of {subject} has the scheme '{where.scheme}', which is not supported; expected one of "
            f"{', '.join(repr(name) for name in sorted(SCHEMES))}.",
            feature=f"storage in {where.scheme}",
            table=table,
        )
    return StorePlace(StoreSettings(where, options, allowed), Renewal(provider, given), subject, table)


# === Locations of shared assets ===


@dataclasses.dataclass(frozen=True)
class AssetCredentials:
    """Requests credentials for a location of an asset (protocol, "Generate Temporary Table Credential" ...)."""

    rest: RestClient
    asset: AssetRef
    location: str

    def __call__(self) -> StorageCredentials:
        return from_protocol(self.rest.credentials(self.asset, self.location))


def place_of(rest: RestClient, asset: AssetRef, location: str | None, options: ReadOptions) -> OpenedPlace:
    """Request credentials for a location of an asset (for a table, by default the main one), and return its place.

    Raises the errors of ``open_place``, and those of the server, which may not provide credentials.
    """
    given = rest.credentials(asset, location)
    where = Location.parse(given.location)
    try:
        return open_place(
            str(where),
            AssetCredentials(rest, asset, str(where)),
            options,
            subject=str(asset),
            allowed=rest.allowed_data,
            table=str(asset.name) if asset.kind is TABLE else None,
            given=from_protocol(given) if given.kinds else None,
        )
    except UnsupportedFeatureError as error:
        if asset.kind is TABLE:
            add_advice(error, "Read the table by URL.")
        raise


def place_of_asset(rest: RestClient, asset: AssetRef, location: str, options: ReadOptions) -> OpenedPlace:
    """Return the place of an asset's files: in its store, or by URL if the server provides only URLs.

    Requests credentials, and a list of files if there are none. Raises the errors of ``place_of``.
    """
    try:
        return place_of(rest, asset, location, options)
    except RequestError as error:
        if asset.kind is not VOLUME or error.status not in UNKNOWN_ENDPOINT:
            raise
        try:
            rest.volume_files_page(asset, None)
        except DeltaSharingError:
            # The server provides neither.
            raise error from None
        return ServerUrls(rest, asset, location, options)
