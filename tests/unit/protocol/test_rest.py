"""Endpoints, listings and versions, and what goes over the wire with every request."""

from __future__ import annotations

import contextlib
import gzip
import os
import pickle
import socket
import threading

import pytest
import requests

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import (
    AuthError,
    DeltaSharingError,
    NotFoundError,
    ProfileError,
    ProtocolError,
    RequestError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol import loose
from delta_sharing_client.protocol.listings import PageTokens, _nearest
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.query import query_table
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.transport import Request
from tests.time_limits import HANGS, Stopwatch

T = "/shares/s/schemas/d/tables/t"


def client_of(server, token="planted-token", **options):
    profile = Profile.load({"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": token})
    return RestClient(profile, ReadOptions(max_attempts=3, connect_timeout=2, read_timeout=2, **options))


# --- listings ---


def test_shares_of_all_pages_are_listed(server, rest, wire):
    pages = [
        {"items": [{"name": "a", "id": "1", "displayName": "A"}], "nextPageToken": "x&y"},
        {"nextPageToken": "z"},
        {"items": [{"name": "b"}], "nextPageToken": ""},
    ]
    server.on("GET", "/shares", *(wire.as_json(page) for page in pages))

    assert rest.list_shares() == [Share("a", "1", "A"), Share("b")]
    assert [seen.query for seen in server.seen] == [{}, {"pageToken": "x&y"}, {"pageToken": "z"}]


def test_listing_that_repeats_a_page_token_is_an_error(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "a"}], "nextPageToken": "x"}))

    with pytest.raises(ProtocolError, match="nextPageToken twice"):
        rest.list_shares()


@pytest.mark.parametrize("body", [b"{}", b'{"items": null}', b'{\n  "items": [\n  ]\n}\n'])
def test_listing_without_items_is_empty(server, rest, wire, body):
    server.on("GET", "/shares", wire.Reply(200, body))

    assert rest.list_shares() == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": [{"id": "1"}]}', b'{"items": [{"name": "\xff"}]}'])
def test_invalid_listing_is_an_error(server, rest, wire, body):
    server.on("GET", "/shares", wire.Reply(200, body))

    with pytest.raises(ProtocolError, match="Listing the shares"):
        rest.list_shares()


def test_share_is_looked_up_in_its_wrapper(server, rest, wire):
    server.on("GET", "/shares/a", wire.as_json({"share": {"name": "a", "id": "1"}}))
    server.on("GET", "/shares/b", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no such share"))

    assert rest.get_share("a") == Share("a", "1")
    with pytest.raises(NotFoundError, match="no such share") as caught:
        rest.get_share("b")
    assert (caught.value.status, caught.value.error_code) == (404, "RESOURCE_DOES_NOT_EXIST")


def test_schemas_and_tables_keep_all_fields_of_the_server(server, rest, wire):
    server.on("GET", "/shares/a/schemas", wire.as_json({"items": [{"name": "d", "share": "A"}, {"name": "e"}]}))
    item = {
        "name": "t",
        "schema": "d",
        "share": "a",
        "shareId": "1",
        "id": "2",
        "displayName": "T",
        "location": "s3://b/t",
        "auxiliaryLocations": ["s3://c/t"],
        "accessModes": ["url", "dir"],
    }
    spelled = {**item, "share": "A", "schema": "D"}
    server.on("GET", "/shares/a/schemas/d/tables", wire.as_json({"items": [item, {"name": "u"}, spelled]}))

    assert rest.list_schemas("a") == [Schema("d", "A"), Schema("e", "a")]
    first, second, third = rest.list_tables("a", "d")
    assert first == Table("t", "a", "d", "2", "1", "T", "s3://b/t", ("s3://c/t",), ("url", "dir"))
    assert second == Table("u", "a", "d")
    assert third.full_name == AssetName("A", "D", "t")
    assert first.full_name == AssetName("a", "d", "t")


def test_all_tables_use_one_endpoint_where_it_exists(server, rest, wire):
    server.on("GET", "/shares/a/all-tables", wire.as_json({"items": [{"name": "t", "schema": "d", "share": "a"}]}))

    assert rest.list_all_tables("a") == [Table("t", "a", "d")]
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [404, 405, 501])
def test_all_tables_come_schema_by_schema_from_an_old_server(server, rest, wire, status):
    server.on("GET", "/shares/a/all-tables", wire.Reply(status, b"no such API"))
    server.on("GET", "/shares/a/schemas", wire.as_json({"items": [{"name": "d"}, {"name": "e"}]}))
    server.on("GET", "/shares/a/schemas/d/tables", wire.as_json({"items": [{"name": "t"}]}))
    server.on("GET", "/shares/a/schemas/e/tables", wire.as_json({}))

    assert rest.list_all_tables("a") == [Table("t", "a", "d")]
    assert [seen.path.rpartition("/")[2] for seen in server.seen] == ["all-tables", "schemas", "tables", "tables"]


def test_only_without_the_endpoint_is_each_schema_requested(server, rest, wire):
    server.on("GET", "/shares/a/all-tables", wire.error(400, "INVALID", "not for you"))
    with pytest.raises(RequestError, match="not for you"):
        rest.list_all_tables("a")
    assert len(server.seen) == 1


