"""A sharing server with prepared replies, which may be cut off, late or malformed. It records its requests."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_server import Exchange, HttpServer

TOKEN = "planted-bearer-token"
SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]})


@dataclasses.dataclass
class ReceivedRequest:
    """A request as it arrived. ``path`` is still percent-encoded and starts after the endpoint's prefix."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclasses.dataclass
class Reply:
    """A prepared response. ``framing`` is length, chunked or close. With the prefix "cut-", the body ends after ``cut``
    bytes. With "reset", the connection is closed without a response."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    framing: str = "length"
    cut: int = 0


Route = Callable[[ReceivedRequest], Reply]


class FakeServer:
    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.routes: dict[tuple[str, str], list[Reply | Route]] = {}
        self._lock = threading.Lock()
        self._http = HttpServer(self._serve)
        self.endpoint = f"{self._http.url}/prefix"

    def on(self, method: str, path: str, *replies: Reply | Route) -> None:
        """Respond to requests of a path with ``replies`` in order, and with the last one from then on."""
        self.routes[method, path] = list(replies)

    def close(self) -> None:
        self._http.close()

    def _serve(self, handler: Exchange) -> None:
        parts = urlsplit(handler.path)
        raw = handler.content
        body = json.loads(raw) if raw[:1] == b"{" else raw.decode()
        path = parts.path.removeprefix("/prefix")
        query = {key: values[-1] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        request = ReceivedRequest(
            handler.command, path, query, {k.lower(): v for k, v in handler.headers.items()}, body
        )
        with self._lock:
            self.requests.append(request)
            replies = self.routes.get((handler.command, path))
            if not replies:
                reply: Reply | Route = Reply(404, b"404 Not Found")
            else:
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
        _send(handler, reply(request) if callable(reply) else reply)


def _send(handler: Exchange, reply: Reply) -> None:
    handler.close_connection = reply.framing not in {"length", "chunked"}
    if reply.framing == "reset":
        return
    handler.send_response(reply.status)
    for name, value in reply.headers.items():
        handler.send_header(name, value)
    if reply.framing.endswith("length"):
        handler.send_header("Content-Length", str(len(reply.body)))
    elif reply.framing.endswith("chunked"):
        handler.send_header("Transfer-Encoding", "chunked")
    else:
        handler.send_header("Connection", "close")
    handler.end_headers()
    if handler.command == "HEAD":
        return
    body = reply.body[: reply.cut] if reply.framing.startswith("cut") else reply.body
    if not reply.framing.endswith("chunked"):
        handler.wfile.write(body)
        return
    for start in range(0, len(body), 1000):
        chunk = body[start : start + 1000]
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    if reply.framing == "chunked":
        handler.wfile.write(b"0\r\n\r\n")


def error(status: int, code: str, message: str = "no") -> Reply:
    return Reply(status, json.dumps({"errorCode": code, "message": message}).encode())


def as_json(value: object, status: int = 200, **fields: Any) -> Reply:
    return Reply(status, json.dumps(value).encode(), **fields)


def ndjson(*lines: object, version: int | None = 7, capabilities: str | None = None, **fields: Any) -> Reply:
    """Return an NDJSON response; a line that is a str is sent unchanged."""
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    headers = {"Content-Type": "application/x-ndjson; charset=utf-8", **fields.pop("headers", {})}
    if version is not None:
        headers["delta-table-version"] = str(version)
    if capabilities is not None:
        headers["Delta-Sharing-Capabilities"] = capabilities
    return Reply(200, text.encode(), headers, **fields)


def parquet_head(**metadata: object) -> list[object]:
    fields = {"id": "t", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}
    return [{"protocol": {"minReaderVersion": 1}}, {"metaData": {**fields, **metadata}}]


def delta_head(wrapper: dict[str, object] | None = None, **metadata: object) -> list[object]:
    fields = {"id": "t", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}
    return [
        {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}},
        {"metaData": {"deltaMetadata": {**fields, **metadata}, **(wrapper or {})}},
    ]


def parquet_file(name: str, kind: str = "file", **fields: object) -> dict[str, object]:
    url = f"https://storage.test/{name}.parquet?sig=planted-{name}"
    return {kind: {"url": url, "id": name, "partitionValues": {}, "size": 5, **fields}}


def delta_file(name: str, kind: str = "add", wrapper: dict[str, object] | None = None, **fields: object) -> Any:
    url = f"https://storage.test/{name}.parquet?sig=planted-{name}"
    action = {"path": url, "partitionValues": {}, "size": 5, "modificationTime": 1, "dataChange": True, **fields}
    return {"file": {"id": name, **(wrapper or {}), "deltaSingleAction": {kind: action}}}
