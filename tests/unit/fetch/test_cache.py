from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import delta_sharing_client.fetch.cache as module
from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.cache import _END, FileCache
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.source import Version
from delta_sharing_client.file_lock import FileLock
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange
from delta_sharing_client.predicates.tree import col
from tests.unit.storages import Table, fast_options, rows_of

MakeTable = Callable[..., Table]
DATA = bytes(range(200))


V1, V2 = Version('"1"', "", 200), Version('"2"', "", 200)


def block(start: int, stop: int) -> ByteBlock:
    return ByteBlock(start, pa.py_buffer(DATA[start:stop]))


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache", 1_000_000, "table")


def files_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))


def test_stored_blocks_are_read_in_full_and_in_part(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Entries are not written to the temporary directory first, which may be on a different disk.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    cache.put("f", block(50, 100), 200, V1)
    for byte_range in (ByteRange(50, 100), ByteRange(60, 61)):
        result = cache.get("f", byte_range, 200, V1.agrees)
        assert result is not None
        assert (result.start, result.data.to_pybytes()) == (byte_range.start, DATA[byte_range.start : byte_range.stop])


@pytest.mark.parametrize(("start", "stop"), [(49, 60), (90, 101), (0, 10)])
def test_uncovered_range_is_a_miss(cache: FileCache, start: int, stop: int) -> None:
    cache.put("f", block(50, 100), 200, V1)
    assert cache.get("f", ByteRange(start, stop), 200, V1.agrees) is None


def test_entries_of_other_files_tables_or_sizes_are_not_returned(cache: FileCache, tmp_path: Path) -> None:
    cache.put("f", block(50, 100), 200, V1)
    for table_id, file_id in (("tablef", ""), ("tabl", "ef"), ("other", "f")):
        other = FileCache(tmp_path / "cache", 1_000_000, table_id)
        assert other.get(file_id, ByteRange(50, 100), 200, V1.agrees) is None
    assert cache.get("g", ByteRange(50, 100), 200, V1.agrees) is None
    assert cache.get("f", ByteRange(50, 100), 201, V1.agrees) is None
    assert cache.get(None, ByteRange(50, 100), 200, V1.agrees) is None


def test_block_of_the_wrong_length_is_deleted(cache: FileCache, tmp_path: Path) -> None:
    cache.put("f", block(50, 100), 200, V1)
    (path,) = files_of(tmp_path)
    path.write_bytes(b"short")
    assert cache.get("f", ByteRange(50, 100), 200, V1.agrees) is None
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("position", [0, 25, 49, 50, 60, -20, -10, -1])
@pytest.mark.parametrize("flip", [1, 0x80, 0xFF])
def test_entry_with_a_wrong_byte_is_deleted(cache: FileCache, tmp_path: Path, position: int, flip: int) -> None:
    cache.put("f", block(50, 100), 200, V1)
    (path,) = files_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[position] ^= flip
    path.write_bytes(content)

    assert cache.get("f", ByteRange(50, 100), 200, V1.agrees) is None
    assert files_of(tmp_path) == []


@pytest.mark.parametrize("left", [0, 15, 16, 50, 70])
def test_truncated_or_zeroed_entry_is_deleted(cache: FileCache, tmp_path: Path, left: int) -> None:
    for damage in (bytes.__getitem__, lambda content, kept: content[kept].ljust(len(content), b"\0")):
        cache.put("f", block(50, 100), 200, V1)
        (path,) = files_of(tmp_path)
        path.write_bytes(damage(path.read_bytes(), slice(left)))

        assert cache.get("f", None, 200, V1.agrees) is cache.get("f", ByteRange(50, 100), 200, V1.agrees) is None
        assert files_of(tmp_path) == []


def test_blocks_of_a_different_version_are_not_returned(cache: FileCache) -> None:
    cache.put("f", block(150, 200), 200, V1)

    assert cache.get("f", ByteRange(150, 200), 200, V2.agrees) is None
    assert cache.get("f", None, 200, V2.agrees) is None
    assert cache.get("f", None, 200, V1.agrees) is not None
    cache.put("f", block(150, 200), 200, V2)
    assert cache.get("f", None, 200, V2.agrees) is not None


def test_entries_of_a_file_can_be_deleted(cache: FileCache, tmp_path: Path) -> None:
    for name in ("f", "g"):
        cache.put(name, block(0, 50), 200, V1)
        cache.put(name, block(50, 100), 200, V1)

    cache.drop("f")
    cache.drop("never seen")
    assert len(files_of(tmp_path)) == 2
    assert cache.get("g", ByteRange(0, 50), 200, V1.agrees) is not None


def test_size_limit_applies_across_processes(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from delta_sharing_client.fetch.cache import FileCache\n"
        "from delta_sharing_client.fetch.source import Version\n"
        "from delta_sharing_client.parquet.byte_ranges import ByteBlock\n"
        "cache = FileCache(sys.argv[1], 1_000_000, 'table')\n"
        "block = ByteBlock(0, pa.py_buffer(bytes(30_000)))\n"
        "for n in range(60): cache.put(f'{sys.argv[2]}-{n}', block, 30_000, Version())\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(n)]) for n in range(4)]
    largest = 0
    while any(writer.poll() is None for writer in writers):
        # While the test holds the lock and counts, no process adds or deletes entries.
        with contextlib.suppress(UsageError), FileLock(tmp_path / ".lock", "Taken."):
            largest = max(largest, sum(path.stat().st_size for path in tmp_path.rglob("[!.]*") if path.is_file()))
        time.sleep(0.01)

    assert [writer.wait() for writer in writers] == [0] * 4
    assert 500_000 < sum(path.stat().st_size for path in files_of(tmp_path)) <= 1_000_000
    assert largest <= 1_000_000


def test_held_lock_prevents_writes_but_not_reads(cache: FileCache, tmp_path: Path) -> None:
    cache.put("f", block(0, 50), 200, V1)
    with FileLock(tmp_path / "cache" / ".lock", "Taken."):
        cache.put("g", block(0, 50), 200, V1)
        assert cache.get("f", ByteRange(0, 50), 200, V1.agrees) is not None
    assert len(files_of(tmp_path)) == 1


def test_only_the_first_write_waits_for_a_held_lock(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.put("f", block(0, 50), 200, V1)
    pauses: list[float] = []
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)
    with FileLock(tmp_path / "cache" / ".lock", "Taken."):
        cache.put("g", block(0, 50), 200, V1)
        waited = len(pauses)
        assert waited
        for name in "hijk":
            cache.put(name, block(0, 50), 200, V1)
        assert len(pauses) == waited
    monkeypatch.setattr(module, "_rests", {})
    cache.put("l", block(0, 50), 200, V1)
    assert len(files_of(tmp_path)) == 2


def test_threads_of_one_process_wait_without_a_timeout(
    cache: FileCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FileCache._write

    def slowly(*arguments: Any) -> None:
        time.sleep(0.05)
        write(*arguments)

    monkeypatch.setattr(FileCache, "_write", slowly)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.02)
    threads = [threading.Thread(target=cache.put, args=(name, block(0, 50), 200, V1)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files_of(tmp_path)) == len(threads)


def test_failed_write_of_an_entry_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("planted")

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(OSError, match="planted"):
        module._replace(tmp_path, "f", b"x")
    assert list(tmp_path.iterdir()) == []


def test_forked_child_ignores_locks_of_its_parents_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Lock()
    held.acquire()
    monkeypatch.setattr(module, "_lock", held)
    module._after_fork()
    assert module._lock.acquire(False)


def test_oldest_blocks_are_deleted_first(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 200, "table")
    for number, name in enumerate("abcd"):
        cache.put(name, block(0, 30), 200, V1)
        for path in files_of(tmp_path):
            if path.parent.name == cache._folder(name).name:
                os.utime(path, (number, number))
    assert cache.get("a", ByteRange(0, 30), 200, V1.agrees) is None
    assert cache.get("d", ByteRange(0, 30), 200, V1.agrees) is not None
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 200


@pytest.mark.parametrize("oldest", "abc")
def test_oldest_entry_is_deleted_whatever_its_directory(tmp_path: Path, oldest: str) -> None:
    cache = FileCache(tmp_path, 1_000_000, "table")
    for name in "abc":
        cache.put(name, block(0, 100), 200, V1)
    (size,) = {path.stat().st_size for path in files_of(tmp_path)}
    for name in "abc":
        (path,) = cache._folder(name).iterdir()
        os.utime(path, (1, 1) if name == oldest else (2, 2))

    FileCache(tmp_path, 3 * size + 99, "table").put("d", block(0, 100), 200, V1)

    results = [name for name in "abcd" if cache.get(name, ByteRange(0, 100), 200, V1.agrees) is not None]
    assert results == [name for name in "abcd" if name != oldest]


def test_block_larger_than_the_cache_is_not_stored(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10, "table")
    cache.put("f", block(0, 100), 200, V1)
    assert files_of(tmp_path) == []


def test_unusable_cache_directory_causes_only_misses(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    cache = FileCache(tmp_path / "file", 1000, "table")
    cache.put("f", block(0, 10), 200, V1)
    assert cache.get("f", ByteRange(0, 10), 200, V1.agrees) is None
    assert cache.get("f", None, 200, V1.agrees) is None


def test_concurrent_writers_do_not_corrupt_blocks(tmp_path: Path) -> None:
    program = (
        "import sys, pyarrow as pa\n"
        "from delta_sharing_client.fetch.cache import FileCache\n"
        "from delta_sharing_client.fetch.source import Version\n"
        "from delta_sharing_client.parquet.byte_ranges import ByteBlock\n"
        "cache = FileCache(sys.argv[1], 100_000_000, 'table')\n"
        "for _ in range(30): cache.put('f', ByteBlock(0, pa.py_buffer(bytes(100_000))), 100_000, Version())\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    cache = FileCache(tmp_path, 100_000_000, "table")
    results: list[int] = []

    def work() -> None:
        for _ in range(30):
            cache.put("f", ByteBlock(0, pa.py_buffer(bytes(100_000))), 100_000, V1)
            held = cache.get("f", ByteRange(0, 100_000), 100_000, V1.agrees)
            results.append(-1 if held is None else held.data.size)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other.wait(60) == 0
    assert set(results) == {100_000}
    assert len(files_of(tmp_path)) == 1


# --- scans that use the cache ---


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
def test_second_read_downloads_nothing(make_table: MakeTable, tmp_path: Path, request_: dict[str, object]) -> None:
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


def test_equal_file_ids_of_two_tables_are_two_files(make_table: MakeTable, tmp_path: Path) -> None:
    """Some servers number the files of each table; without an ETag only the table distinguishes files of equal size."""
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    schema = pa.schema([("a", pa.int64())])
    tables = [make_table(schema), make_table(schema)]
    tables[1].metadata = replace(tables[1].metadata, id="00000000-0000-0000-0000-000000000002")
    for number, table in enumerate(tables):
        table.adds[:] = [replace(table.add(pa.table({"a": [number]}), name=f"{number}.parquet"), file_id="1")]
    for number, table in [*enumerate(tables)] * 2:
        assert rows_of(table.plan(options=options))["a"].to_pylist() == [number]


def test_read_of_more_columns_fetches_only_the_new_ones(make_table: MakeTable, tmp_path: Path) -> None:
    table = big(make_table)
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    rows_of(table.plan(options=options, columns=["c3"]))
    before = table.storage.sent
    result = rows_of(table.plan(options=options, columns=["c3", "c7"]))
    assert result.num_rows == 60_000
    assert table.storage.sent - before <= 1.01 * 60_000 * 8


@pytest.mark.parametrize("damage", ["flip two bytes", "zero the data and mend the checksum"])
def test_damaged_entries_are_fetched_again(make_table: MakeTable, tmp_path: Path, damage: str) -> None:
    table = big(make_table)
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    first = rows_of(table.plan(options=options, columns=["c3"]))
    for path in files_of(tmp_path):
        content = bytearray(path.read_bytes())
        if damage == "flip two bytes":
            content[100] ^= 0xFF
            content[200] ^= 0xFF
        else:
            # The stored bytes have the right checksum but cannot be decoded.
            size, _, mark = _END.unpack(content[-_END.size :])
            end = len(content) - _END.size - size
            content[: end - 8] = bytes(end - 8)
            content[-_END.size :] = _END.pack(size, zlib.crc32(content[: -_END.size]), mark)
        path.write_bytes(content)

    for _ in range(2):
        assert rows_of(table.plan(options=options, columns=["c3"])).equals(first)
    asked = len(table.storage.requests)
    assert rows_of(table.plan(options=options, columns=["c3"])).equals(first)
    assert len(table.storage.requests) == asked


def test_deletion_vectors_are_cached_too(make_table: MakeTable, tmp_path: Path) -> None:
    table = make_table(pa.schema([("a", pa.int64())]))
    blob, (d,) = encode_file([DeletionVector.from_positions([1])], "placeholder")
    url = table.storage.put("dv", blob)
    vector = DeletionVectorDescriptor("p", url, d.size_in_bytes, d.cardinality, d.offset)
    table.add(pa.table({"a": [1, 2, 3]}), deletion_vector=vector, removed=[1])
    options = fast_options(cache_directory=str(tmp_path / "cache"))
    for _ in range(2):
        assert rows_of(table.plan(options=options))["a"].to_pylist() == [1, 3]
    assert len(table.storage.requests) == 2


# --- symbolic links ---


@pytest.mark.parametrize("name", [".size", ".lock"])
def test_symbolic_link_to_a_file_is_not_written_through(tmp_path: Path, name: str) -> None:
    root, victim = tmp_path / "cache", tmp_path / "victim"
    root.mkdir()
    victim.write_bytes(b"1")
    (root / name).symlink_to(victim)
    cache = FileCache(root, 1 << 20, "t")
    cache.put("f", block(0, 10), 100, V1)
    assert victim.read_bytes() == b"1"
    assert (cache.get("f", ByteRange(0, 10), 100, lambda _: True) is None) == (name == ".lock")


@pytest.mark.parametrize("up", [0, 1])
def test_symbolic_link_to_a_directory_is_not_followed(tmp_path: Path, up: int) -> None:
    root, victim = tmp_path / "cache", tmp_path / "victim"
    cache = FileCache(root, 1 << 20, "t")
    folder = cache._folder("f")
    link = folder if up == 0 else folder.parent
    link.parent.mkdir(parents=True)
    inside = victim if up == 0 else victim / folder.name
    inside.mkdir(parents=True)
    (inside / "0-10.100").write_bytes(b"somebody else's")
    link.symlink_to(victim)
    cache.put("f", block(0, 10), 100, V1)
    assert cache.get("f", ByteRange(0, 10), 100, lambda _: True) is None
    cache.drop("f")
    assert [entry.name for entry in inside.iterdir()] == ["0-10.100"]


def test_symbolic_link_to_a_block_is_replaced(cache: FileCache, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody else's")
    cache.put("f", block(0, 10), 100, V1)
    (entry,) = cache._folder("f").iterdir()
    entry.unlink()
    entry.symlink_to(victim)
    assert cache.get("f", ByteRange(0, 10), 100, lambda _: True) is None
    cache.put("f", block(0, 10), 100, V1)
    assert victim.read_bytes() == b"somebody else's"
    assert cache.get("f", ByteRange(0, 10), 100, lambda _: True) is not None


def test_file_without_an_id_or_bytes_is_not_stored(cache: FileCache, tmp_path: Path) -> None:
    cache.put(None, block(50, 100), 200, V1)
    cache.put("f", block(50, 50), 200, V1)
    assert list(tmp_path.iterdir()) == []
    cache.put("f", block(50, 100), 200, V1)
    cache.drop(None)
    (path,) = files_of(tmp_path)
    assert {folder.stat().st_mode & 0o777 for folder in (tmp_path / "cache", path.parent)} == {0o700}


def test_longest_stored_block_at_the_end_of_a_file_is_used(cache: FileCache) -> None:
    for start, stop in ((190, 200), (150, 200), (170, 200), (0, 199)):
        cache.put("f", block(start, stop), 200, V1)
    result = cache.get("f", None, 200, V1.agrees)
    assert result is not None
    assert (result.start, result.data.to_pybytes()) == (150, DATA[150:])
    # A corrupted block does not end the search.
    (longest,) = cache._folder("f").glob("150-*")
    longest.write_bytes(b"")
    result = cache.get("f", None, 200, V1.agrees)
    assert result is not None
    assert result.start == 170
    cache.drop("f")
    assert cache.get("f", None, 200, V1.agrees) is None


def test_size_of_the_cache_is_counted_and_limited(cache: FileCache, tmp_path: Path) -> None:
    counted = tmp_path / "cache" / ".size"

    def put(name: str, limit: int) -> tuple[int, list[int]]:
        FileCache(tmp_path / "cache", limit, "table").put(name, block(0, 200), 200, V1)
        return int(counted.read_bytes()), [path.stat().st_size for path in files_of(tmp_path)]

    total, (one,) = put("a", 1000)
    assert total == one > 200
    assert put("b", 2 * one) == (2 * one, [one, one])
    # A lost count is recomputed and includes temporary files of killed writers.
    for broken in (b"", b"x", None):
        counted.unlink() if broken is None else counted.write_bytes(broken)
        (cache._folder("a") / ".part-x").write_bytes(bytes(500))
        assert put("c", 3 * one) == (3 * one, [one] * 3)
        assert not (cache._folder("a") / ".part-x").exists()
        cache.drop("c")
    # Nothing is deleted while there is room. Then the oldest entries are deleted until a tenth of the room is free.
    os.utime(next(cache._folder("b").iterdir()), (1, 1))
    counted.write_bytes(b"%d" % (3 * one))
    assert put("d", 3 * one) == (3 * one, [one] * 3)
    assert cache.get("b", None, 200, lambda found: False) is None
    assert put("e", 3 * one + 100) == (3 * one, [one] * 3)
    assert cache.get("b", None, 200, V1.agrees) is None
    assert put("f", 3 * one) == (2 * one, [one] * 2)
    assert put("g", one - 1) == (2 * one, [one] * 2)
    assert put("g", one) == (one, [one])


def test_eviction_frees_a_tenth_of_the_cache(tmp_path: Path) -> None:
    for name in "abc":
        FileCache(tmp_path, 500, "table").put(name, block(0, 193), 200, V1)
    assert [path.stat().st_size for path in files_of(tmp_path)] == [225, 225]


def test_reading_an_entry_makes_it_recent(cache: FileCache, tmp_path: Path) -> None:
    cache.put("f", block(0, 200), 200, V1)
    (path,) = files_of(tmp_path)
    for accept, is_used in ((V2.agrees, False), (V1.agrees, True)):
        os.utime(path, (1, 1))
        cache.get("f", None, 200, accept)
        assert (path.stat().st_mtime > 1) is is_used


def test_version_of_an_entry_is_stored(cache: FileCache) -> None:
    seen: list[Version] = []
    version = Version("", "Thu, 01 Jan 2026", None)
    cache.put("f", block(0, 200), 200, version)
    assert cache.get("f", None, 200, lambda found: bool(seen.append(found))) is None
    assert seen == [version]
