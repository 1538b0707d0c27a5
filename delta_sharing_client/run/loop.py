"""The event loop of this process: one daemon thread runs it, and every read is a task on it.

It is created on first use and lives as long as the process. A forked child creates its own and never touches the
parent's. When the interpreter exits, running tasks are cancelled and get a second to end.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import contextvars
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import ThreadPoolExecutor as AnyExecutor  # noqa: TID251 - asyncio requires a subclass of it
from typing import Any, Generic, TypeVar

import pyarrow as pa

from delta_sharing_client import forks
from delta_sharing_client.errors import UsageError, within_limits
from delta_sharing_client.threads import Job, Threads, check_running, start

T = TypeVar("T")

END_SECONDS = 0.9
"""How many seconds to wait for a read to end, when it is closed or when the interpreter exits."""

LISTEN_SECONDS = 0.25
"""A signal that arrives just before a wait begins is handled when that wait ends, so waits are short and repeated."""


class _DaemonThreads(AnyExecutor):
    """One daemon thread per call, for calls that wait for the network.

    At exit the interpreter waits for the threads of the standard executor, however long their calls take.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        job = Job(Future(), functools.partial(fn, *args, **kwargs))
        start(job.run, "delta-sharing-call")
        future: Future[T] = job.future
        return future


_daemons = _DaemonThreads()


class Inbox(Generic[T]):
    """Values that threads put here, and that ``take`` receives on ``loop``, in order.

    The loop is woken once for all values that arrive before it takes them, because waking it is a system call and makes
    both threads wait for the interpreter lock.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[T], None]) -> None:
        self._loop = loop
        self._take = take
        self._values: deque[T] = deque()
        self._is_due = False

    def put(self, value: T) -> None:
        """Add ``value``, on any thread. Takes no lock."""
        self._values.append(value)
        if not self._is_due:
            self._is_due = True
            with contextlib.suppress(RuntimeError):  # the interpreter has ended the loop
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        # Reset before the first value is taken, so that later values wake the loop again.
        self._is_due = False
        while self._values:
            self._take(self._values.popleft())


class Decoders:
    """Threads for the CPU work of ``loop``, one per processor; several results wake the loop once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = Threads(pa.cpu_count(), "delta-sharing-decode")
        self._results: Inbox[Callable[[], None]] = Inbox(loop, lambda settle: settle())

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``call`` on a thread, and return a future of the loop, on which this must be called. A job that is
        cancelled before it starts never starts."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._executor.submit(self._do, [(future, call)])
        return future

    def _do(self, job: list[tuple[asyncio.Future[Any], Callable[[], Any]]]) -> None:
        # An error refers to this frame and to that of the pool below, which refers to ``job``: a cycle that would keep
        # the values in the error's frames alive.
        future, call = job.pop()
        try:
            result = None if future.cancelled() else call()
        except BaseException as error:
            self._results.put(functools.partial(_settle, future, None, error))
            del future, call
        else:
            self._results.put(functools.partial(_settle, future, result, None))


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Loop:
    """An event loop in its own thread; ``decoders`` are the threads for CPU work."""

    def __init__(self) -> None:
        # Imported here, because importing aiohttp on the loop would delay reads.
        from delta_sharing_client.fetch import http

        self._close_connections = http.close_all
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_daemons)
        self.decoders = Decoders(self.loop)
        self._thread = start(self._run, "delta-sharing-loop")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def end(self) -> None:
        """Cancel all tasks and end the thread, within ``END_SECONDS``; called when the interpreter exits."""
        if not self._thread.is_alive():
            return

        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            with contextlib.suppress(Exception):
                async with asyncio.timeout(END_SECONDS / 2):
                    await asyncio.gather(*tasks, return_exceptions=True)
                async with asyncio.timeout(END_SECONDS / 4):
                    await self._close_connections()
            self.loop.stop()

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(lambda: self.loop.create_task(finish()))
        self._thread.join(END_SECONDS)


_current: Loop | None = None
_has_ended = False
_making = threading.Lock()
# A parent's loop is kept, so that garbage collection in the child does not close its sockets.
_parents: list[Loop] = []


