"""Batch reads: one plan per relation, made on the driver when the first query runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delta_sharing_client.delta.schema import schema_to_json
from delta_sharing_client.spark.columns import Columns, check_unchanged
from delta_sharing_client.spark.partitions import FilePartition, plan_partitions
from delta_sharing_client.spark.served_table import ServedTable
from delta_sharing_client.spark.types import target_schema


class BatchReader(DataSourceReader):
    """Reads a snapshot or a change feed.

    It does not override ``pushFilters``: Spark keeps the filters pushed last for every later scan of the same
    DataFrame, so a source that heeds them returns wrong rows. Filters come as the option ``filter``.
    """

    def __init__(self, table: ServedTable, columns: Columns) -> None:
        self._table = table
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the server for the files and return them, packed. Spark asks once for each DataFrame."""
        options = self._table.options
        plan = self._table.plan_batch(self._columns)
        check_unchanged(schema_to_json(plan.context.schema), options, self._columns, self._table.name)
        return plan_partitions(plan, uuid.uuid4().hex, options.parallelism, options.max_partition_bytes)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``partition``; runs on an executor."""
        # Spark replaces an empty list of partitions by one without content.
        if isinstance(partition, FilePartition):
            yield from partition.read(target_schema(self._columns.schema))
