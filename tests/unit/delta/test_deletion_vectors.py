from __future__ import annotations

import pickle
import struct
import uuid
import zlib
from collections.abc import Iterable
from functools import partial

import numpy as np
import pyroaring
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import (
    NATIVE_MAGIC,
    PORTABLE_MAGIC,
    DeletionVector,
    byte_range,
    decode_file,
    decode_inline,
    encode_file,
    relative_path,
    z85_decode,
    z85_encode,
)
from delta_sharing_client.errors import DataError, UsageError
from tests.memory import python_peak
from tests.quota import meets, met
from tests.unit.delta.native_bitmaps import native_inline
from tests.vectors import encode_inline, in_padded_text

EXAMPLE = [3, 4, 7, 11, 18, 29]
EXAMPLE_FILE = "ab^-aqEH.-t@S}K{vb[*k^"


def inline(data: bytes, cardinality: int, size: int | None = None) -> DeletionVectorDescriptor:
    text = z85_encode(data + bytes(-len(data) % 4))
    return DeletionVectorDescriptor("i", text, len(data) if size is None else size, cardinality)


# === Descriptors ===

EMPTY = struct.pack("<IQ", PORTABLE_MAGIC, 0)


def test_vector_may_be_empty() -> None:
    assert decode_inline(inline(EMPTY, 0)) == DeletionVector.from_positions([])


@pytest.mark.parametrize(
    ("size", "offset", "cardinality", "reason"),
    [
        (-1, 1, 1, "sizeInBytes"),
        (1 << 31, 1, 1, "sizeInBytes"),
        (12, -1, 1, "offset"),
        (12, 1 << 31, 1, "offset"),
        (12, 1, -1, "cardinality"),
        (12, None, -1, "cardinality"),
    ],
)
@pytest.mark.parametrize("storage", ["i", "u"])
def test_descriptor_numbers_out_of_range_are_refused(
    storage: str, size: int, offset: int | None, cardinality: int, reason: str
) -> None:
    text = z85_encode(EMPTY) if storage == "i" else EXAMPLE_FILE
    descriptor = DeletionVectorDescriptor(storage, text, size, cardinality, offset)
    with pytest.raises(DataError, match=f"A deletion vector's {reason} must"):
        decode_inline(descriptor) if storage == "i" else decode_file(b"", descriptor)


@pytest.mark.parametrize("number", [0, (1 << 31) - 1])
def test_numbers_at_the_limits_are_accepted(number: int) -> None:
    assert byte_range(DeletionVectorDescriptor("u", EXAMPLE_FILE, number, 0, number)) == (number, 2 * number + 8)


@pytest.mark.parametrize("positions", [[-1], [-1, 5], [5, 1 << 63], [1 << 63], range((1 << 63) - 1, (1 << 63) + 1)])
def test_positions_outside_63_bits_are_refused(positions: Iterable[int]) -> None:
    with pytest.raises(UsageError, match="Row positions must lie between 0 and"):
        DeletionVector.from_positions(positions)


def test_consecutive_positions_take_few_bytes() -> None:
    vector = DeletionVector.from_positions(range(100_000))
    assert len(pickle.dumps(vector)) < 500
    assert vector.cardinality == 100_000


def test_bucket_keys_must_ascend() -> None:
    bucket = struct.pack("<I", 1) + pyroaring.BitMap([1]).serialize()
    decoded = decode_inline(inline(struct.pack("<IQ", PORTABLE_MAGIC, 1) + bucket, 1))
    assert decoded.positions().tolist() == [(1 << 32) + 1]
    with pytest.raises(DataError, match="must ascend and stay below 2\\^31, found 1 after 1"):
        decode_inline(inline(struct.pack("<IQ", PORTABLE_MAGIC, 2) + 2 * bucket, 1))


@pytest.mark.parametrize("containers", range(1, 18))
@pytest.mark.parametrize("runs", [True, False])
def test_bitmap_must_end_where_the_data_ends(containers: int, runs: bool) -> None:
    step = 1 if runs else 2
    positions = [number for first in range(containers) for number in range(first << 16, (first << 16) + 50, step)]
    bitmap = pyroaring.BitMap64(positions)
    if runs:
        bitmap.run_optimize()
    data = struct.pack("<I", PORTABLE_MAGIC) + bitmap.serialize()
    assert decode_inline(inline(data, len(positions))).positions().tolist() == positions
    for wrong in (data[:-1], data + b"\0\0\0\0"):
        with pytest.raises(DataError):
            decode_inline(inline(wrong, len(positions)))


