"""Operators and functions in filters: their types, and their values, which are equal in every interpreter."""

from __future__ import annotations

import datetime
import decimal
import math
from decimal import Decimal
from typing import Any
from unittest import mock

import duckdb
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind, fixed, is_exact
from delta_sharing_client.predicates.functions import FUNCTIONS, ROWS
from delta_sharing_client.predicates.hints import weaken
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import (
    And,
    Call,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Operand,
    Or,
    call,
    cast,
    col,
    columns,
    has_calls,
)
from delta_sharing_client.predicates.value_kinds import Kind
from delta_sharing_client.predicates.values import (
    Day,
    Interval,
    Moment,
    Zone,
    current_moment,
    normalise,
    parse_date,
)
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.predicates.strategies import PATHS, SCHEMA, batch_of, column_bounds, constants, may_match, rows
from tests.versions import understood

ROW = {
    "flag": True,
    "i8": 100,
    "i32": 7,
    "i64": None,
    "f32": 0.5,
    "f64": 2.5,
    "small": Decimal("1.25"),
    "wide": Decimal("1"),
    "text": "Straße",
    "blob": b"abc",
    "day": Day(19_782),  # 2024-02-29
    "instant": datetime.datetime(2024, 12, 31, 23, 59, tzinfo=datetime.timezone.utc),
    "wall": datetime.datetime(1969, 12, 31, 23),
    "void": None,
    "Nest": {"n": 3, "Deep": {"t": "x"}},
    "dotted.name": 1,
    "list": [1],
}


def result_of(sql: str, row: dict[str, Any] = ROW) -> bool | None:
    """Return the result of a filter for a row; the reference and Arrow must agree."""
    bound = bind(fixed(parse_filter(sql), current_moment()), SCHEMA)
    result = evaluate(bound, row)
    batch = pa.RecordBatch.from_pylist([{**row, "day": row["day"] and datetime.date(2024, 2, 29)}], schema=SCHEMA)
    assert mask(bound, batch).to_pylist() == [result is True]
    assert mask(bind(fixed(Not(parse_filter(sql)), current_moment()), SCHEMA), batch).to_pylist() == [result is False]
    return result


@pytest.mark.parametrize(
    ("sql", "expected"),
    understood(
        [
            ("i32 * 2 = 14", True),
            ("i32 + i8 > 106", True),
            ("2 - i32 = -5", True),
            ("-i32 = -7", True),
            ("i32 / 2 = 3.5", True),
            ("i32 * 2 + 1 = 15", True),
            ("i32 * (2 + 1) = 21", True),
            ("i64 + 1 > 0", None),
            ("void + 1 > 0", None),
            ("i32 + NULL > 0", None),
            ("small * 2 = 2.5", True),
            ("small + 0.001 = 1.251", True),
            ("small * small = 1.5625", True),
            ("i8 + small = 101.25", True),
            ("f32 * 2E0 = 1", True),
            ("f64 * 1.5 = 3.75", True),
            ("small * 2E0 = 2.5", True),
            ("f64 > 100 * 2 - 198", True),
            ("lower(text) = 'straße'", True),
            ("upper(text) = 'STRASSE'", True),
            ("upper(text) LIKE 'STR%E'", True),
            ("startswith(lower(text), 'str')", True),
            ("length(text) = 6", True),
            ("length(blob) = 3", True),
            ("lower(text) IN ('a', 'straße')", True),
            ("lower('ABC') = 'abc'", True),
            ("year(day) = 2024 AND month(day) = 2 AND day(day) = 29", True),
            ("year(instant) = 2024", True),
            ("year(instant) IN (2023, 2025)", False),
            ("year(wall) = 1969 AND month(wall) = 12", True),
            ("day(wall) = 31", True),
            ("coalesce(i64, i32) = 7", True),
            ("coalesce(i64, 5) = 5", True),
            ("coalesce(i64, 5.5) = 5.5", True),
            ("coalesce(void, NULL, i32) = 7", True),
            ("coalesce(i64, i64) IS NULL", True),
            ("(i64 + 1) IS NULL", True),
            ("(i32 + 1) <=> 8", True),
            ("(i64 + 1) <=> NULL", True),
            ("i32 + 1 = i32 - -1", True),
            ("Nest.n * 2 BETWEEN 6 AND 6", True),
            ("nvl(text, 'x') = 'Straße'", True),
            ("coalesce(day, '2024-01-01') > '2024-02-01'", True),
            ("i32 % 4 = 3 AND -i32 % 4 = -3 AND i32 % -4 = 3", True),
            ("f64 % 1 = 0.5 AND -f64 % 2 = -0.5", True),
            ("i64 % 2 = 0", None),
            ("(i32 + 1) % 8 = 0", True),
            ("text ILIKE 'sTRAß%'", True),
            ("text NOT ILIKE '%SS%'", True),
            ("date(instant) = '2024-12-31' AND date(wall) = '1969-12-31' AND to_date(day) = '2024-02-29'", True),
            ("date(instant) IN ('2024-12-31', NULL)", True),
            ("year(date(instant)) = 2024", True),
            ("int(f64) = 2 AND bigint(-f64) = -2 AND int(small) = 1", True),
            ("CAST(i64 AS INT) = 2", None),
            ("CAST(flag AS INT) + 1 = 2", True),
            ("CAST(i32 AS STRING) = '7' AND string(flag) = 'true'", True),
            ("CAST(day AS STRING) LIKE '2024-02-%'", True),
            ("CAST(coalesce(void, ' 12 ') AS INT) = 12", True),
            ("CAST(lower(CAST(i32 AS STRING)) AS DOUBLE) = 7E0", True),
            ("double(CAST(i32 AS FLOAT)) / 2 = 3.5", True),
            ("i8::bigint * 100000000000 > 1", True),
            ("date(CAST(day AS STRING)) = day", True),
            ("now() > instant AND current_date() > day AND now() <= now()", True),
            ("date(now()) >= current_date()", True),
            ("CAST(small AS DECIMAL(3, 1)) = 1.3 AND CAST(-small AS DECIMAL(3, 1)) = -1.3", True),
            ("CAST(i32 AS DECIMAL(5, 2)) = 7.00 AND decimal(small) = 1 AND CAST(flag AS DECIMAL(1, 0)) = 1", True),
            ("CAST(CAST(i32 AS STRING) AS DECIMAL(4, 2)) = 7", True),
            ("CAST(1.25 AS DECIMAL(3, 1)) = 1.3 AND CAST('2.5' AS DECIMAL(10)) = 3 AND i32 = 7", True),
            ("CAST(i64 AS DECIMAL(3, 1)) > 1", None),
            ("boolean(i32) AND NOT CAST(i32 - 7 AS BOOLEAN) AND flag::boolean", True),
            ("CAST(day AS TIMESTAMP) = TIMESTAMP '2024-02-29 00:00:00Z'", True),
            ("CAST(wall AS TIMESTAMP) < instant AND timestamp(day) < instant", True),
            ("CAST(instant AS TIMESTAMP_NTZ) > wall AND CAST(day AS TIMESTAMP_NTZ) > wall", True),
            ("timestamp(CAST(day AS STRING)) = day AND to_timestamp(string(day)) = day", True),
            ("CAST(i32 AS TIMESTAMP) = '1970-01-01 00:00:07Z'", True),
            ("instant + INTERVAL 1 MINUTE = '2025-01-01 00:00:00Z'", True),
            ("day + INTERVAL -2 DAY = '2024-02-27'", True),
            ("instant + INTERVAL ' 1 ' MINUTE = '2025-01-01 00:00:00Z'", True),
            ("BIGINT(i32) = 7 AND i32 IN ((7), 1) AND i32 IN (length('1234567'))", True),
            ("wall + INTERVAL '2' HOUR = '1970-01-01 01:00' AND wall - INTERVAL 23 HOURS = '1969-12-31'", True),
            ("day + 1 = '2024-03-01' AND 1 + day = day - -1 AND day - 29 = '2024-01-31'", True),
            ("date_add(day, 1) = '2024-03-01' AND date_sub(instant, 31) = '2024-11-30'", True),
            ("day + INTERVAL 1 YEAR = '2025-02-28' AND add_months(day, -1) = '2024-01-29'", True),
            ("day + INTERVAL 2 HOUR = '2024-02-29 02:00:00Z' AND day + INTERVAL 2 HOUR > day", True),
            ("instant + INTERVAL 2 MONTHS = '2025-02-28 23:59Z'", True),
            ("instant + INTERVAL 1 MINUTE IN ('2025-01-01 00:00Z', '2026-01-01 00:00Z')", True),
            ("instant + INTERVAL 1 MINUTE <=> '2025-01-01 00:00Z'", True),
            ("dateadd(HOUR, -24, instant) = '2024-12-30 23:59Z' AND timestampadd(year, 1, day) = '2025-02-28'", True),
            ("date(instant + INTERVAL 1 MINUTE) = '2025-01-01' AND year(day + 307) = 2025", True),
            ("instant BETWEEN now() - INTERVAL 100000 DAYS AND current_timestamp() - INTERVAL 1 HOUR", True),
            ("i64 + 1 > 0 OR coalesce(i64, 1) = 2 OR void + INTERVAL 1 DAY > day", None),
        ]
    ),
)
def test_functions_give_the_same_results_as_in_spark(sql: str, expected: bool | None) -> None:
    assert result_of(sql) is expected


