"""What our own classes tell a read: the predicates and the limit of one scan, from the classes of ``PushDown.java``,
and what is known of the table.

The predicates are Spark's (``org.apache.spark.sql.connector.expressions.filter.Predicate``) as JSON: a column is
``{"column": [name, ...]}``, a constant ``{"type": "bigint", "value": "7"}`` with the text of Spark's internal value,
and everything else ``{"name": "AND", "children": [...]}``. Spark filters the rows again, so a predicate may be weakened
or omitted, as it is if its meaning differs here. Only conditions that cannot fail are used, because Spark might never
evaluate a failing one.
"""

from __future__ import annotations

import base64
import dataclasses
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyspark.sql.types as spark

from delta_sharing_client.columns import Names
from delta_sharing_client.errors import UsageError
from delta_sharing_client.options import TableFormat
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
from delta_sharing_client.predicates.values import Clock, Day, Moment, Value, Zone
from delta_sharing_client.protocol.line_order import TableHead

Told = Mapping[str, Any]


def not_for_users(name: str) -> UsageError:
    """Return the error for an option that only our own classes may set, but did not."""
    return UsageError(f"Option '{name}' is set by this data source itself; leave it out.")


class LoadedTable(msgspec.Struct, frozen=True):
    """What a server stated about a table when a DataFrame was created. With it, a query sends no further request for
    the table's metadata."""

    schema_string: str
    partition_columns: list[str]
    table_format: TableFormat

    @classmethod
    def of(cls, head: TableHead) -> LoadedTable:
        """Return the description in the head of a response."""
        return cls(head.metadata.schema_string, head.metadata.partition_columns, head.table_format)

    @classmethod
    def parse(cls, name: str, text: str) -> LoadedTable:
        """Parse the option ``name``. Raises ``UsageError`` if our own classes did not write it."""
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.DecodeError:
            raise not_for_users(name) from None

    def text(self) -> str:
        """Return the value of the option."""
        return msgspec.json.encode(self).decode()


@dataclasses.dataclass(frozen=True)
class Pushed:
    """The predicates of a scan, all of which are true for the rows that Spark keeps, and the number of rows that
    suffices."""

    predicates: tuple[Told, ...] = ()
    limit: int | None = None

    @property
    def rows(self) -> int | None:
        """The number of the read's rows that suffices. ``limit`` is that number only without predicates: with them,
        Spark would count the rows that it keeps."""
        return None if self.predicates else self.limit

    @classmethod
    def parse(cls, name: str, text: str) -> Pushed:
        """Parse the option ``name``. Raises ``UsageError`` if our own classes did not write it."""
        try:
            found = json.loads(text)
            return cls(tuple(found["predicates"]), found.get("limit"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise not_for_users(name) from None

    def filter(self, columns: spark.StructType, schema: pa.Schema) -> Expression | None:
        """Return a condition that is true for every row for which Spark finds all predicates true, or ``None``.

        ``columns`` and ``schema`` are the table's columns, with those that the read adds, as Spark and Arrow types.
        """
        reading = _Reading(columns, schema)
        return known_of_all(map(reading.implied, self.predicates))


class _OtherMeaningError(Exception):
    """No condition of ours always has the same value as a predicate."""


class _Reading:
    def __init__(self, columns: spark.StructType, schema: pa.Schema) -> None:
        self._columns = columns
        self._names = Names(schema)
        # The types of fields by name, for each struct that a predicate names, because a table may have thousands of
        # columns.
        self._types: dict[tuple[str, ...], dict[str, spark.DataType]] = {}

    def implied(self, told: Told) -> Expression | None:
        """Return a condition that is true wherever ``told`` is true; ``None`` if there is none."""
        name, children = told.get("name"), told.get("children", ())
        if name == "AND":
            return known_of_all(map(self.implied, children))
        if name == "OR":
            return known_of_any(map(self.implied, children))
        try:
            found = self.same(told)
            bind(found, self._names)
        except (_OtherMeaningError, UsageError, ValueError, KeyError, ArithmeticError):
            return None  # also if a constant is one that no column of ours can contain
        return found

    def same(self, told: Told) -> Expression:
        """Return a condition that always has the same value as ``told``: true, false or unknown. Raises
        ``_OtherMeaningError`` if there is none."""
        name, children = told["name"], told["children"]
        match name:
            case "AND":
                return all_of(map(self.same, children))
            case "OR":
                return any_of(map(self.same, children))
            case "NOT":
                return Not(self.same(children[0]))
            case "IS_NULL":
                return IsNull(self.column(children[0])[0])
            case "IS_NOT_NULL":
                return Not(IsNull(self.column(children[0])[0]))
            case "IN":
                column, type_name = self.column(children[0])
                return In(column, tuple(self.constant(child, type_name) for child in children[1:]))
            case "STARTS_WITH":
                return StartsWith(*self.text(children))
            case "ENDS_WITH" | "CONTAINS":
                column, text = self.text(children)
                return Like(column, f"%{_quoted(text)}{'%' if name == 'CONTAINS' else ''}")
            case "ALWAYS_TRUE" | "ALWAYS_FALSE":
                return Literal(name == "ALWAYS_TRUE")
            case "<=>":
                left, right, _ = self.sides(children)
                return NullSafeEqual(left, right)
        op = Op(name)
        left, right, is_exchanged = self.sides(children)
        return Comparison(op.flipped if is_exchanged else op, left, right)

    def column(self, told: Told) -> tuple[Column, str]:
        """Return a column and the name of its Spark type."""
        found: spark.DataType = self._columns
        path = tuple(told["column"])
        for depth, name in enumerate(path):
            if not isinstance(found, spark.StructType):
                raise _OtherMeaningError
            if path[:depth] not in self._types:
                self._types[path[:depth]] = {field.name: field.dataType for field in found.fields}
            found = self._types[path[:depth]][name]
        return Column(path), found.simpleString()

    def constant(self, told: Told, type_name: str) -> Literal:
        """Return a constant of the Spark type ``type_name``. No other type is possible, because Spark would have cast
        the column."""
        read = _VALUES[_family(type_name)]
        if told.get("type") != type_name:
            raise _OtherMeaningError
        return Literal(None if told["value"] is None else read(told["value"]))

    def sides(self, children: Sequence[Told]) -> tuple[Column, Column | Literal, bool]:
        """Return the two sides of a comparison, with the column first, and whether they were exchanged."""
        first, second = children
        is_exchanged = "column" not in first
        if is_exchanged:
            first, second = second, first
        column, type_name = self.column(first)
        if "column" not in second:
            return column, self.constant(second, type_name), is_exchanged
        other, other_type = self.column(second)
        if type_name != other_type or _family(type_name) not in _VALUES:
            raise _OtherMeaningError
        return column, other, is_exchanged

    def text(self, children: Sequence[Told]) -> tuple[Column, str]:
        """Return the column and the constant of a string comparison."""
        column, type_name = self.column(children[0])
        part = self.constant(children[1], "string").value
        if type_name != "string" or part is None:
            raise _OtherMeaningError
        return column, str(part)


def _family(type_name: str) -> str:
    return type_name.split("(")[0]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


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
    "time": lambda text: Clock(int(text)),
}
"""For each type, a function that parses Spark's internal value from a string."""
