"""One commit of a log: its actions, the files with its row-level changes, and its time.

See the Delta log protocol, "Add CDC File" and "In-Commit Timestamps".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    Transaction,
)
from delta_sharing_client.delta.features import has_writer_feature
from delta_sharing_client.delta.log.log_files import LogFile, LogListing
from delta_sharing_client.delta.log.log_lines import read_actions
from delta_sharing_client.errors import DataError, ProtocolError
from delta_sharing_client.lazy import lazy

_MERGE_ROW_METRICS = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True)
class Commit:
    """The actions of one version; ``timestamp_ms`` is its time in milliseconds since the epoch, if known."""

    version: int
    timestamp_ms: int | None
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    cdcs: tuple[AddCdcFile, ...] = ()
    transactions: tuple[Transaction, ...] = ()
    domain_metadata: tuple[DomainMetadata, ...] = ()
    commit_info: CommitInfo | None = None

    @classmethod
    def from_actions(cls, version: int, timestamp_ms: int | None, actions: Iterable[Action]) -> Commit:
        """Group the actions of one commit by kind, in order; only the last protocol and metadata are kept."""
        kinds: dict[type, list[Action]] = {}
        for action in actions:
            kinds.setdefault(type(action), []).append(action)
        return cls(
            version=version,
            timestamp_ms=timestamp_ms,
            protocol=_last(kinds.get(Protocol)),  # type: ignore[arg-type]
            metadata=_last(kinds.get(Metadata)),  # type: ignore[arg-type]
            adds=tuple(kinds.get(AddFile, ())),  # type: ignore[arg-type]
            removes=tuple(kinds.get(RemoveFile, ())),  # type: ignore[arg-type]
            cdcs=tuple(kinds.get(AddCdcFile, ())),  # type: ignore[arg-type]
            transactions=tuple(kinds.get(Transaction, ())),  # type: ignore[arg-type]
            domain_metadata=tuple(kinds.get(DomainMetadata, ())),  # type: ignore[arg-type]
            commit_info=_last(kinds.get(CommitInfo)),  # type: ignore[arg-type]
        )


def change_actions(commit: Commit) -> list[FileAction]:
    """Return the files that hold the row-level changes of ``commit``, in log order.

    These are its change files if it has any, and otherwise the added and removed files that change data. A MERGE whose
    metrics state that it changed no row has no such files: it only rewrote files.
    """
    if commit.cdcs:
        return list(commit.cdcs)
    if _is_merge_without_effect(commit.commit_info):
        return []
    changes: list[FileAction] = [add for add in commit.adds if add.data_change]
    changes.extend(remove for remove in commit.removes if remove.data_change)
    return changes


def _is_merge_without_effect(info: CommitInfo | None) -> bool:
    if info is None or info.operation != "MERGE" or info.operation_metrics is None:
        return False
    return all(str(info.operation_metrics.get(name)) == "0" for name in _MERGE_ROW_METRICS)


def _last(actions: list[Action] | None) -> Action | None:
    return actions[-1] if actions else None


# === Commit times: in-commit timestamps, or the modification times of commit files, made monotonic ===

ENABLED_PROPERTY = "delta.enableInCommitTimestamps"
ENABLEMENT_VERSION_PROPERTY = "delta.inCommitTimestampEnablementVersion"
ENABLEMENT_TIMESTAMP_PROPERTY = "delta.inCommitTimestampEnablementTimestamp"
_FEATURES = ("inCommitTimestamp", "inCommitTimestamp-preview")


@dataclass(frozen=True, slots=True)
class Enablement:
    """The first version with an in-commit timestamp; ``timestamp_ms`` is the time of that version, if recorded."""

    version: int
    timestamp_ms: int | None


@dataclass(frozen=True)
class CommitTimes:
    """The times of the commits in a log, in milliseconds since the epoch."""

    listing: LogListing
    enablement: Enablement | None
    _in_commit: dict[int, int] = field(default_factory=dict)

    def at(self, version: int) -> int:
        """Return the time of commit ``version``; ``DataError`` if there is no such commit file, ``ProtocolError`` if
        the commit lacks its in-commit timestamp."""
        commit = self.listing.commits.get(version)
        if commit is None:
            raise DataError(
                f"Commit {version} is not in the log, so its time is unknown.",
                table=self.listing.table,
                version=version,
            )
        if self.enablement is None or version < self.enablement.version:
            return self._file_times[version]
        if version not in self._in_commit:
            self._in_commit[version] = _in_commit_timestamp(commit, self.listing)
        return self._in_commit[version]

    def newest_at_or_before(self, timestamp_ms: int, versions: list[int]) -> int | None:
        """Return the newest of ``versions`` (ascending) whose time is at or before ``timestamp_ms``, or ``None``."""
        split = self._split(versions)
        later = versions[split:]
        if later and timestamp_ms >= self._enabled_at(later[0]):
            return later[bisect_right(later, timestamp_ms, key=self.at) - 1]
        earlier = versions[:split]
        position = bisect_right(earlier, timestamp_ms, key=self.at)
        return earlier[position - 1] if position else None

    def earliest_at_or_after(self, timestamp_ms: int, versions: list[int]) -> int | None:
        """Return the oldest of ``versions`` (ascending) whose time is at or after ``timestamp_ms``, or ``None``."""
        split = self._split(versions)
        for part in (versions[:split], versions[split:]):
            position = bisect_left(part, timestamp_ms, key=self.at)
            if position < len(part):
                return part[position]
        return None

    def _split(self, versions: list[int]) -> int:
        return len(versions) if self.enablement is None else bisect_left(versions, self.enablement.version)

    def _enabled_at(self, first: int) -> int:
        enablement = self.enablement
        # The recorded time is valid only if its commit is the first one in the log with an in-commit timestamp.
        if enablement is None or enablement.timestamp_ms is None or first != enablement.version:
            return self.at(first)
        return enablement.timestamp_ms

    @lazy
    def _file_times(self) -> dict[int, int]:
        times: dict[int, int] = {}
        newest: int | None = None
        for version, commit in sorted(self.listing.commits.items()):
            newest = commit.modified_ms if newest is None else max(commit.modified_ms, newest + 1)
            times[version] = newest
        return times


def enablement_of(protocol: Protocol, metadata: Metadata, table: str) -> Enablement | None:
    """Return the first version with an in-commit timestamp, ``None`` if commits have none; ``ProtocolError`` if a
    property is not a number."""
    properties = metadata.properties
    if properties.get(ENABLED_PROPERTY, "false").lower() != "true":
        return None
    if not any(has_writer_feature(protocol, name) for name in _FEATURES):
        return None
    version = _number(properties, ENABLEMENT_VERSION_PROPERTY, table)
    return Enablement(version or 0, _number(properties, ENABLEMENT_TIMESTAMP_PROPERTY, table))


def _number(properties: dict[str, str], name: str, table: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise ProtocolError(f"The table property '{name}' must be a whole number, found {text[:50]!r}.", table=table)
    return int(text)


def _in_commit_timestamp(commit: LogFile, listing: LogListing) -> int:
    try:
        with listing.directory.open(commit.name) as stream:
            first = next(iter(read_actions([stream.readline()], commit.name)), None)
    except OSError as error:
        raise DataError(f"Commit {commit.first} cannot be read: {error.strerror}.", table=listing.table) from None
    if not isinstance(first, CommitInfo) or first.in_commit_timestamp is None:
        raise ProtocolError(
            f"The table has in-commit timestamps, so commit {commit.first} must begin with a 'commitInfo' action that "
            "has an 'inCommitTimestamp'.",
            table=listing.table,
            version=commit.first,
        )
    return first.in_commit_timestamp
