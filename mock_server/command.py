"""The command line of the server, ``python -m mock_server``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
import uvicorn

from delta_sharing_client.console import any_text_on_stdio
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.redact import Secret

from . import catalog, config, demo
from .app import SharingServer, create_app
from .catalog import AssetKind
from .config import ServerConfig
from .errors import ConfigError
from .faults import FAULTS, parse_fault
from .running import authority_path, bind, profile_for, uvicorn_config, write_profile
from .tls import Tls, prepare

_LISTED_TABLES = 12

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def serve(
    context: typer.Context,
    demo_tables: Annotated[bool, typer.Option("--demo", help="Build and serve sample tables.")] = False,
    tables: Annotated[
        Optional[Path],
        typer.Option(help="Serve the Delta tables DIR/<share>/<schema>/<table> or DIR/<table>.", metavar="DIR"),
    ] = None,
    config_file: Annotated[
        Optional[Path],
        typer.Option("--config", help="Serve what a configuration file of the reference server lists.", metavar="FILE"),
    ] = None,
    host: Annotated[Optional[str], typer.Option(help="Address to listen on (default 127.0.0.1).")] = None,
    port: Annotated[Optional[int], typer.Option(help="Port to listen on (default 0: any free one).")] = None,
    profile_out: Annotated[
        Optional[Path], typer.Option(help="Write a profile file once the server listens.", metavar="FILE")
    ] = None,
    token: Annotated[Optional[str], typer.Option(help="Bearer token (default: a new one).")] = None,
    url_ttl: Annotated[Optional[float], typer.Option(help="Seconds for which a data URL is valid.")] = None,
    latency: Annotated[Optional[float], typer.Option(help="Delay every response by this many seconds.")] = None,
    bandwidth: Annotated[Optional[float], typer.Option(help="Bytes per second for all responses together.")] = None,
    page_size_limit: Annotated[Optional[int], typer.Option(help="Maximum number of files per page of a query.")] = None,
    async_polls: Annotated[Optional[int], typer.Option(help="Polls until an asynchronous query is done.")] = None,
    local_directories: Annotated[
        bool,
        typer.Option("--local-directories", help="Offer directory access to users of this machine."),
    ] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Serve HTTPS with a certificate created for this run.")] = False,
    certfile: Annotated[Optional[Path], typer.Option(help="Serve HTTPS with this certificate (PEM).")] = None,
    keyfile: Annotated[Optional[Path], typer.Option(help="The key of --certfile (PEM).")] = None,
    fault: Annotated[
        Optional[list[str]],
        typer.Option(help="Simulate a fault: NAME[=VALUE][:COUNT][@TARGET]; repeatable.", metavar="FAULT"),
    ] = None,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="Describe the faults and stop.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print counts of requests and bytes at the end.")] = False,
) -> None:
    """Serve local Delta tables over the Delta Sharing protocol."""
    if list_faults:
        typer.echo("\n".join(f"{kind.name:24} {kind.doc} [{kind.target.value}]" for kind in FAULTS))
        return
    options = {
        "host": host,
        "port": port,
        "token": None if token is None else Secret(token),
        "url_ttl": url_ttl,
        "latency": latency,
        "bandwidth": bandwidth,
        "page_size_limit": page_size_limit,
        "async_polls": async_polls,
        "local_directories": local_directories or None,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    with any_text_on_stdio(), _exit_codes((context.info_name or "").removesuffix(" serve")):
        if tls or certfile is not None or keyfile is not None:
            given["tls"] = Tls(certificate=_expanded(certfile), key=_expanded(keyfile))
        given["faults"] = tuple(parse_fault(text) for text in fault or [])
        if sum((demo_tables, tables is not None, config_file is not None)) != 1:
            raise ConfigError("Give one of --demo, --tables DIR and --config FILE.")
        with _config(tables, config_file, given) as settings:
            _serve(settings, _expanded(profile_out), with_stats=stats)


def _expanded(path: Path | None) -> Path | None:
    return None if path is None else Path(expanded(path))


@contextlib.contextmanager
def _exit_codes(program: str) -> Iterator[None]:
    """Exit with 2 and a message that begins with ``program`` if the server cannot start, or with 130 if Ctrl-C
    comes before it has started."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    except ConfigError as error:
        typer.echo(f"{program}: {error}", err=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt:
        typer.echo(f"{program}: interrupted", err=True)
        raise typer.Exit(130) from None


@contextlib.contextmanager
def _config(tables: Path | None, config_file: Path | None, given: dict[str, Any]) -> Iterator[ServerConfig]:
    if config_file is not None:
        settings = config.from_yaml(config_file)
        # A token on the command line is always checked.
        yield dataclasses.replace(settings, **given, check_token=settings.check_token or "token" in given)
    elif tables is not None:
        yield ServerConfig(catalog=catalog.from_directory(tables), directory=tables, **given)
    else:
        # Wrong options are refused before the tables are built, which takes seconds.
        settings = ServerConfig(catalog=catalog.from_mapping({}), **given)
        with tempfile.TemporaryDirectory(prefix="delta-sharing-demo-") as directory:
            typer.echo("building the sample tables ...")
            yield dataclasses.replace(settings, catalog=demo.build(Path(directory)))


def _serve(settings: ServerConfig, profile_out: Path | None, *, with_stats: bool) -> None:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(bind(settings.host, settings.port))
        if profile_out is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="mock-server-"))
            profile_out = Path(directory) / "profile.share"
        with _writing(profile_out):
            if profile_out.is_dir():
                raise ConfigError(f"The profile cannot be written: '{profile_out}' is a directory.")
            if not profile_out.parent.is_dir():
                raise ConfigError(f"The profile cannot be written: '{profile_out.parent}' is not a directory.")
        listening.listen(1024)  # clients may connect as soon as the profile exists, even before the first loop turn
        files = None
        if settings.tls is not None:
            keys = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mock-server-")))
            with _writing(profile_out):
                files = prepare(settings.tls, keys, authority_path(profile_out))
            stack.callback(authority_path(profile_out).unlink, missing_ok=True)
        server = create_app(settings)
        stack.callback(server.close)
        profile = profile_for(server, listening)
        with _writing(profile_out):
            write_profile(profile, profile_out)
        stack.callback(profile_out.unlink, missing_ok=True)
        _announce(settings, profile["endpoint"], profile_out)
        if files is not None and files.authority is not None:
            typer.echo(f"certificate to trust: export REQUESTS_CA_BUNDLE={files.authority.resolve()}")
        running = uvicorn.Server(uvicorn_config(server, files))
        # These handlers act until uvicorn handles signals itself, and when it raises them again after its shutdown.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(running, "should_exit", True))
        running.run(sockets=[listening])
        if with_stats:
            _report(server)


