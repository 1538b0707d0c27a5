"""One request to the server: its headers, deadline, retries and redirects, and the closing of its response."""

from __future__ import annotations

import itertools
import json
import pickle
import socket
import types
from types import SimpleNamespace
from unittest import mock

import pytest
import requests
import urllib3

import delta_sharing_client as ds
from delta_sharing_client.delta.paths import url_key
from delta_sharing_client.http import logins, retry, sessions
from delta_sharing_client.http.request_limits import Interrupt, RequestLimits, shut
from delta_sharing_client.http.sessions import Session
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol import deviations, response_stream
from delta_sharing_client.protocol.deviations import Deviations
from delta_sharing_client.protocol.fresh_urls import RefreshingUrls
from delta_sharing_client.protocol.messages import version_header
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.query import QueryRequest, query_table, table_metadata
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.transport import Request, Transport
from tests.unit.protocol import wire

QUERY = "/shares/s/schemas/d/tables/t/query"
STATUS = "/shares/s/schemas/d/tables/t/queries/q"
METADATA = "/shares/s/schemas/d/tables/t/metadata"
SHARES = Request(method="GET", path=("shares",), doing="Listing")


@pytest.fixture
def open_responses(monkeypatch):
    """Return the statuses of the responses that were not closed."""
    opened, closed = [], set()
    send, close = requests.adapters.HTTPAdapter.send, requests.Response.close

    def recording_send(adapter, *args, **kwargs):
        opened.append(send(adapter, *args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", recording_send)
    monkeypatch.setattr(requests.Response, "close", lambda self: closed.add(id(self)) or close(self))
    return lambda: [response.status_code for response in opened if id(response) not in closed]


@pytest.mark.parametrize("statuses", [[200], [400], [403], [503, 200], [503] * 4, [307, 200], [302] * 6])
def test_every_response_is_closed(server, rest, open_responses, statuses):
    location = {"Location": f"{server.endpoint}/shares"}
    replies = [wire.Reply(status, b"{}", location if 300 <= status < 400 else {}) for status in statuses]
    server.on("GET", "/shares", *replies)
    if statuses[-1] == 200:
        assert rest.list_shares() == []
    else:
        with pytest.raises(ds.DeltaSharingError):
            rest.list_shares()
    assert len(server.requests) == len(statuses)
    assert open_responses() == []


def test_truncated_or_malformed_response_is_closed(server, rest, table, open_responses):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(str(n)) for n in range(100)))
    cut = wire.Reply(200, whole.body, whole.headers, "cut-length", 8000)
    server.on("POST", QUERY, cut, cut, whole)
    assert len(list(query_table(rest, table).actions)) == 100
    assert (len(server.requests), open_responses()) == (3, [])

    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()[:1], "{bad", *["{}"] * 10_000))
    server.on("GET", METADATA, whole)
    for read in (query_table, table_metadata):
        with pytest.raises(ds.ProtocolError):
            read(rest, table)
    assert (len(server.requests), open_responses()) == (5, [])


def test_no_request_is_sent_after_the_deadline(server, rest, monkeypatch):
    transport = rest.operation()
    monkeypatch.setattr(retry.Deadline, "left", lambda deadline: 0.0)
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", mock.Mock(side_effect=AssertionError("sent")))
    with pytest.raises(ds.TransportError, match=r"took longer than the .* seconds of 'total_timeout'"):
        transport.attempt(SHARES)
    assert server.requests == []


def test_body_is_not_read_before_it_is_used(server, rest):
    server.on("GET", "/shares", wire.as_json({"items": []}))
    with rest.operation().attempt(SHARES) as response:
        assert "gzip" in server.requests[0].headers["accept-encoding"]
        assert response.read(100) == b'{"items": []}'


@pytest.mark.parametrize("new_status", [200, 401])
def test_401_response_is_closed_before_the_retry(server, tmp_path, open_responses, new_status):
    path = tmp_path / "token"
    path.write_text("old")
    fields = {"type": "bearer_token", "bearerTokenFile": str(path)}
    profile = {"shareCredentialsVersion": 2, "endpoint": server.endpoint, **fields}

    def shares(request):
        path.write_text("new")
        is_new = request.headers["authorization"] == "Bearer new"
        return wire.as_json({}, status=new_status) if is_new else wire.error(401, "X")

    server.on("GET", "/shares", shares)
    client = RestClient(Profile.load(profile), ReadOptions(max_attempts=1))
    if new_status == 200:
        assert client.list_shares() == []
    else:
        with pytest.raises(ds.DeltaSharingError):
            client.list_shares()
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", "Bearer new"]
    assert open_responses() == []


