"""The names, errors and units of the package ``delta-sharing``, for scripts that were written for it.

::

    import delta_sharing_client.compat as delta_sharing

    client = delta_sharing.SharingClient("my.share")
    delta_sharing.load_as_pandas("my.share#share.schema.table", limit=10)

Differences from ``delta_sharing_client``: errors also belong to the classes that such scripts catch
(``requests.HTTPError`` with its ``response``, ``requests.ConnectionError``, ``ValueError``), and ``_commit_timestamp``
is in microseconds where that package has them. It also has the objects of that package's next release:
``client.table(name).snapshot(limit=10).to_pandas()``. See ``docs/from-delta-sharing.md``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json as json_text
import os
from collections.abc import Generator, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any, ClassVar, Union

import pyarrow as pa
import requests

from delta_sharing_client import client as our_client
from delta_sharing_client import errors, loaders, scans, table
from delta_sharing_client.plan.read_columns import COMMIT_TIMESTAMP
from delta_sharing_client.predicates.hints import from_json_hints
from delta_sharing_client.protocol.names import AssetName, Schema, Share, Table
from delta_sharing_client.protocol.profile import NEWEST_VERSION, Profile, read_profile

if TYPE_CHECKING:
    import pandas as pd

    from delta_sharing_client.options import ReadOptions, TableFormat
    from delta_sharing_client.predicates.hints import JsonHints
    from delta_sharing_client.table import Timestamp

__all__ = [
    "DeltaSharingProfile",
    "DeltaSharingTable",
    "Schema",
    "Share",
    "SharingClient",
    "Table",
    "TableChanges",
    "TableSnapshot",
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


# === Errors: our classes, and those that scripts catch ===


class ProfileError(errors.ProfileError, ValueError):
    """A profile that cannot be used."""


class RequestError(errors.RequestError, requests.HTTPError):
    """The server responded with an error; ``response.status_code`` is its status."""


class NotFoundError(errors.NotFoundError, RequestError):
    """The share, schema, table or version does not exist."""


class AuthError(errors.AuthError, requests.HTTPError):
    """The credentials were refused; ``response.status_code`` is the status."""


class TransportError(errors.TransportError, requests.ConnectionError):
    """No complete response arrived."""


class UnsupportedFeatureError(errors.UnsupportedFeatureError, ValueError):
    """The table needs a feature that this package does not support."""


# Each class is raised in place of its first base class; subclasses come before their bases.
_ALSO = (ProfileError, NotFoundError, RequestError, AuthError, TransportError, UnsupportedFeatureError)


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    try:
        yield
        return
    except errors.DeltaSharingError as error:
        also = next((also for also in _ALSO if isinstance(error, also.__bases__[0])), None)
        if also is None or isinstance(error, also):
            raise
        translated = errors.rebuild(also, error.message, {**vars(error), "request": None, "response": None})
        if isinstance(translated, requests.HTTPError):
            translated.response = requests.Response()
            translated.response.status_code = getattr(error, "status", None) or 0
        trace = error.__traceback__
    raise translated.with_traceback(trace)


_raising_as_before = _as_before()  # as a decorator


# === Profiles ===


@dataclasses.dataclass(frozen=True)
class DeltaSharingProfile:
    """The fields of a profile; its ``repr`` masks secrets. A profile of version 2 may use any of that version's
    credential types."""

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
        """Read a profile from a path, URL or open file. Raises ``ValueError`` if it is invalid."""
        content = read_profile(os.fspath(profile)) if isinstance(profile, (str, os.PathLike)) else profile.read()
        return DeltaSharingProfile.from_json(content)

    @staticmethod
    @_raising_as_before
    def from_json(json: str | bytes | bytearray | Mapping[str, Any]) -> DeltaSharingProfile:
        """Read a profile from JSON text or a mapping. Raises ``ValueError`` if it is invalid."""
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
        """Return the profile as a ``delta_sharing_client.Profile``."""
        fields = {theirs: getattr(self, ours) for ours, theirs in _FIELDS.items()}
        common = {"shareCredentialsVersion": self.share_credentials_version, "endpoint": self.endpoint}
        return Profile.load({**common, **fields, "auth": fields})


def _in_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# All fields except the version and the endpoint.
_FIELDS = {field.name: _in_camel_case(field.name) for field in dataclasses.fields(DeltaSharingProfile)[2:]}


# === Objects ===


class _Outputs(scans.ReadOutputs):
    """The outputs that reads of that package have, in addition to ours."""

    to_arrow = _raising_as_before(scans.ReadOutputs.to_arrow)
    to_batches = _raising_as_before(scans.ReadOutputs.to_batches)

    def to_record_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Return the rows as an iterator of Arrow record batches; closing it ends the read."""
        try:
            with self.to_batches() as batches:
                yield from batches
        except errors.DeltaSharingError:
            # This does not enclose the whole generator, because the garbage collector may close it in a different
            # context.
            with _as_before():
                raise

    def to_record_batch_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a ``pyarrow.RecordBatchReader``."""
        with _as_before():
            schema = self.schema
        return pa.RecordBatchReader.from_batches(schema, self.to_record_batches())


class TableSnapshot(_Outputs, scans.Scan):
    """A ``delta_sharing_client.Scan`` of a snapshot, from ``DeltaSharingTable.snapshot``."""

    to_pandas = _raising_as_before(scans.Scan.to_pandas)


class TableChanges(_Outputs, scans.Changes):
    """A ``delta_sharing_client.Changes`` of a change data feed, from ``DeltaSharingTable.changes``."""

    @_raising_as_before
    def to_pandas(self, dtype_backend: str | None = None) -> pd.DataFrame:
        """Like ``load_table_changes_as_pandas``."""
        return _in_microseconds(loaders.changes_as_pandas(scans.Changes.to_pandas(self, dtype_backend), self))

    @_raising_as_before
    def to_arrow(self) -> pa.Table:
        """Like ``load_table_changes_as_arrow``."""
        return _arrow_in_microseconds(super().to_arrow())


class DeltaSharingTable(table.SharedTable):
    """A ``delta_sharing_client.SharedTable`` with the methods that tables have in that package's next release."""

    version = _raising_as_before(table.SharedTable.version)
    metadata = _raising_as_before(table.SharedTable.metadata)
    protocol = _raising_as_before(table.SharedTable.protocol)

    @_raising_as_before
    def snapshot(
        self,
        *,
        limit: int | None = None,
        version: int | None = None,
        timestamp: Timestamp = None,
        jsonPredicateHints: JsonHints = None,
        use_delta_format: bool | None = None,
        convert_in_batches: bool = False,
    ) -> TableSnapshot:
        """Return a read of one snapshot; parameters as in ``load_as_pandas``."""
        scan = self.scan(
            limit=limit, version=version, timestamp=timestamp, response_format=loaders.response_format(use_delta_format)
        )
        if jsonPredicateHints is not None:
            scan = scan.where(from_json_hints(jsonPredicateHints))
        return TableSnapshot(rest=scan.rest, table=scan.table, options=scan.options, request=scan.request)

    @_raising_as_before
    def changes(
        self,
        starting_version: int | None = None,
        ending_version: int | None = None,
        *,
        use_delta_format: bool | None = None,
        convert_in_batches: bool = False,
        **others: Any,
    ) -> TableChanges:
        """Return a read of the change data feed; parameters as in ``load_table_changes_as_pandas``."""
        others = {"response_format": loaders.response_format(use_delta_format), **others}
        feed = super().changes(starting_version, ending_version, **others)
        return TableChanges(rest=feed.rest, table=feed.table, options=feed.options, request=feed.request)

    def to_pandas(self, dtype_backend: str | None = None) -> pd.DataFrame:
        """Return the whole latest snapshot as a pandas frame."""
        return self.snapshot().to_pandas(dtype_backend)


