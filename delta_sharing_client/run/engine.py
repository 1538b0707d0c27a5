"""The files of a scan, several at a time: connections, threads, memory and caches that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import pyarrow as pa

from delta_sharing_client.fetch.cache import FileCache
from delta_sharing_client.fetch.memory import Buffers, Window
from delta_sharing_client.fetch.queue import Downloads, Workers
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Transfers
from delta_sharing_client.fetch.steps import Steps, start
from delta_sharing_client.parquet.footer import FooterGuess
from delta_sharing_client.plan.tasks import FileTask, ScanContext
from delta_sharing_client.read.file import FileRead, Resources, Units
from delta_sharing_client.read.layout import Shape
from delta_sharing_client.read.pages import Ratio
from delta_sharing_client.read.vectors import Vectors
from delta_sharing_client.run.closing import Closable, Closing
from delta_sharing_client.shortcuts import SHORTCUTS

_MB = 1024 * 1024
# Bytes of one request where files are many, and where they are few and must be cut to use several connections.
_PART = 16 * _MB
_SMALL_PART = 4 * _MB
_FEW_FILES = 4
# Small files that one thread reads one after another, and their bytes: a few milliseconds' work.
_LONGEST_RUN = 8
_RUN = 1 * _MB


class Opened(NamedTuple):
    """A file that is being read. ``news`` is done when it is time to look for its units, be it in vain; ``hurry`` has
    them come as soon as they can, from any thread."""

    units: Future[Units]
    news: Future[Any]
    hurry: Callable[[], None]


class Engine:
    """Runs the tasks of one scan: ``open`` tasks, consume its units in order, release each, and end by ``closing``,
    which ends what lists the tasks as well."""

    def __init__(self, context: ScanContext, listing: Closable, report: ScanReport, limit: int | None = None) -> None:
        options = context.options
        transfers = Transfers()
        downloads = Downloads(options.max_concurrent_requests, held=transfers.held)
        cache = FileCache.from_options(options, context.table_id)
        reader = context.reader(report, transfers, downloads)
        self._resources = Resources(
            shape=Shape(context),
            report=report,
            limit=limit,
            reader=reader,
            downloads=downloads,
            decoders=Workers(pa.cpu_count(), "decode", held=lambda: 0),
            buffers=Buffers(options.max_bytes_in_flight * 3 // 8),
            # Apart: bytes that wait to be decoded must not keep decoded rows from being made, nor the reverse. Most is
            # for bytes, so that a large row group can be fetched while the one before it is decoded; the rest is for
            # what decoding takes besides. More bytes would be faster on no line, and are slower where memory is fresh.
            fetched=Window(options.max_bytes_in_flight * 3 // 8),
            decoded=Window(options.max_bytes_in_flight // 4),
            cache=cache,
            guess=FooterGuess(len(context.schema.fields)),
            ratio=Ratio(1, 2),
            gains=Ratio(),
            late_gains=Ratio(),
            vectors=Vectors(context.table, reader, downloads, cache),
            part=_PART,
            threads_inside=False,
        )
        # However little memory there is, others are read at the same time.
        self._run_size = min(_RUN, options.max_bytes_in_flight // 64)
        r = self._resources
        # Windows first: what is given back while the rest ends must not start anything.
        self.closing = Closing((r.fetched, r.decoded, transfers, r.downloads, r.decoders, r.buffers, listing))

    def expect(self, files: int) -> None:
        """Before any is opened: there are so few files that they are read in another way than many."""
        self._resources = dataclasses.replace(
            self._resources,
            part=_SMALL_PART if files < _FEW_FILES else _PART,
            # Decoding is bound by the processor: files side by side, or one file's columns.
            threads_inside=files < pa.cpu_count(),
        )

    @property
    def share(self) -> float:
        """About how much of a file's bytes the scan needs, by the types of its columns."""
        return self._resources.shape.share

    def note(self, task: FileTask) -> None:
        """Take note of a task that will be opened, at any time before it is."""
        self._resources.vectors.note(task)

    @property
    def longest_run(self) -> int:
        """How many small files are best opened together, as one thread reads them one after another."""
        r = self._resources
        plain = SHORTCUTS.small_files_in_runs and r.limit is None and r.cache is None
        return _LONGEST_RUN if plain and r.downloads.takes_runs() else 1

    def open(self, first: int, tasks: Sequence[FileTask], longest: int) -> list[Opened]:
        """Start on ``tasks``, the scan's files from number ``first`` on: small ones in runs of up to ``longest``."""
        opened: list[Opened] = []
        run: list[FileRead] = []
        size = 0
        for number, task in enumerate(tasks, first):
            self._resources.report.begin(task.size)
            file = FileRead(self._resources, number, task)
            fits = longest > 1 and file.fits_in_run
            if run and not (fits and len(run) < longest and size + file.size <= self._run_size):
                opened += self._started(run)
                run, size = [], 0
            run.append(file)
            # With one that fits in none there is no other.
            size += file.size if fits else self._run_size
        return opened + self._started(run) if run else opened

    def open_again(self, number: int, task: FileTask) -> Opened:
        """Start anew on a file that was ``Stale``: with a fresh URL, and nothing from the cache."""
        self._resources.report.begin(task.size)
        return self._started([FileRead(self._resources, number, task, again=True)])[0]

    def _started(self, files: Sequence[FileRead]) -> list[Opened]:
        if len(files) > 1:
            run = Run(self._resources, files)
            return [Opened(units, run.news, run.break_up) for units in run.opened]
        units = start(files[0].units())
        return [Opened(units, units, lambda: None)]

    def consume(self, number: int) -> None:
        """Take note that the rows of file ``number`` are wanted next: it gets memory however little is left."""
        self._resources.fetched.consume(number)
        self._resources.decoded.consume(number)


class Run:
    """Several small files, one after another, in the hands of one thread: what each would cost in hand-overs is the
    run's. Fetches ``files``, each of which ``fits_in_run``, then decodes all, which goes on in warm caches.

    A run is for fine weather. Where a file fails, or takes long, those after it are read by themselves.

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
        decoded = {each: r.ratio.expected(size) for each, size in sizes.items()}
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
