"""For unusual URLs, requests and aiohttp connect to the host that was checked, and send it as ``Host``.

Every name and address leads to one socket, which returns the Host header of each request; connections are recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import aiohttp
import yarl

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.http.failures import LIBRARY_ERRORS
from delta_sharing_client.http.network import Allowed, redirected, unfetchable
from delta_sharing_client.http.request_limits import RequestLimits
from delta_sharing_client.http.retry import Deadline, Transient
from delta_sharing_client.http.sessions import Session
from delta_sharing_client.options import ReadOptions

HELP = "compare the host that is checked with the host that the client connects to"


Seen = list[tuple[str | None, int]]


def _parts(text: str, *others: str) -> tuple[str, ...]:
    return (*text.split(" "), *others)


_SCHEMES = (*12 * ["http://"], "HTTP://", "http:/", "http:", "//", "http:\\\\", "http:///", "ftp://", "")
_HOSTS = _parts(
    "good good.example evil evil.example localhost a.localhost LocalHost localhost. my_host . - a..b g,evil g;evil g$ "
    "127.0.0.1 127.0.0.2 169.254.169.254 127.1 0x7f.1 2130706433 [::1] [::2] [::ffff:127.0.0.1] [::1%25lo] [1.2.3.4] "
    "b\u00fccher xn--bcher-kva \u4e2d e\u2100 g\u200dood good\u3002evil g%6fod g! g~ g* g' (g) g&e= g=e g+e g|e g<e",
    "",
)
_PORTS = _parts(":80 :8080 :81 : :0 :00081 :65536 :x :+81 :\u0661 :81:82", *8 * [""], ":8 1")
_GLUE = _parts(
    "\\ @ \\@ /@ ?@ #@ :@ %40 %5c %2f %00 \uff0f \uff20 \u2044 ; // /\\ \\\\ ? # / . [ ] \U0001f600",
    *("\t", "\n", "\r", " ", "\x00", "\x0b", "\x7f", "\xa0", "\u2028", "\u3000", "\ud800"),
)
_TAILS = _parts("/ /x /x?y=z ?y #f /%zz /\u00e9 /..//x /x?u=http://evil/ /x@evil/ /x\\y /x#@evil", "", "/a b")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=200_000, help="how many URLs (default 200000)")


def run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    counts, wrong = compare(arguments.seed, arguments.count)
    print(*wrong[:20], sep="\n")
    print(f"{dict(counts)}, {len(wrong)} wrong, {time.monotonic() - began:.0f} s")
    return int(bool(wrong))


def urls(chance: random.Random) -> Iterator[str]:
    """Yield URLs that consist of parts that programs parse differently; some are the result of a redirect."""
    while True:
        parts = [chance.choice(_SCHEMES), chance.choice(_HOSTS), chance.choice(_PORTS), chance.choice(_TAILS)]
        for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
            parts.insert(chance.randrange(len(parts) + 1), chance.choice(_GLUE) + chance.choice((*_HOSTS, "", "")))
        url = "".join(parts)
        if chance.random() < 0.1:
            at = chance.randrange(len(url) + 1)
            url = url[:at] + chr(chance.choice((chance.randrange(128), chance.randrange(0x10FFFF)))) + url[at:]
        yield url if chance.random() < 0.8 else redirected("http://good:81/a/b", url)


def compare(
    seed: int,
    count: int,
    may_be_asked: Callable[[str], bool] = lambda url: unfetchable(url, Allowed(http=True, loopback=True)) is None,
) -> tuple[Counter[str], list[str]]:
    """Return how many of ``count`` URLs were requested and how many refused, and the URLs for which the hosts
    differ."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with _Witness() as witness, asyncio.Runner(loop_factory=lambda: _Loop(witness)) as runner, Session() as session:
        aio = runner.run(_session())
        generated = urls(random.Random(seed))
        for _ in range(count):
            url = next(generated)
            if not may_be_asked(url):
                counts["refused"] += 1
                continue
            counts["asked"] += 1
            parts = urlsplit(url)
            judged = _plain(parts.hostname, parts.port)
            of_requests, of_aiohttp = _by_requests(session, witness, url), runner.run(_by_aiohttp(aio, witness, url))
            counts["answered"] += len(of_requests) > 1 and len(of_aiohttp) > 1
            for name, seen in (("requests", of_requests), ("aiohttp", of_aiohttp)):
                if any(each != judged for each in seen):
                    wrong.append(f"{url!r} is judged as {judged}, {name} saw {seen}")
        runner.run(aio.close())
    return counts, wrong


