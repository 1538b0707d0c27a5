"""An asset as an fsspec file system, from which pandas, Polars, DuckDB, ``pyarrow.dataset`` and others can read."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterable, Iterator
from typing import Any

from fsspec.spec import AbstractFileSystem

from delta_sharing_client.assets.directory import Directory, checked_path
from delta_sharing_client.assets.stream import FileStream, OpenFile
from delta_sharing_client.errors import NotFoundError
from delta_sharing_client.fetch.place import Page, StoredFile
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop


class ReadOnlyFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The read-only part that the file systems of an asset and of all volumes share."""

    protocol = "delta-sharing"
    cachable = False
    root_marker = ""
    _subject = "Shared volumes are"

    def exists(self, path: str, **_: object) -> bool:
        """Return whether there is a file or directory at ``path``; errors other than its absence are raised."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def modified(self, path: str) -> Any:
        """Return when a file was last written."""
        return self.info(path).get("LastModified")

    def _refused(self, path: str, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, f"{self._subject} read-only", path)

    mkdir = makedirs = rmdir = rm = rm_file = cp_file = copy = mv = put = put_file = pipe_file = touch = _refused


class AssetFileSystem(ReadOnlyFileSystem):
    """The files of an asset, read-only. Paths are relative to the asset; they may begin with ``delta-sharing://``.

    Picklable. Methods raise the errors of the asset's methods, but ``FileNotFoundError`` for a path that does not
    exist, and ``OSError`` (``EROFS``) for everything that writes.
    """

    def __init__(self, directory: Directory, **options: Any) -> None:
        super().__init__(directory, **options)
        self._directory = directory
        self._subject = f"The {directory.ref} is"

    def __repr__(self) -> str:
        return f"AssetFileSystem({self._directory.ref})"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return super()._strip_protocol(path).lstrip("/")

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        """List a directory, or a single file, as fsspec specifies."""
        path = self._checked(path)
        entries: list[dict[str, Any]] = []
        is_directory = not path
        for page in self._directory.pages(path, recursive=False):
            entries += _entries(page)
            is_directory = is_directory or path in page.markers
        if not entries and not is_directory:
            with self._absence(path):
                entries = [_file(self._directory.stat(path))]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Return the properties of a file or directory; the ``ETag`` identifies the content of a file."""
        path = self._checked(path)
        if not path:
            return _folder("")
        try:
            return _file(self._directory.stat(path))
        except NotFoundError:
            if self._directory.is_directory(path):
                return _folder(path)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **options: Any
    ) -> Any:
        """List everything below a directory, as fsspec specifies, without a request for each directory."""
        path = self._checked(path)
        if maxdepth is not None:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **options)
        entries: dict[str, dict[str, Any]] = {}
        markers: set[str] = set()
        for page in self._directory.pages(path, recursive=True):
            entries.update((file.path, _file(file)) for file in page.files)
            markers |= page.markers
        if not entries and path and path not in markers:
            with contextlib.suppress(NotFoundError):
                entries = {path: _file(self._directory.stat(path))}
        if withdirs:
            below = {marker for marker in markers if len(marker) > len(path)}
            entries.update({folder: _folder(folder) for folder in _folders([*entries, *below], path) | below})
        names = sorted(entries)
        return {name: entries[name] for name in names} if detail else names

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: object) -> bytes:
        """Return the bytes of a file, or of a range in it; negative positions count from the end."""
        path = self._checked(path)
        with self._wants_file(path):
            if start is None and end is None:
                return self._directory.read_bytes(path)
            file = self._directory.stat(path)
            first, last, _step = slice(start, end).indices(file.size)
            if first >= last:
                return b""
            return bytes(loop.call(self._directory.read(path, file, ByteRange(first, last))))

    def _open(self, path: str, mode: str = "rb", **_: object) -> io.BufferedReader:
        if mode != "rb":
            self._refused(path)
        path = self._checked(path)
        with self._wants_file(path):
            return OpenFile(FileStream(self._directory, self._directory.stat(path)))

    # === Common helpers ===

    def _checked(self, path: str) -> str:
        return checked_path(self._strip_protocol(path), self._directory.ref)

    @contextlib.contextmanager
    def _wants_file(self, path: str) -> Iterator[None]:
        """Raise the errors of ``_absence``, and ``IsADirectoryError`` for a directory. Only if there is no file, this
        sends a request."""
        if not path:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        with self._absence(path):
            try:
                yield
            except NotFoundError:
                if self._directory.is_directory(path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
                raise

    @contextlib.contextmanager
    def _absence(self, path: str) -> Iterator[None]:
        try:
            yield
        except NotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, error.message.rstrip("."), path) from None


def _entries(page: Page) -> Iterator[dict[str, Any]]:
    yield from map(_folder, page.folders)
    yield from map(_file, page.files)


def _file(file: StoredFile) -> dict[str, Any]:
    return {"name": file.path, "size": file.size, "type": "file", "LastModified": file.modified, "ETag": file.etag}


def _folder(path: str) -> dict[str, Any]:
    return {"name": path, "size": 0, "type": "directory"}


def _folders(paths: Iterable[str], below: str) -> set[str]:
    folders: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while len(parent) > len(below) and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    return folders
