"""INT96 timestamps with any nanoseconds and any day: rows are what integers give, at each position in a file."""

from __future__ import annotations

import datetime
import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.int96 import Int96File, instants
from delta_sharing_client.predicates.parse import parse_filter
from tests.effort import examples
from tests.int96 import NANOS_PER_DAY, RAW, int96_bytes, negative, packed
from tests.quota import meets, met
from tests.unit.decode.eager import make_eager
from tests.unit.storages import Table
from tests.vectors import encode_inline

MakeTable = Callable[..., Table]
UTC = pa.timestamp("us", tz="UTC")
DAY = NANOS_PER_DAY // 1000
# Days since 1970 and nanoseconds: negative ones, more than a day, both ends of the range, and numbers that wrap around
# to times of this century.
PAIRS = [
    (0, 0),
    (0, -1000),
    (-7154, 12 * 3600 * 10**9),
    (-7153, -12 * 3600 * 10**9),
    (-213_503, -1_000_000),
    (20_000, NANOS_PER_DAY + 5000),
    (20_000, 2**63 - 1),
    (20_000, -(2**63)),
    (20_000, -1),
    (2_932_896, NANOS_PER_DAY - 1000),
    (-719_162, 0),
    (106_751_991, (2**63 - 1 - 106_751_991 * DAY) * 1000),
    (-106_751_992, (-(2**63) + 106_751_992 * DAY) * 1000),
    (-106_751_991, -(106_751_991 - 105_000_000)),
]
OUTSIDE = [
    (106_751_991, (2**63 - 106_751_991 * DAY) * 1000),
    (-106_751_992, (-(2**63) + 106_751_992 * DAY - 1) * 1000),
    (2**31 - 1 - 2_440_588, 0),
    (-(2**31) - 2_440_588, 0),
    (213_503_982, 0),
]


def micros(days: int, nanos: int) -> int:
    return (days * NANOS_PER_DAY + nanos) // 1000


RAW_VALUES = [None if pair is None else packed(*pair) for pair in [*PAIRS, None]]
EXPECTED = [*itertools.starmap(micros, PAIRS), None]


def place(values: list[Any], where: str) -> tuple[list[Any], Callable[[pa.DataType], pa.DataType]]:
    """Return rows with ``values`` at a position in a column, and a function that returns the column's type."""
    pairs = [values[at : at + 2] for at in range(0, len(values), 2)]
    positions: dict[str, tuple[list[Any], Callable[[pa.DataType], pa.DataType]]] = {
        "top": (values, lambda kind: kind),
        "struct": ([None, *({"t": value} for value in values)], lambda kind: pa.struct([("t", kind)])),
        "list": ([None, [], *pairs], lambda kind: pa.list_(pa.field("element", kind))),
        "map value": ([[("a", value)] for value in values] + [None, []], lambda kind: pa.map_(pa.string(), kind)),
        "map key": ([[(value, 1)] for value in values if value is not None], lambda kind: pa.map_(kind, pa.int64())),
        "struct in list": (
            [[{"t": value, "n": 1}, None] for value in values],
            lambda kind: pa.list_(pa.field("element", pa.struct([("n", pa.int64()), ("t", kind)]))),
        ),
        "list in map in struct": (
            [{"m": [("a", [value, value])]} for value in values],
            lambda kind: pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.field("element", kind))))]),
        ),
    }
    return positions[where]


POSITIONS = ["top", "struct", "list", "map value", "map key", "struct in list", "list in map in struct"]
WRITES: dict[str, dict[str, Any]] = {
    "dictionary": {"use_dictionary": True},
    "plain": {"use_dictionary": False, "compression": "none"},
    "a dictionary that became too long": {"dictionary_pagesize_limit": 24, "write_batch_size": 1, "data_page_size": 1},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "row groups": {"row_group_size": 3},
}


