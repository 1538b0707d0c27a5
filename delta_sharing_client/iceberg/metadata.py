"""The metadata of an Iceberg table, and the choice of one snapshot (Iceberg, "Table Metadata", "Snapshots")."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Union

import msgspec

from delta_sharing_client.delta.actions import Long
from delta_sharing_client.delta.schema import MAX_NESTING
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.instants import EPOCH, format_millis, parse_instant
from delta_sharing_client.parquet.field_ids import MappedField, NameMapping

MAX_FORMAT_VERSION = 3
ROW_LINEAGE_VERSION = 3
"""The first version of the format whose rows have ids."""
MAIN = "main"
NAME_MAPPING_PROPERTY = "schema.name-mapping.default"
FIRST_PARTITION_ID = 1000
"""The id of the first field of a partition spec in version 1 of the format, which does not state ids."""
NO_SNAPSHOT = -1
"""The version of a table without commits; its metadata uses the same number."""


class IcebergSnapshot(msgspec.Struct, rename="kebab", frozen=True):
    """The state of the table at one time; ``first_row_id`` is ``None`` if its rows have no lineage."""

    snapshot_id: Long
    timestamp_ms: Long
    sequence_number: Long = 0
    parent_snapshot_id: Union[Long, None] = None
    manifest_list: Union[str, None] = None
    manifests: Union[list[str], None] = None
    summary: Union[dict[str, Any], None] = None
    schema_id: Union[int, None] = None
    first_row_id: Union[Long, None] = None
    key_id: Union[str, None] = None

    @property
    def operation(self) -> str | None:
        operation = (self.summary or {}).get("operation")
        return operation if isinstance(operation, str) else None


class Reference(msgspec.Struct, rename="kebab", frozen=True):
    """A branch or a tag."""

    snapshot_id: Long
    type: str


class SnapshotLogEntry(msgspec.Struct, rename="kebab", frozen=True):
    """The time at which a snapshot became the current one."""

    snapshot_id: Long
    timestamp_ms: Long


class PartitionField(msgspec.Struct, rename="kebab", frozen=True):
    """A field of a partition spec; ``source_ids`` is given for a transform with several arguments."""

    name: str
    transform: str
    source_id: Union[int, None] = None
    source_ids: Union[list[int], None] = None
    field_id: Union[int, None] = None


class PartitionSpec(msgspec.Struct, rename="kebab", frozen=True):
    """The way partition values are computed from rows."""

    spec_id: int = 0
    fields: list[PartitionField] = []


class TableMetadata(msgspec.Struct, rename="kebab", frozen=True, kw_only=True):
    """The table's metadata, in versions 1 to 3 of the format. Schemas are JSON objects."""

    format_version: int
    location: str
    table_uuid: str = ""
    last_updated_ms: Long = 0
    schema: Union[dict[str, Any], None] = None
    schemas: Union[list[dict[str, Any]], None] = None
    current_schema_id: Union[int, None] = None
    partition_spec: Union[list[PartitionField], None] = None
    partition_specs: Union[list[PartitionSpec], None] = None
    default_spec_id: int = 0
    properties: Union[dict[str, str], None] = None
    current_snapshot_id: Union[Long, None] = None
    snapshots: Union[list[IcebergSnapshot], None] = None
    snapshot_log: Union[list[SnapshotLogEntry], None] = None
    refs: Union[dict[str, Reference], None] = None

    def schema_by_id(self, schema_id: int | None) -> dict[str, Any] | None:
        """Return the schema with this id, or ``None``."""
        listed = self.schemas or [self.schema or {}]
        return next((schema for schema in listed if schema.get("schema-id", 0) == schema_id), None)

    @property
    def current_schema(self) -> dict[str, Any]:
        """The JSON object of the current schema. Raises ``ProtocolError`` if there is none."""
        schema_id = self.current_schema_id
        if schema_id is None and self.schema is not None:
            return self.schema
        schema = self.schema_by_id(schema_id)
        if schema is None:
            raise ProtocolError(f"The table's metadata must list its current schema {schema_id}, but does not.")
        return schema

    @property
    def specs(self) -> dict[int, PartitionSpec]:
        """The partition specs by id."""
        if self.partition_specs is not None:
            return {spec.spec_id: spec for spec in self.partition_specs}
        return {0: PartitionSpec(0, self.partition_spec or [])}

    @property
    def all_properties(self) -> dict[str, str]:
        """``properties``, or an empty dict if they are missing."""
        return self.properties or {}

    @property
    def all_snapshots(self) -> Sequence[IcebergSnapshot]:
        """The snapshots that the metadata lists, in the order of their commits."""
        return sorted(self.snapshots or (), key=lambda one: (one.sequence_number, one.timestamp_ms))

    def snapshot_by_id(self, snapshot_id: int) -> IcebergSnapshot | None:
        """Return the snapshot with this id, or ``None``."""
        return next((one for one in self.snapshots or () if one.snapshot_id == snapshot_id), None)

    @property
    def current_snapshot(self) -> IcebergSnapshot | None:
        """The current snapshot, ``None`` if nothing was committed. Raises ``ProtocolError`` if it is not listed."""
        main = (self.refs or {}).get(MAIN)
        snapshot_id = self.current_snapshot_id if main is None else main.snapshot_id
        if snapshot_id is None or snapshot_id == NO_SNAPSHOT:
            return None
        snapshot = self.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise ProtocolError(f"The table's metadata must list its current snapshot {snapshot_id}, but does not.")
        return snapshot


