"""How many files a batch admits: batch sizes for two reference tables, and the rules for single cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import AddFile, SharedFile
from delta_sharing_client.follow.admission import BatchLimits, Position, VersionFiles, admit
from tests.quota import meets, met


def offered(version: int, sizes: tuple[int, ...] = (), units: tuple[int, ...] = ()) -> VersionFiles:
    return VersionFiles(version, tuple(SharedFile(AddFile(path="x", size=size)) for size in sizes), units)


# Like the JVM connector's fixture `streaming_cdf_table`: one file of 2 rows, one of 3, four change files with 8 rows,
# two removed files with 4 rows. With these sizes, byte limits split the files as they split the fixture.
CHANGES = (
    offered(0),
    offered(1, (750,), (0,)),
    offered(2, (760,), (0,)),
    offered(3, (1200, 1210, 1220, 1230), (0, 0, 0, 0)),
    offered(4, (900, 910), (0, 1)),
)
CHANGE_ROWS = {1: (2,), 2: (3,), 3: (2, 2, 2, 2), 4: (2, 2)}
# Like ``cdf_table_cdf_enabled`` without its change feed: four added files of about one kilobyte.
APPENDS = (
    offered(0),
    offered(1, (1030, 1030, 1030), (0, 1, 2)),
    offered(2),
    offered(3, (1100,), (0,)),
    offered(4),
    offered(5),
)
APPEND_ROWS = {1: (1, 1, 1), 3: (1,)}


def batches(
    versions: tuple[VersionFiles, ...], rows: dict[int, tuple[int, ...]], budget: BatchLimits, window: int = 100
) -> list[int]:
    """Return the row counts of the non-empty batches of a stream that starts at version 0."""
    result, position, last = [], Position(0), versions[-1].version
    while position.version <= last:
        reached = admit(position, versions[position.version : position.version + window], budget)
        assert reached > position
        number = sum(
            count
            for version in versions
            for index, count in enumerate(rows.get(version.version, ()))
            if position < Position(version.version, index) <= reached
        )
        result += [number] if number else []
        position = reached
    return result


@pytest.mark.parametrize(
    ("files", "expected"),
    [(1, [2, 3, 8, 2, 2]), (2, [5, 8, 4]), (3, [13, 4]), (6, [13, 4]), (7, [15, 2]), (8, [17]), (9, [17])],
)
def test_max_files_limits_a_change_feed(files: int, expected: list[int]) -> None:
    assert batches(CHANGES, CHANGE_ROWS, BatchLimits(files=files)) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [2, 3, 8, 2, 2]),
        (700, [2, 3, 8, 2, 2]),
        (800, [5, 8, 2, 2]),
        (1600, [13, 4]),
        (6000, [13, 4]),
        (7000, [15, 2]),
        (9000, [17]),
    ],
)
def test_max_bytes_limits_a_change_feed(size: int, expected: list[int]) -> None:
    assert batches(CHANGES, CHANGE_ROWS, BatchLimits(bytes=size)) == expected


@pytest.mark.parametrize(("files", "expected"), [(1, [1, 1, 1, 1]), (2, [2, 2]), (3, [3, 1]), (4, [4]), (5, [4])])
def test_max_files_limits_appends(files: int, expected: list[int]) -> None:
    assert batches(APPENDS, APPEND_ROWS, BatchLimits(files=files)) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [1, 1, 1, 1]), (1000, [1, 1, 1, 1]), (2000, [2, 2]), (3000, [3, 1]), (5000, [4])]
)
def test_max_bytes_limits_appends(size: int, expected: list[int]) -> None:
    assert batches(APPENDS, APPEND_ROWS, BatchLimits(bytes=size)) == expected


@pytest.mark.parametrize(
    ("window", "expected"), [(1, [2, 3, 8, 4]), (2, [2, 11, 4]), (3, [5, 12]), (4, [13, 4]), (5, [17])]
)
def test_max_versions_per_request_limits_batches(window: int, expected: list[int]) -> None:
    assert batches(CHANGES, CHANGE_ROWS, BatchLimits(files=1000), window) == expected


def test_both_limits_apply_together() -> None:
    assert batches(APPENDS, APPEND_ROWS, BatchLimits(files=1, bytes=10_000)) == [1, 1, 1, 1]
    assert batches(APPENDS, APPEND_ROWS, BatchLimits(files=100, bytes=1)) == [1, 1, 1, 1]


def test_everything_is_admitted_without_a_limit() -> None:
    assert admit(Position(0), CHANGES, BatchLimits()) == Position(5)


def test_versions_without_files_are_admitted_at_any_limit() -> None:
    assert admit(Position(3), (offered(3), offered(4), offered(5)), BatchLimits(files=1, bytes=1)) == Position(6)


def test_empty_window_keeps_the_offset() -> None:
    assert admit(Position(3, 1), (), BatchLimits(files=1)) == Position(3, 1)


def test_batch_starts_in_the_middle_of_a_version() -> None:
    version = (offered(1, (10, 10, 10), (0, 1, 2)),)
    assert admit(Position(1, 0), version, BatchLimits(files=1)) == Position(1, 1)
    assert admit(Position(1, 1), version, BatchLimits(files=9)) == Position(2)


SIZES = st.lists(st.integers(0, 50), max_size=5)


@meets(batches=13, units=14)
@given(
    st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=8),
    st.one_of(st.none(), st.integers(1, 6)),
    st.one_of(st.none(), st.integers(1, 120)),
)
def test_batches_cover_each_file_once_and_never_split_a_unit(
    versions: list[tuple[list[int], bool]], files: int | None, size: int | None
) -> None:
    met("units", any(together and len(sizes) > 1 for sizes, together in versions))
    waiting = [
        offered(v, tuple(sizes), (0,) * len(sizes) if together else tuple(range(len(sizes))))
        for v, (sizes, together) in enumerate(versions)
    ]
    position, seen = Position(0), []
    while position.version < len(waiting):
        reached = admit(position, waiting[position.version :], BatchLimits(files, size))
        assert reached > position
        met("batches", position > Position(0))
        batch = [(v.version, i) for v in waiting for i in range(len(v.files)) if position < (v.version, i) <= reached]
        for version in waiting:
            whole = {i for v, i in batch if v == version.version}
            if version.units and len(set(version.units)) == 1:
                assert whole in (set(), set(range(len(version.files))))
        seen += batch
        position = reached
    assert seen == [(v.version, i) for v in waiting for i in range(len(v.files))]
