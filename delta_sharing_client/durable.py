"""Files that are complete or missing, even after a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def replace(temporary: Path, target: Path) -> None:
    """Rename a complete file; when this returns, its content and its name are on the disk. Errors as ``os.replace``."""
    with temporary.open("r+b") as stream:
        os.fsync(stream.fileno())
    os.replace(temporary, target)
    # Windows cannot open a directory, and writes names by itself.
    if os.name == "posix":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
