from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import binding
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind, is_exact
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Column, Comparison, Literal, Op, col
from delta_sharing_client.predicates.value_kinds import from_arrow, to_arrow
from delta_sharing_client.predicates.values import Day, Moment, Zone
from tests.unit.predicates.strategies import SCHEMA, table

# Nanoseconds: whole microseconds and days, values between them, and values beyond 64 bits.
FAR = (0, 1, 500, 1000, 86_400_000_000_000, 86_400_000_000_001, 1 << 80, -(1 << 80))


def bound(condition: object, schema: pa.Schema = SCHEMA) -> str:
    return str(bind(parse_filter(condition), schema))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # constants of the column's type
        ("i64 > 5", "i64 > 5"),
        ("i64 > 5.0", "i64 > 5"),
        ("small = 1.5", "small = 1.50"),
        ("f64 = 1", "f64 = 1.0E0"),
        ("f64 = 0.1", "f64 = 0.1E0"),
        ("f32 = 0.5", "f32 = 0.5E0"),
        # constants between two values of the column
        ("i64 > 1.5", "i64 > 1"),
        ("i64 >= 1.5", "i64 >= 2"),
        ("i64 < 1.5", "i64 < 2"),
        ("i64 <= 1.5", "i64 <= 1"),
        ("i64 <= -1.5", "i64 <= -2"),
        ("i8 = 1.5", "i8 < -128"),
        ("i8 <> 1.5", "i8 >= -128"),
        ("i64 = 1.5E0", "i64 < -9223372036854775808"),
        ("small > 1.005", "small > 1.00"),
        ("small >= 1.005", "small >= 1.01"),
        ("f32 > 0.1E0", "f32 > 0.09999999403953552E0"),
        ("f32 = 0.1E0", "f32 < CAST('-Infinity' AS DOUBLE)"),
        ("day > TIMESTAMP '2024-01-01 12:00:00'", "day > DATE '2024-01-01'"),
        ("day >= TIMESTAMP '2024-01-01 12:00:00'", "day >= DATE '2024-01-02'"),
        ([("instant", ">", "2024-01-01 00:00:00.0000015Z")], "instant > TIMESTAMP '2024-01-01 00:00:00.000001Z'"),
        # constants beyond all values of the column
        ("i8 = 300", "i8 < -128"),
        ("i8 < 300", "i8 >= -128"),
        ("i8 > 300", "i8 > 127"),
        ("i8 > -300", "i8 >= -128"),
        ("i8 <= 1e300", "i8 <= 127"),
        ("i8 < CAST('NaN' AS DOUBLE)", "i8 >= -128"),
        ("i8 = CAST('NaN' AS DOUBLE)", "i8 < -128"),
        ("small < 1000", "small >= -99.99"),
        ("f32 < 1e300", "f32 < CAST('Infinity' AS DOUBLE)"),
        ("i8 <=> 300", "i8 < -128 AND i8 IS NOT NULL"),
        ("i8 IN (1, 300, 2.5, NULL)", "i8 IN (1, NULL) OR i8 < -128"),
        ("i8 NOT IN (300)", "NOT (i8 < -128)"),
        # doubles that equal several values of the column
        ("i64 = 9007199254740993E0", "i64 >= 9007199254740992 AND i64 <= 9007199254740993"),
        ("i64 IN (1, 9007199254740993E0)", "i64 IN (1) OR (i64 >= 9007199254740992 AND i64 <= 9007199254740993)"),
        ("small = 0.1E0", "small = 0.10"),
        # constants of other types
        ("5 < i64", "i64 > 5"),
        ("day = '2024-01-01'", "day = DATE '2024-01-01'"),
        ("instant = '2024-01-01'", "instant = TIMESTAMP '2024-01-01 00:00:00Z'"),
        ("instant = '2024-01-01T00:00:00+02:00'", "instant = TIMESTAMP '2023-12-31 22:00:00Z'"),
        ("instant = DATE '2024-01-01'", "instant = TIMESTAMP '2024-01-01 00:00:00Z'"),
        ("instant = TIMESTAMP_NTZ '2024-01-01 00:00:00'", "instant = TIMESTAMP '2024-01-01 00:00:00Z'"),
        ("wall = '2024-01-01 01:00:00'", "wall = TIMESTAMP '2024-01-01 01:00:00'"),
        ("flag", "flag = TRUE"),
        # NULL
        ("i64 = NULL", "NULL"),
        ("i64 IN (NULL)", "NULL"),
        ("void = 1", "NULL"),
        ("void = i64", "NULL"),
        ("void LIKE 'x'", "NULL"),
        ("lower(void) LIKE 'x'", "NULL"),
        ("void IN (1, 2)", "NULL"),
        ("void IS NULL", "void IS NULL"),
        ("void <=> i64", "i64 IS NULL"),
        ("i64 <=> void", "i64 IS NULL"),
        ("i64 <=> NULL", "i64 IS NULL"),
        # constants only
        ("1 < 2", "TRUE"),
        ("NULL <=> NULL", "TRUE"),
        ("1 <=> NULL", "FALSE"),
        ("1 <=> 1.0", "TRUE"),
        ("lower(void) = 'x'", "NULL"),
        ("lower(void) <=> 'x'", "FALSE"),
        ("lower(void) <=> text", "text IS NULL"),
        ("lower(void) IN ('x')", "NULL"),
        ("lower(void) IS NULL", "TRUE"),
        ("coalesce(void, 'x') IS NULL", "FALSE"),
        # names
        ("I64 = 1 AND nest.N = 1 AND NEST.deep.T = 'x'", "i64 = 1 AND Nest.n = 1 AND Nest.Deep.t = 'x'"),
        ("`DOTTED.name` = 1", "`dotted.name` = 1"),
        ("list IS NULL OR Nest IS NULL", "list IS NULL OR Nest IS NULL"),
    ],
)
def test_constants_and_names_are_bound_to_columns(text, expected):
    assert bound(text) == expected


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        (np.int64(5), "i64", "5"),
        (np.float32(0.1), "f64", "0.10000000149011612E0"),
        (np.float32(0.1), "f32", "0.10000000149011612E0"),
        (Decimal("1.10"), "small", "1.10"),
        (datetime.date(2024, 1, 1), "instant", "TIMESTAMP '2024-01-01 00:00:00Z'"),
        (datetime.datetime(2024, 1, 1), "instant", "TIMESTAMP '2024-01-01 00:00:00Z'"),
        (pd.Timestamp("2024-01-01", tz="Asia/Tokyo"), "instant", "TIMESTAMP '2023-12-31 15:00:00Z'"),
        (pd.Timestamp("2024-01-01"), "wall", "TIMESTAMP '2024-01-01 00:00:00'"),
        (np.datetime64("2024-01-01"), "day", "DATE '2024-01-01'"),
        (b"\x01", "blob", "X'01'"),
    ],
)
def test_python_and_numpy_values_are_converted_to_constants(value, column, expected):
    assert bound(col(column) == value) == f"{column} = {expected}"


