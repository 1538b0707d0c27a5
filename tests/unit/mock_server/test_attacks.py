"""No request causes a 500: the server refuses invalid bytes in the form of the protocol and keeps running."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mock_server.parameters import MAX_BODY_BYTES
from mock_server.running import RunningServer
from tests.quota import meets, met
from tests.unit.mock_server.helpers import DELTA, Api, stamp

TABLES = "shares/default/schemas/default/tables"
FUZZ = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_DIGITS = "9" * 5000
_NAMES = st.sampled_from(["default", "plain", "vectors", "feed", "odd", "shares", "schemas", "tables", "query", ""])
_ODD = st.sampled_from(
    [
        "%ff",
        "%00",
        "%0a",
        "%2F",
        "..",
        "%",
        "%zz",
        "+",
        "a" * 3000,
        "%C3%A9",
        "*",
        "%ED%A0%80",
        "\\",
        "[::1",
        ";",
        "_stats",
    ]
)
_SEGMENTS = st.one_of(_NAMES, _ODD, st.text(st.characters(codec="ascii", min_codepoint=33), max_size=8))
_TEXTS = st.one_of(
    st.text(st.characters(codec="latin-1"), max_size=20),
    st.sampled_from(["", "0", "-1", "1e9", _DIGITS, "true", "None", "\u0663", "1_000", stamp(1), "0000-00-00T00:00:00Z",
                     "9999-12-31T23:59:59.999999999+23:59:59", "2026-03-01T25:61:61Z", "=" * 50, "\xff", "\x00"]),
)  # fmt: skip
_PARAMETERS = st.sampled_from(
    ["maxResults", "pageToken", "version", "timestamp", "startingVersion", "startingTimestamp", "endingVersion",
     "endingTimestamp", "includeHistoricalMetadata", "includeHistoricalProtocol", "maxFiles", "%ff", ""]
)  # fmt: skip
_HEADERS = st.sampled_from(
    ["Authorization", "Host", "delta-sharing-capabilities", "fileidhash", "Range", "Content-Type", "Expect", "If-Match",
     "Accept-Encoding", "Content-Encoding", "Transfer-Encoding", "Content-Length", "Connection", "Upgrade", "If-Range"]
)  # fmt: skip
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(["\ud800", "x" * 5000, 10**400, -(10**400), stamp(1), "id = 1", "p = 'a'", '{"op":"column"}']),
)
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["op", "children", "name", "value", "valueType", "predicateHints", "\udfff"]), inner
        ),
    ),
    max_leaves=6,
)
_FIELDS = st.sampled_from(
    ["predicateHints", "jsonPredicateHints", "limitHint", "version", "timestamp", "startingVersion", "endingVersion",
     "includeHistoricalProtocol", "includeRefreshToken", "refreshToken", "idempotencyKey", "maxFiles", "pageToken",
     "location"]
)  # fmt: skip
_OPS = st.sampled_from(
    ["and", "or", "not", "equal", "lessThan", "isNull", "in", "column", "literal", "greaterThanOrEqual", 7]
)
_TYPES = st.sampled_from(
    ["bool", "int", "long", "string", "date", "double", "timestamp", "float", "integer", "x", None]
)
_HINT_LEAVES = st.one_of(
    st.fixed_dictionaries(
        {"op": st.just("column"), "name": st.sampled_from(["id", "p", "no", 1, None]), "valueType": _TYPES}
    ),
    st.fixed_dictionaries({"op": st.just("literal"), "value": st.one_of(_LEAVES, _TEXTS), "valueType": _TYPES}),
)
_HINTS = st.recursive(
    _HINT_LEAVES,
    lambda inner: st.fixed_dictionaries({"op": _OPS, "children": st.lists(inner, max_size=3)}),
    max_leaves=6,
)


@meets(refused=12, signed_in=6)
@given(
    method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "X"]),
    start=st.sampled_from(
        ["/delta-sharing", "/delta-sharing/shares", "/data", "/absolute", "/_stats", "/_control", "/", ""]
    ),
    segments=st.lists(_SEGMENTS, max_size=8),
    query=st.lists(st.tuples(_PARAMETERS, _TEXTS), max_size=3),
    headers=st.lists(st.tuples(_HEADERS, _TEXTS), max_size=3),
    with_token=st.booleans(),
    body=st.one_of(st.binary(max_size=30), st.just(b'{"fault": 7, "clear": [1]}')),
)
@FUZZ
def test_no_request_line_header_or_body_causes_a_500(
    api: Api,
    method: str,
    start: str,
    segments: list[str],
    query: list[tuple[str, str]],
    headers: list[tuple[str, str]],
    with_token: bool,
    body: bytes,
) -> None:
    target = "/".join([start, *segments])
    if query:
        target += "?" + "&".join(f"{name}={quote(value, safe='=+')}" for name, value in query)
    lines = [f"{method} {target} HTTP/1.1", "Connection: close"]
    if not any(name == "Host" for name, _ in headers):
        lines.append("Host: localhost")
    if with_token:
        lines.append(f"Authorization: Bearer {api.server.profile['bearerToken']}")
    lines += [f"{name}: {value}" for name, value in headers if "\r" not in value and "\n" not in value]
    if not any(name in ("Content-Length", "Transfer-Encoding") for name, _ in headers):
        lines.append(f"Content-Length: {len(body)}")
    sent = "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body
    status, content = _send(api.server, sent)
    met("refused", 400 <= status < 500)
    met("signed_in", with_token and status != 401)
    _check(method, status, content, api)


@meets(answered=1, refused=23)
@given(
    name=st.sampled_from(["plain", "vectors", "feed"]),
    fields=st.dictionaries(_FIELDS, st.one_of(_JSON, _TEXTS, st.integers(-2, 9)), max_size=4),
    hints=st.none() | _HINTS,
    capabilities=st.sampled_from(
        [None, DELTA, "asyncquery=true", "responseformat=x", f"{DELTA};includeendstreamaction=true"]
    ),
)
@FUZZ
def test_no_body_of_a_query_causes_a_500(
    api: Api, name: str, fields: dict[str, object], hints: object, capabilities: str | None
) -> None:
    if hints is not None:
        fields["jsonPredicateHints"] = json.dumps(hints)
    for path in (f"{TABLES}/{name}/query", f"{TABLES}/{name}/temporary-table-credentials"):
        response = api.post(path, fields, capabilities)
        met("answered" if response.status_code == 200 else "refused")
        _check("POST", response.status_code, response.content, api)


@meets(answered=4, refused=7)
@given(
    name=st.sampled_from(["plain", "feed"]),
    what=st.sampled_from(["changes", "metadata", "version"]),
    query=st.lists(st.tuples(_PARAMETERS, st.one_of(_TEXTS, st.integers(-2, 9).map(str))), max_size=4),
)
@FUZZ
def test_no_query_string_causes_a_500(api: Api, name: str, what: str, query: list[tuple[str, str]]) -> None:
    text = "&".join(f"{key}={quote(value.encode('latin-1', 'replace'))}" for key, value in query)
    response = api.get(f"{TABLES}/{name}/{what}?{text}", DELTA)
    met("answered" if response.status_code == 200 else "refused")
    _check("GET", response.status_code, response.content, api)


@meets(answered=2, refused=9)
@given(
    range_=_TEXTS.map(lambda text: f"bytes={text}-{text}") | st.text(st.characters(codec="latin-1"), max_size=12),
    tail=st.lists(
        st.tuples(st.sampled_from(["X-Amz-Signature", "X-Amz-Expires", "X-Amz-Security-Token", "x-id"]), _TEXTS)
    ),
    path=st.sampled_from(["", "%ff", "%00", "/../x", "%F0%9F"]),
)
@FUZZ
def test_no_data_url_causes_a_500(api: Api, range_: str, tail: list[tuple[str, str]], path: str) -> None:
    url = urlsplit(api.query("plain").urls[0])
    target = f"{url.path}{path}?{url.query}" + "".join(f"&{name}={quote(value)}" for name, value in tail)
    range_ = range_.replace("\r", "").replace("\n", "")
    head = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nRange: {range_}\r\n\r\n"
    status, _ = _send(api.server, head.encode("latin-1", "replace"))
    met("answered" if status < 300 else "refused")
    assert status in (200, 206, 400, 403, 404, 416)
    assert _answers(api)


@pytest.mark.parametrize(
    "target", ["/data/x/%ff", "/data/x", "/data/", "/data//", "/absolute/%ff/%ff", "/data/x/%ff?x=%ff"]
)
def test_unsigned_data_url_is_counted_without_its_path(start: Callable[..., Api], target: str) -> None:
    api = start()
    status, _ = _send(api.server, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert status == (403 if target.count("/") > 2 else 404)
    assert api.server.stats()["files"] == {}
    assert _answers(api)


def test_signature_that_is_not_ascii_is_refused(api: Api) -> None:
    url = api.query("plain").urls[0]
    changed = url.rpartition("=")[0] + "=%C3%A9"
    assert api.fetch(changed).status_code == 403
    assert b"SignatureDoesNotMatch" in api.fetch(changed).content


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"bytes=0-{_DIGITS}", 206),
        (f"bytes={_DIGITS}-", 416),
        (f"bytes=-{_DIGITS}", 206),
        (f"bytes=5-{'0' * 5000}", 200),
    ],
)
def test_range_header_with_thousands_of_digits_is_handled(api: Api, header: str, status: int) -> None:
    assert api.fetch(api.query("plain").urls[0], Range=header).status_code == status


def test_oversized_body_is_refused_before_it_is_read(api: Api) -> None:
    host, port = _address(api.server)
    head = (
        f"POST /delta-sharing/{TABLES}/plain/query HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {api.server.profile['bearerToken']}\r\n"
    )
    declared = f"{head}Content-Length: {10**15}\r\n\r\n".encode()
    assert _send(api.server, declared)[0] == 413
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 20 * MAX_BODY_BYTES:
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                sent += 0x10000
        assert sent < 20 * MAX_BODY_BYTES
    assert _answers(api)


@pytest.mark.parametrize("host", ["[::1", "a b", "x/y", "x@y", "\xff", "x:notaport", ""])
def test_invalid_host_header_is_refused(api: Api, host: str) -> None:
    request = (
        f"GET /delta-sharing/{TABLES}/plain/metadata HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Authorization: Bearer {api.server.profile['bearerToken']}\r\n\r\n"
    )
    status, content = _send(api.server, request.encode("latin-1"))
    assert status == 400
    if content.startswith(b"{"):
        assert "Host" in json.loads(content)["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"7",
        b"null",
        b'{"fault": 7}',
        b'{"clear": []}',
        b'{"fault": null}',
        b"\xff",
        b'{"clear": {}}',
        b'"fault"',
    ],
)
def test_invalid_control_request_is_refused(api: Api, content: bytes) -> None:
    origin = api.server.endpoint.split("/delta-sharing")[0]
    response = api.session.post(f"{origin}/_control", data=content)
    assert (response.status_code, response.json()["errorCode"]) == (400, "MALFORMED_REQUEST")


@pytest.mark.parametrize("value", ["1_000", "\u0663", " 1", "1.0", "+1"])
def test_numbers_with_anything_but_ascii_digits_are_refused(api: Api, value: str) -> None:
    assert api.get(f"shares?maxResults={quote(value)}").status_code == 400


def test_error_message_truncates_the_request(api: Api) -> None:
    for path in (f"shares?maxResults={_DIGITS}", f"shares/{'x' * 5000}", f"shares?pageToken={_DIGITS}"):
        assert len(api.get(path).json()["message"]) < 300


def test_unsupported_http_method_is_405(api: Api) -> None:
    response = api.session.put(api.server.endpoint + "shares")
    assert (response.status_code, response.json()["errorCode"]) == (405, "UNSUPPORTED_OPERATION")


def _check(method: str, status: int, content: bytes, api: Api) -> None:
    assert 200 <= status < 500, content
    if status >= 400 and method != "HEAD" and content.startswith(b"{"):
        body = json.loads(content)
        assert body.keys() == {"errorCode", "message"}
        assert body["errorCode"] != "INTERNAL_ERROR"
    assert _answers(api)


def _answers(api: Api) -> bool:
    """Return whether the server still reports its counters over HTTP."""
    origin = api.server.endpoint.split("/delta-sharing")[0]
    return api.session.get(f"{origin}/_stats").status_code == 200


def _address(server: RunningServer) -> tuple[str, int]:
    parts = urlsplit(server.endpoint)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def _send(server: RunningServer, request: bytes) -> tuple[int, bytes]:
    """Send bytes; return the status and body of the first final response."""
    with socket.create_connection(_address(server), timeout=20) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return _answer(connection, request)


def _answer(connection: socket.socket, request: bytes) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(connection, method=request.split(b" ", 1)[0].decode("latin-1"))
    try:
        response.begin()
        return response.status, response.read()
    except (http.client.BadStatusLine, ConnectionError):
        return 400, b""  # the request line did not end, so the server was right to close the connection
    finally:
        response.close()
