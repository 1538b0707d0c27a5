"""What a caller asks of a table: the frozen requests behind ``SharedTable.scan`` and ``SharedTable.changes``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from delta_sharing_client.errors import UsageError

if TYPE_CHECKING:
    from delta_sharing_client.delta.schema import ColumnPath
    from delta_sharing_client.predicates.tree import Expression


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """A read of one snapshot.

    Parameters
    ----------
    columns:
        Paths of logical names to return, in this order; ``None`` is every column. A nested path keeps its top-level
        column and only the named part of it. ``()`` returns rows without columns (a count).
    filter:
        Unbound predicate tree; rows for which it is not true are not returned.
    limit:
        Greatest number of rows, ``None`` for all.
    version, timestamp:
        Snapshot to read, at most one of the two; ``timestamp`` is ISO 8601 text as sent to the server.
    row_lineage:
        Append ``_row_id`` and ``_row_commit_version`` (Delta Transaction Log Protocol, "Row Tracking").

    Raises
    ------
    UsageError
        A negative or non-integer limit or version, or both a version and a timestamp.
    """

    columns: tuple[ColumnPath, ...] | None = None
    filter: Expression | None = None
    limit: int | None = None
    version: int | None = None
    timestamp: str | None = None
    row_lineage: bool = False

    def __post_init__(self) -> None:
        _check_count("limit", self.limit)
        _check_count("version", self.version)
        if self.version is not None and self.timestamp is not None:
            raise UsageError("Give either version or timestamp, not both.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRequest:
    """A read of the change data feed between two versions or timestamps, both inclusive.

    ``columns`` and ``filter`` may also name ``_change_type``, ``_commit_version`` and ``_commit_timestamp``; an end of
    ``None`` is the latest version. Timestamps are ISO 8601 text.

    Raises
    ------
    UsageError
        No start, two starts or two ends, an end version before the start, or a negative number.
    """

    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    columns: tuple[ColumnPath, ...] | None = None
    filter: Expression | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        for name in ("starting_version", "ending_version", "limit"):
            _check_count(name, getattr(self, name))
        if (self.starting_version is None) == (self.starting_timestamp is None):
            raise UsageError("A change feed needs exactly one of starting_version and starting_timestamp.")
        if self.ending_version is not None and self.ending_timestamp is not None:
            raise UsageError("Give either ending_version or ending_timestamp, not both.")
        if (
            self.starting_version is not None
            and self.ending_version is not None
            and self.ending_version < self.starting_version
        ):
            raise UsageError(
                f"ending_version {self.ending_version} lies before starting_version {self.starting_version}; "
                "exchange them."
            )


def _check_count(name: str, value: int | None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{name} must be an integer of 0 or more, not {value!r}.")
