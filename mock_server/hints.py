"""Predicate hints: which files surely hold no row that the client wants (protocol, "SQL Expressions for Filtering"
and "JSON predicates for Filtering").

Filtering is best effort and must never lose a row. For every file each node of a predicate gives the *set of answers
it can have* on some row: true, false, unknown (null). A file is left out only if true is not among them. Negation
swaps true and false, so nothing can be turned the wrong way round; whatever is not understood can be all three.
"""

from __future__ import annotations

import datetime
import enum
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import msgspec

from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.snapshot import Snapshot
from mock_server.parameters import QueryRequest

MAX_TEXT = 1024 * 1024
MAX_DEPTH = 100

_Value = Union[bool, int, float, str]


# Answers that a predicate can have on the rows of a file: bits, because a million files are asked.
Outcome = int
TRUE: Outcome = 1
FALSE: Outcome = 2
NULL: Outcome = 4
ANY: Outcome = TRUE | FALSE | NULL


@dataclass(frozen=True, slots=True)
class _Span:
    """The values of one column in one file: bounds (``None``: unknown), and whether there are any, and nulls."""

    lower: _Value | None
    upper: _Value | None
    values: bool
    nulls: bool


_UNKNOWN = _Span(None, None, True, True)
_Columns = Callable[[AddFile], dict[str, _Span]]
_Test = Callable[[Callable[[str], _Span]], Outcome]


class _FileStats(msgspec.Struct, rename="camel"):
    num_records: Union[int, None] = None
    min_values: dict[str, Any] = {}
    max_values: dict[str, Any] = {}
    null_count: dict[str, Any] = {}


class _NumRecords(msgspec.Struct, rename="camel"):
    num_records: Union[int, None] = None


_decode_stats = msgspec.json.Decoder(_FileStats).decode
_decode_num_records = msgspec.json.Decoder(_NumRecords).decode


class NotUnderstood(ValueError):
    """A hint that this server cannot use; the answer is then not reduced by it."""


def select(
    files: Sequence[AddFile], snapshot: Snapshot, request: QueryRequest, *, sql: bool, json_: bool, with_stats: bool
) -> Sequence[AddFile]:
    """Return the files that the hints of ``request`` leave: predicates first, then ``limitHint``.

    ``sql`` and ``json_`` switch the two kinds of predicates on; ``with_stats`` uses file statistics beside partition
    values for JSON predicates. The order of the files stays.
    """
    tests: list[_Test] = []
    if sql:
        tests.extend(_each(request.predicate_hints, lambda text: parse_sql(text, snapshot.schema)))
    if json_ and request.json_predicate_hints:
        tests.extend(_each([request.json_predicate_hints], lambda text: parse_json(text, snapshot.schema)))
    if tests:
        reader = _SpanReader(snapshot, with_stats)
        files = [add for add in files if all(test(reader.of(add)) & TRUE for test in tests)]
    if request.limit_hint is not None:
        files = _limit(files, request.limit_hint)
    return files


def parse_json(text: str, schema: StructType) -> _Test:
    """Read a JSON predicate; `NotUnderstood` if any part of it is not as the protocol says."""
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


def parse_sql(text: str, schema: StructType) -> _Test:
    """Read ``col op literal``, ``literal op col`` or ``col IS [NOT] NULL``; `NotUnderstood` for anything else."""
    if len(text) > MAX_TEXT:
        raise NotUnderstood(f"longer than {MAX_TEXT} characters")
    null = _SQL_NULL(text)
    if null is not None:
        test = _is_null(_column(null.group(1).strip("`"), None, schema)[0])
        return _negated(test) if null.group(2) else test
    column, operator, literal = _sql_comparison(text)
    name, kind = _column(column.strip("`"), None, schema)
    lower, upper = _literal(literal, kind)
    if operator in ("<>", "!="):
        return _negated(_comparison("equal", name, lower, upper))
    return _comparison(_OPERATORS[operator], name, lower, upper)


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


