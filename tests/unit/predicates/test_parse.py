from __future__ import annotations

import contextlib
import datetime
import decimal
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import sql
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.arrow_expressions import weaker_predicate
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Column, Comparison, DoubleQuoted, Literal, Op, col
from delta_sharing_client.predicates.values import parse_date, parse_moment
from tests.effort import examples
from tests.quota import meets, met
from tests.versions import understood


@pytest.mark.parametrize(
    ("text", "expected"),
    understood(
        [
            ("a > 1", "a > 1"),
            ("5 < a", "a > 5"),
            ("a == 1", "a = 1"),
            ("a != 1", "a <> 1"),
            ("`a.b` = 1", "`a.b` = 1"),
            ("a.b.c.d.`e.f`.g = 1", "a.b.c.d.`e.f`.g = 1"),
            ("a = -1", "a = -1"),
            ("a = - - 1", "a = 1"),
            ("a = 1.50", "a = 1.50"),
            ("a = .5", "a = 0.5"),
            ("a = 5.", "a = 5."),
            ("a = 1e3", "a = 1000.0E0"),
            ("a = 1.5D", "a = 1.5E0"),
            ("a = 1.1F", "a = 1.100000023841858E0"),
            ("a = 1.50BD", "a = 1.50"),
            ("a IN (1BD, .5bd, 1e2BD, -3.BD)", "a IN (1., 0.5, 100., -3.)"),
            ("a5BD = `1.5BD` AND b = '1.5BD'", "a5BD = `1.5BD` AND b = '1.5BD'"),
            ("a = 5L", "a = 5"),
            ("a = -128Y", "a = -128"),
            ("a = 9223372036854775808", "a = 9223372036854775808"),
            ("a = X'0aFF'", "a = X'0AFF'"),
            ("a = TRUE", "a = TRUE"),
            ("a = NULL", "a = NULL"),
            ("a", "a = TRUE"),
            ("NOT a", "NOT (a = TRUE)"),
            ("a AND b OR c", "(a = TRUE AND b = TRUE) OR c = TRUE"),
            ("NOT a = 1 AND b = 2", "NOT (a = 1) AND b = 2"),
            ("a = 1 OR b = 2 AND c = 3", "a = 1 OR (b = 2 AND c = 3)"),
            ("a IS NULL", "a IS NULL"),
            ("a IS NOT NULL", "a IS NOT NULL"),
            ("isnull(a) OR isnotnull(a)", "a IS NULL OR a IS NOT NULL"),
            ("ISNULL(a) OR IsNotNull(a)", "a IS NULL OR a IS NOT NULL"),
            ("a IS TRUE", "a <=> TRUE"),
            ("a IS NOT FALSE", "NOT (a <=> FALSE)"),
            ("a <=> 1", "a <=> 1"),
            ("date_sub(a, 3) = b", "(date(a) + INTERVAL '-3' DAY) = b"),
            ("date_add(a, 3) = b", "(date(a) + INTERVAL '3' DAY) = b"),
            ("1 <=> a", "a <=> 1"),
            ("a IS DISTINCT FROM 1", "NOT (a <=> 1)"),
            ("a IS NOT DISTINCT FROM NULL", "a <=> NULL"),
            ("a BETWEEN 1 AND 2 AND b = 3", "a >= 1 AND a <= 2 AND b = 3"),
            ("a NOT BETWEEN 1 AND 2", "NOT (a >= 1 AND a <= 2)"),
            ("a IN (1, -2, NULL, 1)", "a IN (1, -2, NULL)"),
            ("a IN (1, NULL, 2.5E0)", "a IN (1.0E0, NULL, 2.5E0)"),
            ("a NOT IN ('x')", "a NOT IN ('x')"),
            ("a LIKE 'x%'", "a LIKE 'x%'"),
            ("a NOT LIKE 'x!%' ESCAPE '!'", "NOT (a LIKE 'x!%' ESCAPE '!')"),
            ("startswith(a, 'x')", "startswith(a, 'x')"),
            ("a = DATE '2024-01-31'", "a = DATE '2024-01-31'"),
            ("a = CAST('2024-01-31' AS DATE)", "a = DATE '2024-01-31'"),
            ("a < TIMESTAMP '2024-01-31 01:02:03.5'", "a < TIMESTAMP '2024-01-31 01:02:03.500000'"),
            ("a < TIMESTAMP '2024-01-31T01:02:03 UTC'", "a < TIMESTAMP '2024-01-31 01:02:03Z'"),
            ("a < TIMESTAMP_NTZ '2024-01-31 01:02:03'", "a < TIMESTAMP '2024-01-31 01:02:03'"),
            ("a = CAST('NaN' AS DOUBLE)", "a = CAST('NaN' AS DOUBLE)"),
            ("a = CAST('1.5' AS DECIMAL(10, 2))", "a = 1.50"),
            ("a = CAST('1.555' AS DECIMAL(5, 2))", "a = 1.56"),
            ("a > b + INTERVAL '-1.5' SECOND", "a > (b + INTERVAL '-1500000' MICROSECOND)"),
            ("a > b + (- INTERVAL 3 DAYS)", "a > (b + INTERVAL '-3' DAY)"),
            ("a = coalesce(NULL, 'x', 'y')", "a = 'x'"),
            ("a = coalesce(NULL, DATE '2024-01-01')", "a = DATE '2024-01-01'"),
            ("nvl(a, 1) = 2 OR ifnull(a, 1) = 2", "coalesce(a, 1) = 2 OR coalesce(a, 1) = 2"),
            ("a = CAST('x' AS VARCHAR)", "a = 'x'"),
            ("a > b - INTERVAL 3 WEEKS", "a > (b + INTERVAL '-21' DAY)"),
            ("a > b - INTERVAL '1 month'", "a > (b + INTERVAL '-1' MONTH)"),
            (
                "a > 'interval' AND `interval '1'` = 'INTERVAL ''x'''",
                "a > 'interval' AND `interval '1'` = 'INTERVAL ''x'''",
            ),
            ("a > INTERVAL 2 MINUTES + b", "a > (b + INTERVAL '2' MINUTE)"),
            ("decimal(a) > timestamp(b)", "CAST(a AS DECIMAL(10, 0)) > timestamp(b)"),
            ("a = CAST(7 AS BIGINT)", "a = 7"),
            ("a = CAST(' 7 ' AS INT)", "a = 7"),
            ("a = CAST('2024-01-01 01:00Z' AS TIMESTAMP_LTZ)", "a = TIMESTAMP '2024-01-01 01:00:00Z'"),
            ("a = 0 % 5 AND timestamp_ntz(a) > b", "a = 0 AND CAST(a AS TIMESTAMP_NTZ) > b"),
            ("a = CAST('-128' AS TINYINT)", "a = -128"),
            ("a = CAST('0.1' AS DOUBLE) AND a LIKE CAST('x%' AS STRING)", "a = 0.1E0 AND a LIKE 'x%'"),
            ("a = CAST('x' AS STRING)", "a = 'x'"),
            (
                "date > '2024-01-01' AND timestamp < '2024-01-01'",
                "`date` > '2024-01-01' AND `timestamp` < '2024-01-01'",
            ),
            ("a = 1 -- it's a comment", "a = 1"),
            ("a /* 'not text' */ = 1", "a = 1"),
            ("a\n=\n1", "a = 1"),
            ("((a)) = (1)", "a = 1"),
            ("TRUE", "TRUE"),
            ("a = b.c", "a = b.c"),
        ]
    ),
)
def test_sql_condition_is_parsed(text, expected):
    assert str(parse_filter(text)) == expected


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it''s'", "it's"),
        (r'"it\'s \"x\""', 'it\'s "x"'),
        ('"it\'s"', "it's"),
        ('"say ""x"""', 'say "x"'),
        ('\'say ""x""\'', 'say ""x""'),
        ('"\\U0010FFFF"', "\U0010ffff"),
        ('"a\\nb\\t\\0\\\\"', "a\nb\t\0\\"),
        ('"\\u0041\\U0001F600\\101"', "A😀A"),
        ('"\\uD83D\\uDE00"', "😀"),
        ('"100\\%"', "100\\%"),
        ('"a\\qb"', "aqb"),
        ("r'a\\nb'", "a\\nb"),
        ('R"a\\"', "a\\"),
        ("'-- no comment'", "-- no comment"),
        ("'`'", "`"),
        ("'_h41'", "_h41"),
        ("''", ""),
        ("'é😀\u2028'", "é😀\u2028"),
        ("'{{x}} $1 :p ? @v'", "{{x}} $1 :p ? @v"),
    ],
)
def test_string_literals_are_parsed_as_in_spark(literal, value):
    parsed = parse_filter(f"a = {literal}")
    if isinstance(parsed, DoubleQuoted):
        assert parsed.texts == ((value, (4, 4 + len(literal))),)
        parsed = parsed.child
    assert parsed == Comparison(Op.EQ, Column(("a",)), Literal(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "as a SQL condition"),
        ("a >", "as a SQL condition"),
        ("a = 1 b", "as a SQL condition"),
        ("x = 1) OR (y = 2", "as a SQL condition"),
        ("a = X'0'", "as a SQL condition"),
        ("a = 'x", "is unfinished or malformed"),
        ("a = 1; DROP TABLE t", "as a SQL condition"),
        ("a DIV 2 = 0", "The operator 'DIV' is not supported"),
        ("a || 'x' = 'yx'", r"The operator '\|\|' is not supported"),
        ("abs(a) = 1", "The function 'abs' is not supported"),
        ("a > -'x'", "not supported"),
        ("a > -DATE '2024-01-01'", "not supported"),
        ("substring(a, 1, 2) = 'x'", "The function 'substring' is not supported"),
        ("my_udf(a) = 1", "The function 'my_udf' is not supported"),
        ("my_udf(a)", "The function 'my_udf' is not supported"),
        ("timestampdiff(HOUR, a, 5) = 1", "The function 'timestampdiff' is not supported"),
        ("CAST(TRUE AS INT) = a", "True is not an integer constant"),
        ("CAST(5BD AS INT) = a", "is not an integer constant"),
        (f"a + {'1' * 39}BD = 1", "'1{39}' may need 39 digits"),
        ("a = 1e99999999BD", "may need 100000000 digits"),
        ("isnull(a, b)", "The function 'isnull' is not supported"),
        ("CASE WHEN a THEN b END", "CASE is not supported"),
        ("CAST(a AS BINARY) = 'x'", "Casting a to BINARY is not supported"),
        ("try_cast(a AS INT) = 1", "not supported"),
        ("date_trunc('day', a) = '2024-01-01'", "The function 'date_trunc' is not supported"),
        ("a = (SELECT 1)", "A subquery is not supported"),
        ("a IN (SELECT 1)", "A subquery is not supported"),
        ("EXISTS (SELECT 1)", "not supported"),
        ("a IN (1, b)", "A constant was expected, found the column 'b'"),
        ("a = coalesce(DATE '2024-01-01', '2024-01-02')", "arguments of different types: date, string"),
        ("a IN (1, b + 1)", r"A constant was expected, found \(b \+ 1\)"),
        (f"a = {'9' * 309}", "an integer of more than 1024 bits"),
        (f"a = {'9' * 401}", "an integer of more than 1024 bits"),
        (f"a = {'9' * 5000}", "more than 400 digits"),
        ("1 IN (a)", "A column was expected"),
        ("a = b = c", "The condition 'a = b' as a value"),
        ("1 < a < 2", "The condition '1 < a' as a value"),
        ("a RLIKE 'x'", "not supported"),
        ("a LIKE b", "A constant was expected, found the column 'b'"),
        ("a LIKE 5", "must be a string constant"),
        ("a SIMILAR TO 'x' ESCAPE '!'", "The SQL 'a SIMILAR TO 'x'' is not supported"),
        ("a IN (upper(a))", r"A constant was expected, found upper\(a\)"),
        ("a = 1e", "'1e' is not a number"),
        ("a LIKE ANY ('x')", "not supported"),
        ("a = ?", "A parameter is not supported"),
        ("a = :name", "A parameter is not supported"),
        ("a = INTERVAL '1' JUBILEE", "The interval .* is not supported"),
        ("a[0] = 1", "A subscript in square brackets is not supported"),
        ("a = 'x' 'y'", "not supported"),
        ("a IS 5", "IS must be followed by NULL, TRUE, FALSE"),
        ("a = DATE '2024-02-30'", "is not a date"),
        ("a = TIMESTAMP 'soon'", "is not a timestamp"),
        ("a = TIMESTAMP_NTZ '2024-01-01 00:00:00Z'", "has a zone"),
        ("a = 300Y", "does not fit in TINYINT"),
        ("a = CAST('x' AS INT)", "not an integer constant"),
        ("a = CAST('x' AS DOUBLE)", "not a floating point constant"),
        ("a = CAST(5 AS DATE)", "Casting 5 to DATE is not supported; write the constant in that type"),
        ("a = CAST(5 AS STRING)", "Casting 5 to .* is not supported; write the constant in that type"),
        ("a = CAST(TRUE AS DOUBLE)", "True is not a floating point constant"),
        ("a = CAST('1234.5' AS DECIMAL(5, 2))", r"applied to '1234.5', which is not a valid decimal\(5, 2\)"),
        ("a = CAST('1' AS ARRAY<INT>)", "not supported"),
        ("a = CAST('1' AS BINARY)", "not supported"),
        ("a LIKE 'x' ESCAPE 'yy'", "must be one character"),
        ("a LIKE 'x' ESCAPE '%'", "must be one character other than % and _"),
        ("a LIKE 'x' ESCAPE '_'", "must be one character other than % and _"),
        ('a = "\\UFFFFFFFF"', "beyond the last Unicode character"),
        ('a = "\\U00110000"', "beyond the last Unicode character"),
        ('a = "\\uD800"', "lone surrogate"),
        ('a = "\\uD83D\\uDE00\\uD800"', "lone surrogate"),
        ("a IN ()", "IN needs at least one value"),
        ("a BETWEEN SYMMETRIC 2 AND 1", "not supported"),
        ("CAST(a AS DECIMAL(1.5, 2)) = 1", r"The type DECIMAL\(1\.5, 2\) is not supported in a cast"),
        ("a.* = 1", "A star is not supported"),
        ("`` = 1", "The SQL '``' is not supported"),
        ("(a IN (1)) = b", r"The condition 'a IN \(1\)' as a value"),
        ("(a AND b) = c", "The condition 'a AND b' as a value"),
        ("a = 5.5.5", "A column was expected"),
        ("*", "not supported|as a SQL condition"),
    ],
)
def test_error_names_unsupported_sql_in_one_sentence(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        parse_filter(text)
    assert "\n" not in str(caught.value)
    assert "_h" not in str(caught.value)


def test_long_conjunctions_and_lists_are_parsed():
    expression = parse_filter(" AND ".join(f"a <> {number}" for number in range(2000)))
    assert len(expression.children) == 2000
    assert len(parse_filter(f"a IN ({', '.join(map(str, range(5000)))})").values) == 5000


def test_long_filter_is_truncated_in_errors():
    assert sql._shorten("x" * 120) == repr("x" * 120)
    assert sql._shorten("x" * 121) == repr("x" * 117 + "...")


def test_excessive_nesting_is_refused():
    with pytest.raises(UsageError, match=r"nested too deep|as a SQL condition"):
        parse_filter("(" * 20_000 + "a = 1" + ")" * 20_000)


MOMENT = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ([("a", ">", 1)], "a > 1"),
        ((("a", "=", 1), ("b", ">", 2)), "a = 1 AND b > 2"),
        ((("a", "=", 1),), "a = 1"),
        (("a", ">", 1), "a > 1"),
        ([("a", "==", 1), ("b", "!=", "x")], "a = 1 AND b <> 'x'"),
        ([[("a", "=", 1), ("b", "<", 2)], [("c", ">=", 3)]], "(a = 1 AND b < 2) OR c >= 3"),
        ([[("a", "=", 1)]], "a = 1"),
        ([["a", "<=", 1]], "a <= 1"),
        ([("a", "in", [1, 2])], "a IN (1, 2)"),
        ([("a", "IN", {1})], "a IN (1)"),
        ([("a", "in", np.array([1, 2]))], "a IN (1, 2)"),
        ([("a", "in", pd.Series(["x", "y"]))], "a IN ('x', 'y')"),
        ([("a", "in", pa.array([1, 2]))], "a IN (1, 2)"),
        ([("a", "in", [])], "FALSE"),
        ([("a", "not in", [])], "TRUE"),
        ([("a", "not  in", (1, 2))], "a NOT IN (1, 2)"),
        ([("a", "is", None)], "a IS NULL"),
        ([("a", "is not", None)], "a IS NOT NULL"),
        ([("a", "is", "NULL")], "a IS NULL"),
        ([("a", "is", True)], "a <=> TRUE"),
        ([("a", "=", None)], "a = NULL"),
        ([("a", "<=>", None)], "a <=> NULL"),
        ([("a.b", "=", 1)], "a.b = 1"),
        ([("`a.b`", "=", 1)], "`a.b` = 1"),
        ([(("a.b", "c"), "=", 1)], "`a.b`.c = 1"),
        ([(col("a"), "=", col("b"))], "a = b"),
        ([("a", "like", "x%"), ("a", "not like", "y%"), ("a", "starts_with", "z")],
         "a LIKE 'x%' AND NOT (a LIKE 'y%') AND startswith(a, 'z')"),
        ([("a", "=", 1), col("b") > 2], "a = 1 AND b > 2"),
        (col("a") > 1, "a > 1"),
        (col("a"), "a = TRUE"),
        ([("a", "=", Decimal("1.50"))], "a = 1.50"),
        ([("a", "=", 1.5)], "a = 1.5E0"),
        ([("a", "=", datetime.date(2024, 1, 1))], "a = DATE '2024-01-01'"),
        ([("a", "=", MOMENT)], "a = TIMESTAMP '2024-01-01 00:00:00Z'"),
        ([("a", "=", MOMENT.replace(tzinfo=None))], "a = TIMESTAMP '2024-01-01 00:00:00'"),
        ([("a", "=", b"\x00")], "a = X'00'"),
    ],
)  # fmt: skip
def test_tuples_and_builders_are_parsed(condition, expected):
    assert str(parse_filter(condition)) == expected


