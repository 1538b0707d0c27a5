from __future__ import annotations

import json
import math
import re
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import hints as hints_module
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.hints import MAX_BYTES, from_json_hints, to_json_hints
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import And, Column, Comparison, Literal, Op, Or, all_of, col
from delta_sharing_client.predicates.values import Day, Moment, order, parse_moment
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.predicates.strategies import COMPARABLE, PATHS, SCHEMA, predicates, rows, values

HINTED = ("flag", "i8", "i32", "i64", "f32", "f64", "text", "day", "instant")


def hints(text: str, partition_columns: tuple[str, ...] = (), schema: pa.Schema = SCHEMA) -> str | None:
    hint = to_json_hints(bind(parse_filter(text), schema), partition_columns)
    return None if hint is None else short(json.loads(hint))


def short(node: dict[str, Any]) -> str:
    """Return a hint on one line: nodes as (op child child), columns as name:type, literals as 'value':type."""
    if node["op"] == "column":
        return f"{node['name']}:{node['valueType']}"
    if node["op"] == "literal":
        return f"{node['value']!r}:{node['valueType']}"
    return f"({' '.join([node['op'], *map(short, node['children'])])})"


# === Soundness ===

# Predicates use only these columns, because few conditions on other columns become hints.
_HINTABLE = predicates({(name,): PATHS[name,] for name in HINTED}, max_leaves=3)


@meets(hint=8, matching=2)
@settings(max_examples=examples(600))
@given(_HINTABLE, rows(6, 2), st.sets(st.sampled_from(HINTED)))
def test_hint_holds_for_every_matching_row(expression, found, partition_columns):
    text = to_json_hints(bind(expression, SCHEMA), partition_columns)
    if text is not None:
        met("hint")
        hint = bind(from_json_hints(text), SCHEMA)
        for row in found:
            if evaluate(expression, row) is True:
                met("matching")
                assert evaluate(hint, row) is True


class Server:
    """A server that evaluates hints for a file (false, true or unknown) by the minimum and maximum in the log.

    It trusts their text, like the reference server: with ``single`` a value of the type float has 32 bits, otherwise it
    is a double; with ``ordered`` ``NaN`` compares as in Java's ``compareTo``, otherwise as with Java's operators.
    """

    def __init__(self, columns: dict[str, tuple[str, str]], *, single: bool = True, ordered: bool = True) -> None:
        self.columns = columns
        self.single = single
        self.ordered = ordered

    def keeps(self, node: dict[str, Any]) -> bool:
        return self.decide(node) is not False

    def decide(self, node: dict[str, Any]) -> bool | None:
        op, children = node["op"], node.get("children", [])
        if op in ("and", "or"):
            decisions = [self.decide(child) for child in children]
            decisive = op == "or"
            return decisive if decisive in decisions else None if None in decisions else not decisive
        if op == "not":
            decision = self.decide(children[0])
            return None if decision is None else not decision
        if op == "isNull":
            return children[0]["name"] not in self.columns
        column, literal = children
        if column["name"] not in self.columns:
            return None
        low, high = (self.key(text, column["valueType"]) for text in self.columns[column["name"]])
        value = self.key(literal["value"], literal["valueType"])
        if low > high:
            return None
        return {
            "equal": low <= value <= high,
            "lessThan": low < value,
            "lessThanOrEqual": low <= value,
            "greaterThan": high > value,
            "greaterThanOrEqual": high >= value,
        }[op]

    def key(self, text: str, value_type: str) -> Any:
        """Return the key by which the server orders a value."""
        if value_type in ("float", "double"):
            number = float(text)
            if value_type == "float" and self.single:
                with np.errstate(over="ignore"):
                    number = float(np.float32(number))
            return (math.isnan(number), number, math.copysign(1, number)) if self.ordered else number
        if value_type in ("int", "long"):
            return int(text)
        if value_type == "timestamp":
            return parse_moment(text).nanoseconds // 1_000_000
        return text.encode("utf-16-be") if value_type == "string" else text


