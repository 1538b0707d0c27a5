"""Reads the bytes of places: the only code that sends a request a second time.

Byte ranges and whole files arrive completely, from one version of the file, or an error is raised: broken connections
are resumed, URLs renewed, and requests retried within the limits of the options.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyarrow as pa

from delta_sharing_client.errors import DataError, DeltaSharingError, TransportError, about_file
from delta_sharing_client.fetch.place import Body, Bytes, Checksum, DataRequest, Place, Refused, Take, Version, Wanted
from delta_sharing_client.fetch.report import ScanReport, add_counts, tell_wait
from delta_sharing_client.fetch.waiting import Order, Turns
from delta_sharing_client.http.retry import (
    EXPIRED_STATUSES,
    NOT_IMPLEMENTED,
    RETRIED_STATUSES,
    Deadline,
    Transient,
    Tries,
    retry_after,
)
from delta_sharing_client.instants import steady_ms
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.redact import safe_url

_MAX_REFRESHES = 2
# Statuses of overloaded storage: 503 is S3's "Slow Down".
_TOO_MANY = frozenset((429, 503))

ErrorT = TypeVar("ErrorT", bound=DeltaSharingError)
T = TypeVar("T")


WEB_PAGE = "an HTML page; perhaps a proxy or a login page responds instead of the storage"


def is_web_page(body: Body) -> bool:
    """Return whether a response is an HTML page that is no file: stores state at least one fact about each version."""
    return body.span.is_html and not body.version.etag and not body.version.modified


class Stale(DataError):
    """Parts of a file come from different versions; the file must be read again, in the next ``Attempt``."""

    def ended(self) -> DataError:
        """Return the error if there is no further attempt."""
        return DataError(self.message, table=self.table, version=self.version, file_id=self.file_id)


class Attempt(enum.IntEnum):
    """How a file is read: first, again with a new URL, or in one response without conditions, because the versions that
    the storage states differ from response to response."""

    FIRST = 0
    AGAIN = 1
    IN_ONE_RESPONSE = 2


MOST_IN_ONE_RESPONSE = 64 * 1024 * 1024
"""Larger files are not read in one response, because it is held in memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fetcher:
    """The state that all files of one operation share: their place, the counters of the read, the limit of concurrent
    requests, and the deadline. For one event loop.

    ``limits`` has the limits of its requests, by default those of the place.
    """

    place: Place
    report: ScanReport = dataclasses.field(default_factory=ScanReport)
    limits: dataclasses.InitVar[ReadOptions | None] = None
    options: ReadOptions = dataclasses.field(init=False)
    limiter: RequestLimiter = dataclasses.field(init=False)
    deadline: Deadline = dataclasses.field(init=False)

    def __post_init__(self, limits: ReadOptions | None) -> None:
        # The operation starts when this object is created.
        object.__setattr__(self, "options", limits or self.place.options)
        object.__setattr__(self, "limiter", RequestLimiter(self.options.max_concurrent_requests))
        object.__setattr__(self, "deadline", Deadline(self.options.total_timeout))

    def tries(self) -> Tries:
        """Return the attempts of one request."""
        return Tries(self.options, self.deadline, tell=functools.partial(tell_wait, self.report))


async def send(fetcher: Fetcher, request: DataRequest, take: Take) -> None:
    """Send ``request`` until ``take`` has read a response; it reads each response from the start. Errors as for
    ``repeated``."""
    await repeated(fetcher, lambda: fetcher.place.get(request, take), "A file cannot be read")


async def repeated(fetcher: Fetcher, request: Callable[[], Awaitable[T]], problem: str) -> T:
    """Return the result of ``request()``, which sends one request; it is called again while a retry may help.

    Raises ``Refused`` if the place refuses it, and ``TransportError`` if no response arrives within the limits; then
    ``problem`` begins the message.
    """
    tries = fetcher.tries()
    while True:
        try:
            async with fetcher.limiter((0,)) as slot:
                add_counts(fetcher.report, requests=1)
                try:
                    return await request()
                except Refused as refused:
                    failure = _transient(fetcher, refused, slot, problem)
        except Transient as broken:
            failure = broken
        await tries.failed_async(failure)
        add_counts(fetcher.report, retries=1)


def _transient(fetcher: Fetcher, refused: Refused, slot: RequestSlot, problem: str) -> Transient:
    """Return the failure for a response after which a retry may help; otherwise raise ``refused``."""
    if refused.status not in RETRIED_STATUSES:
        raise refused
    if refused.status in _TOO_MANY:
        slot.refused()
    error = TransportError(f"{problem}: the storage responded with {refused}.", table=fetcher.place.table)
    return Transient(error, retry_after(refused.retry_after))