@pytest.mark.parametrize(
    "condition",
    [
        *(
            "lower(t) = 'ab'",
            "upper(t) = 'AB'",
            "length(t) = 2",
            "length(b) = 2",
            "string(i) = '5'",
            "CAST(i AS DECIMAL(9, 2)) = 5",
        ),
        *(f"{cast}(i) = 5" for cast in ("tinyint", "smallint", "int", "bigint", "float", "double")),
        *(f"{part}({column}) > 0" for part in ("year", "month", "day") for column in ("d", "ts", "ns", "wall")),
        *(f"date({column}) > '2020-01-01'" for column in ("d", "ts", "ns", "wall")),
        *(f"timestamp({column}) > '2020-01-01 00:00Z'" for column in "ds"),
        *("timestamp_ntz(d) > '2020-01-01'", "boolean(i)"),
        *("i + 1 = 6", "i - 1 = 4", "i * 2 = 10", "i % 2 = 1", "-i = -5", "i / 2 = 2.5"),
    ],
)
def test_functions_are_computed_for_whole_columns(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    day = datetime.datetime(2024, 2, 29, 1)
    instants = pa.array([day, None])
    batch = pa.RecordBatch.from_pydict({
        "t": ["Ab", None], "b": pa.array([b"Ab", None]), "i": pa.array([5, None], pa.int32()),
        "s": ["2024-02-29", None], "d": pa.array([day.date(), None]), "ts": instants.cast(pa.timestamp("us", "UTC")),
        "ns": instants.cast(pa.timestamp("ns", "UTC")), "wall": instants,
    })  # fmt: skip
    bound = bind(parse_filter(condition), batch.schema)
    monkeypatch.setattr(functions, "apply", mock.Mock(side_effect=AssertionError("value by value")))
    assert mask(bound, batch).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "i8 + i8 > 0",
            r"'\(i8 \+ i8\)' in the filter overflows the type byte, which fails in Spark too. Make one of its "
            r"constants a double \(2E0\), or exclude such rows with a condition before it",
        ),
        ("-i8 * i8 > 0", "overflows the type byte"),
        ("i32 / 0 > 1", r"divides by zero"),
        ("5 / (i32 - 7) > 1", r"divides by zero"),
        ("5 % (i32 - 7) > 1", r"divides by zero"),
        ("f64 / (i32 - 7) > 1", r"divides by zero"),
        ("i32 * 2147483647 > 0", "overflows the type integer"),
        ("i32 % 0 > 1", r"divides by zero"),
        ("f64 % (i32 - 7) > 1", r"divides by zero"),
        ("CAST(text AS INT) > 1", "applied to 'Straße', which is not a valid integer; this fails in Spark too"),
        ("CAST(lower(text) AS DOUBLE) > 1", "applied to 'straße', which is not a valid double"),
        ("int(f64 * 1E10) > 1", r"applied to 25000000000.0, which is not a valid integer"),
        ("CAST(i32 * 100 AS TINYINT) > 1", "applied to 700, which is not a valid byte"),
        ("bigint(f64 / 1E-300 * 1E300) > 1", "applied to inf, which is not a valid long"),
        ("date(text) > '2024-01-01'", "applied to 'Straße', which is not a valid date"),
        ("date(text) IN ('2024-01-01', '2024-01-02')", "applied to 'Straße', which is not a valid date"),
        (
            "CAST(i32 AS DECIMAL(2, 2)) = 7",
            r"to 7, which is not a valid decimal\(2, 2\); this fails in Spark",
        ),
        ("CAST(text AS DECIMAL(9, 2)) = 7", "applied to 'Straße', which is not a valid decimal"),
        ("CAST(text AS BOOLEAN)", "applied to 'Straße', which is not a valid boolean"),
        ("timestamp(text) > instant", "applied to 'Straße', which is not a valid timestamp. Exclude"),
        (
            "(instant + INTERVAL 5000000 MONTH) IS NULL",
            "overflows the type timestamp, which fails in Spark too.",
        ),
    ],
)
def test_functions_fail_as_in_spark(sql: str, message: str) -> None:
    bound = bind(parse_filter(sql), SCHEMA)
    batch = pa.RecordBatch.from_pylist([{**ROW, "day": None}], schema=SCHEMA)
    with pytest.raises(DataError, match=message):
        evaluate(bound, ROW)
    with pytest.raises(DataError, match=message):
        mask(bound, batch)


@pytest.mark.parametrize(
    "sql",
    [
        "i32 <> 0 AND 10 / i32 > 1",
        "i32 = 0 OR 10 / i32 > 1",
        "NOT (i32 = 0 OR 10 / i32 <= 1)",
        "flag AND i32 <> 0 AND 10 / i32 > 1 AND i32 < 100",
        "(i32 > 0 AND 10 / i32 > 1) OR i32 = -1",
    ],
)
def test_condition_before_a_call_excludes_failing_rows(sql: str) -> None:
    numbers = (0, 5, None, -1, 50, 0)
    batch = pa.RecordBatch.from_pylist([{**ROW, "i32": number, "day": None} for number in numbers], schema=SCHEMA)
    kept = mask(bind(parse_filter(sql), SCHEMA), batch).to_pylist()
    matching = [number for number, is_kept in zip(numbers, kept, strict=True) if is_kept]
    expected = {"i32 = 0 OR 10 / i32 > 1": [0, 5, 0], "(i32 > 0 AND 10 / i32 > 1) OR i32 = -1": [5, -1]}
    assert matching == expected.get(sql, [5])


