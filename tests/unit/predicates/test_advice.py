"""The error for a common mistake in a filter shows a corrected form."""

from __future__ import annotations

import pickle
import re

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.text_spans import span_of_name
from tests.quota import meets, met

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.float64()),
        ("country", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
    ]
)

# A user's mistake, the text in the error, and the corrected form.
MISTAKES = [
    ("", "leave 'filter' out to read all rows", "TRUE"),
    ("WHERE amount > 3", "Write the condition without WHERE", "amount > 3"),
    ("SELECT * FROM t WHERE amount > 3", "without SELECT and WHERE", "amount > 3"),
    ("ts > 2026-01-01", "Write a timestamp in single quotes", "ts > '2026-01-01'"),
    ("ts > 2026-01-01T10:00:00", "Write a date or timestamp in single quotes", "ts > '2026-01-01T10:00:00'"),
    ("day > 2026-01-01", "Write a date in single quotes", "day > '2026-01-01'"),
    ("day > 2026/01/01", "Write a date in single quotes", "day > '2026-01-01'"),
    ("day > 20260101", "Write a date in single quotes", "day > '2026-01-01'"),
    ("day > 01.02.2026", "Write a date or timestamp in single quotes", "day > '2026-02-01'"),
    ("day > DATE 2026-01-01", "Write a date or timestamp in single quotes", "day > DATE '2026-01-01'"),
    ("country = DE", "If it is a string, write it in single quotes: 'DE'", "country = 'DE'"),
    ("country <=> DE", "If it is a string, write it in single quotes: 'DE'", "country <=> 'DE'"),
    ("country IN (DE, FR)", "If it is a string, write it in single quotes: 'DE'", "country IN ('DE', 'FR')"),
    ("country in 'DE', 'FR'", "Write the values in parentheses", "country in ('DE', 'FR')"),
    ("country not in 'DE'", "Write the values in parentheses", "country not in ('DE')"),
    ("country = \u2018DE\u2019", "'DE'", "country = 'DE'"),
    ("country = \u201cDE FR\u201d", "straight single quotes", "country = 'DE FR'"),
    ("country = 'it's'", "double a quote inside a string: 'it''s'", "country = 'it''s'"),
    ("amount > 3 & country = 'DE'", "Write AND instead of &", "amount > 3 AND country = 'DE'"),
    ("(amount > 3) & (country = 'DE')", "Write AND instead of &", "amount > 3 AND country = 'DE'"),
    ("amount > 3 && country = 'DE'", "Write AND instead of &&", "amount > 3 AND country = 'DE'"),
    ("amount > 3 | country = 'DE'", "Write OR instead of |", "amount > 3 OR country = 'DE'"),
    ("amount > 3 || country = 'DE'", "Write OR between conditions", "amount > 3 OR country = 'DE'"),
    ("~(country = 'DE')", "Write NOT instead of ~", "NOT (country = 'DE')"),
    ("amount => 3", "Write >= instead of =>", "amount >= 3"),
    ("amount =< 3", "Write <= instead of =<", "amount <= 3"),
    ("3 < amount < 5", "Write two comparisons", "3 < amount AND amount < 5"),
    ("amount BETWEEN 3, 5", "Write BETWEEN low AND high", "amount BETWEEN 3 AND 5"),
    ("amount > 1,000", "without commas", "amount > 1000"),
    ("amount > 3.0.0", "with only one decimal point", "amount > 3.0"),
    ("contains(country, 'x')", "Write name LIKE '%text%'", "country LIKE '%x%'"),
    ("country CONTAINS 'x'", "Write name LIKE '%text%'", "country LIKE '%x%'"),
    ("country.str.contains('x')", "Write name LIKE '%text%'", "country LIKE '%x%'"),
    ("endswith(country, 'x')", "Write name LIKE '%text'", "country LIKE '%x'"),
    ("country.lower() = 'de'", "Write functions as in lower(name)", "lower(country) = 'de'"),
    ("country RLIKE 'D.*'", "regular expressions are not supported", "country LIKE 'D%'"),
    ("country SIMILAR TO 'D%'", "regular expressions are not supported", "country LIKE 'D%'"),
    ("country ~ 'D'", "regular expressions are not supported", "country LIKE '%D%'"),
    ("country LIKE D*", "Write the pattern in single quotes", "country LIKE 'D%'"),
    ("substring(country, 1, 1) = 'D'", "Write startswith(name, 'text') or LIKE", "startswith(country, 'D')"),
    ("col('amount') > 3", "write only the name of the column", "amount > 3"),
    ("t.amount > 3", "Write the name of the column alone: amount", "amount > 3"),
    ("demo.shop.t.amount > 3", "Write the name of the column alone: amount", "amount > 3"),
    ("ts.year = 2026", "Write year(ts) for the function", "year(ts) = 2026"),
    ("country = None", "write IS NULL", "country IS NULL"),
    ("country is None", "write IS NULL", "country IS NULL"),
    ("country is not None", "write IS NULL or IS NOT NULL", "country IS NOT NULL"),
    ("country is 'DE'", "Write = or <>", "country = 'DE'"),
    ("amount = nan", "Write CAST('NaN' AS DOUBLE)", "amount = CAST('NaN' AS DOUBLE)"),
    ("amount < inf", "Write CAST('Infinity' AS DOUBLE)", "amount < CAST('Infinity' AS DOUBLE)"),
    ("max(amount) > 3", "one row at a time", "amount > 3"),
    ("amount > 3 LIMIT 10", "pass limit=10 in addition to the filter", "amount > 3"),
    ("amount > 3 ORDER BY id", "Sort and group the rows that are read", "amount > 3"),
    ("amount > :least", "Parameters are not supported", "amount > 3"),
    ("amount > {least}", "Parameters are not supported", "amount > 3"),
    ("coalesce(amount > 3, false)", "The condition 'amount > 3' as a value is not supported. Write only the condition",
     "amount > 3"),
    ("CASE WHEN amount > 3 THEN true END", "with AND, OR and NOT", "amount > 3"),
    ("if(amount > 3, true, false)", "with AND, OR and NOT", "amount > 3"),
    ("flag XOR amount > 3", "(a OR b) AND NOT (a AND b)", "(flag OR amount > 3) AND NOT (flag AND amount > 3)"),
    ("date_trunc('month', ts) = '2026-01-01'", "with start and end", "ts >= '2026-01-01' AND ts < '2026-02-01'"),
    ("datediff(now(), ts) < 7", "ts > now() - INTERVAL '7' DAY", "ts > now() - INTERVAL '7' DAY"),
    ("ts > now() - 7", "as in now() - INTERVAL '7' DAY", "ts > now() - INTERVAL '7' DAY"),
    ("amount > 3 AND", "A condition is missing after AND", "amount > 3"),
    ("AND amount > 3", "A condition is missing before AND", "amount > 3"),
    ("amount >", "A value is missing after >", "amount > 3"),
    ("(amount > 3", "It has 1 opening parenthesis and 0 closing parentheses", "(amount > 3)"),
    ("amount > 3))", "It has 0 opening parentheses and 2 closing parentheses", "amount > 3"),
    ("amount > 3 AS large", "Leave the alias out", "amount > 3"),
    ("amount", "A column without a comparison must be boolean", "flag"),
    ("amount % 2", "A column without a comparison must be boolean", "amount % 2 = 0"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "advice", "right"), MISTAKES, ids=[mistake for mistake, *_ in MISTAKES])
