"""A table of the kinds of types that predicates compare, and conversions between values and Arrow arrays."""

from __future__ import annotations

import decimal
import enum
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa

from delta_sharing_client.arrow_forms import is_bytes, is_text
from delta_sharing_client.instants import NANOS_PER_DAY
from delta_sharing_client.predicates.values import (
    Clock,
    Day,
    Moment,
    Value,
    Zone,
    as_double,
    as_float,
    normalise,
    parse_clock,
    parse_date,
    parse_moment,
)


class Kind(enum.Enum):
    """The kind of a column's type, which decides which values it can be compared with."""

    VOID = "void"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating point"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp without time zone"
    TIME = "time"
    OTHER = "other"


NUMBERS = frozenset((Kind.INTEGER, Kind.FLOATING, Kind.DECIMAL))
TIMES = frozenset((Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ))
DATES = TIMES | {Kind.DATE}


@dataclass(frozen=True)
class Grid:
    """Numbers the values of a type, in their order, with consecutive integers from ``low`` to ``high``.

    ``value(index)`` is the value at ``index``; ``exact(value)`` converts a constant to the type, if that is exact.
    """

    low: int
    high: int
    value: Callable[[int], Value]
    exact: Callable[[Value], Value]


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """The properties of the types of one kind."""

    matches: Callable[[pa.DataType], bool]
    admits: Mapping[type, Callable[[Any], Value]] = field(default_factory=dict)
    """The classes of constants that such a column can be compared with, each with a conversion."""
    own: tuple[type, ...] = ()
    """The classes that are compared without being rounded or converted, here and in other libraries."""
    zone: Zone | None = None
    """The zone of timestamps of this kind."""
    widens: Mapping[type, Callable[[Any], Value]] = field(default_factory=dict)
    """The classes of constants that a call converts if it computes in this kind, each with the conversion."""
    advice: str = ""
    """How to write such a constant; for numbers, it is shown only if the constant is a string."""
    grid: Callable[[Any], Grid | None] = lambda data_type: None
    """The grid of a type, if constants may lie between its values."""
    value: Callable[[Any], Value] = normalise
    """Converts the form that statistics have (days, nanoseconds, or the value itself) to a value."""


def kind_of(data_type: pa.DataType) -> Kind:
    """Return the :class:`Kind` of an Arrow type, or of the values for a dictionary."""
    data_type = type_of_values(data_type)
    return next(kind for kind, row in KINDS.items() if row.matches(data_type))


def type_of_values(data_type: Any) -> Any:
    """Return an Arrow type, or the type of the values for a dictionary."""
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def describe(data_type: pa.DataType) -> str:
    """Return the name of a type for messages: Delta's name if it has one."""
    data_type = type_of_values(data_type)
    kind = kind_of(data_type)
    if kind is Kind.DECIMAL:
        return f"decimal({data_type.precision}, {data_type.scale})"
    if kind is not Kind.OTHER:
        return str(_NAMES.get(data_type, kind.value))
    nested = ((pa.types.is_struct, "struct"), (pa.types.is_map, "map"), (pa.types.is_nested, "array"))
    return next((name for matches, name in nested if matches(data_type)), _NAMES.get(data_type, str(data_type)))


_NAMES = {
    pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.month_day_nano_interval(): "interval",
}  # fmt: skip


# === Grids ===


def _integer_grid(data_type: Any) -> Grid:
    low = -(1 << (data_type.bit_width - 1)) if pa.types.is_signed_integer(data_type) else 0
    high = low + (1 << data_type.bit_width) - 1
    return Grid(low, high, _same, lambda value: value if isinstance(value, int) and low <= value <= high else None)


def _decimal_grid(data_type: Any) -> Grid:
    high = 10**data_type.precision - 1
    scale: int = data_type.scale

    def at(index: int) -> Value:
        return decimal.Decimal(index).scaleb(-scale, _WIDE)

    def exact(value: Value) -> Value:
        if not isinstance(value, (int, decimal.Decimal)):
            return None
        unscaled = decimal.Decimal(value).scaleb(scale, _WIDE)
        index = int(unscaled)
        return at(index) if index == unscaled and -high <= index <= high else None

    return Grid(-high, high, at, exact)


