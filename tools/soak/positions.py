"""Truncate or reset responses after every byte of header and body, for every endpoint, over HTTP, TLS and a proxy.

The result of a call is the same as without the fault; a fault in every response is an error, never a result.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import dataclasses
import functools
import gzip
import http.client
import itertools
import socket
import ssl
import struct
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock
from urllib.parse import urlsplit

import pyarrow as pa
import trustme

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.http import retry
from tests.tables import TableWriter, rows_of

HELP = "truncate and reset every response after every byte, over plain HTTP, TLS and a proxy"

TABLE = "s.s.t"
SCHEMA = pa.schema([("id", pa.int64())])
LOGIN = "us%40er:p%2Fw%25"
TOKEN = b'{"access_token":"planted-token","token_type":"Bearer","expires_in":3600}'
_RESET = struct.pack("ii", 1, 0)
_LEFT_OUT = frozenset(("connection", "content-length", "transfer-encoding", "date", "server", "content-encoding"))

Ask = Callable[[ds.SharingClient], object]
# Each call, and the end of the path of the request whose response breaks; earlier requests of the call get complete
# responses.
QUESTIONS: dict[str, tuple[str, Ask]] = {
    "shares": ("/shares", lambda client: [str(share) for share in client.list_shares()]),
    "schemas": ("/schemas", lambda client: [str(schema) for schema in client.list_schemas("s")]),
    "tables": ("/tables", lambda client: [str(table) for table in client.list_tables("s.s")]),
    "all tables": ("/all-tables", lambda client: [str(table) for table in client.list_all_tables()]),
    "version": ("/version", lambda client: client.table(TABLE).version()),
    "metadata": ("/metadata", lambda client: client.table(TABLE).schema),
    "query": ("/query", lambda client: _rows(client.table(TABLE).scan())),
    "changes": ("/changes", lambda client: _rows(client.table(TABLE).changes(starting_version=0))),
    "token": ("/token", lambda client: client.table(TABLE).version()),
    "data": (".parquet", lambda client: _rows(client.table(TABLE).scan())),
}
WAYS = ("plain", "tls", "proxy")
FRAMES = ("length", "chunked", "gzip")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--one-in", type=int, default=1, help="try one in this many positions (default 1)")
    parser.add_argument("--threads", type=int, default=4)


def run(arguments: argparse.Namespace) -> int:
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with world() as front, ThreadPoolExecutor(arguments.threads) as pool:
        for way, name in itertools.product(WAYS, QUESTIONS):
            failures = list(pool.map(lambda case: case(), front.cases(way, name, one_in=arguments.one_in)))
            wrong = [each for each in failures if each is not None]
            counts["cases"] += len(failures)
            counts["wrong"] += len(wrong)
            print(f"{way}, {name}: {len(failures)} cases, {len(wrong)} wrong", *wrong[:5], sep="\n  ", flush=True)
    print(f"{counts['cases']} cases, {counts['wrong']} wrong, {time.monotonic() - began:.0f} s")
    return int(counts["wrong"] > 0)


@contextlib.contextmanager
def world() -> Iterator[Front]:
    """Serve a table of two files and a feed behind a proxy that breaks responses."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        table = TableWriter(Path(folder) / "t", SCHEMA, properties={"delta.enableChangeDataFeed": "true"})
        table.insert(rows_of(range(20)), rows_of(range(20, 40)))
        server = stack.enter_context(mock_server.running(tables={TABLE: Path(folder) / "t"}, token="planted-token"))
        stack.enter_context(mock.patch.object(retry, "_FIRST_WAIT", 0.002))
        stack.enter_context(mock.patch.object(retry, "_LONGEST_WAIT", 0.01))
        front = Front(server.profile["endpoint"], Path(folder))
        stack.callback(front.close)
        yield front


