"""What a server is told of a bound predicate: ``jsonPredicateHints`` (protocol, "JSON predicates for Filtering").

A hint may let a server leave out files, so it must be true of every row that the filter is true of, *and* stay so
however a server evaluates it. The weakening therefore also steps around what servers are known to do:

- They evaluate comparisons on minimum and maximum and then negate the answer: ``NOT (a = 1)`` would lose every file
  that has a 1 and something else. So ``NOT`` is pushed into the comparisons, and inequalities are only sent for
  partition columns, of which there is one value a file.
- They take a column with statistics for one without nulls, and one without for all null: tests for null are only sent
  for partition columns.
- Of ``NaN``, which exceeds every number here, statistics say nothing, or it is their maximum, which exceeds nothing
  where a server compares: no lower limit is sent for floating point but for partition columns.
- Bounds of 32-bit floats are their shortest texts, which as doubles are other numbers, up to half a 32-bit step away on
  either side; and a column of doubles may have been one of floats. So the limits sent are 32-bit numbers beyond which
  no such text lies, and equality is never asked of floating point.
- Statistics have milliseconds: limits of timestamps are moved outward to whole ones.
- Java compares strings by UTF-16 units, we by UTF-8 bytes: constants for which that differs are not sent.
- Writers cut long strings, possibly in the middle of a character: constants are cut, too, where a cut maximum could be
  smaller.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from delta_sharing_client.instants import format_date
from delta_sharing_client.predicates.kinds import Kind, kind_of
from delta_sharing_client.predicates.tree import (
    And,
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
    Or,
    StartsWith,
    all_of,
    any_of,
    push_not,
)
from delta_sharing_client.predicates.values import Day, Moment, Value, Zone, order

# The reference server evaluates nothing beyond these.
MAX_DEPTH = 100
MAX_BYTES = 1024 * 1024

NAMES = {
    Op.EQ: "equal",
    Op.LT: "lessThan",
    Op.LE: "lessThanOrEqual",
    Op.GT: "greaterThan",
    Op.GE: "greaterThanOrEqual",
}
_OPEN, _CLOSE = '{"op":"and","children":[', "]}"

# Longer lists become a range; the JVM client has the same limit.
MAX_IN_VALUES = 20

# What writers keep of a string at least: 32 UTF-16 units, the last of which may be damaged.
_KEPT_CHARACTERS = 31


def to_json_hints(expression: Expression, partition_columns: Collection[str] = ()) -> str | None:
    """Return what the protocol can say of a bound predicate, as the JSON text of ``jsonPredicateHints``.

    The hint is never stronger than the predicate, see this module's description; ``None`` if nothing can be said.

    Parameters
    ----------
    expression:
        A bound predicate.
    partition_columns:
        The table's partition columns: of these, inequalities and tests for null can be sent as well.
    """
    weakened = weaken(expression, partition_columns)
    if weakened is None:
        return None
    kept: list[str] = []
    room = MAX_BYTES - len(_OPEN) - len(_CLOSE)
    for part in weakened.children if isinstance(weakened, And) else (weakened,):
        text = json.dumps(_write(part), separators=(",", ":"))
        # One level is for the AND around the conditions, one byte for a comma.
        if _depth(part) < MAX_DEPTH and len(text) + 1 <= room:
            kept.append(text)
            room -= len(text) + 1
    if len(kept) < 2:
        return kept[0] if kept else None
    return _OPEN + ",".join(kept) + _CLOSE


def weaken(expression: Expression, partition_columns: Collection[str] = ()) -> Expression | None:
    """Return a predicate that is true wherever the bound ``expression`` is, ``None`` if only ``TRUE`` is.

    The result has ``AND``, ``OR`` and, for top-level columns, comparisons with constants (``<>`` only for partition
    columns) and ``IS [NOT] NULL`` (partition columns). An ``AND`` loses the conditions that cannot be said; anything
    else that has one is lost as a whole.

    Parameters
    ----------
    expression:
        A bound predicate.
    partition_columns:
        The names of the table's partition columns, as in its schema.
    """
    return _Weakening(frozenset(partition_columns)).of(push_not(expression))


class _Weakening:
    def __init__(self, partition_columns: frozenset[str]) -> None:
        self.partition_columns = partition_columns

    def of(self, expression: Expression) -> Expression | None:
        match expression:
            case And(children=children):
                return _join([self.of(child) for child in children])
            case Or(children=children):
                return _either([self.of(child) for child in children])
            case Comparison(op=op, left=Column() as column, right=Literal(value=value)):
                return self._comparison(op, column, value)
            case NullSafeEqual(left=Column() as column, right=Literal(value=value)):
                return self._comparison(Op.EQ, column, value)
            case In(child=Column() as column, values=values):
                return self._in(column, [item.value for item in values if item.value is not None])
            case Not(child=In(child=Column() as column, values=values)) if Literal(None) not in values:
                return _join([self._comparison(Op.NE, column, item.value) for item in values[:MAX_IN_VALUES]])
            case IsNull(child=Column() as column) | Not(child=IsNull(child=Column() as column)):
                return expression if self._is_partition(column) else None
            case Like(child=Column() as column):
                return self._prefix(column, expression.prefix)
            case StartsWith(child=Column() as column, prefix=prefix):
                return self._prefix(column, prefix)
        return None

    def _is_partition(self, column: Column) -> bool:
        return column.path[0] in self.partition_columns and _value_type(column) is not None

    def _comparison(self, op: Op, column: Column, value: Value) -> Expression | None:
        kind = kind_of(column.type)
        if _value_type(column) is None:
            return None
        if kind is Kind.BOOLEAN:
            return _boolean(op, column, value)
        if op is Op.NE and not self._is_partition(column):
            return None
        if kind is Kind.FLOATING:
            return _floating(op, column, value, has_one_value=self._is_partition(column))
        if kind is Kind.STRING:
            return _string(op, column, value)
        if kind is Kind.TIMESTAMP:
            return _timestamp(op, column, value)
        if isinstance(value, Day) and not _YEARS[0] <= value.days <= _YEARS[1]:
            return None
        return Comparison(op, column, Literal(value))

    def _in(self, column: Column, values: list[Value]) -> Expression | None:
        if 0 < len(values) <= MAX_IN_VALUES:
            return _either([self._comparison(Op.EQ, column, value) for value in values])
        if not values or any(isinstance(value, float) and math.isnan(value) for value in values):
            return None
        lowest = highest = values[0]
        for value in values:
            lowest = value if (order(value, lowest) or 0) < 0 else lowest
            highest = value if (order(value, highest) or 0) > 0 else highest
        return _join([self._comparison(Op.GE, column, lowest), self._comparison(Op.LE, column, highest)])

    def _prefix(self, column: Column, prefix: str) -> Expression | None:
        if not prefix:
            return None
        limits = [self._comparison(Op.GE, column, prefix)]
        last = ord(prefix[-1]) + 1
        if last < _FIRST_SURROGATE:
            limits.append(self._comparison(Op.LT, column, prefix[:-1] + chr(last)))
        return _join(limits)


def _value_type(column: Column) -> str | None:
    """Return the protocol's ``valueType`` of a bound column, ``None`` if the protocol cannot name it."""
    # A name with a dot could be taken for a path.
    if len(column.path) != 1 or "." in column.path[0]:
        return None
    data_type: Any = column.type
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    kind = kind_of(data_type)
    if kind is Kind.INTEGER and pa.types.is_signed_integer(data_type):
        return "long" if data_type.bit_width == 64 else "int"
    if kind is Kind.FLOATING:
        return "float" if pa.types.is_float32(data_type) else "double"
    return {Kind.BOOLEAN: "bool", Kind.STRING: "string", Kind.DATE: "date", Kind.TIMESTAMP: "timestamp"}.get(kind)


