"""The columns that a read returns, their sources, and their sizes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.columns import ColumnPath
from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.schema import is_geometry, parse_schema
from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.options import VariantAs
from delta_sharing_client.plan.read_columns import (
    CHANGE_FIELDS,
    ROW_LINEAGE_FIELDS,
    Origin,
    ReadColumn,
    check_nothing_left_out,
    filter_columns,
    left_out_metadata,
    needed_share,
    output_columns,
)
from delta_sharing_client.predicates.tree import all_of, col


def struct(**fields: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": not name.startswith("must"), "metadata": {}}
            for name, kind in fields.items()
        ],
    }


def array(element: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def mapping(key: Any, value: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nulls}


def schema(**fields: Any) -> StructType:
    return parse_schema(json.dumps(struct(**fields)))


TABLE = schema(
    a="long", P="string", must="integer",
    s=struct(x="long", y=struct(u="string", v="double"), z="date"),
    lists=array(struct(k="long", w="variant"), nulls=False),
    maps=mapping("string", "variant", nulls=False), v="variant",
)  # fmt: skip


def selected_columns(
    *paths: ColumnPath, added: Any = (), variant_as: VariantAs = VariantAs.STRUCT
) -> tuple[ReadColumn, ...]:
    return output_columns(TABLE, paths or None, ["p"], variant_as, added)


def names(columns: tuple[ReadColumn, ...]) -> list[str]:
    return [column.name for column in columns]


def test_all_columns_have_their_order_and_origin() -> None:
    columns = selected_columns()
    assert names(columns) == TABLE.names
    assert [column.origin for column in columns] == [Origin.FILE, Origin.PARTITION] + [Origin.FILE] * 5
    assert [column.arrow.nullable for column in columns] == [True, True, False] + [True] * 4


def test_added_columns_come_last_unless_they_are_selected() -> None:
    assert names(selected_columns(added=ROW_LINEAGE_FIELDS)) == [*TABLE.names, "_row_id", "_row_commit_version"]
    assert names(selected_columns(("a",), added=ROW_LINEAGE_FIELDS)) == ["a", "_row_id", "_row_commit_version"]
    assert names(selected_columns(("_row_id",), ("a",), added=ROW_LINEAGE_FIELDS)) == ["_row_id", "a"]
    assert names(selected_columns(("a",), added=CHANGE_FIELDS)) == ["a"]
    assert names(selected_columns(added=CHANGE_FIELDS)) == [*TABLE.names, *(field.name for field in CHANGE_FIELDS)]
    columns = selected_columns(("_commit_version",), ("_change_type",), ("_commit_timestamp",), added=CHANGE_FIELDS)
    assert [column.origin for column in columns] == [Origin.COMMIT_VERSION, Origin.CHANGE_TYPE, Origin.COMMIT_TIMESTAMP]
    assert [column.arrow for column in columns] == [CHANGE_FIELDS[1], CHANGE_FIELDS[0], CHANGE_FIELDS[2]]


def test_empty_selection_has_no_columns() -> None:
    assert output_columns(TABLE, (), ["p"], VariantAs.STRUCT, CHANGE_FIELDS) == ()


def test_error_of_a_missing_column_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="must"):
        selected_columns(("mus",))


def test_selected_struct_fields_have_the_schema_order() -> None:
    (column,) = selected_columns(("s", "z"), ("s", "y", "v"))
    assert column.arrow.type == pa.struct([("y", pa.struct([("v", pa.float64())])), ("z", pa.date32())])
    (column,) = selected_columns(("s", "y"), ("s", "y", "v"))
    assert column.arrow.type == pa.struct([("y", pa.struct([("u", pa.string()), ("v", pa.float64())]))])
    assert filter_columns(TABLE, col("s.z").is_null() & (col("a") > 1), ["p"]) == (
        selected_columns(("a",))[0], selected_columns(("s", "z"))[0],
    )  # fmt: skip
    assert filter_columns(TABLE, None, ["p"]) == ()


def test_columns_of_a_filter_are_sorted() -> None:
    predicate = all_of([col(name).is_null() for name in TABLE.names])
    assert names(filter_columns(TABLE, predicate, ["p"])) == sorted(TABLE.names)


@pytest.mark.parametrize("variant_as", VariantAs)
def test_nested_variants_have_the_requested_form(variant_as: VariantAs) -> None:
    in_struct = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
    variant = in_struct if variant_as is VariantAs.STRUCT else pa.string()
    lists, maps, whole = selected_columns(("lists",), ("maps",), ("v",), variant_as=variant_as)
    element = pa.field("element", pa.struct([("k", pa.int64()), ("w", variant)]), nullable=False)
    assert lists.arrow.type.equals(pa.list_(element))
    assert lists.arrow.type.value_field.equals(element)
    assert maps.arrow.type.item_field.equals(pa.field("value", variant, nullable=False))
    assert maps.arrow.type.key_field.equals(pa.field("key", pa.string(), nullable=False))
    assert whole.arrow.type == variant
    # Filters always use the struct form.
    assert filter_columns(TABLE, col("v").is_null(), ["p"])[0].arrow.type == in_struct


def test_geometry_columns_are_annotated_at_any_depth() -> None:
    table = schema(g="geometry(OGC:CRS84)", lists=array("geometry(OGC:CRS84)"))
    whole, lists = (column.arrow for column in output_columns(table, None, [], VariantAs.STRUCT))
    assert is_geometry(whole)
    assert is_geometry(lists.type.value_field)


@pytest.mark.parametrize(
    ("kinds", "share"),
    [
        ({"a": "long"}, 8 / 16),
        ({"a": "array<long>"}, 32 / 40),
        ({"a": "map<string,long>"}, 80 / 88),
        ({"a": "struct<long,date>"}, 11 / 19),
        ({"a": "void"}, 0.0),
    ],
    ids=str,
)
def test_estimated_size_of_a_column_depends_on_its_type(kinds: dict[str, str], share: float) -> None:
    spelled = {
        "array<long>": array("long"), "map<string,long>": mapping("string", "long"),
        "struct<long,date>": struct(x="long", y="date"),
    }  # fmt: skip
    table = schema(**{name: spelled.get(kind, kind) for name, kind in kinds.items()}, rest="double", P="string")
    columns = output_columns(table, [("a",), ("P",)], ["p"], VariantAs.STRUCT)
    for partition in ("p", "P"):
        assert needed_share(table, columns, [partition]) == pytest.approx(share)
    # A filter column that is also returned counts once.
    assert needed_share(table, [*columns, *columns], ["p"]) == pytest.approx(share)
    assert needed_share(table, output_columns(table, None, ["p"], VariantAs.STRUCT), ["p"]) == 1.0


def test_all_columns_have_the_whole_size_in_any_order() -> None:
    kinds = ["boolean", "decimal(9,2)", "boolean", "date", "boolean"]
    table = schema(**{f"c{number}": kind for number, kind in enumerate(kinds)})
    for paths in itertools.permutations([(name,) for name in table.names]):
        assert needed_share(table, output_columns(table, paths, [], VariantAs.STRUCT), []) == 1.0


def test_filter_on_a_variant_path_reads_the_whole_variant() -> None:
    (column,) = filter_columns(TABLE, col("v.value").is_null(), ["p"])
    assert column == selected_columns(("v",))[0]


def test_column_selected_twice_is_counted_once() -> None:
    table = schema(s=struct(x="long", y="long"), rest="double")
    part, whole = (output_columns(table, [path], [], VariantAs.STRUCT) for path in (("s", "x"), ("s",)))
    assert needed_share(table, part, []) == pytest.approx(1 / 3)
    for columns in (part + whole, whole + part):
        assert needed_share(table, columns, []) == pytest.approx(2 / 3)


def test_columns_outside_the_files_have_no_size() -> None:
    table = schema(p="string", nothing="void")
    assert needed_share(table, output_columns(table, None, ["p"], VariantAs.STRUCT), ["p"]) == 0.0


def test_columns_of_unknown_types_are_listed_and_refused() -> None:
    table = schema(a="long", new="fromTheFuture", s=struct(x="long", y="alsoNew"))
    left_out = left_out_metadata(table)
    assert left_out == {"delta_sharing.left_out": '{"new": "fromTheFuture", "s.y": "alsoNew"}'}
    assert left_out_metadata(TABLE) is None
    for incomplete in (table, pa.schema([("a", pa.int64())], left_out)):
        with pytest.raises(UnsupportedFeatureError, match=r"^The file 'x' leaves out .*'new' \(fromTheFuture\), 's.y'"):
            check_nothing_left_out(incomplete, "The file 'x'")
    check_nothing_left_out(pa.schema([("a", pa.int64())]), "The file 'x'")
    check_nothing_left_out(pa.schema([("a", pa.int64())], {"other": "b"}), "The file 'x'")
    check_nothing_left_out(TABLE, "The file 'x'")


# === Void ===


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"must": "void"}, "must"),
        ({"must": "null"}, "must"),
        ({"a": struct(must="void", x="long")}, "a.must"),
        ({"a": array("void", nulls=False)}, "a.element"),
        ({"a": array(array("void", nulls=False))}, "a.element.element"),
        ({"a": mapping("string", "void", nulls=False)}, "a.value"),
        ({"a": mapping("void", "string")}, "a.key"),
        ({"a": mapping("string", struct(must="void"))}, "a.value.must"),
    ],
)
def test_void_that_is_not_nullable_is_refused(fields: dict[str, Any], path: str) -> None:
    table = schema(b="long", **fields)
    name = next(iter(fields))
    for read in (
        lambda: output_columns(table, None, [], VariantAs.JSON),
        lambda: filter_columns(table, col(name) == 1, []),
    ):
        with pytest.raises(
            UnsupportedFeatureError, match=f"'{path}' has the type void, so it has only nulls"
        ) as refused:
            read()
        assert refused.value.feature == "void that is not nullable"
    assert names(output_columns(table, [("b",)], [], VariantAs.JSON)) == ["b"]


def test_nullable_void_is_read() -> None:
    table = schema(a="void", s=struct(must="long", v="void"), l=array("void"), m=mapping("string", "void"))
    types = {column.name: column.arrow.type for column in output_columns(table, None, [], VariantAs.JSON)}
    assert types["a"] == pa.null()
    assert types["l"].value_field.nullable
    assert types["m"].item_field.nullable
    selected = output_columns(schema(s=struct(must="void", x="long")), [("s", "x")], [], VariantAs.JSON)
    assert [str(column.arrow.type) for column in selected] == ["struct<x: int64>"]