class SharingClient(our_client.SharingClient):
    """Like ``delta_sharing_client.SharingClient``; also accepts a ``DeltaSharingProfile``."""

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

    @_raising_as_before
    def table(self, name: str | Table | AssetName, format: TableFormat | str | None = None) -> DeltaSharingTable:  # noqa: A002
        """Return a table, as ``delta_sharing_client.SharingClient.table`` does."""
        shared = super().table(name, format)
        return DeltaSharingTable(shared.name, shared.rest, shared.options)


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
    return _in_microseconds(loaders.load_table_changes_as_pandas(*args, **kwargs))


@_raising_as_before
@functools.wraps(loaders.load_table_changes_as_arrow)
def load_table_changes_as_arrow(*args: Any, **kwargs: Any) -> pa.Table:
    return _arrow_in_microseconds(loaders.load_table_changes_as_arrow(*args, **kwargs))


def _in_microseconds(frame: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    from delta_sharing_client.outputs.pandas import HAS_UNITS

    # pandas fails when it casts to a unit that it does not have.
    if HAS_UNITS and isinstance(frame.dtypes.get(COMMIT_TIMESTAMP), pd.DatetimeTZDtype):
        frame[COMMIT_TIMESTAMP] = frame[COMMIT_TIMESTAMP].astype("datetime64[us, UTC]")
    return frame


def _arrow_in_microseconds(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index(COMMIT_TIMESTAMP)
    if at < 0:
        return rows
    return rows.set_column(at, COMMIT_TIMESTAMP, rows[at].cast(pa.timestamp("us", "UTC")))
