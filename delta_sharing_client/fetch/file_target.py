"""Downloads files of a place into local files: parts in parallel, in bounded memory, checked when they are complete."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.place import Bytes, Checksum
from delta_sharing_client.fetch.source import RemoteFile
from delta_sharing_client.fetch.waiting import Turns
from delta_sharing_client.parquet.byte_ranges import ByteRange

T = TypeVar("T")

# How often the content of a file is downloaded if it does not match its checksum.
_ATTEMPTS = 2
# The parts of one file whose tasks exist at a time.
_TASKS = 6
# The arrived bytes of a part that are written together.
_PIECES_BYTES = 1024 * 1024


class Target(Protocol):
    """A local file that arrives in parts; its methods are called on threads, and ``write`` on several at a time."""

    def missing(self, size: int) -> Sequence[ByteRange]:
        """Return the parts that have not arrived yet, of a file of ``size`` bytes."""

    def write(self, at: int, pieces: Sequence[Bytes], *, is_hashed: bool) -> None:
        """Store the ``pieces``, one after another from the position ``at``, and record that they have arrived.
        ``is_hashed`` means that ``finish`` will get a checksum."""

    def finish(self, checksum: Checksum | None) -> bool:
        """Give the complete file its name, unless its content does not match the ``checksum``: then drop all parts and
        return false."""


class Run(Protocol):
    """Runs a call on a thread, and returns its result to the event loop."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


class Workshop:
    """What the downloads of one operation share: threads for the disk, and the memory for parts."""

    def __init__(self, run: Run, most_bytes: int = 96 * 1024 * 1024) -> None:
        self._run = run
        self._left = most_bytes
        self._turns: Turns[int] = Turns()

    async def run(self, call: Callable[[], T]) -> T:
        """Return ``call()``, which runs on a thread. If this is cancelled, it waits for the call's end first, so that
        nothing is written after a download has failed."""
        running = asyncio.ensure_future(self._run(call))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    @contextlib.asynccontextmanager
    async def room(self, size: int) -> AsyncIterator[None]:
        """Hold memory for ``size`` bytes during the block; it must not be more than all of it."""
        await self._turns.wait((0,), size, self._take, self._give)
        try:
            yield
        finally:
            self._give(size)

    def _take(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True

    def _give(self, size: int) -> None:
        self._left += size
        self._turns.serve(self._take)


async def download(file: RemoteFile, target: Target, shop: Workshop) -> None:
    """Download ``file``, whose size is known, into ``target``.

    Raises the errors of ``RemoteFile.fetch``, ``DataError`` if the content repeatedly differs from the checksum that
    the storage states, and ``OSError`` if the target cannot be written.
    """
    for _ in range(_ATTEMPTS):
        parts = await shop.run(lambda: target.missing(file.size))
        if file.is_in_one_response:
            parts = [ByteRange(0, file.size)] if file.size else []
        if len(parts) == 1:
            if await _whole(file, target, parts[0], shop):
                return
            continue
        await _fill(file, target, parts, shop)
        if not parts and file.size:
            # All parts had arrived before; one byte shows what the storage states about the file.
            await file.read(ByteRange(0, 1))
        if await shop.run(lambda: target.finish(file.checksum)):
            return
    raise file.error(DataError, "its content repeatedly differed from the checksum that the storage states")


async def _whole(file: RemoteFile, target: Target, part: ByteRange, shop: Workshop) -> bool:
    async with shop.room(part.length):
        data = memoryview(await file.read(part))

        def store() -> bool:
            checksum = file.checksum
            target.write(part.start, [data], is_hashed=checksum is not None)
            return target.finish(checksum)

        return await shop.run(store)


async def _fill(file: RemoteFile, target: Target, parts: Sequence[ByteRange], shop: Workshop) -> None:
    # The parts of one file start one after another, so that a file of terabytes does not become a million tasks.
    ahead = asyncio.Semaphore(_TASKS)

    async def fill(part: ByteRange) -> None:
        try:
            # Bytes that arrive faster than they are written are held.
            async with shop.room(part.length):
                writer = _Writer(file, target, part.start, shop)
                try:
                    await file.pour(part, writer.put)
                finally:
                    await writer.end()
        finally:
            ahead.release()

    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                await ahead.acquire()
                group.create_task(fill(part))
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None


class _Writer:
    """Writes the bytes of a part as they arrive, on one thread at a time.

    New memory costs more than the transfer of its bytes, and bytes that were just received are still in the cache of
    the processor: a part that was complete in memory before it was written took twice the processor time.
    """

    def __init__(self, file: RemoteFile, target: Target, at: int, shop: Workshop) -> None:
        self._file, self._target, self._at, self._shop = file, target, at, shop
        self._pieces: list[Bytes] = []
        self._size = 0
        self._writing: asyncio.Future[None] | None = None

    def put(self, data: Bytes) -> None:
        """Add the next bytes. Raises no errors of the disk, which would seem to be errors of the transfer."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= _PIECES_BYTES and (self._writing is None or _has_succeeded(self._writing)):
            self._begin()

    async def end(self) -> None:
        """Write what is left. Raises the error of the first write that failed."""
        if self._writing is not None:
            await self._writing
        if self._pieces:
            await self._begin()

    def _begin(self) -> asyncio.Future[None]:
        at, pieces = self._at, self._pieces
        self._at, self._pieces, self._size = at + self._size, [], 0
        write = functools.partial(self._target.write, at, pieces, is_hashed=self._file.checksum is not None)
        self._writing = asyncio.ensure_future(self._shop.run(write))
        return self._writing


def _has_succeeded(future: asyncio.Future[None]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
