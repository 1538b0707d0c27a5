"""Queries of other engines push columns, filters and limits down, so they fetch about as much as an explicit scan."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest
from deltalake import write_deltalake

import delta_sharing_client as ds
import mock_server
from tests.effort import ALL
from tests.regressions.hand_made import HandMadeTable
from tests.served import served
from tests.tables import ODD_PARTITIONS, write_odd
from tests.tables import ODD_TEXTS as TEXTS
from tests.versions import PYARROW

FILES, ROWS = 8, 20_000
DAY = datetime.date(2024, 1, 1)
Fetched = Callable[[Callable[[], Any]], tuple[Any, int]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("push") / "t"
    _write(folder)
    with mock_server.running(tables={"s.s.t": folder, "s.other.u": folder}) as running:
        yield running


@pytest.fixture
def table(server: Any) -> ds.SharedTable:
    return ds.SharingClient(server.profile_path).table("s.s.t")


@pytest.fixture
def fetched(server: Any) -> Fetched:
    def run(query: Callable[[], Any]) -> tuple[Any, int]:
        server.reset_stats()
        result = query()
        return result, server.stats()["bytes"].get("data", 0)

    return run


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        opened.execute("SET TimeZone = 'UTC'")
        yield opened


def _write(folder: Path) -> None:
    random = np.random.default_rng(7)
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        columns = {
            "id": pa.array(ids),
            "name": pa.array([f"name {value}" for value in ids]),
            "amount": pa.array(random.random(ROWS)),
            "day": pa.array([DAY + datetime.timedelta(days=number)] * ROWS),
            "noise": pa.array([random.bytes(24) for _ in range(ROWS)]),
        }
        write_deltalake(folder, pa.table(columns), mode="append")


QUERIES = {
    "projection": (["id"], None),
    "one file": (["id", "name"], "id < 5"),
    "a range": (["amount"], f"id >= {ROWS} AND id < {ROWS + 10}"),
    "a list": (["name"], f"id IN (3, {3 * ROWS})"),
    "dates": (["id"], "day = DATE '2024-01-03'"),
    "text": (["id"], "name = 'name 7'"),
    "nothing": (["id"], "id < 0"),
}
if PYARROW < 19:
    # With this pyarrow, DuckDB passes IN lists in a form that is not pushed down, so it fetches more than the explicit
    # scan.
    del QUERIES["a list"]
DUCKDB = tuple(map(int, duckdb.__version__.split(".")[:2]))
POLARS = tuple(map(int, pl.__version__.split(".")[:2]))


@pytest.mark.parametrize("query", QUERIES)
def test_duckdb_fetches_about_as_much_as_an_explicit_scan(
    query: str, table: ds.SharedTable, fetched: Fetched, connection: duckdb.DuckDBPyConnection
) -> None:
    columns, condition = QUERIES[query]
    explicit, least = fetched(lambda: table.scan(columns, condition).to_arrow())
    relation = table.scan().to_duckdb(connection)
    chosen = (relation if condition is None else relation.filter(condition)).project(", ".join(columns))
    rows, bytes_ = fetched(lambda: chosen.fetchall())

    assert sorted(rows) == sorted(tuple(row[name] for name in columns) for row in explicit.to_pylist())
    if query == "a list" and DUCKDB < (1, 3):
        # This DuckDB evaluates IN lists itself, so it needs all rows of these columns.
        least = fetched(lambda: table.scan([*columns, "id"]).to_arrow())[1]
    assert bytes_ <= 1.1 * least + _condition_bytes(table, columns, condition, fetched)


@pytest.mark.parametrize("query", QUERIES)
def test_polars_fetches_about_as_much_as_an_explicit_scan(query: str, table: ds.SharedTable, fetched: Fetched) -> None:
    columns, condition = QUERIES[query]
    explicit, least = fetched(lambda: table.scan(columns, condition).to_arrow())
    lazy = table.scan().to_polars(lazy=True)
    chosen = (lazy if condition is None else lazy.filter(pl.sql_expr(condition))).select(columns)
    rows, bytes_ = fetched(lambda: chosen.collect())

    assert rows.sort(columns).equals(pl.from_arrow(explicit).sort(columns))
    assert bytes_ <= 1.1 * least + _condition_bytes(table, columns, condition, fetched)


def _condition_bytes(table: ds.SharedTable, columns: list[str], condition: str | None, fetched: Fetched) -> int:
    """Return the bytes of the condition's columns, which an engine needs if it filters again."""
    if condition is None:
        return 0
    names = [name for name in ("id", "name", "day") if name in condition and name not in columns]
    return fetched(lambda: table.scan(names, condition).to_arrow())[1] if names else 0


