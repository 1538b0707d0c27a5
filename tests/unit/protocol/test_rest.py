"""Listings, versions and credentials, and the headers, redirects, retries and limits of requests."""

from __future__ import annotations

import contextlib
import io
import pickle
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import (
    AuthError,
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    RequestError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.http.body import Response
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol import deviations
from delta_sharing_client.protocol.listings import PageTokens
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.query import query_table
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.protocol.transport import Request
from tests.time_limits import HANGS, Stopwatch
from tests.unit.protocol import wire

T = "/shares/s/schemas/d/tables/t"


def client_of(server, token="planted-token", **options):
    profile = Profile.load({"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": token})
    return RestClient(profile, ReadOptions(max_attempts=3, connect_timeout=2, read_timeout=2, **options))


# --- listings ---


def test_shares_of_all_pages_are_listed(server, rest):
    pages = [
        {"items": [{"name": "a", "id": "1", "displayName": "A"}], "nextPageToken": "x&y"},
        {"nextPageToken": "z"},
        {"items": [{"name": "b"}], "nextPageToken": ""},
    ]
    server.on("GET", "/shares", *(wire.as_json(page) for page in pages))

    assert rest.list_shares() == [Share("a", "1", "A"), Share("b")]
    assert [request.query for request in server.requests] == [{}, {"pageToken": "x&y"}, {"pageToken": "z"}]


def test_listing_that_repeats_a_page_token_is_an_error(server, rest):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "a"}], "nextPageToken": "x"}))

    with pytest.raises(ProtocolError, match="nextPageToken twice"):
        rest.list_shares()


@pytest.mark.parametrize("body", [b"{}", b'{"items": null}', b'{\n  "items": [\n  ]\n}\n'])
def test_listing_without_items_is_empty(server, rest, body):
    server.on("GET", "/shares", wire.Reply(200, body))

    assert rest.list_shares() == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *((body, r"\(an empty body\)") for body in (b"", b" \r\n")),
        *((body, "") for body in (b"<html>", b"[]", b'{"items": [{"id": "1"}]}', b'{"items": [{"name": "\xff"}]}')),
    ],
)
def test_invalid_listing_is_an_error(server, rest, body, message):
    server.on("GET", "/shares", wire.Reply(200, body))

    with pytest.raises(ProtocolError, match=f"Listing the shares.*{message}"):
        rest.list_shares()


def test_get_share_returns_the_share_or_not_found(server, rest):
    server.on("GET", "/shares/a", wire.as_json({"share": {"name": "a", "id": "1"}}))
    server.on("GET", "/shares/b", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no such share"))

    assert rest.get_share("a") == Share("a", "1")
    with pytest.raises(NotFoundError, match="no such share") as caught:
        rest.get_share("b")
    assert (caught.value.status, caught.value.error_code) == (404, "RESOURCE_DOES_NOT_EXIST")


def test_schemas_and_tables_have_all_listed_fields(server, rest):
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
    other_case = {**item, "share": "A", "schema": "D"}
    server.on("GET", "/shares/a/schemas/d/tables", wire.as_json({"items": [item, {"name": "u"}, other_case]}))

    assert rest.list_schemas("a") == [Schema("d", "A"), Schema("e", "a")]
    first, second, third = rest.list_tables("a", "d")
    assert first == Table("t", "a", "d", "2", "1", "T", "s3://b/t", ("s3://c/t",), ("url", "dir"))
    assert second == Table("u", "a", "d")
    assert third.full_name == AssetName("A", "D", "t")
    assert first.full_name == AssetName("a", "d", "t")


def test_all_tables_are_listed_with_one_request(server, rest):
    server.on("GET", "/shares/a/all-tables", wire.as_json({"items": [{"name": "t", "schema": "d", "share": "a"}]}))

    assert rest.list_all_tables("a") == [Table("t", "a", "d")]
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [404, 405, 501])
def test_tables_are_listed_by_schema_without_all_tables_endpoint(server, rest, status):
    server.on("GET", "/shares/a/all-tables", wire.Reply(status, b"no such API"))
    server.on("GET", "/shares/a/schemas", wire.as_json({"items": [{"name": "d"}, {"name": "e"}]}))
    server.on("GET", "/shares/a/schemas/d/tables", wire.as_json({"items": [{"name": "t"}]}))
    server.on("GET", "/shares/a/schemas/e/tables", wire.as_json({}))

    assert rest.list_all_tables("a") == [Table("t", "a", "d")]
    endings = [request.path.rpartition("/")[2] for request in server.requests]
    assert endings == ["all-tables", "schemas", "tables", "tables"]


