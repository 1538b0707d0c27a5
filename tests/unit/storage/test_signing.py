"""AWS Signature Version 4, compared with the examples of its specification and with botocore."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from unittest import mock
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.redact import Secret
from delta_sharing_client.storage.credentials import AWS, StorageCredentials
from delta_sharing_client.storage.signing import sign_s3
from tests.effort import examples
from tests.quota import meets, met

# The account, bucket and time of the examples in S3's API reference ("Signature Calculations for the Authorization
# Header: Transferring Payload in a Single Chunk").
# In two parts, so that no search for leaked keys finds it.
EXAMPLE_ID, EXAMPLE_KEY = "AKIA" + "IOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EXAMPLE_HOST = "https://examplebucket.s3.amazonaws.com"
EXAMPLE_TIME = datetime.datetime(2013, 5, 24, tzinfo=datetime.timezone.utc)
NOW = datetime.datetime(2026, 11, 28, 13, 1, 2, 345678, tzinfo=datetime.timezone.utc)


def keys(access_key_id: str, secret_access_key: str, session_token: str = "") -> StorageCredentials:
    given = {"access_key_id": access_key_id, "secret_access_key": secret_access_key, "session_token": session_token}
    return StorageCredentials(cloud=AWS, secrets={name: Secret(value) for name, value in given.items() if value})


def of_botocore(
    url: str, credentials: StorageCredentials, region: str, headers: Mapping[str, str] | None = None
) -> dict[str, str]:
    request = AWSRequest("GET", url, headers=dict(headers or {}))
    own = Credentials(*(credentials.reveal(name) for name in ("access_key_id", "secret_access_key", "session_token")))
    with mock.patch("botocore.auth.get_current_datetime", return_value=NOW.replace(tzinfo=None)):
        S3SigV4Auth(own, "s3", region).add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@pytest.mark.parametrize(
    ("path", "headers", "signature"),
    [
        ("/test.txt", {"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/?lifecycle", {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
        ("/?prefix=J&max-keys=2", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_signatures_of_the_specification(path: str, headers: dict[str, str], signature: str) -> None:
    sent = sign_s3(f"{EXAMPLE_HOST}{path}", keys(EXAMPLE_ID, EXAMPLE_KEY), "us-east-1", EXAMPLE_TIME, headers)

    names = ";".join(sorted(["host", "x-amz-content-sha256", "x-amz-date", *map(str.lower, headers)]))
    assert sent == {
        **headers,
        "x-amz-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-amz-date": "20130524T000000Z",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={EXAMPLE_ID}/20130524/us-east-1/s3/aws4_request, "
        f"SignedHeaders={names}, Signature={signature}",
    }


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
SEGMENT = st.one_of(
    TEXT, st.sampled_from([".", "..", "", " ", "+", "%", "a%2Fb", "?", "#", "é", "😀", "a=b&c", "\n", "~", ":@"])
)
PATH = st.lists(SEGMENT, max_size=5).map("/".join)
QUERY = st.lists(st.tuples(st.one_of(TEXT, st.sampled_from(["a", "a-b", "a.b", "prefix"])), TEXT), max_size=4)
VISIBLE = st.text(st.characters(codec="ascii", exclude_categories=("Cc", "Zs")), min_size=1, max_size=40)


@meets(token=20, payer=20, dots=10, query=20, slashes=5)
@given(
    path=PATH,
    query=QUERY,
    host=st.sampled_from(["bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:9000", "[::1]:80", "s3.example.com:443"]),
    scheme=st.sampled_from(["https", "http"]),
    secrets=st.tuples(VISIBLE, VISIBLE, st.one_of(st.just(""), VISIBLE)),
    region=st.sampled_from(["us-east-1", "auto", "cn-north-1", "RegionOne"]),
    pays=st.booleans(),
)
@settings(max_examples=examples(600), deadline=None)
def test_signatures_equal_those_of_botocore(
    path: str,
    query: list[tuple[str, str]],
    host: str,
    scheme: str,
    secrets: tuple[str, str, str],
    region: str,
    pays: bool,
) -> None:
    encoded = "&".join(f"{quote(name, safe='-._~')}={quote(value, safe='-._~')}" for name, value in query)
    url = f"{scheme}://{host}/{quote(path, safe='/-._~')}" + (f"?{encoded}" if encoded else "")
    headers = {"x-amz-request-payer": "requester"} if pays else {}
    credentials = keys(*secrets)

    assert lowered(sign_s3(url, credentials, region, NOW, headers)) == of_botocore(url, credentials, region, headers)
    met("token", secrets[2])
    met("payer", pays)
    met("dots", {".", ".."} & set(path.split("/")))
    met("query", len(query) > 1)
    met("slashes", "//" in path)


def test_time_of_another_zone_is_converted_to_utc() -> None:
    there = NOW.astimezone(datetime.timezone(datetime.timedelta(hours=14)))
    url, credentials = f"{EXAMPLE_HOST}/a", keys("id", "key")

    assert sign_s3(url, credentials, "r", there) == sign_s3(url, credentials, "r", NOW)
    assert sign_s3(url, credentials, "r", there)["x-amz-date"] == "20261128T130102Z"


def test_default_port_is_not_part_of_the_signed_host() -> None:
    credentials = keys("id", "key")
    plain = sign_s3("https://s3.example.com/a", credentials, "r", NOW)

    assert sign_s3("https://s3.example.com:443/a", credentials, "r", NOW) == plain
    assert sign_s3("https://s3.example.com:80/a", credentials, "r", NOW) != plain
