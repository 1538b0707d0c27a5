"""A partial download of a large file is continued, even with parts of a different size."""

from __future__ import annotations

import pathlib
import tempfile

import hypothesis.strategies as st
from hypothesis import given

from delta_sharing_client.assets.parts import LargeFile
from delta_sharing_client.storage.place import StoredFile
from tests.quota import meets, met

_PART_SIZES = st.sampled_from([1, 2, 3, 4, 8, 100])


@meets(continued=20)
@given(size=st.integers(1, 40), runs=st.lists(st.tuples(_PART_SIZES, st.sets(st.integers(0, 40))), min_size=2))
def test_download_continues_with_parts_of_a_different_size(size: int, runs: list[tuple[int, set[int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        noted: set[int] = set()
        before = 0
        for part_bytes, complete in runs:
            large = LargeFile(
                StoredFile("f", size, None, "e"), pathlib.Path(folder, "f"), part_bytes, 0, is_hashed=False
            )
            starts = range(0, size, part_bytes)
            missing = [start for start in starts if not noted.issuperset(range(start, large.stop(start)))]
            met("continued", part_bytes != before and 0 < len(missing) < len(starts))

            assert list(iter(large.take, None)) == missing

            if len(missing) == len(starts):
                noted.clear()
            for start in complete.intersection(missing):
                large.note(start)
                noted.update(range(start, large.stop(start)))
            before = part_bytes
