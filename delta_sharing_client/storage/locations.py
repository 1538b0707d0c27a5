"""Locations of files: addresses in stores, and the settings with which a store is reached."""

from __future__ import annotations

import dataclasses
import json
import os

from delta_sharing_client.errors import ProtocolError, UsageError
from delta_sharing_client.network import Allowed, unfetchable
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.credentials import AWS, R2, StorageCredentials

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss", "gcs": "gs"}
_OPTIONS_VARIABLE = "DELTA_SHARING_STORAGE_OPTIONS"
ONLY_S3 = ("region", "virtual_hosted_style_request", "request_payer")
"""Settings of S3 alone; other stores ignore them, because one environment variable has the settings of all stores."""

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
        stated.update(_from_environment())
        stated.update({name: str(value) for name, value in dict(self.options.storage_options).items()})
        if credentials.cloud not in (AWS, R2):
            stated = {name: value for name, value in stated.items() if name not in ONLY_S3}
        return stated


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
