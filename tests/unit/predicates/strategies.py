"""Random rows and predicates, with many values for which engines disagree."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa

from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Or,
    StartsWith,
)
from delta_sharing_client.predicates.values import Clock, Day, Moment, Zone

SCHEMA = pa.schema(
    {
        "flag": pa.bool_(),
        "i8": pa.int8(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "small": pa.decimal128(4, 2),
        "wide": pa.decimal128(38, 10),
        "text": pa.string(),
        "blob": pa.binary(),
        "day": pa.date32(),
        "instant": pa.timestamp("us", "UTC"),
        "wall": pa.timestamp("us"),
        "clock": pa.time64("us"),
        "void": pa.null(),
        "Nest": pa.struct({"n": pa.int32(), "Deep": pa.struct({"t": pa.string()})}),
        "dotted.name": pa.int32(),
        "list": pa.list_(pa.int32()),
    }
)

PATHS = {
    **{(name,): SCHEMA.field(name).type for name in SCHEMA.names},
    ("Nest", "n"): pa.int32(),
    ("Nest", "Deep"): pa.struct({"t": pa.string()}),
    ("Nest", "Deep", "t"): pa.string(),
}

COMPARABLE = {
    path: data_type
    for path, data_type in PATHS.items()
    if not pa.types.is_nested(data_type) and not pa.types.is_null(data_type)
}

# One sample of each expression class. All interpreters must support them, and ``test_mask`` fails if a class is
# missing.
_TEXT, _NUMBER = Column(("text",)), Column(("i32",))
SAMPLES: tuple[Expression, ...] = (
    Comparison(Op.GT, _NUMBER, Literal(1)),
    NullSafeEqual(_NUMBER, Literal(1)),
    In(_NUMBER, (Literal(1), Literal(3))),
    IsNull(_TEXT),
    Like(_TEXT, "a%c"),
    StartsWith(_TEXT, "ab"),
)

TEXT = st.one_of(
    st.sampled_from(
        ["", "a", "ab", "abc", "b", "a%", "a_b", "\\", "é", "\ud7ff", "\ue000", "\uffff", "😀", "a\nb", "'"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
_FLOATS = [
    0.0,
    -0.0,
    0.1,
    float(np.float32(0.1)),
    1.0,
    1.5,
    -1.0,
    1e30,
    1e300,
    math.nan,
    math.inf,
    -math.inf,
    2.0**53,
    99.995,
]


def values(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for non-null values of a column of this type, in the form that :func:`table` accepts."""
    if pa.types.is_boolean(data_type):
        return st.booleans()
    if pa.types.is_integer(data_type):
        edge = 1 << (data_type.bit_width - 1)
        near = st.sampled_from([0, 1, 2, -1, 5, edge - 1, -edge]) | st.integers(-5, 5)
        return near | st.integers(-edge, edge - 1)
    if pa.types.is_float32(data_type):
        return (st.sampled_from(_FLOATS) | st.floats(width=32)).map(_as_float32)
    if pa.types.is_float64(data_type):
        return st.sampled_from(_FLOATS) | st.floats() | st.integers(-3, 3).map(float)
    if pa.types.is_decimal(data_type):
        edge = 10**data_type.precision - 1
        unscaled = st.sampled_from([0, 1, 10, 100, edge, -edge]) | st.integers(-edge, edge)
        return unscaled.map(lambda number: decimal.Decimal(f"{number}E-{data_type.scale}"))
    if pa.types.is_string(data_type):
        return TEXT
    if pa.types.is_binary(data_type):
        return st.sampled_from([b"", b"a", b"\x80", b"\xff", b"ab"]) | st.binary(max_size=3)
    if pa.types.is_date(data_type):
        near = st.integers(19_700, 19_705)
        return (near | st.sampled_from([0, -(1 << 31), (1 << 31) - 1]) | st.integers(-(1 << 31), (1 << 31) - 1)).map(
            Day
        )
    if pa.types.is_timestamp(data_type):
        zone = Zone.UTC if data_type.tz else Zone.LOCAL
        start = 19_700 * 86_400_000_000
        near = st.sampled_from([start, start + 1, start + 86_400_000_000, start - 1, start + 999, 0, -1])
        micros = near | st.sampled_from([-(1 << 63), (1 << 63) - 1]) | st.integers(-(1 << 63), (1 << 63) - 1)
        return micros.map(lambda number: Moment(number * 1000, zone))
    if pa.types.is_time(data_type):
        last = 86_400_000_000 - 1
        return (st.sampled_from([0, 1, last]) | st.integers(0, last)).map(lambda number: Clock(number * 1000))
    raise AssertionError(data_type)


def constants(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    """Return a strategy for constants that compare with a column of this type, including values that the type cannot
    hold."""
    if pa.types.is_boolean(data_type) or pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return values(data_type)
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        nanos = st.sampled_from([0, 1, 999, 1000, 1500, -1, 43_200_000_000_000])
        local = st.tuples(values(pa.date32()), nanos).map(
            lambda pair: Moment(pair[0].days * 86_400_000_000_000 + pair[1], Zone.LOCAL)
        )
        written = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)).map(
            lambda moment: str(moment.date()) if pa.types.is_date(data_type) else str(moment)
        )
        choices = values(data_type) | values(pa.date32()) | local | written | st.dates()
        if pa.types.is_timestamp(data_type) and data_type.tz is None:
            return choices | st.datetimes()
        aware = st.datetimes(timezones=st.just(datetime.timezone.utc))
        return choices | values(pa.timestamp("us", "UTC")) | aware
    if pa.types.is_time(data_type):
        between = st.sampled_from([1, 999, 1500, 86_399_999_999_999]).map(Clock)
        return values(data_type) | between | st.times() | st.times().map(str)
    number = st.one_of(
        values(data_type),
        values(pa.int8()),
        values(pa.int64()),
        values(pa.float64()),
        st.integers(-(1 << 70), 1 << 70),
        values(pa.decimal128(4, 2)),
        st.decimals(allow_nan=False, allow_infinity=False, places=3),
        st.decimals(allow_nan=False, allow_infinity=False).filter(lambda number: abs(number.adjusted()) < 60),
    )
    if pa.types.is_decimal(data_type):
        return number | values(data_type).map(float)
    return number