@pytest.mark.parametrize("write", list(WRITES))
@pytest.mark.parametrize("where", POSITIONS)
def test_values_are_exact_at_each_position(
    make_table: MakeTable, where: str, write: str, tmp_path: pathlib.Path
) -> None:
    raw, of = place(RAW_VALUES, where)
    expected, _ = place(EXPECTED, where)
    table = make_table(pa.schema([("c", of(UTC))]))
    data = int96_bytes(pa.table({"c": pa.array(raw, of(RAW))}), **WRITES[write])
    table.add(data)
    assert table.read()["c"].combine_chunks().equals(pa.array(expected, of(UTC)))


@pytest.mark.parametrize("days", [-7154, -1, 0, 20_000])
def test_duckdb_reads_the_same_instant(make_table: MakeTable, days: int, tmp_path: pathlib.Path) -> None:
    pairs = [(days, 10**9), (days + 1, 10**9 - NANOS_PER_DAY), (days - 1, 10**9 + NANOS_PER_DAY)]
    data = int96_bytes(pa.table({"c": pa.array([packed(*pair) for pair in pairs], RAW)}))
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    table = make_table(pa.schema([("c", UTC)]))
    table.add(data)
    others = [row[0] for row in duckdb.sql(f"select epoch_us(c) from '{path}'").fetchall()]
    assert table.read()["c"].cast(pa.int64()).to_pylist() == others == [days * DAY + 10**6] * 3


@pytest.mark.parametrize("where", POSITIONS)
@pytest.mark.parametrize("pair", OUTSIDE, ids=str)
def test_times_outside_of_64_bits_are_refused(make_table: MakeTable, where: str, pair: tuple[int, int]) -> None:
    raw, of = place([packed(*pair), packed(0, 0)], where)
    table = make_table(pa.schema([("c", of(UTC))]))
    table.add(int96_bytes(pa.table({"c": pa.array(raw, of(RAW))})))
    with pytest.raises(DataError, match=r"INT96 timestamp -?\d+ days after .* 64 bits") as caught:
        table.read()
    assert "'c'" in str(caught.value)
    assert "id-part-0" in str(caught.value)


DAYS = st.integers(-(2**31), 2**31 - 1) | st.integers(2_000_000, 2_500_000)
NANOS = st.integers(-(2**63), 2**63 - 1) | st.integers(-NANOS_PER_DAY, NANOS_PER_DAY)


@meets(negative=10, outside=3, nulls=5)
@settings(max_examples=examples(600), deadline=None)
@given(st.lists(st.none() | st.tuples(DAYS, NANOS), max_size=3))
def test_arithmetic_is_that_of_integers(pairs: list[tuple[int, int] | None]) -> None:
    raw = pa.array([None if pair is None else packed(pair[0] - 2_440_588, pair[1]) for pair in pairs], RAW)
    expected = [None if pair is None else micros(pair[0] - 2_440_588, pair[1]) for pair in pairs]
    is_outside = any(value is not None and not -(2**63) <= value < 2**63 for value in expected)
    met("negative", any(pair is not None and pair[1] < 0 for pair in pairs))
    met("outside", is_outside)
    met("nulls", None in pairs)
    if is_outside:
        with pytest.raises(pa.ArrowInvalid):
            instants(raw)
        return
    assert instants(raw).cast(pa.int64()).to_pylist() == expected
    assert instants(raw[1:]).cast(pa.int64()).to_pylist() == expected[1:]


def test_removed_rows_may_have_any_bytes(make_table: MakeTable) -> None:
    raw = [packed(0, -1000), packed(*OUTSIDE[0]), packed(1, -1000)]
    rows = pa.table({"c": pa.array(raw, RAW), "l": pa.array([[value] for value in raw], pa.list_(RAW))})
    table = make_table(pa.schema([("c", UTC), ("l", pa.list_(UTC))]))
    vector = encode_inline(DeletionVector.from_positions([1]))
    table.add(int96_bytes(rows), deletion_vector=vector, removed=[1])
    assert table.read()["c"].cast(pa.int64()).to_pylist() == [-1, DAY - 1]
    assert [row[0].microsecond for row in table.read()["l"].to_pylist()] == [999_999] * 2


