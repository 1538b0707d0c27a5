"""Single values of Iceberg's metadata: bounds of columns, and partition values (Iceberg, Appendix D).

Bounds have the forms of ``delta.statistics.ColumnBounds``. A bound that does not decode is unknown, never an error.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from typing import Any

from delta_sharing_client import optional
from delta_sharing_client.delta.data_types import DataType, DecimalType, PrimitiveType
from delta_sharing_client.delta.partition_values import binary_text
from delta_sharing_client.delta.value_texts import non_finite
from delta_sharing_client.instants import NANOS_PER_DAY, civil_of

EXTRA = "iceberg"
_DAYS = struct.Struct("<i")
_LAST_YEAR = 9999
# The classes of pyiceberg.types, by the types of the actions.
_CLASSES = {
    "boolean": "BooleanType", "integer": "IntegerType", "long": "LongType", "float": "FloatType",
    "double": "DoubleType", "date": "DateType", "timestamp": "TimestamptzType", "timestamp_ntz": "TimestampType",
    "timestamp_nanos": "TimestamptzNanoType", "timestamp_nanos_ntz": "TimestampNanoType", "string": "StringType",
    "binary": "BinaryType",
}  # fmt: skip
_NANOS = {"timestamp": 1000, "timestamp_ntz": 1000, "timestamp_nanos": 1, "timestamp_nanos_ntz": 1}


@functools.lru_cache(maxsize=256)
def iceberg_type(data_type: DataType) -> Any:
    """Return pyiceberg's type, ``None`` for a type without single values that are compared."""
    if isinstance(data_type, DecimalType):
        return optional.load("pyiceberg.types", EXTRA).DecimalType(data_type.precision, data_type.scale)
    name = _CLASSES.get(data_type.base) if isinstance(data_type, PrimitiveType) else None
    return None if name is None else getattr(optional.load("pyiceberg.types", EXTRA), name)()


def bound_decoder(data_type: DataType) -> Callable[[bytes], Any] | None:
    """Return the decoder of a column's lower and upper bounds; ``None`` if they do not describe an order.

    The decoder returns ``None`` for bytes that are no value of the type, and for ``NaN``.
    """
    kind = iceberg_type(data_type)
    if kind is None:
        return None
    from_bytes = optional.load("pyiceberg.conversions", EXTRA).from_bytes
    nanos = _NANOS.get(getattr(data_type, "base", ""))

    def decode(data: bytes) -> Any:
        try:
            # A date, from before the column was widened.
            if nanos is not None and len(data) == _DAYS.size:
                return _DAYS.unpack(data)[0] * NANOS_PER_DAY
            found = from_bytes(kind, data)
        except (struct.error, UnicodeDecodeError, ArithmeticError, ValueError):
            return None
        if nanos is not None:
            return found * nanos
        return None if found != found else found

    return decode


# === Partition values, as Avro has them ===


def partition_value(raw: Any, data_type: DataType) -> Any:
    """Return the value that identity wrote for a column, as in ``ColumnBounds``; ``None`` if unknown or null."""
    if raw is None:
        return None
    if isinstance(data_type, DecimalType):
        decode = bound_decoder(data_type)
        return decode(raw) if decode is not None and isinstance(raw, bytes) else None
    base = data_type.base if isinstance(data_type, PrimitiveType) else ""
    expected = _RAW.get(base)
    is_own = expected is not None and type(raw) is expected
    if not is_own:
        return None
    if base in ("timestamp", "timestamp_ntz"):
        return raw * 1000
    return None if raw != raw else raw


_RAW: dict[str, type] = {
    "boolean": bool, "integer": int, "long": int, "float": float, "double": float, "date": int, "string": str,
    "binary": bytes, "timestamp": int, "timestamp_ntz": int, "timestamp_nanos": int, "timestamp_nanos_ntz": int,
}  # fmt: skip


def partition_text(raw: Any, data_type: DataType) -> str | None:
    """Return a partition value as text of a log; ``None`` if a log has no text for it.

    A log cannot tell an empty text from null, and has no years but 0 to 9999. The files have such values, too.
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
    seconds, fraction = divmod(rest, 1_000_000_000)
    date = _date_text(days)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return None if date is None else f"{date} {clock}.{fraction:09}"
