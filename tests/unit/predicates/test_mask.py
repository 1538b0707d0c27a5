from __future__ import annotations

import math
from decimal import Decimal

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from delta_sharing_client.errors import DataError, UsageError
from delta_sharing_client.predicates import tree
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.engines import Unsaid, whole
from delta_sharing_client.predicates.hints import weaken
from delta_sharing_client.predicates.lists import prepared
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Comparison,
    Expression,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Or,
    col,
    columns,
    has_calls,
    push_not,
)
from delta_sharing_client.predicates.values import parse_moment
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.predicates.strategies import (
    COMPARABLE,
    PATHS,
    SAMPLES,
    SCHEMA,
    batch_of,
    column_pairs,
    comparisons,
    predicates,
    rows,
    table,
    values,
)


def test_samples_contain_every_expression_class():
    kinds = {kind for kind in vars(tree).values() if isinstance(kind, type) and issubclass(kind, Expression)}
    assert {type(sample) for sample in SAMPLES} == kinds - {
        *(Expression, tree.Joined, And, Or, Not, Literal),
        tree.DoubleQuoted,  # binding removes it
    }


@pytest.mark.parametrize("negated", [False, True])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_every_interpreter_supports_every_expression_class(sample, negated):
    expression = Not(sample) if negated else sample
    bound = bind(expression, SCHEMA)
    nulls = dict.fromkeys(SCHEMA.names)
    rows = [nulls, {**nulls, "i32": 1, "text": "abc"}, {**nulls, "i32": 2, "text": "b"}]
    truths = [evaluate(bound, row) for row in rows]

    assert parse_filter(str(expression)) == expression
    assert columns(bound) <= {("i32",), ("text",)}
    assert columns(bound)
    assert {True, False} <= set(truths)
    assert mask(bound, batch_of(rows)).to_pylist() == [truth is True for truth in truths]
    assert compile_skipping(bound)(Unknown())
    hint = weaken(bound, ["i32", "text"])
    assert hint is None or all(evaluate(hint, row) for row, truth in zip(rows, truths, strict=True) if truth)


class Unknown:
    """Statistics without any bounds."""

    def bounds(self, path):
        return None


@meets(matching=7, unmatched=20)
@settings(max_examples=examples(200))
@given(predicates(), rows())
def test_mask_equals_the_reference(expression, found):
    bound = bind(expression, SCHEMA)
    batch = batch_of(found)
    expected = [evaluate(expression, row) is True for row in found]
    met("matching", any(expected))
    met("unmatched", not all(expected))
    for ready in (bound, prepared(bound)):
        result = mask(ready, batch)
        assert result.type == pa.bool_()
        assert result.null_count == 0
        assert result.to_pylist() == expected


@meets(true=6, false=6, unknown=4)
@settings(max_examples=examples(150))
@given(predicates(), rows())
def test_binding_keeps_true_false_and_unknown(expression, found):
    bound = bind(expression, SCHEMA)
    for row in found:
        met({True: "true", False: "false", None: "unknown"}[evaluate(expression, row)])
        assert evaluate(bound, row) is evaluate(expression, row)
        assert evaluate(push_not(bound), row) is evaluate(bound, row)
        assert evaluate(push_not(Not(bound)), row) is evaluate(Not(bound), row)


@meets(matching=15, unmatched=30)
@settings(max_examples=examples(300))
@given(st.data())
def test_mask_of_a_comparison_equals_the_reference(data):
    path = data.draw(st.sampled_from([path for path in sorted(COMPARABLE) if len(path) == 1]))
    data_type = COMPARABLE[path]
    column = Column(path)
    expression = data.draw(comparisons(data_type, column))
    found = data.draw(st.lists(st.none() | values(data_type), max_size=8))
    schema = pa.schema({path[0]: data_type})
    batch = table({path[0]: found}, schema)
    bound = bind(expression, schema)
    expected = [evaluate(expression, {path[0]: value}) is True for value in found]
    met("matching", any(expected))
    met("unmatched", not all(expected))
    assert mask(bound, batch).to_pylist() == expected
    encoded = pa.RecordBatch.from_arrays([batch.column(0).dictionary_encode()], names=[path[0]])
    assert mask(bound, encoded).to_pylist() == expected
    assert mask(bound, batch.slice(1)).to_pylist() == expected[1:]