@pytest.mark.parametrize(
    ("sql", "message"),
    understood(
        [
            ("text + 1 > 2", r"A number was expected in '\(text \+ 1\)', found string and integer"),
            ("i32 + '1' > 2", "A number was expected"),
            ("day * 1 > day", "A number was expected"),
            ("day + 1.5 > day", "A number was expected"),
            ("day + '1' > day", "A number was expected"),
            ("day - day > 1", "A number was expected"),
            ("instant + 1 > instant", "A number was expected"),
            ("INTERVAL 1 DAY - day > day", "A number was expected in '.*', found interval and date"),
            ("i32 + INTERVAL 1 DAY > 1", "A date or timestamp was expected in '.*', found integer"),
            ("text + INTERVAL 1 DAY > day", "A date or timestamp was expected in '.*', found string"),
            ("instant > INTERVAL 1 DAY", "cannot be compared with the interval"),
            ("instant + INTERVAL 1 FORTNIGHT > day", "The interval .* is not supported. Write a constant number"),
            ("instant + INTERVAL '1-2' YEAR TO MONTH > day", "The interval .* is not supported"),
            ("instant + INTERVAL i32 DAY > day", "The interval .* is not supported"),
            ("instant + INTERVAL '1.5' DAY > day", "The interval .* is not supported"),
            ("instant + INTERVAL 1 MONTH 1 DAY > day", "adds months to days or hours"),
            ("date_add(day, i32) > day", "must add a constant whole number; found i32"),
            ("dateadd(QUARTER, 1, instant) > day", "is not supported"),
            ("DATE '2024-01-01' + 99999999999 > day", "is too long"),
            ("lower(i32) = 'x'", "A string was expected in 'lower"),
            ("year(text) = 2024", "A date or timestamp was expected"),
            ("length(i32) = 1", "A string or binary was expected"),
            ("small / 3 > 1", "divides decimals, which would round"),
            ("small % 3 > 1", "takes the remainder of decimals"),
            ("CAST(f64 AS DECIMAL(3, 1)) > 1", r"decimal, boolean or string was expected in 'CAST.*found double\.$"),
            ("CAST(small AS DECIMAL(39, 1)) > 1", "A decimal must have a precision from 1 to 38"),
            ("CAST(small AS DECIMAL(3, 4)) > 1", "A decimal must have a precision from 1 to 38"),
            ("CAST(small AS DECIMAL(0, 0)) > 1", "A decimal must have a precision from 1 to 38"),
            ("CAST(small AS DECIMAL(3, 1, 1)) > 1", "Leave out the part in parentheses"),
            ("CAST(1.5E0 AS DECIMAL(3, 1)) > i32", "An integer, decimal, boolean or string was expected"),
            ("CAST(12345 AS DECIMAL(3, 1)) > i32", "is not a valid decimal"),
            ("day * 2 > 1", r"A number was expected in '\(day \* 2\)', found date and integer\.$"),
            ("CAST(f64 AS TIMESTAMP) > instant", "An integer, date, timestamp or string was expected"),
            ("CAST(i32 AS TIMESTAMP_NTZ) > wall", "A date, timestamp or string was expected"),
            ("CAST(instant AS TIMESTAMP(3)) > instant", "Leave out the part in parentheses"),
            ("CAST(instant AS STRING) LIKE '2024%'", "An integer, boolean, date or string was expected"),
            ("CAST(instant AS BIGINT) > 1", "A number, boolean or string was expected"),
            ("CAST(day AS BOOLEAN)", "A number, boolean or string was expected"),
            (
                "CAST(text AS BINARY) = X'00'",
                "Casting text to BINARY is not supported. Columns can be cast to",
            ),
            ("CAST(day AS INT) > 1", "A number, boolean or string was expected in 'int"),
            ("CAST(f64 AS STRING) = '1'", "An integer, boolean, date or string was expected"),
            ("now(3) > instant", "not supported"),
            ("bigint(i32, small) = 1", "not supported"),
            ("wide * wide > 1", "may need 77 digits"),
            ("wide * 1000 > 1", "may need 43 digits"),
            ("coalesce(i32, text) = 1", "arguments of different types: integer, string"),
            ("coalesce(i32, 'x') = 1", "arguments of different types"),
            ("coalesce(day, 'soon') IS NULL", "is not a date"),
            ("coalesce(wall, '2024-01-01 00:00:00Z') IS NULL", "Leave out the zone"),
            ("coalesce(wall, TIMESTAMP '2024-01-01 00:00:00Z') IS NULL", "arguments of different types"),
            ("lower(nope) = 'x'", "The column 'nope' is not in the table"),
            ("i32 + 1 = 'x'", r"The expression '\(i32 \+ 1\)' has the type integer and cannot be compared"),
            ("lower(text) > 5", "cannot be compared"),
            ("1 / 0 > i32", "divides by zero"),
            ("length(text, text) = 1", "is not supported"),
            ("Nest + 1 > 2", "A number was expected"),
        ]
    ),
)
def test_invalid_argument_is_refused(sql: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        bind(parse_filter(sql), SCHEMA)
    assert caught.value.message.rstrip("'").endswith((".", "?"))


@pytest.mark.parametrize("sql", ["1 <=> 2", "NULL <=> 'x'", "1 = 2", "lower('A') <=> NULL", "1 <=> i32", "- -i32 < 1"])
def test_expressions_of_constants_round_trip_through_text(sql: str) -> None:
    expression = parse_filter(sql)
    assert parse_filter(str(expression)) == expression


def test_built_expressions_equal_parsed_ones() -> None:
    for built, sql in (
        (col("i32") * 2 > 100, "i32 * 2 > 100"),
        (1 - col("i32") / 3 <= col("f64"), "1 - i32 / 3 <= f64"),
        (-(col("i32") + 1) == 3, "-(i32 + 1) = 3"),
        (2 + col("i32") != 1, "2 + i32 <> 1"),
        (3 * col("i32") < 1, "3 * i32 < 1"),
        (6 / col("i32") < 1, "6 / i32 < 1"),
        (col("text").lower() == "x", "lower(text) = 'x'"),
        (col("text").upper().like("X%"), "upper(text) LIKE 'X%'"),
        (col("text").length().is_in([1, 2]), "length(text) IN (1, 2)"),
        (col("day").year() == 2024, "year(day) = 2024"),
        (col("i32") % 2 == 7 % col("i32"), "i32 % 2 = 7 % i32"),
        (col("instant").date() == "2024-01-01", "date(instant) = '2024-01-01'"),
        (col("text").cast("double") > 1.5, "CAST(text AS DOUBLE) > 1.5E0"),
        (col("text").ilike("A%_B"), "text ILIKE 'a%_b'"),
        (col("day").month().between(1, 3), "month(day) BETWEEN 1 AND 3"),
        (col("day").day().is_not_null(), "day(day) IS NOT NULL"),
        (col("i64").coalesce(col("i32"), 0) > 1, "coalesce(i64, i32, 0) > 1"),
    ):
        assert built == parse_filter(sql)
        assert parse_filter(str(built)) == built
    assert parse_filter([(col("text").lower(), "in", ["a"]), ("i32", ">", col("i64") + 1)]) == parse_filter(
        "lower(text) IN ('a') AND i32 > i64 + 1"
    )


# === All interpreters agree ===


def _numeric(depth: int) -> st.SearchStrategy[Operand]:
    names = st.sampled_from(["i8", "i32", "i64", "f32", "f64", "small"]).map(lambda name: Column((name,)))
    leaves: st.SearchStrategy[Operand] = names | st.one_of(
        st.integers(-3, 3), st.floats(-4, 4), st.decimals(-9, 9, places=1)
    ).map(Literal)
    if depth == 0:
        return leaves
    inner = _numeric(depth - 1)
    return leaves | st.builds(_called, st.sampled_from("+-*"), inner, inner) | st.builds(_called, st.just("-"), inner)


def _called(name: str, *arguments: Operand) -> Operand:
    try:
        return call(name, *arguments)
    except UsageError:  # these constants are refused
        return Literal(1)


# A call of each function on columns of ROW, also used by the property tests.
CALLS = {
    "lower": (col("text").lower(), pa.string()),
    "upper": (col("text").upper(), pa.string()),
    "length": (col("text").length(), pa.int32()),
    "year": (col("day").year(), pa.int32()),
    "month": (col("day").month(), pa.int32()),
    "day": (col("day").day(), pa.int32()),
    "date": (col("instant").date(), pa.date32()),
    "coalesce": (col("i64").coalesce(col("i32")), pa.int64()),
    "tinyint": (col("f64").cast("tinyint"), pa.int8()),
    "smallint": (col("small").cast("smallint"), pa.int16()),
    "int": (col("i8").cast("INT"), pa.int32()),
    "bigint": (col("flag").cast("bigint"), pa.int64()),
    "float": (col("i32").cast("float"), pa.float32()),
    "double": (col("small").cast("double"), pa.float64()),
    "decimal": (col("i32").cast("decimal(12, 2)"), pa.decimal128(12, 2)),
    "boolean": (col("i8").cast("boolean"), pa.bool_()),
    "string": (col("i8").cast("string"), pa.string()),
    "timestamp": (col("i32").cast("timestamp"), pa.timestamp("us", "UTC")),
    "timestamp_ntz": (col("text").length().cast("timestamp").cast("TIMESTAMP_NTZ"), pa.timestamp("us")),
}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if ROWS[name].folds])
def test_every_interpreter_supports_every_function(name: str) -> None:
    built, data_type = CALLS[name]
    assert (built._operand.name, bind(IsNull(built._operand), SCHEMA).child.type) == (name, data_type)
    assert parse_filter(f"{built} IS NOT NULL") == Not(IsNull(built._operand))
    assert result_of(f"{built} IS NOT NULL") is True
    assert result_of(f"{built} IS NOT NULL", dict.fromkeys(ROW)) is False
    value = evaluate_call(built._operand)
    assert result_of(f"{built} = {Literal(value)}") is True


def evaluate_call(operand: Operand) -> Any:
    """Return the value of a call for ROW."""
    bound = bind(IsNull(operand), SCHEMA).child
    values = [
        evaluate_call(item)
        if isinstance(item, Call)
        else item.value
        if isinstance(item, Literal)
        else normalise(ROW[item.path[0]])
        for item in bound.arguments
    ]
    return functions.apply(bound.name, values, bound.type, str(bound))


