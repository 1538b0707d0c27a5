"""Local files that arrive in one part or in several, and that are continued after an interruption."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from delta_sharing_client.fetch.place import Checksum, StoredFile
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.parquet.byte_ranges import ByteRange, split

PART_BYTES = 4 * 1024 * 1024
"""Larger files arrive in parts of this size, in parallel, and are continued after an interruption."""

_READ_BYTES = 256 * 1024
_NOTE = re.compile(rb"(\d{1,18})-(\d{1,18})")

Keep = Callable[[str], None]
"""Moves the complete file at a temporary path to its own path."""


class SmallFile:
    """A file that arrives at once, at the path ``temporary``: a ``fetch.file_target.Target``."""

    def __init__(self, temporary: str, keep: Keep) -> None:
        self._temporary, self._keep = temporary, keep
        self._data = memoryview(b"")

    def missing(self, size: int) -> Sequence[ByteRange]:
        return [ByteRange(0, size)] if size else []

    def write(self, part: ByteRange, data: memoryview, *, is_hashed: bool) -> None:
        self._data = data

    def finish(self, checksum: Checksum | None) -> bool:
        data, self._data = self._data, memoryview(b"")
        if checksum is not None and _digest(checksum, data) != checksum.digest:
            return False
        with open(self._temporary, "wb", buffering=0) as out:
            written = out.write(data)
            while written < len(data):
                written += out.write(data[written:])
        self._keep(self._temporary)
        return True


class LargeFile:
    """A ``file`` that arrives in parts in the local file ``path``: a ``fetch.file_target.Target``.

    A file next to it records the parts that have arrived. They are hashed while they are in memory, if all earlier ones
    have been, and otherwise from the file.
    """

    def __init__(self, file: StoredFile, path: Path, keep: Keep, report: ScanReport) -> None:
        self.file, self.path = file, path
        self._keep, self._report = keep, report
        self._notes = path.with_suffix(".done")
        self._lock, self._hashing = threading.Lock(), threading.Lock()
        self._digest, self._hashed = hashlib.md5(usedforsecurity=False), 0

    def missing(self, size: int) -> Sequence[ByteRange]:
        is_begun = self.path.exists() and self.path.stat().st_size == size
        parts = split(ByteRange(0, size), PART_BYTES)
        missing = (
            [part for part, done in zip(parts, self._arrived(parts), strict=True) if not done] if is_begun else parts
        )
        if len(missing) == len(parts):
            self._restart()
        self._report.add(bytes=size - sum(part.length for part in missing))
        return missing

    def write(self, part: ByteRange, data: memoryview, *, is_hashed: bool) -> None:
        with self.path.open("r+b", buffering=0) as out:
            out.seek(part.start)
            written = out.write(data)
            while written < len(data):
                written += out.write(data[written:])
        with self._lock, self._notes.open("ab", buffering=0) as notes:
            notes.write(f"{part.start}-{part.stop}\n".encode())
        if is_hashed and self._hashing.acquire(blocking=False):
            try:
                if self._hashed == part.start:
                    self._digest.update(data)
                    self._hashed = part.stop
            finally:
                self._hashing.release()

    def finish(self, checksum: Checksum | None) -> bool:
        if checksum is not None and self._whole_digest(checksum) != checksum.digest:
            self._restart()
            return False
        self._notes.unlink(missing_ok=True)
        self._keep(str(self.path))
        return True

    def _restart(self) -> None:
        self._notes.unlink(missing_ok=True)
        with self.path.open("wb") as out:
            out.truncate(self.file.size)
        self._digest, self._hashed = hashlib.md5(usedforsecurity=False), 0

    def _whole_digest(self, checksum: Checksum) -> bytes:
        if checksum.algorithm != "md5":
            self._digest, self._hashed = hashlib.new(checksum.algorithm, usedforsecurity=False), 0
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(self._hashed)
            while data := stream.read(_READ_BYTES):
                self._digest.update(data)
        return self._digest.digest()

    def _arrived(self, parts: Sequence[ByteRange]) -> list[bool]:
        """Return which parts have arrived; those of earlier runs may have had different sizes."""
        try:
            lines = self._notes.read_bytes().split(b"\n")[:-1]
        except OSError:
            return [False] * len(parts)
        ranges = sorted((int(match[1]), int(match[2])) for match in map(_NOTE.fullmatch, lines) if match)
        arrived, missing = [], 0
        # ``missing`` is the first byte, from the start of this part on, that has not arrived.
        for part in parts:
            missing = max(missing, part.start)
            while ranges and ranges[0][0] <= missing:
                missing = max(missing, ranges.pop(0)[1])
            arrived.append(missing >= part.stop)
        return arrived


def _digest(checksum: Checksum, data: memoryview) -> bytes:
    return hashlib.new(checksum.algorithm, data, usedforsecurity=False).digest()