def test_missing_filter_is_parsed_as_none():
    assert parse_filter(None) is None


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ([], "found an empty sequence"),
        (5, "found int"),
        ({"a": 1}, "found dict"),
        ([("a", ">")], r"A condition must be a tuple \(column, operator, value\)"),
        ([("a", 1, ">")], r"A condition must be a tuple \(column, operator, value\)"),
        ([("a", "~", 1)], "The operator '~' for 'a' is unknown. Use one of ="),
        ([(1, "=", 1)], "must begin with the name of a column"),
        ([("a", "=", [1])], "Use 'in' for a list"),
        ([("a", "in", "abc")], "needs a list of values; found str"),
        ([("a", "is", 1)], "takes None, True or False"),
        ([("a", "is", "true")], "takes None, True or False"),
        ([("a", "like", 1)], "takes a string; found int"),
        ([("a", "=", object())], "cannot compare with a value of type 'object'"),
        ([[("a", "=", 1)], []], "A condition must be a tuple"),
        (["a > 1"], "A condition must be a tuple"),
        (["a", "<=", 1], "A condition must be a tuple"),
        ([("", "=", 1)], "is not a column name"),
    ],
)
def test_error_of_an_invalid_filter_is_one_sentence(condition, message):
    with pytest.raises(UsageError, match=message):
        parse_filter(condition)


