"""The files of a ``_delta_log`` directory, and which of them rebuild a version (Delta log protocol, "File Types")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from delta_sharing_client.delta.log.directory import LOG_DIRECTORY, LogDirectory, LogEntry
from delta_sharing_client.errors import DataError, UsageError

_COMMIT = re.compile(r"(\d{20})\.json\Z")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json\Z")
_CHECKSUM = re.compile(r"(\d{20})\.crc\Z")
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet|\.(?P<uuid>[0-9A-Za-z\-]{36})\.(?:json|parquet)|\.parquet)\Z"
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit (``first == last``) or a compacted log file for the versions ``first`` to ``last``."""

    name: str
    first: int
    last: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: one file, or all parts in order."""

    version: int
    files: tuple[str, ...]
    modified_ms: int

    @property
    def name(self) -> str:
        """The name of its (first) file."""
        return self.files[0]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """What to read for one version: a checkpoint, if any, then commits and compacted files, oldest first."""

    version: int
    checkpoint: Checkpoint | None
    deltas: tuple[LogFile, ...]


@dataclass(frozen=True)
class LogListing:
    """One look at a log directory."""

    table: str
    commits: Mapping[int, LogFile]
    compacted: Mapping[int, Sequence[LogFile]]
    checkpoints: Mapping[int, Sequence[Checkpoint]]
    checksums: Mapping[int, str]
    directory: LogDirectory

    @classmethod
    def read(cls, directory: LogDirectory, table: str) -> LogListing:
        """List ``directory``.

        Raises
        ------
        DataError
            There is no such directory, or it has neither a commit nor a complete checkpoint.
        """
        commits: dict[int, LogFile] = {}
        compacted: dict[int, list[LogFile]] = {}
        parts: dict[tuple[int, str], dict[int, LogFile]] = {}
        checksums: dict[int, str] = {}
        try:
            entries = sorted(directory.entries())
        except FileNotFoundError:
            raise DataError(
                f"A Delta table must have the directory '{LOG_DIRECTORY}', which was not found.", table=table
            ) from None
        for entry in entries:
            name = entry.name
            # An empty file: a writer that died left it behind. The commits say the same as what it would have held.
            if match := _COMMIT.match(name):
                version = int(match[1])
                commits[version] = _log_file(entry, version, version)
            elif match := _COMPACTED.match(name):
                if int(match[1]) <= int(match[2]) and entry.size:
                    compacted.setdefault(int(match[1]), []).append(_log_file(entry, int(match[1]), int(match[2])))
            elif (match := _CHECKPOINT.match(name)) and entry.size:
                version = int(match["version"])
                group = f"parts {match['parts']}" if match["parts"] else name
                parts.setdefault((version, group), {})[int(match["part"] or 1)] = _log_file(entry, version, version)
            elif (match := _CHECKSUM.match(name)) and entry.size:
                checksums[int(match[1])] = name
        listing = cls(table, commits, compacted, _complete(parts), checksums, directory)
        if not commits and not listing.checkpoints:
            raise DataError(
                f"The directory '{LOG_DIRECTORY}' must hold at least one commit or checkpoint, found none.", table=table
            )
        return listing

    @property
    def latest(self) -> int:
        """The newest version that a commit, a compacted file or a complete checkpoint names."""
        newest = max((item.last for group in self.compacted.values() for item in group), default=-1)
        return max(newest, max(self.commits, default=-1), max(self.checkpoints, default=-1))

    @cached_property
    def rebuildable(self) -> tuple[int, ...]:
        """The versions that can be rebuilt from a checkpoint or from the first commit, oldest first."""
        starts: dict[int, list[int]] = {}
        for item in (*self.commits.values(), *(item for group in self.compacted.values() for item in group)):
            starts.setdefault(item.last, []).append(item.first)
        found: set[int] = set()
        for version in sorted({*starts, *self.checkpoints}):
            if version in self.checkpoints or any(
                first == 0 or first - 1 in found for first in starts.get(version, ())
            ):
                found.add(version)
        return tuple(sorted(found))

    @property
    def earliest(self) -> int:
        """The oldest version that can be rebuilt.

        Raises
        ------
        DataError
            None can: there is no checkpoint and no commit 0.
        """
        if not self.rebuildable:
            raise DataError(
                f"No version can be rebuilt: there is no checkpoint, and the commits start at {min(self.commits)} "
                "instead of 0.",
                table=self.table,
            )
        return self.rebuildable[0]

    def segment(self, version: int, preferred: Checkpoint | None = None) -> LogSegment:
        """Return the files that rebuild ``version``, from the newest usable checkpoint on.

        ``preferred`` is taken among several checkpoints of that same version.

        Raises
        ------
        UsageError
            ``version`` does not exist (yet).
        DataError
            ``version`` cannot be rebuilt any more, or a commit is missing; the error names the nearest that can.
        """
        latest = self.latest
        if not 0 <= version <= latest:
            raise UsageError(
                f"The version must be between {self.earliest} and {latest}, found {version}.", table=self.table
            )
        if version < self.earliest:
            raise DataError(
                f"Version {version} cannot be rebuilt any more because older log files were cleaned up"
                f"{self._nearest(version)}.",
                table=self.table,
                version=version,
            )
        base = max((item for item in self.checkpoints if item <= version), default=None)
        checkpoint = None
        if base is not None:
            candidates = self.checkpoints[base]
            checkpoint = preferred if preferred in candidates else candidates[0]
        deltas: list[LogFile] = []
        following = 0 if base is None else base + 1
        while following <= version:
            delta = self._delta_at(following, version)
            if delta is None:
                raise DataError(
                    f"The log has a gap: commit {following} is missing, so version {version} cannot be rebuilt"
                    f"{self._nearest(version)}.",
                    table=self.table,
                    version=version,
                )
            deltas.append(delta)
            following = delta.last + 1
        return LogSegment(version, checkpoint, tuple(deltas))

    def _nearest(self, version: int) -> str:
        nearest = min(self.rebuildable, key=lambda item: abs(item - version))
        return f"; the nearest version that can is {nearest}"

    def _delta_at(self, first: int, limit: int) -> LogFile | None:
        usable = [item for item in self.compacted.get(first, ()) if item.last <= limit]
        return max(usable, key=lambda item: item.last, default=self.commits.get(first))


def _log_file(entry: LogEntry, first: int, last: int) -> LogFile:
    return LogFile(entry.name, first, last, entry.modified_ms)


def _complete(parts: Mapping[tuple[int, str], Mapping[int, LogFile]]) -> dict[int, list[Checkpoint]]:
    checkpoints: dict[int, list[Checkpoint]] = {}
    for (version, group), files in sorted(parts.items(), key=_preference):
        expected = int(group.split(" ")[1]) if group.startswith("parts ") else 1
        if len(files) == expected and sorted(files) == list(range(1, expected + 1)):
            names = tuple(files[number].name for number in sorted(files))
            modified = max(item.modified_ms for item in files.values())
            checkpoints.setdefault(version, []).append(Checkpoint(version, names, modified))
    return checkpoints


def _preference(item: tuple[tuple[int, str], object]) -> tuple[int, bool, bool, str]:
    # Of one version's checkpoints: the classic file, then parts, then those named by a UUID. All are equal in content.
    (version, group), _ = item
    return version, not group.endswith(".checkpoint.parquet"), not group.startswith("parts "), group
