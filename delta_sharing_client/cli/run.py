"""Run one command line: its exit code, and one line on stderr if it failed."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from delta_sharing_client.cli.commands import app
from delta_sharing_client.cli.exits import ExitCode, Stopped, exit_code, one_line
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.outputs.file_formats import NO_ROOM

PROGRAM = "delta-sharing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``delta-sharing`` with ``arguments`` (default: those of the process) and return its exit code.

    Codes are those of ``ExitCode``. Nothing is raised: errors become one line on stderr, without a traceback.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _warn  # type: ignore[assignment]
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = app(args=None if arguments is None else list(arguments), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return int(code or ExitCode.OK)
    except DeltaSharingError as error:
        return _fail(one_line(error), exit_code(error))
    except Stopped as stopped:
        if stopped.code is ExitCode.BROKEN_PIPE:
            return _leave_pipe()
        return _fail("interrupted", stopped.code)
    except BrokenPipeError:
        return _leave_pipe()
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            _drop_output()
            return _fail(
                f"Cannot write the output: {error.strerror}. Make room, or choose another place.", ExitCode.USAGE
            )
        usage = _usage_message(error)
        if usage == "":
            return ExitCode.USAGE  # the help that was printed in place of a command says it all
        if usage is not None:
            return _fail(usage, ExitCode.USAGE)
        return _fail(f"unexpected {type(error).__name__}: {one_line(error)}; please report this", ExitCode.INTERNAL)


def _warn(message: Warning | str, *_: object) -> None:
    # Of where in the code it was said, nobody at a terminal wants to know.
    sys.stderr.write(f"{PROGRAM}: {one_line(message) if isinstance(message, Warning) else message}\n")


def _usage_message(error: Exception) -> str | None:
    """Return the text of a mistake on the command line, "" if there is nothing to say, None for any other error.

    Older releases of typer raise click's exceptions and newer ones their own; both kinds format themselves.
    """
    formatter = getattr(error, "format_message", None)
    if formatter is None:
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{formatter()}\n")
        return ""
    message = " ".join(str(formatter()).split()).rstrip(".")
    if not message:
        return ""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None) or PROGRAM
    return f"{message}; see: {path} --help"


def _leave_pipe() -> int:
    _drop_output()
    return ExitCode.BROKEN_PIPE


def _drop_output() -> None:
    # Nobody takes what is left; the interpreter must not complain when it flushes at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: ExitCode) -> int:
    sys.stderr.write(f"{PROGRAM}: {message}\n")
    return code
