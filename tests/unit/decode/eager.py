"""Settings with which small files are read as large ones are, and in small pieces."""

from __future__ import annotations

import pytest

from delta_sharing_client.decode import pace, page_choice, row_groups, whole_file
from delta_sharing_client.parquet import footer
from delta_sharing_client.run import engine


def make_eager(patch: pytest.MonkeyPatch, *, is_late: bool = False) -> None:
    """Read the footers of small files before their columns, and use every page index; if ``is_late``, read filter
    columns first."""
    if is_late:
        patch.setattr(page_choice, "_LEAST", 0)
        patch.setattr(page_choice, "_STRETCH", 5)
    patch.setattr(whole_file, "_SMALL", 0)
    patch.setattr(footer, "_LEAST", 512)
    patch.setattr(page_choice, "_ROUND_TRIP", -(1 << 40))
    patch.setattr(page_choice, "_WORK", -1)


def make_gentle(patch: pytest.MonkeyPatch, steps: int = 200) -> None:
    """Read in the smallest pieces for the first ``steps`` steps."""
    smallest = (pace._Step(piece=1, budget=1, files=1, pieces=1),) * steps
    patch.setattr(pace, "_STEPS", (*smallest, pace._STEPS[-1]))
    patch.setattr(engine, "Pace", lambda whole: pace.Pace(whole=False))
    patch.setattr(row_groups, "_LEAST_CUT", 0)
    patch.setattr(whole_file, "_SMALL", 0)
