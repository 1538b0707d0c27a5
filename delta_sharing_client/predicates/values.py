"""The values that a predicate compares, their order, and their casts.

There are six families: booleans (``false < true``), numbers, strings, binary, dates with timestamps, and times of day.
The order is that of Spark SQL: if one of two numbers is floating point, both are compared as doubles, otherwise
exactly; ``NaN`` equals itself and is greater than every other number; ``-0.0`` equals ``0.0``; strings and binary
compare by their (UTF-8) bytes; a date compares as its midnight in UTC.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard, Union

import numpy as np
import pyarrow as pa

from delta_sharing_client import instants
from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import (
    EPOCH_NTZ,
    MICROS_PER_SECOND,
    NANOS_PER_DAY,
    cast_date,
    cast_timestamp,
    civil_of,
    format_clock,
    format_date,
)


class Zone(enum.Enum):
    """The kind of a timestamp: a point in time or a local time."""

    UTC = "UTC"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Day:
    """A date: days since 1970-01-01 in the proleptic Gregorian calendar, of any year."""

    days: int

    def __str__(self) -> str:
        return format_date(self.days)


@dataclass(frozen=True, slots=True)
class Moment:
    """A timestamp: nanoseconds since 1970-01-01T00:00:00, of any year.

    ``zone`` is ``UTC`` for a point in time. ``LOCAL`` has no zone; compared with a ``timestamp`` column it is in UTC.
    """

    nanoseconds: int
    zone: Zone

    def __str__(self) -> str:
        days, rest = divmod(self.nanoseconds, NANOS_PER_DAY)
        return f"{format_date(days)} {format_clock(rest)}{'Z' if self.zone is Zone.UTC else ''}"


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day: nanoseconds since midnight."""

    nanoseconds: int

    def __str__(self) -> str:
        return format_clock(self.nanoseconds)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval to add to dates and timestamps: ``count`` units of ``MONTH``, ``DAY`` or ``MICROSECOND``.

    A date plus microseconds is a timestamp, as in Spark, so a day is not the same as 24 hours.
    """

    count: int
    unit: str

    def __post_init__(self) -> None:
        if abs(self.count) >= (1 << 63 if self.unit == "MICROSECOND" else 1 << 31):
            raise UsageError(f"An interval of {self.count} {self.unit} is too long.")

    def __neg__(self) -> Interval:
        return Interval(-self.count, self.unit)

    def __str__(self) -> str:
        if self.unit == "MICROSECOND":
            for name, size in (("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000)):
                if self.count % size == 0:
                    return f"INTERVAL '{self.count // size}' {name}"
        return f"INTERVAL '{self.count}' {self.unit}"


def current_moment() -> Moment:
    """Return the current time in whole microseconds, like the timestamps of Delta tables."""
    return Moment(time.time_ns() // 1000 * 1000, Zone.UTC)


Value = Union[None, bool, int, float, decimal.Decimal, str, bytes, Day, Moment, Clock, Interval]


def normalise(value: object) -> Value:
    """Convert a Python, numpy or pandas scalar to one of the types that predicates use.

    ``None``, ``NaT`` and ``NA`` become ``None``; dates become :class:`Day`; datetimes (aware: a point in time; naive:
    no zone), ``numpy.datetime64`` and ``pandas.Timestamp`` become :class:`Moment` without losing nanoseconds; times
    without a zone become :class:`Clock`, ``timedelta`` becomes :class:`Interval`. Raises ``UsageError`` for any
    other type, and for a string, decimal or integer that no column can contain.
    """
    if value is None or isinstance(value, (bool, float, Day, Moment, Clock, Interval)):
        # float(...) also unwraps numpy.float64, a float with a different repr.
        return float(value) if isinstance(value, float) else value
    if isinstance(value, int):
        return _checked_int(int(value))
    if isinstance(value, str):
        return _checked_text(str(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, decimal.Decimal):
        return _checked_decimal(value)
    if isinstance(value, datetime.date):
        return _from_date(value)
    if isinstance(value, datetime.time):
        return _from_time(value)
    if isinstance(value, datetime.timedelta):
        return _from_timedelta(value)
    if isinstance(value, np.generic):
        return _from_numpy(value)
    # pandas.NA, recognized without importing pandas
    if type(value).__name__ == "NAType":
        return None
    raise UsageError(
        f"A filter cannot compare with a value of type {type(value).__name__!r}; use None, bool, int, float, Decimal,"
        " str, bytes, date, datetime or time."
    )


def order(left: Value, right: Value) -> int | None:
    """Compare two values: negative, zero or positive, or ``None`` if one of them is null.

    A string compared with a date, a timestamp or a time of day is parsed as one. Raises ``UsageError`` for values of
    different families.
    """
    if left is None or right is None:
        return None
    if isinstance(right, str) and (parse := _PARSERS.get(type(left))) is not None:
        right = parse(right)
    elif isinstance(left, str) and (parse := _PARSERS.get(type(right))) is not None:
        left = parse(left)
    if isinstance(left, Clock) and isinstance(right, Clock):
        return _sign(left.nanoseconds, right.nanoseconds)
    if isinstance(left, (Day, Moment)) and isinstance(right, (Day, Moment)):
        return _sign(_nanoseconds(left), _nanoseconds(right))
    if is_number(left) and is_number(right):
        return _order_numbers(left, right)
    if isinstance(left, (bool, str, bytes)) and type(left) is type(right):
        return _sign(left, right)  # text by code points, which is the order of the UTF-8 bytes
    raise UsageError(f"A filter cannot compare the types {type_name(left)} and {type_name(right)}.")


def type_name(value: Value) -> str:
    """Return the name of the type of ``value`` for messages."""
    local = isinstance(value, Moment) and value.zone is Zone.LOCAL
    return _CLASSES[type(value)][0] + (" without time zone" if local else "")


def format_value(value: Value) -> str:
    """Return a value as a constant of Spark SQL."""
    return _CLASSES[type(value)][1](value)


def _format_double(value: float) -> str:
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    text = repr(value)
    return text if "e" in text else text + "E0"


def _format_decimal(value: decimal.Decimal) -> str:
    text = f"{value:f}"
    return text if "." in text else text + "."


def _format_text(text: str) -> str:
    if "\\" not in text:
        return "'" + text.replace("'", "''") + "'"
    # In other strings, a backslash begins an escape sequence, and in DuckDB it does not.
    for quote in "'\"":
        if quote not in text:
            return f"r{quote}{text}{quote}"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# For each class of values: the name of its type, and a function that writes a value as SQL.
_CLASSES: dict[type, tuple[str, Callable[[Any], str]]] = {
    type(None): ("null", lambda _: "NULL"),
    bool: ("boolean", lambda value: str(value).upper()),
    int: ("integer", str),
    float: ("double", _format_double),
    decimal.Decimal: ("decimal", _format_decimal),
    str: ("string", _format_text),
    bytes: ("binary", lambda value: f"X'{value.hex().upper()}'"),
    Day: ("date", lambda day: f"DATE '{day}'"),
    Moment: ("timestamp", lambda moment: f"TIMESTAMP '{moment}'"),
    Clock: ("time", lambda clock: f"TIME '{clock}'"),
    Interval: ("interval", str),
}


def is_number(value: object) -> TypeGuard[int | float | decimal.Decimal]:
    """Return whether ``value`` is a number; a boolean is not."""
    return isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool)


def as_double(value: int | float | decimal.Decimal) -> float:
    """Return the nearest double, infinite beyond the largest one."""
    return float(decimal.Decimal(value))  # float() raises for a large integer, but not for a large decimal


def as_float(value: float) -> float:
    """Return the nearest 32-bit float, infinite beyond the largest one."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


