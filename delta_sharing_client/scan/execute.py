"""A plan's rows as a stream of batches: in file order, in bounded memory, cancelled when nobody wants more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import TypeVar

import pyarrow as pa

from delta_sharing_client.download.report import Progress, ScanReport
from delta_sharing_client.scan.engine import Engine
from delta_sharing_client.scan.resources import Unit
from delta_sharing_client.scan.tasks import FileTask, ScanContext, ScanPlan

T = TypeVar("T")


def execute(plan: ScanPlan, report: ScanReport | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``plan``: files in plan order, rows in file order, batches exactly ``plan.output_schema``.

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
    return _run(plan.context, plan.tasks, plan.limit, report)


def read_task(context: ScanContext, task: FileTask, report: ScanReport | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task: what a worker of Spark calls. Otherwise as ``execute``."""
    return read_tasks(context, (task,), report)


def read_tasks(
    context: ScanContext, tasks: Sequence[FileTask], report: ScanReport | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several tasks, downloaded ahead and in order. Otherwise as ``execute``."""
    return _run(context, tasks, None, ScanReport() if report is None else report)


def _run(
    context: ScanContext, tasks: Sequence[FileTask], limit: int | None, report: ScanReport
) -> Iterator[pa.RecordBatch]:
    if limit == 0 or not tasks:
        return
    with report.stage("total"):
        engine = Engine(context, tasks, report, limit)
        try:
            yield from _limited(_batches(engine, context, tasks, limit, report), limit, report)
        finally:
            engine.close()


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
        for future in _result(opened, failures):
            unit = _result(future, failures)
            try:
                for batch in unit.batches:
                    if failures:
                        raise failures[0]
                    yield batch
            finally:
                unit.release()
        if limit is not None:
            depth = min(2 * depth, context.options.max_concurrent_requests)
        if report.on_progress is not None:
            done_files += 1
            done_bytes += max(0, task.size)
            report.on_progress(Progress(done_files, len(tasks), done_bytes, total_bytes, report.rows))


def _watch(opened: Future[list[Future[Unit]]], failures: deque[BaseException]) -> None:
    """Let an error in a file further on end the read now, not when its turn comes."""

    def note(future: Future[Unit]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            failures.append(error)

    if opened.cancelled():
        return
    if (error := opened.exception()) is not None:
        failures.append(error)
        return
    for unit in opened.result():
        unit.add_done_callback(note)


def _result(future: Future[T], failures: deque[BaseException]) -> T:
    try:
        return future.result()
    except CancelledError:
        raise RuntimeError("the scan was closed while it was being read") from None
