"""DuckDB: a read as a relation or a view, into which a query's columns and filters are pushed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from delta_sharing_client import optional
from delta_sharing_client.outputs.dataset import Readable, SharedDataset

if TYPE_CHECKING:
    import duckdb

    from delta_sharing_client.protocol.names import TableName


def relation(read: Readable, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return ``read`` as a relation on ``connection``, DuckDB's default one if ``None``."""
    # A connection of our own would be closed under the relation once nothing else holds it.
    target = optional.load("duckdb", "duckdb") if connection is None else connection
    return target.from_arrow(SharedDataset(read))


def create_views(connection: duckdb.DuckDBPyConnection, reads: Mapping[TableName, Readable]) -> None:
    """Make ``share.schema.table`` a view for each of ``reads``: a database in memory a share, a schema a schema."""
    row = connection.execute("SELECT current_database(), current_schema()").fetchone()
    assert row is not None
    try:
        for table, read in reads.items():
            share, schema = _quoted(table.share), _quoted(table.schema)
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {share}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {share}.{schema}")
            # A view of a relation lies where the connection stands, and serves all cursors of the database.
            connection.execute(f"USE {share}.{schema}")
            relation(read, connection).create_view(table.table, replace=True)
    finally:
        connection.execute(f"USE {_quoted(row[0])}.{_quoted(row[1])}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
