"""Reads many files: the rows of a plan in file order, in bounded memory.

A read is one coroutine on the loop of this process (``run.loop``), which starts a task for each file. The rows of all
files go to one consumer, in order. Cancelling the coroutine ends the read.
"""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from delta_sharing_client.decode.budget import MemoryBudget
from delta_sharing_client.decode.equality import EqualityDeletes
from delta_sharing_client.decode.file import is_constant, read_file
from delta_sharing_client.decode.file_read import Shared
from delta_sharing_client.decode.layout import Shape
from delta_sharing_client.decode.pace import Pace
from delta_sharing_client.decode.page_choice import Ratio
from delta_sharing_client.decode.rows import FileRows, Item, nothing
from delta_sharing_client.decode.vectors import Vectors
from delta_sharing_client.fetch.report import ScanReport, file_started, follow_progress
from delta_sharing_client.fetch.source import MOST_IN_ONE_RESPONSE, Attempt, Stale
from delta_sharing_client.fetch.waiting import until
from delta_sharing_client.parquet.footer import FooterGuess
from delta_sharing_client.plan.tasks import FileTask, Plan
from delta_sharing_client.run import loop
from delta_sharing_client.run.task_queue import Listing

_MB = 1024 * 1024
# The bytes of one request: if there are many files; and if there are few, which are split to use several connections.
_PART = 16 * _MB
_SMALL_PART = 4 * _MB
_FEW_FILES = 4
# Seconds to wait for the listing to show whether a table has few files.
_LISTING_SECONDS = 0.05
# The maximum number of open files per file that may be downloaded or decoded at a time; the others wait, finished, for
# earlier files.
_MOST_AHEAD = 8
# The maximum number of items that the consumer has not taken. It limits the rows of constant files, which
# ``MemoryBudget`` does not count.
_MOST_UNTAKEN = 64
# The maximum number of files that are read together if their rows are known without a request; a task of the loop takes
# longer than such a file.
_MOST_CONSTANT = 1000


