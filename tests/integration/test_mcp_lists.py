"""An assistant reaches everything that is shared: lists continue, a search finds columns, and comments are shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from mcp.client.client import Client

from delta_sharing_client import search
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import DataError, NotFoundError, UsageError
from delta_sharing_client.mcp import tools as tools_module
from delta_sharing_client.mcp.calls import told
from delta_sharing_client.mcp.limits import NOTE, Limits, shortened
from delta_sharing_client.mcp.server import make_server
from delta_sharing_client.mcp.tools import MOST_SAMPLED, MOST_TEXT, Tools
from delta_sharing_client.options import HEAD_ROWS

ORDERS = "demo.shop.orders"
LONG = "é" * MOST_TEXT


@pytest.fixture(scope="module")
def served(serve: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("shared")
    commented = pa.schema(
        [
            pa.field("customer", pa.string(), metadata={"comment": "Whose Invoice it is"}),
            pa.field("total", pa.int64()),
        ]
    )
    write_deltalake(folder / "bills", pa.table({"customer": ["a"], "total": [1]}, commented), description="Money owed")
    long_comment = pa.field("customer", pa.string(), metadata={"comment": "Whose invoice it is, long " * 50})
    long = pa.table({"customer": ["a"]}, pa.schema([long_comment]))
    write_deltalake(folder / "long", long, description="Money " * 300)
    wide = pa.table({f"c{number}": pa.array([number]) for number in range(620)})
    write_deltalake(folder / "wide", wide)
    texts = {f"docs/f{number:03}.txt": str(number) for number in range(620)} | {"docs/long.txt": f"a{LONG}"}
    texts["tidy/SKILL.md"] = f"---\nname: tidy\ndescription: Tidies the desk.\n---\n{LONG}"
    texts["tidy/references/layout.md"] = "Tidy"
    texts |= {f"churn/{number}/MLmodel": "x" for number in (1, 2, 3)}
    write(folder, texts)
    return serve(
        tables={"s.d.bills": folder / "bills", "s.d.wide": folder / "wide", "s.Other.copy": folder / "bills"}
        | {"s.Long.bills": folder / "long"},
        volumes={"s.d.docs": folder / "docs"},
        skills={"s.d.tidy": folder / "tidy"},
        models={"s.d.churn": folder / "churn"},
    )


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def tools(served: Any) -> Tools:
    return Tools(SharingClient(served.profile_path), Limits())


def all_of(call: Callable[..., dict[str, Any]], name: str, /, **arguments: Any) -> list[Any]:
    """Return all items of a list, and check that each continuation is announced with its offset."""
    items: list[Any] = []
    while True:
        result = call(**arguments, offset=len(items))
        items += result[name]
        if "cut" not in result:
            return items
        assert result["cut"].endswith(f"continue with offset {len(items)}.")


def test_listing_has_kinds_names_and_comments(tools: Tools) -> None:
    expected = [
        {"kind": "table", "name": "s.d.bills"},
        {"kind": "table", "name": "s.d.wide"},
        {"kind": "volume", "name": "s.d.docs"},
        {"kind": "model", "name": "s.d.churn"},
        {"kind": "skill", "name": "s.d.tidy", "comment": "Tidies the desk."},
    ]
    assert sorted(tools.list_assets("S.d")["assets"], key=str) == sorted(expected, key=str)  # type: ignore[call-overload]
    assert len(tools.list_assets()["assets"]) == 7  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="No share matches 'x'"):
        tools.list_assets("x")


def test_long_comment_in_a_listing_is_cut(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_module, "shortened", lambda comment: comment and "cut")
    listed: Any = tools.list_assets("s.d")["assets"]
    assert [one["comment"] for one in listed if "comment" in one] == ["cut"]


def test_every_list_continues_where_it_was_cut(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    files = all_of(tools.list_files, "files", volume="s.d.docs", pattern="f*.txt")
    assert files == [{"path": f"f{number:03}.txt", "size": len(str(number))} for number in range(620)]
    columns = all_of(tools.describe, "columns", name="s.d.wide")
    assert columns == [{"column": f"c{number}", "type": "long", "nullable": True} for number in range(620)]
    monkeypatch.setattr(tools_module, "MOST_LISTED", 2)
    listed = [one["name"] for one in all_of(tools.list_assets, "assets")]
    assert sorted(listed) == sorted(
        f"s.{name}" for name in ("d.bills", "d.wide", "Other.copy", "Long.bills", "d.docs", "d.churn", "d.tidy")
    )
    versions = all_of(tools.describe, "versions", name="s.d.churn")
    assert versions == [{"version": number, "status": "READY"} for number in (1, 2, 3)]
    assert len(all_of(tools.search, "assets", text="s.")) == 7


def test_list_is_cut_before_its_characters_are_too_many(served: Any) -> None:
    tools = Tools(SharingClient(served.profile_path), Limits(characters=1000))
    first: Any = tools.describe("s.d.wide")
    assert 0 < len(first["columns"]) < 20
    assert len(json.dumps(first, separators=(",", ":"))) < 1000
    assert len(all_of(tools.describe, "columns", name="s.d.wide")) == 620


def test_long_file_and_skill_are_read_to_their_end(tools: Tools) -> None:
    for call, name, subject, text in (
        (tools.read_file, "s.d.docs", {"path": "long.txt"}, f"a{LONG}"),
        (tools.read_skill, "s.d.tidy", {}, None),
    ):
        expected = text or tools._client.skill("s.d.tidy").read()
        parts: list[str] = []
        offset = 0
        while True:
            result: Any = call(name, **subject, offset=offset)  # type: ignore[operator]
            assert len(result["text"].encode()) <= MOST_TEXT
            parts.append(result["text"])
            offset += len(result["text"].encode())
            if "cut" not in result:
                break
            assert result["cut"] == f"There is more; continue with offset {offset}."
        assert "".join(parts) == expected
        assert len(parts) == -(-len(expected.encode()) // MOST_TEXT)
        with pytest.raises(UsageError, match="'offset' must be 0 or more, found -1"):
            call(name, **subject, offset=-1)  # type: ignore[operator]


def test_file_is_cut_only_beyond_the_limit(serve: Callable[..., Any], tmp_path: Path) -> None:
    sizes = (MOST_TEXT - 1, MOST_TEXT, MOST_TEXT + 1)
    write(tmp_path, {f"{size}.txt": "x" * size for size in sizes})
    tools = Tools(SharingClient(serve(tables={}, volumes={"s.d.docs": tmp_path}).profile_path), Limits())
    for size in sizes:
        result = tools.read_file("s.d.docs", f"{size}.txt")
        assert result["text"] == "x" * min(size, MOST_TEXT)
        assert ("cut" in result) is (size > MOST_TEXT)


def test_files_of_a_skill_are_listed_and_read(tools: Tools) -> None:
    listed: Any = tools.list_files("s.d.TIDY")["files"]
    assert [file["path"] for file in listed] == ["SKILL.md", "references/layout.md"]
    assert tools.list_files("s.d.tidy", "references/*")["files"] == [{"path": "references/layout.md", "size": 4}]
    assert tools.read_file("s.d.tidy", "references/layout.md") == {"text": "Tidy"}
    assert tools.read_file("s.d.tidy", "references/layout.md", 2) == {"text": "dy"}
    with pytest.raises(NotFoundError, match=r"'nope' in skill s\.d\.tidy"):
        tools.read_file("s.d.tidy", "nope")
    with pytest.raises(NotFoundError, match=r"'nope' in volume s\.d\.docs"):
        tools.read_file("s.d.docs", "nope")
    with pytest.raises(NotFoundError, match="There is a table with this name"):
        tools.read_file("s.d.bills", "a")


def test_sample_has_the_first_rows_and_reads_no_others(serve_demo: Any) -> None:
    tools = Tools(SharingClient(serve_demo.profile_path), Limits())
    rows = SharingClient(serve_demo.profile_path).table(ORDERS).scan(["amount", "order_id"]).to_arrow().to_pylist()
    for number in (1, 10, MOST_SAMPLED):
        serve_demo.reset_stats()
        sampled = tools.sample(ORDERS, number, ["amount", "order_id"])
        fetched = serve_demo.stats()["bytes"]["data"]
        expected = [[row["amount"], row["order_id"]] for row in rows[:number]]
        # A sample is complete: it does not say that the table has more rows.
        assert sampled == {"columns": ["amount: double", "order_id: int64"], "rows": expected}
    assert fetched < tools.explain(ORDERS)["bytes"] / 2  # type: ignore[operator]
    assert len(tools.sample(ORDERS)["rows"]) == HEAD_ROWS == 5  # type: ignore[arg-type]


def test_history_continues_with_earlier_versions(serve_demo: Any) -> None:
    tools = Tools(SharingClient(serve_demo.profile_path), Limits())
    commits = SharingClient(serve_demo.profile_path).table(ORDERS).history()
    everything: Any = tools.history(ORDERS)
    assert [one["version"] for one in everything["versions"]] == [one.version for one in commits]
    assert "cut" not in everything
    seen: list[int] = []
    offset = 0
    while True:
        part: Any = tools.history(ORDERS, 2, offset)
        seen = [one["version"] for one in part["versions"]] + seen
        if "cut" not in part:
            break
        offset += 2
        assert part["cut"] == f"There are earlier versions; continue with offset {offset}."
    assert seen == [one.version for one in commits]
    assert tools.history(ORDERS, 2, 100) == {"versions": []}
    snapshots: Any = tools.history("demo.lake.refunds")["versions"]
    assert len(snapshots) >= 2
    parts: list[Any] = [tools.history("demo.lake.refunds", 1, place)["versions"] for place in range(len(snapshots))]
    assert [part[0] for part in parts] == snapshots[::-1]
    for arguments, found in (((0,), 0), ((101,), 101), ((20, -1), -1)):
        with pytest.raises(UsageError, match=f"found {found}"):
            tools.history(ORDERS, *arguments)
    assert tools.history(ORDERS, MOST_SAMPLED) == everything


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("d.bills", ["s.d.bills"]),
        ("MONEY owed", ["s.d.bills", "s.Other.copy"]),
        ("invoice total", ["s.d.bills", "s.Other.copy"]),
        ("total owed", ["s.d.bills", "s.Other.copy"]),
        ("total other", ["s.Other.copy"]),
        ("desk", ["s.d.tidy"]),
        ("c619", ["s.d.wide"]),
        ("churn", ["s.d.churn"]),
        ("docs", ["s.d.docs"]),
        ("total nowhere", []),
        ("customer total desk", []),
    ],
)
def test_search_finds_names_comments_and_columns(tools: Tools, text: str, names: list[str]) -> None:
    found: Any = tools.search(text)
    assert sorted(one["name"] for one in found["assets"]) == sorted(names)
    assert "not_searched" not in found


def test_result_of_a_search_shows_what_matched(tools: Tools) -> None:
    assert tools.search("invoice", "s.d")["assets"] == [
        {
            "kind": "table",
            "name": "s.d.bills",
            "comment": "Money owed",
            "columns": [{"column": "customer", "comment": "Whose Invoice it is"}],
        }
    ]
    assert tools.search("churn")["assets"] == [{"kind": "model", "name": "s.d.churn"}]
    assert tools.search("c619")["assets"] == [{"kind": "table", "name": "s.d.wide", "columns": [{"column": "c619"}]}]
    (wide,) = tools.search("c61 wide")["assets"]  # type: ignore[misc]
    assert [one["column"] for one in wide["columns"]] == ["c61", *(f"c61{digit}" for digit in range(10))]
    (wide,) = tools.search("c1 wide")["assets"]  # type: ignore[misc]
    assert len(wide["columns"]) == 20
    (bills,) = tools.search("long invoice", "s.Long")["assets"]  # type: ignore[misc]
    assert bills["comment"] == shortened("Money " * 300)
    assert bills["columns"] == [{"column": "customer", "comment": shortened("Whose invoice it is, long " * 50)}]
    with pytest.raises(UsageError, match="must have a word"):
        tools.search("  ")


def test_search_says_which_tables_it_left_out(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(search, "MOST_TABLES", 1)
        assert tools.search("wide")["not_searched"] == (
            "The columns of 3 tables were not searched: more than 1 tables are shared; give a schema as 'where'."
        )

    def refuse(table: object) -> None:
        raise DataError("It cannot be read.", table=str(table))

    monkeypatch.setattr(search, "describe_table", refuse)
    found: Any = tools.search("d.bills")
    assert [one["name"] for one in found["assets"]] == ["s.d.bills"]
    assert found["not_searched"] == "The columns of 4 tables were not searched: It cannot be read."


def test_structured_result_is_the_text_beside_it(serve_demo: Any) -> None:
    async def ask() -> Any:
        async with Client(make_server(serve_demo.profile_path, Limits())) as client:
            return await client.call_tool("sample", {"table": ORDERS, "rows": 2})

    result = asyncio.run(ask())
    text = result.content[0].text.partition("<provider-data>\n")[2].removesuffix("\n</provider-data>")
    assert result.structured_content == {"note": NOTE, "data": json.loads(text)}
    assert len(json.loads(text)["rows"]) == 2


def test_no_setting_shows_a_folder_of_this_machine(
    tools: Tools, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for sql in (
        "SELECT name, value FROM duckdb_settings()",
        "SELECT current_setting('secret_directory'), current_setting('home_directory')",
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM duckdb_temporary_files()",
    ):
        assert str(tmp_path) not in json.dumps(tools.query(sql))
    for sql in ("SELECT * FROM duckdb_extensions()", "SELECT * FROM duckdb_secrets()"):
        try:
            shown = json.dumps(tools.query(sql))
        except UsageError as error:
            shown = told(str(error))
        assert str(tmp_path) not in shown


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "Table a.b.c failed (404). Use 'list_all_tables()' or 'delta-sharing tables' to list what is shared.",
            "Table a.b.c failed (404). Use the tool 'list_assets' to list what is shared.",
        ),
        (
            "There is a volume with this name: see 'client.volume()' or 'delta-sharing ls'.",
            "There is a volume with this name: use the tools 'list_files' and 'read_file'.",
        ),
        (
            "There is a table with this name: see 'client.table()' or 'delta-sharing head'.",
            "There is a table with this name: use the tools 'describe', 'sample' and 'query'.",
        ),
        (
            "There is a skill with this name: see 'client.skill()' or 'delta-sharing ls'.",
            "There is a skill with this name: use the tools 'read_skill' and 'read_file'.",
        ),
        (
            "There is a model with this name: see 'client.model()' or 'delta-sharing describe'.",
            "There is a model with this name: use the tool 'describe'.",
        ),
        ("It is too slow. Raise ReadOptions(total_timeout=9). Try later.", "It is too slow. Try later."),
        ("Reading failed. Run: pip install \"x[y]\".", "Reading failed."),
        ("Compute it in a DuckDB query (ds.attach).", "Compute it with the tool 'query'."),
        ("Reading https://host/a?sig=1 failed.", "Reading <address> failed."),
    ],
)  # fmt: skip
def test_errors_name_tools_and_no_code(message: str, shown: str) -> None:
    assert told(message) == shown


def test_errors_of_the_tools_name_no_python(serve_demo: Any) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"volume": ORDERS, "path": "a"}),
        ("read_file", {"volume": "demo.shop.documents", "path": "nope"}),
        ("list_files", {"volume": "demo.shop.zzz"}),
        ("read_skill", {"name": "demo.shop.churn"}),
        ("sample", {"table": "demo.shop.documents"}),
        ("sample", {"table": ORDERS, "columns": ["amount * 2"]}),
        ("sample", {"table": ORDERS, "columns": ["nope"]}),
        ("sample", {"table": ORDERS, "columns": []}),
        ("describe", {"name": "orders"}),
        ("describe", {"name": "demo.zzz.orders"}),
        ("list_assets", {"where": "nope"}),
        ("query", {"sql": "SELECT * FROM orders"}),
        ("query", {"sql": "SELECT * FROM demo.shop.documents"}),
        ("explain", {"table": "demo.shop.documents"}),
        ("history", {"table": "demo.shop.products"}),
    ]

    async def ask() -> list[str]:
        async with Client(make_server(serve_demo.profile_path, Limits())) as client:
            return [(await client.call_tool(tool, arguments)).content[0].text for tool, arguments in calls]

    for call, text in zip(calls, asyncio.run(ask()), strict=True):
        for code in ("client.", "ds.", "()", "delta-sharing ", "ReadOptions", "pip install", "filter=", "http"):
            assert code not in text.replace("(ds", ""), (call, text)


def test_description_has_the_facts_of_each_kind(tools: Tools) -> None:
    assert tools.describe("S.D.Docs")["kind"] == "volume"
    model: Any = tools.describe("s.d.CHURN")
    assert model["kind"] == "model"
    assert model["versions"] == [{"version": number, "status": "READY"} for number in (1, 2, 3)]
    assert not any("location" in name.lower() for name in model)
    table: Any = tools.describe("s.d.bills")
    assert table["description"] == "Money owed"
    assert (table["kind"], table["table"], table["version"], table["tableFormat"]) == ("table", "s.d.bills", 0, "delta")
    assert table["columns"][0] == {
        "column": "customer",
        "type": "string",
        "nullable": True,
        "comment": "Whose Invoice it is",
    }
    with pytest.raises(NotFoundError, match=r"'s\.d\.churm' is shared\. Did you mean 's\.d\.churn'"):
        tools.describe("s.d.churm")


def test_explanation_states_limits_files_and_rows(serve_demo: Any) -> None:
    tools = Tools(SharingClient(serve_demo.profile_path), Limits(megabytes=7))
    explained = tools.explain(ORDERS)
    assert (explained["most_bytes"], explained["files"], explained["rows"]) == (7_000_000, 12, 2755)
    filtered = tools.explain(ORDERS, where="country = 'DE'")
    assert filtered["rows"] is None
    assert tools.explain(ORDERS, where="1 = 0") == {
        "bytes": 0, "most_bytes": 7_000_000, "files": 0, "rows": 0, "plan": [],
    }  # fmt: skip


@pytest.mark.parametrize("lead", range(4))
def test_character_at_the_cut_stays_whole(serve: Callable[..., Any], tmp_path: Path, lead: int) -> None:
    """A character of four bytes that begins one to four bytes before the limit."""
    text = "x" * (MOST_TEXT - lead) + "😀" + "y" * 10
    write(tmp_path, {"a.txt": text})
    tools = Tools(SharingClient(serve(tables={}, volumes={"s.d.docs": tmp_path}).profile_path), Limits())
    first: Any = tools.read_file("s.d.docs", "a.txt")
    assert first == {
        "text": "x" * (MOST_TEXT - lead),
        "cut": f"There is more; continue with offset {MOST_TEXT - lead}.",
    }
    rest: Any = tools.read_file("s.d.docs", "a.txt", MOST_TEXT - lead)
    assert rest == {"text": text[MOST_TEXT - lead :]}
    with pytest.raises(UsageError, match=f"is not UTF-8 text at byte {MOST_TEXT - lead + 1}"):
        tools.read_file("s.d.docs", "a.txt", MOST_TEXT - lead + 1)
