"""Converts schemas between the log's JSON, typed values and Arrow (Delta log protocol, "Schema Serialization
Format" and "Delta Data Type to Parquet Type Mappings")."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from delta_sharing_client.arrow_forms import is_bytes, is_text
from delta_sharing_client.delta.data_types import (
    ArrayType,
    ColumnPath,
    DataType,
    DecimalType,
    LeftOut,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.delta.type_rows import TYPES, is_primitive
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError

MAX_NESTING = 100
"""Types nested deeper than this are refused: no writer makes them, and recursion would exhaust the stack."""

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)\Z")
# Names that old writers used, and that other readers accept as well.
_ALIASES = {"null": "void", "timestampWithoutTimezone": "timestamp_ntz", "timestamp_without_timezone": "timestamp_ntz"}


def parse_schema(schema_string: str) -> StructType:
    """Parse a ``schemaString``, the JSON of a struct type (Delta log protocol, "Schema Serialization Format").

    Columns of unknown types are in ``StructType.left_out``. Raises ``ProtocolError`` if the text is not JSON or not a
    struct, if two columns have the same name (regardless of case), or if types are nested too deep.
    """
    try:
        document = msgspec.json.decode(schema_string)
    except RecursionError:
        raise ProtocolError(_too_deep()) from None
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        raise ProtocolError(
            f"'schemaString' must be the JSON of a struct type, but it does not parse: {error}."
        ) from None
    if not isinstance(document, dict) or document.get("type") != "struct":
        raise ProtocolError(f"'schemaString' must be the JSON of a struct type, found {_shape(document)}.")
    return _struct(document, (), 0)


def schema_to_json(struct: StructType) -> str:
    """Return the ``schemaString`` of ``struct``, on one line; the inverse of :func:`parse_schema`."""
    return msgspec.json.encode(type_to_jsonable(struct)).decode()


def type_to_jsonable(data_type: DataType) -> object:
    """Return the JSON value that describes ``data_type`` in a schema."""
    if isinstance(data_type, PrimitiveType):
        return data_type.name
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    if isinstance(data_type, ArrayType):
        return {
            "type": "array",
            "elementType": type_to_jsonable(data_type.element),
            "containsNull": data_type.contains_null,
        }
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": type_to_jsonable(data_type.key),
            "valueType": type_to_jsonable(data_type.value),
            "valueContainsNull": data_type.value_contains_null,
        }
    return {
        "type": "struct",
        "fields": [
            {
                "name": item.name,
                "type": type_to_jsonable(item.type),
                "nullable": item.nullable,
                "metadata": dict(item.metadata),
            }
            for item in data_type.fields
        ],
    }


def _struct(node: Mapping[str, object], path: ColumnPath, depth: int) -> StructType:
    items = node.get("fields")
    if not isinstance(items, list):
        raise ProtocolError(
            f"{_where(path)} must have a list of fields, because it is a struct, found {_shape(items)}."
        )
    fields: list[StructField] = []
    left_out: list[LeftOut] = []
    seen: dict[str, str] = {}
    for item in items:
        if not isinstance(item, dict) or not isinstance(name := item.get("name"), str) or "type" not in item:
            raise ProtocolError(f"{_where(path)} must have fields with a name and a type each, found {_shape(item)}.")
        if name.lower() in seen:
            raise ProtocolError(
                f"{_where(path)} must have unique column names, regardless of case, "
                f"found {seen[name.lower()]!r} and {name!r}."
            )
        seen[name.lower()] = name
        metadata = item.get("metadata")
        if not isinstance(metadata, dict):
            if metadata is not None:
                raise ProtocolError(
                    f"{_where((*path, name))} must have an object as metadata, found {_shape(metadata)}."
                )
            metadata = {}
        nullable = _flag(item, "nullable", (*path, name))
        try:
            data_type = _type(item["type"], (*path, name), depth + 1)
        except UnsupportedFeatureError as error:
            shown = item["type"] if isinstance(item["type"], str) else _shape(item["type"])
            left_out.append(LeftOut((*path, name), shown[:100], error.feature or shown, error.message))
            continue
        fields.append(StructField(name, data_type, nullable, metadata))
    if left_out and not fields and path:
        raise UnsupportedFeatureError(left_out[0].reason, feature=left_out[0].feature)
    return StructType(tuple(fields), tuple(left_out))


def _type(node: object, path: ColumnPath, depth: int) -> DataType:
    if depth > MAX_NESTING:
        raise ProtocolError(_too_deep())
    if isinstance(node, str):
        return simple_type(node, path)
    if not isinstance(node, dict) or not isinstance(kind := node.get("type"), str):
        raise ProtocolError(
            f"{_where(path)} must have a type (a name, or an object with a type), found {_shape(node)}."
        )
    if kind == "struct":
        return _struct(node, path, depth)
    if kind == "array":
        element = _type(node.get("elementType"), (*path, "element"), depth + 1)
        return ArrayType(element, _flag(node, "containsNull", path))
    if kind == "map":
        key = _type(node.get("keyType"), (*path, "key"), depth + 1)
        value = _type(node.get("valueType"), (*path, "value"), depth + 1)
        return MapType(key, value, _flag(node, "valueContainsNull", path))
    if kind == "udt":
        # Files store the values of Spark's user-defined types, such as the vectors of its ML library, as this type.
        return _type(node.get("sqlType"), path, depth + 1)
    # The protocol spells a nested variant {"type": "variant"}.
    return simple_type(kind, path)


def simple_type(name: str, path: ColumnPath) -> PrimitiveType | DecimalType:
    """Return the type that a schema calls ``name``; errors name the column ``path``.

    Raises ``UnsupportedFeatureError`` for an unknown type, ``ProtocolError`` for an impossible decimal.
    """
    if is_primitive(name):
        return PrimitiveType(name)
    if (alias := _ALIASES.get(name)) is not None:
        return PrimitiveType(alias)
    if name == "decimal":
        return DecimalType(10, 0)
    if match := _DECIMAL.match(name):
        precision, scale = int(match[1]), int(match[2])
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise ProtocolError(
                f"{_where(path)} must have a precision from 1 to 38 and a scale from 0 to the precision, found "
                f"{name!r}."
            )
        return DecimalType(precision, scale)
    raise UnsupportedFeatureError(
        f"{_where(path)} has the type {name[:100]!r}, which is not supported. Read the other columns, upgrade the "
        "client, or ask the provider to share a view without this column.",
        feature=name[:100],
    )


def _flag(node: Mapping[str, object], key: str, path: ColumnPath) -> bool:
    # Old writers omit the flag; "may be null" is always safe.
    value = node.get(key, True)
    if not isinstance(value, bool):
        raise ProtocolError(f"{_where(path)} must have true or false for {key!r}, found {_shape(value)}.")
    return value


def _where(path: ColumnPath) -> str:
    return f"Column {'.'.join(path)!r}" if path else "The table's schema"


def _shape(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _too_deep() -> str:
    return f"'schemaString' must nest types at most {MAX_NESTING} levels deep, as all Delta writers do."


# === Arrow ===

_EXTENSION_NAME, _EXTENSION_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"
_WELL_KNOWN_BINARY = b"geoarrow.wkb"

_SIMPLE = ("byte", "short", "integer", "long", "float", "double", "boolean", "date", "void")
_FROM_ARROW: dict[pa.DataType, str] = {TYPES[name].arrow: name for name in _SIMPLE} | {
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.float16(): "float",
    pa.date64(): "date",
}


def to_arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type in which values of ``data_type`` are returned.

    Every string type is ``string``; ``timestamp`` is ``timestamp[us, UTC]`` and ``timestamp_ntz`` has no zone;
    ``void`` is ``null``; ``variant`` is ``struct<metadata: binary, value: binary>``; day-time intervals are
    ``duration[us]`` and year-month intervals ``int32`` months. Timestamps in nanoseconds have the unit ``ns``.
    ``time`` is ``time64[us]``, ``uuid`` is ``string``. ``geometry`` and ``geography`` are ``binary`` with field
    metadata (``geoarrow_metadata``).
    """
    if isinstance(data_type, PrimitiveType):
        return TYPES[data_type.base].arrow
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, ArrayType):
        element = StructField("element", data_type.element, data_type.contains_null)
        return pa.list_(to_arrow_field(element, to_arrow_type(element.type)))
    if isinstance(data_type, MapType):
        return to_arrow_map(data_type, to_arrow_type(data_type.key), to_arrow_type(data_type.value))
    return pa.struct([to_arrow_field(item, to_arrow_type(item.type)) for item in data_type.fields])


