"""Credentials from sharing servers and Iceberg catalogs, and how they are renewed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from delta_sharing_client.errors import AuthError, ProtocolError, UnsupportedFeatureError
from delta_sharing_client.protocol.messages import (
    AwsCredentials,
    AzureUserDelegationSas,
    GcpOauthToken,
    TemporaryCredentials,
)
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage import credentials
from delta_sharing_client.storage.credentials import (
    AWS,
    AZURE,
    GOOGLE,
    R2,
    Renewal,
    StorageCredentials,
    from_iceberg,
    from_protocol,
)
from tests.time_limits import HANGS

START = 1_000_000


class Provider:
    """Returns credentials that are valid for ``seconds``, or fails."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.calls = 0
        self.fails = False

    def __call__(self) -> StorageCredentials:
        self.calls += 1
        if self.fails:
            raise AuthError("The server is tired.")
        end = None if self.seconds is None else credentials.now_ms() + round(self.seconds * 1000)
        return StorageCredentials(
            cloud=AWS, secrets={"secret_access_key": Secret(f"planted-{self.calls}")}, expires_ms=end
        )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [START]
    monkeypatch.setattr(credentials, "now_ms", lambda: now[0])
    return now


def test_no_request_is_made_before_the_first_use(clock: list[int]) -> None:
    provider = Provider(3600)
    renewal = Renewal(provider)
    assert provider.calls == 0

    assert renewal.current() is renewal.current()
    assert provider.calls == 1


@pytest.mark.parametrize(("seconds", "renewed_at"), [(3600, 3300), (30, 20), (900, 600)])
def test_renewal_starts_before_the_expiration(clock: list[int], seconds: int, renewed_at: int) -> None:
    provider = Provider(seconds)
    renewal = Renewal(provider)
    first = renewal.current()
    clock[0] = START + renewed_at * 1000 - 1
    assert renewal.current() is first
    clock[0] += 1

    assert renewal.current() is not first
    assert provider.calls == 2


def test_failed_renewal_pauses_while_credentials_are_valid(clock: list[int]) -> None:
    provider = Provider(3600)
    renewal = Renewal(provider)
    first = renewal.current()
    provider.fails = True
    clock[0] = START + 3_400_000

    assert renewal.current() is first
    assert renewal.current() is first
    assert provider.calls == 2
    clock[0] += 10_000
    assert renewal.current() is first
    assert provider.calls == 3
    clock[0] = START + 3_599_999
    assert renewal.current() is first
    # Expired credentials are not used, even during the pause after a failed renewal.
    clock[0] += 1
    with pytest.raises(AuthError):
        renewal.current()


def test_rejected_credentials_are_renewed_at_once(clock: list[int]) -> None:
    provider = Provider(3600)
    renewal = Renewal(provider)
    first = renewal.current()
    second = renewal.current(rejected=first)

    assert second is not first
    assert renewal.current(rejected=first) is second
    provider.fails = True
    with pytest.raises(AuthError):
        renewal.current(rejected=second)


def test_credentials_that_arrive_expired_are_used(clock: list[int]) -> None:
    # Otherwise, if this machine's clock were ahead, every request would fetch new credentials.
    provider = Provider(-600)
    renewal = Renewal(provider)

    assert renewal.current() is renewal.current()
    assert provider.calls == 1


def test_threads_share_one_renewal() -> None:
    provider = Provider(3600)
    renewal = Renewal(provider)
    barrier = threading.Barrier(16)

    def use() -> StorageCredentials:
        barrier.wait(HANGS)
        return renewal.current()

    with ThreadPoolExecutor(16) as pool:
        result = list(pool.map(lambda _: use(), range(16)))

    assert provider.calls == 1
    assert len(set(map(id, result))) == 1


def test_pickled_renewal_keeps_credentials_and_hides_them() -> None:
    renewal = Renewal(Provider(3600))
    given = renewal.current()
    copy = pickle.loads(pickle.dumps(renewal))

    assert copy.current() == given
    assert "planted" not in f"{renewal!r} {given!r} {copy!r}"


