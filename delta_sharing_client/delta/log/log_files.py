"""Lists and opens the files of a ``_delta_log`` directory, and selects those that rebuild a version.

See the Delta log protocol, "File Types" and "Last Checkpoint File".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol
from urllib.parse import quote

from delta_sharing_client.delta.paths import resolve
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.lazy import lazy

LOG_DIRECTORY = "_delta_log"


class LogEntry(NamedTuple):
    """A file of a log directory; ``modified_ms`` is in milliseconds since the epoch."""

    name: str
    size: int
    modified_ms: int


class LogDirectory(Protocol):
    """The directory ``_delta_log`` of a table."""

    def entries(self) -> list[LogEntry]:
        """Return the files directly in the directory; ``FileNotFoundError`` if it does not exist."""

    def open(self, path: str) -> BinaryIO:
        """Open a file by a path of the log: percent-encoded, relative to the directory or absolute.

        Raises ``OSError`` if it cannot be read (``FileNotFoundError`` if it is missing), ``DataError`` for a path
        that is not allowed in a log.
        """

    def expect(self, paths: Sequence[str]) -> None:
        """Announce which files will be opened next, in this order, so that a remote store can download them early."""


class LocalDirectory:
    """A ``LogDirectory`` in the local file system; its methods are described there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def entries(self) -> list[LogEntry]:
        try:
            return [_entry(entry) for entry in os.scandir(self.path)]
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from None

    def open(self, path: str) -> BinaryIO:
        return resolve(self.path, path).open("rb")

    def expect(self, paths: Sequence[str]) -> None:
        """Do nothing: local files need no preparation."""


