"""The connections of the reading engine that goes; see ``network`` and ``protocol.sessions``."""

from __future__ import annotations

import contextlib
import functools
import http.client
import http.cookiejar
import io
import os
import re
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import urllib3
import urllib3.connection
import urllib3.util.ssl_

from delta_sharing_client.errors import TransportError
from delta_sharing_client.network import Network
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.retry import Deadline, Transient
from delta_sharing_client.shortcuts import SHORTCUTS

_POOL_HOSTS = 16
_MOST_KEPT = 16

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound=urllib3.PoolManager)


class Line:
    """The socket of one request, from its connecting on, for another thread to break off what waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._broken = False

    def use(self, sock: socket.socket | None) -> None:
        """Take note of the socket that the request now goes through, if any."""
        with self._lock:
            self._socket = sock
            if self._broken:
                _shut(sock)

    def leave(self) -> bool:
        """The request has ended: whoever aborts leaves its socket alone. Return whether it was aborted before."""
        with self._lock:
            self._socket = None
            return self._broken

    def abort(self) -> None:
        """Make whatever waits for the socket return at once, now and later."""
        with self._lock:
            self._broken = True
            _shut(self._socket)

    def forget(self) -> None:
        """Drop a parent process's socket, which goes on living there. No lock: a thread of the parent may hold it."""
        sock, self._socket = self._socket, None
        _drop(sock)


def _drop(sock: Any) -> None:
    """Close a socket in this process alone, without a word to the other side."""
    with contextlib.suppress(OSError, AttributeError):
        os.close(sock.detach())


def _shut(sock: Any) -> None:
    # Below TLS, whose own shutdown takes the reading thread's session away. A proxy's TLS in TLS wraps a socket.
    plain = getattr(sock, "socket", sock)
    with contextlib.suppress(OSError, AttributeError):
        # Closed, it then tells the other side at once, which may be waiting for room to send more.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if isinstance(plain, socket.socket):
            socket.socket.shutdown(plain, socket.SHUT_RDWR)
        elif plain is not None:
            plain.shutdown(socket.SHUT_RDWR)


def pool(network: Network, proxy: str | None, concurrency: int, scheme: str) -> urllib3.PoolManager:
    """Return the connections for URLs of ``scheme`` by way of ``proxy`` that all reads of this process share."""
    key = (network, proxy, concurrency, scheme)
    with _pools_lock:
        found = _pools.get(key)
        if found is None:
            found = _new_pool(network, proxy, concurrency, scheme)
            _put(_pools, key, found)
        return found


def host_pool(network: Network, concurrency: int, scheme: str, host: str, port: int | None) -> Pool | None:
    """Return the connections to one host, as ``pool`` without a proxy does, if they are of our kind."""
    key = (network, concurrency, scheme, host, port)
    found = _hosts.get(key)
    # One that was in use least is emptied for others.
    if found is None or found.pool is None:
        made = pool(network, None, concurrency, scheme).connection_from_host(host, port, scheme)
        if not isinstance(made, Pool):
            return None
        found = made
        with _pools_lock:
            _put(_hosts, key, found)
    return found


