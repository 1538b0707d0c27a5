"""Casts and intervals in filters give the same values as in Spark, and fail where Spark fails, for many inputs."""

from __future__ import annotations

import collections
import datetime
import functools
import math
import random
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import delta_sharing_client as ds
from delta_sharing_client.errors import DataError
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.value_kinds import from_arrow, to_arrow
from delta_sharing_client.predicates.values import Day, Moment, Zone

pytestmark = pytest.mark.spark

_BLANKS = ["", "", "", "", " ", "\t", "\n", "\x00", "\x7f", "\u00a0", "\u2003"]
# Strings that are almost numbers, dates or timestamps.
_DIGITS = [
    "0",
    "7",
    "12",
    "99",
    "2024",
    "1969",
    "00",
    "-1",
    "+5",
    "128",
    "-129",
    "2147483648",
    "9" * 19,
    "9" * 39,
    "",
    "٣",
]
_SPECIAL = [
    "NaN", "nan", "-NaN", "-nan", "inf", "-Inf", "+INFINITY", "Infinity", "infinit", "1e400", "-1e400", "1e-400",
    "16777217", "1.00000017881393432617187499", "0x1p3", "1.5d", "2f", "1_000", "1e", "e5", ".", "+", "-", "--1",
    "true", "T", "yes", "Y", "1", "no", "F", "off", "on", "TRUE", "fAlse", "0",
    "1.005", "-1.005", "0.5", "1.5", "2.5", "99.995", "-99.994999", "12345678.985", "1E+2", "1e2000000000",
]  # fmt: skip
_ZONES = [
    "", "", "Z", "z", " Z", "UTC", "+02:00", "-2", "+2:30", "+0230", "+02:3", "-18:00", "+18:01", "UTC+3", "GMT-03:30",
    "UT", "+053015", "+05:30:15", "Europe/Berlin", " America/New_York", "Asia/Kathmandu", "europe/berlin", "Nope/City",
    "+", "-1:2:3", "+25:00", "utc",
]  # fmt: skip


def _texts(chance: random.Random, number: int) -> list[str]:
    def some() -> str:
        kind = chance.randrange(4)
        if kind == 0:
            text = chance.choice(_SPECIAL)
        elif kind == 1:
            text = chance.choice(_DIGITS) + chance.choice(["", ".", ".5", ".05", ".499999", "e1", "E-2", ".5e3"])
        else:
            year = chance.choice(["2024", "1969", "0001", "9999", "+12024", "-0005", "294247", "300000", "99", "1900"])
            text = year + chance.choice(["", "-2", "-02", "-13", "-1-31", "-02-29", "-02-30", "-12-31", "-6-1", "-06-"])
            if kind == 3:
                text += chance.choice([" ", "T", "t", "  "]) + chance.choice(
                    ["", "8", "08", "24", "08:5", "08:05", "08:60", "08:05:7", "08:05:59", "08:05:60", "08:05:00.",
                     "08:05:00.1", "08:05:00.123456", "08:05:00.1234569", "08:05:00,5", "23:59:59.999999", "garbage"]
                ) + chance.choice(_ZONES)  # fmt: skip
        return chance.choice(_BLANKS) + text + chance.choice(_BLANKS)

    return list(dict.fromkeys(some() for _ in range(number)))


_OF_TEXTS = {
    "tinyint": "{}", "int": "{}", "bigint": "{}", "float": "CAST({} AS DOUBLE)", "double": "{}", "boolean": "{}",
    "DECIMAL(10, 2)": "{}", "DECIMAL(38, 0)": "{}", "DECIMAL(3, 3)": "{}", "date": "unix_date({})",
    "timestamp": "unix_micros({})", "TIMESTAMP_NTZ": "unix_micros(CAST({} AS TIMESTAMP))",
}  # fmt: skip


def _here(sql: str, value: Any) -> Any:
    """Return the value of ``sql``, an expression over the column ``c``, for one value of ``c``; ``None`` if it
    fails."""
    data_type = functions.constant_type(value)
    call = _bound(sql, data_type)
    array = to_arrow([value], data_type)
    constants = [item.value for item in call.arguments[1:]]
    try:
        found = functions.apply(call.name, [value, *constants], call.type, sql)
    except DataError:
        with pytest.raises(DataError):
            functions.compute(call.name, array, constants, call.type, sql)
        return None
    (computed,) = from_arrow(functions.compute(call.name, array, constants, call.type, sql))
    assert str(computed) == str(found)
    return found


