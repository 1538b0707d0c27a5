from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import given

from delta_sharing_client.parquet.byte_ranges import ByteRange, coalesce, merge, split, subtract
from tests.quota import meets, met

RANGES = st.lists(st.builds(lambda a, n: ByteRange(a, a + n), st.integers(0, 2000), st.integers(0, 300)), max_size=12)


def covered(ranges: list[ByteRange]) -> set[int]:
    return {byte for item in ranges for byte in range(item.start, item.stop)}


@meets(merged=22, apart=17)
@given(RANGES)
def test_merged_ranges_are_the_union_sorted_and_apart(ranges: list[ByteRange]) -> None:
    merged = merge(ranges)
    met("merged", len(merged) < len(ranges))
    met("apart", len(merged) > 1)
    assert covered(merged) == covered(ranges)
    assert all(left.stop < right.start for left, right in itertools.pairwise(merged))


@meets(closed=6, apart=15)
@given(RANGES, st.integers(0, 400), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 200))
def test_coalesced_ranges_cover_all_within_the_waste_allowed(
    ranges: list[ByteRange], gap: int, share: float, floor: int
) -> None:
    found = coalesce(ranges, gap=gap, waste_share=share, waste_floor=floor)
    needed = covered(ranges)
    met("closed", len(found) < len(merge(ranges)))
    met("apart", len(found) > 1)
    assert needed <= covered(found)
    assert len(covered(found)) - len(needed) <= max(floor, share * len(needed))
    assert len(found) <= len(merge(ranges))


def test_narrow_gaps_are_closed_before_wide_ones() -> None:
    ranges = [ByteRange(0, 100), ByteRange(130, 200), ByteRange(205, 300)]
    assert coalesce(ranges, gap=50, waste_share=0.0, waste_floor=10) == [ByteRange(0, 100), ByteRange(130, 300)]


@meets(overlap=19, left=12)
@given(RANGES, RANGES)
def test_a_difference_is_what_the_others_do_not_cover(ranges: list[ByteRange], held: list[ByteRange]) -> None:
    met("overlap", covered(ranges) & covered(held))
    met("left", covered(ranges) & covered(held) and covered(ranges) - covered(held))
    assert covered(subtract(ranges, held)) == covered(ranges) - covered(held)


@meets(many=8, one=15)
@given(st.integers(0, 1000), st.integers(1, 5000), st.integers(1, 1000))
def test_parts_are_the_whole_in_order(start: int, length: int, part: int) -> None:
    parts = split(ByteRange(start, start + length), part)
    met("many", len(parts) > 2)
    met("one", len(parts) == 1)
    assert parts[0].start == start
    assert parts[-1].stop == start + length
    assert all(left.stop == right.start for left, right in itertools.pairwise(parts))
    assert all(item.length <= max(1.5 * part + 1, 1) for item in parts)


@pytest.mark.parametrize("length", [0, 1])
def test_tiny_ranges_are_one_part(length: int) -> None:
    assert split(ByteRange(5, 5 + length), 100) == [ByteRange(5, 5 + length)]