class Watch:
    """Holds one answer to the limits of its time; what waits for its bytes asks here.

    Parameters
    ----------
    options:
        ``read_timeout``: after its first byte the head of the answer must be complete within it.
        ``min_bytes_per_second``: least throughput over that time, of which only what is spent waiting counts.
    deadline:
        That of the operation.
    doing, table:
        For messages.
    """

    def __init__(self, options: ReadOptions, deadline: Deadline, doing: str, table: str | None) -> None:
        self._timeout = options.read_timeout
        self._rate = options.min_bytes_per_second
        self._deadline = deadline
        self._doing = doing
        self._table = table
        self._head_by: float | None = None
        self._in_head = True
        self._bytes = 0
        self._waited = 0.0

    def read(self, sock: socket.socket, read: Callable[[], int | None]) -> int | None:
        """Return ``read()``, which takes bytes from ``sock``; raises ``TransportError`` or ``Transient``."""
        self._deadline.check(self._doing, self._table)
        began, left = time.monotonic(), self._deadline.within(self._timeout)
        if left < self._timeout:
            sock.settimeout(left)
        count = read()
        now = time.monotonic()
        self._note(count or 0, now, now - began)
        return count

    def head_is_complete(self) -> None:
        self._in_head = False
        self._bytes, self._waited = 0, 0.0

    def _note(self, count: int, now: float, waited: float) -> None:
        if self._in_head:
            self._head_by = self._head_by or now + self._timeout
            if now > self._head_by:
                raise self._slow(f"the head of the answer is not complete after {self._timeout:g} s")
            return
        self._bytes += count
        self._waited += waited
        if count and self._waited >= self._timeout:
            if self._bytes < self._rate * self._waited:
                raise self._slow(
                    f"{self._bytes} bytes in {self._waited:.0f} seconds are fewer than 'min_bytes_per_second' allows"
                )
            self._bytes, self._waited = 0, 0.0

    def _slow(self, reason: str) -> Transient:
        return Transient(TransportError(f"{self._doing} failed: {reason}.", table=self._table))


@contextlib.contextmanager
def sending(watch: Watch, line: Line | None = None) -> Iterator[None]:
    """Have ``watch`` hold the answer to the request that this thread sends in the block, and tell ``line`` of its
    socket."""
    _sending.watch, _sending.line = watch, line
    try:
        yield
    finally:
        _sending.watch = _sending.line = None


_pools: dict[tuple[Network, str | None, int, str], urllib3.PoolManager] = {}
_hosts: dict[tuple[Network, int, str, str, int | None], Pool] = {}
_pools_lock = threading.Lock()
_connected: weakref.WeakSet[_Connection] = weakref.WeakSet()
_sending = threading.local()
# To linger, for no time.
_RESET = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


def _put(kept: dict[K, V], key: K, value: V) -> None:
    # Files of certificates may change every hour; connections in use live on.
    if len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]
    kept[key] = value


def _new_pool(network: Network, proxy: str | None, concurrency: int, scheme: str) -> urllib3.PoolManager:
    settings: dict[str, Any] = {"num_pools": _POOL_HOSTS, "maxsize": concurrency, "cert_reqs": "CERT_REQUIRED"}
    # Where nothing is encrypted, certificates are not read: that takes as long as an answer from another city.
    tls = network.tls() if "https" in (scheme, urlsplit(proxy or "").scheme) else None
    settings["ssl_context"] = tls
    if proxy is None:
        manager = urllib3.PoolManager(**settings)
    else:
        auth = urllib3.util.parse_url(proxy).auth
        headers = urllib3.util.make_headers(proxy_basic_auth=auth) if auth else None
        manager = urllib3.ProxyManager(proxy, proxy_headers=headers, proxy_ssl_context=tls, **settings)
    return _ours(manager)


def _ours(manager: M) -> M:
    manager.pool_classes_by_scheme = {"http": Pool, "https": _TlsPool}
    return manager


class _Watched(io.RawIOBase):
    """The bytes of one answer, each wait for them in the hands of a ``Watch``."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, watch: Watch, line: Line | None) -> None:
        self._raw = raw
        self._sock = sock
        self._watch = watch
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._watch.read(self._sock, lambda: self._raw.readinto(buffer))

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        if not self.closed:
            if self._line is not None:
                # From here on the connection may serve another request, which nobody must break off.
                self._line.leave()
            self._raw.close()
            super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._watch: Watch | None = getattr(_sending, "watch", None)
        if self._watch is not None:
            raw = self.fp.detach()
            self.fp = io.BufferedReader(_Watched(raw, sock, self._watch, getattr(_sending, "line", None)))

    def begin(self) -> None:
        super().begin()
        if self._watch is not None:
            self._watch.head_is_complete()


class _Connection(urllib3.connection.HTTPConnection):
    """A connection that tells the ``Line`` of the request it works for which socket that waits for."""

    response_class = _Answer
    _copy: socket.socket | None = None

    def _new_conn(self) -> socket.socket:
        sock = super()._new_conn()
        if (line := getattr(_sending, "line", None)) is not None:
            # A handshake takes the socket object away: it is a copy that can be shut down meanwhile.
            self._copy = sock.dup()
            line.use(self._copy)
        return sock

    def connect(self) -> None:
        try:
            super().connect()
            _connected.add(self)
        finally:
            self._tell()
            if self._copy is not None:
                self._copy.close()
                self._copy = None

    def request(self, *args: Any, **kwargs: Any) -> None:
        self._tell()
        super().request(*args, **kwargs)

    def _tell(self) -> None:
        if (line := getattr(_sending, "line", None)) is not None:
            line.use(self.sock)


class _TlsConnection(_Connection, urllib3.connection.HTTPSConnection):
    """As ``_Connection``, with TLS."""


class Answer(Protocol):
    """An open answer, be it urllib3's or ours."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def read(self, amt: int) -> bytes: ...

    def release_conn(self) -> None: ...

    def close(self) -> None: ...


