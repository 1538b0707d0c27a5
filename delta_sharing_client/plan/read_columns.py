"""The columns that a scan reads, their sources, and the schema of the result."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from delta_sharing_client.arrow_forms import is_text
from delta_sharing_client.columns import Names, resolve_path
from delta_sharing_client.delta.data_types import (
    ArrayType,
    ColumnPath,
    DataType,
    MapType,
    StructField,
    StructType,
    is_variant,
    is_void,
)
from delta_sharing_client.delta.schema import to_arrow_field, to_arrow_map, to_arrow_type
from delta_sharing_client.delta.type_rows import row_of
from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.options import InvalidText, ReadOptions, VariantAs
from delta_sharing_client.predicates.tree import Expression, columns_in, operands, tests
from delta_sharing_client.predicates.tree import columns as columns_of


class Origin(enum.Enum):
    """The source of a column's values."""

    FILE = "data file"
    PARTITION = "partition value"
    # Columns that the read adds, by their names.
    ROW_ID = "_row_id"
    ROW_COMMIT_VERSION = "_row_commit_version"
    LAST_UPDATED_SEQUENCE_NUMBER = "_last_updated_sequence_number"
    CHANGE_TYPE = "_change_type"
    COMMIT_VERSION = "_commit_version"
    COMMIT_TIMESTAMP = "_commit_timestamp"


ROW_ID: Final = Origin.ROW_ID.value
ROW_COMMIT_VERSION: Final = Origin.ROW_COMMIT_VERSION.value
LAST_UPDATED_SEQUENCE_NUMBER: Final = Origin.LAST_UPDATED_SEQUENCE_NUMBER.value
CHANGE_TYPE: Final = Origin.CHANGE_TYPE.value
COMMIT_VERSION: Final = Origin.COMMIT_VERSION.value
COMMIT_TIMESTAMP: Final = Origin.COMMIT_TIMESTAMP.value

LEFT_OUT_KEY = "delta_sharing.left_out"

ROW_UPDATES = frozenset((Origin.ROW_COMMIT_VERSION, Origin.LAST_UPDATED_SEQUENCE_NUMBER))
"""The columns that say when a row was last updated, in a Delta table and in an Iceberg table."""
ROW_LINEAGE = ROW_UPDATES | {Origin.ROW_ID}
ROW_LINEAGE_FIELDS = (pa.field(ROW_ID, pa.int64()), pa.field(ROW_COMMIT_VERSION, pa.int64()))
ICEBERG_LINEAGE_FIELDS = (pa.field(ROW_ID, pa.int64()), pa.field(LAST_UPDATED_SEQUENCE_NUMBER, pa.int64()))
CHANGE_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string()),
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("ms", tz="UTC")),
)


@dataclasses.dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column of the result or of the filter. ``field`` is pruned to the needed parts, and ``None`` for columns that
    the read adds."""

    name: str
    origin: Origin
    arrow: pa.Field
    field: StructField | None


def output_columns(
    schema: StructType,
    columns: Iterable[ColumnPath] | None,
    partition_columns: Iterable[str],
    variant_as: VariantAs,
    added: Iterable[pa.Field] = (),
) -> tuple[ReadColumn, ...]:
    """Return the columns of a scan's batches, in order.

    ``added`` are the columns that the read adds. They come last if all columns are read. If ``columns`` are selected,
    those of the change feed are only added where they are selected, and row lineage is appended unless it is selected.
    Raises ``UsageError`` if a path names no column, or the table has a column with the name of an added one.
    """
    extra = {field.name: field for field in added}
    for name in extra:
        if schema.find(name) is not None:
            raise UsageError(
                f"The table's own column {name!r} has the name of a column that row lineage or the change feed adds, "
                "so the table can only be read without these."
            )
    paths = [(name,) for name in schema.names] if columns is None else list(columns)
    if columns is None or (ROW_ID in extra and not any(path[0] in extra for path in paths)):
        paths += [(name,) for name in extra]
    return _read_columns(schema, paths, partition_columns, variant_as, extra)


def filter_columns(
    schema: StructType, predicate: Expression | None, partition_columns: Iterable[str], added: Iterable[pa.Field] = ()
) -> tuple[ReadColumn, ...]:
    """Return the columns that a bound predicate needs, pruned to the needed parts."""
    paths = [] if predicate is None else sorted(columns_of(predicate))
    # Predicates use the schema's own types, in which variants are structs.
    return _read_columns(schema, paths, partition_columns, VariantAs.STRUCT, {field.name: field for field in added})


def unbounded_paths(predicate: Expression | None, options: ReadOptions) -> frozenset[ColumnPath]:
    """Return the columns of a bound predicate whose statistics do not bound the returned rows: text columns, if invalid
    UTF-8 is replaced."""
    if predicate is None or options.invalid_text is not InvalidText.REPLACE:
        return frozenset()
    columns = (column for test in tests(predicate) for operand in operands(test) for column in columns_in(operand))
    return frozenset(column.path for column in columns if column.type is not None and is_text(column.type))


def output_type(data_type: DataType, variant_as: VariantAs) -> pa.DataType:
    """Return the Arrow type in which a scan returns ``data_type``: the schema's type, with variants as requested."""
    if is_variant(data_type) and variant_as is not VariantAs.STRUCT:
        return pa.string()
    if isinstance(data_type, ArrayType):
        element = StructField("element", data_type.element, data_type.contains_null)
        return pa.list_(output_field(element, variant_as))
    if isinstance(data_type, MapType):
        key, value = (output_type(item, variant_as) for item in (data_type.key, data_type.value))
        return to_arrow_map(data_type, key, value)
    if isinstance(data_type, StructType):
        return pa.struct([output_field(item, variant_as) for item in data_type.fields])
    return to_arrow_type(data_type)


