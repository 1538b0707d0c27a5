"""The server of the page: it listens only on this machine, opens the page, and removes its files."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from delta_sharing_client.browse.guard import HOST, Guard
from delta_sharing_client.browse.routes import make_app
from delta_sharing_client.browse.session import Session
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.profile import ProfileSource
from delta_sharing_client.threads import start

_START_SECONDS = 30.0
_END_SECONDS = 0.35
_LISTEN_SECONDS = 0.2
# The signals of Ctrl-C and of other ways to end the program, such as a closed terminal or a stopped service.
_ENDS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")


@dataclasses.dataclass(frozen=True)
class Running:
    """A server that is listening.

    ``address`` contains the token; ``opener`` is a file that redirects to it, so that no list of processes shows the
    token.
    """

    port: int
    address: str
    session: Session
    opener: Path


@contextlib.contextmanager
def running(profile: ProfileSource, port: int = 0) -> Iterator[Running]:
    """Serve the page of ``profile`` on a port of this machine (0 for any free one) during the block.

    Raises ``ProfileError`` if the profile cannot be used, and ``UsageError`` if the port cannot.
    """
    # Only this user can read the folder.
    folder = Path(tempfile.mkdtemp(prefix="delta-sharing-browse-"))
    try:
        session = Session(profile, folder)
        with contextlib.closing(session), _listening(port) as listening:
            port = listening.getsockname()[1]
            token = secrets.token_urlsafe()
            opener = folder / "open.html"
            guard = Guard(make_app(session), port, token, lambda: opener.unlink(missing_ok=True))
            with _serving(guard, listening):
                yield Running(port, f"http://{HOST}:{port}/?token={token}", session, opener)
                # Reads are ended now, so that requests that wait for them get a response before their connection is
                # closed.
                session.close()
    finally:
        _remove(folder)


def serve(profile: ProfileSource, *, port: int, opens: bool, tell: Callable[[str, bool], None]) -> None:
    """Serve the page until Ctrl-C. Call it on the main thread. ``tell`` prints its address, and whether a browser opens
    it.

    Raises the errors of ``running``.
    """
    with ended_by_signals() as ended, running(profile, port) as page:
        # Temporary files of other modules, such as the rows of a workbook, are removed together with this folder.
        before, tempfile.tempdir = tempfile.tempdir, str(page.session.folder)
        try:
            tell(page.address, opens and _open(page))
            wait(ended)
        finally:
            tempfile.tempdir = before


@contextlib.contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C, SIGTERM and a closed terminal set."""
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        # The previous handler is restored, so that a second signal has its usual effect.
        signal.signal(number, before[number])

    numbers = [number for name in _ENDS if (number := getattr(signal, name, None)) is not None]
    # An ignored signal (nohup) stays ignored.
    before = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, end)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait(ended: threading.Event) -> None:
    """Wait for ``ended``."""
    # Each wait is short, because on Windows Ctrl-C does not interrupt a wait.
    while not ended.wait(_LISTEN_SECONDS):
        pass


def _open(page: Running) -> bool:
    """Open the page in a graphical browser, and return whether there is one."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        # There could only be a terminal browser, which would take over this terminal.
        return False
    with open(page.opener, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        address = html.escape(page.address)
        file.write(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
            f'<title>delta-sharing</title><a href="{address}">Look at what is shared</a>'
        )
    with contextlib.suppress(webbrowser.Error, OSError):
        return webbrowser.open(page.opener.as_uri())
    return False


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)) as listening:
        # On Windows, this option would let another program take over the port.
        if sys.platform != "win32":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or "it is not a port"
            raise UsageError(
                f"The page cannot use port {port}: {reason}. Choose a different --port, or omit it to use a free one."
            ) from None
        listening.listen()
        yield listening


@contextlib.contextmanager
def _serving(app: Guard, listening: socket.socket) -> Iterator[None]:
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=logging.CRITICAL,
        proxy_headers=False,
        server_header=False,
    )
    server = uvicorn.Server(config)
    thread = start(lambda: server.run(sockets=[listening]), "delta-sharing-browse")
    deadline = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise UsageError("The page's server did not start. Try a different --port.")
        time.sleep(0.005)
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        thread.join(_END_SECONDS)


def _remove(folder: Path) -> None:
    # A thread whose read was ended may still be writing its file.
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.01)
