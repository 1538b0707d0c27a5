"""Files that are whole or not there, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def replace(temporary: Path, target: Path) -> None:
    """Give a complete file its name; when this returns, neither its bytes nor its name can be lost.

    Raises
    ------
    OSError
        As ``os.replace``.
    """
    with temporary.open("r+b") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, target)
    # Windows cannot open a folder, and keeps names by itself.
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
