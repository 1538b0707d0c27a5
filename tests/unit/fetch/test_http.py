"""The URLs from which data files are fetched, and how responses are handled."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import gc
import os
import pickle
import socket
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from delta_sharing_client.errors import AuthError, DataError, DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.fetch import http
from delta_sharing_client.fetch.http import Http
from delta_sharing_client.fetch.place import Span, Version
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.fetch.source import Fetcher, RemoteFile
from delta_sharing_client.http.logins import BearerToken
from delta_sharing_client.http.network import Allowed, Reach
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret
from delta_sharing_client.run import loop
from tests.effort import sample
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.raw_server import FOR_EVER, Deaf, Raw, pause
from tests.unit.storages import wait_for


def test_allowed_data_urls_depend_on_the_endpoint():
    def allowed(endpoint):
        return RestClient(Profile(endpoint, BearerToken(Secret("t")))).allowed_data

    assert allowed("https://h/api") == Allowed()
    assert allowed("http://h/api") == Allowed(http=True)
    assert allowed("https://127.0.0.1:8443/api") == Allowed(loopback=True)
    assert allowed("http://localhost/api") == Allowed(http=True, loopback=True)
    # The endpoint has not been resolved yet, and the name may lead to any address.
    assert allowed("https://x.localhost/api") == Allowed()


# --- responses as received from a socket ---

SIZE = 64
BODY = bytes(range(SIZE))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE


@pytest.fixture
def fetch(raw: Raw, bundle: str) -> Callable[..., bytes]:
    loop.call(http.close_all())  # so that the read creates a new session

    def fetched(target: str = "/f", start: int = 0, stop: int = SIZE, **options: Any) -> bytes:
        chosen = ReadOptions(**{"ca_bundle": bundle, "read_timeout": 30.0, "max_attempts": 3, **options})
        fetcher = Fetcher(SignedUrls(chosen, Allowed(http=True, loopback=True), "s.d.t"))
        file = RemoteFile(fetcher, key="f", url=raw.url + target, size=SIZE, file_id="f")
        return bytes(loop.call(file.read(ByteRange(start, stop))).to_pybytes())

    return fetched


Fetch = Callable[..., bytes]


def test_response_interrupted_anywhere_is_completed(raw: Raw, fetch: Fetch) -> None:
    whole = HEAD + BODY
    for cut in sample(range(len(whole)), 3):
        raw.answers = [whole[:cut], whole]
        assert fetch() == BODY


def test_chunked_response_interrupted_anywhere_is_completed(raw: Raw, fetch: Fetch) -> None:
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (SIZE, BODY)
    for cut in sample(range(len(whole)), 3):
        raw.answers = [[whole[:cut]], whole]
        assert fetch() == BODY


@pytest.mark.parametrize(
    "answer",
    [
        HEAD.replace(b"\r", b"") + BODY,
        b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 Wait\r\n\r\n" + HEAD + BODY,
        HEAD.replace(b"\r\n\r\n", b"\r\nX-Long: %s\r\n\r\n" % (200_000 * b"x")) + BODY,
        HEAD.replace(b"OK", 200_000 * b"x") + BODY,
        HEAD.replace(b"\r\n\r\n", b"\r\nLocation: /other\r\n\r\n") + BODY,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nX: y\r\n\r\n" % (SIZE, BODY),
    ],
    ids=["bare line feeds", "interim responses", "long header", "long reason", "Location without redirect", "trailers"],
)
def test_unusual_responses_are_read(raw: Raw, fetch: Fetch, answer: bytes) -> None:
    raw.answers = [answer]
    raw.close_after = False
    clock = Stopwatch()
    assert fetch() == BODY
    assert clock.within(SOON)
    assert len(raw.requests) == 1


def test_range_is_cut_from_a_whole_response_without_a_length(raw: Raw, fetch: Fetch) -> None:
    start, stop = 8, 16
    chunks = [BODY[at : at + 7] for at in range(0, SIZE, 7)]
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw.answers = [[head, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks), b"0\r\n\r\n"]]
    assert fetch(start=start, stop=stop) == BODY[start:stop]
    assert len(raw.requests) == 1


SIGNATURE = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\n\r\n\xef\xbb\xbf<?xml version='1.0'?><Error><Code>AccessDenied</Code>"
            b"<Message>Request has expired &amp; gone.</Message></Error>",
            "refused access (HTTP status 403, AccessDenied: Request has expired & gone).",
        ),
        (
            b"HTTP/1.1 409 Conflict\r\nx-ms-error-code: PublicAccessNotPermitted\r\n\r\n{}",
            "responded with HTTP status 409, PublicAccessNotPermitted.",
        ),
        (
            b"HTTP/1.1 400 Bad\r\n\r\n<Error><Code>A</Code><Message>not %s</Message>"
            b"<StringToSign>planted</StringToSign></Error>" % SIGNATURE.encode(),
            "refused the file's URL (HTTP status 400, A: not ***).",
        ),
        (b"HTTP/1.1 410 Gone\r\n\r\n", "refused the file's URL (HTTP status 410); it may have expired."),
        (b"HTTP/1.1 418 No\r\nContent-Length: 99\r\n\r\n<Error><Code>cut", "responded with HTTP status 418."),
    ],
)
def test_error_message_of_the_storage_is_shown(raw: Raw, fetch: Fetch, answer: bytes, shown: str) -> None:
    raw.answers = [answer]
    with pytest.raises((AuthError, TransportError)) as caught:
        fetch(max_attempts=1)
    assert shown in str(caught.value)


def test_error_message_of_the_storage_has_no_control_characters(raw: Raw, fetch: Fetch) -> None:
    raw.answers = [b"HTTP/1.1 400 Bad\r\n\r\n<Code>A\x1b[2Jb\x9b</Code>"]
    with pytest.raises(TransportError, match=r"HTTP status 400, A.*b") as caught:
        fetch(max_attempts=1)
    assert str(caught.value).isprintable()


def test_range_that_ends_before_it_starts_is_refused(raw: Raw, fetch: Fetch) -> None:
    raw.answers = [b"HTTP/1.1 206 Part\r\nContent-Range: bytes 8-7/64\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
    with pytest.raises(DeltaSharingError, match="Expected the bytes 8 to 8 of a data file"):
        fetch(start=8, stop=16, max_attempts=1)


def test_cookies_of_the_storage_are_not_sent_back(raw: Raw, fetch: Fetch) -> None:
    raw.answers = [HEAD.replace(b"\r\n\r\n", b"\r\nSet-Cookie: planted=1; Path=/\r\n\r\n") + BODY]
    assert [fetch(), fetch()] == [BODY, BODY]
    assert not any(b"planted" in request for request in raw.requests)


def test_download_has_no_time_limit_while_bytes_arrive(raw: Raw, fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is disabled, aiohttp has a time limit of five minutes for each request."""
    limits: list[Any] = []
    request = aiohttp.ClientSession.get

    def get(session: aiohttp.ClientSession, url: Any, **arguments: Any) -> Any:
        limits.append(arguments.get("timeout"))
        return request(session, url, **arguments)

    monkeypatch.setattr(aiohttp.ClientSession, "get", get)
    raw.answers = [HEAD + BODY]
    assert fetch() == BODY
    assert [limit.total for limit in limits] == [None]


