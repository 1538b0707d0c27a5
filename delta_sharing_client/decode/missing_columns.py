"""Creates the values of a column for a file that does not have it: nulls, or the column's initial default.

The column's metadata has the initial default in the JSON form of Iceberg's table specification (Appendix D, "JSON
single-value serialization").
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from delta_sharing_client.delta import uuids, value_texts
from delta_sharing_client.delta.data_types import (
    INITIAL_DEFAULT_KEY,
    DataType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.errors import DataError, check_memory


def has_default(item: StructField) -> bool:
    """Return whether the column has an initial default, which is its value in the rows of files without it."""
    return item.metadata.get(INITIAL_DEFAULT_KEY) is not None


def missing_column(item: StructField, arrow: pa.DataType, length: int) -> pa.Array:
    """Return ``length`` values of the type ``arrow`` for a column that a file does not have.

    Raises ``DataError`` if the default is not a value of the type, or a NOT NULL field of a struct has no default.
    """
    if not has_default(item):
        return nulls(length, arrow)
    default = item.metadata[INITIAL_DEFAULT_KEY]
    if not isinstance(item.type, StructType):
        return pa.repeat(_scalar(item, arrow, default), length)
    # A struct's default is an empty struct: its fields have their own defaults.
    children = [missing_column(field, arrow.field(place).type, length) for place, field in enumerate(item.type.fields)]
    for field, child in zip(item.type.fields, children, strict=True):
        if child.null_count and not field.nullable:
            raise DataError(
                f"The file does not have the column {item.name!r}, whose field {field.name!r} is NOT NULL and has no "
                "initial default. Ask the provider to correct the table."
            )
    return pa.Array.from_buffers(arrow, length, [None], 0, children=children)


def nulls(length: int, arrow: pa.DataType) -> pa.Array:
    """Return ``length`` nulls of the type ``arrow``."""
    if not _requires_values(arrow):
        return pa.nulls(length, arrow)
    # pa.nulls would put nulls into the NOT NULL fields of structs, and Arrow's writers refuse such an array.
    return pa.array([None], arrow).take(pa.repeat(pa.scalar(0, pa.int8()), length))


def _requires_values(arrow: pa.DataType) -> bool:
    return pa.types.is_struct(arrow) and any(not field.nullable or _requires_values(field.type) for field in arrow)


def _scalar(item: StructField, arrow: pa.DataType, default: object) -> pa.Scalar:
    try:
        return _parsed(item.type, arrow, default)
    except (ValueError, TypeError, ArithmeticError, DataError, pa.ArrowException) as error:
        check_memory(error)
        raise DataError(
            f"The initial default of column {item.name!r} must be a value of its type {_named(item.type)}, found "
            f"{str(default)[:60]!r}. Ask the provider to correct the table."
        ) from None


def _named(data_type: DataType) -> str:
    return str(data_type)[:60]


def _parsed(data_type: DataType, arrow: pa.DataType, default: Any) -> pa.Scalar:
    """Parse a value in Iceberg's JSON form. Raises one of the errors that ``_scalar`` catches if it is not a value of
    ``arrow``."""
    types = pa.types
    if types.is_boolean(arrow) or types.is_integer(arrow) or types.is_floating(arrow):
        expected: Any = bool if types.is_boolean(arrow) else int if types.is_integer(arrow) else (int, float)
        if not isinstance(default, expected) or (isinstance(default, bool) and expected is not bool):
            raise ValueError(default)
        return pa.scalar(default, arrow)
    if not isinstance(default, str):
        raise ValueError(default)
    if data_type == PrimitiveType("uuid"):
        default = uuids.canonical(default)
        if default is None:
            raise ValueError
    if types.is_string(arrow):
        return pa.scalar(default, arrow)
    if types.is_binary(arrow):
        return pa.scalar(bytes.fromhex(default), arrow)
    if types.is_decimal(arrow):
        return pa.scalar(decimal.Decimal(default), arrow)
    if types.is_timestamp(arrow) or types.is_date(arrow):
        return pa.scalar(default).cast(arrow)
    if types.is_time(arrow):
        return pa.scalar(value_texts.time_of_day(default, PrimitiveType("time")), arrow)
    raise ValueError(default)
