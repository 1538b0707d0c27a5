"""Several small files, one after another, in the hands of one thread: what each would cost in hand-overs is the run's.

A run is for fine weather. Where a file fails, or takes long, those after it are read by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from delta_sharing_client.scan.file_read import FileRead
from delta_sharing_client.scan.resources import Resources, Units
from delta_sharing_client.scan.steps import Steps, start


class Run:
    """Reads ``files``, each of which ``fits_in_run``: fetches all, then decodes all, which goes on in warm caches.

    ``opened`` are what ``FileRead.units`` gives of each. ``news`` is done once nobody should wait for the whole run
    any more: all of it is there, or it is broken up.
    """

    def __init__(self, resources: Resources, files: Sequence[FileRead]) -> None:
        self._r = resources
        self._files = files
        self.opened: list[Future[Units]] = [Future() for _ in files]
        self.news: Future[None] = Future()
        self._turn: Future[None] = Future()
        self._is_begun = False
        # Whoever takes something does it, on whichever thread. The files that are left, the next last.
        self._left: list[tuple[FileRead, Future[Units]]] = []
        self._once = [self.news, self._turn]
        start(self._steps())

    def break_up(self) -> None:
        """Have what is fetched decoded, and the files that are left read by themselves, if the run is begun."""
        if self._is_begun:
            self._decode()
        while (found := self._take()) is not None:
            file, opened = found
            file.give_back()
            start(file.units(), opened)

    def _steps(self) -> Steps[None]:
        r, order = self._r, self._files[0].order
        sizes = {file.order: file.size for file in self._files}
        decoded = {each: r.ratio.decoded(size) for each, size in sizes.items()}
        try:
            # Granted together: a run that had a part of its memory would keep others waiting for theirs.
            for window, parts in ((r.fetched, sizes), (r.decoded, decoded)):
                yield window.acquire(order, sum(parts.values()))
                window.divide(order, parts)
            # On the line each of its requests is what it would be alone.
            yield r.downloads.submit(order, max(sizes.values()), self._read)
        except BaseException as error:
            for file, opened in zip(self._files, self.opened, strict=True):
                file.give_back()
                opened.set_exception(error)
            self._decode()
            raise
        finally:
            # They refer to this.
            self._files = ()

    def _read(self) -> None:
        self._left += reversed(list(zip(self._files, self.opened, strict=True)))
        self._is_begun = True
        while (found := self._take()) is not None:
            file, opened = found
            if file is not self._files[0]:
                self._r.downloads.goes_on()
            start(file.units_in_run(self._turn, self.break_up), opened)
            if opened.done():
                self.break_up()  # it failed, if there are others
        self._decode()

    def _take(self) -> tuple[FileRead, Future[Units]] | None:
        try:
            return self._left.pop()
        except IndexError:
            return None

    def _decode(self) -> None:
        """Have what is fetched decoded, and tell."""
        while self._once:
            try:
                self._once.pop().set_result(None)
            except IndexError:
                return
