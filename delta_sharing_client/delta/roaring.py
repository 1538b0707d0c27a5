"""The serialized forms of a 64-bit Roaring bitmap, checked byte by byte before a library sees them.

``pyroaring`` does not promise to survive containers that contradict their headers, and a few bytes can claim billions
of values. So the layout is walked first: lengths, order, types and counts must agree. The walk costs a few
microseconds per container (65,536 row positions) and allocates no more than one container.

::

    portable   magic u32 LE 1681511377 | buckets u64 LE | (key u32 LE | bitmap)*
    native     magic u32    1681511376 | buckets u32    | (size u32   | bitmap)*        key = index of the bucket
    bitmap     cookie | types and counts | offsets | containers                            always little-endian

The native form is the one Delta wrote first and still writes inline in places. Its three integers are big-endian in the
example of the log protocol and little-endian in files; the magic number tells which.

See the Delta log protocol, "Deletion Vector Format", and the RoaringFormatSpec.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator

import numpy as np
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
_SMALLEST_BITMAP = 8
_SMALLEST_BUCKET = 4 + _SMALLEST_BITMAP
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


class Serialization(enum.Enum):
    """The two serialized forms of a deletion vector."""

    PORTABLE = PORTABLE_MAGIC
    NATIVE = NATIVE_MAGIC


def deserialize(data: memoryview, *, cardinality: int | None = None) -> pyroaring.BitMap64:
    """Return the bitmap in ``data``, in either serialization.

    Parameters
    ----------
    data:
        The serialized bitmap, all of it and nothing more.
    cardinality:
        The number of values it must hold, checked before anything is built; ``None`` takes any.

    Raises
    ------
    DataError
        The magic number is unknown, or lengths, order or counts contradict each other.
    """
    if len(data) < 4:
        raise DataError(f"A bitmap starts with a magic number of 4 bytes, found {len(data)} bytes.")
    magic = int.from_bytes(data[:4], "little")
    if magic == PORTABLE_MAGIC:
        buckets = list(_portable_buckets(data))
    elif magic == NATIVE_MAGIC:
        buckets = list(_native_buckets(data, "<"))
    elif int.from_bytes(data[:4], "big") == NATIVE_MAGIC:
        buckets = list(_native_buckets(data, ">"))
    else:
        raise DataError(f"A bitmap starts with the magic number {PORTABLE_MAGIC} or {NATIVE_MAGIC}, found {magic}.")
    found = sum(count for _, _, count in buckets)
    if cardinality is not None and found != cardinality:
        raise DataError(f"The bitmap must hold {cardinality} row positions (its cardinality), found {found}.")
    filled = [(key, bitmap) for key, bitmap, count in buckets if count]
    parts: list[bytes | memoryview] = [struct.pack("<Q", len(filled))]
    for key, bitmap in filled:
        parts += (struct.pack("<I", key), bitmap)
    return pyroaring.BitMap64.deserialize(b"".join(parts))


def serialize(bitmap: pyroaring.BitMap64, serialization: Serialization) -> bytes:
    """Return ``bitmap`` in the given form, little-endian."""
    portable = bitmap.serialize()
    if serialization is Serialization.PORTABLE:
        return struct.pack("<I", PORTABLE_MAGIC) + portable
    by_key = {key: data for key, data, _ in _portable_buckets(memoryview(struct.pack("<I", PORTABLE_MAGIC) + portable))}
    empty = memoryview(struct.pack("<II", _COOKIE_PLAIN, 0))
    parts: list[bytes | memoryview] = []
    count = max(by_key, default=-1) + 1
    if count > 1 << 16:
        raise DataError(
            f"The native form lists every bucket up to the last, {count} are too many: use the portable form."
        )
    for key in range(count):
        data = by_key.get(key, empty)
        parts += (struct.pack("<I", len(data)), data)
    return struct.pack("<II", NATIVE_MAGIC, count) + b"".join(parts)


# === Buckets: 32-bit bitmaps with the upper half of their values ===


def _portable_buckets(data: memoryview) -> Iterator[tuple[int, memoryview, int]]:
    """Yield (key, serialized 32-bit bitmap, number of values) of each bucket."""
    if len(data) < 12:
        raise DataError(f"A portable bitmap has a header of 12 bytes, found {len(data)} bytes.")
    count = int.from_bytes(data[4:12], "little")
    _check_bucket_count(count, len(data) - 12)
    at = 12
    previous = -1
    for _ in range(count):
        if len(data) - at < _SMALLEST_BUCKET:
            raise DataError(f"A bitmap of {count} buckets ends inside its bucket at byte {at}.")
        key = int.from_bytes(data[at : at + 4], "little")
        if key <= previous or key >> 31:
            raise DataError(f"The keys of a bitmap's buckets must ascend below 2^31, found {key} after {previous}.")
        previous = key
        size, values = _walk_bitmap(data[at + 4 :])
        yield key, data[at + 4 : at + 4 + size], values
        at += 4 + size
    if at != len(data):
        raise DataError(
            f"A bitmap of {len(data)} bytes must end with its last bucket, found {len(data) - at} bytes more."
        )


def _native_buckets(data: memoryview, byte_order: str) -> Iterator[tuple[int, memoryview, int]]:
    number = struct.Struct(byte_order + "I")
    if len(data) < 8:
        raise DataError(f"A native bitmap has a header of 8 bytes, found {len(data)} bytes.")
    (count,) = number.unpack_from(data, 4)
    _check_bucket_count(count, len(data) - 8)
    at = 8
    for key in range(count):
        if len(data) - at < _SMALLEST_BUCKET:
            raise DataError(f"A bitmap of {count} buckets ends inside its bucket {key}.")
        (size,) = number.unpack_from(data, at)
        if size > len(data) - at - 4:
            raise DataError(f"Bucket {key} of a bitmap claims {size} bytes, {len(data) - at - 4} are left.")
        found, values = _walk_bitmap(data[at + 4 : at + 4 + size])
        if found != size:
            raise DataError(f"Bucket {key} of a bitmap claims {size} bytes, its containers end after {found}.")
        yield key, data[at + 4 : at + 4 + size], values
        at += 4 + size
    if at != len(data):
        raise DataError(
            f"A bitmap of {len(data)} bytes must end with its last bucket, found {len(data) - at} bytes more."
        )


def _check_bucket_count(count: int, available: int) -> None:
    if count * _SMALLEST_BUCKET > available:
        raise DataError(f"A bitmap claims {count} buckets, which cannot fit in the {available} bytes that follow.")


# === One 32-bit bitmap ===


def _walk_bitmap(data: memoryview) -> tuple[int, int]:
    """Check the bitmap at the start of ``data``; return its length in bytes and its number of values."""
    _need(data, 0, 4, "its cookie")
    cookie = int.from_bytes(data[:4], "little")
    is_run = np.zeros(0, dtype=bool)
    if cookie & 0xFFFF == _COOKIE_WITH_RUNS:
        containers = (cookie >> 16) + 1
        flags = (containers + 7) // 8
        _need(data, 4, flags, "its run flags")
        packed = np.frombuffer(data, dtype=np.uint8, count=flags, offset=4)
        is_run = np.unpackbits(packed, bitorder="little").astype(bool)
        if is_run[containers:].any():
            raise DataError(f"A bitmap of {containers} containers marks a container beyond them as runs.")
        at = 4 + flags
    elif cookie == _COOKIE_PLAIN:
        _need(data, 4, 4, "its container count")
        containers = int.from_bytes(data[4:8], "little")
        if containers > 1 << 16:
            raise DataError(f"A 32-bit bitmap has at most 65536 containers, found {containers}.")
        at = 8
    else:
        raise DataError(
            f"A 32-bit bitmap starts with the cookie {_COOKIE_PLAIN} or {_COOKIE_WITH_RUNS}, found {cookie}."
        )
    if not containers:
        return at, 0
    _need(data, at, 4 * containers, "its container headers")
    headers = np.frombuffer(data, dtype="<u2", count=2 * containers, offset=at).reshape(-1, 2).astype(np.int64)
    at += 4 * containers
    if (np.diff(headers[:, 0]) <= 0).any():
        raise DataError("The keys of a bitmap's containers must ascend, found one that does not.")
    offsets: list[int] | None = None
    if not is_run.size or containers >= _OFFSETS_FROM:
        _need(data, at, 4 * containers, "its container offsets")
        offsets = np.frombuffer(data, dtype="<u4", count=containers, offset=at).tolist()
        at += 4 * containers
    counts = (headers[:, 1] + 1).tolist()
    for index, count in enumerate(counts):
        if offsets is not None and offsets[index] != at:
            raise DataError(f"Container {index} of a bitmap lies at byte {at}, its header says {offsets[index]}.")
        if is_run.size and is_run[index]:
            at = _walk_runs(data, at, count)
        elif count <= _ARRAY_LIMIT:
            at = _walk_array(data, at, count)
        else:
            at = _walk_bitset(data, at, count)
    return at, sum(counts)


def _walk_array(data: memoryview, at: int, count: int) -> int:
    _need(data, at, 2 * count, "an array container")
    values = np.frombuffer(data, dtype="<u2", count=count, offset=at)
    if not (values[:-1] < values[1:]).all():
        raise DataError("The values of an array container must ascend, found one that does not.")
    return at + 2 * count


def _walk_bitset(data: memoryview, at: int, count: int) -> int:
    _need(data, at, _BITSET_BYTES, "a bitset container")
    bits = np.frombuffer(data, dtype=np.uint8, count=_BITSET_BYTES, offset=at)
    found = int(_ONES[bits].sum(dtype=np.int64))
    if found != count:
        raise DataError(f"A bitset container must hold {count} values as its header says, found {found}.")
    return at + _BITSET_BYTES


def _walk_runs(data: memoryview, at: int, count: int) -> int:
    _need(data, at, 2, "a run container")
    runs = int.from_bytes(data[at : at + 2], "little")
    _need(data, at + 2, 4 * runs, "a run container")
    pairs = np.frombuffer(data, dtype="<u2", count=2 * runs, offset=at + 2).reshape(-1, 2).astype(np.int64)
    starts, stops = pairs[:, 0], pairs[:, 0] + pairs[:, 1] + 1
    if runs and ((stops > 1 << 16).any() or (starts[1:] < stops[:-1]).any()):
        raise DataError("The runs of a run container must ascend within 65536 values, found one that does not.")
    found = int((stops - starts).sum())
    if found != count:
        raise DataError(f"A run container must hold {count} values as its header says, found {found}.")
    return at + 2 + 4 * runs


def _need(data: memoryview, at: int, size: int, what: str) -> None:
    if len(data) - at < size:
        raise DataError(f"A bitmap ends inside {what}: {size} bytes expected, {max(len(data) - at, 0)} found.")
