"""Facts about a column: stated by the log, or computed from its values in bounded memory."""

from __future__ import annotations

import datetime
import pathlib
from decimal import Decimal
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.browse import column_facts, previews, tables
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.column_facts import facts_of
from delta_sharing_client.browse.session import Session

DAY = datetime.date(2026, 1, 1)


def found_of(values: Any, kind: pa.DataType, size: int = 7) -> Any:
    array = pa.array(values, kind)
    batches = [pa.record_batch([array.slice(start, size)], ["x"]) for start in range(0, len(array), size)]
    return facts_of(batches, kind)


@pytest.mark.parametrize(
    ("values", "kind", "least", "greatest", "different"),
    [
        ([3, 1, None, 3, 2**62], pa.int64(), "1", str(2**62), 3),
        ([0.5, float("nan"), float("nan"), -1.0], pa.float64(), "-1.0", "0.5", 3),
        ([Decimal("1.50"), Decimal("-2.25")], pa.decimal128(9, 2), "-2.25", "1.50", 2),
        (["b", "", "a", None], pa.string(), "", "b", 3),
        ([DAY, DAY + datetime.timedelta(3)], pa.date32(), "2026-01-01", "2026-01-04", 2),
        ([True, False, True], pa.bool_(), None, None, 2),
        ([[1], [2]], pa.list_(pa.int64()), None, None, None),
        ([None, None], pa.int64(), None, None, 0),
        ([], pa.string(), None, None, 0),
    ],
)
def test_facts_about_values(values: Any, kind: pa.DataType, least: Any, greatest: Any, different: Any) -> None:
    found = found_of(values, kind)
    assert (found["rows"], found["nulls"]) == (len(values), values.count(None))
    assert (found["least"], found["greatest"], found["different"]) == (least, greatest, different)
    assert found["isEstimate"] is False


def test_most_frequent_values_are_counted() -> None:
    values = ["a"] * 30 + ["b"] * 20 + [f"x{number}" for number in range(50)]
    found = found_of(values, pa.string())
    assert found["values"][:2] == [["a", 30], ["b", 20]]
    assert len(found["values"]) == column_facts.MOST_VALUES
    assert found_of([1.5, float("nan"), float("nan")], pa.float64())["values"][0] == ["NaN", 2]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_many_different_values_are_estimated(kind: pa.DataType) -> None:
    values = pa.array(np.random.default_rng(1).permutation(np.repeat(np.arange(100_000), 2))).cast(kind)
    found = found_of(values, kind, size=10_000)
    assert found["isEstimate"]
    # Five standard errors.
    assert abs(found["different"] - 100_000) < 100_000 * 5 / 64
    assert found["values"] == []


def test_histogram_is_that_of_a_bounded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_facts, "_SAMPLE", 2000)
    # The values ascend, so that a sample of the beginning would show it.
    found = found_of(np.arange(100_000), pa.int64(), size=9_000)
    assert len(found["bars"]) == column_facts.BARS
    shares = [share for _, share in found["bars"]]
    assert sum(shares) == pytest.approx(1)
    assert all(0.02 < share < 0.09 for share in shares)
    edges = [float(edge) for edge, _ in found["bars"]]
    assert edges == sorted(edges)
    days = found_of([DAY + datetime.timedelta(number) for number in range(40)], pa.date32())
    assert days["bars"][0] == ["2026-01-01", 0.05]
    assert found_of([1, 1], pa.int64())["bars"] is None


