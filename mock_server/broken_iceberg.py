"""Violations of the sentences about one table and its formats, and about the Iceberg catalog."""

from __future__ import annotations

from .broken_assets import case_matters, first_with, with_status
from .violations import SCHEMA, SHARE, TABLE, Answer, Asked, misreads, spoils

_CONFIG = "/v1/config"
_NAMESPACES = f"/v1{SHARE}/namespaces"
_TABLES = f"{_NAMESPACES}/[^/]+/tables"

# === One table ===

spoils("get-table.form", TABLE)(first_with(schema=None))
misreads("get-table.case", TABLE)(case_matters)
spoils("get-table.id", TABLE)(first_with(id="other"))
spoils("get-table.unknown", TABLE, statuses=(404,))(with_status(400))
spoils("get-table.token", TABLE, statuses=(401,))(with_status(400))
spoils("get-table.format-delta", f"{SCHEMA}/tables/refunds")(first_with(format="delta,iceberg"))
spoils("get-table.format-iceberg", f"{SCHEMA}/tables/products")(first_with(format="delta,iceberg"))

# === The catalog ===

spoils("iceberg.config", _CONFIG)(first_with(defaults=None))
spoils("iceberg.namespace", f"{_NAMESPACES}/[^/]+")(first_with(namespace=["other"]))
spoils("iceberg.tables", _TABLES)(first_with(**{"next-page-token": 5}))
spoils("iceberg.token", f"{_TABLES}/[^/]+", statuses=(401,))(with_status(403))
spoils("iceberg.metrics", f"{_TABLES}/[^/]+/metrics", "POST", statuses=(204,))(with_status(404))
spoils("iceberg.unknown-namespace", _TABLES, statuses=(404,))(first_with(error="There is no such namespace."))


@spoils("iceberg.namespaces", _NAMESPACES)
def _number_as_token(answer: Answer) -> None:
    if "pageSize" not in answer.asked.query:
        answer.document = answer.document | {"next-page-token": 5}


@spoils("iceberg.config-endpoints", _CONFIG)
def _no_metrics(answer: Answer) -> None:
    document = answer.document
    document["endpoints"] = [each for each in document["endpoints"] if "metrics" not in each]
    answer.document = document


@spoils("iceberg.listed-tables-load", f"{_NAMESPACES}/shop/tables")
def _delta_table(answer: Answer) -> None:
    answer.document = {"identifiers": [{"namespace": ["shop"], "name": "orders"}]}


def _is_ours(asked: Asked) -> bool:
    """Return whether the client asks for a table in order to read it; the checks do not ask for credentials."""
    return "x-iceberg-access-delegation" in asked.headers


@spoils("iceberg.load", f"{_TABLES}/[^/]+")
def _number_as_location(answer: Answer) -> None:
    if not _is_ours(answer.asked):
        answer.document = answer.document | {"metadata-location": 5}


@spoils("iceberg.metadata", f"{_TABLES}/[^/]+")
def _unknown_schema(answer: Answer) -> None:
    document = answer.document
    if not _is_ours(answer.asked):
        document["metadata"]["current-schema-id"] = 99
        answer.document = document


@spoils("iceberg.read", f"{_TABLES}/[^/]+")
def _manifests_elsewhere(answer: Answer) -> None:
    document = answer.document
    if _is_ours(answer.asked):
        for snapshot in document["metadata"]["snapshots"]:
            snapshot["manifest-list"] += ".missing"
        answer.document = document


@spoils("iceberg.unknown-table", f"{_TABLES}/[^/]+", statuses=(404,))
def _other_code(answer: Answer) -> None:
    document = answer.document
    document["error"]["code"] = 500
    answer.document = document


@misreads("iceberg.page-size", _NAMESPACES)
def _larger_page(asked: Asked) -> None:
    if asked.query.get("pageSize") == "1":
        asked.query["pageSize"] = "2"


@spoils("iceberg.pages", _NAMESPACES)
def _last_page_is_empty(answer: Answer) -> None:
    document = answer.document
    if "pageSize" in answer.asked.query and document["next-page-token"] is None:
        answer.document = document | {"namespaces": []}
