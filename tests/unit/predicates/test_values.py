from __future__ import annotations

import contextlib
import datetime
import math
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.values import (
    Day,
    Interval,
    Moment,
    Zone,
    as_double,
    as_float,
    decimal_of,
    format_date,
    format_value,
    integer_of,
    normalise,
    order,
    parse_date,
    parse_moment,
    string_of,
    timestamp_of,
    type_name,
)
from tests.quota import meets, met

UTC = datetime.timezone.utc


@meets(past=18)
@given(st.dates())
def test_dates_agree_with_python(value):
    met("past", value.year < 1970)
    day = normalise(value)
    assert str(day) == value.isoformat()
    assert parse_date(value.isoformat()) == day
    assert day.days == (value - datetime.date(1970, 1, 1)).days


@meets(past=11, beyond=5)
@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_dates_of_any_year_round_trip(days):
    met("past", days < 0)
    met("beyond", abs(days) > 3_000_000)
    assert parse_date(format_date(days)) == Day(days)


@meets(past=15, fraction=22)
@given(st.datetimes())
def test_datetimes_agree_with_python(value):
    met("past", value.year < 1970)
    met("fraction", value.microsecond)
    moment = normalise(value)
    assert moment == Moment(
        (value - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1) * 1000, Zone.LOCAL
    )
    assert parse_moment(value.isoformat(" ")) == moment
    assert parse_moment(str(moment)) == moment


@meets(offset=23, fraction=23)
@given(
    st.datetimes(min_value=datetime.datetime(2, 1, 1), max_value=datetime.datetime(9998, 1, 1)),
    st.integers(-1080, 1080),
)
def test_aware_datetimes_are_converted_to_instants(value, minutes):
    met("offset", minutes)
    met("fraction", value.microsecond)
    aware = value.replace(tzinfo=datetime.timezone(datetime.timedelta(minutes=minutes)))
    moment = normalise(aware)
    assert moment == Moment(
        (aware - datetime.datetime(1970, 1, 1, tzinfo=UTC)) // datetime.timedelta(microseconds=1) * 1000, Zone.UTC
    )
    assert parse_moment(aware.isoformat()) == moment
    assert parse_moment(str(moment)) == moment


@meets(past=11, finer=24)
@given(st.integers(-(1 << 63) * 1000, ((1 << 63) - 1) * 1000))
def test_timestamps_round_trip(nanoseconds):
    met("past", nanoseconds < 0)
    met("finer", nanoseconds % 1000)
    for zone in Zone:
        assert parse_moment(str(Moment(nanoseconds, zone))) == Moment(nanoseconds, zone)


def test_nanoseconds_of_pandas_and_numpy_are_kept():
    assert normalise(pd.Timestamp("2024-01-01 00:00:00.123456789")).nanoseconds % 1_000_000_000 == 123_456_789
    aware = pd.Timestamp("2024-01-01 00:00:00.123456789", tz="America/New_York")
    assert normalise(aware) == parse_moment("2024-01-01 05:00:00.123456789Z")
    assert normalise(pd.Timestamp("1960-01-01 00:00:00.000000001")) == parse_moment("1960-01-01 00:00:00.000000001")
    assert normalise(np.datetime64("2024-01-01T00:00:00.000000001", "ns")) == parse_moment(
        "2024-01-01 00:00:00.000000001"
    )
    assert normalise(np.datetime64("2024-01-01", "D")) == parse_date("2024-01-01")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (pd.NaT, None),
        (pd.NA, None),
        (np.datetime64("NaT", "ns"), None),
        (np.int8(5), 5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.bytes_(b"x"), b"x"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        (True, True),
    ],
)
def test_scalars_become_plain_values(value, expected):
    plain = normalise(value)
    assert plain == expected
    assert type(plain) is type(expected)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "type 'object'"),
        (Fraction(1, 2), "type 'Fraction'"),
        ([1], "type 'list'"),
        (1j, "type 'complex'"),
        (datetime.time(1, tzinfo=datetime.timezone.utc), "must have no time zone, found 01:00:00"),
        (np.timedelta64(1, "ns"), "numpy value of type timedelta64"),
        (np.timedelta64("NaT", "s"), "numpy value of type timedelta64"),
        (pd.Timedelta(1, "ns"), "must be a whole number of microseconds"),
        (np.datetime64("2024", "Y"), "numpy value of type"),
        ("\ud800", "lone surrogate"),
        (np.str_("x\ud800"), "lone surrogate"),
        (Decimal("NaN"), "decimal NaN"),
        (Decimal("1E+500"), "more than 400 digits"),
        (1 << 2000, "more than 1024 bits"),
    ],
)
def test_error_describes_an_invalid_value(value, message):
    with pytest.raises(UsageError, match=message):
        normalise(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "202",
        "2024-",
        "2024-13-01",
        "2023-02-29",
        "2024-00-01",
        "2024-01-00",
        "1900-02-29",
        "x",
        "2024-01-01 00:00",
        "٢٠٢٤-01-01",
    ],
)
def test_malformed_dates_are_refused(text):
    with pytest.raises(UsageError, match="is not a date; write it as"):
        parse_date(text)


