"""How much of the waiting data one micro-batch takes, and how Spark and this source tell each other the limits.

A *version* is offered as its files in order of file id, or as no file at all. The rules are those of the JVM
connector: a file is admitted while both budgets are above zero and only then counted, so at least one is always
admitted and the last one may overshoot the bytes. Files of one *unit* are admitted together: the change files of one
commit, so that an update's pre-image and post-image stay in one batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from delta_sharing_client.spark.interface import HAS_LIMITS, ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

BASE = -1
"""The index before the first file of a version."""


class Position(NamedTuple):
    """How far a stream has read: all of the versions before ``version``, and of that one the files up to ``place``."""

    version: int
    place: int = BASE


class _Item(NamedTuple):
    """A file that waits: ``place`` in its version, bytes, and the unit of the version it belongs to."""

    version: int
    place: int
    size: int
    unit: int
    is_last: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """What one micro-batch may take; ``None`` is no limit."""

    files: int | None = None
    bytes: int | None = None


class Offered(NamedTuple):
    """A version as it waits: the sizes of its files in order, and the unit of each."""

    version: int
    sizes: tuple[int, ...] = ()
    units: tuple[int, ...] = ()


def admit(start: Position, offered: Iterable[Offered], budget: Budget) -> Position:
    """Return the position after what ``budget`` admits of ``offered`` beyond ``start``.

    Parameters
    ----------
    start:
        Where the batch begins.
    offered:
        Consecutive versions from ``start.version`` on.
    budget:
        The limits.

    Returns
    -------
    ``start`` where nothing is offered. After the last file of a version the position is the base of the next one;
    versions without files are passed for free.
    """
    files_left, bytes_left = budget.files, budget.bytes
    position, open_unit = start, None
    for item in _items(start, offered):
        if item.place == BASE:
            position = _after(item)
            continue
        unit = (item.version, item.unit)
        full = (files_left is not None and files_left <= 0) or (bytes_left is not None and bytes_left <= 0)
        if full and unit != open_unit:
            break
        open_unit = unit
        position = _after(item)
        files_left = None if files_left is None else files_left - 1
        bytes_left = None if bytes_left is None else bytes_left - item.size
    return position


def _items(start: Position, offered: Iterable[Offered]) -> Iterable[_Item]:
    for version in offered:
        if version.version < start.version:
            continue
        if not version.sizes:
            yield _Item(version.version, BASE, 0, 0, True)
        last = len(version.sizes) - 1
        for index, (size, unit) in enumerate(zip(version.sizes, version.units, strict=True)):
            if Position(version.version, index) > start:
                yield _Item(version.version, index, size, unit, index == last)
        if version.version == start.version and version.sizes and start.place >= last:
            yield _Item(version.version, BASE, 0, 0, True)


def _after(item: _Item) -> Position:
    return Position(item.version + 1) if item.is_last else Position(item.version, item.place)


# === Spark's limits ===

Limit = Any
"""A ``ReadLimit`` of PySpark, or ``None`` where it has none."""

ALL: Budget | None = None


def default_limit(budget: Budget) -> Limit:
    """Return the limit that Spark hands back with each request: Spark carries one only, so it stands for all."""
    if not HAS_LIMITS:
        return None
    return ReadMaxBytes(budget.bytes) if budget.files is None and budget.bytes else ReadMaxFiles(budget.files or 1)


def is_unlimited(limit: Limit) -> bool:
    """Whether the trigger wants all that there is."""
    return HAS_LIMITS and isinstance(limit, ReadAllAvailable)
