"""Locations of the three clouds: which store they mean, and with whose credentials."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.messages import (
    AwsCredentials,
    AzureUserDelegationSas,
    GcpOauthToken,
    TemporaryCredentials,
)
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.profile import BearerToken, Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage import place

AWS = AwsCredentials("planted-id", "planted-secret", "planted-session")
AZURE = AzureUserDelegationSas("?sv=2024&sig=planted-secret")
GCP = GcpOauthToken("planted-secret")
NAME = TableName.parse("s.d.t")


class Server(RestClient):
    """A sharing server that gives out the credentials it was made with, and counts."""

    def __init__(self, **given: Any) -> None:
        super().__init__(Profile("https://h/p", BearerToken(Secret("planted")), 1))
        self.given = given
        self.asked: list[str | None] = []

    def temporary_table_credentials(self, table: TableName, location: str | None = None) -> TemporaryCredentials:
        self.asked.append(location)
        return TemporaryCredentials(**self.given)


@pytest.mark.parametrize(
    ("location", "normal", "given", "store"),
    [
        ("s3a://bucket/a b/", "s3://bucket/a b", {"aws_temp_credentials": AWS}, "S3Store"),
        (
            "abfs://box@account.dfs.core.windows.net/t",
            "abfss://box@account.dfs.core.windows.net/t",
            {"azure_user_delegation_sas": AZURE},
            "AzureStore",
        ),
        ("gs://bucket/t", "gs://bucket/t", {"gcp_oauth_token": GCP}, "GCSStore"),
    ],
)
def test_a_location_is_read_by_the_store_of_its_cloud(
    location: str, normal: str, given: dict[str, Any], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_region", lambda bucket: "eu-west-1")
    server = Server(location=location, **given)

    found, read = place.place_of(server, NAME, None, ReadOptions())

    assert found == normal
    assert isinstance(read, place.ObjectPlace)
    made = read._current()
    assert type(made).__name__ == store
    assert read._current() is made
    assert "planted-secret" not in f"{made!r} {read!r} {read._credentials!r}"
    assert server.asked == [None]


def test_credentials_of_another_cloud_are_a_breach_of_the_protocol() -> None:
    _, read = place.place_of(Server(location="gs://bucket/t", aws_temp_credentials=AWS), NAME, None, ReadOptions())

    with pytest.raises(ProtocolError, match="'gcpOauthToken' for a location in 'gs:'"):
        read.files("_delta_log")


def test_a_store_that_is_not_read_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'r2:', which is not read"):
        place.place_of(Server(location="r2://bucket/t", aws_temp_credentials=AWS), NAME, None, ReadOptions())


def test_without_obstore_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(UsageError, match=r'pip install "delta-sharing-client\[storage\]"'):
        place.place_of(Server(location="s3://bucket/t", aws_temp_credentials=AWS), NAME, None, ReadOptions())


def test_only_an_endpoint_that_the_user_names_may_be_clear_text() -> None:
    plain = place._client(ReadOptions())["client_options"]
    named = place._client(ReadOptions(storage_options={"endpoint": "http://127.0.0.1:9000"}))["client_options"]

    assert (plain["allow_http"], named["allow_http"]) == (False, True)
