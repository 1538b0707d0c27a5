"""A table of the operators and functions of predicates; interpreters use its rows and know no function by name.

Types and meaning are those of Spark SQL in ANSI mode. ``+ - * %`` of integers have the wider type and fail on
overflow; those of decimals are exact, and refused if 38 digits might not be enough. With a floating-point operand
the result is a double, or a 32-bit float if both operands have 32 bits. ``/`` returns a double; ``/`` and ``%`` fail
for zero and are refused for decimals, ``/`` because it rounds. ``lower`` and ``upper`` use the Unicode case mapping,
``length`` counts characters (bytes of binary), ``date``, ``year``, ``month`` and ``day`` use the date in UTC. The
function with the name of a type casts to it, see :mod:`.values`. ``+`` also adds an interval to a date or timestamp, in
UTC; if the resulting month lacks the day, its last day is used. All functions return null for a null, except
``coalesce``, which returns its first non-null argument.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.instants import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    NANOS_PER_DAY,
    civil_of,
    days_in_month,
    days_of,
)
from delta_sharing_client.predicates.value_kinds import (
    DATES,
    KINDS,
    NANOS,
    NUMBERS,
    TIMES,
    Kind,
    describe,
    from_arrow,
    kind_of,
    to_arrow,
)
from delta_sharing_client.predicates.values import (
    Clock,
    Day,
    Interval,
    Moment,
    Value,
    Zone,
    boolean_of,
    date_of,
    decimal_of,
    double_of,
    float_of,
    integer_of,
    string_of,
    timestamp_of,
)

_MOST_DIGITS = 38
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT = decimal.Context(prec=200, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_TEXT = ("A string", frozenset((Kind.STRING,)))
_NUMERIC = ("A number", NUMBERS)
_DATED = ("A date or timestamp", DATES)

# pyarrow has no types for its kernels.
_Array = Any
# For each argument of a call: its type if computed, its value if constant.
_Arguments = Sequence[Union[pa.DataType, Value]]
_Types = Sequence[pa.DataType]


class Range(NamedTuple):
    """The range of an operand's non-null values; ``None`` if unknown."""

    lower: Any
    upper: Any


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The implementation of an operator for arguments of one type."""

    plain: Callable[..., Any]
    """Computes with Python's integers and NumPy's floating-point numbers."""
    arrays: Callable[..., _Array]
    """Computes with Arrow's arrays and scalars; an overflow is an error."""
    decimals: Callable[..., decimal.Decimal] | None = None
    ranges: Callable[..., Range] | None = None
    """Returns the range of the results from the ranges of the arguments; ``None`` if there is no rule for it."""
    divides: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function or operator; its name is its key in ``ROWS``."""

    sql: tuple[str, ...] = ()
    """The names of sqlglot's node classes; for a cast, sqlglot's names of the type."""
    takes: tuple[str, frozenset[Kind]] | None
    """The accepted types of the first argument (for arithmetic, of all), in words and as kinds; ``None`` for any."""
    result: pa.DataType | Callable[[_Arguments, _Types, str], pa.DataType]
    """The result type, or a function that returns it for the arguments, their types, and the call as SQL."""
    most: int = 1
    """The greatest number of arguments; 0 for any number."""
    defaults: tuple[int, ...] = ()
    """For a cast, the precision and scale of the type if none are written."""
    value: Callable[..., Value] | None = None
    """Returns the result for non-null values, which defines the meaning; ``now()`` gets the time of the read."""
    kernel: Callable[..., _Array] | None = None
    """Computes the same for an Arrow array, the type of the result, and the other arguments. If it is or returns
    ``None``, each distinct value is computed with ``value``."""
    arithmetic: Arithmetic | None = None
    """Replaces ``value`` and ``kernel`` for operators."""
    with_interval: Function | None = None
    """The row that is used if an argument is an interval."""
    arrow: tuple[str, ...] = ()
    """Equivalent functions of ``pyarrow.compute``; for a cast, Arrow's name of the type."""
    polars: tuple[tuple[str, str], ...] = ()
    """Equivalent functions of Polars: group and name, as Polars serializes them."""
    interval: Callable[[Any], tuple[Value, Value]] | None = None
    """For a monotonic function: returns the first argument with a given result, and the first one with a later
    result."""
    folds: bool = True
    """Whether a call of constants has a value before the read starts."""
    skips_nulls: bool = False
    """Whether the result is the first non-null argument; then all arguments have one type."""
    is_spark: bool = True
    """Whether Spark has a function of this name and meaning; otherwise, it has only the cast."""


