"""Locations of the three clouds: which store they mean, and with whose credentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.source import Refused, Span
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
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
from delta_sharing_client.retry import Transient
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

    def temporary_table_credentials(
        self, table: TableName, location: str | None = None, *, negotiates: bool = False
    ) -> TemporaryCredentials:
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


@pytest.mark.parametrize(
    ("location", "given", "expected"),
    [
        ("gs://bucket/t", {"aws_temp_credentials": AWS}, "'gcpOauthToken' for a location in 'gs:'"),
        ("s3://bucket/t", {"gcp_oauth_token": GCP}, "'awsTempCredentials' for a location in 's3:'"),
        ("abfss://box@a.x/t", {"aws_temp_credentials": AWS}, "'azureUserDelegationSas' for a location in 'abfss:'"),
    ],
)
def test_credentials_of_another_cloud_are_a_breach_of_the_protocol(
    location: str, given: dict[str, Any], expected: str
) -> None:
    _, read = place.place_of(Server(location=location, **given), NAME, None, ReadOptions())

    with pytest.raises(ProtocolError, match=expected):
        read.files("_delta_log")


@pytest.mark.parametrize(
    ("location", "given"),
    [
        ("s3://127.0.0.1\\x/t", {"aws_temp_credentials": AWS}),
        ("s3://127.0.0.1:80@x/t", {"aws_temp_credentials": AWS}),
        ("s3:///t", {"aws_temp_credentials": AWS}),
        ("abfss://box@localhost\\x.dfs.core.windows.net/t", {"azure_user_delegation_sas": AZURE}),
        ("abfss://box@localhost:80/t", {"azure_user_delegation_sas": AZURE}),
    ],
)
def test_no_name_of_a_bucket_or_account_is_another_host(
    location: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_region", lambda bucket: pytest.fail(f"{bucket} was asked"))
    _, read = place.place_of(Server(location=location, **given), NAME, None, ReadOptions())

    with pytest.raises(ProtocolError, match="no valid bucket or account"):
        read.files("_delta_log")


def test_a_file_of_this_machine_is_read_in_one_version_of_it(tmp_path: Path) -> None:
    here = place.LocalPlace(tmp_path)
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "folder").mkdir()
    body = here.get("a", ByteRange(1, 3))
    assert (b"".join(iter(body.read, b"")), body.span) == (b"ir", Span(1, 3, 5))
    body.close()
    (tmp_path / "a").write_bytes(b"the second")

    for key, version, status in (("a", body.version, 412), ("b", None, 404), ("folder", None, 403)):
        with pytest.raises(Refused) as refused:
            here.get(key, None, version)
        assert refused.value.status == status


@pytest.mark.parametrize(
    ("said", "region"), [({"x-amz-bucket-region": "eu-north-1"}, "eu-north-1"), (None, "us-east-1")]
)
def test_s3_is_asked_for_the_region_of_a_bucket(
    said: dict[str, str] | None, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)

    def head(url: str, **_: object) -> requests.Response:
        assert url == "https://bucket.s3.amazonaws.com"
        if said is None:
            raise requests.ConnectionError
        response = requests.Response()
        response.headers.update(said)
        return response

    monkeypatch.setattr(place.requests, "head", head)
    _, read = place.place_of(Server(location="s3://bucket/t", aws_temp_credentials=AWS), NAME, None, ReadOptions())
    assert isinstance(read, place.ObjectPlace)

    assert read._current().config["region"] == region


def test_a_store_that_is_not_read_is_refused_by_its_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'r2:', which directory access does not support"):
        place.place_of(Server(location="r2://bucket/t", aws_temp_credentials=AWS), NAME, None, ReadOptions())


def test_without_obstore_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(UsageError, match=r'pip install "delta-sharing-client\[storage\]"'):
        place.place_of(Server(location="s3://bucket/t", aws_temp_credentials=AWS), NAME, None, ReadOptions())


def test_only_an_endpoint_that_the_user_names_may_be_clear_text() -> None:
    plain = place._client(ReadOptions())["client_options"]
    named = place._client(ReadOptions(storage_options={"endpoint": "http://127.0.0.1:9000"}))["client_options"]

    assert (plain["allow_http"], named["allow_http"]) == (False, True)


CLOUDS = {
    "s3://bucket/t": {"aws_temp_credentials": AWS},
    "abfss://box@account.dfs.core.windows.net/t": {"azure_user_delegation_sas": AZURE},
    "gs://bucket/t": {"gcp_oauth_token": GCP},
}


@pytest.mark.parametrize("location", CLOUDS)
def test_a_store_is_made_anew_before_its_credentials_end(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_region", lambda bucket: "eu-west-1")
    now = [1_000_000]
    monkeypatch.setattr(place, "_now", lambda: now[0])
    server = Server(location=location, expiration_time=now[0] + 30_000, **CLOUDS[location])
    _, read = place.place_of(server, NAME, None, ReadOptions())
    assert isinstance(read, place.ObjectPlace)
    first = read._current()
    now[0] += 19_000
    assert read._current() is first
    # A third of their time is left.
    now[0] += 1_000
    server.given["expiration_time"] = now[0] + 30_000
    second = read._current()

    assert second is not first
    assert read._current() is second
    assert server.asked == [None, location]


@pytest.mark.parametrize("location", CLOUDS)
def test_an_endpoint_of_ones_own_is_named_alike_for_every_store(location: str) -> None:
    options = ReadOptions(storage_options={"endpoint": "http://127.0.0.1:1/x"})
    _, read = place.place_of(Server(location=location, **CLOUDS[location]), NAME, None, options)
    assert isinstance(read, place.ObjectPlace)

    assert "http://127.0.0.1:1/x" in str(read._current().config)


@pytest.mark.parametrize(("status", "asked"), [("403 Forbidden", 2), ("401 Unauthorized", 2), ("500 Internal", 1)])
def test_a_list_that_is_refused_has_the_credentials_renewed_once(status: str, asked: int) -> None:
    from obstore.exceptions import GenericError

    location = "gs://bucket/t"
    server = Server(location=location, **CLOUDS[location])
    _, read = place.place_of(server, NAME, None, ReadOptions())
    assert isinstance(read, place.ObjectPlace)

    def listing(store: object) -> None:
        raise GenericError(
            f"Error performing GET X in 2ms - Server returned non-2xx status code: {status}: sig=planted"
        )

    with pytest.raises((Refused, Transient)) as caught:
        read._trying(listing)

    assert isinstance(caught.value, Refused) == (asked == 2)
    assert "planted" not in repr(caught.value)
    assert len(server.asked) == asked
