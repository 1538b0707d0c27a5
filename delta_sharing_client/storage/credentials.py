"""Temporary credentials for a location in a store: where they come from, and how they are renewed."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, UnsupportedFeatureError
from delta_sharing_client.protocol.messages import TemporaryCredentials
from delta_sharing_client.redact import Secret, shown

# Credentials are renewed when this much of their lifetime remains, or a third of it if that is less.
_AHEAD_MS = 300_000
# While the credentials are still valid, a failed renewal is not repeated for this time.
_PAUSE_MS = 10_000

AWS, AZURE, GOOGLE, R2 = "AWS", "Azure", "Google Cloud", "Cloudflare R2"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StorageCredentials:
    """Temporary credentials for one location, and settings of its store from the server. The repr masks secrets.

    Attributes
    ----------
    cloud:
        ``AWS`` (and compatible stores), ``AZURE``, ``GOOGLE`` or ``R2``.
    secrets:
        ``access_key_id``, ``secret_access_key`` and ``session_token``; or ``sas_token``; or ``token``.
    expires_ms:
        When the credentials expire, in epoch milliseconds; ``None`` if the server does not state it.
    settings:
        ``endpoint``, ``region``, ``virtual_hosted_style_request`` and ``access_point`` (an ARN), if the server states
        them. The user's settings (``ReadOptions.storage_options``) take precedence.
    """

    cloud: str
    secrets: Mapping[str, Secret]
    expires_ms: int | None = None
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def reveal(self, name: str) -> str | None:
        """Return the secret ``name`` in clear text, for a request; ``None`` if there is no such secret."""
        secret = self.secrets.get(name)
        return None if secret is None else secret.reveal()


Provider = Callable[[], StorageCredentials]
"""Requests new credentials for a location. It must be picklable, and raises a ``DeltaSharingError`` if it gets none."""


class Renewal:
    """The credentials for a location, renewed before they expire. Threads share one renewal. Picklable.

    Parameters
    ----------
    provider:
        Called for new credentials, by one thread at a time.
    given:
        The first credentials, if the caller already has them.
    """

    def __init__(self, provider: Provider, given: StorageCredentials | None = None) -> None:
        self._provider = provider
        self._given = given
        self._since_ms = now_ms()
        self._paused_until_ms = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Renewal({self._given!r})"

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def ready(self, rejected: StorageCredentials | None = None) -> StorageCredentials | None:
        """Like ``current``, but without waiting: return ``None`` if new credentials must be requested, or while another
        thread requests them."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            given = self._given
            return None if given is None or given is rejected or self._is_ending(given) else given
        finally:
            self._lock.release()

    def current(self, rejected: StorageCredentials | None = None) -> StorageCredentials:
        """Return valid credentials that are not the ones that the store ``rejected``.

        Raises the errors of the provider, unless the current credentials can still be used.
        """
        with self._lock:
            given = self._given
            if given is None or given is rejected or self._is_ending(given):
                self._given = given = self._renewed(given, must=given is None or given is rejected)
            return given

    def _is_ending(self, given: StorageCredentials) -> bool:
        end, now = given.expires_ms, now_ms()
        # If credentials had already expired on arrival, a clock is wrong, so the store decides whether they are valid.
        if end is None or end <= self._since_ms:
            return False
        ahead = 0 if now < self._paused_until_ms else min(_AHEAD_MS, (end - self._since_ms) // 3)
        return now >= end - ahead

    def _renewed(self, given: StorageCredentials | None, *, must: bool) -> StorageCredentials:
        try:
            new = self._provider()
        except DeltaSharingError:
            if must or given is None or given.expires_ms is None or now_ms() >= given.expires_ms:
                raise
            self._paused_until_ms = now_ms() + _PAUSE_MS
            return given
        self._since_ms = now_ms()
        return new


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return int(time.time() * 1000)


# === From the sharing protocol ===


def from_protocol(given: TemporaryCredentials) -> StorageCredentials:
    """Return the credentials in a sharing server's response, which ``RestClient.credentials`` has checked.

    Raises ``ProtocolError`` if there are none.
    """
    keys, azure, google = given.aws_temp_credentials, given.azure_user_delegation_sas, given.gcp_oauth_token
    cloud, settings, secrets = AWS, {}, {}
    if keys is None and given.r2_credentials is not None:
        keys, cloud = given.r2_credentials, R2
    if keys is not None:
        secrets = {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "session_token": keys.session_token,
        }
        settings = {"access_point": keys.access_point} if keys.access_point else {}
    elif azure is not None:
        cloud, secrets = AZURE, {"sas_token": azure.sas_token}
    elif google is not None:
        cloud, secrets = GOOGLE, {"token": google.oauth_token}
    else:
        raise ProtocolError("Expected credentials from the server for a location in a store, found none.")
    return StorageCredentials(
        cloud=cloud, secrets=_secret(secrets), expires_ms=given.expiration_time, settings=settings
    )


# === From an Iceberg REST catalog ===

_S3 = {
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
}
_SAS, _OAUTH = "adls.sas-token.", "gcs.oauth2.token"
_SETTINGS = {
    "s3.endpoint": "endpoint",
    "gcs.service.host": "endpoint",
    "client.region": "region",
    "s3.region": "region",
}
_ENDS = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at")
_SAS_ENDS = "adls.sas-token-expires-at-ms."


def from_iceberg(config: Mapping[str, str], location: str) -> StorageCredentials:
    """Return the credentials for ``location`` in a ``config`` from an Iceberg REST catalog ("loadTable", and the
    properties of the FileIOs).

    The ``config`` is that of the table, or of one of its ``storage-credentials``. Raises ``ProtocolError`` if it has no
    credentials for the location's store, and ``UnsupportedFeatureError`` if the catalog must sign requests.
    """
    scheme, _, rest = location.partition("://")
    ends = next((config[name] for name in _ENDS if name in config), None)
    settings = {ours: config[name] for name, ours in _SETTINGS.items() if config.get(name)}
    if scheme.lower().startswith(("abfs", "wasb")):
        account = rest.partition("/")[0].partition("@")[2]
        # The account in the name of the property may be the whole host name, or its first label.
        owners = (account, account.partition(".")[0])
        token = next((config[_SAS + owner] for owner in owners if _SAS + owner in config), None)
        ends = next((config[_SAS_ENDS + owner] for owner in owners if _SAS_ENDS + owner in config), None)
        cloud, secrets, settings = AZURE, {"sas_token": token}, {}
        expected = f"{_SAS}{account}"
    elif scheme.lower() in ("gs", "gcs"):
        cloud, secrets, expected = GOOGLE, {"token": config.get(_OAUTH)}, _OAUTH
    else:
        cloud, secrets, expected = AWS, {ours: config.get(name) for name, ours in _S3.items()}, "s3.access-key-id"
        if config.get("s3.path-style-access", "").lower() == "false" and "endpoint" in settings:
            settings["virtual_hosted_style_request"] = "true"
        access_point = config.get(f"s3.access-points.{rest.partition('/')[0]}")
        settings.update({} if access_point is None else {"access_point": access_point})
        if not secrets["access_key_id"] and config.get("s3.remote-signing-enabled", "").lower() == "true":
            raise UnsupportedFeatureError(
                "The catalog wants to sign each request to the store ('s3.remote-signing-enabled'), which is not "
                "supported; ask the provider for temporary credentials ('vended-credentials').",
                feature="s3.remote-signing-enabled",
            )
    given = {name: value for name, value in secrets.items() if value}
    if not given or (cloud == AWS and "secret_access_key" not in given):
        raise ProtocolError(
            f"Expected credentials ('{expected}') from the catalog for a location with the scheme '{scheme}', found "
            "none."
        )
    return StorageCredentials(cloud=cloud, secrets=_secret(given), expires_ms=_milliseconds(ends), settings=settings)


def gives_credentials(config: Mapping[str, str], location: str) -> bool:
    """Return whether a ``config`` from an Iceberg REST catalog has credentials for the store of ``location``, complete
    or not."""
    scheme = location.partition("://")[0].lower()
    if scheme.startswith(("abfs", "wasb")):
        return any(name.startswith(_SAS) for name in config)
    return any(config.get(name) for name in ((_OAUTH,) if scheme in ("gs", "gcs") else _S3))


def _milliseconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        found = shown(text, r"[\w:.+-]{1,40}")
        raise ProtocolError(
            f"Expected the expiration of temporary credentials as a number of milliseconds, found {found}."
        ) from None


def _secret(values: Mapping[str, str]) -> dict[str, Secret]:
    return {name: Secret(value) for name, value in values.items() if value}