def test_501_fails_at_once(server, rest, wire, table, sleeps):
    broken = wire.error(501, "NOT_IMPLEMENTED", "not here")
    for method, path in (("GET", "/shares"), ("GET", f"{T}/version"), ("HEAD", T)):
        server.on(method, path, broken)
    for ask in (rest.list_shares, lambda: rest.table_version(table), lambda: rest.table_version(table, "2022-01-01")):
        with pytest.raises(RequestError, match="not here") as caught:
            ask()
        assert caught.value.status == 501
    assert [seen.method for seen in server.seen] == ["GET", "GET", "HEAD", "GET"]
    assert sleeps == []


def test_all_tables_of_a_missing_share_is_an_error(server, rest, wire):
    server.on("GET", "/shares/a/all-tables", wire.error(404, "RESOURCE_DOES_NOT_EXIST"))
    server.on("GET", "/shares/a/schemas", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "share a is unknown"))

    with pytest.raises(NotFoundError, match="share a is unknown"):
        rest.list_all_tables("a")


@pytest.mark.parametrize(
    ("share", "raw"),
    [("a#b?c", "a%23b%3Fc"), ("a b%", "a%20b%25"), ("a.b", "a.b"), ("é+&", "%C3%A9%2B%26")],
)
def test_names_are_encoded_as_path_segments(server, rest, wire, share, raw):
    server.on("GET", f"/shares/{raw}/schemas", wire.as_json({}))

    assert rest.list_schemas(share) == []


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", "x" * 256])
def test_assets_with_invalid_names_are_left_out_of_listings(server, rest, wire, name, caplog):
    """The protocol forbids such names, and a request for one would be for something else."""
    good, both = {"name": "good"}, [{"name": name}, {"name": "good"}]
    server.on("GET", "/shares", wire.as_json({"items": both}))
    server.on("GET", "/shares/good/schemas", wire.as_json({"items": both}))
    server.on("GET", "/shares/good/schemas/good/tables", wire.as_json({"items": both}))
    all_tables = [{**item, "schema": schema} for item in both for schema in (name, "good")]
    server.on("GET", "/shares/good/all-tables", wire.as_json({"items": all_tables}))

    assert [share.name for share in rest.list_shares()] == ["good"]
    assert [schema.name for schema in rest.list_schemas("good")] == ["good"]
    assert [str(table.full_name) for table in rest.list_tables("good", "good")] == ["good.good.good"]
    assert [str(table.full_name) for table in rest.list_all_tables("good")] == ["good.good.good"]
    assert [str(table.full_name) for table in SharingClient(rest.profile).list_all_tables()] == ["good.good.good"]
    assert len([record for record in caplog.records if "an item is left out" in record.getMessage()]) == 10
    assert "name has" in caplog.text

    server.on("GET", "/shares", wire.as_json({"items": [{"name": name}]}))
    with pytest.raises(ProtocolError, match=r"Listing the shares: expected items with valid names"):
        rest.list_shares()
    server.on("GET", "/shares", wire.as_json({"items": [good]}))


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a\nb", "x" * 256])
def test_names_that_cannot_be_are_refused_before_any_request(server, rest, name):
    with pytest.raises(UsageError):
        rest.list_schemas(name)
    assert server.seen == []


# --- version ---


def test_version_header_name_is_case_insensitive(server, rest, wire, table):
    server.on("GET", f"{T}/version", wire.Reply(200, b"", {"DELTA-TABLE-VERSION": "12"}))

    assert rest.table_version(table) == 12
    assert rest.table_version(table, "2022-01-01T00:00:00Z") == 12
    assert server.seen[1].query == {"startingTimestamp": "2022-01-01T00:00:00Z"}


@pytest.mark.parametrize("name", ["deltaTableVersion", "delta-table-version", "version"])
@pytest.mark.parametrize("value", [3, "3"])
def test_version_may_stand_in_the_body_only(server, rest, wire, table, name, value, caplog, monkeypatch):
    """delta-sharing-gateway responds {"deltaTableVersion": 3}, without a header."""
    monkeypatch.setattr(loose, "_said", set())
    server.on("GET", f"{T}/version", wire.as_json({name: value}))

    assert rest.table_version(table) == 3
    assert "the version is in the body" in caplog.text

    server.on("GET", f"{T}/version", wire.as_json({name: value}, headers={"Delta-Table-Version": "4"}))
    assert rest.table_version(table) == 4


@pytest.mark.parametrize("body", [b"", b"3", b"{}", b'{"version": -1}', b'{"version": null}', b'{"version": 1.5}'])
def test_a_response_without_a_version_is_refused(server, rest, wire, table, body):
    server.on("GET", f"{T}/version", wire.Reply(200, body))

    with pytest.raises(ProtocolError, match="no Delta-Table-Version header"):
        rest.table_version(table)


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("body", [b"Not Found", b'{"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "no such API"}'])
def test_version_of_an_old_server_is_asked_with_head(server, rest, wire, table, status, body):
    server.on("GET", f"{T}/version", wire.Reply(status, body))
    server.on("HEAD", T, wire.Reply(200, b"", {"Delta-Table-Version": "3"}))

    assert rest.table_version(table) == 3


