"""Byte ranges of data files on the local disk, by table and file id.

The protocol promises that a file id always means the same bytes, so nothing here expires. Each range is one file::

    <cache>/<2 hex digits>/<sha256 of table id and file id>/<start>-<stop>.<size of the data file>

Writers make a temporary file and rename it, so that readers of any process see a range whole or not at all; a range
whose length is not what its name says is thrown away. The oldest ranges go when the cache is over its size.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import threading
from pathlib import Path

import pyarrow as pa

from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.sparse_file import Block

_NAME = re.compile(r"(\d+)-(\d+)\.(\d+)\Z")
# Looking through the whole cache is slow: it is done after this share of its size was written, and at least once.
_SWEEP_SHARE = 16
# A sweep frees some more, so that the next one is not due at once.
_KEEP = 0.9
_TEMPORARY = ".part-"
_STALE_SECONDS = 3600


class FileCache:
    """The ranges of one table's files; safe between threads and processes.

    It is only ever a shortcut: a directory that cannot be read or written means misses, never an error.
    """

    def __init__(self, directory: str | os.PathLike[str], max_bytes: int, table_id: str) -> None:
        self._root = Path(directory)
        self._max_bytes = max_bytes
        self._table_id = table_id
        self._lock = threading.Lock()
        self._written: int | None = None

    @classmethod
    def from_options(cls, options: ReadOptions, table_id: str) -> FileCache | None:
        """Return the cache that ``options`` ask for, if any; a table without an id cannot be cached."""
        if options.cache_directory is None or not table_id:
            return None
        return cls(options.cache_directory, options.cache_bytes, table_id)

    def get(self, file_id: str | None, wanted: ByteRange, file_size: int) -> Block | None:
        """Return a block that covers ``wanted``, or ``None``."""
        for name, held in self._ranges(file_id, file_size):
            if held.start <= wanted.start and wanted.stop <= held.stop:
                block = self._load(name, held)
                if block is not None:
                    return Block(wanted.start, block.data.slice(wanted.start - held.start, wanted.length))
        return None

    def tail(self, file_id: str | None, file_size: int) -> Block | None:
        """Return the longest block that reaches to the end of the file, or ``None``."""
        ends = [(held.start, name, held) for name, held in self._ranges(file_id, file_size) if held.stop == file_size]
        for _, name, held in sorted(ends):
            block = self._load(name, held)
            if block is not None:
                return block
        return None

    def put(self, file_id: str | None, block: Block, file_size: int) -> None:
        """Keep ``block``. Blocks without a file id, or larger than the whole cache, are not kept."""
        if file_id is None or block.data.size > self._max_bytes or not block.data.size:
            return
        folder = self._folder(file_id)
        # A full disk or a read-only directory must not fail the read.
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(memoryview(block.data))
                os.replace(temporary, folder / f"{block.start}-{block.stop}.{file_size}")
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            self._count(int(block.data.size))

    def _folder(self, file_id: str) -> Path:
        digest = hashlib.sha256(f"{len(self._table_id)}:{self._table_id}{file_id}".encode()).hexdigest()
        return self._root / digest[:2] / digest

    def _ranges(self, file_id: str | None, file_size: int) -> list[tuple[Path, ByteRange]]:
        if file_id is None:
            return []
        folder = self._folder(file_id)
        try:
            names = os.listdir(folder)
        except OSError:
            return []
        found = []
        for name in names:
            match = _NAME.match(name)
            if match is not None and int(match[3]) == file_size:
                found.append((folder / name, ByteRange(int(match[1]), int(match[2]))))
        return found

    def _load(self, name: Path, held: ByteRange) -> Block | None:
        with contextlib.suppress(OSError):
            data = pa.py_buffer(name.read_bytes())
            if data.size == held.length:
                os.utime(name)
                return Block(held.start, data)
            os.unlink(name)
        return None

    # === Size ===

    def _count(self, written: int) -> None:
        with self._lock:
            due = self._written is None or self._written + written > self._max_bytes // _SWEEP_SHARE
            self._written = 0 if due else (self._written or 0) + written
        if due:
            self._sweep()

    def _sweep(self) -> None:
        entries: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(folder, name)
                if not (_NAME.match(name) or name.startswith(_TEMPORARY)):
                    continue
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self._max_bytes:
            return
        newest = max(moment for moment, _, _ in entries)
        for moment, size, path in sorted(entries):
            if total <= self._max_bytes * _KEEP:
                break
            if os.path.basename(path).startswith(_TEMPORARY) and newest - moment < _STALE_SECONDS:
                continue
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size
