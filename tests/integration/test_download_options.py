"""Which files a listing and a download choose, mirrors of an asset, and the asynchronous methods."""

from __future__ import annotations

import asyncio
import fnmatch
import json
import os
import pathlib
import shutil
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.assets import file_list, transfers
from delta_sharing_client.fetch.place import DataRequest, Take
from delta_sharing_client.storage.local import LocalPlace
from tests.integration.test_downloads import content
from tests.time_limits import HANGS

QUICK = ds.ReadOptions(max_attempts=2, max_retry_seconds=1, progress=False)
PATHS = ("a.csv", "b.tmp", "drafts/c.csv", "drafts/deep/d.md", "reports/e.csv", "reports/f.tmp")
FILES = {path: path.rpartition("/")[2][0] for path in PATHS}
MODEL = {1: {"M": "1", "old": "1", "x.tmp": "1"}, 2: {"M": "2", "x.tmp": "2"}}


class Shared:
    """A volume whose files are in a local directory, and where it is downloaded to."""

    def __init__(self, client: ds.SharingClient, folder: pathlib.Path) -> None:
        self.volume, self.model = client.volume("s.d.v"), client.model("s.d.m")
        self.source, self.here, self.profile = folder / "source", folder / "here", folder / "profile.share"

    def local(self) -> dict[str, str]:
        return {path: data.decode() for path, data in content(self.here).items()}


@pytest.fixture
def shared(tmp_path: pathlib.Path) -> Iterator[Shared]:
    for path, text in FILES.items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_text(text)
    with (
        testing.running(volumes={"s.d.v": str(tmp_path / "source")}, models={"s.d.m": MODEL}) as server,
        ds.SharingClient(server.profile, options=QUICK) as client,
    ):
        (tmp_path / "profile.share").write_text(json.dumps(dict(server.profile)))
        yield Shared(client, tmp_path)


# --- patterns ---


@pytest.mark.parametrize(
    ("pattern", "exclude", "expected"),
    [
        (None, "*.tmp", ["a.csv", "drafts/c.csv", "drafts/deep/d.md", "reports/e.csv"]),
        (None, ["*.tmp", "drafts/**"], ["a.csv", "reports/e.csv"]),
        (["*.csv", "*.md"], (), ["a.csv", "drafts/c.csv", "drafts/deep/d.md", "reports/e.csv"]),
        (("*.csv", "drafts/**"), ["drafts/*.csv"], ["a.csv", "drafts/deep/d.md", "reports/e.csv"]),
        ("*.csv", "*", []),
        (None, [], sorted(FILES)),
    ],
)
def test_files_match_one_pattern_and_none_to_exclude(
    shared: Shared, pattern: Any, exclude: Any, expected: list[str]
) -> None:
    assert sorted(file.path for file in shared.volume.files("", pattern, exclude=exclude)) == expected
    assert sorted(shared.volume.download(shared.here, "", pattern, exclude=exclude).downloaded) == expected
    assert sorted(shared.local()) == expected


def test_names_match_as_in_the_standard_library(shared: Shared) -> None:
    for one in ("*.csv", "?.tmp", "[a-d].*", "*", "nothing"):
        for other in ("*.md", "[!a]*", "e.csv"):
            names = {path: path.rpartition("/")[2] for path in FILES}
            expected = {
                path for path, name in names.items()
                if fnmatch.fnmatchcase(name, one) and not fnmatch.fnmatchcase(name, other)
            }  # fmt: skip
            assert {file.path for file in shared.volume.files(pattern=one, exclude=other)} == expected


def test_paths_to_exclude_are_relative_to_the_directory(shared: Shared) -> None:
    assert [file.path for file in shared.volume.files("drafts", exclude="deep/**")] == ["drafts/c.csv"]
    assert shared.volume.download(shared.here, "drafts", exclude=["deep/**"]).downloaded == ("drafts/c.csv",)


@pytest.mark.parametrize("bad", [7, [7], [None], object()])
def test_malformed_patterns_are_refused(shared: Shared, bad: Any) -> None:
    for call in (lambda: shared.volume.files(pattern=bad), lambda: shared.volume.files(exclude=bad)):
        with pytest.raises(ds.UsageError, match="Expected a pattern such as"):
            call()
    with pytest.raises(ds.UsageError, match="Expected at least one pattern"):
        shared.volume.download(shared.here, pattern=[])
    assert not shared.here.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux only")
