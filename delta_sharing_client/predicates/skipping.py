"""Evaluates a bound predicate on statistics: can a file, or a row group, contain a matching row?

The result is "no" only if that is proven. Statistics may be incomplete, wide or truncated; an unknown value skips
nothing. ``NOT`` is pushed down to the comparisons first, which three-valued logic allows, so each leaf only has to
decide whether it can be *true* for some row.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

import pyarrow as pa

from delta_sharing_client.columns import ColumnPath
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.predicates.functions import CASTS, ROWS, Range, apply
from delta_sharing_client.predicates.lists import InSortedList, SortedValues, listed, narrowed
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.tree import (
    And,
    Call,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Operand,
    Or,
    StartsWith,
    columns_in,
    has_calls,
    operands,
    push_not,
)
from delta_sharing_client.predicates.value_kinds import KINDS, Kind, comparable, kind_of, type_of_values
from delta_sharing_client.predicates.values import Value, as_float


class Bounds(Protocol):
    """The known bounds of one column.

    Attributes
    ----------
    lower, upper:
        No non-null value is smaller than ``lower`` or larger than ``upper``; ``None`` if unknown. They are ``bool``,
        ``int``, ``float``, ``Decimal``, ``str`` or ``bytes``; a date is ``int`` days and a timestamp ``int``
        nanoseconds since 1970 (UTC, or local time). For floating point, ``upper`` is not assumed to cover ``NaN``.
    null_count, row_count:
        The numbers of nulls and rows; ``None`` if unknown. Whether ``null_count`` is 0 or ``row_count`` is all
        that matters.
    upper_without_nan:
        For floating point: no value other than null and ``NaN`` is larger; ``None`` if unknown.
    """

    @property
    def lower(self) -> Any | None: ...
    @property
    def upper(self) -> Any | None: ...
    @property
    def null_count(self) -> int | None: ...
    @property
    def row_count(self) -> int | None: ...
    @property
    def upper_without_nan(self) -> float | None: ...


class Statistics(Protocol):
    """The statistics of the columns of one file or row group."""

    def bounds(self, path: ColumnPath) -> Bounds | None:
        """Return the bounds of a column by its (logical) path, or ``None``."""


def compile_skipping(expression: Expression) -> Callable[[Statistics], bool]:
    """Return a test of statistics for the bound ``expression``, prepared for many files.

    The test returns ``False`` only if no row that the statistics describe can match.
    """
    test = _compile(push_not(expression))
    if test is None:
        return lambda statistics: True
    prepared = test

    def decide(statistics: Statistics) -> bool:
        try:
            return prepared(statistics)
        except TypeError:
            # Bounds of a type other than the column's prove nothing.
            return True

    return decide


def within(expression: Expression, statistics: Statistics) -> Expression:
    """Return a predicate that is equivalent to the prepared ``expression`` for the rows that ``statistics`` describe,
    but looks up fewer values of long lists."""

    def positions(membership: InSortedList) -> range:
        column = membership.child
        if not isinstance(column, Column) or len(membership.known.keys) < _LONG_LIST:
            return membership.positions
        bounds = statistics.bounds(column.path)
        if bounds is None:
            return membership.positions
        try:
            if kind_of(column.type) is not Kind.FLOATING:
                return membership.known.span(bounds.lower, bounds.upper)
            lower, upper = _ends_of(column)
            return membership.known.span(lower(bounds), upper(bounds))
        except TypeError:
            return membership.positions  # bounds of a type other than the column's

    return narrowed(expression, positions)


# With fewer values, looking them up in Arrow is faster than comparing statistics.
_LONG_LIST = 64

_Test = Callable[[Statistics], bool]
_Leaf = Callable[[Any], bool]


def _compile(expression: Expression) -> _Test | None:
    """Return a test of whether the predicate can be true; ``None`` if it always can."""
    match expression:
        case And(children=children):
            return _all([test for test in map(_compile, children) if test is not None])
        case Or(children=children):
            tests = [_compile(child) for child in children]
            return None if None in tests else _any([test for test in tests if test is not None])
        case Literal(value=value):
            return None if value is True else lambda statistics: False
        case Not(child=inner):
            return _compile_leaf(inner, negated=True)
    return _compile_leaf(expression, negated=False)


def _all(tests: list[_Test]) -> _Test | None:
    if len(tests) < 2:
        return tests[0] if tests else None

    def test(statistics: Statistics) -> bool:
        for part in tests:  # noqa: SIM110 - a plain loop is twice as fast as all()
            if not part(statistics):
                return False
        return True

    return test


def _any(tests: list[_Test]) -> _Test:
    def test(statistics: Statistics) -> bool:
        for part in tests:  # noqa: SIM110
            if part(statistics):
                return True
        return False

    return test


def _compile_leaf(expression: Expression, *, negated: bool) -> _Test | None:
    if has_calls(expression):
        tests = (_compile_range(expression, negated=negated), _compile_computed(expression, negated=negated))
        return _all([test for test in tests if test is not None])
    match expression:
        case Comparison(left=Column() as left, right=Column() as right, op=op):
            return _pair(op, left, right)
        case NullSafeEqual(left=Column() as left, right=Column() as right):
            # Two nulls are equal here, so the bounds of two columns prove little.
            return None
        case Comparison(op=op, left=Column() as column, right=Literal(value=value)):
            return _on_values(column, _comparison(op, column, value))
        case NullSafeEqual(left=Column() as column, right=Literal(value=value)):
            if not negated:
                return _on_values(column, _comparison(Op.EQ, column, value))
            differs = _on_values(column, _comparison(Op.NE, column, value))
            null = _on_bounds(column, _may_be_null)
            return _any([differs, null])
        case In(child=Column() as column):
            return _on_values(column, (_not_in if negated else _in)(column, listed(expression)))
        case IsNull(child=Column() as column):
            return _on_values(column, _possible) if negated else _on_bounds(column, _may_be_null)
        case Like(child=Column() as column):
            pattern = re.compile(expression.regex())
            return _on_values(column, _text(expression.prefix, lambda t: bool(pattern.fullmatch(t)), negated=negated))
        case StartsWith(child=Column() as column, prefix=prefix):
            return _on_values(column, _text(prefix, lambda text: text.startswith(prefix), negated=negated))
    raise TypeError(f"not a bound predicate: {expression}")


def _compile_computed(expression: Expression, *, negated: bool) -> _Test:
    """Return the test for a computed value, which is known if each of its columns has a single value, as a partition
    column does."""
    needed = {column.path: column for operand in operands(expression) for column in columns_in(operand)}

    def test(statistics: Statistics) -> bool:
        row: dict[str, Any] = {}
        for path, column in needed.items():
            bounds = statistics.bounds(path)
            if bounds is None or not (_is_null(bounds) or (_has_no_null(bounds) and bounds.lower == bounds.upper)):
                return True
            struct = row
            for name in path[:-1]:
                struct = struct.setdefault(name, {})
            struct[path[-1]] = None if _is_null(bounds) else KINDS[kind_of(column.type)].value(bounds.lower)
        try:
            truth = evaluate(expression, row)
        except (DataError, UsageError):
            return True  # reading the rows raises the error, unless something else excludes them
        return truth is not negated and truth is not None

    return test


_UNKNOWN = Range(None, None)


def _compile_range(expression: Expression, *, negated: bool) -> _Test | None:
    """Return the test for a sum or product of integers and decimals, by the range that follows from their bounds."""
    match expression:
        case (
            Comparison(left=Call() as left, right=Literal(value=value))
            | NullSafeEqual(left=Call() as left, right=Literal(value=value))
        ) if not negated:
            leaf = _ordered(expression.op if isinstance(expression, Comparison) else Op.EQ, value)
        case In(child=Call() as left) if not negated:
            leaf = _among(listed(expression).known)
        case _:
            return None
    range_of = _range_of(left)
    return None if range_of is None else lambda statistics: leaf(range_of(statistics))


def _range_of(operand: Operand) -> Callable[[Statistics], Range] | None:
    if isinstance(operand, Literal):
        constant = Range(_exact(operand.value), _exact(operand.value))
        return lambda statistics: constant
    if kind_of(operand.type) not in (Kind.INTEGER, Kind.DECIMAL):
        return None
    if isinstance(operand, Column):
        path = operand.path

        def bounds(statistics: Statistics) -> Range:
            found = statistics.bounds(path)
            return _UNKNOWN if found is None else Range(_exact(found.lower), _exact(found.upper))

        return bounds
    if operand.name in CASTS:
        return _range_of_cast(operand)
    arithmetic = ROWS[operand.name].arithmetic
    combine = None if arithmetic is None else arithmetic.ranges
    ranges = [_range_of(item) for item in operand.arguments]
    if combine is None or None in ranges:
        return None
    return lambda statistics: combine(*(found(statistics) for found in ranges if found is not None))


def _range_of_cast(operand: Call) -> Callable[[Statistics], Range] | None:
    """Return the range of a cast between integers and decimals, which keeps the order; for a bound that does not fit,
    it is unknown."""
    column, *digits = operand.arguments
    if not isinstance(column, Column) or kind_of(column.type) not in (Kind.INTEGER, Kind.DECIMAL):
        return None
    constants = [item.value for item in digits if isinstance(item, Literal)]

    def cast(bound: Any) -> Any:
        try:
            return _exact(apply(operand.name, [bound, *constants], operand.type, str(operand)))
        except DataError:
            return None

    def bounds(statistics: Statistics) -> Range:
        own = statistics.bounds(column.path)
        return _UNKNOWN if own is None else Range(cast(own.lower), cast(own.upper))

    return bounds


def _exact(value: Any) -> Any:
    # Computing with decimals rounds to the precision of the thread's context; fractions are exact.
    return Fraction(value) if isinstance(value, decimal.Decimal) else value


def _is_null(bounds: Bounds) -> bool:
    nulls, rows = bounds.null_count, bounds.row_count
    return nulls is not None and rows is not None and nulls >= rows


def _has_no_null(bounds: Bounds) -> bool:
    return bounds.null_count == 0 and bounds.lower is not None


# === Leaves: can a row of this column match? ===


def _on_bounds(column: Column, leaf: _Leaf) -> _Test:
    path = column.path

    def test(statistics: Statistics) -> bool:
        bounds = statistics.bounds(path)
        return bounds is None or leaf(bounds)

    return test


def _on_values(column: Column, leaf: _Leaf) -> _Test:
    """Return a test that is true only if there may be rows with a value, and ``leaf`` is true for their bounds."""
    path = column.path

    def test(statistics: Statistics) -> bool:
        bounds = statistics.bounds(path)
        return bounds is None or (not _is_null(bounds) and leaf(bounds))

    return test


def _possible(bounds: Any) -> bool:
    return True


def _may_be_null(bounds: Any) -> bool:
    return bounds.null_count is None or bounds.null_count > 0


def _comparison(op: Op, column: Column, value: Value) -> _Leaf:
    kind = kind_of(column.type)
    if kind is Kind.FLOATING:
        return _floating(op, column, value)
    return _ordered(op, comparable(value))


def _ordered(op: Op, limit: Any) -> _Leaf:
    if op is Op.EQ:
        return lambda b: (b.lower is None or b.lower <= limit) and (b.upper is None or b.upper >= limit)
    if op is Op.NE:
        return lambda b: b.lower != limit or b.upper != limit
    if op is Op.LT:
        return lambda b: b.lower is None or b.lower < limit
    if op is Op.LE:
        return lambda b: b.lower is None or b.lower <= limit
    if op is Op.GT:
        return lambda b: b.upper is None or b.upper > limit
    return lambda b: b.upper is None or b.upper >= limit


def _floating(op: Op, column: Column, value: Value) -> _Leaf:
    limit: Any = value
    # NaN is greater than every number, and bounds do not exclude it.
    if op in (Op.GT, Op.GE, Op.NE):
        return _possible
    lower, upper = _ends_of(column)
    if op is Op.EQ:
        return lambda b: not (lower(b) > limit or upper(b) < limit)
    return (lambda b: not lower(b) >= limit) if op is Op.LT else (lambda b: not lower(b) > limit)


def _in(column: Column, membership: InSortedList) -> _Leaf:
    if membership.known.has_nan:
        return _possible
    if kind_of(column.type) is not Kind.FLOATING:
        return _among(membership.known)
    lower, upper = _ends_of(column)
    span = membership.known.span
    return lambda b: bool(span(lower(b), upper(b)))


def _among(values: SortedValues) -> _Leaf:
    return lambda b: bool(values.span(b.lower, b.upper))


def _not_in(column: Column, unwanted: InSortedList) -> _Leaf:
    values = unwanted.known
    if values.has_null:
        return lambda bounds: False  # NOT IN is false for a hit, unknown for a miss
    if kind_of(column.type) is Kind.FLOATING:
        return _possible
    return lambda b: b.lower != b.upper or b.lower is None or not values.span(b.lower, b.lower)


def _text(prefix: str, matches: Callable[[str], bool], *, negated: bool) -> _Leaf:
    def test(bounds: Any) -> bool:
        lower, upper = bounds.lower, bounds.upper
        if lower is not None and lower == upper:
            return matches(lower) is not negated
        if negated:
            return True
        if upper is not None and upper < prefix:
            return False
        return lower is None or lower[: len(prefix)] <= prefix

    return test


def _pair(op: Op, left: Column, right: Column) -> _Test | None:
    kinds = {kind_of(left.type), kind_of(right.type)}
    # Doubles round and have NaN, and dates and timestamps differ in unit, so their bounds prove too little.
    if Kind.FLOATING in kinds or (len(kinds) > 1 and not kinds <= {Kind.INTEGER, Kind.DECIMAL}):
        return None
    compare = _PAIRS[op]

    def test(statistics: Statistics) -> bool:
        a, b = statistics.bounds(left.path), statistics.bounds(right.path)
        return a is None or b is None or compare(a, b)

    return test


def _may_be_less(a: Any, b: Any) -> bool:
    return a.lower is None or b.upper is None or bool(a.lower < b.upper)


def _may_be_at_most(a: Any, b: Any) -> bool:
    return a.lower is None or b.upper is None or bool(a.lower <= b.upper)


def _may_differ(a: Any, b: Any) -> bool:
    ends = (a.lower, a.upper, b.lower, b.upper)
    return None in ends or any(end != a.lower for end in ends)


_PAIRS: dict[Op, Callable[[Any, Any], bool]] = {
    Op.LT: _may_be_less,
    Op.LE: _may_be_at_most,
    Op.GT: lambda a, b: _may_be_less(b, a),
    Op.GE: lambda a, b: _may_be_at_most(b, a),
    Op.EQ: lambda a, b: _may_be_at_most(a, b) and _may_be_at_most(b, a),
    Op.NE: _may_differ,
}


# === Values in statistics ===


def _lower64(bounds: Any) -> float:
    return -math.inf if bounds.lower is None else bounds.lower


def _upper64(bounds: Any) -> float:
    upper = bounds.upper if bounds.upper_without_nan is None else bounds.upper_without_nan
    return math.inf if upper is None else upper


def _ends_of(column: Column) -> tuple[Callable[[Any], float], Callable[[Any], float]]:
    return (_lower32, _upper32) if pa.types.is_float32(type_of_values(column.type)) else (_lower64, _upper64)


# A bound may have been the shortest text of a float, which reads back as a slightly different double.


def _lower32(bounds: Any) -> float:
    lower = _lower64(bounds)
    return min(lower, as_float(lower))


def _upper32(bounds: Any) -> float:
    upper = _upper64(bounds)
    return max(upper, as_float(upper))
