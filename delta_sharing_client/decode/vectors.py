"""Downloads the deletion vectors of a read; one request fetches vectors that are close together in one file."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterable

import pyarrow as pa

from delta_sharing_client.delta.deletion_vectors import DeletionVector, byte_range, decode_file, decode_inline
from delta_sharing_client.delta.paths import without_query
from delta_sharing_client.errors import ProtocolError, about_file
from delta_sharing_client.fetch.report import Timed
from delta_sharing_client.fetch.source import Fetcher, RemoteFile
from delta_sharing_client.parquet.byte_ranges import ByteRange, coalesce
from delta_sharing_client.plan.tasks import DeletionVectorRef, FileTask

# Vectors are small compared with the latency of a request, so the gaps between them are downloaded too, up to this many
# bytes in total.
_GAP = 4 * 1024 * 1024


class Vectors:
    """Downloads and decodes deletion vectors. The first ``get`` for a file downloads all of its vectors noted so far.

    Downloaded bytes are dropped once the last vector in them is decoded. ``note`` may be called on any thread, ``get``
    only on the event loop.
    """

    def __init__(self, table: str, fetcher: Fetcher) -> None:
        self._table = table
        self._fetcher = fetcher
        self._lock = threading.Lock()
        # By file: the noted vectors, and the downloads that have started and are still needed.
        self._noted: dict[str, list[ByteRange]] = {}
        self._spans: dict[str, list[_Span]] = {}

    def note(self, task: FileTask) -> None:
        """Note that the vectors of ``task`` will be needed, so that they are downloaded together with others."""
        for ref in (task.without, task.only):
            if ref is not None and ref.descriptor.storage_type == "p":
                wanted = _range(ref, task, self._table)
                place = without_query(ref.descriptor.path_or_inline_dv)
                with self._lock:
                    begun = _covering(self._spans.get(place, ()), wanted)
                    if begun is not None:
                        begun.users += 1
                    else:
                        self._noted.setdefault(place, []).append(wanted)

    async def get(self, ref: DeletionVectorRef, task: FileTask, number: int) -> DeletionVector:
        """Return the vector; ``number`` is the task's position in the read.

        Raises ``DataError`` or ``TransportError`` if the bytes cannot be downloaded or decoded, ``ProtocolError`` if
        the server gives a relative path, which no recipient can resolve.
        """
        descriptor = ref.descriptor
        if descriptor.storage_type == "u":
            raise ProtocolError(
                "The server must send a deletion vector inline or as a URL, but it sent a path relative to the table. "
                "Tell the data provider."
            )
        if descriptor.storage_type == "i":
            return decode_inline(descriptor)
        wanted = ByteRange(*byte_range(descriptor))
        place = without_query(descriptor.path_or_inline_dv)
        with self._lock:
            span = self._span(place, wanted)
        if span.data is None:
            span.data = asyncio.ensure_future(self._fetch(ref, task, span.range, number))
        vector = decode_file(memoryview(await span.data), descriptor, base=span.range.start)
        with self._lock:
            span.users -= 1
            if span.users <= 0:
                self._drop(place, span)
        return vector

    def _span(self, place: str, wanted: ByteRange) -> _Span:
        """Return the download that contains ``wanted``: one that has started, or a new one for all noted vectors."""
        covering = _covering(self._spans.get(place, ()), wanted)
        if covering is None:
            noted = self._noted.pop(place, [])
            if wanted not in noted:
                noted.append(wanted)  # it is missing if the task was started again
            made = [_Span(item) for item in coalesce(noted, gap=_GAP, waste_share=0.0, waste_floor=_GAP)]
            for item in noted:
                next(span for span in made if span.covers(item)).users += 1
            self._spans.setdefault(place, []).extend(made)
            covering = next(span for span in made if span.covers(wanted))
        return covering

    def _drop(self, place: str, span: _Span) -> None:
        span.data = None
        spans = self._spans.get(place, [])
        if span in spans:
            spans.remove(span)
        if not spans:
            self._spans.pop(place, None)

    async def _fetch(self, ref: DeletionVectorRef, task: FileTask, wanted: ByteRange, number: int) -> pa.Buffer:
        url = ref.descriptor.path_or_inline_dv
        # This order comes before the data file's, because only the vector shows which rows are needed.
        file = RemoteFile(
            self._fetcher,
            key=ref.key,
            url=url,
            size=-1,
            file_id=task.file_id,
            renew_at=task.renew_at,
            order=(number,),
        )
        with Timed(self._fetcher.report, "fetch"):
            return await file.read(wanted)


@dataclasses.dataclass(eq=False)
class _Span:
    range: ByteRange
    users: int = 0
    data: asyncio.Future[pa.Buffer] | None = None

    def covers(self, item: ByteRange) -> bool:
        return self.range.start <= item.start and item.stop <= self.range.stop


def _covering(spans: Iterable[_Span], wanted: ByteRange) -> _Span | None:
    return next((span for span in spans if span.covers(wanted)), None)


def _range(ref: DeletionVectorRef, task: FileTask, table: str) -> ByteRange:
    with about_file(table, task.file_id):
        return ByteRange(*byte_range(ref.descriptor))
