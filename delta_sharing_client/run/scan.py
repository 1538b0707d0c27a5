"""A plan's rows as a stream of batches: in file order, in bounded memory, cancelled when nobody wants more."""

from __future__ import annotations

import _thread
import contextlib
import functools
import itertools
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from types import GeneratorType
from typing import Any, TypeVar

import pyarrow as pa

from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.fetch.queue import forget_frames
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Stale
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.tasks import FileTask, ScanPlan, ScanStream
from delta_sharing_client.read.file import Unit, Units
from delta_sharing_client.run.engine import Engine, Opened
from delta_sharing_client.run.listing import Listing

T = TypeVar("T")

_DONE = object()
# Seconds to wait for the listing to tell whether a table has few files.
_PATIENCE = 0.05
# Seconds without rows after which it is no longer the first request that is waited for.
_LONG = 0.1
# Files that are open, for each that is still in the works.
_MOST_AHEAD = 8
# Of all files that are read ahead, as many runs are made at least.
_RUNS_AHEAD = 16
# Files that are opened before the first rows: as many as are asked for at first, or they would wait for the others.
_FIRST = 32


class Batches(Iterator[pa.RecordBatch]):
    """The rows of a read as record batches; a context manager.

    The end of the rows, an error, Ctrl-C, ``close`` and dropping the iterator end all that is in flight within a
    second. Nothing is in flight before the first batch is asked for.
    """

    def __init__(self, plan: ScanPlan | ScanStream, report: ScanReport) -> None:
        self._context = plan.context
        self._listing = Listing(plan)
        self._limit = plan.limit
        self._report = report
        self._process = os.getpid()
        self._engine: Engine | None = None
        self._rows: GeneratorType[pa.RecordBatch, None, object] | None = None
        self._began = 0.0
        self._ended = plan.limit == 0 or (self._listing.is_whole and not self._listing.files)
        self._closed = False
        self._meanwhile: list[Callable[[], Callable[[], None]]] = []
        if self._ended:
            self._listing.close()

    def meanwhile(self, begin: Callable[[], Callable[[], None]]) -> None:
        """Have ``begin`` called when the read begins, and what it returns once the read has ended, however it did, on
        any thread."""
        self._meanwhile.append(begin)

    def close(self) -> None:
        """End the read, from any thread; one that waits for a batch raises ``UsageError``, as does any later one."""
        self._closed = True
        if self._process == os.getpid():
            self._end()

    def __next__(self) -> pa.RecordBatch:
        if self._ended:
            raise StopIteration
        if self._process != os.getpid():
            raise self._refusal("it was begun by another process; begin it anew in this one")
        try:
            rows = self._rows or self._begin()
            if self._closed:
                raise self._refusal("it was closed; begin a new one")
            return next(rows)
        except StopIteration as stop:
            if stop.value is not _DONE:
                raise self._refusal("it was closed; begin a new one") from None
            self._ended = True
            self._end()
            raise
        except BaseException as error:
            if isinstance(error, ValueError) and self._rows is not None and self._rows.gi_running:
                raise self._refusal("another thread is taking a batch; take them one after the other") from None
            if isinstance(error, DeltaSharingError) and not isinstance(error, UsageError):
                error.query_id = error.query_id or self._context.query_id
            closed, self._closed = self._closed, True
            self._end()
            # Its frames hold what was read ahead.
            traceback.clear_frames(error.__traceback__)
            if closed and isinstance(error, Exception):
                raise self._refusal("it was closed; begin a new one") from None
            raise

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Where this runs, any lock may be held: the end is only set going.
        if getattr(self, "_process", None) != os.getpid():
            return
        if self._engine is not None:
            self._engine.closing.close(wait=False)
        elif self._rows is None and self._listing.is_open:
            with contextlib.suppress(RuntimeError):  # no more threads: with the last reference the connection goes
                _thread.start_new_thread(self._listing.close, ())

    def _begin(self) -> GeneratorType[pa.RecordBatch, None, object]:
        self._began = time.perf_counter()
        self._engine = engine = Engine(self._context, self._listing, self._report, self._limit)
        rows = _run(engine, self._listing, self._context.options, self._limit, self._report)
        for call in (rows.close, *(begin() for begin in self._meanwhile)):
            engine.closing.keep(call)
        assert isinstance(rows, GeneratorType)
        self._rows = rows
        return rows

    def _end(self) -> None:
        engine = self._engine
        if engine is not None:
            engine.closing.close()
            # With them goes the memory of what was read ahead.
            self._engine = None
            self._report.seconds["total"] = time.perf_counter() - self._began
        elif self._rows is None:
            self._listing.close()

    def _refusal(self, why: str) -> UsageError:
        return UsageError(f"The read cannot go on: {why}.", table=self._context.table)


