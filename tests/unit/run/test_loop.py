from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import pytest

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

    running = loop.Running(waits_for_what_only_it_knows)
    running.start()
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("fails", [False, True])
def test_the_loop_is_made_while_the_server_is_asked_and_before_anything_else_goes_on(fails: bool) -> None:
    """A child that is forked off in the middle of an import would wait for that import for ever."""
    program = """
        import os, signal, sys
        from delta_sharing_client.run import loop
        assert "aiohttp" not in sys.modules
        try:
            with loop.prepared():
                while "aiohttp" not in sys.modules:  # it comes without this thread
                    pass
                if FAILS:
                    raise ValueError
        except ValueError:
            pass
        child = os.fork()
        if not child:
            signal.alarm(20)
            import aiohttp
            loop.current()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        made = loop.current()
        with loop.prepared():
            assert loop.current() is made
    """
    lines = textwrap.dedent(program).replace("FAILS", str(fails))
    run = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "")
