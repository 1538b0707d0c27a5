"""Exchanges with a server by ``requests``, with time limits, checks for completeness, and cancellation.

Each class that hooks into ``requests`` or ``urllib3`` names the attack that it answers. ``test_sessions`` runs the
attacks, and shows that ``requests`` alone accepts them.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import http.client
import io
import math
import os
import re
import selectors
import socket
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.exceptions

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.http.body import ACCEPTED_ENCODINGS, Response, body_chunks
from delta_sharing_client.http.network import (
    MAX_REDIRECTS,
    REDIRECTS,
    Allowed,
    Network,
    OutOfReach,
    Reach,
    is_here,
    is_loopback,
    proxy_headers,
    redirected,
    unfetchable,
)
from delta_sharing_client.http.request_limits import (
    RequestLimits,
    library_errors,
    network_failure,
)
from delta_sharing_client.http.retry import RETRIED_STATUSES, Deadline, Transient, Tries, retry_after
from delta_sharing_client.options import ReadOptions

_MAX_IDLE = 32
# The most bytes for the headers of a response, and for the lines around one of its chunks: chunk size and trailers.
_LONGEST_HEAD = 256 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d\b")


class Session:
    """Sends one request at a time, and keeps its connections for later ones.

    It is no ``requests.Session``, which would store cookies, read ``~/.netrc``, and read the body of each redirect.
    """

    def __init__(self) -> None:
        self._adapter = _Adapter()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._adapter.close()

    def ask(
        self, method: str, url: str, limits: RequestLimits, headers: Mapping[str, str], data: Any = None
    ) -> Response:
        """Send one request within ``limits``, and return its response, whatever its status; the body is not read yet.

        ``data`` is the body, or the fields of a form. Redirects are not followed, because a redirect could send a
        secret elsewhere. Raises ``Transient``, ``TransportError`` or ``ProtocolError`` if no response arrives.
        """
        limits.check()
        options, within = limits.options, limits.deadline.within
        network = Network.of(options)
        self._adapter.limits = limits
        try:
            request = requests.Request(
                method, url, {**requests.utils.default_headers(), **headers}, data=data
            ).prepare()
            proxy = proxy_for(network, url)
            received = self._adapter.send(
                request,
                stream=True,
                timeout=(within(options.connect_timeout), within(options.read_timeout)),
                cert=cast(Any, network),
                proxies={urlsplit(url).scheme: proxy} if proxy else {},
            )
        except (DeltaSharingError, Transient):
            raise
        except requests.exceptions.InvalidProxyURL:
            failure = network_failure(urllib3.exceptions.ProxySchemeUnknown(None), limits.doing, limits.table)
        except library_errors() as error:
            failure = network_failure(error, limits.doing, limits.table)
        else:
            raw = received.raw
            sent = request.headers.get("Authorization")
            return Response(received.status_code, received.headers, received.url, sent, raw.read1, received.close)
        raise failure  # raised here, because the library's error contains the request with its URL and secret


class Sessions:
    """The sessions of one server, which threads share: each request has one to itself until its response is closed."""

    def __init__(self) -> None:
        self._idle: list[Session] = []
        self._process = os.getpid()

    def ask(self, *args: Any, **kwargs: Any) -> Response:
        """Like ``Session.ask``, with the connections of earlier requests."""
        if self._process != os.getpid():
            # A forked child must not share sockets with its parent.
            self._idle, self._process = [], os.getpid()
        try:
            session = self._idle.pop()
        except IndexError:
            session = Session()
        response = session.ask(*args, **kwargs)
        end, held = response.close, [session]

        def close() -> None:
            end()
            if held and len(self._idle) < _MAX_IDLE:
                self._idle.append(held.pop())

        return dataclasses.replace(response, close=close)

    def close(self) -> None:
        """Close idle connections. A later request opens new ones."""
        while self._idle:
            self._idle.pop().close()


class _Adapter(requests.adapters.HTTPAdapter):
    """An adapter whose connections keep the ``limits`` of the current request. It takes a ``Network`` as ``cert`` and
    uses its TLS context; ``requests`` would read the certificate files for each connection."""

    limits: RequestLimits

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        host, _ = super().build_connection_pool_key_attributes(request, verify, None)
        return host, {"ssl_context": cert.tls(), "cert_reqs": "CERT_REQUIRED"} if host["scheme"] == "https" else {}

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        pool.ConnectionCls = functools.partial(_TlsConnection if pool.scheme == "https" else _Connection, self)
        return pool

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Do nothing, because ``Network.tls`` has loaded the certificates."""

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        return proxy_headers(proxy)


class _Source(io.RawIOBase):
    """The bytes of one response; ``limits`` apply to each wait for more bytes.

    The attack: a head that drips. ``http.client`` waits for each byte anew, so a byte a minute never times out.
    """

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, limits: RequestLimits) -> None:
        self._raw, self._sock, self._limits = raw, sock, limits

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._limits.read(self._sock, lambda: self._raw.readinto(buffer))

    def close(self) -> None:
        if not self.closed:
            # The connection may now serve another request, so it must no longer be cancelled.
            self._limits.use(None)
            self._raw.close()
        super().close()


