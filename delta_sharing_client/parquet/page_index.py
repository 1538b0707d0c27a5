"""Describes the pages of column chunks, from the page index and from the pages' own headers.

See Apache Parquet, "Page Index" and "Data Pages". The index is a hint. An index that cannot be decoded, or that
contradicts the footer or itself, is not used: ``pages`` returns ``None``, and the whole chunk is read. The Parquet
reader uses the headers, so sizes that must be right, such as the unpacked size of a page, are taken from them and not
from the footer.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pyarrow as pa

from delta_sharing_client.parquet.chunks import ColumnChunk, Plain, plain_bounds
from delta_sharing_client.thrift import binary, boolean, encode_varint, list_of, number, read_struct

UNREADABLE = (IndexError, KeyError, ValueError, TypeError)
"""The exceptions that reading a damaged index or header raises."""

CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""pyarrow's name of each CompressionCodec; 5, LZ4 with Hadoop's framing, has none."""

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
"""Types of pages."""

DICTIONARY_ENCODINGS = (2, 8)
"""Encodings of data pages whose values are indices into the dictionary."""

# Field ids (Apache Parquet, parquet.thrift): OffsetIndex, PageLocation, ColumnIndex.
_LOCATIONS = 1
_OFFSET, _SIZE, _FIRST_ROW = 1, 2, 3
_NULL_PAGES, _MIN_VALUES, _MAX_VALUES, _NULL_COUNTS = 1, 2, 3, 5
_INDEX_LISTS = {
    _NULL_PAGES: list_of(boolean),
    _MIN_VALUES: list_of(binary),
    _MAX_VALUES: list_of(binary),
    _NULL_COUNTS: list_of(number),
}
# Field ids (Apache Parquet, parquet.thrift): PageHeader; the header for each page type, and the encoding in it.
_TYPE, _UNCOMPRESSED, _COMPRESSED, _CRC = 1, 2, 3, 4
_BODIES = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}
_NUM_VALUES, _NUM_ROWS_V2 = 1, 3


class PageMismatch(Exception):
    """The pages contradict the page index."""


class DataPages(NamedTuple):
    """The data pages of one column chunk.

    Page ``i`` has the bytes ``starts[i]`` to ``starts[i + 1]`` of the file, including its header, and the rows
    ``rows[i]`` to ``rows[i + 1]`` of its row group. Both lists have one entry more than there are pages.
    """

    starts: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def number(self) -> int:
        return len(self.rows) - 1

    def size(self, page: int) -> int:
        return self.starts[page + 1] - self.starts[page]


class PageValues(NamedTuple):
    """The bounds of one page. ``null_count`` is 0 or the page's number of rows; ``None`` for numbers in between."""

    bounds: tuple[Plain, Plain] | None
    null_count: int | None


def pages(offset_index: bytes, chunk: ColumnChunk, rows: int) -> DataPages | None:
    """Return the pages of a chunk without repeated values in a row group of ``rows`` rows.

    ``None`` if the index is damaged or unusual: the pages must be contiguous up to the chunk's end, and each must have
    at least one row.
    """
    try:
        fields, _ = read_struct(offset_index, 0, lists={_LOCATIONS: list_of(read_struct)})
        locations = [(item[_OFFSET], item[_SIZE], item[_FIRST_ROW]) for item in fields[_LOCATIONS]]
    except UNREADABLE:
        return None
    if not all(isinstance(number, int) for location in locations for number in location):
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
    return DataPages(starts, firsts)


def values(column_index: bytes, chunk: ColumnChunk, data_pages: DataPages) -> list[PageValues] | None:
    """Return the bounds of each of ``data_pages``.

    ``None`` if the index is damaged, has the wrong number of entries, has null counts that contradict the pages or the
    footer, or has values beyond the footer's bounds.
    """
    try:
        index, _ = read_struct(column_index, 0, lists=_INDEX_LISTS)
        null_pages, lowers, uppers = index[_NULL_PAGES], index[_MIN_VALUES], index[_MAX_VALUES]
        null_counts = index.get(_NULL_COUNTS)
        total = sum(null_counts) if null_counts is not None else None
    except UNREADABLE:
        return None
    lists = (null_pages, lowers, uppers, null_pages if null_counts is None else null_counts)
    if any(len(item) != data_pages.number for item in lists):
        return None
    if total is not None and chunk.null_count is not None and total != chunk.null_count:
        return None
    described = []
    for page, empty in enumerate(null_pages):
        held = data_pages.rows[page + 1] - data_pages.rows[page]
        nulls = null_counts[page] if null_counts is not None else None
        if nulls is not None and not (nulls == held if empty else 0 <= nulls < held):
            return None
        if empty:
            described.append(PageValues(None, held))
            continue
        bounds = plain_bounds(lowers[page], uppers[page], chunk.physical) if chunk.ordered else None
        if bounds is not None and _beyond(bounds, chunk.bounds):
            return None
        described.append(PageValues(bounds, 0 if nulls == 0 else None))
    return described


def _beyond(page: tuple[Plain, Plain], chunk: tuple[Plain, Plain] | None) -> bool:
    """Return whether a page's bounds contradict the chunk's. Bytes are not compared, as both may be truncated."""
    if chunk is None or any(isinstance(value, bytes) for value in (*page, *chunk)):
        return False
    return page[0] < chunk[0] or page[1] > chunk[1]  # type: ignore[operator]


