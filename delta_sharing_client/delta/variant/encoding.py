"""The binary encoding of variants: dictionaries, objects, arrays and scalars (Parquet "Variant Binary Encoding").

::

    metadata  header | dictionary size | offsets (size + 1) | names
    object    header | count | field ids | offsets (count + 1) | values
    array     header | count | offsets (count + 1) | values

Offsets are not trusted: each is checked against the available bytes. All decoded bytes are counted, so that a small
variant cannot expand into a large one by pointing to the same bytes many times. An invalid variant raises
``DataError``.

JSON text follows what Spark's ``to_json`` prints for a variant: no spaces, decimals as plain numbers without trailing
zeros, doubles as Java prints them, ``NaN`` and infinities as strings, timestamps in UTC with their offset, binary as
Base64.
"""

from __future__ import annotations

import base64
import datetime
import enum
import itertools
import math
import struct
import uuid
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple, Union

import numpy as np

from delta_sharing_client.delta.value_texts import non_finite
from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import EPOCH, EPOCH_NTZ, MICROS_PER_DAY, format_date

MAX_DEPTH = 500
MAX_KEY_TEXT = 1 << 28  # characters of field names in one JSON text
VARIANT_NULL = b"\x00"

_VERSION = 1
_PRIMITIVE, _SHORT_STRING, _OBJECT, _ARRAY = 0, 1, 2, 3  # basic types


class VariantMetadata:
    """The dictionary of field names of one variant."""

    __slots__ = ("_ids", "_names", "_offsets", "_text")

    def __init__(self, data: bytes) -> None:
        if not data:
            raise DataError("Variant metadata must have a header byte, but it is empty.")
        if data[0] & 0x0F != _VERSION:
            raise DataError(f"Variant metadata must have version {_VERSION}, found {data[0] & 0x0F}.")
        width = (data[0] >> 6) + 1
        count = int.from_bytes(data[1 : 1 + width], "little")
        start = 1 + width + (count + 1) * width
        if start > len(data):
            raise DataError(
                f"Variant metadata with {count} names must have {start} bytes before the names, found {len(data)}."
            )
        self._offsets = read_unsigned(data, 1 + width, count + 1, width)
        self._text = data[start:]
        if self._offsets[0] != 0 or self._offsets[-1] != len(self._text):
            raise DataError(
                f"The names in variant metadata must span its last {len(self._text)} bytes,"
                f" but the offsets run from {self._offsets[0]} to {self._offsets[-1]}."
            )
        self._names: list[str | None] = [None] * count
        self._ids: dict[str, int] | None = None

    def name(self, field_id: int) -> str:
        """Return the field name with the id ``field_id``."""
        if field_id >= len(self._names):
            raise DataError(f"A variant's field id must be below {len(self._names)}, found {field_id}.")
        name = self._names[field_id]
        if name is None:
            start, stop = self._offsets[field_id], self._offsets[field_id + 1]
            if start > stop or stop > len(self._text):
                raise DataError(
                    f"The offsets in variant metadata must ascend to {len(self._text)}, found {stop} after {start}."
                )
            name = self._names[field_id] = read_text(self._text, start, stop)
        return name

    def id_of(self, name: str) -> int:
        """Return the id of the field name ``name``."""
        if self._ids is None:
            self._ids = {self.name(field_id): field_id for field_id in range(len(self._names))}
        known_id = self._ids.get(name)
        if known_id is None:
            raise DataError(f"Variant metadata must hold the name of every shredded field, but {name!r} is missing.")
        return known_id


class Children(NamedTuple):
    """The children of an object or array: field ids, offsets from ``start``, and the range of all bytes."""

    field_ids: Sequence[int] | None
    offsets: Sequence[int]
    start: int
    stop: int


