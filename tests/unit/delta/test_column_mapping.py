from __future__ import annotations

from collections.abc import Callable

import pytest

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.column_mapping import (
    ColumnMappingMode,
    check_mapping,
    mapping_mode,
    without_mapping,
)
from delta_sharing_client.delta.data_types import ArrayType, MapType, PrimitiveType, StructField, StructType
from delta_sharing_client.errors import ProtocolError


def _mapped(name: str, physical: str, data_type: object) -> StructField:
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1, "comment": "c"}
    return StructField(name, data_type, True, metadata)  # type: ignore[arg-type]


INNER = StructType((_mapped("d", "col-d", PrimitiveType("long")),))
SCHEMA = StructType(
    (
        _mapped("a.b", "col-a", PrimitiveType("long")),
        _mapped("list", "col-l", ArrayType(INNER)),
        _mapped("map", "col-m", MapType(PrimitiveType("string"), INNER)),
        _mapped("s", "col-s", INNER),
    )
)


def test_mapping_mode_is_a_table_property() -> None:
    def mode(configuration: dict[str, str] | None) -> ColumnMappingMode:
        return mapping_mode(Metadata(id="t", schema_string="", configuration=configuration))

    assert mode(None) is ColumnMappingMode.NONE
    assert mode({"delta.columnMapping.mode": "name"}) is ColumnMappingMode.NAME
    assert mode({"delta.columnMapping.mode": "ID"}) is ColumnMappingMode.ID
    with pytest.raises(ProtocolError, match="sideways"):
        mode({"delta.columnMapping.mode": "sideways"})


def test_only_mapping_metadata_is_removed_at_every_level() -> None:
    plain = without_mapping(SCHEMA)
    assert [item.physical_name for item in plain] == plain.names
    for nested in (plain.fields[1].type.element, plain.fields[2].type.value, plain.fields[3].type):
        assert [item.physical_name for item in nested] == ["d"]
    assert plain.names == SCHEMA.names
    assert plain.fields[0].metadata == {"comment": "c"}
    assert plain.fields[0].field_id is None


def _field(
    name: str, data_type: object = "long", physical: str | None = None, number: int | None = None
) -> StructField:
    metadata = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    kind = PrimitiveType(data_type) if isinstance(data_type, str) else data_type
    return StructField(name, kind, True, {key: value for key, value in metadata.items() if value is not None})  # type: ignore[arg-type]


def _in_list(item: StructField) -> StructField:
    return _field("l", ArrayType(StructType((item,))), "p", 1)


def _in_key(item: StructField) -> StructField:
    return _field("m", MapType(StructType((item,)), PrimitiveType("long")), "p", 1)


def _in_value(item: StructField) -> StructField:
    return _field("m", MapType(PrimitiveType("long"), StructType((item,))), "p", 1)


def _in_struct(item: StructField) -> StructField:
    return _field("s", StructType((item,)), "p", 1)


@pytest.mark.parametrize("mode", [ColumnMappingMode.NAME, ColumnMappingMode.ID])
@pytest.mark.parametrize(
    ("place", "path"),
    [
        (lambda item: item, "x"),
        (_in_struct, "s.x"),
        (_in_list, "l.element.x"),
        (_in_key, "m.key.x"),
        (_in_value, "m.value.x"),
    ],
)
def test_every_mapped_column_needs_a_physical_name(
    mode: ColumnMappingMode, place: Callable[[StructField], StructField], path: str
) -> None:
    whole = _field("x", physical="q", number=2)
    check_mapping(StructType((place(whole), _field("y", physical="r", number=3))), mode)
    check_mapping(StructType((place(_field("x")),)), ColumnMappingMode.NONE)
    for item, missing in ((_field("x", number=2), "physicalName"), (_field("x", physical="q"), "id")):
        columns = StructType((place(item),))
        if missing == "id" and mode is ColumnMappingMode.NAME:
            check_mapping(columns, mode)
            continue
        with pytest.raises(ProtocolError, match=f"Column '{path}' must have a 'delta.columnMapping.{missing}', found"):
            check_mapping(columns, mode)


def test_physical_names_are_unique_per_struct_and_ids_per_table() -> None:
    def check(first: StructField, second: StructField, mode: ColumnMappingMode) -> None:
        check_mapping(StructType((first, second)), mode)

    x, y = _field("x", physical="q", number=2), _field("y", physical="q", number=3)
    for mode in (ColumnMappingMode.NAME, ColumnMappingMode.ID):
        with pytest.raises(ProtocolError, match=r"Columns 'x' and 'y' must not have the same '.*physicalName'"):
            check(x, y, mode)
        check(_in_struct(x), y, mode)
    same_id = _field("y", physical="r", number=2)
    check(x, same_id, ColumnMappingMode.NAME)
    for place in (_in_struct, _in_list, _in_key, _in_value):
        with pytest.raises(ProtocolError, match=r"Columns '.*x' and 'y' must not have the same '.*\.id'"):
            check(place(x), same_id, ColumnMappingMode.ID)
