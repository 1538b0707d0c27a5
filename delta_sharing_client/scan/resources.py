"""What the files of one scan share: connections, threads, memory, and what was learned so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar, Union

import pyarrow as pa

from delta_sharing_client.download.cache import FileCache
from delta_sharing_client.download.memory import Buffers, Window
from delta_sharing_client.download.queue import Downloads, Order, Workers
from delta_sharing_client.download.remote_file import Reader
from delta_sharing_client.download.report import ScanReport
from delta_sharing_client.parquet.footer import FooterGuess
from delta_sharing_client.scan.layout import Shape
from delta_sharing_client.scan.pages import PageGains
from delta_sharing_client.scan.vectors import Vectors

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """Rows of one or more row groups; call ``release`` when they were consumed."""

    batches: Iterable[pa.RecordBatch]
    release: Callable[[], None]


Units = list[Union[Unit, Future[Unit]]]
"""The units of one file, in order: those that are there, and of others their futures."""


class Ratio:
    """How much larger decoded rows are than their compressed bytes, learned as the scan goes."""

    def __init__(self) -> None:
        self._compressed = 1
        self._decoded = 2

    def decoded(self, compressed: int) -> int:
        """Return the memory that the rows in ``compressed`` bytes probably take."""
        return compressed * self._decoded // self._compressed

    def learn(self, compressed: int, decoded: int) -> None:
        # A race loses one observation at most, which is harmless.
        if self._compressed < 64 * 1024:
            self._compressed, self._decoded = max(1, compressed), decoded
        else:
            self._compressed, self._decoded = self._compressed + compressed, self._decoded + decoded


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the files of a scan share. ``fetched`` bounds compressed bytes, ``decoded`` rows that wait to be consumed.

    ``gains`` are those of page indexes, ``late_gains`` those of reading the filter's columns first.
    ``part`` is the size of one request; ``threads_inside`` says that Arrow's threads decode one file side by side.
    """

    shape: Shape
    report: ScanReport
    limit: int | None
    reader: Reader
    downloads: Downloads
    decoders: Workers
    buffers: Buffers
    fetched: Window
    decoded: Window
    cache: FileCache | None
    guess: FooterGuess
    ratio: Ratio
    gains: PageGains
    late_gains: PageGains
    vectors: Vectors
    part: int
    threads_inside: bool

    def submit(self, order: Order, nbytes: int, call: Callable[[], T]) -> Future[T]:
        """Run a download of about ``nbytes`` when its turn has come, timed."""

        def timed() -> T:
            with self.report.stage("fetch"):
                return call()

        return self.downloads.submit(order, nbytes, timed)
