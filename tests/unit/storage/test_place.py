"""Stored directories: listings, ranges and versions of files, renewed credentials, and refused locations and names."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.errors import DataError, TransportError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.source import Refused, Span
from delta_sharing_client.network import ONLY_HTTPS
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
from delta_sharing_client.protocol.profile import BearerToken, Profile
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.redact import Secret
from delta_sharing_client.retry import Transient
from delta_sharing_client.storage import credentials, place, stores
from tests.effort import ALL
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


def test_local_file_is_read_in_one_version(tmp_path: Path) -> None:
    here = place.LocalPlace(tmp_path)
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "folder").mkdir()
    body = here.get("a", ByteRange(1, 3))
    assert (b"".join(body.chunks), body.span) == (b"ir", Span(1, 3, 5))
    body.close()
    (tmp_path / "a").write_bytes(b"the second")

    for key, version, status in (("a", body.version, 412), ("b", None, 404), ("folder", None, 404), ("a/b", None, 404)):
        with pytest.raises(Refused) as refused:
            here.get(key, None, version)
        assert refused.value.status == status


def test_unsupported_store_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="'hdfs', which is not supported"):
        place.place_of(Server(location="hdfs://host/t", aws_temp_credentials=AWS), TABLE_NAME, None, ReadOptions())


def test_missing_obstore_error_shows_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(UsageError, match=r'pip install "delta-sharing-client\[storage\]"'):
        place.place_of(Server(location="s3://bucket/t", aws_temp_credentials=AWS), TABLE_NAME, None, ReadOptions())


CLOUDS = {
    "s3://bucket/t": {"aws_temp_credentials": AWS},
    "abfss://box@account.dfs.core.windows.net/t": {"azure_user_delegation_sas": AZURE},
    "gs://bucket/t": {"gcp_oauth_token": GCP},
}


@pytest.mark.parametrize("location", CLOUDS)
def test_credentials_are_renewed_before_they_expire(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "bucket_region", lambda bucket, options: "eu-west-1")
    now = [1_000_000]
    monkeypatch.setattr(credentials, "now_ms", lambda: now[0])
    server = Server(location=location, expiration_time=now[0] + 30_000, **CLOUDS[location])
    read = place.place_of(server, TABLE_NAME, None, ReadOptions())
    assert isinstance(read, place.ObjectPlace)
    first = read._current()
    now[0] += 19_000
    assert read._current() == first
    # A third of their lifetime is left.
    now[0] += 1_000
    server.given["expiration_time"] = now[0] + 30_000
    second = read._current()

    assert second[0] is not first[0]
    assert read._current() == second
    assert server.asked == [None, location]
    # A store that was already opened requests new credentials by itself.
    assert second[1].credential_provider()["expires_at"].timestamp() * 1000 == now[0] + 30_000


@pytest.mark.parametrize(("status", "asked"), [("403 Forbidden", 2), ("401 Unauthorized", 2), ("500 Internal", 1)])
def test_refused_listing_renews_the_credentials_once(status: str, asked: int) -> None:
    from obstore.exceptions import GenericError

    location = "gs://bucket/t"
    server = Server(location=location, **CLOUDS[location])
    read = place.place_of(server, TABLE_NAME, None, ReadOptions())
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


# --- listings and bytes ---


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as found:
        yield found


@pytest.fixture
def stored(bucket: Bucket) -> Iterator[place.Place]:
    """An empty location in S3: ``root`` in the bucket."""
    options = ReadOptions(storage_options=bucket.storage_options, max_attempts=2, max_retry_seconds=1)
    yield place.open_place(f"s3://{bucket.name}/root", Keys(), options, subject="volume a.b.c", allowed=ONLY_HTTPS)
    bucket.clear()


class Keys:
    """Returns the keys of the bucket and counts requests."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> credentials.StorageCredentials:
        self.calls += 1
        names = ("access_key_id", "secret_access_key", "session_token")
        return credentials.StorageCredentials(cloud="AWS", secrets={name: Secret("planted") for name in names})


def paths(read: place.Place, folder: str = "", *, recursive: bool = True) -> list[str]:
    return [file.path for page in read.pages(folder, recursive=recursive) for file in page.files]


ODD_NAMES = ["a b", "ü/é", "100%", "a%20b", "q?x#y", "back\\slash", "*", "~t", "[x]{y}|^`", "a'b\"c", "k=v/p", "a+b&c"]