def test_refused_listing_of_all_tables_is_an_error(server, rest):
    server.on("GET", "/shares/a/all-tables", wire.error(400, "INVALID", "not for you"))
    with pytest.raises(RequestError, match="not for you"):
        rest.list_all_tables("a")
    assert len(server.requests) == 1


def test_501_is_not_retried(server, rest, table, sleeps):
    broken = wire.error(501, "NOT_IMPLEMENTED", "not here")
    for method, path in (("GET", "/shares"), ("GET", f"{T}/version"), ("HEAD", T)):
        server.on(method, path, broken)
    for call in (rest.list_shares, lambda: rest.table_version(table), lambda: rest.table_version(table, "2022-01-01")):
        with pytest.raises(RequestError, match="not here") as caught:
            call()
        assert caught.value.status == 501
    assert [request.method for request in server.requests] == ["GET", "GET", "HEAD", "GET"]
    assert sleeps == []


def test_listing_all_tables_of_a_missing_share_is_an_error(server, rest):
    server.on("GET", "/shares/a/all-tables", wire.error(404, "RESOURCE_DOES_NOT_EXIST"))
    server.on("GET", "/shares/a/schemas", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "share a is unknown"))

    with pytest.raises(NotFoundError, match="share a is unknown"):
        rest.list_all_tables("a")


@pytest.mark.parametrize(
    ("share", "raw"),
    [("a#b?c", "a%23b%3Fc"), ("a b%", "a%20b%25"), ("a.b", "a.b"), ("é+&", "%C3%A9%2B%26")],
)
def test_names_are_encoded_as_path_segments(server, rest, share, raw):
    server.on("GET", f"/shares/{raw}/schemas", wire.as_json({}))

    assert rest.list_schemas(share) == []


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", "x" * 256])
def test_assets_with_invalid_names_are_not_listed(server, rest, name, caplog):
    """The protocol forbids such names, and their URLs would name other resources."""
    good, items = {"name": "good"}, [{"name": name}, {"name": "good"}]
    server.on("GET", "/shares", wire.as_json({"items": items}))
    server.on("GET", "/shares/good/schemas", wire.as_json({"items": items}))
    server.on("GET", "/shares/good/schemas/good/tables", wire.as_json({"items": items}))
    all_tables = [{**item, "schema": schema} for item in items for schema in (name, "good")]
    server.on("GET", "/shares/good/all-tables", wire.as_json({"items": all_tables}))

    assert [share.name for share in rest.list_shares()] == ["good"]
    assert [schema.name for schema in rest.list_schemas("good")] == ["good"]
    assert [str(table.full_name) for table in rest.list_tables("good", "good")] == ["good.good.good"]
    assert [str(table.full_name) for table in rest.list_all_tables("good")] == ["good.good.good"]
    assert [str(table.full_name) for table in SharingClient(rest.profile).list_all_tables()] == ["good.good.good"]
    assert len([record for record in caplog.records if "an item is left out" in record.getMessage()]) == 10
    assert " name must " in caplog.text

    server.on("GET", "/shares", wire.as_json({"items": [{"name": name}]}))
    with pytest.raises(ProtocolError, match=r"Listing the shares: expected items with valid names"):
        rest.list_shares()
    server.on("GET", "/shares", wire.as_json({"items": [good]}))


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a\nb", "x" * 256])
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda rest, name: rest.get_share(name), "share"),
        (lambda rest, name: rest.list_schemas(name), "share"),
        (lambda rest, name: rest.list_tables(name, "d"), "share"),
        (lambda rest, name: rest.list_tables("s", name), "schema"),
        (lambda rest, name: rest.list_all_tables(name), "share"),
    ],
)
def test_invalid_share_name_is_refused_without_a_request(server, rest, name, call, kind):
    with pytest.raises(UsageError, match="." if name else f"A {kind} needs a name, found ''"):
        call(rest, name)
    assert server.requests == []


# --- version ---


def test_version_header_name_is_case_insensitive(server, rest, table):
    server.on("GET", f"{T}/version", wire.Reply(200, b"", {"DELTA-TABLE-VERSION": "12"}))

    assert rest.table_version(table) == 12
    assert rest.table_version(table, "2022-01-01T00:00:00Z") == 12
    assert server.requests[1].query == {"startingTimestamp": "2022-01-01T00:00:00Z"}


