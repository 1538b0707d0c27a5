"""How many requests are in flight, against lines and servers that are played, on a clock that is; and what the end of
the interpreter waits for."""

from __future__ import annotations

import heapq
import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pyarrow as pa
import pytest

from delta_sharing_client.fetch.queue import Downloads, Flight

ROOT = Path(__file__).resolve().parents[3]
MOST = 64


class Line:
    """Requests to a server that takes ``slots`` at a time, answers after ``seconds`` and refuses the others at once."""

    def __init__(self, seconds: float, slots: int | None = None, most: int = MOST) -> None:
        self.now = 0.0
        self.flight = Flight(most, lambda: self.now)
        self.seconds = seconds
        self.slots = slots
        self.done = self.refused = 0
        # When each ends, and in which generation it began; those refused come again after a second.
        self._flying: list[tuple[float, int, int]] = []
        self._resting: list[float] = []
        self._tie = 0

    def run(self, requests: int) -> None:
        """Do so many requests, with others waiting all the time."""
        until = self.done + requests
        while self.done < until:
            while len(self._flying) < self.flight.limit:
                if self._resting and self._resting[0] <= self.now:
                    heapq.heappop(self._resting)
                if self.slots is not None and len(self._flying) >= self.slots:
                    self.refused += 1
                    heapq.heappush(self._resting, self.now + 1.0)
                    self.flight.refused(self.flight.generation)
                    continue
                self._tie += 1
                took = self.seconds * random.uniform(0.9, 1.1)
                heapq.heappush(self._flying, (self.now + took, self._tie, self.flight.generation))
            self.now, _, _ = heapq.heappop(self._flying)
            self.flight.answered(self.seconds)
            self.flight.finished(100_000, saturated=True)
            self.done += 1


@pytest.mark.parametrize("slots", [1, 3, 8, 15])
def test_what_a_server_takes_is_known_after_one_flight(slots: int) -> None:
    # Each that is refused costs a second, as a server asks for with Retry-After.
    flight = Flight(MOST, lambda: 0.0)
    flight.answered(0.05)
    for _ in range(flight.limit - slots):
        flight.refused(0)
    assert flight.limit == slots


@pytest.mark.parametrize("slots", [1, 2, 3, 8, 13, 31, 32, 50])
def test_a_server_that_refuses_some_is_asked_for_what_it_takes(slots: int) -> None:
    line = Line(0.05, slots)
    line.run(4_000)
    refused, began = line.refused, line.now
    line.run(4_000)
    assert line.refused - refused <= 0.05 * 4_000
    # No slower than the best fixed number by more than a tenth.
    assert line.now - began <= 1.1 * (4_000 * line.seconds / min(slots, MOST))


def test_a_server_that_takes_less_than_before_is_asked_for_less_and_later_for_more() -> None:
    line = Line(0.05, 20)
    line.run(3_000)
    assert line.flight.limit == 20
    line.slots = 5
    line.run(500)
    assert line.flight.limit == 5
    line.slots = 40
    line.run(200_000)
    assert 5 < line.flight.limit <= 40


def test_refusals_of_one_moment_are_not_halved_each_and_tell_how_many_were_taken() -> None:
    flight = Flight(32, lambda: 0.0)
    for _ in range(10):
        flight.refused(0)
    assert flight.limit == 16
    for _ in range(14):
        flight.refused(0)
    assert flight.limit == 8  # of the 32
    flight.refused(flight.generation)
    assert flight.limit == 4
    flight.refused(0)
    assert flight.limit == 4  # of long ago
    for _ in range(20):
        flight.refused(flight.generation)
    assert flight.limit == 1


def test_more_are_in_flight_while_that_raises_the_throughput() -> None:
    line = Line(0.2)
    assert line.flight.limit == 32
    line.run(500)
    assert line.flight.limit == MOST


def test_no_more_are_in_flight_where_that_changes_nothing() -> None:
    now = 0.0
    flight = Flight(256, lambda: now)
    for _ in range(5_000):
        now += 0.01  # a hundred a second, however many there are
        flight.answered(0.05)
        flight.finished(1, saturated=True)
    assert flight.limit == 48


def test_no_more_are_in_flight_where_answers_wait_for_each_other() -> None:
    now = 0.0
    flight = Flight(256, lambda: now)
    flight.answered(0.02)
    for number in range(5_000):
        now += 0.001 / (1 + number // 64)  # ever faster, by chance
        flight.answered(0.06)
        flight.finished(1, saturated=True)
    assert flight.limit == 32


def test_few_are_asked_until_the_first_answer_tells_how_soon_they_come() -> None:
    flying: list[int] = []
    go_on = threading.Event()
    now = 0.0

    def call() -> None:
        flying.append(1)
        assert go_on.wait(30)
        downloads.answered()

    with Downloads(32, lambda: now) as downloads:
        futures = [downloads.submit((number,), 100, call) for number in range(100)]
        deadline = time.monotonic() + 30
        while len(flying) < 8 and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.05)
        assert len(flying) == 8
        # Nobody answers at once: so all that are allowed are asked.
        now = 0.05
        while len(flying) < 32 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert len(flying) == 32
        go_on.set()
        assert not wait(futures, 60).not_done


def test_a_small_number_is_kept_to() -> None:
    for most in (1, 3, 10):
        line = Line(0.05, most=most)
        line.run(300)
        assert line.flight.limit == most


