"""Writes a local Delta log for any Delta reader (Delta log protocol, "Requirements for Writers").

A snapshot is written at its own version: version 0 as a commit, a later version as a commit with a checkpoint. Commits
and checkpoints are added to the log one by one. A file gets its final name only when it is complete.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.actions import Action, AddCdcFile, AddFile, Metadata, Protocol, RemoveFile
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.log.commit import Commit, enablement_of
from delta_sharing_client.delta.log.log_files import LAST_CHECKPOINT, LOG_DIRECTORY, json_checksum
from delta_sharing_client.delta.log.log_lines import ACTION_NAMES, action_fields, action_line
from delta_sharing_client.delta.paths import is_url
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import UsageError

UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
"""Matches the names of the temporary files that an interrupted write leaves behind."""


def write_log(directory: str | os.PathLike[str], snapshot: Snapshot) -> Path:
    """Write the log of ``snapshot``, at its version, and return the ``_delta_log`` directory.

    ``directory`` is the table's directory; it is created if necessary, and must not have a log entry of that version.
    Paths of files are not changed. Raises ``UsageError`` if the path of a file is a signed URL, which a log must not
    contain, or if the log entry exists; ``DataError`` if the size of a file is unknown.
    """
    log = Path(directory) / LOG_DIRECTORY
    log.mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(snapshot.files):
        vector = item.deletion_vector
        if is_url(item.path) or (vector is not None and is_url(vector.path_or_inline_dv)):
            raise UsageError(
                "A log must not hold signed URLs, which expire and are secret, but the path of file number "
                f"{number + 1} or of its deletion vector is one: copy the files, and use the paths of the copies."
            )
    actions = [*_head(snapshot), *_with_all_partitions(snapshot.files, snapshot.metadata)]
    in_commit = _carries_times(snapshot.protocol, snapshot.metadata)
    _write_commit(log, snapshot.version, snapshot.timestamp_ms, actions, in_commit)
    if snapshot.version > 0:
        _write_checkpoint(log, snapshot.version, actions)
    return log


def append_commit(directory: str | os.PathLike[str], commit: Commit, *, protocol: Protocol, metadata: Metadata) -> None:
    """Add ``commit`` to the log in ``directory``, which must have the preceding version; paths are not changed.

    ``protocol`` and ``metadata`` are the table's after the commit. Raises ``UsageError`` if the log already has this
    version.
    """
    actions: list[Action] = [item for item in (commit.protocol, commit.metadata) if item is not None]
    actions += [*commit.transactions, *commit.domain_metadata]
    actions += _with_all_partitions([*commit.removes, *commit.adds, *commit.cdcs], metadata)
    log = Path(directory) / LOG_DIRECTORY
    _write_commit(log, commit.version, commit.timestamp_ms, actions, _carries_times(protocol, metadata))


def add_checkpoint(directory: str | os.PathLike[str], snapshot: Snapshot) -> None:
    """Write a checkpoint of ``snapshot``, whose version is in the log of ``directory`` but has no checkpoint yet.

    It includes ``snapshot.tombstones``, which must be those of all removed files that may still be on disk.
    """
    files = _with_all_partitions([*snapshot.files, *snapshot.tombstones], snapshot.metadata)
    actions: list[Action] = [*_head(snapshot), *files]
    _write_checkpoint(Path(directory) / LOG_DIRECTORY, snapshot.version, actions)


def _with_all_partitions(files: Iterable[AddFile | RemoveFile | AddCdcFile], metadata: Metadata) -> Iterator[Action]:
    """Yield ``files`` with null for missing partition values, because some readers require every partition column."""
    keys: list[str] = []
    if metadata.partition_columns:
        schema, mode = parse_schema(metadata.schema_string), mapping_mode(metadata)
        fields = (schema.find(name) for name in metadata.partition_columns)
        keys = [mode.stored_name(field) for field in fields if field is not None]
    for file in files:
        values = file.partition_values
        if values is None or len(values) >= len(keys):
            yield file
        else:
            yield msgspec.structs.replace(file, partition_values={**dict.fromkeys(keys), **values})


def _carries_times(protocol: Protocol, metadata: Metadata) -> bool:
    return enablement_of(protocol, metadata, "") is not None


def _write_commit(
    log: Path, version: int, timestamp_ms: int | None, actions: Iterable[Action], in_commit: bool
) -> None:
    info: dict[str, object] = {"operation": "DELTA SHARING"}
    if timestamp_ms is not None or in_commit:
        info["timestamp"] = timestamp_ms or 0
    if in_commit:
        info = {"inCommitTimestamp": timestamp_ms or 0, **info}
    path = log / f"{version:020}.json"
    with _published(path) as temporary:
        with temporary.open("wb") as stream:
            stream.write(msgspec.json.encode({"commitInfo": info}) + b"\n")
            for action in actions:
                stream.write(action_line(action))
        if timestamp_ms is not None:
            os.utime(temporary, ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))


def _write_checkpoint(log: Path, version: int, actions: Iterable[Action]) -> None:
    path = log / f"{version:020}.checkpoint.parquet"
    with _published(path) as temporary:
        size, adds = write_checkpoint(temporary, actions)
    hint = {"version": version, "size": size, "sizeInBytes": path.stat().st_size, "numOfAddFiles": adds}
    checksum = json_checksum(msgspec.json.encode(hint).decode())
    with _published(log / LAST_CHECKPOINT, replace=True) as temporary:
        temporary.write_bytes(msgspec.json.encode({**hint, "checksum": checksum}))


def _head(snapshot: Snapshot) -> list[Action]:
    head: list[Action] = [snapshot.protocol, snapshot.metadata]
    head += snapshot.transactions.values()
    head += snapshot.domain_metadata.values()
    if snapshot.row_id_high_water_mark is not None:
        head.append(snapshot.row_id_high_water_mark)
    return head


# === A classic checkpoint (Delta log protocol, "Checkpoint Schema") ===

ROWS_PER_GROUP = 50_000

_TEXTS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
_FILE = {
    "path": pa.string(),
    "partitionValues": _TEXTS,
    "size": pa.int64(),
    "dataChange": pa.bool_(),
    "tags": _TEXTS,
    "deletionVector": pa.struct(
        {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
    ),
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
_ACTIONS = {
    "protocol": {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": _NAMES,
        "writerFeatures": _NAMES,
    },
    "metaData": {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
        "schemaString": pa.string(),
        "partitionColumns": _NAMES,
        "createdTime": pa.int64(),
        "configuration": _TEXTS,
    },
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "domainMetadata": {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
    "rowIdHighWaterMark": {"highWaterMark": pa.int64()},
    "add": {**_FILE, "modificationTime": pa.int64(), "stats": pa.string(), "clusteringProvider": pa.string()},
    "remove": {**_FILE, "deletionTimestamp": pa.int64(), "extendedFileMetadata": pa.bool_()},
}
_SCHEMA = pa.schema({name: pa.struct(fields) for name, fields in _ACTIONS.items()})


def write_checkpoint(path: Path, actions: Iterable[Action]) -> tuple[int, int]:
    """Write reconciled ``actions`` as a classic checkpoint; return the number of actions, and of ``add`` actions."""
    count = adds = 0
    rows = ({ACTION_NAMES[type(action)]: _arrow_ready(action_fields(action))} for action in actions)
    with pq.ParquetWriter(path, _SCHEMA, compression="snappy") as writer:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            count += len(group)
            adds += sum("add" in row for row in group)
            writer.write_table(pa.Table.from_pylist(group, schema=_SCHEMA))
    return count, adds


def _arrow_ready(fields: dict[str, Any]) -> dict[str, Any]:
    # Arrow accepts maps as lists of pairs.
    ready = dict(fields)
    for name in ("partitionValues", "tags", "configuration", "options"):
        if isinstance(ready.get(name), dict):
            ready[name] = list(ready[name].items())
    if isinstance(ready.get("format"), dict):
        ready["format"] = _arrow_ready(ready["format"])
    return ready


# === Files ===


@contextmanager
def _published(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary path whose file is renamed to ``path`` when it is complete and on disk.

    A log entry is never overwritten.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield temporary
        with temporary.open("r+b") as stream:
            os.fsync(stream.fileno())
        try:
            os.replace(temporary, path) if replace else _name_new(temporary, path)
        except FileExistsError:
            raise UsageError(f"The log already has the file '{path.name}'.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _name_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        # A file system without hard links cannot give a complete file a name only if the name is free, so the name is
        # checked first.
        if isinstance(error, FileExistsError) or path.exists():
            raise FileExistsError(path) from None
        temporary.rename(path)
