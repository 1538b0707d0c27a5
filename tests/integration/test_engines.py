"""The recipes for other engines in the docs: partitions contain every row once, and queries fetch only what they
need."""

from __future__ import annotations

import multiprocessing
import pathlib
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import delta_sharing_client as ds
import mock_server
from tests.regressions.hand_made import HandMadeTable
from tests.served import served
from tests.tables import ODD_PARTITIONS, ODD_TEXTS, write_odd

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "reading.md"
ROWS = 20_000

Fetched = Callable[[Callable[[], Any]], tuple[Any, int]]


def read_part(part: ds.Partition) -> pa.Table:
    return pa.Table.from_batches(part.read(), part.schema)


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.Scan]:
    root = tmp_path_factory.mktemp("engines") / "t"
    made = HandMadeTable(root).create(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    made.commit(*(made.file(pa.table({"id": [2 * i, 2 * i + 1], "name": [str(i), None]})) for i in range(20)))
    with served(root) as table:
        yield table.scan(filter="id > 0")


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ds.SharedTable, Fetched]]:
    """A table with one file for each of four countries, and a function that counts the data bytes that a query
    fetches."""
    root = tmp_path_factory.mktemp("engines") / "orders"
    columns = [("order_id", pa.int64()), ("amount", pa.int64()), ("note", pa.binary()), ("country", pa.string())]
    made = HandMadeTable(root).create(pa.schema(columns), partition_by=["country"])
    source = random.Random(5)
    for number, country in enumerate(("DE", "FR", "US", "XX")):
        ids = range(number * ROWS, (number + 1) * ROWS)
        notes = [source.randbytes(24) for _ in ids]
        rows = pa.table({"order_id": ids, "amount": [one % 1000 for one in ids], "note": pa.array(notes, pa.binary())})
        made.commit(made.file(rows, {"country": country}))
    with mock_server.running(tables={"s.s.t": root}) as server, ds.SharingClient(server.profile) as client:

        def fetched(query: Callable[[], Any]) -> tuple[Any, int]:
            server.reset_stats()
            result = query()
            return result, server.stats()["bytes"].get("data", 0)

        yield client.table("s.s.t"), fetched


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    """A table with special characters in names, nested fields, long text and non-ASCII text."""
    root = tmp_path_factory.mktemp("engines") / "odd"
    write_odd(root)
    with served(root) as shared:
        yield shared


def recipe(engine: str, page: pathlib.Path) -> str:
    blocks: list[str] = re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL)
    [found] = [block for block in blocks if block.startswith(f"# {engine}")]
    return found


def run(engine: str, page: pathlib.Path = PAGE, **names: Any) -> dict[str, Any]:
    exec(compile(recipe(engine, page), page.name, "exec"), names)
    return names


def test_multiprocessing_reads_partitions(scan: ds.Scan) -> None:
    tables = run("multiprocessing", multiprocessing=multiprocessing, scan=scan, read_part=read_part)["tables"]
    assert len(tables) == 8
    assert pa.concat_tables(tables) == scan.to_arrow()


