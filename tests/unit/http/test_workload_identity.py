"""Tokens of the identity of a machine; tools/peers/test_identities.py uses the clouds' own libraries."""

from __future__ import annotations

import pickle
import sys
import types
from typing import Any

import pytest

from delta_sharing_client.errors import AuthError, ProfileError, UsageError
from delta_sharing_client.http.logins import BearerToken, ClientCredentials
from delta_sharing_client.http.workload_identity import WorkloadIdentity
from delta_sharing_client.protocol.profile import Profile

FIELDS = {
    "shareCredentialsVersion": 2, "endpoint": "https://h/", "tokenEndpoint": "https://h/token", "clientId": "c",
    "workloadIdentity": {"cloud": "aws", "audience": "aud"},
}  # fmt: skip


def install(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    class Sts:
        def get_web_identity_token(self, **_: Any) -> dict[str, str]:
            if isinstance(answer, Exception):
                raise answer
            return {"WebIdentityToken": answer}

    module = types.ModuleType("boto3")
    module.client = lambda name: Sts()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "boto3", module)


def test_identity_is_in_place_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, " token\n")
    bearer = Profile.load({**FIELDS, "type": "bearer_token"}).credentials
    client = Profile.load({**FIELDS, "type": "oauth_client_credentials"}).credentials
    assert isinstance(bearer, BearerToken)
    assert isinstance(client, ClientCredentials)
    assert bearer.token == client.assertion == WorkloadIdentity("aws", "aud")
    assert client.client_secret is None
    assert pickle.loads(pickle.dumps(bearer)).token.reveal() == "token"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workloadIdentity": {"cloud": "moon", "audience": "a"}}, "'cloud' .* is 'moon'; expected one of 'azure'"),
        ({"workloadIdentity": {"cloud": "aws"}}, "has no 'audience'"),
        ({"workloadIdentity": "aws"}, "'workloadIdentity' .* is missing or not a JSON object"),
        ({"clientAssertionFile": "f"}, "both 'clientAssertionFile' and 'workloadIdentity'"),
    ],
)
def test_identities_that_are_refused(changes: Any, message: str) -> None:
    with pytest.raises(ProfileError, match=message):
        Profile.load({**FIELDS, "type": "oauth_client_credentials", **changes})


@pytest.mark.parametrize("answer", [" ", ValueError("planted-token")])
def test_failures_show_no_token(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    install(monkeypatch, answer)
    with pytest.raises(AuthError, match="no identity token for the audience 'aud' from aws") as raised:
        WorkloadIdentity("aws", "aud").reveal()
    assert "planted" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize(("cloud", "package"), [("azure", "azure"), ("gcp", "google"), ("aws", "boto3")])
def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, cloud: str, package: str) -> None:
    for module in ("azure", "azure.identity", "google", "google.oauth2", "google.oauth2.id_token", "boto3"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"'{package}'.*delta-sharing-client\[{cloud}\]"):
        WorkloadIdentity(cloud, "aud").reveal()
