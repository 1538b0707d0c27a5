"""A file's partition values, as its action tells them or leaves them out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.predicates.tree import col
from tests.unit.storages import Storage, Table, metadata

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int32(), "q": pa.string()})
# A file that has a partition column in it.
INSIDE = pa.table({"id": pa.array([7, 8], pa.int64()), "p": pa.array([5, None], pa.int32())})


@pytest.fixture
def table(storage: Storage) -> Table:
    return Table(storage, metadata(SCHEMA, ["p", "q"]))


@pytest.mark.parametrize(
    ("told", "p", "q"),
    [
        ({"p": "1", "q": "x"}, 1, "x"),
        ({"p": None, "q": ""}, None, None),
        ({"P": "1", "Q": "x"}, 1, "x"),
        # Delta Lake for Spark leaves nulls out of a tombstone, other writers out of an added file.
        ({"q": "x"}, None, "x"),
        ({}, None, None),
    ],
)
def test_what_is_not_told_is_null(table: Table, told: dict[str, Any], p: int | None, q: str | None) -> None:
    table.add(pa.table({"id": pa.array([7], pa.int64())}), partition_values=told, stats={"numRecords": 1})
    assert table.read().to_pylist() == [{"id": 7, "p": p, "q": q}]
    assert table.read(columns=["p"]).to_pylist() == [{"p": p}]
    assert table.read(columns=["id"]).to_pylist() == [{"id": 7}]
    assert table.read(filter=col("p").is_null()).num_rows == (p is None)
    assert table.read(filter=col("p") == 1).num_rows == (p == 1)
    assert table.read(columns=["id"], filter=(col("p") == 1) | (col("q") == "x")).num_rows == (1 in (p, q == "x"))


def test_what_is_not_told_is_read_where_the_file_has_it(table: Table) -> None:
    table.add(INSIDE, partition_values={"q": "x"}, stats={"numRecords": 2})
    table.add(INSIDE, partition_values={"p": "1", "q": "x"}, stats={"numRecords": 2})
    assert table.read(columns=["id", "p"]).to_pylist() == [
        {"id": 7, "p": 5},
        {"id": 8, "p": None},
        {"id": 7, "p": 1},
        {"id": 8, "p": 1},
    ]
    assert table.read(columns=["p"]).column("p").to_pylist() == [5, None, 1, 1]
    assert table.read(filter=col("p") == 5).to_pylist() == [{"id": 7, "p": 5, "q": "x"}]
    assert table.read(columns=["id"], filter=col("p").is_null()).to_pylist() == [{"id": 8}]
    assert table.read(columns=["p"], limit=1).to_pylist() == [{"p": 5}]


def test_several_values_are_refused(storage: Storage) -> None:
    table = Table(storage, metadata(pa.schema({"id": pa.int64(), "part": pa.int32()}), ["part"]))
    table.add(INSIDE.select(["id"]), partition_values={"PART": "1", "Part": "2"})
    with pytest.raises(DataError, match=r"one value for the partition column 'part', found 2.*file id-part-0.parquet"):
        table.read()


@pytest.mark.parametrize("partitions", [["p"], []])
@pytest.mark.parametrize("columns", [None, ["q"]])
def test_a_value_of_no_partition_column_may_be_that_of_a_column_that_is_missing(
    storage: Storage, partitions: list[str], columns: list[str] | None
) -> None:
    table = Table(storage, metadata(SCHEMA, partitions))
    table.add(INSIDE, partition_values={"p": "1", "q": "x"} if partitions else {"q": "x"})
    with pytest.raises(DataError, match=r"no column 'q', but the partition value 'q', .*file id-part-0.parquet"):
        table.read(columns=columns)
    assert table.read(columns=["id"]).column("id").to_pylist() == [7, 8]