def test_changed_profile_is_logged_once(server, tmp_path, caplog):
    path = tmp_path / "profile.share"
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "old"}
    path.write_text(json.dumps(fields))
    server.on("GET", "/shares", wire.as_json({}))
    client = RestClient(Profile.load(path))
    with caplog.at_level("INFO", "delta_sharing_client"):
        client.list_shares()
        assert "was read again" not in caplog.text
        path.write_text(json.dumps({**fields, "bearerToken": "rotated"}))
        client.list_shares()
        client.list_shares()
    assert caplog.text.count("was read again") == 1
    assert [request.headers["authorization"] for request in server.requests] == ["Bearer old", *["Bearer rotated"] * 2]


def test_log_of_a_failed_request_has_the_query_id(server, rest, caplog):
    caplog.set_level("DEBUG", "delta_sharing_client")
    server.on("GET", "/shares", wire.Reply(framing="reset"))
    with pytest.raises(ds.TransportError) as caught:
        rest.list_shares()
    messages = [text for text in caplog.messages if f"(query id {caught.value.query_id})" in text]
    assert len(messages) == len(server.requests)
    assert all("was cut off" in text for text in messages)


def test_only_a_request_with_a_body_has_a_content_type(server, rest, table):
    server.on("GET", "/shares", wire.as_json({}))
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))
    rest.list_shares()
    list(query_table(rest, table).actions)
    assert [request.headers.get("content-type") for request in server.requests] == [
        None,
        "application/json; charset=utf-8",
    ]


def test_each_operation_has_its_own_deadline(profile):
    transport = Transport(profile, ReadOptions(total_timeout=5))
    assert transport.deadline.within(100) == 100
    assert 0 < transport.operation().deadline.within(100) <= 5
    assert transport.deadline.within(100) == 100
    assert pickle.loads(pickle.dumps(transport.operation(Interrupt()))).deadline.within(100) == 100


def test_request_outside_an_operation_has_its_own_deadline(server, profile, monkeypatch):
    server.on("GET", "/shares", wire.as_json({}))
    operations = []
    operation = Transport.operation
    monkeypatch.setattr(
        Transport, "operation", lambda self, *a: operations.append(operation(self, *a)) or operations[-1]
    )
    transport, request = Transport(profile, ReadOptions(total_timeout=5)), SHARES
    transport.fetch(request)
    assert len(operations) == 1
    transport.operation().fetch(request)
    assert len(operations) == 2


def test_request_timeout_is_at_most_the_remaining_time(server, profile, monkeypatch):
    server.on("GET", "/shares", wire.as_json({}))
    send, limits = requests.adapters.HTTPAdapter.send, []
    monkeypatch.setattr(
        requests.adapters.HTTPAdapter,
        "send",
        lambda *a, timeout, **k: limits.extend(timeout) or send(*a, timeout=timeout, **k),
    )
    Transport(profile, ReadOptions(total_timeout=5, connect_timeout=50, read_timeout=50)).fetch(SHARES)
    assert [0 < seconds <= 5 for seconds in limits] == [True, True]


def test_wait_before_a_retry_can_be_interrupted(profile):
    waits, failures = [], [retry.Transient(ds.TransportError("no"))]

    def attempt():
        if failures:
            raise failures.pop()

    Transport(profile).operation(SimpleNamespace(sleep=waits.append)).repeat(attempt)
    assert len(waits) == 1


def test_attempts_of_a_metadata_request_share_a_deadline(server, rest, table, monkeypatch):
    """The deadline limits all attempts together."""
    operations = []
    operation = Transport.operation
    monkeypatch.setattr(
        Transport, "operation", lambda self, *a: operations.append(operation(self, *a)) or operations[-1]
    )
    server.on("GET", METADATA, wire.error(503, "X"), wire.ndjson(*wire.delta_head()))
    assert table_metadata(rest, table).version == 7
    assert len(operations) == 1
    assert len(server.requests) == 2


