"""One request to the server: what it carries, and what is left of it."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import socket
import types
from types import SimpleNamespace
from unittest import mock

import pytest
import requests
import urllib3

import delta_sharing_client as ds
from delta_sharing_client import retry
from delta_sharing_client.delta.paths import url_key
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol import fresh_urls as protocol_urls
from delta_sharing_client.protocol import loose, response_stream, sessions
from delta_sharing_client.protocol import profile as profiles
from delta_sharing_client.protocol.body import ACCEPTED_ENCODINGS
from delta_sharing_client.protocol.fresh_urls import RefreshingUrls
from delta_sharing_client.protocol.loose import Loosened
from delta_sharing_client.protocol.messages import version_header
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.query import QueryRequest, query_table, table_metadata
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.sessions import Session
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.protocol.watch import Interrupt, shut

QUERY = "/shares/s/schemas/d/tables/t/query"
STATUS = "/shares/s/schemas/d/tables/t/queries/q"
METADATA = "/shares/s/schemas/d/tables/t/metadata"
SHARES = Request(method="GET", path=("shares",), doing="Listing")


@pytest.fixture
def left_open(monkeypatch):
    """Return the statuses of the responses that were not closed."""
    opened, closed = [], set()
    send, close = requests.Session.send, requests.Response.close

    def noted(session, *args, **kwargs):
        opened.append(send(session, *args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(requests.Session, "send", noted)
    monkeypatch.setattr(requests.Response, "close", lambda self: closed.add(id(self)) or close(self))
    return lambda: [response.status_code for response in opened if id(response) not in closed]


@pytest.mark.parametrize("statuses", [[200], [400], [403], [503, 200], [503] * 4, [307, 200], [302] * 6])
def test_every_response_is_closed(server, rest, wire, left_open, statuses):
    location = {"Location": f"{server.endpoint}/shares"}
    answers = [wire.Reply(status, b"{}", location if 300 <= status < 400 else {}) for status in statuses]
    server.on("GET", "/shares", *answers)
    if statuses[-1] == 200:
        assert rest.list_shares() == []
    else:
        with pytest.raises(ds.DeltaSharingError):
            rest.list_shares()
    assert len(server.seen) == len(statuses)
    assert left_open() == []


def test_interrupted_or_missing_response_is_closed(server, rest, table, wire, left_open):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(str(n)) for n in range(100)))
    cut = wire.Reply(200, whole.body, whole.headers, "cut-length", 8000)
    server.on("POST", QUERY, cut, cut, whole)
    assert len(list(query_table(rest, table).actions)) == 100
    assert (len(server.seen), left_open()) == (3, [])

    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()[:1], "{bad", *["{}"] * 10_000))
    server.on("GET", METADATA, whole)
    for ask in (query_table, table_metadata):
        with pytest.raises(ds.ProtocolError):
            ask(rest, table)
    assert (len(server.seen), left_open()) == (5, [])


def test_no_request_is_sent_after_the_deadline(server, rest, monkeypatch):
    transport = rest.operation()
    monkeypatch.setattr(retry.Deadline, "left", lambda deadline: 0.0)
    monkeypatch.setattr(requests.Session, "request", mock.Mock(side_effect=AssertionError("sent")))
    with pytest.raises(ds.TransportError, match=r"took longer than the .* seconds of 'total_timeout'"):
        transport.attempt(SHARES)
    assert server.seen == []


def test_failure_after_the_deadline_is_a_timeout(rest, monkeypatch):
    transport = rest.operation()
    monkeypatch.setattr(retry.Deadline, "left", lambda deadline: 0.0)
    transport._complete(ds.RequestError("refused"), SHARES)
    with pytest.raises(ds.TransportError, match="'total_timeout'"):
        transport._complete(ds.TransportError("broken"), SHARES)


def test_supported_encodings_are_requested(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({}))
    rest.list_shares()
    assert server.seen[0].headers["accept-encoding"] == ACCEPTED_ENCODINGS


def test_body_is_read_on_demand(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({"items": []}))
    with rest.operation().attempt(SHARES) as response:
        assert "gzip" in server.seen[0].headers["accept-encoding"]
        assert response.raw.tell() == 0
        assert response.json() == {"items": []}


@pytest.mark.parametrize("new", [200, 401])
def test_a_refused_response_is_closed_before_the_next_try(server, wire, tmp_path, left_open, new):
    path = tmp_path / "token"
    path.write_text("old")
    fields = {"type": "bearer_token", "bearerTokenFile": str(path)}
    profile = {"shareCredentialsVersion": 2, "endpoint": server.endpoint, **fields}

    def shares(seen):
        path.write_text("new")
        is_new = seen.headers["authorization"] == "Bearer new"
        return wire.as_json({}, status=new) if is_new else wire.error(401, "X")

    server.on("GET", "/shares", shares)
    client = RestClient(Profile.load(profile), ReadOptions(max_attempts=1))
    if new == 200:
        assert client.list_shares() == []
    else:
        with pytest.raises(ds.DeltaSharingError):
            client.list_shares()
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer old", "Bearer new"]
    assert left_open() == []


def test_a_changed_profile_is_logged_once(server, wire, tmp_path, caplog):
    path = tmp_path / "profile.share"
    written = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "old"}
    path.write_text(json.dumps(written))
    server.on("GET", "/shares", wire.as_json({}))
    client = RestClient(Profile.load(path))
    with caplog.at_level("INFO", "delta_sharing_client"):
        client.list_shares()
        assert "was read again" not in caplog.text
        path.write_text(json.dumps({**written, "bearerToken": "rotated"}))
        client.list_shares()
        client.list_shares()
    assert caplog.text.count("was read again") == 1
    assert [seen.headers["authorization"] for seen in server.seen] == ["Bearer old", *["Bearer rotated"] * 2]


@pytest.mark.parametrize(("stated", "least"), [("7", 7), ("0", 0), ("soon", 0), (None, 0)])
def test_retry_after_of_the_server_is_used(server, rest, wire, sleeps, monkeypatch, stated, least):
    headers = {} if stated is None else {"Retry-After": stated}
    server.on("GET", "/shares", wire.Reply(429, b"", headers), wire.as_json({}))
    assert rest.list_shares() == []
    assert len(sleeps) == 1
    assert least <= sleeps[0] < 7 + 60 * bool(least)
    assert retry.retry_after("7") == 7


def test_request_without_response_is_logged_with_its_query_id(server, rest, wire, caplog):
    caplog.set_level("DEBUG", "delta_sharing_client")
    server.on("GET", "/shares", wire.Reply(framing="reset"))
    with pytest.raises(ds.TransportError) as caught:
        rest.list_shares()
    told = [text for text in caplog.messages if f"(query id {caught.value.query_id})" in text]
    assert len(told) == len(server.seen)
    assert all("was cut off" in text for text in told)


def test_only_a_body_has_a_type(server, rest, wire, table):
    server.on("GET", "/shares", wire.as_json({}))
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))
    rest.list_shares()
    list(query_table(rest, table).actions)
    assert [seen.headers.get("content-type") for seen in server.seen] == [None, "application/json; charset=utf-8"]


@pytest.mark.parametrize(
    ("agent", "told", "expected"),
    [
        (None, None, None),
        (None, "", None),
        (None, "env/1", "env/1"),
        ("own/2", "env/1", "own/2"),
        ("own/2", "", "own/2"),
    ],
)
def test_user_agent_ends_with_the_callers_or_environments(profile, monkeypatch, agent, told, expected):
    monkeypatch.delenv("DELTA_SHARING_USER_AGENT", raising=False)
    if told is not None:
        monkeypatch.setenv("DELTA_SHARING_USER_AGENT", told)
    transport = Transport(profile, ReadOptions(user_agent=agent))
    assert transport._last_agent == expected
    assert Transport(profile).for_read(ReadOptions(user_agent=agent))._last_agent == expected


@pytest.mark.parametrize(
    ("own", "told", "expected"),
    [
        ({}, None, {}),
        ({}, "", {}),
        ({}, "{}", {}),
        ({"A": "1"}, '{"A": "2", "B": "3"}', {"A": "1", "B": "3"}),
        ({"A": "1"}, None, {"A": "1"}),
    ],
)
def test_callers_headers_come_before_the_environments(profile, monkeypatch, own, told, expected):
    monkeypatch.delenv("DELTA_SHARING_HEADERS", raising=False)
    if told is not None:
        monkeypatch.setenv("DELTA_SHARING_HEADERS", told)
    assert Transport(profile, ReadOptions(headers=own))._headers == expected
    assert Transport(profile).for_read(ReadOptions(headers=own))._headers == expected


@pytest.mark.parametrize("told", ["[]", "5", "null", "{", '{"A": 1}', '{"A": ""}', '{"A B": "1"}', '{"Host": "x"}'])
def test_unsendable_environment_headers_are_refused(profile, monkeypatch, told):
    monkeypatch.setenv("DELTA_SHARING_HEADERS", told)
    with pytest.raises(ds.UsageError, match=r"DELTA_SHARING_HEADERS|of 'headers'"):
        Transport(profile)


def test_connections_are_shared_until_closed_or_forked(profile, monkeypatch):
    transport = Transport(profile)
    first = transport._server.session()
    read = transport.for_read(ReadOptions())
    assert transport._server.session() is read._server.session() is first
    transport.close()
    second = transport._server.session()
    assert second is not first
    assert transport._server.session() is second
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    third = transport._server.session()
    assert third is not second
    assert transport._server.session() is third
    assert pickle.loads(pickle.dumps(transport))._server.session() is not third
    transport.close()
    transport.close()


def test_a_copy_for_an_operation_has_its_own_deadline(profile):
    transport = Transport(profile, ReadOptions(total_timeout=5))
    assert transport.deadline.within(100) == 100
    assert 0 < transport.operation().deadline.within(100) <= 5
    assert transport.deadline.within(100) == 100
    assert pickle.loads(pickle.dumps(transport.operation(Interrupt()))).deadline.within(100) == 100


def test_request_uses_the_deadline_of_its_operation_or_its_own(server, profile, wire, monkeypatch):
    server.on("GET", "/shares", wire.as_json({}))
    made = []
    operation = Transport.operation
    monkeypatch.setattr(Transport, "operation", lambda self, *a: made.append(operation(self, *a)) or made[-1])
    transport, request = Transport(profile, ReadOptions(total_timeout=5)), SHARES
    transport.fetch(request)
    assert len(made) == 1
    transport.operation().fetch(request)
    assert len(made) == 2


def test_request_timeout_is_at_most_the_remaining_time(server, profile, wire, monkeypatch):
    server.on("GET", "/shares", wire.as_json({}))
    send, limits = requests.Session.request, []
    monkeypatch.setattr(
        requests.Session, "request", lambda *a, timeout, **k: limits.extend(timeout) or send(*a, timeout=timeout, **k)
    )
    Transport(profile, ReadOptions(total_timeout=5, connect_timeout=50, read_timeout=50)).fetch(SHARES)
    assert [0 < seconds <= 5 for seconds in limits] == [True, True]


def test_interrupt_ends_the_wait_between_retries(profile):
    waits, failures = [], [retry.Transient(ds.TransportError("no"))]

    def attempt():
        if failures:
            raise failures.pop()

    Transport(profile).operation(SimpleNamespace(sleep=waits.append)).repeat(attempt)
    assert len(waits) == 1


def test_the_metadata_of_a_table_has_one_deadline(server, rest, table, wire, monkeypatch):
    """All tries together, not each for itself."""
    deadlines = []
    operation = Transport.operation
    monkeypatch.setattr(Transport, "operation", lambda self, *a: deadlines.append(operation(self, *a)) or deadlines[-1])
    server.on("GET", METADATA, wire.error(503, "X"), wire.ndjson(*wire.delta_head()))
    assert table_metadata(rest, table).version == 7
    assert len(deadlines) == 1
    assert len(server.seen) == 2


# === Queries that run ===


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        ({"status": "failed", "errorMessage": "a", "message": "b", "error": {"message": "c"}}, ds.RequestError, ": a"),
        ({"status": "failed", "message": "b", "error": {"message": "c"}}, ds.RequestError, ": b"),
        ({"status": "FAILED", "error": {"message": "c"}}, ds.RequestError, ": c"),
        ({"status": "failed"}, ds.RequestError, "the server gives no reason"),
        ({"status": "x" * 50, "queryId": "q"}, ds.ProtocolError, f"pending or failed, found '{'x' * 40}'"),
        ({"status": "pending"}, ds.ProtocolError, "sent no queryId"),
        ({}, ds.ProtocolError, "sent no queryId"),
    ],
)
def test_query_that_does_not_run_reports_its_reason(server, rest, table, wire, status, error, message):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": status}))
    with pytest.raises(error, match=message):
        query_table(rest, table, QueryRequest(asynchronous=True))


def test_query_is_polled_at_growing_intervals(server, rest, table, wire, sleeps):
    running = wire.ndjson({"queryStatus": {"queryId": "q", "status": "PENDING"}})
    server.on("POST", QUERY, running)
    server.on("POST", STATUS, *[running] * 30, wire.ndjson(*wire.delta_head()))
    assert list(query_table(rest, table, QueryRequest(asynchronous=True)).actions) == []
    assert sleeps[0] == response_stream._FIRST_POLL
    for before, after in itertools.pairwise(sleeps):
        assert after == min(before * 1.5, response_stream._LONGEST_POLL)
    assert len(sleeps) == 31
    assert sleeps[-1] == response_stream._LONGEST_POLL


@pytest.mark.parametrize("most", [2, 3])
def test_response_may_list_files_up_to_the_limit(server, rest, table, wire, monkeypatch, most):
    monkeypatch.setattr(response_stream, "MAX_ACTIONS", most)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *(wire.delta_file(name) for name in "abc")))
    answer = query_table(rest, table)
    if most == 3:
        assert len(list(answer.actions)) == 3
    else:
        with pytest.raises(ds.ProtocolError, match="more than 2 files"):
            list(answer.actions)


# === Small rules ===


@pytest.mark.parametrize(
    ("renew_at", "is_old"), [(None, False), (100_000, True), (100_001, False), (99_999, True), (0, True)]
)
def test_a_url_is_old_from_the_time_of_its_renewal(monkeypatch, renew_at, is_old):
    monkeypatch.setattr(protocol_urls, "steady_ms", lambda: 100_000)
    assert protocol_urls._Url("https://x/a", renew_at).is_old() is is_old


def test_number_of_logged_deviations_is_limited(monkeypatch, caplog):
    monkeypatch.setattr(loose, "_said", set())
    monkeypatch.setattr(loose, "_MAX_SAID", 2)
    for doing in ("one", "one", "two", "three"):
        loosened = Loosened(doing)
        loosened.note("x")
        loosened.tell()
        assert not loosened.counts
        loosened.tell()
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["one", "two"]


@pytest.mark.parametrize("name", ["starting_timestamp", "ending_timestamp"])
def test_time_range_is_not_wider_than_requested(server, profile, wire, name):
    path = "/shares/s/schemas/d/tables/t/changes"
    server.on("GET", path, wire.error(400, "NO"))
    text = "2024-01-01T00:00:00.0005Z"
    table = ds.SharingClient(profile).table("s.d.t")
    with pytest.raises(ds.RequestError):
        table.changes(**{"starting_timestamp": text, name: text}).to_arrow()
    (asked,) = [seen.query for seen in server.seen if seen.path == path]
    assert asked["startingTimestamp"] == "2024-01-01T00:00:00.001Z"
    assert asked.get("endingTimestamp") == (None if name == "starting_timestamp" else "2024-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("status", "is_followed"), [(301, False), (302, False), (303, False), (307, True), (308, True)]
)
def test_post_is_redirected_only_by_307_and_308(server, rest, table, wire, left_open, status, is_followed):
    server.on("POST", QUERY, wire.Reply(status, b"", {"Location": f"{server.endpoint}/elsewhere"}))
    server.on("POST", "/elsewhere", wire.ndjson(*wire.delta_head(), wire.delta_file("a")))
    if status in (307, 308):
        assert len(list(query_table(rest, table).actions)) == 1
        assert server.seen[0].body == server.seen[1].body
    else:
        with pytest.raises(ds.RequestError, match=f"redirects .{status}. a POST"):
            query_table(rest, table)
    assert left_open() == []


@pytest.mark.parametrize("change", ["version", "format"])
def test_a_response_of_another_table_renews_no_url_and_is_closed(server, rest, table, wire, left_open, change):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("a")))
    answer = query_table(rest, table)
    (file,) = answer.actions
    urls = RefreshingUrls(rest, table, QueryRequest(), answer)
    head = wire.delta_head() if change == "version" else wire.parquet_head()
    other = wire.ndjson(*head, version=8 if change == "version" else 7)
    other.body += b"\n" * 1000
    server.on("POST", QUERY, other)
    with pytest.raises(
        ds.DataError, match="table has changed: " + ("it is at version 8" if change == "version" else "")
    ):
        urls.url_for(url_key(file), rejected=file.action.path)
    assert left_open() == []


@pytest.mark.parametrize("size", [1, profiles._MAX_SECRET_BYTES, profiles._MAX_SECRET_BYTES + 1])
def test_secret_file_size_is_limited(tmp_path, size):
    path = tmp_path / "secret"
    path.write_bytes(b"x" * size)
    if size <= profiles._MAX_SECRET_BYTES:
        assert profiles.SecretFile(str(path)).reveal() == "x" * size
    else:
        with pytest.raises(ds.ProfileError, match="it is longer than"):
            profiles.SecretFile(str(path)).reveal()


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
def test_the_version_in_a_header_is_a_whole_number(text, version):
    headers = {} if text is None else {"Delta-Table-Version": text}
    if version is ds.ProtocolError:
        with pytest.raises(ds.ProtocolError, match="expected a version"):
            version_header(headers, "Reading", "s.d.t")
    else:
        assert version_header(headers, "Reading", "s.d.t") == version


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("dem",), "Did you mean 'Demo'?"),
        (("DEMO", "shp"), "Did you mean 'DEMO.Shop'?"),
        (("other", "shp"), "There are: Demo."),
    ],
)
def test_missing_name_error_suggests_the_nearest(server, rest, wire, given, told):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "Demo"}]}))
    schemas = wire.as_json({"items": [{"name": "Shop", "share": "Demo"}]})
    server.on("GET", "/shares/Demo/schemas", schemas)
    server.on("GET", "/shares/DEMO/schemas", schemas)
    with pytest.raises(ds.DeltaSharingError) as caught:
        rest.list_schemas(*given) if len(given) == 1 else rest.list_tables(*given)
    assert told in str(caught.value)


def test_request_contains_no_user_information(server, rest, wire, monkeypatch, tmp_path):
    """No login of ~/.netrc, no cookie of an earlier response, no redirect that requests would follow."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login planted password planted")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    server.on("GET", "/shares", wire.as_json({}, headers={"Set-Cookie": "planted=planted; Path=/"}))
    assert rest.list_shares() == rest.list_shares() == []
    for url in (f"{server.endpoint}/shares", f"{server.endpoint}/elsewhere"):
        with Session() as session:
            session.request("GET", url)
    assert {seen.headers.get("authorization") for seen in server.seen} == {f"Bearer {wire.token}", None}
    assert not any("cookie" in seen.headers for seen in server.seen)