def test_answers_that_come_at_once_are_known() -> None:
    flight = Flight(MOST, lambda: 0.0)
    assert not flight.prompt
    flight.answered(0.05)
    assert not flight.prompt
    flight.answered(0.001)
    assert flight.prompt


def test_fewer_requests_are_enough_where_an_answer_is_here_before_the_last_one_is_decoded() -> None:
    flight = Flight(MOST, lambda: 0.0)
    flight.answered(0.005)
    assert flight.enough == 8
    flight.answered(0.001)
    assert flight.enough == min(8, 2 * pa.cpu_count())


def test_a_call_of_several_requests_is_measured_and_refused_as_each_of_them() -> None:
    seen: list[tuple[bool, float, int]] = []
    now = [0.0]

    def call() -> None:
        for seconds in (0.02, 0.004):
            if seen:
                downloads.goes_on()
            now[0] += seconds
            downloads.answered()
            seen.append((downloads.takes_runs(), downloads._flight._soonest, downloads._flight.generation))
        downloads.goes_on()
        downloads.refused()
        seen.append((downloads.takes_runs(), 0.0, downloads._flight.generation))
        # Begun before that: it is one of those, and no new one.
        downloads._sent[threading.get_ident()] = (0.0, 0)
        downloads.refused()
        seen.append((downloads.takes_runs(), 0.0, downloads._flight.generation))

    with Downloads(16, lambda: now[0]) as downloads:
        downloads.submit((0,), 100, call).result(20)
    assert [takes for takes, *_ in seen] == [False, True, False, False]
    assert [round(soonest, 3) for _, soonest, _ in seen] == [0.02, 0.004, 0.0, 0.0]
    assert [generation for *_, generation in seen] == [0, 0, 1, 1]


class Server:
    """Takes ``slots`` calls at a time; the others are refused, rest for a moment and try again."""

    def __init__(self, downloads: Downloads, slots: int, rest: float = 0.02) -> None:
        self.downloads = downloads
        self.slots = slots
        self.rest = rest
        self.lock = threading.Lock()
        self.busy = self.most = self.refused = 0

    def call(self) -> None:
        while True:
            with self.lock:
                taken = self.busy < self.slots
                self.busy += taken
                self.refused += not taken
                self.most = max(self.most, self.busy)
            if taken:
                time.sleep(0.002)
                self.downloads.answered()
                with self.lock:
                    self.busy -= 1
                return
            self.downloads.refused()
            with self.downloads.resting():
                time.sleep(self.rest)


@pytest.mark.parametrize("slots", [1, 5])
def test_all_calls_end_however_few_a_server_takes(slots: int) -> None:
    with Downloads(16) as downloads:
        server = Server(downloads, slots)
        futures = [downloads.submit((number,), 100, server.call) for number in range(200)]
        assert not wait(futures, 60).not_done
        assert all(future.exception() is None for future in futures)
    assert server.refused <= 40  # and not once a call


def test_the_end_of_a_read_is_heard_by_whoever_rests_or_waits_to_go_on() -> None:
    downloads = Downloads(4)
    server = Server(downloads, 0, rest=0.05)
    futures = [downloads.submit((number,), 100, server.call) for number in range(20)]
    time.sleep(0.2)
    downloads.stop()
    downloads.join(time.monotonic() + 10)
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(0)


def test_threads_that_a_prompt_server_needs_not_end_and_the_others_may_stay() -> None:
    stays: list[bool] = []

    def call() -> None:
        downloads.answered()
        stays.append(downloads.stays())
        time.sleep(0.001)

    with Downloads(32) as downloads:
        first = [downloads.submit((number,), 100, lambda: time.sleep(0.05)) for number in range(32)]
        futures = [downloads.submit((number,), 100, call) for number in range(100, 400)]
        assert not wait([*first, *futures], 60).not_done
        # Many were begun before the first answer came.
        assert sum(stays[-100:]) == 100
        assert downloads._threads <= 8


# === The end of the interpreter ===

SCRIPT = """
import os, sys, time
from delta_sharing_client.fetch.queue import Workers
workers = Workers(2, "w", held={held})
def work():
    began.append(1)
    time.sleep(1.0)
    os.write(1, b"done\\n")
began = []
first, second = workers.submit((0,), 1, work), workers.submit((1,), 1, work)
third = workers.submit((2,), 1, work)
while len(began) < 2:
    time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("held", "printed"),
    [
        ("lambda: 0", "done\ndone\n"),
        ("lambda: 2", ""),
        ("None", ""),
        # Two that enter a system call while they are waited for.
        ("lambda counts=iter([0, 1]): next(counts, 2)", ""),
    ],
)
def test_the_interpreter_waits_for_what_began_but_not_for_what_a_system_call_holds(held: str, printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(held=held)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (run.returncode, run.stdout, run.stderr) == (0, printed, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_process_does_not_wait_for_its_parents_work() -> None:
    fork = (
        SCRIPT.format(held="lambda: 0")
        + "if os.fork() == 0:\n    sys.exit(7)\nprint(os.wait()[1] >> 8, len(began), flush=True)\n"
    )
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", fork],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert run.stdout == "7 2\ndone\ndone\n", run.stderr
    assert time.monotonic() - began < 30
