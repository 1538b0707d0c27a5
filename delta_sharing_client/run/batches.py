"""The two interfaces of a read: an iterator for threads, and an asynchronous iterator for any event loop."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import queue
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar, Union

import pyarrow as pa

from delta_sharing_client.decode.rows import Item
from delta_sharing_client.errors import DeltaSharingError, OutOfMemoryError, UsageError, limit_reached
from delta_sharing_client.fetch.report import ScanReport, add_counts, add_seconds
from delta_sharing_client.plan.tasks import Plan
from delta_sharing_client.run import loop
from delta_sharing_client.run.consumer import Bell, Consumer
from delta_sharing_client.run.engine import ScanRun
from delta_sharing_client.run.task_queue import Listing

Meanwhile = Callable[[], Callable[[], None]]
"""Starts something that goes on during a read, and returns the function that ends it."""


T = TypeVar("T")
_News = Union[list[Item], BaseException, None]
"""Rows, the error that ended the read early (``CancelledError`` if it was cancelled), or ``None`` after the last
row."""


class _Read:
    """One read on the loop, which both interfaces use. It returns the rows that have arrived as batches, of ``rows``
    rows each if given."""

    def __init__(self, plan: Plan, report: ScanReport, *, eager: bool = True, rows: int | None = None) -> None:
        if plan.pending is None:
            whole = plan.whole()
            add_counts(report, files_skipped=whole.skipped.files)
            add_seconds(report, "plan", whole.plan_seconds)
        self.context = plan.context
        self._report = report
        self.listing = Listing(plan)
        self._plan = plan
        self._eager = eager
        self._rows = rows
        self._running: loop.Running[None] | None = None
        self._released: loop.Inbox[Item] | None = None
        self._items: deque[Item] = deque()
        self._item: Item | None = None
        self._batches: deque[pa.RecordBatch] = deque()
        self._left: list[pa.RecordBatch] = []
        self._has_ended = plan.limit == 0 or (self.listing.is_whole and not self.listing.files)
        if self._has_ended:
            self.listing.close()

    @property
    def is_begun(self) -> bool:
        return self._running is not None

    @property
    def is_over(self) -> bool:
        """Whether all rows were returned."""
        return self._has_ended and not self._left

    def begin(self, tell: Callable[[_News], None], meanwhile: Sequence[Meanwhile]) -> None:
        """Start the read; ``tell`` is called on the loop with every result, and must not block."""
        self._released = loop.Inbox(loop.current().loop, lambda item: item.release())
        self._running = loop.Running(lambda: self._run(tell, meanwhile))
        self._running.start()

    async def _run(self, tell: Callable[[_News], None], meanwhile: Sequence[Meanwhile]) -> None:
        began = time.perf_counter()
        end: BaseException | None = None
        ends = [begin() for begin in meanwhile]
        try:
            # Progress is shown until the consumer has taken the last row, not until the last row has arrived.
            await ScanRun(self._plan, self.listing, self._report, tell, eager=self._eager).read(wait=bool(ends))
        except asyncio.CancelledError:
            end = asyncio.CancelledError()
            raise
        except BaseException as problem:
            # Without this, the traceback's frames would keep the rows that were read ahead. Its line numbers remain.
            traceback.clear_frames(problem.__traceback__)
            end = problem
        finally:
            self._report.seconds["total"] = time.perf_counter() - began
            try:
                await asyncio.gather(*(asyncio.to_thread(each) for each in ends), return_exceptions=True)
            finally:
                tell(end)

    def cancel(self) -> None:
        """Cancel the read, from any thread, without waiting for its end. Takes no lock."""
        if self._running is not None:
            self._running.cancel()

    def close(self) -> None:
        """Cancel the read without waiting for its end, even if it was not started."""
        if self.is_begun:
            self.cancel()
        else:
            self.listing.close()

    def drop(self) -> None:
        """Like ``close``, for a finalizer, which may run while other locks are held."""
        if self.is_begun:
            self.cancel()
        else:
            # If no more threads can start, the connection closes with its last reference.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(self.listing.close, ())

    def wait(self) -> None:
        """Wait for the end of the read, for at most a second."""
        if self._running is not None:
            self._running.wait(loop.END_SECONDS)

    def take(self, news: _News) -> None:
        """Process ``news``. Raises the error that ended the read early."""
        if isinstance(news, list):
            self._items.extend(news)
        elif news is None:
            self._has_ended = True
        elif isinstance(news, asyncio.CancelledError):
            raise self.refusal("it was closed; start a new one")
        else:
            if isinstance(news, DeltaSharingError) and not isinstance(news, UsageError):
                news.query_id = news.query_id or self.context.query_id
                if self.context.advise is not None:
                    self.context.advise(news)
            limit = limit_reached(news)
            if isinstance(limit, OutOfMemoryError):
                limit.table = limit.table or self.context.table
            raise limit or news

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch of the taken rows; ``None`` if more rows are needed or the read is over."""
        if self._rows is None:
            return self._next_batch()
        held = self._left
        count = sum(batch.num_rows for batch in held)
        while count < self._rows and (batch := self._next_batch()) is not None:
            held.append(batch)
            count += batch.num_rows
        if count < self._rows and not (self._has_ended and held):
            return None
        first, self._left = _cut(held, self._rows)
        return first

    def _next_batch(self) -> pa.RecordBatch | None:
        # No emptiness is tested before, because another thread may close the read and ``forget`` the rows meanwhile.
        while True:
            with contextlib.suppress(IndexError):
                batch = self._batches.popleft()
                add_counts(self._report, rows=batch.num_rows)
                return batch
            done, self._item = self._item, None
            if done is not None:
                self._finish(done)
            try:
                self._item = item = self._items.popleft()
            except IndexError:
                return None
            self._batches.extend(item.batches)
            if item.begins:
                add_counts(self._report, files=len(item.tasks))

    def _finish(self, item: Item) -> None:
        assert self._released is not None
        report = self._report
        if item.ends:
            # Counted before the release, so that progress is updated once more after the last batch.
            self.listing.done(item.tasks)
        self._released.put(item)
        if item.ends and report.on_progress is not None and (progress := report.progress) is not None:
            report.on_progress(progress)

    def forget(self) -> None:
        """Release the rows that were not taken."""
        self._item = None
        self._items.clear()
        self._batches.clear()
        self._left = []

    def refusal(self, why: str) -> UsageError:
        return UsageError(f"The read cannot continue: {why}.", table=self.context.table)


