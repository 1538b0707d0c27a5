"""A long list of files, of which only the first are held in memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import IO

import msgspec

from delta_sharing_client.fetch.place import StoredFile

_IN_MEMORY = 20_000
_BUFFER_BYTES = 1024 * 1024
# Begins a line whose path is escaped once more.
_ESCAPED = b"\\"


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
        try:
            line = self._encode(file)
        except UnicodeEncodeError:
            # A name that is not UTF-8 has surrogates, which msgspec does not write.
            line = _ESCAPED + self._encode(msgspec.structs.replace(file, path=json.dumps(file.path)))
        self._others.write(line + b"\n")

    def __iter__(self) -> Iterator[StoredFile]:
        """Iterate over all files. Only one iteration may run at a time, and no file may be added meanwhile."""
        yield from self._first
        if self._others is not None:
            self._others.seek(0)
            decode = msgspec.json.Decoder(StoredFile).decode
            for line in self._others:
                file = decode(line.removeprefix(_ESCAPED))
                is_escaped = line.startswith(_ESCAPED)
                yield msgspec.structs.replace(file, path=json.loads(file.path)) if is_escaped else file

    def close(self) -> None:
        """Remove the temporary file."""
        if self._others is not None:
            self._others.close()
