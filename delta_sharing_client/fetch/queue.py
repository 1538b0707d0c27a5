"""Calls in a queue, and the threads that do them, lowest order first; of data requests as many at a time as make the
whole faster, and no more.

A request first waits for its answer, which costs the line nothing, and then transfers, which does: transfers side by
side only delay the first file once the line is full. So the number of transfers is limited apart (``Pace``): while
answers are slow to come, many small requests fly at once. Large ones count from the start, as their transfers are long.
Tiny ones never count.

How many requests are in flight at all depends on what answers (``Flight``): few where answers come at once, more while
that raises the throughput where they take their time, and no more than a server takes that refuses some.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import os
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import pyarrow as pa

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.shortcuts import SHORTCUTS

T = TypeVar("T")
Order = tuple[int, ...]
# An interpreter that ends while a thread is inside of Arrow, be it to drop what it made, takes the process down with
# it (std::terminate).
_SECONDS_AT_EXIT = 10.0
_SECONDS_TO_LOOK_AGAIN = 0.02
_Task = tuple[Order, int, int, Callable[[], Any], "Future[Any]"]


class Workers:
    """At most ``most`` threads, started as they are needed; a context manager.

    They are daemons: a call that never returns must not keep the interpreter from ending. It waits for all but as many
    as ``held`` says that a system call may hold at the moment, all of them without it. No callback of a future
    runs while the lock is held.
    """

    def __init__(self, most: int, name: str, *, held: Callable[[], int] | None = None) -> None:
        self._held_now = held or self._alive
        _waited_for.add(self)
        self._most = max(1, most)
        self._name = name
        # The lock is taken by itself: Condition.__enter__ is Python code, and Ctrl-C within it leaves it locked.
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._waiting: list[_Task] = []
        self._tie = itertools.count()
        self._threads = 0
        self._idle = 0
        self._guests = 0
        self._closed = False

    def submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        """Run ``call``, about ``nbytes`` of work, on one of the threads. Once closed, the future is a cancelled one."""
        future: Future[T] = Future()
        if not self._closed:
            with self._lock:
                if not self._closed:
                    heapq.heappush(self._waiting, (order, next(self._tie), nbytes, call, future))
                    self._wake()
                    return future
        future.cancel()
        return future

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Let the calling thread, which is another pool's, do a call in the ``with`` block: whoever waits for the end
        of this pool waits for it as well. Raises ``CancelledError`` once closed."""
        with self._lock:
            if self._closed:
                raise CancelledError
            self._guests += 1
        try:
            yield
        finally:
            with self._lock:
                self._guests -= 1
                if self._closed:
                    self._news.notify_all()

    def stop(self) -> None:
        """Take nothing more, and cancel what has not started."""
        with self._lock:
            self._closed = True
            dropped, self._waiting = self._waiting, []
            self._news.notify_all()
        for *_, future in dropped:
            future.cancel()

    def join(self, deadline: float) -> None:
        """Wait until every thread has ended, but not beyond ``deadline`` (of ``time.monotonic``)."""
        with self._lock:
            while self._alive() and (left := deadline - time.monotonic()) > 0:
                self._news.wait(left)

    def let_finish(self, deadline: float) -> None:
        """Wait as the end of the interpreter does: until no thread is left but those that a system call holds, which
        end where they are."""
        with self._lock:
            while self._alive() > self._held_now() and (left := deadline - time.monotonic()) > 0:
                self._news.wait(min(left, _SECONDS_TO_LOOK_AGAIN))

    def _alive(self) -> int:
        return self._threads + self._guests

    def forget(self) -> None:
        # What waits stays: a parent's thread may have been in the midst of it, so that it cannot be taken apart.
        self._closed = True

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # === For a pool with rules of its own; all are called with the lock held ===

    def _pause(self) -> float | None:
        """Return 0 to start the next call, the seconds after which to look again, or ``None`` to wait for news."""
        return 0 if self._waiting else None

    def _began(self, nbytes: int) -> None:
        """A call of ``nbytes`` begins on this thread."""

    def _finished(self, nbytes: int) -> None:
        """It has ended."""

    def _is_surplus(self) -> bool:
        """Whether the thread whose call has ended is one too many."""
        return False

    # === Threads ===

    def _wake(self) -> None:
        """Let one more thread start the next call, or wait until it may; none where only the end of a call lets it
        start, as the thread of that call takes it."""
        if self._pause() is None:
            return
        if self._idle:
            self._news.notify()
        elif self._threads < self._most:
            self._threads += 1
            try:
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
            except RuntimeError:  # the system gives no more threads: those that are there will do
                self._threads -= 1
                if not self._threads:
                    raise

    def _work(self) -> None:
        ended: int | None = None
        while (task := self._next(ended)) is not None:
            _, _, ended, call, future = task
            # An idle thread must not keep what it made.
            del task
            if future.set_running_or_notify_cancel():
                _run(call, future)
            del call, future

    def _next(self, ended: int | None) -> _Task | None:
        """Take note that a call of ``ended`` bytes has ended on this thread, and return what it is to do then."""
        with self._lock:
            if ended is not None:
                self._finished(ended)
                if self._is_surplus():
                    self._threads -= 1
                    self._wake()
                    self._news.notify_all()
                    return None
            if not self._closed and self._pause() != 0:
                self._idle += 1
                while not self._closed and (pause := self._pause()) != 0:
                    self._news.wait(pause)
                self._idle -= 1
            if self._closed:
                self._threads -= 1
                self._news.notify_all()
                return None
            task = heapq.heappop(self._waiting)
            self._began(task[2])
            self._wake()
            return task


