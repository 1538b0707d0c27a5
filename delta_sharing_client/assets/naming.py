"""Checks whether the files of an asset can be stored in a local directory: by the rules of its system and disk, and
next to the files that exist there."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import sys
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from delta_sharing_client.errors import UsageError

STATE_FOLDER = ".delta-sharing"
"""The folder in which a directory of downloads records what was downloaded."""

_LONGEST_NAME = 255
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_WINDOWS_CHARACTERS = re.compile(r'[<>:"|?*\\\x00-\x1f]')
_WINDOWS_DEVICES = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\..*)?", re.I
)


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """How a directory's file system treats names.

    ``is_windows`` means that the rules of Windows apply, and ``folds`` that names which differ only in case or in
    Unicode normalization are the same.
    """

    is_windows: bool = False
    folds: bool = False

    @classmethod
    def of(cls, directory: Path) -> Disk:
        """Return the rules for ``directory``, which need not exist; nothing is written to find out."""
        is_windows = sys.platform == "win32"
        return cls(is_windows, is_windows or _folds(directory))

    def key(self, path: str) -> str:
        """Return a string that is equal for all paths of the same file."""
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold()) if self.folds else path


class PathCheck:
    """Checks the paths of a long listing, with a few bytes of memory for each path.

    ``subject`` is the asset of the files, for messages.
    """

    def __init__(self, disk: Disk, subject: str) -> None:
        self._disk, self._subject = disk, subject
        # Hashes of keys, which are equal for paths of the same file; for directories also the hash of the path itself.
        self._files, self._folders, self._spellings = array("q"), array("q"), array("q")
        self._parent = ""

    def add(self, path: str) -> None:
        """Add a path. Raises ``UsageError`` if it cannot be stored, whatever the other paths are."""
        _check_path(path, self._disk, self._subject)
        self._files.append(hash(self._disk.key(path)))
        parent, before = path.rpartition("/")[0], self._parent
        self._parent = parent
        while parent and parent != before and not before.startswith(f"{parent}/"):
            self._folders.append(hash(self._disk.key(parent)))
            self._spellings.append(hash(parent))
            parent = parent.rpartition("/")[0]

    def check(self, paths: Iterable[str]) -> None:
        """Raise ``UsageError`` unless files at all the added ``paths`` can be stored in one directory."""
        suspects = self._suspects()
        if suspects:
            check_paths(
                (path for path in paths if not suspects.isdisjoint(self._hashes(path))), self._disk, self._subject
            )

    def _suspects(self) -> set[int]:
        """Return the hashes that several paths have in common."""
        import numpy as np

        files = np.sort(np.frombuffer(self._files, dtype=np.int64))
        pairs = np.stack([np.frombuffer(one, dtype=np.int64) for one in (self._folders, self._spellings)], axis=1)
        folders = np.sort(np.unique(pairs, axis=0)[:, 0])
        repeated = [ordered[1:][ordered[1:] == ordered[:-1]] for ordered in (files, folders)]
        return set(np.concatenate([*repeated, np.intersect1d(files, folders)]).tolist())

    def _hashes(self, path: str) -> Iterator[int]:
        while path:
            yield hash(self._disk.key(path))
            path = path.rpartition("/")[0]


def check_paths(paths: Iterable[str], disk: Disk, subject: str) -> None:
    """Raise ``UsageError`` unless files at all ``paths`` can be stored in one directory, and no path leads out of it.

    All paths are held in memory. ``subject`` is the asset of the files, for messages.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        _check_path(path, disk, subject)
        key = disk.key(path)
        other = files.setdefault(key, path)
        if other != path or key in folders:
            kind = "the file" if other != path else "the directory"
            other = other if other != path else folders[key]
            raise _clash(path, f"{kind} '{other}'", subject)
        parent, parent_key = path.rpartition("/")[0], key.rpartition("/")[0]
        while parent and parent_key not in folders:
            folders[parent_key] = parent
            if parent_key in files:
                raise _clash(files[parent_key], f"the directory '{parent}'", subject)
            parent, parent_key = parent.rpartition("/")[0], parent_key.rpartition("/")[0]
        if parent and folders[parent_key] != parent:
            raise _clash(path, f"a file in the directory '{folders[parent_key]}'", subject)


