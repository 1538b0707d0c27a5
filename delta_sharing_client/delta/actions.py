"""The actions of the Delta log as typed values (Delta Transaction Log Protocol, "Actions").

The two response formats of Delta Sharing, and the commits and checkpoints of a Delta log, are decoded into these types.
A ``SharedFile`` holds the action of a file together with the fields that only a sharing server sends for it.

Field names are those of the specification in snake case; JSON uses camel case. Actions are immutable. The garbage
collector does not track the structs of files (``gc=False``), because a snapshot can have a million of them; they
contain no cycles.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, Union

import msgspec

StorageType = Literal["u", "i", "p"]
_LONG_MAX = 2**63 - 1
Long = Annotated[int, msgspec.Meta(ge=-_LONG_MAX, le=_LONG_MAX)]
"""A 64-bit integer; a JSON number out of its range is malformed and does not decode."""
Count = Annotated[int, msgspec.Meta(ge=0, le=_LONG_MAX)]
"""A number of bytes or rows, or a position; a negative number is malformed and does not decode."""


class Format(msgspec.Struct, rename="camel", frozen=True):
    """``metaData.format``: the encoding of the data files, always ``parquet``."""

    provider: str = "parquet"
    options: dict[str, str] = {}


class Protocol(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """``protocol``: the reader and writer versions, and the table features, that a client must support.

    A valid protocol has ``reader_features`` if and only if ``min_reader_version`` is 3, and ``writer_features`` if and
    only if ``min_writer_version`` is 7.
    """

    min_reader_version: Long
    min_writer_version: Long = 0
    reader_features: Union[list[str], None] = None
    writer_features: Union[list[str], None] = None


class Metadata(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """``metaData``: id, schema, partition columns and configuration of the table."""

    id: str
    schema_string: str
    format: Format = Format()
    partition_columns: list[str] = []
    configuration: Union[dict[str, str], None] = None
    name: Union[str, None] = None
    description: Union[str, None] = None
    created_time: Union[Long, None] = None

    @property
    def properties(self) -> dict[str, str]:
        """``configuration``, or an empty dict if it is missing."""
        return self.configuration or {}


class DeletionVectorDescriptor(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """``deletionVector``: where the deletion vector of one data file is stored.

    ``storage_type`` is ``u`` (a file named by a UUID, relative to the table), ``i`` (inline, as Z85 text) or ``p`` (a
    file at an absolute path or URL). ``size_in_bytes`` is the length of the serialized bitmap, without its 4-byte
    length prefix and 4-byte checksum. ``offset`` is the position of the length prefix in the file; ``None`` for inline.
    """

    storage_type: StorageType
    path_or_inline_dv: str
    size_in_bytes: Count
    cardinality: Count
    offset: Union[Count, None] = None

    @property
    def unique_id(self) -> str:
        """``storageType + pathOrInlineDv [@offset]``: the second half of a logical file's primary key."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


