"""The framework for the commands: common options, the clients and tables that arguments name, exit codes, and error
messages on one line of stderr."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import errno
import functools
import inspect
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Optional, TypeVar

import typer
import typer.core

from delta_sharing_client.console import any_text_on_stdio
from delta_sharing_client.errors import (
    AuthError,
    DataError,
    DeltaSharingError,
    NotFoundError,
    OutOfMemoryError,
    ProfileError,
    ProtocolError,
    RequestError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
    add_advice,
)
from delta_sharing_client.outputs.file_formats import NO_ROOM
from delta_sharing_client.redact import scrub

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.protocol.asset_kinds import AssetEntry
    from delta_sharing_client.protocol.names import AssetName
    from delta_sharing_client.table import SharedTable

PROGRAM = "delta-sharing"

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_WIDEST_HELP = 120
# Python decodes invalid bytes of arguments to these.
_SURROGATE = re.compile("[\udc80-\udcff]")
# The wording that newer releases of typer use for a wrong value.
_PYDANTIC = re.compile(r"Input should be (?:a valid )?(.*?)(?:, unable to .*)?$")


# === Exit codes ===


class ExitCode(enum.IntEnum):
    """The exit codes, from which a script can tell what happened."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    NOT_FOUND = 3
    AUTH = 4
    SERVER = 5
    DATA = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


# The first matching class decides, so a subclass precedes its base.
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
    (OutOfMemoryError, ExitCode.USAGE),
)


def exit_code(error: DeltaSharingError) -> ExitCode:
    """Return the exit code for ``error``, which is the code of its nearest base class in the table."""
    return next((code for cls, code in _CODES if isinstance(error, cls)), ExitCode.INTERNAL)


class Stopped(Exception):
    """The command was ended from outside: by Ctrl-C, or because the reader closed the pipe."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code.name)
        self.code = code


# === Commands ===

ProfileOption = Annotated[
    Optional[str],
    typer.Option("--profile", "-p", metavar="FILE", help="Profile file, URL or name; default: $DELTA_SHARING_PROFILE."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Print the cost of a read to stderr.")]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The profile, and the form of the output.

    ``profile`` is a path or URL, ``None`` for the environment's profile. ``as_json`` prints JSON instead of tables.
    ``verbose`` prints the cost of a read on stderr.
    """

    profile: str | None = None
    as_json: bool = False
    verbose: bool = False


class Program(typer.Typer):
    """A group of commands. Its help is plain text, because importing the library that draws boxes takes longer than
    anything else.
    """

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

    def command(
        self, name: str | None = None, *, tells_cost: bool = False, **settings: Any
    ) -> Callable[[CommandT], CommandT]:
        """Register a command. If its first parameter is ``settings``, it also gets ``--profile`` and ``--json``; with
        ``tells_cost`` also ``--verbose``."""

        def register(function: CommandT) -> CommandT:
            text = inspect.cleandoc(function.__doc__ or "")
            # The list of commands shows the complete summary, and examples keep their lines.
            summary = " ".join(text.partition("\n\n")[0].split())
            own = {"help": text.replace("\n\nExample:", "\n\n\b\nExample:"), "short_help": summary}
            super(Program, self).command(name, cls=_Command, **{**own, **settings})(_for_typer(function, tells_cost))
            return function

        return register


def _for_typer(function: CommandT, tells_cost: bool) -> Callable[..., Any]:
    """Return a command in the form that typer expects, with the options for its ``settings``."""
    first, *own = inspect.signature(function).parameters.values()
    if first.name != "settings":
        return function

    @functools.wraps(function)
    def run(context: typer.Context, profile: str | None, as_json: bool, verbose: bool = False, **given: Any) -> None:
        before: Settings = context.obj or Settings()
        # The value after the command, or else before it.
        function(
            Settings(profile or before.profile, as_json or before.as_json, verbose or before.verbose),
            **given,
        )

    keyword = inspect.Parameter.KEYWORD_ONLY
    options = [("profile", ProfileOption, None), ("as_json", JsonOption, False), ("verbose", VerboseOption, False)]
    shared = [
        inspect.Parameter(name, keyword, annotation=kind, default=default)
        for name, kind, default in options[: None if tells_cost else 2]
    ]
    context = inspect.Parameter("context", keyword, annotation=typer.Context)
    seen = [context, *(parameter.replace(kind=keyword) for parameter in own), *shared]
    run.__signature__ = inspect.Signature(seen)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in seen}
    return run


class _Switches:
    """Shows no type for a switch in the help. Some releases of typer print ``--json <bool>`` for ``--json``."""

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for one in parameters:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return parameters


class _Command(_Switches, typer.core.TyperCommand):
    pass


