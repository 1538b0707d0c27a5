"""Each line in the tables of the protocols' sentences names existing tests. This file also tests the sentences that no
other test covers."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.checks.run import all_checks
from delta_sharing_client.delta.actions import Protocol
from mock_server.running import RunningServer
from mock_server.table_writer import TableWriter
from tests.unit.mock_server.helpers import at, table
from tools import sentences

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = sentences.PROTOCOLS
LINES = [
    line for protocol in PROTOCOLS for line in protocol.table.read_text().splitlines() if sentences.ROW.match(line)
]
CHECKS = {check.id for check in all_checks()}
LEAVES = ("column", "literal")


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_every_line_of_a_table_names_existing_tests(line: str) -> None:
    _, section, _number, _hash, who, words, tests, _ = line.split("|")
    named = re.findall(r"`([^`]+)`", tests)

    assert section.strip()
    assert words.strip()
    assert who.strip() in ("client", "server", "both")
    assert named
    for name in named:
        if name.startswith("check:"):
            assert name.removeprefix("check:") in CHECKS, name
            continue
        path, _, function = name.partition("::")
        assert (ROOT / path).is_file(), path
        assert not function or function in _functions(ROOT / path), name


def test_no_sentence_occurs_twice() -> None:
    for protocol in PROTOCOLS:
        lines = [line for line in protocol.table.read_text().splitlines() if sentences.ROW.match(line)]
        results = [line.split("|")[3] for line in lines]
        assert len(set(results)) == len(results) > 25
    assert len(LINES) > 140


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.table.stem)
def test_tables_match_the_text_of_the_protocol(protocol: sentences.Protocol) -> None:
    place = os.environ.get(protocol.variable)
    if not place:
        pytest.skip(f"{protocol.variable} names no {protocol.texts[0]} of {protocol.home}, nor a directory with it")
    paths = [Path(place)] if Path(place).is_file() else [Path(place) / name for name in protocol.texts]
    table = protocol.table.read_text("utf-8")
    edition = sentences.edition_of(table, protocol)

    assert sentences.written(sentences.read(paths), sentences.rows(table), edition, protocol) == table


TEXT_OF_ONE = """
# First

