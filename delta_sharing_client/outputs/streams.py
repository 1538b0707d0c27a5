"""Streams of rows that engines read on their own threads. They end with the program, and at Ctrl-C.

Python tells these threads about neither. A thread that enters Python during the interpreter's shutdown aborts the
process, or never returns; and Python handles Ctrl-C only on the main thread, which may be waiting for such a thread.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pyarrow as pa

from delta_sharing_client.arrow_forms import sliced
from delta_sharing_client.errors import UsageError
from delta_sharing_client.threads import Job, start

if TYPE_CHECKING:
    from delta_sharing_client.run.batches import Batches

Change = Callable[[pa.RecordBatch], list[pa.RecordBatch]]
"""Converts a batch to the batches to return; an empty list if none of its rows is wanted."""

# With ``small_first``: the number of first rows that come in small batches, and the rows per small batch.
_SMALL_ROWS, _SMALL_BATCH = 32_768, 1024
# At the end of the program: the maximum number of seconds to wait, and the seconds without a call after which a
# consumer counts as stopped.
_AT_MOST = 0.9
_QUIET = 0.1


class RowStream(Iterator[pa.RecordBatch]):
    """The rows of the read that ``begin`` starts, converted by ``change``. Closing or dropping the stream ends the
    read.

    With ``small_first`` the first batches are small, because each thread of an engine takes one before the engine knows
    that it has enough rows.
    """

    def __init__(
        self, begin: Callable[[], Batches], change: Change | None = None, *, small_first: bool = False
    ) -> None:
        self._change = change
        self._small = _SMALL_ROWS if small_first else 0
        self._left: list[pa.RecordBatch] = []
        self._inside = threading.Lock()
        self._called = time.monotonic()
        self._batches: Batches | None = None
        self._begun: queue.SimpleQueue[Future[Batches] | None] = queue.SimpleQueue()
        end_on_interrupt()
        is_alien = _is_alien()
        # A read on one of the program's own threads is not ended here: Ctrl-C concerns the main thread and the reads it
        # waits for.
        self._ends_on_interrupt = is_alien or _is_main()
        self._closed = is_alien and _is_interrupted()
        _streams[id(self)] = self
        self._batches = self._apart(begin) if is_alien else begin()

    def _apart(self, begin: Callable[[], Batches]) -> Batches:
        """Call ``begin`` on a new thread, because this thread cannot be interrupted."""
        job = Job(Future(), begin)

        def run() -> None:
            job.run()
            self._begun.put(job.future)

        if self._closed:
            raise self._refusal()
        start(run, "begin")
        if (begun := self._begun.get()) is None:
            raise self._refusal()
        return begun.result()

    def __next__(self) -> pa.RecordBatch:
        # An engine's threads take batches one after the other.
        if not self._inside.acquire(blocking=False):
            raise self._refusal() if self._closed else self._busy()
        try:
            while not self._left:
                if self._closed or self._batches is None:
                    raise self._refusal()
                batch = next(self._batches)
                self._left = [batch] if self._change is None else self._change(batch)
                if self._small > 0:
                    self._left = list(sliced(self._left, _SMALL_BATCH))
                    self._small -= sum(part.num_rows for part in self._left)
            return self._left.pop(0)
        finally:
            self._called = time.monotonic()
            self._inside.release()

    def close(self) -> None:
        """End the read, from any thread."""
        self._closed = True
        self._begun.put(None)
        if self._batches is not None:
            self._batches.close()

    def _busy(self) -> UsageError:
        return UsageError("The read cannot continue: another thread is taking a batch; take them one after the other.")

    def _refusal(self) -> UsageError:
        return UsageError("The read cannot continue: it was closed or interrupted, or the program is ending.")

    def interrupt(self) -> None:
        """End the read if Ctrl-C applies to it."""
        if self._ends_on_interrupt:
            self.close()

    def wait(self, deadline: float) -> None:
        """Wait until the consumer has noticed the close and stopped, but not longer than ``deadline``."""
        if self._inside.acquire(timeout=max(0.0, deadline - time.monotonic())):
            self._inside.release()
        time.sleep(max(0.0, min(deadline, self._called + _QUIET) - time.monotonic()))


def stream_reader(
    schema: pa.Schema, begin: Callable[[], Batches], change: Change | None = None, *, small_first: bool = False
) -> pa.RecordBatchReader:
    """Return a ``RowStream`` as a reader; ``schema`` is the schema of its batches."""
    return pa.RecordBatchReader.from_batches(schema, RowStream(begin, change, small_first=small_first))


_streams: weakref.WeakValueDictionary[int, RowStream] = weakref.WeakValueDictionary()


def _all_streams() -> list[RowStream]:
    return [stream for reference in _streams.valuerefs() if (stream := reference()) is not None]


@atexit.register
def _end_all() -> None:
    every = _all_streams()
    deadline = time.monotonic() + _AT_MOST
    for stream in every:
        stream.close()
    for stream in every:
        stream.wait(deadline)


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _is_alien() -> bool:
    """Return whether this thread was started outside of Python, for example by an engine."""
    # Python may meanwhile list such a thread, under the name "Dummy-...".
    return all(
        thread.name.startswith("Dummy-") for thread in threading.enumerate() if thread.ident == threading.get_ident()
    )


# === Ctrl-C ===

# When a signal arrives, Python writes its number into the first socket, before it calls a handler; ``_listen`` reads
# the second one.
_signal_sockets: tuple[socket.socket, socket.socket] | None = None
# The time of the last Ctrl-C, and the main thread's position then.
_NEVER: tuple[float, object] = (-math.inf, None)
_interrupted = _NEVER
# For this many seconds after Ctrl-C, a main thread that has not moved is assumed to wait for a read that is starting.
_FRESH = 2.0


# Functions that the thread of ``_listen`` calls at Ctrl-C.
_interrupts: list[Callable[[], object]] = []


@contextlib.contextmanager
def interrupted_by(interrupt: Callable[[], object]) -> Iterator[None]:
    """Call ``interrupt`` on another thread if Ctrl-C arrives in this block: the main thread may wait in a library that
    does not return to Python, as DuckDB 2 does while it computes.
    """
    end_on_interrupt()
    _interrupts.append(interrupt)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # in a process that was forked in the block
            _interrupts.remove(interrupt)


def end_on_interrupt() -> None:
    """Make Ctrl-C end the streams from now on, if this is the main thread and the wakeup file descriptor is not in
    use.
    """
    global _signal_sockets
    if not _is_main():
        return
    if _signal_sockets is None:
        _signal_sockets = socket.socketpair()
        _signal_sockets[0].setblocking(False)
        start(functools.partial(_listen, _signal_sockets[1]), "interrupts")
    mine = _signal_sockets[0].fileno()
    other = signal.set_wakeup_fd(mine, warn_on_full_buffer=False)
    if other not in (-1, mine):
        signal.set_wakeup_fd(other)


def _listen(sock: socket.socket) -> None:
    global _interrupted
    while True:
        try:
            numbers = sock.recv(64)
        except TimeoutError:
            _interrupted = _NEVER  # the frame would keep its variables alive
            sock.settimeout(None)
            continue
        if not numbers:
            return
        if signal.SIGINT in numbers and _ends_the_call(signal.getsignal(signal.SIGINT)):
            _interrupted = time.monotonic(), _main_place()
            sock.settimeout(_FRESH)
            for interrupt in [*_interrupts, *(stream.interrupt for stream in _all_streams())]:
                interrupt()


def _ends_the_call(handler: object) -> bool:
    """Return whether a handler of SIGINT raises ``KeyboardInterrupt``, as Python's default handler and a Spark
    session's do.

    A program with its own handler decides for itself what to end.
    """
    module = getattr(handler, "__module__", None) or ""
    return handler is signal.default_int_handler or module.partition(".")[0] == "pyspark"


def _is_interrupted() -> bool:
    """Return whether Ctrl-C arrived a short while ago, and the main thread has not run since."""
    when, place = _interrupted
    return time.monotonic() - when < _FRESH and place == _main_place()


def _main_place() -> object:
    # ``_current_frames`` is documented despite its underscore; no other function returns another thread's position.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    # The frame itself, because a later frame may have the same id.
    return None if frame is None else (frame, frame.f_lasti)


def _after_fork() -> None:
    # The streams and the functions to call at Ctrl-C belong to the parent.
    global _signal_sockets
    _streams.clear()
    _interrupts.clear()
    if _signal_sockets is not None:
        with contextlib.suppress(ValueError):
            if (other := signal.set_wakeup_fd(-1)) != _signal_sockets[0].fileno():
                signal.set_wakeup_fd(other)
        for sock in _signal_sockets:
            sock.close()
        _signal_sockets = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
