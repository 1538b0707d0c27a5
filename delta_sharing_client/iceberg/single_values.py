"""Decodes single values in Iceberg's metadata: bounds of columns, and summaries of partition values (Iceberg, Appendix
D).

Bounds have the forms of ``delta.statistics.ColumnBounds``. Metadata does not state the type in which a bound was
written: its length shows whether the column had a narrower type at that time ("Schema Evolution"). A bound that cannot
be decoded is unknown, never an error.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Callable
from typing import Any, Optional

from delta_sharing_client.delta import uuids
from delta_sharing_client.delta.data_types import DataType, DecimalType, PrimitiveType
from delta_sharing_client.instants import NANOS_PER_DAY

EXTRA = "iceberg"
_MOST_DECIMAL_BYTES = 16
_INT, _LONG, _FLOAT, _DOUBLE = (struct.Struct(form) for form in ("<i", "<q", "<f", "<d"))
# The forms of the types whose values have a fixed length, by that length.
_NUMBERS = {
    "boolean": {1: struct.Struct("<?")},
    "integer": {4: _INT},
    "long": {4: _INT, 8: _LONG},
    "float": {4: _FLOAT},
    "double": {4: _FLOAT, 8: _DOUBLE},
    "date": {4: _INT},
}
NANOS_PER_UNIT = {
    "timestamp": 1000, "timestamp_ntz": 1000, "timestamp_nanos": 1, "timestamp_nanos_ntz": 1, "time": 1000
}  # fmt: skip
"""The nanoseconds in one unit of each type of times."""
Decode = Callable[[bytes], Any]
DecodePair = Callable[[Optional[bytes], Optional[bytes]], tuple[Any, Any]]


def bounds_decoder(data_type: DataType) -> DecodePair | None:
    """Return the decoder of a column's lower and upper bound; ``None`` for a type whose bounds are not used.

    The decoder returns ``None`` for an unknown bound: one that is missing, not a value of the type, or ``NaN``.
    """
    decode = value_decoder(data_type)
    if decode is None:
        return None

    def decode_both(lower: bytes | None, upper: bytes | None) -> tuple[Any, Any]:
        return None if lower is None else decode(lower), None if upper is None else decode(upper)

    return _uuids_between if data_type == PrimitiveType("uuid") else decode_both


def _uuids_between(lower: bytes | None, upper: bytes | None) -> tuple[str | None, str | None]:
    """Return bounds that are right in both cases: if the writer compared the bytes, as Parquet does, or two signed
    numbers of 64 bits, as Iceberg's library for Java does (apache/iceberg issue 14216)."""
    half = uuids.STORED.byte_width // 2
    if lower is None or upper is None or not len(lower) == len(upper) == 2 * half:
        return None, None
    # If the first numbers have the same sign, both orders agree on them; the second number may be any.
    if (lower[0] ^ upper[0]) & 0x80 or lower[:half] > upper[:half]:
        return None, None
    if lower == upper:
        return uuids.text_of(lower), uuids.text_of(upper)
    return uuids.text_of(lower[:half] + bytes(half)), uuids.text_of(upper[:half] + b"\xff" * half)


def value_decoder(data_type: DataType) -> Decode | None:
    """Return the decoder of a single value; ``None`` for a type without values that are compared.

    The decoder returns ``None`` for bytes that are not a value of the type, and for ``NaN``.
    """
    if isinstance(data_type, DecimalType):
        scale = data_type.scale
        return lambda data: unscaled(data, scale)
    base = data_type.base if isinstance(data_type, PrimitiveType) else ""
    if base in NANOS_PER_UNIT:
        return _nanos_decoder(NANOS_PER_UNIT[base], may_be_date=base != "time")
    return _DECODERS.get(base) or (_number_decoder(_NUMBERS[base]) if base in _NUMBERS else None)


def _number_decoder(forms: dict[int, struct.Struct]) -> Decode:
    def decode(data: bytes) -> Any:
        form = forms.get(len(data))
        value = None if form is None else form.unpack(data)[0]
        return None if value != value else value

    return decode


def _nanos_decoder(nanos: int, *, may_be_date: bool) -> Decode:
    def decode(data: bytes) -> Any:
        if len(data) == _LONG.size:
            return _LONG.unpack(data)[0] * nanos
        # Four bytes are a date, which was written before the column's type was widened.
        is_date = may_be_date and len(data) == _INT.size
        return _INT.unpack(data)[0] * NANOS_PER_DAY if is_date else None

    return decode


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


_DECODERS: dict[str, Decode] = {"string": _text, "binary": bytes, "uuid": uuids.text_of}


def unscaled(data: bytes, scale: int) -> decimal.Decimal | None:
    """Return the decimal of ``scale`` digits after the point whose unscaled value has the bytes ``data``; ``None`` if
    their number is not that of a decimal."""
    if not 0 < len(data) <= _MOST_DECIMAL_BYTES:
        return None
    number = int.from_bytes(data, "big", signed=True)
    return decimal.Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
