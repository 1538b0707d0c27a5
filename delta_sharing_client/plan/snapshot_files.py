"""Plans which files of a snapshot a request reads; ``plan_changes`` does this for a change feed."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import cast

from delta_sharing_client.delta.actions import AddFile, FileAction, SharedFile
from delta_sharing_client.delta.data_types import ColumnPath, PrimitiveType, StructField
from delta_sharing_client.delta.paths import DELETION_VECTOR_SUFFIX, url_key
from delta_sharing_client.delta.statistics import ColumnBounds, FileStatistics, StatisticsReader, num_records
from delta_sharing_client.errors import DataError, IncompleteReadWarning, UnsupportedFeatureError
from delta_sharing_client.options import ReadOptions, choice
from delta_sharing_client.plan.read_columns import (
    Origin,
    filter_columns,
    left_out_columns,
    left_out_metadata,
    output_columns,
    unbounded_paths,
)
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.plan.tasks import (
    Change,
    DeletionVectorRef,
    FileTask,
    RowLineage,
    ScanContext,
    ScanPlan,
    ScanStream,
    SkippedFiles,
)
from delta_sharing_client.predicates.skipping import Statistics, compile_skipping
from delta_sharing_client.predicates.tree import And, Expression, all_of
from delta_sharing_client.predicates.tree import columns as columns_of

PartitionValues = dict[str, "str | None"]
_vector_of = operator.attrgetter("action.deletion_vector")


def plan_snapshot(
    table: TableState, files: Sequence[SharedFile], request: ScanRequest, options: ReadOptions
) -> ScanPlan:
    """Return the plan of the live ``files`` that may have rows of ``request``; errors as ``stream_snapshot``."""
    return stream_snapshot(table, [files], request, options).whole()


def stream_snapshot(
    table: TableState, blocks: Iterable[Sequence[SharedFile]], request: ScanRequest, options: ReadOptions
) -> ScanStream:
    """Return a stream of the live files of ``blocks`` that may have rows of ``request``, as they arrive.

    Neither files nor statistics are kept. Once the files so far have all rows of the limit, the listing is cancelled,
    but only after some more files, because they cost less than a broken connection. Raises ``UsageError`` if a column
    or the filter does not fit the schema, ``UnsupportedFeatureError`` for row lineage of a table without row tracking.
    """
    planner = FilePlanner(table, request, options)
    return planner.stream(_wanted(planner, blocks))


def _wanted(planner: FilePlanner, blocks: Iterable[Sequence[SharedFile]]) -> Generator[list[FileTask], None, None]:
    for files in blocks:
        if planner.takes_all and not any(map(_vector_of, files)):
            yield planner.plain_tasks(files)
            continue
        yield from in_blocks(_considered(planner, files))
        if planner.has_enough:
            return


def _considered(planner: FilePlanner, files: Sequence[SharedFile]) -> Iterator[FileTask]:
    for file in files:
        task = planner.consider(file, without=vector_ref(file))
        if task is not None:
            yield task
        elif planner.has_enough:
            return


def in_blocks(tasks: Iterable[FileTask]) -> Generator[list[FileTask], None, None]:
    """Yield ``tasks`` in blocks; those before an error are yielded before it is raised."""
    block: list[FileTask] = []
    try:
        for task in tasks:
            block.append(task)
            if len(block) == _BLOCK:
                full, block = block, []
                yield full
    finally:
        if block:
            yield block


class FilePlanner:
    """Creates the tasks of files that may have a wanted row: call ``consider`` with each file, in order.

    Raises the errors of ``stream_snapshot``.
    """

    def __init__(self, table: TableState, request: ScanRequest | ChangesRequest, options: ReadOptions) -> None:
        self._context = context = scan_context(table, table.bound(request), options)
        self._limit = request.limit
        self._lineage = context.row_lineage
        self._filter = None if context.skipping is None else _FileFilter(context, context.skipping)
        # Rows can only be counted against the limit if every row of a file is returned.
        self._left = request.limit if context.skipping is None else None
        self.has_enough = False
        self.takes_all = context.skipping is None and request.limit is None and self._lineage is None
        """Whether every file of a snapshot is read, so that ``plain_tasks`` can be used if no file has a vector."""
        self._skipped = {"by_partition": 0, "by_statistics": 0, "by_limit": 0, "bytes": 0}

    def consider(
        self,
        file: SharedFile,
        described_by: FileAction | None = None,
        change: Change | None = None,
        without: DeletionVectorRef | None = None,
        only: DeletionVectorRef | None = None,
    ) -> FileTask | None:
        """Return the task of a file, ``None`` if none of its rows is wanted.

        ``described_by`` is the action whose statistics cover the rows, if it is not the file's own. ``change``,
        ``without`` and ``only`` are as in ``FileTask``.
        """
        action = file.action
        if self.is_full:
            self._skip("by_limit", action)
            self.has_enough = self._skipped["by_limit"] >= _LISTED_IN_VAIN
            return None
        records = None
        if self._filter is not None:
            reason, records = self._filter.reason_to_skip(described_by or action, action, change)
            if reason is not None:
                self._skip(reason, action)
                return None
        if self._filter is None or described_by is not None:
            records = num_records(action.stats)
        task = self._task(file, records, change, without, only)
        if self._left is not None:
            # A file whose number of rows is unknown may have none of the remaining rows.
            self._left -= task.live_records or 0
        return task

    @staticmethod
    def plain_tasks(files: Sequence[SharedFile]) -> list[FileTask]:
        """Return the tasks of all ``files``, as ``consider`` would; a fast path for millions of simple files."""
        return [
            FileTask(
                key=url_key(file),
                url=(action := file.action).path,
                file_id=file.file_id,
                renew_at=file.renew_at,
                size=-1 if action.size is None else action.size,
                partition_values=action.partition_values or {},
                num_records=num_records(action.stats),
                equality=file.equality,
                required_ids=file.required_ids,
            )
            for file in files
        ]

    @property
    def is_full(self) -> bool:
        """Whether the files so far have all rows of the limit."""
        return self._left is not None and self._left <= 0

    def stream(self, blocks: Generator[list[FileTask], None, None]) -> ScanStream:
        """Return the plan of the tasks in ``blocks``, which must come from this planner."""
        return ScanStream(
            context=self._context, blocks=blocks, skipped=self._skips, limit=self._limit, notes=self._context.notes
        )

    def _skips(self) -> SkippedFiles:
        return SkippedFiles(**self._skipped, is_cut=self.has_enough)

    def _skip(self, reason: str, action: FileAction) -> None:
        self._skipped[reason] += 1
        self._skipped["bytes"] += max(0, action.size or 0)

    def _task(
        self,
        file: SharedFile,
        records: int | None,
        change: Change | None,
        without: DeletionVectorRef | None,
        only: DeletionVectorRef | None,
    ) -> FileTask:
        action = file.action
        base_row_id = default_row_commit_version = None
        if self._lineage is not None:
            assert isinstance(action, AddFile)
            base_row_id, default_row_commit_version = action.base_row_id, action.default_row_commit_version
            is_missing = base_row_id is None or default_row_commit_version is None
            if is_missing and not self._lineage.may_be_missing:
                raise DataError(
                    "Row lineage needs a baseRowId and a defaultRowCommitVersion for each file, but the server sent a "
                    "file without one. Ask the provider to share the table in the delta response format.",
                    table=self._context.table,
                    file_id=file.file_id,
                )
        return FileTask(
            key=url_key(file),
            url=action.path,
            file_id=file.file_id,
            renew_at=file.renew_at,
            size=-1 if action.size is None else action.size,
            without=without,
            only=only,
            partition_values=action.partition_values or {},
            num_records=records,
            base_row_id=base_row_id,
            default_row_commit_version=default_row_commit_version,
            change=change,
            equality=file.equality,
            required_ids=file.required_ids,
        )


_NO_VALUES: PartitionValues = {}
# The maximum number of partitions for which results are cached.
_REMEMBERED = 1 << 14
# After the limit is reached, this many more files are read before the listing is cancelled.
_LISTED_IN_VAIN = 1000
# The maximum number of files that are considered before the first of them is read.
_BLOCK = 256


def scan_context(table: TableState, request: ScanRequest | ChangesRequest, options: ReadOptions) -> ScanContext:
    """Return the properties that all files of a scan share; ``request`` is bound to the table's schema."""
    paths = cast("tuple[ColumnPath, ...] | None", request.columns)
    schema, partition_columns, added = table.schema, table.partition_columns, request.added_fields
    left_out = left_out_metadata(schema) if paths is None else None
    lineage = isinstance(request, ScanRequest) and request.row_lineage
    output = output_columns(schema, paths, partition_columns, choice(options.variant_as), added)
    if left_out is not None and not output:
        types = ", ".join(left_out_columns(schema).values())
        raise UnsupportedFeatureError(
            f"None of the table's columns can be read: their types are {types}. "
            "Upgrade the client, or ask the provider for a view that converts them.",
            feature="columns of unsupported types",
            table=table.name,
        )
    context = ScanContext(
        table=table.name,
        version=table.version,
        schema=schema,
        mapping_mode=table.mapping_mode,
        partition_columns=partition_columns,
        empty_is_null=table.empty_is_null,
        output=output,
        filters=filter_columns(schema, request.skipping, partition_columns, added),
        predicate=request.filter,
        pushed_predicate=request.pushed_filter,
        options=options,
        row_lineage=(table.row_lineage or _row_lineage(table)) if lineage else None,
        is_change_feed=isinstance(request, ChangesRequest),
        left_out=left_out,
        equality_columns=table.equality_columns,
        name_mapping=table.name_mapping,
        place=table.place,
        query_id=table.query_id,
    )
    for note in context.notes:
        # The text depends only on the table, so that Python shows the warning once per table.
        warnings.warn(note, IncompleteReadWarning, stacklevel=2)
    return context


