"""Reads the bytes of one file of a place in order, all from one version, across interrupted transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from delta_sharing_client.errors import DataError, TransportError
from delta_sharing_client.fetch.source import Bytes, Refused, Version
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.retry import RETRIED_STATUSES, Deadline, Transient, Tries, retry_after
from delta_sharing_client.storage.place import Place, StoredBody


class Reading:
    """The bytes ``start`` to ``stop`` (by default the end) of the file ``path``, in order.

    Iterating yields the bytes in pieces. An interrupted transfer is resumed where it ended; the options limit the
    attempts without progress. All bytes are of ``version``, by default the version of the first response.

    Iterating raises ``Refused`` if the store refuses the request, with the status 412 if the file has a different
    version; ``DataError`` if the responses contradict each other; and ``TransportError`` if the bytes do not arrive
    within the retry limits.

    Parameters
    ----------
    size:
        The stated size of the file, which must be equal to the size in the store; ``None`` if unknown.
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
                # Received bytes are kept, so only attempts without progress count towards the retry limits.
                tries = self._tries()
            tries.failed(failure)

    def read(self) -> Bytes:
        """Return all bytes at once. Raises the same errors as iterating."""
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
                raise Transient(TransportError(f"The store's response for the file '{self._path}' ended early."))
        finally:
            body.close()

    def _agree(self, body: StoredBody) -> None:
        span = body.span
        if self.version is not None and not self.version.agrees(body.version):
            raise Refused(412, None)
        if self.size is not None and span.total is not None and span.total != self.size:
            raise DataError(
                f"Expected {self.size} bytes in the file '{self._path}', but the store has {span.total} bytes."
            )
        if span.start > self.at:
            raise DataError(
                f"Expected the bytes of the file '{self._path}' from {self.at} on, "
                f"but the store sent bytes from {span.start} on."
            )
        self.version = self.version or body.version
        if self.size is None:
            if span.total is None:
                raise DataError(f"The store does not state the length of the file '{self._path}'.")
            self.size = span.total
        self.stop = self.size if self.stop is None else min(self.stop, self.size)
