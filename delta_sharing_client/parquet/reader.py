"""Opens Arrow's Parquet reader with settings for exact types and low memory use."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.shortcuts import SHORTCUTS

ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError)
"""The exceptions that Arrow raises for damaged data; the first is the base class of Arrow's own. A handler calls
``check_memory`` first."""

# Arrays of smaller files waste little memory, and mimalloc allocates them faster.
_LARGE = 1024 * 1024
# If Arrow has allocated less than this in total, the waste does not matter.
_MUCH = 256 * 1024 * 1024


def open_reader(
    source: pa.NativeFile, metadata: pq.FileMetaData | None = None, read_dictionary: Sequence[str] = ()
) -> pq.ParquetReader:
    """Return a reader of the Parquet file ``source``; raises one of ``ARROW_ERRORS`` if it is damaged.

    ``metadata`` is the footer, if it was read before. The columns in ``read_dictionary`` are returned as dictionaries
    and indices. ``pq.ParquetFile`` would also build a tree of column names for each file, which is not needed.
    """
    default, tight = pa.default_memory_pool(), decoding_pool()
    # The size is read last, because other threads take the interpreter lock during that call.
    much = default.bytes_allocated() + tight.bytes_allocated() >= _MUCH and source.size() >= _LARGE
    reader = pq.ParquetReader(tight if much else default)
    reader.open(source, metadata=metadata, read_dictionary=read_dictionary, pre_buffer=False, **_settings())
    return reader


def decoding_pool() -> pa.MemoryPool:
    """Return the memory pool for decoding, except for small files.

    The reader doubles an array until the values fit, and then releases the excess. mimalloc, Arrow's default, keeps the
    excess, so a table takes up to 1.4 times its size; jemalloc frees it. A pool that the user chose for Arrow is kept.
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
        # A jemalloc that was built for a page size other than the system's cannot allocate.
        pa.allocate_buffer(1, pool)
    except (NotImplementedError, pa.ArrowException, MemoryError):
        return None
    return pool


@functools.cache
def _settings() -> dict[str, object]:
    """Return the reader's settings. INT96 becomes microseconds, as in Spark: nanoseconds cover too few years."""
    settings: dict[str, object] = {"coerce_int96_timestamp_unit": "us"}
    # pyarrow has had the first one since 15, the second one since it made UUID and JSON columns extension types.
    exact = {"page_checksum_verification": True, "arrow_extensions_enabled": False}
    parameters = inspect.signature(pq.ParquetFile.__init__).parameters
    return settings | {name: value for name, value in exact.items() if name in parameters}