# === Asynchronous queries ===


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        ({"status": "failed", "errorMessage": "a", "message": "b", "error": {"message": "c"}}, ds.RequestError, ": a"),
        ({"status": "failed", "message": "b", "error": {"message": "c"}}, ds.RequestError, ": b"),
        ({"status": "FAILED", "error": {"message": "c"}}, ds.RequestError, ": c"),
        *(
            ({"status": state, "message": "b"}, ds.RequestError, rf"\({state}\): b")
            for state in ("failed", "FAILED", "Error", "canceled", "TIMED_OUT", "expired")
        ),
        ({"status": "failed"}, ds.RequestError, "the server gives no reason"),
        ({"status": "x" * 50, "queryId": "q"}, ds.ProtocolError, f"pending or failed, found '{'x' * 40}'"),
        ({"status": "pending"}, ds.ProtocolError, "sent no queryId"),
        ({}, ds.ProtocolError, "sent no queryId"),
    ],
)
def test_error_of_a_failed_query_has_its_reason(server, rest, table, status, error, message):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": status}))
    with pytest.raises(error, match=message):
        query_table(rest, table, QueryRequest(asynchronous=True))


def test_query_is_polled_at_growing_intervals(server, rest, table, sleeps):
    running = wire.ndjson({"queryStatus": {"queryId": "q", "status": "PENDING"}})
    server.on("POST", QUERY, running)
    server.on("POST", STATUS, *[running] * 30, wire.ndjson(*wire.delta_head()))
    assert list(query_table(rest, table, QueryRequest(asynchronous=True)).actions) == []
    assert sleeps[0] == response_stream._FIRST_POLL
    for earlier, later in itertools.pairwise(sleeps):
        assert later == min(earlier * 1.5, response_stream._LONGEST_POLL)
    assert len(sleeps) == 31
    assert sleeps[-1] == response_stream._LONGEST_POLL


@pytest.mark.parametrize("limit", [2, 3])
def test_number_of_files_of_a_response_is_limited(server, rest, table, monkeypatch, limit):
    monkeypatch.setattr(response_stream, "MAX_ACTIONS", limit)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *(wire.delta_file(name) for name in "abc")))
    response = query_table(rest, table)
    if limit == 3:
        assert len(list(response.actions)) == 3
    else:
        with pytest.raises(ds.ProtocolError, match="more than 2 files"):
            list(response.actions)


# === Other rules of requests and responses ===


def test_number_of_logged_deviations_is_limited(monkeypatch, caplog):
    monkeypatch.setattr(deviations, "_said", set())
    monkeypatch.setattr(deviations, "_MAX_SAID", 2)
    for doing in ("one", "one", "two", "three"):
        found = Deviations(doing)
        found.note("x")
        found.tell()
        assert not found.counts
        found.tell()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["one", "two"]


@pytest.mark.parametrize("name", ["starting_timestamp", "ending_timestamp"])
def test_timestamps_are_rounded_into_the_requested_range(server, profile, name):
    path = "/shares/s/schemas/d/tables/t/changes"
    server.on("GET", path, wire.error(400, "NO"))
    text = "2024-01-01T00:00:00.0005Z"
    table = ds.SharingClient(profile).table("s.d.t")
    with pytest.raises(ds.RequestError):
        table.changes(**{"starting_timestamp": text, name: text}).to_arrow()
    (query,) = [request.query for request in server.requests if request.path == path]
    assert query["startingTimestamp"] == "2024-01-01T00:00:00.001Z"
    assert query.get("endingTimestamp") == (None if name == "starting_timestamp" else "2024-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("status", "is_followed"), [(301, False), (302, False), (303, False), (307, True), (308, True)]
)
def test_post_is_redirected_only_by_307_and_308(server, rest, table, open_responses, status, is_followed):
    server.on("POST", QUERY, wire.Reply(status, b"", {"Location": f"{server.endpoint}/elsewhere"}))
    server.on("POST", "/elsewhere", wire.ndjson(*wire.delta_head(), wire.delta_file("a")))
    if status in (307, 308):
        assert len(list(query_table(rest, table).actions)) == 1
        assert server.requests[0].body == server.requests[1].body
    else:
        with pytest.raises(ds.RequestError, match=f"redirects .{status}. a POST"):
            query_table(rest, table)
    assert open_responses() == []


@pytest.mark.parametrize("change", ["version", "format"])
def test_refresh_response_of_a_changed_table_is_closed(server, rest, table, open_responses, change):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("a")))
    response = query_table(rest, table)
    (file,) = response.actions
    urls = RefreshingUrls(rest, table, QueryRequest(), response)
    head = wire.delta_head() if change == "version" else wire.parquet_head()
    changed = wire.ndjson(*head, version=8 if change == "version" else 7)
    changed.body += b"\n" * 1000
    server.on("POST", QUERY, changed)
    with pytest.raises(
        ds.DataError, match="table has changed: " + ("its version is now 8" if change == "version" else "")
    ):
        urls.url_for(url_key(file), rejected=file.action.path)
    assert open_responses() == []


