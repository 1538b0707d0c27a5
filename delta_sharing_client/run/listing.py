"""The files of a read in their order, taken while they are still being listed.

A thread of its own follows the listing, ahead of whoever takes the files, but not farther than some of them: a server
that lists faster than files are read is made to wait, so memory does not grow with the table.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError

from delta_sharing_client.fetch.queue import Workers, forget_frames
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.tasks import FileTask, ScanPlan, ScanStream

# So many files are many. Listing more of them must not take the processor from the first one's rows.
_MANY = 256
# Files that are listed and not yet taken, in some ten megabytes: most listings end before they have to wait.
_AHEAD = 16_384
# A limit may end the read with its first files. Listing so many more costs less than a broken connection.
_AHEAD_OF_LIMIT = 1_000


class Listing:
    """The files of ``plan``: ``start`` it, then ``take`` them, until it is ``finished``.

    One thread takes. ``stop``, ``join`` and ``forget`` are those of ``closing.Closable``.
    """

    def __init__(self, plan: ScanPlan | ScanStream) -> None:
        self._limit = plan.limit
        self._stream = plan if isinstance(plan, ScanStream) else None
        tasks: Sequence[FileTask] = () if isinstance(plan, ScanStream) else plan.tasks
        self._listed: deque[FileTask] = deque(tasks)
        self._most = _MANY
        self._worker = Workers(1, "listing")
        self._is_started = self._is_followed = self._is_over = self._stopped = False
        self.failure: BaseException | None = None
        """What ended the listing before its end, if anything has."""
        self._is_awaited = self._is_full = False
        # Queues in C: who takes may be interrupted anywhere, and a lock would stay locked.
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._note: Callable[[FileTask], None] = _nothing
        self._ring: Callable[[], None] = _nothing
        self.files = len(tasks)
        self.bytes = sum(task.size for task in tasks if task.size > 0)

    @property
    def is_whole(self) -> bool:
        """Whether every file is listed that ever will be."""
        return self._stream is None or self._is_over

    @property
    def is_settled(self) -> bool:
        """Whether it is known if there are few files or many."""
        return self.files >= _MANY or self.is_whole

    @property
    def is_open(self) -> bool:
        """Whether it was never started and holds a connection."""
        return self._stream is not None and not self._is_started

    @property
    def finished(self) -> bool:
        """Whether every file was taken. Raises what ended the listing before its end."""
        if self._listed or not self.is_whole:
            return False
        if self.failure is not None:
            raise self.failure
        # What was listed between the two looks at the beginning.
        return not self._listed

    def start(self, note: Callable[[FileTask], None], ring: Callable[[], None], report: ScanReport) -> None:
        """Begin. ``note`` is called with every file, before it can be taken, maybe on another thread; ``ring`` when
        ``take`` gave none before and there may be one, or no more will come."""
        self._note, self._ring = note, ring
        if self._stream is None:
            for task in self._listed:
                if task.without is not None or task.only is not None:
                    note(task)
            return
        stream, self._is_started = self._stream, True
        self._worker.submit((0,), 0, lambda: self._follow(stream, report))

    def take(self) -> FileTask | None:
        """Return the next file, ``None`` if no other is listed yet."""
        try:
            task = self._listed.popleft()
        except IndexError:
            self._is_awaited = True
            if self._is_full:
                self._make_room()
            if not self._listed:
                return None
            task = self._listed.popleft()
        if self._is_full and 2 * len(self._listed) < self._most:
            self._make_room()
        return task

    def hurry(self) -> None:
        """Let it go farther ahead: the first rows are there."""
        if self._most == _MANY:
            self._most = _AHEAD if self._limit is None else _AHEAD_OF_LIMIT
            if self._is_full:
                self._make_room()

    def close(self) -> None:
        """Give the listing up; only where it was not started."""
        if self._stream is not None and self.is_open:
            self._stream.close()
            self._stream = None

    def stop(self) -> None:
        self._stopped = True
        self._worker.stop()
        if self._stream is not None:
            self._stream.break_off()
        self._room.put(None)

    def join(self, deadline: float) -> None:
        self._worker.join(deadline)
        if self._stream is not None and not self._is_followed:
            self._stream.close()
        # The bell is that of the closing which ends this: a cycle, with all that the read holds.
        self._note = self._ring = _nothing

    def forget(self) -> None:
        self._stopped = True
        self._worker.forget()

    def _make_room(self) -> None:
        self._is_full = False
        self._room.put(None)

    def _follow(self, stream: ScanStream, report: ScanReport) -> None:
        self._is_followed = True
        began, paused = time.perf_counter(), 0.0
        try:
            with contextlib.closing(stream):
                for task in stream.files:
                    self._add(task)
                    if len(self._listed) >= self._most:
                        paused += self._wait_for_room()
                    if self._stopped:
                        raise CancelledError
        except BaseException as error:
            forget_frames(error)
            self.failure = error
        finally:
            report.add(files_skipped=stream.skipped().files)
            report.spend("plan", time.perf_counter() - began - paused)
            self._is_over = True
            self._ring()

    def _add(self, task: FileTask) -> None:
        if task.without is not None or task.only is not None:
            self._note(task)
        self.files += 1
        self.bytes += task.size if task.size > 0 else 0
        self._listed.append(task)
        if self._is_awaited or self.files == _MANY:
            self._is_awaited = False
            self._ring()

    def _wait_for_room(self) -> float:
        """Wait until half of the files are taken; return the seconds that took."""
        began = time.perf_counter()
        while not self._stopped and 2 * len(self._listed) >= self._most:
            self._is_full = True
            # Taken in between: nobody may be left to tell of it.
            if 2 * len(self._listed) >= self._most and not self._stopped:
                self._room.get()
        self._is_full = False
        return time.perf_counter() - began


def _nothing(*_: object) -> None:
    pass
