"""Converts arrays from files to the table's types and names, exactly or with an error.

An ``Aligner`` finds the table's columns in a file, once per file schema. A ``FileColumn`` converts the arrays of every
batch, and returns them unchanged if nothing differs. Values that are invalid for their type (text that is not UTF-8)
are refused. Nested arrays are rebuilt around their children without copying offsets or validity.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Optional, Union

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.arrow_forms import count_true
from delta_sharing_client.decode.missing_columns import has_default, missing_column, nulls
from delta_sharing_client.decode.text import check_text, expanded, first_invalid, replaced
from delta_sharing_client.delta.calendars import HybridCalendar, gregorian_dates, hybrid_calendar
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import (
    ArrayType,
    ColumnPath,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    is_variant,
    is_void,
)
from delta_sharing_client.delta.schema import to_arrow_type
from delta_sharing_client.delta.type_rows import row_of
from delta_sharing_client.delta.variant.column import unshred, variant_to_json
from delta_sharing_client.errors import DataError
from delta_sharing_client.int96 import instants
from delta_sharing_client.options import InvalidText, VariantAs
from delta_sharing_client.parquet.field_ids import FIELD_ID, NameMapping, has_ids, with_ids
from delta_sharing_client.plan.read_columns import output_type

Convert = Callable[[pa.Array], pa.Array]
MaybeConvert = Optional[Convert]  # None: the array is already right
Check = Callable[[pa.Array], None]
# The maximum number of names in a message.
_MOST_SHOWN = 8


class FileColumn:
    """One table column in one file: the Parquet columns to read for it and their conversion.

    ``leaves`` is empty, and ``convert`` is never called, if the file does not have the column.
    """

    __slots__ = ("_check", "convert", "field", "is_as_stored", "leaves", "top", "type")

    def __init__(
        self,
        field: StructField,
        arrow: pa.DataType,
        top: int,
        leaves: tuple[int, ...],
        convert: MaybeConvert,
        *,
        is_text_checked: bool = True,
    ) -> None:
        self.field = field
        self.type = arrow
        self.top = top
        self.leaves = leaves
        self.convert = convert
        self._check = checker(arrow, is_text_checked=is_text_checked)
        self.is_as_stored = convert is None and self._check is None and field.nullable
        """Whether ``apply`` returns every array as it is."""

    def apply(self, array: pa.Array) -> pa.Array:
        """Return ``array``, the file's column, in the table's type; an array that was read as a dictionary remains one.

        Raises ``DataError`` if a value does not fit the type, or is null although the table forbids it, ``NotUtf8`` if
        text is not UTF-8.
        """
        try:
            if self.convert is not None:
                array = self.convert(array)
            if self._check is not None:
                self._check_values(array, self._check)
        except pa.ArrowInvalid as error:
            if (invalid := first_invalid(expanded(array), (self.field.name,))) is not None:
                raise invalid from None
            raise DataError(
                f"Column {self.field.name!r} has a value that does not fit the table's type {self.type}: {error}."
            ) from None
        if not self.field.nullable and array.null_count:
            raise DataError(f"Column {self.field.name!r} is NOT NULL in the table, but the file has nulls in it.")
        return array

    def _check_values(self, array: pa.Array, check: Check) -> None:
        if not isinstance(array, pa.DictionaryArray):
            check(array)
            return
        try:
            check(array.dictionary)
        except pa.ArrowInvalid:
            # Only values that occur in a row matter.
            check(expanded(array))

    def missing(self, length: int, others: Sequence[str]) -> pa.Array:
        """Return the values of a file that does not have the column: nulls, or its initial default.

        ``others`` are the names of the other columns, for the error. Raises ``DataError`` if the table forbids nulls.
        """
        array = missing_column(self.field, self.type, length)
        if not self.field.nullable and array.null_count:
            shown = ", ".join(map(repr, others[:_MOST_SHOWN])) + (", ..." if len(others) > _MOST_SHOWN else "")
            raise DataError(
                f"Column {self.field.name!r} is NOT NULL in the table, but the file does not have it. To read the "
                f"other columns, name them, as in columns=[{shown}], and do not filter by {self.field.name!r}."
            )
        return array


class Node(NamedTuple):
    """A type in a file, the number of its Parquet columns, and its child types."""

    type: pa.DataType
    leaves: int
    below: tuple[Node, ...]

    @classmethod
    def of(cls, data_type: pa.DataType) -> Node:
        inner: tuple[pa.DataType, ...] = ()
        if isinstance(data_type, pa.BaseExtensionType):
            inner = (data_type.storage_type,)
        elif pa.types.is_struct(data_type):
            inner = tuple(data_type.field(index).type for index in range(data_type.num_fields))
        elif pa.types.is_map(data_type):
            inner = (data_type.key_type, data_type.item_type)
        elif _is_list(data_type):
            inner = (data_type.value_type,)
        below = tuple(map(cls.of, inner))
        is_leaf = not below and not pa.types.is_struct(data_type)
        return cls(data_type, 1 if is_leaf else sum(node.leaves for node in below), below)

    @property
    def has_lists(self) -> bool:
        """Whether a row may have any number of values."""
        return _is_list(self.type) or pa.types.is_map(self.type) or any(node.has_lists for node in self.below)


class _FieldsByKey:
    """The fields of a schema or struct by lookup key, and the first Parquet column of each."""

    def __init__(self, fields: Iterable[pa.Field], nodes: Sequence[Node]) -> None:
        self.fields = list(fields)
        self.nodes = nodes
        self.starts = [0]
        self.by_id: dict[bytes, list[int]] = {}
        self.by_name: dict[str, list[int]] = {}
        self.by_folded_name: dict[str, list[int]] = {}
        for place, (field, node) in enumerate(zip(self.fields, nodes, strict=True)):
            self.starts.append(self.starts[-1] + node.leaves)
            self.by_name.setdefault(field.name, []).append(place)
            self.by_folded_name.setdefault(field.name.lower(), []).append(place)
            if (field_id := (field.metadata or {}).get(FIELD_ID)) is not None:
                self.by_id.setdefault(field_id, []).append(place)


class Aligner:
    """Finds the table's columns in a file's schema, by the table's column mapping.

    Columns are found by field id (mode ``id``), by physical name (mode ``name``) or by name; a name that differs only
    in case is accepted if there is no exact match and only one such name (Delta Transaction Log Protocol, "Column
    Mapping"). ``names`` has the field ids for a file without them, ``int96`` the numbers of the Parquet columns that
    are timestamps in ``schema`` and fixed bytes in the batches. Raises ``DataError`` if field ids are needed and the
    file has none, a name is ambiguous, a type cannot be read as the table's type, or a column with one of
    ``required_ids`` is missing.
    """

    def __init__(
        self,
        schema: pa.Schema,
        mode: ColumnMappingMode,
        variant_as: VariantAs,
        invalid_text: InvalidText = InvalidText.ERROR,
        *,
        names: NameMapping | None = None,
        required_ids: frozenset[int] = frozenset(),
        int96: frozenset[int] = frozenset(),
    ) -> None:
        if mode is ColumnMappingMode.ID and schema.names and not has_ids(schema):
            if names is None:
                raise DataError("The table maps columns by field id, but the file has no field ids.")
            schema = with_ids(schema, names)
        self._required_ids = required_ids
        self._int96 = int96
        self._top = _FieldsByKey(schema, [Node.of(field.type) for field in schema])
        self._structs: dict[int, _FieldsByKey] = {}
        self._mode = mode
        self._variant_as = variant_as
        self._is_text_replaced = invalid_text is InvalidText.REPLACE
        self._calendar = hybrid_calendar(schema.metadata)

    @property
    def leaves(self) -> int:
        return self._top.starts[-1]

    def has_lists(self, tops: Iterable[int]) -> bool:
        """Whether a row may have any number of values in one of the top-level columns."""
        return any(self._top.nodes[top].has_lists for top in tops)

    def column(self, item: StructField) -> FileColumn:
        """Return where the file has ``item``, which is pruned to the needed parts, and how to convert it."""
        arrow = output_type(item.type, self._variant_as)
        top = self._find(item, self._top, (item.name,))
        if top is None:
            return FileColumn(item, arrow, -1, (), None)
        if is_void(item.type) or pa.types.is_null(self._top.fields[top].type):
            return FileColumn(_without_default(item), arrow, -1, (), None)
        convert, leaves = self._align(item.type, self._top.nodes[top], self._top.starts[top], (item.name,), arrow)
        is_text_checked = not self._is_text_replaced
        return FileColumn(item, arrow, top, tuple(leaves), convert, is_text_checked=is_text_checked)

    def leaf(self, path: tuple[StructField, ...]) -> tuple[int, pa.DataType] | None:
        """Return the number of a field's Parquet column and its Arrow type, ``None`` if the file does not have the
        field.

        ``path`` leads from a top-level column through structs to the field. The number is -1 if the field is not a
        single Parquet column (an array, a map, a struct), or if its statistics use a different calendar than the table.
        """
        fields, start = self._top, 0
        for depth, item in enumerate(path):
            index = self._find(item, fields, tuple(step.name for step in path[: depth + 1]))
            if index is None:
                return None
            start += fields.starts[index]
            node = fields.nodes[index]
            stored = node.type
            if pa.types.is_struct(stored):
                fields = self._below(node)
        other_calendar = self._calendar is not None and self._calendar.concerns(stored)
        return (-1 if pa.types.is_nested(stored) or other_calendar else start, stored)

    # === Finding ===

    def _find(self, item: StructField, fields: _FieldsByKey, path: ColumnPath) -> int | None:
        if self._mode is ColumnMappingMode.ID and item.field_id is not None:
            hits = fields.by_id.get(str(item.field_id).encode(), [])
        else:
            name = self._mode.stored_name(item)
            hits = fields.by_name.get(name) or fields.by_folded_name.get(name.lower(), [])
        if len(hits) > 1:
            raise DataError(f"Column {dotted(path)!r} must occur once in the file, but occurs {len(hits)} times.")
        if not hits and self._required_ids:
            self._refuse_required(item, path)
        return hits[0] if hits else None

    def _refuse_required(self, item: StructField, path: ColumnPath) -> None:
        if item.field_id in self._required_ids:
            raise DataError(
                f"The file must have the partition column {dotted(path)!r}, but does not. Struct fields, empty "
                "strings, and times outside of the years 0 to 9999 are read from the files, not from their partition "
                "values. Ask the provider to rewrite the file."
            )
        if isinstance(item.type, StructType):
            for inner in item.type.fields:
                self._refuse_required(inner, (*path, inner.name))

    def _below(self, struct: Node) -> _FieldsByKey:
        """Return the fields of a struct. They are cached by its ``id``, as this object keeps all nodes alive."""
        if id(struct) not in self._structs:
            self._structs[id(struct)] = _FieldsByKey(struct.type, struct.below)
        return self._structs[id(struct)]

    # === Converting ===

    def _align(
        self, target: DataType, node: Node, start: int, path: ColumnPath, arrow: pa.DataType
    ) -> tuple[MaybeConvert, list[int]]:
        """Return the conversion of ``node``'s values to ``target`` (as the Arrow type ``arrow``), and the Parquet
        columns that it needs. The node's Parquet columns begin at ``start``."""
        stored = node.type
        if isinstance(stored, pa.BaseExtensionType):
            inner, leaves = self._align(target, node.below[0], start, path, arrow)
            return then(lambda array: array.storage, inner), leaves
        if is_variant(target):
            return self._variant(node, start, path)
        if isinstance(target, StructType):
            return self._struct(target, node, start, path, arrow)
        if isinstance(target, ArrayType):
            if not _is_list(stored):
                raise mismatch(target, stored, path)
            return self._list(target, node, start, path, arrow)
        if isinstance(target, MapType):
            if not pa.types.is_map(stored):
                raise mismatch(target, stored, path)
            return self._map(target, node, start, path, arrow)
        convert = primitive(target, stored, path)
        if start in self._int96:
            convert = then(instants, convert)
        if self._calendar is not None and self._calendar.concerns(stored):
            convert = _in_iso_calendar(self._calendar, target, stored, convert)
        if self._is_text_replaced and pa.types.is_string(arrow):
            convert = then(convert, replaced)
        return convert, [start]

    def _struct(
        self, target: StructType, node: Node, start: int, path: ColumnPath, arrow: pa.DataType
    ) -> tuple[MaybeConvert, list[int]]:
        stored = node.type
        if not pa.types.is_struct(stored):
            raise mismatch(target, stored, path)
        fields = self._below(node)
        arrow_fields = list(arrow)
        sources: list[tuple[str | None, MaybeConvert]] = []
        leaves: list[int] = []
        for item, arrow_field in zip(target.fields, arrow_fields, strict=True):
            child_path = (*path, item.name)
            index = self._find(item, fields, child_path)
            if index is None:
                sources.append((None, _absent(item, arrow_field.type)))
                continue
            if is_void(item.type) or pa.types.is_null(fields.fields[index].type):
                sources.append((None, None))
                continue
            field = fields.fields[index]
            first = start + fields.starts[index]
            convert, below = self._align(item.type, fields.nodes[index], first, child_path, arrow_field.type)
            sources.append((field.name, convert))
            leaves += below
        is_same = all(
            convert is None and name == item.name for (name, convert), item in zip(sources, arrow_fields, strict=True)
        )
        if is_same and arrow.equals(stored):
            return None, leaves
        # If no wanted field exists, some column must still show which structs are null.
        return _struct_converter(sources, arrow_fields, path), leaves or [start]

    def _list(
        self, target: ArrayType, node: Node, start: int, path: ColumnPath, arrow: pa.DataType
    ) -> tuple[MaybeConvert, list[int]]:
        stored = node.type
        inner, leaves = self._align(target.element, node.below[0], start, (*path, "element"), arrow.value_type)
        if inner is None and stored == arrow and stored.value_field.name == "element":
            return None, leaves

        def convert(array: pa.Array) -> pa.Array:
            if not pa.types.is_list(array.type):
                array = array.cast(pa.list_(array.type.value_field))
            if not target.contains_null and array.flatten().null_count:
                raise DataError(
                    f"The elements of column {dotted(path)!r} must not be null, but the file has null elements."
                )
            values = array.values if inner is None else inner(array.values)
            return pa.Array.from_buffers(
                arrow, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
            )

        return convert, leaves

    def _map(
        self, target: MapType, node: Node, start: int, path: ColumnPath, arrow: pa.DataType
    ) -> tuple[MaybeConvert, list[int]]:
        key, item = node.below
        keys, key_leaves = self._align(target.key, key, start, (*path, "key"), arrow.key_type)
        items, item_leaves = self._align(target.value, item, start + key.leaves, (*path, "value"), arrow.item_type)

        def convert(array: pa.Array) -> pa.Array:
            key_values, item_values = array.keys, array.items
            if not target.value_contains_null and _items(array).null_count:
                raise DataError(
                    f"The map values of column {dotted(path)!r} must not be null, but the file has null values."
                )
            if keys is not None:
                key_values = keys(key_values)
            if key_values.null_count:
                raise DataError(
                    f"The map keys of column {dotted(path)!r} must not be null, but the file has a null key."
                )
            # This computes the null count; pyarrow 14 crashes without it.
            entries = pa.StructArray.from_arrays(
                [key_values, item_values if items is None else items(item_values)],
                fields=[arrow.key_field, arrow.item_field],
            )
            return pa.Array.from_buffers(
                arrow, len(array), array.buffers()[:2], array.null_count, array.offset, children=[entries]
            )

        return convert, [*key_leaves, *item_leaves]

    def _variant(self, node: Node, start: int, path: ColumnPath) -> tuple[MaybeConvert, list[int]]:
        stored = node.type
        names = {field.name for field in stored} if pa.types.is_struct(stored) else set()
        if not {"metadata"} < names <= {"metadata", "value", "typed_value"}:
            raise mismatch(PrimitiveType("variant"), stored, path)
        as_text = self._variant_as is not VariantAs.STRUCT

        def convert(array: pa.Array) -> pa.Array:
            array = unshred(array)
            return variant_to_json(array) if as_text else array

        return convert, list(range(start, start + node.leaves))


def dotted(path: ColumnPath) -> str:
    return ".".join(path)


def mismatch(target: DataType, stored: pa.DataType, path: ColumnPath) -> DataError:
    return DataError(
        f"Column {dotted(path)!r} must have the table's type {to_arrow_type(target)}, but the file has {stored}, which "
        "cannot be converted to it exactly."
    )


# === Conversion of a value's type ===


def primitive(target: Union[PrimitiveType, DecimalType], stored: pa.DataType, path: ColumnPath) -> MaybeConvert:
    """Return the exact conversion from ``stored`` to ``target``, ``None`` if none is needed (Delta Transaction Log
    Protocol, "Type Widening"). Raises ``DataError`` if there is none."""
    arrow = to_arrow_type(target)
    if stored == arrow:
        return None
    if pa.types.is_dictionary(stored):
        return then(lambda array: array.dictionary_decode(), primitive(target, stored.value_type, path))
    row = row_of(target)
    assert row is not None, "every primitive type has a row"
    convert = row.stored(arrow, stored)
    if convert is None:
        raise mismatch(target, stored, path)
    return convert


def then(first: MaybeConvert, second: MaybeConvert) -> MaybeConvert:
    if first is None or second is None:
        return second if first is None else first
    return lambda array: second(first(array))


# === Nested values ===


def _items(array: pa.MapArray) -> pa.Array:
    """Return the values of the maps; ``array.items`` also contains values outside of them."""
    items, buffers = array.items, array.buffers()[:2]
    lists = pa.Array.from_buffers(
        pa.list_(items.type), len(array), buffers, array.null_count, array.offset, children=[items]
    )
    return lists.flatten()


def _in_iso_calendar(
    calendar: HybridCalendar, target: DataType, stored: pa.DataType, convert: MaybeConvert
) -> MaybeConvert:
    if pa.types.is_date(stored):
        return then(gregorian_dates, convert)
    # Spark never uses the hybrid calendar for timestamps without a time zone.
    return then(convert, calendar.instants) if target == PrimitiveType("timestamp") else convert


def _without_default(item: StructField) -> StructField:
    return dataclasses.replace(item, metadata={}) if has_default(item) else item


def _absent(item: StructField, arrow: pa.DataType) -> MaybeConvert:
    return (lambda array: missing_column(item, arrow, len(array))) if has_default(item) else None


def _struct_converter(
    sources: list[tuple[str | None, MaybeConvert]], fields: list[pa.Field], path: ColumnPath
) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        mask = array.is_null()
        children: list[pa.Array] = []
        for (name, inner), field in zip(sources, fields, strict=True):
            if name is None:
                child = nulls(len(array), field.type) if inner is None else inner(array)
            else:
                child = array.field(name)
                child = child if inner is None else inner(child)
            if not field.nullable and count_true(pc.and_not(child.is_null(), mask)):
                raise DataError(
                    f"Column {dotted((*path, field.name))!r} is NOT NULL in the table, but the file has nulls in it."
                )
            children.append(child)
        if children:
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        return pa.Array.from_buffers(pa.struct([]), len(array), [pc.invert(mask).buffers()[1]], array.null_count)

    return convert


def _is_list(stored: pa.DataType) -> bool:
    return any(is_kind(stored) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


# === Invalid values ===


@functools.lru_cache(maxsize=1024)
def checker(data_type: pa.DataType, *, is_text_checked: bool = True) -> Check | None:
    """Return a function that raises ``pyarrow.ArrowInvalid`` for an array of ``data_type`` with an invalid value.

    Returns ``None`` if every value of the type is valid.
    """
    of = functools.partial(checker, is_text_checked=is_text_checked)
    types = pa.types
    if types.is_string(data_type):
        return check_text if is_text_checked else None
    if types.is_decimal(data_type) or types.is_time(data_type):
        return lambda array: array.validate(full=True)
    if types.is_struct(data_type):
        fields = [(index, of(data_type.field(index).type)) for index in range(data_type.num_fields)]
        return _all([_after(operator.methodcaller("field", i), check) for i, check in fields if check is not None])
    if types.is_map(data_type):
        keys, items = of(data_type.key_type), of(data_type.item_type)
        below = [_after(operator.attrgetter("keys"), keys)] if keys is not None else []
        return _all([*below, _after(operator.attrgetter("items"), items)] if items is not None else below)
    if types.is_list(data_type):
        values = of(data_type.value_type)
        return None if values is None else _after(operator.methodcaller("flatten"), values)
    return None


def _all(checks: list[Check]) -> Check | None:
    def check(array: pa.Array) -> None:
        for each in checks:
            each(array)

    return check if checks else None


def _after(step: Callable[[pa.Array], pa.Array], check: Check) -> Check:
    return lambda array: check(step(array))