@pytest.mark.parametrize("size", [1, logins._MAX_SECRET_BYTES, logins._MAX_SECRET_BYTES + 1])
def test_secret_file_size_is_limited(tmp_path, size):
    path = tmp_path / "secret"
    path.write_bytes(b"x" * size)
    if size <= logins._MAX_SECRET_BYTES:
        assert logins.SecretFile(str(path)).reveal() == "x" * size
    else:
        with pytest.raises(ds.ProfileError, match="it is longer than"):
            logins.SecretFile(str(path)).reveal()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (None, None),
        ("0", 0),
        (" 7 ", 7),
        ("9" * 19, 10**19 - 1),
        *((text, ds.ProtocolError) for text in ("", "-1", "7.0", "\u00b2", "\u0663", "9" * 20, "seven")),
    ],
)
def test_version_header_must_be_a_whole_number(text, version):
    headers = {} if text is None else {"Delta-Table-Version": text}
    if version is ds.ProtocolError:
        with pytest.raises(ds.ProtocolError, match="expected a version"):
            version_header(headers, "Reading", "s.d.t")
    else:
        assert version_header(headers, "Reading", "s.d.t") == version


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (("dem",), "Did you mean 'Demo'?"),
        (("DEMO", "shp"), "Did you mean 'DEMO.Shop'?"),
        (("other", "shp"), "These exist: Demo."),
    ],
)
def test_error_of_a_missing_name_suggests_the_nearest(server, rest, names, advice):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "Demo"}]}))
    schemas = wire.as_json({"items": [{"name": "Shop", "share": "Demo"}]})
    server.on("GET", "/shares/Demo/schemas", schemas)
    server.on("GET", "/shares/DEMO/schemas", schemas)
    with pytest.raises(ds.DeltaSharingError) as caught:
        rest.list_schemas(*names) if len(names) == 1 else rest.list_tables(*names)
    assert advice in str(caught.value)


def test_request_has_no_netrc_login_and_no_cookies(server, rest, monkeypatch, tmp_path):
    """The session uses no credentials from ~/.netrc and no cookies of earlier responses, and follows no redirects."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login planted password planted")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.on("GET", "/shares", wire.as_json({}, headers={"Set-Cookie": "planted=planted; Path=/"}))
    assert rest.list_shares() == rest.list_shares() == []
    for url in (f"{server.endpoint}/shares", f"{server.endpoint}/elsewhere"):
        limits = RequestLimits(ReadOptions(), retry.Deadline(None), "Asking", None)
        with Session() as session, session.ask("GET", url, limits, {}):
            pass
    assert {request.headers.get("authorization") for request in server.requests} == {f"Bearer {wire.TOKEN}", None}
    assert not any("cookie" in request.headers for request in server.requests)


def test_error_of_a_truncated_body_has_the_query_id(server, rest):
    server.on("GET", "/shares", wire.Reply(200, b'{"items": []}', framing="cut-length", cut=3))
    with pytest.raises(ds.TransportError) as caught:
        rest.list_shares()
    (query_id,) = {request.headers["user-agent"].partition("QueryId-")[2].split()[0] for request in server.requests}
    assert caught.value.query_id == query_id


class TlsInTls:
    """Stands for a TLS connection within a proxy's TLS connection, which is not a socket but has its methods."""

    def __init__(self):
        self.calls = []

    def setsockopt(self, *arguments):
        self.calls.append(arguments[:2])

    def shutdown(self, how):
        self.calls.append(how)


def test_sockets_within_tls_are_shut_down():
    inner = TlsInTls()
    outer = mock.Mock(socket=inner)
    for wrapped in (inner, outer):
        inner.calls.clear()
        shut(wrapped)
        assert inner.calls == [(socket.SOL_SOCKET, socket.SO_LINGER), socket.SHUT_RDWR]
    shut(None)
    closed = socket.socket()
    closed.close()
    shut(closed)


@pytest.mark.parametrize(("pending", "is_connected"), [(None, True), (lambda: 0, True), (lambda: 5, False)])
def test_connection_with_unread_tls_bytes_is_not_reused(monkeypatch, pending, is_connected):
    connection = sessions._Connection(sessions._Adapter(), "127.0.0.1")
    monkeypatch.setattr(urllib3.connection.HTTPConnection, "is_connected", True)
    connection.sock = types.SimpleNamespace() if pending is None else types.SimpleNamespace(pending=pending)
    assert connection.is_connected is is_connected
    connection.sock = None
