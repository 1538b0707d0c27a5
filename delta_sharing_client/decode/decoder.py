"""Decodes one file's bytes to batches of the scan's schema, column by column.

The position of a row is counted through all row groups of the physical file. Deletion vectors and row ids refer to
positions, so they are known for each batch before it is filtered.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client.arrow_forms import count_true
from delta_sharing_client.decode.align import FileColumn
from delta_sharing_client.decode.equality import DeletedValues, leaf_of
from delta_sharing_client.decode.layout import Layout, Shape
from delta_sharing_client.decode.text import NotUtf8, expanded
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError, DeltaSharingError, check_memory
from delta_sharing_client.fetch.report import ScanReport, add_counts
from delta_sharing_client.parquet.byte_ranges import ByteBlock, SparseFile
from delta_sharing_client.parquet.chunks import ColumnChunk
from delta_sharing_client.parquet.dictionaries import longest_text
from delta_sharing_client.parquet.page_index import ChunkPages, walk_pages
from delta_sharing_client.parquet.reader import ARROW_ERRORS, open_reader
from delta_sharing_client.plan.read_columns import ROW_UPDATES, Origin, ReadColumn
from delta_sharing_client.plan.tasks import FileTask
from delta_sharing_client.predicates.arrow import mask as predicate_mask
from delta_sharing_client.predicates.skipping import within
from delta_sharing_client.predicates.tree import Expression, Literal
from delta_sharing_client.redact import scrub

T = TypeVar("T")


class Selection:
    """The visible rows of a file: those that are not in ``without`` and, if ``only`` is given, are in it."""

    def __init__(self, without: DeletionVector | None, only: DeletionVector | None) -> None:
        self._last = max((vector.last_position for vector in (without, only) if vector is not None), default=-math.inf)
        if only is not None and without is not None:
            only, without = only - without, None
        self._without = without
        self._only = only

    def mask(self, start: int, length: int) -> pa.BooleanArray | None:
        """Return which of the rows ``[start, start + length)`` are visible, ``None`` if all are."""
        if self._only is not None:
            others = self._only.keep_mask(start, length)
            return pa.repeat(pa.scalar(False), length) if others is None else pc.invert(others)
        return None if self._without is None else self._without.keep_mask(start, length)

    def check(self, rows: int) -> None:
        """Raise ``DataError`` if a vector contains a row beyond the ``rows`` rows of the file."""
        if self._last >= rows:
            raise DataError(
                f"The deletion vector contains row {self._last}, counted from 0, but the file has only {rows} rows; "
                "the vector must belong to a different file."
            )

    def count(self, rows: int) -> int:
        """Return how many of the file's first ``rows`` rows are visible."""
        if self._only is not None:
            return self._only.count_in(0, rows)
        return rows if self._without is None else rows - self._without.count_in(0, rows)


@dataclasses.dataclass(frozen=True, slots=True)
class ParquetBytes:
    """The downloaded bytes of a Parquet file.

    ``replaced`` has the meaning it has in ``SparseFile``. ``opened`` has readers that are already open, each for one
    use.
    """

    size: int
    blocks: list[ByteBlock]
    metadata: pq.FileMetaData
    replaced: dict[tuple[int, int], pa.Buffer] = dataclasses.field(default_factory=dict)
    opened: list[pq.ParquetReader] = dataclasses.field(default_factory=list)
    _held: SparseFile = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_held", SparseFile(self.size, self.blocks, self.replaced))

    def open(self, read_dictionary: Sequence[str] = ()) -> pq.ParquetReader:
        """Return a reader with exact types. It returns the columns of ``read_dictionary`` as dictionaries and
        indices."""
        if self.opened and not read_dictionary:
            return self.opened.pop()
        if not self.replaced and [(block.start, block.stop) for block in self.blocks] == [(0, self.size)]:
            source = pa.BufferReader(self.blocks[0].data)
        else:
            source = pa.PythonFile(SparseFile(self.size, self.blocks, self.replaced))
        return open_reader(source, self.metadata, read_dictionary)

    def chunk(self, chunk: ColumnChunk) -> memoryview:
        return memoryview(self._held.slice(chunk.start, chunk.length)).cast("B")


