"""The HTTP sessions of REST: ``requests``, with answers that are held to limits of time, complete, and can be ended.

``http.client`` takes the end of a connection for the end of a head, reads trailers for ever, and uses a connection
again whatever is left in it. The classes here read its answers for it.
"""

from __future__ import annotations

import contextlib
import http.client
import http.cookiejar
import io
import os
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import requests
import requests.adapters
import urllib3
import urllib3.connection

from delta_sharing_client.network import Throughput, proxy_headers
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.retry import Deadline

_SESSION_HOSTS, _SESSION_CONNECTIONS = 4, 32
# Of a head, and of lines between two pieces of a body: chunk sizes and trailers.
_LONGEST_HEAD = 256 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d\b")
# To linger, for no time.
_RESET = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)


class Watch:
    """Holds one answer of REST to the limits of its time; what waits for its bytes asks here.

    Parameters
    ----------
    options:
        ``read_timeout``: after its first byte the head of the answer must be complete within it.
        ``min_bytes_per_second``: see ``Throughput``.
    deadline:
        That of the operation.
    doing, table:
        For messages.
    """

    def __init__(self, options: ReadOptions, deadline: Deadline, doing: str, table: str | None) -> None:
        self._timeout = options.read_timeout
        self._throughput = Throughput(options, doing, table)
        self._deadline = deadline
        self._doing = doing
        self._table = table
        self._head_by: float | None = None
        self._in_head = True

    def read(self, sock: socket.socket, read: Callable[[], int | None]) -> int | None:
        """Return ``read()``, which takes bytes from ``sock``; raises ``TransportError`` or ``Transient``."""
        self._deadline.check(self._doing, self._table)
        began, left = time.monotonic(), self._deadline.within(self._timeout)
        if left < self._timeout:
            sock.settimeout(left)
        count = read()
        now = time.monotonic()
        if not self._in_head:
            self._throughput.note(count or 0, now - began)
            return count
        self._head_by = self._head_by or now + self._timeout
        if now > self._head_by:
            raise self._throughput.slow(f"the head of the answer is not complete after {self._timeout:g} s")
        return count

    def head_is_complete(self) -> None:
        self._in_head = False


class Interrupt:
    """Ends the REST requests of one operation, from another thread: the one under way, what waits to try again, and
    all later ones raise ``CancelledError``, or an error of the connection."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def set(self) -> None:
        """End them."""
        self._over.set()
        with self._lock:
            _shut(self._socket)

    def check(self) -> None:
        """Raise ``CancelledError`` once the operation is over."""
        if self._over.is_set():
            raise CancelledError

    def sleep(self, seconds: float) -> None:
        """Wait so long, or raise ``CancelledError`` as soon as the operation is over."""
        if self._over.wait(seconds):
            raise CancelledError

    def use(self, sock: socket.socket | None) -> None:
        """Take note of the socket that the request under way waits for; ``None`` once it has ended."""
        with self._lock:
            self._socket = sock
            if self._over.is_set():
                _shut(sock)


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


@contextlib.contextmanager
def sending(watch: Watch, interrupt: Interrupt | None = None) -> Iterator[None]:
    """Have ``watch`` hold the answer to the request that this thread sends in the block, and ``interrupt`` end it."""
    _sending.watch, _sending.interrupt = watch, interrupt
    try:
        yield
    finally:
        _sending.watch = _sending.interrupt = None


class _Sending(threading.local):
    """What holds for the request that a thread sends."""

    watch: Watch | None = None
    interrupt: Interrupt | None = None

    def use(self, sock: socket.socket | None) -> None:
        if self.interrupt is not None:
            self.interrupt.use(sock)


_sending = _Sending()


class Session(requests.Session):
    """A session that holds connections and nothing else: no cookies, no headers, no ~/.netrc, no redirects.

    All that varies goes with each request, a ``Network``'s arguments too, so threads may share it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        for prefix in ("https://", "http://"):
            self.mount(prefix, _Adapter(_SESSION_HOSTS, _SESSION_CONNECTIONS))

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """None: whoever asks follows redirects, and would not read their bodies, however long, as requests does."""
        return None


