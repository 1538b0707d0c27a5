"""``Scan`` and ``Changes``: descriptions of reads, run by their outputs.

Both are frozen; ``select``, ``where`` and ``limit`` return changed copies. Every output plans the read again, so a
``Scan`` of the latest version reads the version that is the latest when it runs. Modules for outputs are imported on
use, so Arrow output does not need pandas.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, overload

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.delta.schema import is_geometry
from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.notebook import Text, html_facts
from delta_sharing_client.options import ReadOptions, VariantAs
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.outputs.streams import stream_reader
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, as_of_now, whole_number
from delta_sharing_client.plan.tasks import ScanPlan, ScanStream, explain
from delta_sharing_client.planning import plan_table, stream_table, table_schema
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import And, Expression
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import printable
from delta_sharing_client.run import loop
from delta_sharing_client.run.batches import Batches, check_rows
from delta_sharing_client.run.coroutines import AsyncOutputs
from delta_sharing_client.run.partitions import Partition, partition
from delta_sharing_client.run.progress import progress_of
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.threads import check_running

if TYPE_CHECKING:
    import duckdb
    import geopandas
    import pandas as pd
    import polars as pl
    import pyspark.sql

    from delta_sharing_client.columns import ColumnName
    from delta_sharing_client.outputs.dataset import SharedDataset

Filter = Union[str, Expression, Sequence[Any], None]
ReadT = TypeVar("ReadT", bound="Read")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read(AsyncOutputs):
    """The common base of ``Scan`` and ``Changes``: what to read, the options, and all outputs.

    Create one with ``SharedTable.scan`` or ``SharedTable.changes``. A class that overrides ``plan`` must override
    ``_stream`` and ``schema`` too.
    """

    rest: RestClient = dataclasses.field(repr=False)
    table: AssetName
    options: ReadOptions
    _reports: list[ScanReport] = dataclasses.field(default_factory=list, repr=False, compare=False)
    request: ScanRequest | ChangesRequest

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in self._settings().items()]
        return printable(f"{type(self).__name__}({', '.join([str(self.table), *shown])})")

    def _repr_html_(self) -> str:
        report = "" if self.report is None else self.report._repr_html_()
        return html_facts(f"{type(self).__name__} of {self.table}", self._settings()) + report

    def _settings(self) -> dict[str, object]:
        """Return the settings that differ from the defaults."""
        return {
            field.name: str(value) if isinstance(value, Expression) else getattr(value, "value", value)
            for field in dataclasses.fields(self.request)
            if (value := getattr(self.request, field.name)) != field.default
        }

    # === Describing ===

    def select(self: ReadT, *columns: ColumnName) -> ReadT:
        """Return a copy that reads only ``columns`` (names, dotted paths or sequences of names), in this order.

        Raises ``UsageError`` for an item that is not a name. Whether the table has the column is checked when the read
        runs.

        Examples
        --------
        >>> table.scan().select("order_id", "country").schema.names
        ['order_id', 'country']
        """
        return self._asking(columns=columns)

    def where(self: ReadT, condition: Filter) -> ReadT:
        """Return a copy that also applies ``condition``: SQL text, tuples or ``ds.col("a") > 1``.

        Raises ``UsageError`` if the condition is not understood. Its columns and types are checked when the read runs.

        Examples
        --------
        >>> import delta_sharing_client as ds
        >>> table.scan(filter="amount > 100").where(ds.col("country") == "DE")
        Scan(demo.shop.orders, filter="amount > 100 AND country = 'DE'")
        """
        added = parse_filter(condition)
        present = self.request.filter
        both = added if present is None else present if added is None else And((present, added))
        return self._asking(filter=both)

    def limit(self: ReadT, rows: int | None) -> ReadT:
        """Return a copy that returns at most ``rows`` rows.

        Raises ``UsageError`` if ``rows`` is not an integer of 0 or more.

        Examples
        --------
        >>> table.scan().limit(3).to_arrow().num_rows
        3
        """
        return self._asking(limit=rows)

    @property
    def limit_rows(self) -> int | None:
        """The maximum number of rows, ``None`` without a limit.

        Examples
        --------
        >>> table.scan(limit=3).limit_rows
        3
        """
        return self.request.limit

    # === Running ===

    def plan(self, options: ReadOptions | None = None) -> ScanPlan:
        """Ask the server and return the files to read; no data is downloaded.

        ``options`` replaces the read's own. Errors are those of ``planning``.

        Raises
        ------
        DeltaSharingError
            The server or the network; a column, filter or version that does not fit the table; a feature that is not
            read.

        Examples
        --------
        >>> len(table.scan(filter="country = 'DE'").plan().tasks) < table.metadata().num_files
        True
        """
        check_running()
        return plan_table(self.rest, self.table, as_of_now(self.request), options or self.options)

    def _stream(self, options: ReadOptions | None = None) -> ScanPlan | ScanStream:
        """Like ``plan``; if possible, the files are read while they are listed."""
        if not SHORTCUTS.streamed_listing:
            return self.plan(options)
        check_running()
        with loop.prepared():
            return stream_table(self.rest, self.table, as_of_now(self.request), options or self.options)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows. Asks the server, but lists no files, or only the beginning of a change feed.

        Errors as ``plan``.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).schema.field("order_id").type
        DataType(int64)
        """
        return table_schema(self.rest, self.table, self.request, self.options)

    @property
    def report(self) -> ScanReport | None:
        """The cost of the last read (requests, bytes, files, seconds), ``None`` before the first one.

        Examples
        --------
        >>> scan = table.scan(filter="country = 'DE'")
        >>> rows = scan.to_arrow()
        >>> scan.report.rows == rows.num_rows
        True
        """
        return self._reports[-1] if self._reports else None

    def explain(self) -> str:
        """Return as text which files, columns and bytes would be read, and what is skipped and why. Errors as ``plan``.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).explain().splitlines()[0]
        'Scan of demo.shop.orders, version 6'
        """
        return Text(explain(self.plan()))

    def to_batches(self, *, eager: bool = True, rows: int | None = None) -> Batches:
        """Return the rows as an iterator of Arrow record batches, in stable order and bounded memory.

        The first batches arrive while the server still lists files. The result is complete only if the iterator ends
        without an error. Every batch has exactly ``schema``. The iterator is a context manager. ``close``, from any
        thread, ends the read and its pending requests, and so does dropping the iterator. Reading from a closed
        iterator, or in a process that was forked during the read, raises ``UsageError``.

        Parameters
        ----------
        eager:
            Whether all rows are probably wanted. ``False`` is for a consumer that may stop soon: the read begins with
            the first pages of the first file, and downloads more ahead as more rows are taken.
        rows:
            The rows of every batch but the last, as with ``chunksize`` of other libraries. By default, batches have the
            rows of a file's row groups, at most ``ReadOptions.batch_rows``.

        Raises
        ------
        UsageError
            ``rows`` is not a whole number of 1 or more.
        DeltaSharingError
            As ``plan``, at once. From the iterator ``DataError``, ``TransportError`` and others: the rows before are
            right, and more are missing.

        Examples
        --------
        >>> with table.scan(columns=["order_id"]).to_batches() as batches:
        ...     sum(batch.num_rows for batch in batches)
        2755
        """
        check_rows(rows)
        return self._run(self._stream(), eager=eager, rows=rows)

    def partitions(self, count: int) -> list[Partition]:
        """Plan the read and split it into at most ``count`` parts, for an engine that distributes them.

        You can pickle a part. It has a ``schema``, and ``read()`` returns its rows as record batches in any process
        that has this package. All parts in order have the rows of ``to_batches``. Parts have similar sizes: large files
        are split at row groups, for which their footers are read here. No part is empty; the list is empty if there is
        nothing to read. A read with a limit is one part.

        A part renews expired URLs for the version that was planned, so a pickled part contains credentials: protect it
        as you protect the profile. Raises ``UsageError`` if ``count`` is not an integer of 1 or more. Other errors as
        ``plan``, and ``TransportError`` and ``DataError`` for a footer.

        Examples
        --------
        >>> parts = table.scan(columns=["order_id"]).partitions(2)
        >>> sum(batch.num_rows for part in parts for batch in part.read())
        2755
        """
        number = whole_number(count)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UsageError(f"The number of partitions must be an integer of 1 or more, not {count!r}.")
        return partition(self.plan(), number)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a ``pyarrow.RecordBatchReader`` over ``to_batches()``.

        Errors as ``to_batches``; pyarrow passes errors of the iterator on.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).to_reader().read_all().num_rows
        2755
        """
        plan = self._stream()
        batches = self._run(plan)
        return stream_reader(plan.output_schema, lambda: batches)

    def to_arrow(self) -> pa.Table:
        """Return all rows as one ``pyarrow.Table``.

        Raises
        ------
        DeltaSharingError
            The server, the network, a feature that is not read, or a damaged file. No rows are returned.

        Examples
        --------
        >>> table.scan(columns=["order_id"], limit=2).to_arrow().to_pydict()
        {'order_id': [9, 10]}
        """
        plan = self._stream()
        with self._run(plan) as batches:
            return pa.Table.from_batches(batches, schema=plan.output_schema)

    def to_pandas(self, dtype_backend: str | None = None) -> pd.DataFrame:
        """Return all rows as a pandas frame.

        Raises ``UsageError`` if ``dtype_backend`` is unknown, or a date lies beyond what the dtype holds. Other errors
        as ``to_arrow``.

        Parameters
        ----------
        dtype_backend:
            ``None`` for NumPy dtypes (nullable integers and booleans keep null apart, see ``frames``),
            ``"numpy_nullable"`` or ``"pyarrow"`` as in pandas.

        Examples
        --------
        >>> table.scan(columns=["order_id", "country"], limit=2).to_pandas()
           order_id country
        0         9      US
        1        10      US
        """
        check_running()
        from delta_sharing_client.outputs import pandas as frames

        backend = frames.check_dtype_backend(dtype_backend)
        decoded = self.options.variant_as is VariantAs.OBJECT
        options = dataclasses.replace(self.options, variant_as=VariantAs.STRUCT) if decoded else None
        # With the number of rows the frame's memory is allocated once, but only a complete listing has it. With a
        # filter it is unknown anyway, and a limit must not wait for the complete listing.
        is_counted = self.request.filter is None and self.request.limit is None
        plan = self.plan(options) if is_counted else self._stream(options)
        rows = plan.known_rows if isinstance(plan, ScanPlan) else None
        with self._run(plan) as batches:
            frame = frames.to_pandas(plan.output_schema, batches, backend, rows, self.report)
        return frames.decode_variants(frame, plan.context.schema) if decoded else frame

    @overload
    def to_polars(self, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, lazy: Literal[True]) -> pl.LazyFrame: ...

    def to_polars(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows as a Polars frame (extra ``polars``).

        Raises ``UsageError`` if Polars is not installed. Other errors as ``to_arrow``.

        Parameters
        ----------
        lazy:
            Return a ``LazyFrame`` instead, which reads when it is collected. Its columns, filters and limits are pushed
            down, so that it downloads only the bytes that it needs.

        Examples
        --------
        >>> table.scan(columns=["order_id"], limit=2).to_polars()["order_id"].to_list()
        [9, 10]
        """
        check_running()
        from delta_sharing_client.outputs.polars import frame, lazy_frame

        optional.load("polars", "polars")  # report a missing package before the rows are read
        if lazy:
            return lazy_frame(self, type(self)._polars_batches)
        plan = self._stream()
        with self._polars_batches(plan) as batches:
            return frame(plan.output_schema, batches)

    def _polars_batches(
        self, plan: ScanPlan | ScanStream | None = None, *, eager: bool = True, is_filtered_again: bool = False
    ) -> Batches:
        """Return the rows as batches that may have Arrow's views; errors as ``to_batches``."""
        plan = plan or self._stream()
        context = dataclasses.replace(plan.context, for_polars=True, is_filtered_again=is_filtered_again)
        return self._run(dataclasses.replace(plan, context=context), eager=eager)

    def to_geopandas(self) -> geopandas.GeoDataFrame:
        """Return the rows as a ``geopandas.GeoDataFrame`` (extra ``geopandas``).

        Its geometries are the table's columns of the types ``geometry`` and ``geography``, each with its coordinate
        reference system. GeoPandas computes in the plane, with a geography too. Raises ``UsageError`` if no column
        holds a geometry, or GeoPandas is not installed. Other errors as ``to_arrow``.

        Examples
        --------
        >>> table.scan().to_geopandas()
        Traceback (most recent call last):
            ...
        delta_sharing_client.errors.UsageError: No column of 'demo.shop.orders' holds a geometry; read it with \
to_pandas().
        """
        package = optional.load("geopandas", "geopandas")
        table = self.to_arrow()
        if not any(is_geometry(field) for field in table.schema):
            raise UsageError(f"No column of '{self.table}' holds a geometry; read it with to_pandas().")
        return package.GeoDataFrame.from_arrow(table)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation (extra ``duckdb``), on ``connection`` or DuckDB's default one.

        Every query of the relation reads again and downloads only the bytes that its columns and filters need. On the
        default connection ``duckdb.sql("SELECT ... FROM relation")`` finds the relation, too. Each thread needs its own
        connection. Raises ``UsageError`` if DuckDB is not installed. Other errors as ``plan``; errors of a query are
        raised by DuckDB and contain ours.

        Examples
        --------
        >>> import duckdb
        >>> connection = duckdb.connect()
        >>> relation = table.scan().to_duckdb(connection)
        >>> relation.aggregate("count(*)").fetchall()
        [(2755,)]
        """
        from delta_sharing_client.outputs.dataset import duckdb_relation

        return duckdb_relation(self, connection)

    def to_parquet(self, path: str | os.PathLike[str]) -> int:
        """Write the rows to one Parquet file, in bounded memory, and return the number of rows.

        The file gets its name when it is complete. If the read fails, an existing file is unchanged, and no other is
        left. Raises ``UsageError`` if the file cannot be written there. Other errors as ``to_arrow``.

        Examples
        --------
        >>> table.scan(limit=2).to_parquet("orders.parquet")
        2
        """
        return self._to_file(path, FileFormat.PARQUET)

    def to_csv(self, path: str | os.PathLike[str]) -> int:
        """As ``to_parquet``, into a CSV file with a header; nested values are JSON text. Errors as ``to_parquet``.

        Examples
        --------
        >>> table.scan(columns=["order_id", "country"], limit=1).to_csv("orders.csv")
        1
        >>> with open("orders.csv") as file:
        ...     print(file.read().strip())
        "order_id","country"
        9,"US"
        """
        return self._to_file(path, FileFormat.CSV)

    def to_ipc(self, path: str | os.PathLike[str]) -> int:
        """As ``to_parquet``, into an Arrow IPC file (also known as Feather). Errors as ``to_parquet``.

        Examples
        --------
        >>> table.scan(limit=2).to_ipc("orders.arrow")
        2
        """
        return self._to_file(path, FileFormat.ARROW)

    def to_jsonl(self, path: str | os.PathLike[str]) -> int:
        """As ``to_parquet``, into a file of one JSON object a line, with the values that ``--json`` prints.

        Errors as ``to_parquet``.

        Examples
        --------
        >>> table.scan(columns=["order_id", "country"], limit=1).to_jsonl("orders.jsonl")
        1
        >>> with open("orders.jsonl") as file:
        ...     print(file.read().strip())
        {"order_id":9,"country":"US"}
        """
        return self._to_file(path, FileFormat.JSONL)

    def to_excel(self, path: str | os.PathLike[str]) -> int:
        """As ``to_parquet``, into one sheet of a workbook of Excel (extra ``excel``).

        Numbers of more than 15 digits, which Excel would round, and dates before March 1900 are text; text is never a
        formula. Timestamps are in UTC if the header says so, with milliseconds. Nested values are JSON text. Raises
        ``UsageError`` before anything is written if there are more than 1,048,575 rows, or a text has more than 32,767
        characters. Other errors as ``to_parquet``.

        Examples
        --------
        >>> table.scan(limit=2).to_excel("orders.xlsx")
        2
        """
        check_running()
        from delta_sharing_client.outputs.excel import check_fits

        check_fits(self)
        return self._to_file(path, FileFormat.XLSX)

    def _to_file(self, path: str | os.PathLike[str], file_format: FileFormat) -> int:
        check_running()
        from delta_sharing_client.outputs.file_writers import write_file

        target = expanded(path)  # refused before the read begins
        with self.to_reader() as reader:
            return write_file(reader, reader.schema, Path(target), file_format)

    def to_dataset(self) -> SharedDataset:
        """Return the read as a ``pyarrow.dataset.Dataset``, for engines that push columns and filters into one.

        Errors as ``plan``, here for the schema; errors of a read come from the scanner.

        Examples
        --------
        >>> table.scan().to_dataset().count_rows()
        2755
        """
        from delta_sharing_client.outputs.dataset import SharedDataset

        return SharedDataset(self)

    def count(self) -> int:
        """Return the number of rows, from the log if it states it, otherwise from the files without reading a column.

        Deletion vectors are read and compared with the log. Errors as ``to_arrow``.

        Examples
        --------
        >>> table.scan().count()
        2755
        """
        # Only a complete listing shows whether the log states all counts, or whether files must be read.
        plan = self.select().plan()
        if plan.known_rows is not None and not plan.has_vectors:
            return plan.known_rows
        with self._run(plan) as batches:
            return sum(batch.num_rows for batch in batches)

    def to_spark(self, spark: pyspark.sql.SparkSession | None = None) -> pyspark.sql.DataFrame:
        """Return the rows as a Spark frame, read on the executors (extra ``spark``).

        Raises ``UsageError`` if PySpark is not installed, or there is no session. Other errors as ``plan``; errors of
        executors come from Spark when the frame is used.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).to_spark().count()
        2755
        """
        return optional.load("delta_sharing_client.spark.to_spark", "spark").to_spark(self, spark)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow C stream: ``pa.table(scan)``, ``pl.DataFrame(scan)``."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __getstate__(self) -> dict[str, object]:
        # Reports do not apply to the copy, and their lock cannot be pickled.
        return {**vars(self), "_reports": []}

    def _asking(self: ReadT, **changes: Any) -> ReadT:
        """Return a copy with a changed request."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **changes), _reports=[])

    def _run(self, plan: ScanPlan | ScanStream, *, eager: bool = True, rows: int | None = None) -> Batches:
        report = ScanReport(notes=plan.notes)
        self._reports[:] = [report]
        batches = Batches(plan, report, eager=eager, rows=rows)
        for begin in progress_of(report, title=f"reading {self.table}", wanted=plan.context.options.progress):
            batches.meanwhile(begin)
        return batches


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Scan(Read):
    """A read of one snapshot of a table. In the examples, ``table`` is a ``SharedTable``."""

    request: ScanRequest

    def at_version(self, version: int | str) -> Scan:
        """Return a copy that reads the snapshot at ``version``; of an Iceberg table also that of a branch or tag.

        Raises ``UsageError`` if ``version`` is neither an integer of 0 or more nor a name.

        Examples
        --------
        >>> table.scan().at_version(0).count() < table.scan().count()
        True
        """
        return self._asking(version=version, timestamp=None)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Changes(Read):
    """A read of the change data feed of a table (protocol, "Read Change Data Feed from a Table").

    Rows have the table's columns, then ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``,
    ``delete``), ``_commit_version`` (int64) and ``_commit_timestamp`` (UTC, milliseconds); they come in order of
    version.
    """

    request: ChangesRequest
