"""Converts a table's schema from Iceberg's JSON to the schema string of a Delta log (Iceberg, Appendix C, "Schemas").

Field ids become the ids of column mapping, so files are read by id. Types without a counterpart keep their names; a
read leaves such columns out and reports them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from delta_sharing_client.delta.data_types import (
    FIELD_ID_KEY,
    INITIAL_DEFAULT_KEY,
    PHYSICAL_NAME_KEY,
    WAS_UNKNOWN_KEY,
    ColumnPath,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    is_void,
)
from delta_sharing_client.delta.schema import MAX_NESTING, parse_schema, simple_type
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError

MAX_FIELD_ID = 2147483447
"""Greater field ids are reserved for Iceberg's metadata columns."""


def _metadata_column(name: str, field_id: int) -> StructField:
    return StructField(name, PrimitiveType("long"), metadata={FIELD_ID_KEY: field_id, PHYSICAL_NAME_KEY: name})


# The columns of row lineage, which writers store for rows that they copy ("Reserved Field IDs").
ROW_ID_FIELD = _metadata_column("_row_id", 2147483540)
LAST_UPDATED_FIELD = _metadata_column("_last_updated_sequence_number", 2147483539)

_TYPES = {
    "boolean": "boolean", "int": "integer", "long": "long", "float": "float", "double": "double", "date": "date",
    "timestamp": "timestamp_ntz", "timestamptz": "timestamp", "timestamp_ns": "timestamp_nanos_ntz",
    "timestamptz_ns": "timestamp_nanos", "string": "string", "binary": "binary", "unknown": "void",
    "variant": "variant", "time": "time", "uuid": "uuid",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\s*\(\s*\d+\s*,\s*\d+\s*\)\Z")
_FIXED = re.compile(r"fixed\s*\[\s*\d+\s*\]\Z")
_GEO = re.compile(r"(?:geometry|geography)\s*(?:\(.*\))?\Z", re.DOTALL)
_DEFINED_ELSEWHERE = re.compile(
    r"(?P<before>(?:geometry|geography)\(\s*)(?i:projjson):(?P<property>[^(),]+?)(?P<after>\s*(?:,[^()]*)?\))\Z"
)
_KEPT = ("name", "metadata")
# Columns of these types must have null as their default.
_WITHOUT_DEFAULT = ("variant", "geometry", "geography", "unknown")


def schema_string(schema: dict[str, Any], properties: Mapping[str, str] | None = None) -> str:
    """Return the ``schemaString`` of a schema's JSON object, with field ids as the ids of column mapping.

    ``properties`` are the table's properties, which may define coordinate reference systems ("CRS").

    Raises ``ProtocolError`` if it is not a schema of Iceberg, ``UnsupportedFeatureError`` for a default value of a
    nested type.
    """
    struct = _struct(schema, (), 0)
    return msgspec.json.encode(_with_systems(struct, properties) if properties else struct).decode()


def comparable_columns(schemas: Iterable[dict[str, Any]]) -> dict[int, StructField]:
    """Return the columns of ``schemas`` that equality deletes can compare, by field id, as the first schema has them.

    Each is pruned to one column of a simple type, below structs, that may be null. One that has the type 'unknown' in
    one of the schemas is marked: files of that time do not have it.
    """
    columns: dict[int, StructField] = {}
    unknown: set[int] = set()
    for schema in schemas:
        of_schema: dict[int, StructField] = {}
        unknown |= _collect(parse_schema(schema_string(schema)), (), of_schema)
        columns = of_schema | columns
    for field_id in unknown:
        column = columns[field_id]
        columns[field_id] = dataclasses.replace(column, metadata={**column.metadata, WAS_UNKNOWN_KEY: True})
    return columns


def reuses_names(schemas: Iterable[dict[str, Any]]) -> bool:
    """Return whether the same name is used for different columns in ``schemas``, or for different fields of structs."""
    ids: dict[ColumnPath, int | None] = {}
    for schema in schemas:
        waiting: list[tuple[ColumnPath, StructType]] = [((), parse_schema(schema_string(schema)))]
        while waiting:
            above, struct = waiting.pop()
            for item in struct.fields:
                path = (*above, item.name)
                if ids.setdefault(path, item.field_id) != item.field_id:
                    return True
                if isinstance(item.type, StructType):
                    waiting.append((path, item.type))
    return False


def _collect(struct: StructType, above: tuple[StructField, ...], columns: dict[int, StructField]) -> set[int]:
    """Add the columns of simple types to ``columns``; return the ids of those of the type 'unknown'."""
    unknown: set[int] = set()
    for item in struct.fields:
        if isinstance(item.type, StructType):
            unknown |= _collect(item.type, (*above, item), columns)
        elif isinstance(item.type, (PrimitiveType, DecimalType)) and item.field_id is not None:
            pruned = dataclasses.replace(item, nullable=True)
            for parent in reversed(above):
                pruned = dataclasses.replace(parent, type=StructType((pruned,)), nullable=True)
            columns.setdefault(item.field_id, pruned)
            if is_void(item.type):
                unknown.add(item.field_id)
    return unknown


def _struct(node: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
    fields = node.get("fields")
    if not isinstance(fields, list):
        raise _malformed(path, "a list of fields")
    return {"type": "struct", "fields": [_field(item, path, depth) for item in fields]}


def _field(item: object, path: tuple[str, ...], depth: int) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(name := item.get("name"), str) or "type" not in item:
        raise _malformed(path, "fields with a name and a type")
    inner = (*path, name)
    metadata: dict[str, Any] = {FIELD_ID_KEY: _field_id(item.get("id"), inner), PHYSICAL_NAME_KEY: name}
    if isinstance(item.get("doc"), str):
        metadata["comment"] = item["doc"]
    kind = _type(item["type"], inner, depth + 1)
    default = item.get("initial-default")
    if default is not None:
        metadata[INITIAL_DEFAULT_KEY] = _checked_default(default, item["type"], inner)
    return {"name": name, "type": kind, "nullable": not _flag(item, "required", inner), "metadata": metadata}


def _type(node: object, path: tuple[str, ...], depth: int) -> Any:
    if depth > MAX_NESTING:
        raise ProtocolError(f"The table's schema must nest types at most {MAX_NESTING} levels deep.")
    if isinstance(node, str):
        return _primitive(node.strip())
    if not isinstance(node, dict):
        raise _malformed(path, "a type: a name or an object")
    kind = node.get("type")
    if kind == "struct":
        return _struct(node, path, depth)
    if kind == "list":
        _field_id(node.get("element-id"), (*path, "element"))
        return {
            "type": "array",
            "elementType": _type(node.get("element"), (*path, "element"), depth + 1),
            "containsNull": not _flag(node, "element-required", path),
        }
    if kind == "map":
        _field_id(node.get("key-id"), (*path, "key"))
        _field_id(node.get("value-id"), (*path, "value"))
        return {
            "type": "map",
            "keyType": _type(node.get("key"), (*path, "key"), depth + 1),
            "valueType": _type(node.get("value"), (*path, "value"), depth + 1),
            "valueContainsNull": not _flag(node, "value-required", path),
        }
    raise _malformed(path, "a type 'struct', 'list' or 'map'")


def _primitive(name: str) -> str:
    if name in _TYPES:
        return _TYPES[name]
    if _FIXED.match(name):
        return "binary"
    if _DECIMAL.match(name):
        return re.sub(r"\s", "", name)
    if _GEO.match(name):
        return re.sub(r"\s*\(", "(", name, count=1)
    try:
        simple_type(name, ())
    except (UnsupportedFeatureError, ProtocolError):
        return name
    # Delta has types that Iceberg does not have; in Iceberg their names are unknown types.
    return f"iceberg.{name}"


def _with_systems(node: Any, properties: Mapping[str, str]) -> Any:
    """Return a type in which the coordinate reference systems that ``properties`` defines are replaced by their
    definitions."""
    if isinstance(node, dict):
        return {key: item if key in _KEPT else _with_systems(item, properties) for key, item in node.items()}
    if isinstance(node, list):
        return [_with_systems(item, properties) for item in node]
    match = _DEFINED_ELSEWHERE.match(node) if isinstance(node, str) else None
    if match is None:
        return node
    try:
        defined = msgspec.json.decode(properties.get(match["property"], ""), type=dict)
    except msgspec.DecodeError:
        return node
    return f"{match['before']}{msgspec.json.encode(defined).decode()}{match['after']}"


def _checked_default(default: object, kind: object, path: tuple[str, ...]) -> object:
    where = ".".join(path)
    if isinstance(kind, dict):
        # The fields of a struct have defaults of their own.
        if kind.get("type") == "struct" and default == {}:
            return default
        raise UnsupportedFeatureError(
            f"Column {where!r} of a nested type has a default value for files without the column, which is not "
            "supported. Ask the provider to rewrite the table's older files.",
            feature="initial-default",
        )
    if str(kind).strip().startswith(_WITHOUT_DEFAULT):
        raise ProtocolError(f"The default value of column {where!r} of type {str(kind)[:60]} must be null.")
    return default


def _field_id(value: object, path: tuple[str, ...]) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_FIELD_ID:
        raise _malformed(path, f"a field id from 0 to {MAX_FIELD_ID}")
    return value


def _flag(node: dict[str, Any], key: str, path: tuple[str, ...]) -> bool:
    value = node.get(key, False)
    if not isinstance(value, bool):
        raise _malformed(path, f"true or false as '{key}'")
    return value


def _malformed(path: tuple[str, ...], expected: str) -> ProtocolError:
    where = f"Column {'.'.join(path)!r}" if path else "The table's schema"
    return ProtocolError(f"{where} must have {expected} in the table's metadata, found something else.")
