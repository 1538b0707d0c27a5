"""Secrets are masked in errors, logs and reprs."""

from __future__ import annotations

import json
import logging
import pickle

import pytest

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.redact import Secret, printable, safe_url, scrub, scrub_json
from tests.time_limits import SOON, Stopwatch


def test_secret_is_never_shown_and_compares_by_value():
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
def test_query_strings_of_every_storage_are_masked_in_its_log(query: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "urllib3.connectionpool")
    log = logging.getLogger("urllib3.connectionpool")

    log.debug('%s://%s:%s "%s %s %s" %s %s', "https", "h", 443, "GET", f"/f?{query}", "HTTP/1.1", 200, 5)

    (record,) = caplog.records
    assert record.getMessage() == 'https://h:443 "GET /f?*** HTTP/1.1" 200 5'


def test_errors_mask_urls_in_their_messages() -> None:
    error = DeltaSharingError("found 'https://h/f?sig=planted' there", file_id="https://h/f?sig=planted")

    assert "planted" not in str(error) + error.message
    assert "https://h/f?***" in str(error)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred", r"a\x1b[31mred"),
        ("\N{RIGHT-TO-LEFT OVERRIDE}txt.exe", r"\u202etxt.exe"),
        ("\N{FIRST STRONG ISOLATE}x\N{ZERO WIDTH NO-BREAK SPACE}", r"\u2068x\ufeff"),
        ("\x9b2J", r"\u009b2J"),
        ("line\nend\N{LINE SEPARATOR}", r"line\nend\u2028"),
        ("\ud800", r"\ud800"),
        ("naïve 日本 👩‍🚀", "naïve 日本 👩‍🚀"),
    ],
)
def test_terminal_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_printable_json_is_equivalent_json() -> None:
    value = {"a\x1b": "\x7f\x9b\N{RIGHT-TO-LEFT OVERRIDE}\u2028é"}
    text = printable(json.dumps(value, ensure_ascii=False))

    assert json.loads(text) == value
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in text


def test_errors_contain_no_control_characters() -> None:
    error = DeltaSharingError(
        "The server said \x1b]0;owned\x07\N{RIGHT-TO-LEFT OVERRIDE}.", file_id="\x1b[2J", table="t"
    )

    assert "\x1b" not in str(error) + error.message
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in str(error)


def test_signed_url_as_file_id_is_masked_everywhere() -> None:
    error = DeltaSharingError("Broken.", file_id="https://h/f?sig=planted")
    assert error.file_id == "https://h/f?***"

    error.file_id = "https://h/g?sig=planted"
    assert pickle.loads(pickle.dumps(error)).file_id == "https://h/g?***"
    assert "planted" not in repr(vars(error))


SIGNATURE = "eyJhbGciOi9planted0123456789abcdefABCDEF"


@pytest.mark.parametrize(
    "path",
    [
        "part-00000-3c3a0b2e-9f7c-4b1e-8a55-0d2b8e0f6f11-c000.snappy.parquet",
        "3c3a0b2e-9f7c-4b1e-8a55-0d2b8e0f6f11",
        "a_long_name_of_a_table_without_any_digit_in_it",
    ],
)
def test_names_of_files_and_tables_are_not_masked(path: str) -> None:
    assert safe_url(f"https://h/{path}") == scrub(f"https://h/{path}") == f"https://h/{path}"


def test_signature_in_a_path_is_masked_in_errors_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "urllib3.connectionpool")
    logging.getLogger("urllib3.connectionpool").debug('"%s %s"', "GET", f"/d/{SIGNATURE}/f.parquet")

    assert caplog.records[0].getMessage() == '"GET /d/***/f.parquet"'
    assert safe_url(f"https://h/d/{SIGNATURE}/f.parquet") == "https://h/d/***/f.parquet"
    assert "planted" not in str(DeltaSharingError(f"No answer from https://h/{SIGNATURE}."))


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize("token", [JWT, JWT.rpartition(".")[0] + ".", f"{JWT}.abc.def"])
def test_jwt_is_masked_everywhere(token: str) -> None:
    for text in (f"https://host/files/{token}/part-0.parquet", f"got {token}", f"https://host/{token}?x=1", token):
        assert token[:20] not in scrub(text)
        assert "parquet" not in text or "part-0.parquet" in scrub(text)
    assert token[:20] not in safe_url(f"https://host/files/{token}/part-0.parquet")
    (filter_,) = [item for item in logging.getLogger("urllib3.connectionpool").filters if "Mask" in type(item).__name__]
    record = logging.LogRecord("urllib3", 10, "", 1, '"%s %s"', ("GET", f"/files/{token}/part-0.parquet"), None)
    assert filter_.filter(record)
    assert token[:20] not in record.getMessage()


@pytest.mark.parametrize("name", ["part-00000-eyJ.c000.snappy.parquet", "eyJournal.parquet", "keyJson12345.a.b"])
def test_names_that_resemble_a_jwt_are_not_masked(name: str) -> None:
    assert scrub(f"https://host/{name}") == f"https://host/{name}"


@pytest.mark.parametrize(
    "part",
    [
        "-eyJ",
        "http://",
        "token",
        '"token":{',
        '"sasToken":["',
        "/1",
        "eyJaaaaaa.",
        "https://h/a1?",
        '"secret',
        "\\u003d",
    ],
)
@pytest.mark.parametrize("before", ["", "https://host/", '"token', "eyJabcdefghi"])
def test_masking_takes_time_in_proportion_to_a_text(part: str, before: str) -> None:
    text = before + part * (200_000 // len(part))
    clock = Stopwatch()
    scrub_json(text, ["planted"])
    assert clock.within(SOON)


@pytest.mark.parametrize(
    "text",
    [
        r'{"url":"https:\/\/host\/f.parquet?sig=planted"}',
        r'{"url":"https://host/f.parquet\u003fsig\u003dplanted\u0026x\u003dplanted"}',
        r'{"message":"no \u0070lanted"}',
        '{"a":{"sasToken":["planted"]}}',
        '{"a":{"sasToken": {"value": "planted"}}}',
        '{"adls.account-key.a":"planted","credential":"id:planted","header.Authorization":"Basic planted"}',
        '{"secretAccessKey":"plant\\"ed planted',
    ],
)
def test_secrets_in_json_are_masked(text: str) -> None:
    shown = scrub_json(text, ["planted"] if "message" in text else [])
    assert "planted" not in shown
    assert "***" in shown
    assert scrub_json('{"nextPageToken":"abc"}') == '{"nextPageToken":"abc"}'
