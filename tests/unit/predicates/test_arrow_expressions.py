"""Converted pyarrow expressions keep every row that Arrow's own filter keeps."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import arrow_expressions
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.arrow_expressions import columns_of, to_tree, weaker_predicate
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Expression

a, b, f, s, d, c, x = (pc.field(name) for name in ("a", "b", "f", "s", "d", "c", "x"))
nested = pc.field("st", "x", "y")
c_type = pa.time64("us")

ROWS = pa.table(
    {
        "a": pa.array([0, 1, 2, 3, None, 2**40, -1, 3], pa.int64()),
        "b": pa.array([1, 1, None, 2, 3, 0, -5, 3], pa.int64()),
        "f": [True, False, None, True, False, None, True, False],
        "s": ["a", "a%", "xa_b", "a.b", None, "", "A%B", "axb"],
        "d": [datetime.date(2023 + i % 2, 1 + i, 28) if i != 4 else None for i in range(8)],
        "c": pa.array([0, 1, 2, 28_800_000_000, None, 43_200_000_000, 86_399_999_999, 3], pa.time64("us")),
        "x": [0.0, -0.0, 1.5, float("nan"), None, float("inf"), -1.0, 2.0],
        "st": [{"x": {"y": i}} if i % 4 else None for i in range(8)],
    }
)
TRUE, NULL = pc.scalar(True), pc.scalar(pa.scalar(None, pa.int64()))


def is_in(column: pc.Expression, values: list[Any], skip_nulls: bool = False) -> pc.Expression:
    return pc.is_in(column, value_set=pa.array(values, pa.int64()), skip_nulls=skip_nulls)


SUPPORTED = {
    "eq": (a == 1, "a = 1"),
    "ne": (a != 1, "a <> 1"),
    "lt": (a < 1, "a < 1"),
    "le": (a <= 1, "a <= 1"),
    "gt": (a > 1, "a > 1"),
    "ge": (a >= 1, "a >= 1"),
    "columns": (a < b, "a < b"),
    "constant first": (pc.less(pc.scalar(1), a), "a > 1"),
    "constants": (pc.less(pc.scalar(1), pc.scalar(2)), "1 < 2"),
    "and": ((a > 0) & (b < 3), "a > 0 AND b < 3"),
    "or": ((a > 2) | (b < 1), "a > 2 OR b < 1"),
    "not": (~(a > 1), "NOT (a > 1)"),
    "in": (is_in(a, [1, 3]), "a IN (1, 3)"),
    "not in": (~is_in(a, [1, 3]), "NOT (a IN (1, 3) AND a IS NOT NULL)"),
    "in with null": (is_in(a, [1, None]), "a IN (1) OR a IS NULL"),
    "not in with null": (~is_in(a, [1, None]), "NOT ((a IN (1) AND a IS NOT NULL) OR a IS NULL)"),
    "in null": (is_in(a, [None]), "FALSE OR a IS NULL"),
    "in nothing": (is_in(a, []), "FALSE"),
    "not in nothing": (~is_in(a, []), "NOT (FALSE AND a IS NOT NULL)"),
    "not in, below and": (~(is_in(a, [1]) & (b > 0)), "NOT (a IN (1) AND a IS NOT NULL AND b > 0)"),
    "in as DuckDB writes it": (
        pc.if_else(a.is_valid(), is_in(a, [1, 3]), pc.scalar(pa.scalar(None, pa.bool_()))), "a IN (1, 3)"
    ),
    "null": (a.is_null(), "a IS NULL"),
    "valid": (a.is_valid(), "a IS NOT NULL"),
    "boolean": (f, "f = TRUE"),
    "true": (TRUE, "TRUE"),
    "field": (nested > 2, "st.x.y > 2"),
    "starts": (pc.starts_with(s, "a%"), "startswith(s, 'a%')"),
    "ends": (pc.ends_with(s, "_b"), r"s LIKE r'%\_b'"),
    "contains": (pc.match_substring(s, "a.b"), "s LIKE '%a.b%'"),
    "date": (d >= datetime.date(2024, 2, 28), "d >= DATE '2024-02-28'"),
    "time": (c >= datetime.time(8), "c >= TIME '08:00:00'"),
    "times": (pc.is_in(c, value_set=pa.array([2, None], c_type)), "c IN (TIME '00:00:00.000002') OR c IS NULL"),
    "lower": (pc.utf8_lower(s) == "a", "lower(s) = 'a'"),
    "year": (pc.year(d) == 2024, "year(d) = 2024"),
    "cast": (b.cast(pa.int32()) == 3, "int(b) = 3"),
    "floating": (~(x > 1.0), "NOT (x > 1.0E0)"),
}  # fmt: skip

UNSUPPORTED = {
    "position": (pc.field(0) > 1, "A column position or an unknown node"),
    "nan is null": (pc.is_null(x, nan_is_null=True), "A test for null or NaN"),
    "skipped nulls": (is_in(a, [1, None], skip_nulls=True), "A list with its own rules for nulls"),
    "without case": (pc.match_substring(s, "a", ignore_case=True), "The function 'match_substring' that ignores case"),
    "prefix without case": (pc.starts_with(s, "a", ignore_case=True), "The function 'starts_with' that ignores case"),
    "regex": (pc.match_substring_regex(s, "a."), "The function 'match_substring_regex'"),
    "function": (pc.sin(x) > 0, "The function 'sin'"),
    "another cast": (a.cast(pa.uint8()) > 1, "The function 'cast'"),
    "choice": (pc.if_else(f, a > 1, b > 1), "The function 'if_else'"),
    "choice of another column": (
        pc.if_else(b.is_valid(), is_in(a, [1]), pc.scalar(pa.scalar(None, pa.bool_()))), "The function 'if_else'"
    ),
    "choice of false": (pc.if_else(a.is_valid(), is_in(a, [1]), pc.scalar(False)), "The function 'if_else'"),
    "choice of null first": (
        pc.if_else(a.is_null(), is_in(a, [1]), pc.scalar(pa.scalar(None, pa.bool_()))), "The function 'if_else'"
    ),
    "number": (pc.scalar(1), "A condition"),
    # Python's time has no nanoseconds: converted, this would be 00:00:00.000001.
    "time in nanoseconds": (c < pa.scalar(1500, pa.time64("ns")), "The constant <pyarrow.Time64Scalar"),
    "times in nanoseconds": (
        ~pc.is_in(c, value_set=pa.array([1500], pa.time64("ns"))), "The constant <pyarrow.Time64Scalar"
    ),
    "duration": (d == pc.scalar(datetime.timedelta(1)), "The constant"),
    "NaN": (x == float("nan"), "NaN in a comparison"),
    "NaN in a list": (pc.is_in(x, value_set=pa.array([1.0, float("nan")])), "NaN in a list"),
}  # fmt: skip


def rows_of(tree: Expression) -> list[int]:
    (batch,) = ROWS.combine_chunks().to_batches()
    return [row for row, matches in enumerate(mask(bind(tree, batch.schema), batch).to_pylist()) if matches]


def rows_of_arrow(condition: pc.Expression) -> list[int]:
    numbered = ROWS.append_column("#", pa.array(range(len(ROWS))))
    return numbered.filter(condition)["#"].to_pylist()


@pytest.mark.parametrize("name", SUPPORTED)
def test_converted_condition_matches_the_same_rows_as_in_arrow(name: str) -> None:
    condition, text = SUPPORTED[name]
    tree = to_tree(condition)
    assert str(tree) == text
    assert str(parse_filter(condition)) == text
    matching = rows_of_arrow(condition)
    if name != "floating":  # in Arrow, NaN is not greater than numbers
        assert rows_of(tree) == matching
    weaker = weaker_predicate(condition, ROWS.schema)
    assert weaker is None or set(matching) <= set(rows_of(weaker))


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_arrow_condition_is_named_and_left_to_arrow(name: str) -> None:
    condition, message = UNSUPPORTED[name]
    with pytest.raises(UsageError, match=f"^{message}.* is not supported in an expression of another library"):
        parse_filter(condition)
    assert weaker_predicate(condition, ROWS.schema) is None
    if name != "position":
        assert str(weaker_predicate(condition & (b < 3), ROWS.schema)) == "b < 3"


def test_list_of_nulls_from_duckdb_is_not_converted() -> None:
    condition = ~pc.if_else(a.is_valid(), is_in(a, [None]), pc.scalar(pa.scalar(None, pa.bool_())))
    assert str(to_tree(condition)) == "NOT (FALSE)"
    assert rows_of_arrow(condition) == [0, 1, 2, 3, 5, 6, 7]


def test_negation_is_pushed_for_integers_but_not_floats() -> None:
    assert str(weaker_predicate(~(a > 1), ROWS.schema)) == "a <= 1"
    assert weaker_predicate(~(x > 1.0), ROWS.schema) is None
    assert weaker_predicate(~(pc.field("missing") > 1.0), ROWS.schema) is None
    assert weaker_predicate(~is_in(x, [1]), ROWS.schema) is None


def test_columns_of_nested_expressions_are_found() -> None:
    assert columns_of([]) == set()
    assert columns_of([a > 1, pc.if_else(f, nested, b) == 2]) == {"a", "f", "st", "b"}
    assert columns_of([pc.field("ä\U0001f600") == "ü", pc.scalar(1)]) == {"ä\U0001f600"}
    assert columns_of([a > 1, pc.field(0) > 1]) is None


def test_expression_with_an_unknown_part_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    later = [("call", "greater"), ("placeholder", "a"), ("field_ref", "b"), ("end", "greater")]
    monkeypatch.setattr(arrow_expressions, "_entries", lambda schema: iter(later))
    assert columns_of([a > b]) is None
    assert weaker_predicate(a > b, ROWS.schema) is None
