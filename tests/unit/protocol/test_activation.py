"""Activation links work once: the profile is on the disk, or the link was not used."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client.cli import main
from delta_sharing_client.errors import AuthError, DeltaSharingError, ProfileError, TransportError, UsageError
from delta_sharing_client.protocol.activation_link import request_url
from delta_sharing_client.protocol.profile import Profile
from tests.http_server import Exchange, HttpServer

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "https://h/api", "bearerToken": "planted-token"}
FAST = ds.ReadOptions(max_attempts=3, max_retry_seconds=5)


class Provider(HttpServer):
    """Answers each code of a link once; the code says how."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.used: list[str] = []
        self.bodies: dict[str, bytes] = {}

    def _reply(self, exchange: Exchange) -> None:
        code = exchange.path.rpartition("/")[2]
        body = self.bodies.get(code, json.dumps(PROFILE).encode())
        if code == "busy" and self.used.count(code) < 1:
            self.used.append(code)
            return exchange.reply(503)
        if code.isdigit():
            return exchange.reply(int(code), b'{"errorCode": "GONE", "message": "planted-code"}')
        if code == "lost" and code not in self.used:
            self.used.append(code)
            exchange.close_connection = True
            return None
        if code != "busy" and code in self.used:
            return exchange.reply(404)
        self.used.append(code)
        return exchange.reply(200, body)

    def link(self, code: str) -> str:
        return f"{self.url}/activation/{code}"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        yield server


def test_a_link_becomes_a_file_that_only_its_owner_reads(provider: Provider, tmp_path: Path) -> None:
    target = tmp_path / "new" / "shop.share"
    assert ds.activate(provider.link("planted-code"), target) == target

    assert json.loads(target.read_text()) == PROFILE
    assert Profile.load(target).endpoint == "https://h/api"
    if os.name == "posix":
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
        assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    assert [*target.parent.iterdir()] == [target]


