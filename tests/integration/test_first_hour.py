"""Common first steps: reads of a table, SQL in one line, profiles by name."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client import compat
from delta_sharing_client.cli import main
from delta_sharing_client.protocol import named_profiles
from delta_sharing_client.protocol.rest import client_of
from tests.conftest import Lake
from tests.regressions.hand_made import HandMadeTable

NAME = "demo.shop.orders"
ROWS = 2755


@pytest.fixture
def client(serve_demo: Any) -> ds.SharingClient:
    return ds.SharingClient(serve_demo.profile_path)


@pytest.fixture
def orders(client: ds.SharingClient) -> ds.SharedTable:
    return client.table(NAME)


# --- reads of a table ---


def test_outputs_of_a_table_equal_those_of_its_scan(orders: ds.SharedTable) -> None:
    scan = orders.scan()
    assert orders.to_arrow().equals(scan.to_arrow())
    assert orders.to_pandas().equals(scan.to_pandas())
    assert orders.to_pandas("pyarrow").dtypes.equals(scan.to_pandas("pyarrow").dtypes)
    assert orders.to_polars().equals(scan.to_polars())
    lazy = orders.to_polars(lazy=True)
    assert isinstance(lazy, pl.LazyFrame)
    assert lazy.select(pl.len()).collect().item() == orders.count() == scan.count() == ROWS
    assert orders.columns == scan.to_arrow().column_names
    assert pa.table(orders).equals(scan.to_arrow())
    assert pl.DataFrame(orders).equals(scan.to_polars())
    assert pa.RecordBatchReader.from_stream(orders).read_all().equals(scan.to_arrow())


def test_table_reads_with_the_options_of_its_client(serve_demo: Any) -> None:
    client = ds.SharingClient(serve_demo.profile, ds.ReadOptions(batch_rows=7))
    reader = pa.RecordBatchReader.from_stream(client.table(NAME))
    assert max(batch.num_rows for batch in reader) == 7


def test_table_object_of_compat_reads_like_its_snapshot(serve_demo: Any) -> None:
    table = compat.SharingClient(serve_demo.profile_path).table(NAME)
    assert table.to_pandas().equals(table.snapshot().to_pandas())
    assert table.count() == ROWS


# --- loaders accept tables ---

LOADERS: list[Callable[[Any], int]] = [
    lambda table: len(ds.load_as_pandas(table)),
    lambda table: ds.load_as_arrow(table).num_rows,
    lambda table: ds.load_as_polars(table).height,
    lambda table: ds.scan_polars(table).select(pl.len()).collect().item(),
    lambda table: len(ds.load_as_duckdb(table, duckdb.connect()).fetchall()),
    lambda table: ROWS if ds.get_table_version(table) == 6 else 0,
    lambda table: ROWS if ds.get_table_metadata(table).partition_columns == ("country",) else 0,
    lambda table: ROWS if "deletionVectors" in (ds.get_table_protocol(table).reader_features or ()) else 0,
    lambda table: ROWS if len(ds.load_table_changes_as_pandas(table, 6)) == 400 else 0,
    lambda table: ROWS if ds.load_table_changes_as_arrow(table, 6).num_rows == 400 else 0,
    lambda table: ROWS if ds.load_table_changes_as_polars(table, 6).height == 400 else 0,
]


@pytest.mark.parametrize("load", LOADERS)
@pytest.mark.parametrize(
    "table",
    [
        lambda client: client.table(NAME),
        lambda client: client["demo"]["shop"]["orders"],
        lambda client: client.list_tables("demo.shop")[0],
        lambda client: next(one for one in client.list_all_tables() if one.name == "orders"),
    ],
    ids=["table", "index", "list_tables", "list_all_tables"],
)
def test_loaders_accept_tables_of_a_client(
    client: ds.SharingClient, load: Callable[[Any], int], table: Callable[[ds.SharingClient], Any]
) -> None:
    assert load(table(client)) == ROWS


def test_listed_table_is_read_by_its_own_client(serve_demo: Any, serve: Any) -> None:
    other = serve(demo=True)
    mine, theirs = (ds.SharingClient(one.profile).list_tables("demo.shop")[0] for one in (serve_demo, other))
    assert mine == theirs
    other.reset_stats()
    serve_demo.reset_stats()
    assert ds.load_as_arrow(theirs, limit=1).num_rows == 1
    assert "query" in other.stats()["requests"]
    assert serve_demo.stats()["requests"] == {}


def test_listed_table_does_not_show_or_pickle_its_client(client: ds.SharingClient, serve_demo: Any) -> None:
    table = client.list_tables("demo.shop")[0]
    made = ds.Table(**dataclasses.asdict(table))
    assert table == made
    assert hash(table) == hash(made)
    assert repr(table) == repr(made)
    assert set(dataclasses.asdict(table)) == {field.name for field in dataclasses.fields(ds.Table)}
    token = serve_demo.profile["bearerToken"].encode()
    others = [pickle.loads(pickle.dumps(table)), copy.copy(table), copy.deepcopy(table), dataclasses.replace(table)]
    for other in others:
        assert other == table
        assert client_of(other) is None
    assert token not in pickle.dumps([table, client.list_all_tables()])


def test_table_without_a_client_needs_a_profile(
    client: ds.SharingClient, serve_demo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ds.Table("orders", "demo", "shop")
    with pytest.raises(ds.ProfileError, match="'DELTA_SHARING_PROFILE' is not set"):
        ds.load_as_pandas(table)
    monkeypatch.setenv("DELTA_SHARING_PROFILE", str(serve_demo.profile_path))
    assert ds.load_as_arrow(table).num_rows == ROWS


# --- SQL ---


def test_sql_reads_nothing_until_its_result_is_fetched(serve_demo: Any) -> None:
    serve_demo.reset_stats()
    query = f"SELECT country, count(*) AS n FROM {NAME} WHERE amount > 100 GROUP BY country"
    relation = ds.sql(query, serve_demo.profile)
    assert "query" not in serve_demo.stats()["requests"]
    rows = ds.SharingClient(serve_demo.profile).table(NAME).to_arrow().to_pylist()
    expected = Counter(row["country"] for row in rows if row["amount"] is not None and row["amount"] > 100)
    assert dict(relation.fetchall()) == expected
    assert relation.filter("n > 100").df()["n"].min() > 100
    assert serve_demo.stats()["requests"]["query"] >= 2


def test_sql_joins_tables_in_utc(serve_demo: Any) -> None:
    query = f"SELECT a.n, b.n FROM (SELECT count(*) n FROM {NAME}) a, (SELECT count(*) n FROM demo.shop.products) b"
    assert ds.sql(query, serve_demo.profile).fetchall() == [(ROWS, 200)]
    assert ds.sql("SELECT current_setting('TimeZone')", serve_demo.profile).fetchall() == [("UTC",)]


def test_sql_does_not_use_the_default_duckdb_connection(serve_demo: Any) -> None:
    first = ds.sql(f"SELECT count(*) FROM {NAME}", serve_demo.profile)
    ds.sql("SELECT 1", serve_demo.profile)
    assert duckdb.sql("SELECT count(*) FROM duckdb_databases() WHERE database_name = 'demo'").fetchall() == [(0,)]
    assert first.fetchall() == [(ROWS,)]


@pytest.mark.parametrize("query", [f"DESCRIBE {NAME}", f"DESC {NAME}", f"DESCRIBE SELECT * FROM {NAME}"])
def test_sql_describes_a_table(orders: ds.SharedTable, query: str) -> None:
    rows = ds.sql(query, orders.rest.profile).fetchall()
    assert [row[0] for row in rows] == orders.columns
    assert {row[0]: row[1] for row in rows}["ordered_at"] == "TIMESTAMP WITH TIME ZONE"


def test_sql_summarizes_a_table(serve_demo: Any) -> None:
    frame = ds.sql("SUMMARIZE demo.shop.products", serve_demo.profile).df().set_index("column_name")
    assert (frame.loc["product_id", "min"], frame.loc["product_id", "max"]) == ("1", "200")
    assert set(frame["count"]) == {200}


@pytest.mark.parametrize("query", ["SHOW TABLES", "show all tables ;", "  Show Tables"])
def test_sql_shows_tables_without_requesting_schemas(serve_demo: Any, query: str) -> None:
    serve_demo.reset_stats()
    result = ds.sql(query, serve_demo.profile)
    assert result.columns == ["share", "schema", "name"]
    names = ["demo.shop.orders", "demo.shop.products", "demo.weather.readings", "demo.lake.refunds"]
    assert result.fetchall() == [tuple(name.split(".")) for name in names]
    asked = {name for name in serve_demo.stats()["requests"] if not name.startswith("iceberg")}
    assert asked == {"shares", "all-tables"}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "The SQL must be one query"),
        ("SELECT 1; SELECT 2", "The SQL must be one query"),
        ("-- nothing", "The SQL must be one query"),
        ("EXPLAIN SELECT 1", "The SQL must be one query"),
        ("SHOW DATABASES", "The SQL must be one query"),
        (f"COPY {NAME} TO 'x.csv'", "The SQL must be one query"),
        ("CREATE TABLE t AS SELECT 1", "The SQL must be one query"),
        ("ATTACH 'x.db'", "The SQL must be one query"),
        ("SELECT FROM WHERE", "The SQL cannot be parsed"),
        ("SELECT * FROM orders", "Did you mean 'demo.shop.orders'"),
        ("SELECT oder_id FROM demo.shop.orders", "DuckDB cannot run the SQL"),
        ("SELECT * FROM demo.shop.orders WHERE country = DE", "If it is a string, write it in single quotes: 'DE'"),
        ('SELECT * FROM "demo.shop.orders"', 'Write demo.shop.orders or "demo"."shop"."orders"'),
        (None, "Expected SQL as a string, found NoneType"),
    ],
)
def test_unsupported_sql_is_refused_in_one_sentence(serve_demo: Any, query: Any, message: str) -> None:
    with pytest.raises(ds.UsageError, match=message) as caught:
        ds.sql(query, serve_demo.profile)
    assert "\n" not in str(caught.value)


# --- profiles by name ---


@pytest.fixture
def named(serve_demo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of named profiles, which contains ``prod``; the working directory is a different one."""
    folder = tmp_path / "home" / ".config" / "delta-sharing"
    folder.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    (folder / "prod.share").write_text(json.dumps(serve_demo.profile))
    return folder


