from __future__ import annotations

import datetime
import pickle
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import tree
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind, fixed
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import (
    And,
    Call,
    Column,
    Comparison,
    DoubleQuoted,
    Expression,
    In,
    Like,
    Literal,
    Not,
    Op,
    Or,
    StartsWith,
    all_of,
    any_of,
    col,
    columns,
)
from delta_sharing_client.predicates.values import Day, Moment, Zone
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.predicates.strategies import SCHEMA, TEXT, predicates


@meets(nested=8)
@settings(max_examples=examples(120))
@given(predicates(max_leaves=8))
def test_predicate_round_trips_through_text(expression):
    met("nested", isinstance(expression, (And, Or, Not)))
    assert parse_filter(str(expression)) == expression


@meets(nested=8)
@settings(max_examples=examples(100))
@given(predicates())
def test_bound_predicate_round_trips_through_text(expression):
    met("nested", isinstance(expression, (And, Or, Not)))
    bound = bind(expression, SCHEMA)
    assert pickle.loads(pickle.dumps(bound)) == bound
    # Text that would mean something else in DuckDB is refused.
    parsed = _bound(str(bound))
    assert parsed == bind(bound, SCHEMA) if isinstance(parsed, Expression) else "DuckDB rounds" in parsed


def _bound(text):
    try:
        return bind(parse_filter(text), SCHEMA)
    except UsageError as refused:
        return refused.message


@meets(wide=17, odd=20)
@given(st.lists(TEXT.filter(bool), min_size=1, max_size=3), TEXT)
def test_any_name_and_text_round_trip(path, text):
    met("wide", not "".join(path).isascii())
    met("odd", not all(name.isidentifier() for name in path))
    expression = Comparison(Op.EQ, Column(tuple(path)), Literal(text))
    parsed = parse_filter(str(expression))
    assert (parsed.child if isinstance(parsed, DoubleQuoted) else parsed) == expression
    assert parse_filter([(tuple(path), "=", text)]) == expression


@pytest.mark.parametrize(
    ("truths", "all_", "any_"),
    [
        ((True, True), True, True),
        ((True, None), None, True),
        ((False, None), False, None),
        ((None, None), None, None),
        ((False, True), False, True),
    ],
)
def test_and_or_and_not_are_three_valued(truths, all_, any_):
    children = [Literal(truth) for truth in truths]
    assert evaluate(all_of(children), {}) is all_
    assert evaluate(any_of(children), {}) is any_
    assert evaluate(~all_of(children), {}) is (None if all_ is None else not all_)


ROW = {"a": 1, "n": None, "s": {"x": "hello", "y": None}, "z": None, "f": True}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (col("a") == 1, True),
        (col("a") != 1, False),
        (col("n") == 1, None),
        (col("n") != 1, None),
        (col("a") == None, None),  # noqa: E711
        (col("a").is_in([1, 2]), True),
        (col("a").is_in([2, None]), None),
        (~col("a").is_in([2, None]), None),
        (~col("a").is_in([1, None]), False),
        (col("n").is_in([1]), None),
        (col("a").is_in([]), False),
        (col("n").is_in([]), False),
        (col("n").is_null(), True),
        (col("z").is_null(), True),
        (col("z.deep").is_null(), True),
        (col("s").is_not_null(), True),
        (col("s.y").is_null(), True),
        (col("s.x").starts_with("he"), True),
        (col("s.x").like("h_l%"), True),
        (col("s.x").like("h%L"), False),
        (col("n").equals_null_safe(None), True),
        (col("n").equals_null_safe(1), False),
        (col("a").equals_null_safe(None), False),
        (col("a").equals_null_safe(2), False),
        (col("a").equals_null_safe(1), True),
        (col("a").between(0, 1), True),
        (col("a").between(2, None), False),
        (col("a") == col("n"), None),
        (col("f") & (col("a") == 1), True),
        (~col("f"), False),
        ((col("n") == 1) | col("f"), True),
        (1 == col("a"), True),  # noqa: SIM300
        (0 < col("a"), True),  # noqa: SIM300
    ],
)
def test_condition_built_in_python_is_evaluated(expression, expected):
    assert evaluate(expression, ROW) is expected


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("%", "\\", "", True),
        ("_", "\\", "", False),
        ("_", "\\", "😀", True),
        ("_", "\\", "\n", True),
        ("a%b", "\\", "a\n\nb", True),
        ("a.c", "\\", "abc", False),
        ("a\\%", "\\", "a%", True),
        ("a\\%", "\\", "ab", False),
        ("a!_", "!", "a_", True),
        ("a!!", "!", "a!", True),
        ("a\\b", "!", "a\\b", True),
        ("", "\\", "", True),
        ("a", "\\", "a\n", False),
    ],
)
def test_like_matches_whole_strings(pattern, escape, text, expected):
    assert evaluate(Like(Column(("t",)), pattern, escape), {"t": text}) is expected


