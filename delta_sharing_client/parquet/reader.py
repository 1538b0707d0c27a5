"""Arrow's reader of Parquet, with the settings that make its types exact, and memory no larger than its rows."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet.core import ParquetReader

from delta_sharing_client.shortcuts import SHORTCUTS

ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError)
"""What Arrow raises where bytes are not what they should be; the first is the base of all its own."""

# Of less the arrays are so small that they waste little, and mimalloc makes them sooner.
_LARGE = 1024 * 1024
# And where so little is held as a whole, what is wasted does not matter either.
_MUCH = 256 * 1024 * 1024


def open_reader(
    source: pa.NativeFile, metadata: pq.FileMetaData | None = None, read_dictionary: Sequence[str] = ()
) -> ParquetReader:
    """Return a reader of the Parquet file ``source``; one of ``ARROW_ERRORS`` if it is none.

    ``metadata`` is its footer, where that was read before; the columns of ``read_dictionary`` come out as dictionaries
    and indices. ``pq.ParquetFile`` would make such a reader, and for each file a tree of names that is not needed here.
    """
    default, tight = pa.default_memory_pool(), decoding_pool()
    much = source.size() >= _LARGE and default.bytes_allocated() + tight.bytes_allocated() >= _MUCH
    reader = ParquetReader(tight if much else default)
    reader.open(source, metadata=metadata, read_dictionary=read_dictionary or None, pre_buffer=False, **_settings())
    return reader


def decoding_pool() -> pa.MemoryPool:
    """Return the pool that the rows of all but small files are decoded into once there are many.

    The reader makes an array in memory that doubles until it fits, and gives back what is too much. mimalloc, Arrow's
    default, keeps that where it is, so that a table takes up to 1.4 times its size; jemalloc takes it back. Whoever has
    chosen a pool for Arrow has a reason.
    """
    chosen = pa.default_memory_pool()
    if not SHORTCUTS.tight_memory or chosen.backend_name != "mimalloc":
        return chosen
    return _jemalloc() or chosen


@functools.cache
def _jemalloc() -> pa.MemoryPool | None:
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ:
        return None
    try:
        pool = pa.jemalloc_memory_pool()
        # Built for pages of another size than the system's, it has no memory to give.
        pa.allocate_buffer(1, pool)
    except (NotImplementedError, pa.ArrowException, MemoryError):
        return None
    return pool


@functools.cache
def _settings() -> dict[str, object]:
    """INT96 becomes microseconds, as Spark reads it, so that years beyond the range of nanoseconds stay right."""
    settings: dict[str, object] = {"coerce_int96_timestamp_unit": "us"}
    # pyarrow knows the first since 15, and the second since it turned UUID and JSON columns into extension types.
    exact = {"page_checksum_verification": True, "arrow_extensions_enabled": False}
    known = inspect.signature(pq.ParquetFile.__init__).parameters
    return settings | {name: value for name, value in exact.items() if name in known}
