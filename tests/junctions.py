"""Let links to directories look like junctions of Windows, to the code of this project and what it calls.

``os.path.realpath`` follows a junction, ``lstat`` describes it as a directory with a reparse tag, and so does an entry
of ``scandir``; nothing but the tag tells it from a directory
(https://learn.microsoft.com/windows/win32/fileio/reparse-point-tags).
"""

from __future__ import annotations

import os
import stat
import sys
import types
from collections.abc import Callable
from typing import Any

OURS = ("delta_sharing_client", "mock_server", "pyspark_delta_sharing")
MOUNT_POINT = 0xA0000003


def is_ours(name: object) -> bool:
    """Return whether a module is one of this project's packages."""
    return isinstance(name, str) and name.partition(".")[0] in OURS


def caller() -> bool:
    """Return whether our code called what this is called from, directly or through a library."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        if is_ours(frame.f_globals.get("__name__")):
            return True
        frame = frame.f_back
    return False


class Junction:
    """What ``lstat`` returns for a junction."""

    st_mode, st_reparse_tag = stat.S_IFDIR | 0o777, MOUNT_POINT

    def __init__(self, facts: os.stat_result) -> None:
        self._facts = facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)


class _Entry:
    """An entry of ``scandir`` that is a junction."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def __fspath__(self) -> str:
        return self._entry.path

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return not follow_symlinks or self._entry.is_dir()

    def stat(self, *, follow_symlinks: bool = True) -> Any:
        facts = self._entry.stat(follow_symlinks=follow_symlinks)
        return facts if follow_symlinks else Junction(facts)


class _Entries:
    """What ``scandir`` returns: an iterator and a context manager."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> Any:
        entry = next(self._entries)
        return _Entry(entry) if entry.is_symlink() and entry.is_dir() else entry

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()


def imitate(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Begin the imitation: replace functions of ``os`` by ``replace``, such as ``monkeypatch.setattr``."""
    real_stat, real_scandir = os.stat, os.scandir

    def of_entry(path: Any, facts: os.stat_result, *, dir_fd: int | None = None) -> Any:
        is_called = stat.S_ISLNK(facts.st_mode) and sys._getframe(2).f_code.co_name not in ("realpath", "_joinrealpath")
        try:
            is_directory = is_called and stat.S_ISDIR(real_stat(path, dir_fd=dir_fd).st_mode)
        except OSError:
            is_directory = False
        return Junction(facts) if is_directory and caller() else facts

    def stat_(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
        facts = real_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        return facts if follow_symlinks else of_entry(path, facts, dir_fd=dir_fd)

    def lstat(path: Any, *, dir_fd: int | None = None) -> Any:
        return of_entry(path, real_stat(path, dir_fd=dir_fd, follow_symlinks=False), dir_fd=dir_fd)

    def scandir(path: Any = ".") -> Any:
        entries = real_scandir(path)
        return _Entries(entries) if caller() else entries

    for name, function in (("stat", stat_), ("lstat", lstat), ("scandir", scandir)):
        for key in ("supports_dir_fd", "supports_fd", "supports_follow_symlinks"):
            if getattr(os, name) in getattr(os, key):
                replace(os, key, {*getattr(os, key), function})
        replace(os, name, function)
