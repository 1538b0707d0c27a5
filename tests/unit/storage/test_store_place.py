"""Files in object stores: listings, ranges and versions, renewed credentials, regions, and refused names."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.place import Refused, Span
from delta_sharing_client.http.logins import BearerToken
from delta_sharing_client.http.network import ONLY_HTTPS
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetRef
from delta_sharing_client.protocol.messages import (
    AwsCredentials,
    AzureUserDelegationSas,
    GcpOauthToken,
    TemporaryCredentials,
)
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage import credentials
from delta_sharing_client.storage.dialects import S3
from delta_sharing_client.storage.listing_pages import s3_listing
from delta_sharing_client.storage.local import LocalPlace
from delta_sharing_client.storage.obstores import store_of
from delta_sharing_client.storage.opening import open_place, place_of
from delta_sharing_client.storage.store_place import StorePlace
from tests import junctions
from tests.effort import ALL
from tests.http_server import Exchange, HttpServer
from tests.places import get, pages, paths
from tests.s3 import Bucket, s3_bucket

AWS = AwsCredentials("planted-id", "planted-secret", "planted-session")
AZURE = AzureUserDelegationSas("?sv=2024&sig=planted-secret")
GCP = GcpOauthToken("planted-secret")
TABLE_NAME = AssetRef(TABLE, AssetName.parse("s.d.t"))


class Server(RestClient):
    """A sharing server that returns the given credentials and counts requests."""

    def __init__(self, **given: Any) -> None:
        super().__init__(Profile("https://h/p", BearerToken(Secret("planted")), 1))
        self.given = given
        self.asked: list[str | None] = []

    def credentials(self, asset: AssetRef, location: str | None = None) -> TemporaryCredentials:
        self.asked.append(location)
        return TemporaryCredentials(**self.given)


CLOUDS = {
    "s3://bucket/t": {"aws_temp_credentials": AWS},
    "abfss://box@account.dfs.core.windows.net/t": {"azure_user_delegation_sas": AZURE},
    "gs://bucket/t": {"gcp_oauth_token": GCP},
}


@pytest.mark.parametrize("location", CLOUDS)
def test_credentials_are_renewed_before_they_expire(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000]
    monkeypatch.setattr(credentials, "now_ms", lambda: now[0])
    server = Server(location=location, expiration_time=now[0] + 30_000, **CLOUDS[location])
    read = place_of(server, TABLE_NAME, None, ReadOptions())
    assert isinstance(read, StorePlace)
    first = read.renewal.ready()
    now[0] += 19_000
    assert read.renewal.ready() is first is not None
    # A third of their lifetime is left.
    now[0] += 1_000
    server.given["expiration_time"] = now[0] + 30_000
    assert read.renewal.ready() is None
    second = read.renewal.current()
    assert second is not first
    assert read.renewal.ready() is second
    assert read.renewal.ready(second) is None
    assert server.asked == [None, location]


# --- listings and bytes ---


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as found:
        yield found


@pytest.fixture
def stored(bucket: Bucket) -> Iterator[StorePlace]:
    """An empty location in S3: ``root`` in the bucket."""
    yield opened(bucket, Keys())
    bucket.clear()


def opened(bucket: Bucket, keys: Keys, **how: Any) -> StorePlace:
    options = ReadOptions(
        **{"storage_options": bucket.storage_options, "max_attempts": 2, "max_retry_seconds": 1} | how
    )
    read = open_place(f"s3://{bucket.name}/root", keys, options, subject="volume a.b.c", allowed=ONLY_HTTPS)
    assert isinstance(read, StorePlace)
    return read


class Keys:
    """Returns the keys of the bucket and counts requests."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> credentials.StorageCredentials:
        self.calls += 1
        names = ("access_key_id", "secret_access_key", "session_token")
        return credentials.StorageCredentials(cloud="AWS", secrets={name: Secret("planted") for name in names})


ODD_NAMES = ["a b", "ü/é", "100%", "a%20b", "q?x#y", "back\\slash", "*", "~t", "[x]{y}|^`", "a'b\"c", "k=v/p", "a+b&c"]


def test_special_characters_in_names_are_kept(stored: StorePlace, bucket: Bucket) -> None:
    for name in ODD_NAMES:
        bucket.put(f"root/{name}", name.encode())
    bucket.put("rooted/outside", b"x")

    assert sorted(paths(stored)) == sorted(ODD_NAMES)
    assert {name: get(stored, name)[0].decode() for name in ODD_NAMES} == {name: name for name in ODD_NAMES}


def test_long_listing_is_read_page_by_page(stored: StorePlace, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    # S3 returns pages of a thousand files.
    count = 1000 if ALL else 20
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(count))
    names = [f"f{number:04}" for number in range(count + 1)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(f"root/{name}", b"x"), names))

    assert [[file.path for file in page.files] for page in pages(stored)] == [names[:-1], names[-1:]]


