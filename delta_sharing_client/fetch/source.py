"""Reads byte ranges of a remote file, each completely, or raises an error; resumes broken connections, renews URLs."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar, Union

import pyarrow as pa

from delta_sharing_client.errors import DataError, DeltaSharingError, TransportError, about_file
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.waiting import Order, Turns
from delta_sharing_client.instants import steady_ms
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.redact import safe_url
from delta_sharing_client.retry import (
    EXPIRED_STATUSES,
    RETRIED_STATUSES,
    Deadline,
    Transient,
    Tries,
    retry_after,
)

_MAX_REFRESHES = 2
# Statuses of overloaded storage: 503 is S3's "Slow Down".
_TOO_MANY = frozenset((429, 503))

ErrorT = TypeVar("ErrorT", bound=DeltaSharingError)


class Refused(Exception):
    """The storage responded with ``status`` instead of data; ``reason`` is its explanation, if any, without secrets."""

    def __init__(self, status: int, retry_after: str | None, reason: str = "") -> None:
        super().__init__(f"HTTP status {status}{', ' if reason else ''}{reason}")
        self.status = status
        self.retry_after = retry_after
        self.reason = reason


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


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """The content of a response: the bytes ``start`` to ``stop`` of a file of ``total`` bytes (``None``: not stated).

    ``is_html`` means that the content type of the response is HTML.
    """

    start: int
    stop: int | None
    total: int | None
    is_html: bool = False


class DataRequest(NamedTuple):
    """One GET of a data file.

    ``url`` is the file's pre-signed URL, or its address in a ``FileStore``. ``wanted`` is a range, a number of bytes at
    the end of the file, or ``None`` for the whole file. ``deadline`` is the deadline of the read. If the storage has a
    different version from ``version``, it responds with the status 412, or ignores this condition.
    """

    url: str
    wanted: ByteRange | int | None
    deadline: Deadline
    version: Version | None = None


Bytes = Union[bytes, memoryview]


class Body(Protocol):
    """An open response, positioned at its first byte."""

    @property
    def span(self) -> Span:
        """The bytes of the file in the response."""

    @property
    def version(self) -> Version:
        """The version of the file."""

    async def read(self) -> Bytes:
        """Return the available bytes: at least one, or none at the end. Raises ``Transient`` if a transfer fails."""


class UrlSource(Protocol):
    """A source of new pre-signed URLs. Implementations can be pickled, and threads share one renewal."""

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """Return a URL for ``key``: a data file (``FileTask.key``) or its deletion vector (``DeletionVectorRef.key``).

        ``rejected`` is a URL that the storage refused or that expired; the result is a different one. Keys come from
        ``delta.paths.url_key``. Raises a ``DeltaSharingError`` if there is no URL.
        """


class FileStore(Protocol):
    """A source of data files: ``Http``, or a storage without URLs. Implementations can be pickled."""

    @property
    def table(self) -> str:
        """The name of the table that the files belong to, for errors."""

    @property
    def options(self) -> ReadOptions:
        """The limits of the read."""

    async def get(self, request: DataRequest, take: Callable[[Body], Awaitable[None]]) -> None:
        """Like ``Http.get``, after renewing credentials if necessary."""


class Stale(DataError):
    """Parts of a file come from different versions; the file must be read again, once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reader:
    """The state that all remote files of a read share: HTTP or a store, the renewal of URLs, the counters of the read,
    the limit of concurrent requests, and the deadline."""

    http: FileStore
    urls: UrlSource | None
    report: ScanReport
    limiter: RequestLimiter = dataclasses.field(init=False)
    deadline: Deadline = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        # The read starts when this object is created.
        object.__setattr__(self, "limiter", RequestLimiter(self.http.options.max_concurrent_requests))
        object.__setattr__(self, "deadline", Deadline(self.http.options.total_timeout))