def layout(value: bytes, at: int, limit: int) -> Children:
    """Return the layout of the object or array at ``at``, which ends at ``limit`` at most."""
    header = value[at] >> 2
    is_object = value[at] & 3 == _OBJECT
    offset_width = (header & 3) + 1
    id_width = (header >> 2 & 3) + 1 if is_object else 0
    count_width = 4 if header >> (4 if is_object else 2) & 1 else 1
    ids_at = at + 1 + count_width
    if ids_at > limit:
        raise DataError("A variant ends inside the size of an object or array.")
    count = int.from_bytes(value[at + 1 : ids_at], "little")
    offsets_at = ids_at + count * id_width
    start = offsets_at + (count + 1) * offset_width
    if start > limit:
        raise DataError(f"A variant's object or array of {count} elements must fit in its {limit - at} bytes.")
    offsets = read_unsigned(value, offsets_at, count + 1, offset_width)
    stop = start + offsets[-1]
    if stop > limit:
        raise DataError(f"A variant's object or array must end within its {limit - at} bytes, found {stop - at}.")
    if count and max(offsets[:-1]) >= offsets[-1]:
        raise DataError("A variant's elements must start before the end of their object or array.")
    return Children(read_unsigned(value, ids_at, count, id_width) if is_object else None, offsets, start, stop)


def size_of(value: bytes, at: int, limit: int) -> int:
    """Return the size of the value at ``at``, which ends at ``limit`` at most."""
    if at >= limit:
        raise DataError("A variant ends where a value must start.")
    basic = value[at] & 3
    if basic == _PRIMITIVE:
        return primitive_size(value, at, limit)
    if basic == _SHORT_STRING:
        size = 1 + (value[at] >> 2)
        if size > limit - at:
            raise DataError(f"A variant ends inside a string: {size} bytes expected, {limit - at} found.")
        return size
    return layout(value, at, limit).stop - at


def is_object(value: bytes) -> bool:
    """Return whether an encoded value is an object."""
    return len(value) > 0 and value[0] & 3 == _OBJECT


class VariantReader:
    """Decodes one value; see :func:`decode` and :func:`decode_json`."""

    __slots__ = ("_budget", "_key_text", "_metadata", "_value")

    def __init__(self, value: bytes, metadata: VariantMetadata) -> None:
        self._value = value
        self._metadata = metadata
        self._budget = len(value)
        self._key_text = MAX_KEY_TEXT

    def python(self, at: int, limit: int, depth: int = 0) -> object:
        """Return the value at ``at`` as Python objects."""
        basic = self._value[at] & 3 if at < limit else _PRIMITIVE
        if basic <= _SHORT_STRING:
            return to_python(*self._scalar(at, limit))
        entered = self._enter(at, limit, depth)
        children: list[object] = []
        for offset in entered.offsets[:-1]:  # not a comprehension, because it would take a second stack frame per level
            children.append(self.python(entered.start + offset, entered.stop, depth + 1))
        if entered.field_ids is None:
            return children
        return dict(zip(self._names(entered.field_ids), children, strict=True))

    def json(self, at: int, limit: int, out: list[str], depth: int = 0) -> None:
        """Append the JSON text of the value at ``at`` to ``out``."""
        basic = self._value[at] & 3 if at < limit else _PRIMITIVE
        if basic <= _SHORT_STRING:
            out.append(to_json(*self._scalar(at, limit)))
            return
        children = self._enter(at, limit, depth)
        if children.field_ids is None:
            separator = "["
            for offset in children.offsets[:-1]:
                out.append(separator)
                self.json(children.start + offset, children.stop, out, depth + 1)
                separator = ","
            out.append("]" if separator == "," else "[]")
            return
        separator = "{"
        for name, offset in zip(self._names(children.field_ids), children.offsets, strict=False):
            out.append(f"{separator}{quote(name)}:")
            self.json(children.start + offset, children.stop, out, depth + 1)
            separator = ","
        out.append("}" if separator == "," else "{}")

    def finish(self) -> None:
        """Raise ``DataError`` if bytes are left after the value."""
        if self._budget:
            raise DataError(f"A variant must end with its value, found {self._budget} bytes after it.")

    def _scalar(self, at: int, limit: int) -> tuple[int, Payload]:
        size = size_of(self._value, at, limit)
        self._spend(size)
        if self._value[at] & 3 == _SHORT_STRING:
            return Primitive.STRING, read_text(self._value, at + 1, at + size)
        return self._value[at] >> 2, read_primitive(self._value, at, size)

    def _enter(self, at: int, limit: int, depth: int) -> Children:
        if depth >= MAX_DEPTH:
            raise DataError(f"A variant must not be nested deeper than {MAX_DEPTH} levels.")
        children = layout(self._value, at, limit)
        self._spend(children.start - at)
        return children

    def _names(self, field_ids: Sequence[int]) -> list[str]:
        names = [self._metadata.name(field_id) for field_id in field_ids]
        if len(set(names)) != len(names):
            raise DataError("The field names of a variant's object must be distinct, found a name twice.")
        self._key_text -= sum(map(len, names))
        if self._key_text < 0:
            raise DataError(f"The field names in a variant must have at most {MAX_KEY_TEXT} characters in total.")
        return names

    def _spend(self, size: int) -> None:
        self._budget -= size
        if self._budget < 0:
            raise DataError("The elements of a variant must not overlap, but they are longer than the variant.")