@pytest.mark.parametrize("name", ["deltaTableVersion", "delta-table-version", "version"])
@pytest.mark.parametrize("value", [3, "3"])
def test_version_may_be_in_the_body_only(server, rest, table, name, value, caplog, monkeypatch):
    """delta-sharing-gateway responds {"deltaTableVersion": 3}, without a header."""
    monkeypatch.setattr(deviations, "_said", set())
    server.on("GET", f"{T}/version", wire.as_json({name: value}))

    assert rest.table_version(table) == 3
    assert "the version is in the body" in caplog.text

    server.on("GET", f"{T}/version", wire.as_json({name: value}, headers={"Delta-Table-Version": "4"}))
    assert rest.table_version(table) == 4


@pytest.mark.parametrize(
    ("status", "body", "version", "message"),
    [
        *((200, body, None, "no Delta-Table-Version header") for body in (b"", b"3", b"{}", b'{"version": -1}')),
        *((200, body, None, "no Delta-Table-Version header") for body in (b'{"version": null}', b'{"version": 1.5}')),
        *((204, b"", version, "Delta-Table-Version") for version in (None, "-1", "x")),
    ],
)
def test_missing_or_malformed_version_is_an_error(server, rest, table, status, body, version, message):
    headers = {} if version is None else {"Delta-Table-Version": version}
    server.on("GET", f"{T}/version", wire.Reply(status, body, headers))

    with pytest.raises(ProtocolError, match=message):
        rest.table_version(table)


@pytest.mark.parametrize("status", [404, 405, 501])
@pytest.mark.parametrize("body", [b"Not Found", b'{"errorCode": "RESOURCE_DOES_NOT_EXIST", "message": "no such API"}'])
def test_version_is_read_by_head_without_the_version_endpoint(server, rest, table, status, body):
    server.on("GET", f"{T}/version", wire.Reply(status, body))
    server.on("HEAD", T, wire.Reply(200, b"", {"Delta-Table-Version": "3"}))

    assert rest.table_version(table) == 3


