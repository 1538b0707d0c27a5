"""Write tables file by file and action by action, also unusual ones: with partition values as text, or files of a
different schema."""

from __future__ import annotations

import json
import os
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.delta.schema import from_arrow_schema, schema_to_json
from tests.vectors import encode_inline, poisoned

FIRST_COMMIT_MS = 1_700_000_000_000
COMMIT_GAP_MS = 60_000
Action = dict[str, Any]


class HandMadeTable:
    """A table in ``root``; every method that commits writes the next version."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.version = -1
        self._files = 0
        self._shown: set[str] = set()
        (root / "_delta_log").mkdir(parents=True)

    def create(
        self,
        schema: pa.Schema | str,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        features: Sequence[str] = (),
    ) -> HandMadeTable:
        """Commit protocol and metadata; ``schema`` is an Arrow schema or a schemaString."""
        protocol: Action = {"minReaderVersion": 1, "minWriterVersion": 4}
        if features:
            protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
            protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
        self.commit({"protocol": protocol}, self.metadata(schema, partition_by, properties))
        return self

    def metadata(
        self, schema: pa.Schema | str, partition_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> Action:
        """Return a metadata action."""
        text = schema if isinstance(schema, str) else schema_to_json(from_arrow_schema(schema))
        return {
            "metaData": {
                "id": str(uuid.uuid5(uuid.NAMESPACE_URL, self.root.name)),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": text,
                "partitionColumns": list(partition_by),
                "configuration": dict(properties or {}),
                "createdTime": FIRST_COMMIT_MS,
            }
        }

    def file(
        self,
        rows: pa.Table,
        partition: Mapping[str, str | None] | None = None,
        removed: Sequence[int] = (),
        write: Callable[..., object] = pq.write_table,
        **parquet: Any,
    ) -> Action:
        """Write ``rows`` and return their ``add`` action; ``parquet`` has options of ``pyarrow.parquet.write_table``.

        ``write`` is called in place of that function. A deletion vector removes the rows ``removed``, whose values no
        read may evaluate.
        """
        self._files += 1
        path = self.root / f"part-{self._files:05d}.parquet"
        write(poisoned(rows, removed), path, **parquet)
        vector = encode_inline(DeletionVector.from_positions(removed))
        return {
            "add": {
                **({"deletionVector": msgspec.to_builtins(vector)} if removed else {}),
                "path": path.name,
                "partitionValues": dict(partition or {}),
                "size": path.stat().st_size,
                "modificationTime": FIRST_COMMIT_MS,
                "dataChange": True,
                "stats": json.dumps({"numRecords": rows.num_rows}),
            }
        }

    def without(self, added: Action, positions: Sequence[int]) -> Action:
        """Return the ``add`` action of a file that is already in the table, with a deletion vector for
        ``positions``."""
        assert added["add"]["path"] in self._shown, "write rows that no version shows with 'removed'"
        vector = encode_inline(DeletionVector.from_positions(positions))
        return {"add": added["add"] | {"deletionVector": msgspec.to_builtins(vector)}}

    def removal(self, added: Action) -> Action:
        """Return the ``remove`` action for the file of an ``add`` action."""
        kept = ("path", "partitionValues", "size", "deletionVector")
        gone = {key: added["add"][key] for key in kept if key in added["add"]}
        stamp = FIRST_COMMIT_MS + (self.version + 1) * COMMIT_GAP_MS
        return {"remove": gone | {"deletionTimestamp": stamp, "dataChange": True, "extendedFileMetadata": True}}

    def commit(self, *actions: Action, operation: str = "WRITE") -> int:
        """Write the next commit and return its version."""
        adds = [action["add"] for action in actions if "add" in action]
        self._shown |= {add["path"] for add in adds if "deletionVector" not in add}
        self.version += 1
        stamp = FIRST_COMMIT_MS + self.version * COMMIT_GAP_MS
        lines = [{"commitInfo": {"timestamp": stamp, "operation": operation}}, *actions]
        path = self.root / "_delta_log" / f"{self.version:020d}.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        os.utime(path, (stamp / 1000, stamp / 1000))
        return self.version
