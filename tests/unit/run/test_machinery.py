"""The small machines inside the engine: turns, windows, steps, footers, sparse files."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import CancelledError, Future
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.memory import Window
from delta_sharing_client.fetch.queue import Downloads, Pace
from delta_sharing_client.fetch.steps import Steps, gather, start
from delta_sharing_client.parquet.byte_ranges import Block, SparseFile
from delta_sharing_client.parquet.footer import FooterGuess, footer_length, parse_footer
from tests.unit.storages import parquet_bytes

# === Turns ===


def test_downloads_start_in_order_of_file() -> None:
    release = threading.Event()
    started: list[int] = []
    with Downloads(1) as downloads:
        first = downloads.submit((0,), 1, lambda: release.wait(5))
        others = [downloads.submit((number,), 1, lambda number=number: started.append(number)) for number in (3, 1, 2)]
        release.set()
        for future in [first, *others]:
            future.result(5)
    assert started == [1, 2, 3]


def test_large_downloads_run_few_at_a_time_and_small_ones_wait_for_their_answers_together() -> None:
    def most(nbytes: int) -> int:
        running = 0
        highest = 0
        lock = threading.Lock()

        def call() -> None:
            nonlocal running, highest
            with lock:
                running += 1
                highest = max(highest, running)
            time.sleep(0.1)
            with lock:
                running -= 1

        with Downloads(16) as downloads:
            for future in [downloads.submit((number,), nbytes, call) for number in range(8)]:
                future.result(10)
        return highest

    assert most(10_000_000) <= 4
    assert most(1000) > 4


def test_tiny_downloads_wait_for_nobody() -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    def call() -> None:
        started.release()
        release.wait(300)

    with Downloads(12) as downloads:
        large = [downloads.submit((number,), 8 * 1024 * 1024, call) for number in range(4)]
        tiny = [downloads.submit((number, -1), 16 * 1024, call) for number in range(8)]
        arrived = [started.acquire(timeout=60) for _ in range(12)]
        release.set()
        for future in [*large, *tiny]:
            future.result(60)

    assert all(arrived)


def test_an_error_of_a_download_is_its_futures_and_the_thread_goes_on() -> None:
    def fail() -> None:
        raise DataError("broken")

    with Downloads(1) as downloads:
        failed = downloads.submit((0,), 1, fail)
        fine = downloads.submit((1,), 1, lambda: 7)
        with pytest.raises(DataError):
            failed.result(5)
        assert fine.result(5) == 7


def test_closed_downloads_drop_what_has_not_started() -> None:
    release = threading.Event()
    downloads = Downloads(1)
    running = downloads.submit((0,), 1, lambda: release.wait(5))
    waiting = downloads.submit((1,), 1, lambda: 1)
    while running.running() is False:
        time.sleep(0.001)
    downloads.stop()
    late = downloads.submit((2,), 1, lambda: 1)
    release.set()
    assert waiting.cancelled()
    assert late.cancelled()


def paced(rates: list[float]) -> list[int]:
    """Limits of a ``Pace`` on a line whose throughput, in bytes a second, is ``rates`` at each trial."""
    now = 0.0
    pace = Pace(clock=lambda: now)
    limits = [pace.limit]
    for rate in rates:
        count = 2 * pace.limit
        for _ in range(count):
            now += 1.0 / count
            pace.finished(int(rate / count), saturated=True)
        limits.append(pace.limit)
    return limits


def test_the_pace_doubles_while_that_helps_and_goes_back_when_it_does_not() -> None:
    assert paced([100e6, 190e6, 350e6, 360e6, 900e6]) == [4, 8, 16, 32, 16, 16]


def test_the_pace_of_a_full_line_stays_low() -> None:
    assert paced([50e6, 50e6, 50e6]) == [4, 8, 4, 4]


def test_a_pace_that_nobody_waits_for_stays() -> None:
    now = 0.0
    pace = Pace(clock=lambda: now)
    for _ in range(100):
        now += 1.0
        pace.finished(10**9, saturated=False)
    assert pace.limit == 4


# === Windows ===


def test_a_window_grants_in_order_as_far_as_it_reaches() -> None:
    window = Window(100)
    first, second, third = (window.acquire((number, 0), 60) for number in (0, 1, 2))
    assert [f.done() for f in (first, second, third)] == [True, False, False]
    window.release((0, 0))
    assert [f.done() for f in (second, third)] == [True, False]


def test_the_file_at_the_head_gets_one_grant_however_large() -> None:
    window = Window(10)
    assert window.acquire((0, 0), 1000).done()
    second = window.acquire((0, 1), 1000)
    other = window.acquire((1, 0), 1)
    assert not second.done()
    window.release((0, 0))
    assert second.done()
    assert not other.done()
    window.release((0, 1))
    window.consume(1)
    assert other.done()


def test_what_turns_out_smaller_makes_room() -> None:
    window = Window(100)
    window.acquire((0, 0), 100)
    waiting = window.acquire((1, 0), 50)
    assert not waiting.done()
    window.resize((0, 0), 40)
    assert waiting.done()


def test_releasing_what_was_never_granted_is_nothing() -> None:
    window = Window(100)
    window.release((5, 0))
    assert window.acquire((6, 0), 100).done()


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 200)), max_size=20, unique_by=lambda t: t[:2]
    )
)
def test_consuming_file_by_file_always_ends(pieces: list[tuple[int, int, int]]) -> None:
    window = Window(100)
    grants = {(file, place): window.acquire((file, place), size) for file, place, size in reversed(pieces)}
    for file in sorted({file for file, _ in grants}):
        window.consume(file)
        for order in sorted(order for order in grants if order[0] == file):
            assert grants[order].done(), order
            window.release(order)


# === Steps ===


def test_steps_go_on_with_the_results_of_futures() -> None:
    one: Future[int] = Future()
    two: Future[int] = Future()

    def work() -> Steps[int]:
        a = yield one
        b, c = yield from gather([two, one])
        return a + b * c

    done = start(work())
    assert not done.done()
    one.set_result(2)
    two.set_result(5)
    assert done.result(0) == 12


def test_errors_come_up_at_the_yield_and_can_be_handled() -> None:
    failing: Future[int] = Future()
    cancelled: Future[int] = Future()
    cancelled.cancel()

    def work() -> Steps[list[str]]:
        seen: list[str] = []
        for future in (failing, cancelled):
            try:
                yield future
            except (DataError, CancelledError) as error:
                seen.append(type(error).__name__)
        return seen

    done = start(work())
    failing.set_exception(DataError("x"))
    assert done.result(0) == ["DataError", "CancelledError"]


def test_an_error_of_the_steps_is_the_result() -> None:
    def work() -> Steps[None]:
        raise DataError("x")
        yield

    with pytest.raises(DataError):
        start(work()).result(0)


def test_thousands_of_finished_futures_need_no_deep_stack() -> None:
    ready: Future[int] = Future()
    ready.set_result(1)

    def work() -> Steps[int]:
        total = 0
        for _ in range(20_000):
            total += yield ready
        return total

    assert start(work()).result(0) == 20_000


# === Footers ===


def test_a_footer_is_read_from_a_tail_of_any_length() -> None:
    data = parquet_bytes(pa.table({"a": [1, 2, 3]}))
    needed = footer_length(pa.py_buffer(data[-8:]), len(data))
    for length in (needed, needed + 7, len(data)):
        footer = parse_footer(pa.py_buffer(data[-length:]), len(data))
        assert footer.metadata.num_rows == 3
        assert footer.start == len(data) - needed


@pytest.mark.parametrize(
    ("tail", "size"),
    [
        (b"", 0),
        (b"PAR1", 4),
        (b"\x00\x00\x00\x00PARX", 100),
        (b"\x10\x00\x00\x00PARE", 100),
        (b"\xff\xff\xff\xffPAR1", 100),
        (b"\x00\x00\x00\x7fPAR1", 100),
        (b"garbage!\x08\x00\x00\x00PAR1", 100),
    ],
)
def test_what_is_no_footer_is_a_data_error(tail: bytes, size: int) -> None:
    with pytest.raises(DataError):
        parse_footer(pa.py_buffer(tail), size)


@given(st.binary(max_size=200))
def test_random_tails_are_a_data_error_or_a_footer(noise: bytes) -> None:
    tail = noise + len(noise).to_bytes(4, "little") + b"PAR1"
    with contextlib.suppress(DataError):
        assert isinstance(parse_footer(pa.py_buffer(tail), 10_000).metadata, pq.FileMetaData)


def test_guesses_learn_from_footers_and_never_exceed_the_file() -> None:
    guess = FooterGuess(16)
    assert guess.length(100) == 100
    assert 4096 <= guess.length(1_000_000) <= 8192
    assert guess.length(10**9) == 64 * 1024
    guess.learn(20_000)
    assert 20_000 < guess.length(10**9) < 24_000
    assert guess.length(-1) > 20_000


# === Sparse files ===


def test_a_sparse_file_reads_its_blocks_and_nothing_else() -> None:
    file = SparseFile(100, [Block(50, pa.py_buffer(bytes(range(50, 60)))), Block(10, pa.py_buffer(b"abc"))])
    file.seek(11)
    assert file.read(2) == b"bc"
    assert file.tell() == 13
    file.seek(-50, 2)
    assert file.read_buffer(10).to_pybytes() == bytes(range(50, 60))
    for place, length in ((9, 1), (12, 2), (49, 2), (60, 1)):
        file.seek(place)
        with pytest.raises(DataError, match="not planned"):
            file.read(length)
    file.seek(100)
    assert file.read(5) == b""


def test_reading_a_column_that_was_not_fetched_fails() -> None:
    data = parquet_bytes(pa.table({"a": list(range(1000)), "b": list(range(1000))}), compression="NONE")
    footer = parse_footer(pa.py_buffer(data), len(data))
    chunk: Any = footer.metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset
    stop = start + chunk.total_compressed_size
    source = pa.PythonFile(SparseFile(len(data), [Block(start, pa.py_buffer(data[start:stop]))]), mode="r")
    file = pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=False)
    assert file.read(columns=["a"]).num_rows == 1000
    with pytest.raises(DataError):
        file.read(columns=["b"])
