"""``to_dataset()`` of a table with NOT NULL columns at every level is compared with a pyarrow dataset of the same
rows."""

from __future__ import annotations

import decimal
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pytest

import delta_sharing_client as ds
from delta_sharing_client.outputs import polars as polars_frames
from delta_sharing_client.outputs import streams
from delta_sharing_client.outputs.dataset import SharedDataset, known_to_duckdb
from tests.effort import ALL
from tests.regressions.hand_made import HandMadeTable
from tests.served import served


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


SCHEMA = pa.schema([
    required("id", pa.int64()),
    pa.field("n", pa.int64()),
    required("price", pa.decimal128(10, 2)),
    required("s", pa.struct([required("x", pa.int64()), pa.field("y", pa.string())])),
    pa.field("o", pa.struct([required("x", pa.int64())])),
    required("l", pa.list_(required("element", pa.int64()))),
    required("m", pa.map_(pa.string(), required("value", pa.string()))),
    required("p", pa.string()),
])  # fmt: skip
ROWS = pa.Table.from_pylist(
    [
        {
            "id": number,
            "n": None if number % 3 else -number,
            "price": decimal.Decimal(number) / 4,
            "s": {"x": number % 5, "y": None if number % 2 else f"y{number}"},
            "o": None if number % 4 else {"x": number},
            "l": list(range(number % 3)),
            "m": [(f"k{number}", "v")],
            "p": "one" if number < 20 else "two",
        }
        for number in range(40)
    ],
    schema=SCHEMA,
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    folder = tmp_path_factory.mktemp("required") / "t"
    made = HandMadeTable(folder).create(SCHEMA, partition_by=["p"])
    for value, rows in (("one", ROWS.slice(0, 20)), ("two", ROWS.slice(20))):
        made.commit(made.file(rows.drop_columns(["p"]), {"p": value}))
    with served(folder) as shared:
        yield shared


CONDITIONS: dict[str, pc.Expression | None] = {
    "all": None,
    "number": pc.field("id") > 17,
    "null": pc.field("n").is_valid(),
    "nested": pc.field("s", "x") == 3,
    "partition": pc.field("p") == "two",
    "not pushed": pc.bit_wise_and(pc.field("id"), 1) == 1,
    "none": pc.field("id") < 0,
}
COLUMNS: dict[str, Any] = {
    "all": None,
    "some": ["id", "s", "p"],
    "other order": ["p", "o", "id"],
    "none": [],
    "plain": {"id": pc.field("id"), "l": pc.field("l")},
    "computed": {"id": pc.field("id"), "twice": pc.field("id") * 2},
    # The name of a computed column may be the name of a column of the table.
    "own name": {"id": pc.field("id") + 1},
    "swapped": {"id": pc.field("n"), "n": pc.field("id")},
    "all names": {name: pc.field("id") for name in SCHEMA.names},
    "renamed": {"a": pc.field("s"), "b": pc.field("p"), "c": pc.field("price")},
    "nested": {"x": pc.field("s", "x"), "y": pc.field("o", "x")},
    "constant": {"one": pc.scalar(1), "m": pc.field("m")},
    "by place": {"third": pc.field(2), "id": pc.field("id")},
}


# Pairs with all columns or without a condition, and a third of the others.
PAIRS = [(columns, condition) for columns in COLUMNS for condition in CONDITIONS]
CHOSEN = [pair for at, pair in enumerate(PAIRS) if ALL or "all" in pair or at % 3 == 0]


@pytest.mark.parametrize(("columns", "condition"), CHOSEN)
def test_queries_of_a_dataset_equal_those_of_pyarrow(table: ds.SharedTable, columns: str, condition: str) -> None:
    query = {"columns": COLUMNS[columns], "filter": CONDITIONS[condition]}
    dataset, near = table.scan().to_dataset(), pads.dataset(ROWS)
    expected = near.to_table(**query)
    schema = dataset.scanner(**query).projected_schema
    assert (schema.names, schema.types) == (expected.schema.names, expected.schema.types)
    for field in schema:
        # pyarrow declares more columns NOT NULL than we do: also renamed columns, and fields of nullable structs.
        assert field.nullable or not expected.schema.field(field.name).nullable
    if not isinstance(query["columns"], dict) or columns == "plain":
        assert schema.equals(expected.schema)
    batches = list(dataset.to_batches(**query, batch_size=7))
    rows = [
        dataset.to_table(**query),
        dataset.filter(query["filter"]).to_table(query["columns"]) if query["filter"] is not None else expected,
        pa.Table.from_batches(batches, schema),
        dataset.scanner(**query, use_threads=False).to_table(),
        dataset.scanner(**query).to_reader().read_all(),
    ]
    for result in rows:
        result.validate(full=True)
        assert result.num_rows == expected.num_rows
        assert result.to_pydict() == expected.to_pydict()
    assert all(batch.schema.equals(schema) for batch in batches)
    assert dataset.head(5, **query).to_pydict() == expected.slice(0, 5).to_pydict()
    assert dataset.count_rows(query["filter"]) == expected.num_rows


def test_count_without_a_filter_needs_no_scanner(table: ds.SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = table.scan().to_dataset()
    monkeypatch.setattr(SharedDataset, "_scanner", None)
    assert dataset.count_rows() == ROWS.num_rows


@pytest.mark.parametrize("condition", [None, "id > 17", "n IS NOT NULL", "s.x = 3", "p = 'two' AND o IS NULL"])
def test_duckdb_queries_a_dataset_with_not_null_columns(table: ds.SharedTable, condition: str | None) -> None:
    with duckdb.connect() as connection:
        rows, expected = (
            (relation if condition is None else relation.filter(condition)).order("id").fetchall()
            for relation in map(connection.from_arrow, (table.scan().to_dataset(), ROWS))
        )
        assert rows == expected != []


@pytest.mark.parametrize(
    "condition", [None, pl.col("id") > 17, pl.col("n").is_not_null(), pl.col("p") == "two", pl.col("s").is_null()]
)
def test_polars_queries_a_dataset_with_not_null_columns(table: ds.SharedTable, condition: pl.Expr | None) -> None:
    far, near = pl.scan_pyarrow_dataset(table.scan().to_dataset()), pl.from_arrow(ROWS)
    expected = near if condition is None else near.filter(condition)
    rows = (far if condition is None else far.filter(condition)).collect()
    assert rows.to_dicts() == expected.to_dicts()
    lazy = table.scan().to_polars(lazy=True)
    assert (lazy if condition is None else lazy.filter(condition)).collect().to_dicts() == expected.to_dicts()


def test_pyarrow_writes_a_filtered_dataset(table: ds.SharedTable, tmp_path: Path) -> None:
    scanner = table.scan().to_dataset().scanner(filter=pc.field("id") >= 10, use_threads=True)
    pads.write_dataset(scanner, tmp_path, format="parquet")
    assert pads.dataset(tmp_path).to_table().sort_by("id").to_pydict() == ROWS.slice(10).to_pydict()


@pytest.mark.parametrize(("version", "is_refused"), [("1.4.1", True), ("2.0.0", False)])
@pytest.mark.parametrize("in_struct", [False, True])
def test_nanoseconds_are_refused_if_duckdb_would_truncate_them(
    monkeypatch: pytest.MonkeyPatch, version: str, is_refused: bool, in_struct: bool
) -> None:
    monkeypatch.setattr(duckdb, "__version__", version)
    moment = pa.timestamp("ns", "UTC")
    kept = pa.schema([("id", pa.int64()), ("local", pa.timestamp("ns")), ("micros", pa.timestamp("us", "UTC"))])
    kept = kept.append(pa.field("nested", pa.struct([("x", pa.list_(pa.timestamp("us", "UTC")))])))
    assert known_to_duckdb(kept) == kept
    schema = kept.append(
        pa.field("cut", pa.struct([("n", pa.int64()), ("x", pa.list_(moment))]) if in_struct else moment)
    )
    if is_refused:
        with pytest.raises(ds.UnsupportedFeatureError, match=rf"DuckDB {version} truncates .* column 'cut'"):
            known_to_duckdb(schema)
    else:
        assert known_to_duckdb(schema) == schema


def test_dataset_with_not_null_columns_converts_to_frames(table: ds.SharedTable) -> None:
    frame = table.scan().to_dataset().to_table(["id", "p"], pc.field("n").is_valid()).to_pandas()
    assert frame.to_dict("records") == [{"id": id_, "p": "one" if id_ < 20 else "two"} for id_ in range(0, 40, 3)]


@pytest.mark.parametrize(("limit", "rows"), [(2, [1, 2, 2]), (None, [1, 2, 5])])
def test_head_of_a_dataset_respects_the_limit_of_its_scan(
    table: ds.SharedTable, limit: int | None, rows: list[int]
) -> None:
    dataset = table.scan(limit=limit).to_dataset()
    assert [dataset.head(number).num_rows for number in (1, 2, 5)] == rows


def test_creating_a_dataset_installs_the_ctrl_c_handler(table: ds.SharedTable) -> None:
    before = signal.set_wakeup_fd(-1)
    try:
        table.scan().to_dataset()
        assert signal.set_wakeup_fd(-1) != -1
    finally:
        signal.set_wakeup_fd(before)


def test_scanner_refuses_batches_with_an_unexpected_schema(table: ds.SharedTable) -> None:
    for name, expression in (("id", pc.field("id").cast("int32")), ("other", pc.field("id"))):
        scanner = table.scan().to_dataset().scanner({"id": pc.field("id")}, pc.field("id") > 3)
        assert scanner.projected_schema.names == ["id"]
        scanner._asked = {name: expression}
        with pytest.raises(AssertionError, match=r"the query's .* differ from its schema"):
            next(itertools.chain(scanner.to_batches(), [None]))


def test_scanner_passes_its_options_to_pyarrow(table: ds.SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[dict[str, Any]] = []

    class Scanner:
        @staticmethod
        def from_batches(reader: pa.RecordBatchReader, **options: Any) -> pa.Table:
            passed.append(options)
            return reader.read_all()

    dataset = table.scan().to_dataset()
    monkeypatch.setattr(pads, "Scanner", Scanner)
    result = dataset.scanner(["id"], pc.field("id") > 37, use_threads=False, batch_readahead=3)
    assert passed == [{"use_threads": False, "batch_readahead": 3}]
    assert result.to_pydict() == {"id": [38, 39]}
    assert max(batch.num_rows for batch in dataset.scanner(batch_size=7).to_batches()) == 7


def test_head_of_no_rows_reads_no_batch(table: ds.SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = table.scan().to_dataset().filter(pc.field("id") > 3)
    begun: list[object] = []
    monkeypatch.setattr(ds.Scan, "to_batches", lambda *_, **__: begun.append(1))
    monkeypatch.setattr(streams.RowStream, "__next__", lambda stream: begun.append(2))
    assert dataset.head(0).num_rows == 0
    assert 2 not in begun


def test_filtered_lazy_frame_starts_with_small_batches(table: ds.SharedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[bool, str, bool]] = []
    stream = polars_frames.RowStream

    def made(begin: Any, *, small_first: bool) -> Any:
        request = begin.args[0].request
        assert request.filter is None
        begun.append((begin.keywords["eager"], str(request.pushed_filter), small_first))
        return stream(begin, small_first=small_first)

    monkeypatch.setattr(polars_frames, "RowStream", made)
    frame = table.scan().to_polars(lazy=True)
    assert frame.select("id").collect().height == 40
    assert frame.filter(pl.col("id") > 37).select("id").collect()["id"].to_list() == [38, 39]
    assert frame.select("id").head(3).collect().height == 3
    assert begun == [(True, "None", False), (False, "id > 37", True), (True, "None", False)]
