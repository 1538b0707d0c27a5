"""Functions that read a table in one line, with the names and parameters of the ``delta-sharing`` package.

``columns``, ``filter``, ``row_lineage``, ``dtype_backend`` and ``options`` are additional parameters.
``docs/from-delta-sharing.md`` lists the differences.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypedDict, TypeVar, Union

from delta_sharing_client import optional
from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.actions import Protocol
from delta_sharing_client.errors import UsageError
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.plan.read_columns import COMMIT_TIMESTAMP
from delta_sharing_client.predicates.hints import JsonHints, from_json_hints
from delta_sharing_client.predicates.parse import Filter
from delta_sharing_client.protocol.names import Table, split_table_url
from delta_sharing_client.protocol.profile import ProfileSource
from delta_sharing_client.protocol.rest import client_of
from delta_sharing_client.scans import Changes, Scan
from delta_sharing_client.table import SharedTable, TableDetails

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyspark.sql
    from typing_extensions import Unpack

    from delta_sharing_client.columns import ColumnName
    from delta_sharing_client.table import Timestamp

# A table's URL, ``<profile>#<share>.<schema>.<table>``, or a table from a client or from one of its listings.
TableOrUrl = Union[str, SharedTable, Table]
P = ParamSpec("P")
ReadT = TypeVar("ReadT", Scan, Changes)
ResultT = TypeVar("ResultT")


class Choices(TypedDict, total=False):
    """The keyword parameters of all loaders, as in ``SharedTable.scan`` and ``SharedTable.changes``."""

    columns: Sequence[ColumnName] | None
    filter: Filter
    options: ReadOptions | None


class Lineage(Choices, total=False):
    """Additional parameters of loaders of a snapshot."""

    row_lineage: bool


class Lazy(Choices, total=False):
    """Parameters of loaders that accept ``version`` and ``timestamp`` only as keywords."""

    version: int | None
    timestamp: Timestamp


def _with_keywords(kind: type) -> Callable[[Callable[P, ResultT]], Callable[P, ResultT]]:
    """Show a loader's ``**kind`` as separate keywords with the defaults of ``SharedTable.scan``, also in ``help()``."""
    parameters = inspect.signature(SharedTable.scan).parameters

    def shown(loader: Callable[P, ResultT]) -> Callable[P, ResultT]:
        signature = inspect.signature(loader)
        *own, _ = signature.parameters.values()
        more = [parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY) for name in inspect.get_annotations(kind)]
        return _with_signature(signature.replace(parameters=[*own, *more]), loader, loader)

    return shown


def _of_read(read: Callable[P, ReadT]) -> Callable[[Callable[[ReadT], ResultT]], Callable[P, ResultT]]:
    """Give a loader the parameters of ``read``; the loader receives the result of ``read``."""

    def shown(loader: Callable[[ReadT], ResultT]) -> Callable[P, ResultT]:
        def load(*args: P.args, **keywords: P.kwargs) -> ResultT:
            return loader(read(*args, **keywords))

        result = inspect.signature(loader).return_annotation
        return _with_signature(inspect.signature(read).replace(return_annotation=result), loader, load)

    return shown


def _with_signature(
    signature: inspect.Signature, named: Callable[..., object], load: Callable[P, ResultT]
) -> Callable[P, ResultT]:
    @functools.wraps(named)
    def checked(*args: P.args, **keywords: P.kwargs) -> ResultT:
        try:
            signature.bind(*args, **keywords)
        except TypeError as error:
            raise TypeError(f"{named.__name__}() {error}") from None
        return load(*args, **keywords)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked


@_with_keywords(Lineage)
def _scan(
    url: TableOrUrl,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp = None,
    jsonPredicateHints: JsonHints = None,
    use_delta_format: bool | None = None,
    **choices: Unpack[Lineage],
) -> Scan:
    chosen_format = response_format(use_delta_format)
    scan = _table(url).scan(limit=limit, version=version, timestamp=timestamp, response_format=chosen_format, **choices)
    return scan if jsonPredicateHints is None else scan.where(from_json_hints(jsonPredicateHints))


