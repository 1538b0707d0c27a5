"""Reads a Delta table through its log (Delta log protocol, "Delta Log Entries" and "Checkpoints")."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

import msgspec

from delta_sharing_client.delta.actions import Action, Count, Metadata, Protocol
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.log.checkpoint_reader import read_checkpoint, read_table_state
from delta_sharing_client.delta.log.commit import Commit, CommitTimes, enablement_of
from delta_sharing_client.delta.log.log_files import (
    LOG_DIRECTORY,
    LocalDirectory,
    LogDirectory,
    LogFile,
    LogListing,
    LogSegment,
    hinted_checkpoint,
)
from delta_sharing_client.delta.log.log_lines import read_actions
from delta_sharing_client.delta.snapshot import Replay, Snapshot, Want, is_reconciled, without_conflicts
from delta_sharing_client.errors import DataError, DeltaSharingError, ProtocolError, UsageError
from delta_sharing_client.instants import format_millis


class DeltaLog:
    """The log of a table directory, read-only.

    Every call reads the directory again, so it sees concurrent writes; a :class:`Snapshot` does not change. Errors name
    the table by its directory's name.
    """

    def __init__(self, directory: LogDirectory, table: str) -> None:
        self.directory = directory
        self._table = table

    def __repr__(self) -> str:
        return f"DeltaLog({self._table!r})"

    @classmethod
    def open(cls, table_root: str | os.PathLike[str]) -> DeltaLog:
        """Open the table in the local directory ``table_root``.

        Raises ``DataError`` if it has no log, or if the log has neither a commit nor a complete checkpoint.
        """
        root = Path(os.path.abspath(table_root))
        log = cls(LocalDirectory(root / LOG_DIRECTORY), root.name)
        log._list()
        return log

    def latest_version(self) -> int:
        """Return the newest version."""
        return self._list().latest

    def snapshot(self, version: int | None = None, *, want: Want = Want.STATS) -> Snapshot:
        """Return the table at ``version``, by default the newest; ``want`` selects what to keep besides the live files.

        Raises ``UsageError`` if the version does not exist; ``DataError`` if it cannot be rebuilt any more, if a commit
        is missing or if a log file cannot be read; ``ProtocolError`` for a log without protocol or metadata or with a
        malformed action; ``UnsupportedFeatureError`` if the table needs a feature that is not supported. Warns with
        ``VersionChecksumWarning`` if the table does not match the version's checksum file.
        """
        listing = self._list()
        preferred = hinted_checkpoint(listing) if version is None else None
        segment = listing.segment(listing.latest if version is None else version, preferred)
        replay = Replay(want)
        for actions in self._sources(listing, segment, want):
            replay.apply(self._named(actions, segment.version))
        snapshot = replay.snapshot(segment.version, table=self._table)
        check_readable(
            snapshot.protocol, snapshot.metadata, operation=Operation.SNAPSHOT, table=self._table, from_log=True
        )
        _compare_with_checksum(snapshot, listing)
        times = self._times(listing, snapshot.protocol, snapshot.metadata)
        return replace(snapshot, timestamp_ms=_segment_time(segment, times))

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        """Yield the commits ``start`` to ``end``, inclusive, oldest first.

        Raises ``UsageError`` for an empty range or one beyond the newest version, ``DataError`` for a missing or
        unreadable commit file, ``ProtocolError`` for a malformed action, ``UnsupportedFeatureError`` if a commit sets a
        protocol that is not supported.
        """
        listing = self._list()
        if not 0 <= start <= end <= listing.latest:
            raise UsageError(
                f"The first and last version must satisfy 0 <= first <= last <= {listing.latest}, "
                f"found {start} and {end}.",
                table=self._table,
            )
        missing = next((version for version in range(start, end + 1) if version not in listing.commits), None)
        if missing is not None:
            raise DataError(
                f"Commit {missing} is no longer in the log, so the changes of versions {start} to {end} are unknown.",
                table=self._table,
                version=missing,
            )
        times = self._latest_times(listing)
        listing.directory.expect([listing.commits[version].name for version in range(start, end + 1)])
        return (self._commit(listing.commits[version], times) for version in range(start, end + 1))

    def commit_timestamp(self, version: int) -> int:
        """Return the time of commit ``version`` in milliseconds since the epoch; ``DataError`` if it is not in the log.

        It is the in-commit timestamp if the commit has one, otherwise the file's modification time, increased if
        necessary so that times increase with versions.
        """
        listing = self._list()
        return self._latest_times(listing).at(version)

    def version_at(self, timestamp_ms: int) -> int:
        """Return the newest version committed at or before ``timestamp_ms`` that can be rebuilt.

        Raises ``UsageError`` with the earliest version and its time if all are later.
        """
        listing = self._list()
        times = self._latest_times(listing)
        versions = [version for version in listing.rebuildable if version in listing.commits]
        newest = times.newest_at_or_before(timestamp_ms, versions)
        if newest is None:
            raise UsageError(
                f"The timestamp {format_millis(timestamp_ms)} is before the earliest version that can be rebuilt"
                f"{_dated(versions[:1], times)}.",
                table=self._table,
            )
        return newest

    def version_from(self, timestamp_ms: int) -> int:
        """Return the earliest version committed at or after ``timestamp_ms``; for an early time, the first commit in
        the log.

        Raises ``UsageError`` with the newest version and its time if all are earlier.
        """
        listing = self._list()
        times = self._latest_times(listing)
        versions = sorted(listing.commits)
        version = times.earliest_at_or_after(timestamp_ms, versions)
        if version is None:
            raise UsageError(
                f"The timestamp {format_millis(timestamp_ms)} is after the newest version"
                f"{_dated(versions[-1:], times)}.",
                table=self._table,
            )
        return version

    def _list(self) -> LogListing:
        return LogListing.read(self.directory, self._table)

    def _sources(self, listing: LogListing, segment: LogSegment, want: Want) -> Iterator[Iterable[Action]]:
        if segment.checkpoint is not None:
            yield read_checkpoint(listing.directory, segment.checkpoint, want)
        checksum = [listing.checksums[segment.version]] if segment.version in listing.checksums else []
        listing.directory.expect([*(delta.name for delta in segment.deltas), *checksum])
        for delta in segment.deltas:
            if delta.first == delta.last:
                yield without_conflicts(self._read(delta), delta.name)
            else:
                yield from self._compacted(listing, delta)

    def _compacted(self, listing: LogListing, delta: LogFile) -> Iterator[Iterable[Action]]:
        actions = list(self._read(delta))
        if is_reconciled(actions):
            yield actions
            return
        # Some writers only concatenate the commits, newest first. Then the commits themselves are read.
        for version in range(delta.first, delta.last + 1):
            if version not in listing.commits:
                raise ProtocolError(
                    f"'{delta.name}' must have at most one action for each file, found several, and the commits that "
                    "it replaces are no longer in the log.",
                    table=self._table,
                )
            commit = listing.commits[version]
            yield without_conflicts(self._read(commit), commit.name)

    def _read(self, delta: LogFile) -> Iterator[Action]:
        try:
            with self.directory.open(delta.name) as stream:
                yield from read_actions(stream, delta.name)
        except OSError as error:
            raise DataError(f"The log file '{delta.name}' cannot be read: {error.strerror}.") from None

    def _commit(self, file: LogFile, times: CommitTimes) -> Commit:
        actions = self._named(without_conflicts(self._read(file), file.name), file.first)
        commit = Commit.from_actions(file.first, times.at(file.first), actions)
        if commit.protocol is not None:
            check_readable(commit.protocol, operation=Operation.CHANGES, table=self._table, from_log=True)
        return commit

    def _named(self, actions: Iterable[Action], version: int) -> Iterator[Action]:
        try:
            yield from actions
        except DeltaSharingError as error:
            error.table = error.table or self._table
            error.version = version if error.version is None else error.version
            raise

    def _latest_times(self, listing: LogListing) -> CommitTimes:
        """Return the times of all commits, according to the newest protocol and metadata in the log."""
        newest: dict[type, Any] = {}
        for actions in self._newest_first(listing):
            for action in actions:
                newest.setdefault(type(action), action)
            if Protocol in newest and Metadata in newest:
                return self._times(listing, newest[Protocol], newest[Metadata])
        return CommitTimes(listing, None)

    def _newest_first(self, listing: LogListing) -> Iterator[Iterator[Action]]:
        base = max(listing.checkpoints, default=None)
        for version in sorted((item for item in listing.commits if base is None or item > base), reverse=True):
            yield self._named(self._read(listing.commits[version]), version)
        if base is not None:
            yield self._named(read_table_state(listing.directory, listing.checkpoints[base][0]), base)

    def _times(self, listing: LogListing, protocol: Protocol, metadata: Metadata) -> CommitTimes:
        return CommitTimes(listing, enablement_of(protocol, metadata, self._table))


def _dated(one: list[int], times: CommitTimes) -> str:
    return f", {one[0]}, which was committed at {format_millis(times.at(one[0]))}" if one else ": there is none"


def _segment_time(segment: LogSegment, times: CommitTimes) -> int | None:
    if segment.version in times.listing.commits:
        return times.at(segment.version)
    # The commit was deleted; the time of the checkpoint's file is the closest known time.
    return segment.checkpoint.modified_ms if segment.checkpoint is not None else None


# === Version checksums (Delta log protocol, "Version Checksum File") ===

# The log is authoritative. If it differs from the writer's checksum, it was changed or damaged since. A reader can only
# report this, in a warning with both values.

_MAX_BYTES = 64 * 1024 * 1024
_LONGEST_VALUE = 300


class VersionChecksumWarning(UserWarning):
    """A table does not match its version checksum, or the checksum cannot be read."""


class _Checksum(msgspec.Struct, rename="camel", frozen=True):
    """The checksum fields that can be compared using only the log; a writer may omit each of them."""

    table_size_bytes: Union[Count, None] = None
    num_files: Union[Count, None] = None
    num_metadata: Union[Count, None] = None
    num_protocol: Union[Count, None] = None
    metadata: Union[Metadata, None] = None
    protocol: Union[Protocol, None] = None
    num_deleted_records: Union[Count, None] = msgspec.field(default=None, name="numDeletedRecordsOpt")
    num_deletion_vectors: Union[Count, None] = msgspec.field(default=None, name="numDeletionVectorsOpt")


def _compare_with_checksum(snapshot: Snapshot, listing: LogListing) -> None:
    """Warn if ``snapshot`` differs from the checksum of its version, if ``listing`` has one."""
    name = listing.checksums.get(snapshot.version)
    if name is None:
        return
    try:
        with listing.directory.open(name) as stream:
            checksum = _DECODER.decode(stream.read(_MAX_BYTES))
    except FileNotFoundError:
        return
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        _warn(
            f"The version checksum '{name}' of the table '{listing.table}' is ignored, as it cannot be read: {error}."
        )
        return
    different = [
        f"'{field}' must be {_short(recorded)}, found {_short(computed)}"
        for field, recorded, computed in _facts(checksum, snapshot)
        if recorded not in (None, computed)
    ]
    if different:
        _warn(
            f"The table '{listing.table}' does not match its version checksum '{name}': {'; '.join(different)}. The "
            f"log is used as it is. Tell the provider that the log of version {snapshot.version} may be damaged."
        )


def _facts(checksum: _Checksum, snapshot: Snapshot) -> Iterator[tuple[str, object, object]]:
    """Yield a name, the checksum's value (``None`` if missing), and the snapshot's value."""
    vectors = [add.deletion_vector for add in snapshot.files if add.deletion_vector is not None]
    yield "tableSizeBytes", checksum.table_size_bytes, sum(add.size for add in snapshot.files)
    yield "numFiles", checksum.num_files, len(snapshot.files)
    yield "numMetadata", checksum.num_metadata, 1
    yield "numProtocol", checksum.num_protocol, 1
    yield "numDeletedRecordsOpt", checksum.num_deleted_records, sum(vector.cardinality for vector in vectors)
    yield "numDeletionVectorsOpt", checksum.num_deletion_vectors, len(vectors)
    if checksum.protocol is not None:
        yield "protocol", _protocol_text(checksum.protocol), _protocol_text(snapshot.protocol)
    if checksum.metadata is not None:
        ours = _metadata_facts(snapshot.metadata)
        yield from (
            (f"metadata.{name}", value, ours[name]) for name, value in _metadata_facts(checksum.metadata).items()
        )


def _protocol_text(protocol: Protocol) -> str:
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    return f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}, features {features}"


def _metadata_facts(metadata: Metadata) -> dict[str, object]:
    try:
        schema = json.dumps(json.loads(metadata.schema_string), sort_keys=True)
    except (ValueError, RecursionError):
        schema = metadata.schema_string
    return {
        "id": repr(metadata.id),
        "schemaString": schema,
        "partitionColumns": metadata.partition_columns,
        "configuration": dict(metadata.properties),
    }


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _warn(message: str) -> None:
    warnings.warn(message, VersionChecksumWarning, stacklevel=3)


_DECODER = msgspec.json.Decoder(_Checksum)