def _cut(held: list[pa.RecordBatch], rows: int) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """Return the first ``rows`` rows of ``held`` (or all) as one batch, and the remaining batches."""
    table = pa.Table.from_batches(held)
    # Arrow does not limit a slice to the length of a table without columns.
    here = min(rows, table.num_rows)
    # There are several batches if they have text of more than 2 GB, which does not fit into one.
    first, *more = table.slice(0, here).combine_chunks().to_batches()
    rest = table.slice(here, table.num_rows - here).to_batches()
    return first, [batch for batch in (*more, *rest) if batch.num_rows]


class Batches(Iterator[pa.RecordBatch]):
    """The rows of a plan: files in plan order, rows in file order, as batches of its ``output_schema``.

    An iterator and a context manager. Nothing is requested before the first batch; then downloads, decoding and the
    listing of a stream run ahead, within the limits of the plan's options. The end of the rows, an error, Ctrl-C,
    ``close`` and dropping the iterator end the read and its requests within a second.

    ``report`` collects the counts of this read, and ``meanwhile`` goes on while it runs. Without ``eager``, for a
    consumer that may stop, read-ahead starts small and grows as rows are taken. ``rows`` is the number of rows of every
    batch but the last; by default, batches are as the files have them.

    Raises the first ``DataError``, ``TransportError``, ``ProtocolError`` or ``UnsupportedFeatureError``, with the table
    and the file id. If the listing of the files fails, rows may come before the error, but the iterator never ends
    normally.
    """

    def __init__(
        self,
        plan: Plan,
        report: ScanReport | None = None,
        meanwhile: Sequence[Meanwhile] = (),
        *,
        eager: bool = True,
        rows: int | None = None,
    ) -> None:
        self._read = _Read(plan, ScanReport() if report is None else report, eager=eager, rows=rows)
        self._process = os.getpid()
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._taking = _thread.allocate_lock()
        self._closed = False
        self._meanwhile = meanwhile
        loop.on_cancellation(self.cancel)

    def close(self) -> None:
        """End the read, from any thread; a thread that waits for a batch, and any later call, gets a ``UsageError``."""
        self._set_closed()
        if self._process != os.getpid():
            return
        self._read.close()
        if not self._read.is_begun:
            return
        self._read.wait()
        # This releases the rows that were read ahead. They are missing now, so no thread may see a normal end.
        self._read.forget()
        with contextlib.suppress(queue.Empty):
            while True:
                self._news.get_nowait()
        self._news.put(asyncio.CancelledError())

    def cancel(self) -> None:
        """Like ``close``, without waiting for the end: a later call gets a ``UsageError``."""
        self._set_closed()
        self._read.cancel()

    def _set_closed(self) -> None:
        # A consumer that has all rows sees a normal end even after closing.
        self._closed = self._closed or not self._read.is_over

    def __next__(self) -> pa.RecordBatch:
        if self._read.is_over and not self._closed:
            raise StopIteration
        if self._process != os.getpid():
            raise self._read.refusal("it was started by another process; start it again in this one")
        if not self._taking.acquire(False):
            raise self._read.refusal("another thread is taking a batch; take them one after the other")
        try:
            while (batch := None if self._closed else self._read.next_batch()) is None:
                # Checked after the attempt, because another thread may have closed the read and dropped its rows.
                if self._closed:
                    raise self._read.refusal("it was closed; start a new one")
                if self._read.is_over:
                    raise StopIteration
                if not self._read.is_begun:
                    self._read.begin(self._news.put, self._meanwhile)
                self._read.take(self._wait())
            return batch
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            self._taking.release()

    def _wait(self) -> _News:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._news.get(timeout=loop.LISTEN_SECONDS)

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) == os.getpid() and not self._read.is_over:
            self._read.drop()