class _Part(NamedTuple):
    """The visible rows of a range of the file, in one batch with the file's columns.

    The range starts at the physical row ``first``; ``visible`` marks the visible rows, ``None`` if all are.
    """

    group: int
    raw: pa.RecordBatch | None
    first: int
    rows: int
    visible: pa.BooleanArray | None

    def positions(self) -> pa.Array:
        """Return the physical position of each row."""
        if self.visible is None:
            return pa.array(np.arange(self.first, self.first + self.rows), pa.int64())
        return pa.array(np.flatnonzero(self.visible.to_numpy(zero_copy_only=False)) + self.first, pa.int64())


class FileDecoder:
    """Creates the batches of one task. Its errors name neither table nor file; the caller adds them
    (``about_file``)."""

    def __init__(
        self,
        shape: Shape,
        task: FileTask,
        layout: Layout,
        selection: Selection,
        report: ScanReport,
        deleted: Sequence[DeletedValues] = (),
    ) -> None:
        self.shape = shape
        self.task = task
        self.layout = layout
        self._selection = selection
        self._deleted = deleted
        self._report = report
        self._constants = shape.constants(task)
        self._repeated: dict[str, pa.Array] = {}
        self._predicate = self._predicate_of_group = shape.predicate
        # If all of its columns are constant, a condition has the same result for every row of the file. It is
        # evaluated once, with the first batch.
        self._is_evaluated = not all(column.name in self._constants for column in shape.context.filters)
        self._most = max(_LEAST_IN_FLIGHT, shape.context.options.max_bytes_in_flight)
        most = _most_bytes(shape) // max(_text_bytes(self._constants), 1)
        self._rows_per_batch = min(shape.context.options.batch_rows, max(most, 1))

    def batches(self, data: ParquetBytes, groups: tuple[int, ...], *, threads: bool) -> Iterator[pa.RecordBatch]:
        """Yield the visible, matching rows of ``groups``, in order. The file is opened only if columns are read from
        it."""
        for part in self._parts(data, groups, self._runs(data, groups), threads):
            if part.visible is not None:
                add_counts(self._report, rows_deleted=len(part.visible) - part.rows)
            batch = _decoding(self._batch, part) if part.rows else None
            if batch is not None:
                yield batch

    def matching(
        self, data: ParquetBytes, groups: tuple[int, ...], *, threads: bool
    ) -> dict[int, list[tuple[int, np.ndarray]]]:
        """Return by row group which rows are visible and match the skipping condition, in the form that
        ``page_choice.stretches`` takes.

        ``data`` has the filter's columns.
        """
        by_group: dict[int, list[tuple[int, np.ndarray]]] = {group: [] for group in groups}
        for part in self._parts(data, groups, ((group,) for group in groups), threads):
            mask = _decoding(self._matches, part)
            start = part.first - self.layout.row_starts[part.group]
            by_group[part.group].append((start, mask.to_numpy(zero_copy_only=False)))
        return by_group

    def _runs(self, data: ParquetBytes, groups: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Divide ``groups`` into those that one call decodes: consecutive small row groups that fit into one batch."""
        most = 3 * self._most
        # Row groups have different dictionaries.
        is_alone = len(groups) < 2 or bool(_decoding(self.layout.dictionaries, groups))
        run: tuple[int, ...] = ()
        rows, size = 0, 0.0
        for group in groups:
            own = math.inf
            if not is_alone and 2 * self.layout.rows(group) <= self._rows_per_batch:
                own = _decoding(most_decoded, self.layout, data, group)
            rows, size = rows + self.layout.rows(group), size + own
            if run and (group != run[-1] + 1 or rows > self._rows_per_batch or size > most):
                yield run
                run, rows, size = (), self.layout.rows(group), own
            run = (*run, group)
        if run:
            yield run

    def _parts(
        self, data: ParquetBytes, groups: tuple[int, ...], runs: Iterable[tuple[int, ...]], threads: bool
    ) -> Iterator[_Part]:
        """Yield the wanted ranges of ``groups``. Each of ``runs``, some consecutive groups, is decoded in one call.

        Rows of skipped pages and rows in a deletion vector are dropped here, before a filter, a computation or a check.
        """
        file = None
        if self.layout.leaves:
            file = _decoding(data.open, _decoding(self.layout.dictionaries, groups))
        for run in runs:
            group, is_joined = run[0], len(run) > 1
            self._predicate_of_group = self._predicate if is_joined else self._within(group, self._predicate)
            position = self.layout.row_starts[group]
            stop, most = self.layout.end(run[-1]), self.layout.row_starts[run[-1] + 1]
            batch_rows = self._rows_per_batch
            if not is_joined:
                batch_rows = _decoding(rows_in_batch, self.layout, data, group, batch_rows, self._most)
            batches = self._raw(file, run, batch_rows, threads)
            # Nothing is decoded after the last wanted row, because later rows may not have been downloaded.
            while position < stop and (batch_and_rows := _decoding(next, batches, None)) is not None:
                raw, rows = batch_and_rows
                for first, end in self.layout.stretches(group, position, position + rows):
                    part = _part(raw, first - position, end - first)
                    yield _decoding(self._visible, group, part, first, end - first)
                position += rows
            if position < stop or position > most:
                raise DataError(
                    f"Row group {run[-1]} must end at row {stop} of the file, but its decoded rows end at row "
                    f"{position}."
                )

    def _visible(self, group: int, raw: pa.RecordBatch | None, first: int, rows: int) -> _Part:
        mask = self._selection.mask(first, rows)
        part = _Part(group, raw, first, rows, None)
        if mask is not None:
            part = _Part(group, None if raw is None else raw.filter(mask), first, count_true(mask), mask)
        for deleted in self._deleted:
            part = self._without(deleted, part)
        return part

    def _without(self, deleted: DeletedValues, part: _Part) -> _Part:
        """Return the part without the rows that ``deleted`` contains."""
        if not part.rows:
            return part
        alignment = self.layout.alignment
        columns = []
        for field_id in deleted.ids:
            file = alignment.equality[field_id]
            if (value := self.shape.partition_value(self.task, file.field, file.type)) is not None:
                column = pa.repeat(value, part.rows)
            elif file.leaves:
                assert part.raw is not None
                column = file.apply(part.raw.column(alignment.tops[file.top]))
            else:
                column = file.missing(part.rows, ())
            columns.append(leaf_of(column))
        kept = deleted.kept(columns)
        count = count_true(kept)
        if count == part.rows:
            return part
        visible = kept if part.visible is None else pc.replace_with_mask(part.visible, part.visible, kept)
        return part._replace(raw=None if part.raw is None else part.raw.filter(kept), rows=count, visible=visible)

    def _matches(self, part: _Part) -> pa.BooleanArray:
        """Return which rows of the part are visible and match the skipping condition."""
        skipping = self._within(part.group, self.shape.skipping)
        assert skipping is not None
        truth = predicate_mask(skipping, _Columns(self, part).filter_batch())
        return truth if part.visible is None else pc.replace_with_mask(part.visible, part.visible, truth)

    def _evaluate_constant(self) -> None:
        if not self._is_evaluated:
            [matches] = _which_match(self.shape, [self._constants])
            self._predicate = self._predicate_of_group = None if matches else Literal(False)
            self._is_evaluated = True

    def _within(self, group: int, condition: Expression | None) -> Expression | None:
        """Return ``condition`` in a form that is faster to evaluate for the rows of one row group."""
        if condition is None or self.layout.bounds is None:
            return condition
        return within(condition, self.layout.bounds.of_group(group))

    def _raw(
        self, file: pq.ParquetReader | None, run: tuple[int, ...], batch_rows: int, threads: bool
    ) -> Iterator[tuple[pa.RecordBatch | None, int]]:
        leaves = list(self.layout.leaves)
        if leaves:
            assert file is not None
            for batch in file.iter_batches(batch_rows, row_groups=run, column_indices=leaves, use_threads=threads):
                yield batch, batch.num_rows
            return
        rows = self.layout.row_starts[run[-1] + 1] - self.layout.row_starts[run[0]]
        for start in range(0, rows, batch_rows):
            yield None, min(rows - start, batch_rows)

    def _batch(self, part: _Part) -> pa.RecordBatch | None:
        self._evaluate_constant()
        columns = _Columns(self, part)
        if self._predicate_of_group is not None:
            mask = predicate_mask(self._predicate_of_group, columns.filter_batch())
            kept = count_true(mask)
            if not kept:
                return None
            if kept < part.rows:
                columns = columns.filtered(mask, kept)
        return columns.output_batch()

    def constant(self, column: ReadColumn, rows: int) -> pa.Array:
        """Return the file's value of ``column``, repeated ``rows`` times, as a slice of a cached array."""
        held = self._repeated.get(column.name)
        if held is None or len(held) < rows:
            value = pa.scalar(self._constants[column.name], column.arrow.type)
            size = max(rows, self._rows_per_batch if held is not None else rows)
            held = self._repeated[column.name] = pa.repeat(value, size)
        return held.slice(0, rows)


def _decoding(step: Callable[..., T], *values: Any) -> T:
    """Run one step of decoding. Raises ``DataError`` or ``OutOfMemoryError`` in place of Arrow's errors."""
    try:
        return step(*values)
    except ARROW_ERRORS as error:
        check_memory(error)
        raise DataError(f"The Parquet data cannot be decoded: {scrub(str(error))}.") from None


class _Columns:
    """The columns of one batch, created on demand, before or after its rows are filtered."""

    def __init__(self, decoder: FileDecoder, part: _Part, find_positions: Callable[[], pa.Array] | None = None) -> None:
        self._decoder = decoder
        self._part = part
        self._raw = part.raw
        self._rows = part.rows
        # Without ``raw``, so that the function does not keep the file's rows in memory.
        self._find_positions = find_positions or part._replace(raw=None).positions
        self._positions: pa.Array | None = None

    def filtered(self, mask: pa.BooleanArray, kept: int) -> _Columns:
        raw = None if self._raw is None else self._raw.filter(mask)
        positions = functools.partial(_some, self._find_positions, mask)
        return _Columns(self._decoder, self._part._replace(raw=raw, rows=kept), positions)

    def filter_batch(self) -> pa.RecordBatch:
        """Return the predicate's columns; text may be dictionary-encoded."""
        columns, files = self._decoder.shape.context.filters, self._decoder.layout.alignment.filter
        if not columns:
            return rows_without_columns(self._rows)
        arrays = self._arrays(columns, files)
        fields = [column.arrow.with_type(array.type) for column, array in zip(columns, arrays, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def output_batch(self) -> pa.RecordBatch:
        context, alignment = self._decoder.shape.context, self._decoder.layout.alignment
        if not alignment.is_as_stored or self._raw is None or self._has_dictionaries:
            if not context.output:
                return rows_without_columns(self._rows)
            arrays = [expanded(array) for array in self._arrays(context.output, alignment.output)]
            return pa.RecordBatch.from_arrays(arrays, schema=context.output_schema)
        # Rebuilding the batch of a small file from its columns would add a tenth to the time of decoding it.
        for place, file in enumerate(alignment.output):
            if file is not None and not file.is_as_stored:
                self._applied(file, self._raw.column(place))
        metadata = context.output_schema.metadata
        # The schema is replaced only if it differs, because each Arrow call lets other threads take the interpreter
        # lock.
        return self._raw if self._raw.schema.metadata == metadata else self._raw.replace_schema_metadata(metadata)

    @property
    def _has_dictionaries(self) -> bool:
        assert self._raw is not None
        return any(map(pa.types.is_dictionary, self._raw.schema.types))

    def _arrays(self, columns: tuple[ReadColumn, ...], files: tuple[FileColumn | None, ...]) -> list[pa.Array]:
        return [
            self._computed(column) if file is None else self._from_file(file)
            for column, file in zip(columns, files, strict=True)
        ]

    def _computed(self, column: ReadColumn) -> pa.Array:
        task, alignment = self._decoder.task, self._decoder.layout.alignment
        if column.origin is Origin.ROW_ID:
            return self._lineage(alignment.row_id, task.base_row_id, lambda base: pc.add(self._row_positions(), base))
        if column.origin in ROW_UPDATES:
            return self._lineage(
                alignment.row_update,
                task.default_row_commit_version,
                lambda version: pa.repeat(version, self._rows),
            )
        return self._decoder.constant(column, self._rows)

    def _lineage(self, file: FileColumn | None, first: int | None, derive: Callable[[pa.Scalar], pa.Array]) -> pa.Array:
        """Return the values stored in ``file``; where it has none, values derived from ``first``, which is the file's
        base row id or commit version."""
        if first is None:
            # Planning refuses a Delta table's file without this number. In an Iceberg table, both lineage columns of
            # its rows are null, even if the file has values for them (Iceberg, Appendix E, "Row lineage changes").
            return pa.nulls(self._rows, pa.int64())
        written = None if file is None else self._from_file(file)
        if written is not None and not written.null_count:
            return written
        derived = derive(pa.scalar(first, pa.int64()))
        return derived if written is None else pc.coalesce(written, derived)

    def _row_positions(self) -> pa.Array:
        if self._positions is None:
            self._positions = self._find_positions()
        return self._positions

    def _from_file(self, file: FileColumn) -> pa.Array:
        if not file.leaves:
            columns = zip(self._decoder.shape.context.output, self._decoder.layout.alignment.output, strict=True)
            others = [column.name for column, stored in columns if stored is None or stored.leaves]
            return file.missing(self._rows, others)
        assert self._raw is not None
        array = self._raw.column(self._decoder.layout.alignment.tops[file.top])
        return array if file.is_as_stored else self._applied(file, array)

    def _applied(self, file: FileColumn, array: pa.Array) -> pa.Array:
        try:
            return file.apply(array)
        except NotUtf8 as error:
            raise error.in_file(self._row_positions()[error.row].as_py()) from None


def _some(positions: Callable[[], pa.Array], mask: pa.BooleanArray) -> pa.Array:
    return positions().filter(mask)


# === The number of rows of a batch ===

# One batch may take the memory limit divided by this number: decoding needs as much again, and other files are decoded
# at the same time.
_BATCH_SHARE = 4
# The minimum bytes per value in Arrow, by physical type.
_TEXT = "BYTE_ARRAY"
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, _TEXT: 4}
# Batches of fewer rows cost more than measuring the length of every string first.
_FEW_ROWS = 4096
# The minimum of memory for one file, however small the limit is.
_LEAST_IN_FLIGHT = 8 * 1024 * 1024
_MOST_MEASURED_ROWS = 1 << 24


def rows_in_batch(layout: Layout, data: ParquetBytes, group: int, batch_rows: int, most: int) -> int:
    """Return the number of rows per batch for a row group: ``batch_rows``, or fewer if the rows are large.

    A few bytes of run lengths can repeat a dictionary's value, or a list's element, any number of times. So the size of
    a batch is limited before decoding, to a fraction of ``most``, the limit of the bytes in flight. Raises
    ``DataError`` if one page unpacks to more than ``most``.
    """
    rows = layout.rows(group)
    fewest = max(1, min(rows, batch_rows))
    whole = max(layout.footer.metadata.row_group(group).total_byte_size, 1)
    # The batch would be small enough even if every row repeated all bytes of the row group, so pages need not be
    # checked.
    if fewest * whole <= 3 * most and not layout.alignment.has_lists:
        return fewest
    bound = most // _BATCH_SHARE
    schema = layout.footer.metadata.schema
    columns = {leaf: schema.column(leaf) for leaf in layout.leaves}
    texts = stored = 0
    suspects: dict[int, ChunkPages] = {}
    for leaf, column in columns.items():
        if column.physical_type != _TEXT:
            continue
        chunk = layout.chunks.get(group, leaf)
        stored += chunk.uncompressed
        if fewest * chunk.uncompressed <= bound:
            continue
        pages = _checked_pages(data, chunk, column, most)
        if pages.encodings - _ONCE:
            suspects[leaf] = pages
            texts += chunk.values * _longest_text(data, chunk, pages)
    widths = sum(_WIDTHS.get(column.physical_type, column.length) for column in columns.values())
    # Without lists every column has one value per row, so the pages of the other chunks need not be checked. Some
    # writers state a compressed total, which can be less than the total of the strings.
    total = max(whole, stored) + rows * widths + texts
    if fewest * total <= bound * rows and whole <= most and not layout.alignment.has_lists:
        return fewest
    fixed = 0
    for leaf, column in columns.items():
        chunk = layout.chunks.get(group, leaf)
        fixed += max(chunk.uncompressed, chunk.values * _WIDTHS.get(column.physical_type, column.length))
        if column.physical_type != _TEXT and chunk.uncompressed > most:
            _checked_pages(data, chunk, column, most)
    safe = min(fewest, max(1, bound * rows // max(fixed + texts, 1)))
    has_lists = any(columns[leaf].max_repetition_level for leaf in suspects)
    if not suspects or safe >= min(fewest, _FEW_ROWS) or has_lists or rows > _MOST_MEASURED_ROWS:
        return safe
    # So far every string counted as the longest one. With the actual lengths, larger batches may be small enough.
    each = np.full(rows, fixed / rows)
    for leaf, pages in suspects.items():
        size = layout.chunks.get(group, leaf).uncompressed
        each += _text_lengths(data, group, leaf, pages, max(1, bound // size))
    sizes = (fewest >> shift for shift in range(0, fewest.bit_length(), 2))
    fitting = (size for size in sizes if np.add.reduceat(each, np.arange(0, rows, size)).max() <= bound)
    return max(safe, next(fitting, safe))


def most_decoded(layout: Layout, data: ParquetBytes, group: int) -> float:
    """Return an upper bound for the decoded size of a row group: infinite unless the headers of its pages state as many
    values as it has rows.

    The Parquet reader continues a column in the next row group if pages are missing, without an error, so only such
    row groups may be decoded together.
    """
    if group in layout.pages or layout.alignment.has_lists or not layout.leaves or data.replaced:
        return math.inf
    rows, schema, total = layout.rows(group), layout.footer.metadata.schema, 0
    for leaf in layout.leaves:
        chunk, column = layout.chunks.get(group, leaf), schema.column(leaf)
        pages = walk_pages(data.chunk(chunk), chunk.values)
        if not chunk.values == pages.values == rows:
            return math.inf
        text = rows * pages.size if column.physical_type == _TEXT else 0
        total += max(text, pages.size, rows * _WIDTHS.get(column.physical_type, column.length))
    return total


def _checked_pages(data: ParquetBytes, chunk: ColumnChunk, column: pq.ColumnSchema, most: int) -> ChunkPages:
    pages = walk_pages(data.chunk(chunk), chunk.values)
    if pages.largest > most:
        raise DataError(
            f"A page of the column '{column.path}' unpacks to {pages.largest} bytes, more than "
            f"'max_bytes_in_flight' ({most}). Raise that option to read the file."
        )
    return pages


# Encodings (Apache Parquet, parquet.thrift) that store every string separately: PLAIN, RLE (of levels), BIT_PACKED,
# DELTA_LENGTH_BYTE_ARRAY. With other encodings, many rows may use one stored string.
_ONCE = frozenset((0, 3, 4, 6))
# Encodings that Arrow cannot read as dictionary indices: DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY.
_DELTAS = frozenset((6, 7))
# With this encoding, strings share prefixes, so that they can be longer than their stored bytes.
_DELTA_BYTE_ARRAY = 7


def _longest_text(data: ParquetBytes, chunk: ColumnChunk, pages: ChunkPages) -> int:
    """Return an upper bound for the length of the strings in a chunk; every row may repeat the longest one."""
    if pages.dictionary is None or _DELTA_BYTE_ARRAY in pages.encodings:
        return chunk.uncompressed
    longest = longest_text(data.chunk(chunk), pages.dictionary, chunk.codec)
    return chunk.uncompressed if longest is None else longest


def _text_lengths(data: ParquetBytes, group: int, leaf: int, pages: ChunkPages, few: int) -> npt.NDArray[np.float64]:
    """Return the length of each row's string; at most ``few`` strings are decoded at a time."""
    # Inside a struct, Arrow cannot read dictionary indices after plain values, even if these only replace skipped
    # pages.
    if pages.encodings & _DELTAS or not pages.indices_first:
        reader = data.open().iter_batches(
            min(few, _FEW_ROWS), row_groups=[group], column_indices=[leaf], use_threads=False
        )
        arrays = [pc.binary_length(_leaf_of(batch)) for batch in reader]
    else:
        arrays = [pc.take(pc.binary_length(texts.dictionary), texts.indices) for texts in _texts(data, group, leaf)]
    return np.concatenate([pc.fill_null(lengths, 0).to_numpy() for lengths in arrays])


def _texts(data: ParquetBytes, group: int, leaf: int) -> Iterator[pa.DictionaryArray]:
    """Yield the strings of one Parquet column as indices into a dictionary that contains each string once."""
    path = data.metadata.schema.column(leaf).path
    for batch in data.open([path]).iter_batches(
        _FEW_ROWS, row_groups=[group], column_indices=[leaf], use_threads=False
    ):
        yield _leaf_of(batch)


def _leaf_of(batch: pa.RecordBatch) -> pa.Array:
    array = batch.column(0)
    while pa.types.is_nested(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.values
    return array


def _part(raw: pa.RecordBatch | None, start: int, rows: int) -> pa.RecordBatch | None:
    """Return a range of a batch. A small range is copied, so that it does not keep the whole batch in memory.

    Nested columns are always copied: the children of a slice still have the elements of the other rows, and their
    conversion would fail for an invalid value outside of the range.
    """
    if raw is None or raw.num_rows == rows:
        return raw
    if 2 * rows > raw.num_rows and not any(map(pa.types.is_nested, raw.schema.types)):
        return raw.slice(start, rows)
    return raw.take(pa.array(np.arange(start, start + rows)))


MOST_WITHOUT_COLUMNS = 1 << 24
"""The maximum number of rows in a batch without columns."""


def rows_without_columns(rows: int) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows, [None]))


def constant_batches(shape: Shape, counted: Iterable[tuple[FileTask, int]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of tasks with only constant columns, without reading their files.

    ``counted`` has the tasks and their numbers of rows. Rows of several tasks share a batch. The predicate is evaluated
    once per task, because all of its rows are the same, and not at all for a task without rows. Rows without columns
    take no memory: their batches have up to ``MOST_WITHOUT_COLUMNS`` rows. Errors name the file.
    """
    counted = list(counted)
    output = shape.context.output
    try:
        matching: Iterable[_Repeated] = _matching(shape, counted)
    except DeltaSharingError:
        # Evaluated one by one, so that the rows of the files before the failing one are returned first.
        matching = itertools.chain.from_iterable(_matching(shape, [each]) for each in counted)
    held: list[_Repeated] = []
    rows_held = bytes_held = 0
    most_rows, most_bytes = shape.context.options.batch_rows if output else MOST_WITHOUT_COLUMNS, _most_bytes(shape)
    for constants, rows in matching:
        width = _text_bytes(constants) if output else 0
        while rows:
            room = min(most_rows - rows_held, (most_bytes - bytes_held) // max(width, 1))
            if room <= 0 and held:
                yield _constant_batch(output, held)
                held, rows_held, bytes_held = [], 0, 0
                continue
            taken = min(rows, max(room, 1))
            held.append((constants, taken))
            rows, rows_held, bytes_held = rows - taken, rows_held + taken, bytes_held + taken * width
    if held:
        yield _constant_batch(output, held)


_Repeated = tuple[dict[str, object], int]
"""The values of a file's constant columns, and how many rows have them."""


def _matching(shape: Shape, counted: Sequence[tuple[FileTask, int]]) -> list[_Repeated]:
    """Return the tasks that have rows and match, as constants and numbers of rows. If there is only one task, an error
    names its file."""
    if not shape.columns:
        rows = sum(rows for _, rows in counted)
        return [({}, rows)] if rows else []
    try:
        constants_and_rows = [(shape.constants(task), rows) for task, rows in counted]
        constants_and_rows = [each for each in constants_and_rows if each[1]]
        return list(
            itertools.compress(
                constants_and_rows, _which_match(shape, [constants for constants, _ in constants_and_rows])
            )
        )
    except DeltaSharingError as error:
        if len(counted) == 1:
            error.file_id = counted[0][0].file_id
        raise


def _which_match(shape: Shape, each: Sequence[dict[str, object]]) -> list[bool]:
    """Return for each set of constants whether the skipping condition is true. One evaluation for all is much faster
    than one for each."""
    if shape.skipping is None or not each:
        return [True] * len(each)
    once = _constant_batch(shape.context.filters, [(constants, 1) for constants in each])
    return [truth is True for truth in predicate_mask(shape.skipping, once).to_pylist()]


def _constant_batch(columns: tuple[ReadColumn, ...], held: Sequence[_Repeated]) -> pa.RecordBatch:
    counts = [rows for _, rows in held]
    if not columns:
        return rows_without_columns(sum(counts))
    # One Arrow call per column, not per file: each call may wait until the thread that lists files pauses.
    each = [pa.array([values[column.name] for values, _ in held], column.arrow.type) for column in columns]
    positions = pa.array(np.repeat(np.arange(len(held)), counts))
    return pa.RecordBatch.from_arrays(
        [values.take(positions) for values in each], schema=pa.schema([column.arrow for column in columns])
    )


def _text_bytes(constants: dict[str, object]) -> int:
    """Return an upper bound for the bytes of strings in a row; strings may be long, and every row repeats them."""
    return sum(_MOST_UTF8 * len(value) for value in constants.values() if isinstance(value, (str, bytes)))


# The maximum number of bytes per character.
_MOST_UTF8 = 4


def _most_bytes(shape: Shape) -> int:
    """Return the maximum bytes of one batch."""
    return max(_LEAST_IN_FLIGHT, shape.context.options.max_bytes_in_flight) // _BATCH_SHARE
