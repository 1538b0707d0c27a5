"""The end of a read, at any moment and from any thread: it happens once, apart, and within a deadline.

A read may end where no lock may be waited for: in a finalizer that runs on a thread which holds that very lock, or
while Ctrl-C is being handled. So a thread of its own does the work, and whoever closes at most waits for it.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import queue
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

SECONDS = 0.9
"""Longest wait for what a read has started; a thread that a system call holds for longer ends when that returns."""

# A signal that comes between the last look for one and the wait itself is heard when the wait ends: so it does, often.
_HEARING = 0.25


class Closable(Protocol):
    """What a read has started: ``stop`` ends it, ``join`` waits for that, both on the closing thread.

    ``forget`` is called instead in a process that was forked off meanwhile: the threads do not exist there, locks may
    be held for ever and must not be waited for, and open sockets are the parent's.
    """

    def stop(self) -> None: ...

    def join(self, deadline: float) -> None: ...

    def forget(self) -> None: ...


class Closing:
    """Ends ``parts`` in order, once: by ``close``, or when the interpreter ends.

    Then it calls what it was given to ``keep``, and so keeps alive what must not end in a garbage collection.
    """

    def __init__(self, parts: tuple[Closable, ...]) -> None:
        self._begun = False
        # Whoever waits for something listens here: both it and the end ring. A queue in C, which a signal interrupts.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._parts = parts
        self._kept: list[Callable[[], None]] = []
        # Whoever takes it does the work.
        self._token: list[None] = [None]
        # A lock and not an Event: an exception between two steps of Event.wait, as of Ctrl-C, may leave it locked.
        self._ended = _thread.allocate_lock()
        self._ended.acquire()
        _open.add(self)

    def keep(self, call: Callable[[], None]) -> None:
        """Have ``call`` called at the end, when nothing runs any more, or now if that is over; a ``ValueError`` of it
        is nothing."""
        self._kept.append(call)
        if self not in _open:
            self._call_kept()

    def ring(self) -> None:
        """Wake whoever waits here, from any thread."""
        self._bell.put(None)

    def wait(self, seconds: float | None = None) -> None:
        """Wait until somebody rings, or so long; ``CancelledError`` if the end comes first. For one thread."""
        until = None if seconds is None else time.monotonic() + seconds
        heard = False
        while not heard and not self._begun and (until is None or time.monotonic() < until):
            heard = self._hear(_HEARING if until is None else min(_HEARING, max(0.0, until - time.monotonic())))
        if self._begun:
            raise CancelledError

    def result(
        self, future: Future[T], meanwhile: Callable[[], None] = lambda: None, news: Future[Any] | None = None
    ) -> T:
        """Return the result of ``future``, waiting for it; ``CancelledError`` if the end comes first. For one thread.

        What is stuck in a system call completes no future, but the end of the read is heard. ``meanwhile`` is called
        after every ring, and a few times a second, as long as there is something to wait for. Until ``news`` are done,
        the end of ``future`` rings for nobody, and is seen with the next ring.
        """
        if not future.done():
            bell = self._bell
            awaited: Future[Any] = future if news is None or news.done() else news
            awaited.add_done_callback(lambda _: bell.put(None))
            while not future.done():
                if self._begun:
                    raise CancelledError
                if awaited is not future and awaited.done():
                    awaited = future
                    awaited.add_done_callback(lambda _: bell.put(None))
                self._hear(_HEARING)
                if not future.done():
                    meanwhile()
        return future.result()

    def _hear(self, seconds: float) -> bool:
        try:
            self._bell.get(timeout=seconds)
        except queue.Empty:
            return False
        return True

    def close(self, *, wait: bool = True) -> None:
        """Begin the end, and ``wait`` for it no longer than a second. Without waiting it takes no lock at all."""
        if self not in _open:
            return
        if self._take():
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                # No more threads, or the interpreter is ending, which closes what is still open.
                if not wait:
                    self._token.append(None)
                    return
                self._run()
        if wait:
            self._wait_for_end(SECONDS + 0.1)

    def _wait_for_end(self, seconds: float) -> None:
        if self._ended.acquire(timeout=seconds):
            self._ended.release()

    def _take(self) -> bool:
        try:
            self._token.pop()
        except IndexError:
            return False
        return True

    def _run(self) -> None:
        try:
            self._stop()
            self._join(time.monotonic() + SECONDS)
        finally:
            self._finish()

    def _begin(self) -> None:
        self._begun = True
        self._bell.put(None)

    def _stop(self) -> None:
        self._begin()
        for part in self._parts:
            part.stop()

    def _join(self, deadline: float) -> None:
        for part in self._parts:
            part.join(deadline)

    def _finish(self) -> None:
        try:
            self._call_kept()
            _open.discard(self)
            # What was given meanwhile, by a thread that saw it open.
            self._call_kept()
        finally:
            _open.discard(self)
            self._ended.release()

    def _call_kept(self) -> None:
        while self._kept:
            try:
                call = self._kept.pop(0)
            except IndexError:
                return  # another thread took it
            # A generator that is running cannot be closed; its thread has been told, and ends it.
            with contextlib.suppress(ValueError):
                call()

    def _forget(self) -> None:
        self._begin()
        for part in self._parts:
            part.forget()


_open: set[Closing] = set()
# What the parent was reading at the fork is never taken apart in the child.
_parents: list[Closing] = []


@atexit.register
def _close_all() -> None:
    # Threads that go on while the interpreter is taken down may crash it: also those that another thread is ending.
    every = list(_open)
    mine = [closing for closing in every if closing._take()]
    for closing in mine:
        closing._stop()
    deadline = time.monotonic() + SECONDS
    for closing in mine:
        closing._join(deadline)
        closing._finish()
    for closing in every:
        closing._wait_for_end(max(0.0, deadline - time.monotonic()))


def _after_fork() -> None:
    _parents.extend(_open)
    _open.clear()
    for closing in _parents:
        with contextlib.suppress(Exception):
            closing._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