A server must answer. It may be slow; [clients](#x) should wait,
and `never` poll.

| field | what |
|---|---|
| a | must be *there* |

```
it must not count
```

## Second
- must be new
"""


def test_sentences_with_the_same_words_have_the_same_hash() -> None:
    result = list(sentences.binding({"A.md": TEXT_OF_ONE}).values())
    assert [(item.section, item.words) for item in result] == [
        ("First", "a server must answer"),
        ("First", "it may be slow clients should wait and never poll"),
        ("First", "must be there"),
        ("Second", "must be new"),
    ]
    reworded = TEXT_OF_ONE.replace("[clients](#x)", "**Clients**").replace("wait,\n", "wait, ")
    again = sentences.binding({"A.md": reworded})
    assert list(again) == list(sentences.binding({"A.md": TEXT_OF_ONE}))
    other = sentences.binding({"A.md": TEXT_OF_ONE.replace("must answer", "must answer soon")})
    assert len(set(other) - set(again)) == 1
    digests = sentences.section_digests({"A.md": TEXT_OF_ONE})
    assert digests["First"][0] == 6
    changed = sentences.section_digests({"A.md": TEXT_OF_ONE.replace("field", "name")})
    assert [name for name in digests if digests[name] != changed[name]] == ["First"]
    table = sentences.written({"A.md": TEXT_OF_ONE}, {result[0].hash: "server | answers | `x`"}, "now")
    assert sentences.rows(table) == {
        result[0].hash: "server | answers | `x`",
        **{item.hash: "|  |" for item in result[1:]},
    }
    two = sentences.binding({"A.md": TEXT_OF_ONE, "B.md": "# First\n\nIt must be new. It must be new again."})
    assert [(item.section, item.number) for item in two.values()][-2:] == [("B: First", 1), ("B: First", 2)]


ISSUES = [line for line in (ROOT / "docs" / "from-delta-sharing.md").read_text().splitlines() if line.startswith("| #")]


@pytest.mark.parametrize("line", ISSUES, ids=lambda line: line.split("|")[1].strip().replace(" ", ""))
def test_every_listed_issue_names_an_existing_test(line: str) -> None:
    path, _, function = re.findall(r"`(tests/[^`]+)`", line)[-1].partition("::")
    assert (ROOT / path).is_file(), path
    assert not function or function in _functions(ROOT / path), function


# --- tests of sentences that no other test covers ---


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of a table with four files in two partitions, with the ids 0 to 39."""
    root = tmp_path_factory.mktemp("tables")
    writer = TableWriter(root / "t", seed=5)
    adds = [
        writer.add(pa.table({"id": pa.array(range(first, first + 10), pa.int64())}), {"p": part}, time=at(0))
        for first, part in ((0, "a"), (10, "a"), (20, "b"), (30, "b"))
    ]
    writer.commit([Protocol(1, 2), table("t", partition=("p",)), *adds], "WRITE", at(0))
    with mock_server.running(root) as running:
        yield running


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The bodies of the queries that the server has received."""
    seen: list[bytes] = []
    parse = mock_server.app.parse_query

    def record(body: bytes, *rest: Any) -> Any:
        seen.append(body)
        return parse(body, *rest)

    monkeypatch.setattr("mock_server.app.parse_query", record)
    return seen


FILTERS = ["p = 'a'", "p IS NULL", "p IS NOT NULL", "p IN ('a', 'c', 'd')", "id > 3 AND (p = 'a' OR id < 7)",
           "NOT (id BETWEEN 2 AND 5)", "p <> 'b' AND id = 4 AND id <= 9"]  # fmt: skip


@pytest.mark.parametrize("text", FILTERS)
def test_filter_and_limit_apply_if_the_server_ignores_hints(server: RunningServer, text: str) -> None:
    shared = ds.SharingClient(server.profile).table("default.default.t")
    expected = shared.scan(filter=text).to_arrow()
    server.set_fault("ignore-hints")
    try:
        assert shared.scan(filter=text).to_arrow().sort_by("id") == expected.sort_by("id")
        assert shared.scan(limit=3).to_arrow().num_rows == 3
        assert shared.scan(filter=text, limit=2).to_arrow().num_rows == min(2, expected.num_rows)
    finally:
        server.clear_faults()


def test_query_without_parameters_has_no_hints_in_its_body(server: RunningServer, bodies: list[bytes]) -> None:
    ds.SharingClient(server.profile).table("default.default.t").scan().to_arrow()

    for body in bodies:
        content = json.loads(body)
        assert isinstance(content, dict)
        assert not content.keys() & {"predicateHints", "jsonPredicateHints", "limitHint"}
    assert bodies


@pytest.mark.parametrize("text", FILTERS)
def test_hints_have_the_children_that_their_operators_need(
    server: RunningServer, bodies: list[bytes], text: str
) -> None:
    ds.SharingClient(server.profile).table("default.default.t").scan(filter=text).to_arrow()
    hints = [json.loads(body).get("jsonPredicateHints") for body in bodies]

    assert any(hints) or text == FILTERS[5]
    for hint in filter(None, hints):
        _check_children(json.loads(hint))


def _check_children(node: dict[str, Any]) -> None:
    op, children = node["op"], node.get("children", [])
    if op in LEAVES:
        assert children == []
        return
    if op == "isNull":
        assert [child["op"] for child in children] == ["column"]
    elif op == "not":
        assert len(children) == 1
    elif op in ("and", "or"):
        assert len(children) >= 2
    else:
        assert len(children) == 2
        assert all(child["op"] in LEAVES for child in children)
    for child in children:
        _check_children(child)


def test_long_names_and_comments_of_shares_are_not_truncated(
    monkeypatch: pytest.MonkeyPatch, server: RunningServer
) -> None:
    properties = {f"{number:0300}": "v" * 2000 for number in range(60)}
    item = {"name": "s", "displayName": "d" * 300, "comment": "c" * 70_000, "properties": properties}
    client = ds.SharingClient(server.profile)
    body = json.dumps({"items": [item]}).encode()
    monkeypatch.setattr(type(client._rest), "fetch", lambda *_: (None, body))
    (share,) = client.list_shares()
    assert (share.display_name, share.comment, share.properties) == ("d" * 300, "c" * 70_000, properties)


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
