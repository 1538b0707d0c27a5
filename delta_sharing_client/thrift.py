"""The Thrift compact protocol, as used in Parquet footers (Apache Thrift, "Thrift compact protocol").

Every function takes a position and returns the position after what it read. Damaged bytes raise ``ValueError`` or
``IndexError``; the time is linear in the number of bytes.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT, _UUID = 1, 2, 3, 7, 8, 9, 10, 12, 13
_INTEGERS = (4, 5, 6)

Reader = Callable[[bytes, int], tuple[Any, int]]

Change = Callable[[bytes, int], bytes]
"""Returns the bytes that replace the value at a position."""

_SIZES = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}
_DEEPEST = 32
_VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_NUMBERS_AT_ONCE = 64
_MOST_FIELDS = b"{0,100}"  # The greatest number of fields per match; each takes memory until the match ends.
_SHORT_BINARY = 17
_SHORT_LIST = 4
# The depth of nested structs that one match skips; deeper ones are skipped one by one. A column chunk has two levels:
# its metadata, and the statistics in them.
_LEVELS = 2


def _headers(*kinds: int) -> bytes:
    """Return a pattern for the header of a field of one of ``kinds``."""
    first, last = min(kinds), max(kinds)
    return b"[%s]" % b"".join(b"\\x%02x-\\x%02x" % (delta << 4 | first, delta << 4 | last) for delta in range(1, 16))


@functools.cache
def _plain_fields() -> re.Pattern[bytes]:
    """Return a pattern for consecutive fields of the kinds that are most frequent in footers.

    These are numbers, short binaries, short lists of these or of structs of numbers, and structs of such fields. The
    first byte of a field decides its form, so there is only one way to match, without backtracking.
    """

    def one(*forms: bytes) -> bytes:
        return b"(?:" + b"|".join(forms) + b")"

    def lists(kinds: tuple[int, ...], element: bytes) -> list[bytes]:
        heads = [b"".join(b"\\x%02x" % (count << 4 | kind) for kind in kinds) for count in range(_SHORT_LIST)]
        return [b"[%s]%s{%d}" % (head, element, count) for count, head in enumerate(heads)]

    number = one(_headers(*_INTEGERS) + _VARINT, _headers(_TRUE, _FALSE))
    binary = one(b"\\x00", *(b"\\x%02x.{%d}" % (size, size) for size in range(1, _SHORT_BINARY)))
    struct = one(number + _MOST_FIELDS + b"\\x00")
    elements = [*lists(_INTEGERS, one(_VARINT)), *lists((_BINARY,), binary), *lists((_STRUCT,), struct)]
    plain = one(number, _headers(_BINARY) + binary, _headers(_LIST) + one(*elements))
    for _ in range(_LEVELS):
        plain = one(plain, _headers(_STRUCT) + plain + _MOST_FIELDS + b"\\x00")
    return re.compile(plain + _MOST_FIELDS, re.DOTALL)


@functools.cache
def _numbers(count: int) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + _VARINT + b"){%d}" % count)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned integer."""
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift == 70:
            raise ValueError("a number is longer than 64 bits")


def number(data: bytes, at: int) -> tuple[int, int]:
    """Read a signed integer."""
    value, at = varint(data, at)
    return value >> 1 ^ -(value & 1), at