def row_of(name: str, arguments: Sequence[object]) -> Function:
    """Return the row for a call of ``name`` with these arguments, of which only constant values matter."""
    row = ROWS[name]
    shift = row.with_interval
    return row if shift is None or not any(isinstance(item, Interval) for item in arguments) else shift


def format_call(name: str, arguments: Sequence[object]) -> str:
    if not ROWS[name].is_spark:
        digits = f"({', '.join(map(str, arguments[1:]))})" if arguments[1:] else ""
        return f"CAST({arguments[0]} AS {name.upper()}{digits})"
    if name.isidentifier():
        return f"{name}({', '.join(map(str, arguments))})"
    return f"(- {arguments[0]})" if len(arguments) == 1 else f"({f' {name} '.join(map(str, arguments))})"


# === Types ===

_CONSTANTS: dict[type, pa.DataType] = {
    type(None): pa.null(), bool: pa.bool_(), float: pa.float64(), str: pa.string(), bytes: pa.binary(),
    Day: pa.date32(), Clock: pa.time64("us"), Interval: pa.month_day_nano_interval(),
}  # fmt: skip


def constant_type(value: Value) -> pa.DataType:
    """Return the type of a constant in a call: the smallest of its kind, but at least 32 bits for an integer."""
    if isinstance(value, Moment):
        return pa.timestamp("us", "UTC" if value.zone is Zone.UTC else None)
    if isinstance(value, Clock) and value.nanoseconds % 1000:
        raise UsageError(f"A time of day in a function must be a whole number of microseconds, found {value}.")
    if type(value) in _CONSTANTS:
        return _CONSTANTS[type(value)]
    assert isinstance(value, (int, decimal.Decimal))
    if isinstance(value, int):
        for width, data_type in ((32, pa.int32()), (64, pa.int64())):
            if _fits(value, width):
                return data_type
    return _decimal(*_digits(value), str(value))


def _fits(number: int, width: int) -> bool:
    return -(1 << (width - 1)) <= number < 1 << (width - 1)


def result_type(name: str, arguments: _Arguments, shown: str) -> pa.DataType:
    """Return the type of a call of ``name``, one of ``OPERATORS`` and ``FUNCTIONS``.

    ``arguments`` has the type of each computed argument and the value of each constant one; None is null. ``shown`` is
    the call as SQL, for errors. Raises ``UsageError`` if there is no such operator for these types, or its result is
    not exact.
    """
    row = row_of(name, arguments)
    types = [item if isinstance(item, pa.DataType) else constant_type(item) for item in arguments]
    checked = types if row.arithmetic else types[:1]
    if row.takes is not None and not {kind_of(item) for item in checked} <= row.takes[1]:
        described = " and ".join(describe(item) for item in checked)
        is_dated = name in ("+", "-") and DATES & {kind_of(item) for item in checked}
        advice = " Write days as an interval, as in now() - INTERVAL '7' DAY." if is_dated else ""
        raise UsageError(f"{row.takes[0]} was expected in '{shown}', found {described}.{advice}")
    if row.most and len(arguments) > row.most:
        raise UsageError(f"'{name}' takes at most {row.most} argument(s), found {len(arguments)} in '{shown}'.")
    return row.result if isinstance(row.result, pa.DataType) else row.result(arguments, types, shown)


