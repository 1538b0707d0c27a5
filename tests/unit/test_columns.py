"""Column selections."""

from __future__ import annotations

import pytest

from delta_sharing_client.columns import resolve_columns
from delta_sharing_client.delta.data_types import ArrayType, PrimitiveType, StructField, StructType
from delta_sharing_client.errors import UsageError

LONG = PrimitiveType("long")
INNER = StructType((StructField("c", LONG), StructField("D", LONG)))
SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("b", INNER),
        StructField("dotted.name", LONG),
        StructField("list", ArrayType(INNER)),
    )
)


def test_none_selects_everything_and_an_empty_list_nothing() -> None:
    assert resolve_columns(None, SCHEMA) is None
    assert resolve_columns([], SCHEMA) == ()


def test_names_come_out_in_the_schemas_spelling_and_the_callers_order() -> None:
    assert resolve_columns(["B.d", "ID"], SCHEMA) == (("b", "D"), ("Id",))


def test_a_column_whose_name_has_a_dot_is_found_before_a_path() -> None:
    assert resolve_columns(["dotted.name"], SCHEMA) == (("dotted.name",),)


def test_a_sequence_of_names_is_a_path_as_it_stands() -> None:
    assert resolve_columns([("b", "c"), ("dotted.name",)], SCHEMA) == (("b", "c"), ("dotted.name",))


def test_columns_that_a_read_adds_can_be_selected() -> None:
    assert resolve_columns(["_Change_Type"], SCHEMA, ["_change_type"]) == (("_change_type",),)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["Idd"], "did you mean 'Id'"),
        (["nothing"], "the columns are 'Id'"),
        (["b.e"], "the columns are 'b.c', 'b.D'"),
        (["Id.x"], "'Id' is not a struct"),
        (["list.c"], "'list' is an array"),
        (["Id", "id"], "twice"),
        (["b", "b.c"], "twice"),
        ("Id", "must be a list"),
        ([()], "a sequence of names"),
        ([5], "a sequence of names"),
    ],
)
def test_what_cannot_be_selected_is_refused_with_the_way_out(columns: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_columns(columns, SCHEMA)  # type: ignore[arg-type]
