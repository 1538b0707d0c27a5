"""Decides whether a shared table is read as a Delta or as an Iceberg table (OpenSharing protocol, "Iceberg tables").

A server may state the formats of a table ("Get Table"). If it does not, the table is a Delta table, unless the
sharing protocol lacks it (404, 501) and the Iceberg catalog has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TypeVar

from delta_sharing_client.errors import (
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    RequestError,
    UnsupportedFeatureError,
)
from delta_sharing_client.http.retry import NOT_IMPLEMENTED
from delta_sharing_client.options import ReadOptions, TableFormat
from delta_sharing_client.protocol.asset_kinds import AssetEntry
from delta_sharing_client.protocol.listings import UNKNOWN_ENDPOINT
from delta_sharing_client.protocol.names import AssetName, Schema, Table
from delta_sharing_client.protocol.rest import RestClient

ResultT = TypeVar("ResultT")
OtherT = TypeVar("OtherT")

_NOT_FOUND = 404


def by_format(
    rest: RestClient,
    table: AssetName,
    options: ReadOptions,
    as_delta: Callable[[], ResultT],
    as_iceberg: Callable[[ModuleType], OtherT],
    *,
    prefers_iceberg: bool = False,
) -> ResultT | OtherT:
    """Return the result of ``as_delta``, or of ``as_iceberg``, which is called with the module for Iceberg tables.

    The options decide the format, or else the server does; ``prefers_iceberg`` decides for a table that has both
    formats.
    """
    table_format = options.table_format
    if table_format is TableFormat.ICEBERG:
        return as_iceberg(_iceberg())
    if table_format is TableFormat.DELTA or rest.profile.iceberg_endpoint is None:
        return as_delta()
    formats = stated_formats(rest, table)
    has_iceberg = "iceberg" in formats or (prefers_iceberg and not formats and _failure_of_catalog(rest, table) is None)
    if has_iceberg and (prefers_iceberg or "delta" not in formats):
        return as_iceberg(_iceberg())
    if formats:
        return as_delta()
    try:
        return as_delta()
    except RequestError as error:
        if error.status not in (_NOT_FOUND, NOT_IMPLEMENTED):
            raise
        failure = _failure_of_catalog(rest, table)
        if failure is not None:
            if not isinstance(failure, NotFoundError):
                error.add(f"Whether it is an Iceberg table is not known: {failure.message}")
            raise
    rest.known["formats", table] = ("iceberg",)
    return as_iceberg(_iceberg())


def stated_formats(rest: RestClient, table: AssetName) -> tuple[str, ...]:
    """Return the formats that the server states; empty if it states none. They are requested only once."""
    stated: tuple[str, ...] | None = rest.known.get(("formats", table))
    if stated is None:
        try:
            stated = rest.stated_table(table).formats
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
            stated = ()
        rest.known["formats", table] = stated
    return stated


def schemas_of_share(rest: RestClient, share: str) -> list[Schema]:
    """Return the schemas of a share, with those that only the Iceberg catalog lists at the end."""
    listed = rest.list_schemas(share)
    names = {schema.name.lower() for schema in listed}
    return [*listed, *(Schema(name, share) for name in _namespaces(rest, share) if name.lower() not in names)]


def tables_of_schema(rest: RestClient, share: str, schema: str) -> list[Table]:
    """Return the tables of a schema, with those that only the Iceberg catalog lists at the end."""
    try:
        listed = rest.list_tables(share, schema)
    except NotFoundError:
        # A schema may have only Iceberg tables.
        tables = _only_in_catalog(rest, share, [], [schema])
        if not tables:
            raise
        return tables
    return [*listed, *_only_in_catalog(rest, share, listed, [schema])]


def tables_of_share(rest: RestClient, share: str) -> list[Table]:
    """Like ``tables_of_schema``, for all schemas of a share."""
    listed = rest.list_all_tables(share)
    return [*listed, *_only_in_catalog(rest, share, listed, None)]


def assets_in(rest: RestClient, share: str, schema: str | None = None) -> tuple[list[str], list[AssetEntry]]:
    """Return the names of the schemas of ``share``, and their assets of all kinds, tables first. ``schema`` restricts
    both to one schema. Raises ``NotFoundError`` if the share or the schema does not exist."""
    tables = tables_of_share(rest, share) if schema is None else tables_of_schema(rest, share, schema)
    return rest.list_everything(share, schema, tables)


def places(rest: RestClient, where: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield each share to list, with ``None`` for all of its schemas; if ``where`` is given, only the result of
    ``share_and_schema``."""
    if where is None:
        yield from ((share.name, None) for share in rest.list_shares())
    else:
        yield share_and_schema(rest, where)


def share_and_schema(rest: RestClient, text: str) -> tuple[str, str | None]:
    """Return the share that ``text`` (``share`` or ``share.schema``) names, and the schema, if any.

    Names of shares may contain dots, so the server's shares decide how to split ``text``. Raises ``NotFoundError`` if
    none matches.
    """
    shares = [share.name for share in rest.list_shares()]
    by_folded_name = {name.lower(): name for name in shares}
    if text.lower() in by_folded_name:
        return by_folded_name[text.lower()], None
    share, dot, schema = text.rpartition(".")
    if dot and schema and share.lower() in by_folded_name:
        return by_folded_name[share.lower()], schema
    raise NotFoundError(f"No share matches {text!r}. The shares are: {', '.join(shares) or 'none'}.")


def _namespaces(rest: RestClient, share: str) -> list[str]:
    if rest.profile.iceberg_endpoint is None:
        return []
    # Imported here, because Delta tables do not need it.
    from delta_sharing_client.iceberg.catalog import Catalog

    try:
        return Catalog(rest).namespaces(share)
    except NotFoundError:
        return []


def _only_in_catalog(rest: RestClient, share: str, listed: list[Table], schemas: list[str] | None) -> list[Table]:
    if rest.profile.iceberg_endpoint is None:
        return []
    # Imported here, because Delta tables do not need it.
    from delta_sharing_client.iceberg.catalog import Catalog

    catalog = Catalog(rest)
    names = {table.full_name for table in listed}
    tables: list[Table] = []
    try:
        for schema in catalog.namespaces(share) if schemas is None else schemas:
            for name in catalog.tables(share, schema):
                table = Table(name, share, schema, formats=("iceberg",))
                if table.full_name not in names:
                    tables.append(table)
    except NotFoundError:
        # The share has no Iceberg tables.
        return tables
    return tables


def _failure_of_catalog(rest: RestClient, table: AssetName) -> DeltaSharingError | None:
    """Return why the catalog does not load a table; ``None`` if the table is there."""
    try:
        _iceberg().load_table(rest, table, rest.options)
    except (UnsupportedFeatureError, ProtocolError):
        # The table exists, and reading it reports the problem.
        return None
    except DeltaSharingError as error:
        return error
    return None


def _iceberg() -> ModuleType:
    # Imported here, because Delta tables do not need it.
    from delta_sharing_client.iceberg import shared_table

    return shared_table
