"""A condition means the same in both tools of an assistant: ``explain`` states what ``query`` downloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.tools import Tools

ORDERS = "demo.shop.orders"


@pytest.fixture
def tools(serve_demo: Any) -> Tools:
    return Tools(SharingClient(serve_demo.profile_path), Limits())


def downloaded(server: Any, call: Callable[[], object]) -> int:
    """Return the bytes of data that ``call`` downloads."""
    server.reset_stats()
    call()
    data: int = server.stats()["bytes"].get("data", 0)
    return data


@pytest.mark.parametrize(
    "where",
    [
        None,
        "country = 'DE'",
        "\"country\" = 'DE'",
        "\"COUNTRY\" = 'DE'",
        "'DE' = \"country\"",
        "\"country\" IN ('DE', 'FR') AND \"amount\" > 100",
        "orders.country = 'DE'",
        '"orders"."country" = \'DE\'',
        "country LIKE 'D%'",
        "country LIKE 'D\\%'",
        "country = 'D\\x45'",
        "lower(\"country\") = 'de'",
        "country BETWEEN 'D' AND 'E'",
        '"country" IS NULL',
        "country != 'DE' OR order_id < 3",
        "order_id / 2 < 3",
        "amount > (SELECT avg(amount) FROM demo.shop.orders)",
        "'country' = 'DE'",
        "1 = 0",
        "1 = 1",
        "country = 'DE' -- AND amount > 3",
    ],
)
def test_explain_states_the_bytes_of_the_query(serve_demo: Any, tools: Tools, where: str | None) -> None:
    condition = "" if where is None else f" WHERE {where}"
    query = f"SELECT * FROM {ORDERS}{condition}"
    counted: Any = tools.query(f"SELECT count(*) FROM ({query}\n)")["rows"]
    explained = tools.explain(ORDERS, where=where)
    fetched = downloaded(serve_demo, lambda: tools.query(query))
    # The plan does not count the bytes of deletion vectors.
    assert 0.97 * fetched <= explained["bytes"] <= fetched  # type: ignore[operator]
    assert explained["files"] or counted == [[0]]
    # explain downloads no data itself.
    assert downloaded(serve_demo, lambda: tools.explain(ORDERS, where=where)) == 0


@pytest.mark.parametrize(
    "where",
    [
        'country = "DE"',
        "country == r'DE'",
        "country <=> 'DE'",
        "countr = 'DE'",
        '"shop"."country" = \'DE\'',
        "country = 'DE",
        "startswith(country, 1)",
        "country LIKE",
        "amount > 3 LIMIT 2",
        "amount > 3; SELECT 1",
        "amount > 3 GROUP BY country",
        "SELECT 1",
        "amount > 3) OR (1 = 1",
        "1 = 1) UNION ALL (SELECT 1, 'a', 'b', now(), 1.5, 'c'",
        "country IN (SELECT content FROM read_text('/etc/hostname'))",
        "country = getenv('HOME')",
        "",
        "-- nothing",
    ],
)
def test_explain_refuses_what_no_query_accepts(serve_demo: Any, tools: Tools, where: str) -> None:
    with pytest.raises(DeltaSharingError):
        tools.explain(ORDERS, where=where)
    serve_demo.reset_stats()
    with pytest.raises(DeltaSharingError):
        tools.explain(ORDERS, where=where)
    assert serve_demo.stats()["bytes"].get("data", 0) == 0


@pytest.mark.parametrize("columns", [["order_id"], ["AMOUNT", "country"], ["country"], []])
def test_columns_of_explain_skip_no_files(serve_demo: Any, tools: Tools, columns: list[str]) -> None:
    explained = tools.explain(ORDERS, columns, where="country = 'DE'")
    query = f"SELECT {', '.join(columns) or 'count(*)'} FROM {ORDERS} WHERE country = 'DE'"
    assert downloaded(serve_demo, lambda: tools.query(query)) <= explained["bytes"] * 1.03  # type: ignore[operator]
    assert explained["files"] == tools.explain(ORDERS, where="country = 'DE'")["files"] == 4


def test_explain_takes_names_as_sample_does(tools: Tools) -> None:
    for columns in (["sizes"], ["sizes.width"], ["`sizes`.`WIDTH`"], ["sizes.width", "tags"]):
        lines: Any = tools.explain("demo.shop.products", columns, where="sizes.height > 0")["plan"]
        assert "columns from the files: " in lines[1]
        assert ("tags" in lines[1]) is ("tags" in columns)
        tools.sample("demo.shop.products", 1, columns)
    with pytest.raises(UsageError, match="'width' is not in the table"):
        tools.explain("demo.shop.products", ["width"])


def test_explain_tells_no_location(tools: Tools) -> None:
    for table in (ORDERS, "demo.lake.refunds"):
        assert "/" not in str(tools.explain(table)["plan"])
