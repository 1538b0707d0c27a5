"""Downloads of assets are complete or leave no file, are incremental, and never write outside the directory."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from msgspec.structs import replace as structs_replace

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.assets import download as downloads
from delta_sharing_client.assets import transfers
from delta_sharing_client.fetch import file_target
from delta_sharing_client.fetch.place import Body, DataRequest, Page, Refused, Take
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.storage.store_place import StorePlace
from mock_server import asset_files, catalog
from tests.integration.test_asset_files import s3_settings
from tests.s3 import REGION, Bucket, Guard, s3_bucket

QUICK = {"max_attempts": 3, "max_retry_seconds": 2.0, "progress": False}
DATA = random.Random(5).randbytes(400_000)
FILES = {"a.txt": b"one", "deep/er/b": DATA[:5000], "deep/c": DATA, "empty": b"", "z/\u00e9 %41": b"odd"}
STATE = ".delta-sharing"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket() as found:
        yield found


@pytest.fixture(scope="module")
def client(bucket: Bucket) -> Iterator[ds.SharingClient]:
    options = ds.ReadOptions(storage_options=bucket.storage_options, **QUICK)
    with (
        mock_server.running(volumes={"s.d.files": f"s3://{bucket.name}/in"}, s3=s3_settings(bucket)) as server,
        ds.SharingClient(server.profile, options=options) as client_,
    ):
        yield client_


@pytest.fixture
def volume(client: ds.SharingClient, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A volume with ``FILES``; files above 64 KiB are transferred in parts."""
    monkeypatch.setattr(transfers, "PART_BYTES", 64 * 1024)
    bucket.clear()
    for path, data in FILES.items():
        bucket.put(f"in/{path}", data)
    return client.volume("s.d.files")


