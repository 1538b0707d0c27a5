from __future__ import annotations

import importlib.util
import io
import logging
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import delta_sharing_client.run.progress as module
from delta_sharing_client.fetch.report import Progress, ScanReport, follow_progress, tell_wait
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.replica import Copies
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.run.progress import (
    ProgressBar,
    Wanted,
    on_a_bar,
    on_one_line,
    one_line,
    progress_bar,
    progress_of,
)
from tests.http_server import Exchange
from tests.unit.storages import Table, fast_options, status, wait_for

MakeTable = Callable[..., Table]
ROWS = 20_000


def watched(report: ScanReport, plan: ScanPlan, *, title: str, wanted: Wanted) -> Batches:
    return Batches(plan, report, progress_of(report, title=title, wanted=wanted))


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    result = make_table(pa.schema([("a", pa.int64())]))
    for _ in range(4):
        result.add(pa.table({"a": range(ROWS)}), write={"compression": "none", "use_dictionary": False})
    return result


def slow(handler: Exchange, data: bytes) -> bool:
    """A fault: send the body in ten pieces over half a second."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    step = -(-len(data) // 10)
    for at in range(0, len(data), step):
        time.sleep(0.05)
        handler.wfile.write(data[at : at + step])
        handler.wfile.flush()
    return True


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def read(table: Table, progress: Any, **options: Any) -> ScanReport:
    plan, report = table.plan(options=fast_options(progress=progress, **options)), ScanReport()
    batches = watched(report, plan, title="reading t", wanted=progress)
    assert sum(batch.num_rows for batch in batches) == 4 * ROWS
    assert drawing() == []
    return report


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error with a terminal and return it. Call it inside the test, because pytest replaces standard
    error for each test."""
    out = Terminal()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(module, "_UPDATE_SECONDS", 0.02)
    return out