# === An independent decoder, written from the specification ===


def read_bits(data: bytes) -> set[int]:
    """Decode either serialization as specified; the input must be valid."""
    if data[:4] == struct.pack("<I", PORTABLE_MAGIC):
        (count,) = struct.unpack_from("<Q", data, 4)
        at, values = 12, set()
        for _ in range(count):
            (key,) = struct.unpack_from("<I", data, at)
            at, low = read_bitmap(data, at + 4)
            values |= {key << 32 | value for value in low}
        assert at == len(data)
        return values
    order = "<" if data[:4] == struct.pack("<I", NATIVE_MAGIC) else ">"
    (count,) = struct.unpack_from(order + "I", data, 4)
    at, values = 8, set()
    for key in range(count):
        (size,) = struct.unpack_from(order + "I", data, at)
        end, low = read_bitmap(data, at + 4)
        assert end == at + 4 + size
        at = end
        values |= {key << 32 | value for value in low}
    return values


def read_bitmap(data: bytes, start: int) -> tuple[int, set[int]]:
    (cookie,) = struct.unpack_from("<I", data, start)
    at = start + 4
    run_flags = 0
    if cookie & 0xFFFF == 12347:
        containers = (cookie >> 16) + 1
        flag_bytes = -(-containers // 8)
        run_flags = int.from_bytes(data[at : at + flag_bytes], "little")
        at += flag_bytes
    else:
        (containers,) = struct.unpack_from("<I", data, at)
        at += 4
    headers = [struct.unpack_from("<HH", data, at + 4 * index) for index in range(containers)]
    at += 4 * containers
    if cookie & 0xFFFF != 12347 or containers >= 4:
        at += 4 * containers
    values = set()
    for index, (key, count_less_one) in enumerate(headers):
        if run_flags >> index & 1:
            (runs,) = struct.unpack_from("<H", data, at)
            at += 2
            for _ in range(runs):
                first, more = struct.unpack_from("<HH", data, at)
                values |= {key << 16 | value for value in range(first, first + more + 1)}
                at += 4
        elif count_less_one < 4096:
            values |= {key << 16 | value for value in struct.unpack_from(f"<{count_less_one + 1}H", data, at)}
            at += 2 * (count_less_one + 1)
        else:
            bits = int.from_bytes(data[at : at + 8192], "little")
            values |= {key << 16 | value for value in range(65536) if bits >> value & 1}
            at += 8192
    return at, values


@st.composite
def position_sets(draw) -> set[int]:
    """Draw scattered values, runs and dense blocks, in several containers and 32-bit buckets."""
    values = set(draw(st.lists(st.integers(0, 5 << 32), max_size=30)))
    values |= set(draw(st.lists(st.integers(0, 300_000), max_size=30)))
    for start, length, step in draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 65_530, 131_072, (1 << 32) - 10, 3 << 32]), st.integers(0, 6000), st.integers(1, 3)
            ),
            max_size=4,
        )
    ):
        values |= set(range(start, start + length * step, step))
    return values


def bitmap_of(*containers: tuple[int, int, bytes], keys_first: bytes | None = None) -> bytes:
    """Return a portable vector with one bucket. Its containers are given as (key, count, body) and have no runs."""
    header = struct.pack("<II", 12346, len(containers))
    header += b"".join(struct.pack("<HH", key, count - 1) for key, count, _ in containers)
    at = len(header) + 4 * len(containers)
    for _, _, body in containers:
        header += struct.pack("<I", at)
        at += len(body)
    bucket = header + b"".join(body for _, _, body in containers)
    return struct.pack("<IQ", PORTABLE_MAGIC, 1) + (keys_first or struct.pack("<I", 0)) + bucket


def run_bitmap(count: int, *pairs: tuple[int, int]) -> bytes:
    body = struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *pair) for pair in pairs)
    bucket = struct.pack("<IBHH", 12347, 1, 0, count - 1) + body
    return struct.pack("<IQI", PORTABLE_MAGIC, 1, 0) + bucket


def array(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}H", *values)


