"""Estimates how many bytes a plan downloads, before it is read."""

from __future__ import annotations

from delta_sharing_client.plan.tasks import ScanPlan

# Downloading up to this much unnecessarily is cheaper than a second request.
_TOLERABLE_WASTE = 64 * 1024
_WHOLE_SHARE = 0.8
# The approximate size of a footer in bytes: for each column of the file, and for the rest.
_FOOTER_OF_COLUMN, _FOOTER = 250, 8_000


def is_worth_whole(size: int, share: float) -> bool:
    """Return whether to download a whole file of ``size`` bytes, if the read columns take the fraction ``share`` of
    it."""
    return share >= _WHOLE_SHARE or size * (1 - share) <= _TOLERABLE_WASTE


def expected_bytes(plan: ScanPlan) -> int:
    """Estimate how many bytes ``plan`` downloads; rather too many than too few.

    Row groups and pages that a filter or a limit will skip are included, because only the files show which these are.
    """
    share = plan.context.needed_share
    footer = _FOOTER + _FOOTER_OF_COLUMN * len(plan.context.schema.fields)
    return sum(_expected_bytes(max(0, task.size), share, footer) for task in plan.tasks)


def _expected_bytes(size: int, share: float, footer: int) -> int:
    return size if is_worth_whole(size, share) else min(size, int(size * share) + footer)
