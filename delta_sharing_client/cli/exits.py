"""From an error to an exit code and one line on stderr."""

from __future__ import annotations

import enum

from delta_sharing_client.errors import (
    AuthError,
    DataError,
    DeltaSharingError,
    NotFoundError,
    ProfileError,
    ProtocolError,
    RequestError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.redact import scrub


class ExitCode(enum.IntEnum):
    """What a script can tell from the exit code alone."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    SERVER = 5
    DATA = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


# The first class that matches decides, so a subclass stands before its base.
_CODES: tuple[tuple[type[DeltaSharingError], ExitCode], ...] = (
    (UsageError, ExitCode.USAGE),
    (ProfileError, ExitCode.USAGE),
    (NotFoundError, ExitCode.NOT_FOUND),
    (AuthError, ExitCode.AUTH),
    (RequestError, ExitCode.SERVER),
    (TransportError, ExitCode.SERVER),
    (ProtocolError, ExitCode.SERVER),
    (UnsupportedFeatureError, ExitCode.DATA),
    (DataError, ExitCode.DATA),
)


class Stopped(Exception):
    """Someone else ended the command: whoever pressed Ctrl-C, or whoever closed the pipe it writes to."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code.name)
        self.code = code


def exit_code(error: DeltaSharingError) -> ExitCode:
    """Return the exit code of the command for ``error``; a class of its own kind counts as its nearest base."""
    return next((code for cls, code in _CODES if isinstance(error, cls)), ExitCode.INTERNAL)


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` as one line without secrets in URLs, with the class name if it has no text."""
    return " ".join(scrub(str(error)).split()) or type(error).__name__
