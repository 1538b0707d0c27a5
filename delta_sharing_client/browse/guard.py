"""Decides who may send requests to the page's server, and what a browser may do with its responses.

Other users and programs on this machine can reach its ports, and every page that the browser shows can send requests
there. So a response with data needs two secrets, which both come from the token of the address: a cookie, and a key
that the page sends in a header. A browser sends cookies to all ports of a host, and so to servers of other users; the
key stays with the page's own origin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from delta_sharing_client.loopback import App, Headers, Receive, Scope, Send, foreign, is_equal, respond

KEY_HEADER = "x-delta-sharing-key"
API, FILES = "/api/", "/files/"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'"
)
# A shared file must never act as a page, whatever it contains. The page shows PDF in a frame.
_POLICY_OF_FILES = "default-src 'none'; frame-ancestors 'self'; sandbox"
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": _POLICY,
}
_HEADERS_OF_FILES = {**_HEADERS, "x-frame-options": "SAMEORIGIN", "content-security-policy": _POLICY_OF_FILES}
_WRONG_TOKEN = "The token of this address is wrong. Open the whole address that 'delta-sharing browse' printed last."
_NO_TOKEN = "This page has no access any more. Open the whole address that 'delta-sharing browse' printed last."


class Guard:
    """Passes the requests of this page to ``app`` and refuses all others; adds headers to every response.

    ``token`` is the token in the address; ``on_open`` is called when it is used.
    """

    def __init__(self, app: App, port: int, token: str, on_open: Callable[[], None] = lambda: None) -> None:
        self._app = app
        self._token = token
        self._on_open = on_open
        self._port = port
        # A browser sends cookies to all ports of a host, so the cookies of two such pages need different names.
        self._cookie_name = f"delta-sharing-{port}"
        self._cookie = _derived(token, "cookie")
        self._key = _derived(token, "key")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request (ASGI)."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        send = _with_headers(send, _HEADERS_OF_FILES if path.startswith(FILES) else _HEADERS)
        headers = Headers(scope["headers"])
        # A file is always sent as a whole, because it is removed afterwards.
        scope = {**scope, "headers": [(name, value) for name, value in scope["headers"] if name.lower() != b"range"]}
        if (reason := self._is_foreign(scope, headers)) is not None:
            await respond(send, 403, reason)
        elif path == "/" and b"token=" in scope["query_string"]:
            await self._exchange(scope, send)
        elif not self._is_allowed(path, headers):
            await respond(send, 401, _NO_TOKEN)
        else:
            await self._app(scope, receive, send)

    def _is_foreign(self, scope: Scope, headers: Headers) -> str | None:
        """Return why a request cannot come from this page, whatever secrets it has; ``None`` if it can."""
        path, method = scope["path"], scope["method"]
        if (reason := foreign(headers, self._port, needs_origin=method != "GET")) is not None:
            return reason
        site = headers.only("sec-fetch-site") if headers.all("sec-fetch-site") else "none"
        # A link in a file or a terminal may open the page.
        is_visit = path == "/" and method == "GET" and headers.all("sec-fetch-dest") in ([], ["document"])
        if site not in ("same-origin", "none") and not is_visit:
            return "Only requests of the page at this address are accepted."
        if method != ("POST" if path.startswith(API) else "GET"):
            return "This method is not supported here."
        if method == "POST" and headers.only("content-type") != "application/json":
            return "Only requests in JSON are accepted."
        return None

    def _is_allowed(self, path: str, headers: Headers) -> bool:
        if not path.startswith((API, FILES)):
            # The page itself contains no data and is the same for everybody.
            return True
        cookies = [part.strip() for text in headers.all("cookie") for part in text.split(";")]
        values = [part.partition("=")[2] for part in cookies if part.partition("=")[0] == self._cookie_name]
        if not any(is_equal(value, self._cookie) for value in values):
            return False
        # A link or a picture cannot send the page's header, so the name of a file is itself a secret.
        return path.startswith(FILES) or is_equal(headers.only(KEY_HEADER) or "", self._key)

    async def _exchange(self, scope: Scope, send: Send) -> None:
        """Exchange the token for the cookie and the key, and redirect to the address without the token."""
        tokens = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if len(tokens) != 1 or not is_equal(tokens[0], self._token):
            await respond(send, 403, _WRONG_TOKEN)
            return
        self._on_open()
        cookie = f"{self._cookie_name}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
        # The browser sends the part after '#' to no server. The page keeps it and removes it from the address.
        await respond(send, 303, "", {"location": f"/#key={self._key}", "set-cookie": cookie})


def _derived(token: str, purpose: str) -> str:
    return hashlib.sha256(f"{purpose}:{token}".encode()).hexdigest()


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    added = [(name.encode(), value.encode()) for name, value in headers.items()]
    names = {name for name, _ in added}

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in names]
            message = {**message, "headers": [*kept, *added]}
        await send(message)

    return send_with_headers
