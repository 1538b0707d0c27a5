"""Run the scenarios of ``running_streams`` concurrently."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.effort import ALL
from tests.spark.running_streams import SCENARIOS, play
from tests.spark.streams import limited

pytestmark = pytest.mark.spark

# A sample is run here; `python -m tools.soak streams` runs all scenarios.
NAMES = ["renamed", "replayed_changes", "start_without_files", "token_renewed", "upserted", "vectors", "widened"]


@limited
@pytest.mark.timeout(900)
def test_streams_deliver_every_row_while_tables_change(spark: Any, tmp_path: pathlib.Path) -> None:
    names = list(SCENARIOS) if ALL else NAMES
    wrong = []
    for name, error in play(spark, tmp_path, names, at_a_time=len(names)).items():
        if error is not None:
            error.add_note(f"This was the scenario '{name}'.")
            wrong.append(error)
    if wrong:
        raise BaseExceptionGroup("Streams went wrong", wrong)
