"""Determines which columns a scan reads from every file, and where one file has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Union

import pyarrow as pa

from delta_sharing_client.decode.align import Aligner, FileColumn
from delta_sharing_client.decode.bounds import RowGroupBounds
from delta_sharing_client.delta.data_types import ColumnPath, PrimitiveType, StructField
from delta_sharing_client.delta.partition_values import parse_partition_value, partition_bound
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.options import VariantAs, choice
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.chunks import Chunks, ColumnChunk
from delta_sharing_client.parquet.footer import Footer
from delta_sharing_client.parquet.page_index import DataPages
from delta_sharing_client.parquet.partial_chunk import GroupPages
from delta_sharing_client.plan.read_columns import (
    CHANGE_TYPE,
    ROW_LINEAGE,
    ROW_UPDATES,
    Origin,
    ReadColumn,
    needed_share,
    unbounded_paths,
)
from delta_sharing_client.plan.tasks import ChangeKind, FileTask, ScanContext
from delta_sharing_client.predicates.lists import prepared
from delta_sharing_client.predicates.tree import columns as columns_of
from delta_sharing_client.predicates.tree import known_of_all
from delta_sharing_client.shortcuts import SHORTCUTS

_CHANGE_TYPE_FIELD = StructField(CHANGE_TYPE, PrimitiveType("string"), nullable=False)
# Columns of these origins have one value in a whole file. So has the change type in most files, but not in all.
_CONSTANT = frozenset((Origin.PARTITION, Origin.COMMIT_VERSION, Origin.COMMIT_TIMESTAMP))
# In a row group with fewer rows, opening another reader takes longer than reading the text.
_LEAST_DICTIONARY_ROWS = 16_384
# Limits for the stored bytes of a dictionary: in total, and per row. Expanding a longer dictionary into rows takes as
# long as reading the text.
_LONGEST_DICTIONARY = 64 * 1024
_LONGEST_SHARE = 1
# A value counts as half a byte. This is low on purpose: only data that unpacks to far more than its encoded size counts
# as large.
_VALUES_PER_BYTE = 2


class Shape:
    """Values derived from a scan's columns, once per scan and process."""

    def __init__(self, context: ScanContext) -> None:
        self.context = context
        self.columns = (*context.output, *context.filters)
        own, pushed = (None if one is None else prepared(one) for one in (context.predicate, context.pushed_predicate))
        # The condition by which data is skipped, and the condition by which rows are dropped.
        self.skipping = known_of_all((own, pushed))
        self.predicate = own if context.pushed_skips_only else self.skipping
        self.filter_paths = (
            ()
            if self.skipping is None
            else tuple(columns_of(self.skipping) - unbounded_paths(self.skipping, context.options))
        )
        self.share = needed_share(context.schema, self.columns, context.partition_columns)
        self.origins = frozenset(column.origin for column in self.columns)
        partitions = (context.schema.find(name) for name in context.partition_columns)
        self._stored_name = context.mapping_mode.stored_name
        self._partition_keys = frozenset(self._stored_name(field).lower() for field in partitions if field is not None)
        self._partitions = [
            (column.name, column.field)
            for column in self.columns
            if column.origin is Origin.PARTITION
            if column.field is not None
        ]
        constant = _CONSTANT | {Origin.CHANGE_TYPE}
        self._constant = [column for column in self.columns if column.origin in constant]
        self._has_type = Origin.CHANGE_TYPE in self.origins
        self._in_files = not self.origins.isdisjoint({Origin.FILE, *ROW_LINEAGE})
        self._last: tuple[tuple[object, ...], pa.Schema, Alignment] | None = None

    def alignment(self, arrow: pa.Schema, task: FileTask, int96: frozenset[int] = frozenset()) -> Alignment:
        """Return where a file with the schema ``arrow``, and with the INT96 columns ``int96``, has the scan's columns.

        Files of a table usually have one schema, so the last result is cached. Raises ``DataError`` if the columns do
        not fit.
        """
        key = (self._reads_type(task), self.untold(task), equality_ids(task), task.required_ids, int96)
        last = self._last
        if last is None or last[0] != key or not (last[1] is arrow or last[1].equals(arrow, check_metadata=True)):
            last = self._last = (key, arrow, _align(self, arrow, task, int96))
        return last[2]

    def needs_file(self, task: FileTask) -> bool:
        """Return whether any value is read from the data file itself; otherwise its number of rows is enough."""
        return self._in_files or bool(self.untold(task)) or self._reads_type(task) or bool(task.equality)

    def _reads_type(self, task: FileTask) -> bool:
        return self._has_type and not _has_constant_type(task)

    def untold(self, task: FileTask) -> frozenset[str]:
        """Return the partition columns without a value in the file's action; they are read from the file like other
        columns.

        The file has them if it is older than the table's partitioning, or if its writer stores them anyway; otherwise
        they are null: Delta Lake for Spark omits nulls in tombstones, other writers also in added files.
        """
        if not self._partitions:
            return frozenset()
        values = task.partition_values
        return frozenset(name for name, field in self._partitions if not self._has_value(field, values))

    def filters_rows(self, task: FileTask) -> bool:
        """Return whether the conditions or equality deletes may leave out some rows of the file because of their
        values."""
        if task.equality:
            return True
        if not self.context.filters:
            return False
        is_constant = self._has_type and _has_constant_type(task)
        constant = _CONSTANT | {Origin.CHANGE_TYPE} if is_constant else _CONSTANT
        untold = self.untold(task)
        return any(column.origin not in constant or column.name in untold for column in self.context.filters)

    def constants(self, task: FileTask) -> dict[str, object]:
        """Return the values of the columns with one value in the whole file, in forms that Arrow converts to their
        types.

        Raises ``DataError`` if a partition value cannot be parsed.
        """
        values: dict[str, object] = {}
        untold, change = self.untold(task), task.change
        for column in self._constant:
            if column.name in untold:
                continue
            if column.origin is Origin.PARTITION:
                assert column.field is not None
                text = self._partition_text(task, column.field)
                values[column.name] = parse_partition_value(
                    text, column.field.type, column=column.name, empty_is_null=self.context.empty_is_null
                )
            elif change is not None and (value := change.value(column.origin)) is not None:
                values[column.name] = value
        return values

    def constant_bounds(self, task: FileTask) -> dict[ColumnPath, ColumnBounds]:
        """Return the bounds of the filter columns that have one value in the whole file."""
        bounds: dict[ColumnPath, ColumnBounds] = {}
        untold, change = self.untold(task), task.change
        for column in self.context.filters:
            if column.name in untold:
                continue
            if column.origin is Origin.PARTITION:
                assert column.field is not None
                text = self._partition_text(task, column.field)
                value = partition_bound(
                    text, column.field.type, column=column.name, empty_is_null=self.context.empty_is_null
                )
                # A float has no bounds, because NaN and signed zeros cannot be bounds; the entry only says that it is
                # not null. Without the entry, the column would count as missing from the file: as null in every row.
                bound = None if isinstance(value, float) else value
                bounds[(column.name,)] = ColumnBounds(bound, bound, 1 if value is None else 0, 1)
            elif change is not None and (of_change := change.bounds(column.origin)) is not None:
                bounds[(column.name,)] = of_change
        return bounds

    def check_partitions(self, task: FileTask, alignment: Alignment) -> None:
        """Raise ``DataError`` if the file lacks a column, and has a partition value whose name is not that of a
        partition column.

        Such a file is older than the table's partitioning, or the names of its partition values are wrong, so the value
        may belong to the missing column.
        """
        strange = [key for key in task.partition_values if key.lower() not in self._partition_keys]
        if not strange:
            return
        files = (*alignment.output, *alignment.filter)
        for column, file in zip(self.columns, files, strict=True):
            if file is not None and not file.leaves:
                raise DataError(
                    f"The file has no column '{column.name}', but a partition value named '{min(strange)[:100]}', "
                    f"which is not a partition column of the table and may be the value of '{column.name}'. Ask the "
                    "provider to rewrite the file."
                )

    def partition_value(self, task: FileTask, field: StructField, arrow: pa.DataType) -> pa.Scalar | None:
        """Return the partition value of ``field`` in a file's action, ``None`` if it has none."""
        # A dropped column may have had the name of a current one.
        column = self.context.schema.find(field.name)
        if column is None or column.field_id != field.field_id or not self._has_value(field, task.partition_values):
            return None
        text, empty_is_null = self._partition_text(task, field), self.context.empty_is_null
        value = parse_partition_value(text, field.type, column=field.name, empty_is_null=empty_is_null)
        return pa.scalar(value, arrow)

    def _partition_text(self, task: FileTask, field: StructField) -> Union[str, None]:
        """Return the serialized partition value of ``field``. Raises ``DataError`` if the file's action has several."""
        name, values = self._stored_name(field), task.partition_values
        if name in values:
            return values[name]
        spellings = self._spelled(field, values)
        if len(spellings) > 1:
            raise DataError(
                f"The file must have one value for the partition column '{field.name}', found {len(spellings)}."
            )
        return values[spellings[0]]

    def _has_value(self, field: StructField, values: Mapping[str, object]) -> bool:
        return self._stored_name(field) in values or bool(self._spelled(field, values))

    def _spelled(self, field: StructField, values: Mapping[str, object]) -> list[str]:
        name = self._stored_name(field).lower()
        return [key for key in values if key.lower() == name]


