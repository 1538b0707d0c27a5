"""Checks of earlier versions of a table: by version and by timestamp, in data queries, metadata and versions."""

from __future__ import annotations

import datetime as dt
from typing import Any

from delta_sharing_client.checks.check import Failed, Level, check
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


def _added(table: SharedTable, version: int) -> list[dict[str, Any]]:
    """Return the files that a version of the table added, from a query with startingVersion; at least one."""
    answer = table.query(PARQUET, startingVersion=version, endingVersion=version).require()
    lines = [line["add"] for line in answer.lines() if "add" in line]
    found = [file for file in lines if file.get("version") == version]
    if not found:
        raise Failed(f"Expected files that version {version} added, found none.", answer)
    return found


def _changed(server: Server) -> tuple[SharedTable, int]:
    """Return such a table whose last version adds a file."""
    need = "a table in parquet format whose history is shared, whose last version adds a file"

    def fits(table: SharedTable) -> bool:
        version = _current(table)
        return bool(ids_of(table.query(PARQUET, version=version - 1)) and _added(table, version))

    table = table_with(server, need, fits)
    return table, _current(table) - 1


def _timed(server: Server) -> tuple[SharedTable, int, list[str]]:
    """Return such a table, and when its last two versions were made, in the format of the protocol."""
    need = "a table in parquet format whose history is shared, whose last two versions add files and are a second apart"

    def times(table: SharedTable) -> list[int]:
        return [int(_added(table, _current(table) - back)[0]["timestamp"]) for back in (1, 0)]

    table = table_with(server, need, lambda table: times(table)[1] - times(table)[0] >= 1000)
    moments = [dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=time) for time in times(table)]
    texts = [f"{each.isoformat(timespec='milliseconds' if each.microsecond else 'seconds')}Z" for each in moments]
    return table, _current(table) - 1, texts


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
    table, version = _changed(server)
    answer = table.query(PARQUET, version=version)
    later = {str(file["id"]) for file in _added(table, version + 1)} & set(ids_of(answer))
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
    table, version, times = _timed(server)
    answer = table.query(PARQUET, timestamp=times[0])
    expected = table.query(PARQUET, version=version)
    _require_files(answer, expected, f"at {times[0]} as with version={version}, which was made then")


@check("query.unknown-version", Level.PARQUET, "A query of a version that does not exist is refused.", _BODY)
def _unknown_version(server: Server) -> None:
    table, version = _earlier(server)
    answer = table.query(PARQUET, version=version + _FAR)
    if answer.status not in (400, 404):
        raise Failed(f"Expected status 400 or 404 for version={version + _FAR}, found {answer.status}.", answer)


# --- metadata ---


def _require_metadata(table: SharedTable, version: int, answer: Answer) -> None:
    found, expected = metadata_of(answer), metadata_of(table.query(PARQUET, version=version))
    for field in ("id", "schemaString", "partitionColumns"):
        if found.get(field) != expected.get(field):
            raise Failed(
                f"Expected the {field} {expected.get(field)!r:.200}, as in a query of version {version}; found "
                f"{found.get(field)!r:.200}.", answer,
            )  # fmt: skip


@check("metadata.version", Level.PARQUET, "The metadata of a version is that of a query of it.", _METADATA)
def _metadata_of_version(server: Server) -> None:
    table, version = _earlier(server)
    _require_metadata(table, version, table.metadata(PARQUET, version=version))


@check(
    "metadata.timestamp", Level.PARQUET, "The metadata of a timestamp is that of the version of that time.", _METADATA
)
def _metadata_of_timestamp(server: Server) -> None:
    table, version, times = _timed(server)
    _require_metadata(table, version, table.metadata(PARQUET, timestamp=times[0]))


@check(
    "metadata.version-or-timestamp", Level.PARQUET, "A request for metadata with both a version and a timestamp is "
    "refused.", _METADATA,
)  # fmt: skip
def _exclusive(server: Server) -> None:
    table, version, times = _timed(server)
    answer = table.metadata(PARQUET, version=version, timestamp=times[0])
    if answer.status != 400:
        raise Failed(f"Expected status 400 for a version together with a timestamp, found {answer.status}.", answer)


# --- the version at a time ---


def _version_from(table: SharedTable, time: str) -> tuple[Answer, int]:
    answer = table.server.get(*table.path, "version", params={"startingTimestamp": time}).require()
    found = answer.headers.get("Delta-Table-Version", "")
    if not found.isascii() or not found.isdigit():
        raise Failed(f"Expected a number in the header Delta-Table-Version, found '{found}'.", answer)
    return answer, int(found)


@check(
    "query-version.starting-timestamp", Level.PARQUET, "With startingTimestamp, the version is the first one at or "
    "after this time.", _VERSION,
)  # fmt: skip
def _starting(server: Server) -> None:
    table, version, times = _timed(server)
    answer, found = _version_from(table, times[1])
    if found != version + 1:
        raise Failed(f"Expected version {version + 1}, made at {times[1]}; found {found}.", answer)


@check("query-version.early-timestamp", Level.PARQUET, "A startingTimestamp may be before the first version.", _VERSION)
def _early(server: Server) -> None:
    table, version = _earlier(server)
    answer, found = _version_from(table, "1970-01-01T00:00:00Z")
    if found > version:
        raise Failed(f"Expected the first version for startingTimestamp in 1970, found {found}.", answer)
