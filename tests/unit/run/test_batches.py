"""Reads that end early stop at once, in any state, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delta_sharing_client.decode.decoder import FileDecoder
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.tasks import ScanStream, SkippedFiles
from delta_sharing_client.run import loop
from delta_sharing_client.run.batches import Batches, _Read
from tests.http_server import Exchange
from tests.memory import arrow_bytes
from tests.time_limits import HANGS, SOON, Stopwatch
from tests.unit.storages import Fault, Storage, Table, cut, fast_options, interrupting, status, wait_for

MakeTable = Callable[..., Table]

ROOT = Path(__file__).resolve().parents[3]
FILES = 12


@pytest.fixture
def large(make_table: MakeTable) -> Table:
    """Files so large that a read fetches, decodes and waits at the same time."""
    rows = pa.table({"id": np.random.default_rng(0).integers(0, 1 << 60, 100_000)})
    table = make_table(rows.schema)
    for _ in range(FILES):
        table.add(rows, write={"row_group_size": 20_000, "compression": "none", "use_dictionary": False})
    return table


def begun(table: Table, **options: Any) -> Batches:
    return Batches(
        table.plan(options=fast_options(**{"max_bytes_in_flight": 4_000_000, "batch_rows": 5_000, **options}))
    )


def working() -> list[object]:
    """Return the tasks on the event loop: reads, files and requests."""
    return list(asyncio.all_tasks(loop.current().loop))


def nothing_is_left() -> None:
    deadline = time.monotonic() + HANGS
    while working():
        assert time.monotonic() < deadline, working()
        time.sleep(0.002)


def stalls(released: threading.Event, after: int | None) -> Fault:
    """A fault: send ``after`` bytes of the body, or no response at all if it is None, and wait."""

    def fault(handler: Exchange, data: bytes) -> bool:
        if after is not None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:after])
            handler.wfile.flush()
        released.wait(20)
        handler.close_connection = True
        return True

    return fault


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


# --- batches ---


def test_close_at_any_moment_does_not_hang(large: Table) -> None:
    chance = random.Random(1)
    before = arrow_bytes()
    for _ in range(25):
        batches = begun(large)
        for _ in range(chance.randrange(1, 8)):
            next(batches)
        time.sleep(chance.random() * 0.004)
        clock = Stopwatch()
        batches.close()
        assert clock.within(SOON)
        nothing_is_left()
    assert arrow_bytes() - before < 1_000_000


def test_close_while_files_wait_for_memory_does_not_hang(large: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = FileDecoder.batches

    def slowly(self: FileDecoder, *args: Any, **kwargs: Any) -> Iterator[pa.RecordBatch]:
        time.sleep(0.05)
        return decode(self, *args, **kwargs)

    monkeypatch.setattr(FileDecoder, "batches", slowly)
    batches = begun(large, max_bytes_in_flight=24_000_000)
    next(batches)
    closer = threading.Thread(target=batches.close, daemon=True)
    closer.start()
    closer.join(HANGS)
    assert not closer.is_alive()
    nothing_is_left()


def test_read_collected_while_its_lock_is_held_does_not_hang(large: Table) -> None:
    report = ScanReport()
    batches = Batches(large.plan(options=fast_options(max_bytes_in_flight=4_000_000, batch_rows=5_000)), report)
    next(batches)
    cycle: list[object] = [batches]
    cycle.append(cycle)
    del batches, cycle
    ended = threading.Event()

    def collect() -> None:
        with report._lock:
            gc.collect()
        ended.set()

    threading.Thread(target=collect, daemon=True).start()
    assert ended.wait(HANGS)
    nothing_is_left()


def test_a_limit_ends_the_read(large: Table) -> None:
    plan = large.plan(limit=150_000, options=fast_options(max_bytes_in_flight=4_000_000))
    assert sum(batch.num_rows for batch in Batches(plan)) == 150_000
    nothing_is_left()


def test_close_from_another_thread_wakes_a_waiting_consumer(large: Table, released: threading.Event) -> None:
    large.storage.faults["part-0.parquet"] = [stalls(released, None)]
    batches = begun(large, read_timeout=30)
    result: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def consume() -> None:
        try:
            next(batches)
        except BaseException as error:
            result.put(error)

    threading.Thread(target=consume, daemon=True).start()
    while not large.storage.requests:
        time.sleep(0.002)
    clock = Stopwatch()
    batches.close()
    error = result.get(timeout=HANGS)
    assert clock.within(SOON)
    assert isinstance(error, UsageError)
    assert "it was closed" in str(error)
    nothing_is_left()


@pytest.mark.parametrize("after", [None, 1000])
def test_close_wakes_a_read_that_waits_for_a_server(large: Table, released: threading.Event, after: int | None) -> None:
    for part in range(1, FILES):
        large.storage.faults[f"part-{part}.parquet"] = [stalls(released, after)]
    batches = begun(large, read_timeout=30, max_bytes_in_flight=32_000_000)
    next(batches)
    while len(large.storage.requests) < 3:
        time.sleep(0.002)
    clock = Stopwatch()
    batches.close()
    assert clock.within(SOON)
    nothing_is_left()


def test_closed_read_raises_an_error(large: Table) -> None:
    batches = begun(large)
    next(batches)
    batches.close()
    batches.close()
    with pytest.raises(UsageError, match="it was closed"):
        next(batches)
    never_begun = begun(large)
    never_begun.close()
    with pytest.raises(UsageError, match="it was closed"):
        next(never_begun)


@pytest.mark.parametrize("rows", [1_000_000_000, FILES * 100_000, 99_999, 5_000, 4_999])
def test_batches_have_the_requested_number_of_rows(large: Table, rows: int) -> None:
    plan = large.plan(columns=["id"], options=fast_options(batch_rows=5_000))
    result = list(Batches(plan, rows=rows))
    whole, rest = divmod(FILES * 100_000, rows)
    assert [batch.num_rows for batch in result] == [rows] * whole + [rest] * (rest > 0)
    assert pa.Table.from_batches(result).equals(pa.Table.from_batches(list(Batches(plan))))
    nothing_is_left()


def test_reads_with_a_batch_size_end_like_other_reads(large: Table) -> None:
    large.storage.faults["part-7.parquet"] = [status(404)] * 5
    with pytest.raises(DataError, match="it is missing"):
        list(Batches(large.plan(options=fast_options()), rows=30_000))
    large.storage.faults.clear()
    batches = Batches(large.plan(options=fast_options()), rows=1)
    assert [next(batches).num_rows for _ in range(3)] == [1] * 3
    batches.close()
    with pytest.raises(UsageError, match="it was closed"):
        next(batches)
    nothing_is_left()
    without = Batches(large.plan(columns=[], limit=70_000, options=fast_options()), rows=30_000)
    assert [batch.num_rows for batch in without] == [30_000, 30_000, 10_000]
    assert list(without) == []


@pytest.mark.parametrize("rows", [None, 12_000])
def test_close_before_the_last_rows_are_taken_is_an_error(
    large: Table, rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Batches(large.plan(limit=20_000, options=fast_options()), rows=rows)
    take = read._read.take

    def taken(news: Any) -> None:
        take(news)
        if rows is None or news is None:
            nothing_is_left()  # wait until the end of the rows has arrived as well
            read.close()  # another thread may close at any time

    monkeypatch.setattr(read._read, "take", taken)
    for _ in range(2):
        with pytest.raises(UsageError, match="it was closed"):
            list(read)


def test_exhausted_iterator_stays_exhausted(large: Table) -> None:
    with begun(large) as batches:
        assert sum(batch.num_rows for batch in batches) == FILES * 100_000
        assert next(batches, None) is None
    assert next(batches, None) is None


def test_batches_follow_the_iterator_protocol(large: Table) -> None:
    with contextlib.closing(begun(large)) as batches:
        assert [batch.num_rows for batch in itertools.islice(batches, 3)] == [5_000] * 3
        for batch in batches:  # continues after the batch above
            assert batch["id"][0] != 0
            break
    limited = Batches(large.plan(limit=7_000, options=fast_options(batch_rows=5_000)))
    assert [batch.num_rows for batch in limited] == [5_000, 2_000]
    limited.close()
    assert [*limited] == []
    assert iter(limited) is limited
    nothing_is_left()


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    "end", ["closed", "dropped", "error", pytest.param("interrupted", marks=pytest.mark.alone), "retried", "stale"]
)
def test_memory_of_a_read_is_freed_without_garbage_collection(large: Table, end: str) -> None:
    before = arrow_bytes()
    if end == "stale":
        # The file is replaced while it is read, so it is read again, and the new file cannot be decoded.
        large.storage.files["part-7.parquet"] = bytes(len(large.storage.files["part-7.parquet"]))
        large.storage.headers["part-7.parquet"] = {"ETag": '"new"'}
        large.storage.faults["part-7.parquet"] = [cut(1000, {"ETag": '"old"'})]
    if end == "error":
        large.storage.faults["part-7.parquet"] = [status(404)] * 5
    if end == "retried":
        large.storage.faults["part-3.parquet"] = [stalls(threading.Event(), 1000), status(503)]
    batches = begun(large, read_timeout=1, max_bytes_in_flight=32_000_000)
    try:
        for number, _ in enumerate(batches):
            if end == "closed" and number == 2:
                batches.close()
                break
            if end == "dropped" and number == 2:
                time.sleep(0.3)  # wait until more was decoded than consumed
                break
            if end == "interrupted" and number == 2:
                timer = threading.Timer(0.02, signal.pthread_kill, [threading.get_ident(), signal.SIGINT])
                timer.start()
        if end == "interrupted":
            timer.join()
            time.sleep(HANGS)
    except DataError as error:
        kept = error
        assert str(kept)
    except KeyboardInterrupt:
        # The exception is not kept, because the frames of its traceback hold a batch.
        assert end == "interrupted"
    if end == "dropped":
        del batches
    nothing_is_left()
    # A decoding thread frees its memory when its job ends.
    wait_for(lambda: arrow_bytes() - before < 500_000)


@pytest.mark.parametrize("is_started", [False, True])
def test_interrupt_at_the_start_of_a_read_ends_it(
    large: Table, monkeypatch: pytest.MonkeyPatch, is_started: bool
) -> None:
    start = loop.Running.start

    def interrupted(running: loop.Running[None]) -> None:
        if is_started:
            start(running)
        raise KeyboardInterrupt

    before = asyncio.all_tasks(loop.current().loop)
    batches = Batches(large.plan())
    monkeypatch.setattr(loop.Running, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    wait_for(lambda: asyncio.all_tasks(loop.current().loop) <= before)
    with pytest.raises(UsageError, match="it was closed"):
        next(batches)


def test_call_cancelled_before_its_start_never_runs() -> None:
    made: list[object] = []
    running: loop.Running[None] = loop.Running(lambda: made.append(1))  # type: ignore[arg-type,return-value,func-returns-value]
    running.cancel()
    assert running.wait(HANGS)
    with pytest.raises(CancelledError):
        running.result()
    assert not made


def test_concurrent_use_by_two_threads_is_an_error(large: Table, released: threading.Event) -> None:
    large.storage.faults["part-0.parquet"] = [stalls(released, None)]
    batches = begun(large, read_timeout=30)
    first: Future[int] = Future()

    def consume() -> None:
        first.set_result(next(batches).num_rows)

    threading.Thread(target=consume, daemon=True).start()
    while not large.storage.requests:
        time.sleep(0.002)
    with pytest.raises(UsageError, match="another thread"):
        next(batches)
    released.set()
    assert first.result(HANGS) == 5_000
    batches.close()


@pytest.mark.alone
def test_ctrl_c_ends_a_waiting_read(large: Table, released: threading.Event) -> None:
    large.storage.faults["part-0.parquet"] = [stalls(released, 1000)]
    batches = begun(large, read_timeout=30)
    interrupted = interrupting(Batches._wait)
    clock = Stopwatch()
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert clock.within(SOON)
    interrupted.join()
    nothing_is_left()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.alone
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_cannot_use_the_read_and_closes_sockets(large: Table) -> None:
    batches = begun(large)
    rows = next(batches).num_rows
    child = os.fork()
    if not child:
        code = 1
        try:
            try:
                next(batches)
            except UsageError as error:
                code = 0 if "another process" in str(error) else 2
            batches.close()
            del batches
            gc.collect()
            left = [name for name in os.listdir("/proc/self/fd") if _peer(name).endswith(f":{large.storage.port:04X}")]
            code = 3 if left else code
        finally:
            os._exit(code)
    deadline = time.monotonic() + HANGS
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline, "the child hangs"
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(done[1]) == 0
    assert rows + sum(batch.num_rows for batch in batches) == FILES * 100_000


def _peer(name: str) -> str:
    """Return the address, as the kernel writes it, to which the descriptor ``name`` is connected."""
    try:
        target = os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if target == f"socket:[{fields[9]}]":
            return fields[2]
    return ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
@pytest.mark.parametrize("where", ["here", "another thread"])
def test_forked_process_exits_silently(large: Table, where: str) -> None:
    """The child also exits silently if, at the fork, another thread was taking a batch; the child does not have this
    thread."""
    plan = large.plan(options=fast_options(max_bytes_in_flight=4_000_000, batch_rows=5_000))
    script = textwrap.dedent("""
        import os, pickle, sys, threading, warnings
        from delta_sharing_client.run.batches import Batches
        warnings.simplefilter("ignore")
        batches = Batches(pickle.loads(sys.stdin.buffer.read()))
        rows = next(batches).num_rows

        def consume():
            global rows
            for batch in batches:
                rows += batch.num_rows

        consumer = threading.Thread(target=consume)
        if sys.argv[1] == "another thread":
            consumer.start()
        children = []
        for _ in range(2):
            child = os.fork()
            if not child:
                sys.exit(0)
            children.append(child)
        codes = {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
        if consumer.ident is None:
            consume()
        else:
            consumer.join()
        print(codes, rows)
    """)
    command = [sys.executable, "-c", script, where]
    done = subprocess.run(command, input=pickle.dumps(plan), capture_output=True, timeout=HANGS, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{{0}} {FILES * 100_000}\n".encode(), b"")


def test_interpreter_exits_during_a_read(large: Table, storage: Storage) -> None:
    plan = large.plan(options=fast_options(max_bytes_in_flight=4_000_000, batch_rows=5_000, read_timeout=10 * HANGS))
    over = threading.Event()
    for part in range(5, FILES):
        storage.faults[f"part-{part}.parquet"] = [lambda handler, data: not over.wait(10 * HANGS)]
    script = textwrap.dedent("""
        import pickle, sys
        from delta_sharing_client.run.batches import Batches
        batches = Batches(pickle.loads(sys.stdin.buffer.read()))
        next(batches)
        keep = [batches]
        keep.append(keep)
        print("read")
    """)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=pickle.dumps(plan),
            capture_output=True,
            timeout=HANGS,
            cwd=ROOT,
            check=False,
        )
    finally:
        over.set()
    assert (done.returncode, done.stdout, done.stderr) == (0, b"read\n", b"")


def test_read_cancelled_before_its_first_step_closes_its_listing(large: Table) -> None:
    """The start and the cancellation are queued on the loop before it runs either."""
    plan, closed = large.plan(options=fast_options()), threading.Event()
    stream = ScanStream(
        context=plan.context, blocks=([task] for task in plan.tasks), skipped=SkippedFiles, release=closed.set
    )
    read, events = _Read(stream, ScanReport()), []
    busy = threading.Event()
    loop.current().loop.call_soon_threadsafe(busy.wait, HANGS)
    read.begin(events.append, [])
    read.cancel()
    busy.set()
    assert closed.wait(HANGS)
    read.wait()
    assert [type(news) for news in events] == [asyncio.CancelledError]


def test_second_close_does_not_interrupt_cleanup(large: Table) -> None:
    ended, going = threading.Event(), threading.Event()

    def slow_end() -> None:
        going.set()
        time.sleep(0.3)
        ended.set()

    plan = large.plan(options=fast_options(max_bytes_in_flight=4_000_000, batch_rows=5_000))
    batches = Batches(plan, None, [lambda: slow_end])
    next(batches)
    batches.cancel()
    assert going.wait(HANGS)
    batches.cancel()
    batches.close()
    assert ended.is_set()
    nothing_is_left()
