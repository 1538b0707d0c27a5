"""Count the resources that a process holds, and check that they are released in time."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import dataclasses
import gc
import os
import sys
import threading
import time
import traceback
import weakref
from pathlib import Path
from typing import Any

import urllib3

from delta_sharing_client.fetch import http
from delta_sharing_client.run import loop
from tests.memory import arrow_bytes

# Arrow keeps small objects in caches.
_MEMORY_SLACK = 1_000_000


@dataclasses.dataclass(frozen=True)
class Resources:
    """The numbers of Python threads, of sockets in use (without idle ones in a connection pool), of Arrow's bytes and
    of temporary files."""

    threads: int
    sockets: int
    bytes: int
    files: int

    @classmethod
    def now(cls, folder: Path) -> Resources:
        """Count the resources of this process, and the temporary files below ``folder``."""
        return cls(
            threads=_thread._count(),
            sockets=_sockets() - _idle(),
            bytes=arrow_bytes(),
            files=sum(".part" in path.name for path in folder.rglob("*")),
        )

    def more_than(self, before: Resources) -> str:
        """Describe the resources that were not held ``before``; empty if there are none."""
        results = [
            f"{now - then} {name}"
            for name, now, then, slack in (
                ("threads", self.threads, before.threads, 0),
                ("sockets", self.sockets, before.sockets, 0),
                ("bytes", self.bytes, before.bytes, _MEMORY_SLACK),
                ("files", self.files, before.files, 0),
            )
            if now > then + slack
        ]
        return ", ".join(results)


class Starved(threading.Thread):
    """Measures how long a process was ready to run but had no processor.

    That time is caused by the load of the machine. If threads wait at the same time, only the longest wait counts.
    """

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True, name="starved")
        self._tasks = f"/proc/{process}/task"
        self._over = threading.Event()
        self._samples: list[tuple[float, float]] = [(time.monotonic(), 0.0)]

    def __enter__(self) -> Starved:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()

    def since(self, moment: float) -> float:
        """Return how many seconds the process has waited for a processor since ``moment`` (of ``time.monotonic``)."""
        now = self._samples[-1]
        begin = next((sample for sample in reversed(self._samples) if sample[0] <= moment), self._samples[0])
        return now[1] - begin[1]

    def run(self) -> None:
        before = self._waited()
        while not self._over.wait(0.02):
            now = self._waited()
            lost = max((waited - before.get(thread, 0) for thread, waited in now.items()), default=0) / 1e9
            moment, total = self._samples[-1]
            self._samples.append((time.monotonic(), total + min(lost, time.monotonic() - moment)))
            before = now

    def _waited(self) -> dict[str, int]:
        """Return how many nanoseconds each thread has waited for a processor (proc(5), ``schedstat``)."""
        results = {}
        try:
            for thread in os.listdir(self._tasks):
                with contextlib.suppress(OSError):
                    results[thread] = int(Path(self._tasks, thread, "schedstat").read_text().split()[1])
        except OSError:  # the thread has ended
            pass
        return results


def wait_until_back(before: Resources, folder: Path, ended: float, seconds: float, starved: Starved) -> str:
    """Wait until no more resources are held than ``before``; describe what is still held ``seconds`` after ``ended``.

    Time during which the process waited for a processor does not count.
    """
    while True:
        more = Resources.now(folder).more_than(before)
        if not more:
            return ""
        if time.monotonic() > ended + seconds + starved.since(ended):
            return f"{more}; {_why(before, folder)}"
        time.sleep(0.002)


def _why(before: Resources, folder: Path) -> str:
    """Describe what keeps the resources: a cycle that garbage collection has freed, or live objects, with the stacks of
    all threads."""
    gc.collect()
    if not Resources.now(folder).more_than(before):
        return "a cycle held it"
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = [
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame, 12))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    return "\n".join(["a garbage collection does not end it; threads:", *stacks, "tasks:", *_tasks()])


def _tasks() -> list[str]:
    """Return a description of each task on the loop, with the place where it waits."""
    return [
        f"{task.get_name()}: {task.get_coro()} {task.get_stack()}" for task in asyncio.all_tasks(loop.current().loop)
    ]


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _sockets() -> int:
    result = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            result += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return result


_pools: weakref.WeakSet[urllib3.HTTPConnectionPool] = weakref.WeakSet()


def count_pools() -> None:
    """Record every connection pool of urllib3 that is created from now on."""
    make = urllib3.HTTPConnectionPool.__init__

    def made(pool: urllib3.HTTPConnectionPool, *args: Any, **kwargs: Any) -> None:
        make(pool, *args, **kwargs)
        _pools.add(pool)

    urllib3.HTTPConnectionPool.__init__ = made  # type: ignore[method-assign]


def _idle() -> int:
    """Return how many idle connections are in the pools of this process.

    If nothing runs on the loop, connections to storages are idle, because a request that ends early closes its
    connection.
    """
    running = loop.current().loop
    kept = 0 if asyncio.all_tasks(running) else sum(sock.fileno() >= 0 for sock in list(http._sockets))
    waiting = [connection for pool in list(_pools) if pool.pool is not None for connection in list(pool.pool.queue)]
    return kept + sum(connection is not None and connection.sock is not None for connection in waiting)


class PeakOfPython(threading.Thread):
    """Finds the largest memory of any Python process below this one: Spark's planners and workers.

    Attributes
    ----------
    bytes:
        The largest resident size of one process so far.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True, name="peak-of-python")
        self._over = threading.Event()
        self.bytes = 0

    def __enter__(self) -> PeakOfPython:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.1):
            parents = {int(process.name): _parent(process) for process in Path("/proc").glob("[0-9]*")}
            for process in parents:
                if process != os.getpid() and _is_below(process, os.getpid(), parents):
                    self.bytes = max(self.bytes, _peak_of_python(process))


def _is_below(process: int, ancestor: int, parents: dict[int, int]) -> bool:
    while process in parents:
        process = parents[process]
        if process == ancestor:
            return True
    return False


def _parent(process: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _peak_of_python(process: int) -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        if "python" in lines[0]:
            return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 0
