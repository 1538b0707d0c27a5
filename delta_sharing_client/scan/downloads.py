"""Data requests in flight: in file order, as many as make the line faster and no more.

Requests wait in a heap, earliest file first. Small ones are bound by latency, so many fly at once; large ones are bound
by the line, where more of them only delay the first file. Their bytes in flight start low and double while that makes
the whole faster.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Order = tuple[int, ...]

_ALWAYS = 4
_FIRST_BYTES = 32 * 1024 * 1024
_LARGE = 2 * 1024 * 1024
_GROWTH = 1.15


class Downloads:
    """A pool of threads for data requests; a context manager. ``close`` drops what has not started."""

    def __init__(self, max_concurrent: int) -> None:
        self._max = max(1, max_concurrent)
        self._waiting: list[tuple[Order, int, int, Callable[[], Any], Future[Any]]] = []
        self._tie = itertools.count()
        self._condition = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._active = 0
        self._active_large = 0
        self._pace = Pace()
        self._closed = False

    def submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        """Run ``call``, which downloads about ``nbytes``, on a thread of the pool; lower ``order`` goes first."""
        future: Future[T] = Future()
        with self._condition:
            if self._closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (order, next(self._tie), nbytes, call, future))
            if self._idle:
                self._condition.notify()
            elif self._threads < self._max:
                self._threads += 1
                # Daemons: a stalled server must not keep the interpreter from ending.
                threading.Thread(target=self._work, name=f"download-{self._threads}", daemon=True).start()
        return future

    def close(self) -> None:
        with self._condition:
            self._closed = True
            dropped, self._waiting = self._waiting, []
            self._condition.notify_all()
        for *_, future in dropped:
            future.cancel()

    def __enter__(self) -> Downloads:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                while not self._closed and not self._admits():
                    self._condition.wait()
                self._idle -= 1
                if self._closed:
                    return
                _, _, nbytes, call, future = heapq.heappop(self._waiting)
                large = nbytes if nbytes > _LARGE else 0
                self._active += 1
                self._active_large += large
                # Another thread may be admissible as well; each wakes the next.
                if self._idle and self._waiting:
                    self._condition.notify()
            try:
                if future.set_running_or_notify_cancel():
                    _run(call, future)
            finally:
                with self._condition:
                    self._active -= 1
                    self._active_large -= large
                    self._pace.finished(nbytes, saturated=bool(self._waiting))
                    if self._waiting:
                        self._condition.notify()

    def _admits(self) -> bool:
        if not self._waiting:
            return False
        nbytes = self._waiting[0][2]
        if self._active < min(_ALWAYS, self._max) or nbytes <= _LARGE:
            return True
        return self._active_large + nbytes <= self._pace.limit


def _run(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class Pace:
    """How many bytes of large requests may be in flight: doubled as long as that raises the throughput."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = _FIRST_BYTES) -> None:
        self.limit = limit
        self._clock = clock
        self._since = clock()
        self._bytes = 0
        self._requests = 0
        self._best = 0.0
        self._growing = True

    def finished(self, nbytes: int, *, saturated: bool) -> None:
        """Take note that a request of ``nbytes`` ended; ``saturated``: others were waiting for their turn."""
        self._bytes += nbytes
        self._requests += 1
        elapsed = self._clock() - self._since
        if not self._growing or elapsed < 0.1 or self._bytes < 2 * self.limit:
            return
        rate = self._bytes / elapsed
        if saturated and rate > _GROWTH * self._best:
            self._best = rate
            self.limit *= 2
        elif saturated:
            self._growing = False
            self.limit = max(_FIRST_BYTES, self.limit // 2)
        self._since, self._bytes, self._requests = self._clock(), 0, 0
