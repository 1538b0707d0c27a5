"""A sharing server with long listings. The name of a table contains the number of its files.

``share.schema.files-1000000`` has a million files, and a change feed in which each version adds some of them.
``share.schema.signed-1000000`` has as many, with names, ids and URLs that are as long and random as in S3. The server
generates each line when it sends it, stores no lines, and counts them. All files have the same few rows. It is for
benchmarks and tests of long listings, and listens only on the loopback interface: ``python -m benchmarks.long_listing
--profile-out FILE``.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.server
import io
import json
import pathlib
import re
import socket
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 10
"""The number of rows in every file; ``id`` starts at 0."""
FIRST_COMMIT = 1_700_000_000_000
"""The time of version 0 in milliseconds since the epoch; each version is a millisecond after the previous one."""
_HEAD_BYTES = 64 * 1024
_SIGNING = (
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=an-access-key-of-20%2F20260101%2Fus-east-1%2Fs3%2Faws4_request"
    "&X-Amz-Date=20260101T000000Z&X-Amz-Expires=3600&X-Amz-SignedHeaders=host"
)
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "number", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
)


class LongListing:
    """The server. Its attributes let a test change the responses.

    Attributes
    ----------
    delta, promises_end:
        Whether the responses are in delta format, and whether their header promises an ``endStreamAction``.
    page:
        Files per page; ``None`` for one page.
    before:
        Called with the number of each file before its line is sent, and with the number of all files before the end. If
        the number is in ``stops``, all earlier lines have been sent by then. If it raises ``ConnectionError``, the
        connection is closed.
    end:
        The last line of the last page; ``None`` omits it.
    files_a_version:
        The number of files that each version of a change feed adds.
    lines, answers, listed, data, queries, feeds:
        File lines sent, responses with lines in progress, complete ones, requests for data, bodies of queries, and
        parameters of requests for changes.
    """

    def __init__(
        self, *, delta: bool = True, page: int | None = None, promises_end: bool = True, files_a_version: int = 100
    ) -> None:
        self.delta = delta
        self.page = page
        self.files_a_version = files_a_version
        self.promises_end = promises_end
        self.before: Callable[[int], None] = lambda number: None
        self.stops: set[int] = set()
        self.end: dict[str, Any] | None = {"endStreamAction": {}}
        self.token = "a-token-of-this-listing"
        self.lines = self.answers = self.listed = self.data = self.metadata = self.connections = 0
        self.queries: list[dict[str, Any]] = []
        self.feeds: list[dict[str, str]] = []
        self.lock = threading.Lock()
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": range(ROWS)}), sink)
        self.file = sink.getvalue()
        self._server = Server(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.profile = {"shareCredentialsVersion": 1, "endpoint": self.endpoint, "bearerToken": self.token}

    def __enter__(self) -> LongListing:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, **counts: int) -> None:
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def stats(self) -> dict[str, Any]:
        """Return the counters in the format of the mock server."""
        return {
            "requests": {"data": self.data, "query": len(self.queries), "metadata": self.metadata},
            "bytes": {"data": self.data * len(self.file)},
            "statuses": {},
            "connections": self.connections,
            "lines": self.lines,
        }

    def reset(self) -> None:
        with self.lock:
            self.lines = self.listed = self.data = self.metadata = self.connections = 0
            self.queries.clear()
            self.feeds.clear()

    def head(self) -> list[dict[str, Any]]:
        """Return the first two lines of a response."""
        table = {"id": "00000000-0000-0000-0000-00000000000a", "format": {"provider": "parquet"}}
        table |= {"schemaString": _SCHEMA, "partitionColumns": ["number"], "configuration": {}}
        if self.delta:
            protocol = {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
            return [{"protocol": protocol}, {"metaData": {"deltaMetadata": table}}]
        return [{"protocol": {"minReaderVersion": 1}}, {"metaData": table}]

    def line(self, number: int, version: int | None = None, *, signed: bool = False) -> bytes:
        """Return the line that lists a file or, with ``version``, the line of a change feed that adds it."""
        url, size, name = f"{self.endpoint}/files/part-{number:08d}.parquet", len(self.file), f"{number:032x}"
        if signed:
            random = hashlib.sha512(str(number).encode()).hexdigest()
            url = f"{self.endpoint}/files/part-{number % 200:05d}-{random[:32]}-c000.snappy.parquet"
            name = hashlib.sha256(url.encode()).hexdigest()
            url += f"?{_SIGNING}&X-Amz-Signature={random[64:]}"
        else:
            url += "?X-Amz-Signature=secret"
        stats = f'{{\\"numRecords\\":{ROWS},\\"minValues\\":{{\\"id\\":0}},\\"maxValues\\":{{\\"id\\":{ROWS - 1}}}}}'
        about = f'"partitionValues":{{"number":"{number}"}},"size":{size},"stats":"{stats}"'
        if version is not None:
            about += f',"version":{version},"timestamp":{FIRST_COMMIT + version}'
        if self.delta:
            dated = "" if version is None else f'"version":{version},"timestamp":{FIRST_COMMIT + version},'
            add = f'{{"add":{{"path":"{url}",{about},"modificationTime":0,"dataChange":true}}}}'
            return f'{{"file":{{{dated}"id":"{name}","size":{size},"deltaSingleAction":{add}}}}}\n'.encode()
        kind = "file" if version is None else "add"
        return f'{{"{kind}":{{"url":"{url}","id":"{name}",{about}}}}}\n'.encode()

    def chunks(self, files: int, first: int, *, is_feed: bool = False, signed: bool = False) -> Iterator[bytes]:
        """Yield the body of a response from file ``first`` up to ``files``, in chunks."""
        stop = files if self.page is None or is_feed else min(files, first + self.page)
        made = [json.dumps(line).encode() + b"\n" for line in self.head()]
        size = lines = 0
        for number in range(first, stop + 1):
            if number in self.stops and made:
                yield b"".join(made)
                self.add(lines=lines)
                made, size, lines = [], 0, 0
            self.before(number)
            if number == stop:
                break
            made.append(self.line(number, number // self.files_a_version if is_feed else None, signed=signed))
            size += len(made[-1])
            lines += 1
            if size >= _HEAD_BYTES:
                yield b"".join(made)
                self.add(lines=lines)
                made, size, lines = [], 0, 0
        self.add(lines=lines)
        if stop < files:
            made.append(json.dumps({"endStreamAction": {"nextPageToken": str(stop)}}).encode() + b"\n")
        elif self.end is not None:
            made.append(json.dumps(self.end).encode() + b"\n")
        yield b"".join(made)


class Server(http.server.ThreadingHTTPServer):
    """A server for clients that disconnect at any time; closing it closes its connections.

    Otherwise, each connection that a client keeps for its next request would keep a thread of a closed server.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error, because clients are expected to disconnect."""

    def get_request(self) -> tuple[socket.socket, Any]:
        """Remember the connection."""
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the server and its connections."""
        super().server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _handler(listing: LongListing) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            listing.add(connections=1)

        def log_message(self, *arguments: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path.startswith("/files/"):
                listing.add(data=1)
                self._file(listing.file)
            elif self.path.startswith("/_stats"):
                self._send(json.dumps(listing.stats()).encode(), "application/json")
            elif self.path.split("?")[0] == "/shares":
                self._send(b'{"items":[{"name":"s"}]}', "application/json")
            elif "/changes?" in self.path:
                asked = dict(urllib.parse.parse_qsl(self.path.partition("?")[2]))
                with listing.lock:
                    listing.feeds.append(asked)
                start, latest = int(asked["startingVersion"]), (self._files() - 1) // listing.files_a_version
                end = min(int(asked.get("endingVersion", latest)), latest)
                stop = min(self._files(), (end + 1) * listing.files_a_version)
                self._answer(listing.chunks(stop, start * listing.files_a_version, is_feed=True), start)
            elif "/version" in self.path:
                self._send(b"", version=(self._files() - 1) // listing.files_a_version)
            elif "/metadata" in self.path:
                listing.add(metadata=1)
                ended = [listing.end] if listing.promises_end and listing.end is not None else []
                self._send(b"".join(json.dumps(line).encode() + b"\n" for line in [*listing.head(), *ended]))
            else:
                self._send(b"{}", "application/json", 404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.startswith("/_stats"):
                listing.reset()
                self._send(b"{}", "application/json")
                return
            asked = json.loads(body)
            with listing.lock:
                listing.queries.append(asked)
            signed = "/tables/signed-" in self.path
            self._answer(listing.chunks(self._files(), int(asked.get("pageToken") or 0), signed=signed))

        def _files(self) -> int:
            return int((re.search(r"/tables/[a-z]+-(\d+)/", self.path) or [0, 0])[1])

        def _answer(self, chunks: Iterator[bytes], version: int = 3) -> None:
            listing.add(answers=1)
            try:
                self._head(200, "application/x-ndjson", ("Transfer-Encoding", "chunked"), version=version)
                for chunk in chunks:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
                listing.add(listed=1)
            except OSError:
                self.close_connection = True
            finally:
                listing.add(answers=-1)

        def _file(self, data: bytes) -> None:
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
            if match is None:
                self._send(data, "application/octet-stream")
                return
            start = int(match[1]) if match[1] else max(0, len(data) - int(match[2]))
            stop = min(len(data), int(match[2]) + 1) if match[1] and match[2] else len(data)
            about = ("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            self._head(206, "application/octet-stream", ("Content-Length", str(stop - start)), about)
            self.wfile.write(data[start:stop])

        def _send(
            self, data: bytes, kind: str = "application/x-ndjson", status: int = 200, *, version: int = 3
        ) -> None:
            self._head(status, kind, ("Content-Length", str(len(data))), version=version)
            self.wfile.write(data)

        def _head(self, status: int, kind: str, *headers: tuple[str, str], version: int = 3) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Delta-Table-Version", str(version))
            capabilities = f"responseformat={'delta' if listing.delta else 'parquet'}"
            if listing.promises_end:
                capabilities += ";includeendstreamaction=true"
            self.send_header("delta-sharing-capabilities", capabilities)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile-out", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    with LongListing() as listing, contextlib.suppress(KeyboardInterrupt):
        partial = arguments.profile_out.with_suffix(".part")
        partial.write_text(json.dumps(listing.profile), encoding="utf-8")
        partial.rename(arguments.profile_out)
        # This runs until the parent process ends it or closes standard input.
        sys.stdin.read()


if __name__ == "__main__":
    main()