# === Dates and timestamps as text ===


def parse_date(text: str) -> Day:
    """Parse a date with :func:`delta_sharing_client.instants.parse_date`."""
    return Day(instants.parse_date(text))


def parse_moment(text: str) -> Moment:
    """Parse a timestamp with :func:`delta_sharing_client.instants.parse_timestamp`."""
    parsed = instants.parse_timestamp(text)
    return Moment(parsed.nanoseconds, Zone.UTC if parsed.zoned else Zone.LOCAL)


def parse_clock(text: str) -> Clock:
    """Parse a time of day with :func:`delta_sharing_client.instants.parse_clock`."""
    return Clock(instants.parse_clock(text))


_PARSERS: dict[type, Callable[[str], Value]] = {Day: parse_date, Moment: parse_moment, Clock: parse_clock}

# === Helpers of normalise and order ===

_MAX_DIGITS = 400


def _checked_int(value: int) -> int:
    if value.bit_length() > 1024:
        raise UsageError("A filter cannot compare with an integer of more than 1024 bits; no column contains one.")
    return value


def _checked_text(value: str) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"A filter cannot compare with {value!r}: it has a lone surrogate, which UTF-8 cannot represent."
            ) from None
    return value


def _checked_decimal(value: decimal.Decimal) -> decimal.Decimal:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise UsageError(f"A filter cannot compare with the decimal {value}; use float({str(value)!r}) instead.")
    if max(abs(value.adjusted()), abs(exponent)) > _MAX_DIGITS:
        raise UsageError(f"A filter cannot compare with a decimal of more than {_MAX_DIGITS} digits.")
    return decimal.Decimal(value)


