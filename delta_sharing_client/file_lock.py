"""A lock on a file, so that only one process at a time holds it. The operating system releases it when the process
ends.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
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
        # Closing is not enough, because a process that was forked in the meantime has the file open as well.
        fcntl.flock(descriptor, fcntl.LOCK_UN)


# The error codes if another process holds the lock: from flock, its emulation on network file systems, and Windows.
_HELD = frozenset((errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK))


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed, and return whether it was free. Raises ``OSError`` if it cannot be locked
    at all."""
    try:
        _lock(descriptor)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        return False
    return True


class FileLock:
    """A context manager that holds a lock on ``path``; raises ``UsageError(taken)`` if it is already locked, also
    if the file system has no locks.

    ``open_file`` opens the file for reading and writing; by default, it is opened at ``path``. The file is never
    removed; otherwise two processes could each lock a different file with the same name.
    """

    def __init__(self, path: Path, taken: str, open_file: Callable[[], int] | None = None) -> None:
        self._path = path
        self._taken = taken
        self._open_file = open_file or self._opened
        self._descriptor = -1

    def _opened(self) -> int:
        # A symbolic link could lead to someone else's file.
        return os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)

    def __enter__(self) -> FileLock:
        descriptor = self._open_file()
        try:
            problem = None if try_lock(descriptor) else UsageError(self._taken)
        except OSError as error:
            problem = UsageError(
                f"The file '{self._path}' cannot be locked: {error.strerror}. Choose a directory on a file system that "
                "supports locks, such as a local disk, or mount the network file system with locks."
            )
        if problem is not None:
            os.close(descriptor)
            raise problem
        self._descriptor, self._process = descriptor, os.getpid()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            # A forked child has the same open file; when it leaves the block, it must not release the lock of its
            # parent.
            if self._process == os.getpid():
                _unlock(self._descriptor)
        finally:
            os.close(self._descriptor)
