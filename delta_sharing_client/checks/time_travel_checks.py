"""Checks of earlier versions of a table: by version and by timestamp, in data queries, metadata and versions."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

from delta_sharing_client.checks.check import Failed, Level, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.listing_checks import difference
from delta_sharing_client.checks.parquet_checks import ids_of, metadata_of
from delta_sharing_client.checks.shared_tables import PARQUET, SharedTable, table_with

_SPEC = "Delta Sharing Protocol"
_BODY = f"{_SPEC}, Request Body"
_METADATA = f"{_SPEC}, Query Table Metadata"
_VERSION = f"{_SPEC}, Query Table Version"
_FAR = 1_000_000


def _earlier(server: Server) -> tuple[SharedTable, int]:
    """Return a table that parquet format can represent, and the version before its current one."""
    need = "a table in parquet format whose history is shared, with two versions"
    table = table_with(server, need, lambda table: ids_of(table.query(PARQUET, version=_current(table) - 1)))
    return table, _current(table) - 1


def _current(table: SharedTable) -> int:
    return int(table.query(PARQUET).require().headers["Delta-Table-Version"])


def _changes(server: Server, version: int) -> list[dict[str, Any]]:
    """Return the files that a version of the table added, from a query with startingVersion."""
    table, _ = _earlier(server)
    answer = table.query(PARQUET, startingVersion=version, endingVersion=version)
    lines = answer.lines() if answer.status == 200 else []
    found = [line["add"] for line in lines if "add" in line and line["add"].get("version") == version]
    if not found:
        raise NotTestable(
            "The share would need a table in parquet format whose last two versions add files, for queries with "
            "startingVersion."
        )
    return found


def _time(server: Server) -> str:
    """Return when the earlier version was made, in the format of the protocol."""
    _, version = _earlier(server)
    milliseconds = int(_changes(server, version)[0]["timestamp"])
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)
    return f"{moment.isoformat(timespec='milliseconds' if milliseconds % 1000 else 'seconds')}Z"


def _require_files(answer: Answer, expected: Answer, told: str) -> None:
    if ids_of(answer) != ids_of(expected):
        raise Failed(
            f"Expected the same files {told}, found others: {difference(ids_of(expected), ids_of(answer))}.", answer
        )


# --- data queries ---


@check(
    "query.version-header", Level.PARQUET, "The response to a query of a version has it in the header "
    "Delta-Table-Version.", f"{_SPEC}, Read Data from a Table",
)  # fmt: skip
def _header(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, version=version)
    if (found := answer.headers.get("Delta-Table-Version")) != str(version):
        raise Failed(f"Expected {version} in the header Delta-Table-Version, found {found}.", answer)


@check(
    "query.version-in-metadata", Level.PARQUET, "If the metadata in a query of a version names a version, "
    "it is this one.", f"{_SPEC}, Metadata",
)  # fmt: skip
def _in_metadata(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, version=version)
    if (found := metadata_of(answer).get("version", version)) != version:
        raise Failed(f"Expected {version} as the version of the metadata, found {found}.", answer)


@check("query.version", Level.PARQUET, "A query of a version has no files that were added later.", _BODY)
def _as_of_version(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, version=version)
    later = {str(file["id"]) for file in _changes(server, version + 1)} & set(ids_of(answer))
    if later:
        raise Failed(
            f"Expected no file that was added in version {version + 1} among the files of version {version}, found "
            f"'{min(later)}'.", answer,
        )  # fmt: skip


@check(
    "query.current-version", Level.PARQUET, "A query of the current version has the same files as one without.", _BODY
)
def _as_of_now(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, version=version + 1)
    _require_files(answer, table.query(PARQUET), f"with version={version + 1} as without")


@check("query.timestamp", Level.PARQUET, "A query of a timestamp has the files of the version of that time.", _BODY)
def _as_of_timestamp(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, timestamp=_time(server))
    expected = table.query(PARQUET, version=version)
    _require_files(answer, expected, f"at {_time(server)} as with version={version}, which was made then")


@check("query.unknown-version", Level.PARQUET, "A query of a version that does not exist is refused.", _BODY)
def _unknown_version(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, version=version + _FAR)
    if answer.status not in (400, 404):
        raise Failed(f"Expected status 400 or 404 for version={version + _FAR}, found {answer.status}.", answer)


# --- metadata ---


def _same_metadata(parameter: Callable[[Server], dict[str, object]], server: Server) -> None:
    table, version = _earlier(server)
    answer = table.metadata(PARQUET, **parameter(server))
    found, expected = metadata_of(answer), metadata_of(table.query(PARQUET, version=version))
    for field in ("id", "schemaString", "partitionColumns"):
        if found.get(field) != expected.get(field):
            raise Failed(
                f"Expected the {field} {expected.get(field)!r:.200}, as in a query of version {version}; found "
                f"{found.get(field)!r:.200}.", answer,
            )  # fmt: skip


check("metadata.version", Level.PARQUET, "The metadata of a version is that of a query of it.", _METADATA)(
    functools.partial(_same_metadata, lambda server: {"version": _earlier(server)[1]})
)
check(
    "metadata.timestamp", Level.PARQUET, "The metadata of a timestamp is that of the version of that time.", _METADATA
)(functools.partial(_same_metadata, lambda server: {"timestamp": _time(server)}))


@check(
    "metadata.version-or-timestamp", Level.PARQUET, "A request for metadata with both a version and a timestamp is "
    "refused.", _METADATA,
)  # fmt: skip
def _exclusive(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.metadata(PARQUET, version=version, timestamp=_time(server))
    if answer.status != 400:
        raise Failed(f"Expected status 400 for a version together with a timestamp, found {answer.status}.", answer)


# --- the version at a time ---


def _version_from(server: Server, time: str) -> tuple[Answer, int]:
    table, _ = _earlier(server)
    answer = server.get(*table.path, "version", params={"startingTimestamp": time}).require()
    return answer, int(answer.headers["Delta-Table-Version"])


@check(
    "query-version.starting-timestamp", Level.PARQUET, "With startingTimestamp, the version is the first one at or "
    "after this time.", _VERSION,
)  # fmt: skip
def _starting(server: Server) -> None:
    _, version = _earlier(server)
    answer, found = _version_from(server, _time(server))
    if found != version:
        raise Failed(f"Expected version {version}, made at {_time(server)}; found {found}.", answer)


@check("query-version.early-timestamp", Level.PARQUET, "A startingTimestamp may be before the first version.", _VERSION)
def _early(server: Server) -> None:
    _, version = _earlier(server)
    answer, found = _version_from(server, "1970-01-01T00:00:00Z")
    if found > version:
        raise Failed(f"Expected the first version for startingTimestamp in 1970, found {found}.", answer)
