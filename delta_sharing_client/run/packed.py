"""The tasks of a plan of very many files, compressed: a tenth of their memory, unpacked a few at a time.

A task holds a signed URL and takes a kilobyte as an object; what is random in it, a name and a signature, takes some
hundred bytes. A plan of ten million files fits a process that way, and each part of it travels as it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.plan.tasks import FileTask

MANY_FILES = 20_000
"""Plans of more files are packed."""
_FILES = 250
_CODEC = "zstd"


class Chunk(NamedTuple):
    """Some tasks that follow each other: compressed, with how many files, bytes and rows (if known) they are."""

    packed: bytes
    length: int
    files: int
    bytes: int
    cost: int
    rows: int | None


@dataclasses.dataclass(frozen=True)
class PackedTasks:
    """The tasks of ``chunks`` in their order. Pickles, compressed as it is."""

    chunks: tuple[Chunk, ...]

    def __len__(self) -> int:
        return sum(chunk.files for chunk in self.chunks)

    def __iter__(self) -> Iterator[FileTask]:
        for chunk in self.chunks:
            yield from pickle.loads(pa.decompress(chunk.packed, chunk.length, _CODEC))

    @property
    def bytes(self) -> int:
        """The bytes of the files, those of unknown length left out."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def rows(self) -> int | None:
        """The rows, deleted ones left out, where the log tells them of every file."""
        known = [chunk.rows for chunk in self.chunks]
        return None if None in known else sum(rows for rows in known if rows is not None)


def pack_tasks(tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int) -> PackedTasks:
    """Return ``tasks`` in chunks that ``cost`` at most ``most`` each, a single file excepted."""
    chunks: list[Chunk] = []
    waiting: list[FileTask] = []
    waiting_cost = 0
    for task in tasks:
        added = cost(task)
        if waiting and (len(waiting) == _FILES or waiting_cost + added > most):
            chunks.append(_chunk(waiting, waiting_cost))
            waiting, waiting_cost = [], 0
        waiting.append(task)
        waiting_cost += added
    if waiting:
        chunks.append(_chunk(waiting, waiting_cost))
    return PackedTasks(tuple(chunks))


def packed_if_many(
    tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int
) -> list[FileTask] | PackedTasks:
    """Return ``tasks`` as they are, or, if they are more than ``MANY_FILES``, packed: never all of them unpacked."""
    rest = iter(tasks)
    first = list(itertools.islice(rest, MANY_FILES + 1))
    return first if len(first) <= MANY_FILES else pack_tasks(itertools.chain(first, rest), cost, most)


def _chunk(tasks: list[FileTask], cost: int) -> Chunk:
    plain = pickle.dumps(tasks, pickle.HIGHEST_PROTOCOL)
    rows = [task.live_records for task in tasks]
    return Chunk(
        packed=pa.compress(plain, _CODEC, asbytes=True),
        length=len(plain),
        files=len(tasks),
        bytes=sum(max(0, task.size) for task in tasks),
        cost=cost,
        rows=None if None in rows else sum(row for row in rows if row is not None),
    )