@dataclasses.dataclass(frozen=True, slots=True)
class Alignment:
    """Where files with a certain schema have the scan's columns.

    ``columns`` is the number of Parquet columns in the file. ``leaves`` are the needed ones, and ``tops`` has the
    positions of their top-level columns in the batches that are read. ``equality`` has the columns of equality deletes,
    by field id. ``has_lists`` says that a row may have any number of values in a needed column; ``is_as_stored``, that
    the needed columns have the names and types of the output, and its order. ``texts`` are the Parquet columns that can
    be read as dictionaries, because neither the predicate nor the output needs them converted.
    """

    columns: int
    filter_aligner: Aligner
    output: tuple[FileColumn | None, ...]
    filter: tuple[FileColumn | None, ...]
    row_id: FileColumn | None
    row_update: FileColumn | None
    equality: Mapping[int, FileColumn]
    leaves: tuple[int, ...]
    tops: dict[int, int]
    has_lists: bool
    is_as_stored: bool
    texts: frozenset[int]


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Which columns and row groups of one file are read, and where they are.

    ``bounds`` exists if there is a condition to skip data by. The other attributes are by row group: ``pages`` has
    the groups from which only some rows are wanted; ``index`` has functions that decode their lists of pages, if the
    page index was read; ``cuts`` has the ranges of rows, counted within the row group, if other layouts cover its
    other rows.
    """

    footer: Footer
    chunks: Chunks
    bounds: RowGroupBounds | None
    whole: bool
    alignment: Alignment
    groups: tuple[int, ...]
    groups_skipped: int
    row_starts: tuple[int, ...]
    pages: Mapping[int, GroupPages] = dataclasses.field(default_factory=dict)
    index: Mapping[int, Callable[[], Mapping[int, DataPages]]] = dataclasses.field(default_factory=dict)
    cuts: Mapping[int, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def leaves(self) -> tuple[int, ...]:
        """The Parquet columns to read."""
        return self.alignment.leaves

    def rows(self, group: int) -> int:
        return self.row_starts[group + 1] - self.row_starts[group]

    def stretches(self, group: int, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the wanted ranges among the file's rows ``[start, stop)``, which all belong to ``group``."""
        first = self.row_starts[group]
        return [(first + left, first + right) for left, right in self.within(group, start - first, stop - first)]

    def within(self, group: int, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the wanted ranges among a row group's rows ``[start, stop)``."""
        if group not in self.pages:
            return [(start, stop)]
        cut = [(max(start, left), min(stop, right)) for left, right in self.pages[group].rows]
        return [(left, right) for left, right in cut if left < right]

    def end(self, group: int) -> int:
        """Return the number of the row after the last wanted row of ``group``, counted from the start of the file."""
        if group in self.pages and self.pages[group].rows:
            return self.row_starts[group] + self.pages[group].rows[-1][1]
        return self.row_starts[group + 1]

    def ranges(self, groups: tuple[int, ...]) -> list[ByteRange]:
        """Return the needed bytes of the column chunks of ``groups``. Raises ``DataError`` if they are outside the
        file."""
        all_ranges = []
        for group in groups:
            partial = self.pages[group].chunks if group in self.pages else {}
            for leaf in self.leaves:
                all_ranges += partial[leaf].ranges if leaf in partial else [self.chunk_range(group, leaf)]
        return all_ranges

    def chunk_range(self, group: int, leaf: int) -> ByteRange:
        """Return the bytes that the Parquet reader reads for a whole column chunk."""
        chunk = self.chunks.get(group, leaf)
        return ByteRange(chunk.start, min(chunk.start + chunk.length + self.chunks.padding, self.footer.start))

    def dictionaries(self, groups: tuple[int, ...]) -> list[str]:
        """Return the paths of the text columns that all of ``groups`` store as indices into short dictionaries."""
        texts = self.alignment.texts if SHORTCUTS.text_dictionaries else ()
        if not texts or any(self.rows(group) < _LEAST_DICTIONARY_ROWS for group in groups):
            return []
        paths = []
        for leaf in sorted(texts):
            path = self.footer.metadata.schema.column(leaf).path
            chunks = [self.chunks.get(group, leaf) for group in groups]
            # A name with a dot may also be the path of a field in a struct.
            if "." not in path and all(map(_is_short_dictionary, chunks)):
                paths.append(path)
        return paths

    def compressed_size(self, groups: tuple[int, ...]) -> int:
        """Return how many bytes of the file ``groups`` need; approximate if the whole file is downloaded."""
        if self.whole:
            rows = sum(self.rows(group) for group in groups)
            return self.footer.start * rows // max(1, self.row_starts[-1])
        return sum(item.length for item in self.ranges(groups))

    def decoded_size(self, groups: tuple[int, ...]) -> int:
        """Return the approximate decoded size of the needed columns of ``groups``."""
        # A few bytes of run lengths can stand for billions of values, so the number of values counts as well.
        values = sum(self.rows(group) for group in groups) * len(self.leaves) // _VALUES_PER_BYTE
        if self.whole:
            return max(values, sum(max(0, self.footer.metadata.row_group(group).total_byte_size) for group in groups))
        return max(values, sum(self._uncompressed(group, leaf) for group in groups for leaf in self.leaves))

    def _uncompressed(self, group: int, leaf: int) -> int:
        chunk = self.chunks.get(group, leaf)
        partial = self.pages[group].chunks.get(leaf) if group in self.pages else None
        return chunk.uncompressed if partial is None else chunk.uncompressed * partial.size // chunk.length


def _is_short_dictionary(chunk: ColumnChunk) -> bool:
    longest = min(_LONGEST_DICTIONARY, _LONGEST_SHARE * chunk.values)
    return chunk.is_dictionary_encoded and chunk.dictionary_length <= longest


def lay_out(shape: Shape, task: FileTask, footer: Footer, *, whole: bool = False) -> Layout:
    """Find the scan's columns in a file, and choose the row groups that may have a wanted row.

    With ``whole``, the whole file is downloaded, and sizes are only approximate. Raises ``DataError`` if the file does
    not fit the table: for example, if field ids are missing, a type cannot be converted, or the number of rows
    contradicts ``numRecords`` in the statistics.
    """
    context, metadata = shape.context, footer.metadata
    alignment = shape.alignment(footer.arrow, task, footer.int96)
    if alignment.columns != metadata.num_columns:
        raise DataError(
            f"The file's schema has {alignment.columns} Parquet columns, but its footer states {metadata.num_columns}."
        )
    if task.partition_values:
        shape.check_partitions(task, alignment)
    starts = [0]
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if rows < 0:
            raise DataError(f"The number of rows of row group {group} must be 0 or more, but the footer states {rows}.")
        starts.append(starts[-1] + rows)
    if starts[-1] != metadata.num_rows:
        raise DataError(
            f"The footer states {metadata.num_rows} rows for the file, but {starts[-1]} rows for all of its row groups."
        )
    if task.num_records is not None and task.num_records != metadata.num_rows:
        raise DataError(
            f"The table's metadata states {task.num_records} rows for the file, but the file's footer states "
            f"{metadata.num_rows}."
        )
    groups = task.row_groups if task.row_groups is not None else tuple(range(metadata.num_row_groups))
    if any(not 0 <= group < metadata.num_row_groups for group in groups):
        raise DataError(
            f"The row groups to read must be below {metadata.num_row_groups}, the file's number of row groups, found "
            f"{groups}."
        )
    kept = [group for group in groups if starts[group + 1] > starts[group]]
    chunks = Chunks(footer.data, alignment.leaves, footer.start)
    bounds = None
    if shape.skipping is not None and kept:
        rows = [starts[group + 1] - starts[group] for group in range(metadata.num_row_groups)]
        constants = shape.constant_bounds(task)
        bounds = RowGroupBounds(chunks, rows, alignment.filter_aligner, context.schema, shape.filter_paths, constants)
        kept = bounds.matching(shape.skipping, kept)
    return Layout(
        footer=footer,
        chunks=chunks,
        bounds=bounds,
        whole=whole,
        alignment=alignment,
        groups=tuple(kept),
        groups_skipped=len(groups) - len(kept),
        row_starts=tuple(starts),
    )


def equality_ids(task: FileTask) -> frozenset[int]:
    """Return the field ids of the columns that the file's equality deletes compare."""
    return frozenset(field_id for ref in task.equality for field_id in ref.ids)


def delete_column(context: ScanContext, field_id: int) -> StructField:
    """Return the top-level column of the field ``field_id``, pruned to that field. Raises ``UnsupportedFeatureError``
    if the field cannot be compared."""
    column = context.equality_columns.get(field_id)
    if column is None:
        raise UnsupportedFeatureError(
            f"An equality delete compares the column with the field id {field_id}, but the table's schemas have no "
            "column of a simple type with that id.",
            feature="equality deletes",
            table=context.table,
        )
    return column


def _align(shape: Shape, arrow: pa.Schema, task: FileTask, int96: frozenset[int]) -> Alignment:
    context = shape.context

    def aligner_of(variant_as: VariantAs) -> Aligner:
        return Aligner(
            arrow,
            context.mapping_mode,
            variant_as,
            choice(context.options.invalid_text),
            names=context.name_mapping,
            required_ids=frozenset(task.required_ids),
            int96=int96,
        )

    aligner, filter_aligner = aligner_of(choice(context.options.variant_as)), aligner_of(VariantAs.STRUCT)
    untold = shape.untold(task)
    output = tuple(_file_column(aligner, column, task, untold) for column in context.output)
    filters = tuple(_file_column(filter_aligner, column, task, untold) for column in context.filters)
    lineage = context.row_lineage
    row_id = row_update = None
    if lineage is not None:
        if lineage.row_id is not None and Origin.ROW_ID in shape.origins:
            row_id = aligner.column(lineage.row_id)
        if lineage.row_update is not None and not ROW_UPDATES.isdisjoint(shape.origins):
            row_update = aligner.column(lineage.row_update)
    # These columns may be null: a delete may be older than the column's NOT NULL constraint.
    equality = {field_id: aligner.column(delete_column(context, field_id)) for field_id in sorted(equality_ids(task))}
    columns = (*output, *filters, row_id, row_update, *equality.values())
    used = [column for column in columns if column is not None and column.leaves]
    tops = {top: position for position, top in enumerate(sorted({column.top for column in used}))}
    return Alignment(
        columns=aligner.leaves,
        filter_aligner=filter_aligner,
        output=output,
        filter=filters,
        row_id=row_id,
        row_update=row_update,
        equality=equality,
        leaves=tuple(sorted({leaf for column in used for leaf in column.leaves})),
        tops=tops,
        has_lists=aligner.has_lists(tops),
        is_as_stored=_is_as_stored(output, list(tops), arrow, context.output_schema),
        texts=_texts(arrow, (*output, *filters), equality.values()),
    )


def _texts(arrow: pa.Schema, columns: Sequence[FileColumn | None], equality: Iterable[FileColumn]) -> frozenset[int]:
    used = [column for column in columns if column is not None and column.leaves]
    texts = {column.leaves[0] for column in used if pa.types.is_string(arrow.field(column.top).type)}
    others = (*equality, *(column for column in used if column.convert is not None))
    return frozenset(texts.difference(*(column.leaves for column in others)))


def _is_as_stored(
    output: Sequence[FileColumn | None], tops: list[int], arrow: pa.Schema, output_schema: pa.Schema
) -> bool:
    if [column.top for column in output if column is not None and column.convert is None] != tops:
        return False
    stored = pa.schema([arrow.field(top) for top in tops])
    return bool(stored.equals(output_schema.remove_metadata(), check_metadata=True))


def _file_column(aligner: Aligner, column: ReadColumn, task: FileTask, untold: frozenset[str]) -> FileColumn | None:
    if column.origin is Origin.FILE or column.name in untold:
        assert column.field is not None
        return aligner.column(column.field)
    if column.origin is Origin.CHANGE_TYPE and not _has_constant_type(task):
        aligned = aligner.column(_CHANGE_TYPE_FIELD)
        if not aligned.leaves:
            raise DataError(f"The change file has no column {CHANGE_TYPE!r}, which holds the change type of each row.")
        return aligned
    return None


def _has_constant_type(task: FileTask) -> bool:
    assert task.change is not None, "the scan asks for columns of the change feed"
    return task.change.kind is not ChangeKind.IN_FILE
