"""Run the scenarios of ``running_streams`` concurrently."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from tests.effort import ALL
from tests.spark.running_streams import SCENARIOS, play
from tests.spark.streams import limited

pytestmark = pytest.mark.spark

# Those of which `test_reader.py` has no like without Spark; `python -m tools.soak streams` runs all scenarios.
NAMES = ["replayed_changes", "token_renewed", "upserted", "vectors"]


@limited
@pytest.mark.timeout(900)
def test_streams_deliver_every_row_while_tables_change(spark: Any, tmp_path: pathlib.Path) -> None:
    names = list(SCENARIOS) if ALL else NAMES
    spark.range(1).collect()  # the first queries of a session fail at times if they run at once
    wrong = []
    for name, error in play(spark, tmp_path, names, at_a_time=len(names)).items():
        if error is not None:
            error.add_note(f"This was the scenario '{name}'.")
            wrong.append(error)
    if wrong:
        raise BaseExceptionGroup("Streams went wrong", wrong)
