"""Row ids and row commit versions of a table (Delta log protocol, "Row Tracking")."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.features import has_writer_feature

ENABLED_PROPERTY = "delta.enableRowTracking"
ROW_ID_COLUMN_PROPERTY = "delta.rowTracking.materializedRowIdColumnName"
ROW_COMMIT_VERSION_COLUMN_PROPERTY = "delta.rowTracking.materializedRowCommitVersionColumnName"


class RowTrackingState(enum.Enum):
    """Whether rows have ids: not at all, perhaps (``SUPPORTED``), or every row for sure (``ENABLED``)."""

    ABSENT = "absent"
    SUPPORTED = "supported"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True)
class RowTracking:
    """The state, and the hidden columns of data files that may hold ids and versions, if they are named."""

    state: RowTrackingState
    row_id_column: str | None
    row_commit_version_column: str | None


def row_tracking(protocol: Protocol, metadata: Metadata) -> RowTracking:
    """Return how a table tracks rows."""
    properties = metadata.properties
    if not has_writer_feature(protocol, "rowTracking"):
        state = RowTrackingState.ABSENT
    elif properties.get(ENABLED_PROPERTY, "false").lower() == "true":
        state = RowTrackingState.ENABLED
    else:
        state = RowTrackingState.SUPPORTED
    return RowTracking(
        state, properties.get(ROW_ID_COLUMN_PROPERTY), properties.get(ROW_COMMIT_VERSION_COLUMN_PROPERTY)
    )
