"""A range of the change data feed to the files that hold its rows (Delta log protocol, "Add CDC File").

In each version: change files alone if there are any, else the rows of added files as ``insert`` and those of removed
files as ``delete``. A file that is added and removed in one version is the same file with another deletion vector; its
changes are the difference of the two vectors, however its URLs are signed::

    removed with   added with     deleted rows   inserted rows
    nothing        D2             D2
    D1             nothing                       D1
    D1             D2             D2 - D1        D1 - D2
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Union

import pyarrow as pa

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    FileAction,
    Metadata,
    Protocol,
    RemoveFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.column_mapping import mapping_mode
from delta_sharing_client.delta.data_types import ColumnPath, StructType
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.paths import url_key, without_query
from delta_sharing_client.delta.snapshot import table_schema
from delta_sharing_client.delta.statistics import ColumnBounds, FileStatistics, StatisticsReader, num_records
from delta_sharing_client.download.remote_file import UrlSource
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import columns as columns_of
from delta_sharing_client.scan.columns import output_columns
from delta_sharing_client.scan.plan import bound, resolved_partition_columns, vector_ref
from delta_sharing_client.scan.request import ChangesRequest
from delta_sharing_client.scan.schema_history import DatedMetadata, check_history
from delta_sharing_client.scan.tasks import (
    CHANGE_FIELDS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    Change,
    ChangeKind,
    DeletionVectorRef,
    FileTask,
    ScanContext,
    ScanPlan,
    Skipped,
)

ChangeAction = Union[FileAction, VersionedMetadata, VersionedProtocol]


def plan_changes(
    table: str,
    protocol: Protocol,
    metadata: Metadata,
    actions: Iterable[ChangeAction],
    request: ChangesRequest | Callable[[StructType], ChangesRequest],
    options: ReadOptions,
    urls: UrlSource | None = None,
    *,
    allow_http: bool = False,
) -> ScanPlan:
    """Return the files that hold the changes of a range of versions, oldest version first.

    Rows are read in the schema that holds at the end of the range; columns that older files lack are null.

    Parameters
    ----------
    protocol, metadata:
        Those of the answer's head, which hold at the start of the range.
    actions:
        The answer's other actions, in any order; every file action has its ``shared_version`` and
        ``shared_timestamp``.
    request:
        What to read, or a function that makes it of the schema in which the rows are read.
    urls, allow_http:
        As for ``plan_snapshot``.

    Raises
    ------
    SchemaChangeError
        No schema fits all rows; names the version at which to split the range.
    UsageError
        A column or the filter does not fit the schema.
    ProtocolError
        A file action without version or timestamp.
    """
    began = time.perf_counter()
    files: dict[int, list[FileAction]] = {}
    history = [DatedMetadata(None, metadata)]
    for action in actions:
        if isinstance(action, VersionedMetadata):
            history.append(DatedMetadata(action.version, action.metadata))
        elif isinstance(action, VersionedProtocol):
            check_readable(action.protocol, operation=Operation.CHANGES, table=table)
        else:
            files.setdefault(_version(action, table), []).append(action)
    history.sort(key=lambda dated: -1 if dated.version is None else dated.version)
    check_history(history, table)
    end = history[-1].metadata
    schema = table_schema(end, table=table)
    wanted = request(schema) if callable(request) else request
    context = _context(table, end, schema, wanted, max(files, default=None), options, urls, allow_http=allow_http)
    chooser = _Chooser(context, wanted.limit)
    for version in sorted(files):
        for candidate in _candidates(files[version], table):
            chooser.consider(candidate)
    return ScanPlan(
        context=context,
        tasks=chooser.tasks,
        limit=wanted.limit,
        skipped=chooser.skipped(),
        plan_seconds=time.perf_counter() - began,
    )


def _context(
    table: str,
    metadata: Metadata,
    schema: StructType,
    request: ChangesRequest,
    version: int | None,
    options: ReadOptions,
    urls: UrlSource | None,
    *,
    allow_http: bool,
) -> ScanContext:
    partition_columns = resolved_partition_columns(schema, metadata)
    output = output_columns(schema, request.columns, partition_columns, options.variant_as, change_feed=True)
    return ScanContext(
        table=table,
        table_id=metadata.id,
        version=version,
        schema=schema,
        mapping_mode=mapping_mode(metadata),
        partition_columns=partition_columns,
        columns=request.columns,
        output_schema=pa.schema([column.arrow for column in output]),
        predicate=bound(request.filter, schema, list(CHANGE_FIELDS)),
        options=options,
        is_change_feed=True,
        urls=urls,
        allow_http=allow_http,
    )


# === Which files, and which of their rows ===


class _Candidate(NamedTuple):
    """A file, the action whose statistics describe the chosen rows, and which rows those are."""

    action: FileAction
    described_by: FileAction
    kind: ChangeKind
    without: DeletionVectorRef | None
    only: DeletionVectorRef | None


def _candidates(actions: list[FileAction], table: str) -> Iterator[_Candidate]:
    """Yield what one version's actions contribute, in their order."""
    _check_once(actions, table)
    cdcs = [action for action in actions if isinstance(action, AddCdcFile)]
    if cdcs:
        for cdc in cdcs:
            yield _Candidate(cdc, cdc, ChangeKind.IN_FILE, None, None)
        return
    changing = [action for action in actions if action.data_change]
    removes = _by_identity(action for action in changing if isinstance(action, RemoveFile))
    paired: set[int] = set()
    for add in changing:
        if isinstance(add, AddFile) and (remove := _find(add, removes)) is not None:
            paired |= {id(add), id(remove)}
    for action in changing:
        vector = None if isinstance(action, AddCdcFile) else vector_ref(action, url_key(action))
        if id(action) not in paired:
            kind = ChangeKind.INSERT if isinstance(action, AddFile) else ChangeKind.DELETE
            yield _Candidate(action, action, kind, vector, None)
        elif isinstance(action, AddFile):
            remove = _find(action, removes)
            assert remove is not None
            yield from _difference(action, vector, remove, vector_ref(remove, url_key(remove)))


