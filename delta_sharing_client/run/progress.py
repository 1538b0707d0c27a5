"""The progress of a long read: a bar in terminals and notebooks, lines in a log if requested."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO, Union

from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.report import Progress, ScanReport
from delta_sharing_client.redact import printable
from delta_sharing_client.run.batches import Meanwhile
from delta_sharing_client.threads import start

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

_log = logging.getLogger(__name__)

Wanted = Union[bool, None, Callable[[Progress], object]]
State = Callable[[], "tuple[str, Progress | None]"]
"""Returns the title of a read, with the reason for waiting if it waits, and its progress."""
Draw = Callable[[State, threading.Event], None]
"""Draws until the event is set."""

# In seconds: the duration after which progress is shown, the interval between updates, and how long a reason for
# waiting is shown.
_DELAY = 2.0
_UPDATE_SECONDS = 0.2
_REASON_SECONDS = 2.0
# A rate measured over fewer seconds is meaningless.
_LEAST_SECONDS = 0.1
# Seconds between two lines in a log.
_LINE_SECONDS = 10.0


def progress_of(report: ScanReport, *, title: str, wanted: Wanted) -> list[Meanwhile]:
    """Return callbacks that show the progress of ``report`` once the read takes long.

    ``wanted`` is the option ``progress``: ``False`` never shows it, ``True`` always does, ``None`` does if standard
    error is a terminal or the program is a notebook; a function is called with a ``Progress`` instead.
    """
    if callable(wanted):
        return [lambda: ProgressBar(title, report, draw=functools.partial(_on_callback, wanted), delay=0.0).close]
    if wanted or (wanted is None and _is_watched()):
        return [lambda: ProgressBar(title, report, delay=0.0 if wanted else _DELAY).close]
    return []


@contextlib.contextmanager
def progress_bar(title: str, wanted: Wanted, report: ScanReport) -> Iterator[None]:
    """Show the progress of ``report`` while the block runs; ``wanted`` as in ``progress_of``."""
    ends = [begin() for begin in progress_of(report, title=title, wanted=wanted)]
    try:
        yield
    finally:
        for end in ends:
            end()


class ProgressBar:
    """Draws ``report.progress`` on its own thread, after ``delay`` seconds and until it is closed.

    Closing it removes the bar. Reasons for retries are shown as well (``ScanReport.on_wait``).
    """

    def __init__(self, title: str, report: ScanReport, *, draw: Draw | None = None, delay: float = _DELAY) -> None:
        self._title = printable(title)
        self._report = report
        self._delay = delay
        self._draw = draw
        self._reason, self._reason_time = "", 0.0
        self._closed = threading.Event()
        # A callback of the user is still called.
        self._own_callback = report.on_wait
        report.on_wait = self._waiting
        self._thread: threading.Thread | None = None
        with contextlib.suppress(UsageError):  # a read without a progress bar is better than none
            self._thread = start(self._run, "progress")

    def close(self) -> None:
        """Stop drawing, from any thread, and remove the bar."""
        self._closed.set()
        self._report.on_wait = self._own_callback
        if self._thread is not None:
            self._thread.join(1.0)

    def _waiting(self, reason: str) -> None:
        self._reason, self._reason_time = printable(reason), time.monotonic()
        if self._own_callback is not None:
            self._own_callback(reason)

    def _state(self) -> tuple[str, Progress | None]:
        reason = self._reason if time.monotonic() - self._reason_time < _REASON_SECONDS + _pause(self._reason) else ""
        return f"{self._title}: {reason}" if reason else self._title, self._report.progress

    def _run(self) -> None:
        try:
            if not self._closed.wait(self._delay):
                draw = self._draw or _choose_drawing()
                draw(self._state, self._closed)
        except Exception:
            # A problem with the display must not fail the read.
            _log.warning("The progress of a read cannot be shown.", exc_info=True)


def _pause(reason: str) -> float:
    """Return the seconds in a reason such as '... Trying again in 8 s.', during which nothing happens."""
    words = reason.removesuffix(" s.").rpartition(" in ")[2]
    return float(words) if words.isdigit() else 0.0


# === Drawing ===


def on_a_bar(state: State, closed: threading.Event, console: Console | None = None) -> None:
    """Draw in a terminal, by default on standard error, or in a notebook with ipywidgets."""
    bar = _new_bar(console)
    task = bar.add_task(state()[0], total=None)
    with bar:
        while True:
            title, progress = state()
            bar.update(task, description=title)
            if progress is not None:
                bar.update(task, completed=progress.bytes_fetched, total=progress.bytes_expected)
            bar.refresh()
            if closed.wait(_UPDATE_SECONDS):
                return


def _new_bar(console: Console | None) -> RichProgress:
    # Imported for the first bar, because the import takes longer than most reads.
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
        auto_refresh=False,
    )


def on_one_line(state: State, closed: threading.Event, out: TextIO | None = None) -> None:
    """Draw on one line, which is overwritten; for notebooks without ipywidgets."""
    stream, began, longest = out or sys.stderr, time.monotonic(), 0
    while True:
        line = one_line(*state(), time.monotonic() - began)
        longest = max(longest, len(line))
        stream.write(f"\r{line:<{longest}}")
        stream.flush()
        if closed.wait(_UPDATE_SECONDS):
            stream.write(f"\r{'':<{longest}}\r")
            stream.flush()
            return


def on_lines(state: State, closed: threading.Event) -> None:
    """Write a line to standard error at intervals, and one at the end; for logs."""
    began, is_over = time.monotonic(), False
    while not is_over:
        is_over = closed.wait(_LINE_SECONDS)
        sys.stderr.write(one_line(*state(), time.monotonic() - began) + "\n")
        sys.stderr.flush()


def _on_callback(call: Callable[[Progress], object], state: State, closed: threading.Event) -> None:
    """Call a function a few times per second, and once at the end."""
    is_over = False
    while not is_over:
        is_over = closed.wait(_UPDATE_SECONDS)
        if (progress := state()[1]) is not None:
            call(progress)


def one_line(title: str, progress: Progress | None, seconds: float) -> str:
    """Return the progress as text, ``seconds`` after the start."""
    if progress is None:
        return f"{title}: waiting for the server"
    done, whole = progress.bytes_fetched, progress.bytes_expected
    found = f"{title}: {done / 1e6:,.1f} of {whole / 1e6:,.1f} MB"
    if seconds < _LEAST_SECONDS:
        return found
    rate = done / seconds
    left = f", {(whole - done) / rate:.0f} s left" if done and seconds > 1 else ""
    return f"{found}, {rate / 1e6:,.1f} MB/s{left}"


def _choose_drawing() -> Draw:
    if _in_notebook():
        # Without ipywidgets rich warns and draws nothing.
        return on_one_line if importlib.util.find_spec("ipywidgets") is None else on_a_bar
    return on_a_bar if _is_terminal() else on_lines


def _is_watched() -> bool:
    # A notebook's kernel has no terminal, but can draw.
    return _in_notebook() or _is_terminal()


def _is_terminal() -> bool:
    stderr: Any = sys.stderr
    return stderr is not None and stderr.isatty()


def _in_notebook() -> bool:
    # Other programs import IPython as well; only a notebook's shell has a kernel.
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