@_with_keywords(Choices)
def _changes(
    url: TableOrUrl,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    use_delta_format: bool | None = None,
    *,
    limit: int | None = None,
    **choices: Unpack[Choices],
) -> Changes:
    return _table(url).changes(
        starting_version,
        ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        limit=limit,
        response_format=response_format(use_delta_format),
        **choices,
    )


@_with_keywords(Lineage)
def load_as_pandas(
    url: TableOrUrl,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp = None,
    jsonPredicateHints: JsonHints = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    dtype_backend: str | None = None,
    **choices: Unpack[Lineage],
) -> pd.DataFrame:
    """Return a shared table as a pandas frame.

    Parameters
    ----------
    url:
        ``<profile>#<share>.<schema>.<table>``, or a table: a ``SharedTable``, or a ``Table`` of a client's listing.
    limit, version, timestamp, columns, filter, row_lineage, options:
        As in ``SharedTable.scan``.
    jsonPredicateHints:
        A JSON predicate of the protocol ("JSON predicates for Filtering"), as a string or decoded. It is applied to the
        rows as well.
    use_delta_format:
        ``True`` insists on the delta response format, ``False`` on parquet; ``None`` leaves the choice to the server.
        The rows are the same.
    convert_in_batches:
        Accepted and without effect: conversion always works batch by batch.
    dtype_backend:
        As in ``Scan.to_pandas``.

    Raises
    ------
    UsageError
        An argument cannot be used: ``url`` without a table's full name, a column that the table does not have, a filter
        that is not understood, or both ``version`` and ``timestamp``.
    ProfileError, AuthError, NotFoundError, RequestError, TransportError, ProtocolError
        The profile, the sign-in, the server or the network.
    UnsupportedFeatureError, DataError
        The table has a feature that this version does not read, or a file is damaged. No rows are returned.

    Examples
    --------
    >>> load_as_pandas("demo.share#demo.shop.orders", columns=["order_id", "country"], filter="order_id <= 2")
       order_id country
    0         1      DE
    1         2      DE
    """
    scan = _scan(url, limit, version, timestamp, jsonPredicateHints, use_delta_format, **choices)
    return scan.to_pandas(dtype_backend)


@_of_read(_scan)
def load_as_arrow(scan: Scan) -> pa.Table:
    """Return a shared table as a ``pyarrow.Table``. Parameters as in ``load_as_pandas``.

    Raises the errors of ``load_as_pandas``.

    Examples
    --------
    >>> load_as_arrow("demo.share#demo.shop.orders", columns=["order_id"], limit=2).num_rows
    2
    """
    return scan.to_arrow()


@_of_read(_scan)
def load_as_polars(scan: Scan) -> pl.DataFrame:
    """Return a shared table as a Polars frame (extra ``polars``). Parameters as in ``load_as_pandas``.

    Raises the errors of ``load_as_pandas``, and ``UsageError`` if Polars is not installed.

    Examples
    --------
    >>> load_as_polars("demo.share#demo.shop.orders", limit=2).shape
    (2, 6)
    """
    return scan.to_polars()


@_with_keywords(Lazy)
def scan_polars(url: TableOrUrl, **choices: Unpack[Lazy]) -> pl.LazyFrame:
    """Return a shared table as a Polars ``LazyFrame`` (extra ``polars``), which reads when it is collected.

    The query's columns, filters and limits are pushed down, so it downloads only the bytes that it needs; see
    ``Scan.to_polars``. Parameters as in ``SharedTable.scan``.

    Raises the errors of ``load_as_pandas``. They are raised here if they concern the schema, otherwise when the frame
    is collected.

    Examples
    --------
    >>> import polars as pl
    >>> orders = scan_polars("demo.share#demo.shop.orders")
    >>> orders.filter(pl.col("order_id") <= 2).select("country").collect()["country"].to_list()
    ['DE', 'DE']
    """
    return _table(url).scan(**choices).to_polars(lazy=True)


