"""Locations of files: addresses in stores, and the settings with which a store is reached."""

from __future__ import annotations

import dataclasses
import json
import os

from delta_sharing_client.errors import ProtocolError, UsageError
from delta_sharing_client.http.network import Allowed, unfetchable
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, R2, StorageCredentials

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss", "gcs": "gs"}
_OPTIONS_VARIABLE = "DELTA_SHARING_STORAGE_OPTIONS"
ONLY_S3 = ("region", "virtual_hosted_style_request", "request_payer")
"""Settings of S3 alone; other stores ignore them, because one environment variable has the settings of all stores."""

# The options of each secret of the recipient's own, by cloud; the first name is the usual one.
OWN_SECRETS = {
    AWS: {
        "access_key_id": ("access_key_id", "aws_access_key_id"),
        "secret_access_key": ("secret_access_key", "aws_secret_access_key"),
        "session_token": ("session_token", "aws_session_token"),
    },
    AZURE: {"sas_token": ("sas_token", "azure_storage_sas_token"), "token": ("token", "bearer_token")},
    GOOGLE: {"token": ("token", "bearer_token")},
}
OWN_ACCOUNT = ("account_name", "azure_storage_account_name")
_OF_CREDENTIALS = {*OWN_ACCOUNT, *(name for own in OWN_SECRETS.values() for names in own.values() for name in names)}
SCHEMES = ("abfss", "gs", "r2", "s3")
"""The schemes of locations in object stores."""


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """An address in a store: ``scheme://bucket/prefix``. ``bucket`` is the whole authority; in Azure, it includes the
    host."""

    scheme: str
    bucket: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse an address; aliases of schemes are replaced, and trailing slashes are removed."""
        scheme, _, rest = text.partition("://")
        bucket, slash, path = rest.partition("/")
        scheme = _ALIASES.get(scheme.lower(), scheme.lower())
        # The path of a local directory begins with a slash.
        return cls(scheme, bucket, (f"{slash}{path}" if scheme == "file" else path).rstrip("/"))

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"file://{self.bucket}{self.prefix}"
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def key(self, path: str) -> str:
        """Return the store's key for a ``path`` below this location."""
        return "/".join(part for part in (self.prefix.strip("/"), path) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class StoreSettings:
    """The settings for a location in a store; the credentials are separate.

    ``allowed`` are the URLs that the server, which named the location, may make its recipients request.
    """

    location: Location
    options: ReadOptions
    allowed: Allowed

    def of(self, credentials: StorageCredentials) -> dict[str, str]:
        """Return the settings. The options take precedence over the environment, and the environment over the server.

        Raises ``UsageError`` if the settings in the environment are malformed, and ``ProtocolError`` if the server
        names an endpoint that is not allowed.
        """
        stated = dict(credentials.settings)
        if "endpoint" in stated:
            # The user may name any endpoint, but the server only an endpoint that its URLs of data files may have.
            # The address to which its host resolves is checked when a connection is made.
            reason = unfetchable(stated["endpoint"], self.allowed)
            if reason is not None:
                raise ProtocolError(f"The server names an endpoint of the store that is not allowed: found {reason}.")
        own = user_settings(self.options)
        stated.update({name: value for name, value in own.items() if name not in _OF_CREDENTIALS})
        if credentials.cloud not in (AWS, R2):
            stated = {name: value for name, value in stated.items() if name not in ONLY_S3}
        return stated


def user_settings(options: ReadOptions) -> dict[str, str]:
    """Return the settings of stores in the environment and in ``options``, which take precedence.

    Raises ``UsageError`` if those in the environment are malformed.
    """
    own = _from_environment()
    own.update({name: str(value) for name, value in dict(options.storage_options).items()})
    return own


def _from_environment() -> dict[str, str]:
    text = os.environ.get(_OPTIONS_VARIABLE, "")
    if not text:
        return {}
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise UsageError(
            f"The environment variable '{_OPTIONS_VARIABLE}' must contain a JSON object, such as "
            "{'endpoint': 'https://s3.example.com'} with double quotation marks."
        )
    return {str(name): str(value) for name, value in settings.items()}