def written(value: Any, *, is_float: bool, cut: bool = True) -> str:
    """Return a value as writers log it, with text truncated to 32 UTF-16 code units and timestamps to milliseconds."""
    if isinstance(value, str) and cut:
        # Java encodes half of a surrogate pair as a question mark.
        return value.encode("utf-16-be")[:64].decode("utf-16-be", "surrogatepass").encode("utf-8", "replace").decode()
    if isinstance(value, Moment) and cut:
        return str(Moment(value.nanoseconds // 1_000_000 * 1_000_000, value.zone))
    if isinstance(value, float):
        return str(np.float32(value)) if is_float else str(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def readable(value: Any) -> bool:
    """Return whether Java's date format can print the value: years have four digits."""
    if isinstance(value, Day):
        return 0 <= value.days < 2_932_896
    return not isinstance(value, Moment) or 0 <= value.nanoseconds < 2_932_896 * 86_400_000_000_000


def _fits_32_bits(value: float) -> bool:
    return not math.isfinite(value) or abs(value) <= float(np.finfo(np.float32).max)


_32_BIT = st.one_of(
    st.sampled_from([0.1, 0.2, 0.3, 0.7, 1e-5, 123456789.0, 1e-45, 3.4028234663852886e38, 16777217.0, 1 / 3]),
    st.floats(width=32, allow_infinity=False),
).map(lambda value: float(np.float32(value)))
_NEAR = st.sampled_from([0.7, 0.69999999, 0.70000001, 0.1, 1e-5, 3.4028235e38, 3.4028236e38, 1e39, 0.0, -0.0, -0.7])


@meets(judged=6)
@settings(max_examples=examples(450))
@given(st.data())
def test_server_keeps_every_matching_file(data):
    name = data.draw(st.sampled_from((*HINTED, "f32", "f64", "text")))
    long = st.lists(st.sampled_from(["a", "b", "é", "😀", "\uffff"]), min_size=29, max_size=34).map("".join)
    of_type = values(PATHS[name,]) | (long if name == "text" else st.nothing())
    # A double column may have been widened from float; the statistics of old files still have the text form of
    # floats.
    is_float = name == "f32" or (name == "f64" and data.draw(st.booleans()))
    if is_float:
        of_type = _32_BIT | of_type.filter(_fits_32_bits).map(lambda value: float(np.float32(value)))
    found = data.draw(st.lists(st.none() | of_type.filter(readable), min_size=1, max_size=4))
    # A partition value is parsed with the column's current type.
    is_partition = data.draw(st.booleans()) and not (is_float and name == "f64")
    if is_partition:
        found = found[:1]
    elif name == "flag":
        return  # writers state no bounds of booleans
    expression = data.draw(predicates({(name,): PATHS[name,]}))
    if name in ("text", "f32", "f64") and data.draw(st.booleans()):
        constants = {"text": long, "f32": _32_BIT, "f64": _32_BIT | _NEAR}[name]
        if name == "f32":
            constants |= _NEAR
        comparison = Comparison(data.draw(st.sampled_from(Op)), Column((name,)), Literal(data.draw(constants)))
        expression = comparison if data.draw(st.booleans()) else Or((comparison, expression))
    text = to_json_hints(bind(expression, SCHEMA), [name] if is_partition else [])
    matches = any(evaluate(expression, {name: value}) is True for value in found)
    if text is None or not matches:
        return
    met("judged")
    ranged = [value for value in found if value is not None]
    if not is_partition and data.draw(st.booleans()):
        ranged = [value for value in ranged if not (isinstance(value, float) and math.isnan(value))]
    columns = {}
    if ranged:
        low = high = ranged[0]
        for value in ranged:
            low = value if order(value, low) < 0 else low
            high = value if order(value, high) > 0 else high
        columns[name] = tuple(written(end, is_float=is_float, cut=not is_partition) for end in (low, high))
    server = Server(columns, single=data.draw(st.booleans()), ordered=data.draw(st.booleans()))
    assert server.keeps(json.loads(text))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    ("column", "filter_"),
    [
        ("f32", "f32 = float('0.7')"),
        ("f32", "f32 <= float('0.7')"),
        ("f32", "f32 <= 0.69999999E0"),
        ("f32", "f32 IN (float('0.7'))"),
        ("f64", "f64 < 0.7E0"),
        ("f64", "f64 = float('0.7')"),
    ],
)
def test_float_whose_text_is_a_larger_double_is_kept(column, filter_, single):
    seven = float(np.float32(0.7))
    assert evaluate(bind(parse_filter(filter_), SCHEMA), {column: seven}) is True
    text = to_json_hints(bind(parse_filter(filter_), SCHEMA))
    assert Server({column: ("0.7", "0.7")}, single=single).keeps(json.loads(text))
    assert not Server({column: ("0.8", "0.9")}, single=single).keeps(json.loads(text))


@pytest.mark.parametrize("value", [1e-5, 0.1, 123456789.0])
def test_float_partition_is_kept_only_for_its_value(value):
    stored = np.float32(value)
    text = to_json_hints(bind(col("f32") == float(stored), SCHEMA), ["f32"])
    for single in (False, True):
        assert Server({"f32": (str(stored), str(stored))}, single=single).keeps(json.loads(text))
        for other in (stored * np.float32(0.999), stored * np.float32(1.001)):
            assert not Server({"f32": (str(other), str(other))}, single=single).keeps(json.loads(text))


def test_maximum_truncated_in_a_character_hides_no_row():
    row = "a" * 31 + "😀"
    low = high = written(row, is_float=False)
    assert low == "a" * 31 + "?"
    for filter_ in (f"text > '{'a' * 31}b'", f"text >= '{'a' * 31}b'"):
        assert evaluate(parse_filter(filter_), {"text": row}) is True
        assert Server({"text": (low, high)}).keeps(json.loads(to_json_hints(bind(parse_filter(filter_), SCHEMA))))


@pytest.mark.parametrize(
    ("moment", "read_by_server"),
    [
        # Local mean times of Europe/Stockholm (+00:53:28) and America/New_York (-04:56:02); servers read +00:53 and
        # -04:56.
        ("1850-01-01 00:07:33", "1850-01-01T00:08:01Z"),
        ("1850-01-01 05:57:03", "1850-01-01T05:57:01Z"),
        # Africa/Monrovia (-00:44:30).
        ("1972-01-07 00:44:29", "1972-01-07T00:43:59Z"),
    ],
)
@pytest.mark.parametrize("op", ["=", "<=", ">=", "<=>"])
def test_bounds_without_offset_seconds_hide_no_row(moment, read_by_server, op):
    filter_ = bind(parse_filter(f"instant {op} '{moment}'"), SCHEMA)
    assert Server({"instant": (read_by_server, read_by_server)}).keeps(json.loads(to_json_hints(filter_)))


def test_simulated_server_skips_files():
    node = json.loads(to_json_hints(bind(parse_filter("i64 > 5"), SCHEMA)))
    assert not Server({"i64": ("1", "5")}).keeps(node)
    assert Server({"i64": ("1", "6")}).keeps(node)


# === Hints that are sent ===


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i64 > 5", "(greaterThan i64:long '5':long)"),
        ("5 <= i8", "(greaterThanOrEqual i8:int '5':int)"),
        ("i32 = 5 AND text < 'x'", "(and (equal i32:int '5':int) (lessThan text:string 'x':string))"),
        ("i32 = 5 OR i64 = 6", "(or (equal i32:int '5':int) (equal i64:long '6':long))"),
        ("flag", "(equal flag:bool 'true':bool)"),
        ("NOT flag", "(equal flag:bool 'false':bool)"),
        ("NOT (i32 <= 5)", "(greaterThan i32:int '5':int)"),
        ("day = DATE '2024-02-01'", "(equal day:date '2024-02-01':date)"),
        ("f64 <= 1.5", "(lessThan f64:double '1.5000001192092896':double)"),
        ("f32 = 0.5", "(lessThan f32:float '0.5000000596046448':float)"),
        ("f64 = 0", "(lessThan f64:double '1.401298464324817e-45':double)"),
        ("f64 >= 1.5", None),
        ("f64 = CAST('NaN' AS DOUBLE)", None),
        ("instant < '2024-01-01 00:00:00.0001'", "(lessThan instant:timestamp '2024-01-01T00:00:00.001Z':timestamp)"),
        ("instant <= '2024-01-01'", "(lessThanOrEqual instant:timestamp '2024-01-01T00:00:00.000Z':timestamp)"),
        (
            "instant > '2024-01-01 00:00:00.0009'",
            "(greaterThanOrEqual instant:timestamp '2024-01-01T00:00:00.000Z':timestamp)",
        ),
        ("i32 IN (1, 2)", "(or (equal i32:int '1':int) (equal i32:int '2':int))"),
        ("i32 IN (1, 2, NULL)", "(or (equal i32:int '1':int) (equal i32:int '2':int))"),
        ("i32 <=> 5", "(equal i32:int '5':int)"),
        ("text LIKE 'ab%c'", "(and (greaterThanOrEqual text:string 'ab':string) (lessThan text:string 'ac':string))"),
        (
            "startswith(text, 'ab')",
            "(and (greaterThanOrEqual text:string 'ab':string) (lessThan text:string 'ac':string))",
        ),
        ("text > '\ue000'", None),
        ("i32 <> 5", None),
        ("i32 IS NOT NULL", None),
        ("i32 IS NULL", None),
        ("small > 1", None),
        ("blob = X'00'", None),
        ("wall > '2024-01-01'", None),
        ("Nest.n = 1", None),
        ("`dotted.name` = 1", None),
        ("i32 = i64", None),
        ("TRUE", None),
        ("i32 = 5 AND small > 1", "(equal i32:int '5':int)"),
        ("i32 = 5 OR small > 1", None),
        ("NOT (i32 = 5 AND small > 1)", None),
        ("NOT (i32 < 5 OR small > 1)", "(greaterThanOrEqual i32:int '5':int)"),
        ("(i32 > 1 AND small > 1) OR i64 > 2", "(or (greaterThan i32:int '1':int) (greaterThan i64:long '2':long))"),
        ("day > DATE '+10000-01-01'", None),
    ],
)  # fmt: skip
def test_hint_has_the_form_of_the_protocol(text, expected):
    assert hints(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i32 <> 5", "(not (equal i32:int '5':int))"),
        ("i32 IS NULL", "(isNull i32:int)"),
        ("i32 IS NOT NULL", "(not (isNull i32:int))"),
        ("i32 NOT IN (1, 2)", "(and (not (equal i32:int '1':int)) (not (equal i32:int '2':int)))"),
        ("i32 NOT IN (1, NULL)", None),
    ],
)
def test_hints_on_partition_columns_may_negate_and_test_null(text, expected):
    assert hints(text, ("i32",)) == expected
    assert hints(text, ("i64",)) is None