def test_version_of_a_missing_table_is_not_found(server, rest, table):
    server.on("GET", f"{T}/version", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no table"))
    with pytest.raises(NotFoundError, match="no table"):
        rest.table_version(table)

    server.on("GET", f"{T}/version", wire.Reply(404, b"nothing here"))
    with pytest.raises(NotFoundError, match="nothing here"):
        rest.table_version(table)
    with pytest.raises(NotFoundError, match="nothing here"):
        rest.table_version(table, "2022-01-01T00:00:00Z")
    assert [request.method for request in server.requests] == ["GET", "HEAD", "GET", "HEAD", "GET"]
    assert rest.metadata_request(table, {}, None, None).table == str(table)


# --- temporary credentials ---


def test_temporary_credentials_are_masked(server, rest, table):
    keys = {"accessKeyId": "planted-1", "secretAccessKey": "planted-2", "sessionToken": "planted-3"}
    response = {"credentials": {"location": "s3://b/t", "awsTempCredentials": keys, "expirationTime": 5}}
    server.on("POST", f"{T}/temporary-table-credentials", wire.as_json(response))

    credentials = rest.temporary_table_credentials(table)
    rest.temporary_table_credentials(table, "s3://c/t")

    assert credentials.location == "s3://b/t"
    assert credentials.aws_temp_credentials.secret_access_key == "planted-2"
    assert "planted" not in repr(credentials)
    assert server.requests[0].body == ""
    assert "content-type" not in server.requests[0].headers
    assert server.requests[1].body == {"location": "s3://c/t"}


def test_response_without_credentials_is_an_error(server, rest, table):
    server.on("POST", f"{T}/temporary-table-credentials", wire.as_json({"credentials": {"location": "s3://b/t"}}))

    with pytest.raises(UnsupportedFeatureError, match="with the scheme 's3', found none of them"):
        rest.temporary_table_credentials(table)


@pytest.mark.parametrize("location", ["s3://b/t", "file:///b/t"])
def test_credentials_must_be_of_one_kind_and_absent_if_local(server, rest, table, location):
    clouds = {"azureUserDelegationSas": {"sasToken": "planted"}, "gcpOauthToken": {"oauthToken": "planted"}}
    if location.startswith("file"):
        server.on("POST", f"{T}/temporary-table-credentials", wire.as_json({"credentials": {"location": location}}))
        assert rest.temporary_table_credentials(table).location == location
        del clouds["gcpOauthToken"]
    response = wire.as_json({"credentials": {"location": location, **clouds}})
    server.on("POST", f"{T}/temporary-table-credentials", response)

    expected = "no credentials" if len(clouds) == 1 else "exactly one kind of credentials"
    with pytest.raises(ProtocolError, match=f"expected {expected}, found {' and '.join(map(repr, clouds))}"):
        rest.temporary_table_credentials(table)


# --- every request ---


def test_request_has_the_token_and_a_user_agent(server, profile):
    server.on("GET", "/shares", wire.as_json({}))

    RestClient(profile).list_shares()
    RestClient(profile, user_agent="Delta-Sharing-SparkStructuredStreaming/1").list_shares()

    first, second = (request.headers for request in server.requests)
    assert first["authorization"] == f"Bearer {wire.TOKEN}"
    assert first["user-agent"].startswith("delta-sharing-client/")
    assert " python/3." in first["user-agent"]
    assert second["user-agent"].startswith("Delta-Sharing-SparkStructuredStreaming/1 delta-sharing-client/")


def test_token_is_not_sent_after_a_redirect_to_another_host(server):
    other = server.endpoint.replace("127.0.0.1", "localhost")
    steps = {"/shares": f"{other}/b", "/b": f"{other}/c", "/c": f"{server.endpoint}/d", "/d": f"{server.endpoint}/e"}
    for path, target in steps.items():
        server.on("GET", path, wire.Reply(307, b"", {"Location": target}))
    server.on("GET", "/e", wire.as_json({}))

    client_of(server, headers={"X-Gateway": "planted"}).list_shares()

    assert [request.path for request in server.requests] == ["/shares", "/b", "/c", "/d", "/e"]
    for name in ("authorization", "x-gateway"):
        assert [name in request.headers for request in server.requests] == [True, *[False] * 4]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        *(
            (url, r"redirects \(307\) to a URL that is not allowed")
            for url in ("file:///etc/passwd", "ftp://127.0.0.1/x")
        ),
        *((url, ".") for url in ("http://[::1", "http://h:x/", "http://", "\x1b[2J:")),
    ],
)
def test_redirect_to_another_scheme_is_not_followed(server, rest, target, message):
    server.on("GET", "/shares", wire.Reply(307, b"", {"Location": target}))

    with pytest.raises(DeltaSharingError, match=message) as caught:
        rest.list_shares()
    assert "\x1b" not in str(caught.value)
    assert len(server.requests) == (6 if target == "http://" else 1)  # the other URLs are not requested


@pytest.mark.parametrize("status", [300, 307])
def test_redirect_without_a_target_is_an_error(server, rest, status):
    server.on("GET", "/shares", wire.Reply(status, b'{"items": []}'))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.status == status


def test_location_header_without_a_redirect_is_ignored(server, rest):
    reply = wire.as_json({"items": [{"name": "a"}]})
    reply.headers["Location"] = f"{server.endpoint}/elsewhere"
    server.on("GET", "/shares", reply)
    assert [share.name for share in rest.list_shares()] == ["a"]
    assert len(server.requests) == 1


def test_proxy_of_the_environment_is_used(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.endpoint.removesuffix("/prefix"))
    profile = Profile.load({"shareCredentialsVersion": 1, "endpoint": "http://far.invalid/x", "bearerToken": "t"})
    server.on("GET", "/x/shares", wire.as_json({"items": [{"name": "through the proxy"}]}))

    assert RestClient(profile).list_shares() == [Share("through the proxy")]


def test_error_of_a_refused_token_states_its_expiration(server):
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "planted"}
    server.on("GET", "/shares", wire.error(401, "X"))

    with pytest.raises(AuthError, match=r"the token expires at 2221-11-12T00:12:29\+00:00"):
        RestClient(Profile.load({**fields, "expirationTime": "2221-11-12T00:12:29Z"})).list_shares()
    with pytest.raises(AuthError, match="The token may have expired"):
        RestClient(Profile.load(fields)).list_shares()


def test_unpickled_client_works_and_shows_no_token(server, rest):
    server.on("GET", "/shares", wire.as_json({}))
    rest.list_shares()

    copy = pickle.loads(pickle.dumps(rest))

    assert copy.list_shares() == []
    assert copy.profile == rest.profile
    assert wire.TOKEN not in repr(copy)