def test_the_file_may_be_in_the_home_directory(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert ds.activate(provider.link("x"), "~/a.share") == tmp_path / "a.share"
    assert ds.activate(provider.link("y"), Path("~/b.share")) == tmp_path / "b.share"


def test_a_used_link_is_reported(provider: Provider, tmp_path: Path) -> None:
    ds.activate(provider.link("planted-code"), tmp_path / "a.share")
    with pytest.raises(AuthError, match="A link works once") as raised:
        ds.activate(provider.link("planted-code"), tmp_path / "b.share")

    assert "planted" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.share"]


@pytest.mark.parametrize("code", ["400", "401", "403", "404", "410"])
def test_a_refused_link_writes_nothing(provider: Provider, tmp_path: Path, code: str) -> None:
    with pytest.raises(AuthError, match=f"not valid .HTTP status {code}"):
        ds.activate(provider.link(code), tmp_path / "a.share", options=FAST)
    assert [*tmp_path.iterdir()] == []


def test_a_failing_server_is_asked_again(provider: Provider, tmp_path: Path) -> None:
    ds.activate(provider.link("busy"), tmp_path / "a.share", options=FAST)
    assert provider.used == ["busy", "busy"]
    with pytest.raises(TransportError, match="HTTP status 500"):
        ds.activate(provider.link("500"), tmp_path / "b.share", options=FAST)
    # The response with the profile was lost, and the provider counts it as used.
    with pytest.raises(AuthError, match="ask the data provider for a new one"):
        ds.activate(provider.link("lost"), tmp_path / "c.share", options=FAST)
    assert [path.name for path in tmp_path.iterdir()] == ["a.share"]


def test_the_link_is_not_used_if_the_file_cannot_be_written(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = tmp_path / "a.share"
    present.write_text("mine")
    link = provider.link("planted-code")
    with pytest.raises(UsageError, match=r"exists\. The link was not used"):
        ds.activate(link, present)
    with pytest.raises(UsageError, match="which is a directory"):
        ds.activate(link, tmp_path)
    with pytest.raises(UsageError, match=r"Cannot write .*The link was not used"):
        ds.activate(link, present / "b.share")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("tempfile.mkstemp", full)
        with pytest.raises(UsageError, match=r"No space left on device\. The link was not used"):
            ds.activate(link, tmp_path / "b.share")
    assert (provider.used, present.read_text()) == ([], "mine")

    ds.activate(link, present, overwrite=True)
    assert json.loads(present.read_text()) == PROFILE


@pytest.mark.parametrize(
    ("body", "problem", "is_kept"),
    [
        (b"<html>planted</html>", "is an HTML page", False),
        (b"", "is empty", False),
        (b"[1]", "not a JSON object", False),
        (b'{"bearerToken": "planted', "not valid JSON", True),
        (b'{"shareCredentialsVersion": 9, "bearerToken": "planted"}', "reads up to 2", True),
    ],
)
def test_a_response_that_is_no_profile(
    provider: Provider, tmp_path: Path, body: bytes, problem: str, is_kept: bool
) -> None:
    provider.bodies["x"] = body
    target = tmp_path / "a.share"
    with pytest.raises(ProfileError, match=problem) as raised:
        ds.activate(provider.link("x"), target)

    assert "planted" not in str(raised.value)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [body] * is_kept
    assert (str(target) in str(raised.value)) is is_kept


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        (None, "found NoneType"),
        ("", "begins with https://"),
        ("planted-code", "begins with https://"),
        ("https://", "begins with https://"),
        ("https://[planted-code", "begins with https://"),
        ("ftp://h/planted-code", "begins with https://"),
        ("http://example.com/planted-code", "only be sent over https"),
    ],
)
def test_links_that_are_refused(tmp_path: Path, link: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as raised:
        ds.activate(link, tmp_path / "a.share")
    assert "planted" not in str(raised.value)


def test_the_profile_is_kept_if_its_file_cannot_be_replaced(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a file that is mounted into a container."""

    def busy(*_: Any) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("os.replace", busy)
    with pytest.raises(
        UsageError, match=r"cannot be written: Device or resource busy\. Move it: the link works no more"
    ) as raised:
        ds.activate(provider.link("x"), tmp_path / "a.share")
    (kept,) = tmp_path.iterdir()
    assert json.loads(kept.read_text()) == PROFILE
    assert str(kept) in str(raised.value)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_impossible_names_are_refused_before_the_request(provider: Provider, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="The link was not used"):
        ds.activate(provider.link("x"), tmp_path / name)
    assert provider.used == []


def test_debug_log_of_the_request_has_no_code(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    ds.activate(provider.link("planted-code"), tmp_path / "a.share")
    ds.activate(f"{provider.url}/delta_sharing/retrieve_config.html?planted-too", tmp_path / "b.share")
    assert "GET ***" in caplog.text
    assert "planted" not in caplog.text


def test_debug_log_stays_readable_for_a_link_without_a_path(
    provider: Provider, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    ds.activate(provider.url, tmp_path / "a.share")
    assert "GET / HTTP" in caplog.text


def test_the_page_of_databricks_becomes_its_endpoint() -> None:
    endpoint = "https://h.example.com/api/2.1/unity-catalog/public/data_sharing_activation/ab-C_9"
    for query in ("ab-C_9", "token=ab-C_9"):
        page = f" https://h.example.com/delta_sharing/retrieve_config.html?{query}\n"
        assert request_url(page) == (endpoint, "h.example.com")
        with pytest.raises(ProfileError, match="profile activate LINK FILE") as raised:
            Profile.load(page.strip())
        assert "ab-C_9" not in str(raised.value)
    assert request_url(endpoint) == (endpoint, "h.example.com")
    with pytest.raises(ProfileError, match="works only once"):
        Profile.load(endpoint)


def test_the_command_prints_no_secret(provider: Provider, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "a.share"
    words = ["profile", "activate", provider.link("planted-code"), str(target)]
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == {"file": str(target), "endpoint": "https://h/api", "tokenExpires": None}

    assert main(words) == 2
    assert main([*words, "--overwrite"]) == 4
    assert json.loads(target.read_text()) == PROFILE
    printed = capsys.readouterr()
    assert "planted" not in out + printed.out + printed.err
    assert "A link works once" in printed.err


def test_a_failed_activation_leaves_the_former_file(provider: Provider, tmp_path: Path) -> None:
    target = tmp_path / "a.share"
    target.write_text("former")
    provider.bodies["x"] = b"<html>"
    with pytest.raises(DeltaSharingError):
        ds.activate(provider.link("x"), target, overwrite=True)
    assert target.read_text() == "former"
