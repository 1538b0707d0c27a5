"""Small files that are read as large ones are."""

from __future__ import annotations

import pytest

from delta_sharing_client.parquet import footer
from delta_sharing_client.read import file as file_read
from delta_sharing_client.read import pages


def make_eager(patch: pytest.MonkeyPatch, *, is_late: bool = False) -> None:
    """Let small files be read by their footer and every page index be used, and the filter's columns come first."""
    if is_late:
        patch.setattr(pages, "_LEAST", 0)
        patch.setattr(pages, "_STRETCH", 5)
    patch.setattr(file_read, "_SMALL", 0)
    patch.setattr(footer, "_LEAST", 512)
    patch.setattr(pages, "_ROUND_TRIP", -(1 << 40))
    patch.setattr(pages, "_WORK", -1)