def _common_type(arguments: _Arguments, types: _Types, shown: str) -> pa.DataType:
    kinds = {kind_of(item) for item in types}
    if kinds <= NUMBERS:
        return _common_number(arguments, types, shown)
    arguments_kinds = {kind_of(item) for item in arguments if isinstance(item, pa.DataType)} or kinds
    # Beside dates or timestamps, a constant may be a string, and beside timestamps a date.
    if len(arguments_kinds) == 1 and Kind.OTHER not in arguments_kinds:
        (kind,) = arguments_kinds
        readable = {kind, Kind.STRING, Kind.DATE, Kind.TIMESTAMP_NTZ} if kind in DATES else {kind}
        if kinds <= readable - ({Kind.TIMESTAMP_NTZ} if kind is Kind.DATE else set()):
            return next(item for item in types if kind_of(item) is kind)
    raise UsageError(f"'{shown}' has arguments of different types: {', '.join(describe(item) for item in types)}.")


def _common_number(arguments: _Arguments, types: _Types, shown: str, more: int = 0) -> pa.DataType:
    """Return the common type of numbers; a decimal gets ``more`` digits before the point."""
    kinds = {kind_of(item) for item in types}
    if Kind.FLOATING in kinds:
        return pa.float32() if set(types) == {pa.float32()} else pa.float64()
    if Kind.DECIMAL not in kinds:
        return max(types, key=lambda item: item.bit_width)
    digits = [_digits_of(item) for item in arguments]
    scale = max(own for _, own in digits)
    return _decimal(max(precision - own for precision, own in digits) + scale + more, scale, shown)


def _sum_type(arguments: _Arguments, types: _Types, shown: str) -> pa.DataType:
    return _common_number(arguments, types, shown, more=1) if len(types) > 1 else types[0]


def _product_type(arguments: _Arguments, types: _Types, shown: str) -> pa.DataType:
    if not _is_decimal(types):
        return _common_number(arguments, types, shown)
    digits = [_digits_of(item) for item in arguments]
    return _decimal(sum(own for own, _ in digits) + 1, sum(own for _, own in digits), shown)


def _is_decimal(types: _Types) -> bool:
    kinds = {kind_of(item) for item in types}
    return Kind.DECIMAL in kinds and Kind.FLOATING not in kinds


def _inexact(why: str, result: Callable[[_Arguments, _Types, str], pa.DataType]) -> Callable[..., pa.DataType]:
    def checked(arguments: _Arguments, types: _Types, shown: str) -> pa.DataType:
        if _is_decimal(types):
            raise UsageError(f"'{shown}' {why}, or write a double (2E0).")
        return result(arguments, types, shown)

    return checked


def _shifted_type(arguments: _Arguments, types: _Types, shown: str) -> pa.DataType:
    is_time = isinstance(arguments[1], Interval) and arguments[1].unit == "MICROSECOND"
    return pa.timestamp("us", "UTC") if is_time and kind_of(types[0]) is Kind.DATE else types[0]


def _decimal(precision: int, scale: int, shown: str) -> pa.DataType:
    if precision > _MOST_DIGITS:
        raise UsageError(
            f"'{shown}' may need {precision} digits, but a decimal has at most {_MOST_DIGITS}. Cast the constant to"
            " DOUBLE if a rounded result will do."
        )
    return pa.decimal128(precision, scale)


def _written_decimal(arguments: Any, types: _Types, shown: str) -> pa.DataType:
    _, precision, scale = arguments
    if not (1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision):
        raise UsageError(
            f"A decimal must have a precision from 1 to {_MOST_DIGITS} and a scale from 0 to the precision; found"
            f" DECIMAL({precision}, {scale})."
        )
    return pa.decimal128(precision, scale)


def decimal_type(value: pa.DataType | Value) -> pa.DataType:
    """Return the decimal type that a number, or a numeric type, has in a call with decimals."""
    return pa.decimal128(*_digits_of(value))


def _digits_of(value: Any) -> tuple[int, int]:
    """Return the precision and scale of a constant, or of all values of a type."""
    if not isinstance(value, pa.DataType):
        return _digits(value)
    if pa.types.is_decimal(value):
        return value.precision, value.scale
    return _INTEGER_DIGITS[value.bit_width], 0


