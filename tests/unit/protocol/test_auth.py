"""Basic and OAuth authentication; test_rest tests bearer tokens."""

from __future__ import annotations

import base64
import datetime as dt
import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import jwt
import pytest

from delta_sharing_client.errors import AuthError, ProfileError
from delta_sharing_client.http import sign_in
from delta_sharing_client.http.body import ACCEPTED_ENCODINGS
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from tests.unit.protocol import wire


@pytest.fixture
def oauth(server):
    def make(**fields):
        profile = {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "endpoint": server.endpoint,
            "tokenEndpoint": f"{server.endpoint}/token",
            "clientId": "id",
            "clientSecret": "planted-secret",
        }
        return RestClient(Profile.load({**profile, **fields}), ReadOptions(max_attempts=3, read_timeout=2))

    return make


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("claims", "lifetime"),
    [
        ({"exp": NOW + 100}, 100.0),
        ({"exp": int(NOW) + 3600, "issuer": "x" * 50}, 3600.0),
        ({"exp": NOW}, 300.0),
        ({"exp": NOW - 1}, 300.0),
        ({"exp": NOW + 10**9}, 300.0),
        ({"exp": None}, 300.0),
        ({}, 300.0),
    ],
)
def test_lifetime_of_a_jwt_comes_from_its_exp_claim(claims, lifetime):
    for issuer in ("", "a", "ab", "abc"):  # each length of the Base64 padding
        text = jwt.encode({**claims, "iss": issuer}, "k" * 32)
        assert sign_in._life_of_jwt(text, NOW) == pytest.approx(lifetime)


@pytest.mark.parametrize("claims", [b"[1]", b'"exp"', b"5", b"{", b"", b"[" * 100_000, b"\xff", b'{"exp":"2030"}'])
def test_opaque_token_has_the_default_lifetime(claims):
    payload = base64.urlsafe_b64encode(claims).rstrip(b"=").decode()
    for text in (f"x.{payload}.y", f"x.{payload}", "token", "", "a.!.b"):
        assert sign_in._life_of_jwt(text, NOW) == 300.0


@pytest.mark.parametrize("token", ["planted", lambda: "planted"])
@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_token_is_not_sent_after_it_expires(server, monkeypatch, token, seconds):
    monkeypatch.setattr(time, "time", lambda: NOW)
    expires = dt.datetime.fromtimestamp(NOW + seconds, dt.UTC).isoformat()
    fields = {"endpoint": server.endpoint, "bearerToken": token, "expirationTime": expires}
    client = RestClient(Profile.load({"shareCredentialsVersion": 1, **fields}))
    server.on("GET", "/shares", wire.as_json({}))
    if seconds > 0:
        client.list_shares()
        assert server.requests[0].headers["authorization"] == "Bearer planted"
    else:
        with pytest.raises(AuthError, match="expired at 2023-11-14T22:13") as caught:
            client.list_shares()
        assert "planted" not in str(caught.value)
        assert server.requests == []


def test_token_from_a_function_with_a_bad_character_is_refused(server):
    fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": lambda: "planted\nHost: x"}
    with pytest.raises(ProfileError, match="The bearer token of the profile") as caught:
        RestClient(Profile.load(fields)).list_shares()
    assert "planted" not in str(caught.value)
    assert server.requests == []


def valid_token(text, seconds=3600.0):
    return sign_in._Token.living(text, time.time(), seconds)


def test_failed_token_request_is_not_cached(server, oauth):
    server.on("POST", "/token", *[wire.error(404, "X", "no")] * 2, *grants("t1"))
    server.on("GET", "/shares", wire.as_json({}))
    for _ in range(2):
        with pytest.raises(AuthError, match="no"):
            oauth().list_shares()
    assert oauth().list_shares() == []


@pytest.mark.parametrize(("refused", "is_dropped"), [("Bearer t1", True), ("Bearer t2", False), (None, False)])
def test_only_the_refused_token_is_dropped(refused, is_dropped):
    shared = sign_in._SharedToken(valid_token("t1"))
    shared.drop(refused)
    assert (shared.token is None) is is_dropped
    sign_in._SharedToken().drop(refused)


