"""Lists the files of an Iceberg snapshot that a request may read, as actions of a Delta log.

So the planner, the reader and the outputs are the same as for Delta tables. Field ids become ids of column mapping,
identity partition values become partition values, and position deletes become deletion vectors. Other properties of the
files are used here.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from delta_sharing_client.delta.actions import (
    AddFile,
    DeletionVectorDescriptor,
    EqualityDeletesRef,
    Metadata,
    Protocol,
    SharedFile,
)
from delta_sharing_client.delta.column_mapping import MODE_PROPERTY, ColumnMappingMode
from delta_sharing_client.delta.data_types import INITIAL_DEFAULT_KEY
from delta_sharing_client.delta.deletion_vectors import encode_inline
from delta_sharing_client.errors import DataError, DeltaSharingError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.place import Refused
from delta_sharing_client.iceberg.deletes import FILE_PATH_FIELD_ID, NO_DELETES, DeleteIndex, Deletes, vector_size
from delta_sharing_client.iceberg.equality_ranges import EqualityRanges
from delta_sharing_client.iceberg.file_bounds import FileFilter, Skipped
from delta_sharing_client.iceberg.manifests import (
    UNSTATED,
    File,
    Manifest,
    listed_in_snapshot,
    read_manifest,
    read_manifest_list,
)
from delta_sharing_client.iceberg.metadata import (
    NO_SNAPSHOT,
    ROW_LINEAGE_VERSION,
    Choice,
    TableMetadata,
    check_metadata,
    choose,
    name_mapping,
)
from delta_sharing_client.iceberg.partition_types import PartitionTypes, partition_text
from delta_sharing_client.iceberg.partitioning import BoundField, bind_spec, identity_columns, sources
from delta_sharing_client.iceberg.positions import PositionDeletes, read_positions, union
from delta_sharing_client.iceberg.table_schema import (
    LAST_UPDATED_FIELD,
    ROW_ID_FIELD,
    comparable_columns,
    reuses_names,
    schema_string,
)
from delta_sharing_client.plan.read_columns import ICEBERG_LINEAGE_FIELDS
from delta_sharing_client.plan.read_request import ScanRequest, TableState
from delta_sharing_client.plan.tasks import (
    RowLineage,
    SkippedFiles,
)
from delta_sharing_client.run import loop
from delta_sharing_client.run.objects import Ahead, read_object
from delta_sharing_client.storage.table_files import TableFiles

_MOST_METADATA = 1 << 30
"""A metadata file with more bytes than this is not downloaded."""


class OpenedTable(NamedTuple):
    """A loaded table: its name for messages, its metadata, and its files."""

    name: str
    metadata: TableMetadata
    files: TableFiles

    async def read(self, path: str) -> memoryview:
        """Return a whole file of the table's metadata. Raises ``DataError`` if it does not exist or is too large,
        ``AuthError`` if the storage refuses the credentials."""
        return await read_object(
            self.files,
            self.files.checked(path),
            name="a file of the table's metadata",
            refusal=lambda refused: self._refused(refused, path),
            file_id=path,
            most=_MOST_METADATA,
        )

    def _refused(self, refused: Refused, path: str) -> DeltaSharingError:
        if refused.status == 404:
            error = DataError(
                "A file of the table's metadata does not exist. The snapshot may have expired: read a newer one, or "
                "ask the provider.",
                table=self.name,
                file_id=path,
            )
            error.status = 404
            return error
        return refused.error(
            f"The table's storage refused access to a file of its metadata (HTTP status {refused.status}). Ask the "
            "provider whether the credentials may read the table's location.",
            table=self.name,
            file_id=path,
        )


def table_state(table: OpenedTable, choice: Choice, specs: Iterable[Sequence[BoundField]] = ()) -> TableState:
    """Return the description of a snapshot in the form of a Delta table's.

    Raises ``ProtocolError`` if the schema is malformed, ``UnsupportedFeatureError`` if it cannot be read.
    """
    partition_columns = [field.name for field in identity_columns(specs)]
    return TableState(
        name=table.name,
        version=NO_SNAPSHOT if choice.snapshot is None else choice.snapshot.snapshot_id,
        protocol=Protocol(3, 7, ["columnMapping", "deletionVectors"], ["columnMapping", "deletionVectors"]),
        metadata=Metadata(
            id=table.metadata.table_uuid,
            schema_string=schema_string(choice.schema, table.metadata.all_properties),
            partition_columns=partition_columns,
            configuration={MODE_PROPERTY: ColumnMappingMode.ID.value},
        ),
        row_lineage=RowLineage(row_id=ROW_ID_FIELD, row_update=LAST_UPDATED_FIELD, may_be_missing=True),
        lineage_fields=ICEBERG_LINEAGE_FIELDS,
        empty_is_null=False,
    )


def bound_specs(table: OpenedTable, state: TableState) -> dict[int, list[BoundField]]:
    """Return the fields of each partition spec whose source columns are in the schema that is read, by spec id."""
    columns = sources(state.schema)
    return {spec_id: bind_spec(spec, columns) for spec_id, spec in table.metadata.specs.items()}


def check_lineage(table: OpenedTable) -> None:
    """Raise ``UnsupportedFeatureError`` for a version of the format without row lineage."""
    version = table.metadata.format_version
    if version < ROW_LINEAGE_VERSION:
        raise UnsupportedFeatureError(
            f"The table has version {version} of the Iceberg format, but row lineage needs version "
            f"{ROW_LINEAGE_VERSION}. Leave row_lineage out, or ask the provider to upgrade the table "
            f"(ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '{ROW_LINEAGE_VERSION}')).",
            feature="row lineage",
            table=table.name,
        )


def _may_swap_statistics(metadata: TableMetadata) -> bool:
    """Return whether a file without field ids may have been added when a name belonged to another column.

    Its statistics use the ids of that time, but its columns are read by the current name mapping.
    """
    return name_mapping(metadata.all_properties) is not None and reuses_names(metadata.schemas or ())


class SnapshotListing:
    """The listing of one snapshot for one request.

    Raises ``UsageError`` if there is no such snapshot, or the filter does not fit its schema, and
    ``UnsupportedFeatureError`` for a feature that this client does not support, and for row lineage of a version of the
    format without it.
    """

    def __init__(self, table: OpenedTable, request: ScanRequest) -> None:
        check_metadata(table.metadata)
        if request.row_lineage:
            check_lineage(table)
        self._table = table
        self._choice = choice = choose(table.metadata, request.version, request.timestamp)
        state = table_state(table, choice)
        self._specs = specs = bound_specs(table, state)
        self._comparable = comparable_columns([choice.schema, *reversed(table.metadata.schemas or ())])
        self.state = dataclasses.replace(
            table_state(table, choice, specs.values()),
            place=table.files,
            equality_columns=self._comparable,
            name_mapping=name_mapping(table.metadata.all_properties),
        )
        """The table at the snapshot, in the form of a Delta table's."""
        has_statistics = not _may_swap_statistics(table.metadata)
        self._partitions = PartitionTypes(table.metadata.specs, self._comparable)
        self._ranges = EqualityRanges(self._comparable if has_statistics else {}, table.metadata.specs)
        self._filter = None
        skipping = self.state.bound(request).skipping
        if skipping is not None:
            self._filter = FileFilter(skipping, self.state.schema, specs, has_statistics=has_statistics)
        self._identity = {
            spec_id: [field for field in fields if field.is_identity] for spec_id, fields in specs.items()
        }
        self._manifest_bytes = Ahead(table.read)
        self._positions = Ahead(self._read_positions)
        # The position deletes that were read, and those that are needed, by the path of their file.
        self._read: dict[str, PositionDeletes] = {}
        self._position_files: dict[str, File] = {}
        self._skipped = {Skipped.BY_PARTITION: 0, Skipped.BY_STATISTICS: 0}
        self._skipped_bytes = 0
        self.broken_off = threading.Event()

    def skipped(self) -> SkippedFiles:
        """Return the numbers of files that were skipped so far."""
        return SkippedFiles(
            by_partition=self._skipped[Skipped.BY_PARTITION],
            by_statistics=self._skipped[Skipped.BY_STATISTICS],
            bytes=self._skipped_bytes,
        )

    def blocks(self) -> Generator[Sequence[SharedFile], None, None]:
        """Yield the files one by one, as manifests are read. Raises ``DataError`` for damaged metadata, and the errors
        of the storage."""
        if self._choice.snapshot is None:
            return
        try:
            manifests = self._manifests()
            of_deletes = [manifest for manifest in manifests if manifest.is_of_deletes]
            # The bounds of paths show which data files a delete file applies to.
            statistics = self._ranges.ids | {FILE_PATH_FIELD_ID}
            found_deletes = self._files(of_deletes, statistics)
            deletes = DeleteIndex(found_deletes, self._table.metadata.specs, self._ranges)
            statistics = deletes.compared_ids | (frozenset() if self._filter is None else self._filter.ids)
            of_data = [one for one in manifests if not one.is_of_deletes]
            for file in self._files(of_data, statistics):
                if not self._skips(file):
                    yield (self._shared(file, deletes.of(file)),)
        finally:
            self._manifest_bytes.close()
            self._positions.close()

    # === Metadata ===

    def _manifests(self) -> list[Manifest]:
        """Return the manifests that may have files with matching rows."""
        snapshot = self._choice.snapshot
        assert snapshot is not None
        if snapshot.key_id is not None:
            raise UnsupportedFeatureError(
                "The table's metadata is encrypted, which this client does not support. Ask the provider for a table "
                "without encryption.",
                feature="encryption",
            )
        if snapshot.manifest_list is not None:
            name = snapshot.manifest_list
            listed = read_manifest_list(bytes(self._manifest_bytes.get(name, self._check)), name)
        elif snapshot.manifests is not None:
            name = f"snapshot {snapshot.snapshot_id}"
            listed = listed_in_snapshot(snapshot.manifests, name)
        else:
            raise DataError(
                f"The table's metadata must state the manifest list or the manifests of the snapshot "
                f"{snapshot.snapshot_id}, but states neither.",
                table=self._table.name,
            )
        count = (snapshot.summary or {}).get("total-data-files")
        if not listed and count not in (None, "0"):
            raise DataError(
                f"The manifest list is empty, but the snapshot states {count} data files; the list may be truncated.",
                file_id=name,
            )
        for manifest in listed:
            if manifest.spec_id not in (*self._specs, UNSTATED):
                raise DataError(
                    f"A manifest has the partition spec {manifest.spec_id}, which the table's metadata does not list.",
                    file_id=manifest.path,
                )
        return [one for one in listed if one.may_have_files and self._may_match(one)]

    def _may_match(self, manifest: Manifest) -> bool:
        if self._filter is None or manifest.spec_id == UNSTATED or self._filter.may_have_matches(manifest):
            return True
        if not manifest.is_of_deletes:
            self._skipped[Skipped.BY_PARTITION] += (manifest.added_files or 0) + (manifest.existing_files or 0)
        return False

    def _files(self, manifests: Sequence[Manifest], statistics: frozenset[int]) -> Generator[File, None, None]:
        """Yield the files of ``manifests``, in order; the next manifests are downloaded meanwhile."""
        self._manifest_bytes.expect([manifest.path for manifest in manifests])
        for manifest in manifests:
            data = bytes(self._manifest_bytes.get(manifest.path, self._check))
            yield from read_manifest(data, manifest, statistics=statistics, partitions=self._partitions)

    def _check(self) -> None:
        if self.broken_off.is_set():
            raise UsageError("The read was closed while its files were being listed.")

    # === One data file ===

    def _skips(self, file: File) -> bool:
        reason = None if self._filter is None else self._filter.reason_to_skip(file)
        if reason is None:
            return False
        self._skipped[reason] += 1
        self._skipped_bytes += file.size
        return True

    def _shared(self, file: File, deletes: Deletes) -> SharedFile:
        if file.format != "parquet":
            raise UnsupportedFeatureError(
                f"The table has data files in the format '{file.format[:40]}', but this client reads Parquet only. Ask "
                "the provider to rewrite the table.",
                feature=f"data files in {file.format[:40]}",
                file_id=file.path,
            )
        values, required = self._partition_values(file)
        vector = None if deletes is NO_DELETES else self._vector(file, deletes)
        action = AddFile(
            path=self._table.files.checked(file.path),
            size=file.size,
            partition_values=values,
            stats=f'{{"numRecords":{file.records}}}',
            deletion_vector=vector,
            base_row_id=file.first_row_id,
            default_row_commit_version=None if file.first_row_id is None else file.sequence_number,
        )
        equality = tuple(map(self._equality_ref, deletes.equality))
        return SharedFile(action, file.path, equality=equality, required_ids=required)

    def _partition_values(self, file: File) -> tuple[dict[str, str | None], tuple[int, ...]]:
        """Return the values of the columns by which the file is partitioned, which take precedence over those in the
        file, as in Iceberg's own readers; and the ids of columns that the file must have, because a log has no text
        for their values ("Column Projection")."""
        values: dict[str, str | None] = {}
        required: list[int] = []
        for field in self._identity[file.spec_id]:
            name, key, column = field.source.field.name, str(field.field_id), field.source.field
            if key not in file.partition:
                continue
            value = file.partition[key]
            text = partition_text(value, column.type) if field.is_constant else None
            if field.is_constant and (text is not None or value is None):
                values[name] = text
            elif column.field_id is not None and (value is not None or INITIAL_DEFAULT_KEY in column.metadata):
                required.append(column.field_id)
        return values, tuple(required)

    def _vector(self, file: File, deletes: Deletes) -> DeletionVectorDescriptor | None:
        if deletes.vector is not None:
            return DeletionVectorDescriptor(
                "p",
                self._table.files.checked(deletes.vector.path),
                vector_size(deletes.vector),
                deletes.vector.records,
                deletes.vector.content_offset,
            )
        missing = [one for one in deletes.positions if one.path not in self._read]
        self._position_files.update((one.path, one) for one in missing)
        self._positions.expect([one.path for one in missing])
        for one in missing:
            self._read[one.path] = self._positions.get(one.path, self._check)
        stored = [self._read[one.path].of(file.path) for one in deletes.positions]
        vectors = [vector for vector in stored if vector is not None]
        return encode_inline(union(vectors)) if vectors else None

    def _equality_ref(self, file: File) -> EqualityDeletesRef:
        address = self._table.files.checked(file.path)
        return EqualityDeletesRef(address, file.path, file.size, file.records, file.equality_ids)

    async def _read_positions(self, path: str) -> PositionDeletes:
        data = bytes(await self._table.read(path))
        records = self._position_files[path].records
        return await loop.current().decoders.run(lambda: read_positions(data, records, path))
