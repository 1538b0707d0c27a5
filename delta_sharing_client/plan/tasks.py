"""The work of a scan as values: a task for each file, and the properties that all files share.

Everything is frozen and picklable, so the same code reads a task in a local thread and in a Spark worker.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Union

import msgspec
import pyarrow as pa

from delta_sharing_client.delta.actions import DeletionVectorDescriptor, EqualityDeletesRef
from delta_sharing_client.delta.listed_files import SharedValues
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.fetch.place import Place, Version
from delta_sharing_client.fetch.source import Attempt, Fetcher, RemoteFile
from delta_sharing_client.lazy import lazy
from delta_sharing_client.notebook import html_facts
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_columns import Origin, ReadColumn, left_out_columns, left_out_note, needed_share
from delta_sharing_client.predicates.tree import known_of_all
from delta_sharing_client.redact import scrub

if TYPE_CHECKING:
    from delta_sharing_client.delta.column_mapping import ColumnMappingMode
    from delta_sharing_client.delta.data_types import StructField, StructType
    from delta_sharing_client.fetch.report import ScanReport
    from delta_sharing_client.parquet.field_ids import NameMapping
    from delta_sharing_client.predicates.tree import Expression


class ChangeKind(enum.Enum):
    """The source of ``_change_type`` for a file's rows: a constant, or a physical column of a ``cdc`` file."""

    INSERT = "insert"
    DELETE = "delete"
    IN_FILE = "in file"


class Change(NamedTuple):
    """The change feed constants of one file: kind, commit version, and commit timestamp in epoch milliseconds."""

    kind: ChangeKind
    commit_version: int
    commit_timestamp: int

    def value(self, origin: Origin) -> int | str | None:
        """Return the constant of a column of the feed, ``None`` for other columns."""
        if origin is Origin.COMMIT_VERSION:
            return self.commit_version
        if origin is Origin.COMMIT_TIMESTAMP:
            return self.commit_timestamp
        return self.kind.value if origin is Origin.CHANGE_TYPE and self.kind is not ChangeKind.IN_FILE else None

    def bounds(self, origin: Origin) -> ColumnBounds | None:
        """Return the constant in the form that predicates compare."""
        value = self.value(origin)
        if isinstance(value, int) and origin is Origin.COMMIT_TIMESTAMP:
            value *= 1_000_000
        return None if value is None else ColumnBounds(value, value, 0, 1)


class DeletionVectorRef(msgspec.Struct, frozen=True, gc=False):
    """A deletion vector and the key for renewing its URL. Its repr shows no URL."""

    descriptor: DeletionVectorDescriptor
    key: str

    def __repr__(self) -> str:
        d = self.descriptor
        return f"DeletionVectorRef({d.storage_type!r}, offset={d.offset}, size={d.size_in_bytes}, rows={d.cardinality})"


