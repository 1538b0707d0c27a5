"""Tables that pyiceberg writes, and its own rows of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from tests.iceberg.server import IcebergServer


class Warehouse:
    """A folder with tables of pyiceberg, shared by ``server``."""

    def __init__(self, root: Path, server: IcebergServer) -> None:
        self.root = root
        self.server = server
        self.catalog = SqlCatalog("tests", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        self.catalog.create_namespace("n")

    def create(self, name: str, schema: Any, **others: Any) -> Any:
        return self.catalog.create_table(f"n.{name}", schema, **others)

    def share(self, name: str) -> None:
        """Let the server share the table as it is now."""
        self.server.share(name, self.catalog.load_table(f"n.{name}").metadata_location)


def rows_of(table: pa.Table) -> list[str]:
    """Return rows in an order that does not depend on files, comparable whatever their types."""
    return sorted(repr(row) for row in table.to_pylist())
