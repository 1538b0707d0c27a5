"""Shortens tracebacks in notebooks and IPython: an error of this package is shown with the user's frames only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from delta_sharing_client.errors import DeltaSharingError

_PACKAGE = __name__.partition(".")[0]


def shorten_in_ipython() -> None:
    """Let the running IPython, if there is one, show errors of this package without its own frames.

    The error itself keeps them (``sys.last_value.__traceback__``). A handler that the user has set is not replaced.
    """
    module = sys.modules.get("IPython")
    shell = getattr(module, "get_ipython", lambda: None)()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((DeltaSharingError,), _show)


def _show(shell: Any, kind: type, error: BaseException, frames: TracebackType, tb_offset: int | None = None) -> None:
    shell.showtraceback((kind, error, users_frames(frames)), tb_offset=tb_offset)


def users_frames(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback up to the first frame of this package."""
    if frames is None or str(frames.tb_frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        return None
    return TracebackType(users_frames(frames.tb_next), frames.tb_frame, frames.tb_lasti, frames.tb_lineno)
