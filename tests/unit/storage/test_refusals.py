"""Errors of stores: which text is reported, and that the rest of the store's message is never shown."""

from __future__ import annotations

import pytest
from obstore import exceptions

from delta_sharing_client.fetch.source import Refused
from delta_sharing_client.retry import Transient
from delta_sharing_client.storage.refusals import StoreError, advice, translated

START = "Generic S3 error: Error performing GET https://h/b?sig=planted in 2ms - "


def failure(status: str, code: str = "", more: str = "") -> str:
    body = f": <Error><Code>{code}</Code>{more}<Key>planted</Key></Error>" if code else ": planted"
    return f"{START}Server returned non-2xx status code: {status}{body}\n\nDebug source:\nplanted"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (exceptions.PermissionDeniedError(failure("403 Forbidden", "InvalidAccessKeyId")), 403, "set 'endpoint'"),
        (exceptions.PermissionDeniedError(failure("403 Forbidden", "RequestTimeTooSkewed")), 403, "the clock"),
        (exceptions.PermissionDeniedError(failure("403 Forbidden", "SignatureDoesNotMatch")), 403, "set 'region'"),
        (exceptions.PermissionDeniedError(failure("403 Forbidden", "AccessDenied")), 403, "AccessDenied"),
        (exceptions.UnauthenticatedError(failure("401 Unauthorized")), 403, "HTTP status 403"),
        (FileNotFoundError(failure("404 Not Found", "NoSuchBucket")), 404, "'virtual_hosted_style_request'"),
        (FileNotFoundError(failure("404 Not Found", "NoSuchKey")), 404, "HTTP status 404"),
        (
            exceptions.GenericError(
                failure("400 Bad Request", "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")
            ),
            400,
            "set 'region' to 'eu-west-1' in 'storage_options'",
        ),
        (exceptions.GenericError(failure("301 Moved Permanently", "PermanentRedirect")), 301, "set 'region'"),
        (
            exceptions.GenericError(
                f"{START}Received redirect without LOCATION, this normally indicates an incorrectly configured region"
            ),
            301,
            "set 'region'",
        ),
        (exceptions.PreconditionError(failure("412 Precondition Failed", "PreconditionFailed")), 412, ""),
        (exceptions.InvalidPathError("Encountered object with invalid path: planted"), 400, "its name"),
    ],
)
def test_refusal_names_the_setting_that_may_be_wrong(error: Exception, status: int, message: str) -> None:
    result = translated(error, "volume a.b.c", None)

    assert isinstance(result, Refused)
    assert result.status == status
    assert message in str(result)
    assert "planted" not in f"{result} {result!r} {result.reason}"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (exceptions.GenericError(failure("503 Service Unavailable", "SlowDown")), "it responded with HTTP status 503"),
        (exceptions.GenericError(f"{START}HTTP error: error sending request planted"), "it did not respond"),
        (OSError("planted"), "it did not respond"),
    ],
)
def test_temporary_store_failures_are_transient(error: Exception, message: str) -> None:
    result = translated(error, "volume a.b.c", None)

    assert isinstance(result, Transient)
    assert str(result.error) == f"Reading from the storage of volume a.b.c failed: {message}."


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("x status code: 403 Forbidden", (403, "", "")),
        ("x status: 404", (404, "", "")),
        ("Client error 503 Service Unavailable", (503, "", "")),
        ("x\n status: 404 <Code>NoSuchKey</Code>", (None, "NoSuchKey", "")),
        ("an incorrectly configured region", (301, "", "")),
        ("the region is wrong; expecting 'eu-west-1'", (None, "", "eu-west-1")),
        ("<Region>eu-west-2</Region>", (None, "", "eu-west-2")),
        ("nothing", (None, "", "")),
    ],
)
def test_status_and_code_are_parsed_from_the_text_of_an_error(text: str, facts: tuple[int | None, str, str]) -> None:
    assert StoreError.of(ValueError(text)) == facts


def error_body(code: str, more: str = "") -> bytes:
    return f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>planted</Message>{more}</Error>".encode()


@pytest.mark.parametrize(
    ("status", "headers", "body", "facts"),
    [
        (403, {}, error_body("AccessDenied"), (403, "AccessDenied", "")),
        (301, {"x-amz-bucket-region": "eu-west-1"}, b"", (301, "", "eu-west-1")),
        (301, {"X-Amz-Bucket-Region": "eu-west-1"}, error_body("PermanentRedirect", "<Region>eu-west-2</Region>"),
         (301, "PermanentRedirect", "eu-west-1")),
        (400, {}, error_body("AuthorizationHeaderMalformed", "<Region>eu-west-2</Region>"),
         (400, "AuthorizationHeaderMalformed", "eu-west-2")),
        (400, {}, b"<Error><Code>A</Code><Message>the region is wrong; expecting 'garage-1'</Message></Error>",
         (400, "A", "garage-1")),
        (404, {"x-ms-error-code": "BlobNotFound"}, b"", (404, "BlobNotFound", "")),
        (403, {"x-ms-error-code": "NoAuthentication"}, b'{"error": {"code": "x"}}', (403, "NoAuthentication", "")),
        (403, {"x-ms-error-code": "planted signature=1"}, b"\xff\xfe", (403, "", "")),
        (301, {"x-amz-bucket-region": "evil.example/#"}, b"<Region>evil.example/</Region>", (301, "", "")),
        (404, {}, b"Not Found", (404, "", "")),
    ],
)  # fmt: skip
def test_facts_of_a_refusal_are_read_from_the_response(
    status: int, headers: dict[str, str], body: bytes, facts: tuple[int, str, str]
) -> None:
    result = StoreError.of_response(status, headers.items(), body)

    assert result == facts
    assert "planted" not in result.reason


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (401, "", True), (403, "AccessDenied", True), (403, "AuthenticationFailed", True), (400, "ExpiredToken", True),
        (400, "TokenRefreshRequired", True), (400, "InvalidToken", True), (400, "AuthenticationFailed", True),
        (400, "InvalidArgument", False), (400, "", False), (404, "ExpiredToken", False), (503, "SlowDown", False),
    ],
)  # fmt: skip
def test_refusals_for_which_credentials_are_renewed(status: int, code: str, expected: bool) -> None:
    assert StoreError(status, code, "").is_about_credentials is expected


@pytest.mark.parametrize(
    ("code", "region", "status", "expected"),
    [
        ("InvalidAccessKeyId", "", None, "if the bucket is not in AWS, set 'endpoint' in 'storage_options'"),
        ("NoSuchBucket", "eu-west-1", None, "check 'endpoint' in 'storage_options', and set"),
        ("ContainerNotFound", "", 404, "the container does not exist; check 'endpoint'"),
        ("AuthorizationHeaderMalformed", "eu-west-1", None, "set 'region' to 'eu-west-1' in 'storage_options'"),
        ("", "eu-west-1", 301, "set 'region' to 'eu-west-1' in 'storage_options'"),
        ("", "", 307, "set 'region' in 'storage_options'"),
    ],
)
def test_advice_names_the_setting(code: str, region: str, status: int | None, expected: str) -> None:
    assert advice(code, region, status).startswith(expected)
    assert advice("NoSuchKey", region, 404) == ""
