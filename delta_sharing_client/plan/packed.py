"""The tasks of a plan with very many files, compressed in a temporary file and unpacked a few at a time.

A task with its signed URL takes about a kilobyte of memory, but compresses to about a hundred bytes: its random parts,
a file name and a signature. So a plan of ten million files takes a gigabyte of disk. Its parts are sent compressed.
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
"""Plans of more files than this are packed."""
MOST_PARTS = 10_000
"""The approximate maximum number of parts of a packed plan; each part takes memory and time on Spark's driver."""
_FILES = 1000
_AT_ONCE = 4 * _FILES
_CODEC = "zstd"
_without_of, _only_of = operator.attrgetter("without"), operator.attrgetter("only")
_equality_of = operator.attrgetter("equality")
_records_of, _size_of = operator.attrgetter("num_records"), operator.attrgetter("size")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[FileTask]).decode


class TaskChunk(NamedTuple):
    """Some consecutive tasks: compressed, with their length when unpacked, the number of files, the files' bytes, their
    total cost, and their number of rows (``None`` if unknown)."""

    packed: _Spooled | bytes
    length: int
    files: int
    bytes: int
    cost: int
    rows: int | None


@dataclasses.dataclass(frozen=True)
class PackedTasks:
    """The tasks of ``chunks`` in order. It is pickled in compressed form."""

    chunks: tuple[TaskChunk, ...]

    def __len__(self) -> int:
        return sum(chunk.files for chunk in self.chunks)

    def __iter__(self) -> Iterator[FileTask]:
        for chunk in self.chunks:
            yield from _decode(pa.decompress(bytes(chunk.packed), chunk.length, _CODEC))

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes, not counting files of unknown size."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def rows(self) -> int | None:
        """The number of rows, not counting deleted ones; ``None`` unless the log states it for every file."""
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
                f"Cannot write a temporary file in '{gettempdir()}': {error.strerror}. The plan of a large table needs "
                "about 100 bytes there for each of the table's files. Free some space, or set TMPDIR to a different "
                "directory."
            ) from None
        return _Spooled(self, start, len(data))

    def read(self, start: int, length: int) -> bytes:
        assert self._file is not None
        with self._lock:
            self._file.seek(start)
            return self._file.read(length)


class _Spooled(NamedTuple):
    """Bytes in a temporary file; pickled as ``bytes``."""

    spool: _Spool
    start: int
    length: int

    def __bytes__(self) -> bytes:
        return self.spool.read(self.start, self.length)

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


def pack_tasks(tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int) -> PackedTasks:
    """Return ``tasks`` in chunks, each with a total ``cost`` of at most ``most``, but with at least one task.

    In a plan that would have more than about ``MOST_PARTS`` chunks, chunks may cost more. Raises ``UsageError`` if a
    temporary file cannot be written.
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
            # The limit grows with the total so far, which limits the number of chunks.
            fitting = bisect.bisect_right(ends, ends[start] + max(most, total // MOST_PARTS)) - 1
            stop = min(max(fitting, start + 1), start + _FILES)
            if new and stop == len(waiting):
                break  # the next tasks may fit into this chunk
            chunks.append(_chunk(waiting[start:stop], ends[stop] - ends[start], spool))
            total += chunks[-1].cost
            start = stop
        del waiting[:start]
        if not new:
            return PackedTasks(tuple(chunks))


def packed_if_many(
    tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int
) -> list[FileTask] | PackedTasks:
    """Return ``tasks`` as a list, or packed if there are more than ``MANY_FILES``."""
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
