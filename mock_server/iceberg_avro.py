"""The Avro files in Iceberg's metadata: their encoding, and the schemas of manifests and manifest lists.

The code follows only the specifications (Apache Avro, "Object Container Files"; Iceberg table spec, "Manifests"). It
serves the sample table of the demo, and tests.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

SYNC = bytes(range(16))


def avro_file(
    schema: Any,
    records: Sequence[Any],
    properties: Mapping[str, str] | None = None,
    *,
    codec: str = "deflate",
    rows_in_block: int = 100,
) -> bytes:
    """Return an Avro file with ``records``."""
    header = {"avro.schema": json.dumps(schema), "avro.codec": codec, **(properties or {})}
    out = bytearray(b"Obj\x01") + _long(len(header))
    for name, value in header.items():
        out += _bytes(name.encode()) + _bytes(value.encode())
    out += _long(0) + SYNC
    for start in range(0, len(records), rows_in_block):
        block = records[start : start + rows_in_block]
        plain = b"".join(encode(schema, record) for record in block)
        out += avro_block(len(block), plain, codec)
    return bytes(out)


def avro_block(count: int, plain: bytes, codec: str = "deflate") -> bytes:
    """Return a block with ``count`` records."""
    data = plain
    if codec == "deflate":
        compressor = zlib.compressobj(wbits=-15)
        data = compressor.compress(plain) + compressor.flush()
    elif codec == "zstandard":
        data = pa.compress(plain, "zstd", asbytes=True)
    elif codec == "snappy":
        data = pa.compress(plain, "snappy", asbytes=True) + struct.pack(">I", zlib.crc32(plain))
    return _long(count) + _bytes(data) + SYNC


def encode(schema: Any, value: Any) -> bytes:
    """Return a value in Avro's binary encoding."""
    if isinstance(schema, list):
        branch = 0 if (value is None) == (schema[0] == "null") else 1
        return _long(branch) + encode(schema[branch], value)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return b"".join(encode(field["type"], value.get(field["name"])) for field in schema["fields"])
    if kind == "array":
        items = list(value.items()) if isinstance(value, dict) else list(value)
        if schema.get("logicalType") == "map":
            items = [{"key": key, "value": item} for key, item in items]
        body = b"".join(encode(schema["items"], item) for item in items)
        return (_long(len(items)) + body if items else b"") + _long(0)
    if kind == "fixed":
        assert len(value) == schema["size"]
        return bytes(value)
    return _PRIMITIVES[kind](value)


def _long(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _bytes(value: bytes) -> bytes:
    return _long(len(value)) + value


_PRIMITIVES: dict[str, Any] = {
    "null": lambda value: b"",
    "boolean": lambda value: bytes([value]),
    "int": _long,
    "long": _long,
    "float": lambda value: struct.pack("<f", value),
    "double": lambda value: struct.pack("<d", value),
    "bytes": _bytes,
    "string": lambda value: _bytes(value.encode()),
}


def _field(name: str, field_id: int, kind: Any, *, optional: bool = True) -> dict[str, Any]:
    if optional:
        return {"name": name, "type": ["null", kind], "default": None, "field-id": field_id}
    return {"name": name, "type": kind, "field-id": field_id}


def _map(key_id: int, value_id: int, value: Any) -> dict[str, Any]:
    fields = [_field("key", key_id, "int", optional=False), _field("value", value_id, value, optional=False)]
    items = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": items}


def manifest_schema(partition: Sequence[tuple[str, int, Any]] = ()) -> dict[str, Any]:
    """Return the schema of a manifest with partition fields of these names, ids and Avro types."""
    values = [_field(name, field_id, kind) for name, field_id, kind in partition]
    data_file = [
        _field("content", 134, "int", optional=False),
        _field("file_path", 100, "string", optional=False),
        _field("file_format", 101, "string", optional=False),
        _field("partition", 102, {"type": "record", "name": "r102", "fields": values}, optional=False),
        _field("record_count", 103, "long", optional=False),
        _field("file_size_in_bytes", 104, "long", optional=False),
        _field("column_sizes", 108, _map(117, 118, "long")),
        _field("value_counts", 109, _map(119, 120, "long")),
        _field("null_value_counts", 110, _map(121, 122, "long")),
        _field("nan_value_counts", 137, _map(138, 139, "long")),
        _field("lower_bounds", 125, _map(126, 127, "bytes")),
        _field("upper_bounds", 128, _map(129, 130, "bytes")),
        _field("key_metadata", 131, "bytes"),
        _field("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
        _field("equality_ids", 135, {"type": "array", "items": "int", "element-id": 136}),
        _field("sort_order_id", 140, "int"),
        _field("first_row_id", 142, "long"),
        _field("referenced_data_file", 143, "string"),
        _field("content_offset", 144, "long"),
        _field("content_size_in_bytes", 145, "long"),
    ]
    fields = [
        _field("status", 0, "int", optional=False),
        _field("snapshot_id", 1, "long"),
        _field("sequence_number", 3, "long"),
        _field("file_sequence_number", 4, "long"),
        _field("data_file", 2, {"type": "record", "name": "r2", "fields": data_file}, optional=False),
    ]
    return {"type": "record", "name": "manifest_entry", "fields": fields}


_SUMMARY = {
    "type": "record",
    "name": "r508",
    "fields": [
        _field("contains_null", 509, "boolean", optional=False),
        _field("contains_nan", 518, "boolean"),
        _field("lower_bound", 510, "bytes"),
        _field("upper_bound", 511, "bytes"),
    ],
}


def manifest_list_schema(*, has_counts: bool = True) -> dict[str, Any]:
    """Return the schema of a manifest list, whose counts are required since version 2 of the format."""
    counts = [
        ("added_files_count", 504, "int"),
        ("existing_files_count", 505, "int"),
        ("deleted_files_count", 506, "int"),
        ("added_rows_count", 512, "long"),
        ("existing_rows_count", 513, "long"),
        ("deleted_rows_count", 514, "long"),
    ]
    fields = [
        _field("manifest_path", 500, "string", optional=False),
        _field("manifest_length", 501, "long", optional=False),
        _field("partition_spec_id", 502, "int", optional=False),
        _field("content", 517, "int", optional=False),
        _field("sequence_number", 515, "long", optional=False),
        _field("min_sequence_number", 516, "long", optional=False),
        _field("added_snapshot_id", 503, "long", optional=False),
        *(_field(*count, optional=not has_counts) for count in counts),
        _field("partitions", 507, {"type": "array", "items": _SUMMARY, "element-id": 508}),
        _field("key_metadata", 519, "bytes"),
        _field("first_row_id", 520, "long"),
    ]
    return {"type": "record", "name": "manifest_file", "fields": fields}


MANIFEST_LIST_SCHEMA = manifest_list_schema(has_counts=False)
"""The schema of a manifest list whose counts may be missing, as in version 1 of the format."""
