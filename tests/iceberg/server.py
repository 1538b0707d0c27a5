"""A local sharing server with an Iceberg REST catalog."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import delta_sharing_client as ds
from tests.http_server import Exchange, HttpServer

TOKEN = "planted-token"
SHARE, SCHEMA = "ice", "n"


@dataclasses.dataclass
class SharedTable:
    """A table of the catalog: its metadata as JSON, and the other fields of the ``loadTable`` response."""

    metadata: dict[str, Any]
    config: dict[str, str] = dataclasses.field(default_factory=dict)
    storage_credentials: list[dict[str, Any]] = dataclasses.field(default_factory=list)


class IcebergServer:
    """Serves the tables of ``tables``, which may change at any time.

    ``formats`` is what "Get Table" returns; if it is ``None``, the server does not have that endpoint. ``delta_status``
    is the status of responses to requests for Delta tables. ``faults`` are the responses to the next requests to the
    catalog. ``before_load`` is called with the name of a table before each load, and may change the table.
    """

    def __init__(self) -> None:
        self.tables: dict[str, SharedTable] = {}
        self.formats: str | None = None
        self.delta_status = 501
        self.listed: list[str] = []
        self.schemas = [SCHEMA]
        """The schemas that the sharing protocol lists."""
        self.faults: list[tuple[int, Any]] = []
        self.page_size = 1000
        self.prefix = f"shares/{SHARE}"
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.before_load: Callable[[str], None] = lambda name: None
        self._server = HttpServer(self._serve)
        self.url = self._server.url

    @property
    def profile(self) -> dict[str, Any]:
        return {
            "shareCredentialsVersion": 1,
            "endpoint": f"{self.url}/sharing",
            "icebergEndpoint": f"{self.url}/iceberg",
            "bearerToken": TOKEN,
        }

    def table(self, name: str = "t", **options: Any) -> ds.SharedTable:
        """Return a shared table of a new client with ``options``."""
        client = ds.SharingClient(self.profile, ds.ReadOptions(**options))
        return client.table(f"{SHARE}.{SCHEMA}.{name}", format="iceberg")

    def share(self, name: str, metadata: dict[str, Any] | str | Path, **others: Any) -> None:
        """Share a table; ``metadata`` is its JSON, or the path of its file."""
        if not isinstance(metadata, dict):
            metadata = json.loads(Path(str(metadata).removeprefix("file://")).read_text())
        self.tables[name] = SharedTable(metadata, **others)

    def close(self) -> None:
        self._server.close()

    def _serve(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.path)
        self.requests.append(exchange.path)
        self.headers.append(dict(exchange.headers))
        if exchange.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, body = _error(401, "NotAuthorizedException", "Not authorized")
        else:
            status, body = self.answer(parts.path, parse_qs(parts.query))
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        exchange.reply(status, data, {"Content-Type": "application/json"})

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        steps = [unquote(step) for step in path.strip("/").split("/")]
        if steps[0] == "iceberg":
            return self.faults.pop(0) if self.faults else self._catalog(steps[1:], query)
        return self._sharing(steps[1:])

    def _sharing(self, steps: list[str]) -> tuple[int, Any]:
        names = [SHARE, SCHEMA]
        match steps:
            case ["shares"]:
                return 200, {"items": [{"name": SHARE}]}
            case ["shares", share] if share == SHARE:
                return 200, {"share": {"name": SHARE}}
            case ["shares", share, "schemas"] if share == SHARE:
                return 200, {"items": [{"name": name, "share": SHARE} for name in self.schemas]}
            case ["shares", share, "all-tables"] if share == SHARE:
                return 200, {"items": [_item(name) for name in self.listed]}
            case ["shares", share, "schemas", schema, "tables"] if [share, schema] == names:
                return 200, {"items": [_item(name) for name in self.listed]}
            case ["shares", share, "schemas", schema, "tables", table] if [share, schema] == names:
                if self.formats is not None and table in self.tables:
                    return 200, {**_item(table), "format": self.formats}
                return 404, {"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "no such endpoint"}
        return self.delta_status, {"errorCode": "NOT_IMPLEMENTED", "message": "read it through the Iceberg catalog"}

    def _catalog(self, steps: list[str], query: dict[str, list[str]]) -> tuple[int, Any]:
        if steps == ["v1", "config"]:
            if query.get("warehouse") != [SHARE]:
                return _error(404, "NoSuchWarehouseException", "Warehouse does not exist")
            return 200, {"defaults": {}, "overrides": {"prefix": self.prefix}, "endpoints": []}
        start = ["v1", *self.prefix.split("/"), "namespaces"]
        if steps[: len(start)] != start:
            return _error(404, "NoSuchEndpointException", "No such endpoint")
        match steps[len(start) :]:
            case []:
                return self._page("namespaces", [[SCHEMA], ["deep", "er"]], query)
            case [schema, "tables"] if schema == SCHEMA:
                results = [{"namespace": [SCHEMA], "name": name} for name in self.tables]
                return self._page("identifiers", results, query)
            case [schema, "tables", name] if schema == SCHEMA and name in self.tables:
                self.before_load(name)
                table = self.tables[name]
                return 200, {
                    "metadata-location": f"{table.metadata['location']}/metadata/v1.metadata.json",
                    "metadata": table.metadata,
                    "config": table.config,
                    "storage-credentials": table.storage_credentials,
                }
        return _error(404, "NoSuchTableException", "Table does not exist")

    def _page(self, name: str, items: list[Any], query: dict[str, list[str]]) -> tuple[int, Any]:
        start = int((query.get("pageToken") or ["0"])[0] or 0)
        stop = start + self.page_size
        return 200, {name: items[start:stop], "next-page-token": str(stop) if stop < len(items) else None}


def _item(name: str) -> dict[str, str]:
    return {"name": name, "schema": SCHEMA, "share": SHARE}


def _error(status: int, kind: str, message: str) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": kind, "code": status}}


@contextlib.contextmanager
def iceberg_server() -> Iterator[IcebergServer]:
    server = IcebergServer()
    try:
        yield server
    finally:
        server.close()
