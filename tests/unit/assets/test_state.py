"""The state of downloads never leads them to files that they did not write, and survives kills at every step."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delta_sharing_client import local_folder, part_file
from delta_sharing_client.assets import written_files
from delta_sharing_client.assets.state import Origin, State
from delta_sharing_client.assets.written_files import WrittenFile, line_of
from delta_sharing_client.errors import UsageError

NOTE = WrittenFile("a" * 32, "1" * 32, '"1"', 3, 5)
OURS, THEIRS = Origin("a" * 32, "1" * 32), Origin("b" * 32, "2" * 32)
LARGE = bytes(range(200))
FILES = {"x": b"one", "deep/er/y": b"two", "large": LARGE}
STATE = ".delta-sharing"


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def here(request: pytest.FixtureRequest, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    if request.param and not local_folder.BY_DESCRIPTOR:
        pytest.skip("this system has no descriptors of directories")
    monkeypatch.setattr(local_folder, "BY_DESCRIPTOR", request.param)
    monkeypatch.setattr(part_file, "RECORD_BYTES", 16)
    return tmp_path / "here"


@pytest.fixture
def outside(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    folder = tmp_path / "outside"
    (folder / "0").mkdir(parents=True)
    for name in ("mine", "0/file", f"{OURS.asset[:16]}-{'0' * 32}"):
        (folder / name).write_bytes(b"mine")
    yield folder
    assert content(folder) == dict.fromkeys(("mine", "0/file", f"{OURS.asset[:16]}-{'0' * 32}"), b"mine")


def content(folder: pathlib.Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and STATE not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def download(here: pathlib.Path, files: dict[str, bytes] = FILES, origin: Origin = OURS, mirror: bool = False) -> None:
    """Do what a download does, in one thread."""
    state = State(here, origin)
    with state.writing():
        state.drop_parts({(path, etag_of(data), len(data)) for path, data in files.items() if len(data) > 100})
        for path, data in files.items():
            if state.is_noted(path, etag_of(data), len(data)):
                continue
            is_large = len(data) > 100
            etag = etag_of(data)
            if not is_large:
                state.store(0, memoryview(data), path, etag, 1_000_000_000.0)
                continue
            with state.large(path, etag, len(data), "md5") as part:
                for start, stop in part.missing:
                    for at in range(start, stop, 10):
                        part.write(at, data[at : min(stop, at + 10)])
                assert part.digest() == hashlib.md5(data).digest()
                state.finish(part, path, etag, 1_000_000_000.0)
        for path in list(state.written()):
            if mirror and path not in files:
                assert state.remove(path)


def written(here: pathlib.Path) -> list[str]:
    with contextlib.closing(State(here, OURS)) as state:
        return sorted(state.written())


def etag_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def notes_of(here: pathlib.Path) -> list[list[Any]]:
    return [json.loads(line) for line in (here / STATE / "files.jsonl").read_bytes().splitlines()]


# --- links ---


def _replaced(path: pathlib.Path) -> pathlib.Path:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


PLACES = [
    "",
    "lock",
    "files.jsonl",
    "files.jsonl.new",
    "parts",
    "parts/0",
    "parts/0/file",
    "parts/LARGE",
    "parts/LARGE.done",
    f"parts/{OURS.asset[:16]}-{'0' * 32}",
]
FORMS: dict[str, Callable[[pathlib.Path, pathlib.Path], None]] = {
    "link to a directory": lambda path, outside: path.symlink_to(outside, target_is_directory=True),
    "link to a file": lambda path, outside: path.symlink_to(outside / "mine"),
    "link to nothing": lambda path, outside: path.symlink_to(outside / "new"),
    "hard link": lambda path, outside: os.link(outside / "mine", path),
    "directory": lambda path, outside: path.mkdir(),
    "named pipe": lambda path, outside: os.mkfifo(path),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_nothing_in_the_state_folder_leads_outside(
    here: pathlib.Path, outside: pathlib.Path, place: str, form: str
) -> None:
    download(here, {"x": b"old", "gone": b"old"})
    interrupted(here)
    (part,) = (path for path in (here / STATE / "parts").iterdir() if path.suffix == "" and len(path.name) == 49)
    path = here / STATE / place.replace("LARGE", part.name)
    FORMS[form](_replaced(path), outside)

    with contextlib.suppress(UsageError):
        download(here, mirror=True)
    assert {name: data for name, data in content(here).items() if name in FILES and data != b"old"}.items() <= (
        FILES.items()
    )
    # The dry run reads only.
    with contextlib.suppress(UsageError):
        written(here)
    _replaced(here / STATE)
    download(here)
    assert content(here).items() >= FILES.items()


def interrupted(here: pathlib.Path) -> None:
    """Leave an incomplete large file behind, as a process that was killed does."""
    state = State(here, OURS)
    with contextlib.suppress(KeyboardInterrupt), state.writing():
        with state.large("large", etag_of(LARGE), len(LARGE), None) as part:
            part.write(0, LARGE[:50])
        (here / STATE / "parts/0").mkdir(exist_ok=True)
        (here / STATE / "parts/0/file").write_bytes(b"x")
        raise KeyboardInterrupt


@pytest.mark.parametrize("linked", ["deep", "deep/er", "deep/er/y"])
def test_links_beside_the_state_are_not_followed(here: pathlib.Path, outside: pathlib.Path, linked: str) -> None:
    here.mkdir()
    (here / linked).parent.mkdir(parents=True, exist_ok=True)
    (here / linked).symlink_to(outside / "mine" if linked.endswith("y") else outside)

    with pytest.raises(UsageError, match="found a link"):
        download(here)


@pytest.mark.parametrize("linked", ["deep", "deep/er", "deep/er/y"])
def test_removal_does_not_follow_a_link(here: pathlib.Path, tmp_path: pathlib.Path, linked: str) -> None:
    download(here)
    (here / linked).rename(tmp_path / "moved")
    (here / linked).symlink_to(tmp_path / "moved")

    assert written(here) == ["large", "x"]
    download(here, {}, mirror=True)

    assert (tmp_path / "moved" / {"deep": "er/y", "deep/er": "y", "deep/er/y": ""}[linked]).read_bytes() == b"two"
    assert (here / linked).is_symlink()


def test_copy_of_the_directory_by_hard_links_stays(here: pathlib.Path, tmp_path: pathlib.Path) -> None:
    download(here)
    interrupted(here)
    shutil.copytree(here, tmp_path / "backup", copy_function=os.link)
    before = {path: path.read_bytes() for path in (tmp_path / "backup").rglob("*") if path.is_file()}
    download(here, {**FILES, "x": b"new", "large": LARGE[::-1]})

    assert {path: path.read_bytes() for path in (tmp_path / "backup").rglob("*") if path.is_file()} == before
    assert content(here) == {**FILES, "x": b"new", "large": LARGE[::-1]}


def test_directory_that_is_the_state_folder_is_refused(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # FAT has further names for a directory. Here another path leads to it.
    folder = local_folder.LocalFolder.folder
    monkeypatch.setattr(
        local_folder.LocalFolder,
        "folder",
        lambda self, name, **more: folder(self, {"~1": STATE}.get(name, name), **more),
    )
    with pytest.raises(UsageError, match="reserved"):
        download(here, {"~1/files.jsonl": b"x"})


# --- who wrote what ---


def test_only_files_of_the_asset_are_removed(here: pathlib.Path) -> None:
    download(here, {"ours": b"1", "both": b"1", "edited": b"1"}, OURS)
    download(here, {"theirs": b"2", "both": b"2"}, THEIRS)
    (here / "edited").write_bytes(b"3")
    (here / "own").write_bytes(b"4")

    download(here, {}, OURS, mirror=True)
    assert content(here) == {"theirs": b"2", "both": b"2", "edited": b"3", "own": b"4"}
    # Another version of a model has other locations, but is the same asset.
    download(here, {}, Origin(THEIRS.asset, "3" * 32), mirror=True)
    assert content(here) == {"edited": b"3", "own": b"4"}
    download(here, {}, OURS, mirror=True)
    assert content(here) == {"edited": b"3", "own": b"4"}


def test_file_that_was_here_before_is_not_ours(here: pathlib.Path) -> None:
    here.mkdir()
    (here / "x").write_bytes(b"one")
    state = State(here, OURS)
    with state.writing():
        local = state.local("x")
        assert local is not None
        state.verified("x", "etag", local)
    with contextlib.closing(State(here, OURS)) as state:
        assert state.is_noted("x", "etag", 3)
    download(here, {}, mirror=True)
    assert content(here) == {"x": b"one"}

    # A file that a download wrote remains one, although its time changed.
    download(here, {"y": b"two"})
    os.utime(here / "y", (1, 1))
    state = State(here, OURS)
    with state.writing():
        local = state.local("y")
        assert local is not None
        state.verified("y", "etag", local)
    download(here, {}, mirror=True)
    assert content(here) == {"x": b"one"}


def test_parts_of_another_asset_stay(here: pathlib.Path) -> None:
    interrupted(here)
    download(here, {"other": b"1"}, THEIRS)
    state = State(here, OURS)
    with state.writing(), state.large("large", etag_of(LARGE), len(LARGE), None) as part:
        assert part.missing == [(50, 200)]
    assert sorted(path.name for path in (here / STATE).iterdir()) == ["files.jsonl", "lock"]


def test_files_of_another_program_in_the_folder_stay(here: pathlib.Path) -> None:
    for name in ("notes.txt", "parts/notes.txt", "parts/0/notes.txt"):
        (here / STATE / name).parent.mkdir(parents=True, exist_ok=True)
        (here / STATE / name).write_bytes(b"mine")
    download(here)
    interrupted(here)
    download(here)

    found = {path.relative_to(here / STATE).as_posix() for path in (here / STATE).rglob("*") if path.is_file()}
    assert found == {"files.jsonl", "lock", "notes.txt", "parts/notes.txt", "parts/0/notes.txt"}


# --- lines of the notes ---


@pytest.mark.parametrize(
    "path",
    [
        "../out",
        "/ABSOLUTE",
        "a/../../out",
        "a/..",
        "..",
        ".",
        "",
        "a//out",
        "./out",
        "a/",
        "\0",
        f"{STATE}/lock",
        "n" * 256,
        "\ud800",
        ".DELTA-sharing/lock",
    ],
)
def test_note_that_leads_elsewhere_is_ignored(here: pathlib.Path, tmp_path: pathlib.Path, path: str) -> None:
    (here / STATE).mkdir(parents=True)
    (here / "a").mkdir()
    for mine in (tmp_path / "out", here / "out", here / STATE / "lock"):
        mine.write_bytes(b"mine")
    path = path.replace("/ABSOLUTE", str(tmp_path / "out"))
    facts = (tmp_path / "out").stat()
    for mine in (here / "out", here / STATE / "lock"):
        os.utime(mine, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    (here / STATE / "files.jsonl").write_text(json.dumps([path, *OURS, "e", 4, facts.st_mtime_ns]) + "\n")

    assert written(here) == []
    download(here, {}, mirror=True)
    assert (tmp_path / "out").exists()
    assert content(here) == {"out": b"mine"}
    assert notes_of(here) == []


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b'{"x": 1}', b"[1]", b"\xff", b'"x"', b"[]", b"null", b"[null, 1, 2, 3, 4, 5]", b"[" * 100_000),
        *(b'["x", "a", "s", "e", "3", 4]', b'["x", "a", "s", "e", true, 4]', b'["x", "a", "s", "e", 3.0, 4]'),
        *(b'["x", ["a"], "s", "e", 3, 4]', b'["x", "a", "s", "e", -3, 4]', b'["x", "a", "s", "e", 3]'),
        *(b'["x", "a", "s", "e", 3, 4, 5]', b'["' + b"x" * 200_000 + b'", "a", "s", "e", 3, 4]'),
    ],
    ids=lambda line: line[:20].decode(errors="replace") or "empty",
)
def test_line_that_no_download_wrote_is_ignored(here: pathlib.Path, line: bytes) -> None:
    (here / STATE).mkdir(parents=True)
    good = line_of("y", WrittenFile(*OURS, "e", 3, 4))
    (here / STATE / "files.jsonl").write_bytes(line + b"\n" + good + line)

    with contextlib.closing(State(here, OURS)) as state:
        assert [path for path, _ in state.written_files] == ["y"]
    download(here, {"x": b"one"})
    assert [note[0] for note in notes_of(here)] == ["y", "x"]


# --- kills ---

_CALLS = ("open", "mkdir", "replace", "unlink", "rmdir", "write", "pwrite", "truncate", "utime")


class _Killed(BaseException):
    """The process was killed: from here on, it changes nothing."""


@contextlib.contextmanager
def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """End everything at the call with this number that changes a file."""
    calls: list[str] = []

    def counted(name: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            is_change = name != "open" or bool(arguments[1] & os.O_CREAT)
            if is_change:
                calls.append(name)
                if len(calls) > number:
                    raise _Killed
            return real(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        yield calls


def test_kill_at_any_step_loses_and_damages_nothing(
    here: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"x": b"old", "gone/z": b"old", "large": LARGE[::-1]}
    steps = set()
    for number in itertools.count():
        folder = here / str(number)
        download(folder, old)
        download(folder, {"theirs": b"1"}, THEIRS)
        (folder / "own").write_bytes(b"mine")
        before = content(folder)
        with killed_at(number, monkeypatch) as calls:
            try:
                download(folder, FILES, mirror=True)
            except _Killed:
                is_killed = True
            else:
                is_killed = False
        between = content(folder)
        assert {name: data for name, data in between.items() if data != FILES.get(name)}.items() <= before.items()
        assert {"theirs", "own"} <= set(between)
        steps.add(calls[-1])
        download(folder, FILES, mirror=True)
        kept = {"theirs": b"1", "own": b"mine"}
        # The file of the earlier version is gone, or is still here and still ours.
        assert content(folder) == {**FILES, **kept}
        assert sorted(path.name for path in (folder / STATE).iterdir()) == ["files.jsonl", "lock"]
        if not is_killed:
            break
    assert steps >= {"open", "mkdir", "replace", "unlink", "rmdir", "write", "pwrite", "truncate", "utime"}


def test_kill_keeps_what_arrived(here: pathlib.Path) -> None:
    state = State(here, OURS)
    with contextlib.suppress(_Killed), state.writing(), state.large("large", etag_of(LARGE), 200, "md5") as part:
        for at in range(0, 100, 10):
            part.write(at, LARGE[at : at + 10])
        part._unrecorded = part_file.Ranges()
        raise _Killed
    again = State(here, OURS)
    with again.writing(), again.large("large", etag_of(LARGE), len(LARGE), "md5") as part:
        ((start, stop),) = part.missing
        assert 100 - 16 < start <= 100
        assert stop == 200
        part.write(start, LARGE[start:])
        assert part.digest() == hashlib.md5(LARGE).digest()
        again.finish(part, "large", "e", None)
    assert content(here) == {"large": LARGE}


# --- two processes ---

_HOLD = """
import pathlib, sys
from delta_sharing_client.assets.state import Origin, State
with State(pathlib.Path(sys.argv[1]), Origin("a", "b")).writing():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_two_processes_do_not_write_at_once(here: pathlib.Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(here)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match="Another download"):
            download(here)
        assert content(here) == {}
        # Reading needs no lock.
        assert written(here) == []
        other.kill()
    download(here)
    assert content(here) == FILES


