"""Rebuilds a column chunk from some of its pages, for the Parquet reader.

Rows keep their positions: a small page replaces each gap. For all rows of the gap, it has nulls in an optional column,
and the same value in a required one. These rows must not be used: the caller drops them by position. The downloaded
pages are unchanged, and so are their checksums.

The pages are contiguous from the chunk's start, because the reader goes from header to header. It stops after the
number of values that the chunk has; the rest is never read and takes no memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from delta_sharing_client.parquet.byte_ranges import ByteRange, merge
from delta_sharing_client.parquet.chunks import ColumnChunk
from delta_sharing_client.parquet.page_index import DATA_PAGE_V2, DataPages, check_page, page_header
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.thrift import encode_varint

# Constants (Apache Parquet, parquet.thrift): encodings, physical types.
_PLAIN, _RLE, _DELTA_BINARY_PACKED, _DELTA_LENGTH_BYTE_ARRAY, _RLE_DICTIONARY = 0, 3, 5, 6, 8
_BOOLEAN, _INT32, _INT64, _BYTE_ARRAY = 0, 1, 2, 6
# The length of a run and the counts of a page are 32-bit numbers; twice the run length must fit as well.
_MOST_ROWS = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnShape:
    """The shape of a column without repeated values.

    ``max_definition_level`` is 0 for a required column; ``is_dictionary`` is true if Arrow reads it as a dictionary.
    """

    max_definition_level: int
    is_dictionary: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class PartialChunk:
    """A chunk of which only the ``kept`` pages, in ascending order, are downloaded.

    ``stubs`` are the pages that replace the gaps, each by the first page that it replaces. ``dictionary`` is the range
    of the dictionary page, if that is needed too.
    """

    chunk: ColumnChunk
    pages: DataPages
    shape: ColumnShape
    kept: tuple[int, ...]
    stubs: dict[int, bytes]
    dictionary: ByteRange | None

    @property
    def ranges(self) -> list[ByteRange]:
        """The byte ranges to download: the dictionary if it is needed, and the kept pages."""
        starts = self.pages.starts
        ranges = [ByteRange(starts[page], starts[page + 1]) for page in self.kept]
        return merge(ranges if self.dictionary is None else [self.dictionary, *ranges])

    @property
    def size(self) -> int:
        return sum(item.length for item in self.ranges)

    def rebuild(self, read: Callable[[int, int], pa.Buffer]) -> pa.Buffer:
        """Return the bytes of the rebuilt chunk; ``read(start, length)`` returns bytes of the file.

        Raises ``PageMismatch`` if a page's header contradicts the index.
        """
        starts, rows = self.pages.starts, self.pages.rows
        dictionary: Any = b""
        if self.dictionary is not None:
            dictionary = read(self.dictionary.start, self.dictionary.length)
            check_page(dictionary, None)
        parts: dict[int, Any] = dict(self.stubs)
        for page in self.kept:
            parts[page] = read(starts[page], self.pages.size(page))
            check_page(parts[page], rows[page + 1] - rows[page], has_dictionary=self.dictionary is not None)
        # Unused pages of an anonymous mapping take no memory.
        whole = mmap.mmap(-1, self.chunk.length)
        whole.write(memoryview(dictionary))
        for page in sorted(parts):
            whole.write(memoryview(parts[page]))
        return pa.py_buffer(whole)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPages:
    """The wanted ranges of rows in a row group, and those of its chunks that are downloaded in part."""

    rows: tuple[tuple[int, int], ...]
    chunks: dict[int, PartialChunk]


def partial_chunk(
    chunk: ColumnChunk, pages: DataPages, rows: Sequence[tuple[int, int]], shape: ColumnShape
) -> PartialChunk | None:
    """Return which part of a chunk to download for ``rows``, ascending ranges of the row group.

    ``None`` if the whole chunk is to be downloaded: all pages are needed, this type of column has no stub, or the part
    would not be smaller.
    """
    kept = _overlapping(pages, rows)
    if len(kept) == pages.number or not SHORTCUTS.page_stubs:
        return None
    encoded = chunk.dictionary_pages()
    dictionary = ByteRange(chunk.start, pages.starts[0]) if pages.starts[0] > chunk.start else None
    if encoded is not None and not (kept and kept[0] < encoded) and not _refers(chunk, shape):
        dictionary = None
    stubs: dict[int, bytes] = {}
    edges = (-1, *kept, pages.number)
    for before, after in itertools.pairwise(edges):
        first = before + 1
        if first < after:
            as_indices = dictionary is not None and (encoded is None or first < encoded or _refers(chunk, shape))
            stub = _stub(pages.rows[after] - pages.rows[first], chunk, shape, as_indices=as_indices)
            if stub is None:
                return None
            stubs[first] = stub
    partial = PartialChunk(chunk, pages, shape, kept, stubs, dictionary)
    return partial if partial.size + sum(map(len, stubs.values())) <= chunk.length else None


def _overlapping(pages: DataPages, rows: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    kept = []
    at = 0
    for page in range(pages.number):
        while at < len(rows) and rows[at][1] <= pages.rows[page]:
            at += 1
        if at < len(rows) and rows[at][0] < pages.rows[page + 1]:
            kept.append(page)
    return tuple(kept)


# === Stubs ===


def _stub(rows: int, chunk: ColumnChunk, shape: ColumnShape, *, as_indices: bool) -> bytes | None:
    """Return an uncompressed page of version 2 with ``rows`` nulls, or with the same value ``rows`` times.

    ``as_indices``: the page replaces pages that refer to the dictionary, which is read. Returns ``None`` if such a page
    cannot be made for the type of the column.
    """
    if rows > _MOST_ROWS or shape.max_definition_level > 0xFF:
        return None
    run = encode_varint(rows << 1) + b"\0"
    if shape.max_definition_level:
        # Inside a struct, Arrow does not read a chunk as a dictionary if indices follow plain values.
        return _page(rows, rows, _RLE_DICTIONARY if as_indices else _PLAIN, levels=run)
    if shape.is_dictionary:
        return None
    if chunk.physical in (_INT32, _INT64):
        return _page(rows, 0, _DELTA_BINARY_PACKED, values=_zeros(rows))
    if chunk.physical == _BYTE_ARRAY:
        return _page(rows, 0, _DELTA_LENGTH_BYTE_ARRAY, values=_zeros(rows))
    if chunk.physical == _BOOLEAN:
        return _page(rows, 0, _RLE, values=len(run).to_bytes(4, "little") + run)
    if as_indices:
        # Each index takes one bit and is 0, the first value of the dictionary.
        return _page(rows, 0, _RLE_DICTIONARY, values=b"\1" + run)
    return None


def _refers(chunk: ColumnChunk, shape: ColumnShape) -> bool:
    """Return whether a stub takes its value from the dictionary, because no other encoding is short enough."""
    return not shape.max_definition_level and chunk.physical not in (_BOOLEAN, _INT32, _INT64, _BYTE_ARRAY)


def _zeros(rows: int) -> bytes:
    """Return zeros in the encoding DELTA_BINARY_PACKED: the first value, then one block of differences of zero bits."""
    block = max(128, -(-rows // 128) * 128)
    return encode_varint(block) + encode_varint(1) + encode_varint(rows) + b"\0" + (b"\0\0" if rows > 1 else b"")


def _page(rows: int, nulls: int, encoding: int, *, levels: bytes = b"", values: bytes = b"") -> bytes:
    size = len(levels) + len(values)
    numbers = (rows, nulls, rows, encoding, len(levels), 0)
    return page_header(DATA_PAGE_V2, size, size, *numbers, is_packed=False) + levels + values