def _each(texts: Sequence[str], parse: Callable[[str], _Test]) -> list[_Test]:
    tests = []
    for text in texts:
        try:
            tests.append(parse(text))
        except NotUnderstood:
            continue  # best effort: the client filters anyway
    return tests


# --- the tree -------------------------------------------------------------------------------------------------------


def _node(node: Any, schema: StructType, depth: int) -> _Test:
    if depth > MAX_DEPTH:
        raise NotUnderstood(f"deeper than {MAX_DEPTH} levels")
    if not isinstance(node, dict):
        raise NotUnderstood("a predicate is an object with an op")
    operation, children = node.get("op"), node.get("children", [])
    if not isinstance(children, list) or not isinstance(operation, str):
        raise NotUnderstood("a predicate has an op and a list of children")
    if operation in ("and", "or"):
        if len(children) < 2:
            raise NotUnderstood(f"{operation} needs two children or more")
        combine = _and if operation == "and" else _or
        return _combined([_node(child, schema, depth + 1) for child in children], combine)
    if operation == "not" and len(children) == 1:
        return _negated(_node(children[0], schema, depth + 1))
    if operation == "isNull" and len(children) == 1:
        return _null_check(children[0], schema)
    if operation in _OPERATORS.values() and len(children) == 2:
        return _leaf_comparison(operation, children, schema)
    if operation == "column":
        name, kind = _column(node.get("name"), node.get("valueType"), schema)
        if kind is not _Kind.BOOL:
            raise NotUnderstood("only a boolean column is a predicate by itself")
        return _comparison("equal", name, True, True)
    raise NotUnderstood(f"op {operation} with {len(children)} children")


def _null_check(child: Any, schema: StructType) -> _Test:
    if isinstance(child, dict) and child.get("op") == "literal":
        # The JVM client sends this for <=>; the text "null" is how it renders a null literal.
        outcome = ANY if child.get("value") in (None, "null") else FALSE
        return lambda spans: outcome
    if not isinstance(child, dict) or child.get("op") != "column":
        raise NotUnderstood("isNull needs a column")
    # Only names matter here; the type may be any.
    return _is_null(_column(child.get("name"), None, schema, any_type=True)[0])


def _leaf_comparison(operation: str, children: list[Any], schema: StructType) -> _Test:
    left, right = children
    if not isinstance(left, dict) or not isinstance(right, dict):
        raise NotUnderstood("the children of a comparison are objects")
    if left.get("op") == "literal" and right.get("op") == "column":
        left, right = right, left
        swapped = {"lessThan": "greaterThan", "lessThanOrEqual": "greaterThanOrEqual"}
        swapped.update({value: key for key, value in swapped.items()})
        operation = swapped.get(operation, operation)
    if left.get("op") != "column" or right.get("op") != "literal":
        raise NotUnderstood("a comparison needs a column and a literal")
    name, kind = _column(left.get("name"), left.get("valueType"), schema)
    if right.get("valueType") != left.get("valueType"):
        raise NotUnderstood("column and literal must have one valueType")
    value = right.get("value")
    if not isinstance(value, str):
        raise NotUnderstood("a literal's value is a string")
    if value == "null" and kind is not _Kind.STRING:
        return lambda spans: NULL | TRUE  # a null literal, by the JVM client; keep everything
    return _comparison(operation, name, *_literal(value, kind))


def _combined(tests: list[_Test], combine: Callable[[Outcome, Outcome], Outcome]) -> _Test:
    def test(spans: Callable[[str], _Span]) -> Outcome:
        result = tests[0](spans)
        for other in tests[1:]:
            result = combine(result, other(spans))
        return result

    return test


def _negated(inner: _Test) -> _Test:
    def test(spans: Callable[[str], _Span]) -> Outcome:
        return _not(inner(spans))

    return test


def _not(outcome: Outcome) -> Outcome:
    return outcome & NULL | (FALSE if outcome & TRUE else 0) | (TRUE if outcome & FALSE else 0)


