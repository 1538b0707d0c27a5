"""Single GET requests of byte ranges, with aiohttp: connections, proxies, headers and redirects, but no retries."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import datetime
import functools
import html
import os
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp
import yarl

from delta_sharing_client.errors import DataError, ProtocolError, TransportError
from delta_sharing_client.fetch.place import Checksum, DataRequest, Refused, Span, Take, Version, Wanted
from delta_sharing_client.http.failures import LIBRARY_ERRORS, translated
from delta_sharing_client.http.network import (
    MAX_REDIRECTS,
    REDIRECTS,
    Allowed,
    Network,
    OutOfReach,
    Reach,
    Throughput,
    content_codings,
    proxy_headers,
    redirected,
    unfetchable,
)
from delta_sharing_client.http.retry import Deadline, http_date
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.redact import MASK, printable, scrub

# The proxy arguments of a request, and its headers for the proxy.
_ProxyArguments = tuple[dict[str, Any], dict[str, str]]

_CHUNK = 1024 * 1024
_LONGEST_HEAD = 256 * 1024
_LONGEST_NUMBER = 19
_PRINTABLE = "".join(map(chr, range(33, 127)))
# Seconds to keep an idle connection for the next read; servers close idle connections after 5 to 60 seconds.
_KEPT_SECONDS = 30.0
# The most idle connections that are kept: enough for one read. If there are more, those idle for longest are closed.
_MOST_IDLE = 128
_REASON_SECONDS = 1.0
_REASON_BYTES = 4096
_REASON_SHOWN = 300
# Such a word in an error may be part of a signature, so it is masked.
_LONG_WORD = re.compile(r"[\w+/=%-]{40,}")
_NO_HEADERS: Mapping[str, str] = {}
# ``_RequestTimer`` enforces the time limits, because each of aiohttp's own limits needs several timers per request.
_NO_LIMIT = aiohttp.ClientTimeout(total=None)
_CODE = re.compile(r"[A-Za-z]{1,60}", re.ASCII)
_REGION = re.compile(r"<Region>([^<]*)</Region>|; expecting '([^'<]*)'")
_REGION_NAME = re.compile(r"[a-z]{2,}[a-z0-9-]{1,30}", re.ASCII)
# The unit is case-insensitive (RFC 9110, 14.1).
_CONTENT_RANGE = re.compile(r"bytes +(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\Z", re.ASCII | re.IGNORECASE)


class _RequestTimer:
    """Ends a request that waits too long for any one step: the connection, the headers, or the next bytes.

    One timer serves all steps: when it fires, it checks the limit of the current step, and restarts if time is left.
    """

    __slots__ = ("_deadline", "_due", "_handle", "_loop", "_timeout", "is_connecting", "is_receiving")

    def __init__(self, timeout: asyncio.Timeout, deadline: Deadline) -> None:
        self.is_connecting, self.is_receiving = True, False
        self._timeout: asyncio.Timeout | None = timeout
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def restart(self, seconds: float) -> None:
        """Start the next step, which may take ``seconds``."""
        self._due = self._loop.time() + self._deadline.within(seconds)
        if self._handle is None or self._due < self._handle.when():
            if self._handle is not None:
                self._handle.cancel()
            self._handle = self._loop.call_at(self._due, self._check)

    async def __aenter__(self) -> None:
        assert self._timeout is not None
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        # The connection and the timer keep the request's context alive, which must not keep the task alive.
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()
        timeout, self._timeout = self._timeout, None
        assert timeout is not None
        await timeout.__aexit__(*exc)

    def _check(self) -> None:
        if self._due > self._loop.time():
            self._handle = self._loop.call_at(self._due, self._check)
        elif self._timeout is not None:
            self._handle = None
            self._timeout.reschedule(self._loop.time())


class HttpBody:
    """An open response, as a ``Body``. A store sets ``stated_checksum``, which finds the checksum in the headers."""

    def __init__(self, response: aiohttp.ClientResponse, span: Span, http: Http, timer: _RequestTimer) -> None:
        self._headers = response.headers
        self.stated_checksum: Callable[[Iterable[tuple[str, str]]], Checksum | None] | None = None
        etag = response.headers.get("ETag", "")
        self.span = span
        self.version = Version(
            etag if etag.startswith('"') else "", response.headers.get("Last-Modified", ""), span.total
        )
        self._content = response.content
        self._timer = timer
        self._seconds = http.options.read_timeout
        self._throughput = Throughput(http.options, http.doing, http.table)

    @property
    def checksum(self) -> Checksum | None:
        return None if self.stated_checksum is None else self.stated_checksum(self._headers.items())

    @property
    def modified(self) -> datetime.datetime | None:
        seconds = http_date(self.version.modified)
        return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)

    async def read(self) -> bytes:
        data = self._content.read_nowait()
        if data or self._content.at_eof():
            return data
        began = time.monotonic()
        # The limit applies to the whole wait, so that it also ends endless trailers, which are not part of the body.
        self._timer.restart(self._seconds)
        data = await self._content.readany()
        self._throughput.note(len(data), time.monotonic() - began)
        return data


@dataclasses.dataclass(frozen=True, slots=True)
class Http:
    """Sends the requests of places. It holds no connections.

    ``allowed`` are the URLs that may be requested. ``table`` and ``doing``, which describes the request, are for
    errors.
    """

    options: ReadOptions
    allowed: Allowed
    table: str | None
    doing: str = "Reading a data file"
    network: Network = dataclasses.field(init=False)
    # Finding the proxy reads the whole environment, so it is done only once per host.
    _proxies: dict[str, _ProxyArguments] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", Network.of(self.options))

    async def get(self, request: DataRequest, take: Take) -> None:
        """Send one GET and pass the open response to ``take``. The URL and all redirects are checked.

        Raises ``Refused`` for a status other than 200 and 206, and ``Transient`` if no response or only a part of it
        arrived. Raises ``DataError`` if the response is encoded or has a different range from the requested one,
        ``ProtocolError`` if the URL is not allowed, and ``TransportError`` for other failures that a retry cannot mend.
        """
        for _ in range(MAX_REDIRECTS + 1):
            location = await self.exchange(request, take)
            if location is None:
                return
            request = request._replace(address=redirected(request.address, location))
        problem = f"{self.doing} failed: the storage redirects more than {MAX_REDIRECTS} times."
        raise TransportError(problem, table=self.table)

    async def exchange(self, request: DataRequest, take: Take, headers: Mapping[str, str] = _NO_HEADERS) -> str | None:
        """Send one GET with additional ``headers``; like ``get``, but return the target of a redirect."""
        url, deadline = request.address, request.deadline
        check_data_url(url, self.allowed)
        deadline.check(self.doing, self.table)
        # Only the timer refers to the timeout, which refers to the task, because the frames of an error must not keep
        # the task alive.
        timer = _RequestTimer(asyncio.timeout(None), deadline)
        try:
            return await self._exchange(request, take, headers, timer)
        except LIBRARY_ERRORS as error:
            failure = translated(error, self.doing, self.table, url=url, receiving=timer.is_receiving)
        # Raised here, because with the library's error as its context it would keep the socket alive and show the URL.
        deadline.check(self.doing, self.table)
        raise failure

    async def _exchange(
        self, request: DataRequest, take: Take, headers: Mapping[str, str], timer: _RequestTimer
    ) -> str | None:
        _current.set((timer, 2 * self.options.read_timeout))
        try:
            async with timer:
                timer.restart(self.options.connect_timeout)
                response = await self.send(request.address, {**_headers(request.wanted, request.version), **headers})
                try:
                    location = response.headers.get("Location")
                    if response.status in REDIRECTS and location is not None and not headers:
                        return location
                    timer.is_receiving = True
                    if response.status not in (200, 206):
                        raise await _refusal(response)
                    await take(HttpBody(response, _span(response, request.wanted), self, timer))
                    return None
                finally:
                    # A response that was read to its end has already released its connection. Otherwise, close() closes
                    # the connection.
                    response.close()
        except TimeoutError:
            if timer.is_connecting:
                raise aiohttp.ConnectionTimeoutError from None
            raise

    async def send(self, url: str, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Send one request, and return its response once the headers have arrived."""
        arguments, login = self._proxy(url)
        # A proxy looks up the host itself, and the user chose the proxy, so its address is not checked.
        reach = Reach.ANY if arguments else self.allowed.reach(url)
        return await _session(reach).get(
            yarl.URL(url if url.isascii() else quote(url, safe=_PRINTABLE), encoded=True),
            headers=headers | login,
            allow_redirects=False,
            timeout=_NO_LIMIT,
            ssl=self.network.tls() if url[:6].lower() == "https:" else True,
            **arguments,
        )

    def _proxy(self, url: str) -> _ProxyArguments:
        """Return the proxy arguments for ``url``, and the headers for the proxy."""
        scheme, _, rest = url.partition("://")
        origin = f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}"
        arguments = self._proxies.get(origin)
        if arguments is None:
            # Imported here, because requests is slow to import.
            from delta_sharing_client.http.sessions import proxy_for

            arguments = self._proxies[origin] = _proxy_arguments(proxy_for(self.network, url), scheme.lower())
        return arguments


