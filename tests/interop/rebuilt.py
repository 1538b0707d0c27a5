"""Local logs written from answers in the delta format, over the files that lie on this machine."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
from urllib.parse import quote

import delta_sharing_client as ds
from delta_sharing_client.delta.actions import Action, AddCdcFile, VersionedMetadata, VersionedProtocol
from delta_sharing_client.delta.log.commit import Commit
from delta_sharing_client.delta.log.table import DeltaLog
from delta_sharing_client.delta.log.writer import write_changes_log
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.planning import query_snapshot
from delta_sharing_client.protocol.query import ChangesQuery, query_changes
from delta_sharing_client.scan.request import ScanRequest
from tests.interop.served_tables import ServedTables


def rebuild_snapshot(served: ServedTables, name: str, directory: pathlib.Path) -> Snapshot:
    """Write the log of the latest snapshot; its files stay where they are."""
    table = served.table(name)
    read = ScanRequest(response_format=ds.ResponseFormat.DELTA)
    snapshot, _ = query_snapshot(table.rest, table.name, read, ds.ReadOptions())
    vectors = [item.deletion_vector for item in snapshot.files if item.deletion_vector is not None]
    urls = [item.path for item in snapshot.files] + [v.path_or_inline_dv for v in vectors if v.storage_type == "p"]
    DeltaLog.write(directory, snapshot, local_files={url: _uri(served.local_file(name, url)) for url in urls})
    return snapshot


def rebuild_feed(served: ServedTables, name: str, start: int, end: int, directory: pathlib.Path) -> int:
    """Write the log of a change feed and return its first version.

    Data files are copied next to the log: ``deltalake`` reads changes from nowhere else.
    """
    table = served.table(name)
    query = ChangesQuery(starting_version=start, ending_version=end, include_historical_metadata=True)
    answer = query_changes(table.rest, table.name, query, response_format=ds.ResponseFormat.DELTA)
    by_version: dict[int, list[Action]] = {}
    times: dict[int, int | None] = {}
    local: dict[str, str] = {}
    directory.mkdir(parents=True, exist_ok=True)
    for action in answer.actions:
        if isinstance(action, VersionedMetadata):
            by_version.setdefault(action.version, []).append(action.metadata)
        elif isinstance(action, VersionedProtocol):
            by_version.setdefault(action.version, []).append(action.protocol)
        else:
            by_version.setdefault(action.shared_version, []).append(action)
            times[action.shared_version] = action.shared_timestamp
            path = served.local_file(name, action.path)
            local[action.path] = f"{hashlib.sha256(str(path).encode()).hexdigest()}.parquet"
            shutil.copy(path, directory / local[action.path])
            vector = None if isinstance(action, AddCdcFile) else action.deletion_vector
            if vector is not None and vector.storage_type == "p":
                local[vector.path_or_inline_dv] = _uri(served.local_file(name, vector.path_or_inline_dv))
    commits = [
        Commit.from_actions(version, times.get(version), actions) for version, actions in sorted(by_version.items())
    ]
    write_changes_log(directory, commits, protocol=answer.protocol, metadata=answer.metadata, local_files=local)
    return commits[0].version


def _uri(path: pathlib.Path) -> str:
    return f"file://{quote(str(path))}"
