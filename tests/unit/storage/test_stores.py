"""Locations and settings, and the store, endpoint and credentials that they select."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import certifi
import pytest
import requests

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.network import ONLY_HTTPS, Allowed
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage import stores
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, R2, Renewal, StorageCredentials
from delta_sharing_client.storage.stores import Location, StoreSettings, open_store

SECRETS = {
    AWS: ("access_key_id", "secret_access_key", "session_token"),
    R2: ("access_key_id", "secret_access_key", "session_token"),
    AZURE: ("sas_token",),
    GOOGLE: ("token",),
}
S3, ADLS, GCS = "s3://bucket/a/t", "abfss://box@account.dfs.core.windows.net/t", "gs://bucket/t"
CLOUD = {S3: AWS, ADLS: AZURE, GCS: GOOGLE}


def never() -> StorageCredentials:
    raise AssertionError("The credentials are still valid.")


def opened(
    location: str,
    cloud: str,
    options: Mapping[str, str] | None = None,
    *,
    stated: Mapping[str, str] | None = None,
    allowed: Allowed = ONLY_HTTPS,
    prefix: str = "",
) -> Any:
    secrets = {name: Secret(f"planted-{name}") for name in SECRETS[cloud]}
    given = StorageCredentials(cloud=cloud, secrets=secrets, settings=stated or {})
    settings = StoreSettings(Location.parse(location), ReadOptions(storage_options=options or {}), allowed)
    return open_store(settings, Renewal(never, given), prefix)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(stores, "bucket_region", lambda bucket, options: "eu-west-1")
    monkeypatch.setattr(stores, "leads_here", lambda host: False)


@pytest.mark.parametrize(
    ("text", "normal", "key"),
    [
        ("s3a://bucket/a b/", "s3://bucket/a b", "a b/x"),
        ("S3://bucket", "s3://bucket", "x"),
        ("s3://bucket/a?b#c/t//", "s3://bucket/a?b#c/t", "a?b#c/t/x"),
        ("wasbs://box@account.blob.x/t", "abfss://box@account.blob.x/t", "t/x"),
        ("gcs://bucket/t", "gs://bucket/t", "t/x"),
        ("file:///tmp/t/", "file:///tmp/t", "tmp/t/x"),
    ],
)
def test_locations_are_normalized(text: str, normal: str, key: str) -> None:
    result = Location.parse(text)

    assert (str(result), result.key("x")) == (normal, key)
    assert Location.parse(normal) == result


@pytest.mark.parametrize("location", CLOUD)
def test_location_selects_the_store_of_its_cloud(location: str) -> None:
    store = opened(location, CLOUD[location])

    assert type(store).__name__ == {AWS: "S3Store", AZURE: "AzureStore", GOOGLE: "GCSStore"}[CLOUD[location]]
    assert "planted" not in repr(store)
    provided = pickle.loads(pickle.dumps(store)).credential_provider()
    assert provided.pop("expires_at") is None
    assert set(provided.values()) == {f"planted-{name}" for name in SECRETS[CLOUD[location]]}


@pytest.mark.parametrize("location", CLOUD)
@pytest.mark.parametrize("cloud", [AWS, AZURE, GOOGLE, R2])
def test_error_names_the_cloud_of_the_wrong_credentials(location: str, cloud: str) -> None:
    if cloud == CLOUD[location] or (cloud == R2 and location == S3):
        return
    with pytest.raises(ProtocolError, match=f"found credentials of {cloud}"):
        opened(location, cloud)


@pytest.mark.parametrize("location", CLOUD)
def test_endpoint_option_applies_to_every_store(location: str) -> None:
    store = opened(location, CLOUD[location], {"endpoint": "http://127.0.0.1:1/x", "region": "r-1"})

    assert "http://127.0.0.1:1/x" in str(store.config)
    assert _plain(store.client_options["allow_http"]) is True
    assert (store.config.get("region") == "r-1") == (location == S3)


@pytest.mark.parametrize(
    ("location", "cloud", "options", "stated", "expected"),
    [
        (S3, AWS, {}, {}, {"region": "eu-west-1"}),
        (S3, AWS, {"region": "mine"}, {"region": "theirs"}, {"region": "mine"}),
        (S3, AWS, {}, {"region": "theirs", "endpoint": "https://s"}, {"region": "theirs", "endpoint": "https://s"}),
        ("r2://bucket@account.r2.cloudflarestorage.com/t", R2, {}, {},
         {"region": "auto", "endpoint": "https://account.r2.cloudflarestorage.com"}),
        (S3, R2, {"endpoint": "https://account.r2.cloudflarestorage.com"}, {}, {"region": "auto"}),
        (S3, AWS, {}, {"access_point": "arn:aws:s3:eu-north-1:123:accesspoint/data"},
         {"endpoint": "https://data-123.s3-accesspoint.eu-north-1.amazonaws.com", "region": "eu-north-1",
          "virtual_hosted_style_request": True}),
        (S3, AWS, {}, {"access_point": "arn:aws-cn:s3:cn-north-1:123:accesspoint/data"},
         {"endpoint": "https://data-123.s3-accesspoint.cn-north-1.amazonaws.com.cn", "region": "cn-north-1"}),
        (S3, AWS, {}, {"access_point": "data-abc-s3alias"}, {"bucket": "data-abc-s3alias"}),
        (S3, AWS, {}, {"endpoint": "https://s.x", "virtual_hosted_style_request": "true"},
         {"endpoint": "https://bucket.s.x", "virtual_hosted_style_request": True}),
        (S3, AWS, {"endpoint": "https://bucket.s.x", "virtual_hosted_style_request": "true"}, {},
         {"endpoint": "https://bucket.s.x"}),
        ("abfss://box@account.dfs.core.chinacloudapi.cn/t", AZURE, {}, {},
         {"endpoint": "https://account.blob.core.chinacloudapi.cn"}),
        ("abfss://ws@onelake.dfs.fabric.microsoft.com/t", AZURE, {}, {},
         {"endpoint": "https://onelake.blob.fabric.microsoft.com"}),
    ],
)  # fmt: skip
def test_store_has_endpoint_region_and_addressing_style(
    location: str, cloud: str, options: dict[str, str], stated: dict[str, str], expected: dict[str, Any]
) -> None:
    config = opened(location, cloud, options, stated=stated).config

    assert {name: _plain(config[name]) for name in expected} == expected


def _plain(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def test_storage_options_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_SHARING_STORAGE_OPTIONS", '{"endpoint": "https://environment", "region": "r-1"}')

    config = opened(S3, AWS, {"region": "mine"}, stated={"endpoint": "https://server"}).config

    assert (config["endpoint"], config["region"]) == ("https://environment", "mine")
    monkeypatch.setenv("DELTA_SHARING_STORAGE_OPTIONS", "endpoint=planted")
    with pytest.raises(UsageError, match="DELTA_SHARING_STORAGE_OPTIONS") as caught:
        opened(S3, AWS)
    assert "planted" not in str(caught.value)


def test_aws_environment_sets_the_endpoint_but_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    store = opened(S3, AWS)

    # obstore reads this endpoint from the environment, and a user may choose one without encryption.
    assert _plain(store.client_options["allow_http"]) is True
    assert _plain(store.config["skip_signature"]) is False
    assert store.credential_provider()["access_key_id"] == "planted-access_key_id"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://store.example.com",
        "ftp://store",
        "https://user@store",
        "https://127.0.0.1",
        "https://inward.example.com",
    ],
)
def test_endpoint_from_a_server_must_be_allowed(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []

    def leads_here(host: str) -> bool:
        resolved.append(host)
        return host.startswith("inward.")

    monkeypatch.setattr(stores, "leads_here", leads_here)
    with pytest.raises(ProtocolError, match="endpoint of the store that is not allowed"):
        opened(S3, AWS, stated={"endpoint": endpoint})
    # An endpoint that is refused by its name is not resolved.
    assert resolved == (["inward.example.com"] if "inward" in endpoint else [])
    if "inward" in endpoint:
        # A server on this machine may name a local endpoint.
        assert opened(S3, AWS, stated={"endpoint": endpoint}, allowed=Allowed(loopback=True))
    if endpoint.startswith("http:"):
        assert opened(S3, AWS, stated={"endpoint": endpoint}, allowed=Allowed(http=True))


@pytest.mark.parametrize(
    ("location", "cloud", "options", "stated", "error", "message"),
    [
        (S3, AWS, {"regoin": "x"}, {}, UsageError, "'regoin'"),
        (GCS, GOOGLE, {"bogus": "x"}, {}, UsageError, "'bogus'"),
        (S3, R2, {}, {}, UsageError, "'https://<account id>.r2.cloudflarestorage.com'"),
        (S3, AWS, {}, {"access_point": "arn:aws:s3-outposts:x"}, UnsupportedFeatureError, "access point"),
    ],
)
def test_error_names_an_invalid_setting(
    location: str, cloud: str, options: dict[str, str], stated: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(location, cloud, options, stated=stated)


@pytest.mark.parametrize(
    ("location", "cloud"),
    [
        ("s3://127.0.0.1\\x/t", AWS),
        ("s3://127.0.0.1:80@x/t", AWS),
        ("s3:///t", AWS),
        ("abfss://box@localhost\\x.dfs.core.windows.net/t", AZURE),
        ("abfss://box@localhost:80/t", AZURE),
    ],
)
def test_bucket_or_account_name_cannot_change_the_host(
    location: str, cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "bucket_region", lambda bucket, _: pytest.fail(f"{bucket} was asked"))
    with pytest.raises(ProtocolError, match="invalid bucket or account name"):
        opened(location, cloud)


@pytest.mark.parametrize(
    ("location", "cloud"), [("abfss://box@account.dfs.evil.example/t", AZURE), ("r2://bucket@evil.example/t", R2)]
)
def test_location_uses_only_hosts_of_its_cloud(location: str, cloud: str) -> None:
    if cloud == R2:
        with pytest.raises(UsageError, match="does not include its endpoint"):
            opened(location, cloud)
    else:
        assert "evil" not in str(opened(location, cloud).config)


def test_certificate_and_proxy_options_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {name: Secret("planted") for name in SECRETS[AWS]}
    options = ReadOptions(proxy="http://proxy.example.com:3128", ca_bundle=certifi.where())
    settings = StoreSettings(Location.parse(S3), options, ONLY_HTTPS)
    store = open_store(settings, Renewal(never, StorageCredentials(cloud=AWS, secrets=secrets)))

    assert store.client_options["proxy_url"] == "http://proxy.example.com:3128"
    assert b"BEGIN CERTIFICATE" in bytes(store.client_options["root_certificate"])


def test_certificate_directory_is_not_used_as_a_ca_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    assert "root_certificate" not in opened(S3, AWS).client_options


@pytest.mark.parametrize(
    ("message", "region"), [({"x-amz-bucket-region": "eu-north-1"}, "eu-north-1"), (None, "us-east-1")]
)
def test_region_of_a_bucket_is_requested_from_s3(
    message: dict[str, str] | None, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for name in ("https_proxy", "HTTPS_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)

    def head(url: str, *, timeout: float, allow_redirects: bool, **network: Any) -> requests.Response:
        assert url == "https://bucket.s3.amazonaws.com"
        assert timeout > 0
        assert not allow_redirects
        assert network == {"verify": certifi.where(), "proxies": {"https": "http://proxy.example.com:3128"}}
        if message is None:
            raise requests.ConnectionError
        response = requests.Response()
        response.headers.update(message)
        return response

    monkeypatch.setattr(stores.requests, "head", head)

    options = ReadOptions(proxy="http://proxy.example.com:3128", ca_bundle=certifi.where())
    assert stores.bucket_region("bucket", options) == region


def test_region_is_requested_only_if_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def region(bucket: str, options: ReadOptions) -> str:
        asked.append(bucket)
        return "eu-west-1"

    monkeypatch.setattr(stores, "bucket_region", region)
    proxied: list[str] = []
    client = stores._client

    def of(options: ReadOptions, address: str) -> dict[str, Any]:
        proxied.append(address)
        return client(options, address)

    monkeypatch.setattr(stores, "_client", of)
    for environment, address, count in (
        ({}, "https://bucket.s3.eu-west-1.amazonaws.com", 1),
        ({"AWS_REGION": "r-1", "AWS_DEFAULT_REGION": "r-2"}, "https://bucket.s3.r-1.amazonaws.com", 0),
        ({"AWS_DEFAULT_REGION": "r-2"}, "https://bucket.s3.r-2.amazonaws.com", 0),
        ({"AWS_ENDPOINT_URL": "https://own"}, "https://own", 0),
        ({"AWS_ENDPOINT_URL": "https://own", "AWS_ENDPOINT_URL_S3": "https://s3"}, "https://s3", 0),
    ):
        asked.clear()
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
                patch.delenv(name, raising=False)
            for name, value in environment.items():
                patch.setenv(name, value)
            opened(S3, AWS)
        assert proxied.pop() == address
        assert asked == ["bucket"] * count


def test_region_request_uses_no_proxy_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []
    monkeypatch.undo()
    monkeypatch.setattr(
        stores.requests, "head", lambda *_, **how: (passed.append(how["proxies"]), requests.Response())[1]
    )
    monkeypatch.setattr(stores.Network, "proxy_for", lambda *_: None)
    assert stores.bucket_region("bucket", ReadOptions()) == "us-east-1"
    assert passed == [{}]
