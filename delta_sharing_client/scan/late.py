"""The filter's columns first, the others only where a row matched: what is left to read once those are known.

Which rows match is decided again when all columns are here, so a stretch may hold rows that do not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from delta_sharing_client.parquet.page_index import Pages
from delta_sharing_client.parquet.partial_chunk import GroupPages
from delta_sharing_client.scan.columns import Origin
from delta_sharing_client.scan.layout import Layout, Shape
from delta_sharing_client.scan.page_rows import Rows
from delta_sharing_client.scan.pages import PageGains, Skipped, group_pages

# Rows that match closer together than this are one stretch: pages hold more rows.
_STRETCH = 1024
# What has to be saved to pay for one more round trip, and for decoding the filter's columns twice.
_LEAST = 4 * 1024 * 1024


def filter_leaves(
    shape: Shape, layout: Layout, groups: tuple[int, ...], gains: PageGains, held: int
) -> tuple[int, ...]:
    """Return the filter's Parquet columns if it probably pays to read them first, else nothing.

    What lies in the file from ``held`` on is here already.
    """
    if layout.bounds is None or any(
        column.origin in (Origin.ROW_ID, Origin.ROW_COMMIT_VERSION) for column in shape.filter
    ):
        return ()
    first = {leaf for column in layout.filter if column is not None for leaf in column.leaves}
    others = sum(item.length for item in reading(layout, first, others=True).ranges(groups) if item.start < held)
    return tuple(sorted(first)) if first and others and gains.expected(others) >= _LEAST else ()


def reading(layout: Layout, leaves: set[int] | tuple[int, ...], *, others: bool = False) -> Layout:
    """Return the layout for some of its Parquet columns, or for all others; it is no good for making output of."""
    kept = tuple(leaf for leaf in layout.leaves if (leaf in leaves) is not others)
    files = [column for column in layout.filter if column is not None and column.leaves]
    tops = sorted({column.top for column in files})
    return dataclasses.replace(layout, leaves=kept, tops={top: position for position, top in enumerate(tops)})


def stretches(matching: list[tuple[int, Any]]) -> Rows:
    """Return the stretches that hold the matching rows of a row group.

    ``matching`` are boolean arrays, each with the row of the group that it begins at, in order.
    """
    found = [start + np.flatnonzero(mask) for start, mask in matching]
    positions = np.concatenate(found) if found else np.empty(0, np.int64)
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
    gains: PageGains,
    index_gains: PageGains,
) -> tuple[Layout, tuple[int, ...], Skipped]:
    """Return layout and row groups that are left where only ``rows`` may match, and what that leaves out.

    The chunks ``first`` stay what they are, as they are here.
    """
    planned = dict(layout.pages)
    skipped = Skipped()
    for group in groups:
        before = reading(layout, first, others=True).compressed_size((group,))
        found = layout.index[group]() if rows[group] and group in layout.index else {}
        if found:
            held = layout.pages[group].chunks if group in layout.pages else {}
            # A stretch may reach over rows that were ruled out before: the filter's pages are not here for them.
            wanted = tuple(stretch for start, stop in rows[group] for stretch in layout.within(group, start, stop))
            chunks = group_pages(layout, group, wanted, found).chunks
            planned[group] = GroupPages(
                wanted,
                {
                    **{leaf: item for leaf, item in held.items() if leaf in first},
                    **{leaf: item for leaf, item in chunks.items() if leaf not in first},
                },
            )
        after = dataclasses.replace(layout, pages=planned)
        left = reading(after, first, others=True).compressed_size((group,)) if rows[group] else 0
        pages = _pages(layout, group, found) - _pages(after, group, found)
        skipped = Skipped(0, skipped.pages + pages, skipped.bytes + before - left)
        gains.learn(before, before - left)
        if group in layout.index:
            # That much less is read because the index says where the pages lie.
            index_gains.learn(0, before - left)
    kept = tuple(group for group in groups if rows[group])
    return dataclasses.replace(layout, pages=planned), kept, skipped


def _pages(layout: Layout, group: int, found: Mapping[int, Pages]) -> int:
    """Return how many pages of a row group are read, of the chunks whose pages are ``found``."""
    partial = layout.pages[group].chunks if group in layout.pages else {}
    return sum(len(partial[leaf].kept) if leaf in partial else pages.number for leaf, pages in found.items())
