from __future__ import annotations

import json
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.outputs.file_formats import compact_json
from delta_sharing_client.outputs.json_values import first_rows, json_rows, json_values
from tests.quota import meets, met


def bits(number: float) -> int:
    return int.from_bytes(struct.pack("<f", number), "little")


@pytest.mark.parametrize(("most", "expected", "taken"), [(0, 0, 1), (2, 2, 2), (3, 3, 2), (6, 6, 3), (7, 6, 3)])
def test_first_rows_read_no_more_batches_than_needed(most: int, expected: int, taken: int) -> None:
    batches = iter([pa.RecordBatch.from_pydict({"a": range(start, start + 2)}) for start in (0, 2, 4)])
    rows, has_more = first_rows(batches, most)
    assert rows == [(number,) for number in range(expected)]
    assert has_more == (most < 6)
    assert len(list(batches)) == 3 - taken


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        (pa.int64(), [2**63 - 1, None], [9223372036854775807, None]),
        (pa.float64(), [0.1, float("nan"), float("inf"), float("-inf")], [0.1, "NaN", "Infinity", "-Infinity"]),
        (pa.float32(), [0.1, None, 3.4e38, float("nan"), -0.0, 16777216], [0.1, None, 3.4e38, "NaN", -0.0, 16777216.0]),
        (pa.list_(pa.float32()), [[0.1, float("-inf")], None], [[0.1, "-Infinity"], None]),
        (pa.decimal128(38, 9), [Decimal("0.000000100"), Decimal(5)], ["0.000000100", "5.000000000"]),
        (pa.binary(), [b"\x00\xff", b""], ["00ff", ""]),
        (pa.timestamp("us", "UTC"), [1, -1], ["1970-01-01T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z"]),
        (pa.timestamp("us"), [253402300800000000], ["10000-01-01T00:00:00.000000"]),
        (pa.date32(), [0, 3_000_000, None], ["1970-01-01", "10183-09-21", None]),
        (pa.time64("us"), [1, None], ["00:00:00.000001", None]),
        (pa.duration("us"), [-7, None], [-7, None]),
        (pa.null(), [None, None], [None, None]),
        (pa.map_(pa.int32(), pa.string()), [[(1, "a"), (2, None)], [], None], [[[1, "a"], [2, None]], [], None]),
        (pa.struct([("a", pa.date32())]), [{"a": 0}, {"a": None}, None], [{"a": "1970-01-01"}, {"a": None}, None]),
        (pa.list_(pa.list_(pa.binary())), [[[b"\x01"], None], None, []], [[["01"], None], None, []]),
    ],
    ids=str,
)
def test_values_of_each_type_become_exact_json(kind: pa.DataType, raw: list[object], expected: list[object]) -> None:
    array = pa.array(raw, kind)

    values = json_values(array)

    assert values == expected
    assert json.loads(compact_json(values)) == expected


@meets(short=5, special=1)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=20) | st.lists(st.floats(width=32).map(bits), min_size=20))
def test_32_bit_numbers_have_their_shortest_text(patterns: list[int]) -> None:
    """NumPy is the oracle of the shortest text that reads back as the same 32-bit number."""
    numbers = np.array(patterns, np.uint32).view(np.float32)
    for number, value in zip(numbers, json_values(pa.array(numbers)), strict=True):
        met("special", not np.isfinite(number))
        if not np.isfinite(number):
            assert value == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
            continue
        text = compact_json(value)
        assert np.float32(text).tobytes() == number.tobytes()
        assert float(text) == float(str(number))
        met("short", len(text) < len(repr(float(number))))


@meets(nested=4, cut=2)
@given(
    rows=st.lists(st.none() | st.lists(st.none() | st.lists(st.tuples(st.text(), st.none() | st.integers(0, 9))))),
    cut=st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_a_slice_of_nested_values_equals_the_slice_of_the_values(rows: list[object], cut: tuple[int, int]) -> None:
    array = pa.array(rows, pa.list_(pa.map_(pa.string(), pa.int8())))
    met("nested", any(rows[cut[0] : cut[0] + cut[1]]))
    met("cut", 0 < cut[0] < len(rows) and cut[1])

    assert json_values(array.slice(*cut)) == json_values(array)[cut[0] : cut[0] + cut[1]]


def test_rows_keep_column_order_even_without_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"b": [1, 2], "a": ["x", None]})

    assert [list(row.items()) for row in json_rows(batch)] == [[("b", 1), ("a", "x")], [("b", 2), ("a", None)]]
    assert list(json_rows(batch.select([]))) == [{}, {}]
