"""Reads a file with one download of all its bytes."""

from __future__ import annotations

import pyarrow as pa

from delta_sharing_client.decode.decoder import ParquetBytes
from delta_sharing_client.decode.file_bytes import gather
from delta_sharing_client.decode.file_read import Decoded, FileRead, Unit
from delta_sharing_client.decode.layout import lay_out
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange
from delta_sharing_client.parquet.footer import open_file
from delta_sharing_client.plan.costs import is_worth_whole

_MB = 1024 * 1024
_LARGEST_WHOLE = 32 * _MB
# Larger files may have several row groups, of which a predicate or a limit may need only some.
_SMALL = 2 * _MB


def is_wanted_whole(read: FileRead) -> bool:
    """Return whether to download the whole file instead of reading its footer first."""
    size, shared = read.task.size, read.shared
    if size < 0 or size > _LARGEST_WHOLE or read.task.row_groups is not None:
        return False
    if size > _SMALL and (read.is_filtered or shared.limit is not None or not shared.pace.is_full):
        return False
    return is_worth_whole(size, shared.shape.share)


async def read_whole(read: FileRead) -> None:
    """Download the file, and send its rows."""
    size = read.bytes.size
    grant = await read.shared.budget.acquire((read.number, 0), size)
    try:
        if read.task.has_vector or read.task.equality:
            _, blocks = await gather([read.select(), read.bytes.fetch([ByteRange(0, size)])])
        else:
            blocks = await read.bytes.fetch([ByteRange(0, size)])
        data = blocks[0].data if blocks else pa.py_buffer(b"")
        del blocks
        await grant.grow(read.shared.ratio.expected(size))
        decoded = await read.in_thread(_open_and_decode, read, data)
        del data
        await read.hand_out(Unit(decoded, grant, size))
    except BaseException:
        grant.release()
        raise
    await read.keep_pace()


def _open_and_decode(read: FileRead, data: pa.Buffer) -> Decoded:
    footer, reader = open_file(data)
    layout = lay_out(read.shared.shape, read.task, footer, whole=True)
    read.count_groups(layout)
    read.selection.check(footer.metadata.num_rows)
    opened = [] if reader is None else [reader]
    bytes_ = ParquetBytes(int(data.size), [ByteBlock(0, data)], footer.metadata, opened=opened)
    decoded = read.decode(layout, read.within_limit(layout), bytes_)
    read.shared.ratio.learn(int(data.size), decoded.nbytes)
    return decoded
