"""The filter and the limit of a scan define its rows; the filter of an engine that queries the scan only skips data.

Expected rows are computed in plain Python. ``test_compositions`` generates more combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import delta_sharing_client as ds
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.read_base import Read, with_pushed
from tests.regressions.hand_made import HandMadeTable
from tests.served import served

ROWS = [{"id": number, "tenant": "ab"[number % 2], "day": number // 25} for number in range(100)]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    folder = tmp_path_factory.mktemp("owners") / "t"
    schema = pa.schema([("id", pa.int64()), ("tenant", pa.string()), ("day", pa.int64())])
    made = HandMadeTable(folder).create(schema, partition_by=["day"], properties={"delta.enableChangeDataFeed": "true"})
    for day in range(4):
        rows = [{"id": row["id"], "tenant": row["tenant"]} for row in ROWS if row["day"] == day]
        made.commit(made.file(pa.Table.from_pylist(rows), {"day": str(day)}))
    with served(folder) as shared:
        yield shared


def of_tenant(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["tenant"] == "a"]


READS: dict[str, tuple[Callable[[ds.SharedTable], Any], list[Row]]] = {
    "filter": (lambda table: table.scan(filter="tenant = 'a'"), of_tenant(ROWS)),
    "filter of a partition": (lambda table: table.scan(filter="day >= 1"), ROWS[25:]),
    "filter and limit": (lambda table: table.scan(filter="id >= 50", limit=30), ROWS[50:80]),
    "limit": (lambda table: table.scan(limit=30), ROWS[:30]),
    "two filters": (lambda table: table.scan(filter="tenant = 'a'").where("id < 70"), of_tenant(ROWS[:70])),
    "filter on a column that is left out": (
        lambda table: table.scan(columns=["id", "day"], filter="tenant = 'a'"),
        of_tenant(ROWS),
    ),
    "version": (lambda table: table.scan(filter="tenant = 'a'", version=2), of_tenant(ROWS[:50])),
    "changes": (lambda table: table.changes(2, filter="tenant = 'a'"), of_tenant(ROWS[25:])),
    "changes of two versions": (lambda table: table.changes(0, filter="_commit_version <= 2"), ROWS[:50]),
    "changes and limit": (lambda table: table.changes(0, filter="tenant = 'a'", limit=30), of_tenant(ROWS)[:30]),
}


def by_polars(read: Any) -> list[int]:
    ids: list[int] = (
        read.to_polars(lazy=True).filter((pl.col("id") > 40) & (pl.col("day") < 3)).collect()["id"].to_list()
    )
    return ids


def by_polars_count(read: Any) -> int:
    lazy = read.to_polars(lazy=True).filter((pl.col("id") > 40) & (pl.col("day") < 3))
    return int(lazy.select(pl.len()).collect().item())


def by_polars_head(read: Any) -> list[int]:
    """A filter over a limit of the query, which is over the filter and the limit of the scan."""
    ids: list[int] = read.to_polars(lazy=True).head(28).filter(pl.col("id") > 40).select("id").collect()["id"].to_list()
    return ids


CONDITION = (pc.field("id") > 40) & (pc.field("day") < 3)


def by_duckdb(read: Any, query: str) -> list[Any]:
    with duckdb.connect() as connection:
        read.to_duckdb(connection).create_view("rows")
        return connection.execute(query).fetchall()


OUTPUTS: dict[str, tuple[Callable[[Any], Any], Callable[[list[int], list[int]], Any]]] = {
    "polars": (by_polars, lambda _, ids: ids),
    "polars, count": (by_polars_count, lambda _, ids: len(ids)),
    "polars, head": (by_polars_head, lambda all_ids, _: [one for one in all_ids[:28] if one > 40]),
    "dataset": (lambda read: read.to_dataset().to_table(["id"], CONDITION)["id"].to_pylist(), lambda _, ids: ids),
    "dataset, count": (lambda read: read.to_dataset().count_rows(filter=CONDITION), lambda _, ids: len(ids)),
    "dataset, two filters": (
        lambda read: (
            read.to_dataset().filter(pc.field("id") > 40).to_table(filter=pc.field("day") < 3)["id"].to_pylist()
        ),
        lambda _, ids: ids,
    ),
    "dataset, head": (
        lambda read: read.to_dataset().head(3, filter=CONDITION)["id"].to_pylist(),
        lambda _, ids: ids[:3],
    ),
    "duckdb": (
        lambda read: sorted(row[0] for row in by_duckdb(read, "SELECT id FROM rows WHERE id > 40 AND day < 3")),
        lambda _, ids: ids,
    ),
    "duckdb, count": (
        lambda read: by_duckdb(read, "SELECT count(*) FROM rows WHERE id > 40 AND day < 3")[0][0],
        lambda _, ids: len(ids),
    ),
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("read", READS)
def test_engine_filters_the_rows_of_the_read(table: ds.SharedTable, read: str, output: str) -> None:
    make, rows = READS[read]
    query, expected = OUTPUTS[output]
    all_ids = [row["id"] for row in rows]
    assert make(table).to_arrow()["id"].to_pylist() == all_ids
    kept = [row["id"] for row in rows if row["id"] > 40 and row["day"] < 3]
    assert query(make(table)) == expected(all_ids, kept)


def test_filters_of_read_and_engine_stay_apart(table: ds.SharedTable) -> None:
    own, engine = parse_filter("tenant = 'a'"), parse_filter("day = 0 AND id < 10")
    read: Read
    for read in (table.scan(filter=own), table.changes(0, filter=own)):
        pushed = with_pushed(read, engine)
        assert (pushed.request.filter, pushed.request.pushed_filter) == (own, engine)
        assert pushed.where("id > 3").request.pushed_filter == engine
        # A limit counts the rows of the read, whichever of the two comes first.
        assert pushed.limit(5).request.pushed_filter is None
        assert with_pushed(read.limit(5), engine).request.pushed_filter is None
        plan = pushed.plan()
        assert (str(plan.context.predicate), str(plan.context.pushed_predicate)) == (
            "tenant = 'a'",
            "day = 0 AND id < 10",
        )
        assert [task.num_records for task in plan.tasks] == [25], "the engine's filter skips files"
        assert plan.known_rows is None
        assert "\n  filter of the engine, which skips data: day = 0 AND id < 10\n" in pushed.explain()
        assert pushed.to_arrow()["id"].to_pylist() == [0, 2, 4, 6, 8]