def test_read_part_of_the_docs_reads_every_row(scan: ds.Scan) -> None:
    [block] = [block for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def read_p" in block]
    names: dict[str, Any] = {"pa": pa}
    exec(compile(block, PAGE.name, "exec"), names)
    assert pa.concat_tables(map(names["read_part"], scan.partitions(3))) == scan.to_arrow()


def test_dask_reads_partitions(scan: ds.Scan) -> None:
    pytest.importorskip("dask.dataframe", reason="bash scripts/engines runs this with Dask")
    import dask

    with dask.config.set(scheduler="processes", num_workers=2):
        frame = run("Dask", dask=dask, scan=scan, read_part=read_part)["frame"]
        assert frame.npartitions == 8
        assert sorted(frame.compute()["id"]) == list(range(1, 40))


def test_dask_reads_only_the_data_a_computation_needs(orders: tuple[ds.SharedTable, Fetched]) -> None:
    pytest.importorskip("dask.dataframe", reason="bash scripts/engines runs this with Dask")
    import dask

    table, fetched = orders
    explicit, least = fetched(lambda: table.scan(["amount"], "country IN ('DE', 'FR', 'US')").to_arrow())
    with dask.config.set(scheduler="processes", num_workers=2):
        dataset = table.scan().to_dataset()
        rows, bytes_ = fetched(lambda: run("Dask", DOCS / "engines.md", dask=dask, pc=pc, dataset=dataset))
    assert rows["frame"].npartitions == 3
    assert rows["total"] == sum(explicit["amount"].to_pylist())
    assert bytes_ <= 1.1 * least


def test_ibis_reads_only_the_data_a_query_needs(orders: tuple[ds.SharedTable, Fetched]) -> None:
    ibis = pytest.importorskip("ibis", reason="bash scripts/engines runs this with Ibis")

    table, fetched = orders
    explicit, least = fetched(lambda: table.scan(["order_id", "amount"], "amount > 500").to_arrow())
    rows, bytes_ = fetched(lambda: run("Ibis", DOCS / "engines.md", ibis=ibis, dataset=table.scan().to_dataset()))
    assert sorted(rows["frame"]["order_id"]) == sorted(explicit["order_id"].to_pylist())
    assert len(rows["frame"]) == 4 * ROWS * 499 // 1000
    assert bytes_ <= 1.1 * least

    taken = rows["orders"].filter(rows["orders"].country == "FR").select("order_id")
    least = fetched(lambda: table.scan(["order_id"], "country = 'FR'").to_arrow())[1]
    frame, bytes_ = fetched(taken.execute)
    assert sorted(frame["order_id"]) == list(range(ROWS, 2 * ROWS))
    assert bytes_ <= 1.1 * least


def test_datafusion_reads_only_the_data_a_query_needs(orders: tuple[ds.SharedTable, Fetched]) -> None:
    datafusion = pytest.importorskip("datafusion", reason="bash scripts/engines runs this with DataFusion")

    table, fetched = orders
    explicit, least = fetched(lambda: table.scan(["order_id", "amount"], "amount > 500").to_arrow())
    dataset = table.scan().to_dataset()
    rows, bytes_ = fetched(lambda: run("DataFusion", DOCS / "engines.md", datafusion=datafusion, dataset=dataset))
    assert sorted(rows["frame"]["order_id"]) == sorted(explicit["order_id"].to_pylist())
    assert bytes_ <= 1.1 * least
    query = "SELECT country, count(*) AS n FROM orders GROUP BY 1 ORDER BY 1"
    assert rows["context"].sql(query).to_pydict() == {"country": ["DE", "FR", "US", "XX"], "n": [ROWS] * 4}
    assert rows["context"].sql("SELECT count(*) AS n FROM orders").to_pydict() == {"n": [4 * ROWS]}


def test_ibis_works_on_a_connection_with_attached_shares(orders: tuple[ds.SharedTable, Fetched]) -> None:
    ibis = pytest.importorskip("ibis", reason="bash scripts/engines runs this with Ibis")
    import duckdb

    table, _ = orders
    with duckdb.connect() as connection:
        ds.attach(connection, table.rest.profile)
        shared = ibis.duckdb.from_connection(connection).table("t", database=("s", "s"))
        assert shared.filter(shared.country == "US").amount.sum().execute() == sum(range(1000)) * ROWS // 1000


def by_id(rows: pd.DataFrame) -> list[dict[str, Any]]:
    returned: list[dict[str, Any]] = rows.sort_values("id").to_dict("records")
    return returned


def test_dask_reads_special_names_and_texts(odd: ds.SharedTable) -> None:
    pytest.importorskip("dask.dataframe", reason="bash scripts/engines runs this with Dask")
    import dask

    expected = by_id(odd.scan().to_pandas())
    assert len(expected) == len(ODD_TEXTS) * len(ODD_PARTITIONS)
    # Otherwise Dask converts structs to text.
    with dask.config.set({"scheduler": "processes", "num_workers": 2, "dataframe.convert-string": False}):
        frame = run("Dask", dask=dask, scan=odd.scan(), read_part=read_part)["frame"]
        assert by_id(frame.compute()) == expected
        country = frame[frame["страна"] == ODD_PARTITIONS[0]]
        assert sorted(country["名"].compute()) == sorted(ODD_TEXTS)
        dataset = odd.scan().to_dataset()
        chosen = dask.dataframe.from_map(
            lambda text: dataset.to_table(filter=pc.field("名") == text).to_pandas(), ODD_TEXTS
        )
        assert by_id(chosen.compute()) == expected


def test_ibis_reads_special_names_and_texts(odd: ds.SharedTable) -> None:
    ibis = pytest.importorskip("ibis", reason="bash scripts/engines runs this with Ibis")

    expected = by_id(odd.scan().to_pandas())
    rows = ibis.memtable(odd.scan().to_dataset())
    assert by_id(rows.execute()) == expected
    for text in ODD_TEXTS:
        result = rows.filter((rows["名"] == text) & (rows["страна"] == ODD_PARTITIONS[1])).execute()
        assert by_id(result) == [row for row in expected if row["名"] == text and row["страна"] == ODD_PARTITIONS[1]]
    nested = rows.filter(rows["o"]["a.b"] >= 5).select("id", size="größe.in cm", inner=rows["o"]["名"]).execute()
    assert sorted(nested.itertuples(index=False, name=None)) == [
        (row["id"], row["größe.in cm"], row["名"]) for row in expected if row["o"]["a.b"] >= 5
    ]


def test_ray_reads_partitions(scan: ds.Scan, odd: ds.SharedTable) -> None:
    pytest.importorskip("ray", reason="bash scripts/engines runs this with Ray")
    import ray
    import ray.data

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        dataset = run("Ray", ray=ray, scan=scan, read_part=read_part)["dataset"]
        assert sorted(row["id"] for row in dataset.take_all()) == list(range(1, 40))
        dataset = run("Ray", ray=ray, scan=odd.scan(), read_part=read_part)["dataset"]
        chosen = dataset.filter(lambda row: row["страна"] == ODD_PARTITIONS[1])
        expected = sorted(odd.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
        assert sorted(dataset.take_all(), key=lambda row: row["id"]) == expected
        assert sorted(row["名"] for row in chosen.take_all()) == sorted(ODD_TEXTS)
    finally:
        ray.shutdown()