def _check_once(actions: list[FileAction], table: str) -> None:
    """Refuse a version that adds, removes or lists one file twice: its rows would come out twice."""
    seen: set[tuple[type, str | None, str]] = set()
    for action in actions:
        name = (type(action), action.file_id, without_query(action.path))
        if name in seen:
            raise ProtocolError(
                f"The server sent a file of version {action.shared_version} twice; its rows would be returned twice.",
                table=table,
                file_id=action.file_id,
            )
        seen.add(name)


def _difference(
    add: AddFile, after: DeletionVectorRef | None, remove: RemoveFile, before: DeletionVectorRef | None
) -> Iterator[_Candidate]:
    if _same_vector(add, remove):
        return
    # Deleted rows were visible before, inserted ones are now: only the statistics of that moment cover them.
    if after is not None:
        yield _Candidate(add, remove, ChangeKind.DELETE, before, after)
    if before is not None:
        yield _Candidate(add, add, ChangeKind.INSERT, after, before)


def _same_vector(add: AddFile, remove: RemoveFile) -> bool:
    one, other = add.deletion_vector, remove.deletion_vector
    if one is None or other is None:
        return one is other
    same_bits = (one.storage_type, one.offset, one.size_in_bytes, one.cardinality) == (
        other.storage_type,
        other.offset,
        other.size_in_bytes,
        other.cardinality,
    )
    return same_bits and without_query(one.path_or_inline_dv) == without_query(other.path_or_inline_dv)


def _by_identity(removes: Iterable[RemoveFile]) -> dict[str, RemoveFile]:
    found: dict[str, RemoveFile] = {}
    for remove in removes:
        for name in _identities(remove):
            found[name] = remove
    return found


