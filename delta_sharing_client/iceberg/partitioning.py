"""Uses partition values as bounds of the rows of their files (Iceberg, "Partition Transforms", "Scan Planning").

A partition value bounds the values of its source column, so the conditions of a filter are tested with it as with
statistics; the values of ``bucket`` are compared with the hashes of a filter's constants. Fields with an unknown
transform exclude no file.
"""

from __future__ import annotations

import decimal
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

from delta_sharing_client import optional
from delta_sharing_client.columns import ColumnPath
from delta_sharing_client.delta import uuids
from delta_sharing_client.delta.data_types import DataType, DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.iceberg.metadata import PartitionSpec
from delta_sharing_client.iceberg.partition_types import Undecoded
from delta_sharing_client.iceberg.single_values import EXTRA, DecodePair, bounds_decoder
from delta_sharing_client.iceberg.transforms import Transform, field_id_of, source_id_of
from delta_sharing_client.instants import NANOS_PER_DAY, days_of
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    Expression,
    In,
    Literal,
    NullSafeEqual,
    Op,
    Or,
)
from delta_sharing_client.predicates.values import Clock, Day, Moment, Value

NANOS_PER_HOUR = NANOS_PER_DAY // 24
_TIMES = ("timestamp", "timestamp_ntz", "timestamp_nanos", "timestamp_nanos_ntz")
# Files of such a column may be older than its type, and have the buckets of dates.
_WIDENED_DATES = ("timestamp_ntz", "timestamp_nanos_ntz")
_INT = PrimitiveType("integer")
_WIDE = decimal.Context(prec=2000)
_MOST_UNITS = 10_000_000_000
"""Years, days and hours beyond this belong to no timestamp, so they are not used as bounds."""


class Source(NamedTuple):
    """A column outside lists and maps: its path in the schema that is read, and its field."""

    path: ColumnPath
    field: StructField


def sources(schema: StructType) -> dict[int, Source]:
    """Return the columns by field id that a partition spec and statistics can describe."""
    by_id: dict[int, Source] = {}
    waiting: list[tuple[ColumnPath, StructType]] = [((), schema)]
    while waiting:
        above, struct = waiting.pop()
        for item in struct.fields:
            path = (*above, item.name)
            if isinstance(item.type, StructType):
                waiting.append((path, item.type))
            elif item.field_id is not None:
                by_id[item.field_id] = Source(path, item)
    return by_id


class BoundField(NamedTuple):
    """A partition field of a column that is read; ``place`` is its position in the spec."""

    place: int
    field_id: int
    transform: Transform
    source: Source

    @property
    def is_identity(self) -> bool:
        return self.transform.name == "identity"

    @property
    def is_constant(self) -> bool:
        """Whether the rows of a file have its partition value in the column."""
        return self.is_identity and len(self.source.path) == 1 and _has_text(self.source.field.type)

    def bounds(self, value: Any, rows: int) -> ColumnBounds | None:
        """Return the bounds that a decoded partition value implies for the ``rows`` rows of a file, ``None`` if there
        are none."""
        if self.transform.name not in _KNOWN:
            return None
        if value is None:
            return ColumnBounds(None, None, rows, rows)
        # NaN and values of another type bound nothing.
        both = None if isinstance(value, Undecoded) or value != value else self._range(value, value)
        return None if both is None else self._column_bounds(both, 0, rows)

    def summary_bounds(self, summary: FieldSummary) -> ColumnBounds | None:
        """Return the bounds that a manifest's summary of values implies for its rows."""
        if self.transform.name not in _KNOWN:
            return None
        nulls = 0 if summary.contains_null is False else None
        if summary.lower is None or summary.upper is None:
            return None
        decode = self._result_decoder()
        lower, upper = (None, None) if decode is None else decode(summary.lower, summary.upper)
        if lower is None or upper is None:
            return None
        both = self._range(lower, upper)
        return None if both is None else self._column_bounds(both, nulls, None)

    def buckets(self, summary: FieldSummary) -> tuple[int, int] | None:
        """Return the first and last bucket in a manifest, ``None`` if unknown."""
        decode = bounds_decoder(_INT)
        lower, upper = (None, None) if decode is None else decode(summary.lower, summary.upper)
        return None if lower is None or upper is None else (lower, upper)

    def _column_bounds(self, both: tuple[Any, Any], nulls: int | None, rows: int | None) -> ColumnBounds:
        lower, upper = both
        if isinstance(lower, float):
            # NaN is not covered by the bounds of other values.
            return ColumnBounds(lower, None, nulls, rows, upper)
        return ColumnBounds(lower, upper, nulls, rows)

    def _result_decoder(self) -> DecodePair | None:
        is_own = self.transform.name in ("identity", "truncate")
        return bounds_decoder(self.source.field.type if is_own else _INT)

    def _range(self, low: Any, high: Any) -> tuple[Any, Any] | None:
        """Return the least and the greatest value that the source column can have if the partition values are between
        ``low`` and ``high``."""
        name, data_type = self.transform.name, self.source.field.type
        if name in ("identity", "truncate"):
            return (low, high) if name == "identity" else _truncated(low, high, self.transform.width, data_type)
        if name in _UNITS and type(low) is int and type(high) is int and isinstance(data_type, PrimitiveType):
            return _in_time(_UNITS[name], low, high, data_type.base)
        return None


