"""Dictionaries of column chunks: the longest text (Apache Parquet, "Dictionary Encoding")."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from delta_sharing_client.parquet.page_index import UNREADABLE, PageHeader, unpack

# Bytes of the length before each text.
_LENGTH = 4
# Unpacked bytes.
_LARGEST = 4 * 1024 * 1024
# Walking over this many texts takes less than a tenth of a second.
_MOST_WALKED = 1 << 18
_DAMAGED = (*UNREADABLE, pa.ArrowException, OSError)


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
    """Return the length of ``count`` texts if all have the same length."""
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
    # After a text, the four zero bytes of an empty text look like the end of a length that starts one byte earlier.
    real = np.append(starts[1:] - starts[:-1] >= _LENGTH, True)
    starts, lengths = starts[real | (lengths == 0)], lengths[real | (lengths == 0)]
    ends = np.append(starts[1:], len(data))
    if len(starts) != count or starts[0] or not np.array_equal(starts + _LENGTH + lengths, ends):
        return None
    return int(lengths.max())


def _longest_on_a_walk(body: bytes, count: int) -> int | None:
    """Return the length of the longest of ``count`` texts; ``None`` if there are too many, or another number."""
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