def vector_ref(file: SharedFile) -> DeletionVectorRef | None:
    """Return the reference to the deletion vector of ``file``, or ``None``."""
    descriptor = file.action.deletion_vector
    if descriptor is None or (descriptor.cardinality == 0 and descriptor.size_in_bytes == 0):
        return None
    return DeletionVectorRef(descriptor, url_key(file) + DELETION_VECTOR_SUFFIX)


def _row_lineage(table: TableState) -> RowLineage:
    """Return the columns that store row ids and commit versions in a table's files (Delta Transaction Log Protocol,
    "Row Tracking").

    Raises ``UnsupportedFeatureError`` if the table does not track rows, or the server does not state that it does.
    """
    # Only the property counts: a sharing server may omit writer features, and each file must have its ids anyway.
    properties = table.metadata.properties
    if properties.get("delta.enableRowTracking", "").lower() != "true":
        raise UnsupportedFeatureError(
            "The table does not track rows, so it has no _row_id and _row_commit_version. Ask the provider to enable "
            "row tracking (ALTER TABLE ... SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')) and to share the "
            "table in the delta response format.",
            feature="rowTracking",
            table=table.name,
        )
    return RowLineage(
        row_id=_materialized(properties.get("delta.rowTracking.materializedRowIdColumnName")),
        row_update=_materialized(properties.get("delta.rowTracking.materializedRowCommitVersionColumnName")),
    )