# === Examples of the specification and of real tables ===


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40),
        # The design document prints "0" instead of the "i" in the bitmap's cookie.
        ("^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44),
    ],
    ids=["native big-endian", "portable"],
)
def test_inline_examples_of_the_spec_decode_to_their_rows(text, size):
    vector = decode_inline(DeletionVectorDescriptor("i", text, size, 6))
    assert vector.positions().tolist() == EXAMPLE


def test_relative_path_of_the_specification_has_prefix_and_uuid():
    descriptor = DeletionVectorDescriptor("u", EXAMPLE_FILE, 40, 6, 4)
    assert relative_path(descriptor) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert byte_range(descriptor) == (4, 52)
    assert byte_range(DeletionVectorDescriptor("u", EXAMPLE_FILE, 40, 6)) == (0, 48)


GOLDEN_FILE = (
    # deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin of delta-rs and delta-kernel: rows 0 and 9
    "01000000 24d1d3 39640100 00000000 00000000 00003a30 00000100 00000000 01001000 00000000 0900"
)


def test_file_of_delta_rs_decodes_to_rows_0_and_9():
    blob = bytes.fromhex(GOLDEN_FILE)
    data = blob[5:]
    descriptor = DeletionVectorDescriptor("u", "vBn[lx{q8@P<9BNH/isA", 36, 2, 1)
    vector = decode_file(blob + struct.pack(">I", zlib.crc32(data)), descriptor)
    assert vector.positions().tolist() == [0, 9]
    assert relative_path(descriptor) == "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"


# === Round trips ===


@meets(several=13, beyond=6, empty=1)
@settings(deadline=None, max_examples=60)
@given(position_sets(), st.sampled_from([encode_inline, native_inline, partial(encode_inline, text_padding=True)]))
def test_inline_vectors_agree_with_an_independent_decoder(values, encode):
    met("several", len(values) > 1)
    met("beyond", any(value >> 32 for value in values))
    met("empty", not values)
    descriptor = encode(DeletionVector.from_positions(values))
    assert descriptor.cardinality == len(values)
    assert set(decode_inline(descriptor).positions().tolist()) == values
    assert read_bits(z85_decode(descriptor.path_or_inline_dv)[: descriptor.size_in_bytes]) == values


@meets(several=6, beyond=6)
@settings(deadline=None, max_examples=40)
@given(st.lists(position_sets(), min_size=1, max_size=4), st.booleans())
def test_vectors_of_one_file_decode_by_offset(sets, by_uuid):
    met("several", len(sets) > 1)
    met("beyond", any(value >> 32 for values in sets for value in values))
    vectors = [DeletionVector.from_positions(values) for values in sets]
    name = uuid.UUID(int=7) if by_uuid else "https://host/dv.bin"
    blob, descriptors = encode_file(vectors, name, prefix="x1" if by_uuid else "")
    for vector, descriptor, values in zip(vectors, descriptors, sets, strict=True):
        start, stop = byte_range(descriptor)
        assert decode_file(blob, descriptor) == vector
        assert set(decode_file(blob[start:stop], descriptor, base=start).positions().tolist()) == values
        assert decode_file(memoryview(blob), descriptor) == decode_file(bytearray(blob), descriptor)


def record(values: Iterable[int]) -> tuple[bytes, int]:
    """Return a vector in the format of files, made with pyroaring and zlib, and its size."""
    data = struct.pack("<I", PORTABLE_MAGIC) + pyroaring.BitMap64(values).serialize()
    return struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)), len(data)


@pytest.mark.parametrize("offset", [None, 0])
def test_vector_at_byte_0_has_no_version_byte(offset):
    # "Interpret as `0` if absent" (Delta log protocol, "Deletion Vector Descriptor Schema").
    blob, size = record([1, 3])
    descriptor = DeletionVectorDescriptor("p", "https://host/dv.bin", size, 2, offset)
    assert byte_range(descriptor) == (0, len(blob))
    assert decode_file(blob, descriptor).positions().tolist() == [1, 3]
    assert decode_file(blob + b"more", descriptor).positions().tolist() == [1, 3]
    with pytest.raises(DataError, match="size prefix"):
        decode_file(b"\1" + blob, descriptor)


