"""Deletion vectors with positions beyond 2^32, decoded by Delta's library (RoaringBitmap) and by ours."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import numpy as np
import pyroaring
from hypothesis import HealthCheck, given, settings

from delta_sharing_client.delta.deletion_vectors import (
    DeletionVector,
    byte_range,
    decode_file,
    decode_inline,
    encode_file,
)
from tests.effort import examples
from tests.vectors import KINDS, bitmaps, encode_inline, kinds

# Indexes of containers of 2^16 rows each: the first two below 2^32, the rest around it and far beyond.
KEYS = [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 5 << 16, (1 << 40) + 7]


def test_64_bit_deletion_vectors_match_deltas_library(spark: Any) -> None:
    jvm = spark.sparkContext._jvm
    met: Counter[str] = Counter()

    @settings(max_examples=examples(240), suppress_health_check=[HealthCheck.too_slow])
    @given(bitmaps(KEYS))
    def check(bitmap: pyroaring.BitMap64) -> None:
        vector = DeletionVector(bitmap)
        blob, (stored,) = encode_file([vector], uuid.UUID(int=1))
        start, stop = byte_range(stored)
        theirs = decoded_by_the_jvm(jvm, blob[start + 8 : stop - 4])
        assert decode_file(blob, stored).positions().tolist() == theirs
        for padded in (False, True):
            assert decode_inline(encode_inline(vector, text_padding=padded)).positions().tolist() == theirs
        met.update(kinds(bitmap, stored.size_in_bytes, KEYS))
        met["beyond"] += vector.last_position >= 1 << 32

    check()

    assert not [kind for kind in KINDS | {"beyond"} if not met[kind]], f"too few cases: {met}"


def decoded_by_the_jvm(jvm: Any, portable: bytes) -> list[int]:
    """Return the values of a bitmap in the portable format, without Delta's magic number."""
    found = jvm.org.roaringbitmap.longlong.Roaring64NavigableMap()
    found.deserializePortable(jvm.java.io.DataInputStream(jvm.java.io.ByteArrayInputStream(portable)))
    # The values are transferred as bytes, because reading a JVM array takes one call per value.
    values = jvm.java.nio.ByteBuffer.allocate(8 * found.getIntCardinality())
    values.asLongBuffer().put(found.toArray())
    return np.frombuffer(bytes(values.array()), ">i8").tolist()