def test_nanoseconds_of_constants_are_kept():
    moment = pd.Timestamp("2024-01-01 00:00:00.000000001")
    assert bound(col("wall") >= moment) == "wall >= TIMESTAMP '2024-01-01 00:00:00.000001'"
    assert bound(col("wall") == moment).startswith("wall < TIMESTAMP '-290308")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i65 = 1", "The column 'i65' is not in the table. Did you mean 'i64'?"),
        ("zzzz = 1", "The column 'zzzz' is not in the table. Its columns are 'flag', 'i8'"),
        (
            "Nest.x = 1",
            "the struct 'Nest' has no field 'x'. Its fields are 'Nest.n', 'Nest.Deep'",
        ),
        ("i64.x = 1", "'i64' is not a struct, so it has no field 'x'"),
        ("i64 = 'x'", "The column 'i64' has the type long and cannot be compared with the string 'x'"),
        ("i64 = TRUE", "The column 'i64' has the type long and cannot be compared with the boolean TRUE"),
        (
            "text = 5",
            "The column 'text' has the type string and cannot be compared with the integer 5. Write it in quotes",
        ),
        ("text = 5.5", "The column 'text' has the type string and cannot be compared with the decimal"),
        ("text = X'00'", "string and cannot be compared with the binary"),
        ("blob = 'x'", "binary and cannot be compared with the string 'x'. Write bytes or X'...'"),
        ("flag = 1", "boolean and cannot be compared with the integer 1. Write TRUE or FALSE"),
        ("day = 5", "date and cannot be compared with the integer 5"),
        ("day = 'soon'", "The column 'day' has the type date. 'soon' is not a date"),
        ("day = '2024-01-01 12:00:00'", "is not a date; write it as yyyy-mm-dd"),
        ("instant = 'soon'", "The column 'instant' has the type timestamp. 'soon' is not a timestamp"),
        ("wall = '2024-01-01 00:00:00Z'", "timestamp without time zone and cannot be compared with the instant"),
        ("small = 'x'", r"decimal\(4, 2\) and cannot be compared with the string"),
        ("list = 1", "type array, which cannot be compared. Test it with IS NULL"),
        ("Nest = 1", "type struct, which cannot be compared"),
        ("Nest IN (1)", "type struct, which cannot be compared"),
        ("i64 IN (1, 'x')", "long and cannot be compared with the string"),
        ("i64 LIKE 'x'", "LIKE needs a string, but the column 'i64' has the type long"),
        ("startswith(blob, 'x')", "startswith needs a string, but the column 'blob' has the type binary"),
        ("i64 = text", r"The column 'i64' \(long\) cannot be compared with the column 'text' \(string\)"),
        ("i64 <=> text", r"The column 'i64' \(long\) cannot be compared with the column 'text' \(string\)"),
        ("instant = wall", r"'instant' \(timestamp\) cannot be compared with the column 'wall' \(timestamp without"),
        (
            "clock = 1",
            "'clock' has the type time and cannot be compared with the integer 1. Write a time of day in single quotes",
        ),
        ("clock = '24:00'", "'clock' has the type time. '24:00' is not a time of day; write it as hh:mm:ss"),
        ("clock = wall", r"'clock' \(time\) cannot be compared with the column 'wall' \(timestamp without"),
        ("clock > TIME(3) '12:00'", "write it without a number of digits"),
        ("Nest = Nest", "can only be tested with IS NULL"),
        ("'i64' = 1", "write names in backticks, not in quotes"),
    ],
)
def test_error_of_an_invalid_operand_is_one_sentence(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        bound(text)
    assert "\n" not in str(caught.value)


def test_names_that_differ_in_case_must_match_exactly():
    schema = pa.schema({"A": pa.int64(), "a": pa.int64()})
    assert bound("a = 1 AND A = 2", schema) == "a = 1 AND A = 2"
    ambiguous = pa.schema({"ab": pa.int64(), "AB": pa.int64()})
    with pytest.raises(UsageError, match="ambiguous: it matches 'ab', 'AB'"):
        bound("Ab = 1", ambiguous)


def test_types_without_comparison_are_refused():
    schema = pa.schema({"m": pa.map_(pa.string(), pa.int32()), "d": pa.duration("us")})
    for name, type_name in (("m", "map"), ("d", "duration")):
        with pytest.raises(UsageError, match=f"type {type_name}.*which cannot be compared"):
            bound(f"{name} = 1", schema)
        assert bound(f"{name} IS NULL", schema) == f"{name} IS NULL"


def test_dictionary_and_large_types_bind_as_value_types():
    schema = pa.schema({"d": pa.dictionary(pa.int8(), pa.int8()), "s": pa.large_string(), "u": pa.uint8()})
    assert bound("d > 300 OR s = 'x' OR u = -1", schema) == "d > 127 OR s = 'x' OR u < 0"


def test_bound_column_has_its_spelling_and_type():
    assert bind(parse_filter("nest.n > 1"), SCHEMA) == Comparison(Op.GT, Column(("Nest", "n"), pa.int32()), Literal(1))


@pytest.mark.parametrize(("value", "advised"), [("'x'", True), ("DATE '2024-01-01'", False), ("TRUE", False)])
def test_only_string_constants_get_the_advice_on_quotes(value, advised):
    with pytest.raises(UsageError, match="cannot be compared with") as caught:
        bind(parse_filter(f"a = {value}"), pa.schema([("a", pa.int32())]))
    assert ("without quotes" in caught.value.message) is advised


def test_filter_on_a_schema_without_columns_is_refused():
    with pytest.raises(UsageError, match="which has no columns"):
        bound("a = 1", pa.schema([]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i64 > 5", True),
        ("i64 > 5.0", False),
        ("i8 = 300", False),
        ("f32 = 0.5E0", True),
        ("f32 = 0.5", False),
        ("f32 = 0.1", False),
        ("f64 = 1", True),
        ("small = 1.50", True),
        ("small = 1.505", False),
        ("i64 IN (1, 2)", True),
        ("i64 IN (1, 2.5)", False),
        ("i64 > 1 AND f32 < 0.1", False),
        ("i64 IS NULL", True),
        ("i64 <=> NULL", True),
        ("year(day) > 2023", True),
        ("year(day) > 2023.5", False),
        ("day = DATE '2024-01-01'", True),
        ("day = '2024-01-01'", False),
        ("day = TIMESTAMP '2024-01-01 00:00:00Z'", False),
        ("instant = TIMESTAMP '2024-01-01 00:00:00Z'", True),
        ("instant = TIMESTAMP '2024-01-01 00:00:00'", False),
        ("nothing = 1", False),
        ("i64 <=> 5", True),
        ("i64 <=> 5.5", False),
        ("NOT (i64 > 5.5)", False),
        ("NOT (text LIKE 'a%')", True),
        ("FALSE", True),
        ("TRUE", False),
        ("startswith(text, 'a')", True),
        ("i64 LIKE 'a'", False),
        ("i64 = i32", False),
        ("month(day) = 5", False),
        ("lower(text) = 'a'", False),
        ("date(instant) = DATE '2024-01-01'", True),
        ("year(day) = year(day)", False),
    ],
)
def test_is_exact_recognizes_exact_conditions(text: str, expected: bool) -> None:
    assert is_exact(parse_filter(text), SCHEMA) is expected


@pytest.mark.parametrize(
    ("data_type", "stored", "constants"),
    [
        (pa.int8(), [-128, 0, 127, None], [-129, -128, -127.5, 0.5, 127, 127.5, 128, 1e300, -1e300]),
        (pa.float32(), [0.5, -1.5, None], [0.5, 0.1, 3.5e38, -3.5e38, 1e300, -1e300]),
        (pa.decimal128(3, 2), [Decimal("-9.99"), Decimal("9.99"), None], [Decimal("9.995"), 10, -10, Decimal("-9.99")]),
        (pa.date32(), [Day(-(2**31)), Day(0), Day(2**31 - 1), None], [Moment(at, Zone.LOCAL) for at in FAR]),
        (
            pa.timestamp("us"),
            [Moment(at, Zone.LOCAL) for at in (-1000, 0, 1000)],
            [Moment(at, Zone.LOCAL) for at in FAR],
        ),
        (pa.int64(), [2**53, 2**53 + 1, 2**63 - 1, None], [2.0**53, 2.0**63, -(2.0**64), 2**53 + 1]),
    ],
    ids=str,
)
def test_constants_at_and_beyond_the_range_of_a_type_are_exact(
    data_type: pa.DataType, stored: list[Any], constants: list[Any]
) -> None:
    schema = pa.schema({"c": data_type})
    batch = table({"c": stored}, schema)
    for constant in constants:
        for op in Op:
            expression = Comparison(op, Column(("c",)), Literal(constant))
            expected = [evaluate(expression, {"c": value}) is True for value in stored]
            assert mask(bind(expression, schema), batch).to_pylist() == expected, (op, constant)
            bound = [evaluate(bind(expression, schema), {"c": value}) is True for value in stored]
            assert bound == expected, (op, constant)


INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
ENDS: list[tuple[pa.DataType, list[Any]]] = [
    *((kind, [-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1, 0]) for kind in INTEGERS[:4]),
    *((kind, [0, 2**kind.bit_width - 1, 1]) for kind in INTEGERS[4:]),
    (pa.decimal128(3, 1), [Decimal("-99.9"), Decimal("99.9"), Decimal("0.0")]),
    (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1 - 10**38)]),
    (pa.float32(), [0.0, 0.5, -(2.0**127), 3.4028234663852886e38, -3.4028234663852886e38]),
    (pa.float64(), [0.1, 1e308]),
    (pa.date32(), [Day(-(2**31)), Day(2**31 - 1)]),
    (pa.timestamp("us"), [Moment(-(2**63) * 1000, Zone.LOCAL), Moment((2**63 - 1) * 1000, Zone.LOCAL)]),
    (pa.timestamp("us", "UTC"), [Moment(-(2**63) * 1000, Zone.UTC), Moment((2**63 - 1) * 1000, Zone.UTC)]),
    (pa.timestamp("ns"), [Moment(-(2**63), Zone.LOCAL), Moment(2**63 - 1, Zone.LOCAL)]),
]


