"""Where the pages of a column chunk lie, which rows they hold, and what values (Apache Parquet, "Page Index").

The index is a hint beside the data. One that does not decode, or that contradicts the footer or itself, is not used:
``pages`` then returns ``None``, and the chunk is read whole, as if it had no index.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from delta_sharing_client.parquet.chunks import Chunk, Plain, plain
from delta_sharing_client.parquet.thrift import fields, list_header, read_struct, skip, varint

# Field ids (Apache Parquet, parquet.thrift): OffsetIndex, PageLocation, ColumnIndex.
_LOCATIONS = 1
_OFFSET, _SIZE, _FIRST_ROW = 1, 2, 3
_NULL_PAGES, _MIN_VALUES, _MAX_VALUES, _NULL_COUNTS = 1, 2, 3, 5
_TRUE, _FALSE, _INTEGERS, _BINARY, _LIST, _STRUCT = 1, 2, (4, 5, 6), 8, 9, 12
_UNREADABLE = (IndexError, ValueError, TypeError, KeyError)


class Pages(NamedTuple):
    """The data pages of one column chunk.

    Page ``i`` is the bytes ``starts[i]`` to ``starts[i + 1]`` of the file, header included, and the rows ``rows[i]`` to
    ``rows[i + 1]``, counted in its row group. Both have one entry more than there are pages.
    """

    starts: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def number(self) -> int:
        return len(self.rows) - 1

    def size(self, page: int) -> int:
        return self.starts[page + 1] - self.starts[page]


class PageValues(NamedTuple):
    """What one page holds: its ``null_count`` is 0, the number of its rows, or ``None`` for anything else."""

    bounds: tuple[Plain, Plain] | None
    null_count: int | None


def pages(offset_index: bytes, chunk: Chunk, rows: int) -> Pages | None:
    """Return the pages of a chunk without repeated values in a row group of ``rows`` rows.

    ``None`` where the index is damaged or odd: the pages must follow each other without a gap up to the chunk's end,
    and each must hold at least one row.
    """
    try:
        locations = _locations(offset_index)
    except _UNREADABLE:
        return None
    if not locations or chunk.values != rows:
        return None
    end = chunk.start + chunk.length
    starts = (*(start for start, _, _ in locations), end)
    firsts = (*(row for _, _, row in locations), rows)
    adjacent = all(start + size == following for (start, size, _), following in zip(locations, starts[1:], strict=True))
    ascending = all(left < right for sequence in (starts, firsts) for left, right in itertools.pairwise(sequence))
    if not (adjacent and ascending) or starts[0] < chunk.start or firsts[0]:
        return None
    return Pages(starts, firsts)


def values(column_index: bytes, chunk: Chunk, found: Pages) -> list[PageValues] | None:
    """Return what each of the pages ``found`` holds.

    ``None`` where the index is damaged, has not one entry for each page, counts other nulls than it says or than the
    footer does, or has numbers beyond the footer's bounds.
    """
    try:
        null_pages, lowers, uppers, null_counts = _column_index(column_index)
        total = sum(null_counts) if null_counts is not None else None
    except _UNREADABLE:
        return None
    lists = (null_pages, lowers, uppers) if null_counts is None else (null_pages, lowers, uppers, null_counts)
    if any(len(item) != found.number for item in lists):
        return None
    if total is not None and chunk.null_count is not None and total != chunk.null_count:
        return None
    described = []
    for page, empty in enumerate(null_pages):
        held = found.rows[page + 1] - found.rows[page]
        nulls = null_counts[page] if null_counts is not None else None
        if nulls is not None and not (nulls == held if empty else 0 <= nulls < held):
            return None
        if empty:
            described.append(PageValues(None, held))
            continue
        bounds = _bounds(lowers[page], uppers[page], chunk)
        if bounds is not None and _beyond(bounds, chunk.bounds):
            return None
        described.append(PageValues(bounds, 0 if nulls == 0 else None))
    return described


def _bounds(lower: bytes, upper: bytes, chunk: Chunk) -> tuple[Plain, Plain] | None:
    if not chunk.ordered:
        return None
    low, high = plain(lower, chunk.physical), plain(upper, chunk.physical)
    return None if low is None or high is None else (low, high)


def _beyond(page: tuple[Plain, Plain], chunk: tuple[Plain, Plain] | None) -> bool:
    """Whether a page's bounds contradict the chunk's. Bytes may be cut off in either place, and are not compared."""
    if chunk is None or any(isinstance(value, bytes) for value in (*page, *chunk)):
        return False
    return page[0] < chunk[0] or page[1] > chunk[1]  # type: ignore[operator]


# === Thrift ===


def _locations(data: bytes) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    walk = fields(data, 0)
    field, kind, at = next(walk)
    while field:
        if field == _LOCATIONS and kind == _LIST:
            count, of, at = list_header(data, at)
            if of != _STRUCT:
                raise ValueError("page locations are not structs")
            for _ in range(count):
                item, at = read_struct(data, at)
                location = (item[_OFFSET], item[_SIZE], item[_FIRST_ROW])
                if not all(isinstance(number, int) for number in location):
                    raise ValueError("a page location is not made of numbers")
                found.append(location)
        else:
            at = skip(data, at, kind)
        field, kind, at = walk.send(at)
    return found


def _column_index(data: bytes) -> tuple[list[bool], list[bytes], list[bytes], list[int] | None]:
    null_pages: list[bool] = []
    texts: dict[int, list[bytes]] = {}
    null_counts: list[int] | None = None
    walk = fields(data, 0)
    field, kind, at = next(walk)
    while field:
        if field == _NULL_PAGES and kind == _LIST:
            null_pages, at = _booleans(data, at)
        elif field in (_MIN_VALUES, _MAX_VALUES) and kind == _LIST:
            texts[field], at = _binaries(data, at)
        elif field == _NULL_COUNTS and kind == _LIST:
            null_counts, at = _numbers(data, at)
        else:
            at = skip(data, at, kind)
        field, kind, at = walk.send(at)
    return null_pages, texts[_MIN_VALUES], texts[_MAX_VALUES], null_counts


def _booleans(data: bytes, at: int) -> tuple[list[bool], int]:
    count, kind, at = list_header(data, at)
    body = data[at : at + count]
    # In a list each takes a byte; some writers have 0 for false.
    if (count and kind not in (_TRUE, _FALSE)) or len(body) != count or any(byte > _FALSE for byte in body):
        raise ValueError("null pages are not booleans")
    return [byte == _TRUE for byte in body], at + count


def _binaries(data: bytes, at: int) -> tuple[list[bytes], int]:
    count, kind, at = list_header(data, at)
    if count and kind != _BINARY:
        raise ValueError("page bounds are not binary")
    found = []
    for _ in range(count):
        size, at = varint(data, at)
        if at + size > len(data):
            raise ValueError("a page bound is longer than the index")
        found.append(data[at : at + size])
        at += size
    return found, at


def _numbers(data: bytes, at: int) -> tuple[list[int], int]:
    count, kind, at = list_header(data, at)
    if count and kind not in _INTEGERS:
        raise ValueError("null counts are not numbers")
    found = []
    for _ in range(count):
        number, at = varint(data, at)
        found.append(number >> 1 ^ -(number & 1))
    return found, at
