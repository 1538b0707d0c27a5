"""The body of a response, decoded in pieces as they arrive, checked to the end, and limited in size."""

from __future__ import annotations

import dataclasses
import functools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.http.network import content_codings
from delta_sharing_client.http.request_limits import library_errors, network_failure
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.redact import MASK

# The encodings that ``body_chunks`` decodes, for the ``Accept-Encoding`` header.
ACCEPTED_ENCODINGS = "gzip, deflate"
_DECODED = ("gzip", "x-gzip", "deflate")
_CHUNK_BYTES = 256 * 1024
_INFLATED_BYTES = 1024 * 1024
# The first bytes of a body, up to this many, are passed on as they arrive; later ones in pieces of at least this size.
_AT_ONCE, _BULK = 8 * 1024 * 1024, 256 * 1024
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# The first characters of JSON and HTML.
_PLAIN = re.compile(rb"(?:\xef\xbb\xbf)?\s*[{\[<]")


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """A response whose body is not read yet.

    ``headers`` ignore the case of their names. ``authorization`` is the header of the request to ``url``. ``read``
    returns the bytes of the body that are there, at most as many as its argument says. ``close`` may be called again.
    """

    status: int
    headers: Mapping[str, str]
    url: str = dataclasses.field(repr=False)
    authorization: str | None = dataclasses.field(repr=False)
    read: Callable[[int], bytes] = dataclasses.field(repr=False)
    close: Callable[[], None] = dataclasses.field(repr=False)

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def body_chunks(
    response: Response,
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


def start_of_body(response: Response, limit: int, secrets: Iterable[str]) -> bytes:
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


def _received(response: Response, doing: str, table: str | None) -> Iterator[bytes]:
    while True:
        failure: Transient | DeltaSharingError | None = None
        chunk = b""
        try:
            # Return the available bytes instead of waiting for a full chunk, so that their lines are processed at once.
            chunk = response.read(_CHUNK_BYTES)
        except library_errors() as error:
            failure = network_failure(error, doing, table, receiving=True)
        # Raised here, because the library's error contains the URL.
        if failure is not None:
            raise failure
        if not chunk:
            return
        yield chunk


def _decoded(response: Response, chunks: Iterator[bytes], doing: str, table: str | None) -> Iterable[bytes]:
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