def execute(plan: ScanPlan | ScanStream, report: ScanReport | None = None) -> Batches:
    """Return the rows of ``plan``: files in plan order, rows in file order, batches of its ``output_schema``.

    Downloads and decoding run ahead on threads, within the limits of the plan's options, and so does the listing of a
    plan that is a stream. Closing the iterator, an error and the plan's row limit break off all that is in flight. The
    first error is raised; one at the end of the listing comes after rows, and before the end of them.

    Parameters
    ----------
    report:
        Takes the counts of this read.

    Raises
    ------
    DataError, TransportError, ProtocolError, UnsupportedFeatureError
        Naming table and file id.
    """
    report = ScanReport() if report is None else report
    if isinstance(plan, ScanPlan):
        report.add(files_skipped=plan.skipped.files)
        report.spend("plan", plan.plan_seconds)
    return Batches(plan, report)


def _run(
    engine: Engine, listing: Listing, options: ReadOptions, limit: int | None, report: ScanReport
) -> Generator[pa.RecordBatch, None, object]:
    """Yield the rows, no more than ``limit``, and return ``_DONE``, which no generator that was closed does."""
    left = limit
    for batch in _batches(engine, listing, options, limit, report):
        if left is not None:
            batch = batch.slice(0, left) if batch.num_rows > left else batch
            left -= batch.num_rows
        report.add(rows=batch.num_rows)
        yield batch
        if left == 0:
            break
    return _DONE


