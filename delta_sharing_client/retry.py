"""Trying a request again: which failures may pass, how long to wait, and when to give up; for REST and for data."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
import functools
import http.client
import logging
import math
import random
import re
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
import requests.exceptions
import urllib3.exceptions

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.options import ReadOptions

# Gateways have statuses of their own (509, 520 to 530). What is not implemented (501) will not be in a moment.
RETRIED_STATUSES = frozenset({408, 425, 429, *range(500, 600)} - {501})
# What storages answer once a signature has expired: S3 and Azure 403, Google 400, proxies before them 401 and 410.
EXPIRED_STATUSES = frozenset({400, 401, 403, 410})
# What requests, urllib3 and the standard library below them raise, by its bases. A RequestException is an OSError; a
# malformed address or proxy is a ValueError or, from inside urllib3, a TypeError.
LIBRARY_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    http.client.HTTPException,
    urllib3.exceptions.HTTPError,
    zlib.error,
    aiohttp.ClientError,
)

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


# === What an exception of a library means ===


def network_failure(
    error: Exception, doing: str, table: str | None, *, url: str | None = None, receiving: bool = False
) -> Transient | DeltaSharingError:
    """Translate one of ``LIBRARY_ERRORS``: a ``Transient`` where trying again may help, else the error.

    ``doing`` says what was tried ("Listing the shares"). ``url`` is that of the request, of which the host is named;
    ``receiving``: the request went out, what is wrong is the answer. No text of the library that could hold a URL is
    passed on.
    """
    causes = _causes(error)
    reason, may_pass = _verdict(causes, _host(causes, url), receiving)
    kind = ProtocolError if _find(causes, zlib.error, urllib3.exceptions.DecodeError) else TransportError
    problem = kind(f"{doing} failed: {reason}.", table=table)
    return Transient(problem) if may_pass else problem


def _verdict(causes: list[BaseException], host: str, receiving: bool) -> tuple[str, bool]:
    """Return why it failed, as the part of a sentence, and whether another try may succeed."""
    for judge in (_names, _tls, _proxy, _addresses, _connections):
        verdict = None if receiving and judge is _addresses else judge(causes, host)
        if verdict is not None:
            return verdict
    error = causes[0]
    if _find(causes, zlib.error, urllib3.exceptions.DecodeError, requests.exceptions.ContentDecodingError):
        return f"the compression of the answer is broken ({type(error).__name__})", False
    cut = (http.client.HTTPException, urllib3.exceptions.ProtocolError)
    cut_of_aiohttp = (aiohttp.ClientPayloadError, aiohttp.ClientResponseError, aiohttp.ServerDisconnectedError)
    if _find(causes, *cut, *cut_of_aiohttp) or isinstance(error, (ValueError, TypeError)):
        return f"the answer was cut off or is no HTTP ({type(causes[-1]).__name__})", True
    if isinstance(error, requests.RequestException):
        passing = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
        return f"the connection broke ({_kind(causes[-1])})", isinstance(error, passing)
    return f"the connection broke ({_kind(causes[-1])})", isinstance(
        error, (OSError, urllib3.exceptions.HTTPError, aiohttp.ClientConnectionError)
    )


def _names(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    found = _find(causes, socket.gaierror)
    if found is None:
        return None
    # The host in the request is not the one that was looked up where a proxy stands between.
    host = "of the proxy" if _is_of_proxy(causes) else host.partition(":")[0]
    unknown = found.args[:1] == (socket.EAI_NONAME,)
    return f"the host {host} is not known here; check the endpoint, the network and the proxy", not unknown


# Reasons of OpenSSL that tell of a broken connection and not of what the two sides want of each other.
_BROKEN_TLS = re.compile(r"UNEXPECTED_EOF|BAD_RECORD_MAC|EOF occurred|SYSCALL|INTERNAL_ERROR", re.IGNORECASE)
_NO_PEM = re.compile(r"NO_CERTIFICATE_OR_CRL_FOUND|NO_START_LINE|\[SSL\] PEM|KEY_VALUES_MISMATCH", re.IGNORECASE)
_CERTIFICATE_WANTED = re.compile(r"CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE", re.IGNORECASE)
_NO_TLS = re.compile(r"WRONG_VERSION_NUMBER|HTTP_REQUEST|RECORD_LAYER_FAILURE|PACKET_LENGTH", re.IGNORECASE)


def _tls(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    found = _find(causes, ssl.SSLError, ssl.CertificateError, urllib3.exceptions.SSLError, requests.exceptions.SSLError)
    if found is None:
        return None
    text = str(found)
    if isinstance(found, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)) or _BROKEN_TLS.search(text):
        return f"the TLS connection to {host} was cut off", True
    if isinstance(found, ssl.CertificateError) or "CERTIFICATE_VERIFY_FAILED" in text:
        why = getattr(found, "verify_message", "") or "it does not fit"
        return (
            f"the certificate of {host} is not accepted ({why}); check the clock of this machine, the host in the "
            "URL, and whether REQUESTS_CA_BUNDLE must name the certificates of your organisation"
        ), False
    if _NO_TLS.search(text):
        return (
            f"{host} does not speak TLS on this port; check the port, and whether the URL should begin with 'http:'"
        ), False
    why = getattr(found, "reason", None)
    if _NO_PEM.search(text):
        return "a file of ca_bundle or client_certificate holds no certificate or key that can be read", False
    if _CERTIFICATE_WANTED.search(text):
        return f"{host} does not accept this client's certificate; check client_certificate", False
    return f"{host} and this client agree on no TLS ({why if isinstance(why, str) else type(found).__name__})", False


def _proxy(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    malformed = _find(causes, requests.exceptions.InvalidProxyURL, urllib3.exceptions.ProxySchemeUnknown)
    if malformed is not None:
        return "the URL of the proxy cannot be used; check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY", False
    if not _is_of_proxy(causes):
        return None
    found = (re.search(r"Tunnel connection failed: (\d{3})", str(each)) for each in causes)
    status = next((int(match[1]) for match in found if match is not None), None)
    if isinstance(causes[0], aiohttp.ClientHttpProxyError):
        status = getattr(causes[0], "status", None)
    if status is not None:
        passing = status in RETRIED_STATUSES
        return f"the proxy refuses the connection (HTTP status {status}); check its URL and its password", passing
    return f"the proxy does not answer ({type(causes[-1]).__name__}); check HTTPS_PROXY, HTTP_PROXY and ALL_PROXY", True


def _addresses(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    if isinstance(causes[0], requests.exceptions.TooManyRedirects):
        return "the server redirects in a circle", False
    # A TypeError or ValueError that no library wraps comes from putting addresses and headers together.
    if isinstance(causes[0], requests.exceptions.JSONDecodeError) or not _find(
        causes[:1], ValueError, TypeError, urllib3.exceptions.LocationValueError
    ):
        return None
    return f"an address or a header cannot be sent ({type(causes[0]).__name__}); check the URL and the proxy", False


def _connections(causes: list[BaseException], host: str) -> tuple[str, bool] | None:
    if _find(causes, ConnectionRefusedError):
        return f"{host} refuses the connection; check that the server is running and the endpoint right", True
    if _find(causes, urllib3.exceptions.NewConnectionError):
        return f"no connection to {host} ({_kind(causes[-1])}); check the network and the proxy", True
    if _find(causes, requests.ConnectTimeout, urllib3.exceptions.ConnectTimeoutError, aiohttp.ConnectionTimeoutError):
        return f"no connection to {host} within the time limit", True
    if _find(causes, requests.ReadTimeout, urllib3.exceptions.ReadTimeoutError, TimeoutError):
        return "no bytes within the time limit", True
    return None


def _is_of_proxy(causes: list[BaseException]) -> bool:
    kinds = (requests.exceptions.ProxyError, urllib3.exceptions.ProxyError)
    return _find(causes, *kinds, aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) is not None


def _kind(cause: BaseException) -> str:
    """Return what the system says, or else the class: no text of a library, which may hold a URL."""
    return (isinstance(cause, OSError) and isinstance(cause.errno, int) and cause.strerror) or type(cause).__name__


def _find(causes: list[BaseException], *kinds: type[BaseException]) -> BaseException | None:
    # The innermost one: what wraps it only repeats it.
    return next((cause for cause in reversed(causes) if isinstance(cause, kinds)), None)


def _causes(error: Exception) -> list[BaseException]:
    seen: list[BaseException] = [error]
    for candidate in seen:  # grows while it is walked: causes, contexts and wrapped reasons
        inner = (candidate.__cause__, candidate.__context__, getattr(candidate, "reason", None), *candidate.args)
        seen += [e for e in inner if isinstance(e, BaseException) and not any(e is s for s in seen)]
    return seen


def _host(causes: list[BaseException], url: str | None) -> str:
    for cause in causes:
        pool = vars(cause).get("conn") or vars(cause).get("pool")
        if pool is not None and getattr(pool, "host", None):
            return f"{pool.host}:{pool.port}"
        url = url or getattr(getattr(cause, "request", None), "url", None)
    try:
        parts = urlsplit(url or "")
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or "the server"
    except ValueError:
        return "the server"