def test_version_of_a_missing_table_is_not_found(server, rest, wire, table):
    server.on("GET", f"{T}/version", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no table"))
    with pytest.raises(NotFoundError, match="no table"):
        rest.table_version(table)

    server.on("GET", f"{T}/version", wire.Reply(404, b"nothing here"))
    with pytest.raises(NotFoundError, match="nothing here"):
        rest.table_version(table)
    with pytest.raises(NotFoundError, match="nothing here"):
        rest.table_version(table, "2022-01-01T00:00:00Z")
    assert [seen.method for seen in server.seen] == ["GET", "HEAD", "GET", "HEAD", "GET"]
    assert rest.metadata_request(table, {}, None, None).table == str(table)


@pytest.mark.parametrize("headers", [{}, {"Delta-Table-Version": "-1"}, {"Delta-Table-Version": "x"}])
def test_version_that_is_missing_or_malformed_is_an_error(server, rest, wire, table, headers):
    server.on("GET", f"{T}/version", wire.Reply(204, b"", headers))

    with pytest.raises(ProtocolError, match="Delta-Table-Version"):
        rest.table_version(table)


# --- temporary credentials ---


def test_temporary_credentials_are_read_and_never_shown(server, rest, wire, table):
    keys = {"accessKeyId": "planted-1", "secretAccessKey": "planted-2", "sessionToken": "planted-3"}
    answer = {"credentials": {"location": "s3://b/t", "awsTempCredentials": keys, "expirationTime": 5}}
    server.on("POST", f"{T}/temporary-table-credentials", wire.as_json(answer))

    credentials = rest.temporary_table_credentials(table)
    rest.temporary_table_credentials(table, "s3://c/t")

    assert credentials.location == "s3://b/t"
    assert credentials.aws_temp_credentials.secret_access_key == "planted-2"
    assert "planted" not in repr(credentials)
    assert server.seen[0].body == ""
    assert "content-type" not in server.seen[0].headers
    assert server.seen[1].body == {"location": "s3://c/t"}


def test_temporary_credentials_of_no_cloud_are_an_error(server, rest, wire, table):
    server.on("POST", f"{T}/temporary-table-credentials", wire.as_json({"credentials": {"location": "s3://b/t"}}))

    with pytest.raises(UnsupportedFeatureError, match="found none of them, for a location in 's3:'"):
        rest.temporary_table_credentials(table)


@pytest.mark.parametrize("location", ["s3://b/t", "file:///b/t"])
def test_credentials_are_for_one_cloud_or_a_local_directory(server, rest, wire, table, location):
    clouds = {"azureUserDelegationSas": {"sasToken": "planted"}, "gcpOauthToken": {"oauthToken": "planted"}}
    if location.startswith("file"):
        server.on("POST", f"{T}/temporary-table-credentials", wire.as_json({"credentials": {"location": location}}))
        assert rest.temporary_table_credentials(table).location == location
        del clouds["gcpOauthToken"]
    answer = wire.as_json({"credentials": {"location": location, **clouds}})
    server.on("POST", f"{T}/temporary-table-credentials", answer)

    expected = "no credentials" if len(clouds) == 1 else "exactly one kind of credentials"
    with pytest.raises(ProtocolError, match=f"expected {expected}, found {' and '.join(map(repr, clouds))}"):
        rest.temporary_table_credentials(table)


# --- every request ---


def test_every_request_carries_token_and_user_agent(server, profile, wire):
    server.on("GET", "/shares", wire.as_json({}))

    RestClient(profile).list_shares()
    RestClient(profile, user_agent="Delta-Sharing-SparkStructuredStreaming/1").list_shares()

    first, second = (seen.headers for seen in server.seen)
    assert first["authorization"] == f"Bearer {wire.token}"
    assert first["user-agent"].startswith("delta-sharing-client/")
    assert " python/3." in first["user-agent"]
    assert second["user-agent"].startswith("Delta-Sharing-SparkStructuredStreaming/1 delta-sharing-client/")


def test_netrc_does_not_replace_the_token(server, wire, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    moved = wire.Reply(307, b"", {"Location": f"{server.endpoint}/elsewhere"})
    server.on("GET", "/shares", moved)
    server.on("GET", "/elsewhere", wire.as_json({}))

    client_of(server, wire.token).list_shares()

    assert [seen.headers["authorization"] for seen in server.seen] == [f"Bearer {wire.token}"] * 2


def test_redirect_to_another_host_gets_no_token(server, rest, wire):
    other = server.endpoint.replace("127.0.0.1", "localhost")
    server.on("GET", "/shares", wire.Reply(307, b"", {"Location": f"{other}/elsewhere"}))
    server.on("GET", "/elsewhere", wire.as_json({}))

    rest.list_shares()

    assert "authorization" not in server.seen[1].headers


def test_no_redirect_of_another_host_gets_the_token_back(server, rest, wire):
    other = server.endpoint.replace("127.0.0.1", "localhost")
    steps = {"/shares": f"{other}/b", "/b": f"{other}/c", "/c": f"{server.endpoint}/d", "/d": f"{server.endpoint}/e"}
    for path, target in steps.items():
        server.on("GET", path, wire.Reply(307, b"", {"Location": target}))
    server.on("GET", "/e", wire.as_json({}))

    rest.list_shares()

    assert [(seen.path, "authorization" in seen.headers) for seen in server.seen] == [
        ("/shares", True), ("/b", False), ("/c", False), ("/d", False), ("/e", False)
    ]  # fmt: skip


def test_redirect_that_would_turn_a_query_into_a_get_is_an_error(server, rest, wire, table):
    server.on("POST", f"{T}/query", wire.Reply(302, b"", {"Location": f"{server.endpoint}/elsewhere"}))
    server.on("GET", "/elsewhere", wire.ndjson(*wire.delta_head()))

    with pytest.raises(RequestError, match="redirects"):
        query_table(rest, table)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_redirect_to_another_scheme_is_not_followed(server, rest, wire, target):
    server.on("GET", "/shares", wire.Reply(307, b"", {"Location": target}))

    with pytest.raises(ProtocolError, match=r"redirects \(307\) to an address that cannot be used"):
        rest.list_shares()
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [300, 307])
def test_redirect_without_a_target_is_an_error(server, rest, wire, status):
    server.on("GET", "/shares", wire.Reply(status, b'{"items": []}'))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.status == status


@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_empty_response_is_named_in_the_error(server, rest, wire, body):
    server.on("GET", "/shares", wire.Reply(200, body))
    with pytest.raises(ProtocolError, match=r"\(an empty body\)"):
        rest.list_shares()


def test_location_header_without_a_redirect_is_ignored(server, rest, wire):
    reply = wire.as_json({"items": [{"name": "a"}]})
    reply.headers["Location"] = f"{server.endpoint}/elsewhere"
    server.on("GET", "/shares", reply)
    assert [share.name for share in rest.list_shares()] == ["a"]
    assert len(server.seen) == 1


def test_cookies_are_not_kept(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({}, headers={"Set-Cookie": "session=1; Path=/"}))

    rest.list_shares()
    rest.list_shares()

    assert "cookie" not in server.seen[1].headers


def test_proxy_of_the_environment_is_used(server, wire, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.endpoint.removesuffix("/prefix"))
    profile = Profile.load({"shareCredentialsVersion": 1, "endpoint": "http://far.invalid/x", "bearerToken": "t"})
    server.on("GET", "/x/shares", wire.as_json({"items": [{"name": "through the proxy"}]}))

    assert RestClient(profile).list_shares() == [Share("through the proxy")]


def test_expired_token_is_an_error_before_any_request(server):
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "planted"}
    profile = Profile.load({**fields, "expirationTime": "2021-11-12T00:12:29.0Z"})

    with pytest.raises(ProfileError, match=r"expired at 2021-11-12T00:12:29\+00:00") as caught:
        RestClient(profile).list_shares()
    assert "planted" not in str(caught.value)
    assert server.seen == []


