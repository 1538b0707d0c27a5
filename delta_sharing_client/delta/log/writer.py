"""A local Delta log rebuilt from a sharing answer, that any Delta reader can open (Delta log protocol,
"Requirements for Writers").

Two forms exist. A snapshot keeps its real version: version 0 is one commit, a later version is a checkpoint with its
commit. A change feed is one commit for each version, on a checkpoint of the version before the first that holds the
protocol and the metadata but no files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Union

import msgspec
from msgspec.structs import replace

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
)
from delta_sharing_client.delta.log.checkpoint_writer import last_checkpoint_text, write_checkpoint
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.commit_times import enablement_of
from delta_sharing_client.delta.log.last_checkpoint import FILE_NAME
from delta_sharing_client.delta.log.lines import action_line
from delta_sharing_client.delta.log.listing import LOG_DIRECTORY
from delta_sharing_client.delta.paths import encode_path, is_absolute, is_url
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import UsageError

LocalFiles = Mapping[str, Union[str, "os.PathLike[str]"]]
"""Where data lies now: an action's ``path``, or a deletion vector's ``pathOrInlineDv``, to a local path or a URI."""


def write_log(directory: str | os.PathLike[str], snapshot: Snapshot, *, local_files: LocalFiles | None = None) -> Path:
    """Write the log of a table that is ``snapshot``, at its version.

    Parameters
    ----------
    directory:
        The table's directory; created if need be. It must have no log entry of that version yet.
    snapshot:
        The table. What only a sharing server says of its files is left out.
    local_files:
        Where files lie now; a file that is not named keeps its path. Paths inside ``directory`` become relative.

    Returns
    -------
    The ``_delta_log`` directory.

    Raises
    ------
    UsageError
        A file is still a signed URL, which a log must not hold, or the log entry exists already.
    DataError
        The size of a file is not known.
    """
    root = Path(os.path.abspath(directory))
    log = _created(root)
    times = _Times(snapshot.protocol, snapshot.metadata)

    def actions() -> Iterator[Action]:
        yield from _head(snapshot)
        for item in snapshot.files:
            yield _relocated(item, root, local_files)

    _write_commit(log, snapshot.version, snapshot.timestamp_ms, actions(), times)
    if snapshot.version > 0:
        _write_checkpoint(log, snapshot.version, actions())
    return log


def write_changes_log(
    directory: str | os.PathLike[str],
    commits: Sequence[Commit],
    *,
    protocol: Protocol,
    metadata: Metadata,
    local_files: LocalFiles | None = None,
) -> Path:
    """Write the log of a change feed: one commit for each version from the first to the last of ``commits``.

    Parameters
    ----------
    directory, local_files:
        As for :func:`write_log`.
    commits:
        The versions that have changes, oldest first; versions between them get a commit without files.
    protocol, metadata:
        The table's at the first version; commits may hold later ones.

    Returns
    -------
    The ``_delta_log`` directory.

    Raises
    ------
    UsageError
        There is no commit, their versions do not grow, or as for :func:`write_log`.
    DataError
        The size of a file is not known.
    """
    versions = [commit.version for commit in commits]
    if not versions or any(later <= earlier for earlier, later in pairwise(versions)):
        raise UsageError(f"the commits of a change feed must be at least one, of growing versions, found {versions}")
    root = Path(os.path.abspath(directory))
    log = _created(root)
    first = versions[0]
    start = commits[0]
    protocol, metadata = start.protocol or protocol, start.metadata or metadata
    if first > 0:
        _write_checkpoint(log, first - 1, [protocol, metadata])
    by_version = {commit.version: commit for commit in commits}
    time: int | None = None
    for version in range(first, versions[-1] + 1):
        commit = by_version.get(version, Commit(version, None))
        protocol, metadata = commit.protocol or protocol, commit.metadata or metadata
        head: list[Action] = [protocol, metadata] if version == first else _table_changes(commit)
        files = (_relocated(item, root, local_files) for item in _file_actions(commit))
        # A version without changes has no time of its own: the one before it, so that times do not go back.
        time = commit.timestamp_ms if commit.timestamp_ms is not None else time
        _write_commit(log, version, time, _chained(head, files), _Times(protocol, metadata))
    return log


def append_commit(directory: str | os.PathLike[str], commit: Commit, *, protocol: Protocol, metadata: Metadata) -> None:
    """Add ``commit`` to the log in ``directory``, whose version before it must be there.

    Parameters
    ----------
    directory:
        The table's directory. Paths of the commit's actions are taken as they are.
    commit:
        What changes; its version must be free.
    protocol, metadata:
        The table's after the commit.

    Raises
    ------
    UsageError
        Another writer took the version.
    """
    actions: list[Action] = [*_table_changes(commit), *_file_actions(commit)]
    times = _Times(protocol, metadata)
    _write_commit(Path(directory) / LOG_DIRECTORY, commit.version, commit.timestamp_ms, actions, times)


def add_checkpoint(directory: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Write a checkpoint of ``snapshot``, a version that is in the log of ``directory`` and has none yet.

    ``snapshot.tombstones`` go into it: those of files that may still be on the disk.
    """
    actions: list[Action] = [*_head(snapshot), *snapshot.files, *snapshot.tombstones]
    _write_checkpoint(Path(directory) / LOG_DIRECTORY, snapshot.version, actions)


