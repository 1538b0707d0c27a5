"""The object stores: which store contains a location, and how obstore opens it."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from delta_sharing_client.errors import DeltaSharingError, ProtocolError, UsageError
from delta_sharing_client.network import Allowed, Network, leads_here, unfetchable
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, R2, Renewal, StorageCredentials
from delta_sharing_client.storage.dialects import (
    ONLY_S3,
    access_point,
    azure_endpoint,
    in_host,
    r2_endpoint,
    with_bucket,
)

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss", "gcs": "gs"}
_OPTIONS_VARIABLE = "DELTA_SHARING_STORAGE_OPTIONS"
_LEAST_TIMEOUT = 300
_REGION_TIMEOUT = 10


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
            reason = unfetchable(stated["endpoint"], self.allowed)
            if reason is None and not self.allowed.loopback and leads_here(urlsplit(stated["endpoint"]).hostname or ""):
                reason = "a host that is this machine"
            if reason is not None:
                raise ProtocolError(f"The server names an endpoint of the store that is not allowed: found {reason}.")
        stated.update(_from_environment())
        stated.update({name: str(value) for name, value in dict(self.options.storage_options).items()})
        if credentials.cloud not in (AWS, R2):
            stated = {name: value for name, value in stated.items() if name not in ONLY_S3}
        return stated


def open_store(settings: StoreSettings, renewal: Renewal, prefix: str = "") -> Any:
    """Return the ``obstore`` store of the location's bucket or container; its root is ``prefix``, by default the whole
    bucket or container.

    The store requests credentials from ``renewal``, so it remains usable after they expire, and it is picklable if
    ``renewal`` is. Raises ``ProtocolError`` if the server provides credentials for a different cloud, and
    ``UsageError`` for settings that the store does not have.
    """
    from obstore.exceptions import BaseError

    credentials = renewal.current()
    scheme = settings.location.scheme
    clouds, make = _STORES[scheme]
    if credentials.cloud not in clouds:
        raise ProtocolError(
            f"Expected credentials of {' or '.join(clouds)} for a location with the scheme '{scheme}', found "
            f"credentials of {credentials.cloud}."
        )
    given = settings.of(credentials)
    try:
        arguments = make(settings, given, credentials)
        return arguments.pop("kind")(**arguments, prefix=prefix or None, credential_provider=Provided(renewal))
    except DeltaSharingError:
        raise
    except (BaseError, ValueError, TypeError) as error:
        names = ", ".join(sorted(f"'{name}'" for name in given)) or "none"
        raise UsageError(
            f"The store of a location with the scheme '{scheme}' cannot be opened with the 'storage_options' {names}; "
            f"expected 'endpoint', and for S3 also {', '.join(map(repr, ONLY_S3))} ({type(error).__name__})."
        ) from None


class Provided:
    """A function that returns the credentials in the form that obstore expects; its threads call it. Picklable."""

    def __init__(self, renewal: Renewal) -> None:
        self._renewal = renewal

    def __repr__(self) -> str:
        return "Provided(***)"

    def __call__(self) -> dict[str, object]:
        credentials = self._renewal.current()
        found: dict[str, object] = {
            ("token" if name == "session_token" else name): secret.reveal()
            for name, secret in credentials.secrets.items()
        }
        end = credentials.expires_ms
        found["expires_at"] = end and datetime.datetime.fromtimestamp(end / 1000, datetime.timezone.utc)
        if "sas_token" in found:
            found["sas_token"] = str(found["sas_token"]).lstrip("?")
        if "access_key_id" in found:
            found.setdefault("token", None)
        return found


# === The clouds ===


# Each function returns the class of the store, as ``kind``, and the arguments of the class.


def _s3(settings: StoreSettings, given: dict[str, str], credentials: StorageCredentials) -> dict[str, Any]:
    from obstore.store import S3Store

    location, options = settings.location, settings.options
    bucket, _, host = location.bucket.partition("@")
    bucket = in_host(bucket, location.scheme)
    config: dict[str, Any] = {"skip_signature": False, **given}
    if credentials.cloud == R2:
        config = {"region": "auto", **config}
        if "endpoint" not in config:
            config["endpoint"] = r2_endpoint(bucket, host)
    point = config.pop("access_point", "")
    if point.startswith("arn:"):
        its_endpoint, its_region = access_point(point)
        config = {"endpoint": its_endpoint, "region": its_region, "virtual_hosted_style_request": "true", **config}
    elif point:
        # The alias of an access point is used like the name of a bucket.
        bucket = in_host(point, location.scheme)
    elif "virtual_hosted_style_request" in credentials.settings and "endpoint" in config:
        config["endpoint"] = with_bucket(config["endpoint"], bucket)
    environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = config.get("endpoint") or environment
    region = config.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint is None and region is None:
        config["region"] = region = bucket_region(bucket, options)
    address = endpoint or f"https://{bucket}.s3.{region}.amazonaws.com"
    return {"kind": S3Store, "bucket": bucket, "config": config, **_client(options, address)}


def _azure(settings: StoreSettings, given: dict[str, str], credentials: StorageCredentials) -> dict[str, Any]:
    from obstore.store import AzureStore

    container, _, host = settings.location.bucket.partition("@")
    account, _, domain = host.partition(".")
    account = in_host(account, settings.location.scheme)
    config: dict[str, Any] = {"account_name": account, "endpoint": azure_endpoint(account, domain), **given}
    client = _client(settings.options, config["endpoint"])
    return {"kind": AzureStore, "container_name": container, "config": config, **client}


def _gcs(settings: StoreSettings, given: dict[str, str], credentials: StorageCredentials) -> dict[str, Any]:
    from obstore.store import GCSStore

    config = {"base_url" if name == "endpoint" else name: value for name, value in given.items()}
    client = _client(settings.options, config.get("base_url") or "https://storage.googleapis.com")
    return {"kind": GCSStore, "bucket": settings.location.bucket, "config": config, **client}


_Make = Callable[[StoreSettings, dict[str, str], StorageCredentials], dict[str, Any]]
_STORES: Mapping[str, tuple[tuple[str, ...], _Make]] = {
    "s3": ((AWS, R2), _s3),
    "r2": ((R2, AWS), _s3),
    "abfss": ((AZURE,), _azure),
    "gs": ((GOOGLE,), _gcs),
}
SCHEMES = tuple(_STORES)
"""The schemes of locations in object stores."""


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


def _client(options: ReadOptions, address: str) -> dict[str, Any]:
    network = Network.of(options)
    client: dict[str, Any] = {
        # An http endpoint either was checked or comes from the user.
        "allow_http": address.startswith("http://"),
        "connect_timeout": f"{max(1, round(options.connect_timeout))}s",
        "read_timeout": f"{max(1, round(options.read_timeout))}s",
        "timeout": f"{max(_LEAST_TIMEOUT, round(options.read_timeout))}s",
    }
    proxy = network.proxy_for(address)
    if proxy:
        client["proxy_url"] = proxy
    own = options.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if own and os.path.isfile(own):
        client["root_certificate"] = Path(own).read_bytes()
    # Callers retry, and not obstore, because callers know when they are closed.
    return {"client_options": client, "retry_config": {"max_retries": 0}}


def bucket_region(bucket: str, options: ReadOptions) -> str:
    """Return the region of an AWS bucket, which the sharing protocol lacks, but S3 reports without credentials."""
    url = f"https://{bucket}.s3.amazonaws.com"
    network = Network.of(options)
    proxy = network.proxy_for(url)
    try:
        response = requests.head(
            url,
            timeout=_REGION_TIMEOUT,
            allow_redirects=False,
            verify=network.trusted,
            proxies={"https": proxy} if proxy else {},
        )
    except (requests.RequestException, ValueError):
        return "us-east-1"
    return response.headers.get("x-amz-bucket-region", "us-east-1")
