"""Lets tasks wait: for a condition, or for a part of a limited resource such as concurrent requests or memory."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Order = tuple[int, ...]
"""The position of something in the order of the read's rows: the file number first."""


class Turns(Generic[T]):
    """A queue of tasks that wait for parts of a resource, lowest order first; for one event loop.

    ``grant`` gives a task its part if enough is left, and returns whether it did. It is an argument and not an
    attribute, because that would create a reference cycle with the owner of the queue.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Order, int, T, asyncio.Future[None]]] = []
        self._tie = itertools.count()

    def __bool__(self) -> bool:
        """Return whether a task is waiting; a task that was cancelled while waiting may still count."""
        return bool(self._waiting)

    async def wait(self, order: Order, share: T, grant: Callable[[T], bool], take_back: Callable[[T], None]) -> None:
        """Wait until ``share`` is granted; ``take_back`` undoes a grant to a task that is cancelled before it
        resumes."""
        if not self._waiting and grant(share):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._tie), share, future))
        self.serve(grant)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                take_back(share)
            raise

    def serve(self, grant: Callable[[T], bool]) -> None:
        """Grant the waiting tasks their parts, in order, while enough is left."""
        while self._waiting:
            *_, share, future = self._waiting[0]
            if not future.done() and not grant(share):
                return
            heapq.heappop(self._waiting)
            if not future.done():  # otherwise the task was cancelled
                future.set_result(None)


async def until(news: asyncio.Event, holds: Callable[[], bool]) -> None:
    """Wait until ``holds()`` is true; its result may change whenever ``news`` is set."""
    while True:
        # Cleared before the check, because a thread sets the event only if it is not set.
        news.clear()
        if holds():
            return
        await news.wait()