def output_field(item: StructField, variant_as: VariantAs) -> pa.Field:
    """Return the Arrow field of a column in a scan's result."""
    return to_arrow_field(item, output_type(item.type, variant_as))


def left_out_columns(schema: StructType) -> dict[str, str]:
    """Return the columns that a read of all columns leaves out because of their unknown types, as names and types."""
    return {".".join(item.path): item.type for item in schema.all_left_out}


def left_out_metadata(schema: StructType) -> dict[str, str] | None:
    """Return the Arrow metadata that lists the columns that the schema leaves out, ``None`` if there are none.

    Its key is ``delta_sharing.left_out``, its value a JSON object of names and types.
    """
    left_out = left_out_columns(schema)
    return {LEFT_OUT_KEY: json.dumps(left_out)} if left_out else None


def left_out_note(columns: Mapping[str, str], what: str) -> str:
    """Return a sentence that says that ``what`` leaves out ``columns``, which maps names to types."""
    shown = ", ".join(f"'{name}' ({kind})" for name, kind in columns.items())
    return (
        f"{what} leaves out columns of the table whose types are not supported: {shown}. Name the columns that you "
        "need, or upgrade this package."
    )


def check_nothing_left_out(schema: pa.Schema | StructType, what: str) -> None:
    """Refuse to write ``what`` from a read that leaves out columns, unless the user named the columns.

    ``schema`` is the schema of the rows (with ``left_out_metadata``), or of a table whose columns are all read.
    ``what`` begins the message, such as "The file 'rows.csv'". Raises ``UnsupportedFeatureError``.
    """
    if isinstance(schema, pa.Schema):
        left_out = json.loads((schema.metadata or {}).get(LEFT_OUT_KEY.encode(), b"{}"))
    else:
        left_out = left_out_columns(schema)
    if left_out:
        raise UnsupportedFeatureError(
            f"{left_out_note(left_out, what)} It is not created, because these columns would be missing forever.",
            feature="columns of unsupported types",
        )


def needed_share(schema: StructType, columns: Iterable[ReadColumn], partition_columns: Iterable[str]) -> float:
    """Return the fraction of a file's bytes that ``columns`` probably take, estimated by their types."""
    partitions = {name.lower() for name in partition_columns}
    # Unlike ``sum``, ``fsum`` gives the same result in any order, so the fraction for all columns is 1.
    total = math.fsum(_width(item.type) for item in schema.fields if item.name.lower() not in partitions)
    widths: dict[str, float] = {}
    for column in columns:
        if column.origin is Origin.FILE:
            assert column.field is not None
            widths[column.name] = max(widths.get(column.name, 0.0), _width(column.field.type))
    return math.fsum(widths.values()) / total if total else 0.0


def _read_columns(
    schema: StructType,
    paths: Iterable[ColumnPath],
    partition_columns: Iterable[str],
    variant_as: VariantAs,
    extra: dict[str, pa.Field],
) -> tuple[ReadColumn, ...]:
    partitions = {name.lower() for name in partition_columns}
    below: dict[str, list[ColumnPath]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    columns: list[ReadColumn] = []
    for name, subpaths in below.items():
        field = schema.find(name)
        if field is not None:
            pruned = _prune(field, subpaths)
            _refuse_void(pruned, ())
            origin = Origin.PARTITION if field.name.lower() in partitions else Origin.FILE
            columns.append(ReadColumn(field.name, origin, output_field(pruned, variant_as), pruned))
        elif name in extra:
            columns.append(ReadColumn(name, Origin(name), extra[name], None))
        else:
            resolve_path((name,), schema)  # raises the error, which suggests the nearest name
    return tuple(columns)


def _refuse_void(item: StructField, above: ColumnPath) -> None:
    """Refuse a column of the type void, at any level, where the schema forbids nulls: it could have no value."""
    path = (*above, item.name)
    if is_void(item.type) and not item.nullable:
        raise UnsupportedFeatureError(
            f"Column {'.'.join(path)!r} has the type void, so it has only nulls, but the schema forbids nulls in it. "
            "Read the other columns, or ask the provider to correct the schema.",
            feature="void that is not nullable",
        )
    match item.type:
        case StructType(fields=fields):
            below = list(fields)
        case ArrayType(element=element, contains_null=nullable):
            below = [StructField("element", element, nullable)]
        case MapType(key=key, value=value, value_contains_null=nullable):
            below = [StructField("key", key, nullable=False), StructField("value", value, nullable)]
        case _:
            below = []
    for inner in below:
        _refuse_void(inner, path)


def _prune(field: StructField, paths: list[ColumnPath]) -> StructField:
    if any(not path for path in paths) or not isinstance(field.type, StructType):
        return field
    below: dict[str, list[ColumnPath]] = {}
    names = Names(field.type)
    for path in paths:
        (child,) = names.resolve(path[:1])
        below.setdefault(child.name, []).append(path[1:])
    kept = tuple(_prune(child, below[child.name]) for child in field.type.fields if child.name in below)
    return dataclasses.replace(field, type=StructType(kept))


def _width(data_type: DataType) -> float:
    if isinstance(data_type, StructType):
        return sum(_width(item.type) for item in data_type.fields)
    if isinstance(data_type, ArrayType):
        return 4 * _width(data_type.element)
    if isinstance(data_type, MapType):
        return 4 * (_width(data_type.key) + _width(data_type.value))
    row = row_of(data_type)
    assert row is not None
    return row.width
