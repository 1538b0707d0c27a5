"""A file that arrives in pieces is continued after kills, has the right checksum, and gets its name when complete."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import random
import tempfile
import threading
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from delta_sharing_client import part_file
from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_folder import LocalFolder
from delta_sharing_client.part_file import JOURNAL_SUFFIX, PartFile, Ranges
from tests.quota import meets, met

DATA = random.Random(3).randbytes(100)


@pytest.fixture(autouse=True)
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "RECORD_BYTES", 4)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[LocalFolder]:
    with LocalFolder.open(tmp_path) as opened:
        yield opened


def abandon(part: PartFile) -> None:
    """Leave a file as a killed process does: only its descriptors are closed."""
    part._unrecorded = Ranges()
    part.close()


@meets(continued=30, killed=30)
@given(
    runs=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 40)), max_size=6), st.booleans()), max_size=4
    )
)
def test_runs_of_a_process_continue_each_other(runs: list[tuple[list[tuple[int, int]], bool]]) -> None:
    with tempfile.TemporaryDirectory() as name, LocalFolder.open(name) as folder:
        there: set[int] = set()
        for pieces, is_killed in runs:
            part = PartFile(folder, "x", 100, algorithm="sha256", keeps=True)
            now = {at for at in range(100) if not any(start <= at < stop for start, stop in part.missing)}
            met("continued", 0 < len(now) < 100)
            # Nothing counts as arrived that has not.
            assert now <= there
            there = now
            for start, length in pieces:
                free = [at for at in range(start, min(100, start + length)) if at not in there]
                for at in free:
                    part.write(at, DATA[at : at + 1])
                there |= set(free)
            met("killed", is_killed and bool(pieces))
            abandon(part) if is_killed else part.close()
            if not is_killed:
                again = PartFile(folder, "x", 100, keeps=True)
                assert {at for one in again.missing for at in range(*one)} == set(range(100)) - there
                again.close()
        last = PartFile(folder, "x", 100, algorithm="sha256", keeps=True)
        for start, stop in last.missing:
            last.write(start, DATA[start:stop])
        assert last.digest() == hashlib.sha256(DATA).digest()
        last.finish(folder, "done")
        assert folder.names() == ["done"]
        assert pathlib.Path(name, "done").read_bytes() == DATA


def test_kill_loses_less_than_a_record_of_each_connection(folder: LocalFolder) -> None:
    part = PartFile(folder, "x", 100, keeps=True)
    for step in range(11):
        for start in (0, 30, 60):
            part.write(start + step, DATA[start + step : start + step + 1])
    abandon(part)

    assert PartFile(folder, "x", 100, keeps=True).missing == [(8, 30), (38, 60), (68, 100)]


def test_orderly_end_loses_nothing(folder: LocalFolder) -> None:
    with PartFile(folder, "x", 100, keeps=True) as part:
        part.write(10, DATA[10:13])
        part.write(20, DATA[20:21])

    assert PartFile(folder, "x", 100, keeps=True).missing == [(0, 10), (13, 20), (21, 100)]


@pytest.mark.parametrize("cut", range(60))
def test_journal_that_ends_anywhere_is_never_believed_too_much(
    folder: LocalFolder, tmp_path: pathlib.Path, cut: int
) -> None:
    with PartFile(folder, "x", 100, keeps=True) as part:
        part.write(5, DATA[5:17])
        part.write(60, DATA[60:100])
    journal = tmp_path / f"x{JOURNAL_SUFFIX}"
    journal.write_bytes(journal.read_bytes()[:cut])
    real = {*range(5, 17), *range(60, 100)}
    for is_again in (False, True):
        with PartFile(folder, "x", 100, keeps=True) as part:
            missing = {at for start, stop in part.missing for at in range(start, stop)}
            assert missing >= set(range(100)) - real
            assert not (is_again and missing & set(range(5)))
            # The rest of the file arrives, and an incomplete line of the journal does not join with a new one.
            part.write(0, DATA[:5])
        real |= set(range(5))


@pytest.mark.parametrize("line", [b"0-101", b"7-7", b"9-3", b"-1-5", b"0-5 ", b"x", b"0" * 5000 + b"-5", b"1-2-3"])
def test_invalid_lines_of_a_journal_are_ignored(folder: LocalFolder, tmp_path: pathlib.Path, line: bytes) -> None:
    with PartFile(folder, "x", 100, keeps=True) as part:
        part.write(50, DATA[50:60])
    with (tmp_path / f"x{JOURNAL_SUFFIX}").open("ab") as stream:
        stream.write(line + b"\n")

    assert PartFile(folder, "x", 100, keeps=True).missing == [(0, 50), (60, 100)]


def test_nothing_is_continued_after_the_system_restarted(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    with PartFile(folder, "x", 100, keeps=True) as part:
        part.write(0, DATA[:50])
    monkeypatch.setattr(part_file, "_boot", lambda: b"another")

    assert PartFile(folder, "x", 100, keeps=True).missing == [(0, 100)]


@pytest.mark.parametrize("suffix", ["", JOURNAL_SUFFIX])
def test_links_instead_of_the_files_do_no_harm(tmp_path: pathlib.Path, folder: LocalFolder, suffix: str) -> None:
    outside = tmp_path / "outside"
    with PartFile(folder, "x", 100, keeps=True) as part:
        part.write(0, DATA[:50])
    kept = (tmp_path / f"x{suffix}").read_bytes()
    (tmp_path / f"x{suffix}").rename(outside)
    (tmp_path / f"x{suffix}").symlink_to(outside)
    with contextlib.suppress(UsageError), PartFile(folder, "x", 100, keeps=True) as part:
        part.write(0, bytes(50))
    assert outside.read_bytes() == kept
    (tmp_path / f"x{suffix}").unlink()
    os.link(outside, tmp_path / f"x{suffix}")
    with PartFile(folder, "x", 100, keeps=True) as part:
        assert part.missing == [(0, 100)]
        part.write(0, bytes(50))
    assert outside.read_bytes() == kept


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_checksum_is_right_in_any_order_and_with_threads(folder: LocalFolder, algorithm: str) -> None:
    size = 3_000_000
    data = random.Random(8).randbytes(size)
    starts = list(range(0, size, 70_001))
    random.Random(9).shuffle(starts)
    part = PartFile(folder, "x", size, algorithm=algorithm)
    last, turn = [], threading.Lock()

    def work() -> None:
        while True:
            with turn:
                if not starts:
                    return
                start = starts.pop()
            if part.write(start, memoryview(data)[start : start + 70_001]):
                last.append(start)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(last) == 1
    assert part.digest() == hashlib.new(algorithm, data).digest()
    facts = part.finish(folder, "y", modified=1_000_000_000.0, durable=True)
    assert (facts.st_size, facts.st_mtime) == (size, 1_000_000_000.0)
    assert folder.names() == ["y"]


def test_closing_again_keeps_a_later_file_of_the_name(folder: LocalFolder) -> None:
    part = PartFile(folder, "x", 4)
    part.close()
    with PartFile(folder, "x", 4):
        part.close()
        assert folder.names() == ["x"]
    assert folder.names() == []


def test_restart_forgets_everything(folder: LocalFolder) -> None:
    part = PartFile(folder, "x", 10, algorithm="md5", keeps=True)
    assert part.write(0, b"0123456789")
    assert part.digest() == hashlib.md5(b"0123456789").digest()
    part.restart()
    assert part.missing == [(0, 10)]
    assert part.write(0, b"abcdefghij")
    assert part.digest() == hashlib.md5(b"abcdefghij").digest()


def test_empty_file_is_complete(folder: LocalFolder, tmp_path: pathlib.Path) -> None:
    part = PartFile(folder, "x", 0, algorithm="md5")
    assert part.is_complete
    assert part.digest() == hashlib.md5(b"").digest()
    part.finish(folder, "y")
    assert (tmp_path / "y").read_bytes() == b""


def test_incomplete_file_gets_no_name(folder: LocalFolder) -> None:
    with PartFile(folder, "x", 10, algorithm="md5") as part:
        part.write(0, b"012345678")
        with pytest.raises(ValueError, match="incomplete"):
            part.finish(folder, "y")
        with pytest.raises(ValueError, match="incomplete"):
            part.digest()
        for at, data in ((10, b"1"), (-1, b"1"), (5, b"123456")):
            with pytest.raises(ValueError, match="not in a file"):
                part.write(at, data)
    assert folder.names() == []


def test_file_is_finished_when_other_threads_have_left_it(folder: LocalFolder, tmp_path: pathlib.Path) -> None:
    part = PartFile(folder, "x", 8, algorithm="md5", keeps=True)
    part.write(0, b"0123")
    hash_disk, finishing = part._hash_disk, threading.Thread(target=lambda: part.finish(folder, "y"))

    def late(*, wait: bool) -> None:
        # Between the write and the hash of this thread, another thread finds the file complete.
        finishing.start()
        hash_disk(wait=wait)

    part._hash_disk = late  # type: ignore[method-assign]
    part._hashed = 0
    part.write(4, b"4567")
    finishing.join()

    assert (tmp_path / "y").read_bytes() == b"01234567"
    assert folder.names() == ["y"]


def test_file_that_is_closed_during_a_write_is_closed_after_it(folder: LocalFolder) -> None:
    part = PartFile(folder, "x", 100, keeps=True)
    put = part._put

    def late(at: int, view: memoryview) -> None:
        # The number of the open file must not become free before the bytes are written.
        part.close()
        assert os.fstat(part._descriptor).st_size == 100
        put(at, view)

    part._put = late  # type: ignore[method-assign]
    part.write(0, DATA[:50])
    assert part._descriptor == -1
    with pytest.raises(ValueError, match="is closed"):
        part.write(50, DATA[50:])
    assert PartFile(folder, "x", 100, keeps=True).missing == [(50, 100)]


def test_bytes_that_arrive_again_replace_the_earlier_ones(folder: LocalFolder) -> None:
    part = PartFile(folder, "x", 100, algorithm="md5", keeps=True)
    part.write(0, bytes(60))
    part.write(0, DATA, is_hashed=False)
    assert part.digest() == hashlib.md5(DATA).digest()
    assert part.digest("sha256") == hashlib.sha256(DATA).digest()
    part.write(0, DATA[::-1])
    assert part.digest() == hashlib.sha256(DATA[::-1]).digest()


@meets(joined=20)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6))
def test_ranges_are_a_set_of_positions(pairs: list[tuple[int, int]]) -> None:
    ranges, expected = Ranges(), set()
    for start, stop in pairs:
        ranges.add(start, stop)
        expected |= set(range(start, stop))
    met("joined", 0 < len(list(ranges)) < sum(start < stop for start, stop in pairs))
    assert {at for one in ranges for at in range(*one)} == expected
    assert {at for one in ranges.gaps(30) for at in range(*one)} == set(range(30)) - expected
    assert len(list(ranges)) == len([at for at in expected if at - 1 not in expected])
    for at in range(31):
        end = at
        while end in expected:
            end += 1
        assert ranges.stop_of(at) == end


def test_file_that_cannot_be_created_leaves_nothing_open(folder: LocalFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    opened: list[int] = []
    create = folder.create_file
    monkeypatch.setattr(folder, "create_file", lambda name: opened.append(create(name)) or opened[-1])
    with monkeypatch.context() as patch:
        patch.setattr(os, "truncate", refuse)
        with pytest.raises(OSError, match="No space left"):
            PartFile(folder, "x", 100, keeps=True)
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    assert opened
