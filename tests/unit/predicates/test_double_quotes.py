"""Strings in double quotes, which most SQL dialects read as names: a filter never takes a name for a string."""

from __future__ import annotations

import datetime

import duckdb
import pyarrow as pa
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import bind, double_quoted
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Not, col, columns

SCHEMA = pa.schema(
    {
        "country": pa.string(),
        "amount": pa.int64(),
        "day": pa.date32(),
        "open": pa.bool_(),
        "a": pa.struct({"b": pa.string(), "c.d": pa.string()}),
        "e.f": pa.string(),
        "odd name": pa.string(),
        "UP": pa.string(),
        "up": pa.string(),
    }
)
NAMES = (
    *("country", "COUNTRY", "Country", "amount", "day", "open", "a", "a.b", "A.B", "a.c.d", "e.f", "E.F"),
    *("odd name", "UP", "Up", "`a`.`b`", " country "),
)
STRINGS = ("DE", "a.x", "b", "c.d", "countr", "a.b.c", ".", "a.", "", "`", "country.b")
# Each has a column on one side.
CONDITIONS = (
    "country = {}",
    "{} = country",
    "country <> {}",
    "country < {}",
    "{} <= country",
    "country <=> {}",
    "country IS DISTINCT FROM {}",
    "country IN ({})",
    "country IN ('x', {})",
    "country IN ('{text}', {})",
    "country NOT IN (NULL, {})",
    "country BETWEEN {} AND 'z'",
    "country BETWEEN 'a' AND {}",
    "country LIKE {}",
    "country ILIKE {}",
    "country NOT LIKE {}",
    "startswith(country, {})",
    "country = lower({})",
    "lower(country) = coalesce(NULL, {})",
    "coalesce(country, {}) = 'x'",
    "country = ({})",
    "country = CAST({} AS STRING)",
    "NOT (country = {})",
    "amount > 3 AND country = {}",
    "amount > 3 OR (open AND NOT country = {})",
    "a.b = {}",
)


def double(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("condition", CONDITIONS)
def test_name_in_double_quotes_beside_a_column_is_refused(condition: str) -> None:
    for name in NAMES:
        text = condition.format(double(name), text=name)
        parsed = parse_filter(text)
        assert parsed is not None
        with pytest.raises(UsageError, match="has the name of a column") as caught:
            bind(parsed, SCHEMA)
        assert f"'{name}'" in caught.value.message
        assert "backticks" in caught.value.message
        assert caught.value.span is not None
        start, stop = caught.value.span
        assert text[start:stop] == double(name)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_other_text_in_double_quotes_is_a_string(condition: str) -> None:
    for text in STRINGS:
        single = "'" + text + "'"
        try:
            expected = bind(parse_filter(condition.format(single, text="x")), SCHEMA)  # type: ignore[arg-type]
        except UsageError as error:  # an escape at the end of a pattern, for example
            with pytest.raises(UsageError, match=error.message[-20:]):
                bind(parse_filter(condition.format(double(text), text="x")), SCHEMA)  # type: ignore[arg-type]
            continue
        parsed = parse_filter(condition.format(double(text), text="x"))
        assert parsed is not None
        assert bind(parsed, SCHEMA) == expected
        assert parse_filter(str(parsed)) == parse_filter(condition.format(single, text="x"))
        assert double_quoted(parsed) == [text]
        assert columns(parsed) >= {("country",)} or columns(parsed) == {("a", "b")}


# Without any column, a filter would return no row, or all of them, whatever the rows are.
@pytest.mark.parametrize(
    "condition",
    [
        "{} = 'DE'",
        "'DE' = {}",
        "{} <> 'DE'",
        "{} > 3",
        "3 < {}",
        "{} <=> 'DE'",
        "{} IS NOT DISTINCT FROM 'DE'",
        "{} IN ('DE')",
        "{} NOT IN ('DE')",
        "{} BETWEEN 'A' AND 'F'",
        "'DE' BETWEEN {} AND 'F'",
        "'DE' BETWEEN 'A' AND {}",
        "{} LIKE 'D%'",
        "{} ILIKE 'D%'",
        "'DE' LIKE {}",
        "startswith({}, 'D')",
        "{} IS NULL",
        "{} IS NOT NULL",
        "isnull({})",
        "{} IS TRUE",
        "{}",
        "NOT {}",
        "{} = TRUE",
        "lower({}) = 'de'",
        "upper({}) LIKE 'D%'",
        "length({}) = 2",
        "coalesce({}, 'x') = 'DE'",
        "{} + 1 = 2",
        "CAST({} AS INT) = 3",
        "{} = {}",
        "amount > 3 AND {} = 'DE'",
        "amount > 3 OR NOT ({} = 'DE')",
        "{}.b = 'x'",
        "a.{} = 'x'",
        "`a`.{} = 'x'",
        "{}.{} = 'x'",
    ],
)
@pytest.mark.parametrize("name", ["country", "COUNTRY", "a.b", "odd name", "county", "shop.orders.country"])
def test_text_in_double_quotes_without_a_column_is_refused(condition: str, name: str) -> None:
    with pytest.raises(UsageError, match="in backticks") as caught:
        bind(parse_filter(condition.replace("{}", double(name))), SCHEMA)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "value"),
    [("1 = 1", True), ("1 = 2", False), ("'a' = 'a'", True), ("'a' = 'b'", False), ("'x' BETWEEN 'a' AND 'z'", True)],
)
def test_constants_in_single_quotes_may_be_compared(condition: str, value: bool) -> None:
    parsed = parse_filter(condition)
    assert parsed is not None
    assert evaluate(bind(parsed, SCHEMA), {}) is value