def test_progress_bar_is_shown_on_request(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = terminal(monkeypatch)
    read(table, True)
    assert "reading t" in drawn.getvalue()
    assert "signature" not in drawn.getvalue()


def test_quick_read_shows_nothing_by_default(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = terminal(monkeypatch)
    read(table, None)
    assert drawn.getvalue() == ""


def test_slow_read_shows_a_bar_before_its_first_file_is_done(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    monkeypatch.setattr(module, "_DELAY", 0.1)
    seen: list[Progress] = []
    monkeypatch.setattr(module, "on_a_bar", lambda state, closed: module._on_callback(seen.append, state, closed))
    table.storage.faults["part-0.parquet"] = [slow]
    plan, report = table.plan(options=fast_options()), ScanReport()
    batches = watched(report, plan, title="reading t", wanted=None)
    assert sum(batch.num_rows for batch in batches) == 4 * ROWS
    assert [found for found in seen if found.files_done == 0 and 0 < found.bytes_fetched < found.bytes_expected]


def test_unstarted_and_empty_reads_draw_nothing(
    make_table: MakeTable, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = terminal(monkeypatch)
    for plan in (make_table(pa.schema([("a", pa.int64())])).plan(), table.plan(), table.plan(limit=0)):
        report = ScanReport()
        batches = watched(report, plan, title="reading t", wanted=True)
        batches.close()
        del batches
    empty = make_table(pa.schema([("a", pa.int64())])).plan()
    assert list(watched(report, empty, title="reading t", wanted=True)) == []
    assert drawing() == []
    assert drawn.getvalue() == ""


def drawing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "progress"]


@pytest.mark.parametrize("progress", [False, None])
def test_no_bar_without_a_terminal(table: Table, monkeypatch: pytest.MonkeyPatch, progress: bool | None) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(module, "_DELAY", 0.0)
    read(table, progress)
    assert out.getvalue() == ""


def test_log_lines_are_written_on_request(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(module, "_LINE_SECONDS", 0.05)
    table.storage.faults["part-0.parquet"] = [slow]
    read(table, True)
    *first, last = out.getvalue().splitlines()
    assert first
    assert all(line.startswith("reading t: ") and line.isprintable() for line in (*first, last))
    assert "0.6 of 0.6 MB" in last


def test_progress_counts_bytes_as_they_arrive(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UPDATE_SECONDS", 0.01)
    for part in range(4):
        table.storage.faults[f"part-{part}.parquet"] = [slow]
    seen: list[Progress] = []
    report = read(table, seen.append)
    fetched = [found.bytes_fetched for found in seen]
    assert fetched == sorted(fetched)
    assert len(set(fetched)) > 2
    # Only whole columns of small files are read, so the first estimate is close and the last one exact.
    assert all(0.8 * report.bytes <= found.bytes_expected <= 1.6 * report.bytes for found in seen)
    last = seen[-1]
    assert (last.files_done, last.files_total, last.rows) == (4, 4, 4 * ROWS)
    assert last.bytes_fetched == last.bytes_expected == report.bytes


def test_last_update_comes_after_the_last_row_is_consumed(table: Table) -> None:
    seen: list[Progress] = []
    plan, report = table.plan(options=fast_options()), ScanReport()
    batches = watched(report, plan, title="reading t", wanted=seen.append)
    next(batches)
    wait_for(lambda: report.bytes == sum(task.size for task in plan.tasks))
    time.sleep(0.3)  # everything is decoded before the slow consumer takes more
    assert drawing()
    assert sum(batch.num_rows for batch in batches) > 0
    assert (seen[-1].files_done, seen[-1].rows) == (4, 4 * ROWS)
    assert drawing() == []


def test_failing_progress_callback_does_not_fail_the_read(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    def failing(progress: Progress) -> None:
        raise KeyError("mine")

    with caplog.at_level(logging.WARNING, "delta_sharing_client.run.progress"):
        read(table, failing)
    assert [record.getMessage() for record in caplog.records] == ["The progress of a read cannot be shown."]


def test_bar_ends_when_the_read_is_closed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch)
    plan, report = table.plan(options=fast_options()), ScanReport()
    batches = watched(report, plan, title="reading t", wanted=True)
    next(batches)
    batches.close()
    # A second is allowed, because the machine may be busy with other tests.
    wait_for(lambda: not drawing())


def test_copy_reports_its_progress(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UPDATE_SECONDS", 0.01)
    plan, report = table.plan(), ScanReport()
    seen: list[Progress] = []
    with progress_bar("copying it", seen.append, report):
        copies = Copies(plan.context, report)
        copies.files((task, tmp_path / str(place)) for place, task in enumerate(plan.tasks))
    last = seen[-1]
    assert (last.files_done, last.files_total) == (4, 4)
    assert last.bytes_fetched == last.bytes_expected == sum(task.size for task in plan.tasks)


@pytest.mark.parametrize("on_terminal", [True, False])
def test_reason_for_a_stall_is_shown(table: Table, monkeypatch: pytest.MonkeyPatch, on_terminal: bool) -> None:
    drawn = terminal(monkeypatch)
    if not on_terminal:
        monkeypatch.setattr(module, "_choose_drawing", lambda: on_one_line)
    monkeypatch.setattr(module, "on_a_bar", lambda state, closed: on_a_bar(state, closed, wide(drawn)))
    table.storage.faults["part-1.parquet"] = [status(503, {"Retry-After": "2"})]
    read(table, True, max_concurrent_requests=1)
    assert "the storage responded with HTTP status 503. Trying again in 2 s." in drawn.getvalue()


def wide(out: Terminal) -> Console:
    return Console(file=out, force_terminal=True, width=200)


def test_existing_wait_callback_is_called_and_kept() -> None:
    heard: list[str] = []
    report = ScanReport(on_wait=heard.append)
    bar = ProgressBar("t", report, draw=lambda state, closed: None, delay=0.0)
    tell_wait(report, "busy")
    bar.close()
    tell_wait(report, "later")
    assert heard == ["busy", "later"]


def test_control_characters_of_a_server_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = terminal(monkeypatch)
    report = ScanReport()
    bar = ProgressBar("t\x1b[2J", report, delay=0.0)
    tell_wait(report, "gone\x1b[31m\u202e. Trying again in 2 s.")
    while "gone" not in drawn.getvalue():
        time.sleep(0.01)
    bar.close()
    assert "t\\x1b[2J" in drawn.getvalue()
    assert "gone\\x1b[31m\\u202e" in drawn.getvalue()


@pytest.mark.parametrize(
    ("fetched", "done", "expected"), [(100, 25, 100), (90, 80, 100), (130, 100, 130), (20, 40, 50), (0, 0, 100)]
)
def test_expected_bytes_are_estimated_from_finished_files(fetched: int, done: int, expected: int) -> None:
    report = ScanReport(bytes=fetched)
    follow_progress(report, lambda: (1, 4, done, 100))

    assert report.progress is not None
    assert report.progress.bytes_expected == expected


# --- drawing, without a read ---


class Closed:
    """An event that is set after ``waits`` calls of wait(), whose timeouts it records."""

    def __init__(self, waits: int) -> None:
        self.left = waits
        self.seconds: list[float | None] = []

    def wait(self, seconds: float | None = None) -> bool:
        self.seconds.append(seconds)
        self.left -= 1
        return self.left <= 0


HALF = Progress(1, 2, 4_000_000, 8_000_000, 10, 2_000_000, 4_000_000)


def states(*found: Progress | None) -> Callable[[], tuple[str, Progress | None]]:
    turn = iter([(f"t{'x' * (3 - number)}", progress) for number, progress in enumerate(found)])
    return lambda: next(turn)


def test_progress_line_is_rewritten_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    out, closed = io.StringIO(), Closed(2)
    monkeypatch.setattr(module.time, "monotonic", iter([10.0, 10.0, 14.0]).__next__)
    module.on_one_line(states(None, HALF), closed, out)  # type: ignore[arg-type]
    first, second = "txxx: waiting for the server", "txx: 2.0 of 4.0 MB, 0.5 MB/s, 4 s left"
    assert out.getvalue() == f"\r{first}\r{second}\r{'':<{len(second)}}\r"
    assert closed.seconds == [0.2, 0.2]
    monkeypatch.setattr(module.time, "monotonic", iter([10.0, 10.0, 10.0]).__next__)
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    # A shorter line overwrites all of a longer one.
    module.on_one_line(states(None, None), Closed(2))  # type: ignore[arg-type]
    assert out.getvalue() == f"\r{first}\r{first.replace('xxx', 'xx'):<{len(first)}}\r{'':<{len(first)}}\r"


def test_log_gets_periodic_lines_and_a_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    monkeypatch.setattr(module.time, "monotonic", iter([10.0, 14.0, 18.0]).__next__)
    closed = Closed(2)
    module.on_lines(states(HALF, HALF), closed)  # type: ignore[arg-type]
    lines = ["txxx: 2.0 of 4.0 MB, 0.5 MB/s, 4 s left", "txx: 2.0 of 4.0 MB, 0.2 MB/s, 8 s left"]
    assert out.getvalue().splitlines() == lines
    assert closed.seconds == [10.0, 10.0]


def test_callback_gets_the_known_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    closed = Closed(3)
    module._on_callback(seen.append, states(None, HALF, HALF), closed)  # type: ignore[arg-type]
    assert (seen, closed.seconds) == ([HALF, HALF], [0.2] * 3)


def test_remaining_time_is_shown_only_if_known() -> None:
    nothing = Progress(0, 2, 0, 8_000_000, 0, 0, 4_000_000)
    assert one_line("t", nothing, 4.0) == "t: 0.0 of 4.0 MB, 0.0 MB/s"
    assert one_line("t", HALF, 1.0) == "t: 2.0 of 4.0 MB, 2.0 MB/s"
    assert one_line("t", HALF, 1.01) == "t: 2.0 of 4.0 MB, 2.0 MB/s, 1 s left"
    assert one_line("t", HALF, 0.1) == "t: 2.0 of 4.0 MB, 20.0 MB/s"
    assert one_line("t", HALF, 0.0999) == "t: 2.0 of 4.0 MB"
    assert one_line("t", Progress(0, 1, 0, 1, 0, 2_000_000_000, 3_000_000_000), 0.0) == "t: 2,000.0 of 3,000.0 MB"


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [("Slow. Trying again in 8 s.", 8.0), ("Slow. Trying again in x s.", 0.0), ("Slow.", 0.0), ("", 0.0)],
)
def test_reason_for_waiting_is_shown_while_it_applies(
    monkeypatch: pytest.MonkeyPatch, reason: str, seconds: float
) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    report = ScanReport()
    bar = ProgressBar("t\x1b[2J", report, draw=lambda *_: None, delay=0.0)
    assert bar._state() == (bar._title, None)
    assert "\x1b" not in bar._title
    tell_wait(report, reason)
    for later, is_shown in ((0.0, True), (1.99 + seconds, True), (2.0 + seconds, False)):
        now[0] = 100.0 + later
        assert bar._state()[0] == (f"{bar._title}: {reason}" if is_shown and reason else bar._title)
    bar.close()
    assert report.on_wait is None


@pytest.mark.parametrize("kind", ["terminal", "log", "none", "notebook", "kernel-less", "bare notebook"])
def test_display_depends_on_the_environment(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sys, "stderr", {"terminal": Terminal(), "none": None}.get(kind, io.StringIO()))
    shell = types.SimpleNamespace(kernel=1) if kind.endswith("notebook") else types.SimpleNamespace()
    if kind in ("notebook", "kernel-less", "bare notebook"):
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    else:
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: name if kind == "notebook" and name == "ipywidgets" else None
    )
    is_watched = kind in ("terminal", "notebook", "bare notebook")
    assert module._is_watched() is is_watched
    expected = {"terminal": on_a_bar, "notebook": on_a_bar, "bare notebook": on_one_line}.get(kind, module.on_lines)
    assert module._choose_drawing() is expected
    report = ScanReport()
    for wanted, delays in ((None, [2.0] if is_watched else []), (True, [0.0]), (False, [])):
        made: list[Any] = []

        def noted(*what: Any, made: list[Any] = made, **how: Any) -> Any:
            made.append((*what, how))
            return types.SimpleNamespace(close=1)

        monkeypatch.setattr(module, "ProgressBar", noted)
        assert [begin() for begin in progress_of(report, title="t", wanted=wanted)] == [1] * len(delays)
        assert made == [("t", report, {"delay": delay}) for delay in delays]


def test_bar_shows_brackets_in_a_name_as_they_are() -> None:
    out = Terminal()
    on_a_bar(lambda: ("reading s.d.[red]t", None), Closed(1), wide(out))  # type: ignore[arg-type]
    assert "reading s.d.[red]t" in out.getvalue()


def test_bar_shows_title_and_bytes() -> None:
    updates: list[Any] = []

    class Fake:
        def add_task(self, title: str, total: object) -> int:
            updates.append(("add", title, total))
            return 7

        def update(self, task: int, **what: Any) -> None:
            updates.append((task, what))

        def refresh(self) -> None:
            updates.append("refresh")

        def __enter__(self) -> None:
            updates.append("enter")

        def __exit__(self, *_: object) -> None:
            updates.append("exit")

    closed = Closed(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_new_bar", lambda console: Fake())
        on_a_bar(states(None, None, HALF), closed)  # type: ignore[arg-type]
    assert updates == [
        *(("add", "txxx", None), "enter"),
        *((7, {"description": "txx"}), "refresh"),
        *((7, {"description": "tx"}), (7, {"completed": 2_000_000, "total": 4_000_000}), "refresh", "exit"),
    ]
    assert closed.seconds == [0.2, 0.2]
