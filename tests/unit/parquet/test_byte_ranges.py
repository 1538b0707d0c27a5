from __future__ import annotations

import io
import itertools

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange, SparseFile, coalesce, merge, split, subtract
from tests.quota import meets, met

RANGES = st.lists(st.builds(lambda a, n: ByteRange(a, a + n), st.integers(0, 2000), st.integers(0, 300)), max_size=12)


def covered(ranges: list[ByteRange]) -> set[int]:
    return {byte for item in ranges for byte in range(item.start, item.stop)}


@meets(merged=22, apart=17)
@given(RANGES)
def test_merged_ranges_are_sorted_disjoint_and_equal_the_union(ranges: list[ByteRange]) -> None:
    merged = merge(ranges)
    met("merged", len(merged) < len(ranges))
    met("apart", len(merged) > 1)
    assert covered(merged) == covered(ranges)
    assert all(left.stop < right.start for left, right in itertools.pairwise(merged))
    assert all(item.length > 0 for item in merged)


def test_adjacent_ranges_are_merged() -> None:
    assert merge([ByteRange(5, 9), ByteRange(0, 5), ByteRange(10, 11)]) == [ByteRange(0, 9), ByteRange(10, 11)]


@meets(closed=6, apart=15)
@given(RANGES, st.integers(0, 400), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 200), st.integers(0, 50))
def test_coalesced_ranges_cover_all_with_limited_waste(
    ranges: list[ByteRange], gap: int, share: float, floor: int, each: int
) -> None:
    found = coalesce(ranges, gap=gap, waste_share=share, waste_floor=floor, waste_each=each)
    needed = covered(ranges)
    met("closed", len(found) < len(merge(ranges)))
    met("apart", len(found) > 1)
    assert needed <= covered(found)
    allowed = max(floor, share * len(needed))
    gaps = [right.start - left.stop for left, right in itertools.pairwise(merge(ranges))]
    assert len(covered(found)) - len(needed) <= allowed + sum(width for width in gaps if width <= each)
    assert all(right.start - left.stop > each for left, right in itertools.pairwise(found))
    assert len(found) <= len(merge(ranges))


def test_narrow_gaps_are_closed_before_wide_ones() -> None:
    ranges = [ByteRange(0, 100), ByteRange(130, 200), ByteRange(205, 300)]
    assert coalesce(ranges, gap=50, waste_share=0.0, waste_floor=10, waste_each=0) == [
        ByteRange(0, 100),
        ByteRange(130, 300),
    ]


@pytest.mark.parametrize(
    ("limits", "gaps"),
    [
        ({"gap": 30, "waste_floor": 100, "waste_share": 0.0}, []),
        ({"gap": 29, "waste_floor": 100, "waste_share": 0.0}, [30]),
        ({"gap": 30, "waste_floor": 35, "waste_share": 0.0}, []),
        ({"gap": 30, "waste_floor": 34, "waste_share": 0.0}, [30]),
        ({"gap": 30, "waste_floor": 4, "waste_share": 0.0}, [30, 5]),
        # The ranges have 200 bytes.
        ({"gap": 30, "waste_floor": 0, "waste_share": 0.175}, []),
        ({"gap": 30, "waste_floor": 0, "waste_share": 0.174}, [30]),
        ({"gap": 30, "waste_floor": 5, "waste_share": 0.02}, [30]),
        ({"gap": 0, "waste_floor": 100, "waste_share": 1.0}, [30, 5]),
        ({"gap": 30, "waste_floor": 0, "waste_share": 0.0, "waste_each": 29}, [30]),
        ({"gap": 30, "waste_floor": 0, "waste_share": 0.0, "waste_each": 30}, []),
        ({"gap": 30, "waste_floor": 30, "waste_share": 0.0, "waste_each": 5}, []),
        ({"gap": 30, "waste_floor": 29, "waste_share": 0.0, "waste_each": 5}, [30]),
    ],
)
def test_gaps_are_closed_up_to_each_limit(limits: dict[str, float], gaps: list[int]) -> None:
    joined = coalesce([ByteRange(10, 110), ByteRange(140, 200), ByteRange(205, 245)], **{"waste_each": 0, **limits})
    assert [right.start - left.stop for left, right in itertools.pairwise(joined)] == gaps
    assert (joined[0].start, joined[-1].stop) == (10, 245)


def test_two_ranges_are_joined_in_any_order() -> None:
    assert coalesce([ByteRange(20, 30), ByteRange(0, 10)], gap=10, waste_floor=10) == [ByteRange(0, 30)]
    assert coalesce([]) == []