class FieldSummary(NamedTuple):
    """The values of one partition field in a manifest; ``None`` is unknown."""

    contains_null: bool | None
    lower: bytes | None
    upper: bytes | None


_KNOWN = frozenset(("identity", "truncate", "year", "month", "day", "hour"))
"""The transforms whose values bound the source column; values of ``void`` and ``bucket`` do not."""


def bind_spec(spec: PartitionSpec, columns: Mapping[int, Source]) -> list[BoundField]:
    """Return the fields of ``spec`` whose source is one of ``columns``."""
    fields = []
    for place, field in enumerate(spec.fields):
        source = columns.get(source_id_of(field))
        if source is not None:
            fields.append(BoundField(place, field_id_of(field, place), Transform.parse(field.transform), source))
    return fields


def identity_sources(spec: PartitionSpec) -> frozenset[int]:
    """Return the field ids of the columns by whose unchanged values ``spec`` partitions."""
    return frozenset(
        source_id_of(field) for field in spec.fields if Transform.parse(field.transform).name == "identity"
    )


def intersection(one: ColumnBounds | None, other: ColumnBounds | None) -> ColumnBounds | None:
    """Return the bounds of a column that follow from two bounds for the same rows."""
    if one is None or other is None:
        return other if one is None else one
    nulls = {one.null_count, other.null_count} - {None}
    without_nan = [bound for bound in (one.upper_without_nan, other.upper_without_nan) if bound is not None]
    return ColumnBounds(
        lower=_tighter(max, one.lower, other.lower),
        upper=_tighter(min, one.upper, other.upper),
        null_count=nulls.pop() if len(nulls) == 1 else None,
        row_count=one.row_count if one.row_count is not None else other.row_count,
        upper_without_nan=min(without_nan, default=None),
    )


