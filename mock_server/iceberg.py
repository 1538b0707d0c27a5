"""The read-only Iceberg REST catalog of the shared Iceberg tables (Iceberg REST catalog API; OpenSharing, "TABLES").

A share is a warehouse; a schema is a namespace with one level. Clients read metadata, manifests and data files from the
table's own storage, with the credentials in the response to "load table".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from . import iceberg_metadata
from .access import Vending
from .catalog import Catalog, TableEntry, TableFormat
from .errors import ApiError, invalid, not_found, shown
from .faults import FaultSet
from .listings import next_page
from .s3 import is_s3

MAX_PAGE = 500
_PREFIX = "shares/"
_SHARE, _NAMESPACE = ("v1", "shares", "*"), ("v1", "shares", "*", "namespaces", "*")
_APIS: dict[tuple[str, ...], str] = {
    ("GET", "v1", "config"): "iceberg-config",
    ("GET", *_SHARE, "namespaces"): "iceberg-namespaces",
    ("GET", *_NAMESPACE): "iceberg-namespace",
    ("HEAD", *_NAMESPACE): "iceberg-namespace",
    ("GET", *_NAMESPACE, "tables"): "iceberg-tables",
    ("GET", *_NAMESPACE, "tables", "*"): "iceberg-table",
    ("HEAD", *_NAMESPACE, "tables", "*"): "iceberg-table",
    ("POST", *_NAMESPACE, "tables", "*", "metrics"): "iceberg-metrics",
    ("GET", *_NAMESPACE, "views", "*"): "iceberg-view",
    ("HEAD", *_NAMESPACE, "views", "*"): "iceberg-view",
}
_ENDPOINTS = [
    f"{method} /v1/{{prefix}}/{path}"
    for method, path in (
        ("GET", "namespaces"),
        ("GET", "namespaces/{namespace}"),
        ("HEAD", "namespaces/{namespace}"),
        ("GET", "namespaces/{namespace}/tables"),
        ("GET", "namespaces/{namespace}/tables/{table}"),
        ("HEAD", "namespaces/{namespace}/tables/{table}"),
        ("POST", "namespaces/{namespace}/tables/{table}/metrics"),
    )
]
# The types of errors by status; clients choose their exceptions by these types.
_ERROR_TYPES = {400: "BadRequestException", 401: "NotAuthorizedException", 403: "ForbiddenException"}
# What does not exist if an API responds with 404 (Iceberg REST catalog API). A table does not exist either if its
# namespace does not; clients try another meaning of the name then, such as Spark's metadata table "snapshots".
_MISSING = {
    "iceberg-config": "NoSuchWarehouseException",
    "iceberg-table": "NoSuchTableException",
    "iceberg-metrics": "NoSuchTableException",
    "iceberg-view": "NoSuchViewException",
    "iceberg-other": "UnsupportedOperationException",
}
_SHARE_AT, _NAMESPACE_AT, _TABLE_AT = 2, 4, 6


def with_plain_prefix(segments: Sequence[str]) -> list[str]:
    """Return the segments of a path in which the prefix from the configuration is two segments: clients that are
    generated from the API's description send it as one, percent-encoded once more."""
    path = list(segments)
    if len(path) > 1 and path[0] == "v1" and path[1].startswith(_PREFIX):
        path[1:2] = [_PREFIX.rstrip("/"), unquote(path[1].removeprefix(_PREFIX))]
    return path


def api_of(method: str, segments: Sequence[str]) -> str:
    """Return the name of the API for this method and this path below the catalog's address; "iceberg-other" if
    unknown."""
    shape = list(segments)
    for place in (_SHARE_AT, _NAMESPACE_AT, _TABLE_AT):
        if len(shape) > place:
            shape[place] = "*"
    return _APIS.get((method, *shape), "iceberg-other")


def error_body(error: ApiError, api: str) -> dict[str, Any]:
    """Return an error of an API in the form of the catalog (``IcebergErrorResponse``)."""
    kind = _ERROR_TYPES.get(error.status, "ServerErrorException")
    if error.status == 404:
        kind = _MISSING.get(api, "NoSuchNamespaceException")
    elif error.status in (405, 406, 501):
        kind = "UnsupportedOperationException"
    return {"error": {"message": error.message, "type": kind, "code": error.status}}