class _Times:
    """Whether commits of a table must carry their own time."""

    def __init__(self, protocol: Protocol, metadata: Metadata) -> None:
        self.in_commit = enablement_of(protocol, metadata, "") is not None


def _write_commit(log: Path, version: int, timestamp_ms: int | None, actions: Iterable[Action], times: _Times) -> None:
    info: dict[str, object] = {"operation": "DELTA SHARING"}
    if timestamp_ms is not None or times.in_commit:
        info["timestamp"] = timestamp_ms or 0
    if times.in_commit:
        info = {"inCommitTimestamp": timestamp_ms or 0, **info}

    path = log / f"{version:020}.json"
    with _Published(path) as temporary:
        with temporary.open("wb") as stream:
            stream.write(msgspec.json.encode({"commitInfo": info}) + b"\n")
            for action in actions:
                stream.write(action_line(action))
        if timestamp_ms is not None:
            os.utime(temporary, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))


def _write_checkpoint(log: Path, version: int, actions: Iterable[Action]) -> None:
    path = log / f"{version:020}.checkpoint.parquet"
    with _Published(path) as temporary:
        size, adds = write_checkpoint(temporary, actions)
    hint = last_checkpoint_text(version, size, adds, path.stat().st_size)
    (log / FILE_NAME).write_text(hint, encoding="utf-8")


class _Published:
    """A temporary file that takes its name when it is complete; a log entry is never overwritten."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._publish()
        except FileExistsError:
            raise UsageError(f"the log must not have {self._path.name} yet, but it has") from None
        finally:
            self._temporary.unlink(missing_ok=True)

    def _publish(self) -> None:
        try:
            os.link(self._temporary, self._path)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links cannot say "only if absent" and "complete" in one step.
            if self._path.exists():
                raise FileExistsError(self._path) from None
            self._temporary.rename(self._path)


def _created(root: Path) -> Path:
    log = root / LOG_DIRECTORY
    log.mkdir(parents=True, exist_ok=True)
    return log


def _head(snapshot: Snapshot) -> list[Action]:
    head: list[Action] = [snapshot.protocol, snapshot.metadata]
    head += snapshot.transactions.values()
    head += snapshot.domain_metadata.values()
    if snapshot.row_id_high_water_mark is not None:
        head.append(snapshot.row_id_high_water_mark)
    return head


def _table_changes(commit: Commit) -> list[Action]:
    changes: list[Action] = [item for item in (commit.protocol, commit.metadata) if item is not None]
    changes += commit.transactions
    changes += commit.domain_metadata
    return changes


def _file_actions(commit: Commit) -> list[FileAction]:
    return [*commit.removes, *commit.adds, *commit.cdcs]


def _chained(head: Iterable[Action], files: Iterable[Action]) -> Iterator[Action]:
    yield from head
    yield from files


def _relocated(action: FileAction, root: Path, local_files: LocalFiles | None) -> FileAction:
    path = _log_path(action.path, root, local_files, action)
    if isinstance(action, AddCdcFile):
        return replace(action, path=path)
    vector = action.deletion_vector
    return replace(action, path=path, deletion_vector=vector and _relocated_vector(vector, root, local_files, action))


def _relocated_vector(
    vector: DeletionVectorDescriptor, root: Path, local_files: LocalFiles | None, action: AddFile | RemoveFile
) -> DeletionVectorDescriptor:
    target = (local_files or {}).get(vector.path_or_inline_dv)
    if vector.storage_type == "i" or (target is None and not is_url(vector.path_or_inline_dv)):
        return vector
    if target is None:
        raise UsageError(_still_a_url("deletion vector", action))
    text = os.fspath(target)
    uri = text if is_absolute(text) and not text.startswith("/") else encode_path(os.path.abspath(root / text))
    return replace(vector, storage_type="p", path_or_inline_dv=uri)


def _log_path(path: str, root: Path, local_files: LocalFiles | None, action: FileAction) -> str:
    target = (local_files or {}).get(path)
    if target is None:
        if is_url(path):
            raise UsageError(_still_a_url("data file", action))
        return path
    text = os.fspath(target)
    if is_absolute(text) and not text.startswith("/"):
        return text
    full = Path(os.path.abspath(root / text))
    return encode_path(full.relative_to(root) if full.is_relative_to(root) else full)


def _still_a_url(what: str, action: FileAction) -> str:
    return (
        f"a log must not hold signed URLs, which expire and are secret: say in local_files where the {what} of file "
        f"{action.file_id or '(no id)'} lies"
    )