def _calls() -> st.SearchStrategy[tuple[Operand, pa.DataType]]:
    texts = st.sampled_from(["lower", "upper"]).map(lambda name: (Call(name, (Column(("text",)),)), pa.string()))
    length = st.sampled_from(["text", "blob"]).map(lambda name: (Call("length", (Column((name,)),)), pa.int32()))
    parts = st.tuples(st.sampled_from(["year", "month", "day"]), st.sampled_from(["day", "instant", "wall"])).map(
        lambda pair: (Call(pair[0], (Column((pair[1],)),)), pa.int32())
    )
    pairs = st.sampled_from([("i8", "i64"), ("i32", "f32"), ("i8", "small"), ("text", "text"), ("day", "day")])
    either = pairs.map(lambda pair: (Call("coalesce", tuple(Column((name,)) for name in pair)), PATHS[pair[0],]))
    return (
        st.sampled_from([(built._operand, data_type) for built, data_type in CALLS.values()])
        | texts
        | length
        | _shifts()
        | parts
        | either
        | _numeric(2)
        .filter(lambda operand: not isinstance(operand, Literal))
        .map(lambda operand: (operand, pa.float64()))
    )


def _shifts() -> st.SearchStrategy[tuple[Operand, pa.DataType]]:
    intervals = st.builds(Interval, st.integers(-40, 40), st.sampled_from(["DAY", "MONTH"])) | st.builds(
        lambda count, size: Interval(count * size, "MICROSECOND"),
        st.integers(-30, 30),
        st.sampled_from([1, 1_000_000, 3_600_000_000]),
    )
    return st.builds(
        lambda name, interval: (
            call("+", Column((name,)), Literal(interval)),
            PATHS[name,] if name != "day" or interval.unit != "MICROSECOND" else pa.timestamp("us", "UTC"),
        ),
        st.sampled_from(["day", "instant", "wall"]),
        intervals,
    )


def _predicates() -> st.SearchStrategy[Expression]:
    def leaf(typed: tuple[Operand, pa.DataType]) -> st.SearchStrategy[Expression]:
        operand, data_type = typed
        years = st.sampled_from([1969, 1970, 2024, -1, 12, 31])
        literal = (constants(data_type) | years if pa.types.is_integer(data_type) else constants(data_type)).map(
            Literal
        )
        return st.one_of(
            st.builds(Comparison, st.sampled_from(Op), st.just(operand), literal),
            st.builds(lambda values: In(operand, tuple(values)), st.lists(literal, min_size=1, max_size=3)),
            st.just(IsNull(operand)),
        )

    leaves = _calls().flatmap(leaf) | st.just(Comparison(Op.GT, Column(("i32",)), Literal(0)))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
            inner.map(Not),
        ),
        max_leaves=4,
    )


@meets(computed=5, matching=2)
@settings(max_examples=examples(240), deadline=None)
@given(_predicates(), rows(3, 1))
def test_arrow_computes_the_same_as_the_reference(expression: Expression, found: list[dict[str, Any]]) -> None:
    try:
        bound = bind(expression, SCHEMA)
    except UsageError:
        return
    try:
        expected = [evaluate(bound, row) is True for row in found]
    except DataError:
        expected = None
    if expected is None:
        return  # the reference fails on conditions that Arrow may skip
    met("computed", found and has_calls(bound))
    met("matching", any(expected))
    assert mask(bound, batch_of(found)).to_pylist() == expected
    assert columns(bound) <= set(PATHS)


@meets(calls=9)
@settings(max_examples=examples(120), deadline=None)
@given(_predicates())
def test_expressions_round_trip_through_text(expression: Expression) -> None:
    met("calls", has_calls(expression))
    assert parse_filter(str(expression)) == expression


# Conditions on years become ranges of dates, which can be sent to a server.
_YEARS = st.builds(
    lambda name, op, year: Comparison(op, call("year", Column((name,))), Literal(year)),
    st.sampled_from(["day", "instant", "wall"]),
    st.sampled_from(Op),
    st.sampled_from([1969, 1970, 2022, 2023, 2024]),
)


@meets(hint=3, matching=1)
@settings(max_examples=examples(300), deadline=None)
@given(
    _YEARS | st.builds(lambda *both: And(both), _YEARS, _predicates()) | _predicates(),
    rows(3, 1),
    st.sets(st.sampled_from(["day", "i32", "text"])),
)
def test_hints_hold_for_every_matching_row(
    expression: Expression, found: list[dict[str, Any]], partition_columns: set[str]
) -> None:
    try:
        bound = bind(expression, SCHEMA)
        matching = [row for row in found if evaluate(bound, row) is True]
    except (UsageError, DataError):
        return
    hint = weaken(bound, partition_columns)
    if hint is not None:
        met("hint")
        met("matching", matching)
        assert all(evaluate(hint, row) is True for row in matching)


@pytest.mark.parametrize(
    ("sql", "expected"),
    understood(
        [
            ("year(day) = 2024", "day >= DATE '2024-01-01' AND day < DATE '2025-01-01'"),
            ("year(day) = 1970", "day >= DATE '1970-01-01' AND day < DATE '1971-01-01'"),
            ("year(day) >= 2024", "day >= DATE '2024-01-01'"),
            ("year(day) > 2024", "day >= DATE '2025-01-01'"),
            ("year(day) <= 2024", "day < DATE '2025-01-01'"),
            ("2024 > year(day)", "day < DATE '2024-01-01'"),
            ("year(day) <> 2024", "NOT (day >= DATE '2024-01-01' AND day < DATE '2025-01-01')"),
            ("year(instant) < 2024", "instant < TIMESTAMP '2024-01-01 00:00:00Z'"),
            (
                "date(instant) = '2024-01-31'",
                "instant >= TIMESTAMP '2024-01-31 00:00:00Z' AND instant < TIMESTAMP '2024-02-01 00:00:00Z'",
            ),
            ("date(wall) > '2024-01-31'", "wall >= TIMESTAMP '2024-02-01 00:00:00'"),
            ("CAST(day AS DATE) <= '2024-01-31'", "day < DATE '2024-02-01'"),
            ("instant + INTERVAL 1 DAY > '2024-01-31'", "instant > TIMESTAMP '2024-01-30 00:00:00Z'"),
            ("wall - INTERVAL '2' HOUR <= '2024-01-31'", "wall <= TIMESTAMP '2024-01-31 02:00:00'"),
            ("day + 3 = '2024-01-31'", "day = DATE '2024-01-28'"),
            ("day - INTERVAL 30 HOUR < '2024-01-31'", "day < DATE '2024-02-02'"),
            ("day + 3 IN ('2024-01-31', '2024-02-01')", "day IN (DATE '2024-01-28', DATE '2024-01-29')"),
            ("date_add(instant, 1) >= '2024-01-31'", "instant >= TIMESTAMP '2024-01-30 00:00:00Z'"),
            ("year(wall + INTERVAL 1 HOUR) > 2023", "wall >= TIMESTAMP '2023-12-31 23:00:00'"),
            ("CAST(day AS TIMESTAMP) > '2024-01-31 10:00'", "day >= DATE '2024-02-01'"),
            ("CAST(wall AS TIMESTAMP) < '2024-01-31 00:00Z'", "wall < TIMESTAMP '2024-01-31 00:00:00'"),
        ]
    ),
)
def test_functions_of_dates_become_ranges_of_the_column(sql: str, expected: str) -> None:
    assert str(bind(parse_filter(sql), SCHEMA)) == expected


class One:
    """Statistics with the same bounds for every column."""

    def __init__(self, bounds: ColumnBounds) -> None:
        self.bounds = lambda path: bounds


class Each:
    """Statistics with bounds by column."""

    def __init__(self, bounds: dict[str, ColumnBounds]) -> None:
        self.bounds = lambda path: bounds[path[0]]