def test_non_recursive_listing_includes_directories(stored: StorePlace, bucket: Bucket) -> None:
    for name in ("x", "a/y", "a/b/z", "ab/c"):
        bucket.put(f"root/{name}", b"1")

    (top,), (inner,) = (pages(stored, folder, recursive=False) for folder in ("", "a"))
    assert ([file.path for file in top.files], top.folders) == (["x"], ["a", "ab"])
    assert ([file.path for file in inner.files], inner.folders) == (["a/y"], ["a/b"])
    assert paths(stored, "a") == ["a/b/z", "a/y"]
    assert paths(stored, "none") == []


def test_directory_markers_are_not_files(stored: StorePlace, bucket: Bucket) -> None:
    for name in ("root/", "root/empty/", "root/full/", "root/old_$folder$", "root/hadoop"):
        bucket.put(name)
    for name in ("root/full/x", "root/nothing", "root/nothing.too", "root/hadoop/x"):
        bucket.put(name)
    bucket.put("root/filled/", b"1")

    assert paths(stored) == ["filled/", "full/x", "hadoop/x", "nothing", "nothing.too"]
    (page,) = pages(stored, recursive=False)
    assert [file.path for file in page.files] == ["nothing", "nothing.too"]
    assert sorted(page.folders) == ["empty", "filled", "full", "hadoop", "old"]
    assert paths(stored, "full") == ["full/x"]
    (page,) = pages(stored, "empty", recursive=False)
    assert (page.files, page.folders, page.markers) == ([], [], frozenset(("empty",)))


def test_keys_that_no_request_can_name_are_listed(stored: StorePlace, bucket: Bucket) -> None:
    bucket.put("root/a", b"1")
    bucket.put("root/../b", b"1")
    bucket.put("root/x//y", b"1")

    assert sorted(paths(stored)) == ["../b", "a", "x//y"]
    assert get(stored, "x//y")[0] == b"1"
    with pytest.raises(Refused, match="its name cannot be requested"):
        get(stored, "../b")


def test_listing_of_another_folder_is_refused(stored: StorePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"<ListBucketResult><IsTruncated>false</IsTruncated>%s</ListBucketResult>"
    file = b"<Contents><Key>other/x</Key><Size>1</Size></Contents>"
    folder = b"<CommonPrefixes><Prefix>other/</Prefix></CommonPrefixes>"
    for entry in (file, folder):
        listing = s3_listing(body % entry)
        monkeypatch.setattr(S3, "page", lambda *_, listing=listing: listing)
        with pytest.raises(DataError, match=r"storage of volume a\.b\.c lists a .* that is not in the folder: 'other/"):
            pages(stored)


def test_stored_file_is_read_by_range_and_version(stored: StorePlace, bucket: Bucket) -> None:
    bucket.put("root/a", b"0123456789")
    whole, _, version = get(stored, "a")
    assert whole == b"0123456789"
    for requested, data, span in [
        (ByteRange(2, 5), b"234", Span(2, 5, 10)),
        (4, b"6789", Span(6, 10, 10)),
        (99, b"0123456789", Span(0, 10, 10)),
    ]:
        assert get(stored, "a", requested, version)[:2] == (data, span)
    bucket.put("root/a", b"another")

    for path, wanted, status in (("a", version, 412), ("b", None, 404)):
        with pytest.raises(Refused) as refused:
            get(stored, path, None, wanted)
        assert refused.value.status == status


def test_pickled_place_reads_in_another_process(stored: StorePlace, bucket: Bucket) -> None:
    bucket.put("root/a", b"0123456789")
    again = pickle.loads(pickle.dumps(stored))
    assert get(again, "a")[0] == b"0123456789"
    store = store_of(again, TABLE_NAME)
    assert bytes(store.get("a").bytes()) == b"0123456789"
    program = (
        "import pickle, sys; from tests.places import get; place, store = pickle.load(sys.stdin.buffer);"
        "print(get(place, 'a')[0], bytes(store.get('a').bytes()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((stored, store)),
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert run.stdout.split() == [b"b'0123456789'"] * 2, run.stderr
    assert "planted" not in f"{stored!r} {store!r}"


@pytest.mark.alone
def test_forked_process_reads(stored: StorePlace, bucket: Bucket) -> None:
    bucket.put("root/a", b"1")
    assert paths(stored) == ["a"]
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, get(stored, "a")[0])
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)

    assert os.read(reading, 1000) == b"1"
    assert paths(stored) == ["a"]


@pytest.mark.parametrize("kind", ["link", "junction"])
def test_links_in_local_directories_are_not_followed(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "junction":
        junctions.imitate(monkeypatch.setattr)
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "root/a/x").write_bytes(b"1")
    (tmp_path / "root/z").write_bytes(b"22")
    here = LocalPlace(tmp_path / "root", ReadOptions())
    assert [(file.path, file.size) for page in pages(here) for file in page.files] == [("z", 2), ("a/x", 1)]
    assert pages(here, recursive=False)[0].folders == ["a"]
    (tmp_path / "root/loop").symlink_to(tmp_path / "root")

    with pytest.raises(DataError, match="'loop' is neither"):
        pages(here)


# --- requests ---


