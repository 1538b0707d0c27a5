"""Column names are resolved by the same rules in every argument that takes one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from delta_sharing_client.columns import parse_path, resolve_columns, resolve_path, split_names
from delta_sharing_client.delta.data_types import ArrayType, PrimitiveType, StructField, StructType
from delta_sharing_client.delta.schema import to_arrow_schema
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import col, columns
from tests.time_limits import Stopwatch

LONG = PrimitiveType("long")
INNER = StructType((StructField("c", LONG), StructField("D", LONG), StructField("x.y", LONG)))
SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("b", INNER),
        StructField("dotted.name", LONG),
        StructField("list", ArrayType(INNER)),
    )
)
ARROW = to_arrow_schema(SCHEMA)


def test_none_selects_all_columns_and_an_empty_list_none() -> None:
    assert resolve_columns(None, SCHEMA) is None
    assert resolve_columns([], SCHEMA) == ()


def test_selection_keeps_its_order_and_uses_the_schemas_spelling() -> None:
    assert resolve_columns(["B.d", "ID"], SCHEMA) == (("b", "D"), ("Id",))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("Id", ("Id",)),
        ("iD", ("Id",)),
        ("`id`", ("Id",)),
        ("b.c", ("b", "c")),
        (" b . `D` ", ("b", "D")),
        ("`dotted.name`", ("dotted.name",)),
        ("dotted.name", ("dotted.name",)),
        ("DOTTED.`NAME`", ("dotted.name",)),
        ("b.`x.y`", ("b", "x.y")),
        ("b.x.y", ("b", "x.y")),
    ],
)
def test_column_names_are_resolved_alike_everywhere(text: str, path: tuple[str, ...]) -> None:
    from delta_sharing_client.spark.source_options import SparkOptions

    assert resolve_columns([text], SCHEMA) == (path,)
    options = {"path": "s.t.u", "endpoint": "https://sharing.invalid", "bearerToken": "t", "columns": f"{text}"}
    assert resolve_columns(SparkOptions.parse(options).read.columns, SCHEMA) == (path,)
    for expression in (parse_filter(f"{text} = 1"), parse_filter([(text, "=", 1)]), col(text) == 1):
        assert columns(bind(expression, ARROW)) == {path}


def test_name_of_both_a_column_and_a_nested_field_is_refused() -> None:
    both = StructType((*SCHEMA.fields, StructField("b.c", LONG)))
    with pytest.raises(UsageError, match=r"fits both the column '`b.c`' and the field 'b.c' of a struct"):
        resolve_columns(["b.c"], both)
    assert resolve_columns(["`b.c`", ("b", "c"), "b.D"], both) == (("b.c",), ("b", "c"), ("b", "D"))


@pytest.mark.parametrize("name", ["a`b", " padded ", "a..b", ".", "`", "a.b."])
def test_name_that_is_not_a_valid_path_is_looked_up_literally(name: str) -> None:
    assert resolve_columns([name], StructType((StructField(name, LONG),))) == ((name,),)
    with pytest.raises(UsageError, match="is not in the table"):
        resolve_columns([name], SCHEMA)


MISTYPED = {
    "Idd": "The column 'Idd' is not in the table. Did you mean 'Id'?",
    "b.cc": "The column 'b.cc' is not in the table: the struct 'b' has no field 'cc'. Did you mean 'b.c'?",
    "bb.c": "The column 'bb.c' is not in the table. Did you mean 'b'?",
    "Id.x": "The column 'Id.x' is not in the table: 'Id' is not a struct, so it has no field 'x'.",
    "zzz": "The column 'zzz' is not in the table. Its columns are 'Id', 'b', '`dotted.name`', 'list'.",
    "`dotted.nam`": "The column '`dotted.nam`' is not in the table. Did you mean '`dotted.name`'?",
}


@pytest.mark.parametrize(("text", "sentence"), MISTYPED.items())
def test_unknown_column_has_the_same_error_everywhere(text: str, sentence: str) -> None:
    from delta_sharing_client.spark.source_options import SparkOptions

    options = {"path": "s.t.u", "endpoint": "https://sharing.invalid", "bearerToken": "t"}
    doors = [
        lambda: resolve_columns([text], SCHEMA),
        lambda: resolve_columns([parse_path(text)], SCHEMA),
        lambda: resolve_columns(SparkOptions.parse({**options, "columns": text}).read.columns, SCHEMA),
        lambda: bind(SparkOptions.parse({**options, "filter": f"{text} = 1"}).read.filter, ARROW),
        lambda: bind(parse_filter(f"{text} IS NULL"), ARROW),
        lambda: bind(parse_filter([(text, "in", [1])]), ARROW),
        lambda: bind(col(text) > 1, ARROW),
    ]
    for door in doors:
        with pytest.raises(UsageError) as caught:
            door()
        assert caught.value.message == sentence


def test_names_that_differ_only_in_case_must_match_exactly() -> None:
    schema = pa.schema([("a", pa.int64()), ("A", pa.int64())])
    assert [field.name for field in resolve_path(("A",), schema)] == ["A"]
    lower = pa.schema([("aB", pa.int64()), ("Ab", pa.int64())])
    with pytest.raises(UsageError, match="The column 'ab' is ambiguous: it matches 'aB', 'Ab'"):
        resolve_path(("ab",), lower)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a, b.c ,`d,e`", ["a", "b.c", "`d,e`"]),
        ("a.`b``,c`,d", ["a.`b``,c`", "d"]),
        ("", None),
        ("a,,b", None),
        ("a,", None),
        ("`a", None),
    ],
)
def test_lists_of_names_are_split_at_commas_outside_backticks(text: str, names: list[str] | None) -> None:
    assert split_names(text) == names


def test_thousands_of_columns_are_resolved_quickly() -> None:
    wide = StructType(tuple(StructField(f"c{index}", LONG) for index in range(20_000)))
    clock = Stopwatch()
    assert len(resolve_columns(wide.names, wide) or ()) == 20_000
    assert clock.within(5)


def test_tuple_of_names_is_a_path_and_is_not_parsed() -> None:
    assert resolve_columns([("b", "c"), ("dotted.name",)], SCHEMA) == (("b", "c"), ("dotted.name",))


def test_columns_that_a_read_adds_can_be_selected() -> None:
    for name in ("_Change_Type", "`_change_type`", ("_change_type",)):
        assert resolve_columns([name], SCHEMA, ["_change_type"]) == (("_change_type",),)
    with pytest.raises(UsageError) as selected:
        resolve_columns(["_change_typ"], SCHEMA, ["_change_type"])
    with pytest.raises(UsageError) as filtered:
        bind(col("_change_typ") == "insert", pa.schema([*ARROW, pa.field("_change_type", pa.string())]))
    assert selected.value.message == filtered.value.message
    assert "Did you mean '_change_type'?" in selected.value.message


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["list.c"], "'list' is not a struct, so it has no field 'c'"),
        (["Id", "id"], "twice"),
        (["b", "b.c"], "twice"),
        ("Id", r"write columns=\['Id'\]"),
        ([()], "a sequence of names"),
        ([5], "a sequence of names"),
    ],
)
def test_invalid_selection_is_refused_with_a_remedy(columns: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_columns(columns, SCHEMA)  # type: ignore[arg-type]
