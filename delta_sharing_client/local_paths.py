"""Local paths that the user gives: in arguments, options, environment variables and configuration files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Union

from delta_sharing_client.errors import UsageError

LocalPath = Union[str, "os.PathLike[str]"]
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_WINDOWS_CHARACTERS = re.compile(r'[<>:"|?*\\\x00-\x1f]')
_WINDOWS_DEVICES = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\..*)?", re.I
)


def expanded(path: LocalPath) -> str:
    """Return ``path`` as a string, with a leading ``~`` or ``~name`` replaced by the home directory, as in a shell.

    A shell does not replace it in quotes or after ``=``, and Python never does. A name without a home directory is
    returned unchanged. Raises ``UsageError`` if ``path`` is neither a string nor an ``os.PathLike`` of one.
    """
    text: Any = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"Expected a path as a string or a pathlib.Path, found {type(path).__name__}.")
    return os.path.expanduser(text)


def windows_problem(name: str) -> str | None:
    """Return why Windows cannot store a file under this name, as part of a sentence; ``None`` if it can."""
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


def check_target(target: Path) -> None:
    """Raise ``UsageError`` if a file cannot have the name ``target`` on Windows.

    Other systems allow every name.
    """
    if os.name != "nt":
        return
    problem = windows_problem(target.name)
    if target.drive and not target.root:
        problem = f"'{target.drive}' is followed by a path in the current directory of that drive"
    if problem is not None:
        raise UsageError(f"Cannot write '{target}': {problem}. Choose another name.")