@pytest.mark.parametrize(("data_type", "values"), ENDS, ids=lambda value: str(value)[:30])
def test_constant_of_the_columns_type_is_bound_without_search(
    data_type: pa.DataType, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*arguments: object) -> int:
        raise AssertionError("a search takes a step per bit of the type")

    monkeypatch.setattr(binding, "_search", search)
    schema = pa.schema({"c": data_type})
    for value in values:
        for op in Op:
            expected = Comparison(op, Column(("c",), data_type), Literal(value))
            assert bind(Comparison(op, Column(("c",)), Literal(value)), schema) == expected
            assert bind(Comparison(op, Literal(value), Column(("c",))), schema) == Comparison(
                op.flipped, expected.left, expected.right
            )


@pytest.mark.parametrize(("days", "text"), [(2**31, "c >= {first}"), (-(2**31) - 1, "c < {first}")])
def test_comparison_with_a_day_beyond_date_is_rewritten(days: int, text: str) -> None:
    bound = bind(Comparison(Op.LT, Column(("c",)), Literal(Day(days))), pa.schema({"c": pa.date32()}))
    assert str(bound) == text.format(first=f"DATE '{Day(-(2**31))}'")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("coalesce(v, NULL, a, b) = 1", "coalesce(a, b) = 1"),
        ("coalesce(v, a) = 1", "a = 1"),
        ("coalesce(v, v) IS NULL", "TRUE"),
    ],
)
def test_column_of_type_null_is_removed_from_coalesce(text: str, expected: str) -> None:
    schema = pa.schema({"v": pa.null(), "a": pa.int32(), "b": pa.int32()})
    assert str(bind(parse_filter(text), schema)) == expected


@pytest.mark.parametrize("data_type", [pa.date32(), pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.int8()], ids=str)
def test_nulls_round_trip_through_arrow(data_type: pa.DataType) -> None:
    integers = pa.int32() if pa.types.is_date(data_type) else pa.int64()
    values = from_arrow(pa.array([5, None], integers).cast(data_type))
    assert from_arrow(to_arrow(values, data_type)) == values
    assert values[1] is None


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(
    "call", ["year(t)", "date(t)", "year(d)", "date(d)", "CAST(t AS DATE)", "t + INTERVAL 3 DAYS", "i8 + 1", "i8"]
)
@pytest.mark.parametrize("constant", ["2024", "DATE '2024-02-29'", "3", "3.5"])
def test_constant_may_be_on_either_side(op: Op, call: str, constant: str) -> None:
    schema = pa.schema({"t": pa.timestamp("us"), "d": pa.date32(), "i8": pa.int8()})

    def bound(text: str) -> object:
        try:
            return bind(parse_filter(text), schema)
        except UsageError as error:
            return error.message

    assert bound(f"{constant} {op.flipped.value} {call}") == bound(f"{call} {op.value} {constant}")