# === Headers ===


class PageHeader(NamedTuple):
    """One page: its type, the compressed and uncompressed size of its body, and the number and encoding of its values.

    ``values`` includes nulls; it and ``encoding`` are known for data pages and dictionaries, ``rows`` for data pages of
    version 2. ``checksum`` is the signed CRC-32 of the stored body, ``None`` if the writer stored none.
    """

    kind: int
    compressed: int
    uncompressed: int
    values: int = 0
    encoding: int = -1
    rows: int | None = None
    checksum: int | None = None


class ChunkPages(NamedTuple):
    """The pages of one chunk: the largest unpacked size, the encodings of data pages, and the dictionary with the
    position of its body.

    ``indices_first``: no page of indices into the dictionary follows a page of other values. ``values`` and ``size``
    are the number of values in the data pages, and the unpacked size of all pages.
    """

    largest: int
    encodings: frozenset[int]
    dictionary: tuple[PageHeader, int] | None
    indices_first: bool = True
    values: int = 0
    size: int = 0


def read_page_header(data: Any, at: int) -> tuple[PageHeader, int]:
    """Return the header at ``at`` in bytes or a memoryview, and the position of the page's body.

    Raises one of ``UNREADABLE`` if it cannot be decoded.
    """
    header, at = read_struct(data, at)
    kind, compressed, uncompressed = header[_TYPE], header[_COMPRESSED], header[_UNCOMPRESSED]
    if compressed < 0 or uncompressed < 0:
        raise ValueError("a page has a negative size")
    checksum = header.get(_CRC)
    if kind not in _BODIES:
        return PageHeader(kind, compressed, uncompressed, checksum=checksum), at
    field, encoding = _BODIES[kind]
    body = header[field]
    rows = body[_NUM_ROWS_V2] if kind == DATA_PAGE_V2 else None
    return PageHeader(kind, compressed, uncompressed, body[_NUM_VALUES], body[encoding], rows, checksum), at


def check_page(page: pa.Buffer, rows: int | None, *, has_dictionary: bool = True) -> None:
    """Raise ``PageMismatch`` unless a page's header agrees with the index; ``rows`` is ``None`` for a dictionary."""
    try:
        header, at = read_page_header(memoryview(page).cast("B"), 0)
    except UNREADABLE as error:
        raise PageMismatch(f"a page header cannot be decoded: {error}") from None
    if rows is None:
        right = header.kind == DICTIONARY_PAGE
    else:
        right = header.kind in (DATA_PAGE, DATA_PAGE_V2) and header.values == rows and header.rows in (None, rows)
        right = right and (has_dictionary or header.encoding not in DICTIONARY_ENCODINGS)
    if not right or at + header.compressed != page.size:
        raise PageMismatch("a page contradicts the page index")


def page_header(kind: int, uncompressed: int, compressed: int, *numbers: int, is_packed: bool = True) -> bytes:
    """Return a page header as ``read_page_header`` reads it; ``numbers`` are the first fields of the inner header for
    the page type."""
    field, _ = _BODIES[kind]
    # Both structs begin with numbers of consecutive ids. The inner header follows the outer numbers; both end with 0.
    own = bytes([field - _COMPRESSED << 4 | 12]) + _numbers(*numbers) + (b"" if is_packed else b"\x12")
    return _numbers(kind, uncompressed, compressed) + own + b"\0\0"


def _numbers(*numbers: int) -> bytes:
    # A non-negative number is stored as twice its value (zigzag).
    return b"".join(b"\x15" + encode_varint(each << 1) for each in numbers)


def unpack(body: pa.Buffer, codec: int, size: int) -> bytes:
    """Return the decompressed body of a page, which has ``size`` bytes.

    Raises ``KeyError`` for an unknown codec; ``pyarrow.ArrowException``, ``OSError`` or ``ValueError`` for a damaged
    body.
    """
    # Not decompressed into an Arrow buffer: other threads take the interpreter lock during the call that allocates one.
    if not codec:
        unpacked: bytes = body.to_pybytes()
    else:
        unpacked = pa.decompress(body, size, CODECS[codec], asbytes=True) if size else b""
    return unpacked


def walk_pages(chunk: memoryview, values: int) -> ChunkPages:
    """Read the page headers in the bytes of a chunk with ``values`` values, up to the end of the bytes or, like the
    Parquet reader, to a header that cannot be decoded."""
    largest = at = found = size = 0
    encodings: set[int] = set()
    dictionary = None
    indices_first = True
    try:
        while found < values:
            page, at = read_page_header(chunk, at)
            largest = max(largest, page.uncompressed)
            size += page.uncompressed
            if page.kind == DICTIONARY_PAGE:
                dictionary = (page, at)
            elif page.kind in _BODIES:
                if page.encoding in DICTIONARY_ENCODINGS:
                    indices_first = indices_first and encodings.issubset(DICTIONARY_ENCODINGS)
                encodings.add(page.encoding)
                found += page.values
            at += page.compressed
    except UNREADABLE:
        pass
    return ChunkPages(largest, frozenset(encodings), dictionary, indices_first, found, size)
