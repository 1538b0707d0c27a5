"""GET of a byte range, once: connections, proxies and headers; no retries.

The body goes from the socket into the caller's memory without a copy in between.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3
import urllib3.connection
from urllib3.exceptions import HTTPError

from delta_sharing_client.data_urls import check_data_url
from delta_sharing_client.errors import DataError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange

_CHUNK = 1024 * 1024
_MAX_REDIRECTS = 5
_LONGEST_NUMBER = 19
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\Z", re.ASCII)
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Interrupted(Exception):
    """The transfer broke off (connection, timeout, short body); what arrived before it is good. Carries no URL."""


class Refused(Exception):
    """The storage answered with ``status`` instead of data."""

    def __init__(self, status: int, retry_after: str | None) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.retry_after = retry_after


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """What an answer holds: bytes ``start`` to ``stop`` of a file of ``total`` bytes (``None`` where not stated)."""

    start: int
    stop: int | None
    total: int | None


class Line:
    """The socket of one request, from its connecting on, for another thread to break off what waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._broken = False

    def use(self, sock: socket.socket | None) -> None:
        """Take note of the socket that the request now goes through; ``None``: it has none any more."""
        with self._lock:
            self._socket = sock
            if self._broken:
                _shut(sock)

    def abort(self) -> None:
        """Make whatever waits for the socket return at once, now and later."""
        with self._lock:
            self._broken = True
            _shut(self._socket)

    def forget(self) -> None:
        """Drop a parent process's socket, which goes on living there; no lock, as in ``Closable``."""
        sock, self._socket = self._socket, None
        if sock is not None:
            with contextlib.suppress(OSError):
                os.close(sock.detach())


def _shut(sock: Any) -> None:
    # Below TLS, whose own shutdown takes the reading thread's session away. A proxy's TLS in TLS wraps a socket.
    plain = getattr(sock, "socket", sock)
    with contextlib.suppress(OSError, AttributeError):
        if isinstance(plain, socket.socket):
            socket.socket.shutdown(plain, socket.SHUT_RDWR)
        elif plain is not None:
            plain.shutdown(socket.SHUT_RDWR)


class Body:
    """An open answer. ``read_into`` fills memory; ``close`` gives the connection back if the body was read to its end,
    and drops it otherwise."""

    def __init__(self, response: urllib3.BaseHTTPResponse, span: Span) -> None:
        self.span = span
        self._response = response
        # urllib3's own readinto() goes through two copies; http.client's, below it, through none.
        raw = getattr(response, "_fp", None)
        self._readinto: Callable[[memoryview], int] | None = getattr(raw, "readinto", None)
        self._left = None if span.stop is None else span.stop - span.start

    def read_into(self, view: memoryview) -> int:
        """Fill ``view`` from the body and return how many bytes came, 0 at its end. Raises ``Interrupted``."""
        view = view[:_CHUNK]
        try:
            if self._readinto is not None:
                count = self._readinto(view) or 0
            else:
                data = self._response.read(len(view))
                count = len(data)
                view[:count] = data
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # A socket that another thread shut down shows as ValueError or AttributeError, depending on the moment.
            raise Interrupted(type(error).__name__) from None
        if self._left is not None:
            self._left -= count
        return count

    def skip(self, count: int) -> None:
        """Read ``count`` bytes and forget them."""
        scratch = memoryview(bytearray(min(count, _CHUNK)))
        while count > 0:
            got = self.read_into(scratch[: min(count, _CHUNK)])
            if not got:
                raise Interrupted("short body")
            count -= got

    def close(self) -> None:
        if self._left == 0:
            self._response.release_conn()
        else:
            self._response.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Http:
    """Sends range requests with the limits of ``options``; holds no connection itself, so it pickles."""

    options: ReadOptions
    allow_http: bool
    table: str
    # Looking for a proxy goes through the whole environment; a scan asks once for each host.
    _proxies: dict[tuple[str, str, int | None], str | None] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def get(self, url: str, wanted: ByteRange | int | None, file_id: str | None, line: Line | None = None) -> Body:
        """Send one GET and return the open answer, positioned at its first byte.

        Parameters
        ----------
        url:
            Pre-signed URL; checked here, as is every redirect.
        wanted:
            A range, a number of bytes from the end, or ``None`` for the whole file.
        line:
            Told of the socket, from before the answer is waited for.

        Raises
        ------
        Refused
            A status other than 200 and 206.
        Interrupted
            No answer arrived.
        DataError, ProtocolError
            The answer is encoded or names a range that was not asked for; the URL may not be fetched.
        """
        headers = {"Accept-Encoding": "identity", "User-Agent": _user_agent()}
        if isinstance(wanted, ByteRange):
            headers["Range"] = f"bytes={wanted.start}-{wanted.stop - 1}"
        elif wanted is not None:
            headers["Range"] = f"bytes=-{wanted}"
        for _ in range(_MAX_REDIRECTS + 1):
            check_data_url(url, allow_http=self.allow_http, table=self.table, file_id=file_id)
            response = self._send(url, headers, line)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or location is None:
                break
            response.close()
            url = urljoin(url, location)
        if response.status not in (200, 206):
            retry_after = response.headers.get("Retry-After")
            status = response.status
            response.close()
            raise Refused(status, retry_after)
        try:
            return Body(response, _span(response, wanted))
        except DataError as error:
            response.close()
            error.table, error.file_id = self.table, file_id
            raise

    def _send(self, url: str, headers: Mapping[str, str], line: Line | None) -> urllib3.BaseHTTPResponse:
        timeout = urllib3.Timeout(connect=self.options.connect_timeout, read=self.options.read_timeout)
        _sending.line = line
        try:
            pool, target = self._route(url)
            return pool.urlopen(
                "GET", target, headers=headers, preload_content=False, redirect=False, retries=False, timeout=timeout
            )
        except (HTTPError, OSError) as error:
            raise Interrupted(type(error).__name__) from None
        finally:
            _sending.line = None

    def _route(self, url: str) -> tuple[urllib3.HTTPConnectionPool | urllib3.PoolManager, str]:
        """Return who sends the request, and what it is to be given as the URL."""
        # urllib3 takes a signed URL apart byte by byte, and more than once. Where only its host is needed, do without.
        parts = urlsplit(url)
        scheme, host = parts.scheme, parts.hostname or ""
        try:
            port = parts.port
        except ValueError:
            raise HTTPError("the port is no number") from None
        origin = (scheme, host, port)
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_for(scheme, host, port)
        proxy = self._proxies[origin]
        manager = _connections(proxy, self.options.max_concurrent_requests)
        plain = host.isascii() and ":" not in host and parts.username is None and parts.geturl() == url
        if proxy is not None or not plain:
            return manager, url
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        return manager.connection_from_host(host, port, scheme), target


