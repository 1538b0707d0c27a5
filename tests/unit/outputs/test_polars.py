"""The parts of a Polars filter that our predicates can express. They keep every row that the filter keeps."""

from __future__ import annotations

import datetime
import decimal
import functools
from typing import Any, cast

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from delta_sharing_client.errors import DataError, UnsupportedFeatureError, UsageError
from delta_sharing_client.outputs import dataset, polars
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.polars_expressions import weaker_predicate
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Or,
    StartsWith,
    call,
)
from delta_sharing_client.protocol.names import AssetName
from tests.quota import meets, met


def test_frame_has_the_rows_of_every_group_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polars, "_TABLE_ROWS", 3)
    text = pa.schema([("a", pa.string())])
    batches = [pa.RecordBatch.from_pydict({"a": [f"{number}"] * 2}, schema=text) for number in range(5)]
    assert [table.num_rows for table in polars._tables(batches)] == [4, 4, 2]
    assert polars.frame(text, batches)["a"].to_list() == [*"0011223344"]


A, S, NEST, DAY = pl.col("a"), pl.col("s"), pl.col("o"), datetime.date(2024, 1, 1)
_A, _S = Column(("a",)), Column(("s",))
reads_lists = pytest.mark.skipif(
    int(pl.__version__.partition(".")[0]) < 2,
    reason="a list of Polars 1 is not read: more is fetched, for the same rows",
)
# By column: the type, and the values used in rows and constants.
VALUES: dict[str, tuple[pl.DataType, list[Any]]] = {
    "a": (pl.Int64(), [-1, 0, 1, 2**40, 2**53 + 1]),
    "x": (pl.Float64(), [-0.0, 0.0, 1.5, float("nan"), float("inf")]),
    "f": (pl.Float32(), [0.1, 0.5, 1.0]),
    "i": (pl.Int8(), [-1, 0, 1, 127]),
    "n": (pl.Decimal(10, 2), [decimal.Decimal("1.50"), decimal.Decimal(1)]),
    "s": (pl.String(), ["", "b", "ba", "ß", "%"]),
    "d": (pl.Date(), [DAY, datetime.date(1582, 10, 4)]),
    "t": (pl.Datetime("us", "UTC"), [datetime.datetime(2024, 1, 1, 1, tzinfo=datetime.timezone.utc)]),
    "b": (pl.Boolean(), [True, False]),
}
NAMES = st.sampled_from(sorted(VALUES))
# Polars converts one side or the other, or refuses, when a column is compared with another type.
OTHERS = [0.1, 0.5, 1, 2.0**53, 300, decimal.Decimal("1.505"), DAY, datetime.datetime(2024, 1, 1), True, b"b", "b"]
SCHEMA = {name: kind for name, (kind, _) in VALUES.items()} | {"o": pl.Struct({"a": pl.Int64()})}


@functools.cache
def arrow_schema() -> pa.Schema:
    """Called in tests only, not on import: a frame starts Polars' threads, and a process forked afterwards hangs."""
    return pl.DataFrame(schema=SCHEMA).to_arrow(compat_level=pl.CompatLevel.oldest()).schema


def _row() -> st.SearchStrategy[dict[str, Any]]:
    cells = {name: st.none() | st.sampled_from(found) for name, (_, found) in VALUES.items()}
    return st.fixed_dictionaries(cells | {"o": st.none() | st.fixed_dictionaries({"a": st.sampled_from([None, 1, 2])})})


def _tests_of(column: pl.Expr, constant: Any, other: Any, how: str) -> list[pl.Expr]:
    return [
        column == constant,
        constant != column,
        column < constant,
        constant <= column,
        column.eq_missing(constant),
        column.is_in([constant]),
        column.is_between(constant, other, how),
        column.is_null(),
        column.is_not_null(),
    ]


@st.composite
def _leaves(draw: st.DrawFn) -> pl.Expr:
    name = draw(NAMES)
    constants = st.sampled_from(VALUES[name][1]) | st.sampled_from(OTHERS)
    constant, how = draw(constants), draw(st.sampled_from(["both", "left", "none"]))
    result = _tests_of(pl.col(name), constant, draw(constants), how)
    more = [
        S.str.starts_with("b"),
        S.str.ends_with("b"),
        NEST.struct.field("a") > 1,
        NEST.is_null(),
        pl.col("b"),
        A % 2 == 0,
    ]
    return draw(st.sampled_from(result * 2 + more + [pl.col("x") == A, pl.lit(None, pl.Int64()) < A, A.is_in([])]))


