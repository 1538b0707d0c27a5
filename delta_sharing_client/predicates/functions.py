"""Operators and functions of a predicate, one row each; interpreters use the rows and know no function by name.

Types and meaning are those of Spark SQL in ANSI mode. ``+ - * %`` of integers have the wider type and fail on overflow;
those of decimals are exact, and refused if 38 digits might not be enough. With a floating-point operand the result is a
double, with two of 32 bits a 32-bit float. ``/`` returns a double; ``/`` and ``%`` fail for zero and are refused for
decimals, ``/`` because it rounds. ``lower`` and ``upper`` use the Unicode case mapping, ``length`` counts characters
(bytes of binary), ``date``, ``year``, ``month`` and ``day`` use the date in UTC. The name of a type is the cast to it,
see :mod:`.values`. ``+`` also adds an interval to a date or timestamp, in UTC; months end at the last day of the month.
All return null for a null, except ``coalesce``, which returns its first non-null argument.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
from delta_sharing_client.predicates.values import (
    NUMBERS,
    Day,
    Interval,
    Kind,
    Moment,
    Value,
    Zone,
    as_double,
    boolean_of,
    date_of,
    decimal_of,
    describe,
    double_of,
    float_of,
    from_arrow,
    integer_of,
    kind_of,
    string_of,
    timestamp_of,
    to_arrow,
)

_MOST_DIGITS = 38
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT = decimal.Context(prec=200, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_DATES = frozenset((Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ))
_TEXT = ("A string", frozenset((Kind.STRING,)))
_NUMERIC = ("A number", NUMBERS)
_DATED = ("A date or timestamp", _DATES)

# pyarrow has no types for its kernels.
_Array = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One function or operator; its name is its key in ``ROWS``."""

    sql: tuple[str, ...]
    """Classes of sqlglot's nodes."""
    takes: tuple[str, frozenset[Kind]] | None
    """The type of the arguments, in words and as kinds; ``None`` if they only need one common type."""
    result: pa.DataType | None = None
    """The result type; ``None`` if it depends on the arguments."""
    most: int = 1
    """Greatest number of arguments; 0 for any."""
    value: Callable[..., Value] | None = None
    """The result for non-null values; this defines the meaning."""
    kernel: Callable[..., _Array] | None = None
    """The same for an Arrow array, the type of the result, and the other arguments; ``None``, or a result of ``None``:
    each distinct value is computed with ``value``."""
    arrow: tuple[str, ...] = ()
    """Equivalent functions of ``pyarrow.compute``."""
    polars: tuple[tuple[str, str], ...] = ()
    """Equivalent functions of Polars: group and name, as Polars serializes them."""
    interval: Callable[[Value], tuple[Value, Value]] | None = None
    """For a monotonic function: the first argument with this result, and the first with a later one."""
    folds: bool = True
    """Whether its value is fixed before the read starts."""


def format_call(name: str, arguments: Sequence[object]) -> str:
    if name in ("decimal", "timestamp_ntz"):  # Spark has no functions that do the same
        digits = f"({', '.join(map(str, arguments[1:]))})" if arguments[1:] else ""
        return f"CAST({arguments[0]} AS {name.upper()}{digits})"
    if name.isidentifier():
        return f"{name}({', '.join(map(str, arguments))})"
    return f"(- {arguments[0]})" if len(arguments) == 1 else f"({f' {name} '.join(map(str, arguments))})"


def constant_type(value: Value) -> pa.DataType:
    """Return the type of a constant in a call: the smallest of its kind, at least an integer."""
    match value:
        case bool():
            return pa.bool_()
        case int() if -(1 << 31) <= value < 1 << 31:
            return pa.int32()
        case int() if -(1 << 63) <= value < 1 << 63:
            return pa.int64()
        case int() | decimal.Decimal():
            return _decimal(*_digits(value), str(value))
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
        case Interval():
            return pa.month_day_nano_interval()
    return pa.null()


