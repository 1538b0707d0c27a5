from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.run import loop
from tests.time_limits import HANGS
from tests.unit.raw_server import pause
from tests.unit.storages import wait_for


def test_running_jobs_are_not_garbage_collected() -> None:
    """Otherwise the cleanup would run on the thread that collects the job."""
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
def test_fork_during_the_loops_imports_does_not_hang(fails: bool) -> None:
    """A child that is forked during an import would wait for that import for ever."""
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


# --- values and jobs between threads and the loop ---


def test_values_from_threads_arrive_complete_and_in_order() -> None:
    """Most values are put while the loop takes earlier ones."""
    taken: list[tuple[int, int]] = []
    inbox: loop.Inbox[tuple[int, int]] = loop.Inbox(loop.current().loop, taken.append)
    threads = [
        threading.Thread(target=lambda number=number: [inbox.put((number, place)) for place in range(5000)])
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(lambda: len(taken) == 20_000)
    for number in range(4):
        assert [place for thread, place in taken if thread == number] == list(range(5000))


def test_loop_is_woken_once_for_all_pending_items(monkeypatch: pytest.MonkeyPatch) -> None:
    running = loop.current().loop
    woken: list[Any] = []
    taken: list[int] = []
    inbox = loop.Inbox(running, taken.append)
    monkeypatch.setattr(running, "call_soon_threadsafe", woken.append)
    for value in range(3):
        inbox.put(value)
    [empty] = woken
    empty()
    assert taken == [0, 1, 2]
    inbox.put(3)
    assert len(woken) == 2


def test_jobs_run_on_other_threads_and_return_or_raise() -> None:
    decoders = loop.current().decoders

    async def jobs() -> list[Any]:
        def fails() -> None:
            raise ValueError("as told")

        names = [decoders.run(lambda: threading.current_thread().name) for _ in range(50)]
        results = await asyncio.gather(*names, decoders.run(fails), return_exceptions=True)
        return [results[-1], *set(results[:-1])]

    failure, *names = loop.call(jobs())
    assert isinstance(failure, ValueError)
    assert 1 <= len(names) <= pa.cpu_count()
    assert all(name.startswith("delta-sharing-decode") for name in names)


def test_as_many_jobs_as_processors_run_at_once() -> None:
    most, running = pa.cpu_count(), 0
    seen: list[int] = []
    lock, full = threading.Lock(), threading.Barrier(most)

    def job() -> None:
        nonlocal running
        with lock:
            running += 1
            seen.append(running)
        full.wait(60)  # blocks until that many jobs run
        with lock:
            running -= 1

    async def jobs() -> None:
        await asyncio.gather(*(loop.current().decoders.run(job) for _ in range(3 * most)))

    loop.call(jobs())
    assert max(seen) == most


def test_job_cancelled_before_its_start_never_runs() -> None:
    started: list[str] = []
    go_on = threading.Event()

    async def jobs() -> None:
        decoders = loop.current().decoders
        busy = [decoders.run(lambda: go_on.wait(60)) for _ in range(pa.cpu_count())]
        late = decoders.run(lambda: started.append("late"))
        late.cancel()
        go_on.set()
        await asyncio.gather(*busy)
        await decoders.run(lambda: started.append("last"))

    loop.call(jobs())
    assert started == ["last"]


def test_result_of_a_job_cancelled_while_running_is_dropped() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Result:
        pass

    results: list[weakref.ref[Result]] = []

    def job() -> Result:
        begun.set()
        go_on.wait(60)
        result = Result()
        results.append(weakref.ref(result))
        return result

    async def jobs() -> None:
        decoders = loop.current().decoders
        future = decoders.run(job)
        await asyncio.to_thread(begun.wait, 60)
        future.cancel()
        go_on.set()
        await decoders.run(lambda: None)

    loop.call(jobs())
    wait_for(lambda: bool(results) and results[0]() is None)


def test_failed_job_is_freed_without_garbage_collection() -> None:
    class Held:
        pass

    held: list[weakref.ref[Held]] = []

    def job() -> None:
        large = Held()
        held.append(weakref.ref(large))
        raise ValueError("with what its frames hold")

    async def fails() -> None:
        with pytest.raises(ValueError, match="frames"):
            await loop.current().decoders.run(job)

    gc.disable()
    try:
        loop.call(fails())
        wait_for(lambda: held[0]() is None)
    finally:
        gc.enable()


def test_interpreter_ends_with_waiting_running_and_new_jobs() -> None:
    """Running and queued jobs finish; jobs submitted later never run."""
    program = """
        import asyncio, sys, time
        from delta_sharing_client.run import loop

        async def jobs():
            for _ in range(10):
                loop.current().decoders.run(lambda: time.sleep(0.01))
            while True:
                await loop.current().decoders.run(lambda: time.sleep(0.01))

        running = loop.Running(jobs)
        running.start()
        time.sleep(0.1)
        sys.stdout.write("done")
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "done", "")


def test_loop_cannot_be_used_after_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    for current in (SimpleNamespace(end=lambda: ended.append("loop")), None):
        monkeypatch.setattr(loop, "_current", current)
        monkeypatch.setattr(loop, "_has_ended", False)
        loop._end()
        with pytest.raises(UsageError):
            loop.current()
    assert ended == ["loop"]


def test_loop_stops_jobs_and_connections_at_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    own, begun = loop.Loop(), threading.Event()
    steps: list[Any] = []
    timeout = asyncio.timeout

    def limited(seconds: float) -> asyncio.Timeout:
        steps.append(seconds)
        return timeout(HANGS)

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")

    async def close() -> None:
        steps.append("closed")

    monkeypatch.setattr(asyncio, "timeout", limited)
    own._close_connections = close
    asyncio.run_coroutine_threadsafe(waits(), own.loop)
    assert begun.wait(HANGS)
    own.end()
    assert steps == [loop.END_SECONDS / 2, "ended", loop.END_SECONDS / 4, "closed"]
    assert not own._thread.is_alive()
    own.end()
    own.loop.close()


def test_forked_child_has_its_own_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    silent: list[Any] = []
    parent: Any = SimpleNamespace(loop=SimpleNamespace(set_exception_handler=silent.append))
    held = threading.Lock()
    held.acquire()
    for current, kept in ((parent, [parent]), (None, [])):
        monkeypatch.setattr(loop, "_current", current)
        monkeypatch.setattr(loop, "_parents", [])
        monkeypatch.setattr(loop, "_has_ended", True)
        monkeypatch.setattr(loop, "_making", held)
        loop._after_fork()
        assert (loop._current, loop._has_ended, loop._parents) == (None, False, kept)
        assert loop._making.acquire(False)
    (handler,) = silent
    assert handler(None, {}) is None


def test_an_interrupted_wait_ends_the_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []

    async def waits() -> None:
        steps.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("ended")

    running = loop.Running(waits)
    wait = running.wait

    def interrupted(seconds: float) -> bool:
        monkeypatch.setattr(running, "wait", lambda seconds: steps.append(seconds) or wait(HANGS))
        wait_for(lambda: steps == ["begun"])
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        running.result()
    assert sorted(map(str, steps)) == sorted(["begun", str(loop.END_SECONDS), "ended"])


def test_interruptible_call_returns_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "LISTEN_SECONDS", 0.001)
    where: list[bool] = []

    def slow() -> int:
        where.append(threading.current_thread() is threading.main_thread())
        pause(0.02)
        return 7

    def late() -> None:
        raise TimeoutError("of the call")

    assert loop.interruptible(slow) == 7
    with pytest.raises(TimeoutError, match="of the call"):
        loop.interruptible(late)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(loop.interruptible, slow).result(HANGS) == 7
    # A call on the main thread waits for the network on a daemon thread, which does not keep the program alive.
    assert where == [False, False]
    assert loop.interruptible(lambda: threading.current_thread().daemon)


def test_a_coroutine_runs_once_and_is_cancelled_once() -> None:
    steps: list[str] = []

    async def ended(number: int) -> int:
        steps.append(str(number))
        await asyncio.sleep(0)
        return number

    async def failing() -> None:
        raise ValueError("planted")

    async def stopped(begun: threading.Event) -> None:
        try:
            begun.set()
            await asyncio.sleep(HANGS)
        finally:
            # A second cancellation does not interrupt the cleanup.
            await asyncio.sleep(0.02)
            steps.append("cleaned up")

    assert loop.call(ended(1)) == 1
    with pytest.raises(ValueError, match="planted"):
        loop.call(failing())
    begun = threading.Event()
    running = loop.Running(lambda: stopped(begun))
    assert not running.wait(0)
    running.start()
    assert begun.wait(HANGS)
    for _ in range(3):
        running.cancel()
    assert running.wait(HANGS)
    assert running.wait(0)
    assert steps == ["1", "cleaned up"]
    with pytest.raises(CancelledError):
        running._outcome()
    never = loop.Running(lambda: ended(2))
    never.cancel()
    never.cancel()
    never.start()
    assert never.wait(HANGS)
    assert steps == ["1", "cleaned up"]
    wait_for(lambda: not loop._running)
