"""Trying a request again: which failures may pass, how long to wait, and when to give up."""

from __future__ import annotations

import dataclasses
import datetime as dt
import email.utils
import random
import socket
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import tenacity
import urllib3.exceptions

from delta_sharing_client.errors import DeltaSharingError, TransportError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.redact import scrub

RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_FIRST_WAIT = 0.25
_LONGEST_WAIT = 30.0

T = TypeVar("T")


class Transient(Exception):
    """A failure that may pass; ``error`` is what the caller sees if it does not, ``after`` the server's wish in
    seconds."""

    def __init__(self, error: DeltaSharingError, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of trying again: tries with the first one included, and seconds after which no further try is made."""

    max_attempts: int
    max_seconds: float
    first_wait: float = _FIRST_WAIT

    @classmethod
    def of(cls, options: ReadOptions) -> RetryPolicy:
        """The limits that ``options`` states."""
        return cls(options.max_attempts, options.max_retry_seconds)

    def call(self, attempt: Callable[[], T]) -> T:
        """Return ``attempt()``, calling it again while it raises ``Transient``, with growing, random waits between.

        ``Retry-After`` is the least wait; where it does not fit into ``max_seconds``, there is no further try, because
        an earlier one would break the server's rule. Raises the ``error`` of the last ``Transient``.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            stop=tenacity.stop_after_attempt(self.max_attempts) | tenacity.stop_before_delay(self.max_seconds),
            wait=self._wait,
            sleep=time.sleep,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except Transient as last:
            raise self.gave_up(last, int(retrying.statistics.get("attempt_number", 1))) from None

    def wait_before(self, attempt: int, after: float | None = None) -> float:
        """Seconds to wait before try number ``attempt`` (2 is the first repetition), random so that clients spread."""
        longest = min(_LONGEST_WAIT, self.first_wait * 2 ** min(attempt - 1, 20))
        # At least half of the time: a wait of nearly nothing helps no overloaded server.
        return max(random.uniform(longest / 2, longest), after or 0.0)

    def _wait(self, state: tenacity.RetryCallState) -> float:
        last = state.outcome.exception() if state.outcome else None
        return self.wait_before(state.attempt_number + 1, last.after if isinstance(last, Transient) else None)

    def gave_up(self, last: Transient, attempts: int) -> DeltaSharingError:
        """Return the error of ``last``, its message completed with how often it was tried."""
        error = last.error
        tried = f" Tried {attempts} times." if attempts > 1 else ""
        if last.after is not None and last.after > self.max_seconds:
            tried += f" The server asks to wait {last.after:.0f} s; try again then."
        if tried:
            error.message += tried
            error.args = (error.message,)
        return error


def retry_after(response: requests.Response) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for (RFC 9110, 10.2.3: seconds or a date), if any."""
    value = (response.headers.get("Retry-After") or "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.timezone.utc)
    return max(0.0, (when - dt.datetime.now(dt.timezone.utc)).total_seconds())


def network_failure(error: Exception, doing: str, table: str | None) -> Transient | DeltaSharingError:
    """Translate an exception of requests or urllib3: a ``Transient`` where trying again may help, else the error."""
    problem = TransportError(f"{doing} failed: {_reason(error)}.", table=table)
    return Transient(problem) if _may_pass(error) else problem


def _may_pass(error: Exception) -> bool:
    if isinstance(error, requests.exceptions.SSLError):
        return "CERTIFICATE_VERIFY_FAILED" not in str(error)  # anything else of TLS may be a broken connection
    if _is_unknown_host(error):
        return False
    if isinstance(error, requests.RequestException):  # these are OSErrors as well, also the hopeless ones
        return isinstance(
            error,
            (
                requests.exceptions.ConnectionError,
                requests.exceptions.Timeout,
                requests.exceptions.ChunkedEncodingError,
            ),
        )
    return isinstance(error, (urllib3.exceptions.HTTPError, OSError))


def _is_unknown_host(error: Exception) -> bool:
    found = next((cause for cause in _causes(error) if isinstance(cause, socket.gaierror)), None)
    return found is not None and found.errno == socket.EAI_NONAME


def _causes(error: Exception) -> list[BaseException]:
    seen: list[BaseException] = [error]
    for candidate in seen:  # grows while it is walked: causes, contexts and wrapped reasons
        inner = (candidate.__cause__, candidate.__context__, getattr(candidate, "reason", None), *candidate.args)
        seen += [e for e in inner if isinstance(e, BaseException) and not any(e is s for s in seen)]
    return seen


def _reason(error: Exception) -> str:
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "no connection within the time limit"
    if isinstance(error, requests.exceptions.ReadTimeout):
        return "no bytes within the time limit"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return f"the answer was cut off ({_short(error)})"
    if isinstance(error, requests.exceptions.ProxyError):
        return _short(error)  # what failed was the way to the proxy, whatever the request's host
    host = _host_of(error)
    causes = _causes(error)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"the host {host} is not known here; check the endpoint, the network and the proxy"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"{host} refuses the connection; check that the server is running and the endpoint right"
    return _short(error)


def _host_of(error: Exception) -> str:
    request = getattr(error, "request", None)
    parts = urlsplit(str(getattr(request, "url", None) or ""))
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "of the server"


def _short(error: Exception) -> str:
    text = scrub(" ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:300]}"
