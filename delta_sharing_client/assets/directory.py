"""The directory of an asset in its store, which implements the methods of ``FileAsset``."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from delta_sharing_client.errors import (
    AuthError,
    DataError,
    DeltaSharingError,
    NotFoundError,
    TransportError,
    UsageError,
)
from delta_sharing_client.fetch.source import Refused
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import AssetRef
from delta_sharing_client.retry import Tries
from delta_sharing_client.run.consumer import Consumer
from delta_sharing_client.run.loop import in_thread, interruptible
from delta_sharing_client.storage.directory_urls import place_of_asset
from delta_sharing_client.storage.place import Page, Place, StoredFile
from delta_sharing_client.storage.reading import Reading

if TYPE_CHECKING:
    from delta_sharing_client.assets.files import FileAsset

T = TypeVar("T")


class Opening:
    """Opens the place of an asset once, for all threads. Picklable; the pickle contains the credentials."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"_place": self._place}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def place(self, open_it: Callable[[], Place]) -> Place:
        """Return the place, which the first call opens with ``open_it``."""
        if self._place is None:
            with self._lock:
                if self._place is None:
                    self._place = open_it()
        return self._place


@dataclasses.dataclass(frozen=True)
class Directory:
    """The files of ``asset``. ``FileAsset`` documents the methods, which raise the same errors here."""

    asset: FileAsset

    @property
    def ref(self) -> AssetRef:
        """The asset, for messages."""
        return self.asset.ref

    @property
    def options(self) -> ReadOptions:
        """The options of all requests."""
        return self.asset.options

    @property
    def place(self) -> Place:
        """The place of the files; the first use requests credentials."""
        asset = self.asset
        # A dictionary's ``setdefault`` is atomic, so all threads share one value.
        opening: Opening = vars(asset).setdefault("_opening", Opening())
        return opening.place(lambda: place_of_asset(asset.rest, asset.ref, asset.files_location(), asset.options))

    def files(self, path: str = "", pattern: str | None = None, *, recursive: bool = True) -> FileListing:
        folder = checked_path(path, self.ref)
        return FileListing(self, folder, matcher(pattern), recursive)

    def stat(self, path: str) -> StoredFile:
        path = self._file(path)
        tries = Tries(self.options)
        return self.asked(lambda: tries.call(lambda: self.place.head(path)), path)

    def open(self, path: str) -> io.BufferedReader:
        # Imported here, because the stream module imports this one.
        from delta_sharing_client.assets.stream import FileStream, OpenFile

        return OpenFile(FileStream(self, self.stat(path)))

    def read_bytes(self, path: str) -> bytes:
        path = self._file(path)
        return self.asked(lambda: b"".join(Reading(self.place, path, self.options)), path)

    def store(self) -> Any:
        return self.asked(lambda: self.place.store(), "")

    def asked(self, call: Callable[[], T], path: str) -> T:
        """Return ``call()``, which Ctrl-C can interrupt. A refusal of the store becomes an error about ``path``."""
        with self.about(path):
            return interruptible(call)

    @contextlib.contextmanager
    def about(self, path: str) -> Iterator[None]:
        """Replace a refusal of the store in the ``with`` block with an error about ``path``."""
        try:
            yield
        except Refused as refused:
            raise refusal(self.ref, path, refused) from None

    @contextlib.contextmanager
    def wants_file(self, path: str) -> Iterator[None]:
        """Replace a ``NotFoundError`` from the ``with`` block with a clearer one if ``path`` is a directory. Only after
        a ``NotFoundError``, this sends a request."""
        try:
            yield
        except NotFoundError:
            page = None
            with contextlib.suppress(DeltaSharingError):
                page = self.asked(lambda: next(self.place.pages(path, recursive=False), None), path)
            if page is None or not (page.files or page.folders):
                raise
            raise NotFoundError(
                f"Expected a file, but '{path}' of {self.ref} is a directory. List it with 'files()' or 'ls'.",
                status=404,
            ) from None

    def _file(self, path: str) -> str:
        checked = checked_path(path, self.ref)
        if not checked:
            raise UsageError(f"Expected the path of a file of {self.ref}, found {path!r}.")
        return checked


