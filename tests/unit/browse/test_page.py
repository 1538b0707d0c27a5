"""The page opens only in a graphical browser; its server ends after a signal, and logs no requests."""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import time
import webbrowser
from typing import Any

import pytest

from delta_sharing_client.browse import page
from delta_sharing_client.browse.page import Running, running
from delta_sharing_client.errors import UsageError
from delta_sharing_client.loopback import ended_by_signals, wait
from tests.time_limits import HANGS

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://a.invalid/x/", "bearerToken": "planted"}
ADDRESS = "http://127.0.0.1:7/?token=a&b"
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a display")


@pytest.fixture
def shown(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    session: Any = None
    return Running(7, ADDRESS, session, tmp_path / "open.html")


@LINUX
@pytest.mark.parametrize("name", ["DISPLAY", "WAYLAND_DISPLAY"])
@pytest.mark.parametrize("outcome", [True, False, webbrowser.Error("none"), OSError("none")])
def test_browser_is_opened_by_a_private_file(
    shown: Running, monkeypatch: pytest.MonkeyPatch, name: str, outcome: object
) -> None:
    opened: list[str] = []

    def open_it(address: str) -> bool:
        opened.append(address)
        if isinstance(outcome, Exception):
            raise outcome
        return bool(outcome)

    monkeypatch.setenv(name, ":0")
    monkeypatch.setattr("webbrowser.open", open_it)
    assert page._open(shown) is (outcome is True)
    assert opened == [shown.opener.as_uri()]
    assert shown.opener.stat().st_mode & 0o777 == 0o600
    text = shown.opener.read_text()
    assert text.startswith('<!doctype html><meta charset="utf-8">')
    assert text.count("http://127.0.0.1:7/?token=a&amp;b") == 2
    # A file that another user has put there is not used.
    with pytest.raises(FileExistsError):
        page._open(shown)


@LINUX
def test_browser_of_a_terminal_is_not_opened(shown: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: pytest.fail("a browser was opened"))
    assert page._open(shown) is False
    assert not shown.opener.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_ends_and_the_second_has_its_effect(number: int) -> None:
    effects: list[int] = []
    before = signal.signal(number, lambda number, frame: effects.append(number))
    try:
        with ended_by_signals() as ended:
            assert not ended.is_set()
            signal.raise_signal(number)
            wait(ended)
            assert effects == []
            signal.raise_signal(number)
            assert effects == [number]
        with ended_by_signals() as ended:
            pass
        signal.raise_signal(number)
        assert (effects, ended.is_set()) == ([number, number], False)
        signal.signal(number, signal.SIG_IGN)
        with ended_by_signals() as ended:
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_server_is_private_and_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), running(PROFILE) as served:
        folder = served.session.folder
        assert served.opener == folder / "open.html"
        assert folder.name.startswith("delta-sharing-browse-")
        if sys.platform != "win32":
            assert folder.stat().st_mode & 0o777 == 0o700
        for request, status in ((b"nonsense\r\n\r\n", b"400"), (b"GET /x HTTP/1.0\r\n\r\n", b"403")):
            with socket.create_connection(("127.0.0.1", served.port), timeout=HANGS) as connection:
                connection.sendall(request)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            assert answer.split()[1] == status
            assert b"\r\nserver:" not in answer.lower()
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []
    assert not folder.exists()
    with pytest.raises(OSError, match=r"refused|10061"):
        socket.create_connection(("127.0.0.1", served.port), timeout=HANGS)


def test_used_or_impossible_port_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with (
            pytest.raises(UsageError, match=rf"cannot use port {port}: {os.strerror(errno.EADDRINUSE)}"),
            running(PROFILE, port),
        ):
            pass
    with pytest.raises(UsageError, match="cannot use port 70000: it is not a port"), running(PROFILE, 70_000):
        pass
    assert list(tmp_path.iterdir()) == []


def test_opener_is_removed_when_the_address_was_used() -> None:
    with running(PROFILE) as served:
        for is_there in (True, False):
            if is_there:
                served.opener.write_text("x")
            request = f"GET /?{served.address.partition('?')[2]} HTTP/1.1"
            with socket.create_connection(("127.0.0.1", served.port), timeout=HANGS) as connection:
                connection.sendall(f"{request}\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n\r\n".encode())
                assert connection.recv(65536).split()[1] == b"303"
            assert not served.opener.exists()


def test_temporary_files_of_the_command_are_in_its_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places, opened, told = list[str](), list[int](), list[tuple[str, bool]]()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(page.loopback, "wait", lambda ended: places.append(tempfile.gettempdir()))

    def open_it(served: Running) -> bool:
        opened.append(served.port)
        return True

    monkeypatch.setattr(page, "_open", open_it)
    for opens in (False, True):
        page.serve(PROFILE, port=0, opens=opens, tell=lambda address, is_open: told.append((address, is_open)))
    assert [pathlib.Path(place).parent for place in places] == [tmp_path] * 2
    assert [is_open for _, is_open in told] == [False, True]
    assert len(opened) == 1
    assert told[1][0].startswith(f"http://127.0.0.1:{opened[0]}/?token=")
    assert (tempfile.gettempdir(), list(tmp_path.iterdir())) == (str(tmp_path), [])


def test_folder_in_which_a_file_appears_is_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, pauses, rmtree = tmp_path / "run", list[float](), shutil.rmtree
    folder.mkdir()
    monkeypatch.setattr(shutil, "rmtree", lambda path, **more: rmtree(path, **more) if len(pauses) == 3 else None)
    monkeypatch.setattr(time, "sleep", pauses.append)
    page._remove(folder)
    assert not folder.exists()
    assert len(pauses) == 3
    assert 0 < sum(pauses) < 0.1