def test_files_are_skipped_by_ranges_of_calls() -> None:
    of_2023 = One(column_bounds(19_358, 19_722, 0, 10))
    assert not may_match(bind(parse_filter("year(day) = 2024"), SCHEMA), of_2023)
    assert may_match(bind(parse_filter("year(day) IN (2023, 2030)"), SCHEMA), of_2023)
    assert not may_match(bind(parse_filter("year(day) IN (2022, 2030)"), SCHEMA), of_2023)
    assert may_match(bind(parse_filter("month(day) = 13"), SCHEMA), of_2023)
    one_to_three = One(column_bounds(1, 3, 0, 10))
    for sql in ("i32 * 2 > 100", "i32 + 1 < 2", "-i32 > 0", "3 - i32 < 0", "i32 * i32 = 10", "i32 * -2 IN (0, -7)"):
        assert not may_match(bind(parse_filter(sql), SCHEMA), one_to_three)
    for sql in ("i32 * 2 > 5", "i32 + 1 <= 2", "-i32 >= -1", "3 - i32 = 0", "i32 * i32 = 6", "NOT i32 * 2 > 5"):
        assert may_match(bind(parse_filter(sql), SCHEMA), one_to_three)
    assert not may_match(bind(parse_filter("i32 * 2 > 100"), SCHEMA), One(column_bounds(-10, 50, 5, 10)))
    assert may_match(bind(parse_filter("i32 * 2 > 100"), SCHEMA), One(column_bounds(None, 2, 0, 10)))
    assert not may_match(bind(parse_filter("i32 + 1 < 2"), SCHEMA), One(column_bounds(1, None, 0, 10)))
    cents = One(column_bounds(Decimal("0.01"), Decimal("0.99"), 0, 10))
    assert not may_match(bind(parse_filter("small * 0.1 > 0.1"), SCHEMA), cents)
    assert not may_match(bind(parse_filter("i32 * 2 > 100 AND i32 > 5"), SCHEMA), One(column_bounds(1, 2, 0, 10)))


def test_decimal_that_grows_by_rounding_is_kept() -> None:
    batch = pa.RecordBatch.from_pydict({"d": pa.array([Decimal("9.99"), Decimal("1.25"), None], pa.decimal128(3, 2))})
    for condition, expected in (
        ("CAST(d AS DECIMAL(2, 0)) = 10", [True, False, False]),
        ("decimal(d) = 0", [False] * 3),
    ):
        assert mask(bind(parse_filter(condition), batch.schema), batch).to_pylist() == expected, condition


def test_casts_of_text_skip_no_file_and_are_not_exact() -> None:
    wide = One(column_bounds("2024-01-01", "2024-12-31", 0, 10))
    for sql in ("date(text) IN ('2023-01-01', '2023-01-02')", "timestamp(text) < '1999-01-01'"):
        assert may_match(bind(parse_filter(sql), SCHEMA), wide)
    # Engines disagree about which strings are dates.
    assert not is_exact(parse_filter("date(text) = DATE '2024-01-01'"), SCHEMA)
    assert is_exact(parse_filter("date(instant) = DATE '2024-01-01'"), SCHEMA)
    assert not is_exact(parse_filter("instant + INTERVAL 1 DAY > TIMESTAMP '2024-01-01 00:00:00Z'"), SCHEMA)


class Exactly:
    """Exact statistics of one row, as partition values give."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def bounds(self, path: tuple[str, ...]) -> ColumnBounds:
        value = self.row[path[0]]
        if value is None:
            return ColumnBounds(None, None, 1, 1)
        if isinstance(value, float) and math.isnan(value):
            return ColumnBounds(None, None, 0, 1)
        number = value.days if isinstance(value, Day) else value.nanoseconds if isinstance(value, Moment) else value
        return ColumnBounds(number, number, 0, 1)


@st.composite
def _wide_bounds(draw: Any) -> tuple[list[dict[str, Any]], dict[str, ColumnBounds]]:
    drawn = draw(st.lists(st.fixed_dictionaries(_FEW), min_size=1, max_size=3))
    bounds = {}
    for name in _FEW:
        present = [row[name] for row in drawn if row[name] is not None]
        ends = [*present, *(row[name] for row in draw(st.lists(st.fixed_dictionaries(_FEW), max_size=1)) if row[name])]
        nulls = draw(st.sampled_from([len(drawn) - len(present), None]))
        lower, upper = (min(ends), max(ends)) if ends else (None, None)
        bounds[name] = ColumnBounds(draw(st.sampled_from([lower, None])), upper, nulls, len(drawn))
    return drawn, bounds


_FEW = {
    "i8": st.none() | st.integers(-9, 9),
    "i32": st.none() | st.integers(-9, 9),
    "small": st.none() | st.decimals(-9, 9, places=2),
}


def _ranged(depth: int) -> st.SearchStrategy[Operand]:
    """Draw operands whose range is computed: sums, differences, products, negatives and casts of exact numbers."""
    column = st.sampled_from([Column((name,)) for name in _FEW])
    kinds = st.sampled_from([("tinyint",), ("bigint",), ("decimal", 3, 1), ("decimal", 2, 0)])
    casts = st.builds(lambda item, kind: cast(item, *kind), column, kinds)
    leaf = column | casts | st.integers(-3, 3).map(Literal)
    if depth == 0:
        return leaf
    inner = _ranged(depth - 1)
    two = st.builds(lambda name, a, b: call(name, a, b), st.sampled_from("+-*"), inner, inner)
    return two | inner.map(lambda item: call("-", item))


def _value_of(operand: Operand, row: dict[str, Any]) -> Decimal | None:
    """Return the value of an operand of ``_ranged`` for a row, computed without the package's code."""
    if isinstance(operand, Call) and operand.name.isidentifier():
        value = row[operand.arguments[0].path[0]]
        if value is None or operand.name != "decimal":
            return None if value is None else Decimal(int(value))
        tenth = Decimal(1).scaleb(-operand.arguments[2].value)
        return Decimal(value).quantize(tenth, decimal.ROUND_HALF_UP)
    if isinstance(operand, Call):
        sides = [_value_of(item, row) for item in operand.arguments]
        if None in sides:
            return None
        first, second = sides if len(sides) == 2 else (Decimal(0), *sides)
        return {"+": first + second, "-": first - second, "*": first * second}[operand.name]
    value = row[operand.path[0]] if isinstance(operand, Column) else operand.value
    return None if value is None else Decimal(value)


@meets(matching=15, skipped=10, product=4, edge=8, cast=8)
@settings(max_examples=examples(300), deadline=None)
@given(_ranged(2), st.sampled_from(Op), _wide_bounds(), st.data())
def test_file_with_a_matching_call_is_not_skipped(
    operand: Operand, op: Op, file: tuple[list[dict[str, Any]], dict[str, ColumnBounds]], data: Any
) -> None:
    drawn, bounds = file
    # The constant is the value of a row, or one step from it, where the end of the range decides.
    values = [value for value in (_value_of(operand, row) for row in drawn) if value is not None]
    near = [value + step for value in values for step in (-1, 0, 1)]
    limit = data.draw(st.sampled_from(near) if near else st.decimals(-99, 99, places=1))
    for expression in (
        Comparison(op, operand, Literal(limit)),
        NullSafeEqual(operand, Literal(limit)),
        In(operand, (Literal(limit), Literal(0))),
    ):
        try:
            bound = bind(expression, SCHEMA)
            matches = any(evaluate(bound, row) is True for row in drawn)
        except (UsageError, DataError):
            continue
        kept = may_match(bound, Each(bounds))
        met("matching", matches)
        met("skipped", not kept)
        met("product", "*" in str(operand))
        met("cast", any(name in str(operand) for name in ("CAST", "tinyint", "bigint")))
        met("edge", limit in values)
        assert kept or not matches


@pytest.mark.parametrize(
    ("operand", "lower", "upper"),
    [
        ("CAST(i32 AS DECIMAL(3, 1))", -5, -3),
        ("CAST(i8 AS BIGINT) * 2", -8, -4),
        # Both ranges are negative: the product of the lower ends is the upper end.
        ("i8 * i32", 6, 20),
        ("-i8", 2, 4),
        ("i8 + i32", -9, -5),
        ("i8 - i32", -1, 3),
        ("i8 - i8", -2, 2),
        ("i8 * 2 - i32", -5, 1),
    ],
)
def test_range_of_a_call_is_exact(operand: str, lower: int, upper: int) -> None:
    statistics = Each({"i8": ColumnBounds(-4, -2, 0, 9), "i32": ColumnBounds(-5, -3, 0, 9)})

    def kept(text: str) -> bool:
        return may_match(bind(parse_filter(text), SCHEMA), statistics)

    equal = [kept(f"{operand} = {value}") for value in (lower - 1, lower, upper, upper + 1)]
    assert equal == [False, True, True, False]
    assert [kept(f"{operand} < {value}") for value in (lower, lower + 1)] == [False, True]
    assert [kept(f"{operand} > {value}") for value in (upper, upper - 1)] == [False, True]
    assert [kept(f"{operand} IN ({lower - 1}, {value})") for value in (upper + 1, upper)] == [False, True]


