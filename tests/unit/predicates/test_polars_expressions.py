"""Converted Polars expressions keep every row that Polars' own filter keeps."""

from __future__ import annotations

import datetime
import functools
import io
import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.polars_expressions import _tagged, to_tree, weaker_predicate, without_hints
from delta_sharing_client.predicates.tree import And, Expression, Literal, Not, Or

a, b, f, s, t, d, c, x, n = (pl.col(name) for name in ("a", "b", "f", "s", "t", "d", "c", "x", "n"))
inner = pl.col("st").struct.field("y")

NOON = 1_704_110_400_000_000_000
SCHEMA = pa.schema(
    [
        ("a", pa.int64()), ("b", pa.int64()), ("f", pa.bool_()), ("s", pa.large_string()), ("t", pa.large_string()),
        ("d", pa.date32()), ("c", pa.time64("ns")), ("x", pa.float64()), ("n", pa.timestamp("ns")),
        ("st", pa.struct([("x", pa.struct([("y", pa.int64())])), ("y", pa.bool_())])),
    ]
)  # fmt: skip
DAY = datetime.date(2024, 2, 28)

SUPPORTED = {
    "a == 1": "a = 1",
    "a != 1": "a <> 1",
    "a < 1": "a < 1",
    "a <= 1": "a <= 1",
    "a > 1": "a > 1",
    "a >= 1": "a >= 1",
    "a < b": "a < b",
    "pl.lit(1) < a": "a > 1",
    "pl.lit(1) >= a": "a <= 1",
    "(a > 0) & (b < 3)": "a > 0 AND b < 3",
    "(a > 2) | (b < 1)": "a > 2 OR b < 1",
    "~(a > 1)": "NOT (a > 1)",
    "~a.is_in([1, 3])": "a NOT IN (1, 3)",
    "a.is_in([1, 3])": "a IN (1, 3)",
    "a.is_in(pl.Series([1, 3]))": "a IN (1, 3)",
    "a.is_in(pl.Series([3]))": "a IN (3)",
    "a.is_in([])": "FALSE",
    "a.is_in([1], nulls_equal=True)": "a IN (1) AND a IS NOT NULL",
    "~a.is_in([1], nulls_equal=True)": "NOT (a IN (1) AND a IS NOT NULL)",
    "a.is_between(1, 3)": "a >= 1 AND a <= 3",
    "a.is_between(1, 3, closed='left')": "a >= 1 AND a < 3",
    "a.is_between(1, 3, closed='right')": "a > 1 AND a <= 3",
    "a.is_between(1, 3, closed='none')": "a > 1 AND a < 3",
    "a.is_null()": "a IS NULL",
    "a.is_not_null()": "a IS NOT NULL",
    "a.eq_missing(1)": "a <=> 1",
    "a.eq_missing(None)": "a <=> NULL",
    "a.ne_missing(None)": "NOT (a <=> NULL)",
    "a.ne_missing(1)": "NOT (a <=> 1)",
    "pl.lit(1).eq_missing(a)": "a <=> 1",
    "f": "f = TRUE",
    "inner": "st.y = TRUE",
    "pl.col('st').struct.field('x').struct.field('y') > 2": "st.x.y > 2",
    "pl.lit(True)": "TRUE",
    "f & pl.lit(None)": "f = TRUE AND NULL",
    "s.str.starts_with('a%')": "startswith(s, 'a%')",
    "s.str.ends_with('_b')": r"s LIKE r'%\_b'",
    "s.str.contains('a.b', literal=True)": "s LIKE '%a.b%'",
    "s.str.contains('%', literal=True)": r"s LIKE r'%\%%'",
    "d >= DAY": "d >= DATE '2024-02-28'",
    "c >= datetime.time(8)": "c >= TIME '08:00:00'",
    "c > pl.Series([1500]).cast(pl.Time)": "c > TIME '00:00:00.000001500'",
    "~c.is_in(pl.Series([1500, 3000]).cast(pl.Time))": ("c NOT IN (TIME '00:00:00.000001500', TIME '00:00:00.000003')"),
    "n < pl.Series([NOON + 500]).cast(pl.Datetime('ns'))": "n < TIMESTAMP '2024-01-01 12:00:00.000000500'",
    "n.is_in(pl.Series([NOON + 500, NOON + 700]).cast(pl.Datetime('ns')))": (
        "n IN (TIMESTAMP '2024-01-01 12:00:00.000000500', TIMESTAMP '2024-01-01 12:00:00.000000700')"
    ),
    "a + 1 - b > 2": "((a + 1) - b) > 2",
    "a * 2 == 2": "(a * 2) = 2",
    "a / 2 > 1": "(a / 2) > 1",
    "d.cast(pl.String) == '2024-02-28'": "string(d) = '2024-02-28'",
    "s.str.to_lowercase() == 'a'": "lower(s) = 'a'",
    "s.str.len_chars() > 2": "length(s) > 2",
    "d.dt.year() == 2024": "year(d) = 2024",
    "~(x > 1.0)": "NOT (x > 1.0E0)",
    "(a + 1).is_null()": "(a + 1) IS NULL",
    "(a + 1).is_not_null()": "(a + 1) IS NOT NULL",
    "(a + 1).is_in([2])": "(a + 1) IN (2)",
    "(a + 1).is_between(1, b)": "(a + 1) >= 1 AND (a + 1) <= b",
    "(a + 1).eq_missing(2)": "(a + 1) <=> 2",
    "s.str.to_lowercase().str.ends_with('b')": "lower(s) LIKE '%b'",
}

