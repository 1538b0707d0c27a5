"""Arrow's Parquet reader, with settings for exact types and little memory."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.shortcuts import SHORTCUTS

ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError)
"""What Arrow raises where bytes are not what they should be; the first is the base of all its own."""

# The arrays of smaller files waste little memory, and mimalloc allocates them faster.
_LARGE = 1024 * 1024
# If Arrow holds less than this in total, the waste does not matter.
_MUCH = 256 * 1024 * 1024


def open_reader(
    source: pa.NativeFile, metadata: pq.FileMetaData | None = None, read_dictionary: Sequence[str] = ()
) -> pq.ParquetReader:
    """Return a reader of the Parquet file ``source``; raises one of ``ARROW_ERRORS``.

    ``metadata`` is its footer, if already read; the columns in ``read_dictionary`` are returned as dictionaries and
    indices. ``pq.ParquetFile`` would also build a tree of names per file, which is not needed.
    """
    default, tight = pa.default_memory_pool(), decoding_pool()
    # In this order, because reading the size is a call during which other threads take the interpreter lock.
    much = default.bytes_allocated() + tight.bytes_allocated() >= _MUCH and source.size() >= _LARGE
    reader = pq.ParquetReader(tight if much else default)
    reader.open(source, metadata=metadata, read_dictionary=read_dictionary, pre_buffer=False, **_settings())
    return reader


def decoding_pool() -> pa.MemoryPool:
    """Return the memory pool for decoding, except for small files.

    The reader doubles an array until it fits, and then returns the excess. mimalloc, Arrow's default, keeps the excess,
    so a table takes up to 1.4 times its size; jemalloc frees it. A pool that the user chose for Arrow is kept.
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
        # A build for a page size other than the system's cannot allocate.
        pa.allocate_buffer(1, pool)
    except (NotImplementedError, pa.ArrowException, MemoryError):
        return None
    return pool


@functools.cache
def _settings() -> dict[str, object]:
    """Return the reader's settings. INT96 becomes microseconds, as in Spark, so that years beyond the range of
    nanoseconds are right."""
    settings: dict[str, object] = {"coerce_int96_timestamp_unit": "us"}
    # pyarrow has the first since 15, and the second since it made UUID and JSON columns extension types.
    exact = {"page_checksum_verification": True, "arrow_extensions_enabled": False}
    parameters = inspect.signature(pq.ParquetFile.__init__).parameters
    return settings | {name: value for name, value in exact.items() if name in parameters}
