"""Limits the bytes per second of all responses together."""

from __future__ import annotations

import asyncio
import time


class Throttle:
    """Limits the rate of sending. Use it in one event loop only.

    Each piece gets the next time slot of a common schedule, so concurrent responses take turns and share the rate.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    @property
    def piece(self) -> int:
        """The number of bytes to send at once, which take about 10 ms."""
        return max(1024, min(256 * 1024, int(self._rate / 100)))

    async def wait(self, count: int) -> None:
        """Return when ``count`` more bytes may be sent."""
        now = time.monotonic()
        # Idle time is not credited, because the rate is a limit at any time, not only on average.
        self._free_at = max(self._free_at, now) + count / self._rate
        delay = self._free_at - now
        if delay > 0:
            await asyncio.sleep(delay)