@meets(matching=15, unmatched=30, floating=4, decimals=3, dates=3, null=10)
@settings(max_examples=examples(900))
@given(st.data())
def test_mask_of_two_columns_equals_the_reference(data):
    expression = data.draw(column_pairs())
    left, right = (column.path[0] for column in (expression.left, expression.right))
    types = {name: COMPARABLE[name,] for name in (left, right)}
    # Both columns often have the same values, in different rows.
    shared = data.draw(st.lists(st.none() | values(types[left]), min_size=1, max_size=4))
    other = data.draw(st.lists(st.none() | values(types[right]), min_size=len(shared), max_size=len(shared)))
    if types[left] == types[right] and data.draw(st.booleans()):
        other = shared[::-1]
    columns_of = {left: shared} | ({right: other} if right != left else {})
    schema = pa.schema(types)
    bound = bind(expression, schema)
    found = [dict(zip(columns_of, row, strict=True)) for row in zip(*columns_of.values(), strict=True)]
    expected = [evaluate(expression, row) is True for row in found]

    kinds = {str(kind) for kind in types.values()}
    met("matching", any(expected))
    met("unmatched", not all(expected))
    met("floating", kinds & {"float", "double"})
    met("decimals", any(kind.startswith("decimal") for kind in kinds))
    met("dates", "date32[day]" in kinds)
    met("null", None in shared + other)
    assert mask(bound, table(columns_of, schema)).to_pylist() == expected


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        (pa.array([2**53 + 1], pa.int64()), pa.array([2.0**53]), 0),  # compared as doubles, as in Spark
        (pa.array([2**53 + 1], pa.int64()), pa.array([2**53], pa.int64()), 1),
        (pa.array([1], pa.int8()), pa.array([300], pa.int32()), -1),
        (
            pa.array([Decimal("1.10")], pa.decimal128(4, 2)),
            pa.array([Decimal("1.1000000001")], pa.decimal128(38, 10)),
            -1,
        ),
        (pa.array([Decimal("99.99")], pa.decimal128(4, 2)), pa.array([100], pa.int64()), -1),
        (pa.array([math.nan]), pa.array([math.inf]), 1),
        (pa.array([math.nan]), pa.array([math.nan]), 0),
        (pa.array([-0.0]), pa.array([0.0]), 0),
        (pa.array([19_700], pa.int32()).cast(pa.date32()), pa.array([19_700 * 86_400_000_000], pa.timestamp("us")), 0),
        (
            pa.array([19_700], pa.int32()).cast(pa.date32()),
            pa.array([19_700 * 86_400_000_000 + 1], pa.timestamp("us")),
            -1,
        ),
        (pa.array([1_000], pa.timestamp("us")), pa.array([1_000_001], pa.timestamp("ns")), -1),
        (pa.array([2_000], pa.timestamp("us", "UTC")), pa.array([2_000_000], pa.timestamp("ns", "UTC")), 0),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([Decimal("1.1")], pa.decimal128(3, 1)), 1),
        # The year 9999 in nanoseconds does not fit into 64 bits.
        (pa.array([253_402_300_799_999_999], pa.timestamp("us")), pa.array([2**63 - 1], pa.timestamp("ns")), 1),
        *(
            (pa.array([day], pa.int32()).cast(pa.date32()), pa.array([count], pa.timestamp(unit)), order)
            for unit, a_second in (("s", 1), ("ms", 1000), ("us", 1_000_000), ("ns", 1_000_000_000))
            for day, count, order in (
                (10_000, 10_000 * 86_400 * a_second, 0),
                (-3, -3 * 86_400 * a_second - 1, 1),
                (2**31 - 1, 5, 1),
                (-(2**31), 5, -1),
            )
        ),
        (pa.array([False]), pa.array([True]), -1),
        (pa.array([b"a"]), pa.array([b"\xff"]), -1),
    ],
)
def test_columns_of_different_types_are_compared(left, right, order):
    batch = pa.RecordBatch.from_arrays([left, right], ["a", "b"])
    for op in Op:
        for first, second, sign in (("a", "b", order), ("b", "a", -order)):
            expression = bind(Comparison(op, Column((first,)), Column((second,))), batch.schema)
            assert mask(expression, batch).to_pylist() == [op.holds(sign)], (op, first)
    equal = bind(NullSafeEqual(Column(("a",)), Column(("b",))), batch.schema)
    assert mask(equal, batch).to_pylist() == [order == 0]


