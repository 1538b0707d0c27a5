from __future__ import annotations

import pytest

from delta_sharing_client.delta.actions import Action, DomainMetadata, Metadata, Protocol, RowIdHighWaterMark
from delta_sharing_client.delta.row_tracking import RowTrackingState, row_id_high_water_mark, row_tracking
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import ProtocolError

HEAD: list[Action] = [Protocol(1), Metadata(id="t", schema_string="{}")]


def _mark(*actions: Action) -> int | None:
    return row_id_high_water_mark(Snapshot.from_actions(1, [*HEAD, *actions]))


def _domain(configuration: str) -> DomainMetadata:
    return DomainMetadata("delta.rowTracking", configuration)


def test_the_high_water_mark_is_found_in_both_forms() -> None:
    assert _mark() is None
    assert _mark(RowIdHighWaterMark(3), RowIdHighWaterMark(7)) == 7
    assert _mark(_domain('{"rowIdHighWaterMark":5}')) == 5
    assert _mark(_domain('{"rowIdHighWaterMark":9,"x":1}'), RowIdHighWaterMark(3)) == 9


@pytest.mark.parametrize("text", ["", "5", "{}", '{"rowIdHighWaterMark":"5"}', "[" * 100_000])
def test_a_domain_that_says_something_else_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="rowIdHighWaterMark"):
        _mark(_domain(text))


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
