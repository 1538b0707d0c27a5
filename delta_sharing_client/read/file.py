"""Reads one file: determines the needed bytes, downloads them, decodes them in threads, and returns the rows in
order."""

from __future__ import annotations

import asyncio
import bisect
import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from delta_sharing_client.errors import DataError, DeltaSharingError
from delta_sharing_client.fetch.cache import FileCache
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Reader, Stale
from delta_sharing_client.parquet.byte_ranges import Block, ByteRange, coalesce
from delta_sharing_client.parquet.footer import FooterGuess, open_file, parse_footer
from delta_sharing_client.parquet.pages import PageMismatch
from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.read.budget import Budget, Grant
from delta_sharing_client.read.decode import FileDecoder, ParquetBytes, Selection, constant_batches
from delta_sharing_client.read.equality import DeletedValues, EqualityDeletes
from delta_sharing_client.read.file_bytes import FileBytes, gather
from delta_sharing_client.read.layout import Layout, Shape, lay_out
from delta_sharing_client.read.pace import Pace
from delta_sharing_client.read.pages import (
    Ratio,
    Rows,
    check_pages,
    cut,
    end_of_piece,
    filter_leaves,
    index_ranges,
    narrow,
    offset_indexes,
    reading,
    rebuild,
    stretches,
    with_index,
    with_pages,
    without_pages,
)
from delta_sharing_client.read.vectors import Vectors

T = TypeVar("T")

_MB = 1024 * 1024
# Downloading up to this much unnecessarily is cheaper than a second request.
_TOLERABLE_WASTE = 64 * 1024
_WHOLE_SHARE = 0.8
_LARGEST_WHOLE = 32 * _MB
# Larger files may have several row groups, of which a predicate or a limit may need only some.
_SMALL = 2 * _MB
# Compressed bytes of row groups that are downloaded and decoded together.
_UNIT = 16 * _MB
# Row groups with fewer compressed bytes are not cut into parts.
_LEAST_CUT = _MB
# Units of one file in progress at a time; the budget limits their bytes.
_UNITS_AHEAD = 16
# Units that decode to more than this are decoded batch by batch, as they are consumed.
_LARGE = 48 * _MB
_LEAST_LARGE = 2 * _MB
# Batches of such a unit that wait for the consumer.
_BATCHES_AHEAD = 2
# A limit with fewer rows needs only the first batches of a row group. Constant rows, or bytes of them, up to this are
# sent at once.
_FEW_ROWS = 262_144
_FEW_BYTES = 4 * _MB
_ANY = 1 << 62
# Constant rows of more files than this are not made on the loop.
_FEW_FILES = 20
# Gaps up to this size between parts of a page index are downloaded too, because a request costs more.
_INDEX_GAPS = 64 * 1024


_ALL_ROWS = Selection(None, None)


class Sink(Protocol):
    """The target of the rows of one file, in order."""

    def send(self, batches: list[pa.RecordBatch], release: Callable[[], None]) -> None:
        """Send ``batches``; ``release`` is called on the loop once the consumer has taken them."""

    async def turn(self) -> None:
        """Wait until all earlier files are finished."""

    async def taken(self, most: int) -> None:
        """Wait until at most ``most`` of the sent items are not taken yet."""

    async def wanted(self) -> None:
        """Wait until all sent items are taken, unless the read has no limits any more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the files of one read share.

    ``ratio`` is that of decoded to compressed bytes, ``gains`` that of bytes saved by page indexes to the maximum,
    ``late_gains`` the same for reading the filter's columns first. ``part`` is the size of one request;
    ``threads_inside`` says that Arrow's threads decode the columns of one file in parallel.
    """

    shape: Shape
    report: ScanReport
    limit: int | None
    reader: Reader
    decode: Callable[[Callable[[], Any]], Awaitable[Any]]
    budget: Budget
    cache: FileCache | None
    guess: FooterGuess
    ratio: Ratio
    gains: Ratio
    late_gains: Ratio
    vectors: Vectors
    equality: EqualityDeletes
    pace: Pace
    part: int
    threads_inside: bool


class _Decoded(NamedTuple):
    """Decoded batches, their bytes, and the rest that is still to be decoded (or ``None``)."""

    batches: list[pa.RecordBatch]
    nbytes: int
    rest: Iterator[pa.RecordBatch] | None


class _Part(NamedTuple):
    """A part of a row group. The parts share ``fetched`` blocks. ``is_right``: whether the page index is correct for
    the pages of this part and of those before it; ``before`` is the same for the previous part."""

    fetched: list[Block]
    before: asyncio.Future[bool] | None
    is_right: asyncio.Future[bool]