def test_cache_keeps_the_newest_tokens(server, monkeypatch, oauth):
    monkeypatch.setattr(sign_in, "_MAX_TOKENS", 2)
    server.on("POST", "/token", *grants("t1"))
    server.on("GET", "/shares", wire.as_json({}))
    for secret in "abc":
        oauth(clientSecret=secret).list_shares()
    for secret, requests_sent in (("c", 3), ("b", 3), ("a", 4)):
        oauth(clientSecret=secret).list_shares()
        assert len(token_requests(server)) == requests_sent


def test_forked_process_keeps_tokens_and_gets_free_locks(oauth):
    credentials = oauth().profile.credentials
    shared = sign_in._shared_token(credentials)
    shared.token = valid_token("t1")
    with sign_in._tokens_lock, shared._fetching:
        sign_in._after_fork()
        assert sign_in._shared_token(credentials).get(None).reveal() == "t1"
        sign_in._shared_token(credentials).token = None
        assert sign_in._shared_token(credentials).get(lambda: valid_token("t2")).reveal() == "t2"


def grants(*tokens, **fields):
    return [wire.as_json({"access_token": token, "expires_in": 3600, **fields}) for token in tokens]


def token_requests(server):
    return [request for request in server.requests if request.path == "/token"]


def test_basic_credentials_are_sent_with_each_request(server):
    server.on("GET", "/shares", wire.as_json({}))
    fields = {"shareCredentialsVersion": 2, "type": "basic", "endpoint": server.endpoint}
    rest = RestClient(Profile.load({**fields, "username": "é", "password": "p:w"}))

    rest.list_shares()

    (request,) = server.requests
    assert request.headers["authorization"] == "Basic " + base64.b64encode("é:p:w".encode()).decode()


def test_error_of_refused_credentials_shows_no_password(server):
    header = base64.b64encode(b"u:planted").decode()
    server.on("GET", "/shares", wire.error(401, "X", f"{header} or planted"))
    fields = {"shareCredentialsVersion": 2, "type": "basic", "endpoint": server.endpoint}

    with pytest.raises(AuthError, match="user name and password") as caught:
        RestClient(Profile.load({**fields, "username": "u", "password": "planted"})).list_shares()
    assert "planted" not in str(caught.value)
    assert header not in str(caught.value)


def test_one_token_serves_many_requests_and_threads(server, oauth):
    server.on("POST", "/token", *grants("t1", "t2"))
    server.on("GET", "/shares", wire.as_json({}))
    rest = oauth(scope="a b&c")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: rest.list_shares(), range(8))) == [[]] * 8

    (token_request,) = token_requests(server)
    assert token_request.body == "grant_type=client_credentials&scope=a+b%26c"
    assert token_request.headers["authorization"] == "Basic " + base64.b64encode(b"id:planted-secret").decode()
    assert {request.headers["authorization"] for request in server.requests if request.path == "/shares"} == {
        "Bearer t1"
    }


@pytest.mark.parametrize(
    ("expires_in", "age", "renewed"),
    [
        (3600, 3500, False),
        (3600, 3545, True),
        ("300", 200, False),
        ("300", 265, False),
        ("300", 275, True),
        (10**9 - 1, 10**6, False),
        *((invalid, 200, False) for invalid in (None, 0, -1, 10**9, 10**400, "soon", [5])),
        *((invalid, 275, True) for invalid in (None, 0, -1, 10**9, 10**400, "soon", [5])),
    ],
)
def test_token_is_renewed_shortly_before_it_expires(server, oauth, monkeypatch, expires_in, age, renewed):
    server.on("POST", "/token", *grants("t1", "t2", expires_in=expires_in))
    server.on("GET", "/shares", wire.as_json({}))
    rest = oauth()
    rest.list_shares()

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + age)
    rest.list_shares()

    assert len(token_requests(server)) == (2 if renewed else 1)
    assert "scope" not in token_requests(server)[0].body


def test_request_is_repeated_with_a_new_token_after_a_401(server, oauth):
    server.on("POST", "/token", *grants("t1", "t2"))
    server.on("GET", "/shares", wire.error(401, "X"), wire.as_json({}))

    assert oauth().list_shares() == []

    sent = [request.headers["authorization"] for request in server.requests if request.path == "/shares"]
    assert sent == ["Bearer t1", "Bearer t2"]