def _digits(value: int | decimal.Decimal) -> tuple[int, int]:
    _, digits, exponent = decimal.Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    return max(len(digits) + max(exponent, 0), scale, 1), scale


# === Meaning ===


def apply(name: str, values: Sequence[Value], data_type: pa.DataType, shown: str) -> Value:
    """Return the value of a call; Arrow's kernels are tested against it.

    Raises ``DataError`` if the result does not fit ``data_type``, or a number is divided by zero.
    """
    row = row_of(name, values)
    if row.skips_nulls:
        return next((as_type(value, data_type) for value in values if value is not None), None)
    if any(value is None for value in values):
        return None
    if row.arithmetic is not None:
        return _computed(row.arithmetic, [as_type(value, data_type) for value in values], data_type, shown)
    assert row.value is not None
    try:
        result = row.value(*values)
    except (ValueError, ArithmeticError, UsageError):
        raise cast_failure(shown, values[0], data_type) from None
    if isinstance(result, (Day, Moment)):
        grid = KINDS[kind_of(data_type)].grid(data_type)
        index = result.days if isinstance(result, Day) else result.nanoseconds // NANOS[data_type.unit]
        assert grid is not None
        if not grid.low <= index <= grid.high:
            raise overflow(shown, data_type)
    return result


def fold(name: str, values: Sequence[Value], shown: str) -> Value:
    """Return the value of a call of constants; integers may have any size. ``UsageError`` if there is no value."""
    row = ROWS[name]
    present = [value for value in values if value is not None]
    if len(present) < len(values) and not (row.skips_nulls and present):
        return None
    if row.arithmetic and not row.arithmetic.divides and all(type(value) is int for value in present):
        result: int = row.arithmetic.plain(*present)
        return result
    if row.with_interval and all(isinstance(value, Interval) for value in present):
        return _sum_of_intervals([value for value in present if isinstance(value, Interval)], shown)
    data_type = result_type(name, present, shown)
    try:
        return apply(name, present, data_type, shown)
    except DataError as error:
        raise UsageError(error.message) from None


def as_type(value: Value, data_type: pa.DataType) -> Value:
    """Return a value in the type in which a call computes, which may be wider; decimals keep their digits."""
    widen = KINDS[kind_of(data_type)].widens.get(type(value))
    return value if widen is None else widen(value)


def _computed(arithmetic: Arithmetic, values: Sequence[Any], data_type: pa.DataType, shown: str) -> Value:
    if arithmetic.divides and values[1] == 0:
        raise division_by_zero(shown)
    kind = kind_of(data_type)
    if kind is Kind.DECIMAL:
        assert arithmetic.decimals is not None
        return arithmetic.decimals(*values).quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    if kind is Kind.FLOATING:
        number = np.float32 if pa.types.is_float32(data_type) else np.float64
        with np.errstate(all="ignore"):
            return float(arithmetic.plain(*map(number, values)))
    result: int = arithmetic.plain(*values)
    if not _fits(result, data_type.bit_width):
        raise overflow(shown, data_type)
    return result


def shifted(value: Value, interval: Interval) -> Day | Moment:
    """Return a date or timestamp plus an interval of any size."""
    count, unit = interval.count, interval.unit
    if isinstance(value, Day):
        if unit == "MICROSECOND":
            return Moment(value.days * NANOS_PER_DAY + count * 1000, Zone.UTC)
        return Day(value.days + count if unit == "DAY" else _months_later(value.days, count))
    assert isinstance(value, Moment)
    days, rest = divmod(value.nanoseconds, NANOS_PER_DAY)
    if unit == "MONTH":
        return Moment(_months_later(days, count) * NANOS_PER_DAY + rest, value.zone)
    return Moment(value.nanoseconds + count * (NANOS_PER_DAY if unit == "DAY" else 1000), value.zone)


