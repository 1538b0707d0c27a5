"""Checks of the description of one table, and of the formats that it states."""

from __future__ import annotations

from delta_sharing_client.checks.asset_checks import NO_SUCH_NAME, Kind, SharedAsset, in_another_case
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.shared_catalog import SharedCatalog
from delta_sharing_client.checks.shared_tables import DELTA

_GET = "OpenSharing, Get Table"
_MOST_TABLES = 10
_TABLES = Kind(Level.OPEN_TABLES, "Table", "Table", "Table")


def described(server: Server) -> list[tuple[SharedAsset, Answer]]:
    """Return those of the first tables that the server describes, with its responses; ``NotOffered`` without this
    API."""
    count = min(_MOST_TABLES, len(server.assets("tables")))
    tables = [SharedAsset(server, _TABLES, number) for number in range(count)]
    answers = [(table, server.get(*table.path)) for table in tables]
    if all(server.is_absent(answer) for _, answer in answers):
        raise NotOffered(f"{answers[0][1].asked} has status {answers[0][1].status}.")
    # One missing table does not mean that there is no API.
    return [(table, answer.require()) for table, answer in answers if not server.is_absent(answer)]


def _with_format(server: Server, name: str) -> list[tuple[SharedAsset, Answer]]:
    found = [
        (table, answer)
        for table, answer in described(server)
        if name in [each.strip() for each in str(answer.document().get("format")).split(",")]
    ]
    if not found:
        raise NotTestable(f"The share would need a table with the format '{name}'.")
    return found


@check("get-table.form", Level.OPEN_TABLES, "A table is described as the specification says.", _GET)
def _form(server: Server) -> None:
    for table, answer in described(server):
        found = answer.conforms("OneTable")
        names = tuple(found[field] for field in ("share", "schema", "name"))
        if [name.lower() for name in names] != [name.lower() for name in table.names]:
            raise Failed(f"Expected the names of the table, {'.'.join(table.names)}, found {'.'.join(names)}.", answer)


@check("get-table.case", Level.OPEN_TABLES, "Names in the path are case-insensitive.", _GET)
def _case(server: Server) -> None:
    table, answer = described(server)[0]
    share, schema, name = map(in_another_case, table.names)
    other = server.get("shares", share, "schemas", schema, "tables", name).require()
    if other.document().get("format") != answer.document().get("format"):
        raise Failed("Expected the same table as for the name in its own case, found another one.", other)


@check("get-table.id", Level.OPEN_TABLES, "The id of a table is the same as in the listing of the share.", _GET)
def _id(server: Server) -> None:
    compared = 0
    for table, answer in described(server):
        share, *names = table.names
        stated = next(
            (
                item.get("id")
                for item in server.items("shares", share, "all-tables")
                if [item.get("schema"), item.get("name")] == names
            ),
            None,
        )
        found = answer.document().get("id")
        compared += bool(stated and found)
        if stated and found and stated != found:
            raise Failed("Expected the id of the table as in the listing, found another one.", answer)
    if not compared:
        raise NotTestable("The tables would need ids, which are optional.")


@check("get-table.unknown", Level.OPEN_TABLES, "An unknown table is a 404, with errorCode and message.", _GET)
def _unknown(server: Server) -> None:
    table, _ = described(server)[0]
    server.get(*table.path[:-1], NO_SUCH_NAME).conforms("Error", status=404)


@check("get-table.token", Level.OPEN_TABLES, "A request without a token is a 401, with errorCode and message.", _GET)
def _token(server: Server) -> None:
    table, _ = described(server)[0]
    server.get(*table.path, anonymous=True).conforms("Error", status=401)


@check(
    "get-table.format-delta", Level.OPEN_TABLES,
    "A table with the format 'delta' is served by the APIs for Delta tables.", _GET,
)  # fmt: skip
def _delta(server: Server) -> None:
    for table, _ in _with_format(server, "delta"):
        answer = server.get(*table.path, "metadata", headers=DELTA)
        if server.is_absent(answer):
            raise Failed(f"Expected the metadata of {'.'.join(table.names)}, found status {answer.status}.", answer)


@check(
    "get-table.format-iceberg", Level.OPEN_TABLES,
    "A table with the format 'iceberg' is served by the Iceberg catalog.", _GET,
)  # fmt: skip
def _iceberg(server: Server) -> None:
    found = _with_format(server, "iceberg")
    if server.profile.iceberg_endpoint is None:
        raise NotTestable("The profile would need an icebergEndpoint.")
    for table, _ in found:
        SharedCatalog(server, table.names[0]).get("namespaces", table.names[1], "tables", table.names[2]).require()
