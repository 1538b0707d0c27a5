"""Limits the number of concurrent data requests of a read."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from types import TracebackType

Order = tuple[int, int]


class Flight:
    """At most ``most`` requests at a time, lowest order first; for one event loop.

    The number is halved when the server refuses requests (429, 503), and grows by one after each successful round.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self.limit = self._most
        """How many requests may be in flight now."""
        self._flying = 0
        self._well = 0
        self._generation = 0
        self._waiting: list[tuple[Order, int, asyncio.Future[None]]] = []
        self._tie = itertools.count()

    def __call__(self, order: Order) -> Seat:
        """Return a slot for a request: ``async with flight(order) as seat``."""
        return Seat(self, order)

    async def _enter(self, order: Order) -> int:
        if self._flying >= self.limit or self._waiting:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (order, next(self._tie), future))
            self._serve()
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._leave()
                raise
        else:
            self._flying += 1
        return self._generation

    def _leave(self) -> None:
        self._flying -= 1
        self._serve()

    def _went_well(self, generation: int) -> None:
        # The success of a request from before a refusal says nothing about the lower limit.
        if self.limit < self._most and generation == self._generation:
            self._well += 1
            if self._well >= self.limit:
                self.limit, self._well = self.limit + 1, 0

    def _refused(self, generation: int) -> None:
        # Concurrent requests are refused together, and count as one refusal.
        if generation == self._generation:
            self._generation += 1
            self.limit, self._well = max(1, min(self.limit, self._flying) // 2), 0

    def _serve(self) -> None:
        while self._waiting and (self._flying < self.limit or self._waiting[0][2].done()):
            *_, future = heapq.heappop(self._waiting)
            if not future.done():
                self._flying += 1
                future.set_result(None)


class Seat:
    """The slot of one request."""

    __slots__ = ("_flight", "_generation", "_order")

    def __init__(self, flight: Flight, order: Order) -> None:
        self._flight = flight
        self._order = order
        self._generation = -1

    def refused(self) -> None:
        """Record that the server refused the request because there are too many."""
        self._flight._refused(self._generation)
        self._generation = -1

    async def __aenter__(self) -> Seat:
        self._generation = await self._flight._enter(self._order)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flight._went_well(self._generation)
        self._flight._leave()
