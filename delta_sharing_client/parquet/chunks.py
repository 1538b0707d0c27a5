"""Parses the locations and statistics of column chunks in a Parquet footer.

pyarrow has accessors for them, but a C++ exception in an accessor (statistics that are too short, a size histogram of
the wrong length, an encrypted column) ends the process, while in the reader it becomes a Python exception. So pyarrow
only reads the data, and this module parses the parts of the footer that are needed before that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from typing import Any, NamedTuple, Union

import pyarrow as pa

from delta_sharing_client.errors import DataError
from delta_sharing_client.lazy import lazy
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.thrift import list_header, list_of, read_struct, skip_struct

# Field ids (Apache Parquet, parquet.thrift).
_ROW_GROUPS, _CREATED_BY, _COLUMN_ORDERS = 4, 6, 7
_COLUMNS = 1
_FILE_PATH, _META_DATA, _CRYPTO = 1, 3, 8
_OFFSET_INDEX, _COLUMN_INDEX = (4, 5), (6, 7)
_TYPE, _CODEC, _VALUES, _UNCOMPRESSED, _COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE, _STATISTICS = 1, 4, 5, 6, 7, 9, 11, 12
_ENCODING_STATS = 13
_PAGE_TYPE, _ENCODING, _COUNT = 1, 2, 3
_DATA_PAGES, _DICTIONARY_ENCODINGS = (0, 3), (2, 8)
_NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 3, 5, 6
_TYPE_DEFINED_ORDER = 1
# A ColumnOrder with that field, an empty struct; nearly all writers use it for all columns.
_ORDERED = b"\x1c\x00\x00"
_MAGIC = b"PAR1"

# parquet-mr before 1.2.9 did not count a dictionary page's header in the chunk's length; the Parquet reader then reads
# beyond that length.
_OLD_WRITER = re.compile(r"parquet-mr(?: version)? 1\.(?:[01]\.|2\.[0-8](?!\d))")
_OLD_WRITER_PADDING = 100

_DAMAGED = (IndexError, ValueError, TypeError, AttributeError, KeyError)

Plain = Union[bool, int, float, bytes]


class ColumnChunk(NamedTuple):
    """One column of one row group: its position, its length, its decompressed length, its statistics.

    ``bounds`` are the smallest and the largest value in the physical type, if the chunk is ``ordered``: the file states
    the order of the column. ``values`` includes nulls. ``offset_index`` and ``column_index`` are their ranges in the
    file, if it has them. ``dictionary_length`` is the size of the dictionary page according to the footer, 0 if there
    is none.
    """

    start: int
    length: int
    uncompressed: int
    null_count: int | None
    bounds: tuple[Plain, Plain] | None
    values: int
    physical: int
    codec: int
    ordered: bool
    offset_index: ByteRange | None
    column_index: ByteRange | None
    encoding_stats: bytes | None = None
    dictionary_length: int = 0

    @property
    def is_dictionary_encoded(self) -> bool:
        """Whether the footer states that all data pages refer to the dictionary."""
        pages = self._data_pages() or {}
        return self.dictionary_length > 0 and len(pages) > 0 and pages.keys() <= set(_DICTIONARY_ENCODINGS)

    def dictionary_pages(self) -> int | None:
        """Return the number of data pages with dictionary encoding, ``None`` if the footer does not state it.

        A writer that stops using its dictionary does not resume, so these pages are the first ones.
        """
        pages = self._data_pages()
        return None if pages is None else sum(pages.get(encoding, 0) for encoding in _DICTIONARY_ENCODINGS)

    def _data_pages(self) -> dict[int, int] | None:
        """Return the number of data pages of each encoding, ``None`` if the footer does not state it."""
        if self.encoding_stats is None:
            return None
        pages: dict[int, int] = {}
        try:
            for stats in list_of(read_struct)(self.encoding_stats, 0)[0]:
                if stats[_PAGE_TYPE] in _DATA_PAGES and stats[_COUNT]:
                    pages[stats[_ENCODING]] = pages.get(stats[_ENCODING], 0) + stats[_COUNT]
        except (IndexError, ValueError, TypeError, KeyError):
            return None
        return pages


class _Parsed(NamedTuple):
    """A footer's bytes, the writer's name, the position of each chunk's struct by row group and leaf, and the leaves
    that have the order of their type."""

    data: bytes
    writer: str
    positions: list[dict[int, int]]
    ordered: Collection[int]


class Chunks:
    """The chunks of ``leaves`` in every row group, and the writer's name; decoded on demand.

    ``footer`` holds the bytes of the footer without the trailer, ``end`` is the position of the footer in the file.
    """

    def __init__(self, footer: pa.Buffer, leaves: Collection[int], end: int) -> None:
        self._footer = footer
        self._wanted = frozenset(leaves)
        self._end = end
        self._found: dict[tuple[int, int], ColumnChunk] = {}

    def get(self, group: int, leaf: int) -> ColumnChunk:
        """Return the chunk of a leaf in a row group.

        Raises ``DataError`` if the footer or the chunk in it cannot be decoded, or if the chunk does not exist, is
        outside of the file or is encrypted.
        """
        chunk = self._found.get((group, leaf))
        if chunk is None:
            # Many reads need only a few chunks: those of string columns, or of the filter's columns.
            chunk = self._found[group, leaf] = self._decoded(group, leaf)
        return chunk

    @property
    def created_by(self) -> str:
        """The name of the writer. Raises ``DataError`` if the footer cannot be decoded."""
        return self._parsed.writer

    @lazy
    def padding(self) -> int:
        """How many bytes beyond the end of a chunk the Parquet reader reads. Errors as for ``created_by``."""
        return _OLD_WRITER_PADDING if _OLD_WRITER.match(self.created_by) else 0

    @lazy
    def _parsed(self) -> _Parsed:
        data = self._footer.to_pybytes()
        lists = {_ROW_GROUPS: list_of(self._row_group), _COLUMN_ORDERS: _orders}
        try:
            footer, _ = read_struct(data, 0, lists=lists)
            writer = footer.get(_CREATED_BY, b"").decode("utf-8", "replace")
        except _DAMAGED as error:
            raise _undecodable(error) from None
        return _Parsed(data, writer, footer.get(_ROW_GROUPS, []), footer.get(_COLUMN_ORDERS, ()))

    def _row_group(self, data: bytes, at: int) -> tuple[dict[int, int], int]:
        group, at = read_struct(data, at, lists={_COLUMNS: self._columns})
        return group.get(_COLUMNS, {}), at

    def _columns(self, data: bytes, at: int) -> tuple[dict[int, int], int]:
        count, _, at = list_header(data, at)
        offsets = {}
        for leaf in range(count):
            if leaf in self._wanted:
                offsets[leaf] = at
            at = skip_struct(data, at)
        return offsets, at

    def _decoded(self, group: int, leaf: int) -> ColumnChunk:
        parsed = self._parsed
        try:
            at = parsed.positions[group][leaf]
        except (IndexError, KeyError):
            raise DataError(f"The footer has no column chunk {leaf} in row group {group}.") from None
        try:
            return self._chunk(read_struct(parsed.data, at)[0], leaf in parsed.ordered)
        except _DAMAGED as error:
            raise _undecodable(error) from None

    def _chunk(self, raw: dict[int, Any], ordered: bool) -> ColumnChunk:
        if _CRYPTO in raw:
            raise DataError("The Parquet file has an encrypted column, which is not supported.")
        meta = raw[_META_DATA]
        start, length = meta[_DATA_PAGE], meta[_COMPRESSED]
        if 0 < meta.get(_DICTIONARY_PAGE, 0) < start:
            start = meta[_DICTIONARY_PAGE]
        if raw.get(_FILE_PATH) or start < 0 or length < 0 or start + length > self._end:
            raise DataError(
                f"The footer places a column chunk at bytes {start} to {start + length}, outside of the file."
            )
        statistics = meta.get(_STATISTICS, {})
        nulls = statistics.get(_NULL_COUNT)
        bounds = None
        if ordered and _MIN_VALUE in statistics and _MAX_VALUE in statistics:
            bounds = plain_bounds(statistics[_MIN_VALUE], statistics[_MAX_VALUE], meta[_TYPE])
        return ColumnChunk(
            start=start,
            length=length,
            uncompressed=max(0, meta[_UNCOMPRESSED]),
            null_count=nulls if isinstance(nulls, int) and nulls >= 0 else None,
            bounds=bounds,
            values=meta[_VALUES],
            physical=meta[_TYPE],
            codec=meta.get(_CODEC, 0),
            ordered=ordered,
            offset_index=self._index(raw, *_OFFSET_INDEX),
            column_index=self._index(raw, *_COLUMN_INDEX),
            encoding_stats=meta.get(_ENCODING_STATS),
            dictionary_length=meta[_DATA_PAGE] - start,
        )

    def _index(self, raw: dict[int, Any], offset: int, length: int) -> ByteRange | None:
        start, size = raw.get(offset), raw.get(length)
        if not isinstance(start, int) or not isinstance(size, int) or start < len(_MAGIC) or size <= 0:
            return None
        return ByteRange(start, start + size) if start + size <= self._end else None


def _undecodable(error: Exception) -> DataError:
    return DataError(f"The Parquet footer cannot be decoded: {type(error).__name__}: {error}.")


# Physical types; INT96 (3) has no order.
_FIXED = {
    0: struct.Struct("<?"),
    1: struct.Struct("<i"),
    2: struct.Struct("<q"),
    4: struct.Struct("<f"),
    5: struct.Struct("<d"),
}
_BYTES = (6, 7)


def plain_bounds(lower: bytes, upper: bytes, physical: int) -> tuple[Plain, Plain] | None:
    """Return bounds in their physical type; ``None`` for a type without order, or a value of the wrong length."""
    if physical in _BYTES:
        return lower, upper
    layout = _FIXED.get(physical)
    if layout is None or not len(lower) == len(upper) == layout.size:
        return None
    return layout.unpack(lower)[0], layout.unpack(upper)[0]


def _orders(data: bytes, at: int) -> tuple[Collection[int], int]:
    """Parse a list of ColumnOrder; return the columns that have the order of their type, and the position after it."""
    count, _, start = list_header(data, at)
    if data.startswith(_ORDERED * count, start):
        return range(count), start + len(_ORDERED) * count
    orders, at = list_of(read_struct)(data, at)
    return [leaf for leaf, order in enumerate(orders) if _TYPE_DEFINED_ORDER in order], at