def decode(value: bytes, metadata: VariantMetadata) -> object:
    """Return an encoded value as Python objects."""
    reader = VariantReader(value, metadata)
    result = reader.python(0, len(value))
    reader.finish()
    return result


def decode_json(value: bytes, metadata: VariantMetadata) -> str:
    """Return an encoded value as JSON text."""
    reader = VariantReader(value, metadata)
    out: list[str] = []
    reader.json(0, len(value), out)
    reader.finish()
    return "".join(out)


# === Encoding ===


def encode_object(fields: Sequence[tuple[str, int, bytes]]) -> bytes:
    """Encode an object of (name, field id, encoded value); names are distinct."""
    ordered = sorted(fields, key=lambda item: item[0].encode("utf-8"))
    return _encode_children([data for _, _, data in ordered], [field_id for _, field_id, _ in ordered])


def encode_array(elements: Sequence[bytes]) -> bytes:
    """Encode an array of encoded values."""
    return _encode_children(elements, None)


def _encode_children(elements: Sequence[bytes], field_ids: Sequence[int] | None) -> bytes:
    offsets = [0, *itertools.accumulate(map(len, elements))]
    if offsets[-1] >> 32:
        raise DataError("A variant's object or array must be smaller than 4 GiB.")
    id_width, offset_width = _width(field_ids or ()), _width(offsets)
    large = len(elements) > 255
    header = (large << 2 | offset_width - 1) << 2 | _ARRAY
    if field_ids is not None:
        header = (large << 4 | id_width - 1 << 2 | offset_width - 1) << 2 | _OBJECT
    return b"".join(
        [
            bytes([header]),
            len(elements).to_bytes(4 if large else 1, "little"),
            *(field_id.to_bytes(id_width, "little") for field_id in field_ids or ()),
            *(offset.to_bytes(offset_width, "little") for offset in offsets),
            *elements,
        ]
    )


def read_unsigned(data: bytes, at: int, count: int, width: int) -> Sequence[int]:
    """Return ``count`` little-endian numbers of ``width`` bytes (1 to 4) from ``at`` on, which must exist."""
    if width == 1:
        return data[at : at + count]
    if width == 3:
        return [int.from_bytes(data[start : start + 3], "little") for start in range(at, at + 3 * count, 3)]
    return struct.unpack_from(f"<{count}{'H' if width == 2 else 'I'}", data, at)


