"""Converts a ``polars.Expr``, from Polars or a user, to a predicate tree, by parsing its serialized form."""

from __future__ import annotations

import functools
import io
import json
import operator
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
    compared,
)
from delta_sharing_client.predicates.values import Clock, Moment, Zone

if TYPE_CHECKING:
    import polars as pl


def to_tree(expression: pl.Expr) -> Expression:
    """Return ``expression`` as a predicate, with ``Unsaid`` for unsupported parts."""
    node = _parsed(expression)
    return Unsaid("A value that JSON cannot represent") if node is None else _condition(node)


def without_hints(expression: pl.Expr) -> pl.Expr | None:
    """Return the part of a condition pushed down by Polars that can filter a frame; ``None`` if there is none.

    Polars 1.39 to 1.43 adds a hint that only the engine that created it can evaluate (polars issue 28629). The hint
    excludes rows that a top-N leaves out; returning them is harmless.
    """
    kept: list[pl.Expr] = []
    dropped = False
    left = [(expression, _parsed(expression))]
    while left:
        part, node = left.pop()
        kind, value = _tagged(node)
        if kind == "BinaryExpr" and _JOINS.get(value["op"]) is And:
            left += zip(part.meta.pop(), (value["right"], value["left"]), strict=True)
        elif kind == "Display":
            dropped = True
        else:
            kept.append(part)
    if not dropped:
        return expression
    return functools.reduce(operator.and_, kept) if kept else None


def weaker_predicate(expression: pl.Expr, schema: pa.Schema) -> Expression | None:
    """Return a predicate that is true for every row for which ``expression`` (over columns of ``schema``) is true, or
    ``None``."""
    return weaker(to_tree(expression), schema)


def _parsed(expression: pl.Expr) -> Any:
    """Return the serialized form of ``expression``, ``None`` if it has none."""
    polars = optional.load("polars", "polars")
    try:
        return json.loads(expression.meta.serialize(format="json"))
    except (ValueError, polars.exceptions.PolarsError):
        return None  # it contains a Python function, for example


# === Conditions ===

_COMPARISONS = {
    "Eq": Op.EQ, "NotEq": Op.NE, "Lt": Op.LT, "LtEq": Op.LE, "Gt": Op.GT, "GtEq": Op.GE,
    "EqValidity": Op.EQ, "NotEqValidity": Op.NE,
}  # fmt: skip
_JOINS: dict[str, type[And] | type[Or]] = {"And": And, "LogicalAnd": And, "Or": Or, "LogicalOr": Or}


def _condition(node: Any) -> Expression:
    kind, value = _tagged(node)
    try:
        if kind == "BinaryExpr":
            return _binary(value["op"], value["left"], value["right"])
        if kind == "Function":
            group, name, options = _named(value["function"])
            if (group, name) in _TESTS:
                return _TESTS[group, name](options, value["input"])
        return true_column(_operand(node), f"'{kind}'")
    except UnsaidError as error:
        return Unsaid(str(error))


def _binary(op: str, left: Any, right: Any) -> Expression:
    if op in _JOINS:
        return _JOINS[op]((_condition(left), _condition(right)))
    if op not in _COMPARISONS:
        raise UnsaidError(f"The operator '{op}'")
    comparison = compared(_COMPARISONS[op], _operand(left), _operand(right))
    if op.endswith("Validity"):
        equal = NullSafeEqual(comparison.left, comparison.right)
        return equal if comparison.op is Op.EQ else Not(equal)
    if Literal(None) in (comparison.left, comparison.right):
        raise UnsaidError("A comparison with null")
    return comparison


def _between(options: Any, inputs: list[Any]) -> Expression:
    column, low, high = map(_operand, inputs)
    closed = options["closed"]
    lower, upper = Op.GE if closed in ("Both", "Left") else Op.GT, Op.LE if closed in ("Both", "Right") else Op.LT
    return And((Comparison(lower, column, low), Comparison(upper, column, high)))


def _is_in(options: Any, inputs: list[Any]) -> Expression:
    column, series = _operand(inputs[0]), _evaluated(inputs[1])
    # A list is one value; a series is many values.
    values = _values(series.item() if series.dtype.is_nested() and len(series) == 1 else series)
    if None in values:
        raise UnsaidError("A list with nulls")  # Polars treats nulls differently from SQL
    literals = constants(values, "a list")
    membership = In(column, tuple(literals)) if literals else Literal(False)
    return And((membership, Not(IsNull(column)))) if (options or {}).get("nulls_equal") else membership


