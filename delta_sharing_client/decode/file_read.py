"""Code that both ways to read one file share: reading it whole, and reading some of its row groups."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from delta_sharing_client.decode.budget import Grant, MemoryBudget
from delta_sharing_client.decode.decoder import FileDecoder, ParquetBytes, Selection
from delta_sharing_client.decode.equality import DeletedValues, EqualityDeletes
from delta_sharing_client.decode.file_bytes import FileBytes, gather
from delta_sharing_client.decode.layout import Layout, Shape
from delta_sharing_client.decode.pace import Pace
from delta_sharing_client.decode.page_choice import Ratio
from delta_sharing_client.decode.rows import FileRows, nothing
from delta_sharing_client.decode.vectors import Vectors
from delta_sharing_client.fetch.report import ScanReport, Timed, add_counts
from delta_sharing_client.fetch.source import Attempt, Fetcher
from delta_sharing_client.parquet.footer import FooterGuess
from delta_sharing_client.plan.tasks import FileTask

T = TypeVar("T")

_MB = 1024 * 1024
# Row groups that decode to more than this are decoded batch by batch, as they are consumed.
_LARGE = 48 * _MB
_LEAST_LARGE = 2 * _MB
# The number of batches of such a row group that may wait for the consumer.
_BATCHES_AHEAD = 2
# A limit of at most this many rows probably needs only the first batches of a row group.
_FEW_ROWS = 262_144
_ANY = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """State that the files of one read share.

    ``ratio`` is the ratio of decoded to compressed bytes. ``gains`` is the fraction of a row group's bytes that page
    indexes save, and ``late_gains`` the fraction of the other columns' bytes that reading the filter's columns first
    saves. ``part`` is the approximate size of one request. With ``threads_inside``, Arrow's threads decode the columns
    of one file in parallel.
    """

    shape: Shape
    report: ScanReport
    limit: int | None
    fetcher: Fetcher
    decode: Callable[[Callable[[], Any]], Awaitable[Any]]
    budget: MemoryBudget
    guess: FooterGuess
    ratio: Ratio
    gains: Ratio
    late_gains: Ratio
    vectors: Vectors
    equality: EqualityDeletes
    pace: Pace
    part: int
    threads_inside: bool


class Decoded(NamedTuple):
    """Decoded batches, their size in bytes, and an iterator that decodes the rest (``None`` if there is no rest)."""

    batches: list[pa.RecordBatch]
    nbytes: int
    rest: Iterator[pa.RecordBatch] | None


class Unit(NamedTuple):
    """Rows that were downloaded together: their batches, their grant of memory, and their compressed size in bytes."""

    decoded: Decoded
    grant: Grant
    compressed: int


class FileRead:
    """Reads one file and sends its rows to ``rows``; ``number`` is its position in the read."""

    def __init__(self, shared: Shared, number: int, task: FileTask, rows: FileRows, *, attempt: Attempt) -> None:
        self.shared = shared
        self.number = number
        self.task = task
        self.is_filtered = shared.shape.filters_rows(task)
        self.large = min(_LARGE, max(_LEAST_LARGE, shared.shape.context.options.max_bytes_in_flight // 4))
        file = task.remote_file(shared.fetcher, attempt=attempt)
        self.bytes = FileBytes(file, shared.guess, shared.report, 0 if file.is_in_one_response else shared.part)
        # The visible rows; set by ``select``.
        self.selection = Selection(None, None)
        self._deleted: Sequence[DeletedValues] = ()
        self._rows = rows

    async def select(self) -> None:
        """Determine which rows remain after deletes."""
        shared, task = self.shared, self.task
        if task.equality:
            self._deleted = await shared.equality.of(task, self.number)
        refs = (task.without, task.only)
        if refs == (None, None):
            return
        get = shared.vectors.get
        vectors = iter(await gather([get(ref, task, self.number) for ref in refs if ref is not None]))
        without, only = (None if ref is None else next(vectors) for ref in refs)
        self.selection = Selection(without, only)

    # === How much of the file is wanted ===

    @property
    def is_gentle(self) -> bool:
        """Whether the consumer may stop before the end of the file."""
        return not self.shared.pace.is_full and (self.shared.limit is None or self.is_filtered)

    @property
    def needs_few(self) -> bool:
        """Whether a limit probably needs only the first batches."""
        return self.shared.limit is not None and self.shared.limit <= _FEW_ROWS

    def visible_rows(self, layout: Layout, group: int) -> int:
        """Return how many rows of ``group`` are visible once the file's deletion vectors are applied."""
        count, starts = self.selection.count, layout.row_starts
        return count(starts[group + 1]) - count(starts[group])

    def within_limit(self, layout: Layout) -> tuple[int, ...]:
        """Return the row groups up to the one that reaches the limit."""
        limit = self.shared.limit
        if limit is None or self.is_filtered:
            return layout.groups
        before = itertools.accumulate((self.visible_rows(layout, group) for group in layout.groups), initial=0)
        return tuple(group for group, rows in zip(layout.groups, before, strict=False) if rows < limit)

    def count_groups(self, layout: Layout) -> None:
        """Add the numbers of row groups that are read and skipped to the report."""
        add_counts(self.shared.report, row_groups=len(layout.groups), row_groups_skipped=layout.groups_skipped)

    # === Decoding ===

    async def in_thread(self, call: Callable[..., T], *values: Any) -> T:
        """Return ``call(*values)``, run on one of the decoding threads."""
        return await self.shared.decode(functools.partial(call, *values))

    def decoder(self, layout: Layout) -> FileDecoder:
        """Return a decoder of the file's rows for ``layout``."""
        return FileDecoder(self.shared.shape, self.task, layout, self.selection, self.shared.report, self._deleted)

    def decode(self, layout: Layout, groups: tuple[int, ...], data: ParquetBytes) -> Decoded:
        """Decode ``groups`` on the current thread; of large ones, only the first batches."""
        decoder = self.decoder(layout)
        with Timed(self.shared.report, "decode"):
            batches = decoder.batches(data, groups, threads=self.shared.threads_inside)
            return begin(batches, self.large, 0 if self.needs_few else _ANY)

    def _next(self, rest: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with Timed(self.shared.report, "decode"):
            return next(rest, None)

    # === Sending ===

    async def hand_out(self, unit: Unit) -> None:
        """Send the rows of ``unit``. Batches that are not decoded yet are decoded one by one, as the consumer takes
        them."""
        (batches, size, rest), grant, compressed = unit
        if rest is None:
            grant.resize(size)
            self._rows.send(batches, grant.release)
            return
        try:
            grant.resize(compressed + size)
            await self._rows.turn()
            if batches:
                self._rows.send(batches, nothing)
            while (batch := await self.in_thread(self._next, rest)) is not None:
                self._rows.send([batch], nothing)
                await self._rows.taken(_BATCHES_AHEAD)
        finally:
            grant.release()

    async def keep_pace(self) -> None:
        """Wait until the consumer has taken the sent rows, if it may stop before the end of the file."""
        if self.is_gentle:
            await self._rows.wanted()


def begin(batches: Iterator[pa.RecordBatch], most_bytes: int, most_rows: int) -> Decoded:
    """Decode ``batches`` until they exceed ``most_bytes`` or ``most_rows``; the rest remains an iterator."""
    done: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        # Later batches may share buffers with the first; counting exactly would take longer.
        size += batch.nbytes if done else batch.get_total_buffer_size()
        rows += batch.num_rows
        done.append(batch)
        if size > most_bytes or rows > most_rows:
            return Decoded(done, size, batches)
    return Decoded(done, size, None)