@_with_keywords(Lazy)
def load_as_duckdb(
    url: TableOrUrl, connection: duckdb.DuckDBPyConnection | None = None, **choices: Unpack[Lazy]
) -> duckdb.DuckDBPyRelation:
    """Return a shared table as a DuckDB relation (extra ``duckdb``); queries are pushed down.

    See ``Scan.to_duckdb``; other parameters as in ``SharedTable.scan``.

    Raises the errors of ``load_as_pandas``. They are raised here if they concern the schema; when a query runs, DuckDB
    wraps errors of the read in its own.

    Examples
    --------
    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> orders = load_as_duckdb("demo.share#demo.shop.orders", connection)
    >>> orders.filter("order_id <= 2").project("country").fetchall()
    [('DE',), ('DE',)]
    """
    return _table(url).scan(**choices).to_duckdb(connection)


def sql(query: str, profile: ProfileSource = None, *, options: ReadOptions | None = None) -> duckdb.DuckDBPyRelation:
    """Run SQL over shared tables with DuckDB (extra ``duckdb``) and return its relation.

    The relation reads each time it is used, and only the columns and rows that the query needs. It has a connection of
    its own, whose time zone is UTC. For many queries, or to join with other tables, use ``attach``.

    Parameters
    ----------
    query:
        One query, in which a table is ``share.schema.table``: ``SELECT ...``, ``DESCRIBE`` and ``SUMMARIZE`` of a table
        or query, or ``SHOW TABLES``.
    profile, options:
        As for ``SharingClient``.

    Raises
    ------
    UsageError
        DuckDB is not installed, the SQL is not one query, or DuckDB cannot run it.
    ProfileError, AuthError, RequestError, TransportError, ProtocolError
        The profile, the sign-in, the server or the network. Errors of a read come from DuckDB when the relation is
        used, and contain ours.

    Examples
    --------
    >>> sql("SELECT count(*) FROM demo.shop.orders WHERE amount > 100", "demo.share").fetchall()
    [(580,)]
    """
    from delta_sharing_client import queries

    return queries.relation(SharingClient(profile, options=options), query)


def attach(
    connection: duckdb.DuckDBPyConnection | pyspark.sql.SparkSession,
    profile: ProfileSource = None,
    *,
    name: str | None = None,
    share: str | None = None,
    options: ReadOptions | None = None,
) -> None:
    """Add all shared tables to a DuckDB connection (extra ``duckdb``) or a Spark session (extra ``spark``).

    In DuckDB a share becomes an in-memory database with views: ``share.schema.table``. Each query reads again, and only
    the bytes that its columns and filters need. The schema of each table costs one request; many are sent at a time. A
    table that cannot be read fails when it is queried, with the reason. If ``streaming_buffer_size`` has DuckDB 2's
    default on this connection, it is set to 1 MB, so that ``fetchmany`` reads little ahead.

    In a Spark session all shares become one catalog: ``SELECT ... FROM shared.share.schema.table``, with push-down,
    ``VERSION AS OF`` and ``SHOW TABLES IN shared.share.schema``. Names are listed on demand. For Spark Connect, call
    ``add_spark_jar`` first. Raises ``DeltaSharingError`` if the profile, the sign-in or the network fails, and
    ``UsageError`` for an argument that this engine does not accept, a Spark session without push-down, or a session of
    Spark Connect without the jar.

    Parameters
    ----------
    profile:
        As for ``SharingClient``.
    name:
        The name of the Spark catalog, ``shared`` by default; not for DuckDB.
    share, options:
        Attach only this share, with these read options; not for Spark.

    Examples
    --------
    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> attach(connection, "demo.share")
    >>> connection.sql("SELECT count(*) FROM demo.shop.orders WHERE order_id <= 2").fetchall()
    [(2,)]
    """
    if hasattr(connection, "createDataFrame"):
        if share is not None or options is not None:
            raise UsageError("A Spark catalog has every share and accepts no options: omit 'share' and 'options'.")
        _push_down().attach(connection, profile, name or "shared")
        return
    if not hasattr(connection, "execute"):
        raise UsageError(
            "Expected a DuckDB connection or a Spark session as the first argument, found "
            f"{type(connection).__name__}; write ds.attach(duckdb.connect(), profile)."
        )
    if name is not None:
        raise UsageError("DuckDB databases are named after their shares: omit 'name'.")
    client = SharingClient(profile, options=options)
    tables = client.list_all_tables(share)
    from delta_sharing_client.outputs.dataset import create_views

    create_views(connection, {(each := client.table(table)).name: each.scan() for table in tables})


