"""Checks of directory access: access modes, locations and temporary credentials of tables."""

from __future__ import annotations

import email.utils
import json
import time
from typing import Any

from delta_sharing_client.checks.asset_checks import KEYS, NO_SUCH_NAME
from delta_sharing_client.checks.check import Failed, Level, NotTestable, check
from delta_sharing_client.checks.checked_server import ABSENT, Answer, Server
from delta_sharing_client.checks.shared_tables import DELTA, PARQUET, SharedTable, table_with
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.sources.stored_log import StoredLog

_API = "temporary-table-credentials"
_SECTION = "Delta Sharing Protocol, Generate Temporary Table Credential"
_KEYS = KEYS[:3]


def _described(table: SharedTable) -> dict[str, Any]:
    """Return what the listing and the metadata of a table say about access to it."""
    listed = [item for item in table.server.assets("tables") if (item["share"], item["schema"]) == table.names[:2]]
    found: dict[str, Any] = next((item for item in listed if item.get("name") == table.names[2]), {})
    return found if "accessModes" in found else _metadata(table, DELTA) or _metadata(table, PARQUET)


def _metadata(table: SharedTable, headers: dict[str, str]) -> dict[str, Any]:
    answer = table.metadata(headers)
    found: dict[str, Any] = answer.lines()[1]["metaData"] if answer.status == 200 else {}
    return found


def _table(server: Server) -> SharedTable:
    return table_with(
        server, "a table with the access mode 'dir'", lambda table: "dir" in _described(table)["accessModes"]
    )


def _location(table: SharedTable) -> str:
    return str(_described(table)["location"]).rstrip("/")


def _ask(table: SharedTable, location: str | None = None, **more: Any) -> Answer:
    body = {} if location is None else {"location": location}
    return table.server.post(*table.path, _API, body=body, **more)


