"""``jsonPredicateHints`` as callers write them, to a predicate (protocol, "JSON predicates for Filtering").

Beside the protocol's own words those are read whose meaning is plain: operators as in SQL or of other spelling (``=``,
``ge``, ``AND``), names of types as other systems have them (``integer``, ``bigint``, ``boolean``), a value type that is
left out beside one that is not, a list of conditions that all hold, and an object or text around it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.hints import MAX_BYTES, MAX_DEPTH, NAMES
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
    all_of,
    membership,
    truth,
)
from delta_sharing_client.predicates.values import Value, parse_date, parse_moment

JsonHints = Union[str, Mapping[str, object], Sequence[object], None]

# What people put around a predicate, as it stands in a request's body.
_WRAPPERS = ("jsonPredicateHints", "json_predicate_hints")


def from_json_hints(given: object) -> Expression:
    """Read a ``jsonPredicateHints`` that a caller gives, as an unbound predicate.

    Parameters
    ----------
    given:
        JSON text, or the object or list that it says.

    Raises
    ------
    UsageError
        It is no JSON, or not a predicate as the protocol defines it; the message names what is wrong where.
    """
    tree = _decoded(given) if isinstance(given, str) else given
    for _ in range(2):  # in an object, possibly as text again
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


_OPS = {name: op for op, name in NAMES.items()}
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
_DEFINED = ("column", "literal", "isNull", *_OPS, "and", "or", "not")


class _Reader:
    """Reads a decoded tree; ``where`` is the JSON path of the node, for messages."""

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
            # Spark's client asks it of constants, too.
            test = IsNull(operand) if isinstance(operand, Column) else Literal(operand.value is None)
            return test if op == "isNull" else Not(test)
        if op in _OPS:
            return self._comparison(_OPS[op], node, where, depth)
        if op == "notEqual":
            return self._comparison(Op.NE, node, where, depth)
        if op == "in":
            return self._in(node, where, depth)
        operand, kind_name = self._leaf(node, where, depth)
        if kind_name != "bool":
            raise UsageError(f"The operator {op!r} at {where} stands for a condition, so its valueType must be bool.")
        if isinstance(operand, Column):
            return Comparison(Op.EQ, operand, Literal(True))
        truth(operand.value)
        return operand

    def _comparison(self, op: Op, node: Any, where: str, depth: int) -> Expression:
        children = self._children(node, where, 2)
        types = {kind for path, child in children if (kind := self._type(child, path)) is not None}
        if len(types) > 1:
            raise UsageError(f"The children at {where} must have one valueType, found {' and '.join(sorted(types))}.")
        shared = next(iter(types), None)
        (a, _), (b, _) = (self._leaf(child, path, depth + 1, shared) for path, child in children)
        if isinstance(a, Literal) and isinstance(b, Column):
            return Comparison(op.flipped, b, a)
        return Comparison(op, a, b)

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
        """Return the protocol's name of a node's type, ``None`` if it has none."""
        kind = node.get("valueType") if isinstance(node, dict) else None
        if kind is None:
            return None
        known = _TYPES.get(kind.lower()) if isinstance(kind, str) else None
        if known is None:
            raise UsageError(f"The valueType at {where} must be one of {', '.join(_READERS)}, found {kind!r}.")
        return known

    def _value(self, value: Any, kind: str | None, where: str) -> Value:
        if value is None or (kind is None and isinstance(value, (bool, int, float, str))):
            return value  # its own type says what it is
        if isinstance(value, bool):
            value = "true" if value else "false"
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"The value at {where} must be a string.")
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
            raise UsageError(f"The operator {node['op']!r} at {where} needs {count} children, found {len(children)}.")
        return [(f"{where}.children[{index}]", child) for index, child in enumerate(children)]

    def _op(self, node: Any, where: str, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise UsageError(f"The JSON predicate hints are nested deeper than {MAX_DEPTH} levels.")
        op = node.get("op") if isinstance(node, dict) else None
        known = _KNOWN.get(op.lower()) if isinstance(op, str) else None
        if known is None:
            found = repr(op) if isinstance(node, dict) else type(node).__name__
            raise UsageError(
                f"An object with an op was expected at {where}, one of {', '.join(_DEFINED)}; found {found}."
            )
        return known


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
_TYPES = {
    **{name: name for name in _READERS},
    "boolean": "bool", "integer": "int", "int32": "int", "short": "int", "byte": "int", "bigint": "long",
    "int64": "long", "str": "string", "varchar": "string", "float32": "float", "real": "float", "float64": "double",
}  # fmt: skip
