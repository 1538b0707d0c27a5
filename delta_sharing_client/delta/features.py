"""Every table feature of the Delta protocol, and this client's support for it.

:data:`FEATURES` decides which tables are refused, what the capabilities header lists, and what the documentation's
table of features shows. Names compare regardless of case, as in Delta: older documents write ``timestampNTZ``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.column_mapping import MODE_PROPERTY, ColumnMappingMode, mapping_mode
from delta_sharing_client.delta.data_types import TYPE_CHANGES_KEY
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.delta.widening import check_type_changes
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError

MAX_READER_VERSION = 3
TABLE_FEATURES_READER_VERSION = 3
TABLE_FEATURES_WRITER_VERSION = 7


class Operation(enum.Enum):
    """The kind of read."""

    SNAPSHOT = "snapshot"
    CHANGES = "changes"
    STREAMING = "streaming"


class FeatureKind(enum.Enum):
    """Who must support a feature. A reader ignores a writer-only feature."""

    READER_WRITER = "reader and writer"
    WRITER = "writer"


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature.

    ``operations`` are the operations that this client supports on a table with the feature; a writer-only feature
    never prevents a read. ``parquet_format``: the sharing protocol's parquet response format can represent such a
    table. ``log_only``: the feature does not affect a server's list of files. ``reads_log``: this client can read the
    log of such a table.
    """

    name: str
    kind: FeatureKind
    operations: frozenset[Operation]
    note: str
    parquet_format: bool = True
    log_only: bool = False
    reads_log: bool = True


_EVERYTHING = frozenset(Operation)


def _reader(name: str, note: str, *, parquet: bool = False) -> Feature:
    return Feature(name, FeatureKind.READER_WRITER, _EVERYTHING, note, parquet)


def _log_only(name: str, note: str, *, reads_log: bool = False) -> Feature:
    return Feature(name, FeatureKind.READER_WRITER, _EVERYTHING, note, log_only=True, reads_log=reads_log)


def _refused(name: str, note: str) -> Feature:
    return Feature(name, FeatureKind.READER_WRITER, frozenset(), note, parquet_format=False)


def _writer(name: str, note: str) -> Feature:
    return Feature(name, FeatureKind.WRITER, _EVERYTHING, note)


FEATURES: tuple[Feature, ...] = (
    _reader("columnMapping", "by name and by id"),
    _reader("deletionVectors", "on disk, inline and as URLs"),
    _reader("timestampNtz", "timestamps without a time zone"),
    _reader("timestampWithoutTimezone", "like timestampNtz"),
    _reader("typeWidening", "older files are cast to the table's type"),
    _reader("typeWidening-preview", "like typeWidening"),
    _reader("variantType", "as JSON text, Python objects or the raw struct"),
    _reader("variantType-preview", "like variantType"),
    _reader("variantShredding", "shredded values are reassembled"),
    _reader("variantShredding-preview", "like variantShredding"),
    _reader("intervalType-preview", "returned as months or as microseconds", parquet=True),
    _reader("intervalTypes", "like intervalType-preview", parquet=True),
    _log_only("v2Checkpoint", "concerns the log only: manifests and sidecars", reads_log=True),
    _log_only("vacuumProtocolCheck", "concerns VACUUM only", reads_log=True),
    _log_only("catalogManaged", "the log is not read, because only the catalog knows the newest commits"),
    _log_only("catalogOwned-preview", "earlier name of catalogManaged"),
    _log_only("adaptiveMetadata", "the log is not read, because its format differs"),
    _log_only("adaptiveMetadata-preview", "like adaptiveMetadata"),
    _log_only("columnMappingUsageTracking", "concerns only the names that writers may reuse"),
    _reader("geospatial", "geometry and geography columns, as well-known binary with GeoArrow metadata"),
    _reader("geospatial-dev", "like geospatial"),
    _reader("timestampNanos", "timestamps in nanoseconds, with and without a time zone"),
    _refused("redirectReaderWriter-preview", "the table is at a different location"),
    _writer("appendOnly", "writers may only add rows"),
    _writer("invariants", "writers check column invariants"),
    _writer("checkConstraints", "writers check constraints"),
    _writer("changeDataFeed", "writers record change files; read through changes()"),
    _writer("generatedColumns", "the values are in the files"),
    _writer("identityColumns", "the values are in the files"),
    _writer("allowColumnDefaults", "the values are in the files"),
    _writer("rowTracking", "row ids and row commit versions can be read"),
    _writer("domainMetadata", "kept in the snapshot"),
    _writer("inCommitTimestamp", "used as the commit's time"),
    _writer("inCommitTimestamp-preview", "like inCommitTimestamp"),
    _writer("icebergCompatV1", "nothing for a reader to do"),
    _writer("icebergCompatV2", "nothing for a reader to do"),
    _writer("icebergCompatV3", "nothing for a reader to do"),
    _writer("icebergWriterCompatV1", "nothing for a reader to do"),
    _writer("icebergWriterCompatV3", "nothing for a reader to do"),
    _writer("clustering", "nothing for a reader to do"),
    _writer("materializePartitionColumns", "partition values still come from the log"),
    _writer("checkpointProtection", "concerns clean-up of the log only"),
    _writer("collations", "values are read; filters compare bytes, and the statistics of such columns skip no files"),
    _writer("collations-preview", "like collations"),
    _writer("coordinatedCommits-preview", "published commits are read"),
    _writer("redirectWriterOnly-preview", "concerns writers only"),
)

_BY_NAME = {feature.name.lower(): feature for feature in FEATURES}