def test_vector_after_one_at_byte_0_decodes():
    first, _ = record([1, 3])
    second, size = record([2, 70_000])
    descriptor = DeletionVectorDescriptor("u", "z" * 20, size, 2, len(first))
    assert decode_file(first + second, descriptor).positions().tolist() == [2, 70_000]
    assert decode_file(second, descriptor, base=len(first)).positions().tolist() == [2, 70_000]


@pytest.mark.parametrize(
    ("gap", "readable"),
    [(b"\1", True), (bytes(8), True), (b"\1" * 7, True), (b"\0", False), (bytes(7), False)],
    ids=repr,
)
def test_version_byte_0_is_allowed_after_a_complete_vector(gap, readable):
    blob, size = record([1, 3])
    descriptor = DeletionVectorDescriptor("p", "https://host/dv.bin", size, 2, len(gap))
    if readable:
        assert decode_file(gap + blob, descriptor).positions().tolist() == [1, 3]
        return
    with pytest.raises(DataError, match="format version 1, found 0"):
        decode_file(gap + blob, descriptor)


def test_unknown_file_version_is_refused_for_later_vectors():
    first, _ = record([1, 3])
    second, size = record([2])
    descriptor = DeletionVectorDescriptor("p", "https://host/dv.bin", size, 1, 1 + len(first))
    assert decode_file(b"\1" + first + second, descriptor).positions().tolist() == [2]
    with pytest.raises(DataError, match="format version 1, found 2"):
        decode_file(b"\2" + first + second, descriptor)


@meets(runs=5, plain=4)
@settings(deadline=None, max_examples=40)
@given(position_sets(), st.booleans())
def test_bitmaps_of_pyroaring_decode(values, with_runs):
    met("runs" if with_runs and len(values) > 1 else "plain")
    bitmap = pyroaring.BitMap64(values)
    if with_runs:
        bitmap.run_optimize()
    data = struct.pack("<I", PORTABLE_MAGIC) + bitmap.serialize()
    assert set(decode_inline(inline(data, len(values))).positions().tolist()) == values


@pytest.mark.parametrize("rows", [4095, 4096, 4097, 4098, 65536])
def test_containers_around_the_array_size_limit_decode(rows):
    # Two containers: the second begins at the end of the first.
    values = [*range(0, rows * 2, 2), 200_000, 200_002] if rows < 65536 else [*range(65536), 200_000]
    bitmap = pyroaring.BitMap64(values)
    data = struct.pack("<I", PORTABLE_MAGIC) + bitmap.serialize()
    assert decode_inline(inline(data, len(values))).positions().tolist() == values


def test_big_endian_native_bitmaps_decode():
    vector = DeletionVector.from_positions([1, (1 << 32) + 5, (3 << 32) + 9])
    little = z85_decode(native_inline(vector).path_or_inline_dv)
    big = bytearray(little)
    for at in (0, 4):
        big[at : at + 4] = little[at : at + 4][::-1]
    at = 8
    for _ in range(4):
        (size,) = struct.unpack_from("<I", little, at)
        big[at : at + 4] = little[at : at + 4][::-1]
        at += 4 + size
    assert decode_inline(inline(bytes(big[:at]), 3)) == vector


def test_empty_buckets_of_other_writers_are_read():
    empty = struct.pack("<II", 12346, 0)
    data = struct.pack("<IQ", PORTABLE_MAGIC, 2) + struct.pack("<I", 0) + empty + struct.pack("<I", 1) + empty
    assert decode_inline(inline(data, 0)).cardinality == 0


# === Keep masks and sets ===


@meets(deleted=6, kept=18)
@settings(deadline=None, max_examples=100)
@given(position_sets(), st.integers(0, 200_000), st.integers(0, 3000))
def test_keep_mask_is_false_exactly_for_deleted_rows(values, start, length):
    vector = DeletionVector.from_positions(values)
    mask = vector.keep_mask(start, length)
    met("kept" if mask is None else "deleted")
    expected = [position not in values for position in range(start, start + length)]
    assert mask is None if all(expected) else mask.to_pylist() == expected
    assert vector.count_in(start, length) == expected.count(False)


def test_keep_mask_beyond_32_bits_is_exact():
    start = (1 << 32) - 2
    vector = DeletionVector.from_positions([start + 1, start + 2, 1 << 62])
    assert vector.keep_mask(start, 5).to_pylist() == [True, False, False, True, True]
    assert vector.keep_mask((1 << 62) - 1, 2).to_pylist() == [True, False]
    assert vector.keep_mask(0, 1000) is None


