"""Packed tasks keep their order, and the pack has their exact totals."""

from __future__ import annotations

import errno
import io
import itertools
import pickle
import tempfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.place import Version
from delta_sharing_client.plan import packed
from delta_sharing_client.plan.packed import PackedTasks, pack_tasks, packed_if_many
from delta_sharing_client.plan.tasks import Change, ChangeKind, DeletionVectorRef, FileTask
from tests.quota import meets, met


def task(number: int, size: int = 100, rows: int | None = 7) -> FileTask:
    return FileTask(
        key=str(number),
        url=f"https://storage.example/{number}?X-Amz-Signature=planted",
        size=size,
        num_records=rows,
        partition_values={"p": str(number % 3)},
    )


@meets(several=2, unknown=2)
@given(st.lists(st.just(-1) | st.integers(0, 1000), max_size=70).map(lambda sizes: sizes * 50), st.integers(1, 20_000))
def test_unpacking_restores_the_packed_value(sizes: list[int], most: int) -> None:
    met("several", len(sizes) > 250)
    met("unknown", -1 in sizes)
    tasks = [task(number, size) for number, size in enumerate(sizes)]
    found = pickle.loads(pickle.dumps(pack_tasks(iter(tasks), lambda one: one.size + 10, most)))
    assert list(found) == tasks
    assert len(found) == len(tasks)
    assert found.bytes == sum(max(0, size) for size in sizes)
    assert found.rows == 7 * len(tasks)
    total = sum(size + 10 for size in sizes)
    assert sum(chunk.cost for chunk in found.chunks) == total
    most = max(most, total // packed.MOST_PARTS)
    assert all(chunk.files == 1 or (chunk.cost <= most and chunk.files <= 1000) for chunk in found.chunks)


def test_chunks_grow_with_the_plan_up_to_a_tenth_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MOST_PARTS", 10)
    tasks = pack_tasks((task(number) for number in range(20_000)), lambda _: 1, 5)
    assert max(chunk.files for chunk in tasks.chunks) == 1000
    assert all(chunk.files <= max(5, before // 10) for chunk, before in zip(tasks.chunks, _sums(tasks), strict=True))
    assert len(tasks.chunks) < 100
    assert [unpacked.key for unpacked in tasks] == [str(number) for number in range(20_000)]


def test_chunks_are_full_except_the_last() -> None:
    tasks = pack_tasks((task(number) for number in range(9_100)), lambda _: 1, 300)
    assert [chunk.files for chunk in tasks.chunks] == [300] * 30 + [100]


def test_most_tasks_are_weighed_only_once() -> None:
    weighed = []
    pack_tasks((task(number) for number in range(20_000)), lambda one: weighed.append(one.key) or 1, 300)
    assert len(weighed) < 22_000


def _sums(tasks: PackedTasks) -> list[int]:
    return list(itertools.accumulate((chunk.files for chunk in tasks.chunks), initial=0))[:-1]


def test_row_count_is_unknown_if_one_file_has_none() -> None:
    assert pack_tasks([task(1), task(2, rows=None)], lambda _: 1, 10).rows is None


@pytest.mark.parametrize(("vectors", "rows"), [(("without",), 12), (("only",), 9), (("without", "only"), None)])
def test_row_count_excludes_deleted_rows(vectors: tuple[str, ...], rows: int | None) -> None:
    vector = DeletionVectorRef(DeletionVectorDescriptor("p", "https://x/v", 4, 2), "k#dv")
    two = replace(task(2), **dict.fromkeys(vectors, vector))
    assert pack_tasks([task(1), two], lambda _: 1, 10).rows == rows


def test_only_long_plans_are_packed_and_show_no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MANY_FILES", 1000)
    few = packed_if_many((task(number) for number in range(1000)), lambda _: 1, 100)
    assert isinstance(few, list)
    many = packed_if_many((task(number) for number in range(1001)), lambda _: 1, 100)
    assert isinstance(many, PackedTasks)
    assert list(many)[:1000] == few
    assert len(pickle.dumps(many)) < len(pickle.dumps(few)) / 3
    assert "planted" not in repr(many)


def test_task_with_all_fields_is_packed_and_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = DeletionVectorRef(DeletionVectorDescriptor("p", "https://x/v", 4, 2, 8), "k#dv")
    whole = FileTask(
        key="k",
        url="https://x/ä",
        file_id="f",
        renew_at=2**53,
        size=-1,
        without=vector,
        only=vector,
        partition_values={"p": None, "": "é"},
        num_records=0,
        base_row_id=2**62,
        default_row_commit_version=3,
        change=Change(ChangeKind.IN_FILE, 4, 5),
        row_groups=(1, 3),
        version=Version("e", "m", 7),
    )
    assert {name for name in FileTask.__struct_fields__ if getattr(whole, name) is None} == set()
    (unpacked,) = pickle.loads(pickle.dumps(pack_tasks([whole], lambda _: 1, 10)))
    assert unpacked == whole
    assert [type(getattr(unpacked, name)) for name in ("change", "row_groups", "version")] == [Change, tuple, Version]


def test_spool_is_read_between_writes_without_data_loss() -> None:
    spool = packed._Spool()
    stored = [spool.store(b"one"), spool.store(b"two")]
    assert bytes(stored[0]) == b"one"
    stored.append(spool.store(b"three"))
    assert [bytes(one) for one in stored] == [b"one", b"two", b"three"]


def test_temporary_file_is_closed_with_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def opening() -> Any:
        opened.append(tempfile.SpooledTemporaryFile())  # noqa: SIM115
        return opened[0]

    monkeypatch.setattr(packed, "TemporaryFile", opening)
    tasks = pack_tasks([task(1), task(2)], lambda _: 1, 1)
    sent = pickle.dumps(tasks)
    assert not opened[0].closed
    del tasks
    assert opened[0].closed
    assert [one.key for one in pickle.loads(sent)] == ["1", "2"]


@pytest.mark.parametrize("step", ["write", "flush"])
def test_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packed, "TemporaryFile", type("Full", (io.BytesIO,), {step: fail}))
    with pytest.raises(UsageError, match=r"No space left on device\. The plan of a large table .* or set TMPDIR"):
        pack_tasks([task(1)], lambda _: 1, 10)
