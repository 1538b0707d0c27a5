"""What every command has of typer: help that is there at once, and a word about why a command was stopped."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core

from delta_sharing_client.cli.exits import ExitCode, Stopped

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


_WIDEST_HELP = 120
# Two words for one: with a name behind them, or else the second is a name itself.
_PHRASES = {("shares", "get"): "share", ("tables", "credentials"): "credentials"}


class Program(typer.Typer):
    """A group of commands, whose help is plain text: what would draw boxes takes longer to import than all else."""

    def __init__(self, **settings: Any) -> None:
        context = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST_HELP}
        super().__init__(
            cls=_Group,
            context_settings=context,
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            no_args_is_help=True,
            **settings,
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandT], CommandT]:
        def register(function: CommandT) -> CommandT:
            text = inspect.cleandoc(function.__doc__ or "")
            # In the list of commands a summary is whole, and examples stay lines of their own.
            summary = " ".join(text.partition("\n\n")[0].split())
            own = {"help": text.replace("\n\nExample:", "\n\n\b\nExample:"), "short_help": summary}
            return super(Program, self).command(name, cls=_Command, **{**own, **settings})(function)

        return register


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

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (phrase := tuple(args[:2])) in _PHRASES and len(args) > 2 and not args[2].startswith("-"):
            args = [_PHRASES[phrase], *args[2:]]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Stopped(ExitCode.BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise Stopped(ExitCode.INTERRUPTED) from error