def _entry(entry: os.DirEntry[str]) -> LogEntry:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        # The file was deleted after it was listed. If it is needed, opening it will report that.
        return LogEntry(entry.name, -1, 0)
    # A time that os.utime set from a float may be a few hundred nanoseconds below the intended millisecond.
    return LogEntry(entry.name, stat.st_size, (stat.st_mtime_ns + 1000) // 1_000_000)


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


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files to read for one version: a checkpoint, if any, then commits and compacted files, oldest first."""

    version: int
    checkpoint: Checkpoint | None
    deltas: tuple[LogFile, ...]


@dataclass(frozen=True)
class LogListing:
    """The files of a log directory at one point in time, by kind and version."""

    table: str
    commits: Mapping[int, LogFile]
    compacted: Mapping[int, Sequence[LogFile]]
    checkpoints: Mapping[int, Sequence[Checkpoint]]
    checksums: Mapping[int, str]
    directory: LogDirectory

    @classmethod
    def read(cls, directory: LogDirectory, table: str) -> LogListing:
        """List ``directory``; ``DataError`` if it does not exist, or has neither a commit nor a complete checkpoint."""
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
            if match := _COMMIT.match(name):
                version = int(match[1])
                commits[version] = _log_file(entry, version, version)
            elif not entry.size:
                continue  # left by a writer that was interrupted; the commits have the same content
            elif match := _COMPACTED.match(name):
                if int(match[1]) <= int(match[2]):
                    compacted.setdefault(int(match[1]), []).append(_log_file(entry, int(match[1]), int(match[2])))
            elif match := _CHECKPOINT.match(name):
                version = int(match["version"])
                group = f"parts {match['parts']}" if match["parts"] else name
                parts.setdefault((version, group), {})[int(match["part"] or 1)] = _log_file(entry, version, version)
            elif match := _CHECKSUM.match(name):
                checksums[int(match[1])] = name
        listing = cls(table, commits, compacted, _complete(parts), checksums, directory)
        if not commits and not listing.checkpoints:
            raise DataError(
                f"The directory '{LOG_DIRECTORY}' must hold at least one commit or checkpoint, found none.", table=table
            )
        return listing

    @property
    def latest(self) -> int:
        """The newest version of all commits, compacted files and complete checkpoints."""
        compacted = chain.from_iterable(self.compacted.values())
        return max((*self.commits, *self.checkpoints, *(item.last for item in compacted)))

    @lazy
    def rebuildable(self) -> tuple[int, ...]:
        """The versions that can be rebuilt from a checkpoint or from the first commit, oldest first."""
        versions = {-1, *self.checkpoints}  # -1 is the empty table before commit 0
        files = (*self.commits.values(), *chain.from_iterable(self.compacted.values()))
        for file in sorted(files, key=lambda file: file.last):
            if file.first - 1 in versions:
                versions.add(file.last)
        return tuple(sorted(versions - {-1}))

    @property
    def earliest(self) -> int:
        """The oldest version that can be rebuilt; ``DataError`` if there is none (no checkpoint and no commit 0)."""
        if not self.rebuildable:
            raise DataError(
                f"No version can be rebuilt: there is no checkpoint, and the commits start at {min(self.commits)} "
                "instead of 0.",
                table=self.table,
            )
        return self.rebuildable[0]

    def segment(self, version: int, preferred: Checkpoint | None = None) -> LogSegment:
        """Return the files that rebuild ``version``, from the newest usable checkpoint on.

        Among several checkpoints of the newest version, ``preferred`` is used. Raises ``UsageError`` if
        ``version`` does not exist (yet); ``DataError``, which names the nearest version that can be rebuilt, if
        ``version`` cannot be rebuilt any more or a commit is missing.
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
        return f"; the nearest version that can be rebuilt is {nearest}"

    def _delta_at(self, first: int, limit: int) -> LogFile | None:
        usable = [item for item in self.compacted.get(first, ()) if item.last <= limit]
        return max(usable, key=lambda item: item.last, default=self.commits.get(first))


def _log_file(entry: LogEntry, first: int, last: int) -> LogFile:
    return LogFile(entry.name, first, last, entry.modified_ms)


def _complete(parts: Mapping[tuple[int, str], Mapping[int, LogFile]]) -> dict[int, list[Checkpoint]]:
    checkpoints: dict[int, list[Checkpoint]] = {}
    for (version, group), files in sorted(parts.items(), key=_preference):
        expected = int(group.split(" ")[1]) if group.startswith("parts ") else 1
        numbers = range(1, expected + 1)
        if expected and all(number in files for number in numbers):
            names = tuple(files[number].name for number in numbers)
            modified = max(files[number].modified_ms for number in numbers)
            checkpoints.setdefault(version, []).append(Checkpoint(version, names, modified))
    return checkpoints


def _preference(item: tuple[tuple[int, str], object]) -> tuple[int, bool, bool, str]:
    # The order of a version's checkpoints: the classic file, then parts, then those with a UUID. All have the same
    # content.
    (version, group), _ = item
    return version, not group.endswith(".checkpoint.parquet"), not group.startswith("parts "), group


# === Last checkpoint: a hint; if it is wrong, stale, empty or damaged, the listing decides ===

LAST_CHECKPOINT = "_last_checkpoint"
_MAX_BYTES = 64 * 1024 * 1024


class LastCheckpointWarning(UserWarning):
    """A ``_last_checkpoint`` file was ignored, because it is damaged or does not match the log."""


def hinted_checkpoint(listing: LogListing) -> Checkpoint | None:
    """Return the checkpoint that ``_last_checkpoint`` names, ``None`` if there is no such file.

    If it is damaged or names a missing or incomplete checkpoint, warn with ``LastCheckpointWarning`` and return
    ``None``.
    """
    try:
        with listing.directory.open(LAST_CHECKPOINT) as stream:
            text = stream.read(_MAX_BYTES).decode("utf-8")
        return _find(listing, text)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = "the JSON nests too deep" if isinstance(error, RecursionError) else str(error)
        warnings.warn(
            f"'{LAST_CHECKPOINT}' of the table '{listing.table}' is ignored, and the log directory is used: {reason}.",
            LastCheckpointWarning,
            stacklevel=2,
        )
        return None


def canonical_json(text: str) -> str:
    """Return the canonical form of a JSON object, used for its checksum (protocol, "JSON checksum"); ``ValueError``
    if ``text`` is not JSON, not an object, or has a duplicate key."""
    document = _parse(text)
    document.pop("checksum", None)
    # Paths are unique and ASCII, so their order as strings is also their order in UTF-8.
    leaves = sorted(("+".join(path), leaf) for path, leaf in _leaves(document, ()))
    return ",".join(f"{path}={leaf}" for path, leaf in leaves)


def json_checksum(text: str) -> str:
    """Return the MD5 digest, in hexadecimal, of :func:`canonical_json`."""
    return hashlib.md5(canonical_json(text).encode(), usedforsecurity=False).hexdigest()


class _Number(str):
    # The text of a number in JSON is its canonical form, so it is never converted to a float.
    __slots__ = ()


def _find(listing: LogListing, text: str) -> Checkpoint | None:
    document = _parse(text)
    checksum = document.get("checksum")
    if checksum is not None and (not isinstance(checksum, str) or checksum.lower() != json_checksum(text)):
        raise ValueError("its checksum does not match its content")
    version = _whole_number(document, "version")
    parts = _whole_number(document, "parts") if document.get("parts") is not None else 1
    v2 = document.get("v2Checkpoint")
    name = v2.get("path") if isinstance(v2, dict) else None
    for checkpoint in listing.checkpoints.get(version, ()):
        if len(checkpoint.files) == parts and name in (None, checkpoint.files[0]):
            return checkpoint
    raise ValueError(f"it names a checkpoint of version {version} in {parts} part(s), which is not in the log")


def _parse(text: str) -> dict[str, object]:
    document = json.loads(text, object_pairs_hook=_unique, parse_int=_Number, parse_float=_Number)
    if not isinstance(document, dict):
        raise ValueError("it must be a JSON object")
    return document


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("it has a duplicate key")
    return document


def _whole_number(document: dict[str, object], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, _Number) or not value.isdigit() or len(value) > 20:
        raise ValueError(f"{key} must be a whole number, found {str(value)[:50]!r}")
    return int(value)


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, _quoted(key)))
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _leaves(item, (*path, str(position)))
    elif isinstance(value, _Number):
        yield path, str(value)
    elif isinstance(value, str):
        yield path, _quoted(value)
    else:
        yield path, json.dumps(value)


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="")}"'
