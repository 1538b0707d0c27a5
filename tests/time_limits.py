"""Time limits in tests, in seconds of an idle machine; a slow or busy machine gets more time.

::

    clock = Stopwatch()
    ...
    assert clock.within(SOON)

A limit distinguishes a fast operation from one that times out or never ends, so it is far above the expected time.
If it is exceeded, a reference task is measured, and the limit grows with its time on this machine.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable

# The limit for fast operations, and the time after which a test gives up waiting.
SOON = 5.0
HANGS = 120.0
# The size of the reference task, and the seconds that it takes on an idle machine with two cores from 2024.
_BLOCKS, _TURNS, _REFERENCE = 300, 2000, 0.06
_TRIES = 3


class Stopwatch:
    """Measures the time since its creation with ``now``: wall time, or processor time (``time.process_time``)."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._begun = now()
        self.took = 0.0
        self.allowed = 0.0

    def __repr__(self) -> str:
        return f"Stopwatch(took={self.took:.2f}, allowed={self.allowed:.2f})"

    @property
    def seconds(self) -> float:
        """The seconds since the creation."""
        return self._now() - self._begun

    def within(self, seconds: float) -> bool:
        """Whether less than ``seconds`` of an idle machine have passed since the creation."""
        self.took, self.allowed = self.seconds, seconds
        for _ in range(_TRIES):
            if self.took < self.allowed:
                return True
            # The load varies, so the highest of a few measurements counts.
            self.allowed = max(self.allowed, seconds * slowness(self._now))
        return self.took < self.allowed


def slowness(now: Callable[[], float] = time.monotonic) -> float:
    """Return how many times as long as an idle machine this one takes for the reference task; at least 1."""
    begun = now()
    _work()
    return max(1.0, (now() - begun) / _REFERENCE)


def _work() -> None:
    # Compute, and pass items between threads, because a busy machine delays this most.
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
