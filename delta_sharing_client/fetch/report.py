"""The cost of a read: requests, bytes, skipped work, and seconds per stage."""

from __future__ import annotations

import dataclasses
import threading
import time
import warnings
from collections.abc import Callable, Sequence

from delta_sharing_client.notebook import BarCell, html_facts, html_rows


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a read, as passed to ``ScanReport.on_progress``.

    ``files_total`` and ``bytes_total`` count the files listed so far, and grow while the server lists more.
    ``bytes_done`` and ``bytes_total`` are sizes of whole files, of which a read may need only parts. ``bytes_fetched``
    is the number of bytes that have arrived, and ``bytes_expected`` estimates how many will arrive in total.
    """

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    rows: int
    bytes_fetched: int = 0
    bytes_expected: int = 0


@dataclasses.dataclass(slots=True)
class ScanReport:
    """Counters of one read. The threads of the read add to them; they are final when the read has ended.

    Attributes
    ----------
    requests, bytes, retries:
        Requests for data (including deletion vectors), the bytes of their responses, and the number of retries.
    files, files_skipped:
        Files read, and files that the plan skipped or that a limit made unnecessary.
    row_groups, row_groups_skipped:
        Row groups read, and row groups skipped by their statistics or by those of their pages.
    pages_skipped, page_bytes_skipped:
        Pages of the needed columns that were skipped by the page index, or because no row matches the filter in them,
        and the bytes of these pages; including the pages of skipped row groups.
    rows, rows_deleted:
        Rows returned, and rows hidden by deletion vectors.
    notes:
        Sentences about what may be missing, as in the warnings of the read.
    seconds:
        Seconds by stage: ``plan``, ``fetch`` and ``decode`` (both summed over threads), and ``total`` (wall clock).
    on_progress:
        Called from the reading thread with a ``Progress`` after each file; set it before the read.
    on_wait:
        Called from any thread with the reason when a request that has failed for two seconds is retried.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    files: int = 0
    files_skipped: int = 0
    row_groups: int = 0
    row_groups_skipped: int = 0
    pages_skipped: int = 0
    page_bytes_skipped: int = 0
    rows: int = 0
    rows_deleted: int = 0
    notes: Sequence[str] = ()
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    on_progress: Callable[[Progress], None] | None = dataclasses.field(default=None, repr=False, compare=False)
    on_wait: Callable[[str], None] | None = dataclasses.field(default=None, repr=False, compare=False)
    _steps: Callable[[], tuple[int, int, int, int]] | None = dataclasses.field(default=None, repr=False, compare=False)
    _share: float = dataclasses.field(default=1.0, repr=False, compare=False)
    _begun: int = dataclasses.field(default=0, repr=False, compare=False)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def cache_hits(self) -> int:
        """Deprecated: always 0, because files are no longer cached on disk."""
        warnings.warn(
            "'cache_hits' is always 0: the cache on disk was removed. 'replicate()' keeps a local copy of a table.",
            DeprecationWarning,
            stacklevel=2,
        )
        return 0

    @property
    def progress(self) -> Progress | None:
        """The progress of the read, at any time and from any thread; ``None`` before it starts."""
        if self._steps is None:
            return None
        files_done, files_total, bytes_done, bytes_total = self._steps()
        fetched = self.bytes
        expected = bytes_total * self._share
        if bytes_done:
            # Assume that half the bytes of the unfinished files have been processed.
            expected = fetched * bytes_total / (bytes_done + max(0, self._begun - bytes_done) / 2)
        # Downloads are ahead of finished files, near the end by far, so the estimate is limited to the total.
        expected = min(expected, bytes_total) if bytes_total else expected
        return Progress(
            files_done, files_total, bytes_done, bytes_total, self.rows, fetched, max(fetched, round(expected))
        )

    def _repr_html_(self) -> str:
        counts = {
            field.name.replace("_", " "): getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.type == "int" and getattr(self, field.name)
        }
        longest = max(self.seconds.values(), default=0.0) or 1.0
        stages = [(_stage(name), f"{value:.3f}", BarCell(value / longest)) for name, value in self.seconds.items()]
        notes = {"note": " ".join(self.notes)} if self.notes else {}
        return html_facts("Cost of the read", {**counts, **notes}) + html_rows("Seconds", ["stage", "", ""], stages)

    def __str__(self) -> str:
        seconds = ", ".join(f"{_stage(name)} {value:.3f} s" for name, value in self.seconds.items())
        pages = f", {self.pages_skipped} pages skipped" if self.pages_skipped else ""
        notes = "".join(f"\n{note}" for note in self.notes)
        return (
            f"{self.rows} rows from {self.files} files ({self.files_skipped} skipped) and {self.row_groups} row "
            f"groups ({self.row_groups_skipped} skipped){pages}; {self.requests} requests, {self.bytes} bytes, "
            f"{self.retries} retries" + (f"; {seconds}" if seconds else "") + notes
        )


# === Written by a read ===


def add_counts(report: ScanReport, **counts: int) -> None:
    """Add to the named counters; thread-safe."""
    with report._lock:
        for name, count in counts.items():
            setattr(report, name, getattr(report, name) + count)


def add_seconds(report: ScanReport, stage: str, seconds: float) -> None:
    """Add to ``report.seconds[stage]``; thread-safe."""
    with report._lock:
        report.seconds[stage] = report.seconds.get(stage, 0.0) + seconds


class Timed:
    """A context manager that adds the time spent in its ``with`` block to ``report.seconds[stage]``.

    A generator-based one would take several times as long for each small file.
    """

    __slots__ = ("_began", "_report", "_stage")

    def __init__(self, report: ScanReport, stage: str) -> None:
        self._report = report
        self._stage = stage

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        add_seconds(self._report, self._stage, time.perf_counter() - self._began)


def follow_progress(report: ScanReport, steps: Callable[[], tuple[int, int, int, int]], share: float = 1.0) -> None:
    """Use ``steps`` for the fields of ``Progress`` that only the reader knows: the files done and in total, and the
    bytes of both.

    ``share`` is an estimate of the fraction of a file's bytes that is needed; it is used until a file is done.
    """
    report._steps, report._share = steps, share


def file_started(report: ScanReport, size: int) -> None:
    """Record that a file of ``size`` bytes was started."""
    with report._lock:
        report._begun += max(0, size)


def tell_wait(report: ScanReport, reason: str) -> None:
    """Call ``report.on_wait``, if it is set, with ``reason``."""
    if report.on_wait is not None:
        report.on_wait(reason)


def _stage(name: str) -> str:
    # Requests and threads run concurrently, so the sum over them may exceed the total.
    return f"{name} (sum)" if name in ("fetch", "decode") else name