def test_hint_is_json_in_ascii():
    hint = to_json_hints(bind(col("text") == 'é"\u2028', SCHEMA))
    assert hint.isascii()
    literal = json.loads(hint)["children"][1]
    assert literal == {"op": "literal", "value": 'é"\u2028', "valueType": "string"}


def test_too_deep_or_long_conditions_are_not_sent():
    deep = col("i32") == 1
    for number in range(60):
        deep = Or((And((deep, col("i32") == number)), col("i64") == number))
    huge = col("text") < "x" * MAX_BYTES
    bound = bind(all_of([deep, huge, col("i8") == 1]), SCHEMA)
    assert short(json.loads(to_json_hints(bound))) == "(equal i8:int '1':int)"
    assert to_json_hints(bind(huge, SCHEMA)) is None


# === Hints that are read ===


def node(op: str, *children: Any, **fields: Any) -> dict[str, Any]:
    return {"op": op, **fields, **({"children": list(children)} if children else {})}


COLUMN = node("column", name="a", valueType="int")
ONE = node("literal", value="1", valueType="int")


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (node("equal", COLUMN, ONE), "a = 1"),
        (node("greaterThan", ONE, COLUMN), "a < 1"),
        (node("not", node("isNull", COLUMN)), "a IS NOT NULL"),
        (node("and", node("lessThan", COLUMN, ONE), node("or", node("equal", ONE, ONE), node("isNull", COLUMN))),
         "a < 1 AND (1 = 1 OR a IS NULL)"),
        (node("column", name="f", valueType="bool"), "f = TRUE"),
        (node("isNull", ONE), "FALSE"),
        (node("equal", node("column", name="x.y", valueType="date"),
              node("literal", value="2024-02-01", valueType="date")),
         "`x.y` = DATE '2024-02-01'"),
        (node("equal", node("column", name="t", valueType="timestamp"),
              node("literal", value="2024-02-01T00:00:00.5+01:00", valueType="timestamp")),
         "t = TIMESTAMP '2024-01-31 23:00:00.500000Z'"),
        (node("lessThanOrEqual", node("column", name="d", valueType="double"),
              node("literal", value="-Infinity", valueType="double")), "d <= CAST('-Infinity' AS DOUBLE)"),
        (node("equal", COLUMN, node("literal", value=1, valueType="int")), "a = 1"),
    ],
)  # fmt: skip
def test_hints_in_the_protocols_form_are_read(tree, expected):
    assert str(from_json_hints(json.dumps(tree))) == expected


