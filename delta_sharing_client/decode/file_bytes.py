"""Gets the bytes of one file from memory or from the network."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from delta_sharing_client.decode.page_choice import Read
from delta_sharing_client.fetch.report import ScanReport, Timed
from delta_sharing_client.fetch.source import RemoteFile
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange, SparseFile, split, subtract
from delta_sharing_client.parquet.footer import FooterGuess, footer_length

# Longer buffers are allocated by Arrow.
_SMALL = 2 * 1024 * 1024


class FileBytes:
    """Downloads parts of one file.

    ``held`` is the end of the file, as downloaded with the footer. ``part`` is the approximate size of one request.
    """

    def __init__(self, file: RemoteFile, guess: FooterGuess, report: ScanReport, part: int) -> None:
        self.file = file
        self.held = ByteBlock(0, pa.py_buffer(b""))
        self._guess = guess
        self._report = report
        self._part = part

    @property
    def size(self) -> int:
        """The file's size, -1 before it is known."""
        return self.file.size

    async def footer(self) -> pa.Buffer:
        """Return the end of the file, which includes the whole footer, and keep it in ``held``."""
        file = self.file
        if file.size < 0:
            with Timed(self._report, "fetch"):
                file.size, tail = await file.read_tail(self._guess.length(-1))
        else:
            guess = self._guess.length(file.size)
            [block] = await self.fetch([ByteRange(file.size - guess, file.size)])
            tail = block.data
        needed = footer_length(tail, file.size)
        if needed > tail.size:
            rest = await self.fetch([ByteRange(file.size - needed, file.size - int(tail.size))])
            tail = pa.py_buffer(rest[0].data.to_pybytes() + tail.to_pybytes())
        self._guess.learn(needed)
        self.held = ByteBlock(file.size - int(tail.size), tail)
        return tail

    async def fetch(self, ranges: Sequence[ByteRange]) -> list[ByteBlock]:
        """Download and return one block per range."""
        return await gather([self._block(item) for item in ranges])

    async def fetch_missing(self, ranges: list[ByteRange], fetched: Sequence[ByteBlock] = ()) -> list[ByteBlock]:
        """Return the bytes of ``ranges`` that neither ``held`` nor the ``fetched`` blocks cover. If ``held`` covers
        only a part of a range, that part is downloaded again."""
        held = ByteRange(self.held.start, self.held.stop)
        missing = [item for item in ranges if subtract([item], [held])]
        if fetched:
            missing = subtract(missing, [ByteRange(block.start, block.stop) for block in fetched])
        return await self.fetch(missing)

    def reading(self, fetched: Sequence[ByteBlock]) -> Read:
        """Return a function that reads from ``held`` and the ``fetched`` blocks."""
        return SparseFile(self.file.size, [self.held, *fetched]).slice

    async def _block(self, item: ByteRange) -> ByteBlock:
        file = self.file
        buffer = _memory(item.length)
        view = memoryview(buffer).cast("B")
        with Timed(self._report, "fetch"):
            parts = split(item, self._part)
            await gather([file.fetch(part, view[part.start - item.start : part.stop - item.start]) for part in parts])
        return ByteBlock(item.start, buffer)


def _memory(length: int) -> pa.Buffer:
    """Return uninitialized memory. NumPy allocates small buffers, because a call of Arrow lets other threads run, and
    the event loop would wait until they pause."""
    return pa.py_buffer(np.empty(length, np.uint8)) if length <= _SMALL else pa.allocate_buffer(length)


async def gather(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run ``coroutines`` concurrently and return their results; the first error cancels the others and is raised."""
    if len(coroutines) == 1:
        # Most files are downloaded with one request; a task for it would take longer.
        return [await coroutines[0]]
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
