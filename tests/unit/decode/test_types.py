"""Files whose physical types, columns and names differ from the table's schema."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.options import VariantAs
from tests.unit.storages import Table, fast_options, rows_of

MakeTable = Callable[..., Table]
UTC = pa.timestamp("us", tz="UTC")


def read_as(make_table: MakeTable, target: pa.DataType, column: pa.Array, **write: Any) -> pa.Array:
    table = make_table(pa.schema([("c", target)]))
    table.add(pa.table({"c": column}), write=write)
    return table.read()["c"].combine_chunks()


def schema_string(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": [{"nullable": True, "metadata": {}, **field} for field in fields]})


@pytest.mark.parametrize(
    ("stored", "target"),
    [
        (pa.array([1, None, -128], pa.int8()), pa.int64()),
        (pa.array([1, None, -32768], pa.int16()), pa.int32()),
        (pa.array([1, None, 2**31 - 1], pa.int32()), pa.int64()),
        (pa.array([1, None, 2**31 - 1], pa.int32()), pa.float64()),
        (pa.array([1.5, None, float("nan")], pa.float32()), pa.float64()),
        (pa.array([7, None, -7], pa.int32()), pa.decimal128(12, 2)),
        (pa.array([2**63 - 1, None, -(2**63)], pa.int64()), pa.decimal128(38, 18)),
        (pa.array([7, None], pa.int64()), pa.decimal128(10, 0)),
        (pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)), pa.decimal128(38, 10)),
        (pa.array([Decimal("1000000"), None], pa.decimal128(38, 0)), pa.decimal128(10, 0)),
        (pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]), pa.timestamp("us")),
        (pa.array(["ä", None, ""], pa.large_string()), pa.string()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([b"\xc3\xa4", None], pa.binary()), pa.string()),
        (pa.array(["ä", None]), pa.binary()),
        (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
        (pa.array([1, 200, None], pa.uint8()), pa.int16()),
        (pa.array([1, None], pa.int64()), pa.int32()),
        (pa.nulls(3), pa.int64()),
        (pa.array([True, None]), pa.bool_()),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_values_are_converted_to_the_tables_type(make_table: MakeTable, stored: pa.Array, target: pa.DataType) -> None:
    result = read_as(make_table, target, stored)
    assert result.type == target
    if pa.types.is_dictionary(stored.type):
        stored = stored.dictionary_decode()
    expected = [None if value is None else comparable(value) for value in stored.to_pylist()]
    assert [None if value is None else comparable(value) for value in result.to_pylist()] == expected


def comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if value != value else value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return datetime.datetime(value.year, value.month, value.day)
    return value


@pytest.mark.parametrize(
    ("stored", "target"),
    [
        (pa.array([2**40]), pa.int32()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([Decimal("1.25")]), pa.decimal128(5, 1)),
        (pa.array([12345], pa.int32()), pa.decimal128(4, 0)),
        (pa.array([b"\xff"]), pa.string()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([1.5]), pa.float32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([1]), pa.string()),
        (pa.array([1]), pa.date32()),
        (pa.array([True]), pa.int32()),
        (pa.array([[1]]), pa.int64()),
        (pa.array([{"a": 1}]), pa.list_(pa.int64())),
        (pa.array([[1]]), pa.struct([("a", pa.int64())])),
        (pa.array([datetime.date(2020, 1, 1)]), UTC),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_inexact_conversions_are_refused(make_table: MakeTable, stored: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(DataError) as caught:
        read_as(make_table, target, stored)
    text = str(caught.value)
    assert "'c'" in text
    assert "id-part-0" in text
    assert "share.schema.t" in text


# === Timestamps ===

FAR = [
    datetime.datetime(1, 1, 1, 0, 0, 0, 1),
    datetime.datetime(1582, 10, 4),
    datetime.datetime(1883, 11, 18, 12, 3, 58),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(2262, 4, 12),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    None,
]


@pytest.mark.parametrize("target", [UTC, pa.timestamp("us")], ids=str)
@pytest.mark.parametrize("tz", [None, "UTC", "America/Los_Angeles"])
def test_timestamps_keep_their_instant(make_table: MakeTable, target: pa.DataType, tz: str | None) -> None:
    micros = pa.array(FAR, pa.timestamp("us"))
    result = read_as(make_table, target, micros.view(pa.timestamp("us", tz=tz)))
    assert result.view(pa.int64()).equals(micros.view(pa.int64()))


@pytest.mark.parametrize(("unit", "value"), [("ms", -1), ("ns", -1_000), ("ms", 253402300799999)])
def test_timestamps_of_other_units_become_microseconds(make_table: MakeTable, unit: str, value: int) -> None:
    result = read_as(make_table, UTC, pa.array([value, None], pa.timestamp(unit, tz="UTC")))
    factor = {"ms": 1000, "ns": 0.001}[unit]
    assert result.view(pa.int64()).to_pylist() == [int(value * factor), None]


def test_nanoseconds_that_microseconds_cannot_hold_are_refused(make_table: MakeTable) -> None:
    with pytest.raises(DataError, match="'c'"):
        read_as(make_table, UTC, pa.array([1], pa.timestamp("ns", tz="UTC")))


# === Columns and names ===


def test_missing_column_is_null_of_the_tables_type(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64()), ("b", pa.decimal128(38, 3)), ("l", pa.list_(pa.string()))]))
    table.add(pa.table({"a": [1]}))
    table.add(pa.table({"a": [2], "b": pa.array([Decimal("1.5")], pa.decimal128(38, 3)), "l": [["x"]]}))
    assert table.read().to_pydict() == {"a": [1, 2], "b": [None, Decimal("1.500")], "l": [None, ["x"]]}


def test_extra_columns_of_the_file_are_not_read(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64())]))
    table.add(pa.table({"_change_type": ["insert"], "a": [1], "dropped": [2]}))
    assert table.read().to_pydict() == {"a": [1]}


def test_column_names_may_have_dots(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64()), ("c", pa.int64())]))]))
    table.add(pa.table({"a": [{"b": 1, "c": 2}], "a.b": [3]}))
    assert table.read().to_pylist() == [{"a.b": 3, "a": {"b": 1, "c": 2}}]
    plan = table.plan()
    assert plan.output_schema.names == ["a.b", "a"]


def test_not_null_is_kept_in_the_schema(make_table: MakeTable) -> None:
    table = make_table(pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64())]))
    table.add(pa.table({"a": [1], "b": pa.array([None], pa.int64())}))
    rows = table.read()
    assert [field.nullable for field in rows.schema] == [False, True]


def test_char_and_varchar_are_strings(make_table: MakeTable) -> None:
    table = make_table(schema_string({"name": "c", "type": "char(5)"}, {"name": "v", "type": "varchar(9)"}))
    table.add(pa.table({"c": ["ab   "], "v": ["ab"]}))
    assert table.read().to_pydict() == {"c": ["ab   "], "v": ["ab"]}


# === Nested types ===

NESTED = pa.schema(
    [
        ("s", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.string())]))])),
        ("l", pa.list_(pa.struct([("x", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int64())]))),
        ("ll", pa.list_(pa.list_(pa.int64()))),
    ]
)
NARROW = pa.schema(
    [
        ("s", pa.struct([("y", pa.struct([("q", pa.int32())])), ("x", pa.int32())])),
        ("l", pa.list_(pa.struct([("x", pa.int32()), ("extra", pa.string())]))),
        ("m", pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        ("ll", pa.list_(pa.list_(pa.int32()))),
    ]
)
ROWS = [
    {
        "s": {"y": {"q": 1}, "x": 1},
        "l": [{"x": 1, "extra": "e"}, None],
        "m": [("a", {"x": 1}), ("b", None)],
        "ll": [[1], None, []],
    },
    {"s": None, "l": None, "m": None, "ll": None},
    {"s": {"y": None, "x": None}, "l": [], "m": [], "ll": []},
    {"s": {"y": {"q": None}, "x": 3}, "l": [{"x": None, "extra": None}], "m": [("c", {"x": None})], "ll": [[None]]},
]
EXPECTED = [
    {
        "s": {"x": 1, "y": {"z": None}},
        "l": [{"x": 1}, None],
        "m": [("a", {"x": 1}), ("b", None)],
        "ll": [[1], None, []],
    },
    {"s": None, "l": None, "m": None, "ll": None},
    {"s": {"x": None, "y": None}, "l": [], "m": [], "ll": []},
    {"s": {"x": 3, "y": {"z": None}}, "l": [{"x": None}], "m": [("c", {"x": None})], "ll": [[None]]},
]


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
def test_nested_values_are_widened_reordered_and_completed(make_table: MakeTable, batch_rows: int) -> None:
    table = make_table(NESTED)
    table.add(pa.Table.from_pylist(ROWS * 3, NARROW), write={"row_group_size": 5})
    rows = rows_of(table.plan(options=fast_options(batch_rows=batch_rows)))
    assert rows.to_pylist() == EXPECTED * 3


def test_selected_nested_field_keeps_its_parent_structs(make_table: MakeTable) -> None:
    table = make_table(NESTED)
    table.add(pa.Table.from_pylist(ROWS, NARROW))
    rows = table.read(columns=["s.y"])
    assert rows.schema.field("s").type == pa.struct([("y", pa.struct([("z", pa.string())]))])
    assert rows.to_pylist() == [{"s": None if row["s"] is None else {"y": row["s"]["y"]}} for row in EXPECTED]


def test_selected_nested_field_reads_only_its_own_bytes(make_table: MakeTable) -> None:
    wide = pa.table({"s": [{"a": i, "b": f"{i:0100d}"} for i in range(50_000)]})
    table = make_table(wide.schema)
    table.add(wide, write={"compression": "NONE", "use_dictionary": False})
    assert table.read(columns=["s.a"])["s"].to_pylist()[7] == {"a": 7}
    assert table.storage.sent < 0.2 * table.storage.bytes_of("part-0.parquet")


def test_null_struct_stays_null_if_its_fields_are_missing(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("s", pa.struct([("new", pa.int64())]))]))
    table.add(pa.table({"s": pa.array([{"old": 1}, None], pa.struct([("old", pa.int32())]))}))
    assert table.read().to_pylist() == [{"s": {"new": None}}, {"s": None}]


# === Column mapping ===


def mapped_field(name: str, physical: str, number: int, data_type: Any) -> dict[str, Any]:
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}


MAPPED = schema_string(
    mapped_field("name", "col-1", 1, "string"),
    mapped_field("s", "col-2", 2, {"type": "struct", "fields": [mapped_field("x", "col-3", 3, "long")]}),
)


def with_ids(table: pa.Table, ids: dict[str, int]) -> pa.Table:
    def number(field: pa.Field) -> pa.Field:
        if pa.types.is_struct(field.type):
            field = field.with_type(pa.struct([number(field.type.field(i)) for i in range(field.type.num_fields)]))
        return field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) if field.name in ids else field

    schema = pa.schema([number(field) for field in table.schema])
    return pa.Table.from_arrays([table[i].cast(schema.field(i).type) for i in range(table.num_columns)], schema=schema)


def test_columns_are_found_by_physical_name(make_table: MakeTable) -> None:
    table = make_table(MAPPED, delta__columnMapping__mode="name")
    # The file's column with this logical name is a different column, which was dropped.
    table.add(pa.table({"name": ["wrong"], "col-1": ["right"], "col-2": [{"col-3": 5, "x": 6}]}))
    assert table.read().to_pylist() == [{"name": "right", "s": {"x": 5}}]


def test_columns_are_found_by_field_id(make_table: MakeTable) -> None:
    table = make_table(MAPPED, delta__columnMapping__mode="id")
    data = pa.table({"col-1": ["wrong"], "other": ["right"], "s": [{"col-3": 6, "five": 5}]})
    table.add(with_ids(data, {"col-1": 9, "other": 1, "s": 2, "col-3": 8, "five": 3}))
    assert table.read().to_pylist() == [{"name": "right", "s": {"x": 5}}]


def test_partition_values_are_found_by_physical_name(make_table: MakeTable) -> None:
    table = make_table(MAPPED, ["name"], delta__columnMapping__mode="name")
    table.add(pa.table({"col-2": [{"col-3": 5}]}), partition_values={"col-1": "p"})
    assert table.read().to_pylist() == [{"name": "p", "s": {"x": 5}}]


# === Variants ===


def variant_table(make_table: MakeTable) -> Table:
    table = make_table(schema_string({"name": "v", "type": "variant"}))
    # Empty metadata; values: int8 42, null, true (Parquet, "Variant Binary Encoding").
    values = [
        {"metadata": b"\x01\x00\x00", "value": b"\x0c\x2a"},
        None,
        {"metadata": b"\x01\x00\x00", "value": b"\x04"},
    ]
    physical = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])
    table.add(pa.table({"v": pa.array(values, physical)}))
    return table


def test_variants_are_json_text(make_table: MakeTable) -> None:
    assert variant_table(make_table).read()["v"].to_pylist() == ["42", None, "true"]


def test_variants_are_structs_on_request(make_table: MakeTable) -> None:
    rows = rows_of(variant_table(make_table).plan(options=fast_options(variant_as=VariantAs.STRUCT)))
    assert rows["v"].to_pylist() == [
        {"metadata": b"\x01\x00\x00", "value": b"\x0c\x2a"},
        None,
        {"metadata": b"\x01\x00\x00", "value": b"\x04"},
    ]


def test_null_struct_with_not_null_fields_can_be_written(make_table: MakeTable) -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    table = make_table(pa.schema([("a", pa.int64()), ("s", inner), ("o", pa.struct([("i", inner)]))]))
    table.add(pa.table({"a": [1, 2]}))
    rows = table.read()
    rows.validate(full=True)
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    assert pq.read_table(sink).to_pylist() == [{"a": 1, "s": None, "o": None}, {"a": 2, "s": None, "o": None}]
