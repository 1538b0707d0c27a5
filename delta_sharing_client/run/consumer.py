"""The consumer of an iterator that waits for the network: one thread or coroutine at a time, whose wait others end."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import os
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.waiting import until
from delta_sharing_client.run import loop

T = TypeVar("T")


class Bell:
    """Wakes everything that waits for a condition: threads, and coroutines of any event loop."""

    def __init__(self) -> None:
        self._wakes: list[Callable[[], object]] = []

    def ring(self) -> None:
        """Make all waiters check their conditions, from any thread. Takes no lock."""
        for wake in list(self._wakes):
            wake()

    def wait(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until ``holds()`` is true, or ``seconds`` have passed."""
        # A queue and not an Event, because Ctrl-C during Event.wait may leave its lock held.
        woken: queue.SimpleQueue[None] = queue.SimpleQueue()
        end = None if seconds is None else time.monotonic() + seconds
        with self._waking(lambda: woken.put(None)):
            while not holds() and (end is None or time.monotonic() < end):
                left = loop.LISTEN_SECONDS if end is None else end - time.monotonic()
                with contextlib.suppress(queue.Empty):
                    woken.get(timeout=min(loop.LISTEN_SECONDS, max(0.0, left)))

    async def wait_async(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Like ``wait``, for a coroutine."""
        mine, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the waiter's loop has ended
                mine.call_soon_threadsafe(news.set)

        with self._waking(wake), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await until(news, holds)

    @contextlib.contextmanager
    def _waking(self, wake: Callable[[], object]) -> Iterator[None]:
        self._wakes.append(wake)
        try:
            yield
        finally:
            self._wakes.remove(wake)


class Consumer:
    """The consumer of one iterator, which ``of`` names for messages.

    Only one thread or coroutine may be in ``turn()`` at a time; a second one gets a ``UsageError`` at once. ``close``,
    from any thread, ends the wait of the first one, also with a ``UsageError``.
    """

    def __init__(self, of: str, table: str | None = None) -> None:
        self._of = of
        self.table = table
        self._taking = _thread.allocate_lock()
        self._process = os.getpid()
        self.bell = Bell()
        self.is_closed = False

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process, and not its parent, made the iterator."""
        return self._process == os.getpid()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Exclude other consumers from the block. Raises ``UsageError`` if there is one, or after ``close``."""
        if not self.is_of_this_process:
            raise self._refusal("it was started by another process; start it again in this one")
        self.check()
        if not self._taking.acquire(False):
            raise self._refusal("another thread or task waits for its next item; take the items one after the other")
        try:
            yield
        finally:
            self._taking.release()

    def check(self) -> None:
        """Raise ``UsageError`` if the iterator was closed."""
        if self.is_closed:
            raise self._refusal("it was closed; start a new one")

    def close(self) -> None:
        """End all waits, from any thread, and refuse later ones. Takes no lock, so that finalizers may call this."""
        self.is_closed = True
        self.bell.ring()

    def call(self, call: Callable[[], T]) -> T:
        """Return ``call()``, which waits for the network. After ``close`` it continues on its thread, and its result is
        dropped."""
        return self.result(loop.in_thread(call))

    def result(self, future: Future[T]) -> T:
        """Return the result of ``future``."""
        future.add_done_callback(self._ring)
        self.bell.wait(self._is_over(future))
        try:
            self.check()
            return future.result()
        finally:
            del future  # an error of the call refers to this frame, and the future to the error

    async def call_async(self, call: Callable[[], T]) -> T:
        """Like ``call``, for a coroutine."""
        loop.check_caller()
        return await self.result_async(loop.in_thread(call))

    async def result_async(self, future: Future[T]) -> T:
        """Like ``result``, for a coroutine."""
        future.add_done_callback(self._ring)
        await self.bell.wait_async(self._is_over(future))
        try:
            self.check()
            return future.result()
        finally:
            del future  # as in ``result``

    def pause(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        self.bell.wait(lambda: self.is_closed, seconds)
        self.check()

    async def pause_async(self, seconds: float) -> None:
        """Like ``pause``, for a coroutine."""
        await self.bell.wait_async(lambda: self.is_closed, seconds)
        self.check()

    def _is_over(self, future: Future[T]) -> Callable[[], bool]:
        return lambda: self.is_closed or future.done()

    def _ring(self, _: object) -> None:
        self.bell.ring()

    def _refusal(self, why: str) -> UsageError:
        return UsageError(f"{self._of} cannot continue: {why}.", table=self.table)
