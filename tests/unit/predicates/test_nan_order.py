"""Filters that DuckDB 1 gives to Arrow: NaN equals itself and is greater than every other number."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.predicates.nan_order import nan_greatest

NAN = math.nan
DOUBLE = pa.float64()
VALUES = [0.5, 1.5, -1.5, math.inf, -math.inf, NAN, -NAN, 0.0, -0.0, None]
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def key(value: float) -> tuple[bool, float]:
    """Return a key in the order of DuckDB."""
    return (True, 0.0) if math.isnan(value) else (False, value)


def kept(expression: pc.Expression, kind: pa.DataType = DOUBLE) -> list[int]:
    """Return the numbers of the rows that Arrow keeps; the values are in a column and in a field of a struct."""
    values = pa.array(VALUES, kind)
    rows = pa.table({"n": range(len(VALUES)), "b": values, "s": pa.StructArray.from_arrays([values], ["x"])})
    dataset = pads.dataset(rows)
    return dataset.to_table(filter=nan_greatest(expression, rows.schema))["n"].to_pylist()


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("column", [pc.field("b"), pc.field("s", "x")], ids=["column", "field"])
@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("negated", [False, True])
def test_comparisons_have_the_order_of_duckdb(
    name: str, column: pc.Expression, kind: pa.DataType, negated: bool
) -> None:
    for constant in (0.5, 0.0, math.inf, NAN):
        for mirrored in (False, True):
            operands = (pc.scalar(constant), column) if mirrored else (column, pc.scalar(constant))
            expression = getattr(pc, name)(*operands)
            compare = COMPARISONS[name]
            expected = [
                number
                for number, value in enumerate(VALUES)
                if value is not None
                and compare(*((key(constant), key(value)) if mirrored else (key(value), key(constant)))) is not negated
            ]
            assert kept(~expression if negated else expression, kind) == expected


def test_other_conditions_keep_their_meaning() -> None:
    b = pc.field("b")
    for expression, expected in (
        (b.is_valid(), list(range(9))),
        (b.is_null(), [9]),
        (b.is_nan() if hasattr(b, "is_nan") else pc.is_nan(b), [5, 6]),
        (b.isin([0.5, 1.5]), [0, 1]),
        (b.isin([0.5, NAN]), [0, 5, 6]),
        (b.isin([0.0, 1.5]), [1, 7, 8]),
        (b.isin([-0.0]), [7, 8]),
        ((b > 0.5) & (b < math.inf), [1]),
        ((b > 0.5) & (pc.field("n") < 4), [1, 3]),
        ((b < -1.0) | b.is_null(), [2, 4, 9]),
        (pc.field("n") == 3, [3]),
        ((b > 0.5) & pc.scalar(False), []),
    ):
        assert kept(expression) == expected


def test_conditions_without_a_column_are_refused() -> None:
    b = pc.field("b")
    for expression in (pc.scalar(True), (b >= 0.5) & pc.scalar(True), ~pc.scalar(False), (b + 1) > 0.5):
        with pytest.raises(UnsupportedFeatureError, match="Update DuckDB to version 2"):
            kept(expression)
    # Without floating-point columns, the filter is what DuckDB wrote.
    rows = pa.schema([("n", pa.int64())])
    assert nan_greatest(pc.scalar(True), rows).equals(pc.scalar(True))