@contextlib.contextmanager
def _writing(profile: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"The profile cannot be written to '{profile}': {error.strerror}.") from error


def _announce(settings: ServerConfig, endpoint: str, profile: Path) -> None:
    tables, assets = settings.catalog.tables, settings.catalog.assets
    counts = [(len(tables), "table"), *((sum(one.kind is kind for one in assets), kind.noun) for kind in AssetKind)]
    shared = ", ".join(
        f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count or noun == "table"
    )
    typer.echo(f"serving {shared} at {endpoint}")
    for table in tables[:_LISTED_TABLES]:
        typer.echo(f"  {table.full_name}")
    if len(tables) > _LISTED_TABLES:
        typer.echo(f"  ... and {len(tables) - _LISTED_TABLES} more")
    for asset in assets[:_LISTED_TABLES]:
        typer.echo(f"  {asset.full_name} ({asset.kind.noun})")
    typer.echo(f"profile: {profile.resolve()}")
    if tables:
        typer.echo("try:")
        typer.echo(f"  delta-sharing --profile {profile.resolve()} ls")
        example = f"{profile.resolve()}#{tables[0].full_name}"
        typer.echo(f'  python -c "import delta_sharing_client as ds; print(ds.load_as_pandas({example!r}))"')
    typer.echo("stop with Ctrl-C")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _report(server: SharingServer) -> None:
    content = server.stats.snapshot()
    content["files"] = len(content["files"])
    typer.echo(json.dumps(content, indent=2))
