"""Retries requests to servers and storage: decides how long to wait, and when to give up."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import logging
import math
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar, cast

from delta_sharing_client.errors import (
    DeltaSharingError,
    TransportError,
    add_advice,
)
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ReadOptions

NOT_IMPLEMENTED = 501
# All of 5xx, because gateways use statuses of their own (509, 520 to 530). A retry does not help if the server does not
# implement the request (501) or the version of HTTP (505).
RETRIED_STATUSES = frozenset({408, 425, 429, *range(500, 600)}) - {NOT_IMPLEMENTED, 505}
# Statuses for an expired signature: 403 from S3 and Azure, 400 from Google, 401 and 410 from proxies in front of them.
EXPIRED_STATUSES = frozenset({400, 401, 403, 410})

# The first retry is quick, in case an idle connection was closed; until the sixth, a server has time to restart.
_FIRST_WAIT = 0.1
_GROWTH = 3
_LONGEST_WAIT = 30.0
_LONGEST_RETRY_AFTER = 10.0**9
_SILENT_SECONDS = 2.0

# Users find the warnings in the log of this name (docs/reliability.md).
_log = logging.getLogger("delta_sharing_client.retry")

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")


class Transient(Exception):
    """A temporary failure. ``error`` is raised if the retries fail; ``after`` is the server's ``Retry-After`` in
    seconds. ``max_seconds`` limits the time for retries, if the options do not set a lower limit.
    """

    def __init__(self, error: DeltaSharingError, after: float | None = None, max_seconds: float = math.inf) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after
        self.max_seconds = max_seconds


class Deadline:
    """The deadline of one operation with all its requests, attempts and waits, ``seconds`` from now; ``None`` for no
    limit."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or the remaining time if that is less. The result is never 0, which would mean no
        limit."""
        return max(0.001, min(seconds, self.left()))

    def check(self, doing: str, table: str | None = None) -> None:
        """Raise ``TransportError`` after the deadline; ``doing`` describes the operation ("Listing the shares")."""
        if self.left() <= 0:
            raise TransportError(
                f"{doing} failed: it took longer than the {self.seconds:g} seconds of 'total_timeout'; increase it "
                "in ReadOptions, or request less at once.",
                table=table,
            )


class Tries:
    """The attempts of one request, created when the first one starts. Threads and coroutines must not share one.

    Waits grow, and are random so that clients do not all retry at the same time. No wait is shorter than
    ``Retry-After``; if that exceeds the limit, there is no retry, because the server forbids an earlier one.

    ``options`` limit the attempts (``max_attempts``, ``max_retry_seconds``), and so does the ``deadline`` of the
    operation. ``sleep`` waits for a number of seconds, by default ``time.sleep``; coroutines do not use it. ``tell`` is
    called with the reason before each wait that lasts until two seconds or more after the start.
    """

    def __init__(
        self,
        options: ReadOptions,
        deadline: Deadline | None = None,
        *,
        sleep: Callable[[float], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._options = options
        self._deadline = deadline or Deadline(None)
        self._sleep = sleep or time.sleep
        self._tell = tell
        self._began = time.monotonic()

    def call(self, attempt: Callable[[], T]) -> T:
        """Return the result of ``attempt()``, which is repeated while it raises ``Transient``.

        Raises the errors of ``failed``.
        """
        while True:
            try:
                return attempt()
            except Transient as failure:
                broken = failure
            self.failed(broken)

    def failed(self, failure: Transient) -> None:
        """Wait until the next attempt, or raise the error of ``failure`` if there are no more attempts."""
        self._sleep(self._wait(failure))

    async def failed_async(self, failure: Transient) -> None:
        """Like ``failed``, for a coroutine."""
        await asyncio.sleep(self._wait(failure))

    @lazy
    def _state(self) -> tenacity.RetryCallState:
        # Imported only when a request fails, which is rare.
        import tenacity

        limits = tenacity.stop_after_attempt(self._options.max_attempts) | tenacity.stop_before_delay(
            self._options.max_retry_seconds
        )
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            wait=lambda state: wait_before(state.attempt_number + 1, _failure(state).after),
            stop=lambda state: limits(state) or self._is_late(state) or _is_hopeless(state),
            before_sleep=self._say,
            retry_error_callback=self._give_up,
        )
        state = tenacity.RetryCallState(retrying, None, (), {})
        state.start_time = self._began
        return state

    def _wait(self, failure: Transient) -> float:
        """Return the seconds until the next attempt, or raise the error of ``failure`` if there are no more
        attempts."""
        # The failure is kept until the last attempt; its traceback would keep frames, memory and sockets alive.
        failure.__traceback__ = failure.__context__ = None
        try:
            state = self._state
        except OSError:  # tenacity cannot be imported, because no file descriptor is left
            raise failure.error from None
        # tenacity stores some counts per thread, and each attempt may be on a different thread.
        state.retry_object.begin()
        state.set_exception((Transient, failure, None))
        seconds = cast(float, state.retry_object.iter(state))
        state.prepare_for_next_attempt()
        return seconds

    def _is_late(self, state: tenacity.RetryCallState) -> bool:
        return state.upcoming_sleep >= self._deadline.left()

    def _say(self, state: tenacity.RetryCallState) -> None:
        failure, wait = _failure(state), state.upcoming_sleep
        silent = (state.seconds_since_start or 0.0) + wait >= _SILENT_SECONDS
        _log.log(logging.WARNING if silent else logging.DEBUG, "%s Trying again in %.1f s.", failure, wait)
        if silent and self._tell is not None:
            self._tell(f"{failure} Trying again in {wait:.0f} s.")

    def _give_up(self, state: tenacity.RetryCallState) -> NoReturn:
        failure, attempts = _failure(state), state.attempt_number
        error = failure.error
        if attempts > 1:
            add_advice(error, f"Tried {attempts} times.")
        if failure.after is not None and failure.after > self._options.max_retry_seconds:
            add_advice(error, f"The server asks to wait {failure.after:.0f} s; try again then.")
        elif self._is_late(state):
            add_advice(
                error, f"The {self._deadline.seconds:g} seconds of 'total_timeout' leave no time for another attempt."
            )
        raise error


def _is_hopeless(state: tenacity.RetryCallState) -> bool:
    return (state.seconds_since_start or 0.0) + state.upcoming_sleep > _failure(state).max_seconds


def _failure(state: tenacity.RetryCallState) -> Transient:
    assert state.outcome is not None
    return cast(Transient, state.outcome.exception())


def wait_before(attempt: int, after: float | None = None) -> float:
    """Return the seconds to wait before attempt number ``attempt`` (2 is the first retry)."""
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * _GROWTH ** min(attempt - 2, 20))
    # Wait at least half of it, because a very short wait does not help an overloaded server.
    return max(random.uniform(longest / 2, longest), after or 0.0)


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header requests (RFC 9110, 10.2.3: a number or a date), or ``None``."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_RETRY_AFTER)
    when = http_date(text)
    return None if when is None else max(0.0, when - time.time())


def http_date(text: str | None) -> float | None:
    """Return a header's date (RFC 9110, 5.6.7) as seconds since the epoch, or ``None`` if it is not a date."""
    try:
        when = email.utils.parsedate_to_datetime(text or "")
        if when.tzinfo is None:
            # The date has "-0000" or no zone; HTTP dates are always in UTC.
            when = when.replace(tzinfo=dt.timezone.utc)
        return when.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
