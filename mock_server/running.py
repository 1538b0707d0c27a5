"""Runs the server: in a thread for tests, in a process for benchmarks, in the foreground for the command line."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import uvicorn
from starlette.types import ASGIApp

from delta_sharing_client.redact import Secret

from . import catalog
from . import demo as sample_tables
from .app import SETTLE_SECONDS, SharingServer, create_app
from .asset_files import Location, from_mappings
from .catalog import AssetEntry, Catalog, TableFormat, unique_assets
from .config import ServerConfig
from .connection import ServingProtocol
from .errors import ConfigError
from .faults import Fault, parse_fault
from .tls import Tls, TlsFiles, prepare

TablesArgument = Union[str, os.PathLike[str], Mapping[str, Union[str, "os.PathLike[str]"]], Catalog]
_START_SECONDS = 60.0


class RunningServer:
    """A server that is listening.

    ``endpoint`` is the URL of its REST API, ``profile`` the content of its profile, and ``profile_path`` the profile
    file. ``ca_path`` is the certificate that clients must trust (``REQUESTS_CA_BUNDLE``), if one was created for this
    server.
    """

    def __init__(self, profile: dict[str, Any], profile_path: Path) -> None:
        self.profile = profile
        self.profile_path = profile_path
        self.endpoint: str = profile["endpoint"]
        authority = authority_path(profile_path)
        self.ca_path: Path | None = authority if authority.exists() else None

    def __repr__(self) -> str:
        return f"RunningServer({self.endpoint})"  # without the profile, which contains the token

    def stats(self) -> dict[str, Any]:
        """Return the counts of requests and bytes; see ``mock_server.stats``."""
        return self._call("_stats")

    def reset_stats(self) -> dict[str, Any]:
        """Set all counts to zero and return their previous values."""
        return self._call("_stats", {})

    def set_fault(self, text: str) -> None:
        """Activate a fault, written ``NAME[=VALUE][:COUNT][@TARGET]``; see ``mock_server.faults``."""
        self._call("_control", {"fault": text})

    def clear_faults(self, name: str | None = None) -> None:
        """End one fault, or all of them."""
        self._call("_control", {"clear": name})

    def expire_urls(self) -> None:
        """Expire all data URLs that exist now."""
        self._call("_control", {"expire_urls": True})

    def _call(self, name: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        origin = "/".join(self.endpoint.split("/", 3)[:3])
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{origin}/{name}", data=body, method="GET" if body is None else "POST")
        request.add_header("Authorization", f"Bearer {self.profile['bearerToken']}")
        trusted = ssl.create_default_context(cafile=self.ca_path)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        with opener.open(request, timeout=30) as response:
            result: dict[str, Any] = json.load(response)
            return result


@contextlib.contextmanager
def running(
    tables: TablesArgument | None = None,
    *,
    demo: bool = False,
    process: bool = False,
    volumes: Mapping[str, Location] | None = None,
    skills: Mapping[str, Location] | None = None,
    models: Mapping[str, Location | Mapping[int, Location]] | None = None,
    aliases: Mapping[str, Mapping[str, int]] | None = None,
    **options: Any,
) -> Iterator[RunningServer]:
    """Run a server on a free port of the loopback interface during a ``with`` block.

    Parameters
    ----------
    tables:
        A directory (like ``--tables``), ``{"share.schema.table": directory}``, or a catalog.
    demo:
        Serve sample tables instead, which are created for this server.
    process:
        Run the server in its own process rather than in a thread; ``tables`` must then be a directory.
    volumes, skills, models, aliases:
        Other assets, by full names: ``{"share.schema.volume": directory or URL}``. A model is a directory that contains
        one for each version, or ``{version: directory}``; ``aliases`` are ``{"share.schema.model": {alias: version}}``.
    options:
        Fields of `ServerConfig`; ``faults`` are strings or `Fault` values, ``token`` is a string or a `Secret`.
        ``tls=True`` creates a certificate for this server.
    """
    assets = from_mappings(volumes, skills, models, aliases)
    if (demo and tables is not None) or not (demo or assets or tables is not None):
        raise ConfigError("Give 'tables', 'demo=True' or other assets; 'tables' and 'demo=True' exclude each other.")
    if process and assets:
        raise ConfigError("A server in its own process can serve only a directory of tables, and no other assets.")
    with tempfile.TemporaryDirectory(prefix="mock-server-") as folder:
        directory = Path(folder)
        if demo:
            samples = sample_tables.build(directory / "tables" / sample_tables.SHARE)
            tables = directory / "tables" if process else samples
        shared = {} if tables is None else tables
        run = _in_process(shared, directory, options) if process else _in_thread(shared, directory, options, assets)
        with run as server:
            yield server


def as_catalog(tables: TablesArgument) -> Catalog:
    """Return ``tables`` as a catalog."""
    if isinstance(tables, Catalog):
        return tables
    if isinstance(tables, Mapping):
        return catalog.from_mapping(tables)
    return catalog.from_directory(tables)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to ``host`` and ``port`` (0 for any free port). Raises `ConfigError` if that fails."""
    listening: socket.socket | None = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # Without the protocol number, asyncio would not recognise TCP and would leave Nagle's algorithm on. It would
        # delay the body of a response, which is a separate packet after the headers, by 40 ms.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        # On Windows, this option would let two servers use one port.
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        if listening is not None:
            listening.close()
        raise ConfigError(f"The server cannot listen on {host} port {port}: {error.strerror or error}.") from error
    return listening


