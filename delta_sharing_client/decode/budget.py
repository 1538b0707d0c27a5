"""The memory budget of a read, for bytes that are downloaded, being decoded, or decoded and not yet consumed."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from delta_sharing_client.fetch.waiting import Order, Turns

# The percentage of the capacity that downloads may use.
_DOWNLOADS = 60


class Grant:
    """Bytes of a budget that are in use."""

    __slots__ = ("_budget", "_downloads", "_held", "order")

    def __init__(self, budget: MemoryBudget, order: Order) -> None:
        self._budget = budget
        self._held = 0
        self._downloads = 0
        self.order = order

    async def grow(self, nbytes: int) -> None:
        """Wait until ``nbytes`` more are granted, for decoding the downloaded bytes."""
        budget = self._budget
        try:
            await budget._growing.wait(self.order, _Share(self, nbytes), budget._give, _release)
        except asyncio.CancelledError:
            self.release()
            raise

    def resize(self, nbytes: int) -> None:
        """Change the grant to ``nbytes`` without waiting; they no longer count as a download."""
        budget = self._budget
        budget._in_use += nbytes - self._held
        budget._downloads -= self._downloads
        self._held, self._downloads = nbytes, 0
        budget._serve()

    def release(self) -> None:
        """Release the grant; further calls do nothing."""
        budget = self._budget
        if self in budget._granted:
            budget._granted.discard(self)
            # Also if the grant has no bytes, because other requests may wait for its release.
            self.resize(0)


class _Share(NamedTuple):
    """Bytes to add to a grant."""

    grant: Grant
    nbytes: int


class MemoryBudget:
    """Grants up to ``capacity`` bytes, lowest order first. Must be used on one event loop.

    Downloads may use only a part of the capacity. Grants that grow for decoding come before new grants for downloads.
    So many requests can be in flight while several files are decoded. A request is always granted if no active grant
    has a lower order; otherwise a file larger than the capacity could never be read.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._in_use = 0
        self._downloads = 0
        self._granted: set[Grant] = set()
        self._growing = Turns[_Share]()
        self._beginning = Turns[_Share]()

    def widen(self, capacity: int) -> None:
        """Grant up to ``capacity`` bytes from now on, which is never less than before."""
        self._capacity = capacity
        self._serve()

    async def acquire(self, order: Order, nbytes: int) -> Grant:
        """Wait until a request of this ``order`` may have ``nbytes`` for a download, and return the grant."""
        grant = Grant(self, order)
        await self._beginning.wait(order, _Share(grant, nbytes), self._give, _release)
        return grant

    def _serve(self) -> None:
        self._growing.serve(self._give)
        self._beginning.serve(self._give)

    def _give(self, share: _Share) -> bool:
        grant, nbytes = share
        if not self._fits(grant, nbytes):
            return False
        if grant not in self._granted:
            self._granted.add(grant)
            grant._downloads = nbytes
            self._downloads += nbytes
        grant._held += nbytes
        self._in_use += nbytes
        return True

    def _fits(self, grant: Grant, nbytes: int) -> bool:
        room = self._capacity - self._in_use
        if grant not in self._granted:
            room = 0 if self._growing else min(room, self._capacity * _DOWNLOADS // 100 - self._downloads)
        return nbytes <= room or all(grant.order <= other.order for other in self._granted)


def _release(share: _Share) -> None:
    share.grant.release()
