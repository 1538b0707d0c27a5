"""``delta-sharing mcp --http``: only requests of this machine with the token are answered."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.mcp.http_server import running
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.scope import Scope
from delta_sharing_client.mcp.server import make_server
from tests.time_limits import HANGS
from tests.unit.mcp.sessions import Session, connected, digests

pytestmark = pytest.mark.server

SKILL = "skill://demo/shop/sales-report/SKILL.md"
ENDLESS = "SELECT count(*) FROM range(10000000000000) a, range(1000) b WHERE a.range % 7 = b.range % 11"


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    from delta_sharing_client import testing

    with testing.running() as server:
        yield server


@pytest.fixture(scope="module")
def served(demo: Any) -> Iterator[tuple[str, str]]:
    with running(make_server(demo.profile, Limits())) as found:
        yield found


def sent(
    address: str, headers: list[tuple[str, str]], method: str = "POST", path: str = "/mcp"
) -> tuple[int, Any, str]:
    """Send an ``initialize`` with exactly these headers; return the status, the headers and the body."""
    version = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version}).encode()
    connection = http.client.HTTPConnection(re.findall(r"//([^/]+)", address)[0], timeout=HANGS)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    text = response.read().decode() if response.status != 200 else ""
    connection.close()
    return response.status, dict(response.getheaders()), text


def test_client_reads_skills_over_http(served: tuple[str, str]) -> None:
    async def use(session: Session) -> None:
        (entry,), refused = await session.skills()
        assert refused == {}
        root = entry["uri"].removesuffix("SKILL.md")
        files = {one["uri"].removeprefix(root): await session.read(one["uri"]) for one in entry["resources"]}
        assert sorted(entry["resources"], key=lambda one: one["uri"]) == digests(files, root)
        assert b"# Sales report" in files["SKILL.md"]
        assert not (await session.client.call_tool("list_assets", {})).is_error

    for mode in ("auto", "legacy"):
        connected(served, use, mode=mode)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 200),
        ({"Host": "LOCALHOST:{port}"}, 200),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://localhost:{port}"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://evil.invalid"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "evil.invalid:{port}"}, 403),
        ({"Host": "evil.invalid:{port}", "Origin": "http://evil.invalid:{port}"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Host": None}, 403),
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer x{token}"}, 401),
        ({"Authorization": "{token}"}, 401),
        ({"Authorization": "Basic {token}"}, 401),
        ({"Authorization": "bearer  {token}"}, 200),
        ({"Authorization": "Bearer {token} "}, 200),
        ({"Authorization": "Bearer \xe9"}, 401),
    ],
)
def test_only_this_user_may_ask(
    served: tuple[str, str], caplog: pytest.LogCaptureFixture, changes: dict[str, str | None], status: int
) -> None:
    address, token = served
    port = address.rpartition(":")[2].partition("/")[0]
    good = {
        "Host": f"127.0.0.1:{port}",
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    headers = {**good, **{name: value and value.format(port=port, token=token) for name, value in changes.items()}}
    pairs = [(name, value) for name, value in headers.items() if value is not None]
    with caplog.at_level(logging.DEBUG):
        found, got, body = sent(address, pairs)
    assert found == (400 if changes == {"Host": None} else status)
    assert token not in f"{got} {body} {caplog.text}"
    if status == 401:
        assert got["www-authenticate"] == "Bearer"
    if status == 200:
        twice = [*pairs, ("Authorization", f"Bearer {token}")]
        assert sent(address, twice)[0] == 401
        assert sent(address, pairs, path="/other")[0] == 404
    else:
        for method, path in (("GET", "/mcp"), ("DELETE", "/mcp"), ("OPTIONS", "/mcp"), ("GET", "/.well-known/x")):
            assert sent(address, pairs, method, path)[0] in (400, 401, 403)


def test_scope_holds_over_http(demo: Any) -> None:
    async def use(session: Session) -> None:
        assert await session.skills() == ([], {})
        assert (await session.error("resources/read", uri=SKILL))[0] == -32602

    with running(make_server(demo.profile, Limits(), Scope.of((), ("demo.shop.orders",)))) as found:
        connected(found, use)


def test_used_port_is_refused(demo: Any, served: tuple[str, str]) -> None:
    port = int(served[0].rpartition(":")[2].partition("/")[0])
    with (
        pytest.raises(UsageError, match=f"cannot use port {port}: "),
        running(make_server(demo.profile, Limits()), port),
    ):
        pass


@contextlib.contextmanager
def command(demo: Any, folder: Path, *options: str) -> Iterator[Any]:
    (folder / "p.share").write_text(json.dumps(demo.profile))
    words = [
        sys.executable,
        "-m",
        "delta_sharing_client",
        "-p",
        str(folder / "p.share"),
        "mcp",
        "--http",
        "0",
        *options,
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("is_json", [False, True])
def test_command_prints_address_and_token_once(demo: Any, tmp_path: Any, is_json: bool) -> None:
    with command(demo, tmp_path, *["--json"][: int(is_json)]) as process:
        try:
            if is_json:
                told = json.loads(process.stdout.readline())
                address, header = told["url"], told["headers"]["Authorization"]
            else:
                address = process.stdout.readline().strip()
                header = process.stdout.readline().strip().removeprefix("Authorization: ")
            token = header.removeprefix("Bearer ")
            assert len(token) > 40

            async def use(session: Session) -> None:
                assert [one["uri"] for one in (await session.skills())[0]] == [SKILL]

            connected((address, token), use)
        finally:
            process.terminate()
            out, err = process.communicate(timeout=HANGS)
    assert process.returncode == 0
    assert token not in out + err
    assert demo.profile["bearerToken"] not in out + err


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_cancelled_call_ends_over_http(demo: Any, mode: str) -> None:
    server = make_server(demo.profile, Limits(seconds=100_000))

    async def use(session: Session) -> None:
        call = asyncio.create_task(session.client.call_tool("query", {"sql": ENDLESS}))
        while not server.calls.running:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        # If the query ran on, this would never end.
        while server.calls.running:
            await asyncio.sleep(0.01)

    with running(server) as found:
        connected(found, use, mode=mode)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
def test_command_ends_during_a_query(demo: Any, tmp_path: Any) -> None:
    with command(demo, tmp_path, "--json", "--max-seconds", "100000") as process:
        told = json.loads(process.stdout.readline())

        async def use(session: Session) -> None:
            call = asyncio.create_task(session.client.call_tool("query", {"sql": ENDLESS}))
            # Another thread responds to this, after the query has begun.
            await session.client.call_tool("list_assets", {})
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, HANGS) == 0
            call.cancel()

        with contextlib.suppress(ExceptionGroup):  # the connection has ended
            connected((told["url"], told["headers"]["Authorization"].removeprefix("Bearer ")), use)
        assert process.wait(HANGS) == 0
