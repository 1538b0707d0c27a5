"""Time limits in tests, in seconds of an idle machine; a slow or busy machine gets more.

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

# For operations that end soon, and for how long a test waits for something that should not happen.
SOON = 5.0
HANGS = 120.0
# The reference task, and its seconds on an idle machine with two cores of 2024.
_BLOCKS, _TURNS, _REFERENCE = 300, 2000, 0.06
_TRIES = 3


class Stopwatch:
    """The time since its creation by ``now``: wall time, or processor time (``time.process_time``)."""

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
        """Whether an idle machine would have needed less than ``seconds`` until now."""
        self.took, self.allowed = self.seconds, seconds
        for _ in range(_TRIES):
            if self.took < self.allowed:
                return True
            # The load varies: the highest of a few measurements.
            self.allowed = max(self.allowed, seconds * slowness(self._now))
        return self.took < self.allowed


def slowness(now: Callable[[], float] = time.monotonic) -> float:
    """Return how many times longer this machine takes for the reference task than an idle one, at least 1."""
    begun = now()
    _work()
    return max(1.0, (now() - begun) / _REFERENCE)


def _work() -> None:
    # Computation and hand-over between threads, which a busy machine delays most.
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
