"""Filters on floats, timestamps between the milliseconds of commits, and filters with mistakes, sent to a server."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mock_server
from delta_sharing_client import SharingClient, UsageError, col
from delta_sharing_client.table import SharedTable
from tests.tables import TableWriter

FLOATS = [1e-5, 0.1, 0.7, 123456789.0]
WIDENED = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}


def _write_floats(root: pathlib.Path) -> None:
    """Write one file for each value, with statistics in the shortest decimal form of each 32-bit float, like Spark."""
    (root / "_delta_log").mkdir(parents=True)
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": metadata}
        for name, kind, metadata in (("f", "float", {}), ("g", "double", WIDENED), ("p", "float", {}))
    ]
    actions: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "floats",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["p"],
                "configuration": {},
            }
        },
    ]
    for number, value in enumerate(FLOATS):
        stored = pa.array([value], pa.float32())
        pq.write_table(pa.table({"f": stored, "g": stored}), root / f"{number}.parquet")
        shortest = float(str(np.float32(value)))
        stats = {"numRecords": 1, "nullCount": {"f": 0, "g": 0}}
        stats |= {bound: {"f": shortest, "g": shortest} for bound in ("minValues", "maxValues")}
        size = (root / f"{number}.parquet").stat().st_size
        add = {"path": f"{number}.parquet", "size": size, "modificationTime": 0, "dataChange": True}
        actions.append({"add": {**add, "partitionValues": {"p": str(np.float32(value))}, "stats": json.dumps(stats)}})
    (root / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedTable]:
    root = tmp_path_factory.mktemp("floats")
    _write_floats(root)
    with mock_server.running(tables={"s.t.floats": root}) as server:
        yield SharingClient(server.profile).table("s.t.floats")


@pytest.mark.parametrize("value", FLOATS)
@pytest.mark.parametrize("column", ["f", "g", "p"])
def test_filters_find_each_float_by_its_value(floats: SharedTable, column: str, value: float) -> None:
    stored = float(np.float32(value))
    returned = floats.scan(filter=col(column) == stored).to_arrow()
    assert returned[column].to_pylist() == [stored]
    # No matching row is skipped, on either side of the comparison.
    for constant in (stored, value):
        for operator, holds in (("<", np.less), ("<=", np.less_equal), (">", np.greater), (">=", np.greater_equal)):
            expected = [item for item in map(float, np.float32(FLOATS)) if holds(item, float(constant))]
            rows = floats.scan(filter=[(column, operator, float(constant))]).to_arrow()
            assert rows[column].to_pylist() == expected


def test_timestamp_just_after_a_commit_finds_the_next_version(tmp_path: pathlib.Path) -> None:
    writer = TableWriter(tmp_path / "timed", pa.schema([("id", pa.int64())]), timestamp_ms=1_700_000_000_000)
    writer.commit(timestamp_ms=1_700_000_001_000)
    with mock_server.running(tables={"s.t.timed": tmp_path / "timed"}) as server:
        table = SharingClient(server.profile).table("s.t.timed")
        assert table.version(starting_timestamp="2023-11-14T22:13:20Z") == 0
        assert table.version(starting_timestamp="2023-11-14T22:13:20.0005Z") == 1
        assert table.version(starting_timestamp="2023-11-14 23:13:20.000000001 +1") == 1
        assert table.scan(timestamp="2023-11-14T22:13:20,0005 GMT").to_arrow().num_rows == 0


def test_misspelled_column_gives_the_same_error_everywhere(floats: SharedTable) -> None:
    for scan in (
        floats.scan(columns=["ff"]),
        floats.scan(filter="ff > 1"),
        floats.scan(filter=[("ff", ">", 1)]),
        floats.scan(filter=col("ff") * 2 > 1),
    ):
        with pytest.raises(UsageError) as caught:
            scan.to_arrow()
        assert caught.value.message == "The column 'ff' is not in the table. Did you mean 'f'?"
