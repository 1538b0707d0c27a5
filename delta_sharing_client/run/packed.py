"""The tasks of a plan with very many files, compressed to a tenth of their memory and unpacked a few at a time.

A task contains a signed URL and takes a kilobyte as an object; its random parts, a name and a signature, take about a
hundred bytes. So a plan with ten million files fits into a process, and its parts are sent compressed.
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
MOST_PARTS = 10_000
"""Parts of a packed plan: each task takes memory and time of the driver as well."""
_FILES = 1000
_CODEC = "zstd"


class Chunk(NamedTuple):
    """Some consecutive tasks: compressed, with their numbers of files, bytes and rows (if known)."""

    packed: bytes
    length: int
    files: int
    bytes: int
    cost: int
    rows: int | None


@dataclasses.dataclass(frozen=True)
class PackedTasks:
    """The tasks of ``chunks`` in order. Pickles in compressed form."""

    chunks: tuple[Chunk, ...]

    def __len__(self) -> int:
        return sum(chunk.files for chunk in self.chunks)

    def __iter__(self) -> Iterator[FileTask]:
        for chunk in self.chunks:
            yield from pickle.loads(pa.decompress(chunk.packed, chunk.length, _CODEC))

    @property
    def bytes(self) -> int:
        """The total size of the files, without those of unknown length."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def rows(self) -> int | None:
        """The number of rows without deleted ones, if the log states it for every file."""
        known = [chunk.rows for chunk in self.chunks]
        return None if None in known else sum(rows for rows in known if rows is not None)


def pack_tasks(tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int) -> PackedTasks:
    """Return ``tasks`` in chunks that ``cost`` at most ``most`` each, or a share of ``MOST_PARTS``, or one file."""
    chunks: list[Chunk] = []
    waiting: list[FileTask] = []
    waiting_cost = total = 0
    for task in tasks:
        added = cost(task)
        # Large chunks take less, and no part is smaller than its share of what there is so far.
        if waiting and (len(waiting) == _FILES or waiting_cost + added > max(most, total // MOST_PARTS)):
            chunks.append(_chunk(waiting, waiting_cost))
            total += waiting_cost
            waiting, waiting_cost = [], 0
        waiting.append(task)
        waiting_cost += added
    if waiting:
        chunks.append(_chunk(waiting, waiting_cost))
    return PackedTasks(tuple(chunks))


def packed_if_many(
    tasks: Iterable[FileTask], cost: Callable[[FileTask], int], most: int
) -> list[FileTask] | PackedTasks:
    """Return ``tasks`` as a list, or packed if there are more than ``MANY_FILES``, without unpacking all of them."""
    rest = iter(tasks)
    first = list(itertools.islice(rest, MANY_FILES + 1))
    return first if len(first) <= MANY_FILES else pack_tasks(itertools.chain(first, rest), cost, most)


def _chunk(tasks: list[FileTask], cost: int) -> Chunk:
    plain = pickle.dumps(tasks, pickle.HIGHEST_PROTOCOL)
    rows = [task.live_records for task in tasks]
    return Chunk(
        packed=pa.compress(plain, _CODEC).to_pybytes(),
        length=len(plain),
        files=len(tasks),
        bytes=sum(max(0, task.size) for task in tasks),
        cost=cost,
        rows=None if None in rows else sum(row for row in rows if row is not None),
    )