def test_a_token_that_expires_later_is_sent(server, wire):
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "planted"}
    server.on("GET", "/shares", wire.as_json({}))

    assert RestClient(Profile.load({**fields, "expirationTime": "2221-11-12T00:12:29.0Z"})).list_shares() == []
    assert server.seen[0].headers["authorization"] == "Bearer planted"


def test_a_refused_token_is_advised_about_with_its_expiration(server, wire):
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "planted"}
    server.on("GET", "/shares", wire.error(401, "X"))

    with pytest.raises(AuthError, match=r"states 2221-11-12T00:12:29\+00:00 as expiration"):
        RestClient(Profile.load({**fields, "expirationTime": "2221-11-12T00:12:29Z"})).list_shares()
    with pytest.raises(AuthError, match="The token may have expired"):
        RestClient(Profile.load(fields)).list_shares()


def test_client_pickles_without_connections_and_works_again(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({}))
    rest.list_shares()

    copy = pickle.loads(pickle.dumps(rest))

    assert copy.list_shares() == []
    assert copy.profile == rest.profile
    assert wire.token not in repr(copy)


def test_client_works_after_close_and_in_a_forked_process(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({}))
    rest.list_shares()
    rest.close()
    assert rest.list_shares() == []
    hub = rest._server
    session = hub.session()
    hub._sessions = {os.getpid() + 1: session}  # as a child sees it
    assert hub.session() is not session
    assert [*hub._sessions] == [os.getpid()]


def test_threads_share_a_client(server, rest, wire):
    server.on("GET", "/shares", lambda seen: wire.as_json({"items": [{"name": seen.query.get("n", "x")}]}))
    results, errors = [], []

    def work():
        try:
            results.extend(rest.list_shares() for _ in range(10))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert results == [[Share("x")]] * 80


# --- trying again ---


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 509, 520, 530])
def test_passing_failures_are_tried_again_with_growing_waits(server, wire, status, sleeps):
    failing = wire.error(status, "BUSY")
    server.on("GET", "/shares", failing, failing, wire.as_json({}))

    assert client_of(server).list_shares() == []
    assert len(sleeps) == 2
    assert 0.05 <= sleeps[0] <= 0.1 < 0.15 <= sleeps[1] <= 0.3


@pytest.mark.parametrize("status", [400, 409, 418, 501, 505])
def test_other_failures_are_not_tried_again(server, wire, status):
    server.on("GET", "/shares", wire.error(status, "X", "why"))

    with pytest.raises(RequestError, match="why") as caught:
        client_of(server).list_shares()
    assert caught.value.status == status
    assert len(server.seen) == 1


