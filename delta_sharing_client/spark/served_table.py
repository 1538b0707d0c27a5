"""A shared table for the data source: its description, its plans, and the requests for following it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

import pyspark
from pyspark.sql.types import NullType, StructField, StructType

from delta_sharing_client import __version__
from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.errors import (
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    RequestError,
    SchemaChangeError,
    UsageError,
)
from delta_sharing_client.follow.versions import FollowedTable
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest
from delta_sharing_client.plan.tasks import Plan
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.names import Schema
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.planning import plan
from delta_sharing_client.sources.table_source import Purpose
from delta_sharing_client.spark.pushed import LoadedTable
from delta_sharing_client.spark.source_options import SparkOptions, profile_of
from delta_sharing_client.spark.types import Columns


class ServedTable(FollowedTable):
    """A table of a server, with the options of one relation. Can be pickled."""

    def __init__(self, options: SparkOptions, operation: Operation) -> None:
        self.options = options
        read = options.read_options()
        rest = RestClient(options.profile, read, user_agent=user_agent(operation, options.caller_org))
        super().__init__(rest, options, read, options.read_options(waiting=False), operation)

    def describe_loaded(self, version: int | None) -> TableHead:
        """Like ``describe``, but as of ``version``, if that is no longer the latest and the server supports this."""
        head = self.describe()
        if version is None or head.version == version:
            return head
        try:
            return self.describe(version)
        except (RequestError, ProtocolError):
            return head

    def plan_batch(self, columns: Columns, version: int) -> Plan:
        """Plan a batch read of the snapshot or change feed in the options.

        By default, the snapshot at ``version`` is read, and the feed ends at ``version``. Raises ``SchemaChangeError``
        if the table has changed since ``version``, and the server does not share its history.
        """
        options = self.options
        asked = (options.read.limit, None if options.pushed is None else options.pushed.rows)
        limit = min((rows for rows in asked if rows is not None), default=None)
        if options.read_change_feed:
            changes = options.changes(columns.paths)
            changes = dataclasses.replace(changes, pushed_filter=columns.condition, limit=limit)
            is_open = changes.ending_version is None and changes.ending_timestamp is None
            if is_open and (changes.starting_version or 0) <= version:
                until = dataclasses.replace(changes, ending_version=version)
                try:
                    return self._planned(until, Purpose.PLAN)
                except UsageError:
                    if changes.starting_version is not None:
                        raise  # without a starting version, the table may be a view, whose changes have no versions
            return self._planned(changes, Purpose.PLAN)
        read = dataclasses.replace(options.read, columns=columns.paths, pushed_filter=columns.condition, limit=limit)
        if options.loaded is not None:
            known = (options.loaded.schema_string, options.loaded.partition_columns)
            read = dataclasses.replace(read, described=known)
        if read.version is not None or read.timestamp is not None:
            return self._planned(read)
        return self._plan_snapshot(read, version)

    def _plan_snapshot(self, read: ScanRequest, version: int) -> Plan:
        # If the history is not shared, an old version cannot be requested. So this requests the latest first, and
        # compares its number.
        latest: int | None = None
        try:
            found = self._planned(read)
        except UsageError:  # the columns and the filter fit ``version``, but not the latest
            pass
        else:
            latest = found.context.version
            if latest == version:
                return found
            found.close()
            if version < 0:
                # Nothing had been committed to this Iceberg table when the DataFrame was created. A closed listing
                # yields no files.
                return found
        pinned = dataclasses.replace(read, version=version)
        try:
            return self._planned(pinned)
        except RequestError as error:
            if error.status is None or error.status >= 500:
                raise
            raise SchemaChangeError(
                f"The table has changed from version {version}, with which the DataFrame was created, to "
                f"{'a newer version' if latest is None else latest}, and its provider does not share its history: "
                f"{error.message.rstrip('.')}. Load the table again.",
                table=self.name,
                version=latest,
            ) from None

    def _planned(self, request: ScanRequest | ChangesRequest, purpose: Purpose = Purpose.READ) -> Plan:
        rest = self._rest.for_read(self.read_options)
        with naming_times(self.options):
            return plan(source_of(rest, self.options.table, self.read_options), request, purpose)


@contextlib.contextmanager
def naming_times(options: SparkOptions) -> Iterator[None]:
    """Add the option to the error of a server that refuses a timestamp, such as one after the latest version."""
    try:
        yield
    except RequestError as error:
        said, times = error.message.lower(), options.times()
        if error.status == HTTPStatus.BAD_REQUEST and times and "timestamp" in said:
            given = " and ".join(f"'{name}' ({value})" for name, value in times.items())
            error.message = f"{error.message.rstrip('. ')}. Change the option {given}."
        raise


def user_agent(operation: Operation, caller: str | None) -> str:
    """Return the part of the User-Agent header that names the data source."""
    product = "SparkStructuredStreaming" if operation is Operation.STREAMING else "Spark"
    parts = [
        f"delta-sharing-client-{product}/{__version__}",
        f"PySpark/{pyspark.__version__}",
        f"Python/{platform.python_version()}",
    ]
    return " ".join([*parts, f"callerOrg-{caller}"] if caller else parts)


# === Requests of the Spark catalog ===


def told(options: Mapping[str, str], table: Callable[[], tuple[StructType, int, LoadedTable]]) -> StructType:
    """Return the response to a request of ``PushDown.java``'s catalog, in the form of a schema. If the option ``tell``
    is ``names``, its fields are named after the items in ``namespace``; otherwise they are the columns of ``table``,
    and an additional last field has the version and what the server stated about the table.

    To infer a schema, Spark starts a Python worker but no job. Errors are returned in the schema as well, because Spark
    would wrap an error of a Python worker.
    """
    given = {name.lower(): value for name, value in options.items()}
    try:
        if given["tell"] == "names":
            return StructType([StructField(name, NullType()) for name in _names(given)])
        columns, version, loaded = table()
        note = _note(**{"delta-sharing-version": version, "delta-sharing-loaded": loaded.text()})
        return StructType([*columns.fields, note])
    except DeltaSharingError as error:
        status = 404 if isinstance(error, NotFoundError) else 0
        return StructType([_note(**{"delta-sharing-error": str(error), "delta-sharing-status": status})])


def _names(given: Mapping[str, str]) -> list[str]:
    namespace: list[str] = json.loads(given["namespace"])
    with SharingClient(profile_of(given)) as client:
        if not namespace:
            return [share.name for share in client.list_shares()]
        if len(namespace) == 1:
            return [schema.name for schema in client.list_schemas(namespace[0])]
        return [table.name for table in client.list_tables(Schema(name=namespace[1], share=namespace[0]))]


def _note(**metadata: object) -> StructField:
    return StructField("note", NullType(), metadata=metadata)
