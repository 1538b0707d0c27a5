"""The server of the page: it listens only on this machine, opens the page, and removes its files."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import os
import secrets
import shutil
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

from delta_sharing_client import loopback
from delta_sharing_client.browse.guard import Guard
from delta_sharing_client.browse.routes import make_app
from delta_sharing_client.browse.session import Session
from delta_sharing_client.protocol.profile import ProfileSource


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
        with contextlib.closing(session), loopback.listening(port) as listening:
            port = listening.getsockname()[1]
            token = secrets.token_urlsafe()
            opener = folder / "open.html"
            guard = Guard(make_app(session), port, token, lambda: opener.unlink(missing_ok=True))
            with loopback.serving(guard, listening):
                yield Running(port, f"http://{loopback.HOST}:{port}/?token={token}", session, opener)
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
    with loopback.ended_by_signals() as ended, running(profile, port) as page:
        # Temporary files of other modules, such as the rows of a workbook, are removed together with this folder.
        before, tempfile.tempdir = tempfile.tempdir, str(page.session.folder)
        try:
            tell(page.address, opens and _open(page))
            loopback.wait(ended)
        finally:
            tempfile.tempdir = before


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


def _remove(folder: Path) -> None:
    # A thread whose read was ended may still be writing its file.
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.01)
