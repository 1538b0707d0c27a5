"""Profiles by name: ``prod`` is the file ``~/.config/delta-sharing/prod.share``."""

from __future__ import annotations

import os
import re

from delta_sharing_client.local_paths import expanded

ENDING = ".share"
_NAME = re.compile(r"\w[\w.-]*")


def directory() -> str:
    """Return the directory of named profiles: ``delta-sharing`` in ``$XDG_CONFIG_HOME``, by default ``~/.config``."""
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or expanded("~/.config"), "delta-sharing")


def names() -> list[str]:
    """Return the names of the profiles in ``directory()``, sorted; none if it cannot be read."""
    try:
        files = os.listdir(directory())
    except OSError:
        return []
    return sorted(name.removesuffix(ENDING) for name in files if name.endswith(ENDING) and _NAME.fullmatch(name))


def located(path: str) -> str:
    """Return the path of the profile file for ``path``, which is a path (perhaps with ``~``) or the name of a profile.

    A file in the working directory comes before a named profile. If neither exists, ``path`` is taken as a path.
    """
    full = expanded(path)
    if not _NAME.fullmatch(path) or os.path.exists(full):
        return full
    named = os.path.join(directory(), path + ENDING)
    return named if os.path.exists(named) else full


def where_it_is_not(path: str) -> str:
    """Return advice about a missing profile file, as the end of a sentence: check the path, or use a named profile."""
    looked = f"check the path (relative paths start at {os.getcwd()})"
    all_names = names()
    if not _NAME.fullmatch(path) or not all_names:
        return looked
    return f"{looked}, or use one of the profiles {', '.join(all_names)} in '{directory()}'"
