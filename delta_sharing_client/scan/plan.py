"""A snapshot and a request to the files that must be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pyarrow as pa

from delta_sharing_client.delta.actions import AddFile, Metadata, Protocol, RemoveFile
from delta_sharing_client.delta.arrow_types import to_arrow_schema
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.paths import DELETION_VECTOR_SUFFIX, url_key
from delta_sharing_client.delta.row_tracking import ENABLED_PROPERTY, row_tracking
from delta_sharing_client.delta.snapshot import Snapshot, table_schema
from delta_sharing_client.delta.statistics import StatisticsReader, num_records
from delta_sharing_client.download.remote_file import UrlSource
from delta_sharing_client.errors import DataError, UnsupportedFeatureError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.skipping import Statistics, compile_skipping
from delta_sharing_client.predicates.tree import And, Expression, all_of
from delta_sharing_client.predicates.tree import columns as columns_of
from delta_sharing_client.scan.columns import output_columns
from delta_sharing_client.scan.request import ScanRequest
from delta_sharing_client.scan.tasks import (
    ROW_LINEAGE_FIELDS,
    DeletionVectorRef,
    FileTask,
    RowLineage,
    ScanContext,
    ScanPlan,
    Skipped,
)


def plan_snapshot(
    table: str,
    snapshot: Snapshot,
    request: ScanRequest,
    options: ReadOptions,
    urls: UrlSource | None = None,
    *,
    allow_http: bool = False,
) -> ScanPlan:
    """Return the files of ``snapshot`` that may hold rows of ``request``.

    Parameters
    ----------
    table:
        Name for messages.
    urls:
        Where fresh URLs come from once those of the snapshot expire.
    allow_http:
        Whether the profile's endpoint is ``http:``, so that data may be (``data_urls.check_data_url``).

    Raises
    ------
    UsageError
        A column or the filter does not fit the schema.
    UnsupportedFeatureError
        Row lineage of a table that does not track rows.
    """
    return plan_files(
        table,
        snapshot.version,
        snapshot.protocol,
        snapshot.metadata,
        snapshot.files,
        request,
        options,
        urls,
        allow_http=allow_http,
    )


def plan_files(
    table: str,
    version: int,
    protocol: Protocol,
    metadata: Metadata,
    files: Iterable[AddFile],
    request: ScanRequest,
    options: ReadOptions,
    urls: UrlSource | None = None,
    *,
    allow_http: bool = False,
) -> ScanPlan:
    """As ``plan_snapshot``, over the live files as they arrive: none is kept longer than its turn, statistics never."""
    began = time.perf_counter()
    schema = table_schema(metadata, table=table)
    context = snapshot_context(
        table, version, protocol, metadata, schema, request, options, urls, allow_http=allow_http
    )
    planner = _Planner(context, request.limit)
    for add in files:
        planner.consider(add)
    return ScanPlan(
        context=context,
        tasks=planner.tasks,
        limit=request.limit,
        skipped=planner.skipped(),
        plan_seconds=time.perf_counter() - began,
    )


def snapshot_context(
    table: str,
    version: int,
    protocol: Protocol,
    metadata: Metadata,
    schema: StructType,
    request: ScanRequest,
    options: ReadOptions,
    urls: UrlSource | None,
    *,
    allow_http: bool,
) -> ScanContext:
    """Return what all files of a snapshot's scan share; errors as in ``plan_snapshot``."""
    partition_columns = resolved_partition_columns(schema, metadata)
    lineage = row_lineage(table, protocol, metadata) if request.row_lineage else None
    output = output_columns(
        schema, request.columns, partition_columns, options.variant_as, row_lineage=request.row_lineage
    )
    predicate = bound(request.filter, schema, list(ROW_LINEAGE_FIELDS) if request.row_lineage else [])
    return ScanContext(
        table=table,
        table_id=metadata.id,
        version=version,
        schema=schema,
        mapping_mode=mapping_mode(metadata),
        partition_columns=partition_columns,
        columns=request.columns,
        output_schema=pa.schema([column.arrow for column in output]),
        predicate=predicate,
        options=options,
        row_lineage=lineage,
        urls=urls,
        allow_http=allow_http,
    )


def bound(predicate: Expression | None, schema: StructType, extra: list[pa.Field]) -> Expression | None:
    """Bind a filter to the table's columns and those a read adds."""
    if predicate is None:
        return None
    return bind(predicate, pa.schema([*to_arrow_schema(schema), *extra]))


def resolved_partition_columns(schema: StructType, metadata: Metadata) -> tuple[str, ...]:
    """Return the names of the partition columns as the schema spells them."""
    found = (schema.find(name) for name in metadata.partition_columns)
    return tuple(field.name for field in found if field is not None)