def find_feature(name: str) -> Feature | None:
    """Return the row of the feature called ``name``, regardless of case, or ``None``."""
    return _BY_NAME.get(name.lower())


def check_readable(
    protocol: Protocol,
    metadata: Metadata | None = None,
    *,
    operation: Operation,
    table: str | None = None,
    from_log: bool = False,
) -> None:
    """Refuse a table that this client cannot read correctly (Delta log protocol, "Table Features").

    With ``metadata``, it is also checked that the protocol allows the table's column mapping, and that column types
    were only widened. Errors name ``table``. ``from_log``: the files come from the table's log and not from a server's
    list.

    Raises ``UnsupportedFeatureError`` if the reader version is newer than 3, or if a reader feature or a change of a
    type is not supported (the error names it). Raises ``ProtocolError`` if the protocol action contradicts itself or
    the table's column mapping, or if the schema is malformed.
    """
    version = protocol.min_reader_version
    if version < 0:
        raise ProtocolError(f"'minReaderVersion' must not be negative, found {version}.", table=table)
    if version > MAX_READER_VERSION:
        raise UnsupportedFeatureError(
            f"The table needs reader version {version}, but this client supports at most {MAX_READER_VERSION}: "
            "upgrade the client.",
            feature=f"minReaderVersion {version}",
            table=table,
        )
    listed = protocol.reader_features
    if version == TABLE_FEATURES_READER_VERSION and listed is None:
        raise ProtocolError("A protocol with 'minReaderVersion' 3 must list 'readerFeatures', found none.", table=table)
    if version != TABLE_FEATURES_READER_VERSION and listed:
        raise ProtocolError(
            f"'readerFeatures' may only be listed with 'minReaderVersion' 3, found version {version} and {listed}.",
            table=table,
        )
    refused = [name for name in listed or () if not _supports(name, operation, from_log)]
    if refused:
        raise UnsupportedFeatureError(_refusal(refused), feature=refused[0], table=table)
    if metadata is not None and mapping_mode(metadata) is not ColumnMappingMode.NONE and not allows_mapping(protocol):
        raise ProtocolError(
            f"The table property '{MODE_PROPERTY}' is {metadata.properties[MODE_PROPERTY]!r}, but the protocol does "
            "not have the feature 'columnMapping', so the names in the data files are unknown.",
            table=table,
        )
    if metadata is not None and TYPE_CHANGES_KEY in metadata.schema_string and _widens(protocol):
        try:
            check_type_changes(parse_schema(metadata.schema_string))
        except (ProtocolError, UnsupportedFeatureError) as error:
            error.table = table
            raise


def allows_mapping(protocol: Protocol) -> bool:
    """Return whether ``delta.columnMapping.mode`` applies to a table with this protocol.

    The Delta protocol requires reader version 2 or the reader feature. Some tables list the feature only for writers
    (after an upgrade for Iceberg, for example). Their files use physical names as well, so the property applies.
    """
    is_listed = "columnmapping" in map(str.lower, protocol.reader_features or ())
    return protocol.min_reader_version == 2 or is_listed or has_writer_feature(protocol, "columnMapping")


def _widens(protocol: Protocol) -> bool:
    return any(name.lower() in ("typewidening", "typewidening-preview") for name in protocol.reader_features or ())


def reader_features(operation: Operation) -> tuple[str, ...]:
    """Return the reader features supported for ``operation``, in lower case, as the capabilities header lists them."""
    return tuple(
        feature.name.lower()
        for feature in FEATURES
        if feature.kind is FeatureKind.READER_WRITER and operation in feature.operations
    )


def needed_features(protocol: Protocol, metadata: Metadata) -> list[str]:
    """Return the reader features that a client needs to read the table from a server's list of files: all but those
    that affect only the log."""
    names = [
        name
        for name in protocol.reader_features or ()
        if (feature := find_feature(name)) is None or not feature.log_only
    ]
    if mapping_mode(metadata) is not ColumnMappingMode.NONE and "columnmapping" not in map(str.lower, names):
        names.append("columnMapping")
    return names


def has_writer_feature(protocol: Protocol, name: str) -> bool:
    """Return whether ``name`` is a writer feature of ``protocol``, regardless of case."""
    return any(item.lower() == name.lower() for item in protocol.writer_features or ())


def parquet_format_refusals(protocol: Protocol, metadata: Metadata) -> list[str]:
    """Return the features and table properties that rule out the parquet response format; empty if none does.

    The format cannot represent deletion vectors, physical names, or types that its schemas do not have, so a client
    would read wrong rows.
    """
    refusals = [
        name
        for name in protocol.reader_features or ()
        if (feature := find_feature(name)) is None or not feature.parquet_format
    ]
    if mapping_mode(metadata) is not ColumnMappingMode.NONE:
        refusals.append(f"{MODE_PROPERTY}={metadata.properties[MODE_PROPERTY]}")
    if metadata.properties.get("delta.enableDeletionVectors", "false").lower() == "true":
        refusals.append("delta.enableDeletionVectors=true")
    return refusals


def _supports(name: str, operation: Operation, from_log: bool) -> bool:
    feature = find_feature(name)
    return feature is not None and operation in feature.operations and (feature.reads_log or not from_log)


def _refusal(names: list[str]) -> str:
    notes = ((name, find_feature(name)) for name in names)
    details = [f"{name!r} ({feature.note if feature else 'unknown to this client'})" for name, feature in notes]
    return (
        f"The table needs reader features that this client does not support: {', '.join(details)}. Upgrade the client, "
        "or ask the provider for a table without them."
    )
