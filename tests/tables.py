"""Write Delta tables for tests: real Parquet files, and a log with exactly the actions that a test commits.

The client's code is not used, except to encode deletion vectors.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.vectors import encode_inline, poisoned

Rows = Sequence[Mapping[str, object]]

_TYPES = {
    pa.int64(): "long",
    pa.int32(): "integer",
    pa.int16(): "short",
    pa.int8(): "byte",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}


@dataclasses.dataclass(frozen=True)
class DataFile:
    """A file of a table: its path in the log, its size in bytes, its partition values, its number of rows, an optional
    deletion vector, and the positions of the rows whose values no read may evaluate."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    num_records: int
    deletion_vector: Mapping[str, object] | None = None
    poisoned: frozenset[int] = frozenset()

    def deleting(self, *positions: int) -> DataFile:
        """Return the same file with rows deleted by an inline deletion vector.

        An earlier version must contain these rows. Rows that no version contains are deleted when the file is
        written, and have poison values.
        """
        from delta_sharing_client.delta import deletion_vectors

        vector = deletion_vectors.DeletionVector.from_positions(positions)
        descriptor = encode_inline(vector)
        return dataclasses.replace(
            self,
            deletion_vector={
                "storageType": descriptor.storage_type,
                "pathOrInlineDv": descriptor.path_or_inline_dv,
                "sizeInBytes": descriptor.size_in_bytes,
                "cardinality": descriptor.cardinality,
            },
        )


class TableWriter:
    """A table that grows by commits. The constructor writes version 0: protocol and metadata without rows."""

    def __init__(
        self,
        path: pathlib.Path,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        protocol: Mapping[str, object] | None = None,
        table_id: str | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self.path = path
        self.schema = schema
        self.partition_by = list(partition_by)
        self.properties = dict(properties or {})
        self.table_id = table_id or str(uuid.uuid4())
        self.version = -1
        self._shown: set[str] = set()
        (path / "_delta_log").mkdir(parents=True)
        self.commit(
            protocol=protocol or {"minReaderVersion": 1, "minWriterVersion": 4},
            metadata=True,
            timestamp_ms=timestamp_ms,
        )

    def file(
        self,
        rows: Rows,
        *,
        name: str | None = None,
        size: int | None = None,
        row_group_size: int | None = None,
        deleting: Sequence[int] = (),
    ) -> DataFile:
        """Write a data file, of exactly ``size`` bytes if given. It is not part of the table until a commit adds it.

        A deletion vector removes the rows ``deleting``, whose values no read may evaluate.
        """
        values = {column: _serialized(rows[0][column]) for column in self.partition_by} if rows else {}
        fields = [field for field in self.schema if field.name not in self.partition_by]
        name = name or f"part-{uuid.uuid4().hex}.parquet"
        written = self._write(rows, fields, values, name, size, row_group_size, deleting)
        return written.deleting(*deleting) if deleting else written

    def change_file(self, rows: Rows, *, name: str | None = None, size: int | None = None) -> DataFile:
        """Write a change data file: rows with ``_change_type``."""
        values = {column: _serialized(rows[0][column]) for column in self.partition_by} if rows else {}
        fields = [field for field in self.schema if field.name not in self.partition_by]
        fields.append(pa.field("_change_type", pa.string()))
        return self._write(
            rows, fields, values, f"_change_data/{name or f'cdc-{uuid.uuid4().hex}.parquet'}", size, None
        )

    def insert(self, *files: Rows | DataFile, data_change: bool = True) -> int:
        """Commit added files, each given as a file or as its rows; return the version."""
        return self.commit(add=[f if isinstance(f, DataFile) else self.file(f) for f in files], data_change=data_change)

    def commit(
        self,
        *,
        add: Iterable[DataFile] = (),
        remove: Iterable[DataFile] = (),
        change: Iterable[DataFile] = (),
        protocol: Mapping[str, object] | None = None,
        metadata: bool = False,
        data_change: bool = True,
        timestamp_ms: int | None = None,
        info: Mapping[str, object] | None = None,
    ) -> int:
        """Write the next version and return its number; if ``metadata`` is true, the commit contains the current schema
        and properties."""
        self.version += 1
        moment = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        actions: list[Mapping[str, object]] = [
            {"commitInfo": {"timestamp": moment, "operation": "WRITE", **(info or {})}}
        ]
        if protocol is not None:
            actions.append({"protocol": protocol})
        if metadata:
            actions.append({"metaData": self._metadata()})
        for file in remove:
            actions.append({"remove": self._removed(file, data_change, moment)})
        for file in add:
            if file.deletion_vector is None:
                self._shown.add(file.path)
            else:
                assert file.poisoned or file.path in self._shown, "write rows that no version shows with 'deleting'"
            actions.append({"add": self._added(file, data_change, moment)})
        for file in change:
            entry = {
                "path": file.path,
                "partitionValues": dict(file.partition_values),
                "size": file.size,
                "dataChange": False,
            }
            actions.append({"cdc": entry})
        path = self.path / "_delta_log" / f"{self.version:020d}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
        os.utime(temporary, (moment / 1000, moment / 1000))
        temporary.rename(path)
        return self.version

    def _metadata(self) -> Mapping[str, object]:
        fields = [
            {
                "name": field.name,
                "type": _type(field.type),
                "nullable": field.nullable,
                "metadata": _metadata_of(field),
            }
            for field in self.schema
        ]
        return {
            "id": self.table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": self.partition_by,
            "configuration": self.properties,
            "createdTime": 0,
        }

    def _added(self, file: DataFile, data_change: bool, moment: int) -> Mapping[str, object]:
        entry = {
            "path": file.path,
            "partitionValues": dict(file.partition_values),
            "size": file.size,
            "modificationTime": moment,
            "dataChange": data_change,
            "stats": json.dumps({"numRecords": file.num_records}),
        }
        return entry if file.deletion_vector is None else {**entry, "deletionVector": file.deletion_vector}

    def _removed(self, file: DataFile, data_change: bool, moment: int) -> Mapping[str, object]:
        entry = {
            "path": file.path,
            "deletionTimestamp": moment,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition_values),
            "size": file.size,
        }
        return entry if file.deletion_vector is None else {**entry, "deletionVector": file.deletion_vector}

    def _write(
        self,
        rows: Rows,
        fields: Sequence[pa.Field],
        values: Mapping[str, str | None],
        name: str,
        size: int | None,
        row_group_size: int | None,
        poison_at: Sequence[int] = (),
    ) -> DataFile:
        columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in fields]
        physical = [field.with_name(json.loads(_physical(field))) for field in fields]
        table = pa.Table.from_arrays(columns, schema=pa.schema([f.remove_metadata() for f in physical]))
        content = _parquet(poisoned(table, poison_at), size, row_group_size)
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return DataFile(name, len(content), values, len(rows), poisoned=frozenset(poison_at))


