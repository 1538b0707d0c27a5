"""How long an operation may take as a whole, and how slow an answer may be (``ReadOptions.total_timeout``,
``min_bytes_per_second``)."""

from __future__ import annotations

import time

from delta_sharing_client.errors import TransportError
from delta_sharing_client.retry import Transient


class Deadline:
    """The end of one operation, whatever requests, tries and waits it consists of; ``seconds`` of ``None`` is none."""

    __slots__ = ("_ends_at", "_seconds")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._ends_at = None if seconds is None else time.monotonic() + seconds

    @property
    def is_set(self) -> bool:
        """Whether there is an end."""
        return self._ends_at is not None

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or what is left of the operation if that is less (never 0, which would mean no limit)."""
        return seconds if self._ends_at is None else max(0.001, min(seconds, self._ends_at - time.monotonic()))

    def check(self, doing: str, table: str | None = None) -> None:
        """Raise ``TransportError`` once the time is over; ``doing`` says what took it ("Listing the shares")."""
        if self._ends_at is not None and time.monotonic() >= self._ends_at:
            raise TransportError(
                f"{doing} failed: it is not done within the {self._seconds:g} seconds of 'total_timeout'; pass "
                "ReadOptions with more of them, or ask for less at once.",
                table=table,
            )


class Pace:
    """Watches that an answer brings at least so many bytes a second, taken over some seconds; 0 is no limit.

    Only the time spent waiting for the answer counts, not that of who works on it meanwhile.
    """

    __slots__ = ("_bytes", "_least", "_seconds", "_waited")

    def __init__(self, bytes_per_second: float, seconds: float) -> None:
        self._least = bytes_per_second * seconds
        self._seconds = seconds
        self._bytes = 0
        self._waited = 0.0

    def got(self, count: int, waited: float, doing: str, table: str | None = None) -> None:
        """Count bytes that came after ``waited`` seconds; raise ``Transient`` where they were too few for the time."""
        self._bytes += count
        self._waited += waited
        if self._bytes >= self._least:
            self._bytes, self._waited = 0, 0.0
        elif self._waited > self._seconds:
            raise Transient(
                TransportError(
                    f"{doing} failed: {self._bytes} bytes in {self._seconds:g} seconds are fewer than "
                    "'min_bytes_per_second' allows.",
                    table=table,
                )
            )
