"""Converts ``polars.Expr``, from Polars or users, to a predicate tree, by its serialized form."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.predicates.engines import Unsaid, UnsaidError, constant, constants, true_column, weaker
from delta_sharing_client.predicates.functions import ROWS
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
    Operand,
    Or,
    StartsWith,
    call,
)

if TYPE_CHECKING:
    import polars as pl


def to_tree(expression: pl.Expr) -> Expression:
    """Return ``expression`` as a predicate, with ``Unsaid`` for unsupported parts."""
    try:
        node = json.loads(expression.meta.serialize(format="json"))
    except ValueError:
        return Unsaid("A value that JSON cannot represent")  # infinite numbers, and NaN
    return _condition(node)


def weaker_predicate(expression: pl.Expr, schema: pa.Schema) -> Expression | None:
    """Return a predicate that is true for every row for which ``expression`` (over columns of ``schema``) is true, or
    ``None``."""
    return weaker(to_tree(expression), schema)


# === Conditions ===

_COMPARISONS = {"Eq": Op.EQ, "NotEq": Op.NE, "Lt": Op.LT, "LtEq": Op.LE, "Gt": Op.GT, "GtEq": Op.GE}
_JOINS: dict[str, type[And] | type[Or]] = {"And": And, "LogicalAnd": And, "Or": Or, "LogicalOr": Or}


def _condition(node: Any) -> Expression:
    kind, value = _tagged(node)
    try:
        if kind == "BinaryExpr":
            return _binary(value["op"], value["left"], value["right"])
        if kind == "Function" and (test := _TESTS.get(_named(value["function"])[1])) is not None:
            return test(value["function"], value["input"])
        return true_column(_operand(node), f"'{kind}'")
    except UnsaidError as error:
        return Unsaid(str(error))


def _binary(op: str, left: Any, right: Any) -> Expression:
    if op in _JOINS:
        return _JOINS[op]((_condition(left), _condition(right)))
    if op in ("EqValidity", "NotEqValidity"):
        equal = NullSafeEqual(*_sides(left, right, nulls=True))
        return equal if op == "EqValidity" else Not(equal)
    if op not in _COMPARISONS:
        raise UnsaidError(f"The operator '{op}'")
    one, other = _sides(left, right)
    return Comparison(_COMPARISONS[op].flipped if isinstance(_operand(left), Literal) else _COMPARISONS[op], one, other)


def _sides(left: Any, right: Any, *, nulls: bool = False) -> tuple[Operand, Operand]:
    """Return both sides, a constant last."""
    one, other = _operand(left), _operand(right)
    if isinstance(one, Literal):
        one, other = other, one
    if not nulls and isinstance(other, Literal) and other.value is None:
        raise UnsaidError("A comparison with null")
    return one, other


def _between(function: Any, inputs: list[Any]) -> Expression:
    column, low, high = map(_operand, inputs)
    closed = _tagged(function)[1]["IsBetween"]["closed"]
    lower, upper = Op.GE if closed in ("Both", "Left") else Op.GT, Op.LE if closed in ("Both", "Right") else Op.LT
    return And((Comparison(lower, column, low), Comparison(upper, column, high)))


def _is_in(function: Any, inputs: list[Any]) -> Expression:
    column, values = _operand(inputs[0]), _evaluated(inputs[1])
    values = values.to_list() if hasattr(values, "to_list") else values
    if not isinstance(values, list) or None in values:
        raise UnsaidError("A list with nulls, or that is computed,")  # Polars treats nulls differently from SQL
    known = constants(values, "a list")
    return In(column, tuple(known)) if known else Literal(False)


def _text(build: Callable[[Operand, str], Expression]) -> Callable[[Any, list[Any]], Expression]:
    def test(function: Any, inputs: list[Any]) -> Expression:
        column, text = map(_operand, inputs)
        name = _tagged(function)[1]
        is_pattern = isinstance(name, dict) and not name.get("Contains", {}).get("literal", True)
        if is_pattern or not isinstance(text, Literal) or not isinstance(text.value, str):
            raise UnsaidError("A pattern, or a text that is computed,")
        return build(column, text.value)

    return test


_TESTS: dict[str, Callable[[Any, list[Any]], Expression]] = {
    "Not": lambda _, inputs: Not(_condition(inputs[0])),
    "IsNull": lambda _, inputs: IsNull(_operand(inputs[0])),
    "IsNotNull": lambda _, inputs: Not(IsNull(_operand(inputs[0]))),
    "IsBetween": _between,
    "IsIn": _is_in,
    "StartsWith": _text(StartsWith),
    "EndsWith": _text(lambda column, text: Like(column, "%" + Like.quoted(text))),
    "Contains": _text(lambda column, text: Like(column, f"%{Like.quoted(text)}%")),
}


# === Operands ===

_OPERATORS = {"Plus": "+", "Minus": "-", "Multiply": "*", "TrueDivide": "/", "Modulus": "%"}
_FUNCTIONS = {function: name for name, row in ROWS.items() for function in row.polars}
_CASTS = {"Int8": "tinyint", "Int16": "smallint", "Int32": "int", "Int64": "bigint", "Float32": "float",
          "Float64": "double", "String": "string", "Date": "date"}  # fmt: skip


def _operand(node: Any) -> Operand:
    kind, value = _tagged(node)
    if kind == "Column" and isinstance(value, str):
        return Column((value,))
    if kind == "Literal":
        return constant(_evaluated(node), "a comparison")
    if kind == "BinaryExpr" and value["op"] in _OPERATORS:
        return call(_OPERATORS[value["op"]], _operand(value["left"]), _operand(value["right"]))
    if kind == "Cast" and _tagged(value["dtype"])[1] in _CASTS:
        return call(_CASTS[_tagged(value["dtype"])[1]], _operand(value["expr"]))
    if kind == "Function":
        group, name = _named(value["function"])
        inputs = list(map(_operand, value["input"]))
        if group == "StructExpr" and isinstance(name, dict) and "FieldByName" in name and isinstance(inputs[0], Column):
            return Column((*inputs[0].path, str(name["FieldByName"])))
        if (group, name) in _FUNCTIONS:
            return call(_FUNCTIONS[group, name], *inputs)
        raise UnsaidError(f"The function '{name}'")
    raise UnsaidError(f"'{kind}'")


def _evaluated(node: Any) -> Any:
    """Return the value of a constant as Polars reads it."""
    if _tagged(node)[0] != "Literal":
        raise UnsaidError("A value that is computed")
    polars = optional.load("polars", "polars")
    try:
        read = polars.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
    except polars.exceptions.PolarsError:
        raise UnsaidError("A number that JSON cannot represent") from None  # infinite, or NaN
    return polars.select(read).to_series().item()


def _tagged(node: Any) -> tuple[str, Any]:
    """Return the only key and value of a node."""
    return next(iter(node.items())) if isinstance(node, dict) and len(node) == 1 else ("", None)


def _named(function: Any) -> tuple[str, Any]:
    """Return the group and name of a function: ``{"Boolean": "Not"}``, ``{"Boolean": {"IsIn": {...}}}``."""
    group, name = _tagged(function)
    if isinstance(name, dict) and group != "StructExpr":
        return group, next(iter(name), "")
    return group, name
