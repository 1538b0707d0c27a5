"""What a Spark task gets, and how it reads it: the scan engine on an executor, rows out as Spark wants them.

A planned partition may run hours later and many times, so it carries a source of fresh URLs. Executors share one such
source per process and plan: the first task that needs a URL asks once, the others take from its answer.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from delta_sharing_client.download.remote_file import UrlSource
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.scan.execute import execute
from delta_sharing_client.scan.tasks import ScanContext, ScanPlan
from delta_sharing_client.spark.packing import Piece, pack
from delta_sharing_client.spark.row_groups import whole_tasks
from delta_sharing_client.spark.types import VARIANTS, conform

EXECUTOR_OPTIONS = ReadOptions(
    max_concurrent_requests=8,
    max_bytes_in_flight=96 * 1024 * 1024,
    batch_rows=32_768,
    progress=False,
    variant_as=VARIANTS,
)
"""One task has a core among many: less at a time than a client that has the machine to itself."""

_KEPT_SOURCES = 64


class FilePartition(InputPartition):
    """Some files of a plan. Its repr shows neither URLs nor credentials; its pickle holds both.

    Parameters
    ----------
    context:
        What all files share.
    pieces:
        The files, in the order of their rows.
    limit:
        Greatest number of rows, ``None`` for all.
    """

    def __init__(self, context: ScanContext, pieces: Sequence[Piece], limit: int | None = None) -> None:
        super().__init__(None)
        self.context = context
        self.pieces = tuple(pieces)
        self.limit = limit

    def __repr__(self) -> str:
        return f"FilePartition(table={self.context.table!r}, files={len(self.pieces)})"

    def read(self, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of exactly the schema ``target``.

        Raises
        ------
        DeltaSharingError
            A file cannot be read completely and correctly; names table and file.
        """
        tasks = whole_tasks(self.context, self.pieces)
        plan = ScanPlan(context=self.context, tasks=tasks, limit=self.limit)
        for batch in execute(plan, None):
            yield conform(batch, target)


def plan_partitions(plan: ScanPlan, plan_id: str, parallelism: int, most: int) -> list[FilePartition]:
    """Return the partitions of ``plan``; one alone where there is a limit, as only that can count to it.

    ``plan_id`` names the plan among all plans that an executor may ever see.
    """
    urls = None if plan.context.urls is None else SharedUrls(plan_id, plan.context.urls)
    context = dataclasses.replace(plan.context, urls=urls)
    if plan.limit is not None:
        return [FilePartition(context, [Piece(task) for task in plan.tasks], plan.limit)] if plan.tasks else []
    return [FilePartition(context, pieces) for pieces in pack(plan.tasks, parallelism, most)]


class SharedUrls:
    """A ``UrlSource`` of which all unpickled copies with one id in a process are the same one."""

    def __init__(self, plan_id: str, urls: UrlSource) -> None:
        self._plan_id = plan_id
        self._urls = urls

    def __repr__(self) -> str:
        return f"SharedUrls({self._plan_id!r})"

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """As ``UrlSource.url_for``."""
        return _shared(self._plan_id, self._urls).url_for(key, rejected)


_sources: OrderedDict[str, UrlSource] = OrderedDict()
_sources_lock = threading.Lock()


def _shared(plan_id: str, urls: UrlSource) -> UrlSource:
    with _sources_lock:
        found = _sources.setdefault(plan_id, urls)
        _sources.move_to_end(plan_id)
        while len(_sources) > _KEPT_SOURCES:
            _sources.popitem(last=False)
        return found
