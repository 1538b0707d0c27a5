"""What every command has of typer: help without types of switches, and a word about why a command was stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core

from delta_sharing_client.cli.exits import ExitCode, Stopped

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Program(typer.Typer):
    """A group of commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, pretty_exceptions_enable=False, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandT], CommandT]:
        return super().command(name, cls=_Command, **settings)


class _Switches:
    """Help in which a switch has no type: releases of typer that print one make ``--json <bool>`` of ``--json``."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return found


class _Command(_Switches, typer.core.TyperCommand):
    pass


class _Group(_Switches, typer.core.TyperGroup):
    """The commands; says why one stopped before typer, whose releases differ in that, makes an exit code of it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Stopped(ExitCode.BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise Stopped(ExitCode.INTERRUPTED) from error
