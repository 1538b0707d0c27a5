"""A Parquet file in memory with its layout and decoder."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from delta_sharing_client.decode.decoder import FileDecoder, ParquetBytes, Selection, rows_in_batch
from delta_sharing_client.decode.layout import Layout, Shape, lay_out
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.parquet.byte_ranges import ByteBlock
from delta_sharing_client.parquet.footer import open_file
from delta_sharing_client.predicates.tree import Expression
from tests.unit.storages import Storage, Table, fast_options, metadata, parquet_bytes


class File:
    """A table's only file, in memory, and its decoder."""

    def __init__(
        self,
        content: pa.Table | bytes,
        *,
        schema: pa.Schema | None = None,
        partition: dict[str, str] | None = None,
        predicate: Expression | None = None,
        columns: list[str] | None = None,
        deleted: DeletionVector | None = None,
        batch_rows: int = 1000,
        in_flight: int = 1 << 28,
        whole: bool = True,
        **write: Any,
    ) -> None:
        schema = content.schema if isinstance(content, pa.Table) else schema
        assert schema is not None, "bytes need a schema"
        for name in partition or {}:
            schema = schema.append(pa.field(name, pa.string()))
        table = Table(Storage(), metadata(schema, [*(partition or {})]))
        blob = content if isinstance(content, bytes) else parquet_bytes(content, **write)
        table.add(blob, partition_values=partition or {})
        plan = table.plan(
            columns=columns,
            filter=predicate,
            options=fast_options(batch_rows=batch_rows, max_bytes_in_flight=in_flight),
        )
        shape, task = Shape(plan.context), next(iter(plan.tasks))
        data = pa.py_buffer(blob)
        footer, reader = open_file(data)
        self.layout: Layout = lay_out(shape, task, footer, whole=whole)
        opened = [] if reader is None else [reader]
        self.data = ParquetBytes(len(blob), [ByteBlock(0, data)], footer.metadata, {}, opened)
        self.report = ScanReport()
        self.decoder = FileDecoder(shape, task, self.layout, Selection(deleted, None), self.report)

    def rows(self, in_flight: int, batch_rows: int = 10_000) -> int:
        return rows_in_batch(self.layout, self.data, 0, batch_rows, in_flight)

    def batches(self) -> list[pa.RecordBatch]:
        return list(self.decoder.batches(self.data, self.layout.groups, threads=False))
