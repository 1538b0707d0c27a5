"""The meaning of a predicate, row by row: the reference against which the other interpreters are tested."""

from __future__ import annotations

import re
from collections.abc import Mapping

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.tree import (
    Call,
    Column,
    Comparison,
    DoubleQuoted,
    Expression,
    In,
    IsNull,
    Joined,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Operand,
    Or,
    StartsWith,
    truth,
)
from delta_sharing_client.predicates.values import Value, normalise, order


def evaluate(expression: Expression, row: Mapping[str, object]) -> bool | None:
    """Return whether ``row`` matches: ``True``, ``False`` or ``None`` for unknown. It is slow, but defines the meaning.

    ``expression`` need not be bound. ``row`` has values by column name as :func:`~.values.normalise` accepts them,
    structs as mappings. Raises ``UsageError`` if values of different families are compared.
    """
    match expression:
        case Literal(value=value):
            return truth(value)
        case Comparison(op=op, left=left, right=right):
            ordering = order(_value(left, row), _value(right, row))
            return None if ordering is None else op.holds(ordering)
        case NullSafeEqual(left=left, right=right):
            a, b = _value(left, row), _value(right, row)
            return a is b if a is None or b is None else order(a, b) == 0
        case In(child=child, values=values):
            orders = [order(_value(child, row), item.value) for item in values]
            return True if 0 in orders else None if None in orders else False
        case IsNull(child=child):
            return (_lookup(child, row) if isinstance(child, Column) else _value(child, row)) is None
        case Like(child=child):
            text = _text(child, row)
            return None if text is None else re.fullmatch(expression.regex(), text) is not None
        case StartsWith(child=child, prefix=prefix):
            text = _text(child, row)
            return None if text is None else text.startswith(prefix)
        case Not(child=inner):
            inverse = evaluate(inner, row)
            return None if inverse is None else not inverse
        case DoubleQuoted(child=inner):
            return evaluate(inner, row)
        case Joined(children=children):
            results, decisive = {evaluate(inner, row) for inner in children}, isinstance(expression, Or)
            return decisive if decisive in results else None if None in results else not decisive
    raise TypeError(f"not a predicate: {type(expression).__name__}")


def _lookup(column: Column, row: Mapping[str, object]) -> object:
    value: object = row
    for name in column.path:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise UsageError(
                f"The field {name!r} of column '{column}' must be in a struct, found {type(value).__name__}."
            )
        value = value[name]
    return value


def _value(operand: Operand, row: Mapping[str, object]) -> Value:
    if isinstance(operand, Call):
        if operand.type is None:
            raise UsageError(f"The expression {operand} must be bound to a schema before it is evaluated.")
        values = [_value(item, row) for item in operand.arguments]
        return functions.apply(operand.name, values, operand.type, str(operand))
    return operand.value if isinstance(operand, Literal) else normalise(_lookup(operand, row))


def _text(operand: Operand, row: Mapping[str, object]) -> str | None:
    value = _value(operand, row)
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"LIKE and startswith need a string, but {operand} is not one.")
