"""UUIDs as strings of 36 characters in lower case, which sort as their 16 bytes do."""

from __future__ import annotations

import re
import uuid

import numpy as np
import pyarrow as pa

STORED = pa.binary(16)
"""The Arrow type of UUIDs in files, whose bytes are in the order of the text (Apache Parquet, "UUID")."""

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_LENGTH = 36
_MOST = ((1 << 31) - 1) // _LENGTH
# The positions of the hexadecimal digits in the text.
_DIGITS = [place for place in range(_LENGTH) if place not in (8, 13, 18, 23)]


def canonical(text: str) -> str | None:
    """Return ``text`` in lower case; ``None`` if it is not a UUID of 36 characters."""
    return text.lower() if _CANONICAL.match(text) else None


def text_of(data: bytes) -> str | None:
    """Return the text of a UUID of 16 bytes; ``None`` for any other number of bytes."""
    return str(uuid.UUID(bytes=data)) if len(data) == STORED.byte_width else None


def to_text(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return an array of type ``STORED`` as text; ``pa.ArrowInvalid`` if the text is too long for one array."""
    count = len(array)
    if count > _MOST:
        raise pa.ArrowInvalid(f"the text of {count} UUIDs is too long for one array")
    data = array.buffers()[1]
    if array.null_count == count or data is None:
        return pa.nulls(count, pa.string())
    stored = data.slice(array.offset * STORED.byte_width, count * STORED.byte_width)
    digits = np.frombuffer(stored.to_pybytes().hex().encode(), np.uint8)
    text = np.full((count, _LENGTH), ord("-"), np.uint8)
    text[:, _DIGITS] = digits.reshape(count, len(_DIGITS))
    offsets = np.arange(0, (count + 1) * _LENGTH, _LENGTH, dtype=np.int32)
    # The validity bits of a slice may start within a byte.
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text), valid, array.null_count)
