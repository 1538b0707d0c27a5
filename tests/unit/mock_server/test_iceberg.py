"""The server's Iceberg catalog: its responses, and reads by pyiceberg through it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, UnauthorizedError

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.redact import Secret
from mock_server import iceberg_metadata
from mock_server.errors import ApiError, ConfigError
from mock_server.iceberg import error_body
from mock_server.s3 import S3Settings, S3Tables
from tests.s3 import KEYS, REGION, Bucket, s3_bucket
from tests.unit.mock_server.helpers import Api, error_of

WRITTEN_BY_SPARK = Path(__file__).parents[2] / "tables_iceberg"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the tables ``shop.orders``, which has two snapshots, and ``shop.empty`` with pyiceberg."""
    root = tmp_path_factory.mktemp("warehouse")
    catalog = SqlCatalog("own", uri="sqlite:///:memory:", warehouse=root.as_uri())
    catalog.create_namespace("shop")
    orders = catalog.create_table("shop.orders", ROWS.schema, location=(root / "s" / "shop" / "orders").as_uri())
    orders.append(ROWS.slice(0, 2))
    orders.append(ROWS.slice(2))
    catalog.create_table("shop.empty", ROWS.schema, location=(root / "s" / "shop" / "empty").as_uri())
    return root


@pytest.fixture
def api(warehouse: Path, start: Callable[..., Api]) -> Api:
    return start(warehouse)


@pytest.fixture
def catalog(api: Api) -> RestCatalog:
    return rest_catalog(api, "s")


def rest_catalog(api: Api, share: str, **properties: str) -> RestCatalog:
    profile = api.server.profile
    return RestCatalog(
        "shared", uri=profile["icebergEndpoint"], token=profile["bearerToken"], warehouse=share, **properties
    )


def get(api: Api, path: str, method: str = "GET", **options: Any) -> requests.Response:
    return api.session.request(method, api.server.profile["icebergEndpoint"] + path, **options)


def test_pyiceberg_lists_and_reads_a_local_table(catalog: RestCatalog) -> None:
    assert catalog.list_namespaces() == [("shop",)]
    assert sorted(catalog.list_tables("shop")) == [("shop", "empty"), ("shop", "orders")]
    assert catalog.table_exists("shop.orders")
    assert not catalog.table_exists("shop.none")
    table = catalog.load_table("shop.orders")
    assert table.scan().to_arrow().sort_by("id").equals(ROWS)
    assert len(table.snapshots()) == 2
    assert catalog.load_table("shop.empty").scan().to_arrow().num_rows == 0


def test_pyiceberg_sees_a_commit_immediately(warehouse: Path, catalog: RestCatalog, tmp_path: Path) -> None:
    folder = warehouse / "s" / "shop" / "orders" / "metadata"
    old = catalog.load_table("shop.orders")
    name = Path(old.metadata_location).name
    newer = folder / f"00009-{name.partition('-')[2]}"
    shutil.copy(folder / name, newer)
    try:
        assert Path(catalog.load_table("shop.orders").metadata_location).name == newer.name
    finally:
        newer.unlink()


def test_errors_have_the_form_of_the_iceberg_rest_catalog(api: Api, catalog: RestCatalog) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("none")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("shop.none")
    with pytest.raises(UnauthorizedError):
        RestCatalog("x", uri=api.server.profile["icebergEndpoint"], token="other", warehouse="s")
    response = get(api, "v1/shares/s/namespaces/shop/tables/none")
    assert response.status_code == 404
    assert response.json()["error"]["type"] == "NoSuchTableException"
    assert response.json()["error"]["code"] == 404
    assert get(api, "v1/config").json()["error"]["type"] == "BadRequestException"
    assert get(api, "v1/config", params={"warehouse": "none"}).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "v1/shares/s/namespaces"),
        ("POST", "v1/shares/s/namespaces/shop/tables"),
        ("POST", "v1/shares/s/namespaces/shop/tables/orders"),
        ("GET", "v1/shares/s/namespaces/shop/views"),
        ("GET", "v1"),
    ],
)
def test_unsupported_catalog_apis_are_404(api: Api, method: str, path: str) -> None:
    assert get(api, path, method).status_code == 404


