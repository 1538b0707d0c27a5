"""Columns of a file are found by path or field id and converted to the types of the table."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.decode import text as text_check
from delta_sharing_client.decode.align import Aligner, FileColumn, checker
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.schema import from_arrow_schema
from delta_sharing_client.errors import DataError
from delta_sharing_client.options import VariantAs
from tests.quota import meets, met

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
FILE = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.struct([("b", pa.int64()), ("p", POINT), ("l", pa.list_(POINT)), ("last", pa.int64())])),
        ("m", pa.map_(pa.string(), pa.struct([("k", pa.map_(pa.int32(), POINT)), ("v", pa.list_(pa.list_(POINT)))]))),
        ("l", pa.large_list(pa.list_(POINT, 2))),
        ("z", pa.int64()),
    ]
)
TABLE = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.struct([("b", pa.int64()), ("p", POINT), ("l", pa.list_(POINT)), ("last", pa.int64())])),
        ("m", pa.map_(pa.string(), pa.struct([("k", pa.map_(pa.int32(), POINT)), ("v", pa.list_(pa.list_(POINT)))]))),
        ("l", pa.list_(pa.list_(POINT))),
        ("z", pa.int64()),
    ]
)


def fields_of(schema: pa.Schema) -> dict[str, StructField]:
    return {field.name: field for field in from_arrow_schema(schema).fields}


def aligner(schema: pa.Schema, mode: ColumnMappingMode = ColumnMappingMode.NONE) -> Aligner:
    return Aligner(schema, mode, VariantAs.JSON)


def leaves_below(*names: str) -> tuple[int, ...]:
    """Return the numbers of the Parquet columns whose path begins with ``names``, as pyarrow writes them."""
    sink = io.BytesIO()
    pq.write_table(FILE.empty_table(), sink)
    schema = pq.ParquetFile(sink).schema
    paths = [schema.column(number).path.split(".") for number in range(len(schema))]
    return tuple(number for number, path in enumerate(paths) if tuple(path[: len(names)]) == names)


@pytest.mark.parametrize("name", FILE.names)
def test_nested_column_maps_to_all_its_parquet_columns(name: str) -> None:
    column = aligner(FILE).column(fields_of(TABLE)[name])
    assert column.leaves == leaves_below(name)
    assert column.top == FILE.names.index(name)
    assert aligner(FILE).leaves == len(leaves_below())


@pytest.mark.parametrize(
    ("name", "selected", "paths"),
    [
        ("s", pa.struct([("last", pa.int64())]), [("s", "last")]),
        ("s", pa.struct([("p", pa.struct([("y", pa.string())]))]), [("s", "p", "y")]),
        ("s", pa.struct([("last", pa.int64()), ("b", pa.int64())]), [("s", "last"), ("s", "b")]),
        ("s", pa.struct([("l", pa.list_(pa.struct([("y", pa.string())])))]), [("s", "l", "list", "element", "y")]),
        # If a struct has none of the selected fields, one field is read to show which structs are null.
        ("s", pa.struct([("none", pa.int64())]), [("s", "b")]),
        ("s", pa.struct([("p", pa.struct([("none", pa.int64())]))]), [("s", "p", "x")]),
        (
            "m",
            pa.map_(pa.string(), pa.struct([("v", pa.list_(pa.list_(pa.struct([("x", pa.int32())]))))])),
            [("m", "key_value", "key"), ("m", "key_value", "value", "v", "list", "element", "list", "element", "x")],
        ),
        ("l", pa.list_(pa.list_(pa.struct([("y", pa.string())]))), [("l", "list", "element", "list", "element", "y")]),
    ],
)
def test_selected_fields_have_their_own_parquet_columns(
    name: str, selected: pa.DataType, paths: list[tuple[str, ...]]
) -> None:
    column = aligner(FILE).column(fields_of(pa.schema([(name, selected)]))[name])
    expected = [leaves_below(*path) for path in paths]
    assert [len(item) for item in expected] == [1] * len(paths)
    assert column.leaves == tuple(item[0] for item in expected)


@pytest.mark.parametrize("path", [("a",), ("z",), ("s", "b"), ("s", "p", "x"), ("s", "p", "y"), ("s", "last")])
def test_field_in_structs_maps_to_one_parquet_column(path: tuple[str, ...]) -> None:
    fields, steps = fields_of(TABLE), []
    for name in path:
        steps.append(fields[name])
        fields = {item.name: item for item in getattr(fields[name].type, "fields", ())}
    files = aligner(FILE)
    for _ in range(2):  # the second time from the cache
        leaf = files.leaf(tuple(steps))
        assert leaf is not None
        assert (leaf[0],) == leaves_below(*path)


def test_nested_and_missing_columns_have_no_single_leaf() -> None:
    table, files = fields_of(TABLE), aligner(FILE)
    for name in ("s", "m", "l"):
        leaf = files.leaf((table[name],))
        assert leaf is not None
        assert leaf[0] == -1
    twice = aligner(pa.schema([("s", pa.struct([("B", pa.int64()), ("Last", pa.int64()), ("LAST", pa.int64())]))]))
    with pytest.raises(DataError, match=r"Column 's\.last' must occur once in the file"):
        twice.leaf((table["s"], StructField("last", table["a"].type)))
    none = StructField("none", table["a"].type)
    assert files.leaf((none,)) is None
    assert files.leaf((table["s"], none)) is None


# === Values ===


def column_of(stored: pa.DataType, target: pa.Field) -> FileColumn:
    [field] = from_arrow_schema(pa.schema([target])).fields
    return aligner(pa.schema([("c", stored)])).column(field)


def applied(array: pa.Array, target: pa.DataType) -> list[Any]:
    result = column_of(array.type, pa.field("c", target)).apply(array)
    result.validate(full=True)
    assert result.type == column_of(array.type, pa.field("c", target)).type
    return result.to_pylist()


NARROW_POINT = pa.struct([("y", pa.string()), ("x", pa.int16()), ("more", pa.int8())])
POINTS = [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 3, "y": None}]


def narrow(points: Any) -> Any:
    """Return rows with points as in the file, where they have one more field than in the table."""
    if isinstance(points, list):
        return [narrow(item) for item in points]
    if isinstance(points, tuple):
        return (points[0], narrow(points[1]))
    return {**points, "more": 7} if isinstance(points, dict) and "x" in points else points


NESTED: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (NARROW_POINT, POINT, POINTS),
    (pa.struct([("x", pa.int32())]), pa.struct([]), [{}, None, {}]),
    (pa.list_(NARROW_POINT), pa.list_(POINT), [POINTS, None, [], POINTS[1:], [None]]),
    (pa.large_list(NARROW_POINT), pa.list_(POINT), [POINTS, None, [], POINTS[1:]]),
    (pa.list_(NARROW_POINT, 2), pa.list_(POINT), [POINTS[:2], None, POINTS[2:]]),
    (pa.list_(pa.int16()), pa.list_(pa.int32()), [[1, None], None, [], [3]]),
    (pa.large_list(pa.int32()), pa.list_(pa.int32()), [[1, None], None, [], [3]]),
    (pa.list_(pa.field("item", pa.int32())), pa.list_(pa.int32()), [[1, None], None, [], [3]]),
    (pa.large_list(pa.field("element", pa.int32())), pa.list_(pa.int32()), [[1, None], None, [], [3]]),
    (pa.struct([("x", pa.null())]), pa.struct([("x", pa.int64())]), [{"x": None}, None]),
    (pa.list_(pa.list_(pa.int8())), pa.list_(pa.list_(pa.int64())), [[[1], None], None, [[], [2, 3]]]),
    (
        pa.map_(pa.string(), NARROW_POINT),
        pa.map_(pa.string(), POINT),
        [[("a", POINTS[0]), ("b", None)], None, [], [("c", POINTS[3])]],
    ),
    (pa.map_(pa.int16(), pa.int16()), pa.map_(pa.int64(), pa.int32()), [[(1, 2), (3, None)], None, [], [(4, 5)]]),
    (pa.map_(pa.int64(), pa.int16()), pa.map_(pa.int64(), pa.int32()), [[(1, 2), (3, None)], None, [], [(4, 5)]]),
    (
        pa.struct([("d", pa.dictionary(pa.int8(), pa.string()))]),
        pa.struct([("d", pa.string())]),
        [{"d": "x"}, None, {"d": None}],
    ),
]


@pytest.mark.parametrize(("stored", "target", "rows"), NESTED, ids=lambda item: str(item)[:60])
def test_nested_values_of_sliced_batches_are_correct(stored: pa.DataType, target: pa.DataType, rows: list[Any]) -> None:
    array = pa.array(narrow(rows), stored)
    for start in range(len(rows) + 1):
        for stop in range(start, len(rows) + 1):
            assert applied(array.slice(start, stop - start), target) == rows[start:stop]


class Extension(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.int32(), "tests.extension")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_extension_type_is_read_as_its_storage_type() -> None:
    kind = Extension()
    for values in (pa.array([1, None, 3], pa.int32()), pa.nulls(2, pa.int32())):
        array = pa.ExtensionArray.from_storage(kind, values)
        for target in (pa.int32(), pa.int64()):
            assert applied(array, target) == values.to_pylist()
    schema = pa.schema([("c", pa.struct([("x", kind)])), ("z", pa.int64())])
    assert aligner(schema).column(StructField("z", PrimitiveType("long"))).leaves == (1,)


def test_void_column_is_null_for_any_file_content() -> None:
    void = StructField("c", PrimitiveType("void"))
    assert aligner(pa.schema([("c", pa.int64())])).column(void).leaves == ()
    assert column_of(pa.null(), pa.field("c", pa.int64())).leaves == ()
    array = pa.array([{"x": 1, "v": 2}, None])
    target = pa.struct([("x", pa.int64()), ("v", pa.null())])
    assert applied(array, target) == [{"x": 1, "v": None}, None]


def test_fields_with_swapped_physical_names_are_read() -> None:
    point = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    target = StructType((mapped("x", "y", 1), mapped("y", "x", 2)))
    column = aligner(pa.schema([("c", point)]), ColumnMappingMode.NAME).column(StructField("c", target))
    assert column.apply(pa.array([{"x": 1, "y": 2}], point)).to_pylist() == [{"x": 2, "y": 1}]


def test_struct_without_fields_is_not_a_parquet_column() -> None:
    files = aligner(pa.schema([("s", pa.struct([])), ("z", pa.int64())]))
    assert files.column(StructField("z", PrimitiveType("long"))).leaves == (0,)


def test_batch_with_the_tables_schema_is_returned_unchanged() -> None:
    for data_type in (pa.int64(), POINT, pa.list_(pa.field("element", POINT)), pa.string()):
        array = pa.nulls(3, data_type)
        column = column_of(data_type, pa.field("c", data_type))
        assert column.convert is None
        assert column.apply(array) is array
    assert column_of(pa.int32(), pa.field("c", pa.int64())).convert is not None
    assert column_of(pa.list_(pa.field("other", pa.int64())), pa.field("c", pa.list_(pa.int64()))).convert is not None
    assert column_of(NARROW_POINT, pa.field("c", POINT)).convert is not None


@pytest.mark.parametrize(
    ("stored", "target", "path"),
    [
        (pa.string(), pa.int64(), "c"),
        (pa.struct([("x", pa.string())]), POINT, "c.x"),
        (pa.list_(pa.struct([("x", pa.string())])), pa.list_(POINT), "c.element.x"),
        (pa.map_(pa.int64(), pa.int64()), pa.map_(pa.string(), pa.int64()), "c.key"),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.int64()), "c.value"),
        (pa.int64(), POINT, "c"),
        (pa.int64(), pa.list_(pa.int64()), "c"),
        (pa.list_(pa.int64()), pa.int64(), "c"),
        (POINT, pa.list_(POINT), "c"),
        (pa.list_(POINT), POINT, "c"),
        (pa.list_(pa.int64()), pa.map_(pa.int64(), pa.int64()), "c"),
        (POINT, pa.map_(pa.int64(), pa.int64()), "c"),
    ],
    ids=str,
)
def test_type_mismatch_error_has_the_nested_path(stored: pa.DataType, target: pa.DataType, path: str) -> None:
    with pytest.raises(DataError, match=f"Column '{path}' must have the table's type .* but the file has"):
        column_of(stored, pa.field("c", target))


@pytest.mark.parametrize(
    ("names", "leaves"),
    [
        (["metadata", "value"], 2),
        (["typed_value", "value", "metadata"], 3),
        (["metadata", "typed_value"], 2),
        (["metadata"], None),
        (["value", "typed_value"], None),
        (["metadata", "value", "more"], None),
        (None, None),
    ],
)
def test_variant_is_a_struct_of_its_fields(names: list[str] | None, leaves: int | None) -> None:
    stored = pa.binary() if names is None else pa.struct([(name, pa.binary()) for name in names])
    files, field = aligner(pa.schema([("c", stored)])), StructField("c", PrimitiveType("variant"))
    if leaves is None:
        with pytest.raises(DataError, match=r"Column 'c' must have the table's type .* but the file has"):
            files.column(field)
    else:
        assert files.column(field).leaves == tuple(range(leaves))


# === NOT NULL ===

STRICT = pa.struct([pa.field("x", pa.int64(), False), pa.field("y", pa.int64())])
LOOSE = pa.struct([("x", pa.int32()), ("y", pa.int32())])


def test_null_in_a_not_null_field_is_refused() -> None:
    column = column_of(LOOSE, pa.field("c", STRICT))
    good = pa.array([{"x": 1, "y": None}, None, {"x": 2, "y": 2}], LOOSE)
    assert column.apply(good).to_pylist() == good.to_pylist()
    assert column.apply(good.slice(0, 1)).to_pylist() == good.to_pylist()[:1]
    for bad in ([{"x": None, "y": 1}], [{"x": 1, "y": 1}, None, {"x": None, "y": 1}]):
        with pytest.raises(DataError, match=r"Column 'c\.x' is NOT NULL in the table, but the file has nulls in it"):
            column.apply(pa.array(bad, LOOSE))
    # A null in a null struct is allowed. A struct of the table's own type is checked, too.
    below = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())] * 2, list("xy"), mask=pa.array([False, True]))
    assert column.apply(below).to_pylist() == [{"x": 1, "y": 1}, None]
    exact = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    with pytest.raises(DataError, match=r"Column 'c\.x' is NOT NULL"):
        column_of(exact, pa.field("c", STRICT)).apply(pa.array([{"x": None, "y": 1}], exact))
    # Rows outside the slice are not checked.
    assert column.apply(pa.array([{"x": None, "y": 1}, {"x": 1, "y": 1}], LOOSE).slice(1)).to_pylist() == [
        {"x": 1, "y": 1}
    ]


def test_null_in_a_not_null_column_is_refused() -> None:
    column = column_of(pa.int64(), pa.field("c", pa.int64(), False))
    assert column.apply(pa.array([1])).to_pylist() == [1]
    with pytest.raises(DataError, match="Column 'c' is NOT NULL in the table, but the file has nulls in it"):
        column.apply(pa.array([1, None]))
    missing = aligner(pa.schema([("other", pa.int64())])).column(
        from_arrow_schema(pa.schema([pa.field("c", pa.int64(), False)])).fields[0]
    )
    assert len(missing.missing(0, ["a"])) == 0
    with pytest.raises(DataError, match=r"NOT NULL in the table, but the file does not have it.*columns=\['a', 'b'\],"):
        missing.missing(1, ["a", "b"])
    with pytest.raises(DataError, match=r"columns=\['0', '1', '2', '3', '4', '5', '6', '7', \.\.\.\],"):
        missing.missing(1, list("0123456789"))


@pytest.mark.parametrize("stored", [pa.list_(pa.int32()), pa.large_list(pa.int32())], ids=str)
def test_null_element_is_refused_if_elements_are_not_null(stored: pa.DataType) -> None:
    target = pa.field("c", pa.list_(pa.field("element", pa.int64(), False)))
    column = column_of(stored, target)
    rows = [[1, 2], None, [], [3], [None]]
    array = pa.array(rows, stored)
    with pytest.raises(DataError, match="The elements of column 'c' must not be null, but the file has null elements"):
        column.apply(array)
    assert column.apply(array.slice(0, 4)).to_pylist() == rows[:4]


def test_null_value_is_refused_if_map_values_are_not_null() -> None:
    stored = pa.map_(pa.string(), pa.int32())
    target = pa.field("c", pa.map_(pa.string(), pa.field("value", pa.int64(), False)))
    column = column_of(stored, target)
    rows = [[("a", 1)], None, [], [("b", None)], [("c", 3)]]
    array = pa.array(rows, stored)
    with pytest.raises(DataError, match="The map values of column 'c' must not be null, but the file has null values"):
        column.apply(array)
    for start, stop in ((0, 3), (4, 5), (1, 3)):
        assert column.apply(array.slice(start, stop - start)).to_pylist() == rows[start:stop]


def test_a_map_with_a_null_key_is_refused() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    # Most releases of Arrow cannot make a map with a null key; others crash when its keys are used in a different
    # map.
    array = SimpleNamespace(keys=pa.array(["a", None]), items=pa.array([1, 2], pa.int32()))
    with pytest.raises(DataError, match="The map keys of column 'c' must not be null"):
        column_of(kind, pa.field("c", kind)).apply(array)


# === Names and field ids ===


def with_ids(*names: str) -> pa.Schema:
    return pa.schema(
        [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)}) for number, name in enumerate(names, 1)]
    )


def mapped(name: str, physical: str, field_id: int) -> StructField:
    [field] = from_arrow_schema(pa.schema([(name, pa.int64())])).fields
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": field_id}
    return StructField(name, field.type, metadata=metadata)


@pytest.mark.parametrize(
    ("mode", "top"), [(ColumnMappingMode.NONE, 0), (ColumnMappingMode.NAME, 1), (ColumnMappingMode.ID, 2)]
)
def test_column_is_found_by_the_mapping_mode(mode: ColumnMappingMode, top: int) -> None:
    files = aligner(with_ids("shown", "stored", "other"), mode)
    assert files.column(mapped("shown", "stored", 3)).top == top
    assert files.column(mapped("x", "y", 9)).top == -1


def test_id_mapping_requires_field_ids_in_the_file() -> None:
    assert aligner(pa.schema([]), ColumnMappingMode.ID).column(mapped("a", "b", 1)).leaves == ()
    # A file may have columns with and without ids. A column without an id is found by its name.
    files = aligner(pa.schema([*with_ids("a"), ("plain", pa.int64())]), ColumnMappingMode.ID)
    assert files.column(mapped("x", "y", 1)).top == 0
    assert files.column(StructField("plain", PrimitiveType("long"))).top == 1
    with pytest.raises(DataError, match="maps columns by field id, but the file has no field ids"):
        aligner(pa.schema([("a", pa.int64())]), ColumnMappingMode.ID)


@pytest.mark.parametrize(
    ("names", "name", "top"),
    [
        (["a", "A"], "a", 0),
        (["a", "A"], "A", 1),
        (["b", "A"], "a", 1),
        (["b", "a"], "A", 1),
        (["b"], "a", -1),
        (["a", "a"], "a", None),
        (["a", "A"], "ä", -1),
        (["É", "b"], "é", 0),
        (["aB", "Ab"], "ab", None),
    ],
)
def test_name_in_another_case_is_found_if_it_is_unique(names: Sequence[str], name: str, top: int | None) -> None:
    schema = pa.schema([(name, pa.int64()) for name in names])
    [field] = from_arrow_schema(pa.schema([(name, pa.int64())])).fields
    if top is None:
        with pytest.raises(DataError, match=f"Column '{name}' must occur once in the file"):
            aligner(schema).column(field)
    else:
        assert aligner(schema).column(field).top == top


# === Invalid values ===


def text_of(*parts: bytes) -> pa.StringArray:
    """Return a string array without validation."""
    return pa.array(parts, pa.binary()).view(pa.string())


BAD = [text_of(b"ok", b"\xff"), text_of(b"\xc3", b"\xa4"), text_of(b"", b"\xe2\x82"), text_of(b"a", b"\xed\xa0\x80")]


@pytest.mark.parametrize("bad", BAD)
def test_nested_text_is_checked(bad: pa.Array) -> None:
    good = pa.array(["x"] * len(bad))
    offsets = pa.array([0, len(bad)], pa.int32())
    nested = [
        pa.StructArray.from_arrays([good, bad], ["a", "b"]),
        pa.ListArray.from_arrays(offsets, bad),
        pa.MapArray.from_arrays(offsets, good, bad),
        pa.MapArray.from_arrays(offsets, bad, good),
        pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([bad], ["b"])),
    ]
    for array in nested:
        check = checker(array.type)
        assert check is not None
        with pytest.raises(pa.ArrowInvalid):
            check(array)


def test_decimal_with_too_many_digits_is_refused() -> None:
    check = checker(pa.decimal128(3, 0))
    assert check is not None
    with pytest.raises(pa.ArrowInvalid):
        check(pa.array([Decimal(12345)], pa.decimal128(5, 0)).view(pa.decimal128(3, 0)))


@meets(text=6, null=11, cut=9)
@given(st.lists(st.none() | st.text(max_size=6), max_size=20), st.integers(0, 10), st.integers(0, 10))
def test_slices_of_valid_text_pass(values: list[str | None], start: int, length: int) -> None:
    met("text", any(values[start : start + length]))
    met("null", None in values[start : start + length])
    met("cut", 0 < start < len(values) and length)
    check = checker(pa.string())
    assert check is not None
    check(pa.array(values, pa.string()).slice(start, length))


def test_types_without_invalid_values_are_not_checked() -> None:
    for data_type in (pa.int64(), pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.float64())])):
        assert checker(data_type) is None


# === Many texts ===

MANY = 4096


@pytest.mark.parametrize("count", [MANY - 1, MANY, MANY + 1])
def test_invalid_text_is_found_in_arrays_of_any_length(count: int) -> None:
    check = checker(pa.string())
    assert check is not None
    good = ["ä", "", "日本", "x", None] * (count // 5 + 1)
    check(pa.array(good[:count], pa.string()))
    check(pa.array(good + good, pa.string()).slice(3, count))
    check(pa.nulls(count, pa.string()))
    check(pa.array([""] * count))
    check(pa.array([""] * (count - 1) + ["x"]))
    check(pa.array(["x"] + [""] * (count - 1)))
    for place in (0, 1, count // 2, count - 1):
        for wrong in (b"\xff", b"\xc3", b"\xa4", b"ok\xe6\x97"):
            bytes_ = [b"ok"] * count
            bytes_[place] = wrong
            array = pa.array(bytes_, pa.binary()).view(pa.string())
            with pytest.raises(pa.ArrowInvalid):
                check(array)
            # Text outside the slice is not checked.
            if place == 0:
                check(array.slice(1))
            elif place == count - 1:
                check(array.slice(0, count - 1))


def test_many_strings_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checking each string separately takes many times as long."""
    check = checker(pa.string())
    assert check is not None
    lengths: list[int] = []
    from_buffers = pa.Array.from_buffers

    class Arrays:
        @staticmethod
        def from_buffers(data_type: pa.DataType, length: int, *rest: Any) -> pa.Array:
            lengths.append(length)
            return from_buffers(data_type, length, *rest)

    monkeypatch.setattr("delta_sharing_client.decode.align.pa.Array", Arrays)
    check(pa.array(np.full(MANY, "t\u00e9xt")))
    assert lengths == [1]
    check(pa.array(np.full(MANY - 1, "t\u00e9xt")))
    assert lengths == [1]


