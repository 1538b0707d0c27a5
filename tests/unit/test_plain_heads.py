"""Heads of answers that one regular expression reads: what it says is what http.client says, or it says nothing."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.connections import Pool, Watch, _plain_head, sending
from delta_sharing_client.fetch.http import _PLAIN_URL
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.retry import Deadline, Transient

BODY = b"0123456789"
HEADERS = {"Accept-Encoding": "identity", "Range": "bytes=0-9", "User-Agent": "us"}
NAMES = st.sampled_from(
    ["Content-Length", "content-length", "ETag", "Connection", "Transfer-Encoding", "X", "X Y", "", "Last-Modified"]
)
VALUES = st.one_of(
    st.sampled_from(
        ["10", "0", "-1", "+5", "1_0", "\u0663", '"abc"', "close", "keep-alive", "Keep-Alive", "chunked", ""]
    ),
    st.text(st.characters(max_codepoint=255), max_size=8),
)
LINES = st.builds(
    lambda name, between, value, end: f"{name}{between}{value}{end}".encode("latin-1", "replace"),
    NAMES,
    st.sampled_from([":", ": ", ":\t ", " : ", " "]),
    VALUES,
    st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r\n folded\r\n"]),
)
STATUS = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK", b"HTTP/1.1 206 ", b"HTTP/1.1 206", b"HTTP/1.0 200 OK", b"HTTP/1.1 100 Continue", b"no"),
        *(b"HTTP/1.1 204 No Content", b"HTTP/1.1 503 Slow Down", b"HTTP/1.1 2000 OK", b"ICY 200 OK", b""),
    ]
)


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._data))  # type: ignore[type-var]


@given(STATUS, st.lists(LINES, max_size=5))
def test_what_is_plain_is_read_as_http_client_reads_it(status: bytes, lines: list[bytes]) -> None:
    head = status + b"\r\n" + b"".join(lines) + b"\r\n"
    found = _plain_head(bytearray(head[: head.find(b"\r\n\r\n") + 4]))
    if found is None:
        return
    code, headers, length, keep = found
    response = HTTPResponse(_Bytes(head + BODY), method="GET")  # type: ignore[arg-type]
    response.begin()
    assert (code, length) == (response.status, response.length)
    assert keep is not response.will_close
    assert {name.lower(): value.strip(" \t") for name, value in response.getheaders()} == headers
    assert headers.get("CONTENT-length") == str(response.getheader("Content-Length")).strip()


def test_the_plainest_head_is_plain() -> None:
    head = b'HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\netag: "a"\r\nDate: Sat, 21 Nov 2026\r\n\r\n'
    found = _plain_head(bytearray(head))
    assert found is not None
    assert (found[0], found[1].get("ETag"), found[2], found[3]) == (206, '"a"', 10, True)


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[Pool, list[bytes], list[int]]]:
    """Serve the answers, one a request, and count connections."""
    requests: list[bytes] = []
    connections: list[int] = []
    left = list(answers)
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while left:
            sock, _ = server.accept()
            connections.append(1)
            with sock:
                while left and (data := sock.recv(65536)):
                    requests.append(data)
                    answer = left.pop(0)
                    sock.sendall(answer)
                    if b"close" in answer or not answer:
                        break

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        with server, Pool("127.0.0.1", server.getsockname()[1]) as pool:
            yield pool, requests, connections
    finally:
        thread.join(10)


def ask(pool: Pool) -> tuple[int, bytes]:
    watch = Watch(ReadOptions(read_timeout=5), Deadline(None), "Asking", None)
    with sending(watch):
        answer = pool.get("/file?x=%20y", HEADERS, 5, 5)
    body = bytearray(100)
    count, view = 0, memoryview(body)
    readinto = getattr(answer, "_fp", answer).readinto
    while got := readinto(view[count:]):
        count += got
    answer.release_conn()
    return answer.status, bytes(body[:count])


def plain(extra: bytes = b"", body: bytes = BODY) -> bytes:
    return b"HTTP/1.1 206 Partial\r\nContent-Length: 10\r\n" + extra + b"\r\n" + body


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + plain()


@pytest.mark.parametrize(
    ("second", "status", "connections"),
    [
        (plain(), 206, 1),
        (plain(b"X: " + b"y" * 10_000 + b"\r\n"), 206, 1),
        (CHUNKED, 200, 1),
        (CONTINUED, 206, 1),
        (plain(b"X: 1\r\n folded\r\n"), 206, 1),
        (plain(b"Connection: close\r\n"), 206, 2),
        (b"HTTP/1.0 200 close\r\nContent-Length: 10\r\n\r\n" + BODY, 200, 2),
    ],
    ids=["plain", "long", "chunked", "continue", "folded", "close", "old"],
)
def test_every_head_is_answered_over_a_connection_that_exists(second: bytes, status: int, connections: int) -> None:
    with answering(plain(), second, plain()) as (pool, requests, made):
        assert ask(pool) == (206, BODY)
        assert ask(pool) == (status, BODY)
        assert ask(pool) == (206, BODY)
    assert len(made) == connections
    first, *others = [sorted(request.split(b"\r\n")) for request in requests]
    for other in others:
        assert other == first  # which urllib3 has sent


def test_bytes_behind_the_body_end_the_connection() -> None:
    with answering(plain(), plain(body=BODY + b"HTTP/1.1 200 OK\r\n"), plain()) as (pool, _, made):
        assert [ask(pool) for _ in range(3)] == [(206, BODY)] * 3
    assert len(made) == 2


@pytest.mark.parametrize("cut", [b"", b"HTTP/1", b"HTTP/1.1 2\xff6 Partial\r\n\r\n"])
def test_a_head_that_is_none_is_an_error_of_the_library(cut: bytes) -> None:
    with answering(plain(), cut + b" close" if cut else b"") as (pool, _, _made):
        ask(pool)
        with pytest.raises((HTTPException, urllib3.exceptions.HTTPError, OSError, Transient)):
            ask(pool)


def test_a_plain_url_is_one_whose_target_goes_out_as_it_is() -> None:
    match = _PLAIN_URL.match("https://bucket.s3.amazonaws.com:8443/a%20b/c.parquet?X-Amz-Signature=1&x=%2F")
    assert match is not None
    assert match.groups() == ("https", "bucket.s3.amazonaws.com", "8443", "/a%20b/c.parquet?X-Amz-Signature=1&x=%2F")
    for other in (
        "https://user@host/x",
        "https://Host/x",
        "http://[::1]/x",
        "http://host",
        "http://host?x",
        "http://host/a b",
        "http://host/a%2",
        "http://host/a#b",
        "http://host/a\n",
        "http://host:70000/a",
        "http://host:0/a",
        "ftp://host/a",
    ):
        assert _PLAIN_URL.match(other) is None, other
    # Linear, however it ends.
    assert _PLAIN_URL.match("https://host/" + "a%20" * 50_000 + "\x00") is None