def _span(response: urllib3.BaseHTTPResponse, wanted: ByteRange | int | None) -> Span:
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    # aws-chunked says how the file once came to S3, which hands the word on; the bytes are the file's.
    if encoding not in ("", "identity", "aws-chunked"):
        raise DataError(f"the storage sent a data file with Content-Encoding {encoding}, which was not asked for")
    length = response.headers.get("Content-Length", "")
    known = int(length) if length.isascii() and length.isdigit() and len(length) <= _LONGEST_NUMBER else None
    if response.status == 200:
        return Span(0, known, known)
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", "").strip())
    if match is None or wanted is None:
        raise DataError("the storage answered with part of a data file (status 206) without a usable Content-Range")
    start, stop = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if stop <= start or (known is not None and known != stop - start):
        raise DataError(f"the storage sent {length} bytes as the range {start} to {stop}, which does not fit together")
    if isinstance(wanted, ByteRange):
        if start != wanted.start or stop > wanted.stop:
            raise DataError(
                f"asked for the bytes from {wanted.start} on, the storage sent those from {start} to {stop}"
            )
    elif total is None or stop != total or start < total - wanted:
        raise DataError(f"asked for the last {wanted} bytes, the storage sent {start} to {stop} of {total}")
    return Span(start, stop, total)


# === Connections: one pool a process and proxy ===

_sending = threading.local()


class _Connection(urllib3.connection.HTTPConnection):
    """A connection that tells the ``Line`` of the request it works for which socket that waits for."""

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


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_pools: dict[tuple[str | None, int], urllib3.PoolManager] = {}
_pools_lock = threading.Lock()


def _connections(proxy: str | None, concurrency: int) -> urllib3.PoolManager:
    key = (proxy, concurrency)
    with _pools_lock:
        pool = _pools.get(key)
        if pool is None:
            pool = _pools[key] = _new_pool(proxy, concurrency)
        return pool


def _new_pool(proxy: str | None, concurrency: int) -> urllib3.PoolManager:
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()
    trust: dict[str, Any] = {"ca_cert_dir": bundle} if os.path.isdir(bundle) else {"ca_certs": bundle}
    if proxy is None:
        manager = urllib3.PoolManager(num_pools=16, maxsize=concurrency, cert_reqs="CERT_REQUIRED", **trust)
    else:
        auth = urllib3.util.parse_url(proxy).auth
        headers = urllib3.util.make_headers(proxy_basic_auth=auth) if auth else None
        manager = urllib3.ProxyManager(
            proxy, num_pools=16, maxsize=concurrency, proxy_headers=headers, cert_reqs="CERT_REQUIRED", **trust
        )
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
    return manager


def _forget_parents() -> None:
    # A lock may be held by a thread that does not exist here; sockets are closed, which the parent does not notice.
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parents)


def _proxy_for(scheme: str, host: str, port: int | None) -> str | None:
    proxies = getproxies()
    if not proxies or (host and proxy_bypass(f"{host}:{port}" if port else host)):
        return None
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


@functools.cache
def _user_agent() -> str:
    return f"delta-sharing-client urllib3/{urllib3.__version__}"  # type: ignore[attr-defined]
