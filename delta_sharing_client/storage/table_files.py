"""The files of a table in its own storage, by their addresses, with its log."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO
from urllib.parse import unquote

from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    DeletionVectorDescriptor,
    FileAction,
    RemoveFile,
    SharedFile,
)
from delta_sharing_client.delta.deletion_vectors import relative_path
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LOG_DIRECTORY, LogEntry
from delta_sharing_client.delta.paths import canonical_path, is_absolute
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.fetch.place import DataRequest, Page, Place, Refused, StoredFile, Take
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import table_metadata
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.run.objects import Ahead, pages, read_object
from delta_sharing_client.storage.locations import Location
from delta_sharing_client.storage.opening import OpenedPlace, found, place_of


class TableFiles:
    """The files of a table by address, as a ``Place``. Picklable.

    An address is ``<location>/<path>``; the path is percent-encoded once, as in a log.
    """

    urls = None
    lists_in_order = False

    def __init__(self, rest: RestClient, table: AssetName, options: ReadOptions) -> None:
        self._rest = rest
        self._name = table
        self.options = options
        main = place_of(rest, AssetRef(TABLE, table), None, options)
        self.location = main.location
        self._places: dict[str, OpenedPlace] = {self.location: main}

    def __repr__(self) -> str:
        return f"TableFiles({self.table!r}, {self.location!r})"

    @property
    def table(self) -> str:
        """The table's name, for errors."""
        return str(self._name)

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``, for the address of a file."""
        place, key = await found(self._find, self._known, request.address)
        await place.get(request._replace(address=key), take)

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Like ``Place.page``, for a folder of the table's main location."""
        return await self._places[self.location].page(folder, mark, deadline, recursive=recursive)

    @contextlib.contextmanager
    def log(self) -> Iterator[DeltaLog]:
        """Yield the table's log for a ``with`` block; files of the log are downloaded in advance."""
        files = _Log(self)
        try:
            yield DeltaLog(files, self.table)
        finally:
            files.close()

    def placed(self, action: FileAction, commit: Commit | None = None) -> SharedFile:
        """Return the file of an ``action`` with addresses instead of paths, and the version and time of ``commit``.

        Raises ``UnsupportedFeatureError`` if the file is outside the locations that the server shares, and
        ``DataError`` if its path or size is invalid.
        """
        file_id = canonical_path(action.path)
        if not isinstance(action, RemoveFile) and action.size < 0:
            raise DataError("Expected a size for each file in the log, found none.", table=self.table, file_id=file_id)
        placed: FileAction = replace(action, path=self._address(action.path))
        if placed.deletion_vector is not None:
            placed = replace(placed, deletion_vector=self._placed_vector(placed.deletion_vector))
        if commit is None:
            return SharedFile(placed, file_id)
        return SharedFile(placed, file_id, version=commit.version, timestamp=commit.timestamp_ms)

    async def read(self, address: str) -> memoryview:
        """Return the whole content of a file. Raises ``FileNotFoundError`` if it is missing, ``AuthError`` if the
        storage refuses the credentials, and ``TransportError`` if it does not send it."""
        return await read_object(self, address, name="a file of the table's log", refusal=self._refusal)

    def list_log(self) -> list[LogEntry]:
        """Return the files of the log; ``FileNotFoundError`` if there are none."""
        try:
            listed = pages(self, LOG_DIRECTORY, recursive=False, subject=f"table {self.table}")
            found = [_log_entry(file) for page in listed for file in page.files]
        except Refused as refused:
            if refused.status == 404 and not refused.reason:
                raise FileNotFoundError(LOG_DIRECTORY) from None
            raise refused.error(
                f"The table's storage refused to list the log ({refused}). Ask the provider whether the credentials "
                "may list the table's directory.",
                table=self.table,
            ) from None
        if not found:
            raise FileNotFoundError(LOG_DIRECTORY)
        return found

    def _refusal(self, refused: Refused) -> Exception:
        if refused.status == 404:
            return FileNotFoundError(2, "it does not exist")
        return refused.error(
            f"The table's storage refused to return a file of the log ({refused}). Ask the provider whether the "
            "credentials may read the table's directory.",
            table=self.table,
        )

    def _placed_vector(self, vector: DeletionVectorDescriptor) -> DeletionVectorDescriptor:
        if vector.storage_type == "i":
            return vector
        path = relative_path(vector) if vector.storage_type == "u" else vector.path_or_inline_dv
        return replace(vector, storage_type="p", path_or_inline_dv=self._address(path))

    def _address(self, path: str) -> str:
        """Return the address of a path in the log."""
        if is_absolute(path):
            address = _normalized(path)
        elif not path or "\0" in unquote(path) or ".." in unquote(path).split("/"):
            raise DataError(
                f"A relative path in the log must stay inside the table's directory, found {path[:200]!r}.",
                table=self.table,
            )
        else:
            address = f"{self.location}/{path}"
        self._find(address)
        return address

    def _known(self, address: str) -> tuple[Place, str] | None:
        location = _around(address, self._places)
        return None if location is None else (self._places[location], unquote(address.removeprefix(f"{location}/")))

    def _find(self, address: str) -> tuple[Place, str]:
        location = _around(address, self._places) or self._opened(address)
        return self._places[location], unquote(address.removeprefix(f"{location}/"))

    def _opened(self, address: str) -> str:
        """Open the auxiliary location that contains ``address``, and return the location."""
        location = _around(address, self._auxiliary)
        if location is not None:
            place = place_of(self._rest, AssetRef(TABLE, self._name), location, self.options)
            if place.location == location:
                self._places[location] = place
                return location
        raise UnsupportedFeatureError(
            "A file of the table is outside the table's location and auxiliary locations, so it cannot be read "
            "directly. Read the table by URL.",
            feature="auxiliaryLocations",
            table=self.table,
            file_id=address.rpartition("/")[2],
        )

    @lazy
    def _auxiliary(self) -> tuple[str, ...]:
        head = table_metadata(self._rest, self._name)
        return tuple(str(Location.parse(location)) for location in head.auxiliary_locations)


def _around(address: str, locations: Iterable[str]) -> str | None:
    return next((location for location in locations if address.startswith(f"{location}/")), None)


def _normalized(path: str) -> str:
    """Return the address of an absolute path in a log."""
    return str(Location.parse(path if "://" in path else f"file://{path.removeprefix('file:')}"))


def _log_entry(file: StoredFile) -> LogEntry:
    modified_ms = 0 if file.modified is None else round(file.modified.timestamp() * 1000)
    return LogEntry(file.path.rpartition("/")[2], file.size, modified_ms)


class _Log:
    """The log of ``TableFiles``, as a ``delta.log.log_files.LogDirectory``."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._ahead = Ahead(self._read)

    def entries(self) -> list[LogEntry]:
        return self._files.list_log()

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._ahead.get(path))

    def expect(self, paths: Sequence[str]) -> None:
        self._ahead.expect(paths)

    def close(self) -> None:
        self._ahead.close()

    async def _read(self, path: str) -> memoryview:
        # A path is absolute, or relative to the directory of the log.
        address = _normalized(path) if is_absolute(path) else f"{self._files.location}/{LOG_DIRECTORY}/{path}"
        return await self._files.read(address)
