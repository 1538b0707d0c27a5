"""The PySpark data source ``deltaSharing``. ``source_options`` has its options; ``docs/spark.md`` is the page for
users."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import gc
import logging
import os
import pickle
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.schema import parse_schema, schema_to_json
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.follow.admission import BatchLimits
from delta_sharing_client.follow.follow_request import CHECKPOINT
from delta_sharing_client.follow.follower import Follower, with_way_out
from delta_sharing_client.follow.offsets import BEGINNING, Beginning, parse_offset
from delta_sharing_client.lazy import lazy
from delta_sharing_client.plan.packed import PackedTasks, packed_if_many
from delta_sharing_client.plan.read_columns import check_nothing_left_out
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.plan.tasks import Plan, ScanPlan
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.run.partitions import (
    Partition,
    limited,
    packed_partitions,
    partition,
    read_cost,
    read_size,
    send_together,
)
from delta_sharing_client.spark import file_rows, self_check, session_credentials
from delta_sharing_client.spark.pushed import LoadedTable, Pushed
from delta_sharing_client.spark.served_table import ServedTable, naming_times, told
from delta_sharing_client.spark.source_options import SparkOptions
from delta_sharing_client.spark.types import (
    Columns,
    check_unchanged,
    conform,
    narrowed_columns,
    relation_columns,
    target_schema,
)

# PySpark's data source classes, or replacements if PySpark lacks them. PySpark 3.5 has no Python data sources: there
# the same classes plan and read, and ``to_spark`` passes their tasks to Spark.
HAS_DATA_SOURCES = find_spec("pyspark.sql.datasource") is not None
HAS_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
if TYPE_CHECKING or HAS_DATA_SOURCES:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
else:  # PySpark 3.5

    class DataSource:
        """Replaces PySpark's class, like the classes below."""

        def __init__(self, options: Any) -> None:
            self.options = options

    class DataSourceReader: ...

    class DataSourceStreamReader: ...

    class InputPartition:
        def __init__(self, value: Any) -> None:
            self.value = value


if TYPE_CHECKING or HAS_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
else:  # PySpark 4.1 and older
    ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = None

    class SupportsTriggerAvailableNow: ...


LEAST_PARTITION = 4 * 1024 * 1024
SIZE_LABEL = "delta-sharing-size:"
"""Precedes the numbers of bytes and rows, 16 digits each, in a partition's pickle. ``PushDown.java`` finds it."""
LARGE_READ = 4 * 1024**3
"""The least size of the files, in bytes, for which a read of all columns and rows logs a warning."""
Limit = Any
"""PySpark's ``ReadLimit``; ``None`` in the releases that have no limits."""
_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def in_worker(really: bool = True) -> Iterator[None]:
    """Run a call of a Python worker of Spark: PySpark shows an error of this package without a traceback before it, and
    does not look for garbage among everything that is imported after each call."""
    if really:
        _freeze_imports()
    try:
        yield
    except DeltaSharingError:
        if really:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # for this worker, which ends with the error
        raise


@functools.cache
def _freeze_imports() -> None:
    # After each call PySpark's workers collect garbage, which took 40 ms for 80,000 imported objects.
    gc.freeze()


class ReadablePart(Protocol):
    """What one task reads. It can be pickled."""

    def read(self) -> contextlib.AbstractContextManager[Iterator[pa.RecordBatch]]:
        """Return the rows, in a ``with`` block."""


