"""A plan's rows as a stream of batches: in file order, in bounded memory, cancelled when nobody wants more."""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from types import GeneratorType
from typing import Any

import pyarrow as pa

from delta_sharing_client.download.remote_file import Stale
from delta_sharing_client.download.report import Progress, ScanReport
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.scan.engine import Engine
from delta_sharing_client.scan.resources import Unit
from delta_sharing_client.scan.tasks import FileTask, ScanContext, ScanPlan

_DONE = object()


class Batches(Iterator[pa.RecordBatch]):
    """The rows of a read as record batches; a context manager.

    The end of the rows, an error, Ctrl-C, ``close`` and dropping the iterator end all that is in flight within a
    second. Nothing is in flight before the first batch is asked for.
    """

    def __init__(self, context: ScanContext, tasks: Sequence[FileTask], limit: int | None, report: ScanReport) -> None:
        self._context = context
        self._tasks = tasks
        self._limit = limit
        self._report = report
        self._process = os.getpid()
        self._engine: Engine | None = None
        self._rows: GeneratorType[pa.RecordBatch, None, object] | None = None
        self._began = 0.0
        self._ended = limit == 0 or not tasks
        self._closed = False
        self._at_end: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        """Have ``call`` called once the read has ended, however it did, if it began at all; on any thread."""
        self._at_end.append(call)

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
        engine = getattr(self, "_engine", None)
        if engine is not None and self._process == os.getpid():
            engine.closing.close(wait=False)

    def _begin(self) -> GeneratorType[pa.RecordBatch, None, object]:
        self._began = time.perf_counter()
        self._engine = engine = Engine(self._context, self._tasks, self._report, self._limit)
        rows = _run(engine, self._context, self._tasks, self._limit, self._report)
        for call in (rows.close, *self._at_end):
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

    def _refusal(self, why: str) -> UsageError:
        return UsageError(f"The read cannot go on: {why}.", table=self._context.table)


def execute(plan: ScanPlan, report: ScanReport | None = None) -> Batches:
    """Return the rows of ``plan``: files in plan order, rows in file order, batches exactly ``plan.output_schema``.

    Downloads and decoding run ahead on threads, within the limits of the plan's options. Closing the iterator, an
    error and the plan's row limit break off all that is in flight. The first error is raised.

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
    report.add(files_skipped=plan.skipped.files)
    report.seconds["plan"] = report.seconds.get("plan", 0.0) + plan.plan_seconds
    return Batches(plan.context, plan.tasks, plan.limit, report)


def _run(
    engine: Engine, context: ScanContext, tasks: Sequence[FileTask], limit: int | None, report: ScanReport
) -> Generator[pa.RecordBatch, None, object]:
    """Yield the rows and return ``_DONE``, which no generator that was closed does."""
    yield from _limited(_batches(engine, context, tasks, limit, report), limit, report)
    return _DONE


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None, report: ScanReport) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left) if batch.num_rows > left else batch
            left -= batch.num_rows
        report.add(rows=batch.num_rows)
        yield batch
        if left == 0:
            return


def _batches(
    engine: Engine, context: ScanContext, tasks: Sequence[FileTask], limit: int | None, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    remaining = enumerate(tasks)
    ahead: deque[tuple[int, FileTask, Future[list[Future[Unit]]]]] = deque()
    failures: deque[BaseException] = deque()
    # With a limit the first file probably has all the rows: look further only as it turns out not to.
    depth = 1 if limit is not None else 2 * context.options.max_concurrent_requests
    done_bytes = done_files = 0
    total_bytes = sum(task.size for task in tasks if task.size > 0) if report.on_progress is not None else 0
    while True:
        while len(ahead) < depth and (following := next(remaining, None)) is not None:
            number, task = following
            opened = engine.open(number, task)
            if limit is None:
                opened.add_done_callback(lambda future: _watch(future, failures))
            ahead.append((number, task, opened))
        if not ahead:
            return
        number, task, opened = ahead.popleft()
        engine.consume(number)
        report.add(files=1)  # now, as a limit may end the read within the file
        given = False
        try:
            for batch in _file_batches(engine, opened, failures):
                given = True
                yield batch
        except Stale:
            if given or task.version is not None:
                raise  # rows of it were given out, here or by another task
            _drain(engine, opened)
            yield from _file_batches(engine, engine.open(number, task, again=True), failures)
        if limit is not None:
            depth = min(2 * depth, context.options.max_concurrent_requests)
        if report.on_progress is not None:
            done_files += 1
            done_bytes += max(0, task.size)
            report.on_progress(Progress(done_files, len(tasks), done_bytes, total_bytes, report.rows))


def _file_batches(
    engine: Engine, opened: Future[list[Future[Unit]]], failures: deque[BaseException]
) -> Iterator[pa.RecordBatch]:
    for future in engine.closing.result(opened):
        unit = engine.closing.result(future)
        try:
            for batch in unit.batches:
                if failures:
                    raise failures[0]
                yield batch
        finally:
            unit.release()


def _drain(engine: Engine, opened: Future[list[Future[Unit]]]) -> None:
    """Wait for what was begun of a file, and give its memory back."""
    with contextlib.suppress(DeltaSharingError):
        for future in engine.closing.result(opened):
            with contextlib.suppress(DeltaSharingError):
                engine.closing.result(future).release()


def _watch(opened: Future[list[Future[Unit]]], failures: deque[BaseException]) -> None:
    """Let an error in a file further on end the read now, not when its turn comes; one that is ``Stale`` has another
    try then."""

    def failed(future: Future[Any]) -> bool:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Stale):
            failures.append(error)
        return future.cancelled() or error is not None

    if not failed(opened):
        for unit in opened.result():
            unit.add_done_callback(failed)
