from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from delta_sharing_client.download.report import Progress, ScanReport
from delta_sharing_client.scan.copies import Copies
from delta_sharing_client.scan.execute import execute
from delta_sharing_client.scan.progress import progress_bar, watched
from tests.unit.scan.support import Table, fast_options, status

MakeTable = Callable[..., Table]


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    found = make_table(pa.schema([("a", pa.int64())]))
    for _ in range(4):
        found.add(pa.table({"a": [1, 2]}))
    return found


class Clock:
    """Each look at it is a second later."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def shown(table: Table, progress: bool | None) -> str:
    out = io.StringIO()
    plan = table.plan(options=fast_options(progress=progress))
    report = ScanReport()
    console = Console(file=out, force_terminal=True, width=100)
    rows = sum(batch.num_rows for batch in watched(plan, report, execute(plan, report), console=console, clock=Clock()))
    assert rows == 8
    return out.getvalue()


def test_a_bar_is_shown_when_it_is_wanted(table: Table) -> None:
    text = shown(table, True)
    assert "reading share.schema.t" in text
    assert "signature" not in text


def test_no_bar_is_shown_when_it_is_not_wanted(table: Table) -> None:
    assert shown(table, False) == ""


def test_nobody_watching_means_no_bar(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # other tests may have imported it here
    assert shown(table, None) == ""


def test_a_terminal_gets_a_bar_once_the_read_is_long(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    assert "reading share.schema.t" in shown(table, None)


def test_the_bar_ends_when_the_read_is_given_up(table: Table) -> None:
    out = io.StringIO()
    plan = table.plan(options=fast_options(progress=True))
    report = ScanReport()
    console = Console(file=out, force_terminal=True, width=100)
    batches = watched(plan, report, execute(plan, report), console=console, clock=Clock())
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert report.rows <= 8


def test_a_copy_shows_how_far_it_is(table: Table, tmp_path: Path) -> None:
    plan, report = table.plan(), ScanReport()
    out = io.StringIO()
    seen: list[Progress] = []
    with progress_bar(
        "copying it", True, report, console=Console(file=out, force_terminal=True, width=100), clock=Clock()
    ):
        draw = report.on_progress
        assert draw is not None
        report.on_progress = lambda done: (seen.append(done), draw(done))[1]
        with Copies(plan.context, report) as copies:
            copies.files((task, tmp_path / str(place)) for place, task in enumerate(plan.tasks))
    assert "copying it" in out.getvalue()
    assert [(done.files_done, done.files_total) for done in seen] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert seen[-1].bytes_done == seen[-1].bytes_total == sum(task.size for task in plan.tasks)


def test_a_bar_says_why_nothing_moves(table: Table) -> None:
    out = io.StringIO()
    table.storage.faults["part-1.parquet"] = [status(503, {"Retry-After": "3"})]
    plan = table.plan(options=fast_options(progress=True, max_concurrent_requests=1))
    report = ScanReport()
    console = Console(file=out, force_terminal=True, width=200)
    rows = sum(batch.num_rows for batch in watched(plan, report, execute(plan, report), console=console, clock=Clock()))
    assert rows == 8
    assert "the storage answered with HTTP status 503. Trying again in 3 s." in out.getvalue()
