"""One file of a scan on its way from the network to batches: fetched, laid out and decoded, with what others share."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple, TypeVar, Union

import pyarrow as pa
from pyarrow.parquet.core import ParquetReader

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError, DeltaSharingError
from delta_sharing_client.fetch.cache import FileCache
from delta_sharing_client.fetch.memory import Buffers, Window
from delta_sharing_client.fetch.queue import Downloads, Order, Workers
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Download, Reader, RemoteFile, Stale
from delta_sharing_client.fetch.steps import Steps, done, gather, start
from delta_sharing_client.parquet.byte_ranges import Block, ByteRange, SparseFile, coalesce, split, subtract
from delta_sharing_client.parquet.footer import Footer, FooterGuess, footer_length, open_file, parse_footer
from delta_sharing_client.parquet.partial_chunk import PageMismatch
from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.read.decode import FileDecoder, ParquetBytes, Selection, constant_batches
from delta_sharing_client.read.layout import Layout, Shape, lay_out
from delta_sharing_client.read.pages import (
    Ratio,
    Rows,
    filter_leaves,
    index_ranges,
    narrow,
    reading,
    rebuild,
    stretches,
    with_pages,
    without_pages,
)
from delta_sharing_client.read.vectors import Vectors
from delta_sharing_client.shortcuts import SHORTCUTS

T = TypeVar("T")

_MB = 1024 * 1024
# Reading up to this much in vain is cheaper than a second request.
_TOLERABLE_WASTE = 64 * 1024
_WHOLE_SHARE = 0.8
_LARGEST_WHOLE = 32 * _MB
# Above this size a file may have several row groups, and a predicate or a limit may need only some of them.
_SMALL = 2 * _MB
# Compressed bytes of row groups that are fetched together, and that are decoded together once they are here.
_FETCH_UNIT = 16 * _MB
_DECODE_UNIT = 4 * _MB
# Row groups that decode to more than this are decoded as they are consumed.
_LARGE_UNIT = 48 * _MB
_LEAST_LARGE = 2 * _MB
# A limit of so few rows needs the first batches of a row group only.
_FEW_ROWS = 262_144
# The parts of a page index are small against a request: gaps between them are read along, up to this many bytes.
_INDEX_GAPS = 64 * 1024
# A file of so many bytes is decoded sooner than its bytes are handed to another thread.
_DECODED_AT_ONCE = 1 * _MB
_EVERY_ROW = done(Selection(None, None))


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """Rows of one or more row groups; call ``release`` when they were consumed."""

    batches: Iterable[pa.RecordBatch]
    release: Callable[[], None]


Units = list[Union[Unit, Future[Unit]]]
"""The units of one file, in order: those that are there, and of others their futures."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the files of a scan share. ``fetched`` bounds compressed bytes, ``decoded`` rows that wait to be consumed.

    ``ratio`` is that of decoded bytes to compressed ones, ``gains`` that of bytes saved by page indexes to those that
    might be, ``late_gains`` the same of reading the filter's columns first.
    ``part`` is the size of one request; ``threads_inside`` says that Arrow's threads decode one file side by side.
    """

    shape: Shape
    report: ScanReport
    limit: int | None
    reader: Reader
    downloads: Downloads
    decoders: Workers
    buffers: Buffers
    fetched: Window
    decoded: Window
    cache: FileCache | None
    guess: FooterGuess
    ratio: Ratio
    gains: Ratio
    late_gains: Ratio
    vectors: Vectors
    part: int
    threads_inside: bool

    def submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        """Run a download of about ``nbytes`` when its turn has come, timed."""

        def timed() -> T:
            with self.report.stage("fetch"):
                return call()

        return self.downloads.submit(order, nbytes, timed)


class FileRead:
    """Reads ``task``, the scan's file ``number``; ``again`` from its first byte, with a fresh URL and no cache."""

    def __init__(self, resources: Resources, number: int, task: FileTask, *, again: bool = False) -> None:
        self._r = resources
        self._number = number
        self._task = task
        # In a run: until it comes, others fetch theirs.
        self._turn: Future[None] | None = None
        self._context = resources.shape.context
        self._filters = resources.shape.filters_rows(task)
        self._large = min(_LARGE_UNIT, max(_LEAST_LARGE, self._context.options.max_bytes_in_flight // 4))
        self._file = RemoteFile(
            resources.reader,
            key=task.key,
            url=task.url,
            size=task.size,
            file_id=task.file_id,
            expiration_ms=0 if again else task.expiration_ms,
            version=task.version,
        )
        self._from_cache = False
        if again and resources.cache is not None:
            resources.cache.drop(task.file_id)

    def units(self) -> Steps[Units]:
        """Steps that return the file's units. Errors name table and file."""
        return self._located(self._units())

    # === In a run of small files ===

    @property
    def fits_in_run(self) -> bool:
        """Whether ``units_in_run`` is possible: nothing but the file is needed, and it is decoded at once."""
        task = self._task
        plain = task.without is None and task.only is None and self._r.shape.needs_file(task)
        return plain and self._wants_whole() and self._is_decoded_at_once(_EVERY_ROW)

    @property
    def order(self) -> Order:
        return (self._number, 0)

    @property
    def size(self) -> int:
        return self._file.size

    def units_in_run(self, turn: Future[None], delayed: Callable[[], None]) -> Steps[Units]:
        """As ``units``: fetched by this thread, decoded by the one that completes ``turn``, in the memory that was
        granted to ``order``. ``delayed`` is called when it takes longer than one request."""
        self._turn, self._file.delayed = turn, delayed
        return self.units()

    def give_back(self) -> None:
        """Give back the memory that was granted to ``order``."""
        self._r.decoded.release(self.order)
        self._r.fetched.release(self.order)

    def _located(self, steps: Steps[T]) -> Steps[T]:
        try:
            return (yield from steps)
        except DeltaSharingError as error:
            error.table = error.table or self._context.table
            error.file_id = error.file_id or self._task.file_id
            if isinstance(error, DataError) and self._from_cache and not isinstance(error, Stale):
                raise Stale(error.message, table=error.table, file_id=error.file_id) from None
            raise

    def _units(self) -> Steps[Units]:
        task = self._task
        needs_file = self._r.shape.needs_file(task) or task.row_groups is not None
        selecting = start(self._select()) if task.without is not None or task.only is not None else _EVERY_ROW
        if not needs_file and task.num_records is not None:
            counted: Selection = yield selecting
            counted.check(task.num_records)
            return [self._constant_unit(counted.count(task.num_records))]
        if needs_file and self._wants_whole():
            return (yield from self._whole(selecting))
        tail = yield from self._footer()
        footer = parse_footer(tail, self._file.size)
        selection: Selection = yield selecting
        selection.check(footer.metadata.num_rows)
        if not needs_file:
            return [self._constant_unit(selection.count(footer.metadata.num_rows))]
        held = Block(self._file.size - int(tail.size), tail)
        layout = yield from self._skip_pages(self._lay_out(footer, whole=False), held)
        self._count(layout)
        pieces = self._pieces(layout, selection, _FETCH_UNIT)
        return [
            start(self._located(self._fetched_unit((self._number, place), layout, groups, held, selection)))
            for place, groups in enumerate(pieces)
        ]

    def _constant_unit(self, rows: int) -> Unit:
        return Unit(constant_batches(self._r.shape, self._task, rows), lambda: None)

    def _select(self) -> Steps[Selection]:
        vectors: list[DeletionVector | None] = []
        # Both are started before either is waited for.
        for future in [
            None if ref is None else start(self._r.vectors.get(ref, self._task, self._number))
            for ref in (self._task.without, self._task.only)
        ]:
            vectors.append(None if future is None else (yield future))
        return Selection(vectors[0], vectors[1])

    # === Which bytes ===

    def _wants_whole(self) -> bool:
        """Whether to get the file in one piece instead of its footer first."""
        size, share = self._task.size, self._r.shape.share
        if size < 0 or size > _LARGEST_WHOLE or self._task.row_groups is not None:
            return False
        if size > _SMALL and (self._filters or self._r.limit is not None):
            return False
        return share >= _WHOLE_SHARE or size * (1 - share) <= _TOLERABLE_WASTE

    def _footer(self) -> Steps[pa.Buffer]:
        """Steps that return the file's last bytes, at least its whole footer."""
        file, order = self._file, (self._number, -1)
        if file.size < 0:
            length = self._r.guess.length(-1)
            size, tail = yield self._r.submit(order, length, lambda: file.read_tail(length))
            file.size = size
        else:
            guess = self._r.guess.length(file.size)
            wanted = ByteRange(file.size - guess, file.size)
            held = self._r.cache.tail(file.file_id, file.size, file.agree) if self._r.cache is not None else None
            if held is not None:
                self._from_cache = True
                self._r.report.add(cache_hits=1)
            tail = held.data if held is not None else (yield from self._fetch(order, [wanted]))[0].data
        needed = footer_length(tail, file.size)
        if needed > tail.size:
            rest = ByteRange(file.size - needed, file.size - int(tail.size))
            blocks = yield from self._fetch(order, [rest])
            tail = pa.py_buffer(blocks[0].data.to_pybytes() + tail.to_pybytes())
        self._r.guess.learn(needed)
        return tail

    def _lay_out(self, footer: Footer, *, whole: bool) -> Layout:
        return lay_out(self._r.shape, self._task, footer, footer.arrow, whole=whole)

    def _count(self, layout: Layout) -> None:
        self._r.report.add(row_groups=len(layout.groups), row_groups_skipped=layout.groups_skipped)

    def _skip_pages(self, layout: Layout, held: Block) -> Steps[Layout]:
        """Steps that return ``layout`` without the pages that the file's page index rules out."""
        predicate, groups = self._context.predicate, index_ranges(layout, held, self._r.gains)
        if not groups or predicate is None:
            return layout
        ranges = coalesce((item for each in groups.values() for item in each), waste_floor=_INDEX_GAPS)
        blocks = yield from self._fetch((self._number, -1), _missing(ranges, held))
        if blocks:
            # The next file's end is asked for with its page index, if that is not long.
            self._r.guess.learn_index(self._file.size - ranges[0].start)
        read = SparseFile(self._file.size, [*blocks, held]).slice
        layout, skipped = with_pages(layout, groups, predicate, read, self._r.gains)
        self._r.report.add(pages_skipped=skipped.pages, page_bytes_skipped=skipped.bytes)
        return layout

    def _pieces(self, layout: Layout, selection: Selection, target: int) -> list[tuple[int, ...]]:
        """Cut the file's row groups into pieces of about ``target`` compressed bytes."""
        pieces: list[tuple[int, ...]] = []
        size = 0
        for group in self._within_limit(layout, selection):
            own = layout.compressed_size((group,))
            if pieces and size + own <= target:
                pieces[-1] = (*pieces[-1], group)
                size += own
            else:
                pieces.append((group,))
                size = own
        return pieces

    def _within_limit(self, layout: Layout, selection: Selection) -> tuple[int, ...]:
        if self._r.limit is None or self._filters:
            return layout.groups
        kept: list[int] = []
        visible = 0
        for group in layout.groups:
            if visible >= self._r.limit:
                break
            kept.append(group)
            visible += selection.count(layout.row_starts[group + 1]) - selection.count(layout.row_starts[group])
        return tuple(kept)

    # === Fetching and decoding ===

    def _whole(self, selecting: Future[Selection]) -> Steps[Units]:
        order, at_once = self.order, self._is_decoded_at_once(selecting)
        if self._turn is None:
            yield self._r.fetched.acquire(order, self._file.size)
        try:
            if at_once:
                found = yield from self._at_once(selecting.result())
                read = found if isinstance(found, _Whole) else self._opened(found)
                del found
                if read.unit is not None:
                    return [read.unit]
                self._r.decoded.release(order)
            else:
                blocks = yield from self._fetch(order, [ByteRange(0, self._file.size)])
                read = self._opened(blocks[0].data if blocks else pa.py_buffer(b""))
            layout = read.layout
            selection: Selection = yield selecting
            selection.check(layout.footer.metadata.num_rows)
            pieces = self._pieces(layout, selection, _DECODE_UNIT)
            bytes_ = _Shared(lambda: self._r.fetched.release(order), len(pieces))
        except BaseException:
            self.give_back()
            raise
        return [
            # Each unit forgets its blocks once it is decoded, so each has a list of its own.
            start(
                self._located(
                    self._decoded_unit(
                        (self._number, place),
                        _Fetched(layout, groups, read.bytes(only=len(pieces) == 1), bytes_),
                        selection,
                    )
                )
            )
            for place, groups in enumerate(pieces)
        ]

    def _opened(self, data: pa.Buffer) -> _Whole:
        """Lay out the file, all of which is in ``data``."""
        footer, file = open_file(data)
        layout = self._lay_out(footer, whole=True)
        self._count(layout)
        return _Whole(data, layout, file)

    def _is_decoded_at_once(self, selecting: Future[Selection]) -> bool:
        if not SHORTCUTS.decode_at_once or self._r.limit is not None or self._r.cache is not None:
            return False
        if not 0 < self._file.size <= _DECODED_AT_ONCE:
            return False
        return selecting is _EVERY_ROW or (selecting.done() and selecting.exception() is None)

    def _at_once(self, selection: Selection) -> Steps[_Whole | pa.Buffer]:
        """Steps that fetch the file and decode it on one thread of the downloads: to hand it over would take longer.

        They return its bytes alone where it would not, and no rows where it is larger than it seemed.
        """
        turn = self._turn
        if turn is not None:
            try:
                data = self._everything()
            finally:
                # Both lead to the units of the file, which lead back: a cycle outlives the read.
                self._turn, self._file.delayed = None, _nothing
            yield turn
            return self._decoded_at_once(data, selection)
        yield self._r.decoded.acquire(self.order, self._r.ratio.expected(self._file.size))
        return (
            yield self._r.downloads.submit(
                self.order, self._file.size, lambda: self._decoded_at_once(self._everything(), selection)
            )
        )

    def _everything(self) -> pa.Buffer:
        everything = ByteRange(0, self._file.size)
        download = Download(self._file, everything, [everything], self._r.buffers.take)
        with self._r.report.stage("fetch"):
            download.fetch(everything)
        return download.buffer()

    def _decoded_at_once(self, data: pa.Buffer, selection: Selection) -> _Whole | pa.Buffer:
        r, order = self._r, self.order
        if not r.downloads.stays():
            return data
        with r.decoders.here():
            whole = self._opened(data)
            layout = whole.layout
            selection.check(layout.footer.metadata.num_rows)
            if len(layout.groups) > 1 or layout.decoded_size(layout.groups) > self._large:
                return whole
            fetched = _Fetched(
                layout, layout.groups, whole.bytes(only=True), _Shared(lambda: r.fetched.release(order), 1)
            )
            decoder = FileDecoder(r.shape, self._task, layout, selection, r.report)
            batches, nbytes, rest = self._decode(decoder, fetched.data, layout.groups, threads=False)
        if rest is None:
            fetched.forget()
        r.ratio.learn(self._file.size, nbytes)
        return whole._replace(unit=self._unit(order, fetched, batches, nbytes, rest))

    def _fetched_unit(
        self, order: Order, layout: Layout, groups: tuple[int, ...], held: Block, selection: Selection
    ) -> Steps[Unit]:
        yield self._r.fetched.acquire(order, layout.compressed_size(groups))
        bytes_ = _Shared(lambda: self._r.fetched.release(order), 1)
        try:
            blocks = [held]
            try:
                narrowed, left, ranges = yield from self._narrowed(order, layout, groups, selection, blocks)
                blocks += yield from self._fetch(order, _missing(coalesce(ranges), held))
                kept, replaced = rebuild(narrowed, left, blocks, SparseFile(self._file.size, blocks).slice)
                layout, groups = narrowed, left
            except PageMismatch:
                # An index that lies about one page is not believed about any.
                layout = without_pages(layout, groups)
                self._r.fetched.resize(order, layout.compressed_size(groups))
                ranges = layout.ranges(groups)
                kept, replaced = [*(yield from self._fetch(order, _missing(coalesce(ranges), held))), held], {}
            del blocks
        except BaseException:
            bytes_.release()
            raise
        data = ParquetBytes(self._file.size, kept, layout.footer.metadata, replaced)
        return (yield from self._decoded_unit(order, _Fetched(layout, groups, data, bytes_), selection))

    def _narrowed(
        self, order: Order, layout: Layout, groups: tuple[int, ...], selection: Selection, blocks: list[Block]
    ) -> Steps[tuple[Layout, tuple[int, ...], list[ByteRange]]]:
        """Steps that return layout, row groups and what is still to be fetched.

        Where it pays, the filter's columns are fetched, into ``blocks``, and decide what is left of the others.
        """
        r, held = self._r, blocks[0]
        first = filter_leaves(r.shape, layout, groups, r.late_gains, held.start) if r.limit is None else ()
        if not first:
            return layout, groups, layout.ranges(groups)
        own = reading(layout, first)
        blocks += yield from self._fetch(order, _missing(coalesce(own.ranges(groups)), held))
        kept, replaced = rebuild(own, groups, blocks, SparseFile(self._file.size, blocks).slice)
        decoder = FileDecoder(r.shape, self._task, own, selection, r.report)

        def decide() -> dict[int, Rows]:
            with r.report.stage("decode"):
                data = ParquetBytes(self._file.size, kept, own.footer.metadata, replaced)
                found = decoder.matching(data, groups, threads=r.threads_inside)
                return {group: stretches(masks) for group, masks in found.items()}

        rows: dict[int, Rows] = yield r.decoders.submit(order, 0, decide)
        layout, left, skipped = narrow(layout, groups, rows, first, r.late_gains, r.gains)
        r.report.add(pages_skipped=skipped.pages, page_bytes_skipped=skipped.bytes)
        r.fetched.resize(order, layout.compressed_size(left))
        return layout, left, reading(layout, first, others=True).ranges(left)

    def _decoded_unit(self, order: Order, fetched: _Fetched, selection: Selection) -> Steps[Unit]:
        layout, groups = fetched.layout, fetched.groups
        if not groups:
            fetched.memory.release()
            return Unit((), lambda: None)
        decoder = FileDecoder(self._r.shape, self._task, layout, selection, self._r.report)
        few = self._r.limit is not None and self._r.limit <= _FEW_ROWS
        if few or layout.decoded_size(groups) > self._large:
            return Unit(decoder.batches(fetched.data, groups, threads=True), fetched.memory.release)
        compressed = layout.compressed_size(groups)
        yield self._r.decoded.acquire(order, self._r.ratio.expected(compressed))

        rest = None
        try:
            batches, size, rest = yield self._r.decoders.submit(
                order, 0, lambda: self._decode(decoder, fetched.data, groups, threads=self._r.threads_inside)
            )
        except BaseException:
            self._r.decoded.release(order)
            raise
        finally:
            if rest is None:
                fetched.forget()
        self._r.ratio.learn(compressed, size)
        return self._unit(order, fetched, batches, size, rest)

    def _decode(
        self, decoder: FileDecoder, data: ParquetBytes, groups: tuple[int, ...], *, threads: bool
    ) -> tuple[list[pa.RecordBatch], int, Iterator[pa.RecordBatch] | None]:
        """Return the batches, their size, and the rest of them, to be decoded as it is consumed, where they are larger
        than their bytes let expect."""
        found: list[pa.RecordBatch] = []
        size = 0
        with self._r.report.stage("decode"):
            rest = decoder.batches(data, groups, threads=threads)
            for batch in rest:
                # Of several batches each may be part of what they share; counting the parts takes longer.
                size += batch.nbytes if found else batch.get_total_buffer_size()
                found.append(batch)
                if size > self._large:
                    return found, size, rest
        return found, size, None

    def _unit(
        self,
        order: Order,
        fetched: _Fetched,
        batches: list[pa.RecordBatch],
        size: int,
        rest: Iterator[pa.RecordBatch] | None,
    ) -> Unit:
        self._r.decoded.resize(order, size)
        if rest is None:
            return Unit(_draining(batches), lambda: self._r.decoded.release(order))

        def release() -> None:
            fetched.forget()
            self._r.decoded.release(order)

        return Unit(itertools.chain(_draining(batches), rest), release)

    def _fetch(self, order: Order, ranges: list[ByteRange]) -> Steps[list[Block]]:
        """Steps that return one block for each of ``ranges``, from the cache or the network."""
        file, cache = self._file, self._r.cache
        blocks: list[Block] = []
        pending: list[tuple[ByteRange, Download, list[Future[None]]]] = []
        for item in ranges:
            held = cache.get(file.file_id, item, file.size, file.agree) if cache is not None else None
            if held is not None:
                self._from_cache = True
                self._r.report.add(cache_hits=1)
                blocks.append(held)
                continue
            download = Download(file, item, split(item, self._r.part), self._r.buffers.take)
            futures = [
                self._r.submit(order, part.length, functools.partial(download.fetch, part)) for part in download.parts
            ]
            pending.append((item, download, futures))
        for item, download, futures in pending:
            yield from gather(futures)
            block = Block(item.start, download.buffer())
            if cache is not None:
                cache.put(file.file_id, block, file.size, file.version)
            blocks.append(block)
        return blocks


class _Whole(NamedTuple):
    """A file that is all here, and its rows where they were decoded at once."""

    data: pa.Buffer
    layout: Layout
    file: ParquetReader | None
    unit: Unit | None = None

    def bytes(self, *, only: bool) -> ParquetBytes:
        """Return the bytes for one decoder; to the ``only`` one goes the reader."""
        opened = [self.file] if only and self.file is not None else []
        metadata = self.layout.footer.metadata
        return ParquetBytes(int(self.data.size), [Block(0, self.data)], metadata, opened=opened)


class _Shared:
    """Something that ``users`` hold together; the last one's ``release`` gives it back."""

    def __init__(self, give_back: Callable[[], None], users: int) -> None:
        self._give_back = give_back
        # Counts without a lock: a finalizer may release on a thread that is doing so.
        self._others = itertools.count(users - 1, -1)
        if not users:
            give_back()

    def release(self) -> None:
        if next(self._others) == 0:
            self._give_back()


@dataclasses.dataclass(frozen=True, slots=True)
class _Fetched:
    """Row groups whose bytes are here, and what gives back the memory that is set aside for them."""

    layout: Layout
    groups: tuple[int, ...]
    data: ParquetBytes
    memory: _Shared

    def forget(self) -> None:
        self.data.forget()
        self.memory.release()


def _nothing() -> None:
    pass


def _missing(ranges: list[ByteRange], held: Block) -> list[ByteRange]:
    """Return those of ``ranges`` that ``held`` does not cover. One that it cuts in two is fetched in one piece."""
    return [item for item in ranges if subtract([item], [ByteRange(held.start, held.stop)])]


def _draining(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield and forget: what was handed out is the consumer's to keep or drop."""
    batches.reverse()
    while batches:
        yield batches.pop()
