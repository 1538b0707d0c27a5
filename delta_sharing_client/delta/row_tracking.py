"""Row ids and row commit versions of a table (Delta log protocol, "Row Tracking")."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.features import has_writer_feature
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import ProtocolError

DOMAIN = "delta.rowTracking"
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


class _DomainConfiguration(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


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


def row_id_high_water_mark(snapshot: Snapshot) -> int | None:
    """Return the highest row id given out in the table, ``None`` if no action says.

    Today's logs keep it in the domain ``delta.rowTracking``, older ones in an action of its own.

    Raises
    ------
    ProtocolError
        The domain's configuration is not what the protocol says.
    """
    domain = snapshot.domain_metadata.get(DOMAIN)
    if domain is not None:
        try:
            return msgspec.json.decode(domain.configuration, type=_DomainConfiguration).row_id_high_water_mark
        except (msgspec.DecodeError, RecursionError):
            raise ProtocolError(
                f"the configuration of the domain {DOMAIN} must be a JSON object with a whole number "
                "rowIdHighWaterMark, found something else",
                table=snapshot.table,
                version=snapshot.version,
            ) from None
    mark = snapshot.row_id_high_water_mark
    return None if mark is None else mark.high_water_mark
