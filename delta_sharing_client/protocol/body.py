"""The body of a response, decoded in pieces as they arrive, checked to the end, limited in size, and split into lines.

An error response becomes an exception (protocol: 4xx and 5xx responses have ``errorCode`` and ``message``).
"""

from __future__ import annotations

import dataclasses
import functools
import html
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from delta_sharing_client.errors import (
    AuthError,
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    RequestError,
    TransportError,
)
from delta_sharing_client.network import content_codings
from delta_sharing_client.protocol.messages import error_of
from delta_sharing_client.protocol.watch import library_errors, network_failure
from delta_sharing_client.redact import MASK, scrub
from delta_sharing_client.retry import Transient

if TYPE_CHECKING:
    import requests

# The encodings that ``body_chunks`` decodes, for the ``Accept-Encoding`` header.
ACCEPTED_ENCODINGS = "gzip, deflate"
_DECODED = ("gzip", "x-gzip", "deflate")
MAX_LINE_BYTES = 256 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_INFLATED_BYTES = 1024 * 1024
# The first bytes of a body, up to this many, are passed on as they arrive; later ones in pieces of at least this size.
_AT_ONCE, _BULK = 8 * 1024 * 1024, 256 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOT_FOUND_CODE = "RESOURCE_DOES_NOT_EXIST"
_MAX_CODE = 100
_MAX_SHOWN = 500
_MAX_KEPT = 16_384
# Databricks ends its messages with this id; its support asks for the id.
_TRACE = re.compile(r"\[Trace Id: [^\]]{1,200}\]")

