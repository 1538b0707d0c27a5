"""A lock on a file, so that only one process at a time holds it. The operating system releases it when the process
ends.
"""

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
        # Closing is not enough: a process that was forked meanwhile has the file open too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed. Return whether it was free."""
    try:
        _lock(descriptor)
    except OSError:
        return False
    return True


class FileLock:
    """A context manager that holds a lock on ``path``; raises ``UsageError(taken)`` if it is already locked.

    The file is not removed; otherwise two processes could lock two files with the same name.
    """

    def __init__(self, path: Path, taken: str) -> None:
        self._path = path
        self._taken = taken
        self._descriptor = -1

    def __enter__(self) -> FileLock:
        # A symbolic link could lead to someone else's file.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        if not try_lock(descriptor):
            os.close(descriptor)
            raise UsageError(self._taken)
        self._descriptor, self._process = descriptor, os.getpid()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            # A forked child that leaves the block has the same open file, and does not end the lock of its parent.
            if self._process == os.getpid():
                _unlock(self._descriptor)
        finally:
            os.close(self._descriptor)
