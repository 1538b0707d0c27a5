"""Other Iceberg clients read from our server, and our client reads from Iceberg's server: ``bash scripts/iceberg``.

Iceberg's Spark runtime wrote the tables (``tests/tables_iceberg``); a local S3 server stores them.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests

import delta_sharing_client as ds
import mock_server
from mock_server import demo
from tests.iceberg_corpus import BUCKET, IcebergTable, store, tables, upload
from tests.s3 import KEYS, REGION, Bucket, s3_bucket

SERVER = os.environ.get("ICEBERG_SERVER_CLASSPATH")
SPARK_PYTHON = os.environ.get("ICEBERG_SPARK_PYTHON")
GO_READER = os.environ.get("ICEBERG_GO_READER")
READER = pathlib.Path(__file__).parent / "read_iceberg.py"
DUCKDB_READER = pathlib.Path(__file__).parent / "read_iceberg_duckdb.py"
TABLES = tables()
LINEAGE = ["_row_id", "_last_updated_sequence_number"]
OF_VERSION_3 = {table.name for table in TABLES if table.metadata["format-version"] == 3}
# What iceberg-go 0.7.0 and DuckDB 1.5.5 do not return as Spark does. The tests fail for a table that they read right.
OTHERWISE = {
    "go": {
        "equality-deletes-evolved": "refuses files that are older than a column of an equality delete",
        "hive-files": "returns nulls for columns of which a file only has the partition value",
        "name-mapping": "refuses a file in which some columns have no field id",
        "partition-values": "returns the values of the file, not of the partition",
        "variant": "returns the encoded values",
    },
    "duckdb": {
        "equality-deletes-evolved": "an internal error about types",
        "equality-deletes-partitioned": "applies an equality delete to other partitions",
        "partition-values": "returns the values of the file, not of the partition",
        "uuids": "an internal error about nulls",
        "variant": "cannot convert the type to Arrow",
        "widened-deletes": "an internal error about nulls",
        "widened-vectors": "an internal error about nulls",
    },
}
by_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)

pytestmark = pytest.mark.skipif(
    not (SERVER and SPARK_PYTHON and GO_READER),
    reason="ICEBERG_SERVER_CLASSPATH, ICEBERG_SPARK_PYTHON and ICEBERG_GO_READER are not set; see scripts/iceberg",
)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_bucket(BUCKET) as bucket:
        upload(TABLES, bucket)
        yield bucket


@pytest.fixture(scope="module")
def rows_of_spark(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A directory with the rows that other clients read through our server's catalog, one file per table and client:
    the name of a file of Spark ends with "parquet", others with the name of the client."""
    folder = tmp_path_factory.mktemp("spark")
    shared = {f"s.made.{table.name}": table.location for table in TABLES}
    # The table of the demo, which our own code writes.
    demo.build(folder / "demo")
    shared["s.made.refunds"] = str(folder / "demo" / "lake" / "refunds")
    with mock_server.running(shared, s3=store(bucket)) as server:
        profile = server.profile
        arguments = [profile["icebergEndpoint"], profile["bearerToken"], "s", "made", str(folder)]
        environment = {**os.environ, "PYSPARK_PYTHON": str(SPARK_PYTHON)}
        for command in ([SPARK_PYTHON, READER], [GO_READER], [SPARK_PYTHON, DUCKDB_READER]):
            subprocess.run([*map(str, command), *arguments], check=True, timeout=280, env=environment)
        ours = ds.SharingClient(profile).table("s.made.refunds").scan(row_lineage=True).to_arrow()
    pq.write_table(ours, folder / "ours.parquet")
    return folder


@by_table
def test_spark_reads_the_rows_through_our_catalog(rows_of_spark: pathlib.Path, table: IcebergTable) -> None:
    if table.expected["current_snapshot"] is None:
        assert pq.read_table(rows_of_spark / f"{table.name}.parquet").num_rows == 0
        return
    rows = pq.read_table(rows_of_spark / f"{table.name}.parquet")
    assert (LINEAGE[0] in rows.column_names) is (table.name in OF_VERSION_3)
    assert_same_rows(rows, table.rows())


@by_table
def test_spark_reads_metadata_tables_through_our_catalog(rows_of_spark: pathlib.Path, table: IcebergTable) -> None:
    counts = json.loads((rows_of_spark / f"{table.name}.json").read_text())
    metadata = table.metadata
    assert counts == {
        "snapshots": len(metadata.get("snapshots", ())),
        "history": len(metadata.get("snapshot-log", ())),
        "refs": len(metadata.get("refs", {})),
    }


@by_table
@pytest.mark.parametrize("client", OTHERWISE)
def test_other_clients_read_the_rows_through_our_catalog(
    rows_of_spark: pathlib.Path, table: IcebergTable, client: str
) -> None:
    is_same = _is_same(rows_of_spark / f"{table.name}.{client}", table)

    assert is_same is (table.name not in OTHERWISE[client])