def check_data_url(url: str, allowed: Allowed) -> None:
    """Raise ``ProtocolError`` unless ``url`` is ``https:``, or ``http:`` if that is ``allowed``, and is not on this
    machine unless that is ``allowed`` as well."""
    problem = unfetchable(url, allowed)
    if problem is not None:
        raise ProtocolError(f"Expected an https URL of a data file, found {problem}.")


def _proxy_arguments(proxy: str | None, scheme: str) -> _ProxyArguments:
    if proxy is None:
        return {}, {}
    parts = urlsplit(proxy)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    login = proxy_headers(proxy)
    if scheme == "https":
        return {"proxy": bare, "proxy_headers": login}, {}
    # A proxy reads an http request itself, so its login is among the headers of the request.
    return {"proxy": bare}, login


def _headers(wanted: Wanted, version: Version | None) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity", "User-Agent": _user_agent()}
    if isinstance(wanted, ByteRange):
        headers["Range"] = f"bytes={wanted.start}-{wanted.stop - 1}"
    elif wanted is not None:
        headers["Range"] = f"bytes=-{wanted}"
    if version is not None and version.etag:
        headers["If-Match"] = version.etag
    return headers


async def _refusal(response: aiohttp.ClientResponse) -> Refused:
    """Return the status and, if they arrive in time, the code, message and region of a storage error, without secrets.
    S3, Google Cloud, Azure and similar stores send XML; some send headers as well."""
    body = b""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(_REASON_SECONDS):
            body = await response.content.read(_REASON_BYTES)
    text = body.decode("utf-8", "replace")
    matches = {name: re.search(rf"<{name}>([^<]*)</{name}>", text) for name in ("Code", "Message")}
    stated = {name: match[1] for name, match in matches.items() if match is not None}
    said = ": ".join(stated.values()) or response.headers.get("x-ms-error-code", "")
    shown = _LONG_WORD.sub(MASK, scrub(" ".join(html.unescape(said).split())))
    code = _CODE.fullmatch(stated.get("Code") or str(response.headers.get("x-ms-error-code", "")))
    in_text = _REGION.search(text)
    # The header has the bucket's region; the body may also name that of the endpoint.
    named: str = response.headers.get("x-amz-bucket-region") or ("" if in_text is None else in_text[1] or in_text[2])
    region = _REGION_NAME.fullmatch(named)
    return Refused(
        response.status,
        response.headers.get("Retry-After"),
        printable(shown[:_REASON_SHOWN]).rstrip("."),
        code="" if code is None else code[0],
        region="" if region is None else region[0],
    )


