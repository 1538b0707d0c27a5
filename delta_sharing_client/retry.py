"""Trying a request again: how long to wait, and when to give up; for REST and for data."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import functools
import logging
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from delta_sharing_client.errors import DeltaSharingError, TransportError
from delta_sharing_client.options import ReadOptions

# Gateways have statuses of their own (509, 520 to 530). What is not implemented (501) will not be in a moment.
RETRIED_STATUSES = frozenset({408, 425, 429, *range(500, 600)} - {501})
# What storages answer once a signature has expired: S3 and Azure 403, Google 400, proxies before them 401 and 410.
EXPIRED_STATUSES = frozenset({400, 401, 403, 410})

# The first repetition is quick, for a connection that was closed while idle; the sixth gives a server time to restart.
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
    """A failure that may pass; ``error`` is what the caller sees if it does not, ``after`` the server's wish in
    seconds."""

    def __init__(self, error: DeltaSharingError, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after


class Deadline:
    """The end of one operation, whatever requests, tries and waits it consists of; ``seconds`` of ``None`` is none."""

    __slots__ = ("_end", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or what is left of the operation if that is less (never 0, which would mean no limit)."""
        return max(0.001, min(seconds, self.left()))

    def check(self, doing: str, table: str | None = None) -> None:
        """Raise ``TransportError`` once the time is over; ``doing`` says what took it ("Listing the shares")."""
        if self.left() <= 0:
            raise TransportError(
                f"{doing} failed: it is not done within the {self.seconds:g} seconds of 'total_timeout'; pass "
                "ReadOptions with more of them, or ask for less at once.",
                table=table,
            )


class _Policy:
    """When tenacity tries again, after how long, what it says of it, and what is raised in the end.

    Waits grow and are random, so that clients spread. ``Retry-After`` is the least wait; where it does not fit into the
    limit, there is no further try, because an earlier one would break the server's rule.

    Parameters
    ----------
    options, deadline:
        The limits of these tries (``max_attempts``, ``max_retry_seconds``), and that of the operation that they are
        part of.
    tell:
        Called with the reason before each wait, once the caller has been left without a word for two seconds.
    """

    def __init__(
        self,
        options: ReadOptions,
        deadline: Deadline | None = None,
        *,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._options = options
        self._deadline = deadline or Deadline(None)
        self._tell = tell
        self._began = time.monotonic()
        self._attempt: tenacity.AttemptManager | None = None

    def _arguments(self) -> dict[str, Any]:
        # Imported when something fails: nearly nothing does.
        import tenacity

        options = self._options
        attempts = tenacity.stop_after_attempt(options.max_attempts)
        limits = attempts | tenacity.stop_before_delay(options.max_retry_seconds)
        return {
            "retry": tenacity.retry_if_exception_type(Transient),
            "wait": lambda state: wait_before(state.attempt_number + 1, _failure(state).after),
            "stop": lambda state: limits(state) or self._is_late(state),
            "before_sleep": self._say,
            "retry_error_callback": self._give_up,
        }

    def _take(self, attempt: tenacity.AttemptManager) -> None:
        if self._attempt is None:
            attempt.retry_state.start_time = self._began
        self._attempt = attempt

    def _fail(self, failure: Transient) -> None:
        assert self._attempt is not None
        with self._attempt:
            raise failure
        # It is kept until the last try has ended, and would keep frames, and with them memory and sockets.
        failure.__traceback__ = failure.__context__ = None

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
            error.add(f"The {self._deadline.seconds:g} seconds of 'total_timeout' leave no time for another try.")
        raise error


def _failure(state: tenacity.RetryCallState) -> Transient:
    assert state.outcome is not None
    return cast(Transient, state.outcome.exception())


class Tries(_Policy):
    """The tries of one request, the first of which is under way; threads may use it one after another.

    Parameters as of ``_Policy``; ``sleep`` waits some seconds, ``time.sleep`` unless given.
    """

    def __init__(
        self,
        options: ReadOptions,
        deadline: Deadline | None = None,
        *,
        sleep: Callable[[float], None] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(options, deadline, tell=tell)
        self._sleep = sleep or time.sleep

    @functools.cached_property
    def _retrying(self) -> tenacity.Retrying:
        import tenacity

        return tenacity.Retrying(sleep=self._sleep, **self._arguments())

    @functools.cached_property
    def _attempts(self) -> Iterator[tenacity.AttemptManager]:
        return iter(self._retrying)

    def call(self, attempt: Callable[[], T]) -> T:
        """Return ``attempt()``, calling it again while it raises ``Transient``; raises as ``failed``."""
        while True:
            try:
                return attempt()
            except Transient as failure:
                broken = failure
            self.failed(broken)

    def failed(self, failure: Transient) -> None:
        """Return when it is time for the next try, or raise the error of ``failure`` if there is none."""
        if self._attempt is None:
            self._take(next(self._attempts))
        # What tenacity counts for itself it keeps by thread, and this may be another one than before.
        self._retrying.begin()
        self._fail(failure)
        self._take(next(self._attempts))


class AsyncTries(_Policy):
    """As ``Tries``, for a coroutine."""

    @functools.cached_property
    def _attempts(self) -> AsyncIterator[tenacity.AttemptManager]:
        import tenacity

        return aiter(tenacity.AsyncRetrying(sleep=asyncio.sleep, **self._arguments()))

    async def failed(self, failure: Transient) -> None:
        """Return when it is time for the next try, or raise the error of ``failure`` if there is none."""
        if self._attempt is None:
            self._take(await anext(self._attempts))
        self._fail(failure)
        self._take(await anext(self._attempts))


def wait_before(attempt: int, after: float | None = None) -> float:
    """Return the seconds to wait before try number ``attempt`` (2 is the first repetition)."""
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * _GROWTH ** min(attempt - 2, 20))
    # At least half of the time: a wait of nearly nothing helps no overloaded server.
    return max(random.uniform(longest / 2, longest), after or 0.0)


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3: seconds or a date), if any."""
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_RETRY_AFTER)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        # "-0000" and dates without a zone: HTTP dates are of UTC (RFC 9110, 5.6.7), whatever the zone of this machine.
        when = when.replace(tzinfo=dt.timezone.utc)
    return max(0.0, (when - dt.datetime.now(dt.timezone.utc)).total_seconds())