def write_spark_jar(path: str | os.PathLike[str]) -> None:
    """Write a jar that lets Spark 4.0 to 4.3 push down queries of ``format("deltaSharing")``, of SQL and of Spark
    Connect (extra ``spark``).

    Pass it to Spark's ``--jars`` or to ``add_spark_jar``. It is compiled by the JVM of this process, or by one that
    PySpark starts for this. Raises ``UsageError`` if Java or Spark's jars are missing.
    """
    _push_down().write_spark_jar(path)


def add_spark_jar(spark: pyspark.sql.SparkSession, jar: str | os.PathLike[str] | None = None) -> None:
    """Let ``format("deltaSharing")`` and SQL push queries down in this session of Spark Connect, or in all classic
    sessions (extra ``spark``).

    Raises ``UsageError`` if the jar cannot be written here, does not work in this session, or conflicts with the JVM
    connector, which has the same format.

    Parameters
    ----------
    jar:
        The jar from ``write_spark_jar``; by default one is written for the session.
    """
    _push_down().add_spark_jar(spark, jar)


@_with_keywords(Lineage)
def load_as_spark(
    url: TableOrUrl,
    version: int | None = None,
    timestamp: Timestamp = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    limit: int | None = None,
    spark: pyspark.sql.SparkSession | None = None,
    **choices: Unpack[Lineage],
) -> pyspark.sql.DataFrame:
    """Return a shared table as a Spark DataFrame, read on the executors with plain PySpark (extra ``spark``).

    ``delta_sharing_profile`` is a profile to use instead of the one in ``url``. Without either, the session's setting
    ``spark.delta.sharing.profile`` names the profile. ``spark`` is the session, by default the active one. Of
    ``options``, only the limits of retries and time apply. Other parameters as in ``load_as_pandas``.

    Raises the errors of ``load_as_pandas``, while the read is planned; Spark raises the errors of executors when the
    DataFrame is used.
    """
    table = _spark_table(url, delta_sharing_profile, spark)
    return table.scan(limit=limit, version=version, timestamp=timestamp, **choices).to_spark(spark)


@_with_keywords(Choices)
def load_table_changes_as_pandas(
    url: TableOrUrl,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    limit: int | None = None,
    dtype_backend: str | None = None,
    **choices: Unpack[Choices],
) -> pd.DataFrame:
    """Return the change data feed of a shared table as a pandas frame.

    Range, columns, filter and limit as in ``SharedTable.changes``. As in ``delta-sharing``, ``_commit_timestamp`` is an
    integer of epoch milliseconds, or a UTC timestamp if ``use_delta_format`` is ``True``.

    Raises the errors of ``load_as_pandas``, and ``SchemaChangeError`` if one schema cannot represent the changes of the
    whole range.

    Examples
    --------
    >>> url, columns = "demo.share#demo.shop.orders", ["order_id", "_change_type"]
    >>> load_table_changes_as_pandas(url, starting_version=4, columns=columns, limit=2)
       order_id     _change_type
    0        22  update_preimage
    1        34  update_preimage
    """
    changes = _changes(
        url,
        starting_version,
        ending_version,
        starting_timestamp,
        ending_timestamp,
        use_delta_format,
        limit=limit,
        **choices,
    )
    return changes_as_pandas(changes.to_pandas(dtype_backend), changes)


@_of_read(_changes)
def load_table_changes_as_arrow(changes: Changes) -> pa.Table:
    """Return the change data feed as a ``pyarrow.Table``; parameters as in ``load_table_changes_as_pandas``.

    Raises the errors of ``load_table_changes_as_pandas``.
    """
    return changes.to_arrow()