_waited_for: weakref.WeakSet[Workers] = weakref.WeakSet()


@atexit.register
def _let_finish() -> None:
    deadline = time.monotonic() + _SECONDS_AT_EXIT
    for workers in list(_waited_for):
        workers.stop()
        workers.let_finish(deadline)


if hasattr(os, "register_at_fork"):
    # The threads are the parent's, and so are their locks.
    os.register_at_fork(after_in_child=_waited_for.clear)


def forget_frames(error: BaseException) -> None:
    """Let go of what the frames of ``error`` and of its contexts hold: they form cycles with it, and it is kept.

    Ours say all that there is to say. Others keep their lines for whoever reports them, with nothing in them.
    """
    seen: list[BaseException] = [error]
    for each in seen:  # grows while it is walked
        seen += [e for e in (each.__cause__, each.__context__) if e is not None and not any(e is s for s in seen)]
        traceback.clear_frames(each.__traceback__)
        if each is not error or isinstance(error, (DeltaSharingError, CancelledError)):
            each.__traceback__ = None


def _run(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as error:
        del call
        forget_frames(error)
        future.set_exception(error)
        del future
    else:
        future.set_result(result)


# === Data requests ===

_FIRST_LIMIT = 4
_GROWTH = 1.15
# An answer that takes longer than this to begin is waiting for the network, not for its turn.
_PROMPT = 0.005
_SMALL = 2 * 1024 * 1024
# Over before it could be in anyone's way: a footer, a deletion vector.
_TINY = 64 * 1024
_MEASURED_SECONDS = 0.1
# An answer that begins sooner has no way to go.
_AT_ONCE = 0.01
# One that begins sooner is here before the processor is done with the one before it.
_NEXT_DOOR = 0.0025
# Requests in flight: at first, and where answers come at once; each step up, and what it must bring.
_FIRST_FLIGHT = 32
_PROMPT_FLIGHT = 8
_FLIGHT_STEP = 16
_FLIGHT_GROWTH = 1.15
_QUEUED = 2.0
# So many requests must go well, for each that is in flight, before a server is asked again for more than it took.
_PATIENCE = 64


class Downloads(Workers):
    """A pool of threads for data requests; ``held`` as of ``Workers``."""

    def __init__(
        self,
        max_concurrent: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        held: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(max_concurrent, "download", held=held)
        self._clock = clock
        # By thread: when its request began, and in which generation of the flight; then, that it is on the line.
        self._sent: dict[int, tuple[float, int]] = {}
        self._asked: dict[int, float] = {}
        self._transferring: set[int] = set()
        self._pace = Pace(clock)
        self._flight = Flight(max(1, max_concurrent), clock)
        self._flying = 0
        self._first_sent = float("inf")
        # Threads that do not fly although they run: they sleep before another try.
        self._landed: set[int] = set()
        self._returning = 0

    # === Called by a running call ===

    def answered(self) -> None:
        """Take note that its answer begins: from now on it takes part of the line."""
        me = threading.get_ident()
        with self._lock:
            if (sent := self._sent.pop(me, None)) is not None:
                unknown = self._flight.is_unknown
                self._flight.answered(self._clock() - sent[0])
                if unknown:
                    self._wake()
            if self._asked.pop(me, None) is not None:
                self._transferring.add(me)

    def refused(self) -> None:
        """Take note that the server refused its request because there are too many."""
        with self._lock:
            sent = self._sent.pop(threading.get_ident(), None)
            self._flight.refused(self._flight.generation if sent is None else sent[1])

    def takes_runs(self) -> bool:
        """Return whether a call may send several requests one after another: to wait for each costs next to nothing,
        and none was refused."""
        return self.stays() and not self._flight.refusals

    def goes_on(self) -> None:
        """Take note that it sends the next of several requests."""
        with self._lock:
            self._sent[threading.get_ident()] = (self._clock(), self._flight.generation)

    def stays(self) -> bool:
        """Return whether it may go on with what it fetched, as another thread would take as long to begin.

        Only where few threads are in use: an allocator keeps memory for each of them.
        """
        return self._flight.prompt and self._threads <= _PROMPT_FLIGHT

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Let it sleep in the block before it tries again: others fly meanwhile, and it takes its turn afterwards.

        Raises
        ------
        CancelledError
            The pool was closed.
        """
        me = threading.get_ident()
        with self._lock:
            self._land(me)
            self._wake()
        try:
            yield
        finally:
            with self._lock:
                self._returning += 1
                while not self._closed and self._flying >= self._flight.limit:
                    self._news.wait()
                self._returning -= 1
                self._landed.discard(me)
                self._flying += 1
                self._sent[me] = (self._clock(), self._flight.generation)
                if self._closed:
                    raise CancelledError
                self._wake()

    # === Rules, with the lock held ===

    def _began(self, nbytes: int) -> None:
        me, now = threading.get_ident(), self._clock()
        self._flying += 1
        self._sent[me] = (now, self._flight.generation)
        self._first_sent = min(self._first_sent, now)
        if nbytes > _SMALL:
            self._transferring.add(me)
        elif nbytes > _TINY:
            self._asked[me] = now

    def _finished(self, nbytes: int) -> None:
        me, saturated = threading.get_ident(), bool(self._waiting)
        self._land(me)
        self._landed.discard(me)
        self._flight.finished(nbytes, saturated=saturated)
        if nbytes > _TINY:
            self._pace.finished(nbytes, saturated=saturated)

    def _held(self, now: float) -> float:
        """For how many seconds no more fly: all at once would keep the first answer waiting, and hide how soon it
        comes."""
        unknown = self._flight.is_unknown and self._flying >= _PROMPT_FLIGHT
        return self._first_sent + _AT_ONCE - now if unknown else 0.0

    def _wake(self) -> None:
        # One thread is enough to wait for that.
        if self._threads <= self._flying or self._held(self._clock()) <= 0:
            super()._wake()

    def _is_surplus(self) -> bool:
        small = not self._waiting or self._waiting[0][2] <= _SMALL
        return small and self._flight.prompt and self._threads > self._flight.enough and not self._returning

    def _land(self, me: int) -> None:
        self._asked.pop(me, None)
        self._sent.pop(me, None)
        self._transferring.discard(me)
        if me not in self._landed:
            self._landed.add(me)
            self._flying -= 1
            if self._returning:
                self._news.notify_all()

    def _pause(self) -> float | None:
        if not self._waiting:
            return None
        nbytes, most = self._waiting[0][2], self._flight.limit
        # What is fetched and decoded in a moment keeps the interpreter busy: more threads would only wait for it.
        if nbytes <= _SMALL and self._flight.prompt:
            most = min(most, self._flight.enough)
        if self._flying + self._returning >= most:
            return None
        now = self._clock()
        if nbytes <= _SMALL and (held := self._held(now)) > 0:
            return held
        if nbytes <= _TINY:
            return 0
        prompt = [began for began in self._asked.values() if now - began < _PROMPT]
        if len(self._transferring) + len(prompt) < self._pace.limit:
            return 0
        return max(0.0005, min(prompt) + _PROMPT - now) if prompt else None


class Flight:
    """How many requests may be in flight: up to ``most``.

    More in steps while that raises the throughput, half as many when the server refuses one, and no more than it did
    not refuse of those that flew together. What it has taken before it is given again at once, and one more each time
    that many have gone well; where that was refused, much later.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.generation = 0
        """Of what is in flight: those that began before a refusal are not halved again by theirs."""
        self._most = most
        self._clock = clock
        self.limit = min(most, _FIRST_FLIGHT)
        """How many requests may be in flight now, at least one."""
        self._soonest = float("inf")
        self.refusals = False
        """Whether any request was refused."""
        self._taken = 0
        self._ceiling = most
        self._patience = _PATIENCE
        # The limit when the last refusals began, and how many there have been since.
        self._asked = most
        self._declined = 0
        self._begin_round(0.0)

    @property
    def prompt(self) -> bool:
        """Whether answers come at once, without a way to go."""
        return SHORTCUTS.adaptive_flight and self._soonest < _AT_ONCE

    @property
    def enough(self) -> int:
        """How many requests for small files keep the processor busy where answers are ``prompt``."""
        return min(_PROMPT_FLIGHT, 2 * pa.cpu_count()) if self._soonest < _NEXT_DOOR else _PROMPT_FLIGHT

    @property
    def is_unknown(self) -> bool:
        """Whether no answer has come yet, which would tell."""
        return SHORTCUTS.adaptive_flight and self._soonest == float("inf") and not self.refusals

    def answered(self, seconds: float) -> None:
        """Take note of an answer that began after so many ``seconds``."""
        self._soonest = min(self._soonest, seconds)
        self._waited += seconds
        self._answers += 1

    def refused(self, generation: int) -> None:
        """Take note of a refused request that began in ``generation``."""
        if generation != self.generation:
            if generation == self.generation - 1:
                # Each that began with the first one that was refused counts: the others are what the server takes.
                self._declined += 1
                self.limit = max(1, min(self.limit, self._asked - self._declined))
                self._taken = min(self._taken, self.limit)
            return
        self.generation += 1
        self.refusals = True
        limit = self.limit
        self._asked, self._declined = limit, 1
        self._ceiling = max(1, limit - 1)
        if 0 < self._taken < limit:
            self.limit = self._taken
        else:
            self.limit = max(1, limit // 2)
            self._taken = 0
        self._patience = min(2 * self._patience, 1 << 20)
        self._begin_round(0.0)

    def finished(self, nbytes: int, *, saturated: bool) -> None:
        """Take note that a request ended well; ``saturated``: others were waiting for their turn."""
        self._requests += 1
        self._full += saturated
        if self.refusals:
            self._recover()
        elif self.limit < self._most and not self.prompt and self._requests >= self.limit:
            elapsed = self._clock() - self._since
            rate = self._requests / elapsed if elapsed > 0 else 0.0
            # Where answers wait for each other at the server, more of them would only wait longer.
            queued = self._waited > _QUEUED * self._soonest * self._answers
            if self._full == self._requests and rate > _FLIGHT_GROWTH * self._rate and not queued:
                self.limit = min(self._most, self.limit + _FLIGHT_STEP)
                self._begin_round(rate)
            else:
                self._begin_round(self._rate)

    def _recover(self) -> None:
        if self._full < self.limit:
            return
        # So many were in flight, and none was refused.
        self._taken = max(self._taken, self.limit)
        if self.limit < self._ceiling:
            self.limit += 1
            self._begin_round(0.0)
        elif self._full >= self._patience * self.limit and self.limit < self._most:
            self._ceiling = self.limit = self.limit + 1
            self._begin_round(0.0)

    def _begin_round(self, rate: float) -> None:
        self._rate = rate
        self._since = self._clock()
        self._requests = self._full = self._answers = 0
        self._waited = 0.0


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
