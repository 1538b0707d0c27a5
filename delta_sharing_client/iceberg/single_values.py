"""Decodes single values in Iceberg's metadata: bounds of columns, and partition values (Iceberg, Appendix D).

Bounds have the forms of ``delta.statistics.ColumnBounds``. A bound that cannot be decoded is unknown, never an error.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import Any, Optional

from delta_sharing_client import optional
from delta_sharing_client.delta import uuids
from delta_sharing_client.delta.data_types import DataType, DecimalType, PrimitiveType
from delta_sharing_client.delta.partition_values import binary_text
from delta_sharing_client.delta.value_texts import non_finite
from delta_sharing_client.instants import NANOS_PER_DAY, civil_of, format_clock

EXTRA = "iceberg"
_DAYS = struct.Struct("<i")
_LAST_YEAR = 9999
# The classes in pyiceberg.types for the types of Delta schemas.
_CLASSES = {
    "boolean": "BooleanType", "integer": "IntegerType", "long": "LongType", "float": "FloatType",
    "double": "DoubleType", "date": "DateType", "timestamp": "TimestamptzType", "timestamp_ntz": "TimestampType",
    "timestamp_nanos": "TimestamptzNanoType", "timestamp_nanos_ntz": "TimestampNanoType", "string": "StringType",
    "binary": "BinaryType", "time": "TimeType", "uuid": "UUIDType",
}  # fmt: skip
_NANOS = {"timestamp": 1000, "timestamp_ntz": 1000, "timestamp_nanos": 1, "timestamp_nanos_ntz": 1, "time": 1000}
_MICROS = [base for base, nanos in _NANOS.items() if nanos == 1000]
Decode = Callable[[bytes], Any]
DecodePair = Callable[[Optional[bytes], Optional[bytes]], tuple[Any, Any]]


@functools.lru_cache(maxsize=256)
def iceberg_type(data_type: DataType) -> Any:
    """Return pyiceberg's type, ``None`` for a type whose single values are not compared."""
    if isinstance(data_type, DecimalType):
        return optional.load("pyiceberg.types", EXTRA).DecimalType(data_type.precision, data_type.scale)
    name = _CLASSES.get(data_type.base) if isinstance(data_type, PrimitiveType) else None
    return None if name is None else getattr(optional.load("pyiceberg.types", EXTRA), name)()


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
    kind = iceberg_type(data_type)
    if kind is None:
        return None
    from_bytes = optional.load("pyiceberg.conversions", EXTRA).from_bytes
    base = getattr(data_type, "base", "")
    nanos = _NANOS.get(base)

    def decode(data: bytes) -> Any:
        try:
            # The bytes are a date, which was written before the column's type was widened.
            if nanos is not None and len(data) == _DAYS.size and base != "time":
                return _DAYS.unpack(data)[0] * NANOS_PER_DAY
            value: Any = uuids.text_of(data) if base == "uuid" else from_bytes(kind, data)
        except (struct.error, UnicodeDecodeError, ArithmeticError, ValueError):
            return None
        if nanos is not None:
            return value * nanos
        return None if value != value else value

    return decode


# === Partition values, as Avro has them ===


def partition_value(raw: Any, data_type: DataType) -> Any:
    """Return the value of an identity partition field, as in ``ColumnBounds``; ``None`` if unknown or null."""
    if raw is None:
        return None
    if isinstance(data_type, DecimalType):
        decode = value_decoder(data_type)
        return decode(raw) if decode is not None and isinstance(raw, bytes) else None
    base = data_type.base if isinstance(data_type, PrimitiveType) else ""
    expected = _RAW.get(base)
    is_own = expected is not None and type(raw) is expected
    if not is_own:
        return None
    if base in _MICROS:
        return raw * 1000
    if base == "uuid":
        return uuids.text_of(raw)
    return None if raw != raw else raw


_RAW: dict[str, type] = {
    "boolean": bool, "integer": int, "long": int, "float": float, "double": float, "date": int, "string": str,
    "binary": bytes, "time": int, "uuid": bytes,
    "timestamp": int, "timestamp_ntz": int, "timestamp_nanos": int, "timestamp_nanos_ntz": int,
}  # fmt: skip


def partition_text(raw: Any, data_type: DataType) -> str | None:
    """Return a partition value as text for a log; ``None`` if a log cannot represent it.

    A log cannot distinguish an empty string from null, and has only the years 0 to 9999. Other values are read from the
    files.
    """
    value = partition_value(raw, data_type)
    if isinstance(raw, float) and type(raw) is _RAW.get(getattr(data_type, "base", "")):
        return repr(raw) if math.isfinite(raw) else non_finite(raw)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    base = data_type.base if isinstance(data_type, PrimitiveType) else "decimal"
    if base == "date":
        return _date_text(value)
    if base == "time":
        return format_clock(value) if 0 <= value < NANOS_PER_DAY else None
    if base.startswith("timestamp"):
        return _timestamp_text(value)
    if isinstance(value, bytes):
        return binary_text(value)
    return f"{value:f}" if base == "decimal" else str(value) or None


def _date_text(days: int) -> str | None:
    year, month, day = civil_of(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 <= year <= _LAST_YEAR else None


def _timestamp_text(nanos: int) -> str | None:
    days, rest = divmod(nanos, NANOS_PER_DAY)
    date = _date_text(days)
    return None if date is None else f"{date} {format_clock(rest)}"
