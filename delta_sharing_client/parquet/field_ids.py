"""Finds the field ids of the columns of Parquet files, in the file or through a name mapping.

Some writers store no field ids. Then columns, struct fields, and the ``element``, ``key`` and ``value`` of lists and
maps are found by any of their mapped names (Iceberg specification, "Name Mapping Serialization").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Union

import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"
"""The key of a field id in the metadata of an Arrow field."""


class MappedField(NamedTuple):
    """A field of a name mapping: its id (``None`` if it has none), and its child fields by name."""

    field_id: Union[int, None]
    below: Mapping[str, MappedField]


NameMapping = Mapping[str, MappedField]
"""Fields by each of their names, which are case-sensitive."""


def has_ids(fields: Iterable[pa.Field]) -> bool:
    """Return whether one of ``fields``, or of their descendants, has a field id."""
    return any(FIELD_ID in (field.metadata or ()) or has_ids(_below(field.type)) for field in fields)


def with_ids(schema: pa.Schema, names: NameMapping) -> pa.Schema:
    """Return ``schema``, of a file without field ids, with the field ids that ``names`` has for its columns."""
    return pa.schema([_mapped(field, field.name, names) for field in schema], schema.metadata)


def _below(kind: pa.DataType) -> list[pa.Field]:
    if isinstance(kind, pa.BaseExtensionType):
        return _below(kind.storage_type)
    if pa.types.is_struct(kind):
        return [kind.field(place) for place in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.value_field] if _is_list(kind) else []


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _mapped(field: pa.Field, name: str, names: NameMapping) -> pa.Field:
    """Return ``field``, called ``name`` in ``names``, with its field id and those of its children."""
    mapped = names.get(name, _UNKNOWN)
    kind, below = field.type, mapped.below
    if pa.types.is_struct(kind):
        kind = pa.struct([_mapped(inner, inner.name, below) for inner in _below(kind)])
    elif pa.types.is_map(kind):
        kind = pa.map_(_mapped(kind.key_field, "key", below), _mapped(kind.item_field, "value", below))
    elif pa.types.is_fixed_size_list(kind):
        kind = pa.list_(_mapped(kind.value_field, "element", below), kind.list_size)
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(_mapped(kind.value_field, "element", below))
    elif pa.types.is_list(kind):
        kind = pa.list_(_mapped(kind.value_field, "element", below))
    metadata = None if mapped.field_id is None else {FIELD_ID: str(mapped.field_id).encode()}
    return pa.field(field.name, kind, field.nullable, metadata)


_UNKNOWN = MappedField(None, {})
