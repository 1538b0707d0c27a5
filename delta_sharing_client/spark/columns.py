"""The columns of a relation: what the options and a user's schema select of the table, as Spark and as paths."""

from __future__ import annotations

import dataclasses

import pyarrow as pa
from pyspark.sql import types as spark

from delta_sharing_client.columns import resolve_columns
from delta_sharing_client.delta.data_types import ColumnPath, StructType
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.errors import DataError, SchemaChangeError, UsageError
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.scan.columns import (
    CHANGE_FIELDS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    output_columns,
)
from delta_sharing_client.spark.options import ChangeColumns, SparkOptions
from delta_sharing_client.spark.types import VARIANTS, to_spark_field

_EXTRA_TYPES = {
    pa.string(): spark.StringType(),
    pa.int64(): spark.LongType(),
    pa.timestamp("ms", tz="UTC"): spark.TimestampType(),
}
_PARQUET_ORDER = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a relation: ``schema`` as Spark sees them, ``paths`` as the scan engine is asked (None: all)."""

    schema: spark.StructType
    paths: tuple[ColumnPath, ...] | None


def relation_columns(schema_string: str, options: SparkOptions) -> Columns:
    """Return the columns that ``options`` select of a table.

    Raises
    ------
    DataError
        The table has no columns, which Spark cannot read.
    UsageError
        A column, also one of the option ``filter``, does not exist, or the table has one of a name that the change
        feed or row lineage adds.
    UnsupportedFeatureError
        A selected column has a type that Spark cannot take.
    """
    table = parse_schema(schema_string)
    if not len(table):
        raise DataError("The table has no columns: its provider has not set a schema.", table=str(options.table))
    extra = extra_fields(options)
    paths = resolve_columns(options.read.columns, table, [field.name for field in extra])
    if options.read.filter is not None:
        bind(options.read.filter, pa.schema([*to_arrow_schema(table), *extra]))
    return Columns(_spark_schema(table, paths, options), paths)


def narrowed_columns(schema_string: str, options: SparkOptions, wanted: spark.StructType) -> Columns:
    """Return the columns of a relation with the schema ``wanted``: a user's own, or the one found at load.

    Raises
    ------
    UsageError
        ``wanted`` has a column that the table does not have, or has of another type, or that the option ``columns``
        leaves out.
    """
    table = parse_schema(schema_string)
    whole = _spark_schema(table, None, options)
    selected = None if options.read.columns is None else relation_columns(schema_string, options).schema
    paths: list[ColumnPath] = []
    for field in wanted.fields:
        paths += _paths(field, whole, ())
        if selected is not None:
            _check_selected(field, selected)
    if not paths:
        raise UsageError("The schema given has no column; name at least one column of the table.")
    return Columns(wanted, tuple(paths))


def check_unchanged(schema_string: str, options: SparkOptions, columns: Columns, table: str) -> None:
    """Refuse to read ``columns``, found when the relation was loaded, from a table that has changed since.

    Raises
    ------
    SchemaChangeError
        A column is gone or has another type.
    """
    try:
        narrowed_columns(schema_string, options, columns.schema)
    except UsageError as error:
        raise SchemaChangeError(
            f"The table has changed since the DataFrame was made: {error.message} Load it again.", table=table
        ) from None


def extra_fields(options: SparkOptions) -> tuple[pa.Field, ...]:
    """Return the columns that the read adds to the table's."""
    if options.read_change_feed:
        return CHANGE_FIELDS
    return options.read.added_fields


def _spark_schema(table: StructType, paths: tuple[ColumnPath, ...] | None, options: SparkOptions) -> spark.StructType:
    found = output_columns(table, paths, (), VARIANTS, extra_fields(options))
    fields: dict[str, spark.StructField] = {}
    for column in found:
        if column.field is not None:
            fields[column.name] = to_spark_field(column.field, column.name)
        else:
            fields[column.name] = spark.StructField(column.name, _EXTRA_TYPES[column.arrow.type], nullable=True)
    names = list(fields)
    if options.read_change_feed and options.change_columns is ChangeColumns.PARQUET:
        if COMMIT_TIMESTAMP in fields:
            fields[COMMIT_TIMESTAMP] = spark.StructField(COMMIT_TIMESTAMP, spark.LongType(), nullable=True)
        if paths is None:
            names = [name for name in names if name not in _PARQUET_ORDER] + list(_PARQUET_ORDER)
    return spark.StructType([fields[name] for name in names])


def _paths(wanted: spark.StructField, having: spark.StructType, above: ColumnPath) -> list[ColumnPath]:
    name = ".".join((*above, wanted.name))
    found = next((field for field in having.fields if field.name.lower() == wanted.name.lower()), None)
    if found is None:
        shown = ", ".join(field.name for field in having.fields[:12])
        raise UsageError(f"The schema given has a column '{name}', which the table does not have; it has {shown}.")
    path = (*above, found.name)
    if _nullable(wanted.dataType) == found.dataType:
        if not wanted.nullable:
            raise UsageError(
                f"Column '{name}' of the schema given is NOT NULL, but columns of a shared table may hold nulls; leave "
                "NOT NULL out."
            )
        return [path]
    if isinstance(wanted.dataType, spark.StructType) and isinstance(found.dataType, spark.StructType):
        return [below for field in wanted.dataType.fields for below in _paths(field, found.dataType, path)]
    raise UsageError(
        f"Column '{name}' of the schema given has the type '{wanted.dataType.simpleString()}', but the table has "
        f"'{found.dataType.simpleString()}'; select it and cast it instead."
    )


def _check_selected(wanted: spark.StructField, selected: spark.StructType) -> None:
    try:
        _paths(wanted, selected, ())
    except UsageError:
        raise UsageError(
            f"The schema given has '{wanted.simpleString()}', and the option 'columns' selects "
            f"'{selected.simpleString()}'; use one of the two."
        ) from None


def _nullable(data_type: spark.DataType) -> spark.DataType:
    if isinstance(data_type, spark.StructType):
        fields = [spark.StructField(f.name, _nullable(f.dataType), True) for f in data_type.fields]
        return spark.StructType(fields)
    if isinstance(data_type, spark.ArrayType):
        return spark.ArrayType(_nullable(data_type.elementType), True)
    if isinstance(data_type, spark.MapType):
        return spark.MapType(_nullable(data_type.keyType), _nullable(data_type.valueType), True)
    return data_type
