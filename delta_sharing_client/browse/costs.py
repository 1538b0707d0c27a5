"""What a read would download, before it does."""

from __future__ import annotations

from delta_sharing_client.plan.tasks import ScanPlan

# A footer is read besides the columns: about so much for each column of the file, and in all.
_FOOTER_OF_COLUMN, _FOOTER = 250, 8_000
# Where less is saved, a file is downloaded whole, as ``read.whole_file`` decides.
_SAVED_AT_LEAST, _WHOLE_SHARE = 64 * 1024, 0.8


def bytes_of(plan: ScanPlan) -> int:
    """Return about how many bytes ``plan`` downloads, rather too many than too few.

    Row groups and pages that a filter or a limit skips are counted: only the files say which these are.
    """
    share = plan.context.needed_share
    footer = _FOOTER + _FOOTER_OF_COLUMN * len(plan.context.schema.fields)
    return sum(_bytes_of_file(max(0, task.size), share, footer) for task in plan.tasks)


def _bytes_of_file(size: int, share: float, footer: int) -> int:
    is_whole = share >= _WHOLE_SHARE or size * (1 - share) <= _SAVED_AT_LEAST
    return size if is_whole else min(size, int(size * share) + footer)