@functools.cache
def _bound(sql: str, data_type: pa.DataType) -> Any:
    # Filters refuse these casts as CAST, which DuckDB reads differently, but not as functions.
    sql = re.sub(r"CAST\(c AS (tinyint|smallint|int|bigint|timestamp)\)", r"\1(c)", sql, flags=re.IGNORECASE)
    return bind(parse_filter(f"{sql} IS NULL"), pa.schema({"c": data_type})).child


def _plain(value: Any) -> Any:
    return value.days if isinstance(value, Day) else value.nanoseconds // 1000 if isinstance(value, Moment) else value


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or (one == other and isinstance(one, bool) == isinstance(other, bool))


def test_strings_are_cast_as_in_spark(spark: Any) -> None:
    texts = _texts(random.Random(22), 1200)
    frame = spark.createDataFrame([(text,) for text in texts], "c string")
    casts = [shown.format(f"try_cast(c AS {name})") for name, shown in _OF_TEXTS.items()]
    answers = [tuple(row) for row in frame.selectExpr("c", *casts).collect()]
    assert [row[0] for row in answers] == texts
    counts: dict[str, collections.Counter[bool]] = collections.defaultdict(collections.Counter)
    for text, *expected in answers:
        for name, wanted in zip(_OF_TEXTS, expected, strict=True):
            found = _plain(_here(f"CAST(c AS {name})", text))
            counts[name][found is not None] += 1
            if name in ("float", "double") and found is None and "x" in text:
                continue  # hexadecimal numbers are not accepted
            assert _same(found, wanted), (name, text, found, wanted)
    for name, count in counts.items():
        assert min(count[True], count[False]) >= (3 if name == "DECIMAL(3, 3)" else 15), (name, count)


_OF_NUMBERS = {
    "tinyint": "{}", "int": "{}", "bigint": "{}", "boolean": "{}", "DECIMAL(10, 2)": "{}", "DECIMAL(4, 1)": "{}",
    "DECIMAL(1, 1)": "{}", "DECIMAL(38, 4)": "{}", "DECIMAL(3, 0)": "{}",
}  # fmt: skip


def test_numbers_are_cast_as_in_spark(spark: Any) -> None:
    chance = random.Random(23)
    longs = [0, 1, -1, 9, 10, 127, 128, -129, 999, 1000, 99_999_999, 100_000_000, (1 << 63) - 1, -(1 << 63)]
    longs += [chance.randrange(-(1 << 63), 1 << 63) for _ in range(20)]
    longs += [sign * 9_223_372_036_854 + near for sign in (1, -1) for near in (-1, 0, 1)]
    decimals = [
        Decimal(chance.randrange(-(10**digits), 10**digits)).scaleb(-3) for digits in range(1, 13) for _ in "1234"
    ]
    decimals += [Decimal(text) for text in ("0.050", "0.949", "0.950", "-0.950", "999.499", "999.500", "2.500")]
    shown = [*_OF_NUMBERS.items(), ("timestamp", "unix_micros({})")]
    for column, values, kinds in (("bigint", longs, shown), ("decimal(20,3)", decimals, shown[:-1])):
        frame = spark.createDataFrame([(value,) for value in values], f"c {column}")
        answers = frame.selectExpr("c", *(text.format(f"try_cast(c AS {name})") for name, text in kinds)).collect()
        counts: dict[str, int] = collections.Counter()
        for value, *expected in answers:
            for (name, _), wanted in zip(kinds, expected, strict=True):
                found = _plain(_here(f"CAST(c AS {name})", value))
                counts[name] += found is not None
                assert _same(found, wanted), (name, value, found, wanted)
        assert min(counts.values()) >= 1
    doubles = [0.0, -0.0, 0.1, -7.9, math.nan, math.inf]
    frame = spark.createDataFrame([(value,) for value in doubles], "c double")
    assert [row[0] for row in frame.selectExpr("CAST(c AS BOOLEAN)").collect()] == [
        _here("CAST(c AS BOOLEAN)", value) for value in doubles
    ]


def test_dates_and_timestamps_are_cast_as_in_spark(spark: Any) -> None:
    chance = random.Random(24)
    days = [0, -1, 19_782, -719_162, 2_932_896, *(chance.randrange(-700_000, 2_900_000) for _ in range(20))]
    micros = [0, -1, 86_400_000_000 - 1, *(chance.randrange(-60 * 10**15, 250 * 10**15) for _ in range(20))]
    targets = {"date": "unix_date({})", "timestamp": "unix_micros({})", **dict(list(_OF_TEXTS.items())[-1:])}
    frame = spark.createDataFrame([(value,) for value in days], "n int").selectExpr("date_from_unix_date(n) AS c")
    _assert_casts(frame, [Day(value) for value in days], targets)
    frame = spark.createDataFrame([(value,) for value in micros], "n bigint").selectExpr("timestamp_micros(n) AS c")
    _assert_casts(frame, [Moment(value * 1000, Zone.UTC) for value in micros], targets)
    frame = frame.selectExpr("CAST(c AS TIMESTAMP_NTZ) AS c")
    _assert_casts(frame, [Moment(value * 1000, Zone.LOCAL) for value in micros], targets)


