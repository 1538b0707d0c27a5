"""Comparisons of a bound column with a constant, brought into the column's type without changing what they mean."""

from __future__ import annotations

import decimal
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.kinds import NUMBERS, Kind, describe, kind_of
from delta_sharing_client.predicates.tree import And, Column, Comparison, Expression, Literal, Not, Op
from delta_sharing_client.predicates.values import (
    Day,
    Moment,
    Value,
    Zone,
    as_double,
    order,
    parse_date,
    parse_moment,
    type_name,
)

UNKNOWN = Literal(None)


def compare(op: Op, column: Column, value: Value) -> Expression:
    """Return ``column op value`` with constants of the column's type only; ``column`` is bound."""
    kind = kind_of(column.type)
    if kind is Kind.OTHER:
        raise UsageError(
            f"Column {column} is of type {describe(column.type)}, which does not compare;"
            " test it with IS NULL, or name a field in it."
        )
    if value is None or kind is Kind.VOID:
        return UNKNOWN
    value = _admit(column, kind, value)
    grid = _grid(column.type, kind)
    if grid is None:
        return Comparison(op, column, Literal(value))
    exact = grid.exact(value)
    if exact is not None:
        return Comparison(op, column, Literal(exact))
    return _rewrite(op, column, value, grid)


def _admit(column: Column, kind: Kind, value: Value) -> Value:
    """Check that a constant compares with the column; read strings for dates and timestamps, doubles for floats."""
    if kind in NUMBERS and isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool):
        return as_double(value) if kind is Kind.FLOATING else value
    if kind is Kind.DATE and isinstance(value, (str, Day, Moment)):
        return _read(column, parse_date, value) if isinstance(value, str) else value
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ) and isinstance(value, (str, Day, Moment)):
        moment = _read(column, parse_moment, value) if isinstance(value, str) else value
        if kind is Kind.TIMESTAMP_NTZ and isinstance(moment, Moment) and moment.zone is Zone.UTC:
            raise UsageError(
                f"Column {column} is a timestamp without time zone; it does not compare with the instant {moment}:"
                " leave out the zone."
            )
        return moment
    for plain, family in ((Kind.BOOLEAN, bool), (Kind.STRING, str), (Kind.BINARY, bytes)):
        if kind is plain and isinstance(value, family):
            return value
    hint = {
        Kind.BINARY: "; write bytes or X'...'",
        Kind.STRING: "; write it in quotes",
        Kind.BOOLEAN: "; write TRUE or FALSE",
    }.get(kind, "; write the number without quotes" if kind in NUMBERS and isinstance(value, str) else "")
    raise UsageError(
        f"Column {column} is {describe(column.type)} and does not compare with {type_name(value)} {value!r}{hint}."
    )


def _read(column: Column, parse: Callable[[str], Day | Moment], text: str) -> Day | Moment:
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"Column {column} is {describe(column.type)}: {error.message}") from None


@dataclass(frozen=True)
class _Grid:
    """The values of a type as consecutive integers from ``low`` to ``high``, in their order.

    ``value(index)`` is the value there; ``exact(value)`` is the constant as a value of the type, if it is one.
    """

    low: int
    high: int
    value: Callable[[int], Value]
    exact: Callable[[Value], Value]


def _rewrite(op: Op, column: Column, value: Value, grid: _Grid) -> Expression:
    """Compare with the neighbours of a constant between two values of the column's type, or beyond all of them."""
    first = _search(grid, lambda ordering: ordering >= 0, value)
    last = _search(grid, lambda ordering: ordering > 0, value) - 1

    def at(op: Op, index: int) -> Expression:
        if grid.low <= index <= grid.high:
            return Comparison(op, column, Literal(grid.value(index)))
        below = index < grid.low
        # Beyond the range each comparison is always true or always false; nulls stay unknown either way.
        always = op in ((Op.GE, Op.GT) if below else (Op.LE, Op.LT))
        return Comparison(Op.GE if always else Op.LT, column, Literal(grid.value(grid.low)))

    if op in (Op.GE, Op.LT):
        return at(op, first)
    if op in (Op.GT, Op.LE):
        return at(op, last)
    if first == last:
        return at(op, first)
    if first > last:
        return at(Op.LT if op is Op.EQ else Op.GE, grid.low)
    # Several values of the column equal the constant once both are doubles.
    equal = And((at(Op.GE, first), at(Op.LE, last)))
    return equal if op is Op.EQ else Not(equal)


