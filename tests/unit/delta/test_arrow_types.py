from __future__ import annotations

import pyarrow as pa
import pytest

from delta_sharing_client.delta.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    from_arrow_schema,
    from_arrow_type,
    to_arrow_schema,
    to_arrow_type,
)
from delta_sharing_client.errors import UsageError

# pyarrow has views of texts since 16.
NEWEST_TEXT = getattr(pa, "string_view", pa.large_string)()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("string", pa.string()),
        ("char(4)", pa.string()),
        ("string collate UNICODE", pa.string()),
        ("long", pa.int64()),
        ("integer", pa.int32()),
        ("short", pa.int16()),
        ("byte", pa.int8()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("void", pa.null()),
        ("interval day to second", pa.duration("us")),
        ("interval year to month", pa.int32()),
    ],
)
def test_each_primitive_has_its_arrow_type(name: str, expected: pa.DataType) -> None:
    assert to_arrow_type(PrimitiveType(name)) == expected


def test_a_variant_is_a_struct_of_metadata_and_value() -> None:
    arrow = to_arrow_type(PrimitiveType("variant"))
    assert [(field.name, field.type) for field in arrow] == [("metadata", pa.binary()), ("value", pa.binary())]


def test_nesting_and_nullability_survive_the_way_to_arrow_and_back() -> None:
    schema = StructType(
        (
            StructField("id", PrimitiveType("long"), nullable=False),
            StructField("d", DecimalType(38, 18)),
            StructField("list", ArrayType(PrimitiveType("string"), contains_null=False)),
            StructField("map", MapType(PrimitiveType("integer"), ArrayType(PrimitiveType("date")), False)),
            StructField("s", StructType((StructField("x", PrimitiveType("timestamp_ntz"), nullable=False),))),
        )
    )
    arrow = to_arrow_schema(schema)
    assert not arrow.field("id").nullable
    assert not arrow.field("list").type.value_field.nullable
    assert not arrow.field("map").type.item_field.nullable
    assert from_arrow_schema(arrow) == schema


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), PrimitiveType("short")),
        (pa.uint32(), PrimitiveType("long")),
        (pa.uint64(), DecimalType(20, 0)),
        (pa.large_string(), PrimitiveType("string")),
        (NEWEST_TEXT, PrimitiveType("string")),
        (pa.binary(4), PrimitiveType("binary")),
        (pa.dictionary(pa.int8(), pa.string()), PrimitiveType("string")),
        (pa.timestamp("ns", tz="Asia/Tokyo"), PrimitiveType("timestamp")),
        (pa.timestamp("ms"), PrimitiveType("timestamp_ntz")),
        (pa.large_list(pa.int8()), ArrayType(PrimitiveType("byte"), True)),
        (pa.decimal256(20, 2), DecimalType(20, 2)),
        (pa.duration("s"), PrimitiveType("interval day to second")),
    ],
)
def test_other_arrow_types_become_the_delta_type_that_holds_them(arrow: pa.DataType, expected: object) -> None:
    assert from_arrow_type(arrow) == expected


@pytest.mark.parametrize("arrow", [pa.time64("us"), pa.decimal256(50, 2), pa.month_day_nano_interval()])
def test_an_arrow_type_without_a_delta_type_is_refused(arrow: pa.DataType) -> None:
    with pytest.raises(UsageError, match="Arrow type"):
        from_arrow_type(arrow)