def to_arrow_field(item: StructField, arrow: pa.DataType) -> pa.Field:
    """Return the Arrow field of ``item``, whose values have the type ``arrow``."""
    # Arrow's null type is always nullable, whatever a schema says about a void column.
    nullable = item.nullable or pa.types.is_null(arrow)
    return pa.field(item.name, arrow, nullable=nullable, metadata=geoarrow_metadata(item.type))


def to_arrow_map(data_type: MapType, key: pa.DataType, value: pa.DataType) -> pa.MapType:
    """Return the Arrow type of a map whose keys and values have the types ``key`` and ``value``.

    Raises ``UnsupportedFeatureError`` for keys whose type is void.
    """
    if pa.types.is_null(key):
        raise UnsupportedFeatureError(
            "The schema has a map with keys of type void, but the keys of a map must not be null. Ask the provider to "
            "drop the column, or to share a view without it.",
            feature="void as the type of keys",
        )
    return pa.map_(
        to_arrow_field(StructField("key", data_type.key, nullable=False), key),
        to_arrow_field(StructField("value", data_type.value, data_type.value_contains_null), value),
    )


def geoarrow_metadata(data_type: DataType) -> dict[bytes, bytes] | None:
    """Return the Arrow field metadata of a ``geometry`` or ``geography`` column, ``None`` for other types.

    It declares the Arrow extension type ``geoarrow.wkb``, well-known binary (GeoArrow specification, "Extension Types"
    and "Extension metadata"), with the coordinate reference system and, for a geography, the edge algorithm.
    """
    if not isinstance(data_type, PrimitiveType) or (coordinates := data_type.coordinates) is None:
        return None
    crs, edges = coordinates
    content = _geoarrow_crs(crs)
    if edges is not None:
        content["edges"] = edges
    return {_EXTENSION_NAME: _WELL_KNOWN_BINARY, _EXTENSION_METADATA: msgspec.json.encode(content)}


