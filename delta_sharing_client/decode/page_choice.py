"""Chooses which pages of a file's row groups to read, in two ways: by the file's page index, and by reading the
filter's columns first, to find the rows that match. Each is done only if it probably saves more than it costs."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from delta_sharing_client.decode.align import Node
from delta_sharing_client.decode.bounds import RowGroupBounds, typed_bounds
from delta_sharing_client.decode.layout import Layout, Shape
from delta_sharing_client.delta.data_types import ColumnPath
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange
from delta_sharing_client.parquet.page_index import DataPages, PageValues, check_page, pages, values
from delta_sharing_client.parquet.partial_chunk import ColumnShape, GroupPages, partial_chunk
from delta_sharing_client.plan.read_columns import ROW_LINEAGE
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import Expression
from delta_sharing_client.shortcuts import SHORTCUTS

Rows = tuple[tuple[int, int], ...]
Read = Callable[[int, int], pa.Buffer]
# Bytes that can be downloaded in the time of one more round trip; page skipping must save at least this much.
_ROUND_TRIP = 1024 * 1024
# The minimum saving, in bytes, if the index is already downloaded.
_WORK = 64 * 1024
# A read starts as if half of this many bytes had been saved, so that skipping is tried; it stops if nothing is saved.
_PRIOR = 4 * 1024 * 1024
# A ratio of fewer bytes than this is a guess, which the first observation replaces.
_GUESSED = 64 * 1024
# The Parquet reader treats every version 2 page of these writers as compressed (ARROW-17100).
_OLD_WRITER = re.compile(r"parquet-cpp(?:-arrow)? version [012]\.")
# Matching rows that are at most this far apart form one range, because pages usually have more rows.
_STRETCH = 1024
# The minimum saving, in bytes, that justifies one more round trip and decoding the filter's columns twice.
_LEAST = 4 * 1024 * 1024


class Ratio:
    """A ratio of bytes, initially ``useful`` to ``seen``, which is updated during the read."""

    def __init__(self, seen: int = _PRIOR, useful: int = _PRIOR // 2) -> None:
        self._seen = seen
        self._useful = useful

    def expected(self, nbytes: int) -> int:
        """Return the expected number of bytes for ``nbytes``."""
        return nbytes * self._useful // self._seen

    def learn(self, nbytes: int, useful: int) -> None:
        # Without a lock: a race loses at most one observation.
        if self._seen < _GUESSED:
            self._seen, self._useful = max(1, nbytes), useful
        else:
            self._seen, self._useful = self._seen + nbytes, self._useful + useful


class SkippedPages(NamedTuple):
    """The number of skipped pages and their bytes, including the pages of skipped row groups."""

    pages: int = 0
    bytes: int = 0


# === By the page index ===


def index_ranges(layout: Layout, held: ByteBlock, gains: Ratio) -> dict[int, list[ByteRange]]:
    """Return the parts of the page index to read for each row group; none if that probably costs more than it saves.

    ``held`` is the end of the file, which is downloaded already.
    """
    if layout.bounds is None:
        return {}
    filters = {leaf for _, leaf, _ in layout.bounds.leaves.values()}
    by_group: dict[int, list[ByteRange]] = {}
    possible = cost = 0
    for group in layout.groups:
        offsets = offset_indexes(layout, group)
        chunks = {leaf: layout.chunks.get(group, leaf) for leaf in offsets}
        described = [chunks[leaf].column_index for leaf in offsets if leaf in filters]
        ranges = [*offsets.values(), *(index for index in described if index is not None)]
        if len(ranges) > len(offsets):
            by_group[group] = ranges
            # Bytes in ``held`` cannot be saved any more.
            ends = [(chunk.start, min(chunk.start + chunk.length, held.start)) for chunk in chunks.values()]
            possible += sum(max(0, end - start) for start, end in ends)
            cost += sum(item.length for item in ranges if item.start < held.start)
    price = _WORK if not cost else _ROUND_TRIP + cost
    return by_group if gains.expected(possible) >= price else {}


def with_pages(
    layout: Layout, groups: dict[int, list[ByteRange]], predicate: Expression, read: Read, gains: Ratio
) -> tuple[Layout, SkippedPages]:
    """Return the layout without the pages and row groups in which no row can match, and what is skipped.

    ``groups`` is the result of ``index_ranges``. ``read`` returns bytes of the file by start and length; it has those
    of ``groups``.
    """
    planned: dict[int, GroupPages] = {}
    index: dict[int, Callable[[], Mapping[int, DataPages]]] = {}
    assert layout.bounds is not None, "without a filter there is nothing to skip"
    filters = {leaf for _, leaf, _ in layout.bounds.leaves.values()}
    dropped: set[int] = set()
    skipped = SkippedPages()
    for group in groups:
        whole = layout.compressed_size((group,))
        # Decoded on demand: if all rows may match, the pages of the other columns are not needed.
        index[group] = functools.cache(functools.partial(_read_pages, layout, group, layout.leaves, read))
        rows = _wanted(layout, group, _read_pages(layout, group, filters, read), predicate, read)
        saved = SkippedPages()
        if rows == ():
            dropped.add(group)
            saved = SkippedPages(sum(item.number for item in index[group]().values()), whole)
        elif rows is not None:
            partial = group_pages(layout, group, rows, index[group]())
            chunks = partial.chunks.values()
            saved = SkippedPages(
                sum(item.pages.number - len(item.kept) for item in chunks),
                sum(item.chunk.length - item.size for item in chunks),
            )
            if partial.chunks:
                planned[group] = partial
        gains.learn(whole, saved.bytes)
        skipped = SkippedPages(*(sum(pair) for pair in zip(skipped, saved, strict=True)))
    kept = tuple(group for group in layout.groups if group not in dropped)
    return dataclasses.replace(
        layout, groups=kept, groups_skipped=layout.groups_skipped + len(dropped), pages=planned, index=index
    ), skipped


def with_index(layout: Layout, group: int, read: Read) -> Layout:
    """Return the layout with the list of a row group's pages, which ``read`` reads from the ``offset_indexes``."""
    pages_of_group = functools.cache(functools.partial(_read_pages, layout, group, layout.leaves, read))
    return dataclasses.replace(layout, index={**layout.index, group: pages_of_group})