def test_client_works_after_close(server, rest):
    server.on("GET", "/shares", wire.as_json({}))
    rest.list_shares()
    rest.close()
    assert rest.list_shares() == []


def test_client_is_thread_safe(server, rest):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "x"}]}))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: rest.list_shares(), range(80))) == [[Share("x")]] * 80


# --- retries ---


def test_error_after_retries_has_the_number_of_attempts(server):
    server.on("GET", "/shares", wire.error(503, "BUSY", "later"))

    with pytest.raises(RequestError, match=r"503, BUSY\): later\. Tried 3 times\.") as caught:
        client_of(server).list_shares()
    assert caught.value.status == 503


def test_reset_and_truncated_responses_are_retried(server):
    whole = b'{"items": [{"name": "a"}]}'
    server.on(
        "GET",
        "/shares",
        wire.Reply(framing="reset"),
        wire.Reply(200, whole, framing="cut-length", cut=9),
        wire.Reply(200, whole, framing="chunked"),
    )

    assert client_of(server).list_shares() == [Share("a")]


def test_silent_server_is_a_transport_error(server):
    gate = threading.Event()

    def respond_late(request):
        gate.wait(HANGS)
        return wire.as_json({})

    server.on("GET", "/shares", respond_late)
    client = RestClient(client_of(server).profile, ReadOptions(max_attempts=2, read_timeout=0.1))

    with pytest.raises(TransportError, match=r"no bytes within the time limit.*Tried 2 times"):
        client.list_shares()
    gate.set()


# --- error bodies ---


def test_error_body_may_be_json_or_text(server, rest):
    for body, headers, shown in (
        (b'{"errorCode": "BAD", "message": "json text"}', {"Content-Type": "text/plain"}, r"\(400, BAD\): json text"),
        (b"plain  \n text", {}, r"\(400\): plain text"),
        (b"caf\xe9 is closed", {}, r"\(400\): caf\ufffd is closed"),
        (b'{"message": ""}', {}, r"\(400\)\. \("),
        (b"", {}, r"\(400\)\."),
        (b'{"unlike": 1}', {}, r"\(400\): {\"unlike\": 1}"),
        (b'{"errors": []}', {}, r"\(400\): {\"errors\": \[\]}"),
        (b"x" * 5000, {}, r"x{500} \.\.\."),
        (b'{"errorCode": "", "error_code": "X", "message": "m"}', {}, r"\(400, X\): m"),
        (b'[{"errorCode": "X", "message": "m"}]', {}, r"\(400, X\): m"),
        (b'[{"errorCode": "X", "message": "m"}, {"errorCode": "Y", "message": "m"}]', {}, r"\(400, X\): m"),
    ):
        server.on("GET", "/shares", wire.Reply(400, body, headers))
        with pytest.raises(RequestError, match=shown) as caught:
            rest.list_shares()
        assert body or caught.value.server_message is None


def test_secrets_in_error_bodies_are_masked(server, rest):
    body = f"token {wire.TOKEN} at https://user:planted-pw@h/x?sig=planted-sig".encode()
    server.on("GET", "/shares", wire.Reply(400, body))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert wire.TOKEN not in str(caught.value)
    assert "planted" not in str(caught.value)


def test_401_and_403_are_auth_errors(server, rest):
    server.on("GET", "/shares", wire.error(401, "X"), wire.error(403, "Y", "not yours"))

    with pytest.raises(AuthError, match="new profile file") as caught:
        rest.list_shares()
    assert caught.value.status == 401
    with pytest.raises(AuthError, match=r"not yours.*ask the data provider") as caught:
        rest.list_shares()
    assert (caught.value.status, caught.value.error_code) == (403, "Y")
    assert len(server.requests) == 2


def test_error_code_of_databricks_is_read(server, rest):
    body = {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "Table t is not there.", "details": [{"@type": "x"}]}
    server.on("GET", "/shares", wire.as_json(body, status=400))

    with pytest.raises(
        NotFoundError, match=r"\(400, RESOURCE_DOES_NOT_EXIST\): Table t is not there\. There"
    ) as caught:
        rest.list_shares()
    assert caught.value.error_code == "RESOURCE_DOES_NOT_EXIST"


def test_challenge_is_part_of_an_error_without_a_message(server, rest):
    challenge = {"WWW-Authenticate": "Basic realm=x"}
    for body, message in ((b"", "the header WWW-Authenticate: Basic realm=x"), (b'{"message": "sign in"}', "sign in")):
        server.on("GET", "/shares", wire.Reply(400, body, challenge))
        with pytest.raises(RequestError) as caught:
            rest.list_shares()
        assert caught.value.server_message.endswith(message)


