"""Predicate hints: omits files without matching rows (protocol, "SQL Expressions for Filtering" and "JSON predicates
for Filtering").

Filtering is best effort and must never lose a row: a file is omitted only if the predicate cannot be true for any of
its rows (``hint_logic``). A predicate that is not understood has no effect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Union

import msgspec

from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.data_types import StructType
from delta_sharing_client.delta.snapshot import Snapshot

from .hint_logic import (
    ANY,
    FALSE,
    NULL,
    TRUE,
    NotUnderstood,
    Test,
    all_of,
    any_of,
    combined,
    comparison,
    is_null,
    negated,
)
from .hint_values import Kind, SpanReader, find_column, literal_bounds
from .parameters import QueryRequest

MAX_TEXT = 1024 * 1024
MAX_DEPTH = 100


class _NumRecords(msgspec.Struct, rename="camel"):
    num_records: Union[int, None] = None


_decode_num_records = msgspec.json.Decoder(_NumRecords).decode


def select(
    files: Sequence[AddFile], snapshot: Snapshot, request: QueryRequest, *, sql: bool, json_: bool, with_stats: bool
) -> Sequence[AddFile]:
    """Return the files that match the hints of ``request``: predicates first, then ``limitHint``.

    ``sql`` and ``json_`` enable the two kinds of predicates; ``with_stats`` uses file statistics in addition to
    partition values. The order of the files is kept.
    """
    tests: list[Test] = []
    if sql:
        tests.extend(_each(request.predicate_hints, lambda text: parse_sql(text, snapshot.schema)))
    if json_ and request.json_predicate_hints:
        tests.extend(_each([request.json_predicate_hints], lambda text: parse_json(text, snapshot.schema)))
    if tests:
        reader = SpanReader(snapshot, with_stats)
        files = [add for add in files if all(test(reader.of(add)) & TRUE for test in tests)]
    if request.limit_hint is not None:
        files = _limit(files, request.limit_hint)
    return files


def parse_json(text: str, schema: StructType) -> Test:
    """Parse a JSON predicate. Raises `NotUnderstood` if any part of it does not conform to the protocol."""
    if len(text) > MAX_TEXT:
        raise NotUnderstood(f"longer than {MAX_TEXT} characters")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(str(error)) from error
    return _node(content, schema, 1)


_SQL_FORWARD = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)\s*(<=>|<=|>=|<>|!=|=|<|>)\s*(.+?)\s*", re.DOTALL).fullmatch
_SQL_BACKWARD = re.compile(r"\s*(.+?)\s*(<=>|<=|>=|<>|!=|=|<|>)\s*(`[^`]+`|[A-Za-z_]\w*)\s*", re.DOTALL).fullmatch
_SQL_NULL = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)\s+is\s+(not\s+)?null\s*", re.IGNORECASE).fullmatch
_SQL_LITERAL = re.compile(r"'((?:[^'\\]|'')*)'|(-?\d+(?:\.\d+)?)|(true|false)", re.IGNORECASE).fullmatch
_OPERATORS = {"=": "equal", "<": "lessThan", "<=": "lessThanOrEqual", ">": "greaterThan", ">=": "greaterThanOrEqual"}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>", "!=": "!="}


def parse_sql(text: str, schema: StructType) -> Test:
    """Parse ``col op literal``, ``literal op col`` or ``col IS [NOT] NULL``. Raises `NotUnderstood` for anything
    else."""
    if len(text) > MAX_TEXT:
        raise NotUnderstood(f"longer than {MAX_TEXT} characters")
    null = _SQL_NULL(text)
    if null is not None:
        test = is_null(find_column(null.group(1).strip("`"), None, schema)[0])
        return negated(test) if null.group(2) else test
    column, operator, literal = _sql_comparison(text)
    name, kind = find_column(column.strip("`"), None, schema)
    lower, upper = literal_bounds(literal, kind)
    if operator in ("<>", "!="):
        return negated(comparison("equal", name, lower, upper))
    return comparison(_OPERATORS[operator], name, lower, upper)


def _sql_comparison(text: str) -> tuple[str, str, str]:
    forward = _SQL_FORWARD(text)
    if forward is not None and _SQL_LITERAL(forward.group(3)):
        column, operator, literal = forward.groups()
    else:
        backward = _SQL_BACKWARD(text)
        if backward is None or not _SQL_LITERAL(backward.group(1)):
            raise NotUnderstood(f"not a comparison of a column and a constant: {text[:100]}")
        literal, operator, column = backward.groups()
        operator = _MIRRORED.get(operator, operator)
    if operator == "<=>":
        raise NotUnderstood("<=> is not supported")
    match = _SQL_LITERAL(literal)
    assert match is not None
    quoted = match.group(1)
    return column, operator, literal if quoted is None else quoted.replace("''", "'")


def _each(texts: Sequence[str], parse: Callable[[str], Test]) -> list[Test]:
    tests = []
    for text in texts:
        try:
            tests.append(parse(text))
        except NotUnderstood:
            continue  # the hint is ignored, because the client filters as well
    return tests


# --- the tree -------------------------------------------------------------------------------------------------------


def _node(node: Any, schema: StructType, depth: int) -> Test:
    if depth > MAX_DEPTH:
        raise NotUnderstood(f"deeper than {MAX_DEPTH} levels")
    if not isinstance(node, dict):
        raise NotUnderstood("a predicate must be an object with an op")
    operation, children = node.get("op"), node.get("children", [])
    if not isinstance(children, list) or not isinstance(operation, str):
        raise NotUnderstood("a predicate must have an op and a list of children")
    if operation in ("and", "or"):
        if len(children) < 2:
            raise NotUnderstood(f"{operation} needs two children or more")
        combine = all_of if operation == "and" else any_of
        return combined([_node(child, schema, depth + 1) for child in children], combine)
    if operation == "not" and len(children) == 1:
        return negated(_node(children[0], schema, depth + 1))
    if operation == "isNull" and len(children) == 1:
        return _null_check(children[0], schema)
    if operation in _OPERATORS.values() and len(children) == 2:
        return _leaf_comparison(operation, children, schema)
    if operation == "column":
        name, kind = find_column(node.get("name"), node.get("valueType"), schema)
        if kind is not Kind.BOOL:
            raise NotUnderstood("only a boolean column can be a predicate by itself")
        return comparison("equal", name, True, True)
    raise NotUnderstood(f"op {operation} with {len(children)} children")


def _null_check(child: Any, schema: StructType) -> Test:
    if isinstance(child, dict) and child.get("op") == "literal":
        # The JVM client sends this for <=>, with a null literal as the text "null".
        outcome = ANY if child.get("value") in (None, "null") else FALSE
        return lambda spans: outcome
    if not isinstance(child, dict) or child.get("op") != "column":
        raise NotUnderstood("isNull needs a column")
    # Any type is allowed.
    return is_null(find_column(child.get("name"), None, schema, any_type=True)[0])


def _leaf_comparison(operation: str, children: list[Any], schema: StructType) -> Test:
    left, right = children
    if not isinstance(left, dict) or not isinstance(right, dict):
        raise NotUnderstood("the children of a comparison must be objects")
    if left.get("op") == "literal" and right.get("op") == "column":
        left, right = right, left
        swapped = {"lessThan": "greaterThan", "lessThanOrEqual": "greaterThanOrEqual"}
        swapped.update({value: key for key, value in swapped.items()})
        operation = swapped.get(operation, operation)
    if left.get("op") != "column" or right.get("op") != "literal":
        raise NotUnderstood("a comparison needs a column and a literal")
    name, kind = find_column(left.get("name"), left.get("valueType"), schema)
    if right.get("valueType") != left.get("valueType"):
        raise NotUnderstood("column and literal must have the same valueType")
    value = right.get("value")
    if not isinstance(value, str):
        raise NotUnderstood("a literal's value must be a string")
    if value == "null" and kind is not Kind.STRING:
        return lambda spans: NULL | TRUE  # the JVM client's null literal, which keeps every file
    return comparison(operation, name, *literal_bounds(value, kind))


def _limit(files: Sequence[AddFile], limit: int) -> Sequence[AddFile]:
    """Return the first files that have ``limit`` rows in total; a file without a row count is included and counts as
    zero rows."""
    rows = 0
    for index, add in enumerate(files):
        if rows >= limit:
            return files[:index]
        rows += _rows(add)
    return files


def _rows(add: AddFile) -> int:
    if add.stats is None:
        return 0
    try:
        records = _decode_num_records(add.stats).num_records
    except msgspec.DecodeError:
        return 0
    deleted = add.deletion_vector.cardinality if add.deletion_vector else 0
    return max(0, (records or 0) - deleted)
