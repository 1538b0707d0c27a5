"""The files of a read in order, available while the server still lists others.

A listing uses blocking requests, so a daemon thread reads it. It stays a limited number of files ahead of the reader,
so that memory does not grow with the table; a server that lists faster has to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from delta_sharing_client.fetch.report import ScanReport, add_counts, add_seconds
from delta_sharing_client.fetch.waiting import until
from delta_sharing_client.plan.tasks import FileTask, Plan, ScanStream
from delta_sharing_client.threads import start

# Tables with at least this many files are large. Until the first rows have arrived, no more files are listed, because
# listing would take CPU time from them.
_MANY = 256
# The maximum number of files that are listed and not yet taken. They take about ten megabytes, and most listings end
# before they reach it.
_AHEAD = 16_384
# The same for a read with a limit, which the first files may reach: listing this many more costs less than a broken
# connection.
_AHEAD_OF_LIMIT = 1_000
_has_vector, _size_of = operator.attrgetter("has_vector"), operator.attrgetter("size")


class Listing:
    """The files of ``plan``: ``start`` the listing on the loop, take files with ``next``, and ``close`` it."""

    def __init__(self, plan: Plan) -> None:
        self._limit = plan.limit
        self._stream = plan.pending
        self._listed: deque[FileTask] = deque(plan.tasks)
        self._most = _MANY
        self._is_started = self._is_over = self._is_closed = self._is_full = False
        self.failure: BaseException | None = None
        """The error that ended the listing early, ``None`` if there is none."""
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._news = asyncio.Event()
        self._wake: Callable[[], None] | None = None
        self.files = len(plan.tasks)
        """The number of files that were listed so far."""
        self.bytes = _bytes(plan.tasks)
        """Their total size in bytes."""
        self.files_done = self.bytes_done = 0
        """The number and the total size of the files of which the consumer has taken all rows."""

    @property
    def is_whole(self) -> bool:
        """Whether all files are listed."""
        return self._stream is None or self._is_over

    def start(self, note: Callable[[FileTask], None], report: ScanReport) -> None:
        """Start the listing; called on the loop. ``note`` is called with every file that has deletion vectors, before
        the file can be taken, possibly on another thread."""
        if self._stream is None:
            for task in filter(_has_vector, self._listed):
                note(task)
            return
        loop, stream, self._is_started = asyncio.get_running_loop(), self._stream, True

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._news.set)

        self._wake = wake
        start(lambda: self._follow(stream, note, report), "delta-sharing-listing")

    async def wait_for_size(self, seconds: float) -> None:
        """Wait until the number of files is known to be small or large, but not longer than ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until(self._news, lambda: self.files >= _MANY or self.is_whole)

    async def next(self) -> FileTask | None:
        """Return the next file, ``None`` after the last. Raises the error of the listing."""
        while not self._listed:
            if self.is_whole:
                if self.failure is not None:
                    raise self.failure
                # Files may have been listed between the two checks.
                if not self._listed:
                    return None
            else:
                self._make_room()
                await until(self._news, lambda: bool(self._listed) or self.is_whole)
        task = self._listed.popleft()
        self._make_room_if_low()
        return task

    def take(self, wanted: Callable[[FileTask], bool], most: int) -> list[FileTask]:
        """Return the next files that are already listed, at most ``most``, up to the first that is not ``wanted``."""
        taken: list[FileTask] = []
        while len(taken) < most and self._listed and wanted(self._listed[0]):
            taken.append(self._listed.popleft())
        self._make_room_if_low()
        return taken

    def widen(self) -> None:
        """Allow the listing to go further ahead, because the first rows have arrived."""
        if self._most == _MANY:
            self._most = _AHEAD if self._limit is None else _AHEAD_OF_LIMIT
            self._make_room()

    def done(self, tasks: Sequence[FileTask]) -> None:
        """Count ``tasks`` as done: the consumer has taken all of their rows."""
        self.files_done += len(tasks)
        self.bytes_done += _bytes(tasks)

    def close(self) -> None:
        """Cancel the listing, from any thread, without waiting for its end."""
        self._is_closed = True
        if self._stream is not None:
            if self._is_started:
                self._stream.break_off()
                self._room.put(None)
            else:
                self._stream.close()

    def _make_room_if_low(self) -> None:
        if self._is_full and 2 * len(self._listed) < self._most:
            self._make_room()

    def _make_room(self) -> None:
        if self._is_full:
            self._is_full = False
            self._room.put(None)

    # === On the listing's thread ===

    def _follow(self, stream: ScanStream, note: Callable[[FileTask], None], report: ScanReport) -> None:
        began, paused = time.perf_counter(), 0.0
        assert self._wake is not None
        try:
            with contextlib.closing(stream):
                for tasks in stream.blocks:
                    self._add(tasks, note)
                    if len(self._listed) >= self._most:
                        paused += self._wait_for_room()
                    if self._is_closed:
                        return
        except BaseException as error:
            self.failure = error
        finally:
            add_counts(report, files_skipped=stream.skipped().files)
            add_seconds(report, "plan", time.perf_counter() - began - paused)
            self._is_over = True
            self._wake()

    def _add(self, tasks: Sequence[FileTask], note: Callable[[FileTask], None]) -> None:
        for task in filter(_has_vector, tasks):
            note(task)
        self.files += len(tasks)
        self.bytes += _bytes(tasks)
        self._listed.extend(tasks)
        # The reader is woken once for all files of a block. If the event is set, it will check for files again anyway.
        if not self._news.is_set():
            assert self._wake is not None
            self._wake()

    def _wait_for_room(self) -> float:
        """Wait until half of the files are taken; return the seconds waited."""
        began = time.perf_counter()
        while not self._is_closed and 2 * len(self._listed) >= self._most:
            self._is_full = True
            # Checked again: if files were taken before ``_is_full`` was set, nothing would wake this thread.
            if 2 * len(self._listed) >= self._most and not self._is_closed:
                self._room.get()
        self._is_full = False
        return time.perf_counter() - began


def _bytes(tasks: Iterable[FileTask]) -> int:
    return sum(size for size in map(_size_of, tasks) if size > 0)