def test_message_is_found_up_to_three_levels_deep(server, rest):
    for depth, message in ((3, "deep down"), (4, '{"error": {'), (50, '{"error": {')):
        error = {"message": "deep down"}
        for _ in range(depth):
            error = {"error": error}
        server.on("GET", "/shares", wire.as_json(error, status=400))
        with pytest.raises(RequestError) as caught:
            rest.list_shares()
        assert caught.value.server_message.startswith(message)


def test_long_message_is_shown_in_part_with_its_trace_id(server, rest):
    message = "Deep down " + "it hangs " * 200 + f"because of {wire.TOKEN} [Trace Id: 12ab-34]"
    server.on("GET", "/shares", wire.as_json({"error_code": "X", "message": message}, status=400))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message == message.replace(wire.TOKEN, "***")
    assert caught.value.message.endswith("... [Trace Id: 12ab-34].")
    assert len(str(caught.value)) < 700
    assert pickle.loads(pickle.dumps(caught.value)).server_message == caught.value.server_message


def test_length_of_an_error_body_is_limited(server, rest):
    server.on("GET", "/shares", wire.Reply(400, b"no " * 1_000_000))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert len(caught.value.server_message) == 16_384


@pytest.mark.parametrize("length", [1, 5, -1, None])
@pytest.mark.parametrize("is_too_long", [True, False])
def test_cut_error_body_shows_no_prefix_of_a_secret(server, rest, length, is_too_long):
    shown = f"no {wire.TOKEN} {wire.TOKEN[:length]}"
    padded = shown.rjust(64 * 1024).encode() if is_too_long else shown.encode()
    server.on("GET", "/shares", wire.Reply(400, padded + b"more", framing="cut-length", cut=len(padded)))

    with pytest.raises(RequestError) as caught:
        rest.list_shares()
    assert caught.value.server_message == ("no *** ***" if length is None else "no ***")


# === Headers ===


def test_read_has_one_query_id_in_requests_errors_and_log(server, rest, table, caplog):
    caplog.set_level("DEBUG", "delta_sharing_client")
    server.on("GET", "/shares", wire.as_json({}))
    server.on("POST", f"{T}/query", wire.error(400, "X"))
    read = rest.for_read(rest.options)

    read.list_shares()
    with pytest.raises(RequestError) as caught:
        query_table(read, table)
    rest.for_read(rest.options).list_shares()

    ids = [request.headers["user-agent"].partition("QueryId-")[2] for request in server.requests]
    assert ids[0] == ids[1] == caught.value.query_id != ids[2]
    assert f"query id {ids[0]}" in str(caught.value)
    assert caplog.text.count(ids[0]) >= 2


def test_two_clients_of_one_read_send_the_same_query_id(server, rest):
    server.on("GET", "/shares", wire.as_json({}))
    read = rest.for_read(rest.options)
    read.for_read(ReadOptions(max_attempts=1), read.query_id).list_shares()
    pickle.loads(pickle.dumps(read)).list_shares()

    ids = {request.headers["user-agent"].partition("QueryId-")[2].split()[0] for request in server.requests}
    assert ids == {read.query_id}
    assert rest.query_id is None


def test_options_of_a_read_apply_to_its_requests(server, profile):
    server.on("GET", "/shares", wire.error(503, "X"))
    client = RestClient(profile, ReadOptions(max_attempts=4, read_timeout=2))

    with pytest.raises(RequestError):
        client.for_read(ReadOptions(max_attempts=1)).list_shares()
    assert len(server.requests) == 1


def test_headers_and_user_agent_of_the_caller_are_sent(server, profile, monkeypatch):
    server.on("GET", "/shares", wire.as_json({}))
    monkeypatch.setenv("DELTA_SHARING_HEADERS", '{"X-Gateway": "env", "X-Other": "o"}')
    monkeypatch.setenv("DELTA_SHARING_USER_AGENT", "nightly/1")

    RestClient(profile, ReadOptions(headers={"X-Gateway": "planted-key"}, user_agent="report/2")).list_shares()
    RestClient(profile).list_shares()

    for name in ("DELTA_SHARING_HEADERS", "DELTA_SHARING_USER_AGENT"):
        monkeypatch.setenv(name, "")
    RestClient(profile).list_shares()

    first, second, third = server.requests
    assert (first.headers["x-gateway"], first.headers["x-other"]) == ("planted-key", "o")
    assert first.headers["user-agent"].endswith(" report/2")
    assert second.headers["x-gateway"] == "env"
    assert second.headers["user-agent"].endswith(" nightly/1")
    assert "x-gateway" not in third.headers
    assert "nightly" not in third.headers["user-agent"]
    assert "planted" not in repr(ReadOptions(headers={"X-Gateway": "planted-key"}))


