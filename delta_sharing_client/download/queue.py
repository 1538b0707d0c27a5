"""Data requests in flight: in file order, as many as make the whole faster and no more.

A request first waits for its answer, which costs the line nothing, and then transfers, which does: transfers side by
side only delay the first file once the line is full. So the number of transfers is limited, not that of requests: while
answers are slow to come, many small requests fly at once. Large ones count from the start, as their transfers are long.
Tiny ones never count. The limit starts low and doubles while that raises the throughput.
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

_FIRST_LIMIT = 4
_GROWTH = 1.15
# An answer that takes longer than this to begin is waiting for the network, not for its turn.
_PROMPT = 0.005
_SMALL = 2 * 1024 * 1024
# Over before it could be in anyone's way: a footer, a deletion vector.
_TINY = 64 * 1024
_MEASURED_SECONDS = 0.1


class Downloads:
    """A pool of threads for data requests; a context manager. ``close`` drops what has not started."""

    def __init__(self, max_concurrent: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max = max(1, max_concurrent)
        self._clock = clock
        self._waiting: list[tuple[Order, int, int, Callable[[], Any], Future[Any]]] = []
        self._tie = itertools.count()
        self._condition = threading.Condition()
        self._threads = 0
        self._idle = 0
        self._asked: dict[int, float] = {}
        self._transferring: set[int] = set()
        self._pace = Pace(clock)
        self._closed = False

    def submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        """Run ``call``, which downloads about ``nbytes``, on a thread of the pool; lower ``order`` goes first."""
        future: Future[T] = Future()
        with self._condition:
            if self._closed:
                future.cancel()
                return future
            heapq.heappush(self._waiting, (order, next(self._tie), nbytes, call, future))
            self._wake()
        return future

    def answered(self) -> None:
        """Called by a running ``call`` when its answer begins: from now on it takes part of the line."""
        with self._condition:
            if self._asked.pop(threading.get_ident(), None) is not None:
                self._transferring.add(threading.get_ident())

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

    def _wake(self) -> None:
        """Let one thread look whether it may start the next request; one at a time waits for that."""
        if not self._waiting:
            return
        if self._idle:
            self._condition.notify()
        elif self._threads < self._max:
            self._threads += 1
            # Daemons: a stalled server must not keep the interpreter from ending.
            threading.Thread(target=self._work, name=f"download-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        me = threading.get_ident()
        while True:
            with self._condition:
                self._idle += 1
                while not self._closed and (pause := self._pause()) != 0:
                    self._condition.wait(pause)
                self._idle -= 1
                if self._closed:
                    return
                _, _, nbytes, call, future = heapq.heappop(self._waiting)
                if nbytes > _SMALL:
                    self._transferring.add(me)
                elif nbytes > _TINY:
                    self._asked[me] = self._clock()
                self._wake()
            try:
                if future.set_running_or_notify_cancel():
                    _run(call, future)
            finally:
                # An idle thread must not keep what it downloaded.
                del call, future
                with self._condition:
                    self._asked.pop(me, None)
                    self._transferring.discard(me)
                    if nbytes > _TINY:
                        self._pace.finished(nbytes, saturated=bool(self._waiting))
                    self._wake()

    def _pause(self) -> float | None:
        """Return 0 to start the next request, the seconds after which to look again, or ``None`` to wait for news."""
        if not self._waiting:
            return None
        if self._waiting[0][2] <= _TINY:
            return 0
        now = self._clock()
        prompt = [began for began in self._asked.values() if now - began < _PROMPT]
        if len(self._transferring) + len(prompt) < self._pace.limit:
            return 0
        return max(0.0005, min(prompt) + _PROMPT - now) if prompt else None


def _run(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


class Pace:
    """How many transfers may run side by side: doubled as long as that raises the throughput."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, limit: int = _FIRST_LIMIT) -> None:
        self.limit = limit
        self._clock = clock
        self._since = clock()
        self._bytes = 0
        self._requests = 0
        self._best = 0.0
        self._growing = True

    def finished(self, nbytes: int, *, saturated: bool) -> None:
        """Take note that a request of ``nbytes`` ended; ``saturated``: others were waiting for their turn."""
        if not self._growing:
            return
        self._bytes += nbytes
        self._requests += 1
        elapsed = self._clock() - self._since
        if elapsed < _MEASURED_SECONDS or self._requests < 2 * self.limit:
            return
        rate = self._bytes / elapsed
        if saturated and rate > _GROWTH * self._best:
            self._best = rate
            self.limit *= 2
        elif saturated:
            self._growing = False
            self.limit //= 2
        self._since, self._bytes, self._requests = self._clock(), 0, 0
