"""The SQL that Spark and DuckDB read differently: a filter's text never has two meanings, so it is refused.

``ds.sql``, ``attach`` and an assistant's tools pass the same text to DuckDB. Only what both accept is refused, and only
in text: conditions of ``ds.col``, tuples and engines have one meaning, as have texts that DuckDB does not accept.
"""

from __future__ import annotations

import decimal
import re

import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.tree import Call, Column, Literal, Operand
from delta_sharing_client.predicates.value_kinds import Kind, describe, kind_of
from delta_sharing_client.predicates.values import Clock, Moment, Zone, as_double, as_float, format_value

_IN_UTC = re.compile(r"(?:Z|UTC|GMT|UT|[+-]00?(?::?00)?)\s*\Z", re.IGNORECASE)
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMAL_MESSAGE = "DECIMAL without digits is DECIMAL(10, 0) in Spark and DECIMAL(18, 3) in DuckDB. Write the digits."
FLOAT_MESSAGE = (
    "DuckDB rounds integers and decimals that are compared with a constant of type FLOAT, Spark compares doubles. Write"
    " a double (0.1E0), or float('0.1'), which only filters have."
)


def backslash_message(literal: str) -> str:
    """Return the message for a string in single quotes that has a backslash."""
    return (
        f"The string {literal} has a backslash, which begins an escape sequence in Spark, but not in DuckDB. Double a"
        " quote ('it''s'), choose another escape character for LIKE ('100!%' ESCAPE '!'), and write a raw string for"
        r" a backslash that means itself (r'C:\dir')."
    )


def check_zone(text: str, moment: Moment) -> None:
    """Refuse ``TIMESTAMP 'text'`` in a zone other than UTC: DuckDB ignores the zone."""
    if moment.zone is Zone.UTC and not _IN_UTC.search(text):
        raise UsageError(
            f"DuckDB ignores the zone of TIMESTAMP '{text}'. Write the string alone, as in ts = '{text}', or the"
            f" constant in UTC: {format_value(moment)}."
        )


def check_comparison(left: Operand, right: Operand) -> None:
    """Refuse a comparison of two bound operands from SQL text if DuckDB rounds a side. ``left`` is not a constant."""
    if not _is_sql(left):
        return
    for side, other in ((left, right), (right, left)):
        if _is_float(side) and _is_rounded_to_float(other):
            raise UsageError(
                f"DuckDB rounds {_named(other)} to a float, Spark compares doubles. Write CAST({side} AS DOUBLE) for"
                f" {_named(side)}."
            )
    value = right.value if isinstance(right, Literal) else None
    if isinstance(value, (Moment, Clock)) and value.nanoseconds % 1000 and getattr(_type(left), "unit", "") != "ns":
        raise UsageError(f"The constant {right} has more than six digits after the point. Leave the others out.")


def check_call(bound: Call, *, is_cast: bool) -> None:
    """Refuse a bound call from SQL text, written as ``CAST`` if ``is_cast``, whose result is different in DuckDB."""
    if not any(map(_is_sql, bound.arguments)):
        return
    first = bound.arguments[0]
    if is_cast and bound.name in _INTEGERS and _kind(first) in (Kind.FLOATING, Kind.DECIMAL):
        raise UsageError(
            f"A cast of {_named(first)} to an integer cuts the fraction off in Spark, and rounds in DuckDB. Write"
            f" {bound} to cut it off."
        )
    if is_cast and bound.name == "timestamp" and _kind(first) is Kind.STRING:
        raise UsageError(
            f"A cast of {_named(first)} to TIMESTAMP ignores time zones in DuckDB. Write {bound}, which does not."
        )
    if any(map(_is_float, bound.arguments)) and not all(map(_is_floating, bound.arguments)):
        raise UsageError(f"'{bound}' is a float in DuckDB, and a double in Spark. Cast its float to DOUBLE.")


def _is_sql(operand: Operand) -> bool:
    if isinstance(operand, Call):
        return any(map(_is_sql, operand.arguments))
    return isinstance(operand, Column) and operand.in_sql


def _type(operand: Operand) -> pa.DataType:
    return pa.null() if isinstance(operand, Literal) else operand.type


def _kind(operand: Operand) -> Kind:
    return kind_of(_type(operand))


def _is_float(operand: Operand) -> bool:
    return _type(operand) == pa.float32()


def _is_floating(operand: Operand) -> bool:
    return isinstance(operand.value, float) if isinstance(operand, Literal) else _kind(operand) is Kind.FLOATING


def _is_rounded_to_float(operand: Operand) -> bool:
    if isinstance(operand, Literal):
        value = operand.value
        return isinstance(value, (int, decimal.Decimal)) and as_float(as_double(value)) != value
    return _kind(operand) is Kind.DECIMAL or _type(operand) in (pa.int32(), pa.int64())


def _named(operand: Operand) -> str:
    return f"'{operand}'" if isinstance(operand, Literal) else f"'{operand}' ({describe(operand.type)})"
