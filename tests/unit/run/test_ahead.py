"""Reading ahead in a listing, and its counters, without a server."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import types
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pytest

from delta_sharing_client.decode.rows import Item
from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.place import Version
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Attempt, Stale
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.tasks import DeletionVectorRef, FileTask, ScanPlan, ScanStream, SkippedFiles
from delta_sharing_client.run import engine
from delta_sharing_client.run import task_queue as module
from delta_sharing_client.run.batches import AsyncBatches, Batches, _drop_plan
from delta_sharing_client.run.engine import ScanRun
from delta_sharing_client.run.loop import asynchronously, on_cancellation
from delta_sharing_client.run.task_queue import Listing
from tests.time_limits import HANGS
from tests.unit.storages import wait_for

VECTOR = DeletionVectorRef(DeletionVectorDescriptor("u", "x", None, 1, 1), None)


def task(number: int, size: int = 10, **rest: Any) -> FileTask:
    return FileTask(key=str(number), url="https://h/f", size=size, **rest)


class Streamed:
    """A stream of files that counts the files taken and records how it ends; it pauses before file ``held``."""

    def __init__(
        self,
        tasks: Sequence[FileTask],
        *,
        held: int | None = None,
        error: BaseException | None = None,
        limit: int | None = None,
    ) -> None:
        self.tasks, self.held, self.error = tasks, held, error
        self.taken = 0
        self.go = threading.Event()
        self.ends: list[str] = []
        self.stream = ScanStream(
            context=cast("Any", None),
            limit=limit,
            blocks=self._files(),
            skipped=lambda: SkippedFiles(by_limit=3),
            release=lambda: self.ends.append("released"),
            break_off=lambda: (self.ends.append("broken off"), self.go.set())[0],
        )

    def _files(self) -> Generator[list[FileTask], None, None]:
        for number, each in enumerate(self.tasks):
            if number == self.held:
                self.go.wait(HANGS)
            self.taken += 1
            yield [each]
        if self.error is not None:
            raise self.error


def planned(tasks: Sequence[FileTask]) -> Listing:
    return Listing(ScanPlan(context=cast("Any", None), tasks=tasks))


def run(coroutine: Any) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(HANGS):
            return await coroutine

    return asyncio.run(limited())


async def rest_of(listing: Listing) -> list[str]:
    results = []
    while (each := await listing.next()) is not None:
        results.append(each.key)
    return results


def test_listing_of_a_plan_counts_files_and_bytes() -> None:
    tasks = [task(0, 7, only=VECTOR), task(1, -1), task(2, 1), task(3, 0, without=VECTOR)]
    listing = planned(tasks)
    assert (listing.files, listing.bytes, listing.is_whole) == (4, 8, True)
    assert (listing.files_done, listing.bytes_done) == (0, 0)
    listing.done(tasks[:2])
    listing.done(tasks[2:])
    assert (listing.files_done, listing.bytes_done) == (4, 8)
    noted: list[FileTask] = []
    listing.start(noted.append, ScanReport())
    assert noted == [tasks[0], tasks[3]]
    run(listing.wait_for_size(HANGS))
    assert listing.take(lambda each: each.key < "2", 1) == tasks[:1]
    assert listing.take(lambda each: each.key < "2", 9) == tasks[1:2]
    assert run(rest_of(listing)) == ["2", "3"]
    assert listing.take(lambda each: True, 9) == []
    listing.close()


def test_listing_of_a_stream_counts_files_and_bytes() -> None:
    source, report, noted = Streamed([task(0, 7), task(1, -1, only=VECTOR), task(2, 1)]), ScanReport(), list[FileTask]()

    async def read() -> None:
        listing = Listing(source.stream)
        assert (listing.files, listing.bytes, listing.is_whole) == (0, 0, False)
        listing.start(noted.append, report)
        assert await rest_of(listing) == ["0", "1", "2"]
        assert (listing.files, listing.bytes, listing.is_whole, listing.failure) == (3, 8, True, None)

    run(read())
    assert noted == source.tasks[1:2]
    assert report.files_skipped == 3
    assert report.seconds["plan"] > 0
    assert source.ends == ["released"]


def test_loop_is_woken_once_for_a_block_of_files() -> None:
    tasks = [task(number) for number in range(100)]
    source = Streamed(tasks)
    source.stream = dataclasses.replace(source.stream, blocks=(block for block in (tasks[:60], tasks[60:])))

    async def read() -> None:
        listing, wakes = Listing(source.stream), 0
        soon = asyncio.get_running_loop().call_soon_threadsafe

        def counting(*call: Any, **options: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return soon(*call, **options)

        asyncio.get_running_loop().call_soon_threadsafe = counting  # type: ignore[method-assign]
        listing.start(lambda each: None, ScanReport())
        assert await rest_of(listing) == [each.key for each in tasks]
        assert 1 <= wakes <= 3  # two blocks, and the end

    run(read())


def test_error_is_raised_after_the_files_listed_before_it() -> None:
    source, report = Streamed([task(0), task(1)], error=ValueError("planted")), ScanReport()

    async def read() -> None:
        listing = Listing(source.stream)
        listing.start(lambda each: None, report)
        await listing.wait_for_size(HANGS)
        assert [(await listing.next()).key for _ in range(2)] == ["0", "1"]  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="planted"):
            await listing.next()

    run(read())
    assert (source.ends, report.files_skipped) == (["released"], 3)


@pytest.mark.parametrize(("limit", "listed"), [(None, [30, 30, 41]), (5, [18, 25, 33])])
def test_listing_pauses_when_enough_files_are_ahead(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, listed: list[int]
) -> None:
    monkeypatch.setattr(module, "_MANY", 8)
    monkeypatch.setattr(module, "_AHEAD", 20)
    monkeypatch.setattr(module, "_AHEAD_OF_LIMIT", 12)
    source = Streamed([task(number) for number in range(100)], limit=limit)

    async def read() -> None:
        listing = Listing(source.stream)

        def is_waiting(taken: int) -> None:
            wait_for(lambda: listing._is_full and listing._room.empty())
            assert source.taken == taken

        listing.start(lambda each: None, ScanReport())
        is_waiting(8)
        await listing.wait_for_size(HANGS)
        assert not listing.is_whole
        # The listing resumes when fewer than half of the files are left.
        assert [await listing.next() for _ in range(4)] == source.tasks[:4]
        is_waiting(8)
        assert [await listing.next()] == source.tasks[4:5]
        is_waiting(13)
        assert listing.take(lambda each: True, 4) == source.tasks[5:9]
        is_waiting(13)
        assert listing.take(lambda each: True, 1) == source.tasks[9:10]
        is_waiting(18)
        for number, count in enumerate((0, 3, 8)):
            assert len(listing.take(lambda each: True, count)) == count
            listing.widen()
            is_waiting(listed[number])
        # Taking files sends no signal while the listing is not paused.
        assert len(await rest_of(listing)) == 79
        assert (source.taken, listing._room.empty(), listing._is_full) == (100, True, False)

    run(read())


def test_wait_for_the_size_of_a_listing_times_out() -> None:
    source = Streamed([task(0), task(1)], held=1)

    async def read() -> None:
        listing = Listing(source.stream)
        listing.start(lambda each: None, ScanReport())
        await listing.wait_for_size(0.01)
        assert not listing.is_whole
        listing.close()

    run(read())
    wait_for(lambda: len(source.ends) == 2)
    assert source.ends == ["broken off", "released"]


@pytest.mark.parametrize("count", [1, 100])
def test_closing_a_listing_releases_its_source(count: int) -> None:
    source = Streamed([task(number) for number in range(count)], held=0 if count == 1 else None)
    Listing(source.stream).close()
    assert source.ends == ["released"]
    source = Streamed([task(number) for number in range(1000)])

    async def read() -> Listing:
        listing = Listing(source.stream)
        listing.start(lambda each: None, ScanReport())
        wait_for(lambda: listing._is_full)
        listing.close()
        return listing

    listing = run(read())
    wait_for(lambda: listing.is_whole)
    assert source.taken == module._MANY
    assert source.ends == ["broken off", "released"]


def test_read_without_files_starts_no_work() -> None:
    source = Streamed([task(0)], limit=0)
    batches = Batches(source.stream, ScanReport())
    assert source.ends == ["released"]
    assert next(batches, None) is None
    assert source.taken == 0
    for limit, tasks in ((None, []), (0, [task(0)])):
        plan = ScanPlan(
            context=cast("Any", None), tasks=tasks, limit=limit, skipped=SkippedFiles(by_limit=9), plan_seconds=7.0
        )
        report = ScanReport()
        assert list(Batches(plan, report)) == []
        assert (report.files_skipped, report.seconds) == (9, {"plan": 7.0})


def test_forked_process_does_not_drop_the_parents_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Batches(Streamed([task(0)]).stream, ScanReport())
    dropped: list[bool] = []
    monkeypatch.setattr(batches._read, "drop", lambda: dropped.append(True))
    batches._process -= 1
    batches.__del__()
    assert dropped == []
    batches._process += 1
    batches.__del__()
    assert dropped == [True]
    batches._read._has_ended = True
    batches.__del__()
    assert dropped == [True]
    Batches.__new__(Batches).__del__()


def test_planning_time_excludes_pauses_of_the_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "perf_counter", iter([100.0, 150.0]).__next__)
    source, report = Streamed([task(number) for number in range(5)]), ScanReport()
    listing = Listing(source.stream)
    listing._most, listing._wake = 2, lambda: None
    monkeypatch.setattr(listing, "_wait_for_room", lambda: 5.0)
    listing._follow(source.stream, lambda each: None, report)
    assert report.seconds == {"plan": 30.0}


def test_unused_plan_is_closed() -> None:
    source, others = Streamed([task(0)]), [Future[Any]() for _ in range(3)]
    others[0].cancel()
    others[1].set_exception(ValueError())
    others[2].set_result(ScanPlan(context=cast("Any", None), tasks=[]))
    for future in others:
        _drop_plan(future)
    planned: Future[Any] = Future()
    planned.set_result(source.stream)
    _drop_plan(planned)
    assert source.ends == ["released"]


def test_usage_errors_get_neither_advice_nor_a_query_id() -> None:
    advised: list[Exception] = []
    read = Batches(Streamed([task(0)]).stream)._read
    read.context = cast("Any", types.SimpleNamespace(query_id="q", advise=advised.append, table="t"))
    data, usage = DataError("planted"), UsageError("planted")
    for error in (data, usage):
        with pytest.raises(type(error)):
            read.take(error)
    assert (advised, data.query_id, usage.query_id) == ([data], "q", None)


def test_plan_is_released_if_its_consumer_was_cancelled() -> None:
    source, asked = Streamed([task(0)]), threading.Event()
    going = threading.Event()

    def plan() -> ScanStream:
        asked.set()
        going.wait(HANGS)
        return source.stream

    async def look() -> None:
        waiting = asyncio.ensure_future(anext(AsyncBatches(plan, ScanReport())))
        await asyncio.to_thread(asked.wait, HANGS)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(look())
    assert source.ends == []
    going.set()
    wait_for(lambda: source.ends == ["released"])


def test_cancelling_a_call_ends_the_reads_it_started() -> None:
    begun, going, ended = threading.Event(), threading.Event(), threading.Event()
    cancelled: list[str] = []

    def begin(name: str) -> None:
        on_cancellation(lambda: cancelled.append(name))

    def call() -> None:
        begin("first")
        begun.set()
        going.wait(HANGS)
        begin("second")
        ended.set()

    async def look() -> None:
        running = asyncio.ensure_future(asynchronously(call))
        await asyncio.to_thread(begun.wait, HANGS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cancelled == ["first"]
        going.set()
        await asyncio.to_thread(ended.wait, HANGS)
        assert cancelled == ["first", "second"]

    run(look())


# --- the run of a read ---


def scanned(*, eager: bool = True, limit: int | None = None) -> tuple[ScanRun, list[Any]]:
    options = ReadOptions(max_concurrent_requests=4, max_bytes_in_flight=256 * 1024 * 1024)
    plan = types.SimpleNamespace(context=types.SimpleNamespace(options=options), limit=limit)
    put: list[Any] = []
    return ScanRun(cast("Any", plan), Listing(Streamed([]).stream), ScanReport(), put.append, eager=eager), put


def test_read_ahead_grows_as_rows_are_consumed() -> None:
    most = 160 * 1024 * 1024
    for eager, limit, budgets, ahead in (
        (True, None, [most] * 5, [8] * 5),
        (False, None, [4 << 20, 32 << 20, 96 << 20, most, most], [1, 4, 8, 8, 8]),
        (True, 9, [most] * 5, [1] * 5),
    ):
        reading, _ = scanned(eager=eager, limit=limit)
        reading._untaken = 5
        slot = types.SimpleNamespace(news=asyncio.Event())
        reading._slots.append(cast("Any", slot))
        results = []
        for taken in range(5):
            results.append((reading._budget._capacity, reading._ahead))
            reading._room.clear()
            slot.news.clear()
            is_full = reading._pace.is_full
            reading._item_taken()
            assert (reading._untaken, reading._room.is_set()) == (4 - taken, True)
            assert slot.news.is_set() is not is_full
        assert results == list(zip(budgets, ahead, strict=True))


def test_paused_listing_misses_no_wake_up() -> None:
    """Another thread may take files or close the listing after it checked for room and before it waits."""
    for lengths, closes, waits in (([9, 9, 0], False, 1), ([9, 0, 0], False, 0), ([9, 9], True, 0), ([0], False, 0)):
        listing, turn, waited = Listing(Streamed([]).stream), iter(lengths), list[bool]()

        class Files:
            def __len__(self, turn: Any = turn, listing: Listing = listing, closes: bool = closes) -> int:
                listing._is_closed = closes and listing._is_full
                return next(turn)

        listing._listed, listing._most = cast("Any", Files()), 10
        room = types.SimpleNamespace(get=lambda waited=waited, listing=listing: waited.append(listing._is_full))
        listing._room = cast("Any", room)
        assert listing._wait_for_room() >= 0
        assert (waited, listing._is_full) == ([True] * waits, False)


def test_file_is_started_only_below_the_read_ahead_limits() -> None:
    async def found() -> str:
        return "file"

    async def waits(working: int, slots: int, untaken: int) -> bool:
        reading, _ = scanned()
        reading._listing = cast("Any", types.SimpleNamespace(next=found))
        reading._working, reading._untaken = working, untaken
        reading._slots.extend([cast("Any", None)] * slots)
        following: Any = asyncio.ensure_future(reading._next())
        for _ in range(3):
            await asyncio.sleep(0)
        is_waiting = not following.done()
        reading._working = reading._untaken = 0
        reading._slots.clear()
        reading._room.set()
        assert await following == "file"
        return is_waiting

    async def look() -> None:
        working, slots, untaken = 7, 8 * engine._MOST_AHEAD - 1, engine._MOST_UNTAKEN - 1
        assert not await waits(working, slots, untaken)
        assert await waits(working + 1, slots, untaken)
        assert await waits(working, slots + 1, untaken)
        assert await waits(working, slots, untaken + 1)

    run(look())


def test_rows_are_concatenated_and_cut_at_the_limit() -> None:
    rows = pa.record_batch([list(range(10))], names=["a"])

    async def sent(limit: int | None, *counts: int) -> tuple[list[list[int]], Any, int]:
        reading, put = scanned(limit=limit)
        over = reading._over = asyncio.get_running_loop().create_future()
        for number, count in enumerate(counts):
            batches = [rows.slice(0, count - count // 2), rows.slice(0, count // 2)]
            reading._forward(Item(batches, [], False, number % 3 == 2, lambda: None))
            assert put == []
        await asyncio.sleep(0)
        assert len(put) == 1
        assert reading._listing._most > module._MANY
        await asyncio.sleep(0)
        assert len(put) == 1
        ended = over.result() if over.done() else "goes on"
        return [[batch.num_rows for batch in item.batches] for item in put[0]], ended, reading._files_ahead

    async def look() -> None:
        assert await sent(None, 4, 6) == ([[2, 2], [3, 3]], "goes on", 8)
        assert await sent(11, 4, 6) == ([[2, 2], [3, 3]], "goes on", 1)
        assert await sent(10, 4, 6) == ([[2, 2], [3, 3]], None, 1)
        assert await sent(8, 4, 6) == ([[2, 2], [3, 1]], None, 1)
        assert await sent(3, 4, 6) == ([[2, 1], []], None, 1)
        assert await sent(100, *[2] * 5) == ([[1, 1]] * 5, "goes on", 2)
        assert await sent(100, *[2] * 12) == ([[1, 1]] * 12, "goes on", 8)

    run(look())


def test_first_error_of_a_read_is_kept() -> None:
    async def look() -> None:
        reading, _ = scanned()
        reading._end(ValueError("before the read"))
        over = reading._over = asyncio.get_running_loop().create_future()
        first = ValueError("first")
        reading._end(first)
        reading._end(ValueError("second"))
        assert over.result() is first

    run(look())


def test_replaced_file_is_read_again_at_most_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(*errors: Exception | None, version: Version | None = None, dropped: bool = True, **how: Any) -> Any:
        turn, asked, begun = iter(errors), list[Attempt](), list[int]()

        async def read_file(shared: object, number: int, slot: object, *, attempt: Attempt) -> None:
            asked.append(attempt)
            if (error := next(turn)) is not None:
                raise error

        monkeypatch.setattr(engine, "read_file", read_file)
        reading, _ = scanned(**how)
        over = reading._over = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(engine, "file_started", lambda report, size: begun.append(size))
        tasks = [task(0, 7, version=version), task(1, -1), task(2, 2)]
        slot: Any = types.SimpleNamespace(tasks=tasks, drop=lambda: dropped, failure=None, is_over=False)
        reading._slots.append(cast("Any", object()))
        reading._working = 2
        await reading._read(cast("Any", None), 0, slot)
        assert (slot.is_over, reading._working, reading._room.is_set()) == (True, 1, True)
        return asked, begun, slot.failure, over.result() if over.done() else None

    first, again, whole = Attempt

    async def all_of() -> None:
        stale, other = Stale("replaced"), ValueError("planted")
        assert await look(None) == ([first], [9], None, None)
        assert await look(stale, None) == ([first, again], [9, 7], None, None)
        assert await look(stale, stale, None) == ([first, again, whole], [9, 7, 7], None, None)
        assert await look(stale, other) == ([first, again], [9, 7], other, other)

        async def ended(*errors: Exception | None, **how: Any) -> tuple[list[Attempt], str]:
            asked, _, failure, over = await look(*errors, **how)
            assert type(failure) is DataError is type(over)
            return asked, failure.message

        assert await ended(stale, stale, stale) == ([first, again, whole], "replaced")
        # It is not read again after rows were returned, by this task or by another task of the same file.
        assert await ended(stale, dropped=False) == ([first], "replaced")
        assert await ended(stale, version=Version("1")) == ([first], "replaced")
        assert await look(other) == ([first], [9], other, other)
        # With a limit, an error is kept for later, as earlier files may provide enough rows.
        assert await look(other, limit=5) == ([first], [9], other, None)

    run(all_of())
