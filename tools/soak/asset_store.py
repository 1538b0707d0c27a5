"""An S3 server that generates its content: a listing of any length, and a file of any size.

    python -m tools.soak.asset_store --files 1000000 --bytes 10000000000

``many/`` has ``--files`` files of 8 bytes, ``one/file.bin`` has ``--bytes`` bytes. The first line on stdout is the
port; the number of sent bytes is at ``/sent``.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

BLOCK = 1024 * 1024
PAGE = 1000
LARGE = "one/file.bin"
_FILLING = bytes(range(256)) * (BLOCK // 256)
_WHEN = "2026-11-02T00:00:00.000Z"


def block(number: int) -> bytes:
    """Return a block of the large file. No two blocks are equal."""
    return number.to_bytes(8, "big") + _FILLING[8:]


def key(number: int) -> str:
    """Return the key of a small file; the keys have the order of the numbers."""
    return f"many/{number // 1000:05}/{number:08}.bin"


def content(number: int) -> bytes:
    """Return the content of a small file."""
    return number.to_bytes(8, "big")


class Handler(BaseHTTPRequestHandler):
    """Responds to requests for any bucket and ignores signatures."""

    protocol_version = "HTTP/1.1"
    sent = 0

    def __init__(self, files: int, size: int, *args: object) -> None:
        self._files, self._size = files, size
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query, keep_blank_values=True)
        path = unquote(parts.path).lstrip("/").partition("/")[2]
        if parts.path == "/sent":
            self._answer(200, str(Handler.sent).encode())
        elif "list-type" in asked:
            self._list(asked)
        elif path == LARGE:
            self._bytes(self._size)
        elif (match := re.fullmatch(r"many/\d{5}/(\d{8})\.bin", path)) and int(match[1]) < self._files:
            self._bytes(8, int(match[1]))
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    do_HEAD = do_GET

    def _list(self, asked: dict[str, list[str]]) -> None:
        """A continuation token is the number of the next file."""
        if asked.get("prefix", [""])[0].startswith("one"):
            names, more, size = [LARGE], 0, self._size
        else:
            start = int(asked.get("continuation-token", ["0"])[0])
            after = re.fullmatch(r"many/\d{5}/(\d{8})\.bin", asked.get("start-after", [""])[0])
            if after is not None and "continuation-token" not in asked:
                start = int(after[1]) + 1
            stop = min(self._files, start + PAGE)
            names, more, size = [key(number) for number in range(start, stop)], stop % self._files, 8
        entries = "".join(
            f"<Contents><Key>{name}</Key><LastModified>{_WHEN}</LastModified><ETag>&quot;1-1&quot;</ETag>"
            f"<Size>{size}</Size></Contents>"
            for name in names
        )
        token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
        head = f"<KeyCount>{len(names)}</KeyCount><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{token}"
        self._answer(200, f"<ListBucketResult>{head}{entries}</ListBucketResult>".encode())

    def _bytes(self, size: int, number: int | None = None) -> None:
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start, stop = 0, size
        if match is not None:
            start, stop = int(match[1]), min(size, int(match[2]) + 1 if match[2] else size)
        self.send_response(200 if match is None else 206)
        if match is not None:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self._head(stop - start)
        if self.command == "HEAD":
            return
        if number is not None:
            self.wfile.write(content(number)[start:stop])
        while number is None and start < stop:
            offset = start % BLOCK
            data = memoryview(block(start // BLOCK))[offset : offset + stop - start]
            self.wfile.write(data)
            start += len(data)
            Handler.sent += len(data)

    def _head(self, length: int) -> None:
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1-1"')
        self.send_header("Last-Modified", "Mon, 02 Nov 2026 00:00:00 GMT")
        self.end_headers()

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self._head(len(data))
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """A server that does not log connections that a killed client has broken."""

    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.soak.asset_store", description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=10_000_000_000)
    given = parser.parse_args()
    server = Server(("127.0.0.1", 0), partial(Handler, given.files, given.bytes))
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
