"""Reads the needed columns, pages or first rows of a file's row groups, once its footer is read."""

from __future__ import annotations

import asyncio
import bisect
import dataclasses
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.decode.decoder import ParquetBytes
from delta_sharing_client.decode.file_read import Decoded, FileRead, Unit
from delta_sharing_client.decode.layout import Layout, lay_out
from delta_sharing_client.decode.page_choice import (
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
from delta_sharing_client.fetch.report import Timed, add_counts
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange, coalesce
from delta_sharing_client.parquet.footer import Footer
from delta_sharing_client.parquet.page_index import PageMismatch

_MB = 1024 * 1024
# Row groups of up to this many compressed bytes in total are downloaded and decoded together.
_UNIT = 16 * _MB
# Row groups with fewer compressed bytes are not cut into parts.
_LEAST_CUT = _MB
# The maximum number of units of one file in progress; the budget limits their bytes.
_UNITS_AHEAD = 16
# Gaps up to this size between parts of a page index are downloaded too, because another request would cost more.
_INDEX_GAPS = 64 * 1024


@dataclasses.dataclass(slots=True)
class _Parts:
    """The state of a row group that is read in parts.

    The page index gives the right positions of a part's pages only if it gives the right lengths of all pages before
    them. So the parts are checked one after the other, which the lock ``in_order`` ensures. ``is_right`` is false after
    the first mismatch; then the index is no longer used. ``fetched`` has bytes that later parts need.
    """

    in_order: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    is_right: bool = True
    fetched: list[ByteBlock] = dataclasses.field(default_factory=list)


class _Piece(NamedTuple):
    """Row groups to read together, or a part of one."""

    layout: Layout
    groups: tuple[int, ...]
    parts: _Parts | None = None


class _Needed(NamedTuple):
    """The layout and the row groups of a piece that are still to be decoded, and their bytes."""

    layout: Layout
    groups: tuple[int, ...]
    data: ParquetBytes


async def read_row_groups(read: FileRead, footer: Footer) -> None:
    """Send the rows of the file, whose footer is ``footer``."""
    layout = lay_out(read.shared.shape, read.task, footer, whole=False)
    layout = await _skip_pages(read, layout)
    read.count_groups(layout)
    async with aclosing(_in_order(read, _Pieces(read, layout).all())) as units:
        async for unit in units:
            await read.hand_out(unit)
            await read.keep_pace()


async def _skip_pages(read: FileRead, layout: Layout) -> Layout:
    """Return ``layout`` without the pages that the file's page index excludes."""
    shared, bytes_ = read.shared, read.bytes
    predicate, groups = shared.shape.skipping, index_ranges(layout, bytes_.held, shared.gains)
    if not groups or predicate is None:
        return layout
    ranges = coalesce((item for each in groups.values() for item in each), waste_floor=_INDEX_GAPS)
    blocks = await bytes_.fetch_missing(ranges)
    if blocks:
        # If the index is short, that of the next file is requested together with its footer.
        shared.guess.learn_index(bytes_.size - ranges[0].start)
    layout, skipped = await read.in_thread(with_pages, layout, groups, predicate, bytes_.reading(blocks), shared.gains)
    add_counts(shared.report, pages_skipped=skipped.pages, page_bytes_skipped=skipped.bytes)
    return layout


async def _in_order(read: FileRead, pieces: AsyncIterator[_Piece]) -> AsyncGenerator[Unit, None]:
    """Read several ``pieces`` at a time, and yield their units in order."""
    ahead: deque[asyncio.Task[Unit]] = deque()
    positions = itertools.count()
    try:
        async for piece in pieces:
            ahead.append(asyncio.ensure_future(_PieceRead(read, piece).run((read.number, next(positions)))))
            if len(ahead) >= (read.shared.pace.pieces(_UNITS_AHEAD) if read.is_gentle else _UNITS_AHEAD):
                yield await ahead.popleft()
        while ahead:
            yield await ahead.popleft()
    finally:
        for task in ahead:
            task.cancel()
        # Finished tasks still hold memory of the budget.
        for unit in await asyncio.gather(*ahead, return_exceptions=True):
            if isinstance(unit, Unit):
                unit.grant.release()


class _Pieces:
    """Cuts the row groups of a layout into pieces."""

    def __init__(self, read: FileRead, layout: Layout) -> None:
        self._read = read
        self._layout = layout

    async def all(self) -> AsyncIterator[_Piece]:
        """Yield all pieces: small row groups are joined; large ones are cut as long as ``Pace`` limits the read."""
        read, layout, pace = self._read, self._layout, self._read.shared.pace
        left = deque(read.within_limit(layout))
        while left:
            most = min(_UNIT, pace.piece) if read.is_gentle else _UNIT
            groups = [left.popleft()]
            size = layout.compressed_size((groups[0],))
            if size > _LEAST_CUT and (read.is_gentle or not left) and not pace.is_full:
                async for piece in self._parts(groups[0]):
                    yield piece
                continue
            while left and size + (own := layout.compressed_size((left[0],))) <= most:
                groups.append(left.popleft())
                size += own
            yield _Piece(layout, tuple(groups))

    async def _parts(self, group: int) -> AsyncIterator[_Piece]:
        """Cut one row group at page boundaries into parts of growing size, or up to the last row that the limit
        needs."""
        read, layout = self._read, self._layout
        if group not in layout.index:
            ranges = coalesce(offset_indexes(layout, group).values(), waste_floor=_INDEX_GAPS)
            layout = with_index(layout, group, read.bytes.reading(await read.bytes.fetch_missing(ranges)))
        parts, wanted, start = _Parts(), self._wanted_rows(group), 0
        while start < wanted:
            is_cut = read.is_gentle and parts.is_right
            stop = end_of_piece(layout, group, start, read.shared.pace.piece) if is_cut else wanted
            whole = (start, stop) == (0, layout.rows(group))
            piece = layout if whole else cut(layout, group, start, stop)
            if whole or piece.pages[group].rows:
                yield _Piece(piece, (group,), parts)
            start = stop

    def _wanted_rows(self, group: int) -> int:
        """Return how many of the first rows of ``group`` are needed to reach the limit."""
        read, layout = self._read, self._layout
        rows, first = layout.rows(group), layout.row_starts[group]
        if read.shared.limit is None or read.is_filtered:
            return rows
        count = read.selection.count
        before = sum(read.visible_rows(layout, each) for each in layout.groups[: layout.groups.index(group)])
        visible = read.shared.limit - before + count(first)
        return bisect.bisect_left(range(rows), visible, key=lambda row: count(first + row))


class _PieceRead:
    """Downloads and decodes one piece."""

    def __init__(self, read: FileRead, piece: _Piece) -> None:
        self._read = read
        self._bytes = read.bytes
        self._piece = piece

    async def run(self, order: tuple[int, int]) -> Unit:
        """Return the piece's rows; ``order`` is its position in the read."""
        read, shared = self._read, self._read.shared
        grant = await shared.budget.acquire(order, self._piece.layout.compressed_size(self._piece.groups))
        try:
            layout, groups, data = await self._needed()
            compressed = layout.compressed_size(groups)
            if not groups:
                return Unit(Decoded([], 0, None), grant, 0)
            if read.needs_few or layout.decoded_size(groups) > read.large:
                grant.resize(compressed)
                batches = read.decoder(layout).batches(data, groups, threads=True)
                return Unit(Decoded([], 0, batches), grant, compressed)
            await grant.grow(shared.ratio.expected(compressed))
            decoded = await read.in_thread(read.decode, layout, groups, data)
            shared.ratio.learn(compressed, decoded.nbytes)
            return Unit(decoded, grant, compressed)
        except BaseException:
            grant.release()
            raise

    async def _needed(self) -> _Needed:
        """Fetch the needed bytes. If the page index is wrong about one page, it is not used for any page."""
        parts = self._piece.parts or _Parts()
        # The budget grants the parts of a row group in order, so they also come here in order.
        async with parts.in_order:
            if parts.is_right:
                fetched = [*parts.fetched]
                try:
                    needed = await self._by_index(fetched)
                except PageMismatch:
                    parts.is_right = False
                else:
                    if sum(int(block.data.size) for block in (self._bytes.held, *fetched)) <= _UNIT:
                        parts.fetched[:] = fetched
                    return needed
        return await self._without_index()

    async def _by_index(self, fetched: list[ByteBlock]) -> _Needed:
        """Fetch the needed pages, and add them to ``fetched``. Raises ``PageMismatch`` if they contradict the index."""
        read = self._read
        layout, groups, ranges = await self._narrowed(fetched)
        fetched += await self._bytes.fetch_missing(coalesce(ranges), fetched)
        check_pages(layout, groups, self._bytes.reading(fetched))
        kept, replaced = await read.in_thread(self._rebuilt, layout, groups, fetched)
        return _Needed(layout, groups, ParquetBytes(self._bytes.size, kept, layout.footer.metadata, replaced))

    async def _without_index(self) -> _Needed:
        groups = self._piece.groups
        layout = without_pages(self._piece.layout, groups)
        blocks = [*(await self._bytes.fetch_missing(coalesce(layout.ranges(groups)))), self._bytes.held]
        return _Needed(layout, groups, ParquetBytes(self._bytes.size, blocks, layout.footer.metadata))

    async def _narrowed(self, fetched: list[ByteBlock]) -> tuple[Layout, tuple[int, ...], list[ByteRange]]:
        """Return the layout, the row groups, and the byte ranges still to be downloaded.

        If it probably saves time, the filter's columns are downloaded first, into ``fetched``, and the rows that match
        in them decide which parts of the other columns are needed.
        """
        read, shared, (layout, groups, _) = self._read, self._read.shared, self._piece
        first: tuple[int, ...] = ()
        if shared.limit is None:
            first = filter_leaves(shared.shape, layout, groups, shared.late_gains, self._bytes.held.start)
        if not first:
            return layout, groups, layout.ranges(groups)
        own = reading(layout, first)
        fetched += await self._bytes.fetch_missing(coalesce(own.ranges(groups)), fetched)
        kept, replaced = self._rebuilt(own, groups, fetched)
        decoder = read.decoder(own)
        data = ParquetBytes(self._bytes.size, kept, own.footer.metadata, replaced)

        def decide() -> dict[int, Rows]:
            with Timed(shared.report, "decode"):
                matching = decoder.matching(data, groups, threads=shared.threads_inside)
                return {group: stretches(masks) for group, masks in matching.items()}

        matching = await read.in_thread(decide)
        layout, left, skipped = narrow(layout, groups, matching, first, shared.late_gains, shared.gains)
        add_counts(shared.report, pages_skipped=skipped.pages, page_bytes_skipped=skipped.bytes)
        return layout, left, reading(layout, first, others=True).ranges(left)

    def _rebuilt(
        self, layout: Layout, groups: tuple[int, ...], fetched: list[ByteBlock]
    ) -> tuple[list[ByteBlock], dict[tuple[int, int], pa.Buffer]]:
        return rebuild(layout, groups, [self._bytes.held, *fetched], self._bytes.reading(fetched))
