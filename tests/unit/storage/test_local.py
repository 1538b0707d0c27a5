"""Calls of a directory of this machine in threads."""

from __future__ import annotations

import asyncio

import pytest

from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.storage.local import _in_thread


@pytest.mark.parametrize("seconds", [None, 60])
@pytest.mark.parametrize("turns", range(6))
def test_cancellation_is_not_lost_to_a_result(seconds: float | None, turns: int) -> None:
    """The cancellation arrives some turns of the event loop after the result. Were it lost, a read with a limit would
    never end."""

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def cancel(left: int) -> None:
            if left:
                loop.call_soon(cancel, left - 1)
            else:
                task.cancel()

        async def read() -> bool:
            await _in_thread(lambda: loop.call_soon_threadsafe(cancel, turns), Deadline(seconds), "Reading", None)
            task_now = asyncio.current_task()
            assert task_now is not None
            return task_now.cancelling() > 0

        for _ in range(10):
            task = asyncio.ensure_future(read())
            (lost,) = await asyncio.gather(task, return_exceptions=True)
            assert lost is False or isinstance(lost, asyncio.CancelledError)

    asyncio.run(run())
