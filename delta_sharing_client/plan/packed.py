"""The tasks of a plan with very many files, compressed in a temporary file and unpacked a few at a time.

A task contains a signed URL and takes a kilobyte as an object; its random parts, a name and a signature, take about a
hundred bytes. So a plan of ten million files takes a gigabyte of disk, and its parts are sent compressed.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from tempfile import TemporaryFile, gettempdir
from typing import IO, NamedTuple

import msgspec
import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.plan.tasks import FileTask

MANY_FILES = 20_000
"""Plans of more files are packed."""
MOST_PARTS = 10_000
"""Parts of a packed plan: each task takes memory and time of the driver as well."""
_FILES = 1000
_AT_ONCE = 4 * _FILES
_CODEC = "zstd"
_without_of, _only_of = operator.attrgetter("without"), operator.attrgetter("only")
_equality_of = operator.attrgetter("equality")
_records_of, _size_of = operator.attrgetter("num_records"), operator.attrgetter("size")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[FileTask]).decode


class TaskChunk(NamedTuple):
    """Some consecutive tasks: compressed, with their numbers of files, bytes and rows (if known)."""

    packed: _Spooled | bytes
    length: int
    files: int
    bytes: int
    cost: int
    rows: int | None


@dataclasses.dataclass(frozen=True)
class PackedTasks:
    """The tasks of ``chunks`` in order. Pickles in compressed form."""

    chunks: tuple[TaskChunk, ...]

    def __len__(self) -> int:
        return sum(chunk.files for chunk in self.chunks)

    def __iter__(self) -> Iterator[FileTask]:
        for chunk in self.chunks:
            yield from _decode(pa.decompress(bytes(chunk.packed), chunk.length, _CODEC))

    @property
    def bytes(self) -> int:
        """The total size of the files, without those of unknown length."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def rows(self) -> int | None:
        """The number of rows without deleted ones, if the log states it for every file."""
        counts = [chunk.rows for chunk in self.chunks]
        return None if None in counts else sum(rows for rows in counts if rows is not None)


class _Spool:
    """An unnamed temporary file that exists as long as its contents are referenced. Thread-safe."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._end = 0

    def store(self, data: bytes) -> _Spooled:
        try:
            with self._lock:
                if self._file is None:
                    self._file = TemporaryFile()  # noqa: SIM115
                    weakref.finalize(self, self._file.close)
                start = self._end
                self._file.seek(start)
                self._file.write(data)
                self._file.flush()
                self._end = start + len(data)
        except OSError as error:
            raise UsageError(
                f"The plan of a large table needs about 100 bytes per file for temporary files in '{gettempdir()}', "
                f"and writing there failed: {error.strerror}. Make space, or set TMPDIR."
            ) from None
        return _Spooled(self, start, len(data))

    def read(self, start: int, length: int) -> bytes:
        assert self._file is not None
        with self._lock:
            self._file.seek(start)
            return self._file.read(length)


class _Spooled(NamedTuple):
    """Bytes in a file; pickles as bytes."""

    spool: _Spool
    start: int
    length: int

    def __bytes__(self) -> bytes:
        return self.spool.read(self.start, self.length)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


def pack_tasks(tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int) -> PackedTasks:
    """Return ``tasks`` in chunks of at most ``most`` bytes as measured by ``cost``, or a share of ``MOST_PARTS``, or
    one file.

    Raises ``UsageError`` if temporary files cannot be written.
    """
    chunks: list[TaskChunk] = []
    waiting: list[FileTask] = []
    rest, spool, total = iter(tasks), _Spool(), 0
    while True:
        new = list(itertools.islice(rest, _AT_ONCE))
        waiting += new
        ends = list(itertools.accumulate(map(cost, waiting), initial=0))
        start = 0
        while start < len(waiting):
            # Large chunks take less space, and no part is smaller than its share of the tasks so far.
            fitting = bisect.bisect_right(ends, ends[start] + max(most, total // MOST_PARTS)) - 1
            stop = min(max(fitting, start + 1), start + _FILES)
            if new and stop == len(waiting):
                break  # the next tasks may fit as well
            chunks.append(_chunk(waiting[start:stop], ends[stop] - ends[start], spool))
            total += chunks[-1].cost
            start = stop
        del waiting[:start]
        if not new:
            return PackedTasks(tuple(chunks))


def packed_if_many(
    tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int
) -> list[FileTask] | PackedTasks:
    """Return ``tasks`` as a list, or packed (and not unpacked all at once) if there are more than ``MANY_FILES``."""
    rest = iter(tasks)
    first = list(itertools.islice(rest, MANY_FILES + 1))
    return first if len(first) <= MANY_FILES else pack_tasks(itertools.chain(first, rest), cost, most)


def _chunk(tasks: list[FileTask], cost: int, spool: _Spool) -> TaskChunk:
    plain = _encode(tasks)
    has_deletes = any(map(_without_of, tasks)) or any(map(_only_of, tasks)) or any(map(_equality_of, tasks))
    rows = [task.live_records for task in tasks] if has_deletes else list(map(_records_of, tasks))
    return TaskChunk(
        packed=spool.store(pa.compress(plain, _CODEC)),
        length=len(plain),
        files=len(tasks),
        bytes=sum(size for size in map(_size_of, tasks) if size > 0),
        cost=cost,
        rows=None if None in rows else sum(row for row in rows if row is not None),
    )
