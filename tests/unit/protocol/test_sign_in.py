"""Each OAuth grant, tested with a token endpoint that checks signatures, and the renewal of tokens."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from delta_sharing_client.errors import (
    AuthError,
    DeltaSharingError,
    ProfileError,
    ProtocolError,
    TransportError,
    UsageError,
)
from delta_sharing_client.http import sign_in
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from tests.time_limits import HANGS
from tests.unit.protocol import wire

OPTIONS = ReadOptions(max_attempts=3, connect_timeout=2, read_timeout=2)
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
KEYS = {"RS256": rsa.generate_private_key(65537, 2048), "ES256": ec.generate_private_key(ec.SECP256R1())}


def pem(key, public=False) -> str:
    if public:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()
    none = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, none).decode()


class TokenEndpoint:
    """Grants the tokens ``granted-1``, ``granted-2`` ... to requests that pass ``check``, and refuses others."""

    def __init__(self, server) -> None:
        self.url = f"{server.endpoint}/token"
        self.forms: list[dict[str, str]] = []
        self._token_ids: set[str] = set()
        server.on("POST", "/token", self.respond)
        server.on("GET", "/shares", self.shares)

    def respond(self, request):
        form = dict(parse_qsl(request.body, strict_parsing=True))
        self.forms.append(form)
        try:
            self.check(form, request.headers.get("authorization"))
        except (jwt.PyJWTError, AssertionError) as error:
            return wire.as_json({"error": "invalid_client", "error_description": repr(error)}, status=401)
        return wire.as_json({"access_token": f"granted-{len(self.forms)}", "expires_in": 3600})

    def shares(self, request):
        if request.headers.get("authorization") != f"Bearer granted-{len(self.forms)}":
            return wire.error(401, "UNAUTHENTICATED")
        return wire.as_json({"items": []})

    def check(self, form, header):
        raise NotImplementedError

    def check_signed(self, token, algorithm, **expected):
        claims = jwt.decode(token, pem(KEYS[algorithm], public=True), [algorithm], **expected)
        assert claims["jti"] not in self._token_ids, "the token was used before"
        self._token_ids.add(claims["jti"])
        return claims


def profile_of(server, **fields):
    return {"shareCredentialsVersion": 2, "endpoint": server.endpoint, **fields}


def jwt_profile(server, key, algorithm, **fields):
    return profile_of(
        server,
        type="oauth_jwt_bearer_private_key_jwt",
        auth={
            "tokenEndpoint": f"{server.endpoint}/token",
            "clientId": "the-client",
            "issuer": "https://login.test",
            "audience": "https://sharing.test",
            "scope": "tables",
            "privateKey": {"keyId": "k1", "algorithm": algorithm, **key},
            **fields,
        },
    )


class SignedGrants(TokenEndpoint):
    algorithm = "RS256"

    def check(self, form, header):
        assert header is None
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        claims = self.check_signed(
            form["assertion"], self.algorithm, audience="https://login.test", issuer="the-client"
        )
        assert (claims["scope"], claims["resource"]) == ("tables", "https://sharing.test")
        assert claims["exp"] - claims["iat"] <= 300
        assert jwt.get_unverified_header(form["assertion"])["kid"] == "k1"


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("source", ["file", "text", "function"])
def test_jwt_key_may_come_from_a_file_a_string_or_a_function(server, tmp_path, algorithm, source):
    endpoint = SignedGrants(server)
    endpoint.algorithm = algorithm
    text = pem(KEYS[algorithm])
    path = tmp_path / "key.pem"
    path.write_text(text)
    key = {
        "file": {"privateKeyFile": str(path)},
        "text": {"privateKey": text},
        "function": {"privateKey": lambda: text},
    }

    rest = RestClient(Profile.load(jwt_profile(server, key[source], algorithm)), OPTIONS)

    assert rest.list_shares() == rest.list_shares() == []
    assert len(endpoint.forms) == 1


def test_jwt_grant_needs_the_jwt_package(server, monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)
    profile = Profile.load(jwt_profile(server, {"privateKey": pem(KEYS["RS256"])}, "RS256"))
    with pytest.raises(UsageError, match=r'needs the package .jwt.* "delta-sharing-client\[jwt\]"'):
        RestClient(profile, OPTIONS).list_shares()


def test_each_jwt_grant_has_a_new_id(server):
    endpoint = SignedGrants(server)
    other = pem(rsa.generate_private_key(65537, 2048))
    with pytest.raises(AuthError, match="invalid_client"):
        RestClient(Profile.load(jwt_profile(server, {"privateKey": other}, "RS256")), OPTIONS).list_shares()

    rest = RestClient(Profile.load(jwt_profile(server, {"privateKey": pem(KEYS["RS256"])}, "RS256")), OPTIONS)
    rest.list_shares()
    sign_in._tokens.clear()
    rest.list_shares()
    assert len(endpoint._token_ids) == 2


@pytest.mark.parametrize("where", ["error", "error_description"])
def test_jwt_grant_in_a_response_is_masked(server, where):
    def echo(request):
        return wire.as_json({where: f"no_{dict(parse_qsl(request.body))['assertion']}"}, status=400)

    server.on("POST", "/token", echo)
    rest = RestClient(Profile.load(jwt_profile(server, {"privateKey": pem(KEYS["ES256"])}, "ES256")), OPTIONS)

    with pytest.raises(AuthError, match=r"no_\*\*\*") as caught:
        rest.list_shares()
    assert "eyJ" not in str(caught.value) + repr(vars(caught.value))


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [("planted", "RS256"), (pem(KEYS["ES256"]), "RS256"), (pem(KEYS["RS256"]), "ES256")],
    ids=["no key", "EC key", "RSA key"],
)
def test_error_of_an_invalid_key_shows_only_its_algorithm(server, key, algorithm):
    rest = RestClient(Profile.load(jwt_profile(server, {"privateKey": key}, algorithm)), OPTIONS)

    with pytest.raises(ProfileError, match=f"cannot sign with {algorithm}") as caught:
        rest.list_shares()
    assert caught.value.__context__ is None
    assert "planted" not in str(caught.value)
    assert server.requests == []


def client(server, **fields):
    fields = {"clientId": "the-client", "tokenEndpoint": f"{server.endpoint}/token", **fields}
    return profile_of(server, type="oauth_client_credentials", **fields)


def test_client_secret_is_sent_in_the_body_if_configured(server):
    class Posted(TokenEndpoint):
        def check(self, form, header):
            assert header is None
            assert form == {
                "grant_type": "client_credentials",
                "client_id": "the-client",
                "client_secret": "planted & more",
                "audience": "https://sharing.test",
                "scope": "a b",
            }

    Posted(server)
    fields = {"clientSecret": "planted & more", "audience": "https://sharing.test", "scope": "a b"}
    profile = client(server, tokenEndpointAuthMethod="client_secret_post", **fields)

    assert RestClient(Profile.load(profile), OPTIONS).list_shares() == []


def test_client_assertion_file_is_read_for_each_token(server, tmp_path):
    class Federated(TokenEndpoint):
        def check(self, form, header):
            assert (form["client_id"], form["client_assertion_type"]) == ("the-client", ASSERTION_TYPE)
            assert "client_secret" not in form
            self.check_signed(
                form["client_assertion"], "RS256", audience="https://login.test", issuer="https://ci.test"
            )

    endpoint = Federated(server)
    path = tmp_path / "token"

    def issue(number):
        claims = {"iss": "https://ci.test", "aud": "https://login.test", "exp": time.time() + 60, "jti": str(number)}
        path.write_text(jwt.encode(claims, KEYS["RS256"], "RS256") + "\n")

    issue(1)
    rest = RestClient(Profile.load(client(server, clientAssertionFile=str(path))), OPTIONS)
    rest.list_shares()
    issue(2)
    sign_in._tokens.clear()
    rest.list_shares()
    assert endpoint._token_ids == {"1", "2"}

    path.write_text("opaque-assertion")
    sign_in._tokens.clear()
    server.on(
        "POST", "/token", lambda request: wire.as_json({"error": dict(parse_qsl(request.body))["client_assertion"]})
    )
    with pytest.raises(AuthError, match=r"\(200\): \*\*\*") as caught:
        rest.list_shares()
    assert "opaque" not in str(caught.value)


def identity_token(number, lifetime):
    claims = {"sub": f"repo:{number}", "exp": time.time() + lifetime}
    return jwt.encode(claims, KEYS["RS256"], "RS256")


@pytest.mark.parametrize("kind", ["bearer_token", None])
def test_token_from_a_function_is_kept_until_it_nearly_expires(server, monkeypatch, kind):
    server.on("GET", "/shares", wire.as_json({}))
    calls = []

    def token():
        calls.append(1)
        return identity_token(len(calls), 600)

    fields = {"shareCredentialsVersion": 1} if kind is None else {"type": kind}
    rest = RestClient(Profile.load(profile_of(server, **fields) | {"bearerToken": token}), OPTIONS)
    rest.list_shares()
    rest.list_shares()
    assert len(calls) == 1

    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 550)
    rest.list_shares()
    assert len(calls) == 2
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent[0] == sent[1] != sent[2]


def test_bearer_token_of_a_file_is_read_again_after_a_401(server, tmp_path):
    path = tmp_path / "token"
    path.write_text("old")

    def shares(request):
        return wire.as_json({}) if request.headers["authorization"] == "Bearer new" else wire.error(401, "X")

    server.on("GET", "/shares", shares)
    fields = {"type": "bearer_token", "bearerTokenFile": str(path)}
    rest = RestClient(Profile.load(profile_of(server, **fields)), OPTIONS)
    with pytest.raises(AuthError, match="Check the file, function or identity"):
        rest.list_shares()
    assert len(server.requests) == 2

    path.write_text("new")
    assert rest.list_shares() == []


def test_error_of_a_token_function_is_raised_unchanged(server):
    def token():
        raise LookupError("no cloud here")

    with pytest.raises(LookupError, match="no cloud"):
        RestClient(Profile.load(profile_of(server, type="bearer_token", bearerToken=token)), OPTIONS).list_shares()


# === Rotation ===


def test_profile_is_read_again_after_a_401(server, tmp_path):
    path = tmp_path / "my.share"

    def write(token):
        fields = {"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": token}
        path.write_text(json.dumps(fields))
        os.utime(path, ns=(1, 1))

    def shares(request):
        return wire.as_json({}) if request.headers["authorization"] == "Bearer new" else wire.error(401, "X")

    server.on("GET", "/shares", shares)
    write("old")
    rest = RestClient(Profile.load(path), OPTIONS)
    with pytest.raises(AuthError):
        rest.list_shares()
    assert len(server.requests) == 1  # an unchanged profile causes no retry

    write("new")
    assert rest.list_shares() == []
    assert len(server.requests) == 3


# === One token per process ===


def secret_profile(server):
    return Profile.load(client(server, clientSecret="planted"))


def grant(token, **fields):
    return wire.as_json({"access_token": token, "expires_in": 3600, **fields})


def test_clients_of_a_process_share_the_token_of_a_profile(server):
    server.on("POST", "/token", grant("t1"))
    server.on("GET", "/shares", wire.as_json({}))

    for _ in range(3):
        RestClient(secret_profile(server), OPTIONS).list_shares()

    assert [request.path for request in server.requests].count("/token") == 1


def test_each_client_secret_has_its_own_token(server):
    server.on("POST", "/token", grant("t1"), grant("t2"))
    server.on("GET", "/shares", wire.as_json({}))

    RestClient(secret_profile(server), OPTIONS).list_shares()
    RestClient(Profile.load(client(server, clientSecret="other")), OPTIONS).list_shares()

    sent = [request.headers["authorization"] for request in server.requests if request.path == "/shares"]
    assert sent == ["Bearer t1", "Bearer t2"]


def test_threads_share_a_failed_token_request(server):
    together = threading.Barrier(8)

    def respond_late(_):
        time.sleep(0.2)
        return wire.error(503, "X")

    server.on("POST", "/token", respond_late)
    rest = RestClient(secret_profile(server), ReadOptions(max_attempts=1, read_timeout=5))

    def failure(_):
        together.wait(HANGS)
        with pytest.raises(DeltaSharingError) as caught:
            rest.list_shares()
        return caught.value

    with ThreadPoolExecutor(8) as pool:
        failures = list(pool.map(failure, range(8)))
    assert len(failures) == len({id(failure) for failure in failures}) == 8
    assert all(isinstance(failure, AuthError) and failure.status == 503 for failure in failures)
    assert len(server.requests) <= 4  # late threads do not share the first failure


def test_old_token_is_used_while_a_thread_renews_it(server, monkeypatch):
    renewing, may_respond = threading.Event(), threading.Event()

    def respond_late(_):
        renewing.set()
        assert may_respond.wait(60)
        return grant("t2")

    server.on("POST", "/token", grant("t1"), respond_late)
    server.on("GET", "/shares", wire.as_json({}))
    rest = RestClient(secret_profile(server), OPTIONS)
    rest.list_shares()
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3550)

    thread = threading.Thread(target=rest.list_shares)
    thread.start()
    assert renewing.wait(60)
    rest.list_shares()
    may_respond.set()
    thread.join()
    rest.list_shares()

    sent = [request.headers["authorization"] for request in server.requests if request.path == "/shares"]
    assert sorted(sent) == ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"]
    assert [request.path for request in server.requests].count("/token") == 2


def test_old_token_is_used_after_a_failed_renewal(server, monkeypatch, caplog):
    server.on("POST", "/token", grant("t1"), wire.error(400, "X"))
    server.on("GET", "/shares", wire.as_json({}))
    rest = RestClient(secret_profile(server), OPTIONS)
    rest.list_shares()
    now = time.time()

    monkeypatch.setattr(time, "time", lambda: now + 3550)
    assert rest.list_shares() == rest.list_shares() == []
    assert [request.path for request in server.requests].count("/token") == 2
    assert "could not be renewed" in caplog.text

    # The renewal is retried after half of the remaining time, and again after half of the rest.
    for age, count in ((3574, 2), (3576, 3), (3587, 3), (3589, 4)):
        monkeypatch.setattr(time, "time", lambda age=age: now + age)
        assert rest.list_shares() == []
        assert [request.path for request in server.requests].count("/token") == count

    monkeypatch.setattr(time, "time", lambda: now + 3601)
    with pytest.raises(AuthError, match="returned no token"):
        rest.list_shares()


def test_length_of_a_token_response_is_limited(server, monkeypatch):
    monkeypatch.setattr(sign_in, "_MAX_TOKEN_BYTES", 1000)
    server.on("POST", "/token", wire.Reply(200, b" " * 100_000, framing="chunked"))

    with pytest.raises(ProtocolError, match="longer than 1000 bytes"):
        RestClient(secret_profile(server), OPTIONS).list_shares()


def test_truncated_token_response_is_requested_again(server):
    whole = grant("t1")
    cut = wire.Reply(200, whole.body, framing="cut-length", cut=10)
    server.on("POST", "/token", cut, whole)
    server.on("GET", "/shares", wire.as_json({}))

    assert RestClient(secret_profile(server), OPTIONS).list_shares() == []


def test_error_context_has_only_errors_of_this_package(server):
    profile = Profile.load(client(server, clientSecret="planted", tokenEndpoint="http://127.0.0.1:9/token"))

    with pytest.raises(TransportError, match="OAuth token") as caught:
        RestClient(profile, ReadOptions(max_attempts=1)).list_shares()
    modules, error = [], caught.value
    while error is not None:
        modules.append(type(error).__module__.partition(".")[0])
        error = error.__context__
    assert set(modules) == {"delta_sharing_client"}


def test_forked_process_ignores_locks_of_its_parent(server):
    server.on("POST", "/token", grant("t1"))
    server.on("GET", "/shares", wire.as_json({}))
    rest = RestClient(secret_profile(server), OPTIONS)
    rest.list_shares()
    (shared,) = sign_in._tokens.values()

    with shared._fetching, sign_in._tokens_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns if a process with threads forks
        child = os.fork()
        if child == 0:
            sign_in._tokens.popitem()
            code = 1
            try:
                code = 0 if rest.list_shares() == [] else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
    assert status == 0
