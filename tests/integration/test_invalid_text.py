"""A string that is not valid UTF-8 is an error that names it, or becomes U+FFFD, in every output."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from tests.regressions.hand_made import HandMadeTable
from tests.served import served

INVALID = b"Stra\xdfe 5"
SHOWN = "Stra\ufffde 5"
ROWS = [b"good", INVALID, None, "größe".encode()]
TEXTS = ["good", SHOWN, None, "größe"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ds.SharedTable]:
    folder = tmp_path_factory.mktemp("invalid") / "t"
    rows = pa.table({"id": [0, 1, 2, 3], "t": pa.array(ROWS, pa.binary()).view(pa.string())})
    made = HandMadeTable(folder).create(rows.schema, properties={"delta.enableChangeDataFeed": "true"})
    made.commit(made.file(rows))
    with served(folder) as shared:
        yield shared


def written(scan: ds.Scan, folder: Path, method: str) -> Path:
    path = folder / f"rows.{method}"
    assert getattr(scan, method)(path) == 4
    return path


def none(values: list[Any]) -> list[Any]:
    return [None if pd.isna(value) or value == "" else value for value in values]


OUTPUTS: dict[str, Callable[[ds.Scan, Path], list[Any]]] = {
    "arrow": lambda scan, _: scan.to_arrow()["t"].to_pylist(),
    "batches": lambda scan, _: [value for batch in scan.to_batches() for value in batch["t"].to_pylist()],
    "pandas": lambda scan, _: scan.to_pandas()["t"].tolist(),
    "pandas of pyarrow": lambda scan, _: scan.to_pandas(dtype_backend="pyarrow")["t"].tolist(),
    "polars": lambda scan, _: scan.to_polars()["t"].to_list(),
    "lazy polars": lambda scan, _: scan.to_polars(lazy=True).select("t").collect()["t"].to_list(),
    "dataset": lambda scan, _: scan.to_dataset().to_table(["t"])["t"].to_pylist(),
    "duckdb": lambda scan, _: [value for (value,) in scan.to_duckdb(duckdb.connect()).project("t").fetchall()],
    "parquet": lambda scan, folder: pq.read_table(written(scan, folder, "to_parquet"))["t"].to_pylist(),
    "csv": lambda scan, folder: pd.read_csv(written(scan, folder, "to_csv"))["t"].tolist(),
    "ipc": lambda scan, folder: pa.ipc.open_file(written(scan, folder, "to_ipc")).read_all()["t"].to_pylist(),
    "jsonl": lambda scan, folder: [
        json.loads(line)["t"] for line in io.StringIO(written(scan, folder, "to_jsonl").read_text("utf-8"))
    ],
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_every_output_names_or_replaces_the_value(table: ds.SharedTable, output: str, tmp_path: Path) -> None:
    options = ds.ReadOptions(invalid_text=ds.InvalidText.REPLACE)
    assert none(OUTPUTS[output](table.scan(options=options), tmp_path)) == TEXTS
    with pytest.raises(Exception, match=r"row 1 of the file, counted from 0, has b'Stra\\+xdfe 5'"):
        OUTPUTS[output](table.scan(), tmp_path)


@pytest.mark.parametrize("value", [*TEXTS, "Stra", "x"])
def test_engines_filter_by_the_replaced_strings(table: ds.SharedTable, value: str | None) -> None:
    scan = table.scan(options=ds.ReadOptions(invalid_text=ds.InvalidText.REPLACE))
    expected = [number for number, text in enumerate(TEXTS) if text == value and value is not None]
    assert scan.where(ds.col("t") == value).to_arrow()["id"].to_pylist() == expected
    rows = scan.to_dataset().to_table(filter=pc.field("t") == pa.scalar(value, pa.string()))
    assert rows["id"].to_pylist() == expected
    assert scan.to_polars(lazy=True).filter(pl.col("t") == pl.lit(value)).collect()["id"].to_list() == expected
    relation = scan.to_duckdb(duckdb.connect())
    condition = duckdb.ColumnExpression("t") == duckdb.ConstantExpression(value)
    assert [row[0] for row in relation.filter(condition).fetchall()] == expected


def test_changes_have_the_replaced_strings(table: ds.SharedTable) -> None:
    changes = table.changes(starting_version=0, options=ds.ReadOptions(invalid_text=ds.InvalidText.REPLACE))
    assert changes.to_arrow()["t"].to_pylist() == TEXTS
    with pytest.raises(ds.DataError, match="row 1 of the file"):
        table.changes(starting_version=0).to_arrow()
