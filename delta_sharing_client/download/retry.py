"""When a data request is tried again, and after how long: a pure decision."""

from __future__ import annotations

import dataclasses
import email.utils
import random
import time
from collections.abc import Callable

from delta_sharing_client.options import ReadOptions

RETRIED_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))
# What storages answer once a signature has expired: S3 and Azure 403, Google 400, proxies before them 401 and 410.
EXPIRED_STATUSES = frozenset((400, 401, 403, 410))

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """At most ``max_attempts`` tries, none later than ``max_seconds`` after the first; waits double, with jitter."""

    max_attempts: int
    max_seconds: float
    jitter: Callable[[], float] = random.random

    @classmethod
    def from_options(cls, options: ReadOptions) -> RetryPolicy:
        return cls(max_attempts=options.max_attempts, max_seconds=options.max_retry_seconds)

    def wait(self, attempt: int, elapsed: float, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait after failed try number ``attempt`` (from 1), or ``None`` to give up.

        ``elapsed`` is the time since the first try; a server's ``retry_after`` is obeyed if it fits into the limit.
        """
        if attempt >= self.max_attempts:
            return None
        backoff = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (attempt - 1))
        pause = backoff * (0.5 + 0.5 * self.jitter())
        if retry_after is not None:
            pause = max(pause, retry_after)
        return pause if elapsed + pause <= self.max_seconds else None


def parse_retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3), ``None`` if it says nothing."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now())
    except (TypeError, ValueError, OverflowError):
        return None
