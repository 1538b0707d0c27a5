"""Hints for a server from a bound predicate: ``jsonPredicateHints`` (protocol, "JSON predicates for Filtering").

A hint may let a server omit files, so it must be true for every row for which the filter is true, however the server
evaluates it. The conversion therefore also avoids known problems of servers:

- Servers evaluate comparisons on minimum and maximum and then negate the result: ``NOT (a = 1)`` would lose every file
  with a 1 and another value. So ``NOT`` is pushed into the comparisons, and inequalities are only sent for partition
  columns, which have one value per file.
- Servers assume that a column with statistics has no nulls, and that a column without statistics has only nulls. So
  tests for null are only sent for partition columns.
- Some statistics ignore ``NaN``, which is greater than every number here; in others it is the maximum, which servers
  compare as smaller. So lower limits of floating-point columns are only sent for partition columns.
- Bounds of 32-bit floats are written in their shortest decimal form. As doubles, these are different numbers, up to
  half a 32-bit step away, and a double column may have been widened from float. So limits are 32-bit numbers beyond
  the decimal forms, and equality is never sent for floating point.
- Statistics of timestamps have only milliseconds, so limits are moved outward to whole milliseconds. Before 1972,
  statistics may be wrong by the seconds of a time zone's offset, so limits are moved outward by as much.
- Java compares strings by UTF-16 units, this client by UTF-8 bytes. Constants for which this differs are not sent.
- Writers truncate long strings, possibly in the middle of a character. So constants are truncated too, if a truncated
  maximum could be smaller.

Callers may write such hints themselves. In addition to the protocol's forms, these variants are accepted: operators as
in SQL or in other spellings (``=``, ``ge``, ``AND``), type names of other systems (``integer``, ``bigint``,
``boolean``), a value type on one side only, a list of conditions that must all hold, and hints inside the object of
a request body or inside a JSON string.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import EPOCH_NTZ, OFFSET_ERROR, OFFSETS_WITH_SECONDS_END
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Joined,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Or,
    StartsWith,
    all_of,
    compared,
    known_of_all,
    known_of_any,
    membership,
    push_not,
)
from delta_sharing_client.predicates.value_kinds import Kind, comparable, kind_of, type_of_values
from delta_sharing_client.predicates.values import (
    Day,
    Moment,
    Value,
    Zone,
    double_of,
    float_of,
    integer_of,
    parse_date,
    parse_moment,
)

# The reference server only evaluates hints within these limits.
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

# A longer IN list becomes a range; the JVM client has the same limit.
MAX_IN_VALUES = 20

# Writers keep at least 32 UTF-16 units of a string, the last of which may be damaged.
_KEPT_CHARACTERS = 31


def to_json_hints(expression: Expression, partition_columns: Collection[str] = ()) -> str | None:
    """Return the JSON text of ``jsonPredicateHints`` for a bound predicate, ``None`` if nothing can be sent.

    The hint is never stronger than the predicate; see the module's docstring. For ``partition_columns``, inequalities
    and tests for null are sent as well.
    """
    weakened = weaken(expression, partition_columns)
    if weakened is None:
        return None
    kept: list[str] = []
    room = MAX_BYTES - len(_OPEN) - len(_CLOSE)
    for part in weakened.children if isinstance(weakened, And) else (weakened,):
        text = json.dumps(_write(part), separators=(",", ":"))
        # One level for the AND around the conditions; one byte for a comma.
        if _depth(part) < MAX_DEPTH and len(text) + 1 <= room:
            kept.append(text)
            room -= len(text) + 1
    if len(kept) < 2:
        return kept[0] if kept else None
    return _OPEN + ",".join(kept) + _CLOSE


def weaken(expression: Expression, partition_columns: Collection[str] = ()) -> Expression | None:
    """Return a predicate that is true wherever the bound ``expression`` is, ``None`` if only ``TRUE`` is.

    The result has ``AND``, ``OR`` and, for top-level columns, comparisons with constants (``<>`` only for partition
    columns) and ``IS [NOT] NULL`` (only for partition columns). An ``AND`` loses its unsupported conditions; any other
    node with an unsupported part is dropped completely.
    """
    return _Weakening(frozenset(partition_columns)).of(push_not(expression))


class _Weakening:
    def __init__(self, partition_columns: frozenset[str]) -> None:
        self.partition_columns = partition_columns

    def of(self, expression: Expression) -> Expression | None:
        match expression:
            case And(children=children):
                return known_of_all(map(self.of, children))
            case Or(children=children):
                return known_of_any(map(self.of, children))
            case Comparison(op=op, left=Column() as column, right=Literal(value=value)):
                return self._comparison(op, column, value)
            case NullSafeEqual(left=Column() as column, right=Literal(value=value)):
                return self._comparison(Op.EQ, column, value)
            case In(child=Column() as column, values=values):
                return self._in(column, [item.value for item in values if item.value is not None])
            case Not(child=In(child=Column() as column, values=values)) if Literal(None) not in values:
                return known_of_all(self._comparison(Op.NE, column, item.value) for item in values[:MAX_IN_VALUES])
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
        if _value_type(column) is None:
            return None
        kind, has_one_value = kind_of(column.type), self._is_partition(column)
        if op is Op.NE and not has_one_value and kind is not Kind.BOOLEAN:
            return None
        return _SENT[kind].limits(op, column, value, has_one_value)

    def _in(self, column: Column, values: list[Value]) -> Expression | None:
        if len(values) <= MAX_IN_VALUES:
            return known_of_any(self._comparison(Op.EQ, column, value) for value in values)
        # NaN is the greatest number.
        lowest, *_, highest = sorted(values, key=lambda value: (value != value, comparable(value)))
        return known_of_all([self._comparison(Op.GE, column, lowest), self._comparison(Op.LE, column, highest)])

    def _prefix(self, column: Column, prefix: str) -> Expression | None:
        if not prefix:
            return None
        limits = [self._comparison(Op.GE, column, prefix)]
        last = ord(prefix[-1]) + 1
        if last < _FIRST_SURROGATE:
            limits.append(self._comparison(Op.LT, column, prefix[:-1] + chr(last)))
        return known_of_all(limits)


def _value_type(column: Column) -> str | None:
    """Return the protocol's ``valueType`` of a bound column, ``None`` if the protocol has no name for it."""
    # A name with a dot could be read as a path.
    if len(column.path) != 1 or "." in column.path[0]:
        return None
    row = _SENT.get(kind_of(column.type))
    return None if row is None else row.value_type(type_of_values(column.type))


