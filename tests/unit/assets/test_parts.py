"""A partial download of a large file is continued, even with parts of a different size."""

from __future__ import annotations

import pathlib
import tempfile
import threading
from collections.abc import Callable
from typing import cast

import hypothesis.strategies as st
import pytest
from hypothesis import given

from delta_sharing_client.assets.parts import LargeFile
from delta_sharing_client.fetch.place import StoredFile
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


class _LateLock:
    """A lock that is taken without waiting only after ``before`` has been called: another thread was quicker."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._lock, self._before = threading.Lock(), before

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self, blocking: bool) -> bool:
        assert not blocking
        self._before()
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("is_compared", [True, False], ids=["the MD5 is compared", "it is not"])
def test_file_may_be_moved_while_a_thread_notes_a_part(tmp_path: pathlib.Path, is_compared: bool) -> None:
    large = LargeFile(StoredFile("f", 8, None, "e"), tmp_path / "f", 4, 0, is_hashed=True)

    def complete() -> None:
        assert large.note(4)
        if is_compared:
            large.digest()
        else:
            large.stop_hashing()
        large.path.rename(tmp_path / "moved")

    large._hashing = cast("threading.Lock", _LateLock(complete))
    assert not large.note(0)
    assert (tmp_path / "moved").stat().st_size == 8
