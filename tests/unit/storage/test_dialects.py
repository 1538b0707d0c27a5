"""The dialects of stores: URLs, what is sent, checksums, and the settings that select them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import pickle
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import aiohttp
import botocore.session
import pytest
import yarl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.place import Refused
from delta_sharing_client.http.network import ONLY_HTTPS, Allowed
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, R2, StorageCredentials
from delta_sharing_client.storage.dialects import (
    S3,
    Azure,
    Dialect,
    Google,
    aws_domain,
    dialect_of,
    reach_of,
    requestable,
)
from delta_sharing_client.storage.locations import Location, StoreSettings
from tests.effort import examples
from tests.quota import meets, met

SECRETS = {
    AWS: ("access_key_id", "secret_access_key", "session_token"),
    R2: ("access_key_id", "secret_access_key", "session_token"),
    AZURE: ("sas_token",),
    GOOGLE: ("token",),
}
VOLUME, ADLS, GCS = "s3://bucket/a/t", "abfss://box@account.dfs.core.windows.net/t", "gs://bucket/t"
CLOUD = {VOLUME: AWS, ADLS: AZURE, GCS: GOOGLE}
DIALECTS: dict[str, Dialect] = {
    AWS: S3("bucket", "eu-west-1"),
    AZURE: Azure("https://account.blob.core.windows.net/box"),
    GOOGLE: Google("https://storage.googleapis.com/bucket"),
}
CONTENT = b"content"
MD5 = hashlib.md5(CONTENT).digest()
MD5_TEXT = base64.b64encode(MD5).decode()
OTHER_TEXT = base64.b64encode(hashlib.md5(b"other").digest()).decode()


def credentials(cloud: str, settings: Mapping[str, str] | None = None, **secrets: str) -> StorageCredentials:
    values = {name: f"planted-{name}" for name in SECRETS[cloud]} | secrets
    return StorageCredentials(
        cloud=cloud, secrets={name: Secret(value) for name, value in values.items()}, settings=settings or {}
    )


def of(location: str, options: Mapping[str, str] | None = None, allowed: Allowed = ONLY_HTTPS) -> StoreSettings:
    return StoreSettings(Location.parse(location), ReadOptions(storage_options=options or {}), allowed)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


# === Objects ===

KEY = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
        st.sampled_from(
            ["", ".", "..", "...", ".a", "a b", "+", "%", "%2F", "?", "#", "é", "\x00", "\n", "\\", "~'()*!$&,;=:@"]
        ),
    ),
    min_size=1,
    max_size=4,
).map("/".join)


@meets(sent=20, refused=2, slashes=10)
@given(KEY)
@example("")
@settings(max_examples=examples(400), deadline=None)
def test_path_of_a_url_is_exactly_the_key(key: str) -> None:
    met("sent" if requestable(key) else "refused")
    met("slashes", "//" in key)
    for dialect in DIALECTS.values():
        if not requestable(key):
            with pytest.raises(Refused, match="its name cannot be requested"):
                dialect.url(key)
            continue
        url = dialect.url(key)
        parts = urlsplit(url)
        assert url.isascii()
        assert (parts.query, parts.fragment) == ("", "")
        assert unquote(parts.path, errors="strict").split("/", 2)[2] == key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a", True), ("a//b", True), ("/a", True), ("a/", True), ("a\nb\x00", True), ("...", True), ("a/.b/..c", True),
        ("é😀", True), ("%2E%2E", True), ("", False), (".", False), ("..", False), ("a/./b", False), ("a/..", False),
        ("../a", False), ("a\udcff", False),
    ],
)  # fmt: skip
def test_keys_that_no_request_can_name(key: str, expected: bool) -> None:
    assert requestable(key) is expected


def test_requests_arrive_with_the_path_that_was_signed() -> None:
    """Look at the wire: a client that changed the path would ask for another object, or break the signature."""
    keys = [
        "a",
        "v//a//b",
        "/a",
        "a b+c",
        "é😀",
        "%2F%",
        "?a=b#c",
        "a\nb\x00\x7f",
        "..a/b..",
        "~'()*!$&,;=:@[]|^`{}",
        "a\\b",
        "a/",
    ]
    lines: list[bytes] = []
    hosts: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        while line := (await reader.readline()).strip():
            if line.lower().startswith(b"host:"):
                hosts.append(line[5:].strip())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def send() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, aiohttp.ClientSession() as session:
            host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for dialect in (S3("bucket", "r", f"http://{host}"), Google(f"http://{host}/bucket")):
                urls = [*map(dialect.url, keys), dialect.listing("a b/", "m+/=", recursive=False)]
                for url in urls:
                    async with session.get(yarl.URL(url, encoded=True)):
                        pass
                    assert lines[-1].split(b" ")[1].decode() == url.partition(host)[2]
                    assert hosts[-1].decode() == host

    asyncio.run(send())
    assert len(lines) == 2 * (len(keys) + 1)


# === Listings ===


@pytest.mark.parametrize("cloud", DIALECTS)
@pytest.mark.parametrize("mark", [None, "1!a+b/=&%"])
@pytest.mark.parametrize("recursive", [True, False])
def test_listing_has_the_parameters_of_the_api(cloud: str, mark: str | None, recursive: bool) -> None:
    url = DIALECTS[cloud].listing("v/a b+é&/", mark, recursive=recursive)
    query = {name: values[0] for name, values in parse_qs(urlsplit(url).query, strict_parsing=True).items()}

    assert query.pop("prefix") == "v/a b+é&/"
    assert query.pop("delimiter", None) == (None if recursive else "/")
    assert query.pop("marker" if cloud == AZURE else "continuation-token", None) == mark
    assert query == (
        {"restype": "container", "comp": "list", "include": "metadata", "maxresults": "1000"}
        if cloud == AZURE
        else {"list-type": "2", "encoding-type": "url"}
    )
    assert "+" not in url  # a server may or may not read it as a space


def test_listing_of_onelake_asks_for_no_metadata() -> None:
    assert "include" not in Azure("https://onelake.blob.fabric.microsoft.com/ws").listing("", None, recursive=True)


def test_bucket_in_the_host_is_listed_at_the_root() -> None:
    dialect = S3("bucket", "r", "https://bucket.s.x", is_in_host=True)

    assert dialect.listing("", None, recursive=True).startswith("https://bucket.s.x/?list-type=2&")
    assert dialect.url("a/b") == "https://bucket.s.x/a/b"


# === What is sent ===


def test_s3_signs_the_headers_that_it_sends() -> None:
    url, headers = S3("bucket", "eu-west-1", pays=True).request("https://s/a", credentials(AWS))

    assert url == "https://s/a"
    assert (headers["x-amz-security-token"], headers["x-amz-request-payer"]) == ("planted-session_token", "requester")
    assert (
        "/eu-west-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-request-payer;"
        in (headers["Authorization"])
    )


@pytest.mark.parametrize(
    ("token", "sent"),
    [
        ("sv=1&sig=a%2Bb%3D", "sv=1&sig=a%2Bb%3D"),
        ("?sv=1&sig=a", "sv=1&sig=a"),
        ("se=2026-01-01T00:00:00Z&sig=a+b/c=", "se=2026-01-01T00:00:00Z&sig=a%2Bb/c="),
        ("sig=a#b", "sig=a%23b"),
    ],
)
def test_azure_adds_the_signature_to_the_query(token: str, sent: str) -> None:
    dialect, given = DIALECTS[AZURE], credentials(AZURE, sas_token=token)

    assert dialect.request("https://h/c/a", given) == (f"https://h/c/a?{sent}", {"x-ms-version": "2023-11-03"})
    assert dialect.request("https://h/c?a=b", given)[0] == f"https://h/c?a=b&{sent}"


def test_google_sends_the_token() -> None:
    url, headers = DIALECTS[GOOGLE].request("https://h/b/a", credentials(GOOGLE))

    assert (url, headers) == ("https://h/b/a", {"Authorization": "Bearer planted-token"})


@pytest.mark.parametrize(
    "text", ["planted\n", "planted\r\nX: y", " planted", "plan\x00ted", "plantedé", "planted\t", ""]
)
@pytest.mark.parametrize(("cloud", "name"), [(cloud, name) for cloud in DIALECTS for name in SECRETS[cloud]])
def test_credentials_that_no_request_can_contain(cloud: str, name: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=f"'{name}' has a character") as caught:
        DIALECTS[cloud].request("https://h/a", credentials(cloud, **{name: text}))
    assert "plan" not in str(caught.value)


@pytest.mark.parametrize("cloud", DIALECTS)
def test_dialect_is_a_value_that_can_be_pickled(cloud: str) -> None:
    dialect = DIALECTS[cloud]
    copy = pickle.loads(pickle.dumps(dialect))

    assert copy == dialect
    assert hash(copy) == hash(dialect)
    assert copy.url("a") == dialect.url("a")


# === Checksums ===


@pytest.mark.parametrize(
    ("cloud", "headers", "digest"),
    [
        (AWS, [("ETag", f'"{MD5.hex()}"')], MD5),
        (AWS, [("etag", f'"{MD5.hex().upper()}"'), ("x-amz-server-side-encryption", "AES256")], MD5),
        (AWS, [("ETag", f'"{MD5.hex()}-2"')], None),
        (AWS, [("ETag", f'W/"{MD5.hex()}"')], None),
        (AWS, [("ETag", MD5.hex())], None),
        (AWS, [], None),
        (AWS, [("ETag", f'"{MD5.hex()}"'), ("X-Amz-Server-Side-Encryption", "aws:kms")], None),
        (AWS, [("ETag", f'"{MD5.hex()}"'), ("x-amz-server-side-encryption", "aws:kms:dsse")], None),
        (AWS, [("ETag", f'"{MD5.hex()}"'), ("x-amz-server-side-encryption-customer-algorithm", "AES256")], None),
        (AZURE, [("Content-MD5", MD5_TEXT)], MD5),
        (AZURE, [("Content-MD5", OTHER_TEXT), ("Content-Range", "bytes 0-1/9")], None),
        (AZURE, [("content-md5", OTHER_TEXT), ("content-range", "bytes 0-1/9"), ("x-ms-blob-content-md5", MD5_TEXT)],
         MD5),
        (AZURE, [("ETag", f'"{MD5.hex()}"')], None),
        (AZURE, [("Content-MD5", "no Base64")], None),
        (AZURE, [("Content-MD5", "AAAA")], None),
        (GOOGLE, [("x-goog-hash", "crc32c=n03x6A=="), ("x-goog-hash", f"md5={MD5_TEXT}")], MD5),
        (GOOGLE, [("X-Goog-Hash", f"crc32c=n03x6A==, md5={MD5_TEXT}")], MD5),
        (GOOGLE, [("x-goog-hash", f"md5={MD5_TEXT}"), ("x-goog-stored-content-encoding", "identity")], MD5),
        (GOOGLE, [("x-goog-hash", f"md5={MD5_TEXT}"), ("x-goog-stored-content-encoding", "gzip")], None),
        (GOOGLE, [("x-goog-hash", "crc32c=n03x6A==")], None),
        (GOOGLE, [("ETag", f'"{MD5.hex()}"')], None),
    ],
)  # fmt: skip
def test_checksum_that_a_response_states(cloud: str, headers: list[tuple[str, str]], digest: bytes | None) -> None:
    assert DIALECTS[cloud].checksum(headers) == (None if digest is None else ("md5", digest))


# === Settings ===


@pytest.mark.parametrize(
    ("location", "cloud", "options", "stated", "base", "region"),
    [
        (VOLUME, AWS, {}, {}, "https://s3.us-east-1.amazonaws.com/bucket", "us-east-1"),
        (VOLUME, AWS, {"region": "mine"}, {"region": "theirs"}, "https://s3.mine.amazonaws.com/bucket", "mine"),
        (VOLUME, AWS, {}, {"region": "theirs", "endpoint": "https://s"}, "https://s/bucket", "theirs"),
        (VOLUME, AWS, {"region": "cn-north-1"}, {}, "https://s3.cn-north-1.amazonaws.com.cn/bucket", "cn-north-1"),
        (VOLUME, AWS, {"virtual_hosted_style_request": "true", "region": "r"}, {},
         "https://bucket.s3.r.amazonaws.com", "r"),
        ("s3://my.bucket/t", AWS, {"virtual_hosted_style_request": "true", "region": "r"}, {},
         "https://s3.r.amazonaws.com/my.bucket", "r"),
        (VOLUME, AWS, {"endpoint": "HTTPS://S.X:443/p/"}, {}, "https://s.x/p/bucket", "us-east-1"),
        (VOLUME, AWS, {"endpoint": "http://127.0.0.1:9000"}, {}, "http://127.0.0.1:9000/bucket", "us-east-1"),
        (VOLUME, AWS, {"endpoint": "http://[::1]:80"}, {}, "http://[::1]/bucket", "us-east-1"),
        ("r2://bucket@account.r2.cloudflarestorage.com/t", R2, {}, {},
         "https://account.r2.cloudflarestorage.com/bucket", "auto"),
        ("r2://bucket@account.eu.r2.cloudflarestorage.com/t", R2, {}, {},
         "https://account.eu.r2.cloudflarestorage.com/bucket", "auto"),
        (VOLUME, R2, {"endpoint": "https://account.r2.cloudflarestorage.com"}, {},
         "https://account.r2.cloudflarestorage.com/bucket", "auto"),
        (VOLUME, AWS, {}, {"access_point": "arn:aws:s3:eu-north-1:123:accesspoint/data"},
         "https://data-123.s3-accesspoint.eu-north-1.amazonaws.com", "eu-north-1"),
        (VOLUME, AWS, {}, {"access_point": "arn:aws-cn:s3:cn-north-1:123:accesspoint/data"},
         "https://data-123.s3-accesspoint.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        (VOLUME, AWS, {}, {"access_point": "data-abc-s3alias"},
         "https://s3.us-east-1.amazonaws.com/data-abc-s3alias", "us-east-1"),
        (VOLUME, AWS, {}, {"endpoint": "https://s.x", "virtual_hosted_style_request": "true"},
         "https://bucket.s.x", "us-east-1"),
        (VOLUME, AWS, {"endpoint": "https://bucket.s.x", "virtual_hosted_style_request": "true"}, {},
         "https://bucket.s.x", "us-east-1"),
        (ADLS, AZURE, {}, {}, "https://account.blob.core.windows.net/box", None),
        (ADLS, AZURE, {"endpoint": "http://127.0.0.1:10000/devstoreaccount1"}, {},
         "http://127.0.0.1:10000/devstoreaccount1/box", None),
        ("abfss://$web@account.dfs.core.windows.net/t", AZURE, {}, {},
         "https://account.blob.core.windows.net/$web", None),
        ("abfss://box@account.dfs.core.chinacloudapi.cn/t", AZURE, {}, {},
         "https://account.blob.core.chinacloudapi.cn/box", None),
        ("abfss://My space@onelake.dfs.fabric.microsoft.com/t", AZURE, {}, {},
         "https://onelake.blob.fabric.microsoft.com/My%20space", None),
        ("abfss://box@account.dfs.evil.example/t", AZURE, {}, {}, "https://account.blob.core.windows.net/box", None),
        (GCS, GOOGLE, {"region": "ignored"}, {}, "https://storage.googleapis.com/bucket", None),
        (GCS, GOOGLE, {"endpoint": "http://127.0.0.1:4443"}, {}, "http://127.0.0.1:4443/bucket", None),
    ],
)  # fmt: skip
def test_settings_select_the_url_of_the_bucket(
    location: str, cloud: str, options: dict[str, str], stated: dict[str, str], base: str, region: str | None
) -> None:
    result: Any = dialect_of(of(location, options), credentials(cloud, stated))

    assert (result.base, getattr(result, "region", None)) == (base, region)
    assert "planted" not in repr(result)


@pytest.mark.parametrize(
    ("environment", "base"),
    [
        ({"AWS_REGION": "r-1", "AWS_DEFAULT_REGION": "r-2"}, "https://s3.r-1.amazonaws.com/bucket"),
        ({"AWS_DEFAULT_REGION": "r-2"}, "https://s3.r-2.amazonaws.com/bucket"),
        ({"AWS_ENDPOINT_URL": "http://own"}, "http://own/bucket"),
        ({"AWS_ENDPOINT_URL": "https://own", "AWS_ENDPOINT_URL_S3": "https://s3"}, "https://s3/bucket"),
        ({"AWS_ACCESS_KEY_ID": "mine", "AWS_SKIP_SIGNATURE": "true"}, "https://s3.us-east-1.amazonaws.com/bucket"),
        ({"DELTA_SHARING_STORAGE_OPTIONS": '{"endpoint": "https://o"}', "AWS_ENDPOINT_URL": "https://own"},
         "https://o/bucket"),
    ],
)  # fmt: skip
def test_environment_of_aws_selects_endpoint_and_region(
    environment: dict[str, str], base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result: Any = dialect_of(of(VOLUME), credentials(AWS))

    assert result.base == base
    assert "planted-access_key_id" in result.request(result.url("a"), credentials(AWS))[1]["Authorization"]


@pytest.mark.parametrize(
    ("location", "cloud", "options", "stated", "error", "message"),
    [
        (VOLUME, AWS, {"regoin": "x", "region": "r"}, {}, UsageError, "'storage_options' 'regoin'; expected"),
        (GCS, GOOGLE, {"bogus": "x"}, {}, UsageError, "'bogus'"),
        (ADLS, AZURE, {"access_point": "x"}, {}, UsageError, "'access_point'"),
        (VOLUME, R2, {}, {}, UsageError, "'https://<account id>.r2.cloudflarestorage.com'"),
        ("r2://bucket@evil.example/t", R2, {}, {}, UsageError, "does not include its endpoint"),
        (VOLUME, AWS, {}, {"access_point": "arn:aws:s3-outposts:x"}, UnsupportedFeatureError, "access point"),
        ("s3://b--use1-az4--x-s3/t", AWS, {}, {}, UnsupportedFeatureError, "directory bucket"),
        (VOLUME, AWS, {"region": "evil.example/#"}, {}, UsageError, "region"),
        (VOLUME, AWS, {}, {"region": "evil.example/#"}, ProtocolError, "region"),
        (VOLUME, AWS, {"virtual_hosted_style_request": "perhaps"}, {}, UsageError, "'virtual_hosted_style_request'"),
        (VOLUME, AWS, {"endpoint": "ftp://s"}, {}, UsageError, "'endpoint', found scheme 'ftp'"),
        (VOLUME, AWS, {"endpoint": "https://s?a=b"}, {}, UsageError, "a query"),
        (VOLUME, AWS, {"endpoint": "https://user:planted@s"}, {}, UsageError, "a user name"),
        ("s3://127.0.0.1\\x/t", AWS, {}, {}, ProtocolError, "invalid bucket or account name"),
        ("s3://127.0.0.1:80@x/t", AWS, {}, {}, ProtocolError, "invalid bucket or account name"),
        ("s3:///t", AWS, {}, {}, ProtocolError, "invalid bucket or account name"),
        ("gs://../t", GOOGLE, {}, {}, ProtocolError, "invalid bucket or account name"),
        ("abfss://box@localhost\\x.dfs.core.windows.net/t", AZURE, {}, {}, ProtocolError, "invalid bucket or account"),
        ("abfss://..@account.dfs.core.windows.net/t", AZURE, {}, {}, ProtocolError, "invalid container name"),
        (GCS, AWS, {}, {}, ProtocolError, "found credentials of AWS"),
        (VOLUME, AZURE, {}, {}, ProtocolError, "found credentials of Azure"),
        (VOLUME, AWS, {}, {"endpoint": "http://store.example.com"}, ProtocolError, "not allowed"),
    ],
)  # fmt: skip
def test_error_names_an_invalid_setting(
    location: str, cloud: str, options: dict[str, str], stated: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        dialect_of(of(location, options), credentials(cloud, stated))
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("text", ["1", "true", "Yes", "on", "0", "false", "No", "off"])
def test_requester_pays_if_the_option_says_so(text: str) -> None:
    result: Any = dialect_of(of(VOLUME, {"request_payer": text}), credentials(AWS))

    assert result.pays is (text.lower() in ("1", "true", "yes", "on"))


# === Regions ===


def test_region_is_corrected_if_nobody_stated_it() -> None:
    assumed = dialect_of(of(VOLUME), credentials(AWS))
    result: Any = assumed.with_region("eu-north-1")

    assert (result.region, result.base) == ("eu-north-1", "https://s3.eu-north-1.amazonaws.com/bucket")
    assert result.with_region("eu-west-1") is result  # a store that names a third region would never end
    assert assumed.with_region("us-east-1") is assumed
    stated = dialect_of(of(VOLUME, {"region": "r-1"}), credentials(AWS))
    assert stated.with_region("eu-north-1") is stated


def test_region_of_another_store_changes_signatures_only() -> None:
    result: Any = dialect_of(of(VOLUME, {"endpoint": "https://s"}), credentials(AWS)).with_region("garage")

    assert (result.region, result.base) == ("garage", "https://s/bucket")


@pytest.mark.parametrize("region", ["", "evil.example/", "a#b", "a\n", "é", "a" * 64])
def test_region_that_the_store_names_cannot_change_the_host(region: str) -> None:
    with pytest.raises(ProtocolError, match="names a region that is not valid"):
        dialect_of(of(VOLUME), credentials(AWS)).with_region(region)


@pytest.mark.parametrize("cloud", [AZURE, GOOGLE])
def test_other_stores_have_no_region(cloud: str) -> None:
    assert DIALECTS[cloud].with_region("anything/") is DIALECTS[cloud]


def test_domains_of_aws_are_those_of_botocore() -> None:
    partitions = botocore.session.get_session().get_data("endpoints")["partitions"]
    domains = {region: one["dnsSuffix"] for one in partitions for region in one["regions"]}

    assert len(domains) > 30
    assert {region: aws_domain(region) for region in domains} == domains


# === Reach ===


@pytest.mark.parametrize(
    ("location", "options", "environment", "stated", "is_own"),
    [
        (VOLUME, {}, {}, {}, False),
        (VOLUME, {}, {}, {"endpoint": "https://s"}, False),
        (VOLUME, {"endpoint": "http://s"}, {}, {}, True),
        (VOLUME, {"endpoint": "http://s"}, {}, {"endpoint": "https://s"}, True),
        (VOLUME, {"endpoint": "https://s"}, {}, {"endpoint": "https://s"}, False),
        (VOLUME, {}, {"AWS_ENDPOINT_URL": "http://s"}, {}, True),
        (VOLUME, {}, {"AWS_ENDPOINT_URL": "http://s"}, {"endpoint": "https://s"}, False),
        (GCS, {}, {"AWS_ENDPOINT_URL": "http://s"}, {}, False),
        (ADLS, {"endpoint": "http://127.0.0.1:1/x"}, {}, {}, True),
    ],
)
def test_only_the_users_own_endpoint_may_be_anywhere(
    location: str,
    options: dict[str, str],
    environment: dict[str, str],
    stated: dict[str, str],
    is_own: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = reach_of(of(location, options), credentials(CLOUD[location], stated))

    assert result == (Allowed(http=True, loopback=True) if is_own else ONLY_HTTPS)
