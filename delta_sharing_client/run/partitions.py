"""Splits a plan into parts of similar size that any process can read: whole files, or row groups of large files.

A part may be read hours later and many times, so it has a source of new URLs. The parts of a plan in one process share
the source: the first part that needs a new URL sends the request, and the others use its result.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from delta_sharing_client.decode.file_bytes import gather
from delta_sharing_client.errors import DataError, TransportError
from delta_sharing_client.fetch.place import Version
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.footer import FooterGuess, footer_length, parse_footer
from delta_sharing_client.plan.packed import MOST_PARTS, PackedTasks
from delta_sharing_client.plan.tasks import FileTask, ScanContext, ScanPlan
from delta_sharing_client.run import loop
from delta_sharing_client.run.batches import Batches

OPEN_COST = 2 * 1024 * 1024
"""Bytes that a file counts in addition to its own: about as many as can be read in the time of opening a file."""
UNKNOWN_SIZE = 64 * 1024 * 1024
_FOOTERS_AT_A_TIME = 16
_LOG = logging.getLogger(__name__)


class Partition:
    """A part of a planned read, which can be pickled, sent, and read in any process that has this package.

    Its pickle contains pre-signed URLs and, to renew them, the profile's credentials; its repr shows neither.
    ``Scan.partitions`` and ``Changes.partitions`` create parts.
    """

    __slots__ = ("_context", "_limit", "_sent", "_size", "_tasks")

    def __init__(
        self,
        context: ScanContext,
        tasks: Sequence[FileTask] | PackedTasks,
        limit: int | None = None,
        size: int = 0,
    ) -> None:
        self._context = context
        self._tasks = tasks if isinstance(tasks, PackedTasks) else tuple(tasks)
        self._limit = limit
        self._size = size
        self._sent: _SentContext | None = None

    def __repr__(self) -> str:
        return f"Partition(table={self._context.table!r}, files={self.files})"

    def __reduce__(self) -> tuple[object, ...]:
        return Partition, (self._sent or self._context, self._tasks, self._limit, self._size)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of every batch, the same for all parts of a read."""
        return self._context.output_schema

    @property
    def files(self) -> int:
        """The number of files; a part of a file counts as a file."""
        return len(self._tasks)

    def read(self) -> Batches:
        """Return the rows as an iterator of Arrow record batches, like ``Scan.to_batches``; can be called many times.

        Raises
        ------
        DeltaSharingError
            From the iterator, as ``Scan.to_batches``; with the table and the file.
        """
        return Batches(ScanPlan(context=self._context, tasks=tuple(self._tasks), limit=self._limit))