def test_limit_of_a_query_stops_the_read(table: ds.SharedTable, fetched: Fetched) -> None:
    whole = fetched(lambda: table.scan().to_arrow())[1]
    lazy, dataset = table.scan().to_polars(lazy=True), table.scan().to_dataset()
    for query in (lambda: lazy.head(3).collect().height, lambda: dataset.head(3).num_rows):
        rows, bytes_ = fetched(query)
        assert rows == 3
        assert bytes_ < whole / FILES * 1.1


def test_limit_of_the_scan_applies_before_the_engines_filter(
    table: ds.SharedTable, connection: duckdb.DuckDBPyConnection
) -> None:
    first = table.scan(limit=10)
    matching = [row["id"] for row in first.to_arrow().to_pylist() if row["id"] % 2 == 0 and row["id"] > 3]
    assert [row[0] for row in first.to_duckdb(connection).filter("id > 3 AND id % 2 = 0").fetchall()] == matching
    condition = (pl.col("id") > 3) & (pl.col("id") % 2 == 0)
    assert first.to_polars(lazy=True).filter(condition).collect()["id"].to_list() == matching
    rows = first.to_dataset().to_table(filter=(pc.field("id") > 3) & (pc.bit_wise_and(pc.field("id"), 1) == 0))
    assert rows["id"].to_pylist() == matching


def test_polars_applies_head_and_filter_in_the_given_order(table: ds.SharedTable) -> None:
    lazy, eager = table.scan().to_polars(lazy=True), pl.from_arrow(table.scan().to_arrow())
    for frame in (lazy, eager.lazy()):
        frame.collect()
    condition = pl.col("id") > 1
    assert lazy.head(3).filter(condition).collect().equals(eager.head(3).filter(condition))
    assert lazy.filter(condition).head(3).collect().equals(eager.filter(condition).head(3))
    assert lazy.filter(pl.col("name").str.contains("77$") & condition).select(pl.len()).collect().item() == 1600


TOP_N: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "sort": lambda frame: frame.sort("name").head(5),
    "sort by two": lambda frame: frame.sort("day", "amount", descending=[True, False]).head(5),
    "filter": lambda frame: frame.filter(pl.col("id") > 100).sort("amount", descending=True).head(5),
    "filters": lambda frame: (
        frame.filter(pl.col("id") > 100, pl.col("name").str.ends_with("7")).sort("amount").slice(2, 3)
    ),
    "either": lambda frame: frame.filter((pl.col("id") < 9) | (pl.col("amount") < 0.5)).top_k(4, by="amount"),
    "columns": lambda frame: frame.filter(pl.col("day") > DAY).select("id", "amount").bottom_k(4, by="amount"),
    "renamed": lambda frame: frame.rename({"amount": "a"}).filter(pl.col("a") > 0.5).sort("a").head(3),
    "computed": lambda frame: frame.sort(-pl.col("id")).head(3),
    "of a top": lambda frame: frame.sort("amount").head(50).sort("id").head(5),
    "not a filter": lambda frame: frame.filter(pl.col("id") % 2 == 1).top_k(4, by="id"),
}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("query", TOP_N)
def test_top_k_of_a_lazy_frame_equals_the_eager_result(table: ds.SharedTable, query: str, engine: Any) -> None:
    """Some versions of Polars push down a dynamic predicate for the top k rows that only Polars can evaluate."""
    lazy, eager = table.scan().to_polars(lazy=True), pl.from_arrow(table.scan().to_arrow())
    rows, expected = TOP_N[query](lazy).collect(engine=engine), TOP_N[query](eager.lazy()).collect()
    # The top k rows have no defined order, so both results are sorted. No two rows tie.
    assert rows.sort("id").equals(expected.sort("id"))


