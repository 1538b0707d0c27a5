"""Serves data files like an object store: GET and HEAD of signed URLs, with ranges."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate, parsedate_to_datetime
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import Receive, Scope, Send

from .catalog import Catalog
from .connection import EXTENSION
from .faults import FaultSet, Target
from .signing import ABSOLUTE, SignatureProblem, Signer

_RANGE = re.compile(rb"bytes=(\d*)-(\d*)").fullmatch
# No file size has more digits, and Python refuses to parse thousands of digits.
_MAX_DIGITS = 18
_COPY_BYTES = 1 << 20

_PROBLEMS = {
    SignatureProblem.MISSING: ("AccessDenied", "Access Denied"),
    SignatureProblem.EXPIRED: ("AccessDenied", "Request has expired"),
    SignatureProblem.WRONG: (
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided.",
    ),
}


class FileServer:
    """An ASGI application for ``/data/<table id>/<path>`` and ``/absolute/<table id>/<path>``.

    The first form is for files in the table's directory. The second is for files anywhere on this machine, because a
    log may contain absolute paths. The server opens only paths that it has signed.
    """

    def __init__(self, catalog: Callable[[], Catalog], signer: Signer, faults: FaultSet) -> None:
        self._catalog = catalog
        self._given: Counter[Path] = Counter()
        self._known: Catalog | None = None
        self._roots: dict[str, Path] = {}
        self._signer = signer
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw_path: bytes = scope["raw_path"]
        if scope["method"] not in ("GET", "HEAD"):
            return await _refuse(
                scope, send, 405, "MethodNotAllowed", "The method is not allowed against this resource."
            )
        problem = self._signer.check(raw_path, scope["query_string"])
        if problem is not None:
            return await _refuse(scope, send, 403, *_PROBLEMS[problem])
        path = self._locate(raw_path)
        replaced = self._faults.take("replaced-after", Target.DATA)
        if replaced is not None and path is not None and scope["method"] == "GET":
            path = self._replaced(path, replaced.value)
        try:
            file = path.open("rb", buffering=0) if path is not None and path.is_file() else None
        except (OSError, ValueError):  # ValueError: a path with a null byte
            file = None
        if file is None:
            return await _refuse(scope, send, 404, "NoSuchKey", "The specified key does not exist.")
        with file:
            await self._respond(scope, send, file)
        return None

    def _locate(self, raw_path: bytes) -> Path | None:
        _, kind, table, rest = raw_path.split(b"/", 3)
        relative = os.fsdecode(unquote_to_bytes(rest))
        if kind == ABSOLUTE.encode():
            # A path of Windows begins with a drive.
            return Path(relative) if Path(relative).is_absolute() else Path("/" + relative)
        root = self._root(table.decode("latin-1"))
        return None if root is None else root / relative

    def _replaced(self, path: Path, after: float) -> Path:
        self._given[path] += 1
        return path.with_name(f"{path.name}.replaced") if self._given[path] > after else path

    def _root(self, table_id: str) -> Path | None:
        catalog = self._catalog()
        if catalog is not self._known:
            self._known, self._roots = catalog, {table.id: table.location for table in catalog.tables}
        return self._roots.get(table_id)

    async def _respond(self, scope: Scope, send: Send, file: FileIO) -> None:
        info = os.fstat(file.fileno())
        size = info.st_size
        validators = self._validators(info)
        given: dict[bytes, bytes] = dict(scope["headers"])
        if not _holds(given, validators):
            return await _refuse(
                scope, send, 412, "PreconditionFailed", "At least one of the preconditions you specified did not hold"
            )
        headers = [
            (b"content-type", b"application/octet-stream"),
            (b"accept-ranges", b"bytes"),
            *validators.items(),
        ]
        start, stop, status = 0, size, 200
        wanted = given.get(b"range")
        condition = given.get(b"if-range")
        if condition is not None and (condition.startswith(b"W/") or condition not in validators.values()):
            wanted = None  # RFC 9110, section 13.1.5: send the whole current file
        if wanted is not None and self._faults.take("ignore-range", Target.DATA) is None:
            span = _span(wanted, size)
            if span is None:
                extra = [(b"content-range", f"bytes */{size}".encode())]
                return await _refuse(scope, send, 416, "InvalidRange", "The requested range is not satisfiable", extra)
            if span != (-1, -1):
                start, stop = span
                status = 206
                headers.append((b"content-range", f"bytes {start}-{stop - 1}/{size}".encode()))
        headers.append((b"content-length", str(stop - start).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["method"] == "GET" and stop > start:
            await _send_body(scope, send, file, start, stop)
        await send({"type": "http.response.body", "body": b""})
        return None

    def _validators(self, info: os.stat_result) -> dict[bytes, bytes]:
        """Return the ``ETag`` and ``Last-Modified`` headers of a file, unless a fault omits them."""
        found: dict[bytes, bytes] = {}
        if self._faults.take("no-etag", Target.DATA) is None:
            weak = b"W/" if self._faults.take("weak-etag", Target.DATA) is not None else b""
            found[b"etag"] = weak + f'"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}"'.encode()
        if self._faults.take("no-last-modified", Target.DATA) is None:
            found[b"last-modified"] = formatdate(info.st_mtime, usegmt=True).encode()
        return found


def _holds(given: dict[bytes, bytes], validators: dict[bytes, bytes]) -> bool:
    """Return whether the preconditions of a request hold (RFC 9110, sections 13.1.1 and 13.1.4). A weak tag never
    matches."""
    if b"if-match" in given:
        tag = validators.get(b"etag", b"W/")
        wanted = [item.strip() for item in given[b"if-match"].split(b",")]
        return wanted == [b"*"] or (not tag.startswith(b"W/") and tag in wanted)
    if b"if-unmodified-since" in given:
        try:
            limit = parsedate_to_datetime(given[b"if-unmodified-since"].decode("latin-1"))
            changed = parsedate_to_datetime(validators[b"last-modified"].decode())
            return changed.timestamp() <= limit.timestamp()
        except (ValueError, TypeError, KeyError, OverflowError):
            return True
    return True


async def _send_body(scope: Scope, send: Send, file: FileIO, start: int, stop: int) -> None:
    if EXTENSION in scope.get("extensions", {}):
        await send(
            {
                "type": "http.response.zerocopysend",
                "file": file,
                "offset": start,
                "count": stop - start,
                "more_body": True,
            }
        )
        return
    while start < stop:
        file.seek(start)
        data = file.read(min(_COPY_BYTES, stop - start))
        if not data:
            raise ConnectionError("the file became shorter while it was sent")
        start += len(data)
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _span(header: bytes, size: int) -> tuple[int, int] | None:
    """Return the start and stop of a Range header; ``None`` if it cannot be satisfied, (-1, -1) if it must be
    ignored."""
    match = _RANGE(header.strip())
    if match is None:
        return -1, -1  # several ranges, or another unit: RFC 9110 allows the whole file
    first, last = match.groups()
    if not first:
        if not last:
            return -1, -1
        length = min(_number(last), size)
        return (size - length, size) if length else None
    start = _number(first)
    stop = min(_number(last) + 1, size) if last else size
    if last and _number(last) < start:
        return -1, -1
    return (start, stop) if start < size else None


def _number(digits: bytes) -> int:
    digits = digits.lstrip(b"0")
    return int(digits or b"0") if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS


async def _refuse(
    scope: Scope, send: Send, status: int, code: str, message: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    ).encode()
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": status,
        "headers": [
            (b"content-type", b"application/xml"),
            (b"content-length", str(len(body)).encode()),
            *(headers or []),
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