def test_failure_that_stays_is_reported_with_the_number_of_tries(server, wire):
    server.on("GET", "/shares", wire.error(503, "BUSY", "later"))

    with pytest.raises(RequestError, match=r"503, BUSY\): later\. Tried 3 times\.") as caught:
        client_of(server).list_shares()
    assert caught.value.status == 503


def test_reset_and_truncated_responses_are_retried(server, wire):
    whole = b'{"items": [{"name": "a"}]}'
    server.on(
        "GET",
        "/shares",
        wire.Reply(framing="reset"),
        wire.Reply(200, whole, framing="cut-length", cut=9),
        wire.Reply(200, whole, framing="chunked"),
    )

    assert client_of(server).list_shares() == [Share("a")]


def test_silent_server_is_given_up(server, wire):
    gate = threading.Event()

    def late(seen):
        gate.wait(HANGS)
        return wire.as_json({})

    server.on("GET", "/shares", late)
    client = RestClient(client_of(server).profile, ReadOptions(max_attempts=2, read_timeout=0.1))

    with pytest.raises(TransportError, match=r"no bytes within the time limit.*Tried 2 times"):
        client.list_shares()
    gate.set()


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (ConnectionRefusedError(111, "refused"), 3),
        (socket.gaierror(socket.EAI_AGAIN, "the name server is away"), 3),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), 1),
    ],
)
def test_unreachable_server_is_a_transport_error(monkeypatch, sleeps, failure, tries):
    def fail(*args, **kwargs):
        raise failure

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    profile = Profile.load({"shareCredentialsVersion": 1, "endpoint": "http://far.invalid", "bearerToken": "t"})

    with pytest.raises(TransportError, match="Listing the shares failed"):
        RestClient(profile, ReadOptions(max_attempts=3)).list_shares()
    assert len(sleeps) == tries - 1


# --- error bodies ---


def test_error_body_is_parsed_as_json_or_shown_as_text(server, rest, wire):
    for body, headers, shown in (
        (b'{"errorCode": "BAD", "message": "json text"}', {"Content-Type": "text/plain"}, r"\(400, BAD\): json text"),
        (b"plain  \n text", {}, r"\(400\): plain text"),
        (b"caf\xe9 is closed", {}, r"\(400\): caf\ufffd is closed"),
        (b'{"message": ""}', {}, r"\(400\)\. \("),
        (b"", {}, r"\(400\)\."),
        (b'{"unlike": 1}', {}, r"\(400\): {\"unlike\": 1}"),
        (b'{"errors": []}', {}, r"\(400\): {\"errors\": \[\]}"),
        (b"x" * 5000, {}, r"x{500} \.\.\."),
    ):
        server.on("GET", "/shares", wire.Reply(400, body, headers))
        with pytest.raises(RequestError, match=shown):
            rest.list_shares()


def test_secrets_in_error_bodies_are_masked(server, rest, wire):
    body = f"token {wire.token} at https://user:planted-pw@h/x?sig=planted-sig".encode()
    server.on("GET", "/shares", wire.Reply(400, body))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert wire.token not in str(caught.value)
    assert "planted" not in str(caught.value)


def test_forbidden_and_unauthenticated_are_auth_errors(server, rest, wire):
    server.on("GET", "/shares", wire.error(401, "X"), wire.error(403, "Y", "not yours"))

    with pytest.raises(AuthError, match="new profile file") as caught:
        rest.list_shares()
    assert caught.value.status == 401
    with pytest.raises(AuthError, match=r"not yours.*ask the data provider") as caught:
        rest.list_shares()
    assert (caught.value.status, caught.value.error_code) == (403, "Y")
    assert len(server.seen) == 2


def test_other_databricks_spelling_of_the_error_code_is_read(server, rest, wire):
    body = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Table t is not there.", "details": [{"@type": "x"}]}
    server.on("GET", "/shares", wire.as_json(body, status=400))

    with pytest.raises(
        NotFoundError, match=r"\(400, RESOURCE_DOES_NOT_EXIST\): Table t is not there\. There"
    ) as caught:
        rest.list_shares()
    assert caught.value.error_code == "RESOURCE_DOES_NOT_EXIST"


def test_challenge_is_shown_without_a_message(server, rest, wire):
    challenge = {"WWW-Authenticate": "Basic realm=x"}
    for body, told in ((b"", "the challenge Basic realm=x"), (b'{"message": "sign in"}', "sign in")):
        server.on("GET", "/shares", wire.Reply(400, body, challenge))
        with pytest.raises(RequestError) as caught:
            rest.list_shares()
        assert caught.value.server_message.endswith(told)


def test_an_error_without_a_text_has_no_message_of_the_server(server, rest, wire):
    server.on("GET", "/shares", wire.Reply(400, b""))
    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message is None


@pytest.mark.parametrize("others", [0, 1])
def test_first_of_several_errors_is_shown(server, rest, wire, others):
    errors = [{"errorCode": code, "message": "m"} for code in ("X", "Y")[: 1 + others]]
    server.on("GET", "/shares", wire.as_json(errors, status=400))
    with pytest.raises(RequestError, match=r"\(400, X\): m"):
        rest.list_shares()


