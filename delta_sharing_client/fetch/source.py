"""One remote file: byte ranges of it, complete or an error, across broken connections and expired URLs."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Protocol, TypeVar

import pyarrow as pa

from delta_sharing_client.connections import Line
from delta_sharing_client.errors import DataError, DeltaSharingError, TransportError
from delta_sharing_client.fetch.http import Body, Http, Refused, Version
from delta_sharing_client.fetch.report import ScanReport
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
# A URL that ends this soon is renewed first: the request must still reach the storage.
_EXPIRY_MARGIN_MS = 10_000
# Bytes of one read to begin with, and the seconds up to which the next one is of twice as many.
_PIECE = 32 * 1024
_QUICK = 0.1
# Of a storage that has more to do than it wants: 503 is what S3 says for "Slow Down".
_TOO_MANY = frozenset((429, 503))

ErrorT = TypeVar("ErrorT", bound=DeltaSharingError)


class UrlSource(Protocol):
    """Where a fresh pre-signed URL comes from. Implementations pickle, and serve many threads with one refresh."""

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """Return a URL for the data file ``key`` (``FileTask.key``) or its deletion vector (``DeletionVectorRef.key``).

        ``rejected`` is a URL that the storage refused or that expired: the answer is then another one, made anew.
        Keys are those of ``delta.paths.url_key``. Raises a ``DeltaSharingError`` when there is none.
        """


class FileStore(Protocol):
    """Where data files lie, if not behind URLs. Implementations pickle, and serve many threads."""

    @property
    def table(self) -> str:
        """The name of the table whose files these are, for errors."""

    @property
    def options(self) -> ReadOptions:
        """The limits of the read."""

    def get(
        self,
        url: str,
        wanted: ByteRange | int | None,
        file_id: str | None,
        deadline: Deadline,
        line: Line | None = None,
        version: Version | None = None,
    ) -> Body:
        """As ``Http.get``; ``url`` is an address of the store. Whatever renews credentials is done by then."""


class Stale(DataError):
    """What was read of a file does not belong together, or came damaged out of the cache: begin it anew, once."""


class Transfers:
    """The requests of one scan that are under way, so that closing the scan can break them off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Line] = set()
        self._elsewhere = 0
        self.cancelled = threading.Event()

    def held(self) -> int:
        """Return how many threads are in a request, where a system call may hold them."""
        return len(self._open) + self._elsewhere

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Count the calling thread among those ``held`` in the block: its request is not one of these."""
        with self._lock:
            self._elsewhere += 1
        try:
            yield
        finally:
            with self._lock:
                self._elsewhere -= 1

    def enter(self) -> Line:
        """Begin a request; raises ``CancelledError`` once the scan is closed."""
        line = Line()
        with self._lock:
            if self.cancelled.is_set():
                raise CancelledError
            self._open.add(line)
        return line

    def leave(self, line: Line, body: Body | None) -> None:
        """End it: from here on its connection may serve another scan."""
        broken = line.leave()
        with self._lock:
            self._open.discard(line)
        if body is not None:
            body.close(broken=broken)

    def stop(self) -> None:
        """Break off every request, also one that waits for its answer, and let none begin."""
        self.cancelled.set()
        with self._lock:
            lines = list(self._open)
        for line in lines:
            line.abort()

    def join(self, deadline: float) -> None:
        """Whoever does the requests waits for their end."""

    def forget(self) -> None:
        for line in list(self._open):
            line.forget()


@dataclasses.dataclass(frozen=True, slots=True)
class Reader:
    """What all remote files of a scan share: HTTP, retry rules, URL renewal, counters and cancellation.

    ``answered`` is called on the requesting thread whenever an answer begins, ``refused`` where the storage says that
    there are too many, and a thread sleeps before another try in the block of ``resting``.
    """

    http: Http | FileStore
    urls: UrlSource | None
    report: ScanReport
    transfers: Transfers
    answered: Callable[[], None] = lambda: None
    refused: Callable[[], None] = lambda: None
    resting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    deadline: Deadline = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        # The read begins when what its files share is made.
        object.__setattr__(self, "deadline", Deadline(self.http.options.total_timeout))


class RemoteFile:
    """A file behind a pre-signed URL; safe for many threads.

    ``size`` is its declared length, -1 where unknown; every answer's total is checked against it. All bytes come from
    one version of the file: that which is given, of the first answer, or of the first block of a cache that ``agree``
    was asked about.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        key: str,
        url: str,
        size: int,
        file_id: str | None,
        expiration_ms: int | None = None,
        version: Version | None = None,
    ) -> None:
        self.reader = reader
        self._key = key
        self._url = url
        self._expiration_ms = expiration_ms
        self._lock = threading.Lock()
        self._version = version
        self.delayed: Callable[[], None] = lambda: None
        """Called where one request is not enough: before another try, and before a new URL is asked for."""
        self.file_id = file_id
        self.size = size

    @property
    def version(self) -> Version:
        """The version that is being read; known once some of it has been."""
        return self._version or Version()

    def agree(self, version: Version) -> bool:
        """Whether bytes of ``version`` belong to what was read before; the first version asked about always does."""
        with self._lock:
            if self._version is None:
                self._version = version
            return self._version.agrees(version)

    def read(self, wanted: ByteRange) -> pa.Buffer:
        """Return the bytes of ``wanted``; errors as of ``fill``."""
        buffer = pa.allocate_buffer(wanted.length)
        self.fill(wanted, lambda: memoryview(buffer).cast("B"))
        return buffer

    def fill(self, wanted: ByteRange, memory: Callable[[], memoryview]) -> None:
        """Put the bytes of ``wanted`` into ``memory()``, which is asked for when they begin to arrive.

        Raises
        ------
        DataError
            The file is gone, has another length than declared, or the storage answers with the wrong bytes; ``Stale``
            where it was replaced since its first bytes were read.
        TransportError
            The bytes did not arrive within the retry limit, or the URL was refused and could not be renewed.
        """
        if wanted.length:
            _Transfer(self, wanted, memory).run()

    def read_tail(self, length: int) -> tuple[int, pa.Buffer]:
        """Return the file's size and its last ``length`` bytes (all of it if it is shorter); for an unknown size."""
        tail = _TailTransfer(self, length)
        tail.run()
        return tail.total, tail.buffer

    # === Used by the transfers ===

    def url(self) -> str:
        with self._lock:
            url, expiration = self._url, self._expiration_ms
        if expiration is not None and expiration - _EXPIRY_MARGIN_MS < time.time() * 1000 and self.reader.urls:
            return self.renew(url)
        return url

    def renew(self, rejected: str) -> str:
        """Return another URL than ``rejected``; ask for it unless another thread has already."""
        if self.reader.urls is None:
            raise self.error(TransportError, "the storage refused the file's URL, and no new one can be asked for")
        self.delayed()
        with self.reader.transfers.elsewhere(), self._lock:
            if self._url == rejected:
                self._url = self.reader.urls.url_for(self._key, rejected)
                self._expiration_ms = None
            return self._url

    def check_total(self, total: int | None) -> None:
        if total is not None and self.size >= 0 and total != self.size:
            raise self.error(DataError, f"expected a file of {self.size} bytes, the storage has {total}")

    def check_version(self, version: Version) -> None:
        if not self.agree(version):
            raise self.replaced()

    def replaced(self) -> Stale:
        return self.error(Stale, "it was replaced while it was read, and its old and new bytes do not fit; read again")

    def error(self, kind: type[ErrorT], reason: str) -> ErrorT:
        where = "" if self.file_id else f" at {safe_url(self._url)}"
        return kind(f"Cannot read a data file{where}: {reason}.", table=self.reader.http.table, file_id=self.file_id)


