"""The recipient's own credentials for a store, for tables whose catalog gives none (docs/iceberg.md).

They come from ``ReadOptions.storage_options`` or the environment. A catalog may name any location, but not who receives
these credentials: they are sent to an endpoint that the recipient set, or to the cloud's own hosts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.redact import Secret
from delta_sharing_client.storage.credentials import AWS, AZURE, GOOGLE, StorageCredentials
from delta_sharing_client.storage.locations import OWN_ACCOUNT, OWN_SECRETS, Location, user_settings

_VARIABLES: Mapping[str, Mapping[str, str]] = {
    AWS: {name: f"AWS_{name.upper()}" for name in OWN_SECRETS[AWS]},
    AZURE: {"sas_token": "AZURE_STORAGE_SAS_TOKEN"},
    GOOGLE: {},
}
_ACCOUNT_VARIABLES = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")
# Other kinds of credentials in the environment, which are named in the error if there are no supported ones.
_UNSUPPORTED = {
    AWS: ("AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    AZURE: ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_CLIENT_ID", "AZURE_STORAGE_CONNECTION_STRING"),
    GOOGLE: ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"),
}
# The settings of a catalog that name an endpoint.
_ENDPOINTS = {AWS: "s3.endpoint", GOOGLE: "gcs.service.host"}
_REGIONS = ("client.region", "s3.region")


def own_credentials(location: str, config: Mapping[str, str], options: ReadOptions) -> StorageCredentials | None:
    """Return the recipient's credentials for the store of ``location``, ``None`` if there are none.

    ``config`` has the catalog's settings of the store; only its region is used. Raises ``UsageError`` if the recipient
    must name the host that receives the credentials, or if they are incomplete, and ``UnsupportedFeatureError`` if
    there are only credentials of a kind that is not supported.
    """
    where = Location.parse(location)
    own = user_settings(options)
    cloud = {"abfss": AZURE, "gs": GOOGLE}.get(where.scheme, AWS)
    secrets = _found(cloud, own)
    if not secrets:
        _check_unsupported(cloud)
        return None
    if cloud == AWS and not {"access_key_id", "secret_access_key"} <= secrets.keys():
        raise UsageError(
            "Your own credentials for S3 must have 'access_key_id' and 'secret_access_key', found only "
            f"{', '.join(map(repr, sorted(secrets)))}."
        )
    if len(secrets) > 1 and cloud == AZURE:
        raise UsageError("Your own credentials for Azure must be either 'sas_token' or 'token', found both.")
    for name, value in secrets.items():
        if not value.isascii() or not value.isprintable():
            raise UsageError(f"Your own '{name}' has a character that a request cannot contain, such as a line break.")
    _check_host(cloud, where, own, config)
    region = next((config[name] for name in _REGIONS if config.get(name)), None)
    return StorageCredentials(
        cloud=cloud,
        secrets={name: Secret(value) for name, value in secrets.items()},
        settings={"region": region} if region is not None and cloud == AWS else {},
    )


def _found(cloud: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets in the options, or else those in the environment; the two are never mixed."""
    in_options = {
        name: next((own[option] for option in options if own.get(option)), "")
        for name, options in OWN_SECRETS[cloud].items()
    }
    found = {name: value for name, value in in_options.items() if value}
    of_environment = {name: os.environ.get(variable, "") for name, variable in _VARIABLES[cloud].items()}
    return found or {name: value for name, value in of_environment.items() if value}


def _check_host(cloud: str, where: Location, own: Mapping[str, str], config: Mapping[str, str]) -> None:
    """Raise ``UsageError`` if the catalog would decide which host gets the credentials."""
    endpoints = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") if cloud == AWS else ()
    if own.get("endpoint") or any(os.environ.get(variable) for variable in endpoints):
        return
    if cloud == AZURE:
        account = where.bucket.partition("@")[2].partition(".")[0]
        mine = next((own[name] for name in OWN_ACCOUNT if own.get(name)), None)
        mine = mine or next((os.environ[name] for name in _ACCOUNT_VARIABLES if os.environ.get(name)), None)
        if mine is None or mine.lower() != account.lower():
            raise UsageError(
                f"The catalog gives no credentials for the Azure account '{account}'. To use your own, name the "
                "account for which they are: set 'account_name' in 'storage_options'."
            )
        return
    named = config.get(_ENDPOINTS[cloud])
    if named or where.scheme == "r2":
        raise UsageError(
            "The catalog names an endpoint of the store, but gives no credentials for it. Your own are sent only to an "
            "endpoint that you set, because a catalog could name any host: set 'endpoint' in 'storage_options'."
        )


def _check_unsupported(cloud: str) -> None:
    found = [name for name in _UNSUPPORTED[cloud] if os.environ.get(name)]
    if found:
        expected = {AWS: "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", AZURE: "AZURE_STORAGE_SAS_TOKEN"}.get(cloud)
        raise UnsupportedFeatureError(
            f"The catalog gives no credentials for the table's files, and those that '{found[0]}' refers to are not "
            f"supported. Give {expected or 'a token'}, in the environment or in 'storage_options' (docs/iceberg.md).",
            feature=found[0],
        )
