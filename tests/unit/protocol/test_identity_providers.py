"""Models of the token endpoints of Entra ID, Okta, Keycloak, Databricks and a JWT grant.

Their checks and responses follow the documentation of each provider and responses that its users have published.
"""

from __future__ import annotations

import base64
import time
from urllib.parse import parse_qs, unquote_plus

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from delta_sharing_client.errors import AuthError
from delta_sharing_client.http import sign_in
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from tests.unit.protocol import wire

OPTIONS = ReadOptions(max_attempts=2, connect_timeout=2, read_timeout=2)
SECRET = "sec%ret+~8Q/ =&ü"
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


class Refused(Exception):
    """Raised when a provider refuses a request. It carries the status and body of the response."""


class Provider:
    """A token endpoint at ``/token``. Each subclass checks requests and raises errors as one provider does."""

    def __init__(self, server) -> None:
        self.forms = []
        self.path = "/token"
        server.on("POST", self.path, self.respond)
        server.on("GET", "/shares", wire.as_json({"items": []}))

    def respond(self, request):
        form = parse_qs(request.body, strict_parsing=True)
        self.forms.append(form)
        try:
            self.check(form, request.headers.get("authorization"))
        except Refused as refused:
            status, body = refused.args
            return wire.as_json(body, status=status)
        return self.granted()

    def granted(self):
        return wire.as_json({"token_type": "Bearer", "expires_in": 3599, "access_token": "granted"})

    def check(self, form, header):
        raise NotImplementedError


def body_credentials(form, header):
    """Return the client id and secret from the body, or None if the secret is not in it or there is a header."""
    return (form["client_id"][0], form["client_secret"][0]) if header is None and "client_secret" in form else None


def header_credentials(header, *, decoding):
    """Return the client id and secret from a Basic header, form-decoded (RFC 6749) or unchanged, or None."""
    if not (header or "").startswith("Basic "):
        return None
    client, _, secret = base64.b64decode(header[6:]).decode().partition(":")
    return (unquote_plus(client), unquote_plus(secret)) if decoding else (client, secret)


class Entra(Provider):
    """Expects the secret in the body, and the scope ``.../.default`` (v2 endpoint) or a resource (v1 endpoint)."""

    def check(self, form, header):
        if form.get("scope") != ["api://sharing/.default"] and form.get("resource") != ["api://sharing"]:
            text = "AADSTS90014: The required field 'scope' is missing from the credential."
            raise Refused(400, {"error": "invalid_request", "error_description": text, "error_codes": [90014]})
        if body_credentials(form, header) != ("the-client", SECRET):
            text = (
                "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the request is the "
                "client secret value.\r\nTrace ID: 0e1d\r\nCorrelation ID: 7c2f\r\nTimestamp: 2026-08-01 10:00:00Z"
            )
            body = {"error": "invalid_client", "error_description": text, "error_codes": [7000215], "trace_id": "0e1d"}
            raise Refused(401, body)


class Okta(Provider):
    """Expects a Basic header without form encoding, and a configured scope. Its errors have two forms."""

    def check(self, form, header):
        if header_credentials(header, decoding=False) != ("the-client", SECRET):
            raise Refused(
                401, {"errorCode": "invalid_client", "errorSummary": "Invalid value for 'client_id' parameter."}
            )
        if form.get("scope") != ["tables"]:
            text = "One or more scopes are not configured for the authorization server resource."
            raise Refused(400, {"error": "invalid_scope", "error_description": text})


class Keycloak(Provider):
    """Expects a form-encoded Basic header (RFC 6749) and an audience."""

    def check(self, form, header):
        if header_credentials(header, decoding=True) != ("the-client", SECRET):
            text = "Invalid client or Invalid client credentials"
            raise Refused(401, {"error": "unauthorized_client", "error_description": text})
        if form.get("audience") != ["sharing"]:
            raise Refused(400, {"error": "invalid_request", "error_description": "Audience not found"})


class Databricks(Provider):
    """Expects a Basic header and the scope ``all-apis``. It responds with 201, as some gateways do."""

    def check(self, form, header):
        if header_credentials(header, decoding=False) != ("the-client", SECRET) or form.get("scope") != ["all-apis"]:
            text = "Client authentication failed"
            raise Refused(401, {"error": "invalid_client", "error_description": text})

    def granted(self):
        return wire.as_json({"access_token": "granted", "expires_in": "3600"}, status=201)


class Jwts(Provider):
    """Expects a JWT grant (RFC 7523, 2.1) with a resource."""

    def check(self, form, header):
        try:
            claims = jwt.decode(form["assertion"][0], KEY.public_key(), ["RS256"], audience="https://login.test")
        except jwt.PyJWTError as error:
            raise Refused(400, {"error": "invalid_grant", "error_description": f"{error}."}) from None
        if claims["resource"] != "https://sharing.test" or claims["exp"] > time.time() + 300:
            raise Refused(400, {"error": "invalid_target"})