def test_errors_have_the_types_of_the_iceberg_rest_catalog() -> None:
    for status, kind in ((405, "UnsupportedOperationException"), (501, "UnsupportedOperationException"),
                         (406, "UnsupportedOperationException"), (502, "ServerErrorException")):  # fmt: skip
        result = error_body(ApiError(status, "C", "x"), "iceberg-table")
        assert result == {"error": {"message": "x", "type": kind, "code": status}}


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("v1/config?warehouse=none", "NoSuchWarehouseException"),
        ("v1/shares/s/namespaces/none", "NoSuchNamespaceException"),
        ("v1/shares/none/namespaces", "NoSuchNamespaceException"),
        ("v1/shares/s/namespaces?parent=none", "NoSuchNamespaceException"),
        ("v1/shares/s/namespaces/none/tables", "NoSuchNamespaceException"),
        ("v1/shares/s/namespaces/none/tables/orders", "NoSuchTableException"),
        # Spark looks for its metadata table "snapshots" in this way.
        ("v1/shares/s/namespaces/shop%1Forders/tables/snapshots", "NoSuchTableException"),
        ("v1/shares/none/namespaces/shop/tables/orders", "NoSuchTableException"),
        ("v1/shares/s/namespaces/shop/tables/none", "NoSuchTableException"),
        ("v1/shares/s/namespaces/shop/views/orders", "NoSuchViewException"),
        ("v1/shares/s/namespaces/none/views/orders", "NoSuchViewException"),
        ("v1/shares/s/namespaces/shop/views", "UnsupportedOperationException"),
        ("v1/shares/s/namespaces/shop/tables/orders/plan", "UnsupportedOperationException"),
        ("v1/oauth/tokens", "UnsupportedOperationException"),
    ],
)
def test_error_names_what_does_not_exist(api: Api, path: str, kind: str) -> None:
    response = get(api, path)

    assert (response.status_code, response.json()["error"]["type"]) == (404, kind)


def test_prefix_may_be_one_percent_encoded_segment(warehouse: Path, start: Callable[..., Api]) -> None:
    # These names need to be encoded once in the path, and again if the prefix becomes one segment.
    names = ["a b", "100%25", "ä", "x|y", "s"]
    api = start({f"{name}.shop.orders": warehouse / "s" / "shop" / "orders" for name in names})
    for name in names:
        prefix = get(api, "v1/config", params={"warehouse": name}).json()["overrides"]["prefix"]
        assert prefix == f"shares/{quote(name, safe='')}"
        for sent in (prefix, quote(prefix, safe="")):
            assert get(api, f"v1/{sent}/namespaces/shop/tables/orders").status_code == 200, sent
            assert get(api, f"v1/{sent}/namespaces").json() == {"namespaces": [["shop"]]}
        assert rest_catalog(api, name).list_tables("shop") == [("shop", "orders")]
        with ds.SharingClient(api.server.profile) as client:
            assert client.table(f"{name}.shop.orders").to_arrow().num_rows == ROWS.num_rows


@pytest.mark.parametrize("path", ["v1/shares/s/namespaces/shop", "v1/shares/s/namespaces/shop/tables/orders"])
def test_head_request_shows_whether_a_table_exists(api: Api, path: str) -> None:
    assert get(api, path, "HEAD").status_code == 204
    assert get(api, f"{path}x", "HEAD").status_code == 404
    assert get(api, f"{path}x", "HEAD").content == b""


def test_names_are_case_insensitive(api: Api) -> None:
    assert get(api, "v1/config", params={"warehouse": "S"}).json()["overrides"] == {"prefix": "shares/s"}
    assert get(api, "v1/shares/S/namespaces/SHOP/tables/ORDERS").status_code == 200


def test_listings_are_paged_only_with_a_page_token(api: Api) -> None:
    path = "v1/shares/s/namespaces/shop/tables"
    assert "next-page-token" not in get(api, path, params={"pageSize": "1"}).json()
    first = get(api, path, params={"pageSize": "1", "pageToken": ""}).json()
    assert [one["name"] for one in first["identifiers"]] == ["empty"]
    second = get(api, path, params={"pageSize": "1", "pageToken": first["next-page-token"]}).json()
    assert [one["name"] for one in second["identifiers"]] == ["orders"]
    assert second["next-page-token"] is None
    assert get(api, path, params={"pageSize": "0", "pageToken": ""}).status_code == 400
    assert get(api, path, params={"pageToken": "other"}).status_code == 400
    assert get(api, "v1/shares/s/namespaces", params={"parent": "shop"}).json() == {"namespaces": []}


def test_page_size_fault_limits_the_catalogs_pages(api: Api) -> None:
    path = "v1/shares/s/namespaces/shop/tables"
    api.server.set_fault("page-size=1:1")
    assert len(get(api, path, params={"pageToken": ""}).json()["identifiers"]) == 1
    assert len(get(api, path, params={"pageToken": ""}).json()["identifiers"]) == 2