class StorageCredential(msgspec.Struct, frozen=True):
    """Credentials for the locations with ``prefix``. Its repr masks them."""

    prefix: str
    config: dict[str, str]

    def __repr__(self) -> str:
        return f"StorageCredential({self.prefix!r}, ***)"


class LoadedTable(msgspec.Struct, rename="kebab", frozen=True):
    """The response of ``loadTable``. Its repr masks the credentials."""

    metadata: TableMetadata
    metadata_location: Union[str, None] = None
    config: Union[dict[str, str], None] = None
    storage_credentials: Union[list[StorageCredential], None] = None

    def __repr__(self) -> str:
        return f"LoadedTable({self.metadata_location!r}, ***)"


def check_metadata(metadata: TableMetadata) -> None:
    """Raise ``UnsupportedFeatureError`` if this client does not support the version of the table's format."""
    if not 1 <= metadata.format_version <= MAX_FORMAT_VERSION:
        raise UnsupportedFeatureError(
            f"The table has version {metadata.format_version} of the Iceberg format, but this client reads the "
            f"versions 1 to {MAX_FORMAT_VERSION}. Upgrade the client.",
            feature=f"format-version {metadata.format_version}",
        )


class Choice(NamedTuple):
    """The snapshot that a read requests (``None`` for a table without commits), and the schema to read it in."""

    snapshot: IcebergSnapshot | None
    schema: dict[str, Any]


def choose(metadata: TableMetadata, version: int | str | None, timestamp: str | None) -> Choice:
    """Return the snapshot to read, and its schema.

    ``version`` is the id of a snapshot, the name of a branch or tag, or ``NO_SNAPSHOT``. With ``timestamp`` (ISO 8601
    text), it is the snapshot that was current at that time; without both, the current one. The current snapshot and
    those of branches are read in the table's current schema, others in the schema of their time. Raises ``UsageError``
    if there is no such snapshot, ``ProtocolError`` if the metadata contradicts itself.
    """
    if version is None and timestamp is None:
        return Choice(metadata.current_snapshot, metadata.current_schema)
    references = metadata.refs or {}
    # Options of Spark and of the command line are strings.
    if version == NO_SNAPSHOT or (version == str(NO_SNAPSHOT) and version not in references):
        return Choice(None, metadata.current_schema)
    if timestamp is not None:
        return _of_its_time(metadata, _at(metadata, timestamp))
    if isinstance(version, str) and (reference := references.get(version)) is not None:
        snapshot = metadata.snapshot_by_id(reference.snapshot_id)
        if snapshot is None:
            raise ProtocolError(
                f"The reference '{version}' names the snapshot {reference.snapshot_id}, which the table's metadata "
                "does not list."
            )
        if reference.type == "branch":
            return Choice(snapshot, metadata.current_schema)
        return _of_its_time(metadata, snapshot)
    if isinstance(version, str) and version == MAIN:
        return Choice(metadata.current_snapshot, metadata.current_schema)
    snapshot = metadata.snapshot_by_id(version) if isinstance(version, int) else None
    if snapshot is None:
        raise UsageError(_no_such(metadata, version))
    return _of_its_time(metadata, snapshot)


