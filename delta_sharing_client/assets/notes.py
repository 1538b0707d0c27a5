"""Records which version of each file a directory contains: lines of JSON in a file, which are looked up without holding
them in memory.

A line is ``[path, source, etag, size, mtime_ns]``, or ``[path]`` for a file that was removed; the last line for a path
counts. Unreadable lines, such as a partial last line of a killed process, are ignored.
"""

from __future__ import annotations

import bisect
import contextlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

_decode = msgspec.json.Decoder().decode


class Note(NamedTuple):
    """A record of a downloaded file: its ``source`` and ETag, and the size and time of the local file."""

    source: str
    etag: str
    size: int
    mtime_ns: int


def line_of(path: str, note: Note | None) -> bytes:
    """Return the line that records a file, or its removal."""
    return msgspec.json.encode([path, *(note or ())]) + b"\n"


class Notes:
    """The notes that were in the file ``path`` when this object was created. Each takes 16 bytes of memory."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] | None = None
        self._keys, self._places = array("q"), array("q")
        self.is_tidy = True
        """Whether each line is the note of a different file, and no line is unreadable or records a removal."""
        with contextlib.suppress(OSError):
            self._file = path.open("rb")
            self._index(self._file)

    def get(self, path: str) -> Note | None:
        """Return the note of a file, if any."""
        key = hash(path)
        at = bisect.bisect_left(self._keys, key)
        if self._file is None or at == len(self._keys) or self._keys[at] != key:
            return None
        note = self._at(self._places[at])
        # If another path has the same hash, the file counts as having no note.
        return note[1] if note is not None and note[0] == path else None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the paths that have a note."""
        for place in self._places:
            note = self._at(place)
            if note is not None and note[1] is not None:
                yield note[0]

    def write_tidy(self, path: Path) -> None:
        """Write one line for each noted file to ``path``."""
        with path.open("wb") as out:
            for place in self._places:
                note = self._at(place)
                if note is not None and note[1] is not None:
                    out.write(line_of(*note))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _at(self, place: int) -> tuple[str, Note | None] | None:
        assert self._file is not None
        self._file.seek(place)
        return _read(self._file.readline())

    def _index(self, lines: IO[bytes]) -> None:
        import numpy as np

        keys, places, place = array("q"), array("q"), 0
        for line in lines:
            note = _read(line)
            if note is not None:
                keys.append(hash(note[0]))
                places.append(place)
            self.is_tidy = self.is_tidy and note is not None and note[1] is not None and line.endswith(b"\n")
            place += len(line)
        if not keys:
            return
        all_keys = np.frombuffer(keys, dtype=np.int64)
        order = np.argsort(all_keys, kind="stable")
        by_key = all_keys[order]
        is_last = np.append(by_key[1:] != by_key[:-1], True)
        self.is_tidy = self.is_tidy and bool(is_last.all())
        self._keys = array("q", by_key[is_last].tobytes())
        self._places = array("q", np.frombuffer(places, dtype=np.int64)[order][is_last].tobytes())


def _read(line: bytes) -> tuple[str, Note | None] | None:
    """Return the path and the note in a line; the note is ``None`` if the file was removed. Return ``None`` for an
    unreadable line."""
    try:
        fields: Any = _decode(line)
        name, *facts = fields
        if not isinstance(name, str):
            return None
        if not facts:
            return name, None
        source, etag, size, mtime_ns = facts
        return name, Note(str(source), str(etag), int(size), int(mtime_ns))
    except (ValueError, TypeError):
        # A process was killed while writing the line, or the file was edited.
        return None
