"""Estimates how many bytes a plan downloads, before it is read."""

from __future__ import annotations

from delta_sharing_client.plan.read_columns import Origin
from delta_sharing_client.plan.tasks import FileTask, ScanPlan

# Downloading up to this much unnecessarily is cheaper than a second request.
_TOLERABLE_WASTE = 64 * 1024
_WHOLE_SHARE = 0.8
# The approximate size of a footer in bytes: for each column of the file, and for the rest.
_FOOTER_OF_COLUMN, _FOOTER = 250, 8_000
# The length and the checksum of a deletion vector.
_AROUND_VECTOR = 8
# Columns of these origins have one value in a whole file, which is known without it.
_CONSTANT = frozenset((Origin.PARTITION, Origin.COMMIT_VERSION, Origin.COMMIT_TIMESTAMP))


def is_worth_whole(size: int, share: float) -> bool:
    """Return whether to download a whole file of ``size`` bytes, if the read columns take the fraction ``share`` of
    it."""
    return share >= _WHOLE_SHARE or size * (1 - share) <= _TOLERABLE_WASTE


def expected_bytes(plan: ScanPlan) -> int:
    """Estimate how many bytes ``plan`` downloads; rather too many than too few.

    Row groups and pages that a filter or a limit will skip are included, because only the files show which these are.
    """
    context = plan.context
    share = context.needed_share
    footer = _FOOTER + _FOOTER_OF_COLUMN * len(context.schema.fields)
    columns = (*context.output, *context.filters)
    partitions = len({column.name for column in columns if column.origin is Origin.PARTITION})
    is_constant = all(column.origin in _CONSTANT for column in columns)

    def of_file(task: FileTask) -> int:
        refs = [ref.descriptor for ref in (task.without, task.only) if ref is not None]
        return of_rows(task) + sum(
            _AROUND_VECTOR + vector.size_in_bytes for vector in refs if vector.storage_type != "i"
        )

    def of_rows(task: FileTask) -> int:
        size = max(0, task.size)
        if is_constant and not task.equality and len(task.partition_values) >= partitions:
            # Only the number of rows is needed, which the log may state.
            return 0 if task.num_records is not None else min(size, footer)
        return size if is_worth_whole(size, share) else min(size, int(size * share) + footer)

    return sum(map(of_file, plan.tasks))
