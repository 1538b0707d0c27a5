"""A cache of byte ranges of data files on the local disk, by table and file id.

The protocol guarantees that a file id always means the same bytes, so entries do not expire. Each range is a file::

    <cache>/<2 hex digits>/<sha256 of table id and file id>/<start>-<stop>.<size of the data file>

It contains the bytes, then the version of the data file in the storage (as JSON), the length of this JSON, a CRC-32 of
the bytes and the JSON, and a mark. Writers rename a temporary file, so that readers of any process see a complete range
or none; an entry that does not match its name or its checksum is deleted.

``<cache>/.size`` contains the number of bytes that all processes have stored; a writer holds the lock ``.lock``. If the
cache would exceed its limit, the ranges that were not used for the longest time are deleted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import struct
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.source import Version
from delta_sharing_client.file_lock import CannotLock, FileLock
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange

_NAME = re.compile(r"(\d+)-(\d+)\.(\d+)\Z")
_END = struct.Struct("<II8s")
_MARK = b"dsclient"
# A sweep leaves only this fraction of the limit, so that the next sweep is not needed soon.
_KEEP = 0.9
_TEMPORARY = ".part-"
# In seconds: the longest wait for the lock of another process, which may be suspended; the pause between two attempts;
# the time without attempts after a failure; and the longest wait for threads of this process, which release their lock.
_LOCK_SECONDS, _LOCK_PAUSE, _LOCK_REST = 0.5, 0.01, 10.0
_QUEUE_SECONDS = 30.0

_lock = threading.Lock()
# For each directory whose lock another process keeps, when to try again.
_rests: dict[Path, float] = {}


def _after_fork() -> None:
    # Another thread of the parent may have held the lock.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class FileCache:
    """The cached ranges of one table's files; threads and processes may share the directory.

    A directory that cannot be read or written causes cache misses, never errors.
    """

    def __init__(self, directory: str | os.PathLike[str], max_bytes: int, table_id: str) -> None:
        self._root = Path(directory)
        self._max_bytes = max_bytes
        self._table_id = table_id

    @classmethod
    def from_options(cls, options: ReadOptions, table_id: str) -> FileCache | None:
        """Return the cache that ``options`` request, if any; ``None`` also for a table without an id."""
        if options.cache_directory is None or not table_id:
            return None
        return cls(options.cache_directory, options.cache_bytes, table_id)

    def get(
        self, file_id: str | None, wanted: ByteRange | None, file_size: int, accept: Callable[[Version], bool]
    ) -> ByteBlock | None:
        """Return the bytes of ``wanted``, by default the longest stored block at the end of the file.

        ``accept`` decides whether bytes of a stored version may be used. Returns ``None`` if there are no such bytes.
        """
        if file_id is None:
            return None
        folder, stored = self._folder(file_id), []
        with contextlib.suppress(OSError):
            for name in _names(folder):
                match = _NAME.match(name)
                if match is not None and int(match[3]) == file_size and not os.path.islink(folder / name):
                    stored.append((ByteRange(int(match[1]), int(match[2])), folder / name))
        if wanted is None:
            fitting = [each for each in sorted(stored) if each[0].stop == file_size]
        else:
            fitting = [each for each in sorted(stored) if each[0].start <= wanted.start and wanted.stop <= each[0].stop]
        blocks = (_load(name, held, accept) for held, name in fitting)
        block = next((block for block in blocks if block is not None), None)
        if block is None or wanted is None:
            return block
        return ByteBlock(wanted.start, block.data.slice(wanted.start - block.start, wanted.length))

    def put(self, file_id: str | None, block: ByteBlock, file_size: int, version: Version) -> None:
        """Store ``block``. Blocks without a file id, or larger than the whole cache, are not stored."""
        if file_id is None or not block.data.size:
            return
        about = msgspec.json.encode(version)
        checksum = zlib.crc32(about, zlib.crc32(memoryview(block.data)))
        end = about + _END.pack(len(about), checksum, _MARK)
        # A full disk or a read-only directory must not fail the read.
        with contextlib.suppress(OSError):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone() as alone:
                if alone and self._make_room(int(block.data.size) + len(end)):
                    self._write(self._folder(file_id), f"{block.start}-{block.stop}.{file_size}", block.data, end)

    def _write(self, folder: Path, name: str, data: pa.Buffer, end: bytes) -> None:
        _check_own(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(folder, name, memoryview(data), end)

    def drop(self, file_id: str | None) -> None:
        """Delete all ranges of a file."""
        folder = self._folder(file_id or "")
        with contextlib.suppress(OSError):
            for name in _names(folder):
                if _NAME.match(name):
                    os.unlink(folder / name)

    def _folder(self, file_id: str) -> Path:
        digest = hashlib.sha256(f"{len(self._table_id)}:{self._table_id}{file_id}".encode()).hexdigest()
        return self._root / digest[:2] / digest

    # === Size ===

    def _make_room(self, size: int) -> bool:
        """Make room for ``size`` bytes and count them as stored; return whether they fit."""
        if size > self._max_bytes:
            return False
        counted = self._root / ".size"
        try:
            total = int(counted.read_bytes()) + size
        except (OSError, ValueError):
            total = self._max_bytes + 1
        if total > self._max_bytes:
            total = self._sweep(size) + size
        _replace(self._root, counted.name, b"%d" % total)
        return total <= self._max_bytes

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Exclude other threads and processes from the ``with`` block; yield false if the lock takes too long."""
        with contextlib.ExitStack() as stack:
            alone = self._is_due() and _lock.acquire(timeout=_QUEUE_SECONDS)
            if alone:
                stack.callback(_lock.release)
                # Another thread may have found meanwhile that the other process does not release its lock.
                alone = self._is_due() and self._lock_out(stack)
            yield alone

    def _is_due(self) -> bool:
        return time.monotonic() >= _rests.get(self._root, 0.0)

    def _lock_out(self, stack: contextlib.ExitStack) -> bool:
        """Exclude other processes until ``stack`` is closed; return false if another process keeps the lock, or if the
        file system has no locks."""
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                stack.enter_context(FileLock(self._root / ".lock", "The cache is in use."))
                return True
            except UsageError as error:
                if isinstance(error, CannotLock) or time.monotonic() >= deadline:
                    _rests[self._root] = time.monotonic() + _LOCK_REST
                    return False
                time.sleep(_LOCK_PAUSE)

    def _sweep(self, needed: int) -> int:
        """Delete the least recently used ranges until ``needed`` bytes fit; return how many bytes are left."""
        entries: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    if name.startswith(_TEMPORARY):
                        os.unlink(path)  # a leftover, because a writer would hold the lock
                    elif _NAME.match(name):
                        status = os.stat(path)
                        entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total + needed <= self._max_bytes:
            return total
        for _, size, path in sorted(entries):
            if total + needed <= self._max_bytes * _KEEP:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size
        return total