def _geoarrow_crs(crs: str) -> dict[str, object]:
    if crs.startswith("{"):
        try:
            return {"crs": msgspec.json.decode(crs, type=dict), "crs_type": "projjson"}
        except msgspec.DecodeError:
            return {}
    # A bare number is an EPSG code; 0 and "any" mean that there is no system. Iceberg puts "srid:" before a number, and
    # "projjson:" before the name of a definition stored elsewhere, which is treated as unknown here.
    is_marked = crs[:5].lower() == "srid:"
    named = crs[5:] if is_marked else f"EPSG:{crs}" if crs.isdigit() else crs
    if named.upper() in ("ANY", "EPSG:0", "0") or named[:9].lower() == "projjson:":
        return {}
    return {"crs": named, "crs_type": "srid" if is_marked else "authority_code"}


def is_geometry(field: pa.Field) -> bool:
    """Return whether an Arrow field is ``geometry`` or ``geography``."""
    return (field.metadata or {}).get(_EXTENSION_NAME) == _WELL_KNOWN_BINARY


def to_arrow_schema(struct: StructType) -> pa.Schema:
    """Return the Arrow schema of ``struct``: logical names, nullable flags, no metadata."""
    return pa.schema([to_arrow_field(item, to_arrow_type(item.type)) for item in struct.fields])


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """Return the table schema with the columns of an Arrow schema.

    Unsigned integers widen to the next signed type, ``uint64`` to ``decimal(20,0)``; dictionaries become their values;
    a timestamp with a zone is ``timestamp``, one without is ``timestamp_ntz``. Raises ``UsageError`` for an Arrow type
    without a Delta type.
    """
    return StructType(tuple(_from_arrow_field(item) for item in schema))


def from_arrow_type(arrow_type: pa.DataType) -> DataType:
    """Return the Delta type of ``arrow_type``; see :func:`from_arrow_schema`."""
    types = pa.types
    if (name := _FROM_ARROW.get(arrow_type)) is not None:
        return PrimitiveType(name)
    if types.is_dictionary(arrow_type):
        return from_arrow_type(arrow_type.value_type)
    if is_text(arrow_type):
        return PrimitiveType("string")
    if is_bytes(arrow_type) or types.is_fixed_size_binary(arrow_type):
        return PrimitiveType("binary")
    if types.is_timestamp(arrow_type):
        return PrimitiveType("timestamp_ntz" if arrow_type.tz is None else "timestamp")
    if types.is_duration(arrow_type):
        return PrimitiveType("interval day to second")
    if arrow_type == pa.uint64():
        return DecimalType(20, 0)
    if types.is_decimal(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision <= 38:
        return DecimalType(arrow_type.precision, arrow_type.scale)
    if types.is_map(arrow_type):
        return MapType(
            from_arrow_type(arrow_type.key_type), from_arrow_type(arrow_type.item_type), arrow_type.item_field.nullable
        )
    if types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type):
        return ArrayType(from_arrow_type(arrow_type.value_type), arrow_type.value_field.nullable)
    if types.is_struct(arrow_type):
        return StructType(tuple(_from_arrow_field(item) for item in arrow_type))
    raise UsageError(f"A column must have an Arrow type that Delta supports, found {arrow_type}.")


def _from_arrow_field(item: pa.Field) -> StructField:
    return StructField(item.name, from_arrow_type(item.type), item.nullable)
