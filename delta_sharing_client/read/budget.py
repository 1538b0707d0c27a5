"""The memory budget of a read: bytes that are downloaded, being decoded, or decoded and not yet consumed."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from delta_sharing_client.fetch.source import Order


class Grant:
    """Bytes of a budget that are in use."""

    __slots__ = ("_budget", "_held", "order")

    def __init__(self, budget: Budget, order: Order, nbytes: int) -> None:
        self._budget = budget
        self._held = nbytes
        self.order = order

    def resize(self, nbytes: int) -> None:
        """Change the grant to ``nbytes`` without waiting."""
        self._budget._in_use += nbytes - self._held
        if nbytes < self._held:
            self._budget._serve()
        self._held = nbytes

    def release(self) -> None:
        """Release the grant; further calls do nothing."""
        budget = self._budget
        if self in budget._granted:
            budget._granted.discard(self)
            budget._in_use -= self._held
            # Also for zero bytes: others may have waited for this grant.
            budget._serve()
        self._held = 0


class Budget:
    """Grants ``capacity`` bytes, lowest order first. For one event loop.

    A request whose order is lower than all active grants is always granted; otherwise a file larger than the capacity
    could never be read.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use = 0
        self._granted: set[Grant] = set()
        self._waiting: list[tuple[Order, int, int, asyncio.Future[Grant]]] = []
        self._tie = itertools.count()

    def widen(self, capacity: int) -> None:
        """Grant up to ``capacity`` bytes from now on, no fewer than before."""
        self._capacity = capacity
        self._serve()

    async def acquire(self, order: Order, nbytes: int) -> Grant:
        """Wait until it is ``order``'s turn, and return a grant of ``nbytes``."""
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

    def _serve(self) -> None:
        while self._waiting:
            order, _, nbytes, future = self._waiting[0]
            if future.done():  # the waiter was cancelled
                heapq.heappop(self._waiting)
            elif self._fits(order, nbytes):
                heapq.heappop(self._waiting)
                future.set_result(self._grant(order, nbytes))
            else:
                return