class ScanRun:
    """One read of ``plan`` on the loop; ``listing`` has its files. ``put`` takes the rows without waiting. Unless the
    read is ``eager``, the consumer may stop at any time."""

    def __init__(
        self,
        plan: Plan,
        listing: Listing,
        report: ScanReport,
        put: Callable[[list[Item]], None],
        *,
        eager: bool,
    ) -> None:
        self._context = plan.context
        self._listing = listing
        self._limit = plan.limit
        self._left = plan.limit
        self._report = report
        self._put = put
        self._untaken = 0
        self._finished: list[Item] = []
        self._most = plan.context.options.max_concurrent_requests
        # With a limit the first file probably has all the rows, so files are opened further ahead only if it does not.
        self._files_ahead = 1 if plan.limit is not None else 2 * self._most
        self._pace = Pace(whole=eager and plan.limit is None)
        self._budget = MemoryBudget(self._most_bytes())
        self._slots: deque[FileRows] = deque()
        self._working = 0
        self._room = asyncio.Event()
        self._over: asyncio.Future[Exception | None] | None = None

    async def read(self, *, wait: bool = False) -> None:
        """Send all rows; with ``wait``, also wait until they are taken. Raises the error that ended the read early."""
        tasks: set[asyncio.Task[None]] = set()
        over = self._over = asyncio.get_running_loop().create_future()
        opening = asyncio.ensure_future(self._open_all(tasks))
        try:
            await asyncio.wait((opening, over), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                opening.result()
            elif (error := over.result()) is not None:
                raise error
        finally:
            over.cancel()
            self._listing.close()
            for task in (opening, *tasks):
                task.cancel()
            await asyncio.gather(opening, *tasks, return_exceptions=True)
            self._put_finished()
            # The slots refer to this object: a cycle that would keep all read-ahead rows alive.
            for slot in self._slots:
                slot.drop()
            self._slots.clear()
            self._over = None
            # Untaken items refer to this object as well; without ``put``, it does not refer back to them.
            self._put = nothing
        if wait:
            await until(self._room, lambda: not self._untaken)

    async def _open_all(self, tasks: set[asyncio.Task[None]]) -> None:
        shared = await self._begin()
        failure: Exception | None = None
        try:
            number = 0
            constant = functools.partial(is_constant, shared.shape)
            while (task := await self._next()) is not None:
                others = self._listing.take(constant, _MOST_CONSTANT) if constant(task) else []
                self._open(shared, number, [task, *others], tasks)
                number += 1
        except Exception as error:
            if self._limit is None:
                raise
            # The files listed so far may contain all rows of the limit.
            failure = error
        while tasks:
            await asyncio.wait(tasks)
        if failure is not None:
            raise failure

    def _open(self, shared: Shared, number: int, files: Sequence[FileTask], tasks: set[asyncio.Task[None]]) -> None:
        slot = FileRows(files, self._pace, self._forward, self._item_taken)
        self._slots.append(slot)
        self._working += 1
        reading = asyncio.ensure_future(self._read(shared, number, slot))
        tasks.add(reading)
        reading.add_done_callback(tasks.discard)
        if len(self._slots) == 1:
            self._advance()

    async def _begin(self) -> Shared:
        context, report = self._context, self._report
        fetcher = context.fetcher(report)
        vectors = Vectors(context.table, fetcher)
        self._listing.start(vectors.note, report)
        # A table with few files is read differently, and the wait is short, because a listing is usually fast.
        await self._listing.wait_for_size(_LISTING_SECONDS)
        files = self._listing.files if self._listing.is_whole else 1 << 30
        shape = Shape(context)
        listing = self._listing
        follow_progress(
            report, lambda: (listing.files_done, listing.files, listing.bytes_done, listing.bytes), shape.share
        )
        return Shared(
            shape=shape,
            report=report,
            limit=self._limit,
            fetcher=fetcher,
            decode=loop.current().decoders.run,
            budget=self._budget,
            guess=FooterGuess(len(context.schema.fields)),
            ratio=Ratio(1, 2),
            gains=Ratio(),
            late_gains=Ratio(),
            vectors=vectors,
            equality=EqualityDeletes(context, fetcher),
            pace=self._pace,
            part=_SMALL_PART if files < _FEW_FILES else _PART,
            # Decoding is CPU-bound, so either files are decoded in parallel, or the columns of one file.
            threads_inside=files < pa.cpu_count(),
        )

    @property
    def _ahead(self) -> int:
        return self._files_ahead if self._limit is not None else self._pace.files(2 * self._most)

    async def _next(self) -> FileTask | None:
        """Return the next file once there is room for it, ``None`` after the last."""
        await until(
            self._room,
            lambda: (
                self._working < self._ahead
                and len(self._slots) < _MOST_AHEAD * self._ahead
                and self._untaken < _MOST_UNTAKEN
            ),
        )
        return await self._listing.next()

    async def _read(self, shared: Shared, number: int, slot: FileRows) -> None:
        task = slot.tasks[0]
        file_started(self._report, sum(max(0, each.size) for each in slot.tasks))
        try:
            attempt: Attempt | None = Attempt.FIRST
            while attempt is not None:
                # Read outside of the handler: the next error would have this one as its context, and keep the frames of
                # both alive.
                attempt = await self._attempt(shared, number, slot, attempt)
                if attempt is not None:
                    file_started(self._report, task.size)
        except Exception as error:
            slot.failure = error
            if self._limit is None:
                self._end(error)  # at once, without waiting for earlier files
        finally:
            slot.is_over = True
            self._working -= 1
            self._room.set()
        if slot is self._slots[0]:
            self._advance()

    async def _attempt(self, shared: Shared, number: int, slot: FileRows, attempt: Attempt) -> Attempt | None:
        """Read a file; return the next attempt if its bytes do not belong together."""
        task = slot.tasks[0]
        try:
            await read_file(shared, number, slot, attempt=attempt)
        except Stale as stale:
            # No row must be returned twice, by this task or another.
            can_restart = task.version is None and attempt is not Attempt.IN_ONE_RESPONSE and slot.drop()
            if attempt is Attempt.AGAIN:
                can_restart = can_restart and 0 <= task.size <= MOST_IN_ONE_RESPONSE and task.row_groups is None
            if not can_restart:
                raise stale.ended() from None
            return Attempt(attempt + 1)
        return None

    def _advance(self) -> None:
        """Send the available rows of the current file, and of the finished files after it."""
        try:
            while self._slots and self._slots[0].advance():
                self._slots.popleft()
        except Exception as error:
            self._end(error)

    def _forward(self, item: Item) -> None:
        self._untaken += 1
        if self._left is not None:
            item = item._replace(batches=self._within_limit(item.batches))
        self._listing.widen()
        if item.ends:
            self._files_ahead = min(2 * self._files_ahead, 2 * self._most)
        # Sent together with other items of this step of the loop, because each call wakes the consumer's thread.
        if not self._finished:
            asyncio.get_running_loop().call_soon(self._put_finished)
        self._finished.append(item)
        if self._left == 0:
            self._end(None)

    def _put_finished(self) -> None:
        finished, self._finished = self._finished, []
        if finished:
            self._put(finished)

    def _most_bytes(self) -> int:
        most = self._context.options.max_bytes_in_flight * 5 // 8
        return most if self._limit is not None else self._pace.budget(most)

    def _item_taken(self) -> None:
        """Make room for more rows, because the consumer has taken all rows of an item."""
        self._untaken -= 1
        self._room.set()
        if not self._pace.is_full:
            self._pace.grow()
            self._budget.widen(self._most_bytes())
            for slot in self._slots:
                slot.news.set()

    def _within_limit(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        kept = []
        for batch in batches:
            assert self._left is not None
            if self._left == 0:
                break
            batch = batch.slice(0, self._left) if batch.num_rows > self._left else batch
            self._left -= batch.num_rows
            kept.append(batch)
        return kept

    def _end(self, error: Exception | None) -> None:
        """End the read early: with ``error``, or because the limit is reached."""
        if self._over is not None and not self._over.done():
            self._over.set_result(error)