def test_profile_names_are_accepted_wherever_paths_are(named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(ds.SharingClient("prod")) == ["demo"]
    assert ds.load_as_arrow(f"prod#{NAME}", limit=1).num_rows == 1
    assert ds.sql("SELECT 1", "prod").fetchall() == [(1,)]
    assert compat.SharingClient("prod").list_shares()[0].name == "demo"
    assert main(["-p", "prod", "ls"]) == 0
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "prod")
    assert list(ds.SharingClient()) == ["demo"]


def test_directory_of_named_profiles_can_be_set(named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named.parent.rename(tmp_path / "settings")
    with pytest.raises(ds.ProfileError, match="There is no profile file at 'prod'"):
        ds.SharingClient("prod")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    assert list(ds.SharingClient("prod")) == ["demo"]


def test_file_takes_precedence_over_a_profile_name(named: Path) -> None:
    Path("prod").write_text('{"shareCredentialsVersion": 9}')
    with pytest.raises(ds.ProfileError, match="9"):
        ds.SharingClient("prod")
    Path("prod").unlink()
    for path in ("./prod", "sub/prod", "../prod", "~/prod", str(named / "prod")):
        assert named_profiles.located(path) != str(named / "prod.share")
        with pytest.raises(ds.ProfileError, match="There is no profile file"):
            ds.SharingClient(path)


def test_error_for_a_missing_name_lists_the_others(named: Path) -> None:
    (named / "test.share").write_text("{}")
    (named / "notes.txt").touch()
    with pytest.raises(ds.ProfileError, match=r"no profile file at 'prd'; .*, or use .* prod, test in '"):
        ds.SharingClient("prd")


def test_changed_named_profile_is_reloaded(named: Path, serve: Any) -> None:
    client = ds.SharingClient("prod")
    assert list(client) == ["demo"]
    changed = json.loads((named / "prod.share").read_text())
    (named / "prod.share").write_text(json.dumps({**changed, "bearerToken": "another"}))
    with pytest.raises(ds.AuthError):
        list(client)


def test_profile_listing_shows_problems_and_no_token(
    named: Path, serve_demo: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (named / "broken.share").write_text('{"bearerToken": "planted-token"}')
    changed = {**serve_demo.profile, "expirationTime": "2031-01-02T03:04:05Z"}
    (named / "later.share").write_text(json.dumps(changed))
    assert main(["profile", "list"]) == 0
    table = capsys.readouterr().out
    assert main(["profile", "list", "--json"]) == 0
    listed = json.loads(output := capsys.readouterr().out)

    assert [one["name"] for one in listed] == ["broken", "later", "prod"]
    assert [one["endpoint"] for one in listed] == [None, *[serve_demo.endpoint.rstrip("/")] * 2]
    assert [one["tokenExpires"] for one in listed] == [None, "2031-01-02T03:04:05Z", None]
    assert "has no 'shareCredentialsVersion'" in listed[0]["problem"]
    assert "2031-01-02T03:04:05Z" in table
    for text in (table, output):
        assert "planted-token" not in text
        assert serve_demo.profile["bearerToken"] not in text


def test_missing_profile_directory_gives_an_empty_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["profile", "list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert main(["profile", "list"]) == 0
    assert "There are no profiles in" in capsys.readouterr().err


# --- a read that fails ---


def test_error_of_a_damaged_file_names_the_table(lake: Lake) -> None:
    table = HandMadeTable(lake.root / "t").create(pa.schema([("id", pa.int64())]))
    table.commit(table.file(pa.table({"id": [1]})))
    shared = ds.SharingClient(lake.server.profile_path).table("share.schema.t")
    for path in (lake.root / "t").glob("*.parquet"):
        path.write_bytes(b"PAR1")
    for read in (shared.to_pandas, shared.to_arrow, shared.to_polars):
        with pytest.raises(ds.DataError, match=r"share\.schema\.t"):
            read()