@pytest.mark.parametrize(
    ("given", "cloud", "secrets"),
    [
        (
            {"aws_temp_credentials": AwsCredentials("id", "key", "session")},
            AWS,
            {"access_key_id": "id", "secret_access_key": "key", "session_token": "session"},
        ),
        (
            {"r2_credentials": AwsCredentials("id", "key", "session")},
            R2,
            {"access_key_id": "id", "secret_access_key": "key", "session_token": "session"},
        ),
        ({"azure_user_delegation_sas": AzureUserDelegationSas("sv=1")}, AZURE, {"sas_token": "sv=1"}),
        ({"gcp_oauth_token": GcpOauthToken("token")}, GOOGLE, {"token": "token"}),
    ],
)
def test_credentials_of_each_cloud_are_parsed(
    given: Mapping[str, object], cloud: str, secrets: Mapping[str, str]
) -> None:
    result = from_protocol(TemporaryCredentials(location="x://y", expiration_time=7, **given))  # type: ignore[arg-type]

    assert (result.cloud, result.expires_ms) == (cloud, 7)
    assert {name: result.reveal(name) for name in result.secrets} == secrets


def test_s3_access_point_is_kept() -> None:
    keys = AwsCredentials("id", "key", "session", "arn:aws:s3:r:1:accesspoint/x")
    result = from_protocol(TemporaryCredentials(location="s3://b", aws_temp_credentials=keys))

    assert result.settings == {"access_point": "arn:aws:s3:r:1:accesspoint/x"}
    with pytest.raises(ProtocolError, match="found none"):
        from_protocol(TemporaryCredentials(location="s3://b"))


S3_KEYS = {"s3.access-key-id": "id", "s3.secret-access-key": "key"}


@pytest.mark.parametrize(
    ("location", "config", "expected"),
    [
        (
            "s3://bucket/t",
            {**S3_KEYS, "s3.session-token": "session", "s3.session-token-expires-at-ms": "123", "client.region": "r-1"},
            (AWS, {"access_key_id", "secret_access_key", "session_token"}, 123, {"region": "r-1"}),
        ),
        (
            "s3a://bucket/t",
            {**S3_KEYS, "s3.endpoint": "https://s", "s3.path-style-access": "true"},
            (AWS, {"access_key_id", "secret_access_key"}, None, {"endpoint": "https://s"}),
        ),
        (
            "s3://bucket/t",
            {**S3_KEYS, "s3.endpoint": "https://s", "s3.path-style-access": "false", "s3.access-points.bucket": "arn"},
            (
                AWS,
                {"access_key_id", "secret_access_key"},
                None,
                {"endpoint": "https://s", "virtual_hosted_style_request": "true", "access_point": "arn"},
            ),
        ),
        (
            "abfss://box@account.dfs.core.windows.net/t",
            {
                "adls.sas-token.account.dfs.core.windows.net": "sv=1",
                "adls.sas-token-expires-at-ms.account.dfs.core.windows.net": "9",
            },
            (AZURE, {"sas_token"}, 9, {}),
        ),
        (
            "wasbs://box@account.blob.core.windows.net/t",
            {"adls.sas-token.account": "sv=1", "adls.sas-token.other": "sv=2"},
            (AZURE, {"sas_token"}, None, {}),
        ),
        (
            "gs://bucket/t",
            {"gcs.oauth2.token": "token", "gcs.oauth2.token-expires-at": "5"},
            (GOOGLE, {"token"}, 5, {}),
        ),
    ],
)
def test_credentials_of_an_iceberg_catalog_are_parsed(
    location: str, config: dict[str, str], expected: tuple[str, set[str], int | None, dict[str, str]]
) -> None:
    result = from_iceberg(config, location)

    assert (result.cloud, set(result.secrets), result.expires_ms, dict(result.settings)) == expected


@pytest.mark.parametrize(
    ("location", "config", "message"),
    [
        ("s3://bucket/t", {}, "'s3.access-key-id'"),
        ("s3://bucket/t", {"s3.access-key-id": "planted"}, "'s3.access-key-id'"),
        ("abfss://box@account.dfs.x/t", {"adls.sas-token.other": "planted"}, "'adls.sas-token.account.dfs.x'"),
        ("gs://bucket/t", S3_KEYS, "'gcs.oauth2.token'"),
        ("s3://bucket/t", {**S3_KEYS, "s3.session-token-expires-at-ms": "planted soon"}, "a string of 12 characters"),
    ],
)
def test_error_names_a_missing_catalog_property(location: str, config: dict[str, str], message: str) -> None:
    with pytest.raises(ProtocolError, match=message) as caught:
        from_iceberg(config, location)

    assert "planted" not in str(caught.value)


def test_remote_signing_of_a_catalog_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="remote-signing"):
        from_iceberg({"s3.remote-signing-enabled": "true"}, "s3://bucket/t")
