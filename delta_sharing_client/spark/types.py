"""The columns of a relation in Spark: names, types, and the conversion of batches to exactly their Arrow schema.

Spark compares the first batch of a Python data source with ``to_arrow_schema(schema, timezone="UTC")``, including
nullability, so every column is declared nullable (a reader cannot assume more about the files of a shared table) and
every batch is cast to the target schema.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema as spark_to_arrow

from delta_sharing_client.columns import resolve_columns
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
from delta_sharing_client.delta.schema import parse_schema, to_arrow_schema
from delta_sharing_client.delta.type_rows import TYPES
from delta_sharing_client.errors import DataError, SchemaChangeError, UnsupportedFeatureError, UsageError, check_memory
from delta_sharing_client.options import choice
from delta_sharing_client.plan.read_columns import (
    CHANGE_FIELDS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    output_columns,
)
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.spark.source_options import EXECUTOR_OPTIONS, ChangeColumns, SparkOptions

if TYPE_CHECKING:
    from sqlglot import exp

    from delta_sharing_client.predicates.tree import Expression

_EXTRA_TYPES = {
    pa.string(): spark.StringType(),
    pa.int64(): spark.LongType(),
    pa.timestamp("ms", tz="UTC"): spark.TimestampType(),
}
_PARQUET_ORDER = (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)
_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"
# PySpark 4.0 and 4.1 support no other time zone.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(spark_to_arrow).parameters else {}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a relation: ``schema`` for Spark, ``paths`` for the scan engine (``None`` for all), and the
    ``condition`` by which a query of Spark skips data."""

    schema: spark.StructType
    paths: tuple[ColumnPath, ...] | None
    condition: Expression | None = None


def relation_columns(schema_string: str, options: SparkOptions) -> Columns:
    """Return the columns of a table that ``options`` select.

    Raises ``DataError`` if the table has no columns, which Spark cannot read; ``UsageError`` if a column in the options
    ``columns`` or ``filter`` does not exist, or if a column of the table has the name of one that the change feed or
    row lineage adds; ``UnsupportedFeatureError`` if Spark does not support the type of a selected column.
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
    """Return the columns of a relation with the schema ``wanted``, which the user gave or which was found at load.

    Raises ``UsageError`` if ``wanted`` has a column that the table lacks or has with a different type, or that the
    option ``columns`` does not include.
    """
    table = parse_schema(schema_string)
    whole = _spark_schema(table, None, options)
    selected = None if options.read.columns is None else relation_columns(schema_string, options).schema
    paths: list[ColumnPath] = []
    for field in wanted.fields:
        paths += _paths(field, whole, ())
        if selected is not None:
            _check_selected(field, selected)
    if options.pushed is None:
        if not paths:
            raise UsageError("The given schema has no columns; name at least one column of the table.")
        return Columns(wanted, tuple(paths))
    arrow = pa.schema([*to_arrow_schema(table), *extra_fields(options)])
    return Columns(wanted, tuple(paths), options.pushed.filter(whole, arrow))


def check_unchanged(schema_string: str, options: SparkOptions, columns: spark.StructType, table: str) -> None:
    """Check that ``columns``, which were found at load, still fit the table.

    Raises ``SchemaChangeError`` if a column is missing or has a different type.
    """
    try:
        narrowed_columns(schema_string, options, columns)
    except UsageError as error:
        raise SchemaChangeError(
            f"The table has changed since the DataFrame was created: {error.message} Load the table again. If a "
            "statement CREATE TABLE defined it, create it again.",
            table=table,
        ) from None


def extra_fields(options: SparkOptions) -> tuple[pa.Field, ...]:
    """Return the columns that the read adds to the table's columns."""
    return CHANGE_FIELDS if options.read_change_feed else options.read.added_fields


