"""Exact conversions of primitive columns, from what files hold to what a table declares.

A conversion never rounds, wraps or guesses: what Arrow cannot cast with checks is not converted at all (Delta
Transaction Log Protocol, "Type Widening"; Parquet logical types).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Union

import pyarrow as pa

from delta_sharing_client.delta.arrow_types import to_arrow_type
from delta_sharing_client.delta.data_types import ColumnPath, DataType, DecimalType, PrimitiveType
from delta_sharing_client.errors import DataError

Convert = Callable[[pa.Array], pa.Array]
MaybeConvert = Optional[Convert]  # None: the array is already right


def primitive(target: Union[PrimitiveType, DecimalType], found: pa.DataType, path: ColumnPath) -> MaybeConvert:
    """Return the exact conversion, ``None`` for none (Delta Transaction Log Protocol, "Type Widening")."""
    arrow = to_arrow_type(target)
    if found == arrow:
        return None
    if pa.types.is_dictionary(found):
        return then(lambda array: array.dictionary_decode(), primitive(target, found.value_type, path))
    kind = "decimal" if isinstance(target, DecimalType) else target.base
    types = pa.types
    if kind == "binary" and _is_bytes(found):
        return _cast(arrow)
    if kind == "string" and _is_bytes(found) and not types.is_fixed_size_binary(found):
        # Fixed lengths are UUIDs and numbers; as text their bytes would be another value.
        return _cast(arrow)
    if kind in _INTEGERS and types.is_integer(found):
        return _cast(arrow)
    if kind in ("float", "double") and (types.is_integer(found) or _is_narrower_float(found, arrow)):
        return _cast(arrow)
    if kind == "decimal" and types.is_decimal(found):
        return _cast(arrow)
    if kind == "decimal" and types.is_integer(found):
        return _integer_to_decimal(arrow)
    if kind == "date" and types.is_date(found):
        return _cast(arrow)
    if kind == "timestamp_ntz" and types.is_date(found):
        return _cast(arrow)
    if kind in ("timestamp", "timestamp_ntz") and types.is_timestamp(found):
        # INT96 and zone-less INT64 hold UTC as Spark reads them; the number is the same with and without a zone.
        micros = None if found.unit == "us" else _cast(pa.timestamp("us", tz=found.tz))
        return then(micros, lambda array: array.view(arrow))
    if kind == "day_time_interval" and types.is_duration(found):
        return _cast(arrow)
    if kind == "day_time_interval" and found == pa.int64():
        return lambda array: array.view(arrow)
    raise mismatch(target, found, path)


_INTEGERS = frozenset(("byte", "short", "integer", "long", "year_month_interval"))


def _cast(arrow: pa.DataType) -> Convert:
    return lambda array: array.cast(arrow)


def _integer_to_decimal(arrow: pa.DataType) -> Convert:
    # Arrow wants room for every value of the integer type first; the second cast checks the actual values.
    digits = 20 + arrow.scale
    room = pa.decimal128(digits, arrow.scale) if digits <= 38 else pa.decimal256(digits, arrow.scale)
    return lambda array: array.cast(room).cast(arrow)


def then(first: MaybeConvert, second: MaybeConvert) -> MaybeConvert:
    if first is None or second is None:
        return second if first is None else first
    return lambda array: second(first(array))


def _is_narrower_float(found: pa.DataType, arrow: pa.DataType) -> bool:
    return bool(pa.types.is_floating(found)) and found.bit_width < arrow.bit_width


def _is_bytes(found: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(found)
        or types.is_large_string(found)
        or types.is_string_view(found)
        or types.is_binary(found)
        or types.is_large_binary(found)
        or types.is_binary_view(found)
        or types.is_fixed_size_binary(found)
    )


def mismatch(target: DataType, found: pa.DataType, path: ColumnPath) -> DataError:
    return DataError(
        f"column {dotted(path)!r}: expected the table's type {to_arrow_type(target)}, found {found} in the file; it "
        "cannot be read as that exactly"
    )


def dotted(path: ColumnPath) -> str:
    return ".".join(path)
