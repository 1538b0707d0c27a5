"""Reads of a table: what they read, and their rows as Arrow batches.

A ``Read`` is frozen; ``select``, ``where`` and ``limit`` return changed copies. Every output plans the read again, so a
read of the latest version reads the version that is the latest when it runs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.notebook import Text, html_facts
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, as_of_now, whole_number
from delta_sharing_client.plan.tasks import Plan, ScanPlan
from delta_sharing_client.predicates.parse import Filter, parse_filter
from delta_sharing_client.predicates.tree import And, Expression
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import printable
from delta_sharing_client.run import loop
from delta_sharing_client.run.batches import Batches, check_rows
from delta_sharing_client.run.partitions import Partition, partition
from delta_sharing_client.run.progress import progress_of
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.planning import plan, table_schema
from delta_sharing_client.sources.table_source import Purpose, TableSource
from delta_sharing_client.threads import check_running

if TYPE_CHECKING:
    from delta_sharing_client.columns import ColumnName

ReadT = TypeVar("ReadT", bound="Read")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read:
    """The common base of ``Scan`` and ``Changes``: what to read, the options, and the rows as Arrow batches.

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
        """Return a copy that also applies ``condition``: an SQL string, tuples or ``ds.col("a") > 1``.

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
        """The maximum number of rows; ``None`` without a limit.

        Examples
        --------
        >>> table.scan(limit=3).limit_rows
        3
        """
        return self.request.limit

    # === Running ===

    def plan(self, options: ReadOptions | None = None) -> ScanPlan:
        """Query the server and return the files to read; no data is downloaded.

        ``options`` replaces the read's own. Errors are those of ``planning``.

        Raises
        ------
        DeltaSharingError
            The server or the network failed; a column, filter or version does not fit the table; or the table needs a
            feature that is not supported.

        Examples
        --------
        >>> len(table.scan(filter="country = 'DE'").plan().tasks) < table.metadata().num_files
        True
        """
        check_running()
        return plan(self._source(options), as_of_now(self.request), Purpose.PLAN).whole()

    def _source(self, options: ReadOptions | None = None) -> TableSource:
        options = options or self.options
        return source_of(self.rest.for_read(options), self.table, options)

    def _stream(self, options: ReadOptions | None = None) -> Plan:
        """Like ``plan``; if possible, the files are read while they are listed."""
        if not SHORTCUTS.streamed_listing:
            return self.plan(options)
        check_running()
        with loop.prepared():
            return plan(self._source(options), as_of_now(self.request))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows. This sends a request, but lists no files, or only the beginning of a change
        feed.

        Raises the errors of ``plan``.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).schema.field("order_id").type
        DataType(int64)
        """
        return table_schema(self._source(), self.request)

    @property
    def report(self) -> ScanReport | None:
        """The cost of the last read (requests, bytes, files, seconds); ``None`` before the first read.

        Examples
        --------
        >>> scan = table.scan(filter="country = 'DE'")
        >>> rows = scan.to_arrow()
        >>> scan.report.rows == rows.num_rows
        True
        """
        return self._reports[-1] if self._reports else None

    def explain(self) -> str:
        """Describe in text which files, columns and bytes would be read, and which are skipped and why. Raises the
        errors of ``plan``.

        Examples
        --------
        >>> table.scan(columns=["order_id"]).explain().splitlines()[0]
        'Scan of demo.shop.orders, version 6'
        """
        return Text(explain(self.plan()))

    def to_batches(self, *, eager: bool = True, rows: int | None = None) -> Batches:
        """Return the rows as an iterator of Arrow record batches, in a stable order and with bounded memory.

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
            The number of rows in every batch but the last, like ``chunksize`` of other libraries. By default, batches
            have the rows of a file's row groups, at most ``ReadOptions.batch_rows``.

        Raises
        ------
        UsageError
            ``rows`` is not a whole number of 1 or more.
        DeltaSharingError
            The errors of ``plan``, at once. The iterator raises ``DataError``, ``TransportError`` and others: the rows
            before the error are right, but the result is incomplete.

        Examples
        --------
        >>> with table.scan(columns=["order_id"]).to_batches() as batches:
        ...     sum(batch.num_rows for batch in batches)
        2755
        """
        check_rows(rows)
        return self._run(self._stream(), eager=eager, rows=rows)

    def partitions(self, count: int) -> list[Partition]:
        """Plan the read and split it into at most ``count`` parts, for an engine that reads them on several machines.

        A part can be pickled. It has a ``schema``, and ``read()`` returns its rows as record batches in any process
        that has this package. Together and in order, the parts have the rows of ``to_batches``. Parts have similar
        sizes: large files are split at row groups, for which their footers are read here. No part is empty; the list is
        empty if there is nothing to read. A read with a limit is one part.

        A part renews expired URLs for the version that was planned, so a pickled part contains credentials: protect it
        as you protect the profile. Raises ``UsageError`` if ``count`` is not an integer of 1 or more. Other errors are
        those of ``plan``, and ``TransportError`` or ``DataError`` if a footer cannot be read.

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

    def count(self) -> int:
        """Return the number of rows: from the log if it states the number, otherwise from the files, without reading a
        column.

        Deletion vectors are read, and their numbers of rows compared with the log. Raises the errors of ``to_arrow``.

        Examples
        --------
        >>> table.scan().count()
        2755
        """
        with self._run(self.select()._stream()) as batches:
            return sum(batch.num_rows for batch in batches)

    def __getstate__(self) -> dict[str, object]:
        # Reports are left out: they do not apply to the copy, and their lock cannot be pickled.
        return {**vars(self), "_reports": []}

    def _asking(self: ReadT, **changes: Any) -> ReadT:
        """Return a copy with a changed request."""
        return dataclasses.replace(self, request=dataclasses.replace(self.request, **changes), _reports=[])

    def _run(self, plan: Plan, *, eager: bool = True, rows: int | None = None) -> Batches:
        report = ScanReport(notes=plan.notes)
        self._reports[:] = [report]
        meanwhile = progress_of(report, title=f"reading {self.table}", wanted=plan.context.options.progress)
        return Batches(plan, report, meanwhile, eager=eager, rows=rows)


def with_pushed(read: ReadT, condition: Expression | None) -> ReadT:
    """Return a copy of ``read`` for an engine that filters its rows by ``condition``, or by a stronger condition.

    Rows for which ``condition`` is not true may be left out. The filter and the limit of ``read`` stay what they are: a
    read with a limit skips nothing by ``condition``, because the limit counts rows before the engine filters them.
    """
    return read._asking(pushed_filter=condition)