def table(columns: dict[str, list[Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return the rows as a batch; dates and timestamps may have any year."""
    return pa.RecordBatch.from_arrays([_array(columns[field.name], field.type) for field in schema], schema=schema)


def rows(max_rows: int = 6, min_rows: int = 0) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({name: _nullable(SCHEMA.field(name).type) for name in SCHEMA.names})
    return st.lists(row, min_size=min_rows, max_size=max_rows)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return table({name: [row[name] for row in rows] for name in SCHEMA.names})


def predicates(paths: dict[tuple[str, ...], pa.DataType] | None = None, max_leaves: int = 6) -> st.SearchStrategy[Any]:
    """Return a strategy for unbound predicates over ``SCHEMA``."""
    comparable = {path: data_type for path, data_type in (paths or PATHS).items() if path in COMPARABLE}
    leaves = st.one_of(
        st.sampled_from(sorted(comparable)).flatmap(lambda path: _on_column(path, comparable[path])),
        _on_pair(sorted(comparable)),
        st.sampled_from(sorted(paths or PATHS)).map(lambda path: IsNull(Column(path))),
        *([st.sampled_from([*SAMPLES, Comparison(Op.EQ, Column(("void",)), Literal(1))])] if paths is None else []),
        st.sampled_from([Literal(True), Literal(False), Literal(None)]),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
            inner.map(Not),
        ),
        max_leaves=max_leaves,
    )


def comparisons(data_type: pa.DataType, column: Column) -> st.SearchStrategy[Expression]:
    return st.builds(Comparison, st.sampled_from(Op), st.just(column), constants(data_type).map(Literal))


def _on_column(path: tuple[str, ...], data_type: pa.DataType) -> st.SearchStrategy[Any]:
    column = Column(path)
    literal = constants(data_type).map(Literal)
    choices = [
        comparisons(data_type, column),
        st.builds(NullSafeEqual, st.just(column), literal | st.just(Literal(None))),
        st.builds(In, st.just(column), st.lists(literal | st.just(Literal(None)), min_size=1, max_size=4).map(tuple)),
    ]
    if pa.types.is_string(data_type):
        pattern = st.lists(st.sampled_from(["%", "_", "a", "b", "\\%", "\\_", "\\\\", "😀"]), max_size=4).map("".join)
        choices += [st.builds(Like, st.just(column), pattern), st.builds(StartsWith, st.just(column), TEXT)]
    return st.one_of(choices)


_FAMILIES = (
    ("i8", "i32", "i64", "f32", "f64", "small", "wide", "dotted.name"),
    ("text",),
    ("day", "instant"),
    ("day", "wall"),
    ("flag",),
    ("blob",),
    ("clock",),
)


def _on_pair(paths: list[tuple[str, ...]]) -> st.SearchStrategy[Any]:
    families = [tuple(Column((name,)) for name in family if (name,) in paths) for family in _FAMILIES]
    families = [family for family in families if family]
    pair = st.sampled_from(families).flatmap(lambda family: st.tuples(st.sampled_from(family), st.sampled_from(family)))
    return st.tuples(st.sampled_from([*Op, None]), pair).map(
        lambda drawn: NullSafeEqual(*drawn[1]) if drawn[0] is None else Comparison(drawn[0], *drawn[1])
    )


def column_pairs() -> st.SearchStrategy[Any]:
    """Return a strategy for comparisons of two columns of comparable types."""
    return _on_pair(sorted(path for path in COMPARABLE if len(path) == 1))


def _nullable(data_type: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_null(data_type):
        return st.none()
    if pa.types.is_struct(data_type):
        return st.none() | st.fixed_dictionaries({field.name: _nullable(field.type) for field in data_type})
    if pa.types.is_list(data_type):
        return st.none() | st.lists(st.integers(0, 3), max_size=2)
    return st.none() | values(data_type)


def _array(column: list[Any], data_type: pa.DataType) -> Any:
    if pa.types.is_date(data_type):
        return pa.array([None if item is None else item.days for item in column], pa.int32()).cast(data_type)
    if pa.types.is_timestamp(data_type):
        return pa.array([None if item is None else item.nanoseconds // 1000 for item in column], data_type)
    if pa.types.is_time(data_type):
        return pa.array([None if item is None else item.nanoseconds // 1000 for item in column], data_type)
    return pa.array(column, data_type)


def _as_float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


# === Skipping files ===


def column_bounds(
    lower: Any, upper: Any, nulls: int | None = None, rows: int | None = None, without_nan: float | None = None
) -> ColumnBounds:
    return ColumnBounds(lower, upper, nulls, rows, without_nan)


def may_match(expression: Any, statistics: Any) -> bool:
    return compile_skipping(expression)(statistics)
