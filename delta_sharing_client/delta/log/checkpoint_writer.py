"""A classic checkpoint of a snapshot, with its ``_last_checkpoint`` (Delta log protocol, "Checkpoint Schema")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.actions import Action
from delta_sharing_client.delta.log.last_checkpoint import json_checksum
from delta_sharing_client.delta.log.lines import action_fields, action_name

ROWS_PER_GROUP = 50_000

_TEXTS = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_SCHEMA = pa.schema(
    [
        pa.field(
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _NAMES),
                    ("writerFeatures", _NAMES),
                ]
            ),
        ),
        pa.field(
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _NAMES),
                    ("createdTime", pa.int64()),
                    ("configuration", _TEXTS),
                ]
            ),
        ),
        pa.field("txn", pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])),
        pa.field(
            "domainMetadata",
            pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
        ),
        pa.field("rowIdHighWaterMark", pa.struct([("highWaterMark", pa.int64())])),
        pa.field(
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                    ("tags", _TEXTS),
                    ("deletionVector", _VECTOR),
                    ("baseRowId", pa.int64()),
                    ("defaultRowCommitVersion", pa.int64()),
                    ("clusteringProvider", pa.string()),
                ]
            ),
        ),
        pa.field(
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("tags", _TEXTS),
                    ("deletionVector", _VECTOR),
                    ("baseRowId", pa.int64()),
                    ("defaultRowCommitVersion", pa.int64()),
                ]
            ),
        ),
    ]
)


def write_checkpoint(path: Path, actions: Iterable[Action]) -> tuple[int, int]:
    """Write ``actions``, already reconciled, as a classic checkpoint.

    Returns
    -------
    The number of actions, and that of ``add`` actions among them.
    """
    count = adds = 0
    rows = _rows(actions)
    with pq.ParquetWriter(path, _SCHEMA, compression="snappy") as writer:
        while group := list(islice(rows, ROWS_PER_GROUP)):
            count += len(group)
            adds += sum("add" in row for row in group)
            writer.write_table(pa.Table.from_pylist(group, schema=_SCHEMA))
    return count, adds


def last_checkpoint_text(version: int, size: int, adds: int, size_in_bytes: int) -> str:
    """Return the content of ``_last_checkpoint`` for a checkpoint in one file, with its checksum."""
    fields: dict[str, Any] = {
        "version": version,
        "size": size,
        "sizeInBytes": size_in_bytes,
        "numOfAddFiles": adds,
    }
    fields["checksum"] = json_checksum(msgspec.json.encode(fields).decode())
    return msgspec.json.encode(fields).decode()


def _rows(actions: Iterable[Action]) -> Iterator[dict[str, Any]]:
    for action in actions:
        yield {action_name(action): _arrow_ready(action_fields(action))}


def _arrow_ready(fields: dict[str, Any]) -> dict[str, Any]:
    # Arrow takes maps as lists of pairs.
    ready = dict(fields)
    for name in ("partitionValues", "tags", "configuration"):
        if isinstance(ready.get(name), dict):
            ready[name] = list(ready[name].items())
    if isinstance(ready.get("format"), dict):
        ready["format"] = {**ready["format"], "options": list(ready["format"]["options"].items())}
    return ready
