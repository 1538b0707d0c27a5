"""Row streams that engines read: they end at exit and at Ctrl-C, but the streams of other threads continue."""

from __future__ import annotations

import _thread
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import mock_server
from delta_sharing_client.errors import UsageError
from delta_sharing_client.outputs import streams
from delta_sharing_client.outputs.dataset import create_views
from delta_sharing_client.outputs.streams import RowStream
from tests.effort import sample
from tests.time_limits import HANGS
from tools.soak import engines

BATCH = pa.RecordBatch.from_pydict({"名": ["größe", None, "😀" * 100]})


class Rows(Iterator[pa.RecordBatch]):
    """An endless read; after ``first`` batches it waits until it is closed."""

    def __init__(self, first: int = 1) -> None:
        self._left = first
        self.waits = threading.Event()
        self.closed = threading.Event()

    def __next__(self) -> pa.RecordBatch:
        self._left -= 1
        if self._left < 0:
            self.waits.set()
            assert self.closed.wait(20)
            raise UsageError("It was closed.")
        return BATCH

    def close(self) -> None:
        self.closed.set()


@pytest.fixture(autouse=True)
def deaf() -> Iterator[None]:
    # The Spark session of another test may have replaced Python's handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
    signal.set_wakeup_fd(-1)


def test_conversion_may_return_any_number_of_batches() -> None:
    stream = RowStream(lambda: Rows(9), lambda batch: [batch.slice(0, 1), batch.slice(1, 1)])
    assert [next(stream).column(0)[0].as_py() for _ in range(3)] == ["größe", None, "größe"]
    turn = iter([[], [], [BATCH]])
    assert next(RowStream(lambda: Rows(9), lambda _: next(turn))) is BATCH


def test_closed_stream_returns_no_more_batches() -> None:
    rows = Rows()
    stream = RowStream(lambda: rows, lambda batch: [batch, batch])
    next(stream)
    stream.close()
    next(stream)  # the rest of a batch that was already converted
    assert rows.closed.is_set()
    with pytest.raises(UsageError, match="it was closed"):
        next(stream)


def test_first_batches_are_small_on_request() -> None:
    large = pa.RecordBatch.from_pydict({"a": range(3000)})
    for small, sizes in ((True, [1024, 1024, 952]), (False, [3000, 3000, 3000])):
        reader = streams.stream_reader(large.schema, lambda: Rows(9), lambda _: [large], small_first=small)
        assert [reader.read_next_batch().num_rows for _ in sizes] == sizes
        reader.close()


def test_stream_can_be_closed_after_a_wait() -> None:
    stream = RowStream(lambda: Rows(9))
    stream.wait(time.monotonic() + HANGS)
    stream.close()
    with pytest.raises(UsageError, match="it was closed"):
        next(stream)


def test_thread_not_started_by_python_is_alien() -> None:
    result: queue.SimpleQueue[bool] = queue.SimpleQueue()
    _thread.start_new_thread(lambda: result.put(streams._is_alien()), ())
    assert result.get(timeout=HANGS)
    assert not streams._is_alien()


def of_a_session(number: int, frame: object) -> None:
    raise KeyboardInterrupt


of_a_session.__module__ = "pyspark.core.context"


@pytest.mark.parametrize("handler", [signal.default_int_handler, of_a_session])
def test_ctrl_c_ends_a_wait_of_the_main_thread(handler: Any) -> None:
    signal.signal(signal.SIGINT, handler)
    streams.end_on_interrupt()
    rows = Rows()
    with ThreadPoolExecutor(1) as pool:
        # A thread of an engine, which Python did not start.
        result = pool.submit(_alien, lambda: [next(RowStream(lambda: rows)), *RowStream(lambda: rows)])
        assert rows.waits.wait(HANGS)
        with pytest.raises(KeyboardInterrupt):
            _press()
        with pytest.raises(UsageError, match="It was closed"):
            result.result(HANGS)


def test_two_waits_at_the_same_instruction_are_distinguished() -> None:
    places: list[Any] = []

    def note(noted: threading.Event) -> None:
        while (place := streams._main_place())[0].f_code is not threading.Condition.wait.__code__:  # type: ignore[index]
            time.sleep(0)
        places.append(place)
        noted.set()

    for _ in range(2):
        noted = threading.Event()
        threading.Thread(target=note, args=(noted,)).start()
        noted.wait(HANGS)
    assert places[0] != places[1]