def test_an_error_that_is_wrapped_too_deep_is_not_searched(server, rest, wire):
    error = {"message": "deep down"}
    for _ in range(50):
        error = {"error": error}
    server.on("GET", "/shares", wire.as_json(error, status=400))
    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message.startswith('{"error": {')

    for depth, told in ((3, "deep down"), (4, '{"error": {')):
        error = {"message": "deep down"}
        for _ in range(depth):
            error = {"error": error}
        server.on("GET", "/shares", wire.as_json(error, status=400))
        with pytest.raises(RequestError) as caught:
            rest.list_shares()
        assert caught.value.server_message.startswith(told)


def test_empty_error_code_is_treated_as_missing(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({"errorCode": "", "error_code": "X", "message": "m"}, status=400))
    with pytest.raises(RequestError, match=r"\(400, X\): m"):
        rest.list_shares()


def test_long_message_is_kept_whole_and_shown_with_its_trace_id(server, rest, wire):
    said = "Deep down " + "it hangs " * 200 + f"because of {wire.token} [Trace Id: 12ab-34]"
    server.on("GET", "/shares", wire.as_json({"error_code": "X", "message": said}, status=400))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message == said.replace(wire.token, "***")
    assert caught.value.message.endswith("... [Trace Id: 12ab-34].")
    assert len(str(caught.value)) < 700
    assert pickle.loads(pickle.dumps(caught.value)).server_message == caught.value.server_message


def test_endless_error_page_is_read_up_to_a_bound(server, rest, wire):
    server.on("GET", "/shares", wire.Reply(400, b"no " * 1_000_000))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert len(caught.value.server_message) == 16_384


@pytest.mark.parametrize("length", [1, 5, -1, None])
@pytest.mark.parametrize("is_endless", [True, False])
def test_no_beginning_of_a_secret_is_shown_where_an_error_is_cut(server, rest, wire, length, is_endless):
    shown = f"no {wire.token} {wire.token[:length]}"
    padded = shown.rjust(64 * 1024).encode() if is_endless else shown.encode()
    server.on("GET", "/shares", wire.Reply(400, padded + b"more", framing="cut-length", cut=len(padded)))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message == ("no *** ***" if length is None else "no ***")


def test_an_error_as_long_as_the_bound_is_whole(server, rest, wire):
    server.on("GET", "/shares", wire.Reply(400, f"no {wire.token[:1]}".rjust(64 * 1024).encode()))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message == f"no {wire.token[:1]}"


# === What a request carries ===


def test_read_has_one_query_id_in_requests_errors_and_log(server, rest, wire, table, caplog):
    caplog.set_level("DEBUG", "delta_sharing_client")
    server.on("GET", "/shares", wire.as_json({}))
    server.on("POST", f"{T}/query", wire.error(400, "X"))
    read = rest.for_read(rest.options)

    read.list_shares()
    with pytest.raises(RequestError) as caught:
        query_table(read, table)
    rest.for_read(rest.options).list_shares()

    ids = [seen.headers["user-agent"].partition("QueryId-")[2] for seen in server.seen]
    assert ids[0] == ids[1] == caught.value.query_id != ids[2]
    assert f"query id {ids[0]}" in str(caught.value)
    assert caplog.text.count(ids[0]) >= 2


def test_two_clients_of_one_read_send_the_same_query_id(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({}))
    read = rest.for_read(rest.options)
    read.for_read(ReadOptions(max_attempts=1), read.query_id).list_shares()
    pickle.loads(pickle.dumps(read)).list_shares()

    ids = {seen.headers["user-agent"].partition("QueryId-")[2].split()[0] for seen in server.seen}
    assert ids == {read.query_id}
    assert rest.query_id is None


def test_options_of_a_read_hold_for_its_requests(server, profile, wire):
    server.on("GET", "/shares", wire.error(503, "X"))
    client = RestClient(profile, ReadOptions(max_attempts=4, read_timeout=2))

    with pytest.raises(RequestError):
        client.for_read(ReadOptions(max_attempts=1)).list_shares()
    assert len(server.seen) == 1


def test_headers_and_user_agent_of_the_caller_go_along(server, profile, wire, monkeypatch):
    server.on("GET", "/shares", wire.as_json({}))
    monkeypatch.setenv("DELTA_SHARING_HEADERS", '{"X-Gateway": "env", "X-Other": "o"}')
    monkeypatch.setenv("DELTA_SHARING_USER_AGENT", "nightly/1")

    RestClient(profile, ReadOptions(headers={"X-Gateway": "planted-key"}, user_agent="report/2")).list_shares()
    RestClient(profile).list_shares()

    first, second = server.seen
    assert (first.headers["x-gateway"], first.headers["x-other"]) == ("planted-key", "o")
    assert first.headers["user-agent"].endswith(" report/2")
    assert second.headers["x-gateway"] == "env"
    assert second.headers["user-agent"].endswith(" nightly/1")
    assert "planted" not in repr(ReadOptions(headers={"X-Gateway": "planted-key"}))