def test_slow_error_message_is_not_awaited(raw: Raw, fetch: Fetch) -> None:
    raw.answers = [[b"HTTP/1.1 503 Slow\r\nContent-Length: 99\r\n\r\n<Error>", b"", b""]]
    raw.pause = 3.0
    with pytest.raises(TransportError, match="HTTP status 503"):
        fetch(max_attempts=1, read_timeout=60.0)


STRAY = HEAD + bytes(SIZE)


@pytest.mark.parametrize(
    "answers",
    [[HEAD + BODY + STRAY], [[HEAD + BODY, STRAY]], [[HEAD + BODY, STRAY[:10], STRAY[10:]]], [HEAD + BODY + b"\r\n"]],
    ids=["with the body", "after the body", "in pieces", "a line end"],
)
def test_bytes_after_a_response_are_not_used_for_the_next_file(
    raw: Raw, fetch: Fetch, answers: list[bytes | list[bytes]]
) -> None:
    raw.close_after = False
    raw.answers = [*answers, HEAD + BODY]
    assert fetch() == BODY
    pause(0.2)  # until the bytes have arrived
    assert fetch() == BODY


def test_connection_is_reused(raw: Raw, fetch: Fetch) -> None:
    raw.close_after = False
    raw.answers = [HEAD + BODY]
    for _ in range(5):
        assert fetch() == BODY
    assert raw.connections == 1