def _and(left: Outcome, right: Outcome) -> Outcome:
    result = (left | right) & FALSE
    if left & TRUE and right & TRUE:
        result |= TRUE
    if (left & NULL and right & (TRUE | NULL)) or (right & NULL and left & (TRUE | NULL)):
        result |= NULL
    return result


def _or(left: Outcome, right: Outcome) -> Outcome:
    return _not(_and(_not(left), _not(right)))


def _is_null(name: str) -> _Test:
    def test(spans: Callable[[str], _Span]) -> Outcome:
        span = spans(name)
        return (TRUE if span.nulls else 0) | (FALSE if span.values else 0)

    return test


def _comparison(operation: str, name: str, low: _Value, high: _Value) -> _Test:
    """Compare a column with a literal that lies somewhere in ``[low, high]``."""

    def test(spans: Callable[[str], _Span]) -> Outcome:
        span = spans(name)
        result = NULL if span.nulls else 0
        if not span.values:
            return result
        lower, upper = span.lower, span.upper
        below = lower is None or lower < high  # type: ignore[operator]
        not_above = lower is None or lower <= high  # type: ignore[operator]
        above = upper is None or upper > low  # type: ignore[operator]
        not_below = upper is None or upper >= low  # type: ignore[operator]
        if operation == "equal":
            can, cannot = not_above and not_below, not (lower == upper == low == high and lower is not None)
        elif operation == "lessThan":
            can, cannot = below, not_below
        elif operation == "lessThanOrEqual":
            can, cannot = not_above, above
        elif operation == "greaterThan":
            can, cannot = above, not_above
        else:
            can, cannot = not_below, below
        return result | (TRUE if can else 0) | (FALSE if cannot else 0)

    return test


# --- columns and values ---------------------------------------------------------------------------------------------


class _Kind(enum.Enum):
    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    STRING = "string"
    DATE = "date"
    TIMESTAMP = "timestamp"


_KINDS = {
    "boolean": _Kind.BOOL, "byte": _Kind.INTEGER, "short": _Kind.INTEGER, "integer": _Kind.INTEGER,
    "long": _Kind.INTEGER, "float": _Kind.FLOAT, "double": _Kind.FLOAT, "string": _Kind.STRING, "date": _Kind.DATE,
    "timestamp": _Kind.TIMESTAMP,
}  # fmt: skip
_VALUE_TYPES = {
    "bool": _Kind.BOOL, "boolean": _Kind.BOOL, "int": _Kind.INTEGER, "long": _Kind.INTEGER, "float": _Kind.FLOAT,
    "double": _Kind.FLOAT, "string": _Kind.STRING, "date": _Kind.DATE, "timestamp": _Kind.TIMESTAMP,
}  # fmt: skip


def _kind_of(field: StructField) -> _Kind | None:
    # A collated column does not compare as its bytes do, in which its statistics are kept.
    if not isinstance(field.type, PrimitiveType) or field.collation is not None:
        return None
    return _KINDS.get(field.type.name)


def _column(name: object, value_type: object, schema: StructType, *, any_type: bool = False) -> tuple[str, _Kind]:
    field = schema.find(name) if isinstance(name, str) else None
    if field is None:
        raise NotUnderstood(f"there is no column {name}")
    kind = _kind_of(field)
    if any_type:
        return field.name, kind or _Kind.STRING
    if kind is None:
        raise NotUnderstood(f"columns of the type of {name} are not compared")
    if value_type is not None and _VALUE_TYPES.get(str(value_type)) is not kind:
        raise NotUnderstood(f"column {name} is {kind.value}, not {value_type}")
    return field.name, kind


def _literal(text: str, kind: _Kind) -> tuple[_Value, _Value]:
    """Return the bounds between which the literal lies; they differ where clients round."""
    value = _parse(text, kind)
    if value is None:
        raise NotUnderstood(f"not a {kind.value}: {text[:100]}")
    if kind is _Kind.TIMESTAMP:
        # The JVM client cuts literals to milliseconds, so this one may stand for any microsecond of it.
        assert isinstance(value, int)
        return value, value + 999
    return value, value


