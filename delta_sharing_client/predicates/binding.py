"""Binds a predicate to a schema: resolves its columns and converts its constants to their columns' types.

In a bound predicate, every column has its path as spelled in the schema and its Arrow type, and every constant compared
with a column has *that column's type*. If a constant is not a value of the type, the comparison is rewritten to an
equivalent one: an integer column ``> 1.5`` becomes ``>= 2``; a byte column ``= 300`` becomes ``< -128``, which is
false, or unknown for null, like the original. So interpreters never convert constants and cannot overflow.

The types that can be compared are those of :class:`.value_kinds.Kind`; columns of other types (arrays, maps, structs,
variants, intervals) support only ``IS NULL``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Union

import pyarrow as pa

from delta_sharing_client.columns import Names
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.advice import backticks_advice, quoted
from delta_sharing_client.predicates.dialect import check_call, check_comparison
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.text_spans import Span
from delta_sharing_client.predicates.tree import (
    And,
    Call,
    Column,
    Comparison,
    DoubleQuoted,
    Expression,
    In,
    IsNull,
    Joined,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Operand,
    StartsWith,
    any_of,
    call,
    has_calls,
)
from delta_sharing_client.predicates.value_kinds import (
    DATES,
    KINDS,
    NUMBERS,
    Grid,
    Kind,
    describe,
    kind_of,
    type_of_values,
)
from delta_sharing_client.predicates.values import Day, Interval, Moment, Value, Zone, format_value, order, type_name

UNKNOWN = Literal(None)
# A bound operand that has a type, in contrast to a constant.
Typed = Union[Column, Call]


def bind(expression: Expression, schema: pa.Schema | Names) -> Expression:
    """Return ``expression`` with the columns of ``schema`` and constants of their types.

    Names match case-insensitively, an exact match first; pass ``Names`` to index a schema once for many expressions.
    Timestamp constants without a zone are in UTC. Raises ``UsageError`` if a column does not exist or is ambiguous, if
    a column cannot be compared with a constant or another column, or if a string is not a date or timestamp.
    """
    return _Binder(schema).bind(expression)


def is_exact(test: Expression, schema: pa.Schema) -> bool:
    """Return whether an engine's test has the same meaning here.

    The test must bind, and its constants must be values of its column's type: for other constants, some engines convert
    the column, some the constant, and some round it.
    """
    match test:
        case And(children=children):
            return all(is_exact(child, schema) for child in children)
        case In(child=child, values=values):
            return all(is_exact(Comparison(Op.EQ, child, value), schema) for value in values)
        case NullSafeEqual(left=left, right=Literal(value=value)):
            return is_exact(IsNull(left) if value is None else Comparison(Op.EQ, left, Literal(value)), schema)
        case Not(child=child):
            return is_exact(child, schema)
        case Literal(value=value):
            return value is False
    try:
        bound = bind(test, schema)
    except (UsageError, TypeError):
        return False
    if has_calls(test):
        # Engines differ in overflow, for example; functions that keep the order of dates are the same everywhere.
        match test:
            case Comparison(left=Call(name=name, arguments=(Column(),)), right=Literal(value=value)):
                keeps_order = functions.ROWS[name].interval is not None and not has_calls(bound)
                return keeps_order and isinstance(value, (Day, int))
        return False
    match test, bound:
        case Comparison(op=op, right=Literal(value=value)), Comparison(left=Column() as column, op=kept) if kept is op:
            row = KINDS[_kind(column)]
            return isinstance(value, row.own) and getattr(value, "zone", None) is row.zone
    return not isinstance(test, Comparison)


def double_quoted(expression: Expression) -> list[str]:
    """Return the strings that the SQL text of an unbound predicate has in double quotes."""
    match expression:
        case DoubleQuoted(child=inner, texts=texts):
            return [*(text for text, _ in texts), *double_quoted(inner)]
        case Not(child=inner):
            return double_quoted(inner)
        case Joined(children=children):
            return [text for child in children for text in double_quoted(child)]
    return []


def fixed(expression: Expression, now: Moment) -> Expression:
    """Return ``expression`` with ``current_date()`` and ``now()`` replaced by their values at the time ``now``."""
    if isinstance(expression, (Not, DoubleQuoted)):
        return dataclasses.replace(expression, child=fixed(expression.child, now))
    if isinstance(expression, Joined):
        return type(expression)(tuple(fixed(child, now) for child in expression.children))
    parts = {
        name: _fixed_operand(part, now)
        for name in expression.__match_args__  # type: ignore[attr-defined]
        if isinstance(part := getattr(expression, name), Call)
    }
    return dataclasses.replace(expression, **parts) if parts else expression  # type: ignore[type-var]


def _fixed_operand(operand: Operand, now: Moment) -> Operand:
    if not isinstance(operand, Call):
        return operand
    if operand.arguments:
        computed = call(operand.name, *(_fixed_operand(item, now) for item in operand.arguments))
        return dataclasses.replace(computed, in_sql=operand.in_sql) if isinstance(computed, Call) else computed
    at = functions.ROWS[operand.name].value
    assert at is not None
    return Literal(at(now))


class _Binder:
    def __init__(self, schema: pa.Schema | Names) -> None:
        self._names = schema if isinstance(schema, Names) else Names(schema)

    def bind(self, expression: Expression) -> Expression:
        match expression:
            case Joined(children=children):
                return type(expression)(tuple(map(self.bind, children)))
            case Not(child=inner):
                return Not(self.bind(inner))
            case DoubleQuoted(child=inner, texts=texts):
                for text, span in texts:
                    self._check_string(text, span)
                return self.bind(inner)
            case Comparison(op=op, left=left, right=right):
                return self._comparison(op, self._operand(left), self._value(right))
            case NullSafeEqual(left=left, right=right):
                return self._null_safe(self._operand(left), self._value(right))
            case In(child=child, values=values):
                return self._in(self._operand(child), values)
            case IsNull(child=child):
                operand = self._operand(child)
                return Literal(operand.value is None) if isinstance(operand, Literal) else IsNull(operand)
            case Like() | StartsWith():
                return self._text(expression)
            case Literal():
                evaluate(expression, {})  # refuses a constant that is not a truth value
                return expression
        raise TypeError(f"not a predicate: {type(expression).__name__}")

    def _check_string(self, text: str, span: Span) -> None:
        if self._names.may_mean(text):
            refused = UsageError(
                f"The filter has the name of a column, '{text}', in double quotes, which enclose strings here. "
                f"{backticks_advice(text)}"
            )
            refused.span = span
            raise refused

    def _operand(self, operand: Operand) -> Operand:
        if isinstance(operand, Column):
            try:
                fields = self._names.resolve(operand.path)
            except UsageError:
                if advice := self._advice(operand.path):
                    raise UsageError(f"The column '{operand}' is not in the table. {advice}") from None
                raise
            return dataclasses.replace(operand, path=tuple(field.name for field in fields), type=fields[-1].type)
        if isinstance(operand, Call):
            return _bind_call(operand, [self._operand(item) for item in operand.arguments])
        return operand

    def _value(self, operand: Operand) -> Operand:
        """Bind the second side of a comparison, where an unknown name is often a string without quotes."""
        try:
            return self._operand(operand)
        except UsageError as error:
            if isinstance(operand, Column) and len(operand.path) == 1:
                raise UsageError(f"{error.message} {quoted(operand.path[0])}") from None
            raise

    def _advice(self, path: tuple[str, ...]) -> str:
        if len(path) > 1 and self._names.find(path[-1:]) is not None:
            return f"Write the name of the column alone: {path[-1]}."
        if len(path) > 1 and path[-1].lower() in functions.FUNCTIONS and self._names.find(path[:1]) is not None:
            return f"Write {path[-1].lower()}({path[0]}) for the function."
        return ""

    def _comparison(self, op: Op, left: Operand, right: Operand) -> Expression:
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                return Literal(_constant(Comparison(op, left, right)))
            return self._comparison(op.flipped, right, left)
        if isinstance(right, Literal):
            return _solved(_compare(op, left, right.value))
        _check_comparable(left, right)
        return UNKNOWN if Kind.VOID in (_kind(left), _kind(right)) else Comparison(op, left, right)

    def _null_safe(self, left: Operand, right: Operand) -> Expression:
        if isinstance(left, Literal):
            left, right = right, left
        if isinstance(left, Literal):
            return Literal(_constant(NullSafeEqual(left, right)))
        if isinstance(right, Literal):
            if right.value is None:
                return IsNull(left)
            match _compare(Op.EQ, left, right.value):
                case Comparison(op=Op.EQ, left=bound, right=value):
                    return NullSafeEqual(bound, value)
                case equal:  # The test may be a range, whose unknown result for null must become false.
                    return And((equal, Not(IsNull(left))))
        _check_comparable(left, right)
        if _kind(left) is Kind.VOID:
            return IsNull(right)
        return IsNull(left) if _kind(right) is Kind.VOID else NullSafeEqual(left, right)

    def _in(self, column: Operand, values: tuple[Literal, ...]) -> Expression:
        if isinstance(column, Literal):
            return Literal(_constant(In(column, values)))
        nulls = tuple(item for item in values if item.value is None)
        operand: Operand = column
        single: dict[Literal, None] = {}
        ranges: list[Expression] = []
        for item in values:
            if item.value is None:
                continue
            match _compare(Op.EQ, column, item.value):
                case Comparison(op=Op.EQ, left=operand, right=Literal() as value):
                    single[value] = None
                case other:
                    ranges.append(other)
        if single:
            ranges.insert(0, _solved(In(operand, (*single, *nulls))))
        elif nulls:
            ranges.append(UNKNOWN)
        return any_of(dict.fromkeys(ranges))

    def _text(self, test: Like | StartsWith) -> Expression:
        column = self._operand(test.child)
        bound = dataclasses.replace(test, child=column)
        if isinstance(column, Literal):
            return Literal(_constant(bound))
        kind = _kind(column)
        if kind not in (Kind.VOID, Kind.STRING):
            what = "LIKE" if isinstance(test, Like) else "startswith"
            raise UsageError(f"{what} needs a string, but the {_named(column)} has the type {describe(column.type)}.")
        return UNKNOWN if kind is Kind.VOID else bound


# === Operands ===


def _bind_call(unbound: Call, arguments: Sequence[Operand]) -> Operand:
    """Return a call of bound arguments with its type, or its constant value."""
    shown = str(unbound)
    typed = call(unbound.name, *arguments)
    if not isinstance(typed, Call):
        return typed
    name, arguments = typed.name, typed.arguments
    present = [item for item in arguments if not _is_void(item)]
    skips_nulls = functions.ROWS[name].skips_nulls
    if skips_nulls and len(present) < 2:
        return present[0] if present else Literal(None)
    if not skips_nulls and len(present) < len(arguments):
        return Literal(None)
    arguments = present
    data_type = functions.result_type(
        name, [item.value if isinstance(item, Literal) else item.type for item in arguments], shown
    )
    check_call(Call(name, tuple(arguments), data_type), is_cast=unbound.in_sql)
    if skips_nulls:
        arguments = [_as_argument(item, data_type) for item in arguments]
    return Call(name, tuple(arguments), data_type)


def _is_void(operand: Operand) -> bool:
    return operand.value is None if isinstance(operand, Literal) else _kind(operand) is Kind.VOID


def _as_argument(operand: Operand, data_type: pa.DataType) -> Operand:
    if not isinstance(operand, Literal):
        return operand
    row = KINDS[kind_of(data_type)]
    value = row.admits[type(operand.value)](operand.value)
    if row.zone is Zone.LOCAL and isinstance(value, Moment) and value.zone is Zone.UTC:
        raise UsageError(
            f"The instant {value} cannot be compared with timestamps without time zone. Leave out the zone."
        )
    return Literal(functions.as_type(value, data_type))


def _solved(bound: Expression) -> Expression:
    """Rewrite each test of a year, for example, as a test of its argument, which statistics and servers support."""
    match bound:
        case Comparison(
            op=op, left=Call(name=name, arguments=((Column() | Call()) as operand,)), right=Literal(value=value)
        ) if value is not None and _kind(operand) in DATES:
            interval = functions.ROWS[name].interval
            return bound if interval is None else _within(op, operand, *interval(value))
        case In(child=Call(arguments=(Column(),)) as child, values=values) if functions.ROWS[child.name].interval:
            return any_of(UNKNOWN if item.value is None else _solved(Comparison(Op.EQ, child, item)) for item in values)
    return bound


def _within(op: Op, operand: Typed, first: Value, following: Value) -> Expression:
    if op in (Op.EQ, Op.NE):
        equal = And((_compare(Op.GE, operand, first), _compare(Op.LT, operand, following)))
        return equal if op is Op.EQ else Not(equal)
    # The arguments with the tested result are those from ``first`` to before ``following``.
    start = first if op in (Op.LT, Op.GE) else following
    return _compare(Op.LT if op in (Op.LT, Op.LE) else Op.GE, operand, start)


def _named(operand: Typed) -> str:
    return f"{'column' if isinstance(operand, Column) else 'expression'} '{operand}'"


def _kind(operand: Typed) -> Kind:
    return kind_of(operand.type)


_COMPARABLE = (
    NUMBERS,
    frozenset((Kind.DATE, Kind.TIMESTAMP)),
    frozenset((Kind.DATE, Kind.TIMESTAMP_NTZ)),
)


def _check_comparable(left: Typed, right: Typed) -> None:
    """Raise ``UsageError`` if two bound operands cannot be compared."""
    check_comparison(left, right)
    pair = {_kind(left), _kind(right)}
    if Kind.OTHER not in pair and (
        len(pair) == 1 or Kind.VOID in pair or any(pair <= family for family in _COMPARABLE)
    ):
        return
    hint = " A column of such a type can only be tested with IS NULL." if Kind.OTHER in pair else ""
    one, other = (f"{_named(side)} ({describe(side.type)})" for side in (left, right))
    raise UsageError(f"The {one} cannot be compared with the {other}.{hint}")


def _constant(expression: Expression) -> bool | None:
    try:
        return evaluate(expression, {})
    except UsageError as error:
        raise UsageError(
            f"{error.message} No column is involved: write names in backticks, not in quotes, as in `a b`."
        ) from None


# === Constants in the type of the other side ===


def _compare(op: Op, column: Typed, value: Value) -> Expression:
    """Return ``column op value`` with constants of the type of ``column``, which is bound."""
    kind = kind_of(column.type)
    if kind is Kind.OTHER:
        raise UsageError(
            f"The {_named(column)} has the type {describe(column.type)}, which cannot be compared."
            " Test it with IS NULL, or name a field in it."
        )
    if value is None or kind is Kind.VOID:
        return UNKNOWN
    value = _admit(column, kind, value)
    match column:
        case Call(name="+", arguments=((Column() | Call()) as operand, Literal(value=Interval() as interval))) if (
            interval.unit != "MONTH"
        ):
            # Moving the interval to the constant is exact and cannot overflow.
            return _compare(op, operand, functions.shifted(functions.as_type(value, column.type), -interval))
    grid = KINDS[kind].grid(type_of_values(column.type))
    if grid is None:
        return Comparison(op, column, Literal(value))
    exact = grid.exact(value)
    if exact is not None:
        return Comparison(op, column, Literal(exact))
    return _rewrite(op, column, value, grid)


def _admit(column: Typed, kind: Kind, value: Value) -> Value:
    """Return a constant converted for a comparison with the column, such as a string parsed as a date."""
    row = KINDS[kind]
    convert = row.admits.get(type(value))
    if convert is None:
        hint = row.advice if kind not in NUMBERS or isinstance(value, str) else ""
        if isinstance(value, bool):  # this also occurs for a filter such as `country`
            hint = (
                " A column without a comparison must be boolean. On a command line, write the whole filter in quotes."
            )
        raise UsageError(
            f"The {_named(column)} has the type {describe(column.type)} and cannot be compared with the "
            f"{type_name(value)} {format_value(value)}.{hint}"
        )
    try:
        converted = convert(value)
    except UsageError as error:
        raise UsageError(f"The {_named(column)} has the type {describe(column.type)}. {error.message}") from None
    if row.zone is Zone.LOCAL and isinstance(converted, Moment) and converted.zone is Zone.UTC:
        raise UsageError(
            f"The {_named(column)} is a timestamp without time zone and cannot be compared with the instant "
            f"{converted}. Leave out the zone."
        )
    check_comparison(column, Literal(value if kind in NUMBERS else converted))
    return converted


def _rewrite(op: Op, column: Typed, value: Value, grid: Grid) -> Expression:
    """Compare with the neighbors of a constant that lies between or beyond the values of the column's type."""
    first = _search(grid, lambda ordering: ordering >= 0, value)
    last = _search(grid, lambda ordering: ordering > 0, value) - 1

    def at(op: Op, index: int) -> Expression:
        if grid.low <= index <= grid.high:
            return Comparison(op, column, Literal(grid.value(index)))
        below = index < grid.low
        # Beyond the range, each comparison is always true or always false, except that nulls stay unknown.
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
    # Several values of the column equal the constant after conversion to double.
    equal = And((at(Op.GE, first), at(Op.LE, last)))
    return equal if op is Op.EQ else Not(equal)


def _search(grid: Grid, is_reached: Callable[[int], bool], value: Value) -> int:
    low, high = grid.low, grid.high + 1
    while low < high:
        middle = (low + high) // 2
        ordering = order(grid.value(middle), value)
        assert ordering is not None, "a constant that has a grid is not null"
        if is_reached(ordering):
            high = middle
        else:
            low = middle + 1
    return low