def test_engines_see_the_schema_and_rows_of_the_scan(table: ds.SharedTable) -> None:
    scan = table.scan(["name", "id"], "id < 3")
    assert scan.to_polars(lazy=True).collect_schema().names() == ["name", "id"]
    if POLARS >= (1, 31):
        unoptimised = scan.to_polars(lazy=True).collect(optimizations=pl.QueryOptFlags.none())
        assert unoptimised.equals(pl.from_arrow(scan.to_arrow()))
    with pytest.MonkeyPatch.context() as patch:
        # Simulates that our engine evaluates a different filter, which shows that Polars passes its filter to it.
        patch.setattr("delta_sharing_client.outputs.polars.without_hints", lambda _: pl.col("id") == 2)
        assert scan.to_polars(lazy=True).filter(pl.col("id") > 0).collect()["id"].to_list() == [2]
    assert pa.table(scan.to_dataset().scanner(["id"])).equals(scan.to_arrow().select(["id"]))
    assert pa.schema(scan.to_dataset()).equals(scan.schema)
    assert pa.table(scan.to_dataset()).num_rows == scan.count() == scan.to_dataset().count_rows() == 3


def test_count_without_a_filter_downloads_no_data(table: ds.SharedTable, fetched: Fetched) -> None:
    assert fetched(lambda: table.scan().count()) == (FILES * ROWS, 0)
    assert table.scan(filter="id < 7").count() == 7
    assert table.scan(limit=5).count() == 5


def test_engines_count_rows_without_their_data(
    server: Any, table: ds.SharedTable, connection: duckdb.DuckDBPyConnection, fetched: Fetched
) -> None:
    ds.attach(connection, server.profile_path)
    frame = table.scan().to_polars(lazy=True)
    # Older versions request columns to count rows: all columns, or the first one.
    whole, first = (fetched(table.scan(columns).to_arrow)[1] for columns in (None, ["id"]))
    by_duckdb = whole if DUCKDB < (1, 3) else 0
    by_polars = whole if POLARS < (1, 27) else first if POLARS < (1, 41) else 0
    assert fetched(connection.sql("SELECT count(*) FROM s.s.t").fetchall) == ([(FILES * ROWS,)], by_duckdb)
    rows, bytes_ = fetched(connection.sql("SELECT 1 FROM s.s.t LIMIT 3").fetchall)
    assert rows == [(1,)] * 3
    assert bytes_ <= by_duckdb
    assert fetched(lambda: frame.select(pl.len()).collect().item()) == (FILES * ROWS, by_polars)
    # With a filter, they need only its column.
    _, least = fetched(table.scan(["id"], "id < 30000").to_arrow)
    rows, bytes_ = fetched(connection.sql("SELECT count(*) FROM s.s.t WHERE id < 30000").fetchall)
    assert rows == [(30_000,)]
    assert bytes_ <= 1.1 * least
    rows, bytes_ = fetched(lambda: frame.filter(pl.col("id") < 30_000).select(pl.len()).collect().item())
    assert rows == 30_000
    assert bytes_ <= 1.1 * least
    # The additional column for counting has a name that the table does not use.
    assert frame.collect_schema().names() == connection.sql("FROM s.s.t").columns == table.scan().schema.names
    assert table.scan(limit=7).to_duckdb(connection).aggregate("count(*)").fetchall() == [(7,)]
    assert table.scan(limit=7).to_polars(lazy=True).select(pl.len()).collect().item() == 7


