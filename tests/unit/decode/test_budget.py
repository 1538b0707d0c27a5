from __future__ import annotations

import asyncio
import random

import hypothesis.strategies as st
from hypothesis import given

from delta_sharing_client.decode.budget import Grant, MemoryBudget
from tests.quota import meets, met


async def requested(budget: MemoryBudget, *requests: tuple[tuple[int, int], int]) -> list[asyncio.Task[Grant]]:
    tasks = [asyncio.ensure_future(budget.acquire(order, nbytes)) for order, nbytes in requests]
    await asyncio.sleep(0)
    return tasks


def has_room(budget: MemoryBudget, nbytes: int) -> bool:
    """Return whether ``nbytes`` more can be granted without a wait."""
    return not budget._growing and not budget._beginning and budget._in_use + nbytes <= budget._capacity


def done(tasks: list[asyncio.Task[Grant]]) -> list[bool]:
    return [task.done() for task in tasks]


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_downloads_get_memory_in_file_order() -> None:
    async def check() -> None:
        budget = MemoryBudget(10)
        # Downloads may use 60 percent of the memory.
        tasks = await requested(budget, ((0, 0), 4), ((1, 0), 2), ((2, 0), 1), ((1, 1), 1))
        assert done(tasks) == [True, True, False, False]
        tasks[0].result().release()
        await settle()
        assert done(tasks) == [True, True, True, True]

    asyncio.run(check())


def test_first_file_in_order_may_exceed_the_budget() -> None:
    async def check() -> None:
        budget = MemoryBudget(10)
        tasks = await requested(budget, ((5, 0), 10), ((3, 0), 100), ((4, 0), 1))
        assert done(tasks) == [True, True, False]
        growing = asyncio.ensure_future(tasks[0].result().grow(1))
        first = asyncio.ensure_future(tasks[1].result().grow(1000))
        await settle()
        assert (growing.done(), first.done()) == (False, True)
        tasks[1].result().release()
        await settle()
        assert done(tasks) == [True, True, True]
        assert growing.done()

    asyncio.run(check())


def test_decoding_comes_before_further_downloads() -> None:
    async def check() -> None:
        budget = MemoryBudget(10)
        tasks = await requested(budget, ((0, 0), 3), ((1, 0), 3), ((2, 0), 1), ((3, 0), 1))
        grants = [task.result() for task in tasks[:2]]
        growing = [asyncio.ensure_future(grant.grow(nbytes)) for grant, nbytes in zip(grants, (3, 2), strict=True)]
        await settle()
        # The first file in order is granted the rest of the memory; the second file waits.
        assert [task.done() for task in growing] == [True, False]
        grants[0].resize(6)
        await settle()
        # One byte is free, but later downloads do not overtake the second file.
        assert [task.done() for task in growing] == [True, False]
        assert done(tasks[2:]) == [False, False]
        grants[0].release()
        await settle()
        assert growing[1].done()
        assert done(tasks[2:]) == [True, True]

    asyncio.run(check())


def test_decoded_bytes_are_not_counted_as_downloads() -> None:
    async def check() -> None:
        budget = MemoryBudget(100)
        tasks = await requested(budget, ((0, 0), 60), ((1, 0), 25))
        assert done(tasks) == [True, False]
        tasks[0].result().resize(75)
        await settle()
        assert done(tasks) == [True, True]
        tasks += await requested(budget, ((2, 0), 1))
        assert not tasks[2].done()
        for task in tasks[:2]:
            task.result().release()
        await settle()
        # All memory for downloads is free again: no release was counted twice.
        tasks += await requested(budget, ((3, 0), 59), ((4, 0), 1))
        assert done(tasks) == [True, True, True, True, False]
        assert budget._in_use == 60

    asyncio.run(check())


def test_resizing_frees_memory_and_release_is_idempotent() -> None:
    async def check() -> None:
        budget = MemoryBudget(10)
        tasks = await requested(budget, ((0, 0), 7), ((1, 0), 4), ((2, 0), 4))
        tasks[0].result().resize(2)
        await settle()
        assert done(tasks) == [True, True, False]
        tasks[1].result().release()
        tasks[1].result().release()
        await settle()
        assert done(tasks) == [True, True, True]
        assert has_room(budget, 4)
        assert not has_room(budget, 5)

    asyncio.run(check())


def test_cancelled_waiter_holds_no_memory() -> None:
    async def check() -> None:
        budget = MemoryBudget(10)
        tasks = await requested(budget, ((0, 0), 10), ((1, 0), 7), ((2, 0), 7))
        tasks[1].cancel()
        tasks[0].result().release()
        # The grant is cancelled before the task resumes.
        tasks[2].cancel()
        await settle()
        assert [task.cancelled() for task in tasks] == [False, True, True]
        assert has_room(budget, 10)

    asyncio.run(check())


def test_grant_cancelled_while_growing_holds_no_memory() -> None:
    async def check() -> None:
        budget = MemoryBudget(10)
        tasks = await requested(budget, ((0, 0), 2), ((1, 0), 2), ((2, 0), 2), ((3, 0), 1))
        growing = [asyncio.ensure_future(task.result().grow(7)) for task in tasks[1:3]]
        await settle()
        growing[0].cancel()
        await settle()
        assert growing[0].cancelled()
        # The cancelled download holds no memory; the other one still waits.
        assert budget._in_use == 4
        assert not growing[1].done()
        tasks[0].result().release()
        growing[1].cancel()
        await settle()
        assert growing[1].cancelled()
        assert done(tasks) == [True, True, True, True]
        tasks[3].result().release()
        assert has_room(budget, 10)

    asyncio.run(check())


@meets(waited=10, grew=10)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), min_size=1, max_size=12), st.randoms())
def test_files_consumed_in_order_always_end(files: list[tuple[int, int]], chance: random.Random) -> None:
    """Files request memory for their parts one after another, at any time; a consumer takes all parts in order."""

    async def check() -> None:
        budget, waited, grew = MemoryBudget(20), 0, 0
        parts = {(number, part): asyncio.Event() for number, (count, _) in enumerate(files) for part in range(count)}
        held: dict[tuple[int, int], Grant] = {}

        async def read(number: int, count: int, nbytes: int) -> None:
            nonlocal waited, grew
            for part in range(count):
                await asyncio.sleep(0)
                waited += not has_room(budget, nbytes)
                grant = held[number, part] = await budget.acquire((number, part), nbytes)
                await asyncio.sleep(0)
                grew += not has_room(budget, nbytes)
                await grant.grow(nbytes)
                grant.resize(nbytes + part)
                parts[number, part].set()

        async def consume() -> None:
            for order, here in parts.items():
                await here.wait()
                held.pop(order).release()

        numbers = list(range(len(files)))
        chance.shuffle(numbers)
        reads = [read(number, *files[number]) for number in numbers]
        await asyncio.wait_for(asyncio.gather(consume(), *reads), 20)
        assert has_room(budget, 20)
        met("waited", waited)
        met("grew", grew)

    asyncio.run(check())
