"""The minimum number of bytes that any reader must read."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import pyarrow.parquet as pq

# The length of the end of a file: the footer's length (4 bytes) and the magic number (4 bytes).
_TAIL = 8


def table_bytes(directory: pathlib.Path) -> int:
    """Return the total size of all data files below ``directory`` in bytes."""
    return sum(file.stat().st_size for file in directory.rglob("*.parquet"))


def chunk_bytes(directory: pathlib.Path, columns: Sequence[str]) -> int:
    """Return the total size in bytes of the footers and of the column chunks of ``columns``, over all data files."""
    total = 0
    for file in directory.rglob("*.parquet"):
        footer = pq.read_metadata(file)
        total += footer.serialized_size + _TAIL
        for group in range(footer.num_row_groups):
            chunks = (footer.row_group(group).column(column) for column in range(footer.num_columns))
            total += sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)
    return total
