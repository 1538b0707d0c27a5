"""A table of the types that are not nested; a row has everything that the package needs to know about its type."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.arrow_forms import is_bytes, is_text
from delta_sharing_client.delta import uuids, value_bounds, value_texts
from delta_sharing_client.delta.data_types import (
    DAY_TIME_UNITS,
    YEAR_MONTH_UNITS,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
)
from delta_sharing_client.instants import NANOS_PER_DAY

# === How files may store values of a type (Delta log protocol, "Type Widening") ===
# Each function takes the target Arrow type and the file's Arrow type. It returns a conversion of arrays, or None if
# the conversion would not be exact.


Convert = Callable[[pa.Array], pa.Array]
Stored = Optional[Convert]


def _stored_as(*forms: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType, pa.DataType], Stored]:
    """Return a function that casts the types for which one of ``forms`` is true."""
    return lambda arrow, stored: _cast(arrow) if any(form(stored) for form in forms) else None


def _stored_text(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    # Fixed-length bytes are UUIDs or numbers; as text they would be different values.
    if not (is_text(stored) or is_bytes(stored)):
        return None
    # Invalid UTF-8 is detected later, together with its row.
    options = pc.CastOptions(arrow, allow_invalid_utf8=True)
    return lambda array: array.cast(options=options)


def _stored_floating(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    narrower = pa.types.is_floating(stored) and stored.bit_width < arrow.bit_width
    return _cast(arrow) if narrower or pa.types.is_integer(stored) else None


def _stored_exact_decimal(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    if pa.types.is_decimal(stored):
        return _cast(arrow)
    if not pa.types.is_integer(stored):
        return None
    # Arrow only casts to a decimal with room for every value of the integer type; the second cast checks the values.
    digits = 20 + arrow.scale
    room = pa.decimal128(digits, arrow.scale) if digits <= 38 else pa.decimal256(digits, arrow.scale)
    return lambda array: array.cast(room).cast(arrow)


def _stored_timestamp(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    if not pa.types.is_timestamp(stored):
        return None
    # INT96 and zone-less INT64 values are in UTC, as in Spark; the number is the same with and without a zone.
    if stored.unit == arrow.unit:
        return lambda array: array.view(arrow)
    return lambda array: array.cast(pa.timestamp(arrow.unit, tz=stored.tz)).view(arrow)


def _stored_timestamp_ntz(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    return _from_dates(arrow) if pa.types.is_date(stored) else _stored_timestamp(arrow, stored)


def _from_dates(arrow: pa.DataType) -> Convert:
    farthest = ((1 << 63) - 1) // (NANOS_PER_DAY // (1 if arrow.unit == "ns" else 1000))

    def convert(array: pa.Array) -> pa.Array:
        days = array.cast(pa.date32()).view(pa.int32())
        ends = pc.min_max(days).as_py()
        # Older versions of Arrow return wrong timestamps for dates beyond the range of the type.
        if ends["max"] is not None and not -farthest <= ends["min"] <= ends["max"] <= farthest:
            raise pa.ArrowInvalid(f"a date is out of the range of {arrow}")
        return array.cast(arrow)

    return convert


def _stored_day_time_interval(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    if stored == pa.int64():
        return lambda array: array.view(arrow)
    return _cast(arrow) if pa.types.is_duration(stored) else None


def _stored_uuid(arrow: pa.DataType, stored: pa.DataType) -> Stored:
    return uuids.to_text if stored == uuids.STORED else None


def _cast(arrow: pa.DataType) -> Convert:
    return lambda array: array.cast(arrow)


_STORED_BINARY = _stored_as(is_text, is_bytes, pa.types.is_fixed_size_binary)


# === One row per type ===


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """Everything that the package knows about a type that is not nested.

    ``arrow`` also determines how filters compare values and how pandas shows them
    (``predicates.value_kinds.kind_of``, ``outputs.pandas``).

    Attributes
    ----------
    arrow:
        The Arrow type of returned values; for a decimal it depends on its digits (``to_arrow_type``).
    width:
        Approximate bytes per value in a file, to estimate the size of a column in a file before it is read.
    text:
        Parses a partition value; ``None`` if columns of the type cannot partition a table.
    statistics:
        Returns the functions that convert a column's minimum and maximum in the log to bounds.
    footer:
        Converts a column's minimum and maximum in a Parquet footer to bounds.
    stored:
        Returns the exact conversion from a different type in a file to this type, ``None`` if there is none.
    spark:
        The class in ``pyspark.sql.types``, which an older PySpark may lack; ``None`` if Spark does not accept such
        values from Python.
    """

    arrow: pa.DataType
    width: float
    text: Callable[[str, Any], object] | None = None
    statistics: Callable[[StructField], value_bounds.Converters] = value_bounds.no_statistics
    footer: Callable[[Any, Any, pa.DataType], value_bounds.Footer] = value_bounds.no_footer
    stored: Callable[[pa.DataType, pa.DataType], Stored] = lambda arrow, stored: None
    spark: str | None = None


VARIANT_ARROW_TYPE = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
"""The type in which an unshredded variant is stored."""


def _integer(arrow: pa.DataType, spark: str) -> TypeRow:
    return TypeRow(
        arrow=arrow,
        width=arrow.bit_width / 8,
        text=functools.partial(value_texts.integer, bits=arrow.bit_width),
        statistics=value_bounds.integer_statistics,
        footer=value_bounds.integer_footer,
        stored=_stored_as(pa.types.is_integer),
        spark=spark,
    )


def _floating(arrow: pa.DataType, spark: str, statistics: Callable[[StructField], value_bounds.Converters]) -> TypeRow:
    return TypeRow(
        arrow=arrow,
        width=arrow.bit_width / 8,
        text=functools.partial(value_texts.floating, bits=arrow.bit_width),
        statistics=statistics,
        footer=value_bounds.floating_footer,
        stored=_stored_floating,
        spark=spark,
    )


def _timestamp(
    arrow: pa.DataType, spark: str | None, statistics: Callable[[StructField], value_bounds.Converters]
) -> TypeRow:
    unit = "microseconds" if arrow.unit == "us" else "nanoseconds"
    return TypeRow(
        arrow=arrow,
        width=8.0,
        text=functools.partial(value_texts.timestamp, zoned=arrow.tz is not None, unit=unit),
        statistics=statistics,
        footer=value_bounds.timestamp_footer,
        stored=_stored_timestamp,
        spark=spark,
    )


# Statistics of these types are bounding boxes, not ranges of the bytes, so they cannot skip files.
_WELL_KNOWN_BINARY = TypeRow(arrow=pa.binary(), width=40.0, stored=_STORED_BINARY, spark="BinaryType")


TYPES: dict[str, TypeRow] = {
    "string": TypeRow(
        arrow=pa.string(),
        width=12.0,
        text=value_texts.string,
        statistics=value_bounds.text_statistics,
        footer=value_bounds.text_footer,
        stored=_stored_text,
        spark="StringType",
    ),
    "long": _integer(pa.int64(), "LongType"),
    "integer": _integer(pa.int32(), "IntegerType"),
    "short": _integer(pa.int16(), "ShortType"),
    "byte": _integer(pa.int8(), "ByteType"),
    "float": _floating(pa.float32(), "FloatType", value_bounds.float_statistics),
    "double": _floating(pa.float64(), "DoubleType", value_bounds.double_statistics),
    "decimal": TypeRow(
        arrow=pa.decimal128(38, 0),
        width=8.0,
        text=value_texts.exact_decimal,
        statistics=value_bounds.decimal_statistics,
        footer=value_bounds.decimal_footer,
        stored=_stored_exact_decimal,
        spark="DecimalType",
    ),
    "boolean": TypeRow(
        arrow=pa.bool_(),
        width=0.2,
        text=value_texts.boolean,
        statistics=value_bounds.boolean_statistics,
        footer=value_bounds.boolean_footer,
        spark="BooleanType",
    ),
    "binary": TypeRow(
        arrow=pa.binary(),
        width=12.0,
        text=value_texts.binary,
        footer=value_bounds.binary_footer,
        stored=_STORED_BINARY,
        spark="BinaryType",
    ),
    "date": TypeRow(
        arrow=pa.date32(),
        width=3.0,
        text=value_texts.date,
        statistics=value_bounds.date_statistics,
        footer=value_bounds.date_footer,
        stored=_stored_as(pa.types.is_date),
        spark="DateType",
    ),
    "timestamp": _timestamp(pa.timestamp("us", tz="UTC"), "TimestampType", value_bounds.timestamp_statistics),
    "timestamp_ntz": TypeRow(
        arrow=pa.timestamp("us"),
        width=8.0,
        text=functools.partial(value_texts.timestamp, zoned=False),
        statistics=value_bounds.timestamp_ntz_statistics,
        footer=value_bounds.timestamp_ntz_footer,
        stored=_stored_timestamp_ntz,
        spark="TimestampNTZType",
    ),
    "time": TypeRow(
        arrow=pa.time64("us"),
        width=8.0,
        text=value_texts.time_of_day,
        footer=value_bounds.time_footer,
        stored=_stored_as(pa.types.is_time),
        spark="TimeType",
    ),
    "uuid": TypeRow(
        arrow=pa.string(),
        width=16.0,
        text=value_texts.uuid_text,
        footer=value_bounds.uuid_footer,
        stored=_stored_uuid,
        spark="StringType",
    ),
    "timestamp_nanos": _timestamp(pa.timestamp("ns", tz="UTC"), None, value_bounds.nanos_statistics(zoned=True)),
    "timestamp_nanos_ntz": dataclasses.replace(
        _timestamp(pa.timestamp("ns"), None, value_bounds.nanos_statistics(zoned=False)),
        footer=value_bounds.timestamp_ntz_footer,
        stored=_stored_timestamp_ntz,
    ),
    "day_time_interval": TypeRow(
        arrow=pa.duration("us"),
        width=8.0,
        text=functools.partial(value_texts.interval, family=DAY_TIME_UNITS, bits=64),
        stored=_stored_day_time_interval,
    ),
    "year_month_interval": TypeRow(
        arrow=pa.int32(),
        width=8.0,
        text=functools.partial(value_texts.interval, family=YEAR_MONTH_UNITS, bits=32),
        stored=_stored_as(pa.types.is_integer),
    ),
    "void": TypeRow(arrow=pa.null(), width=0.0, text=value_texts.void, spark="NullType"),
    "variant": TypeRow(arrow=VARIANT_ARROW_TYPE, width=40.0, spark="VariantType"),
    "geometry": _WELL_KNOWN_BINARY,
    "geography": _WELL_KNOWN_BINARY,
}


_KEYS_ONLY = ("decimal", "day_time_interval", "year_month_interval")  # keys of TYPES that no schema spells like this


def row_of(data_type: DataType) -> TypeRow | None:
    """Return the row of a type, ``None`` for a nested one."""
    if isinstance(data_type, DecimalType):
        return TYPES["decimal"]
    return TYPES[data_type.base] if isinstance(data_type, PrimitiveType) else None


def is_primitive(name: str) -> bool:
    """Return whether ``name`` in a schema is a type that a ``PrimitiveType`` represents."""
    return name not in _KEYS_ONLY and PrimitiveType(name).base in TYPES