@pytest.mark.parametrize(
    ("fields", "environment", "reason"),
    [
        ({"headers": {"Authorization": "planted"}}, None, "'Authorization' of 'headers' cannot be set"),
        ({"headers": {"host": "planted"}}, None, "'host' of 'headers' cannot be set"),
        ({"headers": {"X Y": "planted"}}, None, "cannot be set"),
        ({"headers": {7: "planted"}}, None, "The header 7 of 'headers' cannot be set"),
        ({"headers": {"X-Y": "planted\r\nZ: 1"}}, None, "'X-Y' of 'headers' must be text of printable"),
        ({"user_agent": "planted\n"}, None, "'user_agent' must be"),
        ({}, "planted", "'DELTA_SHARING_HEADERS' must hold a JSON object"),
        ({}, '{"X-Y": 1}', "'X-Y' of 'headers' must be text"),
    ],
)
def test_unsendable_headers_are_refused_without_showing_them(profile, monkeypatch, fields, environment, reason):
    if environment is not None:
        monkeypatch.setenv("DELTA_SHARING_HEADERS", environment)
    with pytest.raises(UsageError, match=reason) as caught:
        RestClient(profile, ReadOptions(**fields))
    assert "planted" not in str(caught.value)


# === Redirects ===


def test_redirect_to_another_host_sends_no_credentials(server, profile, wire):
    elsewhere = server.endpoint.replace("127.0.0.1", "localhost") + "/elsewhere"
    server.on("GET", "/shares", wire.Reply(307, b"", {"Location": elsewhere}))
    server.on("GET", "/elsewhere", wire.as_json({}))

    RestClient(profile, ReadOptions(headers={"X-Gateway": "planted"})).list_shares()

    assert {"authorization", "x-gateway"} <= set(server.seen[0].headers)
    assert not {"authorization", "x-gateway"} & set(server.seen[1].headers)


@pytest.mark.parametrize("location", ["http://[::1", "http://h:x/", "http://", "\x1b[2J:"])
def test_redirect_to_an_invalid_url_is_a_client_error(server, rest, wire, location):
    server.on("GET", "/shares", wire.Reply(302, b"", {"Location": location}))

    with pytest.raises(DeltaSharingError) as caught:
        rest.list_shares()
    assert "\x1b" not in str(caught.value)


def test_redirects_in_a_circle_end_and_their_bodies_are_not_read(server, rest, wire, monkeypatch):
    close, closed = requests.Response.close, []
    monkeypatch.setattr(requests.Response, "close", lambda self: closed.append(self) or close(self))
    target = f"{server.endpoint}/shares?sig=planted"
    server.on("GET", "/shares", wire.Reply(302, b"x" * 5_000_000, {"Location": target}))

    with pytest.raises(RequestError, match="redirects more than 5 times") as caught:
        rest.list_shares()
    assert len(server.seen) == len(set(map(id, closed))) == 6
    error = caught.value
    while error is not None:
        assert "planted" not in repr(vars(error))
        error = error.__context__


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("salse", "Did you mean 'Sales'?"),
        ("SALE", "Did you mean 'Sales'?"),
        ("sales_2025", "Did you mean 'sales_2024'?"),
        ("sales", None),
        ("SALES_2024", None),
        ("weather", "none"),
    ],
)
def test_advice_names_the_nearest(given, advice):
    assert _nearest(given, ["Sales", "sales_2024", "sales_2023_old", "x"], "none") == advice


def test_the_nearest_share_is_found_in_any_case(server, rest, wire):
    given, found = AssetName("SALES-24", "s", "t"), {"name": "t", "schema": "s", "share": "Sales"}
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "X-24"}, {"name": "Sales"}]}))
    server.on("GET", "/shares/Sales/all-tables", wire.as_json({"items": [found]}))
    server.on("GET", "/shares/SALES-24/schemas/s/tables/t/version", wire.error(404, "RESOURCE_DOES_NOT_EXIST"))
    with pytest.raises(NotFoundError, match=r"Did you mean 'Sales\.s\.t'\?"), rest.about(given):
        rest.table_version(given)


def test_a_name_that_is_not_there_is_advised_about_once(server, rest, wire, table):
    server.on("GET", "/shares/x/schemas/d/tables", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no x"))
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "far"}]}))
    with pytest.raises(NotFoundError, match=r"There are: far\.") as caught, rest.about(table):
        rest.list_tables("x", "d")
    assert [seen.path for seen in server.seen] == ["/shares/x/schemas/d/tables", "/shares"]
    assert "list_all_tables" not in str(caught.value)


def test_only_redirects_from_https_to_http_are_refused(rest, monkeypatch):
    transport = rest.operation()
    request = Request(method="GET", path=("shares",), doing="Listing the shares")
    for here, location, refused in (
        ("https://h/shares", "http://h/shares", True),
        ("https://h/shares", "https://h/other", False),
        ("http://h/shares", "https://h/shares", False),
        ("http://h/shares", "http://h/other", False),
    ):
        response = requests.Response()
        response.status_code = 307
        response.url = here
        response.request = requests.Request("GET", here, headers={"Authorization": "Bearer x"}).prepare()
        if refused:
            with pytest.raises(ProtocolError, match="from https to http"):
                transport._target(response, location, request)
        else:
            assert transport._target(response, location, request)[0] == location


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (lambda rest: rest.get_share(""), "share"),
        (lambda rest: rest.list_schemas(""), "share"),
        (lambda rest: rest.list_tables("", "d"), "share"),
        (lambda rest: rest.list_tables("s", ""), "schema"),
        (lambda rest: rest.list_all_tables(""), "share"),
    ],
)
def test_missing_name_is_refused_before_any_request(server, rest, ask, kind):
    with pytest.raises(UsageError, match=f"A {kind} needs a name, found ''"):
        ask(rest)
    assert server.seen == []