def result_type(name: str, arguments: Sequence[pa.DataType | Value], shown: str) -> pa.DataType:
    """Return the type of a call of ``name``, one of ``OPERATORS`` and ``FUNCTIONS``.

    ``arguments`` has the type of each computed argument and the value of each constant one; None is null. ``shown`` is
    the call as SQL, for errors. Raises ``UsageError`` if there is no such operator for these types, or its result is
    not exact.
    """
    types = [item if isinstance(item, pa.DataType) else constant_type(item) for item in arguments]
    kinds = {kind_of(item) for item in types}
    row = ROWS[name]
    takes, checked = row.takes, types[:1] if name in CASTS else types
    added = arguments[-1] if name == "+" else None
    if isinstance(added, Interval):
        takes, checked = _DATED, types[:1]
    if takes is not None and not {kind_of(item) for item in checked} <= takes[1]:
        found = " and ".join(describe(item) for item in checked)
        raise UsageError(f"{takes[0]} was expected in '{shown}', found {found}.")
    if isinstance(added, Interval):
        is_time = added.unit == "MICROSECOND"
        return pa.timestamp("us", "UTC") if is_time and kinds & {Kind.DATE} else types[0]
    if row.most and len(arguments) > row.most:
        raise UsageError(f"'{shown}' has too many arguments. The most that '{name}' takes is {row.most}.")
    if row.result is not None:
        return row.result
    if name == "decimal":
        return _checked_decimal(*arguments[1:])
    if name == "coalesce":
        return _common_type(types, kinds, arguments, shown)
    if Kind.DECIMAL in kinds and Kind.FLOATING not in kinds:
        if name in ("/", "%"):
            why = "divides decimals, which rounds" if name == "/" else "takes the remainder of decimals"
            raise UsageError(f"'{shown}' {why}. Multiply the other side, or write a double (2E0).")
        if len(arguments) == 1:
            return types[0]
        if name == "*":
            digits = [_digits_of(item) for item in arguments]
            return _decimal(sum(own for own, _ in digits) + 1, sum(own for _, own in digits), shown)
    if name == "/":
        return pa.float64()
    return _common_number(types, kinds, arguments, shown, more=1)


def _common_type(
    types: Sequence[pa.DataType], kinds: set[Kind], arguments: Sequence[pa.DataType | Value], shown: str
) -> pa.DataType:
    computed = [item for item in arguments if isinstance(item, pa.DataType)]
    if kinds <= NUMBERS:
        return _common_number(types, kinds, arguments, shown)
    wanted = {kind_of(item) for item in computed} or kinds
    # A constant with dates or timestamps may be their text, or a date with timestamps.
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


def _checked_decimal(precision: Any, scale: Any) -> pa.DataType:
    if not (1 <= precision <= _MOST_DIGITS and 0 <= scale <= precision):
        raise UsageError(
            f"A decimal has 1 to {_MOST_DIGITS} digits, and at most all of them after the point; found"
            f" DECIMAL({precision}, {scale})."
        )
    return pa.decimal128(precision, scale)


def decimal_type(given: pa.DataType | Value) -> pa.DataType:
    """Return the decimal type of a number, or of a numeric type, in a call with decimals."""
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
    """Return the precision and scale of a constant, or of all values of a type."""
    if not isinstance(given, pa.DataType):
        return _digits(given)
    if pa.types.is_decimal(given):
        return given.precision, given.scale
    return _INTEGER_DIGITS[given.bit_width], 0


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
    if name == "coalesce":
        return next((as_type(value, data_type) for value in values if value is not None), None)
    if any(value is None for value in values):
        return None
    if isinstance(values[-1], Interval):
        return _shifted_in(values[0], values[-1], data_type, shown)
    if name in OPERATORS:
        return _arithmetic(name, [as_type(value, data_type) for value in values], data_type, shown)
    meaning = ROWS[name].value
    assert meaning is not None
    try:
        return meaning(*values)
    except (ValueError, ArithmeticError, UsageError):
        raise cast_failure(shown, values[0], data_type) from None