UNTYPED = node("column", name="a")
PLAIN = node("equal", COLUMN, ONE)


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (node("=", COLUMN, ONE), "a = 1"),
        (node("==", COLUMN, ONE), "a = 1"),
        (node("Equals", COLUMN, ONE), "a = 1"),
        (node(">=", ONE, COLUMN), "a <= 1"),
        (node("lt", COLUMN, ONE), "a < 1"),
        (node("lt", COLUMN, node("column", name="b", valueType="int")), "a < b"),
        (node("GREATERTHANOREQUAL", COLUMN, ONE), "a >= 1"),
        (node("<>", COLUMN, ONE), "a <> 1"),
        (node("isNotNull", COLUMN), "a IS NOT NULL"),
        (node("in", COLUMN, ONE, node("literal", value="2")), "a IN (1, 2)"),
        (node("AND", PLAIN, node("||", PLAIN, PLAIN)), "a = 1 AND (a = 1 OR a = 1)"),
        (node("equal", node("column", name="a", valueType="integer"), ONE), "a = 1"),
        (node("equal", node("column", name="a", valueType="BIGINT"), node("literal", value=1)), "a = 1"),
        (node("column", name="f", valueType="boolean"), "f = TRUE"),
        (node("equal", UNTYPED, node("literal", value="TRUE", valueType="bool")), "a = TRUE"),
        (node("equal", UNTYPED, ONE), "a = 1"),
        (node("equal", COLUMN, node("literal", value=1)), "a = 1"),
        (node("equal", UNTYPED, node("literal", value="x")), "a = 'x'"),
        (node("equal", UNTYPED, node("literal", value=1.5)), "a = 1.5E0"),
        ([PLAIN, node("isNull", UNTYPED)], "a = 1 AND a IS NULL"),
        ([PLAIN], "a = 1"),
        ({"jsonPredicateHints": [PLAIN, PLAIN]}, "a = 1 AND a = 1"),
    ],
)  # fmt: skip
def test_hints_in_common_other_forms_are_read(hint, expected):
    assert str(from_json_hints(json.dumps(hint))) == expected
    assert str(from_json_hints(hint)) == expected