def _spark_schema(table: StructType, paths: tuple[ColumnPath, ...] | None, options: SparkOptions) -> spark.StructType:
    found = output_columns(table, paths, (), choice(EXECUTOR_OPTIONS.variant_as), extra_fields(options))
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
        raise UsageError(
            f"The given schema has a column '{name}', which the table does not have; the table has {shown}."
        )
    path = (*above, found.name)
    if _nullable(wanted.dataType) == found.dataType:
        if not wanted.nullable:
            raise UsageError(
                f"Column '{name}' of the given schema is NOT NULL, but columns of a shared table may contain nulls; "
                "omit NOT NULL."
            )
        return [path]
    if isinstance(wanted.dataType, spark.StructType) and isinstance(found.dataType, spark.StructType):
        return [below for field in wanted.dataType.fields for below in _paths(field, found.dataType, path)]
    raise UsageError(
        f"Column '{name}' of the given schema has the type '{wanted.dataType.simpleString()}', but its type in the "
        f"table is '{found.dataType.simpleString()}'; read it with that type and cast it."
    )


def _check_selected(wanted: spark.StructField, selected: spark.StructType) -> None:
    try:
        _paths(wanted, selected, ())
    except UsageError:
        raise UsageError(
            f"The given schema has '{wanted.simpleString()}', but the option 'columns' selects "
            f"'{selected.simpleString()}'; use only one of the two."
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


# === Types ===


def to_spark_field(field: StructField, column: str) -> spark.StructField:
    """Return the Spark field of a column, which errors call ``column``.

    ``char`` and ``varchar`` are strings, because Spark has no Arrow type for them; a ``char`` column has its length in
    the metadata, by which Spark pads the values, as in its own tables. Raises ``UnsupportedFeatureError`` for a type
    that PySpark does not accept from Python (intervals), with its name.
    """
    lengths = _char_lengths(field)
    metadata = None if lengths is None else {_CHAR_METADATA: lengths}
    return spark.StructField(field.name, to_spark_type(field.type, column), nullable=True, metadata=metadata)


def to_spark_type(data_type: DataType, column: str) -> spark.DataType:
    """Return the Spark type of a column's type; errors as in ``to_spark_field``."""
    if isinstance(data_type, DecimalType):
        return spark.DecimalType(data_type.precision, data_type.scale)
    if isinstance(data_type, ArrayType):
        return spark.ArrayType(to_spark_type(data_type.element, column), containsNull=True)
    if isinstance(data_type, MapType):
        key, value = to_spark_type(data_type.key, column), to_spark_type(data_type.value, column)
        return spark.MapType(key, value, valueContainsNull=True)
    if isinstance(data_type, StructType):
        return spark.StructType([to_spark_field(field, f"{column}.{field.name}") for field in data_type])
    kind = getattr(spark, TYPES[data_type.base].spark or "", None)  # PySpark before 4 has no VariantType
    if kind is None:
        raise UnsupportedFeatureError(
            f"Column '{column}' has the type '{data_type.name}', which this version of PySpark does not accept from "
            "Python; leave it out with option 'columns'.",
            feature=data_type.name,
        )
    return cast("spark.DataType", kind())


def target_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema that every batch of a relation with ``schema`` must have."""
    bare = spark.StructType([spark.StructField(field.name, field.dataType, field.nullable) for field in schema.fields])
    return spark_to_arrow(bare, **_IN_UTC)


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Return ``batch`` with exactly the schema ``target``: the same columns, in the order of ``target``.

    Raises ``DataError`` if a column is missing or its values do not fit.
    """
    columns = []
    positions = {name.lower(): position for position, name in enumerate(batch.schema.names)}
    for field in target:
        position = positions.get(field.name.lower())
        if position is None:
            raise DataError(
                f"Expected the column '{field.name}' in a batch that has only {', '.join(batch.schema.names)}; load "
                "the table again."
            )
        try:
            columns.append(conform_array(batch.column(position), field.type))
        except pa.ArrowException as error:
            check_memory(error)
            raise DataError(f"Column '{field.name}' does not fit the type '{field.type}': {error}.") from None
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def conform_array(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return ``array`` with the type ``target``. The two types may differ in nullability, timestamp units and the order
    of a variant's two fields."""
    if array.type.equals(target, check_metadata=True):
        return array
    if pa.types.is_struct(target):
        return _rebuilt(array, target, conform_array, [field.type for field in target])
    if pa.types.is_list(target):
        return _rebuilt(array, target, conform_array, [target.value_type])
    if pa.types.is_map(target):
        return _rebuilt(array, target, conform_array, [target.key_type, target.item_type])
    return array.cast(target)


def has_chars(schema: spark.StructType) -> bool:
    """Return whether ``schema`` has a ``char`` at any level."""
    return _CHAR_METADATA in schema.json()


def pad_chars(batch: pa.RecordBatch, schema: spark.StructType) -> pa.RecordBatch:
    """Return ``batch``, which has the Spark schema ``schema``, with padded ``char`` values: Spark does not pad them in
    ``mapInArrow``."""
    columns = [_padded_field(array, field) for array, field in zip(batch.columns, schema.fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _padded_field(array: pa.Array, field: spark.StructField) -> pa.Array:
    noted = field.metadata.get(_CHAR_METADATA)
    if noted is not None:
        import sqlglot  # this parses types, and few tables have such columns

        return _padded(array, sqlglot.parse_one(noted, into=sqlglot.exp.DataType, dialect="spark"))
    if isinstance(field.dataType, spark.StructType):
        return _rebuilt(array, array.type, _padded_field, field.dataType.fields)
    return array


def _padded(array: pa.Array, kind: exp.DataType) -> pa.Array:
    """Return ``array`` with padding for the strings that are ``char(n)`` in the Spark type ``kind``."""
    if kind.is_type("char"):
        return pc.utf8_rpad(array, int(kind.expressions[0].name))
    if not pa.types.is_nested(array.type):
        return array
    is_struct = pa.types.is_struct(array.type)
    return _rebuilt(array, array.type, _padded, [part.args["kind"] if is_struct else part for part in kind.expressions])


def _char_lengths(field: StructField) -> str | None:
    """Return Spark's metadata for a column whose type contains ``char`` (``char(5)``, ``struct<c:char(2)>``), otherwise
    ``None``."""
    noted = field.metadata.get(_CHAR_METADATA)
    if isinstance(noted, str):
        return noted
    is_char = isinstance(field.type, PrimitiveType) and field.type.name.startswith("char(")
    return field.type.name if is_char else None  # type: ignore[union-attr]


def _rebuilt(
    array: pa.Array, kind: pa.DataType, change: Callable[[pa.Array, Any], pa.Array], parts: Sequence[Any]
) -> pa.Array:
    """Return the struct, list or map ``array`` as ``kind``; ``change`` is called with each child and its part."""
    if pa.types.is_struct(kind):
        names, built = [field.name.lower() for field in array.type], []
        for field, part in zip(kind, parts, strict=True):
            child = change(array.field(names.index(field.name.lower())), part)
            # The type forbids nulls in the two fields of a variant, even where the variant itself is null.
            built.append(child if field.nullable else pc.fill_null(child, b""))
        # field() ignores the offset of a slice but not its nulls, so the validity is passed as a mask.
        return pa.StructArray.from_arrays(built, fields=list(kind), mask=pc.is_null(array))
    children = [array.values] if pa.types.is_list(kind) else [array.keys, array.items]
    offsets, mask = array.offsets, None
    if array.null_count:
        # pyarrow accepts a mask only with offsets that start at the beginning of their buffer.
        offsets, mask = pa.array(offsets.to_numpy(zero_copy_only=False), pa.int32()), pc.is_null(array)
    build = pa.ListArray if pa.types.is_list(kind) else pa.MapArray
    return build.from_arrays(offsets, *map(change, children, parts), type=kind, mask=mask)