def _check_own(folder: Path) -> None:
    """Raise ``OSError`` if the folder of a file has been replaced by a symbolic link."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise OSError(errno.ELOOP, "a directory of the cache has been replaced by a symbolic link")


def _names(folder: Path) -> list[str]:
    _check_own(folder)
    return os.listdir(folder)


def _replace(folder: Path, name: str, *content: bytes | memoryview) -> None:
    """Write the file ``name`` completely or not at all. A symbolic link with this name is replaced, not followed."""
    handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in content:
                file.write(part)
        os.replace(temporary, folder / name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _load(name: Path, held: ByteRange, accept: Callable[[Version], bool]) -> ByteBlock | None:
    with contextlib.suppress(OSError):
        content = memoryview(name.read_bytes())
        version = _version(content, held.length)
        if version is None:
            os.unlink(name)
        elif accept(version):
            os.utime(name)
            return ByteBlock(held.start, pa.py_buffer(content[: held.length]))
    return None


def _version(content: memoryview, length: int) -> Version | None:
    """Return the version in a cache entry for ``length`` bytes; ``None`` if the entry is damaged."""
    if len(content) < length + _END.size:
        return None
    size, checksum, mark = _END.unpack(content[-_END.size :])
    body = content[: -_END.size]
    if mark != _MARK or len(body) != length + size or zlib.crc32(body) != checksum:
        return None
    try:
        return msgspec.json.decode(body[length:], type=Version)
    except msgspec.MsgspecError:
        return None