@pytest.mark.parametrize(
    "pattern",
    [
        "a%",
        "%a",
        "%a%",
        "a",
        "",
        "%",
        "%%",
        "_",
        "a_",
        "_%",
        "a%a",
        "%a%b%",
        "a%b",
        "x_x",
        "ab%",
        "%ba",
        "b%a",
        "_a%",
        "%_",
        r"a\%",
        r"%\%",
        r"\_%",
        r"\\%",
        "%é",
    ],
)
def test_matches_of_patterns_equal_the_reference(pattern):
    texts = ["", "a", "aa", "ab", "ba", "aba", "xax", "%", "a%", "_x", "\\x", "é", "aé", "\n", "a\n", "a\nb", None]
    batch = table({"text": texts}, pa.schema({"text": pa.string()}))
    expression = Like(Column(("text",)), pattern)
    expected = [evaluate(expression, {"text": text}) is True for text in texts]
    assert mask(bind(expression, batch.schema), batch).to_pylist() == expected


def test_null_safe_equality_of_columns_is_never_null():
    batch = pa.RecordBatch.from_arrays([pa.array([None, None, 1, 1]), pa.array([None, 1, None, 1])], ["a", "b"])
    a, b = Column(("a",)), Column(("b",))
    assert mask(bind(NullSafeEqual(a, b), batch.schema), batch).to_pylist() == [True, False, False, True]
    assert mask(bind(Comparison(Op.EQ, a, b), batch.schema), batch).to_pylist() == [False, False, False, True]
    assert mask(bind(Not(Comparison(Op.EQ, a, b)), batch.schema), batch).to_pylist() == [False] * 4


@meets(matching=2)
@settings(max_examples=examples(80))
@given(predicates(), rows())
def test_mask_of_slices_and_dictionaries_is_the_same(expression, found):
    bound = bind(expression, SCHEMA)
    batch = batch_of(found)
    expected = mask(bound, batch).to_pylist()
    met("matching", any(expected))
    arrays = [
        array.dictionary_encode() if (field.name,) in COMPARABLE else array
        for field, array in zip(SCHEMA, batch.columns, strict=True)
    ]
    encoded = pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names)
    assert mask(bound, encoded).to_pylist() == expected
    assert mask(bound, batch.slice(2)).to_pylist() == expected[2:]


def test_null_in_a_dictionary_is_null():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    batch = pa.RecordBatch.from_arrays([array], names=["s"])
    schema = pa.schema({"s": pa.string()})
    assert mask(bind(col("s").is_null(), schema), batch).to_pylist() == [False, True, True]
    assert mask(bind(col("s").equals_null_safe(None), schema), batch).to_pylist() == [False, True, True]
    assert mask(bind(~(col("s") == "b"), schema), batch).to_pylist() == [True, False, False]


def test_dictionary_array_longer_than_the_batch_is_filtered():
    array = pa.DictionaryArray.from_arrays(pa.array([2], pa.int8()), pa.array([1, 2, 3]))
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    assert mask(bind(col("a") == 3, pa.schema({"a": pa.int64()})), batch).to_pylist() == [True]


def test_field_of_a_null_struct_is_null():
    struct = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["x"], mask=pa.array([False, True, False]))
    batch = pa.RecordBatch.from_arrays([struct], names=["s"])
    assert mask(bind(col("s.x") > 0, batch.schema), batch).to_pylist() == [True, False, True]
    assert mask(bind(col("s.x").is_null(), batch.schema), batch).to_pylist() == [False, True, False]
    assert mask(bind(col("s").is_null(), batch.schema), batch.slice(1)).to_pylist() == [True, False]


def test_conjunction_is_false_if_one_condition_is_false():
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "b": [1, 2, 3]})
    assert mask(bind(parse_filter("a > 2 AND b < 3"), batch.schema), batch).to_pylist() == [False] * 3


