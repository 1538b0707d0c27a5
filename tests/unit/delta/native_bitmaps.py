"""The native serialization of bitmaps, which only old Delta writers used."""

from __future__ import annotations

import struct

import pyroaring

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import NATIVE_MAGIC, DeletionVector, z85_encode


def native_inline(vector: DeletionVector) -> DeletionVectorDescriptor:
    """Return an inline descriptor that holds ``vector`` in the native serialization, little-endian."""
    buckets: dict[int, list[int]] = {}
    for position in vector.positions().tolist():
        buckets.setdefault(position >> 32, []).append(position & 0xFFFFFFFF)
    data = struct.pack("<II", NATIVE_MAGIC, max(buckets, default=-1) + 1)
    for key in range(max(buckets, default=-1) + 1):
        bitmap = pyroaring.BitMap(buckets.get(key, []))
        bitmap.run_optimize()
        data += struct.pack("<I", len(bitmap.serialize())) + bitmap.serialize()
    return DeletionVectorDescriptor("i", z85_encode(data + bytes(-len(data) % 4)), len(data), vector.cardinality)
