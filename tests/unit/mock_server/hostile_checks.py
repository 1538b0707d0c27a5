"""Checks of the hostile faults. Each compares what a client receives from the socket."""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests

from mock_server.running import RunningServer
from tests.time_limits import HANGS, Stopwatch
from tests.unit.mock_server.helpers import Api

TABLE = "shares/default/schemas/default/tables/plain"


def pour(server: RunningServer, most: int, seconds: float = 2.0, path: str = f"{TABLE}/metadata") -> bytes:
    """Return the bytes of a response received within ``seconds``, at most ``most``, and close the connection."""
    parts = urlsplit(server.endpoint)
    data, deadline = b"", time.monotonic() + seconds
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=seconds) as connection:
        lines = [f"GET {parts.path}{path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
        lines += [f"Authorization: Bearer {server.profile['bearerToken']}", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        while len(data) < most and time.monotonic() < deadline:
            piece = connection.recv(65536)
            if not piece:
                break
            data += piece
    return data


def check_throttle(api: Api) -> None:
    url = api.query("plain").urls[0]
    api.server.set_fault("slow=0.3@data")
    api.server.set_fault("throttle=2@data")
    answers: list[requests.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(api.fetch(url))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [answer for answer in answers if answer.status_code == 429]
    assert 1 <= len(refused) <= 3
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert api.fetch(url).status_code == 200
    # An accepted request does not count as a use of the fault.
    api.server.set_fault("throttle=1:1@data")
    assert [api.fetch(url).status_code for _ in range(3)] == [200, 200, 200]
    api.server.set_fault("throttle=0:1@data")
    assert [api.fetch(url).status_code for _ in range(2)] == [429, 200]
    # A refused request with an invalid URL adds no file to the counters.
    api.server.set_fault("throttle=0:1@data")
    assert api.session.get(urljoin(url, "unknown-file")).status_code == 429
    assert not [name for name in api.server.stats()["files"] if "unknown-file" in name]


def check_redirect(api: Api) -> None:
    api.server.set_fault("redirect=5000:1")
    response = api.session.get(f"{api.server.endpoint}shares?maxResults=1", allow_redirects=False)
    assert (response.status_code, len(response.content)) == (307, 5000)
    assert response.headers["location"] == f"{api.server.endpoint}shares?maxResults=1"
    api.server.set_fault("redirect=5:1")
    assert api.get("shares").status_code == 200


def check_bad_redirect(api: Api) -> None:
    api.server.set_fault("bad-redirect:1")
    data = pour(api.server, 10**6)
    assert data.startswith(b"HTTP/1.1 307 ")
    assert b"location: http://[::1\r\n" in data


def check_error_body(api: Api) -> None:
    api.server.set_fault("error-body:1")
    assert len(pour(api.server, 3_000_000)) >= 3_000_000
    api.server.set_fault("error-body=10:1")
    response = api.get("shares")
    assert (response.status_code, len(response.content)) == (503, 10)


def check_endless_headers(api: Api) -> None:
    api.server.set_fault("endless-headers:1")
    data = pour(api.server, 1_000_000)
    assert len(data) >= 1_000_000
    assert b"\r\n\r\n" not in data


def check_endless_continue(api: Api) -> None:
    api.server.set_fault("endless-continue:1")
    data = pour(api.server, 1_000_000)
    assert data.startswith(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
    assert b" 200 " not in data


def check_slow_headers(api: Api) -> None:
    api.server.set_fault("slow-headers=0.05:1")
    clock = Stopwatch()
    data = pour(api.server, 10, seconds=HANGS)
    assert clock.seconds >= 0.05 * (len(data) - 1)
    assert len(data) >= 10


def check_endless_lines(api: Api) -> None:
    api.server.set_fault("endless-lines:1")
    data = pour(api.server, 1_000_000)
    assert data.count(b'{"file":{"id":"x"') > 1000


def check_blank_lines(api: Api) -> None:
    api.server.set_fault("blank-lines:1")
    assert pour(api.server, 1_000_000).count(b"\n" * 1000) > 100


def check_bad_chunk(api: Api) -> None:
    api.server.set_fault("bad-chunk:1")
    head, _, body = pour(api.server, 200_000).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"1" * 100_000 + b"\r\n"


def check_trickle(api: Api) -> None:
    whole = api.get(f"{TABLE}/metadata").content
    api.server.set_fault("trickle=0.02:1")
    _, _, body = pour(api.server, 10**6, seconds=0.5).partition(b"\r\n\r\n")
    assert 2 <= len(body) <= 30
    assert whole.startswith(body)


def check_cut_chunked(api: Api) -> None:
    api.server.set_fault("cut-chunked:1")
    head, _, body = pour(api.server, 10**6).partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    size, _, data = body.partition(b"\r\n")
    assert 0 < len(data) < int(size, 16)


def check_gzip(api: Api) -> None:
    whole = api.query("plain").all
    api.server.set_fault("gzip")
    lines = api.query("plain")
    assert lines.headers["content-encoding"] == "gzip"
    assert [line.keys() for line in lines.all] == [line.keys() for line in whole]


def check_cut_gzip(api: Api) -> None:
    whole = api.get(f"{TABLE}/metadata").content
    api.server.set_fault("cut-gzip=0.5:1")
    head, _, body = pour(api.server, 10**6).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head.lower()
    decoder = zlib.decompressobj(wbits=31)
    text = decoder.decompress(body)
    assert not decoder.eof
    assert text.endswith(b"\n")
    assert whole.startswith(text)
    assert len(text) < len(whole)


def check_replaced(api: Api) -> None:
    folder = Path(os.fsdecode(api.server.app.catalog.last.tables[0].location)).parent / "plain"  # type: ignore[attr-defined]
    url = api.query("plain").urls[0]
    path = folder / urlsplit(url).path.split("/", 3)[3].replace("%3D", "=")
    other = path.with_name(f"{path.name}.replaced")
    other.write_bytes(path.read_bytes()[::-1])
    try:
        api.server.set_fault("replaced-after=1")
        first, second = api.fetch(url), api.fetch(url)
        assert second.content == first.content[::-1]
        assert first.headers["etag"] != second.headers["etag"]
        assert api.fetch(url, If_Match=first.headers["etag"]).status_code == 412
        assert api.fetch(url, If_Match=second.headers["etag"], Range="bytes=0-3").status_code == 206
        assert api.fetch(url, If_Range=first.headers["etag"], Range="bytes=0-3").status_code == 200
        assert api.fetch(url, If_Range=second.headers["etag"], Range="bytes=0-3").status_code == 206
    finally:
        other.unlink()


def check_no_etag(api: Api) -> None:
    api.server.set_fault("no-etag")
    response = api.fetch(api.query("plain").urls[0], Range="bytes=0-3")
    assert (response.status_code, "etag" in response.headers) == (206, False)
    assert api.fetch(api.query("plain").urls[0], If_Match='"x"').status_code == 412


def check_weak_etag(api: Api) -> None:
    api.server.set_fault("weak-etag")
    tag = api.fetch(api.query("plain").urls[0]).headers["etag"]
    assert tag.startswith('W/"')
    assert api.fetch(api.query("plain").urls[0], If_Match=tag).status_code == 412
    assert api.fetch(api.query("plain").urls[0], If_Range=tag, Range="bytes=0-3").status_code == 200


def check_no_last_modified(api: Api) -> None:
    url = api.query("plain").urls[0]
    long_ago = "Thu, 01 Jan 1970 00:00:00 GMT"
    assert api.fetch(url, If_Unmodified_Since=long_ago).status_code == 412
    assert api.fetch(url, If_Unmodified_Since=api.fetch(url).headers["last-modified"]).status_code == 200
    assert api.fetch(url, If_Unmodified_Since="nonsense").status_code == 200
    api.server.set_fault("no-last-modified")
    assert "last-modified" not in api.fetch(url).headers
    assert api.fetch(url, If_Unmodified_Since=long_ago).status_code == 200


def check_endless_pages(api: Api) -> None:
    api.server.set_fault("endless-pages")
    tokens, token = set(), ""
    for _ in range(5):
        token = str(api.query("plain", maxFiles=1, **({"pageToken": token} if token else {})).end["nextPageToken"])  # type: ignore[index]
        tokens.add(token)
    token = ""
    for _ in range(5):
        token = api.get(f"shares?pageToken={token}").json()["nextPageToken"]
        tokens.add(token)
    assert len(tokens) == 10
    # Every page has the file of the first page.
    pages = [
        api.query("plain", maxFiles=1, pageToken=api.query("plain", maxFiles=1).end["nextPageToken"]) for _ in "ab"
    ]  # type: ignore[index]
    assert {page.files[0]["file"]["id"] for page in pages} == {api.query("plain", maxFiles=1).files[0]["file"]["id"]}


HOSTILE: dict[str, Callable[[Api], None]] = {
    "throttle": check_throttle,
    "redirect": check_redirect,
    "bad-redirect": check_bad_redirect,
    "error-body": check_error_body,
    "endless-headers": check_endless_headers,
    "endless-continue": check_endless_continue,
    "slow-headers": check_slow_headers,
    "endless-lines": check_endless_lines,
    "blank-lines": check_blank_lines,
    "bad-chunk": check_bad_chunk,
    "trickle": check_trickle,
    "cut-chunked": check_cut_chunked,
    "gzip": check_gzip,
    "cut-gzip": check_cut_gzip,
    "replaced-after": check_replaced,
    "no-etag": check_no_etag,
    "weak-etag": check_weak_etag,
    "no-last-modified": check_no_last_modified,
    "endless-pages": check_endless_pages,
}
