"""Violations of the protocols: a server that breaks the sentence of one check of ``delta-sharing conformance`` alone.

The fault ``break-ID`` is the violation for the check called ``ID``. It changes requests before the server reads them,
or complete responses, so that the rest of the server stays as it is. The modules ``broken_*`` have the rows.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclasses.dataclass
class Asked:
    """A request. ``path`` has the prefix of the API; the names of ``headers`` are in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        """The body as a JSON object; empty if it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @document.setter
    def document(self, value: object) -> None:
        self.body = json.dumps(value).encode()


@dataclasses.dataclass
class Answer:
    """A response to ``asked``, as the client sent it. The names of ``headers`` are in lower case."""

    asked: Asked
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @document.setter
    def document(self, value: object) -> None:
        self.body = json.dumps(value).encode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of the body as JSON."""
        return [json.loads(line) for line in self.body.split(b"\n") if line]

    @lines.setter
    def lines(self, values: Iterable[object]) -> None:
        self.body = b"".join(json.dumps(value).encode() + b"\n" for value in values)

    @property
    def format(self) -> str:
        """The format of a table's response: ``parquet`` or ``delta``."""
        return "delta" if "responseformat=delta" in self.headers.get("delta-sharing-capabilities", "") else "parquet"


@dataclasses.dataclass(frozen=True)
class Violation:
    """A row of the table: the method and the end of the path (a pattern) of the requests that are answered wrongly.

    ``misread`` changes the request before the server reads it, ``spoil`` the response, if it has one of ``statuses``.
    """

    method: str
    path: re.Pattern[str]
    misread: Callable[[Asked], None] | None = None
    spoil: Callable[[Answer], None] | None = None
    statuses: tuple[int, ...] = (200,)

    def fits(self, asked: Asked) -> bool:
        """Return whether the violation is about a request."""
        return asked.method == self.method and self.path.search(asked.path) is not None


VIOLATIONS: dict[str, list[Violation]] = {}
SHARE = "/shares/[^/]+"
SCHEMA = f"{SHARE}/schemas/[^/]+"
TABLE = f"{SCHEMA}/tables/[^/]+"


def misreads(
    check: str, path: str, method: str = "GET"
) -> Callable[[Callable[[Asked], None]], Callable[[Asked], None]]:
    """Register a function that changes requests as a violation of ``check``; a check may have several."""

    def register(misread: Callable[[Asked], None]) -> Callable[[Asked], None]:
        VIOLATIONS.setdefault(check, []).append(Violation(method, re.compile(f"{path}$"), misread=misread))
        return misread

    return register


def spoils(
    check: str, path: str, method: str = "GET", statuses: tuple[int, ...] = (200,)
) -> Callable[[Callable[[Answer], None]], Callable[[Answer], None]]:
    """Register a function that changes responses as a violation of ``check``; a check may have several."""

    def register(spoil: Callable[[Answer], None]) -> Callable[[Answer], None]:
        pattern = re.compile(f"{path}$")
        VIOLATIONS.setdefault(check, []).append(Violation(method, pattern, spoil=spoil, statuses=statuses))
        return spoil

    return register


class Violating:
    """Wraps an ASGI application: applies the violations that ``active`` returns, by the ids of checks."""

    def __init__(self, app: ASGIApp, active: Callable[[], Iterable[str]]) -> None:
        self._app = app
        self._active = active

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        active = [each for check in self._active() for each in VIOLATIONS[check]]
        if not active:
            await self._app(scope, receive, send)
            return
        asked = await _asked(scope, receive)
        active = [each for each in active if each.fits(asked)]
        read = copy.deepcopy(asked)
        for each in active:
            if each.misread is not None:
                each.misread(read)
        answer = await self._answer(scope, asked, read)
        for each in active:
            if each.spoil is not None and answer.status in each.statuses:
                each.spoil(answer)
        # The answer to a HEAD request says how long the body would be.
        if asked.method != "HEAD" and answer.status != 204:
            answer.headers["content-length"] = str(len(answer.body))
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, asked: Asked, read: Asked) -> Answer:
        messages: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": read.body, "more_body": False}

        async def keep(message: Message) -> None:
            if message["type"] == "http.response.zerocopysend":
                message["file"].seek(message["offset"])
                message = {**message, "body": message["file"].read(message["count"])}
            messages.append(message)

        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in read.headers.items()]
        query = urlencode(read.query).encode()
        path = {} if read.path == asked.path else {"path": read.path, "raw_path": quote(read.path).encode()}
        await self._app({**scope, **path, "query_string": query, "headers": headers}, receive, keep)
        body = b"".join(message.get("body", b"") for message in messages[1:])
        return Answer(asked, messages[0]["status"], _text(messages[0]["headers"]), body)


async def _asked(scope: Scope, receive: Receive) -> Asked:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    first = {name: values[0] for name, values in query.items()}
    return Asked(scope["method"], scope["path"], first, _text(scope["headers"]), body)


def _text(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
