"""Writes small Delta tables: Parquet files with statistics, deletion vectors, and commits.

It is for sample tables and tests. A table must have only one writer; concurrent writers are not detected.
"""

from __future__ import annotations

import datetime
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client.delta.actions import (
    Action,
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    Metadata,
    RemoveFile,
)
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file, relative_path
from delta_sharing_client.delta.log.log_lines import action_line

FIELD_ID = b"PARQUET:field_id"
_STATISTICS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp)


class TableWriter:
    """Writes one table into ``root``.

    Parameters
    ----------
    physical_names:
        Physical names of columns; a column that is not in the mapping keeps its name.
    seed:
        Seed of the file names; the same calls write the same table.
    """

    def __init__(self, root: Path, *, physical_names: Mapping[str, str] | None = None, seed: int = 0) -> None:
        self.root = root
        self.version = -1
        self._physical = dict(physical_names or {})
        self._names = (uuid.uuid5(uuid.NAMESPACE_URL, f"{seed} {count}") for count in range(1_000_000))
        (root / "_delta_log").mkdir(parents=True)

    def add(
        self,
        rows: pa.Table,
        partition: Mapping[str, str | None] | None = None,
        *,
        time: datetime.datetime,
        **fields: Any,
    ) -> AddFile:
        """Write ``rows`` as a data file; ``fields`` are additional fields of the action."""
        path, size, values = self._write(rows, partition or {}, "")
        return AddFile(path, values, size, _millis(time), stats=self._stats(rows), **fields)

    def change_file(self, rows: pa.Table, partition: Mapping[str, str | None] | None = None) -> AddCdcFile:
        """Write ``rows``, which include ``_change_type``, as a file of the change data feed."""
        path, size, values = self._write(rows, partition or {}, "_change_data/")
        return AddCdcFile(path, values, size)

    def delete(self, deleted: Sequence[tuple[AddFile, Iterable[int]]], time: datetime.datetime) -> list[Action]:
        """Write one file with the deletion vectors of all files, and return the actions that delete these rows."""
        vectors = [DeletionVector.from_positions(positions) for _, positions in deleted]
        blob, descriptors = encode_file(vectors, next(self._names))
        (self.root / relative_path(descriptors[0])).write_bytes(blob)
        actions: list[Action] = []
        for (add, _), descriptor in zip(deleted, descriptors, strict=True):
            actions += [remove(add, time), with_vector(add, descriptor)]
        return actions

    def commit(self, actions: Iterable[Action], operation: str, time: datetime.datetime) -> None:
        """Write the next version."""
        self.version += 1
        path = self.root / "_delta_log" / f"{self.version:020}.json"
        info = msgspec.json.encode({"commitInfo": {"timestamp": _millis(time), "operation": operation}}) + b"\n"
        path.write_bytes(info + b"".join(action_line(action) for action in actions))
        os.utime(path, (time.timestamp(), time.timestamp()))

    def _write(
        self, rows: pa.Table, partition: Mapping[str, str | None], folder: str
    ) -> tuple[str, int, dict[str, str | None]]:
        folder += "".join(f"{name}={_folder_value(value)}/" for name, value in partition.items())
        name = f"part-00000-{next(self._names)}-c000.snappy.parquet"
        target = self.root / (folder + name)
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(self._renamed(rows), target, row_group_size=1000)
        values = {self._physical.get(name, name): value for name, value in partition.items()}
        return quote(folder + name, safe="/=_-."), target.stat().st_size, values

    def _renamed(self, rows: pa.Table) -> pa.Table:
        ids = {name: index for index, name in enumerate(self._physical, start=1)}
        fields = [
            pa.field(
                self._physical.get(field.name, field.name),
                field.type,
                field.nullable,
                {FIELD_ID: str(ids[field.name]).encode()} if field.name in ids else None,
            )
            for field in rows.schema
        ]
        return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))

    def _stats(self, rows: pa.Table) -> str:
        low: dict[str, object] = {}
        high: dict[str, object] = {}
        nulls: dict[str, int] = {}
        for field, column in zip(rows.schema, rows.columns, strict=True):
            name = self._physical.get(field.name, field.name)
            if field.name.startswith("_") or not any(fits(field.type) for fits in _STATISTICS):
                continue
            nulls[name] = column.null_count
            if column.null_count < len(column):
                bounds = pc.min_max(column).as_py()
                low[name], high[name] = _plain(bounds["min"]), _plain(bounds["max"])
        stats = {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
        return json.dumps(stats, separators=(",", ":"))


def remove(add: AddFile, time: datetime.datetime, *, data_change: bool = True) -> RemoveFile:
    """Return the tombstone for a live file."""
    return RemoveFile(
        add.path,
        data_change=data_change,
        deletion_timestamp=_millis(time),
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def with_vector(add: AddFile, vector: DeletionVectorDescriptor) -> AddFile:
    """Return the file with a deletion vector; the bounds in its statistics are no longer tight."""
    stats = json.loads(add.stats or "{}")
    wide = json.dumps({**stats, "tightBounds": False}, separators=(",", ":"))
    return msgspec.structs.replace(add, deletion_vector=vector, stats=wide, data_change=True)


def metadata(
    fields: Sequence[tuple[str, object]],
    *,
    table_id: str,
    name: str,
    description: str,
    partition: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    physical_names: Mapping[str, str] | None = None,
    time: datetime.datetime,
) -> Metadata:
    """Return the metadata of a table with ``fields``, which are names and Delta types, as in a schemaString."""
    columns = []
    for index, (field, kind) in enumerate(fields, start=1):
        mapping: dict[str, object] = {}
        if physical_names is not None:
            mapping = {"delta.columnMapping.id": index, "delta.columnMapping.physicalName": physical_names[field]}
        columns.append({"name": field, "type": kind, "nullable": True, "metadata": mapping})
    return Metadata(
        id=table_id,
        schema_string=json.dumps({"type": "struct", "fields": columns}, separators=(",", ":")),
        partition_columns=list(partition),
        configuration=dict(configuration or {}),
        name=name,
        description=description,
        created_time=_millis(time),
    )


def _folder_value(value: str | None) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe=" ")


def _plain(value: object) -> object:
    if isinstance(value, datetime.datetime):
        # Statistics have only milliseconds; the upper bound is truncated, as other writers do.
        return (
            value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
        )
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def _millis(time: datetime.datetime) -> int:
    return int(time.timestamp() * 1000)