def _by_requests(session: Session, witness: _Witness, url: str) -> Seen:
    """Return the host to which ``requests`` connected, and the Host header if it sent one."""
    witness.connected.clear()
    limits = RequestLimits(ReadOptions(proxy="", connect_timeout=5, read_timeout=5), Deadline(None), "Asking", None)
    headers = {"Connection": "close"}  # each request opens a new connection, which shows its host
    with contextlib.suppress(DeltaSharingError, Transient), session.ask("GET", url, limits, headers) as answer:
        return [*witness.connected, _named(answer.headers["Host-Seen"])]
    return list(witness.connected)


async def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(force_close=True, use_dns_cache=False, resolver=aiohttp.ThreadedResolver())
    return aiohttp.ClientSession(connector=connector)


async def _by_aiohttp(session: aiohttp.ClientSession, witness: _Witness, url: str) -> Seen:
    witness.connected.clear()
    with contextlib.suppress(*LIBRARY_ERRORS):
        async with session.get(yarl.URL(url, encoded=True), allow_redirects=False) as answer:
            return [*witness.connected, _named(answer.headers["Host-Seen"])]
    return list(witness.connected)


def _plain(host: str | None, port: int | None) -> tuple[str | None, int]:
    # Some programs send the trailing dot of a fully qualified name, and some do not.
    return (host or "").lower().removesuffix("."), port or 80


def _named(host: str) -> tuple[str | None, int]:
    parts = urlsplit(f"http://{host}")
    return _plain(parts.hostname, parts.port)


class _Loop(asyncio.SelectorEventLoop):
    """Connects to the witness, whatever host a URL names."""

    def __init__(self, witness: _Witness) -> None:
        super().__init__()
        self._witness = witness

    async def getaddrinfo(self, host: Any, port: Any, **kwargs: Any) -> Any:
        self._witness.connected.append(_plain(host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        if not self._witness.connected:  # a literal address, for which getaddrinfo is not called
            self._witness.connected.append((address[0], address[1]))
        await super().sock_connect(sock, self._witness.address(sock.family))


class _Witness:
    """A socket that returns the ``Host`` header of each request."""

    def __init__(self) -> None:
        self.connected: Seen = []
        self._listeners = [
            socket.create_server(("127.0.0.1", 0)),
            socket.create_server(("::1", 0), family=socket.AF_INET6),
        ]
        self._stack = contextlib.ExitStack()

    def address(self, family: int) -> Any:
        return self._listeners[family == socket.AF_INET6].getsockname()

    def __enter__(self) -> _Witness:
        for listener in self._listeners:
            self._stack.enter_context(listener)
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        self._stack.enter_context(mock.patch.object(socket, "getaddrinfo", self._looked_up))
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _looked_up(self, host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        self.connected.append(_plain(host, port))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", self.address(socket.AF_INET))]

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = listener.accept()
                with line, contextlib.suppress(OSError):
                    line.settimeout(5)
                    received = b""
                    while b"\r\n\r\n" not in received:
                        more = line.recv(65536)
                        if not more:
                            break
                        received += more
                    rows = (row.partition(b": ") for row in received.split(b"\r\n"))
                    named = b" and ".join(value for name, _, value in rows if name.lower() == b"host")
                    head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n"
                    line.sendall(head + b"Host-Seen: %s\r\n\r\n" % named)
