"""Decimals of different scales are compared by their values, also where pyarrow compares their digits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pytest

from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.predicates import decimal_scales
from delta_sharing_client.predicates.decimal_scales import exact

VALUES = [Decimal("1.00"), Decimal("17.00"), Decimal("24.00"), Decimal("-24.50"), None]
OTHERS = [Decimal("1.0000"), Decimal("24.0000"), Decimal("16.9999"), Decimal("-24.5000"), Decimal(0)]
WIDE = [Decimal("1.0"), Decimal("17.0"), Decimal("2.4"), Decimal("-24.5"), Decimal(9)]
ROWS = pa.table(
    {
        "d": pa.array(VALUES, pa.decimal128(15, 2)),
        "e": pa.array(OTHERS, pa.decimal128(20, 4)),
        "w": pa.array(WIDE, pa.decimal256(40, 1)),
        "i": pa.array([1, 18, 24, None, 3], pa.int64()),
        "f": pa.array([1.0, 16.5, None, -24.5, 3.0]),
        "t": pa.array(["a", "b", None, "ab", ""]),
        "s": pa.array([{"x": value} for value in VALUES], pa.struct([("x", pa.decimal128(15, 2))])),
    }
)
D, E, W, S = pc.field("d"), pc.field("e"), pc.field("w"), pc.field("s", "x")
OPERATORS = [operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt]


@pytest.fixture(params=[False, True], ids=["rebuilt", "installed"])
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test twice: with expressions rebuilt as for an old pyarrow, and as the installed pyarrow needs."""
    if not request.param:
        monkeypatch.setattr(decimal_scales, "heeds_scales", lambda: False)


def values_of(expression: pc.Expression) -> list[Any]:
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(ROWS)),
        acero.Declaration("project", acero.ProjectNodeOptions([exact(expression, ROWS.schema)], ["x"])),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)["x"].to_pylist()


def compared(compare: Callable[[Any, Any], Any], left: list[Any], right: list[Any]) -> list[Any]:
    return [None if None in pair else compare(*pair) for pair in zip(left, right, strict=True)]


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("compare", OPERATORS)
@pytest.mark.parametrize("constant", ["24", "24.0", "24.00", "24.000", "0", "-24.5", "17.01", "1E+2"])
def test_columns_are_compared_with_constants_by_value(compare: Callable[[Any, Any], Any], constant: str) -> None:
    value = Decimal(constant)
    for column in (D, S):
        assert values_of(compare(column, value)) == compared(compare, VALUES, [value] * len(VALUES))
        assert values_of(compare(pc.scalar(value), column)) == compared(compare, [value] * len(VALUES), VALUES)


@pytest.mark.usefixtures("_both")
@pytest.mark.parametrize("compare", OPERATORS)
def test_columns_are_compared_with_columns_by_value(compare: Callable[[Any, Any], Any]) -> None:
    assert values_of(compare(D, E)) == compared(compare, VALUES, OTHERS)
    assert values_of(compare(W, D)) == compared(compare, WIDE, VALUES)
    assert values_of(compare(pc.multiply(D, E), W)) == compared(
        compare, [None if d is None else d * e for d, e in zip(VALUES, OTHERS, strict=True)], WIDE
    )


@pytest.mark.usefixtures("_both")
def test_conditions_around_a_comparison_keep_their_meaning() -> None:
    condition = (Decimal(24) > D) & pc.field("t").isin(["a", "b", None]) | ~(pc.field("f") >= 3.0) | D.is_null()
    assert values_of(condition) == [True, True, None, True, True]
    assert values_of(pc.starts_with(pc.field("t"), "a") & (Decimal(24) > D)) == [True, False, False, True, False]
    assert values_of(pc.field("f").is_null(nan_is_null=True) & (Decimal(24) == D)) == [False, False, True, False, False]
    assert values_of(D.isin([Decimal(24), Decimal(1)])) == [True, False, True, False, False]
    assert values_of(pc.field("i").cast(pa.decimal128(30, 3)) > D) == [False, True, False, None, None]
    assert values_of(pc.if_else(Decimal(24) > D, "low", "high")) == ["low", "low", "high", "low", None]


def test_what_cannot_be_rebuilt_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decimal_scales, "heeds_scales", lambda: False)
    case = pc.case_when(pc.make_struct(pc.field("i") > 5, field_names=["x"]), D, E)
    rounded = pc.round(D, ndigits=1) < Decimal(24)
    too_wide = pc.field("w").cast(pa.decimal256(76, 0)) < D
    for expression in (case, rounded, too_wide):
        with pytest.raises(UnsupportedFeatureError, match=r"may compare decimals of different scales, .* SQL text"):
            exact(expression, ROWS.schema)
    # Without decimals, nothing can be wrong.
    plain = pc.round(pc.field("f"), ndigits=1) < 3
    assert exact(plain, ROWS.schema) is plain
    same = pa.scalar(Decimal(24), pa.decimal128(15, 2)) > D
    assert exact(same, ROWS.schema) is same


def test_an_expression_is_unchanged_if_pyarrow_heeds_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decimal_scales, "heeds_scales", lambda: True)
    expression = Decimal(24) > D
    assert exact(expression, ROWS.schema) is expression
