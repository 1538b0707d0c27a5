"""The directory of an asset in its store, which implements the methods of ``FileAsset``."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import re
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from itertools import islice
from typing import Union

from delta_sharing_client.assets.asset import Asset
from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    NotFoundError,
    UsageError,
)
from delta_sharing_client.fetch.listing import list_pages
from delta_sharing_client.fetch.place import Body, DataRequest, Page, Refused, StoredFile, Version
from delta_sharing_client.fetch.source import WEB_PAGE, Fetcher, is_web_page, send
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.asset_kinds import AssetRef
from delta_sharing_client.run import loop
from delta_sharing_client.run.consumer import Consumer
from delta_sharing_client.run.loop import interruptible
from delta_sharing_client.run.objects import pages, read_object
from delta_sharing_client.storage.opening import OpenedPlace, place_of_asset

Patterns = Union[str, Sequence[str]]
"""One pattern with shell wildcards, or several."""


class Opening:
    """Opens the place of an asset once, for all threads. Picklable; the pickle contains the credentials."""

    def __init__(self) -> None:
        self._place: OpenedPlace | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"_place": self._place}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def place(self, open_it: Callable[[], OpenedPlace]) -> OpenedPlace:
        """Return the place, which the first call opens with ``open_it``."""
        if self._place is None:
            with self._lock:
                if self._place is None:
                    self._place = open_it()
        return self._place


@dataclasses.dataclass(frozen=True)
class Directory:
    """The files of ``asset``. ``FileAsset`` documents the methods, which raise the same errors here."""

    asset: Asset

    @property
    def ref(self) -> AssetRef:
        """The asset, for messages."""
        return self.asset._ref

    @property
    def options(self) -> ReadOptions:
        """The options of all requests."""
        return self.asset.options

    @property
    def place(self) -> OpenedPlace:
        """The place of the files; the first use requests credentials."""
        asset = self.asset
        # A dictionary's ``setdefault`` is atomic, so all threads share one value.
        opening: Opening = vars(asset).setdefault("_opening", Opening())
        return opening.place(
            lambda: interruptible(
                lambda: place_of_asset(asset.rest, asset._ref, asset._files_location(), asset.options)
            )
        )

    def files(
        self, path: str = "", pattern: Patterns | None = None, *, exclude: Patterns = (), recursive: bool = True
    ) -> FileListing:
        folder = checked_path(path, self.ref)
        return FileListing(self, folder, matcher(pattern, exclude), recursive)

    def pages(self, folder: str, *, recursive: bool) -> Iterator[Page]:
        """List the files of ``folder`` in pages; none if it does not exist. Errors as for ``FileAsset.files``."""
        listed = pages(self.place, folder, recursive=recursive, subject=str(self.ref))
        try:
            with self.about(folder):
                yield from listed
        except NotFoundError:
            return

    def stat(self, path: str) -> StoredFile:
        path = self._file(path)
        file = loop.call(self.stat_async(path))
        if not file.size and self._is_marker(path):
            raise refusal(self.ref, path, Refused(404, None))
        return file

    async def stat_async(self, path: str) -> StoredFile:
        """Read the facts from a response with the first byte, for which the permission to read suffices."""
        facts: list[StoredFile] = []

        async def take(body: Body) -> None:
            size = body.span.total
            if is_web_page(body):
                raise DataError(f"Expected the file '{path}' of {self.ref}, found {WEB_PAGE}.")
            if size is None:
                raise DataError(
                    f"The store does not state the length of the file '{path}' of {self.ref}, so it can only be read "
                    "as a whole, with 'read_bytes()'."
                )
            facts.append(StoredFile(path, size, body.modified, body.version.etag or None))

        fetcher = Fetcher(self.place)
        try:
            await send(fetcher, DataRequest(path, ByteRange(0, 1), fetcher.deadline), take)
        except Refused as refused:
            if refused.status != 416:
                raise refusal(self.ref, path, refused) from None
            # An empty file has no first byte.
            await send(fetcher, DataRequest(path, None, fetcher.deadline), take)
        return facts[-1]

    def _is_marker(self, path: str) -> bool:
        """Return whether the empty file at ``path`` only marks a directory, because it has files."""
        return any(page.files or page.folders for page in islice(self.pages(path, recursive=False), 1))

    def read_bytes(self, path: str) -> bytes:
        path = self._file(path)
        return bytes(loop.cancellable(lambda: self.read(path)))

    async def read(
        self, path: str, file: StoredFile | None = None, wanted: ByteRange | None = None, *, once: bool = False
    ) -> memoryview:
        """Return the bytes of a file, or those of ``wanted``, which is only possible with the facts about the
        ``file``; ``once`` as for ``read_object``."""
        return await read_object(
            self.place,
            path,
            name=f"the file '{path}' of {self.ref}",
            refusal=lambda refused: refusal(self.ref, path, refused),
            size=-1 if file is None else file.size,
            version=None if file is None else Version(file.etag or "", "", file.size),
            wanted=wanted,
            once=once,
        )

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
            is_directory = False
            with contextlib.suppress(DeltaSharingError):
                is_directory = self.is_directory(checked_path(path, self.ref))
            if not is_directory:
                raise
            raise NotFoundError(
                f"Expected a file, but '{path}' of {self.ref} is a directory. List it with 'files()' or 'ls'.",
                status=404,
            ) from None

    def is_directory(self, path: str) -> bool:
        """Return whether there are files below ``path``, or the store marks it as a directory."""
        listed = self.pages(path, recursive=False)
        return any(page.files or page.folders or path in page.markers for page in listed)

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
        self._pages: AsyncGenerator[Page, None] | None = None
        self._has_ended = False
        loop.on_cancellation(self.close)

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

    def several(self) -> list[StoredFile]:
        """Return the next files, as many as have arrived, and at least one; none at the end."""
        files = [file] if (file := next(self, None)) is not None else []
        with contextlib.suppress(IndexError):
            while True:
                files.append(self._ready.popleft())
        return files

    def __del__(self) -> None:
        self._stop()

    def close(self) -> None:
        """End the listing. A thread that waits for a file, and any later call, gets a ``UsageError``."""
        if not self._has_ended:
            self._consumer.close()
            self._ready = deque()
        self._stop()

    def _stop(self) -> None:
        pages, self._pages = self._pages, None
        if pages is not None:
            loop.in_background(pages.aclose())

    def _load(self) -> None:
        """Add the files of the next page, or, after the last page, the file at ``folder`` if it is no directory."""
        page = self._next_page()
        if page is not None:
            self._is_there = self._is_there or bool(page.files or page.folders or self._folder in page.markers)
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
        if self._pages is None:
            place = consumer.call(lambda: directory.place)
            self._pages = list_pages(Fetcher(place), folder, recursive=self._recursive, subject=str(directory.ref))
        coming = loop.begin(_next(self._pages))
        try:
            with directory.about(folder):
                return consumer.result(coming)
        except NotFoundError:
            return None
        finally:
            coming.cancel()


class AsyncFileListing(AsyncIterator[StoredFile]):
    """A ``FileListing`` for one coroutine at a time. ``aclose`` ends it; so does cancelling the waiting task."""

    def __init__(self, listing: FileListing) -> None:
        self._listing = listing
        self._ready: deque[StoredFile] = deque()

    async def __anext__(self) -> StoredFile:
        if not self._ready:
            try:
                self._ready.extend(await loop.asynchronously(self._listing.several))
            except asyncio.CancelledError:
                self._listing.close()
                raise
        try:
            return self._ready.popleft()
        except IndexError:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> AsyncFileListing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the listing. A task that waits for a file, and any later call, gets a ``UsageError``."""
        self._ready = deque()
        self._listing.close()