def fold(name: str, values: Sequence[Value], shown: str) -> Value:
    """Return the value of a call of constants; integers have any number of digits. Raises ``UsageError`` if it has
    none.
    """
    given = [value for value in values if value is not None]
    if len(given) < len(values) and (name != "coalesce" or not given):
        return None
    if name in ("+", "-", "*") and all(type(value) is int for value in given):
        return _KERNELS[name](*given) if len(given) == 2 else -given[0]  # type: ignore[operator]
    if name == "+" and all(isinstance(value, Interval) for value in given):
        return _sum_of_intervals([value for value in given if isinstance(value, Interval)], shown)
    data_type = result_type(name, given, shown)
    try:
        return apply(name, given, data_type, shown)
    except DataError as error:
        raise UsageError(error.message) from None


def as_type(value: Value, data_type: pa.DataType) -> Value:
    """Return a value in the wider type in which a call computes; decimals keep their digits."""
    if isinstance(value, bool):
        return value
    kind = kind_of(data_type)
    if isinstance(value, (int, float, decimal.Decimal)):
        if kind is Kind.FLOATING:
            return as_double(value)
        return decimal.Decimal(value) if kind is Kind.DECIMAL else value
    if kind is Kind.TIMESTAMP and isinstance(value, Moment):
        return Moment(value.nanoseconds, Zone.UTC)
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ) and isinstance(value, Day):
        return Moment(value.days * NANOS_PER_DAY, Zone.UTC if kind is Kind.TIMESTAMP else Zone.LOCAL)
    return value


_KERNELS: dict[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": np.fmod,
}  # fmt: skip


def _arithmetic(name: str, values: Sequence[Value], data_type: pa.DataType, shown: str) -> Value:
    if kind_of(data_type) is Kind.DECIMAL:
        exact = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[name]
        found = exact(*values) if len(values) == 2 else _EXACT.minus(values[0])  # type: ignore[arg-type]
        return found.quantize(decimal.Decimal(1).scaleb(-data_type.scale), context=_EXACT)
    kernel: Callable[..., Any] = _KERNELS[name] if len(values) == 2 else operator.neg
    if name in ("/", "%") and values[1] == 0:
        raise division_by_zero(shown)
    if kind_of(data_type) is Kind.FLOATING:
        number = np.float32 if pa.types.is_float32(data_type) else np.float64
        with np.errstate(all="ignore"):
            return float(kernel(*map(number, values)))  # type: ignore[arg-type]
    if name == "%":
        # The sign is that of the first operand; in Python it is that of the second.
        rest = abs(values[0]) % abs(values[1])  # type: ignore[arg-type, operator]
        return -rest if values[0] < 0 else rest  # type: ignore[operator]
    result = kernel(*values)
    if not -(1 << (data_type.bit_width - 1)) <= result < 1 << (data_type.bit_width - 1):
        raise overflow(shown, data_type)
    return result


def shifted(value: Value, interval: Interval) -> Day | Moment:
    """Return a date or timestamp plus an interval, however large."""
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
    found = days_of(year + years, month + 1, min(day, days_in_month(year + years, month + 1)))
    assert found is not None
    return found


def _shifted_in(value: Value, interval: Interval, data_type: pa.DataType, shown: str) -> Day | Moment:
    found = shifted(value, interval)
    if isinstance(found, Day):
        fits = -(1 << 31) <= found.days < 1 << 31
    else:
        fits = -(1 << 63) <= found.nanoseconds // (1 if data_type.unit == "ns" else 1000) < 1 << 63
    if not fits:
        raise overflow(shown, data_type)
    return found


def _sum_of_intervals(intervals: Sequence[Interval], shown: str) -> Interval:
    units = {interval.unit for interval in intervals}
    if len(units) == 1:
        return Interval(sum(interval.count for interval in intervals), units.pop())
    if "MONTH" in units:
        raise UsageError(f"'{shown}' adds months to days or hours. Add them to the column one after the other.")
    sizes = {"DAY": MICROS_PER_DAY, "MICROSECOND": 1}
    return Interval(sum(interval.count * sizes[interval.unit] for interval in intervals), "MICROSECOND")


