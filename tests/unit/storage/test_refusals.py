"""Errors of stores: what is advised, and for which ones credentials are renewed."""

from __future__ import annotations

import pytest

from delta_sharing_client.storage.refusals import StoreError, advice


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
