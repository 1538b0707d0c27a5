"""Requests about one table: its columns and facts, its rows, its history, and the code that reads it."""

from __future__ import annotations

import contextlib

from delta_sharing_client.browse.asked import Asked, mistakes_of
from delta_sharing_client.browse.code import programs
from delta_sharing_client.browse.session import ASKED_FROM, Session
from delta_sharing_client.descriptions import describe_table, describe_version
from delta_sharing_client.errors import DeltaSharingError, NotFoundError, RequestError
from delta_sharing_client.plan.costs import expected_bytes
from delta_sharing_client.plan.read_columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from delta_sharing_client.sources.traits import Trait, lack
from delta_sharing_client.table import SharedTable

_MOST_COLUMNS = 10_000
_MOST_VERSIONS = 200
_SERVER_FAULT = 500
# If a table has more files, its rows are counted only after a click, because this lists all files.
_MOST_FILES = 2_000


def described(session: Session, asked: Asked) -> dict[str, object]:
    """Return the facts about a table and its columns, at the chosen version or time, if any."""
    with mistakes_of(asked):
        facts, columns = describe_table(asked.table(session.client), asked.version, asked.timestamp)
    files = facts["numFiles"]
    return {
        "facts": {**facts, "version": str(facts["version"])},
        "columns": columns[:_MOST_COLUMNS],
        "columnsInAll": len(columns),
        "countsRows": isinstance(files, int) and files <= _MOST_FILES,
    }


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
        columns=asked.texts("columns"),
        condition=asked.text("filter").strip(),
        version=asked.version,
        timestamp=asked.timestamp,
    )
    return {"programs": [{"name": name, "text": text} for name, text in programs_of.items()]}