@pytest.mark.parametrize(
    "misuse",
    [lambda: bool(col("a") > 1), lambda: 1 < col("a") < 5, lambda: not col("a"), lambda: col("a") > 1 and col("b") > 1],
)
def test_error_of_python_logic_shows_the_operators(misuse):
    with pytest.raises(UsageError, match=r"use & \| ~"):
        misuse()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: (col("a") > 1) & 5, "A condition such as"),
        (lambda: (col("a") > 1) & "b > 1", "A condition such as"),
        (lambda: col("a").is_in("abc"), "needs a list of values; found str"),
        (lambda: col("a").is_in(5), "needs a list of values; found int"),
        (lambda: col("a") > object(), "cannot compare with a value of type 'object'"),
        (lambda: col(""), "is not a column name"),
        (lambda: col("a..b"), "is not a column name"),
        (lambda: col("`a"), "is not a column name"),
        (lambda: col(()), "non-empty tuple"),
        (lambda: col(("a", "")), "non-empty tuple"),
        (lambda: Like(Column(("a",)), "a\\b"), "has its escape"),
        (lambda: Like(Column(("a",)), "a\\"), "has its escape"),
        (lambda: Like(Column(("a",)), "a", "ab"), "must be one character"),
        (lambda: In(Column(("a",)), ()), "at least one value"),
        (lambda: And((Literal(True),)), "at least two"),
        (lambda: evaluate(Literal(5), {}), "must be true, false or null"),
        (lambda: evaluate(col("a.b") > 1, {"a": 5}), "must be in a struct, found int"),
        (lambda: evaluate(col("a").like("x"), {"a": 5}), "need a string, but a is not one"),
    ],
)
def test_invalid_use_of_a_builder_is_a_usage_error(build, message):
    with pytest.raises(UsageError, match=message):
        build()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ("a",)),
        ("a.b", ("a", "b")),
        ("`a.b`", ("a.b",)),
        ("a.`b.c`.d", ("a", "b.c", "d")),
        ("`a``b`", ("a`b",)),
        ("two words", ("two words",)),
        (("a.b", "c"), ("a.b", "c")),
        (["a", "b"], ("a", "b")),
        ("größe.x-1", ("größe", "x-1")),
    ],
)
def test_col_parses_nested_and_quoted_names(name, path):
    assert col(name)._operand == Column(path)


def test_columns_of_all_conditions_are_collected():
    expression = parse_filter("a > 1 AND (b.c IS NULL OR NOT d IN (1)) AND e = f AND g LIKE 'x' AND TRUE AND h <=> 1")
    assert columns(expression) == {("a",), ("b", "c"), ("d",), ("e",), ("f",), ("g",), ("h",)}


def test_all_of_nothing_is_true_and_any_of_nothing_is_false():
    assert (all_of([]), any_of([])) == (Literal(True), Literal(False))


def test_conjunctions_flatten_and_constants_differ_by_type():
    a, b, c = (col(name) > 1 for name in "abc")
    assert (a & b) & c == a & (b & c) == And((a, b, c))
    assert Literal(1) != Literal(True)
    assert Literal(1) != Literal(1.0)
    assert Literal(1) != 1
    assert Literal(float("nan")) == Literal(float("nan"))
    assert len({Literal(1), Literal(True), Literal(1.0), Literal(float("nan")), Literal(float("nan"))}) == 4