def nested(depth: int) -> dict[str, Any]:
    return node("isNull", COLUMN) if depth == 2 else node("not", nested(depth - 1))


@pytest.mark.parametrize("text", ["", "{", '{"op":', "[" * 100_000])
def test_invalid_json_is_refused(text):
    with pytest.raises(UsageError, match="not valid JSON"):
        from_json_hints(text)


@pytest.mark.parametrize("other", [{}, None, 5, b"{}", {"hints": node("isNull", COLUMN)}], ids=str)
def test_hint_nodes_without_an_op_are_refused(other):
    with pytest.raises(UsageError, match="An object was expected at"):
        from_json_hints(other)


def test_only_columns_of_the_protocols_types_are_in_hints():
    sent = {path[0] for path in COMPARABLE if to_json_hints(bind(col(path).is_null(), SCHEMA), [path[0]]) is not None}
    assert sent == set(HINTED)


# === Values of hints that are read ===


def equality(value: Any, kind: str | None, op: str = "equal") -> dict[str, Any]:
    column = {"op": "column", "name": "c"}
    literal = {"op": "literal", "value": value, **({} if kind is None else {"valueType": kind})}
    return {"op": op, "children": [column, literal]}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("true", "bool", True),
        ("FALSE", "boolean", False),
        (True, "bool", True),
        (False, "bool", False),
        (True, None, True),
        ("-2147483648", "int", -(2**31)),
        ("2147483647", "integer", 2**31 - 1),
        (7, "short", 7),
        ("-9223372036854775808", "long", -(2**63)),
        ("9223372036854775807", "bigint", 2**63 - 1),
        (7, None, 7),
        (True, "string", "true"),
        (False, "string", "false"),
        (1.5, "double", 1.5),
        ("0.1", "float", float(np.float32(0.1))),
        ("0.1", "real", float(np.float32(0.1))),
        ("0.1", "float64", 0.1),
        (5, "string", "5"),
        (None, "int", None),
    ],
)
def test_hint_values_are_read_by_their_type(value, kind, expected):
    expression = from_json_hints(equality(value, kind))
    assert expression == Comparison(Op.EQ, Column(("c",)), Literal(expected))
    assert type(expression.right.value) is type(expected)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("yes", "bool"),
        ("1", "bool"),
        (1, "bool"),
        ("2147483648", "int"),
        ("-2147483649", "int"),
        ("9223372036854775808", "long"),
        ("-9223372036854775809", "long"),
        ("1_000", "int"),
        ("1_0.5", "double"),
        ("\u0661", "int"),
        (1.5, "int"),
        ("x", "double"),
        ("2024-13-01", "date"),
        ([1], "int"),
        ({}, None),
    ],
)
def test_error_of_a_mistyped_hint_value_has_its_position(value, kind):
    with pytest.raises(UsageError, match=re.escape("$.children[1]")):
        from_json_hints(equality(value, kind))


