"""How far a long read has come, where a person is watching: bytes as they arrive; in a log only when asked for."""

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

from delta_sharing_client.fetch.report import Progress, ScanReport
from delta_sharing_client.redact import printable
from delta_sharing_client.run.batches import Meanwhile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

_log = logging.getLogger(__name__)

Wanted = Union[bool, None, Callable[[Progress], object]]
State = Callable[[], "tuple[str, Progress | None]"]
"""What a read is called, why it waits if it does, and how far it is."""
Draw = Callable[[State, threading.Event], None]
"""Draws until the event is set."""

# Seconds: a read that is shorter shows nothing; how often it is drawn; how long it is told why nothing moves.
_PATIENCE = 2.0
_EVERY = 0.2
_TOLD = 2.0
# In a log, a line.
_EVERY_LINE = 10.0


def progress_of(report: ScanReport, *, title: str, wanted: Wanted) -> list[Meanwhile]:
    """Return what shows, while a read goes on, how far what ``report`` counts has come; once the read takes long.

    ``wanted`` is the option ``progress``: ``False`` never shows it, ``True`` always does, ``None`` does where standard
    error is a terminal or the program is a notebook; anything that can be called gets a ``Progress`` in place of a
    person.
    """

    def begin() -> Callable[[], None]:
        bar = _bar(title, wanted, report)
        return (lambda: None) if bar is None else bar.close

    return [begin] if _is_wanted(wanted) else []


@contextlib.contextmanager
def progress_bar(title: str, wanted: Wanted, report: ScanReport) -> Iterator[None]:
    """Show how far what ``report`` counts has come while the block runs; ``wanted`` as in ``watched``."""
    bar = _bar(title, wanted, report)
    try:
        yield
    finally:
        if bar is not None:
            bar.close()


def _bar(title: str, wanted: Wanted, report: ScanReport) -> Bar | None:
    if callable(wanted):
        return Bar(title, report, draw=functools.partial(_told_to, wanted), patience=0.0)
    return Bar(title, report, patience=0.0 if wanted else _PATIENCE) if _is_wanted(wanted) else None


def _is_wanted(wanted: Wanted) -> bool:
    return bool(wanted) or (wanted is None and _someone_watches())


class Bar:
    """Draws ``report.progress`` on a thread of its own, from ``patience`` seconds on and until it is closed.

    Closing it takes what was drawn away. Why a request is tried again is told as well (``ScanReport.on_wait``).
    """

    def __init__(
        self, title: str, report: ScanReport, *, draw: Draw | None = None, patience: float = _PATIENCE
    ) -> None:
        self._title = printable(title)
        self._report = report
        self._patience = patience
        self._draw = draw
        self._reason, self._told = "", 0.0
        self._closed = threading.Event()
        # A listener of the program's own keeps what it hears.
        self._heard = report.on_wait
        report.on_wait = self._waiting
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it, from any thread; what is drawn goes."""
        self._closed.set()
        self._report.on_wait = self._heard
        self._thread.join(1.0)

    def _waiting(self, reason: str) -> None:
        self._reason, self._told = printable(reason), time.monotonic()
        if self._heard is not None:
            self._heard(reason)

    def _state(self) -> tuple[str, Progress | None]:
        reason = self._reason if time.monotonic() - self._told < _TOLD + _pause(self._reason) else ""
        return f"{self._title}: {reason}" if reason else self._title, self._report.progress

    def _run(self) -> None:
        try:
            if not self._closed.wait(self._patience):
                draw = self._draw or _way_to_draw()
                draw(self._state, self._closed)
        except Exception:
            # Whatever goes wrong with a picture is no reason for the read to fail.
            _log.warning("The progress of a read cannot be shown.", exc_info=True)


def _pause(reason: str) -> float:
    """Return how long a reason such as '... Trying again in 8 s.' says that nothing will happen."""
    words = reason.removesuffix(" s.").rpartition(" in ")[2]
    return float(words) if words.isdigit() else 0.0


# === Drawing ===


def on_a_bar(state: State, closed: threading.Event, console: Console | None = None) -> None:
    """Draw on a terminal, standard error unless given, or in a notebook with ipywidgets."""
    bar = _new_bar(console)
    task = bar.add_task(state()[0], total=None)
    with bar:
        while True:
            title, progress = state()
            bar.update(task, description=title)
            if progress is not None:
                bar.update(task, completed=progress.bytes_fetched, total=progress.bytes_expected)
            bar.refresh()
            if closed.wait(_EVERY):
                return


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
        auto_refresh=False,
    )


def on_one_line(state: State, closed: threading.Event, out: TextIO | None = None) -> None:
    """Write one line again and again: for notebooks without the widgets that a bar needs there."""
    stream, began, longest = out or sys.stderr, time.monotonic(), 0
    while True:
        line = one_line(*state(), time.monotonic() - began)
        longest = max(longest, len(line))
        stream.write(f"\r{line:<{longest}}")
        stream.flush()
        if closed.wait(_EVERY):
            stream.write(f"\r{'':<{longest}}\r")
            stream.flush()
            return


def on_lines(state: State, closed: threading.Event) -> None:
    """Write a line on standard error now and then, and one at the end: for a log."""
    began, is_over = time.monotonic(), False
    while not is_over:
        is_over = closed.wait(_EVERY_LINE)
        sys.stderr.write(one_line(*state(), time.monotonic() - began) + "\n")
        sys.stderr.flush()


def _told_to(call: Callable[[Progress], object], state: State, closed: threading.Event) -> None:
    """Tell a program: a few times a second, and once at the end."""
    is_over = False
    while not is_over:
        is_over = closed.wait(_EVERY)
        if (progress := state()[1]) is not None:
            call(progress)


def one_line(title: str, progress: Progress | None, seconds: float) -> str:
    """Return how far a read is, ``seconds`` after it was first looked at, in words."""
    if progress is None:
        return f"{title}: asking the server"
    done, whole = progress.bytes_fetched, progress.bytes_expected
    rate = done / max(seconds, 1e-9)
    left = f", {(whole - done) / rate:.0f} s left" if done and seconds > 1 else ""
    return f"{title}: {done / 1e6:,.1f} of {whole / 1e6:,.1f} MB, {rate / 1e6:,.1f} MB/s{left}"


def _way_to_draw() -> Draw:
    if _in_notebook():
        # Without ipywidgets rich warns, and draws nothing.
        return on_one_line if importlib.util.find_spec("ipywidgets") is None else on_a_bar
    return on_a_bar if _is_terminal() else on_lines


def _someone_watches() -> bool:
    # A notebook's kernel has no terminal, and draws all the same.
    return _in_notebook() or _is_terminal()


def _is_terminal() -> bool:
    stderr: Any = sys.stderr
    return stderr is not None and stderr.isatty()


def _in_notebook() -> bool:
    # Others import IPython as well; only a notebook's shell has a kernel.
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
