"""The recipient's own credentials, for tables whose catalog gives none, and who may receive them."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator

import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.own_credentials import own_credentials
from tests.iceberg.server import IcebergServer, iceberg_server
from tests.iceberg.warehouse import rows_of
from tests.iceberg_corpus import BUCKET, IcebergTable, upload
from tests.s3 import REGION, Bucket, Guard, s3_bucket

TABLE = IcebergTable("plain")
METADATA = dict(TABLE.metadata)
ROWS = rows_of(TABLE.rows())
SECRETS = ("planted-secret", "planted-token", "planted-sas")
KEYS = {"access_key_id": "mine", "secret_access_key": "planted-secret", "session_token": "planted-token"}
VARIABLES = {f"AWS_{name.upper()}": value for name, value in KEYS.items()}
AZURE = "abfss://files@mine.dfs.core.windows.net"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket(BUCKET) as bucket:
        upload([TABLE], bucket)
        yield bucket


@pytest.fixture
def guard(bucket: Bucket) -> Iterator[Guard]:
    guard = Guard(bucket)
    guard.keys = {"mine": ["lake/plain/"]}
    yield guard
    guard.close()


@pytest.fixture
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


@pytest.fixture(autouse=True)
def without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "DELTA_SHARING_STORAGE")):
            monkeypatch.delenv(name)


def _store(guard: Guard) -> dict[str, str]:
    return {"endpoint": guard.endpoint, "region": REGION}


def _read(server: IcebergServer, **storage_options: str) -> list[str]:
    return rows_of(server.table(storage_options=storage_options).to_arrow())


@pytest.mark.parametrize("config", [{}, {"client.region": REGION}, {"s3.endpoint": "https://elsewhere.example"}])
def test_keys_in_the_options_read_a_table_without_credentials(
    guard: Guard, server: IcebergServer, config: dict[str, str]
) -> None:
    server.share("t", METADATA, config=config)

    assert _read(server, **KEYS, **_store(guard)) == ROWS
    assert {key for key, _ in guard.requests} == {"mine"}


def test_keys_in_the_environment_read_a_table(
    guard: Guard, server: IcebergServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.share("t", METADATA)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", guard.endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)

    assert _read(server) == ROWS
    # The keys of two sources are never combined.
    with pytest.raises(
        UsageError, match="must have 'access_key_id' and 'secret_access_key', found only 'access_key_id'"
    ):
        _read(server, access_key_id="other")


def test_options_of_the_environment_may_have_the_keys(
    guard: Guard, server: IcebergServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.share("t", METADATA)
    monkeypatch.setenv("DELTA_SHARING_STORAGE_OPTIONS", json.dumps({**KEYS, **_store(guard)}))

    assert _read(server) == ROWS


def test_credentials_of_the_catalog_take_precedence(guard: Guard, server: IcebergServer) -> None:
    guard.keys = {"vended": ["lake/plain/"]}
    config = {"s3.access-key-id": "vended", "s3.secret-access-key": "x", "client.region": REGION}
    server.share("t", METADATA, config=config)

    assert _read(server, **KEYS, **_store(guard)) == ROWS
    assert {key for key, _ in guard.requests} == {"vended"}


def test_parts_in_another_process_use_the_options(guard: Guard, server: IcebergServer) -> None:
    server.share("t", METADATA)
    table = server.table(storage_options={**KEYS, **_store(guard)})
    parts = [pickle.dumps(part) for part in table.scan().partitions(2)]

    assert sum(batch.num_rows for part in parts for batch in pickle.loads(part).read()) == len(ROWS)


# --- who receives them ---


def test_catalog_cannot_name_the_host_that_receives_the_keys(guard: Guard, server: IcebergServer) -> None:
    # The guard stands for a host of an attacker: nothing may be sent to it.
    for config in ({"s3.endpoint": guard.endpoint}, {"s3.endpoint": guard.endpoint, "s3.path-style-access": "true"}):
        server.share("t", METADATA, config=config)
        with pytest.raises(UsageError, match="sent only to an endpoint that you set") as caught:
            _read(server, **KEYS)
        assert not [secret for secret in SECRETS if secret in str(caught.value)]
    assert guard.requests == []


@pytest.mark.parametrize("region", ["x.evil.example/", "evil.example#", "a@evil"])
def test_region_cannot_change_the_host(server: IcebergServer, region: str) -> None:
    server.share("t", METADATA, config={"client.region": region})

    with pytest.raises(ProtocolError, match="region of the store has characters"):
        _read(server, **KEYS)


def _own(location: str, config: dict[str, str] | None = None, **options: str) -> dict[str, str] | None:
    found = own_credentials(location, config or {}, ReadOptions(storage_options=options))
    assert not any(secret in repr(found) for secret in SECRETS)
    return None if found is None else {name: secret.reveal() for name, secret in found.secrets.items()}


@pytest.mark.parametrize("secret", [{"sas_token": "planted-sas"}, {"token": "planted-token"}])
def test_azure_credentials_are_for_a_named_account(secret: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert _own(AZURE, account_name="mine", **secret) == secret
    assert _own(AZURE, endpoint="http://127.0.0.1:10000/mine", **secret) == secret
    for more in ({}, {"account_name": "other"}):
        with pytest.raises(UsageError, match="set 'account_name'"):
            _own(AZURE, **more, **secret)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "MINE")
    assert _own(AZURE, **secret) == secret
    with pytest.raises(UsageError, match="set 'account_name'"):
        _own("abfss://files@evil.dfs.core.windows.net", **secret)


def test_azure_credentials_are_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "planted-sas")
    assert _own(AZURE, account_name="mine") == {"sas_token": "planted-sas"}
    assert _own(AZURE, account_name="mine", token="planted-token") == {"token": "planted-token"}
    with pytest.raises(UsageError, match="either 'sas_token' or 'token'"):
        _own(AZURE, account_name="mine", token="planted-token", sas_token="planted-sas")


def test_google_token_is_for_googles_host() -> None:
    assert _own("gs://files", token="planted-token") == {"token": "planted-token"}
    with pytest.raises(UsageError, match="sent only to an endpoint that you set"):
        _own("gs://files", {"gcs.service.host": "https://evil.example"}, token="planted-token")
    assert _own("gs://files", {"gcs.service.host": "https://x"}, token="t", endpoint="https://own") == {"token": "t"}


def test_r2_needs_an_endpoint() -> None:
    with pytest.raises(UsageError, match="set 'endpoint'"):
        _own("r2://files@account.r2.cloudflarestorage.com", **KEYS)


@pytest.mark.parametrize("location", ["s3://b", AZURE, "gs://b"])
def test_no_credentials_of_ones_own_is_no_error(location: str) -> None:
    assert _own(location) is None


@pytest.mark.parametrize(
    ("location", "variable"),
    [
        ("s3://b", "AWS_PROFILE"),
        ("s3://b", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        (AZURE, "AZURE_STORAGE_ACCOUNT_KEY"),
        ("gs://b", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_other_kinds_are_refused_by_name(location: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "planted-secret")
    with pytest.raises(UnsupportedFeatureError, match=f"'{variable}'") as caught:
        _own(location)
    assert "planted-secret" not in str(caught.value)


@pytest.mark.parametrize("option", ["role_arn", "account_key", "service_account"])
def test_unknown_options_are_refused_by_name(server: IcebergServer, option: str) -> None:
    server.share("t", METADATA)
    with pytest.raises(UsageError, match=option):
        _read(server, **KEYS, **{option: "x"})


def test_secret_with_a_line_break_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError, match="'session_token' has a character") as caught:
        _own("s3://b", **{**KEYS, "session_token": "planted-token\r\nx"})
    assert "planted-token" not in str(caught.value)


def test_error_without_credentials_names_the_options(server: IcebergServer) -> None:
    server.share("t", METADATA)
    with pytest.raises(ds.ProtocolError, match=r"found none.*'storage_options'"):
        _read(server)