@dataclasses.dataclass
class Fault:
    """The response for ``path`` ends after ``position`` bytes: only the first response, or each one if ``always`` is
    true."""

    path: str
    position: int
    reset: bool
    always: bool = False
    struck: int = 0
    """The number of responses that this fault has ended."""
    length: int = 0
    """The length of the last response. Each one has newly signed URLs, so its compressed length varies by a byte."""


class Front:
    """Forwards the responses of a server over HTTP and TLS, and is also the HTTP proxy of the clients.

    Each client names its fault in its User-Agent, and many may send requests at a time.
    """

    def __init__(self, upstream: str, folder: Path) -> None:
        self._upstream = urlsplit(upstream)
        authority = trustme.CA()
        self.bundle = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.bundle)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._numbers = itertools.count()
        self._faults: dict[str, tuple[Fault, str]] = {}
        self.lengths: dict[tuple[str, str, str], int] = {}
        self._listeners: list[socket.socket] = []
        self.ports = {
            "plain": self._listen(self._answer_all),
            "tls": self._listen(lambda line: self._answer_all(self._context.wrap_socket(line, server_side=True))),
        }
        self.proxy = self._listen(self._tunnel)

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def cases(self, way: str, name: str, *, one_in: int = 1) -> Iterator[Callable[[], str | None]]:
        """Yield functions that each make one call with one fault, and return a description of the failure, if any."""
        path, ask = QUESTIONS[name]
        for frame in FRAMES:
            # data files must not be compressed, and the response with the version has no body
            if frame == "gzip" and name in ("data", "version"):
                continue
            fault = Fault(path, 1 << 60, False)
            expected = self._ask(way, frame, ask, fault)
            if isinstance(expected, Exception):
                raise expected
            length = self.lengths[way, frame, path]
            for number, (position, reset) in enumerate(itertools.product(range(length), (False, True))):
                if number % one_in == 0:
                    fault = Fault(path, position, reset, always=number % (10 * one_in) == 0)
                    yield functools.partial(self._check, way, frame, ask, fault, expected)

    def _check(self, way: str, frame: str, ask: Ask, fault: Fault, expected: object) -> str | None:
        outcome = self._ask(way, frame, ask, fault)
        met = fault.struck or fault.position >= fault.length > 0
        if met and (outcome == expected or (fault.always and isinstance(outcome, ds.DeltaSharingError))):
            # A call may also succeed if only trailing bytes are missing that it does not need.
            return None
        return f"{way}, {frame}: {fault}: {outcome!r:.300}"

    def _ask(self, way: str, frame: str, ask: Ask, fault: Fault) -> object:
        mark = f"fault-{next(self._numbers)}"
        self._faults[mark] = fault, frame
        scheme = "http" if way == "plain" else "https"
        url = f"{scheme}://127.0.0.1:{self.ports['plain' if way == 'plain' else 'tls']}"
        profile: dict[str, object] = {"shareCredentialsVersion": 2, "endpoint": url + self._upstream.path}
        if fault.path == "/token":
            # The client id differs each time, because tokens are cached.
            profile |= {"type": "oauth_client_credentials", "tokenEndpoint": f"{url}/{mark}/token"}
            profile |= {"clientId": mark, "clientSecret": "s"}
        else:
            profile |= {"type": "bearer_token", "bearerToken": "planted-token"}
        options = ds.ReadOptions(
            ca_bundle=self.bundle,
            proxy=f"http://{LOGIN}@127.0.0.1:{self.proxy}" if way == "proxy" else "",
            user_agent=mark,
            max_attempts=3,
            read_timeout=20,
            progress=False,
        )
        with warnings.catch_warnings(), ds.SharingClient(profile, options=options) as client:
            warnings.simplefilter("ignore")
            try:
                return ask(client)
            except ds.DeltaSharingError as error:
                return error
            finally:
                del self._faults[mark]

    # --- the server ---

    def _listen(self, serve: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listeners.append(listener)

        def one(line: socket.socket) -> None:
            with line, contextlib.suppress(OSError):
                line.settimeout(30)
                serve(line)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        return int(listener.getsockname()[1])

    def _tunnel(self, client: socket.socket) -> None:
        head = _head(client)
        if base64.b64encode(b"us@er:p/w%") not in head or not head.startswith(b"CONNECT 127.0.0.1:"):
            client.sendall(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", self.ports["tls"])) as server:
            client.sendall(b"HTTP/1.1 200 There\r\n\r\n")
            threading.Thread(target=_pass, args=(client, server), daemon=True).start()
            _pass(server, client)

    def _answer_all(self, line: socket.socket) -> None:
        with line:
            head = _head(line)
            if not head:
                return
            method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            fields = dict(field.split(": ", 1) for field in head.decode().split("\r\n")[1:] if ": " in field)
            named = {name.lower(): value for name, value in fields.items()}
            head, _, body = head.partition(b"\r\n\r\n")
            while len(body) < int(named.get("content-length", 0)):
                body += line.recv(65536)
            # Requests for files and tokens name their fault in the path, and REST requests in a header.
            first, _, rest = target[1:].partition("/")
            mark = first if first in self._faults else named.get("user-agent", "").rpartition(" ")[2]
            target = f"/{rest}" if first == mark else target
            if mark not in self._faults:
                return  # the call of this request has already ended
            fault, frame = self._faults[mark]
            way = ("tls" if isinstance(line, ssl.SSLSocket) else "plain", frame)
            answer = self._framed(mark, (method, target, body), named, *way)
            if not target.partition("?")[0].endswith(fault.path) or (fault.struck and not fault.always):
                line.sendall(answer)
                return
            for each in (way[0], "proxy") if way[0] == "tls" else (way[0],):
                self.lengths[each, frame, fault.path] = len(answer)
            fault.length = len(answer)
            if fault.position < len(answer):
                fault.struck += 1
            line.sendall(answer[: fault.position])
            if fault.reset and fault.position < len(answer):
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _framed(self, mark: str, asked: tuple[str, str, bytes], named: dict[str, str], way: str, frame: str) -> bytes:
        status, headers, content = self._whole(*asked, named)
        if b"PAR1" not in content:
            here = f"{'https' if way == 'tls' else 'http'}://127.0.0.1:{self.ports[way]}/{mark}/"
            content = content.replace(f"{self._upstream.scheme}://{self._upstream.netloc}/".encode(), here.encode())
        target = asked[1]
        headers = [*headers, ("Connection", "close")]
        if frame == "gzip" and not target.partition("?")[0].endswith(".parquet"):
            content = gzip.compress(content, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        if frame == "chunked" and content:
            # An empty chunk ends the body; a single byte cannot be split.
            pieces = (*filter(None, (content[: len(content) // 2], content[len(content) // 2 :])), b"")
            content = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
            headers.append(("Transfer-Encoding", "chunked"))
        else:
            headers.append(("Content-Length", str(len(content))))
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in headers), "", ""]
        return "\r\n".join(lines).encode() + content

    def _whole(
        self, method: str, target: str, body: bytes, named: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return status, headers and body from the server behind the proxy."""
        if target == "/token":
            return 200, [("Content-Type", "application/json")], TOKEN
        asked = {name: value for name, value in named.items() if name not in ("host", "accept-encoding", "connection")}
        upstream = http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port, timeout=20)
        with contextlib.closing(upstream):
            upstream.request(method, target, body or None, asked)
            answer = upstream.getresponse()
            content = answer.read()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _LEFT_OUT]
        return answer.status, headers, content


def _head(line: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        more = line.recv(65536)
        if not more:
            return b""
        received += more
    return received


def _pass(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # The reset is forwarded as a reset, because a plain close would wait for the reading thread.
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.shutdown(socket.SHUT_RDWR)


def _rows(read: ds.Read) -> list[dict[str, object]]:
    return sorted(read.to_arrow().to_pylist(), key=repr)