class FileListing(Iterator[StoredFile]):
    """The files in ``folder`` of an asset that ``matches`` (or all), as an iterator for one thread at a time.

    The next page of the listing is requested while the caller uses the current one. ``close`` ends the listing, from
    any thread.
    """

    def __init__(
        self, directory: Directory, folder: str, matches: Callable[[str], object] | None, recursive: bool
    ) -> None:
        self._directory, self._folder, self._recursive = directory, folder, recursive
        self._matches, self._skip = matches, len(folder) + 1 if folder else 0
        self._is_there = not folder
        self._consumer = Consumer(f"The listing of {directory.ref}")
        self._ready: deque[StoredFile] = deque()
        self._pages: Iterator[Page] = iter(())
        self._coming: Future[Page | None] | None = None
        self._has_ended = False

    def __next__(self) -> StoredFile:
        # Most files need no lock.
        with contextlib.suppress(IndexError):
            return self._ready.popleft()
        if self._has_ended:
            raise StopIteration
        with self._consumer.turn():
            try:
                while True:
                    with contextlib.suppress(IndexError):
                        return self._ready.popleft()
                    # Checked after the attempt, because another thread may have closed the listing meanwhile.
                    self._consumer.check()
                    if self._has_ended:
                        raise StopIteration
                    self._load()
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the listing. A thread that waits for a file, and any later call, gets a ``UsageError``."""
        if not self._has_ended:
            self._consumer.close()
            self._ready = deque()

    def _load(self) -> None:
        """Add the files of the next page, or, after the last page, the file at ``folder`` if it is no directory."""
        page = self._next_page()
        if page is not None:
            self._is_there = self._is_there or bool(page.files or page.folders)
            self._add(page.files, self._skip)
            return
        if not self._is_there:
            file = self._consumer.call(lambda: self._directory.stat(self._folder))
            self._add([file], len(file.path.rpartition("/")[0]) + 1 if "/" in file.path else 0)
        self._has_ended = True

    def _add(self, files: Sequence[StoredFile], skip: int) -> None:
        matches = self._matches
        chosen = files if matches is None else [file for file in files if matches(file.path[skip:])]
        self._ready.extend(chosen)

    def _next_page(self) -> Page | None:
        """Return the next page; ``None`` after the last one, and if the folder does not exist."""
        directory, folder, consumer = self._directory, self._folder, self._consumer
        if self._coming is None:
            with directory.about(folder):
                self._pages = consumer.call(lambda: directory.place.pages(folder, recursive=self._recursive))
            self._coming = in_thread(functools.partial(next, self._pages, None))
        try:
            with directory.about(folder):
                page = consumer.result(self._coming)
        except NotFoundError:
            return None
        if page is not None:
            self._coming = in_thread(functools.partial(next, self._pages, None))
        return page


def checked_path(path: str, asset: AssetRef) -> str:
    """Return ``path`` without slashes at its ends; ``UsageError`` if no file or directory can have this path."""
    text = os.fspath(path)
    names = text.strip("/").split("/") if isinstance(text, str) and text.strip("/") else []
    if not isinstance(text, str) or "\0" in text or any(name in ("", ".", "..") for name in names):
        raise UsageError(f"Expected a path in {asset} such as 'folder/name', found {path!r}.")
    return "/".join(names)


def matcher(pattern: str | None) -> Callable[[str], object] | None:
    """Return a function that matches relative paths against ``pattern``; ``None`` without a pattern.

    A pattern with a slash must match the whole path, and a pattern without one only the name.

    Raises ``UsageError`` if the pattern is malformed.
    """
    if pattern is None:
        return None
    from fsspec.utils import glob_translate

    try:
        compiled = re.compile(glob_translate(pattern))
    except (ValueError, TypeError):
        raise UsageError(f"Expected a pattern such as '*.pdf' or 'a/**/*.csv', found {pattern!r}.") from None
    if "/" in pattern:
        return compiled.match
    return lambda path: compiled.match(path.rpartition("/")[2])


def refusal(asset: AssetRef, path: str, refused: Refused) -> DeltaSharingError:
    """Return the error for a request for ``path`` that the store refused."""
    file = f"the file '{path}' of {asset}" if path else f"the files of {asset}"
    if refused.status == 404 and not refused.reason:
        return NotFoundError(f"There is no file or directory '{path}' in {asset}.", status=404)
    if refused.status == 412:
        return DataError(f"Expected one version of {file}, but it was replaced while it was read; read it again.")
    if refused.status in (401, 403):
        return AuthError(
            f"The store refused access to {file} ({refused}). If the settings of the store are right, ask the provider "
            "whether the credentials allow access.",
            status=refused.status,
        )
    return TransportError(f"The store refused {file} ({refused}).")
