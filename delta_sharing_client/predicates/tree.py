"""The predicate tree: frozen nodes, the builder ``col("a") > 1``, and what a predicate means.

A predicate is true, false or unknown for a row, as in SQL: a comparison with null is unknown, ``AND``, ``OR`` and
``NOT`` are Kleene's, and only rows for which it is true match. :func:`evaluate` is the reference meaning; every other
interpreter (Arrow, statistics, hints) is tested against it.

``str(expression)`` is Spark SQL that :func:`~delta_sharing_client.predicates.parse.parse_filter` reads back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.nodes import (
    NO_TRUTH_VALUE,
    And,
    Column,
    ColumnLike,
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
    all_of,
    any_of,
    as_expression,
)
from delta_sharing_client.predicates.text import ColumnPath, format_value, parse_path
from delta_sharing_client.predicates.values import Value, normalise, order

__all__ = [
    "And",
    "Column",
    "ColumnBuilder",
    "ColumnLike",
    "ColumnPath",
    "Comparison",
    "Expression",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "Not",
    "NullSafeEqual",
    "Op",
    "Operand",
    "Or",
    "StartsWith",
    "all_of",
    "any_of",
    "as_expression",
    "col",
    "columns",
    "evaluate",
    "membership",
    "parse_path",
    "push_not",
    "truth",
]


# === Builder ===


class ColumnBuilder(ColumnLike):
    """What :func:`col` returns: comparing it gives a predicate; alone it stands for a boolean column."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison(Op.EQ, self.column, _operand(other))

    def __ne__(self, other: object) -> Comparison:  # type: ignore[override]
        return Comparison(Op.NE, self.column, _operand(other))

    def __lt__(self, other: object) -> Comparison:
        return Comparison(Op.LT, self.column, _operand(other))

    def __le__(self, other: object) -> Comparison:
        return Comparison(Op.LE, self.column, _operand(other))

    def __gt__(self, other: object) -> Comparison:
        return Comparison(Op.GT, self.column, _operand(other))

    def __ge__(self, other: object) -> Comparison:
        return Comparison(Op.GE, self.column, _operand(other))

    def __and__(self, other: object) -> Expression:
        return as_expression(self) & other

    def __or__(self, other: object) -> Expression:
        return as_expression(self) | other

    def __invert__(self) -> Expression:
        return Not(as_expression(self))

    def __bool__(self) -> bool:
        raise UsageError(NO_TRUTH_VALUE)

    def __repr__(self) -> str:
        return f"col({str(self.column)!r})"

    def is_in(self, values: Iterable[object]) -> Expression:
        """``IN``: an empty list matches nothing, a ``None`` in it makes misses unknown."""
        return membership(self.column, values)

    def is_null(self) -> Expression:
        """``IS NULL``."""
        return IsNull(self.column)

    def is_not_null(self) -> Expression:
        """``IS NOT NULL``."""
        return Not(IsNull(self.column))

    def between(self, low: object, high: object) -> Expression:
        """``BETWEEN low AND high``, both ends included."""
        return And((self >= low, self <= high))

    def like(self, pattern: str, escape: str = "\\") -> Expression:
        """``LIKE``."""
        return Like(self.column, pattern, escape)

    def starts_with(self, prefix: str) -> Expression:
        """Whether the string starts with ``prefix``."""
        return StartsWith(self.column, prefix)

    def equals_null_safe(self, other: object) -> Expression:
        """``<=>``: null equals null, and the answer is never unknown."""
        return NullSafeEqual(self.column, _operand(other))


def col(name: str | Iterable[str]) -> ColumnBuilder:
    """Name a column to compare: ``col("a") > 1``.

    Parameters
    ----------
    name:
        ``"a"``, ``"a.b"`` for field ``b`` of struct ``a``, backticks around a name that has a dot itself
        (:literal:`"a.\\`b.c\\`"`), or the path as a tuple.

    Raises
    ------
    UsageError
        The name is empty or its backticks do not match.
    """
    return ColumnBuilder(Column(parse_path(name)))


