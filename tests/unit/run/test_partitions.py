"""Partitions of a plan: every file is in one partition, in order, or split if it is large; sizes are balanced, and
none is empty."""

from __future__ import annotations

import pickle
import types
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_sharing_client.run.partitions as module
from delta_sharing_client.fetch import signed_urls
from delta_sharing_client.fetch.signed_urls import SharedUrls
from delta_sharing_client.plan.packed import PackedTasks, pack_tasks
from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.partitions import (
    OPEN_COST,
    Partition,
    Piece,
    equal_shares,
    limited,
    pack,
    packed_partitions,
    partition,
    read_cost,
    read_size,
    send_together,
)
from tests.quota import meets, met
from tests.unit.storages import Table, fast_options, status

MB = 1024 * 1024


def task(name: str, size: int = 0) -> FileTask:
    return FileTask(key=name, url=f"https://storage.example/{name}?X-Amz-Signature=planted", size=size)


def pieces(costs: list[int]) -> list[Piece]:
    return [Piece(task(str(number)), cost) for number, cost in enumerate(costs)]


def test_many_small_files_share_partitions() -> None:
    packed = pack(pieces([OPEN_COST + 10_000] * 1000), 20)
    assert {len(tasks) for tasks in packed} == {50}
    assert [piece.task.key for part in packed for piece in part] == [str(i) for i in range(1000)]


def test_no_files_give_no_partitions() -> None:
    assert pack([], 2) == []


def test_file_of_up_to_one_and_a_half_parts_stays_whole() -> None:
    files = [task(str(cost), cost * MB - OPEN_COST) for cost in (150, 75, 75)]
    plan: Any = types.SimpleNamespace(tasks=files)
    # The plan cannot provide row groups, so a split would fail.
    assert [piece.task for piece in module._cut(plan, 3)] == files


@meets(several=19)
@given(st.lists(st.integers(OPEN_COST, 300 * MB), min_size=1, max_size=40), st.integers(1, 16))
def test_every_file_is_in_one_partition_in_order(costs: list[int], count: int) -> None:
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
def test_every_row_group_is_in_one_partition(sizes: list[int], parts: int) -> None:
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


def test_partitions_sent_together_pickle_their_context_once() -> None:
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


def test_unpickled_copies_of_a_plan_share_one_url_source() -> None:
    first = pickle.loads(pickle.dumps(SharedUrls("plan", CountingUrls())))
    second = pickle.loads(pickle.dumps(SharedUrls("plan", CountingUrls())))
    other = pickle.loads(pickle.dumps(SharedUrls("another", CountingUrls())))
    assert first.url_for("k") == second.url_for("k")
    assert first.url_for("k") != other.url_for("k")
    assert "planted" not in repr(first)


def test_items_are_divided_into_parts_of_equal_cost() -> None:
    assert equal_shares([], 3) == []
    assert equal_shares([1, 1, 1], 3) == [(0,), (1,), (2,)]
    assert equal_shares([1, 1, 1, 1], 2) == [(0, 1), (2, 3)]
    assert equal_shares([2, 2], 1) == [(0, 1)]
    assert equal_shares([4, 1, 1], 2) == [(0,), (1, 2)]
    assert equal_shares([1, 4, 1], 2) == [(0,), (1, 2)]
    assert equal_shares([5, 0], 2) == equal_shares([0, 0], 2) == [(0, 1)]
    assert [read_cost(task("a", size)) - OPEN_COST for size in (-1, 0, 7)] == [64 * MB, 0, 7]


ROWS = 20_000


@pytest.fixture
def made(make_table: Callable[..., Table]) -> Table:
    """A table with a file of one row group, a file of four, and an empty file with a large declared size."""
    table = make_table(pa.schema([("a", pa.int64())]))
    for first, count, groups in ((0, 10, 10), (10, 4 * ROWS, ROWS)):
        rows = pa.table({"a": range(first, first + count)})
        options = {"row_group_size": groups, "compression": "none", "use_dictionary": False}
        table.add(rows, write=options, stats={"numRecords": count})
    return table


def numbers(parts: Sequence[Partition]) -> list[list[int]]:
    return [[row for batch in part.read() for row in batch["a"].to_pylist()] for part in parts]


def test_plan_with_a_limit_has_one_partition(made: Table) -> None:
    (part,) = partition(made.plan(limit=12), 5)
    assert (part.files, numbers([part])) == (2, [list(range(12))])
    assert partition(made.plan(limit=0), 5) == []
    (part,) = partition(made.plan(limit=12), 5)
    assert read_size(part)[1] == 12
    assert numbers([limited(part, 3)]) == [[0, 1, 2]]
    assert read_size(limited(part, 3)) == (read_size(part)[0], 3)