def test_range_of_decimals_is_exact() -> None:
    statistics = One(ColumnBounds(Decimal("1.5"), Decimal("2.25"), 0, 9))
    texts = ("small + 1 > 3.25", "small + 1 >= 3.25", "small + 1 IN (1, 2.49)", "small + 1 IN (1, 2.5)")
    assert [may_match(bind(parse_filter(text), SCHEMA), statistics) for text in texts] == [False, True, False, True]


def test_range_of_a_call_without_one_bound_is_open() -> None:
    bounds = {
        "i8": column_bounds(None, 3, 0, 9),
        "i32": column_bounds(2, 5, 0, 9),
        "text": column_bounds("a", "b", 0, 9),
    }
    texts = (
        "i8 + i32 > 8",
        "i8 + i32 < -99",
        "-i8 < -3",
        "-i8 > 99",
        "i8 * i32 > 99",
        "i32 - i8 < -1",
        "i32 - i8 > 99",
        "i32 + length(text) > 99",
    )
    kept = [may_match(bind(parse_filter(text), SCHEMA), Each(bounds)) for text in texts]
    assert kept == [False, True, False, True, True, False, True, True]


@meets(matching=2)
@settings(max_examples=examples(240), deadline=None)
@given(_predicates(), rows(2))
def test_file_of_a_matching_row_is_not_skipped(expression: Expression, found: list[dict[str, Any]]) -> None:
    try:
        bound = bind(expression, SCHEMA)
        matching = [row for row in found if evaluate(bound, row) is True]
    except (UsageError, DataError):
        return
    met("matching", matching)
    assert all(may_match(bound, Exactly(row)) for row in matching)


def test_decimals_keep_every_digit_in_any_context() -> None:
    with decimal.localcontext() as context:
        context.prec = 3
        bound = bind(parse_filter("small * 1.0000000001 = 12.5000000012500"), SCHEMA)
        assert evaluate(bound, {"small": Decimal("12.5")})
        assert may_match(bound, Exactly({"small": Decimal("12.5")}))


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_overflow_of_integers_is_an_error(width: int) -> None:
    last, kind = (1 << (width - 1)) - 1, getattr(pa, f"int{width}")()
    assert functions.apply("+", [last - 1, 1], kind, "shown") == last
    assert functions.apply("-", [-last, 1], kind, "shown") == -last - 1
    for values in ([last, 1], [-last - 1, -1]):
        with pytest.raises(DataError, match="shown"):
            functions.apply("+", values, kind, "shown")