def _is_same(path: pathlib.Path, table: IcebergTable) -> bool:
    """Return whether a client returned the rows of a table as Spark does."""
    if not path.exists():
        return False
    rows = pa.ipc.open_file(path).read_all()
    if table.expected["current_snapshot"] is None:
        return rows.num_rows == 0
    expected = table.rows().drop_columns([name for name in LINEAGE if name in table.rows().column_names])
    if rows.column_names != expected.column_names:
        return False
    return sorted(map(_shown, rows.to_pylist())) == sorted(map(_shown, expected.to_pylist()))


def _shown(row: dict[str, object]) -> str:
    # UUIDs are strings in Spark.
    return repr({name: str(value) if isinstance(value, uuid.UUID) else value for name, value in row.items()})


@pytest.mark.parametrize("client", OTHERWISE)
def test_other_clients_read_the_demo_table(rows_of_spark: pathlib.Path, client: str) -> None:
    ours = pq.read_table(rows_of_spark / "ours.parquet").drop_columns(LINEAGE)
    rows = pa.ipc.open_file(rows_of_spark / f"refunds.{client}").read_all()
    assert rows.column_names == ours.column_names
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, ours.to_pylist()))


def test_spark_reads_the_demo_table_with_its_lineage(rows_of_spark: pathlib.Path) -> None:
    rows = pq.read_table(rows_of_spark / "refunds.parquet")
    assert len(rows) == 285
    assert set(rows[LINEAGE[1]].to_pylist()) == {1, 2, 4}
    assert_same_rows(rows, pq.read_table(rows_of_spark / "ours.parquet"))


@pytest.fixture(scope="module")
def client(bucket: Bucket, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharingClient]:
    """A client that uses Iceberg's REST test server as its catalog; the tables are registered there."""
    folder = tmp_path_factory.mktemp("catalog")
    with (
        iceberg_server(bucket, folder) as uri,
        mock_server.running({}, demo=False, volumes={"s.made.x": folder}) as server,
    ):
        session = requests.Session()
        session.trust_env = False
        session.post(f"{uri}v1/namespaces", json={"namespace": ["made"]}).raise_for_status()
        for table in TABLES:
            body = {"name": table.name, "metadata-location": table.expected["metadata"]}
            session.post(f"{uri}v1/namespaces/made/register", json=body).raise_for_status()
        # This catalog returns keys without the endpoint of the store.
        options = ds.ReadOptions(storage_options=bucket.storage_options)
        with ds.SharingClient({**server.profile, "icebergEndpoint": uri}, options) as client:
            yield client


@by_table
def test_our_client_reads_from_the_iceberg_server(client: ds.SharingClient, table: IcebergTable) -> None:
    rows = client.table(f"s.made.{table.name}").scan(row_lineage=table.name in OF_VERSION_3).to_arrow()
    if table.expected["current_snapshot"] is None:
        assert rows.num_rows == 0
    else:
        assert_same_rows(rows, table.rows())


@contextlib.contextmanager
def iceberg_server(bucket: Bucket, folder: pathlib.Path) -> Iterator[str]:
    """Run Iceberg's REST test server on a free port; its "load table" responses contain the keys of the store."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:file:{folder}/catalog.db",
        "jdbc.schema-version": "V1",
        "warehouse": f"s3://{bucket.name}",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": bucket.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": KEYS["aws_access_key_id"],
        "s3.secret-access-key": KEYS["aws_secret_access_key"],
        "client.region": REGION,
        "include-credentials": "true",
        "rest.port": str(port),
    }
    # Each property becomes an environment variable: a hyphen becomes two underscores, and a dot one.
    settings = {
        f"CATALOG_{name.replace('-', '__').replace('.', '_').upper()}": value for name, value in properties.items()
    }
    command = ["java", "-cp", str(SERVER), "org.apache.iceberg.rest.RESTCatalogServer"]
    log = folder / "server.log"
    with log.open("wb") as output, subprocess.Popen(command, env={**os.environ, **settings}, stderr=output) as process:
        try:
            uri = f"http://127.0.0.1:{port}/"
            for _ in range(600):
                with contextlib.suppress(requests.ConnectionError):
                    requests.get(f"{uri}v1/config", timeout=5)
                    break
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield uri
        finally:
            process.kill()


def assert_same_rows(rows: pa.Table, expected: pa.Table) -> None:
    columns = [name for name in expected.column_names if name in rows.column_names]
    assert [name for name in rows.column_names if name in expected.column_names or name not in LINEAGE] == columns
    assert set(expected.column_names) - set(columns) <= set(LINEAGE)
    rows = rows.select(columns)
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, expected.select(columns).to_pylist()))
