"""Reads the records of an Avro file by Iceberg's field ids (Apache Avro, "Object Container Files"; Iceberg, Appendix
A).

Manifest lists and manifests are Avro files. No library decodes damaged ones safely and large ones quickly
(docs/decisions.md). The input is untrusted: every length is checked against its block, a block must end with its
last record, the file must end with its last block, and decompression has a limit. Only the types that Iceberg's
metadata uses are decoded; logical types are not applied.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from delta_sharing_client.errors import DataError, check_memory

MOST_BYTES = 1 << 29
"""An Avro file that decompresses to more than this is refused."""

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MOST_NESTING = 32
_MOST_VARINT_BYTES = 10
_DAMAGED = (IndexError, struct.error, UnicodeDecodeError, zlib.error, pa.ArrowException, OSError, OverflowError)

Read = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a position, and the position after it."""


class NamedField(NamedTuple):
    """The id of a field whose name the specification fixes, and the fields of its record or of its items."""

    field_id: int
    fields: Mapping[str, NamedField] = {}


class StoredType(NamedTuple):
    """The type of a field in the file: its name, its logical type (empty if it has none), and a decimal's scale."""

    name: str
    logical: str = ""
    scale: int | None = None


class AvroFile(NamedTuple):
    """The properties in the header, the schema, and the records as dicts by field id (a string); nested records are
    such dicts, too."""

    properties: dict[str, bytes]
    schema: object
    records: Iterator[dict[str, Any]]


Names = Callable[[Mapping[str, bytes]], Mapping[str, NamedField]]
"""Returns the fields by name, given the properties in the header."""


def read_avro(
    data: bytes,
    name: str,
    without: Collection[int] = (),
    keys: Collection[int] | None = None,
    names: Names | None = None,
) -> AvroFile:
    """Open an Avro file. Fields with the ids ``without`` are left out of its records, at every level.

    If ``keys`` is given, maps from numbers to numbers or bytes have only these keys. If ``names`` is given, fields
    without an id have the id of their name, and other fields without an id are left out. ``name`` is the file's name,
    for errors. Raises ``DataError`` if the header is damaged or the schema is not one that Iceberg writes; the iterator
    of the records raises it for a damaged block, after the records of the blocks before it.
    """
    try:
        return _open(data, _Schema(name, frozenset(without), None if keys is None else frozenset(keys)), names)
    except _DAMAGED as error:
        check_memory(error)
        raise _damaged(name, "its header ends early or cannot be decoded") from None


def stored_types(schema: object, *path: int) -> dict[str, StoredType]:
    """Return the types of the fields of the record at ``path`` (field ids) in the schema of an ``AvroFile``, by field
    id; none if there is no such record."""
    for field_id in path:
        found = [field.get("type") for field in _fields_of(_value_type(schema)) if field.get("field-id") == field_id]
        schema = found[0] if found else None
    types: dict[str, StoredType] = {}
    for field in _fields_of(_value_type(schema)):
        kind = _value_type(field.get("type"))
        if isinstance(kind, dict):
            logical, scale = kind.get("logicalType"), kind.get("scale")
            types[str(field.get("field-id"))] = StoredType(
                str(kind.get("type")),
                logical if isinstance(logical, str) else "",
                # A decimal without a scale has the scale 0 (Avro, "Decimal").
                (scale if type(scale) is int else 0) if logical == "decimal" else None,
            )
        else:
            types[str(field.get("field-id"))] = StoredType(str(kind))
    return types


def _value_type(schema: object) -> object:
    """Return the type of the values that are not null, without a redundant level."""
    for _ in range(_MOST_NESTING):
        if isinstance(schema, list):
            schema = next((branch for branch in schema if branch != "null"), "null")
        elif isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
            schema = schema["type"]
        else:
            break
    return schema


