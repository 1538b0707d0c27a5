"""The bytes that one read may hold: fetched, being decoded, or decoded and not yet taken by the consumer."""

from __future__ import annotations

import asyncio
import heapq
import itertools

Order = tuple[int, ...]
"""Where something stands among the rows of the read: file number first."""


class Grant:
    """Bytes that somebody holds of a budget."""

    __slots__ = ("_budget", "_held", "order")

    def __init__(self, budget: Budget, order: Order, nbytes: int) -> None:
        self._budget = budget
        self._held = nbytes
        self.order = order

    def resize(self, nbytes: int) -> None:
        """Hold ``nbytes`` instead; nobody waits for that."""
        self._budget._change(nbytes - self._held)
        self._held = nbytes

    def release(self) -> None:
        """Give back what is held; again is nothing."""
        self._budget._give_back(self, self._held)
        self._held = 0


class Budget:
    """Grants ``capacity`` bytes, lowest order first. For one event loop.

    Whoever stands before all that is granted passes, however much is granted: else a file larger than the capacity
    would never be read.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use = 0
        self._granted: set[Grant] = set()
        self._waiting: list[tuple[Order, int, int, asyncio.Future[Grant]]] = []
        self._tie = itertools.count()

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes more would fit now, with nobody waiting."""
        return not self._waiting and self._in_use + nbytes <= self._capacity

    async def acquire(self, order: Order, nbytes: int) -> Grant:
        """Return a grant of ``nbytes`` as soon as it is ``order``'s turn."""
        if not self._waiting and self._fits(order, nbytes):
            return self._grant(order, nbytes)
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._tie), nbytes, future))
        self._serve()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.result().release()
            raise

    def _fits(self, order: Order, nbytes: int) -> bool:
        if self._in_use + nbytes <= self._capacity:
            return True
        return all(order < other.order for other in self._granted)

    def _grant(self, order: Order, nbytes: int) -> Grant:
        grant = Grant(self, order, nbytes)
        self._granted.add(grant)
        self._in_use += nbytes
        return grant

    def _change(self, nbytes: int) -> None:
        self._in_use += nbytes
        if nbytes < 0:
            self._serve()

    def _give_back(self, grant: Grant, nbytes: int) -> None:
        if grant in self._granted:
            self._granted.discard(grant)
            self._in_use -= nbytes
            # Also for nothing: others may have waited for this one to be taken.
            self._serve()

    def _serve(self) -> None:
        while self._waiting:
            order, _, nbytes, future = self._waiting[0]
            if future.done():  # whoever waited was cancelled
                heapq.heappop(self._waiting)
            elif self._fits(order, nbytes):
                heapq.heappop(self._waiting)
                future.set_result(self._grant(order, nbytes))
            else:
                return
