"""Records which version of each file a directory contains: lines of JSON in a file, which are looked up without holding
them in memory.

A line is ``[path, asset, source, etag, size, mtime_ns]``, or ``[path]`` for a file that was removed; the last line for
a path counts. The file may come from an archive, or from a process that was killed. Lines that no download could have
written are ignored: incomplete lines, and paths that lead out of the directory.
"""

from __future__ import annotations

import bisect
import json
from array import array
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import msgspec

from delta_sharing_client.assets.naming import is_inside

_decode = msgspec.json.Decoder().decode
_SURROGATE = b"\\ud"
_LONGEST_LINE = 64 * 1024
_FACTS = [str, str, str, int, int]


class WrittenFile(NamedTuple):
    """A record of a file.

    Attributes
    ----------
    asset:
        Identifies the asset whose download wrote the file; empty if the file was here before, with the same content.
    source, etag:
        The location that the content came from, and its ETag there; the ETag is empty if the store states none.
    size, mtime_ns:
        The size and time of the local file.
    """

    asset: str
    source: str
    etag: str
    size: int
    mtime_ns: int


def line_of(path: str, record: WrittenFile | None) -> bytes:
    """Return the line that records a file, or its removal."""
    fields = [path, *(record or ())]
    try:
        return msgspec.json.encode(fields) + b"\n"
    except UnicodeEncodeError:
        # A name that is not UTF-8 has surrogates, which msgspec does not write.
        return json.dumps(fields).encode() + b"\n"


class WrittenFiles:
    """The records of an open ``file`` when this object was created; or ``None``. Each takes 16 bytes of memory."""

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file
        self._keys, self._offsets = array("q"), array("q")
        self.is_tidy = True
        """Whether each line is the record of a different file, and no line is unreadable or records a removal."""
        if file is not None:
            self._index(file)

    def get(self, path: str) -> WrittenFile | None:
        """Return the record of a file, if any."""
        key = hash(path)
        at = bisect.bisect_left(self._keys, key)
        if self._file is None or at == len(self._keys) or self._keys[at] != key:
            return None
        record = self._at(self._offsets[at])
        # If another path has the same hash, the file counts as having no record.
        return record[1] if record is not None and record[0] == path else None

    def __iter__(self) -> Iterator[tuple[str, WrittenFile]]:
        """Iterate over the paths that have a record, and their records."""
        for offset in self._offsets:
            line = self._at(offset)
            if line is not None and line[1] is not None:
                yield line[0], line[1]

    def write_tidy(self, out: IO[bytes]) -> None:
        """Write one line for each noted file to ``out``."""
        for path, record in self:
            out.write(line_of(path, record))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _at(self, offset: int) -> tuple[str, WrittenFile | None] | None:
        assert self._file is not None
        self._file.seek(offset)
        return _read(self._file.readline(_LONGEST_LINE))

    def _index(self, lines: IO[bytes]) -> None:
        import numpy as np

        keys, offsets, offset = array("q"), array("q"), 0
        while line := lines.readline(_LONGEST_LINE):
            record = _read(line)
            if record is not None:
                keys.append(hash(record[0]))
                offsets.append(offset)
            self.is_tidy = self.is_tidy and record is not None and record[1] is not None
            offset += len(line)
        if not keys:
            return
        all_keys = np.frombuffer(keys, dtype=np.int64)
        order = np.argsort(all_keys, kind="stable")
        by_key = all_keys[order]
        is_last = np.append(by_key[1:] != by_key[:-1], True)
        self.is_tidy = self.is_tidy and bool(is_last.all())
        self._keys = array("q", by_key[is_last].tobytes())
        self._offsets = array("q", np.frombuffer(offsets, dtype=np.int64)[order][is_last].tobytes())


def _read(line: bytes) -> tuple[str, WrittenFile | None] | None:
    """Return the path and the record in a line; the record is ``None`` if the file was removed. Return ``None`` for an
    unreadable line."""
    try:
        fields: Any = json.loads(line) if _SURROGATE in line.lower() else _decode(line)
        name, *facts = fields
    except (ValueError, TypeError, RecursionError):
        # A process was killed while writing the line, or the file was edited.
        return None
    if not line.endswith(b"\n") or not isinstance(name, str) or not is_inside(name):
        return None
    if not facts:
        return name, None
    if [type(fact) for fact in facts] != _FACTS:
        return None
    record = WrittenFile(*facts)
    return (name, record) if record.size >= 0 else None
