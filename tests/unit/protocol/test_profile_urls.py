"""Profiles at http and https URLs are fetched without fsspec; other URLs need a package."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import fsspec
import obstore
import pytest
import trustme
from obstore import store

from delta_sharing_client import ReadOptions
from delta_sharing_client.errors import ProfileError
from delta_sharing_client.protocol.profile import Profile

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://h/api/", "bearerToken": "planted"}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = json.dumps(PROFILE).encode()
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        path = self.path.partition("?")[0].rpartition("://")[2]
        file_name = path.rpartition("/")[2]
        status = {"moved": 302, "away": 302, "around": 302, "lost": 302, "gone": 404, "shut": 403}.get(file_name, 200)
        if file_name == "busy" and len(self.server.paths) == 1:  # type: ignore[attr-defined]
            status = 503
        if file_name == "long":
            content = b" " * (1 << 20) + content
        self.send_response(status)
        location = {
            "moved": "my.share?sig=planted",
            "away": "http://example.com/x?sig=planted",
            "around": "around",
            "there": "gone",
        }.get(file_name)
        if location:
            self.send_header("Location", location)
        is_cut = file_name == "cut" and len(self.server.paths) == 1  # type: ignore[attr-defined]
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:-1] if is_cut else content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def start() -> Iterator[Any]:
    running: list[http.server.ThreadingHTTPServer] = []

    def begin(context: ssl.SSLContext | None = None) -> Any:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.paths = []  # type: ignore[attr-defined]
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        running.append(server)
        return server

    yield begin
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def _no_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ImportError("Install something to access this.")

    monkeypatch.setattr(fsspec, "open", missing)


def test_profile_at_an_https_url_needs_no_other_package(start: Any, tmp_path: Any) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = f"https://127.0.0.1:{start(context).server_port}/my.share"
    trusting = ReadOptions(ca_bundle=str(tmp_path / "ca.pem"))
    assert Profile.load(url, trusting).endpoint == "https://h/api"
    with pytest.raises(ProfileError, match=r"the certificate of 127\.0\.0\.1:\d+ is not accepted"):
        Profile.load(url)


def test_redirects_to_allowed_hosts_are_followed(start: Any) -> None:
    server = start()
    base = f"http://127.0.0.1:{server.server_port}"
    assert Profile.load(f"{base}/moved").endpoint == "https://h/api"
    assert Profile.load(f"{base.replace('http', 'HTTP')}/moved").endpoint == "https://h/api"
    with pytest.raises(ProfileError, match=r"http to host 'example\.com'") as caught:
        Profile.load(f"{base}/away")
    assert "planted" not in str(caught.value)
    with pytest.raises(ProfileError, match="redirects more than 5 times"):
        Profile.load(f"{base}/around")
    assert server.paths.count("/around") == 6
    # Without a redirect status the Location header is ignored.
    assert Profile.load(f"{base}/there").endpoint == "https://h/api"
    assert server.paths[-1] == "/there"


def test_profile_is_fetched_through_the_configured_proxy(start: Any) -> None:
    server, proxy = start(), start()
    options = ReadOptions(proxy=f"http://127.0.0.1:{proxy.server_port}")
    assert Profile.load(f"http://127.0.0.1:{server.server_port}/my.share", options).endpoint == "https://h/api"
    assert (len(server.paths), len(proxy.paths)) == (0, 1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", "There is no profile file at"),
        ("shut", "HTTP status 403"),
        ("lost", "HTTP status 302"),
        ("long", "longer than 1048576 bytes"),
    ],
)
def test_response_without_a_profile_is_refused(start: Any, name: str, message: str) -> None:
    with pytest.raises(ProfileError, match=message) as caught:
        Profile.load(f"http://127.0.0.1:{start().server_port}/{name}?sig=planted")
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("name", ["busy", "cut"])
def test_busy_or_interrupted_server_is_retried(start: Any, name: str) -> None:
    server = start()
    assert Profile.load(f"http://127.0.0.1:{server.server_port}/{name}").endpoint == "https://h/api"
    assert server.paths == [f"/{name}"] * 2


def test_profile_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ProfileError, match="is not valid JSON"):
        Profile.load('{"a": "\ud800"')


def test_profile_with_a_token_is_not_fetched_over_http() -> None:
    with pytest.raises(ProfileError, match=r"its URL has http to host 'example\.com'"):
        Profile.load("http://example.com/my.share")


def test_refused_connection_is_reported(start: Any) -> None:
    server = start()
    url = f"http://127.0.0.1:{server.server_port}/my.share"
    server.shutdown()
    server.server_close()
    with pytest.raises(ProfileError, match="refuses the connection"):
        Profile.load(url)


@pytest.mark.parametrize("scheme", ["s3", "S3", "gs", "abfss"])
def test_profile_in_an_object_store_needs_obstore(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = store.MemoryStore()
    obstore.put(memory, "my.share", json.dumps(PROFILE).encode())
    folders = []
    monkeypatch.setattr(store, "from_url", lambda url: folders.append(url) or memory)
    assert Profile.load(f"{scheme}://bucket/profiles/my.share").endpoint == "https://h/api"
    assert folders == [f"{scheme}://bucket/profiles"]
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(ProfileError, match=r"Reading it needs the package 'obstore'.* pip install obstore"):
        Profile.load(f"{scheme}://bucket/profiles/my.share")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf\r\n", "is empty"),
        (json.dumps(PROFILE).encode("utf-16"), "is in UTF-16, but UTF-8 was expected; save it as UTF-8"),
        (json.dumps(PROFILE).encode("utf-16-le"), "is in UTF-16"),
        (b"\n<!DOCTYPE html><html>planted</html>", "is an HTML page"),
        (b'{"shareCredentialsVersion": 1,', r"is not valid JSON \(line 1"),
        (b'{"shareCredentialsVersion": 1, "endpoint": "\xff"}', "is not valid JSON;"),
    ],
)
def test_error_describes_an_invalid_profile_file(tmp_path: Any, content: bytes, message: str) -> None:
    (tmp_path / "my.share").write_bytes(content)
    with pytest.raises(ProfileError, match=message) as caught:
        Profile.load(tmp_path / "my.share")
    assert "download it again" in str(caught.value)
    assert "planted" not in str(caught.value)
