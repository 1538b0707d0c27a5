"""The server over HTTP, for programs of this machine's user: each request needs the token that was printed once."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator

from mcp.server import MCPServer
from mcp.server.transport_security import TransportSecuritySettings

from delta_sharing_client import loopback
from delta_sharing_client.loopback import App, Headers, Receive, Scope, Send, foreign, is_equal, respond
from delta_sharing_client.mcp import scope as scopes
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.server import leaving, make_server
from delta_sharing_client.protocol.profile import ProfileSource

PATH = "/mcp"


class Guard:
    """Passes requests that come from this machine and have ``token`` to ``app``, and refuses all others (ASGI)."""

    def __init__(self, app: App, port: int, token: str) -> None:
        self._app, self._port, self._token = app, port, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = Headers(scope["headers"])
        if (reason := foreign(headers, self._port, needs_origin=False)) is not None:
            await respond(send, 403, reason)
        elif not self._is_allowed(headers.only("authorization") or ""):
            reason = "The header 'Authorization' must be 'Bearer' and the token that 'delta-sharing mcp' printed."
            await respond(send, 401, reason, {"www-authenticate": "Bearer"})
        else:
            # Nothing behind this sees the token.
            kept = [(name, value) for name, value in scope["headers"] if name.lower() != b"authorization"]
            await self._app({**scope, "headers": kept}, receive, send)

    def _is_allowed(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and is_equal(token.strip(), self._token)


@contextlib.contextmanager
def running(server: MCPServer, port: int = 0) -> Iterator[tuple[str, str]]:
    """Serve assistants on a port of this machine (0 for any free one) during the block; yield the address and the
    token. Raises ``UsageError`` if the port cannot be used."""
    # The guard has checked where a request comes from.
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    with loopback.listening(port) as listening:
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe()
        with loopback.serving(Guard(app, port, token), listening, lifespan="on"):
            yield f"http://{loopback.HOST}:{port}{PATH}", token


def serve(
    profile: ProfileSource, limits: Limits, scope: scopes.Scope, *, port: int, tell: Callable[[str, str], None]
) -> None:
    """Serve assistants until Ctrl-C. Call it on the main thread. ``tell`` prints the address and the token.

    Raises ``UsageError`` if the port cannot be used, and ``DeltaSharingError`` if the profile cannot.
    """
    server = make_server(profile, limits, scope)
    with leaving(server), loopback.ended_by_signals() as ended, running(server, port) as (address, token):
        tell(address, token)
        loopback.wait(ended)
