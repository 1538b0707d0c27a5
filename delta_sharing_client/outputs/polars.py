"""Polars: a read as a lazy frame into which a query's columns, filter and row limit are pushed."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.arrow_forms import sliced
from delta_sharing_client.errors import UsageError
from delta_sharing_client.outputs.streams import RowStream, hear_interrupts
from delta_sharing_client.predicates.binding import is_exact
from delta_sharing_client.predicates.tree import (
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Op,
    StartsWith,
    all_of,
    known_of_all,
    known_of_any,
)

if TYPE_CHECKING:
    import polars as pl

    from delta_sharing_client.reads import Read

_COMPARISONS = {"Eq": Op.EQ, "NotEq": Op.NE, "Lt": Op.LT, "LtEq": Op.LE, "Gt": Op.GT, "GtEq": Op.GE}


def lazy_frame(read: Read) -> pl.LazyFrame:
    """Return ``read`` as a ``polars.LazyFrame``; every ``collect`` asks the server anew.

    What a filter says that ours can say reaches the read. Polars' filter is applied to the rows as well, all of it.
    """
    polars = optional.load("polars", "polars")
    plugins = optional.load("polars.io.plugins", "polars")
    hear_interrupts()
    schema, whole = read.schema, read.limit_rows

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        asked = read if columns is None else read.select(*((name,) for name in columns))
        least = min((limit for limit in (rows, whole) if limit is not None), default=None)
        if least is not None:
            # Polars counts the rows before it filters them, whatever stands first in the query.
            asked = asked.limit(least)
        elif predicate is not None and (weaker := weaker_predicate(predicate, schema)) is not None:
            asked = asked.where(weaker)
        with contextlib.closing(RowStream(asked.to_batches)) as batches:
            for part in sliced(batches, batch_rows):
                frame = polars.from_arrow(pa.Table.from_batches([part]))
                yield frame if predicate is None else frame.filter(predicate)

    return plugins.register_io_source(source, schema=polars.from_arrow(schema.empty_table()).schema)


def weaker_predicate(expression: pl.Expr, schema: pa.Schema) -> Expression | None:
    """Return a predicate that is true of every row of which ``expression`` is true; ``None`` where there is none.

    Parameters
    ----------
    expression:
        Over columns of ``schema``, which are those of the table.
    """
    try:
        return _weaker(json.loads(expression.meta.serialize(format="json")), schema)
    except (ValueError, UsageError):
        return None


# === An expression as Polars serialises it ===


def _weaker(node: Any, schema: pa.Schema) -> Expression | None:
    kind, value = _tagged(node)
    if kind == "BinaryExpr" and value.get("op") in ("And", "LogicalAnd"):
        return known_of_all((_weaker(value["left"], schema), _weaker(value["right"], schema)))
    if kind == "BinaryExpr" and value.get("op") in ("Or", "LogicalOr"):
        return known_of_any((_weaker(value["left"], schema), _weaker(value["right"], schema)))
    test = None
    if kind == "BinaryExpr" and value.get("op") in _COMPARISONS:
        test = _comparison(_COMPARISONS[value["op"]], value["left"], value["right"])
    elif kind == "Function":
        test = _function(value)
    return test if test is not None and is_exact(test, schema) else None


def _comparison(op: Op, left: Any, right: Any) -> Expression | None:
    column, literal = _column(left), _literal(right)
    if column is None:
        column, literal, op = _column(right), _literal(left), op.flipped
    return None if column is None or literal is None else Comparison(op, column, literal)


def _function(value: Any) -> Expression | None:
    inputs, (kind, name) = value.get("input", []), _named(value.get("function"))
    column = _column(inputs[0]) if inputs else None
    if column is None or kind not in ("Boolean", "StringExpr"):
        return None
    rest = [_literal(node) for node in inputs[1:]]
    if name == "IsNull":
        return IsNull(column)
    if name == "IsNotNull":
        return Not(IsNull(column))
    if name == "StartsWith" and len(rest) == 1 and rest[0] is not None and isinstance(rest[0].value, str):
        return StartsWith(column, rest[0].value)
    if name == "IsBetween" and len(rest) == 2:
        bounds = [Comparison(op, column, bound) for op, bound in zip((Op.GE, Op.LE), rest, strict=True) if bound]
        return all_of(bounds) if len(bounds) == 2 else None
    if name == "IsIn" and len(inputs) == 2:
        return _membership(column, inputs[1])
    return None


def _membership(column: Column, node: Any) -> Expression | None:
    values = _evaluated(node)
    values = values.to_list() if hasattr(values, "to_list") else values
    if not isinstance(values, list) or not all(_is_constant(value) for value in values):
        return None
    return In(column, tuple(Literal(value) for value in values)) if values else Literal(False)


def _column(node: Any) -> Column | None:
    kind, value = _tagged(node)
    if kind == "Column" and isinstance(value, str):
        return Column((value,))
    if kind == "Function":
        (group, name), inputs = _named(value.get("function")), value.get("input", [])
        parent = _column(inputs[0]) if len(inputs) == 1 else None
        if group == "StructExpr" and isinstance(name, dict) and "FieldByName" in name and parent is not None:
            return Column((*parent.path, str(name["FieldByName"])))
    return None


def _literal(node: Any) -> Literal | None:
    value = _evaluated(node)
    return Literal(value) if _is_constant(value) else None


def _evaluated(node: Any) -> Any:
    """Return the value of a constant as Polars reads it, ``None`` if ``node`` is not one."""
    if _tagged(node)[0] != "Literal":
        return None
    polars = optional.load("polars", "polars")
    try:
        constant = polars.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
    except polars.exceptions.PolarsError:
        return None  # infinite, or NaN: JSON has neither
    return polars.select(constant).to_series().item()


def _is_constant(value: object) -> bool:
    try:
        constant = Literal(value)  # type: ignore[arg-type]
    except UsageError:
        return False
    return value is not None and not (isinstance(constant.value, float) and math.isnan(constant.value))


def _tagged(node: Any) -> tuple[str, Any]:
    """Return the one key and value of a node."""
    return next(iter(node.items())) if isinstance(node, dict) and len(node) == 1 else ("", None)


def _named(function: Any) -> tuple[str, Any]:
    """Return the group and name of a function: ``{"Boolean": "Not"}``, ``{"Boolean": {"IsIn": {...}}}``."""
    group, name = _tagged(function)
    if isinstance(name, dict) and group != "StructExpr":
        return group, next(iter(name), "")
    return group, name
