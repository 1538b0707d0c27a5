"""The files of an Iceberg table by address, restricted to the locations of its credentials.

Addresses in Iceberg's metadata are plain text: nothing in them is percent-encoded, and no part of a path is special.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence

from delta_sharing_client.errors import DataError, TransportError, UnsupportedFeatureError
from delta_sharing_client.fetch.source import Body, DataRequest, Refused
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.retry import Transient, Tries
from delta_sharing_client.storage.directory_read import get_stored
from delta_sharing_client.storage.place import Place
from delta_sharing_client.storage.stores import Location

_MOST_METADATA = 1 << 30
"""A metadata file with more bytes than this is not downloaded."""

PlaceOf = Callable[[str, str], Place]
"""Returns the ``Place`` of a root such as ``s3://bucket``, with the credentials for a location in it."""


def address_of(path: str) -> str:
    """Return the address of a path in Iceberg's metadata, with the scheme in its usual spelling, and without trailing
    slashes. Metadata before version 4 may omit the scheme of local paths."""
    scheme, colon, rest = path.partition(":")
    if path.startswith("/") or (colon and scheme.lower() == "file"):
        return "file:///" + (path if path.startswith("/") else rest).strip("/")
    return str(Location.parse(path)) if "://" in path else path


def is_inside(address: str, location: str) -> bool:
    """Return whether ``address`` is in the directory, bucket or store ``location``."""
    if "://" not in location:
        return address.startswith(f"{location}://")
    return address.startswith(location if location.endswith("/") else f"{location}/")


class IcebergFiles:
    """The files of a table by address: ``fetch.source.FileStore``. Picklable, and safe in threads.

    Only files in one of ``locations`` are read; ``place_of`` returns the ``Place`` of a bucket, with the credentials
    for a location.
    """

    def __init__(self, table: str, options: ReadOptions, locations: Sequence[str], place_of: PlaceOf) -> None:
        self._table = table
        self.options = options
        # Longest first, so that the most specific location is used.
        self._locations = sorted(map(address_of, locations), key=len, reverse=True)
        self._place_of = place_of
        self._places: dict[tuple[str, str], Place] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"IcebergFiles({self._table!r}, {self._locations!r})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def table(self) -> str:
        """The table's name, for errors."""
        return self._table

    def checked(self, path: str) -> str:
        """Return the address of ``path``. Raises ``UnsupportedFeatureError`` if it is outside of the locations."""
        address = address_of(path)
        self._location(address, path)
        return address

    async def get(self, request: DataRequest, take: Callable[[Body], Awaitable[None]]) -> None:
        """Like ``fetch.http.Http.get``, for the address of a file."""
        await get_stored(request, take, self._find, self.table)

    def read(self, path: str) -> bytes:
        """Return a whole file of the table's metadata. Raises ``DataError`` if it does not exist or is too large,
        ``TransportError`` if the storage refuses it."""
        address = self.checked(path)

        def attempt() -> bytes:
            place, key = self._find(address)
            try:
                body = place.get(key)
            except Refused as refused:
                raise self._refused(refused, path) from None
            with contextlib.closing(body):
                size = (body.span.stop or 0) - body.span.start
                if size > _MOST_METADATA:
                    raise DataError(
                        f"A file of the table's metadata must have at most {_MOST_METADATA} bytes, found {size}.",
                        table=self.table,
                        file_id=path,
                    )
                data = b"".join(iter(body.read, b""))
            if len(data) < size:
                raise Transient(TransportError("The table's storage ended a response early.", table=self.table))
            return data

        return Tries(self.options).call(attempt)

    def _refused(self, refused: Refused, path: str) -> DataError | TransportError:
        if refused.status == 404:
            error = DataError(
                "A file of the table's metadata does not exist. The snapshot may have expired: read a newer one, or "
                "ask the provider.",
                table=self.table,
                file_id=path,
            )
            error.status = 404
            return error
        return TransportError(
            f"The table's storage refused access to a file of its metadata (HTTP status {refused.status}). Ask the "
            "provider whether the credentials may read the table's location.",
            table=self.table,
            file_id=path,
        )

    def _location(self, address: str, path: str) -> str:
        location = next((candidate for candidate in self._locations if is_inside(address, candidate)), None)
        if location is None or ".." in address.split("/"):
            raise UnsupportedFeatureError(
                "A file of the table is outside of the locations for which the catalog gave credentials, so it is not "
                "read. Ask the provider for a table whose files are in its location.",
                feature="files outside of the table's location",
                table=self.table,
                file_id=path,
            )
        return location

    def _find(self, address: str) -> tuple[Place, str]:
        location = self._location(address, address)
        scheme, _, rest = address.partition("://")
        bucket, _, key = rest.partition("/")
        root = f"{scheme}://{bucket}"
        if scheme == "file":
            root, key = location, address[len(location) :].lstrip("/")
        with self._lock:
            place = self._places.get((location, root))
            if place is None:
                place = self._places[location, root] = self._place_of(root, location)
        return place, key
