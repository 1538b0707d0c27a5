from __future__ import annotations

import math
import operator
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.lists import prepared
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import Literal, Not, col, columns
from delta_sharing_client.predicates.value_kinds import KINDS, kind_of
from delta_sharing_client.predicates.values import Day, Moment, Zone, order
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.predicates.strategies import (
    COMPARABLE,
    PATHS,
    SCHEMA,
    column_bounds,
    comparisons,
    may_match,
    predicates,
    rows,
    values,
)

ZONES = {"instant": Zone.UTC, "wall": Zone.LOCAL}


class Known:
    """Statistics from a dict of bounds."""

    def __init__(self, bounds: dict[tuple[str, ...], ColumnBounds]) -> None:
        self.bounds = bounds.get


def lookup(row: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        row = None if row is None else row[name]
    return row


def plain(value: Any) -> Any:
    return value.days if isinstance(value, Day) else value.nanoseconds if isinstance(value, Moment) else value


@st.composite
def bounds_of(draw: Any, path: tuple[str, ...], column: list[Any]) -> ColumnBounds | None:
    """Draw bounds that a writer may state for these values: exact, wide, truncated, partial or none."""
    data_type = PATHS[path]
    present = [value for value in column if value is not None]
    nulls = len(column) - len(present)
    null_count = draw(st.sampled_from([nulls, None]))
    row_count = draw(st.sampled_from([len(column), None]))
    if path not in COMPARABLE:
        return draw(st.none() | st.just(column_bounds(None, None, null_count, row_count)))
    lower = upper = without_nan = None
    if pa.types.is_floating(data_type):
        present = [value for value in present if not math.isnan(value)]
    # Bounds that include deleted rows are wider.
    ghosts = draw(st.lists(values(data_type), max_size=2))
    if present:
        ordered = [value for value in present + ghosts if not (isinstance(value, float) and math.isnan(value))]
        lower = upper = ordered[0]
        for value in ordered:
            lower = value if order(value, lower) < 0 else lower
            upper = value if order(value, upper) > 0 else upper
        lower, upper = plain(lower), plain(upper)
        if isinstance(lower, str) and draw(st.booleans()):
            lower, upper = lower[:1], upper[:1] + "\U0010ffff"
        if pa.types.is_float32(data_type) and draw(st.booleans()):
            # as in JSON, where the shortest form of this float is written
            lower, upper = float(str(np.float32(lower))), float(str(np.float32(upper)))
        if pa.types.is_floating(data_type):
            without_nan = draw(st.sampled_from([upper, None]))
        lower, upper = draw(st.sampled_from([(lower, upper), (lower, None), (None, upper), (None, None)]))
    elif pa.types.is_floating(data_type) and len(column) > nulls:
        lower = upper = draw(st.sampled_from([None, math.nan]))
    return draw(st.sampled_from([column_bounds(lower, upper, null_count, row_count, without_nan), None]))


@meets(matching=15, skipped=5)
@settings(max_examples=examples(250))
@given(st.data())
def test_file_with_a_matching_row_is_never_skipped(data):
    expression = data.draw(predicates())
    found = data.draw(rows(max_rows=4))
    bound = bind(expression, SCHEMA)
    statistics = Known(
        {path: data.draw(bounds_of(path, [lookup(row, path) for row in found])) for path in sorted(columns(bound))}
    )
    for one, compiled in ((expression, bound), (Not(expression), Not(bound))):
        matches = any(evaluate(one, row) is True for row in found)
        kept = may_match(compiled, statistics)
        met("matching", matches)
        met("skipped", not kept)
        assert kept or not matches
        assert may_match(prepared(compiled), statistics) is kept


@meets(matching=12, skipped=2)
@settings(max_examples=examples(250))
@given(st.data())
def test_comparison_never_skips_a_matching_file(data):
    path = data.draw(st.sampled_from(sorted(COMPARABLE)))
    schema = pa.schema({"x": COMPARABLE[path]})
    expression = data.draw(comparisons(COMPARABLE[path], col("x")._operand))
    found = data.draw(st.lists(values(COMPARABLE[path]) | st.none(), min_size=1, max_size=3))
    bounds = data.draw(bounds_of(path, found))
    matches = any(evaluate(expression, {"x": value}) is True for value in found)
    kept = may_match(bind(expression, schema), Known({("x",): bounds}))
    met("matching", matches)
    met("skipped", not kept)
    assert kept or not matches


ONE = pa.schema({name: SCHEMA.field(name).type for name in ("i64", "f64", "f32", "text", "day", "instant", "wide")})
FULL = {
    ("i64",): column_bounds(5, 10, 0, 100),
    ("f64",): column_bounds(1.0, 3.0, 0, 100, 3.0),
    ("f32",): column_bounds(0.1, 0.1, 0, 100, 0.1),
    ("text",): column_bounds("abc", "abq", 3, 100),
    ("day",): column_bounds(19723, 19753, None, None),
    ("instant",): column_bounds(1_704_067_200_000_000_000, 1_704_067_200_000_999_999, 0, 100),
    ("wide",): column_bounds(Decimal("1.5"), Decimal("1.5"), 0, 100),
}


@pytest.mark.parametrize(
    "text",
    [
        "i64 > 10",
        "i64 >= 10.5",
        "i64 < 5",
        "i64 <= 4",
        "i64 = 11",
        "i64 IS NULL",
        "i64 <=> NULL",
        "i64 IN (1, 2, 11)",
        "i64 BETWEEN 11 AND 20",
        "NOT (i64 >= 5)",
        "NOT (i64 <= 10 OR i64 = 50)",
        "i64 > 7 AND i64 > 10",
        "i64 > 10 OR i64 < 5",
        "i64 = 300000000000000000000",
        "i64 NOT IN (6, NULL)",
        "f64 < 1",
        "f64 <= 0.5",
        "f64 = 4",
        "f64 IN (0.5, 4)",
        "f32 < 0.09E0",
        "f32 = 0.2E0",
        "text < 'abc'",
        "text > 'abz'",
        "text = 'abr'",
        "text LIKE 'b%'",
        "text LIKE 'abr_%'",
        "startswith(text, 'aa')",
        "day > DATE '2024-01-31'",
        "day < '2024-01-01'",
        "instant > TIMESTAMP '2024-01-01 00:00:00.001Z'",
        "instant < '2024-01-01'",
        "wide <> 1.5",
        "wide NOT IN (1.5, 2)",
        "wide > i64",
        "FALSE",
        "NULL",
        "i64 = NULL",
    ],
)
def test_file_out_of_range_is_skipped(text):
    assert not may_match(bind(parse_filter(text), ONE), Known(FULL))


@pytest.mark.parametrize(
    "text",
    [
        "i64 > 9",
        "i64 <> 5",
        "i64 IS NOT NULL",
        "text IS NULL",
        "i64 IN (1, 7)",
        "i64 NOT IN (5, 10)",
        "f64 > 100",
        "f64 >= 100",
        "f64 <> 1",
        "f64 = CAST('NaN' AS DOUBLE)",
        "NOT (f64 <= 100)",
        "f32 > 0.1E0",
        "text LIKE '%x'",
        "text NOT LIKE 'ab%'",
        "text LIKE 'abc%'",
        "day <=> DATE '2024-01-31'",
        "NOT (i64 <=> 5)",
        "wide < i64",
        "f64 > i64",
        "TRUE",
        "NOT (text <=> 'x')",
    ],
)
def test_file_in_range_is_kept(text):
    assert may_match(bind(parse_filter(text), ONE), Known(FULL))


@pytest.mark.parametrize(
    ("text", "lower", "upper", "kept"),
    [
        # The float's text 0.7, read as a double, is larger than the float.
        ("f32 = 0.7F", 0.7, 0.7, True),
        ("f32 <= 0.7F", 0.7, 0.7, True),
        ("f32 = 0.5F", 0.7, 0.7, False),
        ("(i32 + 1) <=> 5", 4, 4, True),
        ("(i32 + 1) <=> 5", 5, 9, False),
        ("int(f64) = 5", 6.5, 7.5, True),
        ("CAST(i32 + 1 AS BIGINT) = 5", 6, 7, True),
        ("CAST(i32 AS BIGINT) + 0 = 5", 6, 7, False),
    ],
)
def test_file_is_kept_if_a_call_may_match(text, lower, upper, kept):
    bound = bind(parse_filter(text), SCHEMA)
    statistics = Known({path: column_bounds(lower, upper, 0, 10) for path in columns(bound)})
    assert may_match(bound, statistics) is kept


@pytest.mark.parametrize(("tz", "zone"), [("UTC", Zone.UTC), (None, Zone.LOCAL)])
def test_timestamp_bounds_have_the_columns_time_zone_kind(tz, zone):
    assert KINDS[kind_of(pa.timestamp("us", tz))].value(5) == Moment(5, zone)


def test_files_with_only_nulls_match_only_null_tests():
    schema = pa.schema({"a": pa.int64()})
    statistics = Known({("a",): column_bounds(None, None, 7, 7)})
    for text, kept in (
        ("a = 1", False),
        ("a <> 1", False),
        ("a IS NOT NULL", False),
        ("a IN (1)", False),
        ("NOT (a = 1)", False),
        ("a IS NULL", True),
        ("a <=> NULL", True),
        ("NOT (a <=> 1)", True),
    ):
        assert may_match(bind(parse_filter(text), schema), statistics) is kept


def test_column_without_statistics_skips_no_file():
    bound = bind(parse_filter("i64 > 10 AND text = 'x'"), ONE)
    assert may_match(bound, Known({}))
    assert not may_match(bound, Known({("i64",): column_bounds(1, 2)}))


def test_bounds_of_a_wrong_type_skip_no_file():
    assert may_match(bind(parse_filter("i64 > 10"), ONE), Known({("i64",): column_bounds("1", "2", 0, 5)}))


def test_bounds_of_dictionary_encoded_floats_are_floats():
    bound = bind(parse_filter("f <= 0.7F"), pa.schema({"f": pa.dictionary(pa.int8(), pa.float32())}))
    assert may_match(bound, Known({("f",): column_bounds(0.7, 0.7, 0, 10)}))


def test_not_like_skips_files_with_a_single_value():
    bound = bind(parse_filter("text NOT LIKE 'a%'"), ONE)
    assert not may_match(bound, Known({("text",): column_bounds("abc", "abc", 0, 5)}))
    assert may_match(bound, Known({("text",): column_bounds("bc", "bc", 0, 5)}))


def test_compiled_skipping_test_is_reusable():
    test = compile_skipping(bind(parse_filter("i64 > 10"), ONE))
    assert [test(Known({("i64",): column_bounds(0, top, 0, 1)})) for top in (9, 10, 11)] == [False, False, True]
    assert may_match(Literal(True), Known({}))


def test_comparisons_that_bounds_cannot_decide_keep_every_file():
    for text in ("f64 = f32 AND text <=> text", "f64 = f32 OR i64 > 10", "f64 = f32 AND f32 < f64 AND i64 > 5"):
        assert may_match(bind(parse_filter(text), ONE), Known(FULL))


# === All small cases ===

_OPS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ENDS = [(None, None), (None, 2), (1, None), *((low, high) for low in range(4) for high in range(low, 4))]


def _range(ends: tuple[int | None, int | None]) -> range:
    """Return the values between two bounds; a missing bound allows four more values."""
    low, high = ends
    return range(-4 if low is None else low, (8 if high is None else high) + 1)


@pytest.mark.parametrize("ends", _ENDS, ids=str)
@pytest.mark.parametrize("column", ["i64", "small", "day"])
def test_file_is_kept_if_a_value_between_its_bounds_matches(column, ends):
    """Only whole numbers are enumerated, also for decimals and dates; values in between do not change the results."""
    wrap = (lambda value: None if value is None else Decimal(value)) if column == "small" else (lambda value: value)
    statistics = Known({(column,): column_bounds(*map(wrap, ends), 0, 9)})
    written = (lambda value: str(Day(value))) if column == "day" else str

    def kept(condition):
        return may_match(bind(parse_filter(condition), SCHEMA), statistics)

    for limit in range(-1, 6):
        constant = f"DATE '{written(limit)}'" if column == "day" else str(limit)
        for text, compare in _OPS.items():
            matches = any(compare(value, limit) for value in _range(ends))
            misses = any(not compare(value, limit) for value in _range(ends))
            assert kept(f"{column} {text} {constant}") is matches, (text, limit)
            assert kept(f"NOT ({column} {text} {constant})") is misses, (text, limit)
        listed = f"{column} IN ({constant}, {constant})"
        assert kept(listed) is (limit in _range(ends))
        assert kept(f"NOT ({listed})") is any(value != limit for value in _range(ends))
        assert kept(f"{column} <=> {constant}") is (limit in _range(ends))


@pytest.mark.parametrize("left", _ENDS, ids=str)
@pytest.mark.parametrize("right", _ENDS, ids=str)
def test_file_is_kept_if_a_pair_between_the_bounds_matches(left, right):
    for other, wrap in (("i32", int), ("small", Decimal)):
        ends = [None if end is None else wrap(end) for end in right]
        statistics = Known({("i64",): column_bounds(*left, 0, 9), (other,): column_bounds(*ends, 0, 9)})
        for text, compare in _OPS.items():
            matches = any(compare(a, b) for a in _range(left) for b in _range(right))
            kept = may_match(bind(parse_filter(f"i64 {text} {other}"), SCHEMA), statistics)
            assert kept is matches, (text, other)
            flipped = any(compare(b, a) for a in _range(left) for b in _range(right))
            assert may_match(bind(parse_filter(f"{other} {text} i64"), SCHEMA), statistics) is flipped, (text, other)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("f64 = 1.0", True), ("f64 = 3.0", True), ("f64 <=> 3.5", False), ("f64 = 0.5", False), ("f64 = 3.5", False),
        ("f64 < 1.0", False), ("f64 < 1.5", True), ("f64 <= 1.0", True), ("f64 <= 0.5", False),
        ("f64 > 99.0", True), ("f64 >= 99.0", True), ("f64 <> 1.0", True), ("f64 IN (0.5, 3.5)", False),
        ("f64 IN (0.5, 3.0)", True), ("f64 NOT IN (1.0, 3.0)", True),
        ("f32 = float('0.1')", True), ("f32 < float('0.1')", True),
        ("f32 <= float('0.09')", False),
    ],
)  # fmt: skip
def test_float_file_is_kept_if_a_number_or_nan_may_match(condition, kept):
    assert may_match(bind(parse_filter(condition), ONE), Known(FULL)) is kept


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        # The largest number is 3.0, and there may also be a NaN.
        ("f64 IN (0.5, 3.5)", False), ("f64 IN (0.5, 2.0)", True), ("f64 IN (0.5, CAST('NaN' AS DOUBLE))", True),
        ("text IN ('abb', 'abr')", False), ("text IN ('abb', 'abd')", True),
    ],
)  # fmt: skip
def test_file_is_kept_if_a_value_of_a_list_may_match(condition, kept):
    statistics = Known({**FULL, ("f64",): column_bounds(1.0, None, 0, 100, 3.0)})
    assert may_match(bind(parse_filter(condition), ONE), statistics) is kept