class RemoteFile:
    """A file behind a pre-signed URL, or in a store; for one event loop.

    ``size`` is its stated length, -1 if unknown; every response's total is compared with it. All bytes come from one
    version of the file: the given ``version``, or else that of the first response. ``order`` is the priority of its
    requests in the read.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        key: str,
        url: str,
        size: int,
        file_id: str | None,
        renew_at: int | None = None,
        stale: bool = False,
        version: Version | None = None,
        order: Order = (0, 0),
    ) -> None:
        self.reader = reader
        self._key = key
        self._url = url
        self._renew_at = renew_at
        self._is_stale = stale
        self._renewing: asyncio.Future[str] | None = None
        self._version = version
        self.order = order
        self.file_id = file_id
        self.size = size

    @property
    def version(self) -> Version:
        """The version that is being read; known once the first bytes have arrived."""
        return self._version or Version()

    def agree(self, version: Version) -> bool:
        """Return whether bytes of ``version`` may be combined with the bytes read before; always true for the first
        call, unless the object was created with a version."""
        if self._version is None:
            self._version = version
        return self._version.agrees(version)

    async def read(self, wanted: ByteRange) -> pa.Buffer:
        """Return the bytes of ``wanted``. Raises the errors of ``fetch``."""
        buffer = pa.allocate_buffer(wanted.length)
        await self.fetch(wanted, memoryview(buffer).cast("B"))
        return buffer

    async def fetch(self, wanted: ByteRange, into: memoryview) -> None:
        """Write the bytes of ``wanted`` into ``into``, which has the same length.

        Raises ``DataError`` if the file is missing, does not have the stated length, or the storage sends wrong bytes,
        ``Stale`` if the file was replaced after its first bytes were read, and ``TransportError`` if the bytes did not
        arrive within the retry limits, or the URL was refused and could not be renewed.
        """
        if wanted.length:
            with about_file(self.reader.http.table, self.file_id):
                await _Transfer(self, wanted, into).run()

    async def read_tail(self, length: int) -> tuple[int, pa.Buffer]:
        """Return the size of a file of unknown size, and its last ``length`` bytes (all bytes if it is shorter)."""
        tail = _TailTransfer(self, length)
        with about_file(self.reader.http.table, self.file_id):
            await tail.run()
        return tail.wanted.stop, tail.buffer

    # === Used by the transfers ===

    async def url(self) -> str:
        url, due = self._url, self._renew_at is not None and self._renew_at <= steady_ms()
        if (due or self._is_stale) and self.reader.urls:
            return await self.renew(url, refused=self._is_stale)
        return url

    async def renew(self, rejected: str, *, refused: bool = True) -> str:
        """Return a different URL from ``rejected``. Request it, unless another task has already done so.

        If ``rejected`` was not ``refused`` but is only old, the source may return a URL that it already knows.
        """
        if self.reader.urls is None:
            raise self.error(TransportError, "the storage refused the file's URL, and no new URL can be requested")
        if self._url != rejected:
            return self._url
        if self._renewing is None:
            asked = asyncio.to_thread(self.reader.urls.url_for, self._key, rejected if refused else None)
            self._renewing = asyncio.ensure_future(asked)
        try:
            # Shielded, because other tasks may wait for it as well, and the request continues on its thread anyway.
            self._url = await asyncio.shield(self._renewing)
            self._renew_at, self._is_stale = None, False
            return self._url
        finally:
            if self._renewing is not None and self._renewing.done():
                self._renewing = None

    def check_total(self, total: int | None, *, is_html: bool = False) -> None:
        if is_html and self.size >= 0 and total != self.size:
            raise self.error(
                DataError,
                f"expected a file of {self.size} bytes, found an HTML page; perhaps a proxy or a login page responds "
                "instead of the storage",
            )
        if total is not None and self.size >= 0 and total != self.size:
            raise self.error(DataError, f"expected a file of {self.size} bytes, but the storage has {total} bytes")

    def replaced(self) -> Stale:
        return self.error(
            Stale, "it was replaced while it was read, so its bytes do not belong together; read the table again"
        )

    def error(self, kind: type[ErrorT], reason: str) -> ErrorT:
        where = "" if self.file_id else f" at {safe_url(self._url)}"
        return kind(f"Cannot read a data file{where}: {reason}.", table=self.reader.http.table, file_id=self.file_id)


class _Transfer:
    """Fills memory with the bytes of ``wanted``: retries, resumes and renews the URL until all have arrived."""

    def __init__(self, file: RemoteFile, wanted: ByteRange, into: memoryview) -> None:
        self.file = file
        self.wanted = wanted
        self.into = into
        self.filled = 0
        self.refreshes = 0

    async def run(self) -> None:
        reader = self.file.reader
        tries: Tries | None = None
        while True:
            url = await self.file.url()
            before, began = self.filled, time.monotonic()
            failure = await self.attempt(url)
            if failure is None:
                return
            if tries is None or self.filled - before > reader.http.options.min_bytes_per_second * (
                time.monotonic() - began
            ):
                # Received bytes are kept, so only attempts with too little progress count towards the retry limits.
                tries = Tries(reader.http.options, reader.deadline, tell=reader.report.tell)
            await tries.failed_async(failure)
            reader.report.add(retries=1)

    async def attempt(self, url: str) -> Transient | None:
        """Send a request, and again whenever its URL must be renewed; return the error if a retry is needed."""
        reader = self.file.reader
        while True:
            try:
                refused = await self.asked(url)
            except Transient as broken:
                return broken
            if refused is None:
                if self.filled == self.wanted.length:
                    return None
                return Transient(self.file.error(TransportError, "the connection ended early"))
            if refused.status in EXPIRED_STATUSES and self.refreshes < _MAX_REFRESHES and reader.urls is not None:
                self.refreshes += 1
                url = await self.file.renew(url)
                reader.report.add(retries=1)
                continue
            self.check_status(refused)
            return Transient(
                self.file.error(TransportError, f"the storage responded with {refused}"),
                retry_after(refused.retry_after),
            )

    async def asked(self, url: str) -> Refused | None:
        """Wait for a slot and send one request for the missing bytes; return the refusal, if any."""
        reader = self.file.reader
        async with reader.limiter(self.file.order) as slot:
            reader.report.add(requests=1)
            request = DataRequest(url, self.missing(), reader.deadline, self.file.version)
            try:
                await reader.http.get(request, self.take)
            except Refused as refused:
                if refused.status in _TOO_MANY:
                    slot.refused()
                return refused
        return None

    def missing(self) -> ByteRange | int | None:
        """Return ``DataRequest.wanted`` for the bytes that are still missing."""
        rest = ByteRange(self.wanted.start + self.filled, self.wanted.stop)
        return None if rest == ByteRange(0, self.file.size) else rest

    async def take(self, body: Body) -> None:
        """Check a response and read its bytes."""
        self.file.check_total(body.span.total, is_html=body.span.is_html)
        if not self.file.agree(body.version):
            raise self.file.replaced()
        # A storage that ignores ranges sends the whole file, with the status 200.
        await self.receive(body, skip=max(0, self.wanted.start + self.filled - body.span.start))
        if self.filled == self.wanted.length and self.wanted.stop == self.file.size and body.span.stop is None:
            # A response without a length may continue past the stated end, and then it is a different file. If it is
            # interrupted there, no bytes are missing that could be requested, so the whole range is requested again.
            complete, self.filled = self.filled, 0
            if await body.read():
                raise self.longer()
            self.filled = complete

    async def receive(self, body: Body, skip: int) -> None:
        """Skip the first ``skip`` bytes of a response, and write the others into ``into``."""
        report, into, length = self.file.reader.report, self.into, self.wanted.length
        while self.filled < length and (data := await body.read()):
            if skip:
                skipped = min(skip, len(data))
                skip -= skipped
                data = data[skipped:]
            left = length - self.filled
            if len(data) > left:
                if body.span.stop is None and self.wanted.stop == self.file.size:
                    raise self.longer()
                data = data[:left]
            into[self.filled : self.filled + len(data)] = data
            self.filled += len(data)
            report.add(bytes=len(data))

    def longer(self) -> DataError:
        return self.file.error(DataError, f"expected a file of {self.file.size} bytes, but the storage sends more")

    def check_status(self, refused: Refused) -> None:
        status = refused.status
        # MinIO responds with 416 for a range that the new version does not have.
        if status in (412, 416) and self.file.version.etag:
            raise self.file.replaced()
        if status == 404:
            gone = self.file.error(
                DataError, "it is missing (HTTP status 404); it may have been vacuumed, query the table again"
            )
            gone.status = status
            raise gone
        if status == 416:
            raise self.file.error(
                DataError, f"it has no bytes {self.wanted.start} to {self.wanted.stop} (HTTP status 416)"
            )
        if status in EXPIRED_STATUSES:
            guess = "" if refused.reason else "; it may have expired"
            raise self.file.error(TransportError, f"the storage refused the file's URL ({refused}){guess}")
        if status not in RETRIED_STATUSES:
            raise self.file.error(TransportError, f"the storage responded with {refused}")


class _TailTransfer(_Transfer):
    """Reads the end of a file of unknown size; each attempt starts from the beginning."""

    def __init__(self, file: RemoteFile, length: int) -> None:
        super().__init__(file, ByteRange(0, 0), memoryview(b""))
        self.length = length
        self.buffer: pa.Buffer = pa.py_buffer(b"")

    def missing(self) -> int:
        self.filled = 0
        return self.length

    async def take(self, body: Body) -> None:
        total = body.span.total
        if total is None:
            raise self.file.error(DataError, "neither the sharing server nor the storage states its length")
        if not self.file.agree(body.version):
            raise self.file.replaced()
        start = max(0, total - self.length)
        self.wanted = ByteRange(start, total)
        self.buffer = pa.allocate_buffer(total - start)
        self.into = memoryview(self.buffer).cast("B") if total > start else memoryview(b"")
        await self.receive(body, skip=start - body.span.start)


# === The number of concurrent requests ===


class RequestLimiter:
    """Allows at most ``most`` requests at a time, lowest order first; for one event loop.

    The limit is halved when the server refuses a request as one too many (429, 503), and grows by one again after as
    many successful requests as the limit.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, most)
        self.limit = self._most
        """The number of requests that may be in flight now."""
        self._active = 0
        self._succeeded = 0
        self._generation = 0
        self._turns = Turns[None]()

    def __call__(self, order: Order) -> RequestSlot:
        """Return a slot for a request: ``async with limiter(order) as slot``."""
        return RequestSlot(self, order)

    def _begin(self, _: None) -> bool:
        if self._active >= self.limit:
            return False
        self._active += 1
        return True

    def _end(self, _: None) -> None:
        self._active -= 1
        self._turns.serve(self._begin)


class RequestSlot:
    """The slot of one request."""

    __slots__ = ("_generation", "_limiter", "_order")

    def __init__(self, limiter: RequestLimiter, order: Order) -> None:
        self._limiter = limiter
        self._order = order
        self._generation = -1

    def refused(self) -> None:
        """Record that the server refused the request because there are too many."""
        limiter = self._limiter
        # Concurrent requests are often refused together, so their refusals count as one.
        if self._generation == limiter._generation:
            limiter._generation += 1
            limiter.limit, limiter._succeeded = max(1, min(limiter.limit, limiter._active) // 2), 0

    async def __aenter__(self) -> RequestSlot:
        limiter = self._limiter
        await limiter._turns.wait(self._order, None, limiter._begin, limiter._end)
        self._generation = limiter._generation
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        limiter = self._limiter
        # A request that was sent before a refusal was not subject to the lower limit, so its success does not count.
        if kind is None and limiter.limit < limiter._most and self._generation == limiter._generation:
            limiter._succeeded += 1
            if limiter._succeeded >= limiter.limit:
                limiter.limit, limiter._succeeded = limiter.limit + 1, 0
        limiter._end(None)