class AsyncBatches(AsyncIterator[pa.RecordBatch]):
    """The rows of a read as record batches, for one coroutine at a time, of any event loop; an asynchronous context
    manager.

    The read itself runs on the loop of this process. ``aclose``, an error, cancelling the waiting task and dropping the
    iterator end it. Nothing is requested before the first batch. A second coroutine that asks for a batch meanwhile
    gets a ``UsageError``, and so does one that waits when the read is closed.
    """

    def __init__(
        self,
        plan: Callable[[], Plan],
        report: ScanReport,
        meanwhile: Callable[[], Sequence[Meanwhile]] = list,
        *,
        rows: int | None = None,
    ) -> None:
        self._plan = plan
        self._report = report
        self._meanwhile = meanwhile
        self._rows = rows
        self._read: _Read | None = None
        self._consumer = Consumer("The read")
        self._mail = _Mail(self._consumer.bell)

    async def schema(self) -> pa.Schema:
        """Return the Arrow schema of every batch; sends a request if necessary. Errors as for ``Scan.schema``."""
        if self._read is not None:
            return self._read.context.output_schema
        with self._consumer.turn():
            return (await self._planned()).context.output_schema

    async def _planned(self) -> _Read:
        loop.check_caller()
        if self._read is None:
            planning = loop.in_thread(self._plan)
            try:
                plan = await self._consumer.result_async(planning)
            except BaseException:
                planning.add_done_callback(_drop_plan)
                raise
            self._read = _Read(plan, self._report, rows=self._rows)
            self._consumer.table = plan.context.table
        return self._read

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        with self._consumer.turn():
            try:
                read = await self._planned()
                while (batch := read.next_batch()) is None:
                    # Checked after the attempt, as in ``Batches``.
                    self._consumer.check()
                    if read.is_over:
                        raise StopAsyncIteration
                    if not read.is_begun:
                        read.begin(self._mail.put, self._meanwhile())
                    await self._consumer.bell.wait_async(lambda: bool(self._mail) or self._consumer.is_closed)
                    self._consumer.check()
                    read.take(self._mail.take())
                return batch
            except StopAsyncIteration:
                raise
            except BaseException:
                self._cancel()
                raise

    def _cancel(self) -> None:
        read = self._read
        # As in ``Batches``.
        if read is None or not read.is_over:
            self._consumer.close()
        if read is not None and self._consumer.is_of_this_process:
            read.close()
            read.forget()

    async def aclose(self) -> None:
        """End the read, and wait for its end, for at most a second. A task that waits for a batch gets a
        ``UsageError``."""
        self._cancel()
        read, mail = self._read, self._mail
        if read is not None and read.is_begun and self._consumer.is_of_this_process:
            await self._consumer.bell.wait_async(lambda: mail.has_ended, loop.END_SECONDS)
            mail.clear()

    async def __aenter__(self) -> AsyncBatches:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        read = getattr(self, "_read", None)
        if read is not None and not read.is_over and self._consumer.is_of_this_process:
            read.drop()


class _Mail:
    """The news of a read for coroutines. It has no reference to the read's iterator, which ends when it is dropped."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._news: deque[_News] = deque()
        self.has_ended = False

    def __bool__(self) -> bool:
        return bool(self._news)

    def put(self, found: _News) -> None:
        self._news.append(found)
        self.has_ended = not isinstance(found, list)
        self._bell.ring()

    def take(self) -> _News:
        return self._news.popleft()

    def clear(self) -> None:
        self._news.clear()


def check_rows(rows: int | None) -> None:
    """Raise ``UsageError`` if ``rows`` is not an integer of 1 or more."""
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise UsageError(f"'rows' must be a whole number of 1 or more, found {rows!r}.")


def _drop_plan(planning: Future[Plan]) -> None:
    # The caller was cancelled during planning.
    if not planning.cancelled() and planning.exception() is None:
        planning.result().close()
