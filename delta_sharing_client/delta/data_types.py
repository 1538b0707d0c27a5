"""The types of columns as values (Delta log protocol, "Schema Serialization Format"), and one row per type with
everything that the package needs to know about it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.arrow_forms import is_bytes, is_text
from delta_sharing_client.columns import ColumnPath as ColumnPath
from delta_sharing_client.delta import uuids, value_bounds, value_texts
from delta_sharing_client.lazy import lazy

PHYSICAL_NAME_KEY = "delta.columnMapping.physicalName"
FIELD_ID_KEY = "delta.columnMapping.id"
COLLATIONS_KEY = "__COLLATIONS"
TYPE_CHANGES_KEY = "delta.typeChanges"
INITIAL_DEFAULT_KEY = "iceberg.initialDefault"

COLLATED = re.compile(r"string\s+collate\s+(\S+)\Z", re.IGNORECASE)
_SIZED_TEXT = re.compile(r"(char|varchar)\(\s*(\d{1,10})\s*\)\Z")
_DEFAULT_CRS = "OGC:CRS84"
_CRS = r"(?P<crs>\{(?s:.*)\}|[^(),{}]+?)"  # a name, or a definition in PROJJSON
_GEOMETRY = re.compile(rf"geometry(?:\(\s*{_CRS}\s*\))?\Z", re.IGNORECASE)
_EDGES = "spherical|vincenty|thomas|andoyer|karney"  # the algorithms of Parquet, Iceberg and GeoArrow
_GEOGRAPHY = re.compile(
    rf"geography(?:\(\s*(?:(?P<alone>{_EDGES})|{_CRS}\s*(?:,\s*(?P<edges>{_EDGES}))?)\s*\))?\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters that we support; ``name`` is its text in the schema (``"long"``, ``"char(5)"``)."""

    name: str

    @property
    def base(self) -> str:
        """The kind of the type, a key of ``TYPES``: ``"string"`` for every text type (char, varchar, collated),
        ``"day_time_interval"`` and ``"year_month_interval"`` for intervals, ``name`` for most others."""
        return self.name if self.name in TYPES else _spelled(self.name) or "string"

    @property
    def coordinates(self) -> tuple[str, str | None] | None:
        """The coordinate reference system of ``geometry`` and ``geography``, a name or PROJJSON, and the edge algorithm
        of the latter; ``None`` for other types."""
        if (match := _GEOMETRY.match(self.name)) is not None:
            return match["crs"] or _DEFAULT_CRS, None
        if (match := _GEOGRAPHY.match(self.name)) is not None:
            return match["crs"] or _DEFAULT_CRS, (match["edges"] or match["alone"] or "spherical").lower()
        return None


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal with ``precision`` digits (1 to 38), ``scale`` of them after the decimal point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of ``element``."""

    element: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class MapType:
    """A map of ``key`` to ``value``; keys are never null."""

    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, or a field of a nested struct, with its column metadata as parsed JSON."""

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def physical_name(self) -> str:
        """The name in data files, partition values and statistics under column mapping; ``name`` if there is none."""
        physical = self.metadata.get(PHYSICAL_NAME_KEY)
        return physical if isinstance(physical, str) else self.name

    @property
    def field_id(self) -> int | None:
        """The column id of column mapping (``field_id`` in Parquet), or ``None``."""
        value = self.metadata.get(FIELD_ID_KEY)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def collation(self) -> str | None:
        """The collation of a string column other than byte order, as spelled in the schema, or ``None``.

        It affects comparisons, not values.
        """
        if isinstance(self.type, PrimitiveType) and (match := COLLATED.match(self.type.name)):
            return _unless_binary(match[1])
        collations = self.metadata.get(COLLATIONS_KEY)
        if isinstance(collations, Mapping):
            own = collations.get(self.name, collations.get(self.physical_name))
            return _unless_binary(own) if isinstance(own, str) else None
        return None

    @property
    def type_changes(self) -> list[tuple[str, str]]:
        """The types before and after each change of the column's type, or of a type below it, as spelled in the schema
        (Delta log protocol, "Type Change Metadata"); malformed ones are not included."""
        changes = self.metadata.get(TYPE_CHANGES_KEY)
        pairs = [
            (change.get("fromType"), change.get("toType"))
            for change in (changes if isinstance(changes, (list, tuple)) else ())
            if isinstance(change, Mapping)
        ]
        return [(old, new) for old, new in pairs if isinstance(old, str) and isinstance(new, str)]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A column of an unsupported type: its path, its type as spelled in the schema, the table feature of the type (or
    the type itself), and a sentence with the reason and what to do."""

    path: ColumnPath
    type: str
    feature: str
    reason: str


@dataclass(frozen=True)
class StructType:
    """A record: the table's columns, or a nested struct. Names are unique regardless of case.

    ``left_out`` has the columns of unsupported types; the others can be read.
    """

    fields: tuple[StructField, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def names(self) -> list[str]:
        """The field names, in order."""
        return [item.name for item in self.fields]

    def find(self, name: str) -> StructField | None:
        """Return the field called ``name``, regardless of case, or ``None``."""
        return self._by_name.get(name.lower())

    @lazy
    def _by_name(self) -> dict[str, StructField]:
        return {item.name.lower(): item for item in self.fields}

    def __reduce__(self) -> tuple[object, ...]:
        return (StructType, (self.fields, self.left_out))

    @property
    def all_left_out(self) -> tuple[LeftOut, ...]:
        """The columns left out here and at every level below."""
        return _left_out(self)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)


DataType = Union[PrimitiveType, DecimalType, ArrayType, MapType, StructType]


# === What files may hold of a type (Delta log protocol, "Type Widening") ===
#  Each function takes the target Arrow type and the file's Arrow type. It returns a conversion of arrays, or None if
# the conversion would not be exact.


Convert = Callable[[pa.Array], pa.Array]
Stored = Optional[Convert]


def _stored_as(*forms: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType, pa.DataType], Stored]:
    """Return a function that casts the types for which one of ``forms`` is true."""
    return lambda arrow, found: _cast(arrow) if any(form(found) for form in forms) else None


def _stored_text(arrow: pa.DataType, found: pa.DataType) -> Stored:
    # Fixed-length bytes are UUIDs and numbers; as text they would be different values.
    if not (is_text(found) or is_bytes(found)):
        return None
    # Invalid UTF-8 is detected later, together with its row.
    options = pc.CastOptions(arrow, allow_invalid_utf8=True)
    return lambda array: array.cast(options=options)


def _stored_floating(arrow: pa.DataType, found: pa.DataType) -> Stored:
    narrower = pa.types.is_floating(found) and found.bit_width < arrow.bit_width
    return _cast(arrow) if narrower or pa.types.is_integer(found) else None


def _stored_exact_decimal(arrow: pa.DataType, found: pa.DataType) -> Stored:
    if pa.types.is_decimal(found):
        return _cast(arrow)
    if not pa.types.is_integer(found):
        return None
    # Arrow first requires room for every value of the integer type; the second cast checks the actual values.
    digits = 20 + arrow.scale
    room = pa.decimal128(digits, arrow.scale) if digits <= 38 else pa.decimal256(digits, arrow.scale)
    return lambda array: array.cast(room).cast(arrow)


def _stored_timestamp(arrow: pa.DataType, found: pa.DataType) -> Stored:
    if not pa.types.is_timestamp(found):
        return None
    # INT96 and zone-less INT64 contain UTC, as in Spark; the number is the same with and without a zone.
    if found.unit == arrow.unit:
        return lambda array: array.view(arrow)
    return lambda array: array.cast(pa.timestamp(arrow.unit, tz=found.tz)).view(arrow)


def _stored_timestamp_ntz(arrow: pa.DataType, found: pa.DataType) -> Stored:
    return _cast(arrow) if pa.types.is_date(found) else _stored_timestamp(arrow, found)


def _stored_day_time_interval(arrow: pa.DataType, found: pa.DataType) -> Stored:
    if found == pa.int64():
        return lambda array: array.view(arrow)
    return _cast(arrow) if pa.types.is_duration(found) else None


def _stored_uuid(arrow: pa.DataType, found: pa.DataType) -> Stored:
    return uuids.to_text if found == uuids.STORED else None


def _cast(arrow: pa.DataType) -> Convert:
    return lambda array: array.cast(arrow)


_STORED_BINARY = _stored_as(is_text, is_bytes, pa.types.is_fixed_size_binary)


# === One row per type ===


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """Everything that the package knows about a type that is not nested.

    ``arrow`` also determines how filters compare values and how pandas shows them
    (``predicates.value_kinds.kind_of``, ``outputs.pandas``).

    Attributes
    ----------
    arrow:
        The Arrow type of returned values; for a decimal it depends on its digits (``to_arrow_type``).
    width:
        Approximate bytes per value in a file, to estimate a column's share of a file before it is read.
    text:
        Parses a partition value; ``None`` if columns of the type cannot partition a table.
    statistics:
        Converts a column's minimum and maximum in the log to bounds.
    footer:
        The same for a Parquet footer.
    stored:
        Converts values of other types in files to this type, exactly.
    spark:
        The class in ``pyspark.sql.types``, which an older PySpark may lack; ``None`` if Spark does not accept such
        values from Python.
    spelled:
        Whether a name in a schema means the type, in addition to its key in ``TYPES``.
    """

    arrow: pa.DataType
    width: float
    text: Callable[[str, Any], object] | None = None
    statistics: Callable[[StructField], value_bounds.Converters] = value_bounds.no_statistics
    footer: Callable[[Any, Any, pa.DataType], value_bounds.Footer] = value_bounds.no_footer
    stored: Callable[[pa.DataType, pa.DataType], Stored] = lambda arrow, found: None
    spark: str | None = None
    spelled: Callable[[str], bool] = lambda name: False


VARIANT_ARROW_TYPE = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
"""The unshredded physical form of a variant."""


def _integer(arrow: pa.DataType, spark: str) -> TypeRow:
    return TypeRow(
        arrow=arrow,
        width=arrow.bit_width / 8,
        text=functools.partial(value_texts.integer, bits=arrow.bit_width),
        statistics=value_bounds.integer_statistics,
        footer=value_bounds.integer_footer,
        stored=_stored_as(pa.types.is_integer),
        spark=spark,
    )


def _floating(arrow: pa.DataType, spark: str, statistics: Callable[[StructField], value_bounds.Converters]) -> TypeRow:
    return TypeRow(
        arrow=arrow,
        width=arrow.bit_width / 8,
        text=functools.partial(value_texts.floating, bits=arrow.bit_width),
        statistics=statistics,
        footer=value_bounds.floating_footer,
        stored=_stored_floating,
        spark=spark,
    )


def _timestamp(
    arrow: pa.DataType, spark: str | None, statistics: Callable[[StructField], value_bounds.Converters]
) -> TypeRow:
    unit = "microseconds" if arrow.unit == "us" else "nanoseconds"
    return TypeRow(
        arrow=arrow,
        width=8.0,
        text=functools.partial(value_texts.timestamp, zoned=arrow.tz is not None, unit=unit),
        statistics=statistics,
        footer=value_bounds.timestamp_footer,
        stored=_stored_timestamp,
        spark=spark,
    )


def _well_known_binary(spelled: re.Pattern[str]) -> TypeRow:
    # A bounding box is not a range of the bytes, so it cannot skip files.
    return TypeRow(
        arrow=pa.binary(),
        width=40.0,
        stored=_STORED_BINARY,
        spark="BinaryType",
        spelled=lambda name: bool(spelled.match(name)),
    )


def _is_interval(family: tuple[str, ...]) -> Callable[[str], bool]:
    def spelled(name: str) -> bool:
        words = name.split(" ")
        if len(words) not in (2, 4) or words[0] != "interval" or (len(words) == 4 and words[2] != "to"):
            return False
        units = words[1::2]
        if not all(unit in family for unit in units):
            return False
        return len(units) == 1 or family.index(units[0]) < family.index(units[1])

    return spelled


TYPES: dict[str, TypeRow] = {
    "string": TypeRow(
        arrow=pa.string(),
        width=12.0,
        text=value_texts.string,
        statistics=value_bounds.text_statistics,
        footer=value_bounds.text_footer,
        stored=_stored_text,
        spark="StringType",
        spelled=lambda name: bool(_SIZED_TEXT.match(name) or COLLATED.match(name)),
    ),
    "long": _integer(pa.int64(), "LongType"),
    "integer": _integer(pa.int32(), "IntegerType"),
    "short": _integer(pa.int16(), "ShortType"),
    "byte": _integer(pa.int8(), "ByteType"),
    "float": _floating(pa.float32(), "FloatType", value_bounds.float_statistics),
    "double": _floating(pa.float64(), "DoubleType", value_bounds.double_statistics),
    "decimal": TypeRow(
        arrow=pa.decimal128(38, 0),
        width=8.0,
        text=value_texts.exact_decimal,
        statistics=value_bounds.decimal_statistics,
        footer=value_bounds.decimal_footer,
        stored=_stored_exact_decimal,
        spark="DecimalType",
    ),
    "boolean": TypeRow(
        arrow=pa.bool_(),
        width=0.2,
        text=value_texts.boolean,
        statistics=value_bounds.boolean_statistics,
        footer=value_bounds.boolean_footer,
        spark="BooleanType",
    ),
    "binary": TypeRow(
        arrow=pa.binary(),
        width=12.0,
        text=value_texts.binary,
        footer=value_bounds.binary_footer,
        stored=_STORED_BINARY,
        spark="BinaryType",
    ),
    "date": TypeRow(
        arrow=pa.date32(),
        width=3.0,
        text=value_texts.date,
        statistics=value_bounds.date_statistics,
        footer=value_bounds.date_footer,
        stored=_stored_as(pa.types.is_date),
        spark="DateType",
    ),
    "timestamp": _timestamp(pa.timestamp("us", tz="UTC"), "TimestampType", value_bounds.timestamp_statistics),
    "timestamp_ntz": TypeRow(
        arrow=pa.timestamp("us"),
        width=8.0,
        text=functools.partial(value_texts.timestamp, zoned=False),
        statistics=value_bounds.timestamp_ntz_statistics,
        footer=value_bounds.timestamp_ntz_footer,
        stored=_stored_timestamp_ntz,
        spark="TimestampNTZType",
    ),
    "time": TypeRow(
        arrow=pa.time64("us"),
        width=8.0,
        text=value_texts.time_of_day,
        footer=value_bounds.time_footer,
        stored=_stored_as(pa.types.is_time),
        spark="TimeType",
    ),
    "uuid": TypeRow(
        arrow=pa.string(),
        width=16.0,
        text=value_texts.uuid_text,
        footer=value_bounds.uuid_footer,
        stored=_stored_uuid,
        spark="StringType",
    ),
    "timestamp_nanos": _timestamp(pa.timestamp("ns", tz="UTC"), None, value_bounds.nanos_statistics(zoned=True)),
    "timestamp_nanos_ntz": _timestamp(pa.timestamp("ns"), None, value_bounds.nanos_statistics(zoned=False)),
    "day_time_interval": TypeRow(
        arrow=pa.duration("us"),
        width=8.0,
        text=functools.partial(value_texts.interval, family=value_texts.DAY_TIME_UNITS, bits=64),
        stored=_stored_day_time_interval,
        spelled=_is_interval(value_texts.DAY_TIME_UNITS),
    ),
    "year_month_interval": TypeRow(
        arrow=pa.int32(),
        width=8.0,
        text=functools.partial(value_texts.interval, family=value_texts.YEAR_MONTH_UNITS, bits=32),
        stored=_stored_as(pa.types.is_integer),
        spelled=_is_interval(value_texts.YEAR_MONTH_UNITS),
    ),
    "void": TypeRow(arrow=pa.null(), width=0.0, text=value_texts.void, spark="NullType"),
    "variant": TypeRow(arrow=VARIANT_ARROW_TYPE, width=40.0, spark="VariantType"),
    "geometry": _well_known_binary(_GEOMETRY),
    "geography": _well_known_binary(_GEOGRAPHY),
}


def children(data_type: DataType) -> list[tuple[str, DataType]]:
    """Return the types one level below, each with its name in a path."""
    if isinstance(data_type, StructType):
        return [(item.name, item.type) for item in data_type.fields]
    if isinstance(data_type, ArrayType):
        return [("element", data_type.element)]
    return [("key", data_type.key), ("value", data_type.value)] if isinstance(data_type, MapType) else []


def row_of(data_type: DataType) -> TypeRow | None:
    """Return the row of a type, ``None`` for a nested one."""
    if isinstance(data_type, DecimalType):
        return TYPES["decimal"]
    return TYPES[data_type.base] if isinstance(data_type, PrimitiveType) else None


def is_void(data_type: DataType) -> bool:
    """Whether null is the only value of the type (Delta log protocol, "Void Type")."""
    return isinstance(data_type, PrimitiveType) and data_type.base == "void"


def is_primitive(name: str) -> bool:
    """Whether ``name`` is a type without parameters, or one whose text we keep unchanged."""
    simple = name in TYPES and not name.endswith("_interval") and name != "decimal"
    return simple or _spelled(name) is not None


@functools.lru_cache(maxsize=1024)
def _spelled(name: str) -> str | None:
    return next((base for base, row in TYPES.items() if row.spelled(name)), None)


def _left_out(data_type: DataType) -> tuple[LeftOut, ...]:
    own = data_type.left_out if isinstance(data_type, StructType) else ()
    return (*own, *(found for _, child in children(data_type) for found in _left_out(child)))


def _unless_binary(collation: str) -> str | None:
    return None if collation.rpartition(".")[2].upper() == "UTF8_BINARY" else collation


def type_text(data_type: DataType) -> str:
    """Return ``data_type`` on one line, such as ``array<struct<a: long>>``, with the names of the Delta log."""
    if isinstance(data_type, StructType):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.key)}, {type_text(data_type.value)}>"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    # A coordinate reference system may be defined on many lines.
    return re.sub(r"\{.*\}", "{...}", data_type.name, flags=re.DOTALL)
