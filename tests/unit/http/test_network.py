"""The URLs that may be requested, and the proxy of a request."""

from __future__ import annotations

import base64
import socket

import pytest

from delta_sharing_client.http.network import (
    ONLY_HTTPS,
    Allowed,
    Reach,
    is_loopback,
    leads_here,
    proxy_headers,
    redirected,
    unfetchable,
)

EVERYTHING = Allowed(http=True, loopback=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://h/x?sig=1",
        "https://bucket_1.s3.amazonaws.com:443/a%2Fb//c/../d?X-Amz-Signature=%ab%GG&y=a+b~'()*!",
        "https://h",
        "https://h?x=http://e\u00fc/",
        "https://h/x#@e",
        "https://h:65535/\u4e2d\u6587/\U0001f600",
    ],
)
def test_https_urls_are_allowed(url: str) -> None:
    assert unfetchable(url, ONLY_HTTPS) is None


# Spellings of loopback addresses, and of the unspecified address, to which a connection reaches loopback.
HERE = [
    *("localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9", "127.0.0.1.", "0.0.0.0"),
    *("0x7f.1", "127.1", "2130706433", "0x7F000001", "0177.0.0.1", "0", "[::1]", "[::]", "[::ffff:127.0.0.1]"),
    *("[::ffff:0.0.0.0]", "[0:0:0:0:0:0:0:1]"),
]


@pytest.mark.parametrize("host", HERE)
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
@pytest.mark.parametrize("port", ["", ":2375"])
def test_local_urls_from_a_remote_server_are_refused(scheme: str, host: str, port: str) -> None:
    url = f"{scheme}://{host}{port}/containers/create?sig=planted"
    for allowed in (ONLY_HTTPS, Allowed(http=True)):
        result = unfetchable(url, allowed)
        assert result is not None
        assert "which is this machine" in result or "unambiguous" in result
        assert "planted" not in result
        assert allowed.reach(url) is Reach.REMOTE


@pytest.mark.parametrize("host", ["localhost:9", "LOCALHOST", "127.0.0.1", "[::1]:9", "a.localhost"])
def test_local_urls_from_a_local_server_are_allowed(host: str) -> None:
    for allowed in (Allowed(loopback=True), EVERYTHING):
        assert unfetchable(f"http://{host}/x", allowed) is None
        assert unfetchable(f"https://{host}/x", allowed) is None
    # The address to which the name resolves is later checked against this reach.
    assert Allowed(loopback=True).reach(f"http://{host}/x") is Reach.LOCAL
    assert Allowed(loopback=True).reach(f"HTTPS://{host}/x") is Reach.ANY
    assert EVERYTHING.reach(f"http://{host}/x") is Reach.ANY


def test_addresses_are_compared_with_the_allowed_ones() -> None:
    here = ("127.0.0.1", "127.255.0.9", "::1", "::1%1", "0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:0:0")
    elsewhere = ("10.0.0.1", "169.254.169.254", "8.8.8.8", "2001:db8::1", "fe80::1%eth0", "::ffff:10.0.0.1")
    assert [Reach.REMOTE.allows(each) for each in (*here, *elsewhere)] == [False] * len(here) + [True] * len(elsewhere)
    assert [Reach.LOCAL.allows(each) for each in (*here, *elsewhere)] == [True] * len(here) + [False] * len(elsewhere)
    assert all(map(Reach.ANY.allows, (*here, *elsewhere)))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h/x", "http to host 'h'"),
        ("http://127.0.0.1.evil/x", "http to host"),
        ("http://localhost.evil/x", "http to host"),
        ("http://169.254.169.254\\@127.0.0.1/", "backslash"),
        ("http:\\\\127.0.0.1/", "backslash"),
        ("https://h/a b", "space"),
        ("https://h/a\u00a0b", "space"),
        ("https://h/a\u2028b", "space"),
        ("https://h/\ud800", "control character"),
        (" https://h/", "space"),
        ("https://h/\n", "control"),
        ("ht\ttps://h/", "control"),
        ("https://h\x7f/", "control"),
        ("https://e@h/", "user name"),
        ("https://e:p@h/", "user name"),
        ("https://h:1@e:2/", "user name"),
        ("https://h:99999/", "unambiguous"),
        ("https://h:0/", "unambiguous"),
        ("https://h:/", "unambiguous"),
        ("https://h:-1/", "unambiguous"),
        ("https://h:8x/", "unambiguous"),
        ("https://h:\u0661/", "unambiguous"),
        ("https://[::1/", "unambiguous"),
        ("https://[::1%25eth0]/", "unambiguous"),
        ("https://[1.2.3]/", "unambiguous"),
        ("https://h%2ee/", "unambiguous"),
        ("https://b\u00fccher.example/", "unambiguous"),
        ("https://127.0.0.1\u3002evil/", "unambiguous"),
        ("https:///x", "unambiguous"),
        ("https://", "unambiguous"),
        ("https:h/x", "unambiguous"),
        ("https:/h/x", "unambiguous"),
        ("https://..:1/", "unambiguous"),
        ("file:///etc/passwd", "scheme 'file'"),
        ("FTP://h/", "scheme 'ftp'"),
        ("/etc/passwd", "scheme ''"),
        ("//h/x", "scheme ''"),
        ("", "scheme ''"),
    ],
)
def test_other_urls_are_refused_without_being_shown(url: str, why: str) -> None:
    result = unfetchable(url + "?sig=planted", ONLY_HTTPS)
    assert result is not None
    assert any(reason in result for reason in why.split("|"))
    assert "planted" not in result


def test_http_urls_are_allowed_for_an_http_endpoint() -> None:
    assert unfetchable("http://h/x", Allowed(http=True)) is None
    assert unfetchable("http://h/x", Allowed(loopback=True)) is not None


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b?c", "http://h:1/b?c"),
        ("b", "http://h:1/a/b"),
        ("//e/b", "http://e/b"),
        ("https://e/b", "https://e/b"),
        ("", "http://h:1/a/x"),
    ],
)
def test_relative_redirect_is_resolved(location: str, expected: str) -> None:
    assert redirected("http://h:1/a/x", location) == expected


@pytest.mark.parametrize(
    "location",
    ["http://e\\@h/", "/\\e/", "\t//e/", "http://e\n.h/", "ht\rtp://e/", "http://[::1", " http://e/", "//e\t/"],
)
def test_ambiguous_redirect_is_refused(location: str) -> None:
    assert unfetchable(redirected("http://h:1/a/x", location), EVERYTHING) is not None


def test_proxy_credentials_are_decoded_once() -> None:
    def login(proxy: str) -> str:
        return base64.b64decode(proxy_headers(proxy)["Proxy-Authorization"].removeprefix("Basic ")).decode()

    assert login("http://us%40er:p%2Fw%2525@p:1") == "us@er:p/w%25"
    assert login("http://user:p\u00e4ss@p:1") == "user:p\u00e4ss"
    assert login("http://user@p:1") == "user:"
    assert proxy_headers("http://p:1") == {}


def test_loopback_is_recognized_by_name_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(is_loopback, (host.strip("[]") for host in HERE)))
    assert not any(map(is_loopback, ("", "h", "localhost.h", "xlocalhost", "10.0.0.1", "0.0.0.1", "::2", "a%1")))
    results = {"both": ["127.0.0.1", "10.0.0.1"], "here": ["::1", "127.0.1.1"]}

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host not in results:
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        return [(0, 0, 0, "", (address, 0)) for address in results[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert [leads_here(host) for host in ("both", "here", "unknown")] == [False, True, False]