def test_calls_are_not_evaluated_for_excluded_rows():
    batch = pa.RecordBatch.from_pydict({"a": [None, 5, 5, 5], "b": pa.array([0, 1, None, 2])})
    condition = bind(parse_filter("a > 2 AND 1 / b > 0.5 AND b IN (1, 3)"), batch.schema)
    assert mask(condition, batch).to_pylist() == [False, True, False, False]


def test_floats_are_compared_with_nan_and_cast_exactly():
    batch = pa.RecordBatch.from_pydict({"f": pa.array([1.5, math.nan, None], pa.float32()), "d": [2.7, math.nan, None]})
    for condition, expected in (
        ("f = CAST('NaN' AS DOUBLE)", [False, True, False]),
        ("f < CAST('NaN' AS DOUBLE)", [True, False, False]),
        ("f <> CAST('NaN' AS DOUBLE)", [True, False, False]),
        ("double(f) = 1.5", [True, False, False]),
        ("float(d) < 2.8E0 AND float(d) > 2.6E0", [True, False, False]),
    ):
        assert mask(bind(parse_filter(condition), batch.schema), batch).to_pylist() == expected, condition


def test_null_divided_by_zero_is_null():
    batch = pa.RecordBatch.from_pydict({"a": [None, 4.0], "b": [0.0, 2.0]})
    assert mask(bind(parse_filter("a / b > 1"), batch.schema), batch).to_pylist() == [False, True]


def test_large_integer_is_rounded_to_a_double():
    batch = pa.RecordBatch.from_pydict({"x": pa.array([None], pa.float64()), "n": [2**53 + 1]})
    for condition in ("coalesce(x, n) > 1", "CAST(n AS DOUBLE) = 9007199254740992D"):
        assert mask(bind(parse_filter(condition), batch.schema), batch).to_pylist() == [True]


def test_empty_batch_gives_an_empty_mask():
    batch = SCHEMA.empty_table().to_batches() or [batch_of([])]
    assert mask(bind((col("i8") > 1) | col("flag"), SCHEMA), batch[0]).to_pylist() == []


def test_batch_may_have_narrower_types_than_bound():
    schema = pa.schema({"a": pa.int64(), "s": pa.string()})
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2], pa.int16()), pa.array(["a", "b"], pa.large_string())], ["a", "s"]
    )
    assert mask(bind((col("a") >= 2) & (col("s") == "b"), schema), batch).to_pylist() == [False, True]


def test_is_null_accepts_every_column_and_nested_field():
    batch = batch_of([])
    for path in PATHS:
        assert mask(bind(col(path).is_null(), SCHEMA), batch).to_pylist() == []


@pytest.mark.parametrize("op", list(Op))
def test_nan_and_zero_are_compared_as_in_spark(op):
    nan = float("nan")
    array = pa.array([-0.0, 0.0, 1.0, float("inf"), nan, None])
    batch = pa.RecordBatch.from_arrays([array], names=["x"])
    expected = {
        (Op.EQ, 0.0): [1, 1, 0, 0, 0, 0],
        (Op.NE, 0.0): [0, 0, 1, 1, 1, 0],
        (Op.LT, 0.0): [0, 0, 0, 0, 0, 0],
        (Op.LE, 0.0): [1, 1, 0, 0, 0, 0],
        (Op.GT, 0.0): [0, 0, 1, 1, 1, 0],
        (Op.GE, 0.0): [1, 1, 1, 1, 1, 0],
        (Op.EQ, "nan"): [0, 0, 0, 0, 1, 0],
        (Op.NE, "nan"): [1, 1, 1, 1, 0, 0],
        (Op.LT, "nan"): [1, 1, 1, 1, 0, 0],
        (Op.LE, "nan"): [1, 1, 1, 1, 1, 0],
        (Op.GT, "nan"): [0, 0, 0, 0, 0, 0],
        (Op.GE, "nan"): [0, 0, 0, 0, 1, 0],
    }
    for key, value in ((0.0, 0.0), (0.0, -0.0), ("nan", nan)):
        bound = bind(Comparison(op, Column(("x",)), Literal(value)), batch.schema)
        assert mask(bound, batch).to_pylist() == [bool(truth) for truth in expected[op, key]]


