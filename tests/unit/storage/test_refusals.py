"""Errors of stores: which text is reported, and that the rest of the store's message is never shown."""

from __future__ import annotations

import pytest
from obstore import exceptions

from delta_sharing_client.fetch.source import Refused
from delta_sharing_client.retry import Transient
from delta_sharing_client.storage.refusals import StoreError, translated

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