async def _next(pages: AsyncGenerator[Page, None]) -> Page | None:
    return await anext(pages, None)


def checked_path(path: str, asset: AssetRef) -> str:
    """Return ``path`` without slashes at its ends; ``UsageError`` if no file or directory can have this path."""
    text = os.fspath(path)
    names = text.strip("/").split("/") if isinstance(text, str) and text.strip("/") else []
    if not isinstance(text, str) or "\0" in text or any(name in ("", ".", "..") for name in names):
        raise UsageError(f"Expected a path in {asset} such as 'folder/name', found {path!r}.")
    return "/".join(names)


def matcher(pattern: Patterns | None, exclude: Patterns = ()) -> Callable[[str], object] | None:
    """Return a function that tells whether a relative path matches ``pattern``, or one of several, and none of
    ``exclude``; ``None`` if all do.

    A pattern with a slash must match the whole path, and a pattern without one only the name. A slash at the end stands
    for everything below a directory, one at the start for nothing else.

    Raises ``UsageError`` if a pattern is malformed, or ``pattern`` is empty.
    """
    wanted, unwanted = _matchers(() if pattern is None else pattern), _matchers(exclude)
    if pattern is not None and not wanted:
        raise UsageError(
            "Expected at least one pattern such as '*.pdf', found none; leave 'pattern' out for all files."
        )
    if not wanted and not unwanted:
        return None
    return lambda path: (not wanted or any(one(path) for one in wanted)) and not any(one(path) for one in unwanted)


def _matchers(patterns: Patterns) -> list[Callable[[str], object]]:
    matchers: list[Callable[[str], object]] = []
    try:
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            if not pattern.strip("/"):
                raise ValueError
            match = _compiled(pattern).match
            matchers.append(match if "/" in pattern else functools.partial(_match_name, match))
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f"Expected a pattern such as '*.pdf' or 'a/**/*.csv', or a list of patterns, found {patterns!r}."
        ) from None
    return matchers


def _compiled(pattern: str) -> re.Pattern[str]:
    from fsspec.utils import glob_translate

    # A key may begin or end with a slash itself.
    forms = {pattern, pattern.removeprefix("/")}
    forms |= {f"{form}**" for form in forms if form.endswith("/")}
    return re.compile("|".join(map(glob_translate, sorted(forms))))


def _match_name(match: Callable[[str], object], path: str) -> object:
    return match(path.rpartition("/")[2])


def refusal(asset: AssetRef, path: str, refused: Refused) -> DeltaSharingError:
    """Return the error for a request for ``path`` that the store refused."""
    file = f"the file '{path}' of {asset}" if path else f"the files of {asset}"
    if refused.status == 404 and not refused.reason:
        return NotFoundError(f"There is no file or directory '{path}' in {asset}.", status=404)
    if refused.status == 412:
        return DataError(f"Expected one version of {file}, but it was replaced while it was read; read it again.")
    if refused.status in (401, 403):
        return refused.error(
            f"The store refused access to {file} ({refused}). If the settings of the store are right, ask the provider "
            "whether the credentials allow access."
        )
    return refused.error(f"The store refused {file} ({refused}).")