def test_only_boolean_nodes_of_hints_are_conditions():
    literal = {"op": "literal", "value": "true", "valueType": "bool"}
    assert from_json_hints(literal) == Literal(True)
    column = {"op": "column", "name": "c", "valueType": "bool"}
    assert from_json_hints(column) == Comparison(Op.EQ, Column(("c",)), Literal(True))
    assert str(from_json_hints({"op": "not", "children": [column]})) == "NOT (c = TRUE)"
    for wrong in (
        {**literal, "valueType": "int", "value": "1"},
        {**column, "valueType": "int"},
        {**column, "valueType": None},
    ):
        with pytest.raises(UsageError, match="valueType must be bool"):
            from_json_hints(wrong)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"op": "and", "children": [equality(1, "int")]}, "'and' at $ needs at least two children, found 1"),
        ({"op": "not", "children": []}, "'not' at $ needs one child, found 0"),
        (node("equal", COLUMN), "'equal' at $ needs 2 children, found 1"),
        (node("equal"), "'equal' at $ needs a list of children"),
        (node("isNull", node("column", name="a", valueType="date"), ONE), "needs one child"),
        (node("equal", COLUMN, node("literal", value="x", valueType="int")), "'x' at $.children[1] is not of type int"),
        (node("equal", COLUMN, node("literal", value=[1], valueType="int")), "must be a string"),
        (node("not", COLUMN), "valueType must be bool"),
        (node("or", nested(100), nested(3)), "deeper than 100 levels"),
        ({"op": "isNull", "children": [{"op": "column"}]}, "$.children[0] needs a name"),
        ({"op": "isNull", "children": [{"op": "column", "name": ""}]}, "$.children[0] needs a name"),
        ({"op": "isNull", "children": [{"op": "column", "name": 5}]}, "$.children[0] needs a name"),
        ({"op": "in", "children": [{"op": "column", "name": "c"}]}, "needs a column and at least one literal"),
        ({"op": "in", "children": [{"op": "literal", "value": 1}] * 2}, "needs a column first and then literals"),
        ({"op": "in", "children": [{"op": "column", "name": "c"}] * 2}, "needs a column first and then literals"),
        ({"op": "equal", "children": {}}, "'equal' at $ needs a list of children"),
        (
            {"op": "equal", "children": [{"op": "column", "name": "c"}, {"op": "literal"}]},
            "$.children[1] needs a value",
        ),
        (
            {"op": "equal", "children": [equality(1, "int")] * 2},
            "A column or a literal was expected at $.children[0]",
        ),
        (
            {"op": "in", "children": [{"op": "column", "name": "c"}, {"op": "literal", "value": 1}] * 2},
            "needs a column first and then literals",
        ),
        ({"op": "in", "children": [7, {"op": "literal", "value": 1}]}, "expected at $.children[0]"),
        (
            {"op": "in", "children": [{"op": "column", "name": "c", "valueType": 5}] * 2},
            "The valueType at $.children[0] must be one of bool",
        ),
        ({"op": "maybe"}, "one of column, literal, isNull, equal"),
        ({"op": "maybe"}, "found 'maybe'"),
        ({}, "found None"),
        ([[1]], "found list"),
        (7, "found int"),
        ([], "found list"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_error_of_an_invalid_hint_has_its_position(tree, message):
    for hint in (tree, json.dumps(tree)):
        with pytest.raises(UsageError, match=re.escape(message)):
            from_json_hints(hint)


def test_hint_operands_of_different_types_are_refused():
    node = equality("1", "int")
    node["children"][0]["valueType"] = "long"
    with pytest.raises(UsageError, match=r"at \$ must have the same valueType, found int and long"):
        from_json_hints(node)
    node["children"][0]["valueType"] = "integer"
    assert from_json_hints(node).right == Literal(1)
    del node["children"][1]["valueType"]
    assert from_json_hints(node).right == Literal(1)
    with pytest.raises(UsageError, match="must be one of bool, int, long"):
        from_json_hints(equality("1", "blob"))


@pytest.mark.parametrize("wrapper", ["jsonPredicateHints", "json_predicate_hints"])
def test_hints_wrapped_in_a_request_body_are_read(wrapper):
    plain = equality("1", "int")
    expected = from_json_hints(plain)
    for wrapped in ({wrapper: plain}, {wrapper: json.dumps(plain)}, {wrapper: {wrapper: json.dumps(plain)}}):
        assert from_json_hints(wrapped) == from_json_hints(json.dumps(wrapped)) == expected
    for wrapped in ({wrapper: plain, "more": 1}, {"other": plain}, {wrapper: {wrapper: {wrapper: plain}}}):
        with pytest.raises(UsageError):
            from_json_hints(wrapped)
    assert str(from_json_hints([plain, plain])) == "c = 1 AND c = 1"


def test_hint_beyond_the_size_limit_is_refused():
    edge = json.dumps(equality("x" * (MAX_BYTES - len(json.dumps(equality("", "string")))), "string"))
    assert len(edge) == MAX_BYTES
    assert from_json_hints(edge).op is Op.EQ
    with pytest.raises(UsageError, match=f"must not exceed {MAX_BYTES} bytes, found {MAX_BYTES + 1}"):
        from_json_hints(edge + " ")
    with pytest.raises(UsageError, match="must not exceed"):
        from_json_hints('"' + "é" * (MAX_BYTES // 2) + '"')


def test_upper_bound_of_a_float_is_greater_than_the_value():
    for value in (hints_module._BEYOND_FLOATS, 1e39, 0.1, 3.4028235e38):
        assert hints_module._float_above(value, or_equal=True) > value


@pytest.mark.parametrize("depth", [99, 100])
def test_tree_of_more_than_100_levels_is_refused(depth):
    node = equality("1", "int")
    for _ in range(depth - 2):
        node = {"op": "not", "children": [node]}
    from_json_hints(node)
    from_json_hints([node])
    for _ in range(101 - depth):
        node = {"op": "not", "children": [node]}
    with pytest.raises(UsageError, match="nested deeper than 100 levels"):
        from_json_hints([node])
    with pytest.raises(UsageError, match="nested deeper than 100 levels"):
        from_json_hints(node)


# === Limits of hints ===


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("instant <> '2024-01-01'", None),
        ("instant NOT IN ('2024-01-01')", None),
        ("instant = '2024-01-01'", "(equal instant:timestamp '2024-01-01T00:00:00.000Z':timestamp)"),
        ("instant = '1850-01-01'", "(equal instant:timestamp '1850-01-01T00:00:00.000Z':timestamp)"),
        ("day <> DATE '2024-02-01'", "(not (equal day:date '2024-02-01':date))"),
        ("flag <> TRUE", "(equal flag:bool 'false':bool)"),
        ("flag < TRUE", None),
        ("f32 <> 0.5", None),
        ("text <> 'x'", "(not (equal text:string 'x':string))"),
        (f"text <> '{'a' * 40}'", f"(not (equal text:string {'a' * 40!r}:string))"),
        (
            "f32 = 0.5",
            "(and (lessThan f32:float '0.5000000596046448':float) (greaterThan f32:float '0.4999999701976776':float))",
        ),
        ("blob IS NULL", None),
        ("Nest.n IS NULL", None),
        ("`dotted.name` IS NULL", None),
        ("instant IS NOT NULL", "(not (isNull instant:timestamp))"),
    ],
)
def test_hints_on_partition_columns_are_exact_or_omitted(text, expected):
    names = ("instant", "day", "flag", "f32", "text", "blob", "Nest", "dotted.name")
    assert hints(text, names) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day >= DATE '0001-01-01'", "(greaterThanOrEqual day:date '0001-01-01':date)"),
        ("day >= DATE '0000-12-31'", None),
        ("day <= DATE '9999-12-31'", "(lessThanOrEqual day:date '9999-12-31':date)"),
        ("day <= DATE '+10000-01-01'", None),
        (
            "instant <= '9999-12-31 23:59:59.999'",
            "(lessThanOrEqual instant:timestamp '9999-12-31T23:59:59.999Z':timestamp)",
        ),
        ("instant <= '9999-12-31 23:59:59.999001'", None),
        ("instant >= '9999-12-31 23:59:59.999001'", None),
        (
            "instant >= '0001-01-01 00:00:59'",
            "(greaterThanOrEqual instant:timestamp '0001-01-01T00:00:00.000Z':timestamp)",
        ),
        ("instant >= '0001-01-01 00:00:58.999999'", None),
        ("instant <= '0000-12-31 23:59:59.9999'", None),
        (
            "instant = '2024-01-02 03:04:05.678901'",
            "(and (greaterThanOrEqual instant:timestamp '2024-01-02T03:04:05.678Z':timestamp) "
            "(lessThanOrEqual instant:timestamp '2024-01-02T03:04:05.679Z':timestamp))",
        ),
        ("instant < '2024-01-02'", "(lessThan instant:timestamp '2024-01-02T00:00:00.000Z':timestamp)"),
        (
            "instant > '1969-12-31 23:59:59.9999'",
            "(greaterThanOrEqual instant:timestamp '1969-12-31T23:59:00.999Z':timestamp)",
        ),
        (
            "instant < '1972-01-07 23:59:59.999999'",
            "(lessThan instant:timestamp '1972-01-08T00:00:59.000Z':timestamp)",
        ),
        ("instant < '1972-01-08'", "(lessThan instant:timestamp '1972-01-08T00:00:00.000Z':timestamp)"),
        (
            "instant = '1850-01-01 00:07:33'",
            "(and (greaterThanOrEqual instant:timestamp '1850-01-01T00:06:34.000Z':timestamp) "
            "(lessThanOrEqual instant:timestamp '1850-01-01T00:08:32.000Z':timestamp))",
        ),
        (f"text = '{'a' * 31}'", f"(equal text:string {'a' * 31!r}:string)"),
        (
            f"text = '{'a' * 32}'",
            f"(and (greaterThanOrEqual text:string {'a' * 31!r}:string) "
            f"(lessThanOrEqual text:string {'a' * 32!r}:string))",
        ),
        (f"text >= '{'a' * 31}'", f"(greaterThanOrEqual text:string {'a' * 31!r}:string)"),
        (f"text > '{'a' * 31}'", f"(greaterThan text:string {'a' * 31!r}:string)"),
        (f"text > '{'a' * 40}'", f"(greaterThanOrEqual text:string {'a' * 31!r}:string)"),
        (f"text >= '{'a' * 32}'", f"(greaterThanOrEqual text:string {'a' * 31!r}:string)"),
        (f"text <= '{'a' * 40}'", f"(lessThanOrEqual text:string {'a' * 40!r}:string)"),
        (f"text < '{'a' * 40}'", f"(lessThan text:string {'a' * 40!r}:string)"),
        ("text < '\ud7ff'", f"(lessThan text:string {chr(0xD7FF)!r}:string)"),
        ("text < 'a\ue000'", None),
        ("text LIKE 'a\ud7ff%'", f"(greaterThanOrEqual text:string {'a' + chr(0xD7FF)!r}:string)"),
        (
            "text LIKE 'a\ud7fe%'",
            f"(and (greaterThanOrEqual text:string {'a' + chr(0xD7FE)!r}:string) "
            f"(lessThan text:string {'a' + chr(0xD7FF)!r}:string))",
        ),
        ("text LIKE '%a'", None),
        ("i32 NOT IN (1)", None),
        ("f64 < 3.4028235e38", "(lessThan f64:double '3.4028236e+38':double)"),
        ("f64 < 1e39", "(lessThan f64:double '1.0000000000000001e+39':double)"),
        ("f64 < -1e39", "(lessThan f64:double '-3.4028234663852886e+38':double)"),
        ("f64 < 0.5", "(lessThan f64:double '0.5':double)"),
        ("f64 <= 0.5", "(lessThan f64:double '0.5000000596046448':double)"),
        ("f64 < CAST('Infinity' AS DOUBLE)", None),
    ],
)  # fmt: skip
def test_constants_in_hints_are_weakened_as_little_as_possible(text, expected):
    assert hints(text) == expected


