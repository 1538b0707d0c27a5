"""Deletion vectors as some writers keep them: inside of the log. We read these, and write files."""

from __future__ import annotations

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file, z85_encode


def encode_inline(vector: DeletionVector) -> DeletionVectorDescriptor:
    """Return an inline descriptor that carries ``vector``."""
    file, (stored,) = encode_file([vector], "file:///vector")
    offset = stored.offset or 0
    # In a file, the bytes stand between their size and their checksum.
    data = file[offset + 4 : offset + 4 + stored.size_in_bytes]
    return DeletionVectorDescriptor("i", z85_encode(data + bytes(-len(data) % 4)), len(data), vector.cardinality)