FILTERS = st.recursive(
    _leaves(),
    lambda below: st.tuples(st.sampled_from(["&", "|", "~"]), below, below).map(
        lambda item: item[1] & item[2] if item[0] == "&" else item[1] | item[2] if item[0] == "|" else ~item[1]
    ),
    max_leaves=5,
)


@meets(matching=12, left_out=25)
@given(FILTERS, st.lists(_row(), min_size=4, max_size=10))
@example(A == 1, [{}])
def test_weaker_predicate_keeps_every_row_that_polars_keeps(condition: pl.Expr, rows: list[dict[str, Any]]) -> None:
    frame = pl.DataFrame(rows, SCHEMA)
    try:
        wanted = frame.select(condition.fill_null(False).alias("kept"))["kept"].to_list()
    except (pl.exceptions.PolarsError, TypeError):
        assume(False)
    weaker = weaker_predicate(condition, arrow_schema())
    if weaker is None:
        return
    (batch,) = frame.to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks().to_batches()
    kept = mask(bind(weaker, arrow_schema()), batch).to_pylist()
    met("matching", any(wanted))
    met("left_out", not all(kept))
    assert all(ours for ours, theirs in zip(kept, wanted, strict=True) if theirs)


def test_types_unknown_to_duckdb_or_polars_are_plain_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def field(name: str, facts: bytes) -> pa.Field:
        extension = {b"ARROW:extension:name": b"geoarrow.wkb", b"ARROW:extension:metadata": facts}
        return pa.field(name, pa.binary(), metadata=extension)

    schema = pa.schema([field("geometry", b"{}"), field("geography", b'{"edges":"spherical"}')])
    for version, plain in (("1.1.3", ["geometry", "geography"]), ("1.4.0", ["geography"])):
        monkeypatch.setattr(duckdb, "__version__", version)
        known = dataset.known_to_duckdb(schema)
        assert [each.name for each in known if not each.metadata] == plain
    with pytest.raises(UsageError, match="Expected a DuckDB connection, found str"):
        dataset.duckdb_relation(cast("Any", None), cast("Any", "x"))
    monkeypatch.delattr(pl, "BaseExtension", raising=False)
    with pytest.raises(UnsupportedFeatureError, match="no extension types"):
        polars.frame_of(schema.empty_table())


