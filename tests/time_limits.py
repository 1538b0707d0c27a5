"""Limits of time in tests: seconds of an idle machine, of which a slow or busy one gets more.

::

    clock = Stopwatch()
    ...
    assert clock.within(SOON)

A limit tells what ends soon from what waits for a time-out or works for ever, so it is far above what is needed. If it
is exceeded, a known piece of work is measured, and the limit grows by what the machine takes for that.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable

# For what ends soon, and for how long a test waits for what would never happen.
SOON = 5.0
HANGS = 120.0
# The known piece of work, and its seconds on an idle machine with two cores of 2024.
_BLOCKS, _TURNS, _REFERENCE = 300, 2000, 0.06
_TRIES = 3


class Stopwatch:
    """Time since it was made, by ``now``: that of the wall, or of the processor (``time.process_time``)."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begun = now()
        self.took = 0.0
        self.allowed = 0.0

    def __repr__(self) -> str:
        return f"Stopwatch(took={self.took:.2f}, allowed={self.allowed:.2f})"

    @property
    def seconds(self) -> float:
        """The seconds until now."""
        return self._now() - self._begun

    def within(self, seconds: float) -> bool:
        """Whether an idle machine would have taken less than ``seconds`` until now."""
        self.took, self.allowed = self.seconds, seconds
        for _ in range(_TRIES):
            if self.took < self.allowed:
                return True
            # Load comes and goes: the highest of a few.
            self.allowed = max(self.allowed, seconds * slowness(self._now))
        return self.took < self.allowed


def slowness(now: Callable[[], float] = time.monotonic) -> float:
    """Return how many times longer this machine takes for a known piece of work than an idle one, at least 1."""
    begun = now()
    _work()
    return max(1.0, (now() - begun) / _REFERENCE)


def _work() -> None:
    # Computing, and handing over between threads, which a busy machine delays most.
    block = bytes(65_536)
    for _ in range(_BLOCKS):
        hashlib.sha256(block).digest()
    there: queue.Queue[int] = queue.Queue()
    back: queue.Queue[int] = queue.Queue()

    def answer() -> None:
        for _ in range(_TURNS):
            back.put(there.get())

    thread = threading.Thread(target=answer)
    thread.start()
    for number in range(_TURNS):
        there.put(number)
        back.get()
    thread.join()