# Earlier spellings of commands, for one release.
_EARLIER = {"explain": ["read", "--explain"], "copy": ["replicate"]}
# What other programs call our commands and options; a message about an unknown one names ours.
_ELSEWHERE = {
    "activate": "profile activate", "cp": "get", "download": "get", "export": "read", "list": "ls", "preview": "head",
    "query": "sql", "schema": "describe", "select": "sql", "show": "describe", "sync": "get",
    "--where": "--filter", "--predicate": "--filter", "--output": "--to", "--out": "--to", "--select": "--columns",
    "--rows": "--limit", "--head": "--limit", "--output-format": "--format",
}  # fmt: skip


class _Group(_Switches, typer.core.TyperGroup):
    """The commands. It handles errors before typer turns them into exit codes, because releases of typer differ in
    these."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, [*_EARLIER.get(args[0], [args[0]]), *args[1:]])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if not _is_closed_pipe(error):
                raise
            raise Stopped(ExitCode.BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise Stopped(ExitCode.INTERRUPTED) from error


# === What arguments name ===


def open_client(profile: str | None, storage_options: Mapping[str, str] | None = None) -> SharingClient:
    """Return a client for ``profile`` (a path or URL); for the environment's profile if it is ``None``."""
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.options import ReadOptions

    return SharingClient(profile, ReadOptions(storage_options=storage_options or {}))


def open_asset(profile: str | None, text: str, kind: str = "asset") -> tuple[SharingClient, AssetName]:
    """Return the client and the full name for ``share.schema.name`` or ``<profile>#share.schema.name``.

    ``kind`` is the word for the asset in error messages.
    """
    from delta_sharing_client.protocol.asset_kinds import BY_NOUN, KINDS
    from delta_sharing_client.protocol.names import AssetName

    client, name = _client_and_name(profile, text)
    try:
        return client, AssetName.parse(name, kind)
    except UsageError as error:
        if near := client._rest.near_names(name, [BY_NOUN[kind]] if kind in BY_NOUN else KINDS):
            add_advice(error, near)
        raise


def open_table(profile: str | None, text: str) -> SharedTable:
    """Return the table ``text``: ``share.schema.table``, or ``<profile>#share.schema.table``."""
    client, name = _client_and_name(profile, text)
    return client.table(name)


def version_of_text(text: str | None) -> int | str | None:
    """Return the version that an option's value means: digits are a number, anything else is the name of a branch or
    tag."""
    return int(text) if text is not None and text.isdecimal() else text


def _client_and_name(profile: str | None, text: str) -> tuple[SharingClient, str]:
    from delta_sharing_client.protocol.names import split_table_url

    if "#" not in text:
        return open_client(profile), text
    named, name = split_table_url(text)
    if named is not None and profile is not None and named != profile:
        raise UsageError(f"Two profiles were given, {profile!r} and {named!r}; give one of them.")
    return open_client(named or profile), name


