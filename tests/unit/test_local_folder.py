"""Entries of a local directory are reached without following links, also where the system has no descriptors of
directories."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest

from delta_sharing_client import local_folder
from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_folder import LocalFolder, is_link, kind_of

POSIX = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX only")


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def root(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LocalFolder]:
    if request.param and not local_folder.BY_DESCRIPTOR:
        pytest.skip("this system has no descriptors of directories")
    monkeypatch.setattr(local_folder, "BY_DESCRIPTOR", request.param)
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "mine").write_bytes(b"mine")
    with LocalFolder.open(tmp_path / "root") as folder:
        yield folder


@pytest.fixture
def here(root: LocalFolder) -> pathlib.Path:
    return pathlib.Path(root.path)


@pytest.fixture
def outside(here: pathlib.Path) -> Iterator[pathlib.Path]:
    folder = here.parent / "outside"
    yield folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"mine": b"mine"}


def written(folder: LocalFolder, name: str, data: bytes) -> None:
    descriptor = folder.create_file(name)
    os.write(descriptor, data)
    os.close(descriptor)


def test_files_are_created_moved_and_removed(root: LocalFolder, here: pathlib.Path) -> None:
    with root.below(["a", "b"], create=True) as inner:
        written(root, "x", b"one")
        root.set_time("x", 1_000_000_000.5)
        root.move("x", inner, "y")
        inner.sync()
        assert inner.names() == ["y"]
        facts = inner.stat("y")
        assert facts is not None
        assert (facts.st_size, facts.st_mtime) == (3, 1_000_000_000.5)
        assert (here / "a/b/y").read_bytes() == b"one"
        inner.unlink("y")
        inner.unlink("y")
        assert inner.stat("y") is None
    with root.folder("a") as parent:
        parent.rmdir("b")
        parent.rmdir("b")
    assert root.names() == ["a"]
    with pytest.raises(FileNotFoundError):
        root.folder("none")
    with pytest.raises(FileNotFoundError):
        root.open_file("none", os.O_RDONLY)


def test_link_to_the_root_is_followed(here: pathlib.Path, root: LocalFolder) -> None:
    (here.parent / "link").symlink_to(here)
    with LocalFolder.open(here.parent / "link") as same, same.below(()) as again:
        written(again, "x", b"1")
    assert (here / "x").exists()


@pytest.mark.parametrize(
    "use",
    [
        lambda root: root.folder("link"),
        lambda root: root.folder("link", create=True),
        lambda root: root.below(["link", "deep"], create=True),
        lambda root: root.below(["real", "link"], create=True),
        lambda root: root.open_file("link", os.O_RDONLY),
        lambda root: root.open_file("file link", os.O_RDWR),
        lambda root: root.open_file("file link", os.O_WRONLY | os.O_APPEND | os.O_CREAT),
        lambda root: root.open_file("dangling", os.O_RDWR | os.O_CREAT),
    ],
)
def test_links_are_refused(
    root: LocalFolder, here: pathlib.Path, outside: pathlib.Path, use: Callable[[LocalFolder], object]
) -> None:
    (here / "link").symlink_to(outside, target_is_directory=True)
    (here / "real").mkdir()
    (here / "real" / "link").symlink_to(outside, target_is_directory=True)
    (here / "file link").symlink_to(outside / "mine")
    (here / "dangling").symlink_to(outside / "new")

    with pytest.raises(UsageError, match="found a link"):
        use(root)


def test_replacing_and_removing_a_link_keeps_its_target(
    root: LocalFolder, here: pathlib.Path, outside: pathlib.Path
) -> None:
    for name in ("one", "two", "three"):
        (here / name).symlink_to(outside / "mine")
    written(root, "one", b"new")
    root.unlink("two")
    written(root, "x", b"moved")
    root.move("x", root, "three")

    assert {path.name: path.read_bytes() for path in here.iterdir()} == {"one": b"new", "three": b"moved"}
    assert not any(path.is_symlink() for path in here.iterdir())


def test_new_file_keeps_the_content_of_a_hard_link(
    root: LocalFolder, here: pathlib.Path, outside: pathlib.Path
) -> None:
    os.link(outside / "mine", here / "x")
    written(root, "x", b"new")

    assert (here / "x").read_bytes() == b"new"


@POSIX
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND | os.O_CREAT])
def test_named_pipe_is_refused_without_waiting(root: LocalFolder, here: pathlib.Path, flags: int) -> None:
    os.mkfifo(here / "pipe")
    with pytest.raises(UsageError, match=r"Expected a file or nothing at .*pipe', found something else"):
        root.open_file("pipe", flags)
    with pytest.raises(UsageError, match="found something else"):
        root.folder("pipe", create=True)


def test_directories_and_files_are_told_apart(root: LocalFolder, here: pathlib.Path) -> None:
    (here / "folder").mkdir()
    (here / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="found a directory"):
        root.open_file("folder", os.O_RDWR)
    with pytest.raises(UsageError, match="found a file"):
        root.folder("file", create=True)
    with pytest.raises(UsageError, match="found a file"):
        root.below(["file", "x"], create=True)


def test_directory_that_a_link_replaces_is_not_left(
    root: LocalFolder, here: pathlib.Path, outside: pathlib.Path
) -> None:
    with root.folder("a", create=True) as folder:
        (here / "a").rename(here / "b")
        (here / "a").symlink_to(outside, target_is_directory=True)
        if local_folder.BY_DESCRIPTOR:
            written(folder, "x", b"1")
            assert (here / "b/x").read_bytes() == b"1"
        else:
            for use in (lambda: written(folder, "x", b"1"), lambda: folder.unlink("mine"), folder.names):
                with pytest.raises(UsageError, match="was replaced while it was used"):
                    use()


def test_directory_replaced_after_its_check_is_refused(
    root: LocalFolder, here: pathlib.Path, outside: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a").mkdir()
    check = LocalFolder.stat

    def late(folder: LocalFolder, name: str) -> os.stat_result | None:
        facts = check(folder, name)
        (here / "a").rename(here / "b")
        (here / "a").symlink_to(outside, target_is_directory=True)
        return facts

    monkeypatch.setattr(LocalFolder, "stat", late)
    with pytest.raises(UsageError, match="was replaced while it was used"), root.folder("a") as folder:
        folder.names()


def test_directory_without_permission_to_list_is_usable(root: LocalFolder, here: pathlib.Path) -> None:
    (here / "a").mkdir()
    (here / "a").chmod(0o300)
    try:
        with root.folder("a") as folder:
            written(folder, "x", b"1")
            assert folder.stat("x") is not None
    finally:
        (here / "a").chmod(0o700)


def test_junctions_of_windows_are_links() -> None:
    class Facts:
        st_mode = stat.S_IFDIR | 0o777
        st_reparse_tag = 0

    facts = Facts()
    assert kind_of(facts) == "a directory"  # type: ignore[arg-type]
    # https://learn.microsoft.com/windows/win32/fileio/reparse-point-tags: a mount point, a link, a file of OneDrive
    for tag, expected in ((0xA0000003, True), (0xA000000C, True), (0x9000001A, False)):
        facts.st_reparse_tag = tag
        assert is_link(facts) is expected  # type: ignore[arg-type]