def test_special_characters_in_names_are_kept(stored: place.Place, bucket: Bucket) -> None:
    for name in ODD_NAMES:
        bucket.put(f"root/{name}", name.encode())
    bucket.put("rooted/outside", b"x")

    assert sorted(paths(stored)) == sorted(ODD_NAMES)
    assert {name: b"".join(stored.get(name).chunks).decode() for name in ODD_NAMES} == {
        name: name for name in ODD_NAMES
    }
    assert [stored.head(name).size for name in ODD_NAMES] == [len(name.encode()) for name in ODD_NAMES]


def test_long_listing_is_read_page_by_page(
    stored: place.Place, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3 returns pages of a thousand files.
    count = 1000 if ALL else 20
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(count))
    monkeypatch.setattr(place, "_PAGE", count)
    names = [f"f{number:04}" for number in range(count + 1)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(f"root/{name}", b"x"), names))

    pages = stored.pages()
    first = next(pages)

    assert [file.path for file in first.files] == names[:-1]
    assert [file.path for page in pages for file in page.files] == names[-1:]


def test_non_recursive_listing_includes_directories(stored: place.Place, bucket: Bucket) -> None:
    for name in ("x", "a/y", "a/b/z", "ab/c"):
        bucket.put(f"root/{name}", b"1")

    (top,), (inner,) = (list(stored.pages(folder, recursive=False)) for folder in ("", "a"))
    assert ([file.path for file in top.files], top.folders) == (["x"], ["a", "ab"])
    assert ([file.path for file in inner.files], inner.folders) == (["a/y"], ["a/b"])
    assert paths(stored, "a") == ["a/b/z", "a/y"]
    assert paths(stored, "none") == []