class RemoteFile:
    """A file of a place; for one event loop.

    ``url`` is its pre-signed URL, or its address in the place. ``size`` is its stated length, -1 if unknown; every
    response's total is compared with it. All bytes come from one version of the file: the given ``version``, or else
    that of the first response. ``order`` is the priority of its requests in the read. ``name`` is what errors call it;
    ``refusal`` returns the error for a response that is not data, by default that of a data file of a table.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        key: str,
        url: str,
        size: int,
        file_id: str | None,
        renew_at: int | None = None,
        attempt: Attempt = Attempt.FIRST,
        version: Version | None = None,
        order: Order = (0, 0),
        name: str = "",
        refusal: Callable[[Refused], Exception] | None = None,
    ) -> None:
        self.fetcher = fetcher
        self._name = name
        self._refusal = refusal
        self._key = key
        self._url = url
        self._renew_at = renew_at
        self._is_stale = attempt > Attempt.FIRST
        self.is_in_one_response = attempt is Attempt.IN_ONE_RESPONSE
        self.is_conditional = True
        """Whether requests name the version that they want."""
        self._renewing: asyncio.Future[str] | None = None
        self._version = version
        self.order = order
        self.file_id = file_id
        self.size = size
        self.checksum: Checksum | None = None
        """The checksum of the whole file, once a response has stated it."""

    @property
    def condition(self) -> Version | None:
        """The version that a request demands."""
        return self.version if self.is_conditional else None

    def forget_version(self) -> None:
        """Take the version of the next response, which has all bytes."""
        self._version = None

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
            with about_file(self.fetcher.place.table, self.file_id):
                await _Transfer(self, wanted, into).run()

    async def pour(self, wanted: ByteRange, put: Callable[[Bytes], None]) -> None:
        """Call ``put`` with the bytes of ``wanted`` as they arrive, in order. Raises the errors of ``fetch``; the bytes
        before an error are those of the file, too."""
        if wanted.length:
            with about_file(self.fetcher.place.table, self.file_id):
                await _PouringTransfer(self, wanted, put).run()

    async def read_all(self, most: int | None = None) -> pa.Buffer:
        """Return all bytes of a file, whose size need not be known; sets ``size``.

        Raises the errors of ``fetch``, and ``DataError`` before the download if the file has more than ``most`` bytes.
        """
        whole = _WholeTransfer(self, most)
        with about_file(self.fetcher.place.table, self.file_id):
            await whole.run()
        self.size = whole.wanted.stop
        return whole.buffer

    async def read_tail(self, length: int) -> tuple[int, pa.Buffer]:
        """Return the size of a file of unknown size, and its last ``length`` bytes (all bytes if it is shorter)."""
        tail = _TailTransfer(self, length)
        with about_file(self.fetcher.place.table, self.file_id):
            await tail.run()
        return tail.wanted.stop, tail.buffer

    # === Used by the transfers ===

    async def url(self) -> str:
        url, due = self._url, self._renew_at is not None and self._renew_at <= steady_ms()
        if (due or self._is_stale) and self.fetcher.place.urls:
            return await self.renew(url, refused=self._is_stale)
        return url

    async def renew(self, rejected: str, *, refused: bool = True) -> str:
        """Return a different URL from ``rejected``. Request it, unless another task has already done so.

        If ``rejected`` was not ``refused`` but is only old, the source may return a URL that it already knows.
        """
        if self.fetcher.place.urls is None:
            raise self.error(TransportError, "the storage refused the file's URL, and no new URL can be requested")
        if self._url != rejected:
            return self._url
        if self._renewing is None:
            asked = asyncio.to_thread(self.fetcher.place.urls.url_for, self._key, rejected if refused else None)
            self._renewing = asyncio.ensure_future(asked)
        try:
            # Shielded, because other tasks may wait for it as well, and the request continues on its thread anyway.
            self._url = await asyncio.shield(self._renewing)
            self._renew_at, self._is_stale = None, False
            return self._url
        finally:
            if self._renewing is not None and self._renewing.done():
                self._renewing = None

    def check(self, body: Body) -> None:
        """Raise ``Stale`` if a response has another version than earlier ones, ``DataError`` if it has another size."""
        if body.span.is_html:
            self.check_size(body)
        if not self.agree(body.version):
            raise self.replaced()
        if self.is_in_one_response and body.span.total not in (None, self.size):
            raise self.replaced()
        self.check_size(body)

    def check_size(self, body: Body) -> None:
        """Raise ``DataError`` if a response has another size than the file, or is a web page."""
        if self.size < 0 and is_web_page(body):
            raise self.error(DataError, f"expected a file, found {WEB_PAGE}")
        if body.span.is_html and self.size >= 0 and body.span.total != self.size:
            raise self.error(DataError, f"expected a file of {self.size} bytes, found {WEB_PAGE}")
        self.check_total(body.span.total)

    def check_total(self, total: int | None) -> None:
        if total is not None and self.size >= 0 and total != self.size:
            raise self.error(DataError, f"expected a file of {self.size} bytes, but the storage has {total} bytes")

    def replaced(self) -> Stale:
        return self.error(
            Stale,
            "it was replaced while it was read, so its bytes do not belong together; read "
            + ("it again" if self._name else "the table again"),
        )

    def error(self, kind: type[ErrorT], reason: str) -> ErrorT:
        return kind(f"Cannot read {self._called()}: {reason}.", table=self.fetcher.place.table, file_id=self.file_id)

    def _called(self) -> str:
        return self._name or ("a data file" if self.file_id else f"a data file at {safe_url(self._url)}")

    def refused(self, refused: Refused) -> DeltaSharingError:
        """Return the error for credentials that the storage refuses."""
        return refused.error(
            f"Cannot read {self._called()}: the storage refused access ({refused}). Ask the provider whether the "
            "credentials may read it.",
            table=self.fetcher.place.table,
            file_id=self.file_id,
        )

    def check_refusal(self, refused: Refused) -> None:
        """Raise the error that the file's owner has for this refusal, if it has one."""
        if self._refusal is not None:
            raise self._refusal(refused) from None


