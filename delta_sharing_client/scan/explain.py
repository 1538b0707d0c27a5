"""A plan in words: what would be read, what is left out, and why. No URL appears in it."""

from __future__ import annotations

from delta_sharing_client.redact import printable
from delta_sharing_client.scan.columns import Origin, needed_share
from delta_sharing_client.scan.tasks import ScanPlan


def explain(plan: ScanPlan) -> str:
    """Return a few lines on the files, columns and bytes that ``plan`` reads and skips.

    The figures come from the server's answer alone; row groups are chosen from the footers when the files are read, and
    are counted in the ``ScanReport`` of a read.
    """
    context = plan.context
    output, filters = context.output, context.filters
    columns = {column.name: column for column in (*output, *filters)}
    from_file = [name for name, column in columns.items() if column.origin is Origin.FILE]
    constant = [name for name, column in columns.items() if column.origin is Origin.PARTITION]
    dropped = [column.name for column in filters if column.name not in {found.name for found in output}]
    size = sum(task.size for task in plan.tasks if task.size > 0)
    skipped = plan.skipped
    share = needed_share(context.schema, columns.values(), context.partition_columns)
    vectors = sum(1 for task in plan.tasks if task.without is not None or task.only is not None)
    known = [task.live_records for task in plan.tasks]
    version = "" if context.version is None else f", version {context.version}"
    lines = [
        f"{'Changes' if context.is_change_feed else 'Scan'} of {context.table}{version}",
        f"  columns from the files: {_names(from_file)}"
        + (f"; read for the filter only: {_names(dropped)}" if dropped else ""),
    ]
    lines.append(f"  access: {plan.access}")
    if context.left_out is not None:
        shown = [f"{'.'.join(item.path)} ({item.type})" for item in context.schema.all_left_out]
        lines.append(f"  columns left out, of types that are not supported: {_names(shown)}")
    if constant:
        lines.append(f"  columns from partition values: {_names(constant)}")
    if context.predicate is not None:
        lines.append(f"  filter: {context.predicate}")
    if plan.limit is not None:
        lines.append(f"  limit: {plan.limit} rows")
    listed = f"{len(plan.tasks) + skipped.files}" + (" or more" if skipped.is_cut else "")
    in_all = "" if plan.table_files is None else f" listed ({plan.table_files} in the table)"
    lines.append(
        f"  files to read: {len(plan.tasks)} of {listed}{in_all}, {_bytes(size)}; by their types the "
        f"columns take about {share:.0%} of it"
    )
    for count, reason in (
        (skipped.by_partition, "partition values cannot match"),
        (skipped.by_statistics, "statistics rule out a match"),
        (skipped.by_limit, "the files before hold enough rows for the limit"),
    ):
        if count:
            lines.append(f"  files skipped: {count}, as {reason}")
    if skipped.files:
        lines.append(f"  bytes skipped with them: {_bytes(skipped.bytes)}")
    if vectors:
        lines.append(f"  files with deletion vectors: {vectors}")
    if plan.tasks and all(count is not None for count in known):
        total = sum(count for count in known if count is not None)
        lines.append(
            f"  rows in these files: {total}" + (" before the filter" if context.predicate is not None else "")
        )
    if context.predicate is not None and plan.tasks:
        lines.append("  row groups: chosen by the statistics in each file's footer; every row is checked")
        lines.append("  pages: chosen by the files' page indexes, where they have one and it saves more than it costs")
    return "\n".join(map(printable, lines))


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return (shown or "none") + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