def _parse(text: str, kind: _Kind) -> _Value | None:
    try:
        if kind is _Kind.BOOL:
            return {"true": True, "false": False}[text.lower()]
        if kind is _Kind.INTEGER:
            return int(text)
        if kind is _Kind.FLOAT:
            number = float(text)
            return None if number != number else number
        if kind is _Kind.DATE:
            return datetime.date.fromisoformat(text).toordinal()
        if kind is _Kind.TIMESTAMP:
            return _micros(text)
    except (ValueError, KeyError):
        return None
    return text


_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,6})\d*)?Z").fullmatch


def _micros(text: str) -> int | None:
    """Microseconds since the epoch; a time without zone is not compared, as its zone is not known."""
    match = _INSTANT(text)
    if match is None:
        return None
    moment = datetime.datetime.fromisoformat(f"{match.group(1)}T{match.group(2)}")
    since = moment - datetime.datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int((match.group(3) or "").ljust(6, "0"))


class _SpanReader:
    """Gives the spans of a file's columns: exact for partition columns, from statistics for others."""

    def __init__(self, snapshot: Snapshot, with_stats: bool) -> None:
        self._with_stats = with_stats
        partitions = {name.lower() for name in snapshot.metadata.partition_columns}
        self._fields = {
            field.name: (field.physical_name, _kind_of(field), field.name.lower() in partitions)
            for field in snapshot.schema.fields
        }

    def of(self, add: AddFile) -> Callable[[str], _Span]:
        stats: list[_FileStats | None] = []

        def span(name: str) -> _Span:
            physical, kind, partitioned = self._fields[name]
            if partitioned:
                return _partition_span(add, physical, kind)
            if not self._with_stats or add.stats is None:
                return _UNKNOWN
            if not stats:
                stats.append(_read_stats(add.stats))
            return _UNKNOWN if stats[0] is None else _stats_span(stats[0], physical, kind)

        return span


def _partition_span(add: AddFile, physical: str, kind: _Kind | None) -> _Span:
    if physical not in add.partition_values:
        return _UNKNOWN
    text = add.partition_values[physical]
    if text is None or text == "":
        return _Span(None, None, values=False, nulls=True)
    value = None if kind is None else _parse(text, kind)
    return _Span(value, value, values=True, nulls=False)


def _read_stats(text: str) -> _FileStats | None:
    try:
        return _decode_stats(text)
    except msgspec.DecodeError:
        return None


def _stats_span(stats: _FileStats, physical: str, kind: _Kind | None) -> _Span:
    nulls = stats.null_count.get(physical)
    nulls = nulls if isinstance(nulls, int) and not isinstance(nulls, bool) else None
    has_values = not (nulls is not None and stats.num_records is not None and nulls >= stats.num_records > 0)
    lower = _stats_value(stats.min_values.get(physical), kind)
    upper = _stats_value(stats.max_values.get(physical), kind)
    if kind is _Kind.FLOAT:
        upper = None  # NaN is greater than all numbers, and statistics leave it out
    elif kind is _Kind.TIMESTAMP and isinstance(upper, int):
        upper += 999  # writers cut statistics to milliseconds
    elif kind is _Kind.STRING and isinstance(upper, str) and "\ufffd" in upper:
        upper = None  # cut in the middle of a character: no bound
    return _Span(lower, upper, values=has_values, nulls=nulls != 0)


def _stats_value(value: object, kind: _Kind | None) -> _Value | None:
    if kind is None or value is None:
        return None
    if kind in (_Kind.DATE, _Kind.TIMESTAMP, _Kind.STRING):
        return _parse(value, kind) if isinstance(value, str) else None
    if kind is _Kind.BOOL:
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if kind is _Kind.FLOAT or isinstance(value, int) else None


def _limit(files: Sequence[AddFile], limit: int) -> Sequence[AddFile]:
    """Return as many files as hold ``limit`` rows; a file without a row count is taken and counts nothing."""
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