def test_many_directories_are_open_only_for_a_while(here: pathlib.Path) -> None:
    files = {f"{number}/{number % 7}/x": b"%d" % number for number in range(200)}
    state = State(here, OURS)
    with state.writing():
        opened = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        for path, data in files.items():
            state.store(0, memoryview(data), path, "e", None)
            if opened:
                assert len(os.listdir("/proc/self/fd")) < opened + 30
    assert content(here) == files


def test_unwritable_state_is_an_error_of_ours(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    here.parent.mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="cannot be written: Permission denied"):
        download(here)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux lists the open files of a process")
def test_ended_download_leaves_no_file_open(here: pathlib.Path) -> None:
    state = State(here, OURS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        with state.writing():
            state.store(0, memoryview(b"one"), "deep/x", etag_of(b"one"), None)
            assert state.is_noted("y", etag_of(b"one"), 3) is False
        assert len(os.listdir("/proc/self/fd")) == before


def test_name_that_the_system_refuses_is_an_error_of_ours(here: pathlib.Path) -> None:
    name = "x" * 300
    state = State(here, OURS)
    with state.writing(), state.large(f"deep/{name}", None, 3, "md5") as part:
        part.write(0, b"one")
        with pytest.raises(UsageError, match=f"'deep/{name}' cannot be stored at .*too long"):
            state.finish(part, f"deep/{name}", None, None)
    assert content(here) == {}
    with contextlib.closing(State(here, OURS)) as later:
        assert [*later.written()] == []


def test_paths_with_one_hash_do_not_share_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "hash", lambda path: 7, raising=False)
    file = io.BytesIO(line_of("a", NOTE) + line_of("b", NOTE))
    found = written_files.WrittenFiles(file)
    assert (found.get("a"), found.get("b"), found.is_tidy) == (None, NOTE, False)
    # Another program has emptied the file meanwhile.
    file.truncate(0)
    assert found.get("b") is None
    assert [*found] == []


def test_two_names_are_one_file_only_if_both_exist(here: pathlib.Path) -> None:
    download(here, {"a": b"one", "b": b"one"})
    os.link(here / "a", here / "other name of a")
    with contextlib.closing(State(here, OURS)) as state:
        names = ("a", "b", "other name of a", "missing")
        same = {(one, two) for one in names for two in names if state.is_one_file(one, two)}
    one = ("a", "other name of a")
    assert same == {("b", "b"), *itertools.product(one, one)}