# === Types of columns ===


@pytest.mark.parametrize("kind", [pa.large_string(), pa.large_binary()], ids=str)
def test_large_strings_and_binaries_are_compared_by_value(kind):
    is_text = kind == pa.large_string()
    values = ["a", None, "ü" * 40] if is_text else [b"a", None, b"\xff" * 40]
    batch = pa.RecordBatch.from_pydict({"c": pa.array(values, kind)})
    bound = bind(col("c") > values[0], batch.schema)
    assert mask(bound, batch).to_pylist() == [False, False, True]
    plain = pa.RecordBatch.from_pydict({"c": pa.array(values)})
    assert mask(bound, plain).to_pylist() == [False, False, True]
    encoded = pa.RecordBatch.from_pydict({"c": pa.array(values).dictionary_encode()})
    assert mask(bound, encoded).to_pylist() == [False, False, True]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()], ids=str)
def test_missing_value_in_a_list_with_null_is_unknown(kind):
    batch = pa.RecordBatch.from_pydict({"c": pa.array([1, 2, None]).cast(kind)})
    one, two, _ = batch["c"].to_pylist()
    listed = col("c").is_in([one, None])
    for expression, expected in (
        (listed, [True, False, False]),
        (~listed, [False, False, False]),
        (col("c").is_in([one, two]), [True, True, False]),
        (~col("c").is_in([one]), [False, True, False]),
        (~col("c").is_in([None]), [False, False, False]),
        (NullSafeEqual(Column(("c",)), Literal(one)), [True, False, False]),
        (Not(NullSafeEqual(Column(("c",)), Literal(one))), [False, True, True]),
    ):
        assert mask(bind(expression, batch.schema), batch).to_pylist() == expected, str(expression)


def test_nan_in_a_list_equals_nan():
    batch = pa.RecordBatch.from_pydict({"c": pa.array([math.nan, 0.0, -0.0, 1.0, None])})
    for listed, expected in (
        ([math.nan], [True, False, False, False, False]),
        ([-0.0], [False, True, True, False, False]),
        ([0.0, math.nan], [True, True, True, False, False]),
        ([1.0, math.nan, None], [True, False, False, True, False]),
    ):
        assert mask(bind(col("c").is_in(listed), batch.schema), batch).to_pylist() == expected
        missed = [
            not is_in and value is not None for is_in, value in zip(expected, batch["c"].to_pylist(), strict=True)
        ]
        negated = mask(bind(~col("c").is_in(listed), batch.schema), batch).to_pylist()
        assert negated == ([False] * 5 if None in listed else missed)


