"""Chooses the files of a micro-batch: which files of a commit, in which order, and how many.

The rules are those of the JVM connector: a file is admitted if both budgets are above zero, and counted afterwards. So
at least one file is always admitted, and the last one may exceed the limit of bytes. Files of one *unit* are admitted
together, such as the change files of one commit, so that an update's pre-image and post-image are in one batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from delta_sharing_client.delta.actions import AddCdcFile, AddFile, RemoveFile, SharedFile
from delta_sharing_client.errors import DataError, DeltaSharingError
from delta_sharing_client.follow.follow_request import OnChange

BASE = -1
"""The index before the first file of a version."""


class Position(NamedTuple):
    """How far a stream has read: all versions before ``version``, and the files of ``version`` up to and including the
    one at index ``place``."""

    version: int
    place: int = BASE


@dataclasses.dataclass(frozen=True)
class VersionFiles:
    """The files of one version that a stream reads, in order, with their units; or the error that explains why it
    cannot read the version."""

    version: int
    files: tuple[SharedFile, ...] = ()
    units: tuple[int, ...] = ()
    problem: DeltaSharingError | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one micro-batch; ``None`` means no limit."""

    files: int | None = None
    bytes: int | None = None


def admit(start: Position, offered: Iterable[VersionFiles], budget: BatchLimits) -> Position:
    """Return the position after the files of ``offered`` that ``budget`` admits after ``start``.

    ``offered`` are consecutive versions from ``start.version`` on. If there are none, the result is ``start``. After
    the last file of a version, the position is the base of the next one. Versions without files use none of the budget.
    """
    files_left, bytes_left = budget.files, budget.bytes
    position, open_unit = start, None
    for version in offered:
        for place, (file, unit) in enumerate(zip(version.files, version.units, strict=True)):
            if Position(version.version, place) <= start:
                continue
            full = (files_left is not None and files_left <= 0) or (bytes_left is not None and bytes_left <= 0)
            if full and (version.version, unit) != open_unit:
                return position
            open_unit = (version.version, unit)
            position = Position(version.version, place)
            files_left = None if files_left is None else files_left - 1
            bytes_left = None if bytes_left is None else bytes_left - max(0, file.action.size or 0)
        position = Position(version.version + 1)
    return position


# === Which files of a commit ===


def appended_files(files: Sequence[SharedFile], version: int, on_change: OnChange) -> list[SharedFile]:
    """Return the added files of a commit that an append stream reads, in order of file id.

    ``files`` are those of ``version`` that change data. Raises ``DataError``, with the version and the option that
    helps, if files are removed and ``on_change`` does not allow it. ``IGNORE_CHANGES`` returns rewritten files, so
    their old rows are repeated.
    """
    adds = [file for file in files if isinstance(file.action, AddFile)]
    removes = [file for file in files if isinstance(file.action, RemoveFile)]
    if removes and on_change is OnChange.SKIP_CHANGE_COMMITS:
        return []
    if removes and adds and on_change is not OnChange.IGNORE_CHANGES:
        raise DataError(
            f"Detected a data update in version {version}, which an append stream cannot show. To leave such commits "
            "out, set the option 'skipChangeCommits' to 'true'; to get all rows of the rewritten files (unchanged rows "
            "come again), set 'ignoreChanges'; to see each change, start over with 'readChangeFeed' and a new "
            "checkpoint.",
            version=version,
        )
    if removes and not adds and on_change is OnChange.FAIL:
        raise DataError(
            f"Detected deleted data in version {version}, which an append stream cannot show. To ignore deletes, set "
            "the option 'ignoreDeletes' to 'true'; to see each change, start over with 'readChangeFeed' and a new "
            "checkpoint.",
            version=version,
        )
    return sorted(adds, key=file_order)


def change_files(files: Sequence[SharedFile]) -> list[SharedFile]:
    """Return the files with the changes of a commit, in order of file id: only change files if there are any."""
    cdc = [file for file in files if isinstance(file.action, AddCdcFile)]
    return sorted(cdc or files, key=file_order)


def units(files: Sequence[SharedFile]) -> tuple[int, ...]:
    """Return the unit of each file of a change feed; the files of a unit must be in one micro-batch.

    The change files of a commit are one unit, because they contain the pre-images and post-images of its updates. If
    any file has a deletion vector, all files are one unit, because the reader compares a removed file with the added
    one. Otherwise, files with the same id are one unit.
    """
    if any(isinstance(file.action, AddCdcFile) or file.action.deletion_vector is not None for file in files):
        return (0,) * len(files)
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(file_id(file), len(numbers)) for file in files)


def file_id(file: SharedFile) -> str:
    """Return the server's id of a file. Raises ``DataError`` if there is none."""
    if file.file_id is None:
        raise DataError(
            "The server sent a file without an id, but a stream needs ids to find its position after a restart. Ask "
            "the provider to upgrade the server, or read the table with 'spark.read'."
        )
    return file.file_id


def file_order(file: SharedFile) -> tuple[str, int, str]:
    """Return the sort key of a file in its version: by id; a removed file is before an added one with the same id."""
    action = file.action
    kind = 0 if isinstance(action, RemoveFile) else 1
    vector = action.deletion_vector
    return file_id(file), kind, "" if vector is None else f"{vector.size_in_bytes:010d}{vector.cardinality:010d}"