def test_snapshots_without_a_reference_are_omitted_on_request(api: Api) -> None:
    path = "v1/shares/s/namespaces/shop/tables/orders"
    whole = get(api, path).json()["metadata"]
    short = get(api, path, params={"snapshots": "refs"}).json()["metadata"]
    assert len(whole["snapshots"]) == 2
    assert [one["snapshot-id"] for one in short["snapshots"]] == [whole["current-snapshot-id"]]


def test_metrics_report_has_an_empty_response(api: Api) -> None:
    response = get(
        api, "v1/shares/s/namespaces/shop/tables/orders/metrics", "POST", json={"report-type": "scan-report"}
    )
    assert (response.status_code, response.content) == (204, b"")


def test_delta_endpoint_error_names_the_iceberg_catalog(api: Api) -> None:
    table = "shares/s/schemas/shop/tables/orders"
    assert api.get(table).json()["format"] == "iceberg"
    assert [one["name"] for one in api.get("shares/s/schemas/shop/tables").json()["items"]] == ["empty", "orders"]
    for response in (
        api.post(f"{table}/query"),
        api.get(f"{table}/metadata"),
        api.get(f"{table}/version"),
        api.get(f"{table}/changes?startingVersion=0"),
    ):
        assert error_of(response) == (501, "NOT_IMPLEMENTED")
        assert "Iceberg catalog" in response.json()["message"]


def test_table_in_both_formats_is_served_in_both(
    tables: Path, warehouse: Path, start: Callable[..., Api], tmp_path: Path
) -> None:
    both = tmp_path / "both"
    shutil.copytree(tables / "plain", both)
    shutil.copytree(warehouse / "s" / "shop" / "orders" / "metadata", both / "metadata")
    api = start({"s.shop.both": both})
    assert api.get("shares/s/schemas/shop/tables/both").json()["format"] == "delta,iceberg"
    assert api.get("shares/s/schemas/shop/tables/both/metadata").status_code == 200
    assert rest_catalog(api, "s").list_tables("shop") == [("shop", "both")]


def test_delta_tables_are_not_in_the_catalog(tables: Path, warehouse: Path, start: Callable[..., Api]) -> None:
    api = start({"s.shop.plain": tables / "plain", "s.shop.orders": warehouse / "s" / "shop" / "orders"})
    assert rest_catalog(api, "s").list_tables("shop") == [("shop", "orders")]
    error = get(api, "v1/shares/s/namespaces/shop/tables/plain").json()["error"]
    assert error["message"] == "Table 's.shop.plain' is not shared as an Iceberg table."


def test_profile_without_iceberg_tables_has_no_iceberg_endpoint(api: Api, start: Callable[..., Api]) -> None:
    assert "icebergEndpoint" in api.server.profile
    assert "icebergEndpoint" not in start().server.profile


def test_local_iceberg_tables_are_offered_to_this_machine_only(warehouse: Path) -> None:
    with pytest.raises(ConfigError, match="only with its own users"), mock_server.running(warehouse, host="0.0.0.0"):
        pass


def test_endpoints_must_not_overlap(warehouse: Path) -> None:
    with pytest.raises(ConfigError, match="must not overlap"), mock_server.running(warehouse, prefix="/iceberg/share"):
        pass


# --- the current metadata file ---


def test_metadata_file_with_the_highest_number_is_current() -> None:
    names = [
        "00002-b.metadata.json",
        "00010-a.metadata.json",
        "v9.metadata.json",
        "x.json",
        "00011-a.avro",
        ".00012-a.metadata.json.crc",
    ]
    assert iceberg_metadata.newest(names) == "00010-a.metadata.json"
    assert iceberg_metadata.newest(["snap-1.avro"]) is None


def test_version_hint_takes_precedence() -> None:
    files = {"v1.metadata.json": b'{"n": 1}', "v2.metadata.json": b'{"n": 2}', "version-hint.text": b"1\n"}
    assert iceberg_metadata.current(files, files.__getitem__, "t").content == {"n": 1}
    files["version-hint.text"] = b"7"
    assert iceberg_metadata.current(files, files.__getitem__, "t").content == {"n": 2}


@pytest.mark.parametrize("name", ["v1.gz.metadata.json", "00001-a.metadata.json.gz"])
def test_compressed_metadata_is_read(name: str) -> None:
    files = {name: gzip.compress(b'{"n": 1}')}
    assert iceberg_metadata.current(files, files.__getitem__, "t") == (name, {"n": 1})


@pytest.mark.parametrize(
    "files", [{}, {"v1.metadata.json": b"{"}, {"v1.metadata.json": b"[]"}, {"v1.gz.metadata.json": b"{}"}]
)
def test_damaged_metadata_is_an_error(files: dict[str, bytes]) -> None:
    with pytest.raises(ApiError, match="'t'"):
        iceberg_metadata.current(files, files.__getitem__, "t")


