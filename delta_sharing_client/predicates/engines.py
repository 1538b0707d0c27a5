"""Converts conditions of other libraries to predicate trees: to an equivalent tree, or to a weaker one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from delta_sharing_client.columns import resolve_path
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import is_exact
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    Expression,
    Literal,
    Not,
    Op,
    Operand,
    Or,
    columns,
    known_of_all,
    known_of_any,
    push_not,
    tests,
)
from delta_sharing_client.predicates.value_kinds import Kind, kind_of
from delta_sharing_client.predicates.values import Interval


@dataclass(frozen=True, slots=True)
class Unsaid(Expression):
    """A condition of another library that is not supported here; ``what`` names it."""

    what: str


class UnsaidError(Exception):
    """An operand of another library that is not supported here; ``str()`` names it."""


def whole(tree: Expression) -> Expression:
    """Return ``tree`` if all of it is supported, otherwise raise ``UsageError``."""
    for test in tests(tree):
        if isinstance(test, Unsaid):
            raise UsageError(
                f"{test.what} is not supported in an expression of another library. Write the filter as SQL."
            )
    return tree


def weaker(tree: Expression, schema: pa.Schema) -> Expression | None:
    """Return a predicate that is true for every row for which the other library's condition is true, or ``None``.

    The engine still applies the condition to the rows. Parts with a different meaning in the engine, such as
    converted constants, are omitted.
    """
    match tree:
        case And(children=children):
            return known_of_all(weaker(child, schema) for child in children)
        case Or(children=children):
            return known_of_any(weaker(child, schema) for child in children)
        case Not(child=And() | Or() | Not() | Comparison()) if not _has_floats(tree, schema):
            return weaker(push_not(tree), schema)
        case Not() if _has_floats(tree, schema):
            # NaN and zeros compare differently in other engines, so the negation could be stronger than the condition.
            return None
    return tree if is_exact(tree, schema) else None


def _has_floats(tree: Expression, schema: pa.Schema) -> bool:
    try:
        return any(kind_of(resolve_path(path, schema)[-1].type) is Kind.FLOATING for path in columns(tree))
    except UsageError:
        return True


def true_column(operand: Operand, what: str) -> Expression:
    """Return the predicate for an operand used as a condition: a boolean column, or a constant."""
    if isinstance(operand, Column):
        return Comparison(Op.EQ, operand, Literal(True))
    if isinstance(operand, Literal) and (operand.value is None or isinstance(operand.value, bool)):
        return operand
    return Unsaid(what)


def constant(value: Any, what: str) -> Literal:
    """Return a constant; ``UnsaidError`` for NaN, which compares differently elsewhere, and for unsupported types."""
    try:
        literal = Literal(value)
    except UsageError:
        literal = None
    if literal is None or isinstance(literal.value, Interval):
        raise UnsaidError(f"The constant {value!r} in {what}")
    if isinstance(literal.value, float) and math.isnan(literal.value):
        raise UnsaidError(f"NaN in {what}")
    return literal


def constants(values: Iterable[Any], what: str) -> list[Literal]:
    """Return the constants for all ``values`` but nulls; errors as in ``constant``."""
    return [constant(value, what) for value in values if value is not None]
