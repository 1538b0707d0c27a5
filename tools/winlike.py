"""Run tests as if on Windows: ``python -m tools.winlike [PYTEST-ARGUMENT ...]``; without arguments, the tests of files.

Only code of this project meets the imitation. It lacks the names of the standard library that Windows lacks, sees
``os.name`` and ``sys.platform`` of Windows, can neither replace nor remove an open file, and cannot create files with
names that Windows does not allow; links to directories are junctions to it. It is no replacement for Windows: paths
are those of POSIX.
"""

from __future__ import annotations

import asyncio
import builtins
import fcntl
import os
import re
import select
import signal
import stat
import struct
import sys
import time
import types
from collections.abc import Mapping
from typing import Any

import pytest

from tests import junctions
from tests.junctions import caller, is_ours

DEFAULT = (
    "tests/systems",
    "tests/unit/mock_server/test_catalog.py",
    "tests/unit/outputs",
    "tests/unit/assets",
    "tests/unit/storage",
    "tests/unit/test_local_folder.py",
    "tests/unit/test_file_lock.py",
    "tests/unit/test_replica.py",
    "tests/integration/test_cli_files.py",
    "tests/integration/test_replica.py",
    "tests/integration/test_downloads.py",
)
# These tests are about what Windows lacks (umasks, named pipes, links, limits, signals, disks that distinguish case),
# or about other processes, which do not imitate it.
NOT_ON_WINDOWS = re.compile(
    r"permission|umask|mode|pipe|fifo|signal|kill|limit|fork|sigterm|root|nohup|mount|another_process|two_processes|"
    r"synced|disk_that_distinguishes|learn_about_the_disk|ud800",
    re.I,
)
_OS = [
    "fork", "forkpty", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "O_SYNC", "O_DSYNC", "O_NOCTTY",
    "O_PATH", "O_TMPFILE", "fchmod", "fchown", "fchdir", "chown", "lchown", "geteuid", "getuid", "getgid", "getegid",
    "getpgid", "getpgrp", "getsid", "setsid", "setuid", "setgid", "killpg", "nice", "pread", "preadv", "pwrite",
    "pwritev", "readv", "writev", "sendfile", "posix_fadvise", "posix_fallocate", "posix_spawn", "sched_getaffinity",
    "sysconf", "statvfs", "fstatvfs", "mkfifo", "mknod", "wait", "wait3", "wait4", "waitid", "WNOHANG", "uname",
    "getloadavg", "sync", "fdatasync", "lockf", "pipe2", "register_at_fork", "setxattr", "getxattr",
    "copy_file_range", "memfd_create", "openpty", "ttyname", "environb",
]  # fmt: skip
_SIGNAL = [
    "SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGPIPE", "SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP",
    "SIGQUIT", "SIGWINCH", "alarm", "setitimer", "pause", "pthread_kill", "pthread_sigmask", "sigpending", "sigwait",
]  # fmt: skip
_BLOCKED = frozenset(("fcntl", "pwd", "grp", "resource", "termios", "pty", "tty", "readline", "syslog"))
_CHARACTERS = re.compile(r'[<>:"|?*\\\x00-\x1f]')
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])\s*(?:\..*)?", re.I)
# A lock on an open file description (Linux); a lock of POSIX would be released by closing any other handle.
_LOCK = 37


def _hide(module: types.ModuleType, names: list[str], values: Mapping[str, object]) -> None:
    """Let our modules see ``module`` without ``names``, and with ``values`` in place of the real ones."""
    real = {name: vars(module)[name] for name in (*names, *values) if name in vars(module)}

    class Hidden(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name not in real:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if not is_ours(sys._getframe(1).f_globals.get("__name__")):
                return real[name]
            if name in values:
                return values[name]
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} on Windows")

        def __dir__(self) -> list[str]:
            return [*super().__dir__(), *real]

    module.__class__ = Hidden
    for name in real:
        delattr(module, name)