def test_call_is_evaluated_for_columns_with_a_single_value():
    def kept(condition, **bounds):
        return may_match(bind(parse_filter(condition), SCHEMA), Known({(name,): bounds[name] for name in bounds}))

    constant, nulls, two = (
        column_bounds("Ab", "Ab", 0, 4),
        column_bounds(None, None, 4, 4),
        column_bounds("Ab", "b", 0, 4),
    )
    assert not kept("lower(text) = 'x'", text=constant)
    assert kept("lower(text) = 'ab'", text=constant)
    assert kept("coalesce(text, 'x') = 'x'", text=nulls)
    assert kept("lower(text) = 'x'", text=two)
    nested = Known({("Nest", "Deep", "t"): constant})
    for text in ("x", "ab"):
        condition = bind(parse_filter(f"lower(Nest.Deep.t) = '{text}'"), SCHEMA)
        assert may_match(condition, nested) is (text == "ab")
    few = column_bounds(Decimal("0.25"), Decimal("1.25"), 0, 4)
    assert kept("small * 2 > 2.4", small=few)
    assert not kept("small * 2 > 2.5", small=few)
    assert not kept("f64 = 0.100000001", f64=column_bounds(0.0, 0.1, 0, 4))
    narrow = column_bounds(0.0, None, 0, 4)
    assert kept("f64 = 5.5", f64=narrow)
    assert not kept("f64 = 5.5", f64=narrow._replace(upper=3.0))
    assert not kept("f64 = 5.5", f64=narrow._replace(upper_without_nan=3.0))
    assert kept("lower(text) = 'x'", text=column_bounds(None, None, 0, 4))
    assert kept("lower(text) = 'x'", text=column_bounds("Ab", "Ab", None, 4))
    assert kept("i64 % 2 = 1", i64=column_bounds(0, 5, 0, 4))
    assert kept("lower(text) = 'x'", text=column_bounds("Ab", "Ab", 1, 4))
    assert not kept("lower(text) = 'ab'", text=nulls)
    assert kept("lower(text) IS NULL", text=nulls)
    assert kept("date(day) IS NULL", day=nulls)
    assert not kept("month(day) = 2", day=nulls)
    assert not kept("lower(text) IS NOT NULL", text=nulls)
    assert not kept("NOT (lower(text) = 'ab')", text=constant)
    # The call fails for the only value, so the file is kept and the read fails too.
    assert kept("1 / i64 > 0", i64=column_bounds(0, 0, 0, 4))
    day = column_bounds(19_722, 19_722, 0, 4)
    assert [kept(f"year(day) = {year}", day=day) for year in (2022, 2023, 2024)] == [False, True, False]
    last = 19_723 * 86_400_000_000_000 - 1
    instant = column_bounds(last, last, 0, 4)
    for column in ("instant", "wall"):
        assert [kept(f"year({column}) = {year}", **{column: instant}) for year in (2023, 2024)] == [True, False]


