"""Responses that never end: every wait, response and operation has a limit, at every entry point."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import trustme

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.fetch.source import Fetcher, RemoteFile
from delta_sharing_client.http import request_limits
from delta_sharing_client.http.network import Allowed, Network
from delta_sharing_client.http.request_limits import RequestLimits
from delta_sharing_client.http.retry import Deadline, Transient
from delta_sharing_client.http.sessions import proxy_for
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.run import loop
from tests.http_server import Exchange, HttpServer
from tests.time_limits import SOON, Stopwatch

SIZE = 100_000

Script = Callable[[socket.socket], None]


class Hostile:
    """Reads one request from each connection, and lets the next of ``scripts`` respond to it; the last one is
    repeated."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.connections = 0
        self._closed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            received = b""
            while b"\r\n\r\n" not in received and received[:1] != b"\x16":  # a request, or a TLS ClientHello
                received += connection.recv(65536)
            script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
            script(connection)

    def drip(self, connection: socket.socket, piece: bytes, seconds: float = 0.02) -> None:
        while not self._closed.wait(seconds):
            connection.sendall(piece)

    def hold(self) -> None:
        self._closed.wait(20)

    def close(self) -> None:
        self._closed.set()
        self._listener.close()


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    server = Hostile()
    yield server
    server.close()


def ask_rest(url: str, options: ReadOptions) -> object:
    profile = {"shareCredentialsVersion": 1, "endpoint": url, "bearerToken": "t"}
    return ds.SharingClient(profile, options=options).list_shares()


def ask_query(url: str, options: ReadOptions) -> object:
    profile = {"shareCredentialsVersion": 1, "endpoint": url, "bearerToken": "t"}
    return ds.SharingClient(profile, options=options).table("s.d.t").scan().to_arrow()


def ask_oauth(url: str, options: ReadOptions) -> object:
    profile = {
        "shareCredentialsVersion": 2,
        "type": "oauth_client_credentials",
        "endpoint": url,
        "tokenEndpoint": f"{url}/token",
        "clientId": "c",
        "clientSecret": "s",
    }
    return ds.SharingClient(profile, options=options).list_shares()


def ask_data(url: str, options: ReadOptions) -> object:
    fetcher = Fetcher(SignedUrls(options, Allowed(http=True, loopback=True), "s.d.t"))
    file = RemoteFile(fetcher, key="f", url=f"{url}/f", size=SIZE, file_id="f")
    return loop.call(file.read(ByteRange(0, SIZE)))


DOORS = [ask_rest, ask_query, ask_oauth, ask_data]
Door = Callable[[str, ReadOptions], object]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def slow_body(server: Hostile) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        server.drip(connection, b"\n")

    return script


def slow_chunks(server: Hostile) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(CHUNKED)
        server.drip(connection, b"1\r\n\n\r\n")

    return script


def slow_header(server: Hostile) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
        server.drip(connection, b"x")

    return script


def endless_headers(server: Hostile) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in itertools.count():
            connection.sendall(b"X-%d: y\r\n" % number)

    return script


def endless_continue(server: Hostile) -> Script:
    return lambda connection: server.drip(connection, b"HTTP/1.1 100 Continue\r\n\r\n" * 10, 0.001)


