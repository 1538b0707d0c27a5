"""Locations of files, the settings of their stores, and the obstore stores of users."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from delta_sharing_client.errors import ProtocolError, UsageError
from delta_sharing_client.http.network import ONLY_HTTPS, Allowed
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.asset_kinds import VOLUME, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, Renewal, StorageCredentials
from delta_sharing_client.storage.locations import Location, StoreSettings
from delta_sharing_client.storage.obstores import store_of
from delta_sharing_client.storage.store_place import StorePlace

SECRETS = {
    AWS: ("access_key_id", "secret_access_key", "session_token"),
    AZURE: ("sas_token",),
    GOOGLE: ("token",),
}
S3, ADLS, GCS = "s3://bucket/a/t", "abfss://box@account.dfs.core.windows.net/t", "gs://bucket/t"
CLOUD = {S3: AWS, ADLS: AZURE, GCS: GOOGLE}
ASSET = AssetRef(VOLUME, AssetName.parse("a.b.c"))


def never() -> StorageCredentials:
    raise AssertionError("The credentials are still valid.")


def credentials(cloud: str, stated: Mapping[str, str] | None = None) -> StorageCredentials:
    secrets = {name: Secret(f"planted-{name}") for name in SECRETS[cloud]}
    return StorageCredentials(cloud=cloud, secrets=secrets, settings=stated or {})


def settings(location: str, options: Mapping[str, str] | None = None, allowed: Allowed = ONLY_HTTPS) -> StoreSettings:
    return StoreSettings(Location.parse(location), ReadOptions(storage_options=options or {}), allowed)


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


def test_storage_options_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTA_SHARING_STORAGE_OPTIONS", '{"endpoint": "https://environment", "region": "r-1"}')

    result = settings(S3, {"region": "mine"}).of(credentials(AWS, {"endpoint": "https://server"}))

    assert result == {"endpoint": "https://environment", "region": "mine"}
    # One variable has the settings of all stores.
    assert settings(GCS).of(credentials(GOOGLE)) == {"endpoint": "https://environment"}
    monkeypatch.setenv("DELTA_SHARING_STORAGE_OPTIONS", "endpoint=planted")
    with pytest.raises(UsageError, match="DELTA_SHARING_STORAGE_OPTIONS") as caught:
        settings(S3).of(credentials(AWS))
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["http://store.example.com", "ftp://store", "https://user@store", "https://127.0.0.1"]
)
def test_endpoint_from_a_server_must_be_allowed(endpoint: str) -> None:
    given = credentials(AWS, {"endpoint": endpoint})
    with pytest.raises(ProtocolError, match="endpoint of the store that is not allowed"):
        settings(S3).of(given)
    if endpoint.startswith("http:"):
        assert settings(S3, allowed=Allowed(http=True)).of(given)["endpoint"] == endpoint


# --- obstore ---


@pytest.mark.parametrize("location", CLOUD)
@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:1/x"])
def test_location_selects_the_store_of_its_cloud(location: str, endpoint: str | None) -> None:
    options = {"region": "r-1"} | ({} if endpoint is None else {"endpoint": endpoint})
    renewal = Renewal(never, credentials(CLOUD[location]))
    store = store_of(StorePlace(settings(location, options), renewal, "volume a.b.c", None), ASSET)

    assert type(store).__name__ == {AWS: "S3Store", AZURE: "AzureStore", GOOGLE: "GCSStore"}[CLOUD[location]]
    assert (endpoint or "") in str(store.config)
    assert str(store.client_options["allow_http"]).lower() == str(endpoint is not None).lower()
    assert store.prefix == Location.parse(location).prefix
    assert "planted" not in repr(store)
    provided = pickle.loads(pickle.dumps(store)).credential_provider()
    assert provided.pop("expires_at") is None
    assert set(provided.values()) == {f"planted-{name}" for name in SECRETS[CLOUD[location]]}
