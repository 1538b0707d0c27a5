from __future__ import annotations

import pytest

from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.row_tracking import RowTrackingState, row_tracking


@pytest.mark.parametrize(
    ("features", "enabled", "state"),
    [
        (["rowTracking"], "true", RowTrackingState.ENABLED),
        (["rowTracking"], "false", RowTrackingState.SUPPORTED),
        (["ROWTRACKING"], None, RowTrackingState.SUPPORTED),
        ([], "true", RowTrackingState.ABSENT),
    ],
)
def test_the_state_comes_from_feature_and_property(
    features: list[str], enabled: str | None, state: RowTrackingState
) -> None:
    configuration = {"delta.rowTracking.materializedRowIdColumnName": "_row-id"}
    if enabled is not None:
        configuration["delta.enableRowTracking"] = enabled
    metadata = Metadata(id="t", schema_string="{}", configuration=configuration)
    tracking = row_tracking(Protocol(1, 7, None, features), metadata)
    assert (tracking.state, tracking.row_id_column, tracking.row_commit_version_column) == (state, "_row-id", None)
