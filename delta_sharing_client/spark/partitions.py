"""What a Spark task gets, and how it reads it: the scan engine on an executor, rows out as Spark wants them.

A planned partition may run hours later and many times, so it carries a source of fresh URLs. Executors share one such
source per process and plan: the first task that needs a URL asks once, the others take from its answer.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from delta_sharing_client.download.range_request import Http
from delta_sharing_client.download.remote_file import Reader, RemoteFile, Transfers, UrlSource
from delta_sharing_client.download.report import ScanReport
from delta_sharing_client.download.retry import RetryPolicy
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.footer import FooterGuess, footer_length, parse_footer
from delta_sharing_client.scan.execute import execute
from delta_sharing_client.scan.tasks import FileTask, ScanContext, ScanPlan
from delta_sharing_client.spark.types import VARIANTS, conform

OPEN_COST = 2 * 1024 * 1024
"""Bytes that a file counts in addition to its own: what could be read in the time that opening one takes."""
LEAST_PARTITION = 4 * 1024 * 1024
UNKNOWN_SIZE = 64 * 1024 * 1024


class Piece(NamedTuple):
    """A file, or the part ``part`` of ``parts`` of one: the row groups whose middle lies in that share of its bytes."""

    task: FileTask
    part: int = 0
    parts: int = 1


def partition_bytes(total: int, files: int, parallelism: int, most: int) -> int:
    """Return how many bytes one partition should have, so that ``parallelism`` of them share the work.

    As Spark does for its own file sources: an equal share, but not below 4 MiB (a task costs tens of milliseconds)
    and not above ``most``.
    """
    share = (total + files * OPEN_COST) // max(1, parallelism)
    return min(most, max(LEAST_PARTITION, share))


def pack(tasks: Iterable[FileTask], parallelism: int, most: int) -> list[list[Piece]]:
    """Return the partitions: many small files in one, a large file over several, all files in their order.

    Parameters
    ----------
    tasks:
        The files of a plan.
    parallelism:
        How many tasks run at a time.
    most:
        Greatest number of bytes in a partition, as far as row groups allow.
    """
    listed = list(tasks)
    sizes = [UNKNOWN_SIZE if task.size < 0 else task.size for task in listed]
    target = partition_bytes(sum(sizes), len(listed), parallelism, most)
    packed: list[list[Piece]] = []
    current: list[Piece] = []
    filled = 0
    for task, size in zip(listed, sizes, strict=True):
        parts = 1 if task.row_groups is not None else max(1, -(-size // target) if size > target * 3 // 2 else 1)
        for part in range(parts):
            cost = size // parts + OPEN_COST
            if current and filled + cost > target + OPEN_COST:
                packed.append(current)
                current, filled = [], 0
            current.append(Piece(task, part, parts))
            filled += cost
    if current:
        packed.append(current)
    return packed


def whole_tasks(context: ScanContext, pieces: Sequence[Piece]) -> list[FileTask]:
    """Return the tasks of ``pieces``, with their row groups where a piece is part of a file; empty ones left out."""
    tasks = []
    for piece in pieces:
        if piece.parts == 1:
            tasks.append(piece.task)
            continue
        groups = share_of_groups(_group_sizes(context, piece.task), piece.part, piece.parts)
        if groups:
            tasks.append(msgspec.structs.replace(piece.task, row_groups=groups))
    return tasks


def share_of_groups(sizes: Sequence[int], part: int, parts: int) -> tuple[int, ...]:
    """Return the ordinals of the row groups whose middle byte lies in the share ``part`` of ``parts``.

    Every group belongs to exactly one part, whatever the sizes are.
    """
    total = max(1, sum(sizes))
    chosen, before = [], 0
    for ordinal, size in enumerate(sizes):
        middle = 2 * before + size
        if min(parts - 1, middle * parts // (2 * total)) == part:
            chosen.append(ordinal)
        before += size
    return tuple(chosen)


def _group_sizes(context: ScanContext, task: FileTask) -> list[int]:
    http = Http(context.options, context.allow_http, context.table)
    reader = Reader(http, RetryPolicy.from_options(context.options), context.urls, ScanReport(), Transfers())
    file = RemoteFile(
        reader, key=task.key, url=task.url, size=task.size, file_id=task.file_id, expiration_ms=task.expiration_ms
    )
    length = FooterGuess(len(context.schema)).length(task.size)
    size, tail = file.read_tail(length)
    needed = footer_length(tail, size)
    if needed > tail.size:
        longer = file.read(ByteRange(size - needed, size))
        assert longer is not None
        tail = longer
    metadata = parse_footer(tail, size).metadata
    return [metadata.row_group(ordinal).total_byte_size for ordinal in range(metadata.num_row_groups)]


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
        with execute(plan, None) as batches:
            for batch in batches:
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
