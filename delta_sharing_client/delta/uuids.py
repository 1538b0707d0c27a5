"""UUIDs as text: 36 characters in lower case. Their order is that of the 16 bytes."""

from __future__ import annotations

import re
import uuid

import numpy as np
import pyarrow as pa

STORED = pa.binary(16)
"""The type of UUIDs in files, from the first byte on (Apache Parquet, "UUID")."""

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z", re.IGNORECASE)
_LENGTH = 36
_MOST = ((1 << 31) - 1) // _LENGTH
# The positions of the bytes' digits in the text.
_DIGITS = [place for place in range(_LENGTH) if place not in (8, 13, 18, 23)]


def canonical(text: str) -> str | None:
    """Return a UUID in lower case; ``None`` if ``text`` is not its 36 characters."""
    return text.lower() if _CANONICAL.match(text) else None


def text_of(data: bytes) -> str | None:
    """Return the text of 16 bytes, ``None`` for another number of bytes."""
    return str(uuid.UUID(bytes=data)) if len(data) == STORED.byte_width else None


def to_text(array: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return an array of ``STORED`` as text. Raises ``pa.ArrowInvalid`` for more text than an array can hold."""
    count = len(array)
    if count > _MOST:
        raise pa.ArrowInvalid(f"{count} UUIDs are more text than an array can hold")
    data = array.buffers()[1]
    if array.null_count == count or data is None:
        return pa.nulls(count, pa.string())
    stored = data.slice(array.offset * STORED.byte_width, count * STORED.byte_width)
    digits = np.frombuffer(stored.to_pybytes().hex().encode(), np.uint8)
    text = np.full((count, _LENGTH), ord("-"), np.uint8)
    text[:, _DIGITS] = digits.reshape(count, len(_DIGITS))
    offsets = np.arange(0, (count + 1) * _LENGTH, _LENGTH, dtype=np.int32)
    # The bits of a slice start within a byte.
    valid = array.is_valid().buffers()[1] if array.null_count else None
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text), valid, array.null_count)
