"""The table of the protocol's sentences is true: each line names a test that is there; and the tests of a few lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.delta.actions import Protocol
from mock_server.running import RunningServer
from mock_server.table_writer import TableWriter
from tests.unit.mock_server.helpers import DELTA, Api, at, table

ROOT = Path(__file__).resolve().parents[2]
LINES = [line for line in (Path(__file__).parent / "sentences.md").read_text().splitlines() if line.startswith("| ")][
    1:
]
LEAVES = ("column", "literal")


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_every_sentence_names_tests_that_are_there(line: str) -> None:
    _, section, sentence, who, tests, _ = line.split("|")
    named = re.findall(r"`([^`]+)`", tests)

    assert section.strip()
    assert sentence.strip()
    assert who.strip() in ("client", "server", "both")
    assert named
    for name in named:
        path, _, function = name.partition("::")
        assert (ROOT / path).is_file(), path
        assert not function or function in _functions(ROOT / path), name


ISSUES = [line for line in (ROOT / "docs" / "from-delta-sharing.md").read_text().splitlines() if line.startswith("| #")]


@pytest.mark.parametrize("line", ISSUES, ids=lambda line: line.split("|")[1].strip().replace(" ", ""))
def test_every_issue_names_a_test_that_is_there(line: str) -> None:
    path, _, function = re.findall(r"`(tests/[^`]+)`", line)[-1].partition("::")
    assert (ROOT / path).is_file(), path
    assert not function or function in _functions(ROOT / path), function


def test_no_sentence_stands_twice() -> None:
    sentences = [line.split("|")[1:3] for line in LINES]

    assert len({tuple(pair) for pair in sentences}) == len(sentences) > 40


# --- tests of lines that had none -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A table of four files in two partitions, ids 0 to 39."""
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
    """The bodies of the queries that reach the server."""
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
def test_filter_and_limit_hold_at_a_server_that_ignores_hints(server: RunningServer, text: str) -> None:
    shared = ds.SharingClient(server.profile).table("default.default.t")
    expected = shared.scan(filter=text).to_arrow()
    server.set_fault("ignore-hints")
    try:
        assert shared.scan(filter=text).to_arrow().sort_by("id") == expected.sort_by("id")
        assert shared.scan(limit=3).to_arrow().num_rows == 3
        assert shared.scan(filter=text, limit=2).to_arrow().num_rows == min(2, expected.num_rows)
    finally:
        server.clear_faults()


def test_a_query_without_parameters_is_an_empty_object(server: RunningServer, bodies: list[bytes]) -> None:
    ds.SharingClient(server.profile).table("default.default.t").scan().to_arrow()

    for body in bodies:
        content = json.loads(body)
        assert isinstance(content, dict)
        assert not content.keys() & {"predicateHints", "jsonPredicateHints", "limitHint"}
    assert bodies


@pytest.mark.parametrize("text", FILTERS)
def test_hints_have_as_many_children_as_their_ops(server: RunningServer, bodies: list[bytes], text: str) -> None:
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


COLUMN = {"op": "column", "name": "p", "valueType": "string"}
LITERAL = {"op": "literal", "value": "z", "valueType": "string"}
NOTHING = {"op": "equal", "children": [COLUMN, LITERAL]}


@pytest.mark.parametrize(
    "hint",
    [
        {"op": "isNull", "children": [COLUMN, COLUMN]},
        {"op": "isNull", "children": []},
        {"op": "equal", "children": [COLUMN]},
        {"op": "equal", "children": [COLUMN, LITERAL, LITERAL]},
        {"op": "lessThan", "children": [COLUMN, NOTHING]},
        {"op": "and", "children": []},
        {"op": "or", "children": []},
        {"op": "not", "children": [NOTHING, NOTHING]},
        {"op": "not", "children": []},
    ],
    ids=str,
)
def test_a_hint_with_other_children_leaves_out_nothing(server: RunningServer, hint: dict[str, Any]) -> None:
    api = Api(server)
    assert api.query("t", jsonPredicateHints=NOTHING).files == []
    assert len(api.query("t", jsonPredicateHints=hint).files) == 4


@pytest.mark.parametrize("change", [str.upper, str.title, lambda text: text.replace("=", " = ").replace(";", " ; ")])
def test_capabilities_are_understood_in_any_case(server: RunningServer, change: Any) -> None:
    lines = Api(server).query("t", change(f"{DELTA};includeendstreamaction=true"))

    assert lines.headers["delta-sharing-capabilities"] == "responseformat=delta;includeendstreamaction=true"
    assert lines.end is not None


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
