"""Hostile responses, which are endless, slow or malformed; most of them bypass HTTP framing.

The endless ones continue until the client closes the connection or the server stops.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable

from starlette.types import Scope, Send

from .connection import Connection
from .faults import Fault, FaultSet, Target

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson; charset=utf-8\r\n"
_FILLER = b"x" * 65536
# Between pieces, in seconds: without a pause, these few bytes would keep two cores busy.
_CONTINUE_PAUSE = 0.001
RAW_FAULTS = ("endless-headers", "endless-continue", "slow-headers", "bad-chunk", "endless-lines", "blank-lines")
PLAIN_FAULTS = ("redirect", "bad-redirect", "error-body")


async def respond(scope: Scope, send: Send, connection: Connection | None, faults: FaultSet, target: Target) -> bool:
    """Send the hostile response of an active fault; return whether there was one."""
    for name in PLAIN_FAULTS:
        fault = faults.take(name, target)
        if fault is not None:
            await _refuse(scope, send, fault)
            return True
    for name in RAW_FAULTS if connection is not None else ():
        fault = faults.take(name, target)
        if fault is not None:
            assert connection is not None
            pauses = {"slow-headers": fault.value, "endless-continue": _CONTINUE_PAUSE}
            await connection.pour(_pieces(fault), pause=pauses.get(name, 0.0))
            return True
    return False


def _pieces(fault: Fault) -> Iterable[bytes]:
    if fault.name == "endless-headers":
        return itertools.chain(
            [_HEAD], (b"X-Filler-%d: %s\r\n" % (number, b"x" * 1000) for number in itertools.count())
        )
    if fault.name == "endless-continue":
        return itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
    if fault.name == "slow-headers":
        return (bytes([byte]) for byte in itertools.chain(_HEAD, itertools.cycle(b"X-Filler: x\r\n")))
    if fault.name == "bad-chunk":
        return [_HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 100_000 + b"\r\n"]
    head = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    body = (
        b"\n" * 65536 if fault.name == "blank-lines" else b'{"file":{"id":"x","url":"http://127.0.0.1:9/x"}}\n' * 1000
    )
    return itertools.chain([head], itertools.repeat(b"%x\r\n%s\r\n" % (len(body), body)))


async def _refuse(scope: Scope, send: Send, fault: Fault) -> None:
    size = int(fault.value)
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % size)]
    if fault.name == "error-body":
        status = 503
    else:
        status = 307
        host = next((value for name, value in scope["headers"] if name == b"host"), b"127.0.0.1")
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        place = scope["scheme"].encode() + b"://" + host + scope["raw_path"] + query
        if fault.name == "bad-redirect":
            place = b"http://[::1"
        headers.append((b"location", place))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    left = 0 if scope["method"] == "HEAD" else size
    while left > 0:
        piece = _FILLER[: min(left, len(_FILLER))]
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})