def profile_for(app: SharingServer, listening: socket.socket) -> dict[str, Any]:
    """Return the content of a profile file, version 1, for the server on the socket ``listening``.

    The profile names the Iceberg catalog if an Iceberg table is shared.
    """
    config = app.config
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    host = f"[{host}]" if ":" in host else host
    address = f"http{'' if config.tls is None else 's'}://{host}:{port}"
    profile = {
        "shareCredentialsVersion": 1,
        "endpoint": f"{address}{config.prefix.rstrip('/')}/",
        "bearerToken": config.token.reveal(),
    }
    if any(TableFormat.ICEBERG in table.formats for table in app.catalog.last.tables):
        profile["icebergEndpoint"] = f"{address}{config.iceberg_prefix.rstrip('/')}/"
    return profile


def write_profile(profile: Mapping[str, Any], path: Path) -> None:
    """Write a profile file atomically; only its owner can read it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(profile, file, indent=2)
        file.write("\n")
    os.replace(temporary, path)


def authority_path(profile: Path) -> Path:
    """Return the path, next to a profile, of the certificate to trust if one was created for the server."""
    return profile.with_suffix(".pem")


def uvicorn_config(app: ASGIApp, tls: TlsFiles | None = None) -> uvicorn.Config:
    """Return the uvicorn configuration for an application: no access log, our connection class, a quick shutdown."""
    return uvicorn.Config(
        app,
        http=ServingProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_level=logging.CRITICAL,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=1024,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else str(tls.key),
        ssl_keyfile_password=None if tls is None or tls.password is None else tls.password.reveal(),
    )


class _PromptServer(uvicorn.Server):
    """Stops within milliseconds. uvicorn's own server checks only ten times a second whether it should stop, and then
    waits.

    Tests start hundreds of servers, so 0.2 s for each would add up to minutes.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Start the shutdown, from any thread. A server that is not serving yet will not start."""
        self.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has already stopped
                self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not await self.on_tick(0):
            await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        now = asyncio.get_running_loop().time
        deadline = now() + (self.config.timeout_graceful_shutdown or 0)
        while (self.server_state.connections or self.server_state.tasks) and now() < deadline:
            await asyncio.sleep(0.002)
        for task in list(self.server_state.tasks):
            task.cancel()


@contextlib.contextmanager
def serving(config: uvicorn.Config, listening: socket.socket) -> Iterator[None]:
    """Serve an application in a thread, on the bound socket ``listening``, during a ``with`` block."""
    server = _PromptServer(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="mock_server", daemon=True)
    thread.start()
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("the mock server did not start")
        time.sleep(0.002)
    try:
        yield
    finally:
        server.end()
        thread.join(timeout=10)


@contextlib.contextmanager
def _in_thread(
    tables: TablesArgument, directory: Path, options: dict[str, Any], assets: tuple[AssetEntry, ...]
) -> Iterator[RunningServer]:
    directory_of_tables = None if isinstance(tables, (Mapping, Catalog)) else Path(tables)
    shared = as_catalog(tables)
    shared = dataclasses.replace(shared, assets=unique_assets((*shared.assets, *assets)))
    config = ServerConfig(catalog=shared, directory=directory_of_tables, **_checked(options))
    app = create_app(config)
    path = directory / "profile.share"
    files = None if config.tls is None else prepare(config.tls, directory, authority_path(path))
    with bind(config.host, config.port) as listening, contextlib.ExitStack() as stack:
        # The files are removed after the server has ended.
        stack.callback(app.close)
        stack.enter_context(serving(uvicorn_config(app, files), listening))
        profile = profile_for(app, listening)
        write_profile(profile, path)
        yield _ThreadServer(profile, path, app)


@contextlib.contextmanager
def _in_process(tables: TablesArgument, directory: Path, options: dict[str, Any]) -> Iterator[RunningServer]:
    if isinstance(tables, (Mapping, Catalog)):
        raise ConfigError("A server in its own process can serve only a directory of tables.")
    path = directory / "profile.share"
    command = [sys.executable, "-m", __package__, "--tables", os.fspath(tables), "--profile-out", str(path)]
    for name, value in options.items():
        if name == "faults":
            command += [part for fault in value for part in ("--fault", str(fault))]
        elif value is not False:
            text = value.reveal() if isinstance(value, Secret) else str(value)
            command += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not path.exists():
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the mock server's process did not start")
            time.sleep(0.01)
        yield RunningServer(json.loads(path.read_text(encoding="utf-8")), path)
    finally:
        child.terminate()
        try:
            child.wait(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class _ThreadServer(RunningServer):
    """A server in this process. It is controlled without requests, so that faults cannot affect the control."""

    def __init__(self, profile: dict[str, Any], profile_path: Path, app: SharingServer) -> None:
        super().__init__(profile, profile_path)
        self.app = app

    def stats(self) -> dict[str, Any]:
        deadline = time.monotonic() + SETTLE_SECONDS
        while not self.app.stats.idle and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.app.stats.snapshot()

    def reset_stats(self) -> dict[str, Any]:
        content = self.stats()
        self.app.stats.reset()
        return content

    def set_fault(self, text: str) -> None:
        self.app.faults.set(parse_fault(text))

    def clear_faults(self, name: str | None = None) -> None:
        self.app.faults.clear(name)

    def expire_urls(self) -> None:
        self.app.signer.expire_all()


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    checked = dict(options)
    if isinstance(checked.get("token"), str):
        checked["token"] = Secret(checked["token"])
    if isinstance(checked.get("tls"), bool):
        checked["tls"] = Tls() if checked["tls"] else None
    if "faults" in checked:
        checked["faults"] = tuple(
            fault if isinstance(fault, Fault) else parse_fault(fault) for fault in checked["faults"]
        )
    return checked
