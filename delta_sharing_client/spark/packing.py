"""Files of a plan, packed into Spark partitions of balanced bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from delta_sharing_client.scan.tasks import FileTask

OPEN_COST = 2 * 1024 * 1024
"""Bytes that a file counts in addition to its own: what could be read in the time that opening one takes."""
LEAST_PARTITION = 4 * 1024 * 1024
UNKNOWN_SIZE = 64 * 1024 * 1024


class Piece(NamedTuple):
    """A file, or the part ``part`` of ``parts`` of one: the row groups whose middle lies in that share of its bytes."""

    task: FileTask
    part: int = 0
    parts: int = 1


def partition_bytes(total: int, files: int, parallelism: int, most: int) -> int:
    """Return how many bytes one partition should have, so that ``parallelism`` of them share the work.

    As Spark does for its own file sources: an equal share, but not below 4 MiB (a task costs tens of milliseconds)
    and not above ``most``.
    """
    share = (total + files * OPEN_COST) // max(1, parallelism)
    return min(most, max(LEAST_PARTITION, share))


def pack(tasks: Iterable[FileTask], parallelism: int, most: int) -> list[list[Piece]]:
    """Return the partitions: many small files in one, a large file over several, all files in their order.

    Parameters
    ----------
    tasks:
        The files of a plan.
    parallelism:
        How many tasks run at a time.
    most:
        Greatest number of bytes in a partition, as far as row groups allow.
    """
    listed = list(tasks)
    sizes = [UNKNOWN_SIZE if task.size < 0 else task.size for task in listed]
    target = partition_bytes(sum(sizes), len(listed), parallelism, most)
    packed: list[list[Piece]] = []
    current: list[Piece] = []
    filled = 0
    for task, size in zip(listed, sizes, strict=True):
        parts = 1 if task.row_groups is not None else max(1, -(-size // target) if size > target * 3 // 2 else 1)
        for part in range(parts):
            cost = size // parts + OPEN_COST
            if current and filled + cost > target + OPEN_COST:
                packed.append(current)
                current, filled = [], 0
            current.append(Piece(task, part, parts))
            filled += cost
    if current:
        packed.append(current)
    return packed
