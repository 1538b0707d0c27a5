"""What a read cost: requests, bytes, skipped work and seconds per stage."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from delta_sharing_client.notebook import Bar, html_facts, html_rows


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How far a read has come, as handed to ``ScanReport.on_progress``.

    ``files_total`` and ``bytes_total`` are of the files listed so far, and grow while the server lists more; bytes are
    the sizes of whole files, an upper bound of what will be read. ``bytes_fetched`` have arrived, of about
    ``bytes_expected`` in all.
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
    """Counters of one read. Threads of the engine add to it; read it when the read has ended.

    Attributes
    ----------
    requests, bytes, retries:
        Data requests sent (deletion vectors included), bytes of their bodies, and repeated attempts among them.
    cache_hits:
        Files served from the local cache without a request.
    files, files_skipped:
        Files read, and files that the plan left out or that a limit made unnecessary.
    row_groups, row_groups_skipped:
        Row groups read, and left out by their statistics or by those of their pages.
    pages_skipped, page_bytes_skipped:
        Pages of the needed columns that the page index, or the rows that match in the filter's columns, made
        unnecessary, and the bytes not fetched for it; those of whole row groups are among them.
    rows, rows_deleted:
        Rows returned, and rows hidden by deletion vectors.
    notes:
        Sentences on what may be missing, as the warnings of the read say it.
    seconds:
        Seconds by stage: ``plan``, ``fetch`` and ``decode`` (summed over threads), ``total`` (wall clock).
    on_progress:
        Called from the reading thread with a ``Progress`` after each file; set it before the read.
    on_wait:
        Called from any thread with the reason, in words, when a request that has failed for two seconds is tried again.
    """

    requests: int = 0
    bytes: int = 0
    retries: int = 0
    cache_hits: int = 0
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

    def add(self, **counts: int) -> None:
        """Add to the named counters; safe from any thread."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def follow(self, steps: Callable[[], tuple[int, int, int, int]], share: float = 1.0) -> None:
        """Have ``steps`` say what of ``Progress`` only the reader knows: files done and in all, their bytes likewise.

        ``share`` is about how much of a file's bytes is needed, as long as none tells.
        """
        self._steps, self._share = steps, share

    def begin(self, size: int) -> None:
        """Take note that a file of ``size`` bytes is begun."""
        with self._lock:
            self._begun += max(0, size)

    @property
    def progress(self) -> Progress | None:
        """How far the read has come, at any time and from any thread; ``None`` before it begins."""
        if self._steps is None:
            return None
        files_done, files_total, bytes_done, bytes_total = self._steps()
        fetched = self.bytes
        expected = bytes_total * self._share
        if bytes_done:
            # Of the files that are under way, half is there.
            expected = fetched * bytes_total / (bytes_done + max(0, self._begun - bytes_done) / 2)
        # What is fetched runs ahead of the files that are done, towards the end by much: no more than there is.
        expected = min(expected, bytes_total) if bytes_total else expected
        return Progress(
            files_done, files_total, bytes_done, bytes_total, self.rows, fetched, max(fetched, round(expected))
        )

    def tell(self, reason: str) -> None:
        """Hand ``reason`` on to ``on_wait``, if anyone listens."""
        if self.on_wait is not None:
            self.on_wait(reason)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add the time spent in the ``with`` block to ``seconds[name]``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spend(name, time.perf_counter() - start)

    def spend(self, name: str, seconds: float) -> None:
        """Add to ``seconds[name]``; safe from any thread."""
        with self._lock:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _repr_html_(self) -> str:
        counts = {
            field.name.replace("_", " "): getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.type == "int" and getattr(self, field.name)
        }
        longest = max(self.seconds.values(), default=0.0) or 1.0
        stages = [(name, f"{value:.3f}", Bar(value / longest)) for name, value in self.seconds.items()]
        notes = {"note": " ".join(self.notes)} if self.notes else {}
        return html_facts("What the read cost", {**counts, **notes}) + html_rows("Seconds", ["stage", "", ""], stages)

    def __str__(self) -> str:
        seconds = ", ".join(f"{name} {value:.3f} s" for name, value in self.seconds.items())
        pages = f", {self.pages_skipped} pages skipped" if self.pages_skipped else ""
        notes = "".join(f"\n{note}" for note in self.notes)
        return (
            f"{self.rows} rows from {self.files} files ({self.files_skipped} skipped) and {self.row_groups} row "
            f"groups ({self.row_groups_skipped} skipped){pages}; {self.requests} requests, {self.bytes} bytes, "
            f"{self.retries} retries, {self.cache_hits} from cache" + (f"; {seconds}" if seconds else "") + notes
        )
