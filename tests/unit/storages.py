"""A small HTTP storage with ranges, counters and faults, and helpers that make a table in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from benchmarks.long_listing import LongListing
from delta_sharing_client.delta.actions import AddFile, Metadata, Protocol, SharedFile
from delta_sharing_client.delta.deletion_vectors import decode_inline
from delta_sharing_client.delta.schema import from_arrow_schema, schema_to_json
from delta_sharing_client.fetch.place import UrlSource
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.fetch.signed_urls import SignedUrls
from delta_sharing_client.http.network import Allowed
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_request import ScanRequest, TableState
from delta_sharing_client.plan.snapshot_files import plan_snapshot
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.run.batches import Batches
from tests.http_server import Exchange, HttpServer
from tests.time_limits import HANGS
from tests.vectors import poisoned

Fault = Callable[[Exchange, bytes], bool]


@dataclasses.dataclass
class Request:
    """A received request: path without query string, whole target, Range header, all headers."""

    name: str
    target: str
    range: str | None
    headers: dict[str, str]


class Storage:
    """Files by name. Each request for a file calls the next of ``faults[name]``; a fault returns true if it
    responded."""

    def __init__(self) -> None:
        self.server: HttpServer | None = None
        self.files: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.sent = 0
        self.latency = 0.0
        self.ranges = True
        self.valid_signature: str | None = None
        # Extra response headers for each file; with ``honours_match`` the If-Match header is compared with the ETag.
        self.headers: dict[str, dict[str, str]] = {}
        self.honours_match = True
        self.faults: dict[str, list[Fault]] = {}
        self.lock = threading.Lock()
        self.in_flight = 0
        self.most_in_flight = 0

    @property
    def port(self) -> int:
        assert self.server is not None
        return int(self.server.server_port)

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        assert self.server is not None
        return self.server.connections

    def put(self, name: str, data: bytes) -> str:
        self.files[name] = data
        return self.url(name)

    def url(self, name: str, signature: str = "secret-signature") -> str:
        # Tests that decode bytes in memory need no server.
        address = "http://127.0.0.1:1" if self.server is None else self.server.url
        return f"{address}/{name}?X-Amz-Signature={signature}"

    def requested(self, name: str) -> list[str | None]:
        return [request.range for request in self.requests if request.name == name]

    def bytes_of(self, name: str) -> int:
        return len(self.files[name])

    def answer(self, exchange: Exchange) -> None:
        name = exchange.path.partition("?")[0].lstrip("/")
        headers = dict(exchange.headers)
        with self.lock:
            self.requests.append(Request(name, exchange.path, headers.get("Range"), headers))
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            faults = self.faults.get(name, [])
            fault = faults.pop(0) if faults else None
        try:
            if self.latency:
                time.sleep(self.latency)
            data, named = self.files.get(name), self.headers.get(name, {})
            if fault is not None and fault(exchange, data or b""):
                return
            if self.valid_signature is not None and not exchange.path.endswith(self.valid_signature):
                exchange.reply(403, b"<Error>Request has expired</Error>")
            elif data is None:
                exchange.reply(404)
            elif self.honours_match and headers.get("If-Match") not in (None, named.get("ETag")):
                exchange.reply(412)
            else:
                self._send(exchange, data, named)
        finally:
            with self.lock:
                self.in_flight -= 1

    def _send(self, exchange: Exchange, data: bytes, named: Mapping[str, str]) -> None:
        span = byte_span(exchange.headers.get("Range"), len(data)) if self.ranges else None
        if span is None:
            exchange.reply(200, data, named)
        elif span[0] >= len(data):
            exchange.reply(416)
        else:
            start, stop = span
            about = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}", **named}
            exchange.reply(206, data[start:stop], about)
        with self.lock:
            self.sent += len(data) if span is None else span[1] - span[0]


def byte_span(header: str | None, size: int) -> tuple[int, int] | None:
    if header is None:
        return None
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header)
    assert match is not None, header
    if not match[1]:
        return max(0, size - int(match[2])), size
    return int(match[1]), min(size, int(match[2]) + 1) if match[2] else size


def status(code: int, headers: Mapping[str, str] | None = None) -> Fault:
    """A fault: respond with the status ``code``."""

    def fault(handler: Exchange, data: bytes) -> bool:
        handler.reply(code, b"<Error>secret-signature</Error>", headers)
        return True

    return fault


def cut(after: int, headers: Mapping[str, str] | None = None) -> Fault:
    """A fault: send ``after`` bytes of the right response, then reset the connection."""

    def fault(handler: Exchange, data: bytes) -> bool:
        span = byte_span(handler.headers.get("Range"), len(data))
        start, stop = span or (0, len(data))
        handler.send_response(206 if span else 200)
        if span:
            handler.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(stop - start))
        handler.end_headers()
        handler.wfile.write(data[start:stop][:after])
        handler.wfile.flush()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        handler.close_connection = True
        time.sleep(0.05)  # the bytes must arrive before the reset, which discards unread bytes
        return True

    return fault


@contextlib.contextmanager
def running_storage() -> Iterator[Storage]:
    """A storage that serves requests while the block runs."""
    result = Storage()
    with HttpServer(result.answer) as server:
        result.server = server
        yield result


# --- tables ---


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def metadata(
    schema: pa.Schema | str, partition_columns: Sequence[str] = (), configuration: Mapping[str, str] | None = None
) -> Metadata:
    text = schema if isinstance(schema, str) else schema_to_json(from_arrow_schema(schema))
    return Metadata(
        "00000000-0000-0000-0000-000000000001",
        text,
        partition_columns=list(partition_columns),
        configuration=dict(configuration or {}),
    )


def table_state(metadata: Metadata, protocol: Protocol | None = None, **fields: Any) -> TableState:
    return TableState(
        **{"name": "share.schema.t", "version": None, "place": signed_urls(fast_options()), **fields},
        protocol=protocol or Protocol(1),
        metadata=metadata,
    )


def signed_urls(options: ReadOptions, urls: UrlSource | None = None) -> SignedUrls:
    """Return the place of files behind URLs of this machine."""
    return SignedUrls(options, Allowed(http=True, loopback=True), "share.schema.t", urls)


@dataclasses.dataclass
class Table:
    """A shared table on a ``Storage``: add files, then read them."""

    storage: Storage
    metadata: Metadata
    adds: list[SharedFile] = dataclasses.field(default_factory=list)

    def add(
        self,
        data: pa.Table | bytes,
        *,
        name: str | None = None,
        stats: Any = None,
        write: Any = None,
        removed: Sequence[int] | None = None,
        **fields: Any,
    ) -> SharedFile:
        """Add a file. The rows ``removed``, by default those deleted by an inline vector, get values that no read may
        evaluate.

        If ``data`` is a file, it has such values already; an empty ``removed`` keeps the rows unchanged.
        """
        name = name or f"part-{len(self.adds)}.parquet"
        vector = fields.get("deletion_vector")
        if vector is not None and removed is None:
            assert isinstance(data, pa.Table), "say which rows of the file are poisoned"
            assert vector.storage_type == "i", "say which rows the vector removes"
            positions = decode_inline(vector).positions()
            removed = positions[positions < len(data)].tolist()
        if isinstance(data, pa.Table):
            data = poisoned(data, removed or ())
        blob = data if isinstance(data, bytes) else parquet_bytes(data, **(write or {}))
        if stats is not None:
            fields["stats"] = json.dumps(stats)
        add = AddFile(path=self.storage.put(name, blob), size=len(blob), **fields)
        self.adds.append(SharedFile(add, f"id-{name}"))
        return self.adds[-1]

    def move(self, url: str) -> None:
        """Replace the URL of the last file with ``url``."""
        self.adds[-1] = replace(self.adds[-1], action=replace(self.adds[-1].action, path=url))

    def plan(self, *, options: ReadOptions | None = None, urls: Any = None, **request: Any) -> ScanPlan:
        if request.get("columns") is not None:
            request["columns"] = tuple(tuple(name.split(".")) for name in request["columns"])
        options = options or fast_options()
        table = table_state(self.metadata, Protocol(1), version=3, place=signed_urls(options, urls))
        return plan_snapshot(table, self.adds, ScanRequest(**request), options)

    def read(self, report: ScanReport | None = None, **request: Any) -> pa.Table:
        return rows_of(self.plan(**request), report)


def rows_of(plan: ScanPlan, report: ScanReport | None = None) -> pa.Table:
    batches = list(Batches(plan, report))
    for batch in batches:
        assert batch.schema.equals(plan.output_schema), "a batch does not have the planned schema"
        batch.validate(full=True)
    return pa.Table.from_batches(batches, plan.output_schema)


def fast_options(**changes: Any) -> ReadOptions:
    return ReadOptions(**{"max_attempts": 4, "max_retry_seconds": 10.0, "read_timeout": 5.0, **changes})


# --- long listings ---

ERROR = {"endStreamAction": {"errorMessage": "the listing broke", "httpStatusErrorCode": 400}}


def hold(server: LongListing, at: int) -> threading.Event:
    """Let ``server`` send the files before number ``at`` and then wait; set the returned event to continue."""
    released = threading.Event()

    def before(number: int) -> None:
        if number == at:
            released.wait(30)

    server.stops.add(at)
    server.before = before
    return released


def numbers(rows: pa.Table | pa.RecordBatch) -> list[int]:
    return [int(number) for number in rows["number"].to_pylist()]


def failing_consumer(batches: Iterator[pa.RecordBatch]) -> Future[BaseException]:
    """Read ``batches`` on a new thread. The returned future gets the exception that ends the read; it stays pending
    if none does."""
    result: Future[BaseException] = Future()

    def consume() -> None:
        try:
            for _ in batches:
                pass
        except BaseException as error:
            result.set_result(error)

    threading.Thread(target=consume, daemon=True).start()
    return result


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def interrupting(function: Callable[..., Any]) -> threading.Thread:
    """Start a thread that sends SIGINT to this thread as soon as it is in ``function``; return the sending thread."""
    target = threading.get_ident()

    def is_there() -> bool:
        frame = sys._current_frames().get(target)
        while frame is not None and frame.f_code is not function.__code__:
            frame = frame.f_back
        return frame is not None

    def send() -> None:
        wait_for(is_there)
        signal.pthread_kill(target, signal.SIGINT)

    result = threading.Thread(target=send, daemon=True)
    result.start()
    return result


def listing_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(("listing", "download", "decode"))]


def nothing_is_left(server: LongListing) -> None:
    """Assert that the threads have ended and that the server has noticed the closed connection."""
    wait_for(lambda: not listing_threads())
    if server.answers:
        # The server notices it only when it sends more.
        server.before = lambda number: None
        wait_for(lambda: not server.answers)
