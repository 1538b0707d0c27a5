"""Random Spark SQL conditions over columns of all types, and rows with the boundary values of the types.

``python -m tests.spark.conditions [NUMBER]`` evaluates that many in Spark (3,000 by default): see
``test_push_down``.
"""

from __future__ import annotations

import datetime
import random
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

UTC = datetime.timezone.utc
SCHEMA = pa.schema(
    [
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("dec", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("bin", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
        ("s", pa.struct([("x", pa.int32()), ("y.z", pa.string())])),
        ("odd.na`me", pa.string()),
    ]
)
_NAN, _INF = float("nan"), float("inf")
_VALUES: dict[str, list[Any]] = {
    "i8": [-128, -1, 0, 1, 127, None],
    "i16": [-32768, -1, 0, 7, 300, None],
    "i32": [-(2**31), -7, 0, 1, 2**31 - 1, None],
    "i64": [-(2**63), 0, 1, 2**53 + 1, 2**63 - 1, None],
    "f32": [_NAN, -0.0, 0.10000000149011612, 16777216.0, -_INF, None],
    "f64": [_NAN, -0.0, 0.1, 9007199254740993.0, _INF, None],
    "dec": [Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.25"), Decimal("1.20"), None],
    "wide": [Decimal("1E-10"), Decimal("0"), Decimal("1234567890123456789012345678.0123456789"), Decimal("1.25"), None],
    "text": ["", "a", "it's", "Ünï%_\\", "\U0001f600", "\uffff", "\ufffd", "\ufffc", "zz", None],
    "bin": [b"", b"\x00", b"a", b"\xff\xfe", None],
    "flag": [True, False, None],
    "day": [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None],
    "ts": [
        datetime.datetime(1582, 10, 4, tzinfo=UTC),
        datetime.datetime(2024, 3, 10, 2, 30, tzinfo=UTC),
        datetime.datetime(2024, 11, 3, 1, 30, 0, 1, tzinfo=UTC),
        None,
    ],
    "ntz": [datetime.datetime(1582, 10, 4), datetime.datetime(2024, 3, 10, 2, 30, 0, 999_999), None],
    "odd.na`me": ["x", "", None],
}
_NUMBERS = ["i8", "i16", "i32", "i64", "f32", "f64", "dec", "wide"]
_NUMBER_TEXTS = ["0", "1", "-1", "7", "127", "128", "-129", "300", "16777217", "2147483648", "9007199254740993", "NULL"]
_NUMBER_TEXTS += ["1.25", "1.2", "0.1", "1.250BD", "1.5D", "0.1D", "0.1F", "1E10D"]
_NUMBER_TEXTS += ["DOUBLE('NaN')", "DOUBLE('Infinity')", "FLOAT('-Infinity')"]
NOT_TEXT = ["CAST(X'FF' AS STRING)", "CAST(X'61FF' AS STRING)", "CAST(X'EDA080' AS STRING)"]
"""Texts of Spark that are not valid UTF-8; the last one is a lone surrogate."""
_STRINGS = [*NOT_TEXT, "CAST(X'EFBFBC' AS STRING)", "'\ufffd'"]
_STRINGS += ["''", "'a'", "'it\\'s'", "'Ünï%_\\\\'", "'\U0001f600'", "'\uffff'", "'z'", "NULL"]
_DAYS = ["DATE'2024-02-29'", "'2024-02-29'", "DATE'0001-01-01'", "TIMESTAMP'2024-02-29 05:00:00'", "NULL"]
_TIMES = [
    "TIMESTAMP'2024-03-10 02:30:00'",
    "TIMESTAMP'2024-11-03 01:30:00.000001Z'",
    "'2024-03-10 02:30:00'",
    "TIMESTAMP_NTZ'2024-03-10 02:30:00.999999'",
    "DATE'2024-03-10'",
]
_CONSTANTS: dict[str, Sequence[str]] = {
    **dict.fromkeys(_NUMBERS, _NUMBER_TEXTS),
    **dict.fromkeys(("text", "`odd.na``me`", "s.`y.z`"), _STRINGS),
    "s.x": ["0", "1", "NULL", "1.5"],
    "bin": ["X''", "X'00'", "X'61'", "X'FFFE'", "NULL"],
    "flag": ["true", "false", "NULL"],
    "day": _DAYS,
    "ts": _TIMES,
    "ntz": _TIMES,
}


WITHIN = ["coalesce({}, false)", "nvl({}, true)", "if({}, true, flag)", "CASE WHEN {} THEN flag ELSE true END"]
WITHIN += ["({}) <=> true", "coalesce({}, NULL)", "nullif({}, flag)", "({}) IS NULL", "({}) = flag"]
"""Where Spark wants the value of a condition, and not whether it holds."""


def rows(number: int = 40, seed: int = 1) -> list[dict[str, Any]]:
    """Return rows of ``SCHEMA`` that contain every boundary value of each type."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    for position in range(number):
        row = {
            name: values[position] if position < len(values) else draw.choice(values)
            for name, values in _VALUES.items()
        }
        row["s"] = draw.choice([None, {"x": draw.choice([0, 1, None]), "y.z": draw.choice(["", "a", None])}])
        found.append(row)
    return found


def conditions(number: int, seed: int = 7) -> list[str]:
    """Return ``count`` conditions; a larger count returns the same ones first."""
    draw = random.Random(seed)
    return [_condition(draw, 3) for _ in range(number)]


def _condition(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.45:
        kind = draw.choice(["AND", "OR", "NOT"])
        if kind == "NOT":
            return f"NOT ({_condition(draw, depth - 1)})"
        return f"({_condition(draw, depth - 1)}) {kind} ({_condition(draw, depth - 1)})"
    column = draw.choice(list(_CONSTANTS))
    constants = _CONSTANTS[column]
    if depth and draw.random() < 0.1:
        return draw.choice(WITHIN).format(_condition(draw, depth - 1))
    form = draw.randrange(12)
    if form == 0:
        return f"{draw.choice([column, 's', 's.x'])} IS {draw.choice(['', 'NOT '])}NULL"
    if form == 1:
        values = ", ".join(draw.choice(constants) for _ in range(draw.choice([1, 2, 12])))
        return f"{column} {draw.choice(['', 'NOT '])}IN ({values})"
    if form == 2:
        return f"{column} <=> {draw.choice(constants)}"
    if form == 3:
        return f"{column} BETWEEN {draw.choice(constants)} AND {draw.choice(constants)}"
    if form == 4:
        text = draw.choice(["text", "`odd.na``me`", "s.`y.z`"])
        test = draw.choice(["startswith", "endswith", "contains"])
        return f"{test}({text}, {draw.choice(_STRINGS)})"
    if form == 5:
        pattern = draw.choice(["a%", "%a", "%%", "_", "%\\\\_%", "Ü%", "%'%", "it%s"]).replace("'", "\\'")
        return f"text {draw.choice(['', 'NOT '])}LIKE '{pattern}'"
    if form == 6:
        return f"{draw.choice(_NUMBERS)} {draw.choice(['<', '=', '>=', '<=>'])} {draw.choice(_NUMBERS)}"
    if form == 7:
        return draw.choice(["flag", "NOT flag", "upper(text) = 'A'", "coalesce(i32, 1) = 1", "day = ts", "ts = ntz"])
    if form == 8:
        return f"CAST({draw.choice(['i8', 'i16', 'i32'])} AS {draw.choice(['bigint', 'string', 'double'])}) > 0"
    operator = draw.choice(["=", "<>", "<", "<=", ">", ">=", "!="])
    sides = [column, draw.choice(constants)]
    draw.shuffle(sides)
    return f"{sides[0]} {operator} {sides[1]}"


if __name__ == "__main__":
    import os

    import pytest

    os.environ["CONDITIONS"] = sys.argv[1] if len(sys.argv) > 1 else "3000"
    sys.exit(pytest.main(["-n", "0", "-q", "tests/spark/test_push_down.py", "-k", "condition", "--timeout", "3600"]))