class Store(HttpServer):
    """A store that answers with ``answers`` in order: a status, headers and a body. It keeps the requests' headers."""

    def __init__(self) -> None:
        super().__init__(self._next)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.received: list[tuple[str, dict[str, str]]] = []

    def _next(self, exchange: Exchange) -> None:
        self.received.append((exchange.path, dict(exchange.headers)))
        status, headers, body = self.answers.pop(0)
        exchange.reply(status, body, headers)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as server:
        yield server


def at(store: Store, keys: Keys, *, region: str | None = "us-east-1") -> StorePlace:
    endpoint = store.url
    given = {"endpoint": endpoint} | ({} if region is None else {"region": region})
    return opened(Bucket("bucket", endpoint, None), keys, storage_options=given)


def error(code: str, more: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>planted-message</Message>{more}</Error>".encode()


@pytest.mark.parametrize(
    ("status", "code", "asked"),
    [
        (403, "AccessDenied", 2),
        (401, "Unauthorized", 2),
        (400, "ExpiredToken", 2),
        (400, "TokenRefreshRequired", 2),
        (400, "InvalidRequest", 1),
        (404, "NoSuchKey", 1),
    ],
)
def test_refused_credentials_are_renewed_once(store: Store, status: int, code: str, asked: int) -> None:
    keys = Keys()
    read = at(store, keys)
    store.answers = [(status, {}, error(code)), (200, {}, b"data")]
    if asked == 2:
        assert get(read, "a")[0] == b"data"
        assert (keys.calls, len(store.received)) == (2, 2)
        keys.calls, store.answers = 0, [(status, {}, error(code))] * 2
    with pytest.raises(Refused) as refused:
        get(read, "a")
    assert refused.value.status == (403 if asked == 2 else status)
    assert keys.calls == 1
    assert "planted" not in str(refused.value)


def test_region_of_the_bucket_is_learned_from_a_refusal(store: Store) -> None:
    keys = Keys()
    read = at(store, keys, region=None)
    body = error("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")
    for moved in ((400, {}, body), (301, {"x-amz-bucket-region": "eu-west-1", "Location": "http://other/"}, b"")):
        store.received.clear()
        read = at(store, keys, region=None)
        store.answers = [moved, (200, {}, b"data"), (200, {}, b"data")]
        assert [get(read, "a")[0], get(read, "a")[0]] == [b"data"] * 2
        regions = [headers["Authorization"].split("/")[2] for _, headers in store.received]
        assert regions == ["us-east-1", "eu-west-1", "eu-west-1"]
    # A store that names another region each time is refused.
    read = at(store, keys, region=None)
    store.answers = [(400, {}, body), (400, {}, body.replace(b"eu-west", b"eu-north"))]
    with pytest.raises(Refused, match="AuthorizationHeaderMalformed: set 'region' to 'eu-north-1'"):
        get(read, "a")


def test_redirect_of_a_store_is_not_followed(store: Store) -> None:
    for status in (301, 302, 303, 307, 308):
        store.answers = [(status, {"Location": f"{store.url}/elsewhere"}, b"")]
        store.received.clear()
        with pytest.raises(Refused, match="set 'region'") as refused:
            get(at(store, Keys()), "a")
        assert (refused.value.status, len(store.received)) == (status, 1)


@pytest.mark.parametrize(
    ("status", "headers", "body", "facts"),
    [
        (403, {}, error("AccessDenied"), (403, "AccessDenied", "")),
        (301, {"x-amz-bucket-region": "eu-west-1"}, b"", (301, "", "eu-west-1")),
        (301, {"X-Amz-Bucket-Region": "eu-west-1"}, error("PermanentRedirect", "<Region>eu-west-2</Region>"),
         (301, "PermanentRedirect", "eu-west-1")),
        (400, {}, error("AuthorizationHeaderMalformed", "<Region>eu-west-2</Region>"),
         (400, "AuthorizationHeaderMalformed", "eu-west-2")),
        (400, {}, b"<Error><Code>A</Code><Message>the region is wrong; expecting 'garage-1'</Message></Error>",
         (400, "A", "garage-1")),
        (404, {"x-ms-error-code": "BlobNotFound"}, b"", (404, "BlobNotFound", "")),
        (403, {"x-ms-error-code": "NoAuthentication"}, b'{"error": {"code": "x"}}', (403, "NoAuthentication", "")),
        (403, {"x-ms-error-code": "planted signature=1"}, b"\xff\xfe", (403, "", "")),
        (301, {"x-amz-bucket-region": "evil.example/#"}, b"<Region>evil.example/</Region>", (301, "", "")),
        (404, {}, b"Not Found", (404, "", "")),
    ],
)  # fmt: skip
def test_facts_of_a_refusal_are_read_from_the_response(
    store: Store, status: int, headers: dict[str, str], body: bytes, facts: tuple[int, str, str]
) -> None:
    # The credentials are renewed, and the region is changed, once.
    store.answers = [(status, headers, body)] * 3
    with pytest.raises(Refused) as refused:
        get(at(store, Keys()), "a")
    expected = 403 if status == 401 else status
    assert (refused.value.status, refused.value.code, refused.value.region) == (expected, *facts[1:])
    assert "planted" not in f"{refused.value} {refused.value.reason}"