@pytest.mark.parametrize(
    ("name", "array", "kind", "constants"),
    [
        ("timestamp", pa.array([1001, -1, None]).cast(pa.timestamp("ns", "UTC")), pa.timestamp("us", "UTC"), []),
        ("timestamp", pa.array([1001, -1, None]).cast(pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC"), []),
        ("timestamp", pa.array(["2024-02-29 10:00:00.5", None]), pa.timestamp("us", "UTC"), []),
        ("timestamp", pa.array([5, -1, None]), pa.timestamp("us", "UTC"), []),
        ("timestamp", pa.array([5, -1, None], pa.int32()).cast(pa.date32()), pa.timestamp("us", "UTC"), []),
        ("+", pa.array([7, -1, None]).cast(pa.timestamp("ns")), pa.timestamp("ns"), [Interval(-3, "MICROSECOND")]),
        ("+", pa.array([7, -1, None]).cast(pa.timestamp("us")), pa.timestamp("us"), [Interval(2, "DAY")]),
        ("+", pa.array([7, -1], pa.int32()).cast(pa.date32()), pa.date32(), [Interval(2, "DAY")]),
        ("+", pa.array([7], pa.int32()).cast(pa.date32()), pa.timestamp("us", "UTC"), [Interval(2, "MICROSECOND")]),
        ("decimal", pa.array([Decimal("1.25"), Decimal("-1.25"), Decimal("1.24"), None]), pa.decimal128(5, 1), [5, 1]),
        ("decimal", pa.array([Decimal("1.5"), None]), pa.decimal128(5, 2), [5, 2]),
        ("decimal", pa.array([3, -4, None]), pa.decimal128(5, 2), [5, 2]),
        ("decimal", pa.array([True, False]), pa.decimal128(5, 2), [5, 2]),
    ],
    ids=str,
)
def test_arrays_give_the_same_results_as_single_values(
    name: str, array: pa.Array, kind: pa.DataType, constants: list[Any]
) -> None:
    kernel = functions.row_of(name, constants).kernel
    assert kernel is not None
    singly = [functions.apply(name, [value, *constants], kind, "shown") for value in functions.from_arrow(array)]
    assert functions.from_arrow(kernel(array, kind, *constants).cast(kind)) == singly


def test_nan_and_infinity_are_valid_operands() -> None:
    for value, expected in ((math.inf, True), (math.nan, True), (-math.inf, False), (1.0, False)):
        bound = bind(parse_filter("f64 * 2 > 1000"), SCHEMA)
        assert evaluate(bound, {"f64": value}) is expected
        batch = pa.RecordBatch.from_pydict({"f64": [value]}, schema=pa.schema([("f64", pa.float64())]))
        assert mask(bound, batch).to_pylist() == [expected]


@meets(months=10, end_of_month=3, dates=10)
@settings(max_examples=examples(500), deadline=None)
@given(
    st.integers(-3_000_000_000, 8_000_000_000) | st.sampled_from([1_706_659_200, 1_709_164_799, 951_782_400]),
    st.integers(-1000, 1000),
    st.sampled_from(["MONTH", "DAY", "MICROSECOND"]),
    st.booleans(),
)
def test_intervals_are_added_as_in_duckdb(seconds: int, count: int, unit: str, is_date: bool) -> None:
    start = f"make_timestamp({seconds * 1_000_000}::BIGINT){'::DATE' if is_date else ''}"
    ((expected,),) = duckdb.execute(f"SELECT epoch_us(({start} + to_{unit.lower()}s({count}))::TIMESTAMP)").fetchall()
    value = Day(seconds // 86_400) if is_date else Moment(seconds * 10**9, Zone.LOCAL)
    data_type = functions.result_type("+", [functions.constant_type(value), Interval(count, unit)], "c + i")
    found = functions.apply("+", [value, Interval(count, unit)], data_type, "c + i")
    met("months", unit == "MONTH")
    met("dates", is_date)
    met("end_of_month", unit == "MONTH" and functions.shifted(found, Interval(-count, unit)) != value)
    assert (found.days * 86_400_000_000 if isinstance(found, Day) else found.nanoseconds // 1000) == expected


@pytest.mark.skipif(duckdb.__version__.startswith("1.1."), reason="DuckDB 1.1 rounds halves differently")
@meets(fits=20, fails=5, rounded=10)
@settings(max_examples=examples(300), deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(0, 6), st.integers(1, 9), st.integers(0, 6))
def test_decimals_are_rounded_as_in_duckdb(digits: int, given_scale: int, precision: int, scale: int) -> None:
    number, scale = Decimal(digits).scaleb(-given_scale), min(scale, precision)
    sql = f"SELECT TRY_CAST(CAST('{number:f}' AS DECIMAL(18, 6)) AS DECIMAL({precision}, {scale}))"
    ((expected,),) = duckdb.execute(sql).fetchall()
    bound = bind(
        IsNull(cast(Column(("n",)), "decimal", precision, scale)), pa.schema({"n": pa.decimal128(18, 6)})
    ).child
    array = pa.array([number.quantize(Decimal("0.000001"))], pa.decimal128(18, 6))
    met("fits", expected is not None)
    met("fails", expected is None)
    met("rounded", expected is not None and expected != number)
    for compute in (
        lambda: functions.apply(bound.name, [number, precision, scale], bound.type, "c"),
        lambda: functions.compute(bound.name, array, [precision, scale], bound.type, "c")[0].as_py(),
    ):
        if expected is None:
            with pytest.raises(DataError, match="not a valid decimal"):
                compute()
        else:
            assert compute() == expected


# === The recipe of docs/architecture.md ===


def test_new_function_needs_one_table_row(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("A string", frozenset((Kind.STRING,)))
    row = functions.Function(
        sql=("Reverse",), takes=texts, result=pa.string(), value=lambda text: text[::-1], arrow=("binary_reverse",)
    )
    monkeypatch.setitem(functions.ROWS, "reverse", row)
    assert result_of("reverse(text) = 'eßartS'") is True
    assert result_of("reverse(lower(text)) LIKE 'eßa%' AND length(reverse(text)) IN (6, 7)") is True
    assert result_of("reverse(text) IS NULL", {**ROW, "text": None}) is True
    assert str(parse_filter("REVERSE(text) <> 'x'")) == "reverse(text) <> 'x'"
    assert parse_filter("reverse('ab') = text") == parse_filter("text = 'ba'")
    with pytest.raises(UsageError, match=r"A string was expected in 'reverse\(i32\)', found integer"):
        bind(parse_filter("reverse(i32) = 'x'"), SCHEMA)
    assert not may_match(bind(parse_filter("reverse(text) = 'fr'"), SCHEMA), One(column_bounds("DE", "DE", 0, 10)))
    assert may_match(bind(parse_filter("reverse(text) = 'ED'"), SCHEMA), One(column_bounds("DE", "DE", 0, 10)))
    assert may_match(bind(parse_filter("reverse(text) = 'fr'"), SCHEMA), One(column_bounds("DE", "DX", 0, 10)))
    assert weaken(bind(parse_filter("reverse(text) = 'fr' AND i32 > 1"), SCHEMA)) is not None


@pytest.mark.parametrize(
    ("text", "day"),
    understood(
        [
            ("day >= current_date() - 7", "2024-02-24"),
            ("day >= current_date - INTERVAL 7 DAY", "2024-02-24"),
            ("day >= current_date() - INTERVAL '7' DAYS", "2024-02-24"),
            ("day >= current_date() + -7", "2024-02-24"),
            ("day >= date_sub(current_date(), 7)", "2024-02-24"),
            ("day >= date_add(current_date(), 1)", "2024-03-03"),
            ("day >= current_date() - INTERVAL 1 MONTH", "2024-02-02"),
            ("day >= add_months(current_date(), -1)", "2024-02-02"),
            ("day >= date(now() - INTERVAL '1' DAY)", "2024-03-01"),
            ("current_date() + INTERVAL 1 DAY <= day", "2024-03-03"),
            ("day >= DATE '2024-03-02' - 2", "2024-02-29"),
            ("day >= CAST('2023-12-31' AS DATE) + INTERVAL 1 DAY", "2024-01-01"),
        ]
    ),
)
def test_days_are_added_to_the_current_date_of_the_read(text: str, day: str) -> None:
    now = Moment(1_709_381_000 * 10**9, Zone.UTC)  # 2024-03-02, a little after noon
    parsed = parse_filter(text)
    assert parse_filter(str(parsed)) == parsed
    assert f"DATE '{day}'" in str(fixed(parsed, now))


@pytest.mark.parametrize(
    "text",
    [
        "day > current_date() - 3000000000",
        "day > current_date() - 1.5",
        "day > current_date() - INTERVAL '1.5' DAY",
        "day > current_date() - '7'",
        "day > 7 - current_date()",
    ],
)
def test_invalid_number_of_days_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        fixed(parse_filter(text), Moment(1_709_381_000 * 10**9, Zone.UTC))


# === Types ===

D = Decimal
DAY_0, MONTHS = Day(0), Interval(1, "MONTH")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, pa.bool_()),
        (False, pa.bool_()),
        (0, pa.int32()),
        (2**31 - 1, pa.int32()),
        (-(2**31), pa.int32()),
        (2**31, pa.int64()),
        (-(2**31) - 1, pa.int64()),
        (2**63 - 1, pa.int64()),
        (-(2**63), pa.int64()),
        (2**63, pa.decimal128(19, 0)),
        (-(2**63) - 1, pa.decimal128(19, 0)),
        (10**38 - 1, pa.decimal128(38, 0)),
        (D("1.50"), pa.decimal128(3, 2)),
        (D("0.001"), pa.decimal128(3, 3)),
        (D("1E+3"), pa.decimal128(4, 0)),
        (D(0), pa.decimal128(1, 0)),
        (0.5, pa.float64()),
        ("a", pa.string()),
        (b"a", pa.binary()),
        (DAY_0, pa.date32()),
        (Moment(0, Zone.UTC), pa.timestamp("us", "UTC")),
        (Moment(0, Zone.LOCAL), pa.timestamp("us")),
        (MONTHS, pa.month_day_nano_interval()),
        (None, pa.null()),
    ],
    ids=str,
)
def test_constant_has_the_smallest_type_that_holds_it(value: Any, expected: pa.DataType) -> None:
    assert functions.constant_type(value) == expected


def test_constant_of_39_digits_has_no_type() -> None:
    with pytest.raises(UsageError, match="may need 39 digits, but a decimal has at most 38"):
        functions.constant_type(10**38)


I8, I32, I64, F32, F64 = pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64()
DEC, TEXT, BOOL, DATE = pa.decimal128(5, 2), pa.string(), pa.bool_(), pa.date32()
NTZ, UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("+", [I8, I8], I8),
        ("+", [I8, I32], I32),
        ("-", [I64, I32], I64),
        ("-", [I8, 1], I32),
        ("-", [I8], I8),
        ("-", [DEC], DEC),
        ("-", [F32], F32),
        ("*", [F32, F32], F32),
        ("*", [F32, I8], F64),
        ("+", [F32, 0.5], F64),
        ("+", [DEC, F32], F64),
        ("/", [I8, I8], F64),
        ("/", [F32, F32], F64),
        ("/", [DEC, F64], F64),
        ("%", [I8, I32], I32),
        ("%", [DEC, F64], F64),
        # A sum has one more integer digit; a product has the digits of both factors and one more.
        ("+", [DEC, DEC], pa.decimal128(6, 2)),
        ("+", [DEC, pa.decimal128(4, 4)], pa.decimal128(8, 4)),
        ("-", [DEC, I8], pa.decimal128(6, 2)),
        ("+", [DEC, I64], pa.decimal128(23, 2)),
        ("+", [DEC, 1], pa.decimal128(6, 2)),
        ("+", [DEC, 12345], pa.decimal128(8, 2)),
        ("*", [DEC, pa.decimal128(4, 4)], pa.decimal128(10, 6)),
        ("*", [DEC, D("1.5")], pa.decimal128(8, 3)),
        ("*", [DEC, I32], pa.decimal128(16, 2)),
        ("coalesce", [DEC, pa.decimal128(4, 4)], pa.decimal128(7, 4)),
        ("coalesce", [I8, I32, 1], I32),
        ("coalesce", [F32, F32], F32),
        ("coalesce", [DATE, "2024-01-01"], DATE),
        ("coalesce", [UTC, "2024-01-01", DAY_0], UTC),
        ("coalesce", [NTZ, Moment(0, Zone.LOCAL)], NTZ),
        ("coalesce", [TEXT, "x"], TEXT),
        ("coalesce", [BOOL, True], BOOL),
        ("+", [DATE, MONTHS], DATE),
        ("+", [DATE, Interval(1, "DAY")], DATE),
        ("+", [DATE, Interval(1, "MICROSECOND")], UTC),
        ("+", [NTZ, Interval(1, "MICROSECOND")], NTZ),
        ("+", [UTC, MONTHS], UTC),
        ("decimal", [I64, 5, 2], DEC),
        ("decimal", [TEXT, 38, 38], pa.decimal128(38, 38)),
        ("year", [DATE], I32),
        ("lower", [TEXT], TEXT),
    ],
    ids=str,
)
def test_result_type_of_a_call_depends_on_its_operands(name: str, arguments: list[Any], expected: pa.DataType) -> None:
    assert functions.result_type(name, arguments, "shown") == expected


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("+", [TEXT, 1], "A number was expected in 'shown', found string and integer."),
        ("+", [BOOL, I8], "A number was expected in 'shown', found boolean and byte."),
        ("+", [TEXT, MONTHS], "A date or timestamp was expected in 'shown', found string."),
        ("year", [TEXT], "A date or timestamp was expected in 'shown', found string."),
        ("*", [I8, MONTHS], "A number was expected in 'shown', found byte and interval."),
        ("*", [DATE, MONTHS], "A number was expected in 'shown', found date and interval."),
        ("lower", [I8], "A string was expected in 'shown', found byte."),
        ("year", [DATE, DATE], "'year' takes at most 1 argument(s), found 2 in 'shown'."),
        ("/", [DEC, I8], "'shown' divides decimals, which would round. Multiply"),
        ("%", [DEC, DEC], "'shown' takes the remainder of decimals, which is not supported. Cast to integers, or"),
        ("+", [pa.decimal128(38, 2), DEC], "'shown' may need 39 digits, but a decimal has at most 38."),
        ("*", [pa.decimal128(20, 2), pa.decimal128(20, 2)], "'shown' may need 41 digits"),
        ("decimal", [I64, 0, 0], "found DECIMAL(0, 0)."),
        ("decimal", [I64, 39, 0], "found DECIMAL(39, 0)."),
        ("decimal", [I64, 5, 6], "found DECIMAL(5, 6)."),
        ("coalesce", [I8, TEXT], "'shown' has arguments of different types: byte, string."),
        ("coalesce", [DATE, Moment(0, Zone.LOCAL)], "different types: date, timestamp without time zone."),
        ("coalesce", [DATE, UTC], "different types: date, timestamp."),
        ("coalesce", [BOOL, "true"], "different types: boolean, string."),
        ("coalesce", [pa.list_(I8), pa.list_(I8)], "different types: array, array."),
    ],
    ids=str,
)
def test_call_without_an_exact_result_is_refused(name: str, arguments: list[Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        functions.result_type(name, arguments, "shown")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        (True, F64, True),
        (None, I8, None),
        (1, F64, 1.0),
        (D("1.5"), F32, 1.5),
        (1, DEC, D(1)),
        (D("1.5"), DEC, D("1.5")),
        (1, I64, 1),
        ("a", TEXT, "a"),
        (Day(2), DATE, Day(2)),
        (Day(2), UTC, Moment(2 * 86_400 * 10**9, Zone.UTC)),
        (Day(2), NTZ, Moment(2 * 86_400 * 10**9, Zone.LOCAL)),
        (Moment(5, Zone.LOCAL), UTC, Moment(5, Zone.UTC)),
        (Moment(5, Zone.LOCAL), NTZ, Moment(5, Zone.LOCAL)),
    ],
    ids=str,
)
def test_value_is_converted_to_the_type_of_its_call(value: Any, data_type: pa.DataType, expected: Any) -> None:
    converted = functions.as_type(value, data_type)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("+", [2**63, 1], 2**63 + 1),
        ("-", [5], -5),
        ("-", [5, 7], -2),
        ("*", [2**40, 2**40], 2**80),
        ("/", [1, 4], 0.25),
        ("%", [-7, 2], -1),
        ("%", [7, -2], 1),
        ("%", [0, -2], 0),
        ("%", [-0.5, 0.25], -0.0),
        ("+", [None, 1], None),
        ("coalesce", [None, 2, 3], 2),
        ("coalesce", [None, None], None),
        ("+", [D("1.5"), 1], D("2.5")),
        ("-", [D("1.5")], D("-1.5")),
        ("*", [D("1.5"), D("0.5")], D("0.75")),
        ("+", [Day(0), Interval(13, "MONTH")], Day(31 + 365)),
        ("+", [Day(30), MONTHS], Day(31 + 27)),
        ("+", [Day(0), Interval(-1, "DAY")], Day(-1)),
        ("+", [Interval(1, "DAY"), Interval(2, "DAY")], Interval(3, "DAY")),
        ("+", [MONTHS, Interval(11, "MONTH")], Interval(12, "MONTH")),
        ("+", [Interval(1, "DAY"), Interval(2, "MICROSECOND")], Interval(86_400_000_002, "MICROSECOND")),
        ("+", [Interval(-2, "MICROSECOND"), Interval(-1, "DAY")], Interval(-86_400_000_002, "MICROSECOND")),
    ],
    ids=str,
)
def test_call_of_constants_is_folded(name: str, values: list[Any], expected: Any) -> None:
    folded = functions.fold(name, values, "shown")
    assert folded == expected
    assert type(folded) is type(expected)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("+", [MONTHS, Interval(1, "DAY")], "adds months to days or hours"),
        ("/", [1, 0], "zero"),
        ("%", [1, 0], "zero"),
        ("%", [1.0, 0.0], "zero"),
        ("+", [Day(2**31 - 1), Interval(1, "DAY")], "shown"),
        ("+", [Moment((2**63 - 1) * 1000, Zone.UTC), Interval(1, "MICROSECOND")], "shown"),
    ],
)
def test_invalid_call_of_constants_is_refused(name: str, values: list[Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        functions.fold(name, values, "shown")


def test_intervals_reach_the_last_date_and_timestamp() -> None:
    last = (2**63 - 1) * 1000
    moved = functions.fold("+", [Moment(last - 1000, Zone.UTC), Interval(1, "MICROSECOND")], "shown")
    assert moved == Moment(last, Zone.UTC)
    assert functions.fold("+", [Day(2**31 - 2), Interval(1, "DAY")], "shown") == Day(2**31 - 1)
    assert functions.fold("+", [Day(1 - 2**31), Interval(-1, "DAY")], "shown") == Day(-(2**31))


@pytest.mark.parametrize(
    ("day", "months", "expected"),
    [("2023-01-31", 13, "2024-02-29"), ("2025-01-31", -11, "2024-02-29"), ("2024-02-29", 12, "2025-02-28")],
)
def test_months_are_added_across_years(day: str, months: int, expected: str) -> None:
    moved = functions.fold("+", [parse_date(day), Interval(months, "MONTH")], "shown")
    assert moved == parse_date(expected)


def test_nanoseconds_are_rounded_down_when_converted() -> None:
    nanos = pa.array([-1, 0, 86_400_000_000_000 - 1, None], pa.timestamp("ns"))
    assert functions._dates(nanos, pa.date32()).to_pylist() == [-1, 0, 0, None]
    micros = functions._timestamps(nanos, pa.timestamp("us"))
    assert micros.cast(pa.int64()).to_pylist() == [-1, 0, 86_400_000_000 - 1, None]


def test_numbers_and_booleans_are_cast_to_boolean() -> None:
    assert functions._booleans(pa.array(["true"]), pa.bool_()) is None
    assert functions._booleans(pa.array([True, None]), pa.bool_()).to_pylist() == [True, None]
    assert functions._booleans(pa.array([2, 0, None]), pa.bool_()).to_pylist() == [True, False, None]


@pytest.mark.parametrize(("unit", "size"), [("us", 1000), ("ns", 1)])
@pytest.mark.parametrize("last", [2**63 - 1, -(2**63)])
def test_interval_added_beyond_the_type_is_an_error(unit: str, size: int, last: int) -> None:
    step = Interval(1 if last > 0 else -1, "MICROSECOND")
    kind = pa.timestamp(unit, "UTC")
    ends = [last * size - step.count * 1000 * beyond for beyond in (1, 0)]
    for start in (ends[0], ends[0] + (size - 1 if last > 0 else 0)):
        assert functions.apply("+", [Moment(start, Zone.UTC), step], kind, "shown") == Moment(
            start + step.count * 1000, Zone.UTC
        )
    with pytest.raises(DataError, match="shown"):
        functions.apply("+", [Moment(ends[1], Zone.UTC), step], kind, "shown")
    edge = Day(2**31 - 1 if last > 0 else -(2**31))
    with pytest.raises(DataError, match="shown"):
        functions.apply("+", [edge, Interval(step.count, "DAY")], pa.date32(), "shown")


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1])
def test_remainder_of_a_large_integer_is_exact(number: int) -> None:
    divisor = 2**63 - 1
    assert functions.apply("%", [number, divisor], pa.int64(), "shown") == number
    bound = bind(parse_filter(f"i64 % {divisor} = {number}"), SCHEMA)
    assert may_match(bound, Exactly({"i64": number}))  # an earlier version wrongly skipped this partition


def test_remainder_of_infinity_is_nan_without_a_warning() -> None:
    remainders = functions.remainder(pa.array([math.inf, 5.0]), pa.scalar(2.0)).to_pylist()
    assert math.isnan(remainders[0])
    assert remainders[1] == 1.0


def test_floats_are_computed_in_single_precision() -> None:
    left, right = float(np.float32(0.1)), float(np.float32(0.7))
    for name, expected in (("+", np.float32(left) + np.float32(right)), ("*", np.float32(left) * np.float32(right))):
        assert functions.apply(name, [left, right], pa.float32(), "shown") == float(expected)
        assert functions.apply(name, [left, right], pa.float64(), "shown") != float(expected)
