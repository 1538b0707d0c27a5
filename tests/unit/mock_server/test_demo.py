"""The logs of the sample tables agree with their rows."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.deletion_vectors import decode_file, relative_path
from delta_sharing_client.delta.log.commit import change_actions
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.paths import resolve
from mock_server import demo


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    demo.build(folder)
    return folder


def rows_of(log: DeltaLog, add: AddFile) -> pa.Table:
    """Read the live rows of a file without the client's code."""
    table = pq.ParquetFile(resolve(log.directory.path.parent, add.path)).read()
    if add.deletion_vector is None:
        return table
    blob = (log.directory.path.parent / relative_path(add.deletion_vector)).read_bytes()
    offset = add.deletion_vector.offset or 0
    keep = decode_file(blob[offset:], add.deletion_vector, base=offset).keep_mask(0, table.num_rows)
    return table if keep is None else table.filter(keep)


def orders(root: Path, version: int | None = None) -> pa.Table:
    log = DeltaLog.open(root / "shop" / "orders")
    return pa.concat_tables((rows_of(log, add) for add in log.snapshot(version).files), promote_options="default")


def test_tables_are_identical_on_every_run(root: Path, tmp_path: Path) -> None:
    demo.build(tmp_path)
    files = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (root, tmp_path)]
    assert files[0] == files[1]


def test_each_version_of_orders_has_the_documented_rows(root: Path) -> None:
    counts = [orders(root, version).num_rows for version in range(7)]
    cancelled = pc.sum(pc.equal(orders(root, 2)["col-6"], "cancelled")).as_py()
    assert counts == [2000, 2000, 2600, 2600 - cancelled, 2600 - cancelled, 2600 - cancelled, 3000 - cancelled]
    assert cancelled > 100
    for version in (3, 4, 5):
        assert "cancelled" not in orders(root, version)["col-6"].to_pylist()
    numbers = orders(root)["col-1"].to_pylist()
    assert len(set(numbers)) == len(numbers)


def test_update_doubles_some_amounts_and_keeps_all_orders(root: Path) -> None:
    before, after = (
        dict(zip(table["col-1"].to_pylist(), table["col-5"].to_pylist(), strict=True))
        for table in (orders(root, 3), orders(root, 4))
    )
    assert before.keys() == after.keys()
    changed = {number for number in before if before[number] != after[number]}
    assert len(changed) > 20
    assert all(after[number] == before[number] * 2 and before[number] > 150 for number in changed)


def test_applying_the_feed_gives_the_rows_of_each_version(root: Path) -> None:
    log = DeltaLog.open(root / "shop" / "orders")
    rows = orders(root, 0).num_rows
    for commit in log.commits(1, 6):
        counts = {"insert": 0, "delete": 0, "update_preimage": 0, "update_postimage": 0}
        for action in change_actions(commit):
            if isinstance(action, AddFile):
                counts["insert"] += rows_of(log, action).num_rows
            elif "_change_data" in action.path:
                kinds = pq.ParquetFile(resolve(log.directory.path.parent, action.path)).read()["_change_type"]
                for kind in counts:
                    counts[kind] += pc.sum(pc.equal(kinds, kind)).as_py() or 0
            else:
                old = next(add for add in log.snapshot(commit.version - 1).files if add.path == action.path)
                counts["delete"] += rows_of(log, old).num_rows
        rows += counts["insert"] - counts["delete"]
        assert rows == orders(root, commit.version).num_rows
        assert counts["update_preimage"] == counts["update_postimage"]
        assert (counts["update_preimage"] > 0) is (commit.version == 4)


def test_renamed_column_keeps_its_physical_name(root: Path) -> None:
    log = DeltaLog.open(root / "shop" / "orders")
    old, new = log.snapshot(0).schema, log.snapshot().schema
    assert old.names[4:5] + new.names[4:5] == ["total", "amount"]
    assert [field.physical_name for field in old.fields] == [field.physical_name for field in new.fields]


def test_row_ids_are_unique_and_stay_with_their_rows(root: Path) -> None:
    log = DeltaLog.open(root / "shop" / "orders")

    def ids(version: int) -> dict[int, int]:
        results: dict[int, int] = {}
        for add in log.snapshot(version).files:
            whole = pq.ParquetFile(resolve(log.directory.path.parent, add.path)).read()
            assert add.base_row_id is not None
            stored = whole[demo._ROW_ID] if demo._ROW_ID in whole.column_names else pa.nulls(whole.num_rows, pa.int64())
            default = pa.array(range(add.base_row_id, add.base_row_id + whole.num_rows), pa.int64())
            results.update(zip(whole["col-1"].to_pylist(), pc.coalesce(stored, default).to_pylist(), strict=True))
        return results

    before, after = ids(3), ids(6)
    assert len(set(after.values())) == len(after)
    common = before.keys() & after.keys()
    assert len(common) > 2000
    assert {number: before[number] for number in common} == {number: after[number] for number in common}
    mark = log.snapshot().domain_metadata["delta.rowTracking"].configuration
    assert max(after.values()) < int(mark.strip('{}"').split(":")[1]) + 1


