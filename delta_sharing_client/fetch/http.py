"""GET of a byte range, once: connections, proxies and headers; no retries.

The body goes from the socket into the caller's memory without a copy in between.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import urllib3

from delta_sharing_client.connections import Answer, Line, Pool, Watch, host_pool, pool, sending
from delta_sharing_client.errors import DataError, ProtocolError, TransportError
from delta_sharing_client.network import MAX_REDIRECTS, REDIRECTS, Network, redirected, unfetchable
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.retry import LIBRARY_ERRORS, Deadline, Transient, network_failure
from delta_sharing_client.shortcuts import SHORTCUTS

_DOING = "Reading a data file"
_CHUNK = 1024 * 1024
_LONGEST_NUMBER = 19
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)\Z", re.ASCII)
# A URL that is sent as it is: scheme, host, port, and what may stand in a request's target (RFC 3986, 3.3 and 3.4).
_PLAIN_URL = re.compile(
    r"(https?)://([a-z0-9]+(?:[.-]+[a-z0-9]+)*)(?::([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}))?"
    r"(/[A-Za-z0-9._~!$&'()*+,;=:@/?-]*(?:%[0-9A-Fa-f]{2}[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)*)\Z",
    re.ASCII,
)


class Refused(Exception):
    """The storage answered with ``status`` instead of data."""

    def __init__(self, status: int, retry_after: str | None) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status
        self.retry_after = retry_after


class Version(NamedTuple):
    """What tells two contents of one file apart: a strong ETag, ``Last-Modified``, the length; empty where not stated.

    Parts of a file belong together only if a strong validator says so (RFC 9110, 15.3.7.3). Where there is none, the
    other two are all there is to go by.
    """

    etag: str = ""
    modified: str = ""
    total: int | None = None

    def agrees(self, other: Version) -> bool:
        """Whether parts of both may be put together."""
        if self.etag and other.etag:
            return self.etag == other.etag
        return (not self.modified or not other.modified or self.modified == other.modified) and (
            self.total is None or other.total is None or self.total == other.total
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """What an answer holds: bytes ``start`` to ``stop`` of a file of ``total`` bytes (``None`` where not stated)."""

    start: int
    stop: int | None
    total: int | None


class Body:
    """An open answer. ``read_into`` fills memory; ``close`` gives the connection back if the body was read to its end
    and nobody has broken it off, and drops it otherwise."""

    def __init__(self, response: Answer, span: Span, table: str) -> None:
        self.span = span
        etag = response.headers.get("ETag", "")
        self.version = Version(
            etag if etag.startswith('"') else "", response.headers.get("Last-Modified", ""), span.total
        )
        self._table = table
        self._response = response
        # urllib3's own readinto() goes through two copies; http.client's, below it, through none.
        raw = getattr(response, "_fp", response) if SHORTCUTS.direct_reads else None
        self._readinto: Callable[[memoryview], int] | None = getattr(raw, "readinto", None)
        self._left = None if span.stop is None else span.stop - span.start

    def read_into(self, view: memoryview) -> int:
        """Fill ``view`` from the body and return how many bytes came, 0 at its end. Raises ``Transient``."""
        view = view[:_CHUNK]
        try:
            if self._readinto is not None:
                count = self._readinto(view) or 0
            else:
                data = self._response.read(len(view))
                count = len(data)
                view[:count] = data
        except (ValueError, AttributeError):
            # A socket that another thread shut down shows as one of these, depending on the moment.
            raise self._broken_off() from None
        except LIBRARY_ERRORS as error:
            raise network_failure(error, _DOING, self._table, receiving=True) from None
        if self._left is not None:
            self._left -= count
        return count

    def skip(self, count: int) -> None:
        """Read ``count`` bytes and forget them."""
        scratch = memoryview(bytearray(min(count, _CHUNK)))
        while count > 0:
            got = self.read_into(scratch[: min(count, _CHUNK)])
            if not got:
                raise self._broken_off()
            count -= got

    def _broken_off(self) -> Transient:
        return Transient(TransportError(f"{_DOING} failed: the transfer broke off.", table=self._table))

    def close(self, *, broken: bool = False) -> None:
        if self._left == 0 and not broken:
            self._response.release_conn()
        else:
            self._response.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Http:
    """Sends range requests with the limits of ``options``; holds no connection itself, so it pickles."""

    options: ReadOptions
    allow_http: bool
    table: str
    network: Network = dataclasses.field(init=False)
    # Looking for a proxy goes through the whole environment; a scan asks once for each host.
    _proxies: dict[tuple[str, str, int | None], str | None] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "network", Network.of(self.options))

    def get(
        self,
        url: str,
        wanted: ByteRange | int | None,
        file_id: str | None,
        deadline: Deadline,
        line: Line | None = None,
        version: Version | None = None,
    ) -> Body:
        """Send one GET and return the open answer, positioned at its first byte.

        Parameters
        ----------
        url:
            Pre-signed URL; checked here, as is every redirect.
        wanted:
            A range, a number of bytes from the end, or ``None`` for the whole file.
        deadline:
            That of the whole read.
        line:
            Told of the socket, from before the answer is waited for.
        version:
            The one that is wanted. A storage that has another refuses with 412; one that does not look answers.

        Raises
        ------
        Refused
            A status other than 200 and 206.
        Transient
            No answer arrived.
        DataError, ProtocolError, TransportError
            The answer is encoded or names a range that was not asked for; the URL may not be fetched; no answer can
            arrive.
        """
        headers = _headers(wanted, version)
        for _ in range(MAX_REDIRECTS + 1):
            check_data_url(url, allow_http=self.allow_http, table=self.table, file_id=file_id)
            watch = Watch(self.options, deadline, _DOING, self.table)
            response = self._send(url, headers, watch, line)
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or location is None:
                break
            response.close()
            url = redirected(url, location)
        if response.status not in (200, 206):
            retry_after = response.headers.get("Retry-After")
            status = response.status
            response.close()
            raise Refused(status, retry_after)
        try:
            return Body(response, _span(response, wanted), self.table)
        except DataError as error:
            response.close()
            error.table, error.file_id = self.table, file_id
            raise

    def _send(self, url: str, headers: Mapping[str, str], watch: Watch, line: Line | None) -> Answer:
        connect, read = self.options.connect_timeout, self.options.read_timeout
        try:
            connections, target = self._route(url)
            with sending(watch, line):
                if isinstance(connections, Pool):
                    return connections.get(target, headers, connect, read)
                return connections.urlopen(
                    "GET",
                    target,
                    headers=headers,
                    preload_content=False,
                    redirect=False,
                    retries=False,
                    timeout=urllib3.Timeout(connect=connect, read=read),
                )
        except LIBRARY_ERRORS as error:
            failure = network_failure(error, _DOING, self.table, url=url)
        # Raised here: with the library's error as its context it would keep the socket.
        raise failure

    def _route(self, url: str) -> tuple[Pool | urllib3.PoolManager, str]:
        """Return who sends the request, and what it is to be given as the URL."""
        # urllib3 takes a signed URL apart byte by byte, and more than once. Where only its host is needed, do without.
        found = _PLAIN_URL.match(url) if SHORTCUTS.direct_targets else None
        if found is not None:
            scheme, host, target = found[1], found[2], found[4]
            port = int(found[3]) if found[3] else None
        else:
            parts = urlsplit(url)
            scheme, host, port, target = parts.scheme, parts.hostname or "", parts.port, ""
        origin = (scheme, host, port)
        if origin not in self._proxies:
            self._proxies[origin] = self.network.proxy_for(url)
        proxy, most = self._proxies[origin], self.options.max_concurrent_requests
        if target and proxy is None:
            connections = host_pool(self.network, most, scheme, host, port)
            if connections is not None:
                return connections, target
        return pool(self.network, proxy, most, scheme), url


def check_data_url(url: str, *, allow_http: bool, table: str | None = None, file_id: str | None = None) -> None:
    """Raise ``ProtocolError`` unless ``url`` is ``https:``, or ``http:`` to this machine or where ``allow_http``.

    A server must not make its recipients read local files or send requests in clear text. ``allow_http`` is for
    profiles whose own endpoint is ``http:``.
    """
    problem = unfetchable(url, allow_http=allow_http)
    if problem is not None:
        raise ProtocolError(f"Expected an https URL of a data file, found {problem}.", table=table, file_id=file_id)


def _headers(wanted: ByteRange | int | None, version: Version | None) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity", "User-Agent": _user_agent()}
    if isinstance(wanted, ByteRange):
        headers["Range"] = f"bytes={wanted.start}-{wanted.stop - 1}"
    elif wanted is not None:
        headers["Range"] = f"bytes=-{wanted}"
    if version is not None and version.etag:
        headers["If-Match"] = version.etag
    return headers


def _span(response: Answer, wanted: ByteRange | int | None) -> Span:
    encoding = response.headers.get("Content-Encoding", "identity").lower()
    # aws-chunked says how the file once came to S3, which hands the word on; the bytes are the file's.
    if encoding not in ("", "identity", "aws-chunked"):
        raise DataError(
            f"Expected the bytes of a data file as they are, the storage sent them with Content-Encoding '{encoding}'."
        )
    length = response.headers.get("Content-Length", "")
    known = int(length) if length.isascii() and length.isdigit() and len(length) <= _LONGEST_NUMBER else None
    if response.status == 200:
        return Span(0, known, known)
    match = _CONTENT_RANGE.match(response.headers.get("Content-Range", "").strip())
    if match is None or wanted is None:
        raise DataError(
            "Expected a Content-Range that says which part of a data file follows (status 206), found none that does."
        )
    start, stop = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if stop <= start or (known is not None and known != stop - start):
        raise DataError(
            f"Expected the bytes {start} to {stop} of a data file, as Content-Range says, found a length of {length}."
        )
    if isinstance(wanted, ByteRange):
        if start != wanted.start or stop > wanted.stop:
            raise DataError(
                f"Expected the bytes {wanted.start} to {wanted.stop} of a data file, found {start} to {stop}."
            )
    elif total is None or stop != total or start < total - wanted:
        raise DataError(f"Expected the last {wanted} bytes of a data file, found {start} to {stop} of {total}.")
    return Span(start, stop, total)


@functools.cache
def _user_agent() -> str:
    return f"delta-sharing-client urllib3/{urllib3.__version__}"  # type: ignore[attr-defined]
