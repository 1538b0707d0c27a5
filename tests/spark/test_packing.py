"""Packing: every file in exactly one partition, in order; a large one over several; bytes balanced."""

from __future__ import annotations

import pickle
import types

from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.scan.tasks import FileTask
from delta_sharing_client.spark.partitions import (
    LEAST_PARTITION,
    OPEN_COST,
    FilePartition,
    Piece,
    SharedUrls,
    pack,
    share_of_groups,
)

MB = 1024 * 1024


def task(name: str, size: int) -> FileTask:
    return FileTask(key=name, url=f"https://storage.example/{name}?X-Amz-Signature=planted", size=size)


def test_many_small_files_share_partitions() -> None:
    packed = pack([task(str(i), 10_000) for i in range(1000)], parallelism=2, most=128 * MB)
    assert len(packed) <= 20
    assert [piece.task.key for partition in packed for piece in partition] == [str(i) for i in range(1000)]


def test_large_file_is_cut_into_parts_for_all_cores() -> None:
    packed = pack([task("a", 100 * MB)], parallelism=4, most=128 * MB)
    assert [[(piece.part, piece.parts) for piece in partition] for partition in packed] == [[(i, 4)] for i in range(4)]


def test_no_partition_exceeds_the_most_by_more_than_a_file() -> None:
    packed = pack([task("a", 1000 * MB), task("b", 10 * MB)], parallelism=1, most=64 * MB)
    assert all(
        sum(piece.task.size // piece.parts for piece in partition) <= 64 * MB + OPEN_COST for partition in packed
    )


def test_small_table_is_one_partition() -> None:
    assert len(pack([task("a", 1000), task("b", 1000)], parallelism=2, most=128 * MB)) == 1


def test_nothing_is_no_partition() -> None:
    assert pack([], parallelism=2, most=128 * MB) == []


@given(st.lists(st.integers(-1, 300 * MB), max_size=40), st.integers(1, 16), st.integers(LEAST_PARTITION, 256 * MB))
def test_every_part_of_every_file_is_read_once_in_order(sizes: list[int], parallelism: int, most: int) -> None:
    packed = pack([task(str(i), size) for i, size in enumerate(sizes)], parallelism, most)
    found = [(int(p.task.key), p.part, p.parts) for partition in packed for p in partition]
    assert found == sorted(found)
    for number in range(len(sizes)):
        parts = [(part, of) for key, part, of in found if key == number]
        assert [part for part, _ in parts] == list(range(parts[0][1]))


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 9))
def test_every_row_group_belongs_to_one_part(sizes: list[int], parts: int) -> None:
    shares = [share_of_groups(sizes, part, parts) for part in range(parts)]
    assert [ordinal for share in shares for ordinal in share] == list(range(len(sizes)))


def test_partition_pickles_and_shows_no_url() -> None:
    partition = FilePartition(types.SimpleNamespace(table="s.s.t"), [Piece(task("a", 5))])  # type: ignore[arg-type]
    assert "planted" not in repr(partition)
    assert pickle.loads(pickle.dumps(partition)).pieces[0].task.url.endswith("planted")


class CountingUrls:
    made = 0

    def url_for(self, key: str, rejected: str | None = None) -> str:
        return f"url of {key} from {id(self)}"


def test_unpickled_copies_of_a_plan_share_one_source_per_process() -> None:
    first = pickle.loads(pickle.dumps(SharedUrls("plan", CountingUrls())))
    second = pickle.loads(pickle.dumps(SharedUrls("plan", CountingUrls())))
    other = pickle.loads(pickle.dumps(SharedUrls("another", CountingUrls())))
    assert first.url_for("k") == second.url_for("k")
    assert first.url_for("k") != other.url_for("k")
    assert "planted" not in repr(first)