def _find(add: AddFile, removes: dict[str, RemoveFile]) -> RemoveFile | None:
    return next((removes[name] for name in _identities(add) if name in removes), None)


def _identities(action: AddFile | RemoveFile) -> list[str]:
    """The server's file id, and the path without what a signature adds to it."""
    path = "path:" + without_query(action.path)
    return [path] if action.file_id is None else ["id:" + action.file_id, path]


def _version(action: FileAction, table: str) -> int:
    if action.shared_version is None or action.shared_timestamp is None:
        raise ProtocolError(
            "A file of the change feed must have a version and a timestamp, but the server sent one without.",
            table=table,
            file_id=action.file_id,
        )
    return action.shared_version


# === Leaving out files ===


class _Chooser:
    """Collects the tasks of the candidates that may hold a wanted row."""

    def __init__(self, context: ScanContext, limit: int | None) -> None:
        self.tasks: list[FileTask] = []
        self._left = limit if context.predicate is None else None
        self._by_partition = self._by_statistics = self._by_limit = self._bytes = 0
        self._reader: StatisticsReader | None = None
        if context.predicate is not None:
            self._may_match = compile_skipping(context.predicate)
            extra = {field.name for field in CHANGE_FIELDS}
            paths = [path for path in columns_of(context.predicate) if path[0] not in extra]
            self._reader = StatisticsReader(context.schema, context.mapping_mode, context.partition_columns, paths)

    def consider(self, candidate: _Candidate) -> None:
        task = _task(candidate)
        if self._left is not None and self._left <= 0:
            self._by_limit += 1
            self._bytes += max(0, task.size)
            return
        if self._reader is not None and not self._may_match(self._statistics(candidate, task, self._reader)):
            self._by_statistics += 1
            self._bytes += max(0, task.size)
            return
        if self._left is not None:
            self._left -= task.live_records or 0
        self.tasks.append(task)

    def skipped(self) -> Skipped:
        return Skipped(by_statistics=self._by_statistics, by_limit=self._by_limit, bytes=self._bytes)

    def _statistics(self, candidate: _Candidate, task: FileTask, reader: StatisticsReader) -> _ChangeStatistics:
        described = candidate.described_by
        file = AddFile(
            path="",
            partition_values=described.partition_values or candidate.action.partition_values or {},
            stats=None if isinstance(described, AddCdcFile) else described.stats,
            deletion_vector=None if isinstance(described, AddCdcFile) else described.deletion_vector,
        )
        assert task.change is not None
        return _ChangeStatistics(reader.read(file), task.change)


class _ChangeStatistics:
    """A file's statistics and its constants of the change feed. Counts are of another set of rows, so they are left
    out, but for whether there are nulls at all."""

    def __init__(self, file: FileStatistics, change: Change) -> None:
        self._file = file
        self._change = change

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        value: object
        if path == (COMMIT_VERSION,):
            value = self._change.commit_version
        elif path == (COMMIT_TIMESTAMP,):
            value = self._change.commit_timestamp * 1000
        elif path == (CHANGE_TYPE,):
            if self._change.kind is ChangeKind.IN_FILE:
                return None
            value = self._change.kind.value
        else:
            return self._file.bounds(path)
        return ColumnBounds(value, value, 0, 1)


def _task(candidate: _Candidate) -> FileTask:
    action = candidate.action
    assert action.shared_version is not None
    assert action.shared_timestamp is not None
    stats = None if isinstance(action, AddCdcFile) else action.stats
    return FileTask(
        key=url_key(action),
        url=action.path,
        file_id=action.file_id,
        expiration_ms=action.shared_expiration,
        size=-1 if action.size is None else action.size,
        without=candidate.without,
        only=candidate.only,
        partition_values=action.partition_values or {},
        num_records=num_records(stats),
        change=Change(candidate.kind, action.shared_version, action.shared_timestamp),
    )
