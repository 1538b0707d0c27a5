"""Filters have the same result as in Spark for each row: true, false, null or an error."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind, fixed
from delta_sharing_client.predicates.functions import FUNCTIONS
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Not
from delta_sharing_client.predicates.values import current_moment

pytestmark = pytest.mark.spark

UTC = datetime.timezone.utc
SCHEMA = pa.schema(
    {
        "i8": pa.int8(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "small": pa.decimal128(10, 2),
        "text": pa.string(),
        "day": pa.date32(),
        "instant": pa.timestamp("us", "UTC"),
    }
)
DDL = (
    "i8 tinyint, i32 int, i64 bigint, f32 float, f64 double, small decimal(10,2), text string, day date,"
    " instant timestamp"
)
_DAY, _NIGHT = datetime.date(2024, 2, 29), datetime.datetime(2024, 12, 31, 23, 59, 59, 999_999, UTC)
ROWS: list[tuple[Any, ...]] = [
    (1, 2, 3, 0.1, 0.1, Decimal("1.25"), "Straße", _DAY, _NIGHT),
    (-100, 2**30, 2**53, 16777216.0, -0.0, Decimal("-99.99"), "ΑΣ ΣΑΣ İ", datetime.date(1, 1, 1), _NIGHT),
    (None,) * 9,
    (
        0,
        -7,
        2**53 + 1,
        float("nan"),
        float("inf"),
        Decimal(0),
        "",
        datetime.date(1969, 12, 31),
        _NIGHT.replace(year=1960),
    ),
    (
        100,
        7,
        -1,
        -1.5,
        float("nan"),
        Decimal("12345678.90"),
        "ﬃx😀",
        datetime.date(9999, 12, 31),
        _NIGHT.replace(month=1),
    ),
]
CONDITIONS = [
    "i32 + 1 > 3", "i8 * 2 > 1", "i8 + i32 = 3", "i64 - 1 > i32", "-i32 < 0", "i32 / 2 > 1", "i8 = 0 OR i32 / i8 > 1",
    "double(f32) * 2 > 0.2", "f32 + f32 = 0.2E0", "f32 + double(i32) > 1", "f32 + 1E0 = 16777217E0",
    "f64 * 2 > 1000", "f64 - f64 = 0",
    "small * 2 > 2.4", "small + 0.001 > 1", "small * small > 1.5", "small * i8 > 1", "small - f64 > 1", "-small > 0",
    "i32 + 1.5 = 3.5", "i64 + 0.5 > 9007199254740993", "small * 1E0 = 1.25", "100 * 2 - 198 = i32",
    "lower(text) = 'straße'", "upper(text) = 'STRASSE'", "lower(text) = 'ας σας i̇'", "upper(text) = 'FFIX😀'",
    "length(text) = 6", "length(text) > 2", "lower(text) LIKE 's%'", "length(lower(text)) = 8",
    "year(day) = 2024", "year(day) > 1969", "year(day) <> 2024", "month(day) = 12", "day(day) = 29", "year(day) <= 1",
    "year(instant) = 2024", "year(instant) < 2024", "month(instant) = 1", "day(instant) = 31",
    "year(day) IN (1, 2024)", "year(day) NOT IN (1, 2024)", "year(day) <=> 2024",
    "coalesce(i32, 5) = 5", "coalesce(i8, i64) > 1", "coalesce(f32, double(i32)) > 0", "coalesce(small, 0) = 0",
    "coalesce(small, i64) = 1.25", "coalesce(text, 'x') = 'x'", "coalesce(day, DATE '2020-01-01') = '2020-01-01'",
    "coalesce(f32, 0.1E0) = 0.1", "(i32 + 1) IS NULL", "(i8 * 1) <=> 1", "coalesce(i32, i8) BETWEEN 1 AND 7",
    "i64 IN (9007199254740993, 1E0)", "i64 IN (9007199254740993, 1)", "small IN (1.25, 7E0)", "f32 IN (0.1E0, 2)",
    "i32 IN (2, 7.0)", "i64 NOT IN (9007199254740993, 1E0)", "i32 <> 0 AND 14 / i32 = 2",
    "i32 % 4 = -3", "i64 % -4 = 3", "i8 % 3 <> 1", "f32 % 1E0 = 0.5", "f64 % 2 = 0", "i32 % double(f32) > 0",
    "i32 % 4.0E0 = 2",
    "text ILIKE 'sTRASS%'", "text NOT ILIKE '%ας%'", "text ILIKE '%ß_'", "text ILIKE 'Ffi%' ESCAPE '!'",
    "date(instant) = '2024-12-31'", "date(instant) <> DATE '1960-12-31'", "date(instant) IN ('2024-12-31', NULL)",
    "to_date(day) > '1969-12-31'", "date(string(day)) = day", "year(date(instant)) < 2024",
    "tinyint(i32 % 100) = 2", "smallint(i8) = -100", "int(small) = -99", "i8 = 100 AND int(f32) = -1",
    "bigint(i32) = 7",
    "bigint(small) = 12345678", "i32::bigint * 1000000000 > 1",
    "float(i64) = 9007199254740992", "CAST(small AS FLOAT) > 1", "double(small) = 1.25", "CAST(f32 AS DOUBLE) = 0.1",
    "string(i64) = '9007199254740993'", "CAST(i32 AS STRING) LIKE '%7'", "CAST(day AS STRING) = '0001-01-01'",
    "CAST(string(i8) AS INT) + 1 = 101",
    "CAST(i64 AS DECIMAL(20, 1)) > 2.5", "CAST(small AS DECIMAL(10, 1)) = 1.3", "decimal(i32) = 7", "boolean(i8)",
    "CAST(day AS TIMESTAMP) < instant", "timestamp(i32) > instant", "CAST(instant AS TIMESTAMP_NTZ) > day",
    "timestamp(string(i8 + 2000)) > '2000-06-01'", "day + 3 > '2024-03-02'", "instant - INTERVAL 1 DAY >= '2024-12-30'",
    "instant + INTERVAL '1' MONTH < now()", "day + INTERVAL 2 HOUR < instant", "add_months(day, 12) <> '2025-02-28'",
    "now() > instant", "current_date() > day", "now() < TIMESTAMP '2000-01-01 00:00:00Z'", "current_date() IS NULL",
]  # fmt: skip


def test_every_function_is_compared_with_spark() -> None:
    assert [
        name
        for name in FUNCTIONS
        if not any(f"{name}(" in condition or f" AS {name.upper()})" in condition for condition in CONDITIONS)
    ] == []


def test_conditions_follow_the_three_valued_logic_of_spark(spark: Any) -> None:
    frame = spark.createDataFrame(ROWS, DDL)
    answers = frame.selectExpr(
        *(f"({condition}) AS c{number}" for number, condition in enumerate(CONDITIONS))
    ).collect()
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], schema=SCHEMA)
    for number, condition in enumerate(CONDITIONS):
        expected = [answer[number] for answer in answers]
        parsed = fixed(parse_filter(condition), current_moment())
        found = mask(bind(parsed, SCHEMA), batch).to_pylist()
        denied = mask(bind(Not(parsed), SCHEMA), batch).to_pylist()
        assert [True if yes else False if no else None for yes, no in zip(found, denied, strict=True)] == expected, (
            condition
        )


@pytest.mark.parametrize(
    "condition", ["i8 + i8 > 0", "i32 * i32 > 0", "i32 / i8 > 1", "f64 / f64 > 1", "i32 % i8 > 1", "f64 % f64 > 1"]
)
def test_expressions_that_fail_in_spark_fail_here(spark: Any, condition: str) -> None:
    with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO"):
        spark.createDataFrame(ROWS, DDL).where(condition).collect()
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], schema=SCHEMA)
    with pytest.raises(DataError, match="fails in Spark too"):
        mask(bind(parse_filter(condition), SCHEMA), batch)


@pytest.mark.parametrize(
    "condition",
    ["int(text) > 1", "double(text) > 1", "date(text) > day", "tinyint(i32) > 1", "int(f64) > 1", "int(i64) > 1"],
)
def test_casts_that_fail_in_spark_fail_here(spark: Any, condition: str) -> None:
    with pytest.raises(Exception, match=r"CAST_INVALID_INPUT|CAST_OVERFLOW"):
        spark.createDataFrame(ROWS, DDL).where(condition).collect()
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], schema=SCHEMA)
    with pytest.raises(DataError, match="fails in Spark too"):
        mask(bind(parse_filter(condition), SCHEMA), batch)