def _months_later(days: int, count: int) -> int:
    year, month, day = civil_of(days)
    years, month = divmod(month - 1 + count, 12)
    day_number = days_of(year + years, month + 1, min(day, days_in_month(year + years, month + 1)))
    assert day_number is not None
    return day_number


def _sum_of_intervals(intervals: Sequence[Interval], shown: str) -> Interval:
    units = {interval.unit for interval in intervals}
    if len(units) == 1:
        return Interval(sum(interval.count for interval in intervals), units.pop())
    if "MONTH" in units:
        raise UsageError(f"'{shown}' adds months to days or hours, which have no common unit. Add each to the column.")
    sizes = {"DAY": MICROS_PER_DAY, "MICROSECOND": 1}
    return Interval(sum(interval.count * sizes[interval.unit] for interval in intervals), "MICROSECOND")


def overflow(shown: str, data_type: pa.DataType) -> DataError:
    advice = "" if kind_of(data_type) in DATES else "Make one of its constants a double (2E0), or e"
    return DataError(
        f"'{shown}' in the filter overflows the type {describe(data_type)}, which fails in Spark too. "
        f"{advice or 'E'}xclude such rows with a condition before it."
    )


def division_by_zero(shown: str) -> DataError:
    return DataError(
        f"'{shown}' in the filter divides by zero, which fails in Spark too. Exclude such rows with a condition before"
        " it."
    )


def cast_failure(shown: str, value: Value, data_type: pa.DataType) -> DataError:
    # Spark accepts a few forms of timestamps that are not supported here.
    is_time = kind_of(data_type) in TIMES
    too = "" if isinstance(value, str) and is_time else "; this fails in Spark too"
    return DataError(
        f"'{shown}' in the filter was applied to {value!r}, which is not a valid {describe(data_type)}{too}."
        " Exclude such rows with a condition before it."
    )


def _part_of(index: int) -> Callable[[Value], Value]:
    return lambda value: int(civil_of(date_of(value).days)[index])


# === Arrow arrays ===


def compute(name: str, array: _Array, constants: Sequence[Value], data_type: pa.DataType, shown: str) -> _Array:
    """Apply a function to every value of ``array`` and further constant arguments; errors as in ``apply``."""
    kernel = row_of(name, (array, *constants)).kernel
    try:
        computed = None if kernel is None else kernel(array, data_type, *constants)
        if computed is not None:
            return computed.cast(data_type)
    except (pa.ArrowInvalid, OverflowError):
        pass  # The evaluation value by value, below, finds the value that fails.
    encoded = array.dictionary_encode()
    values = [apply(name, [value, *constants], data_type, shown) for value in from_arrow(encoded.dictionary)]
    return to_arrow(values, data_type).take(encoded.indices)


def _cased(ascii_kernel: Callable[[_Array], _Array]) -> Callable[..., _Array]:
    # Arrow maps single characters; Unicode maps ß to SS, and has a special sigma for the end of a word.
    return lambda array, _: ascii_kernel(array) if pc.all(pc.string_is_ascii(array)).as_py() is not False else None


def _length(array: _Array, _: pa.DataType) -> _Array:
    return (pc.binary_length if kind_of(array.type) is Kind.BINARY else pc.utf8_length)(array)


def _days(array: _Array) -> _Array:
    if not pa.types.is_date(array.type):
        numbers = _numbers(array.cast(pa.int64())) // (NANOS_PER_DAY if array.type.unit == "ns" else MICROS_PER_DAY)
        return pa.array(numbers.astype(np.int32), mask=_nulls(array))
    return array.cast(pa.int32())


def _dates(array: _Array, _: pa.DataType) -> _Array:
    return None if pa.types.is_string(array.type) else _days(array)


def _micros_of_moments(array: _Array) -> _Array:
    if array.type.unit == "ns":
        return pa.array(_numbers(array.cast(pa.int64())) // 1000, mask=_nulls(array))
    return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())


