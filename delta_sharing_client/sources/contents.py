"""What a share contains: the listings of the server, with the tables that only the Iceberg catalog of the profile
lists, and the formats of a table (OpenSharing protocol, "Iceberg tables")."""

from __future__ import annotations

from collections.abc import Iterator

from delta_sharing_client.errors import (
    NotFoundError,
    RequestError,
)
from delta_sharing_client.protocol.asset_kinds import AssetEntry
from delta_sharing_client.protocol.listings import UNKNOWN_ENDPOINT
from delta_sharing_client.protocol.names import AssetName, Schema, Table
from delta_sharing_client.protocol.rest import RestClient

ICEBERG = "iceberg"


def stated_formats(rest: RestClient, table: AssetName) -> tuple[str, ...]:
    """Return the formats that the server states; empty if it states none. They are requested only once."""
    stated: tuple[str, ...] | None = rest.server_facts.get(("formats", table))
    if stated is None:
        try:
            stated = rest.stated_table(table).formats
        except RequestError as error:
            if error.status not in UNKNOWN_ENDPOINT:
                raise
            stated = ()
        known_formats(rest, table, stated)
    return stated


def known_formats(rest: RestClient, table: AssetName, formats: tuple[str, ...]) -> None:
    """Remember the formats of a table for ``stated_formats``."""
    rest.server_facts["formats", table] = formats


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


def shares_to_list(rest: RestClient, where: str | None) -> Iterator[tuple[str, str | None]]:
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
                table = Table(name, share, schema, formats=(ICEBERG,))
                if table.full_name not in names:
                    tables.append(table)
    except NotFoundError:
        # The share has no Iceberg tables.
        return tables
    return tables