def test_keep_mask_of_a_million_rows_is_exact():
    vector = DeletionVector.from_positions(range(0, 3_000_000, 2))
    mask = vector.keep_mask(1_000_000, 1_000_000)
    assert mask.true_count == 500_000
    assert mask.null_count == 0


@meets(common=5, left=6)
@given(position_sets(), position_sets())
@settings(deadline=None, max_examples=40)
def test_difference_and_equality_agree_with_python_sets(left, right):
    met("common", left & right)
    met("left", left - right)
    first, second = DeletionVector.from_positions(left), DeletionVector.from_positions(right)
    assert set((first - second).positions().tolist()) == left - right
    assert (first == second) == (left == right)


def test_vectors_are_compared_hashed_and_pickled():
    vector = DeletionVector.from_positions(EXAMPLE)
    assert vector.cardinality == 6
    assert repr(vector) == "DeletionVector(cardinality=6)"
    copy = pickle.loads(pickle.dumps(vector))
    assert copy == vector
    assert hash(copy) == hash(vector)
    assert vector.positions().dtype == np.uint64


# === Damage: every error names the contradiction ===


def example_file() -> tuple[bytearray, DeletionVectorDescriptor]:
    blob, (descriptor,) = encode_file([DeletionVector.from_positions(EXAMPLE)], uuid.UUID(int=1))
    return bytearray(blob), descriptor


def changed(descriptor: DeletionVectorDescriptor, **fields: object) -> DeletionVectorDescriptor:
    values = {name: getattr(descriptor, name) for name in descriptor.__struct_fields__}
    return DeletionVectorDescriptor(**{**values, **fields})


def test_every_flipped_bit_of_the_bitmap_fails_the_checksum():
    blob, descriptor = example_file()
    for at in range(5, len(blob)):
        damaged = bytearray(blob)
        damaged[at] ^= 1
        with pytest.raises(DataError, match="CRC-32"):
            decode_file(damaged, descriptor)


@pytest.mark.parametrize(
    ("damage", "base", "fields", "reason"),
    [
        (lambda blob: b"\x02" + blob[1:], 0, {}, "format version 1, found 2"),
        (lambda blob: blob[:4] + b"\x28" + blob[5:], 0, {}, "size prefix must equal its sizeInBytes 44, found 40"),
        *((lambda blob, length=length: blob[:length], 0, {}, "truncated") for length in (0, 1, 4, 5, 30, 52)),
        (lambda blob: blob[2:], 2, {}, "bytes 1 to 53"),
        (lambda blob: b"\0" + blob, -1, {}, "but only bytes -1 to"),
        *((bytes, 0, {"cardinality": number}, f"hold {number} row positions .* found 6") for number in (5, 7, 0)),
        (bytes, 0, {"offset": 1 << 40}, "offset"),
        (bytes, 0, {"storage_type": "i"}, "is not in a file"),
        (bytes, 0, {"size_in_bytes": (1 << 31) - 1}, "truncated"),
    ],
)
def test_file_and_descriptor_that_disagree_are_refused(damage, base, fields, reason):
    blob, descriptor = example_file()
    assert decode_file(blob, descriptor).positions().tolist() == EXAMPLE
    with pytest.raises(DataError, match=reason):
        decode_file(damage(bytes(blob)), changed(descriptor, **fields), base=base)


INLINE = encode_inline(DeletionVector.from_positions(EXAMPLE))
MISPRINTED = "^Bg9^0rr9100000000000XQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"  # in the design document


@pytest.mark.parametrize(
    ("descriptor", "reason"),
    [
        *((changed(INLINE, size_in_bytes=size), f"must decode to {size} bytes") for size in (40, 48)),
        (changed(INLINE, storage_type="u"), "'i', found 'u'"),
        (DeletionVectorDescriptor("i", MISPRINTED, 44, 6), "cookie"),
    ],
)
def test_contradictory_inline_vector_is_refused(descriptor, reason):
    with pytest.raises(DataError, match=reason):
        decode_inline(descriptor)