@pytest.mark.parametrize("line", [b"X: y\r\n", b"x"])
def test_endless_trailers_are_an_error(raw: Raw, fetch: Fetch, line: bytes) -> None:
    half = SIZE // 2
    chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (half, BODY[:half])
    raw.answers = [[chunk, *500 * [line]]]
    clock = Stopwatch()
    with pytest.raises(DeltaSharingError):
        fetch(read_timeout=0.2, max_attempts=2)
    assert clock.within(SOON)


@pytest.mark.parametrize(
    "target",
    [
        "/f?X-Amz-Signature=%ab%AB%2f%2F+a b".replace(" ", "%20"),
        "/a/../b/./c//d?x=[1]{2}|^`<>\"'&&=?/;:@!$()*,",
        "/%zz%?%",
        "/f?" + 20_000 * "x",
        "/f;p=1?a=b#fragment",
        "?only=query",
    ],
)
def test_signed_url_is_sent_unchanged(raw: Raw, fetch: Fetch, target: str) -> None:
    raw.answers = [HEAD + BODY]
    assert fetch(target) == BODY
    sent = raw.requests[0].split(b" ")[1].decode()
    assert sent == ("/" if target.startswith("?") else "") + target.partition("#")[0]


def test_non_ascii_url_is_sent_percent_encoded_as_utf_8(raw: Raw, fetch: Fetch) -> None:
    raw.answers = [HEAD + BODY]
    assert fetch("/\u00e9/\u4e2d?a=%41\U0001f600") == BODY
    assert raw.requests[0].split(b" ")[1] == b"/%C3%A9/%E4%B8%AD?a=%41%F0%9F%98%80"


