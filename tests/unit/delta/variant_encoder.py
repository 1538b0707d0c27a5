"""An encoder of variants, written from the specification alone, with every width that a writer may choose."""

from __future__ import annotations

import struct

import pyarrow as pa

from delta_sharing_client.delta.variant.column import unshred, variant_to_python

EMPTY = b"\x01\x00\x00"  # metadata without names


def numbers(values: list[int], width: int) -> bytes:
    return b"".join(value.to_bytes(width, "little") for value in values)


def dictionary(names: list[str], width: int = 1, *, sorted_names: bool = False) -> bytes:
    texts = [name.encode() for name in names]
    offsets = [sum(map(len, texts[:count])) for count in range(len(texts) + 1)]
    width = max(width, (offsets[-1].bit_length() + 7) // 8, 1)
    header = 1 | sorted_names << 4 | (width - 1) << 6
    return bytes([header]) + numbers([len(texts), *offsets], width) + b"".join(texts)


def primitive(kind: int, body: bytes = b"") -> bytes:
    return bytes([kind << 2]) + body


def text(value: str, *, long: bool = False) -> bytes:
    data = value.encode()
    if long or len(data) > 63:
        return primitive(16, struct.pack("<I", len(data)) + data)
    return bytes([len(data) << 2 | 1]) + data


def container(
    values: list[bytes], ids: list[int] | None = None, *, extra: int = 0, large: bool = False, backwards: bool = False
) -> bytes:
    """Return an object (with ``ids``) or array; ``backwards`` stores the values in reverse order."""
    order = list(range(len(values)))[::-1] if backwards else list(range(len(values)))
    offsets, at = [0] * len(values), 0
    for index in order:
        offsets[index] = at
        at += len(values[index])
    width = min(4, max(1, (at.bit_length() + 7) // 8) + extra)
    large = large or len(values) > 255
    count = len(values).to_bytes(4 if large else 1, "little")
    tail = numbers([*offsets, at], width) + b"".join(values[index] for index in order)
    if ids is None:
        return bytes([(large << 2 | (width - 1)) << 2 | 3]) + count + tail
    id_width = min(4, max(1, (max(ids, default=0).bit_length() + 7) // 8) + extra)
    header = large << 4 | (id_width - 1) << 2 | (width - 1)
    return bytes([header << 2 | 2]) + count + numbers(ids, id_width) + tail


def encode(value: object, names: list[str], **how: object) -> bytes:
    if value is None:
        return primitive(0)
    if isinstance(value, bool):
        return primitive(1 if value else 2)
    if isinstance(value, int):
        return primitive(6, struct.pack("<q", value))
    if isinstance(value, float):
        return primitive(7, struct.pack("<d", value))
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bytes):
        return primitive(15, struct.pack("<I", len(value)) + value)
    if isinstance(value, list):
        return container([encode(item, names, **how) for item in value], **how)
    assert isinstance(value, dict)
    keys = sorted(value, key=lambda key: key.encode())
    return container([encode(value[key], names, **how) for key in keys], [names.index(key) for key in keys], **how)


def keys_of(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys_of(item)}
    return {key for item in value for key in keys_of(item)} if isinstance(value, list) else set()


def variants_to_python(array: pa.Array) -> list[object]:
    """Return a variant column as Python objects; a null struct and a variant that holds ``null`` are both ``None``."""
    return [
        None if row is None else variant_to_python(row["value"], row["metadata"]) for row in unshred(array).to_pylist()
    ]