UNSUPPORTED = {
    "a == pl.lit(None)": "A comparison with null",
    "a.is_in([1, None])": "A list with nulls",
    "n.is_in(pl.Series([NOON]).cast(pl.Duration('ns')))": "The constant datetime.timedelta",
    "a.is_in(b)": "A value that is computed",
    "s.str.to_lowercase().struct.field('y')": "The function 'FieldByName'",
    "a == pl.Series([1] * 8)": "A series",
    "s.str.contains('a.b')": "A pattern",
    "s.str.starts_with(t)": "A pattern",
    "x < float('inf')": "A number that JSON cannot represent",
    "x == float('nan')": "A number that JSON cannot represent",
    "a // 2 == 1": "'BinaryExpr'",
    "(a > 1) ^ f": "The operator 'Xor'",
    "a.cast(pl.UInt64) > 1": "'Cast'",
    "a.cast(pl.Decimal(20, 2)) > 1": "'Cast'",
    "a.cast(pl.Int32, strict=False).is_null()": "'Cast'",
    "a.cast(pl.Int32, wrap_numerical=True) == 0": "'Cast'",
    "a.abs() > 1": "The function 'Abs'",
    "a.sin() > 0": "The function 'Sin'",
    "x.round(1) > 1": "The function '",
    "pl.col('st').struct.json_encode() == ''": "The function 'JsonEncode'",
    "pl.when(f).then(1).otherwise(2) == 1": "'Ternary'",
    "a + 1": "The operator 'Plus'",
    "a % 2 == 1": "'BinaryExpr'",
    "pl.lit('x')": "'Literal'",
}


def evaluated(text: str) -> pl.Expr:
    """Return an expression, which is built in the test: Polars' threads must not start earlier, because a fork loses
    them."""
    expression: pl.Expr = eval(text)
    return expression


@functools.cache
def rows() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "a": pl.Series([0, 1, 2, 3, None, 2**40, -1, 3], dtype=pl.Int64),
            "b": pl.Series([1, 1, None, 2, 3, 0, -5, 3], dtype=pl.Int64),
            "f": [True, False, None, True, False, None, True, False],
            "s": ["a", "a%", "xa_b", "a.b", None, "", "A%B", "axb"],
            "t": ["a", "b", None, "a", "", "a", "b", "a"],
            "d": [datetime.date(2023 + i % 2, 1 + i, 28) if i != 4 else None for i in range(8)],
            "c": pl.Series([0, 1000, 1500, 1501, None, 28_800_000_000_000, 86_399_999_999_999, 3000]).cast(pl.Time),
            "x": [0.0, -0.0, 1.5, float("nan"), None, float("inf"), -1.0, 2.0],
            "n": pl.Series([NOON + 200, NOON + 500, NOON + 700, NOON, None, NOON + 1000, 0, 1], dtype=pl.Int64).cast(
                pl.Datetime("ns")
            ),
            "st": [{"x": {"y": i}, "y": i % 3 == 0} if i % 4 else None for i in range(8)],
        }
    )


def rows_of(tree: Expression) -> list[bool]:
    batch = rows().to_arrow().combine_chunks().to_batches()[0]
    return [bool(matches) for matches in mask(bind(tree, batch.schema), batch).to_pylist()]


def rows_of_polars(condition: pl.Expr) -> list[bool]:
    kept = rows().with_row_index("#").filter(condition)["#"].to_list()
    return [number in kept for number in range(len(rows()))]


