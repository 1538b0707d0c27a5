"""Reads files of a directory of this machine."""

from __future__ import annotations

import asyncio
import datetime
import os
from pathlib import Path
from typing import BinaryIO

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
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.local_folder import is_link
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange

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
        """Like ``Place.get``; an ``If-Match`` compares the time and the size of the file."""
        request.deadline.check("Reading a file", self.table)
        body = await asyncio.to_thread(self._open, request)
        try:
            await take(body)
        finally:
            body.close()

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Like ``Place.page``, one directory after another. Raises ``DataError`` for a link to a directory, because it
        could lead to a cycle."""
        deadline.check("Listing files", self.table)
        first, *waiting = [folder] if mark is None else mark.split(_BETWEEN)
        page = await asyncio.to_thread(self._listed, first)
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
            raise Refused(404, None) from None
        except OSError:
            raise Refused(403, None) from None
        return Page(files, folders)

    def _open(self, request: DataRequest) -> _LocalBody:
        try:
            stream = self._local_path(request.address).open("rb")
        except _NOT_THERE:
            raise Refused(404, None) from None
        except OSError:
            raise Refused(403, None) from None
        try:
            file = _stored_file(request.address, os.fstat(stream.fileno()))
            expected = None if request.version is None else request.version.etag
            if expected and expected != file.etag:
                raise Refused(412, None)
            start, stop = _bounds(request.wanted, file.size)
            if isinstance(request.wanted, ByteRange) and start >= stop:
                raise Refused(416, None)
            stream.seek(start)
            return _LocalBody(stream, file, Span(start, stop, file.size))
        except BaseException:
            stream.close()
            raise


class _LocalBody:
    checksum: Checksum | None = None

    def __init__(self, stream: BinaryIO, file: StoredFile, span: Span) -> None:
        self.span = span
        self.version = Version(file.etag or "", "", file.size)
        self.modified = file.modified
        self._stream = stream
        self._left = (span.stop or 0) - span.start
        self._first: bytes | None = self._read()

    async def read(self) -> bytes:
        first, self._first = self._first, None
        if first is None:
            return await asyncio.to_thread(self._read) if self._left else b""
        return first

    def close(self) -> None:
        self._stream.close()

    def _read(self) -> bytes:
        data = self._stream.read(min(_CHUNK, self._left))
        self._left -= len(data)
        return data


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
