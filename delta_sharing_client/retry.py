"""Retries of requests to servers and storage: how long to wait, and when to give up."""

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

from delta_sharing_client.errors import DeltaSharingError, TransportError
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ReadOptions

NOT_IMPLEMENTED = 501
# Gateways have their own statuses (509, 520 to 530). What a server does not implement (501, and 505 for a version of
# HTTP) it does not implement a minute later.
RETRIED_STATUSES = frozenset({408, 425, 429, *range(500, 600)}) - {NOT_IMPLEMENTED, 505}
# Statuses for an expired signature: S3 and Azure 403, Google 400, proxies in front of them 401 and 410.
EXPIRED_STATUSES = frozenset({400, 401, 403, 410})

# The first retry is quick, for a connection that was closed while idle; by the sixth, a server has time to restart.
_FIRST_WAIT = 0.1
_GROWTH = 3
_LONGEST_WAIT = 30.0
_LONGEST_RETRY_AFTER = 10.0**9
_SILENT_SECONDS = 2.0

_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")


class Transient(Exception):
    """A temporary failure. ``error`` is raised if the retries fail, ``after`` is the server's ``Retry-After`` in
    seconds. ``max_seconds`` limits the seconds of the retries, if that is less than the options do.
    """

    def __init__(self, error: DeltaSharingError, after: float | None = None, max_seconds: float = math.inf) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after
        self.max_seconds = max_seconds


class Deadline:
    """The end of one operation with all its requests, attempts and waits; ``seconds`` of ``None``: no limit."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or the remaining time if that is less (never 0, which would mean no limit)."""
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
    """The attempts of one request, after the first one started; not for concurrent threads or coroutines.

    Waits grow and are random, so that clients do not retry at the same time. ``Retry-After`` is the shortest wait; if
    it exceeds the limit, there is no retry, because an earlier one would violate the server's rule.

    ``options`` limit the attempts (``max_attempts``, ``max_retry_seconds``), and so does the ``deadline`` of their
    operation. ``sleep`` waits for some seconds, by default ``time.sleep``; not for coroutines. ``tell`` is called with
    the reason before a wait, once nothing has been reported for two seconds.
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
        """Return ``attempt()``, repeated while it raises ``Transient``; raises as ``failed``."""
        while True:
            try:
                return attempt()
            except Transient as failure:
                broken = failure
            self.failed(broken)

    def failed(self, failure: Transient) -> None:
        """Wait until the next attempt, or raise the error of ``failure`` if there is none."""
        self._sleep(self._wait(failure))

    async def failed_async(self, failure: Transient) -> None:
        """Like ``failed``, for a coroutine."""
        await asyncio.sleep(self._wait(failure))

    @lazy
    def _state(self) -> tenacity.RetryCallState:
        # Imported when something fails, which is rare.
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
        """Return the seconds until the next attempt, or raise the error of ``failure`` if there is none."""
        # It is kept until the last attempt, and would keep frames, memory and sockets.
        failure.__traceback__ = failure.__context__ = None
        try:
            state = self._state
        except OSError:  # of its import: there is no descriptor left for it
            raise failure.error from None
        # tenacity stores some counts per thread, and this may be a different thread.
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
            error.add(f"Tried {attempts} times.")
        if failure.after is not None and failure.after > self._options.max_retry_seconds:
            error.add(f"The server asks to wait {failure.after:.0f} s; try again then.")
        elif self._is_late(state):
            error.add(f"The {self._deadline.seconds:g} seconds of 'total_timeout' leave no time for another attempt.")
        raise error


def _is_hopeless(state: tenacity.RetryCallState) -> bool:
    return (state.seconds_since_start or 0.0) + state.upcoming_sleep > _failure(state).max_seconds


def _failure(state: tenacity.RetryCallState) -> Transient:
    assert state.outcome is not None
    return cast(Transient, state.outcome.exception())


def wait_before(attempt: int, after: float | None = None) -> float:
    """Return the seconds to wait before attempt number ``attempt`` (2 is the first retry)."""
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * _GROWTH ** min(attempt - 2, 20))
    # At least half of it: a very short wait does not help an overloaded server.
    return max(random.uniform(longest / 2, longest), after or 0.0)


def retry_after(value: str | None) -> float | None:
    """Return the seconds in a ``Retry-After`` header (RFC 9110, 10.2.3: seconds or a date), if any."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_RETRY_AFTER)
    when = http_date(text)
    return None if when is None else max(0.0, when - time.time())


def http_date(text: str | None) -> float | None:
    """Return the date in a header in seconds since the epoch (RFC 9110, 5.6.7), or ``None``."""
    try:
        when = email.utils.parsedate_to_datetime(text or "")
        if when.tzinfo is None:
            # "-0000" and dates without a zone: HTTP dates are in UTC, whatever the local zone.
            when = when.replace(tzinfo=dt.timezone.utc)
        return when.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
