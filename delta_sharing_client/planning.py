"""From a table name and a request to a ``ScanPlan``: ask the server, check what it answers, plan the files.

The one place where the protocol, the log and the scan engine meet; every output, Spark's included, starts here.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from delta_sharing_client.columns import ColumnName, resolve_columns
from delta_sharing_client.delta.actions import Action, AddFile
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.schema import StructType, parse_schema, to_arrow_schema
from delta_sharing_client.delta.snapshot import FileKey, Snapshot, logical_file_key
from delta_sharing_client.errors import ProtocolError, RequestError, UsageError, about_table
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.json_hints import to_json_hints
from delta_sharing_client.predicates.tree import And, Expression, all_of, columns
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.query import (
    ChangesQuery,
    QueryRequest,
    TableAnswer,
    query_changes,
    query_table,
    table_metadata,
)
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.urls import RefreshingUrls
from delta_sharing_client.scan.plan import plan_files, plan_snapshot
from delta_sharing_client.scan.plan_changes import plan_changes
from delta_sharing_client.scan.request import ChangesRequest, ScanRequest
from delta_sharing_client.scan.tasks import CHANGE_FIELDS, ROW_LINEAGE_FIELDS, ScanPlan

ReadT = TypeVar("ReadT")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SnapshotRead:
    """A read of one snapshot as a caller writes it; names are resolved against the schema the server answers.

    ``version`` and ``timestamp`` (ISO 8601 in UTC) exclude each other; ``columns`` as in ``columns.resolve_columns``.
    """

    columns: Sequence[ColumnName] | None = None
    filter: Expression | None = None
    limit: int | None = None
    version: int | None = None
    timestamp: str | None = None
    row_lineage: bool = False
    response_format: ResponseFormat = ResponseFormat.AUTO

    def __post_init__(self) -> None:
        _make_plain(self, "limit", "version")
        self.request(None)

    def request(self, schema: StructType | None) -> ScanRequest:
        """Return the scan engine's request, with ``columns`` resolved where ``schema`` is known."""
        extra = [field.name for field in ROW_LINEAGE_FIELDS] if self.row_lineage else []
        return ScanRequest(
            columns=None if schema is None else resolve_columns(self.columns, schema, extra),
            filter=self.filter,
            limit=self.limit,
            version=self.version,
            timestamp=self.timestamp,
            row_lineage=self.row_lineage,
        )


def _naming_the_table(
    plan: Callable[[RestClient, TableName, ReadT, ReadOptions], ScanPlan],
) -> Callable[[RestClient, TableName, ReadT, ReadOptions], ScanPlan]:
    @functools.wraps(plan)
    def named(rest: RestClient, table: TableName, read: ReadT, options: ReadOptions) -> ScanPlan:
        with about_table(str(table)):
            return plan(rest, table, read, options)

    return named


@_naming_the_table
def plan_table(rest: RestClient, table: TableName, read: SnapshotRead, options: ReadOptions) -> ScanPlan:
    """Query ``table`` and return the files that ``read`` needs.

    Raises
    ------
    UsageError
        A column or filter does not fit the schema.
    UnsupportedFeatureError
        The table needs a reader feature that we refuse by name; checked before any data is asked for.
    RequestError, ProtocolError, TransportError, AuthError
        From the server; see ``errors``.
    """
    hints, hinted_schema = (None, None) if read.filter is None else _typed_hints(rest, table, read, read.filter)
    latest = read.version is None and read.timestamp is None
    query = QueryRequest(
        json_predicate_hints=hints,
        # A server counts rows before our exact filter does, so a limit is only a sound hint without one.
        limit_hint=read.limit if read.filter is None else None,
        version=read.version,
        timestamp=read.timestamp,
        include_refresh_token=latest,
    )
    answer = query_table(rest, table, query, response_format=read.response_format)
    if hints is not None and answer.metadata.schema_string != hinted_schema:
        # The table changed in between: hints made for the old schema could hide rows of the new one.
        answer.close()
        query = dataclasses.replace(query, json_predicate_hints=None)
        answer = query_table(rest, table, query, response_format=read.response_format)
    check_readable(answer.protocol, answer.metadata, operation=Operation.SNAPSHOT, table=str(table))
    request = read.request(parse_schema(answer.metadata.schema_string))
    plan = plan_files(
        str(table),
        answer.version,
        answer.protocol,
        answer.metadata,
        _live_files(answer, table),
        request,
        options,
        allow_http=rest.allows_http_data,
    )
    # The refresh token of an answer is known at its end.
    urls = RefreshingUrls(rest, table, query, answer)
    return dataclasses.replace(plan, context=dataclasses.replace(plan.context, urls=urls))