def _locking() -> types.ModuleType:
    """Return a module like ``msvcrt``, with its locks."""
    module: Any = types.ModuleType("msvcrt")
    module.LK_UNLCK, module.LK_LOCK, module.LK_NBLCK = 0, 1, 2
    seek, control = os.lseek, fcntl.fcntl

    def locking(handle: int, mode: int, count: int) -> None:
        kind = fcntl.F_UNLCK if mode == module.LK_UNLCK else fcntl.F_WRLCK
        try:
            control(handle, _LOCK, struct.pack("hhqqi4x", kind, 0, seek(handle, 0, os.SEEK_CUR), count, 0))
        except OSError as error:
            raise PermissionError(13, "Permission denied") from error

    module.locking = locking
    return module  # type: ignore[no-any-return]


# === Files ===


def _is_forbidden(path: object) -> bool:
    if not isinstance(path, (str, bytes)):
        return False
    text = os.fsdecode(path)
    names = [] if text.startswith(("/proc", "/dev", "/sys")) else text.split("/")
    return any(
        name not in ("", ".", "..")
        and (_CHARACTERS.search(name) or _DEVICE.fullmatch(name) or name != name.rstrip(" ."))
        for name in names
    )


def _is_open(path: Any) -> bool:
    """Return whether this process has the file open, or a file below the directory."""
    try:
        wanted = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISLNK(wanted.st_mode):
        return False
    below = os.path.realpath(path) + "/"
    for handle in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISDIR(wanted.st_mode):
                if os.readlink(f"/proc/self/fd/{handle}").startswith(os.fsdecode(below)):
                    return True
            elif os.path.samestat(os.stat(f"/proc/self/fd/{handle}"), wanted):
                return True
        except OSError:
            continue
    return False


class _Files:
    """An audit hook that refuses what Windows refuses."""

    def __init__(self) -> None:
        self._is_inside = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_inside or event not in ("open", "os.mkdir", "os.rename", "os.remove"):
            return
        self._is_inside = True
        try:
            self._check(event, arguments)
        finally:
            self._is_inside = False

    def _check(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            creates = set(mode) & set("wxa+") if isinstance(mode, str) else flags & (os.O_CREAT | os.O_WRONLY)
            if creates and _is_forbidden(path) and caller():
                raise OSError(22, "Invalid argument", path)
        elif event == "os.mkdir":
            if _is_forbidden(arguments[0]) and caller():
                raise OSError(22, "Invalid argument", arguments[0])
        else:
            for path in arguments[: 2 if event == "os.rename" else 1]:
                if _is_open(path) and caller():
                    raise PermissionError(13, "The process cannot access the file", path)


def install() -> None:
    """Begin the imitation, for the rest of the process."""
    sys.modules["msvcrt"] = _locking()
    _hide(os, _OS, {"name": "nt"})
    _hide(signal, _SIGNAL, {})
    _hide(select, ["poll", "epoll"], {})
    _hide(time, ["tzset"], {})
    _hide(sys, [], {"platform": "win32"})
    real_import = builtins.__import__

    def imported(name: str, *arguments: Any, **named: Any) -> types.ModuleType:
        names = arguments[0] if arguments else named.get("globals")
        level = arguments[3] if len(arguments) > 3 else named.get("level", 0)
        if level == 0 and name in _BLOCKED and names and is_ours(names.get("__name__")):
            raise ImportError(f"No module named {name!r} on Windows")
        return real_import(name, *arguments, **named)

    builtins.__import__ = imported
    real_handler = asyncio.SelectorEventLoop.add_signal_handler

    def add_signal_handler(self: Any, *arguments: Any) -> Any:
        if caller():
            raise NotImplementedError
        return real_handler(self, *arguments)

    asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler  # type: ignore[method-assign]
    junctions.imitate()
    sys.addaudithook(_Files())


class _Selection:
    """Leaves out tests of what Windows does not have."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if NOT_ON_WINDOWS.search(item.name)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def main(arguments: list[str]) -> int:
    """Run pytest under the imitation and return its exit code."""
    install()
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not spark"]
    chosen = arguments if any(not word.startswith("-") for word in arguments) else [*arguments, *DEFAULT]
    return int(pytest.main([*options, *chosen], plugins=[_Selection()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