@pytest.mark.parametrize(
    "text",
    ["", "2024-01-01 24:00:00", "2024-01-01 00:60:00", "2024-01-01 00:00:60",
     "2024-01-01 00:00:00 Nowhere/City", "2024-01-01Z", "2024-01-01 00:00:00+19:00", "2024-02-30", "12:00:00"],
)  # fmt: skip
def test_malformed_timestamps_are_refused(text):
    with pytest.raises(UsageError, match="is not a timestamp; write it as"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", "2024-02-29 00:00:00"),
        ("2024-2-9 1:2", "2024-02-09 01:02:00"),
        ("2024-02-29T23:59:59.5Z", "2024-02-29 23:59:59.500000Z"),
        ("2024-01-01 00:00:00+0130", "2023-12-31 22:30:00Z"),
        ("2024-01-01 00:00:00-8", "2024-01-01 08:00:00Z"),
        ("2024-01-01 00:00:00 UTC", "2024-01-01 00:00:00Z"),
        ("+12024-01-01 00:00:00", "+12024-01-01 00:00:00"),
        ("-0001-01-01 00:00:00", "-0001-01-01 00:00:00"),
    ],
)
def test_timestamps_are_parsed_as_in_spark(text, expected):
    assert str(parse_moment(text)) == expected


NAN = math.nan


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 2, -1),
        (2**53 + 1, 2.0**53, 0),  # compared as doubles, as in Spark
        (2**53 + 1, 2**53, 1),
        (Decimal("0.1"), 0.1, 0),
        (Decimal("0.1"), Decimal("0.10"), 0),
        (Decimal("1.5"), 1, 1),
        (NAN, NAN, 0),
        (NAN, math.inf, 1),
        (math.inf, NAN, -1),
        (10**400, math.inf, 0),
        (NAN, 10**400, 1),
        (-0.0, 0.0, 0),
        (False, True, -1),
        ("a", "b", -1),
        ("\uffff", "\U00010000", -1),
        (b"\x7f", b"\x80", -1),
        (Day(1), Moment(86_400_000_000_000, Zone.UTC), 0),
        (Day(1), "1970-01-02", 0),
        ("1970-01-02 00:00:00", Moment(86_400_000_000_000, Zone.UTC), 0),
        (None, 1, None),
        ("x", None, None),
    ],
)
def test_values_are_ordered_as_in_spark(left, right, expected):
    assert order(left, right) == expected
    assert order(right, left) == (None if expected is None else -expected)


@pytest.mark.parametrize(
    ("left", "right"), [(1, "1"), (True, 1), (b"a", "a"), (Day(1), 1), ("x", 1.0), (Decimal(1), False)]
)
def test_types_without_a_common_order_are_not_comparable(left, right):
    for sides in ((left, right), (right, left)):
        with pytest.raises(UsageError, match="cannot compare"):
            order(*sides)


@pytest.mark.parametrize("swapped", [False, True])
def test_string_compared_with_a_date_must_be_a_date(swapped):
    sides = (Day(5), "1970-01-06 10:00:00")
    with pytest.raises(UsageError, match="is not a date"):
        order(*(reversed(sides) if swapped else sides))


def test_timestamps_of_numpy_may_have_any_unit():
    assert normalise(np.datetime64(3, "10s")) == Moment(30_000_000_000, Zone.LOCAL)
    assert normalise(np.datetime64("9999-12-31")) == Day(2_932_896)
    assert normalise(np.datetime64("-9999-12-31T00:00", "m")).nanoseconds < -(1 << 63)


def test_integers_have_at_most_1024_bits():
    assert normalise((1 << 1024) - 1)
    with pytest.raises(UsageError, match="more than 1024 bits"):
        normalise(1 << 1024)


@pytest.mark.parametrize(("value", "fits"), [("-129", False), ("-128", True), (127, True), (128, False)])
def test_integer_beyond_its_type_is_refused(value, fits):
    with contextlib.nullcontext() if fits else pytest.raises(ValueError, match=r"^$"):
        assert integer_of(8)(value) == int(value)


def test_zero_decimal_may_have_any_exponent():
    assert decimal_of("0E+50", 5, 2) == decimal_of("0E-50", 5, 2) == 0
    assert str(decimal_of("-0.004", 5, 2)) == "0.00"


@pytest.mark.parametrize("sign", [1, -1])
def test_number_beyond_double_is_infinite(sign):
    assert as_double(sign * 10**400) == sign * math.inf
    assert as_double(sign * 5) == sign * 5.0