class ExistingCheck:
    """Checks the existing contents of a directory; ``subject`` is the asset whose files are to be stored."""

    def __init__(self, directory: Path, subject: str) -> None:
        self._root, self._subject = str(directory), subject
        self._folders: list[str] = []

    def add(self, path: str) -> None:
        """Raise ``UsageError`` if something that exists prevents a file at ``path``, such as a link that could lead out
        of the directory."""
        *folders, _ = path.split("/")
        if folders != self._folders:
            # Each directory is checked once, because a listing has the files of a directory consecutively.
            for depth in range(1, len(folders) + 1):
                if folders[:depth] == self._folders[:depth]:
                    continue
                where = os.path.join(self._root, *folders[:depth])
                _check_kind(where, stat.S_ISDIR, "directory", path, self._subject)
            self._folders = folders
        _check_kind(f"{self._root}/{path}", stat.S_ISREG, "file", path, self._subject)


def _check_kind(where: str, is_right: Callable[[int], bool], kind: str, path: str, subject: str) -> None:
    try:
        mode = os.lstat(where).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UsageError(f"The file '{path}' of {subject} cannot be stored at '{where}': {error.strerror}.") from None
    if not is_right(mode):
        is_kind = {"a link": stat.S_ISLNK, "a directory": stat.S_ISDIR, "a file": stat.S_ISREG}
        what = next((name for name, test in is_kind.items() if test(mode)), "something else")
        raise UsageError(
            f"The file '{path}' of {subject} cannot be stored: expected a {kind} or nothing at '{where}', found {what}."
        )


def _check_path(path: str, disk: Disk, subject: str) -> None:
    problem = _problem(path, disk)
    if problem is not None:
        raise UsageError(
            f"The file '{path}' of {subject} cannot be stored here: {problem}. Use a pattern that leaves it out."
        )


def _problem(path: str, disk: Disk) -> str | None:
    """Return why a file at ``path`` cannot be stored in any directory of ``disk``, as part of a sentence."""
    if path.startswith("/"):
        return "the path is absolute"
    names = path.split("/")
    if disk.key(names[0]) == STATE_FOLDER or names[0].casefold() == STATE_FOLDER:
        return f"the name '{STATE_FOLDER}' is reserved for the state of downloads"
    for name in names:
        if name in ("", ".", ".."):
            return "the path leads out of the directory" if name == ".." else "a part of the path is empty or '.'"
        if "\0" in name:
            return "a name contains a zero byte"
        try:
            length = len(name) if disk.is_windows else len(os.fsencode(name))
        except UnicodeEncodeError:
            return "a name cannot be encoded on this system"
        if length > _LONGEST_NAME:
            return f"a name is longer than {_LONGEST_NAME} bytes"
        if disk.is_windows and (problem := _windows_problem(name)) is not None:
            return problem
    return None


def _windows_problem(name: str) -> str | None:
    if re.match(r"[A-Za-z]:", name):
        return f"the name '{name}' begins with a drive letter"
    match = _WINDOWS_CHARACTERS.search(name)
    if match is not None:
        return f"Windows does not allow {match[0]!r} in the name '{name}'"
    if _WINDOWS_DEVICES.fullmatch(name.rstrip(" .")):
        return f"the name '{name}' is reserved for a device on Windows"
    if name != name.rstrip(" ."):
        return f"Windows removes the space or dot at the end of the name '{name}'"
    return None


def _clash(path: str, other: str, subject: str) -> UsageError:
    return UsageError(
        f"The file '{path}' of {subject} and {other} cannot both be stored here, because their names are the same on "
        "this disk. Use a pattern that leaves one of them out."
    )


def _folds(directory: Path) -> bool:
    """Return whether names that differ only in case are the same on the disk of ``directory``."""
    probe = Path(os.path.abspath(directory))
    while True:
        other = probe.with_name(probe.name.swapcase()) if probe.name else probe
        if other != probe:
            try:
                return os.path.samefile(probe, other)
            except FileNotFoundError:
                if probe.exists():
                    return False
            except OSError:
                return sys.platform == "darwin"
        if probe.parent == probe:
            return sys.platform == "darwin"
        probe = probe.parent