class _Transfer:
    """Fills memory with the bytes of ``wanted``: retries, resumes and renews the URL until all have arrived."""

    def __init__(self, file: RemoteFile, wanted: ByteRange, into: memoryview) -> None:
        self.file = file
        self.wanted = wanted
        self.into = into
        self.filled = 0
        self.refreshes = 0
        self.has_condition = False

    async def run(self) -> None:
        fetcher = self.file.fetcher
        tries: Tries | None = None
        while True:
            url = await self.file.url()
            before, began = self.filled, time.monotonic()
            failure = await self.attempt(url)
            if failure is None:
                return
            if tries is None or self.filled - before > fetcher.options.min_bytes_per_second * (
                time.monotonic() - began
            ):
                # Received bytes are kept, so only attempts with too little progress count towards the retry limits.
                tries = fetcher.tries()
            await tries.failed_async(failure)
            add_counts(fetcher.report, retries=1)

    async def attempt(self, url: str) -> Transient | None:
        """Send a request, and resend it each time its URL is renewed; return the error if a retry is needed."""
        fetcher = self.file.fetcher
        while True:
            try:
                refused = await self.exchange(url)
            except Transient as broken:
                return broken
            if refused is None:
                if self.filled == self.wanted.length:
                    return None
                return Transient(self.file.error(TransportError, "the connection ended early"))
            may_renew = fetcher.place.urls is not None and self.refreshes < _MAX_REFRESHES
            if refused.status in EXPIRED_STATUSES and may_renew:
                self.refreshes += 1
                url = await self.file.renew(url)
                add_counts(fetcher.report, retries=1)
                continue
            if refused.status in (412, NOT_IMPLEMENTED) and self.has_condition:
                # Some storages refuse the condition although their file is the same: its response shows the version.
                self.file.is_conditional = False
                add_counts(fetcher.report, retries=1)
                continue
            self.check_status(refused)
            return Transient(
                self.file.error(TransportError, f"the storage responded with {refused}"),
                retry_after(refused.retry_after),
            )

    async def exchange(self, url: str) -> Refused | None:
        """Wait for a slot and send one request for the missing bytes; return the refusal, if any."""
        fetcher = self.file.fetcher
        async with fetcher.limiter(self.file.order) as slot:
            add_counts(fetcher.report, requests=1)
            wanted = self.missing()
            condition = self.file.condition
            # Other requests for the file may be under way, and change whether later ones have conditions.
            self.has_condition = condition is not None and bool(condition.etag)
            request = DataRequest(url, wanted, fetcher.deadline, condition)
            try:
                await fetcher.place.get(request, self.take)
            except Refused as refused:
                if refused.status in _TOO_MANY:
                    slot.refused()
                return refused
        return None

    def missing(self) -> Wanted:
        """Return ``DataRequest.wanted`` for the bytes that are still missing."""
        if self.file.is_in_one_response:
            self.filled = 0
            self.file.forget_version()
            return None
        rest = ByteRange(self.wanted.start + self.filled, self.wanted.stop)
        return None if rest == ByteRange(0, self.file.size) else rest

    async def take(self, body: Body) -> None:
        """Check a response and read its bytes."""
        self.file.check(body)
        self.file.checksum = self.file.checksum or body.checksum
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
        """Skip the first ``skip`` bytes of a response, and ``put`` the others."""
        report, length = self.file.fetcher.report, self.wanted.length
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
            self.put(data)
            self.filled += len(data)
            add_counts(report, bytes=len(data))

    def put(self, data: Bytes) -> None:
        """Store the next bytes."""
        self.into[self.filled : self.filled + len(data)] = data

    def longer(self) -> DataError:
        return self.file.error(DataError, f"expected a file of {self.file.size} bytes, but the storage sends more")

    def check_status(self, refused: Refused) -> None:
        status = refused.status
        # MinIO responds with 416 for a range that the new version does not have.
        if status in (412, 416) and self.file.version.etag:
            raise self.file.replaced()
        if status not in RETRIED_STATUSES:
            self.file.check_refusal(refused)
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
        if status in (401, 403) and self.file.fetcher.place.urls is None:
            raise self.file.refused(refused)
        if status in EXPIRED_STATUSES:
            guess = "" if refused.reason else "; it may have expired"
            raise self.file.error(TransportError, f"the storage refused the file's URL ({refused}){guess}")
        if status not in RETRIED_STATUSES:
            raise self.file.error(TransportError, f"the storage responded with {refused}")