@pytest.mark.parametrize("name", ["INT", "DOUBLE", "DATE", "DECIMAL(5, 2)"])
def test_null_of_any_type_is_null(name):
    assert parse_filter(f"a = CAST(NULL AS {name})") == parse_filter("a = NULL")


def test_date_and_timestamp_literals_are_parsed():
    assert parse_filter("a = DATE '2024-01-01'").right == Literal(parse_date("2024-01-01"))
    assert parse_filter("a = TIMESTAMP '2024-01-01 00:00:00Z'").right == Literal(parse_moment("2024-01-01 00:00:00Z"))


_PIECES = st.sampled_from(
    r"""a b `c.d` . , ( ) [ ] = <> < <= > >= <=> ! ~ + - * / % && || :: : ? @ # $ { } ; -- /* */ ' " \ 1 1.5 1e3 5L
    X'00' 'x' "y" NULL TRUE NOT AND OR IN IS LIKE ESCAPE BETWEEN CASE WHEN END CAST AS DATE TIMESTAMP INTERVAL SELECT
    FROM EXISTS startswith( isnull( DISTINCT OVER WITH LATERAL ANY ALL count(* LIMIT é 😀""".split()  # noqa: SIM905
)


@meets(read=3)
@settings(max_examples=examples(250))
@given(st.lists(_PIECES, max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_parsed_or_is_a_usage_error(text):
    with contextlib.suppress(UsageError):
        expression = parse_filter(text)
        met("read")
        # The text of a predicate has its strings in single quotes.
        plain = expression.child if isinstance(expression, DoubleQuoted) else expression
        assert parse_filter(str(expression)) == plain


@pytest.mark.parametrize("sign", ["-", "- -", ""])
def test_decimal_of_38_digits_keeps_them_with_a_sign(sign: str) -> None:
    digits = "9999999999999999999999999999.9999999999"
    expected = Decimal("-" + digits if sign == "-" else digits)

    assert parse_filter(f"a = {sign}{digits}") == Comparison(Op.EQ, Column(("a",)), Literal(expected))


# === Arrow expressions that engines push down: a condition may become weaker but must not lose rows ===

field = pc.field
SCHEMA = pa.schema(
    {
        "a": pa.int64(),
        "odd name": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.decimal128(10, 2),
        "st": pa.struct({"a": pa.int64()}),
        "b": pa.bool_(),
        "x": pa.float64(),
        "f": pa.float32(),
    }
)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (field("a") < 5, "a < 5"),
        (pa.scalar(5) > field("a"), "a < 5"),
        (field("odd name") == 'x"y\n', "`odd name` = 'x\"y\n'"),
        (field("d") >= pa.scalar(datetime.date(2024, 1, 1)), "d >= DATE '2024-01-01'"),
        (
            field("t") < pa.scalar(datetime.datetime(2024, 1, 1), pa.timestamp("us", "UTC")),
            "t < TIMESTAMP '2024-01-01 00:00:00Z'",
        ),
        (field("n") > decimal.Decimal("1.20"), "n > 1.20"),
        (field("st", "a") > 3, "st.a > 3"),
        (field("a").isin(list(range(30))), f"a IN ({', '.join(map(str, range(30)))})"),
        (field("a").isin([]), "FALSE"),
        (pc.starts_with(field("odd name"), "ab"), "startswith(`odd name`, 'ab')"),
        (field("b"), "b = TRUE"),
        (~field("b"), "b <> TRUE"),
        (field("a").is_valid(), "a IS NOT NULL"),
        (~field("a").is_null(), "a IS NOT NULL"),
        ((field("a") > 1) & (pc.utf8_length(field("odd name")) > 3), "a > 1"),
        ((field("a") > 1) | (field("st", "a") == 2), "a > 1 OR st.a = 2"),
        (
            pc.if_else(pc.is_valid(field("a")), field("a").isin([1]), pa.scalar(None, pa.bool_())),
            "a IN (1)",
        ),
        (field("a").isin([1, None]), "a IN (1) OR a IS NULL"),
        (~field("a").isin([1]), "a NOT IN (1) OR a IS NULL"),
        (~field("a").isin([1, None]), "(a NOT IN (1) OR a IS NULL) AND a IS NOT NULL"),
        (~pc.if_else(pc.is_valid(field("a")), field("a").isin([1]), pa.scalar(None, pa.bool_())), "a NOT IN (1)"),
        (~((field("a") > 1) & (field("b"))), "a <= 1 OR b <> TRUE"),
        (~~(field("a") == 1), "a = 1"),
        (pc.year(field("t")) == 2024, "year(t) = 2024"),
        (pc.year(field("d")) < 2024, "year(d) < 2024"),
        (field("t").cast("date32") == datetime.date(2024, 1, 31), "date(t) = DATE '2024-01-31'"),
        (pc.match_substring(field("odd name"), "50%_\\"), r"`odd name` LIKE r'%50\%\_\\%'"),
        (field("odd name").isin(["größe", "名前", "😀" * 3]), "`odd name` IN ('größe', '名前', '😀😀😀')"),
    ],
)
def test_supported_expressions_are_converted(expression: pc.Expression, text: str) -> None:
    assert str(weaker_predicate(expression, SCHEMA)) == text


