"""Describes a plan in a few lines: what a read downloads, what it skips, and why."""

from __future__ import annotations

import pyarrow as pa

from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.read_columns import Origin
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.redact import printable

FASTER_DECIMALS = "to_pandas(dtype_backend='pyarrow') is faster, because it creates no Python object for a decimal."
# The minimum number of rows for which the plan shows this advice.
_MANY_ROWS = 1_000_000


def explain(plan: ScanPlan) -> str:
    """Describe in a few lines what ``plan`` reads and skips, and why. Shows no URL.

    The figures come only from the server's response. Row groups are chosen by the footers when the files are read; the
    read's ``ScanReport`` counts them, so it may download less.
    """
    context = plan.context
    output, filters = context.output, context.filters
    columns = {column.name: column for column in (*output, *filters)}
    from_file = [name for name, column in columns.items() if column.origin is Origin.FILE]
    constant = [name for name, column in columns.items() if column.origin is Origin.PARTITION]
    dropped = [column.name for column in filters if column.name not in {column_read.name for column_read in output}]
    skipped = plan.skipped
    vectors = sum(1 for task in plan.tasks if task.has_vector)
    counts = [task.live_records for task in plan.tasks]
    version = "" if context.version is None else f", version {context.version}"
    lines = [
        f"{'Changes' if context.is_change_feed else 'Scan'} of {context.table}{version}",
        f"  columns from the files: {_names(from_file)}",
    ]
    if constant:
        lines.append(f"  columns from partition values: {_names(constant)}")
    if dropped:
        lines.append(f"  columns for the filter only: {_names(dropped)}")
    lines.append(f"  access: {plan.access}")
    if context.predicate is not None:
        lines.append(f"  filter: {context.predicate}")
    if context.pushed_predicate is not None:
        lines.append(f"  filter of the engine, which skips data: {context.pushed_predicate}")
    if plan.limit is not None:
        lines.append(f"  limit: {plan.limit} rows")
    listed = f"{len(plan.tasks) + skipped.files}" + (" or more" if skipped.is_cut else "")
    in_all = "" if plan.table_files is None else f" listed ({plan.table_files} in the table)"
    lines.append(f"  files to read: {len(plan.tasks)} of {listed}{in_all}, {_bytes(plan.bytes)}{_download(plan)}")
    for count, reason in (
        (skipped.by_partition, "partition values cannot match"),
        (skipped.by_statistics, "statistics rule out a match"),
        (skipped.by_limit, "the files before them have enough rows for the limit"),
    ):
        if count:
            lines.append(f"  files skipped: {count}, because {reason}")
    if skipped.files:
        lines.append(f"  bytes skipped with them: {_bytes(skipped.bytes)}")
    if vectors:
        lines.append(f"  files with deletion vectors: {vectors}")
    if equality := sum(1 for task in plan.tasks if task.equality):
        lines.append(f"  files with equality deletes: {equality}")
    if plan.tasks and all(count is not None for count in counts):
        total = sum(count for count in counts if count is not None)
        lines.append(f"  rows in these files: {total}" + (" before the filter" if context.skipping is not None else ""))
        if total >= _MANY_ROWS and any(pa.types.is_decimal(column.arrow.type) for column in output):
            lines.append(f"  decimals: {FASTER_DECIMALS}")
    if context.skipping is not None and plan.tasks:
        lines.append("  row groups: chosen by the statistics in each file's footer; every row is checked")
        lines.append("  pages: chosen by the files' page indexes, where they have one and it saves more than it costs")
    lines += [f"  note: {note}" for note in plan.notes]
    return "\n".join(map(printable, lines))


def _download(plan: ScanPlan) -> str:
    """Return what part of the files is downloaded at most: the number with which the browser and assistants plan."""
    expected = expected_bytes(plan)
    share = min(1, expected / plan.bytes) if plan.bytes else plan.context.needed_share
    text = f"; the columns take about {share:.0%} of that, {_bytes(expected)}, estimated by their types"
    # Footers are a small part of larger files.
    is_rounded_up = expected > 2 * plan.context.needed_share * plan.bytes
    return f"{text} (small files are downloaded whole)" if is_rounded_up and expected else text


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return (shown or "none") + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _bytes(size: int) -> str:
    value: float = size
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
