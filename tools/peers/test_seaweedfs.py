"""Our client reads from an Iceberg catalog that is neither ours nor Iceberg's own: ``bash scripts/iceberg``.

SeaweedFS signs recipients in with OAuth2, and gives credentials for the files of one table. Spark and pyiceberg write
the tables; the expected rows are those that they were told to write.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.exceptions
import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog import load_catalog

import delta_sharing_client as ds
import mock_server
from tests.http_server import Exchange, HttpServer
from tests.s3 import REGION
from tools.peers import seaweedfs
from tools.peers.seaweedfs import READER, STRANGER, WAREHOUSE, WRITER, Seaweedfs

SPARK_PYTHON = os.environ.get("ICEBERG_SPARK_PYTHON")
SPARK_WRITER = pathlib.Path(__file__).parent / "write_iceberg.py"
DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}
NAMES = {number: f"n{number}" for number in range(300)}
MERGED = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
# Spark writes deletes as position delete files in format version 2, and as deletion vectors in version 3.
OF_SPARK = {
    "positions": {number: name for number, name in NAMES.items() if number % 7 != 2 and number % 11 != 2},
    "vectors": {number: "changed" if number % 11 == 2 else name for number, name in NAMES.items() if number % 7 != 2},
}
STATEMENTS = [
    f"CREATE TABLE lake.made.positions (id BIGINT, name STRING, part INT) USING iceberg PARTITIONED BY (part) "
    f"TBLPROPERTIES ('format-version'='2', {MERGED})",
    f"CREATE TABLE lake.made.vectors (id BIGINT, name STRING) USING iceberg "
    f"TBLPROPERTIES ('format-version'='3', {MERGED})",
    "INSERT INTO lake.made.positions SELECT id, concat('n', id), CAST(id % 3 AS INT) FROM range(300)",
    "DELETE FROM lake.made.positions WHERE id % 7 = 2",
    "DELETE FROM lake.made.positions WHERE id % 11 = 2",
    "INSERT INTO lake.made.vectors SELECT /*+ COALESCE(1) */ id, concat('n', id) FROM range(300)",
    "DELETE FROM lake.made.vectors WHERE id % 7 = 2",
    "UPDATE lake.made.vectors SET name = 'changed' WHERE id % 11 = 2",
]

pytestmark = pytest.mark.skipif(
    not (seaweedfs.PROGRAM and SPARK_PYTHON),
    reason="SEAWEEDFS and ICEBERG_SPARK_PYTHON are not set; see scripts/iceberg",
)


def rows(names: dict[int, str]) -> pa.Table:
    return pa.table({"id": pa.array(names, pa.int64()), "name": list(names.values())})


def write(server: Seaweedfs) -> None:
    """Write tables with pyiceberg: ``sales.orders`` has several snapshots, ``deep.er.t`` a namespace of two levels."""
    catalog = load_catalog("lake", **server.properties)
    for namespace in ("made", "sales", "deep", "deep.er"):
        catalog.create_namespace(namespace)
    orders = catalog.create_table("sales.orders", schema=rows(NAMES).schema)
    for start in range(0, 300, 50):
        orders.append(rows(NAMES).slice(start, 50))
    orders.delete("id < 20")
    catalog.create_table("sales.emptied", schema=rows(NAMES).schema)
    catalog.create_table("deep.er.t", schema=rows(NAMES).schema).append(rows({1: "one"}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweedfs]:
    with seaweedfs.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        write(server)
        command = [str(SPARK_PYTHON), str(SPARK_WRITER), json.dumps(server.properties), json.dumps(STATEMENTS)]
        subprocess.run(command, check=True, timeout=280)
        yield server


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a sharing server without tables. It does not check tokens, because they are another server's."""
    volumes = {f"{WAREHOUSE}.files.x": tmp_path_factory.mktemp("volume")}
    with mock_server.running({}, volumes=volumes, check_token=False) as server:
        yield server.profile["endpoint"]


def client_of(server: Seaweedfs, sharing: str, key: tuple[str, str] = READER, **options: Any) -> ds.SharingClient:
    profile = {
        "shareCredentialsVersion": 2,
        "type": "oauth_client_credentials",
        "endpoint": sharing,
        "icebergEndpoint": server.catalog,
        "tokenEndpoint": server.sign_in,
        "clientId": key[0],
        "clientSecret": key[1],
    }
    return ds.SharingClient(profile, ds.ReadOptions(**options))


@pytest.fixture
def client(server: Seaweedfs, sharing: str) -> Iterator[ds.SharingClient]:
    with client_of(server, sharing) as client:
        yield client


def names_of(table: pa.Table) -> dict[int, str]:
    assert len(set(table["id"].to_pylist())) == len(table)
    return dict(zip(table["id"].to_pylist(), table["name"].to_pylist(), strict=True))