def _from_date(value: datetime.date) -> Day | Moment | None:
    if not isinstance(value, datetime.datetime):
        return Day(instants.days_of_date(value))
    if value != value:  # NaT does not equal itself
        return None
    zone = Zone.LOCAL if value.utcoffset() is None else Zone.UTC
    # pandas.Timestamp is a datetime with additional nanoseconds.
    nanos = getattr(value, "nanosecond", 0)
    offset = value.utcoffset() or datetime.timedelta()
    wall = datetime.datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond
    )
    return Moment(((wall - EPOCH_NTZ) - offset) // datetime.timedelta(microseconds=1) * 1000 + nanos, zone)


def _from_time(value: datetime.time) -> Clock:
    if value.tzinfo is not None:
        raise UsageError(f"A time of day must have no time zone, found {value}. Leave out the zone.")
    seconds = value.hour * 3600 + value.minute * 60 + value.second
    return Clock(seconds * 1_000_000_000 + value.microsecond * 1000)


def _from_timedelta(value: datetime.timedelta) -> Interval:
    if getattr(value, "nanoseconds", 0):  # only a pandas.Timedelta has them
        raise UsageError(f"An interval must be a whole number of microseconds, found {value}.")
    return _interval_of(value // datetime.timedelta(microseconds=1))


def _interval_of(micros: int) -> Interval:
    whole = micros % instants.MICROS_PER_DAY == 0
    return Interval(micros // instants.MICROS_PER_DAY, "DAY") if whole else Interval(micros, "MICROSECOND")


_DATETIME64_NS = {
    "W": 7 * NANOS_PER_DAY, "D": NANOS_PER_DAY, "h": 3_600_000_000_000, "m": 60_000_000_000,
    "s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1,
}  # fmt: skip


def _from_numpy(value: np.generic) -> Value:
    if isinstance(value, np.timedelta64):
        # NaT does not equal itself.
        if (micros := value.astype("timedelta64[us]")) == value:
            return _interval_of(int(micros.astype(np.int64)))
    elif isinstance(value, np.datetime64):
        if np.isnat(value):
            return None
        unit, step = np.datetime_data(value.dtype)
        if unit in _DATETIME64_NS:
            nanos = int(value.astype(np.int64)) * step * _DATETIME64_NS[unit]
            return Day(nanos // NANOS_PER_DAY) if unit in ("W", "D") else Moment(nanos, Zone.LOCAL)
    elif isinstance(value, (np.bool_, np.integer, np.floating, np.str_, np.bytes_)):
        return normalise(value.item()) if not isinstance(value, np.longdouble) else float(value)
    raise UsageError(f"A filter cannot compare with a numpy value of type {value.dtype}.")


def _nanoseconds(value: Day | Moment) -> int:
    return value.days * NANOS_PER_DAY if isinstance(value, Day) else value.nanoseconds


def _order_numbers(left: int | float | decimal.Decimal, right: int | float | decimal.Decimal) -> int:
    if isinstance(left, float) or isinstance(right, float):
        a, b = as_double(left), as_double(right)
        if math.isnan(a) or math.isnan(b):
            return _sign(math.isnan(a), math.isnan(b))
        return _sign(a, b)
    return _sign(left, right)


def _sign(left: Any, right: Any) -> int:
    return (left > right) - (left < right)


# === Casts of one value, as Spark SQL in ANSI mode does them, in UTC ===
# Each raises ValueError or ArithmeticError if the value cannot be converted.


# Java strips different characters around numbers of different types.
_BLANKS = "".join(map(chr, (*range(33), 127)))
_JAVA_BLANKS = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL = re.compile(_NUMBER.pattern)  # accepts the digits of every script
_JAVA_DOUBLE = re.compile(rf"({_NUMBER.pattern})[fFdD]?", re.ASCII)
_SPECIAL = {
    "nan": math.nan,
    **{sign + name: math.inf for sign in ("", "+") for name in ("inf", "infinity")},
    **{"-" + name: -math.inf for name in ("inf", "infinity")},
}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DIGITS = decimal.Context(prec=1000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_HALF_UP)


def integer_of(bits: int) -> Callable[[Value], Value]:
    """Return the cast of text, a number or a boolean to an integer of ``bits`` bits; fractions are cut off."""

    def convert(value: Value) -> Value:
        if isinstance(value, str):
            value = value.strip(_BLANKS)
            if not _INTEGER.fullmatch(value):
                raise ValueError
        assert isinstance(value, (str, int, float, decimal.Decimal))
        number = int(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise ValueError
        return number

    return convert


def double_of(value: Value) -> float:
    """Return text or a number as the nearest double."""
    if isinstance(value, str):
        return _parsed(value, pa.float64())
    assert isinstance(value, (int, float, decimal.Decimal))
    return float(value)


def float_of(value: Value) -> float:
    """Return text or a number as the nearest 32-bit float."""
    return _parsed(value, pa.float32()) if isinstance(value, str) else as_float(double_of(value))


def _parsed(text: str, data_type: pa.DataType) -> float:
    text = text.strip(_JAVA_BLANKS)
    number = _JAVA_DOUBLE.fullmatch(text)
    if number is None:
        name = "nan" if text in ("+NaN", "-NaN") else text.lower()
        if name not in _SPECIAL:
            raise ValueError
        return _SPECIAL[name]
    # Python has no 32-bit floats, and converting through a double would round some values twice.
    return float(pa.scalar(number[1].removeprefix("+")).cast(data_type).as_py())


def decimal_of(value: Value, precision: Value, scale: Value) -> decimal.Decimal:
    """Return text or a number as a decimal; halves are rounded away from zero."""
    if isinstance(value, str):
        value = value.strip(_JAVA_BLANKS)
        if not _DECIMAL.fullmatch(value):
            raise ValueError
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    assert isinstance(value, (str, int, decimal.Decimal))
    number = decimal.Decimal(value)
    # A number far beyond the precision is refused before it is rounded, which could need too many digits.
    if number and number.adjusted() > precision:
        raise ValueError
    rounded = number.quantize(decimal.Decimal(1).scaleb(-scale), context=_DIGITS)
    if rounded.adjusted() >= precision - scale:
        raise ValueError
    return rounded or rounded.copy_abs()


def boolean_of(value: Value) -> bool:
    """Return the boolean of a string such as ``true`` or ``f``, or whether a number is not zero."""
    if not isinstance(value, str):
        return value != 0
    text = value.strip(_BLANKS).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError
    return text in _TRUE


def string_of(value: Value) -> str:
    """Return a boolean, an integer, or a date of the years 1 to 9999 as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Day):
        year, month, day = (int(part) for part in civil_of(value.days))
        return datetime.date(year, month, day).isoformat()
    return str(value)


def date_of(value: Value) -> Day:
    """Return text or a timestamp as a date."""
    if isinstance(value, str):
        days = cast_date(value)
        if days is None:
            raise ValueError
        return Day(days)
    assert isinstance(value, (Day, Moment))
    return Day(value.days if isinstance(value, Day) else value.nanoseconds // NANOS_PER_DAY)


def timestamp_of(zone: Zone) -> Callable[[Value], Moment]:
    """Return the cast of text, a date, a timestamp or seconds since 1970 to a timestamp.

    Seconds beyond the range of timestamps become the first or the last timestamp.
    """

    def convert(value: Value) -> Moment:
        if isinstance(value, str):
            nanoseconds = cast_timestamp(value, ignore_zone=zone is Zone.LOCAL)
            if nanoseconds is None:
                raise ValueError
            return Moment(nanoseconds, zone)
        if isinstance(value, int):
            micros = max(-(1 << 63), min(value * MICROS_PER_SECOND, (1 << 63) - 1))
            return Moment(micros * 1000, zone)
        assert isinstance(value, (Day, Moment))
        nanos = value.days * NANOS_PER_DAY if isinstance(value, Day) else value.nanoseconds // 1000 * 1000
        if not -(1 << 63) <= nanos // 1000 < 1 << 63:
            raise ValueError
        return Moment(nanos, zone)

    return convert