@pytest.mark.parametrize(
    "expression",
    [
        (field("a") > 1) | (pc.utf8_length(field("odd name")) > 3),
        ~(field("x") > 1),
        field("x") != math.nan,
        field("x").is_null(nan_is_null=True),
        pc.starts_with(field("odd name"), "ab", ignore_case=True),
        pc.if_else(pc.is_valid(field("a")), field("a").isin([1]), pa.scalar(True)),
        field("nothing") > 1,
        field("a") > field("st", "a"),
        pc.scalar(True),
        # Arrow casts these constants to the column's type by its own rules.
        field("d").isin([datetime.datetime(2024, 1, 1, 1)]),
        field("f").isin([0.1]),
        field("a").isin([True]),
        field("odd name") == b"a",
    ],
)
def test_unsupported_expressions_are_not_converted(expression: pc.Expression) -> None:
    assert weaker_predicate(expression, SCHEMA) is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (field("a") * 2 - 1 > 5, "((a * 2) - 1) > 5"),
        (~(field("x") > 1.5), "NOT (x > 1.5E0)"),
        (pc.utf8_lower(field("odd name")) == "x", "lower(`odd name`) = 'x'"),
        (pc.coalesce(field("a"), pa.scalar(1)) == 1, "coalesce(a, 1) = 1"),
        (field("a").cast("string") == "1", "string(a) = '1'"),
        ((field("a") + 1).is_null(), "a + 1 IS NULL"),
        ((field("a") + 1).is_valid(), "a + 1 IS NOT NULL"),
        ((field("a") + 1).isin([2]), "a + 1 IN (2)"),
        ((field("a") + 1).isin([2, None]), "a + 1 IN (2) OR a + 1 IS NULL"),
        (pc.starts_with(pc.utf8_lower(field("odd name")), "x"), "startswith(lower(`odd name`), 'x')"),
        (pc.match_substring(pc.utf8_upper(field("odd name")), "X"), "upper(`odd name`) LIKE '%X%'"),
        (
            pc.if_else(pc.is_valid(field("a") + 1), (field("a") + 1).isin([2]), pa.scalar(None, pa.bool_())),
            "a + 1 IN (2)",
        ),
        (field("a") > field("st", "a"), "a > st.a"),
        (pc.ends_with(field("odd name"), "x"), "`odd name` LIKE '%x'"),
    ],
)
def test_pyarrow_expression_is_parsed_as_a_filter(expression: pc.Expression, text: str) -> None:
    assert parse_filter(expression) == parse_filter(text)


