"""Conversion of values in files to a type of the table, exactly or not at all (Delta Transaction Log Protocol, "Type
Widening").

Each function takes the target Arrow type and the file's Arrow type, and returns a conversion of arrays, or ``None`` if
it would not be exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional

import pyarrow as pa

from delta_sharing_client.arrow_forms import is_bytes, is_text

Convert = Callable[[pa.Array], pa.Array]
Stored = Optional[Convert]


def only_itself(arrow: pa.DataType, found: pa.DataType) -> Stored:
    """Return ``None``: no other type is converted to this one."""
    return None


def integer(arrow: pa.DataType, found: pa.DataType) -> Stored:
    return _cast(arrow) if pa.types.is_integer(found) else None


def floating(arrow: pa.DataType, found: pa.DataType) -> Stored:
    narrower = pa.types.is_floating(found) and found.bit_width < arrow.bit_width
    return _cast(arrow) if narrower or pa.types.is_integer(found) else None


def exact_decimal(arrow: pa.DataType, found: pa.DataType) -> Stored:
    if pa.types.is_decimal(found):
        return _cast(arrow)
    if not pa.types.is_integer(found):
        return None
    # Arrow first requires room for every value of the integer type; the second cast checks the actual values.
    digits = 20 + arrow.scale
    room = pa.decimal128(digits, arrow.scale) if digits <= 38 else pa.decimal256(digits, arrow.scale)
    return lambda array: array.cast(room).cast(arrow)


def text(arrow: pa.DataType, found: pa.DataType) -> Stored:
    # Fixed lengths are UUIDs and numbers; as text their bytes would be another value.
    return _cast(arrow) if is_text(found) or is_bytes(found) else None


def binary(arrow: pa.DataType, found: pa.DataType) -> Stored:
    is_binary = is_text(found) or is_bytes(found) or pa.types.is_fixed_size_binary(found)
    return _cast(arrow) if is_binary else None


def date(arrow: pa.DataType, found: pa.DataType) -> Stored:
    return _cast(arrow) if pa.types.is_date(found) else None


def timestamp(arrow: pa.DataType, found: pa.DataType) -> Stored:
    if not pa.types.is_timestamp(found):
        return None
    # INT96 and zone-less INT64 contain UTC, as in Spark; the number is the same with and without a zone.
    if found.unit == arrow.unit:
        return lambda array: array.view(arrow)
    return lambda array: array.cast(pa.timestamp(arrow.unit, tz=found.tz)).view(arrow)


def timestamp_ntz(arrow: pa.DataType, found: pa.DataType) -> Stored:
    return _cast(arrow) if pa.types.is_date(found) else timestamp(arrow, found)


def day_time_interval(arrow: pa.DataType, found: pa.DataType) -> Stored:
    if found == pa.int64():
        return lambda array: array.view(arrow)
    return _cast(arrow) if pa.types.is_duration(found) else None


def _cast(arrow: pa.DataType) -> Convert:
    return lambda array: array.cast(arrow)
