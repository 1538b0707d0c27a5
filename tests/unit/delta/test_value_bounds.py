"""Bounds of Parquet footers are used if the file's type sorts values as the column's type does."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.decode.bounds import typed_bounds
from delta_sharing_client.delta.data_types import DecimalType, PrimitiveType, StructField
from delta_sharing_client.delta.type_rows import TYPES
from delta_sharing_client.delta.value_bounds import UNKNOWN

DAY = 86_400_000_000_000
US = pa.timestamp("us")

FOOTER_BOUNDS = [
    ("long", -1, 2, pa.int64(), (-1, 2, None)),
    ("integer", 1, 1, pa.int8(), (1, 1, None)),
    ("year_month_interval", 1, 2, pa.int32(), UNKNOWN),
    ("long", 1, 2, pa.uint64(), UNKNOWN),
    ("long", 3, 2, pa.int64(), UNKNOWN),
    ("boolean", False, True, pa.bool_(), (False, True, None)),
    ("boolean", True, True, pa.bool_(), (True, True, None)),
    ("boolean", True, False, pa.bool_(), UNKNOWN),
    ("boolean", 0, 1, pa.int8(), UNKNOWN),
    ("string", b"a", b"\xc3\xbc", pa.string(), ("a", "ü", None)),
    ("string", b"b", b"a", pa.string(), UNKNOWN),
    ("string", b"a", b"b", pa.binary(), UNKNOWN),
    ("string", 1, 2, pa.string(), UNKNOWN),
    ("binary", b"a", b"\xff", pa.binary(), (b"a", b"\xff", None)),
    ("binary", b"a", b"b", pa.string(), UNKNOWN),
    ("binary", 1, 2, pa.binary(), UNKNOWN),
    ("date", -1, 2, pa.date32(), (-1, 2, None)),
    ("date", -1, 2, pa.int32(), UNKNOWN),
    ("date", -1, 2, US, UNKNOWN),
    ("timestamp", -1, 2, pa.timestamp("s"), (-(10**9), 2 * 10**9, None)),
    ("timestamp", -1, 2, pa.timestamp("ms", "UTC"), (-(10**6), 2 * 10**6, None)),
    ("timestamp", -1, 2, pa.timestamp("us", "UTC"), (-1000, 2000, None)),
    ("timestamp", -1, 2, pa.timestamp("ns"), (-1, 2, None)),
    ("timestamp", b"\0" * 12, b"\1" * 12, pa.timestamp("ns"), UNKNOWN),
    ("timestamp", -1, 2, pa.date32(), UNKNOWN),
    ("timestamp", -1, 2, pa.int64(), UNKNOWN),
    ("timestamp_ntz", -1, 2, pa.date32(), (-DAY, 2 * DAY, None)),
    ("timestamp_ntz", -1, 2, US, (-1000, 2000, None)),
    ("double", -1, 2, pa.int32(), (-1.0, None, 2.0)),
    ("double", -1, 2, pa.int64(), UNKNOWN),
    ("double", 1, 2, pa.uint8(), UNKNOWN),
    ("double", -1.5, 2.5, pa.float32(), (-1.5, None, 2.5)),
    ("double", -1.5, 2.5, pa.float64(), (-1.5, None, 2.5)),
    ("float", 2.5, 2.5, pa.float32(), (2.5, None, 2.5)),
    ("float", 1.5, 2.5, pa.float16(), UNKNOWN),
    ("double", math.nan, 2.5, pa.float64(), UNKNOWN),
    ("double", 1.5, math.nan, pa.float64(), UNKNOWN),
    ("double", 2.5, 1.5, pa.float64(), UNKNOWN),
    ("double", -math.inf, math.inf, pa.float64(), (-math.inf, None, math.inf)),
    ("decimal", -125, 250, pa.decimal128(5, 2), (Decimal("-1.25"), Decimal("2.50"), None)),
    ("decimal", b"\xff\x83", b"\x00\xfa", pa.decimal128(5, 2), (Decimal("-1.25"), Decimal("2.50"), None)),
    ("decimal", -125, 250, pa.int32(), (Decimal(-125), Decimal(250), None)),
    ("decimal", 250, -125, pa.decimal128(5, 2), UNKNOWN),
    ("decimal", 2, 1, pa.int32(), UNKNOWN),
    ("decimal", 1, 2, pa.uint32(), (None, None, None)),
    ("decimal", 1.5, 2.5, pa.float64(), (None, None, None)),
    ("variant", 1, 2, pa.int32(), UNKNOWN),
]


@pytest.mark.parametrize(("name", "lower", "upper", "stored_type", "expected"), FOOTER_BOUNDS, ids=str)
def test_footer_bounds_have_the_type_of_the_column(
    name: str, lower: Any, upper: Any, stored_type: pa.DataType, expected: Any
) -> None:
    bounds = TYPES[name].footer(lower, upper, stored_type)
    assert bounds == expected
    assert [type(value) for value in bounds] == [type(value) for value in expected]


@pytest.mark.parametrize("name", ["long", "boolean", "date", "timestamp", "timestamp_ntz", "double", "decimal"])
@pytest.mark.parametrize(
    "stored_type", [pa.int64(), pa.bool_(), pa.date32(), US, pa.float64(), pa.string(), pa.binary()]
)
def test_bytes_are_no_bounds_of_columns_of_other_types(name: str, stored_type: pa.DataType) -> None:
    if name == "boolean" and stored_type == pa.bool_():
        return
    data_type = DecimalType(5, 2) if name == "decimal" else PrimitiveType(name)
    assert typed_bounds((b"a", b"b"), StructField("c", data_type), stored_type) == UNKNOWN


def test_decimal_of_76_digits_is_not_rounded() -> None:
    most = 10**76 - 1
    lower, upper, _ = TYPES["decimal"].footer(-most, most, pa.decimal256(76, 38))
    assert (lower, upper) == (Decimal(f"-{'9' * 38}.{'9' * 38}"), Decimal(f"{'9' * 38}.{'9' * 38}"))