@pytest.mark.parametrize(("text", "count", "has_calls"), [("text", MANY, False), ("text", 40_000, True)])
def test_numpy_checks_for_ascii_only_in_long_arrays(
    monkeypatch: pytest.MonkeyPatch, text: str, count: int, has_calls: bool
) -> None:
    calls: list[int] = []
    check = checker(pa.string())
    assert check is not None
    monkeypatch.setattr(text_check.np, "frombuffer", lambda *values: calls.append(len(values)) or np.zeros(1, np.int32))
    check(pa.array(np.full(count, text)))
    check(pa.array([], pa.string()))
    check(pa.nulls(10, pa.string()))
    assert bool(calls) is has_calls


@pytest.mark.parametrize("place", [0, 1, 2500, 4997])
def test_character_split_between_two_strings_is_invalid(place: int) -> None:
    """All bytes together are valid UTF-8, but the two strings are not."""
    check = checker(pa.string())
    assert check is not None
    whole = [b"a", b"", "é".encode(), b""] * 1250
    for start in (0, 3):
        check(pa.array([b"x"] * start + whole, pa.binary()).view(pa.string()).slice(start))
        halves = [b"x"] * start + whole
        halves[start + place : start + place + 2] = [b"\xc3", b"\xa9"]
        with pytest.raises(pa.ArrowInvalid):
            check(pa.array(halves, pa.binary()).view(pa.string()).slice(start))


