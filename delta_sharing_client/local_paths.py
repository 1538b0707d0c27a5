"""Local paths that the user gives: in arguments, options, environment variables and configuration files."""

from __future__ import annotations

import os
from typing import Any, Union

from delta_sharing_client.errors import UsageError

LocalPath = Union[str, "os.PathLike[str]"]


def expanded(path: LocalPath) -> str:
    """Return ``path`` as a string, with a leading ``~`` or ``~name`` replaced by the home directory, as in a shell.

    A shell does not replace it in quotes or after ``=``, and Python never does. A name without a home directory is
    returned unchanged. Raises ``UsageError`` if ``path`` is neither a string nor an ``os.PathLike`` of one.
    """
    text: Any = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"Expected a path as a string or a pathlib.Path, found {type(path).__name__}.")
    return os.path.expanduser(text)
