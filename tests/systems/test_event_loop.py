"""Reads in programs with their own event loop, in threads, and in newly started processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing

LOOPS = [asyncio.new_event_loop]
if sys.platform == "win32":
    LOOPS = [asyncio.ProactorEventLoop, asyncio.SelectorEventLoop]


def rows(profile: str) -> int:
    """Return the number of rows of the table; other processes import this function by name."""
    return len(ds.load_as_pandas(f"{profile}#s.d.t"))


@pytest.mark.parametrize("new_loop", LOOPS)
def test_blocking_read_works_in_a_running_event_loop(server: testing.Server, new_loop: object) -> None:
    async def cell() -> int:
        return rows(str(server.profile_path))

    loop = new_loop()  # type: ignore[operator]
    try:
        assert loop.run_until_complete(cell()) == 1000
    finally:
        loop.close()


def test_reads_in_other_threads_do_not_block_the_event_loop(server: testing.Server) -> None:
    async def both() -> tuple[list[int], int]:
        ticks = 0
        reads = asyncio.gather(*(asyncio.to_thread(rows, str(server.profile_path)) for _ in range(4)))
        while not reads.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return await reads, ticks

    counts, ticks = asyncio.run(both())
    assert counts == [1000] * 4
    assert ticks > 1


def test_reads_work_in_many_threads(server: testing.Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(rows, [str(server.profile_path)] * 16)) == [1000] * 16


@pytest.mark.parametrize("method", sorted({"spawn", multiprocessing.get_start_method()}))
def test_reads_work_in_processes_of_every_start_method(server: testing.Server, method: str) -> None:
    rows(str(server.profile_path))  # so that a forked child inherits the event loop and its connections
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert list(pool.map(rows, [str(server.profile_path)] * 2)) == [1000] * 2