def end_of_piece(layout: Layout, group: int, start: int, size: int) -> int:
    """Return the row of a row group at which a piece of about ``size`` bytes that begins at row ``start`` should end.

    The first piece includes the dictionaries. A piece ends at the end of a page, the first one at the earliest. It ends
    with the row group if no pages are known, or if the pages of the first rows take more than half of the row group.
    """
    rows, by_leaf = layout.rows(group), layout.index[group]()
    ends = sorted({row for pages in by_leaf.values() for row in pages.rows if row > start})

    def cost(stop: int) -> int:
        return sum(
            pages.starts[bisect.bisect_left(pages.rows, stop)]
            - pages.starts[bisect.bisect_right(pages.rows, start) - 1]
            for pages in by_leaf.values()
        )

    if not ends or 2 * cost(ends[0]) > layout.compressed_size((group,)):
        return rows
    if not start:
        size -= sum(pages.starts[0] - layout.chunks.get(group, leaf).start for leaf, pages in by_leaf.items())
    # At least up to the end of the first page, even if that takes more than ``size`` bytes.
    least = max(size, cost(ends[0]))
    return ends[bisect.bisect_right(ends, least, key=cost) - 1]


def cut(layout: Layout, group: int, start: int, stop: int) -> Layout:
    """Return the layout for the rows ``[start, stop)`` of a row group whose pages are known."""
    rows = tuple(layout.within(group, start, stop))
    partial = group_pages(layout, group, rows, layout.index[group]())
    return dataclasses.replace(
        layout, pages={**layout.pages, group: partial}, cuts={**layout.cuts, group: (start, stop)}
    )