class _Adapter(requests.adapters.HTTPAdapter):
    """``cert`` is a ``Network``, whose TLS is used as it is; of files requests would read one for each connection."""

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        host, _ = super().build_connection_pool_key_attributes(request, verify, None)
        if host["scheme"] != "https":
            return host, {}
        context = cert.tls()
        context.sslsocket_class = _TlsSocket
        return host, {"ssl_context": context, "cert_reqs": "CERT_REQUIRED"}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Done by ``Network.tls``."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        return proxy_headers(proxy)


class _TlsSocket(ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        _sending.use(self)
        super().do_handshake(block)


class _Source(io.RawIOBase):
    """The bytes of one answer, each wait for them in the hands of a ``Watch``."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, watch: Watch) -> None:
        self._raw, self._sock, self._watch = raw, sock, watch
        self._interrupt = _sending.interrupt
        self._over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return None if self._over else self._watch.read(self._sock, lambda: self._raw.readinto(buffer))

    def end(self) -> None:
        """The answer is over: from here on the connection may serve another request, which nobody must break off."""
        self._over = True
        if self._interrupt is not None:
            self._interrupt.use(None)

    def refuse(self) -> None:
        """Let the connection serve no other request."""
        _shut(self._sock)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Lines(io.BufferedReader):
    """A ``_Source`` with a buffer. Lines that follow each other without end are refused, and so is a connection with
    bytes behind an answer: nothing that it brings later could be trusted."""

    _of_lines = 0

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        self._of_lines += len(line)
        if self._of_lines > _LONGEST_HEAD:
            raise http.client.LineTooLong("head or trailer")
        return line

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size > 2:  # else it is the end of a chunk
            self._of_lines = 0
        return super().read(size)

    def read1(self, size: int = -1) -> bytes:
        self._of_lines = 0
        return super().read1(size)

    def close(self) -> None:
        if not self.closed and isinstance(self.raw, _Source):
            self.raw.end()
            if self.peek():
                self.raw.refuse()
        super().close()

    def head(self) -> bytes:
        """Read the head of an answer, and past those of interim answers (RFC 9110, 15.2); raise ``HTTPException`` if
        it is cut: ``http.client`` takes the end of a connection for the end of a head."""
        lines: list[bytes] = []
        while not lines or lines[-1].strip(b"\r\n"):
            line = self.readline()
            if not line and not lines:
                raise http.client.RemoteDisconnected("no answer")
            if not line.endswith(b"\n"):
                raise http.client.IncompleteRead(b"")
            lines.append(line)
            if line in (b"\r\n", b"\n") and _INTERIM.match(lines[0]):
                lines = []
        return b"".join(lines)


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._watch = _sending.watch
        if self._watch is not None:
            self.fp: Any = _Lines(_Source(self.fp.detach(), sock, self._watch))

    def begin(self) -> None:
        whole = self.fp
        if self._watch is None or not isinstance(whole, _Lines):
            return super().begin()
        try:
            self.fp = io.BytesIO(whole.head())
            super().begin()
        finally:
            self.fp = whole
        self._watch.head_is_complete()
        return None


class _Connection(urllib3.connection.HTTPConnection):
    response_class = _Answer

    def connect(self) -> None:
        super().connect()
        _sending.use(self.sock)

    def request(self, *args: Any, **kwargs: Any) -> None:
        _sending.use(self.sock)
        super().request(*args, **kwargs)

    @property
    def is_connected(self) -> bool:
        # What TLS has taken from the socket already, the socket no longer shows.
        pending = getattr(self.sock, "pending", None)
        return super().is_connected and not (pending is not None and pending())


class _TlsConnection(_Connection, urllib3.connection.HTTPSConnection):
    """As ``_Connection``, with TLS."""


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}