@pytest.fixture
def here(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "here"


def content(folder: pathlib.Path) -> dict[str, bytes]:
    """Return the contents of the downloaded files by path, without the saved state of the download."""
    results = [path for path in folder.rglob("*") if not path.is_dir()]
    names = {path: path.relative_to(folder).as_posix() for path in results}
    return {name: path.read_bytes() for path, name in names.items() if not name.startswith(STATE)}


def state_of(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in (folder / STATE).iterdir())


class Requests:
    """Counts the requests to a location and may run a callback between them."""

    def __init__(self, volume: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[tuple[str, Any]] = []
        self.before: Callable[[str, Any], None] = lambda path, wanted: None
        get = StorePlace.get

        async def counted(self_: Any, request: DataRequest, take: Take) -> None:
            self.paths.append((request.address, request.wanted))
            await asyncio.to_thread(self.before, request.address, request.wanted)
            await get(self_, request, take)

        monkeypatch.setattr(StorePlace, "get", counted)


def edited(monkeypatch: pytest.MonkeyPatch, edit: Callable[[Body], Body]) -> None:
    """Replace each open response by ``edit`` of it."""
    get = StorePlace.get

    async def got(self: Any, request: DataRequest, take: Take) -> None:
        async def changed(body: Body) -> None:
            await take(edit(body))

        await get(self, request, changed)

    monkeypatch.setattr(StorePlace, "get", got)


class Edited:
    """An open response whose pieces ``pieces`` maps to others; it may raise to break the response."""

    def __init__(self, body: Body, pieces: Callable[[bytes], bytes]) -> None:
        self._body, self._pieces = body, pieces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    async def read(self) -> bytes:
        return self._pieces(bytes(await self._body.read()))


@pytest.fixture
def requests(volume: Any, monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(volume, monkeypatch)


# --- results ---


def test_download_has_every_file_under_its_path(volume: Any, here: pathlib.Path) -> None:
    done = volume.download(here)

    assert content(here) == FILES
    assert (sorted(done.downloaded), done.unchanged, done.removed) == (sorted(FILES), 0, ())
    assert (done.bytes, done.directory, os.fspath(done)) == (sum(map(len, FILES.values())), here, str(here))
    assert state_of(here) == ["files.jsonl", "lock"]
    assert (here / "deep/c").stat().st_mtime == pytest.approx(volume.stat("deep/c").modified.timestamp(), abs=0.001)
    assert not [path for path in here.rglob("*") if path.is_file() and path.stat().st_mode & 0o111]


def test_download_of_a_directory_keeps_paths(volume: Any, here: pathlib.Path) -> None:
    assert volume.download(here, "deep", "c").downloaded == ("deep/c",)
    assert volume.download(here, pattern="*.txt").downloaded == ("a.txt",)
    assert volume.download(here, "deep/er/b").downloaded == ("deep/er/b",)
    assert content(here) == {path: FILES[path] for path in ("a.txt", "deep/c", "deep/er/b")}
    with pytest.raises(ds.NotFoundError, match="'none'"):
        volume.download(here, "none")


def test_only_changed_files_are_downloaded_again(
    volume: Any, bucket: Bucket, here: pathlib.Path, requests: Requests
) -> None:
    volume.download(here)
    requests.paths.clear()
    assert volume.download(here).unchanged == len(FILES)
    assert requests.paths == []

    bucket.put("in/a.txt", b"two")  # the new content has the same length and may be written within the same second
    bucket.put("in/new", b"new")
    (here / "deep/er/b").write_bytes(b"edited")
    (here / "z/\u00e9 %41").unlink()
    (here / "own").write_bytes(b"of the user")
    done = volume.download(here)

    assert sorted(done.downloaded) == sorted(["a.txt", "new", "deep/er/b", "z/\u00e9 %41"])
    assert content(here) == {**FILES, "a.txt": b"two", "new": b"new", "own": b"of the user"}
    assert sorted({path for path, _ in requests.paths}) == sorted(done.downloaded)


def test_without_saved_state_only_changed_files_are_fetched(
    volume: Any, here: pathlib.Path, requests: Requests
) -> None:
    volume.download(here)
    shutil.rmtree(here / STATE)
    (here / "a.txt").write_bytes(b"eno")
    requests.paths.clear()

    assert volume.download(here).downloaded == ("a.txt",)
    assert content(here) == FILES
    requests.paths.clear()
    assert volume.download(here).downloaded == ()


def test_dry_run_writes_nothing(volume: Any, here: pathlib.Path, requests: Requests) -> None:
    planned = volume.download(here, dry_run=True)

    assert sorted(planned.downloaded) == sorted(FILES)
    assert (planned.dry_run, planned.bytes) == (True, sum(map(len, FILES.values())))
    assert not here.exists()
    assert requests.paths == []
    volume.download(here, pattern="a.txt")
    before = sorted(here.rglob("*"))
    assert sorted(volume.download(here, dry_run=True).downloaded) == sorted(set(FILES) - {"a.txt"})
    assert sorted(here.rglob("*")) == before


# --- refusals before anything is written ---


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["clash", "clash/inner"], "cannot both be stored here"),
        ([".delta-sharing/files.jsonl"], "reserved"),
        (["n" * 256], "longer than 255"),
    ],
)
def test_names_that_cannot_be_stored_are_refused(
    volume: Any, bucket: Bucket, here: pathlib.Path, keys: list[str], message: str
) -> None:
    for key in keys:
        bucket.put(f"in/{key}", b"1")

    with pytest.raises(ds.UsageError, match=message):
        volume.download(here)
    assert not here.exists()


def test_download_refuses_links_and_files_in_its_way(volume: Any, here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (here / "deep").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (here / "deep/er").symlink_to(tmp_path / "outside")
    with pytest.raises(ds.UsageError, match="found a link"):
        volume.download(here)
    (here / "deep/er").unlink()
    (here / "a.txt").mkdir()
    with pytest.raises(ds.UsageError, match="expected a file or nothing"):
        volume.download(here)
    (here / "a.txt").rmdir()
    (here / STATE).symlink_to(tmp_path / "outside")
    with pytest.raises(ds.UsageError, match="Expected a directory or nothing"):
        volume.download(here)

    assert list((tmp_path / "outside").iterdir()) == []
    assert content(here) == {}
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ds.UsageError, match="Cannot create the directory"):
        volume.download(tmp_path / "file" / "inside")


def test_full_disk_is_reported_before_the_download(
    volume: Any, here: pathlib.Path, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=100_000)
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda path: usage)

    with pytest.raises(ds.UsageError, match=r"needs 405,006 bytes, but the disk of .* has only 100,000"):
        volume.download(here)
    assert requests.paths == []
    assert content(here) == {}