def digests(root: Path) -> dict[str, str]:
    """Return a digest of each table. It covers the commits, except for what the Parquet writer determines, and the rows
    of the files."""
    results: dict[str, list[object]] = {log.parent.name: [] for log in root.rglob("_delta_log")}
    for path in sorted((path for path in root.rglob("*") if path.is_file()), key=lambda path: path.as_posix()):
        content = results.get(path.relative_to(root).parts[1])
        if content is None:
            continue
        if path.suffix == ".json":
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            for name in ("add", "remove", "cdc"):
                for action in actions:
                    action.get(name, {}).pop("size", None)
            content.append(actions)
        elif path.suffix == ".parquet" and "_delta_log" not in path.parts:
            content.append([path.name, pq.ParquetFile(path).read().to_pylist()])
        elif path.suffix == ".bin":
            content.append([path.name, path.read_bytes().hex()])
    return {
        table: hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:16]
        for table, content in results.items()
    }


def test_tables_have_the_documented_digests(tmp_path: Path) -> None:
    """Notebooks and docs show these rows, so whoever changes the tables must update the outputs shown there."""
    demo.build(tmp_path)
    assert digests(tmp_path) == {
        "orders": "dfd9628db29c34fe",
        "products": "b19c9289c5f85ca4",
        "readings": "20223cdc45762a02",
    }


# --- demo.lake.refunds ---


def test_pyiceberg_reads_the_rows_of_the_demo_iceberg_table(root: Path) -> None:
    location = root / "lake" / "refunds"
    table = StaticTable.from_metadata(max((location / "metadata").glob("v*.metadata.json")).as_uri())
    counts = [table.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows for one in table.snapshots()]
    rows = table.scan().to_arrow()

    assert counts == [240, 300, 285, 285]
    assert [one.summary.operation.value for one in table.snapshots() if one.summary] == [
        *("append", "append", "delete", "overwrite")
    ]
    assert rows.column_names == ["refund_id", "order_id", "refunded_on", "reason", "amount"]
    assert not [number for number in rows["refund_id"].to_pylist() if number % 20 == 7]
    assert rows["reason"].null_count < rows.num_rows / 2
    months = {(day.year, day.month) for day in rows["refunded_on"].to_pylist()}
    assert len(months) == len({file.file.partition for file in table.scan().plan_files()}) == 3
    assert table.scan(snapshot_id=table.refs()["january"].snapshot_id).to_arrow().num_rows == 240


def test_rows_of_the_iceberg_table_keep_their_ids(root: Path) -> None:
    with mock_server.running({"demo.lake.refunds": root / "lake" / "refunds"}) as server:
        table = ds.SharingClient(server.profile).table("demo.lake.refunds")
        old, new = (
            {row["refund_id"]: row for row in table.scan(version=version, row_lineage=True).to_arrow().to_pylist()}
            for version in (table.history()[1].version, None)
        )

    assert sorted(row["_row_id"] for row in old.values()) == list(range(300))
    assert all(row["_row_id"] == old[number]["_row_id"] for number, row in new.items())
    late = {number for number, row in new.items() if row["amount"] == 0}
    assert late
    assert {number for number, row in new.items() if row["_last_updated_sequence_number"] == 4} == late
    assert {row["_last_updated_sequence_number"] for number, row in new.items() if number > 240} == {2}


# Avro and Puffin files contain lengths and absolute paths, so only their names are compared.
DIGESTS = {
    "lake/refunds": "f8555fb90f76d114",
    "shop/churn": "0b07cc70cd794884",
    "shop/documents": "3db9d87d5cf93953",
    "shop/orders": "e09760e7a9f01f67",
    "shop/products": "99c83c75e699e45b",
    "shop/sales-report": "5c25473ddf1eeacd",
    "weather/readings": "d4b6a51e105c9408",
}


def test_demo_files_have_the_expected_digest(root: Path) -> None:
    """The docs show these files. Whoever changes them on purpose updates the digest here."""
    results = {folder.relative_to(root).as_posix(): digest(folder) for folder in sorted(root.glob("*/*"))}
    assert results == DIGESTS


def digest(folder: Path) -> str:
    """Return a digest of the names, rows and metadata of all files, without parts that depend on Arrow's version."""
    result = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content: object = path.read_bytes()
        if path.suffix == ".parquet":
            rows = pq.read_table(path, partitioning=None)
            content = [str(rows.schema.remove_metadata()), rows.to_pylist()]
        elif path.suffix == ".json":
            text = path.read_text().replace(folder.as_uri(), "root:")
            content = [plain(json.loads(line)) for line in text.splitlines()]
        elif path.suffix in (".avro", ".puffin"):
            content = None
        result.update(f"{path.relative_to(folder).as_posix()} {content!r}\n".encode())
    return result.hexdigest()[:16]


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in ("size", "total-files-size")}
    return [plain(one) for one in value] if isinstance(value, list) else value
