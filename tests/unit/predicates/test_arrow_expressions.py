"""What engines push down as Arrow expressions may only be weakened, never changed."""

from __future__ import annotations

import datetime
import decimal
import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.arrow_expressions import weaker_predicate
from delta_sharing_client.predicates.binding import bind

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
        (~field("b"), "b = FALSE"),
        (field("a").is_valid(), "a IS NOT NULL"),
        (~field("a").is_null(), "a IS NOT NULL"),
        ((field("a") > 1) & (pc.utf8_length(field("odd name")) > 3), "a > 1"),
        ((field("a") > 1) | (field("st", "a") == 2), "a > 1 OR st.a = 2"),
        (
            pc.if_else(pc.is_valid(field("a")), field("a").isin([1]), pa.scalar(None, pa.bool_())),
            "a IN (1)",
        ),
    ],
)
def test_what_has_a_counterpart_is_kept(expression: pc.Expression, text: str) -> None:
    assert str(weaker_predicate(expression, SCHEMA)) == text


@pytest.mark.parametrize(
    "expression",
    [
        field("a").isin([1, None]),
        (field("a") > 1) | (pc.utf8_length(field("odd name")) > 3),
        ~(field("x") > 1),
        field("x") != math.nan,
        field("x").is_null(nan_is_null=True),
        pc.starts_with(field("odd name"), "ab", ignore_case=True),
        pc.if_else(pc.is_valid(field("a")), field("a").isin([1]), pa.scalar(True)),
        field("nothing") > 1,
        field("a") > field("st", "a"),
        pc.scalar(True),
        # Arrow brings these into the column's type, by its own rules.
        field("d").isin([datetime.datetime(2024, 1, 1, 1)]),
        field("f").isin([0.1]),
        field("a").isin([True]),
        field("odd name") == b"a",
    ],
)
def test_what_has_none_is_left_out(expression: pc.Expression) -> None:
    assert weaker_predicate(expression, SCHEMA) is None


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


@given(_expressions, _rows)
def test_no_row_that_matches_is_lost(expression: pc.Expression, rows: list[dict[str, object]]) -> None:
    weaker = weaker_predicate(expression, SCHEMA)
    if weaker is None:
        return
    table = pa.Table.from_pylist([{**row, "place": place} for place, row in enumerate(rows)], schema=_schema_of_rows())
    wanted = set(table.filter(expression)["place"].to_pylist())
    kept = {
        place
        for batch in table.to_batches()
        for place in batch.filter(mask(bind(weaker, batch.schema), batch))["place"].to_pylist()
    }
    assert wanted <= kept


def _schema_of_rows() -> pa.Schema:
    names = ("a", "x", "f", "odd name", "b")
    return pa.schema([*(SCHEMA.field(name) for name in names), pa.field("place", pa.int64())])