def test_token_request_accepts_json_and_known_encodings(server, oauth):
    server.on("POST", "/token", *grants("t1"))
    server.on("GET", "/shares", wire.as_json({}))
    oauth().list_shares()
    (token_request,) = token_requests(server)
    assert (token_request.headers["accept"], token_request.headers["accept-encoding"]) == (
        "application/json",
        ACCEPTED_ENCODINGS,
    )


def test_401_for_a_renewed_token_is_an_error(server, oauth):
    server.on("POST", "/token", *grants("t1"))
    server.on("GET", "/shares", wire.error(401, "X"))

    with pytest.raises(AuthError, match="does not accept"):
        oauth().list_shares()
    assert len(server.requests) == 4


def test_busy_token_endpoint_is_retried(server, oauth):
    server.on("POST", "/token", wire.error(503, "X"), wire.Reply(framing="reset"), *grants("t1"))
    server.on("GET", "/shares", wire.as_json({}))

    assert oauth().list_shares() == []


@pytest.mark.parametrize(
    ("status", "body", "shown"),
    [
        (401, b'{"error": "invalid_client", "error_description": "planted-secret is wrong"}', "invalid_client"),
        (400, b"plain words", "plain words"),
        (400, b'"words in JSON"', "words in JSON"),
        (403, b"", "403"),
        (404, b'{"access_token": "a"}', "404"),
        (300, b'{"access_token": "a"}', "300"),
        (300, b"plain words", "plain words"),
        (200, b'{"error": "invalid_scope", "error_description": "not you"}', "invalid_scope: not you"),
        (200, b"{}", "no 'access_token'"),
        (200, b"planted words", "no 'access_token'"),
        (200, b"<html><title>Sign in</title>", "an HTML page with the title 'Sign in'"),
        (200, b"[" * 100_000, "no 'access_token'"),
        (200, b'{"access_token": "a' + b"\\n" + b'planted"}', "a line break at position 2 of 9"),
        (200, '{"access_token": "planted\u2026"}'.encode(), "outside Latin-1 at position 8"),
        (302, b"", "302"),
        (503, b"", "503"),
    ],
)
def test_response_without_a_valid_token_is_an_auth_error(server, oauth, status, body, shown):
    headers = {"Location": server.endpoint + "/elsewhere"} if status == 302 else {}
    server.on("POST", "/token", wire.Reply(status, body, headers))

    with pytest.raises(AuthError, match=shown) as caught:
        oauth().list_shares()
    assert "planted" not in str(caught.value) + repr(vars(caught.value))
    # After a refusal, the request is repeated with the secret in the body instead of the header.
    assert [request.path for request in server.requests] == ["/token"] * {400: 2, 401: 2, 403: 2, 503: 3}.get(status, 1)


def test_client_is_pickled_with_credentials_but_without_token(server, oauth):
    server.on("POST", "/token", *grants("planted-t1", "planted-t2"))
    server.on("GET", "/shares", wire.as_json({}))
    rest = oauth()
    rest.list_shares()

    data = pickle.dumps(rest)

    assert b"planted-t1" not in data
    copy = pickle.loads(data)
    sign_in._tokens.clear()  # another process has an empty cache
    assert copy.list_shares() == []
    assert len(token_requests(server)) == 2


def test_client_secret_and_fetched_token_are_masked(oauth, server):
    server.on("POST", "/token", *grants("granted-token"))
    server.on("GET", "/shares", wire.as_json({}))
    client = oauth()
    login = sign_in.make_auth(client.profile.credentials, client.profile.endpoint, ReadOptions())
    assert "granted-token" not in login.secrets()
    client.list_shares()
    assert {"granted-token", "planted-secret"} <= set(login.secrets())


def test_oauth_profile_has_no_expiration_time(oauth):
    assert oauth().profile.expiration_time is None


def test_authorization_header_is_masked_in_errors(oauth, server):
    header = base64.b64encode(b"id:planted-secret").decode()
    server.on("POST", "/token", wire.error(400, "X", f"refused {header}"))
    with pytest.raises(AuthError, match="refused") as caught:
        oauth().list_shares()
    assert header not in str(caught.value)
