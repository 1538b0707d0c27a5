"""A place has named bytes. It sends one request and returns the response: it never retries, waits or writes.

``fetch.source`` does what takes several requests, for all places alike.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, Union

import msgspec

from delta_sharing_client.errors import AuthError, TransportError
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange

Bytes = Union[bytes, memoryview]
Wanted = Union[ByteRange, int, None]
"""A range, a number of bytes at the end of the file, or ``None`` for the whole file."""


class Refused(Exception):
    """The storage responded with ``status`` instead of data.

    ``reason`` is its explanation, without secrets; ``code`` is the error code of a store, and ``region`` the region
    that it names. All three may be empty.
    """

    def __init__(
        self, status: int, retry_after: str | None, reason: str = "", *, code: str = "", region: str = ""
    ) -> None:
        super().__init__(f"HTTP status {status}{', ' if reason else ''}{reason}")
        self.status = status
        self.retry_after = retry_after
        self.reason = reason
        self.code = code
        self.region = region

    def error(
        self, message: str, *, table: str | None = None, file_id: str | None = None
    ) -> AuthError | TransportError:
        """Return the error with this message: an ``AuthError`` if the credentials were refused."""
        if self.status in (401, 403):
            return AuthError(message, status=self.status, table=table, file_id=file_id)
        return TransportError(message, table=table, file_id=file_id)


class Version(NamedTuple):
    """The version of a file: its strong ETag, ``Last-Modified`` and length; each is empty or ``None`` if not stated.

    Bytes may be combined only if their strong ETags are equal (RFC 9110, 15.3.7.3). If an ETag is missing, the other
    two must be equal, as far as both are stated.
    """

    etag: str = ""
    modified: str = ""
    total: int | None = None

    def agrees(self, other: Version) -> bool:
        """Return whether bytes of both versions may be combined."""
        if self.etag and other.etag:
            return self.etag == other.etag
        return (not self.modified or not other.modified or self.modified == other.modified) and (
            self.total is None or other.total is None or self.total == other.total
        )


class Span(NamedTuple):
    """The content of a response: the bytes ``start`` to ``stop`` of a file of ``total`` bytes (``None``: not stated).

    ``is_html`` means that the content type of the response is HTML. ``has_end`` means that the body shows its own end
    (chunks), so that it is known to be complete although no length is stated.
    """

    start: int
    stop: int | None
    total: int | None
    is_html: bool = False
    has_end: bool = False


class DataRequest(NamedTuple):
    """One GET of a file.

    ``address`` is a pre-signed URL, or the address of the file in the place. ``deadline`` is the deadline of the
    operation. If the storage has a different version from ``version``, it responds with the status 412, or ignores this
    condition.
    """

    address: str
    wanted: Wanted
    deadline: Deadline
    version: Version | None = None


class Checksum(NamedTuple):
    """The checksum of a whole file that a store states: the name of the algorithm for ``hashlib``, and the digest."""

    algorithm: str
    digest: bytes


class Body(Protocol):
    """An open response, positioned at its first byte."""

    @property
    def span(self) -> Span:
        """The bytes of the file in the response."""

    @property
    def version(self) -> Version:
        """The version of the file."""

    @property
    def modified(self) -> datetime.datetime | None:
        """When the file was last written, in UTC, if the storage states it."""

    @property
    def checksum(self) -> Checksum | None:
        """The checksum of the whole file, if the storage states it."""

    async def read(self) -> Bytes:
        """Return the available bytes: at least one, or none at the end. Raises ``Transient`` if a transfer fails."""


Take = Callable[[Body], Awaitable[None]]
"""Reads an open response."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a location.

    Attributes
    ----------
    path:
        The path relative to the location, with ``/`` as separator.
    size:
        The size in bytes.
    modified:
        When the file was last written, in UTC; ``None`` if the server does not state it.
    etag:
        The ETag, which identifies the content; ``None`` if the store has none.
    md5:
        The MD5 of the content as 32 hexadecimal digits, if the listing states it.
    """

    path: str
    size: int
    modified: Union[datetime.datetime, None] = None
    etag: Union[str, None] = None
    md5: Union[str, None] = None


class Page(NamedTuple):
    """One response to a listing: files, also folders if the listing is not recursive, and directory markers.

    ``files`` and ``folders`` are in the order of the store; a marker is the path of a directory that the store states
    to exist, also if nothing is in it. ``next`` continues the listing; ``None`` at its end. ``others`` is the number of
    entries that the response had besides.
    """

    files: list[StoredFile]
    folders: list[str]
    markers: frozenset[str] = frozenset()
    next: str | None = None
    others: int = 0


class UrlSource(Protocol):
    """A source of new pre-signed URLs. Implementations can be pickled, and threads share one renewal."""

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """Return a URL for ``key``: a data file (``FileTask.key``) or its deletion vector (``DeletionVectorRef.key``).

        ``rejected`` is a URL that the storage refused or that expired; the result is a different one. Keys come from
        ``delta.paths.url_key``. Raises a ``DeltaSharingError`` if there is no URL.
        """


class Place(Protocol):
    """Named bytes, behind URLs, in a store or in a directory.

    Picklable, without connections; all tasks of a read share one, on one event loop or several.
    """

    @property
    def table(self) -> str | None:
        """The table that the files belong to, for errors; ``None`` for other assets."""

    @property
    def options(self) -> ReadOptions:
        """The limits of requests."""

    @property
    def urls(self) -> UrlSource | None:
        """The source of new URLs, for files behind pre-signed URLs; other places renew their credentials themselves."""

    @property
    def lists_in_order(self) -> bool:
        """Whether ``page`` returns names in the order of their bytes, from page to page."""

    async def get(self, request: DataRequest, take: Take) -> None:
        """Send one GET and pass the open response to ``take``.

        Credentials that end soon are renewed before; refused ones are renewed once, and the request is sent again.

        Raises ``Refused`` for a response that is not data, ``Transient`` if no response or only a part of it arrived,
        ``ProtocolError`` for an address that is not allowed, and ``DataError`` for a response that contradicts the
        request.
        """

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        """Request one page of the files below ``folder``, or directly in it if not ``recursive``; ``mark`` is ``None``
        for the first page, and then the previous page's ``next``. Raises the errors of ``get``; a place that lists
        nothing raises ``Refused`` with the status 405."""
