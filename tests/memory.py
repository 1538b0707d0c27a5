"""Measure memory: what Arrow has allocated, in the default pool and in the pool for decoded rows; what Python has."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pyarrow as pa

from delta_sharing_client.parquet.reader import decoding_pool


def arrow_bytes() -> int:
    """Return the number of allocated bytes."""
    pool = decoding_pool()
    own = pool.bytes_allocated() if pool.backend_name != pa.default_memory_pool().backend_name else 0
    return pa.total_allocated_bytes() + own


def python_peak(call: Callable[[], object], times: int = 5) -> int:
    """Return the smallest peak, in bytes, of Python's allocations during several calls of ``call``.

    Threads of other tests are traced as well, so one peak says nothing.
    """
    peaks = []
    for _ in range(times):
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)
