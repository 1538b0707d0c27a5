"""What a Spark task gets, and how it reads it: a part of a plan, rows out as Spark wants them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from delta_sharing_client.options import ReadOptions
from delta_sharing_client.scan.partitions import Partition, partition, read_cost
from delta_sharing_client.scan.tasks import ScanPlan
from delta_sharing_client.spark.interface import InputPartition
from delta_sharing_client.spark.options import SparkOptions
from delta_sharing_client.spark.types import VARIANTS, conform

LEAST_PARTITION = 4 * 1024 * 1024
LARGE_READ = 4 * 1024**3
"""Bytes of files from which on a read of everything is worth a word."""
_LOG = logging.getLogger(__name__)
EXECUTOR_OPTIONS = ReadOptions(
    max_concurrent_requests=8,
    max_bytes_in_flight=96 * 1024 * 1024,
    batch_rows=32_768,
    progress=False,
    variant_as=VARIANTS,
)
"""One task has a core among many: less at a time than a client that has the machine to itself."""


class FilePartition(InputPartition):
    """A part of a plan as Spark carries it. Its repr shows neither URLs nor credentials; its pickle holds both."""

    def __init__(self, part: Partition) -> None:
        super().__init__(None)
        self.part = part

    def __repr__(self) -> str:
        return f"File{self.part!r}"

    def read(self, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of exactly the schema ``target``; errors are those of ``Partition.read``."""
        with self.part.read() as batches:
            for batch in batches:
                yield conform(batch, target)


def plan_partitions(plan: ScanPlan, plan_id: str, parallelism: int, most: int) -> list[FilePartition]:
    """Return the partitions of ``plan``: for ``parallelism`` tasks at a time, of ``most`` bytes as far as files allow.

    ``plan_id`` names the plan among all plans that an executor may ever see.
    """
    return [FilePartition(part) for part in partition(plan, partition_count(plan, parallelism, most), plan_id)]


def warn_of_large_read(plan: ScanPlan, options: SparkOptions, *, narrowed: bool) -> None:
    """Log that a read of gigabytes takes every column and row, where neither options nor a schema say less."""
    asked = (options.read.columns, options.read.filter, options.read.limit)
    if plan.bytes > LARGE_READ and not narrowed and all(part is None for part in asked):
        _LOG.warning(
            "The read of %s takes all columns and rows of %d files, %.1f GB: Spark does not tell a Python data source "
            "what 'where' and 'select' ask of the DataFrame, so they do not make it less. The options 'columns' and "
            "'filter' do: .option('columns', 'id, name').option('filter', \"day >= '2024-01-01'\").",
            options.table,
            len(plan.tasks),
            plan.bytes / 1e9,
        )


def partition_count(plan: ScanPlan, parallelism: int, most: int) -> int:
    """Return how many partitions ``plan`` should have, so that ``parallelism`` of them share the work.

    As Spark does for its own file sources: an equal share, but not below 4 MiB (a task costs tens of milliseconds)
    and not above ``most``.
    """
    total = sum(map(read_cost, plan.tasks))
    share = min(most, max(LEAST_PARTITION, total // max(1, parallelism)))
    return max(1, -(-total // share))