def test_only_large_files_are_split(made: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_COST", 1)
    plan = made.plan()
    whole = [add.action.size for add in made.adds]
    parts = partition(plan, 4, "plan")
    assert [part.files for part in parts] == [2, 1, 1, 1]
    assert numbers(parts) == [
        [*range(ROWS + 10)],
        *([*range(10 + n * ROWS, 10 + (n + 1) * ROWS)] for n in range(1, 4)),
    ]
    # The result is the same if the guessed length of the footer is too small.
    with monkeypatch.context() as patch:
        patch.setattr(module, "FooterGuess", lambda columns: types.SimpleNamespace(length=lambda size: 8))
        assert [part.files for part in partition(plan, 4)] == [2, 1, 1, 1]
    # Each partition has the number of bytes that it reads and the file version from which the footer was read.
    assert [part._size for part in parts[1:]] == [(whole[1] + 1) // 4] * 3
    assert parts[0]._size == whole[0] + (whole[1] + 1) // 4
    assert {each.version for part in parts for each in part._tasks if each.row_groups} == {parts[1]._tasks[0].version}
    assert parts[1]._tasks[0].version is not None
    assert [each.row_groups for part in parts for each in part._tasks] == [None, (0,), (1,), (2,), (3,)]
    assert read_size(parts[1])[1] is None
    # A file of at most 1.5 times the size of a partition is not split, and with only one partition no file is split.
    assert [part.files for part in partition(plan, 1)] == [2]
    assert numbers(partition(plan, 1)) == [[*range(4 * ROWS + 10)]]
    assert read_size(partition(plan, 1)[0])[1] == 4 * ROWS + 10
    for part in parts:
        assert not part._context.options.progress
        assert part._context.place == plan.context.place


def test_callback_for_progress_is_not_pickled(made: Table) -> None:
    plan = made.plan(urls=CountingUrls(), options=fast_options(progress=lambda progress: None))
    parts = pickle.loads(pickle.dumps(partition(plan, 2)))
    assert numbers(parts) == numbers(partition(plan, 2))
    assert parts[0]._context.place.options.progress is False


def test_packed_files_are_not_split(made: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = made.plan()
    packed = PackedTasks(tuple(chunk for task in plan.tasks for chunk in pack_tasks([task], lambda one: 1, 1).chunks))
    parts = packed_partitions(plan.context, packed, 5)
    assert numbers(parts) == [[*range(10)], [*range(10, 4 * ROWS + 10)]]
    assert [part._size for part in parts] == [add.action.size for add in made.adds]
    assert [read_size(part)[1] for part in parts] == [10, 4 * ROWS]
    assert read_size(limited(parts[1], 3))[1] is None
    filtered = packed_partitions(made.plan(filter=col("a") > 3).context, packed, 5)
    assert [read_size(part)[1] for part in filtered] == [None, None]
    monkeypatch.setattr(module, "MOST_PARTS", 1)
    assert [part.files for part in packed_partitions(plan.context, packed, 5)] == [2]


def test_large_file_with_an_unreadable_footer_is_not_split(
    made: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "OPEN_COST", 1)
    plan = made.plan()
    made.storage.faults["part-1.parquet"] = [status(404)]
    parts = partition(plan, 4)
    assert [part.files for part in parts] in ([2], [1, 1])
    assert "its footer cannot be read here" in caplog.text
    assert [row for rows in numbers(parts) for row in rows] == [*range(4 * ROWS + 10)]


def test_partitions_share_a_url_source_and_hide_progress(made: Table) -> None:
    plan = made.plan(urls=CountingUrls(), options=fast_options(progress=True))
    first, other = (partition(plan, 1, plan_id)[0]._context for plan_id in ("plan-a", "plan-b"))
    assert (first.options.progress, plan.context.options.progress) == (False, True)
    assert repr(first.place.urls) == "SharedUrls('plan-a')"
    assert repr(other.place.urls) == "SharedUrls('plan-b')"
    assert len({repr(partition(plan, 1)[0]._context.place.urls) for _ in range(2)}) == 2


def test_number_of_cached_url_sources_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_urls, "_KEPT_SOURCES", 2)
    monkeypatch.setattr(signed_urls, "_sources", OrderedDict())
    kept = {name: CountingUrls() for name in "abc"}

    def asked(name: str) -> None:
        assert SharedUrls(name, kept[name]).url_for("k") == kept[name].url_for("k")

    for name, left in zip("abacb", ("a", "ab", "ba", "ac", "cb"), strict=True):
        asked(name)
        assert "".join(signed_urls._sources) == left
