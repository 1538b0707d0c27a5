"""Masks."""

from __future__ import annotations

import logging
import pickle

import pytest

from delta_sharing_client.errors import DeltaSharingError
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


def test_signed_urls_are_masked_in_the_debug_log_of_urllib3(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "urllib3.connectionpool")

    log = logging.getLogger("urllib3.connectionpool")
    log.debug('"%s %s" %s', "GET", "/f.parquet?a=1&X-Amz-Signature=abc", 200)
    log.debug('"%s %s" %s', "GET", "/f?sv=2&sig=abc", 200)
    log.debug('"%s %s" %s', "GET", "/shares?maxResults=5", 200)

    assert [record.getMessage() for record in caplog.records] == [
        '"GET /f.parquet?***" 200',
        '"GET /f?***" 200',
        '"GET /shares?maxResults=5" 200',
    ]


@pytest.mark.parametrize(
    "query",
    [
        "X-Amz-Credential=AKIA&X-Amz-Signature=planted",
        "sv=2024&se=2030-01-01&sp=r&sig=planted",
        "GoogleAccessId=a%40b&Expires=1&Signature=planted",
        "X-Goog-Algorithm=GOOG4&X-Goog-Signature=planted",
        "Policy=planted&Key-Pair-Id=K",
        "hdnea=exp=1~hmac=planted0123456789abcdef",
    ],
)
def test_query_strings_of_every_storage_are_masked_in_that_log(query: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "urllib3.connectionpool")
    log = logging.getLogger("urllib3.connectionpool")

    log.debug('%s://%s:%s "%s %s %s" %s %s', "https", "h", 443, "GET", f"/f?{query}", "HTTP/1.1", 200, 5)

    (record,) = caplog.records
    assert record.getMessage() == 'https://h:443 "GET /f?*** HTTP/1.1" 200 5'


def test_query_strings_that_hold_no_credential_stay_in_that_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "urllib3.connectionpool")
    logging.getLogger("urllib3.connectionpool").debug('"%s %s"', "GET", "/shares?maxResults=10&page=2")

    assert caplog.records[0].getMessage() == '"GET /shares?maxResults=10&page=2"'


def test_errors_mask_urls_in_their_messages() -> None:
    error = DeltaSharingError("found 'https://h/f?sig=planted' there", file_id="https://h/f?sig=planted")

    assert "planted" not in str(error) + error.message
    assert "https://h/f?***" in str(error)