class _SentContext:
    """The pickle of a context; it is unpickled as the context."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __reduce__(self) -> tuple[object, ...]:
        return pickle.loads, (self._pickled,)


def send_together(parts: Sequence[Partition], dumps: Callable[[object], bytes]) -> None:
    """Pickle the context of a plan's ``parts`` once for all of them, because parts are pickled one by one, and the
    context takes up most of a small part."""
    if parts:
        sent = _SentContext(dumps(parts[0]._context))
        for part in parts:
            part._sent = sent


def read_size(part: Partition) -> tuple[int, int | None]:
    """Return the size of the read columns in bytes, estimated by their types, and the number of rows if the log states
    it."""
    context = part._context
    if not isinstance(part._tasks, PackedTasks):
        rows = ScanPlan(context=context, tasks=part._tasks, limit=part._limit).known_rows
    else:
        rows = None if context.skipping is not None or part._limit is not None else part._tasks.rows
    return int(part._size * context.needed_share), rows


def limited(part: Partition, rows: int) -> Partition:
    """Return a copy of ``part`` that ends after ``rows`` rows."""
    return Partition(part._context, part._tasks, rows, part._size)


def partition(plan: ScanPlan, count: int, plan_id: str | None = None) -> list[Partition]:
    """Split ``plan`` into at most ``count`` parts of similar size, which together have the plan's rows, in its order.

    Large files are split at their row groups, which needs their footers; no part is empty. A plan with a limit is one
    part, because the rows up to the limit can only be counted in one place. ``plan_id`` identifies the plan in any
    process.
    """
    context = _sendable(plan.context, plan_id)
    if plan.limit is not None:
        return [Partition(context, plan.tasks, plan.limit, plan.bytes)] if plan.tasks and plan.limit else []
    return [
        Partition(context, [piece.task for piece in pieces], size=sum(piece.cost - OPEN_COST for piece in pieces))
        for pieces in pack(_cut(plan, count), count)
    ]


def packed_partitions(context: ScanContext, tasks: PackedTasks, count: int) -> list[Partition]:
    """Return ``tasks`` in at most ``count`` parts, limited to ``MOST_PARTS``; files are not split."""
    sendable = _sendable(context, None)
    partitions = []
    for share in equal_shares([chunk.cost for chunk in tasks.chunks], min(count, MOST_PARTS)):
        part = PackedTasks(tuple(tasks.chunks[number] for number in share))
        partitions.append(Partition(sendable, part, size=part.bytes))
    return partitions


def _sendable(context: ScanContext, plan_id: str | None) -> ScanContext:
    place = context.place
    if isinstance(place, SignedUrls):
        place = place.shared(plan_id or uuid.uuid4().hex)
    # Only this process shows progress, and a callback may not be picklable.
    options = dataclasses.replace(context.options, progress=False)
    return dataclasses.replace(context, place=place, options=options)


class Piece(NamedTuple):
    """A file or some row groups of one, and the bytes that it counts as."""

    task: FileTask
    cost: int


def pack(pieces: Sequence[Piece], count: int) -> list[list[Piece]]:
    """Return ``pieces`` in order as at most ``count`` non-empty lists."""
    shares = equal_shares([piece.cost for piece in pieces], count)
    return [[pieces[number] for number in share] for share in shares]


def read_cost(task: FileTask) -> int:
    """Return the number of bytes that ``task`` counts as: its size and ``OPEN_COST``."""
    return (UNKNOWN_SIZE if task.size < 0 else task.size) + OPEN_COST


def equal_shares(sizes: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Split items of ``sizes`` bytes into at most ``parts`` non-empty parts; return the ordinals of each part.

    An item belongs to the part in which its middle byte falls, so a part exceeds the average by less than the size of
    its largest item.
    """
    total = max(1, sum(sizes))
    ends = list(itertools.accumulate(sizes))

    def part(ordinal: int) -> int:
        return min(parts - 1, (2 * ends[ordinal] - sizes[ordinal]) * parts // (2 * total))

    return [tuple(group) for _, group in itertools.groupby(range(len(sizes)), key=part)]


def _cut(plan: ScanPlan, count: int) -> list[Piece]:
    """Return the files of ``plan``; files much larger than an average part are split into several pieces."""
    whole = [Piece(task, read_cost(task)) for task in plan.tasks]
    share = max(1, sum(piece.cost for piece in whole) // count)
    large = [number for number, piece in enumerate(whole) if 2 * piece.cost > 3 * share]
    if not large:
        return whole
    sizes = loop.call(_group_sizes(plan.context, {number: whole[number].task for number in large}))
    found: list[Piece] = []
    for number, piece in enumerate(whole):
        groups, version = sizes.get(number, ([], None))
        shares = equal_shares(groups, -(-piece.cost // share))
        if len(shares) <= 1:
            found.append(piece)
            continue
        for chosen in shares:
            cost = piece.cost * sum(groups[ordinal] for ordinal in chosen) // max(1, sum(groups)) + OPEN_COST
            found.append(Piece(msgspec.structs.replace(piece.task, row_groups=chosen, version=version), cost))
    return found


async def _group_sizes(
    context: ScanContext, tasks: Mapping[int, FileTask]
) -> dict[int, tuple[list[int], Version | None]]:
    """Return the row group sizes and the version of each task; no groups if its footer cannot be read here."""
    options = dataclasses.replace(context.options, max_attempts=3, max_retry_seconds=10)
    fetcher = context.fetcher(ScanReport(), options)
    at_a_time = asyncio.Semaphore(_FOOTERS_AT_A_TIME)

    async def sizes(task: FileTask) -> tuple[list[int], Version | None]:
        file = task.remote_file(fetcher)
        try:
            async with at_a_time:
                size, tail = await file.read_tail(FooterGuess(len(context.schema)).length(task.size))
                needed = footer_length(tail, size)
                if needed > tail.size:
                    tail = await file.read(ByteRange(size - needed, size))
            metadata = parse_footer(tail, size).metadata
        except (DataError, TransportError) as error:
            # The planning process may have no access to the storage; the reading process must have it, and reports an
            # error.
            _LOG.warning("A large file is read by one task, because its footer cannot be read here: %s", error)
            return [], None
        return [metadata.row_group(ordinal).total_byte_size for ordinal in range(metadata.num_row_groups)], file.version

    return dict(zip(tasks, await gather([sizes(task) for task in tasks.values()]), strict=True))