# === As JSON ===


def _write(expression: Expression) -> dict[str, Any]:
    match expression:
        case Joined(children=children):
            return {"op": type(expression).__name__.lower(), "children": [_write(child) for child in children]}
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
        moment = EPOCH_NTZ + datetime.timedelta(milliseconds=value.nanoseconds // 1_000_000)
        return moment.isoformat(timespec="milliseconds") + "Z"
    return str(value)


def _depth(expression: Expression) -> int:
    match expression:
        case Joined(children=children):
            return 1 + max(map(_depth, children))
        case Not(child=inner):
            return 1 + _depth(inner)
        case Comparison(op=Op.NE):
            return 3
    return 2


# === Comparisons by type ===

_FIRST_SURROGATE = 0xD800
_YEARS = (-719_162, 2_932_896)  # days of 0001-01-01 and 9999-12-31


def _plain(op: Op, column: Column, value: Value, has_one_value: bool) -> Expression | None:
    return Comparison(op, column, Literal(value))


def _boolean(op: Op, column: Column, value: Value, has_one_value: bool) -> Expression | None:
    # Servers do not order booleans, so "not equal" to one value becomes "equal" to the other.
    if op in (Op.EQ, Op.NE):
        return Comparison(Op.EQ, column, Literal(value if op is Op.EQ else not value))
    return None


# Above the decimal form of the largest 32-bit float, which is slightly larger than the number itself.
_BEYOND_FLOATS = 3.4028236e38


def _floating(op: Op, column: Column, value: Value, has_one_value: bool) -> Expression | None:
    if not isinstance(value, float) or not math.isfinite(value) or op in (Op.GT, Op.GE, Op.NE):
        return None
    below_limit = Comparison(Op.LT, column, Literal(_float_above(value, or_equal=op is Op.LT)))
    if op is not Op.EQ or not has_one_value:
        return below_limit
    return And((below_limit, Comparison(Op.GT, column, Literal(-_float_above(-value, or_equal=False)))))


def _float_above(value: float, *, or_equal: bool) -> float:
    """Return a number above the decimal forms of all 32-bit floats up to ``value`` (without ``or_equal``: below it).

    The decimal form of a float is closer to it than to its neighbors, so it is below the next float.
    """
    with np.errstate(all="ignore"):
        near = np.float32(value)
        if float(near) < value or (float(near) == value and not or_equal):
            near = np.nextafter(near, np.float32(math.inf))
    if math.isfinite(near):
        return float(near)
    return _BEYOND_FLOATS if value < _BEYOND_FLOATS else math.nextafter(value, math.inf)


def _string(op: Op, column: Column, value: Value, has_one_value: bool) -> Expression | None:
    if not isinstance(value, str) or any(ord(char) >= _FIRST_SURROGATE for char in value):
        return None
    if len(value) <= _KEPT_CHARACTERS or op in (Op.LT, Op.LE, Op.NE):
        return Comparison(op, column, Literal(value))
    cut = Comparison(Op.GE, column, Literal(value[:_KEPT_CHARACTERS]))
    return And((cut, Comparison(Op.LE, column, Literal(value)))) if op is Op.EQ else cut


def _date(op: Op, column: Column, value: Value, has_one_value: bool) -> Expression | None:
    is_readable = isinstance(value, Day) and _YEARS[0] <= value.days <= _YEARS[1]
    return Comparison(op, column, Literal(value)) if is_readable else None


def _timestamp(op: Op, column: Column, value: Value, has_one_value: bool) -> Expression | None:
    if not isinstance(value, Moment) or op is Op.NE:
        return None
    # A partition has the exact value.
    error = 0 if has_one_value or value.nanoseconds >= OFFSETS_WITH_SECONDS_END else OFFSET_ERROR
    floor = (value.nanoseconds - error) // 1_000_000
    ceiling = -(-(value.nanoseconds + error) // 1_000_000)
    if not all(_YEARS[0] <= millis // 86_400_000 <= _YEARS[1] for millis in (floor, ceiling)):
        return None

    def limit(op: Op, millis: int) -> Expression:
        return Comparison(op, column, Literal(Moment(millis * 1_000_000, Zone.UTC)))

    if op in (Op.LT, Op.LE):
        return limit(op, ceiling)
    if op in (Op.GT, Op.GE):
        # A maximum truncated to milliseconds can equal the limit although rows exceed it.
        return limit(Op.GE, floor)
    return limit(Op.EQ, floor) if floor == ceiling else And((limit(Op.GE, floor), limit(Op.LE, ceiling)))


class _Sent(NamedTuple):
    """The protocol's names for the types of a kind, and the limits that may be sent for a comparison."""

    value_type: Callable[[Any], str | None]
    limits: Callable[[Op, Column, Value, bool], Expression | None]


_SENT: dict[Kind, _Sent] = {
    Kind.BOOLEAN: _Sent(lambda _: "bool", _boolean),
    Kind.INTEGER: _Sent(
        lambda t: ("long" if t.bit_width == 64 else "int") if pa.types.is_signed_integer(t) else None, _plain
    ),
    Kind.FLOATING: _Sent(lambda t: "float" if pa.types.is_float32(t) else "double", _floating),
    Kind.STRING: _Sent(lambda _: "string", _string),
    Kind.DATE: _Sent(lambda _: "date", _date),
    # Servers parse and compare whole microseconds.
    Kind.TIMESTAMP: _Sent(lambda t: None if t.unit == "ns" else "timestamp", _timestamp),
}


# === Hints from callers ===

JsonHints = Union[str, Mapping[str, object], Sequence[object], None]

# Keys of objects that callers put around a predicate, as in a request body.
_WRAPPERS = ("jsonPredicateHints", "json_predicate_hints")


def from_json_hints(hints: object) -> Expression:
    """Parse a caller's ``jsonPredicateHints``, JSON text or a decoded value, as an unbound predicate.

    Raises ``UsageError`` if it is not JSON or not a predicate of the protocol; the message states what is wrong and
    where.
    """
    tree = _decoded(hints) if isinstance(hints, str) else hints
    for _ in range(2):  # the object may contain the hints as a JSON string
        if isinstance(tree, dict) and len(tree) == 1 and next(iter(tree)) in _WRAPPERS:
            (tree,) = tree.values()
            tree = _decoded(tree) if isinstance(tree, str) else tree
    if isinstance(tree, list) and tree:
        return all_of(_Reader().predicate(item, f"$[{index}]", 1) for index, item in enumerate(tree))
    return _Reader().predicate(tree, "$", 1)


def _decoded(text: str) -> Any:
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"The JSON predicate hints must not exceed {MAX_BYTES} bytes, found {len(text.encode())}.")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        raise UsageError(f"The JSON predicate hints are not valid JSON: {reason}.") from None


_OPS = {**{name: op for op, name in NAMES.items()}, "notEqual": Op.NE}
_WORDS = {
    "equal": ("=", "==", "eq", "equals", "equalTo"),
    "lessThan": ("<", "lt"),
    "lessThanOrEqual": ("<=", "le", "lte", "lessThanOrEquals", "lessThanOrEqualTo"),
    "greaterThan": (">", "gt"),
    "greaterThanOrEqual": (">=", "ge", "gte", "greaterThanOrEquals", "greaterThanOrEqualTo"),
    "notEqual": ("!=", "<>", "ne", "neq", "notEquals", "notEqualTo"),
    "isNull": (),
    "isNotNull": (),
    "in": (),
    "and": ("&&",),
    "or": ("||",),
    "not": ("!",),
    "column": (),
    "literal": (),
}
_KNOWN = {word.lower(): name for name, words in _WORDS.items() for word in (name, *words)}
_DEFINED = ("column", "literal", "isNull", *NAMES.values(), "and", "or", "not")


class _Reader:
    """Parses a decoded tree; ``where`` is the JSON path of the node, for messages."""

    def predicate(self, node: Any, where: str, depth: int) -> Expression:
        op = self._op(node, where, depth)
        if op in ("and", "or"):
            children = self._children(node, where)
            if len(children) < 2:
                raise UsageError(f"The operator {op!r} at {where} needs at least two children, found {len(children)}.")
            kind = And if op == "and" else Or
            return kind(tuple(self.predicate(child, path, depth + 1) for path, child in children))
        if op == "not":
            ((path, child),) = self._children(node, where, 1)
            return Not(self.predicate(child, path, depth + 1))
        if op in ("isNull", "isNotNull"):
            ((path, child),) = self._children(node, where, 1)
            operand, _ = self._leaf(child, path, depth + 1)
            # The operand may also be a constant.
            test = IsNull(operand) if isinstance(operand, Column) else Literal(operand.value is None)
            return test if op == "isNull" else Not(test)
        if op in _OPS:
            return self._comparison(_OPS[op], node, where, depth)
        if op == "in":
            return self._in(node, where, depth)
        operand, kind_name = self._leaf(node, where, depth)
        if kind_name != "bool":
            raise UsageError(f"The operator {op!r} at {where} is used as a condition, so its valueType must be bool.")
        if isinstance(operand, Column):
            return Comparison(Op.EQ, operand, Literal(True))
        return operand

    def _comparison(self, op: Op, node: Any, where: str, depth: int) -> Expression:
        children = self._children(node, where, 2)
        types = {kind for path, child in children if (kind := self._type(child, path)) is not None}
        if len(types) > 1:
            raise UsageError(
                f"The children at {where} must have the same valueType, found {' and '.join(sorted(types))}."
            )
        shared = next(iter(types), None)
        return compared(op, *(self._leaf(child, path, depth + 1, shared)[0] for path, child in children))

    def _in(self, node: Any, where: str, depth: int) -> Expression:
        children = self._children(node, where)
        if len(children) < 2:
            raise UsageError(f"The operator 'in' at {where} needs a column and at least one literal.")
        kind = self._type(children[0][1], children[0][0])
        column, *values = (self._leaf(child, path, depth + 1, kind)[0] for path, child in children)
        if not isinstance(column, Column) or not all(isinstance(value, Literal) for value in values):
            raise UsageError(f"The operator 'in' at {where} needs a column first and then literals.")
        return membership(column, values)

    def _leaf(
        self, node: Any, where: str, depth: int, beside: str | None = None
    ) -> tuple[Column | Literal, str | None]:
        op = self._op(node, where, depth)
        if op not in ("column", "literal"):
            raise UsageError(f"A column or a literal was expected at {where}, found {op!r}.")
        kind = self._type(node, where) or beside
        if op == "column":
            name = node.get("name")
            if not isinstance(name, str) or not name:
                raise UsageError(f"The column at {where} needs a name.")
            return Column((name,)), kind
        if "value" not in node:
            raise UsageError(f"The literal at {where} needs a value.")
        return Literal(self._value(node["value"], kind, where)), kind

    def _type(self, node: Any, where: str) -> str | None:
        """Return the protocol's name of a node's type, or ``None``."""
        kind = node.get("valueType") if isinstance(node, dict) else None
        if kind is None:
            return None
        type_of_hint = _TYPES.get(kind.lower()) if isinstance(kind, str) else None
        if type_of_hint is None:
            raise UsageError(f"The valueType at {where} must be one of {', '.join(_READERS)}, found {kind!r}.")
        return type_of_hint

    def _value(self, value: Any, kind: str | None, where: str) -> Value:
        if value is None or (kind is None and isinstance(value, (bool, int, float, str))):
            return value  # its JSON type suffices
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"The value at {where} must be a string, found {type(value).__name__}.")
        try:
            return _READERS[str(kind)](str(value))
        except UsageError as error:
            raise UsageError(f"The value at {where} cannot be used. {error.message}") from None
        except ValueError:
            raise UsageError(f"The value {value!r} at {where} is not of type {kind}.") from None

    def _children(self, node: Any, where: str, count: int | None = None) -> list[tuple[str, Any]]:
        children = node.get("children")
        if not isinstance(children, list):
            raise UsageError(f"The operator {node['op']!r} at {where} needs a list of children.")
        if count is not None and len(children) != count:
            needed = "one child" if count == 1 else f"{count} children"
            raise UsageError(f"The operator {node['op']!r} at {where} needs {needed}, found {len(children)}.")
        return [(f"{where}.children[{index}]", child) for index, child in enumerate(children)]

    def _op(self, node: Any, where: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise UsageError(f"The JSON predicate hints are nested deeper than {MAX_DEPTH} levels.")
        op = node.get("op") if isinstance(node, dict) else None
        known_op = _KNOWN.get(op.lower()) if isinstance(op, str) else None
        if known_op is None:
            received = repr(op) if isinstance(node, dict) else type(node).__name__
            raise UsageError(
                f"An object was expected at {where} whose op is one of {', '.join(_DEFINED)}; found {received}."
            )
        return known_op


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


_READERS: dict[str, Callable[[str], Value]] = {
    "bool": _bool,
    "int": integer_of(32),
    "long": integer_of(64),
    "string": str,
    "date": parse_date,
    "float": float_of,
    "double": double_of,
    "timestamp": parse_moment,
}
_TYPES = {
    **{name: name for name in _READERS},
    "boolean": "bool", "integer": "int", "int32": "int", "short": "int", "byte": "int", "bigint": "long",
    "int64": "long", "str": "string", "varchar": "string", "float32": "float", "real": "float", "float64": "double",
}  # fmt: skip
