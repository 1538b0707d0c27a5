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
    ("values", "kind", "name", "texts"),
    [
        ([2**63 - 1, None], pa.int64(), "long", ["9223372036854775807", None]),
        ([0.5], pa.float64(), "double", ["0.5"]),
        ([Decimal("1.50")], pa.decimal128(9, 2), "decimal(9,2)", ["1.50"]),
        (["a", ""], pa.string(), "string", ["a", ""]),
        (["a"], pa.large_string(), "string", ["a"]),
        ([True], pa.bool_(), "boolean", ["true"]),
        ([0], pa.timestamp("us", "UTC"), "timestamp", ["1970-01-01T00:00:00.000000Z"]),
        ([0], pa.timestamp("ms"), "timestamp_ntz", ["1970-01-01T00:00:00.000"]),
        ([[1, None]], pa.list_(pa.int64()), "array<long>", ["[1,null]"]),
        ([{"a": 1}], pa.struct({"a": pa.int32()}), "struct<a: integer>", ['{"a":1}']),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int16()), "map<string, short>", ['[["k",1]]']),
        ([1], pa.uint8(), "uint8", ["1"]),
    ],
)
def test_cells_have_every_digit(values: Any, kind: pa.DataType, name: str, texts: list[str | None]) -> None:
    found = shown(pa.table({"x": pa.array(values, kind)}))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    assert found["columns"] == [{"name": "x", "type": name, "isNumber": is_number}]
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