_integers = st.none() | st.integers(-3, 3)
_floats = st.none() | st.sampled_from([0.0, -0.0, 0.7, 1.5, math.nan, math.inf])
_texts = st.none() | st.sampled_from(["", "a", "ab", "b", "A"])
_rows = st.lists(
    st.fixed_dictionaries(
        {"a": _integers, "x": _floats, "f": _floats, "odd name": _texts, "b": st.none() | st.booleans()}
    ),
    max_size=8,
)
_leaves = st.one_of(
    st.builds(
        lambda name, op, value: getattr(field(name), op)(value),
        st.sampled_from(["a", "x", "f"]),
        st.sampled_from(["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"]),
        st.sampled_from([-1, 0, 1, 2]) | st.sampled_from([0.7, 1.5, math.nan, math.inf]),
    ),
    st.builds(lambda values: field("a").isin(values), st.lists(_integers, max_size=3)),
    st.builds(lambda value: field("odd name") >= value, st.sampled_from(["", "a", "ab"])),
    st.just(field("b")),
    st.builds(lambda name: field(name).is_null(), st.sampled_from(["a", "x", "b"])),
    st.builds(lambda prefix: pc.starts_with(field("odd name"), prefix), st.sampled_from(["", "a"])),
)
_expressions = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.builds(lambda one, two: one & two, inner, inner),
        st.builds(lambda one, two: one | two, inner, inner),
        st.builds(lambda one: ~one, inner),
    ),
    max_leaves=5,
)


