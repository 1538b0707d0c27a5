"""A large file over several Spark tasks: which of its row groups each one reads.

The driver does not look into files, so a piece only says which share of the file is its own, and the executor reads
the footer to find the row groups of that share.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delta_sharing_client.download.range_request import Http
from delta_sharing_client.download.remote_file import Reader, RemoteFile, Transfers
from delta_sharing_client.download.report import ScanReport
from delta_sharing_client.download.retry import RetryPolicy
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.footer import FooterGuess, footer_length, parse_footer
from delta_sharing_client.scan.tasks import FileTask, ScanContext
from delta_sharing_client.spark.packing import Piece


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
