"""Writes an Iceberg table of format version 3 in a directory, commit by commit, for the sample table of the demo.

Each commit has one manifest of data files and one of deletion vectors, which together list all live files. Rows keep
their ids.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file

from .iceberg_avro import avro_file, manifest_list_schema, manifest_schema

ROW_ID, LAST_UPDATED = "_row_id", "_last_updated_sequence_number"
_LINEAGE_IDS = {ROW_ID: 2147483540, LAST_UPDATED: 2147483539}
_POSITION_ID = 2147483645
_EXISTING, _ADDED, _DELETED = range(3)
_PUFFIN = b"PFA1"


@dataclasses.dataclass(eq=False)
class DataFile:
    """A data file: its rows, the positions of its deleted rows, and the fields of its manifest entry."""

    rows: pa.Table
    struct: dict[str, Any]
    sequence_number: int
    first_row_id: int | None = None
    vector: dict[str, Any] | None = None
    deleted: frozenset[int] = frozenset()

    def live_rows(self) -> pa.Table:
        """Return the rows that are not deleted, with their lineage."""
        assert self.first_row_id is not None, "it is committed"
        count = self.rows.num_rows
        derived = {
            ROW_ID: pa.array(range(self.first_row_id, self.first_row_id + count), pa.int64()),
            LAST_UPDATED: pa.array([self.sequence_number] * count, pa.int64()),
        }
        rows = self.rows
        for name, values in derived.items():
            if name not in rows.column_names:
                rows = rows.append_column(name, values)
        return rows.filter(pa.array([place not in self.deleted for place in range(count)], pa.bool_()))


class IcebergWriter:
    """A table in ``root`` with ``fields``, which have the JSON form of Iceberg's schemas. File names are the same in
    every run.

    ``partition`` is one field of a partition spec and its Avro type.
    """

    def __init__(
        self, root: Path, fields: Sequence[Mapping[str, Any]], partition: Mapping[str, Any], kind: Any, *, seed: int
    ) -> None:
        self._root = root
        self._random = random.Random(seed)
        self._partition = (partition["name"], partition["field-id"], kind)
        self._ids = {field["name"]: field["id"] for field in fields}
        self._files: list[DataFile] = []
        self._gone: list[DataFile] = []
        self._commits = 0
        for folder in ("data", "metadata"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        self._metadata: dict[str, Any] = {
            "format-version": 3,
            "table-uuid": str(self._name()),
            "location": root.as_uri(),
            "last-sequence-number": 0,
            "last-updated-ms": 0,
            "next-row-id": 0,
            "last-column-id": max(self._ids.values()),
            "schemas": [{"type": "struct", "schema-id": 0, "fields": list(fields)}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": [partition]}],
            "default-spec-id": 0,
            "last-partition-id": partition["field-id"],
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "current-snapshot-id": -1,
            "snapshots": [],
            "snapshot-log": [],
            "refs": {},
        }

    @property
    def files(self) -> Sequence[DataFile]:
        """The live files."""
        return tuple(self._files)

    @property
    def sequence_number(self) -> int:
        """The sequence number of the next commit."""
        return self._commits + 1

    def comment(self, text: str) -> None:
        """Set the table's comment."""
        self._metadata["properties"]["comment"] = text

    def rename(self, old: str, new: str) -> None:
        """Rename a column; existing files keep its old name."""
        schema = self._metadata["schemas"][-1]
        fields = [{**field, "name": new if field["name"] == old else field["name"]} for field in schema["fields"]]
        number = len(self._metadata["schemas"])
        self._metadata["schemas"].append({**schema, "schema-id": number, "fields": fields})
        self._metadata["current-schema-id"] = number
        self._ids[new] = self._ids.pop(old)

    def add(self, rows: pa.Table, value: object) -> None:
        """Add a data file for one partition value; ``rows`` may have the columns of row lineage."""
        path = self._root / "data" / f"{self._name()}.parquet"
        ids = {**self._ids, **_LINEAGE_IDS}
        fields = [field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) for field in rows.schema]
        pq.write_table(rows.cast(pa.schema(fields)), path)
        struct = self._struct(path, rows.num_rows, content=0, encoding="PARQUET", value=value)
        self._files.append(DataFile(rows, struct, self.sequence_number))

    def remove(self, file: DataFile) -> None:
        """Remove a data file."""
        self._files.remove(file)
        self._gone.append(file)

    def delete(self, deleted: Mapping[DataFile, Iterable[int]]) -> None:
        """Delete rows of files by position; a file's new deletion vector includes its earlier one."""
        path = self._root / "data" / f"{self._name()}.puffin"
        content, blobs = bytearray(_PUFFIN), []
        for file, positions in deleted.items():
            file.deleted = file.deleted.union(positions)
            # The version byte at the start of Delta's files is left out.
            blob = encode_file([DeletionVector.from_positions(sorted(file.deleted))], "vector")[0][1:]
            name = file.struct["file_path"]
            blobs.append(
                {
                    "type": "deletion-vector-v1",
                    "fields": [_POSITION_ID],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": len(content),
                    "length": len(blob),
                    "properties": {"referenced-data-file": name, "cardinality": str(len(file.deleted))},
                }
            )
            file.vector = {
                **self._struct(path, len(file.deleted), content=1, encoding="PUFFIN", value=None),
                "partition": file.struct["partition"],
                "referenced_data_file": name,
                "content_offset": len(content),
                "content_size_in_bytes": len(blob),
                "sequence_number": self.sequence_number,
            }
            content += blob
        footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
        content += _PUFFIN + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN
        path.write_bytes(content)
        for file in deleted:
            assert file.vector is not None
            file.vector["file_size_in_bytes"] = len(content)

    def commit(self, operation: str, time: datetime.datetime, tag: str | None = None) -> int:
        """Write a snapshot of the files, and return its id; ``operation`` is the one in the snapshot's summary."""
        number, first_row_id = self.sequence_number, self._metadata["next-row-id"]
        manifests = [self._manifest([self._entry(file, number) for file in [*self._files, *self._gone]], 0)]
        manifests[0]["first_row_id"] = first_row_id
        for file in self._files:
            if file.first_row_id is None:
                file.first_row_id = self._metadata["next-row-id"]
                self._metadata["next-row-id"] += file.struct["record_count"]
        vectors = [dict(file.vector) for file in self._files if file.vector is not None]
        if vectors:
            entries = [_stated(one, one.pop("sequence_number"), number) for one in vectors]
            manifests.append(self._manifest(entries, 1))
        snapshot_id = self._random.getrandbits(62)
        path = self._root / "metadata" / f"snap-{snapshot_id}.avro"
        path.write_bytes(
            avro_file(manifest_list_schema(), [{**one, "added_snapshot_id": snapshot_id} for one in manifests])
        )
        moment = int(time.timestamp() * 1000)
        rows = sum(file.struct["record_count"] - len(file.deleted) for file in self._files)
        parent = self._metadata["current-snapshot-id"]
        snapshot = {
            "snapshot-id": snapshot_id,
            **({} if parent == -1 else {"parent-snapshot-id": parent}),
            "sequence-number": number,
            "timestamp-ms": moment,
            "manifest-list": path.as_uri(),
            "summary": {
                "operation": operation,
                "total-data-files": str(len(self._files)),
                "total-records": str(rows),
                "total-files-size": str(sum(file.struct["file_size_in_bytes"] for file in self._files)),
            },
            "schema-id": self._metadata["current-schema-id"],
            "first-row-id": first_row_id,
            "added-rows": self._metadata["next-row-id"] - first_row_id,
        }
        self._metadata["snapshots"].append(snapshot)
        self._metadata["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": moment})
        self._metadata.update({"current-snapshot-id": snapshot_id, "last-sequence-number": number})
        self._metadata["last-updated-ms"] = moment
        self._metadata["refs"]["main"] = {"snapshot-id": snapshot_id, "type": "branch"}
        if tag is not None:
            self._metadata["refs"][tag] = {"snapshot-id": snapshot_id, "type": "tag"}
        self._commits, self._gone = number, []
        (self._root / "metadata" / f"v{number}.metadata.json").write_text(json.dumps(self._metadata))
        return snapshot_id

    def _name(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def _struct(self, path: Path, records: int, *, content: int, encoding: str, value: object) -> dict[str, Any]:
        return {
            "content": content,
            "file_path": path.as_uri(),
            "file_format": encoding,
            "partition": {self._partition[0]: value},
            "record_count": records,
            "file_size_in_bytes": path.stat().st_size if path.exists() else 0,
        }

    def _entry(self, file: DataFile, number: int) -> dict[str, Any]:
        entry = _stated(file.struct, file.sequence_number, number)
        if file.first_row_id is not None:
            entry["data_file"] = {**file.struct, "first_row_id": file.first_row_id}
        return {**entry, "status": _DELETED} if any(file is one for one in self._gone) else entry

    def _manifest(self, entries: Sequence[dict[str, Any]], content: int) -> dict[str, Any]:
        name, field_id, kind = self._partition
        properties = {
            "schema": json.dumps(self._metadata["schemas"][-1]),
            "partition-spec": json.dumps(self._metadata["partition-specs"][0]["fields"]),
            "partition-spec-id": "0",
            "format-version": "3",
            "content": ("data", "deletes")[content],
        }
        data = avro_file(manifest_schema([(name, field_id, kind)]), entries, properties)
        path = self._root / "metadata" / f"{self._name()}-m0.avro"
        path.write_bytes(data)
        by_status = [
            [one["data_file"]["record_count"] for one in entries if one["status"] == status] for status in range(3)
        ]
        return {
            "manifest_path": path.as_uri(),
            "manifest_length": len(data),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": self.sequence_number,
            "min_sequence_number": min(one["sequence_number"] or self.sequence_number for one in entries),
            "added_files_count": len(by_status[_ADDED]),
            "existing_files_count": len(by_status[_EXISTING]),
            "deleted_files_count": len(by_status[_DELETED]),
            "added_rows_count": sum(by_status[_ADDED]),
            "existing_rows_count": sum(by_status[_EXISTING]),
            "deleted_rows_count": sum(by_status[_DELETED]),
        }


def _stated(struct: Mapping[str, Any], sequence_number: int, commit: int) -> dict[str, Any]:
    """Return a file's entry in the manifest of a commit; an entry that the commit adds inherits the commit's sequence
    number."""
    number = None if sequence_number == commit else sequence_number
    return {
        "status": _ADDED if number is None else _EXISTING,
        "snapshot_id": None,
        "sequence_number": number,
        "file_sequence_number": number,
        "data_file": dict(struct),
    }
