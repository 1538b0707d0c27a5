"""Finds the differences between two descriptions of a table, each as a typed value that can describe itself.

Change feeds (``plan.changes``) and streams (``follow.versions``) each refuse a different set of kinds.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from typing import NamedTuple

from delta_sharing_client.delta.actions import Metadata
from delta_sharing_client.delta.column_mapping import ColumnMappingMode, mapping_mode
from delta_sharing_client.delta.data_types import (
    ArrayType,
    ColumnPath,
    DataType,
    MapType,
    StructField,
    StructType,
)
from delta_sharing_client.delta.schema import type_to_jsonable
from delta_sharing_client.delta.snapshot import table_schema
from delta_sharing_client.delta.widening import holds


class SchemaChangeKind(enum.Enum):
    """The kind of a change to a column or table. Without column mapping, a rename and a drop look the same."""

    GONE = "column '{column}' was dropped or renamed"
    DROPPED = "column '{column}' was dropped"
    REPLACED = "column '{column}' was dropped, and another column with that name was added"
    RENAMED = "column '{column}' was renamed to '{after}'"
    RESPELLED = "column '{column}' is now spelled '{after}'"
    ADDED = "column '{column}' was added"
    ADDED_NOT_NULL = "column '{column}' was added as NOT NULL"
    NOT_NULL = "column '{column}' became NOT NULL"
    ELEMENTS_NOT_NULL = "the elements of column '{column}' became NOT NULL"
    VALUES_NOT_NULL = "the values of column '{column}' became NOT NULL"
    WIDENED = "column '{column}' was widened from {before} to {after}"
    RETYPED = "column '{column}' changed its type from {before} to {after}"
    REPARTITIONED = "the partition columns changed from {before} to {after}"


class Difference(NamedTuple):
    """One difference; ``str`` returns it as a clause of a sentence."""

    kind: SchemaChangeKind
    column: ColumnPath = ()
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return self.kind.value.format(column=".".join(self.column), before=self.before, after=self.after)


def first_difference(
    old: Metadata, new: Metadata, kinds: Collection[SchemaChangeKind], *, table: str | None = None
) -> Difference | None:
    """Return the first difference of a kind in ``kinds`` between two descriptions of a table, or ``None``.

    Raises ``ProtocolError`` or ``UnsupportedFeatureError``, which name ``table``, if a description cannot be read.
    """
    if old.schema_string == new.schema_string and old.partition_columns == new.partition_columns:
        return None
    return next((difference for difference in _of_tables(old, new, table) if difference.kind in kinds), None)


def _of_tables(old: Metadata, new: Metadata, table: str | None) -> Iterator[Difference]:
    mapped = ColumnMappingMode.NONE not in (mapping_mode(old), mapping_mode(new))
    yield from _of_structs(table_schema(old, table=table), table_schema(new, table=table), (), mapped)
    before, after = old.partition_columns, new.partition_columns
    if [name.lower() for name in before] != [name.lower() for name in after]:
        yield Difference(SchemaChangeKind.REPARTITIONED, (), str(list(before)), str(list(after)))


def _of_structs(old: StructType, new: StructType, above: ColumnPath, mapped: bool) -> Iterator[Difference]:
    kept: set[str] = set()
    for field in old.fields:
        path = (*above, field.name)
        same = _counterpart(field, new, mapped)
        if same is None:
            gone = (
                SchemaChangeKind.GONE
                if not mapped
                else SchemaChangeKind.DROPPED
                if new.find(field.name) is None
                else SchemaChangeKind.REPLACED
            )
            yield Difference(gone, path)
            continue
        kept.add(same.name)
        if same.name != field.name:
            kind = SchemaChangeKind.RENAMED if same.name.lower() != field.name.lower() else SchemaChangeKind.RESPELLED
            yield Difference(kind, path, field.name, same.name)
        if field.nullable and not same.nullable:
            yield Difference(SchemaChangeKind.NOT_NULL, path)
        yield from _of_types(field.type, same.type, path, mapped)
    for field in new.fields:
        if field.name not in kept:
            yield Difference(
                SchemaChangeKind.ADDED if field.nullable else SchemaChangeKind.ADDED_NOT_NULL, (*above, field.name)
            )


def _counterpart(field: StructField, struct: StructType, mapped: bool) -> StructField | None:
    if not mapped:
        return struct.find(field.name)
    return next((item for item in struct.fields if item.physical_name == field.physical_name), None)


def _of_types(old: DataType, new: DataType, path: ColumnPath, mapped: bool) -> Iterator[Difference]:
    if isinstance(old, StructType) and isinstance(new, StructType):
        yield from _of_structs(old, new, path, mapped)
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        if old.contains_null and not new.contains_null:
            yield Difference(SchemaChangeKind.ELEMENTS_NOT_NULL, path)
        yield from _of_types(old.element, new.element, (*path, "element"), mapped)
    elif isinstance(old, MapType) and isinstance(new, MapType):
        if old.value_contains_null and not new.value_contains_null:
            yield Difference(SchemaChangeKind.VALUES_NOT_NULL, path)
        yield from _of_types(old.key, new.key, (*path, "key"), mapped)
        yield from _of_types(old.value, new.value, (*path, "value"), mapped)
    elif old != new:
        yield Difference(
            SchemaChangeKind.WIDENED if holds(new, old) else SchemaChangeKind.RETYPED, path, _shown(old), _shown(new)
        )


def _shown(data_type: DataType) -> str:
    shown = type_to_jsonable(data_type)
    return str(shown["type"] if isinstance(shown, dict) else shown)
