"""Threads that do calls, lowest order first, and end when they are told to."""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import os
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from delta_sharing_client.errors import DeltaSharingError

T = TypeVar("T")
Order = tuple[int, ...]
# An interpreter that ends while a thread is inside of Arrow, be it to drop what it made, takes the process down with
# it (std::terminate).
_SECONDS_AT_EXIT = 10.0
_SECONDS_TO_LOOK_AGAIN = 0.02
_Task = tuple[Order, int, int, Callable[[], Any], "Future[Any]"]


class Workers:
    """At most ``most`` threads, started as they are needed; a context manager.

    They are daemons: a call that never returns must not keep the interpreter from ending. It waits for all but as many
    as ``held`` says that a system call may hold at the moment, all of them without it. No callback of a future
    runs while the lock is held.
    """

    def __init__(self, most: int, name: str, *, held: Callable[[], int] | None = None) -> None:
        self._held_now = held or self._alive
        _waited_for.add(self)
        self._most = max(1, most)
        self._name = name
        # The lock is taken by itself: Condition.__enter__ is Python code, and Ctrl-C within it leaves it locked.
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._waiting: list[_Task] = []
        self._tie = itertools.count()
        self._threads = 0
        self._idle = 0
        self._guests = 0
        self._closed = False

    def submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        """Run ``call``, about ``nbytes`` of work, on one of the threads. Once closed, the future is a cancelled one."""
        future: Future[T] = Future()
        if not self._closed:
            with self._lock:
                if not self._closed:
                    heapq.heappush(self._waiting, (order, next(self._tie), nbytes, call, future))
                    self._wake()
                    return future
        future.cancel()
        return future

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Let the calling thread, which is another pool's, do a call in the ``with`` block: whoever waits for the end
        of this pool waits for it as well. Raises ``CancelledError`` once closed."""
        with self._lock:
            if self._closed:
                raise CancelledError
            self._guests += 1
        try:
            yield
        finally:
            with self._lock:
                self._guests -= 1
                if self._closed:
                    self._news.notify_all()

    def stop(self) -> None:
        """Take nothing more, and cancel what has not started."""
        with self._lock:
            self._closed = True
            dropped, self._waiting = self._waiting, []
            self._news.notify_all()
        for *_, future in dropped:
            future.cancel()

    def join(self, deadline: float) -> None:
        """Wait until every thread has ended, but not beyond ``deadline`` (of ``time.monotonic``)."""
        with self._lock:
            while self._alive() and (left := deadline - time.monotonic()) > 0:
                self._news.wait(left)

    def let_finish(self, deadline: float) -> None:
        """Wait as the end of the interpreter does: until no thread is left but those that a system call holds, which
        end where they are."""
        with self._lock:
            while self._alive() > self._held_now() and (left := deadline - time.monotonic()) > 0:
                self._news.wait(min(left, _SECONDS_TO_LOOK_AGAIN))

    def _alive(self) -> int:
        return self._threads + self._guests

    def forget(self) -> None:
        # What waits stays: a parent's thread may have been in the midst of it, so that it cannot be taken apart.
        self._closed = True

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # === For a pool with rules of its own; all are called with the lock held ===

    def _pause(self) -> float | None:
        """Return 0 to start the next call, the seconds after which to look again, or ``None`` to wait for news."""
        return 0 if self._waiting else None

    def _began(self, nbytes: int) -> None:
        """A call of ``nbytes`` begins on this thread."""

    def _finished(self, nbytes: int) -> None:
        """It has ended."""

    def _is_surplus(self) -> bool:
        """Whether the thread whose call has ended is one too many."""
        return False

    # === Threads ===

    def _wake(self) -> None:
        """Let one more thread start the next call, or wait until it may; none where only the end of a call lets it
        start, as the thread of that call takes it."""
        if self._pause() is None:
            return
        if self._idle:
            self._news.notify()
        elif self._threads < self._most:
            self._threads += 1
            try:
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
            except RuntimeError:  # the system gives no more threads: those that are there will do
                self._threads -= 1
                if not self._threads:
                    raise

    def _work(self) -> None:
        ended: int | None = None
        while (task := self._next(ended)) is not None:
            _, _, ended, call, future = task
            # An idle thread must not keep what it made.
            del task
            if future.set_running_or_notify_cancel():
                _run(call, future)
            del call, future

    def _next(self, ended: int | None) -> _Task | None:
        """Take note that a call of ``ended`` bytes has ended on this thread, and return what it is to do then."""
        with self._lock:
            if ended is not None:
                self._finished(ended)
                if self._is_surplus():
                    self._threads -= 1
                    self._wake()
                    self._news.notify_all()
                    return None
            if not self._closed and self._pause() != 0:
                self._idle += 1
                while not self._closed and (pause := self._pause()) != 0:
                    self._news.wait(pause)
                self._idle -= 1
            if self._closed:
                self._threads -= 1
                self._news.notify_all()
                return None
            task = heapq.heappop(self._waiting)
            self._began(task[2])
            self._wake()
            return task


_waited_for: weakref.WeakSet[Workers] = weakref.WeakSet()


@atexit.register
def _let_finish() -> None:
    deadline = time.monotonic() + _SECONDS_AT_EXIT
    for workers in list(_waited_for):
        workers.stop()
        workers.let_finish(deadline)


if hasattr(os, "register_at_fork"):
    # The threads are the parent's, and so are their locks.
    os.register_at_fork(after_in_child=_waited_for.clear)


def forget_frames(error: BaseException) -> None:
    """Let go of what the frames of ``error`` and of its contexts hold: they form cycles with it, and it is kept.

    Ours say all that there is to say. Others keep their lines for whoever reports them, with nothing in them.
    """
    seen: list[BaseException] = [error]
    for each in seen:  # grows while it is walked
        seen += [e for e in (each.__cause__, each.__context__) if e is not None and not any(e is s for s in seen)]
        traceback.clear_frames(each.__traceback__)
        if each is not error or isinstance(error, (DeltaSharingError, CancelledError)):
            each.__traceback__ = None


def _run(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as error:
        del call
        forget_frames(error)
        future.set_exception(error)
        del future
    else:
        future.set_result(result)
