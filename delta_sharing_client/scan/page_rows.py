"""Rows of a row group that may match, by the statistics of its pages (Apache Parquet, "Page Index").

The pages of one column end where those of another do not. Between two ends of any of them, one page of each column
holds the rows; a predicate that cannot be true within those pages' bounds is true of no row there.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping
from typing import NamedTuple

from delta_sharing_client.delta.data_types import ColumnPath
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.parquet.page_index import Pages, PageValues
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import Expression
from delta_sharing_client.scan.bounds import RowGroupBounds, typed_bounds

Rows = tuple[tuple[int, int], ...]


class IndexedColumn(NamedTuple):
    """The page index of one Parquet column in one row group."""

    pages: Pages
    values: list[PageValues]


def matching_rows(
    predicate: Expression, bounds: RowGroupBounds, group: int, columns: Mapping[int, IndexedColumn]
) -> Rows:
    """Return the stretches of rows of a row group, counted in it, that may hold a row for which ``predicate`` is true.

    ``columns`` are those of the predicate's Parquet columns that have an index; of the others the bounds of the whole
    row group count.
    """
    may_match = compile_skipping(predicate)
    statistics = _Stretch(bounds, group, columns)
    ends = sorted({row for column in columns.values() for row in column.pages.rows})
    found: list[tuple[int, int]] = []
    for start, stop in itertools.pairwise(ends):
        statistics.row = start
        if not may_match(statistics):
            continue
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


class _Stretch:
    """``predicates.skipping.Statistics`` of the rows around ``row`` that lie in one page of each column.

    Null counts are those of the pages, which hold more rows: they say "none" or "all", or they are not given.
    """

    def __init__(self, bounds: RowGroupBounds, group: int, columns: Mapping[int, IndexedColumn]) -> None:
        self._bounds = bounds
        self._group = group
        self._leaves = {path: leaf for path, leaf in bounds.leaves.items() if leaf[1] in columns}
        self._columns = columns
        self._known: dict[tuple[ColumnPath, int], ColumnBounds | None] = {}
        self.row = 0

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        leaf = self._leaves.get(path)
        page = -1 if leaf is None else bisect.bisect_right(self._columns[leaf[1]].pages.rows, self.row) - 1
        key = (path, page)
        if key not in self._known:
            self._known[key] = self._of_group(path) if leaf is None else self._of_page(path, page)
        return self._known[key]

    def _of_group(self, path: ColumnPath) -> ColumnBounds | None:
        found = self._bounds.bounds_in(self._group, path)
        if found is None or not found.null_count or found.null_count == found.row_count:
            return found
        return found._replace(null_count=None)

    def _of_page(self, path: ColumnPath, page: int) -> ColumnBounds:
        field, leaf, found = self._leaves[path]
        pages, values = self._columns[leaf]
        lower, upper, without_nan = typed_bounds(values[page].bounds, field, found)
        if lower is not None and upper is not None and lower > upper:
            lower = upper = without_nan = None
        rows = pages.rows[page + 1] - pages.rows[page]
        return ColumnBounds(lower, upper, values[page].null_count, rows, without_nan)
