"""Resolves the arguments of commands: clients, tables, and SQL over them."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

from delta_sharing_client.errors import DeltaSharingError, NotFoundError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.protocol.names import TableName
    from delta_sharing_client.table import SharedTable

# sqlglot underlines the wrong word with escape sequences.
_MISSING = re.compile(r"Table with name (\S+) does not exist")
_UNDERLINED = re.compile(r"\x1b\[[0-9;]*m")


def open_client(profile: str | None) -> SharingClient:
    """Return a client for the profile at ``profile`` (path or URL), or for the environment's profile if None."""
    from delta_sharing_client.client import SharingClient

    return SharingClient(profile)


def open_table(profile: str | None, text: str) -> SharedTable:
    """Return the table ``text``: ``share.schema.table``, or ``<profile>#share.schema.table``."""
    from delta_sharing_client.protocol.names import parse_table_url

    if "#" not in text:
        client = open_client(profile)
        try:
            return client.table(text)
        except UsageError as error:
            error.message += _full_names(client, text)
            raise
    named, table = parse_table_url(text)
    if named is not None and profile is not None and named != profile:
        raise UsageError(f"Two profiles were given, {profile!r} and {named!r}; give one of them.")
    return open_client(named or profile).table(str(table))


def _full_names(client: SharingClient, part: str) -> str:
    """Return a sentence with the shared tables that ``part`` may stand for, "" if none is near."""
    try:
        tables = client.list_all_tables()
    except DeltaSharingError:
        return ""
    part = part.lower().rpartition(".")[2]
    near = difflib.get_close_matches(part, {table.name.lower() for table in tables}, n=3)
    found = sorted(f"'{table}'" for table in tables if table.name.lower() in near)[:3]
    return f" Did you mean {' or '.join(found)}?" if found else ""


def names_of_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of shared tables that start with ``incomplete``, for shell completion; never raises."""
    return _completed(context, incomplete, lambda client: [str(table) for table in client.list_all_tables()])


def names_of_shares(context: typer.Context, incomplete: str) -> list[str]:
    """Like ``names_of_tables``, for shares."""
    return _completed(context, incomplete, lambda client: [share.name for share in client.list_shares()])


def names_of_schemas(context: typer.Context, incomplete: str) -> list[str]:
    """Like ``names_of_tables``, for shares and for schemas as ``share.schema``."""

    def found(client: SharingClient) -> list[str]:
        shares = [share.name for share in client.list_shares()]
        inside = [name for name in shares if incomplete.lower().startswith(f"{name.lower()}.")]
        return [*shares, *(f"{name}.{schema.name}" for name in inside for schema in client.list_schemas(name))]

    return _completed(context, incomplete, found)


def _completed(context: typer.Context, incomplete: str, names: Callable[[SharingClient], list[str]]) -> list[str]:
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.options import ReadOptions

    try:
        # Given after the command, or before it.
        places = [part.params.get("profile") for part in (context, context.parent) if part is not None]
        given = next((profile for profile in places if profile is not None), None)
        # Completion must be fast, so without retries.
        client = SharingClient(given, ReadOptions(max_attempts=1, connect_timeout=2.0, read_timeout=2.0))
        return [name for name in names(client) if name.lower().startswith(incomplete.lower())]
    except DeltaSharingError:
        return []


@contextlib.contextmanager
def run_sql(profile: str | None, query: str) -> Iterator[pa.RecordBatchReader]:
    """Run ``query`` with DuckDB over the shared tables in it, and yield a reader of its rows."""
    from delta_sharing_client import optional
    from delta_sharing_client.arrow_forms import reader_of
    from delta_sharing_client.outputs.dataset import create_views

    duckdb = optional.load("duckdb", "duckdb")
    client = open_client(profile)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        tables = [client.table(name) for name in _tables_of(query)]
        create_views(connection, {table.name: table.scan() for table in tables})
        try:
            relation = connection.sql(query)
            yield reader_of(relation)
        except duckdb.CatalogException as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise UsageError(f"DuckDB cannot run the SQL. {' '.join(str(error).split())}") from None
            # What DuckDB finds near the name are tables of its own.
            raise UsageError(
                f"The SQL names the table '{missing[1]}', and a shared table is named in full, as share.schema.table."
                f"{_full_names(client, missing[1])}"
            ) from None
        except duckdb.Error as error:
            raise UsageError(f"DuckDB cannot run the SQL. {' '.join(str(error).split())}") from None


def _tables_of(query: str) -> list[TableName]:
    import sqlglot
    from sqlglot import expressions

    from delta_sharing_client.protocol.names import TableName

    try:
        parsed = sqlglot.parse_one(query, dialect="duckdb")
    except sqlglot.errors.SqlglotError as error:
        told = _UNDERLINED.sub("'", str(error))
        raise UsageError(f"The SQL cannot be read. {' '.join(told.split())}") from None
    if not isinstance(parsed, expressions.Query):
        raise UsageError("The SQL must be a query, such as SELECT ... FROM share.schema.table.")
    named = {(table.catalog, table.db, table.name) for table in parsed.find_all(expressions.Table)}
    return [TableName(*names) for names in sorted(named) if all(names)]


def share_and_schema(client: SharingClient, text: str) -> tuple[str, str | None]:
    """Return the share, and the schema if any, of ``text`` (``share`` or ``share.schema``).

    Names of shares may contain dots, so the server's shares decide how to split ``text``. Raises ``NotFoundError`` if
    none matches.
    """
    shares = [share.name for share in client.list_shares()]
    by_folded_name = {name.lower(): name for name in shares}
    if text.lower() in by_folded_name:
        return by_folded_name[text.lower()], None
    share, dot, schema = text.rpartition(".")
    if dot and schema and share.lower() in by_folded_name:
        return by_folded_name[share.lower()], schema
    raise NotFoundError(f"No share fits {text!r}; there are: {', '.join(shares) or 'none'}.")


def retention(days: float) -> datetime.timedelta:
    """Return ``days`` as a duration; ``UsageError`` if it is too long."""
    try:
        return datetime.timedelta(days=days)
    except (OverflowError, ValueError):
        raise UsageError(f"The option --keep-days must be a number of days such as 7, found {days}.") from None