def _text(build: Callable[[Operand, str], Expression]) -> Callable[[Any, list[Any]], Expression]:
    def test(options: Any, inputs: list[Any]) -> Expression:
        column, text = map(_operand, inputs)
        is_pattern = options is not None and not options["literal"]
        if is_pattern or not isinstance(text, Literal) or not isinstance(text.value, str):
            raise UnsaidError("A pattern or computed string")
        return build(column, text.value)

    return test


# Keyed by group and name; each test takes the options of the function and its inputs.
_TESTS: dict[tuple[str, str], Callable[[Any, list[Any]], Expression]] = {
    ("Boolean", "Not"): lambda _, inputs: Not(_condition(inputs[0])),
    ("Boolean", "IsNull"): lambda _, inputs: IsNull(_operand(inputs[0])),
    ("Boolean", "IsNotNull"): lambda _, inputs: Not(IsNull(_operand(inputs[0]))),
    ("Boolean", "IsBetween"): _between,
    ("Boolean", "IsIn"): _is_in,
    ("StringExpr", "StartsWith"): _text(StartsWith),
    ("StringExpr", "EndsWith"): _text(lambda column, text: Like(column, "%" + Like.quoted(text))),
    ("StringExpr", "Contains"): _text(lambda column, text: Like(column, f"%{Like.quoted(text)}%")),
}


# === Operands ===

_FUNCTIONS = {function: name for name, row in ROWS.items() for function in row.polars}


def _operand(node: Any) -> Operand:
    kind, value = _tagged(node)
    if kind == "Column":
        return Column((value,))
    if kind == "Literal":
        values = _values(_evaluated(node))
        if len(values) != 1:
            raise UnsaidError("A series")
        return constant(values[0], "a comparison")
    if kind == "BinaryExpr" and (name := _FUNCTIONS.get((kind, value["op"]))):
        return call(name, _operand(value["left"]), _operand(value["right"]))
    if kind == "Cast":
        target = value["dtype"] if isinstance(value["dtype"], str) else _tagged(value["dtype"])[1]  # Polars 1
        # Other casts return null, or a different number, for values that do not fit.
        if isinstance(target, str) and (name := _FUNCTIONS.get((kind, target))) and value["options"] == "Strict":
            return call(name, _operand(value["expr"]))
    if kind == "Function":
        group, name, options = _named(value["function"])
        inputs = list(map(_operand, value["input"]))
        if (group, name) == ("StructExpr", "FieldByName") and isinstance(inputs[0], Column):
            return Column((*inputs[0].path, options))
        if (group, name) in _FUNCTIONS:
            return call(_FUNCTIONS[group, name], *inputs)
        raise UnsaidError(f"The function '{name}'")
    raise UnsaidError(f"'{kind}'")


def _evaluated(node: Any) -> pl.Series:
    """Return a constant as Polars deserializes it."""
    if _tagged(node)[0] != "Literal":
        raise UnsaidError("A value that is computed")
    polars = optional.load("polars", "polars")
    try:
        read = polars.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
    except polars.exceptions.PolarsError:
        raise UnsaidError("A number that JSON cannot represent") from None  # infinite, or NaN
    series: pl.Series = polars.select(read).to_series()
    return series


def _values(series: pl.Series) -> list[Any]:
    if getattr(series.dtype, "time_unit", None) == "ns" and hasattr(series.dtype, "time_zone"):
        # Python's datetimes have only microseconds.
        zone = Zone.LOCAL if series.dtype.time_zone is None else Zone.UTC
        return [None if nanos is None else Moment(nanos, zone) for nanos in series.to_physical().to_list()]
    if series.dtype == optional.load("polars", "polars").Time:
        return [None if nanos is None else Clock(nanos) for nanos in series.to_physical().to_list()]
    return series.to_list()


def _tagged(node: Any) -> tuple[str, Any]:
    """Return the only key and value of a node."""
    return next(iter(node.items())) if isinstance(node, dict) and len(node) == 1 else ("", None)


def _named(function: Any) -> tuple[str, str, Any]:
    """Return the group, name and options of a function: ``{"Boolean": "Not"}``, ``{"Boolean": {"IsIn": {...}}}``."""
    if isinstance(function, str):
        return "", function, None
    group, name = _tagged(function)
    if isinstance(name, str):
        return group, name, None
    name, options = _tagged(name)
    return group, name or group, options
