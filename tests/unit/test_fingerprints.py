"""Fingerprints map names to numbers and store only a few bytes for each name."""

from __future__ import annotations

import array
import random

from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.fingerprints import Fingerprints, hashes, second_hashes
from tests.quota import meets, met


@meets(twice=13, other=10, several=13)
@given(st.lists(st.lists(st.text(max_size=3), max_size=60), max_size=20), st.lists(st.text(max_size=3)))
def test_first_number_added_for_a_name_is_kept(parts: list[list[str]], others: list[str]) -> None:
    found, expected = Fingerprints(), dict[str, int]()
    met("several", len([part for part in parts if part]) > 1)
    for part in parts:
        numbers = second_hashes([f"{name} {len(expected)}" for name in part])
        found.add(hashes(part), numbers)
        for name, number in zip(part, numbers, strict=True):
            met("twice", name in expected)
            expected.setdefault(name, number)
    met("other", set(others) - set(expected))
    asked = [*expected, *others]
    assert found.get(hashes(asked)).tolist() == [expected.get(name, 0) for name in asked]
    assert [found.number(name) for name in asked] == [expected.get(name, 0) for name in asked]
    assert [found.has_any([name]) for name in others] == [name in expected for name in others]
    assert found.has_any(asked) is bool(expected)


def test_map_takes_16_bytes_per_name_and_has_few_runs() -> None:
    result = Fingerprints()
    names = [f"{number:032x}" for number in range(60_000)]
    random.Random(1).shuffle(names)
    for first in range(0, len(names), 100):
        part = names[first : first + 100]
        result.add(hashes(part), second_hashes(part))
    assert result.get(hashes(names)).tolist() == second_hashes(names).tolist()
    assert not result.get(hashes(name + "x" for name in names)).any()
    assert sum(array.nbytes for run in result._runs for array in run) == 16 * len(names)
    assert len(result._runs) < 5


def test_smallest_and_largest_hashes_are_found() -> None:
    result = Fingerprints()
    ends = array.array("q", [-(2**63), 2**63 - 1])
    assert result.get(ends).tolist() == [0, 0]
    result.add(ends, array.array("q", [1, -1]))
    assert result.get(ends).tolist() == [1, -1]
    assert result.get(array.array("q", [0, 2**63 - 2])).tolist() == [0, 0]
    assert result.get(array.array("q")).tolist() == []


@meets(several=22, wide=22)
@given(st.lists(st.text()))
def test_second_hash_of_a_name_is_never_0(names: list[str]) -> None:
    met("several", len(names) > 1)
    met("wide", not "".join(names).isascii())
    first, second = hashes(names), second_hashes(names)
    assert len(first) == len(second) == len(names)
    assert len(set(zip(first, second, strict=True))) == len(set(names))
    assert 0 not in second
