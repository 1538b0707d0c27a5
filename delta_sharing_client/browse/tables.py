"""Requests about one table: its columns and facts, its rows, its history, and the code that reads it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from delta_sharing_client.browse.asked import Asked, mistakes_of
from delta_sharing_client.browse.code import programs
from delta_sharing_client.browse.column_facts import facts_of, stated_facts
from delta_sharing_client.browse.conditions import type_at, with_value
from delta_sharing_client.browse.session import ASKED_FROM, PlannedRows, Session
from delta_sharing_client.descriptions import describe_details, describe_version
from delta_sharing_client.errors import DeltaSharingError, NotFoundError, RequestError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.read_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.sources.choosing import source_of
from delta_sharing_client.sources.traits import Trait, lack
from delta_sharing_client.table import SharedTable

_MOST_COLUMNS = 10_000
_MOST_VERSIONS = 200
_SERVER_FAULT = 500
# If a table has more files, its rows are counted only after a click, because this lists all files.
_MOST_FILES = 2_000


def described(session: Session, asked: Asked) -> dict[str, object]:
    """Return the facts about a table, its columns, and the paths of fields of structs, at the chosen version or
    time, if any."""
    table = asked.table(session.client)
    with mistakes_of(asked):
        details = table.metadata(version=asked.version, timestamp=asked.timestamp)
    facts, columns = describe_details(table, details)
    files = facts["numFiles"]
    return {
        "facts": {**facts, "version": str(facts["version"])},
        "columns": columns[:_MOST_COLUMNS],
        "columnsInAll": len(columns),
        "fields": list(itertools.islice(_fields((), details.schema), _MOST_COLUMNS)),
        "countsRows": isinstance(files, int) and files <= _MOST_FILES,
    }


def _fields(above: tuple[str, ...], level: Iterable[pa.Field]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field of a struct."""
    for field in level:
        if above:
            yield (*above, field.name)
        if pa.types.is_struct(field.type):
            yield from _fields((*above, field.name), field.type)


def column(session: Session, asked: Asked) -> dict[str, object]:
    """Return what the log states about one column, as long as no filter is set, and what reading its values costs;
    ``plan`` is the name that ``values`` needs."""
    path = _only_column(asked)
    table = asked.table(session.client)
    text = asked.text("filter").strip() or None
    with mistakes_of(asked):
        kind = type_at(table.metadata(version=asked.version, timestamp=asked.timestamp).schema, path)
        scan = table.scan([path], text, version=asked.version, timestamp=asked.timestamp)
        plan = scan.plan()
    stated = None
    if text is None:
        source = source_of(table.rest.for_read(table.options), table.name, table.options)
        stated = stated_facts(source, scan.request, path, kind)
    needed = expected_bytes(plan)
    facts = {"stated": stated, "bytes": needed, "files": len(plan.tasks), "asks": needed > ASKED_FROM}
    return {**facts, "plan": session.keep_plan(PlannedRows(plan, kind=kind))}


def values(session: Session, asked: Asked) -> dict[str, object]:
    """Return the facts about the values of a planned column."""
    planned = session.plan(asked.text("plan"))
    if planned.kind is None:
        raise UsageError("Expected the plan of a column's values, found the plan of rows.")
    with Batches(planned.plan, ScanReport()) as batches:
        return facts_of(batches, planned.kind)


def _only_column(asked: Asked) -> tuple[str, ...]:
    paths = asked.paths("column")
    if len(paths) != 1:
        raise UsageError(f"Expected 'column' to be a list of one column, found {len(paths)}.")
    return paths[0]


def condition(session: Session, asked: Asked) -> dict[str, object]:
    """Return the request's ``filter`` and, joined by AND, a condition on the value of a cell (``with_value``).

    ``column`` is a list with the column, and ``text`` the cell's text; ``isNull`` and ``negate`` are flags.
    """
    path = _only_column(asked)
    text = None if asked.flag("isNull") else asked.text("text")
    with mistakes_of(asked):
        schema = asked.table(session.client).metadata(version=asked.version, timestamp=asked.timestamp).schema
        return {"filter": with_value(asked.text("filter"), schema, path, text, is_negated=asked.flag("negate"))}


def rows(session: Session, asked: Asked) -> dict[str, object]:
    """Return the number of rows, if the log states it. This lists all files, but reads none."""
    scan = asked.table(session.client).scan((), version=asked.version, timestamp=asked.timestamp)
    return {"rows": scan.plan().known_rows}


def history(session: Session, asked: Asked) -> dict[str, object]:
    """Return the last versions, oldest first, and in ``from`` the first of them.

    The request's ``from`` sets the first version; by default, the last twenty are returned. If counting their changes
    needs a large download and ``agreed`` is not set, only the cost is returned.
    """
    table = asked.table(session.client)
    if lack(table.metadata().table_format, Trait.VERSION_ORDER):
        versions = table.history()
        return {"versions": [_told(describe_version(one)) for one in versions[-_MOST_VERSIONS:]], "from": None}
    last = table.version()
    first = asked.number("from")
    if first is None:
        first = max(0, last - 19)
    first = max(min(first, last), last - _MOST_VERSIONS + 1)
    if not asked.flag("agreed") and (needed := _cost_of_counting(table, first)) > ASKED_FROM:
        return {"bytes": needed, "asks": True, "from": first}
    try:
        versions = table.history(first)
    except RequestError as error:
        if isinstance(error, NotFoundError) or (error.status or 0) >= _SERVER_FAULT:
            raise
        note = f"The provider does not share this table's history, or not from version {first} on. {error.message}"
        return {"versions": [], "from": first, "last": last, "notes": [session.masked(note)]}
    return {"versions": [_told(describe_version(one)) for one in versions], "from": first, "last": last}


def _cost_of_counting(table: SharedTable, first: int) -> int:
    # If the feed cannot be planned, reading the history reports why.
    with contextlib.suppress(DeltaSharingError):
        return expected_bytes(table.changes(first).select(COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE).plan())
    return 0


def _told(version: dict[str, object]) -> dict[str, object]:
    # A snapshot id can have more digits than a number in JavaScript.
    return {**version, "version": str(version["version"])}


def code(session: Session, asked: Asked) -> dict[str, object]:
    """Return the programs for the chosen read."""
    # This refuses a filter or version that cannot be used, so that the page can show the mistake at its input.
    asked.read(session.client)
    programs_of = programs(
        session.profile_text,
        asked.full_name,
        columns=asked.paths("columns"),
        condition=asked.text("filter").strip(),
        version=asked.version,
        timestamp=asked.timestamp,
    )
    return {"programs": [{"name": name, "text": text} for name, text in programs_of.items()]}
