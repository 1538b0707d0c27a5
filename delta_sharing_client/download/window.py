"""How much of a scan may be in memory: a window of bytes that moves with the consumer, in file order."""

from __future__ import annotations

import heapq
import itertools
import threading
from concurrent.futures import Future

Order = tuple[int, ...]


class Window:
    """Grants bytes to pieces of work, lowest ``order`` first; the first element of an order is the file's number.

    What the consumer needs next always gets its grant, however large: the lowest order of the file being consumed. Else
    nothing would ever move.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: list[tuple[Order, int, int, Future[None]]] = []
        self._tie = itertools.count()
        self._granted: dict[Order, int] = {}
        self._in_use = 0
        self._head = 0

    def acquire(self, order: Order, nbytes: int) -> Future[None]:
        """Return a future that is done once ``nbytes`` are granted to ``order`` (one grant an order)."""
        future: Future[None] = Future()
        with self._lock:
            heapq.heappush(self._waiting, (order, next(self._tie), nbytes, future))
        self._grant()
        return future

    def resize(self, order: Order, nbytes: int) -> None:
        """Replace what was granted to ``order`` by ``nbytes``; no grant is waited for."""
        with self._lock:
            self._in_use += nbytes - self._granted.get(order, 0)
            self._granted[order] = nbytes
        self._grant()

    def release(self, order: Order) -> None:
        """Give back what ``order`` holds, if anything."""
        with self._lock:
            if order in self._granted:
                self._in_use -= self._granted.pop(order)
        self._grant()

    def consume(self, file: int) -> None:
        """Take note that the consumer has come to ``file``."""
        with self._lock:
            self._head = file
        self._grant()

    def _is_next(self, order: Order) -> bool:
        return order[0] <= self._head and not any(other < order for other in self._granted)

    def _grant(self) -> None:
        granted: list[Future[None]] = []
        with self._lock:
            while self._waiting:
                order, _, nbytes, future = self._waiting[0]
                if self._in_use + nbytes > self._capacity and not self._is_next(order):
                    break
                heapq.heappop(self._waiting)
                self._granted[order] = nbytes
                self._in_use += nbytes
                granted.append(future)
        for future in granted:
            future.set_result(None)
