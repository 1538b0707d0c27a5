"""Log directories written line by line, so that a test can change a single detail."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LogListing

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]},
    separators=(",", ":"),
)
PROTOCOL: dict[str, Any] = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(schema: str = SCHEMA, **fields: Any) -> dict[str, Any]:
    base = {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    return {"metaData": {**base, "partitionColumns": [], "configuration": {}, **fields}}


def add(path: str, **fields: Any) -> dict[str, Any]:
    base = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1, "dataChange": True}
    return {"add": {**base, **fields}}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "dataChange": True, "deletionTimestamp": 1, **fields}}


def vector(name: str, offset: int = 1) -> dict[str, Any]:
    return {"storageType": "u", "pathOrInlineDv": name, "offset": offset, "sizeInBytes": 36, "cardinality": 2}


class LogBuilder:
    """Writes files into ``<root>/_delta_log``. ``start`` writes version 0 with a protocol and metadata."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "_delta_log"
        self.directory.mkdir(parents=True)

    def start(self, *actions: dict[str, Any], **table: Any) -> LogBuilder:
        return self.commit(0, table.pop("protocol", PROTOCOL), metadata(**table), *actions)

    def commit(self, version: int, *actions: dict[str, Any], mtime_ms: int | None = None) -> LogBuilder:
        path = self.write(f"{version:020}.json", *actions)
        if mtime_ms is not None:
            os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
        return self

    def write(self, name: str, *actions: dict[str, Any]) -> Path:
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
        return path


def earliest_version(log: DeltaLog) -> int:
    """Return the oldest version that can be rebuilt."""
    return LogListing.read(log.directory, "table").earliest