def names_of_tables(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of shared tables that start with ``incomplete``, for shell completion; never raises."""
    return _completed(context, incomplete, lambda client: [str(table) for table in client.list_all_tables()])


def names_of_assets(context: typer.Context, incomplete: str) -> list[str]:
    """Like ``names_of_tables``, for assets of all kinds."""

    def found(client: SharingClient) -> list[str]:
        from delta_sharing_client.protocol.names import AssetName

        return [str(AssetName(share, entry.schema, entry.name)) for share, entry in everything(client)]

    return _completed(context, incomplete, found)


def names_of_shares(context: typer.Context, incomplete: str) -> list[str]:
    """Like ``names_of_tables``, for shares."""
    return _completed(context, incomplete, lambda client: [share.name for share in client.list_shares()])


def names_of_schemas(context: typer.Context, incomplete: str) -> list[str]:
    """Like ``names_of_tables``, for shares and for schemas as ``share.schema``."""

    def found(client: SharingClient) -> list[str]:
        shares = [share.name for share in client.list_shares()]
        inside = [name for name in shares if incomplete.lower().startswith(f"{name.lower()}.")]
        return [*shares, *(f"{name}.{schema.name}" for name in inside for schema in client.list_schemas(name))]

    return _completed(context, incomplete, found)


def _completed(context: typer.Context, incomplete: str, names: Callable[[SharingClient], list[str]]) -> list[str]:
    from delta_sharing_client.client import SharingClient
    from delta_sharing_client.options import ReadOptions

    try:
        # The value after the command, or else before it.
        given = [part.params.get("profile") for part in (context, context.parent) if part is not None]
        profile_of_line = next((profile for profile in given if profile is not None), None)
        # Requests are not retried, because completion must be fast.
        client = SharingClient(profile_of_line, ReadOptions(max_attempts=1, connect_timeout=2.0, read_timeout=2.0))
        return [name for name in names(client) if name.lower().startswith(incomplete.lower())]
    except DeltaSharingError:
        return []


@contextlib.contextmanager
def run_sql(profile: str | None, query: str) -> Iterator[pa.RecordBatchReader]:
    """Run ``query`` with DuckDB over the shared tables in it, and yield a reader of its rows; Ctrl-C ends the query."""
    from delta_sharing_client import queries
    from delta_sharing_client.outputs.streams import interrupted_by

    client, connection = open_client(profile), queries.connect()
    is_interrupted = threading.Event()

    def interrupt() -> None:
        is_interrupted.set()
        connection.interrupt()

    try:
        with interrupted_by(interrupt):
            relation = queries.relation(client, query, connection)
            with queries.rows_of(client, relation) as reader:
                yield reader
    except Exception:
        # DuckDB reports the interruption before Python raises KeyboardInterrupt.
        if is_interrupted.is_set():
            raise KeyboardInterrupt from None
        raise


def everything(client: SharingClient) -> Iterator[tuple[str, AssetEntry]]:
    """Yield each asset of every kind, with its share."""
    from delta_sharing_client.sources.contents import assets_in

    for share in client.list_shares():
        _, entries = assets_in(client._rest, share.name)
        yield from ((share.name, entry) for entry in entries)


# === The process ===


def run(app: Callable[..., Any], arguments: Sequence[str] | None) -> int:
    """Run ``app`` with ``arguments`` (``None``: those of the process) and return an ``ExitCode``.

    Errors are printed as one line on stderr, without a traceback; nothing is raised.
    """
    with any_text_on_stdio(), warnings.catch_warnings():
        warnings.showwarning = _warn  # type: ignore[assignment]
        try:
            code = app(args=None if arguments is None else list(arguments), prog_name=PROGRAM, standalone_mode=False)
            sys.stdout.flush()
            return int(code or ExitCode.OK)
        except DeltaSharingError as error:
            return _fail(one_line(error), exit_code(error))
        except Stopped as stopped:
            return _leave_pipe() if stopped.code is ExitCode.BROKEN_PIPE else _fail("interrupted", stopped.code)
        except Exception as error:
            return _leave_pipe() if _is_closed_pipe(error) else _unforeseen(error)


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` as one line with masked URLs; the class name if it has no text."""
    return " ".join(scrub(str(error)).split()) or type(error).__name__


def _unforeseen(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        _drop_output()
        return _fail(f"Cannot write the output: {error.strerror}. Free disk space or write elsewhere.", ExitCode.USAGE)
    if isinstance(error, UnicodeEncodeError) and _SURROGATE.search(error.object):
        return _fail(
            f"The text {error.object!a} has bytes that are not valid in the encoding of the locale. Set a locale with "
            "UTF-8, or PYTHONUTF8=1.",
            ExitCode.USAGE,
        )
    usage = _usage_message(error)
    if usage == "":
        return ExitCode.USAGE  # the help was printed, and there is no other message
    if usage is not None:
        return _fail(usage, ExitCode.USAGE)
    return _fail(f"unexpected {type(error).__name__}: {one_line(error)}; please report this", ExitCode.INTERNAL)


def _warn(message: Warning, *_: object) -> None:
    # The position in the code, which Python would print, is useless to a user.
    sys.stderr.write(f"{PROGRAM}: {one_line(message)}\n")


def _usage_message(error: Exception) -> str | None:
    """Return the message for a mistake on the command line: "" if there is nothing to print, ``None`` for any other
    error.

    Older releases of typer raise click's exceptions and newer ones their own; both format themselves.
    """
    formatter = getattr(error, "format_message", None)
    if formatter is None:
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(f"{formatter()}\n")
        return ""
    message = " ".join(str(formatter()).replace("Value error, ", "").split()).rstrip(".")
    message = _PYDANTIC.sub(r"expected \1", message)
    if message.startswith("Got unexpected extra argument"):
        message += ". Put SQL, and anything else with spaces, in quotes"
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", None) or PROGRAM
    unknown = re.match(r"No such (?:command|option):? '?([\w-]+)", message)
    ours = _ELSEWHERE.get(unknown[1]) if unknown else None
    if ours is not None and (not ours.startswith("-") or ours in _options(context)):
        message = f"{message.partition(' (')[0]}; it is called '{ours}' here"
    return f"{message}{'' if message.endswith('?') else '.'} See: {path} --help"


def _options(context: Any) -> set[str]:
    """Return the options of the command of ``context``."""
    return {option for parameter in context.command.params for option in parameter.opts}


def _is_closed_pipe(error: Exception) -> bool:
    """Return whether nobody reads the output. Windows calls that an invalid argument, without a file's name."""
    if isinstance(error, BrokenPipeError):
        return True
    is_invalid = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    return is_invalid and os.name == "nt"


def _leave_pipe() -> int:
    _drop_output()
    return ExitCode.BROKEN_PIPE


def _drop_output() -> None:
    # Nobody reads the output any more, and flushing it at exit must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: ExitCode) -> int:
    sys.stderr.write(f"{PROGRAM}: {message}\n")
    return code
