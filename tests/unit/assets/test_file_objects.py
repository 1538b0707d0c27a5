"""Open files, listings and facts about files send the requests that are needed, and no request outlives them."""

from __future__ import annotations

import asyncio
import pickle
import tempfile
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest

from delta_sharing_client.assets import file_list, stream
from delta_sharing_client.assets.directory import Directory, Opening
from delta_sharing_client.assets.file_list import FileList
from delta_sharing_client.assets.stream import FileStream, OpenFile
from delta_sharing_client.errors import DataError, NotFoundError, UsageError
from delta_sharing_client.fetch.place import Page, Span, StoredFile, Version
from delta_sharing_client.fetch.source import Stale
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.protocol.asset_kinds import VOLUME, AssetRef
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.run import loop
from tests.places import Scripted, Sent
from tests.time_limits import HANGS

DATA = bytes(range(100))
FILE = StoredFile("folder/a", len(DATA), etag='"1"')
TAG = Version('"1"', "", None)


class Blocks:
    """Has the bytes of one file, and notes the ranges that a stream reads. Ranges from ``stuck`` on never arrive.
    After ``replaced`` reads, the file has another version."""

    def __init__(self, stuck: int = len(DATA), *, replaced: int = 1000) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.replaced = replaced
        self.stuck, self.waits, self.cancelled = stuck, threading.Event(), threading.Event()

    async def read(self, path: str, file: StoredFile, wanted: ByteRange, *, once: bool = False) -> memoryview:
        assert (path, file) == (FILE.path, FILE)
        self.ranges.append((wanted.start, wanted.stop))
        if once and len(self.ranges) > self.replaced:
            raise Stale("it was replaced")
        if wanted.start >= self.stuck:
            self.waits.set()
            try:
                await asyncio.sleep(HANGS)
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return memoryview(DATA)[wanted.start : wanted.stop]

    def open(self) -> FileStream:
        return FileStream(self, FILE)  # type: ignore[arg-type]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_FIRST_BLOCK", 4)
    monkeypatch.setattr(stream, "_LARGEST_BLOCK", 16)