# --- tables in S3 ---


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """A bucket with tables written by Spark. They are at the locations that their metadata states."""
    with s3_bucket("lake") as bucket:
        for name in ("lineage", "plain"):
            folder = WRITTEN_BY_SPARK / name / "table"
            for path in folder.rglob("*.*"):
                bucket.put(f"{name}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        yield bucket


@pytest.fixture
def stored(bucket: Bucket, start: Callable[..., Api]) -> Api:
    settings = S3Settings(
        endpoint=bucket.endpoint,
        region=REGION,
        access_key_id=KEYS["aws_access_key_id"],
        secret_access_key=Secret(KEYS["aws_secret_access_key"]),
    )
    return start(
        {"s.shop.plain": "s3://lake/plain", "s.shop.lineage": "s3://lake/lineage"}, s3=settings, credentials_ttl=900
    )


def test_pyiceberg_reads_a_table_that_spark_wrote_to_s3(stored: Api) -> None:
    rows = rest_catalog(stored, "s").load_table("shop.plain").scan().to_arrow()
    expected = pq.read_table(WRITTEN_BY_SPARK / "plain" / "rows-current.parquet")
    assert rows.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()


def test_credentials_are_temporary_and_limited_to_the_table(stored: Api) -> None:
    content = get(stored, "v1/shares/s/namespaces/shop/tables/plain").json()
    assert (
        content["metadata-location"] == json.loads((WRITTEN_BY_SPARK / "plain/expected.json").read_text())["metadata"]
    )
    (credentials,) = content["storage-credentials"]
    assert credentials["prefix"] == "s3://lake/plain/"
    assert credentials["config"] == content["config"]
    assert content["config"].keys() == {
        "s3.access-key-id",
        "s3.secret-access-key",
        "s3.session-token",
        "s3.session-token-expires-at-ms",
        "s3.endpoint",
        "s3.path-style-access",
        "client.region",
    }
    assert content["config"]["s3.secret-access-key"] != KEYS["aws_secret_access_key"]


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "a configuration file"])
def test_store_of_the_environment_is_vended(
    bucket: Bucket, start: Callable[..., Api], variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name.upper(), value)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    # The token service has no real endpoint here.
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", bucket.endpoint)
    if variable.startswith("AWS"):
        monkeypatch.setenv(variable, bucket.endpoint)
    else:
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {bucket.endpoint}\n")
    api = start({"s.shop.plain": "s3://lake/plain"}, credentials_ttl=900)

    config = get(api, "v1/shares/s/namespaces/shop/tables/plain").json()["config"]

    assert config["s3.endpoint"] == bucket.endpoint
    assert config["s3.path-style-access"] == "true"
    assert config["client.region"] == "eu-north-1"
    assert rest_catalog(api, "s").load_table("shop.plain").scan().to_arrow().num_rows > 0


def test_amazons_own_store_has_no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    settings = S3Settings(region="eu-central-1", access_key_id="k", secret_access_key=Secret("s"))
    assert S3Tables(settings).client_properties() == {"client.region": "eu-central-1"}


def test_azure_and_google_tables_get_their_store_properties(warehouse: Path, start: Callable[..., Api]) -> None:
    vendors = {
        "abfss": lambda location, lifetime: {"azureUserDelegationSas": {"sasToken": f"sas {location}"}},
        "gs": lambda location, lifetime: {"gcpOauthToken": {"oauthToken": f"token {location}"}},
    }
    orders = warehouse / "s" / "shop" / "orders"
    entries = [mock_server.catalog.entry("s", "shop", name, orders) for name in ("azure", "google")]
    places = ["abfss://files@account.dfs.core.windows.net/orders", "gs://files/orders"]
    shared = mock_server.catalog.build(
        mock_server.catalog.dataclasses.replace(entry, storage=place)
        for entry, place in zip(entries, places, strict=True)
    )
    api = start(shared, vendors=vendors)
    azure = get(api, "v1/shares/s/namespaces/shop/tables/azure").json()["config"]
    google = get(api, "v1/shares/s/namespaces/shop/tables/google").json()["config"]
    account = "account.dfs.core.windows.net"
    assert azure[f"adls.sas-token.{account}"] == f"sas {places[0]}"
    assert azure.keys() == {f"adls.sas-token.{account}", f"adls.sas-token-expires-at-ms.{account}"}
    assert google["gcs.oauth2.token"] == f"token {places[1]}"
    assert int(google["gcs.oauth2.token-expires-at"]) > 0
