"""Loads an Iceberg table of a share from the catalog, with the storage of its files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from delta_sharing_client import optional
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.fetch.place import Place
from delta_sharing_client.iceberg.catalog import Catalog
from delta_sharing_client.iceberg.metadata import (
    LoadedTable,
    check_metadata,
)
from delta_sharing_client.iceberg.single_values import EXTRA
from delta_sharing_client.iceberg.table_scan import (
    OpenedTable,
)
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.storage.credentials import StorageCredentials, from_iceberg, gives_credentials
from delta_sharing_client.storage.opening import open_place
from delta_sharing_client.storage.own_credentials import own_credentials
from delta_sharing_client.storage.table_files import TableFiles, address_of, is_inside

# Properties that name locations for files outside the table's location.
_PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_PLANNING_MODE = "scan-planning-mode"
# Settings that belong together in one set of credentials.
_SECRET_PROPERTIES = (
    *("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "adls.sas-token", "gcs.oauth2."),
)


def load_table(rest: RestClient, name: AssetName, options: ReadOptions) -> OpenedTable:
    """Load a table from the catalog. Raises ``NotFoundError`` if it does not exist, ``UnsupportedFeatureError`` if this
    client cannot read it, and the errors of the server."""
    optional.load("pyiceberg", EXTRA)
    loaded = Catalog(rest).load(name)
    check_metadata(loaded.metadata)
    if (loaded.config or {}).get(_PLANNING_MODE, "client").lower() != "client":
        raise UnsupportedFeatureError(
            "The catalog plans the reads of this table itself ('scan-planning-mode'), which this client does not "
            "support. Ask the provider to let clients plan the reads.",
            feature=_PLANNING_MODE,
            table=str(name),
        )
    places = _Places(rest, name, options, loaded)
    return OpenedTable(str(name), loaded.metadata, TableFiles(str(name), options, places.locations, places))


# === The storage of a table's files ===


@dataclasses.dataclass(frozen=True)
class _Reload:
    """Requests new credentials for the files of a ``root`` below a location, by loading the table again."""

    rest: RestClient
    name: AssetName
    root: str
    location: str
    options: ReadOptions

    def __call__(self) -> StorageCredentials:
        loaded = Catalog(self.rest).load(self.name)
        return _credentials(loaded, self.location, self.root, self.options)


class _Places:
    """Opens the bucket of a location of a table's files, or a local directory, with the catalog's credentials for the
    location. Picklable."""

    def __init__(self, rest: RestClient, name: AssetName, options: ReadOptions, loaded: LoadedTable) -> None:
        self._rest, self._name, self._options = rest, name, options
        self._given: LoadedTable | None = loaded
        prefixes = [credential.prefix for credential in loaded.storage_credentials or ()]
        properties = loaded.metadata.all_properties
        own = [loaded.metadata.location, *(properties[key] for key in _PATH_PROPERTIES if key in properties)]
        self.locations = list(map(address_of, (*prefixes, *own)))

    def __getstate__(self) -> dict[str, object]:
        # The response is not pickled, because the metadata may be large, and credentials are renewed.
        return vars(self) | {"_given": None}

    def __call__(self, location: str) -> tuple[str, Place]:
        is_local = location.startswith("file:")
        # Slashes at the start of a key are part of it, but they would not be at the start of a location.
        root = location if is_local else "/".join(location.split("/", 3)[:3])
        provider = _Reload(self._rest, self._name, root, location, self._options)
        credentials = None
        if self._given is not None and not is_local:
            credentials = _credentials(self._given, location, root, self._options)
        place = open_place(
            root,
            provider,
            self._options,
            subject=f"table {self._name}",
            allowed=self._rest.allowed_data,
            table=str(self._name),
            given=credentials,
        )
        return root, place


def _credentials(loaded: LoadedTable, location: str, root: str, options: ReadOptions) -> StorageCredentials:
    """Return the catalog's credentials for a location in the store ``root``, or else the recipient's own."""
    config = _config_for(loaded, location)
    if config is None or not gives_credentials(config, root):
        own = own_credentials(root, config or {}, options)
        if own is not None:
            return own
        if config is None:
            raise ProtocolError(
                f"The catalog must give credentials for the table's files in '{location}', found none. If you have "
                "credentials of your own for the store, set them in 'storage_options' (docs/iceberg.md)."
            )
    return from_iceberg(config, root)


def _config_for(loaded: LoadedTable, location: str) -> Mapping[str, str] | None:
    """Return the configuration with the credentials for a location: those with the longest matching prefix, or else the
    table's configuration; ``None`` if there is none."""
    matching = [
        credential
        for credential in loaded.storage_credentials or ()
        if address_of(credential.prefix) == location or is_inside(location, address_of(credential.prefix))
    ]
    best = max(matching, key=lambda credential: len(credential.prefix), default=None)
    config = loaded.config or {}
    if best is None:
        return config or None
    shared = {name: value for name, value in config.items() if not name.startswith(_SECRET_PROPERTIES)}
    return {**shared, **best.config}
