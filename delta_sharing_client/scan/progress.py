"""A progress bar on reads that take long, where a person is watching; never in a log."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from delta_sharing_client.download.report import Progress, ScanReport
from delta_sharing_client.scan.execute import Batches
from delta_sharing_client.scan.tasks import ScanPlan, ScanStream

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

_PATIENCE = 2.0


def watched(
    plan: ScanPlan | ScanStream,
    report: ScanReport,
    batches: Batches,
    *,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Batches:
    """Return ``batches``, the rows of ``plan`` counted in ``report``, with a progress bar once the read takes long.

    The option ``progress`` decides: ``False`` never shows it, ``True`` always does, ``None`` does after two seconds
    where standard error is a terminal or the program is a notebook. Call it before the first batch is taken.
    """
    bar = _bar(f"reading {plan.context.table}", plan.context.options.progress, report, console, clock)
    if bar is not None:
        batches.at_end(bar.close)
    return batches


@contextlib.contextmanager
def progress_bar(
    title: str,
    wanted: bool | None,
    report: ScanReport,
    *,
    console: Console | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show how far what ``report`` counts has come while the block runs; ``wanted`` as the option ``progress``."""
    bar = _bar(title, wanted, report, console, clock)
    try:
        yield
    finally:
        if bar is not None:
            bar.close()


def _bar(
    title: str, wanted: bool | None, report: ScanReport, console: Console | None, clock: Callable[[], float]
) -> _Bar | None:
    if wanted is False or (wanted is None and not _someone_watches()):
        return None
    bar = _Bar(console, title, 0.0 if wanted else _PATIENCE, clock)
    report.on_progress, report.on_wait = bar.update, bar.waiting
    return bar


class _Bar:
    def __init__(self, console: Console | None, title: str, patience: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = clock() + patience
        self._title = title
        self._console = console
        self._shown: RichProgress | None = None
        self._closed = False
        self._lock = threading.Lock()

    def update(self, done: Progress) -> None:
        self._show(done.files_done < done.files_total, self._title, total=done.bytes_total, completed=done.bytes_done)

    def waiting(self, reason: str) -> None:
        """Say why nothing moves; called from any thread."""
        self._show(True, f"{self._title}: {reason}")

    def _show(self, begin: bool, description: str, **state: Any) -> None:
        with self._lock:
            if self._shown is None:
                if not begin or self._closed or self._clock() < self._due:
                    return
                self._shown = _new_bar(self._console)
                self._shown.add_task(self._title, total=None)
                self._shown.start()
            self._shown.update(self._shown.task_ids[0], description=description, **state)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._shown is not None:
                self._shown.stop()


def _new_bar(console: Console | None) -> RichProgress:
    # Imported when the first bar is drawn: it takes longer than most reads, which show none.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console or Console(stderr=True),
        transient=True,
    )


def _someone_watches() -> bool:
    # A notebook's kernel has no terminal; the bar knows how to draw there.
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