class _Piece(NamedTuple):
    """Row groups to read together, or a part of one."""

    layout: Layout
    groups: tuple[int, ...]
    part: _Part | None = None


class _Unit(NamedTuple):
    """Downloaded row groups: their decoded rows, and the memory in use."""

    decoded: _Decoded
    grant: Grant
    compressed: int


async def read_file(shared: Shared, number: int, tasks: Sequence[FileTask], rows: Sink, *, again: bool = False) -> None:
    """Send the rows of ``tasks`` to ``rows``: of one file, or of several for which ``is_constant`` is true.

    ``number`` is their place in the read. ``again``: with a new URL and without cache. Raises ``DeltaSharingError``
    with table and file; ``Stale`` if the file must be read again.
    """
    task = tasks[0]
    reading_ = _FileRead(shared, number, task, again=again)
    try:
        if len(tasks) == 1:
            await reading_.run(rows)
        else:
            await reading_.send_constants([(each, _stated_rows(each)) for each in tasks], rows)
    except DeltaSharingError as error:
        error.table = error.table or shared.shape.context.table
        error.file_id = error.file_id or task.file_id
        if isinstance(error, DataError) and reading_.is_from_cache and not isinstance(error, Stale):
            raise Stale(error.message, table=error.table, file_id=error.file_id) from None
        raise


def is_constant(shape: Shape, task: FileTask) -> bool:
    """Whether the rows of ``task`` are known without a request: their number, and one value in each column."""
    if task.has_vector or task.row_groups is not None or task.num_records is None:
        return False
    return not shape.needs_file(task)


def _stated_rows(task: FileTask) -> int:
    # Not 0 where it is unknown: rows would be missing.
    assert task.num_records is not None
    return task.num_records


