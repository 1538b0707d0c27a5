"""The first rows of a read, and the estimated size of a read before anything is downloaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from delta_sharing_client.browse.asked import Asked, Mistake, mistakes_of
from delta_sharing_client.browse.cells import MOST_COLUMNS, MOST_ROWS, cells_of, type_name
from delta_sharing_client.browse.session import ASKED_FROM, PlannedRows, Session
from delta_sharing_client.browse.sorted_rows import check_order, first_sorted
from delta_sharing_client.delta.data_types import type_text
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.outputs.excel import MOST_ROWS as MOST_IN_EXCEL
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.plan.tasks import ScanPlan, from_row
from delta_sharing_client.run.batches import Batches

MOST_ROW, MOST_SORTED = 100_000, 10_000
"""The number of the last row that may begin a page: in the order of the table, and of a column."""


def cost(session: Session, asked: Asked) -> dict[str, object]:
    """Return the cost of the whole read (bytes, files and, if known, rows), and its plan as text."""
    read = asked.read(session.client)
    with mistakes_of(asked):
        plan = read.plan()
    return {**_cost(plan), "plan": explain(plan).splitlines(), "mostInExcel": MOST_IN_EXCEL}


def plan_preview(session: Session, asked: Asked) -> dict[str, object]:
    """Return the cost of 100 rows, and in ``plan`` the name that ``preview`` needs.

    The request's ``from`` is the number of the first row, in the order of the table or, with ``sort`` (the index of a
    column of the result) and ``descending``, in the order of this column.
    """
    if len(asked.paths("columns")) > MOST_COLUMNS:
        raise UsageError(
            f"A preview can have at most {MOST_COLUMNS} columns; choose fewer. A download can have all of them."
        )
    first, column = asked.number("from") or 0, asked.number("sort")
    most = MOST_ROW if column is None else MOST_SORTED
    if first > most:
        raise UsageError(f"The page shows rows up to row {most:,}; use a filter, or download the rows.")
    limit = first + MOST_ROWS if column is None else None
    read = asked.read(session.client, limit=limit, most=MOST_COLUMNS)
    with mistakes_of(asked):
        plan = read.plan()
    if len(plan.output_schema) > MOST_COLUMNS:
        # The columns of a change feed are known only now.
        names = plan.output_schema.names
        kept = [(name,) for name in (*names[-3:], *names[: MOST_COLUMNS - 3])]
        plan = read.select(*kept).plan()
    planned = _planned(plan, first, column, asked.flag("descending"))
    facts = {"mostRow": most, "from": first}
    return {**_cost(planned.plan), **facts, "plan": session.keep_plan(planned)}


def _planned(plan: ScanPlan, first: int, column: int | None, is_descending: bool) -> PlannedRows:
    if column is None:
        return PlannedRows(*from_row(plan, first))
    if column >= len(plan.output_schema):
        raise UsageError(
            f"Expected 'sort' to be the index of one of {len(plan.output_schema)} columns, found {column}."
        )
    check_order(plan.output_schema.field(column))
    return PlannedRows(plan, first, (column, is_descending))


def preview(session: Session, asked: Asked) -> dict[str, object]:
    """Return the rows of a ``plan``, as strings; ``isMore`` says whether a page may follow."""
    planned = session.plan(asked.text("plan"))
    plan, schema = planned.plan, planned.plan.output_schema
    report = ScanReport()
    types = [
        type_name(one.arrow.type) if one.field is None else type_text(one.field.type) for one in plan.context.output
    ]
    try:
        with Batches(plan, report, eager=planned.order is not None) as batches:
            rows: Iterable[pa.RecordBatch] = _without_first(batches, planned.first)
            if planned.order is not None:
                column, is_descending = planned.order
                end = planned.first + MOST_ROWS
                table = first_sorted(batches, schema, column, is_descending=is_descending, rows=end)
                rows = table.slice(planned.first).to_batches()
            cells = cells_of(rows, schema, types=types)
    except DataError as error:
        if "' in the filter " not in error.message:
            raise
        # The filter failed on a row, for example with a division by zero.
        raise Mistake(error, "filter", None) from None
    return {**cells, "isMore": len(cells["rows"]) == MOST_ROWS, "read": report.bytes}


def _without_first(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(min(rows, batch.num_rows))
        rows -= min(rows, batch.num_rows)


def _cost(plan: ScanPlan) -> dict[str, object]:
    needed = expected_bytes(plan)
    return {
        "bytes": needed,
        "asks": needed > ASKED_FROM,
        "files": len(plan.tasks),
        "rowsInAll": plan.known_rows,
        "version": None if plan.context.version is None else str(plan.context.version),
        "notes": list(plan.notes),
    }
