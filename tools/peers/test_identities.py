"""The clouds' own libraries request the identity token of this machine: ``bash scripts/identities``.

The endpoints of the clouds are imitated: that of managed identities in Azure's App Service, Google's metadata server,
and AWS STS.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from delta_sharing_client.errors import AuthError
from delta_sharing_client.protocol.profile import Profile
from tests.http_server import Exchange, HttpServer

pytest.importorskip("azure.identity", reason="the libraries have their own environment; see scripts/identities")


def jwt(cloud: str) -> str:
    """Return an unsigned token: Google's library reads its expiry."""
    parts = ({"alg": "RS256"}, {"sub": cloud, "exp": 4102444800}, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


STS = """<GetWebIdentityTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetWebIdentityTokenResult>
<WebIdentityToken>{}</WebIdentityToken><Expiration>2099-01-01T00:00:00Z</Expiration>
</GetWebIdentityTokenResult></GetWebIdentityTokenResponse>"""


class Endpoints(HttpServer):
    def __init__(self) -> None:
        super().__init__(self._reply)
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.works = True

    def _reply(self, exchange: Exchange) -> None:
        parts = urlsplit(exchange.path)
        query = parse_qs(parts.query or exchange.content.decode())
        self.asked.append((parts.path, query))
        if not self.works:
            return exchange.reply(403, b'{"error": "planted-secret"}')
        if exchange.command == "POST":
            return exchange.reply(200, STS.format(jwt("aws")).encode(), {"Content-Type": "text/xml"})
        headers = {"Metadata-Flavor": "Google"}
        if "identity" in parts.path and "audience" in query:
            return exchange.reply(200, jwt("gcp").encode(), {**headers, "Content-Type": "text/html"})
        token = {
            "email": "me@h",
            "access_token": jwt("azure"),
            "expires_on": "4102444800",
            "token_type": "Bearer",
            "resource": "r",
        }
        return exchange.reply(200, json.dumps(token).encode(), {**headers, "Content-Type": "application/json"})


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    # Google's library reads its setting once.
    with pytest.MonkeyPatch.context() as patch, Endpoints() as server:
        settings = {
            "IDENTITY_ENDPOINT": f"{server.url}/msi/token", "IDENTITY_HEADER": "planted-header",
            "GCE_METADATA_HOST": server.host, "GCE_METADATA_IP": server.host,
            "AWS_ENDPOINT_URL_STS": server.url, "AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": "planted-key", "AWS_SECRET_ACCESS_KEY": "planted-secret", "AWS_MAX_ATTEMPTS": "1",
        }  # fmt: skip
        for name, value in settings.items():
            patch.setenv(name, value)
        yield server


@pytest.mark.parametrize("cloud", ["azure", "gcp", "aws"])
@pytest.mark.parametrize("kind", ["bearer_token", "oauth_client_credentials"])
def test_token_of_the_machine(endpoints: Endpoints, cloud: str, kind: str) -> None:
    fields = {
        "shareCredentialsVersion": 2, "type": kind, "endpoint": "https://h/", "tokenEndpoint": "https://h/token",
        "clientId": "c", "workloadIdentity": {"cloud": cloud, "audience": "api://the-recipient"},
    }  # fmt: skip
    credentials = Profile.load(fields).credentials
    source = credentials.token if kind == "bearer_token" else credentials.assertion  # type: ignore[union-attr]
    assert source is not None
    assert source.reveal() == jwt(cloud)
    assert "api://the-recipient" in str(endpoints.asked)
    endpoints.works = False
    try:
        with pytest.raises(AuthError, match=f"gets no identity token for the audience .* from {cloud}") as raised:
            source.reveal()
    finally:
        endpoints.works = True
    assert "planted" not in str(raised.value)