def test_namespaces_and_tables_are_listed(client: ds.SharingClient) -> None:
    assert {schema.name for schema in client.list_schemas(WAREHOUSE)} >= {"files", "made", "sales", "deep.er"}
    assert {str(table.full_name) for table in client.list_all_tables(WAREHOUSE)} == {
        "lake.made.positions", "lake.made.vectors", "lake.sales.emptied", "lake.sales.orders", "lake.`deep.er`.t",
    }  # fmt: skip
    assert [table.name for table in client.list_tables("lake.sales")] == ["emptied", "orders"]


@pytest.mark.parametrize("name", OF_SPARK)
def test_rows_are_those_that_spark_did_not_delete(client: ds.SharingClient, name: str) -> None:
    table = client.table(f"{WAREHOUSE}.made.{name}")

    assert names_of(table.to_arrow()) == OF_SPARK[name]
    summary = table.history()[-1].operation_parameters or {}
    assert int(summary["total-position-deletes"]) > 0
    assert (int(summary.get("added-dvs", 0)) > 0) is (name == "vectors")
    assert names_of(table.scan(filter="id < 20 AND name <> 'n3'").to_arrow()) == {
        number: text for number, text in OF_SPARK[name].items() if number < 20 and text != "n3"
    }
    if name == "vectors":
        lineage = table.scan(row_lineage=True).to_arrow()
        assert lineage["_row_id"] == lineage["id"]


def test_rows_are_those_that_pyiceberg_wrote(client: ds.SharingClient) -> None:
    orders = client.table("lake.sales.orders")

    assert names_of(orders.to_arrow()) == {number: name for number, name in NAMES.items() if number >= 20}
    versions = [entry.version for entry in orders.history()]
    assert names_of(orders.scan(version=versions[1]).to_arrow()) == {n: NAMES[n] for n in range(100)}
    assert client.table("lake.sales.emptied").to_arrow().num_rows == 0
    assert names_of(client.table("lake.`deep.er`.t").to_arrow()) == {1: "one"}


def test_credentials_are_the_catalogs_and_for_one_table(server: Seaweedfs) -> None:
    store, config = store_of(server, "sales", "orders")
    location = config["location"].removeprefix(f"s3://{WAREHOUSE}/")

    assert store.list_objects_v2(Bucket=WAREHOUSE, Prefix=location)["KeyCount"] > 6
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        store.list_objects_v2(Bucket=WAREHOUSE, Prefix="made/")
    own = boto3.client("s3", endpoint_url=server.store, region_name=REGION, **_boto(READER))
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        own.list_objects_v2(Bucket=WAREHOUSE, Prefix=location)


def test_listing_of_several_pages_is_complete(server: Seaweedfs, client: ds.SharingClient) -> None:
    catalog = load_catalog("lake", **server.properties)
    names = [f"page{number}" for number in range(1001)]
    for name in names:
        catalog.create_namespace(name)

    assert server.get(f"/v1/{WAREHOUSE}/namespaces").json()["next-page-token"]
    listed = [schema.name for schema in client.list_schemas(WAREHOUSE)]
    assert sorted(name for name in listed if name in names) == sorted(names)


# --- renewal ---


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweedfs]:
    """A server whose tokens and credentials expire after seconds."""
    with seaweedfs.seaweedfs(tmp_path_factory.mktemp("hasty"), token_seconds=8, key_seconds=8) as server:
        write(server)
        yield server


LIFETIMES = {
    "before they expire": ("", ""),
    "after the store's refusal": ('"s3.session-token-expires-at-ms"', '"unknown"'),
    "after the catalog's refusal": ('"expires_in":8', '"expires_in":3600'),
}


@pytest.mark.parametrize("kind", LIFETIMES)
def test_token_and_credentials_are_renewed_during_a_read(hasty: Seaweedfs, sharing: str, kind: str) -> None:
    with relayed(hasty, *LIFETIMES[kind]) as (catalog, loads, reads):
        options = {"max_concurrent_requests": 1, "max_bytes_in_flight": 1, "batch_rows": 50}
        with (
            client_of(catalog, sharing, **options) as client,
            client.table("lake.sales.orders").scan().to_batches() as batches,
        ):
            first = next(batches)
            store, config = store_of(hasty, "sales", "orders")
            path = config["location"].removeprefix(f"s3://{WAREHOUSE}/")
            assert store.list_objects_v2(Bucket=WAREHOUSE, Prefix=path)["KeyCount"] > 6
            time.sleep(int(config["s3.session-token-expires-at-ms"]) / 1000 + 1 - time.time())
            # The store's word for credentials that have expired.
            with pytest.raises(botocore.exceptions.ClientError, match="InvalidAccessKeyId"):
                store.list_objects_v2(Bucket=WAREHOUSE, Prefix=path)
            loaded, read = len(loads), len(reads)
            table = pa.Table.from_batches([first, *batches])

    assert names_of(table) == {number: name for number, name in NAMES.items() if number >= 20}
    renewal = [401, 200] if kind == "after the catalog's refusal" else [200]
    assert loads[loaded:][: len(renewal)] == renewal
    assert {status for status in reads[:read] if status >= 400} == set()
    assert {status for status in reads[read:] if status >= 400} == (
        {403} if kind == "after the store's refusal" else set()
    )


