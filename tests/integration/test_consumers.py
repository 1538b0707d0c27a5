"""Every iterator that we hand out has one consumer at a time: a second one is refused at once, and closing ends the
wait of the first one."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.assets.directory import Directory
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.run import loop
from delta_sharing_client.run.consumer import Consumer
from mock_server import demo
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.storages import wait_for

ORDERS = "demo.shop.orders"
# Longer than a test may take.
STUCK = "slow=300"
CLOSED = "cannot continue: it was closed"
BUSY = "cannot continue: another thread( or task)? (waits for its next item|is taking a batch)"


class World(NamedTuple):
    """A server whose responses can be delayed, a client of it, and a directory."""

    server: Any
    client: ds.SharingClient
    folder: Path

    @property
    def scan(self) -> ds.Scan:
        """A read of the table ``ORDERS``."""
        return self.client.table(ORDERS).scan()

    @property
    def follow(self) -> Any:
        """The changes of the table ``ORDERS``."""
        return self.client.table(ORDERS).follow(self.folder / "cursor")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return demo.build(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def world(tables: Any, tmp_path: Path) -> Iterator[World]:
    with mock_server.running(tables=tables) as server, ds.SharingClient(server.profile) as client:
        yield World(server, client, tmp_path)


class Handed(NamedTuple):
    """How to get the next item of an iterator, and how to close it, on any thread."""

    take: Callable[[], object]
    close: Callable[[], object]


def synchronous(iterator: Any) -> Handed:
    return Handed(lambda: next(iterator), iterator.close)


def asynchronous(iterator: Any) -> Handed:
    async def take() -> object:
        return await anext(iterator)

    async def close() -> None:
        await iterator.aclose()

    return Handed(lambda: asyncio.run(take()), lambda: asyncio.run(close()))


# The iterators, and the responses that their first item waits for.
HANDED: dict[str, tuple[Callable[[World], Handed], str]] = {
    "batches": (lambda world: synchronous(world.scan.to_batches()), "data"),
    "a part": (lambda world: synchronous(world.scan.partitions(2)[0].read()), "data"),
    "asynchronous batches": (lambda world: asynchronous(world.scan.to_batches_async()), "data"),
    "a plan": (lambda world: asynchronous(world.scan.to_batches_async()), "api"),
    "changes": (lambda world: synchronous(iter(world.follow)), "api"),
    "asynchronous changes": (lambda world: asynchronous(aiter(world.follow)), "api"),
    "files": (lambda world: synchronous(world.client.volume("demo.shop.documents").files()), "api"),
}
CHANGES = ["changes", "asynchronous changes"]
by_iterator = pytest.mark.parametrize("name", HANDED)


class Waiting(threading.Thread):
    """A thread that takes an item; ``outcome`` is the item or the error."""

    def __init__(self, take: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.take = take
        self.outcome: object = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.take()
        except BaseException as error:
            self.outcome = error

    def ended(self) -> object:
        self.join(HANGS)
        assert not self.is_alive()
        return self.outcome


def refused(take: Callable[[], object], match: str) -> None:
    clock = Stopwatch()
    with pytest.raises(ds.UsageError, match=match):
        take()
    assert clock.within(SOON)


def waiting(world: World, handed: Handed) -> Waiting:
    """Return a thread that waits for the first item."""
    world.server.stats()
    first = Waiting(handed.take)
    wait_for(lambda: not world.server.app.stats.idle)
    return first


def closed(first: Waiting) -> None:
    error = first.ended()
    assert isinstance(error, ds.UsageError)
    assert re.search(CLOSED, str(error))


@by_iterator
def test_second_consumer_is_refused_and_closing_ends_both(world: World, name: str) -> None:
    make, target = HANDED[name]
    world.server.set_fault(f"{STUCK}@{target}")
    handed = make(world)
    first = waiting(world, handed)

    refused(handed.take, BUSY)
    assert first.is_alive()
    clock = Stopwatch()
    handed.close()
    closed(first)
    assert clock.within(SOON)
    refused(handed.take, CLOSED)
    handed.close()


@by_iterator
def test_refused_consumer_does_not_disturb_the_first(world: World, name: str) -> None:
    make, target = HANDED[name]
    world.server.set_fault(f"slow=1:1@{target}")
    handed = make(world)
    first = waiting(world, handed)

    refused(handed.take, BUSY)
    assert not isinstance(first.ended(), BaseException)
    handed.close()


@by_iterator
def test_items_can_be_taken_by_one_thread_after_the_other(world: World, name: str) -> None:
    make, _ = HANDED[name]
    handed, others = make(world), make(world._replace(folder=world.folder / "other"))
    (world.folder / "other").mkdir()
    # An asynchronous iterator gets a new event loop each time.
    taken = [Waiting(handed.take).ended() for _ in range(2)]
    expected = [others.take() for _ in range(2)] if name not in CHANGES else [others.take()]

    assert [shown(item) for item in taken[: len(expected)]] == [shown(item) for item in expected]
    for each in (handed, others):
        each.close()


def shown(item: object) -> object:
    return (item.start_version, item.end_version) if isinstance(item, ds.FollowedChanges) else item


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_ended_loop_over_changes_unlocks_its_cursor(world: World, name: str, end: str) -> None:
    handed = HANDED[name][0](world)
    handed.take()
    with pytest.raises(ds.UsageError, match="is in use"):
        HANDED[name][0](world).take()
    if end == "closed":
        handed.close()
    del handed
    gc.collect()

    again = HANDED[name][0](world)
    assert again.take().is_repeat  # type: ignore[attr-defined]
    again.close()


def test_close_during_a_wait_for_the_next_versions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    paused, pause = threading.Event(), Consumer.pause

    def noted(consumer: Consumer, seconds: float) -> None:
        paused.set()
        pause(consumer, seconds)

    monkeypatch.setattr(Consumer, "pause", noted)
    handed = synchronous(iter(world.follow))
    handed.take().commit()  # type: ignore[attr-defined]
    first = Waiting(handed.take)
    assert paused.wait(HANGS)
    refused(handed.take, BUSY)
    handed.close()

    closed(first)


def test_closed_loop_that_was_still_starting_holds_no_lock(world: World) -> None:
    """The thread that begins the loop goes on after the loop was closed."""
    world.server.set_fault(f"{STUCK}@api")
    handed = synchronous(iter(world.follow))
    first = waiting(world, handed)
    handed.close()
    closed(first)

    with FileLock(world.folder / ".cursor.lock", "Taken."):
        pass


@pytest.mark.parametrize("outcome", ["cancelled", "timed out", "error", "loop closed"])
def test_end_of_a_waiting_task_ends_an_asynchronous_read(world: World, outcome: str) -> None:
    world.server.set_fault(f"{STUCK}@data")

    async def read() -> None:
        task = asyncio.create_task(anext(batches))  # type: ignore[arg-type]
        await asyncio.to_thread(wait_for, lambda: not world.server.app.stats.idle)
        if outcome == "cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif outcome == "timed out":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(task, 0.01)
        elif outcome == "error":
            raise ZeroDivisionError

    batches = world.scan.to_batches_async()
    world.server.stats()
    if outcome == "error":
        with pytest.raises(ZeroDivisionError):
            asyncio.run(read())
    else:
        asyncio.run(read())  # it cancels the tasks that are left
    wait_for(lambda: not asyncio.all_tasks(loop.current().loop))
    refused(lambda: asyncio.run(first_of(batches)), CLOSED)


async def first_of(batches: Any) -> pa.RecordBatch:
    return await anext(batches)


def test_rows_come_once_whoever_takes_them(world: World) -> None:
    """Tasks that ask at the same time are refused, and go on; each row comes to one of them."""
    counts, scan = [], world.scan
    batches = scan.to_batches_async(rows=10)

    async def take_all() -> None:
        while True:
            try:
                counts.append((await anext(batches)).num_rows)
            except StopAsyncIteration:
                return
            except ds.UsageError as error:
                assert re.search(BUSY, str(error))  # noqa: PT017
                await asyncio.sleep(0)

    async def read() -> None:
        await asyncio.gather(*(take_all() for _ in range(3)))

    asyncio.run(read())
    assert sum(counts) == scan.count() == 2755


def test_reads_closed_at_any_moment_raise_only_our_error(world: World) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    outcomes = set()
    try:
        for turn in range(60):
            batches = world.scan.to_batches(rows=50)
            most = 1 + turn // 2
            taking = Waiting(lambda batches=batches, most=most: [next(batches) for _ in range(most)])
            wait_for(lambda batches=batches: batches._read.is_begun)
            batches.close()
            outcomes.add(type(taking.ended()))
    finally:
        sys.setswitchinterval(interval)

    assert outcomes <= {list, ds.UsageError}


# --- readers and streams ---


@pytest.mark.parametrize("make", [ds.Scan.to_reader, lambda scan: scan.to_dataset().scanner().to_reader()])
def test_second_thread_of_a_reader_is_refused(world: World, make: Callable[[ds.Scan], pa.RecordBatchReader]) -> None:
    world.server.set_fault("slow=1:1@data")
    reader = make(world.scan)
    world.server.stats()
    first = Waiting(reader.read_all)
    wait_for(lambda: not world.server.app.stats.idle)

    refused(reader.read_next_batch, BUSY)
    rows = first.ended()
    assert isinstance(rows, pa.Table)
    assert rows.num_rows == 2755


@pytest.mark.parametrize("opened", ["open", "filesystem"])
def test_closing_a_file_ends_a_read_that_waits(world: World, opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, going = threading.Event(), threading.Event()

    async def stuck(*_: object, **__: object) -> memoryview:
        begun.set()
        await asyncio.to_thread(going.wait, HANGS)
        return memoryview(b"")

    monkeypatch.setattr(Directory, "read", stuck)
    volume = world.client.volume("demo.shop.documents")
    path = next(volume.files()).path
    file = volume.open(path) if opened == "open" else volume.filesystem().open(path)
    first = Waiting(file.read)
    assert begun.wait(HANGS)
    clock = Stopwatch()
    file.close()

    closed(first)
    assert clock.within(SOON)
    with pytest.raises(ValueError, match="closed"):
        file.read(1)
    going.set()
