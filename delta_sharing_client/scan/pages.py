"""Which pages of a file's row groups to read: when to look into its page index, and what follows from it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.page_index import Pages, pages, values
from delta_sharing_client.parquet.partial_chunk import ColumnShape, GroupPages, partial_chunk
from delta_sharing_client.parquet.sparse_file import Block
from delta_sharing_client.predicates.tree import Expression
from delta_sharing_client.scan.align import leaf_count
from delta_sharing_client.scan.layout import Layout
from delta_sharing_client.scan.page_rows import IndexedColumn, Rows, matching_rows

# Bytes that can be read in the time that one more round trip takes; what page skipping has to save to pay for it.
_ROUND_TRIP = 1024 * 1024
# What it has to save where the index is here already, for the work.
_WORK = 64 * 1024
# Before anything is known: half of this much was saved.
_PRIOR = 4 * 1024 * 1024
# Of these writers the Parquet reader takes every page of version 2 to be compressed (ARROW-17100).
_OLD_WRITER = re.compile(r"parquet-cpp(?:-arrow)? version [012]\.")

Read = Callable[[int, int], pa.Buffer]


class PageGains:
    """How large a share of the bytes an extra look saved, learned as the scan goes; where it is nothing, it rests."""

    def __init__(self) -> None:
        self._seen = _PRIOR
        self._saved = _PRIOR // 2

    def expected(self, nbytes: int) -> int:
        """Return how many of ``nbytes`` will probably be saved."""
        return nbytes * self._saved // self._seen

    def learn(self, nbytes: int, saved: int) -> None:
        # A race loses one observation at most, which is harmless.
        self._seen, self._saved = self._seen + nbytes, self._saved + saved


class Skipped(NamedTuple):
    """What page skipping left out: row groups altogether, pages, and their bytes (those of whole row groups too)."""

    groups: int = 0
    pages: int = 0
    bytes: int = 0


def index_ranges(layout: Layout, held: Block, gains: PageGains) -> dict[int, list[ByteRange]]:
    """Return the parts of the page index to read for each row group; nothing if that would not pay.

    ``held`` are the bytes that are here already.
    """
    if layout.bounds is None or _OLD_WRITER.match(layout.chunks.created_by):
        return {}
    flat = {leaf for leaf in layout.leaves if _is_flat(layout, leaf)}
    filters = {leaf for _, leaf, _ in layout.bounds.leaves.values()}
    found: dict[int, list[ByteRange]] = {}
    possible = cost = 0
    for group in layout.groups:
        ranges: list[ByteRange] = []
        size, indexed = 0, False
        for leaf in layout.leaves:
            chunk = layout.chunks.get(group, leaf)
            if chunk.offset_index is None or leaf not in flat:
                continue
            ranges.append(chunk.offset_index)
            # What is held is the file's end.
            size += max(0, min(chunk.start + chunk.length, held.start) - chunk.start)
            if leaf in filters and chunk.column_index is not None:
                ranges.append(chunk.column_index)
                indexed = True
        if indexed:
            found[group] = ranges
            possible += size
            cost += sum(item.length for item in ranges if item.start < held.start)
    price = _WORK if not cost else _ROUND_TRIP + cost
    return found if gains.expected(possible) >= price else {}


def with_pages(
    layout: Layout, groups: dict[int, list[ByteRange]], predicate: Expression, read: Read, gains: PageGains
) -> tuple[Layout, Skipped]:
    """Return the layout without the pages, and row groups, in which no row can match.

    Parameters
    ----------
    groups:
        What ``index_ranges`` returned.
    read:
        Returns as many bytes of the file from a position on; it has those that ``groups`` name.
    """
    planned: dict[int, GroupPages] = {}
    index: dict[int, Callable[[], Mapping[int, Pages]]] = {}
    filters = {leaf for _, leaf, _ in layout.bounds.leaves.values()} if layout.bounds is not None else set[int]()
    dropped: set[int] = set()
    skipped = Skipped()
    for group in groups:
        whole = layout.compressed_size((group,))
        # Nobody needs the pages of the other columns while all rows may match.
        index[group] = functools.cache(functools.partial(_read_pages, layout, group, layout.leaves, read))
        rows = _wanted(layout, group, _read_pages(layout, group, filters, read), predicate, read)
        saved = Skipped()
        if rows == ():
            dropped.add(group)
            saved = Skipped(1, sum(item.number for item in index[group]().values()), whole)
        elif rows is not None:
            partial = group_pages(layout, group, rows, index[group]())
            saved = _saved(partial)
            if partial.chunks:
                planned[group] = partial
        gains.learn(whole, saved.bytes)
        skipped = Skipped(*(sum(pair) for pair in zip(skipped, saved, strict=True)))
    kept = tuple(group for group in layout.groups if group not in dropped)
    return dataclasses.replace(
        layout, groups=kept, groups_skipped=layout.groups_skipped + len(dropped), pages=planned, index=index
    ), skipped


def group_pages(layout: Layout, group: int, rows: Rows, found: Mapping[int, Pages]) -> GroupPages:
    """Return what to read of a row group for ``rows`` where the pages of some columns are ``found``."""
    chunks = {}
    # Chunks that share bytes could be read in each other's place.
    if _disjoint([layout.chunk_range(group, leaf) for leaf in layout.leaves]):
        for leaf, item in found.items():
            partial = partial_chunk(layout.chunks.get(group, leaf), item, rows, _shape(layout, leaf))
            if partial is not None:
                chunks[leaf] = partial
    return GroupPages(rows, chunks)


def rebuild(
    layout: Layout, groups: tuple[int, ...], blocks: list[Block], read: Read
) -> tuple[list[Block], dict[tuple[int, int], pa.Buffer]]:
    """Return the chunks of ``groups`` that were fetched in part, by start and length, and the ``blocks`` still needed.

    Raises
    ------
    PageMismatch
        The pages contradict their index.
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


