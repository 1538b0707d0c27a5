"""Which URLs may be fetched, and through which proxy."""

from __future__ import annotations

import base64

import pytest

from delta_sharing_client.network import is_loopback, proxy_headers, redirected, unfetchable


@pytest.mark.parametrize(
    "url",
    [
        "https://h/x?sig=1",
        "https://bucket_1.s3.amazonaws.com:443/a%2Fb//c/../d?X-Amz-Signature=%ab%GG&y=a+b~'()*!",
        "https://h",
        "https://h?x=http://e\u00fc/",
        "https://h/x#@e",
        "https://h:65535/\u4e2d\u6587/\U0001f600",
        "http://localhost:9/x",
        "http://LOCALHOST/x",
        "http://127.0.0.1/x",
        "http://[::1]:9/x",
        "http://a.localhost/x",
    ],
)
def test_https_and_loopback_are_fetched(url: str) -> None:
    assert unfetchable(url, allow_http=False) is None


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://h/x", "http to host 'h'"),
        ("http://127.0.0.1.evil/x", "http to host"),
        ("http://127.0.0.1./x", "http to host"),
        ("http://localhost.evil/x", "http to host"),
        ("http://0x7f.1/x", "http to host|unambiguous"),
        ("http://2130706433/x", "http to host"),
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
def test_everything_else_is_refused_with_a_reason_that_shows_none_of_it(url: str, why: str) -> None:
    found = unfetchable(url + "?sig=planted", allow_http=False)
    assert found is not None
    assert any(reason in found for reason in why.split("|"))
    assert "planted" not in found


def test_http_is_fetched_where_the_endpoint_is_http() -> None:
    assert unfetchable("http://h/x", allow_http=True) is None


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
def test_a_redirect_is_joined(location: str, expected: str) -> None:
    assert redirected("http://h:1/a/x", location) == expected


@pytest.mark.parametrize(
    "location",
    ["http://e\\@h/", "/\\e/", "\t//e/", "http://e\n.h/", "ht\rtp://e/", "http://[::1", " http://e/", "//e\t/"],
)
def test_a_redirect_that_programs_read_differently_is_refused(location: str) -> None:
    assert unfetchable(redirected("http://h:1/a/x", location), allow_http=True) is not None


def test_the_login_at_a_proxy_is_decoded_once() -> None:
    def login(proxy: str) -> str:
        return base64.b64decode(proxy_headers(proxy)["Proxy-Authorization"].removeprefix("Basic ")).decode()

    assert login("http://us%40er:p%2Fw%2525@p:1") == "us@er:p/w%25"
    assert login("http://user:p\u00e4ss@p:1") == "user:p\u00e4ss"
    assert login("http://user@p:1") == "user:"
    assert proxy_headers("http://p:1") == {}


def test_this_machine_is_known_by_name_and_by_address() -> None:
    assert all(map(is_loopback, ("localhost", "LocalHost.", "a.localhost", "127.9.9.9", "::1")))
    assert not any(map(is_loopback, ("", "h", "127.0.0.1.", "localhost.h", "xlocalhost", "10.0.0.1", "0.0.0.0", "::")))
