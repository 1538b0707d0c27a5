"""The server as an ASGI application: routes of the REST API, data files, and endpoints for tests and benchmarks.

Paths are split before they are percent-decoded, so that a name may contain a slash.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote, unquote_to_bytes

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from delta_sharing_client.errors import DeltaSharingError, about_table

from . import asset_apis, iceberg
from .access import (
    Vending,
    require_loopback,
    require_url_access,
    temporary_credentials,
    with_local_directories,
    with_readable_formats,
)
from .asset_apis import AssetApis
from .asynchronous import AsyncQueries
from .auth import check_bearer
from .capabilities import parse_capabilities, parse_file_id_hash
from .catalog import Catalog, LiveCatalog, TableEntry, TableFormat
from .config import ServerConfig
from .delivery import Delivery
from .errors import (
    INTERNAL_ERROR,
    RESOURCE_DOES_NOT_EXIST,
    UNSUPPORTED_OPERATION,
    ApiError,
    ConfigError,
    from_table_error,
    malformed,
    no_such_api,
    not_found,
    shown,
    too_large,
)
from .faults import FaultSet, parse_fault
from .files import FileServer
from .formats import choose_format
from .iceberg import IcebergCatalog
from .listings import Listings
from .parameters import (
    MAX_BODY_BYTES,
    QueryRequest,
    parse_changes,
    parse_location,
    parse_page_request,
    parse_point,
    parse_query,
    parse_starting_timestamp,
)
from .s3 import S3Tables
from .signing import ABSOLUTE, RELATIVE, Signer
from .stats import Stats
from .table_apis import Caller, LineResponse, TableApis
from .violations import Violating
from .wire import query_status_line

_NDJSON = "application/x-ndjson; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_CHUNK_BYTES = 256 * 1024
SETTLE_SECONDS = 0.5
"""How many seconds a request for the counts waits for responses in progress."""
_SETTLE_STEPS = 100
_is_data = re.compile(f"/(?:{RELATIVE}|{ABSOLUTE})/[^/]*/".encode()).match
_is_host = re.compile(r"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?").fullmatch
_INTERNAL = ("/_stats", "/_control")
_Result = TypeVar("_Result")


def create_app(config: ServerConfig) -> SharingServer:
    """Return the server for ``config``; ``mock_server.running`` and ``python -m mock_server`` run it with uvicorn.

    Raises `ConfigError` if a table has neither a Delta log nor Iceberg metadata at its location.
    """
    return SharingServer(config)


class SharingServer(Starlette):
    """The application.

    ``stats``, ``faults`` and ``signer`` may be used from other threads while it runs.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._s3 = S3Tables(config.s3)
        self.catalog = LiveCatalog(config.catalog, config.directory, self._prepared)
        self.catalog.last.require_locations()
        self.stats = Stats()
        self.faults = FaultSet(config.faults)
        self.signer = Signer(config.url_ttl)
        self._table_apis = TableApis(config, self.signer, self.faults, self._s3)
        self._listings = Listings(self.catalog.now, self.faults)
        self._vending = Vending(self._s3, config.vendors, config.credentials_ttl, self.faults)
        self._assets = AssetApis(self.catalog.now, self._listings, self.faults, self._vending)
        self._iceberg_catalog = IcebergCatalog(self.catalog.now, self.faults, self._vending)
        self._queries = AsyncQueries(config.async_polls)
        self._files = FileServer(lambda: self.catalog.last, self.signer, self.faults)
        self._prefix = config.prefix.rstrip("/") + "/"
        self._iceberg_prefix = config.iceberg_prefix.rstrip("/") + "/"
        super().__init__(
            routes=[
                Route(self._prefix + "{rest:path}", self._api, methods=["GET", "POST"]),
                Route(self._iceberg_prefix + "{rest:path}", self._iceberg, methods=["GET", "HEAD", "POST"]),
                Route("/_stats", self._stats_endpoint, methods=["GET", "POST"]),
                Route("/_control", self._control_endpoint, methods=["POST"]),
            ],
            exception_handlers={
                ApiError: _api_error,
                DeltaSharingError: _table_error,
                404: _no_route,
                405: _no_route,
                Exception: _unexpected,
            },
        )
        # Redirects are off, because they would use the request's Host header.
        self.router.redirect_slashes = False
        self._delivery = Delivery(
            Violating(self._dispatch, self.faults.broken),
            stats=self.stats,
            faults=self.faults,
            latency=config.latency,
            bandwidth=config.bandwidth,
            describe=self._describe,
        )

    def close(self) -> None:
        """Remove the server's files from disk; no requests are served after that."""
        self._s3.close()

    def _prepared(self, catalog: Catalog) -> Catalog:
        if any(location.startswith("file:") for asset in catalog.assets for location in asset.locations):
            require_loopback(self.config.host)
        catalog = with_readable_formats(catalog, self.config.host)
        if self.config.local_directories:
            catalog = with_local_directories(catalog, self.config.host)
        return self._s3.mirrored(catalog)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _INTERNAL:
            await super().__call__(scope, receive, send)
        else:
            await self._delivery(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Data files bypass the router, so that thousands of range requests per second are possible.
        if _is_data(scope["raw_path"]):
            await self._files(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    def _describe(self, scope: Scope) -> tuple[str, str | None]:
        raw_path: bytes = scope["raw_path"]
        if _is_data(raw_path):
            file = unquote_to_bytes(raw_path.split(b"/", 3)[3]).decode("utf-8", "backslashreplace")
            return "data" if scope["method"] == "GET" else "data-head", file
        if raw_path.startswith(self._iceberg_prefix.encode()):
            segments = iceberg.with_plain_prefix(_segments(scope, self._iceberg_prefix))
            return iceberg.api_of(scope["method"], segments), None
        return _kind(scope["method"], _segments(scope, self._prefix)), None

    # --- the REST API ---

    async def _api(self, request: Request) -> Response:
        if self.config.check_token:
            check_bearer(request.headers.get("authorization"), self.config.token)
        segments = _segments(request.scope, self._prefix)
        kind = _kind(request.method, segments)
        try:
            body = await _read_body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        return await run_in_threadpool(self._respond, kind, segments, request, body)

    def _respond(self, kind: str, segments: list[str], request: Request, body: bytes) -> Response:
        query = request.query_params
        if kind == "shares":
            return _json(self._listings.shares(query))
        if kind == "share":
            return _json(_named(self._listings.share, segments[1]))
        if kind == "schemas":
            return _json(_named(lambda share: self._listings.schemas(share, query), segments[1]))
        if kind == "all-tables":
            if self.faults.take("no-all-tables"):
                raise not_found("The all-tables API does not exist (fault no-all-tables).")
            return _json(_named(lambda share: self._listings.tables(share, None, query), segments[1]))
        if kind == "tables":
            return _json(
                _named(lambda share, schema: self._listings.tables(share, schema, query), segments[1], segments[3])
            )
        if kind in asset_apis.APIS.values():
            return _json(_named(lambda *names: self._assets.respond(kind, names, query), *segments[1::2]))
        if kind == "table":
            if (missing := self.faults.take("no-get-table")) is not None:
                raise no_such_api("The API of one table does not exist (fault no-get-table).", int(missing.value))
            found = _named(self.catalog.now().table, segments[1], segments[3], segments[5])
            return _json(self._listings.table(found))
        if kind == "other":
            raise _no_api(request, 404)
        if kind == "version" and self.faults.take("no-version-endpoint"):
            raise not_found("The version API does not exist (fault no-version-endpoint).")
        entry = _named(self.catalog.now().table, segments[1], segments[3], segments[5])
        self._s3.refresh(entry)
        with about_table(entry.full_name):
            return self._respond_for_table(kind, segments, entry, request, body)

    def _respond_for_table(
        self, kind: str, segments: list[str], entry: TableEntry, request: Request, body: bytes
    ) -> Response:
        if TableFormat.DELTA not in entry.formats and kind != "temporary-table-credentials":
            raise no_such_api(
                f"The table '{entry.full_name}' is an Iceberg table: read it through the Iceberg catalog.", 501
            )
        if kind in ("version", "version-head"):
            version = self._table_apis.version(entry, parse_starting_timestamp(request.query_params))
            return Response(status_code=200, headers={"Delta-Table-Version": str(version)})
        caller = _caller(request)
        if kind == "metadata":
            return _streamed(self._table_apis.metadata(entry, caller, *parse_point(request.query_params)), caller)
        if kind == "temporary-table-credentials":
            return _json(temporary_credentials(entry, parse_location(body), self._vending))
        require_url_access(entry)
        if kind == "changes":
            return _streamed(self._table_apis.changes(entry, caller, parse_changes(request.query_params)), caller)
        if kind == "query":
            if caller.capabilities.async_query:
                return self._submit(entry, caller, parse_query(body, request.query_params))
            return _streamed(self._table_apis.query(entry, caller, parse_query(body, request.query_params)), caller)
        return self._poll(entry, caller, segments[7], body)

    def _submit(self, entry: TableEntry, caller: Caller, parameters: QueryRequest) -> Response:
        table = self._table_apis.table(entry)
        version = table.latest_version()
        snapshot = table.snapshot(version)
        # Unsupported formats are refused now, not only after the polls.
        choose_format(caller.capabilities, [(snapshot.protocol, snapshot.metadata)], entry.full_name, self.faults)
        query = self._queries.submit(entry, parameters, caller.capabilities, caller.file_id_hash, version)
        return _pending(query_status_line(query.id, "pending"))

    def _poll(self, entry: TableEntry, caller: Caller, query_id: str, body: bytes) -> Response:
        polls = self.faults.take("async-pending")
        query, ready = self._queries.poll(entry, query_id, int(polls.value) if polls else None)
        if self.faults.take("async-failed"):
            return _pending(query_status_line(query.id, "failed", "fault async-failed"))
        if not ready:
            return _pending(query_status_line(query.id, "pending"))
        caller = Caller(query.capabilities, query.file_id_hash, caller.origin)
        request = query.request.with_paging(parse_page_request(body))
        return _streamed(self._table_apis.query(entry, caller, request, query.pinned), caller)

    async def _iceberg(self, request: Request) -> Response:
        segments = iceberg.with_plain_prefix(_segments(request.scope, self._iceberg_prefix))
        api = iceberg.api_of(request.method, segments)
        try:
            if self.config.check_token:
                check_bearer(request.headers.get("authorization"), self.config.token)
            await _read_body(request)
            respond = self._iceberg_catalog.respond
            content = await run_in_threadpool(respond, api, segments, request.query_params)
        except ClientDisconnect:
            return Response(status_code=400)
        except ApiError as error:
            content = iceberg.error_body(error, api)
            return JSONResponse(content, status_code=error.status, headers=error.headers)
        if content is None or request.method == "HEAD":
            return Response(status_code=204)
        return JSONResponse(content)

    # --- for tests and benchmarks ---

    async def _stats_endpoint(self, request: Request) -> Response:
        check_bearer(request.headers.get("authorization"), self.config.token)
        for _ in range(_SETTLE_STEPS):
            if self.stats.idle:
                break
            await asyncio.sleep(SETTLE_SECONDS / _SETTLE_STEPS)
        content = self.stats.snapshot()
        if request.method == "POST":
            self.stats.reset()
        return JSONResponse(content)

    async def _control_endpoint(self, request: Request) -> Response:
        """Handle ``{"fault": text}``, ``{"clear": name or null}`` or ``{"expire_urls": true}``."""
        check_bearer(request.headers.get("authorization"), self.config.token)
        try:
            content: object = json.loads(await _read_body(request))
            if not isinstance(content, dict):
                raise ValueError("A JSON object was expected.")
            if "fault" in content:
                self.faults.set(parse_fault(_text(content["fault"])))
            if "clear" in content:
                self.faults.clear(None if content["clear"] is None else _text(content["clear"]))
        except (ValueError, RecursionError, ConfigError) as error:
            raise malformed(str(error)) from error
        if content.get("expire_urls"):
            self.signer.expire_all()
        return JSONResponse({})


_TABLE = ("shares", "*", "schemas", "*", "tables", "*")
# The APIs by method and path, in which * stands for a name. Used by ``_respond``, and to count requests.
_APIS: dict[tuple[str, ...], str] = {
    ("GET", "shares"): "shares",
    ("GET", "shares", "*"): "share",
    ("GET", "shares", "*", "schemas"): "schemas",
    ("GET", "shares", "*", "all-tables"): "all-tables",
    ("GET", "shares", "*", "schemas", "*", "tables"): "tables",
    ("GET", *_TABLE): "table",
    ("HEAD", *_TABLE): "version-head",
    ("GET", *_TABLE, "version"): "version",
    ("GET", *_TABLE, "metadata"): "metadata",
    ("GET", *_TABLE, "changes"): "changes",
    ("POST", *_TABLE, "query"): "query",
    ("POST", *_TABLE, "queries", "*"): "queries",
    ("POST", *_TABLE, "temporary-table-credentials"): "temporary-table-credentials",
    **asset_apis.APIS,
}


def _segments(scope: Scope, prefix: str) -> list[str]:
    """Return the decoded segments of a request's path below ``prefix``.

    Consecutive slashes count as one, as on the reference server, because clients append "/shares" to an endpoint that
    may end with a slash.
    """
    raw_path = scope["raw_path"].decode("latin-1")
    rest = raw_path[len(prefix) :] if raw_path.startswith(prefix) else ""
    return [unquote(segment) for segment in rest.split("/") if segment]


def _kind(method: str, segments: list[str]) -> str:
    """Return the API that a request calls. Every second segment of the path is a name."""
    shape = ("*" if index % 2 else segment for index, segment in enumerate(segments))
    return _APIS.get((method, *shape), "other")


async def _read_body(request: Request) -> bytes:
    """Return the body of a request. Raises `ApiError` (413) if it is too large."""
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and len(declared.lstrip("0")) > len(str(MAX_BODY_BYTES)):
        raise too_large(MAX_BODY_BYTES)
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise too_large(MAX_BODY_BYTES)
    return b"".join(pieces)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"A string was expected, not {shown(value)}.")
    return value


def _named(find: Callable[..., _Result], *names: str) -> _Result:
    """Look up names. If that fails, try again with + decoded as a space, because the JVM client encodes spaces like
    that."""
    try:
        return find(*names)
    except ApiError as error:
        spaced = tuple(name.replace("+", " ") for name in names)
        if error.status != 404 or spaced == names:
            raise
        return find(*spaced)


def _caller(request: Request) -> Caller:
    host = request.headers.get("host")
    if host is None:
        host = "%s:%s" % (request.scope.get("server") or ("127.0.0.1", 80))
    if not _is_host(host):
        raise malformed(f"The Host header must name a host, not {shown(host)}.")
    return Caller(
        parse_capabilities(request.headers.get("delta-sharing-capabilities")),
        parse_file_id_hash(request.headers.get("fileidhash")),
        f"{request.scope['scheme']}://{host}",
    )


def _streamed(lines: LineResponse, caller: Caller) -> Response:
    capabilities = f"responseformat={lines.format.value}"
    if caller.capabilities.end_stream_action:
        capabilities += ";includeendstreamaction=true"
    headers = {"Delta-Table-Version": str(lines.version), "delta-sharing-capabilities": capabilities}
    if caller.file_id_hash is not None:
        headers["fileidhash"] = caller.file_id_hash.value
    chunks = _pieces(lines.chunks)
    first = next(chunks, b"")
    second = next(chunks, None)
    if second is None:
        return Response(first, headers=headers, media_type=_NDJSON)
    return StreamingResponse(itertools.chain((first, second), chunks), headers=headers, media_type=_NDJSON)


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Join chunks to the size of a packet, so that a small response takes only one packet."""
    waiting: list[bytes] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _pending(line: bytes) -> Response:
    return Response(line, headers={"delta-sharing-capabilities": "asyncquery=true"}, media_type=_NDJSON)


def _json(content: dict[str, Any]) -> Response:
    response = JSONResponse(content)
    response.headers["content-type"] = _JSON
    return response


def _error(request: Request, error: ApiError) -> Response:
    # The JSON is ASCII, because a message may quote half of a surrogate pair, which must be escaped.
    body = b"" if request.method == "HEAD" else json.dumps({"errorCode": error.code, "message": error.message}).encode()
    response = Response(body, status_code=error.status, headers=error.headers, media_type=_JSON)
    if error.status == 413:
        response.headers["connection"] = "close"  # the rest of the body is not awaited
    return response


def _no_api(request: Request, status: int) -> ApiError:
    code = RESOURCE_DOES_NOT_EXIST if status == 404 else UNSUPPORTED_OPERATION
    return ApiError(status, code, f"There is no API {request.method} {shown(request.scope['path'])}.")


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error(request, error)


async def _table_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DeltaSharingError)
    return _error(request, from_table_error(error))


async def _no_route(request: Request, error: Exception) -> Response:
    return _error(request, _no_api(request, getattr(error, "status_code", 404)))


async def _unexpected(request: Request, error: Exception) -> Response:
    logging.getLogger("mock_server").error("A request failed unexpectedly.", exc_info=error)
    return _error(request, ApiError(500, INTERNAL_ERROR, f"The server failed with {type(error).__name__}."))