class _PouringTransfer(_Transfer):
    """Passes the bytes of ``wanted`` on as they arrive."""

    def __init__(self, file: RemoteFile, wanted: ByteRange, pour: Callable[[Bytes], None]) -> None:
        super().__init__(file, wanted, memoryview(b""))
        self.pour = pour

    def put(self, data: Bytes) -> None:
        self.pour(data)

    async def take(self, body: Body) -> None:
        if body.span.stop is not None:
            await super().take(body)
            return
        # Only the end of a response without a length shows whether its bytes belong to the file.
        left = ByteRange(self.wanted.start + self.filled, self.wanted.stop)
        held = memoryview(pa.allocate_buffer(left.length)).cast("B")
        rest = _Transfer(self.file, left, held)
        await rest.take(body)
        if rest.filled:
            self.put(held[: rest.filled])
        self.filled += rest.filled


class _WholeTransfer(_Transfer):
    """Reads all bytes of a file of unknown size: the first response states it, or its chunks show where it ends."""

    def __init__(self, file: RemoteFile, most: int | None) -> None:
        super().__init__(file, ByteRange(0, 0), memoryview(b""))
        self.most = most
        self.buffer: pa.Buffer | None = None

    def missing(self) -> Wanted:
        if self.file.is_in_one_response:
            self.filled, self.buffer = 0, None
            self.file.forget_version()
        return ByteRange(self.filled, self.wanted.stop) if self.filled else None

    async def take(self, body: Body) -> None:
        total = body.span.total
        self.file.check_size(body)
        if total is None:
            await self._take_to_end(body)
            return
        if self.most is not None and total > self.most:
            raise self.file.error(DataError, f"expected at most {self.most} bytes, found {total}")
        if not self.file.agree(body.version) or (self.buffer is not None and self.wanted.stop != total):
            raise self.file.replaced()
        if self.buffer is None:
            self.wanted = ByteRange(0, total)
            self.buffer = pa.allocate_buffer(total)
            self.into = memoryview(self.buffer).cast("B") if total else memoryview(b"")
        await self.receive(body, skip=max(0, self.filled - body.span.start))

    async def _take_to_end(self, body: Body) -> None:
        """Read a response without a length; if it is interrupted, the next attempt starts from the beginning."""
        if not body.span.has_end:
            raise self.file.error(
                DataError,
                "the storage states neither its length nor where the response ends, so a part could not be told from "
                "the whole file; ask the provider for a storage or proxy that sends Content-Length",
            )
        if self.buffer is not None or not self.file.agree(body.version):
            raise self.file.replaced()
        size, out = 0, pa.BufferOutputStream()
        while data := await body.read():
            size += len(data)
            if self.most is not None and size > self.most:
                raise self.file.error(DataError, f"expected at most {self.most} bytes, found more")
            out.write(data)
            add_counts(self.file.fetcher.report, bytes=len(data))
        self.file.check_total(size)
        self.wanted, self.filled, self.buffer = ByteRange(0, size), size, out.getvalue()


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
