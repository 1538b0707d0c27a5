"""The meaning of casts: of one value, as Spark SQL in ANSI mode does it, in UTC.

Each function returns the value in the new type, and raises ``ValueError`` or ``ArithmeticError`` if it has none there.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable

import pyarrow as pa

from delta_sharing_client.instants import MICROS_PER_SECOND, NANOS_PER_DAY, cast_date, cast_timestamp, civil_of
from delta_sharing_client.predicates.values import Day, Moment, Value, Zone, as_float

# Java drops different characters around numbers of different types.
_BLANKS = "".join(map(chr, (*range(33), 127)))
_JAVA_BLANKS = "".join(map(chr, range(33)))
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMAL = re.compile(_NUMBER.pattern)  # with the digits of every script
_JAVA_DOUBLE = re.compile(rf"({_NUMBER.pattern})[fFdD]?", re.ASCII)
_SPECIAL = {
    "nan": math.nan,
    **{sign + name: math.inf for sign in ("", "+") for name in ("inf", "infinity")},
    **{"-" + name: -math.inf for name in ("inf", "infinity")},
}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_DIGITS = decimal.Context(prec=1000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, rounding=decimal.ROUND_HALF_UP)
_MOST_SECONDS = ((1 << 63) - 1) // MICROS_PER_SECOND


def integer_of(bits: int) -> Callable[[Value], Value]:
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
    if isinstance(value, str):
        return _parsed(value, pa.float64())
    assert isinstance(value, (int, float, decimal.Decimal))
    return float(value)


def float_of(value: Value) -> float:
    return _parsed(value, pa.float32()) if isinstance(value, str) else as_float(double_of(value))


def _parsed(text: str, data_type: pa.DataType) -> float:
    text = text.strip(_JAVA_BLANKS)
    number = _JAVA_DOUBLE.fullmatch(text)
    if number is None:
        name = "nan" if text in ("+NaN", "-NaN") else text.lower()
        if name not in _SPECIAL:
            raise ValueError
        return _SPECIAL[name]
    # Python has no 32-bit floats, and by way of a double some would be rounded twice.
    return float(pa.scalar(number[1].removeprefix("+")).cast(data_type).as_py())


def decimal_of(value: Value, precision: Value, scale: Value) -> decimal.Decimal:
    """Halves are rounded away from zero."""
    if isinstance(value, str):
        value = value.strip(_JAVA_BLANKS)
        if not _DECIMAL.fullmatch(value):
            raise ValueError
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    assert isinstance(value, (str, int, decimal.Decimal))
    number = decimal.Decimal(value)
    # Far from the digits of the result, an exponent of any size says all.
    if number and number.adjusted() > precision:
        raise ValueError
    if number.adjusted() < -scale - 1:
        number = decimal.Decimal(0)
    rounded = number.quantize(decimal.Decimal(1).scaleb(-scale), context=_DIGITS)
    if rounded and rounded.adjusted() >= precision - scale:
        raise ValueError
    return rounded or rounded.copy_abs()


def boolean_of(value: Value) -> bool:
    if not isinstance(value, str):
        return value != 0
    text = value.strip(_BLANKS).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError
    return text in _TRUE


def string_of(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Day):
        year, month, day = (int(part) for part in civil_of(value.days))
        return datetime.date(year, month, day).isoformat()
    return str(value)


def date_of(value: Value) -> Day:
    if isinstance(value, str):
        days = cast_date(value)
        if days is None:
            raise ValueError
        return Day(days)
    assert isinstance(value, (Day, Moment))
    return Day(value.days if isinstance(value, Day) else value.nanoseconds // NANOS_PER_DAY)


def timestamp_of(zone: Zone) -> Callable[[Value], Moment]:
    """An integer is a number of seconds since 1970; those beyond the range of timestamps are its ends."""

    def convert(value: Value) -> Moment:
        if isinstance(value, str):
            found = cast_timestamp(value, ignore_zone=zone is Zone.LOCAL)
            if found is None:
                raise ValueError
            return Moment(found, zone)
        if isinstance(value, int):
            micros = value * MICROS_PER_SECOND
            if abs(value) > _MOST_SECONDS:
                micros = (1 << 63) - 1 if value > 0 else -(1 << 63)
            return Moment(micros * 1000, zone)
        assert isinstance(value, (Day, Moment))
        nanos = value.days * NANOS_PER_DAY if isinstance(value, Day) else value.nanoseconds // 1000 * 1000
        if not -(1 << 63) <= nanos // 1000 < 1 << 63:
            raise ValueError
        return Moment(nanos, zone)

    return convert
