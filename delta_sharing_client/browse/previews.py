"""The first rows of a read, and the estimated size of a read before anything is downloaded."""

from __future__ import annotations

from delta_sharing_client.browse.asked import Asked, Mistake, mistakes_of
from delta_sharing_client.browse.cells import MOST_COLUMNS, MOST_ROWS, cells_of
from delta_sharing_client.browse.session import ASKED_FROM, Session
from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.outputs.excel import MOST_ROWS as MOST_IN_EXCEL
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.run.batches import Batches


def cost(session: Session, asked: Asked) -> dict[str, object]:
    """Return the cost of the whole read (bytes, files and, if known, rows), and its plan as text."""
    read = asked.read(session.client)
    with mistakes_of(asked):
        plan = read.plan()
    return {**_cost(plan), "plan": explain(plan).splitlines(), "mostInExcel": MOST_IN_EXCEL}


def plan_preview(session: Session, asked: Asked) -> dict[str, object]:
    """Return the cost of the first 100 rows, and in ``plan`` the name that ``preview`` needs."""
    if len(asked.texts("columns")) > MOST_COLUMNS:
        raise UsageError(
            f"A preview can have at most {MOST_COLUMNS} columns; choose fewer. A download can have all of them."
        )
    read = asked.read(session.client, limit=MOST_ROWS, most=MOST_COLUMNS)
    with mistakes_of(asked):
        plan = read.plan()
    if len(plan.output_schema) > MOST_COLUMNS:
        # The columns of a change feed are known only now.
        names = plan.output_schema.names
        kept = [(name,) for name in (*names[-3:], *names[: MOST_COLUMNS - 3])]
        plan = read.select(*kept).plan()
    return {**_cost(plan), "plan": session.keep_plan(plan)}


def preview(session: Session, asked: Asked) -> dict[str, object]:
    """Return the rows of a ``plan``, as strings."""
    plan = session.plan(asked.text("plan"))
    report = ScanReport()
    try:
        with Batches(plan, report, eager=False) as batches:
            cells = cells_of(batches, plan.output_schema)
    except DataError as error:
        if "' in the filter " not in error.message:
            raise
        # The filter failed on a row, for example with a division by zero.
        raise Mistake(error, "filter", None) from None
    return {**cells, "read": report.bytes}


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
