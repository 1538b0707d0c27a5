"""Parts of a plan: every file in exactly one, in order; a large one over several; bytes balanced; none empty."""

from __future__ import annotations

import pickle
import types

from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.run.partitions import (
    OPEN_COST,
    Partition,
    Piece,
    SharedUrls,
    equal_shares,
    pack,
    send_together,
)
from tests.quota import meets, met

MB = 1024 * 1024


def task(name: str, size: int = 0) -> FileTask:
    return FileTask(key=name, url=f"https://storage.example/{name}?X-Amz-Signature=planted", size=size)


def pieces(costs: list[int]) -> list[Piece]:
    return [Piece(task(str(number)), cost) for number, cost in enumerate(costs)]


def test_many_small_files_share_partitions() -> None:
    packed = pack(pieces([OPEN_COST + 10_000] * 1000), 20)
    assert {len(tasks) for tasks in packed} == {50}
    assert [piece.task.key for part in packed for piece in part] == [str(i) for i in range(1000)]


def test_nothing_is_no_partition() -> None:
    assert pack([], 2) == []


@meets(several=19)
@given(st.lists(st.integers(OPEN_COST, 300 * MB), min_size=1, max_size=40), st.integers(1, 16))
def test_every_file_is_in_one_part_in_order_and_no_part_is_empty_or_too_large(costs: list[int], count: int) -> None:
    packed = pack(pieces(costs), count)
    met("several", len(packed) > 1)
    assert [int(piece.task.key) for part in packed for piece in part] == list(range(len(costs)))
    assert len(packed) <= count
    assert all(packed)
    for part in packed:
        inside = [piece.cost for piece in part]
        assert sum(inside) <= sum(costs) / count + max(inside)


@meets(several=15, fewer=7)
@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 9))
def test_every_row_group_belongs_to_one_part_and_no_part_is_empty(sizes: list[int], parts: int) -> None:
    shares = equal_shares(sizes, parts)
    met("several", len(shares) > 1)
    met("fewer", 0 < len(shares) < parts)
    assert [ordinal for share in shares for ordinal in share] == list(range(len(sizes)))
    assert len(shares) <= parts
    assert all(shares)


def test_partition_pickles_and_shows_no_url() -> None:
    partition = Partition(types.SimpleNamespace(table="s.s.t"), [task("a", 5)])  # type: ignore[arg-type]
    assert "planted" not in repr(partition)
    assert b"planted" in pickle.dumps(pickle.loads(pickle.dumps(partition)))


def test_parts_that_are_sent_together_pickle_their_context_once() -> None:
    parts = [Partition("context", [task(name, 5)], 7, 9) for name in "ab"]  # type: ignore[arg-type]
    send_together(parts, lambda one: pickle.dumps(f"pickled {one}"))
    sent = [pickle.loads(pickle.dumps(part)) for part in parts]
    assert [part._context for part in sent] == ["pickled context"] * 2
    assert [(part._tasks, part._limit, part._size) for part in sent] == [((task(name, 5),), 7, 9) for name in "ab"]
    send_together([], pickle.dumps)


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