def test_batch_with_a_missing_or_mistyped_column_is_refused():
    schema = pa.schema([("c", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])
    one, two = bind(col("c") > 1, schema), bind(col("s.x") > 1, schema)
    with pytest.raises(DataError, match="The batch has no column 'c'; it has d"):
        mask(one, pa.RecordBatch.from_pydict({"d": [1]}))
    with pytest.raises(DataError, match="The column 'c' is string in the batch, but the filter is bound to int64"):
        mask(one, pa.RecordBatch.from_pydict({"c": ["1"]}))
    with pytest.raises(DataError, match="has no field 'x' in the batch; it is struct<y: int64>"):
        mask(two, pa.RecordBatch.from_pydict({"s": [{"y": 1}]}))
    with pytest.raises(DataError, match="has no field 'x' in the batch; it is int64"):
        mask(two, pa.RecordBatch.from_pydict({"s": [1]}))
    assert mask(one, pa.RecordBatch.from_pydict({"c": pa.array([1, 2], pa.int8())})).to_pylist() == [False, True]


_UNITS = [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]


@pytest.mark.parametrize(("unit", "size"), _UNITS)
def test_dates_and_timestamps_of_any_unit_are_comparable(unit, size):
    moments = pa.array([-86_400 * size - 1, -86_400 * size, 0, 86_400 * size, 86_400 * size + 1], pa.timestamp(unit))
    days = pa.array([-1, -1, 0, 1, 1], pa.int32()).cast(pa.date32())
    micros = pa.array([-86_400 * 10**6, -86_400 * 10**6, 0, 86_400 * 10**6, 86_400 * 10**6], pa.timestamp("us"))
    batch = pa.RecordBatch.from_pydict({"m": moments, "d": days, "u": micros})
    for other in ("d", "u"):
        for op, expected in (
            (Op.LT, [True, False, False, False, False]),
            (Op.EQ, [False, True, True, True, False]),
            (Op.GT, [False, False, False, False, True]),
            (Op.LE, [True, True, True, True, False]),
            (Op.GE, [False, True, True, True, True]),
            (Op.NE, [True, False, False, False, True]),
        ):
            for expression in (
                Comparison(op, Column(("m",)), Column((other,))),
                Comparison(op.flipped, Column((other,)), Column(("m",))),
            ):
                assert mask(bind(expression, batch.schema), batch).to_pylist() == expected, str(expression)


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize(
    "text", ["1600-01-01", "2300-01-01", "+300000-01-01", "-300000-01-01", "2000-01-01 00:00:00.0000001"]
)
def test_timestamp_constant_out_of_range_is_compared_correctly(zone, unit, text):
    ends = pa.array([1 - 2**63, 0, 2**63 - 1], pa.int64()).view(pa.timestamp(unit, zone))
    batch = pa.RecordBatch.from_pydict({"c": ends})
    size = {"us": 1000, "ns": 1}[unit]
    limit = parse_moment(text).nanoseconds
    for op in Op:
        expected = [op.holds((at * size > limit) - (at * size < limit)) for at in (1 - 2**63, 0, 2**63 - 1)]
        for constant in (text, parse_moment(text + ("" if zone is None or " " not in text else "Z"))):
            expression = bind(Comparison(op, Column(("c",)), Literal(constant)), batch.schema)
            assert mask(expression, batch).to_pylist() == expected, (str(expression), op)


@pytest.mark.parametrize("pattern", ["a", "a%", "%a", "%a%", "%"])
def test_plain_pattern_is_not_a_regular_expression(monkeypatch, pattern):
    """Matching without a regular expression is several times faster."""
    monkeypatch.setattr(pa.compute, "match_substring_regex", None)
    batch = pa.RecordBatch.from_pydict({"text": ["a", "b"]})
    expected = [True, pattern == "%"]
    assert mask(bind(Like(Column(("text",)), pattern), batch.schema), batch).to_pylist() == expected


def test_unbound_call_is_not_evaluated():
    with pytest.raises(UsageError, match="must be bound to a schema before it is evaluated"):
        evaluate(parse_filter("a + 1 = 2"), {"a": 1})


@pytest.mark.parametrize("around", [lambda a, b: And((a, b)), lambda a, b: Or((b, a)), lambda a, b: Not(b)])
def test_unsupported_library_expression_is_refused(around):
    plain = Comparison(Op.EQ, Column(("a",)), Literal(1))
    assert whole(around(plain, plain)) == around(plain, plain)
    with pytest.raises(UsageError, match="A series is not supported in an expression of another library"):
        whole(around(plain, Unsaid("A series")))


def test_has_calls_finds_a_call_in_a_conjunction():
    assert has_calls(parse_filter("a = 1 AND year(b) = 2024"))
    assert not has_calls(parse_filter("a = 1 AND b = 2024"))


def test_unknown_expression_class_is_refused():
    class Other(tree.Expression):
        __match_args__ = ()

    batch = pa.RecordBatch.from_pydict({"a": [1]})
    for interpret in (lambda: mask(Other(), batch), lambda: evaluate(Other(), {}), lambda: compile_skipping(Other())):
        with pytest.raises(TypeError, match=r"not a .*predicate"):
            interpret()


def test_decimals_are_compared_as_the_nearest_double() -> None:
    """Newer releases of Arrow convert this decimal to a double with an error of one bit."""
    value = Decimal("37188644377.45882")
    batch = pa.RecordBatch.from_pydict(
        {"d": pa.array([value], pa.decimal128(20, 5)), "f": pa.array([float(value)]), "i": pa.array([2**53 + 1])}
    )
    for condition, matches in (("d = f", True), ("d > f", False), ("d < f", False), ("i > f", True)):
        assert mask(bind(parse_filter(condition), batch.schema), batch).to_pylist() == [matches]