def test_numpy_longdoubles_become_doubles():
    double = normalise(np.longdouble("1.5"))
    assert (double, type(double)) == (1.5, float)
    assert normalise(np.longdouble("nan")) != 1.5


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (None, "null", "NULL"),
        (True, "boolean", "TRUE"),
        (False, "boolean", "FALSE"),
        (7, "integer", "7"),
        (-1.5, "double", "-1.5E0"),
        (1e300, "double", "1e+300"),
        (math.inf, "double", "CAST('Infinity' AS DOUBLE)"),
        (-math.inf, "double", "CAST('-Infinity' AS DOUBLE)"),
        (math.nan, "double", "CAST('NaN' AS DOUBLE)"),
        (Decimal("1.50"), "decimal", "1.50"),
        (Decimal("1E2"), "decimal", "100."),
        ("it's \\", "string", 'r"it\'s \\"'),
        (b"\xab\x01", "binary", "X'AB01'"),
        (Day(0), "date", "DATE '1970-01-01'"),
        (Moment(1_000, Zone.UTC), "timestamp", "TIMESTAMP '1970-01-01 00:00:00.000001Z'"),
        (Moment(1, Zone.LOCAL), "timestamp without time zone", "TIMESTAMP '1970-01-01 00:00:00.000000001'"),
    ],
)
def test_values_have_a_type_name_and_a_sql_literal(value, name, text):
    assert type_name(value) == name
    assert format_value(value) == text


def test_intervals_are_days_or_microseconds_or_months() -> None:
    for value, interval in (
        (datetime.timedelta(days=-2), Interval(-2, "DAY")),
        (datetime.timedelta(hours=25), Interval(25 * 3_600_000_000, "MICROSECOND")),
        (np.timedelta64(48, "h"), Interval(2, "DAY")),
        (np.timedelta64(1_500, "ms"), Interval(1_500_000, "MICROSECOND")),
        (pd.Timedelta("1s"), Interval(1_000_000, "MICROSECOND")),
    ):
        assert normalise(value) == interval
    shown = [str(Interval(count, "MICROSECOND")) for count in (7_200_000_000, -60_000_000, 1_000_000, 1)]
    assert shown == ["INTERVAL '2' HOUR", "INTERVAL '-1' MINUTE", "INTERVAL '1' SECOND", "INTERVAL '1' MICROSECOND"]


LAST = (2**63 - 1) // 10**6


@pytest.mark.parametrize("zone", list(Zone))
@pytest.mark.parametrize(
    ("value", "micros"),
    [
        (0, 0),
        (-1, -(10**6)),
        (LAST, LAST * 10**6),
        (LAST + 1, 2**63 - 1),
        (2**63 - 1, 2**63 - 1),
        (-LAST, -LAST * 10**6),
        (-LAST - 1, -(2**63)),
        (-(2**63), -(2**63)),
        (Day(1), 86_400 * 10**6),
        (Day(106_751_991), 106_751_991 * 86_400 * 10**6),
        (Moment(1999, Zone.UTC), 1),
        (Moment((2**63 - 1) * 1000 + 999, Zone.LOCAL), 2**63 - 1),
        (Moment(-(2**63) * 1000, Zone.LOCAL), -(2**63)),
    ],
)
def test_timestamps_are_limited_to_64_bits(zone: Zone, value: object, micros: int) -> None:
    assert timestamp_of(zone)(value) == Moment(micros * 1000, zone)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [Day(106_751_992), Day(-106_751_992), Moment(2**63 * 1000, Zone.UTC), "yesterday"])
def test_invalid_timestamp_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - callers name the cast
        timestamp_of(Zone.UTC)(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("unit", "most"), [("MICROSECOND", 2**63 - 1), ("DAY", 2**31 - 1), ("MONTH", 2**31 - 1)])
def test_interval_beyond_64_or_32_bits_is_refused(unit: str, most: int) -> None:
    for count in (most, -most):
        assert Interval(count, unit).count == count
    for count in (most + 1, -most - 1):
        with pytest.raises(UsageError, match="is too long"):
            Interval(count, unit)


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (False, "false"), (Day(0), "1970-01-01"), (-7, "-7"), (Day(-719_162), "0001-01-01")],
)
def test_values_are_cast_to_strings_as_in_spark(value: object, text: str) -> None:
    assert string_of(value) == text  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "expected"), [(0.1, 0.10000000149011612), (1e39, math.inf), (-1e39, -math.inf)])
def test_as_float_rounds_to_single_precision(value: float, expected: float) -> None:
    assert as_float(value) == expected
    assert type(as_float(value)) is float


@pytest.mark.parametrize("text", ["1E400", "1E-400", "-9E+400", "123E398"])
def test_decimal_of_400_digits_is_read(text: str) -> None:
    assert normalise(Decimal(text)) == Decimal(text)


@pytest.mark.parametrize("text", ["1E401", "1E-401", "123E399", "123E-401"])
def test_decimal_of_401_digits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="more than 400 digits"):
        normalise(Decimal(text))


def test_values_have_sql_type_names() -> None:
    assert [type_name(value) for value in (Interval(1, "DAY"), b"", Decimal(1), None)] == [
        "interval",
        "binary",
        "decimal",
        "null",
    ]
