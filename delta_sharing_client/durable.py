"""Renames files so that, even after a power failure, each is either complete or missing."""

from __future__ import annotations

import os
from pathlib import Path


def rename(temporary: Path, target: Path) -> None:
    """Rename a complete file. A reader of the new name always finds the whole content.

    Raises the errors of ``os.replace``.
    """
    with temporary.open("r+b") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, target)


def replace(temporary: Path, target: Path) -> None:
    """Like ``rename``, but when this returns, the new name is on the disk as well.

    Raises the errors of ``os.replace``.
    """
    rename(temporary, target)
    # Windows cannot open a directory; it writes names to disk by itself.
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