def _join(parts: list[Expression | None]) -> Expression | None:
    found = [part for part in parts if part is not None]
    return all_of(found) if found else None


def _either(parts: list[Expression | None]) -> Expression | None:
    found = [part for part in parts if part is not None]
    return any_of(found) if len(found) == len(parts) else None


# === As JSON ===


def _write(expression: Expression) -> dict[str, Any]:
    match expression:
        case And(children=children):
            return {"op": "and", "children": [_write(child) for child in children]}
        case Or(children=children):
            return {"op": "or", "children": [_write(child) for child in children]}
        case Not(child=inner):
            return {"op": "not", "children": [_write(inner)]}
        case IsNull(child=Column() as column):
            return {"op": "isNull", "children": [_write_column(column)]}
        case Comparison(op=Op.NE, left=left, right=right):
            return _write(Not(Comparison(Op.EQ, left, right)))
        case Comparison(op=op, left=Column() as column, right=Literal(value=value)):
            kind = _value_type(column)
            literal = {"op": "literal", "value": _text(value), "valueType": kind}
            return {"op": NAMES[op], "children": [_write_column(column), literal]}
    raise TypeError(f"not a weakened predicate: {expression}")


def _write_column(column: Column) -> dict[str, Any]:
    return {"op": "column", "name": column.path[0], "valueType": _value_type(column)}


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Moment):
        days, millis = divmod(value.nanoseconds // 1_000_000, 86_400_000)
        seconds = millis // 1000
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{millis % 1000:03d}"
        return f"{format_date(days)}T{clock}Z"
    return str(value)


def _depth(expression: Expression) -> int:
    match expression:
        case And(children=children) | Or(children=children):
            return 1 + max(map(_depth, children))
        case Not(child=inner):
            return 1 + _depth(inner)
        case Comparison(op=Op.NE):
            return 3
    return 2


# === Comparisons by type ===

_FIRST_SURROGATE = 0xD800
_YEARS = (-719_162, 2_932_896)  # days of 0001-01-01 and 9999-12-31


def _boolean(op: Op, column: Column, value: Value) -> Expression | None:
    # Servers do not order booleans. Not to be one of the two values is to be the other.
    if op in (Op.EQ, Op.NE):
        return Comparison(Op.EQ, column, Literal(value if op is Op.EQ else not value))
    return None


# Above the text of the largest 32-bit float, which is a little more than the number itself.
_BEYOND_FLOATS = 3.4028236e38


def _floating(op: Op, column: Column, value: Value, *, has_one_value: bool) -> Expression | None:
    if not isinstance(value, float) or not math.isfinite(value) or op in (Op.GT, Op.GE, Op.NE):
        return None
    below_limit = Comparison(Op.LT, column, Literal(_float_above(value, or_equal=op is Op.LT)))
    if op is not Op.EQ or not has_one_value:
        return below_limit
    return And((below_limit, Comparison(Op.GT, column, Literal(-_float_above(-value, or_equal=False)))))


def _float_above(value: float, *, or_equal: bool) -> float:
    """Return a number below which the text of every 32-bit float up to ``value`` (``or_equal``: below it) lies.

    The text of a float is nearer to it than to its neighbours, so it lies below the next float.
    """
    with np.errstate(all="ignore"):
        near = np.float32(value)
        if float(near) < value or (float(near) == value and not or_equal):
            near = np.nextafter(near, np.float32(math.inf))
    if math.isfinite(near):
        return float(near)
    return _BEYOND_FLOATS if value < _BEYOND_FLOATS else math.nextafter(value, math.inf)


def _string(op: Op, column: Column, value: Value) -> Expression | None:
    if not isinstance(value, str) or any(ord(char) >= _FIRST_SURROGATE for char in value):
        return None
    if len(value) <= _KEPT_CHARACTERS or op in (Op.LT, Op.LE, Op.NE):
        return Comparison(op, column, Literal(value))
    cut = Comparison(Op.GE, column, Literal(value[:_KEPT_CHARACTERS]))
    return And((cut, Comparison(Op.LE, column, Literal(value)))) if op is Op.EQ else cut


def _timestamp(op: Op, column: Column, value: Value) -> Expression | None:
    if not isinstance(value, Moment) or op is Op.NE:
        return None
    floor = value.nanoseconds // 1_000_000
    ceiling = -(-value.nanoseconds // 1_000_000)
    if not all(_YEARS[0] <= millis // 86_400_000 <= _YEARS[1] for millis in (floor, ceiling)):
        return None

    def limit(op: Op, millis: int) -> Expression:
        return Comparison(op, column, Literal(Moment(millis * 1_000_000, Zone.UTC)))

    if op in (Op.LT, Op.LE):
        return limit(op, ceiling)
    if op in (Op.GT, Op.GE):
        # A maximum cut to milliseconds equals the limit that the rows exceed.
        return limit(Op.GE, floor)
    return limit(Op.EQ, floor) if floor == ceiling else And((limit(Op.GE, floor), limit(Op.LE, ceiling)))