def test_log_states_facts_without_a_download(tmp_path: pathlib.Path) -> None:
    rows = pa.table({"n": [1, 5, None], "t": ["a", "b", None], "l": [[1], [2], [3]], "d": [DAY, None, None]})
    more = pa.table({"n": [9, None], "t": [None, None], "l": [[1], None], "d": [DAY, DAY]}, rows.schema)
    for part in (rows, more):
        deltalake.write_deltalake(tmp_path / "t", part, mode="append", partition_by=["t"])
    with testing.running({"s.d.t": tmp_path / "t"}) as server:
        session = Session(server.profile, tmp_path)

        def ask(name: str, **values: Any) -> Any:
            return tables.column(session, Asked({"name": ["s", "d", "t"], "column": [name], **values}))

        assert ask("n")["stated"] == {"rows": 5, "nulls": 2, "lower": "1", "upper": "9"}
        assert ask("t")["stated"] == {"rows": 5, "nulls": 3, "lower": "a", "upper": "b"}
        assert ask("d")["stated"] == {"rows": 5, "nulls": 2, "lower": "2026-01-01", "upper": "2026-01-01"}
        assert ask("l")["stated"] == {"rows": 5, "nulls": None, "lower": None, "upper": None}
        assert ask("n", filter="n > 1")["stated"] is None
        planned = ask("n", filter="n > 1")
        found: Any = tables.values(session, Asked({"plan": planned["plan"]}))
        assert (found["rows"], found["least"], found["greatest"]) == (2, "5", "9")
        with pytest.raises(ds.UsageError, match="no column z"):
            ask("z")
        rows_plan: Any = previews.plan_preview(session, Asked({"name": ["s", "d", "t"]}))
        with pytest.raises(ds.UsageError, match="found the plan of rows"):
            tables.values(session, Asked({"plan": rows_plan["plan"]}))
        session.close()


def test_fields_of_structs_have_facts(tmp_path: pathlib.Path) -> None:
    rows = pa.table({"s": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]})
    with testing.running({"s.d.t": rows}) as server:
        session = Session(server.profile, tmp_path)
        planned: Any = tables.column(session, Asked({"name": ["s", "d", "t"], "column": [["s", "b"]]}))
        found: Any = tables.values(session, Asked({"plan": planned["plan"]}))
        assert (found["rows"], found["nulls"], found["least"], found["greatest"]) == (3, 1, "x", "y")
        session.close()


@pytest.mark.parametrize("parts", [[[float("nan")], [1.0, 2.0]], [[1.0], [float("nan")], [2.0]]])
def test_nan_is_neither_least_nor_greatest(parts: list[list[float]]) -> None:
    found = facts_of([pa.record_batch([part], ["x"]) for part in parts], pa.float64())
    assert (found["least"], found["greatest"]) == ("1.0", "2.0")


def moments(*values: int) -> pa.Array:
    return pa.array(values, pa.int64()).cast(pa.timestamp("us", "UTC"))


@pytest.mark.parametrize(
    ("array", "least", "greatest"),
    [
        (moments(0, 1), "1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000001Z"),
        (moments(253402300800000000, 0), "1970-01-01T00:00:00.000000Z", "10000-01-01T00:00:00.000000Z"),
        (pa.array([3000000, -800000], pa.int32()).cast(pa.date32()), None, None),
        (pa.array([2**60, 2**60 + 128]), str(2**60), str(2**60 + 128)),
        (pa.array([1.7e308, -1.7e308]), "-1.7e+308", "1.7e+308"),
        (pa.array([5e-324, 0.0]), "0.0", "5e-324"),
    ],
)
def test_values_at_the_ends_of_their_type(array: pa.Array, least: str | None, greatest: str | None) -> None:
    found = facts_of([pa.record_batch([array], ["x"])], array.type)
    assert found["different"] == len(found["values"]) == 2  # type: ignore[arg-type]
    assert found["bars"] is None or len(found["bars"]) == column_facts.BARS  # type: ignore[arg-type]
    if least is not None:
        assert (found["least"], found["greatest"]) == (least, greatest)


def test_stated_bounds_of_decimals_have_their_scale(tmp_path: pathlib.Path) -> None:
    values = [Decimal("1.50"), Decimal("-12345678901234567890123456789012.25")]
    deltalake.write_deltalake(tmp_path / "t", pa.table({"d": pa.array(values, pa.decimal128(38, 2))}))
    with testing.running({"s.d.t": tmp_path / "t"}) as server:
        session = Session(server.profile, tmp_path)
        found: Any = tables.column(session, Asked({"name": ["s", "d", "t"], "column": ["d"]}))["stated"]
        session.close()
    lower, upper = Decimal(found["lower"]), Decimal(found["upper"])
    assert lower <= values[1] < values[0] <= upper
    assert lower.as_tuple().exponent == upper.as_tuple().exponent == -2