@meets(weaker=5, matching=2)
@given(_expressions, _rows)
def test_weaker_condition_loses_no_matching_row(expression: pc.Expression, rows: list[dict[str, object]]) -> None:
    weaker = weaker_predicate(expression, SCHEMA)
    if weaker is None:
        return
    table = pa.Table.from_pylist([{**row, "place": place} for place, row in enumerate(rows)], schema=_schema_of_rows())
    matching = set(table.filter(expression)["place"].to_pylist())
    kept = {
        place
        for batch in table.to_batches()
        for place in batch.filter(mask(bind(weaker, batch.schema), batch))["place"].to_pylist()
    }
    met("weaker", len(kept) < len(rows))
    met("matching", matching)
    assert matching <= kept


def _schema_of_rows() -> pa.Schema:
    names = ("a", "x", "f", "odd name", "b")
    return pa.schema([*(SCHEMA.field(name) for name in names), pa.field("place", pa.int64())])


def test_object_with_a_meta_attribute_is_refused():
    class Other:
        meta = 1

    with pytest.raises(UsageError, match="Other"):
        parse_filter(Other())  # type: ignore[arg-type]


def test_name_in_the_form_of_a_hidden_literal_is_refused():
    with pytest.raises(UsageError, match="cannot be parsed as a SQL condition"):
        parse_filter("a _hff")