@pytest.mark.parametrize(("data_type", "type_name"), [
    (pa.int8(), "int"), (pa.int16(), "int"), (pa.int32(), "int"), (pa.int64(), "long"), (pa.uint8(), None),
    (pa.uint32(), None), (pa.uint64(), None), (pa.decimal128(5, 0), None),
    (pa.dictionary(pa.int8(), pa.int64()), "long"),
])  # fmt: skip
def test_integer_types_in_hints_have_the_protocols_names(data_type, type_name):
    hint = hints("c = 1", schema=pa.schema([("c", data_type)]))
    assert hint == (None if type_name is None else f"(equal c:{type_name} '1':{type_name})")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_nanosecond_columns_have_no_hints(unit):
    hint = hints("c = '2024-01-01'", schema=pa.schema([("c", pa.timestamp(unit, "UTC"))]))
    assert hint == (None if unit == "ns" else "(equal c:timestamp '2024-01-01T00:00:00.000Z':timestamp)")


def test_lists_are_sent_as_values_or_as_a_range():
    def hint_of(*numbers: int) -> str | None:
        return hints(f"i32 IN ({', '.join(map(str, numbers))})")

    assert hint_of(*range(20)).count("equal") == 20
    as_range = "(and (greaterThanOrEqual i32:int '0':int) (lessThanOrEqual i32:int '20':int))"
    assert hint_of(*range(20, -1, -1)) == as_range
    assert hints(f"i32 NOT IN ({', '.join(map(str, range(25)))})", ("i32",)).count("not") == 20
    floats = [f"{number}.0E0" for number in range(21)]
    assert hints(f"f64 IN ({', '.join(floats)})") == "(lessThan f64:double '20.000001907348633':double)"
    assert hints(f"f64 IN ({', '.join(floats)}, CAST('NaN' AS DOUBLE))") is None
    assert hints(f"f64 IN (CAST('NaN' AS DOUBLE), {', '.join(floats)})") is None


