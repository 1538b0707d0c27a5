"""The ``obstore`` store of a location, for programs that use this library. Nothing of ours reads through it."""

from __future__ import annotations

import datetime
from typing import Any

from delta_sharing_client import optional
from delta_sharing_client.errors import UnsupportedFeatureError
from delta_sharing_client.fetch.place import Place
from delta_sharing_client.protocol.asset_kinds import AssetRef
from delta_sharing_client.storage.credentials import Renewal
from delta_sharing_client.storage.dialects import S3, Azure, Dialect, Google
from delta_sharing_client.storage.local import LocalPlace
from delta_sharing_client.storage.store_place import StorePlace


def store_of(place: Place, asset: AssetRef) -> Any:
    """Return the ``obstore`` store of ``place``, which renews its credentials by itself.

    Its requests follow obstore's rules, not the limits of ``ReadOptions``. Raises ``UnsupportedFeatureError`` if the
    server provides the files of the ``asset`` by URL, and ``UsageError`` if obstore is not installed.
    """
    if isinstance(place, LocalPlace):
        optional.load_other("obstore", "store()")
        from obstore.store import LocalStore

        return LocalStore(place.root)
    if not isinstance(place, StorePlace):
        raise UnsupportedFeatureError(
            f"The server provides the files of {asset} by URL, so they have no store; use open() or filesystem().",
            feature="store",
        )
    optional.load_other("obstore", "store()")
    provided = Provided(place.renewal)
    return _opened(place.dialect(), place.prefix, provided)


def _opened(dialect: Dialect, prefix: str | None, provided: Provided) -> Any:
    from obstore.store import AzureStore, GCSStore, S3Store

    more: dict[str, Any] = {"prefix": prefix, "credential_provider": provided}
    match dialect:
        case S3():
            config = {"region": dialect.region, "endpoint": dialect.endpoint, "skip_signature": False}
            config = {name: value for name, value in config.items() if value != ""}
            if dialect.is_in_host:
                config |= {"virtual_hosted_style_request": "true"}
            if dialect.pays:
                config |= {"request_payer": "true"}
            return S3Store(dialect.bucket, config=config, client_options=_client(dialect.base), **more)
        case Google():
            base, _, bucket = dialect.base.rpartition("/")
            return GCSStore(bucket, config={"base_url": base}, client_options=_client(base), **more)
        case Azure():
            base, _, container = dialect.base.rpartition("/")
            config = {"account_name": _account(base), "endpoint": base}
            return AzureStore(container, config=config, client_options=_client(base), **more)
    raise AssertionError(dialect)


def _client(address: str) -> dict[str, Any]:
    return {"allow_http": address.startswith("http://")}


def _account(base: str) -> str:
    host, _, path = base.partition("://")[2].partition("/")
    # The path of an emulator's endpoint is the account.
    return path or host.partition(".")[0]


class Provided:
    """A function that returns the credentials in the form that obstore expects; its threads call it. Picklable."""

    def __init__(self, renewal: Renewal) -> None:
        self._renewal = renewal

    def __repr__(self) -> str:
        return "Provided(***)"

    def __call__(self) -> dict[str, object]:
        credentials = self._renewal.current()
        given: dict[str, object] = {
            ("token" if name == "session_token" else name): secret.reveal()
            for name, secret in credentials.secrets.items()
        }
        end = credentials.expires_ms
        given["expires_at"] = end and datetime.datetime.fromtimestamp(end / 1000, datetime.timezone.utc)
        if "sas_token" in given:
            given["sas_token"] = str(given["sas_token"]).lstrip("?")
        if "access_key_id" in given:
            given.setdefault("token", None)
        return given
