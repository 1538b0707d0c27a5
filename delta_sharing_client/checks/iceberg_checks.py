"""Checks of the Iceberg REST catalog of a share."""

from __future__ import annotations

from typing import Any

from delta_sharing_client.checks.asset_checks import NO_SUCH_NAME
from delta_sharing_client.checks.check import Failed, Level, NotTestable, check
from delta_sharing_client.checks.checked_server import ABSENT, Answer, Server
from delta_sharing_client.checks.shared_catalog import catalog
from delta_sharing_client.errors import UsageError
from delta_sharing_client.protocol.names import AssetName

_OPEN, _REST = "OpenSharing, Access Iceberg Tables", "Iceberg REST catalog API"
_TABLE_SPEC = "Iceberg table specification, Table Metadata"
_TABLES = "/v1/{prefix}/namespaces/{namespace}/tables"
_ENDPOINTS = (
    "GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}", f"GET {_TABLES}",
    f"GET {_TABLES}/{{table}}", f"POST {_TABLES}/{{table}}/metrics",
)  # fmt: skip
# A table with more files is not planned only to read a row.
_MOST_FILES = 10_000


@check(
    "iceberg.config",
    Level.ICEBERG,
    "The configuration of a share has the form of a catalog's.",
    f"{_OPEN}; {_REST}, getConfig",
)
def _config(server: Server) -> None:
    catalog(server).config().conforms("CatalogConfig")


@check(
    "iceberg.config-endpoints", Level.ICEBERG,
    "If the configuration lists endpoints, those of the specification are among them.", _OPEN,
)  # fmt: skip
def _endpoints(server: Server) -> None:
    answer = catalog(server).config().require()
    listed = answer.document().get("endpoints")
    if listed is not None and (missing := [each for each in _ENDPOINTS if each not in listed]):
        raise Failed(f"Expected all endpoints of the specification, found none of {', '.join(missing)}.", answer)


@check(
    "iceberg.namespaces", Level.ICEBERG, "Namespaces are listed in the form of a catalog's.", f"{_REST}, listNamespaces"
)
def _namespaces(server: Server) -> None:
    for page in catalog(server).pages("namespaces"):
        page.conforms("ListNamespacesResponse")


@check(
    "iceberg.namespace", Level.ICEBERG, "A namespace is described under its name.", f"{_REST}, loadNamespaceMetadata"
)
def _namespace(server: Server) -> None:
    found = catalog(server)
    namespace, _, _ = found.loaded()
    answer = found.get("namespaces", namespace)
    if (stated := answer.conforms("GetNamespaceResponse")["namespace"]) != namespace.split("\x1f"):
        raise Failed(f"Expected the namespace {namespace!r}, found {stated!r}.", answer)


@check("iceberg.tables", Level.ICEBERG, "Tables are listed in the form of a catalog's.", f"{_REST}, listTables")
def _tables(server: Server) -> None:
    found = catalog(server)
    for page in found.pages("namespaces", found.loaded()[0], "tables"):
        page.conforms("ListTablesResponse")


@check("iceberg.listed-tables-load", Level.ICEBERG, "Each listed table can be loaded.", f"{_OPEN}; {_REST}, loadTable")
def _listed(server: Server) -> None:
    found = catalog(server)
    found.loaded()
    for namespace, name in found.tables():
        found.load(namespace, name).require()


@check("iceberg.load", Level.ICEBERG, "A loaded table has the form of a catalog's.", f"{_REST}, loadTable")
def _load(server: Server) -> None:
    catalog(server).loaded()[2].conforms("LoadTableResult")


@check(
    "iceberg.metadata", Level.ICEBERG,
    "The metadata of a table has a location, and lists its current schema, partition spec and snapshot.", _TABLE_SPEC,
)  # fmt: skip
def _metadata(server: Server) -> None:
    answer = catalog(server).loaded()[2]
    metadata = answer.document()["metadata"]
    if not isinstance(metadata.get("location"), str):
        raise Failed("Expected a location in the metadata, found none.", answer)
    # Version 1 of the format may have one schema and one partition spec without ids.
    for current, listed, key in (
        ("current-schema-id", "schemas", "schema-id"),
        ("default-spec-id", "partition-specs", "spec-id"),
        ("current-snapshot-id", "snapshots", "snapshot-id"),
    ):
        number: Any = metadata.get(current)
        is_optional = listed == "snapshots" or metadata.get("format-version") == 1
        if is_optional and number in (None, -1):
            continue
        if number not in [each.get(key) for each in metadata.get(listed) or []]:
            raise Failed(f"Expected one of the {listed} with the {current} {number}, found none.", answer)