@pytest.mark.parametrize("name", SUPPORTED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_condition_matches_the_rows_of_polars(name: str) -> None:
    condition, text = evaluated(name), SUPPORTED[name]
    tree = to_tree(condition)
    assert str(tree) == text
    assert str(parse_filter(condition)) == text
    matching = rows_of_polars(condition)
    if name not in ("a / 2 > 1", "~(x > 1.0)"):  # NaN and the types of results differ between Polars and Spark
        assert rows_of(tree) == matching
    weaker = weaker_predicate(condition, SCHEMA)
    if weaker is not None:
        kept = rows_of(weaker)
        assert all(kept[row] for row, matches in enumerate(matching) if matches)


def test_negated_calls_and_floats_are_left_to_polars() -> None:
    assert weaker_predicate(a + 1 > 2, SCHEMA) is None
    assert weaker_predicate(~(x > 1.0), SCHEMA) is None
    assert str(weaker_predicate((a + 1 > 2) & (b < 3), SCHEMA)) == "b < 3"
    assert weaker_predicate((a + 1 > 2) | (b < 3), SCHEMA) is None
    assert str(weaker_predicate(~(a > 1), SCHEMA)) == "a <= 1"
    assert str(weaker_predicate(d.dt.year() == 2024, SCHEMA)) == "year(d) = 2024"
    assert weaker_predicate(a > "text", SCHEMA) is None


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_error_names_parts_that_are_left_to_polars(name: str) -> None:
    condition, message = evaluated(name), UNSUPPORTED[name]
    with pytest.raises(UsageError, match=message):
        parse_filter(condition)
    assert weaker_predicate(condition, SCHEMA) is None
    assert str(weaker_predicate(condition & (b < 3), SCHEMA)) == "b < 3"


def test_contains_of_lists_and_binaries_is_not_converted() -> None:
    for condition in (pl.col("l").list.contains("a"), pl.col("l").bin.contains(b"a")):
        with pytest.raises(UsageError, match="The function 'Contains"):
            parse_filter(condition)


@pytest.mark.parametrize(
    ("node", "expected"),
    [({"Column": "a"}, ("Column", "a")), ({"a": 1, "b": 2}, ("", None)), ("a", ("", None)), ([], ("", None))],
)
def test_only_objects_with_one_key_are_polars_nodes(node: Any, expected: Any) -> None:
    assert _tagged(node) == expected


def test_is_in_of_older_polars_is_converted() -> None:
    class Older:
        class meta:
            @staticmethod
            def serialize(format: str) -> str:  # noqa: A002 - the name in Polars
                text = json.loads(a.is_in([1]).meta.serialize(format="json"))
                text["Function"]["function"] = {"Boolean": "IsIn"}
                return json.dumps(text)

    older: Any = Older
    assert str(to_tree(older)) == "a IN (1)"


def _is_large(value: int) -> bool:
    return str(value) > "1"


@pytest.mark.filterwarnings("ignore::polars.exceptions.PolarsInefficientMapWarning")
def test_expression_without_json_is_left_to_polars() -> None:
    condition = a.map_elements(_is_large, pl.Boolean)
    assert weaker_predicate(condition, SCHEMA) is None
    with pytest.raises(UsageError, match=r"A value that JSON cannot represent|'AnonymousFunction'"):
        parse_filter(condition)
    assert isinstance(to_tree(pl.lit(None)), Literal)
    assert isinstance(to_tree(~((a > 1) & f)), Not)
    assert isinstance(to_tree((a > 1) & f), And)
    assert isinstance(to_tree((a > 1) | f), Or)


def hint() -> pl.Expr:
    """Return the node that Polars 1.39 to 1.43 adds to the condition of a top-N query."""
    node = {"Display": {"inputs": [{"Column": "b"}], "fmt_str": "dynamic_pred: 3c553708-191e-4150-a524-525212963f0e"}}
    return pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")


KNOWS_HINTS = tuple(map(int, pl.__version__.split(".")[:2])) >= (1, 39)


@pytest.mark.skipif(not KNOWS_HINTS, reason="this Polars has no such node")
def test_dynamic_predicates_are_removed() -> None:
    assert without_hints(hint()) is None
    assert without_hints(hint() & hint()) is None
    for condition in (hint() & (a > 1), (a > 1) & hint(), hint() & ((a > 1) & hint())):
        assert str(without_hints(condition)) == str(a > 1)
    frame = pl.DataFrame({"a": [1, 2, 3, None], "b": [1, 2, 3, 4]})
    for condition in ((a > 1) & (hint() & (b < 3)), (hint() & (b < 3)) & (a > 1)):
        kept = without_hints(condition)
        assert kept is not None
        assert frame.filter(kept).rows() == [(2, 2)]
    assert weaker_predicate(hint(), SCHEMA) is None
    assert str(weaker_predicate(hint() & (b < 3), SCHEMA)) == "b < 3"


@pytest.mark.parametrize("name", [*SUPPORTED, *UNSUPPORTED])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_condition_without_dynamic_predicates_is_unchanged(name: str) -> None:
    for condition in (evaluated(name), evaluated(name) & (b < 3)):
        assert without_hints(condition) is condition