def test_table_may_have_a_column_with_the_name_for_counting(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    write_deltalake(tmp_path / "t", pa.table({"_Rows": [5, 6], "_rows1": [True, None]}))
    with mock_server.running(tables={"s.s.t": tmp_path / "t"}) as server:
        scan = ds.SharingClient(server.profile_path).table("s.s.t").scan()
        assert scan.to_duckdb(connection).fetchall() == [(5, True), (6, None)]
        assert scan.to_duckdb(connection).aggregate("count(*)").fetchall() == [(2,)]
        assert scan.to_polars(lazy=True).collect().rows() == [(5, True), (6, None)]
        assert scan.to_polars(lazy=True).select(pl.len()).collect().item() == 2


def test_dataset_behaves_like_a_pyarrow_dataset(table: ds.SharedTable) -> None:
    dataset = table.scan(filter="id < 100").to_dataset()
    assert isinstance(dataset, pads.Dataset)
    assert dataset.to_table(columns={"double": pc.field("id") * 2}).column("double").to_pylist()[:3] == [0, 2, 4]
    assert {batch.num_rows for batch in dataset.to_batches(batch_size=30)} == {30, 10}
    few = dataset.filter(pc.field("id") > 96)
    assert few.count_rows() == 3
    assert few.filter(pc.field("id") < 99).to_table()["id"].to_pylist() == [97, 98]
    assert few.to_table(filter=pc.field("id") != 98)["id"].to_pylist() == [97, 99]
    assert dataset.count_rows(pc.field("id") > 97) == 2
    assert dataset.head(5, columns=["id"], filter=pc.field("id") > 50)["id"].to_pylist() == [51, 52, 53, 54, 55]
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == 100
    (fragment,) = dataset.get_fragments(pc.field("id") > 50)
    assert fragment.to_table(dataset.schema, columns=["id"], filter=pc.field("id") < 53)["id"].to_pylist() == [51, 52]
    assert sum(batch.num_rows for batch in fragment.to_batches(batch_size=10)) == 49
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("id") < 5).select("id").collect().height == 5


def test_unsupported_dataset_operations_are_refused(table: ds.SharedTable) -> None:
    dataset = table.scan().to_dataset()
    (fragment,) = dataset.get_fragments()
    with pytest.raises(ds.UnsupportedFeatureError, match="cannot be replaced"):
        fragment.scanner(pa.schema([("id", pa.string())]))
    for refused in (dataset.join, dataset.join_asof, dataset.sort_by):
        with pytest.raises(ds.UnsupportedFeatureError, match="A dataset of a shared table does not support"):
            refused("id")
    with pytest.raises(ds.UnsupportedFeatureError, match="cannot be replaced"):
        dataset.replace_schema(dataset.schema)
    with pytest.raises(ds.UsageError, match="The column 'nope' is not in the table"):
        dataset.to_table(columns=["nope"])
    with pytest.raises(ds.UsageError, match="The column 'ID' must be spelled 'id'"):
        dataset.to_table(columns=["ID"])
    with pytest.raises(FileNotFoundError):
        pads.UnionDataset(dataset.schema, [dataset]).to_table()


def test_attached_shares_are_duckdb_databases(
    server: Any, fetched: Fetched, table: ds.SharedTable, connection: duckdb.DuckDBPyConnection
) -> None:
    ds.attach(connection, server.profile_path)

    query = "SELECT count(*), min(u.name) FROM s.s.t JOIN s.other.u USING (id) WHERE t.id < 4"
    rows, bytes_ = fetched(lambda: connection.execute(query).fetchall())
    assert rows == [(4, "name 0")]
    assert bytes_ < fetched(lambda: table.scan(["id", "name"]).to_arrow())[1]
    assert connection.cursor().execute("SELECT max(id) FROM s.s.t").fetchone() == (FILES * ROWS - 1,)
    assert connection.execute("SELECT current_schema()").fetchone() == ("main",)
    ds.attach(connection, server.profile_path)
    with pytest.raises(ds.NotFoundError, match="'nope'"):
        ds.attach(connection, server.profile_path, share="nope")


