"""Which requests are retried, and when."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import http.server
import inspect
import logging
import pickle
import socket
import ssl
import threading
import time
import types
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
import requests
import urllib3.exceptions

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, RequestError, TransportError
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.fetch.source import Fetcher, RemoteFile
from delta_sharing_client.http.failures import LIBRARY_ERRORS, translated
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.http.retry import (
    Deadline,
    Transient,
    Tries,
    retry_after,
    wait_before,
)
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop
from tests.http_server import Exchange, HttpServer


def limits(attempts: int, seconds: float) -> ReadOptions:
    return ReadOptions(max_attempts=attempts, max_retry_seconds=seconds)


class Failing:
    """A function that fails ``times`` times and counts its calls."""

    def __init__(self, times: int, after: float | None = None) -> None:
        self.times, self.after, self.calls = times, after, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise Transient(RequestError("The server is busy.", status=503), self.after)
        return "done"


def test_waits_grow_with_jitter_up_to_a_maximum() -> None:
    for attempt, longest in ((2, 0.1), (3, 0.3), (4, 0.9), (7, 24.3), (12, 30.0), (5000, 30.0)):
        waits = [wait_before(attempt) for _ in range(200)]
        assert longest / 2 <= min(waits) < max(waits) <= longest + 1e-9


def test_default_retries_wait_at_least_half_a_minute(sleeps: list[float]) -> None:
    attempt = Failing(99)

    with pytest.raises(RequestError, match=r"busy\. Tried 8 times\.$"):
        Tries(ReadOptions()).call(attempt)
    assert 30 < sum(sleeps) < 70


def test_retry_after_is_the_minimum_wait(sleeps: list[float]) -> None:
    assert Tries(limits(3, 100)).call(Failing(1, after=7)) == "done"
    assert sleeps == [7]


def test_retry_after_beyond_the_limit_fails_at_once(sleeps: list[float]) -> None:
    with pytest.raises(RequestError, match="asks to wait 3600 s"):
        Tries(limits(3, 100)).call(Failing(1, after=3600))
    assert sleeps == []


@pytest.mark.parametrize(
    ("host", "least", "most"), [("10.1.2.3", 1.0, 10.0), ("127.0.0.1", 0.0, 0.0), ("[::1]", 0.0, 0.0)]
)
def test_refused_connection_is_retried_briefly_unless_local(
    sleeps: list[float], host: str, least: float, most: float
) -> None:
    def attempt() -> None:
        error = ConnectionRefusedError(111, "refused")
        failure = translated(error, "Asking", None, url=f"http://{host}:81/", refused_briefly=True)
        assert isinstance(failure, Transient)
        raise failure

    with pytest.raises(TransportError, match="refuses the connection"):
        Tries(ReadOptions()).call(attempt)
    assert least <= sum(sleeps) <= most


def test_no_attempt_is_made_after_the_time_limit(sleeps: list[float]) -> None:
    attempt = Failing(99)

    with pytest.raises(RequestError, match="busy"):
        Tries(limits(99, 0.04)).call(attempt)
    assert attempt.calls == 1


def test_other_errors_are_raised_at_once() -> None:
    def attempt() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        Tries(limits(3, 100)).call(attempt)


def test_retries_continue_on_another_thread() -> None:
    tries = Tries(limits(3, 100), sleep=lambda seconds: None)
    failure = Transient(TransportError("The response was cut off."))
    for _ in range(2):
        thread = threading.Thread(target=tries.failed, args=(failure,))
        thread.start()
        thread.join()

    with pytest.raises(TransportError, match="Tried 3 times"):
        tries.failed(failure)


def test_retry_is_reported_after_two_seconds(caplog: pytest.LogCaptureFixture, sleeps: list[float]) -> None:
    with caplog.at_level(logging.WARNING, "delta_sharing_client"):
        Tries(limits(8, 100)).call(Failing(3))
    assert caplog.messages == []

    with caplog.at_level(logging.WARNING, "delta_sharing_client"):
        Tries(limits(8, 100)).call(Failing(1, after=2))
    assert caplog.messages == ["The server is busy. Trying again in 2.0 s."]


def test_coroutines_are_retried_by_the_same_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def read(attempt: Failing, options: ReadOptions, tell: Callable[[str], None] | None = None) -> str:
        tries = Tries(options, Deadline(50), tell=tell)
        while True:
            try:
                return attempt()
            except Transient as failure:
                await tries.failed_async(failure)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    reasons: list[str] = []
    assert asyncio.run(read(Failing(2, after=7), limits(3, 100), reasons.append)) == "done"
    assert slept == [7, 7]
    assert reasons == 2 * ["The server is busy. Trying again in 7 s."]
    for options, after, message in (
        (limits(3, 100), None, "Tried 3 times."),
        (limits(3, 5), 7, "asks to wait 7 s; try again then."),
        (limits(3, 100), 60, "50 seconds of 'total_timeout' leave no time"),
    ):
        with pytest.raises(RequestError, match=message):
            asyncio.run(read(Failing(99, after), options))


def test_waiting_retry_keeps_no_frames_of_the_failure() -> None:
    failure = Transient(TransportError("The response was cut off."))
    try:
        raise failure
    except Transient:
        pass
    Tries(limits(3, 100), sleep=lambda seconds: None).failed(failure)
    assert failure.__traceback__ is None


# --- Retry-After, at every entry point ---

NOW = dt.datetime.now(dt.timezone.utc)


def in_half_a_minute(text: str, zone: int = 0) -> Callable[[], str]:
    """Return a function that makes a date when the response is sent; ``zone`` is the date's offset from UTC in
    hours."""
    return lambda: (dt.datetime.now(dt.timezone.utc) + dt.timedelta(seconds=30, hours=zone)).strftime(text)


RETRY_AFTER: list[tuple[Callable[[], str] | str | None, float | None]] = [
    (None, None),
    ("", None),
    ("120", 120),
    ("  3 ", 3),
    ("0", 0),
    ("-5", None),
    ("1.5", None),
    ("soon", None),
    ("\N{SUPERSCRIPT TWO}", None),
    ("9" * 400, 1e9),
    (in_half_a_minute("%a, %d %b %Y %H:%M:%S GMT"), 30),
    (in_half_a_minute("%a, %d %b %Y %H:%M:%S -0000"), 30),
    (in_half_a_minute("%a, %d %b %Y %H:%M:%S +0000"), 30),
    (in_half_a_minute("%a, %d %b %Y %H:%M:%S +0200", zone=2), 30),
    (in_half_a_minute("%a, %d %b %Y %H:%M:%S"), 30),
    (in_half_a_minute("%A, %d-%b-%y %H:%M:%S GMT"), 30),
    (in_half_a_minute("%a %b %d %H:%M:%S %Y"), 30),
    ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
    ("Wed, 21 Oct 99999 07:28:00 GMT", None),
    ("Wed, 99 Oct 2015 07:28:00 GMT", None),
]


class Busy(HttpServer):
    """A server that answers every request with 503 and the configured ``Retry-After``."""

    def __init__(self) -> None:
        super().__init__(self._refuse)
        self.status = 503
        self.value: Callable[[], str] | str | None = None

    def _refuse(self, exchange: Exchange) -> None:
        exchange.send_response(self.status)
        if self.value is not None:
            text = self.value if isinstance(self.value, str) else self.value()
            exchange._headers_buffer.append(b"Retry-After: " + text.encode("utf-8") + b"\r\n")  # type: ignore[attr-defined]
        exchange.send_header("Content-Length", "0")
        exchange.end_headers()


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    with Busy() as server:
        yield server


OPTIONS = ReadOptions(max_attempts=2, connect_timeout=5, read_timeout=5)


def ask_rest(url: str) -> None:
    profile = {"shareCredentialsVersion": 1, "endpoint": url, "bearerToken": "t"}
    ds.SharingClient(profile, options=OPTIONS).list_shares()


def ask_oauth(url: str) -> None:
    profile = {
        "shareCredentialsVersion": 2,
        "type": "oauth_client_credentials",
        "endpoint": url,
        "tokenEndpoint": f"{url}/token",
        "clientId": "c",
        "clientSecret": "s",
    }
    ds.SharingClient(profile, options=OPTIONS).list_shares()


def ask_data(url: str) -> None:
    fetcher = Fetcher(SignedUrls(OPTIONS, Allowed(http=True, loopback=True), "s.d.t"))
    file = RemoteFile(fetcher, key="f", url=f"{url}/f", size=10, file_id="f")
    loop.call(file.read(ByteRange(0, 10)))


@pytest.mark.parametrize("door", [ask_rest, ask_oauth, ask_data])
def test_retry_after_is_parsed_alike_everywhere(
    door: Callable[[str], None], busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    def failed(self: object, failure: Transient) -> None:
        asked.append(failure.after)
        raise failure.error

    async def failed_soon(self: Tries, failure: Transient) -> None:
        failed(self, failure)

    monkeypatch.setattr(Tries, "failed", failed)
    monkeypatch.setattr(Tries, "failed_async", failed_soon)
    # The local zone is not UTC, so the test fails if a date without a zone is read as local time.
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        for busy.value, expected in RETRY_AFTER:
            with pytest.raises(DeltaSharingError):
                door(busy.url)
            close = None if expected is None else pytest.approx(expected, abs=2)
            assert asked.pop() == close, busy.value
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("door", [ask_rest, ask_oauth, ask_data])
@pytest.mark.parametrize(
    "status", [408, 425, 429, *range(500, 512), *range(520, 531), 598, 599, 400, 404, 409, 418, 600]
)
def test_same_statuses_are_retried_everywhere(
    door: Callable[[str], None], status: int, busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("delta_sharing_client.http.retry.wait_before", lambda *_: waits.append(0.0) or 0.0)
    monkeypatch.setattr(busy, "status", status)
    monkeypatch.setattr(busy, "value", None)

    with pytest.raises(DeltaSharingError):
        door(busy.url)
    assert bool(waits) == (status not in (400, 404, 409, 418, 501, 505, 600))


# --- exceptions of libraries ---


def of_tls(text: str) -> Exception:
    """Return the exception of requests for a failed handshake."""
    return requests.exceptions.SSLError(urllib3.exceptions.SSLError(text))


def of_proxy(status: str) -> Exception:
    """Return the exception of requests for a refused tunnel."""
    refused = OSError(f"Tunnel connection failed: {status}")
    return requests.exceptions.ProxyError(urllib3.exceptions.ProxyError("p", refused))


@pytest.mark.parametrize(
    "error",
    [
        requests.exceptions.ConnectionError("reset"),
        requests.exceptions.ConnectTimeout("slow"),
        requests.exceptions.ReadTimeout("slow"),
        requests.exceptions.ChunkedEncodingError("short"),
        of_tls("EOF occurred in violation of protocol"),
        urllib3.exceptions.ProtocolError("short"),
        urllib3.exceptions.IncompleteRead(5, 10),
        http.client.IncompleteRead(b"", 10),
        http.client.LineTooLong("chunk size"),
        http.client.RemoteDisconnected("closed"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
        of_proxy("503 Busy"),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError("short"),
        aiohttp.ConnectionTimeoutError("slow"),
        aiohttp.SocketTimeoutError("slow"),
        aiohttp.ClientOSError(104, "reset"),
        aiohttp.ClientResponseError(None, (), status=400),
    ],
    ids=repr,
)
def test_network_failures_are_transient(error: Exception) -> None:
    failure = translated(error, "Asking", "s.d.t")

    assert isinstance(failure, Transient)
    assert failure.error.table == "s.d.t"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            of_tls("[SSL: CERTIFICATE_VERIFY_FAILED] unable"),
            "REQUESTS_CA_BUNDLE",
        ),
        (ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]"), "REQUESTS_CA_BUNDLE"),
        (
            of_tls("[SSL: WRONG_VERSION_NUMBER] wrong version"),
            "does not speak TLS",
        ),
        (
            of_tls("[SSL: TLSV1_ALERT_PROTOCOL_VERSION]"),
            "share no TLS settings",
        ),
        (requests.exceptions.InvalidSchema("file:"), "check the URL"),
        (requests.exceptions.InvalidURL("x"), "check the URL"),
        (
            of_proxy("407 Who"),
            "407",
        ),
        (urllib3.exceptions.LocationParseError("x"), "check the URL"),
        (urllib3.exceptions.ProxySchemeUnknown("x"), "HTTPS_PROXY"),
        (UnicodeEncodeError("latin-1", "secret-\u20ac", 7, 8, "no"), "check the URL"),
        (ValueError("Invalid IPv6 URL"), "check the URL"),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), "cannot be resolved"),
    ],
    ids=repr,
)
def test_permanent_failures_suggest_checks_and_are_not_retried(error: Exception, message: str) -> None:
    failure = translated(error, "Asking", None)

    assert isinstance(failure, TransportError)
    assert message in failure.message


@pytest.mark.parametrize("error", [zlib.error("bad"), urllib3.exceptions.DecodeError("bad")])
def test_invalid_compression_is_a_protocol_error(error: Exception) -> None:
    assert isinstance(translated(error, "Asking", None), ProtocolError)


def _exceptions() -> list[type[Exception]]:
    modules: list[Any] = [
        requests.exceptions,
        urllib3.exceptions,
        aiohttp.client_exceptions,
        http.client,
        ssl,
        zlib,
        socket,
    ]
    return sorted(
        {
            value
            for module in modules
            for name, value in vars(module).items()
            if not name.startswith("_")
            and inspect.isclass(value)
            and issubclass(value, Exception)
            and not issubclass(value, Warning)
        },
        key=lambda kind: f"{kind.__module__}.{kind.__qualname__}",
    )


def made(kind: type[Exception], text: str) -> Exception:
    of_connectors = (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError)
    if issubclass(kind, (*of_connectors, aiohttp.ClientConnectorSSLError)):
        key = types.SimpleNamespace(host="h", port=1, ssl=True, is_ssl=True)
        return kind("/socket", key, OSError(text)) if "Unix" in kind.__name__ else kind(key, OSError(text))
    if issubclass(kind, aiohttp.ClientResponseError):
        return kind(types.SimpleNamespace(real_url=text), (), status=400, message=text)
    return kind.__new__(kind, text)


@pytest.mark.parametrize("kind", _exceptions(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_library_exceptions_are_converted(kind: type[Exception]) -> None:
    assert issubclass(kind, LIBRARY_ERRORS)
    error = made(kind, "planted https://h/?sig=planted")

    failure = translated(error, "Asking", "s.d.t")

    ours = failure.error if isinstance(failure, Transient) else failure
    assert type(ours) in (TransportError, ProtocolError)
    assert ours.message.startswith("Asking failed: ")
    assert ours.message.endswith(".")
    assert "planted" not in ours.message
    assert pickle.loads(pickle.dumps(ours)).message == ours.message


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://127.0.0.1:9/x?sig=planted", "127.0.0.1:9 refuses the connection"),
        ("http://nowhere.invalid/x?sig=planted", "the host nowhere.invalid cannot be resolved"),
    ],
)
@pytest.mark.parametrize(
    "get",
    [
        lambda url: requests.get(url, timeout=5, proxies={"http": ""}),
        lambda url: urllib3.PoolManager().request("GET", url, retries=False),
    ],
    ids=["requests", "urllib3"],
)
def test_unreachable_server_error_is_readable(get: Callable[[str], object], url: str, text: str) -> None:
    with pytest.raises(LIBRARY_ERRORS) as caught:
        get(url)

    failure = translated(caught.value, "Asking", None)

    message = failure.error.message if isinstance(failure, Transient) else failure.message
    assert message.startswith(f"Asking failed: {text}")
    assert "planted" not in message


def test_missing_retry_after_header_is_accepted() -> None:
    assert retry_after(None) is None
