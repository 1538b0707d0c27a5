"""File names on Linux, macOS and Windows: which are refused, and that no allowed one leads out of the directory."""

from __future__ import annotations

import ntpath
import os
import pathlib
import posixpath
import tempfile
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.assets import naming
from delta_sharing_client.assets.naming import Disk, ExistingCheck, PathCheck, check_paths
from delta_sharing_client.errors import UsageError
from tests import junctions
from tests.quota import meets, met


def all_alike(folder: str, one: str, other: str) -> bool:
    return True


LINUX, MACOS, WINDOWS = Disk(), Disk(are_same=all_alike), Disk(is_windows=True, are_same=all_alike)
ALL = [LINUX, MACOS, WINDOWS]


@pytest.mark.parametrize("disk", ALL)
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../a", "leads out"),
        ("a/../../b", "leads out"),
        ("a/..", "leads out"),
        ("/etc/passwd", "absolute"),
        ("a//b", "is empty or"),
        ("./a", "is empty or"),
        ("a/", "is empty or"),
        ("", "is empty or"),
        ("a\0b", "zero byte"),
        ("n" * 256, "longer than 255"),
        (".delta-sharing/files.jsonl", "reserved"),
        (".Delta-Sharing/x", "reserved"),
        (".delta-sharing ./x", "reserved"),
        (".delta\u200c-sharing/x", "reserved"),
        ("\ud800", "encoded"),
    ],
)
def test_file_names_invalid_on_every_system_are_refused(disk: Disk, path: str, problem: str) -> None:
    if path == "\ud800" and disk.is_windows:
        return
    with pytest.raises(UsageError, match=problem):
        check_paths(["fine", path], disk, "volume a.b.c")


@pytest.mark.parametrize(
    "path",
    [
        *("C:/a", "c:a", "a:stream", "..\\a", "\\\\host\\share\\x", "a\\b", "what?", "*", 'a"b', "a<b", "a|b", "a\tb"),
        *("con", "NUL.txt", "folder/aux", "COM1", "lpt9.tar.gz", "CONIN$", "com\u00b9", "nul .txt", "PRN."),
        *("a ", "a.", "dir./x", "dir /x", "..."),
    ],
)
def test_names_invalid_on_windows_are_refused_only_there(path: str) -> None:
    with pytest.raises(UsageError, match="cannot be stored here"):
        check_paths([path], WINDOWS, "volume a.b.c")
    check_paths([path], LINUX, "volume a.b.c")


@pytest.mark.parametrize(
    "path", ["console", "com", "com10", "nulled", ".hidden", "a.b c", "lpt", "auxiliary/con-1", "\u00e9"]
)
def test_other_names_are_allowed_on_windows(path: str) -> None:
    check_paths([path], WINDOWS, "volume a.b.c")


@pytest.mark.parametrize(
    ("paths", "disks"),
    [
        (["a", "a/b"], ALL),
        (["a/b", "a"], ALL),
        (["a/b/c", "a/b"], ALL),
        (["a/x", "a/b/c", "a/b"], ALL),
        (["Read.me", "README", "read.ME"], [MACOS, WINDOWS]),
        (["\u00e9", "e\u0301"], [MACOS, WINDOWS]),
        (["Dir/a", "dir/b"], [MACOS, WINDOWS]),
        (["x/Dir/a", "x/dir/b"], [MACOS, WINDOWS]),
        (["A", "a/b"], [MACOS, WINDOWS]),
        (["a/b", "A"], [MACOS, WINDOWS]),
        (["\ufb01", "fi"], [MACOS, WINDOWS]),
        (["a", "b/a", "b/c/a", "a b"], []),
    ],
)
def test_paths_that_name_the_same_file_are_refused(paths: list[str], disks: list[Disk]) -> None:
    for disk in ALL:
        if disk in disks:
            with pytest.raises(UsageError, match=r"cannot both be stored here"):
                check_paths(paths, disk, "volume a.b.c")
            with pytest.raises(UsageError, match=r"cannot both be stored here"):
                check_as_a_listing(paths, disk)
        else:
            check_paths(paths, disk, "volume a.b.c")
            check_as_a_listing(paths, disk)


def check_as_a_listing(paths: list[str], disk: Disk) -> None:
    check = PathCheck(disk, "volume a.b.c")
    for path in paths:
        check.add(path)
    check.check(paths)


@meets(allowed=20, refused=20)
@given(
    st.lists(
        st.lists(st.sampled_from(["a", "A", "b", "\u00e9", "e\u0301"]), min_size=1, max_size=3).map("/".join),
        max_size=5,
    )
)
def test_listing_on_disk_is_checked_like_paths_in_memory(paths: list[str]) -> None:
    # No name occurs twice in a store.
    paths = list(dict.fromkeys(paths))
    for disk in (LINUX, MACOS):
        try:
            check_paths(paths, disk, "volume a.b.c")
        except UsageError:
            met("refused")
            with pytest.raises(UsageError):
                check_as_a_listing(paths, disk)
        else:
            met("allowed")
            check_as_a_listing(paths, disk)


NAMES = st.text(st.sampled_from("ab.\\/: CON1\u00e9"), min_size=1, max_size=6)


