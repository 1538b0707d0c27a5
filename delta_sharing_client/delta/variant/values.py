"""The scalar values of a variant, and how they are shown (Parquet "Variant Binary Encoding", "Encoding types").

JSON text follows what Spark's ``to_json`` prints for a variant: no spaces, decimals as plain numbers without trailing
zeros, doubles as Java prints them, ``NaN`` and infinities as strings, timestamps in UTC with their offset, binary as
Base64.
"""

from __future__ import annotations

import base64
import datetime
import enum
import math
import struct
import uuid
from decimal import Decimal
from typing import NamedTuple, Union

import numpy as np

from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import MICROS_PER_DAY, civil_of

SHORT_STRING_LIMIT = 63

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_EPOCH_NTZ = datetime.datetime(1970, 1, 1)
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
"""What is stored; points in time are integers (days, microseconds or nanoseconds since 1970, or since midnight)."""

_FIXED: dict[int, struct.Struct] = {
    Primitive.INT8: struct.Struct("<b"),
    Primitive.INT16: struct.Struct("<h"),
    Primitive.INT32: struct.Struct("<i"),
    Primitive.INT64: struct.Struct("<q"),
    Primitive.DOUBLE: struct.Struct("<d"),
    Primitive.DATE: struct.Struct("<i"),
    Primitive.TIMESTAMP: struct.Struct("<q"),
    Primitive.TIMESTAMP_NTZ: struct.Struct("<q"),
    Primitive.FLOAT: struct.Struct("<f"),
    Primitive.TIME: struct.Struct("<q"),
    Primitive.TIMESTAMP_NANOS: struct.Struct("<q"),
    Primitive.TIMESTAMP_NTZ_NANOS: struct.Struct("<q"),
}
_DECIMALS = {Primitive.DECIMAL4: (4, 9), Primitive.DECIMAL8: (8, 18), Primitive.DECIMAL16: (16, 38)}
_CONSTANTS: dict[int, Payload] = {Primitive.NULL: None, Primitive.TRUE: True, Primitive.FALSE: False}


# === Bytes ===


def primitive_size(value: bytes, at: int, limit: int) -> int:
    """Return the number of bytes of the primitive whose header is at ``at``; ``limit`` is where its bytes end at most.

    Raises
    ------
    DataError
        The type is unknown, or the bytes end too soon.
    """
    kind = value[at] >> 2
    if kind in _CONSTANTS:
        size = 1
    elif kind in _FIXED:
        size = 1 + _FIXED[kind].size
    elif kind in _DECIMALS:
        size = 2 + _DECIMALS[Primitive(kind)][0]
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
    """Return what the primitive of ``size`` bytes at ``at`` stores."""
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
    if kind in _DECIMALS:
        digits = _DECIMALS[Primitive(kind)][1]
        scale, unscaled = value[at + 1], int.from_bytes(value[at + 2 : at + size], "little", signed=True)
        if scale > digits or abs(unscaled) >= 10**digits:
            raise DataError(f"A variant's {Primitive(kind).name.lower()} must have at most {digits} digits.")
        return Decimals(unscaled, scale)
    return _CONSTANTS[kind]


def read_text(value: bytes, start: int, stop: int) -> str:
    """Return the UTF-8 text between two positions.

    Raises
    ------
    DataError
        The bytes are not UTF-8.
    """
    try:
        return value[start:stop].decode("utf-8")
    except UnicodeDecodeError:
        raise DataError("Text in a variant must be UTF-8, found other bytes.") from None


def write_primitive(kind: Primitive, payload: bytes = b"") -> bytes:
    """Return the encoding of a primitive whose bytes are already little-endian (length and header are added)."""
    if kind is Primitive.STRING and len(payload) <= SHORT_STRING_LIMIT:
        return bytes([len(payload) << 2 | 1]) + payload
    if kind in (Primitive.STRING, Primitive.BINARY):
        payload = len(payload).to_bytes(4, "little") + payload
    return bytes([kind << 2]) + payload


# === As Python values and as JSON ===


def to_python(kind: int, payload: Payload) -> object:
    """Return a Python value; what Python's types cannot hold (years beyond 9999, nanoseconds) is its text."""
    if isinstance(payload, Decimals):
        digits = tuple(int(digit) for digit in str(abs(payload.unscaled)))
        return Decimal((int(payload.unscaled < 0), digits, -payload.scale))
    if kind == Primitive.UUID and isinstance(payload, bytes):
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
    """Return ``text`` as a JSON string; only what JSON requires is escaped."""
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
        return (_EPOCH_NTZ + since).time()
    return (_EPOCH if kind in (Primitive.TIMESTAMP, Primitive.TIMESTAMP_NANOS) else _EPOCH_NTZ) + since


def _date_text(days: int) -> str:
    year, month, day = civil_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"


def _time_text(nanos: int) -> str:
    seconds, fraction = divmod(nanos, _NANOS_PER_SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def _nanos_text(nanos: int) -> str:
    days, rest = divmod(nanos, _NANOS_PER_DAY)
    return f"{_date_text(days)} {_time_text(rest)}"


_FORMATS = {
    int(Primitive.DATE): _date_text,
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
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    number = np.float32(value) if single else np.float64(value)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(np.format_float_positional(number, unique=True, trim="0"))
    mantissa, exponent = str(np.format_float_scientific(number, unique=True, trim="0")).split("e")
    return f"{mantissa}E{int(exponent)}"
