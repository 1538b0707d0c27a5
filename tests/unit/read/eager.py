"""Small files that are read as large ones are, and reads that begin small as long ones do."""

from __future__ import annotations

import pytest

from delta_sharing_client.parquet import footer
from delta_sharing_client.read import pace, page_choice, row_groups, whole_file
from delta_sharing_client.run import scan


def make_eager(patch: pytest.MonkeyPatch, *, is_late: bool = False) -> None:
    """Let small files be read by their footer and every page index be used, and the filter's columns come first."""
    if is_late:
        patch.setattr(page_choice, "_LEAST", 0)
        patch.setattr(page_choice, "_STRETCH", 5)
    patch.setattr(whole_file, "_SMALL", 0)
    patch.setattr(footer, "_LEAST", 512)
    patch.setattr(page_choice, "_ROUND_TRIP", -(1 << 40))
    patch.setattr(page_choice, "_WORK", -1)


def make_gentle(patch: pytest.MonkeyPatch, steps: int = 200) -> None:
    """Let every read begin in the smallest pieces, and stay with them for so many steps."""
    smallest = (pace._Step(piece=1, budget=1, files=1, pieces=1),) * steps
    patch.setattr(pace, "_STEPS", (*smallest, pace._STEPS[-1]))
    patch.setattr(scan, "Pace", lambda whole: pace.Pace(whole=False))
    patch.setattr(row_groups, "_LEAST_CUT", 0)
    patch.setattr(whole_file, "_SMALL", 0)
