"""The Delta log of a table in the table's own storage, and the addresses of the files that it lists."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Iterator, Sequence
from typing import BinaryIO
from urllib.parse import unquote

from msgspec.structs import replace

from delta_sharing_client.delta.actions import DeletionVectorDescriptor, FileAction, RemoveFile, SharedFile
from delta_sharing_client.delta.deletion_vectors import relative_path
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LOG_DIRECTORY, LogEntry
from delta_sharing_client.delta.paths import canonical_path, is_absolute
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.place import Place, Refused, StoredFile
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import table_metadata
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.run.objects import Ahead, pages, read_object
from delta_sharing_client.storage.opening import OpenedPlace, place_of
from delta_sharing_client.storage.table_files import TableFiles, address_of


class StoredLog:
    """The log of a table, as a ``LogDirectory``; files of the log are downloaded in advance.

    ``files`` are the files that it lists. Raises the errors of ``place_of``.
    """

    def __init__(self, rest: RestClient, name: AssetName, options: ReadOptions) -> None:
        self.table = str(name)
        self._main = main = place_of(rest, AssetRef(TABLE, name), None, options)
        self.location = main.location
        locations = _Locations(rest, name, options, main)
        advice = "Read the table by URL."
        self.files = TableFiles(
            self.table, options, [main.location], locations, more=locations.auxiliary, advice=advice
        )
        self._ahead = Ahead(self._read)

    @contextlib.contextmanager
    def opened(self) -> Iterator[DeltaLog]:
        """Yield the log for a ``with`` block."""
        try:
            yield DeltaLog(self, self.table)
        finally:
            self._ahead.close()

    def entries(self) -> list[LogEntry]:
        """Like ``LogDirectory.entries``."""
        try:
            listed = pages(self._main, LOG_DIRECTORY, recursive=False, subject=f"table {self.table}")
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

    def open(self, path: str) -> BinaryIO:
        """Like ``LogDirectory.open``. Raises ``AuthError`` if the storage refuses the credentials, and
        ``TransportError`` if it does not send the file."""
        return io.BytesIO(self._ahead.get(self._log_address(path)))

    def expect(self, paths: Sequence[str]) -> None:
        """Like ``LogDirectory.expect``."""
        self._ahead.expect(map(self._log_address, paths))

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

    def _placed_vector(self, vector: DeletionVectorDescriptor) -> DeletionVectorDescriptor:
        if vector.storage_type == "i":
            return vector
        path = relative_path(vector) if vector.storage_type == "u" else vector.path_or_inline_dv
        return replace(vector, storage_type="p", path_or_inline_dv=self._address(path))

    def _address(self, path: str) -> str:
        """Return the address of a path in the log, which is percent-encoded once."""
        if is_absolute(path):
            return self.files.checked(path, unquote)
        decoded = unquote(path)
        if not path or "\0" in decoded or ".." in decoded.split("/"):
            raise DataError(
                f"A relative path in the log must stay inside the table's directory, found {path[:200]!r}.",
                table=self.table,
            )
        return f"{self.location}/{decoded}"

    def _log_address(self, path: str) -> str:
        # A path is absolute, or relative to the directory of the log.
        return self._address(path if is_absolute(path) else f"{LOG_DIRECTORY}/{path}")

    async def _read(self, address: str) -> memoryview:
        return await read_object(self.files, address, name="a file of the table's log", refusal=self._refusal)

    def _refusal(self, refused: Refused) -> Exception:
        if refused.status == 404:
            return FileNotFoundError(2, "it does not exist")
        return refused.error(
            f"The table's storage refused to return a file of the log ({refused}). Ask the provider whether the "
            "credentials may read the table's directory.",
            table=self.table,
        )


@dataclasses.dataclass(frozen=True)
class _Locations:
    """Opens the locations of a table's files with the server's credentials for each of them."""

    rest: RestClient
    name: AssetName
    options: ReadOptions
    main: OpenedPlace

    def __call__(self, location: str) -> tuple[str, Place]:
        place = self.main
        if location != place.location:
            place = place_of(self.rest, AssetRef(TABLE, self.name), location, self.options)
        return place.location, place

    def auxiliary(self) -> list[str]:
        """Return the locations besides the main one."""
        return list(map(address_of, table_metadata(self.rest, self.name).auxiliary_locations))


def _log_entry(file: StoredFile) -> LogEntry:
    modified_ms = 0 if file.modified is None else round(file.modified.timestamp() * 1000)
    return LogEntry(file.path.rpartition("/")[2], file.size, modified_ms)
