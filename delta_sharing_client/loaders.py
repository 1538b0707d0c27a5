"""One-liners over ``SharingClient``, with the names and parameters of the ``delta-sharing`` package.

Changing the import is enough: every parameter of the incumbent is here with its meaning; ``columns``, ``filter``,
``row_lineage``, ``dtype_backend`` and ``options`` are ours. ``docs/from-delta-sharing.md`` lists the differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.actions import Protocol
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.plan.columns import COMMIT_TIMESTAMP
from delta_sharing_client.predicates.hints import JsonHints, from_json_hints
from delta_sharing_client.protocol.names import parse_table_url
from delta_sharing_client.protocol.profile import ProfileSource
from delta_sharing_client.reads import Changes, Filter, Scan
from delta_sharing_client.table import SharedTable, TableDetails

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyspark.sql

    from delta_sharing_client.columns import ColumnName
    from delta_sharing_client.table import Timestamp


def load_as_pandas(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp = None,
    jsonPredicateHints: JsonHints = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.scan
    row_lineage: bool = False,
    dtype_backend: str | None = None,
    options: ReadOptions | None = None,
) -> pd.DataFrame:
    """Return a shared table as a pandas frame.

    Parameters
    ----------
    url:
        ``<profile>#<share>.<schema>.<table>``.
    limit, version, timestamp, columns, filter, row_lineage, options:
        As in ``SharedTable.scan``.
    jsonPredicateHints:
        A JSON predicate of the protocol ("JSON predicates for Filtering"), as text or decoded. It is applied to the
        rows as well.
    use_delta_format:
        ``True`` and ``False`` insist on a response format, ``None`` leaves it to the server. The rows are the same.
    convert_in_batches:
        Accepted and without effect: conversion always works batch by batch.
    dtype_backend:
        As in ``Scan.to_pandas``.

    Raises
    ------
    DeltaSharingError
        See ``errors``.

    Examples
    --------
    >>> load_as_pandas("demo.share#demo.shop.orders", columns=["order_id", "country"], filter="order_id <= 2")
       order_id country
    0         1      DE
    1         2      DE
    """
    scan = _scan(
        url,
        jsonPredicateHints,
        use_delta_format,
        columns=columns,
        filter=filter,
        limit=limit,
        version=version,
        timestamp=timestamp,
        row_lineage=row_lineage,
        options=options,
    )
    return scan.to_pandas(dtype_backend)


def load_as_arrow(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp = None,
    jsonPredicateHints: JsonHints = None,
    use_delta_format: bool | None = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.scan
    row_lineage: bool = False,
    options: ReadOptions | None = None,
) -> pa.Table:
    """Return a shared table as a ``pyarrow.Table``; parameters as in ``load_as_pandas``.

    Examples
    --------
    >>> load_as_arrow("demo.share#demo.shop.orders", columns=["order_id"], limit=2).num_rows
    2
    """
    return _scan(
        url,
        jsonPredicateHints,
        use_delta_format,
        columns=columns,
        filter=filter,
        limit=limit,
        version=version,
        timestamp=timestamp,
        row_lineage=row_lineage,
        options=options,
    ).to_arrow()


def load_as_polars(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp = None,
    jsonPredicateHints: JsonHints = None,
    use_delta_format: bool | None = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.scan
    row_lineage: bool = False,
    options: ReadOptions | None = None,
) -> pl.DataFrame:
    """Return a shared table as a Polars frame (extra ``polars``); parameters as in ``load_as_pandas``.

    Examples
    --------
    >>> load_as_polars("demo.share#demo.shop.orders", limit=2).shape
    (2, 6)
    """
    return _scan(
        url,
        jsonPredicateHints,
        use_delta_format,
        columns=columns,
        filter=filter,
        limit=limit,
        version=version,
        timestamp=timestamp,
        row_lineage=row_lineage,
        options=options,
    ).to_polars()


def scan_polars(
    url: str,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.scan
    version: int | None = None,
    timestamp: Timestamp = None,
    options: ReadOptions | None = None,
) -> pl.LazyFrame:
    """Return a shared table as a Polars ``LazyFrame`` (extra ``polars``), which reads when it is collected.

    What the query selects, filters and limits reaches the read, so that only the bytes it needs are fetched; see
    ``Scan.to_polars``. ``url``, ``columns``, ``filter``, ``version``, ``timestamp``, ``options``: as in
    ``SharedTable.scan``.

    Examples
    --------
    >>> import polars as pl
    >>> orders = scan_polars("demo.share#demo.shop.orders")
    >>> orders.filter(pl.col("order_id") <= 2).select("country").collect()["country"].to_list()
    ['DE', 'DE']
    """
    scan = _table(url).scan(columns, filter, version=version, timestamp=timestamp, options=options)
    return scan.to_polars(lazy=True)


def load_as_duckdb(
    url: str,
    connection: duckdb.DuckDBPyConnection | None = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.scan
    version: int | None = None,
    timestamp: Timestamp = None,
    options: ReadOptions | None = None,
) -> duckdb.DuckDBPyRelation:
    """Return a shared table as a DuckDB relation (extra ``duckdb``) into which queries are pushed.

    See ``Scan.to_duckdb``; other parameters as in ``SharedTable.scan``.

    Examples
    --------
    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> orders = load_as_duckdb("demo.share#demo.shop.orders", connection)
    >>> orders.filter("order_id <= 2").project("country").fetchall()
    [('DE',), ('DE',)]
    """
    scan = _table(url).scan(columns, filter, version=version, timestamp=timestamp, options=options)
    return scan.to_duckdb(connection)


def attach(
    connection: duckdb.DuckDBPyConnection,
    profile: ProfileSource = None,
    *,
    share: str | None = None,
    options: ReadOptions | None = None,
) -> None:
    """Make every shared table a view ``share.schema.table`` of a DuckDB connection (extra ``duckdb``).

    A share becomes a database in memory, its schemas schemas, its tables views. Each query reads anew, and only the
    bytes that its columns and filters need. One request a table tells its schema.

    Parameters
    ----------
    profile:
        As for ``SharingClient``.
    share:
        Attach only this share.

    Raises
    ------
    DeltaSharingError
        See ``errors``.

    Examples
    --------
    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> attach(connection, "demo.share")
    >>> connection.sql("SELECT count(*) FROM demo.shop.orders WHERE order_id <= 2").fetchall()
    [(2,)]
    """
    client = SharingClient(profile, options=options)
    tables = client.list_all_tables(share)
    from delta_sharing_client.outputs.dataset import create_views

    create_views(connection, {(name := client.table(table)).name: name.scan() for table in tables})


def load_as_spark(
    url: str,
    version: int | None = None,
    timestamp: Timestamp = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.scan
    limit: int | None = None,
    row_lineage: bool = False,
    spark: pyspark.sql.SparkSession | None = None,
    options: ReadOptions | None = None,
) -> pyspark.sql.DataFrame:
    """Return a shared table as a Spark frame, read on the executors with plain PySpark (extra ``spark``).

    ``delta_sharing_profile`` is a profile to use instead of the one in ``url``; ``spark`` is the session, the active
    one by default. Of ``options`` the retries and timeouts hold. Other parameters as in ``load_as_pandas``.
    """
    table = _table(url, delta_sharing_profile)
    scan = table.scan(
        columns, filter, limit, version=version, timestamp=timestamp, row_lineage=row_lineage, options=options
    )
    return scan.to_spark(spark)


def load_table_changes_as_pandas(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.changes
    limit: int | None = None,
    dtype_backend: str | None = None,
    options: ReadOptions | None = None,
) -> pd.DataFrame:
    """Return the change data feed of a shared table as a pandas frame.

    Bounds, columns, filter and limit are those of ``SharedTable.changes``. As in the incumbent, ``_commit_timestamp``
    is an integer of epoch milliseconds unless ``use_delta_format`` is ``True``, and a UTC timestamp if it is.

    Examples
    --------
    >>> url, columns = "demo.share#demo.shop.orders", ["order_id", "_change_type"]
    >>> load_table_changes_as_pandas(url, starting_version=4, columns=columns, limit=2)
       order_id     _change_type
    0        22  update_preimage
    1        34  update_preimage
    """
    bounds = (starting_version, ending_version, starting_timestamp, ending_timestamp)
    changes = _changes(url, bounds, use_delta_format, columns, filter, limit, options)
    return changes_as_pandas(changes.to_pandas(dtype_backend), changes)


def load_table_changes_as_arrow(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    use_delta_format: bool | None = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.changes
    limit: int | None = None,
    options: ReadOptions | None = None,
) -> pa.Table:
    """Return the change data feed as a ``pyarrow.Table``; parameters as in ``load_table_changes_as_pandas``."""
    bounds = (starting_version, ending_version, starting_timestamp, ending_timestamp)
    return _changes(url, bounds, use_delta_format, columns, filter, limit, options).to_arrow()


def load_table_changes_as_polars(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    use_delta_format: bool | None = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.changes
    limit: int | None = None,
    options: ReadOptions | None = None,
) -> pl.DataFrame:
    """Return the change data feed as a Polars frame; parameters as in ``load_table_changes_as_pandas``."""
    bounds = (starting_version, ending_version, starting_timestamp, ending_timestamp)
    return _changes(url, bounds, use_delta_format, columns, filter, limit, options).to_polars()


def load_table_changes_as_spark(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp = None,
    ending_timestamp: Timestamp = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    columns: Sequence[ColumnName] | None = None,
    filter: Filter = None,  # noqa: A002 - as in SharedTable.changes
    spark: pyspark.sql.SparkSession | None = None,
    options: ReadOptions | None = None,
) -> pyspark.sql.DataFrame:
    """Return the change data feed as a Spark frame; see ``load_as_spark`` and ``load_table_changes_as_pandas``."""
    changes = _table(url, delta_sharing_profile).changes(
        starting_version,
        ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        columns=columns,
        filter=filter,
        options=options,
    )
    return changes.to_spark(spark)


def get_table_version(url: str, starting_timestamp: Timestamp = None) -> int:
    """Return the current version of a shared table, or the earliest one at or after ``starting_timestamp``.

    Examples
    --------
    >>> get_table_version("demo.share#demo.shop.orders")
    6
    """
    return _table(url).version(starting_timestamp)


def get_table_metadata(url: str, use_delta_format: bool = True) -> TableDetails:
    """Return the description of a shared table.

    ``use_delta_format`` lets the server choose the response format; ``False`` insists on parquet.
    """
    return _table(url).metadata(response_format=_described_format(use_delta_format))


def get_table_protocol(url: str, use_delta_format: bool = True) -> Protocol:
    """Return the protocol versions and features of a shared table; ``use_delta_format`` as in ``get_table_metadata``.

    The parquet response format tells a reader version of its own, and none of the table's features.
    """
    return _table(url).protocol(response_format=_described_format(use_delta_format))


def changes_as_pandas(frame: pd.DataFrame, changes: Changes) -> pd.DataFrame:
    """Return the rows of ``changes`` with ``_commit_timestamp`` as the incumbent has it: epoch milliseconds, unless the
    delta response format was insisted on."""
    if changes.request.response_format is not ResponseFormat.DELTA and COMMIT_TIMESTAMP in frame.columns:
        millis = frame[COMMIT_TIMESTAMP].astype("datetime64[ms, UTC]").astype("int64")
        frame[COMMIT_TIMESTAMP] = millis
    return frame


def response_format(use_delta_format: bool | None) -> ResponseFormat:
    """Return the format that the incumbent's parameter asks for; ``None`` leaves it to the server."""
    if use_delta_format is None:
        return ResponseFormat.AUTO
    return ResponseFormat.DELTA if use_delta_format else ResponseFormat.PARQUET


def _table(url: str, profile: ProfileSource = None) -> SharedTable:
    source, name = parse_table_url(url)
    return SharingClient(source if profile is None else profile).table(name)


def _scan(url: str, hints: JsonHints, use_delta_format: bool | None, **asked: Any) -> Scan:
    scan = _table(url).scan(**asked, response_format=response_format(use_delta_format))
    return scan if hints is None else scan.where(from_json_hints(hints))


def _changes(
    url: str,
    bounds: tuple[int | None, int | None, Timestamp, Timestamp],
    use_delta_format: bool | None,
    columns: Sequence[ColumnName] | None,
    condition: Filter,
    limit: int | None,
    options: ReadOptions | None,
) -> Changes:
    return _table(url).changes(
        bounds[0],
        bounds[1],
        starting_timestamp=bounds[2],
        ending_timestamp=bounds[3],
        columns=columns,
        filter=condition,
        limit=limit,
        response_format=response_format(use_delta_format),
        options=options,
    )


def _described_format(use_delta_format: bool) -> ResponseFormat:
    return ResponseFormat.AUTO if use_delta_format else ResponseFormat.PARQUET
