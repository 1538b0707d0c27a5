from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from delta_sharing_client.run import loop
from tests.unit.storages import wait_for


def test_what_runs_is_no_garbage() -> None:
    """Its clean-up would run on the thread that collects it."""
    tasks: list[weakref.ref[asyncio.Task[Any]]] = []
    ended: list[asyncio.AbstractEventLoop] = []

    async def waits_for_what_only_it_knows() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(weakref.ref(task))
        del task
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(asyncio.get_running_loop())

    running = loop.Running(waits_for_what_only_it_knows())
    wait_for(lambda: bool(tasks))
    del running
    gc.collect()
    task = tasks[0]()
    assert task is not None
    assert not ended
    task.get_loop().call_soon_threadsafe(task.cancel)
    wait_for(lambda: ended == [loop.current().loop])
    del task
    wait_for(lambda: tasks[0]() is None)