def profile(server, **fields):
    return {
        "shareCredentialsVersion": 2,
        "type": "oauth_client_credentials",
        "endpoint": server.endpoint,
        "tokenEndpoint": f"{server.endpoint}/token",
        "clientId": "the-client",
        "clientSecret": SECRET,
        **fields,
    }


def list_shares(fields):
    return RestClient(Profile.load(fields), OPTIONS).list_shares()


@pytest.mark.parametrize(
    ("provider", "fields", "count"),
    [
        (Entra, {"scope": "api://sharing/.default"}, 3),
        (Entra, {"scope": "api://sharing/.default", "tokenEndpointAuthMethod": "client_secret_post"}, 1),
        (Entra, {"resource": "api://sharing", "tokenEndpointAuthMethod": "client_secret_post"}, 1),
        (Okta, {"scope": "tables"}, 1),
        (Keycloak, {"audience": "sharing"}, 2),
        (Databricks, {"scope": "all-apis"}, 1),
        (Databricks, {"scope": "all-apis", "tokenEndpointAuthMethod": "client_secret_basic"}, 1),
    ],
)
def test_auth_method_that_a_provider_accepts_is_remembered(server, provider, fields, count):
    endpoint = provider(server)

    assert list_shares(profile(server, **fields)) == []
    assert len(endpoint.forms) == count
    assert server.requests[-1].headers["authorization"] == "Bearer granted"

    for shared in sign_in._tokens.values():
        shared.token = None
    assert list_shares(profile(server, **fields)) == []
    assert len(endpoint.forms) == count + 1


@pytest.mark.parametrize(
    ("provider", "fields", "expected"),
    [
        (Entra, {}, r"\(400\): invalid_request: AADSTS90014: The required field 'scope' is missing"),
        (
            Entra,
            {"scope": "api://sharing/.default", "clientSecret": "wrong"},
            r"\(401\): invalid_client: AADSTS7000215: Invalid client secret provided.*Trace ID: 0e1d Correlation",
        ),
        (Okta, {"clientId": "another"}, r"\(401\): invalid_client: Invalid value for 'client_id' parameter\. Check"),
        (Okta, {"scope": "all"}, r"\(400\): invalid_scope: One or more scopes are not configured"),
        (Keycloak, {"clientSecret": "wrong"}, r"unauthorized_client: Invalid client or Invalid client credentials\. "),
        (Keycloak, {"tokenEndpointAuthMethod": "client_secret_basic"}, "invalid_request: Audience not found|unauthor"),
        (Databricks, {"scope": "all-apis", "clientSecret": "wrong"}, "invalid_client: Client authentication failed"),
    ],
)
def test_error_of_each_provider_is_shown_without_secrets(server, provider, fields, expected):
    provider(server)

    with pytest.raises(AuthError, match=expected) as caught:
        list_shares(profile(server, **fields))
    assert SECRET not in str(caught.value) + repr(vars(caught.value))
    assert all(request.path == "/token" for request in server.requests)


def test_several_resources_are_sent_as_a_repeated_form_field(server):
    endpoint = Entra(server)
    fields = {"resource": ["api://sharing", "api://more"], "scope": "api://sharing/.default"}

    list_shares(profile(server, **fields))

    assert endpoint.forms[-1]["resource"] == ["api://sharing", "api://more"]


def jwt_profile(server, **fields):
    settings = {
        "tokenEndpoint": f"{server.endpoint}/token",
        "clientId": "the-client",
        "issuer": "https://login.test",
        "audience": "https://sharing.test",
        "privateKey": {"privateKey": PEM},
        **fields,
    }
    kind = {"shareCredentialsVersion": 2, "type": "oauth_jwt_bearer_private_key_jwt", "endpoint": server.endpoint}
    return {**kind, "auth": settings}


def test_jwt_grant_is_accepted_and_its_refusals_are_shown(server):
    endpoint = Jwts(server)

    assert list_shares(jwt_profile(server)) == []
    assert endpoint.forms[0]["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]

    with pytest.raises(AuthError, match=r"\(400\): invalid_grant: Audience doesn't match\. Check"):
        list_shares(jwt_profile(server, issuer="https://elsewhere.test"))
    with pytest.raises(AuthError, match=r"\(400\): invalid_target\. Check"):
        list_shares(jwt_profile(server, audience="https://elsewhere.test"))


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"", {"WWW-Authenticate": 'Basic realm="sso", error="invalid_client"'}, "WWW-Authenticate: Basic realm"),
        (b"<html><title>Sign in</title></html>", {}, "an HTML page with the title 'Sign in'"),
        (b'{"error": {"message": "the tenant is gone"}}', {}, "the tenant is gone"),
    ],
)
def test_error_of_a_gateway_is_shown(server, body, headers, expected):
    server.on("POST", "/token", wire.Reply(401, body, headers))

    with pytest.raises(AuthError, match=expected):
        list_shares(profile(server))
