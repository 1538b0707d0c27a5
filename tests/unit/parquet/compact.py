"""Write structs in Thrift's compact protocol, for footers and indexes that no library writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes([*encoded, number])


def as_number(value: int) -> bytes:
    return as_varint(2 * value if value >= 0 else -2 * value - 1)


def as_list(kind: int, items: list[bytes]) -> bytes:
    count = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + as_varint(len(items))
    return count + b"".join(items)


def struct_of(fields: Mapping[int, Any]) -> bytes:
    """Return a struct with these values by field id. ``None`` is left out.

    A value is a bool, an int, bytes, a mapping (a nested struct), or a list of ints, bytes or mappings.
    """
    written, last = b"", 0
    for field, value in sorted(fields.items()):
        if value is not None:
            kind, data = _value(value)
            step = field - last
            written += (bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + as_number(field)) + data
            last = field
    return written + b"\0"


def _value(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return (1 if value else 2), b""
    if isinstance(value, int):
        return 6, as_number(value)
    if isinstance(value, bytes):
        return 8, as_varint(len(value)) + value
    if isinstance(value, Mapping):
        return 12, struct_of(value)
    items = [_value(item) for item in value]
    return 9, as_list(items[0][0] if items else 12, [data for _, data in items])