class IcebergCatalog:
    """The APIs of the catalog."""

    def __init__(
        self,
        catalog: Callable[[], Catalog],
        faults: FaultSet,
        vending: Vending,
    ) -> None:
        self._catalog = catalog
        self._faults = faults
        self._s3 = vending.s3
        self._vending = vending

    def respond(self, api: str, segments: Sequence[str], query: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the response of an API; ``None`` for a response without a body. Raises `ApiError` if it fails."""
        if api == "iceberg-config":
            return self._config(query)
        if api == "iceberg-other":
            raise ApiError(404, "", "The Iceberg catalog, which is read-only, has no such API.")
        if api == "iceberg-view":
            raise not_found("The Iceberg catalog has no views.")
        share = self._catalog().share(segments[_SHARE_AT])
        if api == "iceberg-namespaces":
            return self._namespaces(share, query)
        _, schema = self._catalog().schema(share, segments[_NAMESPACE_AT])
        if api == "iceberg-namespace":
            return {"namespace": [schema], "properties": {}}
        if api == "iceberg-tables":
            return self._tables(share, schema, query)
        entry = self._catalog().table(share, schema, segments[_TABLE_AT])
        if TableFormat.ICEBERG not in entry.formats:
            raise not_found(f"Table '{entry.full_name}' is not shared as an Iceberg table.")
        return None if api == "iceberg-metrics" else self._load(entry, query)

    def _config(self, query: Mapping[str, str]) -> dict[str, Any]:
        warehouse = query.get("warehouse")
        if not warehouse:
            raise invalid("The parameter 'warehouse' must name a share.")
        share = self._catalog().share(warehouse)
        return {"defaults": {}, "overrides": {"prefix": f"{_PREFIX}{quote(share, safe='')}"}, "endpoints": _ENDPOINTS}

    def _namespaces(self, share: str, query: Mapping[str, str]) -> dict[str, Any]:
        parent = query.get("parent")
        if parent:
            self._catalog().schema(share, parent)
        names = [] if parent else [[schema] for schema in self._catalog().schemas_of(share)]
        return self._page("namespaces", f"namespaces of {share}", names, query)

    def _tables(self, share: str, schema: str, query: Mapping[str, str]) -> dict[str, Any]:
        identifiers = [
            {"namespace": [entry.schema], "name": entry.name}
            for entry in self._catalog().tables_of(share, schema)
            if TableFormat.ICEBERG in entry.formats
        ]
        return self._page("identifiers", f"iceberg tables of {share}/{schema}", identifiers, query)

    def _page(self, key: str, listing: str, items: list[Any], query: Mapping[str, str]) -> dict[str, Any]:
        # A request without a token (an empty one counts as a token) is for everything at once.
        token, text = query.get("pageToken"), query.get("pageSize", str(MAX_PAGE))
        if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
            raise invalid(f"The parameter 'pageSize' must be a positive number, not {shown(text)}.")
        if token is None:
            return {key: items}
        forced = self._faults.take("page-size")
        size = min(int(text[:9]), MAX_PAGE, int(forced.value) if forced else MAX_PAGE)
        page, following = next_page(listing.lower(), items, size, token or None)
        return {key: page, "next-page-token": following}

    def _load(self, entry: TableEntry, query: Mapping[str, str]) -> dict[str, Any]:
        folder = self._s3.folder(entry) if entry.storage and is_s3(entry.storage) else None
        if folder is None:
            local = entry.location / iceberg_metadata.FOLDER
            names, read = [path.name for path in local.iterdir()], lambda name: (local / name).read_bytes()
        else:
            names, read = (
                folder.names(iceberg_metadata.FOLDER),
                lambda name: folder.read(f"{iceberg_metadata.FOLDER}/{name}"),
            )
        name, metadata = iceberg_metadata.current(names, read, entry.full_name)
        if query.get("snapshots") == "refs":
            referenced = {ref.get("snapshot-id") for ref in (metadata.get("refs") or {}).values()}
            kept = [one for one in metadata.get("snapshots") or () if one.get("snapshot-id") in referenced]
            metadata = {**metadata, "snapshots": kept}
        location = str(metadata.get("location") or entry.storage).rstrip("/")
        config = self._credentials(entry)
        content: dict[str, Any] = {
            "metadata-location": f"{location}/{iceberg_metadata.FOLDER}/{name}",
            "metadata": metadata,
            "config": config,
        }
        if config:
            content["storage-credentials"] = [{"prefix": f"{location}/", "config": config}]
        return content

    def _credentials(self, entry: TableEntry) -> dict[str, str]:
        """Return the properties that a client needs to read the table's files; none for a local directory."""
        if entry.storage is None or entry.storage.startswith("file:"):
            return {}
        content = self._vending.credentials(entry.storage)
        until = str(content["expirationTime"])
        if (keys := content.get("awsTempCredentials")) is not None:
            return {
                "s3.access-key-id": keys["accessKeyId"],
                "s3.secret-access-key": keys["secretAccessKey"],
                "s3.session-token": keys["sessionToken"],
                "s3.session-token-expires-at-ms": until,
                **self._s3.client_properties(),
            }
        if (signature := content.get("azureUserDelegationSas")) is not None:
            account = entry.storage.partition("@")[2].partition("/")[0]
            return {
                f"adls.sas-token.{account}": signature["sasToken"],
                f"adls.sas-token-expires-at-ms.{account}": until,
            }
        return {"gcs.oauth2.token": content["gcpOauthToken"]["oauthToken"], "gcs.oauth2.token-expires-at": until}
