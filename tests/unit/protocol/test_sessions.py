"""Responses read from a socket: whole or cut off, with unusual headers, and with bytes after their end."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import pickle
import socket
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest
import requests

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError, ProtocolError
from delta_sharing_client.http import sessions
from delta_sharing_client.http.network import Reach
from delta_sharing_client.http.request_limits import Interrupt, RequestLimits
from delta_sharing_client.http.retry import Deadline, Transient
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.raw_server import FOR_EVER, Raw, pause

BODY = json.dumps({"items": [{"name": "whole"}]}).encode()
VERSION = b"HTTP/1.1 200 OK\r\nDelta-Table-Version: 123\r\nContent-Length: 0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@pytest.fixture
def client(raw: Raw, bundle: str) -> ds.SharingClient:
    profile = {"shareCredentialsVersion": 1, "endpoint": raw.url, "bearerToken": "planted"}
    options = ReadOptions(ca_bundle=bundle, read_timeout=30.0, max_attempts=3)
    return ds.SharingClient(profile, options=options)


def shares(client: ds.SharingClient) -> list[str]:
    return [str(share.name) for share in client.list_shares()]


def test_response_cut_anywhere_in_its_header_is_retried(raw: Raw, client: ds.SharingClient) -> None:
    cuts = range(len(VERSION))
    raw.answers = [answer for cut in cuts for answer in (VERSION[:cut], VERSION)]
    assert [client.table("s.d.t").version() for _ in cuts] == [123] * len(cuts)
    assert len(raw.requests) == 2 * len(cuts)


def test_interim_responses_are_skipped(raw: Raw, client: ds.SharingClient) -> None:
    interim = (
        b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\nContent-Length: 5\r\n\r\nHTTP/1.1 100 Go\r\n\r\n"
    )
    raw.answers = [interim + HEAD + BODY]
    assert shares(client) == ["whole"]
    assert len(raw.requests) == 1


def test_header_with_bare_line_feeds_is_read(raw: Raw, client: ds.SharingClient) -> None:
    raw.answers = [HEAD.replace(b"\r", b"") + BODY]
    raw.close_after = False
    clock = Stopwatch()
    assert shares(client) == ["whole"]
    assert clock.within(SOON)


STRAY = HEAD + json.dumps({"items": [{"name": "stray"}]}).encode()


@pytest.mark.parametrize(
    "responses",
    [
        [HEAD + BODY + STRAY],
        [[HEAD + BODY, STRAY]],
        [[HEAD + BODY, STRAY[:10], STRAY[10:]]],
        [HEAD + BODY + b"\r\n"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n%s" % (len(BODY), BODY, STRAY)],
    ],
    ids=["with the body", "after the body", "in pieces", "a line end", "chunks"],
)
def test_trailing_bytes_are_not_taken_for_a_response(
    raw: Raw, client: ds.SharingClient, responses: list[bytes | list[bytes]]
) -> None:
    raw.close_after = False
    raw.answers = [*responses, HEAD + BODY]
    assert shares(client) == ["whole"]
    pause(0.2)  # until the bytes have arrived
    assert shares(client) == ["whole"]


def test_connection_without_trailing_bytes_is_reused(raw: Raw, client: ds.SharingClient) -> None:
    raw.close_after = False
    raw.answers = [HEAD + BODY]
    for _ in range(5):
        assert shares(client) == ["whole"]
    assert raw.connections == 1


@pytest.mark.parametrize("line", [b"X: y\r\n", b"x" * 1000])
def test_endless_trailers_end_with_an_error(raw: Raw, client: ds.SharingClient, line: bytes) -> None:
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
    raw.answers = [endless + (1_000_000 // len(line)) * line]
    raw.close_after = False
    clock = Stopwatch()
    with pytest.raises(DeltaSharingError, match=r"cut off or is not HTTP.* Tried 3 times"):
        shares(client)
    assert clock.within(SOON)


def test_headers_that_drip_end_with_an_error(raw: Raw, bundle: str) -> None:
    """Each byte comes in time, but the headers never end; the request for a token before it has limits of its own."""
    token = b'{"access_token": "planted", "expires_in": 3600}'
    drip = [b"HTTP/1.1 200 OK\r\n", *[b"X: y\r\n"] * 100]
    raw.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(token), token), drip]
    login = {"type": "oauth_client_credentials", "clientId": "c", "clientSecret": "planted"}
    profile = {"shareCredentialsVersion": 2, "endpoint": raw.url, "tokenEndpoint": f"{raw.url}/token", **login}
    options = ReadOptions(ca_bundle=bundle, read_timeout=0.5, max_attempts=1)
    raw.pause = 0.1
    with pytest.raises(DeltaSharingError, match=r"headers of the response are not complete after 0\.5 s"):
        ds.SharingClient(profile, options=options).list_shares()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize(
    ("response", "accepted"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", b""),
        (CHUNKED + 100_000 * b"X: y\r\n" + b"\r\n", BODY),
        ([HEAD[:10], *(HEAD[at : at + 1] for at in range(10, len(HEAD))), BODY], BODY),
    ],
    ids=["a cut head", "trailers without end", "a head that drips"],
)
def test_requests_alone_accepts_the_attack(
    raw: Raw, bundle: str, response: bytes | list[bytes], accepted: bytes
) -> None:
    """If one of these fails, a hook of ``http.sessions`` is no longer needed."""
    raw.answers, raw.pause = [response], 0.1
    assert requests.get(raw.url, timeout=0.5, verify=bundle).content == accepted


@pytest.mark.parametrize("raw", ["tls"], indirect=True)
def test_requests_alone_mistakes_trailing_bytes_for_a_response(raw: Raw, client: ds.SharingClient, bundle: str) -> None:
    """They arrive in one TLS record with the body, but do not fit into the buffer of ``http.client``."""
    body = BODY.ljust(io.DEFAULT_BUFFER_SIZE - len(HEAD) - 2)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    raw.close_after, raw.answers = False, [head + body + STRAY, HEAD + BODY]
    with requests.Session() as session:
        assert session.get(raw.url, verify=bundle).content == body
        assert b"stray" in session.get(raw.url, verify=bundle).content
    raw.answers = [head + body + STRAY, HEAD + BODY]
    assert shares(client) == shares(client) == ["whole"]


def test_connections_are_shared_until_closed_or_forked(
    raw: Raw, client: ds.SharingClient, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw.close_after = False
    raw.answers = [HEAD + BODY]
    read = client._rest.for_read(ReadOptions(ca_bundle=bundle))
    assert len(read.list_shares()) == len(shares(client)) == 1
    assert raw.connections == 1
    client.close()
    client.close()
    assert len(read.list_shares()) == len(shares(client)) == 1
    assert raw.connections == 2
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert len(shares(client)) == len(read.list_shares()) == 1
    assert raw.connections == 3
    assert len(pickle.loads(pickle.dumps(read)).list_shares()) == 1
    assert raw.connections == 4


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1:{port}\\@{good}/", "//127.0.0.1:{port}\\@{good}/", "/\\127.0.0.1:{port}/"]
)
def test_redirect_with_a_backslash_is_refused(raw: Raw, client: ds.SharingClient, location: str) -> None:
    attacker = Raw()
    attacker.answers = [HEAD + BODY]
    try:
        target = location.format(port=attacker.url.rpartition(":")[2], good=raw.url.rpartition("/")[2])
        raw.answers = [f"HTTP/1.1 307 There\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()]
        with pytest.raises(ProtocolError, match="backslash"):
            shares(client)
        assert attacker.requests == []
    finally:
        attacker.close()


@pytest.mark.parametrize(
    ("earlier", "sent"),
    [([], b""), ([], b"HTTP/1.1 200"), ([], HEAD + BODY[:3]), ([HEAD + BODY], b"")],
    ids=["nothing", "half a header", "half a body", "nothing over a connection that was used before"],
)
def test_interrupt_ends_waits_on_another_thread(raw: Raw, bundle: str, earlier: list[bytes], sent: bytes) -> None:
    raw.answers, raw.pause, raw.close_after = [*earlier, [sent, b""]], FOR_EVER, False
    profile = Profile.load({"shareCredentialsVersion": 1, "endpoint": raw.url, "bearerToken": "planted"})
    options = ReadOptions(ca_bundle=bundle, read_timeout=FOR_EVER, max_attempts=2)
    rest, interrupt = RestClient(profile, options), Interrupt()
    results: list[BaseException | float] = []
    for _ in earlier:
        rest.list_shares()

    def fetch() -> None:
        operation = rest.operation(interrupt)
        try:
            operation.fetch(rest.metadata_request(AssetName.parse("s.d.t"), {}, None, None))
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    while len(raw.requests) == len(earlier) and thread.is_alive():
        pause(0.01)
    pause(0.1)
    assert raw.connections == 1
    clock = Stopwatch()
    interrupt.set()
    thread.join(HANGS)
    assert clock.within(SOON)
    assert isinstance(results[0], (CancelledError, DeltaSharingError))
    with pytest.raises(CancelledError):
        interrupt.check()


def test_interrupt_ends_a_tls_handshake(bundle: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))  # accepts connections and sends nothing
    profile = {
        "shareCredentialsVersion": 1,
        "endpoint": f"https://127.0.0.1:{listener.getsockname()[1]}",
        "bearerToken": "t",
    }
    rest, interrupt = RestClient(Profile.load(profile), ReadOptions(ca_bundle=bundle, connect_timeout=20)), Interrupt()
    timer = threading.Timer(0.3, interrupt.set)
    timer.start()
    clock = Stopwatch()
    with listener, pytest.raises((CancelledError, DeltaSharingError)):
        rest.operation(interrupt).fetch(rest.metadata_request(AssetName.parse("s.d.t"), {}, None, None))
    assert clock.within(SOON)
    timer.join()


def test_response_of_many_small_chunks_is_accepted(
    raw: Raw, client: ds.SharingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The length limit applies to the size line of each chunk, not to all of them together."""
    monkeypatch.setattr(sessions, "_LONGEST_HEAD", 200)
    chunks = b"".join(b"3\r\n%s\r\n" % BODY[at : at + 3] for at in range(0, len(BODY) // 3 * 3, 3))
    rest = BODY[len(BODY) // 3 * 3 :]
    last = b"%x\r\n%s\r\n" % (len(rest), rest) if rest else b""
    padding = b"3\r\n   \r\n" * 100
    raw.answers = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + last + padding + b"0\r\n\r\n"]
    assert shares(client) == ["whole"]


def test_token_request_is_a_streamed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {}

    def send(self: object, request: requests.PreparedRequest, **keywords: Any) -> None:
        arguments.update(keywords, headers=request.headers, data=request.body)
        raise requests.exceptions.ConnectionError

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    options = ReadOptions(connect_timeout=3, read_timeout=4)
    with pytest.raises(Transient):
        sessions.exchange(
            "POST",
            "https://h/",
            RequestLimits(options, Deadline(None), "Asking", None),
            limit=9,
            headers={"X": "y"},
            data={"a": "b"},
        )
    assert (arguments["timeout"], arguments["stream"]) == ((3, 4), True)
    assert (arguments["data"], arguments["headers"]["X"]) == ("a=b", "y")


# === Bytes of one response ===


def source(data: bytes, sock: socket.socket | None = None, interrupt: Interrupt | None = None) -> sessions._Source:
    """Return a reader of a response whose bytes are ``data`` instead of coming from a connection."""
    watch = RequestLimits(ReadOptions(), Deadline(None), "Reading", None, interrupt)
    return sessions._Source(io.BytesIO(data), sock or object(), watch)  # type: ignore[arg-type]


def test_interrupt_after_a_response_keeps_the_connection() -> None:
    client_socket, server_socket = socket.socketpair()
    interrupt = Interrupt()
    with client_socket, server_socket:
        response = source(b"abc", client_socket, interrupt)
        interrupt.use(client_socket)
        response.close()
        interrupt.set()
        server_socket.sendall(b"next")
        client_socket.settimeout(HANGS)
        assert client_socket.recv(4) == b"next"


def test_length_of_the_lines_before_a_body_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_LONGEST_HEAD", 10)
    for read, is_reset in (
        (lambda lines: lines.read(2), False),
        (lambda lines: lines.read(3), True),
        (lambda lines: lines.read1(1), True),
    ):
        lines = sessions._Lines(source(b"12345678\r\n" + b"abc" + b"1\r\n" + b"x" * 30))
        assert lines.readline() == b"12345678\r\n"
        read(lines)
        if is_reset:
            lines.readline(6)
        else:
            with pytest.raises(http.client.LineTooLong):
                lines.readline(6)
    # All lines have the maximum length.
    lines = sessions._Lines(source(2 * (b"abc" + b"12345678\r\n")))
    for read in (lines.read, lines.read1):
        assert (read(3), lines.readline()) == (b"abc", b"12345678\r\n")
    lines = sessions._Lines(source(b"12345678\r\n" + b"abc"))
    lines.readline()
    assert lines.read(None) == b"abc"
    assert lines.readline() == b""


@pytest.mark.parametrize(
    ("data", "head"),
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
        (b"HTTP/1.1 200 OK\n\nbody", b"HTTP/1.1 200 OK\n\n"),
        (b"HTTP/1.1 100 Go\r\n\r\nHTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"),
        (b"HTTP/1.1 101 Other\r\n\r\nHTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.1 101 Other\r\n\r\n"),
        (b"HTTP/1.0 199 X\n\nHTTP/1.1 103 Y\r\nA: b\r\n\r\nHTTP/1.0 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"),
    ],
)
def test_header_ends_with_a_blank_line(data: bytes, head: bytes) -> None:
    assert sessions._Lines(source(data)).head() == head


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", http.client.RemoteDisconnected),
        (b"HTTP/1.1 100 Go\r\n\r\n", http.client.RemoteDisconnected),
        (b"HTTP/1.1 200 OK", http.client.IncompleteRead),
        (b"HTTP/1.1 200 OK\r\n", http.client.IncompleteRead),
        (b"HTTP/1.1 200 OK\r\nA: b", http.client.IncompleteRead),
    ],
)
def test_truncated_header_is_not_accepted(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        sessions._Lines(source(data)).head()


# === Addresses ===


@pytest.mark.parametrize("in_loop", [False, True])
def test_unreachable_addresses_of_a_server_delay_no_request(
    raw: Raw, many_addresses: str, bundle: str, in_loop: bool
) -> None:
    profile = {"shareCredentialsVersion": 1, "endpoint": many_addresses, "bearerToken": "planted"}
    client = ds.SharingClient(profile, options=ReadOptions(connect_timeout=FOR_EVER, ca_bundle=bundle))
    raw.answers = [HEAD + BODY]

    async def list_shares() -> list[str]:
        return shares(client)  # as in a cell of a notebook

    assert (asyncio.run(list_shares()) if in_loop else shares(client)) == ["whole"]


@pytest.mark.parametrize("in_loop", [False, True])
def test_addresses_are_tried_in_parallel_with_one_deadline(
    many_addresses: str, monkeypatch: pytest.MonkeyPatch, in_loop: bool
) -> None:
    port = int(many_addresses.rpartition(":")[2])
    unreachable = [
        each for each in socket.getaddrinfo("many.test", port, type=socket.SOCK_STREAM) if each[4][0] != "127.0.0.1"
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: unreachable)

    async def connect() -> socket.socket:
        return sessions.connected("many.test", port, 0.6, Reach.ANY)

    with pytest.raises(TimeoutError):
        asyncio.run(connect()) if in_loop else sessions.connected("many.test", port, 0.6, Reach.ANY)