@pytest.mark.parametrize("is_required", [False, True])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_rows_of_skipped_pages_stay_in_their_place(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, is_required: bool, use_dictionary: bool
) -> None:
    make_eager(monkeypatch)
    days = range(4000)
    raw = pa.array([packed(day, -1000) for day in days], RAW)
    fields = [pa.field("n", pa.int64()), pa.field("c", RAW, nullable=not is_required)]
    rows = pa.Table.from_arrays([pa.array(days), raw], schema=pa.schema(fields))
    paged = {"write_page_index": True, "data_page_size": 512, "write_batch_size": 64, "write_statistics": ["n"]}
    table = make_table(pa.schema([("n", pa.int64()), ("c", UTC)]))
    table.add(int96_bytes(rows, **paged, use_dictionary=["c"] if use_dictionary else False))
    report = ScanReport()
    read = table.read(report, filter=parse_filter("n IN (70, 2000, 3999)"))
    assert read["n"].to_pylist() == [70, 2000, 3999]
    assert read["c"].cast(pa.int64()).to_pylist() == [day * DAY - 1 for day in (70, 2000, 3999)]
    assert report.pages_skipped


def test_filters_compare_the_exact_values(make_table: MakeTable) -> None:
    values = [datetime.datetime(1950, 6, 1, 12), datetime.datetime(2534, 12, 20), datetime.datetime(1969, 12, 31, 23)]
    rows = pa.table({"c": pa.array(map(negative, values), RAW)})
    for target in (UTC, pa.timestamp("us")):
        table = make_table(pa.schema([("c", target)]))
        table.add(int96_bytes(rows))
        read = table.read(filter=parse_filter("c < '1960-01-01 00:00:00'"))["c"].to_pylist()
        assert [value.replace(tzinfo=None) for value in read] == values[:1]


def test_files_of_one_table_have_both_forms(make_table: MakeTable) -> None:
    """Files with the same Arrow schema need not have the same physical types."""
    table = make_table(pa.schema([("c", UTC)]))
    moment = datetime.datetime(1950, 6, 1, 12)
    table.add(int96_bytes(pa.table({"c": pa.array([negative(moment)], RAW)})))
    table.add(pa.table({"c": pa.array([moment], pa.timestamp("us"))}), write={"store_schema": False})
    table.add(int96_bytes(pa.table({"c": pa.array([negative(moment)], RAW)})))
    assert [value.replace(tzinfo=None) for value in table.read()["c"].to_pylist()] == [moment] * 3


def test_twelve_bytes_that_are_no_time_stay_bytes(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("c", UTC), ("b", pa.binary())]))
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table({"c": pa.array([datetime.datetime(2000, 1, 1)]), "b": pa.array([b"x" * 12], RAW)}),
        sink,
        use_deprecated_int96_timestamps=True,
    )
    table.add(sink.getvalue().to_pybytes())
    assert table.read().to_pylist() == [
        {"c": datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc), "b": b"x" * 12}
    ]


@pytest.mark.parametrize("where", POSITIONS)
def test_local_files_have_exact_values_at_each_position(where: str, tmp_path: pathlib.Path) -> None:
    raw, of = place(RAW_VALUES, where)
    expected, _ = place(EXPECTED, where)
    rows = pa.table({"n": pa.array(range(len(raw))), "c": pa.array(raw, of(RAW))})
    (tmp_path / "a.parquet").write_bytes(int96_bytes(rows))
    with (tmp_path / "a.parquet").open("rb") as stream:
        file = Int96File(stream)
        batches = list(file.iter_batches(columns=["c"]))
    read = pa.Table.from_batches(batches)["c"].combine_chunks()
    assert read.type == file.schema_arrow.field("c").type
    assert read.cast(of(pa.timestamp("us"))).equals(pa.array(expected, of(pa.timestamp("us"))))