@meets(allowed=20, refused=20)
@given(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.sampled_from(ALL))
def test_no_allowed_name_escapes_the_directory(path: str, disk: Disk) -> None:
    module = ntpath if disk.is_windows else posixpath
    root = "C:\\here" if disk.is_windows else "/here"
    try:
        check_paths([path], disk, "volume a.b.c")
    except UsageError:
        met("refused")
        return
    met("allowed")

    whole = module.normpath(module.join(root, *path.split("/")))
    # The oracle: how the operating system resolves the joined path.
    assert whole.startswith(root + module.sep)
    assert len(whole.split(module.sep)) == len(root.split(module.sep)) + len(path.split("/"))


def test_conflicts_with_existing_files_are_detected(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    root = tmp_path / "root"
    (root / "file").write_bytes(b"1")
    (root / "folder").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "link.txt").symlink_to(tmp_path / "file")
    check = ExistingCheck(root, "volume a.b.c")
    for path in ("file", "folder/x", "new/y"):
        check.add(path)

    for path, expected in [
        ("file/x", "expected a directory"),
        ("folder", "expected a file"),
        ("link/x", "found a link"),
        ("link/deep/x", "found a link"),
        ("link.txt", "found a link"),
    ]:
        with pytest.raises(UsageError, match=expected):
            check.add(path)


def test_junctions_of_windows_are_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "junction").symlink_to(tmp_path / "outside")
    junctions.imitate(monkeypatch.setattr)
    check = ExistingCheck(tmp_path, "volume a.b.c")
    check.add("other/x")
    with pytest.raises(UsageError, match="found a link"):
        check.add("junction/x")


@pytest.fixture
def mount(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], str]], pathlib.Path]:
    """Mounts a disk on which all names with the same key are one, in a directory that distinguishes them."""

    def mounted(key: Callable[[str], str]) -> pathlib.Path:
        root = tmp_path / "Mount"
        root.mkdir()

        def inside(path: Any) -> Any:
            text = os.fspath(path) if not isinstance(path, int) else ""
            below = text.startswith(f"{root}/")
            return f"{root}/" + "/".join(map(key, text[len(f"{root}/") :].split("/"))) if below else path

        for name in ("stat", "lstat", "open", "mkdir", "rmdir", "unlink", "listdir", "scandir"):
            real = getattr(os, name)
            monkeypatch.setattr(os, name, lambda path, *more, _real=real, **named: _real(inside(path), *more, **named))
        return root

    return mounted


@pytest.mark.parametrize(
    ("key", "one", "other"),
    [
        (str.lower, "Weights.bin", "weights.bin"),
        (str.casefold, "stra\u00dfe", "STRASSE"),
        (lambda name: unicodedata.normalize("NFD", name), "\u00e9", "e\u0301"),
        (lambda name: name.rstrip(" ."), "a.", "a"),
        (lambda name: name.rstrip(" ."), "dir ", "dir"),
        (lambda name: name.replace("\u200c", ""), "a\u200cb", "ab"),
    ],
)
@pytest.mark.parametrize("below", ["", "new", "old", "old/new"])
def test_mount_point_decides_which_names_are_the_same(
    mount: Callable[[Callable[[str], str]], pathlib.Path],
    key: Callable[[str], str],
    one: str,
    other: str,
    below: str,
) -> None:
    root = mount(key)
    (root / "old").mkdir()
    before = sorted(root.rglob("*"))
    disk = Disk.of(root / below)
    for paths in ([one, other], [f"x/{one}", f"x/{other}"], [f"{one}/x", f"{other}/y"], [f"{one}/x", other]):
        with pytest.raises(UsageError, match="cannot both be stored here") as caught:
            check_as_a_listing(paths, disk)
        assert repr(paths[1]) in str(caught.value)
        check_as_a_listing(paths, Disk.of(root.parent))
    assert sorted(root.rglob("*")) == before


def test_disk_that_distinguishes_names_is_asked_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created = []
    real = tempfile.TemporaryDirectory
    monkeypatch.setattr(naming.tempfile, "TemporaryDirectory", lambda **named: created.append(1) or real(**named))
    names = [f"{number}-{letter}" for number in range(50) for letter in "aA"]
    check_as_a_listing([*names, "deep/b", "deep/B"], Disk.of(tmp_path / "not" / "there"))

    assert len(created) == 1
    assert list(tmp_path.iterdir()) == []
    check_as_a_listing(["a", "b", "c"], Disk.of(tmp_path))
    assert len(created) == 1


def test_dry_run_creates_nothing_to_learn_about_the_disk(
    mount: Callable[[Callable[[str], str]], pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mount(str.lower)
    (root / "entry").write_bytes(b"")
    monkeypatch.setattr(naming.tempfile, "TemporaryDirectory", None)
    with pytest.raises(UsageError, match="cannot both be stored here"):
        check_as_a_listing(["a", "A"], Disk.of(root, may_write=False))
    check_as_a_listing(["a", "A"], Disk.of(root.parent, may_write=False))


def test_file_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"lists the file 'a/b' .* twice"):
        check_as_a_listing(["a/b", "a/c", "a/b"], LINUX)


@pytest.mark.parametrize("name", ["DELTA-~1", "delta-~2", "DE3F0A~1"])
def test_short_names_of_the_state_folder_are_reserved(name: str) -> None:
    with pytest.raises(UsageError, match="reserved"):
        check_paths([f"{name}/files.jsonl"], WINDOWS, "volume a.b.c")
