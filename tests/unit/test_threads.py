"""Threads, and a pool of them that accepts jobs for as long as the program runs."""

from __future__ import annotations

import gc
import pathlib
import threading
import weakref
from typing import Any

import pytest

from delta_sharing_client import threads
from delta_sharing_client.errors import UsageError
from delta_sharing_client.threads import Threads, check_running, start
from tests.time_limits import HANGS


class Value:
    pass


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_jobs_run_on_named_threads_and_return_or_raise() -> None:
    def fails() -> None:
        raise ValueError("as told")

    with Threads(3, "some") as pool:
        assert list(pool.map(lambda value: value * 2, range(20))) == [value * 2 for value in range(20)]
        names = set(pool.map(lambda _: threading.current_thread().name, range(20)))
        assert names <= {"some_0", "some_1", "some_2"}
        assert pool.submit(pow, 2, exp=3).result() == 8
        failing = pool.submit(fails)
        with pytest.raises(ValueError, match="as told"):
            failing.result()
    assert not [each for each in threading.enumerate() if each.name.startswith("some_")]


def test_pool_starts_threads_on_demand_up_to_its_size() -> None:
    with Threads(3, "few") as pool:
        for _ in range(5):
            assert pool.submit(lambda: threading.current_thread().name).result() == "few_0"
            # The thread updates its count after it has set the result.
            with pool._lock:
                pass
            while pool._count:
                pass
        together = threading.Barrier(3)
        assert len({each.result() for each in [pool.submit(together.wait, 60) for _ in range(3)]}) == 3


def test_waiting_thread_keeps_neither_result_nor_error() -> None:
    with Threads(1, "kept") as pool:
        result = pool.submit(Value)
        reference = weakref.ref(result.result())
        del result
        pool.submit(int).result()
        assert reference() is None

        def fails() -> None:
            held = Value()
            references.append(weakref.ref(held))
            raise ValueError

        references: list[Any] = []
        gc.disable()
        try:
            with pytest.raises(ValueError):  # noqa: PT011 - it has no text
                pool.submit(fails).result()
            assert references[0]() is None
        finally:
            gc.enable()


def test_shut_down_pool_accepts_no_job() -> None:
    pool, begun, go_on = Threads(1, "shut"), threading.Event(), threading.Event()

    def wait() -> str:
        begun.set()
        assert go_on.wait(60)
        return "done"

    running, waiting = pool.submit(wait), pool.submit(str)
    assert begun.wait(60)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    assert not running.done()
    go_on.set()
    pool.shutdown()
    assert running.result() == "done"
    with pytest.raises(UsageError, match="The program is ending"):
        pool.submit(str)


def test_shutdown_runs_queued_jobs_first() -> None:
    with Threads(1, "rest") as pool:
        results = [pool.submit(str, number) for number in range(50)]
    assert [each.result() for each in results] == [str(number) for number in range(50)]


def test_failure_to_start_a_thread_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Threads(2, "none")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(UsageError, match=r"No thread can be started \(can't start new thread\). Raise the limit"):
            pool.submit(str)
        with pytest.raises(UsageError, match="No thread can be started"):
            start(str, "none")
    # The pool keeps no reference to the refused job.
    assert pool.submit(str, 7).result() == "7"
    assert pool._jobs.empty()
    pool.shutdown()


def test_all_jobs_run_with_fewer_threads_than_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    with Threads(3, "fewer") as pool:
        first = pool.submit(go_on.wait, 60)
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        others = [pool.submit(str, number) for number in range(3)]
        go_on.set()
        assert first.result()
        assert [each.result() for each in others] == ["0", "1", "2"]


def test_nothing_starts_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    check_running()
    monkeypatch.setattr(threads.sys, "is_finalizing", lambda: True)
    for refused in (check_running, lambda: start(str, "late"), lambda: Threads(1, "late").submit(str)):
        with pytest.raises(UsageError, match="The program is ending, so no read can begin"):
            refused()


def test_mapped_results_are_in_order_and_errors_are_raised() -> None:
    barrier = threading.Barrier(3)

    def together(number: int) -> int:
        barrier.wait(HANGS)
        return 10 * number

    assert threads.mapped(together, range(6), most=3, name="three") == [0, 10, 20, 30, 40, 50]
    assert threads.mapped(str, [], most=3, name="none") == []
    with pytest.raises(ValueError, match="'b'"):
        threads.mapped(int, ["1", "b", "c"], most=2, name="two")


def test_other_modules_create_threads_by_start() -> None:
    package = pathlib.Path(threads.__file__).parent
    texts = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [name for name, text in texts.items() if "threading.Thread(" in text] == ["threads.py"]