# === Calendars ===

# The writer used the Julian calendar before 1582; in it, day -719,164 is 1 January of the year 1.
JULIAN = {
    b"org.apache.spark.version": b"3.5.0",
    b"org.apache.spark.legacyDateTime": b"",
    b"org.apache.spark.timeZone": b"UTC",
}
OLD, FIRST = -719_164, datetime.date(1, 1, 1)


def converted(array: pa.Array, target: pa.DataType, keys: dict[bytes, bytes]) -> list[Any]:
    [field] = from_arrow_schema(pa.schema([("c", target)])).fields
    return aligner(pa.schema([("c", array.type)], keys)).column(field).apply(array).to_pylist()


def test_julian_days_are_converted() -> None:
    days = pa.array([OLD, 0, None], pa.int32()).view(pa.date32())
    expected = [FIRST, datetime.date(1970, 1, 1), None]
    assert converted(days, pa.date32(), JULIAN) == expected
    struct = pa.StructArray.from_arrays([pa.array([1, 2, 3]), days], ["n", "d"])
    assert [row["d"] for row in converted(struct, struct.type, JULIAN)] == expected
    assert [row["n"] for row in converted(struct, struct.type, JULIAN)] == [1, 2, 3]
    for kind in (pa.list_(pa.date32()), pa.list_(pa.field("element", pa.date32()))):
        lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), days, kind)
        assert converted(lists, lists.type, JULIAN) == [expected[:2], [None]]


