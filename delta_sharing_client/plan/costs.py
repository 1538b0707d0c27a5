"""What a plan would download, before it is read."""

from __future__ import annotations

from delta_sharing_client.plan.tasks import ScanPlan

# Downloading up to this much unnecessarily is cheaper than a second request.
_TOLERABLE_WASTE = 64 * 1024
_WHOLE_SHARE = 0.8
# Bytes of a footer: for each column of the file, and for the rest.
_FOOTER_OF_COLUMN, _FOOTER = 250, 8_000


def is_worth_whole(size: int, share: float) -> bool:
    """Return whether to download a whole file of ``size`` bytes, of which the columns take ``share`` (0 to 1)."""
    return share >= _WHOLE_SHARE or size * (1 - share) <= _TOLERABLE_WASTE


def expected_bytes(plan: ScanPlan) -> int:
    """Return about how many bytes ``plan`` downloads, rather too many than too few.

    Row groups and pages that a filter or a limit skips are included: only the files say which these are.
    """
    share = plan.context.needed_share
    footer = _FOOTER + _FOOTER_OF_COLUMN * len(plan.context.schema.fields)
    return sum(_expected_bytes(max(0, task.size), share, footer) for task in plan.tasks)


def _expected_bytes(size: int, share: float, footer: int) -> int:
    return size if is_worth_whole(size, share) else min(size, int(size * share) + footer)
