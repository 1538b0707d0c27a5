"""A limit on the bytes per second of all answers together."""

from __future__ import annotations

import asyncio
import time


class Throttle:
    """Hands out permission to send; used from one event loop.

    Each piece gets the next stretch of one shared time line, so concurrent answers take turns and their sum, not each
    of them, keeps to the rate.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    @property
    def piece(self) -> int:
        """Bytes to send at once: about a hundredth of a second's worth."""
        return max(1024, min(256 * 1024, int(self._rate / 100)))

    async def wait(self, count: int) -> None:
        """Return when ``count`` more bytes may be sent."""
        now = time.monotonic()
        # A server that was idle may not save up time: the rate holds for every stretch, not on average only.
        self._free_at = max(self._free_at, now) + count / self._rate
        delay = self._free_at - now
        if delay > 0:
            await asyncio.sleep(delay)
