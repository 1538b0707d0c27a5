"""Column mapping: finds a column of the table in data files (Delta log protocol, "Column Mapping")."""

from __future__ import annotations

import enum

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.data_types import (
    FIELD_ID_KEY,
    PHYSICAL_NAME_KEY,
    ArrayType,
    ColumnPath,
    DataType,
    MapType,
    StructField,
    StructType,
    children,
)
from delta_sharing_client.errors import ProtocolError

MODE_PROPERTY = "delta.columnMapping.mode"
_MAPPING_KEYS = (PHYSICAL_NAME_KEY, FIELD_ID_KEY)


class ColumnMappingMode(enum.Enum):
    """How columns are found in data files: by display name, by physical name, or by Parquet field id."""

    NONE = "none"
    NAME = "name"
    ID = "id"

    def stored_name(self, field: StructField) -> str:
        """Return the name of ``field`` in data files, statistics and partition values."""
        return field.name if self is ColumnMappingMode.NONE else field.physical_name


def mapping_mode(metadata: Metadata) -> ColumnMappingMode:
    """Return the mapping mode of a table. ``features.check_readable`` checks whether the protocol allows it.

    Raises ``ProtocolError`` if ``delta.columnMapping.mode`` is not ``none``, ``name`` or ``id``.
    """
    text = metadata.properties.get(MODE_PROPERTY, "none")
    try:
        return ColumnMappingMode(text.lower())
    except ValueError:
        raise ProtocolError(
            f"The table property '{MODE_PROPERTY}' must be 'none', 'name' or 'id', found {text!r}."
        ) from None


def check_mapping(struct: StructType, mode: ColumnMappingMode) -> None:
    """Refuse a schema that does not map every column of the table to a column of the data files.

    Every column, including nested ones, needs a physical name that is unique among its siblings. In mode ``ID`` it also
    needs a column id that is unique in the table (Delta log protocol, "Column Mapping"). Without this check, a read
    could return nulls, or another column's values. Raises ``ProtocolError``, which names the column.
    """
    if mode is not ColumnMappingMode.NONE:
        _check(struct, mode, (), {})


def without_mapping(struct: StructType) -> StructType:
    """Return ``struct`` without physical names and column ids, which a table in mode ``NONE`` may have kept."""
    return StructType(tuple(_plain_field(item) for item in struct.fields), struct.left_out)


def _check(data_type: DataType, mode: ColumnMappingMode, path: ColumnPath, ids: dict[int, str]) -> None:
    if not isinstance(data_type, StructType):
        for name, child in children(data_type):
            _check(child, mode, (*path, name), ids)
        return
    names: dict[str, str] = {}
    for item in data_type.fields:
        dotted = ".".join((*path, item.name))
        if not isinstance(item.metadata.get(PHYSICAL_NAME_KEY), str):
            raise ProtocolError(f"Column {dotted!r} must have a '{PHYSICAL_NAME_KEY}', found none.")
        if (other := names.setdefault(item.physical_name, dotted)) != dotted:
            raise ProtocolError(f"Columns {other!r} and {dotted!r} must not have the same '{PHYSICAL_NAME_KEY}'.")
        if mode is ColumnMappingMode.ID:
            if item.field_id is None:
                raise ProtocolError(f"Column {dotted!r} must have a '{FIELD_ID_KEY}', found none.")
            if (other := ids.setdefault(item.field_id, dotted)) != dotted:
                raise ProtocolError(f"Columns {other!r} and {dotted!r} must not have the same '{FIELD_ID_KEY}'.")
        _check(item.type, mode, (*path, item.name), ids)


def _plain_field(item: StructField) -> StructField:
    metadata = {key: value for key, value in item.metadata.items() if key not in _MAPPING_KEYS}
    return StructField(item.name, _plain(item.type), item.nullable, metadata)


def _plain(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        return without_mapping(data_type)
    if isinstance(data_type, ArrayType):
        return ArrayType(_plain(data_type.element), data_type.contains_null)
    if isinstance(data_type, MapType):
        return MapType(_plain(data_type.key), _plain(data_type.value), data_type.value_contains_null)
    return data_type
