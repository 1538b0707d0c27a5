"""Write Delta logs for local data files from responses in delta format."""

from __future__ import annotations

import dataclasses
import hashlib
import pathlib
import shutil
from urllib.parse import quote

from msgspec.structs import replace

import delta_sharing_client as ds
from delta_sharing_client.delta.actions import Action, AddCdcFile, FileAction, VersionedMetadata, VersionedProtocol
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.writer import append_commit, write_log
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.protocol.query import ChangesQuery, query_table
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.planning import plan_copy
from tests.interop.served_tables import ServedTables


def rebuild_snapshot(served: ServedTables, name: str, directory: pathlib.Path) -> Snapshot:
    """Write a log of the latest snapshot that refers to the data files where they are."""
    table = served.table(name)
    read = ScanRequest(response_format=ds.ResponseFormat.DELTA)
    snapshot, _, _ = plan_copy(source_of(table.rest, table.name, table.options), read)
    files = [_placed(served, name, item, _uri(served.local_file(name, item.path))) for item in snapshot.files]
    write_log(directory, dataclasses.replace(snapshot, files=files))
    return snapshot


def rebuild_feed(served: ServedTables, name: str, start: int, end: int, directory: pathlib.Path) -> int:
    """Write a log of a change feed and return the first version of the feed.

    Data files are copied next to the log, because ``deltalake`` reads changes only from there.
    """
    table = served.table(name)
    query = ChangesQuery(starting_version=start, ending_version=end)
    answer = query_table(table.rest, table.name, query, response_format=ds.ResponseFormat.DELTA)
    by_version: dict[int, list[Action]] = {}
    times: dict[int, int | None] = {}
    directory.mkdir(parents=True, exist_ok=True)
    for action in answer.actions:
        if isinstance(action, VersionedMetadata):
            by_version.setdefault(action.version, []).append(action.metadata)
        elif isinstance(action, VersionedProtocol):
            by_version.setdefault(action.version, []).append(action.protocol)
        else:
            path = served.local_file(name, action.action.path)
            local = f"{hashlib.sha256(str(path).encode()).hexdigest()}.parquet"
            shutil.copy(path, directory / local)
            by_version.setdefault(action.version, []).append(_placed(served, name, action.action, local))
            times[action.version] = action.timestamp
    commits = {
        version: Commit.from_actions(version, times.get(version), actions) for version, actions in by_version.items()
    }
    _write_feed(directory, commits, Snapshot.from_actions(0, [answer.head.protocol, answer.head.metadata]))
    return min(commits)


def _write_feed(directory: pathlib.Path, commits: dict[int, Commit], base: Snapshot) -> None:
    """Write one commit for each version; if the feed starts after version 0, an empty version precedes it."""
    first = min(commits)
    protocol, metadata = commits[first].protocol or base.protocol, commits[first].metadata or base.metadata
    if first > 0:
        write_log(directory, dataclasses.replace(base, version=first - 1, protocol=protocol, metadata=metadata))
    time = None
    for version in range(first, max(commits) + 1):
        commit = commits.get(version, Commit(version, None))
        # A version without changes has no timestamp; it gets the previous one, so that timestamps never decrease.
        time = commit.timestamp_ms if commit.timestamp_ms is not None else time
        protocol, metadata = commit.protocol or protocol, commit.metadata or metadata
        head = {"protocol": protocol, "metadata": metadata} if version == 0 else {}
        placed = dataclasses.replace(commit, timestamp_ms=time, **head)
        (directory / "_delta_log").mkdir(exist_ok=True)
        append_commit(directory, placed, protocol=protocol, metadata=metadata)


def _placed(served: ServedTables, name: str, action: FileAction, path: str) -> FileAction:
    """Return ``action`` with ``path`` as its path, and with a local path for its deletion vector."""
    vector = None if isinstance(action, AddCdcFile) else action.deletion_vector
    if vector is None:
        return replace(action, path=path)
    if vector.storage_type == "p":
        vector = replace(vector, path_or_inline_dv=_uri(served.local_file(name, vector.path_or_inline_dv)))
    return replace(action, path=path, deletion_vector=vector)


def _uri(path: pathlib.Path) -> str:
    return f"file://{quote(str(path))}"
