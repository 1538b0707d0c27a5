"""IN with a sorted list, also one narrowed by a file's statistics, gives the same results as the reference."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.predicates import lists, skipping
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.lists import InSortedList, SortedValues, listed, prepared
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.skipping import compile_skipping, within
from delta_sharing_client.predicates.tree import And, Column, In, Literal, Not, Or, col
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.predicates.strategies import COMPARABLE, constants, table, values
from tests.unit.predicates.test_skipping import Known, bounds_of

X = ("x",)


@meets(matching=40, negated=40, shorter=25, floats=10, null=10, nan=3)
@settings(max_examples=examples(1800))
@given(st.data())
def test_narrowed_list_gives_the_results_of_the_reference(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(COMPARABLE)))
    data_type = COMPARABLE[path]
    special = st.sampled_from([None, math.nan] if pa.types.is_floating(data_type) else [None])
    literals = data.draw(st.lists((constants(data_type) | special).map(Literal), min_size=1, max_size=8))
    expression: Any = In(Column(X), tuple(literals))
    shape = data.draw(st.sampled_from(["in", "not in", "and", "or"]))
    if shape == "not in":
        expression = Not(expression)
    elif shape != "in":
        expression = (And if shape == "and" else Or)((expression, Not(col("x").is_null())))
    found = data.draw(st.lists(st.none() | values(data_type), max_size=6))
    statistics = Known({X: data.draw(bounds_of(path, found))})
    expected = [evaluate(expression, {"x": value}) is True for value in found]
    schema = pa.schema({"x": data_type})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(skipping, "_LONG_LIST", 0)
        ready = prepared(bind(expression, schema))
        narrow = within(ready, statistics)
    batch = table({"x": found}, schema)
    assert mask(ready, batch).to_pylist() == expected
    assert mask(narrow, batch).to_pylist() == expected
    assert compile_skipping(ready)(statistics) or not any(expected)
    assert compile_skipping(ready)(statistics) is compile_skipping(bind(expression, schema))(statistics)
    met("matching", any(expected))
    met("negated", shape == "not in")
    met("shorter", str(narrow) == str(ready) and narrow != ready)
    met("floats", pa.types.is_floating(data_type))
    met("null", Literal(None) in literals)
    met("nan", any(isinstance(item.value, float) and math.isnan(item.value) for item in literals))


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (None, None, [1, 3, 5, 7]), (3, 5, [3, 5]), (2, 6, [3, 5]), (4, 4, []), (None, 1, [1]), (7, None, [7]),
        (8, None, []), (None, 0, []), (6, 2, []), (math.nan, 3, [1, 3]), (3, math.nan, [3, 5, 7]),
    ],
)  # fmt: skip
def test_values_between_two_bounds_are_found(lower: Any, upper: Any, expected: list[int]) -> None:
    sorted_values = SortedValues(tuple(map(Literal, (5, 1, None, 7, 3))))
    assert sorted_values.has_null
    assert not sorted_values.has_nan
    assert [sorted_values.keys[place] for place in sorted_values.span(lower, upper)] == expected


def test_list_is_converted_once_for_each_type(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[pa.DataType] = []
    to_arrow = lists.to_arrow
    monkeypatch.setattr(lists, "to_arrow", lambda keys, kind: converted.append(kind) or to_arrow(keys, kind))
    schema = pa.schema({"x": pa.int64(), "t": pa.string()})
    condition = col("x").is_in(range(100)) & ~col("t").is_in([f"{number}" for number in range(5)])
    ready = prepared(bind(condition, schema))
    for start in range(50):
        batch = table({"x": [start, 1000], "t": ["a", "b"]}, schema)
        narrow = within(ready, Known({X: ColumnBounds(start, start + 2, 0, 2)}))
        assert mask(narrow, batch).to_pylist() == [True, False]
    assert converted == [pa.int64(), pa.string()]


def test_only_long_lists_are_narrowed() -> None:
    schema = pa.schema({"x": pa.int64()})
    statistics = Known({X: ColumnBounds(10, 12, 0, 5)})
    for size, is_narrowed in ((63, False), (64, True)):
        ready = prepared(bind(col("x").is_in(range(size)), schema))
        narrow = within(ready, statistics)
        assert isinstance(ready, InSortedList)
        assert isinstance(narrow, InSortedList)
        assert (narrow.positions == range(10, 13)) is is_narrowed
        assert narrow.array(pa.int64()).to_pylist() == (list(range(10, 13)) if is_narrowed else list(range(size)))
        assert within(ready, Known({})) == ready
        # Bounds of a different type are not used.
        assert within(ready, Known({X: ColumnBounds("a", "b", 0, 5)})) == ready
        assert listed(ready) is ready


def test_list_of_a_call_is_sorted_but_not_narrowed() -> None:
    schema = pa.schema({"x": pa.int64()})
    ready = prepared(bind((col("x") + 1).is_in(range(100)), schema))
    assert isinstance(ready, InSortedList)
    assert within(ready, Known({X: ColumnBounds(10, 12, 0, 5)})) == ready
    assert mask(ready, table({"x": [5, 500, None]}, schema)).to_pylist() == [True, False, False]
    assert not compile_skipping(ready)(Known({X: ColumnBounds(500, 600, 0, 5)}))
    assert compile_skipping(ready)(Known({X: ColumnBounds(50, 600, 0, 5)}))