class _FileRead:
    def __init__(self, shared: Shared, number: int, task: FileTask, *, again: bool) -> None:
        self._s = shared
        self._number = number
        self._task = task
        self._context = shared.shape.context
        self._filters = shared.shape.filters_rows(task)
        self._large = min(_LARGE, max(_LEAST_LARGE, self._context.options.max_bytes_in_flight // 4))
        file = task.remote_file(shared.reader, again=again)
        self._bytes = FileBytes(file, shared.cache, shared.guess, shared.report, shared.part)
        # Known soon: the visible rows.
        self._selection = _ALL_ROWS
        self._deleted: Sequence[DeletedValues] = ()
        if again and shared.cache is not None:
            shared.cache.drop(task.file_id)

    @property
    def is_from_cache(self) -> bool:
        """Whether some of the bytes came from the cache."""
        return self._bytes.from_cache

    async def run(self, rows: Sink) -> None:
        task = self._task
        needs_file = self._s.shape.needs_file(task) or task.row_groups is not None
        if not needs_file and task.num_records is not None:
            await self._select()
            self._selection.check(task.num_records)
            await self.send_constants([(task, self._selection.count(task.num_records))], rows)
        elif needs_file and self._wants_whole():
            await self._read_whole(rows)
        else:
            await self._read_parts(rows, needs_file)

    async def send_constants(self, counted: Sequence[tuple[FileTask, int]], rows: Sink) -> None:
        """Send so many rows of each file, which have one value in each column."""
        found = constant_batches(self._s.shape, counted)
        # The rows of many files take so long that nothing could be cancelled meanwhile.
        begin = functools.partial(_begin, found, _FEW_BYTES, _FEW_ROWS)
        decoded = await self._in_thread(begin) if len(counted) > _FEW_FILES else begin()
        if decoded.rest is None:
            rows.send(decoded.batches, _nothing)
            return
        # A log may state any number of rows; they are created as they are taken.
        grant = await self._s.budget.acquire((self._number, 0), decoded.nbytes)
        await self._hand_out(_Unit(decoded, grant, 0), rows)

    async def _select(self) -> None:
        """Find out which rows the deletes leave."""
        if self._task.equality:
            self._deleted = await self._s.equality.of(self._task, self._number)
        refs = (self._task.without, self._task.only)
        if refs == (None, None):
            return
        get = self._s.vectors.get
        found = iter(await gather([get(ref, self._task, self._number) for ref in refs if ref is not None]))
        without, only = (None if ref is None else next(found) for ref in refs)
        self._selection = Selection(without, only)

    # === The whole file at once ===

    def _wants_whole(self) -> bool:
        """Whether to download the whole file instead of its footer first."""
        size, share = self._task.size, self._s.shape.share
        if size < 0 or size > _LARGEST_WHOLE or self._task.row_groups is not None:
            return False
        if size > _SMALL and (self._filters or self._s.limit is not None or not self._s.pace.is_full):
            return False
        return share >= _WHOLE_SHARE or size * (1 - share) <= _TOLERABLE_WASTE

    async def _read_whole(self, rows: Sink) -> None:
        size = self._bytes.size
        grant = await self._s.budget.acquire((self._number, 0), size)
        try:
            if self._task.has_vector or self._task.equality:
                _, blocks = await gather([self._select(), self._bytes.fetch([ByteRange(0, size)])])
            else:
                blocks = await self._bytes.fetch([ByteRange(0, size)])
            data = blocks[0].data if blocks else pa.py_buffer(b"")
            del blocks
            await grant.grow(self._s.ratio.expected(size))
            decoded = await self._in_thread(self._open_and_decode, data)
            del data
            await self._hand_out(_Unit(decoded, grant, size), rows)
        except BaseException:
            grant.release()
            raise
        await self._keep_pace(rows)

    @property
    def _is_gentle(self) -> bool:
        """Whether the consumer may not want the whole file."""
        return not self._s.pace.is_full and (self._s.limit is None or self._filters)

    async def _keep_pace(self, rows: Sink) -> None:
        if self._is_gentle:
            await rows.wanted()

    def _open_and_decode(self, data: pa.Buffer) -> _Decoded:
        footer, reader = open_file(data)
        layout = lay_out(self._s.shape, self._task, footer, whole=True)
        self._count(layout)
        self._selection.check(footer.metadata.num_rows)
        opened = [] if reader is None else [reader]
        bytes_ = ParquetBytes(int(data.size), [Block(0, data)], footer.metadata, opened=opened)
        found = self._decode(layout, self._within_limit(layout), bytes_)
        self._s.ratio.learn(int(data.size), found.nbytes)
        return found

    # === Footer first, then the needed parts of the row groups ===

    async def _read_parts(self, rows: Sink, needs_file: bool) -> None:
        _, tail = await gather([self._select(), self._bytes.footer()])
        footer = parse_footer(tail, self._bytes.size)
        self._selection.check(footer.metadata.num_rows)
        if not needs_file:
            await self.send_constants([(self._task, self._selection.count(footer.metadata.num_rows))], rows)
            return
        layout = lay_out(self._s.shape, self._task, footer, whole=False)
        layout = await self._skip_pages(layout)
        self._count(layout)
        async with aclosing(self._in_order(self._pieces(layout))) as found:
            async for unit in found:
                await self._hand_out(unit, rows)
                await self._keep_pace(rows)

    async def _in_order(self, pieces: AsyncIterator[_Piece]) -> AsyncGenerator[_Unit, None]:
        """Yield the units of ``pieces``, in order; read several at a time."""
        ahead: list[asyncio.Task[_Unit]] = []
        places = itertools.count()
        try:
            async for piece in pieces:
                ahead.append(asyncio.ensure_future(self._read_unit((self._number, next(places)), piece)))
                if len(ahead) >= (self._s.pace.pieces(_UNITS_AHEAD) if self._is_gentle else _UNITS_AHEAD):
                    yield await ahead.pop(0)
            while ahead:
                yield await ahead.pop(0)
        finally:
            for task in ahead:
                task.cancel()
            # Finished ones hold memory of the budget.
            for found in await asyncio.gather(*ahead, return_exceptions=True):
                if isinstance(found, _Unit):
                    found.grant.release()

    def _count(self, layout: Layout) -> None:
        self._s.report.add(row_groups=len(layout.groups), row_groups_skipped=layout.groups_skipped)

    async def _skip_pages(self, layout: Layout) -> Layout:
        """Return ``layout`` without the pages that the file's page index excludes."""
        predicate, groups = self._s.shape.predicate, index_ranges(layout, self._bytes.held, self._s.gains)
        if not groups or predicate is None:
            return layout
        ranges = coalesce((item for each in groups.values() for item in each), waste_floor=_INDEX_GAPS)
        blocks = await self._bytes.fetch_missing(ranges)
        if blocks:
            # For the next file, the page index is requested with the footer, if it is not long.
            self._s.guess.learn_index(self._bytes.size - ranges[0].start)
        read = self._bytes.reading(blocks)
        layout, skipped = await self._in_thread(with_pages, layout, groups, predicate, read, self._s.gains)
        self._s.report.add(pages_skipped=skipped.pages, page_bytes_skipped=skipped.bytes)
        return layout

    async def _pieces(self, layout: Layout) -> AsyncIterator[_Piece]:
        """Cut the file's row groups into units: small ones are joined, large ones are cut while the limits are low."""
        left = deque(self._within_limit(layout))
        while left:
            most = min(_UNIT, self._s.pace.piece) if self._is_gentle else _UNIT
            groups = [left.popleft()]
            size = layout.compressed_size((groups[0],))
            if size > _LEAST_CUT and (self._is_gentle or not left) and not self._s.pace.is_full:
                async for piece in self._parts_of(layout, groups[0]):
                    yield piece
                continue
            while left and size + (own := layout.compressed_size((left[0],))) <= most:
                groups.append(left.popleft())
                size += own
            yield _Piece(layout, tuple(groups))

    async def _parts_of(self, layout: Layout, group: int) -> AsyncIterator[_Piece]:
        """Cut one row group at its pages into growing units, or up to the last row of the limit."""
        pace, rows = self._s.pace, layout.rows(group)
        if group not in layout.index:
            ranges = coalesce(offset_indexes(layout, group).values(), waste_floor=_INDEX_GAPS)
            layout = with_index(layout, group, self._bytes.reading(await self._bytes.fetch_missing(ranges)))
        wanted = self._wanted_rows(layout, group)
        fetched: list[Block] = []
        before: asyncio.Future[bool] | None = None
        start = 0
        while start < wanted:
            stop = end_of_piece(layout, group, start, pace.piece) if self._is_gentle else wanted
            piece = layout
            if (start, stop) != (0, rows):
                piece = cut(layout, group, start, stop)
            if piece is layout or piece.pages[group].rows:
                part = _Part(fetched, before, asyncio.get_running_loop().create_future())
                yield _Piece(piece, (group,), part)
                before = part.is_right
            start = stop

    def _wanted_rows(self, layout: Layout, group: int) -> int:
        """Return the number of rows of ``group`` that complete the limit."""
        rows, first = layout.rows(group), layout.row_starts[group]
        if self._s.limit is None or self._filters:
            return rows
        count = self._selection.count
        before = sum(self._visible(layout, each) for each in layout.groups[: layout.groups.index(group)])
        visible = self._s.limit - before + count(first)
        return bisect.bisect_left(range(rows), visible, key=lambda row: count(first + row))

    def _visible(self, layout: Layout, group: int) -> int:
        """Return the number of rows of ``group`` that the deletion vectors leave."""
        count, starts = self._selection.count, layout.row_starts
        return count(starts[group + 1]) - count(starts[group])

    def _within_limit(self, layout: Layout) -> tuple[int, ...]:
        """Return the row groups up to the one that completes the limit."""
        if self._s.limit is None or self._filters:
            return layout.groups
        before = itertools.accumulate((self._visible(layout, group) for group in layout.groups), initial=0)
        return tuple(group for group, rows in zip(layout.groups, before, strict=False) if rows < self._s.limit)

    async def _read_unit(self, order: tuple[int, int], piece: _Piece) -> _Unit:
        layout, groups, _ = piece
        compressed = layout.compressed_size(groups)
        grant = await self._s.budget.acquire(order, compressed)
        try:
            layout, groups, data = await self._needed_bytes(piece)
            compressed = layout.compressed_size(groups)
            if not groups:
                return _Unit(_Decoded([], 0, None), grant, 0)
            if self._needs_few or layout.decoded_size(groups) > self._large:
                grant.resize(compressed)
                batches = self._decoder(layout).batches(data, groups, threads=True)
                return _Unit(_Decoded([], 0, batches), grant, compressed)
            await grant.grow(self._s.ratio.expected(compressed))
            decoded = await self._in_thread(self._decode, layout, groups, data)
            self._s.ratio.learn(compressed, decoded.nbytes)
            return _Unit(decoded, grant, compressed)
        except BaseException:
            grant.release()
            raise

    async def _needed_bytes(self, piece: _Piece) -> tuple[Layout, tuple[int, ...], ParquetBytes]:
        """Fetch what ``piece`` needs; return it with the layout and the groups that are left."""
        layout, groups, part = piece
        fetched = [] if part is None else [*part.fetched]
        is_right = False
        try:
            narrowed, left, ranges = await self._narrowed(layout, groups, fetched)
            fetched += await self._bytes.fetch_missing(coalesce(ranges), fetched)
            if part is not None:
                if part.before is not None and not await part.before:
                    raise PageMismatch("the page index was wrong about a page before")
                check_pages(narrowed, left, self._bytes.reading(fetched))
                if sum(int(block.data.size) for block in (self._bytes.held, *fetched)) <= _UNIT:
                    part.fetched[:] = fetched
            kept, replaced = await self._in_thread(self._rebuilt, narrowed, left, fetched)
            layout, groups, is_right = narrowed, left, True
        except PageMismatch:
            # An index that is wrong about one page is not used for any.
            layout = without_pages(layout, groups)
            kept, replaced = [*(await self._bytes.fetch_missing(coalesce(layout.ranges(groups)))), self._bytes.held], {}
        finally:
            if part is not None:
                part.is_right.set_result(is_right)
        return layout, groups, ParquetBytes(self._bytes.size, kept, layout.footer.metadata, replaced)

    async def _narrowed(
        self, layout: Layout, groups: tuple[int, ...], fetched: list[Block]
    ) -> tuple[Layout, tuple[int, ...], list[ByteRange]]:
        """Return layout, row groups and the ranges still to be downloaded.

        If it pays, the filter's columns are downloaded first, into ``fetched``, and decide which parts of the others
        are needed.
        """
        s = self._s
        first = filter_leaves(s.shape, layout, groups, s.late_gains, self._bytes.held.start) if s.limit is None else ()
        if not first:
            return layout, groups, layout.ranges(groups)
        own = reading(layout, first)
        fetched += await self._bytes.fetch_missing(coalesce(own.ranges(groups)), fetched)
        kept, replaced = self._rebuilt(own, groups, fetched)
        decoder = self._decoder(own)
        data = ParquetBytes(self._bytes.size, kept, own.footer.metadata, replaced)

        def decide() -> dict[int, Rows]:
            with s.report.stage("decode"):
                found = decoder.matching(data, groups, threads=s.threads_inside)
                return {group: stretches(masks) for group, masks in found.items()}

        matching = await self._in_thread(decide)
        layout, left, skipped = narrow(layout, groups, matching, first, s.late_gains, s.gains)
        s.report.add(pages_skipped=skipped.pages, page_bytes_skipped=skipped.bytes)
        return layout, left, reading(layout, first, others=True).ranges(left)

    # === Downloading, decoding, sending ===

    def _rebuilt(
        self, layout: Layout, groups: tuple[int, ...], fetched: list[Block]
    ) -> tuple[list[Block], dict[tuple[int, int], pa.Buffer]]:
        return rebuild(layout, groups, [self._bytes.held, *fetched], self._bytes.reading(fetched))

    async def _in_thread(self, call: Callable[..., T], *values: Any) -> T:
        return await self._s.decode(functools.partial(call, *values))

    def _decoder(self, layout: Layout) -> FileDecoder:
        return FileDecoder(self._s.shape, self._task, layout, self._selection, self._s.report, self._deleted)

    def _decode(self, layout: Layout, groups: tuple[int, ...], data: ParquetBytes) -> _Decoded:
        """Decode ``groups``, except large ones; on a thread."""
        decoder = self._decoder(layout)
        with self._s.report.stage("decode"):
            found = decoder.batches(data, groups, threads=self._s.threads_inside)
            return _begin(found, self._large, 0 if self._needs_few else _ANY)

    @property
    def _needs_few(self) -> bool:
        return self._s.limit is not None and self._s.limit <= _FEW_ROWS

    async def _hand_out(self, unit: _Unit, rows: Sink) -> None:
        """Send the rows of ``unit``; if they are not decoded yet, batch by batch as they are taken."""
        (batches, size, rest), grant, compressed = unit
        if rest is None:
            grant.resize(size)
            rows.send(batches, grant.release)
            return
        try:
            grant.resize(compressed + size)
            await rows.turn()
            if batches:
                rows.send(batches, _nothing)
            while (batch := await self._in_thread(self._next, rest)) is not None:
                rows.send([batch], _nothing)
                await rows.taken(_BATCHES_AHEAD)
        finally:
            grant.release()

    def _next(self, rest: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._s.report.stage("decode"):
            return next(rest, None)


def _begin(found: Iterator[pa.RecordBatch], most_bytes: int, most_rows: int) -> _Decoded:
    """Return all of ``found`` if that is no more, and otherwise the first of it."""
    batches: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in found:
        # Several batches may share buffers; counting their parts would take longer.
        size += batch.nbytes if batches else batch.get_total_buffer_size()
        rows += batch.num_rows
        batches.append(batch)
        if size > most_bytes or rows > most_rows:
            return _Decoded(batches, size, found)
    return _Decoded(batches, size, None)


def _nothing() -> None:
    pass
