"""Every output counts the same rows: by the log where it states their number, otherwise by the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.decode import decoder
from delta_sharing_client.scans import Changes, Scan
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import iceberg_server
from tests.regressions.hand_made import Action, HandMadeTable

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string()})
FEED = {"delta.enableChangeDataFeed": "true"}


def by_duckdb(read: Scan | Changes) -> int:
    with duckdb.connect() as connection:
        ((rows,),) = read.to_duckdb(connection).aggregate("count(*)").fetchall()
    return int(rows)


COUNTS: dict[str, Callable[[Scan | Changes], int]] = {
    "count": lambda read: read.count(),
    "batches": lambda read: sum(batch.num_rows for batch in read.select().to_batches()),
    "dataset": lambda read: read.to_dataset().count_rows(),
    "scanner": lambda read: read.to_dataset().scanner(columns=[]).count_rows(),
    "polars": lambda read: read.to_polars(lazy=True).select(pl.len()).collect().item(),
    "duckdb": by_duckdb,
}
counted = pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": range(first, first + count)})


def without_statistics(action: Action) -> Action:
    return {"add": {name: value for name, value in action["add"].items() if name != "stats"}}


@pytest.fixture
def lake(tmp_path: Path) -> HandMadeTable:
    """Files of 10 rows with a count, of 20 without, and of 30 with 3 deleted: 17 in ``a`` and 40 in ``b`` remain."""
    table = HandMadeTable(tmp_path / "t")
    table.create(SCHEMA, partition_by=["p"], properties=FEED, features=["deletionVectors"])
    table.commit(table.file(rows(0, 10), {"p": "a"}), without_statistics(table.file(rows(10, 20), {"p": "b"})))
    table.commit(table.file(rows(30, 30), {"p": "b"}, removed=[0, 4, 29]), table.file(rows(60, 0), {"p": "b"}))
    return table


@pytest.fixture
def server(lake: HandMadeTable) -> Iterator[Any]:
    with mock_server.running(tables={"s.d.t": lake.root}) as running:
        yield running


@pytest.fixture
def table(server: Any) -> ds.SharedTable:
    return ds.SharingClient(server.profile).table("s.d.t")


@counted
@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, 57),
        ({"limit": 15}, 15),
        ({"limit": 1000}, 57),
        ({"limit": 0}, 0),
        ({"filter": "p = 'b'"}, 47),
        ({"filter": "p = 'b'", "limit": 31}, 31),
        ({"filter": "p = 'z'"}, 0),
        ({"filter": "id >= 35"}, 24),
        ({"version": 0}, 0),
        ({"version": 1}, 30),
    ],
)
def test_every_output_counts_the_same_rows(
    table: ds.SharedTable, count: Callable[[Scan], int], request_: dict[str, Any], expected: int
) -> None:
    assert count(table.scan(**request_)) == expected


@counted
def test_rows_of_a_feed_are_counted(table: ds.SharedTable, count: Callable[[Changes], int]) -> None:
    assert count(table.changes(1, 2)) == 57
    assert count(table.changes(2, 2)) == 27
    assert count(table.changes(1, 2, filter="_commit_version = 1")) == 30


def test_only_files_of_unknown_count_are_asked(lake: HandMadeTable, server: Any, table: ds.SharedTable) -> None:
    server.reset_stats()
    assert table.scan().count() == 57
    stats = server.stats()["requests"]
    # The vector is inline, and the footer of the file without statistics has the number of its rows.
    assert stats == {"query": 1, "data": 1}


@counted
def test_vector_with_another_number_of_rows_is_refused(
    lake: HandMadeTable, table: ds.SharedTable, count: Callable[[Scan], int]
) -> None:
    added = lake.file(rows(100, 10), {"p": "a"}, removed=[1, 2])
    added["add"]["deletionVector"]["cardinality"] = 3
    lake.commit(added)
    with pytest.raises(Exception, match="must hold 3 row positions"):
        count(table.scan())


@counted
def test_vector_beyond_the_stated_rows_is_refused(
    lake: HandMadeTable, table: ds.SharedTable, count: Callable[[Scan], int]
) -> None:
    added = lake.file(rows(100, 10), {"p": "a"}, removed=[9])
    added["add"]["stats"] = json.dumps({"numRecords": 9})
    lake.commit(added)
    with pytest.raises(Exception, match=r"beyond|9 rows"):
        count(table.scan())


@counted
def test_equality_deletes_are_counted(tmp_path: Path, count: Callable[[Scan], int]) -> None:
    made = HandMade(tmp_path / "ice", [{"id": 1, "name": "k", "required": False, "type": "long"}])
    files = made.manifest([made.data_file(pa.table({"k": pa.array([1, 2, 2, None])})) for _ in range(3)])
    made.commit([files])
    deletes = made.manifest([made.equality_deletes(pa.table({"k": pa.array([2, None])}), ("k",))], content=1)
    made.commit([files, deletes])
    with iceberg_server() as server:
        server.share("t", made.metadata)
        assert count(server.table().scan()) == 3
        assert count(server.table().scan(version=1001)) == 12


# --- batches without columns ---


def test_batches_without_columns_take_no_memory(lake: HandMadeTable, table: ds.SharedTable) -> None:
    added = lake.file(rows(0, 1), {"p": "a"})
    # No file of this size exists; only its statement is read.
    added["add"]["stats"] = json.dumps({"numRecords": 10**10})
    lake.commit(added)
    assert table.scan().count() == 10**10 + 57
    with table.scan(columns=[]).to_batches() as batches:
        assert {batch.num_rows <= decoder.MOST_WITHOUT_COLUMNS for batch in batches} == {True}


def test_an_impossible_number_of_rows_is_unknown(lake: HandMadeTable, table: ds.SharedTable) -> None:
    added = lake.file(rows(0, 3), {"p": "a"})
    added["add"]["stats"] = json.dumps({"numRecords": 2**63})
    lake.commit(added)
    assert table.scan().count() == 3 + 57


def test_engines_get_slices_of_batches_without_columns(table: ds.SharedTable) -> None:
    dataset = table.scan(filter="p = 'a'").to_dataset()
    assert [batch.num_rows for batch in dataset.to_batches([], batch_size=4)] == [4, 4, 2]
    scanner = dataset.scanner({"one": pads.scalar(1)}, batch_size=4)
    assert [batch.to_pydict() for batch in scanner.to_batches()] == [{"one": [1] * rows} for rows in (4, 4, 2)]
    frame = table.scan().to_polars(lazy=True).select(pl.lit(7).repeat_by(1).explode(), pl.len())
    assert frame.collect().rows() == [(7, 57)]
