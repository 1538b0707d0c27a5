"""Protects forks that happen while a read begins on another thread.

That thread may be importing modules for reads, and the child process would wait for the import forever. So a fork waits
until such imports have ended, but it does not wait for imports by other code.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import FrameType

from delta_sharing_client.errors import UsageError

_LONGEST_WAIT = 10.0
_PAUSE = 0.005
_IMPORTS = "<frozen importlib._bootstrap>"
_PACKAGE = __name__.partition(".")[0]

# Whether another thread was importing at the last fork, and whether this process is the child of such a fork.
_found = False
_is_cut_off = False


def check() -> None:
    """Raise ``UsageError`` if this process was forked while another thread imported modules for reads: its own imports
    could hang."""
    if _is_cut_off:
        raise UsageError(
            "This process was forked while another thread of its parent was starting a read, so it cannot read. Fork "
            "before the first read or after it, or start processes with 'spawn' or 'forkserver'."
        )


def _is_importing() -> bool:
    own = threading.get_ident()
    return any(_imports(frame) for thread, frame in sys._current_frames().items() if thread != own)


def _imports(frame: FrameType | None) -> bool:
    """Return whether the thread with the innermost frame ``frame`` is importing one of our modules, or one that they
    need."""
    is_import = False
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if frame.f_code.co_filename == _IMPORTS:
            is_import = True
        elif name.partition(".")[0] == _PACKAGE and (is_import or frame.f_code.co_name == "<module>"):
            return True
        frame = frame.f_back
    return False


def _before() -> None:
    global _found
    deadline, pause = time.monotonic() + _LONGEST_WAIT, threading.Event()
    while (_found := _is_importing()) and time.monotonic() < deadline:
        pause.wait(_PAUSE)


def _in_child() -> None:
    global _is_cut_off
    _is_cut_off = _is_cut_off or _found


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