def _span(response: aiohttp.ClientResponse, wanted: Wanted) -> Span:
    headers = response.headers
    if codings := content_codings(headers.get("Content-Encoding", "")):
        raise DataError(
            f"Expected a data file without encoding, but the storage sent Content-Encoding '{', '.join(codings)}'."
        )
    length = headers.get("Content-Length", "")
    size = int(length) if length.isascii() and length.isdigit() and len(length) <= _LONGEST_NUMBER else None
    if response.status == 200:
        return Span(
            0,
            size,
            size,
            is_html=headers.get("Content-Type", "").lower().startswith("text/html"),
            # Without the last chunk, aiohttp raises an error.
            has_end=headers.get("Transfer-Encoding", "").lower() == "chunked",
        )
    match = _CONTENT_RANGE.match(headers.get("Content-Range", "").strip())
    if match is None or wanted is None:
        raise DataError(
            "Expected a Content-Range with the range of a data file in a response with status 206, found no valid one."
        )
    start, stop = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if stop <= start or (size is not None and size != stop - start):
        raise DataError(
            f"Expected the bytes {start} to {stop} of a data file, as stated in Content-Range, but Content-Length is "
            f"{length or 'missing'}."
        )
    if isinstance(wanted, ByteRange):
        if start != wanted.start or stop > wanted.stop:
            raise DataError(
                f"Expected the bytes {wanted.start} to {wanted.stop} of a data file, found {start} to {stop}."
            )
        return Span(start, stop, total)
    if total is None and (start == 0 or stop - start == wanted):
        # The requested bytes are the last ones of the file, so the file ends where they end.
        total = stop
    if total is None or stop != total or start < total - wanted:
        raise DataError(f"Expected the last {wanted} bytes of a data file, found {start} to {stop} of {total}.")
    return Span(start, stop, total)


