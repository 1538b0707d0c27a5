"""Conditions with one meaning in plain Python, and their texts or expressions in each engine."""

from __future__ import annotations

import datetime
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

Row = Mapping[str, Any]
Truth = Any
"""True, False, or ``None`` for unknown."""
Owner = Literal["scan", "polars", "arrow", "duckdb", "spark"]

UTC = datetime.timezone.utc
DAY = datetime.date(2024, 1, 1)
MOMENT = datetime.datetime(2024, 1, 1, tzinfo=UTC)
# The Arrow type and Spark's type of the columns that conditions compare.
TYPES: dict[str, tuple[pa.DataType, str]] = {
    "id": (pa.int64(), "bigint"),
    "n": (pa.int32(), "int"),
    "x": (pa.float64(), "double"),
    "t": (pa.string(), "string"),
    "name": (pa.string(), "string"),
    "d": (pa.date32(), "date"),
    "ts": (pa.timestamp("us", "UTC"), "timestamp"),
    "dec": (pa.decimal128(9, 2), "decimal(9,2)"),
    "flag": (pa.bool_(), "boolean"),
    "p": (pa.string(), "string"),
    "s.a": (pa.int64(), "bigint"),
    "_row_id": (pa.int64(), "bigint"),
    "_row_commit_version": (pa.int64(), "bigint"),
    "_last_updated_sequence_number": (pa.int64(), "bigint"),
    "_change_type": (pa.string(), "string"),
    "_commit_version": (pa.int64(), "bigint"),
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_TEXTS = ("t", "name", "p", "_change_type")


def value_of(row: Row, column: str) -> Any:
    """Return a value by a name or by the path of a field of a struct."""
    found: Any = row
    for name in column.split("."):
        found = None if found is None else found[name]
    return found


@dataclass(frozen=True)
class Condition:
    """A node: ``and``, ``or``, ``not``, or a test (``kind``) of a ``column`` with constants ``values``."""

    kind: str
    column: str = ""
    values: tuple[Any, ...] = ()
    children: tuple[Condition, ...] = ()

    def __call__(self, row: Row, owner: Owner = "scan") -> Truth:
        """Return the truth in the semantics of ``owner``."""
        if self.children:
            truths = [child(row, owner) for child in self.children]
            if self.kind == "not":
                return None if truths[0] is None else not truths[0]
            decisive = self.kind == "or"
            return decisive if decisive in truths else None if None in truths else not decisive
        return _TESTS[self.kind](value_of(row, self.column), self.values, owner)

    def keeps(self, row: Row, owner: Owner = "scan") -> bool:
        return self(row, owner) is True

    @property
    def columns(self) -> set[str]:
        if not self.children:
            return {self.column.split(".")[0]}
        return set().union(*(child.columns for child in self.children))

    # === In each engine ===

    def sql(self, owner: Owner) -> str:
        """Return the condition in our SQL (``scan``) or in DuckDB's."""
        if self.kind == "not":
            return f"NOT ({self.children[0].sql(owner)})"
        if self.children:
            return "(" + f" {self.kind.upper()} ".join(child.sql(owner) for child in self.children) + ")"
        column, constants = self.column, [_sql(value, owner) for value in self.values]
        match self.kind:
            case "null":
                return f"{column} IS NULL"
            case "in":
                return f"{column} IN ({', '.join(constants)})"
            case "prefix":
                return f"{column} LIKE '{self.values[0]}%'"
            case "remainder":
                return f"{column} % {self.values[0]} = {self.values[1]}"
            case "length":
                return f"length({column}) > {self.values[0]}"
            case "lower":
                return f"lower({column}) = {constants[0]}"
        return f"{column} {self.kind} {constants[0]}"

    def polars(self) -> pl.Expr:
        if self.kind == "not":
            return ~self.children[0].polars()
        if self.children:
            first, *rest = [child.polars() for child in self.children]
            for one in rest:
                first = first & one if self.kind == "and" else first | one
            return first
        name, *path = self.column.split(".")
        column, values = pl.col(name), self.values
        for field in path:
            column = column.struct.field(field)
        match self.kind:
            case "null":
                return column.is_null()
            case "in":
                return column.is_in(list(values))
            case "prefix":
                return column.str.starts_with(values[0])
            case "remainder":
                return column % values[0] == values[1]
            case "length":
                return column.str.len_chars() > values[0]
            case "lower":
                return column.str.to_lowercase() == values[0]
        constant: Any = pl.lit(values[0], pl.Decimal(9, 2)) if isinstance(values[0], Decimal) else values[0]
        result: pl.Expr = _OPERATORS[self.kind](column, constant)  # type: ignore[assignment]
        return result

    def arrow(self) -> pc.Expression:
        if self.kind == "not":
            return ~self.children[0].arrow()
        if self.children:
            first, *rest = [child.arrow() for child in self.children]
            for one in rest:
                first = first & one if self.kind == "and" else first | one
            return first
        column, values = pc.field(*self.column.split(".")), self.values
        kind = TYPES[self.column][0] if self.column in TYPES else None
        match self.kind:
            case "null":
                return column.is_null()
            case "in":
                return pc.is_in(column, pa.array(values, kind))
            case "prefix":
                return pc.starts_with(column, values[0])
            case "remainder":
                return pc.subtract(column, pc.multiply(pc.divide(column, values[0]), values[0])) == values[1]
            case "length":
                return pc.utf8_length(column) > values[0]
            case "lower":
                return pc.utf8_lower(column) == values[0]
        return _OPERATORS[self.kind](column, pa.scalar(values[0], kind))

    def spark(self) -> dict[str, Any] | None:
        """Return the condition as Spark pushes it down, ``None`` if Spark would not push it."""
        if self.children:
            children = [child.spark() for child in self.children]
            return None if None in children else {"name": self.kind.upper(), "children": children}
        column = {"column": self.column.split(".")}
        match self.kind:
            case "null":
                return {"name": "IS_NULL", "children": [column]}
            case "in" | "prefix":
                name = "IN" if self.kind == "in" else "STARTS_WITH"
                return {"name": name, "children": [column, *(self._spark(value) for value in self.values)]}
            case "remainder" | "length" | "lower":
                return None
        return {"name": self.kind, "children": [column, self._spark(self.values[0])]}

    def _spark(self, value: Any) -> dict[str, Any]:
        if isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, datetime.datetime):
            text = str((value - datetime.datetime(1970, 1, 1, tzinfo=UTC)) // datetime.timedelta(microseconds=1))
        elif isinstance(value, datetime.date):
            text = str((value - datetime.date(1970, 1, 1)).days)
        else:
            text = str(value)
        return {"type": TYPES[self.column][1], "value": text}


def _sql(value: Any, owner: Owner) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, datetime.datetime):
        return f"{'TIMESTAMPTZ' if owner == 'duckdb' else 'TIMESTAMP'} '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value}'"
    return str(value).upper() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def _compared(op: str) -> Callable[[Any, tuple[Any, ...], Owner], Truth]:
    def test(value: Any, values: tuple[Any, ...], owner: Owner) -> Truth:
        if value is None:
            return None
        if value != value and owner != "arrow":
            # NaN is greater than all other numbers. In Arrow, it is only unequal to them.
            return op in (">", ">=", "<>")
        return _OPERATORS[op](value, values[0])

    return test