@check(
    "iceberg.read", Level.ICEBERG,
    "With the metadata, and the credentials beside it, the rows of a table can be read.",
    f"{_OPEN}; {_REST}, loadTable",
)  # fmt: skip
def _read(server: Server) -> None:
    found = catalog(server)
    namespace, name, answer = found.loaded()
    metadata = answer.document()["metadata"]
    for snapshot in metadata.get("snapshots") or []:
        is_current = snapshot.get("snapshot-id") == metadata.get("current-snapshot-id")
        if is_current and int((snapshot.get("summary") or {}).get("total-data-files", 0)) > _MOST_FILES:
            raise NotTestable(f"The first Iceberg table would need at most {_MOST_FILES} files.")
    server.latest = None
    table = server.client.table(AssetName(found.share, namespace.replace("\x1f", "."), name), format="iceberg")
    try:
        table.scan(limit=1).to_arrow()
    except UsageError as error:
        raise NotTestable(str(error)) from None


@check(
    "iceberg.unknown-namespace",
    Level.ICEBERG,
    "An unknown namespace is a 404, with an error of a catalog.",
    f"{_REST}, listTables",
)
def _unknown_namespace(server: Server) -> None:
    _refused(catalog(server).get("namespaces", NO_SUCH_NAME, "tables"), 404)


@check(
    "iceberg.unknown-table",
    Level.ICEBERG,
    "An unknown table is a 404, with an error of a catalog.",
    f"{_REST}, loadTable",
)
def _unknown_table(server: Server) -> None:
    found = catalog(server)
    _refused(found.load(found.loaded()[0], NO_SUCH_NAME), 404)


@check(
    "iceberg.token",
    Level.ICEBERG,
    "A request without a token is a 401, with an error of a catalog.",
    f"{_REST}, loadTable",
)
def _token(server: Server) -> None:
    found = catalog(server)
    namespace, name, _ = found.loaded()
    _refused(found.get("namespaces", namespace, "tables", name, anonymous=True), 401)


@check(
    "iceberg.page-size",
    Level.ICEBERG,
    "A page that is followed by another one has at most pageSize items.",
    f"{_REST}, listNamespaces",
)
def _page_size(server: Server) -> None:
    found = catalog(server)
    if len(found.namespaces()) < 2:
        raise NotTestable("The share would need two namespaces.")
    for page in found.pages("namespaces", size=1):
        document = page.document()
        if document.get("next-page-token") and len(document.get("namespaces") or []) > 1:
            raise Failed("Expected at most 1 namespace with pageSize=1, found more.", page)


@check(
    "iceberg.pages", Level.ICEBERG, "The pages of a listing together have each item once.", f"{_REST}, listNamespaces"
)
def _pages(server: Server) -> None:
    found = catalog(server)
    whole, paged = sorted(found.namespaces()), sorted(found.namespaces(size=1))
    if whole != paged:
        raise Failed(f"Expected the same {len(whole)} namespaces in pages of 1 as in one, found {len(paged)}.")


@check("iceberg.metrics", Level.ICEBERG, "The API for reports of metrics exists.", f"{_OPEN}; {_REST}, reportMetrics")
def _metrics(server: Server) -> None:
    found = catalog(server)
    namespace, name, _ = found.loaded()
    # The report is empty, so that no server counts it.
    answer = server.post(*found.prefix, "namespaces", namespace, "tables", name, "metrics", catalog=True)
    if answer.status in ABSENT:
        raise Failed(f"Expected an API for reports of metrics, found status {answer.status}.", answer)


def _refused(answer: Answer, *statuses: int) -> None:
    """Raise ``Failed`` unless an answer is an error with one of ``statuses``, in the form of a catalog's errors."""
    code = answer.require(*statuses).conforms("IcebergErrorResponse", status=answer.status)["error"]["code"]
    if code != answer.status:
        raise Failed(
            f"Expected {answer.status}, the status of the response, as the error's code; found {code}.", answer
        )