# The third is the text that delta-kernel-rs writes for 26 bytes. Its last group's low bits would give row 28168.
@pytest.mark.parametrize(
    ("data", "rows"),
    [(run_bitmap(4, (3, 3)), [3, 4, 5, 6]), (run_bitmap(1, (9, 0)), [9]), (bitmap_of((0, 1, array(3))), [3])],
    ids=["27 bytes", "27 bytes, one row", "26 bytes"],
)
def test_padded_last_group_decodes_only_with_its_exact_size(data, rows):
    text = in_padded_text(data)
    assert text[-5] == "#"
    assert decode_inline(DeletionVectorDescriptor("i", text, len(data), len(rows))).positions().tolist() == rows
    for size in (len(data) - 1, len(data) + 1, len(data) + 2, 0):
        with pytest.raises(DataError, match=f"must decode to {size} bytes"):
            decode_inline(DeletionVectorDescriptor("i", text, size, len(rows)))


@pytest.mark.parametrize("last", ["%nSc1", "$0000", "####0", "#####", "###31", "##~00"])
def test_invalid_padding_of_the_last_group_is_refused(last):
    text = encode_inline(DeletionVector.from_positions([2, 5, 7, 9])).path_or_inline_dv
    for size in range(len(text) // 5 * 4 - 4, len(text) // 5 * 4 + 1):
        with pytest.raises(DataError):
            decode_inline(DeletionVectorDescriptor("i", text[:-5] + last, size, 4))


@pytest.mark.parametrize(
    ("data", "cardinality", "reason"),
    [
        (b"\x01\x02", 0, "magic number"),
        (struct.pack("<I", PORTABLE_MAGIC + 1), 0, "magic number"),
        (struct.pack(">I", PORTABLE_MAGIC) + bytes(8), 0, "magic number"),
        (struct.pack("<I", PORTABLE_MAGIC) + bytes(4), 0, "ends inside its bucket count"),
        (struct.pack("<I", NATIVE_MAGIC), 0, "ends inside its bucket count"),
        (struct.pack("<IQ", PORTABLE_MAGIC, 1 << 31), 1, "ends inside a bucket's key"),
        (struct.pack("<IQ", PORTABLE_MAGIC, (1 << 64) - 1), 1, "ends inside a bucket's key"),
        (struct.pack("<II", NATIVE_MAGIC, 1 << 31), 1, "ends inside a bucket's size"),
        (bitmap_of((0, 2, array(5, 3))), 2, "strictly increasing"),
        (bitmap_of((0, 2, array(3, 3))), 2, "strictly increasing"),
        (bitmap_of((1, 1, array(3)), (1, 1, array(4))), 2, "must match their headers"),
        (bitmap_of((0, 5, array(3))), 5, "ends inside its containers"),
        (bitmap_of((0, 5000, b"\xff" * 8192)), 5000, "cardinality is incorrect"),
        (bitmap_of((0, 5000, b"\xff" * 8000)), 5000, "ends inside its containers"),
        (bitmap_of((0, 1, array(3)), keys_first=struct.pack("<I", 1 << 31)), 1, "bucket keys of a bitmap"),
        (bitmap_of((0, 1, array(3))) + b"\0\0\0\0", 1, "must end with its last bucket"),
        (run_bitmap(3, (0, 1)), 3, "must hold 3 row positions"),
        (run_bitmap(4, (0, 2), (2, 0)), 4, "run start less than last end"),
        (run_bitmap(3, (65535, 2)), 3, r"run start \+ length too large"),
        (run_bitmap(1), 1, "zero run count"),
    ],
)
def test_contradictory_bitmaps_are_refused(data, cardinality, reason):
    with pytest.raises(DataError, match=reason):
        decode_inline(inline(data, cardinality))


def test_container_offsets_are_not_used():
    data = bytearray(bitmap_of((0, 1, array(3)), (1, 1, array(4))))
    data[16 + 8 + 8] += 1
    assert decode_inline(inline(bytes(data), 2)).positions().tolist() == [3, 65536 + 4]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<IQ", PORTABLE_MAGIC, 1 << 31) + bytes(64),
        struct.pack("<II", NATIVE_MAGIC, 1 << 31) + bytes(64),
        struct.pack("<IQIII", PORTABLE_MAGIC, 1, 0, 12346, 65536) + bytes(64),
        struct.pack("<IQII", PORTABLE_MAGIC, 1, 0, 0xFFFF303B) + bytes(64),
        struct.pack("<II", NATIVE_MAGIC, 1) + struct.pack("<I", 0xFFFFFFF0) + bytes(64),
    ],
)
def test_huge_counts_are_refused_without_allocating_memory(data):
    def decode() -> None:
        with pytest.raises(DataError):
            decode_inline(inline(data, 1 << 40))

    assert python_peak(decode) < 1 << 20


