"""Whether files written under one schema can be read in a stream with another one.

What was *seen* in the log must exist in the stream's schema, spelled the same and of equal type. Columns that the
stream has in addition are null in older files. Whether a column may hold nulls makes no difference: a stream's columns
always may (the JVM connector refuses a column that became NOT NULL).
"""

from __future__ import annotations

import hashlib
import json

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.column_mapping import ColumnMappingMode, mapping_mode
from delta_sharing_client.delta.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    parse_schema,
)


def difference(seen: Metadata, read: Metadata) -> str | None:
    """Return what keeps a stream with the table description ``read`` from reading what was written under ``seen``.

    ``None`` where nothing does. Beside the columns, the partition columns must be the same, and a column must keep
    its physical name (else it is another column of an old name).
    """
    found = _struct(
        parse_schema(seen.schema_string), parse_schema(read.schema_string), "", _mapped(seen) and _mapped(read)
    )
    if found is not None:
        return found
    if [name.lower() for name in seen.partition_columns] != [name.lower() for name in read.partition_columns]:
        return f"the partition columns change from {seen.partition_columns} to {read.partition_columns}"
    return None


def fingerprint(metadata: Metadata) -> str:
    """Return a short hash of what ``difference`` looks at; equal for equal descriptions."""
    content = [json.loads(metadata.schema_string), metadata.partition_columns, mapping_mode(metadata).value]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _mapped(metadata: Metadata) -> bool:
    return mapping_mode(metadata) is not ColumnMappingMode.NONE


def _struct(seen: StructType, read: StructType, path: str, mapped: bool) -> str | None:
    for field in seen:
        name = f"{path}{field.name}"
        other = read.find(field.name)
        if other is None:
            return f"column '{name}' was dropped or renamed"
        if other.name != field.name:
            return f"column '{name}' is spelled '{other.name}'"
        if mapped and other.physical_name != field.physical_name:
            return f"column '{name}' was replaced by another one of that name"
        found = _type(field.type, other.type, name, mapped)
        if found is not None:
            return found
    return None


def _type(seen: DataType, read: DataType, path: str, mapped: bool) -> str | None:
    if isinstance(seen, StructType) and isinstance(read, StructType):
        return _struct(seen, read, f"{path}.", mapped)
    if isinstance(seen, ArrayType) and isinstance(read, ArrayType):
        return _type(seen.element, read.element, f"{path}.element", mapped)
    if isinstance(seen, MapType) and isinstance(read, MapType):
        return _type(seen.key, read.key, f"{path}.key", mapped) or _type(
            seen.value, read.value, f"{path}.value", mapped
        )
    return None if seen == read else f"column '{path}' changes its type from {_shown(seen)} to {_shown(read)}"


def _shown(data_type: DataType) -> str:
    if isinstance(data_type, PrimitiveType):
        return data_type.name
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return {StructType: "struct", ArrayType: "array", MapType: "map"}[type(data_type)]