@pytest.mark.parametrize("moment", ["instant", "wall"])
def test_bounds_of_a_date_and_a_timestamp_are_not_compared(moment):
    # A second in nanoseconds is more than any number of days.
    statistics = Known({("day",): column_bounds(19_723, 19_723, 0, 1), (moment,): column_bounds(10**9, 10**9, 0, 1)})
    for condition in ("day > {0}", "day >= {0}", "day <> {0}", "{0} < day", "{0} <= day"):
        expression = bind(parse_filter(condition.format(moment)), SCHEMA)
        assert evaluate(expression, {"day": Day(19_723), moment: Moment(10**9, ZONES[moment])}) is True
        assert may_match(expression, statistics)


@pytest.mark.parametrize(
    ("left", "right"), [("f32", "f64"), ("i32", "f64"), ("f64", "wide"), ("text", "text"), ("i32", "wide")]
)
def test_columns_of_different_types_are_compared_by_bounds(left, right):
    low, high = ("a", "b") if left == "text" else (1, 2)
    statistics = Known({(left,): column_bounds(high, high, 0, 1), (right,): column_bounds(low, low, 0, 1)})
    kept = "f64" in (left, right) or left == right
    expression = bind(parse_filter(f"{left} < {right}"), SCHEMA)
    if left == right:
        assert not may_match(expression, statistics)
    else:
        assert may_match(expression, statistics) == kept


