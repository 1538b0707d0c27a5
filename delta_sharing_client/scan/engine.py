"""The files of a scan, several at a time: connections, threads, memory and caches that they share."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import pyarrow as pa

from delta_sharing_client.delta.paths import without_query
from delta_sharing_client.download.cache import FileCache
from delta_sharing_client.download.memory import Buffers, Window
from delta_sharing_client.download.queue import Downloads
from delta_sharing_client.download.range_request import Http
from delta_sharing_client.download.remote_file import Reader, RemoteFile, Transfers
from delta_sharing_client.download.report import ScanReport
from delta_sharing_client.download.workers import Workers
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.footer import FooterGuess
from delta_sharing_client.parquet.sparse_file import Block
from delta_sharing_client.retry import RetryPolicy
from delta_sharing_client.scan.closing import Closing
from delta_sharing_client.scan.file_read import FileRead
from delta_sharing_client.scan.layout import Shape
from delta_sharing_client.scan.pages import PageGains
from delta_sharing_client.scan.resources import Ratio, Resources, Unit
from delta_sharing_client.scan.steps import start
from delta_sharing_client.scan.tasks import DeletionVectorRef, FileTask, ScanContext
from delta_sharing_client.scan.vectors import Vectors

_MB = 1024 * 1024
# Bytes of one request where files are many, and where they are few and must be cut to use several connections.
_PART = 16 * _MB
_SMALL_PART = 4 * _MB
_FEW_FILES = 4


class Engine:
    """Runs the tasks of one scan: ``open`` a task, consume its units in order, release each, and end by ``closing``."""

    def __init__(
        self, context: ScanContext, tasks: Sequence[FileTask], report: ScanReport, limit: int | None = None
    ) -> None:
        options = context.options
        transfers = Transfers()
        downloads = Downloads(options.max_concurrent_requests)
        self._resources = Resources(
            shape=Shape(context),
            report=report,
            limit=limit,
            reader=Reader(
                Http(options, context.allow_http, context.table),
                RetryPolicy.of(options),
                context.urls,
                report,
                transfers,
                downloads.answered,
            ),
            downloads=downloads,
            decoders=Workers(pa.cpu_count(), "decode"),
            buffers=Buffers(options.max_bytes_in_flight * 3 // 8),
            # Apart: bytes that wait to be decoded must not keep decoded rows from being made, nor the reverse. Most is
            # for bytes, so that a large row group can be fetched while the one before it is decoded; the rest is for
            # what decoding takes besides. More bytes would be faster on no line, and are slower where memory is fresh.
            fetched=Window(options.max_bytes_in_flight * 3 // 8),
            decoded=Window(options.max_bytes_in_flight // 4),
            cache=FileCache.from_options(options, context.table_id),
            guess=FooterGuess(len(context.schema.fields)),
            ratio=Ratio(),
            gains=PageGains(),
            late_gains=PageGains(),
            vectors=Vectors(tasks, self._fetch_vector, context.table),
            part=_SMALL_PART if len(tasks) < _FEW_FILES else _PART,
            # Decoding is bound by the processor: files side by side, or one file's columns.
            threads_inside=len(tasks) < pa.cpu_count(),
        )
        r = self._resources
        # Windows first: what is given back while the rest ends must not start anything.
        self.closing = Closing((r.fetched, r.decoded, transfers, r.downloads, r.decoders, r.buffers))

    def open(self, number: int, task: FileTask) -> Future[list[Future[Unit]]]:
        """Start on ``task``, the scan's file ``number``; the future gives the futures of its units, in order."""
        return start(FileRead(self._resources, number, task).units())

    def consume(self, number: int) -> None:
        """Take note that the rows of file ``number`` are wanted next: it gets memory however little is left."""
        self._resources.fetched.consume(number)
        self._resources.decoded.consume(number)

    def _fetch_vector(
        self, ref: DeletionVectorRef, task: FileTask, wanted: ByteRange, number: int
    ) -> Future[pa.Buffer]:
        r = self._resources
        file = RemoteFile(
            r.reader,
            key=ref.key,
            url=ref.descriptor.path_or_inline_dv,
            size=-1,
            file_id=task.file_id,
            expiration_ms=task.expiration_ms,
        )
        # A vector's file is named by a UUID and never changes; its length is not known.
        place = "dv:" + without_query(ref.descriptor.path_or_inline_dv)

        def fetch() -> pa.Buffer:
            held = r.cache.get(place, wanted, 0) if r.cache is not None else None
            if held is not None:
                r.report.add(cache_hits=1)
                return held.data
            data = file.read(wanted)
            if r.cache is not None:
                r.cache.put(place, Block(wanted.start, data), 0)
            return data

        return r.submit((number, -2), wanted.length, fetch)