def test_error_for_a_common_mistake_shows_a_corrected_form(mistake: str, advice: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(parse_filter(mistake), SCHEMA)

    # The error for a common mistake does not list everything that is supported.
    assert advice in str(caught.value)
    assert "Supported are" not in str(caught.value)
    assert re.search(r"SQL syntax|_h[0-9a-f]{2}|sqlglot|\b(?!DuckDB)[A-Z][a-z]+[A-Z]\w+", str(caught.value)) is None
    bind(parse_filter(right), SCHEMA)
    place = caught.value.span or span_of_name(mistake, caught.value.message)
    # Errors about an empty filter or a value of the wrong type state no position in the text.
    assert (place is None) is (mistake in ("", "amount % 2"))
    assert place is None or 0 <= place[0] < place[1] <= len(mistake)


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("amount > 3 && country = 'it''s'", "&&"),
        ("country = 'it''s && so' && amount > 3", "&&"),
        ("name = 'a long text that is longer in hexadecimal digits' ~ id", "~"),
        ("country = 'x' AND amount = ) 3", ")"),
        (f"country = '{'x' * 300}' AND amount = ) 3", ")"),
        ("country = 'it's'", "s"),
        ("amount > 3 AND country = 'DE", "'DE"),
        ("amount > 3 AND (SELECT 1)", "1"),
        ("unheard(amount) > 3", "unheard"),
        ("/* unheard */ unheard(amount) > 3", "unheard"),
    ],
)
def test_error_states_the_position_of_the_mistake(text: str, marked: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert caught.value.span is not None
    start, stop = caught.value.span
    assert text[start:stop] == marked
    # Spark executors pickle errors.
    assert pickle.loads(pickle.dumps(caught.value)).span == (start, stop)


def test_mistakes_inside_strings_and_names_are_ignored() -> None:
    text = "country IN ('WHERE 1 & 2', 'x || y', '2026-01-01', 'a''b') AND `limit 5` > 3 -- & contains(x)"
    assert parse_filter(text) is not None
    with pytest.raises(UsageError) as caught:
        parse_filter("abs(amount) > 3 AND country = 'x & y' AND `a|b` = 1 /* {x} */")
    assert "The function 'abs' is not supported. Supported are" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("amount > 3 amount", " at 'amount'. "),
        ("amount > 3 'some text'", " at 'some text'. "),
        ("id id 'some text' id", " at 'id'. "),
        ("id = 1 '_hzz' id", None),
        ("a > now() - INTERVAL '_hzz' DAY", "is not supported"),
        ("_h31 _h31", " at '"),
    ],
)
def test_filter_error_names_where_the_parser_stopped(text: str, place: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse_filter(text)
    assert place is None or place in str(caught.value)
    assert "'some text'" not in text or "_h73" not in str(caught.value)


def test_coalesce_of_boolean_columns_is_a_condition() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"flag": pa.array([True, False, None]), "other": pa.array([None, True, True])},
    )
    cases = {
        "coalesce(flag, other)": [True, False, True],
        "coalesce(flag, FALSE)": [True, False, False],
        "NOT coalesce(flag, FALSE)": [False, True, True],
        "coalesce(flag, FALSE) AND other": [False, False, False],
        "flag OR coalesce(other, FALSE)": [True, True, True],
    }
    for text, expected in cases.items():
        matches = mask(bind(parse_filter(text), rows.schema), rows)
        assert [bool(value) for value in matches.to_pylist()] == expected, text


# Fragments of filters, which are joined in random order.
FRAGMENTS = r"""
amount country day WHERE SELECT AND OR NOT IN LIKE BETWEEN IS NULL None ( ) [ ] , = < > <= => && | || ~ & : @ $ { } ? ;
. .. 'it' 's '' ' " ` `x` X'0' r'a' 1 1.5 1,000 2026-01-01 01.02.2026 contains( endswith( .str. .lower() col( max( CASE
WHEN THEN END now() INTERVAL '7' '_h' '_hzz' _h31 DAY -- /* */ LIMIT 5
"""
ODD = ["\u2018", "\u2019", "\x00", "\ud83d", "\n"]


@meets(refused=20, advised=10)
@given(st.lists(st.sampled_from([*FRAGMENTS.split(), *ODD]), max_size=8).map(" ".join))
def test_random_filter_is_parsed_or_refused_in_one_sentence(text: str) -> None:
    message = ""
    try:
        bind(parse_filter(text), SCHEMA)
    except UsageError as error:
        message = str(error)
    met("refused", message)
    met("advised", "Write " in message)
    assert "\n" not in message
    assert re.search(r"SQL syntax|sqlglot", message) is None