@pytest.mark.parametrize("own", [None, "3MiB"])
def test_streaming_buffer_is_small_by_default(
    server: Any, connection: duckdb.DuckDBPyConnection, own: str | None
) -> None:
    if own:
        connection.execute(f"SET streaming_buffer_size = '{own}'")
    ds.attach(connection, server.profile_path)
    buffered = connection.execute("SELECT current_setting('streaming_buffer_size')").fetchone()
    assert buffered == (("3.0 MiB",) if own else ("976.5 KiB",))


@pytest.mark.parametrize("wire", ["parquet", "delta"])
def test_explain_reports_files_skipped_by_the_server(table: ds.SharedTable, wire: str) -> None:
    scan = table.scan(filter=f"id < {2 * ROWS}", response_format=wire)
    assert "files to read: 2 of 2 listed (8 in the table)" in scan.explain()
    assert table.scan(response_format=wire).plan().table_files == FILES


# --- expressions that refer to columns by position, and non-ASCII text ---


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    folder = tmp_path_factory.mktemp("odd") / "t"
    write_odd(folder)
    with served(folder) as table:
        yield table


@pytest.mark.parametrize(
    "condition",
    [
        pc.field(0) > 2,
        (pc.field(1) > 20) & (pc.field("名") == "名前"),
        pc.field("名").isin(TEXTS[:3]),
        pc.field("名") == TEXTS[3],
        pc.field("o", "名") == "😀" * 300,
        pc.field(3, 0) >= 4,
        pc.field("größe.in cm") * 2 > 40,
        pc.starts_with(pc.field("名"), "it'"),
        pc.field("o").is_valid(),
        pc.field("страна") == ODD_PARTITIONS[0],
        pc.field("страна").isin(ODD_PARTITIONS[1:]) & (pc.field("名") == "名前"),
    ],
)
@pytest.mark.parametrize(
    "columns", [None, ["名"], ["o", "id"], [], {"double": pc.field(1) * 2, "名": pc.field("名")}][:: 1 if ALL else 2]
)
def test_dataset_returns_the_same_rows_as_one_in_memory(odd: ds.SharedTable, condition: Any, columns: Any) -> None:
    dataset, near = odd.scan().to_dataset(), pads.dataset(odd.scan().to_arrow())
    expected = near.to_table(columns=columns, filter=condition)
    assert dataset.to_table(columns=columns, filter=condition).equals(expected)
    assert dataset.to_table(columns=columns).equals(near.to_table(columns=columns))
    first = dataset.scanner(columns, condition).head(2)
    assert first.num_rows == min(2, expected.num_rows)
    assert first.to_pylist() == expected.to_pylist()[:2]
    assert dataset.count_rows(condition) == dataset.scanner(columns, condition).count_rows() == expected.num_rows
    assert dataset.scanner(columns, condition).projected_schema.equals(expected.schema)
    assert pa.Table.from_batches(dataset.to_batches(columns, condition), expected.schema).equals(expected)


@pytest.mark.parametrize(
    "condition",
    [
        "名 IN ('größe', '名前', '')",
        f"名 = '{TEXTS[2]}' OR 名 = '{TEXTS[3]}'",
        '"größe.in cm" BETWEEN 20 AND 60',
        "o.\"名\" = 'it''s'",
        "o.\"a.b\" > 4 AND 名 LIKE 'g%'",
        "NOT (名 IN ('größe', 'x'))",
        f"страна = '{ODD_PARTITIONS[0]}' AND 名 > 'x'",
    ],
)
def test_duckdb_filters_special_names_and_non_ascii_text(
    odd: ds.SharedTable, connection: duckdb.DuckDBPyConnection, condition: str
) -> None:
    near, far = odd.scan().to_arrow(), odd.scan().to_duckdb(connection)
    expected = connection.from_arrow(near).filter(condition).order("id").fetchall()
    assert far.filter(condition).order("id").fetchall() == expected != []