def _width(numbers: Iterable[int]) -> int:
    return max((1, *((number.bit_length() + 7) // 8 for number in numbers)))


# === Scalars ===

SHORT_STRING_LIMIT = 63

_EPOCH_DATE = datetime.date(1970, 1, 1)
_NANOS_PER_SECOND = 1_000_000_000
_NANOS_PER_DAY = MICROS_PER_DAY * 1000


class Primitive(enum.IntEnum):
    """The primitive types by their id."""

    NULL = 0
    TRUE = 1
    FALSE = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    DOUBLE = 7
    DECIMAL4 = 8
    DECIMAL8 = 9
    DECIMAL16 = 10
    DATE = 11
    TIMESTAMP = 12
    TIMESTAMP_NTZ = 13
    FLOAT = 14
    BINARY = 15
    STRING = 16
    TIME = 17
    TIMESTAMP_NANOS = 18
    TIMESTAMP_NTZ_NANOS = 19
    UUID = 20


class Decimals(NamedTuple):
    """``unscaled * 10 ** -scale``."""

    unscaled: int
    scale: int


Payload = Union[None, bool, int, float, str, bytes, Decimals]
"""The stored value of a scalar. Dates and times are integers: days, micro- or nanoseconds since 1970 or midnight."""

_FIXED: dict[int, struct.Struct] = {
    Primitive.INT8: struct.Struct("<b"),
    Primitive.INT16: struct.Struct("<h"),
    Primitive.FLOAT: struct.Struct("<f"),
    Primitive.DOUBLE: struct.Struct("<d"),
    **dict.fromkeys((Primitive.INT32, Primitive.DATE), struct.Struct("<i")),
    **dict.fromkeys((Primitive.INT64, Primitive.TIME), struct.Struct("<q")),
    **dict.fromkeys((Primitive.TIMESTAMP, Primitive.TIMESTAMP_NTZ), struct.Struct("<q")),
    **dict.fromkeys((Primitive.TIMESTAMP_NANOS, Primitive.TIMESTAMP_NTZ_NANOS), struct.Struct("<q")),
}
DECIMALS = {Primitive.DECIMAL4: (4, 9), Primitive.DECIMAL8: (8, 18), Primitive.DECIMAL16: (16, 38)}
"""The number of bytes and the greatest number of digits of the unscaled value."""

_CONSTANTS: dict[int, Payload] = {Primitive.NULL: None, Primitive.TRUE: True, Primitive.FALSE: False}


def primitive_size(value: bytes, at: int, limit: int) -> int:
    """Return the size of the primitive whose header is at ``at``, which ends at ``limit`` at most."""
    kind = value[at] >> 2
    if kind in _CONSTANTS:
        size = 1
    elif kind in _FIXED:
        size = 1 + _FIXED[kind].size
    elif kind in DECIMALS:
        size = 2 + DECIMALS[Primitive(kind)][0]
    elif kind == Primitive.UUID:
        size = 17
    elif kind in (Primitive.BINARY, Primitive.STRING):
        if limit - at < 5:
            raise DataError(f"A variant ends inside a length: 5 bytes expected, {limit - at} found.")
        size = 5 + int.from_bytes(value[at + 1 : at + 5], "little")
    else:
        raise DataError(f"A variant's primitive type must be one of 0 to {max(Primitive).value}, found {kind}.")
    if size > limit - at:
        raise DataError(f"A variant ends inside a value: {size} bytes expected, {limit - at} found.")
    return size


def read_primitive(value: bytes, at: int, size: int) -> Payload:
    """Return the content of the primitive of ``size`` bytes at ``at``."""
    kind = value[at] >> 2
    if (layout := _FIXED.get(kind)) is not None:
        number: int | float = layout.unpack_from(value, at + 1)[0]
        if kind == Primitive.TIME and not 0 <= number < MICROS_PER_DAY:
            raise DataError(f"A variant's time must lie within a day, found {number} microseconds.")
        return number
    if kind == Primitive.STRING:
        return read_text(value, at + 5, at + size)
    if kind == Primitive.BINARY:
        return value[at + 5 : at + size]
    if kind == Primitive.UUID:
        return value[at + 1 : at + size]
    if kind in DECIMALS:
        digits = DECIMALS[Primitive(kind)][1]
        scale, unscaled = value[at + 1], int.from_bytes(value[at + 2 : at + size], "little", signed=True)
        if scale > digits or abs(unscaled) >= 10**digits:
            raise DataError(f"A variant's {Primitive(kind).name.lower()} must have at most {digits} digits.")
        return Decimals(unscaled, scale)
    return _CONSTANTS[kind]


def read_text(value: bytes, start: int, stop: int) -> str:
    """Return the UTF-8 text between two positions."""
    try:
        return value[start:stop].decode("utf-8")
    except UnicodeDecodeError:
        raise DataError("The strings in a variant must be UTF-8, found invalid bytes.") from None


def write_primitive(kind: Primitive, payload: bytes = b"") -> bytes:
    """Encode a primitive from its little-endian bytes: add the header and, for strings and binary, the length."""
    if kind is Primitive.STRING and len(payload) <= SHORT_STRING_LIMIT:
        return bytes([len(payload) << 2 | 1]) + payload
    if kind in (Primitive.STRING, Primitive.BINARY):
        payload = len(payload).to_bytes(4, "little") + payload
    return bytes([kind << 2]) + payload


# === Scalars as Python values and as JSON ===


def to_python(kind: int, payload: Payload) -> object:
    """Return a Python value; a value that Python cannot represent (a year beyond 9999, nanoseconds) becomes text."""
    if isinstance(payload, Decimals):
        return Decimal(f"{payload.unscaled}E-{payload.scale}")
    if kind == Primitive.UUID:
        assert isinstance(payload, bytes)
        return uuid.UUID(bytes=payload)
    if kind in _FORMATS and isinstance(payload, int):
        try:
            return _to_datetime(kind, payload)
        except (OverflowError, ValueError):
            return _FORMATS[kind](payload)
    return payload


def to_json(kind: int, payload: Payload) -> str:
    """Return the JSON text of a value."""
    if payload is None:
        return "null"
    if payload is True:
        return "true"
    if payload is False:
        return "false"
    if isinstance(payload, str):
        return quote(payload)
    if isinstance(payload, float):
        return _float_json(payload, single=kind == Primitive.FLOAT)
    if isinstance(payload, Decimals):
        return _decimal_json(payload)
    if isinstance(payload, bytes):
        text = str(uuid.UUID(bytes=payload)) if kind == Primitive.UUID else base64.b64encode(payload).decode("ascii")
        return f'"{text}"'
    if kind in _FORMATS:
        return f'"{_FORMATS[kind](payload)}"'
    return str(payload)


def quote(text: str) -> str:
    """Return ``text`` as a JSON string; only the characters that must be escaped are escaped."""
    return f'"{text.translate(_ESCAPES)}"'


_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    ord('"'): '\\"', ord("\\"): "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r",
}  # fmt: skip


def _to_datetime(kind: int, payload: int) -> object:
    if kind == Primitive.DATE:
        return _EPOCH_DATE + datetime.timedelta(days=payload)
    if kind in (Primitive.TIMESTAMP_NANOS, Primitive.TIMESTAMP_NTZ_NANOS):
        payload, rest = divmod(payload, 1000)
        if rest:
            raise ValueError("finer than microseconds")
    since = datetime.timedelta(microseconds=payload)
    if kind == Primitive.TIME:
        return (EPOCH_NTZ + since).time()
    return (EPOCH if kind in (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NANOS) else EPOCH_NTZ) + since


def _time_text(nanos: int) -> str:
    seconds, fraction = divmod(nanos, _NANOS_PER_SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def _nanos_text(nanos: int) -> str:
    days, rest = divmod(nanos, _NANOS_PER_DAY)
    return f"{format_date(days)} {_time_text(rest)}"


_FORMATS = {
    int(Primitive.DATE): format_date,
    int(Primitive.TIME): lambda micros: _time_text(micros * 1000),
    int(Primitive.TIMESTAMP): lambda micros: _nanos_text(micros * 1000) + "+00:00",
    int(Primitive.TIMESTAMP_NTZ): lambda micros: _nanos_text(micros * 1000),
    int(Primitive.TIMESTAMP_NANOS): lambda nanos: _nanos_text(nanos) + "+00:00",
    int(Primitive.TIMESTAMP_NTZ_NANOS): _nanos_text,
}


def _decimal_json(value: Decimals) -> str:
    sign = "-" if value.unscaled < 0 else ""
    digits = str(abs(value.unscaled))
    if not value.scale:
        return sign + digits
    digits = digits.rjust(value.scale + 1, "0")
    fraction = digits[-value.scale :].rstrip("0")
    return sign + digits[: -value.scale] + (f".{fraction}" if fraction else "")


def _float_json(value: float, *, single: bool) -> str:
    if not math.isfinite(value):
        return f'"{non_finite(value)}"'
    number = np.float32(value) if single else np.float64(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    mantissa, exponent = str(np.format_float_scientific(number, unique=True, trim="0")).split("e")
    return f"{mantissa}E{int(exponent)}"