def test_prefix_hint_has_no_upper_bound_if_there_is_no_successor():
    assert hints("startswith(text, 'x\ud7fe')").count("lessThan") == 1
    assert hints("startswith(text, 'x\ud7ff')").count("lessThan") == 0


@pytest.mark.parametrize("more", [0, 1])
def test_conditions_are_sent_up_to_the_size_limit(more):
    one = to_json_hints(bind(col("i32") == 1, SCHEMA))
    empty = len(to_json_hints(bind(col("text") < "", SCHEMA)))
    # An AND has two conditions, each followed by a comma or bracket.
    room = MAX_BYTES - len('{"op":"and","children":[') - len("]}") - (len(one) + 1)
    long = col("text") < "x" * (room - 1 - empty + more)
    hint = json.loads(to_json_hints(bind((col("i32") == 1) & long, SCHEMA)))
    assert hint["op"] == ("equal" if more else "and")
    if not more:
        assert len(json.dumps(hint, separators=(",", ":"))) == MAX_BYTES - 1


@pytest.mark.parametrize("levels", [47, 48, 49, 50])
def test_conditions_are_sent_up_to_the_depth_limit(levels):
    def deep(lowest: Any) -> Any:
        for number in range(levels):
            lowest = Or((And((lowest, col("i32") == number)), col("i64") == number))
        return lowest

    for lowest, own in (
        (col("i32") == 1, 2),
        (col("i32") != 1, 3),
        (col("i32").is_null(), 2),
        (col("i32").is_not_null(), 3),
    ):
        hint = to_json_hints(bind(deep(lowest), SCHEMA), ["i32"])
        # One more level is reserved for an AND.
        assert (hint is not None) == (2 * levels + own + 1 <= 100)
        if hint is not None:
            from_json_hints(hint)