def test_repr_of_a_builder_names_the_column():
    assert repr(col("a.`b.c`")) == "col('a.`b.c`')"


# === Columns as conditions ===


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ('~col("f")', "NOT (f = TRUE)"),
        ('col("f") & (col("a") > 1)', "f = TRUE AND a > 1"),
        ('col("f") | col("g")', "f = TRUE OR g = TRUE"),
        ('(col("a") > 1) & col("f")', "a > 1 AND f = TRUE"),
        ('col("a") > 1', "a > 1"),
        ('(col("a") > 1) & True', "a > 1 AND TRUE"),
    ],
)
def test_python_operators_build_the_same_tree_as_sql(condition, text):
    # The expression is built in the test, so that an error fails the test.
    built = eval(condition)
    assert str(built) == text
    assert parse_filter(text) == built


def test_now_and_today_use_the_time_of_the_read():
    condition = fixed(parse_filter("a < now() OR b < current_date()"), Moment(86_400 * 10**9 + 1500_000, Zone.UTC))
    assert str(condition) == "a < TIMESTAMP '1970-01-02 00:00:00.001500Z' OR b < DATE '1970-01-02'"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("int", "int(a)"),
        ("BigInt", "bigint(a)"),
        ("decimal", "decimal(10, 0)"),
        ("decimal(5)", "decimal(5, 0)"),
        ("Decimal( 5 , 2 )", "decimal(5, 2)"),
    ],
)
def test_type_names_of_cast_are_parsed(written: str, shown: str) -> None:
    call = col("a").cast(written)._operand
    assert isinstance(call, Call)
    digits = [item.value for item in call.arguments[1:] if isinstance(item, Literal)]
    assert (f"{call.name}({', '.join(map(repr, digits))})" if digits else f"{call.name}(a)") == shown


@pytest.mark.parametrize(
    "written", ["", "int(5)", "string(5)", "varchar(5)", "decimal(5", "decimal()", "decimal(1,2,3)"]
)
def test_unknown_cast_type_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="The type of a cast must be one of"):
        col("a").cast(written)


ASCII = [chr(code) for code in range(1, 128)]


@pytest.mark.parametrize("make", [Like, StartsWith])
def test_pattern_with_a_lone_surrogate_is_refused(make: Any) -> None:
    with pytest.raises(UsageError, match="lone surrogate"):
        make(Column(("a",)), "x\ud800")


@pytest.mark.parametrize("char", [*ASCII, "\x80", "\xa0", "é", "名", "\U0001f600"])
def test_every_character_of_a_pattern_is_literal(char: str) -> None:
    """Both Python's and Arrow's regular expressions are tested."""
    like = Like(Column(("t",)), (f"\\{char}" if char in "%_\\" else char) + "_")
    texts = [f"{other}!" for other in (char, "x", "", chr(ord(char) + 1), "\\", ".")]
    expected = [text == f"{char}!" for text in texts]
    assert [evaluate(like, {"t": text}) for text in texts] == expected
    batch = pa.RecordBatch.from_pydict({"t": texts})
    assert mask(bind(like, batch.schema), batch).to_pylist() == expected


def test_python_values_are_converted_in_every_position() -> None:
    day, moment = datetime.date(1970, 1, 2), datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    for value, expected in ((day, Day(1)), (moment, Moment(0, Zone.UTC)), (bytearray(b"x"), b"x"), (1, 1)):
        for literal in (
            (col("a") == value).right,
            col("a").is_in([value]).values[0],
            col("a").coalesce(value)._operand.arguments[1],
        ):
            assert literal == Literal(expected)
            assert type(literal.value) is type(expected)


@pytest.mark.parametrize(("value", "expected"), [(True, False), (False, True), (None, None)])
def test_boolean_constant_is_negated(value: bool | None, expected: bool | None) -> None:
    assert tree.push_not(tree.Not(Literal(value))) == Literal(expected)


def test_non_boolean_constant_cannot_be_negated() -> None:
    with pytest.raises(UsageError, match="A condition must be true, false or null; found the constant 5"):
        tree.push_not(tree.Not(Literal(5)))
