"""Converts any filter of a caller or an engine to a predicate tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Union

import pyarrow.compute as pc

from delta_sharing_client.columns import parse_path
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.engines import whole
from delta_sharing_client.predicates.tree import (
    Column,
    ColumnBuilder,
    Comparison,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Operand,
    StartsWith,
    all_of,
    any_of,
    as_expression,
    membership,
)

if TYPE_CHECKING:
    import polars as pl

Filter = Union[str, Expression, ColumnBuilder, Sequence[Any], pc.Expression, "pl.Expr", None]
"""What a filter may be."""


def parse_filter(filter: Filter) -> Expression | None:  # noqa: A002 - the public keyword is called so everywhere
    """Return ``filter`` as a predicate, ``None`` for no filter.

    ``filter`` is one of

    - SQL text, see :func:`~delta_sharing_client.predicates.sql.parse_sql`;
    - a predicate built from ``col("a") > 1``;
    - a ``pyarrow.compute.Expression`` or ``polars.Expr`` of supported operations, with the meaning of its library;
    - ``(column, op, value)`` tuples in a list, all of which must hold: ``[("a", ">", 1), ("b", "in", [1, 2])]``; or a
      list of such lists, at least one of which must hold, as in pyarrow. ``op`` is one of ``= == != <> < <= > >= <=>``,
      ``in``, ``not in``, ``like``, ``not like``, ``starts_with``, ``is`` and ``is not`` (with ``None`` or a bool). The
      column is a name or path as :func:`~.tree.col` accepts it, or a result of ``col``.

    Raises ``UsageError`` for anything else.
    """
    if filter is None:
        return None
    if isinstance(filter, str):
        # Imported on first use: the SQL parser takes longer to load than everything else here.
        from delta_sharing_client.predicates.sql import parse_sql

        return parse_sql(filter)
    if isinstance(filter, (Expression, ColumnBuilder)):
        return as_expression(filter)
    if isinstance(filter, Sequence) and len(filter) > 0:
        if isinstance(filter, tuple) and isinstance(filter[0], str):
            return _condition(filter)
        if all(isinstance(item, (list, tuple)) and _holds_conditions(item) for item in filter):
            return any_of(all_of(_condition(item) for item in group) for group in filter)
        return all_of(_condition(item) for item in filter)
    if isinstance(filter, pc.Expression):
        from delta_sharing_client.predicates import arrow_expressions

        return whole(arrow_expressions.to_tree(filter))
    if type(filter).__module__.startswith("polars.") and hasattr(filter, "meta"):
        # The caller has imported Polars already.
        from delta_sharing_client.predicates import polars_expressions

        polars_expression: Any = filter
        return whole(polars_expressions.to_tree(polars_expression))
    found = "an empty sequence" if isinstance(filter, Sequence) else type(filter).__name__
    raise UsageError(
        "A filter must be SQL text, a condition such as col('a') > 1, a list such as [('a', '>', 1)], or an expression"
        f" of pyarrow or Polars; found {found}."
    )


def _holds_conditions(item: Sequence[Any]) -> bool:
    return len(item) > 0 and all(isinstance(inner, (tuple, list, Expression, ColumnBuilder)) for inner in item)


def _condition(item: object) -> Expression:
    if isinstance(item, (Expression, ColumnBuilder)):
        return as_expression(item)
    if not isinstance(item, (tuple, list)) or len(item) != 3 or not isinstance(item[1], str):
        raise UsageError(f"A condition must be a tuple (column, operator, value); found {item!r}.")
    name, op, value = item
    if isinstance(name, ColumnBuilder):
        column: Operand = name._operand
    elif isinstance(name, (str, tuple)):
        column = Column(parse_path(name))
    else:
        raise UsageError(f"The condition {item!r} must begin with the name of a column; found {type(name).__name__}.")
    build = OPERATORS.get(" ".join(op.lower().split()))
    if build is None:
        raise UsageError(f"The operator {op!r} for '{column}' is unknown. Use one of {', '.join(OPERATORS)}.")
    return build(column, value)


def _comparison(op: Op) -> Callable[[Operand, Any], Expression]:
    return lambda column, value: Comparison(op, column, _operand(column, value))


def _operand(column: Operand, value: Any) -> Operand:
    if isinstance(value, ColumnBuilder):
        return value._operand
    if isinstance(value, (list, tuple, set, frozenset)):
        raise UsageError(
            f"The column '{column}' is compared with a {type(value).__name__}. Use 'in' for a list of values."
        )
    return Literal(value)


def _in(column: Operand, value: Any) -> Expression:
    # Iterating over a pyarrow array would yield Arrow scalars.
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    return membership(column, value)


def _is(column: Operand, value: Any) -> Expression:
    if value is None or (isinstance(value, str) and value.lower() == "null"):
        return IsNull(column)
    if isinstance(value, bool):
        return NullSafeEqual(column, Literal(value))
    raise UsageError(f"'is' on column '{column}' takes None, True or False; found {value!r}.")


def _pattern(build: Callable[[Operand, str], Expression], name: str) -> Callable[[Operand, Any], Expression]:
    def convert(column: Operand, value: Any) -> Expression:
        if not isinstance(value, str):
            raise UsageError(f"{name!r} on column '{column}' takes a string; found {type(value).__name__}.")
        return build(column, value)

    return convert


def _negated(build: Callable[[Operand, Any], Expression]) -> Callable[[Operand, Any], Expression]:
    return lambda column, value: Not(build(column, value))


def _not_in(column: Operand, value: Any) -> Expression:
    membership = _in(column, value)
    # NOT IN of an empty list holds for every row.
    return Literal(True) if isinstance(membership, Literal) else Not(membership)


OPERATORS: dict[str, Callable[[Operand, Any], Expression]] = {
    "=": _comparison(Op.EQ),
    "==": _comparison(Op.EQ),
    "!=": _comparison(Op.NE),
    "<>": _comparison(Op.NE),
    "<": _comparison(Op.LT),
    "<=": _comparison(Op.LE),
    ">": _comparison(Op.GT),
    ">=": _comparison(Op.GE),
    "<=>": lambda column, value: NullSafeEqual(column, _operand(column, value)),
    "in": _in,
    "not in": _not_in,
    "like": _pattern(Like, "like"),
    "not like": _negated(_pattern(Like, "not like")),
    "starts_with": _pattern(StartsWith, "starts_with"),
    "is": _is,
    "is not": _negated(_is),
}
