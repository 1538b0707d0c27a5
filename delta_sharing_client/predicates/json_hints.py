"""The protocol's ``jsonPredicateHints`` (Delta Sharing protocol, "JSON predicates for Filtering")."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection
from typing import Any

from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import format_date
from delta_sharing_client.predicates.hints import value_type, weaken
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    Expression,
    IsNull,
    Literal,
    Not,
    Op,
    Or,
    truth,
)
from delta_sharing_client.predicates.values import Moment, Value, parse_date, parse_moment

# The reference server evaluates nothing beyond these.
MAX_DEPTH = 100
MAX_BYTES = 1024 * 1024

_OPS = {
    "equal": Op.EQ,
    "lessThan": Op.LT,
    "lessThanOrEqual": Op.LE,
    "greaterThan": Op.GT,
    "greaterThanOrEqual": Op.GE,
}
_NAMES = {op: name for name, op in _OPS.items()}
_OPEN, _CLOSE = '{"op":"and","children":[', "]}"


def to_json_hints(expression: Expression, partition_columns: Collection[str] = ()) -> str | None:
    """Return what the protocol can say of a bound predicate, as the JSON text of ``jsonPredicateHints``.

    The hint is never stronger than the predicate, see :mod:`.hints`; ``None`` if nothing can be said.

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


def from_json_hints(text: str) -> Expression:
    """Read a ``jsonPredicateHints`` that a caller gives, as an unbound predicate.

    Raises
    ------
    UsageError
        It is no JSON, or not a predicate as the protocol defines it; the message names what is wrong where.
    """
    if not isinstance(text, str):
        raise UsageError(f"jsonPredicateHints must be JSON text; found {type(text).__name__}.")
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"jsonPredicateHints must not exceed {MAX_BYTES} bytes; found {len(text.encode())}.")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        raise UsageError(f"jsonPredicateHints is not valid JSON: {reason}.") from None
    return _Reader().predicate(tree, "$", 1)


# === Writing ===


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
            kind = value_type(column)
            literal = {"op": "literal", "value": _text(value), "valueType": kind}
            return {"op": _NAMES[op], "children": [_write_column(column), literal]}
    raise TypeError(f"not a weakened predicate: {expression}")


def _write_column(column: Column) -> dict[str, Any]:
    return {"op": "column", "name": column.path[0], "valueType": value_type(column)}


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


# === Reading ===


class _Reader:
    """Reads a decoded tree; ``where`` is the JSON path of the node, for messages."""

    def predicate(self, node: Any, where: str, depth: int) -> Expression:
        op = self._op(node, where, depth)
        if op in ("and", "or"):
            children = self._children(node, where)
            if len(children) < 2:
                raise UsageError(f"{op!r} at {where} needs at least two children; found {len(children)}.")
            kind = And if op == "and" else Or
            return kind(tuple(self.predicate(child, path, depth + 1) for path, child in children))
        if op == "not":
            ((path, child),) = self._children(node, where, 1)
            return Not(self.predicate(child, path, depth + 1))
        if op == "isNull":
            ((path, child),) = self._children(node, where, 1)
            operand, _ = self._leaf(child, path, depth + 1)
            # Spark's client asks it of constants, too.
            return IsNull(operand) if isinstance(operand, Column) else Literal(operand.value is None)
        if op in _OPS:
            return self._comparison(_OPS[op], node, where, depth)
        operand, kind_name = self._leaf(node, where, depth)
        if kind_name != "bool":
            raise UsageError(f"{op!r} at {where} stands for a condition, so its valueType must be bool.")
        if isinstance(operand, Column):
            return Comparison(Op.EQ, operand, Literal(True))
        truth(operand.value)
        return operand

    def _comparison(self, op: Op, node: Any, where: str, depth: int) -> Expression:
        (left_path, left), (right_path, right) = self._children(node, where, 2)
        a, a_type = self._leaf(left, left_path, depth + 1)
        b, b_type = self._leaf(right, right_path, depth + 1)
        if a_type != b_type:
            raise UsageError(f"The children of {node['op']!r} at {where} have the value types {a_type} and {b_type}.")
        if isinstance(a, Literal) and isinstance(b, Column):
            return Comparison(op.flipped, b, a)
        return Comparison(op, a, b)

    def _leaf(self, node: Any, where: str, depth: int) -> tuple[Column | Literal, str]:
        op = self._op(node, where, depth)
        if op not in ("column", "literal"):
            raise UsageError(f"Expected a column or a literal at {where}; found {op!r}.")
        kind = node.get("valueType")
        if not isinstance(kind, str) or kind not in _READERS:
            raise UsageError(f"The valueType at {where} must be one of {', '.join(_READERS)}; found {kind!r}.")
        if op == "column":
            name = node.get("name")
            if not isinstance(name, str) or not name:
                raise UsageError(f"The column at {where} needs a name.")
            return Column((name,)), kind
        if "value" not in node:
            raise UsageError(f"The literal at {where} needs a value.")
        return Literal(self._value(node["value"], kind, where)), kind

    def _value(self, value: Any, kind: str, where: str) -> Value:
        if value is None:
            return None
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"The value at {where} must be a string.")
        try:
            return _READERS[kind](str(value))
        except UsageError as error:
            raise UsageError(f"The value at {where} cannot be used: {error.message}") from None
        except ValueError:
            raise UsageError(f"The value {value!r} at {where} is not of type {kind}.") from None

    def _children(self, node: Any, where: str, count: int | None = None) -> list[tuple[str, Any]]:
        children = node.get("children")
        if not isinstance(children, list):
            raise UsageError(f"{node['op']!r} at {where} needs a list of children.")
        if count is not None and len(children) != count:
            raise UsageError(f"{node['op']!r} at {where} needs {count} children; found {len(children)}.")
        return [(f"{where}.children[{index}]", child) for index, child in enumerate(children)]

    def _op(self, node: Any, where: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise UsageError(f"jsonPredicateHints is nested deeper than {MAX_DEPTH} levels.")
        op = node.get("op") if isinstance(node, dict) else None
        if not isinstance(op, str) or op not in _KNOWN:
            raise UsageError(
                f"Expected an object with an op at {where} of jsonPredicateHints, one of {', '.join(_KNOWN)};"
                f" found {op if isinstance(node, dict) else type(node).__name__!r}."
            )
        return str(op)


_KNOWN = ("column", "literal", "isNull", *_OPS, "and", "or", "not")


def _integer(bits: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(_digits(text))
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise ValueError
        return value

    return read


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _double(text: str) -> float:
    return float(_digits(text))


def _float(text: str) -> float:
    number = _double(text)
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _digits(text: str) -> str:
    # Python reads more than other languages: 1_000, digits of other scripts
    if "_" in text or not text.isascii():
        raise ValueError
    return text


_READERS: dict[str, Callable[[str], Value]] = {
    "bool": _bool,
    "int": _integer(32),
    "long": _integer(64),
    "string": str,
    "date": parse_date,
    "float": _float,
    "double": _double,
    "timestamp": parse_moment,
}