@pytest.mark.parametrize(
    ("steps", "ranges"),
    [
        ([], []),
        ([(0, 1), (1, 3)], [(0, 4)]),
        # A sequential read doubles its blocks up to the largest one, and requests the next one in advance.
        ([(0, 4), (4, 1)], [(0, 4), (4, 12), (12, 20)]),
        ([(0, 4), (4, 8), (12, 1)], [(0, 4), (4, 12), (12, 20), (20, 36)]),
        (
            [(0, 4), (4, 8), (12, 8), (20, 16), (36, 16), (52, 16), (68, 16), (84, 16)],
            [(0, 4), (4, 12), (12, 20), (20, 36), (36, 52), (52, 68), (68, 84), (84, 100)],
        ),
        # After a seek, little is read, and nothing in advance.
        ([(50, 2), (90, 2), (10, 1)], [(50, 54), (90, 94), (10, 14)]),
        ([(0, 4), (4, 8), (50, 1), (54, 1)], [(0, 4), (4, 12), (12, 20), (50, 54), (54, 62), (62, 70)]),
        ([(98, 2), (100, 1)], [(98, 100)]),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_reads_at_positions_request_these_blocks(steps: list[tuple[int, int]], ranges: list[tuple[int, int]]) -> None:
    blocks = Blocks()
    with blocks.open() as file:
        for at, length in steps:
            file.seek(at)
            assert file.read(length) == DATA[at : at + length]
        # A request in advance may begin a moment later than the read that asked for it.
        loop.call(asyncio.sleep(0))
    assert blocks.ranges == ranges


@pytest.mark.usefixtures("small_blocks")
def test_rest_of_a_file_is_read_in_one_request() -> None:
    blocks = Blocks()
    with blocks.open() as file:
        assert (file.read(2), file.read(), file.tell()) == (DATA[:2], DATA[2:], 100)
        assert (file.seek(200), file.read(), file.tell()) == (200, b"", 200)
        assert (file.seek(100), file.read(), file.seek(0, 2), file.seek(-2, 1)) == (100, b"", 100, 98)
    assert blocks.ranges == [(0, 4), (4, 100)]


@pytest.mark.usefixtures("small_blocks")
def test_file_of_another_version_is_read_whole_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first response shows it: the whole file is read, once.
    blocks = Blocks(replaced=0)
    with blocks.open() as file:
        file.seek(90)
        assert file.read(4) == DATA[90:94]
        file.seek(2)
        assert (file.read(2), file.readall()) == (DATA[2:4], DATA[4:])
    assert blocks.ranges == [(90, 94), (0, 100)]
    # Bytes of the first version were returned.
    with Blocks(replaced=1).open() as file:
        assert file.read(4) == DATA[:4]
        with pytest.raises(DataError, match="replaced") as caught:
            file.read(4)
    assert type(caught.value) is DataError
    monkeypatch.setattr(stream, "MOST_IN_ONE_RESPONSE", len(DATA) - 1)
    with Blocks(replaced=0).open() as file, pytest.raises(DataError, match="replaced") as caught:
        file.read(4)
    assert type(caught.value) is DataError


@pytest.mark.parametrize("end", ["close", "seek"])
@pytest.mark.usefixtures("small_blocks")
def test_request_in_advance_is_cancelled(end: str) -> None:
    blocks = Blocks(stuck=12)
    file = blocks.open()
    assert file.read(4) + file.read(4) == DATA[:8]
    assert blocks.waits.wait(HANGS)
    if end == "close":
        file.close()
    else:
        file.seek(0)
        assert file.read(1) == DATA[:1]
    assert blocks.cancelled.wait(HANGS)
    file.close()


@pytest.mark.usefixtures("small_blocks")
def test_closing_ends_the_request_of_another_thread() -> None:
    blocks = Blocks(stuck=0)
    file, failures = OpenFile(blocks.open()), []

    def read() -> None:
        try:
            file.read(1)
        except UsageError as error:
            failures.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    assert blocks.waits.wait(HANGS)
    file.close()
    thread.join(HANGS)
    assert blocks.cancelled.wait(HANGS)
    assert "folder/a" in failures[0]


# === Directories ===


class Hanging(Scripted):
    """A place whose answers hang once the scripted ones are used up."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(answers)
        self.waits, self.cancelled = threading.Event(), threading.Event()

    async def _hang(self) -> None:
        self.waits.set()
        try:
            await asyncio.sleep(HANGS)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise

    async def get(self, *values: Any) -> None:
        await (super().get(*values) if self.answers else self._hang())

    async def page(self, *values: Any, **more: Any) -> Page:
        if not self.answers:
            await self._hang()
        return await super().page(*values, **more)


def directory_of(place: Any) -> Directory:
    ref = AssetRef(VOLUME, AssetName("a", "b", "c"))
    opening = Opening()
    opening.place(lambda: place)
    asset: Any = types.SimpleNamespace(_ref=ref, options=ReadOptions(), _opening=opening)
    return Directory(asset)


def sent(data: bytes, size: int) -> Sent:
    return Sent(Span(0, len(data), size), data, TAG)


def test_facts_about_a_file_come_from_its_first_byte() -> None:
    place = Scripted([sent(b"a", 9)])
    assert directory_of(place).stat("folder/a") == StoredFile("folder/a", 9, etag='"1"')
    assert place.asked == [("folder/a", ByteRange(0, 1), None)]
    without_tag = Sent(Span(0, 1, 9), b"a", Version())
    assert directory_of(Scripted([without_tag])).stat("folder/a").etag is None


@pytest.mark.parametrize("is_directory", [False, True])
def test_empty_file_is_a_file_unless_it_marks_a_directory(is_directory: bool) -> None:
    below = [StoredFile("folder/a/b", 1)] if is_directory else []
    place = Scripted([416, sent(b"", 0), Page(below, [])])
    if is_directory:
        with pytest.raises(NotFoundError):
            directory_of(place).stat("folder/a")
    else:
        assert directory_of(place).stat("folder/a").size == 0
    assert place.asked[2] == ("folder/a", None, False)


def test_cancelled_task_ends_the_request_for_a_file() -> None:
    place = Hanging([])

    async def cancel() -> None:
        task = asyncio.ensure_future(loop.asynchronously(lambda: directory_of(place).read_bytes("a")))
        assert await asyncio.to_thread(place.waits.wait, HANGS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert place.cancelled.wait(HANGS)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_closed_listing_ends_the_request_for_the_next_page(end: str) -> None:
    place = Hanging([Page([StoredFile("a", 1)], [], next="1")])
    files = directory_of(place).files()
    assert next(files).path == "a"
    assert place.waits.wait(HANGS)
    if end == "close":
        files.close()
        with pytest.raises(UsageError, match="was closed"):
            next(files)
        assert place.cancelled.wait(HANGS)
    del files
    assert place.cancelled.wait(HANGS)


@pytest.mark.parametrize(("pattern", "expected"), [("a", ["folder/a"]), ("folder/a", []), ("*", ["folder/a"])])
def test_listing_of_a_file_matches_its_name(pattern: str, expected: list[str]) -> None:
    place = Scripted([Page([], []), sent(b"a", 9)])
    assert [file.path for file in directory_of(place).files("folder/a", pattern)] == expected


def test_folder_of_folders_is_no_file() -> None:
    place = Scripted([Page([], ["folder/deep"])])
    assert [*directory_of(place).files("folder", recursive=False)] == []
    assert place.asked == [("folder", None, False)]


def test_pickled_place_is_used_without_opening_it_again() -> None:
    opening = Opening()
    opening.place(lambda: "the place")  # type: ignore[arg-type, return-value]
    unopened: Callable[[], Any] = lambda: "another"  # noqa: E731
    assert pickle.loads(pickle.dumps(opening)).place(unopened) == "the place"
    assert pickle.loads(pickle.dumps(Opening())).place(unopened) == "another"


# === Long lists ===


def test_files_after_the_first_are_in_a_temporary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_list, "_IN_MEMORY", 2)
    opened: list[Any] = []
    real = tempfile.TemporaryFile

    def temporary(buffering: int) -> Any:
        opened.append(real(buffering=buffering))
        return opened[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", temporary)
    # The third name is not UTF-8, and one begins with the character that marks such a name.
    files = [
        StoredFile(name, size, etag=f'"{size}"') for size, name in enumerate(["a", "\\b", "c\udcff", "\\d", "e\n"])
    ]
    listed = FileList()
    for count, file in enumerate(files, start=1):
        listed.add(file)
        assert (listed.count, len(opened)) == (count, int(count > 2))
    assert [*listed] == [*listed] == files
    assert listed.bytes == 10
    listed.close()
    assert opened[0].closed
