"""Share tables that pyiceberg writes, and read them with pyiceberg."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from tests.iceberg.server import IcebergServer


class Warehouse:
    """A directory of tables that pyiceberg writes and ``server`` shares."""

    def __init__(self, root: Path, server: IcebergServer) -> None:
        self.root = root
        self.server = server
        self.catalog = SqlCatalog("tests", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        self.catalog.create_namespace("n")

    def create(self, name: str, schema: Any, **others: Any) -> Any:
        return self.catalog.create_table(f"n.{name}", schema, **others)

    def share(self, name: str) -> None:
        """Let the server share the current version of the table."""
        self.server.share(name, self.catalog.load_table(f"n.{name}").metadata_location)


def rows_of(table: pa.Table) -> list[str]:
    """Return rows sorted by a key that works for all types, so that their order does not depend on the files."""
    return sorted(repr(row) for row in table.to_pylist())
