"""Connect to the stores that ``scripts/stores`` and ``scripts/s3`` start, and create credentials for them."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import hmac
import os
import urllib.parse
from collections.abc import Callable, Mapping

import boto3
import pytest
import requests

from delta_sharing_client.redact import Secret
from mock_server.s3 import S3Settings

AZURITE, GOOGLE, VERSITY = "DELTA_SHARING_AZURITE", "DELTA_SHARING_FAKE_GCS", "DELTA_SHARING_VERSITYGW"
# Azurite has a fixed account, which its documentation publishes.
ACCOUNT = "devstoreaccount1"
KEY = base64.b64decode("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==")
SAS_VERSION = "2020-08-04"
BUCKET = "golden"
# The account with which scripts/s3 starts the server.
S3_KEY, S3_SECRET = "planted-key", "planted-secret"

Put = Callable[[str, bytes], None]
Vendor = Callable[[str, float], Mapping[str, object]]


def signature(permissions: str, seconds: float) -> str:
    """Return a shared access signature for the account, like those that a provider's server creates for Azure."""
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    until = end.strftime("%Y-%m-%dT%H:%M:%SZ")
    lines = [ACCOUNT, permissions, "b", "sco", "", until, "", "https,http", SAS_VERSION, ""]
    digest = hmac.new(KEY, "\n".join(lines).encode(), hashlib.sha256).digest()
    fields = {"sv": SAS_VERSION, "ss": "b", "srt": "sco", "sp": permissions, "se": until, "spr": "https,http"}
    return urllib.parse.urlencode({**fields, "sig": base64.b64encode(digest).decode()})


@dataclasses.dataclass(frozen=True)
class Store:
    """A store: its URL prefix, and functions to upload files, to create credentials and to connect.

    ``ended`` creates expired credentials; ``None`` if the store accepts any.
    """

    root: str
    put: Put
    vendors: Mapping[str, Vendor]
    storage_options: Mapping[str, object]
    ended: Mapping[str, Vendor] | None = None
    s3: S3Settings = dataclasses.field(default_factory=S3Settings)


def azurite(endpoint: str) -> Store:
    base = f"{endpoint}/{ACCOUNT}"
    answer = requests.put(f"{base}/{BUCKET}?restype=container&{signature('rwlc', 600)}", timeout=30)
    assert answer.status_code in (201, 409), answer.text

    def put(key: str, data: bytes) -> None:
        url = f"{base}/{BUCKET}/{urllib.parse.quote(key)}?{signature('rwl', 600)}"
        requests.put(url, data, headers={"x-ms-blob-type": "BlockBlob"}, timeout=30).raise_for_status()

    return Store(
        f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net",
        put,
        {"abfss": lambda _, seconds: {"azureUserDelegationSas": {"sasToken": signature("rl", seconds)}}},
        {"endpoint": base},
        ended={"abfss": lambda *_: {"azureUserDelegationSas": {"sasToken": signature("rl", -60)}}},
    )


def fake_gcs(endpoint: str) -> Store:
    answer = requests.post(f"{endpoint}/storage/v1/b", json={"name": BUCKET}, timeout=30)
    assert answer.status_code in (200, 409), answer.text

    def put(key: str, data: bytes) -> None:
        address = f"{endpoint}/upload/storage/v1/b/{BUCKET}/o"
        requests.post(address, params={"uploadType": "media", "name": key}, data=data, timeout=30).raise_for_status()

    token = {"gcpOauthToken": {"oauthToken": "planted-token"}}
    return Store(f"gs://{BUCKET}", put, {"gs": lambda _, seconds: token}, {"endpoint": endpoint})


def versitygw(endpoint: str) -> Store:
    """Connect to an S3 server without a token service; its credentials are the account's keys, without a session
    token."""
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=S3_KEY,
        aws_secret_access_key=S3_SECRET,
    )
    if BUCKET not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=BUCKET)
    keys = {"accessKeyId": S3_KEY, "secretAccessKey": S3_SECRET, "sessionToken": ""}
    return Store(
        f"s3://{BUCKET}",
        lambda key, data: client.put_object(Bucket=BUCKET, Key=key, Body=data) and None,
        {"s3": lambda *_: {"awsTempCredentials": keys}},
        {"endpoint": endpoint, "region": "us-east-1"},
        ended={"s3": lambda *_: {"awsTempCredentials": {**keys, "sessionToken": "ended"}}},
        s3=S3Settings(endpoint=endpoint, region="us-east-1", access_key_id=S3_KEY, secret_access_key=Secret(S3_SECRET)),
    )


STORES = {"azure": (AZURITE, azurite), "google": (GOOGLE, fake_gcs), "s3": (VERSITY, versitygw)}


@pytest.fixture(scope="module", params=list(STORES))
def store(request: pytest.FixtureRequest) -> Store:
    variable, make = STORES[request.param]
    endpoint = os.environ.get(variable)
    if not endpoint:
        pytest.skip(
            f"{variable} is not set; scripts/stores starts the emulators of Azure and Google, scripts/s3 a server of S3"
        )
    return make(endpoint)