def _known(test: Callable[[Any, tuple[Any, ...]], bool]) -> Callable[[Any, tuple[Any, ...], Owner], Truth]:
    return lambda value, values, _: None if value is None else test(value, values)


_TESTS: dict[str, Callable[[Any, tuple[Any, ...], Owner], Truth]] = {
    **{op: _compared(op) for op in _OPERATORS},
    "null": lambda value, *_: value is None,
    "in": _known(lambda value, values: value in values),
    "prefix": _known(lambda value, values: value.startswith(values[0])),
    # The remainder has the sign of the dividend; no value is negative.
    "remainder": _known(lambda value, values: value % values[0] == values[1]),
    "length": _known(lambda value, values: len(value) > values[0]),
    "lower": _known(lambda value, values: value.lower() == values[0]),
}


# === At random ===


def some_condition(
    chance: random.Random, columns: Sequence[str], values: Callable[[str], Any], *, inverts: bool = True
) -> Condition:
    """Return a condition on ``columns`` (names, and paths of fields); ``values`` returns a constant for a column."""
    tests = [_some_test(chance, columns, values) for _ in range(chance.choice([1, 1, 1, 2, 2, 3]))]
    # Arrow's ``is_in`` is never unknown, and no comparison with NaN is true in Arrow, so their negations differ.
    tests = [
        Condition("not", children=(one,)) if inverts and _is_invertible(one) and chance.random() < 0.15 else one
        for one in tests
    ]
    while len(tests) > 1:
        kind = chance.choice(["and", "and", "or"])
        tests = [Condition(kind, children=(tests[0], tests[1])), *tests[2:]]
    return tests[0]


def _is_invertible(test: Condition) -> bool:
    return test.kind != "in" and test.column != "x"


def _some_test(chance: random.Random, columns: Sequence[str], values: Callable[[str], Any]) -> Condition:
    column = chance.choice([one for one in columns if one in TYPES])
    if chance.random() < 0.12:
        return Condition("null", column)
    if column == "flag":
        return Condition("=", column, (chance.random() < 0.5,))
    if column == "id" and chance.random() < 0.2:
        divisor = chance.choice([2, 3, 7])
        return Condition("remainder", column, (divisor, chance.randrange(divisor)))
    if column in _TEXTS and chance.random() < 0.4:
        kind = chance.choice(["prefix", "length", "lower"])
        if kind == "length":
            return Condition(kind, column, (chance.choice([0, 1, 3, 8]),))
        text = values(column)
        return Condition(kind, column, (text[:2] if kind == "prefix" else text.lower(),))
    if chance.random() < 0.2 and column != "x":
        return Condition("in", column, tuple(values(column) for _ in range(chance.randint(1, 4))))
    return Condition(chance.choice(list(_OPERATORS)), column, (values(column),))
