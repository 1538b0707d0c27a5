"""The protocol's ``predicateHints`` (Delta Sharing protocol, "SQL Expressions for Filtering")."""

from __future__ import annotations

from collections.abc import Collection

from delta_sharing_client.predicates.hints import weaken
from delta_sharing_client.predicates.tree import And, Column, Comparison, Expression, IsNull, Literal, Not
from delta_sharing_client.predicates.values import Day, Value


def to_sql_hints(expression: Expression, partition_columns: Collection[str] = ()) -> list[str]:
    """Return the conditions of a bound predicate that the restricted SQL of the protocol can say; all must hold.

    Each is one comparison of a top-level column with a constant, or a test for null of a partition column. Constants
    are integers, booleans, dates and strings without quotes and backslashes: what every reader of SQL takes alike.
    """
    weakened = weaken(expression, partition_columns)
    parts = weakened.children if isinstance(weakened, And) else () if weakened is None else (weakened,)
    return [text for part in parts if (text := _condition(part)) is not None]


def _condition(expression: Expression) -> str | None:
    match expression:
        case Comparison(op=op, left=Column() as column, right=Literal(value=value)):
            constant = _constant(value)
            return None if constant is None else f"{column} {op.value} {constant}"
        case IsNull() | Not(child=IsNull()):
            return str(expression)
    return None


def _constant(value: Value) -> str | None:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Day():
            return f"'{value}'"
        case str() if not any(char in "'\\" or not char.isprintable() for char in value):
            return f"'{value}'"
    return None