def without_pages(layout: Layout, groups: tuple[int, ...]) -> Layout:
    """Return the layout that reads ``groups`` whole."""
    pages = {group: item for group, item in layout.pages.items() if group not in groups}
    return dataclasses.replace(layout, pages=pages, index={})


def _read_pages(layout: Layout, group: int, leaves: Iterable[int], read: Read) -> dict[int, Pages]:
    found = {}
    for leaf in leaves:
        chunk = layout.chunks.get(group, leaf)
        if chunk.offset_index is not None and _is_flat(layout, leaf):
            item = pages(_bytes(read, chunk.offset_index), chunk, layout.rows(group))
            if item is not None:
                found[leaf] = item
    return found


def _wanted(layout: Layout, group: int, found: dict[int, Pages], predicate: Expression, read: Read) -> Rows | None:
    """Return the rows that may match, ``None`` if that may be all of them."""
    assert layout.bounds is not None
    columns = {}
    for _, leaf, _ in layout.bounds.leaves.values():
        chunk = layout.chunks.get(group, leaf)
        if leaf in found and chunk.column_index is not None:
            described = values(_bytes(read, chunk.column_index), chunk, found[leaf])
            if described is not None:
                columns[leaf] = IndexedColumn(found[leaf], described)
    if not columns:
        return None
    rows = matching_rows(predicate, layout.bounds, group, columns)
    return None if rows == ((0, layout.rows(group)),) else rows


def _saved(found: GroupPages) -> Skipped:
    chunks = found.chunks.values()
    return Skipped(
        0,
        sum(item.pages.number - len(item.kept) for item in chunks),
        sum(item.chunk.length - item.size for item in chunks),
    )


def _is_flat(layout: Layout, leaf: int) -> bool:
    """Whether each row has exactly one value, or null, in a Parquet column."""
    return bool(layout.footer.metadata.schema.column(leaf).max_repetition_level == 0)


def _shape(layout: Layout, leaf: int) -> ColumnShape:
    after = 0
    for field in layout.arrow:
        after += leaf_count(field.type)
        if leaf < after:
            break
    depth = layout.footer.metadata.schema.column(leaf).max_definition_level
    return ColumnShape(depth, is_dictionary="dictionary<" in str(field.type))


def _disjoint(ranges: list[ByteRange]) -> bool:
    return all(left.stop <= right.start for left, right in itertools.pairwise(sorted(ranges)))


def _bytes(read: Read, item: ByteRange) -> bytes:
    return read(item.start, item.length).to_pybytes()
