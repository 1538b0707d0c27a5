"""Columns and literals of predicate hints: which of them can be compared, and the bounds of a column in a file."""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable

from delta_sharing_client import instants
from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.delta.statistics import StatisticsReader
from delta_sharing_client.errors import UsageError

from .hint_logic import UNKNOWN, NotUnderstood, Span, Value


class Kind(enum.Enum):
    """How values are compared; the value type of a hint must match the type of its column."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    DATE = "date"
    TIMESTAMP = "timestamp"


_KINDS = {
    "boolean": Kind.BOOL, "byte": Kind.INTEGER, "short": Kind.INTEGER, "integer": Kind.INTEGER,
    "long": Kind.INTEGER, "float": Kind.FLOAT, "double": Kind.DOUBLE, "string": Kind.STRING, "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
}  # fmt: skip
_VALUE_TYPES = {
    "bool": (Kind.BOOL,), "boolean": (Kind.BOOL,), "int": (Kind.INTEGER,), "long": (Kind.INTEGER,),
    "float": (Kind.FLOAT, Kind.DOUBLE), "double": (Kind.FLOAT, Kind.DOUBLE), "string": (Kind.STRING,),
    "date": (Kind.DATE,), "timestamp": (Kind.TIMESTAMP,),
}  # fmt: skip


def _kind_of(field: StructField) -> Kind | None:
    # Statistics are bounds in byte order, which is not the order of a collated column.
    if not isinstance(field.type, PrimitiveType) or field.collation is not None:
        return None
    return _KINDS.get(field.type.name)


def find_column(name: object, value_type: object, schema: StructType, *, any_type: bool = False) -> tuple[str, Kind]:
    """Return a column's name in the schema, and its kind. Raises `NotUnderstood` if it is missing or not of
    ``value_type``."""
    field = schema.find(name) if isinstance(name, str) else None
    if field is None:
        raise NotUnderstood(f"there is no column {name}")
    kind = _kind_of(field)
    if any_type:
        return field.name, kind or Kind.STRING
    if kind is None:
        raise NotUnderstood(f"columns with the type of {name} are not compared")
    if value_type is not None and kind not in _VALUE_TYPES.get(str(value_type), ()):
        raise NotUnderstood(f"column {name} is {kind.value}, not {value_type}")
    return field.name, kind


def literal_bounds(text: str, kind: Kind) -> tuple[Value, Value]:
    """Return the bounds of the value that a literal means; they differ if clients round the literal."""
    try:
        value = _literal(text, kind)
    except (ValueError, KeyError):
        raise NotUnderstood(f"not a {kind.value}: {text[:100]}") from None
    if kind is Kind.TIMESTAMP:
        # The JVM client truncates literals to milliseconds, so this literal may mean any nanosecond in its millisecond.
        assert isinstance(value, int)
        return value, value + 999_999
    if kind is Kind.FLOAT:
        # The shortest text of a 32-bit float is a different number when read as a double; either may be meant.
        assert isinstance(value, float)
        narrow = _to_float(value)
        return min(value, narrow), max(value, narrow)
    return value, value


def _literal(text: str, kind: Kind) -> Value:
    if kind is Kind.BOOL:
        return {"true": True, "false": False}[text.lower()]
    if kind is Kind.INTEGER:
        return int(text)
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        number = float(text)
        if math.isnan(number):
            raise ValueError
        return number
    if kind is Kind.DATE:
        return instants.parse_date(text)
    if kind is Kind.TIMESTAMP:
        found = instants.parse_timestamp(text)
        if not found.zoned:
            raise UsageError("A time without a zone is not compared, because its zone is not known.")
        return found.nanoseconds // 1000 * 1000
    return text


def _to_float(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


class SpanReader:
    """Returns the spans of a file's columns: exact for partition columns, from statistics for others."""

    def __init__(self, snapshot: Snapshot, with_stats: bool) -> None:
        self._snapshot = snapshot
        self._with_stats = with_stats
        self._partitions = {name.lower() for name in snapshot.metadata.partition_columns}
        self._names: list[str] = []
        self._reader = self._reading()

    def _reading(self) -> StatisticsReader:
        metadata = self._snapshot.metadata
        paths = [(name,) for name in self._names]
        return StatisticsReader(self._snapshot.schema, mapping_mode(metadata), metadata.partition_columns, paths)

    def of(self, add: AddFile) -> Callable[[str], Span]:
        """Return a function that returns a column's span in ``add`` by the column's name; the statistics of ``add`` are
        decoded here."""
        read = [self._reader.read(add)]

        def span(name: str) -> Span:
            if name not in self._names:
                # This decodes the statistics again, but only for the first file that is tested on this column, and
                # hints have few columns.
                self._names.append(name)
                self._reader = self._reading()
                read[0] = self._reader.read(add)
            if not self._with_stats and name.lower() not in self._partitions:
                return UNKNOWN
            bounds = read[0].bounds((name,))
            if bounds is None:
                return UNKNOWN
            nulls, rows = bounds.null_count, bounds.row_count
            all_null = nulls is not None and rows is not None and nulls >= rows > 0
            return Span(bounds.lower, bounds.upper, values=not all_null, nulls=nulls != 0)  # type: ignore[arg-type]

        return span