def overflow(shown: str, data_type: pa.DataType) -> DataError:
    advice = "" if kind_of(data_type) in _DATES else "Make one of its constants a double (2E0), or e"
    return DataError(
        f"'{shown}' in the filter overflows the type {describe(data_type)}, and fails in Spark too. "
        f"{advice or 'E'}xclude such rows with a condition before it."
    )


def division_by_zero(shown: str) -> DataError:
    return DataError(
        f"'{shown}' in the filter divides by zero and fails in Spark too. Exclude such rows with a condition before it."
    )


def cast_failure(shown: str, value: Value, data_type: pa.DataType) -> DataError:
    # A few texts that Spark reads as timestamps are not read here.
    is_time = kind_of(data_type) in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
    too = "" if isinstance(value, str) and is_time else ", and fails in Spark too"
    return DataError(
        f"'{shown}' in the filter finds {value!r}, which is not a valid {describe(data_type)}{too}."
        " Exclude such rows with a condition before it."
    )


def _part_of(index: int) -> Callable[[Value], Value]:
    return lambda value: int(civil_of(date_of(value).days)[index])


# === Arrow arrays ===


def compute(name: str, array: _Array, constants: Sequence[Value], data_type: pa.DataType, shown: str) -> _Array:
    """Apply a function to every value of ``array`` and further constant arguments; errors as in ``apply``."""
    kernel = ROWS[name].kernel
    try:
        found = None if kernel is None else kernel(array, data_type, *constants)
        if found is not None:
            return found.cast(data_type)
    except (pa.ArrowInvalid, OverflowError):
        pass  # evaluating value by value finds the error
    encoded = array.dictionary_encode()
    values = [apply(name, [value, *constants], data_type, shown) for value in from_arrow(encoded.dictionary)]
    return to_arrow(values, data_type).take(encoded.indices)


def _cased(ascii_kernel: Callable[[_Array], _Array]) -> Callable[..., _Array]:
    # Arrow maps character by character; Unicode maps ß to SS and has a special sigma for the end of a word.
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