@pytest.mark.parametrize(
    ("fields", "environment", "reason"),
    [
        ({"headers": {"Authorization": "planted"}}, None, "'Authorization' of 'headers' cannot be set"),
        ({"headers": {"host": "planted"}}, None, "'host' of 'headers' cannot be set"),
        ({"headers": {"X Y": "planted"}}, None, "cannot be set"),
        ({"headers": {7: "planted"}}, None, "The header 7 of 'headers' cannot be set"),
        ({"headers": {"X-Y": "planted\r\nZ: 1"}}, None, "'X-Y' of 'headers' must be a string of printable"),
        ({"user_agent": "planted\n"}, None, "'user_agent' must be"),
        ({}, "planted", "'DELTA_SHARING_HEADERS' must contain a JSON object"),
        ({}, '{"X-Y": 1}', "'X-Y' of 'headers' must be a string"),
    ],
)
def test_invalid_headers_are_refused_without_their_values(profile, monkeypatch, fields, environment, reason):
    if environment is not None:
        monkeypatch.setenv("DELTA_SHARING_HEADERS", environment)
    with pytest.raises(UsageError, match=reason) as caught:
        RestClient(profile, ReadOptions(**fields))
    assert "planted" not in str(caught.value)


# === Redirects ===


def test_number_of_redirects_is_limited(server, rest, monkeypatch):
    close, closed = requests.Response.close, []
    monkeypatch.setattr(requests.Response, "close", lambda self: closed.append(self) or close(self))
    target = f"{server.endpoint}/shares?sig=planted"
    server.on("GET", "/shares", wire.Reply(302, b"x" * 5_000_000, {"Location": target}))

    with pytest.raises(RequestError, match="redirects more than 5 times") as caught:
        rest.list_shares()
    assert len(server.requests) == len(set(map(id, closed))) == 6
    error = caught.value
    while error is not None:
        assert "planted" not in repr(vars(error))
        error = error.__context__


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("salse", "Did you mean 'Sales'?"),
        ("SALE", "Did you mean 'Sales'?"),
        ("sales_2025", "Did you mean 'sales_2024'?"),
        ("sales", None),
        ("SALES_2024", None),
        ("weather", "These exist: Sales, sales_2024, sales_2023_old, x."),
    ],
)
def test_error_suggests_the_nearest_name_of_a_list(server, rest, name, advice):
    shares = [{"name": each} for each in ("Sales", "sales_2024", "sales_2023_old", "x")]
    server.on("GET", "/shares", wire.as_json({"items": shares}))

    with pytest.raises(NotFoundError) as caught:
        rest.list_schemas(name)
    assert (advice or "") in str(caught.value)
    assert advice or "Did you mean" not in str(caught.value)


def test_nearest_share_is_suggested_ignoring_case(server, rest):
    name, item = AssetName("SALES-24", "s", "t"), {"name": "t", "schema": "s", "share": "Sales"}
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "X-24"}, {"name": "Sales"}]}))
    server.on("GET", "/shares/Sales/all-tables", wire.as_json({"items": [item]}))
    server.on("GET", "/shares/SALES-24/schemas/s/tables/t/version", wire.error(404, "RESOURCE_DOES_NOT_EXIST"))
    with pytest.raises(NotFoundError, match=r"Did you mean 'Sales\.s\.t'\?"), rest.about(name):
        rest.table_version(name)


def test_error_of_a_missing_share_lists_only_the_shares(server, rest, table):
    server.on("GET", "/shares/x/schemas/d/tables", wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no x"))
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "far"}]}))
    with pytest.raises(NotFoundError, match=r"These exist: far\.") as caught, rest.about(table):
        rest.list_tables("x", "d")
    assert [request.path for request in server.requests] == ["/shares/x/schemas/d/tables", "/shares"]
    assert "list_all_tables" not in str(caught.value)