def slow_error(server: Hostile) -> Script:
    def script(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad\r\nContent-Length: 1000000\r\n\r\n")
        server.drip(connection, b"x")

    return script


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("script", [slow_body, slow_chunks, slow_header, endless_headers, endless_continue, slow_error])
def test_response_that_trickles_slowly_is_an_error(
    hostile: Hostile, door: Door, script: Callable[[Hostile], Script]
) -> None:
    hostile.scripts = [script(hostile)]
    options = ReadOptions(read_timeout=0.15, min_bytes_per_second=1000, max_attempts=2, progress=False)
    clock = Stopwatch()

    with pytest.raises(DeltaSharingError):
        door(hostile.url, options)
    assert clock.within(SOON)
    assert hostile.connections <= 4


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("script", [slow_body, slow_header, endless_continue, lambda server: lambda _: server.hold()])
def test_total_timeout_ends_any_operation(hostile: Hostile, door: Door, script: Callable[[Hostile], Script]) -> None:
    hostile.scripts = [script(hostile)]
    options = ReadOptions(read_timeout=30, min_bytes_per_second=0, total_timeout=0.25, progress=False)
    clock = Stopwatch()

    with pytest.raises(TransportError, match="total_timeout"):
        door(hostile.url, options)
    assert clock.within(SOON)


@pytest.mark.parametrize("door", DOORS)
def test_retry_does_not_wait_longer_than_total_timeout(hostile: Hostile, door: Door) -> None:
    hostile.scripts = [lambda c: c.sendall(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: 20\r\n\r\n")]
    clock = Stopwatch()

    with pytest.raises(DeltaSharingError, match="5 seconds of 'total_timeout' leave no time"):
        door(hostile.url, ReadOptions(total_timeout=5, progress=False))
    assert clock.within(4)


def test_endless_pages_end_with_an_error(hostile: Hostile) -> None:
    tokens = itertools.count()

    def page(connection: socket.socket) -> None:
        body = json.dumps({"items": [{"name": "s"}], "nextPageToken": str(next(tokens))}).encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    hostile.scripts = [page]
    with pytest.raises(TransportError, match="total_timeout"):
        ask_rest(hostile.url, ReadOptions(total_timeout=0.5))


@pytest.mark.parametrize("door", [ask_rest, ask_data])
def test_body_of_a_redirect_is_not_read(hostile: Hostile, door: Door) -> None:
    def redirect(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 307 There\r\nLocation: /elsewhere\r\nContent-Length: 1000000000\r\n\r\n")
        hostile.drip(connection, b"x" * 100)

    def good(connection: socket.socket) -> None:
        body = b"{}" if door is ask_rest else bytes(SIZE)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    hostile.scripts = [redirect, good]
    clock = Stopwatch()

    door(hostile.url, ReadOptions(read_timeout=20))
    assert clock.within(SOON)


BROKEN_CHUNKS = [b"5\r\nab", b"5\r\nabcdeXX", b"zz\r\n", b"x" * 70_000 + b"\r\n", b"-5\r\nabcde\r\n", b""]


@pytest.mark.parametrize("door", [ask_rest, ask_data])
@pytest.mark.parametrize("broken", BROKEN_CHUNKS, ids=lambda broken: str(broken[:12]))
def test_invalid_chunk_is_retried(hostile: Hostile, door: Door, broken: bytes) -> None:
    body = b"{}" if door is ask_rest else bytes(SIZE)
    hostile.scripts = [
        lambda c: c.sendall(CHUNKED + broken),
        lambda c: c.sendall(CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)),
    ]

    door(hostile.url, ReadOptions(read_timeout=5))
    assert hostile.connections == 2


# --- measured time ---


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Unused:
    def settimeout(self, seconds: float) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    result = Clock()
    monkeypatch.setattr(request_limits, "time", SimpleNamespace(monotonic=result))
    return result


def read(watch: RequestLimits, clock: Clock, count: int, seconds: float) -> None:
    def wait() -> int:
        clock.now += seconds
        return count

    watch.read(Unused(), wait)  # type: ignore[arg-type]


def test_time_between_reads_does_not_count_as_slow(clock: Clock) -> None:
    watch = RequestLimits(ReadOptions(read_timeout=60, min_bytes_per_second=100), Deadline(None), "Asking", None)
    watch.head_is_complete()
    for _ in range(100):
        read(watch, clock, 50, 0.1)
        clock.now += 600  # the caller does something else

    read(watch, clock, 0, 100)  # the read at the end of a body returns no bytes


def test_throughput_is_measured_over_60_seconds(clock: Clock) -> None:
    watch = RequestLimits(ReadOptions(read_timeout=60, min_bytes_per_second=100), Deadline(None), "Asking", None)
    watch.head_is_complete()
    for _ in range(5):
        read(watch, clock, 6000, 59)
        read(watch, clock, 200, 2)
    for _ in range(58):
        read(watch, clock, 1, 1.03)
    with pytest.raises(Transient, match=r"59 bytes in 61 seconds are fewer"):
        read(watch, clock, 1, 1.03)


# --- proxies ---


@pytest.mark.parametrize(
    ("environment", "url", "expected"),
    [
        ({}, "https://h/x", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://h/x", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://h/x", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://h/x", None),
        ({"ALL_PROXY": "http://p:1"}, "https://h/x", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "h"}, "https://h/x", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"}, "https://a.example.com/x", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "https://10.1.2.3/x", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "other"}, "https://h/x", "http://p:1"),
    ],
)
def test_proxies_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], url: str, expected: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert proxy_for(Network.of(ReadOptions()), url) == expected


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("proxy", ["http://[::1", "http://h:port", "socks9://p:1", "://", "http://:1"])
def test_invalid_proxy_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, hostile: Hostile, door: Door, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    clock = Stopwatch()

    with pytest.raises(TransportError, match="proxy"):
        door("http://storage.invalid", ReadOptions(progress=False))
    assert clock.within(3)


@pytest.mark.parametrize(
    "location", ["http://[::1", "http://h:99999999/", "http://h:x/", "http://\u20ac:1:2/", "http:///x"]
)
@pytest.mark.parametrize("door", DOORS)
def test_redirect_to_an_invalid_url_raises_our_error(hostile: Hostile, door: Door, location: str) -> None:
    reply = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()
    hostile.scripts = [lambda c: c.sendall(reply)]
    clock = Stopwatch()

    with pytest.raises(DeltaSharingError):
        door(hostile.url, ReadOptions(max_attempts=2, progress=False))
    assert clock.within(SOON)


def test_http_response_on_an_https_port_fails_at_once(hostile: Hostile) -> None:
    url = hostile.url.replace("http:", "https:")
    for door in (ask_rest, ask_data):
        hostile.scripts = [lambda c: c.sendall(b"HTTP/1.1 400 Bad\r\n\r\n")]
        clock = Stopwatch()
        with pytest.raises((TransportError, ProtocolError), match="does not speak TLS"):
            door(url, ReadOptions())
        assert clock.within(3)


# --- TLS ---


class Secure(HttpServer):
    """An HTTPS server that counts requests; with ``wanted`` it requests a client certificate."""

    def __init__(self, authority: trustme.CA, wanted: bool = False) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        if wanted:
            authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        self.requests = 0
        super().__init__(self._send, context)

    def _send(self, exchange: Exchange) -> None:
        self.requests += 1
        body = b"{}" if exchange.path.startswith("/shares") else bytes(SIZE)
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", exchange.headers.get("Range", ""))
        if span is None:
            exchange.reply(200, body)
        else:
            headers = {"Content-Range": f"bytes {span[1]}-{span[2]}/{len(body)}"}
            exchange.reply(206, body[int(span[1]) : int(span[2]) + 1], headers)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def bundle(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("ca") / "bundle.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def make_secure(authority: trustme.CA) -> Iterator[Callable[..., Secure]]:
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Secure(authority, **options))


@pytest.mark.parametrize("door", [ask_rest, ask_data])
def test_ca_bundle_comes_from_options_or_the_environment(
    make_secure: Callable[..., Secure], bundle: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_secure()
    clock = Stopwatch()
    with pytest.raises(TransportError, match=r"certificate of 127\.0\.0\.1.* is not accepted .*REQUESTS_CA_BUNDLE"):
        door(server.url, ReadOptions())
    assert clock.within(3)
    door(server.url, ReadOptions(ca_bundle=bundle))
    with pytest.raises(TransportError, match=r"certificate of localhost.* is not accepted"):
        door(server.url.replace("127.0.0.1", "localhost"), ReadOptions(ca_bundle=bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", bundle)
    door(server.url, ReadOptions())


def test_certificates_changed_on_disk_are_reloaded(
    make_secure: Callable[..., Secure], bundle: str, tmp_path: Path
) -> None:
    server, own = make_secure(), tmp_path / "own.pem"
    own.write_text(Path(bundle).read_text())
    for door in (ask_rest, ask_data):
        door(server.url, ReadOptions(ca_bundle=str(own)))
    trustme.CA().cert_pem.write_to_path(str(own))
    os.utime(own, (1, 1))
    for door in (ask_rest, ask_data):
        with pytest.raises(TransportError, match="not accepted"):
            door(server.url, ReadOptions(ca_bundle=str(own)))


def test_certificates_are_loaded_once_for_many_connections(
    make_secure: Callable[..., Secure], bundle: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_text(Path(bundle).read_text())
    loaded: list[object] = []
    load = ssl.SSLContext.load_verify_locations
    monkeypatch.setattr(
        ssl.SSLContext, "load_verify_locations", lambda *given, **named: (loaded.append(1), load(*given, **named))
    )
    for server in (make_secure(), make_secure()):
        for door in (ask_rest, ask_data):
            door(server.url, ReadOptions(ca_bundle=str(own)))
    assert len(loaded) == 1


@pytest.mark.parametrize("door", [ask_rest, ask_data])
def test_certificates_are_not_loaded_for_plain_http(
    hostile: Hostile, door: Door, monkeypatch: pytest.MonkeyPatch, bundle: str, tmp_path: Path
) -> None:
    own = tmp_path / "own.pem"
    own.write_text(Path(bundle).read_text())
    loaded: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *given, **named: loaded.append(1))
    hostile.scripts = [lambda connection: connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")]
    with pytest.raises(DeltaSharingError, match="404"):
        door(hostile.url, ReadOptions(ca_bundle=str(own), max_attempts=1))
    assert not loaded


@pytest.mark.parametrize("door", [ask_rest, ask_data])
def test_client_certificate_is_sent(
    make_secure: Callable[..., Secure],
    authority: trustme.CA,
    bundle: str,
    door: Door,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    server, own = make_secure(wanted=True), authority.issue_cert("client.test")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "both.pem"))
    own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    own.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate.pem"))
    files = (str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem"))

    with pytest.raises(TransportError):
        door(server.url, ReadOptions(ca_bundle=bundle, max_attempts=1))
    door(server.url, ReadOptions(ca_bundle=bundle, client_certificate=str(tmp_path / "both.pem")))
    door(server.url, ReadOptions(ca_bundle=bundle, client_certificate=files))
    monkeypatch.setenv("DELTA_SHARING_CLIENT_CERTIFICATE", str(tmp_path / "both.pem"))
    door(server.url, ReadOptions(ca_bundle=bundle))


@pytest.mark.parametrize("name", ["ca_bundle", "client_certificate"])
@pytest.mark.parametrize("door", [ask_rest, ask_data])
def test_error_names_the_option_of_a_bad_certificate_file(
    make_secure: Callable[..., Secure], bundle: str, door: Door, name: str, tmp_path: Path
) -> None:
    url = make_secure().url
    (tmp_path / "empty.pem").write_text("nothing")
    for file, error in (("missing.pem", ds.UsageError), ("empty.pem", TransportError)):
        with pytest.raises(error, match=name):
            door(url, ReadOptions(**{"ca_bundle": bundle, name: str(tmp_path / file)}))


def test_connections_and_tls_sessions_are_reused(make_secure: Callable[..., Secure], bundle: str) -> None:
    server = make_secure()
    options = ReadOptions(ca_bundle=bundle, max_concurrent_requests=4)
    fetcher = Fetcher(SignedUrls(options, Allowed(loopback=True), "s.d.t"))

    async def work() -> None:
        for start in range(0, 25_000, 1000):
            file = RemoteFile(fetcher, key="f", url=f"{server.url}/f?n={start}", size=SIZE, file_id="f")
            await file.read(ByteRange(start, start + 1000))

    async def all_of_it() -> None:
        await asyncio.gather(*(work() for _ in range(4)))

    loop.call(all_of_it())
    assert server.requests == 100
    assert server.connections <= 4

    profile = {"shareCredentialsVersion": 1, "endpoint": server.url, "bearerToken": "t"}
    client = ds.SharingClient(profile, options=options)
    before = server.connections
    for _ in range(10):
        client.list_shares()
    assert server.connections == before + 1


class Tunnel:
    """A proxy that allows CONNECT to one server if the password is right."""

    def __init__(self, server: Secure) -> None:
        self.seen: list[bytes] = []
        self._target = urlsplit(server.url).port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://user:planted@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            self.seen.append(head)
            if b"Basic " + base64.b64encode(b"user:planted") not in head:
                client.sendall(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", self._target or 0)) as server:
                client.sendall(b"HTTP/1.1 200 There\r\n\r\n")
                threading.Thread(target=self._pass, args=(server, client), daemon=True).start()
                self._pass(client, server)

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize("door", [ask_rest, ask_data])
def test_https_uses_a_proxy_tunnel(make_secure: Callable[..., Secure], bundle: str, door: Door) -> None:
    server = make_secure()
    tunnel = Tunnel(server)
    try:
        door(server.url, ReadOptions(ca_bundle=bundle, proxy=tunnel.url))
        assert server.requests == len(tunnel.seen) == 1
        assert tunnel.seen[0].startswith(b"CONNECT 127.0.0.1:")
        wrong = tunnel.url.replace("planted", "secret-word")
        clock = Stopwatch()
        with pytest.raises(TransportError, match=r"the proxy refuses the connection \(HTTP status 407\)") as caught:
            door(server.url, ReadOptions(ca_bundle=bundle, proxy=wrong))
        assert "secret-word" not in str(caught.value)
        assert clock.within(3)
    finally:
        tunnel.close()


@pytest.mark.parametrize("door", [ask_rest, ask_oauth, ask_data])
def test_proxy_may_be_given_as_an_option(hostile: Hostile, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def refuse(connection: socket.socket) -> None:
        asked.append(b"")
        connection.sendall(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")

    hostile.scripts = [refuse]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    proxy = hostile.url.replace("//", "//planted:planted@")

    assert "planted" not in repr(ReadOptions(proxy=proxy))
    with pytest.raises(DeltaSharingError, match="407") as caught:
        door("http://storage.invalid", ReadOptions(proxy=proxy, max_attempts=1))
    assert asked
    assert "planted" not in str(caught.value)
    with pytest.raises(TransportError, match=r"storage\.invalid cannot be resolved"):
        door("http://storage.invalid", ReadOptions(proxy="", max_attempts=1))
