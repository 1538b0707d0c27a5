"""Errors for common beginner mistakes suggest the right code."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from tests.conftest import Lake
from tests.regressions.hand_made import HandMadeTable

URL = "{profile}#demo.shop.orders"
NEAR = "found '{part}'. Did you mean 'demo.shop.orders'?"


@pytest.fixture
def profile(serve_demo: Any) -> str:
    return str(serve_demo.profile_path)


@pytest.fixture
def client(profile: str) -> ds.SharingClient:
    return ds.SharingClient(profile)


@pytest.fixture
def orders(client: ds.SharingClient) -> ds.SharedTable:
    return client.table("demo.shop.orders")


@pytest.mark.parametrize("part", ["orders", "shop.orders", "demo.orders", "Ordrs"])
@pytest.mark.parametrize("load", [ds.load_as_arrow, ds.scan_polars, ds.load_as_duckdb, ds.get_table_version])
def test_partial_name_error_suggests_full_names(profile: str, part: str, load: Callable[[str], object]) -> None:
    with pytest.raises(ds.UsageError) as caught:
        load(f"{profile}#{part}")
    assert NEAR.replace("{part}", part) in str(caught.value)


@pytest.mark.parametrize("part", ["orders", "shop.orders"])
def test_client_table_suggests_full_names_for_a_partial_name(client: ds.SharingClient, part: str) -> None:
    with pytest.raises(ds.UsageError) as caught:
        client.table(part)
    assert NEAR.replace("{part}", part) in str(caught.value)


@pytest.mark.spark
def test_spark_error_for_a_partial_name_suggests_full_names(profile: str) -> None:
    from delta_sharing_client.spark.source_options import SparkOptions

    for options in ({"path": f"{profile}#orders"}, {"path": "orders", "profile": profile}):
        with pytest.raises(ds.UsageError) as caught:
            SparkOptions.parse(options)
        assert NEAR.replace("{part}", "orders") in str(caught.value)


def test_name_error_does_not_wait_for_a_failing_server(profile: str, serve: Any, serve_demo: Any) -> None:
    nobody = {**serve_demo.profile, "endpoint": "http://127.0.0.1:9/delta-sharing"}
    with pytest.raises(ds.UsageError, match=r"found 'orders'\.$"):
        ds.SharingClient(nobody).table("orders")
    broken = serve(demo=True)
    broken.set_fault("503-first=3")
    with pytest.raises(ds.UsageError, match=r"found 'orders'\.$"):
        ds.SharingClient(broken.profile).table("orders")
    assert broken.stats()["requests"] == {"shares": 1}


@pytest.mark.parametrize(
    ("give", "expected"),
    [
        (lambda client: client, "SharingClient"),
        (lambda client: client.list_shares()[0], "Share"),
        (lambda client: client["demo"]["shop"], "Contents"),
        (lambda client: None, "NoneType"),
        (lambda client: pathlib.Path("demo.share#a.b.c"), "PosixPath"),
    ],
)
def test_loader_refuses_objects_that_are_not_tables(client: ds.SharingClient, give: Any, expected: str) -> None:
    with pytest.raises(ds.UsageError, match=rf"or a table of a client, found {expected}; write client\.table\(name\)"):
        ds.load_as_pandas(give(client))


@pytest.mark.parametrize("name", [None, ("demo", "shop", "orders"), ds.Share("demo")], ids=repr)
def test_client_table_refuses_names_that_are_not_strings(client: ds.SharingClient, name: Any) -> None:
    with pytest.raises(ds.UsageError, match=r"Expected a table as share\.schema\.table, found"):
        client.table(name)


def test_client_refuses_a_table_name_with_a_profile(client: ds.SharingClient, profile: str) -> None:
    with pytest.raises(ds.UsageError, match="The client has a profile: pass only the name after '#'"):
        client.table(f"{profile}#demo.shop.orders")
    with pytest.raises(ds.UsageError, match=r"For all schemas of a share, call list_all_tables"):
        client.list_tables("demo")


@pytest.mark.parametrize(
    "call",
    [
        lambda profile: ds.attach(profile),
        lambda profile: ds.attach(profile, duckdb.connect()),
        lambda profile: ds.attach(profile, profile),
        lambda profile: ds.attach(None, profile),
        lambda profile: ds.attach(ds.SharingClient(profile), profile),
    ],
)
def test_attach_without_a_connection_is_an_error(profile: str, call: Callable[[Any], None]) -> None:
    with pytest.raises(ds.UsageError, match=r"Expected a DuckDB connection .* write ds\.attach\(duckdb\.connect\(\), "):
        call(profile)


def test_duckdb_functions_refuse_a_profile_as_connection(orders: ds.SharedTable, profile: str) -> None:
    with pytest.raises(ds.UsageError, match=r"Expected a DuckDB connection, found str; duckdb\.connect\(\)"):
        orders.scan().to_duckdb(profile)  # type: ignore[arg-type]
    with pytest.raises(ds.UsageError, match="Expected a DuckDB connection, found str"):
        ds.load_as_duckdb(URL.replace("{profile}", profile), profile)  # type: ignore[arg-type]


@pytest.mark.spark
def test_to_spark_refuses_a_string_as_session(orders: ds.SharedTable) -> None:
    with pytest.raises(ds.UsageError, match="Expected a Spark session, found str; omit it"):
        orders.scan().to_spark("local")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("amount", r"write columns=\['amount'\]"),
        ("amount, country", r"write columns=\['amount', 'country'\]"),
        ("amount > 3", "write filter='amount > 3'"),
        ("country LIKE 'D%'", 'write filter="country LIKE'),
        ({"amount": "total"}, "found a mapping; to rename columns, rename those of the result"),
        (["amount, country"], r"Write each name as a separate string: columns=\['amount', 'country'\]"),
        (["*"], "Leave 'columns' out to read all columns"),
        (["max(amount)"], "Expressions cannot be selected: compute and rename in the result"),
        (["amount AS total"], "Expressions cannot be selected: compute and rename in the result"),
        (["amount * 2"], "Expressions cannot be selected: compute and rename in the result"),
        (["amuont"], "Did you mean 'amount'"),
    ],
    ids=repr,
)
def test_columns_must_be_a_list_of_names(orders: ds.SharedTable, columns: Any, message: str) -> None:
    with pytest.raises(ds.UsageError, match=message):
        orders.scan(columns=columns).plan()


def test_column_whose_name_looks_like_an_expression_is_read(lake: Lake) -> None:
    names = ["a, b", "*", "max(a)", "a AS b", "a > 3"]
    table = HandMadeTable(lake.root / "t").create(pa.schema([(name, pa.int64()) for name in names]))
    table.commit(table.file(pa.table({name: [number] for number, name in enumerate(names)})))

    assert ds.load_as_arrow(lake.url("t"), columns=names).to_pylist() == [dict(zip(names, range(5), strict=True))]


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("isin", ".is_in([...])"),
        ("isna", ".is_null()"),
        ("isNotNull", ".is_not_null()"),
        ("contains", ".like('%text%')"),
        ("str", ".like('%text%')"),
        ("dt", ".year()"),
        ("is_between", ".between(low, high)"),
    ],
)
def test_error_for_a_method_of_other_libraries_names_ours(name: str, advice: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ds.col("a"), name)
    assert f"col('a') has no '{name}'; write {advice}" in str(caught.value)
    assert not hasattr(ds.col("a"), "anything")
    with pytest.raises(AttributeError, match=r"col\('a'\) has no 'anything'\.$"):
        ds.col("a").anything  # noqa: B018


def test_error_asks_for_parentheses_next_to_and_and_or() -> None:
    mistakes: list[Callable[[], object]] = [
        lambda: ds.col("a") > 3 & ds.col("b"),
        lambda: ds.col("a") > 3 | ds.col("b"),
        lambda: 3 & (ds.col("a") > 3),
        lambda: "x" | (ds.col("a") > 3),
    ]
    for mistake in mistakes:
        with pytest.raises(ds.UsageError, match=r"write \(col\('a'\) > 3\) & \(col\('b'\) == 'x'\)"):
            mistake()
    with pytest.raises(ds.UsageError, match="A column must be a name or a non-empty tuple of names, found 1"):
        ds.col(1)  # type: ignore[arg-type]


ENDPOINT = "There is no list of shares at the endpoint '{endpoint}'"


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.list_shares(),
        lambda client: client.list_all_tables(),
        lambda client: client.list_schemas("demo"),
        lambda client: client.table("demo.shop.orders").version(),
        lambda client: client.table("demo.shop.orders").scan().to_arrow(),
    ],
)
def test_error_says_that_the_endpoint_has_a_wrong_path(
    serve_demo: Any, use: Callable[[ds.SharingClient], object]
) -> None:
    origin = serve_demo.endpoint.partition("/delta-sharing")[0]
    for path, hint in [("", "has no path, but most have one"), ("/delta-sharin", ". Compare it with the endpoint in")]:
        with pytest.raises(ds.NotFoundError) as caught:
            use(ds.SharingClient({**serve_demo.profile, "endpoint": origin + path}))
        assert caught.value.message.count(ENDPOINT.replace("{endpoint}", origin + path)) == 1
        assert hint in caught.value.message


def test_error_for_a_missing_column_suggests_the_other_columns(lake: Lake) -> None:
    fields = [pa.field("id", pa.int64()), pa.field("note", pa.string()), pa.field("added", pa.int64(), False)]
    table = HandMadeTable(lake.root / "t").create(pa.schema([*fields, ("p", pa.string())]), partition_by=["p"])
    table.commit(table.file(pa.table({"id": [1], "note": ["x"]}), {"p": "a"}))

    for read in ({}, {"columns": ["added", "note", "id", "p"]}):
        with pytest.raises(
            ds.DataError, match=r"'added' is NOT NULL in the table, but the file does not have it"
        ) as caught:
            ds.load_as_arrow(lake.url("t"), **read)
        others = [name for name in read.get("columns", ["id", "note", "added", "p"]) if name != "added"]
        assert f"columns={others!r}" in str(caught.value)
        assert ds.load_as_arrow(lake.url("t"), columns=others).num_rows == 1
    with pytest.raises(ds.DataError, match="do not filter by"):
        ds.load_as_arrow(lake.url("t"), columns=["id"], filter="added > 1 OR id = 1")


def test_plan_is_printed_line_by_line(orders: ds.SharedTable) -> None:
    from IPython.core.formatters import DisplayFormatter

    plan = orders.scan(filter="country < 'F'").explain()
    shown = DisplayFormatter().format(plan)[0]

    assert isinstance(plan, str)
    assert repr(plan) == str(plan) == shown["text/plain"]
    assert shown["text/html"].startswith("<pre>Scan of demo.shop.orders, version 6\n")
    assert "country &lt; &#x27;F&#x27;" in shown["text/html"]
    assert len(plan.splitlines()) > 5