def _materialized(name: str | None) -> StructField | None:
    return None if name is None else StructField(name, PrimitiveType("long"))


# === Skipping files ===


class _FileFilter:
    """Decides by partition values and statistics whether a file may have a row for which the predicate is true."""

    def __init__(self, context: ScanContext, predicate: Expression) -> None:
        self._known: dict[tuple[tuple[str, str | None], ...], bool] = {}
        partitions = set(context.partition_columns)
        unbounded = {path for path in unbounded_paths(predicate, context.options) if path[0] not in partitions}
        paths = [path for path in columns_of(predicate) - unbounded if context.schema.find(path[0]) is not None]
        self._reader = StatisticsReader(
            context.schema,
            context.mapping_mode,
            context.partition_columns,
            paths,
            empty_is_null=context.empty_is_null,
        )
        conjuncts = predicate.children if isinstance(predicate, And) else (predicate,)
        own = [part for part in conjuncts if {path[0] for path in columns_of(part)} <= partitions]
        self._added = {column.name: column.origin for column in context.filters if column.field is None}
        self._may_match = compile_skipping(predicate)
        self._partition_may_match = compile_skipping(all_of(own)) if own else None

    def reason_to_skip(
        self, described: FileAction, action: FileAction, change: Change | None
    ) -> tuple[str | None, int | None]:
        """Return the attribute of ``SkippedFiles`` that counts the file (``None`` if it must be read), and its physical
        number of rows according to ``described``."""
        values = described.partition_values or action.partition_values or _NO_VALUES
        if self._partition_may_match is not None and not self._keeps(values, self._partition_may_match):
            return "by_partition", None
        if change is None:
            assert isinstance(described, AddFile)
            statistics = self._reader.read(described)
            return (None if self._may_match(statistics) else "by_statistics"), statistics.num_records
        vector = described.deletion_vector
        described = AddFile(path="", partition_values=values, stats=described.stats, deletion_vector=vector)
        statistics = self._reader.read(described)
        facts = _ChangeStatistics(statistics, change, self._added)
        return (None if self._may_match(facts) else "by_statistics"), statistics.num_records

    def _keeps(self, values: PartitionValues, may_match: Callable[[Statistics], bool]) -> bool:
        """Return whether the partition with ``values`` may match. The result is the same for all of its files, and
        decides most predicates on large tables."""
        key = tuple(values.items())
        may_match_file = self._known.get(key)
        if may_match_file is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            bare = AddFile(path="", partition_values=values)
            may_match_file = self._known[key] = may_match(self._reader.read(bare))
        return may_match_file


class _ChangeStatistics:
    """A file's statistics and its change feed constants. The counts describe a different set of rows, so they are only
    used to find out whether there are nulls."""

    def __init__(self, file: FileStatistics, change: Change, added: dict[str, Origin]) -> None:
        self._file = file
        self._change = change
        self._added = added

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        origin = self._added.get(path[0])
        return self._file.bounds(path) if origin is None else self._change.bounds(origin)
