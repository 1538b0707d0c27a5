"""Which paths of an asset a local directory can hold: on this system, on this disk, beside what is there already."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from delta_sharing_client.errors import UsageError

STATE_FOLDER = ".delta-sharing"
"""The folder in a directory that notes what was downloaded."""

_LONGEST_NAME = 255
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_WINDOWS_CHARACTERS = re.compile(r'[<>:"|?*\\\x00-\x1f]')
_WINDOWS_DEVICES = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\..*)?", re.I
)


@dataclasses.dataclass(frozen=True, slots=True)
class Disk:
    """How names are treated where a directory is.

    ``is_windows``: by the rules of Windows. ``folds``: names that differ in case or in Unicode normalization are the
    same name.
    """

    is_windows: bool = False
    folds: bool = False

    @classmethod
    def of(cls, directory: Path) -> Disk:
        """Return the rules for ``directory``, which need not exist; nothing is written to find out."""
        is_windows = sys.platform == "win32"
        return cls(is_windows, is_windows or _folds(directory))

    def key(self, path: str) -> str:
        """Return a text that is equal for paths that name the same file."""
        return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold()) if self.folds else path


def check_paths(paths: Iterable[str], disk: Disk, subject: str) -> None:
    """Raise ``UsageError`` unless ``paths`` can be files of one directory, and none leads out of it.

    ``subject`` is their asset, for messages.
    """
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        problem = _problem(path, disk)
        if problem is not None:
            raise UsageError(
                f"The file '{path}' of {subject} cannot be stored here: {problem}. Leave it out with a pattern."
            )
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


def check_existing(directory: Path, paths: Iterable[str], subject: str) -> None:
    """Raise ``UsageError`` if what is in ``directory`` prevents files at ``paths``, or would lead out of it."""
    seen: set[Path] = set()
    for path in paths:
        *folders, _ = path.split("/")
        where = directory
        for name in folders:
            where = where / name
            if where not in seen:
                seen.add(where)
                _check_kind(where, stat.S_ISDIR, "directory", path, subject)
        _check_kind(directory / path, stat.S_ISREG, "file", path, subject)


def _check_kind(where: Path, is_right: object, kind: str, path: str, subject: str) -> None:
    assert callable(is_right)
    try:
        mode = os.lstat(where).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UsageError(f"The file '{path}' of {subject} cannot be stored at '{where}': {error.strerror}.") from None
    if not is_right(mode):
        what = "a link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "no such thing"
        raise UsageError(
            f"The file '{path}' of {subject} cannot be stored: expected a {kind} or nothing at '{where}', found {what}."
        )


def _problem(path: str, disk: Disk) -> str | None:
    """Return why ``path`` is no path in a directory, as part of a sentence."""
    if path.startswith("/"):
        return "the path is absolute"
    names = path.split("/")
    if disk.key(names[0]) == STATE_FOLDER or names[0].casefold() == STATE_FOLDER:
        return f"the name '{STATE_FOLDER}' is reserved for the state of downloads"
    for name in names:
        if name in ("", ".", ".."):
            return "the path leads out of the directory" if name == ".." else "a part of the path has no name"
        if "\0" in name:
            return "a name has a zero byte"
        try:
            length = len(name) if disk.is_windows else len(os.fsencode(name))
        except UnicodeEncodeError:
            return "a name cannot be encoded"
        if length > _LONGEST_NAME:
            return f"a name is longer than {_LONGEST_NAME} bytes"
        if disk.is_windows and (problem := _windows_problem(name)) is not None:
            return problem
    return None


def _windows_problem(name: str) -> str | None:
    if re.match(r"[A-Za-z]:", name):
        return f"'{name}' begins with the letter of a drive"
    found = _WINDOWS_CHARACTERS.search(name)
    if found is not None:
        return f"Windows allows no {found[0]!r} in the name '{name}'"
    if _WINDOWS_DEVICES.fullmatch(name.rstrip(" .")):
        return f"the name '{name}' means a device on Windows"
    if name != name.rstrip(" ."):
        return f"Windows removes the space or dot at the end of the name '{name}'"
    return None


def _clash(path: str, other: str, subject: str) -> UsageError:
    return UsageError(
        f"The file '{path}' of {subject} and {other} cannot both be stored here, because this disk needs one name for "
        "both. Leave one out with a pattern."
    )


def _folds(directory: Path) -> bool:
    """Whether names on the disk of ``directory`` are the same in another case."""
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
