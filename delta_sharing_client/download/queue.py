"""Data requests in flight: in file order, as many as make the whole faster and no more.

A request first waits for its answer, which costs the line nothing, and then transfers, which does: transfers side by
side only delay the first file once the line is full. So the number of transfers is limited, not that of requests: while
answers are slow to come, many small requests fly at once. Large ones count from the start, as their transfers are long.
Tiny ones never count. The limit starts low and doubles while that raises the throughput.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from delta_sharing_client.download.workers import Workers

_FIRST_LIMIT = 4
_GROWTH = 1.15
# An answer that takes longer than this to begin is waiting for the network, not for its turn.
_PROMPT = 0.005
_SMALL = 2 * 1024 * 1024
# Over before it could be in anyone's way: a footer, a deletion vector.
_TINY = 64 * 1024
_MEASURED_SECONDS = 0.1


class Downloads(Workers):
    """A pool of threads for data requests."""

    def __init__(self, max_concurrent: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(max_concurrent, "download")
        self._clock = clock
        self._asked: dict[int, float] = {}
        self._transferring: set[int] = set()
        self._pace = Pace(clock)

    def answered(self) -> None:
        """Called by a running ``call`` when its answer begins: from now on it takes part of the line."""
        with self._lock:
            if self._asked.pop(threading.get_ident(), None) is not None:
                self._transferring.add(threading.get_ident())

    def _began(self, nbytes: int) -> None:
        if nbytes > _SMALL:
            self._transferring.add(threading.get_ident())
        elif nbytes > _TINY:
            self._asked[threading.get_ident()] = self._clock()

    def _finished(self, nbytes: int) -> None:
        self._asked.pop(threading.get_ident(), None)
        self._transferring.discard(threading.get_ident())
        if nbytes > _TINY:
            self._pace.finished(nbytes, saturated=bool(self._waiting))

    def _pause(self) -> float | None:
        if not self._waiting:
            return None
        if self._waiting[0][2] <= _TINY:
            return 0
        now = self._clock()
        prompt = [began for began in self._asked.values() if now - began < _PROMPT]
        if len(self._transferring) + len(prompt) < self._pace.limit:
            return 0
        return max(0.0005, min(prompt) + _PROMPT - now) if prompt else None


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
