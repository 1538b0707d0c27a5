"""The limit on concurrent requests: requests start in order, the limit falls when a server refuses and rises again
when requests succeed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from delta_sharing_client.fetch.source import RequestLimiter


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_limit_is_kept_and_the_lowest_order_starts_first() -> None:
    async def work() -> None:
        limiter, began, go = RequestLimiter(2), [], asyncio.Event()

        async def request(order: tuple[int, int]) -> None:
            async with limiter(order):
                began.append(order)
                await go.wait()

        tasks = [asyncio.create_task(request(order)) for order in ((0, 0), (0, 1), (3, 0), (1, 1), (1, 0))]
        await settle()
        assert began == [(0, 0), (0, 1)]
        go.set()
        await asyncio.gather(*tasks)
        assert began == [(0, 0), (0, 1), (1, 0), (1, 1), (3, 0)]

    run(work())


def test_task_cancelled_waiting_or_in_flight_frees_its_slot() -> None:
    async def work() -> None:
        limiter, began, go = RequestLimiter(1), [], asyncio.Event()

        async def request(name: int) -> None:
            async with limiter((name, 0)):
                began.append(name)
                await go.wait()

        tasks = [asyncio.create_task(request(name)) for name in range(4)]
        await settle()
        tasks[1].cancel()  # waiting
        tasks[0].cancel()  # in flight
        await settle()
        assert began == [0, 2]
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert began == [0, 2, 3]

    run(work())


def test_task_cancelled_right_after_getting_a_slot_frees_it() -> None:
    async def work() -> None:
        limiter, began = RequestLimiter(1), []

        async def request(name: int) -> None:
            async with limiter((name, 0)):
                began.append(name)

        first = limiter((0, 0))
        await first.__aenter__()
        tasks = [asyncio.create_task(request(name)) for name in (1, 2)]
        await settle()
        await first.__aexit__(None, None, None)  # request 1 got its slot but has not run yet
        tasks[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await tasks[0]
        await asyncio.wait_for(tasks[1], 1)
        assert began == [2]

    run(work())


def test_requests_refused_together_halve_the_limit_once() -> None:
    async def work() -> None:
        limiter = RequestLimiter(16)

        async def refused(order: int) -> None:
            async with limiter((order, 0)) as slot:
                await asyncio.sleep(0)
                slot.refused()

        await asyncio.gather(*(refused(order) for order in range(16)))
        assert limiter.limit == 8
        await refused(0)
        assert limiter.limit == 1  # even a single request in flight was refused
        await refused(0)
        assert limiter.limit == 1

    run(work())


def test_each_successful_round_raises_the_limit_by_one() -> None:
    async def work() -> None:
        limiter = RequestLimiter(4)
        slots = [limiter((number, 0)) for number in range(4)]
        for slot in slots:
            await slot.__aenter__()
        slots[0].refused()
        for slot in slots:
            await slot.__aexit__(RuntimeError, RuntimeError(), None)
        limits = []
        for _ in range(2 + 3 + 10):
            async with limiter((0, 0)):
                limits.append(limiter.limit)
        assert limits == [2, 2, 3, 3, 3, *10 * [4]]

    run(work())


def test_requests_wait_until_the_reduced_limit_has_room() -> None:
    async def work() -> None:
        limiter, active, most = RequestLimiter(8), 0, []
        go = asyncio.Event()

        async def request(order: int) -> None:
            nonlocal active
            async with limiter((order, 0)) as slot:
                active += 1
                most.append(active)
                await go.wait()
                if order == 0:
                    slot.refused()
                await asyncio.sleep(0)
                active -= 1

        tasks = [asyncio.create_task(request(order)) for order in range(40)]
        await settle()
        assert max(most) == 8
        most.clear()
        go.set()
        await asyncio.gather(*tasks)
        assert len(most) == 32
        # As many as the limit after the refusal, and one more after each round of that many requests.
        assert all(active <= 4 + number // 4 for number, active in enumerate(most))

    run(work())
