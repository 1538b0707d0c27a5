"""Reads one file: chooses which bytes to download, decodes them on threads, and sends the rows in order."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from delta_sharing_client.decode.decoder import MOST_WITHOUT_COLUMNS, constant_batches
from delta_sharing_client.decode.file_bytes import gather
from delta_sharing_client.decode.file_read import FileRead, Shared, Unit, begin
from delta_sharing_client.decode.layout import Shape
from delta_sharing_client.decode.row_groups import read_row_groups
from delta_sharing_client.decode.rows import FileRows, nothing
from delta_sharing_client.decode.whole_file import is_wanted_whole, read_whole
from delta_sharing_client.errors import about_file
from delta_sharing_client.fetch.source import Attempt
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.plan.tasks import FileTask

# Constant rows are sent at once if they have at most this many rows and bytes; without columns, they take no memory.
_FEW_ROWS = 262_144
_FEW_WITHOUT_COLUMNS = 64 * MOST_WITHOUT_COLUMNS
_FEW_BYTES = 4 * 1024 * 1024
# The constant rows of more files than this are created on a decoding thread, not on the event loop.
_FEW_FILES = 20


async def read_file(shared: Shared, number: int, rows: FileRows, *, attempt: Attempt = Attempt.FIRST) -> None:
    """Send the rows of ``rows.tasks``: one file, or several files for which ``is_constant`` is true.

    ``number`` is their position in the read. Raises ``DeltaSharingError``, which names the table and the file, or
    ``Stale`` if the file must be read again.
    """
    task, table = rows.tasks[0], shared.shape.context.table
    with about_file(table, task.file_id):
        read = FileRead(shared, number, task, rows, attempt=attempt)
        if len(rows.tasks) == 1:
            await _read(read, rows)
        else:
            await _send_constants(read, [(each, _stated_rows(each)) for each in rows.tasks], rows)


def is_constant(shape: Shape, task: FileTask) -> bool:
    """Return whether the rows of ``task`` are known without a request: their number is stated, and each column is
    constant."""
    if task.has_vector or task.row_groups is not None or task.num_records is None:
        return False
    return not shape.needs_file(task)


def _stated_rows(task: FileTask) -> int:
    # Returning 0 for an unknown number would lose rows.
    assert task.num_records is not None
    return task.num_records


async def _read(read: FileRead, rows: FileRows) -> None:
    task = read.task
    needs_file = read.shared.shape.needs_file(task) or task.row_groups is not None
    if needs_file and (is_wanted_whole(read) or read.bytes.file.is_in_one_response):
        await read_whole(read)
        return
    if not needs_file and task.num_records is not None:
        await read.select()
        count = task.num_records
    else:
        _, tail = await gather([read.select(), read.bytes.footer()])
        footer = parse_footer(tail, read.bytes.size)
        count = footer.metadata.num_rows
    read.selection.check(count)
    if needs_file:
        await read_row_groups(read, footer)
    else:
        await _send_constants(read, [(task, read.selection.count(count))], rows)


async def _send_constants(read: FileRead, counted: Sequence[tuple[FileTask, int]], rows: FileRows) -> None:
    """Send the given number of rows for each file, with a constant value in each column."""
    shape = read.shared.shape
    batches, few = constant_batches(shape, counted), _FEW_ROWS if shape.context.output else _FEW_WITHOUT_COLUMNS
    # Creating the rows of many files on the event loop would delay a cancellation.
    first = functools.partial(begin, batches, _FEW_BYTES, few)
    decoded = await read.in_thread(first) if len(counted) > _FEW_FILES else first()
    if decoded.rest is None:
        rows.send(decoded.batches, nothing)
        return
    # A log may state any number of rows, so the rest is created as the consumer takes the rows.
    grant = await read.shared.budget.acquire((read.number, 0), decoded.nbytes)
    await read.hand_out(Unit(decoded, grant, 0))