def _fields_of(schema: object) -> list[dict[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []


def _with_ids(schema: object, names: Mapping[str, NamedField], depth: int = 0) -> object:
    """Return ``schema`` with the ids of ``names`` for fields without an id; other fields without an id get None."""
    if depth > _MOST_NESTING:
        return schema
    if isinstance(schema, list):
        return [_with_ids(branch, names, depth + 1) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "array" and schema.get("logicalType") != "map":
        return {**schema, "items": _with_ids(schema.get("items"), names, depth + 1)}
    if schema.get("type") != "record":
        return {**schema, "type": _with_ids(schema.get("type"), names, depth + 1)}
    fields = []
    for field in _fields_of(schema):
        named = names.get(str(field.get("name")))
        inner = {} if named is None else named.fields
        field_id = field.get("field-id", None if named is None else named.field_id)
        fields.append({**field, "field-id": field_id, "type": _with_ids(field.get("type"), inner, depth + 1)})
    return {**schema, "fields": fields}


def _open(data: bytes, schemas: _Schema, names: Names | None) -> AvroFile:
    name = schemas.name
    if data[:4] != _MAGIC:
        raise _damaged(name, "an Avro file must start with the bytes 'Obj' and 1")
    properties, at = _read_properties(data, 4)
    sync = _slice(data, at, at + _SYNC_BYTES)
    try:
        schema = msgspec.json.decode(properties.get("avro.schema", b""))
    except (msgspec.DecodeError, RecursionError):
        raise _damaged(name, "its schema is not JSON") from None
    if names is not None:
        schema = _with_ids(schema, names(properties))
    reader = schemas.reader(schema, 0)
    codec = properties.get("avro.codec", b"null").decode("ascii")
    if codec not in _CODECS:
        raise _damaged(name, f"its codec {codec[:40]!r} is not one of {', '.join(map(repr, _CODECS))}")
    blocks = _blocks(data, at + _SYNC_BYTES, sync, _CODECS[codec], name)
    return AvroFile(properties, schema, _records(blocks, reader, name))


def _blocks(
    data: bytes, at: int, sync: bytes, decompress: Callable[[bytes, int], bytes], name: str
) -> Iterator[tuple[int, bytes]]:
    left = MOST_BYTES
    while at < len(data):
        try:
            count, at = _read_long(data, at)
            size, at = _read_long(data, at)
            body = _slice(data, at, at + size)
            if count < 0 or _slice(data, at + size, at + size + _SYNC_BYTES) != sync:
                raise _damaged(name, "a block does not end with the file's sync marker")
            at += size + _SYNC_BYTES
            plain = decompress(body, left)
        except _DAMAGED as error:
            check_memory(error)
            raise _damaged(name, "a block ends early or cannot be decompressed") from None
        left -= len(plain)
        if left < 0:
            raise _damaged(name, f"it decompresses to more than {MOST_BYTES} bytes")
        yield count, plain


def _records(blocks: Iterator[tuple[int, bytes]], reader: Read, name: str) -> Iterator[dict[str, Any]]:
    for count, block in blocks:
        at = 0
        for _ in range(count):
            try:
                record, at = reader(block, at)
            except _DAMAGED as error:
                check_memory(error)
                raise _damaged(name, "a record ends early or cannot be decoded") from None
            yield record
        if at != len(block):
            raise _damaged(name, f"a block has {len(block)} bytes, but its records end at byte {at}")


# === Compression ===


def _inflate(data: bytes, most: int) -> bytes:
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    plain = decoder.decompress(data, most + 1)
    if len(plain) <= most and not decoder.eof:
        raise zlib.error("the stream is truncated")
    return plain


def _unzstd(data: bytes, most: int) -> bytes:
    with pa.input_stream(pa.py_buffer(data), compression="zstd") as stream:
        return bytes(stream.read(most + 1))


def _unsnap(data: bytes, most: int) -> bytes:
    size, _ = _read_unsigned(data, 0)
    if size > most:
        return b"\0" * (most + 1)
    plain: bytes = pa.decompress(data[:-4], size, "snappy", asbytes=True)
    # Avro adds a checksum of the uncompressed bytes.
    if zlib.crc32(plain) != int.from_bytes(data[-4:], "big"):
        raise zlib.error("wrong checksum")
    return plain


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, most: data,
    "deflate": _inflate,
    "zstandard": _unzstd,
    "snappy": _unsnap,
}


# === Values ===


def _slice(data: bytes, start: int, stop: int) -> bytes:
    if not start <= stop <= len(data):
        raise IndexError
    return data[start:stop]


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(_MOST_VARINT_BYTES):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:  # most numbers are small
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, at = _read_unsigned(data, at)
    number = (value >> 1) ^ -(value & 1)
    if not -(1 << 63) <= number < 1 << 63:
        raise IndexError
    return number, at


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    stop = at + size
    if size < 0 or stop > len(data):
        raise IndexError
    return data[at:stop], stop


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    text, at = _read_bytes(data, at)
    return text.decode("utf-8"), at


def _read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise IndexError
    return data[at] == 1, at + 1


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<f", data, at)[0], at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return struct.unpack_from("<d", data, at)[0], at + 8


def _read_null(data: bytes, at: int) -> tuple[None, int]:
    return None, at


_PRIMITIVES: dict[str, Read] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_long,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


def _read_count(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array or map, and the position of the first of them. If the
    stored number is negative, the length of the block in bytes follows it."""
    count, at = _read_long(data, at)
    if count < 0:
        _, at = _read_long(data, at)
        count = -count
    # Each item takes at least one byte (``_Schema`` checks this).
    if count > len(data) - at:
        raise IndexError
    return count, at


def _read_properties(data: bytes, at: int) -> tuple[dict[str, bytes], int]:
    return _items(_read_string, _read_bytes)(data, at)


def _items(read_key: Read, read_value: Read) -> Read:
    """Return the reader of a map, or of an array of keys and values."""

    def read(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
        items: dict[Any, Any] = {}
        count, at = _read_count(data, at)
        while count:
            for _ in range(count):
                key, at = read_key(data, at)
                items[key], at = read_value(data, at)
            count, at = _read_count(data, at)
        return items, at

    return read


def _chosen_items(keys: frozenset[int], read_value: Read) -> Read:
    """Return the reader of a map from numbers to numbers or bytes that skips all items but those with ``keys``, because
    the statistics of all columns of all files take up most of a manifest."""
    has_bytes = read_value is _read_bytes

    def read(data: bytes, at: int) -> tuple[dict[int, Any], int]:
        chosen: dict[int, Any] = {}
        end = len(data)
        count, at = _read_count(data, at)
        while count:
            for _ in range(count):
                key = data[at]
                if key < 0x80:
                    key, at = (key >> 1) ^ -(key & 1), at + 1
                else:
                    key, at = _read_long(data, at)
                if key in keys:
                    chosen[key], at = read_value(data, at)
                elif not has_bytes:
                    while data[at] >= 0x80:
                        at += 1
                    at += 1
                elif (size := data[at]) < 0x80:
                    at += 1 + (size >> 1)
                    if size & 1 or at > end:  # odd numbers are negative
                        raise IndexError
                else:
                    _, at = _read_bytes(data, at)
            count, at = _read_count(data, at)
        return chosen, at

    return read


def _list(read_item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = _read_count(data, at)
        while count:
            for _ in range(count):
                item, at = read_item(data, at)
                items.append(item)
            count, at = _read_count(data, at)
        return items, at

    return read


def _union(branches: list[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _read_long(data, at)
        if not 0 <= branch < len(branches):
            raise IndexError
        return branches[branch](data, at)

    return read


def _fixed(size: int) -> Read:
    return lambda data, at: (_slice(data, at, at + size), at + size)


def _record(fields: list[tuple[str | None, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for field_id, read_field in fields:
            value, at = read_field(data, at)
            if field_id is not None:
                values[field_id] = value
        return values, at

    return read


class _Schema:
    """Creates the reader for a file's schema. Raises ``DataError`` for schemas that Iceberg does not write: with
    recursion, with items that take no bytes, or with fields without ids."""

    def __init__(self, name: str, without: frozenset[int], keys: frozenset[int] | None) -> None:
        self.name = name
        self._without = without
        self._keys = keys

    def reader(self, schema: object, depth: int) -> Read:
        if depth > _MOST_NESTING:
            raise self._refused("nests types too deeply")
        if isinstance(schema, str):
            # A type that the schema defines by name could refer to itself.
            if schema not in _PRIMITIVES:
                raise self._refused(f"names the type {schema[:60]!r}, which Avro does not define")
            return _PRIMITIVES[schema]
        if isinstance(schema, list):
            if not 1 <= len(schema) <= 2 or (len(schema) == 2 and "null" not in schema):
                raise self._refused("has a union of types other than null and one type")
            return _union([self.reader(branch, depth + 1) for branch in schema])
        if not isinstance(schema, dict):
            raise self._refused("has a type that is neither a name nor an object")
        kind = schema.get("type")
        if kind == "record":
            return self._record(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind == "map":
            return _items(_read_string, self._item(schema.get("values"), depth))
        if kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise self._refused("has a fixed type without a size")
            return _fixed(size)
        return self.reader(kind, depth + 1)

    def _record(self, schema: dict[str, Any], depth: int) -> Read:
        fields: list[tuple[str | None, Read]] = []
        for field in self._fields(schema):
            field_id = field.get("field-id", "")
            if field_id is None:
                fields.append((None, self.reader(field.get("type"), depth + 1)))
                continue
            if not isinstance(field_id, int) or isinstance(field_id, bool):
                raise self._refused(f"has a field {str(field.get('name'))[:60]!r} without 'field-id'")
            keys, self._keys = self._keys, frozenset() if field_id in self._without else self._keys
            read = self.reader(field.get("type"), depth + 1)
            self._keys = keys
            fields.append((None if field_id in self._without else str(field_id), read))
        names = [name for name, _ in fields if name is not None]
        if len(set(names)) < len(names):
            raise self._refused("has a record with two fields of the same 'field-id'")
        return _record(fields)

    def _array(self, schema: dict[str, Any], depth: int) -> Read:
        items = schema.get("items")
        if schema.get("logicalType") == "map":
            fields = self._fields(items) if isinstance(items, dict) else []
            if len(fields) != 2:
                raise self._refused("has a map without a key and a value")
            key, value = self._item(fields[0].get("type"), depth), self.reader(fields[1].get("type"), depth + 1)
            if self._keys is not None and key is _read_long and value in (_read_long, _read_bytes):
                return _chosen_items(self._keys, value)
            return _items(key, value)
        return _list(self._item(items, depth))

    def _item(self, schema: object, depth: int) -> Read:
        if not _takes_bytes(schema, depth):
            raise self._refused("has items that take no bytes, so that a few bytes could stand for any number of items")
        return self.reader(schema, depth + 1)

    def _fields(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
            raise self._refused("has a record without a list of fields")
        return fields

    def _refused(self, what: str) -> DataError:
        return _damaged(self.name, f"its schema {what}")


def _takes_bytes(schema: object, depth: int) -> bool:
    """Return whether every value of the type takes at least one byte."""
    if depth > _MOST_NESTING:
        return False
    if isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "record":
            fields = schema.get("fields")
            listed = fields if isinstance(fields, list) else []
            return any(_takes_bytes(field.get("type"), depth + 1) for field in listed if isinstance(field, dict))
        if kind == "fixed":
            return isinstance(schema.get("size"), int) and schema["size"] > 0
        return kind in ("array", "map") or _takes_bytes(kind, depth + 1)
    return isinstance(schema, list) or (isinstance(schema, str) and schema != "null")


def _damaged(name: str, reason: str) -> DataError:
    return DataError(f"The Avro file '{name}' of the table's metadata is damaged: {reason}.", file_id=name)
