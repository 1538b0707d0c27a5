"""The files of a table in one place or several, by their addresses, whatever the format of the table."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.fetch.place import DataRequest, Page, Place, Refused, Take
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.locations import Location

OpenLocation = Callable[[str], tuple[str, Place]]
"""Returns the ``Place`` that contains a location, and the address of this place. Picklable; it may send requests."""


def address_of(path: str) -> str:
    """Return the address of an absolute path in a table's metadata: with the usual spelling of its scheme, and without
    trailing slashes. The scheme of a local path may be missing."""
    scheme, colon, rest = path.partition(":")
    if path.startswith("/") or (colon and scheme.lower() == "file"):
        return "file:///" + "/".join(filter(None, (path if path.startswith("/") else rest).split("/")))
    return str(Location.parse(path)) if "://" in path else path


def is_inside(address: str, location: str) -> bool:
    """Return whether ``address`` is in the directory, bucket or store ``location``."""
    if "://" not in location:
        return address.startswith(f"{location}://")
    return address.startswith(location if location.endswith("/") else f"{location}/")


class TableFiles:
    """The files of a table by address, as a ``Place``. Picklable, and safe in threads.

    An address is the location of a file, a slash and its path, in which nothing is percent-encoded. Only files in one
    of the ``locations`` are read, with the credentials of the longest one; each is opened when it is first needed.
    ``more`` returns further locations: it is called if a file is in none of the others. ``advice`` is part of the error
    for a file that is in none at all.
    """

    urls = None
    lists_in_order = False

    def __init__(
        self,
        table: str,
        options: ReadOptions,
        locations: Sequence[str],
        open_location: OpenLocation,
        *,
        more: Callable[[], Iterable[str]] = tuple,
        advice: str = "Ask the provider for a table whose files are in its location.",
    ) -> None:
        self.table = table
        self.options = options
        self._locations = sorted(locations, key=len, reverse=True)
        self._open_location = open_location
        self._more = more
        self._advice = advice
        self._places: dict[str, tuple[str, Place]] = {}

    def __repr__(self) -> str:
        return f"TableFiles({self.table!r}, {self._locations!r})"

    def checked(self, path: str, decoded: Callable[[str], str] = str) -> str:
        """Return the address of an absolute path in the table's metadata, after opening its location. ``decoded``
        decodes the part of the path below the location.

        Raises ``UnsupportedFeatureError`` if the file is outside of the locations, and the errors of their opening.
        """
        address = address_of(path)
        root, _ = self._opened(address)
        return root + decoded(address[len(root) :])

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``, for the address of a file."""
        address = request.address
        opened = self._places.get(self._location(address))
        if opened is None:
            opened = await asyncio.to_thread(self._opened, address)
        root, place = opened
        await place.get(request._replace(address=address[len(root) :].removeprefix("/")), take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Raise ``Refused``, because the metadata of a table lists its files."""
        raise Refused(405, None)

    def _opened(self, address: str) -> tuple[str, Place]:
        location = self._location(address)
        if not location:
            self._locations = sorted({*self._locations, *self._more()}, key=len, reverse=True)
            location = self._location(address)
        if location:
            opened = self._places.get(location) or self._places.setdefault(location, self._open_location(location))
            if is_inside(address, opened[0]):
                return opened
        raise UnsupportedFeatureError(
            f"A file of the table is outside of the locations that are shared, so it is not read. {self._advice}",
            feature="files outside of the table's location",
            table=self.table,
            file_id=address,
        )

    def _location(self, address: str) -> str:
        """Return the longest known location that contains ``address``, or an empty text."""
        location = next((one for one in self._locations if is_inside(address, one)), "")
        if ".." in address.split("/"):
            return ""
        # A location may be the scheme of a store, of which each bucket is a place.
        return location if "://" in location or not location else "/".join(address.split("/", 3)[:3])
