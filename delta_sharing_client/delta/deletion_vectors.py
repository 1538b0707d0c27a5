"""Deletion vectors: which rows of a data file are deleted (Delta log protocol, "Deletion Vectors").

::

    inline (i)     Z85 text of the serialized bitmap, whose bytes are padded with zeros, or its text with "#"
    file (u, p)    version byte 1 | (size u32 BE | serialized bitmap | CRC-32 u32 BE)*

A vector without ``offset`` begins at byte 0 of its file, which then has no version byte.

A serialized bitmap is a 64-bit Roaring bitmap ("Deletion Vector Format"; RoaringFormatSpec) in one of two forms::

    portable   magic u32 LE 1681511377 | buckets u64 LE | (key u32 LE | bitmap)*
    native     magic u32    1681511376 | buckets u32    | (size u32   | bitmap)*        key = index of the bucket
    bitmap     cookie | types and counts | offsets | containers                            always little-endian

Delta wrote the native form first, and in some places still writes it inline. Its three integers are big-endian in the
example of the log protocol and little-endian in files; the magic number shows the byte order.

The input is not trusted: size, checksum, layout and cardinality must match each other and the descriptor, and the
memory used is proportional to the bytes received. ``pyroaring`` 1.2 checks the bounds, order and counts of every
container in a bitmap. This module checks the rest: that the bitmap ends with the bytes, that the keys ascend, and that
positions fit in 63 bits.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Union

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyroaring

from delta_sharing_client.delta.actions import DeletionVectorDescriptor, StorageType
from delta_sharing_client.errors import DataError, UsageError

BytesLike = Union[bytes, bytearray, memoryview]
MAX_POSITION = (1 << 63) - 1
FILE_VERSION = 1
_SIZE_BYTES = 4
_CHECKSUM_BYTES = 4
_SMALLEST = _SIZE_BYTES + _CHECKSUM_BYTES
_LARGEST_SIZE = (1 << 31) - 1  # sizeInBytes and offset are Java ints
_UUID_CHARACTERS = 20
_UUID_BYTES = 16


class DeletionVector:
    """An immutable set of 64-bit row positions, counted from 0 in file order."""

    __slots__ = ("_bitmap",)

    def __init__(self, bitmap: pyroaring.BitMap64) -> None:
        self._bitmap = bitmap

    @classmethod
    def from_positions(cls, positions: Iterable[int]) -> DeletionVector:
        """Return the vector of ``positions``, in any order, with or without duplicates.

        Raises ``UsageError`` if a position is negative or not below 2^63.
        """
        values = [int(position) for position in positions]
        if values and not 0 <= min(values) <= max(values) <= MAX_POSITION:
            wrong = min(values) if min(values) < 0 else max(values)
            raise UsageError(f"Row positions must lie between 0 and 2^63 - 1, found {wrong}.")
        return cls(pyroaring.BitMap64(values))

    @property
    def cardinality(self) -> int:
        """The number of deleted rows."""
        return len(self._bitmap)

    @property
    def last_position(self) -> int:
        """The greatest deleted position, or -1 if no row is deleted."""
        return int(self._bitmap.max()) if self._bitmap else -1

    def positions(self) -> npt.NDArray[np.uint64]:
        """Return the deleted positions in ascending order, as an array of unsigned 64-bit integers."""
        return _to_array(self._bitmap)

    def keep_mask(self, start: int, length: int) -> pa.BooleanArray | None:
        """Return a mask that is true for the rows of ``[start, start + length)`` that are kept; ``None`` if all are."""
        stop = start + length
        if not self._bitmap.range_cardinality(start, stop):
            return None
        mask = np.ones(length, dtype=bool)
        inside = self._bitmap & pyroaring.BitMap64(range(start, stop))
        mask[_to_array(inside) - np.uint64(start)] = False
        packed = pa.py_buffer(np.packbits(mask, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), length, [None, packed])

    def count_in(self, start: int, length: int) -> int:
        """Return the number of deleted rows in ``[start, start + length)``."""
        return int(self._bitmap.range_cardinality(start, start + length))

    def __sub__(self, other: DeletionVector) -> DeletionVector:
        """Return the positions that are deleted here but not in ``other``."""
        return DeletionVector(self._bitmap - other._bitmap)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeletionVector) and bool(self._bitmap == other._bitmap)

    def __hash__(self) -> int:
        return hash((DeletionVector, len(self._bitmap), self.last_position))

    def __repr__(self) -> str:
        return f"DeletionVector(cardinality={self.cardinality})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_decode, (_serialize(self._bitmap),))


# === Reading ===


def decode_inline(descriptor: DeletionVectorDescriptor) -> DeletionVector:
    """Return the deletion vector of an inline descriptor (storage type ``i``).

    Raises ``DataError`` if the text is not Z85, or if size, layout or cardinality contradict the descriptor.
    """
    _check_numbers(descriptor)
    if descriptor.storage_type != "i":
        raise DataError(f"An inline deletion vector must have the storage type 'i', found {descriptor.storage_type!r}.")
    data = z85_decode(descriptor.path_or_inline_dv)
    size = descriptor.size_in_bytes
    # Delta pads the bytes with zeros; delta-kernel-rs pads the text, so the bytes have the exact length.
    expected = size if len(data) % 4 else size + -size % 4
    if len(data) != expected:
        raise DataError(
            f"An inline deletion vector must decode to {size} bytes (its sizeInBytes), padded to at most the next "
            f"multiple of 4; found {len(data)} bytes."
        )
    return _decode(memoryview(data)[:size], descriptor.cardinality)


def decode_file(blob: BytesLike, descriptor: DeletionVectorDescriptor, *, base: int = 0) -> DeletionVector:
    """Return the deletion vector that ``descriptor`` (storage type ``u`` or ``p``) points to.

    ``blob`` holds the bytes of the file from position ``base`` on, and must include the range that :func:`byte_range`
    returns. If ``base`` is 0, the format version of the file is checked, unless a vector starts at byte 0. Raises
    ``DataError`` if bytes are missing, or if version, size, checksum, layout or cardinality are wrong.
    """
    start, stop = byte_range(descriptor)
    view = memoryview(blob).cast("B")
    if base < 0 or start < base or stop > base + len(view):
        raise DataError(
            f"A deletion vector must be in bytes {start} to {stop} of its file,"
            f" but only bytes {base} to {base + len(view)} were read: the file or the response is truncated."
        )
    # A file without a version byte begins with the size of another vector, whose first byte is 0.
    if base == 0 < start and view[0] != FILE_VERSION and (view[0] != 0 or start < _SMALLEST):
        raise DataError(f"A deletion vector file must have the format version {FILE_VERSION}, found {view[0]}.")
    record = view[start - base : stop - base]
    (size,) = struct.unpack_from(">I", record, 0)
    if size != descriptor.size_in_bytes:
        raise DataError(
            f"A deletion vector's size prefix must equal its sizeInBytes {descriptor.size_in_bytes}, found {size}."
        )
    data = record[_SIZE_BYTES : _SIZE_BYTES + size]
    (expected,) = struct.unpack_from(">I", record, _SIZE_BYTES + size)
    computed = zlib.crc32(data)
    if computed != expected:
        raise DataError(f"A deletion vector's CRC-32 must be the stored {expected:#010x}, found {computed:#010x}.")
    return _decode(data, descriptor.cardinality)


def byte_range(descriptor: DeletionVectorDescriptor) -> tuple[int, int]:
    """Return ``(start, stop)``, the range of the file's bytes that holds size prefix, bitmap and checksum.

    Raises ``DataError`` if the vector is inline, or if its offset or size is out of range.
    """
    _check_numbers(descriptor)
    if descriptor.storage_type == "i":
        raise DataError("An inline deletion vector is not in a file: decode it with decode_inline.")
    start = descriptor.offset or 0
    return start, start + _SIZE_BYTES + descriptor.size_in_bytes + _CHECKSUM_BYTES


def relative_path(descriptor: DeletionVectorDescriptor) -> str:
    """Return the path of the file of a vector with storage type ``u``, relative to the table's root:
    ``[prefix/]deletion_vector_<uuid>.bin``.

    Raises ``DataError`` for other storage types, if ``path_or_inline_dv`` does not end with a Z85 UUID, and if its
    prefix is not a plain directory name.
    """
    text = descriptor.path_or_inline_dv
    if descriptor.storage_type != "u":
        raise DataError(
            f"A deletion vector file named by a UUID must have the storage type 'u', found {descriptor.storage_type!r}."
        )
    if len(text) < _UUID_CHARACTERS:
        raise DataError(
            f"A deletion vector file must be named by {_UUID_CHARACTERS} Z85 characters, found only {len(text)}."
        )
    prefix, encoded = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    # The prefix becomes a directory name, and must not lead out of the table.
    if prefix in (".", "..") or any(character in "/\\\0" for character in prefix):
        raise DataError(f"The prefix of a deletion vector file must be one directory name, found {prefix!r}.")
    data = z85_decode(encoded)
    if len(data) != _UUID_BYTES:
        raise DataError(f"A deletion vector file must be named by a UUID of {_UUID_BYTES} bytes, found {len(data)}.")
    name = f"deletion_vector_{uuid.UUID(bytes=data)}.bin"
    return f"{prefix}/{name}" if prefix else name


# === Writing ===


def encode_file(
    vectors: Sequence[DeletionVector],
    name: uuid.UUID | str,
    *,
    prefix: str = "",
) -> tuple[bytes, list[DeletionVectorDescriptor]]:
    """Return the bytes of a file with ``vectors`` one after the other, and a descriptor of each.

    ``name`` is a UUID for storage type ``u`` (:func:`relative_path` returns the path), or an absolute path or URL for
    ``p``. ``prefix`` is a directory below the table's root, and is used only with a UUID.
    """
    storage: StorageType = "u" if isinstance(name, uuid.UUID) else "p"
    text = prefix + z85_encode(name.bytes) if isinstance(name, uuid.UUID) else name
    blob = bytearray([FILE_VERSION])
    descriptors = []
    for vector in vectors:
        data = _serialize(vector._bitmap)
        descriptors.append(DeletionVectorDescriptor(storage, text, len(data), vector.cardinality, offset=len(blob)))
        blob += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    return bytes(blob), descriptors


def encode_inline(vector: DeletionVector) -> DeletionVectorDescriptor:
    """Return an inline descriptor of ``vector``, as Delta writes it: zeros pad the bytes to a multiple of 4."""
    data = _serialize(vector._bitmap)
    text = z85_encode(data + bytes(-len(data) % 4))
    return DeletionVectorDescriptor("i", text, len(data), vector.cardinality)


def _check_numbers(descriptor: DeletionVectorDescriptor) -> None:
    for name, number in (("sizeInBytes", descriptor.size_in_bytes), ("offset", descriptor.offset or 0)):
        if not 0 <= number <= _LARGEST_SIZE:
            raise DataError(f"A deletion vector's {name} must lie between 0 and {_LARGEST_SIZE}, found {number}.")
    if descriptor.cardinality < 0:
        raise DataError(f"A deletion vector's cardinality must not be negative, found {descriptor.cardinality}.")


def _to_array(bitmap: pyroaring.BitMap64) -> npt.NDArray[np.uint64]:
    return np.asarray(bitmap.to_array(), dtype=np.uint64)


# === Z85 ===

_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_CHARACTERS = np.frombuffer(_ALPHABET, dtype=np.uint8)
_NO_DIGIT = 255
_DIGITS = np.full(256, _NO_DIGIT, dtype=np.uint8)
_DIGITS[_CHARACTERS] = np.arange(85, dtype=np.uint8)
_PADDING = "#"
_POWERS = np.array([85**4, 85**3, 85**2, 85, 1], dtype=np.uint64)


def z85_decode(text: str) -> bytes:
    """Return the bytes of ``text``: 4 for every 5 characters.

    The last five characters may start with up to three ``#``, one for each missing byte. The Rust library "z85", which
    delta-kernel-rs uses, pads text in this way. It is unambiguous: in ZeroMQ's RFC 32 no group starts with ``#``,
    because its value would exceed 32 bits. Raises ``DataError`` if the length is not a multiple of 5, if a character is
    not in the alphabet, or if the value of a group does not fit in its bytes.
    """
    if len(text) % 5:
        raise DataError(f"Z85 text must have a length that is a multiple of 5, found {len(text)} characters.")
    # Characters above Latin-1 would become "?", which is a legal digit, so non-ASCII text is refused first.
    if not text.isascii():
        raise DataError("Z85 text must consist of the 85 ASCII characters of Z85, found a character that is not ASCII.")
    tail = text[-5:]
    missing = len(tail) - len(tail.lstrip(_PADDING))
    if missing > 3:
        raise DataError(f"The last five Z85 characters may begin with at most 3 '#' as padding, found {missing}.")
    # The padding has the value 0; its bytes are cut off below.
    text = text[: len(text) - len(tail)] + "0" * missing + tail[missing:]
    digits = _DIGITS[np.frombuffer(text.encode("ascii"), dtype=np.uint8)]
    wrong = np.flatnonzero(digits == _NO_DIGIT)
    if wrong.size:
        at = int(wrong[0])
        raise DataError(f"Z85 text must consist of the 85 characters of Z85, found {text[at]!r} at position {at}.")
    words = digits.reshape(len(digits) // 5, 5).astype(np.uint64) @ _POWERS
    too_large = np.flatnonzero(words > 0xFFFFFFFF)
    if too_large.size:
        at = int(too_large[0]) * 5
        raise DataError(
            f"Each group of five Z85 characters must fit in 32 bits, but the one at position {at} does not."
        )
    data = words.astype(">u4").tobytes()
    if any(data[len(data) - 4 : len(data) - 4 + missing]):
        raise DataError(
            f"The last {5 - missing} Z85 characters must fit in {4 - missing} byte(s), but their value is too large."
        )
    return data[:-4] + data[len(data) - 4 + missing :] if missing else data


def z85_encode(data: bytes) -> str:
    """Return the Z85 text of ``data``: 5 characters for every 4 bytes.

    Raises ``UsageError`` if the length is not a multiple of 4. (Delta pads with zero bytes and stores the true length.)
    """
    if len(data) % 4:
        raise UsageError(
            f"The length of data for Z85 must be a multiple of 4 bytes, found {len(data)}: pad it with zero bytes."
        )
    words = np.frombuffer(data, dtype=">u4").astype(np.uint64)
    digits = (words[:, None] // _POWERS) % np.uint64(85)
    text: bytes = _CHARACTERS[digits.astype(np.uint8)].tobytes()
    return text.decode("ascii")


# === Roaring bitmaps ===

PORTABLE_MAGIC = 1681511377
NATIVE_MAGIC = 1681511376

_COOKIE_PLAIN = 12346
_COOKIE_WITH_RUNS = 12347
_OFFSETS_FROM = 4  # with runs, a bitmap with fewer containers has no offset header
_ARRAY_LIMIT = 4096  # a container with more values is stored as a bitset
_BITSET_BYTES = 8192


def _decode(data: BytesLike, cardinality: int | None = None) -> DeletionVector:
    """Decode a serialized bitmap in either form; it must take up all of ``data``."""
    data = memoryview(data)
    magic = bytes(data[:4])
    if magic == struct.pack("<I", PORTABLE_MAGIC):
        buckets = list(_portable_buckets(data))
    elif magic == struct.pack("<I", NATIVE_MAGIC):
        buckets = list(_native_buckets(data, "little"))
    elif magic == struct.pack(">I", NATIVE_MAGIC):
        buckets = list(_native_buckets(data, "big"))
    else:
        raise DataError(
            f"A bitmap must start with the magic number {PORTABLE_MAGIC} or {NATIVE_MAGIC}, found {magic!r}."
        )
    parts: list[bytes | memoryview] = [struct.pack("<Q", len(buckets))]
    for key, bitmap in buckets:
        parts += (struct.pack("<I", key), bitmap)
    try:
        decoded = pyroaring.BitMap64.deserialize(b"".join(parts))
    except (ValueError, IndexError) as error:
        raise DataError(f"A bitmap's containers must match their headers: {error}.") from None
    if cardinality is not None and len(decoded) != cardinality:
        raise DataError(
            f"A deletion vector must hold {cardinality} row positions (its cardinality), found {len(decoded)}."
        )
    return DeletionVector(decoded)


def _serialize(bitmap: pyroaring.BitMap64) -> bytes:
    return struct.pack("<I", PORTABLE_MAGIC) + bytes(bitmap.serialize())


def _portable_buckets(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the key of each bucket (the upper half of its values), and the serialized bitmap of the lower halves."""
    count = _number(data, 4, 8, "its bucket count")
    at = 12
    previous = -1
    for _ in range(count):
        key = _number(data, at, 4, "a bucket's key")
        if key <= previous or key >> 31:
            raise DataError(
                f"The bucket keys of a bitmap must ascend and stay below 2^31, found {key} after {previous}."
            )
        previous = key
        stop = at + 4 + _bitmap_size(data[at + 4 :])
        yield key, data[at + 4 : stop]
        at = stop
    _check_end(data, at)


def _native_buckets(data: memoryview, order: Literal["little", "big"]) -> Iterator[tuple[int, memoryview]]:
    count = _number(data, 4, 4, "its bucket count", order)
    at = 8
    for key in range(count):
        size = _number(data, at, 4, "a bucket's size", order)
        bitmap = data[at + 4 : at + 4 + size]
        end = _bitmap_size(bitmap)
        if end != size:
            raise DataError(
                f"Bucket {key} of a bitmap must end with its containers: it has {size} bytes, they have {end}."
            )
        yield key, bitmap
        at += 4 + size
    _check_end(data, at)


def _check_end(data: memoryview, at: int) -> None:
    if at != len(data):
        raise DataError(f"A bitmap of {len(data)} bytes must end with its last bucket, which ends at byte {at}.")


def _bitmap_size(data: memoryview) -> int:
    """Return the length of the 32-bit bitmap at the start of ``data``, according to its headers."""
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
            f"A 32-bit bitmap must start with the cookie {_COOKIE_PLAIN} or {_COOKIE_WITH_RUNS}, found {cookie}."
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