def _of_its_time(metadata: TableMetadata, snapshot: IcebergSnapshot) -> Choice:
    schema = None if snapshot.schema_id is None else metadata.schema_by_id(snapshot.schema_id)
    if schema is None and snapshot.schema_id is not None:
        raise ProtocolError(
            f"The snapshot {snapshot.snapshot_id} has the schema {snapshot.schema_id}, which the table's metadata does "
            "not list."
        )
    return Choice(snapshot, schema or metadata.current_schema)


def _at(metadata: TableMetadata, timestamp: str) -> IcebergSnapshot:
    """Return the snapshot that was current at a time."""
    moment = (parse_instant(timestamp) - EPOCH) // datetime.timedelta(milliseconds=1)
    # The log includes snapshots that were rolled back later. Without a log, only the snapshots themselves are known.
    log = metadata.snapshot_log or [
        SnapshotLogEntry(one.snapshot_id, one.timestamp_ms) for one in metadata.all_snapshots
    ]
    earlier = [entry for entry in log if entry.timestamp_ms <= moment]
    if not earlier:
        first = min((entry.timestamp_ms for entry in log), default=None)
        known = (
            "it has no snapshot at all"
            if first is None
            else f"its first known one was committed at {format_millis(first)}"
        )
        raise UsageError(f"The table had no snapshot at {format_millis(moment)}: {known}.")
    snapshot_id = earlier[-1].snapshot_id
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise UsageError(
            f"The snapshot {snapshot_id}, which was current at {format_millis(moment)}, has expired. Read a newer one."
        )
    return snapshot


def first_since(metadata: TableMetadata, timestamp: str) -> IcebergSnapshot | None:
    """Return the earliest snapshot that was committed at ``timestamp`` or later, ``None`` if there is none."""
    moment = (parse_instant(timestamp) - EPOCH) // datetime.timedelta(milliseconds=1)
    return next((one for one in metadata.all_snapshots if one.timestamp_ms >= moment), None)


_SHOWN = 8


def _no_such(metadata: TableMetadata, version: int | str | None) -> str:
    names = sorted(metadata.refs or ())
    ids = [str(one.snapshot_id) for one in metadata.all_snapshots]
    shown = [*map(repr, names[:_SHOWN]), *ids[-_SHOWN:]]
    listed = f"The table has {', '.join(shown)}" if shown else "The table has no snapshot"
    more = " and others" if len(names) + len(ids) > len(shown) else ""
    return (
        f"'version' must be the id of a snapshot, or the name of a branch or tag, found {version!r}. {listed}{more}; "
        "'history()' lists all snapshots."
    )


def name_mapping(properties: Mapping[str, str]) -> NameMapping | None:
    """Return the name mapping of a table's properties, ``None`` if it has none (Iceberg, "Name Mapping Serialization").

    Raises ``ProtocolError`` if it is malformed, or two fields of the same level share a name.
    """
    text = properties.get(NAME_MAPPING_PROPERTY)
    if text is None:
        return None
    try:
        listed = msgspec.json.decode(text, type=list[_NamedField])
    except (msgspec.DecodeError, RecursionError):
        raise _bad_mapping("a list of fields in JSON, found something else") from None
    return _by_name(listed, 0)


class _NamedField(msgspec.Struct, rename="kebab", frozen=True):
    names: list[str]
    field_id: Union[int, None] = None
    fields: Union[list[_NamedField], None] = None


def _by_name(listed: Sequence[_NamedField], depth: int) -> NameMapping:
    if depth > MAX_NESTING:
        raise _bad_mapping(f"fields that are nested at most {MAX_NESTING} levels deep")
    fields: dict[str, MappedField] = {}
    for item in listed:
        mapped = MappedField(item.field_id, _by_name(item.fields or (), depth + 1))
        for name in item.names:
            if fields.setdefault(name, mapped) is not mapped:
                raise _bad_mapping(f"one field for a name, found several for {name[:100]!r}")
    return fields


def _bad_mapping(expected: str) -> ProtocolError:
    return ProtocolError(f"The table property '{NAME_MAPPING_PROPERTY}' must have {expected}.")
