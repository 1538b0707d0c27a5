"""The Spark schema of a Delta schema, and the conversion of batches to exactly the Arrow schema that Spark
expects."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.spark.types import (
    _paths,
    conform,
    conform_array,
    has_chars,
    pad_chars,
    target_schema,
    to_spark_field,
)
from tests.quota import meets, met


def test_requested_columns_are_found_despite_nullability() -> None:
    def field(*, nulls: bool) -> spark.StructField:
        inner = spark.StructType([spark.StructField("x", spark.LongType(), nulls)])
        return spark.StructField("a", spark.MapType(spark.StringType(), spark.ArrayType(inner, nulls), nulls))

    assert _paths(field(nulls=False), spark.StructType([field(nulls=True)]), ("s",)) == [("s", "a")]


FIELDS = {
    "string": spark.StringType(),
    "char(4)": spark.StringType(),
    "varchar(9)": spark.StringType(),
    "long": spark.LongType(),
    "integer": spark.IntegerType(),
    "short": spark.ShortType(),
    "byte": spark.ByteType(),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "boolean": spark.BooleanType(),
    "binary": spark.BinaryType(),
    "date": spark.DateType(),
    "timestamp": spark.TimestampType(),
    "timestamp_ntz": spark.TimestampNTZType(),
    "void": spark.NullType(),
    "variant": spark.VariantType(),
    "decimal(38,18)": spark.DecimalType(38, 18),
}


def spark_schema(schema: StructType) -> spark.StructType:
    return spark.StructType([to_spark_field(field, field.name) for field in schema])


def schema_of(*types: object) -> str:
    import json

    fields = [{"name": f"c{i}", "type": t, "nullable": False, "metadata": {}} for i, t in enumerate(types)]
    return json.dumps({"type": "struct", "fields": fields})


def test_every_type_has_a_nullable_spark_type() -> None:
    schema = spark_schema(parse_schema(schema_of(*FIELDS)))
    assert [field.dataType for field in schema.fields] == list(FIELDS.values())
    assert all(field.nullable for field in schema.fields)


def test_nested_types_are_nullable_at_every_level() -> None:
    inner = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": False, "metadata": {}}]}
    array = {"type": "array", "elementType": inner, "containsNull": False}
    mapping = {"type": "map", "keyType": "string", "valueType": array, "valueContainsNull": False}
    found = spark_schema(parse_schema(schema_of(mapping))).fields[0].dataType
    struct = spark.StructType([spark.StructField("x", spark.IntegerType(), True)])
    assert found == spark.MapType(spark.StringType(), spark.ArrayType(struct, True), True)


@pytest.mark.parametrize("name", ["interval year", "interval day to second"])
def test_interval_error_names_column_and_type(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=rf"'c1'.*{name}.*columns"):
        spark_schema(parse_schema(schema_of("long", name)))


def test_batch_has_order_nullability_and_units_of_the_schema() -> None:
    target = target_schema(
        spark.StructType(
            [
                spark.StructField("T", spark.TimestampType()),
                spark.StructField("s", spark.StructType().add("x", "integer").add("y", "string")),
            ]
        )
    )
    struct = pa.struct([pa.field("y", pa.string()), pa.field("x", pa.int32(), nullable=False)])
    batch = pa.record_batch(
        [
            pa.array([{"y": "a", "x": 1}, {"y": None, "x": 2}], struct),
            pa.array([1, None], pa.timestamp("ms", tz="UTC")),
        ],
        schema=pa.schema([pa.field("s", struct, nullable=False), pa.field("t", pa.timestamp("ms", tz="UTC"))]),
    )
    found = conform(batch, target)
    assert found.schema.equals(target, check_metadata=True)
    assert found.column(1).to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": None}]
    assert found.column(0).cast(pa.int64()).to_pylist() == [1000, None]


def test_missing_column_is_named() -> None:
    target = target_schema(spark.StructType().add("gone", "integer"))
    with pytest.raises(DataError, match="gone"):
        conform(pa.record_batch({"id": [1]}), target)


def test_value_out_of_range_error_names_the_column() -> None:
    target = target_schema(spark.StructType().add("id", "byte"))
    with pytest.raises(DataError, match="id"):
        conform(pa.record_batch({"id": pa.array([300], pa.int64())}), target)


def test_variant_has_sparks_field_order_and_keeps_nulls() -> None:
    found = target_schema(spark.StructType([spark.StructField("v", spark.VariantType())])).field("v").type
    source = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])
    array = pa.array([{"metadata": b"m", "value": b"v"}, None], source)
    made = conform_array(array, found)
    assert made.type.equals(found, check_metadata=True)
    assert made.to_pylist() == [{"value": b"v", "metadata": b"m"}, None]


def test_rows_without_columns_are_counted() -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    assert conform(batch, pa.schema([])).num_rows == 3


VALUES = st.recursive(
    st.one_of(st.none(), st.integers(-5, 5)),
    lambda inner: st.one_of(st.none(), st.lists(inner, max_size=3)),
    max_leaves=4,
)
STRICT = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [pa.field("x", pa.int32(), nullable=False), pa.field("m", pa.map_(pa.string(), pa.list_(pa.int64())))]
        ),
    )
)
LOOSE = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [pa.field("m", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64())))), pa.field("x", pa.int32())]
        ),
    )
)
ITEM = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "x": st.integers(-9, 9),
            "m": st.one_of(
                st.none(),
                st.dictionaries(
                    st.text("ab", max_size=2),
                    st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3)),
                    max_size=2,
                ).map(lambda d: list(d.items())),
            ),
        }
    ),
)


@meets(cut=1, items=1)
@given(st.lists(st.one_of(st.none(), st.lists(ITEM, max_size=3)), max_size=8), st.data())
def test_nested_values_survive_any_slicing(rows: list[object], data: st.DataObject) -> None:
    array = pa.array(rows, STRICT)
    met("items", any(rows))
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows) - start))
    met("cut", start > 0 and length)
    found = conform_array(array.slice(start, length), LOOSE)
    found.validate(full=True)
    expected = [
        row if row is None else [item if item is None else {"m": item["m"], "x": item["x"]} for item in row]
        for row in rows[start : start + length]
    ]
    assert found.to_pylist() == expected


def test_every_type_is_converted_to_its_spark_type() -> None:
    flat = [name for name in FIELDS if name != "variant"]
    schema = parse_schema(schema_of(*flat))
    arrow = to_arrow_schema(schema)
    target = target_schema(spark_schema(schema))
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, field.type) for field in arrow], names=arrow.names)
    assert conform(batch, target).schema.equals(target)


def test_chars_are_padded_at_every_level() -> None:
    inner = "struct<c:char(2),l:array<char(3)>,m:map<char(2),int>,v:varchar(4)>"
    char = {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
    schema = spark.StructType(
        [
            spark.StructField("a", spark.StringType(), metadata=char),
            spark.StructField(
                "s",
                spark.StructType()
                .add("c", "string")
                .add("l", spark.ArrayType(spark.StringType()))
                .add("m", spark.MapType(spark.StringType(), spark.IntegerType()))
                .add("v", "string"),
                metadata={"__CHAR_VARCHAR_TYPE_STRING": inner},
            ),
            spark.StructField("n", spark.StructType([spark.StructField("x", spark.StringType(), metadata=char)])),
            spark.StructField("plain", spark.StringType()),
        ]
    )
    row = {"a": "ü", "s": {"c": "x", "l": ["y", None], "m": [("k", 1)], "v": "z"}, "n": {"x": ""}, "plain": "p"}
    none = dict.fromkeys(row)
    batch = pa.RecordBatch.from_pylist([none, row, none], target_schema(schema)).slice(1)
    assert has_chars(schema)
    found = pad_chars(batch, schema)
    assert found.schema == batch.schema
    found.validate(full=True)
    padded = {"c": "x ", "l": ["y  ", None], "m": [("k ", 1)], "v": "z"}
    assert found.to_pylist() == [{"a": "ü  ", "s": padded, "n": {"x": "   "}, "plain": "p"}, none]