# === All bounds of a few integers, compared with all values between them ===

FEW = [None, 0, 1, 2, 3]
SPANS = [(low, high) for low in FEW for high in FEW if low is None or high is None or low <= high]


def within(span: tuple[int | None, int | None]) -> range:
    low, high = span
    return range(-2 if low is None else low, 6 if high is None else high + 1)


@pytest.mark.parametrize("values", [[1], [0, 3], [2, 1], [-1, 5], [0, None]])
def test_file_is_kept_if_a_list_value_is_between_its_bounds(values: list[Any]) -> None:
    schema = pa.schema({"a": pa.int8()})
    inside, outside = bind(col("a").is_in(values), schema), bind(Not(col("a").is_in(values)), schema)
    for span in SPANS:
        statistics = Known({("a",): column_bounds(*span)})
        assert may_match(inside, statistics) is any(value in values for value in within(span)), span
        # A file with more than one value may have one that is not in the list.
        one = span[0] if span[0] == span[1] else None
        expected = None not in values and (one is None or one not in values)
        assert may_match(outside, statistics) is expected, span


@pytest.mark.parametrize(
    ("nulls", "rows", "may_be_null", "may_have_a_value"),
    [
        (None, None, True, True),
        (0, None, False, True),
        (1, None, True, True),
        (5, None, True, True),
        (0, 5, False, True),
        (4, 5, True, True),
        (5, 5, True, False),
        (None, 5, True, True),
        (0, 0, False, False),
    ],
)
def test_files_are_skipped_by_null_counts(
    nulls: int | None, rows: int | None, may_be_null: bool, may_have_a_value: bool
) -> None:
    schema = pa.schema({"a": pa.int8()})
    statistics = Known({("a",): column_bounds(None, None, nulls, rows)})
    for text in ("a IS NULL", "a <=> NULL"):
        assert may_match(bind(parse_filter(text), schema), statistics) is may_be_null, text
    for text in ("a = 1", "a <> 1", "a IN (1, 2)", "a IS NOT NULL"):
        assert may_match(bind(parse_filter(text), schema), statistics) is may_have_a_value, text