class FileTask(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One file to read. With its ``ScanContext``, it has all that a read needs. Picklable; its repr shows no URL.

    Attributes
    ----------
    key, file_id, url, renew_at:
        The key for ``UrlSource``, the server's file id, the pre-signed URL at planning, and when it should be replaced
        (``SharedFile.renew_at``).
    size:
        Stated length of the file in bytes, -1 if unknown.
    without, only:
        Deletion vectors: rows in ``without`` are dropped; with ``only``, rows outside of it are dropped too (for the
        difference of two vectors in a change feed).
    partition_values:
        Serialized values by *physical* partition column name.
    num_records:
        Number of rows in the file, including deleted ones, if the statistics state it.
    base_row_id, default_row_commit_version:
        Row tracking of the file, or ``None``; in an Iceberg table, its first row id and its data sequence number.
    change:
        The change feed constants; ``None`` in a snapshot.
    row_groups:
        Ordinals of the row groups to read, ``None`` for all; given if a large file is split into several tasks.
    version:
        Identifies the content of a split file (its ETag, for example), so that all of its tasks read the same content.
    equality:
        Equality delete files, which delete rows of the file by their values.
    required_ids:
        Field ids of partition columns that must be read from the file, because ``partition_values`` cannot express
        their values.
    """

    key: str
    url: str
    file_id: Union[str, None] = None
    renew_at: Union[int, None] = None
    size: int = -1
    without: Union[DeletionVectorRef, None] = None
    only: Union[DeletionVectorRef, None] = None
    partition_values: Mapping[str, Union[str, None]] = {}
    num_records: Union[int, None] = None
    base_row_id: Union[int, None] = None
    default_row_commit_version: Union[int, None] = None
    change: Union[Change, None] = None
    row_groups: Union[tuple[int, ...], None] = None
    version: Union[Version, None] = None
    equality: tuple[EqualityDeletesRef, ...] = ()
    required_ids: tuple[int, ...] = ()

    @property
    def has_vector(self) -> bool:
        return self.without is not None or self.only is not None

    @property
    def live_records(self) -> int | None:
        """The number of rows after deletes, if known without reading the file."""
        if self.equality:
            return None
        if self.only is not None:
            return None if self.without is not None else self.only.descriptor.cardinality
        if self.num_records is None:
            return None
        return self.num_records - (self.without.descriptor.cardinality if self.without is not None else 0)

    def remote_file(
        self, fetcher: Fetcher, *, attempt: Attempt = Attempt.FIRST, order: tuple[int, int] = (0, 0)
    ) -> RemoteFile:
        """Return the file for ``fetcher``."""
        return RemoteFile(
            fetcher,
            key=self.key,
            url=self.url,
            size=self.size,
            file_id=self.file_id,
            renew_at=self.renew_at,
            attempt=attempt,
            version=self.version,
            order=order,
        )

    def __repr__(self) -> str:
        shown = [f"file_id={self.file_id!r}", f"size={self.size}"]
        shown += [
            f"{name}={value!r}"
            for name in ("num_records", "without", "only", "change", "row_groups", "equality")
            if (value := getattr(self, name)) not in (None, ())
        ]
        return scrub(f"FileTask({', '.join(shown)})")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RowLineage:
    """The columns that store row lineage in files; ``None`` where the table has no such column.

    With ``may_be_missing``, a file may lack a base row id, as in an Iceberg table from before its upgrade to version 3;
    both lineage columns of its rows are then null.
    """

    row_id: StructField | None
    row_update: StructField | None
    may_be_missing: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanContext:
    """The properties that all tasks of a scan share; picklable.

    Attributes
    ----------
    table, version:
        Name for messages, and the version that is read (the last one of a change feed).
    schema, mapping_mode, partition_columns:
        Logical schema of the snapshot, its column mapping, and the logical names of its partition columns.
    empty_is_null:
        Whether an empty partition value is null, as in a Delta table.
    output, filters:
        The columns of every batch, and the columns that the predicate needs, each with its source.
    predicate:
        The filter of the scan, bound to the schema (and to the columns that the read adds), or ``None``: no other row
        is returned.
    pushed_predicate:
        The engine's filter, bound in the same way, or ``None``. The engine applies it again, so it may only skip data.
    row_lineage:
        Set if the columns of row lineage are requested.
    equality_columns:
        The columns that equality deletes may compare, by field id, each pruned to one column of a simple type.
    name_mapping:
        The field ids of columns by name, for files without field ids; ``None`` if such files are refused.
    is_change_feed:
        Whether the three columns of the change feed exist, selected or not.
    place:
        The place of the files; ``None`` in a description that is not read.
    left_out:
        Metadata for ``output_schema`` if all columns are requested and some cannot be read
        (``read_columns.left_out_metadata``).
    query_id:
        The id of the read's requests, for errors.
    advise:
        Adds advice to the error that ends the read; given if the read needs special advice.
    pushed_skips_only:
        Whether ``pushed_predicate`` only skips files, row groups and pages, because the engine filters rows faster;
        otherwise, the rows for which it is not true are dropped too.
    """

    table: str
    version: int | None
    schema: StructType
    mapping_mode: ColumnMappingMode
    partition_columns: tuple[str, ...]
    output: tuple[ReadColumn, ...]
    filters: tuple[ReadColumn, ...]
    predicate: Expression | None
    options: ReadOptions
    pushed_predicate: Expression | None = None
    empty_is_null: bool = True
    row_lineage: RowLineage | None = None
    equality_columns: Mapping[int, StructField] = dataclasses.field(default_factory=dict)
    name_mapping: NameMapping | None = None
    is_change_feed: bool = False
    left_out: Mapping[str, str] | None = None
    place: Place | None = None
    query_id: str | None = None
    advise: Callable[[DeltaSharingError], object] | None = None
    pushed_skips_only: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the columns that a read leaves out."""
        if self.left_out is None:
            return ()
        return (left_out_note(left_out_columns(self.schema), f"The read of '{self.table}'"),)

    @lazy
    def skipping(self) -> Expression | None:
        """The condition by which files, row groups and pages are skipped; ``filters`` has its columns."""
        return known_of_all((self.predicate, self.pushed_predicate))

    @lazy
    def output_schema(self) -> pa.Schema:
        """The exact schema of every batch."""
        return pa.schema([column.arrow for column in self.output], self.left_out)

    @lazy
    def needed_share(self) -> float:
        """The fraction of the files' bytes that is probably read, estimated by the types of the columns."""
        return needed_share(self.schema, (*self.output, *self.filters), self.partition_columns)

    def fetcher(self, report: ScanReport, limits: ReadOptions | None = None) -> Fetcher:
        """Return the fetcher of the files' bytes. ``limits`` are those of its requests; by default, the place's."""
        assert self.place is not None, "a description has no files"
        return Fetcher(self.place, report, limits)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFiles:
    """Files that a plan skips: their numbers by reason, and their total bytes.

    ``is_cut`` says that further files were not considered, because the limit was reached.
    """

    by_partition: int = 0
    by_statistics: int = 0
    by_limit: int = 0
    bytes: int = 0
    is_cut: bool = False

    @property
    def files(self) -> int:
        return self.by_partition + self.by_statistics + self.by_limit

    def __add__(self, other: SkippedFiles) -> SkippedFiles:
        return SkippedFiles(
            by_partition=self.by_partition + other.by_partition,
            by_statistics=self.by_statistics + other.by_statistics,
            by_limit=self.by_limit + other.by_limit,
            bytes=self.bytes + other.bytes,
            is_cut=self.is_cut or other.is_cut,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan(abc.ABC):
    """The files of a read: a ``ScanPlan`` with all of them, or a ``ScanStream`` while they are still being listed.

    ``tasks`` are the files that are listed already, in the order of their rows. ``limit`` is the number of rows after
    which the read stops. ``access`` says how the data is read, and why. ``table_files`` is the number of files of the
    table, if the server states it. ``notes`` are sentences about data that may be missing.
    """

    context: ScanContext
    tasks: Sequence[FileTask] = ()
    limit: int | None = None
    access: str = "by URL"
    table_files: int | None = None
    notes: Sequence[str] = ()

    @property
    def output_schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return self.context.output_schema

    @property
    def pending(self) -> ScanStream | None:
        """The rest of the listing; ``None`` if all files are listed."""
        return None

    @property
    def known_rows(self) -> int | None:
        """The number of rows that the plan returns, if it is known without reading a file."""
        return None

    def every_file(self) -> Iterator[FileTask]:
        """Return all files in the order of their rows, as they are listed. Raises the errors of the listing."""
        return iter(self.tasks) if self.pending is None else itertools.chain.from_iterable(self.pending.blocks)

    @abc.abstractmethod
    def whole(self) -> ScanPlan:
        """Wait until all files are listed, and return their plan. Raises the errors of the listing."""

    def close(self) -> None:
        """Cancel the rest of the listing; call it on the thread that takes the files."""
        if self.pending is not None:
            self.pending.blocks.close()
            self.pending.release()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan(Plan):
    """What a read will read, and why it skips the other files; it is shown as a table in notebooks.

    ``tasks`` are the files to read, in the order of their rows, and ``skipped`` counts the others. ``plan_seconds`` is
    the time that planning took; ``limit``, ``access``, ``table_files`` and ``notes`` as in ``Plan``.
    """

    tasks: Sequence[FileTask]
    skipped: SkippedFiles = SkippedFiles()
    plan_seconds: float = 0.0

    def _repr_html_(self) -> str:
        facts = {
            "version": self.context.version,
            "columns": [column.name for column in self.context.output],
            "filter": self.context.predicate,
            "filter of the engine": self.context.pushed_predicate,
            "limit": self.limit,
            "access": self.access,
            "files in the table": self.table_files,
            "files to read": len(self.tasks),
            "their bytes": self.bytes,
            "files skipped by partition values": self.skipped.by_partition or None,
            "files skipped by statistics": self.skipped.by_statistics or None,
            "files skipped by the limit": self.skipped.by_limit or None,
            "bytes skipped": self.skipped.bytes or None,
            "note": " ".join(self.notes) or None,
        }
        return html_facts(f"Plan of {self.context.table}", facts)

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes, not counting files of unknown size."""
        return sum(max(0, task.size) for task in self.tasks)

    @property
    def known_rows(self) -> int | None:
        """As in ``Plan``: known if the log states the number of rows of every file, and nothing filters them."""
        if self.context.skipping is not None:
            return None
        total = 0
        for task in self.tasks:
            rows = task.live_records if task.row_groups is None else None
            if rows is None or rows < 0:
                return None
            total += rows
        return total if self.limit is None else min(total, self.limit)

    def whole(self) -> ScanPlan:
        return self


def from_row(plan: ScanPlan, rows: int) -> tuple[ScanPlan, int]:
    """Return ``plan`` without the files that have only rows before the row ``rows``, as far as the log says, and how
    many of its first rows come before it."""
    skipped, first = 0, 0
    for task in plan.tasks if plan.context.skipping is None else ():
        known = task.live_records if task.row_groups is None else None
        if known is None or known < 0 or skipped + known > rows:
            break
        skipped, first = skipped + known, first + 1
    limit = None if plan.limit is None else max(0, plan.limit - skipped)
    return dataclasses.replace(plan, tasks=plan.tasks[first:], limit=limit), rows - skipped


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanStream(Plan):
    """A plan whose files are still being listed, for one reader.

    Attributes
    ----------
    notes:
        Sentences about data that may be missing; more may be added while files are listed.
    blocks:
        The files to read, in the order of their rows, in blocks as they are listed. The iterator raises the errors of
        the listing, so the plan is complete only once it is exhausted.
    skipped:
        Returns the numbers of files that were skipped so far.
    release:
        Releases the resources of the listing.
    break_off:
        Makes ``blocks`` raise instead of waiting for more; callable from any thread.
    """

    blocks: Generator[Sequence[FileTask], None, None]
    skipped: Callable[[], SkippedFiles]
    release: Callable[[], None] = lambda: None
    break_off: Callable[[], None] = lambda: None

    @property
    def pending(self) -> ScanStream:
        return self

    def whole(self) -> ScanPlan:
        began = time.perf_counter()
        try:
            tasks = list(map(SharedValues(), self.every_file()))
        finally:
            self.close()
        return ScanPlan(
            context=self.context,
            tasks=tasks,
            limit=self.limit,
            skipped=self.skipped(),
            plan_seconds=time.perf_counter() - began,
            access=self.access,
            table_files=self.table_files,
            notes=tuple(self.notes),
        )
