"""Decodes the partition values of manifests into the types that the table has now (Iceberg, "Schema Evolution").

A manifest has the values in the types of the time when it was written: a decimal in fewer bytes, a date where the
column is a timestamp now. They are decoded once, when the manifest is opened, so that values of older and newer
manifests are equal if they mean the same.
"""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from delta_sharing_client.delta import uuids
from delta_sharing_client.delta.data_types import DataType, DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.delta.partition_values import binary_text
from delta_sharing_client.delta.value_texts import non_finite
from delta_sharing_client.iceberg.avro import StoredType
from delta_sharing_client.iceberg.metadata import PartitionField, PartitionSpec
from delta_sharing_client.iceberg.single_values import NANOS_PER_UNIT, unscaled
from delta_sharing_client.iceberg.transforms import Transform, field_id_of, source_id_of
from delta_sharing_client.instants import NANOS_PER_DAY, civil_of, format_clock

_LAST_YEAR = 9999
_INTEGERS = ("int", "long")
_FLOATS = ("float", "double")
_BYTES = ("bytes", "fixed")
# The Avro types that each type may have. Types that are not listed cannot partition a table.
_STORED = {
    "boolean": ("boolean",), "integer": _INTEGERS, "long": _INTEGERS, "float": _FLOATS, "double": _FLOATS,
    "date": _INTEGERS, "time": _INTEGERS, "string": ("string",), "binary": _BYTES, "uuid": (*_BYTES, "string"),
    "timestamp": _INTEGERS, "timestamp_ntz": _INTEGERS, "timestamp_nanos": _INTEGERS, "timestamp_nanos_ntz": _INTEGERS,
}  # fmt: skip
_NANOS_OF_LOGICAL = {"millis": 1_000_000, "micros": 1000, "nanos": 1}

Convert = Callable[[Any], Any]


class Undecoded(NamedTuple):
    """A value that is not of its column's type. It gives no bounds and is never compared with another value."""

    raw: Any


class PartitionTypes:
    """The types of a table's partition fields: ``columns`` has the source columns by field id, as the table has them
    now, each pruned to one column of a simple type."""

    def __init__(self, specs: Mapping[int, PartitionSpec], columns: Mapping[int, StructField]) -> None:
        self.specs = specs
        self._columns = columns

    def decoder(
        self, spec_id: int, stored: Mapping[str, StoredType]
    ) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
        """Return the function that decodes the partition values of a manifest, by the ids of the partition fields.

        ``stored`` has the types in the manifest. Values have the forms of ``delta.statistics.ColumnBounds``; those of a
        field without a known type are left as they are, except dates, times and decimals.
        """
        converts: list[tuple[str, Convert]] = []
        for place, field in enumerate(self.specs[spec_id].fields):
            key = str(field_id_of(field, place))
            if key in stored:
                convert = _conversion(self._result_type(field), stored[key])
                if convert is not None:
                    converts.append((key, convert))

        def decode(values: Mapping[str, Any]) -> Mapping[str, Any]:
            decoded = dict(values)
            for key, convert in converts:
                if (value := decoded.get(key)) is not None:
                    decoded[key] = convert(value)
            return decoded

        return decode if converts else dict

    def _result_type(self, field: PartitionField) -> DataType | None:
        name = Transform.parse(field.transform).name
        if name in ("bucket", "year", "month", "day", "hour"):
            return PrimitiveType("integer")
        column = self._columns.get(source_id_of(field))
        return None if column is None or name not in ("identity", "truncate") else _leaf_type(column)


def _leaf_type(column: StructField) -> DataType:
    data_type = column.type
    while isinstance(data_type, StructType):
        data_type = data_type.fields[0].type
    return data_type


def _conversion(data_type: DataType | None, stored: StoredType) -> Convert | None:
    """Return the function that converts values in Avro to ``data_type``, ``None`` if they stay as they are."""
    if stored.name == "null":
        return None
    if data_type is None:
        return _by_logical_type(stored)
    if isinstance(data_type, DecimalType):
        if stored.name not in _BYTES:
            return Undecoded
        return _decimal(data_type.scale if stored.scale is None else stored.scale)
    base = data_type.base if isinstance(data_type, PrimitiveType) else ""
    if stored.name not in _STORED.get(base, ()):
        return Undecoded
    if base == "uuid":
        return _uuid
    if base in NANOS_PER_UNIT:
        return _in_nanos(stored, NANOS_PER_UNIT[base], is_time=base == "time")
    return None


def _by_logical_type(stored: StoredType) -> Convert | None:
    """Return the conversion for a field whose column or transform is unknown, so that its values can be compared."""
    if stored.name in _BYTES and stored.logical == "decimal":
        return _decimal(stored.scale or 0)
    is_of_time = stored.logical == "date" or stored.logical.startswith(("timestamp", "local-timestamp"))
    return _in_nanos(stored, 1000, is_time=False) if is_of_time else None


def _in_nanos(stored: StoredType, default: int, *, is_time: bool) -> Convert:
    if not is_time and (stored.logical == "date" or (stored.name == "int" and not stored.logical)):
        # The column was a date when the manifest was written.
        return lambda days: days * NANOS_PER_DAY
    nanos = _NANOS_OF_LOGICAL.get(stored.logical.rpartition("-")[2], default)
    return lambda count: count * nanos


def _decimal(scale: int) -> Convert:
    def convert(raw: bytes) -> Any:
        value = unscaled(raw, scale)
        return Undecoded(raw) if value is None else value

    return convert


def _uuid(raw: Any) -> Any:
    if isinstance(raw, bytes):
        return uuids.text_of(raw) or Undecoded(raw)
    return uuids.canonical(raw) or Undecoded(raw)


# === Decoded values ===


def value_key(value: Any) -> Any:
    """Return a key that is equal for equal partition values: zeros of different sign differ, and NaN equals itself, as
    in Iceberg's own readers."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    return value


def partition_text(value: Any, data_type: DataType) -> str | None:
    """Return a decoded partition value as text for a log; ``None`` for null, and for a value without a text: a log has
    only the years 0 to 9999. Such values are read from the files."""
    if value is None or isinstance(value, Undecoded):
        return None
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else non_finite(value)
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
        return binary_text(value) or ""
    return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)


def _date_text(days: int) -> str | None:
    year, month, day = civil_of(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 <= year <= _LAST_YEAR else None


def _timestamp_text(nanos: int) -> str | None:
    days, rest = divmod(nanos, NANOS_PER_DAY)
    date = _date_text(days)
    return None if date is None else f"{date} {format_clock(rest)}"