def test_billions_of_deleted_rows_need_little_memory():
    # 65536 containers of one full run each: 2^32 rows in less than a megabyte.
    count = 1 << 16
    keys = np.zeros((count, 2), dtype="<u2")
    keys[:, 0] = np.arange(count)
    keys[:, 1] = 65535
    header = 4 + count // 8 + 8 * count
    offsets = (header + np.arange(count, dtype="<u4") * 6).astype("<u4")
    bodies = struct.pack("<HHH", 1, 0, 65535) * count
    bucket = struct.pack("<I", 0xFFFF303B) + b"\xff" * (count // 8) + keys.tobytes() + offsets.tobytes() + bodies
    vector = decode_inline(inline(struct.pack("<IQI", PORTABLE_MAGIC, 1, 0) + bucket, 1 << 32))
    assert vector.cardinality == 1 << 32
    assert vector.keep_mask((1 << 32) - 2, 4).to_pylist() == [False, False, True, True]


@pytest.mark.parametrize("prefix", ["../", "..", ".", "a/b", "a\\b", "/"])
def test_prefix_that_is_not_one_directory_name_is_refused(prefix):
    with pytest.raises(DataError, match="one directory name"):
        relative_path(DeletionVectorDescriptor("u", prefix + EXAMPLE_FILE[2:], 40, 6, 4))


@pytest.mark.parametrize(
    ("storage", "text"),
    [("u", "short"), ("u", "~" * 20), ("u", "0" * 15 + "##093"), ("i", EXAMPLE_FILE), ("p", EXAMPLE_FILE)],
)
def test_path_without_a_valid_uuid_is_refused(storage, text):
    with pytest.raises(DataError):
        relative_path(DeletionVectorDescriptor(storage, text, 40, 6, 4))


@meets(refused=66, read=8)
@settings(deadline=None, max_examples=400)
@given(st.data())
def test_damaged_bitmaps_give_their_cardinality_or_a_data_error(data):
    values = data.draw(position_sets())
    descriptor = data.draw(st.sampled_from([encode_inline, native_inline]))(DeletionVector.from_positions(values))
    blob = bytearray(z85_decode(descriptor.path_or_inline_dv)[: descriptor.size_in_bytes])
    for _ in range(data.draw(st.integers(1, 3))):
        # Most damage to a header is refused; the values are at the end.
        at = data.draw(st.integers(0, len(blob) - 1) | st.integers(max(0, len(blob) - 2), len(blob) - 1))
        blob[at] = data.draw(st.integers(0, 255))
    try:
        vector = decode_inline(inline(bytes(blob), len(values)))
    except DataError:
        met("refused")
        return
    met("read", values)
    assert len(vector.positions()) == len(values)
    assert read_bits(bytes(blob)) == set(vector.positions().tolist())


def test_empty_range_has_no_deleted_rows() -> None:
    vector = DeletionVector.from_positions([0, 3, 4])
    for start in (0, 3, 9):
        assert vector.count_in(start, 0) == 0
        assert vector.keep_mask(start, 0) is None
    assert (vector.count_in(3, 1), vector.count_in(0, 5), vector.count_in(1, 2)) == (1, 3, 0)


def test_encoded_file_is_named_by_a_uuid_or_a_path() -> None:
    vector = DeletionVector.from_positions([1])
    _, (by_path,) = encode_file([vector], "https://h/dv")
    assert (by_path.storage_type, by_path.path_or_inline_dv, by_path.offset) == ("p", "https://h/dv", 1)
    _, (by_uuid, second) = encode_file([vector, vector], uuid.UUID(int=1), prefix="x1")
    assert (by_uuid.storage_type, by_uuid.path_or_inline_dv[:2], len(by_uuid.path_or_inline_dv)) == ("u", "x1", 22)
    assert second.offset == 1 + by_uuid.size_in_bytes + 8
