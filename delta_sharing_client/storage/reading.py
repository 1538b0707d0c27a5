"""The bytes of one file of a place, across interrupted transfers, all from one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from delta_sharing_client.errors import DataError, TransportError
from delta_sharing_client.fetch.source import Bytes, Refused, Version
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.retry import RETRIED_STATUSES, Deadline, Transient, Tries, retry_after
from delta_sharing_client.storage.place import Place, StoredBody


class Reading:
    """Bytes ``start`` to ``stop`` (by default the end) of the file ``path``, in order.

    Iterating yields them in pieces. A transfer that breaks is resumed where it broke; attempts without progress are
    limited by the options. ``version`` is that of the file: if none is given, that of the first response.

    Iterating raises ``Refused`` if the store does not give the file, with status 412 if it has another version;
    ``DataError`` if its responses contradict each other, ``TransportError`` after the limits of the options.

    Parameters
    ----------
    size:
        The stated size of the file, which the store must confirm; ``None`` if unknown.
    sleep:
        Waits for some seconds between attempts, and may raise to end the reading.
    """

    def __init__(
        self,
        place: Place,
        path: str,
        options: ReadOptions,
        *,
        version: Version | None = None,
        size: int | None = None,
        start: int = 0,
        stop: int | None = None,
        deadline: Deadline | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._place, self._path, self._options = place, path, options
        self._deadline, self._sleep = deadline or Deadline(options.total_timeout), sleep
        self.version, self.size = version, size
        self.at, self.stop = start, stop if stop is not None else size

    def __iter__(self) -> Iterator[memoryview]:
        tries = self._tries()
        while self.stop is None or self.at < self.stop or self.version is None:
            before = self.at
            self._deadline.check(f"Reading {self._path}")
            try:
                yield from self._once()
                return
            except Refused as refused:
                if refused.status not in RETRIED_STATUSES:
                    raise
                error = TransportError(f"The store responded with {refused}.")
                failure = Transient(error, retry_after(refused.retry_after))
            except Transient as broken:
                failure = broken
            if self.at > before:
                # Received bytes are kept; only attempts without progress count.
                tries = self._tries()
            tries.failed(failure)

    def read(self) -> Bytes:
        """Return all of the bytes at once. Raises as iterating does."""
        pieces = list(self)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _tries(self) -> Tries:
        return Tries(self._options, self._deadline, sleep=self._sleep)

    def _once(self) -> Iterator[memoryview]:
        wanted = None if self.at == 0 and self.stop in (None, self.size) else ByteRange(self.at, self.stop or 1 << 62)
        body = self._place.get(self._path, wanted, self.version)
        try:
            self._agree(body)
            stop = self.stop
            assert stop is not None
            # A store that ignores ranges sends the whole file.
            skip = self.at - body.span.start
            for chunk in body.chunks:
                data = memoryview(chunk)[skip:][: stop - self.at]
                skip = max(0, skip - len(chunk))
                self.at += len(data)
                if data:
                    yield data
                if self.at == stop:
                    return
            if self.at < stop:
                raise Transient(TransportError(f"The store ended its response early for the file '{self._path}'."))
        finally:
            body.close()

    def _agree(self, body: StoredBody) -> None:
        span = body.span
        if self.version is not None and not self.version.agrees(body.version):
            raise Refused(412, None)
        if self.size is not None and span.total is not None and span.total != self.size:
            raise DataError(
                f"Expected a file of {self.size} bytes, but the store has one of {span.total}: '{self._path}'."
            )
        if span.start > self.at:
            raise DataError(
                f"Expected bytes from {self.at} on of the file '{self._path}', "
                f"but the store sent those from {span.start}."
            )
        self.version = self.version or body.version
        if self.size is None:
            if span.total is None:
                raise DataError(f"The store does not state the length of the file '{self._path}'.")
            self.size = span.total
        self.stop = self.size if self.stop is None else min(self.stop, self.size)
