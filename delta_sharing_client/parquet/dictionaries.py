"""Dictionaries of column chunks: the first values, for pages that refer to no others, and the longest text (Apache
Parquet, "Dictionary Encoding").

A writer adds a value to the dictionary where it first occurs, so the first pages of a chunk refer to the first values.
This is an assumption, and checked: a page that refers to a value beyond the downloaded ones raises ``ShortDictionary``.
So does a dictionary with a checksum, because a part of it cannot be checked.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pyarrow as pa

from delta_sharing_client.parquet.chunks import Chunk
from delta_sharing_client.parquet.pages import (
    CODECS,
    DATA_PAGE,
    DATA_PAGE_V2,
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    UNREADABLE,
    PageHeader,
    PageMismatch,
    Pages,
    page_header,
    read_page_header,
    unpack,
)
from delta_sharing_client.parquet.thrift import encode_varint, read_struct, varint

# Longer beginnings take more time to unpack than to download.
_MOST = 256 * 1024
# The minimum saving.
_LEAST = 64 * 1024
_SLACK = 1.1
# Bytes more, because what is packed in blocks cannot be unpacked before the end of one; for Snappy, and others.
_BLOCK = {1: 1024, 2: 16 * 1024, 6: 64 * 1024}
# Bytes of a value by physical type; texts and bytes (6) are preceded by their length.
_WIDTHS = {1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
_BYTE_ARRAY, _FIXED_LENGTH = 6, 7
_LENGTH = 4
# Field ids (Apache Parquet, parquet.thrift): PageHeader; DataPageHeader; DataPageHeaderV2.
_CRC = 4
_V1, _LEVELS_V1, _RLE = 5, 3, 3
_V2, _DEFINITION_BYTES, _REPETITION_BYTES, _IS_COMPRESSED = 8, 5, 6, 7
# Unpacked bytes: of a step, and at most.
_STEP = 4096
_LARGEST = 4 * 1024 * 1024
# A walk from one text to the next takes less than a tenth of a second for so many.
_MOST_WALKED = 1 << 18
_DAMAGED = (*UNREADABLE, pa.ArrowException, OSError)


class ShortDictionary(Exception):
    """The downloaded beginning of a dictionary cannot replace all of it."""


def beginning(chunk: Chunk, pages: Pages, kept: tuple[int, ...]) -> int | None:
    """Return how many bytes of a chunk's dictionary probably have the values of the pages ``kept``; ``None`` if a part
    of the dictionary does not save enough."""
    whole = pages.starts[0] - chunk.start
    encoded = chunk.dictionary_pages()
    end = pages.number if encoded is None else min(encoded, pages.number)
    if not kept or not end or (chunk.codec and chunk.codec not in _BLOCK):
        return None
    share = pages.rows[min(kept[-1] + 1, end)] / pages.rows[end]
    length = int(whole * share * _SLACK) + _BLOCK.get(chunk.codec, 1024)
    return length if length <= _MOST and whole - length >= _LEAST else None


def first_values(data: pa.Buffer, whole: int, chunk: Chunk, type_length: int) -> tuple[bytes, int]:
    """Return a dictionary page with the values in ``data``, and their number.

    ``data`` is the beginning of a dictionary page of ``whole`` bytes, ``type_length`` the width of fixed-length bytes.
    Raises ``PageMismatch`` if the page is not a dictionary of that length, ``ShortDictionary`` if it has a checksum or
    cannot be unpacked in part.
    """
    view: Any = memoryview(data).cast("B")
    try:
        header, at = read_page_header(view, 0)
        has_checksum = _CRC in read_struct(view, 0)[0]
    except UNREADABLE as error:
        raise PageMismatch(f"a page header does not decode: {error}") from None
    if header.kind != DICTIONARY_PAGE or at + header.compressed != whole:
        raise PageMismatch("a dictionary is not what the page index says")
    if has_checksum:
        raise ShortDictionary
    try:
        found = _unpacked(bytes(view[at:]), chunk.codec)
        ends = _ends(found, chunk.physical, type_length)[: header.values]
    except _DAMAGED:
        raise ShortDictionary from None
    if not ends:
        raise ShortDictionary
    values = found[: ends[-1]]
    body = pa.compress(values, CODECS[chunk.codec]) if chunk.codec else values
    return page_header(DICTIONARY_PAGE, len(values), len(body), len(ends), header.encoding) + body, len(ends)


def largest_index(page: pa.Buffer, codec: int, max_definition_level: int) -> int:
    """Return the largest index into the dictionary in a data page without repeated values, -1 if it has none;
    ``ShortDictionary`` if that is not clear."""
    view: Any = memoryview(page).cast("B")
    try:
        header, at = read_page_header(view, 0)
        if header.encoding not in DICTIONARY_ENCODINGS:
            return -1
        raw, _ = read_struct(view, 0)
        body = page.slice(at, header.compressed)
        if header.kind == DATA_PAGE_V2:
            levels = raw[_V2][_REPETITION_BYTES] + raw[_V2][_DEFINITION_BYTES]
            packed = codec if raw[_V2].get(_IS_COMPRESSED, True) else 0
            indices = _page_body(body.slice(levels), packed, header.uncompressed - levels)
        elif header.kind == DATA_PAGE:
            indices = _page_body(body, codec, header.uncompressed)
            if max_definition_level:
                if raw[_V1][_LEVELS_V1] != _RLE:
                    raise ShortDictionary
                indices = indices[_LENGTH + int.from_bytes(indices[:_LENGTH], "little") :]
        else:
            raise ShortDictionary
        return _largest(indices)
    except _DAMAGED:
        raise ShortDictionary from None


def _page_body(body: pa.Buffer, codec: int, size: int) -> bytes:
    if not 0 <= size <= _LARGEST:
        raise ShortDictionary
    return unpack(body, codec, size)


def _largest(data: bytes) -> int:
    """Return the largest number in the hybrid of runs and bit-packed groups that follows its bit width."""
    if not data:
        return -1
    width, at, found = data[0], 1, -1
    if width > 32:
        raise ValueError("an index has more than 32 bits")
    stored = -(-width // 8)
    while at < len(data):
        run, at = varint(data, at)
        length = (run >> 1) * width if run & 1 else stored
        part = data[at : at + length]
        at += length
        if not (run & 1 and width):
            found = max(found, int.from_bytes(part, "little"))
            continue
        bits = np.unpackbits(np.frombuffer(part, np.uint8), bitorder="little")
        numbers = bits[: len(bits) // width * width].reshape(-1, width)
        # The highest number is found from its highest bit down.
        largest = 0
        for bit in range(width - 1, -1, -1):
            high = numbers[:, bit].astype(bool)
            if high.any():
                largest |= 1 << bit
                numbers = numbers[high]
        found = max(found, largest)
    return found


def _ends(values: bytes, physical: int, type_length: int) -> list[int]:
    """Return the end of each complete value in ``values`` (encoding PLAIN)."""
    if physical != _BYTE_ARRAY:
        width = type_length if physical == _FIXED_LENGTH else _WIDTHS[physical]
        return list(range(width, len(values) + 1, width))
    ends, at = [], 0
    # A length that is cut leads beyond the end as well.
    while (at := at + _LENGTH + int.from_bytes(values[at : at + _LENGTH], "little")) <= len(values):
        ends.append(at)
    return ends


def longest_text(chunk: memoryview, dictionary: tuple[PageHeader, int], codec: int) -> int | None:
    """Return the length of the longest text in a dictionary; ``None`` if it is damaged or has very many texts."""
    page, at = dictionary
    if page.values <= 0:
        return None
    try:
        body = unpack(pa.py_buffer(chunk[at : at + page.compressed]), codec, page.uncompressed)
    except _DAMAGED:
        return None
    # Most dictionaries need no walk.
    for measure in (_equal_length, _longest_under_256, _longest_on_a_walk):
        longest = measure(body, page.values)
        if longest is not None:
            return longest
    return None


def _equal_length(body: bytes, count: int) -> int | None:
    """Return the length of ``count`` texts if all have one length."""
    first = int.from_bytes(body[:_LENGTH], "little")
    if len(body) != count * (_LENGTH + first):
        return None
    lengths = np.ndarray(count, "<u4", body, strides=(_LENGTH + first,))
    return first if (lengths == first).all() else None


def _longest_under_256(body: bytes, count: int) -> int | None:
    """Return the length of the longest of ``count`` texts under 256 bytes; ``None`` if that is not clear.

    Each text is preceded by its length. The lengths of short texts end in three zero bytes, and only they do; the
    lengths found must lead from one to the next and to the page's end.
    """
    if len(body) > _LARGEST:
        return None
    data = np.frombuffer(body, np.uint8)
    zero = data == 0
    three = zero[1:-2] & zero[2:-1]
    three &= zero[3:]
    starts = np.flatnonzero(three)
    lengths = data[starts].astype(np.int64)
    # After a text, the four zeros of an empty one look like the end of a length that starts one byte earlier.
    real = np.append(starts[1:] - starts[:-1] >= _LENGTH, True)
    starts, lengths = starts[real | (lengths == 0)], lengths[real | (lengths == 0)]
    ends = np.append(starts[1:], len(data))
    if len(starts) != count or starts[0] or not np.array_equal(starts + _LENGTH + lengths, ends):
        return None
    return int(lengths.max())


def _longest_on_a_walk(body: bytes, count: int) -> int | None:
    """Return the length of the longest of ``count`` texts; ``None`` if there are too many, or not so many."""
    if count > _MOST_WALKED:
        return None
    at = longest = 0
    for _ in range(count):
        length = int.from_bytes(body[at : at + _LENGTH], "little")
        longest = max(longest, length)
        at += _LENGTH + length
        if at > len(body):
            return None
    return longest if at == len(body) else None


# === The beginning of compressed bytes ===


def _unpacked(data: bytes, codec: int) -> bytes:
    if not codec:
        return data
    name = CODECS[codec]
    if name == "snappy":
        stream, size = _complete_snappy(data)
        found: bytes = pa.decompress(stream, size, name, asbytes=True) if size else b""
        return found
    parts: list[bytes] = []
    # The stream is cut. What comes before its error is complete.
    with (
        pa.CompressedInputStream(pa.BufferReader(data), name) as unpacked,
        contextlib.suppress(pa.ArrowException, OSError),
    ):
        while len(parts) * _STEP < _LARGEST and (part := unpacked.read(_STEP)):
            parts.append(part)
    return b"".join(parts)


def _literal(tag: int) -> tuple[int, int]:
    return ((tag >> 2) + 2, (tag >> 2) + 1) if tag >> 2 < 60 else (0, 0)


# Of every tag of a Snappy element: the bytes of the element, and those it stands for; 0 if its length follows the tag.
_ELEMENTS = tuple(
    (_literal(tag), (2, 4 + (tag >> 2 & 7)), (3, (tag >> 2) + 1), (5, (tag >> 2) + 1))[tag & 3] for tag in range(256)
)


def _complete_snappy(data: bytes) -> tuple[bytes, int]:
    """Return the elements of a cut Snappy stream as a complete stream, and its unpacked size (Snappy, "format
    description"): no element refers to later ones."""
    _, begin = varint(data, 0)
    at, size, end = begin, 0, len(data)
    tail = b""
    while at < end:
        tag = data[at]
        step, stands_for = _ELEMENTS[tag]
        head = 1
        if not step:
            head += (tag >> 2) - 59
            stands_for = int.from_bytes(data[at + 1 : at + head], "little") + 1
            step = head + stands_for
        if at + step > end:
            if not tag & 3 and at + head < end:
                # A literal in part: with the length of what is here.
                tail = b"\xfc" + (end - at - head - 1).to_bytes(4, "little") + data[at + head :]
                size += end - at - head
            break
        size += stands_for
        at += step
    return encode_varint(size) + data[begin:at] + tail, size
