"""Response bodies are decoded completely in every encoding and framing."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import zlib

import pytest

from delta_sharing_client.errors import AuthError, NotFoundError, ProtocolError, RequestError, TransportError
from delta_sharing_client.http import body, error_responses
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.protocol.line_blocks import split_blocks
from delta_sharing_client.protocol.query import query_table
from tests.unit.protocol import wire

QUERY = "/shares/s/schemas/d/tables/t/query"


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def stored_deflate(data):
    """Return data in two stored blocks of the deflate format. The first byte is zero."""
    packer = zlib.compressobj(level=0, wbits=-15)
    return packer.compress(data[:99]) + packer.flush(zlib.Z_FULL_FLUSH) + packer.compress(data[99:]) + packer.flush()


def deflate_like_text(data):
    """Return data that is deflated with fixed Huffman codes and, like JSON, starts with an opening brace."""
    packer = zlib.compressobj(wbits=-15, strategy=zlib.Z_FIXED)
    packed = packer.compress("\ufeff".encode() + data) + packer.flush()
    assert packed[:1] == b"{"
    return packed


ENCODINGS = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "members": ("gzip", lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])),
    "padded": ("gzip", lambda data: gzip.compress(data) + bytes(7)),
    "deflate": ("deflate", zlib.compress),
    "raw-deflate": ("deflate", raw_deflate),
    "stored-deflate": ("deflate", stored_deflate),
    "deflate-like-text": ("deflate", deflate_like_text),
}


def cut_at_a_line_end(data, encoding, lines):
    """Return an unfinished compressed stream with the first ``lines`` lines of ``data``."""
    packer = zlib.compressobj(wbits={"gzip": 31, "x-gzip": 31, "deflate": 15}[encoding])
    start = b"".join(data.splitlines(keepends=True)[:lines])
    return packer.compress(start) + packer.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_response_is_read_in_every_encoding_and_framing(server, rest, table, name, framing):
    encoding, compress = ENCODINGS[name]
    reply = wire.ndjson(*wire.delta_head(), *(wire.delta_file(str(n)) for n in range(300)), framing=framing)
    reply.headers["Content-Encoding"] = encoding
    reply.body = compress(reply.body)
    server.on("POST", QUERY, reply)

    assert [action.file_id for action in query_table(rest, table).actions] == [str(n) for n in range(300)]


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
def test_compressed_response_cut_at_a_line_end_is_retried(server, rest, table, encoding, framing):
    lines = [*wire.delta_head(), *(wire.delta_file(str(n)) for n in range(200))]
    whole, half = wire.ndjson(*lines), wire.ndjson(*lines, framing=framing)
    half.headers["Content-Encoding"] = encoding
    half.body = cut_at_a_line_end(half.body, encoding, 102)
    server.on("POST", QUERY, half, whole)

    assert len(list(query_table(rest, table).actions)) == 200
    assert len(server.requests) == 2

    server.on("POST", QUERY, half)
    with pytest.raises(TransportError, match="its compressed data has no end"):
        list(query_table(rest, table).actions)


def test_undecodable_body_is_a_transient_error():
    def read1(_):
        raise ValueError("no length of a chunk")

    response = body.Response(200, {}, "https://h/", None, read1, lambda: None)
    with pytest.raises(Transient, match="the response was cut off or is not HTTP"):
        list(body.body_chunks(response, "Asking", None))


def test_plain_bytes_after_a_gzip_member_are_an_error():
    with pytest.raises(ProtocolError, match="compressed data of the response is corrupt"):
        list(body._inflated(iter([gzip.compress(b"a"), b'{"b": 1}']), False, "Asking", None))


def test_compressed_chunk_may_start_with_a_brace():
    data = random.Random(1).randbytes(5000)
    packed = gzip.compress(data)
    brace = packed.index(b"{", 20)

    assert b"".join(body._inflated(iter([packed[:brace], packed[brace:]]), False, "Asking", None)) == data


def test_truncated_second_gzip_member_is_detected(server, rest, table):
    lines = [*wire.delta_head(), *(wire.delta_file(str(n)) for n in range(20))]
    whole, half = wire.ndjson(*lines), wire.ndjson(*lines[:12], framing="close")
    for kept in (1, 5, 15):
        half.headers["Content-Encoding"] = "gzip"
        broken = wire.Reply(200, gzip.compress(half.body) + gzip.compress(b"more")[:kept], half.headers, "close")
        server.on("POST", QUERY, broken, whole)
        assert len(list(query_table(rest, table).actions)) == 20


@pytest.mark.parametrize("where", [3, 200, -6])
def test_damaged_compression_is_an_error(server, rest, where):
    random.seed(1)
    packed = bytearray(gzip.compress(json.dumps({"items": [{"name": random.randbytes(999).hex()}]}).encode()))
    packed[where] ^= 0xFF
    server.on("GET", "/shares", wire.Reply(200, bytes(packed), {"Content-Encoding": "gzip"}))

    with pytest.raises((ProtocolError, TransportError), match="compressed"):
        rest.list_shares()


def test_body_that_a_proxy_decompressed_is_read(server, rest, table):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(20)))
    for prefix in (b"", b"\xef\xbb\xbf", b"\n "):
        headers = {**whole.headers, "Content-Encoding": "gzip"}
        cut = wire.Reply(200, prefix + whole.body, headers, "cut-length", 400)
        server.on("POST", QUERY, cut, wire.Reply(200, prefix + whole.body, headers))
        assert len(list(query_table(rest, table).actions)) == 20


@pytest.mark.parametrize("chunks", [[b"a", b"\n", b"b"], [b"\na\n", b"\n"], [b"a\n", b"\n", b""]], ids=str)
def test_chunk_may_begin_with_a_line_end(chunks):
    whole = b"".join(chunks)
    blocks = list(split_blocks(chunks))
    assert [line for block in blocks for line in block.lines] == whole.removesuffix(b"\n").split(b"\n")
    assert [block.complete for block in blocks][-1] is whole.endswith(b"\n")


@pytest.mark.parametrize("is_cut", [False, True])
def test_small_chunks_are_joined_after_the_first_bytes(monkeypatch, is_cut):
    monkeypatch.setattr(body, "_AT_ONCE", 6)
    monkeypatch.setattr(body, "_BULK", 3)

    def chunks():
        yield from (b"aa", b"b", b"cc", b"d", b"e", b"f", b"gggg", b"h")
        if is_cut:
            raise Transient(TransportError("cut"))

    received = []
    with pytest.raises(Transient) if is_cut else contextlib.nullcontext():
        for chunk in body.in_bulk(chunks()):
            received.append(chunk)
    assert received == [b"aa", b"b", b"cc", b"def", b"gggg", b"h"]


@pytest.mark.parametrize(("length", "is_refused"), [(5, False), (6, True)])
def test_line_length_is_limited_however_lines_are_chunked(length, is_refused):
    line = b"x" * length
    for text in (line, line + b"\n", b"a\n" + line, b"a\nb\n" + line + b"\nc"):
        for first in range(len(text) + 1):
            for second in range(first, len(text) + 1):
                chunks = [text[:first], text[first:second], text[second:]]
                with pytest.raises(ProtocolError, match="longer than 5") if is_refused else contextlib.nullcontext():
                    blocks = list(split_blocks(chunks, 5))
                    assert b"\n".join(block.text for block in blocks) == text.removesuffix(b"\n")
    assert list(split_blocks([])) == list(split_blocks([b""])) == []


@pytest.mark.parametrize(("limit", "is_refused"), [(13, False), (12, True)])
def test_body_length_is_limited(server, rest, monkeypatch, limit, is_refused):
    monkeypatch.setattr("delta_sharing_client.protocol.transport._MAX_JSON_BYTES", limit)
    server.on("GET", "/shares", wire.Reply(200, b'{"items": []}'))
    with pytest.raises(ProtocolError, match="longer than 12 bytes") if is_refused else contextlib.nullcontext():
        assert rest.list_shares() == []


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (404, None, NotFoundError, "Asking failed (404)."),
        (400, "RESOURCE_DOES_NOT_EXIST", NotFoundError, "Asking failed (400, RESOURCE_DOES_NOT_EXIST)."),
        (500, "RESOURCE_DOES_NOT_EXIST", RequestError, "Asking failed (500, RESOURCE_DOES_NOT_EXIST)."),
        (400, "X", RequestError, "Asking failed (400, X)."),
        (None, "X", RequestError, "Asking failed (X)."),
        (401, None, AuthError, "Asking failed (401). The server refused the credentials."),
    ],
)
def test_status_and_code_of_a_refusal_determine_the_error(status, code, kind, message):
    error = error_responses.Refusal(status=status, code=code).error("Asking", table=None)
    assert (type(error), error.message) == (kind, message)


def test_secret_that_is_cut_off_in_an_error_is_removed():
    for secrets in (["abX", "bY"], ["bY", "abX"]):
        sent = io.BytesIO(b"no ab" + b"x" * 300)
        response = body.Response(500, {}, "https://h/", None, sent.read1, lambda: None)
        assert body.start_of_body(response, 5, secrets) == b"no "


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_unsupported_encoding_is_refused(server, rest, encoding):
    server.on("GET", "/shares", wire.Reply(200, gzip.compress(b"{}"), {"Content-Encoding": encoding}))

    with pytest.raises(ProtocolError, match="encodings gzip, deflate"):
        rest.list_shares()
    assert server.requests[0].headers["accept-encoding"] == "gzip, deflate"


def test_decompression_stops_at_the_size_limit(server, rest, monkeypatch):
    packed = gzip.compress(bytes(64 * 1024 * 1024))
    server.on("GET", "/shares", wire.Reply(200, packed, {"Content-Encoding": "gzip"}))
    sizes = []
    inflated = body._inflated

    def spy(*args):
        for chunk in inflated(*args):
            sizes.append(len(chunk))
            yield chunk

    monkeypatch.setattr(body, "_inflated", spy)
    monkeypatch.setattr("delta_sharing_client.protocol.transport._MAX_JSON_BYTES", 5_000_000)

    with pytest.raises(ProtocolError, match="longer than 5000000 bytes"):
        rest.list_shares()
    assert max(sizes) <= 1024 * 1024
    assert sum(sizes) < 7_000_000


def test_body_as_long_as_the_decompression_buffer_is_read(server, rest):
    for size in (1024 * 1024, 1024 * 1024 + 1, 3 * 1024 * 1024):
        text = b'{"items": [' + b" " * (size - 13) + b"]}"
        server.on("GET", "/shares", wire.Reply(200, gzip.compress(text), {"Content-Encoding": "gzip"}))
        assert rest.list_shares() == []


@pytest.mark.parametrize(
    ("start", "window"),
    [(b"\x78\x9c", 15), (b"\x78\x01", 15), (b"\x78", 15), (b"\x78\x9d", -15), (b"\x79\x9c", -15), (b"\x4b\x04", -15),
     (b"\x58\x85", 15), (b"\x08\x1d", 15), (b"\x08\x1e", -15), (b"\x79\x18", -15)],
)  # fmt: skip
def test_zlib_is_recognized_by_its_first_bytes(start, window):
    assert body._window(start, deflate=True) == window
    assert body._window(start, deflate=False) == 31


def test_html_page_is_recognized_and_shown_by_its_title():
    assert error_responses.html_page(b"<html><title>\xff a</title>") == "an HTML page with the title '\ufffd a'"
    assert error_responses.html_page(b"<html><title></title>") == "an HTML page without a title"
    assert error_responses.html_page(b"<html><h1></h1>") == "an HTML page without a title"
    assert error_responses.html_page(b"<html>") == "an HTML page without a title"
    assert error_responses.html_page(b"\xff<html>") is None
