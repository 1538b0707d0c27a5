"""Which columns a scan reads, where each comes from, and the schema of what it returns."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable

import pyarrow as pa

from delta_sharing_client.columns import resolve_path
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
from delta_sharing_client.errors import UsageError
from delta_sharing_client.options import VariantAs
from delta_sharing_client.predicates.tree import columns as columns_of
from delta_sharing_client.scan.align import output_field
from delta_sharing_client.scan.tasks import (
    CHANGE_FIELDS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    ROW_COMMIT_VERSION,
    ROW_ID,
    ROW_LINEAGE_FIELDS,
    ScanContext,
)


class Origin(enum.Enum):
    """Where the values of a column come from."""

    FILE = "data file"
    PARTITION = "partition value"
    ROW_ID = "row id"
    ROW_COMMIT_VERSION = "row commit version"
    CHANGE_TYPE = "change type"
    COMMIT_VERSION = "commit version"
    COMMIT_TIMESTAMP = "commit timestamp"


_EXTRA = {
    ROW_ID: Origin.ROW_ID,
    ROW_COMMIT_VERSION: Origin.ROW_COMMIT_VERSION,
    CHANGE_TYPE: Origin.CHANGE_TYPE,
    COMMIT_VERSION: Origin.COMMIT_VERSION,
    COMMIT_TIMESTAMP: Origin.COMMIT_TIMESTAMP,
}


@dataclasses.dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column to produce. ``field`` is pruned to the needed parts, and ``None`` for columns that no table has."""

    name: str
    origin: Origin
    arrow: pa.Field
    field: StructField | None


def output_columns(
    schema: StructType,
    columns: tuple[ColumnPath, ...] | None,
    partition_columns: Iterable[str],
    variant_as: VariantAs,
    *,
    row_lineage: bool = False,
    change_feed: bool = False,
) -> tuple[ReadColumn, ...]:
    """Return the columns of a scan's batches, in order.

    Row lineage columns follow those asked for, unless they are asked for by name; the change feed's columns follow all
    columns of the table, or stand where they are asked for.

    Raises
    ------
    UsageError
        A path names nothing, or the table itself has a column of one of the extra names.
    """
    extra = (ROW_LINEAGE_FIELDS if row_lineage else ()) + (CHANGE_FIELDS if change_feed else ())
    for field in extra:
        if schema.find(field.name) is not None:
            raise UsageError(
                f"The table has a column {field.name!r} of its own; it cannot be read together with the one of the "
                "same name that row lineage or the change feed adds."
            )
    paths: Iterable[ColumnPath] = [(name,) for name in schema.names] if columns is None else columns
    named = {path[0] for path in paths}
    if columns is None or (row_lineage and not named & {field.name for field in ROW_LINEAGE_FIELDS}):
        paths = [*paths, *((field.name,) for field in extra)]
    return _read_columns(schema, paths, partition_columns, variant_as, {field.name: field for field in extra})


def filter_columns(context: ScanContext) -> tuple[ReadColumn, ...]:
    """Return the columns that the scan's predicate needs, pruned to what it needs of them."""
    if context.predicate is None:
        return ()
    paths = sorted(columns_of(context.predicate))
    extra = {field.name: field for field in ROW_LINEAGE_FIELDS + CHANGE_FIELDS}
    # Predicates are written for the schema's own types, which variants have as structs.
    return _read_columns(context.schema, paths, context.partition_columns, VariantAs.STRUCT, extra)


def context_columns(context: ScanContext) -> tuple[ReadColumn, ...]:
    """Return the output columns of a planned scan."""
    return output_columns(
        context.schema,
        context.columns,
        context.partition_columns,
        context.options.variant_as,
        row_lineage=context.row_lineage is not None,
        change_feed=context.is_change_feed,
    )


def needed_share(schema: StructType, columns: Iterable[ReadColumn], partition_columns: Iterable[str]) -> float:
    """Return the share of a file's bytes that ``columns`` probably take, judged by their types alone."""
    partitions = {name.lower() for name in partition_columns}
    total = sum(_width(item.type) for item in schema.fields if item.name.lower() not in partitions)
    widths: dict[str, float] = {}
    for column in columns:
        if column.origin is Origin.FILE and column.field is not None:
            widths[column.name] = max(widths.get(column.name, 0.0), _width(column.field.type))
    return min(1.0, sum(widths.values()) / total) if total else 0.0


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
    found: list[ReadColumn] = []
    for name, subpaths in below.items():
        field = schema.find(name)
        if field is not None:
            pruned = _prune(field, subpaths)
            origin = Origin.PARTITION if field.name.lower() in partitions else Origin.FILE
            found.append(ReadColumn(field.name, origin, output_field(pruned, variant_as), pruned))
        elif name in extra:
            found.append(ReadColumn(name, _EXTRA[name], extra[name], None))
        else:
            resolve_path((name,), schema)  # says that there is none, and which is near
    return tuple(found)


def _prune(field: StructField, paths: list[ColumnPath]) -> StructField:
    if any(not path for path in paths) or not isinstance(field.type, StructType):
        return field
    below: dict[str, list[ColumnPath]] = {}
    for path in paths:
        (child,) = resolve_path(path[:1], field.type)
        below.setdefault(child.name, []).append(path[1:])
    kept = tuple(_prune(child, below[child.name]) for child in field.type.fields if child.name in below)
    return dataclasses.replace(field, type=StructType(kept))


_WIDTHS = {"boolean": 0.2, "byte": 1.0, "short": 2.0, "integer": 4.0, "float": 4.0, "date": 3.0, "void": 0.0}


def _width(data_type: DataType) -> float:
    if isinstance(data_type, StructType):
        return sum(_width(item.type) for item in data_type.fields)
    if isinstance(data_type, ArrayType):
        return 4 * _width(data_type.element)
    if isinstance(data_type, MapType):
        return 4 * (_width(data_type.key) + _width(data_type.value))
    if isinstance(data_type, DecimalType):
        return 8.0
    assert isinstance(data_type, PrimitiveType)
    if data_type.base in ("string", "binary"):
        return 12.0
    return 40.0 if data_type.base == "variant" else _WIDTHS.get(data_type.base, 8.0)
