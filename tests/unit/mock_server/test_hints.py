"""Hints skip a file only if none of its rows matches, checked against the rows."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor, Metadata, Protocol
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.delta.snapshot import Snapshot
from mock_server import hints
from mock_server.hint_values import Kind, find_column
from mock_server.hints import NotUnderstood
from mock_server.parameters import QueryRequest
from tests.quota import meets, met

COLUMNS = {"i": "long", "s": "string", "f": "double", "d": "date", "t": "timestamp", "b": "boolean", "p": "integer"}
VALUE_TYPES = {"i": "long", "s": "string", "f": "double", "d": "date", "t": "timestamp", "b": "bool", "p": "int"}
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()],
    }
)
EPOCH = datetime.datetime(1970, 1, 1)

OTHER_COLUMNS = {
    "collated": ("string", {"__COLLATIONS": {"collated": "icu.de"}}),
    "nested": ({"type": "struct", "fields": []}, {}),
    "listed": ({"type": "array", "elementType": "string", "containsNull": True}, {}),
    "binary": ("binary", {}),
}


@pytest.mark.parametrize("name", OTHER_COLUMNS)
def test_columns_without_ordered_bounds_are_not_compared(name: str) -> None:
    kind, metadata = OTHER_COLUMNS[name]
    field = {"name": name, "type": kind, "nullable": True, "metadata": metadata}
    schema = parse_schema(json.dumps({"type": "struct", "fields": [field]}))
    with pytest.raises(NotUnderstood, match=f"columns with the type of {name} are not compared"):
        find_column(name, "string", schema)
    assert find_column(name, None, schema, any_type=True) == (name, Kind.STRING)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-3, 3),
    "s": st.text("ab\ud7ff\U0001f600", max_size=2),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "d": st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 3)),
    "t": st.integers(0, 4000),  # microseconds since the epoch
    "b": st.booleans(),
    "p": st.integers(-2, 2),
}
ROW = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items() if name != "p"})
COMPARISONS = ("equal", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")


def instant(micros: int) -> str:
    return (EPOCH + datetime.timedelta(microseconds=micros)).isoformat(timespec="microseconds") + "Z"


def literal(name: str, value: Any) -> str:
    if name == "t":
        return instant(value)
    if name == "b":
        return str(value).lower()
    return value.isoformat() if name == "d" else str(value)


def statistic(name: str, value: Any) -> Any:
    if name == "t":
        return instant(value // 1000 * 1000)[:-4] + "Z"  # truncated to milliseconds, as writers do
    return value.isoformat() if name == "d" else value


def leaf() -> st.SearchStrategy[Any]:
    def comparison(name: str) -> st.SearchStrategy[Any]:
        # No client can write NaN as a literal, and the server would not accept it.
        literals = VALUES[name].filter(lambda value: value == value)
        return st.tuples(st.sampled_from(COMPARISONS), st.just(name), literals, st.booleans())

    nulls = st.tuples(st.just("isNull"), st.sampled_from(list(COLUMNS)))
    return st.sampled_from(list(COLUMNS)).flatmap(comparison) | nulls


TREES = st.recursive(
    leaf(),
    lambda inner: (
        st.tuples(st.just("not"), inner)
        | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
    ),
    max_leaves=6,
)


def to_json(tree: Any) -> dict[str, Any]:
    match tree:
        case (("and" | "or") as op, list(children)):
            return {"op": op, "children": [to_json(child) for child in children]}
        case ("not", child):
            return {"op": "not", "children": [to_json(child)]}
        case ("isNull", name):
            return {"op": "isNull", "children": [{"op": "column", "name": name, "valueType": VALUE_TYPES[name]}]}
        case (op, name, value, swapped):
            column = {"op": "column", "name": name.upper(), "valueType": VALUE_TYPES[name]}
            constant = {"op": "literal", "value": literal(name, value), "valueType": VALUE_TYPES[name]}
            return {"op": op, "children": [constant, column] if swapped else [column, constant]}
    raise AssertionError(tree)


def meaning(tree: Any, row: dict[str, Any]) -> bool | None:
    """Three-valued logic as in Spark: NaN equals itself and is greater than every other number."""
    match tree:
        case ("and", list(children)):
            answers = [meaning(child, row) for child in children]
            return False if False in answers else None if None in answers else True
        case ("or", list(children)):
            answers = [meaning(child, row) for child in children]
            return True if True in answers else None if None in answers else False
        case ("not", child):
            answer = meaning(child, row)
            return None if answer is None else not answer
        case ("isNull", name):
            return row[name] is None
        case (op, name, value, swapped):
            if row[name] is None:
                return None
            left, right = sort_key(row[name]), sort_key(value)
            left, right = (right, left) if swapped else (left, right)
            return {"equal": left == right, "lessThan": left < right, "lessThanOrEqual": left <= right,
                    "greaterThan": left > right, "greaterThanOrEqual": left >= right}[op]  # fmt: skip
    raise AssertionError(tree)


def sort_key(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def file_of(rows: list[dict[str, Any]], partition: int | None) -> AddFile:
    stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in COLUMNS:
        if name == "p":
            continue
        present = [row[name] for row in rows if row[name] is not None]
        stats["nullCount"][name] = len(rows) - len(present)
        bounded = [value for value in present if not (isinstance(value, float) and not math.isfinite(value))]
        if bounded and name != "b":
            stats["minValues"][name] = statistic(name, min(bounded))
            stats["maxValues"][name] = statistic(name, max(bounded))
    return AddFile("f", {"p": None if partition is None else str(partition)}, 1, stats=json.dumps(stats))


def snapshot(*files: AddFile) -> Snapshot:
    return Snapshot(0, 0, Protocol(1, 2), Metadata("m", SCHEMA, partition_columns=["p"]), list(files))


def kept(add: AddFile, **request: Any) -> bool:
    one = snapshot(add)
    return bool(hints.select(one.files, one, QueryRequest(**request), sql=True, json_=True, with_stats=True))


@meets(matching=12)
@given(TREES, st.lists(ROW, min_size=1, max_size=4), st.none() | VALUES["p"])
def test_a_file_with_a_matching_row_is_never_left_out(tree: Any, rows: list[dict[str, Any]], partition: Any) -> None:
    add = file_of(rows, partition)
    hints.parse_json(json.dumps(to_json(tree)), snapshot(add).schema)  # the hint is not simply ignored
    if any(meaning(tree, {**row, "p": partition}) for row in rows):
        met("matching")
        assert kept(add, json_predicate_hints=json.dumps(to_json(tree)))


@pytest.mark.parametrize(
    "tree",
    [
        ("equal", "i", 5, False),
        ("lessThan", "i", 1, False),
        ("lessThan", "i", 3, True),
        ("greaterThan", "s", "c", False),
        ("equal", "d", datetime.date(2026, 2, 1), False),
        ("greaterThanOrEqual", "t", 5000, False),
        ("equal", "p", 8, False),
        ("isNull", "i"),
        ("isNull", "p"),
        ("not", ("isNull", "b")),
        ("not", ("lessThanOrEqual", "i", 3, False)),
        ("and", [("equal", "i", 2, False), ("equal", "p", 8, False)]),
        ("or", [("equal", "i", 9, False), ("equal", "p", 8, False)]),
    ],
)
def test_file_that_cannot_match_is_skipped(tree: Any) -> None:
    row = {"i": 2, "s": "b", "f": 1.0, "d": datetime.date(2026, 1, 1), "t": 1000, "b": None}
    add = file_of([row, {**row, "i": 1}, {**row, "i": 3, "s": "a"}], 7)
    assert meaning(tree, {**row, "p": 7}) is not True
    assert not kept(add, json_predicate_hints=json.dumps(to_json(tree)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 2", True), ("i = 9", False), ("9 <= i", False), ("1 <= `I`", True), ("i <> 2", False),
        ("i <> 3", True),
        ("s >= 'b'", True), ("s > 'it''s'", False), ("p = 7", True), ("p != 7", False), ("p IS NULL", False),
        ("p is not null", True), ("d < '2026-01-01'", False), ("b is null", True),
        # hints that are not understood skip no file
        ("i = 9 OR i = 2", True), ("i + 1 = 9", True), ("nope = 9", True), ("i = 'x'", True), ("i <=> 9", True),
        ("i in (9)", True), ("", True), ("p = NULL", True), ("s = 'a' AND s = 'z'", True),
        # Double quotes are a string to Spark and a name to other engines.
        ('"i" = 9', True), ('9 = "i"', True), ('s = "z"', True), ('"p" IS NULL', True), ('"i" = "z"', True),
    ],
)  # fmt: skip
def test_sql_hints_skip_files_only_if_understood(text: str, expected: bool) -> None:
    row = {"i": 2, "s": "b", "f": 1.0, "d": datetime.date(2026, 1, 1), "t": 1000, "b": None}
    assert kept(file_of([row], 7), predicate_hints=(text,)) is expected


def deep(levels: int) -> dict[str, Any]:
    node = to_json(("equal", "i", 9, False))
    for _ in range(levels):
        node = {"op": "not", "children": [node]}
    return node


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"op":"xor","children":[]}',
        '{"op":"and","children":[]}',
        '{"op":"not"}',
        '{"op":"isNull","children":["i"]}',
        '{"op":"isNull","children":[{"op":"not","name":"i"}]}',
        json.dumps({**to_json(("equal", "i", 9, False)), "children": [1, 2]}),
        json.dumps(to_json(("equal", "i", 9, False))).replace("long", "string"),
        json.dumps(to_json(("equal", "i", 9, False))).replace('"I"', '"nope"'),
        json.dumps(to_json(("equal", "i", 9, False))).replace('"9"', "9"),
        json.dumps(deep(hints.MAX_DEPTH)),
        '{"op":"and","children":[' * 20_000,
        json.dumps({**to_json(("equal", "i", 9, False)), "x": "y" * hints.MAX_TEXT}),
    ],
)
def test_unknown_json_predicate_skips_no_file(text: str) -> None:
    row = dict.fromkeys(VALUES, None)
    one = snapshot(file_of([{**row, "i": 2}], 7))
    with pytest.raises(NotUnderstood):
        hints.parse_json(text, one.schema)
    assert kept(one.files[0], json_predicate_hints=text)


def test_null_literal_of_the_jvm_client_skips_no_file() -> None:
    row = dict.fromkeys(VALUES, None)
    add = file_of([{**row, "i": 2}], 7)
    node = to_json(("equal", "i", 9, False))
    node["children"][1]["value"] = "null"
    assert kept(add, json_predicate_hints=json.dumps(node))
    null_check = {"op": "isNull", "children": [{"op": "literal", "value": "9", "valueType": "int"}]}
    assert not kept(add, json_predicate_hints=json.dumps(null_check))


@pytest.mark.parametrize("stats", [None, "", "{", "[]", '{"minValues":{"i":"x"},"maxValues":{"i":null}}'])
def test_files_with_missing_or_invalid_statistics_are_kept(stats: str | None) -> None:
    assert kept(AddFile("f", {"p": "7"}, 1, stats=stats), predicate_hints=("i = 9",))
    assert kept(AddFile("f", {}, 1), predicate_hints=("p = 9",))  # a missing partition value


def _one_column(kind: str, stats: str, *, value: str | None = None, changes: list[Any] | None = None) -> Snapshot:
    metadata = {} if changes is None else {"delta.typeChanges": changes}
    field = {"name": "x", "type": kind, "nullable": True, "metadata": metadata}
    schema = json.dumps({"type": "struct", "fields": [field]})
    partitions = [] if value is None else ["x"]
    add = AddFile("f", {} if value is None else {"x": value}, 1, stats=stats)
    return Snapshot(0, 0, Protocol(1, 2), Metadata("m", schema, partition_columns=partitions), [add])


def _compared(one: Snapshot, op: str, text: str, value_type: str) -> bool:
    column = {"op": "column", "name": "x", "valueType": value_type}
    node = {"op": op, "children": [column, {"op": "literal", "value": text, "valueType": value_type}]}
    request = QueryRequest(json_predicate_hints=json.dumps(node))
    return bool(hints.select(one.files, one, request, sql=True, json_=True, with_stats=True))


SEVEN = "0.699999988079071"  # 0.7 as a float, widened to double
WIDENED = [{"fromType": "float", "toType": "double"}]


@pytest.mark.parametrize("literal_type", ["float", "double"])
@pytest.mark.parametrize(
    ("kind", "changes", "op", "text", "expected"),
    [
        ("float", None, "equal", SEVEN, True),
        ("float", None, "equal", "0.7", True),
        ("float", None, "lessThanOrEqual", "0.69999999", True),
        ("float", None, "lessThan", "0.6999", False),
        ("double", WIDENED, "lessThan", "0.7", True),
        ("double", WIDENED, "equal", SEVEN, True),
        ("double", WIDENED, "equal", "0.6", False),
        ("double", None, "lessThan", "0.7", False),
    ],
)
def test_float_literals_are_rounded_as_the_writer_rounds(
    kind: str, changes: list[Any] | None, op: str, text: str, expected: bool, literal_type: str
) -> None:
    stats = '{"numRecords":1,"minValues":{"x":0.7},"maxValues":{"x":0.7},"nullCount":{"x":0}}'
    assert _compared(_one_column(kind, stats, changes=changes), op, text, literal_type) is expected


@pytest.mark.parametrize(
    ("value", "double"),
    [("1.0E-5", "9.999999747378752e-06"), ("0.1", "0.10000000149011612"), ("1.23456792E8", "123456792")],
)
def test_float_partition_matches_float_and_double_spellings(value: str, double: str) -> None:
    one = _one_column("float", "{}", value=value)
    assert _compared(one, "equal", double, "float")
    assert _compared(one, "equal", value, "float")
    assert not _compared(one, "equal", "0.2", "float")


def test_hints_and_statistics_are_used_only_if_enabled() -> None:
    one = snapshot(AddFile("f", {"p": "7"}, 1, stats='{"numRecords":1,"minValues":{"i":1},"maxValues":{"i":1}}'))
    request = QueryRequest(predicate_hints=("i = 9",))
    assert hints.select(one.files, one, request, sql=True, json_=True, with_stats=False)
    assert hints.select(one.files, one, request, sql=False, json_=True, with_stats=True)
    assert not hints.select(one.files, one, request, sql=True, json_=True, with_stats=True)


def test_limit_counts_live_rows_and_ignores_unknown_counts() -> None:
    vector = DeletionVectorDescriptor("i", "x", 1, 3)
    files = [
        AddFile("a", stats='{"numRecords":5}', deletion_vector=vector),
        AddFile("b"),
        AddFile("c", stats="{broken"),
        AddFile("d", stats='{"numRecords":1}'),
        AddFile("e", stats='{"numRecords":9}'),
    ]
    one = snapshot(*files)

    def taken(limit: int) -> str:
        request = QueryRequest(limit_hint=limit)
        return "".join(add.path for add in hints.select(one.files, one, request, sql=True, json_=True, with_stats=True))

    assert [taken(limit) for limit in (0, 1, 2, 3, 4, 100)] == ["", "a", "a", "abcd", "abcde", "abcde"]
