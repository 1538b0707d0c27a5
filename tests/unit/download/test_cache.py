from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.download.cache import FileCache
from delta_sharing_client.download.report import ScanReport
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.sparse_file import Block
from delta_sharing_client.predicates.tree import col
from tests.unit.scan.support import Table, fast_options, rows_of

MakeTable = Callable[..., Table]
DATA = bytes(range(200))


def block(start: int, stop: int) -> Block:
    return Block(start, pa.py_buffer(DATA[start:stop]))


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache", 1_000_000, "table")


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_what_was_put_is_found_whole_and_in_part(cache: FileCache) -> None:
    cache.put("f", block(50, 100), 200)
    for wanted in (ByteRange(50, 100), ByteRange(60, 61)):
        found = cache.get("f", wanted, 200)
        assert found is not None
        assert (found.start, found.data.to_pybytes()) == (wanted.start, DATA[wanted.start : wanted.stop])


@pytest.mark.parametrize(("start", "stop"), [(49, 60), (90, 101), (0, 10)])
def test_what_is_not_covered_is_a_miss(cache: FileCache, start: int, stop: int) -> None:
    cache.put("f", block(50, 100), 200)
    assert cache.get("f", ByteRange(start, stop), 200) is None


def test_files_tables_and_sizes_are_kept_apart(cache: FileCache, tmp_path: Path) -> None:
    cache.put("f", block(50, 100), 200)
    other = FileCache(tmp_path / "cache", 1_000_000, "tablef")
    assert other.get("", ByteRange(50, 100), 200) is None
    assert cache.get("g", ByteRange(50, 100), 200) is None
    assert cache.get("f", ByteRange(50, 100), 201) is None
    assert cache.get(None, ByteRange(50, 100), 200) is None


def test_a_block_of_the_wrong_length_is_thrown_away(cache: FileCache, tmp_path: Path) -> None:
    cache.put("f", block(50, 100), 200)
    (path,) = files_of(tmp_path)
    path.write_bytes(b"short")
    assert cache.get("f", ByteRange(50, 100), 200) is None
    assert files_of(tmp_path) == []


def test_the_oldest_blocks_go_first(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 100, "table")
    for number, name in enumerate("abcd"):
        cache.put(name, block(0, 30), 200)
        for path in files_of(tmp_path):
            if path.parent.name == cache._folder(name).name:
                os.utime(path, (number, number))
    assert cache.get("a", ByteRange(0, 30), 200) is None
    assert cache.get("d", ByteRange(0, 30), 200) is not None
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 100


def test_a_block_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10, "table")
    cache.put("f", block(0, 100), 200)
    assert files_of(tmp_path) == []


def test_a_directory_that_cannot_be_written_means_misses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = FileCache(tmp_path / "file", 1000, "table")
    cache.put("f", block(0, 10), 200)
    assert cache.get("f", ByteRange(0, 10), 200) is None
    assert cache.tail("f", 200) is None


def test_writers_in_threads_and_processes_do_not_tear_blocks(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from delta_sharing_client.download.cache import FileCache\n"
        "from delta_sharing_client.parquet.sparse_file import Block\n"
        "cache = FileCache(sys.argv[1], 100_000_000, 'table')\n"
        "for _ in range(30): cache.put('f', Block(0, pa.py_buffer(bytes(100_000))), 100_000)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    cache = FileCache(tmp_path, 100_000_000, "table")
    found: list[int] = []

    def work() -> None:
        for _ in range(30):
            cache.put("f", Block(0, pa.py_buffer(bytes(100_000))), 100_000)
            held = cache.get("f", ByteRange(0, 100_000), 100_000)
            found.append(-1 if held is None else held.data.size)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait(60) == 0
    assert set(found) == {100_000}
    assert len(files_of(tmp_path)) == 1


# === In a scan ===


def big(make_table: MakeTable) -> Table:
    table = make_table(pa.schema([(f"c{i}", pa.int64()) for i in range(10)]))
    for part in range(3):
        rows = pa.table({f"c{i}": [n * 2_654_435_761 % 2**50 + part for n in range(20_000)] for i in range(10)})
        table.add(rows, write={"compression": "NONE", "use_dictionary": False, "row_group_size": 5000})
    return table


@pytest.mark.parametrize(
    "request_",
    [{}, {"columns": ["c3"]}, {"columns": ["c3", "c9"], "filter": col("c1") > 2**40}, {"columns": []}],
    ids=["all", "one column", "filter", "count"],
)
def test_the_second_read_downloads_nothing(make_table: MakeTable, tmp_path: Path, request_: dict[str, object]) -> None:
    table = big(make_table)
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    first = rows_of(table.plan(options=options, **request_))
    asked = len(table.storage.requests)
    report = ScanReport()
    second = rows_of(table.plan(options=options, **request_), report)
    assert second.equals(first)
    assert len(table.storage.requests) == asked > 0
    assert report.requests == 0
    assert report.cache_hits > 0


def test_a_read_of_other_columns_fetches_only_those(make_table: MakeTable, tmp_path: Path) -> None:
    table = big(make_table)
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    rows_of(table.plan(options=options, columns=["c3"]))
    before = table.storage.sent
    found = rows_of(table.plan(options=options, columns=["c3", "c7"]))
    assert found.num_rows == 60_000
    assert table.storage.sent - before <= 1.01 * 60_000 * 8


def test_deletion_vectors_are_cached_too(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table(pa.schema([("a", pa.int64())]))
    blob, (d,) = encode_file([DeletionVector.from_positions([1])], "placeholder")
    url = table.storage.put("dv", blob)
    vector = DeletionVectorDescriptor("p", url, d.size_in_bytes, d.cardinality, d.offset)
    table.add(pa.table({"a": [1, 2, 3]}), deletion_vector=vector)
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    for _ in range(2):
        assert rows_of(table.plan(options=options))["a"].to_pylist() == [1, 3]
    assert len(table.storage.requests) == 2