def row_lineage(table: str, protocol: Protocol, metadata: Metadata) -> RowLineage:
    """Return where a table materializes row ids (Delta Transaction Log Protocol, "Row Tracking").

    Raises
    ------
    UnsupportedFeatureError
        The table does not track rows, or the server's answer does not say so.
    """
    # The property decides alone: a sharing server may leave out the writer features, and each file proves its ids.
    if metadata.properties.get(ENABLED_PROPERTY, "false").lower() != "true":
        raise UnsupportedFeatureError(
            "The table does not track rows, so it has no _row_id and _row_commit_version. The provider must enable it "
            "(ALTER TABLE ... SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')) and share the table in the delta "
            "response format.",
            feature="rowTracking",
            table=table,
        )
    tracking = row_tracking(protocol, metadata)
    return RowLineage(
        row_id_column=tracking.row_id_column, row_commit_version_column=tracking.row_commit_version_column
    )


class FileFilter:
    """Decides by partition values and statistics whether a file may hold a row for which the predicate is true."""

    def __init__(self, context: ScanContext) -> None:
        self._partitions: dict[tuple[tuple[str, str | None], ...], bool] = {}
        self._reader: StatisticsReader | None = None
        if context.predicate is None:
            return
        names = set(context.partition_columns)
        self._reader = StatisticsReader(
            context.schema, context.mapping_mode, context.partition_columns, columns_of(context.predicate)
        )
        conjuncts = context.predicate.children if isinstance(context.predicate, And) else (context.predicate,)
        own = [part for part in conjuncts if {path[0] for path in columns_of(part)} <= names]
        self._may_match = compile_skipping(context.predicate)
        self._partition_may_match = compile_skipping(all_of(own)) if own else None

    def keeps(self, add: AddFile) -> tuple[bool, bool, int | None]:
        """Return whether to read the file, whether its partition alone rules it out, and its physical row count."""
        if self._reader is None:
            return True, False, num_records(add.stats)
        if self._partition_may_match is not None and not self._keeps_partition(
            add, self._partition_may_match, self._reader
        ):
            return False, True, None
        statistics = self._reader.read(add)
        return self._may_match(statistics), False, statistics.num_records

    def _keeps_partition(self, add: AddFile, may_match: Callable[[Statistics], bool], reader: StatisticsReader) -> bool:
        """Decide once for all files of a partition: most predicates on large tables end here."""
        key = tuple(add.partition_values.items())
        known = self._partitions.get(key)
        if known is None:
            bare = AddFile(path="", partition_values=add.partition_values)
            known = self._partitions[key] = may_match(reader.read(bare))
        return known


class _Planner:
    def __init__(self, context: ScanContext, limit: int | None) -> None:
        self.tasks: list[FileTask] = []
        self._filter = FileFilter(context)
        self._lineage = context.row_lineage is not None
        self._table = context.table
        # Rows can only be counted off against the limit where every row of a file is returned.
        self._left = limit if context.predicate is None else None
        self._partitions: dict[tuple[tuple[str, str | None], ...], dict[str, str | None]] = {}
        self._counts = [0, 0, 0]
        self._bytes = 0

    def consider(self, add: AddFile) -> None:
        if self._left is not None and self._left <= 0:
            self._skip(2, add)
            return
        keeps, by_partition, records = self._filter.keeps(add)
        if not keeps:
            self._skip(0 if by_partition else 1, add)
            return
        task = self._task(add, records)
        if self._left is not None:
            # A file of unknown length may hold none of the rows that are still wanted.
            self._left -= task.live_records or 0
        self.tasks.append(task)

    def skipped(self) -> Skipped:
        by_partition, by_statistics, by_limit = self._counts
        return Skipped(by_partition=by_partition, by_statistics=by_statistics, by_limit=by_limit, bytes=self._bytes)

    def _skip(self, reason: int, add: AddFile) -> None:
        self._counts[reason] += 1
        self._bytes += max(0, add.size)

    def _task(self, add: AddFile, records: int | None) -> FileTask:
        key = url_key(add)
        if self._lineage and (add.base_row_id is None or add.default_row_commit_version is None):
            raise DataError(
                "The table tracks rows, but the server gave a file no baseRowId or defaultRowCommitVersion; row "
                "lineage needs the delta response format.",
                table=self._table,
                file_id=add.file_id,
            )
        return FileTask(
            key=key,
            url=add.path,
            file_id=add.file_id,
            expiration_ms=add.shared_expiration,
            size=add.size,
            without=vector_ref(add, key),
            partition_values=self._shared(add.partition_values),
            num_records=records,
            base_row_id=add.base_row_id,
            default_row_commit_version=add.default_row_commit_version,
        )

    def _shared(self, values: dict[str, str | None]) -> dict[str, str | None]:
        """Return an equal dict that all files of the partition have in common: a million files need few of them."""
        return self._partitions.setdefault(tuple(values.items()), values) if values else _NO_VALUES


_NO_VALUES: dict[str, str | None] = {}


def vector_ref(action: AddFile | RemoveFile, key: str) -> DeletionVectorRef | None:
    """Return the reference to the deletion vector of ``action``, whose URL key is ``key``; ``None`` without one."""
    descriptor = action.deletion_vector
    if descriptor is None or (descriptor.cardinality == 0 and descriptor.size_in_bytes == 0):
        return None
    return DeletionVectorRef(descriptor, key + DELETION_VECTOR_SUFFIX)