TEXTS = [None, "", "a", "aa", "ab", "abz", "b", "ba"]


@pytest.mark.parametrize("prefix", ["a", "ab", "b"])
def test_file_is_kept_if_a_string_in_its_bounds_has_the_prefix(prefix: str) -> None:
    schema = pa.schema({"a": pa.string()})
    expressions = [col("a").starts_with(prefix), parse_filter(f"a LIKE '{prefix}%'")]
    universe = sorted({"", "a", "aa", "aaz", "ab", "aba", "abz", "abzz", "b", "ba", "baz", "c", prefix, prefix + "m"})
    for low in TEXTS:
        for high in TEXTS:
            if low is not None and high is not None and low > high:
                continue
            between = [text for text in universe if (low is None or text >= low) and (high is None or text <= high)]
            statistics = Known({("a",): column_bounds(low, high)})
            for expression in expressions:
                bound = bind(expression, schema)
                assert may_match(bound, statistics) is any(evaluate(expression, {"a": text}) for text in between)
                is_one = low is not None and low == high
                expected = not (is_one and evaluate(expression, {"a": low}))
                assert may_match(bind(Not(expression), schema), statistics) is expected


UNKNOWN_ENDS = [(None, None), (None, 3), (0, None)]


@pytest.mark.parametrize(
    "text",
    [
        *(f"a {op} 1" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
        *("a IN (1, 2)", "a NOT IN (1, 2)", "NOT a <=> 1", "a + 1 > 1", "a * 2 = 2", "CAST(a AS BIGINT) < 7"),
        *("a + c > 3", "a + c < 3", "a - c > 1", "a - c < 1", "a * c = 2", "-a > 1"),
        *("a % 2 = 1", "a / 2 > 3", "a % 2 + 1 > 1", "-(a % 2) > 1"),
        *(f"a {op} c" for op in ("=", "<>", "<", "<=", ">", ">=")),
        *(f"f {op} 1.5" for op in ("=", "<", "<=")),
        *("f IN (1.5, 2.5)", "s LIKE 'a%'", "s NOT LIKE 'a%'", "s LIKE '%b'", "s >= 'b'", "year(d) = 2024"),
    ],
)
def test_condition_without_bounds_does_not_disable_the_others(text: str) -> None:
    kinds = {"a": pa.int8(), "b": pa.int8(), "c": pa.int8(), "d": pa.date32(), "f": pa.float32(), "s": pa.string()}
    schema = pa.schema(kinds)
    both, one = bind(parse_filter(f"({text}) AND b > 5"), schema), bind(parse_filter(text), schema)
    forms = {"f": float, "s": lambda end: "abcd"[end], "d": lambda end: 19_700 + end * 300}
    for span in UNKNOWN_ENDS:
        for other in UNKNOWN_ENDS:
            statistics = {
                (name,): column_bounds(*(None if end is None else forms.get(name, int)(end) for end in ends))
                for name, ends in (*((name, span) for name in "adfs"), ("c", other))
            }
            assert not may_match(both, Known({**statistics, ("b",): column_bounds(0, 5)}))
            assert may_match(both, Known({**statistics, ("b",): column_bounds(0, 6)})) is may_match(
                one, Known(statistics)
            )
    assert may_match(one, Known({}))
    assert not may_match(both, Known({("b",): column_bounds(0, 5)}))


@pytest.mark.parametrize(
    ("text", "lower", "upper", "expected"),
    [
        # A cast to an integer rounds towards zero.
        ("int(n) > 3", Decimal(0), Decimal("3.9"), False),
        ("int(n) >= 3", Decimal(0), Decimal("3.9"), True),
        ("int(n) < 1", Decimal("1.9"), Decimal(5), False),
        ("int(n) <= 1", Decimal("1.9"), Decimal(5), True),
        ("int(n) < 0", Decimal("-0.9"), Decimal(5), False),
        ("int(n) <= 0", Decimal("-0.9"), Decimal(5), True),
        # A bound that does not fit the type is not used.
        ("CAST(a AS TINYINT) > 5", 0, 300, True),
        ("CAST(a AS TINYINT) > 5", 0, 5, False),
        ("CAST(a AS TINYINT) < 5", 5, 300, False),
        ("CAST(a AS TINYINT) < 5", -300, 300, True),
        ("CAST(a AS TINYINT) < 5", None, 300, True),
        ("CAST(a AS TINYINT) > 5", 0, None, True),
        ("CAST(a AS DECIMAL(10, 2)) > 5", 0, 5, False),
        ("CAST(a AS DECIMAL(10, 2)) >= 5", 0, 5, True),
    ],
)
def test_casts_are_skipped_by_the_bounds_of_their_column(text: str, lower: Any, upper: Any, expected: bool) -> None:
    bound = bind(parse_filter(text), pa.schema({"n": pa.decimal128(5, 1), "a": pa.int32()}))
    statistics = column_bounds(lower, upper, 0, 5)
    assert may_match(bound, Known({("n",): statistics, ("a",): statistics})) is expected
