"""Iceberg and Delta tables in one share are read by the command line, listings, DuckDB, Polars and coroutines.

Iceberg's Spark runtime wrote the tables and the expected rows; a local S3 server stores them.
"""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.cli import main
from delta_sharing_client.cli.program import ExitCode
from tests.commands import succeed
from tests.iceberg.server import iceberg_server
from tests.iceberg.warehouse import rows_of
from tests.iceberg_corpus import BUCKET, IcebergTable, store, upload
from tests.s3 import s3_bucket
from tests.tables import TableWriter

NAMES = ["branches", "deletion-vectors", "equality-deletes", "identity-partitions", "lineage", "plain"]
LINEAGE = ["_row_id", "_last_updated_sequence_number"]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("delta")
    TableWriter(root / "orders", SCHEMA).insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    tables = [IcebergTable(name) for name in NAMES]
    with s3_bucket(BUCKET) as bucket:
        upload(tables, bucket)
        shared: dict[str, Any] = {f"demo.lake.{table.name}": table.location for table in tables}
        with mock_server.running({"demo.shop.orders": root / "orders", **shared}, s3=store(bucket)) as server:
            yield server


@pytest.fixture
def client(server: Any) -> ds.SharingClient:
    return ds.SharingClient(server.profile_path)


@pytest.fixture
def fails(server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command that must fail and return its error output."""
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(server.profile_path))

    def fails(code: ExitCode, *arguments: str) -> str:
        assert main(arguments) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        return printed.err

    return fails


@pytest.fixture
def run(server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command that must succeed and return its output."""
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(server.profile_path))
    return lambda *arguments: succeed(arguments, capsys)


def _expected(name: str, which: str = "current", *, lineage: bool = False) -> pa.Table:
    rows = IcebergTable(name).rows(which)
    return rows if lineage else rows.drop_columns([column for column in LINEAGE if column in rows.column_names])


# --- the command line ---


