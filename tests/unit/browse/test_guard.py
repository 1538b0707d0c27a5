"""The guard passes on only the page's own requests, and restricts every response."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from delta_sharing_client.browse.guard import Guard

HOST, TOKEN = "127.0.0.1:7", "t" * 43
GOOD = {"host": HOST, "origin": f"http://{HOST}", "content-type": "application/json"}
BODY = b"from the page"


class Page:
    """A guarded application, to which requests are sent without a server."""

    def __init__(self) -> None:
        self.opened = 0
        self.scopes: list[Any] = []
        self._guard = Guard(self._answer, 7, TOKEN, self._open)

    def _open(self) -> None:
        self.opened += 1

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        headers = [(b"Referrer-Policy", b"unsafe-url"), (b"x", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": BODY})

    def sent(
        self, path: str, headers: Any, method: str = "POST", query: bytes = b"", kind: str = "http"
    ) -> tuple[int, dict[str, str], bytes]:
        messages: list[Any] = []

        async def take(message: Any) -> None:
            messages.append(message)

        pairs = headers.items() if isinstance(headers, dict) else headers
        scope = {"type": kind, "path": path, "method": method, "query_string": query}
        scope["headers"] = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        asyncio.run(self._guard(scope, None, take))  # type: ignore[arg-type]
        if not messages:
            return 0, {}, b""
        start, body = messages
        names = [name.decode().lower() for name, _ in start["headers"]]
        assert len(set(names)) == len(names)
        assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
        values = [value.decode() for _, value in start["headers"]]
        return start["status"], dict(zip(names, values, strict=True)), body["body"]


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def secrets(page: Page) -> dict[str, str]:
    """The cookie and the key that the token is exchanged for."""
    status, headers, body = page.sent("/", {"host": HOST}, "GET", f"token={TOKEN}".encode())
    cookie, key = headers["set-cookie"].partition(";")[0], headers["location"].removeprefix("/#key=")
    assert (status, body, page.opened, headers["content-length"]) == (303, b"", 1, "0")
    assert headers["set-cookie"] == f"{cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert re.fullmatch(r"delta-sharing-7=[0-9a-f]{64}", cookie)
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert key not in cookie
    return {"cookie": cookie, "x-delta-sharing-key": key}


@pytest.mark.parametrize(
    "query", ["token=", f"token={TOKEN}&token={TOKEN}", f"token={TOKEN[1:]}", "token=%ff", "a&token="]
)
def test_wrong_token_opens_nothing(page: Page, query: str) -> None:
    status, headers, body = page.sent("/", {"host": HOST}, "GET", query.encode())
    assert (status, page.opened, page.scopes) == (403, 0, [])
    assert b"The token of this address is wrong." in body
    assert (headers["content-length"], headers["content-type"]) == (str(len(body)), "text/plain; charset=utf-8")
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({}, 200, ""),
        ({"host": "localhost:7", "origin": "http://localhost:7"}, 200, ""),
        ({"host": "LOCALHOST:7", "origin": "http://LOCALHOST:7"}, 200, ""),
        ({"sec-fetch-site": "same-origin"}, 200, ""),
        ({"sec-fetch-site": "none"}, 200, ""),
        ({"sec-fetch-site": "cross-site"}, 403, "page at this address"),
        ({"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, 403, "page at this address"),
        ({"host": None}, 403, "address of this machine"),
        ({"host": "127.0.0.1:8"}, 403, "address of this machine"),
        ({"host": "evil.invalid:7", "origin": "http://evil.invalid:7"}, 403, "address of this machine"),
        ({"origin": None}, 403, "page at this address"),
        ({"origin": "http://localhost:7"}, 403, "page at this address"),
        ({"content-type": "text/plain"}, 403, "in JSON"),
        ({"content-type": None}, 403, "in JSON"),
        ({"cookie": None}, 401, "no access any more"),
        ({"cookie": "delta-sharing-7=x"}, 401, "no access any more"),
        ({"cookie": "delta-sharing-7=\u00e9"}, 401, "no access any more"),
        ({"cookie": "a=b; {cookie} ; delta-sharing-7=x"}, 200, ""),
        ({"cookie": "other-{cookie}"}, 401, "no access any more"),
        ({"x-delta-sharing-key": None}, 401, "no access any more"),
        ({"x-delta-sharing-key": "0"}, 401, "no access any more"),
    ],
)
def test_only_the_page_may_ask(
    page: Page, secrets: dict[str, str], changes: dict[str, str | None], status: int, reason: str
) -> None:
    changed = {name: value and value.replace("{cookie}", secrets["cookie"]) for name, value in changes.items()}
    headers = {name: value for name, value in {**GOOD, **secrets, **changed}.items() if value is not None}
    found, _, body = page.sent("/api/start", headers)
    assert (found, len(page.scopes)) == (status, status == 200)
    assert reason in body.decode()
    assert body == BODY or (body.endswith(b".\n") and body.count(b"\n") == 1)


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "GET", {}, 200),
        ("/page.js", "GET", {}, 200),
        ("/", "POST", {"origin": f"http://{HOST}"}, 403),
        ("/", "GET", {"origin": f"http://{HOST}"}, 200),
        ("/", "GET", {"origin": "http://localhost:7"}, 403),
        ("/", "GET", {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, 200),
        ("/", "GET", {"sec-fetch-site": "cross-site"}, 200),
        ("/", "GET", {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"}, 403),
        ("/page.js", "GET", {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document"}, 403),
        ("/api/start", "GET", {}, 403),
        ("/files/x", "GET", {}, 401),
        ("/files/x", "POST", GOOD, 403),
    ],
)
def test_public_parts_are_read_only(page: Page, path: str, method: str, headers: dict[str, str], status: int) -> None:
    assert page.sent(path, {"host": HOST, **headers}, method)[0] == status


def test_file_needs_only_the_cookie_and_is_sent_whole(page: Page, secrets: dict[str, str]) -> None:
    headers = {"host": HOST, "cookie": secrets["cookie"], "Range": "bytes=0-1", "x": "2"}
    status, found, _ = page.sent("/files/x", headers, "GET")
    (scope,) = page.scopes
    assert [name for name, _ in scope["headers"]] == [b"host", b"cookie", b"x"]
    assert (status, found["content-security-policy"]) == (200, "default-src 'none'; frame-ancestors 'self'; sandbox")
    assert found["x-frame-options"] == "SAMEORIGIN"


def test_headers_of_the_guard_replace_those_of_the_page(page: Page) -> None:
    _, headers, body = page.sent("/", {"host": HOST}, "GET")
    policy = headers.pop("content-security-policy")
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert body == BODY
    assert headers == {
        "x": "1",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }


def test_header_that_occurs_twice_counts_as_missing(page: Page, secrets: dict[str, str]) -> None:
    pairs = list({**GOOD, **secrets}.items())
    for name, status in (("host", 403), ("x-delta-sharing-key", 401), ("content-type", 403), ("origin", 403)):
        assert page.sent("/api/start", [*pairs, (name, dict(pairs)[name])])[0] == status
    assert page.sent("/api/start", pairs, kind="websocket") == (0, {}, b"")
    assert page.scopes == []
