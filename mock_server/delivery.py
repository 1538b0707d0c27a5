"""Sends every response: applies latency, bandwidth and the faults of its status and body, and counts it."""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import hostile
from .connection import EXTENSION, Connection
from .faults import FaultSet, Target
from .stats import Stats
from .throttle import Throttle

_STATUS_FAULTS = (
    ("503-first", 503),
    ("500-first", 500),
    ("429-retry-after", 429),
    ("throttle", 429),
    ("401-first", 401),
)
_CODES = {503: "TEMPORARILY_UNAVAILABLE", 500: "INTERNAL_ERROR", 429: "RESOURCE_EXHAUSTED", 401: "UNAUTHENTICATED"}
_REASONS = {200: b"OK", 206: b"Partial Content"}


class Delivery:
    """Wraps an ASGI application; one instance for the REST API and the data files.

    ``describe`` returns the kind of a request for the statistics, and its data file, if any.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        stats: Stats,
        faults: FaultSet,
        latency: float,
        bandwidth: float | None,
        describe: Callable[[Scope], tuple[str, str | None]],
    ) -> None:
        self._app = app
        self._stats = stats
        self._faults = faults
        self._latency = latency
        self._throttle = Throttle(bandwidth) if bandwidth else None
        self._describe = describe
        self._active = dict.fromkeys(Target, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind, file = self._describe(scope)
        target = Target.DATA if file is not None else Target.API
        sending = _Sending(scope, send, self._faults, target, self._throttle)
        client = scope.get("client")
        self._stats.begin(kind, None if client is None else tuple(client))
        self._active[target] += 1
        try:
            if self._latency:
                await asyncio.sleep(self._latency)
            if not await self._spoil(scope, sending, target):
                await self._app(scope, receive, sending.send)
        except ConnectionError:
            sending.close()
        finally:
            self._active[target] -= 1
            self._stats.end(kind, sending.status, sending.sent, file)

    async def _spoil(self, scope: Scope, sending: _Sending, target: Target) -> bool:
        send = sending.send
        for name, status in _STATUS_FAULTS:
            fault = self._faults.take(name, target, active=self._active[target] if name == "throttle" else None)
            if fault is None:
                continue
            body = f'{{"errorCode":"{_CODES[status]}","message":"fault {name}"}}'.encode()
            headers = [(b"content-type", b"application/json; charset=utf-8"), (b"content-length", b"%d" % len(body))]
            if status == 429:
                headers.append((b"retry-after", b"%d" % (1 if name == "throttle" else math.ceil(fault.value))))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
            return True
        return await hostile.respond(scope, send, sending.connection, self._faults, target)


class _Sending:
    """Sends one response: counts it, delays it and applies the faults of its body."""

    def __init__(self, scope: Scope, send: Send, faults: FaultSet, target: Target, throttle: Throttle | None) -> None:
        self.status = 0
        self.sent = 0
        self._scope = scope
        self._send = send
        self._faults = faults
        self._target = target
        self._throttle = throttle
        self.connection: Connection | None = scope.get("extensions", {}).get(EXTENSION)
        self._spoilt: _SpoiltBody | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.status in _REASONS and self._scope["method"] != "HEAD":
                self._spoilt = _SpoiltBody.take(self._faults, self._target)
                slow = self._faults.take("slow", self._target)
                if self._spoilt is not None:
                    self._spoilt.start = message
                    return
                await self._send(message)
                # A response without a body is complete, so the client may reuse the connection.
                if slow is not None and (b"content-length", b"0") not in message["headers"]:
                    await asyncio.sleep(slow.value)
                return
            await self._send(message)
        elif self._spoilt is not None and self.connection is not None:
            await self._spoilt.add(message, self.connection, self._write)
        elif message["type"] == "http.response.zerocopysend":
            await self._send_file(message)
        else:
            body: bytes = message.get("body", b"")
            if self._throttle is None or len(body) <= self._throttle.piece:
                await self._write(body)
                await self._send(message)
            else:
                await self._send_pieces(body, message.get("more_body", False))

    async def _write(self, body: bytes) -> None:
        """Count ``body``, which is about to be sent."""
        if self._throttle is not None and body:
            await self._throttle.wait(len(body))
        self.sent += len(body)

    async def _send_pieces(self, body: bytes, more: bool) -> None:
        assert self._throttle is not None
        view, piece = memoryview(body), self._throttle.piece
        for start in range(0, len(body), piece):
            part = view[start : start + piece]
            await self._throttle.wait(len(part))
            await self._send({"type": "http.response.body", "body": bytes(part), "more_body": True})
            self.sent += len(part)
        await self._send({"type": "http.response.body", "body": b"", "more_body": more})

    async def _send_file(self, message: Message) -> None:
        assert self.connection is not None
        file, offset, count = message["file"], message["offset"], message["count"]
        if self._throttle is None:
            await self.connection.send_file(file, offset, count)
            self.sent += count
            return
        while count:
            piece = min(count, self._throttle.piece)
            await self._throttle.wait(piece)
            await self.connection.send_file(file, offset, piece)
            offset, count = offset + piece, count - piece
            self.sent += piece


class _SpoiltBody:
    """Collects a body with a fault, and sends the part that should arrive."""

    def __init__(self, faults: dict[str, float]) -> None:
        self.start: Message = {}
        self._faults = faults
        self._body = bytearray()

    @classmethod
    def take(cls, faults: FaultSet, target: Target) -> _SpoiltBody | None:
        """Return the object that applies the active faults to this response, or ``None`` without faults."""
        names = ("truncate-body", "cut-connection-after", "wrong-content-length", "close-delimited", "lose-lines",
                 "corrupt-body", "gzip", "cut-gzip", "cut-chunked", "trickle")  # fmt: skip
        found = {name: fault.value for name in names if (fault := faults.take(name, target)) is not None}
        return cls(found) if found else None

    async def add(self, message: Message, connection: Connection, account: Callable[[bytes], Awaitable[None]]) -> None:
        """Add the next message of the body; after the last one, send the response and end the connection."""
        if message["type"] == "http.response.zerocopysend":
            message["file"].seek(message["offset"])
            self._body += message["file"].read(message["count"])
        else:
            self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        body, promised = bytes(self._body), len(self._body)
        if "lose-lines" in self._faults:
            lines = body.splitlines(keepends=True)  # bytes are split only at CR and LF, and JSON contains no raw CR
            body = b"".join(lines[: max(0, len(lines) - int(self._faults["lose-lines"]))])
            promised = len(body)
        if "corrupt-body" in self._faults and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 0x01]) + body[middle + 1 :]
        for name in ("gzip", "cut-gzip"):
            if name in self._faults:
                body = _gzip(body, self._faults[name] if name == "cut-gzip" else None)
                promised = len(body)
        promised += int(self._faults.get("wrong-content-length", 0))
        keep = len(body)
        if "truncate-body" in self._faults:
            keep = int(keep * min(1.0, self._faults["truncate-body"]))
        if "cut-connection-after" in self._faults:
            keep = min(keep, int(self._faults["cut-connection-after"]))
        await account(body[:keep])
        connection.write_raw(self._head(promised))
        if "cut-chunked" in self._faults:
            connection.write_raw(b"%x\r\n%s" % (promised, body[: keep // 2]))
        elif "trickle" in self._faults:
            await connection.pour((body[at : at + 1] for at in range(keep)), pause=self._faults["trickle"])
        else:
            connection.write_raw(body[:keep])
        if "cut-connection-after" in self._faults:
            await connection.reset()
        else:
            connection.close()

    def _head(self, promised: int) -> bytes:
        status: int = self.start["status"]
        headers: list[Any] = [pair for pair in self.start["headers"] if pair[0].lower() != b"content-length"]
        headers.append((b"connection", b"close"))
        if "gzip" in self._faults or "cut-gzip" in self._faults:
            headers.append((b"content-encoding", b"gzip"))
        if "cut-chunked" in self._faults:
            headers.append((b"transfer-encoding", b"chunked"))
        elif "close-delimited" not in self._faults:
            headers.append((b"content-length", b"%d" % promised))
        head = b"HTTP/1.1 %d %s\r\n" % (status, _REASONS[status])
        return head + b"".join(b"%s: %s\r\n" % (name, value) for name, value in headers) + b"\r\n"


def _gzip(body: bytes, kept: float | None) -> bytes:
    """Return ``body`` compressed. With ``kept``, the result has only this fraction of the lines, and no trailer."""
    packer = zlib.compressobj(wbits=31)
    lines = body.splitlines(keepends=True)
    if kept is None:
        return packer.compress(body) + packer.flush()
    return packer.compress(b"".join(lines[: int(len(lines) * kept)])) + packer.flush(zlib.Z_SYNC_FLUSH)