def test_requests_send_only_four_headers(raw: Raw, fetch: Fetch) -> None:
    raw.answers = [HEAD[:-2] + b"Set-Cookie: a=b\r\n\r\n" + BODY]
    raw.close_after = False
    fetch()
    fetch()
    names = {line.split(b":")[0].lower() for line in raw.requests[1].split(b"\r\n")[1:] if line}
    assert names == {b"host", b"accept", b"accept-encoding", b"user-agent"}


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:{port}\\@{good}/", "/\\127.0.0.1:{port}/", "http://u:p@{good}/"]
)
def test_redirect_is_checked_before_it_is_followed(raw: Raw, fetch: Fetch, location: str) -> None:
    evil = Raw()
    evil.answers = [HEAD + BODY]
    try:
        target = location.format(port=evil.url.rpartition(":")[2], good=raw.url.rpartition("/")[2])
        raw.answers = [f"HTTP/1.1 307 There\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()]
        with pytest.raises(ProtocolError, match=r"backslash|user name"):
            fetch()
        assert evil.requests == []
    finally:
        evil.close()


def test_http_proxy_receives_credentials_decoded_once(bundle: str) -> None:
    proxy = Raw()
    proxy.answers = [HEAD + BODY]
    try:
        options = ReadOptions(proxy=proxy.url.replace("//", "//us%40er:p%2Fw%2525@"))
        # The proxy may be on this machine, although the storage may not be.
        fetcher = Fetcher(SignedUrls(options, Allowed(http=True), "s.d.t"))
        file = RemoteFile(fetcher, key="f", url="http://storage.invalid/f?a=%2F", size=SIZE, file_id="f")
        assert bytes(loop.call(file.read(ByteRange(0, SIZE)))) == BODY
        assert proxy.requests[0].startswith(b"GET http://storage.invalid/f?a=%2F HTTP/1.1\r\n")
        assert base64.b64encode(b"us@er:p/w%25") in proxy.requests[0]
    finally:
        proxy.close()


def fetcher_of(**options: Any) -> Fetcher:
    return Fetcher(SignedUrls(ReadOptions(**options), Allowed(http=True, loopback=True), "s.d.t"))


def test_unreachable_addresses_of_a_storage_delay_no_read(raw: Raw, many_addresses: str, bundle: str) -> None:
    raw.answers = [HEAD + BODY]
    fetcher = fetcher_of(connect_timeout=FOR_EVER, ca_bundle=bundle)
    file = RemoteFile(fetcher, key="f", url=f"{many_addresses}/f", size=SIZE, file_id="f")
    assert bytes(loop.call(file.read(ByteRange(0, SIZE)))) == BODY


def test_there_is_one_session_for_each_address_restriction() -> None:
    async def look() -> None:
        session = http._session(Reach.REMOTE)
        assert http._session(Reach.REMOTE) is session is not http._session(Reach.ANY)
        # The session neither decodes bodies nor keeps cookies, reads no environment variables and has no limits.
        assert (session.auto_decompress, session.trust_env) == (False, False)
        assert isinstance(session.cookie_jar, aiohttp.DummyCookieJar)
        assert session.connector is not None
        assert session.connector.limit == 0
        await http.close_all()
        assert session.closed
        assert http._session(Reach.REMOTE) is not session
        await http.close_all()

    asyncio.run(look())


def test_forked_child_closes_only_its_copies_of_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = socket.socketpair()
    number = one.fileno()
    monkeypatch.setattr(http, "_sockets", weakref.WeakSet([one]))
    with other:
        http._after_fork()
        assert one.fileno() == -1
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(number)
        # A shutdown would end the parent's connection, so the child only closes its copy.
        assert len(http._sockets) == 0
    http._after_fork()


def connections() -> int:
    """Return the number of open data connections of this process."""
    return sum(sock.fileno() != -1 for sock in list(http._sockets))


def test_number_of_idle_connections_is_limited(raw: Raw, bundle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_MOST_IDLE", 3)
    # No connection is closed because of its age during the test.
    monkeypatch.setattr(http, "_KEPT_SECONDS", 10 * HANGS)
    raw.close_after, raw.answers = False, [HEAD + BODY]
    fetcher = fetcher_of(ca_bundle=bundle)

    async def read(count: int) -> None:
        files = [RemoteFile(fetcher, key="f", url=f"{raw.url}/{n}", size=SIZE, file_id="f") for n in range(count)]
        pieces = await asyncio.gather(*(file.read(ByteRange(0, SIZE)) for file in files))
        assert [bytes(each) for each in pieces] == [BODY] * count
        await asyncio.sleep(0)  # connections are closed in the next step of the loop

    async def close() -> None:
        await http.close_all()

    loop.call(close())  # connections of other tests
    before = connections()
    loop.call(read(10))
    assert raw.connections == 10
    for _ in range(5):
        loop.call(read(3))
        loop.call(read(1))
    # The remaining connections are reused, and no more than these stay open.
    assert raw.connections == 10
    wait_for(lambda: connections() - before <= 3)
    loop.call(close())


def test_idle_connection_keeps_no_reference_to_its_first_read(raw: Raw, bundle: str) -> None:
    """A connection is kept for later reads and must not keep alive the rows of its first read, or a web service's
    request."""
    raw.close_after, raw.answers = False, [HEAD + BODY]
    fetcher = fetcher_of(ca_bundle=bundle)
    variable: contextvars.ContextVar[object] = contextvars.ContextVar("of a user")

    class Large:
        pass

    def read() -> weakref.ref[Large]:
        large = Large()
        variable.set(large)
        file = RemoteFile(fetcher, key="f", url=f"{raw.url}/f", size=SIZE, file_id="f")
        loop.call(file.read(ByteRange(0, SIZE)))
        return weakref.ref(large)

    kept = contextvars.Context().run(read)
    gc.collect()
    assert kept() is None
    contextvars.Context().run(read)
    assert raw.connections == 1


def test_fetcher_place_can_be_pickled() -> None:
    files = Http(ReadOptions(), Allowed(http=True, loopback=True), "s.d.t")
    assert pickle.loads(pickle.dumps(files)) == files


def test_proxy_credentials_are_sent_to_the_proxy_only() -> None:
    login = {"Proxy-Authorization": "Basic " + base64.b64encode(b"u:p").decode()}
    bare = "http://proxy:3128"
    assert http._proxy_arguments(None, "https") == http._proxy_arguments(None, "http") == ({}, {})
    for proxy, headers in (("http://proxy:3128", {}), ("http://u:p@proxy:3128", login)):
        through = {"proxy": bare, "proxy_headers": headers}
        assert http._proxy_arguments(proxy, "https") == (through, {})
        assert http._proxy_arguments(proxy, "http") == ({"proxy": bare}, headers)
        files = Http(ReadOptions(proxy=proxy), Allowed(), "s.d.t")
        for url in ("https://h/a?b", "HTTPS://h/a"):
            assert files._proxy(url) == (through, {})
        assert files._proxy("HTTP://h/a") == ({"proxy": bare}, headers)
        # The arguments are computed once for each host and port.
        assert files._proxy("https://h#x") is files._proxy("https://h?x") is files._proxy("https://h/y/z")
        assert sorted(files._proxies) == ["HTTP://h", "HTTPS://h", "https://h"]


def test_requested_range_is_in_the_headers() -> None:
    common = {"Accept-Encoding": "identity", "User-Agent": f"delta-sharing-client aiohttp/{aiohttp.__version__}"}
    for byte_range, version, more in (
        (None, None, {}),
        (ByteRange(3, 9), Version(), {"Range": "bytes=3-8"}),
        (7, Version('"1"', "then", 9), {"Range": "bytes=-7", "If-Match": '"1"'}),
    ):
        assert http._headers(byte_range, version) == common | more


class Answer:
    def __init__(self, status: int, **headers: str) -> None:
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


def test_range_of_a_response_must_be_the_requested_one() -> None:
    def span(status: int, requested: ByteRange | int | None = None, **headers: str) -> Span | str:
        try:
            return http._span(Answer(status, **headers), requested)  # type: ignore[arg-type]
        except DataError as error:
            return error.message

    for length, known in (
        ("7", 7),
        ("0", 0),
        ("", None),
        ("x", None),
        ("-1", None),
        ("\u0663", None),
        ("9" * 19, 10**19 - 1),
    ):
        assert span(200, Content_Length=length) == Span(0, known, known)
    assert span(200, Content_Length="9" * 20) == Span(0, None, None)
    for kind, is_html in (
        ("text/html", True),
        ("Text/HTML; charset=x", True),
        ("text/plain", False),
        ("a text/html", False),
    ):
        assert span(200, Content_Type=kind) == Span(0, None, None, is_html)
    part = ByteRange(10, 20)
    for header, expected in (
        ("bytes 10-19/90", Span(10, 20, 90)),
        (" Bytes  10-14/* ", Span(10, 15, None)),
        ("bytes 10-20/90", "Expected the bytes 10 to 20 of a data file, found 10 to 21."),
        ("bytes 9-19/90", "Expected the bytes 10 to 20 of a data file, found 9 to 20."),
        ("bytes 11-19/90", "Expected the bytes 10 to 20 of a data file, found 11 to 20."),
    ):
        assert span(206, part, Content_Range=header) == expected
    assert span(206, part, Content_Range="bytes 10-19/90", Content_Length="10") == Span(10, 20, 90)
    assert "but Content-Length is 9" in str(span(206, part, Content_Range="bytes 10-19/90", Content_Length="9"))
    assert "10 to 10" in str(span(206, part, Content_Range="bytes 10-9/90"))
    for none in ("", "bytes 10-19", "bytes=10-19/90", "bytes */90", "bytes 10-19/90x"):
        assert "found no valid one" in str(span(206, part, Content_Range=none))
    assert "found no valid one" in str(span(206, None, Content_Range="bytes 0-9/10"))
    for header, requested, expected in (
        ("bytes 80-89/90", 10, Span(80, 90, 90)),
        ("bytes 0-89/90", 90, Span(0, 90, 90)),
        ("bytes 81-89/90", 10, Span(81, 90, 90)),
        ("bytes 0-89/*", 100, Span(0, 90, 90)),
        ("bytes 80-89/*", 10, Span(80, 90, 90)),
        ("bytes 79-89/90", 10, "Expected the last 10 bytes of a data file, found 79 to 90 of 90."),
        ("bytes 80-88/90", 10, "Expected the last 10 bytes of a data file, found 80 to 89 of 90."),
        ("bytes 80-88/*", 10, "Expected the last 10 bytes of a data file, found 80 to 89 of None."),
    ):
        assert span(206, requested, Content_Range=header) == expected
    assert "sent Content-Encoding 'gzip'" in str(span(200, Content_Encoding="gzip"))
    assert span(200, Content_Encoding="identity") == Span(0, None, None)


def test_wait_times_out_at_its_deadline() -> None:
    async def ends(seconds: list[float], after: float, deadline: float | None = None) -> bool:
        timeout = asyncio.timeout(None)
        timer = http._RequestTimer(timeout, Deadline(deadline))
        try:
            async with timer:
                for each in seconds:
                    timer.restart(each)
                await asyncio.sleep(after)
                handle = timer._handle
        except TimeoutError:
            return True
        # A timer left running would keep the objects of the request alive.
        assert handle is not None
        assert handle.cancelled()
        return False

    async def look() -> None:
        far = 100.0
        assert await ends([0.01], far)
        # A shorter wait ends early, and a longer one lets the earlier timer expire without effect.
        assert await ends([far, 0.01], far)
        assert not await ends([0.01, far], 0.05)
        assert await ends([0.01, 0.03], far)
        assert await ends([far], far, deadline=0.01)
        assert not await ends([far], 0.0)

    asyncio.run(asyncio.wait_for(look(), HANGS / 2))


def test_timeout_error_distinguishes_connecting_and_reading(raw: Raw, fetch: Fetch) -> None:
    raw.answers, raw.pause = [[b""]], 1.0
    with pytest.raises(TransportError, match="no bytes within the time limit"):
        fetch(max_attempts=1, read_timeout=0.05)
    deaf = Deaf("127.0.0.1", 0)
    try:
        port = deaf._listener.getsockname()[1]
        fetcher = fetcher_of(max_attempts=1, connect_timeout=0.05)
        file = RemoteFile(fetcher, key="f", url=f"http://127.0.0.1:{port}/f", size=SIZE, file_id="f")
        with pytest.raises(TransportError, match=f"no connection to 127.0.0.1:{port} within the time limit"):
            loop.call(file.read(ByteRange(0, SIZE)))
    finally:
        deaf.close()


def test_body_is_read_as_it_arrives_and_its_speed_is_measured() -> None:
    waits: list[Any] = []

    class Content:
        def __init__(self, *ready: bytes, is_over: bool = False) -> None:
            self.ready, self.is_over = [*ready], is_over

        def read_nowait(self) -> bytes:
            return self.ready.pop(0) if self.ready else b""

        def at_eof(self) -> bool:
            return self.is_over

        async def readany(self) -> bytes:
            await asyncio.sleep(0.01)
            return b"late"

    def read(content: Content, **headers: str) -> tuple[bytes, Version, list[Any]]:
        waits.clear()
        answer = Answer(200, **headers)
        answer.content = content  # type: ignore[attr-defined]
        timer = SimpleNamespace(restart=waits.append)
        options = ReadOptions(read_timeout=7.0)
        body = http.HttpBody(answer, Span(0, 9, 9), Http(options, Allowed(), "t"), timer)  # type: ignore[arg-type]
        body._throughput = SimpleNamespace(note=lambda *what: waits.append(what))  # type: ignore[assignment]
        return asyncio.run(body.read()), body.version, waits

    assert read(Content(b"now"), ETag='"a"', Last_Modified="M") == (b"now", Version('"a"', "M", 9), [])
    assert read(Content(is_over=True), ETag='W/"a"') == (b"", Version("", "", 9), [])
    result, _, (seconds, (size, took)) = read(Content())
    assert (result, seconds, size) == (b"late", 7.0, 4)
    assert 0 < took < HANGS
