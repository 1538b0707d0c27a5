"""The memory pool into which rows are decoded, and checks while decoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.parquet import reader
from delta_sharing_client.shortcuts import SHORTCUTS
from tests.versions import VERIFIES_PAGES

needs_jemalloc = pytest.mark.skipif(
    "jemalloc" not in pa.supported_memory_backends() or pa.default_memory_pool().backend_name != "mimalloc",
    reason="this pyarrow has one allocator",
)

ROOT = Path(__file__).parents[3]
# Columns whose values have one byte: the reader's buffer doubles until they fit.
DECODES = """
import os
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from delta_sharing_client.parquet import reader

reader._MUCH = int(os.environ["MUCH"])

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def decoded():
    opened = reader.open_reader(pa.BufferReader(data))
    return list(opened.iter_batches(65_536, row_groups=[0], column_indices=list(range(8)), use_threads=False))

random, sink = np.random.default_rng(1), pa.BufferOutputStream()
table = pa.table({f"c{i}": random.integers(-100, 100, 280_000).astype("int8") for i in range(8)})
pq.write_table(table, sink)
data = sink.getvalue()
decoded()
before = resident()
batches = [batch for _ in range(20) for batch in decoded()]
print((resident() - before) / sum(batch.nbytes for batch in batches))
"""


@needs_jemalloc
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux has /proc/self/statm")
@pytest.mark.parametrize(("much", "most"), [(0, 1.2), (10_000_000, 1.3)])
def test_memory_of_decoded_rows_is_close_to_their_size(much: int, most: float) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MUCH": str(much)}
    done = subprocess.run([sys.executable, "-c", DECODES], capture_output=True, text=True, check=True, env=environment)
    assert float(done.stdout) < most  # the ratio is 1.46 with Arrow's default pool


@needs_jemalloc
def test_configured_arrow_memory_pool_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reader.decoding_pool().backend_name == "jemalloc"
    default = pa.default_memory_pool()
    try:
        pa.set_memory_pool(pa.system_memory_pool())
        assert reader.decoding_pool().backend_name == "system"
    finally:
        pa.set_memory_pool(default)
    reader._jemalloc.cache_clear()
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "mimalloc")
    try:
        assert reader.decoding_pool().backend_name == "mimalloc"
    finally:
        reader._jemalloc.cache_clear()


def test_default_memory_pool_is_used_without_jemalloc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> pa.MemoryPool:
        raise NotImplementedError("not built with jemalloc")

    reader._jemalloc.cache_clear()
    monkeypatch.setattr(pa, "jemalloc_memory_pool", missing)
    try:
        assert reader.decoding_pool().backend_name == pa.default_memory_pool().backend_name
    finally:
        reader._jemalloc.cache_clear()


@needs_jemalloc
@pytest.mark.parametrize(
    ("size", "held", "backend"),
    [(2_000, 10_000, "mimalloc"), (20_000, 10_000, "jemalloc"), (20_000, 1 << 60, "mimalloc")],
    ids=["a small file", "a large file", "a large file while Arrow holds little"],
)
def test_only_large_files_are_decoded_with_jemalloc(
    monkeypatch: pytest.MonkeyPatch, size: int, held: int, backend: str
) -> None:
    monkeypatch.setattr(reader, "_LARGE", 10_000)
    monkeypatch.setattr(reader, "_MUCH", held)
    used: list[str] = []

    class Recorded(pq.ParquetReader):
        def __init__(self, memory_pool: pa.MemoryPool) -> None:
            used.append(memory_pool.backend_name)

    monkeypatch.setattr(reader.pq, "ParquetReader", Recorded)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": range(size // 8)}), sink, compression="NONE", use_dictionary=False)
    ballast = pa.allocate_buffer(20_000)  # so that Arrow holds some memory
    reader.open_reader(pa.BufferReader(sink.getvalue()))
    assert (ballast.size, used) == (20_000, [backend])


@pytest.mark.skipif(not VERIFIES_PAGES, reason="this pyarrow does not compare the checksums of pages")
def test_a_page_that_differs_from_its_checksum_is_refused() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": range(1000)})
    pq.write_table(table, sink, compression="NONE", use_dictionary=False, write_page_checksum=True)
    data = bytearray(sink.getvalue().to_pybytes())
    file = reader.open_reader(pa.BufferReader(bytes(data)))
    assert file.read_all().equals(table)
    data[2000] ^= 1
    with pytest.raises(OSError, match="CRC"):
        reader.open_reader(pa.BufferReader(bytes(data))).read_all()


@pytest.mark.skipif(not hasattr(pa, "uuid"), reason="this pyarrow has no extension type for the UUID of Parquet")
def test_uuid_is_read_as_fixed_size_binary() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"u": pa.array([bytes(16)], pa.uuid())}), sink, store_schema=False)
    assert reader.open_reader(pa.BufferReader(sink.getvalue())).schema_arrow.types == [pa.binary(16)]


@needs_jemalloc
def test_tight_memory_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SHORTCUTS, "tight_memory", False)
    assert reader.decoding_pool().backend_name == "mimalloc"