def membership(column: Column, values: Iterable[object]) -> Expression:
    """Return ``column IN (values)``, ``FALSE`` if there are none."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise UsageError(f"IN on column {column} needs a list of values; found {type(values).__name__}.")
    found = tuple(value if isinstance(value, Literal) else _literal(value) for value in values)
    return In(column, found) if found else Literal(False)


def _operand(value: object) -> Operand:
    if isinstance(value, ColumnLike):
        return value.column
    if isinstance(value, (Column, Literal)):
        return value
    return _literal(value)


def _literal(value: object) -> Literal:
    return Literal(normalise(value))


# === Meaning ===


def evaluate(expression: Expression, row: Mapping[str, object]) -> bool | None:
    """Return whether ``row`` matches: ``True``, ``False`` or ``None`` for unknown.

    This is the meaning that the other interpreters are tested against; it is not fast.

    Parameters
    ----------
    expression:
        Bound or not.
    row:
        Values by column name as :func:`~.values.normalise` takes them, structs as mappings.

    Raises
    ------
    UsageError
        Values of different families are compared.
    """
    match expression:
        case Literal(value=value):
            return truth(value)
        case Comparison(op=op, left=left, right=right):
            ordering = order(_value(left, row), _value(right, row))
            return None if ordering is None else op.holds(ordering)
        case NullSafeEqual(left=left, right=right):
            a, b = _value(left, row), _value(right, row)
            return a is None and b is None if a is None or b is None else order(a, b) == 0
        case In(child=child, values=values):
            answers = [order(_value(child, row), item.value) for item in values]
            return True if 0 in answers else None if None in answers else False
        case IsNull(child=child):
            return _lookup(child, row) is None
        case Like(child=child):
            text = _text(child, row)
            return None if text is None else re.fullmatch(expression.regex(), text) is not None
        case StartsWith(child=child, prefix=prefix):
            text = _text(child, row)
            return None if text is None else text.startswith(prefix)
        case Not(child=inner):
            answer = evaluate(inner, row)
            return None if answer is None else not answer
        case And(children=children):
            results = {evaluate(inner, row) for inner in children}
            return False if False in results else None if None in results else True
        case Or(children=children):
            results = {evaluate(inner, row) for inner in children}
            return True if True in results else None if None in results else False
    raise TypeError(f"not a predicate: {type(expression).__name__}")


def columns(expression: Expression) -> frozenset[ColumnPath]:
    """Return the paths of all columns that ``expression`` reads."""
    match expression:
        case Comparison(left=left, right=right) | NullSafeEqual(left=left, right=right):
            return frozenset(side.path for side in (left, right) if isinstance(side, Column))
        case In(child=child) | IsNull(child=child) | Like(child=child) | StartsWith(child=child):
            return frozenset((child.path,))
        case Not(child=inner):
            return columns(inner)
        case And(children=children) | Or(children=children):
            return frozenset().union(*map(columns, children))
    return frozenset()


def push_not(expression: Expression, *, negate: bool = False) -> Expression:
    """Return an equivalent predicate in which ``NOT`` stands only before ``IN``, ``IS NULL``, ``LIKE`` and the like.

    Sound in three-valued logic: every step keeps true, false and unknown apart.
    """
    match expression:
        case Not(child=inner):
            return push_not(inner, negate=not negate)
        case And(children=children) | Or(children=children):
            kind = And if isinstance(expression, And) is not negate else Or
            return kind(tuple(push_not(inner, negate=negate) for inner in children))
        case Comparison(op=op, left=left, right=right) if negate:
            return Comparison(op.negated, left, right)
        case Literal(value=value) if negate:
            holds = truth(value)
            return Literal(None if holds is None else not holds)
    return Not(expression) if negate else expression


def truth(value: Value) -> bool | None:
    """Return what a constant says as a condition; ``UsageError`` if it is no truth value."""
    if value is None or isinstance(value, bool):
        return value
    raise UsageError(f"A condition must be true, false or null; found the constant {format_value(value)}.")


def _lookup(column: Column, row: Mapping[str, object]) -> object:
    found: object = row
    for name in column.path:
        if found is None:
            return None
        if not isinstance(found, Mapping):
            raise UsageError(f"Column {column} looks for field {name!r} in a value that is no struct.")
        found = found[name]
    return found


def _value(operand: Operand, row: Mapping[str, object]) -> Value:
    return operand.value if isinstance(operand, Literal) else normalise(_lookup(operand, row))


def _text(column: Column, row: Mapping[str, object]) -> str | None:
    value = _value(column, row)
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"LIKE needs a string column; {column} is not one.")