@pytest.mark.parametrize("in_memory", [0, 100])
def test_names_that_are_not_utf_8_are_kept(shared: Shared, monkeypatch: pytest.MonkeyPatch, in_memory: int) -> None:
    monkeypatch.setattr(file_list, "_IN_MEMORY", in_memory)
    name = os.fsencode(shared.source / "drafts") + b"/\xff\xe9 \\.bin"
    with open(name, "wb") as stream:
        stream.write(b"1")
    path = os.fsdecode(b"drafts/\xff\xe9 \\.bin")

    assert set(shared.volume.download(shared.here).downloaded) == {*FILES, path}
    assert shared.local() == {**FILES, path: "1"}
    assert shared.volume.download(shared.here).downloaded == ()
    os.unlink(name)
    assert shared.volume.download(shared.here, delete=True).removed == (path,)
    assert shared.local() == FILES


# --- delete and force ---


def test_delete_mirrors_the_volume(shared: Shared) -> None:
    shared.volume.download(shared.here)
    (shared.here / "own").write_text("of the user")
    (shared.here / "reports/e.csv").write_text("edited")
    for gone in ("a.csv", "drafts/c.csv", "reports/e.csv"):
        (shared.source / gone).unlink()
    (shared.source / "new").write_text("n")

    assert shared.volume.download(shared.here).removed == ()
    planned = shared.volume.download(shared.here, delete=True, dry_run=True)
    assert shared.local().keys() >= {"a.csv", "drafts/c.csv"}
    done = shared.volume.download(shared.here, delete=True)

    assert sorted(done.removed) == sorted(planned.removed) == ["a.csv", "drafts/c.csv"]
    kept = {path: text for path, text in FILES.items() if path not in done.removed}
    assert shared.local() == {**kept, "reports/e.csv": "edited", "own": "of the user", "new": "n"}
    assert shared.volume.download(shared.here, delete=True).removed == ()


def test_delete_removes_only_chosen_files(shared: Shared) -> None:
    shared.volume.download(shared.here)
    for gone in FILES:
        (shared.source / gone).unlink()
    (shared.source / "drafts/stays").write_text("1")
    (shared.source / "a.csv").write_text("a")

    assert shared.volume.download(shared.here, "drafts", "*.md", delete=True).removed == ("drafts/deep/d.md",)
    assert shared.volume.download(shared.here, "drafts", delete=True).removed == ("drafts/c.csv",)
    assert shared.volume.download(shared.here, "a.csv", delete=True).removed == ()
    assert shared.volume.download(shared.here, exclude=["reports/**"], delete=True).removed == ("b.tmp",)
    assert sorted(shared.volume.download(shared.here, delete=True).removed) == ["reports/e.csv", "reports/f.tmp"]
    assert shared.local() == {"a.csv": "a", "drafts/stays": "1"}


def test_emptied_volume_is_mirrored(shared: Shared) -> None:
    shared.volume.download(shared.here)
    shutil.rmtree(shared.source)
    shared.source.mkdir()

    assert sorted(shared.volume.download(shared.here, delete=True).removed) == sorted(FILES)
    assert shared.local() == {}


def test_files_that_a_choice_leaves_out_are_never_removed(shared: Shared) -> None:
    one, two = shared.model.version(1), shared.model.version(2)
    one.download(shared.here)
    assert two.download(shared.here, exclude="*.tmp").removed == ()
    assert two.download(shared.here, exclude="*.tmp", delete=True).removed == ("old",)
    assert shared.local() == {"M": "2", "x.tmp": "1"}


def test_force_downloads_unchanged_files(shared: Shared) -> None:
    shared.volume.download(shared.here)
    assert shared.volume.download(shared.here).downloaded == ()
    assert sorted(shared.volume.download(shared.here, force=True, dry_run=True).downloaded) == sorted(FILES)
    done = shared.volume.download(shared.here, pattern="*.csv", force=True)

    assert sorted(done.downloaded) == ["a.csv", "drafts/c.csv", "reports/e.csv"]
    assert done.unchanged == 0
    assert shared.local() == FILES


# --- coroutines ---


def test_asynchronous_methods_agree_with_the_others(shared: Shared, tmp_path: pathlib.Path) -> None:
    async def all_of_them() -> None:
        volume = shared.volume
        listed = [file async for file in volume.files_async("", ["*.csv", "*.tmp"], exclude="b.*")]
        assert listed == list(volume.files("", ["*.csv", "*.tmp"], exclude="b.*"))
        assert [file.path async for file in volume.files_async(recursive=False)] == ["a.csv", "b.tmp"]
        async with volume.files_async() as files:
            assert (await anext(files)).path in FILES
        with pytest.raises(ds.UsageError, match="was closed"):
            await anext(files)
        assert await volume.read_bytes_async("drafts/c.csv") == b"c"
        done = await volume.download_async(shared.here, exclude="*.tmp")
        assert sorted(done.downloaded) == sorted(path for path in FILES if not path.endswith(".tmp"))
        for call, error in (
            (volume.read_bytes_async("none"), ds.NotFoundError),
            (volume.read_bytes_async("drafts"), ds.NotFoundError),
            (volume.download_async(shared.here, "none"), ds.NotFoundError),
            (anext(volume.files_async("none")), ds.NotFoundError),
            (volume.download_async(shared.here, "../x"), ds.UsageError),
        ):
            with pytest.raises(error):
                await call

    asyncio.run(all_of_them())