def query_snapshot(
    rest: RestClient, table: TableName, read: SnapshotRead, options: ReadOptions
) -> tuple[Snapshot, ScanPlan]:
    """Query ``table`` and return the whole snapshot, with the plan that reads all of it.

    The plan's tasks are those of ``snapshot.files``, one each and in their order; ``read`` must ask for all rows and
    columns. Errors are those of ``plan_table``.
    """
    latest = read.version is None and read.timestamp is None
    query = QueryRequest(version=read.version, timestamp=read.timestamp, include_refresh_token=latest)
    answer = query_table(rest, table, query, response_format=read.response_format)
    check_readable(answer.protocol, answer.metadata, operation=Operation.SNAPSHOT, table=str(table))
    actions: list[Action] = [answer.protocol, answer.metadata, *_live_files(answer, table)]
    snapshot = Snapshot.from_actions(answer.version, actions, table=str(table))
    urls = RefreshingUrls(rest, table, query, answer)
    plan = plan_snapshot(
        str(table), snapshot, read.request(snapshot.schema), options, urls, allow_http=rest.allows_http_data
    )
    return snapshot, plan


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangesRead:
    """A read of the change data feed as a caller writes it; bounds are inclusive, timestamps ISO 8601 in UTC."""

    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    columns: Sequence[ColumnName] | None = None
    filter: Expression | None = None
    limit: int | None = None
    response_format: ResponseFormat = ResponseFormat.AUTO

    def __post_init__(self) -> None:
        _make_plain(self, "starting_version", "ending_version", "limit")
        self.request(None)

    def request(self, schema: StructType | None) -> ChangesRequest:
        """Return the scan engine's request, with ``columns`` resolved where ``schema`` is known."""
        return ChangesRequest(
            starting_version=self.starting_version,
            ending_version=self.ending_version,
            starting_timestamp=self.starting_timestamp,
            ending_timestamp=self.ending_timestamp,
            columns=None if schema is None else resolve_columns(self.columns, schema, [f.name for f in CHANGE_FIELDS]),
            filter=self.filter,
            limit=self.limit,
        )


@_naming_the_table
def plan_change_feed(rest: RestClient, table: TableName, read: ChangesRead, options: ReadOptions) -> ScanPlan:
    """Ask for the changes of ``table`` and return the files that ``read`` needs.

    The rows are read in the schema at the end of the range. Errors are those of ``plan_table``, and
    ``SchemaChangeError`` where one schema cannot span the range.
    """
    query = ChangesQuery(
        starting_version=read.starting_version,
        ending_version=read.ending_version,
        starting_timestamp=read.starting_timestamp,
        ending_timestamp=read.ending_timestamp,
        include_historical_metadata=True,
    )
    answer = query_changes(rest, table, query, response_format=read.response_format)
    check_readable(answer.protocol, answer.metadata, operation=Operation.CHANGES, table=str(table))
    actions = list(answer.actions)
    urls = RefreshingUrls(rest, table, query, answer)
    return plan_changes(
        str(table),
        answer.protocol,
        answer.metadata,
        actions,
        read.request,
        options,
        urls,
        allow_http=rest.allows_http_data,
    )


def _typed_hints(
    rest: RestClient, table: TableName, read: SnapshotRead, predicate: Expression
) -> tuple[str | None, str | None]:
    """Return the hints that ``predicate`` gives a server, and the schema they were made for.

    They need the schema first; they save files, so the extra request pays.
    """
    try:
        described = table_metadata(
            rest, table, version=read.version, timestamp=read.timestamp, response_format=read.response_format
        )
        schema = described.metadata.schema_string
        extra = ROW_LINEAGE_FIELDS if read.row_lineage else ()
        bound = bind(predicate, pa.schema([*to_arrow_schema(parse_schema(schema)), *extra]))
    except (RequestError, ProtocolError, UsageError):
        if read.version is None and read.timestamp is None:
            raise
        # Older servers refuse to tell the metadata of the past, or tell that of today; hints are never needed.
        return None, None
    return to_json_hints(_without(bound, extra), described.metadata.partition_columns), schema


def _without(predicate: Expression, extra: Sequence[pa.Field]) -> Expression:
    """Return what a bound predicate says of columns other than ``extra``, which no server knows."""
    names = {field.name for field in extra}
    parts = predicate.children if isinstance(predicate, And) else (predicate,)
    return all_of(part for part in parts if not names & {path[0] for path in columns(part)})


def plain_number(value: Any) -> Any:
    """Return a whole number of another library (NumPy's) as Python's ``int``, everything else as it is."""
    return operator.index(value) if hasattr(value, "__index__") and not isinstance(value, (int, bool)) else value


def _make_plain(read: SnapshotRead | ChangesRead, *names: str) -> None:
    for name in names:
        object.__setattr__(read, name, plain_number(getattr(read, name)))


def _live_files(answer: TableAnswer, table: TableName) -> Iterator[AddFile]:
    """Yield the files of a snapshot answer as they arrive, each logical file (path and deletion vector) once."""
    seen: dict[FileKey, FileKey] = {}
    for action in answer.actions:
        if not isinstance(action, AddFile):
            raise ProtocolError(
                "expected only data files after the protocol and metaData lines of a snapshot, found a line of type "
                f"{type(action).__name__}",
                table=str(table),
                version=answer.version,
            )
        key = logical_file_key(action)
        name = key if isinstance(key, str) else key[0]
        known = seen.setdefault(name, key)
        if known is not key:
            if known == key:
                continue
            raise ProtocolError(
                "expected each data file once in a snapshot, found it with two deletion vectors",
                table=str(table),
                version=answer.version,
                file_id=action.file_id,
            )
        yield action
