"""A table by its Iceberg catalog, with files in the table's own storage."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from delta_sharing_client.delta.actions import CommitInfo
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.errors import DeltaSharingError, NotFoundError, ProtocolError, UnsupportedFeatureError
from delta_sharing_client.iceberg.metadata import NO_SNAPSHOT, choose, first_since
from delta_sharing_client.iceberg.shared_table import load_table
from delta_sharing_client.iceberg.table_scan import (
    OpenedTable,
    SnapshotListing,
    bound_specs,
    check_lineage,
    table_state,
)
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ResponseFormat, TableFormat
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest, TableState
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.sources.table_source import Commit, Feed, Files, HeadRequest, Purpose, TableSource, Window
from delta_sharing_client.sources.traits import Trait, refusal

_FORMAT = TableFormat.ICEBERG


class IcebergSource(TableSource):
    """A table of the profile's Iceberg catalog. It is loaded once."""

    @lazy
    def _table(self) -> OpenedTable:
        return load_table(self.rest, self.name, self.options)

    @lazy
    def failure(self) -> DeltaSharingError | None:
        """Why the catalog does not load the table; ``None`` if the table is there."""
        try:
            _ = self._table
        except (UnsupportedFeatureError, ProtocolError):
            # The table exists, and reading it reports the problem.
            return None
        except DeltaSharingError as error:
            return error
        return None

    def head(self, request: HeadRequest) -> TableHead:
        """Return the description of a snapshot; its ``metadata`` has the table's properties, and the names of the
        columns by whose values it is partitioned."""
        if request.operation is not Operation.SNAPSHOT:
            raise refusal(_FORMAT, Trait.FOLLOWING, self.name)
        table = self._table
        if request.row_lineage:
            check_lineage(table)
        metadata = table.metadata
        choice = choose(metadata, request.version, request.timestamp)
        state = table_state(table, choice)
        current = bound_specs(table, state).get(metadata.default_spec_id, [])
        state = table_state(table, choice, [current])
        summary = {} if choice.snapshot is None else choice.snapshot.summary or {}
        properties = metadata.all_properties
        return TableHead(
            version=NO_SNAPSHOT if choice.snapshot is None else choice.snapshot.snapshot_id,
            response_format=ResponseFormat.AUTO,
            protocol=state.protocol,
            metadata=msgspec.structs.replace(
                state.metadata,
                configuration={**properties, "format-version": str(metadata.format_version)},
                description=properties.get("comment"),
            ),
            table_size=_count(summary.get("total-files-size")),
            num_files=_count(summary.get("total-data-files")),
            location=metadata.location,
            table_format=_FORMAT,
        )

    def version(self, since: str | None = None, *, operation: Operation = Operation.SNAPSHOT) -> int:
        """Return the id of the current snapshot, or of the first one at or after ``since``."""
        if operation is not Operation.SNAPSHOT:
            raise refusal(_FORMAT, Trait.FOLLOWING, self.name)
        metadata = self._table.metadata
        if since is None:
            current = metadata.current_snapshot
            return NO_SNAPSHOT if current is None else current.snapshot_id
        snapshot = first_since(metadata, since)
        if snapshot is None:
            raise NotFoundError(f"The table has no snapshot at or after {since}.", table=str(self.name))
        return snapshot.snapshot_id

    def state(self, request: ScanRequest) -> TableState:
        return SnapshotListing(self._table, request).state

    def files(self, request: ScanRequest, purpose: Purpose) -> Files:
        """Return the files as manifests are read. The iterator raises ``DataError`` for damaged metadata."""
        if purpose is Purpose.COPY:
            raise refusal(_FORMAT, Trait.COPY, self.name)
        return files_of(self._table, request)

    def changes(self, request: ChangesRequest, purpose: Purpose) -> Feed:
        raise refusal(_FORMAT, Trait.CHANGES, self.name)

    def window(self, first: int, last: int | None, *, feed: bool, response_format: ResponseFormat) -> Window:
        raise refusal(_FORMAT, Trait.FOLLOWING, self.name)

    def commits(self, first: int, last: int | None) -> Sequence[Commit]:
        """Return the table's snapshots, in the order of their commits; all of them, because their ids have no order."""
        if first != 0 or last is not None:
            raise refusal(_FORMAT, Trait.VERSION_ORDER, self.name)
        return [
            Commit(
                snapshot.snapshot_id,
                snapshot.timestamp_ms,
                CommitInfo(
                    operation=snapshot.operation,
                    operation_parameters={
                        name: value for name, value in (snapshot.summary or {}).items() if name != "operation"
                    },
                ),
                has_feed=False,
            )
            for snapshot in self._table.metadata.all_snapshots
        ]


def files_of(table: OpenedTable, request: ScanRequest) -> Files:
    """Return the files of a snapshot that may have rows of ``request``; errors as ``IcebergSource.files``."""
    listing = SnapshotListing(table, request)
    return Files(
        state=listing.state,
        blocks=listing.blocks(),
        access=f"the Iceberg table's own files, in {table.metadata.location}",
        skipped=listing.skipped,
        break_off=listing.broken_off.set,
    )


def _count(text: object) -> int | None:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() else None