def current() -> Loop:
    """Return the loop of this process. Raises ``UsageError`` if the interpreter is ending."""
    global _current
    check_running(has_ended=_has_ended)
    loop = _current
    if loop is None:
        forks.check()
        with _making, within_limits():
            loop = _current = _current or Loop()
    return loop


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Create the loop, if there is none, while the block waits for the server, so that imports do not delay the
    response.

    The block ends only when the loop exists, because no fork and no end of the interpreter may occur during an import.
    """
    if _current is not None:
        yield
        return

    def make() -> None:
        # The code that needs the loop gets the same error.
        with contextlib.suppress(UsageError):
            current()

    making = start(make, "delta-sharing-prepare", daemon=False)
    try:
        yield
    finally:
        making.join()


def _after_fork() -> None:
    global _current, _has_ended, _making
    if _current is not None:
        _parents.append(_current)
        # The parent's tasks never end in the child, and must not be reported.
        _current.loop.set_exception_handler(lambda loop, context: None)
    _current, _has_ended, _making = None, False, threading.Lock()
    # The parent's tasks stay in the set: freeing them would run their clean-up here.


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _end() -> None:
    global _has_ended
    _has_ended = True
    if _current is not None:
        _current.end()


# Running coroutines. The loop keeps only weak references, so garbage collection could end a read that nothing else
# refers to, on any thread.
_running: set[asyncio.Task[Any]] = set()


class Running(Generic[T]):
    """A coroutine that ``make`` creates on the loop, and that any thread may cancel or wait for.

    ``start`` is a separate call, because Ctrl-C may interrupt any call: a running coroutine must already be assigned to
    a name, or it could not be cancelled.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._make: Callable[[], Coroutine[Any, Any, T]] | None = make
        self._loop = current().loop
        self._task: asyncio.Task[T] | None = None
        self._outcome: Callable[[], T] = _cancelled
        # A lock and not an Event: Ctrl-C during Event.wait may leave its lock held.
        self._ended = _thread.allocate_lock()
        self._ended.acquire()

    def start(self) -> None:
        """Start the coroutine. If it was cancelled before, it never starts."""
        # In an empty context, because a connection that is reused keeps the context in which it was created, and with
        # it the values of the caller's context variables.
        self._loop.call_soon_threadsafe(self._start, context=contextvars.Context())

    def cancel(self) -> None:
        """Cancel the coroutine without waiting for its end. Takes no lock, so that finalizers may call this."""
        with contextlib.suppress(RuntimeError):  # the interpreter has ended the loop
            self._loop.call_soon_threadsafe(self._cancel)

    def wait(self, seconds: float) -> bool:
        """Wait for the coroutine's end for at most ``seconds``; return whether it has ended."""
        if self._ended.acquire(timeout=seconds):
            self._ended.release()
            return True
        return False

    def result(self) -> T:
        """Start the coroutine, wait for its end and return its result. An interrupt of the wait cancels it."""
        try:
            self.start()
            while not self.wait(LISTEN_SECONDS):
                pass
        except BaseException:
            self.cancel()
            self.wait(END_SECONDS)
            raise
        return self._outcome()

    def _start(self) -> None:
        make, self._make = self._make, None
        if make is None:
            return
        self._task = task = self._loop.create_task(make())
        _running.add(task)
        task.add_done_callback(self._done)

    def _cancel(self) -> None:
        # Only once: a second cancellation would interrupt the clean-up.
        task, self._task = self._task, None
        if task is not None:
            # Cancelled after the coroutine's first step, because a coroutine that never started cannot clean up.
            self._loop.call_soon(task.cancel)
        elif self._make is not None:
            self._make = None
            self._ended.release()

    def _done(self, task: asyncio.Task[T]) -> None:
        # Release the task: its exception keeps alive everything in its frames.
        self._task = None
        _running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, because asyncio would report an exception that nobody retrieves
            self._outcome = task.result
        self._ended.release()


def _cancelled() -> Any:
    raise CancelledError


def check_caller() -> None:
    """Raise ``UsageError`` unless this is called by a coroutine on an event loop of asyncio."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise UsageError(
            "Async methods need an asyncio event loop, but this coroutine runs on a different one, such as trio's. "
            "Call the method without '_async' on a thread, as 'await trio.to_thread.run_sync(scan.to_arrow)' does."
        )


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Run ``call``, which waits for the network, on a daemon thread, and return its future."""
    return _daemons.submit(call)


def call(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run ``coroutine`` on the loop and return its result; not for the loop's own thread."""
    return Running(lambda: coroutine).result()


def begin(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Start ``coroutine`` on the loop, and return its future; cancelling the future cancels the coroutine."""
    # In an empty context; see ``Running.start``.
    return contextvars.Context().run(asyncio.run_coroutine_threadsafe, coroutine, current().loop)


def in_background(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run ``coroutine`` on the loop; its result and its errors are dropped. Finalizers may call this on any thread."""
    try:
        Running(lambda: coroutine).start()
    except (UsageError, RuntimeError):  # the interpreter is ending, and with it the loop
        coroutine.close()


def interruptible(call: Callable[[], T]) -> T:
    """Return ``call()``, which waits for the network; on the main thread Ctrl-C interrupts the wait."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    return result_of(in_thread(call))


def result_of(future: Future[T]) -> T:
    """Return the result of ``future``; on the main thread Ctrl-C interrupts the wait."""
    while True:
        try:
            return future.result(LISTEN_SECONDS)
        except TimeoutError:
            # The call itself may have raised the error.
            if future.done():
                return future.result()


_note: contextvars.ContextVar[Callable[[Callable[[], None]], None] | None] = contextvars.ContextVar(
    "_note", default=None
)
"""Takes the functions that end what an asynchronous call has started on its thread."""


def on_cancellation(cancel: Callable[[], None]) -> None:
    """Call ``cancel``, on any thread, if the asynchronous call that this thread runs, if any, is cancelled."""
    if (note := _note.get()) is not None:
        note(cancel)


def cancellable(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run the coroutine that ``make`` returns on the loop, and return its result; if the asynchronous call that this
    thread runs, if any, is cancelled, so is the coroutine."""
    running = Running(make)
    on_cancellation(running.cancel)
    return running.result()


async def asynchronously(call: Callable[[], T], *, ends: bool = False) -> T:
    """Return ``call()``, run on a thread; cancellation ends the reads that it started, and, with ``ends``, waits until
    the thread has ended, for at most ``END_SECONDS``."""
    check_caller()
    started: list[Callable[[], None]] = []
    is_cancelled = False

    def note(cancel: Callable[[], None]) -> None:
        started.append(cancel)
        if is_cancelled:
            cancel()

    def run() -> T:
        _note.set(note)
        return call()

    future = in_thread(run)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        is_cancelled = True
        for cancel in started:
            cancel()
        if ends:
            ended = asyncio.wrap_future(future)
            # Retrieved, because asyncio would report an exception that nobody retrieves.
            ended.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.wait([ended], timeout=END_SECONDS)
        raise
