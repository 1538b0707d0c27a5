"""Measure the memory that Arrow has allocated, in the default pool and in the pool for decoded rows."""

from __future__ import annotations

import pyarrow as pa

from delta_sharing_client.parquet.reader import decoding_pool


def arrow_bytes() -> int:
    """Return the number of allocated bytes."""
    pool = decoding_pool()
    own = pool.bytes_allocated() if pool.backend_name != pa.default_memory_pool().backend_name else 0
    return pa.total_allocated_bytes() + own
