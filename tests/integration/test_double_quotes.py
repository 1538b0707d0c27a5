"""Every place that takes a filter refuses the name of a column in double quotes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import delta_sharing_client as ds
from delta_sharing_client import compat
from delta_sharing_client.cli import main

ORDERS = "demo.shop.orders"
FILTERS = (
    "\"country\" = 'DE'",
    'country = "COUNTRY"',
    "amount > 3 AND (order_id < 3 OR country IN ('DE', \"status\"))",
    'NOT (country LIKE "Country")',
)


def _url(server: Any) -> str:
    return f"{server.profile_path}#{ORDERS}"


READS: dict[str, Callable[[ds.SharedTable, str, str], Any]] = {
    "scan": lambda table, _, text: table.scan(filter=text).to_arrow(),
    "where": lambda table, _, text: table.scan().where(text).to_arrow(),
    "combined": lambda table, _, text: table.scan(filter=text).where(ds.col("amount") > 1).to_arrow(),
    "empty": lambda table, _, text: table.scan(None, text, 0).to_arrow(),
    "count": lambda table, _, text: table.scan(filter=text).count(),
    "explain": lambda table, _, text: table.scan(filter=text).explain(),
    "old version": lambda table, _, text: table.scan(filter=text, version=2).to_arrow(),
    "batches": lambda table, _, text: list(table.scan(filter=text).to_batches()),
    "asynchronous": lambda table, _, text: asyncio.run(table.scan(filter=text).to_arrow_async()),
    "partitions": lambda table, _, text: table.scan(filter=text).partitions(2),
    "dataset": lambda table, _, text: table.scan(filter=text).to_dataset().to_table(),
    "duckdb": lambda _, url, text: ds.load_as_duckdb(url, duckdb.connect(), filter=text).fetchall(),
    "lazy": lambda _, url, text: ds.scan_polars(url, filter=text).collect(),
    "lazy with a query": lambda _, url, text: (
        ds.scan_polars(url, filter=text).filter(pl.col("order_id") > 1).select("amount").head(2).collect()
    ),
    "head": lambda table, _, text: table.head(filter=text),
    "pandas": lambda _, url, text: ds.load_as_pandas(url, filter=text),
    "arrow": lambda _, url, text: ds.load_as_arrow(url, filter=text),
    "compat": lambda _, url, text: compat.load_as_pandas(url, filter=text),
    "changes": lambda table, _, text: table.changes(1, filter=text).to_arrow(),
    "changes as pandas": lambda _, url, text: ds.load_table_changes_as_pandas(url, 1, filter=text),
}


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("read", READS)
def test_name_in_double_quotes_is_refused_by_every_read(serve_demo: Any, read: str, text: str) -> None:
    table = ds.SharingClient(serve_demo.profile_path).table(ORDERS)
    serve_demo.reset_stats()
    with pytest.raises((ds.UsageError, pl.exceptions.ComputeError, duckdb.Error), match="in backticks"):
        READS[read](table, _url(serve_demo), text)
    assert serve_demo.stats()["bytes"].get("data", 0) == 0


@pytest.mark.parametrize("text", FILTERS)
def test_name_in_double_quotes_is_refused_by_follow(serve_demo: Any, tmp_path: Path, text: str) -> None:
    table = ds.SharingClient(serve_demo.profile_path).table(ORDERS)
    with pytest.raises(ds.UsageError, match="in backticks"):
        next(iter(table.follow(tmp_path / "cursor", trigger="available-now", filter=text)))


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize(
    "command", ["count", "read", "head", "files", "read --explain", "explain", "changes", "follow"]
)
def test_name_in_double_quotes_is_refused_by_every_command(
    serve_demo: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, text: str
) -> None:
    more = {
        "changes": ["--starting-version", "1"],
        "follow": ["--cursor", str(tmp_path / "cursor"), "--available-now"],
    }.get(command, [])
    code = main((*command.split(), ORDERS, "-p", str(serve_demo.profile_path), "--filter", text, *more))
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    assert "in backticks" in " ".join(printed.err.split())


@pytest.mark.parametrize("text", ['country = "DE"', "country IN (\"DE\", 'x')", 'country LIKE "DE"', '"DE" = country'])
def test_text_in_double_quotes_beside_a_column_is_a_string(serve_demo: Any, text: str) -> None:
    table = ds.SharingClient(serve_demo.profile_path).table(ORDERS)
    rows = table.scan().to_arrow().to_pylist()
    expected = [row["order_id"] for row in rows if row["country"] == "DE"]
    assert expected
    assert table.scan(["order_id"], text).to_arrow()["order_id"].to_pylist() == expected
    assert ds.scan_polars(_url(serve_demo), filter=text).select("order_id").collect()["order_id"].to_list() == expected
    # A filter that compares constants in single quotes stays one.
    assert table.scan(filter="1 = 1").count() == len(rows)
    assert table.scan(filter="'country' = 'DE'").count() == 0
