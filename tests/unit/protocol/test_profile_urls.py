"""Profiles at http and https URLs are fetched without fsspec; other URLs need a package."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import obstore
import pytest
import trustme
from obstore import store

from delta_sharing_client import ReadOptions
from delta_sharing_client.errors import ProfileError
from delta_sharing_client.protocol.profile import Profile
from tests.http_server import Exchange, HttpServer

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://h/api/", "bearerToken": "planted"}


class ProfileServer(HttpServer):
    """Serves a profile; the name of the requested file says how."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(self._reply, context)
        self.paths: list[str] = []

    def _reply(self, exchange: Exchange) -> None:
        content = json.dumps(PROFILE).encode()
        self.paths.append(exchange.path)
        is_first = len(self.paths) == 1
        path = exchange.path.partition("?")[0].rpartition("://")[2]
        file_name = path.rpartition("/")[2]
        status = {"moved": 302, "away": 302, "around": 302, "lost": 302, "gone": 404, "shut": 403}.get(file_name, 200)
        if file_name == "busy" and is_first:
            status = 503
        if file_name == "long":
            content = b" " * (1 << 20) + content
        location = {
            "moved": "my.share?sig=planted",
            "away": "http://example.com/x?sig=planted",
            "around": "around",
            "there": "gone",
        }.get(file_name)
        exchange.close_connection = True
        exchange.send_response(status)
        if location:
            exchange.send_header("Location", location)
        exchange.send_header("Content-Length", str(len(content)))
        exchange.end_headers()
        exchange.wfile.write(content[:-1] if file_name == "cut" and is_first else content)


@pytest.fixture
def start() -> Iterator[Callable[..., ProfileServer]]:
    with contextlib.ExitStack() as stack:
        yield lambda context=None: stack.enter_context(ProfileServer(context))


@pytest.fixture(autouse=True)
def _no_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise ImportError("Install something to access this.")

    monkeypatch.setattr(fsspec, "open", missing)


def test_profile_at_an_https_url_needs_no_other_package(start: Any, tmp_path: Any) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    url = f"{start(context).url}/my.share"
    trusting = ReadOptions(ca_bundle=str(tmp_path / "ca.pem"))
    assert Profile.load(url, trusting).endpoint == "https://h/api"
    with pytest.raises(ProfileError, match=r"the certificate of 127\.0\.0\.1:\d+ is not accepted"):
        Profile.load(url)


def test_redirects_to_allowed_hosts_are_followed(start: Any) -> None:
    server = start()
    base = f"{server.url}"
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
    options = ReadOptions(proxy=f"{proxy.url}")
    assert Profile.load(f"{server.url}/my.share", options).endpoint == "https://h/api"
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
        Profile.load(f"{start().url}/{name}?sig=planted")
    assert "planted" not in str(caught.value)


@pytest.mark.parametrize("name", ["busy", "cut"])
def test_busy_or_interrupted_server_is_retried(start: Any, name: str) -> None:
    server = start()
    assert Profile.load(f"{server.url}/{name}").endpoint == "https://h/api"
    assert server.paths == [f"/{name}"] * 2


def test_profile_with_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ProfileError, match="is not valid JSON"):
        Profile.load('{"a": "\ud800"')


def test_profile_with_a_token_is_not_fetched_over_http() -> None:
    with pytest.raises(ProfileError, match=r"its URL has http to host 'example\.com'"):
        Profile.load("http://example.com/my.share")


def test_refused_connection_is_reported(start: Any) -> None:
    server = start()
    url = f"{server.url}/my.share"
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
