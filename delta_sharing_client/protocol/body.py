"""The body of an answer: decoded to its very end, in pieces as they arrive, and bounded."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import requests

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError
from delta_sharing_client.retry import LIBRARY_ERRORS, Transient, network_failure

# What ``body_chunks`` decodes, for the ``Accept-Encoding`` header.
ACCEPTED_ENCODINGS = "gzip, deflate"
_CHUNK_BYTES = 256 * 1024
_INFLATED_BYTES = 1024 * 1024


def body_chunks(
    response: requests.Response,
    doing: str,
    table: str | None = None,
    *,
    limit: int | None = None,
) -> Iterator[bytes]:
    """Yield the body as it arrives; a compressed one is complete only where its decoder says so.

    Raises ``Transient`` if the body breaks off before its stated end or before that of its compression,
    ``ProtocolError`` if it is longer than ``limit`` bytes, or compressed in a way that was not asked for.
    """
    total = 0
    for chunk in _decoded(response, _received(response, doing, table), doing, table):
        total += len(chunk)
        if limit is not None and total > limit:
            raise ProtocolError(f"{doing}: the answer is longer than {limit} bytes.", table=table)
        yield chunk


def start_of_body(response: requests.Response, limit: int) -> bytes:
    """Return the first ``limit`` bytes of the body of an error, or as many as arrive."""
    body = b""
    try:
        for chunk in body_chunks(response, "Reading an error"):
            body += chunk
            if len(body) >= limit:
                break
    except (Transient, DeltaSharingError):
        pass  # the status is what matters; the text is a courtesy
    return body[:limit]


def _received(response: requests.Response, doing: str, table: str | None) -> Iterator[bytes]:
    while True:
        failure: Transient | DeltaSharingError | None = None
        chunk = b""
        try:
            # What is there, instead of waiting for a chunk to be full: its lines can be worked on.
            chunk = response.raw.read1(_CHUNK_BYTES, decode_content=False)
        except LIBRARY_ERRORS as error:
            failure = network_failure(error, doing, table, receiving=True)
        # Raised out here: the library's error knows the URL.
        if failure is not None:
            raise failure
        if not chunk:
            return
        yield chunk


def _decoded(response: requests.Response, chunks: Iterator[bytes], doing: str, table: str | None) -> Iterable[bytes]:
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return chunks
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _inflated(chunks, encoding == "deflate", doing, table)
    raise ProtocolError(
        f"{doing}: expected an answer in one of the encodings {ACCEPTED_ENCODINGS}, found {encoding[:40]!r}.",
        table=table,
    )


def _inflated(chunks: Iterator[bytes], deflate: bool, doing: str, table: str | None) -> Iterator[bytes]:
    decoder = None
    ended = False
    for chunk in chunks:
        rest = chunk
        while True:
            if decoder is None:
                rest = rest.lstrip(b"\0") if ended else rest  # what some pad the end with
                if not rest:
                    break
                decoder = zlib.decompressobj(_window(rest, deflate))
            try:
                piece = decoder.decompress(rest, _INFLATED_BYTES)
            except zlib.error:
                piece = None
            if piece is None:
                raise ProtocolError(f"{doing}: the answer's compression is broken.", table=table)
            if piece:
                yield piece
            rest = decoder.unconsumed_tail
            if decoder.eof:
                rest, decoder, ended = decoder.unused_data, None, True
            elif not rest and len(piece) < _INFLATED_BYTES:
                break
    if decoder is not None:
        raise Transient(
            TransportError(f"{doing} failed: the answer is cut off, its compression has no end.", table=table)
        )


def _window(start: bytes, deflate: bool) -> int:
    """Return zlib's parameter for what begins with ``start``; "deflate" is meant with and without zlib's header."""
    if not deflate:
        return 16 + zlib.MAX_WBITS
    zlib_header = start[0] & 0x0F == 8 and (len(start) < 2 or (start[0] * 256 + start[1]) % 31 == 0)
    return zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS
