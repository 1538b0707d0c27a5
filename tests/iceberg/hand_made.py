"""Write Iceberg tables that no Python library can write: of any format version, with any fields, also contradictory
ones.

Files are written according to the specification only (Iceberg table spec; Apache Avro, "Object Container Files"),
and share no code with the reader.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyroaring

from mock_server.iceberg_avro import MANIFEST_LIST_SCHEMA, avro_file, manifest_schema
from tests.versions import parquet_settings

# --- data ---

FIELD_ID = b"PARQUET:field_id"


def with_ids(table: pa.Table, ids: Mapping[str, int]) -> pa.Table:
    """Return ``table`` with field ids, as in Iceberg's Parquet files; ``ids`` has the id of each (dotted) column
    name."""
    return table.cast(pa.schema([_with_id(field, field.name, ids) for field in table.schema]))


def _with_id(field: pa.Field, path: str, ids: Mapping[str, int]) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_with_id(kind.field(i), f"{path}.{kind.field(i).name}", ids) for i in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_with_id(kind.value_field, f"{path}.element", ids))
    metadata = {FIELD_ID: str(ids[path]).encode()} if path in ids else None
    return pa.field(field.name, kind, field.nullable, metadata)


class HandMade:
    """A table in ``root`` that is written file by file. ``metadata`` is the JSON that a catalog returns for it."""

    def __init__(self, root: Path, columns: Sequence[Mapping[str, Any]], *, version: int = 2, **others: Any) -> None:
        self.root = root
        (root / "data").mkdir(parents=True)
        (root / "metadata").mkdir()
        self.location = f"file://{root}"
        self.ids = dict(_ids_of(columns))
        self.count = 0
        schema = {"type": "struct", "schema-id": 0, "fields": list(columns)}
        self.metadata: dict[str, Any] = {
            "format-version": version,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": self.location,
            "last-sequence-number": 0,
            "last-updated-ms": 1_700_000_000_000,
            "last-column-id": 100,
            "schemas": [schema],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "properties": {},
            "current-snapshot-id": -1,
            "snapshots": [],
            "snapshot-log": [],
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "refs": {},
            **others,
        }

    def path(self, kind: str, ending: str) -> Path:
        self.count += 1
        return self.root / kind / f"{self.count:05d}{ending}"

    def data_file(
        self,
        rows: pa.Table,
        *,
        ids: Mapping[str, int] | None = None,
        row_group_size: int | None = None,
        write: Callable[..., object] = pq.write_table,
        **fields: Any,
    ) -> dict[str, Any]:
        """Write a data file; return its ``data_file`` struct, in which ``fields`` replace the usual values.

        ``write`` is called in place of ``pyarrow.parquet.write_table``.
        """
        path = self.path("data", ".parquet")
        checksums = parquet_settings(write_page_checksum=True)
        rows_with_ids = with_ids(rows, self.ids if ids is None else ids)
        write(rows_with_ids, path, row_group_size=row_group_size, **checksums)
        return self._file(path, rows.num_rows, **fields)

    def _file(self, path: Path, records: int, **fields: Any) -> dict[str, Any]:
        return {
            "content": 0,
            "file_path": f"file://{path}",
            "file_format": "PARQUET",
            "partition": {},
            "record_count": records,
            "file_size_in_bytes": path.stat().st_size,
            **fields,
        }

    def position_deletes(self, deleted: Sequence[tuple[str, int]], **fields: Any) -> dict[str, Any]:
        """Write a position delete file for pairs of a data file and a position."""
        path = self.path("data", "-deletes.parquet")
        rows = pa.table(
            {
                "file_path": pa.array([one for one, _ in deleted], pa.string()),
                "pos": pa.array([at for _, at in deleted]),
            }
        )
        pq.write_table(with_ids(rows, {"file_path": 2147483546, "pos": 2147483545}), path)
        return self._file(path, rows.num_rows, content=1, **fields)

    def equality_deletes(self, rows: pa.Table, names: Sequence[str], **fields: Any) -> dict[str, Any]:
        """Write an equality delete file that compares the columns ``names``."""
        path = self.path("data", "-deletes.parquet")
        ids = fields.pop("ids", self.ids)
        pq.write_table(with_ids(rows, ids), path)
        return self._file(path, rows.num_rows, content=2, equality_ids=[ids[name] for name in names], **fields)

    def puffin(self, vectors: Mapping[str, Sequence[int]], **fields: Any) -> list[dict[str, Any]]:
        """Write a Puffin file with a deletion vector for each data file."""
        path = self.path("data", "-deletes.puffin")
        out, blobs, places = bytearray(b"PFA1"), [], []
        for name, positions in vectors.items():
            blob = deletion_vector(positions)
            places.append((name, len(out), len(blob), len(set(positions))))
            blobs.append(
                {
                    "type": "deletion-vector-v1",
                    "fields": [2147483645],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": len(out),
                    "length": len(blob),
                    "properties": {"referenced-data-file": name, "cardinality": str(len(set(positions)))},
                }
            )
            out += blob
        footer = json.dumps({"blobs": blobs, "properties": {}}).encode()
        out += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
        path.write_bytes(out)
        return [
            self._file(
                path,
                cardinality,
                content=1,
                file_format="PUFFIN",
                referenced_data_file=name,
                content_offset=offset,
                content_size_in_bytes=size,
                **fields,
            )
            for name, offset, size, cardinality in places
        ]

    def manifest(
        self,
        files: Sequence[Mapping[str, Any]],
        *,
        content: int = 0,
        spec_id: int = 0,
        partition: Sequence[tuple[str, int, Any]] = (),
        codec: str = "deflate",
        **fields: Any,
    ) -> dict[str, Any]:
        """Write a manifest of ``files``; return its entry for the manifest list, in which ``fields`` replace the usual
        values.

        A file may have the keys ``status``, ``sequence_number`` and ``snapshot_id`` of its entry.
        """
        entries, counts, rows = [], [0, 0, 0], [0, 0, 0]
        for file in files:
            struct_ = dict(file)
            status = struct_.pop("status", 1)
            sequence_number, snapshot_id = struct_.pop("sequence_number", None), struct_.pop("snapshot_id", None)
            entries.append(
                {
                    "status": status,
                    "snapshot_id": snapshot_id,
                    "sequence_number": sequence_number,
                    "file_sequence_number": sequence_number,
                    "data_file": struct_,
                }
            )
            counts[status] += 1
            rows[status] += struct_["record_count"]
        path = self.path("metadata", ".avro")
        schema = self.metadata["schemas"][-1]
        properties = {
            "schema": json.dumps(schema),
            "partition-spec": json.dumps(self.metadata["partition-specs"][spec_id]["fields"]),
            "partition-spec-id": str(spec_id),
            "format-version": "2",
            "content": ("data", "deletes")[content],
        }
        data = avro_file(manifest_schema(partition), entries, properties, codec=codec)
        path.write_bytes(data)
        return {
            "manifest_path": f"file://{path}",
            "manifest_length": len(data),
            "partition_spec_id": spec_id,
            "content": content,
            "added_snapshot_id": 1,
            "added_files_count": counts[1],
            "existing_files_count": counts[0],
            "deleted_files_count": counts[2],
            "added_rows_count": rows[1],
            "existing_rows_count": rows[0],
            "deleted_rows_count": rows[2],
            **fields,
        }

    def commit(self, manifests: Sequence[dict[str, Any]], *, operation: str = "append", **fields: Any) -> int:
        """Write a manifest list and make it the current snapshot; manifests without a sequence number get the
        snapshot's."""
        sequence_number = self.metadata["last-sequence-number"] + 1
        for manifest in manifests:
            manifest.setdefault("sequence_number", sequence_number)
            manifest.setdefault("min_sequence_number", 0)
        path = self.path("metadata", "-list.avro")
        path.write_bytes(avro_file(MANIFEST_LIST_SCHEMA, manifests))
        snapshot_id = fields.pop("snapshot_id", 1000 + sequence_number)
        moment = 1_700_000_000_000 + sequence_number * 60_000
        snapshot = {
            "snapshot-id": snapshot_id,
            "sequence-number": sequence_number,
            "timestamp-ms": moment,
            "manifest-list": f"file://{path}",
            "summary": {"operation": operation},
            "schema-id": self.metadata["current-schema-id"],
            **{name.replace("_", "-"): value for name, value in fields.items()},
        }
        self.metadata["snapshots"].append(snapshot)
        self.metadata["snapshot-log"].append({"snapshot-id": snapshot_id, "timestamp-ms": moment})
        self.metadata["current-snapshot-id"] = snapshot_id
        self.metadata["last-sequence-number"] = sequence_number
        self.metadata["refs"]["main"] = {"snapshot-id": snapshot_id, "type": "branch"}
        return snapshot_id


def deletion_vector(positions: Sequence[int]) -> bytes:
    """Return a blob of type ``deletion-vector-v1`` (Puffin spec)."""
    bitmap = struct.pack("<I", 0x6439D3D1) + bytes(pyroaring.BitMap64(positions).serialize())
    return struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap))


def _ids_of(columns: Sequence[Mapping[str, Any]], above: str = "") -> list[tuple[str, int]]:
    results = []
    for column in columns:
        path = f"{above}{column['name']}"
        results.append((path, column["id"]))
        kind = column["type"]
        if isinstance(kind, Mapping) and kind["type"] == "struct":
            results += _ids_of(kind["fields"], f"{path}.")
        elif isinstance(kind, Mapping) and kind["type"] == "list":
            results.append((f"{path}.element", kind["element-id"]))
    return results