def test_a_body_that_is_cut_off_fails_with_the_id_of_its_query(server, rest, wire):
    server.on("GET", "/shares", wire.Reply(200, b'{"items": []}', framing="cut-length", cut=3))
    with pytest.raises(ds.TransportError) as caught:
        rest.list_shares()
    (sent,) = {seen.headers["user-agent"].partition("QueryId-")[2].split()[0] for seen in server.seen}
    assert caught.value.query_id == sent


class Wrapped:
    """TLS in the TLS of a proxy: no socket, but like one."""

    def __init__(self):
        self.calls = []

    def setsockopt(self, *arguments):
        self.calls.append(arguments[:2])

    def shutdown(self, how):
        self.calls.append(how)


def test_wrapped_sockets_are_shut_down_too():
    inner = Wrapped()
    outer = mock.Mock(socket=inner)
    for given in (inner, outer):
        inner.calls.clear()
        shut(given)
        assert inner.calls == [(socket.SOL_SOCKET, socket.SO_LINGER), socket.SHUT_RDWR]
    shut(None)
    closed = socket.socket()
    closed.close()
    shut(closed)


@pytest.mark.parametrize(("pending", "is_connected"), [(None, True), (lambda: 0, True), (lambda: 5, False)])
def test_a_connection_with_bytes_that_tls_took_is_not_used_again(monkeypatch, pending, is_connected):
    connection = sessions._Connection("127.0.0.1")
    monkeypatch.setattr(urllib3.connection.HTTPConnection, "is_connected", True)
    connection.sock = types.SimpleNamespace() if pending is None else types.SimpleNamespace(pending=pending)
    assert connection.is_connected is is_connected
    connection.sock = None
