"""Delta types to Arrow types and back (Delta log protocol, "Delta Data Type to Parquet Type Mappings")."""

from __future__ import annotations

import pyarrow as pa

from delta_sharing_client.arrow_forms import is_bytes, is_text
from delta_sharing_client.delta.data_types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.errors import UsageError

VARIANT_ARROW_TYPE = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
"""The unshredded physical form of a variant."""

_TO_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
    "variant": VARIANT_ARROW_TYPE,
    "day_time_interval": pa.duration("us"),
    "year_month_interval": pa.int32(),
}

_FROM_ARROW: dict[pa.DataType, str] = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.null(): "void",
}


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type in which values of ``data_type`` are handed out.

    Text of every kind is ``string``; ``timestamp`` is ``timestamp[us, UTC]`` and ``timestamp_ntz`` has no zone;
    ``void`` is ``null``; ``variant`` is ``struct<metadata: binary, value: binary>``; day-time intervals are
    ``duration[us]`` and year-month intervals ``int32`` months.
    """
    if isinstance(data_type, PrimitiveType):
        return _TO_ARROW[data_type.base]
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, ArrayType):
        return pa.list_(pa.field("element", to_arrow_type(data_type.element), nullable=data_type.contains_null))
    if isinstance(data_type, MapType):
        return pa.map_(
            pa.field("key", to_arrow_type(data_type.key), nullable=False),
            pa.field("value", to_arrow_type(data_type.value), nullable=data_type.value_contains_null),
        )
    return pa.struct([_to_arrow_field(item) for item in data_type.fields])


def to_arrow_schema(struct: StructType) -> pa.Schema:
    """Return the Arrow schema of ``struct``: logical names, nullable flags, no metadata."""
    return pa.schema([_to_arrow_field(item) for item in struct.fields])


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the table schema that holds the columns of an Arrow schema.

    Unsigned integers widen to the next signed type, ``uint64`` to ``decimal(20,0)``; dictionaries become their values;
    any timestamp with a zone is ``timestamp`` and one without ``timestamp_ntz``.

    Raises
    ------
    UsageError
        A column has an Arrow type that no Delta type holds.
    """
    return StructType(tuple(_from_arrow_field(item) for item in schema))


def from_arrow_type(arrow_type: pa.DataType) -> DataType:
    """Return the Delta type that holds values of ``arrow_type``; see :func:`from_arrow_schema`."""
    types = pa.types
    if (name := _FROM_ARROW.get(arrow_type)) is not None:
        return PrimitiveType(name)
    if types.is_dictionary(arrow_type):
        return from_arrow_type(arrow_type.value_type)
    if is_text(arrow_type):
        return PrimitiveType("string")
    if is_bytes(arrow_type) or types.is_fixed_size_binary(arrow_type):
        return PrimitiveType("binary")
    if types.is_timestamp(arrow_type):
        return PrimitiveType("timestamp_ntz" if arrow_type.tz is None else "timestamp")
    if types.is_duration(arrow_type):
        return PrimitiveType("interval day to second")
    if arrow_type == pa.uint64():
        return DecimalType(20, 0)
    if types.is_decimal(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision <= 38:
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if types.is_map(arrow_type):
        return MapType(
            from_arrow_type(arrow_type.key_type), from_arrow_type(arrow_type.item_type), arrow_type.item_field.nullable
        )
    if types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        return ArrayType(from_arrow_type(arrow_type.value_type), arrow_type.value_field.nullable)
    if types.is_struct(arrow_type):
        return StructType(tuple(_from_arrow_field(item) for item in arrow_type))
    raise UsageError(f"A column must have an Arrow type that a Delta type holds, found {arrow_type}.")


def _to_arrow_field(item: StructField) -> pa.Field:
    arrow_type = to_arrow_type(item.type)
    # Arrow has no null type without nulls, whatever a schema says of a void column.
    return pa.field(item.name, arrow_type, nullable=item.nullable or pa.types.is_null(arrow_type))


def _from_arrow_field(item: pa.Field) -> StructField:
    return StructField(item.name, from_arrow_type(item.type), item.nullable)
