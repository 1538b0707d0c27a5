"""Reads with limits: their bytes are taken from an allowance, another thread can end them, or they only plan."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Iterator

from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.tasks import Plan, ScanPlan
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.scans import Scan

_MB = 1_000_000


class Ending:
    """Ends what a call has started if the call is cancelled or takes too long. Thread-safe."""

    # Seconds between two attempts to end a call: DuckDB ignores an interrupt between two statements.
    _PAUSE = 0.1

    def __init__(self) -> None:
        self._stops: dict[object, Callable[[], object]] = {}
        self._done = threading.Event()
        self._lock = threading.Lock()

    def add(self, stop: Callable[[], object]) -> Callable[[], object]:
        """Let ``end`` call ``stop``, and return a function that forgets it."""
        key = object()
        with self._lock:
            self._stops[key] = stop
        return lambda: self._stops.pop(key, None)

    def finish(self) -> None:
        """Say that the call has returned, and stop what it left open: DuckDB keeps the reads of a query that failed."""
        self._done.set()
        with self._lock:
            stops, self._stops = list(self._stops.values()), {}
        for stop in stops:
            stop()

    def end(self) -> None:
        """Stop what the call has started until it has returned."""
        while not self._done.is_set():
            with self._lock:
                stops = list(self._stops.values())
            for stop in stops:
                stop()
            self._done.wait(self._PAUSE)


ENDING: contextvars.ContextVar[Ending] = contextvars.ContextVar("ENDING")
"""The end of the call that runs on this thread."""


@contextlib.contextmanager
def stopped_by_end(stop: Callable[[], object]) -> Iterator[None]:
    """Let the end of the current call, if any, call ``stop`` during the ``with`` block."""
    ending = ENDING.get(None)
    forget = ending.add(stop) if ending is not None else lambda: None
    try:
        yield
    finally:
        forget()


class Allowance:
    """The bytes that a call may still download, in total for all tables of a query. Thread-safe.

    ``most`` is their number at the beginning; ``advice`` ends the message if they do not suffice.
    """

    def __init__(self, most: int, advice: str = "") -> None:
        self.reports: list[ScanReport] = []
        # Tables are read on other threads than the call's.
        self.ending = ENDING.get(None)
        self._most = most
        self._left = most
        self._advice = advice
        self._lock = threading.Lock()

    def take(self, needed: int, table: str) -> None:
        """Use ``needed`` bytes of the allowance. Raises ``UsageError`` if fewer are left."""
        with self._lock:
            is_enough = needed <= self._left
            self._left -= needed if is_enough else 0
        if not is_enough:
            raise UsageError(
                f"Reading '{table}' needs about {needed / _MB:,.1f} MB more, but a call may download at most "
                f"{self._most / _MB:,.0f} MB in total. {self._advice}".rstrip()
            )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class LimitedScan(Scan):
    """A scan that takes its bytes from ``allowance`` before it reads."""

    allowance: Allowance

    @classmethod
    def of(cls, scan: Scan, allowance: Allowance) -> LimitedScan:
        """Return ``scan`` with an allowance."""
        settings = {field.name: getattr(scan, field.name) for field in dataclasses.fields(scan)}
        return cls(**settings, allowance=allowance)

    def _stream(self, options: ReadOptions | None = None) -> Plan:
        # Only a complete listing shows how many bytes the read downloads.
        return self.plan(options)

    def _run(self, plan: Plan, *, eager: bool = True, rows: int | None = None) -> Batches:
        self.allowance.take(expected_bytes(plan.whole()), str(self.table))
        batches = super()._run(plan, eager=eager, rows=rows)
        if self.report is not None:
            self.allowance.reports.append(self.report)
        if self.allowance.ending is not None:
            self.allowance.ending.add(batches.close)
        return batches


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class PlannedScan(Scan):
    """A scan that adds its plan to ``plans`` instead of reading rows."""

    plans: list[ScanPlan] = dataclasses.field(default_factory=list, compare=False)

    @classmethod
    def of(cls, scan: Scan) -> PlannedScan:
        """Return ``scan`` as one that only plans."""
        return cls(**{field.name: getattr(scan, field.name) for field in dataclasses.fields(scan)})

    def _stream(self, options: ReadOptions | None = None) -> Plan:
        return self.plan(options)

    def _run(self, plan: Plan, *, eager: bool = True, rows: int | None = None) -> Batches:
        self.plans.append(plan.whole())
        return super()._run(dataclasses.replace(plan, tasks=()), eager=eager, rows=rows)
