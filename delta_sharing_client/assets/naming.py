"""Checks whether the files of an asset can be stored in a local directory: by the rules of its system and disk, and
next to the files that exist there."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import stat
import sys
import tempfile
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from delta_sharing_client.errors import UsageError
from delta_sharing_client.local_folder import is_link, kind_of
from delta_sharing_client.local_paths import windows_problem

STATE_FOLDER = ".delta-sharing"
"""The folder in which a directory of downloads records what was downloaded."""

_LONGEST_NAME = 255
# How many entries of a directory are looked at.
_ENTRIES = 100
# The short name that Windows gives to the state folder.
_SHORT_STATE_FOLDER = re.compile(r"(?:delta-|de[0-9a-f]{4})~\d+", re.I)


class AreSame(Protocol):
    """Decides for a disk whether two names in a directory are names of the same file."""

    def __call__(self, folder: str, one: str, other: str) -> bool:
        """Return whether ``one`` and ``other`` are the same in ``folder``, a path relative to the downloads; empty for
        their directory itself."""


def _all_differ(folder: str, one: str, other: str) -> bool:
    return False


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """How the file system of a directory treats names.

    ``is_windows`` means that the rules of Windows apply. ``are_same`` is asked only about names that some file system
    does not distinguish (``same_key``); by default all names are different.
    """

    is_windows: bool = False
    are_same: AreSame = _all_differ

    @classmethod
    def of(cls, directory: Path, *, may_write: bool = True) -> Disk:
        """Return the rules for ``directory``, which need not exist. If it is necessary and ``may_write``, empty files
        are created to find out, and removed at once."""
        return cls(sys.platform == "win32", Probe(directory, may_write=may_write))


def same_key(path: str) -> str:
    """Return a string that is equal for all paths that some file system may not distinguish.

    Such names differ in case, in Unicode normalization, in characters that are not visible (HFS+), or in dots and
    spaces at the end (Windows, FAT).
    """
    if path.isascii():
        key = path.lower()
    else:
        visible = "".join(char for char in path if unicodedata.category(char) != "Cf")
        key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    if ". " in f"{key} " or "./" in key or " /" in key or key.endswith((".", " ")):
        key = "/".join(name.rstrip(" .") or name for name in key.split("/"))
    return key


def is_inside(path: str) -> bool:
    """Return whether ``path`` is a path that a download may write or remove on this system: inside the directory, and
    not in its ``STATE_FOLDER``."""
    return _problem(path, Disk(sys.platform == "win32")) is None


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
        self._files.append(hash(same_key(path)))
        parent, before = path.rpartition("/")[0], self._parent
        self._parent = parent
        while parent and parent != before and not before.startswith(f"{parent}/"):
            self._folders.append(hash(same_key(parent)))
            self._spellings.append(hash(parent))
            parent = parent.rpartition("/")[0]

    def check(self, paths: Iterable[str]) -> None:
        """Raise ``UsageError`` unless files at all the added ``paths`` can be stored in one directory."""
        suspects = self._suspects()
        if suspects:
            check_paths((path for path in paths if not suspects.isdisjoint(_hashes(path))), self._disk, self._subject)

    def _suspects(self) -> set[int]:
        """Return the hashes that several paths have in common."""
        import numpy as np

        files = np.sort(np.frombuffer(self._files, dtype=np.int64))
        pairs = np.stack([np.frombuffer(one, dtype=np.int64) for one in (self._folders, self._spellings)], axis=1)
        folders = np.sort(np.unique(pairs, axis=0)[:, 0])
        repeated = [ordered[1:][ordered[1:] == ordered[:-1]] for ordered in (files, folders)]
        return set(np.concatenate([*repeated, np.intersect1d(files, folders)]).tolist())


def _hashes(path: str) -> Iterator[int]:
    while path:
        yield hash(same_key(path))
        path = path.rpartition("/")[0]


def check_paths(paths: Iterable[str], disk: Disk, subject: str) -> None:
    """Raise ``UsageError`` unless files at all ``paths`` can be stored in one directory, and no path leads out of it.

    All paths are held in memory. ``subject`` is the asset of the files, for messages.
    """
    # By directory and key: the names there, each with its first path and whether it is the name of a file.
    known: dict[tuple[str, str], dict[str, tuple[str, bool]]] = {}
    for path in paths:
        _check_path(path, disk, subject)
        names = path.split("/")
        for depth, name in enumerate(names):
            folder, is_file = "/".join(names[:depth]), depth == len(names) - 1
            alike = known.setdefault((folder, same_key(name)), {})
            if name not in alike:
                _check_alike(path, name, alike, disk, subject, folder=folder)
                alike[name] = path, is_file
                continue
            first, was_file = alike[name]
            if is_file and was_file:
                raise UsageError(
                    f"The store lists the file '{path}' of {subject} twice, so it is not clear which one to store. Use "
                    "a pattern that leaves it out."
                )
            if is_file or was_file:
                raise _clash(path if is_file else first, f"the directory '{'/'.join(names[: depth + 1])}'", subject)


def _check_alike(
    path: str, name: str, alike: Mapping[str, tuple[str, bool]], disk: Disk, subject: str, *, folder: str
) -> None:
    """Raise ``UsageError`` if ``name`` in ``folder`` is one of the names ``alike`` on this disk."""
    for other, (_, is_file) in alike.items():
        if disk.are_same(folder, other, name):
            where = f"{folder}/{other}" if folder else other
            raise _clash(path, f"the file '{where}'" if is_file else f"a file in the directory '{where}'", subject)


class Probe:
    """Finds out whether names are the same on the disk of ``directory``, from what exists there; if that does not
    suffice and this ``may_write``, by creating a file with one name and looking for the other.

    Only the disk itself knows: a mount point, a network share or a single directory may ignore case.
    """

    def __init__(self, directory: Path, *, may_write: bool) -> None:
        self._root, self._may_write = os.path.abspath(directory), may_write
        # Whether the case of ASCII letters is ignored, by existing directory.
        self._ignores_case: dict[str, bool] = {}

    def __call__(self, folder: str, one: str, other: str) -> bool:
        where = os.path.join(self._root, folder)
        while not os.path.isdir(where) and os.path.dirname(where) != where:
            where = os.path.dirname(where)
        if not (one.isascii() and one.lower() == other.lower()):
            return self._is_same(where, one, other)
        if where not in self._ignores_case:
            self._ignores_case[where] = self._is_same(where, one, other)
        return self._ignores_case[where]

    def _is_same(self, where: str, one: str, other: str) -> bool:
        if sys.platform == "win32" or not self._may_write:
            return sys.platform in ("win32", "darwin") or _ignores_case(where)
        try:
            # A new directory ignores case if its parent does.
            with tempfile.TemporaryDirectory(prefix=".delta-sharing-", dir=where) as folder:
                os.close(os.open(os.path.join(folder, one), os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
                return os.path.lexists(os.path.join(folder, other))
        except OSError as error:
            raise UsageError(f"Cannot create the file '{one}' in '{where}': {error.strerror}.") from None


def _ignores_case(directory: str) -> bool:
    """Return whether an entry of a directory, or the directory itself, is found by a name with the other case."""
    with contextlib.suppress(OSError):
        for name in os.listdir(directory)[:_ENTRIES]:
            if name != name.swapcase():
                return _is_one(os.path.join(directory, name), os.path.join(directory, name.swapcase()))
    while (parent := os.path.dirname(directory)) != directory:
        name = os.path.basename(directory)
        if name != name.swapcase():
            return _is_one(directory, os.path.join(parent, name.swapcase()))
        directory = parent
    return False


def _is_one(path: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.lstat(other))
    except OSError:
        return False


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
        facts = os.lstat(where)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UsageError(f"The file '{path}' of {subject} cannot be stored at '{where}': {error.strerror}.") from None
    if not is_right(facts.st_mode) or is_link(facts):
        raise UsageError(
            f"The file '{path}' of {subject} cannot be stored: expected a {kind} or nothing at '{where}', found "
            f"{kind_of(facts)}."
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
    if same_key(names[0]) == STATE_FOLDER or (disk.is_windows and _SHORT_STATE_FOLDER.fullmatch(names[0])):
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
        if disk.is_windows and (problem := windows_problem(name)) is not None:
            return problem
    return None


def _clash(path: str, other: str, subject: str) -> UsageError:
    return UsageError(
        f"The file '{path}' of {subject} and {other} cannot both be stored here, because their names are the same on "
        "this disk. Use a pattern that leaves one of them out."
    )