@_of_read(_changes)
def load_table_changes_as_polars(changes: Changes) -> pl.DataFrame:
    """Return the change data feed as a Polars frame; parameters as in ``load_table_changes_as_pandas``.

    Raises the errors of ``load_table_changes_as_pandas``, and ``UsageError`` if Polars is not installed.
    """
    return changes.to_polars()


@_with_keywords(Choices)
def load_table_changes_as_spark(
    url: TableOrUrl,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    spark: pyspark.sql.SparkSession | None = None,
    **choices: Unpack[Choices],
) -> pyspark.sql.DataFrame:
    """Return the change data feed as a Spark DataFrame; see ``load_as_spark`` and ``load_table_changes_as_pandas``.

    Raises the errors of ``load_table_changes_as_pandas``, while the read is planned; Spark raises the errors of
    executors when the DataFrame is used.
    """
    changes = _spark_table(url, delta_sharing_profile, spark).changes(
        starting_version,
        ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        **choices,
    )
    return changes.to_spark(spark)


def get_table_version(url: TableOrUrl, starting_timestamp: Timestamp = None) -> int:
    """Return the current version of a shared table, or the earliest one at or after ``starting_timestamp``.

    Raises ``DeltaSharingError`` if the profile, the name, the server or the network is the problem, and ``UsageError``
    if ``starting_timestamp`` is not a timestamp.

    Examples
    --------
    >>> get_table_version("demo.share#demo.shop.orders")
    6
    """
    return _table(url).version(starting_timestamp)


def get_table_metadata(url: TableOrUrl, use_delta_format: bool = True) -> TableDetails:
    """Return the description of a shared table.

    ``use_delta_format`` lets the server choose the response format; ``False`` insists on parquet. Raises
    ``DeltaSharingError`` for the profile, the name, the server or the network.
    """
    return _table(url).metadata(response_format=response_format(None if use_delta_format else False))


def get_table_protocol(url: TableOrUrl, use_delta_format: bool = True) -> Protocol:
    """Return the protocol versions and features of a shared table; ``use_delta_format`` as in ``get_table_metadata``.

    The parquet response format has its own reader version and does not contain the table's features. Raises the errors
    of ``get_table_metadata``.
    """
    return _table(url).protocol(response_format=response_format(None if use_delta_format else False))


def changes_as_pandas(frame: pd.DataFrame, changes: Changes) -> pd.DataFrame:
    """Return ``frame``, the rows of ``changes``, with ``_commit_timestamp`` as in ``delta-sharing``: in epoch
    milliseconds, unless the delta response format was requested."""
    if changes.request.response_format is not ResponseFormat.DELTA and COMMIT_TIMESTAMP in frame.columns:
        millis = frame[COMMIT_TIMESTAMP].astype("datetime64[ms, UTC]").astype("int64")
        frame[COMMIT_TIMESTAMP] = millis
    return frame


def response_format(use_delta_format: bool | None) -> ResponseFormat:
    """Return the response format that ``use_delta_format`` requests; ``None`` leaves the choice to the server."""
    if use_delta_format is None:
        return ResponseFormat.AUTO
    return ResponseFormat.DELTA if use_delta_format else ResponseFormat.PARQUET


def _table(source: TableOrUrl, profile: ProfileSource = None) -> SharedTable:
    if isinstance(source, SharedTable):
        return source if profile is None else SharingClient(profile).table(source.name)
    if isinstance(source, Table):
        rest = client_of(source) if profile is None else None
        return (
            SharingClient(profile).table(source) if rest is None else SharedTable(source.full_name, rest, rest.options)
        )
    named, name = split_table_url(source)
    return SharingClient(named if profile is None else profile).table(name)


def _spark_table(source: TableOrUrl, profile: ProfileSource, session: pyspark.sql.SparkSession | None) -> SharedTable:
    if not isinstance(source, str):
        return _table(source, profile)
    bare = "#" not in source.lstrip("#")
    if profile is None and bare:
        profile = _push_down().profile_setting(session)
    return _table(f"#{source.lstrip('#')}" if bare and profile is not None else source, profile)


def _push_down() -> ModuleType:
    return optional.load("delta_sharing_client.spark.push_down", "spark")