def _credentials(table: SharedTable, location: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = _ask(table, location).require().document()["credentials"]
    return found


def _require_location(table: SharedTable, location: str | None, expected: str) -> None:
    found = str(_credentials(table, location).get("location"))
    if found.rstrip("/") != expected.rstrip("/"):
        raise Failed(f"Expected credentials for '{expected}', found those for '{found}'.", _ask(table, location))


@check(
    "access-modes.url", Level.DELTA, "A table with the access mode 'url' is served by queries.",
    "Delta Sharing Protocol, Metadata",
)  # fmt: skip
def _url_access(server: Server) -> None:
    table = table_with(
        server, "a table with the access mode 'url'",
        lambda table: "url" in _described(table)["accessModes"] and table.metadata().status == 200,
    )  # fmt: skip
    table.query(limitHint=1).require()


@check(
    "directory.location", Level.DIRECTORY, "The metadata of a table with the access mode 'dir' has its location.",
    "Delta Sharing Protocol, Metadata; Metadata in Delta Format",
)  # fmt: skip
def _metadata_location(server: Server) -> None:
    table = _table(server)
    for headers in (DELTA, PARQUET):
        answer = table.metadata(headers)
        if answer.status == 200 and not _metadata(table, headers).get("location"):
            raise Failed("Expected a location in the metadata, found none.", answer)


@check(
    "directory.credentials", Level.DIRECTORY,
    "For a table with the access mode 'dir', the server issues credentials of the form that the specification says.",
    f"{_SECTION}; Metadata",
)  # fmt: skip
def _form(server: Server) -> None:
    _ask(_table(server)).conforms("Credentials", lambda field, rule: rule != "oneOf")


@check("directory.one-kind", Level.DIRECTORY, "Credentials are for one store.", _SECTION)
def _one_kind(server: Server) -> None:
    table = _table(server)
    found = [name for name in _KEYS if _credentials(table).get(name)]
    # A directory of the server's own machine has none.
    if len(found) > 1 or (not found and not _location(table).startswith("file:")):
        raise Failed(f"Expected exactly one of {', '.join(_KEYS)}, found {' and '.join(found) or 'none'}.", _ask(table))


@check(
    "directory.expiration", Level.DIRECTORY, "Credentials expire in the future, by the server's time.",
    "Delta Sharing Protocol, TemporaryCredentials",
)  # fmt: skip
def _expiration(server: Server) -> None:
    answer = _ask(_table(server)).require()
    date = email.utils.parsedate_tz(answer.headers.get("Date", ""))
    now = time.time() if date is None else email.utils.mktime_tz(date)
    if int(_credentials(_table(server))["expirationTime"]) <= now * 1000:
        raise Failed("Expected an expirationTime after the server's own time, found an earlier one.", answer)


@check(
    "directory.default-location", Level.DIRECTORY,
    "Without a location in the request, the credentials are for the table's main location.", _SECTION,
)  # fmt: skip
def _default_location(server: Server) -> None:
    table = _table(server)
    _require_location(table, None, _location(table))


@check(
    "directory.main-location", Level.DIRECTORY, "Credentials are given for the table's location on request.", _SECTION
)
def _main_location(server: Server) -> None:
    table = _table(server)
    _require_location(table, _location(table), _location(table))


@check(
    "directory.auxiliary-location", Level.DIRECTORY, "Credentials are given for each auxiliary location.",
    f"{_SECTION}; Metadata",
)  # fmt: skip
def _auxiliary_location(server: Server) -> None:
    table = table_with(
        server, "a table with the access mode 'dir' and an auxiliary location",
        lambda table: "dir" in _described(table)["accessModes"] and _described(table).get("auxiliaryLocations"),
    )  # fmt: skip
    for location in _described(table)["auxiliaryLocations"]:
        _require_location(table, location, location)


@check(
    "directory.other-location", Level.DIRECTORY,
    "Credentials are refused for a location that does not belong to the table.", _SECTION,
)  # fmt: skip
def _other_location(server: Server) -> None:
    table = _table(server)
    # The directory around the table: its credentials would open other tables.
    around = _location(table).rpartition("/")[0]
    answer = _ask(table, around)
    if answer.status < 400 or answer.status in ABSENT:
        raise Failed(f"Expected a refusal of '{around}' (status 400 or 403), found status {answer.status}.", answer)


@check("directory.malformed", Level.DIRECTORY, "A location that is no string is a 400.", _SECTION)
def _malformed(server: Server) -> None:
    table = _table(server)
    table.server.post(*table.path, _API, body={"location": 5}).conforms("Error", status=400)


@check("directory.token", Level.DIRECTORY, "A request without a token is a 401, with errorCode and message.", _SECTION)
def _token(server: Server) -> None:
    _ask(_table(server), anonymous=True).conforms("Error", status=401)


@check("directory.unknown", Level.DIRECTORY, "Credentials of an unknown table are a 404.", _SECTION)
def _unknown(server: Server) -> None:
    share, schema, _ = _table(server).names
    _ask(SharedTable(server, share, schema, NO_SUCH_NAME)).conforms("Error", status=404)


@check(
    "directory.log", Level.DIRECTORY,
    "With the credentials, the table's Delta log can be listed and read below the location; it ends with the version "
    "that the server states.", f"{_SECTION}; Access Modes",
)  # fmt: skip
def _log(server: Server) -> None:
    table = _table(server)
    version = table.version()
    server.latest = None
    rest = RestClient(server.profile, server.options)
    try:
        log = StoredLog(rest, AssetName(*table.names), server.options)
        commit = f"{version:020}.json"
        if commit not in {entry.name for entry in log.entries()}:
            raise Failed(f"Expected the commit {commit} in _delta_log, found none.")
        with log.open(commit) as content:
            if not all(isinstance(json.loads(line), dict) for line in content.read().splitlines()):
                raise Failed(f"Expected JSON objects in the commit {commit}, found something else.")
    except FileNotFoundError as error:
        raise Failed(f"Expected '{error}' below '{_location(table)}', found none.") from None
    except UsageError as error:
        raise NotTestable(str(error)) from None
    finally:
        rest.close()