@contextlib.contextmanager
def relayed(server: Seaweedfs, stated: str, instead: str) -> Iterator[tuple[Seaweedfs, list[int], list[int]]]:
    """Relay requests to a catalog, whose responses then have a text ``instead`` of another, and to its store. Also
    yields the statuses of loading a table, and of the store."""
    loads: list[int] = []
    reads: list[int] = []

    def relay(exchange: Exchange, address: str) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            kept = {name: value for name, value in exchange.headers.items() if name != "Accept-Encoding"}
            url = f"{address}{exchange.path}"
            return session.request(exchange.command, url, headers=kept, data=exchange.content, timeout=10)

    def of_catalog(exchange: Exchange) -> None:
        response = relay(exchange, server.catalog)
        if exchange.path.endswith("/tables/orders"):
            loads.append(response.status_code)
        text = response.text.replace(server.store, store.url)
        text = text.replace(stated, instead) if stated else text
        exchange.reply(response.status_code, text.encode(), {"Content-Type": "application/json"})

    def of_store(exchange: Exchange) -> None:
        response = relay(exchange, server.store)
        reads.append(response.status_code)
        kept = ("Content-Range", "Content-Type", "ETag", "Last-Modified")
        headers = {name: response.headers[name] for name in kept if name in response.headers}
        exchange.reply(response.status_code, response.content, headers)

    with HttpServer(of_store) as store, HttpServer(of_catalog) as catalog:
        yield Seaweedfs(catalog.url, store.url), loads, reads


# --- refusals ---


@pytest.mark.parametrize("name", ["lake.sales.orders", "lake.sales.none"])
def test_wrong_secret_is_refused(server: Seaweedfs, sharing: str, name: str) -> None:
    with client_of(server, sharing, (READER[0], "planted-wrong")) as client:
        with pytest.raises(ds.AuthError, match=r"no token .*Invalid client credentials") as refused:
            client.table(name).to_arrow()
        with pytest.raises(ds.AuthError, match="no token"):
            client.list_all_tables(WAREHOUSE)
    assert "planted-wrong" not in str(refused.value)


def test_catalog_shows_a_recipient_nothing_without_grants(server: Seaweedfs, sharing: str) -> None:
    with client_of(server, sharing, STRANGER) as client:
        assert client.list_all_tables(WAREHOUSE) == []
        for table in (client.table("lake.sales.orders"), client.table("lake.sales.orders", format="iceberg")):
            with pytest.raises(ds.NotFoundError, match="404"):
                table.to_arrow()


def test_catalog_without_credentials_is_named(sharing: str, tmp_path: pathlib.Path) -> None:
    with seaweedfs.seaweedfs(tmp_path, trusts_catalog=False) as server:
        write(server)
        table = "/v1/lake/namespaces/sales/tables/orders"
        assert server.get(table, **DELEGATION).json()["config"] == {}
        with (
            client_of(server, sharing) as client,
            pytest.raises(ds.ProtocolError, match=r"must give credentials .* found none\. If you have credentials"),
        ):
            client.table("lake.sales.orders").to_arrow()
        own = {"access_key_id": WRITER[0], "secret_access_key": WRITER[1], "endpoint": server.store, "region": REGION}
        with client_of(server, sharing, storage_options=own) as client:
            orders = client.table("lake.sales.orders").to_arrow()
        assert names_of(orders) == {number: name for number, name in NAMES.items() if number >= 20}


# --- the store ---


def store_of(server: Seaweedfs, namespace: str, table: str) -> tuple[Any, dict[str, str]]:
    """Return a client of the store with the credentials that the catalog gives for a table, and its configuration."""
    loaded = server.get(f"/v1/{WAREHOUSE}/namespaces/{namespace}/tables/{table}", **DELEGATION).json()
    config = loaded["config"]
    keys = _boto((config["s3.access-key-id"], config["s3.secret-access-key"]))
    token = config["s3.session-token"]
    store = boto3.client("s3", endpoint_url=server.store, region_name=REGION, aws_session_token=token, **keys)
    return store, {**config, "location": loaded["metadata"]["location"]}


def _boto(key: tuple[str, str]) -> dict[str, str]:
    return {"aws_access_key_id": key[0], "aws_secret_access_key": key[1]}
