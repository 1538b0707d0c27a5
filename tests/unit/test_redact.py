"""Masks."""

from __future__ import annotations

import pickle

from delta_sharing_client.redact import Secret, safe_url, scrub


def test_secret_shows_itself_nowhere_and_compares_by_value():
    secret = Secret("planted")

    assert "planted" not in f"{secret} {secret!r} {secret!s:>20}"
    assert secret == Secret("planted") != Secret("other")
    assert hash(secret) == hash(Secret("planted"))
    assert pickle.loads(pickle.dumps(secret)).reveal() == "planted"
    assert not Secret("")


def test_safe_url_keeps_host_port_and_path_only():
    assert safe_url("https://u:p@h:1/x?sig=1#f") == "https://h:1/x"
    assert safe_url("http://[") == "<unreadable URL>"


def test_scrub_masks_query_strings_user_info_and_given_secrets():
    text = 'GET "https://u:planted@h/x?sig=planted" and tok-planted'

    assert "planted" not in scrub(text, ["tok-planted", ""])
    assert "https://***@h/x?***" in scrub(text)