def check_pages(layout: Layout, groups: tuple[int, ...], read: Read) -> None:
    """Compare the pages of row groups that are cut with the page index, for columns whose chunks are read whole.

    The pages of other columns are compared when their chunks are rebuilt. The start of each part of a row group depends
    on the pages before it, so all of them must match the index. Raises ``PageMismatch`` if a page contradicts it.
    """
    for group in groups:
        partial = layout.pages[group].chunks if group in layout.pages else {}
        for leaf, data_pages in layout.index[group]().items() if group in layout.cuts else ():
            if leaf in partial:
                continue
            start, stop = layout.cuts[group]
            for page in range(
                bisect.bisect_right(data_pages.rows, start) - 1, bisect.bisect_left(data_pages.rows, stop)
            ):
                rows = data_pages.rows[page + 1] - data_pages.rows[page]
                check_page(read(data_pages.starts[page], data_pages.size(page)), rows)


def without_pages(layout: Layout, groups: tuple[int, ...]) -> Layout:
    """Return the layout that reads all rows of ``groups``, or of the parts to which they are cut, without the index."""
    pages = {group: item for group, item in layout.pages.items() if group not in groups}
    pages |= {group: GroupPages((layout.cuts[group],), {}) for group in groups if group in layout.cuts}
    return dataclasses.replace(layout, pages=pages, index={})


def group_pages(layout: Layout, group: int, rows: Rows, by_leaf: Mapping[int, DataPages]) -> GroupPages:
    """Return the parts of a row group to read for ``rows``; ``by_leaf`` has the known pages of columns."""
    chunks = {}
    # Chunks that share bytes could be confused with each other.
    if _disjoint([layout.chunk_range(group, leaf) for leaf in layout.leaves]):
        shapes = _shapes(layout, by_leaf)
        for leaf, item in by_leaf.items():
            partial = partial_chunk(layout.chunks.get(group, leaf), item, rows, shapes[leaf])
            if partial is not None:
                chunks[leaf] = partial
    return GroupPages(rows, chunks)


def rebuild(
    layout: Layout, groups: tuple[int, ...], blocks: list[ByteBlock], read: Read
) -> tuple[list[ByteBlock], dict[tuple[int, int], pa.Buffer]]:
    """Return the ``blocks`` that are still needed, and the rebuilt chunks of ``groups`` by start and length.

    Raises ``PageMismatch`` if a page contradicts the page index.
    """
    partial = [
        (group, leaf, item)
        for group in groups
        if group in layout.pages
        for leaf, item in layout.pages[group].chunks.items()
        if leaf in layout.leaves
    ]
    if not partial:
        return blocks, {}
    replaced = {(item.chunk.start, item.chunk.length): item.rebuild(read) for _, _, item in partial}
    done = {(group, leaf) for group, leaf, _ in partial}
    whole = [layout.chunk_range(group, leaf) for group in groups for leaf in layout.leaves if (group, leaf) not in done]
    needed = [block for block in blocks if any(item.start < block.stop and block.start < item.stop for item in whole)]
    return needed, replaced


def _read_pages(layout: Layout, group: int, leaves: Iterable[int], read: Read) -> dict[int, DataPages]:
    offsets = offset_indexes(layout, group)
    by_leaf = {
        leaf: pages(_bytes(read, offsets[leaf]), layout.chunks.get(group, leaf), layout.rows(group))
        for leaf in leaves
        if leaf in offsets
    }
    return {leaf: item for leaf, item in by_leaf.items() if item is not None}


def offset_indexes(layout: Layout, group: int) -> dict[int, ByteRange]:
    """Return the locations of a row group's offset indexes, by Parquet column, for columns without repeated values."""
    if _OLD_WRITER.match(layout.chunks.created_by):
        return {}
    schema = layout.footer.metadata.schema
    flat = [leaf for leaf in layout.leaves if schema.column(leaf).max_repetition_level == 0]
    by_leaf = {leaf: layout.chunks.get(group, leaf).offset_index for leaf in flat}
    return {leaf: index for leaf, index in by_leaf.items() if index is not None}


