"""The serialized forms of a 64-bit Roaring bitmap (Delta log protocol, "Deletion Vector Format"; RoaringFormatSpec).

::

    portable   magic u32 LE 1681511377 | buckets u64 LE | (key u32 LE | bitmap)*
    native     magic u32    1681511376 | buckets u32    | (size u32   | bitmap)*        key = index of the bucket
    bitmap     cookie | types and counts | offsets | containers                            always little-endian

The native form is the one Delta wrote first and still writes inline in places. Its three integers are big-endian in the
example of the log protocol and little-endian in files; the magic number tells which.

``pyroaring`` checks what lies inside a bitmap: bounds, order and counts of every container. Its versions before 1.2 do
not, and damaged bytes end the process. Checked here is what it leaves open: where the bytes end, the order of the keys,
and that row positions are 63 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import pyroaring

from delta_sharing_client.errors import DataError

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376
MAX_POSITION = (1 << 63) - 1

_COOKIE_PLAIN = 12346
_COOKIE_WITH_RUNS = 12347
_OFFSETS_FROM = 4  # with runs, a bitmap of fewer containers has no offset header
_ARRAY_LIMIT = 4096  # a container of more values is a bitset
_BITSET_BYTES = 8192


def deserialize(data: memoryview, *, cardinality: int | None = None) -> pyroaring.BitMap64:
    """Return the bitmap in ``data``, in either serialization.

    Parameters
    ----------
    data:
        The serialized bitmap, all of it and nothing more.
    cardinality:
        The number of values it must hold; ``None`` takes any.

    Raises
    ------
    DataError
        The magic number is unknown, or lengths, order or counts contradict each other.
    """
    magic = bytes(data[:4])
    if magic == struct.pack("<I", PORTABLE_MAGIC):
        buckets = list(_portable_buckets(data))
    elif magic in (struct.pack("<I", NATIVE_MAGIC), struct.pack(">I", NATIVE_MAGIC)):
        buckets = list(_native_buckets(data, "<" if magic == struct.pack("<I", NATIVE_MAGIC) else ">"))
    else:
        raise DataError(f"A bitmap starts with the magic number {PORTABLE_MAGIC} or {NATIVE_MAGIC}, found {magic!r}.")
    parts: list[bytes | memoryview] = [struct.pack("<Q", len(buckets))]
    for key, bitmap in buckets:
        parts += (struct.pack("<I", key), bitmap)
    try:
        found = pyroaring.BitMap64.deserialize(b"".join(parts))
    except (ValueError, IndexError) as error:
        raise DataError(f"A bitmap's containers must be what their headers say: {error}.") from None
    if cardinality is not None and len(found) != cardinality:
        raise DataError(f"The bitmap must hold {cardinality} row positions (its cardinality), found {len(found)}.")
    return found


def serialize(bitmap: pyroaring.BitMap64) -> bytes:
    """Return ``bitmap`` in the portable form."""
    return struct.pack("<I", PORTABLE_MAGIC) + bytes(bitmap.serialize())


# === Buckets: 32-bit bitmaps with the upper half of their values ===


def _portable_buckets(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield key and serialized 32-bit bitmap of each bucket."""
    count = _number(data, 4, 8, "its count of buckets")
    at = 12
    previous = -1
    for _ in range(count):
        key = _number(data, at, 4, "a bucket's key")
        if key <= previous or key >> 31:
            raise DataError(f"The keys of a bitmap's buckets must ascend below 2^31, found {key} after {previous}.")
        previous = key
        stop = at + 4 + _bitmap_size(data[at + 4 :])
        yield key, data[at + 4 : stop]
        at = stop
    _check_end(data, at)


def _native_buckets(data: memoryview, byte_order: str) -> Iterator[tuple[int, memoryview]]:
    order: Literal["little", "big"] = "little" if byte_order == "<" else "big"
    count = _number(data, 4, 4, "its count of buckets", order)
    at = 8
    for key in range(count):
        size = _number(data, at, 4, "a bucket's size", order)
        bitmap = data[at + 4 : at + 4 + size]
        found = _bitmap_size(bitmap)
        if found != size:
            raise DataError(f"Bucket {key} of a bitmap claims {size} bytes, its containers end after {found}.")
        yield key, bitmap
        at += 4 + size
    _check_end(data, at)


def _check_end(data: memoryview, at: int) -> None:
    if at != len(data):
        raise DataError(f"A bitmap of {len(data)} bytes must end with its last bucket, which ends at byte {at}.")


def _bitmap_size(data: memoryview) -> int:
    """Return the length of the 32-bit bitmap at the start of ``data``, as its headers have it."""
    cookie = _number(data, 0, 4, "its cookie")
    flags = b""
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        containers = (cookie >> 16) + 1
        flags = bytes(data[4 : 4 + (containers + 7) // 8])
        at = 4 + (containers + 7) // 8
    elif cookie == _COOKIE_PLAIN:
        containers = _number(data, 4, 4, "its container count")
        at = 8
    else:
        raise DataError(
            f"A 32-bit bitmap starts with the cookie {_COOKIE_PLAIN} or {_COOKIE_WITH_RUNS}, found {cookie}."
        )
    _need(data, at, 4 * containers, "its container headers")
    counts = struct.unpack_from(f"<{2 * containers}H", data, at)[1::2]
    at += 4 * containers
    if not flags or containers >= _OFFSETS_FROM:
        at += 4 * containers
    for index, count in enumerate(counts):
        if flags and flags[index // 8] >> index % 8 & 1:
            at += 2 + 4 * _number(data, at, 2, "a run container")
        else:
            at += 2 * (count + 1) if count < _ARRAY_LIMIT else _BITSET_BYTES
    _need(data, 0, at, "its containers")
    return at


def _number(data: memoryview, at: int, size: int, what: str, order: Literal["little", "big"] = "little") -> int:
    _need(data, at, size, what)
    return int.from_bytes(data[at : at + size], order)


def _need(data: memoryview, at: int, size: int, what: str) -> None:
    if len(data) - at < size:
        raise DataError(f"A bitmap ends inside {what}: {size} bytes expected, {max(len(data) - at, 0)} found.")