def test_many_asynchronous_calls_run_at_once(shared: Shared) -> None:
    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(shared.volume.read_bytes_async(path) for path in FILES for _ in range(5)))

    assert asyncio.run(all_of_them()) == [text.encode() for text in FILES.values() for _ in range(5)]


class Held:
    """Requests for files that wait until they are released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.ended = threading.Event(), threading.Event()
        get = LocalPlace.get

        async def held(place: Any, request: DataRequest, take: Take) -> None:
            if request.address.endswith(".csv"):
                self.began.set()
                try:
                    await asyncio.sleep(HANGS)
                finally:
                    self.ended.set()
            await get(place, request, take)

        monkeypatch.setattr(LocalPlace, "get", held)


@pytest.mark.parametrize("dry_run", [True, False])
def test_asynchronous_download_takes_the_same_options(shared: Shared, dry_run: bool) -> None:
    shared.volume.download(shared.here)
    (shared.source / "drafts/c.csv").unlink()
    (shared.here / "drafts/deep/d.md").write_text("edited")
    options: Any = {"exclude": "*.tmp", "delete": True, "force": True, "dry_run": True}
    expected = shared.volume.download(shared.here, "drafts", ["*.csv", "*.md"], **options)
    options["dry_run"] = dry_run
    done = asyncio.run(shared.volume.download_async(shared.here, "drafts", ["*.csv", "*.md"], **options))
    assert (done.removed, done.downloaded) == (expected.removed, expected.downloaded)
    assert (done.removed, done.downloaded, done.dry_run) == (("drafts/c.csv",), ("drafts/deep/d.md",), dry_run)
    assert (shared.here / "drafts/c.csv").exists() is dry_run


@pytest.mark.parametrize("method", ["download_async", "read_bytes_async"])
def test_cancelled_task_ends_its_requests(shared: Shared, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    with monkeypatch.context() as patch:
        held = Held(patch)

        async def cancelled() -> None:
            volume = shared.volume
            call = (
                volume.download_async(shared.here) if method == "download_async" else volume.read_bytes_async("a.csv")
            )
            task = asyncio.ensure_future(call)
            assert await asyncio.to_thread(held.began.wait, HANGS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(held.ended.wait, HANGS)

        asyncio.run(cancelled())
    # The directory is free, and the next download completes this one.
    shared.volume.download(shared.here)
    assert shared.local() == FILES


def test_cancelled_listing_is_closed(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    began, page = threading.Event(), LocalPlace.page

    async def held(self: Any, *arguments: Any, **named: Any) -> Any:
        began.set()
        await asyncio.sleep(HANGS)
        return await page(self, *arguments, **named)

    monkeypatch.setattr(LocalPlace, "page", held)

    async def cancelled() -> None:
        files = shared.volume.files_async()
        task = asyncio.ensure_future(anext(files))
        assert await asyncio.to_thread(began.wait, HANGS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ds.UsageError, match="was closed"):
            await anext(files)

    asyncio.run(cancelled())


def test_cancelled_download_continues_with_its_parts(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PART_BYTES", 100_000)
    data = bytes(range(256)) * 4000
    (shared.source / "large.bin").write_bytes(data)
    asked: list[Any] = []
    get, waiting = LocalPlace.get, threading.Event()
    is_held = True

    async def held(place: Any, request: DataRequest, take: Take) -> None:
        asked.append(request.wanted)
        if is_held and request.wanted.stop == len(data):
            waiting.set()
            await asyncio.sleep(HANGS)
        await get(place, request, take)

    monkeypatch.setattr(LocalPlace, "get", held)

    async def cancelled() -> None:
        task = asyncio.ensure_future(shared.volume.download_async(shared.here, "large.bin"))
        assert await asyncio.to_thread(waiting.wait, HANGS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not (shared.here / "large.bin").exists()
    first, is_held = len(asked), False
    shared.volume.download(shared.here, "large.bin")
    assert (shared.here / "large.bin").read_bytes() == data
    assert len(asked) - first <= 7 < first
