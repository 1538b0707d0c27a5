"""Reads are immutable values; calling one of their outputs executes them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest
from tests.quota import meets, met
from tests.regressions.hand_made import HandMadeTable

PROFILE = {"shareCredentialsVersion": 1, "endpoint": "http://127.0.0.1:1/", "bearerToken": "planted-token"}
snapshots = st.builds(
    ScanRequest,
    columns=st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    filter=st.none() | st.just(ds.col("a") > 1),
    limit=st.none() | st.integers(0, 9),
    version=st.none() | st.integers(0, 9),
    row_lineage=st.booleans(),
    response_format=st.sampled_from(ds.ResponseFormat),
)
changes = st.builds(
    ChangesRequest,
    starting_version=st.integers(0, 5),
    ending_version=st.none() | st.integers(5, 9),
    columns=st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    filter=st.none() | st.just(ds.col("a") > 1),
    limit=st.none() | st.integers(0, 9),
    response_format=st.sampled_from(ds.ResponseFormat),
)


@meets(filter=12, snapshot=10, changes=14)
@given(snapshots | changes)
def test_no_fluent_method_loses_a_field(request: ScanRequest | ChangesRequest) -> None:
    met("filter", request.filter is not None)
    met("snapshot" if isinstance(request, ScanRequest) else "changes")
    table = ds.SharingClient(PROFILE).table("s.s.t")
    options = ds.ReadOptions(batch_rows=7)
    read = (
        dataclasses.replace(table.scan(options=options), request=request)
        if isinstance(request, ScanRequest)
        else dataclasses.replace(table.changes(0, options=options), request=request)
    )
    changed = read.select("z").where(ds.col("b") < 2).limit(3)
    assert changed.options == options
    assert changed.request.columns == ("z",)
    assert changed.request.limit == 3
    kept = dataclasses.replace(changed.request, columns=request.columns, limit=request.limit, filter=request.filter)
    assert kept == request
    assert read.request == request


def test_repr_of_a_read_shows_only_its_request() -> None:
    table = ds.SharingClient(PROFILE).table("s.s.t")
    assert (repr(table), repr(table.scan())) == ("SharedTable(s.s.t)", "Scan(s.s.t)")
    assert (
        repr(table.scan(["a"], "a > 1 AND b = 'x'", version=0, response_format="delta"))
        == "Scan(s.s.t, columns=('a',), filter=\"a > 1 AND b = 'x'\", version=0, response_format='delta')"
    )
    assert repr(table.changes(3).limit(5)) == "Changes(s.s.t, starting_version=3, limit=5)"


def test_equality_and_hash_of_reads_do_not_reveal_secrets() -> None:
    def client(token: str = "planted-token", **options: Any) -> ds.SharingClient:
        return ds.SharingClient(PROFILE | {"bearerToken": token}, options=ds.ReadOptions(**options))

    def tenant(name: str) -> ds.SharingClient:
        return client(headers={"X-Tenant": name})

    first, second = client().table("s.s.t"), client().table("s.s.t")
    equal: list[tuple[Any, Any]] = [
        (first, second),
        (first.scan(["a"], "a > 1"), second.scan().where(ds.col("a") > 1).select("a")),
        (first.scan(version=3), pickle.loads(pickle.dumps(second.scan(version=3)))),
        (first.changes(1, 2), second.changes(1, 2)),
        (tenant("a").table("s.s.t").scan(), tenant("a").table("s.s.t").scan()),
    ]
    for one, other in equal:
        assert one == other
        assert hash(one) == hash(other)
    # A cache whose key is the hash must not mix rows of two recipients, tenants or versions.
    different = [
        *(read for read, _ in equal),
        first.scan(),
        first.changes(1, 3),
        client("another-token").table("s.s.t"),
        client("another-token").table("s.s.t").scan(),
        tenant("b").table("s.s.t").scan(),
    ]
    assert len({hash(one) for one in different}) == len(set(different)) == len(different)
    # With a publicly known seed, a guessed token could be verified by its hash.
    program = f"import delta_sharing_client as ds; print(hash(ds.SharingClient({PROFILE!r}).table('s.s.t').scan()))"
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    runs = {subprocess.check_output([sys.executable, "-c", program], env=environment) for _ in range(2)}
    assert len(runs) == 2


def test_numpy_numbers_are_accepted() -> None:
    table = ds.SharingClient(PROFILE).table("s.s.t")
    assert table.scan(limit=np.int64(3), version=np.uint8(2)) == table.scan(limit=3, version=2)
    assert table.changes(np.int32(1), np.int64(2)).limit(np.int64(3)) == table.changes(1, 2).limit(3)
    for wrong in (np.float64(1), np.bool_(True), np.int64(-1)):
        with pytest.raises(ds.UsageError, match="'limit' must be an integer"):
            table.scan(limit=wrong)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    root: pathlib.Path = tmp_path_factory.mktemp("reads") / "t"
    made = HandMadeTable(root).create(
        pa.schema([("a", pa.int64()), ("b", pa.string())]), properties={"delta.enableChangeDataFeed": "true"}
    )
    made.commit(*(made.file(pa.table({"a": [i], "b": [str(i)]})) for i in range(4)))
    with mock_server.running(tables={"s.s.t": root}) as server, ds.SharingClient(server.profile) as client:
        yield client.table("s.s.t")


def test_every_output_returns_the_same_rows(table: ds.SharedTable) -> None:
    scan = table.scan(filter="a > 0").limit(2)
    expected = [{"a": 1, "b": "1"}, {"a": 2, "b": "2"}]
    assert scan.to_arrow().to_pylist() == expected
    assert pa.table(scan).to_pylist() == expected
    assert pa.Table.from_batches(scan.to_batches()).to_pylist() == expected
    assert scan.to_reader().read_all().to_pylist() == expected
    assert scan.to_pandas().to_dict("records") == expected
    assert scan.to_polars().to_dicts() == expected
    relation = scan.to_duckdb()
    assert relation.fetchall() == relation.fetchall() == [(1, "1"), (2, "2")]


def test_files_are_written_completely_or_not_at_all(table: ds.SharedTable, tmp_path: pathlib.Path) -> None:
    scan = table.scan()
    writers = {"p": scan.to_parquet, "c": scan.to_csv, "i": scan.to_ipc, "j": scan.to_jsonl, "x": scan.to_excel}
    assert [write(tmp_path / name) for name, write in writers.items()] == [4] * 5
    assert pq.read_table(tmp_path / "p").equals(scan.to_arrow())
    assert pa.ipc.open_file(tmp_path / "i").read_all().equals(scan.to_arrow())
    assert (tmp_path / "c").read_text().splitlines()[:2] == ['"a","b"', '0,"0"']
    assert (tmp_path / "j").read_text().splitlines()[:2] == ['{"a":0,"b":"0"}', '{"a":1,"b":"1"}']
    with pytest.raises(ds.UsageError, match="Cannot write"):
        scan.to_parquet(tmp_path / "nowhere" / "p")
    with pytest.raises(ds.UsageError, match="it is a directory"):
        scan.to_csv(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "i", "j", "p", "x"]


def test_scan_has_the_report_of_its_last_read(table: ds.SharedTable) -> None:
    scan = table.scan()
    assert scan.report is None
    scan.to_arrow()
    assert scan.report is not None
    assert (scan.report.rows, scan.report.files) == (4, 4)
    assert scan.limit(1).report is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 100, np.int64(3)])
def test_partitions_have_all_rows_in_order(table: ds.SharedTable, count: int) -> None:
    for read in (table.scan(filter="a > 0"), table.changes(1, columns=["b", "_change_type"]), table.scan().select("b")):
        parts = [pickle.loads(pickle.dumps(part)) for part in read.partitions(count)]
        assert 1 <= len(parts) <= count
        assert all(part.files and part.schema == read.schema for part in parts)
        whole = pa.Table.from_batches([batch for part in parts for batch in part.read()], read.schema)
        assert whole.to_pylist() == read.to_arrow().to_pylist()
        assert [batch.num_rows for batch in parts[0].read()] == [batch.num_rows for batch in parts[0].read()]


def test_limited_read_has_at_most_one_partition(table: ds.SharedTable) -> None:
    assert table.scan(limit=0).partitions(3) == []
    [part] = table.scan(limit=3).partitions(3)
    assert sum(batch.num_rows for batch in part.read()) == 3
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(ds.UsageError, match="integer of 1 or more"):
            table.scan().partitions(wrong)  # type: ignore[arg-type]


def test_large_file_is_split_at_its_row_groups(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "t"
    rows = pa.table({"a": pa.array(np.random.default_rng(1).integers(0, 2**62, 1_500_000))})
    made = HandMadeTable(root).create(rows.schema)
    made.commit(made.file(rows[:10]), made.file(rows, row_group_size=100_000))
    with mock_server.running(tables={"s.s.t": root}) as server, ds.SharingClient(server.profile) as client:
        scan = client.table("s.s.t").scan()
        parts = scan.partitions(4)
        sizes = [sum(batch.num_rows for batch in part.read()) for part in parts]
        assert len(parts) == 4
        assert sum(sizes) == 1_500_010
        assert max(sizes) <= 500_000
        together = pa.Table.from_batches([batch for part in parts for batch in part.read()])
        assert together == scan.to_arrow()
        assert server.profile["bearerToken"] not in repr(parts)


def test_schema_and_explanation_download_nothing(table: ds.SharedTable) -> None:
    scan = table.changes(1, columns=["b", "_commit_version"])
    assert scan.schema.names == ["b", "_commit_version"]
    text = scan.explain()
    assert "4" in text
    assert "http" not in text


def test_read_never_shows_the_token(table: ds.SharedTable) -> None:
    scan = ds.SharingClient(PROFILE).table("s.s.t").scan()
    for shown in (repr(scan), str(scan), repr(scan.table), repr(scan.rest), repr(ds.SharingClient(PROFILE))):
        assert "planted-token" not in shown
    assert pickle.loads(pickle.dumps(scan)).request == scan.request


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": "a"}, "list of names"),
        ({"limit": -1}, "limit"),
        ({"limit": True}, "limit"),
        ({"version": -1}, "version"),
        ({"response_format": "csv"}, "'auto', 'parquet' or 'delta'"),
        ({"filter": "a >"}, "filter"),
        ({"timestamp": "soon"}, "is not a timestamp"),
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ds.UsageError, match=message):
        ds.SharingClient(PROFILE).table("s.s.t").scan(**arguments)  # type: ignore[arg-type]


def test_invalid_dtype_backend_is_refused(table: ds.SharedTable) -> None:
    with pytest.raises(ds.UsageError, match="dtype_backend"):
        table.scan().to_pandas("numba")


def test_schema_of_a_table_equals_that_of_its_scan(tmp_path: pathlib.Path) -> None:
    kind = '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
    made = HandMadeTable(tmp_path / "t").create(kind, features=["variantType"])
    with mock_server.running(tables={"s.s.t": made.root}) as server:
        for mode in ds.VariantAs:
            with ds.SharingClient(server.profile, ds.ReadOptions(variant_as=mode)) as client:
                table = client.table("s.s.t")
                assert table.schema == table.scan().schema
