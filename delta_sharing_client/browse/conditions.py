"""Conditions that the page writes for its user: a column has the value of a shown cell, or another one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import And, Column, Expression, Literal

_AS_TEXT = (pa.types.is_string, pa.types.is_date, pa.types.is_timestamp)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_EXACT = (pa.types.is_integer, pa.types.is_decimal)


def with_value(
    condition: str, schema: pa.Schema, path: Sequence[str], text: str | None, *, is_negated: bool = False
) -> str:
    """Return ``condition`` and, joined by AND, the condition that the column at ``path`` has the value that the page
    shows as ``text`` (``None`` for null); with ``is_negated``, that it has another one, which may be null.

    Raises ``UsageError`` if ``condition`` cannot be parsed, or the type of the column has no constants.
    """
    present = parse_filter(condition.strip() or None)
    added = _value_is(schema, tuple(path), text, is_negated)
    return str(added if present is None else And((present, added)))


def _value_is(schema: pa.Schema, path: tuple[str, ...], text: str | None, is_negated: bool) -> Expression:
    column, kind = Column(path), type_at(schema, path)
    if text is None:
        sql = f"{column} IS {'NOT ' if is_negated else ''}NULL"
    else:
        sql = f"{column} {'IS DISTINCT FROM' if is_negated else '='} {_constant(kind, text, column)}"
    parsed = parse_filter(sql)
    assert parsed is not None
    return parsed


def _constant(kind: pa.DataType, text: str, column: Column) -> str:
    if any(is_it(kind) for is_it in _AS_TEXT):
        return str(Literal(text))
    if any(is_it(kind) for is_it in _EXACT) and _NUMBER.fullmatch(text):
        return text
    if pa.types.is_boolean(kind) and text in ("true", "false"):
        return text.upper()
    if pa.types.is_floating(kind):
        return f"float({Literal(text)})" if pa.types.is_float32(kind) else f"CAST({Literal(text)} AS DOUBLE)"
    raise UsageError(f"The page cannot write a condition for the column {column}, because of its type; type one.")


def type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of the column, or field of a struct, at ``path``; ``UsageError`` if there is none."""
    level: pa.DataType = pa.struct(list(schema))
    for name in path:
        index = level.get_field_index(name) if pa.types.is_struct(level) else -1
        if index < 0:
            raise UsageError(f"The table has no column {Column(path)}.")
        level = level.field(index).type
    return level