def test_only_redirects_from_https_to_http_are_refused(rest, monkeypatch):
    transport = rest.operation()
    request = Request(method="GET", path=("shares",), doing="Listing the shares")
    for url, location, is_refused in (
        ("https://h/shares", "http://h/shares", True),
        ("https://h/shares", "https://h/other", False),
        ("http://h/shares", "https://h/shares", False),
        ("http://h/shares", "http://h/other", False),
    ):
        response = Response(307, {}, url, "Bearer x", io.BytesIO().read1, lambda: None)
        if is_refused:
            with pytest.raises(ProtocolError, match="from https to http"):
                transport._target(response, location, request)
        else:
            assert transport._target(response, location, request)[0] == location


# === Limits ===


def test_number_of_empty_pages_is_limited(server, rest, monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 20)
    server.on("GET", "/shares", lambda request: wire.as_json({"nextPageToken": f"{len(server.requests)}"}))

    with pytest.raises(ProtocolError, match="21 empty pages"):
        rest.list_shares()


def test_only_consecutive_empty_pages_are_counted(monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 2)
    tokens = PageTokens("Listing")
    pattern = "ee.ee.ee"
    for number, page in enumerate(pattern):
        assert tokens.next(f"t{number}", is_empty=page == "e") == f"t{number}"
    with pytest.raises(ProtocolError, match="3 empty pages"):
        tokens.next("last", is_empty=True)


def test_total_timeout_limits_all_pages_of_a_listing(server, profile):
    def next_page(request):
        name = str(len(server.requests))
        return wire.as_json({"items": [{"name": name}], "nextPageToken": name})

    server.on("GET", "/shares", next_page)
    clock = Stopwatch()
    with pytest.raises(TransportError, match=r"longer than the 0\.5 seconds of 'total_timeout'"):
        RestClient(profile, ReadOptions(total_timeout=0.5)).list_shares()
    assert clock.within(3)


def test_total_timeout_includes_retries_and_waits(server, profile):
    server.on("GET", "/shares", wire.error(503, "X"))
    with pytest.raises(RequestError):
        RestClient(profile, ReadOptions(total_timeout=0.3, max_attempts=50)).list_shares()
    assert len(server.requests) < 10


def test_response_slower_than_the_minimum_is_an_error(server, profile):
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
        with pytest.raises(TransportError, match="fewer than 'min_bytes_per_second' requires"):
            RestClient(Profile.load(fields), options).list_shares()
        done.set()
        thread.join(HANGS)


def test_descriptions_of_shares_and_tables_are_returned(server, rest, profile):
    item = {"name": "s", "displayName": "S", "comment": "for you", "properties": {"owner": "p"}}
    server.on("GET", "/shares", wire.as_json({"items": [item, {"name": "t"}]}))
    head = wire.delta_head({"location": "s3://b/t", "auxiliaryLocations": ["s3://c"], "accessModes": ["url", "dir"]})
    server.on("GET", f"{T}/metadata", wire.ndjson(*head))

    full, bare = rest.list_shares()

    assert (full.display_name, full.comment, full.properties) == ("S", "for you", {"owner": "p"})
    assert (repr(bare), hash(full) != hash(bare)) == ("Share(name='t')", True)
    details = SharingClient(profile).table("s.d.t").metadata()
    assert (details.location, details.auxiliary_locations) == ("s3://b/t", ("s3://c",))
    assert details.access_modes == ("url", "dir")


def test_error_about_a_listed_share_suggests_no_schema(server, rest):
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "known"}]}))
    server.on("GET", "/shares/known/schemas", wire.as_json({"items": [{"name": "d"}]}))
    with pytest.raises(NotFoundError) as caught:
        rest.get_share("known")
    assert "known." not in str(caught.value)


def test_refused_version_request_is_not_repeated_as_head(server, rest):
    server.on("GET", f"{T}/version", wire.Reply(400, b""))
    with pytest.raises(RequestError):
        rest.table_version(AssetName("s", "d", "t"))
    assert [request.method for request in server.requests] == ["GET"]


def test_unsupported_credentials_are_requested_once(server, rest):
    server.on("POST", f"{T}/temporary-table-credentials", wire.Reply(501, b""))
    with pytest.raises(RequestError):
        rest.temporary_table_credentials(AssetName("s", "d", "t"))
    assert len(server.requests) == 1


def test_poll_request_has_the_headers_of_its_query(rest):
    request = rest.query_status_request(AssetName("s", "d", "t"), {"one": "header"}, "q", {"pageToken": "x"})
    assert request.headers == {"one": "header"}