def _wanted(
    layout: Layout, group: int, by_leaf: dict[int, DataPages], predicate: Expression, read: Read
) -> Rows | None:
    """Return the rows that may match, ``None`` if all of them may."""
    assert layout.bounds is not None
    columns = {}
    for _, leaf, _ in layout.bounds.leaves.values():
        chunk = layout.chunks.get(group, leaf)
        if leaf in by_leaf and chunk.column_index is not None:
            described = values(_bytes(read, chunk.column_index), chunk, by_leaf[leaf])
            if described is not None:
                columns[leaf] = IndexedColumn(by_leaf[leaf], described)
    if not columns:
        return None
    rows = matching_rows(predicate, layout.bounds, group, columns)
    return None if rows == ((0, layout.rows(group)),) else rows


def _shapes(layout: Layout, leaves: Iterable[int]) -> dict[int, ColumnShape]:
    below = [["dictionary<" in str(field.type)] * Node.of(field.type).leaves for field in layout.footer.arrow]
    is_dictionary = list(itertools.chain.from_iterable(below))
    columns = {leaf: layout.footer.metadata.schema.column(leaf) for leaf in leaves}
    return {leaf: ColumnShape(column.max_definition_level, is_dictionary[leaf]) for leaf, column in columns.items()}


def _disjoint(ranges: list[ByteRange]) -> bool:
    return all(left.stop <= right.start for left, right in itertools.pairwise(sorted(ranges)))


def _bytes(read: Read, item: ByteRange) -> bytes:
    return read(item.start, item.length).to_pybytes()


# === By the filter's columns, read first ===


def filter_leaves(shape: Shape, layout: Layout, groups: tuple[int, ...], gains: Ratio, held: int) -> tuple[int, ...]:
    """Return the filter's Parquet columns if reading them first probably saves more than it costs, otherwise ``()``.

    The file's bytes from ``held`` on are downloaded already.
    """
    if not SHORTCUTS.late_columns or any(column.origin in ROW_LINEAGE for column in shape.context.filters):
        return ()
    # Equality deletes may need columns that are not in the filter.
    if layout.alignment.equality:
        return ()
    first = {leaf for column in layout.alignment.filter if column is not None for leaf in column.leaves}
    others = sum(item.length for item in reading(layout, first, others=True).ranges(groups) if item.start < held)
    return tuple(sorted(first)) if gains.expected(others) >= _LEAST else ()


def reading(layout: Layout, leaves: set[int] | tuple[int, ...], *, others: bool = False) -> Layout:
    """Return the layout for the Parquet columns ``leaves``, or for all ``others``. It can evaluate the filter, but
    cannot return rows."""
    kept = tuple(leaf for leaf in layout.leaves if (leaf in leaves) is not others)
    files = [column for column in layout.alignment.filter if column is not None and column.leaves]
    tops = sorted({column.top for column in files})
    positions = {top: position for position, top in enumerate(tops)}
    return dataclasses.replace(layout, alignment=dataclasses.replace(layout.alignment, leaves=kept, tops=positions))


def stretches(matching: list[tuple[int, Any]]) -> Rows:
    """Return ranges of rows of a row group that contain all matching rows.

    ``matching`` has pairs in order: the row of the group at which an array begins, and the boolean array.
    """
    arrays = [start + np.flatnonzero(mask) for start, mask in matching]
    positions = np.concatenate(arrays) if arrays else np.empty(0, np.int64)
    if not len(positions):
        return ()
    breaks = np.flatnonzero(np.diff(positions) > _STRETCH)
    starts = positions[np.concatenate([[0], breaks + 1])].tolist()
    stops = (positions[np.concatenate([breaks, [len(positions) - 1]])] + 1).tolist()
    return tuple(zip(starts, stops, strict=True))