def binary(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a binary value."""
    size, at = varint(data, at)
    return data[at : at + size], _inside(data, at + size)


def boolean(data: bytes, at: int) -> tuple[bool, int]:
    """Read a boolean in a list, which takes a byte; some writers use 0 for false."""
    if data[at] > _FALSE:
        raise ValueError(f"a boolean has the value {data[at]}")
    return data[at] == _TRUE, at + 1


def read_struct(
    data: bytes, at: int, depth: int = 0, lists: Mapping[int, Reader] | None = None
) -> tuple[dict[int, Any], int]:
    """Read a struct as a dict from field ids to bool, int, bytes or dict. A list is returned as its raw bytes, or as
    the result of the reader that ``lists`` has for its field."""
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deep")
    fields: dict[int, Any] = {}
    field = 0
    while True:
        header = data[at]
        at += 1
        if not header:
            return fields, at
        kind = header & 15
        if header >> 4:
            field += header >> 4
        else:
            step, at = varint(data, at)
            field = step >> 1 ^ -(step & 1)
        if lists is not None and field in lists:
            if kind != _LIST:
                raise ValueError(f"the field {field} is not a list")
            fields[field], at = lists[field](data, at)
        elif kind in _INTEGERS:
            value, at = varint(data, at)
            fields[field] = value >> 1 ^ -(value & 1)
        elif kind in (_TRUE, _FALSE):
            fields[field] = kind == _TRUE
        elif kind == _BINARY:
            fields[field], at = binary(data, at)
        elif kind == _STRUCT:
            fields[field], at = read_struct(data, at, depth + 1)
        else:
            after = skip(data, at, kind, depth)
            fields[field], at = data[at:after], after


def list_of(element: Reader) -> Reader:
    """Return a reader of lists of ``element``: ``number``, ``binary``, ``boolean``, ``read_struct`` or the like.

    It raises ``ValueError`` for other element types.
    """
    own: dict[Reader, tuple[int, ...]] = {number: _INTEGERS, binary: (_BINARY,), boolean: (_TRUE, _FALSE)}
    kinds = own.get(element, (_STRUCT,))

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        count, kind, at = list_header(data, at)
        if count and kind not in kinds:
            raise ValueError(f"a list has elements of the wrong kind {kind}")
        items = []
        for _ in range(count):
            value, at = element(data, at)
            items.append(value)
        return items, at

    return read


def skip_struct(data: bytes, at: int, depth: int = 0) -> int:
    """Skip a struct."""
    if depth > _DEEPEST:
        raise ValueError("structs are nested too deep")
    plain = _plain_fields()
    while True:
        run = plain.match(data, at)
        if run is not None:
            at = run.end()
        header = data[at]
        at += 1
        if not header:
            return at
        if not header >> 4:
            at = varint(data, at)[1]
        at = skip(data, at, header & 15, depth)


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Read the header of a list: return the number of its elements, their kind, and the position after it."""
    header = data[at]
    count, at = header >> 4, at + 1
    if count == 15:
        count, at = varint(data, at)
    if count > len(data) - at:
        raise ValueError(f"a list of {count} elements is longer than the data")
    return count, header & 15, at


def skip(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Skip the value of a struct's field of ``kind``, or an element of a list, unless it is a boolean."""
    if kind in (_TRUE, _FALSE):
        return at  # the kind itself is the value
    if kind == _BINARY:
        size, at = varint(data, at)
        return _inside(data, at + size)
    if kind == _STRUCT:
        return skip_struct(data, at, depth + 1)
    if kind in (_LIST, _SET):
        if depth > _DEEPEST:
            raise ValueError("lists are nested too deep")
        count, kind, at = list_header(data, at)
        if kind in _INTEGERS:
            for size in (*itertools.repeat(_NUMBERS_AT_ONCE, count // _NUMBERS_AT_ONCE), count % _NUMBERS_AT_ONCE):
                numbers = _numbers(size).match(data, at)
                if numbers is None:
                    raise ValueError("a list of numbers ends too early")
                at = numbers.end()
            return at
        if kind in (_TRUE, _FALSE):
            return _inside(data, at + count)
        for _ in range(count):
            at = skip(data, at, kind, depth + 1)
        return at
    if kind in _INTEGERS:
        return varint(data, at)[1]
    if kind in _SIZES:
        return _inside(data, at + _SIZES[kind])
    raise ValueError(f"unknown kind of value {kind}")  # Parquet has no maps


def _inside(data: bytes, at: int) -> int:
    if at > len(data):
        raise ValueError("a value is longer than the data")
    return at


# === Writing ===


def encode_varint(value: int) -> bytes:
    """Return an unsigned integer in the form that ``varint`` reads."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_number(value: int) -> bytes:
    """Return a signed integer in the form that ``number`` reads."""
    return encode_varint(value << 1 if value >= 0 else ~(value << 1))


def rewritten(data: bytes, at: int, changes: Mapping[int, Change]) -> bytes:
    """Return the struct at ``at``, in which ``changes`` replace the values of some fields."""
    parts = []
    field, last = 0, at
    while header := data[at]:
        at += 1
        if header >> 4:
            field += header >> 4
        else:
            step, at = varint(data, at)
            field = step >> 1 ^ -(step & 1)
        after = skip(data, at, header & 15)
        if field in changes:
            parts += [data[last:at], changes[field](data, at)]
            last = after
        at = after
    return b"".join([*parts, data[last : at + 1]])


def rewritten_list(data: bytes, at: int, changes: Mapping[int, Change] | Change) -> bytes:
    """Return the list of structs at ``at``, in which ``changes`` replace some elements, or one change replaces all."""
    parts, last = [], at
    count, kind, at = list_header(data, at)
    for element in range(count):
        after = skip(data, at, kind)
        change = changes.get(element) if isinstance(changes, Mapping) else changes
        if change is not None:
            parts += [data[last:at], change(data, at)]
            last = after
        at = after
    return b"".join([*parts, data[last:at]])