class Pool(urllib3.HTTPConnectionPool):
    """The connections to one host."""

    ConnectionCls = _Connection

    def get(self, target: str, headers: Mapping[str, str], connect: float, read: float) -> Answer:
        """Send a GET and return the open answer; errors are those of the libraries.

        As ``urlopen`` does without retries and a proxy; but ``target``, which must be a valid one (RFC 9112, 3.2.1),
        is sent as it is: ``urlopen`` takes it apart and puts it together byte by byte, and signatures make it long.
        ``connect`` and ``read`` are the time limits in seconds.
        """
        connection = cast(_Connection, self._get_conn())
        try:
            if SHORTCUTS.plain_heads and connection.sock is not None and getattr(_sending, "watch", None) is not None:
                return _exchange(self, connection, target, headers, read)
            return self._make_request(
                connection,
                "GET",
                target,
                headers=headers,
                timeout=urllib3.Timeout(connect=connect, read=read),
                response_conn=connection,
                preload_content=False,
            )
        except BaseException:
            connection.close()
            self._put_conn(None)
            raise


# A head as all servers send it: every other is left to http.client (RFC 9112, 2.1 and 5; RFC 9110, 5.5).
_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d) [\t -~\x80-\xff]*\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n)*)\r\n"
)
_LINE = re.compile(r"[\t -~\x80-\xff]*\Z")
_WITHOUT_BODY = frozenset((204, 304))
_SCRATCH = 64 * 1024
_LONGEST_NUMBER = 19


