"""Values for the page are strings with every digit, and long ones are cut."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.browse.cells import cells_of


def shown(table: pa.Table, **settings: int) -> Any:
    return cells_of(table.to_batches(), table.schema, **settings)


@pytest.mark.parametrize(
    ("values", "kind", "texts", "is_number"),
    [
        ([2**63 - 1, None], pa.int64(), ["9223372036854775807", None], True),
        ([0.5], pa.float64(), ["0.5"], True),
        ([Decimal("1.50")], pa.decimal128(9, 2), ["1.50"], True),
        (["a", ""], pa.string(), ["a", ""], False),
        ([True], pa.bool_(), ["true"], False),
        ([[1, None]], pa.list_(pa.int64()), ["[1,null]"], False),
    ],
)
def test_cells_have_every_digit(values: Any, kind: pa.DataType, texts: list[str | None], is_number: bool) -> None:
    found = shown(pa.table({"x": pa.array(values, kind)}))
    assert found["columns"] == [{"name": "x", "type": str(kind), "isNumber": is_number}]
    assert (found["rows"], found["cut"], found["isMore"]) == ([[text] for text in texts], 0, False)


@pytest.mark.parametrize(
    ("rows", "columns", "length", "shown_length"),
    [(1, 1, 2000, 2000), (1, 1, 2001, 2000), (100, 20, 2001, 2000), (100, 100, 401, 400), (100, 200, 201, 200)],
)
def test_long_values_are_cut(rows: int, columns: int, length: int, shown_length: int) -> None:
    text = "x" * length
    found = shown(pa.table({f"c{number}": [text] * rows for number in range(columns)}))
    is_cut = shown_length < length
    expected = f"{text[:shown_length]} … ({length:,} characters)" if is_cut else text
    assert found["rows"] == [[expected] * columns] * rows
    assert found["cut"] == rows * columns * is_cut


def test_more_rows_than_shown_are_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"x": ["a" * 51] * 101})
    assert (len(shown(table)["rows"]), shown(table)["isMore"]) == (100, True)
    assert (len(shown(table, most=101)["rows"]), shown(table, most=101)["isMore"]) == (101, False)
    # At least 50 characters are shown, however many values there are.
    monkeypatch.setattr("delta_sharing_client.browse.cells._MOST_IN_ALL", 1)
    assert shown(table)["rows"][0] == [f"{'a' * 50} … (51 characters)"]
    assert shown(pa.table({}))["rows"] == []
