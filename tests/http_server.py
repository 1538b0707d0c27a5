"""The HTTP server of tests: a function answers each request, on a free port of this machine."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from benchmarks.long_listing import Server


class Exchange(BaseHTTPRequestHandler):
    """A request, and the way to answer it: ``reply``, or the methods and ``wfile`` of the base class.

    The path is in ``path``, the body in ``content``.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: HttpServer
    content: bytes

    def do_GET(self) -> None:
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.server.answer(self)
        except OSError:  # the client has closed the connection
            self.close_connection = True

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response; for ``HEAD`` without the body."""
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class HttpServer(Server):
    """Calls ``answer`` for each request, on a thread for each connection, until it is closed."""

    def __init__(self, answer: Callable[[Any], object], context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.answer = answer
        self.connections = 0
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.host = f"127.0.0.1:{self.server_port}"
        self.url = f"{'http' if context is None else 'https'}://{self.host}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_request(self) -> tuple[socket.socket, Any]:
        self.connections += 1
        return super().get_request()
