"""Operators and functions of a predicate: their types and their meaning, which are Spark SQL's in ANSI mode.

``+ - *`` of integers have the wider type and fail where that overflows; those of decimals are exact, and refused where
38 digits might not do. A floating point number makes the result a double, two of 32 bits one of 32 bits. ``/`` gives a
double and fails for zero; of decimals it is refused, because it rounds. ``lower`` and ``upper`` map case as Unicode has
it, ``length`` counts characters (bytes of binary), ``year``, ``month`` and ``day`` are those of the date in UTC. Any of
these is null for a null; ``coalesce`` is its first argument that is not.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.instants import NANOS_PER_DAY, civil_of
from delta_sharing_client.predicates.values import NUMBERS, Day, Kind, Moment, Value, Zone, as_double, describe, kind_of

OPERATORS = ("+", "-", "*", "/")
FUNCTIONS = ("lower", "upper", "length", "year", "month", "day", "coalesce")

_MOST_DIGITS = 38
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT = decimal.Context(prec=200, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_DATE_PARTS = ("year", "month", "day")
_DATES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)


def format_call(name: str, arguments: Sequence[object]) -> str:
    """Return a call as SQL."""
    if name not in OPERATORS:
        return f"{name}({', '.join(map(str, arguments))})"
    return f"(- {arguments[0]})" if len(arguments) == 1 else f"({f' {name} '.join(map(str, arguments))})"


def constant_type(value: Value) -> pa.DataType:
    """Return the type that a constant has where it is computed with: the smallest of its kind, at least an integer."""
    match value:
        case bool():
            return pa.bool_()
        case int() if -(1 << 31) <= value < 1 << 31:
            return pa.int32()
        case int() if -(1 << 63) <= value < 1 << 63:
            return pa.int64()
        case int() | decimal.Decimal():
            return _decimal(*_digits(value), repr(value))
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case bytes():
            return pa.binary()
        case Day():
            return pa.date32()
        case Moment(zone=zone):
            return pa.timestamp("us", "UTC" if zone is Zone.UTC else None)
    return pa.null()


def result_type(name: str, arguments: Sequence[pa.DataType | Value], shown: str) -> pa.DataType:
    """Return the type of a call.

    Parameters
    ----------
    name:
        One of ``OPERATORS`` and ``FUNCTIONS``.
    arguments:
        The type of each argument that is computed, the value of each that is constant. None is null.
    shown:
        The call as SQL, for errors.

    Raises
    ------
    UsageError
        There is no such operator for these types, or its result is not exact.
    """
    types = [item if isinstance(item, pa.DataType) else constant_type(item) for item in arguments]
    kinds = {kind_of(item) for item in types}
    expected = _EXPECTED.get(name)
    if expected is not None and not kinds <= expected[1]:
        found = " and ".join(describe(item) for item in types)
        raise UsageError(f"{expected[0]} was expected in '{shown}', found {found}.")
    if name in ("lower", "upper"):
        return pa.string()
    if name in ("length", *_DATE_PARTS):
        return pa.int32()
    if name == "coalesce":
        return _common_type(types, kinds, arguments, shown)
    if name == "/":
        if Kind.DECIMAL in kinds and Kind.FLOATING not in kinds:
            raise UsageError(
                f"'{shown}' divides decimals, which rounds. Multiply the other side, or write a double (2E0)."
            )
        return pa.float64()
    if Kind.DECIMAL in kinds and Kind.FLOATING not in kinds:
        if len(arguments) == 1:
            return types[0]
        if name == "*":
            digits = [_digits_of(item) for item in arguments]
            return _decimal(sum(own for own, _ in digits) + 1, sum(own for _, own in digits), shown)
    return _common_number(types, kinds, arguments, shown, more=1)


_NUMERIC = ("A number", NUMBERS)
_EXPECTED = {
    **dict.fromkeys(OPERATORS, _NUMERIC),
    "lower": ("A string", frozenset((Kind.STRING,))),
    "upper": ("A string", frozenset((Kind.STRING,))),
    "length": ("A string or binary", frozenset((Kind.STRING, Kind.BINARY))),
    **dict.fromkeys(_DATE_PARTS, ("A date or timestamp", frozenset(_DATES))),
}


def _common_type(
    types: Sequence[pa.DataType], kinds: set[Kind], arguments: Sequence[pa.DataType | Value], shown: str
) -> pa.DataType:
    computed = [item for item in arguments if isinstance(item, pa.DataType)]
    if kinds <= NUMBERS:
        return _common_number(types, kinds, arguments, shown)
    wanted = {kind_of(item) for item in computed} or kinds
    # A constant beside dates or timestamps may be their text, or a date beside timestamps.
    if len(wanted) == 1 and Kind.OTHER not in wanted:
        (kind,) = wanted
        readable = {kind, Kind.STRING, Kind.DATE, Kind.TIMESTAMP_NTZ} if kind in _DATES else {kind}
        if kinds <= readable - ({Kind.TIMESTAMP_NTZ} if kind is Kind.DATE else set()):
            return next(item for item in types if kind_of(item) is kind)
    raise UsageError(f"'{shown}' has arguments of different types: {', '.join(describe(item) for item in types)}.")


def _decimal(precision: int, scale: int, shown: str) -> pa.DataType:
    if precision > _MOST_DIGITS:
        raise UsageError(
            f"'{shown}' may need {precision} digits, and a decimal has {_MOST_DIGITS}. Cast the constant to DOUBLE if a"
            " rounded result will do."
        )
    return pa.decimal128(precision, scale)


def decimal_type(given: pa.DataType | Value) -> pa.DataType:
    """Return the decimal type that a number, or a type of numbers, has beside decimals."""
    return pa.decimal128(*_digits_of(given))


def _common_number(
    types: Sequence[pa.DataType], kinds: set[Kind], arguments: Sequence[pa.DataType | Value], shown: str, more: int = 0
) -> pa.DataType:
    if Kind.FLOATING in kinds:
        return pa.float32() if set(types) == {pa.float32()} else pa.float64()
    if Kind.DECIMAL not in kinds:
        return max(types, key=lambda item: item.bit_width)
    digits = [_digits_of(item) for item in arguments]
    scale = max(own for _, own in digits)
    return _decimal(max(precision - own for precision, own in digits) + scale + more, scale, shown)


def _digits_of(given: Any) -> tuple[int, int]:
    """Return the precision and scale that hold a constant, or all values of a type."""
    if not isinstance(given, pa.DataType):
        return _digits(given)
    if pa.types.is_decimal(given):
        return int(given.precision), int(given.scale)
    return _INTEGER_DIGITS[given.bit_width], 0


def _digits(value: int | decimal.Decimal) -> tuple[int, int]:
    """Return the precision and scale of a constant."""
    _, digits, exponent = decimal.Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), scale, 1), scale


# === Meaning ===


def apply(name: str, values: Sequence[Value], data_type: pa.DataType, shown: str) -> Value:
    """Return the value of a call: the meaning that Arrow's kernels are tested against.

    Raises
    ------
    DataError
        The result does not fit ``data_type``, or a number is divided by zero.
    """
    if name == "coalesce":
        return next((as_type(value, data_type) for value in values if value is not None), None)
    if any(value is None for value in values):
        return None
    if name in OPERATORS:
        return _arithmetic(name, [as_type(value, data_type) for value in values], data_type, shown)
    (value,) = values
    if isinstance(value, (str, bytes)):
        if name == "length":
            return len(value)
        assert isinstance(value, str)
        return value.lower() if name == "lower" else value.upper()
    assert isinstance(value, (Day, Moment))
    days = value.days if isinstance(value, Day) else value.nanoseconds // NANOS_PER_DAY
    return civil_of(days)[_DATE_PARTS.index(name)]


def fold(name: str, values: Sequence[Value], shown: str) -> Value:
    """Return the value of a call of constants; integers have as many digits as it takes.

    Raises
    ------
    UsageError
        As :func:`result_type`; the call has no value.
    """
    given = [value for value in values if value is not None]
    if len(given) < len(values) and (name != "coalesce" or not given):
        return None
    if name in _KERNELS and name != "/" and all(type(value) is int for value in given):
        return _KERNELS[name](*given) if len(given) == 2 else -given[0]  # type: ignore[operator]
    data_type = result_type(name, given, shown)
    try:
        return apply(name, given, data_type, shown)
    except DataError as error:
        raise UsageError(error.message) from None


def as_type(value: Value, data_type: pa.DataType) -> Value:
    """Return a value of one type as the wider one in which a call computes; decimals keep their own digits."""
    if isinstance(value, bool) or value is None:
        return value
    kind = kind_of(data_type)
    if isinstance(value, (int, float, decimal.Decimal)):
        if kind is Kind.FLOATING:
            return as_double(value)
        return decimal.Decimal(value) if kind is Kind.DECIMAL and isinstance(value, int) else value
    if kind is Kind.TIMESTAMP and isinstance(value, Moment):
        return Moment(value.nanoseconds, Zone.UTC)
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ) and isinstance(value, Day):
        return Moment(value.days * NANOS_PER_DAY, Zone.UTC if kind is Kind.TIMESTAMP else Zone.LOCAL)
    return value


_KERNELS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


def _arithmetic(name: str, values: Sequence[Value], data_type: pa.DataType, shown: str) -> Value:
    if kind_of(data_type) is Kind.DECIMAL:
        exact = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[name]
        found = exact(*values) if len(values) == 2 else _EXACT.minus(values[0])  # type: ignore[arg-type]
        return found.quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    kernel: Callable[..., Any] = _KERNELS[name] if len(values) == 2 else operator.neg
    if kind_of(data_type) is Kind.FLOATING:
        if name == "/" and values[1] == 0:
            raise division_by_zero(shown)
        number = np.float32 if pa.types.is_float32(data_type) else np.float64
        with np.errstate(all="ignore"):
            return float(kernel(*map(number, values)))  # type: ignore[arg-type]
    result = kernel(*values)
    if not -(1 << (data_type.bit_width - 1)) <= result < 1 << (data_type.bit_width - 1):
        raise overflow(shown, data_type)
    return result


def overflow(shown: str, data_type: pa.DataType) -> DataError:
    """Return the error for a result that its type does not hold."""
    return DataError(
        f"'{shown}' in the filter overflows the type {describe(data_type)}, at which Spark fails, too. Make one of its "
        "constants a double (2E0), or filter out such rows with a condition before it."
    )


def division_by_zero(shown: str) -> DataError:
    """Return the error for a division by zero."""
    return DataError(
        f"'{shown}' in the filter divides by zero, at which Spark fails, too. Filter out such rows with a condition "
        "before it."
    )