@functools.cache
def _user_agent() -> str:
    return f"delta-sharing-client aiohttp/{aiohttp.__version__}"


# === Sessions with connections: one per loop ===

# A connection is reused only for requests with the same allowed addresses.
_Sessions = dict[Reach, aiohttp.ClientSession]
_sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Sessions] = weakref.WeakKeyDictionary()
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
# The ``_RequestTimer`` of the request that is being sent, and the limit in seconds for its headers.
_current: contextvars.ContextVar[tuple[_RequestTimer, float]] = contextvars.ContextVar("current")


class _Connector(aiohttp.TCPConnector):
    """Limits the number of idle connections, and keeps the most recently used ones; aiohttp limits only the connections
    in use."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._spare: dict[asyncio.Transport, None] = {}

    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        connection = await super().connect(*args, **kwargs)
        transport = connection.transport
        if transport is not None:
            self._spare.pop(transport, None)
            connection.add_callback(functools.partial(self._unused, transport))
        return connection

    def _unused(self, transport: asyncio.Transport) -> None:
        self._spare[transport] = None
        if len(self._spare) > _MOST_IDLE:
            self._spare = {connection: None for connection in self._spare if not connection.is_closing()}
        while len(self._spare) > _MOST_IDLE:
            oldest = next(iter(self._spare))
            del self._spare[oldest]
            oldest.close()


class _Response(aiohttp.ClientResponse):
    """Refuses a connection on which bytes arrived before the request, because they could be mistaken for the
    response."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        if protocol is None or protocol.should_close:
            raise aiohttp.ServerDisconnectedError
        timer, seconds = _current.get()
        timer.is_connecting = False
        timer.restart(seconds)
        return await super().start(connection)


def _session(reach: Reach) -> aiohttp.ClientSession:
    """Return the session of the running loop for ``reach``; aiohttp separates its connections by proxy and TLS
    settings."""
    sessions = _sessions.setdefault(asyncio.get_running_loop(), {})
    session = sessions.get(reach)
    if session is None:
        factory = functools.partial(_socket, reach)
        session = sessions[reach] = aiohttp.ClientSession(
            # There is no limit here, because ``source.RequestLimiter`` limits the number of requests.
            connector=_Connector(limit=0, keepalive_timeout=_KEPT_SECONDS, socket_factory=factory),
            response_class=_Response,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_CHUNK,
            max_line_size=_LONGEST_HEAD,
            max_field_size=_LONGEST_HEAD,
            trust_env=False,
        )
    return session


async def close_all() -> None:
    """Close the connections of the running loop; call this at its end."""
    for session in _sessions.pop(asyncio.get_running_loop(), {}).values():
        await session.close()


def _socket(reach: Reach, address: Any) -> socket.socket:
    family, kind, protocol, _, place = address
    if not reach.allows(place[0]):
        raise OutOfReach(reach)
    sock = socket.socket(family, kind, protocol)
    _sockets.add(sock)
    return sock


def _after_fork() -> None:
    # The sockets belong to the parent. The child closes only its copies, so that a connection ends when the parent
    # closes it.
    for sock in list(_sockets):
        with contextlib.suppress(OSError):
            os.close(sock.detach())
    _sockets.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
