"""Finds the longest string in the dictionary of a column chunk (Apache Parquet, "Dictionary Encoding")."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from delta_sharing_client.errors import check_memory
from delta_sharing_client.parquet.page_index import UNREADABLE, PageHeader, unpack

# The number of bytes of the length before each string.
_LENGTH = 4
# The size in bytes of the largest unpacked dictionary that is searched for lengths.
_LARGEST = 4 * 1024 * 1024
# Visiting this many strings one by one takes less than a tenth of a second.
_MOST_WALKED = 1 << 18
_DAMAGED = (*UNREADABLE, pa.ArrowException, OSError)


def longest_text(chunk: memoryview, dictionary: tuple[PageHeader, int], codec: int) -> int | None:
    """Return the length of the longest string in a dictionary; ``None`` if it is damaged or has too many strings."""
    page, at = dictionary
    if page.values <= 0:
        return None
    try:
        body = unpack(pa.py_buffer(chunk[at : at + page.compressed]), codec, page.uncompressed)
    except _DAMAGED as error:
        check_memory(error)
        return None
    # Most dictionaries do not need the last method, which is slow.
    for measure in (_equal_length, _longest_under_256, _longest_on_a_walk):
        longest = measure(body, page.values)
        if longest is not None:
            return longest
    return None


def _equal_length(body: bytes, count: int) -> int | None:
    """Return the length of ``count`` strings if all have the same length, otherwise ``None``."""
    first = int.from_bytes(body[:_LENGTH], "little")
    if len(body) != count * (_LENGTH + first):
        return None
    lengths = np.ndarray(count, "<u4", body, strides=(_LENGTH + first,))
    return first if (lengths == first).all() else None


def _longest_under_256(body: bytes, count: int) -> int | None:
    """Return the length of the longest of ``count`` strings under 256 bytes; ``None`` if this method cannot tell.

    The length of each string is stored before it, in four bytes; for short strings, the last three are zero. Places
    with three zero bytes are accepted as lengths if each leads to the next, and the last one to the end of the page.
    """
    if len(body) > _LARGEST:
        return None
    data = np.frombuffer(body, np.uint8)
    zero = data == 0
    three = zero[1:-2] & zero[2:-1]
    three &= zero[3:]
    starts = np.flatnonzero(three)
    lengths = data[starts].astype(np.int64)
    # The four zero bytes of an empty string also look like the end of a length that starts one byte earlier.
    real = np.append(starts[1:] - starts[:-1] >= _LENGTH, True)
    starts, lengths = starts[real | (lengths == 0)], lengths[real | (lengths == 0)]
    ends = np.append(starts[1:], len(data))
    if len(starts) != count or starts[0] or not np.array_equal(starts + _LENGTH + lengths, ends):
        return None
    return int(lengths.max())


def _longest_on_a_walk(body: bytes, count: int) -> int | None:
    """Return the length of the longest of ``count`` strings; ``None`` if they are too many, or a different number."""
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