def _assert_casts(frame: Any, values: list[Any], targets: dict[str, str]) -> None:
    answers = frame.selectExpr(*(shown.format(f"CAST(c AS {name})") for name, shown in targets.items())).collect()
    for value, expected in zip(values, answers, strict=True):
        assert [_plain(_here(f"CAST(c AS {name})", value)) for name in targets] == list(expected), value


_INTERVALS = [
    "c + INTERVAL 1 DAY", "c - INTERVAL '3' DAY", "INTERVAL -40 DAY + c", "c + INTERVAL 2 WEEK",
    "c + INTERVAL '2' HOUR", "c - INTERVAL 90 MINUTE", "c + INTERVAL '1.5' SECOND", "c - INTERVAL 0.000001 SECOND",
    "c + INTERVAL 7 MICROSECONDS",
    "c + INTERVAL 1 MONTH", "c - INTERVAL 1 MONTH", "c + INTERVAL '13' MONTH", "c - INTERVAL 3 YEARS",
    "c + INTERVAL 1 DAY 2 HOURS", "c + INTERVAL 24 HOUR", "date_add(c, 3)", "date_sub(c, 40)", "add_months(c, -2)",
    "c + -INTERVAL 5 DAYS", "c + INTERVAL 1 MONTH + INTERVAL 1 DAY", "c + INTERVAL 0 HOUR",
]  # fmt: skip
_OF_DATES = ["c + 5", "c - 7", "3 + c"]


def test_intervals_are_added_as_in_spark(spark: Any) -> None:
    chance = random.Random(25)
    days = [19_782, 19_753, 19_754, 0, -1, *(chance.randrange(-700_000, 2_900_000) for _ in range(25))]
    micros = [0, -1, *(day * 86_400_000_000 + chance.randrange(86_400_000_000) for day in days)]
    dates = spark.createDataFrame([(value,) for value in days], "n int").selectExpr("date_from_unix_date(n) AS c")
    times = spark.createDataFrame([(value,) for value in micros], "n bigint").selectExpr("timestamp_micros(n) AS c")
    for frame, values, texts in (
        (dates, [Day(value) for value in days], _INTERVALS + _OF_DATES),
        (times, [Moment(value * 1000, Zone.UTC) for value in micros], _INTERVALS),
        (
            times.selectExpr("CAST(c AS TIMESTAMP_NTZ) AS c"),
            [Moment(value * 1000, Zone.LOCAL) for value in micros],
            _INTERVALS,
        ),
    ):
        found = frame.selectExpr(*(f"{text} AS c{number}" for number, text in enumerate(texts)))
        types = [kind for _, kind in found.dtypes]
        shown = [
            f"unix_date(c{number})" if kind == "date" else f"unix_micros(CAST(c{number} AS TIMESTAMP))"
            for number, kind in enumerate(types)
        ]
        answers = found.selectExpr(*shown).collect()
        ours = functions.constant_type(values[0])
        for number, text in enumerate(texts):
            call = _bound(text, ours)
            assert {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC")}.get(
                types[number], pa.timestamp("us")
            ) == call.type, text
            results = _computed(call, to_arrow(values, ours))
            assert [_plain(value) for value in results] == [row[number] for row in answers], text


def _computed(call: Any, array: Any) -> list[Any]:
    inner, *others = call.arguments
    if hasattr(inner, "arguments"):
        array = to_arrow(_computed(inner, array), inner.type)
    return from_arrow(functions.compute(call.name, array, [item.value for item in others], call.type, str(call)))


@pytest.mark.parametrize(
    "days", [datetime.timedelta(days=3), datetime.timedelta(hours=5), datetime.timedelta(seconds=-1)]
)
def test_builder_adds_python_intervals(spark: Any, days: datetime.timedelta) -> None:
    moment = datetime.datetime(2024, 2, 29, 23, 30, tzinfo=datetime.timezone.utc)
    frame = spark.createDataFrame([(moment,)], "c timestamp")
    text = str((ds.col("c") + days)._operand)
    assert [row[0].replace(tzinfo=datetime.timezone.utc) for row in frame.selectExpr(text).collect()] == [moment + days]
