"""Files of a scan on their way from the network to batches: fetched, laid out and decoded, several at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.delta.file_keys import without_query
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.scan.cache import FileCache
from delta_sharing_client.scan.decode import FileDecoder, Selection, constant_batches, open_parquet
from delta_sharing_client.scan.downloads import Downloads
from delta_sharing_client.scan.footer import FooterGuess, footer_length, parse_footer
from delta_sharing_client.scan.http import Http
from delta_sharing_client.scan.ranges import ByteRange, coalesce, split, subtract
from delta_sharing_client.scan.remote import Reader, RemoteFile, Transfers, parallel
from delta_sharing_client.scan.report import ScanReport
from delta_sharing_client.scan.retry import RetryPolicy
from delta_sharing_client.scan.shape import Layout, Shape, lay_out
from delta_sharing_client.scan.sparse import Block
from delta_sharing_client.scan.steps import Steps, gather, start
from delta_sharing_client.scan.tasks import DeletionVectorRef, FileTask, ScanContext
from delta_sharing_client.scan.vectors import Vectors
from delta_sharing_client.scan.window import Order, Window

T = TypeVar("T")

_MB = 1024 * 1024
# Reading up to this much in vain is cheaper than a second request.
_TOLERABLE_WASTE = 64 * 1024
_LARGEST_WHOLE = 64 * _MB
# Above this size a file probably has several row groups, and a predicate or a limit may need only some of them.
_SMALL = 2 * _MB
_WHOLE_SHARE = 0.8
# Bytes of one request where files are many, and where they are few and must be cut to use several connections.
_PART = 16 * _MB
_SMALL_PART = 4 * _MB
_FEW_FILES = 4
# Compressed bytes of row groups that are fetched together.
_UNIT = 16 * _MB
# Row groups beyond this decoded size are decoded as they are consumed.
_LARGE_UNIT = 96 * _MB
_FEW_ROWS = 262_144


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """Decoded rows of one or more row groups; ``order`` is what to release from the window after use."""

    order: Order
    batches: Iterable[pa.RecordBatch]


class Engine:
    """Runs the tasks of one scan: ``open`` a task, consume its units in order, release each, ``close`` at the end."""

    def __init__(
        self, context: ScanContext, tasks: Sequence[FileTask], report: ScanReport, limit: int | None = None
    ) -> None:
        options = context.options
        self.shape = Shape(context)
        self.window = Window(options.max_bytes_in_flight)
        self._context = context
        self._report = report
        self._limit = limit
        self._transfers = Transfers()
        self._reader = Reader(
            Http(options, context.allow_http, context.table),
            RetryPolicy.from_options(options),
            context.urls,
            report,
            self._transfers,
        )
        self._cache = FileCache.from_options(options, context.table_id)
        self._guess = FooterGuess(len(context.schema.fields))
        self._part = _SMALL_PART if len(tasks) < _FEW_FILES else _PART
        self._ratio = _Ratio()
        self._vectors = Vectors(tasks, self._fetch_vector, context.table)
        self._downloads = Downloads(options.max_concurrent_requests)
        # Decoding is bound by the processor; one file alone uses Arrow's own threads instead.
        self._threads_inside = len(tasks) < pa.cpu_count()
        self._decoders = ThreadPoolExecutor(pa.cpu_count(), thread_name_prefix="decode")

    def open(self, number: int, task: FileTask) -> Future[list[Future[Unit]]]:
        """Start on ``task``, the scan's file ``number``; the future gives the futures of its units, in order."""
        return start(self._located(task, self._open(number, task)))

    def close(self) -> None:
        """Break off everything in flight. Idempotent."""
        self._transfers.cancel()
        self._downloads.close()
        self._decoders.shutdown(wait=False, cancel_futures=True)

    # === One file ===

    def _located(self, task: FileTask, steps: Steps[T]) -> Steps[T]:
        try:
            return (yield from steps)
        except DeltaSharingError as error:
            error.table = error.table or self._context.table
            error.file_id = error.file_id or task.file_id
            raise

    def _open(self, number: int, task: FileTask) -> Steps[list[Future[Unit]]]:
        selecting = start(self._select(number, task))
        needs_file = self.shape.needs_file(task) or task.row_groups is not None
        if not needs_file and task.live_records is not None:
            return [self._constant_unit(number, task, task.live_records)]
        file = RemoteFile(
            self._reader,
            key=task.key,
            url=task.url,
            size=task.size,
            file_id=task.file_id,
            expiration_ms=task.expiration_ms,
        )
        if needs_file and self._wants_whole(task):
            return (yield from self._open_whole(number, task, file, selecting))
        tail = yield from self._footer(number, file)
        footer = parse_footer(tail, file.size)
        selection: Selection = yield selecting
        if not needs_file:
            return [self._constant_unit(number, task, selection.count(footer.metadata.num_rows))]
        layout = self._lay_out(task, footer.metadata, footer.start)
        held = [Block(file.size - int(tail.size), tail)]
        units = self._units(layout, selection)
        return [
            start(self._located(task, self._unit((number, place), task, file, layout, groups, held, selection)))
            for place, groups in enumerate(units)
        ]

    def _constant_unit(self, number: int, task: FileTask, rows: int) -> Future[Unit]:
        done: Future[Unit] = Future()
        done.set_result(Unit((number, 0), constant_batches(self.shape, task, rows)))
        return done

    def _select(self, number: int, task: FileTask) -> Steps[Selection]:
        # Both are started before either is waited for.
        vectors: list[DeletionVector | None] = []
        for future in [
            None if ref is None else start(self._vectors.get(ref, task, number)) for ref in (task.without, task.only)
        ]:
            vectors.append(None if future is None else (yield future))
        return Selection(vectors[0], vectors[1])

    def _wants_whole(self, task: FileTask) -> bool:
        """Whether to get the file in one piece instead of its footer first."""
        if task.size < 0 or task.size > _LARGEST_WHOLE or task.row_groups is not None:
            return False
        if task.size > _SMALL and (self._context.predicate is not None or self._limit is not None):
            return False
        return self.shape.share >= _WHOLE_SHARE or task.size * (1 - self.shape.share) <= _TOLERABLE_WASTE

    def _open_whole(
        self, number: int, task: FileTask, file: RemoteFile, selecting: Future[Selection]
    ) -> Steps[list[Future[Unit]]]:
        order = (number, 0)
        yield self.window.acquire(order, self._ratio.weight(task.size))
        try:
            blocks: list[Block] = yield from self._fetch((number, 0), file, [ByteRange(0, file.size)])
            data = blocks[0].data if blocks else pa.py_buffer(b"")
            footer = parse_footer(data, file.size)
            layout = self._lay_out(task, footer.metadata, footer.start)
            selection: Selection = yield selecting
            units = self._units(layout, selection, decoded=True)
        except BaseException:
            self.window.release(order)
            raise
        if not units:
            self.window.release(order)
        futures = []
        for place, groups in enumerate(units):
            unit = (number, place)
            if place:
                self.window.resize(unit, 0)
            decode = self._decode(unit, task, file, layout, groups, blocks, selection)
            futures.append(start(self._located(task, decode)))
        return futures

    def _footer(self, number: int, file: RemoteFile) -> Steps[pa.Buffer]:
        """Steps that return the file's last bytes, at least its whole footer."""
        order = (number, -1)
        if file.size < 0:
            length = self._guess.length(-1)
            size, tail = yield self._downloads.submit(order, length, lambda: file.read_tail(length))
            file.size = size
        else:
            guess = self._guess.length(file.size)
            wanted = ByteRange(file.size - guess, file.size)
            held = self._cache.tail(file.file_id, file.size) if self._cache is not None else None
            if held is not None:
                self._report.add(cache_hits=1)
            tail = held.data if held is not None else (yield from self._fetch(order, file, [wanted]))[0].data
        needed = footer_length(tail, file.size)
        if needed > tail.size:
            rest = ByteRange(file.size - needed, file.size - int(tail.size))
            blocks = yield from self._fetch(order, file, [rest])
            tail = pa.py_buffer(blocks[0].data.to_pybytes() + tail.to_pybytes())
        self._guess.learn(needed)
        return tail

    def _lay_out(self, task: FileTask, metadata: pq.FileMetaData, footer_start: int) -> Layout:
        empty = open_parquet(0, [], metadata)
        layout = lay_out(self.shape, task, metadata, footer_start, empty.schema_arrow)
        self._report.add(row_groups=len(layout.groups), row_groups_skipped=layout.groups_skipped)
        return layout

    # === Units of a file ===

    def _units(self, layout: Layout, selection: Selection, *, decoded: bool = False) -> list[tuple[int, ...]]:
        """Cut the file's row groups into pieces that are worth a round of requests, or a thread's while."""
        groups = self._within_limit(layout, selection)
        units: list[tuple[int, ...]] = []
        size = 0
        for group in groups:
            own = sum(item.length for item in layout.ranges((group,)))
            if units and size + own <= (_UNIT // 4 if decoded else _UNIT):
                units[-1] = (*units[-1], group)
                size += own
            else:
                units.append((group,))
                size = own
        return units

    def _within_limit(self, layout: Layout, selection: Selection) -> tuple[int, ...]:
        if self._limit is None or self._context.predicate is not None:
            return layout.groups
        kept: list[int] = []
        visible = 0
        for group in layout.groups:
            if visible >= self._limit:
                break
            kept.append(group)
            visible += selection.count(layout.row_starts[group + 1]) - selection.count(layout.row_starts[group])
        return tuple(kept)

    def _unit(
        self,
        order: Order,
        task: FileTask,
        file: RemoteFile,
        layout: Layout,
        groups: tuple[int, ...],
        held: list[Block],
        selection: Selection,
    ) -> Steps[Unit]:
        ranges = layout.ranges(groups)
        yield self.window.acquire(order, self._ratio.weight(sum(item.length for item in ranges)))
        try:
            missing = subtract(ranges, [ByteRange(block.start, block.stop) for block in held])
            whole = coalesce(ranges)
            if missing:
                # A chunk that the footer's request cut in two is fetched in one piece again, not put together.
                blocks = yield from self._fetch(order, file, [item for item in whole if subtract([item], _spans(held))])
            else:
                blocks = []
            return (yield from self._decode(order, task, file, layout, groups, [*blocks, *held], selection))
        except BaseException:
            self.window.release(order)
            raise

    def _decode(
        self,
        order: Order,
        task: FileTask,
        file: RemoteFile,
        layout: Layout,
        groups: tuple[int, ...],
        blocks: list[Block],
        selection: Selection,
    ) -> Steps[Unit]:
        decoder = FileDecoder(self.shape, task, layout, selection, self._report)
        threads = self._threads_inside
        lazy = layout.decoded_size(groups) > _LARGE_UNIT or (self._limit is not None and self._limit <= _FEW_ROWS)
        if lazy:
            parquet = open_parquet(file.size, blocks, layout.metadata) if layout.leaves else None
            return Unit(order, decoder.batches(parquet, groups, threads=True))

        def work() -> list[pa.RecordBatch]:
            with self._report.stage("decode"):
                parquet = open_parquet(file.size, blocks, layout.metadata) if layout.leaves else None
                return list(decoder.batches(parquet, groups, threads=threads))

        batches: list[pa.RecordBatch] = yield self._decoders.submit(work)
        decoded = sum(batch.nbytes for batch in batches)
        self._ratio.learn(sum(item.length for item in layout.ranges(groups)), decoded)
        self.window.resize(order, decoded)
        return Unit(order, _draining(batches))

    # === Bytes ===

    def _fetch(self, order: Order, file: RemoteFile, ranges: list[ByteRange]) -> Steps[list[Block]]:
        """Steps that return one block for each of ``ranges``, from the cache or the network."""
        blocks: list[Block] = []
        pending: list[tuple[Block, list[Future[None]]]] = []
        for item in ranges:
            held = self._cache.get(file.file_id, item, file.size) if self._cache is not None else None
            if held is not None:
                self._report.add(cache_hits=1)
                blocks.append(held)
                continue
            buffer = pa.allocate_buffer(item.length)
            parts = split(item, self._part)
            calls = parallel(file, parts, buffer)
            futures = [self._submit(order, part.length, call) for part, call in zip(parts, calls, strict=True)]
            pending.append((Block(item.start, buffer), futures))
        for block, futures in pending:
            yield from gather(futures)
            if self._cache is not None:
                self._cache.put(file.file_id, block, file.size)
            blocks.append(block)
        return blocks

    def _submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        def timed() -> T:
            with self._report.stage("fetch"):
                return call()

        return self._downloads.submit(order, nbytes, timed)

    def _fetch_vector(
        self, ref: DeletionVectorRef, task: FileTask, wanted: ByteRange, number: int
    ) -> Future[pa.Buffer]:
        file = RemoteFile(
            self._reader,
            key=ref.key,
            url=ref.descriptor.path_or_inline_dv,
            size=-1,
            file_id=task.file_id,
            expiration_ms=task.expiration_ms,
        )
        # A vector's file is named by a UUID and never changes; its length is not known.
        place = "dv:" + without_query(ref.descriptor.path_or_inline_dv)

        def fetch() -> pa.Buffer:
            held = self._cache.get(place, wanted, 0) if self._cache is not None else None
            if held is not None:
                self._report.add(cache_hits=1)
                return held.data
            data = file.read(wanted)
            if self._cache is not None:
                self._cache.put(place, Block(wanted.start, data), 0)
            return data

        return self._submit((number, -2), wanted.length, fetch)


class _Ratio:
    """How much larger decoded rows are than their compressed bytes, learned as the scan goes."""

    def __init__(self) -> None:
        self._compressed = 1
        self._decoded = 3

    def weight(self, compressed: int) -> int:
        """Return the memory to set aside for ``compressed`` bytes and the rows in them."""
        return compressed + compressed * self._decoded // self._compressed

    def learn(self, compressed: int, decoded: int) -> None:
        # A race loses one observation at most, which is harmless.
        if self._compressed < 64 * 1024:
            self._compressed, self._decoded = max(1, compressed), decoded
        else:
            self._compressed, self._decoded = self._compressed + compressed, self._decoded + decoded


def _draining(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield and forget: what was handed out is the consumer's to keep or drop."""
    batches.reverse()
    while batches:
        yield batches.pop()


def _spans(blocks: list[Block]) -> list[ByteRange]:
    return [ByteRange(block.start, block.stop) for block in blocks]
