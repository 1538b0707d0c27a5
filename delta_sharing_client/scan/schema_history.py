"""Whether one schema can stand for all rows of a range of versions, and where to split the range if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.column_mapping import ColumnMappingMode, mapping_mode
from delta_sharing_client.delta.data_types import (
    ArrayType,
    ColumnPath,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.delta.snapshot import table_schema
from delta_sharing_client.errors import SchemaChangeError


class DatedMetadata(NamedTuple):
    """A table's metadata and the version from which on it holds, ``None`` for the start of the range."""

    version: int | None
    metadata: Metadata


def check_history(history: Sequence[DatedMetadata], table: str) -> None:
    """Check that rows written under every metadata of ``history`` (oldest first) can be read under the last.

    Columns may be added (older rows have nulls), made nullable, and widened in type.

    Raises
    ------
    SchemaChangeError
        A column was renamed, dropped, made NOT NULL or given a type that cannot hold the old one, or the partition
        columns changed; names the version from which on another read is needed.
    """
    end = history[-1].metadata
    for position in range(len(history) - 2, -1, -1):
        reason = _difference(history[position].metadata, end, table)
        if reason is None:
            continue
        version = history[position + 1].version
        where = "" if version is None else f" in version {version}"
        hint = "" if version is None else f"; read the changes up to version {version - 1} and those from {version} on"
        raise SchemaChangeError(
            f"The schema changed{where} in a way that one read of the change feed cannot span: {reason}{hint}.",
            table=table,
            version=version,
        )


def _difference(old: Metadata, new: Metadata, table: str) -> str | None:
    if old.schema_string == new.schema_string and old.partition_columns == new.partition_columns:
        return None
    before, after = table_schema(old, table=table), table_schema(new, table=table)
    if [name.lower() for name in old.partition_columns] != [name.lower() for name in new.partition_columns]:
        return f"the partition columns were {old.partition_columns} and became {new.partition_columns}"
    mapped = ColumnMappingMode.NONE not in (mapping_mode(old), mapping_mode(new))
    return _struct_difference(before, after, (), mapped)


def _struct_difference(old: StructType, new: StructType, path: ColumnPath, mapped: bool) -> str | None:
    for field in old.fields:
        where = (*path, field.name)
        same = _counterpart(field, new, mapped)
        if same is None:
            return f"column {_dotted(where)!r} was dropped"
        if same.name.lower() != field.name.lower():
            return f"column {_dotted(where)!r} was renamed to {same.name!r}"
        if field.nullable and not same.nullable:
            return f"column {_dotted(where)!r} became NOT NULL"
        reason = _type_difference(field.type, same.type, where, mapped)
        if reason is not None:
            return reason
    for field in new.fields:
        if not field.nullable and not any(_counterpart(other, new, mapped) is field for other in old.fields):
            return f"column {_dotted((*path, field.name))!r} was added as NOT NULL"
    return None


def _counterpart(field: StructField, struct: StructType, mapped: bool) -> StructField | None:
    if not mapped:
        return struct.find(field.name)
    return next((item for item in struct.fields if item.physical_name == field.physical_name), None)


def _type_difference(old: DataType, new: DataType, path: ColumnPath, mapped: bool) -> str | None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _struct_difference(old, new, path, mapped)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        if old.contains_null and not new.contains_null:
            return f"the elements of column {_dotted(path)!r} became NOT NULL"
        return _type_difference(old.element, new.element, (*path, "element"), mapped)
    if isinstance(old, MapType) and isinstance(new, MapType):
        if old.value_contains_null and not new.value_contains_null:
            return f"the values of column {_dotted(path)!r} became NOT NULL"
        return _type_difference(old.key, new.key, (*path, "key"), mapped) or _type_difference(
            old.value, new.value, (*path, "value"), mapped
        )
    if old == new or holds(new, old):
        return None
    return f"column {_dotted(path)!r} changed its type from {_shown(old)} to {_shown(new)}"


_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_INTEGERS = list(_INTEGER_DIGITS)


def holds(new: DataType, old: DataType) -> bool:
    """Return whether a column of type ``new`` holds every value of ``old`` (protocol, "Supported Type Changes")."""
    if isinstance(new, DecimalType):
        if isinstance(old, DecimalType):
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        digits = _INTEGER_DIGITS.get(old.base) if isinstance(old, PrimitiveType) else None
        # The specification takes any long for 20 digits.
        return digits is not None and new.precision - new.scale >= digits
    if not isinstance(new, PrimitiveType) or not isinstance(old, PrimitiveType):
        return False
    if new.base == old.base:
        return True
    if old.base in _INTEGERS and new.base in _INTEGERS:
        return _INTEGERS.index(old.base) < _INTEGERS.index(new.base)
    return (old.base, new.base) in {
        ("byte", "double"),
        ("short", "double"),
        ("integer", "double"),
        ("float", "double"),
        ("date", "timestamp_ntz"),
    }


def _shown(data_type: DataType) -> str:
    if isinstance(data_type, PrimitiveType):
        return data_type.name
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return {ArrayType: "array", MapType: "map"}.get(type(data_type), "struct")


def _dotted(path: ColumnPath) -> str:
    return ".".join(path)
