"""One process at a time: a lock on a file, which the operating system drops when its holder ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from delta_sharing_client.errors import UsageError

if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        # To close it is not enough where a process was forked off meanwhile: it has the file open, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, and say whether nobody else had."""
    try:
        _lock(descriptor)
    except OSError:
        return False
    return True


class FileLock:
    """A context manager that holds ``path`` locked; ``UsageError`` with ``taken`` where somebody else does.

    The file stays: to remove it would let two holders lock two files of one name.
    """

    def __init__(self, path: Path, taken: str) -> None:
        self._path = path
        self._taken = taken
        self._descriptor = -1

    def __enter__(self) -> FileLock:
        # Behind a symbolic link is somebody else's file.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise UsageError(self._taken)
        self._descriptor = descriptor
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            _unlock(self._descriptor)
        finally:
            os.close(self._descriptor)
