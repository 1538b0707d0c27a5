"""If a file stores values in a different type than the column's, they are converted without loss or refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.delta.type_rows import TYPES

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12)
UTC = datetime.timezone.utc
US, ZONED = pa.timestamp("us"), pa.timestamp("us", "UTC")
WIDE = pa.decimal128(38, 18)

EXACT = [
    ("long", pa.int64(), pa.int32(), [-(2**31), None, 7], [-(2**31), None, 7]),
    ("integer", pa.int32(), pa.uint8(), [255, None], [255, None]),
    ("short", pa.int16(), pa.int64(), [-(2**15), 2**15 - 1], [-(2**15), 2**15 - 1]),
    ("double", pa.float64(), pa.float32(), [0.5, None], [0.5, None]),
    ("double", pa.float64(), pa.int32(), [-(2**31)], [float(-(2**31))]),
    ("float", pa.float32(), pa.int16(), [7], [7.0]),
    ("decimal", pa.decimal128(12, 2), pa.decimal128(5, 2), [Decimal("-1.25")], [Decimal("-1.25")]),
    ("decimal", pa.decimal128(12, 2), pa.int32(), [-(2**31)], [Decimal("-2147483648.00")]),
    ("decimal", pa.decimal128(20, 18), pa.int64(), [9, -1], [Decimal(9), Decimal(-1)]),
    ("decimal", pa.decimal128(38, 19), pa.int64(), [10**18], [Decimal(10**18)]),
    ("string", pa.string(), pa.binary(), [b"\xc3\xbc"], ["ü"]),
    ("string", pa.string(), pa.large_string(), ["ü"], ["ü"]),
    ("binary", pa.binary(), pa.string(), ["ü"], [b"\xc3\xbc"]),
    ("binary", pa.binary(), pa.large_binary(), [b"\xff"], [b"\xff"]),
    ("binary", pa.binary(), pa.binary(2), [b"\xff\x00"], [b"\xff\x00"]),
    ("geometry", pa.binary(), pa.large_binary(), [b"\xff"], [b"\xff"]),
    ("date", pa.date32(), pa.date64(), [DAY], [DAY]),
    ("timestamp", ZONED, US, [NOON], [NOON.replace(tzinfo=UTC)]),
    ("timestamp", ZONED, pa.timestamp("ms"), [NOON], [NOON.replace(tzinfo=UTC)]),
    ("timestamp", ZONED, pa.timestamp("ns", "Europe/Berlin"), [NOON.replace(tzinfo=UTC)], [NOON.replace(tzinfo=UTC)]),
    ("timestamp_ntz", US, pa.date32(), [DAY], [NOON.replace(hour=0)]),
    ("timestamp_ntz", US, pa.timestamp("ns"), [NOON], [NOON]),
    ("day_time_interval", pa.duration("us"), pa.int64(), [7], [datetime.timedelta(microseconds=7)]),
    ("day_time_interval", pa.duration("us"), pa.duration("ms"), [datetime.timedelta(1)], [datetime.timedelta(1)]),
    ("year_month_interval", pa.int32(), pa.int64(), [13], [13]),
]

INEXACT = [
    ("long", pa.int64(), pa.uint64(), [2**63]),
    ("integer", pa.int32(), pa.int64(), [2**31]),
    ("byte", pa.int8(), pa.int16(), [128]),
    ("decimal", pa.decimal128(5, 2), pa.decimal128(6, 3), [Decimal("1.125")]),
    ("decimal", pa.decimal128(5, 2), pa.int32(), [1000]),
    ("timestamp", ZONED, pa.timestamp("ns"), [1_704_067_200_000_000_001]),
]

NEVER = [
    ("long", pa.int64(), pa.float64()),
    ("long", pa.int64(), pa.string()),
    ("float", pa.float32(), pa.float64()),
    ("float", pa.float32(), pa.float32()),
    ("double", pa.float64(), pa.string()),
    ("decimal", pa.decimal128(5, 2), pa.float64()),
    ("string", pa.string(), pa.binary(16)),
    ("string", pa.string(), pa.int64()),
    ("binary", pa.binary(), pa.int64()),
    ("geometry", pa.binary(), pa.int64()),
    ("boolean", pa.bool_(), pa.int8()),
    ("date", pa.date32(), US),
    ("date", pa.date32(), pa.int32()),
    ("timestamp", ZONED, pa.date32()),
    ("timestamp", ZONED, pa.int64()),
    ("timestamp_ntz", US, pa.int64()),
    ("timestamp_nanos", pa.timestamp("ns", "UTC"), pa.date32()),
    ("day_time_interval", pa.duration("us"), pa.int32()),
    ("void", pa.null(), pa.int32()),
]


@pytest.mark.parametrize(("name", "target", "stored_type", "values", "expected"), EXACT, ids=str)
def test_value_of_a_different_type_is_converted(
    name: str, target: pa.DataType, stored_type: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    convert = TYPES[name].stored(target, stored_type)
    assert convert is not None
    array = convert(pa.array(values, stored_type))
    assert array.type == target
    assert array.to_pylist() == expected


@pytest.mark.parametrize(("name", "target", "stored_type", "values"), INEXACT, ids=str)
def test_value_that_does_not_fit_the_column_type_is_an_error(
    name: str, target: pa.DataType, stored_type: pa.DataType, values: list[Any]
) -> None:
    convert = TYPES[name].stored(target, stored_type)
    assert convert is not None
    with pytest.raises(pa.ArrowInvalid):
        convert(pa.array(values, stored_type))


@pytest.mark.parametrize(("name", "target", "stored_type"), NEVER, ids=str)
def test_incompatible_type_is_not_converted(name: str, target: pa.DataType, stored_type: pa.DataType) -> None:
    assert TYPES[name].stored(target, stored_type) is None