def test_single_quotes_raw_strings_and_values_are_strings() -> None:
    for condition in (
        "country = 'amount'",
        'country = r"amount"',
        "country = '\"amount\"'",
        "country = '''amount'''",
        [("country", "=", "amount")],
        [("country", "in", ["amount", "country"])],
        col("country") == "amount",
    ):
        parsed = parse_filter(condition)
        assert parsed is not None
        assert double_quoted(parsed) == []
        bind(parsed, SCHEMA)
    with pytest.raises(UsageError, match="is not in the table"):
        bind(parse_filter([('"country"', "=", "DE")]), SCHEMA)  # type: ignore[arg-type]


def test_strings_of_combined_filters_are_all_checked() -> None:
    quoted, plain = parse_filter('country = "DE" OR amount = 1'), parse_filter("open")
    assert quoted is not None
    assert plain is not None
    both = quoted & plain & Not(quoted)
    assert double_quoted(both) == ["DE", "DE"]
    # The text of a combination keeps its meaning.
    assert bind(parse_filter(str(both)), SCHEMA) == bind(both, SCHEMA)  # type: ignore[arg-type]
    renamed = pa.schema([*SCHEMA, pa.field("de", pa.string())])
    with pytest.raises(UsageError, match="the name of a column, 'DE'"):
        bind(both, renamed)


def test_accepted_conditions_mean_the_same_in_duckdb() -> None:
    """A filter with text in double quotes is refused, either here or by DuckDB, or returns the same rows."""
    rows = [
        {"country": country, "amount": amount, "day": datetime.date(2026, 1, amount), "open": amount == 1}
        for country in ("DE", "country", "amount", "1", "", None)
        for amount in (1, 2)
    ]
    schema = pa.schema([SCHEMA.field(name) for name in ("country", "amount", "day", "open")])
    connection = duckdb.connect()
    connection.register("rows", pa.Table.from_pylist(rows, schema))
    for condition in CONDITIONS:
        for text in (*NAMES, *STRINGS):
            written = condition.format(double(text), text=text)
            try:
                theirs = connection.sql(f"SELECT country, amount FROM rows WHERE {written}").fetchall()
                ours = bind(parse_filter(written), schema)  # type: ignore[arg-type]
            except (duckdb.Error, UsageError):
                continue
            kept = [(row["country"], row["amount"]) for row in rows if evaluate(ours, row) is True]
            assert sorted(kept, key=str) == sorted(theirs, key=str), written