# The first characters of JSON and HTML.
_PLAIN = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[<]")
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>|<h1[^>]*>(.*?)</h1>", re.IGNORECASE | re.DOTALL)
_HTML = re.compile(r"\s*<(?:!doctype\s+html|html|head|body|h1)\b", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_INSTEAD = "arrived instead of JSON, perhaps from a proxy or a login page in front of the server"


def body_chunks(
    response: requests.Response,
    doing: str,
    table: str | None = None,
    *,
    limit: int | None = None,
) -> Iterator[bytes]:
    """Yield the decompressed body as it arrives, without a byte order mark.

    Raises ``Transient`` if the body or its compressed data is cut off, and ``ProtocolError`` if the decompressed body
    is longer than ``limit`` bytes, its compressed data is corrupt, or it has an encoding that was not requested.
    """
    total = 0
    for chunk in _without_mark(_decoded(response, _received(response, doing, table), doing, table)):
        total += len(chunk)
        if limit is not None and total > limit:
            raise ProtocolError(f"{doing}: the response is longer than {limit} bytes, which is the limit.", table=table)
        yield chunk


def start_of_body(response: requests.Response, limit: int, secrets: Iterable[str]) -> bytes:
    """Return the first ``limit`` bytes of an error response, or as many as arrive.

    If the body is cut, ``secrets`` in it are masked, and a partial secret at the cut is left out.
    """
    body = b""
    try:
        for chunk in body_chunks(response, "Reading an error"):
            body += chunk
            if len(body) > limit:
                break
        else:
            return body
    except (Transient, DeltaSharingError):
        pass  # the status is enough for an error message
    encoded = [secret.encode() for secret in secrets if secret]
    body = functools.reduce(lambda text, secret: text.replace(secret, MASK.encode()), encoded, body[:limit])
    ends = (secret[:length] for secret in encoded for length in range(len(secret)))
    return body.removesuffix(max(filter(body.endswith, ends), key=len, default=b""))


def _without_mark(chunks: Iterable[bytes]) -> Iterator[bytes]:
    start = b""
    rest = iter(chunks)
    for chunk in rest:
        start += chunk
        if len(start) >= len(_BYTE_ORDER_MARK):
            break
    if start := start.removeprefix(_BYTE_ORDER_MARK):
        yield start
    yield from rest


def _received(response: requests.Response, doing: str, table: str | None) -> Iterator[bytes]:
    while True:
        failure: Transient | DeltaSharingError | None = None
        chunk = b""
        try:
            # Return the available bytes instead of waiting for a full chunk, so that their lines are processed at once.
            chunk = response.raw.read1(_CHUNK_BYTES)
        except library_errors() as error:
            failure = network_failure(error, doing, table, receiving=True)
        # Raised here, because the library's error contains the URL.
        if failure is not None:
            raise failure
        if not chunk:
            return
        yield chunk


def _decoded(response: requests.Response, chunks: Iterator[bytes], doing: str, table: str | None) -> Iterable[bytes]:
    encodings = content_codings(response.headers.get("Content-Encoding", ""))
    if not encodings:
        return chunks
    if len(encodings) == 1 and encodings[0] in _DECODED:
        return _inflated(chunks, encodings[0] == "deflate", doing, table)
    encoding = ", ".join(encodings)
    raise ProtocolError(
        f"{doing}: expected a response in one of the encodings {ACCEPTED_ENCODINGS}, found {encoding[:40]!r}.",
        table=table,
    )


def _inflated(chunks: Iterator[bytes], deflate: bool, doing: str, table: str | None) -> Iterator[bytes]:
    decoder = None
    ended = False
    for chunk in chunks:
        if decoder is None and not ended and not deflate and _PLAIN.match(chunk):
            # A proxy decompressed the body and kept the header; gzip data would begin with 1F 8B.
            yield chunk
            yield from chunks
            return
        rest = chunk
        while True:
            if decoder is None:
                rest = rest.lstrip(b"\0") if ended else rest  # some servers pad the end with zeros
                if not rest:
                    break
                decoder = zlib.decompressobj(_window(rest, deflate))
            try:
                piece = decoder.decompress(rest, _INFLATED_BYTES)
            except zlib.error:
                piece = None
            if piece is None:
                raise ProtocolError(f"{doing}: the compressed data of the response is corrupt.", table=table)
            if piece:
                yield piece
            rest = decoder.unconsumed_tail
            if decoder.eof:
                rest, decoder, ended = decoder.unused_data, None, True
            elif not piece:
                break
    if decoder is not None:
        raise Transient(
            TransportError(f"{doing} failed: the response is cut off: its compressed data has no end.", table=table)
        )


def _window(start: bytes, deflate: bool) -> int:
    """Return zlib's ``wbits`` for data that starts with ``start``; "deflate" exists with and without zlib's header."""
    if not deflate:
        return 16 + zlib.MAX_WBITS
    zlib_header = start[0] & 0x0F == 8 and (len(start) < 2 or (start[0] * 256 + start[1]) % 31 == 0)
    return zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS


def in_bulk(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the first ``chunks`` as they arrive, and join later ones, because each block of lines has a fixed cost.

    If an exception ends them, the chunks that arrived before it are yielded first.
    """
    waiting: list[bytes] = []
    total = size = 0
    try:
        for chunk in chunks:
            waiting.append(chunk)
            total, size = total + len(chunk), size + len(chunk)
            if size >= _BULK or total < _AT_ONCE:
                yield b"".join(waiting)
                waiting, size = [], 0
    except Exception:
        if waiting:
            yield b"".join(waiting)
        raise
    if waiting:
        yield b"".join(waiting)


# === Lines ===


class LineBlock(NamedTuple):
    """Consecutive lines, without the last ``\\n``; blank lines are included, so that lines can be numbered.

    ``complete`` is false if the body ended without a ``\\n`` after the last line.
    """

    text: bytes
    complete: bool

    @property
    def lines(self) -> list[bytes]:
        return self.text.split(b"\n")


def split_blocks(chunks: Iterable[bytes], max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[LineBlock]:
    """Split a body, given in arbitrary chunks, into blocks of lines, in time linear in its length.

    Raises ``ProtocolError`` if a line is longer than ``max_line_bytes``.
    """
    pending: list[bytes] = []  # the pieces of an unfinished line, joined only once so that huge lines take linear time
    pending_bytes = 0
    for chunk in chunks:
        end = chunk.rfind(b"\n")
        if end < 0:
            pending.append(chunk)
            pending_bytes += len(chunk)
            _check_length(pending_bytes, max_line_bytes)
            continue
        pending.append(chunk[:end])
        block = LineBlock(b"".join(pending), complete=True)
        if pending_bytes + len(chunk) > max_line_bytes:
            _check_length(max(map(len, block.lines)), max_line_bytes)
        yield block
        rest = chunk[end + 1 :]
        pending = [rest]
        pending_bytes = len(rest)
        _check_length(pending_bytes, max_line_bytes)
    if pending_bytes:
        yield LineBlock(b"".join(pending), complete=False)


def _check_length(length: int, limit: int) -> None:
    if length > limit:
        raise ProtocolError(
            f"A line of the server's response is longer than {limit} bytes; expected one JSON object per line."
        )


# === Error responses ===


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A server's error response; secrets in it are masked."""

    status: int | None
    code: str | None = None
    message: str = ""

    @classmethod
    def read(cls, status: int, body: bytes, secrets: Iterable[str] = (), challenge: str | None = None) -> Refusal:
        """Read the body of an error response, as JSON whatever its content type, or else as text.

        For an HTML page, the message contains only its title. The header ``WWW-Authenticate`` (``challenge``) is used
        if the body has no message. ``secrets`` are masked.
        """
        code, message = error_of(body)
        if code is None and message is None:
            page = html_page(body, secrets)
            message = body.decode("utf-8", "replace") if page is None else f"{page} {_INSTEAD}"
        if challenge and not message:
            message = f"the server sent the header WWW-Authenticate: {' '.join(challenge.split())}"
        code = None if code is None else scrub(code, secrets)[:_MAX_CODE]
        return cls(status=status, code=code, message=scrub((message or "").strip(), secrets))

    def error(self, doing: str, *, table: str | None, auth_hint: str = "") -> DeltaSharingError:
        """Return the exception. ``doing`` describes the request ("Listing the shares"); ``auth_hint`` is advice about
        refused credentials."""
        code = None if self.code == str(self.status) else self.code
        facts = ", ".join(str(fact) for fact in (self.status, code) if fact is not None)
        failed = f"{doing} failed ({facts})" if facts else f"{doing} failed"
        shown = _shortened(" ".join(self.message.split()))
        text = f"{failed}: {shown}" if shown else failed
        text = text if text.endswith((".", "!", "?")) else text + "."
        kind: type[AuthError | RequestError] = RequestError
        if self.status == 401:
            kind, text = AuthError, f"{text} The server refused the credentials. {auth_hint}".strip()
        elif self.status == 403:
            kind = AuthError
            text += " These credentials do not allow this request; ask the data provider for access."
        elif self.status == 404 or (self.status == 400 and self.code == _NOT_FOUND_CODE):
            kind = NotFoundError
        kept = self.message[:_MAX_KEPT] or None
        return kind(text, status=self.status, error_code=self.code, server_message=kept, table=table)


def html_page(body: bytes, secrets: Iterable[str] = ()) -> str | None:
    """Return a description of an HTML page, with its title, in which ``secrets`` are masked; ``None`` for any other
    body."""
    text = body.decode("utf-8", "replace")
    if not _HTML.match(text):
        return None
    match = _TITLE.search(text)
    title = " ".join(html.unescape(_TAG.sub(" ", match[1] or match[2] or "")).split()) if match else ""
    # Masked before it is cut, because a partial secret would not be recognized.
    title = scrub(title, secrets)[:_MAX_CODE]
    return f"an HTML page with the title '{title}'" if title else "an HTML page without a title"


def _shortened(message: str) -> str:
    if len(message) <= _MAX_SHOWN:
        return message
    traces = [trace for trace in _TRACE.findall(message) if trace not in message[:_MAX_SHOWN]]
    return " ".join([f"{message[:_MAX_SHOWN]} ...", *traces[-1:]])