def narrow(
    layout: Layout,
    groups: tuple[int, ...],
    rows: Mapping[int, Rows],
    first: tuple[int, ...],
    gains: Ratio,
    index_gains: Ratio,
) -> tuple[Layout, tuple[int, ...], SkippedPages]:
    """Return the layout and the row groups that remain if only ``rows`` may match, and the skipped pages.

    The Parquet columns ``first`` are downloaded already, and stay as they are.
    """
    planned = dict(layout.pages)
    skipped = SkippedPages()
    for group in groups:
        before = reading(layout, first, others=True).compressed_size((group,))
        by_leaf = layout.index[group]() if rows[group] and group in layout.index else {}
        if by_leaf:
            held = layout.pages[group].chunks if group in layout.pages else {}
            # A range may include previously excluded rows, for which the filter's pages were not downloaded.
            wanted = tuple(stretch for start, stop in rows[group] for stretch in layout.within(group, start, stop))
            chunks = group_pages(layout, group, wanted, by_leaf).chunks
            planned[group] = GroupPages(
                wanted,
                {
                    **{leaf: item for leaf, item in held.items() if leaf in first},
                    **{leaf: item for leaf, item in chunks.items() if leaf not in first},
                },
            )
        after = dataclasses.replace(layout, pages=planned)
        left = reading(after, first, others=True).compressed_size((group,)) if rows[group] else 0
        pages = _pages(layout, group, by_leaf) - _pages(after, group, by_leaf)
        skipped = SkippedPages(skipped.pages + pages, skipped.bytes + before - left)
        gains.learn(before, before - left)
        if group in layout.index:
            # These bytes can be saved only because the page index gives the positions of the pages.
            index_gains.learn(0, before - left)
    kept = tuple(group for group in groups if rows[group])
    return dataclasses.replace(layout, pages=planned), kept, skipped


def _pages(layout: Layout, group: int, by_leaf: Mapping[int, DataPages]) -> int:
    """Return how many pages of a row group are read, for the chunks in ``by_leaf``."""
    partial = layout.pages[group].chunks if group in layout.pages else {}
    return sum(len(partial[leaf].kept) if leaf in partial else pages.number for leaf, pages in by_leaf.items())


# === Which rows may match ===


class IndexedColumn(NamedTuple):
    """The page index of one Parquet column in one row group."""

    pages: DataPages
    values: list[PageValues]


def matching_rows(
    predicate: Expression, bounds: RowGroupBounds, group: int, columns: Mapping[int, IndexedColumn]
) -> Rows:
    """Return the ranges of rows, counted within a row group, that may have a row for which ``predicate`` is true.

    ``columns`` are the predicate's Parquet columns with an index; for others the bounds of the whole row group are
    used.
    """
    may_match = compile_skipping(predicate)
    statistics = _Stretch(bounds, group, columns)
    ends = sorted({row for column in columns.values() for row in column.pages.rows})
    joined: list[tuple[int, int]] = []
    for start, stop in itertools.pairwise(ends):
        statistics.row = start
        if not may_match(statistics):
            continue
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)


class _Stretch:
    """``predicates.skipping.Statistics`` of the rows around ``row`` that are in one page of each column.

    Null counts are those of the whole page or row group. This suffices, because only "no nulls" and "only nulls" are
    used, which then also hold for a part of the rows.
    """

    row: int

    def __init__(self, bounds: RowGroupBounds, group: int, columns: Mapping[int, IndexedColumn]) -> None:
        self._bounds = bounds
        self._group = group
        self._leaves = {path: leaf for path, leaf in bounds.leaves.items() if leaf[1] in columns}
        self._columns = columns
        self._known: dict[tuple[ColumnPath, int], ColumnBounds | None] = {}

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        leaf = self._leaves.get(path)
        page = -1 if leaf is None else bisect.bisect_right(self._columns[leaf[1]].pages.rows, self.row) - 1
        key = (path, page)
        if key not in self._known:
            self._known[key] = self._bounds.bounds_in(self._group, path) if leaf is None else self._of_page(path, page)
        return self._known[key]

    def _of_page(self, path: ColumnPath, page: int) -> ColumnBounds:
        field, leaf, stored = self._leaves[path]
        pages, values = self._columns[leaf]
        lower, upper, without_nan = typed_bounds(values[page].bounds, field, stored)
        rows = pages.rows[page + 1] - pages.rows[page]
        return ColumnBounds(lower, upper, values[page].null_count, rows, without_nan)
