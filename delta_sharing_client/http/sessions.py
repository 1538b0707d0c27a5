"""HTTP sessions for REST requests, with time limits, checks for completeness, and cancellation.

``http.client`` accepts a closed connection as the end of the headers, reads trailers without limit, and reuses a
connection with unread bytes. The classes here prevent all three.
"""

from __future__ import annotations

import http.client
import http.cookiejar
import io
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.exceptions

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.http.body import ACCEPTED_ENCODINGS, body_chunks
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
    sending,
    shut,
    under_way,
)
from delta_sharing_client.http.retry import RETRIED_STATUSES, Deadline, Transient, Tries, retry_after
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.threads import Threads

_SESSION_HOSTS, _SESSION_CONNECTIONS = 4, 32
# The most bytes for the headers of a response, and for the lines around one of its chunks: chunk size and trailers.
_LONGEST_HEAD = 256 * 1024
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d\b")


class Session(requests.Session):
    """A session that holds connections only: it stores no cookies, ignores ``~/.netrc`` and follows no redirects.

    Each request brings everything else, including the arguments of a ``Network``, so threads may share a session.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        for prefix in ("https://", "http://"):
            self.mount(prefix, _Adapter(_SESSION_HOSTS, _SESSION_CONNECTIONS))

    def ask(self, method: str, url: str, limits: RequestLimits, **sent: Any) -> requests.Response:
        """Send one request within ``limits``, and return its response, whatever its status; the body is not read yet.

        ``sent`` has the headers, data and auth of the request, as in ``requests``. Redirects are not followed, because
        a redirect could send a secret elsewhere. Raises ``Transient``, ``TransportError`` or ``ProtocolError`` if no
        response arrives.
        """
        limits.check()
        options, within = limits.options, limits.deadline.within
        try:
            with sending(limits):
                return self.request(
                    method,
                    url,
                    timeout=(within(options.connect_timeout), within(options.read_timeout)),
                    stream=True,
                    allow_redirects=False,
                    **sent,
                    **Network.of(options).arguments(url),
                )
        except (DeltaSharingError, Transient):
            raise
        except library_errors() as error:
            failure = network_failure(error, limits.doing, limits.table)
        raise failure  # raised here, because the library's error contains the request with its URL and secret

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return ``None``, because callers follow redirects; ``requests`` would read the body of each redirect."""
        return None