def _search(grid: _Grid, found: Callable[[int], bool], value: Value) -> int:
    low, high = grid.low, grid.high + 1
    while low < high:
        middle = (low + high) // 2
        if found(order(grid.value(middle), value) or 0):
            high = middle
        else:
            low = middle + 1
    return low


def _grid(data_type: pa.DataType, kind: Kind) -> _Grid | None:
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if kind is Kind.INTEGER:
        return _integer_grid(data_type)
    if kind is Kind.DECIMAL:
        return _decimal_grid(data_type)
    if kind is Kind.FLOATING:
        return _FLOAT_GRID if pa.types.is_float32(data_type) else None
    if kind is Kind.DATE:
        return _DATE_GRID
    if kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        return _TIMESTAMP_GRIDS[kind]
    return None


def _integer_grid(data_type: pa.DataType) -> _Grid:
    signed = pa.types.is_signed_integer(data_type)
    low = -(1 << (data_type.bit_width - 1)) if signed else 0
    high = low + (1 << data_type.bit_width) - 1

    def exact(value: Value) -> Value:
        return value if isinstance(value, int) and low <= value <= high else None

    return _Grid(low, high, lambda index: index, exact)


def _decimal_grid(data_type: pa.DataType) -> _Grid:
    high = 10**data_type.precision - 1
    scale = int(data_type.scale)

    def at(index: int) -> Value:
        return decimal.Decimal(index).scaleb(-scale, _WIDE)

    def exact(value: Value) -> Value:
        if not isinstance(value, (int, decimal.Decimal)):
            return None
        unscaled = decimal.Decimal(value).scaleb(scale, _WIDE)
        index = int(unscaled)
        return at(index) if index == unscaled and -high <= index <= high else None

    return _Grid(-high, high, at, exact)


# Enough for any constant that values.normalise lets through, scaled.
_WIDE = decimal.Context(prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def _float_at(index: int) -> float:
    # The bit patterns of non-negative floats count upwards; those of negative ones mirror them.
    found = struct.unpack("<f", struct.pack("<I", abs(index)))[0]
    return float(-found if index < 0 else found)


def _exact_float(value: Value) -> Value:
    number = value if isinstance(value, float) else math.nan
    if not math.isfinite(number):
        return number
    try:
        return number if struct.unpack("<f", struct.pack("<f", number))[0] == number else None
    except OverflowError:
        return None


_FLOAT_GRID = _Grid(-0x7F800000, 0x7F800000, _float_at, _exact_float)


def _exact_day(value: Value) -> Value:
    return value if isinstance(value, Day) and _DATE_GRID.low <= value.days <= _DATE_GRID.high else None


_DATE_GRID = _Grid(-(1 << 31), (1 << 31) - 1, Day, _exact_day)


def _timestamp_grid(zone: Zone) -> _Grid:
    low, high = -(1 << 63), (1 << 63) - 1

    def exact(value: Value) -> Value:
        nanos = value.days * 86_400_000_000_000 if isinstance(value, Day) else getattr(value, "nanoseconds", 1)
        micros, rest = divmod(nanos, 1000)
        return Moment(nanos, zone) if rest == 0 and low <= micros <= high else None

    return _Grid(low, high, lambda index: Moment(index * 1000, zone), exact)


_TIMESTAMP_GRIDS = {Kind.TIMESTAMP: _timestamp_grid(Zone.UTC), Kind.TIMESTAMP_NTZ: _timestamp_grid(Zone.LOCAL)}