def _press() -> None:
    signal.raise_signal(signal.SIGINT)
    time.sleep(5)


def _alien(call: Callable[[], Any]) -> Any:
    threading.current_thread().name = "Dummy-1"
    return call()


def test_ctrl_c_ends_a_read_that_is_starting() -> None:
    streams.end_on_interrupt()
    begins, over = threading.Event(), threading.Event()

    def begin() -> Rows:
        begins.set()
        over.wait(20)
        return Rows()

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(_alien, lambda: RowStream(begin))
        assert begins.wait(HANGS)
        with pytest.raises(KeyboardInterrupt):
            _press()
        with pytest.raises(UsageError, match="interrupted"):
            result.result(HANGS)
        over.set()


def test_error_at_the_start_of_a_read_is_raised_unchanged() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        pool.submit(_alien, lambda: RowStream(lambda: Rows(1 // 0))).result(HANGS)


def test_reads_on_other_threads_continue_after_ctrl_c() -> None:
    streams.end_on_interrupt()
    rows = Rows()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(lambda: list(RowStream(lambda: rows)))
        assert rows.waits.wait(HANGS)
        with pytest.raises(KeyboardInterrupt):
            _press()
        time.sleep(0.2)
        assert not result.done()
        rows.close()
        with pytest.raises(UsageError):
            result.result(HANGS)


def test_custom_signal_handler_takes_precedence() -> None:
    streams.end_on_interrupt()
    stream, heard = RowStream(lambda: Rows(9)), []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0.2)
        assert heard
        next(stream)
    finally:
        signal.signal(signal.SIGINT, before)


def test_existing_signal_wakeup_fd_is_kept() -> None:
    mine, other = socket.socketpair()
    with mine, other:
        mine.setblocking(False)
        signal.set_wakeup_fd(mine.fileno())
        streams.end_on_interrupt()
        assert signal.set_wakeup_fd(-1) == mine.fileno()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_process_inherits_no_streams() -> None:
    streams.end_on_interrupt()
    stream = RowStream(lambda: Rows(9))
    child = os.fork()
    if child == 0:
        try:
            mine = signal.set_wakeup_fd(-1) == -1 and not streams._all_streams()
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            os._exit(0 if mine else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.2)
    next(stream)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    engines.write_table(folder / "s" / "s" / "t", files=3, rows=20_000)
    return folder


# `tools.soak.engines` ends programs with all engines.
@pytest.mark.parametrize("kind", sample(["duckdb: fetchmany", "arrow: pyarrow's own scanner"], 2))
def test_program_exits_with_open_streams(kind: str, tables: Path) -> None:
    with mock_server.running(tables) as server:
        assert engines.ended(engines.ENDS[kind], server.profile_path, "s.s.t")[1] == ""


@pytest.mark.parametrize("kind", sample(["duckdb: fetchall", "arrow: a dataset's table", "polars: streaming"], 2))
def test_one_ctrl_c_ends_a_program(kind: str, tables: Path) -> None:
    with mock_server.running(tables, faults=("slow=1000@data",)) as server:
        _, message = engines.interrupted(engines.READS[kind], server.profile_path, "s.s.t", after=1.0)
    assert message == ""


# --- with a replaced clock ---


class Clock:
    """Replaces the module ``time`` in streams; a sleep only advances its clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    result = Clock()
    monkeypatch.setattr(streams, "time", result)
    return result


def test_only_the_first_rows_come_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_SMALL_ROWS", 3001)
    monkeypatch.setattr(streams, "_SMALL_BATCH", 1000)
    large = pa.RecordBatch.from_pydict({"a": range(1500)})
    stream = RowStream(lambda: Rows(9), lambda _: [large], small_first=True)
    assert [next(stream).num_rows for _ in range(8)] == [1000, 500, 1000, 500, 1000, 500, 1500, 1500]


def test_wait_ends_100_ms_after_the_last_call_or_at_the_deadline(clock: Clock) -> None:
    stream = RowStream(lambda: Rows(9))
    # It waits until a tenth of a second after the last call, but not beyond the deadline.
    for since, left, seconds in ((0.0, 9.0, 0.1), (0.04, 9.0, 0.06), (0.0, 0.03, 0.03), (0.2, 9.0, 0.0), (0.0, -1, 0)):
        next(stream)
        clock.now += since
        clock.slept.clear()
        stream.wait(clock.now + left)
        assert clock.slept == [pytest.approx(seconds)]
    # If a thread is inside the stream, the wait lasts until the deadline and the lock is kept.
    with stream._inside:
        clock.slept.clear()
        stream.wait(clock.now - 1)
        assert clock.slept == [0]
    assert stream._inside.acquire(blocking=False)


def test_exit_closes_all_streams_before_it_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []

    class Known:
        def close(self) -> None:
            steps.append("close")

        def wait(self, deadline: float) -> None:
            steps.append(deadline - clock.now)
            clock.now += 0.5

    monkeypatch.setattr(streams, "_all_streams", lambda: [Known(), Known()])
    streams._end_all()
    assert steps == ["close", "close", pytest.approx(0.9), pytest.approx(0.4)]


def test_streams_are_registered_until_they_are_dropped() -> None:
    before = len(streams._all_streams())
    first, second = RowStream(lambda: Rows(9)), RowStream(lambda: Rows(9))
    assert {id(stream) for stream in streams._all_streams()} >= {id(first), id(second)}
    del first
    assert len(streams._all_streams()) == before + 1
    second.interrupt()
    with pytest.raises(UsageError):
        next(second)


@pytest.mark.parametrize(
    ("module", "ends"),
    [("pyspark", True), ("pyspark.core.context", True), ("pysparkx", False), ("x.pyspark", False), (None, False)],
)
def test_streams_end_only_if_the_signal_handler_ends_the_call(module: str | None, ends: bool) -> None:
    def handler() -> None: ...

    handler.__module__ = module  # type: ignore[assignment]
    assert streams._ends_the_call(handler) is ends
    assert streams._ends_the_call(signal.default_int_handler)
    for other in (signal.SIG_DFL, signal.SIG_IGN, None):
        assert not streams._ends_the_call(other)


def test_interrupt_is_recent_until_the_main_thread_continues(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame:
        f_lasti = 1

    frames = {threading.get_ident(): Frame(), 0: Frame()}
    with monkeypatch.context() as patch:
        patch.setattr(streams, "sys", SimpleNamespace(_current_frames=lambda: frames))
        places = [streams._main_place()]
        frames[0].f_lasti = 2
        assert streams._main_place() == places[0]
        # The same frame at a different instruction, a different frame, and no frame are all different places.
        frames[threading.get_ident()].f_lasti = 2
        places.append(streams._main_place())
        frames[threading.get_ident()] = Frame()
        frames[threading.get_ident()].f_lasti = 2
        places.append(streams._main_place())
        del frames[threading.get_ident()]
        assert len({*places, streams._main_place()}) == 4
    monkeypatch.setattr(streams, "_main_place", lambda: "here")
    for seconds, place, is_fresh in (
        (0.0, "here", True),
        (1.9, "here", True),
        (2.0, "here", False),
        (0.0, "there", False),
        (0.0, None, False),
    ):
        monkeypatch.setattr(streams, "_interrupted", (clock.now - seconds, place))
        assert streams._is_interrupted() is is_fresh
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(RowStream, lambda: Rows(9)).exception(HANGS) is None
            # An alien thread does not start a read that was just interrupted.
            result = pool.submit(_alien, lambda: RowStream(lambda: Rows(9)))
            assert (result.exception(HANGS) is not None) is is_fresh


def test_forked_child_closes_the_sockets_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    others, end = socket.socketpair()
    with others, end:
        others.setblocking(False)
        for wakeup in ("ours", "none", "another's"):
            pair = socket.socketpair()
            pair[0].setblocking(False)
            monkeypatch.setattr(streams, "_signal_sockets", pair)
            numbers = {"ours": pair[0].fileno(), "none": -1, "another's": others.fileno()}
            signal.set_wakeup_fd(numbers[wakeup])
            stream = RowStream(lambda: Rows(9)) if wakeup == "another's" else None
            streams._after_fork()
            assert streams._signal_sockets is None
            assert [sock.fileno() for sock in pair] == [-1, -1]
            assert signal.set_wakeup_fd(-1) == (others.fileno() if wakeup == "another's" else -1)
            assert streams._all_streams() == []
            del stream
    with streams.interrupted_by(others.close):
        streams._after_fork()
        assert streams._interrupts == []


def test_only_the_main_thread_starts_the_signal_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_signal_sockets", None)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(streams.end_on_interrupt).result(HANGS)
    assert streams._signal_sockets is None
    before = set(threading.enumerate())
    with duckdb.connect() as connection:
        create_views(connection, {})
    result: Any = streams._signal_sockets
    (listener,) = set(threading.enumerate()) - before
    assert (listener.name, listener.daemon) == ("interrupts", True)
    streams.end_on_interrupt()
    assert streams._signal_sockets is result
    assert signal.set_wakeup_fd(-1) == result[0].fileno()
    assert result[0].gettimeout() == 0
    result[0].close()
    listener.join(HANGS)
    assert not listener.is_alive()
    result[1].close()


def test_ctrl_c_calls_only_the_current_callback() -> None:
    def handler(number: int, frame: object) -> None:
        """Return, as if library code were running. Python's own handler would raise and thus end the block."""

    handler.__module__ = of_a_session.__module__
    signal.signal(signal.SIGINT, handler)
    inside, outside = threading.Event(), threading.Event()
    with streams.interrupted_by(outside.set):
        pass
    with streams.interrupted_by(inside.set):
        signal.raise_signal(signal.SIGINT)
        assert inside.wait(HANGS)
    assert not outside.is_set()


def test_ctrl_c_ends_streams_of_main_and_alien_threads() -> None:
    with ThreadPoolExecutor(1) as pool:
        ours = pool.submit(RowStream, lambda: Rows(9)).result(HANGS)
        alien = pool.submit(_alien, lambda: RowStream(lambda: Rows(9))).result(HANGS)
    for stream, ends in ((ours, False), (alien, True), (RowStream(lambda: Rows(9)), True)):
        stream.interrupt()
        assert stream._closed is ends


def test_stream_listens_for_ctrl_c() -> None:
    signal.set_wakeup_fd(-1)
    stream = RowStream(lambda: Rows(9))
    assert signal.set_wakeup_fd(-1) != -1
    stream.close()


def test_only_ctrl_c_interrupts_the_streams(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted: list[int] = []
    stream: Any = RowStream(lambda: Rows(9))
    monkeypatch.setattr(stream, "interrupt", lambda: interrupted.append(1))
    monkeypatch.setattr(streams, "_all_streams", lambda: [stream, stream])
    monkeypatch.setattr(streams, "_main_place", lambda: "here")
    monkeypatch.setattr(streams, "_interrupted", (0.0, None))

    timeouts: list[float | None] = []

    def heard(*pieces: bytes | None) -> int:
        interrupted.clear()
        turn = iter([*pieces, b""])

        def receive(most: int) -> bytes:
            if (piece := next(turn)) is None:
                raise TimeoutError
            return piece[:most]

        streams._listen(SimpleNamespace(recv=receive, settimeout=timeouts.append))  # type: ignore[arg-type]
        assert next(turn, None) is None
        return len(interrupted)

    assert heard() == heard(bytes([signal.SIGTERM])) == 0
    assert streams._interrupted == (0.0, None)
    assert heard(bytes([signal.SIGTERM]), bytes([signal.SIGHUP, signal.SIGINT])) == 2
    assert streams._interrupted == (clock.now, "here")
    assert timeouts == [streams._FRESH]
    assert heard(bytes([signal.SIGINT]), None, bytes([signal.SIGTERM])) == 2
    assert streams._interrupted == streams._NEVER
    assert timeouts[1:] == [streams._FRESH, None]
    assert heard(bytes([signal.SIGINT]), bytes([signal.SIGINT])) == 4
    signal.signal(signal.SIGINT, lambda *_: None)
    assert heard(bytes([signal.SIGINT])) == 0