_MICROS: dict[Kind, Callable[[_Array], _Array]] = {
    Kind.DATE: lambda days: pc.multiply_checked(days.cast(pa.int32()).cast(pa.int64()), MICROS_PER_DAY),
    Kind.STRING: lambda texts: texts.cast(pa.timestamp("us")).cast(pa.int64()),
    Kind.INTEGER: lambda seconds: pc.multiply_checked(seconds.cast(pa.int64()), MICROS_PER_SECOND),
    **dict.fromkeys(TIMES, _micros_of_moments),
}


def _timestamps(array: _Array, data_type: pa.DataType) -> _Array:
    return _MICROS[kind_of(array.type)](array).cast(data_type)


def _add_interval(array: _Array, data_type: pa.DataType, interval: Value) -> _Array:
    assert isinstance(interval, Interval)
    if interval.unit == "MONTH":
        return None
    if pa.types.is_date(data_type):
        return pc.add_checked(array.cast(pa.int32()), pa.scalar(interval.count, pa.int32()))
    step = interval.count * (MICROS_PER_DAY if interval.unit == "DAY" else 1)
    if pa.types.is_date(array.type):
        array = _timestamps(array, data_type)
    return pc.add_checked(array.cast(pa.int64()), pa.scalar(step * (1000 if data_type.unit == "ns" else 1), pa.int64()))


def _decimals(array: _Array, data_type: pa.DataType, *_: Value) -> _Array:
    kind = kind_of(array.type)
    if kind is not Kind.DECIMAL:
        return array.cast(pa.int64()).cast(pa.decimal128(19, 0)) if kind in (Kind.INTEGER, Kind.BOOLEAN) else None
    # One more digit, because pyarrow returns 0 for a result that does not fit, unless it is the last one.
    wider = array.cast(pa.decimal256(array.type.precision + 1, array.type.scale))
    return pc.round(wider, data_type.scale, "half_towards_infinity")


def _booleans(array: _Array, _: pa.DataType) -> _Array:
    kind = kind_of(array.type)
    if kind in (Kind.STRING, Kind.BOOLEAN):
        return None if kind is Kind.STRING else array
    return pc.not_equal(array, pa.scalar(0).cast(array.type))


def _parts(index: int) -> Callable[..., _Array]:
    return lambda array, _: pa.array(civil_of(_numbers(_days(array)))[index].astype(np.int32), mask=_nulls(array))


def _numbers(array: _Array) -> Any:
    return array.fill_null(0).to_numpy().astype(np.int64)


def _nulls(array: _Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False)


def _cast(array: _Array, data_type: pa.DataType) -> _Array:
    if kind_of(array.type) not in (Kind.INTEGER, Kind.FLOATING, Kind.BOOLEAN):
        return None
    whole = pc.trunc(array) if pa.types.is_floating(array.type) and pa.types.is_integer(data_type) else array
    return whole.cast(data_type, safe=not pa.types.is_floating(data_type))


# === Operators ===