@pytest.mark.parametrize(
    "condition",
    [
        pl.col("名").is_in(TEXTS[:3]),
        (pl.col("名") == TEXTS[2]) | (pl.col("名") == TEXTS[3]),
        pl.col("größe.in cm").is_between(20, 60),
        pl.col("o").struct.field("名") == "it's",
        (pl.col("o").struct.field("a.b") > 4) & pl.col("名").str.starts_with("g"),
        ~(pl.col("名") == "größe"),
        (pl.col("страна") == ODD_PARTITIONS[1]) & (pl.col("名").str.len_chars() > 100),
    ],
)
def test_polars_filters_special_names_and_non_ascii_text(odd: ds.SharedTable, condition: pl.Expr) -> None:
    near, far = odd.scan().to_polars(), odd.scan().to_polars(lazy=True)
    expected = near.filter(condition)
    assert len(expected)
    assert far.filter(condition).sort("id").collect().equals(expected.sort("id"))
    assert far.filter(condition).select("o", "страна").collect().height == expected.height


@pytest.mark.parametrize("backend", ["numpy", "numpy_nullable", "pyarrow"])
def test_frames_have_special_names_and_non_ascii_text(odd: ds.SharedTable, backend: str) -> None:
    rows = odd.scan().to_arrow().to_pylist()
    for condition, keeps in (
        (None, lambda row: True),
        ("名 IN ('größe', '名前') AND `größe.in cm` > 0", lambda row: row["名"] in TEXTS[:2] and row["größe.in cm"]),
        (f"o.`名` = '{TEXTS[2]}'", lambda row: row["o"]["名"] == TEXTS[2]),
        (f"страна = '{ODD_PARTITIONS[1]}' AND `名` LIKE 'it%'", lambda row: row["id"] == 10),
    ):
        frame = odd.scan(filter=condition).to_pandas(dtype_backend=backend)
        assert frame.to_dict("records") == [row for row in rows if keeps(row)] != []


def test_engines_keep_the_selected_fields_of_a_struct(
    odd: ds.SharedTable, connection: duckdb.DuckDBPyConnection
) -> None:
    scan = odd.scan([("o", "名"), "ID"])
    expected = [{"o": row["o"]} for row in scan.to_arrow().to_pylist()]
    assert expected[1] == {"o": {"名": "名前"}}
    assert scan.to_dataset().to_table(columns=["o"]).to_pylist() == expected
    assert scan.to_dataset().to_table(columns=["o"], filter=pc.field("id") > 10).to_pylist() == expected[11:]
    assert scan.to_polars(lazy=True).select("o").collect().to_dicts() == expected
    assert scan.to_duckdb(connection).project("o").fetchall() == [(row["o"],) for row in expected]
    assert scan.to_duckdb(connection).filter("o.\"名\" = '名前'").aggregate("count(*)").fetchall() == [(2,)]


def test_error_for_an_unreadable_table_states_the_reason(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    whole, odd = tmp_path / "whole", tmp_path / "it's"
    write_deltalake(whole, pa.table({"größe": [1, 2]}))
    made = HandMadeTable(odd).create(pa.schema([("id", pa.int64())]), features=["名前's feature"])
    made.commit(made.file(pa.table({"id": [1]})))
    tables = {f"s.s.t{number}": whole for number in range(40)}
    with mock_server.running(tables={**tables, "s.s.it's": odd}, latency=0.01) as server:
        ds.attach(connection, server.profile_path)
        assert connection.sql('SELECT sum("größe") FROM s.s.t7').fetchall() == [(3,)]
        names = connection.sql("SELECT view_name FROM duckdb_views() WHERE schema_name = 's'").fetchall()
        assert len(names) == 41
        with pytest.raises(duckdb.InvalidInputException, match="名前's feature"):
            connection.sql('SELECT * FROM s.s."it\'s"').fetchall()
