"""Ask places for bytes and listings in tests, with and without the engine that repeats requests."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from delta_sharing_client.fetch.listing import list_pages
from delta_sharing_client.fetch.place import Body, DataRequest, Page, Place, Refused, Span, Take, Version, Wanted
from delta_sharing_client.fetch.source import Fetcher
from delta_sharing_client.http.retry import Deadline
from delta_sharing_client.options import ReadOptions


def get(
    place: Place, path: str, wanted: Wanted = None, version: Version | None = None, seconds: float | None = None
) -> tuple[bytes, Span, Version]:
    """Send one request, and return the content of the response."""
    received: list[tuple[bytes, Span, Version]] = []

    async def take(body: Body) -> None:
        data = b""
        while piece := await body.read():
            data += piece
        received.append((data, body.span, body.version))

    asyncio.run(place.get(DataRequest(path, wanted, Deadline(seconds), version), take))
    return received[-1]


def pages(place: Place, folder: str = "", *, recursive: bool = True) -> list[Page]:
    """Return all pages of a listing."""

    async def listed() -> list[Page]:
        return [page async for page in list_pages(Fetcher(place), folder, recursive=recursive, subject="volume a.b.c")]

    return asyncio.run(listed())


def paths(place: Place, folder: str = "", *, recursive: bool = True) -> list[str]:
    """Return the paths of all files in a listing."""
    return [file.path for page in pages(place, folder, recursive=recursive) for file in page.files]


class Sent:
    """An open response with some bytes, in pieces; ``error`` ends it early."""

    checksum = modified = None

    def __init__(
        self, span: Span, data: bytes, version: Version, *, piece: int = 30, error: Exception | None = None
    ) -> None:
        self.span, self.version = span, version
        self._pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
        self._error = error

    async def read(self) -> bytes:
        if not self._pieces and self._error is not None:
            raise self._error
        return self._pieces.pop(0) if self._pieces else b""


@dataclasses.dataclass
class Scripted:
    """A place that returns ``answers`` in order: statuses, errors, ``Sent`` responses and pages."""

    answers: list[Any]
    options: ReadOptions = dataclasses.field(default_factory=lambda: ReadOptions(max_attempts=3))
    table: str | None = None
    location: str = "file:///there"
    lists_in_order: bool = True
    urls: None = None
    asked: list[tuple[Any, ...]] = dataclasses.field(default_factory=list)
    before: Callable[[], None] = lambda: None

    async def get(self, request: DataRequest, take: Take) -> None:
        self.asked.append((request.address, request.wanted, request.version))
        await take(self._next())

    async def page(self, folder: str, mark: str | None, deadline: Deadline, *, recursive: bool) -> Page:
        self.asked.append((folder, mark, recursive))
        page: Page = self._next()
        return page

    def _next(self) -> Any:
        self.before()
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            raise Refused(answer, None)
        if isinstance(answer, Exception):
            raise answer
        return answer