def _timestamps(array: _Array, data_type: pa.DataType) -> _Array:
    kind = kind_of(array.type)
    if kind is Kind.DATE:
        micros = pc.multiply_checked(array.cast(pa.int32()).cast(pa.int64()), MICROS_PER_DAY)
    elif kind is Kind.STRING:
        micros = array.cast(pa.timestamp("us")).cast(pa.int64())
    elif kind is Kind.INTEGER:
        micros = pc.multiply_checked(array.cast(pa.int64()), MICROS_PER_SECOND)
    elif array.type.unit == "ns":
        micros = pa.array(_numbers(array.cast(pa.int64())) // 1000, mask=_nulls(array))
    else:
        micros = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    return micros.cast(data_type)


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
    if kind in (Kind.INTEGER, Kind.BOOLEAN):
        return array.cast(pa.int64()).cast(pa.decimal128(19, 0))
    if kind is not Kind.DECIMAL:
        return None
    return pc.round(array, data_type.scale, "half_towards_infinity")


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


def remainder(dividend: _Array, divisor: _Array, data_type: pa.DataType) -> _Array:
    """Return the remainders of two arrays, or an array and a constant, of ``data_type``; no divisor is zero."""
    rows = max(len(side) for side in (dividend, divisor) if isinstance(side, pa.Array))
    both = [pa.repeat(side, rows) if isinstance(side, pa.Scalar) else side for side in (dividend, divisor)]
    nulls = _nulls(both[0]) | _nulls(both[1])
    numbers = [side.fill_null(1).to_numpy() for side in both]
    with np.errstate(all="ignore"):
        return pa.array(np.fmod(*numbers), data_type, mask=nulls)


# === The table ===


def _year_interval(value: Value) -> tuple[Value, Value]:
    first, following = (Day(days_of(number, 1, 1) or 0) for number in (value, value + 1))  # type: ignore
    return first, following


def _day_interval(value: Value) -> tuple[Value, Value]:
    assert isinstance(value, Day)
    return value, Day(value.days + 1)


def _moment_interval(value: Value) -> tuple[Value, Value]:
    # Without a zone, which compares with timestamps of both kinds.
    assert isinstance(value, Moment)
    return Moment(value.nanoseconds, Zone.LOCAL), Moment(value.nanoseconds + 1000, Zone.LOCAL)


_CASTABLE = ("A number, boolean or string", NUMBERS | {Kind.BOOLEAN, Kind.STRING})
_EXACT_NUMBERS = ("An integer, decimal, boolean or string", _CASTABLE[1] - {Kind.FLOATING})
_PRINTABLE = ("An integer, boolean, date or string", frozenset((Kind.INTEGER, Kind.BOOLEAN, Kind.DATE, Kind.STRING)))
_READABLE = ("A date, timestamp or string", _DATES | {Kind.STRING})


def _integers(data_type: pa.DataType) -> Function:
    return Function(sql=(), takes=_CASTABLE, result=data_type, value=integer_of(data_type.bit_width), kernel=_cast)


ROWS: dict[str, Function] = {
    "+": Function(sql=("Add",), takes=_NUMERIC, most=2, arrow=("add_checked",), kernel=_add_interval),
    "-": Function(sql=("Sub",), takes=_NUMERIC, most=2, arrow=("subtract_checked", "negate_checked")),
    "*": Function(sql=("Mul",), takes=_NUMERIC, most=2, arrow=("multiply_checked",)),
    "/": Function(sql=("Div",), takes=_NUMERIC, most=2),
    "%": Function(sql=("Mod",), takes=_NUMERIC, most=2),
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
        sql=("Date", "TsOrDsToDate"), takes=_READABLE, result=pa.date32(), value=date_of, kernel=_dates,
        interval=_day_interval, polars=(("TemporalExpr", "Date"),),
    ),
    "coalesce": Function(sql=("Coalesce",), takes=None, most=0, arrow=("coalesce",)),
    "tinyint": _integers(pa.int8()),
    "smallint": _integers(pa.int16()),
    "int": _integers(pa.int32()),
    "bigint": _integers(pa.int64()),
    "float": Function(sql=(), takes=_CASTABLE, result=pa.float32(), value=float_of, kernel=_cast),
    "double": Function(sql=(), takes=_CASTABLE, result=pa.float64(), value=double_of, kernel=_cast),
    "decimal": Function(sql=(), takes=_EXACT_NUMBERS, most=3, value=decimal_of, kernel=_decimals),
    "boolean": Function(sql=(), takes=_CASTABLE, result=pa.bool_(), value=boolean_of, kernel=_booleans),
    "string": Function(sql=(), takes=_PRINTABLE, result=pa.string(), value=string_of, kernel=_cast),
    "timestamp": Function(
        sql=(), takes=("An integer, date, timestamp or string", _READABLE[1] | {Kind.INTEGER}),
        result=pa.timestamp("us", "UTC"), value=timestamp_of(Zone.UTC), kernel=_timestamps,
        interval=_moment_interval,
    ),
    "timestamp_ntz": Function(
        sql=(), takes=_READABLE, result=pa.timestamp("us"), value=timestamp_of(Zone.LOCAL), kernel=_timestamps,
        interval=_moment_interval,
    ),
    "current_date": Function(sql=("CurrentDate",), takes=None, result=pa.date32(), folds=False),
    "now": Function(sql=("CurrentTimestamp",), takes=None, result=pa.timestamp("us", "UTC"), folds=False),
}  # fmt: skip
"""All operators and functions by name."""

CASTS = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "string", "date", "timestamp",
    "timestamp_ntz",
)  # fmt: skip
OPERATORS = tuple(name for name in ROWS if not name.isidentifier())
FUNCTIONS = tuple(name for name in ROWS if name.isidentifier())