# === Bounds ===


def test_endless_pages_are_an_error(server, rest, wire, monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 20)
    server.on("GET", "/shares", lambda seen: wire.as_json({"nextPageToken": f"{len(server.seen)}"}))

    with pytest.raises(ProtocolError, match="21 empty pages"):
        rest.list_shares()


def test_only_empty_pages_in_a_row_count(monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 2)
    tokens = PageTokens("Listing")
    pattern = "ee.ee.ee"
    for number, page in enumerate(pattern):
        assert tokens.next(f"t{number}", is_empty=page == "e") == f"t{number}"
    with pytest.raises(ProtocolError, match="3 empty pages"):
        tokens.next("last", is_empty=True)


def test_total_timeout_ends_a_listing_of_any_length(server, profile, wire):
    def page(seen):
        name = str(len(server.seen))
        return wire.as_json({"items": [{"name": name}], "nextPageToken": name})

    server.on("GET", "/shares", page)
    clock = Stopwatch()
    with pytest.raises(TransportError, match=r"longer than the 0\.5 seconds of 'total_timeout'"):
        RestClient(profile, ReadOptions(total_timeout=0.5)).list_shares()
    assert clock.within(3)


def test_total_timeout_includes_retries_and_waits(server, profile, wire):
    server.on("GET", "/shares", wire.error(503, "X"))
    with pytest.raises(RequestError):
        RestClient(profile, ReadOptions(total_timeout=0.3, max_attempts=50)).list_shares()
    assert len(server.seen) < 10


def test_total_timeout_applies_to_a_single_request(server, profile, wire):
    server.on("GET", "/shares", wire.error(503, "X"))
    transport = RestClient(profile, ReadOptions(total_timeout=0.3, max_attempts=50))
    with pytest.raises(RequestError):
        transport.fetch(Request(method="GET", path=("shares",), doing="Listing the shares"))
    assert len(server.seen) < 10


def test_trickling_response_is_cancelled(server, profile):
    def trickle():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    connection.sendall(b" ")
                    done.wait(0.05)

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        fields = {"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": "t"}
        options = ReadOptions(max_attempts=1, read_timeout=0.3, min_bytes_per_second=1000)
        with pytest.raises(TransportError, match="fewer than 'min_bytes_per_second' allows"):
            RestClient(Profile.load(fields), options).list_shares()
        done.set()
        thread.join(HANGS)


def test_connection_of_a_fully_read_response_is_reused(server, rest, wire):
    for framing in ("length", "chunked"):
        body = gzip.compress(b"{}")
        reply = wire.Reply(200, body, {"Content-Encoding": "gzip"}, framing=framing)
        server.on("GET", "/shares", reply)
        for _ in range(3):
            assert rest.list_shares() == []
    (pool,) = rest._server.session().get_adapter("http://").poolmanager.pools._container.values()
    assert (pool.num_connections, pool.num_requests) == (1, 6)


def test_share_and_table_descriptions_reach_the_user(server, rest, profile, wire):
    told = {"name": "s", "displayName": "S", "comment": "for you", "properties": {"owner": "p"}}
    server.on("GET", "/shares", wire.as_json({"items": [told, {"name": "t"}]}))
    head = wire.delta_head({"location": "s3://b/t", "auxiliaryLocations": ["s3://c"], "accessModes": ["url", "dir"]})
    server.on("GET", f"{T}/metadata", wire.ndjson(*head))

    full, bare = rest.list_shares()

    assert (full.display_name, full.comment, full.properties) == ("S", "for you", {"owner": "p"})
    assert (repr(bare), hash(full) != hash(bare)) == ("Share(name='t')", True)
    details = SharingClient(profile).table("s.d.t").metadata()
    assert (details.location, details.auxiliary_locations) == ("s3://b/t", ("s3://c",))
    assert details.access_modes == ("url", "dir")


def test_advice_about_a_share_names_shares_even_if_it_is_listed(server, rest, wire):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "known"}]}))
    server.on("GET", "/shares/known/schemas", wire.as_json({"items": [{"name": "d"}]}))
    with pytest.raises(NotFoundError) as caught:
        rest.get_share("known")
    assert "known." not in str(caught.value)


def test_refused_version_is_not_requested_in_another_way(server, rest, wire):
    server.on("GET", f"{T}/version", wire.Reply(400, b""))
    with pytest.raises(RequestError):
        rest.table_version(AssetName("s", "d", "t"))
    assert [seen.method for seen in server.seen] == ["GET"]


def test_unsupported_credentials_are_requested_once(server, rest, wire):
    server.on("POST", f"{T}/temporary-table-credentials", wire.Reply(501, b""))
    with pytest.raises(RequestError):
        rest.temporary_table_credentials(AssetName("s", "d", "t"))
    assert len(server.seen) == 1


def test_poll_request_has_the_headers_of_its_query(rest):
    request = rest.query_status_request(AssetName("s", "d", "t"), {"one": "header"}, "q", {"pageToken": "x"})
    assert request.headers == {"one": "header"}
