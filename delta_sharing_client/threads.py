"""Threads, and pools of them that accept work for as long as the program runs. No other module creates any.

The pools of ``concurrent.futures`` accept no more work once the main thread has ended. But Python then waits for the
program's other threads, and calls the functions that are registered with ``atexit``: these may still read.
"""

from __future__ import annotations

import atexit
import functools
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, TypeVar

from delta_sharing_client.errors import UsageError

S = TypeVar("S")
T = TypeVar("T")


def start(call: Callable[[], object], name: str, *, daemon: bool = True) -> threading.Thread:
    """Run ``call`` on a new thread, by default a daemon thread, and return the thread. Raises ``UsageError`` if the
    program is ending or the system has no more threads."""
    check_running()
    thread = threading.Thread(target=call, name=name, daemon=daemon)
    try:
        thread.start()
    except RuntimeError as error:
        # Python 3.12 before 3.12.3 starts no thread once the main thread has ended.
        check_running(has_ended=not threading.main_thread().is_alive())
        raise UsageError(
            f"No thread can be started ({error}). Raise the limit of processes or memory, or read less at a time."
        ) from None
    return thread


def check_running(*, has_ended: bool = False) -> None:
    """Raise ``UsageError`` if the interpreter is shutting down, so that no new thread would run, or if ``has_ended`` is
    true."""
    if has_ended or sys.is_finalizing():
        raise UsageError(
            "The program is ending, so no read can begin. Read before the main thread ends, and join the threads "
            "that read."
        )


class Job(NamedTuple):
    """A call whose outcome ``future`` gets."""

    future: Future[Any]
    call: Callable[[], Any]

    def run(self) -> None:
        """Call it, unless the future was cancelled."""
        # This is not part of the thread's loop, whose variables would keep the result until the next job.
        future = self.future
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = self.call()
        except BaseException as error:
            future.set_exception(error)
            # The error refers to this frame, so the frame must not refer to the future, which holds the error.
            del future, self
        else:
            future.set_result(result)


class Threads(Executor):
    """A pool of up to ``size`` daemon threads; they start when there is work for them.

    At exit the interpreter waits for the jobs that run, because it must not end while one of them is inside Arrow; jobs
    that have not started are cancelled.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        # The number of jobs that run or wait.
        self._count = 0
        self._is_closed = False
        self._lock = threading.Lock()
        _pools.add(self)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``fn`` on a thread. Raises ``UsageError`` after ``shutdown``, or if no thread can be started for it."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                check_running(has_ended=True)
            if self._count >= len(self._threads) < self._size:
                self._add_thread()
            self._count += 1
            self._jobs.put(Job(future, functools.partial(fn, *args, **kwargs)))
        return future

    def _add_thread(self) -> None:
        try:
            self._threads.append(start(self._work, f"{self._name}_{len(self._threads)}"))
        except UsageError:
            # The existing threads do the work, if there are any.
            if not self._threads:
                raise

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job
            with self._lock:
                self._count -= 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more jobs; like ``concurrent.futures.Executor.shutdown``."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                waiting = self._taken() if cancel_futures else []
                for _ in self._threads:
                    self._jobs.put(None)
            else:
                waiting = []
        for job in waiting:
            job.future.cancel()
        if wait:
            for thread in self._threads:
                thread.join()

    def _taken(self) -> list[Job]:
        jobs = []
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            if job is not None:
                jobs.append(job)
        return jobs


def mapped(call: Callable[[S], T], items: Iterable[S], *, most: int, name: str) -> list[T]:
    """Return ``call(item)`` for all ``items`` in order, up to ``most`` at a time on threads of a pool. Raises the first
    error, after the calls that run have ended."""
    with Threads(most, name) as pool:
        return list(pool.map(call, items))


_pools: weakref.WeakSet[Threads] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    for pool in list(_pools):
        pool.shutdown(cancel_futures=True)


if hasattr(os, "register_at_fork"):
    # A child has none of the parent's threads.
    os.register_at_fork(after_in_child=_pools.clear)