# Enough for any scaled constant that values.normalise accepts.
_WIDE = decimal.Context(prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _float_at(index: int) -> float:
    # The bit patterns of non-negative floats ascend with their values; negative floats mirror them.
    number = struct.unpack("<f", struct.pack("<I", abs(index)))[0]
    return math.copysign(number, index)


def _exact_float(value: Value) -> Value:
    number = value if isinstance(value, float) else math.nan
    return number if math.isnan(number) or as_float(number) == number else None


def _float_grid(data_type: Any) -> Grid | None:
    return Grid(-0x7F800000, 0x7F800000, _float_at, _exact_float) if pa.types.is_float32(data_type) else None


def _exact_day(value: Value) -> Value:
    return value if isinstance(value, Day) and _DATE_GRID.low <= value.days <= _DATE_GRID.high else None


_DATE_GRID = Grid(-(1 << 31), (1 << 31) - 1, Day, _exact_day)


def _timestamp_grid(data_type: Any) -> Grid:
    """Return the grid of 64-bit timestamps, which are a nanosecond or a microsecond apart."""
    zone, step = Zone.UTC if data_type.tz else Zone.LOCAL, 1 if data_type.unit == "ns" else 1000
    low, high = -(1 << 63), (1 << 63) - 1

    def exact(value: Value) -> Value:
        nanos = value.days * NANOS_PER_DAY if isinstance(value, Day) else getattr(value, "nanoseconds", 1)
        index, rest = divmod(nanos, step)
        return Moment(nanos, zone) if rest == 0 and low <= index <= high else None

    return Grid(low, high, lambda index: Moment(index * step, zone), exact)


def _clock_grid(data_type: Any) -> Grid:
    step = NANOS[data_type.unit]

    def exact(value: Value) -> Value:
        return value if isinstance(value, Clock) and value.nanoseconds % step == 0 else None

    return Grid(0, NANOS_PER_DAY // step - 1, lambda index: Clock(index * step), exact)


# === The table ===

_NUMERIC = (int, float, decimal.Decimal)


def _numbers(matches: Callable[[pa.DataType], bool], grid: Callable[[Any], Grid | None], *own: type) -> KindRow:
    as_own = as_double if float in own else _same
    return KindRow(
        matches=matches, admits=dict.fromkeys(_NUMERIC, as_own), own=own, grid=grid,
        widens=dict.fromkeys(_NUMERIC, as_own) | ({int: decimal.Decimal} if decimal.Decimal in own else {}),
        advice=" Write the number without quotes.",
    )  # fmt: skip


def _timestamps(zone: Zone, moments: Mapping[type, Callable[[Any], Value]]) -> KindRow:
    return KindRow(
        matches=lambda t: pa.types.is_timestamp(t) and bool(t.tz) is (zone is Zone.UTC),
        admits={str: parse_moment, Day: _same, Moment: _same}, own=(Moment,), zone=zone,
        widens={Day: lambda day: Moment(day.days * NANOS_PER_DAY, zone), **moments}, grid=_timestamp_grid,
        advice=" Write a timestamp in single quotes, as in '2024-01-31 08:00:00'.",
        value=partial(Moment, zone=zone),
    )  # fmt: skip


KINDS: Final[dict[Kind, KindRow]] = {
    Kind.VOID: KindRow(matches=pa.types.is_null),
    Kind.BOOLEAN: KindRow(
        matches=pa.types.is_boolean, admits={bool: _same}, own=(bool,), advice=" Write TRUE or FALSE."
    ),
    Kind.INTEGER: _numbers(pa.types.is_integer, _integer_grid, int),
    Kind.FLOATING: _numbers(lambda t: pa.types.is_float32(t) or pa.types.is_float64(t), _float_grid, int, float),
    Kind.DECIMAL: _numbers(pa.types.is_decimal, _decimal_grid, int, decimal.Decimal),
    Kind.STRING: KindRow(matches=is_text, admits={str: _same}, own=(str,), advice=" Write it in quotes."),
    Kind.BINARY: KindRow(matches=is_bytes, admits={bytes: _same}, own=(bytes,), advice=" Write bytes or X'...'."),
    Kind.DATE: KindRow(
        matches=pa.types.is_date32, admits={str: parse_date, Day: _same, Moment: _same}, own=(Day,),
        grid=lambda _: _DATE_GRID, value=Day, advice=" Write a date in single quotes, as in '2024-01-31'.",
    ),
    Kind.TIMESTAMP: _timestamps(Zone.UTC, {Moment: lambda moment: Moment(moment.nanoseconds, Zone.UTC)}),
    Kind.TIMESTAMP_NTZ: _timestamps(Zone.LOCAL, {}),
    Kind.TIME: KindRow(
        matches=pa.types.is_time, admits={str: parse_clock, Clock: _same}, own=(Clock,), grid=_clock_grid,
        value=Clock, advice=" Write a time of day in single quotes, as in '08:00:00'.",
    ),
    Kind.OTHER: KindRow(matches=lambda t: True),
}  # fmt: skip
"""The kind of a type is that of the first row that matches it."""


# === Arrow arrays ===

NANOS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}
"""The number of nanoseconds in each unit of timestamps and times of day."""


def from_arrow(array: Any) -> list[Value]:
    """Return the values of an array whose type filters can compare."""
    kind = kind_of(array.type)
    if kind not in DATES | {Kind.TIME}:
        return array.to_pylist()
    # Converted through integers: Python has no dates and times beyond the years 1 to 9999, and no nanoseconds.
    size = 1 if kind is Kind.DATE else NANOS[array.type.unit]
    integers = pa.int32() if array.type.bit_width == 32 else pa.int64()
    value = KINDS[kind].value
    return [None if count is None else value(count * size) for count in array.cast(integers).to_pylist()]


def to_arrow(values: Iterable[Value], data_type: pa.DataType) -> Any:
    """Return an array of ``values`` of the type ``data_type``; timestamps are in microseconds or nanoseconds."""
    comparables = map(comparable, values)
    if pa.types.is_date(data_type):
        return pa.array(comparables, pa.int32()).cast(data_type)
    if pa.types.is_timestamp(data_type):
        unit = "ns" if data_type.unit == "ns" else "us"
        counts = [None if nanos is None else nanos // NANOS[unit] for nanos in comparables]
        return pa.array(counts, pa.timestamp(unit, data_type.tz))
    if pa.types.is_time(data_type):
        return pa.array([None if nanos is None else nanos // NANOS[data_type.unit] for nanos in comparables], data_type)
    return pa.array(comparables, data_type)


def comparable(value: Value) -> Any:
    """Return a value in the form of statistics: a date as days, a timestamp or time of day as nanoseconds."""
    if isinstance(value, Day):
        return value.days
    return value.nanoseconds if isinstance(value, (Moment, Clock)) else value
