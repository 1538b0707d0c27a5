"""The two interfaces of a read: an iterator for threads, an asynchronous iterator for any event loop."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import os
import queue
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, TypeVar, Union

import pyarrow as pa

from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.tasks import ScanPlan, ScanStream
from delta_sharing_client.run import loop
from delta_sharing_client.run.listing import Listing
from delta_sharing_client.run.scan import Item, ScanRun, Taken

Meanwhile = Callable[[], Callable[[], None]]
"""Begins something that goes on during a read, and returns what ends it."""


class _End(NamedTuple):
    """The end of the rows, with the error that caused it, if any."""

    error: BaseException | None
    is_cancelled: bool


T = TypeVar("T")
_News = Union[list[Item], _End]


class _Read:
    """One read: starts on the loop, and counts what its consumer takes. Both interfaces use it."""

    def __init__(self, plan: ScanPlan | ScanStream, report: ScanReport, *, eager: bool = True) -> None:
        if isinstance(plan, ScanPlan):
            report.add(files_skipped=plan.skipped.files)
            report.spend("plan", plan.plan_seconds)
        self.context = plan.context
        self.report = report
        self.listing = Listing(plan)
        self.is_empty = plan.limit == 0 or (self.listing.is_whole and not self.listing.files)
        self._plan = plan
        self._eager = eager
        self._running: loop.Running[None] | None = None
        self._released: loop.Inbox[Item] | None = None
        self._taken = Taken()
        self._items: deque[Item] = deque()
        self._item: Item | None = None
        self._batches: deque[pa.RecordBatch] = deque()

    @property
    def is_begun(self) -> bool:
        return self._running is not None

    def begin(self, tell: Callable[[_News], None], meanwhile: list[Meanwhile]) -> None:
        """Start the read; ``tell`` is called on the loop with every result, and must not block."""
        self._released = loop.Inbox(loop.current().loop, lambda item: item.release())
        self._running = loop.Running(
            lambda: _read(self._plan, self.listing, self.report, self._taken, self._eager, tell, meanwhile)
        )
        self._running.start()

    def cancel(self) -> None:
        """End the read soon, from any thread; takes no lock."""
        if self._running is not None:
            self._running.cancel()

    def drop(self) -> None:
        """Like ``cancel``, for a finalizer, also if the read was not started: other locks may be held there."""
        if self.is_begun:
            self.cancel()
        else:
            # no more threads can start: the connection closes with its last reference
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(self.listing.close, ())

    def wait(self) -> None:
        """Wait for the end of the read, for at most a second."""
        if self._running is not None:
            self._running.wait(loop.END_SECONDS)

    def next_batch(self) -> pa.RecordBatch | None:
        """Return the next batch of the items that were taken, ``None`` if more are needed."""
        while not self._batches:
            if self._item is not None:
                self._finish(self._item)
                self._item = None
            if not self._items:
                return None
            self._item = item = self._items.popleft()
            self._batches.extend(item.batches)
            if item.begins:
                self.report.add(files=len(item.tasks))
        batch = self._batches.popleft()
        self.report.add(rows=batch.num_rows)
        return batch

    def take(self, items: list[Item]) -> None:
        """Add ``items`` to those whose batches are next."""
        self._items.extend(items)

    def forget(self) -> None:
        """Release the rows that were not taken."""
        self._item = None
        self._items.clear()
        self._batches.clear()

    def failed(self, error: BaseException) -> None:
        """Add the read to ``error``, and what to do."""
        if isinstance(error, DeltaSharingError) and not isinstance(error, UsageError):
            error.query_id = error.query_id or self.context.query_id
            if self.context.advise is not None:
                self.context.advise(error)

    def refusal(self, why: str) -> UsageError:
        return UsageError(f"The read cannot continue: {why}.", table=self.context.table)

    def _finish(self, item: Item) -> None:
        assert self._released is not None
        if item.ends:
            # Before the release: after the last one, progress is shown for the last time.
            self._taken.files += len(item.tasks)
            self._taken.bytes += sum(max(0, task.size) for task in item.tasks)
        self._released.put(item)
        if item.ends and self.report.on_progress is not None and (progress := self.report.progress) is not None:
            self.report.on_progress(progress)


async def _read(
    plan: ScanPlan | ScanStream,
    listing: Listing,
    report: ScanReport,
    taken: Taken,
    eager: bool,
    tell: Callable[[_News], None],
    meanwhile: list[Meanwhile],
) -> None:
    began = time.perf_counter()
    error: BaseException | None = None
    is_cancelled = False
    ends = [begin() for begin in meanwhile]
    handed = _Handed()
    try:
        put = (lambda items: tell(list(map(handed.counted, items)))) if ends else tell
        await ScanRun(plan, listing, report, taken, put, eager=eager).read()
        # What shows the read shows it until the consumer has the last row, not until the last row is here.
        await handed.taken()
    except asyncio.CancelledError:
        is_cancelled = True
        raise
    except BaseException as problem:
        # Its frames keep what was read ahead; line numbers are not affected.
        traceback.clear_frames(problem.__traceback__)
        error = problem
    finally:
        report.seconds["total"] = time.perf_counter() - began
        try:
            await asyncio.gather(*(asyncio.to_thread(end) for end in ends), return_exceptions=True)
        finally:
            tell(_End(error, is_cancelled))


class _Handed:
    """Counts the items that the consumer has not finished yet; on the loop."""

    def __init__(self) -> None:
        self._count = 0
        self._news = asyncio.Event()

    def counted(self, item: Item) -> Item:
        """Count ``item``, which goes to the consumer, until it is released."""

        def release() -> None:
            self._count -= 1
            self._news.set()
            item.release()

        self._count += 1
        return item._replace(release=release)

    async def taken(self) -> None:
        """Wait until the consumer has finished all of them."""
        while self._count:
            self._news.clear()
            await self._news.wait()


class Batches(Iterator[pa.RecordBatch]):
    """The rows of a read as record batches; a context manager.

    The end of the rows, an error, Ctrl-C, ``close`` and dropping the iterator end the read and its requests within a
    second. Nothing is requested before the first batch.
    """

    def __init__(
        self, plan: ScanPlan | ScanStream, report: ScanReport, *, eager: bool = True, rows: int | None = None
    ) -> None:
        self._read = _Read(plan, report, eager=eager)
        self._rows = rows
        self._left: list[pa.RecordBatch] = []
        self._process = os.getpid()
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._taking = _thread.allocate_lock()
        self._ended = self._read.is_empty
        self._closed = False
        self._meanwhile: list[Meanwhile] = []
        if self._ended:
            self._read.listing.close()
        if (scope := _scope.get()) is not None:
            scope.add(self)

    def meanwhile(self, begin: Meanwhile) -> None:
        """Call ``begin`` when the read starts, and its result, on any thread, when the read has ended for any
        reason."""
        self._meanwhile.append(begin)

    def close(self) -> None:
        """End the read, from any thread; a thread that waits for a batch, and any later call, gets a ``UsageError``."""
        self._closed = True
        if self._process == os.getpid():
            self._end()

    def cancel(self) -> None:
        """Like ``close``, without waiting for the end."""
        self._closed = True
        if self._read.is_begun:
            self._read.cancel()

    def __next__(self) -> pa.RecordBatch:
        if self._ended and not self._left:
            raise StopIteration
        if self._process != os.getpid():
            raise self._read.refusal("it was begun by another process; begin it anew in this one")
        if not self._taking.acquire(False):
            raise self._read.refusal("another thread is taking a batch; take them one after the other")
        try:
            return self._next() if self._rows is None else self._next_rows(self._rows)
        except StopIteration:
            raise
        except BaseException as error:
            self._read.failed(error)
            self.close()
            raise
        finally:
            self._taking.release()

    def _next(self) -> pa.RecordBatch:
        if self._closed:
            raise self._read.refusal("it was closed; begin a new one")
        if not self._read.is_begun:
            self._read.begin(self._news.put, self._meanwhile)
        while (batch := self._read.next_batch()) is None:
            news = self._wait()
            if isinstance(news, list):
                self._read.take(news)
            elif news.error is not None:
                raise news.error
            elif news.is_cancelled:
                raise self._read.refusal("it was closed; begin a new one")
            else:
                self._ended = True
                raise StopIteration
        return batch

    def _next_rows(self, rows: int) -> pa.RecordBatch:
        """Return the next ``rows`` rows, or the last ones of the read."""
        if self._closed:
            raise self._read.refusal("it was closed; begin a new one")
        held, self._left = self._left, []
        count = sum(batch.num_rows for batch in held)
        while not self._ended and count < rows:
            with contextlib.suppress(StopIteration):
                held.append(self._next())
                count += held[-1].num_rows
        if not held:
            raise StopIteration
        found, self._left = _cut(held, rows)
        return found

    def _wait(self) -> _News:
        while True:
            with contextlib.suppress(queue.Empty):
                return self._news.get(timeout=loop.LISTEN_SECONDS)
            if self._closed:
                raise self._read.refusal("it was closed; begin a new one")

    def _end(self) -> None:
        if not self._read.is_begun:
            self._read.listing.close()
            return
        self._read.cancel()
        self._read.wait()
        # This releases the memory of what was read ahead. The end stays, for waiting threads.
        self._read.forget()
        self._left = []
        ends = []
        with contextlib.suppress(queue.Empty):
            while True:
                news = self._news.get_nowait()
                if isinstance(news, _End):
                    ends.append(news)
        for end in ends:
            self._news.put(end)

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) == os.getpid() and not self._ended:
            self._read.drop()


def _cut(held: list[pa.RecordBatch], rows: int) -> tuple[pa.RecordBatch, list[pa.RecordBatch]]:
    """Return the first ``rows`` rows of ``held``, or all, as one batch, and those that are left."""
    table = pa.Table.from_batches(held)
    # Arrow does not limit the length of a slice by that of a table without columns.
    here = min(rows, table.num_rows)
    # Several where text of more than 2 GB does not fit into one batch.
    found, *more = table.slice(0, here).combine_chunks().to_batches()
    rest = table.slice(here, table.num_rows - here).to_batches()
    return found, [batch for batch in (*more, *rest) if batch.num_rows]


class AsyncBatches(AsyncIterator[pa.RecordBatch]):
    """The rows of a read as record batches, for one coroutine of any event loop; an asynchronous context manager.

    The read itself runs on the loop of this process; ``aclose``, an error, cancelling the waiting task and dropping the
    iterator end it. Nothing is requested before the first batch.
    """

    def __init__(
        self,
        plan: Callable[[], ScanPlan | ScanStream],
        report: ScanReport,
        meanwhile: Callable[[], list[Meanwhile]] = list,
        *,
        rows: int | None = None,
    ) -> None:
        self._plan = plan
        self._report = report
        self._meanwhile = meanwhile
        self._rows = rows
        self._left: list[pa.RecordBatch] = []
        self._read: _Read | None = None
        self._news: deque[_News] = deque()
        self._arrived: asyncio.Event | None = None
        self._ended = self._closed = False

    async def schema(self) -> pa.Schema:
        """Return the Arrow schema of every batch; sends a request if necessary."""
        return (await self._planned()).context.output_schema

    async def _planned(self) -> _Read:
        if self._read is None:
            planning = loop.in_thread(self._plan)
            try:
                self._read = _Read(await asyncio.wrap_future(planning), self._report)
            except asyncio.CancelledError:
                planning.add_done_callback(_drop_plan)
                raise
        return self._read

    def __aiter__(self) -> AsyncBatches:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        if self._rows is None or self._closed:
            return await self._next()
        held = self._left
        count = sum(batch.num_rows for batch in held)
        while not self._ended and count < self._rows:
            with contextlib.suppress(StopAsyncIteration):
                held.append(await self._next())
                count += held[-1].num_rows
        if not held:
            raise StopAsyncIteration
        found, self._left = _cut(held, self._rows)
        return found

    async def _next(self) -> pa.RecordBatch:
        if self._ended:
            raise StopAsyncIteration
        if self._closed:
            raise UsageError("The read cannot continue: it was closed; start a new one.")
        try:
            read = await self._planned()
            if read.is_empty:
                read.listing.close()
                self._ended = True
                raise StopAsyncIteration
            if not read.is_begun:
                self._begin(read)
            while (batch := read.next_batch()) is None:
                news = await self._wait()
                if isinstance(news, list):
                    read.take(news)
                elif news.error is not None:
                    read.failed(news.error)
                    raise news.error
                elif news.is_cancelled:
                    raise read.refusal("it was closed; begin a new one")
                else:
                    self._ended = True
                    raise StopAsyncIteration
            return batch
        except StopAsyncIteration:
            raise
        except BaseException:
            self._cancel()
            raise

    def _begin(self, read: _Read) -> None:
        mine, self._arrived = asyncio.get_running_loop(), asyncio.Event()
        news, arrived = self._news, self._arrived

        def tell(found: _News) -> None:
            news.append(found)
            with contextlib.suppress(RuntimeError):  # the caller's loop has ended
                mine.call_soon_threadsafe(arrived.set)

        read.begin(tell, self._meanwhile())

    async def _wait(self) -> _News:
        assert self._arrived is not None
        while not self._news:
            self._arrived.clear()
            if not self._news:
                await self._arrived.wait()
        return self._news.popleft()

    def _cancel(self) -> None:
        self._closed = True
        self._left = []
        if self._read is not None:
            if self._read.is_begun:
                self._read.cancel()
            else:
                self._read.listing.close()

    async def aclose(self) -> None:
        """End the read and wait for its end."""
        begun = self._read is not None and self._read.is_begun and not self._ended and not self._closed
        self._cancel()
        if begun:
            while not isinstance(await self._wait(), _End):
                pass

    async def __aenter__(self) -> AsyncBatches:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        read = getattr(self, "_read", None)
        if read is not None and not self._ended:
            read.drop()


def check_rows(rows: int | None) -> None:
    """Raise ``UsageError`` if ``rows`` is no number of rows of a batch."""
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise UsageError(f"'rows' must be a whole number of 1 or more, found {rows!r}.")


def execute(
    plan: ScanPlan | ScanStream, report: ScanReport | None = None, *, eager: bool = True, rows: int | None = None
) -> Batches:
    """Return the rows of ``plan``: files in plan order, rows in file order, batches of its ``output_schema``.

    Downloads and decoding run ahead, within the limits of the plan's options, and so does the listing of a plan that is
    a stream. Closing the iterator, an error and the plan's row limit break off all that is in flight. The first error
    is raised; one at the end of the listing comes after rows, and before the end of them.

    Parameters
    ----------
    report:
        Takes the counts of this read.
    eager:
        ``False`` where the consumer may stop: what is read ahead of it begins small, and grows with what it takes.
    rows:
        The rows of every batch but the last; by default as the files have them.

    Raises
    ------
    DataError, TransportError, ProtocolError, UnsupportedFeatureError
        With table and file id.
    """
    return Batches(plan, ScanReport() if report is None else report, eager=eager, rows=rows)


class _Scope:
    """The reads that one asynchronous call has started on its thread."""

    def __init__(self) -> None:
        self._reads: list[Batches] = []
        self._is_cancelled = False

    def add(self, batches: Batches) -> None:
        self._reads.append(batches)
        if self._is_cancelled:
            batches.cancel()

    def cancel(self) -> None:
        self._is_cancelled = True
        for batches in self._reads:
            batches.cancel()


_scope: contextvars.ContextVar[_Scope | None] = contextvars.ContextVar("_scope", default=None)


async def asynchronously(call: Callable[[], T]) -> T:
    """Return ``call()``, run on a thread; cancelling this ends the reads that it has started."""
    scope = _Scope()

    def run() -> T:
        _scope.set(scope)
        return call()

    try:
        return await asyncio.wrap_future(loop.in_thread(run))
    except asyncio.CancelledError:
        scope.cancel()
        raise


def _drop_plan(planning: Future[ScanPlan | ScanStream]) -> None:
    # The caller was cancelled during planning.
    if not planning.cancelled() and planning.exception() is None:
        plan = planning.result()
        if isinstance(plan, ScanStream):
            plan.close()