def _batches(
    engine: Engine, listing: Listing, options: ReadOptions, limit: int | None, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    opened = _Opened(engine, listing, options, limit)
    listing.start(engine.note, engine.closing.ring, report)
    # A table of few files is read in another way, and a listing is mostly there at once.
    patience = time.monotonic() + _PATIENCE
    while not listing.is_settled and (left := patience - time.monotonic()) > 0:
        engine.closing.wait(left)
    if listing.is_whole:
        engine.expect(listing.files)
    done_bytes = done_files = 0
    report.follow(lambda: (done_files, listing.files, done_bytes, listing.bytes), engine.share)
    while (following := opened.next()) is not None:
        number, task, file = following
        engine.consume(number)
        report.add(files=1)  # now, as a limit may end the read within the file
        given = False
        try:
            for batch in opened.batches(file):
                given = True
                listing.hurry()
                yield batch
        except Stale as stale:
            if given or task.version is not None:
                raise  # rows of it were given out, here or by another task
            forget_frames(stale)
            _drain(engine, file.units)
            yield from opened.batches(engine.open_again(number, task))
        opened.done()
        done_files += 1
        done_bytes += max(0, task.size)
        if report.on_progress is not None and (progress := report.progress) is not None:
            report.on_progress(progress)


class _Opened:
    """The files that are being read, in order: the one whose rows are given out, and those that are read ahead."""

    def __init__(self, engine: Engine, listing: Listing, options: ReadOptions, limit: int | None) -> None:
        self._engine = engine
        self._listing = listing
        self._limited = limit is not None
        self._most = options.max_concurrent_requests
        # With a limit the first file probably has all the rows: look further only as it turns out not to.
        self._deepest = self._most if self._limited else 2 * self._most
        self._depth = 1 if self._limited else min(_FIRST, self._deepest)
        self._files: deque[tuple[int, FileTask, Opened]] = deque()
        self._failures: deque[BaseException] = deque()
        # Of the files, how many are still in the works; a note for each that no longer is.
        self._working = 0
        self._made: deque[None] = deque()
        # Of the next file.
        self._number = 0

    def next(self) -> tuple[int, FileTask, Opened] | None:
        """Return the file whose turn it is, ``None`` after the last; waits for the listing where it must."""
        self._fill()
        while not self._files:
            if self._listing.finished:
                return None
            self._engine.closing.wait()
            self._fill()
        return self._files[0]

    def batches(self, file: Opened) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file. What is listed meanwhile is opened while this waits."""
        closing, began = self._engine.closing, time.monotonic()

        def meanwhile() -> None:
            long = time.monotonic() - began > _LONG
            if long:
                file.hurry()
            self._fill(waiting=long)

        for found in closing.result(file.units, meanwhile, file.news):
            unit = found if isinstance(found, Unit) else closing.result(found, meanwhile)
            try:
                for batch in unit.batches:
                    if self._failures:
                        raise self._failures[0]
                    yield batch
            finally:
                unit.release()

    def done(self) -> None:
        """The rows of the file whose turn it was are given out."""
        self._files.popleft()
        self._depth = min(2 * self._depth, self._deepest)

    def _fill(self, *, waiting: bool = False) -> None:
        while self._made:
            self._made.popleft()
            self._working -= 1
        run = max(1, min(self._engine.longest_run, self._deepest // _RUNS_AHEAD))
        room = self._room(waiting)
        tasks = list(itertools.islice(iter(self._listing.take, None), room - room % run))
        for task, opened in zip(tasks, self._engine.open(self._number, tasks, run), strict=True):
            if not self._limited:
                self._working += 1
                # Not of this object: with the file's future it would be a cycle, which outlives the read.
                opened.units.add_done_callback(functools.partial(_watch, failures=self._failures, made=self._made))
            self._files.append((self._number, task, opened))
            self._number += 1
        failure = None if self._limited or self._failures else self._listing.failure
        if failure is not None:
            self._failures.append(failure)

    def _room(self, waiting: bool) -> int:
        """Return how many files are to be opened; ``waiting``: the rows of the one whose turn it is take long."""
        room = self._depth - len(self._files)
        if waiting and not self._limited:
            # A file whose server has told us to try again in a second does not keep the others from being read: what
            # is here already takes memory alone, which is bounded apart.
            room = max(room, min(self._deepest - self._working, _MOST_AHEAD * self._deepest - len(self._files)))
        return max(0, room)


def _drain(engine: Engine, opened: Future[Units]) -> None:
    """Wait for what was begun of a file, and give its memory back."""
    for found in _result(engine, opened) or ():
        unit = found if isinstance(found, Unit) else _result(engine, found)
        if unit is not None:
            unit.release()


def _result(engine: Engine, future: Future[T]) -> T | None:
    """Return the result of ``future``, ``None`` if it failed."""
    try:
        return engine.closing.result(future)
    except DeltaSharingError as error:
        # Its future keeps it, and its frames keep the future.
        forget_frames(error)
        return None


def _watch(opened: Future[Units], failures: deque[BaseException], made: deque[None]) -> None:
    """Let an error in a file further on end the read now, not when its turn comes; one that is ``Stale`` has another
    try then. Leave a note in ``made`` once nothing of the file is in the works."""

    def failed(future: Future[Any]) -> bool:
        error = future.exception()
        if error is not None and not isinstance(error, Stale):
            failures.append(error)
        return error is not None

    units = [] if failed(opened) else [each for each in opened.result() if not isinstance(each, Unit)]
    left = itertools.count(len(units) - 1, -1)

    def over(future: Future[Unit]) -> None:
        failed(future)
        if next(left) == 0:
            made.append(None)

    for unit in units:
        unit.add_done_callback(over)
    if not units:
        made.append(None)