def _tighter(choose: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


# === Ranges ===


def _truncated(low: Any, high: Any, width: int, data_type: DataType) -> tuple[Any, Any] | None:
    if isinstance(high, (str, bytes)):
        if len(high) < width:
            return low, high
        above = _after_prefix(high)
        return None if above is None else (low, above)
    if isinstance(data_type, DecimalType):
        return low, high + decimal.Decimal(width - 1).scaleb(-data_type.scale)
    is_whole = isinstance(data_type, PrimitiveType) and data_type.base in ("integer", "long")
    return (low, high + width - 1) if is_whole else None


def _after_prefix(prefix: Union[str, bytes]) -> Union[str, bytes, None]:
    """Return a value greater than everything that starts with ``prefix``, ``None`` if there is none."""
    if isinstance(prefix, bytes):
        cut = prefix.rstrip(b"\xff")
        return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return None
    last = ord(text[-1])
    # Surrogates are not characters.
    return text[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)


def _first_day_of_year(years: int) -> int:
    days = days_of(1970 + years, 1, 1)
    assert days is not None, "every year has a first day"
    return days


def _first_day_of_month(months: int) -> int:
    days = days_of(1970 + months // 12, months % 12 + 1, 1)
    assert days is not None, "every month has a first day"
    return days


# Functions that return the start of a unit, in nanoseconds since 1970.
_UNITS: dict[str, Callable[[int], int]] = {
    "year": lambda years: _first_day_of_year(years) * NANOS_PER_DAY,
    "month": lambda months: _first_day_of_month(months) * NANOS_PER_DAY,
    "day": lambda days: days * NANOS_PER_DAY,
    "hour": lambda hours: hours * NANOS_PER_HOUR,
}


def _in_time(start: Callable[[int], int], low: int, high: int, base: str) -> tuple[int, int] | None:
    if abs(low) > _MOST_UNITS or abs(high) > _MOST_UNITS:
        return None
    # Writers before Iceberg 0.12 rounded times before 1970 up, so such values may be one too high.
    first, after = start(low - 1 if low <= 0 else low), start(high + 1)
    if base in _TIMES:
        return first, after - 1
    return (first // NANOS_PER_DAY, after // NANOS_PER_DAY - 1) if base == "date" else None


# === Buckets ===


def bucket_of(value: Value, data_type: DataType, count: int) -> int | None:
    """Return the bucket of a constant in a column of ``data_type``; ``None`` if it is not exactly of that type."""
    exact = _as_stored(value, data_type)
    if exact is None:
        return None
    kinds = optional.load("pyiceberg.types", EXTRA)
    if isinstance(data_type, DecimalType):
        kind = kinds.DecimalType(data_type.precision, data_type.scale)
    else:
        # Numbers of all widths, dates and times have the hashes of 64-bit integers, UUIDs those of their bytes.
        name = "StringType" if isinstance(exact, str) else "BinaryType" if isinstance(exact, bytes) else "LongType"
        kind = getattr(kinds, name)()
    transform = optional.load("pyiceberg.transforms", EXTRA).BucketTransform(count)
    return int(transform.transform(kind)(exact))


def _buckets_of(value: Value, field: BoundField) -> frozenset[int] | None:
    """Return the buckets that may have a row with this value, ``None`` if it has none."""
    data_type, count = field.source.field.type, field.transform.width
    own = bucket_of(value, data_type, count)
    if own is None:
        return None
    if isinstance(value, Moment) and getattr(data_type, "base", "") in _WIDENED_DATES:
        days, rest = divmod(value.nanoseconds, NANOS_PER_DAY)
        as_date = None if rest else bucket_of(Day(days), PrimitiveType("date"), count)
        return frozenset((own,)) if as_date is None else frozenset((own, as_date))
    return frozenset((own,))


def _as_stored(value: Value, data_type: DataType) -> Any:
    """Return a constant in the form whose hash decides the bucket, ``None`` if the column has no such value."""
    if isinstance(data_type, DecimalType):
        if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
            return None
        # The hash is computed from the unscaled value, an integer.
        unscaled = decimal.Decimal(value).scaleb(data_type.scale, _WIDE)
        whole = unscaled.to_integral_value()
        return whole.scaleb(-data_type.scale, _WIDE) if whole == unscaled else None
    base = data_type.base if isinstance(data_type, PrimitiveType) else ""
    number: Any = None
    if base == "uuid":
        # A UUID in a different spelling equals no value.
        return uuid.UUID(value).bytes if isinstance(value, str) and uuids.canonical(value) == value else None
    if base in ("integer", "long") and type(value) is int:
        number = value
    elif base == "date" and isinstance(value, Day):
        number = value.days
    elif base == "time" and isinstance(value, Clock):
        number = value.nanoseconds // 1000
    elif base in _TIMES and isinstance(value, Moment):
        # Nanoseconds have the hash of their microsecond.
        number = value.nanoseconds // 1000
    elif (base == "string" and isinstance(value, str)) or (base == "binary" and isinstance(value, bytes)):
        return value
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def equal_values(predicate: Expression, path: ColumnPath) -> frozenset[Value] | None:
    """Return a set of values, one of which a column must have for ``predicate`` to be true; ``None`` if there is no
    such set."""
    match predicate:
        case And(children=children):
            sets = [values for values in (equal_values(child, path) for child in children) if values is not None]
            return frozenset.intersection(*sets) if sets else None
        case Or(children=children):
            each = [equal_values(child, path) for child in children]
            listed = [values for values in each if values is not None]
            return frozenset().union(*listed) if len(listed) == len(each) else None
        case (
            Comparison(op=Op.EQ, left=Column(path=found_path), right=Literal(value=value))
            | NullSafeEqual(left=Column(path=found_path), right=Literal(value=value))
        ) if found_path == path and value is not None:
            return frozenset((value,))
        case In(child=Column(path=found_path), values=values) if found_path == path:
            return frozenset(item.value for item in values if item.value is not None)
    return None


def possible_buckets(predicate: Expression, fields: Iterable[BoundField]) -> dict[int, frozenset[int]]:
    """Return the buckets that may have a row for which ``predicate`` is true, by partition field id. Fields whose
    buckets all may have one are left out."""
    buckets: dict[int, frozenset[int]] = {}
    for field in fields:
        if field.transform.name != "bucket":
            continue
        values = equal_values(predicate, field.source.path)
        if values is None:
            continue
        each = [_buckets_of(value, field) for value in values]
        known = [numbers for numbers in each if numbers is not None]
        if len(known) == len(each):
            buckets[field.field_id] = frozenset().union(*known)
    return buckets


def identity_columns(specs: Iterable[Sequence[BoundField]]) -> list[StructField]:
    """Return the columns by whose unchanged values a spec partitions, without those whose values a log cannot represent
    as text."""
    columns: dict[str, StructField] = {}
    for fields in specs:
        for field in fields:
            if field.is_constant:
                columns[field.source.field.name] = field.source.field
    return list(columns.values())


def _has_text(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or (isinstance(data_type, PrimitiveType) and data_type.base in _WITH_TEXT)


_WITH_TEXT = ("boolean", "integer", "long", "float", "double", "date", "string", "binary", "time", "uuid", *_TIMES)
