"""The files of an Iceberg table by address, restricted to the locations of its credentials.

Addresses in Iceberg's metadata are plain text: nothing in them is percent-encoded, and no part of a path is special.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from delta_sharing_client.errors import DataError, DeltaSharingError, UnsupportedFeatureError
from delta_sharing_client.fetch.place import DataRequest, Page, Place, Refused, Take
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.run.objects import read_object
from delta_sharing_client.storage.locations import Location
from delta_sharing_client.storage.opening import found

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
    """The files of a table by address, as a ``Place``. Picklable, and safe in threads.

    Only files in one of ``locations`` are read; ``place_of`` returns the ``Place`` of a bucket, with the credentials
    for a location.
    """

    urls = None
    lists_in_order = False

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

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``, for the address of a file."""
        place, key = await found(self._find, self._known, request.address)
        await place.get(request._replace(address=key), take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Raise ``Refused``, because an Iceberg table lists its files itself."""
        raise Refused(405, None)

    async def read(self, path: str) -> memoryview:
        """Return a whole file of the table's metadata. Raises ``DataError`` if it does not exist or is too large,
        ``AuthError`` if the storage refuses the credentials."""
        return await read_object(
            self,
            self.checked(path),
            name="a file of the table's metadata",
            refusal=lambda refused: self._refused(refused, path),
            file_id=path,
            most=_MOST_METADATA,
        )

    def _refused(self, refused: Refused, path: str) -> DeltaSharingError:
        if refused.status == 404:
            error = DataError(
                "A file of the table's metadata does not exist. The snapshot may have expired: read a newer one, or "
                "ask the provider.",
                table=self.table,
                file_id=path,
            )
            error.status = 404
            return error
        return refused.error(
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

    def _known(self, address: str) -> tuple[Place, str] | None:
        location, root, key = self._located(address)
        place = self._places.get((location, root))
        return None if place is None else (place, key)

    def _find(self, address: str) -> tuple[Place, str]:
        location, root, key = self._located(address)
        with self._lock:
            place = self._places.get((location, root))
            if place is None:
                place = self._places[location, root] = self._place_of(root, location)
        return place, key

    def _located(self, address: str) -> tuple[str, str, str]:
        """Return the location of an address, the root of its place, and the path of the file in this place."""
        location = self._location(address, address)
        scheme, _, rest = address.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme == "file":
            return location, location, address[len(location) :].lstrip("/")
        return location, f"{scheme}://{bucket}", key
