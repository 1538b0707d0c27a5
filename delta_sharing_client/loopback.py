"""A server of this machine for one user: it listens on the loopback address, and refuses requests from elsewhere.

Other users and programs on this machine can reach its ports, and every page that a browser shows can send requests
there. So ``foreign`` checks where a request comes from, and a server demands a secret besides.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from types import FrameType
from typing import Any, Literal

import uvicorn

from delta_sharing_client.errors import UsageError
from delta_sharing_client.threads import start

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST = "127.0.0.1"

_START_SECONDS = 30.0
_END_SECONDS = 0.35
_LISTEN_SECONDS = 0.2
# The signals of Ctrl-C and of other ways to end the program, such as a closed terminal or a stopped service.
_ENDS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


# === Requests ===


class Headers:
    """The headers of a request."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._pairs = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in pairs]

    def all(self, name: str) -> list[str]:
        """Return all values of a header."""
        return [value for header, value in self._pairs if header == name]

    def only(self, name: str) -> str | None:
        """Return the value of a header that occurs exactly once, otherwise ``None``."""
        values = self.all(name)
        return values[0] if len(values) == 1 else None


def foreign(headers: Headers, port: int, *, needs_origin: bool) -> str | None:
    """Return why a request cannot come from this machine's user, whatever secrets it has; ``None`` if it can.

    ``port`` is the server's. Programs send no origin, and pages only their own; ``needs_origin`` refuses programs.
    """
    host = headers.only("host")
    if host is None or host.lower() not in (f"{HOST}:{port}", f"localhost:{port}"):
        # If a different host name resolves to this machine, a page is trying to get the same origin (DNS rebinding).
        return "Only requests to the address of this machine are accepted."
    origins = headers.all("origin")
    if origins not in ([], [f"http://{host}"]) or (not origins and needs_origin):
        return "Only requests of the page at this address are accepted."
    return None


def is_equal(received: str, expected: str) -> bool:
    """Return whether a secret is the expected one, in a time that does not depend on where they differ."""
    return hmac.compare_digest(received.encode(), expected.encode())


async def respond(send: Send, status: int, text: str, headers: MutableMapping[str, str] | None = None) -> None:
    """Send a response with one line of text, or with none (ASGI)."""
    body = f"{text}\n".encode() if text else b""
    all_headers = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), **(headers or {})}
    pairs = [(name.encode(), value.encode()) for name, value in all_headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


# === The server ===


@contextlib.contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Listen on a port of this machine, 0 for any free one, during the block. Raises ``UsageError`` if it cannot."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as listening:
        # On Windows, this option would let another program take over the port.
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "it is not a port"
            raise UsageError(
                f"The server cannot use port {port}: {reason}. Choose a different --port, or omit it to use a free one."
            ) from None
        listening.listen()
        yield listening


@contextlib.contextmanager
def serving(app: App, socket_: socket.socket, *, lifespan: Literal["on", "off"] = "off") -> Iterator[None]:
    """Serve ``app`` on a thread during the block, and close its connections at the end. ``lifespan`` tells whether the
    app is told of the start and the end (ASGI)."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan=lifespan,
        log_config=None,
        log_level=logging.CRITICAL,
        proxy_headers=False,
        server_header=False,
    )
    server = uvicorn.Server(config)
    thread = start(lambda: server.run(sockets=[socket_]), "delta-sharing-loopback")
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise UsageError("The server did not start. Try a different --port.")
        time.sleep(0.005)
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(_END_SECONDS)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and a closed terminal set."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        # The previous handler is restored, so that a second signal has its usual effect.
        signal.signal(number, before[number])

    numbers = [number for name in _ENDS if (number := getattr(signal, name, None)) is not None]
    # An ignored signal (nohup) stays ignored.
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait(ended: threading.Event) -> None:
    """Wait for ``ended``."""
    # Each wait is short, because on Windows Ctrl-C does not interrupt a wait.
    while not ended.wait(_LISTEN_SECONDS):
        pass
