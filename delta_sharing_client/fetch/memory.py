"""Memory for downloads, used again: touching memory for the first time costs more than filling it."""

from __future__ import annotations

import heapq
import itertools
import mmap
import sys
import threading
import weakref
from collections import deque
from concurrent.futures import Future

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from delta_sharing_client.fetch.queue import Order
from delta_sharing_client.shortcuts import SHORTCUTS

_Memory = npt.NDArray[np.uint8]

# Memory may be longer than what is put into it by a quarter, or by this.
_SLACK = 64 * 1024
# Less is not worth the bookkeeping.
_SMALL = 64 * 1024


class Buffers:
    """Hands out buffers, and takes their memory back once nothing refers to them any more; safe for many threads.

    Idle memory is dropped where it and what is in use would be more than ``most`` bytes. All of it goes with this
    object.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._names = itertools.count()
        self._idle: list[_Memory] = []
        self._lent: dict[int, tuple[weakref.ref[_Memory], _Memory]] = {}
        # A buffer may end anywhere, on a thread that holds the lock as well: its end only leaves a note.
        self._ended: deque[int] = deque()

    def take(self, size: int) -> pa.Buffer:
        """Return a writable buffer of ``size`` bytes, whatever they are."""
        if size < _SMALL or not self._most or not SHORTCUTS.buffer_reuse:
            return pa.allocate_buffer(size)
        with self._lock:
            self._collect()
            memory = self._fitting(size)
            if memory is None:
                memory = np.frombuffer(_from_system(size), np.uint8)
            # The view lives as long as any buffer, slice or memoryview of it; its end brings the memory back.
            view = memory[:size]
            name, ended = next(self._names), self._ended
            self._lent[name] = (weakref.ref(view, lambda _: ended.append(name)), memory)
            in_use = sum(memory.size for _, memory in self._lent.values())
            while self._idle and in_use + sum(memory.size for memory in self._idle) > self._most:
                # The oldest: its length is asked for least.
                del self._idle[0]
        return pa.py_buffer(view)

    def idle(self) -> int:
        """Return how many bytes wait for their next use."""
        with self._lock:
            self._collect()
            return sum(memory.size for memory in self._idle)

    def stop(self) -> None:
        """Drop what is idle; what is in use goes with the last that refers to it, and nothing is used again."""
        with self._lock:
            self._most = 0
            self._idle.clear()
            self._lent.clear()
            self._ended.clear()

    def join(self, deadline: float) -> None:
        """Nothing runs here."""

    def forget(self) -> None:
        """Nothing to do: the memory of a forked process is its own."""

    def _collect(self) -> None:
        while self._ended:
            lent = self._lent.pop(self._ended.popleft(), None)
            if lent is not None:
                self._idle.append(lent[1])

    def _fitting(self, size: int) -> _Memory | None:
        """Take out the shortest idle memory that is long enough and not much longer."""
        fits = [
            (memory.size, place)
            for place, memory in enumerate(self._idle)
            if size <= memory.size <= size + max(size // 4, _SLACK)
        ]
        return self._idle.pop(min(fits)[1]) if fits else None


def _from_system(size: int) -> mmap.mmap:
    """Return fresh memory that goes back to the system when it is dropped; an allocator might keep it."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Window:
    """Grants bytes to pieces of work, lowest ``order`` first; the first element of an order is the file's number.

    What the consumer needs next always gets its grant, however large: the lowest order of the file being consumed. Else
    nothing would ever move. Once closed it grants nothing, and its other methods do nothing, without a lock: they are
    also called where no lock may be waited for.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._waiting: list[tuple[Order, int, int, Future[None]]] = []
        self._tie = itertools.count()
        self._granted: dict[Order, int] = {}
        self._in_use = 0
        self._head = 0
        self._closed = False

    def acquire(self, order: Order, nbytes: int) -> Future[None]:
        """Return a future that is done once ``nbytes`` are granted to ``order`` (one grant an order)."""
        with self._lock:
            if not self._closed:
                if not self._waiting and self._fits(order, nbytes):
                    self._put(order, nbytes)
                    return _GRANTED
                future: Future[None] = Future()
                heapq.heappush(self._waiting, (order, next(self._tie), nbytes, future))
                granted = self._grants()
            else:
                future, granted = Future(), []
                future.cancel()
        _tell(granted)
        return future

    def divide(self, order: Order, parts: dict[Order, int]) -> None:
        """Replace what was granted to ``order`` by ``parts``, which are as much together."""
        if self._closed:
            return
        with self._lock:
            self._in_use -= self._granted.pop(order, 0)
            for part, nbytes in parts.items():
                self._put(part, nbytes)

    def resize(self, order: Order, nbytes: int) -> None:
        """Replace what was granted to ``order`` by ``nbytes``; no grant is waited for."""
        if self._closed:
            return
        with self._lock:
            self._in_use -= self._granted.get(order, 0)
            self._put(order, nbytes)
            granted = self._grants()
        _tell(granted)

    def release(self, order: Order) -> None:
        """Give back what ``order`` holds, if anything."""
        if self._closed:
            return
        with self._lock:
            self._in_use -= self._granted.pop(order, 0)
            granted = self._grants()
        _tell(granted)

    def consume(self, file: int) -> None:
        """Take note that the consumer has come to ``file``."""
        if self._closed:
            return
        with self._lock:
            self._head = file
            granted = self._grants()
        _tell(granted)

    def stop(self) -> None:
        """Close the window; who waits for a grant is told by a cancelled future."""
        with self._lock:
            self._closed = True
            dropped, self._waiting = self._waiting, []
        for *_, future in dropped:
            future.cancel()

    def join(self, deadline: float) -> None:
        """Nothing runs here."""

    def forget(self) -> None:
        # What waits stays, as in ``Workers``.
        self._closed = True

    # === With the lock held ===

    def _fits(self, order: Order, nbytes: int) -> bool:
        return self._in_use + nbytes <= self._capacity or self._is_next(order)

    def _is_next(self, order: Order) -> bool:
        return order[0] <= self._head and not any(other < order for other in self._granted)

    def _put(self, order: Order, nbytes: int) -> None:
        self._granted[order] = nbytes
        self._in_use += nbytes

    def _grants(self) -> list[Future[None]]:
        """Grant what fits; whoever calls tells those who wait, without the lock."""
        granted: list[Future[None]] = []
        while self._waiting and self._fits(self._waiting[0][0], self._waiting[0][2]):
            order, _, nbytes, future = heapq.heappop(self._waiting)
            self._put(order, nbytes)
            granted.append(future)
        return granted


_GRANTED: Future[None] = Future()
_GRANTED.set_result(None)


def _tell(granted: list[Future[None]]) -> None:
    for future in granted:
        future.set_result(None)
