"""``SharedTable``, which describes a table and creates its reads."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Union, cast, overload

import pyarrow as pa

from delta_sharing_client.columns import listed_columns
from delta_sharing_client.delta.actions import CommitInfo, Format, Protocol
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import DeltaSharingError, UsageError, about_table
from delta_sharing_client.instants import EPOCH, to_instant
from delta_sharing_client.notebook import BarCell, html_facts, html_rows
from delta_sharing_client.options import (
    HEAD_ROWS,
    ReadOptions,
    ResponseFormat,
    TableFormat,
    choice,
    chosen,
    with_format,
)
from delta_sharing_client.plan.read_columns import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    left_out_metadata,
    output_field,
)
from delta_sharing_client.plan.read_request import (
    ChangesRequest,
    ScanRequest,
    version_number,
    whole_number,
)
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import printable
from delta_sharing_client.scans import Changes, Scan
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.table_source import HeadRequest

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from delta_sharing_client.columns import ColumnName
    from delta_sharing_client.follow.follow_request import Start
    from delta_sharing_client.follow.steps import Follow
    from delta_sharing_client.predicates.parse import Filter
    from delta_sharing_client.replica import Replica

    Timestamp = Union[str, datetime.datetime, datetime.date, None]

_WEEK = datetime.timedelta(days=7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableDetails:
    """The server's description of a table.

    ``version`` is the version described; ``size`` (bytes) and ``num_files`` are ``None`` if the server does not state
    them, like ``created_time`` (epoch milliseconds); ``response_format`` is the format that the server chose, ``AUTO``
    for an Iceberg table; ``format.provider`` is the encoding of the data files, ``"parquet"``; ``schema`` is the Arrow
    schema of a read, with logical names; its metadata lists columns of types that cannot be read, under
    ``delta_sharing.left_out``. ``location``, ``auxiliary_locations`` and ``access_modes`` (``url``, ``dir``; empty
    means ``url``) are for directory access. ``schema_string`` is the schema as the server sent it, with comments;
    ``protocol`` has the versions and features that a reader needs. For an Iceberg table (``table_format``),
    ``configuration`` has the version of the Iceberg format as ``format-version``; ``schema`` and ``protocol`` describe
    the Delta table as which the client reads it.
    """

    id: str
    name: str | None
    description: str | None
    version: int
    response_format: ResponseFormat
    protocol: Protocol
    schema: pa.Schema
    schema_string: str = dataclasses.field(repr=False)
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    size: int | None
    num_files: int | None
    created_time: int | None
    format: Format
    location: str | None = None
    auxiliary_locations: Sequence[str] = ()
    access_modes: Sequence[str] = ()
    table_format: TableFormat = TableFormat.DELTA

    def _repr_html_(self) -> str:
        is_of_response = self.response_format is not ResponseFormat.AUTO
        facts = {
            "description": self.description,
            "table format": self.table_format.value,
            "version": self.version,
            "files": self.num_files,
            "bytes": self.size,
            "partition columns": self.partition_columns,
            "reader features": self.protocol.reader_features if is_of_response else None,
            "response format": self.response_format.value if is_of_response else None,
        }
        comments = {field.name: field.metadata.get("comment") for field in parse_schema(self.schema_string).fields}
        columns = [
            (field.name, field.type, "" if field.nullable else "never null", comments.get(field.name) or "")
            for field in self.schema
        ]
        about = html_facts(self.name or self.id, facts)
        return about + html_rows(f"{len(columns)} columns", ["column", "type", "", "comment"], columns)


@dataclasses.dataclass(frozen=True)
class VersionChanges:
    """The numbers of rows that one version changed; ``timestamp`` is the time of its commit, in UTC.

    ``operation`` (such as ``"MERGE"``) and ``operation_parameters`` come from the table's log; they are ``None`` and
    empty if the log is not shared or lacks them. The counts are ``None`` if the log is shared but the version's changes
    were not recorded.
    """

    version: int
    timestamp: datetime.datetime
    inserts: int | None
    updates: int | None
    deletes: int | None
    operation: str | None = None
    operation_parameters: Mapping[str, object] = dataclasses.field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        changed = f"{self.inserts} inserts, {self.updates} updates, {self.deletes} deletes"
        told = [self.operation] if self.operation else []
        told.append("changes not recorded" if self.inserts is None else changed)
        return f"version {self.version}, {self.timestamp:%Y-%m-%d %H:%M:%S}: {', '.join(told)}"


class _VersionList(list[VersionChanges]):
    def _repr_html_(self) -> str:
        counts = [count for one in self for count in (one.inserts, one.updates, one.deletes) if count is not None]
        most = max(counts, default=1) or 1
        with_log = any(one.operation for one in self)
        rows = []
        for one in self:
            counted = (one.inserts, one.updates, one.deletes)
            cells = (cell for count in counted for cell in (count, BarCell((count or 0) / most)))
            said = (one.operation,) if with_log else ()
            rows.append((one.version, one.timestamp.isoformat(" ", "seconds"), *said, *cells))
        names = ["version", "committed (UTC)", *(["operation"] if with_log else [])]
        return html_rows(f"{len(self)} versions", [*names, "inserts", "", "updates", "", "deletes", ""], rows)


@dataclasses.dataclass(frozen=True)
class SharedTable:
    """A shared table, from ``SharingClient.table``. It sends no request until a method needs one.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> table = SharingClient("demo.share").table("demo.shop.orders")
    >>> table.version()
    6
    >>> table.metadata().partition_columns
    ('country',)
    """

    name: AssetName
    rest: RestClient = dataclasses.field(repr=False)
    options: ReadOptions = dataclasses.field(default_factory=ReadOptions, repr=False)

    def __repr__(self) -> str:
        return printable(f"SharedTable({self.name})")

    def _repr_html_(self) -> str:
        """Show the server's description of the table, with the columns first, or the error."""
        given = f"client.table('{self.name}')"
        ways = {"rows": f"{given}.head()", "columns and size": f"{given}.metadata()", "versions": f"{given}.history()"}
        try:
            described = self.metadata()._repr_html_()
        except DeltaSharingError as error:
            described = html_facts("The table cannot be described", {type(error).__name__: str(error)})
        return html_facts(str(self.name), ways) + described

    def version(self, starting_timestamp: Timestamp = None) -> int:
        """Return the current version, or the earliest one at or after ``starting_timestamp`` (UTC without a zone).

        Raises
        ------
        NotFoundError
            There is no such table, or no version at or after ``starting_timestamp``.
        UsageError
            ``starting_timestamp`` is not a timestamp.
        DeltaSharingError
            The server or the network.
        """
        start = _instant(starting_timestamp, "starting_timestamp", up=True)
        source = source_of(self.rest, self.name, self.options)
        with source.about():
            return source.version(start)

    def metadata(
        self,
        *,
        version: int | str | None = None,
        timestamp: Timestamp = None,
        response_format: ResponseFormat | str = ResponseFormat.AUTO,
    ) -> TableDetails:
        """Return the table's description, by default of the latest version.

        With ``"auto"`` the server chooses the response format of the description.

        Raises
        ------
        NotFoundError
            The table does not exist.
        ProtocolError
            The schema is malformed.
        DeltaSharingError
            The server or the network failed.
        """
        response = self._describe(version, timestamp, response_format)
        metadata = response.metadata
        with about_table(str(self.name)):
            columns = parse_schema(metadata.schema_string)
            fields = [output_field(column, choice(self.options.variant_as)) for column in columns]
            schema = pa.schema(fields, left_out_metadata(columns))
        return TableDetails(
            id=metadata.id,
            name=metadata.name,
            description=metadata.description,
            version=response.version,
            response_format=response.response_format,
            protocol=response.protocol,
            schema=schema,
            schema_string=metadata.schema_string,
            partition_columns=tuple(metadata.partition_columns),
            configuration=dict(metadata.properties),
            size=response.table_size,
            num_files=response.num_files,
            created_time=metadata.created_time,
            format=metadata.format,
            location=response.location,
            auxiliary_locations=response.auxiliary_locations,
            table_format=response.table_format,
            access_modes=response.access_modes,
        )

    def protocol(self, *, response_format: ResponseFormat | str = ResponseFormat.AUTO) -> Protocol:
        """Return the reader and writer versions and the features that the table needs.

        The parquet response format has its own reader version, 1, and does not contain the table's features. Raises the
        errors of ``metadata``.
        """
        return self._describe(None, None, response_format).protocol

    @property
    def schema(self) -> pa.Schema:
        """The table's current Arrow schema. This sends a request. Raises the errors of ``metadata``."""
        return self.metadata().schema

    @property
    def columns(self) -> list[str]:
        """The names of the table's columns. This sends a request. Raises the errors of ``metadata``.

        Examples
        --------
        >>> table.columns
        ['order_id', 'customer', 'country', 'ordered_at', 'amount', 'status']
        """
        return list(self.schema.names)

    def to_pandas(self, dtype_backend: str | None = None) -> pd.DataFrame:
        """Return the whole table as a pandas frame, as ``scan().to_pandas(dtype_backend)`` does.

        Raises the errors of ``Scan.to_pandas``.

        Examples
        --------
        >>> table.to_pandas().shape
        (2755, 6)
        """
        return self.scan().to_pandas(dtype_backend)

    def to_arrow(self) -> pa.Table:
        """Return the whole table as a ``pyarrow.Table``. Raises the errors of ``Scan.to_arrow``.

        Examples
        --------
        >>> table.to_arrow().num_rows
        2755
        """
        return self.scan().to_arrow()

    @overload
    def to_polars(self, lazy: Literal[False] = False) -> pl.DataFrame: ...

    @overload
    def to_polars(self, lazy: Literal[True]) -> pl.LazyFrame: ...

    def to_polars(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return the whole table as a Polars frame, as ``scan().to_polars(lazy)`` does.

        Raises the errors of ``Scan.to_polars``.

        Examples
        --------
        >>> table.to_polars().height
        2755
        """
        return self.scan().to_polars(lazy=True) if lazy else self.scan().to_polars()

    def count(self) -> int:
        """Return the number of rows, as ``scan().count()`` does. Raises the errors of ``Scan.count``.

        Examples
        --------
        >>> table.count()
        2755
        """
        return self.scan().count()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export all rows as an Arrow C stream: ``pa.table(table)``, ``pl.DataFrame(table)``."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def head(
        self,
        rows: int = HEAD_ROWS,
        columns: Sequence[ColumnName] | None = None,
        filter: Filter = None,  # noqa: A002 - as in scan
    ) -> pd.DataFrame:
        """Return the first ``rows`` rows as a pandas frame; ``columns`` and ``filter`` as in ``scan``.

        Raises the errors of ``Scan.to_pandas``.

        Examples
        --------
        >>> table.head(2, columns=["order_id", "country"])
           order_id country
        0         9      US
        1        10      US
        """
        return self.scan(columns, filter, rows).to_pandas()

    def scan(
        self,
        columns: Sequence[ColumnName] | None = None,
        filter: Filter = None,  # noqa: A002 - the name users know from pyarrow
        limit: int | None = None,
        *,
        version: int | str | None = None,
        timestamp: Timestamp = None,
        row_lineage: bool = False,
        response_format: ResponseFormat | str = ResponseFormat.AUTO,
        options: ReadOptions | None = None,
    ) -> Scan:
        """Return a read of one snapshot; its outputs (``to_pandas()``, ``to_arrow()`` ...) run it.

        Raises ``UsageError`` for arguments that cannot be used as given; what needs the schema is checked when the read
        runs.

        Parameters
        ----------
        columns:
            Names to return, in this order; ``"b.c"`` keeps only the field ``c`` of the struct ``b``.
        filter:
            An SQL string, ``[("a", ">", 1)]`` tuples, or ``ds.col("a") > 1``. Only rows for which it is true are
            returned.
        limit:
            Maximum number of rows.
        version, timestamp:
            The snapshot to read, by default the latest one. A timestamp is a string or a datetime, in UTC if it has no
            zone. For an Iceberg table, ``version`` is the id of a snapshot, or the name of a branch or tag.
        row_lineage:
            Append the columns ``_row_id`` and ``_row_commit_version``; for an Iceberg table, ``_row_id`` and
            ``_last_updated_sequence_number`` (docs/row-lineage.md).
        response_format:
            ``"auto"``, ``"parquet"`` or ``"delta"``; the rows are the same.
        options:
            Options for this read, instead of the client's options.

        Examples
        --------
        >>> table.scan(columns=["order_id"], filter="amount > 100", limit=5)
        Scan(demo.shop.orders, columns=('order_id',), filter='amount > 100', limit=5)
        """
        if self.rest.profile.iceberg_endpoint is None:
            version = version_number(version)
        request = ScanRequest(
            columns=listed_columns(columns),
            filter=parse_filter(filter),
            limit=limit,
            version=version,
            timestamp=_instant(timestamp, "timestamp"),
            row_lineage=row_lineage,
            response_format=_format(response_format),
        )
        return Scan(rest=self.rest, table=self.name, options=self._chosen(options), request=request)

    def changes(
        self,
        starting_version: int | None = None,
        ending_version: int | None = None,
        *,
        starting_timestamp: Timestamp = None,
        ending_timestamp: Timestamp = None,
        columns: Sequence[ColumnName] | None = None,
        filter: Filter = None,  # noqa: A002 - as in scan
        limit: int | None = None,
        response_format: ResponseFormat | str = ResponseFormat.AUTO,
        options: ReadOptions | None = None,
    ) -> Changes:
        """Return a read of the change data feed between two versions or timestamps, both inclusive.

        ``columns`` and ``filter`` may also name ``_change_type``, ``_commit_version`` and ``_commit_timestamp``. The
        other arguments are those of ``scan``. Without an end, the feed ends at the latest version. Raises
        ``UsageError`` for arguments that cannot be used as given; what needs the schema is checked when the read runs.

        Examples
        --------
        >>> table.changes(3, 4).count()
        419
        """
        request = ChangesRequest(
            starting_version=starting_version,
            ending_version=ending_version,
            starting_timestamp=_instant(starting_timestamp, "starting_timestamp", up=True),
            ending_timestamp=_instant(ending_timestamp, "ending_timestamp"),
            columns=listed_columns(columns),
            filter=parse_filter(filter),
            limit=limit,
            response_format=_format(response_format),
        )
        return Changes(rest=self.rest, table=self.name, options=self._chosen(options), request=request)

    def follow(
        self,
        cursor: str | os.PathLike[str],
        *,
        every: float = 60,
        trigger: str | None = None,
        starting_version: int | str | None = None,
        starting_timestamp: Timestamp = None,
        columns: Sequence[ColumnName] | None = None,
        filter: Filter = None,  # noqa: A002 - as in scan
        max_files: int = 1000,
        max_bytes: int = 1 << 28,
        max_outage: float | None = None,
        response_format: ResponseFormat | str = ResponseFormat.AUTO,
        options: ReadOptions | None = None,
    ) -> Follow:
        """Return an iterator of the table's rows and then of its changes, step by step, for ``for`` and ``async for``.

        A step that was not committed is repeated with the same versions; see ``Follow`` and docs/following.md. Raises
        ``UsageError`` for arguments that cannot be used as given. The loop raises the errors of ``Follow``.

        Parameters
        ----------
        cursor:
            The file that stores the position; if it does not exist, the loop begins with the current snapshot.
        every:
            Seconds between two requests for the latest version, at least 1.
        trigger:
            ``"available-now"`` ends the loop with the version that is the latest when it begins.
        starting_version, starting_timestamp, columns, filter, response_format, options:
            As for ``changes``. With a start, a new cursor begins without a snapshot; ``"latest"`` starts with what is
            new.
        max_files, max_bytes:
            The maximum size of one step, in number and bytes of data files. A step has at least one file of the
            snapshot, or one whole version.
        max_outage:
            How many seconds to wait for a server that does not respond; by default 600, or 0 with ``"available-now"``.
        """
        from delta_sharing_client.follow.follow_request import FollowRequest
        from delta_sharing_client.follow.steps import follow

        request = FollowRequest(
            table=self.name,
            read=ScanRequest(
                columns=listed_columns(columns), filter=parse_filter(filter), response_format=_format(response_format)
            ),
            read_change_feed=True,
            starting_version=cast("Start", whole_number(starting_version)),
            starting_timestamp=_instant(starting_timestamp, "starting_timestamp", up=True),
            max_files=max_files,
            max_bytes=max_bytes,
            version_interval=every,
            max_outage=(0 if trigger else 600) if max_outage is None else max_outage,
            whole_versions=True,
        )
        return follow(self.rest, request, self._chosen(options), cursor, trigger)

    def history(self, starting_version: int = 0, ending_version: int | None = None) -> list[VersionChanges]:
        """Return the number of rows that each version changed, from the change data feed; one entry per version.

        Only the kind of each change is read. The protocol does not tell who wrote a version, and by which operation. If
        a table is read from its directory (``access_mode``), its log is available, so there is an entry for every
        version, with its operation. Raises ``RequestError`` if the table's change data feed is not shared, or does not
        reach back to ``starting_version``.

        For an Iceberg table, there is an entry for each of its snapshots, without numbers of rows;
        ``operation_parameters`` has the snapshot's summary.

        Examples
        --------
        >>> [(one.version, one.inserts, one.deletes) for one in table.history(2, 3)]
        [(2, 600, 0), (3, 0, 245)]
        """
        source = source_of(self.rest.for_read(self.options), self.name, self.options)
        with source.about():
            commits = source.commits(starting_version, ending_version)
        if commits is None:
            counts = self._count_changes(starting_version, ending_version)
            return _VersionList(_entry(*commit, found, CommitInfo()) for commit, found in sorted(counts.items()))
        # Changes are counted from the version on after which all were recorded.
        with_feed = list(itertools.takewhile(lambda commit: commit.has_feed, reversed(commits)))
        counts = self._count_changes(with_feed[-1].version, with_feed[0].version) if with_feed else {}
        known = {version: found for (version, _), found in counts.items()}
        counted = {commit.version for commit in with_feed}
        return _VersionList(
            _entry(
                commit.version,
                EPOCH + datetime.timedelta(milliseconds=commit.timestamp_ms),
                known.get(commit.version, Counter()) if commit.version in counted else None,
                commit.info,
            )
            for commit in commits
        )

    def _count_changes(self, start: int, end: int | None) -> dict[tuple[int, datetime.datetime], Counter[str]]:
        counts: dict[tuple[int, datetime.datetime], Counter[str]] = {}
        feed = SharedTable.changes(self, start, end).select(COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)
        with feed.to_batches() as batches:
            for batch in batches:
                grouped = pa.Table.from_batches([batch]).group_by(batch.schema.names).aggregate([([], "count_all")])
                for version, moment, kind, rows in zip(*(column.to_pylist() for column in grouped), strict=True):
                    counts.setdefault((version, moment), Counter())[kind] += rows
        return counts

    def replicate(
        self,
        directory: str | os.PathLike[str],
        *,
        columns: Sequence[ColumnName] | None = None,
        version: int | None = None,
        timestamp: Timestamp = None,
        retention: datetime.timedelta | None = _WEEK,
        repair: bool = False,
        response_format: ResponseFormat | str = ResponseFormat.AUTO,
        options: ReadOptions | None = None,
    ) -> Replica:
        """Make ``directory`` a Delta copy of the table that any engine reads, or update the copy in it.

        Only files that the copy does not have are downloaded. The copy changes in one step, by a new commit after all
        files have arrived; until then, readers see the previous version. See docs/replica.md.

        Parameters
        ----------
        directory:
            The directory of the copy. It can be moved, because all paths in the copy are relative.
        columns:
            The columns of the copy, as for ``scan``, in addition to partition columns; by default all columns. Files
            are always copied whole.
        version, timestamp:
            The snapshot to copy, the latest one by default.
        retention:
            How long removed files stay on the disk, for readers of older versions of the copy;
            ``None`` keeps them forever.
        repair:
            Compare every file of the copy with its checksum, and download again files that differ or have no checksum.
        response_format:
            As for ``scan``. File ids, and so the names of the copy's files, differ between the formats.
        options:
            Options for the download, instead of the client's options.

        Raises
        ------
        UsageError
            The directory cannot be written, holds something else, or another update of it is running.
        UnsupportedFeatureError
            As for a read; also if ``columns`` is not given and the table has columns of types that are not supported.
        DataError, TransportError, ProtocolError, RequestError
            As for a read; the copy is then as it was before.
        """
        read = ScanRequest(
            columns=listed_columns(columns),
            version=version,
            timestamp=_instant(timestamp, "timestamp"),
            response_format=_format(response_format),
        )
        # Imported here, because reads do not need it.
        from delta_sharing_client.replica import replicate

        return replicate(
            self.rest, self.name, directory, read, self._chosen(options), retention=retention, repair=repair
        )

    def _chosen(self, options: ReadOptions | None) -> ReadOptions:
        """Return the options of a read. The table's own format is kept, unless ``options`` have a different one."""
        return with_format(chosen(options, self.options), self.options.table_format)

    def _describe(
        self, version: int | str | None, timestamp: Timestamp, response_format: ResponseFormat | str
    ) -> TableHead:
        if version is not None and timestamp is not None:
            raise UsageError("Only one of 'version' and 'timestamp' can be given, found both.")
        request = HeadRequest(
            version=whole_number(version),
            timestamp=_instant(timestamp, "timestamp"),
            response_format=_format(response_format),
        )
        source = source_of(self.rest, self.name, self.options)
        with source.about():
            return source.head(request)


def _entry(version: int, moment: datetime.datetime, counts: Counter[str] | None, info: CommitInfo) -> VersionChanges:
    kinds = ("insert", "update_postimage", "delete")
    inserts, updates, deletes = (None if counts is None else counts[kind] for kind in kinds)
    told = info.operation_parameters or {}
    return VersionChanges(version, moment, inserts, updates, deletes, info.operation, told)


def _instant(value: Timestamp, name: str, *, up: bool = False) -> str | None:
    return None if value is None else to_instant(value, name, up=up)


def _format(value: ResponseFormat | str) -> ResponseFormat:
    try:
        return value if isinstance(value, ResponseFormat) else ResponseFormat(value.lower())
    except (AttributeError, ValueError):
        raise UsageError(f"'response_format' must be 'auto', 'parquet' or 'delta', found {value!r}.") from None
