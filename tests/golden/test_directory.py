"""The golden corpus through directory access, which reads the tables' own logs, locally and in S3: the rows are the
same as by URL."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import boto3
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.redact import Secret
from mock_server import catalog
from mock_server.s3 import S3Settings
from tests.effort import sample
from tests.golden import corpus
from tests.golden.test_golden import LOG_ONLY, READABLE, REFUSED, TABLES, Served, assert_matches, shared_name
from tests.versions import is_too_new

pytestmark = pytest.mark.golden
DIRECTORY = ds.ReadOptions(access_mode=ds.AccessMode.DIR, max_attempts=2)
CASES = [
    (name, version)
    for name in READABLE
    if not is_too_new(name)
    for version in sorted({*TABLES[name].versions, TABLES[name].latest_version})
]
KEYS = {"aws_access_key_id": "planted-key", "aws_secret_access_key": "planted-secret"}
# These tables have every kind of log and file name. The whole corpus would take too long, as the S3 server of the tests
# is slow.
IN_S3 = [
    name
    for name in (
        "app-txn-checkpoint",
        "basic-with-vacuum-protocol-check-feature",
        "cdf-column-mapping-name-mode",
        "cdf-table-with-dv.v4",
        "compacted-log-files-table.v10",
        "corrupted-last-checkpoint-kernel",
        "crc-full",
        "dat-multi_partitioned_2",
        "data-reader-escaped-chars",
        "log-replay-special-characters",
        "multi-part-checkpoint",
        "table-with-dv-small.spark",
        "type-widening",
        "v2-checkpoint-json",
        "v2-checkpoints-json-with-last-checkpoint",
        "v2-checkpoints-parquet-without-sidecars",
    )
    if name in TABLES
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("golden")
    root = base / "golden" / "corpus"
    root.mkdir(parents=True)
    for table in TABLES.values():
        table.stage(root / shared_name(table.name))
    with (
        mock_server.running(tables=base, local_directories=True) as server,
        ds.SharingClient(server.profile, options=DIRECTORY) as client,
    ):
        yield Served(root, client)


@pytest.fixture(scope="module")
def in_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("golden-s3")
    store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    try:
        bucket = boto3.resource("s3", endpoint_url=endpoint, region_name="us-east-1", **KEYS).create_bucket(
            Bucket="golden"
        )
        for name in IN_S3:
            root = TABLES[name].stage(base / shared_name(name))
            for path in sorted(path for path in root.rglob("*") if path.is_file()):
                bucket.upload_file(str(path), path.relative_to(base).as_posix())
        tables = {f"golden.corpus.{shared_name(name)}": f"s3://golden/{shared_name(name)}" for name in IN_S3}
        settings = S3Settings(
            endpoint=endpoint, region="us-east-1", access_key_id="planted-key", secret_access_key=Secret("planted")
        )
        options = dataclasses.replace(DIRECTORY, storage_options={"endpoint": endpoint, "region": "us-east-1"})
        with (
            mock_server.running(tables=catalog.from_mapping(tables), s3=settings) as server,
            ds.SharingClient(server.profile, options=options) as client,
        ):
            yield Served(base, client)
    finally:
        store.stop()


@pytest.mark.parametrize(("name", "version"), sample(CASES, 2))
def test_golden_version_is_read_from_its_directory(served: Served, name: str, version: int) -> None:
    table = TABLES[name]
    scan = served.table(name).scan(version=version)
    if "refuse" in table.versions.get(version, {}):
        with pytest.raises(DeltaSharingError):
            scan.to_arrow()
        return
    assert_matches(table, version, scan.to_arrow())
    assert "access: the table's directory, file://" in scan.explain()


@pytest.mark.filterwarnings("ignore::delta_sharing_client.delta.log.log_files.LastCheckpointWarning")
@pytest.mark.parametrize("name", sample(IN_S3, 4))
def test_golden_table_in_s3_has_the_rows_read_by_url(in_s3: Served, name: str) -> None:
    table = in_s3.table(name)
    by_url = dataclasses.replace(table.options, access_mode=ds.AccessMode.URL)
    direct = table.scan()

    rows = direct.to_arrow()

    assert "access: the table's directory, s3://golden/" in direct.explain()
    assert_matches(TABLES[name], TABLES[name].latest_version, rows)
    assert rows.equals(table.scan(options=by_url).to_arrow())
    for query in TABLES[name].change_queries:
        if not query.get("refuse") and query.get("rows") is not None:
            start, end = int(str(query["start_version"])), int(str(query["end_version"]))
            changes = table.changes(starting_version=start, ending_version=end)
            assert "s3://golden/" in changes.explain()
            returned, expected = (
                changes.to_arrow(),
                table.changes(starting_version=start, ending_version=end, options=by_url).to_arrow(),
            )
            assert sorted(map(repr, returned.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.parametrize("name", [*REFUSED, *LOG_ONLY])
def test_unsupported_golden_directory_is_refused(served: Served, name: str) -> None:
    with pytest.raises(DeltaSharingError) as refusal:
        served.table(name).scan().to_arrow()
    assert len(str(refusal.value)) > 20


@pytest.mark.parametrize(
    ("name", "position"), [(name, i) for name, t in TABLES.items() for i in range(len(t.change_queries))]
)
def test_golden_changes_are_read_from_the_directory(served: Served, name: str, position: int) -> None:
    query = TABLES[name].change_queries[position]
    start, end = int(str(query["start_version"])), int(str(query["end_version"]))
    changes = served.table(name).changes(starting_version=start, ending_version=end)
    if query.get("refuse") or query.get("rows") is None:
        with pytest.raises(DeltaSharingError):
            changes.to_arrow()
        return
    rows = changes.to_arrow()
    assert "access: the table's directory, file://" in changes.explain()
    columns = [str(column) for column in query["columns"]]  # type: ignore[attr-defined]
    schema = pa.schema([rows.schema.field(column) for column in columns])
    canonical_rows = sorted(map(repr, corpus.arrow_rows(rows.select(columns))))
    assert canonical_rows == sorted(map(repr, corpus.json_rows(query["rows"], schema)))  # type: ignore[arg-type]