def test_commands_read_an_iceberg_table(run: Callable[..., str], tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"

    run("read", "demo.lake.lineage", "--row-lineage", "--to", str(target))
    assert rows_of(pq.read_table(target)) == rows_of(_expected("lineage", lineage=True))
    assert json.loads(run("count", "demo.lake.deletion-vectors", "--json"))["rows"] == len(
        _expected("deletion-vectors")
    )
    head = list(csv.reader(run("read", "demo.lake.plain", "--limit", "1").splitlines()))
    assert head[0] == ["id", "name", "flag"]
    assert len(head) == 2
    assert "Iceberg table's own files, in s3://lake/plain" in run("read", "demo.lake.plain", "--explain")
    files = json.loads(run("files", "demo.lake.lineage", "--filter", "p = 1", "--json"))
    assert {one["partition"]["p"] for one in files} == {"1"}


def test_commands_describe_an_iceberg_table(run: Callable[..., str]) -> None:
    output = json.loads(run("describe", "demo.lake.lineage", "--json"))

    assert (output["tableFormat"], output["formats"]) == ("iceberg", ["iceberg"])
    assert output["version"] == IcebergTable("lineage").expected["current_snapshot"]
    assert (output["format"], output["minReaderVersion"], output["readerFeatures"]) == (None, None, None)
    assert output["configuration"]["format-version"] == "3"
    assert [one["column"] for one in output["columns"]] == ["id", "v", "p"]
    assert json.loads(run("describe", "demo.shop.orders", "--json"))["tableFormat"] == "delta"
    versions = json.loads(run("history", "demo.lake.lineage", "--json"))
    assert [one["version"] for one in versions] == [one["id"] for one in IcebergTable("lineage").expected["snapshots"]]
    assert int(run("version", "demo.lake.lineage")) == output["version"]


@pytest.mark.parametrize(("version", "which"), [("audit", "branch-audit"), ("first", "tag-first"), ("main", "current")])
def test_commands_accept_branches_and_tags(run: Callable[..., str], version: str, which: str) -> None:
    lines = run("read", "demo.lake.branches", "--version", version, "--format", "jsonl").splitlines()
    results = [json.loads(line) for line in lines]
    expected = _expected("branches", which).to_pylist()

    assert sorted(map(repr, results)) == sorted(map(repr, expected))
    assert json.loads(run("count", "demo.lake.branches", "--version", version, "--json"))["rows"] == len(expected)
    snapshot = {one["name"]: one["snapshot"] for one in IcebergTable("branches").expected["refs"]}[version]
    assert json.loads(run("describe", "demo.lake.branches", "--version", version, "--json"))["version"] == snapshot
    assert json.loads(run("count", "demo.lake.branches", "--version", str(snapshot), "--json"))["rows"] == len(expected)


def test_listings_have_every_table_of_both_formats_once(run: Callable[..., str], client: ds.SharingClient) -> None:
    names = [f"demo.lake.{name}" for name in NAMES]

    assert sorted(one["table"] for one in json.loads(run("tables", "--json"))) == sorted([*names, "demo.shop.orders"])
    shown = json.loads(run("ls", "--json"))
    assert sorted(shown["demo"]["lake"]["tables"]) == NAMES
    assert shown["demo"]["shop"]["tables"] == ["orders"]
    assert sorted(json.loads(run("ls", "demo.lake", "--json"))["demo"]["lake"]["tables"]) == NAMES
    assert sorted(str(table) for table in client.list_all_tables()) == sorted([*names, "demo.shop.orders"])
    assert sorted(client["demo"]["lake"]) == NAMES


def test_tables_of_the_catalog_are_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with iceberg_server() as server:
        server.listed = ["Orders"]
        server.share("orders", dict(IcebergTable("plain").metadata))
        server.share("other", dict(IcebergTable("plain").metadata))
        profile = tmp_path / "p.share"
        profile.write_text(json.dumps(server.profile))

        def run(*arguments: str) -> Any:
            assert main(["--profile", str(profile), *arguments, "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        assert run("ls")["ice"]["n"]["tables"] == ["Orders", "other"]
        assert run("ls", "ice.n")["ice"]["n"]["tables"] == ["Orders", "other"]
        assert [one["name"] for one in run("describe", "ice.n")["assets"]] == ["ice.n.Orders", "ice.n.other"]
        assert [one["table"] for one in run("tables", "ice")] == ["ice.n.Orders", "ice.n.other"]
        assert list(ds.SharingClient(server.profile)["ice"]["n"]) == ["Orders", "other"]


# --- engines ---


@pytest.mark.parametrize("name", NAMES)
def test_every_output_has_the_rows_that_spark_reads(client: ds.SharingClient, name: str) -> None:
    scan, expected = client.table(f"demo.lake.{name}").scan(), rows_of(_expected(name))

    assert rows_of(scan.to_arrow()) == expected
    assert rows_of(pa.table(scan)) == expected
    assert rows_of(scan.to_polars().to_arrow().cast(scan.schema)) == expected
    assert rows_of(scan.to_polars(lazy=True).collect().to_arrow().cast(scan.schema)) == expected
    assert len(scan.to_pandas()) == scan.count() == len(expected)
    parts = [batch for part in scan.partitions(3) for batch in part.read()]
    assert rows_of(pa.Table.from_batches(parts, scan.schema)) == expected
    assert rows_of(asyncio.run(scan.to_arrow_async())) == expected


def test_duckdb_and_polars_push_filters_down(client: ds.SharingClient, server: Any) -> None:
    rows = _expected("lineage").to_pylist()
    expected = sorted(row["id"] for row in rows if row["p"] == 1 and row["v"] != "u2")
    connection = duckdb.connect()
    ds.attach(connection, server.profile_path)

    by_view = connection.sql("SELECT id FROM demo.lake.lineage WHERE p = 1 AND v <> 'u2' ORDER BY id").fetchall()
    assert [row[0] for row in by_view] == expected
    joined = connection.sql("SELECT count(*) FROM demo.lake.lineage l JOIN demo.shop.orders o ON l.id = o.id")
    assert joined.fetchall() == [(sum(row["id"] in (1, 2) for row in rows),)]
    assert ds.sql("SELECT count(*) FROM demo.lake.lineage", server.profile_path).fetchall() == [(len(rows),)]
    frame = ds.scan_polars(f"{server.profile_path}#demo.lake.lineage")
    returned = frame.filter((pl.col("p") == 1) & (pl.col("v") != "u2")).select("id").sort("id").collect()
    assert returned["id"].to_list() == expected


def test_coroutines_read_iceberg_tables_concurrently(client: ds.SharingClient) -> None:
    async def read() -> list[pa.Table]:
        scans = [client.table(f"demo.lake.{name}").scan(limit=3) for name in NAMES]
        return await asyncio.gather(*(scan.to_arrow_async() for scan in scans))

    for name, rows in zip(NAMES, asyncio.run(read()), strict=True):
        assert len(rows) == min(3, len(_expected(name)))
        assert set(rows_of(rows)) <= set(rows_of(_expected(name)))
