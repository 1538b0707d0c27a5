"""Lists the files of a place, page by page: requests pages again, and ends listings that are wrong or never end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from delta_sharing_client.errors import DataError, TransportError
from delta_sharing_client.fetch.place import Page, StoredFile
from delta_sharing_client.fetch.source import Fetcher, repeated

_MOST_EMPTY_PAGES = 1000
_SHOWN = 200


async def list_pages(
    fetcher: Fetcher, folder: str = "", *, recursive: bool = True, subject: str = "the storage"
) -> AsyncGenerator[Page, None]:
    """Yield the pages of the files below ``folder``, or directly in it; the next page is requested while one is used.

    Directories that the store marks with an empty object are folders and markers in the pages, not files: also an empty
    file ``a`` beside ``a/b``, as Hadoop writes it on Azure. ``subject`` is for messages.

    Raises ``Refused`` if the place refuses the listing, ``TransportError`` if it does not end or does not arrive within
    the limits, and ``DataError`` for a response that is no listing, or for names outside of the folder.
    """
    in_order = fetcher.place.lists_in_order
    check = _Check(folder, subject, in_order=in_order)
    entries = _Entries(folder, recursive=recursive, in_order=in_order)
    coming = asyncio.ensure_future(_page(fetcher, folder, None, recursive, subject))
    try:
        while True:
            page = await coming
            check.note(page)
            if page.next is None:
                yield entries.last(page)
                return
            coming = asyncio.ensure_future(_page(fetcher, folder, page.next, recursive, subject))
            yield entries.next(page)
    finally:
        coming.cancel()


async def _page(fetcher: Fetcher, folder: str, mark: str | None, recursive: bool, subject: str) -> Page:
    place, deadline = fetcher.place, fetcher.deadline
    problem = f"The files of {subject} cannot be listed"
    return await repeated(fetcher, lambda: place.page(folder, mark, deadline, recursive=recursive), problem)


class _Check:
    """Checks that a listing makes progress, and that its names are in the folder."""

    def __init__(self, folder: str, subject: str, *, in_order: bool) -> None:
        self._in_order = in_order
        self._inside = f"{folder}/" if folder else ""
        self._subject = subject
        self._marks: set[str] = set()
        self._empty = 0
        self._last = ""

    def note(self, page: Page) -> None:
        names = _names(page)
        for name in names:
            if not name.startswith(self._inside):
                raise DataError(f"The store lists a file that is not in {self._subject}: '{name[:_SHOWN]}'.")
        if names:
            first, last = min(names), max(names)
            if self._in_order and self._last and not _grows(self._last, first):
                raise self._endless(f"'{first[:_SHOWN]}' comes after '{self._last[:_SHOWN]}'")
            self._last = last
        self._empty = 0 if names or page.markers or page.others else self._empty + 1
        if self._empty > _MOST_EMPTY_PAGES:
            raise self._endless(f"{_MOST_EMPTY_PAGES} pages in a row are empty")
        if page.next is not None:
            if page.next in self._marks:
                raise self._endless("it repeats a page")
            self._marks.add(page.next)

    def _endless(self, reason: str) -> TransportError:
        return TransportError(f"The listing of {self._subject} makes no progress: {reason}. Tell the provider.")


def _names(page: Page) -> list[str]:
    """Return the names in a page as the store orders them: with a slash after those of directories."""
    return [*(file.path for file in page.files), *(f"{folder}/" for folder in page.folders)]


def _grows(last: str, first: str) -> bool:
    """Return whether ``first`` is after ``last``, in the order of the bytes or in that of hierarchical stores, which
    list a directory before its siblings whose names continue its own."""
    return first > last or first.split("/") > last.split("/")


class _Entries:
    """Turns the pages of a store into pages without directory markers.

    An empty file may be a marker as long as files below its path can follow; it is held back until then, if the store
    lists names in their order.
    """

    def __init__(self, folder: str, *, recursive: bool, in_order: bool) -> None:
        self._folder, self._recursive, self._in_order = folder, recursive, in_order
        self._held: list[StoredFile] = []
        self._told: set[str] = set()

    def next(self, page: Page) -> Page:
        return self._taken(page, is_last=False)

    def last(self, page: Page) -> Page:
        return self._taken(page, is_last=True)

    def _taken(self, page: Page, *, is_last: bool) -> Page:
        files, markers = page.files, set(page.markers)
        empty = [*self._held, *(file for file in files if not file.size)]
        if empty:
            folders = {*page.folders, *markers, *_ancestors(file.path for file in files)}
            found = {file.path for file in empty if file.path in folders}
            markers |= found
            last = max(_names(page), default="")
            is_known = is_last or not self._in_order
            held = [] if is_known else [file for file in empty if file.path not in found and not _passed(last, file)]
            waiting = {file.path for file in held}
            kept = [file for file in files if file.size or (file.path not in found and file.path not in waiting)]
            files = [file for file in self._held if file.path not in found and file.path not in waiting] + kept
            self._held = held
        if self._recursive:
            return Page(files, [], frozenset(markers), page.next)
        folders_here = [*page.folders, *sorted(markers.difference(page.folders))]
        new = [folder for folder in folders_here if folder not in self._told and folder != self._folder]
        self._told.update(new)
        return Page(files, new, frozenset(markers), page.next)


def _passed(last: str, file: StoredFile) -> bool:
    """Return whether all names below ``file`` come before ``last``."""
    below = f"{file.path}/"
    return last > below and not last.startswith(below)


def _ancestors(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return found