def _by_count(of_one: Callable[[Any], Any], of_two: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return a function that applies ``of_one`` to one argument and ``of_two`` to two."""
    return lambda *sides: of_one(*sides) if len(sides) == 1 else of_two(*sides)


def _remainder(dividend: Any, divisor: Any) -> Any:
    if isinstance(dividend, np.floating):
        return np.fmod(dividend, divisor)
    # The result has the sign of the first operand; in Python, it has that of the second.
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def remainder(dividend: _Array, divisor: _Array) -> _Array:
    """Return the remainders for two arrays, or an array and a constant, of the same type; no divisor is zero."""
    rows = next(len(side) for side in (dividend, divisor) if isinstance(side, pa.Array))
    both = [pa.repeat(side, rows) if isinstance(side, pa.Scalar) else side for side in (dividend, divisor)]
    nulls = _nulls(both[0]) | _nulls(both[1])
    numbers = [side.fill_null(1).to_numpy() for side in both]
    with np.errstate(all="ignore"):
        return pa.array(np.fmod(*numbers), mask=nulls)


def _negative(a: Range) -> Range:
    return Range(None if a.upper is None else -a.upper, None if a.lower is None else -a.lower)


def _sum(a: Range, b: Range) -> Range:
    lower = None if a.lower is None or b.lower is None else a.lower + b.lower
    return Range(lower, None if a.upper is None or b.upper is None else a.upper + b.upper)


def _product(a: Range, b: Range) -> Range:
    if None in (*a, *b):
        return Range(None, None)
    ends = [x * y for x in a for y in b]
    return Range(min(ends), max(ends))


_PLUS = Arithmetic(operator.add, pc.add_checked, _EXACT.add, _sum)
_MINUS = Arithmetic(
    _by_count(operator.neg, operator.sub), _by_count(pc.negate_checked, pc.subtract_checked),
    _by_count(_EXACT.minus, _EXACT.subtract), _by_count(_negative, lambda a, b: _sum(a, _negative(b))),
)  # fmt: skip
_TIMES = Arithmetic(operator.mul, pc.multiply_checked, _EXACT.multiply, _product)


# === The table ===


def _year_interval(year: int) -> tuple[Value, Value]:
    first, following = (Day(days_of(number, 1, 1) or 0) for number in (year, year + 1))
    return first, following


def _moment_interval(moment: Moment) -> tuple[Value, Value]:
    # Without a zone, so that they can be compared with timestamps of both kinds.
    return Moment(moment.nanoseconds, Zone.LOCAL), Moment(moment.nanoseconds + 1000, Zone.LOCAL)


_CASTABLE = ("A number, boolean or string", NUMBERS | {Kind.BOOLEAN, Kind.STRING})
_EXACT_NUMBERS = ("An integer, decimal, boolean or string", _CASTABLE[1] - {Kind.FLOATING})
_PRINTABLE = ("An integer, boolean, date or string", frozenset((Kind.INTEGER, Kind.BOOLEAN, Kind.DATE, Kind.STRING)))
_READABLE = ("A date, timestamp or string", DATES | {Kind.STRING})


def _number(sql: str, data_type: pa.DataType, value: Callable[[Value], Value], polars: str) -> Function:
    return Function(
        sql=(sql,), takes=_CASTABLE, result=data_type, value=value, kernel=_cast, arrow=(str(data_type),),
        polars=(("Cast", polars),),
    )  # fmt: skip


ROWS: dict[str, Function] = {
    "+": Function(
        sql=("Add",), takes=_NUMERIC, result=_sum_type, most=2, arithmetic=_PLUS, arrow=("add_checked",),
        polars=(("BinaryExpr", "Plus"),),
        with_interval=Function(takes=_DATED, result=_shifted_type, most=2, value=shifted, kernel=_add_interval),
    ),
    "-": Function(
        sql=("Sub",), takes=_NUMERIC, result=_sum_type, most=2, arithmetic=_MINUS,
        arrow=("subtract_checked", "negate_checked"), polars=(("BinaryExpr", "Minus"),),
    ),
    "*": Function(
        sql=("Mul",), takes=_NUMERIC, result=_product_type, most=2, arithmetic=_TIMES, arrow=("multiply_checked",),
        polars=(("BinaryExpr", "Multiply"),),
    ),
    "/": Function(
        sql=("Div",), takes=_NUMERIC, most=2, polars=(("BinaryExpr", "TrueDivide"),),
        result=_inexact("divides decimals, which would round. Multiply the other side", lambda *_: pa.float64()),
        arithmetic=Arithmetic(operator.truediv, pc.divide, divides=True),
    ),
    # In Polars, the remainder of a negative number has a different sign.
    "%": Function(
        sql=("Mod",), takes=_NUMERIC, most=2, arithmetic=Arithmetic(_remainder, remainder, divides=True),
        result=_inexact("takes the remainder of decimals, which is not supported. Cast to integers", _common_number),
    ),
    "lower": Function(
        sql=("Lower",), takes=_TEXT, result=pa.string(), value=lambda text: text.lower(), kernel=_cased(pc.ascii_lower),
        arrow=("utf8_lower",), polars=(("StringExpr", "Lowercase"),),
    ),
    "upper": Function(
        sql=("Upper",), takes=_TEXT, result=pa.string(), value=lambda text: text.upper(), kernel=_cased(pc.ascii_upper),
        arrow=("utf8_upper",), polars=(("StringExpr", "Uppercase"),),
    ),
    "length": Function(
        sql=("Length",), takes=("A string or binary", frozenset((Kind.STRING, Kind.BINARY))), result=pa.int32(),
        value=len, kernel=_length, arrow=("utf8_length", "binary_length"), polars=(("StringExpr", "LenChars"),),
    ),
    "year": Function(
        sql=("Year",), takes=_DATED, result=pa.int32(), value=_part_of(0), kernel=_parts(0), interval=_year_interval,
        arrow=("year",), polars=(("TemporalExpr", "Year"),),
    ),
    "month": Function(
        sql=("Month",), takes=_DATED, result=pa.int32(), value=_part_of(1), kernel=_parts(1), arrow=("month",),
        polars=(("TemporalExpr", "Month"),),
    ),
    "day": Function(
        sql=("Day", "DayOfMonth"), takes=_DATED, result=pa.int32(), value=_part_of(2), kernel=_parts(2),
        arrow=("day",), polars=(("TemporalExpr", "Day"),),
    ),
    "date": Function(
        sql=("Date", "TsOrDsToDate", "DATE"), takes=_READABLE, result=pa.date32(), value=date_of, kernel=_dates,
        interval=lambda day: (day, Day(day.days + 1)), arrow=("date32[day]",),
        polars=(("TemporalExpr", "Date"), ("Cast", "Date")),
    ),
    "coalesce": Function(
        sql=("Coalesce",), takes=None, result=_common_type, most=0, skips_nulls=True, arrow=("coalesce",),
    ),
    "tinyint": _number("TINYINT", pa.int8(), integer_of(8), "Int8"),
    "smallint": _number("SMALLINT", pa.int16(), integer_of(16), "Int16"),
    "int": _number("INT", pa.int32(), integer_of(32), "Int32"),
    "bigint": _number("BIGINT", pa.int64(), integer_of(64), "Int64"),
    "float": _number("FLOAT", pa.float32(), float_of, "Float32"),
    "double": _number("DOUBLE", pa.float64(), double_of, "Float64"),
    "decimal": Function(
        sql=("DECIMAL",), takes=_EXACT_NUMBERS, result=_written_decimal, most=3, defaults=(10, 0), value=decimal_of,
        kernel=_decimals, is_spark=False,
    ),
    "boolean": Function(sql=("BOOLEAN",), takes=_CASTABLE, result=pa.bool_(), value=boolean_of, kernel=_booleans),
    "string": Function(
        sql=("TEXT", "VARCHAR"), takes=_PRINTABLE, result=pa.string(), value=string_of, kernel=_cast, arrow=("string",),
        polars=(("Cast", "String"),),
    ),
    "timestamp": Function(
        sql=("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"), result=pa.timestamp("us", "UTC"),
        takes=("An integer, date, timestamp or string", _READABLE[1] | {Kind.INTEGER}),
        value=timestamp_of(Zone.UTC), kernel=_timestamps, interval=_moment_interval,
    ),
    "timestamp_ntz": Function(
        sql=("TIMESTAMPNTZ",), takes=_READABLE, result=pa.timestamp("us"), value=timestamp_of(Zone.LOCAL),
        kernel=_timestamps, interval=_moment_interval, is_spark=False,
    ),
    "current_date": Function(
        sql=("CurrentDate",), takes=None, result=pa.date32(), folds=False,
        value=lambda now: Day(now.nanoseconds // NANOS_PER_DAY),
    ),
    "now": Function(
        sql=("CurrentTimestamp",), takes=None, result=pa.timestamp("us", "UTC"), folds=False, value=lambda now: now,
    ),
}  # fmt: skip
"""All operators and functions by name."""

CASTS = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "string", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
OPERATORS = tuple(name for name in ROWS if not name.isidentifier())
FUNCTIONS = tuple(name for name in ROWS if name.isidentifier())