class FilePartition(InputPartition):
    """A part of a plan. Its repr shows neither URLs nor credentials; its pickle contains both.

    ``size`` has the bytes and the rows of the part, as far as they are known.
    """

    def __init__(self, part: ReadablePart, size: tuple[int | None, int | None] = (None, None)) -> None:
        super().__init__(None)
        self.part = part
        self._size = size

    def __repr__(self) -> str:
        return f"File{self.part!r}"

    def __reduce__(self) -> tuple[Callable[..., FilePartition], tuple[str, bytes]]:
        size, rows = self._size
        # Spark's pickler inspects every object in Python, which is slow. So the part is pickled here; objects that need
        # Spark's pickler were pickled before (``send_together``).
        return _labelled, (f"{SIZE_LABEL}{_digits(size)} {_digits(rows)}", pickle.dumps(self.part))

    def read(self, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches with exactly the schema ``target``. Raises the errors of ``Partition.read``."""
        with in_worker(), self.part.read() as batches:
            for batch in batches:
                yield conform(batch, target)


def _labelled(_label: str, part: bytes) -> FilePartition:
    return FilePartition(pickle.loads(part))


def _digits(number: int | None) -> str:
    return "-" * 16 if number is None else f"{number:016d}"


def plan_partitions(plan: ScanPlan, options: SparkOptions, plan_id: str | None = None) -> list[FilePartition]:
    """Return the partitions of ``plan`` for ``parallelism`` concurrent tasks.

    As with Spark's own file sources, each task gets an equal part, but at least 4 MiB (a task costs tens of
    milliseconds) and at most ``max_partition_bytes``, as far as the files allow. ``plan_id`` identifies the plan on an
    executor.
    """
    total = sum(map(read_cost, plan.tasks))
    share = min(options.max_partition_bytes, max(LEAST_PARTITION, -(-total // max(1, options.parallelism))))
    count = max(1, -(-total // share))
    if options.read.limit is None and plan.limit:
        # Spark pushed the limit and counts rows itself, so each part may return that many rows.
        whole = partition(dataclasses.replace(plan, limit=None), count, plan_id)
        return _file_partitions([limited(part, plan.limit) for part in whole])
    return _file_partitions(partition(plan, count, plan_id))


def plan_packed(found: Plan, tasks: PackedTasks, options: SparkOptions) -> list[FilePartition]:
    """Like ``plan_partitions``, but for very many files, which are not split and form at most a few thousand tasks."""
    total = sum(chunk.cost for chunk in tasks.chunks)
    parts = packed_partitions(found.context, tasks, -(-total // options.max_partition_bytes))
    return _file_partitions([part if found.limit is None else limited(part, found.limit) for part in parts])


def _file_partitions(parts: list[Partition]) -> list[FilePartition]:
    send_together(parts, cloudpickle.dumps)
    return [FilePartition(part, read_size(part)) for part in parts]


def warn_of_large_read(files: int, size: int, options: SparkOptions, *, narrowed: bool) -> None:
    """Log a warning for a read of gigabytes that nothing narrows: no selection of columns or rows, and no given
    schema."""
    asked = (options.read.columns, options.read.filter, options.read.limit)
    if size > LARGE_READ and not narrowed and all(part is None for part in asked):
        _LOG.warning(
            "The read of %s downloads all columns and rows of %d files, %.1f GB: Spark does not pass 'where' and "
            "'select' of the DataFrame to a Python data source, so they do not reduce it. Use the options 'columns' "
            "and 'filter' instead: .option('columns', 'id, name').option('filter', \"day >= '2024-01-01'\").",
            options.table,
            files,
            size / 1e9,
        )


class TaskReader(DataSourceReader):
    """Reads the partitions of a batch, or of the stream of the table ``following``.

    The readers below are pickled as this class, because Spark sends the pickle to the executors in a broadcast, which
    it may write to disk. The partitions, which contain the credentials, stay in memory.
    """

    def __init__(self, schema: StructType, following: str | None = None) -> None:
        self._schema = schema
        self._following = following

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``partition``; runs on an executor."""
        # Spark replaces an empty list of partitions by one partition without content.
        if isinstance(partition, FilePartition):
            with contextlib.nullcontext() if self._following is None else telling(self._following):
                yield from partition.read(target_schema(self._schema))


