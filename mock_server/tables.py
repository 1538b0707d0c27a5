"""A shared table, read from its current Delta log: the versions, snapshots and ranges of commits that are shared."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

from delta_sharing_client.delta.actions import AddFile, RemoveFile
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.paths import canonical_path, resolve
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.instants import format_millis

from .catalog import TableEntry
from .errors import data_lost, invalid, unsupported

_CACHED_SNAPSHOTS = 4


class SharedTable:
    """One table of the catalog. Every request sees the commits made before it. Thread-safe."""

    def __init__(self, entry: TableEntry) -> None:
        self.entry = entry
        self._lock = threading.Lock()
        self._log: DeltaLog | None = None
        self._snapshots: OrderedDict[int, Snapshot] = OrderedDict()
        self._sizes: dict[int, int] = {}

    @property
    def log(self) -> DeltaLog:
        """The table's log."""
        if self._log is None:
            self._log = DeltaLog.open(self.entry.location)
        return self._log

    def latest_version(self) -> int:
        """Return the latest version; 400 if it is earlier than the first shared version."""
        version = self.log.latest_version()
        if version < self.entry.start_version:
            raise data_lost(
                f"The table '{self.entry.full_name}' is shared from version {self.entry.start_version} on, "
                f"but its latest version is {version}."
            )
        return version

    def snapshot(self, version: int) -> Snapshot:
        """Return the snapshot at ``version``; the most recently used snapshots are cached."""
        with self._lock:
            found = self._snapshots.get(version)
            if found is None:
                found = self.log.snapshot(version)
                self._snapshots[version] = found
                self._sizes[version] = sum(add.size for add in found.files)
                while len(self._snapshots) > _CACHED_SNAPSHOTS:
                    dropped, _ = self._snapshots.popitem(last=False)
                    del self._sizes[dropped]
            self._snapshots.move_to_end(version)
            return found

    def size(self, snapshot: Snapshot) -> int:
        """Return the total size of the live files of a snapshot, in bytes."""
        known = self._sizes.get(snapshot.version)
        return sum(add.size for add in snapshot.files) if known is None else known

    def travel(self, version: int | None, timestamp_ms: int | None) -> int:
        """Return the version that ``version`` or ``timestamp_ms`` selects; 400 if it does not exist or is not
        shared."""
        self.require_history()
        if version is not None:
            return self.check_version(version)
        assert timestamp_ms is not None
        latest = self.latest_version()
        if timestamp_ms > self.log.commit_timestamp(latest):
            raise invalid(
                f"The provided timestamp ({format_millis(timestamp_ms)}) is after the latest version available to the "
                f"table, which was committed at {format_millis(self.log.commit_timestamp(latest))}."
            )
        try:
            found = self.log.version_at(timestamp_ms)
        except (DataError, UsageError) as error:
            raise invalid(error.message) from error
        return self.check_version(found)

    def version_from(self, timestamp_ms: int) -> int:
        """Return the earliest shared version committed at or after ``timestamp_ms``; 400 if there is none."""
        self.require_history()
        try:
            found = self.log.version_from(timestamp_ms)
        except (DataError, UsageError) as error:
            raise invalid(error.message) from error
        return max(found, self.entry.start_version)

    def version_until(self, timestamp_ms: int) -> int:
        """Return the latest version committed at or before ``timestamp_ms``; 400 if there is none."""
        latest = self.latest_version()
        if timestamp_ms >= self.log.commit_timestamp(latest):
            return latest
        try:
            return self.log.version_at(timestamp_ms)
        except (DataError, UsageError) as error:
            raise invalid(error.message) from error

    def check_version(self, version: int) -> int:
        """Return ``version`` if it is shared and exists; 400 otherwise."""
        latest = self.latest_version()
        if version < self.entry.start_version:
            raise invalid(
                f"You can only query table data since version {self.entry.start_version}, found version {version}."
            )
        if version > latest:
            raise invalid(f"Cannot load table version {version} as it does not exist. The latest version is {latest}.")
        return version

    def require_history(self) -> None:
        """Raise `ApiError` if the table's history, which the request needs, is not shared."""
        if not self.entry.history_shared:
            raise unsupported(
                "Reading table by version or timestamp is not supported because history sharing is not enabled on "
                f"table: {self.entry.full_name}."
            )

    def commits(self, start: int, end: int) -> Iterator[Commit]:
        """Yield the commits ``start`` to ``end``, both included. Raises an error that names a missing commit."""
        return self.log.commits(start, end)

    def complete(self, remove: RemoveFile, version: int) -> RemoveFile:
        """Return a tombstone with its size and partition values, which are optional in a log but required in a
        response."""
        if remove.size is not None and remove.partition_values is not None:
            return remove
        add = self._added(remove, version)
        size, values = remove.size, remove.partition_values
        if add is not None:
            size, values = add.size if size is None else size, add.partition_values if values is None else values
        if size is None:
            size = self._size_on_disk(remove)
        if values is None and self.snapshot(version).metadata.partition_columns:
            raise DataError(
                f"The tombstone in version {version} has no partition values, and the version before lacks its file.",
                table=self.entry.full_name,
                version=version,
            )
        return RemoveFile(
            remove.path, remove.data_change, remove.deletion_timestamp, remove.extended_file_metadata, values or {},
            size, remove.stats, remove.tags, remove.deletion_vector, remove.base_row_id,
            remove.default_row_commit_version,
        )  # fmt: skip

    def _size_on_disk(self, remove: RemoveFile) -> int:
        try:
            return resolve(self.entry.location, remove.path).stat().st_size
        except OSError as error:
            raise DataError(
                "A tombstone has no size, and its file is neither in the version before nor on disk.",
                table=self.entry.full_name,
            ) from error

    def _added(self, remove: RemoveFile, version: int) -> AddFile | None:
        if version == 0:
            return None
        wanted = canonical_path(remove.path)
        return next((add for add in self.snapshot(version - 1).files if canonical_path(add.path) == wanted), None)
