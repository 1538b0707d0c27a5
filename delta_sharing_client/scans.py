"""``Scan`` and ``Changes``: reads with all their outputs.

Modules for outputs are imported on first use, so Arrow output does not need pandas.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import pyarrow as pa

from delta_sharing_client import optional
from delta_sharing_client.delta.schema import is_geometry
from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.options import VariantAs
from delta_sharing_client.outputs.file_formats import FileFormat
from delta_sharing_client.outputs.streams import stream_reader
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest
from delta_sharing_client.plan.tasks import Plan
from delta_sharing_client.read_base import Read
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.run.coroutines import AsyncOutputs
from delta_sharing_client.threads import check_running

if TYPE_CHECKING:
    import duckdb
    import geopandas
    import pandas as pd
    import polars as pl
    import pyspark.sql

    from delta_sharing_client.outputs.dataset import SharedDataset


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ReadOutputs(Read, AsyncOutputs):
    """The outputs of both ``Scan`` and ``Changes``."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a ``pyarrow.RecordBatchReader`` over ``to_batches()``.

        Raises the errors of ``to_batches``; pyarrow passes on the errors of the iterator. Close the reader on the
        thread that reads from it: pyarrow would report the end of the rows to another thread, instead of an error.

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
            The server or the network failed, the table needs a feature that is not supported, or a file is damaged. No
            rows are returned.

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
        are those of ``to_arrow``.

        Parameters
        ----------
        dtype_backend:
            ``None`` for NumPy dtypes (nullable integers and booleans become extension dtypes, which keep nulls),
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
        # If the number of rows is known, the frame's memory is allocated once. Only a complete listing states the
        # number: with a filter it is unknown in any case, and a read with a limit must not wait for the listing.
        is_counted = self.request.skipping is None and self.request.limit is None
        plan = self.plan(options) if is_counted else self._stream(options)
        with self._run(plan) as batches:
            frame = frames.to_pandas(plan.output_schema, batches, backend, plan.known_rows, self.report)
        return frames.decode_variants(frame, plan.context.schema) if decoded else frame

    @overload
    def to_polars(self, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, lazy: Literal[True]) -> pl.LazyFrame: ...

    def to_polars(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows as a Polars frame (extra ``polars``).

        Raises ``UsageError`` if Polars is not installed. Other errors are those of ``to_arrow``.

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

        optional.load("polars", "polars")  # reports a missing package before the rows are read
        if lazy:
            return lazy_frame(self, type(self)._polars_batches)
        plan = self._stream()
        with self._polars_batches(plan) as batches:
            return frame(plan.output_schema, batches)

    def _polars_batches(self, plan: Plan | None = None, *, eager: bool = True) -> Batches:
        """Return the rows as batches. Polars filters rows faster, so its own filter only skips data here. Raises the
        errors of ``to_batches``."""
        plan = plan or self._stream()
        context = dataclasses.replace(plan.context, pushed_skips_only=True)
        return self._run(dataclasses.replace(plan, context=context), eager=eager)

    def to_geopandas(self) -> geopandas.GeoDataFrame:
        """Return the rows as a ``geopandas.GeoDataFrame`` (extra ``geopandas``).

        Its geometries are the table's columns of the types ``geometry`` and ``geography``, each with its coordinate
        reference system. GeoPandas computes in the plane, even for geographies. Raises ``UsageError`` if no column
        holds a geometry, or GeoPandas is not installed. Other errors are those of ``to_arrow``.

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
        default connection, ``duckdb.sql("SELECT ... FROM relation")`` can use the relation, too. Each thread needs its
        own connection. Raises ``UsageError`` if DuckDB is not installed. Other errors are those of ``plan``; errors of
        a query are raised by DuckDB and contain ours.

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

        The file gets its name only when it is complete. If the read fails, an existing file stays unchanged, and no
        partial file is left. Raises ``UsageError`` if the file cannot be written. Other errors are those of
        ``to_arrow``.

        Examples
        --------
        >>> table.scan(limit=2).to_parquet("orders.parquet")
        2
        """
        return self._to_file(path, FileFormat.PARQUET)

    def to_csv(self, path: str | os.PathLike[str]) -> int:
        """Like ``to_parquet``, but write a CSV file with a header; nested values are JSON text.

        Raises the errors of ``to_parquet``.

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
        """Like ``to_parquet``, but write an Arrow IPC file (also known as Feather).

        Raises the errors of ``to_parquet``.

        Examples
        --------
        >>> table.scan(limit=2).to_ipc("orders.arrow")
        2
        """
        return self._to_file(path, FileFormat.ARROW)

    def to_jsonl(self, path: str | os.PathLike[str]) -> int:
        """Like ``to_parquet``, but write one JSON object per line, with the values that ``--json`` prints.

        Raises the errors of ``to_parquet``.

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
        """Like ``to_parquet``, but write one sheet of an Excel workbook (extra ``excel``).

        Numbers of more than 15 digits, which Excel would round, and dates before March 1900 are text; text is never a
        formula. Timestamps have milliseconds, and are in UTC if the header says so. Nested values are JSON text. Raises
        ``UsageError`` and leaves no file if there are more than 1,048,575 rows, or a string has more than 32,767
        characters. Other errors are those of ``to_parquet``.

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

        target = expanded(path)  # refuses a wrong path before the read begins
        with self.to_reader() as reader:
            return write_file(reader, reader.schema, Path(target), file_format)

    def to_dataset(self) -> SharedDataset:
        """Return the read as a ``pyarrow.dataset.Dataset``, for engines that push columns and filters down to one.

        Raises the errors of ``plan``, if they concern the schema; the scanner raises the errors of a read.

        Examples
        --------
        >>> table.scan().to_dataset().count_rows()
        2755
        """
        from delta_sharing_client.outputs.dataset import SharedDataset

        return SharedDataset(self)

    def to_spark(self, spark: pyspark.sql.SparkSession | None = None) -> pyspark.sql.DataFrame:
        """Return the rows as a Spark DataFrame, read on the executors (extra ``spark``).

        Raises ``UsageError`` if PySpark is not installed, or there is no session. Other errors are those of ``plan``;
        Spark raises the errors of executors when the DataFrame is used.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).to_spark().count()
        2755
        """
        return optional.load("delta_sharing_client.spark.to_spark", "spark").to_spark(self, spark)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as an Arrow C stream: ``pa.table(scan)``, ``pl.DataFrame(scan)``."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Scan(ReadOutputs):
    """A read of one snapshot of a table. In the examples, ``table`` is a ``SharedTable``."""

    request: ScanRequest

    def at_version(self, version: int | str) -> Scan:
        """Return a copy that reads the snapshot at ``version``; for an Iceberg table, a branch or tag is accepted as
        well.

        Raises ``UsageError`` if ``version`` is neither an integer of 0 or more nor a string.

        Examples
        --------
        >>> table.scan().at_version(0).count() < table.scan().count()
        True
        """
        return self._asking(version=version, timestamp=None)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Changes(ReadOutputs):
    """A read of the change data feed of a table (protocol, "Read Change Data Feed from a Table").

    Rows have the table's columns, then ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``,
    ``delete``), ``_commit_version`` (int64) and ``_commit_timestamp`` (UTC, milliseconds); they are ordered by version.
    """

    request: ChangesRequest