@contextlib.contextmanager
def telling(table: str) -> Iterator[None]:
    """Add advice to the error that stops the stream of ``table``, and log the error, because Spark's own message hides
    it."""
    try:
        yield
    except DeltaSharingError as error:
        error = with_way_out(error, CHECKPOINT)
        _LOG.error("The stream of %s stops. %s", table, error)
        with in_worker():
            raise error from None


@dataclasses.dataclass(eq=False, repr=False)
class PlanningReader(DataSourceReader):
    """Plans a batch read of some columns; tasks read the partitions with ``TaskReader``."""

    _columns: Columns

    def __reduce__(self) -> tuple[type[TaskReader], tuple[StructType]]:
        return TaskReader, (self._columns.schema,)

    @abc.abstractmethod
    def plan(self) -> list[FilePartition]:
        """Request what is read, and return it packed into partitions."""

    def partitions(self) -> Sequence[InputPartition]:
        """Return the same partitions as ``plan``."""
        with in_worker():
            return self.plan()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``partition``."""
        return TaskReader(self._columns.schema).read(partition)


@dataclasses.dataclass(eq=False, repr=False)
class BatchReader(PlanningReader):
    """Reads a snapshot or a change feed.

    It does not override ``pushFilters``: Spark keeps the last pushed filters for every later scan of the same
    DataFrame, so a source that uses them returns wrong rows. Filters come as the option ``filter``.
    """

    _table: ServedTable
    _version: int
    _is_narrowed: bool = False

    def plan(self) -> list[FilePartition]:
        """Request the files from the server, and return them packed into partitions."""
        options = self._table.options
        with contextlib.closing(self._table.plan_batch(self._columns, self._version)) as found:
            check_unchanged(schema_to_json(found.context.schema), options, self._columns.schema, self._table.name)
            tasks = packed_if_many(found.every_file(), read_cost, options.max_partition_bytes)
        if isinstance(tasks, PackedTasks) and options.read.limit is None:
            warn_of_large_read(len(tasks), tasks.bytes, options, narrowed=self._is_narrowed)
            return plan_packed(found, tasks, options)
        plan = ScanPlan(context=found.context, tasks=list(tasks), limit=found.limit)
        warn_of_large_read(len(plan.tasks), plan.bytes, options, narrowed=self._is_narrowed)
        return plan_partitions(plan, options)


@dataclasses.dataclass(eq=False, repr=False)
class FilesReader(PlanningReader):
    """Reads files of a volume, a skill or a version of a model as rows."""

    _options: SparkOptions
    _version: int

    def plan(self) -> list[FilePartition]:
        """List the files, and return them packed into partitions."""
        wanted = [path[0] for path in self._columns.paths or ()]
        parts = file_rows.plan_files(self._options, self._version, wanted, LEAST_PARTITION)
        return [FilePartition(found.part, (found.bytes, found.rows)) for found in parts]


@dataclasses.dataclass(eq=False, repr=False)
class CheckReader(DataSourceReader):
    """Reads the table of the self-check."""

    _schema: StructType
    _pushed: Pushed

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition without content."""
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the pushed conditions select; raise ``ValueError`` if the query's conditions did not
        arrive."""
        return self_check.rows(self._schema, self._pushed)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a table: reads its initial snapshot and then the versions after it, or only the versions from a given
    start on."""

    def __init__(self, table: ServedTable, columns: Columns, described: TableHead) -> None:
        self._table = table
        self._columns = columns
        self._described = described
        self._followed: Follower | None = None
        # PySpark 4.0 and 4.1 do not pass the start of a batch, which is the end of the previous batch.
        self._position: dict[str, Any] = BEGINNING.to_json()

    def __reduce__(self) -> tuple[type[TaskReader], tuple[StructType, str]]:
        return TaskReader, (self._columns.schema, self._table.name)

    def initialOffset(self) -> dict[str, Any]:
        """Return always the same offset, because Spark calls this again after a crash and expects the same result."""
        return BEGINNING.to_json()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Limit = None) -> dict[str, Any]:
        """Return the offset at the end of the batch that begins after ``start`` and stays within ``limit``."""
        begin = self._position if start is None else start
        with telling(self._table.name), naming_times(self._table.options):
            offset = parse_offset(begin, CHECKPOINT)
            found = self._follower.next_offset(offset, self._budget(limit, told=start is not None))
        return begin if found == offset else found.to_json()

    def getDefaultReadLimit(self) -> Limit:
        """Return a placeholder for all limits: Spark can pass only one, and the options contain the others."""
        return default_limit(self._follower.budget())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the latest known offset of the table, for the query's progress."""
        found = self._follower.reported()
        return None if found is None else found.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Make the stream end with the current version."""
        with telling(self._table.name):
            self._follower.clock.freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of the files between two offsets. After a restart, Spark calls this first, to replay a
        batch."""
        with telling(self._table.name):
            begin, until = parse_offset(start, CHECKPOINT), parse_offset(end, CHECKPOINT)
            self._position = end
            if isinstance(until, Beginning):
                if isinstance(begin, Beginning):
                    return []
                raise UsageError(
                    f"The checkpoint requests a batch from {start} back to the beginning; choose a new checkpoint."
                )
            asked = ScanRequest(columns=self._columns.paths, filter=self._table.options.read.filter)
            found: list[InputPartition] = []
            for selected in self._follower.files(begin, until):
                plan = self._table.plan_window(selected.window, selected.files, self._described.metadata, asked)
                found += plan_partitions(plan, self._table.options, selected.window.plan_id)
            return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``partition``."""
        return TaskReader(self._columns.schema, self._table.name).read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Remove the cached data of finished batches."""
        offset = parse_offset(end, CHECKPOINT)
        if not isinstance(offset, Beginning):
            self._follower.forget_before(offset)

    def stop(self) -> None:
        """Close the connections."""
        self._table.close()

    def _budget(self, limit: Limit, *, told: bool) -> BatchLimits | None:
        if told:
            return None if HAS_LIMITS and isinstance(limit, ReadAllAvailable) else self._follower.budget()
        # PySpark 4.0 and 4.1 do not pass the trigger, so only the user's limits apply. A query with the trigger
        # "available now", which is one batch there, then reads everything.
        options = self._table.options
        return None if options.max_files is None and options.max_bytes is None else self._follower.budget()

    @property
    def _follower(self) -> Follower:
        if self._followed is None:
            self._followed = Follower(self._table, self._described)
        return self._followed


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of a stream on the first call, because PySpark hides errors that are raised while the reader is
    created."""

    def __init__(self, error: DeltaSharingError) -> None:
        self._error = error

    def _refuse(self, *_: Any, **__: Any) -> Any:
        with in_worker():
            raise self._error

    initialOffset = latestOffset = partitions = prepareForTriggerAvailableNow = getDefaultReadLimit = _refuse

    def read(self, partition: InputPartition) -> NoReturn:
        """Raise the error, like all methods."""
        raise self._error


def default_limit(budget: BatchLimits) -> Limit:
    """Return the limit that Spark passes back with each request; it is a placeholder for all limits."""
    if not HAS_LIMITS:
        return None
    return ReadMaxBytes(budget.bytes) if budget.files is None and budget.bytes else ReadMaxFiles(budget.files or 1)


NAME = "deltaSharing"


class DeltaSharingSource(DataSource):
    """``spark.read.format("deltaSharing")`` and ``spark.readStream.format("deltaSharing")``.

    Spark pickles the instance after ``schema()``, so the readers have its results; with a user's schema, ``schema()``
    is not called. Once it has a reader, Spark pickles it again for the executors, which need nothing but its name. So
    that pickle contains no options and no credentials.
    """

    _has_reader = False

    def __init__(self, options: MutableMapping[str, str], parsed: SparkOptions | None = None) -> None:
        # Spark's workers create instances without ``parsed``. The credentials are looked up now: they are available
        # where this instance is created, but not where the offsets of a stream are requested.
        self._by_spark = parsed is None
        with in_worker(self._by_spark):
            super().__init__(session_credentials.found_by(options))
        if parsed is not None:
            self._parsed = parsed
        self._described: TableHead | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": {}} if self._has_reader else vars(self)

    @lazy
    def _parsed(self) -> SparkOptions:
        return SparkOptions.parse(self.options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the table's schema, or the part that the option ``columns`` selects. This sends a request."""
        if "tell" in self.options:
            return told(self.options, lambda: (self._found(), self.described_version, self.loaded))
        with in_worker(self._by_spark):
            return self._found()

    def _found(self) -> StructType:
        self._described = self._describe(Operation.SNAPSHOT)
        text = self._described.metadata.schema_string
        if self._parsed.read.columns is None:
            # This is an error, because the DataFrame may be stored, and users do not see warnings from Spark's planner.
            check_nothing_left_out(parse_schema(text), f"The DataFrame of '{self._parsed.table}'")
        return relation_columns(text, self._parsed.of_format(self._described.table_format)).schema

    @property
    def described_version(self) -> int:
        """The version of the table that ``schema`` described."""
        assert self._described is not None
        return self._described.version

    @property
    def loaded(self) -> LoadedTable:
        """What the server stated when ``schema`` was called."""
        assert self._described is not None
        return LoadedTable.of(self._described)

    def reader(self, schema: StructType) -> PlanningReader | CheckReader:
        """Return the reader of a batch query."""
        self._has_reader = True
        if self_check.OPTION in self.options:
            return CheckReader(schema, Pushed.parse("pushed", self.options["pushed"]))
        with in_worker(self._by_spark):
            return self.batch_reader(schema)

    def batch_reader(self, schema: StructType) -> PlanningReader:
        """Return the reader of the shared table or files. This sends a request if ``schema`` was not called."""
        options = self._parsed.for_batch()
        operation = Operation.CHANGES if options.read_change_feed else Operation.SNAPSHOT
        version, loaded = options.loaded_version, options.loaded
        if version is None or loaded is None:
            described = self._described or self._describe(operation)
            version, loaded = described.version if version is None else version, LoadedTable.of(described)
            options = dataclasses.replace(options, loaded=loaded)
        options = options.of_format(loaded.table_format)
        if options.loaded_version is not None:
            check_unchanged(loaded.schema_string, options, schema, str(options.table))
        columns = narrowed_columns(loaded.schema_string, options, schema)
        if options.files is not None:
            return FilesReader(columns, options, version)
        whole = relation_columns(loaded.schema_string, options).schema
        return BatchReader(columns, ServedTable(options, operation), version, columns.schema != whole)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedStream:
        """Return the reader of a streaming query."""
        self._has_reader = True
        try:
            options = self._parsed.for_stream()
            described = self._described or self._describe(Operation.STREAMING)
            columns = narrowed_columns(described.metadata.schema_string, options, schema)
            return StreamReader(ServedTable(options, Operation.STREAMING), columns, described)
        except DeltaSharingError as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write: a shared table is read-only."""
        with in_worker(self._by_spark):
            raise UsageError(
                f"The format '{self.name()}' is read-only, because only the provider can write to a shared table. Use "
                "a different format for writing."
            )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Like ``writer``."""
        self.writer(schema, overwrite)

    def _describe(self, operation: Operation) -> TableHead:
        read = self._parsed.read
        if self._parsed.files is not None:
            return file_rows.describe(self._parsed)
        with contextlib.closing(ServedTable(self._parsed, operation)) as table, naming_times(self._parsed):
            if read.version is None and read.timestamp is None:
                return table.describe_loaded(self._parsed.loaded_version)
            return table.describe(read.version, read.timestamp)


class DeltaSharingAlias(DeltaSharingSource):
    """The same source under a name of its own, because the JVM connector's jar on the class path may provide
    ``deltaSharing``."""

    @classmethod
    def name(cls) -> str:
        return "delta_sharing"
