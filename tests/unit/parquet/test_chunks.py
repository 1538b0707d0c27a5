"""Column chunks read from footers, and values that the Parquet reader takes on trust."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.read.align import checker
from tests.quota import meets, met
from tests.unit.storages import Table, parquet_bytes
from tests.versions import PYARROW

MakeTable = Callable[..., Table]

ROWS = pa.table(
    {
        "i": pa.array([3, None, -1], pa.int32()),
        "l": [2**60, 1, None],
        "d": [0.5, -1.0, 2.0],
        "f": pa.array([0.5, -1.0, 2.0], pa.float32()),
        "b": [True, False, None],
        "t": ["ä", None, "z" * 40],
        "y": [b"\xff", b"", None],
        "at": pa.array([datetime.datetime(2020, 1, 1)] * 3, pa.timestamp("us")),
        "n": pa.array([Decimal("1.5"), None, Decimal("-2")], pa.decimal128(38, 3)),
        "s": [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}],
        "v": [[1, 2], [], None],
    }
)


def chunks_of(data: bytes) -> tuple[Chunks, pq.FileMetaData]:
    footer = parse_footer(pa.py_buffer(data), len(data))
    return Chunks(footer.data, range(footer.metadata.num_columns), footer.start), footer.metadata


@pytest.mark.parametrize(
    "write",
    [
        {},
        {"use_dictionary": False, "compression": "none", "row_group_size": 1},
        {"data_page_version": "2.0", "write_page_index": True, "row_group_size": 2},
        {"write_statistics": ["i", "t"], "store_schema": False},
    ],
    ids=str,
)
def test_chunks_are_those_that_pyarrow_reads(write: dict[str, Any]) -> None:
    chunks, metadata = chunks_of(parquet_bytes(ROWS, **write))

    assert chunks.created_by == metadata.created_by
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            theirs = metadata.row_group(group).column(leaf)
            statistics = theirs.statistics
            bounded = statistics is not None and statistics.has_min_max
            start = theirs.dictionary_page_offset if theirs.has_dictionary_page else theirs.data_page_offset
            found = chunks.get(group, leaf)
            assert found[:6] == (
                start,
                theirs.total_compressed_size,
                theirs.total_uncompressed_size,
                statistics.null_count if statistics is not None else None,
                (statistics.min_raw, statistics.max_raw) if bounded else None,
                theirs.num_values,
            )
            assert (found.offset_index is not None) == theirs.has_offset_index
            assert (found.column_index is not None) == theirs.has_column_index


def test_a_chunk_that_the_footer_does_not_have_is_refused() -> None:
    chunks, metadata = chunks_of(parquet_bytes(ROWS))
    for place in ((1, 0), (0, metadata.num_columns)):
        with pytest.raises(DataError, match="no column chunk"):
            chunks.get(*place)


@meets(read=5, refused=10)
@given(data=st.data())
def test_any_damage_of_a_footer_is_read_or_refused(data: st.DataObject) -> None:
    blob = parquet_bytes(ROWS, row_group_size=2)
    footer = bytearray(parse_footer(pa.py_buffer(blob), len(blob)).data.to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(footer) - 1))
        footer[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1) | st.binary(max_size=3))
    cut = data.draw(st.just(len(footer)) | st.integers(0, len(footer)))
    chunks = Chunks(pa.py_buffer(bytes(footer[:cut])), range(14), 10_000)
    try:
        found = chunks.get(0, 0)
    except DataError:
        met("refused")
        return
    met("read")
    assert 0 <= found.start <= found.start + found.length <= 10_000


# === What would end the process, were pyarrow asked ===


def shortened_statistics(column: pa.Array) -> bytes:
    """A file whose footer gives a 64-bit column a maximum of three bytes."""
    blob = parquet_bytes(pa.table({"c": column}), compression="none", use_dictionary=False)
    length = int.from_bytes(blob[-8:-4], "little")
    footer = blob[-8 - length : -8]
    at = footer.index(b"\x28\x08")  # field max_value, eight bytes
    footer = footer[: at + 1] + b"\x03" + footer[at + 2 : at + 5] + footer[at + 10 :]
    return blob[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_statistics_of_a_wrong_length_are_refused(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("c", pa.int64())]))
    table.add(shortened_statistics(pa.array([1, 2, 3], pa.int64())))
    for request, rows in ({"filter": parse_filter("c > 1")}, [2, 3]), ({}, [1, 2, 3]):
        if PYARROW < 15:
            # It does not look at statistics whose bounds nobody needs, and the rows are right.
            assert table.read(**request).to_pydict() == {"c": rows}
            continue
        with pytest.raises(DataError, match=r"share\.schema\.t.*id-part-0"):
            table.read(**request)


def test_a_row_group_without_a_columns_chunk_is_refused(make_table: MakeTable) -> None:
    wide, narrow = (
        parquet_bytes(pa.table(dict.fromkeys(names, range(1000))), store_schema=False) for names in ("ab", "a")
    )
    footers = [parse_footer(pa.py_buffer(blob), len(blob)).data.to_pybytes() for blob in (wide, narrow)]
    # The schema of two columns with the row groups of one: field 4 of the file's metadata, a list of one struct.
    groups = [footer.index(b"\x19\x1c\x19") for footer in footers]
    footer = footers[0][: groups[0]] + footers[1][groups[1] :]
    table = make_table(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.add(wide[: -8 - len(footers[0])] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    for request in ({"columns": ["b"]}, {"filter": parse_filter("b > 5")}, {}):
        with pytest.raises(DataError, match=r"share\.schema\.t.*id-part-0"):
            table.read(**request)


# === Impossible values ===


def text_of(*parts: bytes) -> pa.StringArray:
    """Text that nobody checked."""
    return pa.array(parts, pa.binary()).view(pa.string())


BAD = [text_of(b"ok", b"\xff"), text_of(b"\xc3", b"\xa4"), text_of(b"", b"\xe2\x82"), text_of(b"a", b"\xed\xa0\x80")]


@pytest.mark.parametrize("bad", BAD)
def test_text_that_is_no_utf8_is_refused(make_table: MakeTable, bad: pa.Array) -> None:
    table = make_table(pa.schema([("t", pa.string())]))
    table.add(pa.table({"t": bad}))
    with pytest.raises(DataError, match=r"'t'.*share\.schema\.t.*id-part-0"):
        table.read()


@pytest.mark.parametrize("bad", BAD)
def test_text_inside_other_values_is_checked_too(bad: pa.Array) -> None:
    good = pa.array(["x"] * len(bad))
    offsets = pa.array([0, len(bad)], pa.int32())
    nested = [
        pa.StructArray.from_arrays([good, bad], ["a", "b"]),
        pa.ListArray.from_arrays(offsets, bad),
        pa.MapArray.from_arrays(offsets, good, bad),
        pa.MapArray.from_arrays(offsets, bad, good),
        pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([bad], ["b"])),
    ]
    for array in nested:
        check = checker(array.type)
        assert check is not None
        with pytest.raises(pa.ArrowInvalid):
            check(array)


def test_a_decimal_of_too_many_digits_is_refused() -> None:
    check = checker(pa.decimal128(3, 0))
    assert check is not None
    with pytest.raises(pa.ArrowInvalid):
        check(pa.array([Decimal(12345)], pa.decimal128(5, 0)).view(pa.decimal128(3, 0)))


@meets(text=6, null=11, cut=9)
@given(st.lists(st.none() | st.text(max_size=6), max_size=20), st.integers(0, 10), st.integers(0, 10))
def test_text_passes_however_it_is_sliced(values: list[str | None], start: int, length: int) -> None:
    met("text", any(values[start : start + length]))
    met("null", None in values[start : start + length])
    met("cut", 0 < start < len(values) and length)
    check = checker(pa.string())
    assert check is not None
    check(pa.array(values, pa.string()).slice(start, length))


def test_types_without_impossible_values_are_not_checked() -> None:
    for data_type in (pa.int64(), pa.binary(), pa.list_(pa.int64()), pa.struct([("x", pa.float64())])):
        assert checker(data_type) is None


def test_parquet_written_by_pyarrow_round_trips_through_the_checks() -> None:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink)
    for column in pq.read_table(sink).columns:
        check = checker(column.type)
        for chunk in column.chunks if check is not None else ():
            check(chunk)


def test_a_chunk_may_end_where_the_footer_begins_and_not_behind() -> None:
    blob = parquet_bytes(ROWS)
    footer = parse_footer(pa.py_buffer(blob), len(blob)).data
    leaves = range(len(ROWS.schema))

    def end(chunks: Chunks) -> int:
        return max(found.start + found.length for found in (chunks.get(0, leaf) for leaf in leaves))

    last = end(Chunks(footer, leaves, len(blob)))
    exact = Chunks(footer, leaves, last)
    assert not exact.is_decoded
    assert end(exact) == last
    assert exact.is_decoded
    with pytest.raises(DataError, match=f"to {last}, outside of the file"):
        Chunks(footer, leaves, last - 1).get(0, 0)


@pytest.mark.parametrize("place", [0, 1, 2500, 4997])
def test_a_character_that_two_of_many_texts_share_is_no_text(place: int) -> None:
    """All bytes together are UTF-8; no text of their own are those of the two."""
    check = checker(pa.string())
    assert check is not None
    whole = [b"a", b"", "é".encode(), b""] * 1250
    for start in (0, 3):
        check(pa.array([b"x"] * start + whole, pa.binary()).view(pa.string()).slice(start))
        halves = [b"x"] * start + whole
        halves[start + place : start + place + 2] = [b"\xc3", b"\xa9"]
        with pytest.raises(pa.ArrowInvalid):
            check(pa.array(halves, pa.binary()).view(pa.string()).slice(start))