def rows_of(ids: Iterable[int], **constants: object) -> list[dict[str, object]]:
    """Return rows ``{"id": i, ...}``."""
    return [{"id": i, **constants} for i in ids]


def _physical(field: pa.Field) -> bytes:
    metadata = field.metadata or {}
    return metadata.get(b"delta.columnMapping.physicalName", json.dumps(field.name).encode())


def _parquet(table: pa.Table, size: int | None, row_group_size: int | None) -> bytes:
    content = _padded(table, row_group_size, 0)
    if size is None:
        return content
    # The padding's length is stored in one or more bytes, so some file sizes need slightly less padding.
    for padding in range(size - len(content), size - len(content) - 4, -1):
        for name in ("padding", "padding_"):
            content = _padded(table, row_group_size, padding, name)
            if len(content) == size:
                return content
    raise AssertionError(f"{table.num_rows} rows cannot be made {size} bytes long: {len(content)}")


def _padded(table: pa.Table, row_group_size: int | None, padding: int, name: str = "padding") -> bytes:
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, store_schema=False) as writer:
        writer.write_table(table, row_group_size=row_group_size)
        if hasattr(writer, "add_key_value_metadata"):
            writer.add_key_value_metadata({name: "x" * padding})
        elif padding:
            pytest.skip("this pyarrow cannot make a file of a given size")
    return buffer.getvalue()


def _serialized(value: object) -> str | None:
    return None if value is None else str(value)


def _metadata_of(field: pa.Field) -> dict[str, object]:
    return {k.decode(): json.loads(v) for k, v in (field.metadata or {}).items()}


def _type(arrow: pa.DataType) -> object:
    if pa.types.is_struct(arrow):
        fields = [{"name": f.name, "type": _type(f.type), "nullable": True, "metadata": _metadata_of(f)} for f in arrow]
        return {"type": "struct", "fields": fields}
    if pa.types.is_list(arrow):
        return {"type": "array", "elementType": _type(arrow.value_type), "containsNull": True}
    if pa.types.is_map(arrow):
        key, value = _type(arrow.key_type), _type(arrow.item_type)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    return _TYPES[arrow]


# --- special names, long text, and non-ASCII text ---

ODD_TEXTS = ["größe", "名前", "😀" * 300, "x" * 5000, "it's", ""]
ODD_PARTITIONS = ["Россия/日本", "a=b%20 #?"]


def write_odd(folder: pathlib.Path) -> None:
    """Write a table with special names, nested fields, long text and unusual partition values, one file for each
    value."""
    from deltalake import write_deltalake

    for place, country in enumerate(ODD_PARTITIONS):
        numbers = range(place * len(ODD_TEXTS), (place + 1) * len(ODD_TEXTS))
        columns = {
            "id": pa.array(numbers, pa.int64()),
            "größe.in cm": pa.array([number * 10 for number in numbers], pa.int64()),
            "名": pa.array(ODD_TEXTS),
            "o": pa.array([{"a.b": number, "名": text} for number, text in zip(numbers, ODD_TEXTS, strict=True)]),
            "страна": pa.array([country] * len(ODD_TEXTS)),
        }
        write_deltalake(folder, pa.table(columns), mode="append", partition_by=["страна"])