def test_julian_timestamps_keep_their_date() -> None:
    instants = pa.array([OLD * 86_400_000_000, 0], pa.int64()).view(pa.timestamp("us", "UTC"))
    moments = converted(instants, pa.timestamp("us", "UTC"), JULIAN)
    assert [moment.date() for moment in moments] == [FIRST, datetime.date(1970, 1, 1)]
    # Spark does not use the Julian calendar for timestamps without a time zone.
    plain = pa.array([OLD * 86_400_000_000 + 172_800_000_000], pa.int64()).view(pa.timestamp("us"))
    int96 = {b"org.apache.spark.legacyINT96": b""}
    for keys in (JULIAN, {**JULIAN, **int96}):
        assert converted(plain, pa.timestamp("us"), keys)[0].date() == FIRST
    # The footer has separate keys for INT96 and INT64.
    zoned, old = pa.timestamp("us", "UTC"), instants.slice(0, 1).cast(pa.timestamp("us"))
    assert converted(old, zoned, {**JULIAN, **int96})[0].date() == FIRST
    only = {b"org.apache.spark.version": b"3.5.0", b"org.apache.spark.timeZone": b"UTC", **int96}
    assert converted(old, zoned, only)[0].date() == FIRST
    assert converted(plain.cast(zoned), zoned, only)[0].date() == FIRST
    assert converted(pa.array([OLD + 2], pa.int32()).view(pa.date32()), pa.date32(), only) == [FIRST]
    # Statistics in the Julian calendar are not used.
    files = aligner(pa.schema([("d", pa.date32()), ("n", pa.int64())], JULIAN))
    table = fields_of(pa.schema([("d", pa.date32()), ("n", pa.int64())]))
    assert files.leaf((table["d"],)) == (-1, pa.date32())
    assert files.leaf((table["n"],)) == (1, pa.int64())


def test_lists_are_detected_at_any_depth() -> None:
    nested = pa.struct({"s": pa.struct({"l": pa.list_(pa.int8())})})
    types = {"point": POINT, "nested": nested, "map": pa.map_(pa.string(), pa.int8()), "list": pa.large_list(pa.int8())}
    files = aligner(pa.schema(types))
    assert [files.has_lists([top]) for top in range(4)] == [False, True, True, True]
    assert files.has_lists([0, 1])
