"""The predicates and the limit of one scan, from the classes of ``PushDown.java``.

The predicates are Spark's (``org.apache.spark.sql.connector.expressions.filter.Predicate``) as JSON: a column is
``{"column": [name, ...]}``, a constant ``{"type": "bigint", "value": "7"}`` with the text of Spark's internal value,
and everything else ``{"name": "AND", "children": [...]}``. Spark filters the rows again, so a predicate may be weakened
or omitted, and it is if its meaning differs here. Only conditions that cannot fail are used, because Spark might never
evaluate a failing one.
"""

from __future__ import annotations

import base64
import dataclasses
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark.sql.types as spark

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.tree import (
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
    StartsWith,
    all_of,
    any_of,
    known_of_all,
    known_of_any,
)
from delta_sharing_client.predicates.values import Day, Moment, Value, Zone

Told = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Pushed:
    """The predicates of a scan, all of which hold for the rows that Spark keeps, and the number of rows that is
    enough."""

    predicates: tuple[Told, ...] = ()
    limit: int | None = None

    @classmethod
    def parse(cls, name: str, text: str) -> Pushed:
        """Parse the option ``name``; ``UsageError`` if our own classes did not write it."""
        try:
            found = json.loads(text)
            return cls(tuple(found["predicates"]), found.get("limit"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"Option '{name}' is set by this data source itself; leave it out.") from None

    def filter(self, columns: spark.StructType, schema: pa.Schema) -> Expression | None:
        """Return a condition that is true for every row for which Spark finds all predicates true, or ``None``.

        ``columns`` and ``schema`` are the table's columns, with those that the read adds, as Spark and Arrow types.
        """
        reading = _Reading(columns)
        return known_of_all(_bindable(reading.implied(predicate), schema) for predicate in self.predicates)


def _family(type_name: str) -> str:
    return type_name.split("(")[0]


def _bindable(condition: Expression | None, schema: pa.Schema) -> Expression | None:
    try:
        if condition is not None:
            bind(condition, schema)
    except UsageError:
        return None
    return condition


class _Reading:
    def __init__(self, columns: spark.StructType) -> None:
        self._columns = columns

    def implied(self, told: Told) -> Expression | None:
        """Return a condition that is true wherever ``told`` is true."""
        name, children = told.get("name"), told.get("children", ())
        if name == "AND":
            return known_of_all(map(self.implied, children))
        if name == "OR":
            return known_of_any(map(self.implied, children))
        return self.same(told)

    def same(self, told: Told) -> Expression | None:
        """Return a condition with the same value as ``told``: true, false or unknown."""
        build = _CONDITIONS.get(told.get("name", ""))
        try:
            return None if build is None else build(self, told["children"])
        except (UsageError, ValueError, KeyError, ArithmeticError):
            return None  # a constant that none of our columns can contain

    def all_the_same(self, children: Sequence[Told]) -> list[Expression] | None:
        found = [self.same(child) for child in children]
        return None if None in found else [child for child in found if child is not None]

    def column(self, told: Told) -> tuple[Column, str] | None:
        """Return a column and the name of its Spark type."""
        path = tuple(told.get("column", ()))
        found: spark.DataType = self._columns
        for name in path:
            if not isinstance(found, spark.StructType) or name not in found.names:
                return None
            found = found[name].dataType
        return (Column(path), found.simpleString()) if path else None

    def constant(self, told: Told, type_name: str) -> Literal | None:
        """Return a constant of the Spark type ``type_name``; for other types Spark would have cast the column."""
        if told.get("type") != type_name:
            return None
        read = _VALUES.get(_family(type_name))
        return None if read is None else Literal(None if told["value"] is None else read(told["value"]))

    def sides(self, children: Sequence[Told]) -> tuple[Column, Column | Literal, bool] | None:
        """Return the sides of a comparison, its column first, and whether they were exchanged."""
        for (first, second), exchanged in ((children, False), (children[::-1], True)):
            column = self.column(first)
            if column is None:
                continue
            other = self.column(second)
            if other is not None:
                comparable = column[1] == other[1] and _family(column[1]) in _VALUES
                return (column[0], other[0], exchanged) if comparable else None
            constant = self.constant(second, column[1])
            return None if constant is None else (column[0], constant, exchanged)
        return None


def _comparison(op: Op) -> Callable[[_Reading, Sequence[Told]], Expression | None]:
    def build(reading: _Reading, children: Sequence[Told]) -> Expression | None:
        found = reading.sides(children)
        return None if found is None else Comparison(op.flipped if found[2] else op, found[0], found[1])

    return build


def _null_safe(reading: _Reading, children: Sequence[Told]) -> Expression | None:
    found = reading.sides(children)
    return None if found is None else NullSafeEqual(found[0], found[1])


def _in(reading: _Reading, children: Sequence[Told]) -> Expression | None:
    column = reading.column(children[0])
    values = [None if column is None else reading.constant(child, column[1]) for child in children[1:]]
    known = tuple(value for value in values if value is not None)
    return In(column[0], known) if column is not None and known and len(known) == len(values) else None


def _is_null(reading: _Reading, children: Sequence[Told]) -> Expression | None:
    column = reading.column(children[0])
    return None if column is None else IsNull(column[0])


def _not(reading: _Reading, children: Sequence[Told]) -> Expression | None:
    found = reading.same(children[0])
    return None if found is None else Not(found)


def _not_null(reading: _Reading, children: Sequence[Told]) -> Expression | None:
    found = _is_null(reading, children)
    return None if found is None else Not(found)


def _combination(
    combine: Callable[[list[Expression]], Expression],
) -> Callable[[_Reading, Sequence[Told]], Expression | None]:
    def build(reading: _Reading, children: Sequence[Told]) -> Expression | None:
        found = reading.all_the_same(children)
        return None if found is None else combine(found)

    return build


def _text(make: Callable[[Column, str], Expression]) -> Callable[[_Reading, Sequence[Told]], Expression | None]:
    def build(reading: _Reading, children: Sequence[Told]) -> Expression | None:
        column = reading.column(children[0])
        part = None if column is None or column[1] != "string" else reading.constant(children[1], "string")
        return None if column is None or part is None or part.value is None else make(column[0], str(part.value))

    return build


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


_CONDITIONS: dict[str, Callable[[_Reading, Sequence[Told]], Expression | None]] = {
    **{op.value: _comparison(op) for op in Op},
    "<=>": _null_safe,
    "IN": _in,
    "IS_NULL": _is_null,
    "IS_NOT_NULL": _not_null,
    "NOT": _not,
    "AND": _combination(all_of),
    "OR": _combination(any_of),
    "STARTS_WITH": _text(StartsWith),
    "ENDS_WITH": _text(lambda column, text: Like(column, "%" + _quoted(text))),
    "CONTAINS": _text(lambda column, text: Like(column, f"%{_quoted(text)}%")),
    "ALWAYS_TRUE": lambda _reading, _children: Literal(True),
    "ALWAYS_FALSE": lambda _reading, _children: Literal(False),
}


def _moment(zone: Zone) -> Callable[[str], Value]:
    return lambda text: Moment(int(text) * 1000, zone)


_VALUES: dict[str, Callable[[str], Value]] = {
    "boolean": lambda text: {"true": True, "false": False}[text],
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    **dict.fromkeys(("float", "double"), float),
    "decimal": decimal.Decimal,
    "string": str,
    "binary": lambda text: base64.b64decode(text),
    "date": lambda text: Day(int(text)),
    "timestamp": _moment(Zone.UTC),
    "timestamp_ntz": _moment(Zone.LOCAL),
}
"""How Spark's internal value of a type is read from its text."""
