from __future__ import annotations

import asyncio
import random

import hypothesis.strategies as st
from hypothesis import given

from delta_sharing_client.read.budget import Budget, Grant
from tests.quota import meets, met


async def granted(budget: Budget, *wanted: tuple[tuple[int, int], int]) -> list[asyncio.Task[Grant]]:
    tasks = [asyncio.ensure_future(budget.acquire(order, nbytes)) for order, nbytes in wanted]
    await asyncio.sleep(0)
    return tasks


def has_room(budget: Budget, nbytes: int) -> bool:
    """Whether so many more would fit now, with nobody waiting."""
    return not budget._waiting and budget._in_use + nbytes <= budget._capacity


def done(tasks: list[asyncio.Task[Grant]]) -> list[bool]:
    return [task.done() for task in tasks]


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_bytes_are_granted_in_order_as_far_as_they_reach() -> None:
    async def check() -> None:
        budget = Budget(10)
        tasks = await granted(budget, ((0, 0), 6), ((1, 0), 4), ((2, 0), 1), ((1, 1), 1))
        assert done(tasks) == [True, True, False, False]
        tasks[0].result().release()
        await settle()
        assert done(tasks) == [True, True, True, True]

    asyncio.run(check())


def test_what_stands_before_all_that_is_granted_passes_however_large() -> None:
    async def check() -> None:
        budget = Budget(10)
        tasks = await granted(budget, ((5, 0), 10), ((3, 0), 100), ((4, 0), 1))
        assert done(tasks) == [True, True, False]
        tasks[1].result().release()
        await settle()
        assert done(tasks) == [True, True, True]

    asyncio.run(check())


def test_what_turns_out_smaller_makes_room_and_a_second_release_gives_nothing() -> None:
    async def check() -> None:
        budget = Budget(10)
        tasks = await granted(budget, ((0, 0), 10), ((1, 0), 4), ((2, 0), 4))
        tasks[0].result().resize(6)
        await settle()
        assert done(tasks) == [True, True, False]
        tasks[1].result().release()
        tasks[1].result().release()
        await settle()
        assert done(tasks) == [True, True, True]
        assert not has_room(budget, 1)

    asyncio.run(check())


def test_whoever_was_cancelled_holds_nothing() -> None:
    async def check() -> None:
        budget = Budget(10)
        tasks = await granted(budget, ((0, 0), 10), ((1, 0), 10), ((2, 0), 10))
        tasks[1].cancel()
        tasks[0].result().release()
        # Granted, and cancelled before it hears of that.
        tasks[2].cancel()
        await settle()
        assert [task.cancelled() for task in tasks] == [False, True, True]
        assert has_room(budget, 10)

    asyncio.run(check())


@meets(waited=10)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), min_size=1, max_size=12), st.randoms())
def test_files_consumed_in_order_always_end(files: list[tuple[int, int]], chance: random.Random) -> None:
    """Files ask for their parts at any time, one after another; a consumer takes all parts in order."""

    async def check() -> None:
        budget, waited = Budget(20), 0
        parts = {(number, part): asyncio.Event() for number, (count, _) in enumerate(files) for part in range(count)}
        held: dict[tuple[int, int], Grant] = {}

        async def read(number: int, count: int, nbytes: int) -> None:
            nonlocal waited
            for part in range(count):
                await asyncio.sleep(0)
                waited += not has_room(budget, nbytes)
                held[number, part] = await budget.acquire((number, part), nbytes)
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

    asyncio.run(check())