class _Lines(io.BufferedReader):
    """A buffered ``_Source`` that refuses endless lines.

    The attacks: a head that is cut off, which ``http.client`` takes for a whole one, and the body for empty; and
    trailers without end, which it reads without limit.
    """

    _of_lines = 0

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        self._of_lines += len(line)
        if self._of_lines > _LONGEST_HEAD:
            raise http.client.LineTooLong("head or trailer")
        return line

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size > 2:  # two bytes are the line end after a chunk
            self._of_lines = 0
        return super().read(size)

    def read1(self, size: int = -1) -> bytes:
        self._of_lines = 0
        return super().read1(size)

    def head(self) -> bytes:
        """Read the headers of a response and skip interim responses (RFC 9110, 15.2); raise ``HTTPException`` if
        truncated."""
        lines: list[bytes] = []
        while not lines or lines[-1].strip(b"\r\n"):
            line = self.readline()
            if not line and not lines:
                raise http.client.RemoteDisconnected("no response")
            if not line.endswith(b"\n"):
                raise http.client.IncompleteRead(b"")
            lines.append(line)
            if line in (b"\r\n", b"\n") and _INTERIM.match(lines[0]):
                lines = []
        return b"".join(lines)


class _HttpResponse(http.client.HTTPResponse):
    """A response whose head and trailers are read by ``_Lines``."""

    def __init__(self, adapter: _Adapter, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._limits = adapter.limits
        self.fp: Any = _Lines(_Source(self.fp.detach(), sock, self._limits))

    def begin(self) -> None:
        whole = self.fp
        try:
            self.fp = io.BytesIO(whole.head())
            super().begin()
        finally:
            self.fp = whole
        self._limits.head_is_complete()


class _Connection(urllib3.connection.HTTPConnection):
    """A connection to an address that the request may connect to, and which an interrupt can shut down.

    The attacks: a name that resolves to this machine, or to another address after it was checked (``connected``); and
    bytes after the end of a response, which would be taken for the next one (``is_connected``).
    """

    def __init__(self, adapter: _Adapter, host: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(host, *args, **kwargs)
        self._adapter = adapter
        self.response_class = functools.partial(_HttpResponse, adapter)  # type: ignore[assignment]
        self._is_here: bool | None = None

    def connect(self) -> None:
        if self.proxy is None:
            plain = self._connected()
            self._is_here = is_here(plain.getpeername()[0])
            self.sock = self._secured(plain)
        else:
            super().connect()
        self._adapter.limits.use(self.sock)

    def _connected(self) -> socket.socket:
        reach = self._adapter.limits.reach
        try:
            return connected(self.host, self.port, self.timeout, reach, self.socket_options or ())
        except TimeoutError as error:
            raise urllib3.exceptions.ConnectTimeoutError(self, "no connection") from error
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, "no connection") from error

    def _secured(self, sock: socket.socket) -> socket.socket:
        return sock

    def request(self, *args: Any, **kwargs: Any) -> None:
        limits = self._adapter.limits
        limits.use(self.sock)
        super().request(*args, **kwargs)
        limits.is_here = self._is_here

    @property
    def is_connected(self) -> bool:
        # The number of bytes that TLS has decrypted, but that have not been read.
        pending = getattr(self.sock, "pending", None)
        return super().is_connected and not (pending is not None and pending())


class _TlsConnection(_Connection, urllib3.connection.HTTPSConnection):
    """Like ``_Connection``, with TLS."""

    def _secured(self, sock: socket.socket) -> socket.socket:
        assert self.ssl_context is not None, "it is in the key of the pool"
        try:
            sock = self.ssl_context.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
            self._adapter.limits.use(sock)
            sock.do_handshake()
        except BaseException:
            sock.close()
            raise
        self.is_verified = True
        return sock


# === Connections ===

# The next address of a host is tried after this many seconds (RFC 8305, section 8).
_STAGGER = 0.25


def connected(
    host: str, port: int, seconds: float | None, reach: Reach, options: Sequence[tuple[Any, ...]] = ()
) -> socket.socket:
    """Return a socket that is connected to an address of ``host`` that ``reach`` allows.

    Several addresses are tried in parallel, because otherwise each address that does not respond would take
    ``seconds``. ``options`` are arguments of ``setsockopt``. Raises ``OutOfReach`` if no address is allowed, and
    another ``OSError`` if none can be connected to.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    allowed = [each for each in addresses if reach.allows(str(each[4][0]))]
    if not allowed:
        raise OutOfReach(reach)
    sock = _first_connected(allowed, seconds)
    sock.settimeout(seconds)
    for option in options:
        sock.setsockopt(*option)
    return sock


def _first_connected(addresses: list[Any], seconds: float | None) -> socket.socket:
    """Return the first socket that connects. The next address is tried after ``_STAGGER`` seconds, or a failure."""
    deadline, waiting = Deadline(seconds), addresses[::-1]
    attempts: set[socket.socket] = set()
    failure = OSError()
    try:
        with selectors.DefaultSelector() as ready:
            while waiting or ready.get_map():
                try:
                    if waiting:
                        attempts.add(sock := _started(waiting.pop()))
                        ready.register(sock, selectors.EVENT_WRITE)
                    left = min(deadline.left(), _STAGGER if waiting else math.inf)
                    for key, _ in ready.select(None if left == math.inf else left):
                        ready.unregister(key.fileobj)
                        sock = cast(socket.socket, key.fileobj)
                        _check(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                        attempts.remove(sock)
                        return sock
                except OSError as error:
                    failure = error
                if deadline.left() == 0:
                    raise TimeoutError
        raise failure
    finally:
        for each in attempts:
            each.close()


def _started(address_info: Any) -> socket.socket:
    """Return a socket that is connecting to an address."""
    family, kind, protocol, _, address = address_info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        _check(0 if code in (errno.EINPROGRESS, errno.EWOULDBLOCK) else code)
    except BaseException:
        sock.close()
        raise
    return sock


def _check(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))


# === Single exchanges ===


def download(url: str, options: ReadOptions, doing: str, *, limit: int) -> bytes:
    """Return the body of ``fetched``; raises ``FileNotFoundError`` for the status 404, and ``TransportError`` for any
    other status but 200."""
    status, body = fetched(url, options, doing, limit=limit)
    if status == 404:
        raise FileNotFoundError
    if status != 200:
        raise TransportError(f"{doing} failed: the server responds with HTTP status {status}.")
    return body


def fetched(url: str, options: ReadOptions, doing: str, *, limit: int) -> tuple[int, bytes]:
    """Request ``url`` with GET, without credentials, and return the status and the body of at most ``limit`` bytes.

    ``options`` has the proxy, certificates, time limits and retries; ``doing`` describes the request in messages.
    Raises ``ProtocolError`` or ``TransportError`` if the URL, or one that it redirects to, is not allowed
    (``network.unfetchable``), or if no complete response arrives.
    """
    deadline = Deadline(options.total_timeout)
    allowed = Allowed(loopback=is_loopback(urlsplit(url).hostname or ""))

    def attempt() -> tuple[int, bytes]:
        target = url
        for _ in range(MAX_REDIRECTS + 1):
            if (problem := unfetchable(target, allowed)) is not None:
                raise ProtocolError(f"{doing} failed: its URL has {problem}.")
            # The user chose the first URL, so its host may be a name of this machine.
            reach = Reach.ANY if target == url else allowed.reach(target)
            response, body = exchange(
                "GET", target, RequestLimits(options, deadline, doing, None, reach=reach), limit=limit
            )
            location = response.headers.get("Location")
            if response.status in REDIRECTS and location is not None:
                target = redirected(target, location)
                continue
            if response.status in RETRIED_STATUSES:
                problem = f"{doing} failed: the server responds with HTTP status {response.status}."
                raise Transient(TransportError(problem), retry_after(response.headers.get("Retry-After")))
            return response.status, body
        raise TransportError(f"{doing} failed: the server redirects more than {MAX_REDIRECTS} times.")

    return Tries(options, deadline).call(attempt)


def exchange(
    method: str,
    url: str,
    limits: RequestLimits,
    *,
    limit: int,
    headers: Mapping[str, str] | None = None,
    data: Any = None,
) -> tuple[Response, bytes]:
    """Send one request on its own connection, and return the response and its body, which may have at most ``limit``
    bytes. Raises the errors of ``Session.ask`` and ``body_chunks``."""
    headers = {"Accept-Encoding": ACCEPTED_ENCODINGS, **(headers or {})}
    with Session() as session, session.ask(method, url, limits, headers, data) as response:
        return response, b"".join(body_chunks(response, limits.doing, limit=limit))


# === What only ``requests`` knows ===


def proxy_for(network: Network, url: str) -> str | None:
    """Return the URL of the proxy for ``url``, if any; without a setting, that of the environment and, on macOS and
    Windows, of the system."""
    proxy = network.proxy
    if proxy is None:
        proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))
    return proxy or None if not proxy or "://" in proxy else f"http://{proxy}"


def is_same_server(here: str, there: str) -> bool:
    """Return whether credentials for the URL ``here`` may be sent to ``there``, as for a redirect of ``requests``."""
    return not requests.Session().should_strip_auth(here, there)  # type: ignore[no-untyped-call]


def library() -> str:
    """Return the name and the version of the library, for ``User-Agent``."""
    return f"requests/{requests.__version__}"
