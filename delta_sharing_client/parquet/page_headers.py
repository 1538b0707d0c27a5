"""What the headers in front of a column chunk's pages say (Apache Parquet, "Data Pages"), and a dictionary's texts.

The footer says some of it as well, but nothing holds a writer to that: the Parquet reader goes by these headers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from delta_sharing_client.parquet.thrift import read_struct

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
"""Types of pages."""

UNREADABLE = (IndexError, KeyError, ValueError, TypeError)
"""What reading a damaged header raises."""

# Field ids (Apache Parquet, parquet.thrift): PageHeader; of each type its own header, and the encoding in that.
_TYPE, _UNCOMPRESSED, _COMPRESSED = 1, 2, 3
_BODIES = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}
_NUM_VALUES, _NUM_ROWS_V2 = 1, 3
# CompressionCodec by pyarrow's names; the fifth is LZ4 in Hadoop's own frames.
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_PREFIX = 4
_LARGE_DICTIONARY = 4 * 1024 * 1024


class PageHeader(NamedTuple):
    """One page: its type, the bytes of its body compressed and not, its values (nulls counted), their encoding.

    ``rows`` is known of data pages of version 2; ``values`` and ``encoding`` of data pages and dictionaries.
    """

    kind: int
    compressed: int
    uncompressed: int
    values: int = 0
    encoding: int = -1
    rows: int | None = None


class ChunkPages(NamedTuple):
    """The pages of one chunk: how many bytes the largest unpacks to, the encodings of data pages, and the dictionary
    with the position of its body."""

    largest: int
    encodings: frozenset[int]
    dictionary: tuple[PageHeader, int] | None


def read_page_header(data: Any, at: int) -> tuple[PageHeader, int]:
    """Read the header at ``at`` of bytes or a memoryview; return it and where the page's body begins.

    Raises
    ------
    IndexError, KeyError, ValueError, TypeError
        It does not decode.
    """
    header, at = read_struct(data, at)
    kind, compressed, uncompressed = header[_TYPE], header[_COMPRESSED], header[_UNCOMPRESSED]
    if compressed < 0 or uncompressed < 0:
        raise ValueError("a page has a negative size")
    if kind not in _BODIES:
        return PageHeader(kind, compressed, uncompressed), at
    field, encoding = _BODIES[kind]
    body = header[field]
    rows = body[_NUM_ROWS_V2] if kind == DATA_PAGE_V2 else None
    return PageHeader(kind, compressed, uncompressed, body[_NUM_VALUES], body[encoding], rows), at


def walk_pages(chunk: memoryview, values: int) -> ChunkPages:
    """Return what the headers in the bytes of a chunk of that many ``values`` say.

    What does not decode ends the walk: the Parquet reader stops there, too.
    """
    largest = at = 0
    encodings: set[int] = set()
    dictionary = None
    try:
        while values > 0 and at < len(chunk):
            page, at = read_page_header(chunk, at)
            largest = max(largest, page.uncompressed)
            if page.kind == DICTIONARY_PAGE:
                dictionary = (page, at)
            elif page.kind in _BODIES:
                encodings.add(page.encoding)
                values -= page.values
            at += page.compressed
    except UNREADABLE:
        pass
    return ChunkPages(largest, frozenset(encodings), dictionary)


def longest_short_text(chunk: memoryview, dictionary: tuple[PageHeader, int], codec: int) -> int | None:
    """Return the length of the longest text in a dictionary of texts under 256 bytes, ``None`` if it is not so plain.

    Each text lies behind its length, which ends in three zero bytes and nothing else does; that the lengths found so
    lead from one to the next, and to the page's end, is checked.
    """
    page, at = dictionary
    if max(page.compressed, page.uncompressed) > _LARGE_DICTIONARY:
        return None
    body = pa.py_buffer(chunk[at : at + page.compressed])
    if codec:
        if codec not in _CODECS:
            return None
        try:
            body = pa.decompress(body, decompressed_size=page.uncompressed, codec=_CODECS[codec])
        except (pa.ArrowException, OSError, ValueError):
            return None
    data = np.frombuffer(body, np.uint8)
    if page.values <= 0 or len(data) < page.values * _PREFIX:
        return None
    zero = data == 0
    three = zero[1:-2] & zero[2:-1]
    three &= zero[3:]
    starts = np.flatnonzero(three)
    lengths = data[starts].astype(np.int64)
    # Behind a text, the four zeros of an empty one look like the end of a length that begins one byte before.
    real = np.append(starts[1:] - starts[:-1] >= _PREFIX, True)
    starts, lengths = starts[real | (lengths == 0)], lengths[real | (lengths == 0)]
    ends = np.append(starts[1:], len(data))
    if len(starts) != page.values or starts[0] or not np.array_equal(starts + _PREFIX + lengths, ends):
        return None
    return int(lengths.max())
