from __future__ import annotations

import pytest

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.column_mapping import (
    ColumnMappingMode,
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


def test_the_mode_comes_from_the_table_property() -> None:
    def mode(configuration: dict[str, str] | None) -> ColumnMappingMode:
        return mapping_mode(Metadata(id="t", schema_string="", configuration=configuration))

    assert mode(None) is ColumnMappingMode.NONE
    assert mode({"delta.columnMapping.mode": "name"}) is ColumnMappingMode.NAME
    assert mode({"delta.columnMapping.mode": "ID"}) is ColumnMappingMode.ID
    with pytest.raises(ProtocolError, match="sideways"):
        mode({"delta.columnMapping.mode": "sideways"})


def test_without_mapping_only_the_mapping_is_gone_at_every_level() -> None:
    plain = without_mapping(SCHEMA)
    assert [item.physical_name for item in plain] == plain.names
    for nested in (plain.fields[1].type.element, plain.fields[2].type.value, plain.fields[3].type):
        assert [item.physical_name for item in nested] == ["d"]
    assert plain.names == SCHEMA.names
    assert plain.fields[0].metadata == {"comment": "c"}
    assert plain.fields[0].field_id is None
