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


READS: dict[str, Callable[[Any, str], Any]] = {
    "scan": lambda server, text: ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).to_arrow(),
    "where": lambda server, text: ds.SharingClient(server.profile_path).table(ORDERS).scan().where(text).to_arrow(),
    "combined": lambda server, text: (
        ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).where(ds.col("amount") > 1).to_arrow()
    ),
    "empty": lambda server, text: ds.SharingClient(server.profile_path).table(ORDERS).scan(None, text, 0).to_arrow(),
    "count": lambda server, text: ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).count(),
    "explain": lambda server, text: ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).explain(),
    "old version": lambda server, text: (
        ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text, version=2).to_arrow()
    ),
    "batches": lambda server, text: list(
        ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).to_batches()
    ),
    "asynchronous": lambda server, text: asyncio.run(
        ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).to_arrow_async()
    ),
    "partitions": lambda server, text: (
        ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).partitions(2)
    ),
    "dataset": lambda server, text: (
        ds.SharingClient(server.profile_path).table(ORDERS).scan(filter=text).to_dataset().to_table()
    ),
    "duckdb": lambda server, text: ds.load_as_duckdb(_url(server), duckdb.connect(), filter=text).fetchall(),
    "lazy": lambda server, text: ds.scan_polars(_url(server), filter=text).collect(),
    "lazy with a query": lambda server, text: (
        ds.scan_polars(_url(server), filter=text).filter(pl.col("order_id") > 1).select("amount").head(2).collect()
    ),
    "head": lambda server, text: ds.SharingClient(server.profile_path).table(ORDERS).head(filter=text),
    "pandas": lambda server, text: ds.load_as_pandas(_url(server), filter=text),
    "arrow": lambda server, text: ds.load_as_arrow(_url(server), filter=text),
    "compat": lambda server, text: compat.load_as_pandas(_url(server), filter=text),
    "changes": lambda server, text: (
        ds.SharingClient(server.profile_path).table(ORDERS).changes(1, filter=text).to_arrow()
    ),
    "changes as pandas": lambda server, text: ds.load_table_changes_as_pandas(_url(server), 1, filter=text),
}


@pytest.mark.parametrize("text", FILTERS)
@pytest.mark.parametrize("read", READS)
def test_name_in_double_quotes_is_refused_by_every_read(serve_demo: Any, read: str, text: str) -> None:
    serve_demo.reset_stats()
    with pytest.raises((ds.UsageError, pl.exceptions.ComputeError, duckdb.Error), match="in backticks"):
        READS[read](serve_demo, text)
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
