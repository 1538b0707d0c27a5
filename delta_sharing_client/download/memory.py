"""Memory for downloads, used again: touching memory for the first time costs more than filling it."""

from __future__ import annotations

import itertools
import mmap
import sys
import threading
import weakref
from collections import deque

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
        if size < _SMALL:
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

    def _collect(self) -> None:
        while self._ended:
            _, memory = self._lent.pop(self._ended.popleft())
            self._idle.append(memory)

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