@meets(overlap=19, left=12)
@given(RANGES, RANGES)
def test_subtraction_returns_the_uncovered_ranges(ranges: list[ByteRange], held: list[ByteRange]) -> None:
    met("overlap", covered(ranges) & covered(held))
    met("left", covered(ranges) & covered(held) and covered(ranges) - covered(held))
    found = subtract(ranges, held)
    assert covered(found) == covered(ranges) - covered(held)
    assert all(item.length > 0 for item in found)


@meets(many=8, one=15)
@given(st.integers(0, 1000), st.integers(1, 5000), st.integers(1, 1000))
def test_parts_of_a_range_cover_it_in_order(start: int, length: int, part: int) -> None:
    parts = split(ByteRange(start, start + length), part)
    met("many", len(parts) > 2)
    met("one", len(parts) == 1)
    assert parts[0].start == start
    assert parts[-1].stop == start + length
    assert all(left.stop == right.start for left, right in itertools.pairwise(parts))
    assert all(item.length <= max(1.5 * part + 1, 1) for item in parts)


@pytest.mark.parametrize(
    ("length", "part", "lengths"),
    [
        (100, 50, [50, 50]),
        (149, 100, [149]),
        (151, 100, [75, 76]),
        (10, 3, [3, 3, 4]),
        (10, 0, [10]),
        (10, -1, [10]),
        (3, 1, [1, 1, 1]),
        (0, 100, [0]),
        (1, 100, [1]),
    ],
)
def test_a_range_is_split_into_almost_equal_parts(length: int, part: int, lengths: list[int]) -> None:
    assert [item.length for item in split(ByteRange(7, 7 + length), part)] == lengths


# === Sparse files ===

WHOLE = bytes(range(100))


def block(start: int, stop: int) -> ByteBlock:
    return ByteBlock(start, pa.py_buffer(WHOLE[start:stop]))


BLOCKS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(20, 60)).map(lambda item: block(item[0], min(100, sum(item)))), max_size=7
)


@meets(one=10, several=4, missing=10)
@given(BLOCKS, st.integers(0, 99), st.integers(1, 60))
def test_a_sparse_file_has_the_bytes_of_its_blocks_and_no_others(
    blocks: list[ByteBlock], start: int, length: int
) -> None:
    stop = min(100, start + length)
    known = {byte for item in blocks for byte in range(item.start, item.stop)}
    file = SparseFile(100, blocks)
    if not known >= set(range(start, stop)):
        met("missing")
        with pytest.raises(DataError, match=f"Bytes {start} to {stop} of a data file are needed"):
            file.slice(start, stop - start)
        return
    found = file.slice(start, stop - start)
    assert found.to_pybytes() == WHOLE[start:stop]
    # Bytes within one block are not copied.
    held = [item for item in blocks if item.start <= start and stop <= item.stop]
    met("one" if held else "several")
    addresses = {item.data.address + start - item.start for item in held}
    assert not held or found.address in addresses


def test_sparse_file_reads_and_seeks_like_a_file() -> None:
    with SparseFile(100, [block(60, 100), block(0, 60)]) as file, io.BytesIO(WHOLE) as oracle:
        assert (file.readable(), file.seekable(), file.tell()) == (True, True, 0)
        for offset, whence, length in [
            (10, 0, 5), (0, 1, 3), (-2, 1, 4), (-7, 2, 3), (0, 2, 4), (-7, 2, 30), (0, 0, 100), (3, 0, 0), (59, 0, 1),
            (0, 1, 1), (90, 0, -1), (80, 0, None), (0, 0, -1), (99, 0, 1), (55, 0, 10), (0, 0, -2),
        ]:  # fmt: skip
            assert file.seek(offset, whence) == oracle.seek(offset, whence)
            data = file.read(length)
            assert isinstance(data, bytes)  # a buffer is equal to its bytes
            assert data == oracle.read(length)
            assert file.tell() == oracle.tell()
        # A read after the end returns no bytes.
        file.seek(101)
        assert file.read(5) == file.read(-1) == file.read_buffer().to_pybytes() == b""
        assert file.tell() == 101


def test_rebuilt_chunks_replace_bytes_of_the_file() -> None:
    other = pa.py_buffer(b"other")
    file = SparseFile(100, [block(0, 100)], {(10, 5): other})
    assert file.slice(10, 5).to_pybytes() == b"other"
    assert file.slice(10, 4).to_pybytes() == WHOLE[10:14]
    assert SparseFile(100, []).closed is False
