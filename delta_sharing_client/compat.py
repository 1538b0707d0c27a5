"""The names, errors and units of the package ``delta-sharing``, for scripts that were written for it.

::

    import delta_sharing_client.compat as delta_sharing

    client = delta_sharing.SharingClient("my.share")
    delta_sharing.load_as_pandas("my.share#share.schema.table", limit=10)

What differs from ``delta_sharing_client`` itself: errors are also those that such scripts catch
(``requests.HTTPError`` with its ``response``, ``requests.ConnectionError``, ``ValueError``), and ``_commit_timestamp``
counts microseconds where that package does. ``docs/from-delta-sharing.md`` has the rest.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json as json_text
import os
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any, ClassVar, TypeVar, Union

import pyarrow as pa
import requests

from delta_sharing_client import client as our_client
from delta_sharing_client import errors, loaders
from delta_sharing_client.protocol.listing import Schema, Share, Table
from delta_sharing_client.protocol.profile import NEWEST_VERSION, Profile, read_profile
from delta_sharing_client.scan.columns import COMMIT_TIMESTAMP

if TYPE_CHECKING:
    import pandas as pd

    from delta_sharing_client.options import ReadOptions

__all__ = [
    "DeltaSharingProfile",
    "Schema",
    "Share",
    "SharingClient",
    "Table",
    "get_table_metadata",
    "get_table_protocol",
    "get_table_version",
    "load_as_arrow",
    "load_as_pandas",
    "load_as_spark",
    "load_table_changes_as_arrow",
    "load_table_changes_as_pandas",
    "load_table_changes_as_spark",
]

F = TypeVar("F", bound=Callable[..., Any])


# === Errors: ours, and what scripts catch ===


class ProfileError(errors.ProfileError, ValueError):
    """A profile that cannot be used."""


class RequestError(errors.RequestError, requests.HTTPError):
    """The server answered with an error; ``response.status_code`` is its status."""


class NotFoundError(errors.NotFoundError, RequestError):
    """There is no such share, schema, table or version."""


class AuthError(errors.AuthError, requests.HTTPError):
    """The credentials were refused; ``response.status_code`` is the status."""


class TransportError(errors.TransportError, requests.ConnectionError):
    """No complete answer arrived."""


class UnsupportedFeatureError(errors.UnsupportedFeatureError, ValueError):
    """The table needs what this package does not read."""


_ALSO: tuple[tuple[type[errors.DeltaSharingError], type[errors.DeltaSharingError]], ...] = (
    (errors.ProfileError, ProfileError),
    (errors.NotFoundError, NotFoundError),
    (errors.RequestError, RequestError),
    (errors.AuthError, AuthError),
    (errors.TransportError, TransportError),
    (errors.UnsupportedFeatureError, UnsupportedFeatureError),
)


def _raising_as_before(function: F) -> F:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors.DeltaSharingError as error:
            also = next((also for ours, also in _ALSO if isinstance(error, ours)), None)
            if also is None or isinstance(error, also):
                raise
            translated = errors.rebuild(also, error.message, {**vars(error), "request": None, "response": None})
            if isinstance(translated, requests.HTTPError):
                translated.response = requests.Response()
                translated.response.status_code = getattr(error, "status", None) or 0
            trace = error.__traceback__
        raise translated.with_traceback(trace)

    return called  # type: ignore[return-value]


# === Profiles ===


@dataclasses.dataclass(frozen=True)
class DeltaSharingProfile:
    """The fields of a profile. Secrets are not shown; a profile of version 2 may have any of its types."""

    CURRENT: ClassVar[int] = NEWEST_VERSION

    share_credentials_version: int
    endpoint: str
    bearer_token: str | None = dataclasses.field(default=None, repr=False)
    expiration_time: str | None = None
    type: str | None = None
    token_endpoint: str | None = None
    client_id: str | None = None
    client_secret: str | None = dataclasses.field(default=None, repr=False)
    username: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    scope: str | None = None
    issuer: str | None = None
    audience: str | None = None
    private_key: Mapping[str, str] | None = dataclasses.field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        if self.share_credentials_version > self.CURRENT:
            self.load()

    @staticmethod
    @_raising_as_before
    def read_from_file(profile: str | os.PathLike[str] | IO[str] | IO[bytes]) -> DeltaSharingProfile:
        """Read a profile from a path, URL or open file. ``ValueError`` if it cannot be used."""
        content = read_profile(os.fspath(profile)) if isinstance(profile, (str, os.PathLike)) else profile.read()
        return DeltaSharingProfile.from_json(content)

    @staticmethod
    @_raising_as_before
    def from_json(json: str | bytes | bytearray | Mapping[str, Any]) -> DeltaSharingProfile:
        """Read a profile from JSON text or its object. ``ValueError`` if it cannot be used."""
        if isinstance(json, Mapping):
            fields, loaded = json, Profile.load(json)
        else:
            content = json.encode() if isinstance(json, str) else bytes(json)
            loaded = Profile.load(io.BytesIO(content))
            fields = json_text.loads(content)
        within = fields.get("auth") or fields
        return DeltaSharingProfile(
            share_credentials_version=loaded.version,
            endpoint=loaded.endpoint,
            **{ours: within.get(theirs, fields.get(theirs)) for ours, theirs in _FIELDS.items()},
        )

    @_raising_as_before
    def load(self) -> Profile:
        """Return the same as a ``delta_sharing_client.Profile``."""
        fields = {theirs: getattr(self, ours) for ours, theirs in _FIELDS.items()}
        given = {"shareCredentialsVersion": self.share_credentials_version, "endpoint": self.endpoint}
        return Profile.load({**given, **fields, "auth": fields})


_FIELDS = {
    "bearer_token": "bearerToken",
    "expiration_time": "expirationTime",
    "type": "type",
    "token_endpoint": "tokenEndpoint",
    "client_id": "clientId",
    "client_secret": "clientSecret",
    "username": "username",
    "password": "password",
    "scope": "scope",
    "issuer": "issuer",
    "audience": "audience",
    "private_key": "privateKey",
}


class SharingClient(our_client.SharingClient):
    """As ``delta_sharing_client.SharingClient``; takes a ``DeltaSharingProfile``, too."""

    @_raising_as_before
    def __init__(
        self,
        profile: Union[str, os.PathLike[str], IO[str], IO[bytes], DeltaSharingProfile, Profile],
        options: ReadOptions | None = None,
    ) -> None:
        super().__init__(profile.load() if isinstance(profile, DeltaSharingProfile) else profile, options)

    list_shares = _raising_as_before(our_client.SharingClient.list_shares)
    list_schemas = _raising_as_before(our_client.SharingClient.list_schemas)
    list_tables = _raising_as_before(our_client.SharingClient.list_tables)
    list_all_tables = _raising_as_before(our_client.SharingClient.list_all_tables)


# === Functions ===

get_table_metadata = _raising_as_before(loaders.get_table_metadata)
get_table_protocol = _raising_as_before(loaders.get_table_protocol)
get_table_version = _raising_as_before(loaders.get_table_version)
load_as_arrow = _raising_as_before(loaders.load_as_arrow)
load_as_pandas = _raising_as_before(loaders.load_as_pandas)
load_as_spark = _raising_as_before(loaders.load_as_spark)
load_table_changes_as_spark = _raising_as_before(loaders.load_table_changes_as_spark)


@_raising_as_before
@functools.wraps(loaders.load_table_changes_as_pandas)
def load_table_changes_as_pandas(*args: Any, **kwargs: Any) -> pd.DataFrame:
    import pandas as pd

    from delta_sharing_client.outputs.pandas import HAS_UNITS

    frame = loaders.load_table_changes_as_pandas(*args, **kwargs)
    # What pandas casts to a unit that it does not have is broken.
    if HAS_UNITS and isinstance(frame.dtypes.get(COMMIT_TIMESTAMP), pd.DatetimeTZDtype):
        frame[COMMIT_TIMESTAMP] = frame[COMMIT_TIMESTAMP].astype("datetime64[us, UTC]")
    return frame


@_raising_as_before
@functools.wraps(loaders.load_table_changes_as_arrow)
def load_table_changes_as_arrow(*args: Any, **kwargs: Any) -> pa.Table:
    table = loaders.load_table_changes_as_arrow(*args, **kwargs)
    at = table.schema.get_field_index(COMMIT_TIMESTAMP)
    if at < 0:
        return table
    return table.set_column(at, COMMIT_TIMESTAMP, table[at].cast(pa.timestamp("us", "UTC")))