class _Transfer:
    """Fills memory with ``wanted``: tries, resumes and renews until it is full."""

    def __init__(self, file: RemoteFile, wanted: ByteRange, memory: Callable[[], memoryview]) -> None:
        self.file = file
        self.wanted = wanted
        self.memory = memory
        self.into: memoryview | None = None
        self.filled = 0

    def run(self) -> None:
        reader = self.file.reader
        tries, refreshes = self.tries(), 0
        while True:
            url = self.file.url()
            before, began = self.filled, time.monotonic()
            reader.report.add(requests=1)
            try:
                if self.once(url):
                    return
                failure = Transient(self.file.error(TransportError, "the connection ended early"))
            except Transient as broken:
                failure = broken
            except DeltaSharingError as error:
                error.file_id = error.file_id or self.file.file_id
                raise
            except Refused as refused:
                if refused.status in EXPIRED_STATUSES and refreshes < _MAX_REFRESHES and reader.urls is not None:
                    refreshes += 1
                    self.file.renew(url)
                    reader.report.add(retries=1)
                    continue
                if refused.status in _TOO_MANY:
                    reader.refused()
                self.check_status(refused.status)
                failure = Transient(
                    self.file.error(TransportError, f"the storage answered with HTTP status {refused.status}"),
                    retry_after(refused.retry_after),
                )
            if reader.transfers.cancelled.is_set():
                raise CancelledError
            if self.filled - before > reader.http.options.min_bytes_per_second * (time.monotonic() - began):
                # What came keeps; only standing still counts against the limits.
                tries = self.tries()
            failure.error.file_id = self.file.file_id
            # It is kept until the last try has ended, and would keep frames that keep this one: memory and sockets.
            failure.__traceback__ = failure.__context__ = None
            self.file.delayed()
            tries.failed(failure)
            reader.report.add(retries=1)

    def tries(self) -> Tries:
        reader = self.file.reader
        return Tries(reader.http.options, reader.deadline, sleep=self.sleep, tell=reader.report.tell)

    def sleep(self, seconds: float) -> None:
        with self.file.reader.resting():
            if self.file.reader.transfers.cancelled.wait(seconds):
                raise CancelledError

    def once(self, url: str) -> bool:
        """Do one request for what is missing; return whether everything is there."""
        rest = ByteRange(self.wanted.start + self.filled, self.wanted.stop)
        whole = rest == ByteRange(0, self.file.size)
        with self.open(url, None if whole else rest) as body:
            self.file.check_total(body.span.total)
            self.file.check_version(body.version)
            if body.span.start < rest.start:
                # Status 200: the storage does not know ranges and sends everything.
                body.skip(rest.start - body.span.start)
            self.receive(body)
            if self.filled == self.wanted.length and body.span.stop is None:
                self.check_end(body)
        return self.filled == self.wanted.length

    @contextlib.contextmanager
    def open(self, url: str, wanted: ByteRange | int | None) -> Iterator[Body]:
        reader = self.file.reader
        line, body = reader.transfers.enter(), None
        try:
            body = reader.http.get(url, wanted, self.file.file_id, reader.deadline, line, self.file.version)
            reader.answered()
            yield body
        finally:
            reader.transfers.leave(line, body)

    def receive(self, body: Body) -> None:
        report, cancelled = self.file.reader.report, self.file.reader.transfers.cancelled
        if self.into is None:
            self.into = self.memory()
        # A read returns with all that it asks for: on a slow line it asks for little, so that people see it come.
        piece = _PIECE
        while self.filled < self.wanted.length:
            began = time.monotonic()
            count = body.read_into(self.into[self.filled : self.filled + piece])
            if not count:
                break
            self.filled += count
            report.add(bytes=count)
            piece = 2 * piece if time.monotonic() - began < _QUICK else max(_PIECE, piece // 2)
            if cancelled.is_set():
                raise CancelledError

    def check_end(self, body: Body) -> None:
        """An answer without a length that reaches beyond the file's declared end is another file."""
        if self.wanted.stop == self.file.size and body.read_into(memoryview(bytearray(1))):
            raise self.file.error(DataError, f"expected a file of {self.file.size} bytes, the storage sends more")

    def check_status(self, status: int) -> None:
        if status == 412 and self.file.version.etag:
            raise self.file.replaced()
        if status == 404:
            gone = self.file.error(
                DataError, "it is gone (HTTP status 404); it may have been vacuumed, query the table again"
            )
            gone.status = status
            raise gone
        if status == 416:
            raise self.file.error(
                DataError, f"bytes {self.wanted.start} to {self.wanted.stop} do not exist in it (HTTP status 416)"
            )
        if status in EXPIRED_STATUSES:
            raise self.file.error(
                TransportError, f"the storage refused its URL (HTTP status {status}); it may have expired"
            )
        if status not in RETRIED_STATUSES:
            raise self.file.error(TransportError, f"the storage answered with HTTP status {status}")


class _TailTransfer(_Transfer):
    """The end of a file of unknown size; where a try breaks off, the next one starts again."""

    def __init__(self, file: RemoteFile, length: int) -> None:
        super().__init__(file, ByteRange(0, 0), lambda: memoryview(b""))
        self.length = length
        self.total = -1
        self.buffer: pa.Buffer = pa.py_buffer(b"")

    def once(self, url: str) -> bool:
        with self.open(url, self.length) as body:
            total = body.span.total
            if total is None:
                raise self.file.error(DataError, "neither the server nor the storage states its length")
            self.file.check_version(body.version)
            start = max(0, total - self.length)
            self.wanted, self.filled, self.total = ByteRange(start, total), 0, total
            self.buffer = pa.allocate_buffer(total - start)
            self.into = memoryview(self.buffer).cast("B") if total > start else memoryview(b"")
            body.skip(start - body.span.start)
            self.receive(body)
        if self.filled == self.wanted.length:
            return True
        self.filled = 0
        return False


class Download:
    """One range of a file, fetched in parts side by side; memory is taken when the first bytes arrive."""

    def __init__(self, file: RemoteFile, wanted: ByteRange, parts: list[ByteRange], take: Callable[[int], pa.Buffer]):
        self._file = file
        self._wanted = wanted
        self._take = take
        self._lock = threading.Lock()
        self._buffer: pa.Buffer | None = None
        self.parts = parts

    def fetch(self, part: ByteRange) -> None:
        """Fetch ``part`` to its place; errors as of ``RemoteFile.fill``."""
        start = part.start - self._wanted.start
        self._file.fill(part, lambda: memoryview(self.buffer()).cast("B")[start : start + part.length])

    def buffer(self) -> pa.Buffer:
        """Return the memory of the whole range."""
        with self._lock:
            if self._buffer is None:
                self._buffer = self._take(self._wanted.length)
            return self._buffer
