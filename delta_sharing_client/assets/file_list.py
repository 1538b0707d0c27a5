"""A long list of files, of which only the first are held in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from delta_sharing_client.fetch.place import StoredFile

_IN_MEMORY = 20_000
_BUFFER_BYTES = 1024 * 1024


class FileList:
    """Files in the order in which they were added; files after the first 20,000 are in a temporary file.

    Attributes
    ----------
    count:
        The number of files.
    bytes:
        The sum of the sizes of the files.
    """

    def __init__(self) -> None:
        self.count = self.bytes = 0
        self._first: list[StoredFile] = []
        self._others: IO[bytes] | None = None
        self._encode = msgspec.json.Encoder().encode

    def add(self, file: StoredFile) -> None:
        """Add a file at the end. Raises ``OSError`` if the temporary file cannot be written."""
        self.count += 1
        self.bytes += file.size
        if len(self._first) < _IN_MEMORY:
            self._first.append(file)
            return
        if self._others is None:
            # Not closed here, because the file, which has no name, must exist as long as the list.
            self._others = tempfile.TemporaryFile(buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._others.write(self._encode(file) + b"\n")

    def __iter__(self) -> Iterator[StoredFile]:
        """Iterate over all files. Only one iteration may run at a time, and no file may be added meanwhile."""
        yield from self._first
        if self._others is not None:
            self._others.seek(0)
            decode = msgspec.json.Decoder(StoredFile).decode
            yield from map(decode, self._others)

    def close(self) -> None:
        """Remove the temporary file."""
        if self._others is not None:
            self._others.close()
