"""Text that Spark and DuckDB read differently is refused with advice; ``test_one_dialect`` compares with DuckDB."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Expression, col

SCHEMA = pa.schema(
    {
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "dec": pa.decimal128(10, 2),
        "text": pa.string(),
        "day": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "fine": pa.timestamp("ns"),
        "clock": pa.time64("us"),
    }
)


def bound(text: str) -> Expression:
    parsed = parse_filter(text)
    assert parsed is not None
    return bind(parsed, SCHEMA)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"text = 'C:\dir'", r"write a raw string"),
        (r"text LIKE '100\%'", r"another escape character for LIKE"),
        ("text ILIKE 'aX%' ESCAPE 'X'", "no upper or lower case, found 'X'"),
        ("CAST(f64 AS INT) = 1", r"'f64' \(double\) .* Write int\(f64\) to cut it off"),
        ("CAST(f32 AS TINYINT) = 1", r"'f32' \(float\) .* Write tinyint\(f32\)"),
        ("CAST(dec AS BIGINT) = 1", r"'dec' \(decimal\(10, 2\)\) .* Write bigint\(dec\)"),
        ("(dec * 2)::smallint = 1", r"Write smallint\(\(dec \* 2\)\)"),
        ("CAST(text AS TIMESTAMP) = ts", r"Write timestamp\(text\), which does not"),
        ("CAST(i32 AS DECIMAL) = 1", "DECIMAL without digits"),
        ("f64 = CAST(0.1 AS FLOAT)", "constant of type FLOAT"),
        (
            "ts = TIMESTAMP '2024-01-31 07:00:00+02:00'",
            r"as in ts = '2024-01-31 07:00:00\+02:00', .*'2024-01-31 05:00:00Z'",
        ),
        ("ts = TIMESTAMP '2024-01-31 07:00:00 Europe/London'", "DuckDB ignores the zone"),
        ("f32 = 0.1", r"rounds '0.1' to a float.* Write CAST\(f32 AS DOUBLE\) for 'f32' \(float\)"),
        ("0.1 < f32", r"Write CAST\(f32 AS DOUBLE\)"),
        ("f32 IN (1, 16777217)", "rounds '16777217' to a float"),
        (f"f32 < 17976931348623159{'0' * 292}", "to a float"),
        ("-f32 <= 0.1", r"Write CAST\(\(- f32\) AS DOUBLE\)"),
        ("f32 <=> 16777217", "rounds '16777217' to a float"),
        ("i32 = f32", r"rounds 'i32' \(integer\) to a float"),
        ("f32 IS DISTINCT FROM i64", r"rounds 'i64' \(long\) to a float"),
        ("f32 < dec", r"rounds 'dec' \(decimal\(10, 2\)\) to a float"),
        ("f32 + 1 > 2E0", r"'\(f32 \+ 1\)' is a float in DuckDB"),
        ("i16 * f32 > 2E0", r"'\(i16 \* f32\)' is a float in DuckDB"),
        ("coalesce(f32, 0) > 2E0", r"'coalesce\(f32, 0\)' is a float in DuckDB"),
        ("ts = '2024-01-31 05:00:00.0000001'", "more than six digits"),
        ("day < TIMESTAMP '2024-01-31 05:00:00.0000001'", "more than six digits"),
        ("clock < '05:00:00.0000001'", "more than six digits"),
    ],
)
def test_text_with_two_meanings_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bound(text)


@pytest.mark.parametrize(
    "text",
    [
        r"text = r'C:\dir'",
        r'text = "a\nb"',
        "text ILIKE 'a!%' ESCAPE '!'",
        "int(f64) = 1",
        "bigint(dec) = 1",
        "CAST(i64 AS INT) = 1",
        "CAST(text AS INT) = 1",
        "timestamp(text) = ts",
        "CAST(day AS TIMESTAMP) = ts",
        "CAST(text AS DATE) = day",
        "CAST(i32 AS DECIMAL(10)) = 1",
        "decimal(i32) = 1",
        "f32 = float('0.1')",
        "f32 = 0.1F",
        "ts = '2024-01-31 07:00:00+02:00'",
        "ts = TIMESTAMP '2024-01-31 05:00:00Z'",
        "ts = TIMESTAMP '2024-01-31 05:00:00 utc'",
        "ts = TIMESTAMP '2024-01-31 05:00:00-00:00'",
        "ts = TIMESTAMP '2024-01-31 05:00:00+00'",
        "f32 = 0.1E0",
        "f32 = 0.5",
        "f32 = 16777216",
        "f32 < i16",
        "f32 > f64",
        "CAST(f32 AS DOUBLE) = 0.1",
        "f64 = 0.1",
        "f64 = i64",
        "f64 + 1 > 0.1",
        "f32 + f32 > 1",
        "f32 * 2E0 > 0.1",
        "f32 + f64 > 0.1",
        "-f32 > 1",
        "coalesce(f32, f64) > 0.1",
        "i32 + dec > 0.1",
        "ts = '2024-01-31 05:00:00.000001000'",
        "fine = '2024-01-31 05:00:00.0000001'",
        "f32 IS NULL",
        "f32 = NULL",
    ],
)
def test_text_with_one_meaning_is_accepted(text: str) -> None:
    bound(text)


def test_conditions_of_python_are_not_restricted() -> None:
    for condition in (
        col("f32") == Decimal("0.1"),
        col("f32") < col("i64"),
        col("f64").cast("int") == 1,
        col("f32") + 1 > 2,
        col("f32") + col("f32") > Decimal("0.1"),
        col("text").cast("timestamp") == col("ts"),
        col("text") == "a\\b",
    ):
        bind(condition, SCHEMA)
    bind(parse_filter([("f32", "=", Decimal("0.1")), ("ts", "=", "2024-01-31 05:00:00.0000001")]), SCHEMA)  # type: ignore[arg-type]


def test_refused_string_has_its_position() -> None:
    text = r"i32 = 1 AND text = 'a\b'"
    with pytest.raises(UsageError) as caught:
        bound(text)
    assert caught.value.span == (text.index("'"), len(text))


def test_casts_stay_refused_beside_the_current_date() -> None:
    from delta_sharing_client.predicates.binding import fixed
    from delta_sharing_client.predicates.values import current_moment

    parsed = parse_filter("day < current_date() AND CAST(dec AS INT) = 1")
    assert parsed is not None
    with pytest.raises(UsageError, match="cuts the fraction off"):
        bind(fixed(parsed, current_moment()), SCHEMA)
