"""Reads files of a directory of this machine."""

from __future__ import annotations

import asyncio
import datetime
import math
import os
import stat
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import TypeVar

from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.place import (
    Checksum,
    DataRequest,
    Page,
    Refused,
    Span,
    StoredFile,
    Take,
    Version,
    Wanted,
)
from delta_sharing_client.http.retry import Deadline, Transient
from delta_sharing_client.local_folder import is_link
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.redact import printable

T = TypeVar("T")

_CHUNK = 4 * 1024 * 1024
# No file has this character in its path.
_BETWEEN = "\0"
# ValueError is for names that no file can have: with a zero byte, or characters that the file system cannot encode.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError)


class LocalPlace:
    """A directory of this machine, as a ``Place``. Files are read in threads."""

    urls = None
    lists_in_order = False

    def __init__(self, root: Path, options: ReadOptions, table: str | None = None) -> None:
        self.root = root
        self.options = options
        self.table = table

    def __repr__(self) -> str:
        return f"LocalPlace({self.location!r})"

    @property
    def location(self) -> str:
        """The address of the directory."""
        return f"file://{self.root}"

    async def get(self, request: DataRequest, take: Take) -> None:
        """Like ``Place.get``; an ``If-Match`` compares the time and the size of the file. Raises ``Transient`` if the
        file is changed while it is read."""
        body = await _in_thread(lambda: self._open(request), request.deadline, "Reading a file", self.table)
        try:
            await take(body)
        finally:
            body.close()

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Like ``Place.page``, one directory after another. Raises ``DataError`` for a link to a directory, because it
        could lead to a cycle."""
        first, *waiting = [folder] if mark is None else mark.split(_BETWEEN)
        page = await _in_thread(lambda: self._listed(first), deadline, "Listing files", self.table)
        # A directory exists, also if nothing is in it.
        markers = frozenset((first, *page.folders))
        if not recursive:
            return page._replace(markers=markers)
        waiting = [*page.folders, *waiting]
        return Page(page.files, [], markers, _BETWEEN.join(waiting) if waiting else None)

    def _local_path(self, path: str) -> Path:
        if path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
            raise Refused(404, None)
        return self.root / path

    def _listed(self, folder: str) -> Page:
        files, folders = [], []
        try:
            with os.scandir(self._local_path(folder) if folder else self.root) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.is_file():
                        files.append(_stored_file(path, entry.stat()))
                    elif entry.is_dir() and not is_link(entry.stat(follow_symlinks=False)):
                        folders.append(path)
                    else:
                        raise DataError(
                            f"Expected a file or a directory, but '{path}' is neither; it may be a link to a directory."
                        )
        except _NOT_THERE:
            raise self._not_there() from None
        except OSError:
            raise Refused(403, None) from None
        return Page(files, folders)

    def _open(self, request: DataRequest) -> _LocalBody:
        try:
            # Without a buffer, whose lock a thread would hold that waits for a disk.
            stream = open(self._local_path(request.address), "rb", buffering=0, opener=_opened)  # noqa: SIM115
        except _NOT_THERE:
            raise self._not_there() from None
        except OSError:
            raise Refused(403, None) from None
        try:
            facts = os.fstat(stream.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise Refused(404, None)
            file = _stored_file(request.address, facts)
            expected = None if request.version is None else request.version.etag
            if expected and expected != file.etag:
                raise Refused(412, None)
            start, stop = _bounds(request.wanted, file.size)
            if isinstance(request.wanted, ByteRange) and start >= stop:
                raise Refused(416, None)
            stream.seek(start)
            return _LocalBody(stream, file, Span(start, stop, file.size), request.deadline, self.table)
        except BaseException:
            stream.close()
            raise

    def _not_there(self) -> Refused:
        """Return the refusal of a path: with a reason if the whole directory is missing, as when it is not mounted. It
        must not be listed as empty."""
        return Refused(404, None, "" if self.root.is_dir() else "the directory of the files does not exist")


class _LocalBody:
    checksum: Checksum | None = None

    def __init__(self, stream: FileIO, file: StoredFile, span: Span, deadline: Deadline, table: str | None) -> None:
        self.span = span
        self.version = Version(file.etag or "", "", file.size)
        self.modified = file.modified
        self._stream, self._file, self._deadline, self._table = stream, file, deadline, table
        self._left = (span.stop or 0) - span.start
        self._first: bytes | None = self._read()

    async def read(self) -> bytes:
        first, self._first = self._first, None
        if first is not None or not self._left:
            return first or b""
        return await _in_thread(self._read, self._deadline, "Reading a file", self._table)

    def close(self) -> None:
        self._stream.close()

    def _read(self) -> bytes:
        data = self._stream.read(min(_CHUNK, self._left)) or b""
        # A program may write into an open file.
        if _stored_file(self._file.path, os.fstat(self._stream.fileno())).etag != self._file.etag:
            problem = f"The file '{printable(self._file.path)}' was changed while it was read; read it again."
            raise Transient(DataError(problem, table=self._table))
        self._left -= len(data)
        return data


async def _in_thread(call: Callable[[], T], deadline: Deadline, doing: str, table: str | None) -> T:
    """Return ``call()``, for which the disk may make a thread wait. Raises ``TransportError`` after the deadline."""
    deadline.check(doing, table)
    left = deadline.left()
    try:
        # Before Python 3.12, asyncio.wait_for could lose the cancellation of a task whose call ended at that moment.
        async with asyncio.timeout(None if math.isinf(left) else left):
            return await asyncio.to_thread(call)
    except TimeoutError:
        deadline.check(doing, table)
        raise


def _opened(path: str, flags: int) -> int:
    # Opening a pipe would wait for a program that writes into it.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _bounds(wanted: Wanted, size: int) -> tuple[int, int]:
    if isinstance(wanted, ByteRange):
        return wanted.start, min(wanted.stop, size)
    return (0 if wanted is None else max(0, size - wanted)), size


def _stored_file(path: str, facts: os.stat_result) -> StoredFile:
    modified: datetime.datetime | None = None
    try:
        modified = datetime.datetime.fromtimestamp(facts.st_mtime, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        # The time is outside of what a datetime holds.
        modified = None
    return StoredFile(path, facts.st_size, modified, f'"{facts.st_mtime_ns}-{facts.st_size}"')
