"""Rows removed by equality deletes, compared with an oracle that compares value by value."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.decode.equality import DeletedValues, comparable, leaf_of
from tests.quota import meets, met

NAN = float("nan")
# Only a few values of each type, so that some rows are equal.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int32(): [0, -1, 2**31 - 1],
    pa.int64(): [0, 2**53, 2**53 + 1],
    pa.float32(): [0.0, -0.0, NAN, 1.5],
    pa.float64(): [0.0, -0.0, NAN, float("inf")],
    pa.decimal128(20, 2): [Decimal("0.00"), Decimal("1.10"), Decimal("123456789012345678.90")],
    pa.date32(): [datetime.date(1970, 1, 1), datetime.date(2020, 2, 29)],
    pa.timestamp("us"): [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, 0, 0, 0, 1)],
    pa.timestamp("us", "UTC"): [datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)],
    pa.string(): ["", "a", "ä", "a\0"],
    pa.binary(): [b"", b"\0", b"\xff"],
}


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack("<d", value)
    return value


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[pa.DataType], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    row = st.tuples(*(st.sampled_from([None, *VALUES[data_type]]) for data_type in types))
    return types, draw(st.lists(row, max_size=12)), draw(st.lists(row, max_size=30))


def _columns(types: list[pa.DataType], rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[place] for row in rows], data_type) for place, data_type in enumerate(types)]


@meets(kept=20, removed=20, both=10, several=10)
@settings(max_examples=200)
@given(_tables())
def test_rows_equal_to_deleted_values_are_removed(
    case: tuple[list[pa.DataType], list[tuple[Any, ...]], list[tuple[Any, ...]]],
) -> None:
    types, deleted, rows = case
    gone = {tuple(map(_exact, row)) for row in deleted}
    expected = [tuple(map(_exact, row)) not in gone for row in rows]
    met("kept", any(expected))
    met("removed", not all(expected))
    met("both", any(expected) and not all(expected))
    met("several", len(types) > 1 and not all(expected))

    values = DeletedValues(tuple(range(len(types))), _columns(types, deleted))

    assert values.kept(_columns(types, rows)).to_pylist() == expected


@pytest.mark.parametrize(("arrow", "number"), [(pa.float32(), pa.int32()), (pa.float64(), pa.int64())])
def test_all_nan_values_are_equal(arrow: pa.DataType, number: pa.DataType) -> None:
    quiet = comparable(pa.array([NAN], arrow))
    signalling = 0x7FA00001 if number == pa.int32() else 0x7FF4000000000001
    other = comparable(pa.array([signalling], number).view(arrow))

    assert quiet.equals(other)


def test_field_of_a_null_struct_is_null() -> None:
    inner = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["x"], mask=pa.array([False, True, False]))
    outer = pa.StructArray.from_arrays([inner], ["s"], mask=pa.array([False, False, True]))

    assert leaf_of(outer).to_pylist() == [1, None, None]
