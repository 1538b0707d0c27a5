"""``delta-sharing mcp --share --table``: an assistant finds nothing outside of its shares and tables."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from mcp.client.client import Client

from delta_sharing_client.errors import NotFoundError
from delta_sharing_client.mcp.limits import Limits
from delta_sharing_client.mcp.scope import Scope, ScopedClient
from delta_sharing_client.mcp.server import make_server
from delta_sharing_client.mcp.tools import Tools
from delta_sharing_client.options import ReadOptions


@pytest.fixture(scope="module")
def served(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("shared")
    write_deltalake(folder / "t", pa.table({"n": [1, 2]}))
    (folder / "files").mkdir()
    (folder / "files" / "a.txt").write_text("a")
    names = ("mine.d.orders", "mine.e.orders", "hidden.d.orders", "hidden.d.ordered", "hidden.secretplace.x")
    return serve(
        tables=dict.fromkeys(names, folder / "t"),
        volumes={"mine.d.files": folder / "files", "hidden.d.files": folder / "files"},
    )


def asked(served: Any, scope: Scope, calls: list[tuple[str, dict[str, Any]]]) -> list[tuple[bool, str]]:
    async def ask() -> list[tuple[bool, str]]:
        async with Client(make_server(served.profile_path, Limits(), scope)) as client:
            results = [await client.call_tool(tool, arguments) for tool, arguments in calls]
            return [(bool(result.is_error), result.content[0].text) for result in results]

    return asyncio.run(ask())


def names_of(served: Any, scope: Scope) -> set[str]:
    ((_, text),) = asked(served, scope, [("list_assets", {})])
    content = json.loads(text.partition("<provider-data>\n")[2].removesuffix("\n</provider-data>"))
    return {one["name"] for one in content["assets"]}


@pytest.mark.parametrize(
    ("shares", "tables", "names"),
    [
        ((), (), 7),
        (("mine",), (), {"mine.d.orders", "mine.e.orders", "mine.d.files"}),
        (("MINE",), ("Hidden.D.Ordered",), {"mine.d.orders", "mine.e.orders", "mine.d.files", "hidden.d.ordered"}),
        ((), ("mine.d.orders",), {"mine.d.orders"}),
        ((), ("mine.d.orders", "hidden.d.orders"), {"mine.d.orders", "hidden.d.orders"}),
    ],
)
def test_listings_have_only_what_is_in_scope(served: Any, shares: Any, tables: Any, names: Any) -> None:
    scope = Scope.of(shares, tables)
    listed = names_of(served, scope)
    assert (len(listed) if names == 7 else listed) == names
    if scope.is_all:
        return
    client = ScopedClient(served.profile_path, ReadOptions(), scope)
    in_tables = {name for name in listed if not name.endswith("files")}
    assert {str(table.full_name) for table in client.list_all_tables()} == in_tables
    assert {one["name"] for one in Tools(client, Limits()).search("d")["assets"]} == listed  # type: ignore[attr-defined]
    shown = Tools(client, Limits()).query("SHOW TABLES")["rows"]
    assert {".".join(row) for row in shown} == in_tables  # type: ignore[attr-defined]


def test_no_tool_reaches_what_is_out_of_scope(served: Any) -> None:
    """Neither rows nor names of other tables are shown, in results or in advice of errors."""
    hidden = "hidden.d.orders"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_assets", {"where": "hidden"}),
        ("list_assets", {"where": "hidden.secretplace"}),
        ("list_assets", {"where": "mine.e"}),
        ("search", {"text": "ordered"}),
        ("search", {"text": "x", "where": "hidden"}),
        ("describe", {"name": hidden}),
        ("describe", {"name": "mine.d.files"}),
        ("describe", {"name": "hidden.d.order"}),
        ("describe", {"name": "mine.d.order"}),
        ("describe", {"name": "order"}),
        ("sample", {"table": hidden}),
        ("sample", {"table": "mine.e.orders"}),
        ("sample", {"table": "ordered"}),
        ("query", {"sql": f"SELECT * FROM {hidden}"}),
        ("query", {"sql": f"SELECT * FROM mine.d.orders WHERE n IN (SELECT n FROM {hidden})"}),
        ("query", {"sql": "SELECT * FROM ordered"}),
        ("query", {"sql": "SELECT * FROM orders"}),
        ("query", {"sql": "SHOW TABLES"}),
        ("query", {"sql": "DESCRIBE hidden.d.orders"}),
        ("query", {"sql": "SELECT * FROM information_schema.tables"}),
        ("explain", {"table": hidden}),
        ("explain", {"table": "mine.d.orders", "where": f"n IN (SELECT n FROM {hidden})"}),
        ("history", {"table": hidden}),
        ("list_files", {"volume": "hidden.d.files"}),
        ("list_files", {"volume": "mine.d.files"}),
        ("read_file", {"volume": "hidden.d.files", "path": "a.txt"}),
        ("read_skill", {"name": "hidden.d.skill"}),
    ]
    served.reset_stats()
    results = asked(served, Scope.of((), ("mine.d.orders",)), calls)
    assert served.stats()["bytes"].get("data", 0) == 0
    for (tool, arguments), (is_error, text) in zip(calls, results, strict=True):
        for name in ("ordered", "secretplace", "mine.e", "hidden.d.orders", "mine.d.files"):
            assert name not in text or name in str(arguments), (tool, arguments, text)
        is_listing = tool in ("list_assets", "search") or "SHOW" in str(arguments) or "information" in str(arguments)
        assert is_error or is_listing, (tool, arguments, text)


def test_whole_share_keeps_its_other_assets(served: Any) -> None:
    tools = Tools(ScopedClient(served.profile_path, ReadOptions(), Scope.of(("mine",), ())), Limits())
    assert tools.read_file("mine.d.files", "a.txt") == {"text": "a"}
    assert tools.sample("mine.e.orders")["rows"] == [[1], [2]]
    assert tools.query("SELECT max(n) FROM mine.d.orders")["rows"] == [[2]]
    with pytest.raises(NotFoundError, match=r"No volume 'hidden\.d\.files' is among the shares and tables"):
        tools.read_file("hidden.d.files", "a.txt")
    with pytest.raises(NotFoundError, match="restricted to the share 'nope', but no such share"):
        Tools(ScopedClient(served.profile_path, ReadOptions(), Scope.of(("nope",), ())), Limits()).list_assets()
