"""Read every table of a catalog with DuckDB's extension for Iceberg.

    python read_iceberg_duckdb.py URI TOKEN WAREHOUSE NAMESPACE DIRECTORY

runs in the environment of ``scripts/iceberg``, whose packages contain the extensions. The rows of each table become
``DIRECTORY/<table>.duckdb``, in Arrow's file format; if a table cannot be read, ``DIRECTORY/<table>.duckdb-error`` has
the reason.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

import duckdb
import pyarrow as pa


def connected(uri: str, token: str, warehouse: str) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (path,) = pathlib.Path(str(package.__file__)).parent.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE SECRET shared (TYPE iceberg, TOKEN '{token}')")
    connection.execute(f"ATTACH '{warehouse}' AS shared (TYPE iceberg, ENDPOINT '{uri.rstrip('/')}', SECRET shared)")
    return connection


def main(uri: str, token: str, warehouse: str, namespace: str, directory: str) -> None:
    with connected(uri, token, warehouse) as connection:
        listed = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'shared'").fetchall()
    for (name,) in listed:
        # An internal error of DuckDB ends the use of its connection.
        with connected(uri, token, warehouse) as connection:
            path = pathlib.Path(directory) / name
            try:
                rows = connection.execute(f'SELECT * FROM shared."{namespace}"."{name}"').to_arrow_table()
            except duckdb.Error as error:
                path.with_name(f"{name}.duckdb-error").write_text(str(error), encoding="utf-8")
                continue
            with pa.OSFile(f"{path}.duckdb", "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