def test_directory_markers_are_not_files(stored: place.Place, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    asked: list[str] = []
    head = obstore.head
    monkeypatch.setattr(obstore, "head", lambda store, path: asked.append(path) or head(store, path))
    for name in ("root/", "root/empty/", "root/full/", "root/last/"):
        bucket.put(name)
    for name in ("root/full/x", "root/nothing", "root/nothing.too"):
        bucket.put(name)

    assert paths(stored) == ["full/x", "nothing", "nothing.too"]
    # Directories with listed files need no request.
    assert sorted(asked) == ["root/empty", "root/full/x", "root/last", "root/nothing", "root/nothing.too"]
    assert paths(stored, recursive=False) == ["nothing", "nothing.too"]
    assert paths(stored, "full") == ["full/x"]


def test_unreadable_empty_file_is_not_a_marker(
    stored: place.Place, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing omits directory markers but must not omit a file."""
    import obstore
    from obstore.exceptions import PermissionDeniedError

    def head(*_: object) -> None:
        raise PermissionDeniedError("no")

    bucket.put("root/empty", b"")
    monkeypatch.setattr(obstore, "head", head)
    with pytest.raises(Refused) as refused:
        paths(stored)
    assert refused.value.status != 404


def test_name_with_parent_directories_is_refused(stored: place.Place, bucket: Bucket) -> None:
    bucket.put("root/a", b"1")
    bucket.put("root/../b", b"1")

    with pytest.raises(Refused, match="its name cannot be requested"):
        paths(stored)


def test_file_outside_the_location_is_refused(stored: place.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    listed = [{"path": "other/x", "size": 1, "last_modified": datetime.now(timezone.utc), "e_tag": None}]
    monkeypatch.setattr(obstore, "list", lambda *_, **__: iter([listed]))

    with pytest.raises(DataError, match=r"not in volume a\.b\.c: 'other/x'"):
        paths(stored)


def test_listing_resumes_after_the_last_page(stored: place.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    names = [f"root/f{number}" for number in range(9)]
    offsets: list[str | None] = []

    def broken(_: object, prefix: str, *, offset: str | None, chunk_size: int) -> Iterator[list[dict[str, object]]]:
        offsets.append(offset)
        rest = [name for name in names if offset is None or name > offset]
        for start in range(0, len(rest), 2):
            if start == 4:
                raise obstore.exceptions.GenericError("Error performing GET x - HTTP error: planted")
            facts = {"size": 1, "last_modified": datetime.now(timezone.utc), "e_tag": None}
            yield [{"path": name, **facts} for name in rest[start : start + 2]]

    monkeypatch.setattr(obstore, "list", broken)

    assert paths(stored) == [name.removeprefix("root/") for name in names]
    assert offsets == [None, "root/f3", "root/f7"]


def test_listing_that_keeps_failing_is_an_error(stored: place.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    tried: list[object] = []

    def broken(*_: object, **__: object) -> Iterator[Any]:
        tried.append(1)
        if len(tried) > 9:
            return iter([])
        raise obstore.exceptions.GenericError("Error performing GET x - HTTP error: planted")

    for name in ("list", "list_with_delimiter"):
        tried.clear()
        monkeypatch.setattr(obstore, name, broken)
        with pytest.raises(TransportError, match="Tried 2 times"):
            paths(stored, recursive=name == "list")
        assert len(tried) == 2


@pytest.mark.parametrize(
    ("listed", "etag"), [("0x8D", '"0x8D"'), ('"0x8D"', '"0x8D"'), ('W/"1"', 'W/"1"'), (None, None)]
)
def test_etag_of_a_listing_is_quoted_as_in_the_header(
    stored: place.Place, monkeypatch: pytest.MonkeyPatch, listed: str | None, etag: str | None
) -> None:
    import obstore

    facts = {"path": "root/a", "size": 1, "last_modified": datetime.now(timezone.utc), "e_tag": listed}
    monkeypatch.setattr(obstore, "list", lambda *_, **__: iter([[facts]]))

    assert [file.etag for page in stored.pages("") for file in page.files] == [etag]


def test_stored_file_is_read_by_range_and_version(stored: place.Place, bucket: Bucket) -> None:
    bucket.put("root/a", b"0123456789")
    whole = stored.get("a")
    assert b"".join(whole.chunks) == b"0123456789"
    for requested, data, span in [
        (ByteRange(2, 5), b"234", Span(2, 5, 10)),
        (4, b"6789", Span(6, 10, 10)),
        (99, b"0123456789", Span(0, 10, 10)),
    ]:
        part = stored.get("a", requested, whole.version)
        assert (b"".join(part.chunks), part.span) == (data, span)
    bucket.put("root/a", b"another")

    for path, version, status in (("a", whole.version, 412), ("b", None, 404)):
        with pytest.raises(Refused) as refused:
            stored.get(path, None, version)
        assert refused.value.status == status


def test_pickled_directory_reads_in_another_process(stored: place.Place, bucket: Bucket) -> None:
    bucket.put("root/a", b"0123456789")
    again = pickle.loads(pickle.dumps(stored))
    assert b"".join(again.get("a").chunks) == bytes(again.store().get("a").bytes()) == b"0123456789"
    program = (
        "import pickle, sys; place, store = pickle.load(sys.stdin.buffer);"
        "print(b''.join(place.get('a').chunks), bytes(store.get('a').bytes()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((stored, stored.store())),
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert run.stdout.split() == [b"b'0123456789'"] * 2, run.stderr
    assert "planted" not in f"{stored!r} {stored.store()!r}"


@pytest.mark.alone
def test_read_in_a_forked_process_is_an_error(stored: place.Place, bucket: Bucket) -> None:
    bucket.put("root/a", b"1")
    assert paths(stored) == ["a"]
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            paths(stored)
        except UsageError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)

    assert b"'spawn' or 'forkserver'" in os.read(reading, 1000)
    assert paths(stored) == ["a"]


def test_symbolic_links_in_local_directories_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "root/a").mkdir(parents=True)
    (tmp_path / "root/a/x").write_bytes(b"1")
    (tmp_path / "root/z").write_bytes(b"22")
    here = place.LocalPlace(tmp_path / "root")
    (page, *rest) = here.pages()
    assert [(file.path, file.size) for one in (page, *rest) for file in one.files] == [("z", 2), ("a/x", 1)]
    assert next(here.pages(recursive=False)).folders == ["a"]
    assert here.head("a/x").size == 1
    for path in ("a", "b"):
        with pytest.raises(Refused):
            here.head(path)
    (tmp_path / "root/loop").symlink_to(tmp_path / "root")

    with pytest.raises(DataError, match="'loop' is neither"):
        list(here.pages())
    with pytest.raises(Refused):
        list(here.pages("none"))