def test_view_of_an_unreadable_table_raises_the_reason() -> None:
    class Broken:
        @property
        def schema(self) -> pa.Schema:
            raise DataError("It's broken.")

    names = [AssetName('s "1', 'd "2', 't "3'), AssetName("s", "d.e", "t")]
    with duckdb.connect() as connection:
        dataset.create_views(connection, {name: cast("Any", Broken()) for name in names})
        assert connection.execute("SELECT current_database(), current_schema()").fetchall() == [("memory", "main")]
        for place in ('"s ""1"."d ""2"."t ""3"', 's."d.e".t'):
            for what in ("*", "count(*)", "1"):
                with pytest.raises(duckdb.Error, match=r"It's broken\."):
                    connection.sql(f"SELECT {what} FROM {place}").fetchall()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (A == 1, Comparison(Op.EQ, _A, Literal(1))),
        (pl.lit(1) < A, Comparison(Op.GT, _A, Literal(1))),
        (A.is_null(), IsNull(_A)),
        (A.is_not_null(), Not(IsNull(_A))),
        (S.str.starts_with("b"), StartsWith(_S, "b")),
        pytest.param(A.is_in([1, 2]), In(_A, (Literal(1), Literal(2))), marks=reads_lists),
        pytest.param(A.is_in([]), Literal(False), marks=reads_lists),
        (pl.col("d") >= DAY, Comparison(Op.GE, Column(("d",)), Literal(DAY))),
        (pl.col("o").struct.field("a") != 1, Comparison(Op.NE, Column(("o", "a")), Literal(1))),
        # One side of a conjunction is sufficient; a disjunction needs both.
        ((A == 1) & (A % 2 == 0), Comparison(Op.EQ, _A, Literal(1))),
        ((A == 1) | (A % 2 == 0), None),
        # The negation of a weaker predicate would be stronger.
        (~((A % 2 == 0) & (A == 1)), None),
        (~((A == 1) & (A < 3)), Or((Comparison(Op.NE, _A, Literal(1)), Comparison(Op.GE, _A, Literal(3))))),
        (~(A == 1), Comparison(Op.NE, _A, Literal(1))),
        (~(pl.col("x") > 1.5), None),
        (~(A % 2 == 0), None),
        (A.is_between(1, 2), And((Comparison(Op.GE, _A, Literal(1)), Comparison(Op.LE, _A, Literal(2))))),
        (A.is_between(1, 2, "none"), And((Comparison(Op.GT, _A, Literal(1)), Comparison(Op.LT, _A, Literal(2))))),
        pytest.param(~A.is_in([1, 2]), Not(In(_A, (Literal(1), Literal(2)))), marks=reads_lists),
        pytest.param(S.is_in(["größe", "名前"]), In(_S, (Literal("größe"), Literal("名前"))), marks=reads_lists),
        (pl.col("b"), Comparison(Op.EQ, Column(("b",)), Literal(True))),
        (~pl.col("b"), Comparison(Op.NE, Column(("b",)), Literal(True))),
        (A.eq_missing(1), NullSafeEqual(_A, Literal(1))),
        (A.eq_missing(None), NullSafeEqual(_A, Literal(None))),
        (A.ne_missing(1), Not(NullSafeEqual(_A, Literal(1)))),
        (pl.col("t").dt.date() == DAY, Comparison(Op.EQ, call("date", Column(("t",))), Literal(DAY))),
        (pl.col("d").dt.year() >= 2024, Comparison(Op.GE, call("year", Column(("d",))), Literal(2024))),
        (S.str.contains("%", literal=True), Like(_S, "%\\%%")),
        (S.str.contains("^b"), None),
        (pl.col("x") == A, None),
        (pl.col("x") == float("nan"), None),
        (pl.col("x") < float("inf"), None),
        # Polars converts the constant to the type of the column, or the column to the type of the constant.
        (pl.col("f") == 0.1, None),
        (pl.col("f") == 0.5, Comparison(Op.EQ, Column(("f",)), Literal(0.5))),
        (A == 2.0**53, None),
        (pl.col("b") == 1, None),
        (A.is_between(1, 2.5), Comparison(Op.GE, _A, Literal(1))),
        (A.is_in([1, None]), None),
        (S.str.ends_with("b"), Like(_S, "%b")),
        (A.cast(pl.String) == "1", None),
    ],
    ids=str,
)
def test_supported_parts_of_a_filter_are_pushed_down(condition: pl.Expr, expected: object) -> None:
    assert weaker_predicate(condition, arrow_schema()) == expected


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ((A * 2 == 4) | (S.str.to_lowercase() == "größe"), "a * 2 = 4 OR lower(s) = 'größe'"),
        (pl.col("i") < A + 1, "i < a + 1"),
        (A.cast(pl.String) == "1", "string(a) = '1'"),
        (~pl.col("o").struct.field("a").is_between(1, 2), "NOT (o.a >= 1 AND o.a <= 2)"),
        (pl.col("t").dt.date() == DAY, "date(t) = DATE '2024-01-01'"),
        (pl.col("x") > 1.5, "x > 1.5E0"),
    ],
    ids=str,
)
def test_polars_expression_is_accepted_as_a_filter(condition: pl.Expr, text: str) -> None:
    assert parse_filter(condition) == parse_filter(text)


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        (S.str.contains("^b"), "A pattern"),
        (A.sqrt() > 1, "The function 'Sqrt'|The function 'Pow'"),
        (A.is_in([1, None]), "A list with nulls"),
        (A.mean() < A, "'Agg'"),
        (pl.col("x") == float("nan"), "A value that JSON|A number that JSON|NaN"),
    ],
    ids=str,
)
def test_unsupported_expression_parts_are_named(condition: pl.Expr, named: str) -> None:
    with pytest.raises(UsageError, match=f"^({named}).* is not supported in an expression of another library"):
        parse_filter(condition)