class _Adapter(requests.adapters.HTTPAdapter):
    """An adapter that takes a ``Network`` as ``cert`` and uses its TLS context; ``requests`` would read the certificate
    files for each connection."""

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        host, _ = super().build_connection_pool_key_attributes(request, verify, None)
        if host["scheme"] != "https":
            return host, {}
        context = cert.tls()
        context.sslsocket_class = _TlsSocket
        return host, {"ssl_context": context, "cert_reqs": "CERT_REQUIRED"}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Do nothing, because ``Network.tls`` has loaded the certificates."""

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
        under_way.use(self)
        super().do_handshake(block)


class _Source(io.RawIOBase):
    """The bytes of one response; ``limits`` apply to each wait for more bytes."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, limits: RequestLimits) -> None:
        self._raw, self._sock, self._limits = raw, sock, limits
        self._over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return None if self._over else self._limits.read(self._sock, lambda: self._raw.readinto(buffer))

    def end(self) -> None:
        """End the response: the connection may now serve another request, so it must no longer be cancelled."""
        self._over = True
        self._limits.use(None)

    def refuse(self) -> None:
        """Shut the connection down, so that it is not reused."""
        shut(self._sock)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Lines(io.BufferedReader):
    """A buffered ``_Source``. It refuses endless lines, and shuts down a connection if bytes follow the response,
    because they could be mistaken for the next response."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source)
        self._source = source
        self._of_lines = 0

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

    def close(self) -> None:
        if not self.closed:
            self._source.end()
            if self.peek():
                self._source.refuse()
        super().close()

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
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._limits = under_way.limits
        if self._limits is not None:
            self.fp: Any = _Lines(_Source(self.fp.detach(), sock, self._limits))

    def begin(self) -> None:
        whole = self.fp
        if self._limits is None:
            return super().begin()
        try:
            self.fp = io.BytesIO(whole.head())
            super().begin()
        finally:
            self.fp = whole
        self._limits.head_is_complete()
        return None


class _Connection(urllib3.connection.HTTPConnection):
    response_class = _HttpResponse

    def __init__(self, host: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(host, *args, **kwargs)
        # Keeps a trailing dot, with which the name is looked up as it is, without search domains.
        self._name = host
        self._is_here: bool | None = None

    def connect(self) -> None:
        if self.proxy is None:
            plain = self._connected()
            self._is_here = is_here(plain.getpeername()[0])
            self.sock = self._secured(plain)
        elif self.proxy.scheme == "http":
            name = self.host
            self.host = self._address_of_proxy()
            try:
                super().connect()
            finally:
                self.host = name
        else:
            # The proxy's certificate is for its name, not for its address.
            super().connect()
        under_way.use(self.sock)

    def _address_of_proxy(self) -> str:
        """Return the proxy's address that connects first; its name if it has one address, or if none responds.

        The name of the server is not looked up here, because the proxy does that.
        """
        try:
            addresses = socket.getaddrinfo(self._name, self.port, type=socket.SOCK_STREAM)
            if len(addresses) == 1:
                return self.host
            with _first_connected(addresses, self.timeout) as sock:
                return str(sock.getpeername()[0])
        except TimeoutError as error:
            raise urllib3.exceptions.ConnectTimeoutError(self, "no connection") from error
        except (OSError, UnicodeError):
            # urllib3 then fails to connect as well, and raises its own error.
            return self.host

    def _connected(self) -> socket.socket:
        try:
            return connected(self._name, self.port, self.timeout, under_way.reach, self.socket_options or ())
        except socket.gaierror as error:
            raise urllib3.exceptions.NameResolutionError(self.host, self, error) from error
        except UnicodeError:
            raise urllib3.exceptions.LocationParseError(self.host) from None
        except TimeoutError as error:
            raise urllib3.exceptions.ConnectTimeoutError(self, "no connection") from error
        except OSError as error:
            raise urllib3.exceptions.NewConnectionError(self, "no connection") from error

    def _secured(self, sock: socket.socket) -> socket.socket:
        return sock

    def request(self, *args: Any, **kwargs: Any) -> None:
        under_way.use(self.sock)
        super().request(*args, **kwargs)
        under_way.sent(self._is_here)

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
            secured = self.ssl_context.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.is_verified = True
        return secured


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


_POOLS = {"http": _Pool, "https": _TlsPool}


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
    sock = _one_connected(allowed[0], seconds) if len(allowed) == 1 else _first_connected(allowed, seconds)
    sock.settimeout(seconds)
    for option in options:
        sock.setsockopt(*option)
    return sock


def _one_connected(address_info: Any, seconds: float | None) -> socket.socket:
    family, kind, protocol, _, address = address_info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(seconds)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _first_connected(addresses: list[Any], seconds: float | None) -> socket.socket:
    # Imported here, because asyncio is slow to import and most hosts have only one address.
    import asyncio

    import aiohappyeyeballs

    async def first() -> socket.socket:
        async with asyncio.timeout(seconds):
            return await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_STAGGER)

    def run() -> socket.socket:
        # With a loop factory, the runner does not replace the event loop that the user may have set for this thread.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(first())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run()
    # This thread already runs a loop, for example in a notebook.
    threads = Threads(1, "delta-sharing-connect")
    try:
        return threads.submit(run).result()
    finally:
        # Without waiting, so that Ctrl-C ends the attempt at once.
        threads.shutdown(wait=False)


# === Downloads of single files ===


def download(url: str, options: ReadOptions, doing: str, *, limit: int) -> bytes:
    """Request ``url`` with GET, without credentials, and return the body, which may have at most ``limit`` bytes.

    ``options`` has the proxy, certificates, time limits and retries; ``doing`` describes the download in messages.
    Raises ``FileNotFoundError`` for the status 404, and ``ProtocolError`` or ``TransportError`` if the URL, or one that
    it redirects to, is not allowed (``network.unfetchable``), or if no complete response arrives.
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
            if response.status_code in REDIRECTS and location is not None:
                target = redirected(target, location)
                continue
            if response.status_code in RETRIED_STATUSES:
                problem = f"{doing} failed: the server responds with HTTP status {response.status_code}."
                raise Transient(TransportError(problem), retry_after(response.headers.get("Retry-After")))
            return response.status_code, body
        raise TransportError(f"{doing} failed: the server redirects more than {MAX_REDIRECTS} times.")

    status, body = Tries(options, deadline).call(attempt)
    if status == 404:
        raise FileNotFoundError
    if status != 200:
        raise TransportError(f"{doing} failed: the server responds with HTTP status {status}.")
    return body


def exchange(
    method: str,
    url: str,
    limits: RequestLimits,
    *,
    limit: int,
    headers: Mapping[str, str] | None = None,
    data: Any = None,
) -> tuple[requests.Response, bytes]:
    """Send one request on its own connection, and return the response and its body, which may have at most ``limit``
    bytes. Raises the errors of ``Session.ask`` and ``body_chunks``."""
    headers = {"Accept-Encoding": ACCEPTED_ENCODINGS, **(headers or {})}
    with Session() as session, session.ask(method, url, limits, headers=headers, data=data) as response:
        return response, b"".join(body_chunks(response, limits.doing, limit=limit))