def test_concurrent_download_into_a_directory_is_refused(volume: Any, here: pathlib.Path, requests: Requests) -> None:
    refused: list[str] = []

    def another(path: str, byte_range: Any) -> None:
        if not refused:
            with pytest.raises(ds.UsageError, match="Another download") as caught:
                volume.download(here)
            refused.append(str(caught.value))

    requests.before = another
    volume.download(here, pattern="a.txt")

    assert refused
    assert content(here) == {"a.txt": b"one"}


def test_files_with_a_wrong_declared_size_are_refused(
    volume: Any, here: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = StorePlace.page

    async def lying(self: Any, *arguments: Any, **how: Any) -> Page:
        listed = await page(self, *arguments, **how)
        files = [structs_replace(file, size=file.size + (file.path == "a.txt")) for file in listed.files]
        return listed._replace(files=files)

    monkeypatch.setattr(StorePlace, "page", lying)

    with pytest.raises(ds.DataError, match=r"expected a file of 4 bytes, but the storage has 3"):
        volume.download(here)
    assert "a.txt" not in content(here)


# --- interruptions ---


def test_download_resumes_a_broken_transfer(
    volume: Any, here: pathlib.Path, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[int] = []

    def breaking(body: Body) -> Body:
        ends: list[bool] = []

        def piece(data: bytes) -> bytes:
            if ends:
                raise Transient(ds.TransportError("It broke."))
            if len(broken) < 5 and len(data) > 3000:
                broken.append(len(data))
                ends.append(True)
                return data[:2000]
            return data

        return cast("Body", Edited(body, piece))

    edited(monkeypatch, breaking)
    volume.download(here)

    assert content(here) == FILES
    assert len(broken) == 5
    resumed = [wanted for _, wanted in requests.paths if wanted is not None and wanted.start % 1000 == 0 < wanted.start]
    assert len(resumed) >= 3


def test_next_download_continues_a_failed_download(
    volume: Any, here: pathlib.Path, requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, byte_range: Any) -> None:
        # The last part is requested when all others have arrived, or are about to.
        if path == "deep/c" and byte_range.stop == len(DATA):
            raise Refused(403, None, "AccessDenied")

    monkeypatch.setattr(file_target, "_TASKS", 1)
    requests.before = refuse
    with pytest.raises(ds.AuthError, match=r"'deep/c' of volume s\.d\.files"):
        volume.download(here, "deep")
    assert "deep/c" not in content(here)

    requests.before = lambda path, wanted: None
    requests.paths.clear()
    volume.download(here)

    assert content(here) == FILES
    ranges = [wanted for path, wanted in requests.paths if path == "deep/c"]
    assert [wanted.stop for wanted in ranges] == [len(DATA)]
    assert state_of(here) == ["files.jsonl", "lock"]


def test_parts_of_another_version_are_not_reused(
    volume: Any, bucket: Bucket, here: pathlib.Path, requests: Requests
) -> None:
    def refuse(path: str, byte_range: Any) -> None:
        if path == "deep/c" and byte_range.start:
            raise Refused(403, None)

    requests.before = refuse
    with pytest.raises(ds.AuthError):
        volume.download(here)
    requests.before = lambda path, wanted: None
    bucket.put("in/deep/c", DATA[::-1])
    volume.download(here)

    assert content(here) == {**FILES, "deep/c": DATA[::-1]}


@pytest.mark.parametrize("path", ["a.txt", "deep/c"])
def test_file_replaced_during_the_download_is_complete(
    volume: Any, bucket: Bucket, here: pathlib.Path, requests: Requests, path: str
) -> None:
    new = DATA[7:300_000] if path == "deep/c" else b"longer than before"
    replaced = threading.Event()

    def replace(requested: str, byte_range: Any) -> None:
        if (
            requested == path
            and (byte_range is None or byte_range.start >= transfers.PART_BYTES)
            and not replaced.is_set()
        ):
            replaced.set()
            bucket.put(f"in/{path}", new)

    requests.before = replace
    volume.download(here)

    assert replaced.is_set()
    assert content(here) == {**FILES, path: new}
    assert volume.download(here).downloaded == ()


def test_file_that_keeps_being_replaced_is_an_error(
    volume: Any, bucket: Bucket, here: pathlib.Path, requests: Requests
) -> None:
    count = iter(range(100))
    requests.before = lambda path, wanted: bucket.put("in/a.txt", b"x" * next(count))

    with pytest.raises(ds.DataError, match="replaced during each attempt"):
        volume.download(here, "a.txt")
    assert content(here) == {}


def test_file_deleted_during_the_download_is_named(
    volume: Any, bucket: Bucket, here: pathlib.Path, requests: Requests
) -> None:
    requests.before = lambda path, wanted: bucket.resource.Object("in/a.txt").delete()

    with pytest.raises(ds.NotFoundError, match=r"'a\.txt' in volume s\.d\.files"):
        volume.download(here, "a.txt")


@pytest.mark.parametrize("used", [1, 3, 4])
def test_download_renews_credentials_that_expire(
    volume: Any, bucket: Bucket, here: pathlib.Path, monkeypatch: pytest.MonkeyPatch, used: int
) -> None:
    guard, vended = Guard(bucket), []

    def vend(location: str, seconds: float) -> dict[str, object]:
        vended.append(name := f"id-{len(vended)}")
        guard.keys[name], guard.ends[name] = [f"{bucket.name}/in"], used
        return {"awsTempCredentials": {"accessKeyId": name, "secretAccessKey": "planted", "sessionToken": name}}

    files = asset_files.volume(("s", "d", "files"), f"s3://{bucket.name}/in")
    options = ds.ReadOptions(storage_options={"endpoint": guard.endpoint, "region": REGION}, **QUICK)
    # One request at a time, so that no other one uses the new credentials.
    options = dataclasses.replace(options, max_concurrent_requests=1)
    with (
        contextlib.closing(guard),
        mock_server.running(catalog.build((), assets=[files]), vendors={"s3": vend}) as server,
        ds.SharingClient(server.profile, options=options) as client,
    ):
        done = client.volume("s.d.files").download(here)

    assert content(here) == FILES
    assert sorted(done.downloaded) == sorted(FILES)
    # Some credentials were refused between two files or two parts of a file.
    assert len(vended) > len(guard.requests) // (used + 1) > 1


# --- content ---


def damaged(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Flip a bit in each of the next bodies."""
    flipped: list[int] = []

    def flip(data: bytes) -> bytes:
        if len(flipped) < times and data:
            flipped.append(1)
            # The flipped bit differs each time.
            return bytes([data[0] ^ (1 << len(flipped) % 8)]) + data[1:]
        return data

    edited(monkeypatch, lambda body: cast("Body", Edited(body, flip)))
    return flipped


@pytest.mark.parametrize("path", ["deep/er/b", "deep/c"])
def test_damaged_content_is_downloaded_again(
    volume: Any, here: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    flipped = damaged(monkeypatch, 1)

    volume.download(here, path)

    assert flipped
    assert content(here) == {path: FILES[path]}


@pytest.mark.parametrize("path", ["deep/er/b", "deep/c"])
def test_file_that_differs_on_each_download_is_an_error(
    volume: Any, here: pathlib.Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    damaged(monkeypatch, 1000)

    with pytest.raises(ds.DataError, match="repeatedly differed from the checksum"):
        volume.download(here, path)
    assert content(here) == {}


def test_etags_that_are_not_md5_digests_do_not_fail_a_download(
    volume: Any, here: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A store that encrypts with customer keys returns such ETags, and says so in a header.
    page = StorePlace.page

    async def other_etags(self: Any, *arguments: Any, **how: Any) -> Page:
        listed = await page(self, *arguments, **how)
        return listed._replace(files=[structs_replace(file, etag=_other(file.etag)) for file in listed.files])

    class Encrypted(Edited):
        checksum = None

        def __init__(self, body: Body) -> None:
            super().__init__(body, lambda data: data)
            self.version = body.version._replace(etag=_other(body.version.etag))

    get = StorePlace.get

    async def unconditional(self: Any, request: DataRequest, take: Take) -> None:
        await get(self, request._replace(version=None), take)

    monkeypatch.setattr(StorePlace, "page", other_etags)
    monkeypatch.setattr(StorePlace, "get", unconditional)
    edited(monkeypatch, lambda body: cast("Body", Encrypted(body)))
    volume.download(here)

    assert content(here) == FILES
    assert volume.download(here).downloaded == ()


def _other(etag: str) -> str:
    return f'"{hashlib.md5(etag.encode()).hexdigest()}"'


# --- other systems and processes ---


def test_disk_that_distinguishes_names_has_both(volume: Any, bucket: Bucket, here: pathlib.Path) -> None:
    bucket.put("in/A.TXT", b"another")
    assert sorted(volume.download(here, "", "*.[tT]*").downloaded) == ["A.TXT", "a.txt"]


def test_names_that_the_file_system_cannot_store_are_refused(
    volume: Any, bucket: Bucket, here: pathlib.Path, monkeypatch: Any
) -> None:
    def alike(folder: str, one: str, other: str) -> bool:
        return one.lower() == other.lower()

    bucket.put("in/A.TXT", b"another")
    monkeypatch.setattr(downloads.Disk, "of", lambda directory, **_: downloads.Disk(are_same=alike))
    with pytest.raises(ds.UsageError, match=r"'a\.txt' .* cannot both be stored here"):
        volume.download(here)
    monkeypatch.setattr(downloads.Disk, "of", lambda directory, **_: downloads.Disk(is_windows=True))
    bucket.put("in/what?", b"1")
    with pytest.raises(ds.UsageError, match=r"Windows does not allow '\?'"):
        volume.download(here)


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGINT"])
def test_next_download_completes_a_killed_download(
    client: ds.SharingClient, bucket: Bucket, here: pathlib.Path, tmp_path: pathlib.Path, signal_name: str
) -> None:
    bucket.clear()
    expected = {f"small/{number:03}": DATA[number : number + 3000] for number in range(150)}
    expected["large"] = DATA * 3
    for path, data in expected.items():
        bucket.put(f"in/{path}", data)
    profile = tmp_path / "profile.share"
    profile.write_text(json.dumps({
        "shareCredentialsVersion": 1, "endpoint": client._rest.profile.endpoint,
        "bearerToken": client._rest.profile.credentials.token.reveal()}))  # fmt: skip
    program = (
        "import sys, delta_sharing_client as ds\n"
        "from delta_sharing_client.assets import transfers\n"
        "transfers.PART_BYTES = 64 * 1024\n"
        "options = ds.ReadOptions(storage_options={'endpoint': sys.argv[3], 'region': 'us-east-1'}, progress=False)\n"
        "ds.SharingClient(sys.argv[1], options=options).volume('s.d.files').download(sys.argv[2])\n"
    )
    command = [sys.executable, "-c", program, str(profile), str(here), bucket.endpoint]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    notes = here / STATE / "files.jsonl"
    while run.poll() is None and not (notes.exists() and notes.stat().st_size > 2000):
        time.sleep(0.002)  # a busy loop would take the other process's core
    run.send_signal(getattr(signal, signal_name))
    _, errors = run.communicate(timeout=60)
    assert run.returncode, errors
    between = content(here)
    assert between
    assert between.items() <= expected.items()

    done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert content(here) == expected
    assert state_of(here) == ["files.jsonl", "lock"]


def test_damaged_download_state_is_ignored(volume: Any, here: pathlib.Path) -> None:
    volume.download(here)
    notes = here / STATE / "files.jsonl"
    lines = notes.read_bytes().splitlines(keepends=True)
    notes.write_bytes(b'{"x": 1}\n[1]\n\xff\n"a"\n[]\n[null, 1, 2, 3, 4]\n' + lines[0] + lines[1][:10])

    volume.download(here)

    assert content(here) == FILES
    assert {json.loads(line)[0] for line in notes.read_bytes().splitlines()} == set(FILES)


def test_downloaded_files_have_the_permissions_of_the_umask(volume: Any, here: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        volume.download(here)
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(path.stat().st_mode) for path in here.rglob("*") if path.is_file() and STATE not in str(path)}
    assert modes == {0o640}