def _exchange(pool: Pool, connection: _Connection, target: str, headers: Mapping[str, str], timeout: float) -> Answer:
    """Send a GET over a connection that exists, and read the head of the answer without a parser of e-mail."""
    sock, watch = connection.sock, _sending.watch
    connection._tell()
    if not all(_LINE.match(value) for value in headers.values()):
        raise ValueError("a header that cannot be sent")
    port = "" if connection.port == connection.default_port else f":{connection.port}"
    lines = [f"GET {target} HTTP/1.1\r\nHost: {connection.host}{port}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    sock.settimeout(timeout)
    sock.sendall(("".join(lines) + "\r\n").encode("latin-1"))
    scratch = getattr(_sending, "scratch", None)
    if scratch is None:
        scratch = _sending.scratch = bytearray(_SCRATCH)
    view, count, end = memoryview(scratch), 0, -1
    while end < 0 and count < _SCRATCH:
        got = watch.read(sock, functools.partial(sock.recv_into, view[count:]))
        if not got:
            break
        end = scratch.find(b"\r\n\r\n", max(0, count - 3), count + got)
        count += got
    found = _plain_head(scratch[: end + 4]) if end >= 0 else None
    if found is None:
        return _parsed(pool, connection, bytes(view[:count]), watch)
    watch.head_is_complete()
    return _PlainAnswer(pool, connection, watch, found, bytes(view[end + 4 : count]))


def _plain_head(data: bytearray) -> _Head | None:
    """Return what a head says, ``None`` if it is less plain than most."""
    match = _HEAD.fullmatch(data)
    if match is None:
        return None
    status, heads, count = int(match[1]), _Heads(), 0
    for line in match[2].decode("latin-1").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        heads[name.lower()] = value.strip(" \t")
        count += 1
    length, connection = heads.get("content-length", ""), heads.get("connection", "keep-alive").lower()
    plain = len(heads) == count and status not in _WITHOUT_BODY and "transfer-encoding" not in heads
    if not plain or not length.isascii() or not length.isdigit() or len(length) > _LONGEST_NUMBER:
        return None
    if connection not in ("keep-alive", "close"):
        return None
    return _Head(status, heads, int(length), connection == "keep-alive")


class _Heads(dict[str, str]):
    """Headers by names in lower case, found by any."""

    def get(self, name: str, default: Any = None) -> Any:
        return dict.get(self, name.lower(), default)


class _Head(NamedTuple):
    """What the head of an answer says; ``length`` is that of the body, and with ``keep`` the connection goes on."""

    status: int
    headers: _Heads
    length: int
    keep: bool


class _PlainAnswer:
    """The answer to a request, its body still in the socket but for what came with the head."""

    def __init__(self, pool: Pool, connection: _Connection, watch: Watch, head: _Head, first: bytes) -> None:
        self.status = head.status
        self.headers = head.headers
        self._pool = pool
        self._connection: _Connection | None = connection
        self._sock = connection.sock
        self._watch = watch
        self._left = head.length
        # Bytes behind the body belong to no answer: nothing that follows on this connection could be trusted.
        self._keep = head.keep and len(first) <= head.length
        self._first: memoryview = memoryview(first)[: head.length]

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` from the body; return how many bytes came, 0 at its end or where it was cut off."""
        count = min(len(view), self._left)
        if not count:
            return 0
        if len(self._first):
            count = min(count, len(self._first))
            view[:count] = self._first[:count]
            self._first = self._first[count:]
        else:
            sock, view = self._sock, view[:count]
            count = self._watch.read(sock, lambda: sock.recv_into(view)) or 0
        self._left -= count
        return count

    def read(self, amt: int) -> bytes:
        data = bytearray(amt)
        return bytes(data[: self.readinto(memoryview(data))])

    def release_conn(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._left or not self._keep:
                connection.close()
            self._pool._put_conn(connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Replay(_Watched):
    """A socket's bytes, after those that were taken from it before; stands in for it where http.client makes a file."""

    def __init__(self, first: bytes, raw: io.RawIOBase, sock: socket.socket, watch: Watch) -> None:
        super().__init__(raw, sock, watch, getattr(_sending, "line", None))
        self._first = memoryview(first)

    def readinto(self, buffer: Any) -> int | None:
        if not len(self._first):
            return super().readinto(buffer)
        count = min(len(buffer), len(self._first))
        buffer[:count] = self._first[:count]
        self._first = self._first[count:]
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


class _ParsedAnswer:
    """An answer whose head ``http.client`` has read."""

    def __init__(self, pool: Pool, connection: _Connection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = urllib3.HTTPHeaderDict(response.msg.items())
        self.readinto = response.readinto
        self.read = response.read
        self._pool = pool
        self._connection: _Connection | None = connection
        self._response = response

    def release_conn(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._response.will_close or not self._response.isclosed():
                connection.close()
            self._pool._put_conn(connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._response.close()
        if connection is not None:
            connection.close()


def _parsed(pool: Pool, connection: _Connection, first: bytes, watch: Watch) -> Answer:
    sock = connection.sock
    raw = sock.makefile("rb", buffering=0)
    response = http.client.HTTPResponse(_Replay(first, raw, sock, watch), method="GET")  # type: ignore[arg-type]
    response.begin()
    watch.head_is_complete()
    return _ParsedAnswer(pool, connection, response)


class _TlsPool(Pool, urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def _forget_parents() -> None:
    # A lock may be held by a thread that does not exist here; sockets are closed, which the parent does not notice.
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
    _hosts.clear()
    # Also those that a thread, which does not exist here, had taken out of a pool.
    for connection in list(_connected):
        _drop(connection.sock)
    _connected.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)