class AddFile(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """``add``: a data file of the table.

    ``path`` is the percent-encoded path from the log, or the pre-signed URL from a sharing response, which is used
    verbatim. ``partition_values`` maps *physical* partition column names to serialized values.
    """

    path: str
    partition_values: dict[str, Union[str, None]] = {}
    size: Annotated[int, msgspec.Meta(ge=-1, le=_LONG_MAX)] = -1
    modification_time: Long = 0
    data_change: bool = True
    stats: Union[str, None] = None
    tags: Union[dict[str, Union[str, None]], None] = None
    deletion_vector: Union[DeletionVectorDescriptor, None] = None
    base_row_id: Union[Count, None] = None
    default_row_commit_version: Union[Long, None] = None
    clustering_provider: Union[str, None] = None


class RemoveFile(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """``remove``: a data file that is no longer part of the table (a tombstone)."""

    path: str
    data_change: bool = True
    deletion_timestamp: Union[Long, None] = None
    extended_file_metadata: Union[bool, None] = None
    partition_values: Union[dict[str, Union[str, None]], None] = None
    size: Union[Count, None] = None
    stats: Union[str, None] = None
    tags: Union[dict[str, Union[str, None]], None] = None
    deletion_vector: Union[DeletionVectorDescriptor, None] = None
    base_row_id: Union[Count, None] = None
    default_row_commit_version: Union[Long, None] = None


class AddCdcFile(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """``cdc``: a file of change data, with a physical ``_change_type`` column."""

    path: str
    partition_values: dict[str, Union[str, None]] = {}
    size: Annotated[int, msgspec.Meta(ge=-1, le=_LONG_MAX)] = -1
    data_change: bool = False
    tags: Union[dict[str, Union[str, None]], None] = None

    deletion_vector: ClassVar[None] = None
    """A change file has no deletion vector: each of its rows is a change."""
    stats: ClassVar[None] = None
    """A log holds no statistics for change files."""


class Transaction(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """``txn``: the last version written by a streaming application."""

    app_id: str
    version: Long
    last_updated: Union[Long, None] = None


class DomainMetadata(msgspec.Struct, rename="camel", frozen=True):
    """``domainMetadata``: a named configuration. The newest action of a domain wins; ``removed`` deletes the domain."""

    domain: str
    configuration: str
    removed: bool = False


class RowIdHighWaterMark(msgspec.Struct, rename="camel", frozen=True):
    """``rowIdHighWaterMark``: the highest row id assigned so far, in the first form of row tracking."""

    high_water_mark: Long


class CommitInfo(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """The fields of ``commitInfo`` that a reader needs; writers may add any others."""

    timestamp: Union[Long, None] = None
    in_commit_timestamp: Union[Long, None] = None
    operation: Union[str, None] = None
    operation_parameters: Union[dict[str, object], None] = None
    operation_metrics: Union[dict[str, object], None] = None


class CheckpointMetadata(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """``checkpointMetadata``: marks a V2 checkpoint."""

    version: int
    tags: Union[dict[str, Union[str, None]], None] = None


class Sidecar(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """``sidecar``: a file with file actions of a V2 checkpoint.

    ``path`` is a file name in ``_sidecars``, or an absolute path.
    """

    path: str
    size_in_bytes: Count
    modification_time: Long
    tags: Union[dict[str, Union[str, None]], None] = None


FileAction = Union[AddFile, RemoveFile, AddCdcFile]
Action = Union[
    Protocol,
    Metadata,
    AddFile,
    RemoveFile,
    AddCdcFile,
    Transaction,
    DomainMetadata,
    RowIdHighWaterMark,
    CommitInfo,
    CheckpointMetadata,
    Sidecar,
]


# === What a sharing server sends ===


class EqualityDeletesRef(msgspec.Struct, frozen=True, gc=False):
    """An equality delete file of an Iceberg table: its address, file id, size in bytes, number of rows, and the field
    ids of its columns."""

    url: str
    file_id: str
    size: int
    records: int
    ids: tuple[int, ...]


class SharedFile(msgspec.Struct, frozen=True, gc=False):
    """A file as a sharing server lists it: ``action``, and the fields that only the server sends (protocol, "File").

    ``file_id`` identifies the data file and ``vector_id`` its deletion vector; neither changes when their URLs are
    signed again. ``version`` and ``timestamp`` (milliseconds since the epoch) are those of the commit. ``renew_at`` is
    the time, shortly before the URL expires, at which it should be replaced, in milliseconds of ``instants.steady_ms``;
    ``None`` if unknown. If the table is read from its directory, ``file_id`` is the file's path.

    ``equality`` are equality delete files, which delete rows of the file by their values, and ``required_ids`` the
    field ids of partition columns that must be read from the file, because ``action`` cannot express their values; only
    an Iceberg table has them.
    """

    action: FileAction
    file_id: Union[str, None] = None
    vector_id: Union[str, None] = None
    version: Union[int, None] = None
    timestamp: Union[int, None] = None
    renew_at: Union[int, None] = None
    equality: tuple[EqualityDeletesRef, ...] = ()
    required_ids: tuple[int, ...] = ()


class VersionedMetadata(NamedTuple):
    """A ``metaData`` action of a change feed or a query with ``startingVersion``, and its version, if stated."""

    version: int | None
    metadata: Metadata


class VersionedProtocol(NamedTuple):
    """A ``protocol`` action of a change feed or a query with ``startingVersion``, and its version, if stated."""

    version: int | None
    protocol: Protocol


TableAction = Union[SharedFile, VersionedMetadata, VersionedProtocol]
"""An action after the first two lines of a response, which are ``protocol`` and ``metaData``."""
